"""GradArgmax, the paper's white-box attack on the edges of test graphs.

From the appendix, "Adversarial Attack", and Dai et al., *Adversarial Attack on Graph Structured
Data*, ICML 2018.

All graphs of a batch are attacked at once. Every pair of nodes that may be changed is an edge of
weight one (joined) or zero (not joined), so that one backward pass gives the slope of every
graph's loss along every pair, and one segmented maximum chooses a pair in every graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
import torch
from scipy.sparse import csr_array, eye_array
from torch import Tensor, nn

from graph_transplant.errors import DataError, GraphTransplantError, check_choice
from graph_transplant.graphs import GraphBatch, GraphStore
from graph_transplant.kernels import structure
from graph_transplant.nn import GraphClassifier, evaluating
from graph_transplant.saliency import Predictor, as_predictor
from graph_transplant.segments import offsets, rank_in_segment
from graph_transplant.targets import batch_targets, graph_losses
from graph_transplant.training import evaluate

PAIRS_AT_ONCE = 1 << 18
"""Most pairs in one backward pass; bounds the memory where graphs are dense or large."""

KINDS: Final = ("strong", "as-stated", "random")
"""What :func:`nested_attacks` can do: the attack, the paper's to the letter, and the control."""


def mean_edges(store: GraphStore) -> float:
    """Count the edges of a mean graph: distinct pairs of two different nodes that are joined.

    An undirected edge counts once, a repeated edge once, a self-loop not at all: what is left is
    what the attack can remove.

    Args:
        store: The graphs.

    Example:
        >>> import graph_transplant as gt
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> mean_edges(gt.GraphStore(
        ...     x=None, edge_index=path, y=torch.tensor([0]),
        ...     node_counts=torch.tensor([3]), edge_counts=torch.tensor([4]),
        ... ))
        2.0
    """
    first, second = store.edge_index
    graph = torch.repeat_interleave(torch.arange(len(store)), store.edge_counts)
    counted = first != second
    # A store's edges are sorted, so that a repeated edge stands next to its like.
    repeated = (first[1:] == first[:-1]) & (second[1:] == second[:-1]) & (graph[1:] == graph[:-1])
    counted[1:] &= ~repeated
    return int(counted.sum()) / (2 if store.undirected else 1) / len(store)


def attack_edges(store: GraphStore, budget: float) -> int:
    """Return how many pairs of a graph an attack changes: *m*.

    It is the share ``budget`` of the mean number of edges of the whole data set, rounded down, at
    least one; the same for every graph, small or large.

    Args:
        store: The whole data set, not only the graphs to attack.
        budget: Share of the edges, 0.2 in the paper.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs")
        >>> round(mean_edges(store), 1), attack_edges(store, 0.2)
        (27.9, 5)
    """
    return _share_of(mean_edges(store), budget)


def _share_of(mean: float, budget: float) -> int:
    if not (math.isfinite(budget) and budget > 0):
        raise GraphTransplantError(f"`budget` must be a positive share of the edges, got {budget}")
    # The inner rounding undoes binary fractions: 0.29 * 100 is 28.999999999999996.
    return max(1, math.floor(round(budget * mean, 9)))


@dataclass(frozen=True)
class Attacked:
    """What an attack made of some graphs, and what the model says about them.

    Attributes:
        store: The attacked graphs, in the order of the originals.
        logits: Of the attacked graphs, float ``[graphs, outputs]``.
        targets: float ``[graphs, outputs]``.
        added: Pairs that were joined, int64 ``[graphs]``.
        removed: Pairs that were cut, int64 ``[graphs]``.
        edges: Most pairs that were allowed to change in a graph, *m*.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, layers=2, seed=0)
        >>> attacked = attack(model, store, edges=2)
        >>> attacked.changed.tolist()
        [2, 2, 2, 2, 2, 2, 2, 2]
    """

    store: GraphStore
    logits: Tensor = field(repr=False)
    targets: Tensor = field(repr=False)
    added: Tensor = field(repr=False)
    removed: Tensor = field(repr=False)
    edges: int

    @property
    def changed(self) -> Tensor:
        """Pairs that changed, int64 ``[graphs]``."""
        return self.added + self.removed

    @property
    def accuracy(self) -> float:
        """Share of the attacked graphs that the model still classifies rightly."""
        if self.store.task != "multiclass":
            raise DataError(
                f"{self.store.name} is a {self.store.task} data set: it has no accuracy"
            )
        right = self.logits.argmax(1).eq(self.targets.argmax(1))
        return float(right.to(torch.double).mean())


