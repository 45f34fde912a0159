"""Typed graphs: which new edges are legal, and which lost edge each of them continues.

Types are integers: ``node_type`` ``[nodes]`` and ``edge_type`` ``[edges]``, as in graphs that PyG's
``to_homogeneous()`` makes. A new edge takes its type, like its other attributes, from an edge that
one of its ends lost. So a pair may be joined only where a lost edge of one end could lead to the
other end instead, by the types of both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import Tensor

from graph_transplant.data import GraphBatch
from graph_transplant.errors import GraphTransplantError
from graph_transplant.kernels import csr
from graph_transplant.kernels import transplant as kernel
from graph_transplant.kernels.arrays import Ints, Pairs, Segments

Combination = tuple[int, int, int]
"""Type of the source node, of the edge and of the target node."""


def as_combinations(given: Iterable[Any]) -> frozenset[Combination]:
    """Check combinations of types."""
    found = frozenset(tuple(each) for each in given)
    for each in found:
        if len(each) != 3 or not all(isinstance(part, int | np.integer) for part in each):
            raise GraphTransplantError(
                "`legal_edges` must be triples of integers (source type, edge type, target type); "
                f"got {each}"
            )
    return found


def combinations(batch: GraphBatch) -> frozenset[Combination]:
    """The combinations of types that occur; none in untyped graphs."""
    types = _types_of(batch)
    if types is None:
        return frozenset()
    node, edge = types
    ends = node[batch.column], edge, node[csr.rows_of(batch.row_ptr)]
    return frozenset(map(tuple, np.unique(np.stack(ends, axis=1), axis=0).tolist()))


def types_for(
    batch: GraphBatch, legal: frozenset[Combination], *, occurring: bool
) -> kernel.Types | None:
    """What the edges of a batch may join; ``None`` for untyped graphs.

    Combinations are legal that are listed or, with ``occurring``, occur in the batch.
    """
    types = _types_of(batch)
    if types is None:
        return None
    (nodes, node), (edges, edge) = (np.unique(kind, return_inverse=True) for kind in types)
    sender, receiver = batch.column, csr.rows_of(batch.row_ptr)
    allowed = np.zeros((len(nodes), len(edges), len(nodes)), np.bool_)
    if occurring:
        allowed[node[sender], edge, node[receiver]] = True
    place_of_node, place_of_edge = ({kind: n for n, kind in enumerate(k)} for k in (nodes, edges))
    for one, kind, other in legal:
        if one in place_of_node and kind in place_of_edge and other in place_of_node:
            allowed[place_of_node[one], place_of_edge[kind], place_of_node[other]] = True
    # Whether each edge may lead to a node of each type instead, or come from one.
    leads, comes = allowed[node[sender], edge], allowed[:, edge, node[receiver]].T
    if batch.symmetric:  # an undirected edge does both
        comes = comes & leads[batch.reverse]
    neighbours = batch.neighbours
    incoming = receiver[neighbours.edge] == csr.rows_of(neighbours.ptr)
    fits = np.where(incoming[:, np.newaxis], comes[neighbours.edge], leads[neighbours.edge])
    return kernel.Types(node, np.ascontiguousarray(fits))


def continued(
    part: Segments,
    rest: Segments,
    pairs: Pairs,
    batch: GraphBatch,
    types: kernel.Types,
    rng: np.random.Generator,
) -> tuple[Pairs, Ints]:
    """Draw the lost edge that each legal pair continues; in directed graphs it keeps its direction."""
    template = kernel.legal_lost_edges(part, rest, pairs, batch.neighbours, types, rng)
    if batch.symmetric:
        return pairs, template
    into_source = csr.rows_of(batch.row_ptr)[template] == pairs.source
    into_source |= batch.column[template] == pairs.destination
    return pairs._replace(into_source=into_source, into_destination=~into_source), template


def _types_of(batch: GraphBatch) -> tuple[Ints, Ints] | None:
    """Type of every node and edge; zeros where only the others have types."""
    node, edge = batch.nodes.get("node_type"), batch.edges.get("edge_type")
    if not (_is_type(node) or _is_type(edge)):
        return None
    return _numbers(node, batch.num_nodes), _numbers(edge, batch.num_edges)


def _is_type(field: Tensor | None) -> bool:
    return field is not None and field.dim() == 1 and not field.is_floating_point()


def _numbers(field: Tensor | None, size: int) -> Ints:
    if field is None or not _is_type(field):
        return np.zeros(size, np.int64)
    return field.cpu().numpy().astype(np.int64)
