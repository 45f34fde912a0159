"""From records to the numbers of the tables and to a verdict in words."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from graph_transplant.experiments.protocol import BASELINE, Record, Trial
from graph_transplant.experiments.statistics import (
    PairedTest,
    corrected_paired_test,
    holm,
    mean,
    standard_deviation,
)

SIGNIFICANT = 0.05
"""A corrected p-value below this is called a difference."""

FEW_PAIRS = 5
"""Below this many pairs a verdict is worded as a hint."""

COLUMNS = (
    "data",
    "model",
    "layers",
    "method",
    "trials",
    "accuracy_mean",
    "accuracy_std",
    "ece_mean",
    "nll_mean",
    "auroc_mean",
    "difference",
    "ci_low",
    "ci_high",
    "p_value",
    "p_holm",
    "seconds_mean",
)
"""Columns of ``summary.csv``, in order; each is a field of :class:`SummaryRow`."""


@dataclass(frozen=True)
class SummaryRow:
    """What the trials of one method with one model say; ``None`` where a number is not defined.

    Args:
        data: Name of the data set.
        model: Name of the convolution.
        layers: Number of layers.
        method: Name of the method.
        trials: Number of finished trials.
        accuracy_mean: Mean test accuracy.
        accuracy_std: Sample standard deviation of the test accuracy over trials.
        ece_mean: Mean expected calibration error on the test graphs.
        nll_mean: Mean test loss (negative log-likelihood).
        auroc_mean: Mean area under the ROC curve, for two classes.
        difference: Mean difference of test accuracy to the baseline over the folds both have.
        ci_low: Lower end of its 95 % confidence interval.
        ci_high: Upper end of its 95 % confidence interval.
        p_value: Corrected paired t-test of the difference.
        p_holm: The same after Holm's correction over the methods of this model.
        seconds_mean: Mean duration of a trial.
        pairs: Number of folds the difference is taken over.
        folds: Number of folds of the protocol.
        repeats: Number of repeats that have a finished trial.
    """

    data: str
    model: str
    layers: int
    method: str
    trials: int
    accuracy_mean: float | None
    accuracy_std: float | None
    ece_mean: float | None
    nll_mean: float | None
    auroc_mean: float | None
    difference: float | None
    ci_low: float | None
    ci_high: float | None
    p_value: float | None
    p_holm: float | None
    seconds_mean: float | None
    pairs: int
    folds: int
    repeats: int


Group = tuple[str, str, int]
"""What methods are compared within: data, model, layers."""


def group_records(records: Iterable[Record]) -> dict[Group, dict[str, list[Record]]]:
    """Sort records into ``{(data, model, layers): {method: records}}``.

    Everything is in a fixed order (records by repeat and fold), whatever order the trials finished
    in.

    Example:
        >>> record = {"data": "motifs", "model": "gcs", "layers": 3, "method": "vanilla",
        ...           "repeat": 0, "fold": 0}
        >>> groups = group_records([record | {"fold": 1}, record])
        >>> [record["fold"] for record in groups["motifs", "gcs", 3]["vanilla"]]
        [0, 1]
    """
    groups: dict[Group, dict[str, list[Record]]] = {}
    for record in sorted(records, key=lambda record: (record["data"], Trial.of_record(record))):
        group = (record["data"], record["model"], record["layers"])
        groups.setdefault(group, {}).setdefault(record["method"], []).append(record)
    return dict(sorted(groups.items()))


def scores(records: Iterable[Record], name: str) -> list[float]:
    """Give one test measurement of each record, or nothing unless all of them have it."""
    values = [record["test"].get(name) for record in records]
    return [] if None in values else values


def paired_differences(
    records: Sequence[Record], baseline: Sequence[Record]
) -> list[tuple[Record, Record, float]]:
    """Pair the trials of two methods on the same fold of the same repeat.

    Returns:
        For each fold that both have: the record, the baseline's record and the difference of their
        test accuracies.
    """
    others = {(record["repeat"], record["fold"]): record for record in baseline}
    pairs = []
    for record in records:
        other = others.get((record["repeat"], record["fold"]))
        if other is not None:
            difference = record["test"]["accuracy"] - other["test"]["accuracy"]
            pairs.append((record, other, difference))
    return pairs


def summarise(records: Iterable[Record]) -> list[SummaryRow]:
    """Summarise records, one row per data set, model, number of layers and method.

    Within a model the rows are ranked by mean test accuracy. Differences are to ``vanilla``, over
    the folds both methods have; Holm's correction runs over the methods of one model.

    Args:
        records: Finished trials.

    Returns:
        The rows.

    Example:
        >>> record = {"data": "motifs", "model": "gcs", "layers": 3, "method": "vanilla",
        ...           "repeat": 0, "fold": 0, "test": {"accuracy": 0.5},
        ...           "sizes": {"train": 60, "test": 20},
        ...           "settings": {"folds": 5}, "seconds": 2.0}
        >>> better = record | {"method": "transplant-dp", "test": {"accuracy": 0.75}}
        >>> [(row.method, row.difference) for row in summarise([record, better])]
        [('transplant-dp', 0.25), ('vanilla', None)]
    """
    rows: list[SummaryRow] = []
    for group, methods in group_records(records).items():
        names = list(methods)
        tests: list[PairedTest | None] = []
        for name in names:
            pairs = (
                paired_differences(methods[name], methods[BASELINE])
                if name != BASELINE and BASELINE in methods
                else []
            )
            if not pairs:
                tests.append(None)
                continue
            train = sum(record["sizes"]["train"] for record, _, _ in pairs)
            test = sum(record["sizes"]["test"] for record, _, _ in pairs)
            differences = [difference for _, _, difference in pairs]
            tests.append(corrected_paired_test(differences, test_to_train=test / train))
        corrected = holm([None if test is None else test.p_value for test in tests])
        group_rows = []
        for name, paired, p_holm in zip(names, tests, corrected, strict=True):
            trials = methods[name]
            accuracy = scores(trials, "accuracy")
            group_rows.append(
                SummaryRow(
                    *group,
                    method=name,
                    trials=len(trials),
                    accuracy_mean=mean(accuracy),
                    accuracy_std=standard_deviation(accuracy),
                    ece_mean=mean(scores(trials, "ece")),
                    nll_mean=mean(scores(trials, "nll")),
                    auroc_mean=mean(scores(trials, "auroc")),
                    difference=None if paired is None else paired.difference,
                    ci_low=None if paired is None else paired.low,
                    ci_high=None if paired is None else paired.high,
                    p_value=None if paired is None else paired.p_value,
                    p_holm=p_holm,
                    seconds_mean=mean([record["seconds"] for record in trials]),
                    pairs=0 if paired is None else paired.pairs,
                    folds=trials[0]["settings"]["folds"],
                    repeats=len({record["repeat"] for record in trials}),
                )
            )
        group_rows.sort(key=lambda row: (-(row.accuracy_mean or 0.0), row.method))
        rows.extend(group_rows)
    return rows


def summary_csv(rows: Iterable[SummaryRow]) -> str:
    """Give the text of ``summary.csv``; a number that is not defined is an empty cell.

    Example:
        >>> summary_csv([]).split(",")[:3]
        ['data', 'model', 'layers']
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        cells = []
        for name in COLUMNS:
            value = getattr(row, name)
            cells.append(f"{value:.6g}" if isinstance(value, float) else value)
        writer.writerow(cells)
    return text.getvalue()