def attack(
    model: nn.Module,
    store: GraphStore,
    *,
    budget: float = 0.2,
    hops: int = 4,
    batch_size: int = 64,
    edges: int | None = None,
    as_stated: bool = False,
) -> Attacked:
    """Attack graphs with GradArgmax, the model's gradient at hand.

    For every graph by itself, *m* times: take the gradient of the graph's loss with respect to its
    adjacency; among the pairs of nodes that are at most ``hops`` steps apart in the *original*
    graph, consider those that are not joined where the gradient is positive, and those that are
    joined where it is negative; add or remove the one with the largest magnitude. No pair changes
    twice. A graph without such a pair is left as it then is.

    An undirected edge is one variable: both directions change together, and its gradient is the sum
    of theirs. In a data set with directed edges every direction is a variable of its own, while
    steps are counted whatever the direction. Degrees in normalised models depend on the adjacency,
    and so does the gradient. Node features do not; not even the one-hot degrees of graphs without
    features: they follow the change, but their part of it has no gradient, so that the attack is
    weaker there.

    Deviation: attack-counts-changes. The paper chooses *m* pairs by magnitude alone and then adds
    or removes by sign, so that a pair whose edge already is as the gradient wants it uses up one of
    the *m* without a change. Here only pairs that do change are considered: all *m* are spent, and
    the attack is the stronger. ``as_stated`` is the paper's to the letter.

    Args:
        model: A :class:`~graph_transplant.GraphClassifier`, or any module that honours the
            parameter ``edge_weight`` of its ``forward``. Its weights and mode stay as they are. A
            model that reads edge attributes is refused: an edge that is added has none.
        store: The graphs to attack, with their true targets.
        budget: *m* as a share of the mean number of edges of ``store``; see :func:`attack_edges`.
        hops: How far apart a pair may be, *b*.
        batch_size: Graphs at a time; fewer where they have very many pairs.
        edges: *m* itself, instead of ``budget``. Give that of the whole data set when ``store`` is
            only its test graphs.
        as_stated: Choose by magnitude alone, among all pairs not chosen before. Where the gradient
            is positive the pair is joined, where it is negative cut; one that is so already uses
            up a step all the same.

    Returns:
        The attacked graphs. An edge that was added has zeros for edge features; repeated copies of
        an edge are removed together; self-loops stay.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs")
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, layers=2, seed=0)
        >>> test = store.subset(range(0, 96, 12))
        >>> attacked = attack(model, test, edges=attack_edges(store, 0.2))
        >>> attacked.edges, attacked.changed.tolist()
        (5, [5, 5, 5, 5, 5, 5, 5, 5])
    """
    kind = "as-stated" if as_stated else "strong"
    allowed = _allowed(store, budget, edges)
    (found,) = nested_attacks(model, store, [allowed], kind=kind, hops=hops, batch_size=batch_size)
    return found


def random_attack(
    model: nn.Module,
    store: GraphStore,
    *,
    seed: int,
    budget: float = 0.2,
    hops: int = 4,
    batch_size: int = 64,
    edges: int | None = None,
) -> Attacked:
    """Change as many pairs at random as :func:`attack` does by the gradient: its control.

    Of every graph's pairs at most ``hops`` steps apart *m* are drawn uniformly; those that are
    joined are cut, the others joined. What a model loses here it loses to any change of so many
    edges, not to an attack.

    Args:
        model: What judges the changed graphs; any model that reads no edge attributes.
        store: The graphs.
        seed: Determines the draw.
        budget: See :func:`attack`, likewise the others.
        hops: How far apart a pair may be.
        batch_size: Graphs at a time.
        edges: *m* itself.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, layers=2)
        >>> random_attack(model, store, edges=3, seed=0).changed.tolist()
        [3, 3, 3, 3, 3, 3, 3, 3]
    """
    allowed = _allowed(store, budget, edges)
    (found,) = nested_attacks(
        model, store, [allowed], kind="random", hops=hops, batch_size=batch_size, seed=seed
    )
    return found


