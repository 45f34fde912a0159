"""Metrics as functions of outputs and targets, and their bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot, softplus

from graph_transplant.errors import check_at_least
from graph_transplant.metrics import METRICS

CALIBRATION_BINS = 15
"""Number of bins, as in the paper."""


def expected_calibration_error(
    probabilities: Tensor, labels: Tensor, bins: int = CALIBRATION_BINS
) -> float:
    """Mean gap between confidence and accuracy of the predicted class, in bins of equal width.

    ``probabilities`` are float ``[graphs, classes]``, ``labels`` int64 ``[graphs]``.
    """
    confidence = probabilities.to(torch.double).amax(1)
    # Bins are (lower, upper].
    place = (confidence * bins).ceil().to(torch.long).sub_(1).clamp_(0, bins - 1)
    return _calibration_gap(probabilities, labels, place, bins)


def adaptive_calibration_error(
    probabilities: Tensor, labels: Tensor, bins: int = CALIBRATION_BINS
) -> float:
    r"""Calibration error in bins of about equal counts (Nguyen and O'Connor, EMNLP 2015).

    Equal confidences share a bin: with :math:`b` graphs of lower and :math:`c` of equal confidence,
    it is bin :math:`\lfloor (b + c/2)\, \mathrm{bins} / \mathrm{graphs} \rfloor`.
    """
    check_at_least(1, bins=bins)
    confidence = probabilities.to(torch.double).amax(1)
    _, inverse, count = torch.unique(confidence, return_inverse=True, return_counts=True)
    # Twice the middle rank, to stay in integers.
    middle = 2 * count.cumsum(0) - count
    place = (middle * bins).div(2 * max(labels.numel(), 1), rounding_mode="floor")[inverse]
    return _calibration_gap(probabilities, labels, place, bins)


def _calibration_gap(probabilities: Tensor, labels: Tensor, place: Tensor, bins: int) -> float:
    confidence, predicted = probabilities.to(torch.double).max(1)
    wrong = confidence - predicted.eq(labels).to(torch.double)
    gap = torch.zeros(bins, dtype=torch.double).index_add_(0, place, wrong)
    return float(gap.abs().sum() / labels.numel())


def roc_area(scores: Tensor, positive: Tensor) -> float:
    """Area under the ROC curve of float scores and bool ``[graphs]``; ties count half."""
    pos, neg = int(positive.sum()), int((~positive).sum())
    if not pos or not neg:
        return float("nan")
    _, inverse, count = torch.unique(scores, return_inverse=True, return_counts=True)
    upper = count.cumsum(0).to(torch.double)
    mean_rank = upper - (count - 1) / 2
    total = float(mean_rank[inverse][positive].sum())
    return (total - pos * (pos + 1) / 2) / (pos * neg)


def mean_precision(scores: Tensor, positive: Tensor) -> float:
    """Average precision of float scores and bool ``[graphs]``; ties share a threshold."""
    total = int(positive.sum())
    if not total:
        return float("nan")
    _, inverse, count = torch.unique(scores, return_inverse=True, return_counts=True)
    hits = torch.zeros_like(count).index_add_(0, inverse, positive.to(count.dtype))
    # Thresholds in descending order.
    hits, count = hits.flip(0).to(torch.double), count.flip(0).to(torch.double)
    precision = hits.cumsum(0) / count.cumsum(0)
    return float((hits * precision).sum() / total)


def _ranking(
    measured: Callable[[Tensor, Tensor], float], outputs: Tensor, targets: Tensor, task: str
) -> float | None:
    """Score the ranking of the second of two classes, or the mean over labels."""
    scores = outputs.to(torch.double)
    if task == "multiclass":
        if outputs.shape[1] != 2:
            return None
        log_probabilities = torch.log_softmax(scores, dim=1)
        margin = log_probabilities[:, 1] - log_probabilities[:, 0]
        return measured(margin, targets.argmax(1).eq(1))
    found = []
    for score, target in zip(scores.unbind(1), targets.unbind(1), strict=True):
        present = ~target.isnan()
        found.append(measured(score[present], target[present].gt(0.5)))
    return float(torch.tensor(found, dtype=torch.double).nanmean())


def probabilities_of(outputs: Tensor, targets: Tensor, task: str) -> tuple[Tensor, Tensor]:
    """Probabilities ``[rows, classes]`` and true classes; every known label entry is a row."""
    if task == "multiclass":
        return outputs.to(torch.double).softmax(1), targets.argmax(1)
    present = ~targets.isnan()
    positive = outputs[present].to(torch.double).sigmoid()
    return torch.stack((1 - positive, positive), dim=1), targets[present].gt(0.5).long()


def accuracy(outputs: Tensor, targets: Tensor, task: str) -> float:
    """Share of graphs, or of label entries, that are predicted correctly."""
    if task == "multiclass":
        right = outputs.argmax(1).eq(targets.argmax(1))
    else:
        present = ~targets.isnan()
        right = outputs[present].gt(0).eq(targets[present].gt(0.5))
    return float(right.to(torch.double).mean())


def auroc(outputs: Tensor, targets: Tensor, task: str) -> float | None:
    """Area under the ROC curve of two classes, or its mean over labels."""
    return _ranking(roc_area, outputs, targets, task)


def average_precision(outputs: Tensor, targets: Tensor, task: str) -> float | None:
    """Average precision of the second of two classes, or its mean over labels."""
    return _ranking(mean_precision, outputs, targets, task)


def ece(outputs: Tensor, targets: Tensor, task: str) -> float:
    """Expected calibration error, in 15 bins of equal width."""
    return expected_calibration_error(*probabilities_of(outputs, targets, task))


def adaptive_ece(outputs: Tensor, targets: Tensor, task: str) -> float:
    """Calibration error in 15 bins of equal counts."""
    return adaptive_calibration_error(*probabilities_of(outputs, targets, task))


def brier(outputs: Tensor, targets: Tensor, task: str) -> float:
    r"""Brier score :math:`\frac{1}{n} \sum_i \sum_c (p_{ic} - y_{ic})^2`; halved for labels."""
    probabilities, labels = probabilities_of(outputs, targets, task)
    wanted = one_hot(labels, probabilities.shape[1])
    score = float((probabilities - wanted).square().sum(1).mean())
    return score if task == "multiclass" else score / 2


def nll(outputs: Tensor, targets: Tensor, task: str) -> float:
    """Mean negative log-likelihood of the true classes or label entries."""
    scores = outputs.to(torch.double)
    if task == "multiclass":
        labels = targets.argmax(1, keepdim=True)
        return float(-torch.log_softmax(scores, dim=1).gather(1, labels).mean())
    present = ~targets.isnan()
    score, positive = scores[present], targets[present].gt(0.5)
    return float(softplus(torch.where(positive, -score, score)).mean())


def _errors(outputs: Tensor, targets: Tensor) -> Tensor:
    present = ~targets.isnan()
    return outputs[present].to(torch.double) - targets[present].to(torch.double)


def rmse(outputs: Tensor, targets: Tensor, task: str) -> float:
    """Root mean squared error over all known entries."""
    return float(_errors(outputs, targets).square().mean().sqrt())


def mae(outputs: Tensor, targets: Tensor, task: str) -> float:
    """Mean absolute error over all known entries."""
    return float(_errors(outputs, targets).abs().mean())


def r2(outputs: Tensor, targets: Tensor, task: str) -> float:
    """R², averaged over the outputs whose targets vary; NaN if none do."""
    found = []
    for output, target in zip(outputs.unbind(1), targets.unbind(1), strict=True):
        present = ~target.isnan()
        true = target[present].to(torch.double)
        error = output[present].to(torch.double) - target[present]
        if len(true) and bool(true.min() < true.max()):
            spread = (true - true.mean()).square().sum()
            found.append(float(1 - error.square().sum() / spread))
    return float(torch.tensor(found, dtype=torch.double).mean())


RESAMPLES: Final = 1000
LEVEL: Final = 0.95

# Without the calibration errors, which resampling biases upwards, and the Brier score.
_MEASURED: Final = ("accuracy", "nll", "auroc", "average_precision", "rmse", "mae", "r2")

# Above about this number of targets in all resamples, fewer are drawn, but at least a fifth.
_MOST_TARGETS: Final = 10_000_000


def bootstrap_intervals(
    logits: Tensor, targets: Tensor, task: str, seed: int = 0, *, rival: Tensor | None = None
) -> dict[str, tuple[float, float]]:
    """Return 95 % percentile intervals of the metrics, or of their differences to a ``rival``.

    Resamples in which a metric is undefined, such as AUROC without a positive graph, are ignored.
    """
    graphs = len(logits)
    generator = np.random.default_rng(seed)
    measured = [name for name in _MEASURED if task in METRICS[name].tasks]
    resamples = max(RESAMPLES // 5, min(RESAMPLES, _MOST_TARGETS // targets.numel()))
    values = np.zeros((resamples, len(measured)))
    for row in values:
        counts = generator.multinomial(graphs, np.full(graphs, 1 / graphs))
        drawn = torch.from_numpy(np.repeat(np.arange(graphs), counts))
        for outputs, sign in ((logits, 1), (rival, -1)):
            if outputs is not None:
                found = [METRICS[k].compute(outputs[drawn], targets[drawn], task) for k in measured]
                # None, for a metric that does not apply, becomes NaN.
                row += sign * np.array(found, float)
    ends = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    intervals = {}
    for name, column in zip(measured, values.T, strict=True):
        if not np.isnan(column).all():
            low, high = np.nanquantile(column, ends).tolist()
            intervals[name] = (low, high)
    return intervals
