"""M-Evolve: open-triad edge swapping, and the filter of virtual graphs by label reliability.

Zhou et al., "M-Evolve: Structural-Mapping-Based Data Augmentation for Graph Classification" (IEEE
TNSE 2020, arXiv 2007.05700).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from graph_transplant.augment.assemble import EdgePairs, EditedGraphs, NewEdges, edit_graphs
from graph_transplant.augment.base import (
    Augmentation,
    CleanPass,
    Virtual,
    VirtualGraphs,
    merged_measurements,
)
from graph_transplant.augment.perturb import RatioAugmentation, without_edges
from graph_transplant.augment.sampling import uniform
from graph_transplant.augment.subgraphs import View, ceil_share
from graph_transplant.errors import DataError
from graph_transplant.graphs import GraphStore
from graph_transplant.nn import GraphClassifier, evaluating
from graph_transplant.saliency import Predictor, as_predictor, module_of
from graph_transplant.segments import count_per_segment, offsets, segment_ids

# Paths drawn for every swap that is still missing; how often graphs are drawn from at most; and the
# share of the wanted swaps that is enough.
_DRAWS = 6
_ROUNDS = 8
_ENOUGH = 0.98


class _Neighbours:
    """Who is joined to whom, whatever the direction: no self-loops, no repeated edges.

    Args:
        view: The graphs.

    Attributes:
        row_ptr: Offsets of the neighbours of every node, int64 ``[nodes + 1]``.
        node: The node of every entry, sorted int64 ``[entries]``.
        other: Its neighbour, ascending for each node, int64 ``[entries]``.
        degree: Neighbours of every node, int64 ``[nodes]``.
    """

    def __init__(self, view: View) -> None:
        self._nodes = view.layout.num_nodes
        row, column = view.row, view.column
        if not view.symmetric:
            row, column = torch.cat((row, column)), torch.cat((column, row))
        code = row * self._nodes + column
        simple = view.symmetric and bool((code.diff() > 0).all() & (row != column).all())
        if not simple:
            code = torch.unique(code[row != column])
            row, column = code // self._nodes, code % self._nodes
        self._code, self.node, self.other = code, row, column
        self.degree = torch.bincount(row, minlength=self._nodes)
        self.row_ptr = offsets(self.degree)

    def joined(self, first: Tensor, second: Tensor) -> Tensor:
        """Mark the pairs of nodes that are joined, bool ``[pairs]``."""
        wanted = first * self._nodes + second
        place = torch.searchsorted(self._code, wanted).clamp_(max=self._code.numel() - 1)
        return self._code.index_select(0, place) == wanted


@dataclass(frozen=True)
class _Swaps:
    """Open triads: the edge from ``stays`` to ``centre`` becomes one from ``stays`` to ``comes``.

    Attributes:
        graph: int64 ``[swaps]``.
        stays: End of both edges, int64 ``[swaps]``.
        centre: End of the removed edge only, int64 ``[swaps]``.
        comes: End of the new edge only, int64 ``[swaps]``.
    """

    graph: Tensor
    stays: Tensor
    centre: Tensor
    comes: Tensor

    def take(self, mask: Tensor) -> _Swaps:
        """Take the marked ones."""
        index = mask.nonzero().flatten()
        parts = (self.graph, self.stays, self.centre, self.comes)
        return _Swaps(*(part.index_select(0, index) for part in parts))

    def join(self, other: _Swaps) -> _Swaps:
        """Put others behind these."""
        return _Swaps(
            torch.cat((self.graph, other.graph)),
            torch.cat((self.stays, other.stays)),
            torch.cat((self.centre, other.centre)),
            torch.cat((self.comes, other.comes)),
        )


def _draw_swaps(
    view: View, near: _Neighbours, count: Tensor, generator: torch.Generator | None
) -> _Swaps:
    """Draw paths of two edges, independently, and return the open ones.

    A path is drawn with probability proportional to 1 / degree of its centre, in either direction.
    The chance of two ends is then proportional to the sum of 1 / degree over their common
    neighbours: their resource-allocation index.
    """
    bounds = near.row_ptr.index_select(0, view.layout.ptr)
    entries = bounds.diff()
    graph = segment_ids(torch.where(entries > 0, count, 0))
    chance = uniform((2, graph.numel()), generator, graph.device)
    # First an entry, all equally likely, then one of the neighbours of its node.
    place = (chance[0] * entries.index_select(0, graph)).to(torch.long)
    place = place + bounds.index_select(0, graph)
    centre, stays = near.node.index_select(0, place), near.other.index_select(0, place)
    place = (chance[1] * near.degree.index_select(0, centre)).to(torch.long)
    comes = near.other.index_select(0, near.row_ptr.index_select(0, centre) + place)
    paths = _Swaps(graph, stays, centre, comes).take(stays != comes)
    return paths.take(near.joined(paths.stays, paths.comes).logical_not_())


def _pair_code(first: Tensor, second: Tensor, nodes: int) -> Tensor:
    """Number two nodes, the same in either order, int64."""
    return torch.minimum(first, second) * nodes + torch.maximum(first, second)


def _first_of_each(code: Tensor) -> Tensor:
    """Mark the first occurrence of every number, bool ``[numbers]``."""
    ranked, order = torch.sort(code, stable=True)
    fresh = torch.ones_like(code, dtype=torch.bool)
    torch.ne(ranked[1:], ranked[:-1], out=fresh[1:])
    return torch.empty_like(fresh).scatter_(0, order, fresh)


def _first_in_graph(graph: Tensor, count: Tensor) -> Tensor:
    """Mark a given number of items of every graph, the first ones, bool ``[items]``."""
    ranked, order = torch.sort(graph, stable=True)
    ptr = offsets(torch.bincount(graph, minlength=count.numel()))
    rank = torch.arange(graph.numel(), device=graph.device) - ptr.index_select(0, ranked)
    inside = rank < count.index_select(0, ranked)
    return torch.empty_like(inside).scatter_(0, order, inside)


def _edge_between(
    pairs: EdgePairs, first: Tensor, second: Tensor, nodes: int, keys: Tensor
) -> Tensor:
    """Find an edge between each two nodes that are joined; a random one of several.

    Args:
        pairs: The edges.
        first: int64 ``[wanted]``.
        second: int64 ``[wanted]``.
        nodes: Number of nodes of the batch.
        keys: Random numbers in ``[0, 1)``, float64 ``[wanted]``.

    Returns:
        Places in ``pairs``, int64 ``[wanted]``.
    """
    ranked, order = torch.sort(_pair_code(pairs.u, pairs.v, nodes), stable=True)
    code = _pair_code(first, second, nodes)
    begin = torch.searchsorted(ranked, code)
    several = torch.searchsorted(ranked, code, right=True) - begin
    return order.index_select(0, begin + (keys * several).to(torch.long))


class SwapOpenTriads(RatioAugmentation):
    """Close open triads, and remove an edge of each (*motif-similarity mapping* of M-Evolve).

    An open triad is a path u - a - v whose ends no edge joins. A swap adds the edge u - v and
    removes u - a or a - v. Of m edges ``ceil(ratio · m)`` are swapped; fewer in dense graphs, where
    so many open triads do not exist or are not found, and none in graphs without any. Pairs u, v
    are drawn without replacement, with probability proportional to their similarity, the
    resource-allocation index: the sum of 1 / degree over their common neighbours. Targets are the
    original ones.

    Triads are sampled, never listed: a path is drawn with probability proportional to 1 / degree of
    its centre, and a closed one is thrown away. Work grows with the number of swaps.

    New edges take the attributes and the weight of the edge removed for them. Triads are found
    whatever the direction of edges; in directed graphs a swap moves one end of an edge, and its
    direction stays. Self-loops and repeated edges make no triads.

    Deviation: distinct-swaps. All swaps look at the original graph, and no two remove the same
    edge: a triad that would is passed over. In the publication the removed edges are a set, so that
    repeats let the graph grow; here the number of edges never changes.

    Deviation: uniform-removal. Either edge of the triad is removed with probability 1/2. The
    publication weighs them by 1 - s / Σ s, s being the similarity of an edge's ends, which would
    need a sum over the common neighbours of every edge looked at.

    Args:
        ratio: Share of the edges to swap (β), in [0, 1). The paper tries 0.2 and 0.4.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(4))
        >>> model, batch = gt.GraphClassifier.for_data(store, hidden=8), store.batch(range(4))
        >>> clean = gt.CleanPass(batch, torch.eye(6)[batch.y], model(batch))
        >>> other = SwapOpenTriads(0.2)(clean, model=model, generator=None)
        >>> other.batch.num_edges == batch.num_edges, bool((other.edge_origin == -1).any())
        (True, True)
    """

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> EditedGraphs:
        """Make virtual samples; see :meth:`Augmentation.forward`."""
        view = View.of(clean.batch)
        pairs = EdgePairs.of(view)
        swaps = self._sample(view, pairs, generator)
        keys = uniform((swaps.stays.numel(),), generator, swaps.stays.device)
        nodes = view.layout.num_nodes
        removed = _edge_between(pairs, swaps.stays, swaps.centre, nodes, keys)
        # In directed graphs the end that stays sends or receives as before.
        sends = pairs.u.index_select(0, removed) == swaps.stays
        return edit_graphs(
            clean.batch,
            clean.targets,
            keep_edges=without_edges(pairs, removed, view.edge.numel()),
            new_edges=NewEdges(
                torch.where(sends, swaps.stays, swaps.comes),
                torch.where(sends, swaps.comes, swaps.stays),
                pairs.forward.index_select(0, removed),
            ),
        )

    def _sample(self, view: View, pairs: EdgePairs, generator: torch.Generator | None) -> _Swaps:
        """Draw swaps that add distinct edges and remove distinct ones."""
        near, nodes, sizes = _Neighbours(view), view.layout.num_nodes, view.layout.counts
        wanted = ceil_share(pairs.counts, self.ratio)
        joined = count_per_segment(near.degree, view.layout.ptr) // 2
        wanted = torch.minimum(wanted, sizes * (sizes - 1) // 2 - joined)
        missing = wanted
        nothing = sizes.new_empty(0)
        swaps = _Swaps(nothing, nothing, nothing, nothing)
        for _ in range(_ROUNDS):
            if int(missing.sum()) <= (1 - _ENOUGH) * int(wanted.sum()):
                break
            swaps = swaps.join(_draw_swaps(view, near, _DRAWS * missing, generator))
            # Drawing with replacement and passing over repeats is drawing without replacement.
            swaps = swaps.take(_first_of_each(_pair_code(swaps.stays, swaps.comes, nodes)))
            swaps = swaps.take(_first_of_each(_pair_code(swaps.stays, swaps.centre, nodes)))
            found = torch.bincount(swaps.graph, minlength=wanted.numel())
            missing = (wanted - found).clamp_(min=0)
        return swaps.take(_first_in_graph(swaps.graph, wanted))


class ReliabilityFilter(Augmentation):
    """Train only on those virtual samples whose labels the model finds reliable.

    This is the data filtration of M-Evolve (Zhou et al. 2020, section "Data filtration") as a
    wrapper that can filter any augmentation. The prototype q_k of a class is the mean of the
    probabilities that the model gives to validation graphs of that class. A graph with
    probabilities p and class y has the *label reliability* r = p · q_y. The threshold θ is the one
    that best tells validation graphs classified right from those classified wrong; a virtual sample
    counts in the loss if r > θ. Prototypes and threshold are found anew after each epoch; during
    the first one every sample counts.

    The model judges the samples in evaluation mode and without gradients. Of a
    :class:`~graph_transplant.GraphClassifier` only the head runs for that, on embeddings which the
    loss then uses; of another model it costs one more pass in every step.

    Deviation: filter-every-step. The publication filters once, with a trained model, and trains
    again on what is left; as in the paper's comparison, virtual graphs are filtered in every step.

    Deviation: soft-reliability. With mixed targets t the prototype of a sample is Σ t_k q_k; the
    publication has graphs of one class only, for which it is the same.

    Deviation: empty-class-prototype. A class without validation graphs, of which the publication
    does not speak, has its one-hot vector for a prototype.

    Args:
        augmentation: Makes the samples.

    Attributes:
        threshold: θ, a float64 scalar; minus infinity before the first epoch is over.
        prototypes: q_k in row k, float64 ``[classes, classes]``; empty before.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs")
        >>> train, validation = store.subset(range(32)), store.subset(range(32, 64))
        >>> model = gt.GraphClassifier.for_data(train, hidden=8, seed=0)
        >>> augment = ReliabilityFilter(gt.GraphTransplant())
        >>> result = gt.fit(model, train, validation, augment, seed=0, epochs=2)
        >>> sorted(result.history[0].measurements)
        ['kept_share', 'label_threshold']
    """

    threshold: Tensor
    prototypes: Tensor
    _kept: Tensor

    def __init__(self, augmentation: Augmentation) -> None:
        super().__init__()
        self.augmentation = augmentation
        self.register_buffer("threshold", torch.tensor(-torch.inf, dtype=torch.double))
        self.register_buffer("prototypes", torch.empty(0, 0, dtype=torch.double))
        self.register_buffer("_kept", torch.zeros((), dtype=torch.long), persistent=False)
        self._seen = 0

    @property
    def gives_graphs(self) -> bool:
        """Whether the filtered augmentation gives graphs."""
        return self.augmentation.gives_graphs

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Refuse data without classes; see :meth:`Augmentation.check`."""
        _check_classes(data.task, f"{data.name} is a {data.task} data set")
        self.augmentation.check(model, data)

    def prepare(self, train: GraphStore, generator: torch.Generator) -> None:
        """Forget an earlier training, and prepare what is filtered."""
        self.threshold = torch.full_like(self.threshold, -torch.inf)
        self.prototypes = self.prototypes.new_empty(0, 0)
        self._seen, self._kept = 0, torch.zeros_like(self._kept)
        self.augmentation.prepare(train, generator)

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> Virtual:
        """Make virtual samples and weigh them by 0 or 1; see :meth:`Augmentation.forward`."""
        _check_classes(clean.task, f"the task is {clean.task}")
        virtual: Virtual = self.augmentation(clean, model=model, generator=generator)
        if self.prototypes.numel():
            virtual = _with_embedding(virtual, model)
        keep = self.passes(virtual, model)
        self._seen += keep.numel()
        self._kept = self._kept + keep.sum()
        weight = keep.to(virtual.targets.dtype)
        if virtual.weight is not None:
            weight = weight * virtual.weight
        return replace(virtual, weight=weight)

    def passes(self, virtual: Virtual, model: Predictor) -> Tensor:
        """Mark the samples whose labels are reliable.

        Args:
            virtual: The samples.
            model: The model that judges them; its mode does not matter.

        Returns:
            r > θ, bool ``[samples]``.
        """
        targets = virtual.targets.detach()
        if not self.prototypes.numel():
            return torch.ones(targets.shape[0], dtype=torch.bool, device=targets.device)
        with evaluating(module_of(model)):
            probability = virtual.logits(model).to(torch.double).softmax(1)
        return label_reliability(probability, targets, self.prototypes) > self.threshold

    def after_epoch(self, model: Predictor | nn.Module, validation: GraphStore) -> dict[str, float]:
        """Find prototypes and threshold anew; see :meth:`Augmentation.after_epoch`.

        Returns:
            The measurements of the filtered augmentation, ``label_threshold`` (the new θ) and
            ``kept_share``, the share of the epoch's samples that counted, if there were any.
        """
        _check_classes(validation.task, f"{validation.name} is a {validation.task} data set")
        model = as_predictor(model)
        measured = self.augmentation.after_epoch(model, validation)
        device = self.threshold.device
        with evaluating(module_of(model)):
            logits = torch.cat(
                [
                    model(batch.to(device)).logits
                    for batch in validation.batches(torch.arange(len(validation)), 512)
                ]
            )
        probability = logits.to(torch.double).softmax(1)
        labels = validation.labels.to(device)
        self.prototypes = class_prototypes(probability, labels)
        targets = nn.functional.one_hot(labels, probability.shape[1])
        reliability = label_reliability(probability, targets, self.prototypes)
        self.threshold = reliability_threshold(reliability, probability.argmax(1) == labels)
        own = {"label_threshold": float(self.threshold)}
        if self._seen:
            own["kept_share"] = int(self._kept) / self._seen
        measured = merged_measurements(measured, own)
        self._seen, self._kept = 0, torch.zeros_like(self._kept)
        return measured

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *others: Any, **named: Any
    ) -> None:
        """Make room for prototypes: how many classes there are is known only after an epoch."""
        stored = state_dict.get(f"{prefix}prototypes")
        if stored is not None:
            self.prototypes = self.prototypes.new_empty(stored.shape)
        super()._load_from_state_dict(state_dict, prefix, *others, **named)


