"""GradArgmax, the paper's white-box attack on edges (appendix; Dai et al., ICML 2018).

All graphs of a batch are attacked at once. Every pair of nodes that may change is an edge of weight
one (connected) or zero, so that one backward pass yields the gradient of every graph's loss with
respect to every pair, and one segmented maximum selects a pair in every graph. If the model uses
edge attributes, edges are only removed: a new one would have no attributes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
import torch
from scipy.sparse import csr_array, eye_array
from torch import Tensor, nn

from graph_transplant.data import GraphBatch, GraphStore
from graph_transplant.data.targets import Loss, batch_targets
from graph_transplant.data.tensors import offsets, rank_in_segment
from graph_transplant.errors import GraphTransplantError, check_at_least, check_choice
from graph_transplant.kernels import csr
from graph_transplant.kernels.arrays import CSR
from graph_transplant.metrics.functional import accuracy
from graph_transplant.nn import evaluating
from graph_transplant.nn.adapter import Predictor, as_predictor
from graph_transplant.training.loop import evaluate

PAIRS_AT_ONCE = 1 << 18
"""Maximum number of pairs per backward pass; bounds the memory for dense or large graphs."""

KINDS: Final = ("strong", "as-stated", "random")
"""Kinds of attack: a stronger variant, the paper's, and random changes as a control."""


def mean_edges(store: GraphStore) -> float:
    """Return the mean number of edges per graph, without repeated edges and self-loops."""
    first, second = store.edge_index
    graph = torch.repeat_interleave(torch.arange(len(store)), store.edge_counts)
    counted = first != second
    # The edges of a store are sorted, so that repeated edges are adjacent.
    repeated = (first[1:] == first[:-1]) & (second[1:] == second[:-1]) & (graph[1:] == graph[:-1])
    counted[1:] &= ~repeated
    return int(counted.sum()) / (2 if store.undirected else 1) / len(store)


def attack_edges(store: GraphStore, budget: float) -> int:
    """Return *m*, the pairs to change in each graph: a share of the mean number of edges.

    Rounded down, at least one; the paper's ``budget`` is 0.2. ``store`` is the whole data set.
    """
    if not (math.isfinite(budget) and budget > 0):
        raise GraphTransplantError(f"`budget` must be a positive share of the edges, got {budget}")
    # The inner rounding corrects floating-point errors: 0.29 * 100 is 28.999999999999996.
    return max(1, math.floor(round(budget * mean_edges(store), 9)))


def removals_only(model: nn.Module, store: GraphStore) -> bool:
    """Whether an attack can only remove edges, because the model uses edge attributes."""
    return as_predictor(model).takes_edge_attr and store.num_edge_features > 0


@dataclass(frozen=True)
class Attacked:
    """Attacked graphs, and the model's predictions for them."""

    store: GraphStore  # the attacked graphs, in the order of the originals
    logits: Tensor = field(repr=False)  # of the attacked graphs, [graphs, outputs]
    targets: Tensor = field(repr=False)
    added: Tensor = field(repr=False)  # number of edges added, [graphs]
    removed: Tensor = field(repr=False)  # number of edges removed, [graphs]
    edges: int  # m, the maximum number of changes per graph
    removals_only: bool = False

    @property
    def changed(self) -> Tensor:
        """Number of changed pairs, int64 ``[graphs]``."""
        return self.added + self.removed

    @property
    def accuracy(self) -> float:
        """Share of the attacked graphs, or of their labels, that are predicted correctly."""
        return accuracy(self.logits, self.targets, self.store.task)


