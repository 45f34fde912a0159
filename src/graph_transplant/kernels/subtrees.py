"""Weisfeiler-Lehman refinement with a dictionary of known patterns, and decisions of SVMs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from graph_transplant.kernels.arrays import Doubles, Ints, Table, compiled, helper
from graph_transplant.kernels.fingerprints import mixed


class Patterns(NamedTuple):
    """Patterns of one level: a label, and the sorted labels around it."""

    own: Ints
    ptr: Ints
    around: Ints  # pattern p has around[ptr[p]:ptr[p + 1]] around it


class Numbered(NamedTuple):
    """The number of each node's pattern; new ones are numbered on in the order of the nodes."""

    number: Ints
    first: Ints  # a node with each new pattern


@helper
def same(one: Patterns, a: int, two: Patterns, b: int) -> Any:
    """Whether two patterns are equal."""
    if one.own[a] != two.own[b]:
        return False
    begin, start = one.ptr[a], two.ptr[b]
    size = one.ptr[a + 1] - begin
    if size != two.ptr[b + 1] - start:
        return False
    for k in range(size):  # noqa: SIM110 - numba cannot compile `all`
        if one.around[begin + k] != two.around[start + k]:
            return False
    return True


@helper
def slot_of(patterns: Patterns, p: int, slots: int) -> Any:
    """Return where the search for a pattern begins."""
    key = mixed(np.uint64(patterns.own[p]) + np.uint64(1))
    for k in range(patterns.ptr[p], patterns.ptr[p + 1]):
        key = mixed(key + np.uint64(patterns.around[k]) + np.uint64(1))
    return np.int64(key % np.uint64(slots))


@compiled
def numbered(nodes: Patterns, known: Patterns) -> Numbered:
    """Look up the pattern of every node; equal patterns get the same number, also new ones."""
    count = len(known.own)
    slots = 2 * (count + len(nodes.own)) + 1
    taken = np.full(slots, -1, np.int64)
    for p in range(count):
        slot = slot_of(known, p, slots)
        while taken[slot] >= 0:
            slot = (slot + 1) % slots
        taken[slot] = p
    number = np.empty(len(nodes.own), np.int64)
    first = np.empty(len(nodes.own), np.int64)
    new = 0
    for v in range(len(nodes.own)):
        slot = slot_of(nodes, v, slots)
        while taken[slot] >= 0:
            p = taken[slot]
            if (p < count and same(known, p, nodes, v)) or (
                p >= count and same(nodes, first[p - count], nodes, v)
            ):
                break
            slot = (slot + 1) % slots
        if taken[slot] < 0:
            taken[slot] = count + new
            first[new] = v
            new += 1
        number[v] = taken[slot]
    return Numbered(number, first[:new].copy())


@compiled
def one_against_one(kernel: Table, dual: Table, intercept: Doubles, classes: Ints) -> Table:
    """Return the decision of every pair of classes, added up as libsvm does.

    ``kernel`` has a column for each support vector, sorted by class; class c has ``classes[c]`` of
    them. For a regression there is one class of all.
    """
    count = len(classes)
    found = np.zeros((kernel.shape[0], max(1, count * (count - 1) // 2)))
    starts = np.cumsum(classes) - classes
    for row in range(kernel.shape[0]):
        if count == 1:
            for k in range(classes[0]):
                found[row, 0] += dual[0, k] * kernel[row, k]
            found[row, 0] += intercept[0]
        pair = 0
        for one in range(count):
            for two in range(one + 1, count):
                total = 0.0
                for k in range(starts[one], starts[one] + classes[one]):
                    total += dual[two - 1, k] * kernel[row, k]
                for k in range(starts[two], starts[two] + classes[two]):
                    total += dual[one, k] * kernel[row, k]
                found[row, pair] = total + intercept[pair]
                pair += 1
    return found
