"""Decision trees as arrays: predictions, and what each split adds to them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graph_transplant.kernels.arrays import Doubles, Floats, Ints, Table, compiled

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
