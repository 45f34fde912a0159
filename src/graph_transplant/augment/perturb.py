"""Random edits of single graphs that keep the label: the augmentations of GraphCL, and DropEdge.

Node dropping, edge perturbation, attribute masking and subgraphs are the ones of You et al., "Graph
Contrastive Learning with Augmentations" (NeurIPS 2020), used with labels as in the paper (section
"Baselines"). Dropping edges is Rong et al., "DropEdge" (ICLR 2020). Every choice is made in each
graph by itself, for all graphs of a batch at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graph_transplant.augment.assemble import EdgePairs, EditedGraphs, NewEdges, edit_graphs
from graph_transplant.augment.base import Augmentation, CleanPass
from graph_transplant.augment.sampling import sample_distinct, uniform
from graph_transplant.augment.subgraphs import View, floor_share
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.graphs import GraphStore, layout_of
from graph_transplant.saliency import Predictor
from graph_transplant.segments import (
    choose_per_segment,
    offsets,
    ranges,
    rank_in_segment,
    shuffled_segments,
)

_GRAPHS_AT_ONCE = 4096


class RatioAugmentation(Augmentation):
    """Changes a share of something in every graph.

    Args:
        ratio: The share, at least 0 and below 1.

    Example:
        >>> DropNodes(1.0)
        Traceback (most recent call last):
        ...
        graph_transplant.errors.GraphTransplantError: `ratio` must be in [0, 1), got 1.0
    """

    def __init__(self, ratio: float = 0.2) -> None:
        super().__init__()
        if not 0 <= ratio < 1:
            raise GraphTransplantError(f"`ratio` must be in [0, 1), got {ratio}")
        self.ratio = ratio

    def extra_repr(self) -> str:
        """Say the parameters."""
        return f"ratio={self.ratio}"


def choose_edges(pairs: EdgePairs, count: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw distinct edges of every graph, in random order.

    Args:
        pairs: The edges.
        count: How many of each graph, at most all, int64 ``[graphs]``.
        generator: Source of randomness; ``None`` is torch's own.

    Returns:
        Places in ``pairs``, graph after graph, int64 ``[count.sum()]``.
    """
    keys = uniform((pairs.segment.numel(),), generator, pairs.segment.device)
    order = shuffled_segments(keys, pairs.segment)
    return order.index_select(0, ranges(pairs.ptr[:-1], count)[0])


def without_edges(pairs: EdgePairs, chosen: Tensor, num_edges: int) -> Tensor:
    """Mark the edges of a batch that stay when some go, each with its reverse.

    Args:
        pairs: The edges.
        chosen: Places in ``pairs`` of those that go, int64 ``[gone]``.
        num_edges: Edges of the batch.

    Returns:
        bool ``[edges]``, as :func:`edit_graphs` takes it.
    """
    keep = torch.ones(num_edges, dtype=torch.bool, device=chosen.device)
    for direction in (pairs.forward, pairs.backward):
        keep.index_fill_(0, direction.index_select(0, chosen), False)
    return keep


