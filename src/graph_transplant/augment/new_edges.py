"""New edges: their attributes and weights, and between which types of nodes they are legal.

Types are integers: ``node_type`` ``[nodes]`` and ``edge_type`` ``[edges]``, as in graphs that PyG's
``to_homogeneous()`` makes. A new edge takes its type, like its other attributes, from an edge that
one of its ends lost. So a pair may be joined only where a lost edge of one end could lead to the
other end instead, by the types of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graph_transplant.data import GraphBatch
from graph_transplant.data.pyg import Data, is_pyg
from graph_transplant.errors import DataError, GraphTransplantError
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
    """Draw the lost edge that each legal pair continues, in its direction in directed graphs."""
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


def templates_of(mixed: kernel.Assembled, template: Ints, batch: GraphBatch) -> Ints:
    """The edge of the batch whose attributes every edge has: its origin, or its pair's template."""
    copied, new = mixed.edge_origin, mixed.pair >= 0
    if not batch.edges or not new.any():
        return copied
    like = np.where(new, template[mixed.pair], copied)
    if batch.symmetric:
        # A lost edge leads to the end that lost it; the other direction takes its reverse.
        receiver = mixed.node_origin[csr.rows_of(mixed.graphs.row_ptr)]
        drawn = new & (like >= 0)
        turned = drawn & (csr.rows_of(batch.row_ptr)[like] != receiver)
        like[turned] = batch.reverse[like[turned]]
    return like


def drawn_weights(
    edges: dict[str, Tensor], drawn: Tensor, batch: GraphBatch, mixed: kernel.Assembled
) -> Tensor:
    """Edge weights, those of new edges times ψ's 0 or 1, which carries its gradient."""
    weight = edges.get("edge_weight")
    if weight is None:
        x = batch.nodes.get("x")
        dtype = x.dtype if x is not None and x.is_floating_point() else None
        weight = torch.ones(len(mixed.pair), dtype=dtype, device=batch.device)
    new = np.flatnonzero(mixed.pair >= 0)
    index = batch.on_device(new)
    of_pair = drawn.index_select(0, batch.on_device(mixed.pair[new])).to(weight.dtype)
    return weight.index_copy(0, index, weight[index] * of_pair)


# Least number of edges to tell whether an attribute follows from positions.
_ENOUGH = 16


def geometric_field(batch: GraphBatch) -> str | None:
    """An edge field that holds a distance between ``pos``, or a difference, up to scale."""
    pos = batch.nodes.get("pos")
    if pos is None or pos.dim() != 2 or batch.num_edges < _ENOUGH:
        return None
    sender, receiver = batch.edge_index
    steps = pos.detach()[sender].double() - pos.detach()[receiver].double()
    measures = torch.cat((steps, steps.norm(dim=1, keepdim=True)), dim=1)
    for name, value in batch.edges.items():
        rows = torch.cat((measures, value.detach().reshape(len(value), -1).double()), dim=1)
        related = torch.corrcoef(rows.t())[: measures.shape[1], measures.shape[1] :]
        if bool((related.abs() > 0.999).any()):
            return name
    return None


def recomputed(batch: GraphBatch, function: Callable[[Data], Data]) -> GraphBatch:
    """The batch with its edge fields as ``function`` computes them."""
    data = function(batch.to_pyg())
    if not is_pyg(data, "Data") or not torch.equal(data.edge_index, batch.edge_index):
        raise DataError("`edge_attributes` must return the batch with the same edges in order")
    edges = {name: data[name] for name in batch.edges}
    for name, value in batch.edges.items():
        if edges[name].shape != value.shape:
            raise DataError(
                f"`edge_attributes` must keep the shape of `{name}`, {list(value.shape)}; got "
                f"{list(edges[name].shape)}: to replace what is there, as T.Distance does with "
                "cat=False"
            )
    return replace(batch, edges=edges)
