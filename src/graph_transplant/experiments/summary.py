"""From records to the numbers of the tables and to a verdict in words."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, combinations
from typing import Literal, NamedTuple

from graph_transplant.experiments.protocol import (
    BASELINE,
    METRICS,
    Condition,
    Record,
    Trial,
    metric_of,
    one_split,
    score,
)
from graph_transplant.experiments.selection import left_out, select
from graph_transplant.experiments.statistics import (
    corrected_paired_test,
    effect_size,
    holm,
    mean,
    mean_interval,
    standard_deviation,
)

SIGNIFICANT = 0.05
"""A corrected p-value below this is called a difference."""

FEW_PAIRS = 5
"""Below this many pairs a verdict is worded as a hint."""


class Group(NamedTuple):
    """What methods are compared within.

    Args:
        data: Name of the data set.
        model: Name of the convolution.
        layers: Number of layers; ``None`` when it was selected.
        label_noise: Share of the training labels that are wrong.
        train_fraction: Share of the training graphs that are used.

    Example:
        >>> Group("motifs", "gcs", 3, label_noise=0.2).condition.words
        'with 20 % of the training labels wrong'
    """

    data: str
    model: str
    layers: int | None
    label_noise: float = 0.0
    train_fraction: float = 1.0

    @property
    def condition(self) -> Condition:
        """How hard training was made."""
        return Condition(self.label_noise, self.train_fraction)


@dataclass(frozen=True)
class SummaryRow:
    """What the trials of one method with one model say; ``None`` where a number is not defined.

    Args:
        data: Name of the data set.
        model: Name of the convolution.
        layers: Number of layers; ``None`` when it was selected.
        method: Name of the method; without its parameters when these were selected.
        metric: What methods are judged by, a key of
            :data:`~graph_transplant.experiments.protocol.METRICS`; the score below.
        trials: Number of finished trials.
        score_mean: Mean test score.
        score_std: Sample standard deviation of the test score over trials.
        score_low: Lower end of the 95 % confidence interval of the mean test score.
        score_high: Upper end of the 95 % confidence interval of the mean test score.
        accuracy_mean: Mean test accuracy.
        ece_mean: Mean expected calibration error on the test graphs.
        nll_mean: Mean test loss (negative log-likelihood).
        auroc_mean: Mean area under the ROC curve, for two classes or several labels.
        difference: Mean difference of the test score to the baseline over the folds both have.
        ci_low: Lower end of its 95 % confidence interval.
        ci_high: Upper end of its 95 % confidence interval.
        p_value: Corrected paired t-test of the difference.
        p_holm: The same after Holm's correction over the methods of this model.
        effect: The difference in standard deviations of the paired differences
            (:func:`~graph_transplant.experiments.statistics.effect_size`).
        seconds_mean: Mean time of a training (:func:`training_seconds`).
        pairs: Number of folds the difference is taken over.
        folds: Number of folds of the protocol; 1 for one split, official or by scaffold.
        repeats: Number of repeats that have a finished trial.
        chosen: What was selected, in words; empty when nothing was.
        average_precision_mean: Mean average precision, for two classes or several labels.
        r2_mean: Mean R², for numbers.
        rmse_mean: Mean root of the mean squared error, in the units of the data.
        mae_mean: Mean absolute error, in the units of the data.
        split: ``"folds"``, ``"official"`` or ``"scaffold"``.
        label_noise: Share of the training labels that are wrong.
        train_fraction: Share of the training graphs that are used.
    """

    data: str
    model: str
    layers: int | None
    method: str
    metric: str
    trials: int
    score_mean: float | None
    score_std: float | None
    score_low: float | None
    score_high: float | None
    accuracy_mean: float | None
    ece_mean: float | None
    nll_mean: float | None
    auroc_mean: float | None
    difference: float | None
    ci_low: float | None
    ci_high: float | None
    p_value: float | None
    p_holm: float | None
    effect: float | None
    seconds_mean: float | None
    pairs: int
    folds: int
    repeats: int
    chosen: str
    average_precision_mean: float | None = None
    r2_mean: float | None = None
    rmse_mean: float | None = None
    mae_mean: float | None = None
    split: str = "folds"
    label_noise: float = 0.0
    train_fraction: float = 1.0

    @property
    def group(self) -> Group:
        """What the method is compared within."""
        return Group(self.data, self.model, self.layers, self.label_noise, self.train_fraction)


WHEN_THERE = ("average_precision_mean", "r2_mean", "rmse_mean", "mae_mean")
"""Columns of ``summary.csv`` that are left out when no row has a value."""

CONDITIONS = Condition()._asdict()
"""Columns of ``summary.csv`` that are left out when all rows have these, the defaults."""

COLUMNS = tuple(field.name for field in fields(SummaryRow) if field.name != "split")
"""Columns of ``summary.csv``, in order: fields of :class:`SummaryRow`."""


@dataclass(frozen=True)
class PairRow:
    """One method against another; ``None`` where a number is not defined.

    Args:
        data: Name of the data set.
        model: Name of the convolution.
        layers: Number of layers; ``None`` when it was selected.
        first: The method with the higher mean test score.
        second: The other method.
        difference: Mean difference of the test score, first minus second, over the folds both have.
        p_value: Corrected paired t-test of the difference.
        p_holm: The same after Holm's correction over all pairs of methods of this model.
        effect: The difference in standard deviations of the paired differences.
        label_noise: Share of the training labels that are wrong.
        train_fraction: Share of the training graphs that are used.
    """

    data: str
    model: str
    layers: int | None
    first: str
    second: str
    difference: float | None
    p_value: float | None
    p_holm: float | None
    effect: float | None
    label_noise: float = 0.0
    train_fraction: float = 1.0

    @property
    def group(self) -> Group:
        """What the two methods are compared within."""
        return Group(self.data, self.model, self.layers, self.label_noise, self.train_fraction)


def group_records(records: Iterable[Record]) -> dict[Group, dict[str, list[Record]]]:
    """Sort records into ``{group: {method: records}}``.

    Methods are compared within one group only: trials with wrong labels or fewer training graphs
    are no trials of the same task as those without.

    Everything is in a fixed order (records by repeat and fold), whatever order the trials finished
    in. Records that :func:`~graph_transplant.experiments.selection.select` chose have ``None`` for
    layers. Inner trials, which are there for nested selection alone, are left out.

    Example:
        >>> record = {"data": "motifs", "model": "gcs", "layers": 3, "method": "vanilla",
        ...           "repeat": 0, "fold": 0}
        >>> groups = group_records([record | {"fold": 1}, record])
        >>> [record["fold"] for record in groups[Group("motifs", "gcs", 3)]["vanilla"]]
        [0, 1]
    """
    groups: dict[Group, dict[str, list[Record]]] = {}
    outer = [record for record in records if record.get("inner", 0) == 0]
    for record in sorted(outer, key=lambda item: (item["method"], item["repeat"], item["fold"])):
        layers = None if "chosen" in record else record["layers"]
        group = Group(record["data"], record["model"], layers, *Condition.of(record))
        groups.setdefault(group, {}).setdefault(record["method"], []).append(record)
    return dict(sorted(groups.items(), key=lambda item: _place(item[0])))


def _place(group: Group) -> tuple[str, str, int, tuple[float, float]]:
    """Give what groups are sorted by."""
    return group.data, group.model, group.layers or 0, group.condition.order


def scores(records: Iterable[Record], name: str) -> list[float]:
    """Give one test measurement of each record, or nothing unless all of them have it.

    Example:
        >>> record = {"test": {"accuracy": 0.5, "ece": None}}
        >>> scores([record, record], "accuracy"), scores([record], "ece")
        ([0.5, 0.5], [])
    """
    values = [record["test"].get(name) for record in records]
    return [] if None in values else values


def processor_timed(records: Iterable[Record]) -> bool:
    """Tell whether all trials have their processor time measured.

    Example:
        >>> processor_timed([{"cost": {"fit_seconds": 8.0}}, {"seconds": 9.0}])
        False
    """
    return all(
        isinstance(record.get("cost", {}).get("fit_seconds"), int | float) for record in records
    )


def training_seconds(record: Record, *, processor: bool) -> float:
    """Give the time that a trial took.

    Processor time of the training is what methods should be compared by: it hardly depends on what
    else the machine does. Records made before it was measured have the duration of the trial alone;
    where one of them stands beside others, all are given that, so that like is compared with like.

    Args:
        record: A finished trial.
        processor: Whether to give processor time (:func:`processor_timed`).

    Example:
        >>> record = {"seconds": 30.0, "cost": {"fit_seconds": 12.5}}
        >>> training_seconds(record, processor=True), training_seconds(record, processor=False)
        (12.5, 30.0)
    """
    return float(record["cost"]["fit_seconds"] if processor else record["seconds"])


def paired_differences(
    records: Sequence[Record],
    baseline: Sequence[Record],
    value: Callable[[Record], float | None] = score,
) -> list[tuple[Record, Record, float]]:
    """Pair the trials of two methods on the same fold of the same repeat.

    Args:
        records: Trials of one method.
        baseline: Trials of the other.
        value: What is compared; ``None`` where a record does not have it. (default: the test score)

    Returns:
        For each fold that both have a value of: the record, the baseline's record and the
        difference of their values.

    Example:
        >>> record = {"repeat": 0, "fold": 0, "settings": {}, "test": {"accuracy": 0.75}}
        >>> other = record | {"test": {"accuracy": 0.5}}
        >>> [difference for _, _, difference in paired_differences([record], [other])]
        [0.25]
    """
    others = {(record["repeat"], record["fold"]): record for record in baseline}
    pairs = []
    for record in records:
        other = others.get((record["repeat"], record["fold"]))
        if other is None:
            continue
        ours, theirs = value(record), value(other)
        if ours is not None and theirs is not None:
            pairs.append((record, other, ours - theirs))
    return pairs


def summarise(records: Iterable[Record], selection: str = "none") -> list[SummaryRow]:
    """Summarise records, one row per data set, model, number of layers, condition and method.

    Within a model the rows are ranked by mean test score, which is the metric that the records were
    made with. Differences are to ``vanilla``, over the folds both methods have; Holm's correction
    runs over the methods of one model. Each condition, that is label noise and training fraction,
    is ranked and tested by itself. The runs of one split, official or by scaffold, share their test
    graphs and their training graphs: they are tested as independent runs, and what the test speaks
    of is another run on that split, not other graphs.

    Args:
        records: Finished trials.
        selection: How one candidate per method is chosen
            (:func:`~graph_transplant.experiments.selection.select`); then there is one row per data
            set, model and method.

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
    for group, methods in group_records(select(records, selection)).items():
        names = _ranked(methods)
        baseline = methods.get(BASELINE, [])
        compared = [
            paired_scores(methods[name], baseline if name != BASELINE else []) for name in names
        ]
        corrected = holm([paired.p_value for paired in compared])
        processor = processor_timed(chain.from_iterable(methods.values()))
        for name, paired, p_holm in zip(names, compared, corrected, strict=True):
            trials = methods[name]
            metric, settings = metric_of(trials[0]), trials[0]["settings"]
            values = scores(trials, metric)
            low, high = mean_interval(values, test_to_train=_test_to_train(trials)) or (None, None)
            rows.append(
                SummaryRow(
                    **group._asdict(),
                    method=name,
                    metric=metric,
                    trials=len(trials),
                    score_mean=mean(values),
                    score_std=standard_deviation(values),
                    score_low=low,
                    score_high=high,
                    accuracy_mean=mean(scores(trials, "accuracy")),
                    ece_mean=mean(scores(trials, "ece")),
                    nll_mean=mean(scores(trials, "nll")),
                    auroc_mean=mean(scores(trials, "auroc")),
                    difference=paired.difference,
                    ci_low=paired.low,
                    ci_high=paired.high,
                    p_value=paired.p_value,
                    p_holm=p_holm,
                    effect=paired.effect,
                    seconds_mean=mean([training_seconds(r, processor=processor) for r in trials]),
                    pairs=paired.pairs,
                    folds=1 if one_split(settings) else settings["folds"],
                    repeats=len({record["repeat"] for record in trials}),
                    chosen=chosen_in_words(trials),
                    average_precision_mean=mean(scores(trials, "average_precision")),
                    r2_mean=mean(scores(trials, "r2")),
                    rmse_mean=mean(scores(trials, "rmse")),
                    mae_mean=mean(scores(trials, "mae")),
                    split=settings.get("split", "folds"),
                )
            )
    return rows


