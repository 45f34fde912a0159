"""Helpers for the flat tensors of a store."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def axis_of(key: str) -> int:
    """Dimension along which graphs are concatenated."""
    return 1 if key == "edge_index" else 0


def bytes_of(value: Tensor) -> memoryview:
    """The memory of a tensor in row-major order."""
    flat = value.contiguous().reshape(-1)
    # Tensors of at most one value are contiguous whatever their stride.
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8).numpy().data


def moments(pieces: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Column means and population standard deviations of a table given in chunks."""
    count = 0
    mean = squares = torch.zeros((), dtype=torch.double)
    for rows in pieces:
        if not len(rows):
            continue
        # Chan, Golub, LeVeque: combine the sums of squares of two chunks.
        piece = rows.to(torch.double)
        shift = piece.mean(0) - mean
        total = count + len(piece)
        squares = squares + (piece - piece.mean(0)).square_().sum(0)
        squares = squares + shift.square() * (count * len(piece) / total)
        mean = mean + shift * (len(piece) / total)
        count = total
    return mean.to(torch.float32), (squares / count).sqrt().to(torch.float32)


def task_of(y: Tensor) -> str:
    """Infer the task from targets: classes, labels (0, 1 or NaN) or values."""
    if not y.is_floating_point():
        return "multilabel" if y.dim() == 2 and y.shape[1] > 1 else "multiclass"
    binary = (y == 0) | (y == 1) | y.isnan()
    return "multilabel" if bool(binary.all()) else "regression"


def repeats(groups: Tensor, y: Tensor) -> tuple[int, int]:
    """Number of groups with several members, and of those whose known targets differ."""
    _, group, size = torch.unique(groups, return_inverse=True, return_counts=True)
    values = y.reshape(len(y), -1).double()
    place = group.unsqueeze(1).expand_as(values)
    low = torch.full((len(size), values.shape[1]), torch.inf, dtype=values.dtype)
    high = (-low).scatter_reduce(0, place, values.nan_to_num(-torch.inf), "amax")
    low = low.scatter_reduce(0, place, values.nan_to_num(torch.inf), "amin")
    return int((size > 1).sum()), int((low < high).any(1).sum())


def offsets(counts: Tensor) -> Tensor:
    """Offsets of segments with these counts, int64 ``[segments + 1]``."""
    ptr = torch.zeros(counts.numel() + 1, dtype=torch.long, device=counts.device)
    torch.cumsum(counts, 0, out=ptr[1:])
    return ptr


def segment_ids(counts: Tensor) -> Tensor:
    """Segment number of every item, sorted int64 ``[items]``."""
    return torch.repeat_interleave(torch.arange(counts.numel(), device=counts.device), counts)


def ranges(starts: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Concatenate ranges of ``counts[i]`` integers from ``starts[i]``; also return segment ids."""
    segment = segment_ids(counts)
    shift = starts - offsets(counts)[:-1]
    index = torch.arange(segment.numel(), device=segment.device)
    return index.add_(shift.index_select(0, segment)), segment


def rank_in_segment(keys: Tensor, segment: Tensor, ptr: Tensor) -> Tensor:
    """Rank the items of each segment by ascending key, from 0; equal keys keep their order."""
    order = torch.argsort(keys, stable=True)
    order = order.index_select(0, torch.argsort(segment.index_select(0, order), stable=True))
    position = torch.arange(keys.numel(), device=keys.device) - ptr.index_select(0, segment)
    return torch.empty_like(position).scatter_(0, order, position)