def class_prototypes(probability: Tensor, labels: Tensor) -> Tensor:
    """Average the probabilities of the graphs of each class.

    Args:
        probability: float64 ``[graphs, classes]``.
        labels: Class of every graph, int64 ``[graphs]``.

    Returns:
        The prototype of class k in row k, float64 ``[classes, classes]``; the one-hot vector of a
        class without graphs.

    Example:
        >>> probability = torch.tensor([[0.5, 0.5], [1.0, 0.0]], dtype=torch.double)
        >>> class_prototypes(probability, torch.tensor([0, 0]))
        tensor([[0.7500, 0.2500],
                [0.0000, 1.0000]], dtype=torch.float64)
    """
    classes = probability.shape[1]
    total = probability.new_zeros(classes, classes).index_add_(0, labels, probability)
    count = torch.bincount(labels, minlength=classes).unsqueeze(1)
    alone = torch.eye(classes, dtype=total.dtype, device=total.device)
    return torch.where(count > 0, total / count.clamp(min=1), alone)


def label_reliability(probability: Tensor, targets: Tensor, prototypes: Tensor) -> Tensor:
    """Measure how well the model's probabilities go with the targets.

    Args:
        probability: p, float64 ``[samples, classes]``.
        targets: Class probabilities t, ``[samples, classes]``.
        prototypes: q_k in row k, float64 ``[classes, classes]``.

    Returns:
        p · Σ t_k q_k, float64 ``[samples]``.

    Example:
        >>> probability = torch.tensor([[0.75, 0.25]], dtype=torch.double)
        >>> label_reliability(probability, torch.tensor([[0.0, 1.0]]), torch.eye(2).double())
        tensor([0.2500], dtype=torch.float64)
    """
    return (probability * (targets.to(prototypes.dtype) @ prototypes)).sum(1)


