"""Registry of metrics.

To add a metric, put a :class:`Metric` into :data:`METRICS`: trials then record it, and tables,
pages and help texts show it. This module does not import torch.
"""

from __future__ import annotations

import math
from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from graph_transplant.errors import DataError, GraphTransplantError, check_choice
from graph_transplant.utils.lazy import resolve
from graph_transplant.utils.text import number, percent, points, units

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "METRICS",
    "TASKS",
    "Metric",
    "measure",
    "selection_metrics",
]

Task = Literal["multiclass", "multilabel", "regression"]

TASKS: Final[tuple[Task, ...]] = get_args(Task)

TEMPERATURES: Final = (0.2, 20.0)
"""Lowest and highest temperature that calibration divides logits by."""

Compute = Callable[["Tensor", "Tensor", str], float | None]


@dataclass(frozen=True)
class Metric:
    """A metric of predictions.

    Attributes:
        title: Display name.
        definition: One or two sentences for readers of tables.
        compute: Takes outputs and targets, float ``[graphs, outputs]``, and the task; returns NaN
            if undefined on these graphs, ``None`` if the metric does not apply.
        tasks: Tasks it applies to.
        higher: Whether higher is better.
        decides: Tasks in which it can select checkpoints, candidates and methods; of built-in
            metrics, for which higher is better.
        form: Formats a value.
        share: Whether comparisons show it in per cent, and differences in points.
        bounds: Smallest and largest possible value.

    Example:
        >>> METRICS["auroc"].title, METRICS["auroc"].word, METRICS["accuracy"].word
        ('AUROC', 'AUROC', 'accuracy')
    """

    title: str
    definition: str
    compute: Compute
    tasks: tuple[str, ...]
    higher: bool = True
    decides: tuple[str, ...] = ()
    form: Callable[[float | None], str] = number
    share: bool = True
    bounds: tuple[float, float] = (-math.inf, math.inf)

    @property
    def word(self) -> str:
        """The title within a sentence."""
        if self.title[1:2].isupper() or "²" in self.title or self.title.startswith("Brier"):
            return self.title
        return self.title[:1].lower() + self.title[1:]

    def score(self, value: float | None, *, unit: bool = False) -> str:
        """Format a value in a comparison by this metric."""
        return percent(value, unit=unit) if self.share else number(value)

    def gap(self, value: float | None, *, sign: bool = True) -> str:
        """Format a difference of two values."""
        return points(value, sign=sign) if self.share else number(value, sign=sign)

    def gap_words(self, value: float | None, *, sign: bool = True) -> str:
        """Format a difference of two values with its unit; without ``sign``, its size."""
        size = value if sign or value is None else abs(value)
        unit = f"points of {self.word}" if self.share else f"in {self.word}"
        return f"{self.gap(size, sign=sign)} {'points' if self.word == 'accuracy' else unit}"


def _metric(name: str, title: str, definition: str, *tasks: str, **more: Any) -> Metric:
    """Metric implemented by the function ``name`` in :mod:`graph_transplant.metrics.functional`."""

    def compute(outputs: Tensor, targets: Tensor, task: str) -> float | None:
        function: Compute = resolve(f"metrics.functional:{name}")
        return function(outputs, targets, task)

    return Metric(title, definition, compute, tasks, **more)


_LABELLED: Final = TASKS[:2]

RESERVED: Final = frozenset(
    (
        *("data", "model", "layers", "label_noise", "train_fraction", "method", "repeat", "fold"),
        *("metric", "score", "validation_score", "epochs", "best_epoch", "seconds"),
        *(
            "processor_seconds",
            "processor",
            "threads",
            "train_graphs",
            "left_out_graphs",
            "validation_graphs",
        ),
        *("test_graphs", "folds", "split", "chosen_layers", "chosen_method"),
    )
)
"""Columns of a table of trials, which are no names of metrics."""


class Metrics(UserDict[str, Metric]):
    """Metrics by name, each of which has a column in tables of trials."""

    def __setitem__(self, name: str, metric: Metric) -> None:
        if name in RESERVED:
            raise GraphTransplantError(
                f"a metric cannot be named {name!r}: tables of trials have a column of that name; "
                f"name it, for example, {f'my_{name}'!r}"
            )
        super().__setitem__(name, metric)


