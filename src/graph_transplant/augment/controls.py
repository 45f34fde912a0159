"""Controls: simple alternatives that a method has to outperform."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graph_transplant.augment.base import Augmentation, CleanPass, Virtual, VirtualGraphs
from graph_transplant.data import GraphStore
from graph_transplant.errors import DataError, check_in
from graph_transplant.nn.adapter import Predictor


@dataclass(frozen=True, kw_only=True)
class VirtualLogits(Virtual):
    """Samples that are already predicted, ``[samples, outputs]``: the model does not run again."""

    predicted: Tensor

    def outputs(self, model: Predictor) -> tuple[Tensor, None]:
        """Return the existing predictions, float ``[samples, outputs]``."""
        return self.predicted, None


class LabelSmoothing(Augmentation):
    """Train on smoothed labels (Szegedy et al. 2016): a control for soft targets alone.

    The smoothed loss is (1 - s) times the loss of the labels plus s times that of the uniform
    distribution. Training already includes the first with weight 1, so the virtual samples are the
    clean logits with uniform targets and weight s / (1 - s). The total is the smoothed loss divided
    by 1 - s, a factor that Adam's steps do not depend on. In multilabel tasks every label is
    smoothed towards one half; missing labels stay missing. Regression is not supported.

    Args:
        smoothing: s, in (0, 1).
    """

    gives_graphs = False

    def __init__(self, smoothing: float = 0.1) -> None:
        super().__init__()
        check_in("(0, 1)", smoothing=smoothing)
        self.smoothing = smoothing

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Raise for regression."""
        _check_labels(data.task, f"{data.name} is a regression data set")

    def transform(self, plan: None, clean: CleanPass) -> VirtualLogits:
        """Pair the clean logits with uniform targets."""
        _check_labels(clean.task, "the task is regression")
        targets = clean.targets
        several = clean.task == "multilabel"
        smooth = torch.full_like(targets, 0.5 if several else 1 / targets.shape[1])
        if several:
            smooth = smooth.masked_fill(targets.isnan(), float("nan"))
        weight = targets.new_full((targets.shape[0],), self.smoothing / (1 - self.smoothing))
        return VirtualLogits(predicted=clean.prediction.logits, targets=smooth, weight=weight)


def _check_labels(task: str, reason: str) -> None:
    if task == "regression":
        raise DataError(f"label-smoothing needs classes or labels, but {reason}")


class OriginalGraphs(Augmentation):
    """Train on the original graphs twice: a control for the second pass; only dropout differs."""

    def transform(self, plan: None, clean: CleanPass) -> VirtualGraphs:
        """Return the original graphs."""
        return VirtualGraphs(batch=clean.batch, targets=clean.targets)