def nested_attacks(
    model: nn.Module,
    store: GraphStore,
    edges: Sequence[int],
    *,
    kind: str = "strong",
    hops: int = 4,
    batch_size: int = 64,
    seed: int = 0,
) -> list[Attacked]:
    """Attack graphs with several *m* for little more than the price of the largest.

    The changes of a smaller *m* are the first of those of a larger one, so that one greedy pass, or
    one random order of the pairs, serves all. Each result is what an attack with that *m* gives.

    Args:
        model: See :func:`attack`, likewise the others.
        store: The graphs to attack.
        edges: The values of *m*, in any order.
        kind: ``"strong"`` is :func:`attack`, ``"as-stated"`` the same with ``as_stated``,
            ``"random"`` is :func:`random_attack`.
        hops: How far apart a pair may be.
        batch_size: Graphs at a time.
        seed: Determines the draw of ``"random"``; else of no consequence.

    Returns:
        One result for each *m*, in their order.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, layers=2, seed=0)
        >>> few, many = nested_attacks(model, store, [1, 3])
        >>> few.changed.tolist(), int(many.changed.sum())
        ([1, 1, 1, 1, 1, 1, 1, 1], 24)
    """
    check_choice("kind", kind, KINDS)
    for allowed in edges:
        _check_edges(allowed)
    choose: _Draw | _Greedy
    if kind == "random":
        _refuse_edge_attr(model, store)
        choose = _Draw(seed)
    else:
        predictor = _attackable(model, store)
        most, as_stated = max(edges, default=0), kind == "as-stated"
        choose = _Greedy(model, predictor, store.task, most=most, as_stated=as_stated)
    distinct = sorted(set(edges))
    with evaluating(model), torch.enable_grad():
        changes = _changed(store, choose, distinct, hops=hops, batch_size=batch_size)
    judged = {
        allowed: _judged(model, store, changed, allowed)
        for allowed, changed in zip(distinct, changes, strict=True)
    }
    return [judged[allowed] for allowed in edges]


def robust_accuracy(
    model: nn.Module,
    store: GraphStore,
    *,
    budget: float = 0.2,
    hops: int = 4,
    batch_size: int = 64,
    edges: int | None = None,
) -> float:
    """Return the accuracy on graphs attacked with :func:`attack`, as in the paper's Table 3.

    Args:
        model: See :func:`attack`, likewise the others.
        store: The graphs to attack.
        budget: Share of the mean number of edges.
        hops: How far apart a pair may be.
        batch_size: Graphs at a time.
        edges: *m* itself.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, layers=2, seed=0)
        >>> 0.0 <= robust_accuracy(model, store, edges=2) <= 1.0
        True
    """
    _ = store.labels  # refuses what has no classes before any work is done
    attacked = attack(model, store, budget=budget, hops=hops, batch_size=batch_size, edges=edges)
    return attacked.accuracy


def robustness(
    model: nn.Module,
    test: GraphStore,
    budgets: Iterable[float],
    *,
    data: GraphStore,
    hops: int = 4,
    seed: int = 0,
) -> list[dict[str, float]]:
    """Measure the robust accuracy at some budgets, as records keep it.

    Args:
        model: The trained model.
        test: The graphs to attack.
        budgets: Shares of the mean number of edges.
        data: The whole data set, whose mean counts: so *m* is the same in every fold.
        hops: How far apart a pair may be.
        seed: Determines the random changes.

    Returns:
        For every budget a dict of ``budget``, ``edges`` (*m*) and three accuracies: ``accuracy``
        under :func:`attack`, ``as_stated`` under the paper's to the letter, ``random`` after
        :func:`random_attack`.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs")
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, layers=2, seed=0)
        >>> rows = robustness(model, store.subset([0, 1]), (0.1, 0.2), data=store)
        >>> [row["edges"] for row in rows], list(rows[0])
        ([2, 5], ['budget', 'edges', 'accuracy', 'as_stated', 'random'])
    """
    _ = test.labels  # refuses what has no classes before any work is done
    shares = [float(budget) for budget in budgets]
    if not shares:
        return []
    mean = mean_edges(data)
    edges = [_share_of(mean, share) for share in shares]
    strong, as_stated, chance = (
        nested_attacks(model, test, edges, kind=kind, hops=hops, seed=seed) for kind in KINDS
    )
    return [
        {
            "budget": share,
            "edges": one.edges,
            "accuracy": one.accuracy,
            "as_stated": two.accuracy,
            "random": three.accuracy,
        }
        for share, one, two, three in zip(shares, strong, as_stated, chance, strict=True)
    ]


