"""Arrays that kernels take and return, and named tuples of them.

Named tuples compile and are cached; they cost five microseconds a call. Graphs are concatenated:
graph ``g`` has nodes ``ptr[g]`` to ``ptr[g + 1] - 1``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Table = np.ndarray[tuple[int, int], np.dtype[np.float64]]


class CSR(NamedTuple):
    """Graphs as compressed sparse rows."""

    ptr: Ints
    row_ptr: Ints
    column: Ints  # node v receives from column[row_ptr[v]:row_ptr[v + 1]], ascending


class Neighbours(NamedTuple):
    """Undirected neighbour lists: every edge at both ends; in undirected graphs, the rows."""

    ptr: Ints
    node: Ints  # node v has the neighbours node[ptr[v]:ptr[v + 1]], ascending
    edge: Ints  # the edge that leads to each


class Segments(NamedTuple):
    """Items of graphs, such as chosen nodes."""

    ptr: Ints
    item: Ints  # item[ptr[g]:ptr[g + 1]] belongs to graph g


class Pairs(NamedTuple):
    """Pairs of a source node and a destination node, which become edges."""

    ptr: Ints  # pairs ptr[g] to ptr[g + 1] - 1 belong to graph g, sorted by source node
    source: Ints
    destination: Ints
    into_source: Bools  # whether a pair becomes an edge to its source node,
    into_destination: Bools  # and to its destination node; both in undirected graphs
