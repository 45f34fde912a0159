"""Sums, maxima and ranks of segments against plain loops, with their gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graph_transplant.data.tensors import offsets, ranges, rank_in_segment
from graph_transplant.nn.segment import gather_rows, segment_max, segment_sum
from helpers.strategies import generator

COUNTS = st.lists(st.integers(0, 6), max_size=8)


def parts(counts: list[int]) -> tuple[list[list[int]], Tensor, Tensor]:
    """Item numbers of every segment, the segment of every item, and the offsets."""
    numbers = iter(range(sum(counts)))
    items = [list(itertools.islice(numbers, count)) for count in counts]
    segment = torch.tensor([i for i, part in enumerate(items) for _ in part], dtype=torch.long)
    return items, segment, offsets(torch.tensor(counts, dtype=torch.long))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=8))
def test_offsets_and_ranges(spans: list[tuple[int, int]]) -> None:
    starts, counts = torch.tensor(spans, dtype=torch.long).reshape(-1, 2).unbind(1)
    assert offsets(counts).tolist() == [sum(c for _, c in spans[:i]) for i in range(len(spans) + 1)]
    index, segment = ranges(starts, counts)
    assert index.tolist() == [s + k for s, c in spans for k in range(c)]
    assert segment.tolist() == [i for i, (_, c) in enumerate(spans) for _ in range(c)]


@given(COUNTS, st.randoms(use_true_random=False))
def test_rank_is_by_key_and_then_by_place(counts: list[int], random) -> None:
    keys = [random.choice([0.0, 0.25, 0.5, -1.0]) for _ in range(sum(counts))]
    items, segment, ptr = parts(counts)
    rank = rank_in_segment(torch.tensor(keys), segment, ptr).tolist()
    for part in items:
        ordered = sorted(part, key=lambda item: keys[item])
        assert [rank[item] for item in ordered] == list(range(len(ordered)))


@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.parametrize("columns", [None, 3])
@settings(max_examples=25)
@given(counts=COUNTS.filter(len))
def test_segments_and_their_gradients(kind: str, columns: int | None, counts: list[int]) -> None:
    if kind == "max" and columns is None:
        columns = 1
    items, segment, ptr = parts(counts)
    shape = (sum(counts),) if columns is None else (sum(counts), columns)
    values = torch.randn(shape, generator=generator(), dtype=torch.double).requires_grad_()

    def reduce(given: Tensor) -> Tensor:
        return segment_sum(given, segment, ptr) if kind == "sum" else segment_max(given, ptr)

    plain = {"sum": lambda v: v.sum(0), "max": lambda v: v.amax(0)}[kind]
    zero = values.new_zeros(shape[1:])
    expected = torch.stack([plain(values[part]) if part else zero for part in items])
    torch.testing.assert_close(reduce(values), expected)
    assert not values.numel() or torch.autograd.gradcheck(reduce, (values,))


def test_equal_maxima_share_the_gradient() -> None:
    values = torch.tensor([[2.0], [2.0], [1.0]], requires_grad=True)
    segment_max(values, torch.tensor([0, 3])).sum().backward()
    assert values.grad is not None
    assert float(values.grad.sum()) == pytest.approx(1.0)
    assert float(values.grad[2]) == 0.0


@settings(max_examples=25)
@given(st.integers(1, 6), st.lists(st.integers(0, 5), max_size=9))
def test_gather_rows_and_its_gradient(rows: int, listed: list[int]) -> None:
    index = torch.tensor([i % rows for i in listed], dtype=torch.long)
    values = torch.randn(rows, 2, generator=generator(), dtype=torch.double).requires_grad_()
    assert torch.equal(gather_rows(values, index), values[index])
    upstream = torch.randn(len(index), 2, generator=generator(), dtype=torch.double)
    (found,) = torch.autograd.grad(gather_rows(values, index), values, upstream)
    (expected,) = torch.autograd.grad(values[index], values, upstream)
    torch.testing.assert_close(found, expected)
