"""Measurements of predictions: accuracy, calibration error, likelihood, ranking."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import one_hot, softplus

from graph_transplant.errors import DataError, GraphTransplantError, check_choice
from graph_transplant.metrics import TASKS

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
        Mean gap between confidence and accuracy over the bins, weighted by how many fall in each;
        NaN without graphs.

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
    return float(gap.abs().sum() / labels.numel())


def adaptive_calibration_error(
    probabilities: Tensor, labels: Tensor, bins: int = CALIBRATION_BINS
) -> float:
    r"""Compute the calibration error of the predicted class, in bins of equal counts.

    Equal-width bins put most graphs of a sure model into the last one; these hold about as many
    graphs each (Nguyen and O'Connor, EMNLP 2015). Graphs go into bins by the rank of their
    confidence. Equal confidences are never parted: all go where the middle of their ranks belongs.
    So the result does not depend on the order of the graphs, and bins of many ties differ in size.
    With :math:`b` graphs of lower confidence and :math:`c` of the same, bin
    :math:`\lfloor (b + c/2)\, \mathrm{bins} / \mathrm{graphs} \rfloor` is theirs.

    Args:
        probabilities: float ``[graphs, classes]``.
        labels: True classes, int64 ``[graphs]``.
        bins: Number of bins; with fewer graphs, each has its own.

    Returns:
        Mean gap between confidence and accuracy over the bins, weighted by how many fall in each;
        NaN without graphs.

    Example:
        >>> p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.3, 0.7]])
        >>> round(adaptive_calibration_error(p, torch.tensor([0, 1, 0, 1]), bins=2), 3)
        0.375
    """
    if bins < 1:
        raise GraphTransplantError(f"`bins` must be at least 1, got {bins}")
    confidence, predicted = probabilities.to(torch.double).max(1)
    correct = predicted.eq(labels).to(torch.double)
    _, inverse, count = torch.unique(confidence, return_inverse=True, return_counts=True)
    # Twice the middle rank, so that everything stays a whole number.
    middle = 2 * count.cumsum(0) - count
    place = (middle * bins).div(2 * max(labels.numel(), 1), rounding_mode="floor")[inverse]
    gap = torch.zeros(bins, dtype=torch.double).index_add_(0, place, confidence - correct)
    return float(gap.abs().sum() / labels.numel())


def brier_score(probabilities: Tensor, labels: Tensor) -> float:
    r"""Compute the Brier score :math:`\frac{1}{n} \sum_i \sum_c (p_{ic} - y_{ic})^2`.

    It is a proper score: no other probabilities have a lower expectation than the true ones. For
    two classes it is twice the mean of :math:`(p - y)^2` of one of them, as in Brier's paper of
    1950.

    Args:
        probabilities: float ``[graphs, classes]``.
        labels: True classes, int64 ``[graphs]``.

    Returns:
        A number from 0 to 2; NaN without graphs.

    Example:
        >>> brier_score(torch.tensor([[0.5, 0.5], [1.0, 0.0]]), torch.tensor([0, 0]))
        0.25
    """
    wanted = one_hot(labels, probabilities.shape[1])
    return float((probabilities.to(torch.double) - wanted).square().sum(1).mean())


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


def mean_area_under_roc(logits: Tensor, targets: Tensor, task: str = "multiclass") -> float:
    """Compute the area under the ROC curve of two classes, or its mean over labels.

    Args:
        logits: float ``[graphs, outputs]``.
        targets: One-hot for ``"multiclass"``, which must have two classes; 0, 1 or NaN (missing)
            for ``"multilabel"``. float ``[graphs, outputs]``.
        task: ``"multiclass"`` or ``"multilabel"``.

    Returns:
        A number between 0 and 1. Labels of which the present entries are all equal do not count; it
        is NaN when no label is left.

    Example:
        >>> logits = torch.tensor([[1.0, 3.0], [2.0, 1.0], [3.0, 2.0]])
        >>> targets = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, float("nan")]])
        >>> mean_area_under_roc(logits, targets, "multilabel")
        1.0
    """
    return _mean_ranking(area_under_roc, "the area under the ROC curve", logits, targets, task)


def _mean_ranking(
    measured: Callable[[Tensor, Tensor], float],
    name: str,
    logits: Tensor,
    targets: Tensor,
    task: str,
) -> float:
    """Measure a ranking by the second of two classes, or by each label and take the mean."""
    _check_shapes(logits, targets)
    scores = logits.to(torch.double)
    if check_choice("task", task, TASKS[:2]) == "multiclass":
        if logits.shape[1] != 2:
            raise DataError(f"{name} needs two classes, or labels; got {logits.shape[1]} classes")
        log_probabilities = torch.log_softmax(scores, dim=1)
        margin = log_probabilities[:, 1] - log_probabilities[:, 0]
        return measured(margin, targets.argmax(1).eq(1))
    found = []
    for score, target in zip(scores.unbind(1), targets.unbind(1), strict=True):
        present = ~target.isnan()
        found.append(measured(score[present], target[present].gt(0.5)))
    # What is undefined is NaN, and an average of nothing is too.
    return float(torch.tensor(found, dtype=torch.double).nanmean())


def average_precision(scores: Tensor, positive: Tensor) -> float:
    """Compute the average precision: precision at every positive, ties taken together.

    Args:
        scores: Larger means more likely positive, float ``[graphs]``.
        positive: bool ``[graphs]``.

    Returns:
        A number between 0 and 1, or NaN when nothing is positive.

    Example:
        >>> scores = torch.tensor([0.1, 0.4, 0.35, 0.8])
        >>> round(average_precision(scores, torch.tensor([0, 0, 1, 1]).bool()), 4)
        0.8333
    """
    total = int(positive.sum())
    if not total:
        return float("nan")
    _, inverse, count = torch.unique(scores, return_inverse=True, return_counts=True)
    hits = torch.zeros_like(count).index_add_(0, inverse, positive.to(count.dtype))
    # Thresholds from the highest score down; graphs of one score are found together.
    hits, count = hits.flip(0).to(torch.double), count.flip(0).to(torch.double)
    precision = hits.cumsum(0) / count.cumsum(0)
    return float((hits * precision).sum() / total)


def mean_average_precision(logits: Tensor, targets: Tensor, task: str = "multiclass") -> float:
    """Compute the average precision of the second of two classes, or its mean over labels.

    Which class is the second matters: the rarer one is the one to be found. Where classes are words
    in a file, the rarer is made the second; numbers keep their order.

    Args:
        logits: float ``[graphs, outputs]``.
        targets: One-hot for ``"multiclass"``, which must have two classes; 0, 1 or NaN (missing)
            for ``"multilabel"``. float ``[graphs, outputs]``.
        task: ``"multiclass"`` or ``"multilabel"``.

    Returns:
        A number between 0 and 1. Labels without a positive entry do not count; it is NaN when no
        label is left.

    Example:
        >>> logits = torch.tensor([[1.0, 3.0], [2.0, 1.0], [3.0, 2.0]])
        >>> targets = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, float("nan")]])
        >>> mean_average_precision(logits, targets, "multilabel")
        0.75
    """
    return _mean_ranking(average_precision, "average precision", logits, targets, task)


def _check_shapes(logits: Tensor, targets: Tensor) -> None:
    if logits.shape != targets.shape:
        raise DataError(
            f"`logits` and `targets` must have one shape; got {list(logits.shape)} and "
            f"{list(targets.shape)}"
        )


def mean_r2(outputs: Tensor, targets: Tensor) -> float:
    """Compute the coefficient of determination R², the mean over outputs.

    It is 1 minus the squared error as a share of the variance: 1 is perfect, 0 as good as the mean
    of the targets, and there is no lower end. Shifting and scaling targets and outputs together
    does not change it.

    Args:
        outputs: float ``[graphs, outputs]``.
        targets: With NaN where an entry is missing, float ``[graphs, outputs]``.

    Returns:
        The mean over the outputs whose targets are not all equal; NaN when there is none.

    Example:
        >>> mean_r2(torch.tensor([[1.0], [2.0], [2.0]]), torch.tensor([[1.0], [2.0], [3.0]]))
        0.5
    """
    _check_shapes(outputs, targets)
    found = []
    for output, target in zip(outputs.unbind(1), targets.unbind(1), strict=True):
        present = ~target.isnan()
        true, error = (
            target[present].to(torch.double),
            (output[present].to(torch.double) - target[present]),
        )
        if len(true) and bool(true.min() < true.max()):
            spread = (true - true.mean()).square().sum()
            found.append(float(1 - error.square().sum() / spread))
    return float(torch.tensor(found, dtype=torch.double).mean())


def probabilities_of(outputs: Tensor, targets: Tensor, task: str) -> tuple[Tensor, Tensor]:
    """Probabilities ``[rows, classes]`` and true classes ``[rows]``.

    Of labels, every entry that is present is a row of two classes.
    """
    if task == "multiclass":
        return outputs.to(torch.double).softmax(1), targets.argmax(1)
    present = ~targets.isnan()
    positive = outputs[present].to(torch.double).sigmoid()
    return torch.stack((1 - positive, positive), dim=1), targets[present].gt(0.5).long()


# -------------------------------------------------------------------- metrics of the registry
#
# Each takes outputs and targets, float [graphs, outputs], and the task, and gives a number: NaN
# where it is not defined on these graphs, None where it never is.


def accuracy(outputs: Tensor, targets: Tensor, task: str) -> float:
    """Share of graphs, or of entries of labels, that are predicted correctly."""
    if task == "multiclass":
        right = outputs.argmax(1).eq(targets.argmax(1))
    else:
        present = ~targets.isnan()
        right = outputs[present].gt(0).eq(targets[present].gt(0.5))
    return float(right.to(torch.double).mean())


def auroc(outputs: Tensor, targets: Tensor, task: str) -> float | None:
    """Area under the ROC curve of two classes, or its mean over labels."""
    if task == "multiclass" and outputs.shape[1] != 2:
        return None
    return mean_area_under_roc(outputs, targets, task)


def average_precision_score(outputs: Tensor, targets: Tensor, task: str) -> float | None:
    """Average precision of the second of two classes, or its mean over labels."""
    if task == "multiclass" and outputs.shape[1] != 2:
        return None
    return mean_average_precision(outputs, targets, task)


def ece(outputs: Tensor, targets: Tensor, task: str) -> float:
    """Expected calibration error, in 15 bins of equal width."""
    return expected_calibration_error(*probabilities_of(outputs, targets, task))


def adaptive_ece(outputs: Tensor, targets: Tensor, task: str) -> float:
    """Calibration error in 15 bins of equal counts."""
    return adaptive_calibration_error(*probabilities_of(outputs, targets, task))


def brier(outputs: Tensor, targets: Tensor, task: str) -> float:
    """Brier score; of labels the mean of :math:`(p - y)^2` over the entries."""
    score = brier_score(*probabilities_of(outputs, targets, task))
    return score if task == "multiclass" else score / 2


def nll(outputs: Tensor, targets: Tensor, task: str) -> float:
    """Mean negative log-likelihood of the true classes, or of the entries of labels."""
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
    """Root of the mean squared error over all entries that are present."""
    return float(_errors(outputs, targets).square().mean().sqrt())


def mae(outputs: Tensor, targets: Tensor, task: str) -> float:
    """Mean absolute error over all entries that are present."""
    return float(_errors(outputs, targets).abs().mean())


def r2(outputs: Tensor, targets: Tensor, task: str) -> float:
    """Coefficient of determination, the mean over outputs."""
    return mean_r2(outputs, targets)