def pairwise(records: Iterable[Record], selection: str = "none") -> list[PairRow]:
    """Compare every method with every other one.

    Holm's correction runs over all pairs of one model: with ten methods these are 45, so that a
    difference must be far clearer here than against the baseline alone.

    Args:
        records: Finished trials.
        selection: See :func:`summarise`.

    Returns:
        One row per pair, the methods in the order of :func:`summarise`.

    Example:
        >>> record = {"data": "motifs", "model": "gcs", "layers": 3, "method": "vanilla",
        ...           "repeat": 0, "fold": 0, "test": {"accuracy": 0.5},
        ...           "sizes": {"train": 60, "test": 20}, "settings": {"folds": 5}}
        >>> better = record | {"method": "transplant-dp", "test": {"accuracy": 0.75}}
        >>> [(row.first, row.second, row.difference) for row in pairwise([record, better])]
        [('transplant-dp', 'vanilla', 0.25)]
    """
    rows: list[PairRow] = []
    for group, methods in group_records(select(records, selection)).items():
        pairs = list(combinations(_ranked(methods), 2))
        compared = [paired_scores(methods[first], methods[second]) for first, second in pairs]
        corrected = holm([paired.p_value for paired in compared])
        for (first, second), paired, p_holm in zip(pairs, compared, corrected, strict=True):
            rows.append(
                PairRow(
                    **group._asdict(),
                    first=first,
                    second=second,
                    difference=paired.difference,
                    p_value=paired.p_value,
                    p_holm=p_holm,
                    effect=paired.effect,
                )
            )
    return rows


