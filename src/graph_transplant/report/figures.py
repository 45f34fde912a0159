"""The numbers of the report's figures; nothing is drawn here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graph_transplant.experiments.across import Across
from graph_transplant.experiments.protocol import Record
from graph_transplant.experiments.summary import SIGNIFICANT, SummaryRow, paired_differences

GRID_POINTS = 60
"""Number of epochs at which mean learning curves are given."""


@dataclass(frozen=True)
class Score:
    """One trial's score.

    Args:
        repeat: Number of the repeat.
        fold: Number of the fold.
        value: The score.
    """

    repeat: int
    fold: int
    value: float


@dataclass(frozen=True)
class ScoreRow:
    """The scores of one method.

    Args:
        method: Name of the method.
        scores: One score per trial, by repeat and fold.
        mean: Their mean.
    """

    method: str
    scores: list[Score]
    mean: float


def scores_data(methods: Mapping[str, Sequence[Record]], name: str) -> list[ScoreRow]:
    """Collect one test measurement of every trial.

    Args:
        methods: Records of each method, in the order to show them.
        name: Name of the measurement, such as ``"accuracy"`` or ``"ece"``.

    Returns:
        One row per method that has the measurement.

    Example:
        >>> record = {"repeat": 0, "fold": 0, "test": {"accuracy": 0.5}}
        >>> rows = scores_data({"vanilla": [record, record | {"fold": 1}]}, "accuracy")
        >>> rows[0].mean, len(rows[0].scores)
        (0.5, 2)
    """
    rows = []
    for method, records in methods.items():
        scores = [
            Score(record["repeat"], record["fold"], record["test"][name])
            for record in records
            if record["test"].get(name) is not None
        ]
        if scores:
            values = [score.value for score in scores]
            rows.append(ScoreRow(method, scores, float(np.mean(values))))
    return rows


def attacked_data(methods: Mapping[str, Sequence[Record]]) -> dict[float, list[ScoreRow]]:
    """Collect the accuracy of every trial under attack.

    Args:
        methods: Records of each method, in the order to show them.

    Returns:
        For each budget of the attack, one row per method that was attacked.

    Example:
        >>> record = {"repeat": 0, "fold": 0,
        ...           "attacked": [{"budget": 0.2, "edges": 12, "accuracy": 0.5}]}
        >>> attacked_data({"vanilla": [record]})[0.2][0].mean
        0.5
    """
    found: dict[float, list[ScoreRow]] = {}
    for method, records in methods.items():
        budgets: dict[float, list[Score]] = {}
        for record in records:
            for attack in record.get("attacked", ()):
                score = Score(record["repeat"], record["fold"], attack["accuracy"])
                budgets.setdefault(attack["budget"], []).append(score)
        for budget, scores in budgets.items():
            mean = float(np.mean([score.value for score in scores]))
            found.setdefault(budget, []).append(ScoreRow(method, scores, mean))
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class DifferenceRow:
    """The difference of one method to the baseline.

    Args:
        method: Name of the method.
        values: Difference of each fold that both have, in points.
        mean: Their mean, in points.
        low: Lower end of the 95 % interval in points, or nothing.
        high: Upper end of the 95 % interval in points, or nothing.
        p_holm: p-value after Holm's correction, or nothing.
        significant: Whether it is below 0.05.
    """

    method: str
    values: list[float]
    mean: float
    low: float | None
    high: float | None
    p_holm: float | None
    significant: bool


def differences_data(
    rows: Sequence[SummaryRow], methods: Mapping[str, Sequence[Record]], baseline: str
) -> list[DifferenceRow]:
    """Collect the differences to the baseline, in points of the metric.

    Args:
        rows: Summary of the methods, in the order to show them.
        methods: Records of each method.
        baseline: Name of the method to compare with.

    Returns:
        One row per other method that shares a fold with the baseline.
    """
    found = []
    for row in rows:
        if row.difference is None:
            continue
        pairs = paired_differences(methods[row.method], methods[baseline])
        found.append(
            DifferenceRow(
                row.method,
                [100 * difference for _, _, difference in pairs],
                100 * row.difference,
                None if row.ci_low is None else 100 * row.ci_low,
                None if row.ci_high is None else 100 * row.ci_high,
                row.p_holm,
                row.p_holm is not None and row.p_holm < SIGNIFICANT,
            )
        )
    return found


@dataclass(frozen=True)
class Curve:
    """A learning curve, averaged over trials.

    Args:
        method: Name of the method.
        epochs: Epochs, ascending.
        values: Mean over the trials that trained that long.
        trials: Number of trials the curve starts with.
    """

    method: str
    epochs: list[float]
    values: list[float]
    trials: int


def curves_data(methods: Mapping[str, Sequence[Record]], name: str) -> list[Curve]:
    """Average a recorded quantity over trials, epoch by epoch.

    Trials are recorded at different epochs and end at different epochs: values between two recorded
    epochs are interpolated, and the mean is over the trials that trained that long, as long as
    these are at least half of them.

    Args:
        methods: Records of each method, in the order to show them.
        name: A field of the curve's points, or a measurement of an augmentation.

    Returns:
        One curve per method that recorded the quantity.

    Example:
        >>> curve = [{"epoch": 1, "validation_accuracy": 0.2},
        ...          {"epoch": 3, "validation_accuracy": 0.4}]
        >>> (mean,) = curves_data({"vanilla": [{"curve": curve}]}, "validation_accuracy")
        >>> mean.epochs, [round(value, 2) for value in mean.values]
        ([1.0, 2.0, 3.0], [0.2, 0.3, 0.4])
    """
    single: dict[str, list[tuple[list[float], list[float]]]] = {}
    for method, records in methods.items():
        for record in records:
            points = [
                (point["epoch"], value)
                for point in record.get("curve", ())
                if (value := _value(point, name)) is not None
            ]
            if points:
                epochs, values = zip(*points, strict=True)
                single.setdefault(method, []).append((list(epochs), list(values)))
    if not single:
        return []
    first = min(epochs[0] for curves in single.values() for epochs, _ in curves)
    last = max(epochs[-1] for curves in single.values() for epochs, _ in curves)
    count = min(GRID_POINTS, int(last - first) + 1)
    grid = np.unique(np.linspace(first, last, count).round())
    found = []
    for method, curves in single.items():
        table = np.array(
            [
                np.interp(grid, epochs, values, left=np.nan, right=np.nan)
                for epochs, values in curves
            ]
        )
        running = np.isfinite(table)
        shown = 2 * running.sum(axis=0) >= len(curves)
        shown &= running.any(axis=0)
        means = np.where(running, table, 0.0).sum(axis=0)[shown] / running.sum(axis=0)[shown]
        found.append(Curve(method, grid[shown].tolist(), means.tolist(), len(curves)))
    return found


def _value(point: Record, name: str) -> float | None:
    value = point.get(name)
    if value is None:
        value = point.get("measurements", {}).get(name)
    return None if value is None else float(value)


@dataclass(frozen=True)
class CriticalDifference:
    """The numbers of a critical-difference diagram.

    Args:
        methods: Names, the best average rank first.
        ranks: Their average ranks, ascending.
        difference: The critical difference.
        bars: For each group of methods that do not differ: the best and the worst average rank in
            it, and the positions of its first and its last method.
        lanes: The line each bar is drawn on, from 0, so that bars that overlap lie apart.
    """

    methods: tuple[str, ...]
    ranks: tuple[float, ...]
    difference: float
    bars: tuple[tuple[float, float, int, int], ...]
    lanes: tuple[int, ...]


def critical_difference_data(found: Across) -> CriticalDifference:
    """Collect the numbers of a critical-difference diagram (Demšar, 2006).

    Args:
        found: What several data sets say about the methods with one model.

    Returns:
        Ranks, and where the bars go.

    Example:
        >>> found = Across("gcs", ("a", "b", "c"), ("d1", "d2"), ((3., 2., 1.),) * 2,
        ...                (1.0, 2.0, 3.0), 0.1, 1.5, (("a", "b"), ("b", "c")), (), (), "")
        >>> data = critical_difference_data(found)
        >>> data.bars, data.lanes
        (((1.0, 2.0, 0, 1), (2.0, 3.0, 1, 2)), (0, 1))
    """
    place = {method: number for number, method in enumerate(found.methods)}
    bars = []
    for clique in found.cliques:
        members = sorted(place[method] for method in clique)
        first, last = members[0], members[-1]
        bars.append((found.ranks[first], found.ranks[last], first, last))
    lanes: list[int] = []
    ends: list[int] = []  # the last method of each lane's last bar
    for _, _, first, last in bars:
        free = next((lane for lane, end in enumerate(ends) if end < first), len(ends))
        if free == len(ends):
            ends.append(last)
        ends[free] = last
        lanes.append(free)
    return CriticalDifference(
        found.methods, found.ranks, found.critical_difference, tuple(bars), tuple(lanes)
    )
