"""Augmentation interface: from original graphs to virtual samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graph_transplant.data import GraphBatch, GraphStore, as_batch
from graph_transplant.data.targets import Loss
from graph_transplant.errors import GraphTransplantError
from graph_transplant.kernels.arrays import Ints
from graph_transplant.nn import GraphClassifier, Prediction
from graph_transplant.nn.adapter import Predictor
from graph_transplant.nn.saliency import NodeSaliency


def random_numbers(generator: torch.Generator | None) -> np.random.Generator:
    """Return a NumPy generator seeded by one draw from a torch generator."""
    if not isinstance(generator, torch.Generator | None):
        raise GraphTransplantError(f"`generator` must be a torch.Generator; got {generator!r}")
    device = "cpu" if generator is None else generator.device
    seed = torch.randint(2**63 - 1, (), generator=generator, device=device)
    return np.random.default_rng(int(seed))


class CleanPass:
    """A model's forward pass on original graphs; ``targets`` are float ``[graphs, outputs]``.

    ``prediction`` may be a function, which is called on first use, or left out for augmentations
    that need none; ``saliency`` is a function that replaces the saliency of the model, given the
    batch.
    """

    def __init__(
        self,
        batch: GraphBatch,
        targets: Tensor,
        prediction: Prediction | Callable[[], Prediction] | None = None,
        loss_of: Loss | None = None,
        *,
        saliency: Callable[[GraphBatch], Tensor] | None = None,
    ) -> None:
        batch.check_nodes()
        self.batch = batch
        self.targets = targets
        self.loss_of = Loss() if loss_of is None else loss_of
        self._prediction = prediction
        self.saliency_of = saliency
        self._saliency: dict[NodeSaliency, Tensor] = {}
        self.nearest: dict[NodeSaliency, NodeSaliency] = {}  # what was read, for layer="auto"

    @property
    def task(self) -> str:
        """Task: ``"multiclass"``, ``"multilabel"`` or ``"regression"``."""
        return self.loss_of.task

    @cached_property
    def prediction(self) -> Prediction:
        """The model's prediction, with gradients."""
        if self._prediction is None:
            raise GraphTransplantError("this needs the prediction of a model, but there is none")
        return self._prediction() if callable(self._prediction) else self._prediction

    @cached_property
    def loss(self) -> Tensor:
        """Mean loss of the original graphs, a scalar."""
        return self.loss_of(self.prediction.logits, self.targets).mean()

    def saliency(self, reading: NodeSaliency) -> Tensor:
        """Saliency of every node, float ``[nodes]``, computed on first use."""
        if self.saliency_of is not None:
            return self.saliency_of(self.batch)
        if reading not in self._saliency:
            prediction = self.prediction
            half = torch.float16 in (prediction.nodes.dtype, prediction.logits.dtype)
            # In half precision the gradient of a mean over many nodes underflows. That of values
            # is unbounded: scaled, it could overflow.
            scale = self.batch.num_nodes if half and self.task != "regression" else 1
            used, saliency = reading.nearest(self.loss * scale, prediction, self.batch)
            self.nearest[reading], self._saliency[reading] = used, saliency / scale
        return self._saliency[reading]


@dataclass(frozen=True, kw_only=True)
class Virtual(ABC):
    """Virtual samples to train on in addition to the original graphs.

    The loss is the mean over all samples; those of weight zero still count as samples.
    """

    targets: Tensor  # float [samples, outputs]
    weight: Tensor | None = None  # weight of every sample in the loss; ones by default
    auxiliary_loss: Tensor | None = None  # loss of the augmentation's own parameters

    @abstractmethod
    def outputs(self, model: Predictor) -> tuple[Tensor, Tensor | None]:
        """Predict the samples, float ``[samples, outputs]``; with the model's own loss, if any."""

    def losses(self, model: Predictor, loss_of: Loss) -> tuple[Tensor, Tensor | None]:
        """Mean soft loss of the samples, a scalar, and the model's own loss."""
        logits, extra = self.outputs(model)
        losses = loss_of(logits, self.targets)
        return losses.mean() if self.weight is None else (losses * self.weight).mean(), extra


