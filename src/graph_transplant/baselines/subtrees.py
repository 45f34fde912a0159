"""Weisfeiler-Lehman subtree patterns of graphs, with a dictionary of those of the training graphs.

Nino Shervashidze, Pascal Schweitzer, Erik Jan van Leeuwen, Kurt Mehlhorn and Karsten Borgwardt,
*Weisfeiler-Lehman Graph Kernels*, JMLR 2011.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from graph_transplant.data import GraphBatch, GraphStore
from graph_transplant.kernels.baselines import Patterns, numbered

Ints = npt.NDArray[np.int64]
Table = npt.NDArray[np.float64]

_BONDS = 40
"""A pattern's neighbour is its label plus its bond times 2 to this power."""


@dataclass(frozen=True, eq=False)
class Labels:
    """Distinct rows of the feature columns that are whole numbers; without any, no labels."""

    columns: Ints
    rows: Table  # [labels, columns], sorted

    @classmethod
    def of(cls, features: Tensor | None, first: int = 0) -> Labels:
        """Collect the labels of nodes or edges, from the columns from ``first`` on."""
        table = np.zeros((0, 0)) if features is None else features.double().numpy()
        columns = np.flatnonzero((table == np.round(table)).all(0) & (len(table) > 0))
        columns = columns[columns >= first]
        return cls(columns, np.unique(table[:, columns], axis=0) if len(columns) else _nothing())

    def number(self, features: Tensor | None, otherwise: Ints) -> Ints:
        """Number the labels of nodes or edges; unknown ones follow the known ones."""
        if not len(self.columns):
            return otherwise
        assert features is not None
        table = np.concatenate((self.rows, features.double().numpy()[:, self.columns]))
        _, first, place = np.unique(table, axis=0, return_index=True, return_inverse=True)
        order = np.empty(len(first), np.int64)
        order[np.argsort(first)] = np.arange(len(first))  # known ones are the first rows
        return order[place.ravel()[len(self.rows) :]]


def _nothing() -> Table:
    return np.zeros((0, 0))


@dataclass(frozen=True, eq=False)
class Dictionary:
    """The patterns of the training graphs, level by level.

    A pattern is a node's label; on later levels, its previous pattern with the multiset of the
    patterns and edge labels around it. A node's label consists of its features that are whole
    numbers and not marked as continuous; without any it is the degree. Edge labels likewise;
    without any, all edges are alike. In directed graphs, patterns follow incoming edges.
    """

    nodes: Labels
    bonds: Labels
    degrees: int  # labels without features: the degrees below this one
    levels: tuple[Patterns, ...]  # from level 1 on

    @property
    def widths(self) -> list[int]:
        """Number of patterns on each level."""
        first = len(self.nodes.rows) if len(self.nodes.columns) else self.degrees
        return [first, *(len(level.own) for level in self.levels)]

    @classmethod
    def of(cls, train: GraphStore, depth: int) -> Dictionary:
        """Collect the patterns of training graphs."""
        batch, bonds = _batch(train), Labels.of(train.edge_attr)
        empty = Dictionary(Labels.of(train.x, train.num_continuous), bonds, 0, ())
        own, around = empty._labels(train, batch)
        found = []
        for _ in range(depth):
            patterns = _around(own, around, batch)
            own, first = numbered(patterns, _no_patterns())
            found.append(_chosen(patterns, first))
        degrees = 0 if len(empty.nodes.columns) else int(np.diff(batch.row_ptr).max()) + 1
        return cls(empty.nodes, empty.bonds, degrees, tuple(found))

    def numbers(self, store: GraphStore) -> tuple[GraphBatch, list[Ints]]:
        """Return the pattern of every node on every level.

        Patterns that no training graph has are numbered behind the known ones, the same in all of
        these graphs.
        """
        batch = _batch(store)
        own, bonds = self._labels(store, batch)
        found = [own]
        for level in self.levels:
            own, _ = numbered(_around(own, bonds, batch), level)
            found.append(own)
        return batch, found

    def _labels(self, store: GraphStore, batch: GraphBatch) -> tuple[Ints, Ints]:
        degrees, alike = np.diff(batch.row_ptr), np.zeros(batch.num_edges, np.int64)
        nodes = self.nodes.number(store.x, degrees)
        return nodes, self.bonds.number(store.edge_attr, alike)


def _batch(store: GraphStore) -> GraphBatch:
    return store.batch(np.arange(len(store)))


def _around(own: Ints, bonds: Ints, batch: GraphBatch) -> Patterns:
    values = (bonds << _BONDS) + own[batch.column]
    row = np.repeat(np.arange(batch.num_nodes), np.diff(batch.row_ptr))
    return Patterns(own, batch.row_ptr, values[np.lexsort((values, row))])


def _chosen(patterns: Patterns, index: Ints) -> Patterns:
    counts = np.diff(patterns.ptr)[index]
    ptr = np.concatenate(([0], np.cumsum(counts)))
    places = np.arange(ptr[-1]) + np.repeat(patterns.ptr[index] - ptr[:-1], counts)
    return Patterns(patterns.own[index], ptr, patterns.around[places])


def _no_patterns() -> Patterns:
    return Patterns(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64))


def check_patterns(patterns: Patterns) -> bool:
    """Whether patterns from a file are whole and differ from one another."""
    ptr = patterns.ptr
    whole = len(ptr) and ptr[0] == 0 and ptr[-1] == len(patterns.around)
    if not whole or bool((np.diff(ptr) < 0).any()):
        return False
    number = numbered(patterns, _no_patterns()).number
    return bool((number == np.arange(len(number))).all())
