"""Random choices that several kernels make."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph_transplant.kernels.compiling import Floats, Ints, compiled


@compiled
def share_of(count: int, ratio: float) -> int:
    """``floor(ratio · count)``, safe against products such as 0.29 · 100 that fall short."""
    return int(np.floor(ratio * count + 1e-9))


@compiled
def below(limit: int, rng: np.random.Generator) -> int:
    """A uniform number below ``limit``."""
    return int(rng.random() * limit)


@compiled
def choose(items: NDArray[Any], size: int, count: int, rng: np.random.Generator) -> None:
    """Move ``count`` random ones of ``items[:size]`` to the front (partial Fisher-Yates)."""
    for i in range(count):
        j = i + below(size - i, rng)
        items[i], items[j] = items[j], items[i]


@compiled
def shuffle_within(values: Floats, ptr: Ints, rng: np.random.Generator) -> Floats:
    """Permute the values of each segment."""
    shuffled = values.copy()
    for g in range(ptr.size - 1):
        mine = shuffled[ptr[g] : ptr[g + 1]]
        choose(mine, mine.size, mine.size, rng)
    return shuffled


@compiled
def distinct(limit: int, count: int, rng: np.random.Generator) -> Ints:
    """``count`` different numbers below ``limit``, ascending, every set equally likely."""
    drawn = np.empty(count, np.int64)
    filled = 0
    if 2 * count > limit:  # selection sampling: one pass over all numbers
        for number in range(limit):
            if rng.random() * (limit - number) < count - filled:
                drawn[filled] = number
                filled += 1
        return drawn
    if limit < 64 * count:  # as below, but marking is faster than sorting
        taken = np.zeros(limit, np.bool_)
        while filled < count:
            for _ in range(count - filled):
                number = below(limit, rng)
                filled += not taken[number]
                taken[number] = True
        filled = 0
        for number in range(limit):
            if taken[number]:
                drawn[filled] = number
                filled += 1
        return drawn
    while filled < count:  # draw again what was drawn before
        for i in range(filled, count):
            drawn[i] = below(limit, rng)
        drawn.sort()
        filled = min(count, 1)
        for i in range(1, count):
            if drawn[i] != drawn[filled - 1]:
                drawn[filled] = drawn[i]
                filled += 1
    return drawn


@compiled
def is_in(row: Ints, item: int) -> bool:
    """Whether an ascending row has an item."""
    place = np.searchsorted(row, item)
    return bool(place < row.size and row[place] == item)