@dataclass(frozen=True)
class Verdict:
    """What a comparison says about one model, in words.

    Args:
        data: Name of the data set.
        model: Name of the convolution.
        layers: Number of layers.
        headline: The finding in a few words.
        sentence: The finding with its evidence, one or two sentences.
        kind: ``"better"`` when a method beats the baseline, ``"worse"`` when one is worse and none
            better, ``"none"`` when nothing differs significantly, ``"open"`` when nothing was
            tested.
        best: The method that beats the baseline, or nothing.
    """

    data: str
    model: str
    layers: int
    headline: str
    sentence: str
    kind: Literal["better", "worse", "none", "open"]
    best: str | None = None


def verdicts(rows: Iterable[SummaryRow]) -> list[Verdict]:
    """Word the findings, one verdict per data set, model and number of layers.

    A method is said to beat ``vanilla`` only when the p-value after Holm's correction is below
    0.05; otherwise the largest difference is named together with the interval it may lie in. With
    fewer than five pairs the verdict says that it is a hint.

    Args:
        rows: The rows of :func:`summarise`.

    Returns:
        The verdicts, in the order of the rows.
    """
    groups: dict[Group, list[SummaryRow]] = {}
    for row in rows:
        groups.setdefault((row.data, row.model, row.layers), []).append(row)
    return [_verdict(group, members) for group, members in groups.items()]


