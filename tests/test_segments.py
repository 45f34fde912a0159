"""Index arithmetic on segments, against plain loops; choices are uniform."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from graph_transplant.segments import (
    choose_per_segment,
    count_per_segment,
    gather_rows,
    offsets,
    ranges,
    rank_in_segment,
    segment_ids,
    segment_max,
    segment_sum,
)

COUNTS = st.lists(st.integers(0, 6), min_size=0, max_size=8)


def items(counts: list[int]) -> list[list[int]]:
    """Item numbers of every segment."""
    numbers = iter(range(sum(counts)))
    return [list(itertools.islice(numbers, count)) for count in counts]


def parts(counts: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    given_counts = torch.tensor(counts, dtype=torch.long)
    return segment_ids(given_counts), offsets(given_counts)


@given(COUNTS)
def test_offsets_and_ids(counts: list[int]) -> None:
    segment, ptr = parts(counts)
    assert ptr.dtype == segment.dtype == torch.long
    assert ptr.tolist() == [sum(counts[:i]) for i in range(len(counts) + 1)]
    assert segment.tolist() == [i for i, count in enumerate(counts) for _ in range(count)]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=8))
def test_ranges(spans: list[tuple[int, int]]) -> None:
    starts = torch.tensor([s for s, _ in spans], dtype=torch.long)
    counts = torch.tensor([c for _, c in spans], dtype=torch.long)
    index, segment = ranges(starts, counts)
    assert index.tolist() == [s + k for s, c in spans for k in range(c)]
    assert segment.tolist() == [i for i, (_, c) in enumerate(spans) for _ in range(c)]


@given(COUNTS, st.randoms(use_true_random=False))
def test_rank_is_by_key_and_then_by_place(counts: list[int], random) -> None:
    keys = [random.choice([0.0, 0.25, 0.5, -1.0]) for _ in range(sum(counts))]
    segment, ptr = parts(counts)
    rank = rank_in_segment(torch.tensor(keys), segment, ptr).tolist()
    for segment_items in items(counts):
        ordered = sorted(segment_items, key=lambda item: keys[item])
        assert [rank[item] for item in ordered] == list(range(len(ordered)))


@given(COUNTS, st.randoms(use_true_random=False), st.booleans())
def test_choice_is_the_eligible_items_of_smallest_key(
    counts: list[int], random, restricted: bool
) -> None:
    total = sum(counts)
    # Different keys, but not closer than drawn ones are: 53 random bits.
    keys = torch.tensor(random.sample(range(1024), total), dtype=torch.double) / 1024
    among = [random.random() < 0.5 if restricted else True for _ in range(total)]
    wanted = [random.randint(0, 7) for _ in counts]
    segment, ptr = parts(counts)
    chosen = choose_per_segment(
        torch.tensor(wanted, dtype=torch.long),
        keys,
        segment,
        ptr,
        torch.tensor(among, dtype=torch.bool) if restricted else None,
    )
    expected = set()
    for number, segment_items in zip(wanted, items(counts), strict=True):
        eligible = sorted((i for i in segment_items if among[i]), key=lambda i: float(keys[i]))
        expected |= set(eligible[:number])
    assert set(chosen.nonzero().flatten().tolist()) == expected


def test_every_subset_is_chosen_equally_often() -> None:
    # 6000 segments of 5 items, 2 of 4 eligible ones wanted: 6 subsets, chi-square at 0.1 %.
    generator = torch.Generator().manual_seed(3)
    repeats = 6000
    segment, ptr = parts([5] * repeats)
    keys = torch.rand(5 * repeats, generator=generator, dtype=torch.double)
    among = torch.tensor([True, True, False, True, True]).repeat(repeats)
    chosen = choose_per_segment(torch.full((repeats,), 2), keys, segment, ptr, among)
    rows = chosen.view(repeats, 5).tolist()
    seen = Counter(tuple(i for i, marked in enumerate(row) if marked) for row in rows)
    assert set(seen) == set(itertools.combinations([0, 1, 3, 4], 2))
    assert chisquare(list(seen.values())).pvalue > 1e-3


@given(COUNTS, st.randoms(use_true_random=False))
def test_count_per_segment(counts: list[int], random) -> None:
    mask = [random.random() < 0.5 for _ in range(sum(counts))]
    _, ptr = parts(counts)
    found = count_per_segment(torch.tensor(mask, dtype=torch.bool), ptr)
    assert found.tolist() == [sum(mask[i] for i in part) for part in items(counts)]


@pytest.mark.parametrize("columns", [None, 1, 3])
@settings(max_examples=25)
@given(counts=COUNTS.filter(lambda c: len(c) > 0))
def test_segment_sum_and_its_gradient(columns: int | None, counts: list[int]) -> None:
    segment, ptr = parts(counts)
    shape = (sum(counts),) if columns is None else (sum(counts), columns)
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(shape, generator=generator, dtype=torch.double).requires_grad_()
    result = segment_sum(values, segment, ptr)
    zero = values.new_zeros(shape[1:])
    expected = torch.stack([values[part].sum(0) if part else zero for part in items(counts)])
    torch.testing.assert_close(result, expected)
    if values.numel():
        assert torch.autograd.gradcheck(lambda v: segment_sum(v, segment, ptr), (values,))


@settings(max_examples=25)
@given(counts=COUNTS.filter(lambda c: len(c) > 0))
def test_segment_max_and_its_gradient(counts: list[int]) -> None:
    segment, ptr = parts(counts)
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(sum(counts), 3, generator=generator, dtype=torch.double).requires_grad_()
    result = segment_max(values, segment, ptr)
    zero = values.new_zeros(3)
    expected = torch.stack([values[part].max(0).values if part else zero for part in items(counts)])
    torch.testing.assert_close(result, expected)
    if values.numel():
        assert torch.autograd.gradcheck(lambda v: segment_max(v, segment, ptr), (values,))


def test_segment_max_of_equal_values_shares_the_gradient() -> None:
    segment, ptr = parts([3])
    values = torch.tensor([[2.0], [2.0], [1.0]], requires_grad=True)
    segment_max(values, segment, ptr).sum().backward()
    assert values.grad is not None
    assert float(values.grad.sum()) == pytest.approx(1.0)
    assert float(values.grad[2]) == 0.0


@settings(max_examples=25)
@given(st.integers(1, 6), st.lists(st.integers(0, 5), max_size=9))
def test_gather_rows_and_its_gradient(rows: int, listed: list[int]) -> None:
    index = torch.tensor([i % rows for i in listed], dtype=torch.long)
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(rows, 2, generator=generator, dtype=torch.double).requires_grad_()
    taken = gather_rows(values, index)
    assert torch.equal(taken, values[index])
    upstream = torch.randn(len(index), 2, generator=generator, dtype=torch.double)
    (found,) = torch.autograd.grad(taken, values, upstream)
    expected = torch.zeros(rows, 2, dtype=torch.double)
    for row, gradient in zip(index.tolist(), upstream, strict=True):
        expected[row] += gradient
    torch.testing.assert_close(found, expected)
