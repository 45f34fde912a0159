"""The one abstraction of the house: from original graphs to virtual graphs and targets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graph_transplant.graphs import GraphStore
from graph_transplant.nn import Prediction
from graph_transplant.saliency import NodeSaliency, Predictor
from graph_transplant.targets import graph_losses


def uniform(
    size: tuple[int, ...], generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """Draw uniform numbers in ``[0, 1)``, float64, where the generator lives.

    Args:
        size: Shape.
        generator: Source of randomness; ``None`` is torch's own.
        device: Where the numbers are wanted.
    """
    where = device if generator is None else generator.device
    return torch.rand(size, generator=generator, dtype=torch.double, device=where).to(device)


@dataclass(frozen=True)
class CleanPass:
    """A model's pass on original graphs.

    Attributes:
        batch: The graphs.
        targets: float ``[graphs, outputs]``.
        prediction: What the model said, with gradients.
        task: What the targets are.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(4))
        >>> model, batch = gt.GraphClassifier.for_data(store, hidden=8), store.batch(range(4))
        >>> clean = CleanPass(batch, torch.eye(6)[batch.y], model(batch))
        >>> clean.saliency(gt.NodeSaliency()).shape == (batch.num_nodes,)
        True
    """

    batch: Batch
    targets: Tensor
    prediction: Prediction
    task: str = "multiclass"
    _saliency: dict[NodeSaliency, Tensor] = field(default_factory=dict, repr=False)

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

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(4))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8)
        >>> same = VirtualGraphs(batch=store.batch(range(4)), targets=torch.full((4, 6), 1 / 6))
        >>> same.logits(model).shape
        torch.Size([4, 6])
    """

    batch: Batch

    def logits(self, model: Predictor) -> Tensor:
        """Let the model predict the graphs, float ``[graphs, outputs]``."""
        return model(self.batch).logits


class Augmentation(nn.Module, ABC):
    """Makes virtual samples of the original graphs of a batch.

    An augmentation draws every random choice from the given generator, leaves its inputs and the
    model as they are, and may have parameters of its own, which train with the model's.

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

    def prepare(self, train: GraphStore, generator: torch.Generator) -> None:
        """Look at the training graphs once, before training.

        Args:
            train: The training graphs.
            generator: Source of randomness.
        """

    def after_epoch(self, model: Predictor, validation: GraphStore) -> dict[str, float]:
        """Adapt or measure after an epoch.

        Args:
            model: The model in training, in evaluation mode.
            validation: The validation graphs.

        Returns:
            Measurements to record with the epoch, by name.
        """
        return {}