_BUILT_IN: dict[str, Metric] = {
    "accuracy": _metric(
        "accuracy",
        "Accuracy",
        "Share of test graphs whose class was predicted correctly; for multilabel tasks, of right "
        "entries.",
        *_LABELLED,
        decides=TASKS[:1],
        form=percent,
        bounds=(0.0, 1.0),
    ),
    "auroc": _metric(
        "auroc",
        "AUROC",
        "Area under the ROC curve: the chance that a graph that has the label is ranked above one "
        "that does not; for multilabel tasks the mean over labels. 50 % is guessing.",
        *_LABELLED,
        decides=_LABELLED,
        bounds=(0.0, 1.0),
    ),
    "average_precision": _metric(
        "average_precision",
        "Average precision",
        "Area under the precision-recall curve, as the mean precision at the rank of each graph "
        "that has the label; for multilabel tasks the mean over labels. Of two classes the second "
        "counts as the label; in a table whose classes are neither numbers nor pairs such as no "
        "and yes, that is the rarer one. Guessing reaches the share of graphs that have the label.",
        *_LABELLED,
        decides=_LABELLED,
        bounds=(0.0, 1.0),
    ),
    "r2": _metric(
        "r2",
        "R²",
        "Share of the variance of the true values that the predictions explain; the mean over "
        "outputs. 1 is perfect, 0 as good as always predicting the mean; it may be negative.",
        "regression",
        decides=TASKS[2:],
        share=False,
        bounds=(-math.inf, 1.0),
    ),
    "ece": _metric(
        "ece",
        "ECE",
        "Expected calibration error: how far stated confidence is from actual accuracy, over 15 "
        "bins. 0 is perfect.",
        *_LABELLED,
        higher=False,
    ),
    "nll": _metric(
        "nll",
        "NLL",
        "Negative log-likelihood of the true class on the test graphs.",
        *_LABELLED,
        higher=False,
    ),
    "adaptive_ece": _metric(
        "adaptive_ece",
        "Adaptive ECE",
        "Calibration error over bins that hold equally many graphs.",
        *_LABELLED,
        higher=False,
    ),
    "brier": _metric(
        "brier",
        "Brier score",
        "Mean squared distance between stated probabilities and the truth.",
        *_LABELLED,
        higher=False,
    ),
    "rmse": _metric(
        "rmse",
        "RMSE",
        "Root of the mean squared error, in the units of the data; of several targets together.",
        "regression",
        higher=False,
        form=units,
    ),
    "mae": _metric(
        "mae",
        "MAE",
        "Mean absolute error, in the units of the data; of several targets together.",
        "regression",
        higher=False,
        form=units,
    ),
}

METRICS = Metrics(_BUILT_IN)
"""All metrics by name, as in records and on the command line."""

BUILT_IN: Final = frozenset(_BUILT_IN)
"""Names of the metrics of this package; users may add others."""


def selection_metrics(task: str | None = None) -> list[str]:
    """Names of the metrics that can select methods, for one task or any."""
    return [
        name
        for name, metric in METRICS.items()
        if (metric.decides if task is None else task in metric.decides)
    ]


def defined(metric: str, targets: Tensor, task: str) -> bool:
    """Whether a metric can select a model by these targets, float ``[graphs, outputs]``.

    Accuracy always can: without classes, it stands for the loss.
    """
    if metric == "accuracy":
        return True
    if task not in METRICS[metric].decides:
        return False
    # Average precision without negatives is defined, but 1 for any model.
    decisive = METRICS["auroc" if metric == "average_precision" else metric]
    value = decisive.compute(targets.new_zeros(targets.shape), targets, task)
    return value is not None and not math.isnan(value)


def measure(outputs: Tensor, targets: Tensor, task: str) -> dict[str, float]:
    """Compute all metrics of a task from float ``[graphs, outputs]``; missing targets are NaN."""
    check_choice("task", task, TASKS)
    if outputs.shape != targets.shape:
        raise DataError(
            f"outputs and targets must have one shape; got {list(outputs.shape)} and "
            f"{list(targets.shape)}"
        )
    found = {
        name: metric.compute(outputs, targets, task)
        for name, metric in METRICS.items()
        if task in metric.tasks
    }
    return {name: value for name, value in found.items() if value is not None}


def no_better_than_random(measured: Mapping[str, Any]) -> bool:
    """Whether salient nodes affect predictions no more than random ones; false if unknown."""

    def area(name: str) -> float:
        value = measured.get(name)
        return math.nan if value is None else float(value)

    removed = area("deletion") >= area("deletion_random")
    return removed and area("insertion") <= area("insertion_random")
