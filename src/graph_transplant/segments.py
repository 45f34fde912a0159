"""Index arithmetic on segments: the nodes (or edges, or pairs) of many graphs laid end to end.

A batch of graphs is one long list of nodes; a *segment* is the stretch that belongs to one graph.
Everything here works on all segments at once: at most one sort, no Python loop over graphs.
Random choices are made from ``keys`` drawn beforehand, so that each function is deterministic
and a slow reference version can replay the same choices.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag


def offsets(counts: Tensor) -> Tensor:
    """Return where each segment starts, and where the last one ends.

    Args:
        counts: Items per segment, integer ``[segments]``.

    Returns:
        int64 ``[segments + 1]``.

    Example:
        >>> offsets(torch.tensor([2, 0, 3]))
        tensor([0, 2, 2, 5])
    """
    ptr = torch.zeros(counts.numel() + 1, dtype=torch.long, device=counts.device)
    torch.cumsum(counts, 0, out=ptr[1:])
    return ptr


def segment_ids(counts: Tensor) -> Tensor:
    """Return the segment number of every item.

    Args:
        counts: Items per segment, integer ``[segments]``.

    Returns:
        int64 ``[items]``, sorted.

    Example:
        >>> segment_ids(torch.tensor([2, 0, 3]))
        tensor([0, 0, 2, 2, 2])
    """
    return torch.repeat_interleave(torch.arange(counts.numel(), device=counts.device), counts)


def ranges(starts: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Lay the index ranges ``starts[i], …, starts[i] + counts[i] - 1`` end to end.

    Args:
        starts: First index of each range, int64 ``[segments]``.
        counts: Length of each range, int64 ``[segments]``.

    Returns:
        The indices and the segment of each, both int64 ``[counts.sum()]``.

    Example:
        >>> ranges(torch.tensor([10, 3]), torch.tensor([2, 3]))
        (tensor([10, 11,  3,  4,  5]), tensor([0, 0, 1, 1, 1]))
    """
    segment = segment_ids(counts)
    shift = starts - offsets(counts)[:-1]
    index = torch.arange(segment.numel(), device=segment.device)
    return index.add_(shift.index_select(0, segment)), segment


def rank_in_segment(keys: Tensor, segment: Tensor, ptr: Tensor) -> Tensor:
    """Rank the items of each segment by ascending key; equal keys keep their order.

    Args:
        keys: What to rank by, ``[items]``.
        segment: Segment of each item, sorted int64 ``[items]``.
        ptr: Offsets of the segments, int64 ``[segments + 1]``.

    Returns:
        int64 ``[items]``: 0 for the smallest key of a segment, 1 for the next, and so on.

    Example:
        >>> segment, ptr = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 3, 5])
        >>> rank_in_segment(torch.tensor([0.3, 0.1, 0.2, 9.0, 7.0]), segment, ptr)
        tensor([2, 0, 1, 1, 0])
    """
    order = torch.argsort(keys, stable=True)
    order = order.index_select(0, torch.argsort(segment.index_select(0, order), stable=True))
    position = torch.arange(keys.numel(), device=keys.device) - ptr.index_select(0, segment)
    return torch.empty_like(position).scatter_(0, order, position)


def choose_per_segment(
    count: Tensor, keys: Tensor, segment: Tensor, ptr: Tensor, among: Tensor | None = None
) -> Tensor:
    """Choose a given number of items of each segment: the eligible ones with the smallest keys.

    With independent uniform keys every subset of that size is equally likely.

    Args:
        count: How many to choose, integer ``[segments]``; where fewer are eligible, all of them.
        keys: float64 ``[items]`` in ``[0, 1)``.
        segment: Segment of each item, sorted int64 ``[items]``.
        ptr: Offsets of the segments, int64 ``[segments + 1]``.
        among: Eligible items, bool ``[items]``; all by default.

    Returns:
        bool ``[items]``.

    Example:
        >>> segment, ptr = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 3, 5])
        >>> keys = torch.tensor([0.3, 0.1, 0.2, 0.9, 0.7], dtype=torch.double)
        >>> choose_per_segment(torch.tensor([2, 1]), keys, segment, ptr)
        tensor([False,  True,  True, False,  True])
    """
    # One sort: segments two apart, eligible items in the first half of each.
    combined = segment.to(torch.double).mul_(2.0).add_(keys)
    if among is not None:
        combined.add_(among.logical_not())
    chosen = first_per_segment(count, combined, segment, ptr)
    return chosen if among is None else chosen & among


def shuffled_segments(keys: Tensor, segment: Tensor) -> Tensor:
    """Shuffle the items of each segment, which stays in its place.

    Args:
        keys: Random numbers in ``[0, 1)``, float64 ``[items]``; items come by ascending key.
        segment: Segment of each item, sorted int64 ``[items]``.

    Returns:
        The items in their new order, int64 ``[items]``.

    Example:
        >>> keys = torch.tensor([0.3, 0.1, 0.9, 0.7], dtype=torch.double)
        >>> shuffled_segments(keys, torch.tensor([0, 0, 1, 1]))
        tensor([1, 0, 3, 2])
    """
    # Segments stand two apart, so that no rounding of a sum reaches the next one.
    return torch.argsort(segment.to(torch.double).mul_(2.0).add_(keys))


