"""Sums and maxima over the nodes of each graph, with gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from graph_transplant.data.tensors import offsets, segment_ids


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
    """Sum ``[items]`` or ``[items, columns]`` over each segment; zero for an empty one."""
    if values.dim() == 1:
        return values.new_zeros(ptr.numel() - 1).index_add(0, segment, values)
    total: Tensor = _SegmentSum.apply(values.contiguous(), segment, ptr)  # type: ignore[no-untyped-call]
    return total


class _GatherRows(torch.autograd.Function):
    """Rows by index; the gradient of a row is the sum over its occurrences."""

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
    """Like ``index_select`` on rows, but with a backward pass that does not scatter."""
    taken: Tensor = _GatherRows.apply(values, index)  # type: ignore[no-untyped-call]
    return taken


class _SegmentMax(torch.autograd.Function):
    """Maximum of each segment; tied values share the gradient."""

    # Torch's own backward pass gives each tied value the whole gradient if it is negative.

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
    """Maximum of each segment, per column; zero for an empty one."""
    largest: Tensor = _SegmentMax.apply(values.contiguous(), ptr)  # type: ignore[no-untyped-call]
    return largest
