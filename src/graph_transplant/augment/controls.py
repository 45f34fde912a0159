"""Controls: what a method must beat before its gain is its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graph_transplant.augment.base import Augmentation, CleanPass, Virtual, VirtualGraphs
from graph_transplant.augment.sampling import uniform
from graph_transplant.augment.transplant import GraphTransplant, MixedGraphs
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.graphs import GraphStore, Layout, layout_of
from graph_transplant.saliency import Predictor
from graph_transplant.segments import shuffled_segments


@dataclass(frozen=True, kw_only=True)
class VirtualLogits(Virtual):
    """Samples that the model has predicted already: nothing runs.

    Attributes:
        predicted: float ``[samples, outputs]``, with gradients.

    Example:
        >>> import graph_transplant as gt
        >>> samples = VirtualLogits(predicted=torch.zeros(1, 2), targets=torch.tensor([[0.5, 0.5]]))
        >>> samples.loss(gt.GraphClassifier(1, 2, hidden=4), "multiclass")
        tensor(0.6931)
    """

    predicted: Tensor

    def logits(self, model: Predictor) -> Tensor:
        """Return what the model said, float ``[samples, outputs]``."""
        return self.predicted


class LabelSmoothing(Augmentation):
    """Train on smoothed labels (Szegedy et al. 2016): a control for soft targets by themselves.

    With s for ``smoothing``, the smoothed loss is (1 - s) times the loss of the labels plus s times
    that of the uniform distribution. The loss of the labels is there already, with weight one; the
    virtual samples are the clean pass's own logits with uniform targets and the weight s / (1 - s).
    The sum is the smoothed loss divided by 1 - s, a factor that Adam's steps do not depend on; a
    limit of the gradient's norm is met at a gradient smaller by the same factor.

    With several labels per graph every label is smoothed towards one half; missing ones stay
    missing. Regression has no labels to smooth and is refused.

    Args:
        smoothing: s, in (0, 1).

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, dropout=0.0, seed=0)
        >>> batch = store.batch(range(8))
        >>> loss = gt.augmented_loss(model, batch, LabelSmoothing(0.1))
        >>> smoothed = torch.nn.functional.cross_entropy(
        ...     model(batch).logits, batch.y, label_smoothing=0.1
        ... )
        >>> bool(torch.isclose(0.9 * loss, smoothed))
        True
    """

    def __init__(self, smoothing: float = 0.1) -> None:
        super().__init__()
        if not 0 < smoothing < 1:
            raise GraphTransplantError(f"`smoothing` must be in (0, 1), got {smoothing}")
        self.smoothing = smoothing

    @property
    def gives_graphs(self) -> bool:
        """No: see :class:`Augmentation`."""
        return False

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Refuse regression; see :meth:`Augmentation.check`."""
        _check_labels(data.task, f"{data.name} is a regression data set")

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> VirtualLogits:
        """Give the clean logits uniform targets; see :meth:`Augmentation.forward`."""
        _check_labels(clean.task, "the task is regression")
        targets = clean.targets
        several = clean.task == "multilabel"
        level = 0.5 if several else 1 / targets.shape[1]
        smooth = torch.full_like(targets, level)
        if several:
            smooth = smooth.masked_fill(targets.isnan(), float("nan"))
        weight = targets.new_full((targets.shape[0],), self.smoothing / (1 - self.smoothing))
        return VirtualLogits(predicted=clean.prediction.logits, targets=smooth, weight=weight)


def _check_labels(task: str, reason: str) -> None:
    if task == "regression":
        raise DataError(f"label-smoothing needs classes or labels, but {reason}")


class OriginalGraphs(Augmentation):
    """Train on the original graphs a second time: a control for the second pass of every step.

    Every augmentation of graphs doubles the passes per step. This one does so with nothing new:
    the same graphs and targets, of which only dropout makes two different samples.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, seed=0)
        >>> batch = store.batch(range(8))
        >>> clean = gt.CleanPass(batch, torch.eye(6)[batch.y], model(batch))
        >>> OriginalGraphs()(clean, model=model, generator=None).batch is batch
        True
    """

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> VirtualGraphs:
        """Hand on the original graphs; see :meth:`Augmentation.forward`."""
        return VirtualGraphs(batch=clean.batch, targets=clean.targets)


class ShuffledSaliency(Augmentation):
    """Graph Transplant with saliency permuted within each graph: a control for saliency.

    Every graph keeps its saliency values, but which node has which is drawn at random. Anchors and
    label weights follow the permuted values, so that all is as in Graph Transplant except that
    saliency says nothing about the nodes.

    Args:
        transplant: The Graph Transplant whose saliency is permuted. Its parameters train as ever.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, seed=0)
        >>> shuffled = ShuffledSaliency(gt.GraphTransplant())
        >>> gt.augmented_loss(model, store.batch(range(8)), shuffled).backward()
    """

    def __init__(self, transplant: GraphTransplant) -> None:
        super().__init__()
        if not isinstance(transplant, GraphTransplant):
            raise GraphTransplantError(
                f"`transplant` must be a GraphTransplant, got {type(transplant).__name__}"
            )
        self.transplant = transplant

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> MixedGraphs:
        """Mix by permuted saliency; see :meth:`Augmentation.forward`."""
        reading = self.transplant.saliency
        saliency = clean.saliency(reading)
        order = shuffle_within_graphs(layout_of(clean.batch), generator)
        shuffled = clean.with_saliency(reading, saliency.index_select(0, order))
        mixed: MixedGraphs = self.transplant(shuffled, model=model, generator=generator)
        return mixed

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Refuse what the transplant refuses; see :meth:`Augmentation.check`."""
        self.transplant.check(model, data)

    def prepare(self, train: GraphStore, generator: torch.Generator) -> None:
        """Prepare the transplant; see :meth:`Augmentation.prepare`."""
        self.transplant.prepare(train, generator)

    def after_epoch(self, model: Predictor | nn.Module, validation: GraphStore) -> dict[str, float]:
        """Measure what the transplant measures; see :meth:`Augmentation.after_epoch`."""
        return self.transplant.after_epoch(model, validation)


def shuffle_within_graphs(layout: Layout, generator: torch.Generator | None) -> Tensor:
    """Draw a permutation of the nodes of each graph, every one equally likely.

    Args:
        layout: Which nodes belong to which graph.
        generator: Source of randomness; ``None`` is torch's own.

    Returns:
        For every node the node that takes its place, of the same graph, int64 ``[nodes]``.

    Example:
        >>> layout = Layout(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 1, 4]))
        >>> order = shuffle_within_graphs(layout, None)
        >>> int(order[0]), sorted(order[1:].tolist())
        (0, [1, 2, 3])
    """
    keys = uniform((layout.num_nodes,), generator, layout.segment.device)
    return shuffled_segments(keys, layout.segment)