def first_per_segment(count: Tensor, codes: Tensor, segment: Tensor, ptr: Tensor) -> Tensor:
    """Mark a given number of items of each segment: those with the smallest codes.

    Args:
        count: How many to mark, integer ``[segments]``.
        codes: What to sort by, ``[items]``; the codes of a segment are all larger than those of the
            segments before it, so that one sort serves all.
        segment: Segment of each item, sorted int64 ``[items]``.
        ptr: Offsets of the segments, int64 ``[segments + 1]``.

    Returns:
        bool ``[items]``.

    Example:
        >>> segment, ptr = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 2, 4])
        >>> first_per_segment(torch.tensor([1, 1]), torch.tensor([3, 1, 12, 15]), segment, ptr)
        tensor([False,  True,  True, False])
    """
    order = torch.argsort(codes)
    position = torch.arange(codes.numel(), device=codes.device) - ptr.index_select(0, segment)
    inside = position < count.index_select(0, segment)
    return torch.empty_like(inside).scatter_(0, order, inside)


def count_per_segment(items: Tensor, ptr: Tensor) -> Tensor:
    """Count the marked items of each segment, or add up their counts.

    Args:
        items: Marks, bool ``[items]``, or counts, integer ``[items]``.
        ptr: Offsets of the segments, int64 ``[segments + 1]``.

    Returns:
        int64 ``[segments]``.

    Example:
        >>> count_per_segment(torch.tensor([True, False, True]), torch.tensor([0, 2, 2, 3]))
        tensor([1, 0, 1])
    """
    return offsets(items.to(torch.long)).index_select(0, ptr).diff()


class _SegmentSum(torch.autograd.Function):
    """Sum of the rows of each segment; the gradient of a row is that of its segment."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, segment: Tensor, ptr: Tensor) -> Tensor:
        ctx.save_for_backward(segment)
        index = torch.arange(values.shape[0], device=values.device)
        return embedding_bag(index, values.detach(), ptr, mode="sum", include_last_offset=True)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (segment,) = ctx.saved_tensors
        return gradients[0].index_select(0, segment), None, None


def segment_sum(values: Tensor, segment: Tensor, ptr: Tensor) -> Tensor:
    """Sum the values of each segment, differentiably.

    Args:
        values: float ``[items]`` or ``[items, columns]``.
        segment: Segment of each item, sorted int64 ``[items]``.
        ptr: Offsets of the segments, int64 ``[segments + 1]``.

    Returns:
        ``[segments]`` or ``[segments, columns]``; zero for an empty segment.

    Example:
        >>> segment, ptr = torch.tensor([0, 0, 2]), torch.tensor([0, 2, 2, 3])
        >>> segment_sum(torch.tensor([1.0, 2.0, 5.0]), segment, ptr)
        tensor([3., 0., 5.])
    """
    if values.dim() == 1:
        return values.new_zeros(ptr.numel() - 1).index_add(0, segment, values)
    total: Tensor = _SegmentSum.apply(values.contiguous(), segment, ptr)  # type: ignore[no-untyped-call]
    return total


class _GatherRows(torch.autograd.Function):
    """Rows by number; the gradient of a row is the sum over the places it went to."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = values.shape[0]
        return values.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        ptr = offsets(torch.bincount(index, minlength=ctx.rows))
        order = torch.argsort(index)
        gradient = gradients[0].contiguous()
        return embedding_bag(order, gradient, ptr, mode="sum", include_last_offset=True), None


def gather_rows(values: Tensor, index: Tensor) -> Tensor:
    """Take rows by number, like ``index_select`` but with a backward pass that does not scatter.

    Args:
        values: float ``[rows, columns]``.
        index: Row numbers, int64 ``[taken]``.

    Returns:
        float ``[taken, columns]``.

    Example:
        >>> gather_rows(torch.tensor([[1.0], [2.0]]), torch.tensor([1, 1, 0]))
        tensor([[2.],
                [2.],
                [1.]])
    """
    taken: Tensor = _GatherRows.apply(values, index)  # type: ignore[no-untyped-call]
    return taken


class _SegmentMax(torch.autograd.Function):
    """Largest value of each segment; where several are equal, they share its gradient."""

    # Torch's own backward pass gives each of them the whole gradient where that is negative.

    @staticmethod
    def forward(ctx: Any, values: Tensor, ptr: Tensor) -> Tensor:
        largest = torch.segment_reduce(values.detach(), "max", offsets=ptr, axis=0)
        ctx.save_for_backward(values, largest, ptr)
        return largest.masked_fill(ptr.diff().eq(0).unsqueeze(1), 0.0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        values, largest, ptr = ctx.saved_tensors
        segment = segment_ids(ptr.diff())
        reached = (values == largest.index_select(0, segment)).to(values.dtype)
        share = gradients[0] / segment_sum(reached, segment, ptr)
        return share.index_select(0, segment) * reached, None


def segment_max(values: Tensor, ptr: Tensor) -> Tensor:
    """Take the largest value of each segment, column by column, differentiably.

    Example:
        >>> values = torch.tensor([[1.0, 4.0], [2.0, 3.0], [-1.0, -2.0]])
        >>> segment_max(values, torch.tensor([0, 2, 3]))
        tensor([[ 2.,  4.],
                [-1., -2.]])
    """
    largest: Tensor = _SegmentMax.apply(values.contiguous(), ptr)  # type: ignore[no-untyped-call]
    return largest