@dataclass(frozen=True, kw_only=True)
class VirtualGraphs(Virtual):
    """Virtual graphs: the whole model runs on them. A PyG batch is converted."""

    batch: GraphBatch

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", as_batch(self.batch))

    def outputs(self, model: Predictor) -> tuple[Tensor, Tensor | None]:
        """Predict the graphs, float ``[graphs, outputs]``."""
        prediction = model.run(self.batch, layers=False)
        return prediction.logits, prediction.extra


@dataclass(frozen=True, kw_only=True)
class EditedGraphs(VirtualGraphs):
    """Virtual graphs made of nodes and edges of the original ones."""

    node_origin: Ints  # index of every node in the original batch
    edge_origin: Ints  # index of every edge in the original batch, -1 for new ones


@dataclass(frozen=True, kw_only=True)
class Mixed(Virtual):
    """Samples that are each mixed from an original graph, the destination, and a source."""

    source_of: Ints  # π, the source of every sample
    label_weight: Tensor  # λ, the weight of the source's label, [samples]


@dataclass(frozen=True, kw_only=True)
class VirtualEmbeddings(Virtual):
    """Graph embeddings ``[samples, hidden]``: only the head of the model runs on them."""

    graphs: Tensor

    def outputs(self, model: Predictor) -> tuple[Tensor, None]:
        """Classify the embeddings with the head of the model, float ``[samples, outputs]``."""
        assert isinstance(model, GraphClassifier)  # other models have no known head
        return model.classify(self.graphs), None


class Augmentation(nn.Module, ABC):
    """Creates virtual samples from the original graphs of a batch, in two steps.

    :meth:`plan` makes all random choices; :meth:`transform` carries them out and is deterministic.
    Inputs and model are left unchanged. Parameters of the augmentation are trained together with
    the model's. Three hooks do nothing by default: :meth:`check` and :meth:`prepare` before
    training, and :meth:`after_epoch`.

    Example:
        An augmentation that trains on the original graphs a second time:

        >>> class Again(Augmentation):
        ...     def transform(self, plan, clean):
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
        """Whether the virtual samples are graphs that another augmentation can process further."""
        return True

    def plan(self, clean: CleanPass, model: Predictor | None, rng: np.random.Generator) -> Any:
        """Make all random choices for the graphs of a clean pass.

        ``model`` is ``None`` outside training. Without a plan, nothing is random.
        """
        return None

    def transform(self, plan: Any, clean: CleanPass) -> Virtual:
        """Create virtual samples as planned; deterministic."""
        raise NotImplementedError(f"{type(self).__name__} must define `transform`")

    def forward(
        self, clean: CleanPass, *, model: Predictor | None, generator: torch.Generator | None
    ) -> Virtual:
        """Plan, then transform; only compositions of augmentations override it."""
        planned = type(self).plan is not Augmentation.plan
        plan = self.plan(clean, model, random_numbers(generator)) if planned else None
        return self.transform(plan, clean)

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Raise a :class:`GraphTransplantError` if the model or data are not supported."""

    def prepare(self, train: GraphStore, generator: torch.Generator) -> None:
        """Fit to the training graphs, once before training."""

    def after_epoch(self, model: Predictor | nn.Module, validation: GraphStore) -> dict[str, float]:
        """Adapt or measure after an epoch; return measurements to record, by name."""
        return {}


_MUST = "`augment` must be an augmentation or several, such as gt.GraphTransplant()"


def as_augmentations(given: Any, must: str = _MUST) -> tuple[Augmentation, ...]:
    """Return one or several augmentations as a tuple; ``must`` starts the error for other types."""
    one = isinstance(given, Augmentation | str) or not isinstance(given, Iterable)
    several = (given,) if one else tuple(given)
    for each in several:
        if not isinstance(each, Augmentation):
            raise GraphTransplantError(f"{must}; got {each!r}")
    return several


def merged_measurements(*found: Mapping[str, float]) -> dict[str, float]:
    """Merge measurements; make names unique by appending _2, _3 and so on."""
    merged: dict[str, float] = {}
    for name, value in (item for measured in found for item in measured.items()):
        numbered = (f"{name}_{number}" for number in count(2))
        merged[next(key for key in chain([name], numbered) if key not in merged)] = value
    return merged
