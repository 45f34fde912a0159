"""NodeSam (Yoo, Shim and Kang, WWW 2022): split a node, merge another two."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from graph_transplant.augment.assemble import (
    EditedGraphs,
    assemble,
    edge_order,
    edges_like,
    nodes_like,
    simple_pairs,
)
from graph_transplant.augment.base import Augmentation, CleanPass
from graph_transplant.augment.sampling import uniform
from graph_transplant.augment.subgraphs import View
from graph_transplant.saliency import Predictor
from graph_transplant.segments import count_per_segment, offsets


@dataclass(frozen=True)
class SplitEdges:
    """The edges of a batch after the split.

    Nodes have their numbers in the batch; the second half of the node that was split in graph g has
    the number ``nodes + g``. The edges of the batch come first, in the order of its view.

    Attributes:
        row: First node as the batch's view has it, int64 ``[edges]``.
        column: Second node, int64 ``[edges]``.
        like: Number in the batch of the edge whose attributes an edge has, int64 ``[edges]``; -1
            for none.
        origin: Number in the batch of the edge that an edge is, int64 ``[edges]``; -1 for new ones.
    """

    row: Tensor
    column: Tensor
    like: Tensor
    origin: Tensor


@dataclass(frozen=True)
class NodeSamPlan:
    """Every random choice of one split and merge; applying it involves no chance.

    Attributes:
        split: The node that is split in each graph, int64 ``[graphs]``. It becomes the first half.
        moved: Its neighbours that go over to the second half, bool ``[nodes]``.
        shared: Its neighbours that are joined to both halves, bool ``[nodes]``; all others stay
            with the first.
        attribute_of: Number in the batch of the edge whose attributes the edge between the halves
            takes, int64 ``[graphs]``; -1 where the node had none.
        kept: The node that takes in the other end of the merged edge, int64 ``[graphs]``.
        merged: That other end, int64 ``[graphs]``; ``nodes + g`` is the second half of graph g.
        edges: The edges after the split.
    """

    split: Tensor
    moved: Tensor
    shared: Tensor
    attribute_of: Tensor
    kept: Tensor
    merged: Tensor
    edges: SplitEdges


class NodeSam(Augmentation):
    r"""Split a random node of every graph into two and merge the ends of a random edge (*NodeSam*).

    The two halves of the split node are joined to each other and have its features; each of its
    neighbours goes to one of them with equal probability. Then the ends of a random edge become one
    node with the neighbours of both and the mean of their features. Every graph keeps its number of
    nodes and components, and its label.

    A merge loses an edge for every triangle that the merged edge is part of. To make up for it, the
    neighbours that form a triangle with the split node, :math:`S`, are joined to both halves with
    probability :math:`\min(h / |S|, 1)`, where h is such that the expected number of edges stays:

    .. math::
        h = \frac{\sqrt{c^2 + 4 t |V| - 6 t} - c}{2}, \qquad c = |E| - 2 - \frac{3 t}{d},

    with t triangles and d neighbours at the split node. (It solves :math:`h = 3T' / E'`: the edges
    after the split are :math:`E' = |E| + 1 + h`, the triangles about
    :math:`T' = |V| t / 3 - t / 2 + h + h t / d`, and an edge is in :math:`3T' / E'` of them.)

    Beyond the simple undirected graphs of the publication: a neighbour's edges, repeated ones and
    both directions, stay together; repeated edges and self-loops count for nothing in h. Both
    halves have the self-loops of the node. The edge between the halves takes the attributes and
    weight of a random edge of the node, zeros and one where it has none; in directed graphs it runs
    from the first half to the second. The merged edge is drawn from all listed edges but
    self-loops. Where both of its ends have an edge to one node, only those of the node that takes
    in the other remain; edges between the two vanish. Node fields other than ``x``, and ``x`` of
    integers, have no mean: the merged node has those of the node that took in the other.

    In the virtual graphs nodes keep their places; that of the merged node is given to the second
    half of the split one.

    Args:
        adjust: Whether neighbours are joined to both halves as above; without, this is the
            publication's *NodeSam-base*.

    Example:
        >>> from torch_geometric.data import Batch
        >>> ring = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]])
        >>> batch = Batch.from_data_list([Data(x=torch.eye(4), edge_index=ring)])
        >>> sam = NodeSam()
        >>> plan = sam.plan(batch, generator=torch.Generator().manual_seed(0))
        >>> virtual = sam.apply_plan(plan, batch, torch.eye(1))
        >>> virtual.batch.num_nodes, virtual.batch.num_edges  # it has no triangle
        (4, 8)
    """

    def __init__(self, adjust: bool = True) -> None:
        super().__init__()
        self.adjust = adjust

    def plan(self, batch: Data, *, generator: torch.Generator | None) -> NodeSamPlan:
        """Make every random choice of one split and merge.

        Args:
            batch: The original graphs.
            generator: Source of all randomness; ``None`` is torch's own.
        """
        view = View.of(batch)
        layout, row, column = view.layout, view.row, view.column
        nodes, ptr, segment, device = layout.num_nodes, layout.ptr, layout.segment, row.device
        keys = uniform((3, layout.num_graphs), generator, device)
        sides = uniform((2, nodes), generator, device)
        split = ptr[:-1] + (keys[0] * layout.counts).to(torch.long)

        # Edges of the split nodes: from them, to them, and their loops.
        is_split = _marked(nodes, split)
        out = is_split.index_select(0, row).nonzero().flatten()
        into = is_split.index_select(0, column).nonzero().flatten()
        ahead, behind = column.index_select(0, out), row.index_select(0, into)
        loop = is_split.index_select(0, ahead)
        loops, out, ahead = out[loop], out[~loop], ahead[~loop]
        loop = is_split.index_select(0, behind)
        into, behind = into[~loop], behind[~loop]
        near = _marked(nodes, ahead, behind)

        shared = torch.zeros_like(near)
        if self.adjust:
            chance, closing = _sharing(view, near)
            shared = closing & (sides[1] < chance.index_select(0, segment))
        moved = near & ~shared & (sides[0] < 0.5)

        drawn_from = [_Listed.of(out, segment.index_select(0, ahead), layout.num_graphs)]
        if not view.symmetric:
            drawn_from.append(_Listed.of(into, segment.index_select(0, behind), layout.num_graphs))
        number = _pick(keys[1], drawn_from)
        attribute_of = number.clone()
        known = (number >= 0).nonzero().flatten()
        attribute_of[known] = view.edge.index_select(0, number.index_select(0, known))

        edges, listed = _split(
            view, split, moved, shared, attribute_of, (out, ahead), (into, behind), loops
        )
        chosen = _pick(keys[2], listed)
        kept, merged = edges.row.index_select(0, chosen), edges.column.index_select(0, chosen)
        # The node that takes in the other has a place in the batch; the second half has none.
        swap = kept >= nodes
        kept, merged = torch.where(swap, merged, kept), torch.where(swap, kept, merged)
        return NodeSamPlan(split, moved, shared, attribute_of, kept, merged, edges)

    def apply_plan(self, plan: NodeSamPlan, batch: Data, targets: Tensor) -> EditedGraphs:
        """Build the graphs of a plan; no chance is involved.

        Args:
            plan: What :meth:`plan` returned.
            batch: The batch it was made for.
            targets: Targets of the graphs, float ``[graphs, outputs]``.
        """
        view = View.of(batch)
        nodes, graphs = view.layout.num_nodes, view.layout.num_graphs
        kept, merged = plan.kept, plan.merged
        device = kept.device
        remaining = _after_merge(plan, nodes + graphs).nonzero().flatten()
        # The place of the merged node is free for the second half, unless that was the merged one.
        real = merged < nodes
        place = torch.arange(nodes + graphs, device=device)
        place[nodes:] = merged
        place.index_copy_(0, merged, kept)
        row = place.index_select(0, plan.edges.row.index_select(0, remaining))
        column = place.index_select(0, plan.edges.column.index_select(0, remaining))
        sender, receiver = (row, column) if view.rows_send else (column, row)
        order = edge_order(sender, receiver, nodes)
        remaining = remaining.index_select(0, order)

        whose = torch.where(real, merged, plan.split)  # whose features the merged node has
        node_origin = view.node.index_copy(0, whose, plan.split)
        fields = nodes_like(batch, node_origin)
        x = fields.get("x")
        if x is not None and x.is_floating_point():
            mean = (batch.x.index_select(0, kept) + batch.x.index_select(0, whose)) / 2
            fields["x"] = x.index_copy(0, kept, mean)
        virtual = assemble(
            node_counts=view.layout.counts,
            nodes=fields,
            sender=sender.index_select(0, order),
            receiver=receiver.index_select(0, order),
            edges=edges_like(batch, plan.edges.like.index_select(0, remaining)),
            targets=targets,
            symmetric=view.symmetric,
        )
        return EditedGraphs(
            batch=virtual,
            targets=targets,
            node_origin=node_origin,
            edge_origin=plan.edges.origin.index_select(0, remaining),
        )

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> EditedGraphs:
        """Split and merge in every graph of a batch; see :meth:`Augmentation.forward`."""
        with torch.no_grad():
            plan = self.plan(clean.batch, generator=generator)
        return self.apply_plan(plan, clean.batch, clean.targets)


def expected_shared(nodes: Tensor, edges: Tensor, degree: Tensor, triangles: Tensor) -> Tensor:
    r"""Return h: how many neighbours must be shared to keep the expected number of edges.

    Args:
        nodes: Nodes of every graph, int64 ``[graphs]``.
        edges: Undirected edges of every graph, int64 ``[graphs]``.
        degree: Neighbours of the split node, int64 ``[graphs]``.
        triangles: Triangles at the split node, int64 ``[graphs]``.

    Returns:
        float64 ``[graphs]``; zero where there is no triangle.

    Example:
        In a complete graph of four nodes (:math:`c = 1`, :math:`h = (\sqrt{31} - 1) / 2`):

        >>> four, six, three = torch.tensor([4]), torch.tensor([6]), torch.tensor([3])
        >>> expected_shared(four, six, three, three)
        tensor([2.2839], dtype=torch.float64)
    """
    t = triangles.to(torch.double)
    c = edges - 2 - 3 * t / degree.clamp(min=1)
    h = ((c.square() + 4 * t * nodes - 6 * t).sqrt() - c) / 2
    return torch.where(triangles > 0, h, 0.0)


def _sharing(view: View, near: Tensor) -> tuple[Tensor, Tensor]:
    """Find the neighbours that close triangles, and the probability of sharing each.

    Args:
        view: The graphs.
        near: Neighbours of the split nodes, bool ``[nodes]``.

    Returns:
        The probability, float64 ``[graphs]``, and the neighbours, bool ``[nodes]``.
    """
    layout = view.layout
    u, v = simple_pairs(view)
    edges = torch.bincount(layout.segment.index_select(0, u), minlength=layout.num_graphs)
    inner = (near.index_select(0, u) & near.index_select(0, v)).nonzero().flatten()
    u, v = u.index_select(0, inner), v.index_select(0, inner)
    triangles = torch.bincount(layout.segment.index_select(0, u), minlength=layout.num_graphs)
    closing = _marked(layout.num_nodes, u, v)
    degree = count_per_segment(near, layout.ptr)
    h = expected_shared(layout.counts, edges, degree, triangles)
    return h / count_per_segment(closing, layout.ptr).clamp(min=1), closing


def _split(
    view: View,
    split: Tensor,
    moved: Tensor,
    shared: Tensor,
    attribute_of: Tensor,
    out: tuple[Tensor, Tensor],
    into: tuple[Tensor, Tensor],
    loops: Tensor,
) -> tuple[SplitEdges, list[_Listed]]:
    """Make the edges after the split.

    Args:
        view: The graphs.
        split: int64 ``[graphs]``.
        moved: bool ``[nodes]``.
        shared: bool ``[nodes]``.
        attribute_of: int64 ``[graphs]``.
        out: Numbers in the view of the edges from split nodes, and the nodes they lead to.
        into: Numbers in the view of the edges to split nodes, and the nodes they come from.
        loops: Numbers in the view of their self-loops.

    Returns:
        The edges, and all of them but self-loops, by graph.
    """
    segment, graphs = view.layout.segment, view.layout.num_graphs
    second = view.layout.num_nodes + torch.arange(graphs, device=split.device)
    row, column = view.row.clone(), view.column.clone()
    copies_row, copies_column, copies_edge = [], [], []
    is_loop = view.row == view.column
    plain = torch.arange(row.numel(), device=row.device)
    if bool(is_loop.any()):
        plain = (~is_loop).nonzero().flatten()
    listed = [_Listed.of(plain, segment.index_select(0, view.row.index_select(0, plain)), graphs)]
    start = row.numel()
    for (edge, other), ends in ((out, row), (into, column)):
        half = second.index_select(0, segment.index_select(0, other))
        goes = moved.index_select(0, other).nonzero().flatten()
        ends.index_copy_(0, edge.index_select(0, goes), half.index_select(0, goes))
        both = shared.index_select(0, other).nonzero().flatten()
        pair = half.index_select(0, both), other.index_select(0, both)
        one, two = pair if ends is row else pair[::-1]
        copies_row.append(one)
        copies_column.append(two)
        copies_edge.append(view.edge.index_select(0, edge.index_select(0, both)))
        numbers = torch.arange(start, start + both.numel(), device=row.device)
        listed.append(_Listed.of(numbers, segment.index_select(0, pair[1]), graphs))
        start += both.numel()
    # The edge between the halves. Rows receive in directed graphs, so it runs to the second half.
    between = [(second, split), (split, second)] if view.symmetric else [(second, split)]
    for one, two in between:
        copies_row.append(one)
        copies_column.append(two)
        copies_edge.append(attribute_of)
        numbers = torch.arange(start, start + graphs, device=row.device)
        listed.append(_Listed(numbers, torch.ones_like(second)))
        start += graphs
    half = second.index_select(0, segment.index_select(0, view.row.index_select(0, loops)))
    copies_row.append(half)
    copies_column.append(half)
    copies_edge.append(view.edge.index_select(0, loops))
    like = torch.cat((view.edge, *copies_edge))
    origin = torch.cat((view.edge, torch.full_like(like[row.numel() :], -1)))
    edges = SplitEdges(
        torch.cat((row, *copies_row)), torch.cat((column, *copies_column)), like, origin
    )
    return edges, listed


def _after_merge(plan: NodeSamPlan, total: int) -> Tensor:
    """Mark the edges that remain when the ends of the merged edges become one.

    Args:
        plan: The choices.
        total: Nodes after the split.

    Returns:
        bool ``[edges]`` of the split graphs.
    """
    row, column = plan.edges.row, plan.edges.column
    role = torch.zeros(total, dtype=torch.uint8, device=row.device)
    role.index_fill_(0, plan.kept, 1)
    role.index_fill_(0, plan.merged, 2)
    roles = role.index_select(0, row), role.index_select(0, column)
    remains = (roles[0] + roles[1]) != 3  # not from one end of the merged edge to the other
    # A self-loop of the merged node becomes one of the node that takes it in.
    other = torch.arange(total, device=row.device).index_copy_(0, plan.merged, plan.kept)
    for mine, far in ((roles[0], column), (roles[1], row)):
        of_kept = mine.eq(1).nonzero().flatten()
        beside = _marked(total, far.index_select(0, of_kept))
        of_merged = mine.eq(2).nonzero().flatten()
        ends = other.index_select(0, far.index_select(0, of_merged))
        repeated = of_merged[beside.index_select(0, ends)]
        remains.index_fill_(0, repeated, False)
    return remains


@dataclass(frozen=True)
class _Listed:
    """Numbers of edges, graph after graph, and how many each graph has."""

    number: Tensor
    counts: Tensor

    @classmethod
    def of(cls, number: Tensor, segment: Tensor, graphs: int) -> _Listed:
        """List edges of which the graphs are known, and sorted."""
        return cls(number, torch.bincount(segment, minlength=graphs))


def _pick(keys: Tensor, lists: list[_Listed]) -> Tensor:
    """Pick one edge of every graph from several lists, all equally likely.

    Args:
        keys: Random numbers in ``[0, 1)``, float64 ``[graphs]``.
        lists: Where to pick from.

    Returns:
        int64 ``[graphs]``; -1 for a graph without edges in any list.
    """
    counts = torch.stack([part.counts for part in lists])
    place = (keys * counts.sum(0)).to(torch.long)
    picked = torch.full_like(place, -1)
    for part in lists:
        here = ((place >= 0) & (place < part.counts)).nonzero().flatten()
        index = (offsets(part.counts)[:-1] + place).index_select(0, here)
        picked.index_copy_(0, here, part.number.index_select(0, index))
        place = place - part.counts
    return picked


def _marked(size: int, *places: Tensor) -> Tensor:
    """Mark some of so many places, bool ``[size]``."""
    marks = torch.zeros(size, dtype=torch.bool, device=places[0].device)
    for place in places:
        marks.index_fill_(0, place, True)
    return marks