class AbsentPairs:
    """The pairs of different nodes of each graph that no edge joins.

    They are never listed: pairs are numbered, so that the number of the r-th absent one follows
    from the sorted numbers of the present ones. Self-loops are no pairs; repeated edges count once.
    In undirected graphs pairs are unordered; in directed ones they are ordered, and the reverse of
    an edge may be absent.

    Args:
        view: The graphs, as :meth:`View.of` gives them.

    Attributes:
        counts: Absent pairs of every graph, int64 ``[graphs]``.

    Example:
        >>> from torch_geometric.data import Data
        >>> path = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> absent = AbsentPairs(View.of(path))
        >>> absent.counts
        tensor([1])
        >>> absent.sample(torch.tensor([1]), None)
        (tensor([0]), tensor([2]))
    """

    def __init__(self, view: View) -> None:
        self._layout = layout = view.layout
        self._symmetric, self._rows_send = view.symmetric, view.rows_send
        nodes = layout.counts
        pairs = nodes * (nodes - 1)
        pairs = pairs // 2 if view.symmetric else pairs
        self._first = offsets(pairs)
        # Numbers rise along the rows of the view: row 0 comes first, and within a row the columns
        # ascend. Undirected graphs number the triangle below the diagonal.
        wanted = view.row > view.column if view.symmetric else view.row != view.column
        place = wanted.nonzero().flatten()
        row, column = view.row.index_select(0, place), view.column.index_select(0, place)
        graph = layout.segment.index_select(0, row)
        start = layout.ptr.index_select(0, graph)
        row, column = row - start, column - start
        if view.symmetric:
            number = row * (row - 1) // 2 + column
        else:
            width = nodes.index_select(0, graph) - 1
            number = row * width + column - (column > row).to(torch.long)
        code = torch.unique_consecutive(self._first.index_select(0, graph) + number)
        present = torch.searchsorted(code, self._first).diff()
        self.counts = pairs - present
        # How many absent pairs stand before each present one, over all graphs.
        self._before = code - torch.arange(code.numel(), device=code.device)

    def sample(self, count: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Draw distinct absent pairs, every subset equally likely.

        Args:
            count: How many in each graph, at most :attr:`counts`, int64 ``[graphs]``.
            generator: Source of randomness; ``None`` is torch's own.

        Returns:
            First and second node of each pair, numbered as in the batch, both int64
            ``[count.sum()]``, graph after graph; in undirected graphs the first is the smaller one,
            in directed ones it sends.
        """
        rank, graph = sample_distinct(self.counts, count, generator)
        rank = rank + offsets(self.counts).index_select(0, graph)
        code = rank + torch.searchsorted(self._before, rank, right=True)
        number = code - self._first.index_select(0, graph)
        if self._symmetric:
            # Row v of the triangle begins with number v (v - 1) / 2, where the root is whole:
            # float64 gets the row right up to millions of nodes.
            row = (((8 * number + 1).to(torch.double).sqrt() + 1) / 2).to(torch.long)
            column = number - row * (row - 1) // 2
        else:
            width = self._layout.counts.index_select(0, graph) - 1
            row, column = number // width, number % width
            column = column + (column >= row).to(torch.long)
        start = self._layout.ptr.index_select(0, graph)
        row, column = row + start, column + start
        return (row, column) if self._rows_send and not self._symmetric else (column, row)


class DropNodes(RatioAugmentation):
    """Take random nodes out of every graph, with their edges (*DropN*).

    Of n nodes ``floor(ratio · n)`` go, every such set equally likely; at least one node stays.

    Args:
        ratio: Share of the nodes to drop, in [0, 1). The paper tries 0.2 and 0.4.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(4))
        >>> model, batch = gt.GraphClassifier.for_data(store, hidden=8), store.batch(range(4))
        >>> clean = gt.CleanPass(batch, torch.eye(6)[batch.y], model(batch))
        >>> fewer = DropNodes(0.5)(clean, model=model, generator=None).batch.ptr.diff()
        >>> bool((fewer == batch.ptr.diff() - batch.ptr.diff() // 2).all())
        True
    """

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> EditedGraphs:
        """Make virtual samples; see :meth:`Augmentation.forward`."""
        layout = layout_of(clean.batch)
        keep = (layout.counts - floor_share(layout.counts, self.ratio)).clamp_(min=1)
        keys = uniform((layout.num_nodes,), generator, layout.segment.device)
        kept = choose_per_segment(keep, keys, layout.segment, layout.ptr)
        return edit_graphs(clean.batch, clean.targets, keep_nodes=kept)


class PerturbEdges(RatioAugmentation):
    """Remove random edges of every graph and add as many where there were none (*PermE*).

    Of m edges ``floor(ratio · m)`` are replaced, or as many as there are absent pairs where these
    are fewer: a complete graph stays as it is. New edges join two different nodes of the same graph
    that no edge joined before; each takes the attributes and the weight of one removed edge,
    matched at random. An undirected edge is removed and added with its reverse. In directed graphs
    the absent pairs are ordered.

    Deviation: edges-stay-simple. GraphCL's released code draws the ends of new edges one by one
    with repetition: it adds self-loops, repeated edges and single directions of undirected ones.

    Args:
        ratio: Share of the edges to replace, in [0, 1). The paper tries 0.2 and 0.4.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(4))
        >>> model, batch = gt.GraphClassifier.for_data(store, hidden=8), store.batch(range(4))
        >>> clean = gt.CleanPass(batch, torch.eye(6)[batch.y], model(batch))
        >>> other = PerturbEdges(0.5)(clean, model=model, generator=None)
        >>> other.batch.num_edges == batch.num_edges, bool((other.edge_origin == -1).any())
        (True, True)
    """

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> EditedGraphs:
        """Make virtual samples; see :meth:`Augmentation.forward`."""
        view = View.of(clean.batch)
        pairs, absent = EdgePairs.of(view), AbsentPairs(view)
        count = torch.minimum(floor_share(pairs.counts, self.ratio), absent.counts)
        removed = choose_edges(pairs, count, generator)
        u, v = absent.sample(count, generator)
        return edit_graphs(
            clean.batch,
            clean.targets,
            keep_edges=without_edges(pairs, removed, view.edge.numel()),
            new_edges=NewEdges(u, v, pairs.forward.index_select(0, removed)),
        )


class DropEdges(RatioAugmentation):
    """Remove random edges of every graph (*DropEdge*).

    Of m edges ``floor(ratio · m)`` go, every such set equally likely; all nodes stay.

    Deviation: both-directions. An undirected edge goes with its reverse; DropEdge's released code
    drops the entries of the adjacency matrix one by one, which leaves edges in one direction only.

    Args:
        ratio: Share of the edges to drop, in [0, 1).

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(4))
        >>> model, batch = gt.GraphClassifier.for_data(store, hidden=8), store.batch(range(4))
        >>> clean = gt.CleanPass(batch, torch.eye(6)[batch.y], model(batch))
        >>> fewer = DropEdges(0.5)(clean, model=model, generator=None).batch
        >>> fewer.num_edges < batch.num_edges, fewer.num_nodes == batch.num_nodes
        (True, True)
    """

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> EditedGraphs:
        """Make virtual samples; see :meth:`Augmentation.forward`."""
        view = View.of(clean.batch)
        pairs = EdgePairs.of(view)
        removed = choose_edges(pairs, floor_share(pairs.counts, self.ratio), generator)
        keep = without_edges(pairs, removed, view.edge.numel())
        return edit_graphs(clean.batch, clean.targets, keep_edges=keep)


class MaskNodes(RatioAugmentation):
    """Mask all features of random nodes of every graph (*MaskN*).

    Of n nodes ``floor(ratio · n)`` are masked, every such set equally likely. A masked node says
    nothing: its continuous features become the mean over the nodes of the training graphs, which
    models standardise to about 0, and its other (one-hot) features become 0. The mean is found by
    :meth:`prepare`; before that all masked features are 0.

    Deviation: neutral-mask. GraphCL's released code masks with the mean of the graph's nodes or
    with normal noise, also where features are one-hot.

    Args:
        ratio: Share of the nodes to mask, in [0, 1). The paper tries 0.2 and 0.4.

    Example:
        >>> import graph_transplant as gt
        >>> from torch_geometric.data import Batch, Data
        >>> edge = torch.tensor([[0, 1], [1, 0]])
        >>> batch = Batch.from_data_list([Data(x=torch.ones(2, 3), edge_index=edge)])
        >>> model = gt.GraphClassifier(3, 2, hidden=8)
        >>> clean = gt.CleanPass(batch, torch.tensor([[1.0, 0.0]]), model(batch))
        >>> MaskNodes(0.5)(clean, model=model, generator=None).batch.x.sum()
        tensor(3.)
    """

    mask: Tensor | None

    def __init__(self, ratio: float = 0.2) -> None:
        super().__init__(ratio)
        # It follows from the training graphs, so it is no part of what a model learns.
        self.register_buffer("mask", None, persistent=False)

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Refuse data without node features; see :meth:`Augmentation.check`."""
        if data.num_node_features == 0:
            raise DataError(f"mask-nodes needs node features, but {data.name} has none")

    def prepare(self, train: GraphStore, generator: torch.Generator) -> None:
        """Find the mean of the continuous features; see :meth:`Augmentation.prepare`."""
        columns = train.num_node_features
        if not columns:
            raise DataError(f"mask-nodes needs node features, but {train.name} has none")
        mask = torch.zeros(columns, device=None if self.mask is None else self.mask.device)
        continuous = train.num_continuous
        if continuous:
            # Piece by piece: the graphs may be more than fit into memory.
            total = torch.zeros(continuous, dtype=torch.double)
            for batch in train.batches(torch.arange(len(train)), _GRAPHS_AT_ONCE):
                total += batch.x[:, :continuous].to(torch.double).sum(0)
            mask[:continuous] = (total / train.node_counts.sum()).to(mask)
        self.mask = mask

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> EditedGraphs:
        """Make virtual samples; see :meth:`Augmentation.forward`."""
        x: Tensor | None = clean.batch.get("x", None)
        if x is None:
            raise DataError("mask-nodes needs node features, but the batch has no `x`")
        if self.mask is not None and self.mask.shape != x.shape[1:]:
            raise DataError(
                f"`batch.x` must have {self.mask.numel()} columns, as the graphs that mask-nodes "
                f"was prepared with; got shape {list(x.shape)}"
            )
        layout = layout_of(clean.batch)
        keys = uniform((layout.num_nodes,), generator, layout.segment.device)
        count = floor_share(layout.counts, self.ratio)
        masked = choose_per_segment(count, keys, layout.segment, layout.ptr).nonzero().flatten()
        fill = x.new_zeros(x.shape[1:]) if self.mask is None else self.mask.to(x)
        filled = x.index_copy(0, masked, fill.expand(masked.numel(), *x.shape[1:]))
        return edit_graphs(clean.batch, clean.targets, features={"x": filled})


