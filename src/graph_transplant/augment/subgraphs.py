"""Which part of a graph is cut: anchors and what grows from them (section "Graph Mixing").

Source and destination graphs are seen as a :class:`View`: graphs laid side by side, one per mixed
graph. The functions are deterministic in the random ``keys`` they are given, so that a slow
reference version of the paper's Algorithm 1 can replay the same choices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from graph_transplant.augment.sampling import scalar_generator, uniform
from graph_transplant.errors import GraphTransplantError
from graph_transplant.graphs import Layout, adjacency_of, layout_of
from graph_transplant.segments import (
    choose_per_segment,
    count_per_segment,
    first_per_segment,
    offsets,
    ranges,
)

# Guards floor(ratio * count) against products that fall short by rounding, such as 0.29 * 100, and
# ceil(ratio * count) against those that exceed.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class View:
    """Graphs laid side by side, with where each node and edge comes from.

    Attributes:
        layout: Which nodes belong to which graph.
        row_ptr: Offsets of the rows of edges, int64 ``[nodes + 1]``.
        row: First node of every edge, sorted int64 ``[edges]``.
        column: Second node of every edge, int64 ``[edges]``.
        symmetric: Whether every edge also stands in reverse.
        rows_send: Whether the first node of an edge is its sender.
        node: Number of every node in the batch, int64 ``[nodes]``.
        edge: Number of every edge in the batch, int64 ``[edges]``.
    """

    layout: Layout
    row_ptr: Tensor
    row: Tensor
    column: Tensor
    symmetric: bool
    rows_send: bool
    node: Tensor
    edge: Tensor

    @classmethod
    def of(cls, batch: Data) -> View:
        """View the graphs of a batch as they are.

        Args:
            batch: A PyG batch.
        """
        adjacency, layout = adjacency_of(batch), layout_of(batch)
        device = adjacency.row.device
        edge = adjacency.order
        if edge is None:
            edge = torch.arange(adjacency.row.numel(), device=device)
        return cls(
            layout=layout,
            row_ptr=adjacency.row_ptr,
            row=adjacency.row,
            column=adjacency.column,
            symmetric=adjacency.symmetric,
            rows_send=adjacency.rows_send,
            node=torch.arange(layout.num_nodes, device=device),
            edge=edge,
        )

    def take(self, graphs: Tensor) -> View:
        """View other graphs, in the given order; a graph may come more than once.

        Args:
            graphs: Graph numbers, int64 ``[graphs taken]``.
        """
        ptr = self.layout.ptr
        node_counts = ptr.diff().index_select(0, graphs)
        nodes, segment = ranges(ptr.index_select(0, graphs), node_counts)
        new_ptr = offsets(node_counts)
        edge_ptr = self.row_ptr.index_select(0, ptr)
        edge_counts = edge_ptr.diff().index_select(0, graphs)
        edges, graph = ranges(edge_ptr.index_select(0, graphs), edge_counts)
        shift = (new_ptr[:-1] - ptr.index_select(0, graphs)).index_select(0, graph)
        return View(
            layout=Layout(segment, new_ptr),
            row_ptr=offsets(self.row_ptr.diff().index_select(0, nodes)),
            row=self.row.index_select(0, edges).add_(shift),
            column=self.column.index_select(0, edges).add_(shift),
            symmetric=self.symmetric,
            rows_send=self.rows_send,
            node=self.node.index_select(0, nodes),
            edge=self.edge.index_select(0, edges),
        )

    def neighbours(self, mask: Tensor) -> Tensor:
        """Mark the nodes next to marked nodes: N(H), in either direction of a directed edge.

        Args:
            mask: H, bool ``[nodes]``.

        Returns:
            bool ``[nodes]``.
        """
        near = count_per_segment(mask.index_select(0, self.column), self.row_ptr) > 0
        if not self.symmetric:
            near = near.index_fill(0, self.column[mask.index_select(0, self.row)], True)
        return near


def floor_share(counts: Tensor, ratio: float) -> Tensor:
    """Return ``floor(ratio · count)`` for every graph.

    Args:
        counts: Nodes or edges of every graph, int64 ``[graphs]``.
        ratio: Share.

    Returns:
        int64 ``[graphs]``.

    Example:
        >>> floor_share(torch.tensor([1, 10, 100]), 0.29)
        tensor([ 0,  2, 29])
    """
    return (counts.to(torch.double) * ratio + _ROUNDING).floor().to(torch.long)


def ceil_share(counts: Tensor, ratio: float) -> Tensor:
    """Return ``ceil(ratio · count)`` for every graph.

    Args:
        counts: Nodes or edges of every graph, int64 ``[graphs]``.
        ratio: Share.

    Returns:
        int64 ``[graphs]``.

    Example:
        >>> ceil_share(torch.tensor([0, 1, 10, 100]), 0.07)
        tensor([0, 1, 1, 7])
    """
    return (counts.to(torch.double) * ratio - _ROUNDING).ceil().to(torch.long)


def anchor_counts(nodes: Tensor, ratio: float) -> Tensor:
    """Return ``max(1, floor(ratio · n))`` for every graph.

    Args:
        nodes: Nodes of every graph, int64 ``[graphs]``.
        ratio: Share of the nodes.

    Example:
        >>> anchor_counts(torch.tensor([1, 10, 39]), 0.1)
        tensor([1, 1, 3])
    """
    return floor_share(nodes, ratio).clamp_(min=1)


def most_salient(saliency: Tensor, layout: Layout, count: Tensor, keys: Tensor) -> Tensor:
    """Mark the most salient nodes of each graph; ties are broken at random.

    Args:
        saliency: float ``[nodes]``.
        layout: Which nodes belong to which graph.
        count: How many, int64 ``[graphs]``.
        keys: Random numbers in ``[0, 1)`` that break ties, float64 ``[nodes]``.

    Returns:
        bool ``[nodes]``.
    """
    # One sort of integers made of the graph, the saliency in reverse and the random number. The
    # bits of a float that is not negative, read as an integer, keep its order.
    spare = 31 - layout.num_graphs.bit_length()
    if spare < 1:
        raise GraphTransplantError(f"a batch of {layout.num_graphs} graphs is too large to mix")
    bits = saliency.to(torch.float32).abs().view(torch.int32).to(torch.long)
    code = (layout.segment << 31) + (0x7FFFFFFF - bits)
    code = (code << spare) + (keys * 2**spare).to(torch.long)
    return first_per_segment(count, code, layout.segment, layout.ptr)


def partial_khop(view: View, start: Tensor, ratio: float, keys: Tensor) -> Tensor:
    """Grow a subgraph from anchors (Algorithm 1, *Partial K-hop*).

    Deviation: per-graph-share. At each step p % of N(H) are taken **in every graph**, at least one
    while N(H) is not empty; the released code draws over the whole batch.

    Args:
        view: The graphs.
        start: Anchors, bool ``[nodes]``.
        ratio: p as a share, between 0 and 1.
        keys: Random numbers in ``[0, 1)``, float64 ``[hops, nodes]``: in step k the nodes of N(H)
            with the smallest ``keys[k]`` are taken. The number of rows is K.

    Returns:
        The grown set, bool ``[nodes]``; it contains the anchors.

    Example:
        >>> path = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> start = torch.tensor([True, False, False])
        >>> partial_khop(View.of(path), start, 1.0, torch.rand(1, 3, dtype=torch.double))
        tensor([ True,  True, False])
    """
    segment, ptr = view.layout.segment, view.layout.ptr
    grown = frontier = start
    for step in keys:
        near = view.neighbours(frontier)
        share = anchor_counts(count_per_segment(near, ptr), ratio)
        frontier = choose_per_segment(share, step, segment, ptr, near)
        grown = grown | frontier
    return grown


class Anchors(ABC):
    """How the anchors of the source graph are chosen."""

    @abstractmethod
    def pick(
        self,
        view: View,
        saliency: Tensor,
        count: Tensor,
        pool: Tensor,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Choose anchors.

        Args:
            view: The graphs.
            saliency: float ``[nodes]``.
            count: How many anchors, int64 ``[graphs]``.
            pool: From how many of the most salient nodes, int64 ``[graphs]``.
            generator: Source of randomness.

        Returns:
            bool ``[nodes]``.
        """


