"""New graphs from old ones: pieces put together to a batch, and edits of each graph by itself.

Every edge of a virtual batch stands in the order that makes its adjacency free; every node and edge
knows which original one it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graph_transplant.augment.base import VirtualGraphs
from graph_transplant.augment.subgraphs import View
from graph_transplant.graphs import make_batch
from graph_transplant.segments import count_per_segment, offsets


def _fields(batch: Data) -> dict[str, Tensor]:
    """Every tensor of a batch that is not part of its layout or target."""
    skipped = {"batch", "ptr", "y", "edge_index", "num_nodes"}
    return {
        name: batch[name]
        for name in batch.keys()  # noqa: SIM118 - a Data is not a dict
        if name not in skipped and isinstance(batch[name], Tensor)
    }


def node_fields(batch: Data) -> dict[str, Tensor]:
    """Return every tensor of a batch that has one entry per node, by name.

    Args:
        batch: A PyG batch.
    """
    edges = edge_fields(batch)
    found = _fields(batch).items()
    return {name: v for name, v in found if name not in edges and batch.is_node_attr(name)}


def edge_fields(batch: Data) -> dict[str, Tensor]:
    """Return every tensor of a batch that has one entry per edge, by name.

    Args:
        batch: A PyG batch.
    """
    always = ("edge_weight", "edge_attr")
    found = _fields(batch).items()
    return {name: v for name, v in found if name in always or batch.is_edge_attr(name)}


def edge_order(sender: Tensor, receiver: Tensor, num_nodes: int) -> Tensor:
    """Return the order by sender, then receiver, in which :func:`assemble` wants edges.

    Args:
        sender: int64 ``[edges]``.
        receiver: int64 ``[edges]``.
        num_nodes: Number of nodes.

    Returns:
        int64 ``[edges]``.
    """
    # Stable: repeated edges keep their order, so that the k-th copies of an edge and of its reverse
    # stay one pair.
    return torch.argsort(sender * num_nodes + receiver, stable=True)


def nodes_like(batch: Data, like: Tensor) -> dict[str, Tensor]:
    """Give nodes the features and other fields of nodes of a batch.

    Args:
        batch: The original graphs.
        like: Number of a node of the batch for every node, int64 ``[nodes]``.

    Returns:
        What the batch has for its nodes, by name.
    """
    return {name: value.index_select(0, like) for name, value in node_fields(batch).items()}


def edges_like(batch: Data, like: Tensor) -> dict[str, Tensor | None]:
    """Give edges the weights, attributes and other fields of edges of a batch.

    Args:
        batch: The original graphs.
        like: Number of an edge of the batch for every edge, int64 ``[edges]``; -1 for an edge of
            weight one whose other fields are zero.

    Returns:
        What the batch has for its edges, by name.
    """
    fields: dict[str, Tensor | None] = {}
    known = (like >= 0).nonzero().flatten()
    for name, value in edge_fields(batch).items():
        blank = 1.0 if name == "edge_weight" else 0.0
        taken = value.new_full((like.numel(), *value.shape[1:]), blank)
        found = value.index_select(0, like.index_select(0, known))
        fields[name] = taken.index_copy(0, known, found)
    return fields


def assemble(
    *,
    node_counts: Tensor,
    nodes: Mapping[str, Tensor],
    sender: Tensor,
    receiver: Tensor,
    edges: Mapping[str, Tensor | None],
    targets: Tensor,
    symmetric: bool,
) -> Batch:
    """Put nodes and edges together to a valid batch.

    Args:
        node_counts: Nodes of every graph, int64 ``[graphs]``; at least one each.
        nodes: Tensors ``[nodes, ...]`` by name, such as ``x``, graph after graph.
        sender: First node of every edge, int64 ``[edges]``, in the order of :func:`edge_order`.
        receiver: Second node of every edge, int64 ``[edges]``.
        edges: Tensors ``[edges, ...]`` by name; ``None`` is left out.
        targets: float ``[graphs, outputs]``.
        symmetric: Whether every edge stands in both directions with equal weights.
    """
    ptr = offsets(node_counts)
    total = int(ptr[-1])
    edges_of_node = torch.bincount(sender, minlength=total)
    return make_batch(
        edge_index=torch.stack((sender, receiver)),
        node_counts=node_counts,
        edge_counts=count_per_segment(edges_of_node, ptr),
        node_fields=nodes,
        edge_fields=edges,
        graph_fields={"y": targets},
        symmetric=symmetric or None,
    )


@dataclass(frozen=True)
class EdgePairs:
    """Every edge of a batch once: an undirected edge and its reverse count as one.

    Edges stand graph by graph. A self-loop, or an edge of a directed graph, is its own reverse.
    Repeated edges are paired one to one.

    Attributes:
        u: int64 ``[pairs]``; in undirected graphs ``u <= v``.
        v: int64 ``[pairs]``.
        forward: Number in the batch of the edge from ``u`` to ``v``, int64 ``[pairs]``.
        backward: Number in the batch of its reverse, int64 ``[pairs]``.
        segment: Graph of every pair, sorted int64 ``[pairs]``.
        ptr: Offsets of the graphs, int64 ``[graphs + 1]``.
    """

    u: Tensor
    v: Tensor
    forward: Tensor
    backward: Tensor
    segment: Tensor
    ptr: Tensor

    @classmethod
    def of(cls, view: View) -> EdgePairs:
        """List the edges of a view.

        Args:
            view: The graphs, as :meth:`View.of` gives them.
        """
        row, column, edge = view.row, view.column, view.edge
        if view.symmetric:
            # Edges are sorted by row, then column. Those above the diagonal and those below it,
            # the latter sorted by column, then row, are each other's reverses in this order.
            one = (row <= column).nonzero().flatten()
            u, v = row.index_select(0, one), column.index_select(0, one)
            forward = edge.index_select(0, one)
            below = (row > column).nonzero().flatten()
            first, second = column.index_select(0, below), row.index_select(0, below)
            code = first * max(view.layout.num_nodes, 1) + second
            order = torch.argsort(code, stable=True)
            backward = forward.clone()
            strict = (u < v).nonzero().flatten()
            reverse = edge.index_select(0, below.index_select(0, order))
            backward.scatter_(0, strict, reverse)
            if not view.rows_send:  # rows receive: the edge above the diagonal runs from v to u
                forward, backward = backward, forward
        else:
            forward = backward = edge
            u, v = (row, column) if view.rows_send else (column, row)
        # Rows are sorted by graph, and both ends lie in the same graph.
        segment = view.layout.segment.index_select(0, u)
        counts = torch.bincount(segment, minlength=view.layout.num_graphs)
        return cls(u, v, forward, backward, segment, offsets(counts))

    @property
    def counts(self) -> Tensor:
        """Edges of every graph, int64 ``[graphs]``."""
        return self.ptr.diff()


def simple_pairs(view: View) -> tuple[Tensor, Tensor]:
    """List every pair of joined nodes once, whatever the directions and repetitions of its edges.

    Args:
        view: The graphs.

    Returns:
        The smaller and the larger node of each, int64 ``[pairs]``; no node with itself.

    Example:
        >>> twice = torch.tensor([[0, 1, 0, 1, 2], [1, 0, 1, 0, 2]])
        >>> simple_pairs(View.of(Data(edge_index=twice, num_nodes=3)))
        (tensor([0]), tensor([1]))
    """
    row, column = view.row, view.column
    if view.symmetric:
        fresh = row < column
        fresh[1:] &= (row[1:] != row[:-1]) | (column[1:] != column[:-1])  # repetitions lie together
        kept = fresh.nonzero().flatten()
        return row.index_select(0, kept), column.index_select(0, kept)
    code = torch.minimum(row, column) * view.layout.num_nodes + torch.maximum(row, column)
    code = torch.unique(code[row != column])
    return code // view.layout.num_nodes, code % view.layout.num_nodes


@dataclass(frozen=True, kw_only=True)
class EditedGraphs(VirtualGraphs):
    """Virtual graphs made each from one original graph.

    Attributes:
        node_origin: Number in the original batch of every node, int64 ``[nodes]``.
        edge_origin: Number in the original batch of every edge, int64 ``[edges]``; -1 for new ones.

    Example:
        >>> import graph_transplant as gt
        >>> batch = gt.load("motifs").batch(range(4))
        >>> keep = torch.ones(int(batch.num_nodes), dtype=torch.bool)
        >>> same = edit_graphs(batch, torch.eye(4), keep_nodes=keep)
        >>> bool((same.node_origin == torch.arange(int(batch.num_nodes))).all())
        True
    """

    node_origin: Tensor
    edge_origin: Tensor


@dataclass(frozen=True)
class NewEdges:
    """Edges to add within graphs.

    Attributes:
        u: First node, a number of the batch, int64 ``[new]``.
        v: Second node, another one of the same graph, int64 ``[new]``.
        like: Number of the edge of the batch whose attributes and weight a new edge takes, int64
            ``[new]``; -1 for none.
    """

    u: Tensor
    v: Tensor
    like: Tensor


def edit_graphs(
    batch: Data,
    targets: Tensor,
    *,
    keep_nodes: Tensor | None = None,
    keep_edges: Tensor | None = None,
    new_edges: NewEdges | None = None,
    features: Mapping[str, Tensor] | None = None,
) -> EditedGraphs:
    """Take nodes and edges out of graphs, put edges in, change node features.

    Args:
        batch: The original graphs; they stay as they are.
        targets: Targets of the virtual graphs, float ``[graphs, outputs]``.
        keep_nodes: bool ``[nodes]``, at least one per graph; all by default. Edges of nodes that
            are not kept go with them.
        keep_edges: bool ``[edges]``, numbered as in the batch; all by default. In undirected graphs
            both directions of an edge must be kept or neither; see :class:`EdgePairs`.
        new_edges: Edges to add between kept nodes; in undirected graphs both directions of each.
        features: Node tensors ``[nodes of the batch, ...]`` in the place of the batch's own, by
            name, such as ``x``.
    """
    view = View.of(batch)
    row, column, edge = view.row, view.column, view.edge
    stay: Tensor | None = None
    if keep_edges is not None:
        stay = keep_edges.index_select(0, edge)
    if keep_nodes is not None:
        inside = keep_nodes.index_select(0, row) & keep_nodes.index_select(0, column)
        stay = inside if stay is None else stay & inside
    if stay is not None:
        kept = stay.nonzero().flatten()
        row, column, edge = (part.index_select(0, kept) for part in (row, column, edge))
    sender, receiver = (row, column) if view.rows_send else (column, row)
    like = origin = edge
    if new_edges is not None:
        ends = [new_edges.u, new_edges.v]
        if view.symmetric:
            ends = [torch.cat(ends), torch.cat(ends[::-1])]
        fresh = new_edges.like.repeat(2 if view.symmetric else 1)
        sender, receiver = torch.cat((sender, ends[0])), torch.cat((receiver, ends[1]))
        like = torch.cat((edge, fresh))
        origin = torch.cat((edge, torch.full_like(fresh, -1)))
    node_counts = view.layout.counts
    node_origin = view.node
    if keep_nodes is not None:
        node_counts = count_per_segment(keep_nodes, view.layout.ptr)
        node_origin = keep_nodes.nonzero().flatten()
        place = offsets(keep_nodes.to(torch.long))
        sender, receiver = place.index_select(0, sender), place.index_select(0, receiver)
    if new_edges is not None or not view.rows_send:
        order = edge_order(sender, receiver, node_origin.numel())
        sender, receiver, like, origin = (
            part.index_select(0, order) for part in (sender, receiver, like, origin)
        )
    fields = {**node_fields(batch), **(features or {})}
    if keep_nodes is not None:
        fields = {name: value.index_select(0, node_origin) for name, value in fields.items()}
    virtual = assemble(
        node_counts=node_counts,
        nodes=fields,
        sender=sender,
        receiver=receiver,
        edges=edges_like(batch, like),
        targets=targets,
        symmetric=view.symmetric,
    )
    return EditedGraphs(batch=virtual, targets=targets, node_origin=node_origin, edge_origin=origin)