def first_passage(view: View, start: Tensor, weight: Tensor) -> Tensor:
    """Return when each node is first reached from the starts, if crossing an edge takes time.

    Args:
        view: The graphs; directed edges are crossed in both directions.
        start: Node numbers, int64 ``[starts]``.
        weight: Time to cross each edge of the view, float64 ``[edges]``.

    Returns:
        float64 ``[nodes]``; infinite for nodes that are never reached.

    Example:
        >>> from torch_geometric.data import Data
        >>> path = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=4)
        >>> first_passage(View.of(path), torch.tensor([0]), torch.full((4,), 2.0).double())
        tensor([0., 2., 4., inf], dtype=torch.float64)
    """
    row, column = view.row, view.column
    if not view.symmetric:
        row, column = torch.cat((row, column)), torch.cat((column, row))
        weight = weight.repeat(2)
    time = weight.new_full((view.layout.num_nodes,), torch.inf)
    time = time.index_fill_(0, start, 0.0)
    while True:
        arrival = time.index_select(0, column).add_(weight)
        sooner = time.scatter_reduce(0, row, arrival, "amin")
        if torch.equal(sooner, time):
            return time
        time = sooner


class RandomSubgraph(Augmentation):
    """Keep a random connected part of every graph (*SubG*).

    From a random node a set of nodes grows: in every step it crosses a random edge between itself
    and the rest of the graph, each such edge equally likely. Of n nodes ``floor(size · n)`` are
    kept, at least one, with all edges among them; where the start lies in a smaller component, that
    whole component. Directed edges are crossed in both directions.

    Deviation: walk-by-growth. The paper says "using the random walk". A walk needs up to order n²
    steps to see n nodes; here every step reaches a new one. GraphCL's released code, too, adds
    random neighbours, but forgets to add theirs, and so never leaves the start's neighbourhood.

    All graphs grow at once: every edge takes an independent exponential time to cross, and the
    nodes reached first are kept. Exponential times have no memory, so the next edge to be crossed
    is always a uniformly random one of those that lead out of the set.

    Args:
        size: Share of the nodes to keep, in (0, 1]. The paper tries 0.6 and 0.8.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(4))
        >>> model, batch = gt.GraphClassifier.for_data(store, hidden=8), store.batch(range(4))
        >>> clean = gt.CleanPass(batch, torch.eye(6)[batch.y], model(batch))
        >>> part = RandomSubgraph(0.5)(clean, model=model, generator=None)
        >>> bool((part.batch.ptr.diff() <= batch.ptr.diff() // 2).all())
        True
    """

    def __init__(self, size: float = 0.8) -> None:
        super().__init__()
        if not 0 < size <= 1:
            raise GraphTransplantError(f"`size` must be in (0, 1], got {size}")
        self.size = size

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> EditedGraphs:
        """Make virtual samples; see :meth:`Augmentation.forward`."""
        view = View.of(clean.batch)
        layout, device = view.layout, view.row.device
        chance = uniform((layout.num_graphs,), generator, device)
        start = layout.ptr[:-1] + (chance * layout.counts).to(torch.long)
        weight = uniform((view.row.numel(),), generator, device).neg_().log1p_().neg_()
        time = first_passage(view, start, weight)
        count = floor_share(layout.counts, self.size).clamp_(min=1)
        rank = rank_in_segment(time, layout.segment, layout.ptr)
        keep = (rank < count.index_select(0, layout.segment)) & time.isfinite()
        return edit_graphs(clean.batch, clean.targets, keep_nodes=keep)

    def extra_repr(self) -> str:
        """Say the parameters."""
        return f"size={self.size}"
