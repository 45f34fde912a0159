"""Calibration: reliability of probabilities, and temperature scaling.

Networks that fit their training graphs perfectly tend to be overconfident. Temperature scaling
(Guo, Pleiss, Sun and Weinberger, ICML 2017) divides all logits by one number, fitted on held-out
graphs. The order of the classes, and so the accuracy, does not change.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.metrics import TASKS, TEMPERATURES, measure
from graph_transplant.metrics.functional import CALIBRATION_BINS, probabilities_of


def fit_temperature(logits: Tensor, targets: Tensor, task: str = "multiclass") -> float:
    """Find the temperature in 0.2 to 20 with the highest likelihood on held-out graphs.

    The negative log-likelihood is convex in the inverse temperature, so its slope crosses zero
    once. ``targets`` are one-hot; or 0, 1 and NaN (missing) for ``"multilabel"``, whose labels
    share one temperature. Returns 1 if the graphs do not determine it: all are predicted correctly,
    so that a lower temperature always fits better; all have the same class or label value; or there
    are none.

    Example:
        >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [4.0, 0.0]])
        >>> targets = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> temperature = fit_temperature(logits, targets)
        >>> [round(p, 3) for p in (logits[0] / temperature).softmax(0).tolist()]
        [0.75, 0.25]
    """
    from scipy.optimize import brentq

    check_choice("task", task, TASKS[:2])
    _check_shapes(logits, targets)
    scores, wanted = logits.detach().to(torch.double), targets.to(torch.double)
    if not bool(torch.isfinite(scores).all()):
        raise GraphTransplantError("`logits` must be finite numbers to fit a temperature to them")
    if task == "multilabel":
        present = ~wanted.isnan()
        scores, wanted = scores[present], wanted[present]
    else:
        # Only differences between classes matter; a common offset would cost precision.
        scores = scores - scores.amax(1, keepdim=True)
    if _kinds(targets, task) < 2 or _all_right(logits, targets, task):
        return 1.0
    reached = (wanted * scores).sum()

    def slope(inverse: float) -> float:
        """Derivative of the negative log-likelihood with respect to the inverse temperature."""
        heated = scores * inverse
        expected = heated.sigmoid() if task == "multilabel" else heated.softmax(1)
        return float((expected * scores).sum() - reached)

    lowest, highest = TEMPERATURES
    if slope(1 / lowest) <= 0:
        # If each graph's logits are all equal, the slope is zero everywhere.
        return lowest if slope(1 / highest) < 0 else 1.0
    if slope(1 / highest) >= 0:
        return highest
    inverse: float = brentq(slope, 1 / highest, 1 / lowest, xtol=1e-12, rtol=1e-14)
    return 1 / inverse


def reliability(
    probabilities: Tensor, labels: Tensor, bins: int = CALIBRATION_BINS
) -> list[dict[str, Any]]:
    """Compare confidence with accuracy, in bins (lower, upper] of equal width.

    The means are NaN in an empty bin. The mean gap, weighted by the counts, is the
    :func:`~graph_transplant.metrics.functional.expected_calibration_error`.
    """
    confidence, predicted = probabilities.to(torch.double).max(1)
    right = predicted.eq(labels).to(torch.double)
    # As in `expected_calibration_error`: a confidence on an edge belongs to the bin below it.
    place = (confidence * bins).ceil().to(torch.long).sub_(1).clamp_(0, bins - 1)
    count = torch.bincount(place, minlength=bins)
    sums = torch.zeros(2, bins, dtype=torch.double)
    sums.index_add_(1, place, torch.stack((confidence, right)))
    means = sums / count
    columns = zip(count.tolist(), *means.tolist(), strict=True)
    return [
        {"lower": n / bins, "upper": (n + 1) / bins, "count": c, "confidence": p, "accuracy": share}
        for n, (c, p, share) in enumerate(columns)
    ]


def calibration(
    validation_logits: Tensor,
    validation_targets: Tensor,
    test_logits: Tensor,
    test_targets: Tensor,
    task: str,
) -> dict[str, Any]:
    """Calibrate a model on its validation graphs and measure the result on its test graphs.

    The temperature is that of :func:`fit_temperature`; 1 if the logits of the validation graphs are
    not finite.

    Returns:
        JSON values; empty for ``"regression"``. ``calibrated`` has the ``temperature`` and the test
        metrics with it. ``reliability`` (without the temperature) and ``reliability_calibrated``
        list the non-empty bins.
    """
    if check_choice("task", task, TASKS) == "regression":
        return {}
    _check_shapes(validation_logits, validation_targets, "validation_")
    _check_shapes(test_logits, test_targets, "test_")
    temperature = 1.0
    if bool(torch.isfinite(validation_logits).all()):
        temperature = fit_temperature(validation_logits, validation_targets, task)
    raw = test_logits.detach().to(torch.double)
    figures = measure(raw / temperature, test_targets, task)
    return {
        "calibrated": {
            "temperature": temperature,
            **{name: figures[name] for name in ("ece", "adaptive_ece", "brier", "nll")},
        },
        "reliability": _rows(raw, test_targets, task),
        "reliability_calibrated": _rows(raw / temperature, test_targets, task),
    }


def _check_shapes(logits: Tensor, targets: Tensor, part: str = "") -> None:
    if logits.shape != targets.shape or logits.dim() != 2:
        raise GraphTransplantError(
            f"`{part}logits` and `{part}targets` must have one shape [graphs, outputs]; got "
            f"{list(logits.shape)} and {list(targets.shape)}"
        )


def _kinds(targets: Tensor, task: str) -> int:
    """Count the classes, or label values, that are present."""
    present = targets[~targets.isnan()] if task == "multilabel" else targets.argmax(1)
    return len(torch.unique(present))


def _all_right(logits: Tensor, targets: Tensor, task: str) -> bool:
    if task == "multilabel":
        right = (logits.gt(0) == targets.gt(0.5)) | targets.isnan()
    else:
        right = logits.argmax(1) == targets.argmax(1)
    return bool(right.all())


def _rows(logits: Tensor, targets: Tensor, task: str) -> list[dict[str, int | float]]:
    """Return the non-empty bins of a reliability diagram."""
    if task == "multilabel":
        probabilities, labels = probabilities_of(logits, targets, task)
    else:
        probabilities, labels = logits.log_softmax(1).exp(), targets.argmax(1)
    known = ~probabilities.isnan().any(1)
    bins = enumerate(reliability(probabilities[known], labels[known]))
    names = ("count", "confidence", "accuracy")
    return [{"bin": n, **{name: one[name] for name in names}} for n, one in bins if one["count"]]