# -------------------------------------------------------------------- arguments


def _allowed(store: GraphStore, budget: float, edges: int | None) -> int:
    if edges is None:
        return attack_edges(store, budget)
    return _check_edges(edges)


def _check_edges(edges: int) -> int:
    if edges < 0:
        raise GraphTransplantError(f"`edges` must not be negative, got {edges}")
    return edges


def _attackable(model: nn.Module, store: GraphStore) -> Predictor:
    """Refuse models that have no gradient with respect to edges."""
    predictor = as_predictor(model)
    if not predictor.takes_edge_weight:
        raise GraphTransplantError(
            "`model` must take `edge_weight`, along which the attack follows the loss; "
            f"{type(model).__name__}.forward has no such parameter"
        )
    _refuse_edge_attr(model, store)
    return predictor


def _refuse_edge_attr(model: nn.Module, store: GraphStore) -> None:
    """Refuse models that read attributes of edges, which added edges do not have."""
    predictor = as_predictor(model)
    if predictor.takes_edge_attr and store.num_edge_features:
        what = (
            f"`conv` {predictor.conv}"
            if isinstance(predictor, GraphClassifier)
            else f"{type(model).__name__}.forward"
        )
        raise GraphTransplantError(
            "`model` must not read `edge_attr`: the attack adds edges, and edges that are not "
            f"there have none; {what} does"
        )


# -------------------------------------------------------------------- pairs that may change


@dataclass(frozen=True)
class _Pairs:
    """The pairs of nodes of a batch that may change, sorted; one entry per undirected edge.

    Attributes:
        batch: The original graphs.
        first: One end, or the sender, int64 ``[pairs]``.
        second: The other end, or the receiver; larger than ``first`` when undirected.
        copies: How often the pair is joined, int64 ``[pairs]``.
        edge_pair: Pair of every edge of the batch, int64 ``[edges]``; -1 for self-loops.
    """

    batch: GraphBatch
    first: Tensor
    second: Tensor
    copies: Tensor
    edge_pair: Tensor

    @classmethod
    def of(cls, batch: GraphBatch, hops: int) -> _Pairs:
        """Find the pairs at most ``hops`` steps apart, whatever the direction of the steps."""
        nodes, undirected = batch.num_nodes, batch.symmetric
        sender, receiver = batch.edge_index
        first, second = _within(sender.numpy(), receiver.numpy(), nodes, hops)
        kept = torch.from_numpy(first < second if undirected else first != second)
        ends = [torch.from_numpy(end).to(torch.long)[kept] for end in (first, second)]
        low, high = sender, receiver
        if undirected:
            low, high = torch.minimum(sender, receiver), torch.maximum(sender, receiver)
        edge_pair = torch.searchsorted(ends[0] * nodes + ends[1], low * nodes + high)
        edge_pair[sender == receiver] = -1
        # Both directions of an undirected edge are listed; one of them is counted.
        listed = edge_pair[sender < receiver if undirected else sender != receiver]
        copies = torch.bincount(listed, minlength=ends[0].numel())
        return cls(batch, ends[0], ends[1], copies, edge_pair)

    @property
    def num_graphs(self) -> int:
        return self.batch.num_graphs

    @cached_property
    def joined(self) -> Tensor:
        """Whether the pair has an edge at first, bool ``[pairs]``."""
        return self.copies > 0

    @cached_property
    def segment(self) -> Tensor:
        """Graph of every pair, sorted int64 ``[pairs]``."""
        return self.batch.batch.index_select(0, self.first)

    @cached_property
    def ptr(self) -> Tensor:
        """Offsets of the graphs in the pairs, int64 ``[graphs + 1]``."""
        return offsets(torch.bincount(self.segment, minlength=self.num_graphs))