def _ranked(methods: Mapping[str, Sequence[Record]]) -> list[str]:
    """Order methods by mean test score, the best first."""
    found = {name: mean(scores(trials, metric_of(trials[0]))) for name, trials in methods.items()}
    # What has no score comes last, also after scores below zero.
    means = {name: -math.inf if value is None else value for name, value in found.items()}
    return sorted(means, key=lambda name: (-means[name], name))


@dataclass(frozen=True)
class PairedScores:
    """One method against another over the folds both have; nothing where there are none.

    Args:
        difference: Mean difference.
        low: Lower end of its 95 % confidence interval.
        high: Upper end of its 95 % confidence interval.
        p_value: Corrected paired t-test of the difference.
        effect: Effect size.
        pairs: Number of folds that both have.
    """

    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    effect: float | None = None
    pairs: int = 0


def paired_scores(
    records: Sequence[Record],
    others: Sequence[Record],
    value: Callable[[Record], float | None] = score,
) -> PairedScores:
    """Test one method against another over the folds both have.

    Args:
        records: Trials of the one.
        others: Trials of the other.
        value: What is compared; ``None`` where a trial does not have it. (default: the metric)

    Example:
        >>> record = {"repeat": 0, "fold": 0, "test": {"accuracy": 0.75}, "settings": {},
        ...           "sizes": {"train": 60, "test": 20}}
        >>> other = record | {"test": {"accuracy": 0.5}}
        >>> paired_scores([record], [other]).difference
        0.25
    """
    pairs = paired_differences(records, others, value)
    if not pairs:
        return PairedScores()
    differences = [difference for _, _, difference in pairs]
    ratio = _test_to_train([record for record, _, _ in pairs])
    test = corrected_paired_test(differences, test_to_train=ratio)
    effect = effect_size(differences)
    return PairedScores(test.difference, test.low, test.high, test.p_value, effect, test.pairs)


