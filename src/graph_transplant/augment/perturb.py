"""Label-preserving edits: GraphCL (You et al., NeurIPS 2020), DropEdge (Rong et al., ICLR 2020)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graph_transplant.augment.base import Augmentation, CleanPass, EditedGraphs
from graph_transplant.data import GraphBatch, GraphStore, check_stores
from graph_transplant.errors import DataError, check_in
from graph_transplant.kernels import csr
from graph_transplant.kernels import perturb as kernel
from graph_transplant.kernels.arrays import CSR, Bools, Ints
from graph_transplant.nn.adapter import Predictor


class Perturbation(Augmentation):
    """Edits each graph separately and keeps its target; needs no model."""

    @abstractmethod
    def transform(self, plan: Any, clean: CleanPass) -> EditedGraphs:
        """Create a virtual graph from every graph."""


class RatioPerturbation(Perturbation):
    """Edits a share of the nodes or edges of every graph."""

    def __init__(self, ratio: float = 0.2) -> None:
        super().__init__()
        check_in("[0, 1)", ratio=ratio)
        self.ratio = ratio

    def extra_repr(self) -> str:
        """Show the parameter."""
        return f"ratio={self.ratio}"


def keep_parts(
    batch: GraphBatch,
    targets: Tensor,
    *,
    nodes: Bools | None = None,
    edges: Bools | None = None,
) -> EditedGraphs:
    """Return the subgraphs of the marked nodes and edges; all by default.

    Every graph must keep at least one node, and undirected edges must keep their reverse.
    """
    nodes = np.ones(batch.num_nodes, np.bool_) if nodes is None else nodes
    edges = np.ones(batch.num_edges, np.bool_) if edges is None else edges
    kept = csr.induced(batch.csr, nodes, edges)
    virtual = batch.derive(
        kept.graphs,
        nodes=batch.nodes_like(kept.nodes),
        edges=batch.edges_like(kept.edges),
        y=targets,
    )
    return EditedGraphs(
        batch=virtual, targets=targets, node_origin=kept.nodes, edge_origin=kept.edges
    )


def replace_edges(clean: CleanPass, plan: kernel.Replacement) -> EditedGraphs:
    """Keep some edges and add new ones, each with the attributes of an old edge."""
    batch, targets = clean.batch, clean.targets
    row_ptr, column, origin = csr.exchange(
        batch.row_ptr, batch.column, plan.keep, plan.sender, plan.receiver
    )
    new = origin >= batch.num_edges
    edges = {}
    if batch.edges:
        template = np.concatenate((np.arange(batch.num_edges), plan.template))
        edges = batch.edges_like(template[origin])
    graphs = CSR(batch.ptr, row_ptr, column)
    virtual = batch.derive(graphs, nodes=batch.nodes, edges=edges, y=targets)
    return EditedGraphs(
        batch=virtual,
        targets=targets,
        node_origin=np.arange(batch.num_nodes),
        edge_origin=np.where(new, -1, origin),
    )


def reverse_of(batch: GraphBatch) -> Ints:
    """Return the reverse of every edge; in directed graphs, the edge itself."""
    return batch.reverse if batch.symmetric else np.arange(batch.num_edges)


class DropNodes(RatioPerturbation):
    """Remove random nodes from every graph, with their edges (*DropN*).

    Of n nodes, ``floor(ratio · n)`` are removed, chosen uniformly; at least one is kept.

    Args:
        ratio: Share of the nodes to drop, in [0, 1). The paper tries 0.2 and 0.4.

    Example:
        >>> import graph_transplant as gt
        >>> batch = gt.load("motifs").batch(range(4))
        >>> clean = CleanPass(batch, torch.eye(6)[batch.y])
        >>> fewer = DropNodes(0.5)(clean, model=None, generator=torch.Generator())
        >>> nodes = np.diff(batch.ptr)
        >>> bool((np.diff(fewer.batch.ptr) == nodes - nodes // 2).all())
        True
    """

    def plan(self, clean: CleanPass, model: Predictor | None, rng: np.random.Generator) -> Bools:
        """Draw the nodes to drop."""
        return kernel.choose_nodes(clean.batch.ptr, self.ratio, rng)

    def transform(self, plan: Bools, clean: CleanPass) -> EditedGraphs:
        """Drop them."""
        return keep_parts(clean.batch, clean.targets, nodes=~plan)


class PerturbEdges(RatioPerturbation):
    """Remove random edges from every graph and add as many new ones (*PermE*).

    Of m edges, ``floor(ratio · m)`` are replaced, but at most as many as there are unconnected
    pairs. New edges connect distinct nodes that were not connected before; each takes the
    attributes and weight of a removed edge, matched at random. Undirected edges are removed and
    added with their reverse.

    Deviation: edges-stay-simple. GraphCL's released code draws the ends of new edges independently,
    which adds self-loops, repeated edges and single directions of undirected edges.

    Args:
        ratio: Share of the edges to replace, in [0, 1). The paper tries 0.2 and 0.4.

    Example:
        >>> import graph_transplant as gt
        >>> batch = gt.load("motifs").batch(range(4))
        >>> clean = CleanPass(batch, torch.eye(6)[batch.y])
        >>> other = PerturbEdges(0.5)(clean, model=None, generator=torch.Generator())
        >>> other.batch.num_edges == batch.num_edges, bool((other.edge_origin == -1).any())
        (True, True)
    """

    def plan(
        self, clean: CleanPass, model: Predictor | None, rng: np.random.Generator
    ) -> kernel.Replacement:
        """Draw the edges to remove and to add."""
        batch = clean.batch
        return kernel.replace_edges(batch.csr, reverse_of(batch), batch.symmetric, self.ratio, rng)

    def transform(self, plan: kernel.Replacement, clean: CleanPass) -> EditedGraphs:
        """Replace them."""
        return replace_edges(clean, plan)


class DropEdges(RatioPerturbation):
    """Remove random edges from every graph (*DropEdge*).

    Of m edges, ``floor(ratio · m)`` are removed, chosen uniformly; all nodes are kept.

    Deviation: both-directions. An undirected edge is removed with its reverse; DropEdge's released
    code drops single entries of the adjacency matrix, which leaves one-directional edges.

    Args:
        ratio: Share of the edges to drop, in [0, 1).

    Example:
        >>> import graph_transplant as gt
        >>> batch = gt.load("motifs").batch(range(4))
        >>> clean = CleanPass(batch, torch.eye(6)[batch.y])
        >>> fewer = DropEdges(0.5)(clean, model=None, generator=torch.Generator())
        >>> fewer.batch.num_edges < batch.num_edges, fewer.batch.num_nodes == batch.num_nodes
        (True, True)
    """

    def plan(self, clean: CleanPass, model: Predictor | None, rng: np.random.Generator) -> Bools:
        """Draw the edges to keep."""
        return kernel.drop_edges(clean.batch.csr, reverse_of(clean.batch), self.ratio, rng)

    def transform(self, plan: Bools, clean: CleanPass) -> EditedGraphs:
        """Drop the others."""
        return keep_parts(clean.batch, clean.targets, edges=plan)


class MaskNodes(RatioPerturbation):
    """Mask all features of random nodes of every graph (*MaskN*).

    Of n nodes, ``floor(ratio · n)`` are masked, chosen uniformly. Continuous features of a masked
    node are set to their mean over the training graphs, computed by :meth:`prepare`; all other
    features, and all features without :meth:`prepare`, are set to 0.

    Deviation: neutral-mask. GraphCL's released code masks with the mean of the graph's nodes or
    with normal noise, even if features are one-hot.

    Args:
        ratio: Share of the nodes to mask, in [0, 1). The paper tries 0.2 and 0.4.

    Example:
        >>> from torch_geometric.data import Data
        >>> edge = torch.tensor([[0, 1], [1, 0]])
        >>> batch = GraphBatch.from_pyg(Data(x=torch.ones(2, 3), edge_index=edge))
        >>> clean = CleanPass(batch, torch.eye(2)[:1])
        >>> masked = MaskNodes(0.5)(clean, model=None, generator=torch.Generator())
        >>> masked.batch.x.sum()
        tensor(3.)
    """

    mask: Tensor | None

    def __init__(self, ratio: float = 0.2) -> None:
        super().__init__(ratio)
        # Not saved: computed from the training graphs, not learned.
        self.register_buffer("mask", None, persistent=False)

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Raise for data without node features."""
        if data.num_node_features == 0:
            raise DataError(f"mask-nodes needs node features, but {data.name} has none")

    def prepare(self, train: GraphStore, generator: torch.Generator) -> None:
        """Compute the mean of the continuous features."""
        check_stores(train=train)
        mask = torch.zeros(
            train.num_node_features, device=None if self.mask is None else self.mask.device
        )
        mask[: train.num_continuous] = train.continuous_moments()[0].to(mask)
        self.mask = mask

    def plan(self, clean: CleanPass, model: Predictor | None, rng: np.random.Generator) -> Bools:
        """Draw the nodes to mask."""
        return kernel.choose_nodes(clean.batch.ptr, self.ratio, rng)

    def transform(self, plan: Bools, clean: CleanPass) -> EditedGraphs:
        """Mask them."""
        batch, targets = clean.batch.dense(), clean.targets
        x = batch.x
        if x is None:
            raise DataError("mask-nodes needs node features, but the batch has no `x`")
        if self.mask is not None and self.mask.shape != x.shape[1:]:
            raise DataError(
                f"`batch.x` must have {self.mask.numel()} columns, as the graphs that mask-nodes "
                f"was prepared with; got shape {list(x.shape)}"
            )
        masked = np.flatnonzero(plan)
        fill = x.new_zeros(x.shape[1:]) if self.mask is None else self.mask.to(x)
        x = x.index_copy(0, batch.on_device(masked), fill.expand(len(masked), *x.shape[1:]))
        return EditedGraphs(
            batch=batch.derive(
                batch.csr, nodes={**batch.nodes, "x": x}, edges=batch.edges, y=targets
            ),
            targets=targets,
            node_origin=np.arange(batch.num_nodes),
            edge_origin=np.arange(batch.num_edges),
        )


class RandomSubgraph(Perturbation):
    """Keep a random connected part of every graph (*SubG*).

    A set of nodes grows from a random start: each step adds the far end of a random edge that
    leaves the set, all such edges equally likely. Of n nodes, ``floor(size · n)`` are kept (at
    least one) with all edges among them, or the whole component of the start if it is smaller.
    Directed edges are crossed in both directions.

    Deviation: walk-by-growth. The paper says "using the random walk". A walk needs up to order n²
    steps to visit n nodes; here every step reaches a new one. GraphCL's released code also adds
    random neighbours, but not theirs, so it never leaves the start's neighbourhood.

    Args:
        size: Share of the nodes to keep, in (0, 1]. The paper tries 0.6 and 0.8.

    Example:
        >>> import graph_transplant as gt
        >>> batch = gt.load("motifs").batch(range(4))
        >>> clean = CleanPass(batch, torch.eye(6)[batch.y])
        >>> part = RandomSubgraph(0.5)(clean, model=None, generator=torch.Generator())
        >>> bool((np.diff(part.batch.ptr) <= np.diff(batch.ptr) // 2).all())
        True
    """

    def __init__(self, size: float = 0.8) -> None:
        super().__init__()
        check_in("(0, 1]", size=size)
        self.size = size

    def plan(self, clean: CleanPass, model: Predictor | None, rng: np.random.Generator) -> Bools:
        """Draw the nodes to keep."""
        batch = clean.batch
        return kernel.random_connected_set(batch.ptr, batch.neighbours, self.size, rng)

    def transform(self, plan: Bools, clean: CleanPass) -> EditedGraphs:
        """Keep them."""
        return keep_parts(clean.batch, clean.targets, nodes=plan)

    def extra_repr(self) -> str:
        """Show the parameter."""
        return f"size={self.size}"
