"""NodeSam (Yoo, Shim and Kang, WWW 2022): split a node, merge two others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from graph_transplant.augment.base import EditedGraphs
from graph_transplant.augment.perturb import Perturbation
from graph_transplant.graphs import GraphBatch
from graph_transplant.kernels import node_sam as kernel
from graph_transplant.kernels.compiling import Bools, Ints


@dataclass(frozen=True)
class NodeSamPlan:
    """All random choices of one split and merge; carrying it out is deterministic.

    The second half of the node split in graph g gets the number ``nodes + g``.
    """

    split: Ints  # the node to split in each graph; it becomes the first half
    moved: Bools  # its neighbours that move to the second half, [nodes]
    shared: Bools  # its neighbours that are connected to both halves, [nodes]
    between: Ints  # edge whose attributes the one between the halves takes, -1 for none
    edges: tuple[Ints, Ints, Ints, Bools, Ints]  # after the split, from `split_nodes`
    kept: Ints  # the end of the merged edge that remains
    merged: Ints  # the other end


class NodeSam(Perturbation):
    r"""Split a random node of every graph into two and merge the ends of a random edge (*NodeSam*).

    The two halves of the split node are connected and have its features; each of its neighbours
    goes to either half with equal probability. Then the ends of a random edge become one node with
    the neighbours of both and the mean of their features. Every graph keeps its number of nodes and
    components, and its label.

    A merge loses an edge for every triangle that the merged edge is part of. To compensate, the
    neighbours that form a triangle with the split node, :math:`S`, are connected to both halves
    with probability :math:`\min(h / |S|, 1)`, where h preserves the expected number of edges:

    .. math::
        h = \frac{\sqrt{c^2 + 4 t |V| - 6 t} - c}{2}, \qquad c = |E| - 2 - \frac{3 t}{d},

    with t triangles and d neighbours at the split node.

    The publication covers simple undirected graphs. Beyond these, all edges to a neighbour stay
    together, and both halves keep the node's self-loops; repeated edges and self-loops are ignored
    in h. The edge between the halves takes the attributes and weight of a random edge of the node;
    in directed graphs it runs from the first half to the second. If both ends of the merged edge
    have an edge to the same node, only those of the remaining end are kept. Node fields other than
    ``x``, and integer ``x``, are those of the remaining end. Nodes keep their order; the second
    half takes the place of the merged node.

    Args:
        adjust: Whether to connect neighbours to both halves; ``False`` is the publication's
            *NodeSam-base*.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> ring = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]])
        >>> batch = GraphBatch.from_pyg(Data(x=torch.eye(4), edge_index=ring))
        >>> virtual = NodeSam().edit(batch, torch.eye(1), np.random.default_rng(0))
        >>> virtual.batch.num_nodes, virtual.batch.num_edges  # it has no triangle
        (4, 8)
    """

    def __init__(self, adjust: bool = True) -> None:
        super().__init__()
        self.adjust = adjust

    def plan(self, batch: GraphBatch, rng: np.random.Generator) -> NodeSamPlan:
        """Make all random choices of one split and merge."""
        chosen = kernel.choose_splits(batch.ptr, *batch.near, self.adjust, rng)
        edges = kernel.split_nodes(batch.ptr, batch.row_ptr, batch.column, batch.symmetric, *chosen)
        receiver, sender, _, _, edge_ptr = edges
        kept, merged = kernel.choose_merges(receiver, sender, edge_ptr, batch.num_nodes, rng)
        return NodeSamPlan(*chosen, edges, kept, merged)

    def carry_out(self, plan: NodeSamPlan, batch: GraphBatch, targets: Tensor) -> EditedGraphs:
        """Carry out a plan; deterministic."""
        batch = batch.dense()
        receiver, sender, like, new, edge_ptr = plan.edges
        row_ptr, column, listed = kernel.merge_nodes(
            receiver, sender, edge_ptr, batch.num_nodes, plan.kept, plan.merged
        )
        like = like[listed]
        # The second half takes the place of the merged node, unless it was merged itself.
        other = np.where(plan.merged < batch.num_nodes, plan.merged, plan.split)
        node_origin = np.arange(batch.num_nodes)
        node_origin[other] = plan.split
        fields = batch.nodes_like(node_origin)
        x = batch.nodes.get("x")
        if x is not None and x.is_floating_point():
            kept = batch.on_device(plan.kept)
            mean = (x.index_select(0, kept) + x.index_select(0, batch.on_device(other))) / 2
            fields["x"] = fields["x"].index_copy(0, kept, mean)
        virtual = batch.derive(
            batch.ptr, row_ptr, column, nodes=fields, edges=batch.edges_like(like), y=targets
        )
        return EditedGraphs(
            batch=virtual,
            targets=targets,
            node_origin=node_origin,
            edge_origin=np.where(new[listed], -1, like),
        )

    def edit(self, batch: GraphBatch, targets: Tensor, rng: np.random.Generator) -> EditedGraphs:
        """Split and merge in every graph of a batch."""
        return self.carry_out(self.plan(batch, rng), batch, targets)
