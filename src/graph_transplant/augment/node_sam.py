"""NodeSam (Yoo, Shim and Kang, WWW 2022): split a node, merge two others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_transplant.augment.base import CleanPass, EditedGraphs
from graph_transplant.augment.perturb import Perturbation
from graph_transplant.kernels import node_sam as kernel
from graph_transplant.kernels.arrays import CSR
from graph_transplant.nn.adapter import Predictor


@dataclass(frozen=True)
class NodeSamPlan:
    """All random choices of one split and merge.

    The second half of the node split in graph g gets the number ``nodes + g``.
    """

    splits: kernel.Splits
    edges: kernel.SplitEdges
    merges: kernel.Merges


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
        >>> from graph_transplant.data import GraphBatch
        >>> ring = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]])
        >>> batch = GraphBatch.from_pyg(Data(x=torch.eye(4), edge_index=ring))
        >>> clean = CleanPass(batch, torch.eye(1))
        >>> virtual = NodeSam()(clean, model=None, generator=torch.Generator())
        >>> virtual.batch.num_nodes, virtual.batch.num_edges  # it has no triangle
        (4, 8)
    """

    def __init__(self, adjust: bool = True) -> None:
        super().__init__()
        self.adjust = adjust

    def plan(
        self, clean: CleanPass, model: Predictor | None, rng: np.random.Generator
    ) -> NodeSamPlan:
        """Draw the node to split and the edge to merge in every graph."""
        batch = clean.batch
        splits = kernel.choose_splits(batch.ptr, batch.neighbours, self.adjust, rng)
        edges = kernel.split_nodes(batch.csr, batch.symmetric, splits)
        return NodeSamPlan(splits, edges, kernel.choose_merges(edges, batch.num_nodes, rng))

    def transform(self, plan: NodeSamPlan, clean: CleanPass) -> EditedGraphs:
        """Split and merge in every graph."""
        batch, targets = clean.batch.dense(), clean.targets
        split, merged = plan.splits.split, plan.merges.merged
        row_ptr, column, listed = kernel.merge_nodes(plan.edges, batch.num_nodes, plan.merges)
        template = plan.edges.template[listed]
        # The second half takes the place of the merged node, unless it was merged itself.
        other = np.where(merged < batch.num_nodes, merged, split)
        node_origin = np.arange(batch.num_nodes)
        node_origin[other] = split
        fields = batch.nodes_like(node_origin)
        x = batch.nodes.get("x")
        if x is not None and x.is_floating_point():
            kept = batch.on_device(plan.merges.kept)
            mean = (x.index_select(0, kept) + x.index_select(0, batch.on_device(other))) / 2
            fields["x"] = fields["x"].index_copy(0, kept, mean)
        graphs = CSR(batch.ptr, row_ptr, column)
        virtual = batch.derive(graphs, nodes=fields, edges=batch.edges_like(template), y=targets)
        return EditedGraphs(
            batch=virtual,
            targets=targets,
            node_origin=node_origin,
            edge_origin=np.where(plan.edges.new[listed], -1, template),
        )