def attack(
    model: nn.Module,
    store: GraphStore,
    *,
    kind: str = "strong",
    budget: float = 0.2,
    edges: int | None = None,
    hops: int = 4,
    batch_size: int = 64,
    seed: int = 0,
) -> Attacked:
    """Attack graphs with GradArgmax, using the model's gradient.

    For each graph separately, *m* times: take the gradient of the graph's loss with respect to its
    adjacency; among the pairs of nodes that are at most ``hops`` steps apart in the *original*
    graph, consider unconnected pairs with a positive gradient and connected pairs with a negative
    one; add or remove the edge with the largest magnitude. No pair changes twice. If no such pair
    is left, the graph stays as it is.

    An undirected edge is one variable; for directed edges, each direction is one. Repeated edges
    are removed together, self-loops stay. One-hot degrees of graphs without features follow the
    change but have no gradient, so the attack is weaker there. For a model that uses edge
    attributes, edges are only removed, since new ones would have no attributes.

    Deviation: attack-counts-changes. The paper chooses *m* pairs by magnitude alone and then adds
    or removes by sign, so that a pair that already has the desired state uses up one of the *m*
    without a change. Here only pairs that do change are considered, which makes the attack
    stronger. ``"as-stated"`` follows the paper exactly.

    Args:
        model: A :class:`~graph_transplant.GraphClassifier`, or any module whose ``forward`` uses
            ``edge_weight``. Its weights and mode are not changed.
        store: The graphs to attack, with their true targets.
        kind: ``"strong"``, ``"as-stated"``, or ``"random"``: as many pairs, drawn uniformly.
        budget: *m* as a share of the mean number of edges of ``store``; see :func:`attack_edges`.
        edges: *m* itself. Give that of the whole data set when ``store`` is only its test graphs.
        hops: How far apart a pair may be, *b*.
        batch_size: Graphs per batch; fewer if they have very many pairs.
        seed: Seed for ``"random"``; the other kinds are deterministic.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs")
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, layers=2, seed=0)
        >>> test = store.subset(range(0, 96, 12))
        >>> attacked = attack(model, test, edges=attack_edges(store, 0.2))
        >>> attacked.edges, attacked.changed.tolist()
        (5, [5, 5, 5, 5, 5, 5, 5, 5])
    """
    allowed = attack_edges(store, budget) if edges is None else edges
    (found,) = nested_attacks(
        model, store, [allowed], kind=kind, hops=hops, batch_size=batch_size, seed=seed
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
    """Attack graphs with several *m*, for little more than the cost of the largest.

    The changes of a smaller *m* are the first of those of a larger one, so that one pass serves
    all. Each result is that of :func:`attack` with that *m*.
    """
    check_choice("kind", kind, KINDS)
    check_at_least(0, edges=min(edges, default=0))
    check_at_least(1, hops=hops, batch_size=batch_size)
    predictor = as_predictor(model)
    if kind != "random" and not predictor.reads_edge_weight(store.batch([0])):
        raise GraphTransplantError(
            "`model` must accept `edge_weight`, whose gradient the attack uses; "
            f"{type(model).__name__}.forward has no such parameter"
        )
    cuts = removals_only(model, store)
    generator = torch.Generator().manual_seed(seed)
    parameter = next(model.parameters(), torch.empty(0))
    changes: dict[int, list[_Changes]] = {allowed: [] for allowed in edges}
    with evaluating(model), torch.enable_grad():
        for graphs in _stretches(store, batch_size):
            # If any graph of the store is directed, directions are separate in all batches.
            batch = replace(store.batch(graphs), symmetric=store.undirected)
            pairs = _Pairs.of(batch, hops, cuts=cuts)
            if kind == "random":
                turn = _random_turns(pairs, generator)
            else:
                slopes = _Slopes(predictor, pairs, store.task, like=parameter)
                turn = _greedy_turns(slopes, max(edges, default=0), as_stated=kind == "as-stated")
            for allowed, parts in changes.items():
                flipped = (turn != NEVER) & (turn <= allowed)
                parts.append(_changes_of(pairs, flipped, int(graphs[0])))
    found = {}
    for allowed, parts in changes.items():
        kept, added, removed = (torch.cat(each, dim=-1) for each in zip(*parts, strict=True))
        rebuilt = _rebuilt(store, kept, added)
        # Evaluate the changed graphs without edge weights.
        evaluation = evaluate(model, rebuilt)
        found[allowed] = Attacked(
            store=rebuilt,
            logits=evaluation.logits,
            targets=evaluation.targets,
            added=torch.bincount(added[0], minlength=len(store)),
            removed=torch.bincount(removed, minlength=len(store)),
            edges=allowed,
            removals_only=cuts,
        )
    return [found[allowed] for allowed in edges]


def robustness(
    model: nn.Module,
    test: GraphStore,
    budgets: Iterable[float],
    *,
    data: GraphStore,
    hops: int = 4,
    seed: int = 0,
) -> list[dict[str, float]]:
    """Return the accuracy under the three kinds of attack at some budgets, as JSON values.

    Budgets are shares of the mean number of edges of ``data``, the whole data set, so that *m* is
    the same in every fold.
    """
    _ = test.labels  # raises early if there are no classes
    shares = [float(budget) for budget in budgets]
    edges = [attack_edges(data, share) for share in shares]
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
            **({"removals_only": True} if one.removals_only else {}),
        }
        for share, one, two, three in zip(shares, strong, as_stated, chance, strict=True)
    ]


