"""Manifold mixup of graph embeddings after the readout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_transplant.augment.base import Augmentation, CleanPass, Mixed, VirtualEmbeddings
from graph_transplant.augment.pairing import Pairing, mix_rows
from graph_transplant.config.options import PairingPolicy
from graph_transplant.data import GraphStore
from graph_transplant.errors import GraphTransplantError, check_in
from graph_transplant.kernels.arrays import Doubles, Ints
from graph_transplant.nn import GraphClassifier
from graph_transplant.nn.adapter import Predictor


@dataclass(frozen=True)
class ManifoldMixupPlan:
    """All random choices of one mixing."""

    source_of: Ints  # the source of every sample
    label_weight: Doubles  # λ, the weight of its embedding and label


@dataclass(frozen=True, kw_only=True)
class MixedEmbeddings(Mixed, VirtualEmbeddings):
    """Mixed graph embeddings."""


class ManifoldMixup(Augmentation):
    """Mix the embeddings of graphs after the readout (Wang et al., WWW 2021; appendix "Baselines").

    The embedding and target of every graph are mixed with those of another with weight λ ~
    Beta(alpha, alpha), drawn per pair. Only the head of the model runs on the mixture; its gradient
    reaches all layers through both embeddings. A label that is missing in one graph is missing in
    the mixture. Only :class:`~graph_transplant.GraphClassifier` is supported, whose head is known.

    Args:
        alpha: Parameter of the distribution of λ, positive. The paper uses 2.
        pairing: A policy of :class:`~graph_transplant.augment.pairing.Pairing`.
    """

    gives_graphs = False

    def __init__(self, alpha: float = 2.0, pairing: PairingPolicy | Pairing = "random") -> None:
        super().__init__()
        check_in("(0, inf)", alpha=alpha)
        self.alpha = alpha
        self.pairing = Pairing.of(pairing)

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Raise for models without a known head, or pairing by class without classes."""
        _check_head(model)
        self.pairing.check(data.task)

    def plan(
        self, clean: CleanPass, model: Predictor | None, rng: np.random.Generator
    ) -> ManifoldMixupPlan:
        """Draw sources and weights."""
        _check_head(model)
        source_of = self.pairing.sources(clean.targets, clean.task, rng)
        return ManifoldMixupPlan(source_of, rng.beta(self.alpha, self.alpha, len(source_of)))

    def transform(self, plan: ManifoldMixupPlan, clean: CleanPass) -> MixedEmbeddings:
        """Mix the embeddings and targets of every graph and its source."""
        graphs = clean.prediction.graphs
        assert graphs is not None
        weight = clean.batch.on_device(plan.label_weight).to(clean.targets.dtype)
        sources = clean.batch.on_device(plan.source_of)
        return MixedEmbeddings(
            graphs=mix_rows(graphs, sources, weight),
            targets=mix_rows(clean.targets, sources, weight),
            label_weight=weight,
            source_of=plan.source_of,
        )


def _check_head(model: Predictor | None) -> None:
    if model is None:
        raise GraphTransplantError(
            "manifold-mixup needs a model: use gt.augmented_loss in the training loop"
        )
    if not isinstance(model, GraphClassifier):
        raise GraphTransplantError(
            "manifold-mixup mixes graph embeddings between readout and head, which are known only "
            "in a plain graph_transplant.GraphClassifier, without `output` or `saliency_module`; "
            f"got {type(model.module).__name__}"
        )