def _test_to_train(records: Sequence[Record]) -> float:
    """Give the number of test graphs per training graph that the correction asks for."""
    if one_split(records[0]["settings"]):
        # The training sets do not merely overlap, they are the same: there is no draw of graphs
        # whose dependence could be corrected for, only independent seeds. Those draw also which
        # labels are wrong and which graphs are left out, independently from run to run.
        return 0.0
    # Graphs that were left out of training count: the correction is for training sets that overlap,
    # and random parts of them overlap less, not more.
    train: int = sum(
        record["sizes"]["train"] + record["sizes"].get("left_out", 0) for record in records
    )
    test: int = sum(record["sizes"]["test"] for record in records)
    return test / train


def chosen_in_words(records: Sequence[Record]) -> str:
    """Word which candidates were chosen, the most frequent first.

    Example:
        >>> chosen = {"layers": 4, "method": "drop-nodes:ratio=0.4"}
        >>> chosen_in_words([{"chosen": chosen}, {"chosen": chosen}])
        '4 layers, ratio=0.4'
    """
    candidates = [record["chosen"] for record in records if "chosen" in record]
    if not candidates:
        return ""
    counts = Counter((item["layers"], item["method"].partition(":")[2]) for item in candidates)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = [
        ", ".join([_layers(layers), *(setting for setting in settings.split(":") if setting)])
        for (layers, settings), _ in ordered
    ]
    if len(ordered) == 1:
        return words[0]
    separator = "; "
    if not any(settings for _, settings in counts):
        separator = ", "
        words[1:] = [str(layers) for (layers, _), _ in ordered[1:]]
    most = ordered[0][1]
    words[0] += f" in {most} fold{'s' if most != 1 else ''}"
    words[1:] = [
        f"{text} in {count}" for text, (_, count) in zip(words[1:], ordered[1:], strict=True)
    ]
    return separator.join(words)


