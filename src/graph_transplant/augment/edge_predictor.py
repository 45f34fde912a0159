"""The edge predictor ψ, which connects the transplanted part to the rest (*EP*)."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.parameter import is_lazy

from graph_transplant.data import GraphBatch
from graph_transplant.errors import GraphTransplantError, check_at_least
from graph_transplant.kernels import sampling
from graph_transplant.kernels import transplant as kernel
from graph_transplant.kernels.arrays import Ints
from graph_transplant.nn.segment import gather_rows

# Chunk size for pairs without gradient: small enough for the CPU cache.
_PIECE = 2048


class EdgePredictor(nn.Module):
    r"""An MLP ψ on the embeddings of two nodes (Algorithm 2, lines 9-16; Algorithm 3, 4-5).

    For every pair of :math:`U_\pi \times U` an edge is drawn with probability
    :math:`\hat e_{u,v} = (ψ(u, v) + ψ(v, u)) / 2`; its weight carries the straight-through
    gradient of the binary Gumbel-softmax estimator. ψ also learns from edges and non-edges of the
    original graphs. Embeddings are detached: ψ never trains the model.

    Deviation: exact-bernoulli. The noise is added to logit(ê), which draws an edge with probability
    exactly ê; the released code adds it to log(ê), which draws with probability ê / (1 + ê).

    Deviation: true-negatives. Non-edges never pair a node with itself, and nodes that are connected
    to all others have none.

    Deviation: gradient-pairs. If a batch has more than twice ``gradient_pairs`` pairs, the
    straight-through gradient is estimated from ``gradient_pairs`` random ones and scaled up: the
    same expectation at a fraction of the cost.

    Deviation: psi-examples. ψ learns from at most ``examples`` edges per step and as many
    non-edges; the released code takes as many as the batch has nodes, or edges if there are fewer.

    Args:
        embedding_size: Width of the node embeddings; -1 for that of the first batch, as in PyG.
        hidden: Widths of the two hidden layers.
        examples: Edges of the original graphs to learn from per step, and as many non-edges.
        gradient_pairs: Pairs to estimate the straight-through gradient from when there are many.

    Example:
        >>> psi = EdgePredictor(embedding_size=4)
        >>> u, v = torch.randn(3, 4), torch.randn(3, 4)
        >>> bool(torch.allclose(psi.probability(u, v), psi.probability(v, u)))
        True
    """

    def __init__(
        self,
        embedding_size: int = -1,
        hidden: tuple[int, int] = (128, 64),
        *,
        examples: int = 768,
        gradient_pairs: int = 1024,
    ) -> None:
        super().__init__()
        check_at_least(1, examples=examples, gradient_pairs=gradient_pairs)
        if embedding_size != -1:
            check_at_least(1, embedding_size=embedding_size)
        self.embedding_size = embedding_size
        self.examples = examples
        self.gradient_pairs = gradient_pairs
        wide, narrow = hidden
        # W [u; v] = W₁ u + W₂ v: every node is projected once, not once per pair.
        self.first: nn.Linear
        self.second: nn.Linear
        if embedding_size == -1:
            with warnings.catch_warnings():
                # Before version 2.9, torch calls lazy modules a new feature.
                warnings.filterwarnings("ignore", "Lazy modules")
                self.first, self.second = nn.LazyLinear(wide), nn.LazyLinear(wide, bias=False)
        else:
            self.first = nn.Linear(embedding_size, wide)
            self.second = nn.Linear(embedding_size, wide, bias=False)
        self.inner = nn.Linear(wide, narrow)
        self.outer = nn.Linear(narrow, 1)
        if embedding_size != -1:
            self._draw_weights()

    def settle(self, width: int) -> None:
        """Take a width, and draw the first weights, unless both are known."""
        if self.embedding_size != -1 or width == -1:
            return
        weight = self.first.weight
        fresh = is_lazy(weight)  # they may have been loaded
        self.embedding_size = width if fresh else weight.shape[1]
        example = torch.empty(0, self.embedding_size, dtype=weight.dtype, device=weight.device)
        self.first(example), self.second(example)
        if fresh:
            self._draw_weights()

    def _draw_weights(self) -> None:
        # The default for one layer on the concatenated pair.
        bound = (2 * self.embedding_size) ** -0.5
        for parameter in (self.first.weight, self.first.bias, self.second.weight):
            nn.init.uniform_(parameter, -bound, bound)

    def _score(self, first: Tensor, second: Tensor) -> Tensor:
        """Logits of ψ from the two projections of each pair, float ``[pairs]``."""
        # In place: no backward pass needs the values before the ReLU.
        hidden: Tensor = self.inner((first + second).relu_()).relu_()
        score: Tensor = self.outer(hidden)
        return score.squeeze(1)

    def _both_ways(
        self, first_u: Tensor, second_u: Tensor, first_v: Tensor, second_v: Tensor
    ) -> Tensor:
        """Mean of ψ(u, v) and ψ(v, u) from the projections of both ends, float ``[pairs]``."""
        forward = self._score(first_u, second_v)
        backward = self._score(first_v, second_u)
        return (forward.sigmoid() + backward.sigmoid()) / 2

    def probability(self, u: Tensor, v: Tensor) -> Tensor:
        """Return ê for pairs of embeddings ``[pairs, width]``; symmetric in u and v."""
        return self._both_ways(self.first(u), self.second(u), self.first(v), self.second(v))

    def _check(self, nodes: Tensor) -> Tensor:
        width = nodes.shape[1] if nodes.dim() == 2 else 1
        self.settle(width)
        if width != self.embedding_size:
            raise GraphTransplantError(
                f"`embedding_size` of the edge predictor is {self.embedding_size}, but the model's "
                f"node embeddings are {width} wide: pass embedding_size={width}"
            )
        if nodes.dtype == torch.float64 != self.first.weight.dtype:
            raise GraphTransplantError(
                "the model is float64 but the edge predictor is not: call .double() on the "
                "augmentation"
            )
        return nodes.detach().to(self.first.weight.dtype)

    def draw(
        self, nodes: Tensor, u: Ints, v: Ints, rng: np.random.Generator
    ) -> tuple[Tensor, Ints]:
        """Sample whether each pair of nodes (u, v) becomes an edge.

        Returns 0 or 1 with the straight-through gradient, and the pairs that carry it.
        """
        embeddings = self._check(nodes)
        noise = torch.from_numpy(rng.random(len(u))).to(embeddings.device)
        # Each node is projected once, not once per pair.
        joinable = np.zeros(len(embeddings), np.bool_)
        joinable[u] = joinable[v] = True
        ends, place = np.flatnonzero(joinable), np.cumsum(joinable) - 1
        at_ends = embeddings.index_select(0, torch.from_numpy(ends).to(embeddings.device))
        place_u, place_v = (torch.from_numpy(place[x]).to(embeddings.device) for x in (u, v))
        first, second = self.first(at_ends), self.second(at_ends)

        def probability(a: Tensor, b: Tensor) -> Tensor:
            return self._both_ways(
                gather_rows(first, a), gather_rows(second, a),
                gather_rows(first, b), gather_rows(second, b),
            )  # fmt: skip

        if len(u) <= 2 * self.gradient_pairs:
            return straight_through(probability(place_u, place_v), noise), np.arange(len(u))
        # Estimate the gradient from a sample of the pairs, scaled up.
        carrying = sampling.sample_distinct(len(u), self.gradient_pairs, rng)
        chosen = torch.from_numpy(carrying).to(embeddings.device)
        some = probability(place_u.index_select(0, chosen), place_v.index_select(0, chosen))
        soft = straight_through(some, noise.index_select(0, chosen))
        scale = len(u) / self.gradient_pairs
        soft = soft.detach() + (soft - soft.detach()) * scale
        others = torch.from_numpy(np.delete(np.arange(len(u)), carrying)).to(embeddings.device)
        with torch.no_grad():  # in chunks that fit into the cache
            likely = [
                probability(place_u.index_select(0, piece), place_v.index_select(0, piece))
                for piece in torch.split(others, _PIECE)
            ]
            drawn = straight_through(torch.cat(likely), noise.index_select(0, others))
        weight = drawn.new_zeros(len(u)).index_copy(0, others, drawn)
        return weight.index_copy(0, chosen, soft), carrying

    def supervise(
        self, nodes: Tensor, batch: GraphBatch, rng: np.random.Generator
    ) -> Tensor | None:
        """Return the loss on edges and non-edges of the original graphs; ``None`` without edges."""
        embeddings = self._check(nodes)
        if not batch.num_edges:
            return None
        u, v, has_negative, negative = self._examples(batch, self.examples, rng)
        first = self.first(embeddings.index_select(0, u))
        second = self.second(embeddings.index_select(0, torch.cat((v, negative))))
        score = self._score(torch.cat((first, first.index_select(0, has_negative))), second)
        joined = torch.zeros_like(score)
        joined[: len(u)] = 1.0
        return binary_cross_entropy_with_logits(score, joined)

    @staticmethod
    def _examples(
        batch: GraphBatch, most: int, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Random edges (u, v), the indices of those u with a non-neighbour, and one for each."""
        edges = rng.integers(batch.num_edges, size=min(most, batch.num_edges))
        u, v = batch.column[edges], np.searchsorted(batch.row_ptr, edges, side="right") - 1
        negative = kernel.sample_negatives(u, batch.ptr, batch.neighbours, rng)
        has_negative = np.flatnonzero(negative >= 0)
        send = batch.on_device
        return send(u), send(v), send(has_negative), send(negative[has_negative])

    @torch.no_grad()
    def accuracy(self, nodes: Tensor, batch: GraphBatch, rng: np.random.Generator) -> float:
        """Accuracy of ψ on edges and about as many non-edges; NaN without edges."""
        embeddings = self._check(nodes)
        if not batch.num_edges:
            return float("nan")
        u, v, has_negative, negative = self._examples(batch, 512, rng)
        firsts, seconds = torch.cat((u, u.index_select(0, has_negative))), torch.cat((v, negative))
        likely = self.probability(
            embeddings.index_select(0, firsts), embeddings.index_select(0, seconds)
        )
        right = torch.cat((likely[: len(u)] > 0.5, likely[len(u) :] <= 0.5))
        return float(right.to(torch.double).mean())


def straight_through(probability: Tensor, noise: Tensor) -> Tensor:
    """Sample 0 or 1 with a binary Gumbel-softmax gradient (τ = 1); ``noise``: uniform float64."""
    # In half precision a confident ψ rounds to 1, whose logit is infinite.
    probability = probability.to(torch.promote_types(probability.dtype, torch.float32))
    logistic = torch.logit(noise, eps=1e-12).to(probability.dtype)
    soft = (torch.logit(probability, eps=1e-6) + logistic).sigmoid()
    hard = (soft > 0.5).to(soft.dtype)
    # (soft - soft.detach()) is exactly zero: the value is exactly 0 or 1.
    return hard + (soft - soft.detach())
