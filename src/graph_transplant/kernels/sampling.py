"""Sampling helpers shared by several kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph_transplant.kernels.arrays import Floats, Ints, compiled, helper


@helper
def share_of(count: int, ratio: float) -> int:
    """``floor(ratio · count)``, robust to rounding: 0.29 · 100 is slightly less than 29."""
    return int(np.floor(ratio * count + 1e-9))


@helper
def random_below(limit: int, rng: np.random.Generator) -> int:
    """Random integer in ``[0, limit)``."""
    return int(rng.random() * limit)


@helper
def shuffle_front(items: NDArray[Any], size: int, count: int, rng: np.random.Generator) -> None:
    """Move ``count`` random items of ``items[:size]`` to the front (partial Fisher-Yates)."""
    for i in range(count):
        j = i + random_below(size - i, rng)
        items[i], items[j] = items[j], items[i]


@compiled
def shuffle_within(values: Floats, ptr: Ints, rng: np.random.Generator) -> Floats:
    """Return a copy with the values of each segment shuffled."""
    shuffled = values.copy()
    for g in range(ptr.size - 1):
        mine = shuffled[ptr[g] : ptr[g + 1]]
        shuffle_front(mine, mine.size, mine.size, rng)
    return shuffled


@compiled
def sample_distinct(limit: int, count: int, rng: np.random.Generator) -> Ints:
    """Sample ``count`` distinct integers below ``limit`` uniformly, in ascending order."""
    drawn = np.empty(count, np.int64)
    filled = 0
    if 2 * count > limit:  # selection sampling: one pass over all numbers
        for number in range(limit):
            if rng.random() * (limit - number) < count - filled:
                drawn[filled] = number
                filled += 1
        return drawn
    if limit < 64 * count:  # rejection sampling with marks, faster than sorting
        taken = np.zeros(limit, np.bool_)
        while filled < count:
            for _ in range(count - filled):
                number = random_below(limit, rng)
                filled += not taken[number]
                taken[number] = True
        filled = 0
        for number in range(limit):
            if taken[number]:
                drawn[filled] = number
                filled += 1
        return drawn
    while filled < count:  # rejection sampling: redraw duplicates
        for i in range(filled, count):
            drawn[i] = random_below(limit, rng)
        drawn.sort()
        filled = min(count, 1)
        for i in range(1, count):
            if drawn[i] != drawn[filled - 1]:
                drawn[filled] = drawn[i]
                filled += 1
    return drawn


@helper
def is_in(row: Ints, item: int) -> bool:
    """Whether a sorted row contains an item."""
    place = np.searchsorted(row, item)
    return bool(place < row.size and row[place] == item)