def _verdict(group: Group, rows: list[SummaryRow]) -> Verdict:
    data = group[0]
    names = [row.method for row in rows]
    if BASELINE not in names:
        best = rows[0]
        return Verdict(
            *group,
            headline=f"{best.method} has the highest accuracy on {data}",
            sentence=(
                f"{best.method} has the highest mean accuracy on {data}, "
                f"{_percent(best.accuracy_mean)} over {_trials(best.trials)}; without {BASELINE} "
                "among the methods no difference is tested."
            ),
            kind="open",
        )
    if len(rows) == 1:
        (row,) = rows
        return Verdict(
            *group,
            headline=f"{BASELINE} reaches {_percent(row.accuracy_mean)} on {data}",
            sentence=(
                f"{BASELINE} reaches a mean accuracy of {_percent(row.accuracy_mean)} on {data} "
                f"over {_trials(row.trials)}; there is no other method to compare it with."
            ),
            kind="open",
        )
    compared = [row for row in rows if row.difference is not None]
    if not compared:
        return Verdict(
            *group,
            headline=f"Nothing to compare yet on {data}",
            sentence=f"No method shares a finished fold with {BASELINE} on {data} yet.",
            kind="open",
        )
    family = sum(row.p_value is not None for row in compared)
    significant = [row for row in compared if row.p_holm is not None and row.p_holm < SIGNIFICANT]
    better = sorted((row for row in significant if _points(row) > 0), key=_points, reverse=True)
    worse = sorted((row for row in significant if _points(row) < 0), key=_points)
    hint = f" {_few(compared)}" if min(row.pairs for row in compared) < FEW_PAIRS else ""
    if better:
        best = better[0]
        headline = f"{best.method} beats {BASELINE} on {data} by {_points(best):.1f} points"
        parts = [f"{headline} ({_evidence(best, family)})"]
        parts += [
            f"so does {row.method}, by {_points(row):.1f} ({format_p(row.p_holm)})"
            for row in better[1:]
        ]
        parts += [
            f"{row.method} is worse than {BASELINE} by {-_points(row):.1f} ({format_p(row.p_holm)})"
            for row in worse
        ]
        return Verdict(*group, headline, "; ".join(parts) + "." + hint, "better", best.method)
    if worse:
        parts = [
            f"{row.method} is worse than {BASELINE} on {data} by {-_points(row):.1f} points "
            f"({_evidence(row, family)})"
            for row in worse
        ]
        headline = f"No method beats {BASELINE} on {data}"
        return Verdict(
            *group, headline, f"No method beats {BASELINE}; {'; '.join(parts)}.{hint}", "worse"
        )
    largest = max(compared, key=lambda row: abs(_points(row)))
    subject = f"{largest.method} does not differ" if len(compared) == 1 else "No method differs"
    headline = f"{subject} significantly from {BASELINE} on {data}"
    if family == 0:
        pairs = largest.pairs
        reason = (
            "one pair of trials shows no spread to judge it by"
            if pairs == 1
            else f"all {pairs} folds show the same difference, so there is no spread to judge it by"
        )
        headline = f"No difference can be tested on {data}"
        apart = f"{largest.method} and {BASELINE} are {_signed(largest)} points apart on {data}"
        if largest.difference == 0:
            apart = f"{largest.method} and {BASELINE} are equally accurate on {data}"
        return Verdict(*group, headline, f"{apart}; {reason}.", "open")
    which = (
        "the difference is"
        if len(compared) == 1
        else f"the largest difference, that of {largest.method}, is"
    )
    sentence = f"{headline}: {which} {_signed(largest)} points"
    if largest.p_value is not None and largest.p_value < SIGNIFICANT:
        # The interval, which is for one method alone, would seem to say the opposite.
        sentence += (
            f", which taken alone would be significant ({format_p(largest.p_value)}) but not as "
            f"the largest of {family} ({_evidence(largest, family)})"
        )
    elif largest.ci_low is not None and largest.ci_high is not None:
        sentence += (
            f", with anything from {format_points(largest.ci_low)} to "
            f"{format_points(largest.ci_high)} plausible ({_evidence(largest, family)})"
        )
    return Verdict(*group, headline, sentence + "." + hint, "none")


