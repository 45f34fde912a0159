"""SubMix (Yoo, Shim and Kang, WWW 2022): replace a subgraph by one of the same size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_transplant.augment.base import Augmentation, CleanPass, EditedGraphs, Mixed
from graph_transplant.augment.pairing import Pairing, mix_rows
from graph_transplant.config.options import PairingPolicy
from graph_transplant.data import GraphStore
from graph_transplant.errors import check_in
from graph_transplant.kernels import mixing as kernel
from graph_transplant.kernels.arrays import Bools, Ints, Segments
from graph_transplant.nn.adapter import Predictor


@dataclass(frozen=True)
class SubMixPlan:
    """All random choices of one mixing; carrying it out is deterministic."""

    source_of: Ints  # the source graph of every mixed graph
    replaced: Segments  # S of every graph, closest to the root first
    brought: Ints  # S_π; the i-th replaces the i-th of `replaced`


@dataclass(frozen=True, kw_only=True)
class SubMixedGraphs(Mixed, EditedGraphs):
    """Graphs with a subgraph replaced by one of another graph.

    Nodes keep the order of the destination; replaced nodes have features of the source.
    """

    plan: SubMixPlan

    @property
    def node_from_source(self) -> Bools:
        """Whether a node has features of the source, bool ``[nodes]``."""
        from_source = np.zeros(len(self.node_origin), np.bool_)
        from_source[self.plan.replaced.item] = True
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

    def __init__(self, size: float = 0.4, *, pairing: PairingPolicy | Pairing = "random") -> None:
        super().__init__()
        check_in("(0, 1]", size=size)
        self.size = size
        self.pairing = Pairing.of(pairing)

    def plan(
        self, clean: CleanPass, model: Predictor | None, rng: np.random.Generator
    ) -> SubMixPlan:
        """Draw sources, roots and sizes, which determine the nodes to replace."""
        source_of = self.pairing.sources(clean.targets, clean.task, rng)
        ptr, neighbours = clean.batch.ptr, clean.batch.neighbours
        chosen = kernel.choose_subgraphs(source_of, ptr, neighbours, self.size, rng)
        return SubMixPlan(source_of, *chosen)

    def transform(self, plan: SubMixPlan, clean: CleanPass) -> SubMixedGraphs:
        """Replace the chosen nodes, and the edges among them."""
        batch, targets = clean.batch, clean.targets
        swapped = kernel.swap_subgraphs(batch.csr, plan.replaced, plan.brought)
        graphs, edge_origin, share = swapped
        node_origin = np.arange(batch.num_nodes)
        node_origin[plan.replaced.item] = plan.brought
        weight = batch.on_device(share).to(targets.dtype)
        mixed = mix_rows(targets, batch.on_device(plan.source_of), weight)
        nodes, edges = batch.nodes_like(node_origin), batch.edges_like(edge_origin)
        return SubMixedGraphs(
            batch=batch.derive(graphs, nodes=nodes, edges=edges, y=mixed),
            targets=mixed,
            source_of=plan.source_of,
            label_weight=weight,
            node_origin=node_origin,
            edge_origin=edge_origin,
            plan=plan,
        )

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Raise for pairing by class without classes."""
        self.pairing.check(data.task)
