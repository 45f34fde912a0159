"""The one abstraction of the house: from original graphs to virtual graphs and targets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graph_transplant.errors import GraphTransplantError
from graph_transplant.graphs import GraphStore
from graph_transplant.nn import GraphClassifier, Prediction
from graph_transplant.saliency import NodeSaliency, Predictor
from graph_transplant.targets import graph_losses


class CleanPass:
    """A model's pass on original graphs.

    Args:
        batch: The graphs.
        targets: float ``[graphs, outputs]``.
        prediction: What the model said, with gradients; or how to find out, for graphs that not
            every augmentation needs a prediction of.
        task: What the targets are.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(4))
        >>> model, batch = gt.GraphClassifier.for_data(store, hidden=8), store.batch(range(4))
        >>> clean = CleanPass(batch, torch.eye(6)[batch.y], model(batch))
        >>> clean.saliency(gt.NodeSaliency()).shape == (batch.num_nodes,)
        True
    """

    def __init__(
        self,
        batch: Batch,
        targets: Tensor,
        prediction: Prediction | Callable[[], Prediction],
        task: str = "multiclass",
    ) -> None:
        self.batch = batch
        self.targets = targets
        self.task = task
        self._prediction = prediction
        self._saliency: dict[NodeSaliency, Tensor] = {}

    @cached_property
    def prediction(self) -> Prediction:
        """What the model said, with gradients."""
        return self._prediction() if callable(self._prediction) else self._prediction

    @cached_property
    def loss(self) -> Tensor:
        """Mean loss of the original graphs, a scalar."""
        return graph_losses(self.prediction.logits, self.targets, self.task).mean()

    def saliency(self, reading: NodeSaliency) -> Tensor:
        """Return the saliency of every node, computed when first asked for.

        Args:
            reading: How it is read.

        Returns:
            float ``[nodes]``.
        """
        if reading not in self._saliency:
            self._saliency[reading] = reading.read(self.loss, self.prediction)
        return self._saliency[reading]

    def with_saliency(self, reading: NodeSaliency, saliency: Tensor) -> CleanPass:
        """Return the same pass with other node saliency.

        Args:
            reading: The reading whose values are replaced.
            saliency: float ``[nodes]``.
        """
        other = CleanPass(self.batch, self.targets, lambda: self.prediction, self.task)
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

    Example:
        >>> import graph_transplant as gt
        >>> issubclass(gt.VirtualGraphs, Virtual)
        True
    """

    targets: Tensor
    weight: Tensor | None = None
    auxiliary_loss: Tensor | None = None

    @abstractmethod
    def logits(self, model: Predictor) -> Tensor:
        """Let the model predict the samples, float ``[samples, outputs]``."""

    def loss(self, model: Predictor, task: str) -> Tensor:
        """Return the mean soft loss of the samples, a scalar.

        Args:
            model: The model in training.
            task: What the targets are.
        """
        losses = graph_losses(self.logits(model), self.targets, task)
        return losses.mean() if self.weight is None else (losses * self.weight).mean()


@dataclass(frozen=True, kw_only=True)
class VirtualGraphs(Virtual):
    """Virtual graphs: the whole model runs on them.

    Attributes:
        batch: The graphs, a valid PyG ``Batch``.
        embedding: Their embeddings after the readout, float ``[graphs, hidden]`` with gradients, if
            a :class:`~graph_transplant.GraphClassifier` has found them already; only its head runs
            then.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(4))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8)
        >>> same = VirtualGraphs(batch=store.batch(range(4)), targets=torch.full((4, 6), 1 / 6))
        >>> same.logits(model).shape
        torch.Size([4, 6])
    """

    batch: Batch
    embedding: Tensor | None = None

    def logits(self, model: Predictor) -> Tensor:
        """Let the model predict the graphs, float ``[graphs, outputs]``."""
        if self.embedding is not None and isinstance(model, GraphClassifier):
            return model.classify(self.embedding)
        return model(self.batch).logits


@dataclass(frozen=True, kw_only=True)
class VirtualEmbeddings(Virtual):
    """Virtual graph embeddings: only the classifier head of the model runs on them.

    Attributes:
        graphs: float ``[samples, hidden]``, with gradients.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(4))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8)
        >>> same = VirtualEmbeddings(graphs=model(store.batch(range(4))).graphs,
        ...                          targets=torch.full((4, 6), 1 / 6))
        >>> same.logits(model).shape
        torch.Size([4, 6])
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
        """Refuse a model or data that cannot be served, before training starts.

        Args:
            model: The model to be trained.
            data: The data set, or a part of it.

        Raises:
            GraphTransplantError: Saying what is missing.
        """

    def prepare(self, train: GraphStore, generator: torch.Generator) -> None:
        """Look at the training graphs once, before training.

        Args:
            train: The training graphs.
            generator: Source of randomness.
        """

    def after_epoch(self, model: Predictor | nn.Module, validation: GraphStore) -> dict[str, float]:
        """Adapt or measure after an epoch; call it in a loop of your own, as ``fit`` does.

        Args:
            model: The model in training.
            validation: The validation graphs.

        Returns:
            Measurements to record with the epoch, by name.
        """
        return {}


def merged_measurements(*found: Mapping[str, float]) -> dict[str, float]:
    """Put measurements together; a name that stands there already gets a number.

    Args:
        *found: Measurements by name.

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
