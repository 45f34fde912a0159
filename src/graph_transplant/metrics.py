"""Measurements of predictions: accuracy, calibration error, likelihood, ranking."""

from __future__ import annotations

import torch
from torch import Tensor

from graph_transplant.errors import DataError

CALIBRATION_BINS = 15


def expected_calibration_error(
    probabilities: Tensor, labels: Tensor, bins: int = CALIBRATION_BINS
) -> float:
    """Compute the expected calibration error of the predicted class, in equal-width bins.

    Args:
        probabilities: float ``[graphs, classes]``.
        labels: True classes, int64 ``[graphs]``.
        bins: Number of bins; 15 as in the paper.

    Returns:
        Mean gap between confidence and accuracy over the bins, weighted by how many fall in each.

    Example:
        >>> p = torch.tensor([[0.9, 0.1], [0.9, 0.1]])
        >>> round(expected_calibration_error(p, torch.tensor([0, 1])), 3)
        0.4
    """
    confidence, predicted = probabilities.to(torch.double).max(1)
    correct = predicted.eq(labels).to(torch.double)
    # Bins are (lower, upper]: a confidence on an edge belongs to the bin below it.
    place = (confidence * bins).ceil().to(torch.long).sub_(1).clamp_(0, bins - 1)
    gap = torch.zeros(bins, dtype=torch.double).index_add_(0, place, confidence - correct)
    return float(gap.abs().sum() / max(labels.numel(), 1))


def area_under_roc(scores: Tensor, positive: Tensor) -> float:
    """Compute the area under the ROC curve; ties count one half.

    Args:
        scores: Larger means more likely positive, float ``[graphs]``.
        positive: bool ``[graphs]``.

    Returns:
        A number between 0 and 1, or NaN when only one class is present.

    Example:
        >>> area_under_roc(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1]).bool())
        0.75
    """
    pos, neg = int(positive.sum()), int((~positive).sum())
    if not pos or not neg:
        return float("nan")
    _, inverse, count = torch.unique(scores, return_inverse=True, return_counts=True)
    upper = count.cumsum(0).to(torch.double)
    mean_rank = upper - (count - 1) / 2
    total = float(mean_rank[inverse][positive].sum())
    return (total - pos * (pos + 1) / 2) / (pos * neg)


def classification_metrics(logits: Tensor, targets: Tensor) -> dict[str, float]:
    """Measure the predictions of a classifier.

    Args:
        logits: float ``[graphs, classes]``.
        targets: One-hot, float ``[graphs, classes]``.

    Returns:
        ``accuracy``, ``ece`` (15 equal-width bins), ``nll``, and for two classes ``auroc``.

    Example:
        >>> figures = classification_metrics(torch.tensor([[4.0, 0.0], [0.0, 4.0]]), torch.eye(2))
        >>> figures["accuracy"], figures["auroc"]
        (1.0, 1.0)
    """
    if logits.shape != targets.shape:
        raise DataError(
            f"`logits` and `targets` must have one shape; got {list(logits.shape)} and "
            f"{list(targets.shape)}"
        )
    labels = targets.argmax(1)
    log_probabilities = torch.log_softmax(logits.to(torch.double), dim=1)
    figures = {
        "accuracy": float(logits.argmax(1).eq(labels).to(torch.double).mean()),
        "ece": expected_calibration_error(log_probabilities.exp(), labels),
        "nll": float(-log_probabilities.gather(1, labels.unsqueeze(1)).mean()),
    }
    if logits.shape[1] == 2:
        margin = log_probabilities[:, 1] - log_probabilities[:, 0]
        figures["auroc"] = area_under_roc(margin, labels.eq(1))
    return figures
