"""How the transplanted part is joined to the rest (section "Transplant").

Only nodes that lost edges by the cut may receive new ones. *Degree preservation* draws as many
pairs as keep the expected degrees; *edge prediction* asks a small network ψ about every pair; the
ablation leaves the parts disconnected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch_geometric.data import Data

from graph_transplant.augment.base import CleanPass
from graph_transplant.augment.sampling import sample_distinct, uniform
from graph_transplant.augment.subgraphs import View
from graph_transplant.errors import GraphTransplantError
from graph_transplant.graphs import adjacency_of, layout_of
from graph_transplant.segments import (
    count_per_segment,
    gather_rows,
    offsets,
    ranges,
)

# Pairs that ψ looks at together when it only predicts: few enough to stay in the cache.
_PIECE = 2048


@dataclass(frozen=True)
class Side:
    r"""One side of the cut: the graphs, and what is kept of them.

    Attributes:
        view: The graphs, one per mixed graph.
        keep: Kept nodes, bool ``[nodes]``: V̄_π of the source, V \ V̄ of the destination.
        kept_edge: Edges between kept nodes, bool ``[edges]``.
        lost: Edges that every node loses by the cut, int64 ``[nodes]``; 0 for nodes not kept.
    """

    view: View
    keep: Tensor
    kept_edge: Tensor
    lost: Tensor

    @classmethod
    def of(cls, view: View, keep: Tensor) -> Side:
        """Cut a view.

        Args:
            view: The graphs.
            keep: Nodes to keep, bool ``[nodes]``.
        """
        first, second = keep.index_select(0, view.row), keep.index_select(0, view.column)
        lost = count_per_segment(first & ~second, view.row_ptr)
        if not view.symmetric:
            lost = lost + torch.bincount(view.column[second & ~first], minlength=keep.numel())
        return cls(view, keep, first & second, lost)

    @property
    def open(self) -> Tensor:
        """Nodes that lost an edge: U_π or U, bool ``[nodes]``."""
        return self.lost > 0

    def total_lost(self) -> Tensor:
        """Return D_π or D: the edges lost by all nodes of each graph, int64 ``[graphs]``."""
        return count_per_segment(self.lost, self.view.layout.ptr)


@dataclass(frozen=True)
class Pairs:
    """Pairs of a source node and a destination node that may be joined.

    Attributes:
        source: Node of the source view, int64 ``[pairs]``.
        destination: Node of the destination view, int64 ``[pairs]``.
        weight: 1 where an edge was drawn and 0 where not, with ψ's straight-through gradient, float
            ``[pairs]``; ``None`` when every pair is an edge. Pairs of weight 0 are there only for
            their gradient.
    """

    source: Tensor
    destination: Tensor
    weight: Tensor | None = None

    def drawn(self) -> Pairs:
        """Return only the pairs that are edges, without gradient."""
        if self.weight is None:
            return self
        index = (self.weight.detach() > 0.5).nonzero().flatten()
        return Pairs(self.source.index_select(0, index), self.destination.index_select(0, index))


class Connection(nn.Module, ABC):
    """Chooses the edges between the transplanted and the remaining part."""

    needs_embeddings = False

    @abstractmethod
    def forward(
        self,
        source: Side,
        destination: Side,
        nodes: Tensor | None,
        generator: torch.Generator | None,
    ) -> Pairs:
        """Choose pairs.

        Args:
            source: The transplanted part.
            destination: The remaining part.
            nodes: Node embeddings of the *batch*, float ``[nodes, width]``.
            generator: Source of randomness.
        """

    def supervise(self, clean: CleanPass, generator: torch.Generator | None) -> Tensor | None:
        """Return a loss that teaches the connection from original graphs, or ``None``.

        Args:
            clean: The pass on the original graphs.
            generator: Source of randomness.
        """
        return None


class Disconnected(Connection):
    """No new edges (ablation "w/o Edge Prediction"): the readout alone mixes the parts."""

    def forward(
        self,
        source: Side,
        destination: Side,
        nodes: Tensor | None,
        generator: torch.Generator | None,
    ) -> Pairs:
        """Choose no pairs; see :meth:`Connection.forward`."""
        nothing = source.view.row.new_empty(0)
        return Pairs(nothing, nothing)


class DegreePreservation(Connection):
    r"""Join :math:`\lfloor (D + D_\pi) / 2 \rfloor` random pairs of :math:`U_\pi \times U` (*DP*).

    Deviation: distinct-pairs. The pairs are distinct, so at most :math:`|U_\pi| |U|` of them; the
    released code draws with replacement and adds repeated edges.
    """

    def forward(
        self,
        source: Side,
        destination: Side,
        nodes: Tensor | None,
        generator: torch.Generator | None,
    ) -> Pairs:
        """Choose pairs; see :meth:`Connection.forward`."""
        sources = source.open.nonzero().flatten()
        destinations = destination.open.nonzero().flatten()
        sources_per_graph = count_per_segment(source.open, source.view.layout.ptr)
        destinations_per_graph = count_per_segment(destination.open, destination.view.layout.ptr)
        size = sources_per_graph * destinations_per_graph
        wanted = (source.total_lost() + destination.total_lost()) // 2
        number, graph = sample_distinct(size, torch.minimum(wanted, size), generator)
        width = destinations_per_graph.index_select(0, graph)
        first = offsets(sources_per_graph)[:-1].index_select(0, graph)
        second = offsets(destinations_per_graph)[:-1].index_select(0, graph)
        return Pairs(
            sources.index_select(0, first + number // width),
            destinations.index_select(0, second + number % width),
        )


def all_pairs(source: Side, destination: Side) -> Pairs:
    r"""Return every pair of :math:`U_\pi \times U`, graph by graph.

    Args:
        source: The transplanted part.
        destination: The remaining part.
    """
    sources = source.open.nonzero().flatten()
    destinations = destination.open.nonzero().flatten()
    per_graph = count_per_segment(destination.open, destination.view.layout.ptr)
    graph = source.view.layout.segment.index_select(0, sources)
    partners = per_graph.index_select(0, graph)
    place, which = ranges(offsets(per_graph)[:-1].index_select(0, graph), partners)
    return Pairs(sources.index_select(0, which), destinations.index_select(0, place))


def sample_non_neighbours(batch: Data, nodes: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Draw for each node another node of its graph that it is not joined to, uniformly.

    Args:
        batch: A PyG batch.
        nodes: Node numbers, int64 ``[draws]``.
        keys: Random numbers in ``[0, 1)``, float64 ``[draws]``.

    Returns:
        The nodes for which there is such a partner, and the partners, both int64; a node joined to
        all others of its graph is left out.

    Example:
        >>> path = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> draws = torch.tensor([0, 1, 2])
        >>> sample_non_neighbours(path, draws, torch.rand(3, dtype=torch.double))
        (tensor([0, 2]), tensor([2, 0]))
    """
    adjacency, layout = adjacency_of(batch), layout_of(batch)
    row, column = adjacency.row, adjacency.column
    if not adjacency.symmetric:
        row, column = torch.cat((row, column)), torch.cat((column, row))
    code = row * layout.num_nodes + column
    simple = adjacency.symmetric and bool((code.diff() > 0).all() & (row != column).all())
    if not simple:  # repeated edges or self-loops: keep each neighbour once, and never oneself
        code = torch.unique(code[row != column])
        row, column = code // layout.num_nodes, code % layout.num_nodes
    row_ptr = offsets(torch.bincount(row, minlength=layout.num_nodes))
    graph = layout.segment.index_select(0, nodes)
    first = layout.ptr.index_select(0, graph)
    others = layout.counts.index_select(0, graph) - row_ptr.diff().index_select(0, nodes) - 1
    possible = others > 0
    nodes, first = nodes[possible], first[possible]
    rank = (keys[possible] * others[possible]).to(torch.long)
    begin = row_ptr.index_select(0, nodes)
    # Before neighbour number i of a row stand column - first - i nodes that are not neighbours.
    place = torch.arange(row.numel(), device=row.device) - row_ptr.index_select(0, row)
    start = layout.ptr.index_select(0, layout.segment.index_select(0, row))
    before = row * (layout.num_nodes + 1) + (column - start - place)
    itself = torch.searchsorted(code, nodes * layout.num_nodes + nodes) - begin
    rank = rank + (rank >= nodes - first - itself)
    skipped = torch.searchsorted(before, nodes * (layout.num_nodes + 1) + rank, right=True) - begin
    return nodes, first + rank + skipped