def _within(
    sender: np.ndarray, receiver: np.ndarray, nodes: int, hops: int
) -> tuple[np.ndarray, np.ndarray]:
    """List all ordered pairs at most so many steps apart, each node with itself, sorted."""
    ones = np.ones(len(sender), dtype=bool)
    there = csr_array((ones, (sender, receiver)), shape=(nodes, nodes))
    step = csr_array(there + there.T + eye_array(nodes, dtype=bool, format="csr"))
    reach = step
    for _ in range(hops - 1):
        further = csr_array(reach @ step)
        if further.nnz == reach.nnz:
            break
        reach = further
    reach.sort_indices()
    pairs = reach.tocoo()
    return pairs.row, pairs.col


def _stretches(store: GraphStore, batch_size: int) -> Iterator[Tensor]:
    """Cut the graphs into batches that have a bounded number of pairs, or are one graph."""
    counts = store.node_counts
    total = offsets(counts * (counts - 1) // (2 if store.undirected else 1))
    start = 0
    while start < len(store):
        limit = int(torch.searchsorted(total, total[start] + PAIRS_AT_ONCE, right=True)) - 1
        end = min(max(limit, start + 1), start + batch_size, len(store))
        yield torch.arange(start, end)
        start = end


# -------------------------------------------------------------------- gradients


class _Slopes:
    """The slope of every graph's loss along every pair, for graphs with some pairs changed.

    Slopes are comparable within a graph only: each graph has a scale of its own.

    A pair's variable scales all its copies. Pairs beyond the limit are served in turns: a pair that
    is not joined has no influence on the slope of another, so that it can be left out.
    """

    def __init__(
        self,
        predictor: Predictor,
        pairs: _Pairs,
        task: str,
        *,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.predictor, self.pairs, self.task = predictor, pairs, task
        self.device, self.dtype = device, dtype
        self.scale = pairs.copies.clamp(min=1).to(dtype)
        self.parts = torch.split(torch.arange(pairs.first.numel()), PAIRS_AT_ONCE)
        self.whole = self._laid_out(self.parts[0]) if len(self.parts) == 1 else None

    def __call__(self, flipped: Tensor) -> Tensor:
        """Return float ``[pairs]`` for graphs in which the pairs ``flipped``, bool, are changed."""
        joined = self.pairs.joined ^ flipped
        if self.whole is not None:
            return self._slope(self.whole, joined)
        slope = self.scale.new_zeros(joined.numel())
        for part in self.parts:
            laid_out = joined.clone()
            laid_out[part] = True
            whole = self._slope(self._laid_out(laid_out.nonzero().flatten()), joined)
            slope[part] = whole[part]
        return slope

    def _laid_out(self, chosen: Tensor) -> tuple[GraphBatch, Tensor]:
        """Make a batch in which the chosen pairs are edges; give the pair of each edge too."""
        pairs, original = self.pairs, self.pairs.batch
        first, second = pairs.first.index_select(0, chosen), pairs.second.index_select(0, chosen)
        ends, owners = [torch.stack((first, second))], [chosen]
        if original.symmetric:
            ends, owners = [*ends, torch.stack((second, first))], [*owners, chosen]
        loops = original.edge_index[:, pairs.edge_pair < 0]
        ends.append(loops)
        # Loops never change: they belong to a place after the last pair.
        owners.append(torch.full((loops.shape[1],), pairs.first.numel()))
        sender, receiver = torch.cat(ends, dim=1).numpy()
        row_ptr, column, order = structure.compress(sender, receiver, original.num_nodes)
        batch = original.derive(
            original.ptr, row_ptr, column, nodes=original.nodes, edges={}, y=original.y
        )
        owner = torch.cat(owners)[torch.from_numpy(order)]
        return batch.to(self.device), owner

    def _slope(self, laid_out: tuple[GraphBatch, Tensor], joined: Tensor) -> Tensor:
        batch, owner = laid_out
        variable = joined.to(self.dtype).requires_grad_()
        weight = torch.cat((variable * self.scale, self.scale.new_ones(1))).index_select(0, owner)
        weighted = replace(batch, edges={"edge_weight": weight.to(self.device)})
        logits = self.predictor.run(weighted, layers=False).logits
        pull = _pull(logits, batch_targets(batch, logits.shape[1]), self.task)
        (slope,) = torch.autograd.grad(
            logits, variable, pull, allow_unused=True, materialize_grads=True
        )
        # Where the true slope is zero (the only edge of both its ends, normalised) rounding would
        # choose. What moves the logits by less than their own rounding is none.
        size = logits.detach().abs().amax(1).clamp(min=1.0).to(slope.device)
        noise = size.mul_(torch.finfo(self.dtype).eps).index_select(0, self.pairs.segment)
        return torch.where(slope.abs() > noise, slope, 0.0)


def _pull(logits: Tensor, targets: Tensor, task: str) -> Tensor:
    """Return the gradient of each graph's loss at its logits, scaled to a largest entry of one.

    A model that is very sure of itself has a loss of zero in floating point, and a gradient that
    vanishes on its way to the edges: it would look robust. Only the order of the pairs within a
    graph matters, which the scale does not change.
    """
    if task == "multiclass":
        # p - y, divided by 1 - p at the true class: a softmax of the other classes, which neither
        # underflows nor cancels.
        if logits.shape[1] == 1:
            return torch.zeros_like(logits)
        true = targets.bool()
        return logits.detach().masked_fill(true, -torch.inf).softmax(1).masked_fill(true, -1.0)
    exact = logits.detach().to(torch.double).requires_grad_()
    # Graphs of a batch do not touch: the sum's gradient is that of each graph's own loss.
    loss = graph_losses(exact, targets.to(torch.double), task).sum()
    (gradient,) = torch.autograd.grad(loss, exact)
    largest = gradient.abs().amax(1, keepdim=True)
    return (gradient / torch.where(largest > 0, largest, 1.0)).to(logits.dtype)


def _strongest(strength: Tensor, pairs: _Pairs) -> Tensor:
    """Return the pair of largest strength in every graph that has a positive one."""
    best = strength.new_zeros(pairs.num_graphs)
    best.scatter_reduce_(0, pairs.segment, strength, "amax")
    is_best = (strength > 0) & (strength == best.index_select(0, pairs.segment))
    place = is_best.nonzero().flatten()
    # Of equals the first: nodes that look alike give equal slopes.
    graph, repeats = torch.unique_consecutive(pairs.segment[place], return_counts=True)
    return place[offsets(repeats)[:-1]] if graph.numel() else place


# -------------------------------------------------------------------- which pairs change, and when

NEVER: Final = 0
"""The step of pairs that do not change; steps count from 1."""


class _Greedy:
    """Chooses pairs by the gradient, a step at a time."""

    def __init__(
        self, model: nn.Module, predictor: Predictor, task: str, *, most: int, as_stated: bool
    ) -> None:
        parameter = next(model.parameters(), None)
        self.device = torch.device("cpu") if parameter is None else parameter.device
        self.dtype = torch.get_default_dtype() if parameter is None else parameter.dtype
        self.predictor, self.task = predictor, task
        self.most, self.as_stated = most, as_stated

    def __call__(self, pairs: _Pairs) -> Tensor:
        """Return the step at which every pair changes, int64 ``[pairs]``."""
        slopes = _Slopes(self.predictor, pairs, self.task, device=self.device, dtype=self.dtype)
        turn = torch.full(pairs.joined.shape, NEVER)
        free = torch.ones_like(pairs.joined)
        for step in range(1, self.most + 1):
            slope = slopes(turn != NEVER)
            # A pair that may be chosen is still as it was at first.
            useful = torch.where(pairs.joined, slope < 0, slope > 0)
            open_to = free if self.as_stated else free & useful
            chosen = _strongest(slope.abs().masked_fill_(~open_to, 0.0), pairs)
            if not chosen.numel():
                break
            free[chosen] = False
            turn[chosen[useful[chosen]]] = step
        return turn


class _Draw:
    """Puts the pairs of every graph into a random order."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, pairs: _Pairs) -> Tensor:
        """Return the place of every pair in its graph's order, from 1, int64 ``[pairs]``."""
        keys = torch.rand(pairs.first.numel(), dtype=torch.double, generator=self.generator)
        return rank_in_segment(keys, pairs.segment, pairs.ptr) + 1


# -------------------------------------------------------------------- changed graphs


@dataclass(frozen=True)
class _Changes:
    """What changed in a store.

    Attributes:
        kept: Edges that stay, bool ``[edges]``.
        added: Graph and both ends, numbered within the graph, of new pairs, int64 ``[3, new]``.
        removed: Graph of every pair that was cut, int64 ``[cut]``.
    """

    kept: Tensor
    added: Tensor
    removed: Tensor


def _changed(
    store: GraphStore,
    choose: Callable[[_Pairs], Tensor],
    edges: Sequence[int],
    *,
    hops: int,
    batch_size: int,
) -> list[_Changes]:
    """Let ``choose`` say when every pair changes, batch after batch; stop after each of ``edges``.

    Args:
        store: The graphs.
        choose: Gives the step of every pair, or ``NEVER``.
        edges: Numbers of steps.
        hops: How far apart a pair may be.
        batch_size: Graphs at a time.
    """
    for name, value in (("hops", hops), ("batch_size", batch_size)):
        if value < 1:
            raise GraphTransplantError(f"`{name}` must be at least 1, got {value}")
    parts: list[list[_Changes]] = [[] for _ in edges]
    for graphs in _stretches(store, batch_size):
        pairs = _Pairs.of(store.batch(graphs), hops)
        turn = choose(pairs)
        for steps, part in zip(edges, parts, strict=True):
            flipped = (turn != NEVER) & (turn <= steps)
            part.append(_changes_of(pairs, flipped, int(graphs[0])))
    return [
        _Changes(
            torch.cat([one.kept for one in part]),
            torch.cat([one.added for one in part], dim=1),
            torch.cat([one.removed for one in part]),
        )
        for part in parts
    ]


def _changes_of(pairs: _Pairs, flipped: Tensor, first: int) -> _Changes:
    """Say what the pairs ``flipped``, bool ``[pairs]``, change in graphs from ``first`` on."""
    # One place more for the loops, whose pair is -1: they stay.
    cut = torch.cat((flipped & pairs.joined, torch.zeros(1, dtype=torch.bool)))
    new = (flipped & ~pairs.joined).nonzero().flatten()
    graph = pairs.segment[new]
    start = pairs.batch.offsets[graph]
    return _Changes(
        kept=~cut[pairs.edge_pair],
        added=torch.stack((graph + first, pairs.first[new] - start, pairs.second[new] - start)),
        removed=pairs.segment[cut[:-1]] + first,
    )


def _rebuilt(store: GraphStore, changes: _Changes) -> GraphStore:
    """Return the store with its edges changed."""
    graph = torch.repeat_interleave(torch.arange(len(store)), store.edge_counts)[changes.kept]
    edge_index = store.edge_index.to(torch.long)[:, changes.kept]
    new_graph, new = changes.added[0], changes.added[1:]
    if store.undirected:
        new_graph, new = new_graph.repeat(2), torch.cat((new, new.flip(0)), dim=1)
    graph, edge_index = torch.cat((graph, new_graph)), torch.cat((edge_index, new), dim=1)
    order = torch.argsort(graph, stable=True)
    edge_attr = store.edge_attr
    if edge_attr is not None:
        blank = edge_attr.new_zeros(new.shape[1], edge_attr.shape[1])
        edge_attr = torch.cat((edge_attr[changes.kept], blank))[order]
    return GraphStore(
        x=store.x,
        edge_index=edge_index[:, order],
        y=store.y,
        node_counts=store.node_counts,
        edge_counts=torch.bincount(graph, minlength=len(store)),
        edge_attr=edge_attr,
        name=store.name,
        task=store.task,
        num_outputs=store.num_outputs,
        label_names=store.label_names,
        num_continuous=store.num_continuous,
        node_fields=store.node_fields,
    )


def _judged(model: nn.Module, store: GraphStore, changes: _Changes, edges: int) -> Attacked:
    """Let the model predict the changed graphs: as graphs, without weights."""
    rebuilt = _rebuilt(store, changes)
    evaluation = evaluate(model, rebuilt)
    return Attacked(
        store=rebuilt,
        logits=evaluation.logits,
        targets=evaluation.targets,
        added=torch.bincount(changes.added[0], minlength=len(store)),
        removed=torch.bincount(changes.removed, minlength=len(store)),
        edges=edges,
    )
