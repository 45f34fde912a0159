"""SubMix (Yoo, Shim and Kang, WWW 2022): replace a subgraph by one of the same size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graph_transplant.augment.base import Augmentation, CleanPass, VirtualGraphs, random_numbers
from graph_transplant.augment.pairing import Pairing, mix_rows
from graph_transplant.errors import check_in
from graph_transplant.graphs import GraphBatch, GraphStore
from graph_transplant.kernels import mixing as kernel
from graph_transplant.kernels.compiling import Bools, Ints
from graph_transplant.saliency import Predictor


@dataclass(frozen=True)
class SubMixPlan:
    """All random choices of one mixing; carrying it out is deterministic."""

    source_of: Ints  # the source graph of every mixed graph
    replaced: Ints  # S of every graph, closest to the root first
    brought: Ints  # S_π; the i-th replaces the i-th of `replaced`
    ptr: Ints  # offsets of the graphs in both


@dataclass(frozen=True, kw_only=True)
class SubMixedGraphs(VirtualGraphs):
    """Graphs with a subgraph replaced by one of another graph.

    Nodes keep the order of the destination; replaced nodes have features of the source.
    """

    label_weight: Tensor  # of the source's label, [graphs]
    node_origin: Ints  # index in the original batch of the node whose features each has
    edge_origin: Ints  # index of every edge in the original batch
    plan: SubMixPlan

    @property
    def source_of(self) -> Ints:
        """The source graph of every mixed graph, int64 ``[graphs]``."""
        return self.plan.source_of

    @property
    def node_from_source(self) -> Bools:
        """Whether a node has features of the source, bool ``[nodes]``."""
        from_source = np.zeros(len(self.node_origin), np.bool_)
        from_source[self.plan.replaced] = True
        return from_source


class SubMix(Augmentation):
    """Replace a connected subgraph with one from another graph (Algorithms 5 and 6).

    In both the destination and the source, a root is drawn and the k nodes closest to it by
    personalised PageRank are selected. The i-th of them in the source replaces the i-th in the
    destination: its features and the edges among the k nodes replace the other's; edges between the
    k nodes and the rest are kept. The number of nodes does not change, and a connected graph stays
    connected. Directions and weights of edges do not affect distances.

    The weight of the source's label is its share of the edges of the result, or of the nodes if
    there are no edges.

    Deviation: sub-mix-connected. The publication orders nodes by PageRank of the symmetrically
    normalised adjacency, under which the k best need not be connected, and falls back on
    breadth-first search where they are not. Here the scores are means over neighbours, so the k
    best are always connected (proof: :func:`graph_transplant.kernels.mixing.root_scores`). Walks
    have 16 steps, and component sizes count only the nodes they reach.

    Args:
        size: k is drawn uniformly from 1 to this share of the nodes of the smaller of the two
            components that the roots lie in, rounded down; at least 1. In (0, 1]. The publication's
            p is 0.4.
        pairing: How the source of every graph is chosen.
    """

    def __init__(self, size: float = 0.4, *, pairing: str | Pairing = "random") -> None:
        super().__init__()
        check_in("(0, 1]", size=size)
        self.size = size
        self.pairing = Pairing.of(pairing)

    def plan(self, batch: GraphBatch, source_of: Ints, rng: np.random.Generator) -> SubMixPlan:
        """Draw roots and sizes, which determine the nodes to replace."""
        near_ptr, near, _ = batch.near
        chosen = kernel.choose_subgraphs(source_of, batch.ptr, near_ptr, near, self.size, rng)
        return SubMixPlan(source_of, *chosen)

    def carry_out(self, plan: SubMixPlan, batch: GraphBatch, targets: Tensor) -> SubMixedGraphs:
        """Carry out a plan; deterministic."""
        row_ptr, column, edge_origin, share = kernel.swap_subgraphs(
            batch.ptr, batch.row_ptr, batch.column, plan.replaced, plan.brought, plan.ptr
        )
        node_origin = np.arange(batch.num_nodes)
        node_origin[plan.replaced] = plan.brought
        weight = batch.on_device(share).to(targets.dtype)
        mixed = mix_rows(targets, batch.on_device(plan.source_of), weight)
        virtual = batch.derive(
            batch.ptr, row_ptr, column, y=mixed,
            nodes=batch.nodes_like(node_origin), edges=batch.edges_like(edge_origin),
        )  # fmt: skip
        return SubMixedGraphs(
            batch=virtual,
            targets=mixed,
            label_weight=weight,
            node_origin=node_origin,
            edge_origin=edge_origin,
            plan=plan,
        )

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> SubMixedGraphs:
        """Mix the graphs of a batch."""
        rng = random_numbers(generator)
        source_of = self.pairing.sources(clean.targets, clean.task, rng)
        return self.carry_out(self.plan(clean.batch, source_of, rng), clean.batch, clean.targets)

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Raise for pairing by class without classes."""
        self.pairing.check(data.task)
