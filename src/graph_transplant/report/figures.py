"""The numbers of the report's figures; nothing is drawn here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.across import Across
from graph_transplant.experiments.protocol import Record
from graph_transplant.experiments.statistics import mean, standard_deviation
from graph_transplant.experiments.summary import (
    SIGNIFICANT,
    SummaryRow,
    paired_differences,
    processor_timed,
)

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
                accuracy = finite(attack.get("accuracy"))
                if accuracy is not None:
                    score = Score(record["repeat"], record["fold"], accuracy)
                    budgets.setdefault(attack["budget"], []).append(score)
        for budget, scores in budgets.items():
            average = float(np.mean([score.value for score in scores]))
            found.setdefault(budget, []).append(ScoreRow(method, scores, average))
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


@dataclass(frozen=True)
class Spread:
    """A number over trials.

    Args:
        mean: Its mean.
        std: Its sample standard deviation, or nothing for one trial.
        trials: Number of trials.
    """

    mean: float
    std: float | None
    trials: int


def finite(value: Any) -> float | None:
    """Give a number that can be drawn, or nothing.

    Example:
        >>> finite(1), finite(None), finite(float("nan")), finite(True)
        (1.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def spread(values: Iterable[Any]) -> Spread | None:
    """Give mean and standard deviation of those values that are numbers, or nothing without any.

    Example:
        >>> spread([1.0, None, 3.0])
        Spread(mean=2.0, std=1.4142135623730951, trials=2)
        >>> spread([0.5]), spread([None])
        (Spread(mean=0.5, std=None, trials=1), None)
    """
    numbers = [number for value in values if (number := finite(value)) is not None]
    average = mean(numbers)
    return None if average is None else Spread(average, standard_deviation(numbers), len(numbers))


@dataclass(frozen=True)
class Line:
    """A quantity over an axis, as mean over trials.

    Args:
        name: Name of the method.
        places: Places on the axis, ascending.
        values: The quantity at each place.
        control: Whether it is a control, drawn thin and dashed.
    """

    name: str
    places: tuple[float, ...]
    values: tuple[Spread, ...]
    control: bool = False


def line(name: str, values: Mapping[float, Iterable[Any]], *, control: bool = False) -> Line | None:
    """Make a line of the values at each place; places without a number are left out.

    Example:
        >>> found = line("vanilla", {0.2: [0.5, 0.7], 0.0: [0.8], 0.1: [None]})
        >>> found.places, [round(value.mean, 2) for value in found.values]
        ((0.0, 0.2), [0.8, 0.6])
        >>> line("vanilla", {0.1: [None]}) is None
        True
    """
    found = [(place, spread(given)) for place, given in sorted(values.items())]
    kept = [(place, value) for place, value in found if value is not None]
    if not kept:
        return None
    places, means = zip(*kept, strict=True)
    return Line(name, places, means, control)


@dataclass(frozen=True)
class Bin:
    """Predictions of similar confidence, pooled over trials.

    Args:
        number: Number of the bin, from 0.
        count: Number of predictions.
        confidence: Their mean confidence.
        accuracy: Share of them that is right.
    """

    number: int
    count: int
    confidence: float
    accuracy: float


CALIBRATION = ("ece", "adaptive_ece", "brier", "nll")
"""What is measured before and after temperature scaling."""


@dataclass(frozen=True)
class Reliability:
    """How far one method's confidence can be trusted.

    Args:
        method: Name of the method.
        before: Bins as the network gives them.
        after: Bins after temperature scaling; none where the records have none.
        measured: Means over trials before scaling, by :data:`CALIBRATION`; those that are there.
        calibrated: The same after scaling, and the ``temperature``.
    """

    method: str
    before: tuple[Bin, ...]
    after: tuple[Bin, ...]
    measured: Mapping[str, float]
    calibrated: Mapping[str, float]


def reliability_data(methods: Mapping[str, Sequence[Record]]) -> list[Reliability]:
    """Pool the reliability bins of each method's trials: counts add up, means are weighted.

    Args:
        methods: Records of each method, in the order to show them.

    Returns:
        One entry per method whose records have bins.

    Example:
        >>> one = {"bin": 9, "count": 30, "confidence": 0.6, "accuracy": 0.5}
        >>> two = {"bin": 9, "count": 10, "confidence": 0.64, "accuracy": 0.9}
        >>> records = [{"test": {"ece": 0.1}, "reliability": [bin]} for bin in (one, two)]
        >>> (found,) = reliability_data({"vanilla": records})
        >>> found.before[0].count, round(found.before[0].accuracy, 3), found.measured
        (40, 0.6, {'ece': 0.1})
    """
    found = []
    for method, records in methods.items():
        before = pooled_bins(records, "reliability")
        if before:
            found.append(
                Reliability(
                    method,
                    before,
                    pooled_bins(records, "reliability_calibrated"),
                    _means([record["test"] for record in records], CALIBRATION),
                    _means(
                        [record.get("calibrated", {}) for record in records],
                        (*CALIBRATION, "temperature"),
                    ),
                )
            )
    return found


def pooled_bins(records: Iterable[Record], field: str) -> tuple[Bin, ...]:
    """Pool the bins of several trials; one without predictions, or with fewer, is left out.

    Args:
        records: Finished trials.
        field: ``"reliability"`` or ``"reliability_calibrated"``.

    Example:
        >>> pooled_bins([{}, {"reliability": []}], "reliability")
        ()
    """
    sums: dict[int, list[float]] = {}
    for record in records:
        for one in record.get(field, ()):
            numbers = [finite(one.get(name)) for name in ("count", "confidence", "accuracy")]
            count, confidence, accuracy = (number or 0.0 for number in numbers)
            if None in numbers or count <= 0:
                continue
            total = sums.setdefault(int(one["bin"]), [0.0, 0.0, 0.0])
            total[0] += count
            total[1] += count * confidence
            total[2] += count * accuracy
    return tuple(
        Bin(number, int(count), confidence / count, right / count)
        for number, (count, confidence, right) in sorted(sums.items())
    )


def _means(given: Sequence[Mapping[str, Any]], names: Iterable[str]) -> dict[str, float]:
    found = {name: spread(one.get(name) for one in given) for name in names}
    return {name: value.mean for name, value in found.items() if value is not None}


def robustness_data(methods: Mapping[str, Sequence[Record]], field: str = "accuracy") -> list[Line]:
    """Collect the accuracy over the budget of the attack; a budget of 0 is the clean test accuracy.

    Args:
        methods: Records of each method, in the order to show them.
        field: ``"accuracy"`` under the GradArgmax attack, ``"as_stated"`` under the reading of the
            paper to the letter, ``"random"`` after as many random changes: a control.

    Returns:
        One line per method that was attacked.

    Example:
        >>> record = {"test": {"accuracy": 0.7},
        ...           "attacked": [{"budget": 0.2, "edges": 12, "accuracy": 0.5}]}
        >>> (line,) = robustness_data({"vanilla": [record]})
        >>> line.places, [value.mean for value in line.values]
        ((0.0, 0.2), [0.7, 0.5])
        >>> robustness_data({"vanilla": [record]}, "random")
        []
    """
    found = []
    for method, records in methods.items():
        values: dict[float, list[Any]] = {}
        for record in records:
            attacks = [
                one for one in record.get("attacked", ()) if finite(one.get(field)) is not None
            ]
            if attacks:
                values.setdefault(0.0, []).append(record["test"].get("accuracy"))
            for attack in attacks:
                values.setdefault(float(attack["budget"]), []).append(attack[field])
        made = line(method, values, control=field == "random")
        if made is not None:
            found.append(made)
    return found


def saliency_curves_data(methods: Mapping[str, Sequence[Record]], field: str) -> list[Line]:
    """Collect the mean probability of the predicted class as nodes are removed or put back.

    Args:
        methods: Records of each method, in the order to show them.
        field: ``"deletion"`` or ``"insertion"``, or one of these with ``"_random"`` behind.

    Returns:
        One line per method that was measured.

    Example:
        >>> curve = [{"share": 0.0, "deletion": 0.9}, {"share": 1.0, "deletion": 0.2}]
        >>> (line,) = saliency_curves_data({"vanilla": [{"saliency_curve": curve}]}, "deletion")
        >>> line.places, line.values[1].mean
        ((0.0, 1.0), 0.2)
    """
    found = []
    for method, records in methods.items():
        values: dict[float, list[Any]] = {}
        for record in records:
            for point in record.get("saliency_curve", ()):
                # Shares that differ by a rounding error are one place.
                values.setdefault(round(float(point["share"]), 6), []).append(point.get(field))
        made = line(method, values, control=field.endswith("_random"))
        if made is not None:
            found.append(made)
    return found


def measured(methods: Mapping[str, Sequence[Record]], group: str) -> dict[str, dict[str, Spread]]:
    """Collect every number that records hold in one of their groups, such as ``"samples"``.

    Args:
        methods: Records of each method, in the order to show them.
        group: Field of the records whose value is a group of numbers.

    Returns:
        For each method that has the group, each of its numbers over trials, in the order in which
        they are met.

    Example:
        >>> records = [{"samples": {"graphs": 9, "label_gap": gap}} for gap in (0.25, 0.75, None)]
        >>> found = measured({"vanilla": [{}], "transplant-ep": records}, "samples")
        >>> {method: numbers["label_gap"].mean for method, numbers in found.items()}
        {'transplant-ep': 0.5}
    """
    found: dict[str, dict[str, Spread]] = {}
    for method, records in methods.items():
        groups = [record.get(group, {}) for record in records]
        names = dict.fromkeys(name for one in groups for name in one)
        numbers = {name: spread(one.get(name) for one in groups) for name in names}
        kept = {name: value for name, value in numbers.items() if value is not None}
        if kept:
            found[method] = kept
    return found


@dataclass(frozen=True)
class Cost:
    """What one method costs.

    Args:
        method: Name of the method.
        epoch: Seconds per epoch.
        best: Seconds until the best checkpoint.
        epoch_ratio: Mean seconds per epoch over the baseline's, or nothing without a baseline.
        best_ratio: The same until the best checkpoint.
    """

    method: str
    epoch: Spread
    best: Spread | None
    epoch_ratio: float | None
    best_ratio: float | None


def cost_data(methods: Mapping[str, Sequence[Record]], baseline: str) -> list[Cost]:
    """Collect seconds per epoch and until the best checkpoint, and their ratio to the baseline.

    They are seconds of the processor. Records made before these were measured have the duration of
    the whole trial: its share by epoch stands for them, and then for all, so that like is compared
    with like.

    Args:
        methods: Records of each method, in the order to show them.
        baseline: Name of the method to compare with.

    Returns:
        One entry per method.

    Example:
        >>> def record(epoch, best):
        ...     return {"cost": {"fit_seconds": 9, "epoch_seconds": epoch, "best_seconds": best}}
        >>> costs = cost_data({"vanilla": [record(0.5, 10)], "m": [record(1.5, 20)]}, "vanilla")
        >>> [(cost.epoch_ratio, cost.best_ratio) for cost in costs]
        [(1.0, 1.0), (3.0, 2.0)]
        >>> old = {"seconds": 30.0, "epochs": 10, "best_epoch": 5}
        >>> (cost,) = cost_data({"vanilla": [old]}, "vanilla")
        >>> cost.epoch.mean, cost.best.mean
        (3.0, 15.0)
    """
    read = _timed if processor_timed(chain.from_iterable(methods.values())) else _shared
    found: dict[str, tuple[Spread, Spread | None]] = {}
    for method, records in methods.items():
        epoch, best = (spread(values) for values in zip(*map(read, records), strict=True))
        if epoch is not None:
            found[method] = epoch, best
    plain = found.get(baseline)

    def ratio(own: Spread | None, other: Spread | None) -> float | None:
        return own.mean / other.mean if own and other and other.mean > 0 else None

    return [
        Cost(
            method,
            epoch,
            best,
            ratio(epoch, plain[0]) if plain else None,
            ratio(best, plain[1]) if plain else None,
        )
        for method, (epoch, best) in found.items()
    ]


def _timed(record: Record) -> tuple[float | None, float | None]:
    return record["cost"].get("epoch_seconds"), record["cost"].get("best_seconds")


def _shared(record: Record) -> tuple[float | None, float | None]:
    seconds, epochs = finite(record.get("seconds")), finite(record.get("epochs"))
    if seconds is None or not epochs:
        return None, None
    best = finite(record.get("best_epoch"))
    return seconds / epochs, None if best is None else seconds / epochs * best


def axis_data(
    methods: Mapping[str, Sequence[Record]],
    place: Callable[[Record], float],
    metric: str,
) -> list[Line]:
    """Collect the test score over a number that records have, such as the label noise.

    Args:
        methods: Records of each method, in the order to show them.
        place: Reads that number from a record.
        metric: Name of the test measurement.

    Returns:
        One line per method that has scores.

    Example:
        >>> records = [{"label_noise": noise, "test": {"accuracy": 0.8 - noise}}
        ...            for noise in (0.0, 0.25)]
        >>> (line,) = axis_data({"vanilla": records}, lambda record: record["label_noise"],
        ...                     "accuracy")
        >>> line.places, [value.mean for value in line.values]
        ((0.0, 0.25), [0.8, 0.55])
    """
    found = []
    for method, records in methods.items():
        values: dict[float, list[Any]] = {}
        for record in records:
            values.setdefault(place(record), []).append(record["test"].get(metric))
        made = line(method, values)
        if made is not None:
            found.append(made)
    return found


@dataclass(frozen=True)
class Sensitivity:
    """How the score depends on one parameter of a method, the others at their defaults.

    Args:
        method: Name of the method, without parameters.
        parameter: Name of the parameter.
        default: Its default.
        values: Its values, numbers ascending, words as they are met.
        scores: The test score at each value.
    """

    method: str
    parameter: str
    default: float | int | str
    values: tuple[float | int | str, ...]
    scores: tuple[Spread, ...]

    @property
    def numeric(self) -> bool:
        """Whether the values are numbers."""
        return all(not isinstance(value, str | bool) for value in self.values)


def sensitivity_data(methods: Mapping[str, Sequence[Record]], metric: str) -> list[Sensitivity]:
    """Find methods that differ from the default in one parameter, and collect their scores.

    Args:
        methods: Records of each method by its name with parameters, as
            ``transplant-dp:anchor_ratio=0.05``. A name that is no method here is left out.
        metric: Name of the test measurement.

    Returns:
        One entry per method and parameter with at least two values.

    Example:
        >>> methods = {name: [{"test": {"accuracy": value}}] for name, value in
        ...            {"transplant-dp": 0.7, "transplant-dp:anchor_ratio=0.05": 0.6}.items()}
        >>> (found,) = sensitivity_data(methods, "accuracy")
        >>> found.parameter, found.default, found.values, [one.mean for one in found.scores]
        ('anchor_ratio', 0.1, (0.05, 0.1), [0.6, 0.7])
    """
    if not any(":" in name for name in methods):
        return []  # nothing was varied, and torch need not be imported to see that
    from graph_transplant.augment.methods import METHODS, parse_method

    plain: dict[str, Spread] = {}
    single: dict[tuple[str, str], dict[float | int | str, Spread]] = {}
    for text, records in methods.items():
        score = spread(record["test"].get(metric) for record in records)
        if score is None:
            continue
        try:
            name, changed = parse_method(text)
        except GraphTransplantError:
            continue  # records of another version, whose methods have other parameters
        if not changed:
            plain[name] = score
        elif len(changed) == 1:
            ((parameter, value),) = changed.items()
            single.setdefault((name, parameter), {})[value] = score
    found = []
    names = list(dict.fromkeys(name for name, _ in single))
    for (name, parameter), values in sorted(
        single.items(), key=lambda item: names.index(item[0][0])
    ):
        default = METHODS[name].parameters[parameter]
        if name in plain:
            values = {default: plain[name], **values}
        if len(values) > 1:
            words = any(isinstance(value, str) for value in values)
            order = list(values) if words else sorted(values, key=float)
            scores = tuple(values[value] for value in order)
            found.append(Sensitivity(name, parameter, default, tuple(order), scores))
    return found


@dataclass(frozen=True)
class MeasureRow:
    """A number of one method, with another one to see it against.

    Args:
        method: Name of the method.
        value: The number over trials.
        mark: What to see it against, or nothing.
        meaning: What that is, in words.
        number: What to write beside the row; the mean if nothing is given.
    """

    method: str
    value: Spread
    mark: float | None = None
    meaning: str = ""
    number: str = ""


@dataclass(frozen=True)
class Bar:
    """A bar of a grouped chart.

    Args:
        name: What it stands for, such as a method.
        value: Its height, or nothing where nothing was measured.
        published: What was published, or nothing.
    """

    name: str
    value: Spread | None
    published: float | None = None


@dataclass(frozen=True)
class BarGroup:
    """Bars that stand together.

    Args:
        name: What they share, such as a model.
        bars: The bars, in the same order in every group.
    """

    name: str
    bars: tuple[Bar, ...]