@dataclass(frozen=True)
class _Pairs:
    """The pairs of nodes of a batch that may change, sorted; one entry per undirected pair."""

    batch: GraphBatch  # the original graphs
    first: Tensor  # one end, or the sender
    second: Tensor  # the other end, or the receiver; larger than `first` when undirected
    joined: Tensor  # whether the pair is connected in the original graph
    edge_pair: Tensor  # pair of every edge; the number of pairs for self-loops, which stay

    @classmethod
    def of(cls, batch: GraphBatch, hops: int, *, cuts: bool) -> _Pairs:
        """Find pairs within ``hops`` steps in any direction; with ``cuts``, connected ones only."""
        nodes = batch.num_nodes
        sender, receiver = batch.edge_index
        low, high = sender, receiver
        if batch.symmetric:
            low, high = torch.minimum(sender, receiver), torch.maximum(sender, receiver)
        edge_code = low * nodes + high
        looped = sender == receiver
        if cuts:
            code = torch.unique(edge_code[~looped])
        else:
            first, second = _within(sender.numpy(), receiver.numpy(), nodes, hops)
            kept = first < second if batch.symmetric else first != second
            code = torch.from_numpy(first[kept].astype(np.int64) * nodes + second[kept])
        edge_pair = torch.searchsorted(code, edge_code).masked_fill_(looped, code.numel())
        joined = torch.zeros(code.numel(), dtype=torch.bool)
        joined[edge_pair[~looped]] = True
        return cls(batch, code // max(nodes, 1), code % max(nodes, 1), joined, edge_pair)

    @cached_property
    def segment(self) -> Tensor:
        """Graph of every pair, sorted int64 ``[pairs]``."""
        return self.batch.batch.index_select(0, self.first)


def _within(
    sender: np.ndarray, receiver: np.ndarray, nodes: int, hops: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return all ordered pairs at most ``hops`` steps apart, with self-pairs, sorted."""
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
    """Yield batches with a bounded number of pairs, or with a single graph."""
    counts = store.node_counts
    total = offsets(counts * (counts - 1) // (2 if store.undirected else 1))
    start = 0
    while start < len(store):
        limit = int(torch.searchsorted(total, total[start] + PAIRS_AT_ONCE, right=True)) - 1
        end = min(max(limit, start + 1), start + batch_size, len(store))
        yield torch.arange(start, end)
        start = end


class _Slopes:
    """Gradient of every graph's loss with respect to every pair, with some pairs changed.

    Only comparable within a graph. If there are too many pairs, they are processed in chunks: an
    unconnected pair does not affect the gradient of others, so that it can be left out.
    """

    def __init__(self, predictor: Predictor, pairs: _Pairs, task: str, *, like: Tensor) -> None:
        self.predictor, self.pairs, self.task = predictor, pairs, task
        self.device, self.dtype = like.device, like.dtype
        self.parts = torch.split((~pairs.joined).nonzero().flatten(), PAIRS_AT_ONCE)
        self.whole = self._laid_out(self.parts[0]) if len(self.parts) == 1 else None

    def __call__(self, flipped: Tensor) -> Tensor:
        """Return the gradient, float ``[pairs]``, with the pairs ``flipped``, bool, changed."""
        joined = self.pairs.joined ^ flipped
        if self.whole is not None:
            return self._slope(self.whole, joined)
        slope = torch.zeros(joined.shape, dtype=self.dtype)
        for part in self.parts:
            new = flipped & ~self.pairs.joined
            new[part] = True
            here = self._slope(self._laid_out(new.nonzero().flatten()), joined)
            seen = new | self.pairs.joined
            slope[seen] = here[seen]
        return slope

    def _laid_out(self, new: Tensor) -> tuple[GraphBatch, Tensor]:
        """Return a batch with the pairs ``new`` as further edges, and the pair of each edge."""
        pairs, batch = self.pairs, self.pairs.batch
        if not new.numel():
            return batch.to(self.device), pairs.edge_pair
        ends = torch.stack((pairs.first[new], pairs.second[new]))
        owner = torch.cat((pairs.edge_pair, new))
        edge_index = torch.cat((batch.edge_index, ends), dim=1)
        if batch.symmetric:
            owner, edge_index = torch.cat((owner, new)), torch.cat((edge_index, ends.flip(0)), 1)
        sender, receiver = edge_index.numpy()
        row_ptr, column, order = csr.compress(sender, receiver, batch.num_nodes)
        wider = batch.derive(
            CSR(batch.ptr, row_ptr, column), nodes=batch.nodes, edges={}, y=batch.y
        )
        return wider.to(self.device), owner[torch.from_numpy(order)]

    def _slope(self, laid_out: tuple[GraphBatch, Tensor], joined: Tensor) -> Tensor:
        batch, owner = laid_out
        variable = joined.to(self.dtype).requires_grad_()
        weight = torch.cat((variable, variable.new_ones(1))).index_select(0, owner)
        weighted = replace(batch, edges={**batch.edges, "edge_weight": weight.to(self.device)})
        logits = self.predictor.run(weighted, layers=False).logits
        pull = _pull(logits, batch_targets(batch, logits.shape[1]), self.task)
        (slope,) = torch.autograd.grad(
            logits, variable, pull, allow_unused=True, materialize_grads=True
        )
        # Gradients below the rounding error of the logits count as zero: where the true one is zero
        # (normalisation, both ends without other edges), rounding must not decide.
        size = logits.detach().abs().amax(1).clamp(min=1.0).to(slope.device)
        noise = size.mul_(torch.finfo(self.dtype).eps).index_select(0, self.pairs.segment)
        return torch.where(slope.abs() > noise, slope, 0.0)


def _pull(logits: Tensor, targets: Tensor, task: str) -> Tensor:
    """Return the gradient of each graph's loss at its logits, scaled to a largest entry of one.

    The gradient of a very confident model underflows, which would make it look robust. The scale
    does not change the order of the pairs within a graph.
    """
    if task == "multiclass":
        # (p - y) / (1 - p of the true class) is a softmax over the other classes, which neither
        # underflows nor cancels.
        if logits.shape[1] == 1:
            return torch.zeros_like(logits)
        true = targets.bool()
        return logits.detach().masked_fill(true, -torch.inf).softmax(1).masked_fill(true, -1.0)
    exact = logits.detach().to(torch.double).requires_grad_()
    # Graphs are independent: the sum's gradient is that of each graph's own loss.
    loss = Loss(task)(exact, targets.to(torch.double)).sum()
    (gradient,) = torch.autograd.grad(loss, exact)
    largest = gradient.abs().amax(1, keepdim=True)
    return (gradient / torch.where(largest > 0, largest, 1.0)).to(logits.dtype)


NEVER: Final = 0  # the step of pairs that do not change; steps count from 1


def _greedy_turns(slopes: _Slopes, steps: int, *, as_stated: bool) -> Tensor:
    """Choose pairs by the gradient; return the step at which each changes, int64 ``[pairs]``."""
    pairs = slopes.pairs
    turn = torch.full(pairs.joined.shape, NEVER)
    free = torch.ones_like(pairs.joined)
    for step in range(1, steps + 1):
        slope = slopes(turn != NEVER)
        # Free pairs are still in their original state.
        useful = torch.where(pairs.joined, slope < 0, slope > 0)
        open_to = free if as_stated else free & useful
        chosen = _strongest(slope.abs().masked_fill_(~open_to, 0.0), pairs)
        if not chosen.numel():
            break
        free[chosen] = False
        turn[chosen[useful[chosen]]] = step
    return turn


def _strongest(strength: Tensor, pairs: _Pairs) -> Tensor:
    """Return the pair of largest strength in every graph that has a positive one."""
    best = strength.new_zeros(pairs.batch.num_graphs)
    best.scatter_reduce_(0, pairs.segment, strength, "amax")
    is_best = (strength > 0) & (strength == best.index_select(0, pairs.segment))
    place = is_best.nonzero().flatten()
    # Ties, as between equivalent nodes, go to the first.
    graph, repeats = torch.unique_consecutive(pairs.segment[place], return_counts=True)
    return place[offsets(repeats)[:-1]] if graph.numel() else place


def _random_turns(pairs: _Pairs, generator: torch.Generator) -> Tensor:
    """Return a random order of the pairs of every graph, from 1, int64 ``[pairs]``."""
    keys = torch.rand(pairs.first.numel(), dtype=torch.double, generator=generator)
    counts = torch.bincount(pairs.segment, minlength=pairs.batch.num_graphs)
    return rank_in_segment(keys, pairs.segment, offsets(counts)) + 1


_Changes = tuple[Tensor, Tensor, Tensor]
"""Kept edges, bool ``[edges]``; graph and both ends, numbered within the graph, of added pairs,
int64 ``[3, new]``; graph of every removed pair, int64 ``[cut]``."""


def _changes_of(pairs: _Pairs, flipped: Tensor, first: int) -> _Changes:
    """Return the changes from the pairs ``flipped``; ``first`` is the batch's first graph."""
    # The last entry stands for self-loops, which stay.
    cut = torch.cat((flipped & pairs.joined, torch.zeros(1, dtype=torch.bool)))
    new = (flipped & ~pairs.joined).nonzero().flatten()
    graph = pairs.segment[new]
    start = pairs.batch.offsets[graph]
    added = torch.stack((graph + first, pairs.first[new] - start, pairs.second[new] - start))
    return ~cut[pairs.edge_pair], added, pairs.segment[cut[:-1]] + first


def _rebuilt(store: GraphStore, kept: Tensor, added: Tensor) -> GraphStore:
    """Return the store with changed edges; new edges have zero attributes."""
    graph = torch.repeat_interleave(torch.arange(len(store)), store.edge_counts)[kept]
    edge_index = store.edge_index.to(torch.long)[:, kept]
    new_graph, new = added[0], added[1:]
    if store.undirected:
        new_graph, new = new_graph.repeat(2), torch.cat((new, new.flip(0)), dim=1)
    graph, edge_index = torch.cat((graph, new_graph)), torch.cat((edge_index, new), dim=1)
    order = torch.argsort(graph, stable=True)
    edge_attr = store.edge_attr
    if edge_attr is not None:
        blank = edge_attr.new_zeros(new.shape[1], edge_attr.shape[1])
        edge_attr = torch.cat((edge_attr[kept], blank))[order]
    same = ("x", "y", "node_counts", "name", "task", "num_outputs", "label_names", "node_fields")
    return GraphStore(
        edge_index=edge_index[:, order],
        edge_counts=torch.bincount(graph, minlength=len(store)),
        edge_attr=edge_attr,
        num_continuous=store.num_continuous,
        **{name: getattr(store, name) for name in same},
    )