def notes(records: Iterable[Record]) -> list[str]:
    """Name what a reader should know before trusting the numbers.

    Args:
        records: Finished trials.

    Returns:
        Sentences, possibly none: trials that were still improving when the epochs ran out, methods
        that lack folds others have, test losses that are not finite.
    """
    found = []
    records = list(records)
    limited = [
        record
        for record in records
        if record["epochs"] >= record["settings"]["epochs"]
        and record["best_epoch"] > 0.9 * record["settings"]["epochs"]
    ]
    if 2 * len(limited) > len(records):
        epochs = records[0]["settings"]["epochs"]
        found.append(
            f"In {len(limited)} of {len(records)} trials the best checkpoint lies in the last "
            f"tenth of the {epochs} epochs allowed: more epochs may change the picture."
        )
    for (_, model, layers), methods in group_records(records).items():
        most = max(len(trials) for trials in methods.values())
        short = [
            f"{name} has {len(trials)}" for name, trials in methods.items() if len(trials) < most
        ]
        if short:
            found.append(
                f"{model} with {_layers(layers)} is not complete: {', '.join(short)} of {most} "
                "trials."
            )
    lost = [str(Trial.of_record(record)) for record in records if record["test"].get("nll") is None]
    if lost:
        found.append(f"The test loss is not finite in: {'; '.join(lost)}.")
    return found


def format_p(value: float | None) -> str:
    """Word a p-value with two significant digits.

    Example:
        >>> format_p(0.0312), format_p(0.2149), format_p(0.00002), format_p(1.0), format_p(None)
        ('p = 0.031', 'p = 0.21', 'p < 0.001', 'p = 1', 'p not defined')
    """
    if value is None:
        return "p not defined"
    if value < 0.001:
        return "p < 0.001"
    return f"p = {value:.2g}" if value < 0.995 else "p = 1"


def _evidence(row: SummaryRow, family: int) -> str:
    correction = f" after Holm's correction over {family} methods" if family > 1 else ""
    folds = f"{row.pairs} folds"
    if row.pairs == row.folds * row.repeats and row.repeats > 1:
        folds = f"{row.folds} folds × {row.repeats} repeats"
    return f"{format_p(row.p_holm)}{correction}, {folds}"


def _few(rows: list[SummaryRow]) -> str:
    pairs = min(row.pairs for row in rows)
    return f"{'One fold is' if pairs == 1 else f'{pairs} folds are'} few: take this as a hint."


def _points(row: SummaryRow) -> float:
    return 100 * (row.difference or 0.0)


def _signed(row: SummaryRow) -> str:
    return format_points(row.difference or 0.0)


def format_points(difference: float) -> str:
    """Write a difference of accuracies in points: a true minus sign, no sign for what is zero.

    Example:
        >>> format_points(0.041), format_points(-0.0151), format_points(-0.0001)
        ('+4.1', '−1.5', '0.0')
    """
    text = f"{100 * difference:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "−")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _trials(count: int) -> str:
    return f"{count} trial{'s' if count != 1 else ''}"


def _layers(count: int) -> str:
    return f"{count} layer{'s' if count != 1 else ''}"
