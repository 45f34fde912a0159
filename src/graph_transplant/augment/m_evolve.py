"""M-Evolve (Zhou et al., IEEE TNSE 2020, arXiv 2007.05700): swapped edges and filtered labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graph_transplant.augment.base import (
    Augmentation,
    CleanPass,
    EditedGraphs,
    Virtual,
    as_augmentations,
    merged_measurements,
)
from graph_transplant.augment.perturb import RatioPerturbation, replace_edges, reverse_of
from graph_transplant.data import GraphStore, check_stores
from graph_transplant.errors import DataError
from graph_transplant.kernels import perturb as kernel
from graph_transplant.nn import evaluating
from graph_transplant.nn.adapter import Predictor, as_predictor, module_of


class SwapOpenTriads(RatioPerturbation):
    """Close open triads, and remove an edge of each (*motif-similarity mapping* of M-Evolve).

    An open triad is a path u - a - v whose ends are not connected. A swap adds the edge u - v and
    removes u - a or a - v. Of m edges, ``ceil(ratio · m)`` are swapped, or fewer if not enough open
    triads are found. Pairs u, v are drawn without replacement, in proportion to their
    resource-allocation index: the sum of 1 / degree over their common neighbours.

    A new edge takes the attributes, weight and direction of the edge it replaces. Triads ignore
    edge directions, self-loops and repeated edges.

    Deviation: distinct-swaps. All swaps see the original graph, and no edge is removed twice. In
    the publication repeated removals make the graph grow; here the number of edges never changes.

    Deviation: uniform-removal. Either edge of the triad is removed with probability 1/2. The
    publication weights them by similarity, which requires the common neighbours of each.

    Args:
        ratio: Share of the edges to swap (β), in [0, 1). The paper tries 0.2 and 0.4.

    Example:
        >>> import graph_transplant as gt
        >>> batch = gt.load("motifs").batch(range(4))
        >>> clean = CleanPass(batch, torch.eye(6)[batch.y])
        >>> other = SwapOpenTriads(0.2)(clean, model=None, generator=torch.Generator())
        >>> other.batch.num_edges == batch.num_edges, bool((other.edge_origin == -1).any())
        (True, True)
    """

    def plan(
        self, clean: CleanPass, model: Predictor | None, rng: np.random.Generator
    ) -> kernel.Replacement:
        """Draw the open triads to swap."""
        batch = clean.batch
        return kernel.swap_open_triads(
            batch.csr, reverse_of(batch), batch.symmetric, batch.neighbours, self.ratio, rng
        )

    def transform(self, plan: kernel.Replacement, clean: CleanPass) -> EditedGraphs:
        """Swap them."""
        return replace_edges(clean, plan)


class ReliabilityFilter(Augmentation):
    """Train only on virtual samples with reliable labels.

    This is the data filtration of M-Evolve, as a wrapper around any augmentation. The prototype q_k
    of a class is the mean predicted probability vector of its validation graphs. A graph with
    probabilities p and class y has the *label reliability* r = p · q_y. The threshold θ best
    separates correctly from incorrectly classified validation graphs; a virtual sample counts in
    the loss if r > θ. Both are updated after each epoch; during the first, every sample counts.
    Predictions are made in evaluation mode.

    Deviation: filter-every-step. The publication filters once, with a trained model, and retrains;
    as in the paper's comparison, virtual graphs are filtered in every step.

    Deviation: soft-reliability. For mixed targets t the prototype is Σ t_k q_k; for graphs of a
    single class, as in the publication, this is the same.

    Deviation: empty-class-prototype. The prototype of a class without validation graphs, a case
    that the publication does not cover, is its one-hot vector.

    Args:
        augmentation: Creates the samples.

    Attributes:
        threshold: θ, a float64 scalar; minus infinity until the end of the first epoch.
        prototypes: q_k in row k, float64 ``[classes, classes]``; empty until then.

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
        must = "ReliabilityFilter needs an augmentation, such as gt.GraphTransplant()"
        self.augmentation: Augmentation
        (self.augmentation,) = as_augmentations([augmentation], must)
        self.register_buffer("threshold", torch.tensor(-torch.inf, dtype=torch.double))
        self.register_buffer("prototypes", torch.empty(0, 0, dtype=torch.double))
        self.register_buffer("_kept", torch.zeros((), dtype=torch.long), persistent=False)
        self._seen = 0

    @property
    def gives_graphs(self) -> bool:
        """Whether the wrapped augmentation returns graphs."""
        return self.augmentation.gives_graphs

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Raise for tasks other than multiclass, or if the wrapped augmentation does."""
        _check_classes(data.task, f"{data.name} is a {data.task} data set")
        self.augmentation.check(model, data)

    def prepare(self, train: GraphStore, generator: torch.Generator) -> None:
        """Reset the filter and prepare the wrapped augmentation."""
        self.threshold = torch.full_like(self.threshold, -torch.inf)
        self.prototypes = self.prototypes.new_empty(0, 0)
        self._count_anew()
        self.augmentation.prepare(train, generator)

    def _count_anew(self) -> None:
        self._seen, self._kept = 0, torch.zeros_like(self._kept)

    def forward(
        self, clean: CleanPass, *, model: Predictor | None, generator: torch.Generator | None
    ) -> Virtual:
        """Create virtual samples and weight them by 0 or 1."""
        _check_classes(clean.task, f"the task is {clean.task}")
        virtual: Virtual = self.augmentation(clean, model=model, generator=generator)
        keep = self.passes(virtual, model)
        self._seen += keep.numel()
        self._kept = self._kept + keep.sum()
        weight = keep.to(virtual.targets.dtype)
        return replace(virtual, weight=weight * (1 if virtual.weight is None else virtual.weight))

    def passes(self, virtual: Virtual, model: Predictor | None) -> Tensor:
        """Mark the samples with reliable labels, r > θ; bool ``[samples]``."""
        targets = virtual.targets.detach()
        if model is None or not self.prototypes.numel():
            return torch.ones(len(targets), dtype=torch.bool, device=targets.device)
        with evaluating(module_of(model)):
            probability = virtual.outputs(model)[0].to(torch.double).softmax(1)
        return label_reliability(probability, targets, self.prototypes) > self.threshold

    def after_epoch(self, model: Predictor | nn.Module, validation: GraphStore) -> dict[str, float]:
        """Update prototypes and threshold; measure θ and the share of samples that counted."""
        check_stores(validation=validation)
        model = as_predictor(model)
        measured = self.augmentation.after_epoch(model, validation)
        device = self.threshold.device
        with evaluating(module_of(model)):
            batches = validation.batches(torch.arange(len(validation)), 512)
            logits = [model.run(batch.to(device), layers=False).logits for batch in batches]
        probability = torch.cat(logits).to(torch.double).softmax(1)
        labels = validation.labels.to(device)
        self.prototypes = class_prototypes(probability, labels)
        targets = nn.functional.one_hot(labels, probability.shape[1])
        reliability = label_reliability(probability, targets, self.prototypes)
        self.threshold = reliability_threshold(reliability, probability.argmax(1) == labels)
        own = {"label_threshold": float(self.threshold)}
        if self._seen:
            own["kept_share"] = int(self._kept) / self._seen
        self._count_anew()
        return merged_measurements(measured, own)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *others: Any, **named: Any
    ) -> None:
        """Resize the prototypes first: the number of classes is known only after an epoch."""
        stored = state_dict.get(f"{prefix}prototypes")
        if stored is not None:
            self.prototypes = self.prototypes.new_empty(stored.shape)
        super()._load_from_state_dict(state_dict, prefix, *others, **named)


def m_evolve(ratio: float = 0.2) -> ReliabilityFilter:
    """M-Evolve: swap open triads, keep graphs with reliable labels."""
    return ReliabilityFilter(SwapOpenTriads(ratio))


def class_prototypes(probability: Tensor, labels: Tensor) -> Tensor:
    """Mean probabilities of the graphs of each class; one-hot for a class without graphs."""
    classes = probability.shape[1]
    total = probability.new_zeros(classes, classes).index_add_(0, labels, probability)
    count = torch.bincount(labels, minlength=classes).unsqueeze(1)
    return torch.where(count > 0, total / count.clamp(min=1), torch.eye(classes).to(total))


def label_reliability(probability: Tensor, targets: Tensor, prototypes: Tensor) -> Tensor:
    """Reliability of targets t given probabilities p: p · Σ t_k q_k, float64 ``[samples]``."""
    return (probability * (targets.to(prototypes.dtype) @ prototypes)).sum(1)


def reliability_threshold(reliability: Tensor, right: Tensor) -> Tensor:
    """Threshold θ that best separates correctly from incorrectly classified graphs.

    It minimises the number of correct graphs below and incorrect ones above. One of the given
    reliabilities is always optimal; ties go to the smallest, which keeps the most samples.
    """
    values, place = torch.unique(reliability, return_inverse=True)
    right_at = torch.bincount(place[right], minlength=len(values))
    wrong_at = torch.bincount(place[~right], minlength=len(values))
    cost = right_at.cumsum(0) - right_at + wrong_at.sum() - wrong_at.cumsum(0)
    best: Tensor = values[cost.argmin()]
    return best


def _check_classes(task: str, reason: str) -> None:
    if task != "multiclass":
        raise DataError(f"the reliability filter of m-evolve needs classes, but {reason}")