def summary_csv(rows: Iterable[SummaryRow]) -> str:
    """Give the text of ``summary.csv``; a number that is not defined is an empty cell.

    Columns of measurements that belong to some tasks only (:data:`WHEN_THERE`) are there when a row
    has a value, those of the conditions (:data:`CONDITIONS`) when a row has another than the
    default.

    Example:
        >>> summary_csv([]).split(",")[:3]
        ['data', 'model', 'layers']
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    rows = list(rows)
    columns = [
        name
        for name in COLUMNS
        if (name not in WHEN_THERE or any(getattr(row, name) is not None for row in rows))
        and (name not in CONDITIONS or any(row.group.condition != Condition() for row in rows))
    ]
    writer.writerow(columns)
    for row in rows:
        cells = []
        for name in columns:
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
        layers: Number of layers; ``None`` when it was selected.
        headline: The finding in a few words.
        sentence: The finding with its evidence, one or two sentences.
        clause: The finding as a part of a longer sentence (:func:`verdict_line`).
        kind: ``"better"`` when a method beats the baseline, ``"worse"`` when one is worse and none
            better, ``"none"`` when nothing differs significantly, ``"open"`` when nothing was
            tested.
        best: The method that beats the baseline, or nothing.
        label_noise: Share of the training labels that are wrong.
        train_fraction: Share of the training graphs that are used.
        compared: Whether there is plain training and another method to compare.
    """

    data: str
    model: str
    layers: int | None
    headline: str
    sentence: str
    clause: str
    kind: Literal["better", "worse", "none", "open"]
    best: str | None = None
    label_noise: float = 0.0
    train_fraction: float = 1.0
    compared: bool = True

    @property
    def group(self) -> Group:
        """What it speaks of."""
        return Group(self.data, self.model, self.layers, self.label_noise, self.train_fraction)