class SalientAnchors(Anchors):
    """Anchors drawn uniformly from the most salient nodes (the paper's choice for the source)."""

    def pick(
        self,
        view: View,
        saliency: Tensor,
        count: Tensor,
        pool: Tensor,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Choose anchors; see :meth:`Anchors.pick`."""
        keys = uniform((2, view.layout.num_nodes), generator, view.row.device)
        among = most_salient(saliency, view.layout, pool, keys[0])
        return choose_per_segment(count, keys[1], view.layout.segment, view.layout.ptr, among)


class RandomAnchors(Anchors):
    """Anchors drawn uniformly from all nodes (destination; ablation "Random Subgraph")."""

    def pick(
        self,
        view: View,
        saliency: Tensor,
        count: Tensor,
        pool: Tensor,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Choose anchors; see :meth:`Anchors.pick`."""
        keys = uniform((view.layout.num_nodes,), generator, view.row.device)
        return choose_per_segment(count, keys, view.layout.segment, view.layout.ptr)


class Cutter(ABC):
    """Which nodes are transplanted from the source and removed from the destination."""

    @abstractmethod
    def cut(
        self,
        source: View,
        destination: View,
        saliency: Tensor,
        anchors: Anchors,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Tensor]:
        """Choose the nodes.

        Args:
            source: The source graphs.
            destination: The destination graphs.
            saliency: Of the source nodes, float ``[source nodes]``.
            anchors: How the source anchors are chosen; destination anchors are random.
            generator: Source of randomness.

        Returns:
            V̄_π, bool ``[source nodes]``, and V̄, bool ``[destination nodes]``.
        """


class PartialKHop(Cutter):
    """Cut partial K-hop subgraphs around the anchors (the paper's mixing unit).

    K and p are drawn once per call, that is once per training iteration, for both sides.

    Args:
        anchor_ratio: R as a share, in (0, 0.5]: the anchors' share of the nodes.
        hops: The values K is drawn from.
        alpha: p is drawn from Beta(alpha, alpha).

    Example:
        >>> PartialKHop(anchor_ratio=0.7)
        Traceback (most recent call last):
        ...
        graph_transplant.errors.GraphTransplantError: `anchor_ratio` must be in (0, 0.5], got 0.7
    """

    def __init__(
        self, anchor_ratio: float = 0.1, hops: int | Sequence[int] = (1, 2, 3), alpha: float = 2.0
    ) -> None:
        hops = (hops,) if isinstance(hops, int) else tuple(hops)
        if not 0 < anchor_ratio <= 0.5:
            raise GraphTransplantError(f"`anchor_ratio` must be in (0, 0.5], got {anchor_ratio}")
        if not hops or any(hop < 0 for hop in hops):
            raise GraphTransplantError(
                f"`hops` must be one or more numbers that are not negative, got {hops}"
            )
        if not alpha > 0:
            raise GraphTransplantError(f"`alpha` must be positive, got {alpha}")
        self.anchor_ratio = anchor_ratio
        self.hops = hops
        self.alpha = alpha

    def cut(
        self,
        source: View,
        destination: View,
        saliency: Tensor,
        anchors: Anchors,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Tensor]:
        """Choose the nodes; see :meth:`Cutter.cut`."""
        scalars = scalar_generator(generator)
        steps = int(scalars.choice(self.hops))
        share = float(scalars.beta(self.alpha, self.alpha))
        masks = []
        for view, policy in ((source, anchors), (destination, RandomAnchors())):
            nodes = view.layout.counts
            count = anchor_counts(nodes, self.anchor_ratio)
            pool = anchor_counts(nodes, 2 * self.anchor_ratio)
            start = policy.pick(view, saliency, count, pool, generator)
            keys = uniform((steps, view.layout.num_nodes), generator, view.row.device)
            masks.append(partial_khop(view, start, share, keys))
        return masks[0], masks[1]


class ScatteredNodes(Cutter):
    """Cut scattered nodes, as many as partial K-hop subgraphs have on average (ablation).

    From the source N nodes are drawn among its min(2N, n) most salient ones, N being the mean size
    of the partial K-hop subgraphs of the batch; N random nodes are removed from the destination.

    Args:
        size: The cutter whose subgraphs say how many.
    """

    def __init__(self, size: PartialKHop) -> None:
        self.size = size

    def cut(
        self,
        source: View,
        destination: View,
        saliency: Tensor,
        anchors: Anchors,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Tensor]:
        """Choose the nodes; see :meth:`Cutter.cut`."""
        grown = self.size.cut(source, destination, saliency, anchors, generator)
        masks = []
        views = ((source, anchors), (destination, RandomAnchors()))
        for (view, policy), mask in zip(views, grown, strict=True):
            mean = torch.round(mask.sum() / view.layout.num_graphs).to(torch.long).clamp(min=1)
            nodes = view.layout.counts
            pool = torch.minimum(2 * mean, nodes)
            count = torch.minimum(mean, nodes)
            masks.append(policy.pick(view, saliency, count, pool, generator))
        return masks[0], masks[1]
