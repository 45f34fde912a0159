"""The interface of augmentations: from original graphs to virtual samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from graph_transplant.errors import GraphTransplantError
from graph_transplant.graphs import GraphBatch, GraphStore
from graph_transplant.nn import GraphClassifier, Prediction
from graph_transplant.saliency import NodeSaliency, Predictor
from graph_transplant.targets import Loss


def random_numbers(generator: torch.Generator | None) -> np.random.Generator:
    """The random numbers of one call, seeded by one draw from a torch generator.

    Args:
        generator: ``None`` is torch's own.
    """
    device = "cpu" if generator is None else generator.device
    seed = torch.randint(2**63 - 1, (), generator=generator, device=device)
    return np.random.default_rng(int(seed))


class CleanPass:
    """A model's pass on original graphs.

    Args:
        batch: The graphs.
        targets: float ``[graphs, outputs]``.
        prediction: What the model said, with gradients; or how to find out, for graphs that not
            every augmentation needs a prediction of.
        loss_of: The loss of every graph; cross-entropy by default.
    """

    def __init__(
        self,
        batch: GraphBatch,
        targets: Tensor,
        prediction: Prediction | Callable[[], Prediction],
        loss_of: Loss | None = None,
    ) -> None:
        self.batch = batch
        self.targets = targets
        self.loss_of = Loss() if loss_of is None else loss_of
        self._prediction = prediction
        self._saliency: dict[NodeSaliency, Tensor] = {}

    @property
    def task(self) -> str:
        """What the targets are."""
        return self.loss_of.task

    @cached_property
    def prediction(self) -> Prediction:
        """What the model said, with gradients."""
        return self._prediction() if callable(self._prediction) else self._prediction

    @cached_property
    def loss(self) -> Tensor:
        """Mean loss of the original graphs, a scalar."""
        return self.loss_of(self.prediction.logits, self.targets).mean()

    def saliency(self, reading: NodeSaliency) -> Tensor:
        """Saliency of every node, float ``[nodes]``, computed when first asked for."""
        if reading not in self._saliency:
            self._saliency[reading] = reading.read(self.loss, self.prediction)
        return self._saliency[reading]

    def with_saliency(self, reading: NodeSaliency, saliency: Tensor) -> CleanPass:
        """The same pass with other node saliency."""
        other = CleanPass(self.batch, self.targets, lambda: self.prediction, self.loss_of)
        other._saliency[reading] = saliency
        return other


@dataclass(frozen=True, kw_only=True)
class Virtual(ABC):
    """Virtual samples to train on beside the original graphs.

    Attributes:
        targets: float ``[samples, outputs]``.
        weight: Weight of every sample in the loss, float ``[samples]``; ones by default. The loss
            is the mean over all samples, so that a weight of zero leaves a sample out.
        auxiliary_loss: A further loss of the augmentation's own parameters.
    """

    targets: Tensor
    weight: Tensor | None = None
    auxiliary_loss: Tensor | None = None

    @abstractmethod
    def logits(self, model: Predictor) -> Tensor:
        """Let the model predict the samples, float ``[samples, outputs]``."""

    def loss(self, model: Predictor, loss_of: Loss) -> Tensor:
        """Mean soft loss of the samples, a scalar."""
        losses = loss_of(self.logits(model), self.targets)
        return losses.mean() if self.weight is None else (losses * self.weight).mean()


@dataclass(frozen=True, kw_only=True)
class VirtualGraphs(Virtual):
    """Virtual graphs: the whole model runs on them.

    Attributes:
        batch: The graphs.
        embedding: Their embeddings after the readout, float ``[graphs, hidden]`` with gradients, if
            a :class:`~graph_transplant.GraphClassifier` has found them already; only its head runs
            then.
    """

    batch: GraphBatch
    embedding: Tensor | None = None

    def logits(self, model: Predictor) -> Tensor:
        """Let the model predict the graphs, float ``[graphs, outputs]``."""
        if self.embedding is not None and isinstance(model, GraphClassifier):
            return model.classify(self.embedding)
        return model.run(self.batch, layers=False).logits


@dataclass(frozen=True, kw_only=True)
class EditedGraphs(VirtualGraphs):
    """Virtual graphs made each from one original graph.

    Attributes:
        node_origin: Number in the original batch of every node, int64 ``[nodes]``.
        edge_origin: Number in the original batch of every edge, int64 ``[edges]``; -1 for new ones.
    """

    node_origin: np.ndarray
    edge_origin: np.ndarray


@dataclass(frozen=True, kw_only=True)
class VirtualEmbeddings(Virtual):
    """Virtual graph embeddings: only the classifier head of the model runs on them.

    Attributes:
        graphs: float ``[samples, hidden]``, with gradients.
    """

    graphs: Tensor

    def logits(self, model: Predictor) -> Tensor:
        """Let the head of the model classify the embeddings, float ``[samples, outputs]``."""
        if not isinstance(model, GraphClassifier):
            raise GraphTransplantError(
                "graph embeddings can be classified only by a graph_transplant.GraphClassifier: "
                "where the head of another model begins is not known"
            )
        return model.classify(self.graphs)


class Augmentation(nn.Module, ABC):
    """Makes virtual samples of the original graphs of a batch.

    An augmentation draws every random choice from the given generator, leaves its inputs and the
    model as they are, and may have parameters of its own, which train with the model's. Three hooks
    do nothing by default: :meth:`check` and :meth:`prepare` before training, :meth:`after_epoch`.

    Example:
        An augmentation that trains on the original graphs a second time:

        >>> class Again(Augmentation):
        ...     def forward(self, clean, *, model, generator):
        ...         return VirtualGraphs(batch=clean.batch, targets=clean.targets)
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(4))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, dropout=0.0)
        >>> once = gt.augmented_loss(model, store.batch(range(4)), ())
        >>> twice = gt.augmented_loss(model, store.batch(range(4)), Again())
        >>> bool(torch.isclose(twice, 2 * once))
        True
    """

    @property
    def gives_graphs(self) -> bool:
        """Whether the virtual samples are graphs, which another augmentation could go on with."""
        return True

    @abstractmethod
    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> Virtual:
        """Make virtual samples.

        Args:
            clean: The pass on the original graphs.
            model: The model in training.
            generator: Source of all randomness; ``None`` is torch's own.
        """

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Raise a :class:`GraphTransplantError` if the model or data cannot be served."""

    def prepare(self, train: GraphStore, generator: torch.Generator) -> None:
        """Look at the training graphs once, before training."""

    def after_epoch(self, model: Predictor | nn.Module, validation: GraphStore) -> dict[str, float]:
        """Adapt or measure after an epoch; call it in a loop of your own, as ``fit`` does.

        Returns:
            Measurements to record with the epoch, by name.
        """
        return {}


def merged_measurements(*found: Mapping[str, float]) -> dict[str, float]:
    """Put measurements together; a name that occurs again gets a number.

    Example:
        >>> merged_measurements({"kept_share": 0.5}, {"kept_share": 0.75})
        {'kept_share': 0.5, 'kept_share_2': 0.75}
    """
    merged: dict[str, float] = {}
    for measured in found:
        for name, value in measured.items():
            number, free = 1, name
            while free in merged:
                number += 1
                free = f"{name}_{number}"
            merged[free] = value
    return merged