def verdicts(rows: Iterable[SummaryRow]) -> list[Verdict]:
    """Word the findings, one verdict per data set, model, number of layers and condition.

    A method is said to beat ``vanilla`` only when the p-value after Holm's correction is below
    0.05; otherwise the largest difference is named together with the interval it may lie in. With
    fewer than five pairs the verdict says that it is a hint.

    Args:
        rows: The rows of :func:`summarise`.

    Returns:
        The verdicts, in the order of the rows.

    Example:
        >>> record = {"data": "motifs", "model": "gcs", "layers": 3, "method": "vanilla",
        ...           "repeat": 0, "sizes": {"train": 60, "test": 20},
        ...           "settings": {"folds": 5}, "seconds": 2.0}
        >>> def trials(method, *accuracies):
        ...     return [record | {"method": method, "fold": fold, "test": {"accuracy": accuracy}}
        ...             for fold, accuracy in enumerate(accuracies)]
        >>> records = trials("vanilla", 0.60, 0.55, 0.65, 0.50, 0.60)
        >>> records += trials("transplant-ep", 0.66, 0.62, 0.70, 0.57, 0.65)
        >>> print(verdicts(summarise(records))[0].sentence)
        transplant-ep beats vanilla on motifs by 6.0 points (p = 0.0012, 5 folds).
    """
    groups: dict[Group, list[SummaryRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return [
        _in_condition(_verdict(group, members), group.condition)
        for group, members in groups.items()
    ]


def _in_condition(verdict: Verdict, condition: Condition) -> Verdict:
    """Name the condition that a verdict holds in, unless it is the default."""
    if not condition.words:
        return verdict
    return replace(
        verdict,
        headline=condition.sentence(verdict.headline),
        sentence=condition.sentence(verdict.sentence),
        clause=f"{condition.words}, {verdict.clause}",
    )


def verdict_line(found: Sequence[Verdict]) -> str:
    """Join the verdicts of several data sets or models to one line.

    Data sets of which the same is to be said share a clause; where one has verdicts on several
    models, each names its own.

    Args:
        found: The verdicts, as :func:`verdicts` gives them.

    Returns:
        The line, without a full stop; empty for no verdicts.

    Example:
        >>> gain = "transplant-ep beats vanilla on ENZYMES by 6.1 points, p = 0.004 after Holm"
        >>> nothing = "no method helps significantly on NCI1"
        >>> print(verdict_line([
        ...     Verdict("NCI1", "gcs", 3, "", "", nothing, "none"),
        ...     Verdict("ENZYMES", "gcs", 3, "", "", gain, "better", "transplant-ep"),
        ... ]))
        transplant-ep beats vanilla on ENZYMES by 6.1 points, p = 0.004 after Holm; no method \
helps significantly on NCI1
    """
    models = {(verdict.data, verdict.model, verdict.layers) for verdict in found}
    models_of = Counter(data for data, _, _ in models)
    places: dict[str, list[str]] = {}
    for verdict in sorted(found, key=lambda item: item.kind != "better"):
        text, place = verdict.clause, verdict.data
        if models_of[verdict.data] > 1:
            place += f" ({model_name(verdict.model, verdict.layers)})"
            text = text.replace(f" on {verdict.data}", f" on {place}", 1)
        shared = text.removesuffix(f" on {place}")
        # Only what ends with the place can be said of several at once.
        places.setdefault(shared, []).extend([place] if shared != text else [])
    return "; ".join(
        f"{text} on {listed(names)}" if names else text for text, names in places.items()
    )


def _verdict(group: Group, rows: list[SummaryRow]) -> Verdict:
    data = group[0]
    metric = METRICS[rows[0].metric]
    names = [row.method for row in rows]
    if len(rows) == 1:
        (row,) = rows
        return Verdict(
            **group._asdict(),
            headline=f"{row.method} reaches {_percent(row.score_mean)} on {data}",
            sentence=(
                f"{row.method} reaches a mean {metric} of {_percent(row.score_mean)} on {data} "
                f"over {_trials(row.trials)}; there is no other method to compare it with."
            ),
            clause=f"{row.method} is alone on {data}",
            kind="open",
            compared=False,
        )
    if BASELINE not in names:
        best = rows[0]
        headline = f"{best.method} has the highest {metric} on {data}"
        return Verdict(
            **group._asdict(),
            headline=headline,
            sentence=(
                f"{best.method} has the highest mean {metric} on {data}, "
                f"{_percent(best.score_mean)} over {_trials(best.trials)}; without {BASELINE} "
                "among the methods no difference is tested."
            ),
            clause=headline,
            kind="open",
            compared=False,
        )
    compared = [row for row in rows if row.difference is not None]
    if not compared:
        return Verdict(
            **group._asdict(),
            headline=f"Nothing to compare yet on {data}",
            sentence=f"No method shares a finished {_unit(rows[0])} with {BASELINE} on {data} yet.",
            clause=f"there is nothing to compare yet on {data}",
            kind="open",
        )
    family = sum(row.p_value is not None for row in compared)
    significant = [row for row in compared if row.p_holm is not None and row.p_holm < SIGNIFICANT]
    better = sorted((row for row in significant if _points(row) > 0), key=_points, reverse=True)
    worse = sorted((row for row in significant if _points(row) < 0), key=_points)
    hint = f" {_few(compared)}" if min(row.pairs for row in compared) < FEW_PAIRS else ""
    points = "points" if rows[0].metric == "accuracy" else f"points of {metric}"
    after = " after Holm" if family > 1 else ""
    subject = (
        f"{compared[0].method} does not help" if len(compared) == 1 else "no method helps"
    ) + f" significantly on {data}"
    if better:
        best = better[0]
        headline = f"{best.method} beats {BASELINE} on {data} by {_points(best):.1f} {points}"
        parts = [f"{headline} ({_evidence(best, family)})"]
        parts += [
            f"so does {row.method}, by {_points(row):.1f} ({format_p(row.p_holm)})"
            for row in better[1:]
        ]
        parts += [
            f"{row.method} is worse than {BASELINE} by {-_points(row):.1f} ({format_p(row.p_holm)})"
            for row in worse
        ]
        return Verdict(
            **group._asdict(),
            headline=headline,
            sentence="; ".join(parts) + "." + hint,
            clause=f"{headline}, {format_p(best.p_holm)}{after}",
            kind="better",
            best=best.method,
        )
    if worse:
        parts = [
            f"{row.method} is worse than {BASELINE} on {data} by {-_points(row):.1f} {points} "
            f"({_evidence(row, family)})"
            for row in worse
        ]
        last = worse[0]
        return Verdict(
            **group._asdict(),
            headline=f"No method beats {BASELINE} on {data}",
            sentence=f"No method beats {BASELINE}; {'; '.join(parts)}.{hint}",
            clause=(
                f"no method helps on {data}, {last.method} is worse by {-_points(last):.1f} "
                f"{points}, {format_p(last.p_holm)}{after}"
            ),
            kind="worse",
        )
    largest = max(compared, key=lambda row: abs(_points(row)))
    differs = f"{largest.method} does not differ" if len(compared) == 1 else "No method differs"
    headline = f"{differs} significantly from {BASELINE} on {data}"
    if family == 0:
        pairs = largest.pairs
        reason = (
            "one pair of trials shows no spread to judge it by"
            if pairs == 1
            else f"all {pairs} {_unit(largest)}s show the same difference, so there is no spread "
            "to judge it by"
        )
        apart = f"{largest.method} and {BASELINE} are {_signed(largest)} {points} apart on {data}"
        if largest.difference == 0:
            apart = f"{largest.method} and {BASELINE} have the same {metric} on {data}"
        return Verdict(
            **group._asdict(),
            headline=f"No difference can be tested on {data}",
            sentence=f"{apart}; {reason}.",
            clause=f"no difference can be tested on {data}",
            kind="open",
        )
    which = (
        "the difference is"
        if len(compared) == 1
        else f"the largest difference, that of {largest.method}, is"
    )
    sentence = f"{headline}: {which} {_signed(largest)} {points}"
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
    return Verdict(
        **group._asdict(),
        headline=headline,
        sentence=sentence + "." + hint,
        clause=subject,
        kind="none",
    )


def notes(records: Iterable[Record], selection: str = "none") -> list[str]:
    """Name what a reader should know before trusting the numbers.

    Args:
        records: Finished trials.
        selection: See :func:`summarise`.

    Returns:
        Sentences, possibly none: trials that were still improving when the epochs ran out, methods
        that lack trials others have, folds that selection cannot use yet, test scores and losses
        that are not finite, what conditions of training leave as it is.

    Example:
        >>> record = {"data": "motifs", "model": "gcs", "layers": 3, "method": "vanilla",
        ...           "repeat": 0, "fold": 0, "test": {"accuracy": 0.5, "nll": 0.7},
        ...           "settings": {"folds": 5, "epochs": 50}, "epochs": 50, "best_epoch": 49}
        >>> print(notes([record])[0])
        In 1 of 1 trials the best checkpoint lies in the last tenth of the 50 epochs allowed: more \
epochs may change the picture.
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
    found += _notes_on_conditions(records)
    finished: dict[Group, Counter[str]] = {}
    for record in sorted(records, key=Trial.of_record):
        group = Group(record["data"], record["model"], record["layers"], *Condition.of(record))
        finished.setdefault(group, Counter())[record["method"]] += 1
    for group, counts in sorted(finished.items(), key=lambda item: _place(item[0])):
        most = max(counts.values())
        short = [f"{name} has {count}" for name, count in counts.items() if count < most]
        if short:
            what = f"{group.model} with {_layers(group.layers or 0)} is not complete"
            what = group.condition.sentence(what)
            found.append(f"{what}: {', '.join(short)} of {most} trials.")
    found += left_out(records, selection)
    for what, lost in (
        ("score", [record for record in records if score(record) is None]),
        ("loss", [record for record in records if record["test"].get("nll", 0.0) is None]),
    ):
        if lost:
            trials = "; ".join(str(Trial.of_record(record)) for record in lost)
            found.append(f"The test {what} is not finite in: {trials}.")
    return found


def _notes_on_conditions(records: Sequence[Record]) -> Iterator[str]:
    """Say what label noise and a training fraction do not touch."""
    conditions = [Condition.of(record) for record in records]
    noisy = any(condition.label_noise for condition in conditions)
    fewer = any(condition.train_fraction != 1 for condition in conditions)
    if noisy:
        yield (
            "Wrong labels are in the training graphs alone: validation and test graphs have their "
            "true labels, so that early stopping and selection see no wrong label."
        )
    if fewer:
        yield (
            "Graphs are left out of the training graphs alone: validation and test graphs are all "
            "there, so that early stopping and selection see more graphs than training may have."
        )
    unchanged = Counter(
        condition.words
        for condition, record in zip(conditions, records, strict=True)
        if condition.label_noise and record.get("wrong_labels") == 0
    )
    for words, count in unchanged.items():
        yield (
            f"In {_trials(count)} {words}, that share of so few labels rounds to none: nothing is "
            "wrong there."
        )


def p_cell(value: float | None) -> str:
    """Write a p-value for a column of a table.

    Example:
        >>> p_cell(0.0312), p_cell(0.00002), p_cell(None)
        ('0.031', '< 0.001', '-')
    """
    if value is None:
        return "-"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def model_name(model: str, layers: int | None) -> str:
    """Write a model with its number of layers, or alone when that was selected.

    Example:
        >>> model_name("gcs", 3), model_name("gcs", None)
        ('gcs-3', 'gcs')
    """
    return model if layers is None else f"{model}-{layers}"


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
    runs = f"{row.pairs} {_unit(row)}s"
    if _unit(row) == "run":
        runs += f" of one {row.split} split"
    elif row.pairs == row.folds * row.repeats and row.repeats > 1:
        runs = f"{row.folds} folds × {row.repeats} repeats"
    return f"{format_p(row.p_holm)}{correction}, {runs}"


def _unit(row: SummaryRow) -> str:
    """Name what is paired: folds, or the runs on one split."""
    return "run" if row.folds == 1 else "fold"


def _few(rows: list[SummaryRow]) -> str:
    pairs, unit = min(row.pairs for row in rows), _unit(rows[0])
    return f"{f'One {unit} is' if pairs == 1 else f'{pairs} {unit}s are'} few: take this as a hint."


def _points(row: SummaryRow) -> float:
    return 100 * (row.difference or 0.0)


def _signed(row: SummaryRow) -> str:
    return format_points(row.difference or 0.0)


def listed(names: Sequence[str]) -> str:
    """Join words as in a sentence.

    Args:
        names: The words, at least one.

    Example:
        >>> listed(["a"]), listed(["a", "b", "c"])
        ('a', 'a, b and c')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def format_points(difference: float) -> str:
    """Write a difference of scores in points: a true minus sign, no sign for what is zero.

    Example:
        >>> format_points(0.041), format_points(-0.0151), format_points(-0.0001)
        ('+4.1', '−1.5', '0.0')
    """
    text = f"{100 * difference:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "−")


def _percent(value: float | None) -> str:
    if value is None:
        return "-"
    # Adding zero takes the sign off a zero.
    text = f"{round(100 * value, 1) + 0.0:.1f} %"
    return text.replace("-", "−")


def _trials(count: int) -> str:
    return f"{count} trial{'s' if count != 1 else ''}"


def _layers(count: int) -> str:
    return f"{count} layer{'s' if count != 1 else ''}"
