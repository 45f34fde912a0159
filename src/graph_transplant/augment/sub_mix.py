"""SubMix (Yoo, Shim and Kang, WWW 2022): connected subgraphs of equal size change places."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from graph_transplant.augment.assemble import assemble, edge_order, edges_like, nodes_like
from graph_transplant.augment.base import Augmentation, CleanPass, VirtualGraphs
from graph_transplant.augment.pairing import Pairing, as_pairing, mix_rows
from graph_transplant.augment.sampling import uniform
from graph_transplant.augment.subgraphs import View, anchor_counts
from graph_transplant.augment.transplant import KEPT_DESTINATION, KEPT_SOURCE
from graph_transplant.errors import GraphTransplantError
from graph_transplant.graphs import GraphStore
from graph_transplant.saliency import Predictor
from graph_transplant.segments import count_per_segment, offsets, ranges

RESTART = 0.15
"""α of the publication: how likely a walk stops at each step."""

ROUNDS = 16
"""How many steps of a walk are followed: nodes further from the root are never taken."""

# Two scores this close in their binary logarithm count as a tie. The score of a node is smaller
# than that of some neighbour by log2(1 / (1 - α)) = 0.23, so that this cannot break a subgraph.
_TIE = 1e-6
# More than the largest -log2 of a positive double.
_UNREACHED = 2048.0


@dataclass(frozen=True)
class SubMixPlan:
    """Every random choice of one mixing; applying it involves no chance.

    Attributes:
        source_of: The source graph of every mixed graph, int64 ``[graphs]``.
        source: The source graphs, one per mixed graph.
        count: k, how many nodes change places, int64 ``[graphs]``.
        replaced: S, node numbers of the batch, int64 ``[count.sum()]``; grouped by graph, in each
            from the root outward.
        brought: S_π, node numbers *of the source view*, int64 ``[count.sum()]``; the i-th takes the
            place of the i-th of ``replaced``.

    Example:
        >>> import graph_transplant as gt
        >>> batch = gt.load("motifs").batch(range(4))
        >>> plan = SubMix().plan(batch, torch.tensor([1, 2, 3, 0]), generator=None)
        >>> bool((batch.batch[plan.replaced] == batch.batch[plan.replaced].sort().values).all())
        True
    """

    source_of: Tensor
    source: View
    count: Tensor
    replaced: Tensor
    brought: Tensor


@dataclass(frozen=True, kw_only=True)
class SubMixedGraphs(VirtualGraphs):
    """Graphs with a subgraph of another graph in the place of their own.

    Nodes stand as in the destination graphs.

    Attributes:
        label_weight: The weight of the source's label, float ``[graphs]``.
        source_of: The source graph of every mixed graph, int64 ``[graphs]``.
        node_origin: Number in the original batch of the node whose features a node has, int64
            ``[nodes]``.
        node_from_source: Whether that is a node of the source, bool ``[nodes]``.
        edge_origin: Number in the original batch of every edge, int64 ``[edges]``.
        edge_kind: 0 for edges brought from the source, 1 for those kept of the destination, int64
            ``[edges]``.
        plan: The choices that led here.

    Example:
        >>> import graph_transplant as gt
        >>> batch = gt.load("motifs").batch(range(4))
        >>> method = SubMix()
        >>> plan = method.plan(batch, torch.tensor([1, 2, 3, 0]), generator=None)
        >>> mixed = method.apply_plan(plan, batch, torch.eye(4))
        >>> bool((mixed.node_from_source.nonzero().flatten() == plan.replaced.sort().values).all())
        True
    """

    label_weight: Tensor
    source_of: Tensor
    node_origin: Tensor
    node_from_source: Tensor
    edge_origin: Tensor
    edge_kind: Tensor
    plan: SubMixPlan


def root_scores(row_ptr: Tensor, column: Tensor, roots: Tensor) -> Tensor:
    r"""Score how close every node is to the root of its graph: personalised PageRank.

    The score of a node is the probability, divided by α, that a walk from it stops at the root
    within so many steps, where it stops before each step with probability α = 0.15.

    Every node with a score, other than the root, has a neighbour with a larger one; hence the nodes
    with the k largest scores are connected, for every k. Proof: the scores after t rounds are
    :math:`q_0 = e_{root}`, :math:`q_{t+1} = e_{root} + (1 - α) M q_t`, where M takes the mean over
    neighbours. They only grow: :math:`q_1 \ge q_0`, and M keeps an order. So for a node v that is
    not the root, :math:`q_{t+1}(v) = (1 - α) \, mean_u \, q_t(u) \le (1 - α) \, q_t(u') \le
    (1 - α) \, q_{t+1}(u')` for the best neighbour u' of v, and so :math:`q_{t+1}(u') > q_{t+1}(v)`
    if the latter is positive. From any node the way along ever larger scores can end only at the
    root, and stays within the k largest if it begins there.

    Args:
        row_ptr: Offsets of the neighbours of every node, int64 ``[nodes + 1]``.
        column: The neighbours, int64 ``[edges]``; every edge also stands in reverse.
        roots: One node for each graph, int64 ``[graphs]``.

    Returns:
        float64 ``[nodes]``; zero for nodes that are not reached.

    Example:
        >>> path = torch.tensor([0, 1, 3, 4]), torch.tensor([1, 0, 2, 1])
        >>> root_scores(*path, torch.tensor([0])).argsort(descending=True)
        tensor([0, 1, 2])
    """
    nodes = row_ptr.numel() - 1
    degree = row_ptr.diff()
    values = torch.repeat_interleave((1 - RESTART) / degree.to(torch.double), degree)
    step = torch.sparse_csr_tensor(row_ptr, column, values, (nodes, nodes), check_invariants=False)
    start = values.new_zeros(nodes).index_fill_(0, roots, 1.0)
    score = start
    for _ in range(ROUNDS):
        score = torch.addmv(start, step, score)
    return score


def _both_ways(view: View) -> tuple[Tensor, Tensor]:
    """Offsets and neighbours of every node, in either direction of a directed edge."""
    if view.symmetric:
        return view.row_ptr, view.column
    row = torch.cat((view.row, view.column))
    order = torch.argsort(row, stable=True)
    row_ptr = offsets(torch.bincount(row, minlength=view.layout.num_nodes))
    return row_ptr, torch.cat((view.column, view.row)).index_select(0, order)


class SubMix(Augmentation):
    r"""Put a connected subgraph of another graph in the place of one's own (Algorithms 5 and 6).

    In the destination and in the source a root is drawn, and around each the k nodes closest to it
    by personalised PageRank are taken, k being the same for both. The i-th of them in the source
    takes the place of the i-th in the destination: its features replace the other's, the edges
    among the k nodes of the source replace those among the k nodes of the destination, and edges
    between the k nodes and the rest stay as they were. The number of nodes stays the same, and a
    connected graph stays connected.

    The label of the source has the weight of the edges that it brought among all edges of the
    result; an undirected edge counts in both directions. A result without edges is measured by
    nodes: k of them are the source's. Edges carry their attributes and weights with them, nodes all
    their fields. Distances go by edges, whatever their weights and directions.

    Deviation: sub-mix-connected. The publication orders nodes by PageRank of the symmetrically
    normalised adjacency, under which the k best need not be connected, and falls back on
    breadth-first search where they are not. Here the scores are means over neighbours, which makes
    the k best connected always; see :func:`root_scores`. Walks are followed for 16 steps, and
    component sizes count what they reach.

    Args:
        size: k is drawn uniformly from 1 to this share of the nodes of the smaller of the two
            components that the roots lie in, rounded down; at least 1. In (0, 1]. The publication's
            p is 0.4.
        pairing: How the source of every graph is chosen.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> model, batch = gt.GraphClassifier.for_data(store, hidden=8), store.batch(range(8))
        >>> clean = gt.CleanPass(batch, torch.eye(8), model(batch))
        >>> virtual = SubMix()(clean, model=model, generator=torch.Generator())
        >>> virtual.batch.num_nodes == batch.num_nodes
        True
    """

    def __init__(self, size: float = 0.4, *, pairing: str | Pairing = "random") -> None:
        super().__init__()
        if not 0 < size <= 1:
            raise GraphTransplantError(f"`size` must be in (0, 1], got {size}")
        self.size = size
        self.pairing = as_pairing(pairing)

    def plan(
        self, batch: Data, source_of: Tensor, *, generator: torch.Generator | None
    ) -> SubMixPlan:
        """Draw roots and sizes, and with them the nodes that change places.

        Args:
            batch: The original graphs.
            source_of: The source graph of every graph, int64 ``[graphs]``.
            generator: Source of all randomness; ``None`` is torch's own.
        """
        view = View.of(batch)
        source = view.take(source_of)
        graphs, nodes = view.layout.num_graphs, view.layout.num_nodes
        # Destinations and sources side by side, so that everything is done once.
        (first_ptr, first), (second_ptr, second) = _both_ways(view), _both_ways(source)
        row_ptr = torch.cat((first_ptr, second_ptr[1:] + first.numel()))
        column = torch.cat((first, second + nodes))
        ptr = torch.cat((view.layout.ptr, source.layout.ptr[1:] + nodes))
        segment = torch.cat((view.layout.segment, source.layout.segment + graphs))
        keys = uniform((3, graphs), generator, segment.device)
        ties = uniform((segment.numel(),), generator, segment.device)

        sizes = ptr.diff()
        roots = ptr[:-1] + (keys[:2].flatten() * sizes).to(torch.long)
        score = root_scores(row_ptr, column, roots)
        reached = count_per_segment(score > 0, ptr)
        most = anchor_counts(torch.minimum(reached[:graphs], reached[graphs:]), self.size)
        count = (keys[2] * most).to(torch.long).add_(1)
        # One sort for all graphs: by graph, then by falling score; ties are broken at random.
        code = score.log2_().neg_().clamp_(max=_UNREACHED).add_(ties, alpha=_TIE)
        order = torch.argsort(code.add_(segment, alpha=2 * _UNREACHED))
        chosen, _ = ranges(ptr[:-1], count.repeat(2))
        chosen = order.index_select(0, chosen)
        replaced, brought = chosen.tensor_split(2)
        return SubMixPlan(source_of, source, count, replaced, brought - nodes)

    def apply_plan(self, plan: SubMixPlan, batch: Data, targets: Tensor) -> SubMixedGraphs:
        """Carry out a plan; the same plan gives the same graphs.

        Args:
            plan: The choices.
            batch: The original graphs that the plan was made for.
            targets: float ``[graphs, outputs]``.
        """
        view, source = View.of(batch), plan.source
        layout = view.layout
        inside = torch.zeros_like(view.node, dtype=torch.bool)
        inside = inside.index_fill_(0, plan.replaced, True)
        origin = view.node.clone()
        origin.index_copy_(0, plan.replaced, source.node.index_select(0, plan.brought))
        place = torch.full_like(source.node, -1).index_copy_(0, plan.brought, plan.replaced)

        stay = inside.index_select(0, view.row) & inside.index_select(0, view.column)
        stay.logical_not_()
        kept = stay.nonzero().flatten()
        row, column = place.index_select(0, source.row), place.index_select(0, source.column)
        move = (row >= 0) & (column >= 0)
        moved = move.nonzero().flatten()
        row = torch.cat((view.row.index_select(0, kept), row.index_select(0, moved)))
        column = torch.cat((view.column.index_select(0, kept), column.index_select(0, moved)))
        edge = torch.cat((view.edge.index_select(0, kept), source.edge.index_select(0, moved)))
        kind = torch.full_like(edge, KEPT_SOURCE)
        kind[: kept.numel()] = KEPT_DESTINATION
        sender, receiver = (row, column) if view.rows_send else (column, row)
        order = edge_order(sender, receiver, layout.num_nodes)
        sender, receiver, edge, kind = (
            part.index_select(0, order) for part in (sender, receiver, edge, kind)
        )

        new = count_per_segment(move, source.row_ptr.index_select(0, source.layout.ptr))
        edges = new + count_per_segment(stay, view.row_ptr.index_select(0, layout.ptr))
        by_edges, by_nodes = new / edges.clamp(min=1), plan.count / layout.counts
        weight = torch.where(edges > 0, by_edges, by_nodes).to(targets.dtype)
        mixed = mix_rows(targets, plan.source_of, weight)

        virtual = assemble(
            node_counts=layout.counts,
            nodes=nodes_like(batch, origin),
            sender=sender,
            receiver=receiver,
            edges=edges_like(batch, edge),
            targets=mixed,
            symmetric=view.symmetric,
        )
        return SubMixedGraphs(
            batch=virtual,
            targets=mixed,
            label_weight=weight,
            source_of=plan.source_of,
            node_origin=origin,
            node_from_source=inside,
            edge_origin=edge,
            edge_kind=kind,
            plan=plan,
        )

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> SubMixedGraphs:
        """Mix the graphs of a batch; see :meth:`Augmentation.forward`."""
        source_of = self.pairing.sources(clean.targets, clean.task, generator)
        plan = self.plan(clean.batch, source_of, generator=generator)
        return self.apply_plan(plan, clean.batch, clean.targets)

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Refuse pairing by class where there are none; see :meth:`Augmentation.check`."""
        self.pairing.check(data.task)
