"""Fingerprints of graphs and their similarity."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph_transplant.kernels.arrays import Doubles, Ints, compiled, helper

BITS = 2048
RADIUS = 2

Words = NDArray[np.uint64]
Fingerprints = np.ndarray[tuple[int, int], np.dtype[np.uint64]]  # a row of words per graph


@helper
def mixed(value: Any) -> Any:
    """Scramble the bits of a word."""
    value = (value ^ (value >> np.uint64(31))) * np.uint64(0x7FB5D329728EA185)
    return value ^ (value >> np.uint64(27))


@compiled
def circles(ptr: Ints, row_ptr: Ints, column: Ints, node: Words, edge: Words) -> Fingerprints:
    """Set the bits of every node's environments of radius 0, 1 and 2."""
    found = np.zeros((len(ptr) - 1, BITS // 64), np.uint64)
    before, after = node, np.zeros_like(node)
    for radius in range(RADIUS + 1):
        for graph in range(len(ptr) - 1):
            for v in range(ptr[graph], ptr[graph + 1]):
                around = before[v] + np.uint64(radius)
                if radius:
                    for e in range(row_ptr[v], row_ptr[v + 1]):
                        around += mixed(before[column[e]] + edge[e])
                after[v] = mixed(around)
                bit = after[v] >> np.uint64(53)
                found[graph, bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
        before = after.copy()
    return found


@helper
def ones(word: Any) -> Any:
    """Count the set bits of a word; compiles to one instruction."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    pairs = np.uint64(0x3333333333333333)
    word = (word & pairs) + ((word >> np.uint64(2)) & pairs)
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@compiled
def nearest(rows: Fingerprints, known: Fingerprints) -> Doubles:
    """Return the highest Tanimoto similarity of each row to any known one."""
    sizes = np.zeros(len(known), np.int64)
    for k in range(len(known)):
        for word in known[k]:
            sizes[k] += np.int64(ones(word))
    found = np.zeros(len(rows))
    for row in range(len(rows)):
        own = np.int64(0)
        for word in rows[row]:
            own += np.int64(ones(word))
        for k in range(len(known)):
            # At most the bits of the smaller one are shared.
            if min(own, sizes[k]) <= found[row] * max(own, sizes[k]):
                continue
            shared = np.int64(0)
            for w in range(rows.shape[1]):
                shared += np.int64(ones(rows[row, w] & known[k, w]))
            found[row] = max(found[row], shared / (own + sizes[k] - shared))
    return found