class EdgePredictor(Connection):
    r"""Join pairs by a learned predictor ψ (*EP*, Algorithm 2 lines 9-16, Algorithm 3 lines 4-5).

    ψ is a perceptron with hidden layers of 128 and 64 on the embeddings of two nodes. For every
    pair of :math:`U_\pi \times U` an edge is drawn with probability
    :math:`\hat e_{u,v} = (ψ(u, v) + ψ(v, u)) / 2`; its weight carries the straight-through
    gradient of the binary Gumbel-softmax estimator. ψ also learns from edges and non-edges of the
    original graphs. Embeddings are detached: ψ never trains the model.

    Deviation: exact-bernoulli. The noise is added to logit(ê), which draws an edge with probability
    exactly ê; the released code adds it to log(ê), which draws with probability ê / (1 + ê).

    Deviation: true-negatives. Pairs without an edge are never a node with itself, and are left out
    for complete graphs.

    Deviation: gradient-pairs. All pairs are drawn from. Where a batch has more than twice
    ``gradient_pairs``, the straight-through gradient is taken through so many random ones of them
    and scaled up, which keeps its expectation at a fraction of the cost; else it is exact.

    Args:
        embedding_size: Width of the node embeddings.
        hidden: Widths of the two hidden layers.
        examples: Edges of the original graphs to learn from per step, and as many non-edges.
        gradient_pairs: Pairs per step that carry the straight-through gradient when there are many.

    Example:
        >>> psi = EdgePredictor(embedding_size=4)
        >>> u, v = torch.randn(3, 4), torch.randn(3, 4)
        >>> bool(torch.allclose(psi.probability(u, v), psi.probability(v, u)))
        True
    """

    needs_embeddings = True

    def __init__(
        self,
        embedding_size: int = 128,
        hidden: tuple[int, int] = (128, 64),
        *,
        examples: int = 512,
        gradient_pairs: int = 2048,
    ) -> None:
        super().__init__()
        if embedding_size < 1:
            raise GraphTransplantError(f"`embedding_size` must be at least 1, got {embedding_size}")
        self.embedding_size = embedding_size
        self.examples = examples
        self.gradient_pairs = gradient_pairs
        wide, narrow = hidden
        # W [u; v] = W₁ u + W₂ v: every node is projected once, not once per pair.
        self.first = nn.Linear(embedding_size, wide)
        self.second = nn.Linear(embedding_size, wide, bias=False)
        self.inner = nn.Linear(wide, narrow)
        self.outer = nn.Linear(narrow, 1)
        bound = (2 * embedding_size) ** -0.5  # as one layer on the concatenated pair would start
        for parameter in (self.first.weight, self.first.bias, self.second.weight):
            nn.init.uniform_(parameter, -bound, bound)

    def _score(self, first: Tensor, second: Tensor) -> Tensor:
        """Logits of ψ from the two projections of each pair, float ``[pairs]``."""
        # In place: the sums and products before a rectifier are needed by no backward pass.
        hidden: Tensor = self.inner((first + second).relu_()).relu_()
        score: Tensor = self.outer(hidden)
        return score.squeeze(1)

    def probability(self, u: Tensor, v: Tensor) -> Tensor:
        """Return ê of pairs of embeddings.

        Args:
            u: float ``[pairs, width]``.
            v: float ``[pairs, width]``.

        Returns:
            float ``[pairs]`` in (0, 1), the same for (u, v) and (v, u).
        """
        return self._both_ways(self.first(u), self.second(u), self.first(v), self.second(v))

    def _both_ways(
        self, first_u: Tensor, second_u: Tensor, first_v: Tensor, second_v: Tensor
    ) -> Tensor:
        """Mean of ψ(u, v) and ψ(v, u) from the projections of both ends, float ``[pairs]``."""
        forward = self._score(first_u, second_v)
        backward = self._score(first_v, second_u)
        return (forward.sigmoid() + backward.sigmoid()) / 2

    def _check(self, nodes: Tensor | None) -> Tensor:
        if nodes is None:
            raise GraphTransplantError(
                "connect='predict' needs the node embeddings: pass `nodes`, [nodes, width]"
            )
        if nodes.shape[1] != self.embedding_size:
            raise GraphTransplantError(
                f"`embedding_size` of the edge predictor is {self.embedding_size}, but the model's "
                f"node embeddings are {nodes.shape[1]} wide: pass embedding_size={nodes.shape[1]}"
            )
        return nodes.detach()

    def forward(
        self,
        source: Side,
        destination: Side,
        nodes: Tensor | None,
        generator: torch.Generator | None,
    ) -> Pairs:
        """Choose pairs; see :meth:`Connection.forward`."""
        embeddings = self._check(nodes)
        pairs = all_pairs(source, destination)
        total = pairs.source.numel()
        noise = uniform((total,), generator, embeddings.device)
        # Every node that may be joined is projected once, whatever the number of its pairs.
        u, place_u = _numbered(pairs.source, source.open)
        v, place_v = _numbered(pairs.destination, destination.open)
        at_u = embeddings.index_select(0, source.view.node.index_select(0, u))
        at_v = embeddings.index_select(0, destination.view.node.index_select(0, v))
        first_u, second_u = self.first(at_u), self.second(at_u)
        first_v, second_v = self.first(at_v), self.second(at_v)

        def probability(a: Tensor, b: Tensor) -> Tensor:
            ends_u = gather_rows(first_u, a), gather_rows(second_u, a)
            ends_v = gather_rows(first_v, b), gather_rows(second_v, b)
            return self._both_ways(*ends_u, *ends_v)

        if total <= 2 * self.gradient_pairs:
            weight = straight_through(probability(place_u, place_v), noise)
            return Pairs(pairs.source, pairs.destination, weight)

        with torch.no_grad():  # a piece at a time, so that each stays in the cache
            pieces = zip(torch.split(place_u, _PIECE), torch.split(place_v, _PIECE), strict=True)
            weight = straight_through(torch.cat([probability(a, b) for a, b in pieces]), noise)
        keys = uniform((total,), generator, embeddings.device)
        chosen = torch.topk(keys, self.gradient_pairs, sorted=False).indices
        some = probability(place_u.index_select(0, chosen), place_v.index_select(0, chosen))
        soft = straight_through(some, noise.index_select(0, chosen))
        # The value is weight; the gradient is that of the chosen pairs, standing for all.
        scale = total / self.gradient_pairs
        weight = weight.index_add(0, chosen, (soft - soft.detach()) * scale)
        carries = (weight.detach() > 0.5).index_fill(0, chosen, True).nonzero().flatten()
        return Pairs(
            pairs.source.index_select(0, carries),
            pairs.destination.index_select(0, carries),
            weight.index_select(0, carries),
        )

    def supervise(self, clean: CleanPass, generator: torch.Generator | None) -> Tensor | None:
        """Return the loss on edges and non-edges of the original graphs.

        Edges are drawn at random, and for each a node that its first end is not joined to.

        Args:
            clean: The pass on the original graphs.
            generator: Source of randomness.
        """
        nodes = self._check(clean.prediction.nodes)
        first, second, joined = self._examples(clean.batch, generator)
        if not joined.numel():
            return None
        score = self._score(
            self.first(nodes.index_select(0, first)), self.second(nodes.index_select(0, second))
        )
        return binary_cross_entropy_with_logits(score, joined)

    def _examples(
        self, batch: Data, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draw pairs of the batch's nodes and whether they are joined, float ``[pairs]``."""
        row, column = batch.edge_index
        if not row.numel():
            return row, column, row.new_empty(0, dtype=torch.get_default_dtype())
        draws = min(self.examples, row.numel())
        keys = uniform((2, draws), generator, row.device)
        edge = (keys[0] * row.numel()).to(torch.long)
        first, second = row.index_select(0, edge), column.index_select(0, edge)
        lonely, stranger = sample_non_neighbours(batch, first, keys[1])
        joined = torch.zeros(draws + lonely.numel(), device=row.device)
        joined[:draws] = 1.0
        return torch.cat((first, lonely)), torch.cat((second, stranger)), joined

    @torch.no_grad()
    def accuracy(self, nodes: Tensor, batch: Data, generator: torch.Generator | None) -> float:
        """Return how often ψ is right about pairs of nodes, half of them joined.

        Args:
            nodes: Node embeddings, float ``[nodes, width]``.
            batch: Their graphs.
            generator: Draws the pairs.

        Returns:
            Between 0 and 1; NaN when the graphs have no edges.
        """
        first, second, joined = self._examples(batch, generator)
        if not joined.numel():
            return float("nan")
        embeddings = self._check(nodes)
        likely = self.probability(
            embeddings.index_select(0, first), embeddings.index_select(0, second)
        )
        return float(((likely > 0.5) == (joined > 0.5)).to(torch.double).mean())


def _numbered(nodes: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """List the marked nodes, and say for each of ``nodes`` where in that list it stands."""
    place = offsets(among.to(torch.long)).index_select(0, nodes)
    return among.nonzero().flatten(), place


def straight_through(probability: Tensor, noise: Tensor) -> Tensor:
    """Draw 0 or 1 with given probabilities, passing the gradient of a soft version through.

    Args:
        probability: float ``[draws]``.
        noise: Random numbers in ``[0, 1)``, float64 ``[draws]``.

    Returns:
        0 or 1, float ``[draws]``, with the gradient of the binary Gumbel-softmax (temperature 1).

    Example:
        >>> straight_through(torch.tensor([0.9, 0.1]), torch.tensor([0.5, 0.5]))
        tensor([1., 0.])
    """
    tiny = 1e-6
    logit = torch.logit(probability, eps=tiny)
    logistic = torch.logit(noise, eps=1e-12).to(probability.dtype)
    soft = (logit + logistic).sigmoid()
    hard = (soft > 0.5).to(soft.dtype)
    # (soft - soft.detach()) is exactly zero: the value is exactly 0 or 1.
    return hard + (soft - soft.detach())