def reliability_threshold(reliability: Tensor, right: Tensor) -> Tensor:
    """Find the threshold that best tells graphs classified right from those classified wrong.

    It is the θ with the smallest Σ Φ[(θ - r_i) g_i], where g_i is 1 for a graph classified right
    and -1 otherwise, and Φ(x) is 1 for x > 0 and 0 otherwise: the number of right graphs with less
    reliability and wrong ones with more. One of the r_i always attains it; of several the smallest
    is taken, which lets most samples pass.

    Args:
        reliability: r, float ``[graphs]``, at least one.
        right: bool ``[graphs]``.

    Returns:
        θ, a scalar.

    Example:
        >>> reliability = torch.tensor([0.1, 0.2, 0.3, 0.4])
        >>> reliability_threshold(reliability, torch.tensor([False, False, True, True]))
        tensor(0.2000)
    """
    ranked, order = torch.sort(reliability)
    right = right.index_select(0, order)
    below = torch.searchsorted(ranked, ranked)
    not_above = torch.searchsorted(ranked, ranked, right=True)
    right_before, wrong_before = offsets(right.long()), offsets((~right).long())
    cost = right_before[below] + wrong_before[-1] - wrong_before[not_above]
    return ranked[(cost == cost.min()).nonzero()[0, 0]]


def _with_embedding(virtual: Virtual, model: Predictor) -> Virtual:
    """Embed virtual graphs once, for the judgement and for the loss, where the model can."""
    if not (isinstance(virtual, VirtualGraphs) and isinstance(model, GraphClassifier)):
        return virtual
    if virtual.embedding is not None:
        return virtual
    return replace(virtual, embedding=model.embed_graphs(virtual.batch))


def _check_classes(task: str, reason: str) -> None:
    if task != "multiclass":
        raise DataError(f"the reliability filter of m-evolve needs classes, but {reason}")
