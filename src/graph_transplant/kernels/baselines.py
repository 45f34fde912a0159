"""Kernels of the baselines: Weisfeiler-Lehman patterns, decisions of SVMs, decision trees."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graph_transplant.kernels.arrays import Doubles, Floats, Ints, Table, compiled, helper
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


Int32s = NDArray[np.int32]
Rows = np.ndarray[tuple[int, int], np.dtype[np.float32]]


class Trees(NamedTuple):
    """Trees in depth-first order, so that the left child of a node is the next node."""

    ptr: Ints  # tree t has nodes ptr[t] to ptr[t + 1] - 1, the first of which is its root
    column: Int32s  # that a node splits by, or -1 in a leaf
    right: Int32s  # the right child of a node, counted from its tree's root
    threshold: Doubles  # rows with a value up to this one go left
    value: Table  # mean of the training rows of every node, [nodes, outputs]


@compiled
def tree_means(trees: Trees, x: Rows) -> Table:
    """Return the mean over trees of the value in each row's leaf, added up as scikit-learn does."""
    found = np.zeros((x.shape[0], trees.value.shape[1]))
    count = len(trees.ptr) - 1
    for tree in range(count):
        root = trees.ptr[tree]
        for row in range(x.shape[0]):
            node = root
            while trees.column[node] >= 0:
                if x[row, trees.column[node]] <= trees.threshold[node]:
                    node += 1
                else:
                    node = root + trees.right[node]
            for output in range(trees.value.shape[1]):
                found[row, output] += trees.value[node, output]
    found /= count
    return found


@compiled
def tree_contributions(trees: Trees, row: Floats, output: int) -> Doubles:
    """Return what the splits by each column add to one output of a row, and the roots' mean last.

    A split adds the difference between the value of the child that the row goes to and the node's.
    """
    found = np.zeros(len(row) + 1)
    count = len(trees.ptr) - 1
    for tree in range(count):
        root = trees.ptr[tree]
        node = root
        found[len(row)] += trees.value[root, output]
        while trees.column[node] >= 0:
            column, before = trees.column[node], trees.value[node, output]
            if row[column] <= trees.threshold[node]:
                node += 1
            else:
                node = root + trees.right[node]
            found[column] += trees.value[node, output] - before
    found /= count
    return found
