"""Figures that tell why a method works: calibration, robustness, saliency, samples, cost, axes.

Everything is drawn from the numbers in the records; a figure whose numbers they lack is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from markupsafe import Markup

from graph_transplant.experiments.protocol import METRICS, Condition, Record
from graph_transplant.experiments.summary import listed, processor_timed
from graph_transplant.report.figures import (
    CALIBRATION,
    Bar,
    BarGroup,
    Line,
    MeasureRow,
    Reliability,
    ScoreRow,
    Sensitivity,
    Spread,
    attacked_data,
    axis_data,
    cost_data,
    measured,
    reliability_data,
    robustness_data,
    saliency_curves_data,
    sensitivity_data,
    spread,
)
from graph_transplant.report.frame import Figure, Table, figure
from graph_transplant.report.names import slug
from graph_transplant.report.plots import (
    FEW_LINES,
    draw_groups,
    draw_lines,
    draw_reliability_panels,
    draw_sensitivity,
)
from graph_transplant.report.svg import (
    draw_measures,
    draw_scores,
    exact_percent,
    percent,
)

Methods = Mapping[str, Sequence[Record]]
Colours = Mapping[str, str]

STRONG = (
    "GradArgmax, which here spends its whole budget on changes (stronger than the paper’s wording)"
)
"""The attack that is drawn, as captions call it."""

LINE_COLUMNS = ("method", "series", "x", "mean", "std", "trials")
"""Columns of the numbers of lines."""


def study_figures(methods: Methods, colours: Colours, *, baseline: str) -> list[Figure]:
    """Draw the studies of one data set, model and number of layers.

    Args:
        methods: Records of each method, in the order to show them.
        colours: CSS class of each method.
        baseline: The method that the others are seen against; it is shown first.

    Returns:
        Those of reliability, robustness, saliency, sample quality and cost that the records have
        numbers for.

    Example:
        >>> record = {"repeat": 0, "fold": 0, "test": {"accuracy": 0.7}, "seconds": 9.0,
        ...           "epochs": 3, "best_epoch": 2,
        ...           "attacked": [{"budget": budget, "edges": 9, "accuracy": 0.7 - budget}
        ...                        for budget in (0.1, 0.2)]}
        >>> figures = study_figures({"vanilla": [record], "transplant-ep": [record]},
        ...                         {"vanilla": "c0", "transplant-ep": "c1"}, baseline="vanilla")
        >>> [figure.name for figure in figures]
        ['robustness', 'cost']
    """
    order = sorted(methods, key=lambda name: name != baseline)
    ordered = {name: methods[name] for name in order if methods[name]}
    if not ordered:
        return []
    found = [
        reliability_figure(reliability_data(ordered), colours, entries=_label_entries(ordered)),
        *robustness_figures(ordered, colours, baseline),
        *_saliency_figures(ordered, colours, baseline),
        _samples_figure(ordered, colours),
        _cost_figure(ordered, colours, baseline),
    ]
    return [one for one in found if one is not None]


def axis_figures(records: Sequence[Record], colours: Colours, metric: str) -> list[Figure]:
    """Draw the score over label noise, over the amount of data, and over methods' parameters.

    Args:
        records: Finished trials of a whole comparison.
        colours: CSS class of each method; one with parameters that is not named has the colour of
            the method without.
        metric: Name of the test measurement.

    Returns:
        For each model and number of layers those figures that have at least two places: one over
        the label noise for each amount of data, one over the amount of data for each label noise.

    Example:
        >>> records = [{"model": "gcs", "layers": 3, "method": "vanilla", "label_noise": noise,
        ...             "settings": {}, "test": {"accuracy": 0.8 - noise}} for noise in (0.0, 0.2)]
        >>> [(one.name, one.data.rows[1][2:4]) for one in
        ...  axis_figures(records, {"vanilla": "c0"}, "accuracy")]
        [('label-noise-gcs-3', (0.2, 0.6000000000000001))]
    """
    groups: dict[tuple[str, int | None], list[Record]] = {}
    for record in records:
        if record.get("inner", 0) == 0:
            layers = None if "chosen" in record else record["layers"]
            groups.setdefault((record["model"], layers), []).append(record)
    found: list[Figure] = []
    for (model, layers), own in sorted(
        groups.items(), key=lambda item: (item[0][0], item[0][1] or 0)
    ):
        where = f"{model.upper()}, " + (
            "layers chosen by validation"
            if layers is None
            else f"{layers} layer{'s' if layers != 1 else ''}"
        )
        stem = slug(model, "chosen" if layers is None else str(layers))
        every = by_method(own)
        named = coloured(every, colours)
        for axis in _AXES:
            found += _axis_figures(own, axis, named, metric, where, stem)
        usual = by_method(record for record in own if Condition.of(record) == Condition())
        found += sensitivity_figures(usual, named, metric, where=where, stem=stem)
        one = readout_figure(own, named, metric, where=where, stem=stem)
        found += [] if one is None else [one]
    return found


def by_method(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Sort records by their methods, in the order in which these are met.

    Example:
        >>> by_method([{"method": "b"}, {"method": "a"}, {"method": "b"}])
        {'b': [{'method': 'b'}, {'method': 'b'}], 'a': [{'method': 'a'}]}
    """
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record["method"], []).append(record)
    return found


def coloured(methods: Iterable[str], colours: Colours) -> dict[str, str]:
    """Give every method a colour: its own, or that of the method without parameters.

    Example:
        >>> coloured(["drop-nodes:ratio=0.4", "new"], {"drop-nodes": "c3"})
        {'drop-nodes:ratio=0.4': 'c3', 'new': 'c1', 'drop-nodes': 'c3'}
    """
    found = {}
    for name in methods:
        found[name] = colours.get(name) or colours.get(name.partition(":")[0], "c1")
    return {**found, **{name: kind for name, kind in colours.items() if name not in found}}


def three(value: float) -> str:
    """Write a number with three digits after the point.

    Example:
        >>> three(-0.25)
        '−0.250'
    """
    return f"{value:.3f}".replace("-", "−")


def _plain(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _spread_cells(value: Spread | None) -> tuple[float | None, float | None, int]:
    return (None, None, 0) if value is None else (value.mean, value.std, value.trials)


def line_table(
    series: Mapping[str, Sequence[Line]], columns: Sequence[str] = LINE_COLUMNS
) -> Table:
    """Give the numbers of lines as a table.

    Args:
        series: Lines by what they show.
        columns: Six names of columns.

    Example:
        >>> line = Line("vanilla", (0.1,), (Spread(0.5, None, 1),))
        >>> line_table({"random": [line]}).rows
        (('vanilla', 'random', 0.1, 0.5, None, 1),)
    """
    rows = [
        (line.name, name, place, *_spread_cells(value))
        for name, lines in series.items()
        for line in lines
        for place, value in zip(line.places, line.values, strict=True)
    ]
    return Table(tuple(columns), tuple(rows))


# Reliability ------------------------------------------------------------------------------------


def reliability_figure(
    found: Sequence[Reliability],
    colours: Colours,
    *,
    name: str = "reliability",
    title: str = "Is it as sure as it is right?",
    entries: bool = False,
) -> Figure | None:
    """Draw reliability diagrams, before and after temperature scaling.

    Args:
        found: The pooled bins of each method.
        colours: CSS class of each method.
        name: Stem of its files.
        title: Its heading.
        entries: Whether graphs have several labels: then each label of a graph is a prediction.

    Returns:
        The figure, or nothing without bins.

    Example:
        >>> from graph_transplant.report.figures import Bin
        >>> found = Reliability("vanilla", (Bin(13, 8, 0.9, 0.5),), (), {"ece": 0.4}, {})
        >>> reliability_figure([found], {"vanilla": "c0"}).data.rows[0][:7]
        ('vanilla', 'as trained', 'all', 8, None, None, 0.4)
    """
    if not found:
        return None
    scaled = any(one.after for one in found)
    label = "Reliability on the test graphs. " + "; ".join(
        f"{one.method}: {_calibration_change(one)}, {sum(part.count for part in one.before)} "
        "predictions"
        for one in found
    )
    rows: list[tuple[str | float | int | None, ...]] = []
    for one in found:
        for stage, bins, numbers in (
            ("as trained", one.before, one.measured),
            ("temperature", one.after, one.calibrated),
        ):
            if not bins and not numbers:
                continue
            total = sum(part.count for part in bins)
            scores = [numbers.get(key) for key in (*CALIBRATION, "temperature")]
            rows.append((one.method, stage, "all", total, None, None, *scores))
            rows += [
                (
                    *(one.method, stage, part.number, part.count),
                    *(part.confidence, part.accuracy, *[None] * 5),
                )
                for part in bins
            ]
    return figure(
        title,
        (
            "Share of labels that are predicted correctly, each label of a test graph by itself, "
            if entries
            else "Share of test graphs that are classified correctly "
        )
        + "against the confidence stated, in 15 bins pooled over trials; on the dashed diagonal "
        "confidence is honest, below it the model is too sure. Larger dots are more predictions, "
        "the columns below count them."
        + (
            " Hollow dots: after temperature scaling on the validation graphs. ECE is the "
            "calibration error before → after, mean over trials."
            if scaled
            else " ECE is the calibration error, mean over trials."
        ),
        lambda width: draw_reliability_panels(found, width=width, colours=colours, label=label),
        name=name,
        data=Table(
            (
                *("method", "stage", "bin", "count", "confidence", "accuracy"),
                *(*CALIBRATION, "temperature"),
            ),
            tuple(rows),
        ),
        group="Calibration",
    )


def _label_entries(methods: Methods) -> bool:
    return any(
        record.get("task") == "multilabel" for records in methods.values() for record in records
    )


def _calibration_change(one: Reliability) -> str:
    parts = []
    for key, word in zip(CALIBRATION, ("ECE", "adaptive ECE", "Brier", "NLL"), strict=True):
        if key in one.measured:
            after = f" → {one.calibrated[key]:.3f}" if key in one.calibrated else ""
            parts.append(f"{word} {one.measured[key]:.3f}{after}")
    return ", ".join(parts) or "no errors recorded"


# Robustness -------------------------------------------------------------------------------------


def robustness_figures(
    methods: Methods,
    colours: Colours,
    baseline: str,
    *,
    name: str = "robustness",
    title: str = "Under attack",
) -> list[Figure]:
    """Draw the accuracy under attack: over the budget, or one dot per trial for a single budget.

    Args:
        methods: Records of each method, in the order to show them.
        colours: CSS class of each method.
        baseline: The method that the others are seen against.
        name: Stem of its files.
        title: Its heading.

    Returns:
        One figure, or none if nothing was attacked.

    Example:
        >>> record = {"repeat": 0, "fold": 0, "test": {"accuracy": 0.7},
        ...           "attacked": [{"budget": 0.2, "edges": 9, "accuracy": 0.5}]}
        >>> (one,) = robustness_figures({"vanilla": [record]}, {"vanilla": "c0"}, "vanilla")
        >>> [row[2:4] for row in one.data.rows]
        [(0.0, 0.7), (0.2, 0.5)]
    """
    series = {
        field: robustness_data(methods, field) for field in ("accuracy", "as_stated", "random")
    }
    budgets = attacked_data(methods)
    if not budgets:
        return []
    words = {"accuracy": "GradArgmax", "as_stated": "as stated", "random": "random"}
    data = line_table(
        {words[field]: lines for field, lines in series.items()},
        ("method", "attack", "budget", "accuracy", "std", "trials"),
    )
    control = (
        " Dashed: after as many random changes." if series["random"] and len(budgets) > 1 else ""
    )
    letter = (
        " The attack to the letter of the paper, which may change less, is among the numbers."
        if series["as_stated"]
        else ""
    )
    if len(budgets) == 1:
        ((share, rows),) = budgets.items()
        told = _changes(methods) + letter
        return [_attacked(rows, series, share, colours, baseline, data, name, title, told)]
    drawn = [*series["accuracy"], *series["random"]]
    label = "Test accuracy by budget of the attack. " + _line_words(
        series["accuracy"], percent, exact_percent
    )
    return [
        figure(
            title,
            f"Test accuracy after {STRONG}, against its budget, the share of the mean number of "
            "edges that it may change; at 0 % nothing is changed. Mean over trials, the band is "
            f"one standard deviation.{_changes(methods)}{control}{_grey(drawn, baseline)}{letter}",
            lambda width: draw_lines(
                drawn,
                width=width,
                colours=colours,
                titles=("Budget of the attack", "Test accuracy"),
                forms=(percent, percent),
                exact=exact_percent,
                label=label,
                baseline=baseline,
            ),
            name=name,
            data=data,
            group="Robustness",
        )
    ]


def _changes(methods: Methods) -> str:
    """Say how many pairs of nodes the budgets are, where that is the same for all trials."""
    pairs: dict[float, set[int]] = {}
    for record in chain.from_iterable(methods.values()):
        for attack in record.get("attacked", ()):
            pairs.setdefault(attack["budget"], set()).add(attack.get("edges", 0))
    if not pairs or any(len(counts) > 1 for counts in pairs.values()) or {0} in pairs.values():
        return ""
    counts = [min(pairs[budget]) for budget in sorted(pairs)]
    noun = "pair of nodes" if counts == [1] else "pairs of nodes"
    budgets = "budget is" if len(counts) == 1 else "budgets are"
    return f" The {budgets} {listed([str(count) for count in counts])} {noun} of each graph."


def _grey(lines: Sequence[Line], baseline: str) -> str:
    names = {line.name for line in lines}
    return f" Grey is {baseline}." if len(names) > FEW_LINES and baseline in names else ""


def _line_words(
    lines: Sequence[Line], form: Callable[[float], str], exact: Callable[[float], str]
) -> str:
    return "; ".join(
        f"{line.name} "
        + ", ".join(
            f"{exact(value.mean)} at {form(place)}"
            for place, value in _few(list(zip(line.places, line.values, strict=True)))
        )
        for line in lines
    )


def _few(points: list[tuple[float, Spread]]) -> list[tuple[float, Spread]]:
    """Keep what can be read out: all of few points, else the first, the middle and the last."""
    return points if len(points) <= 6 else [points[0], points[len(points) // 2], points[-1]]


def _attacked(
    rows: Sequence[ScoreRow],
    series: Mapping[str, Sequence[Line]],
    share: float,
    colours: Colours,
    baseline: str,
    data: Table,
    name: str,
    title: str,
    told: str,
) -> Figure:
    words = f"{100 * share:g} % of the mean number of edges changed"
    marks = {
        line.name: [
            (value.mean, f"{line.name}, random changes: {exact_percent(value.mean)}")
            for place, value in zip(line.places, line.values, strict=True)
            if place == share
        ]
        for line in series["random"]
    }
    clean = {line.name: line.values[0].mean for line in series["accuracy"] if line.places[0] == 0.0}
    label = f"Test accuracy under attack, {words}. Means: " + "; ".join(
        f"{row.method} {exact_percent(row.mean)}"
        + (f" (without attack {exact_percent(clean[row.method])})" if row.method in clean else "")
        for row in rows
    )
    return figure(
        title,
        f"Test accuracy after {STRONG}, {words}, one dot per trial; the thick stroke is the mean."
        + (" Hollow: the mean after as many random changes." if any(marks.values()) else "")
        + told,
        lambda width: draw_scores(
            rows,
            width=width,
            colours=colours,
            axis="Test accuracy under attack",
            form=percent,
            exact=exact_percent,
            label=label,
            baseline=baseline,
            paired=True,
            marks=marks,
        ),
        name=name,
        data=data,
        group="Robustness",
    )


# Saliency ---------------------------------------------------------------------------------------

ORDERED = "ordered by the norm of the gradient of the predicted class"
"""How nodes are ordered for the curves, as captions say it."""


def _saliency_figures(methods: Methods, colours: Colours, baseline: str) -> list[Figure]:
    areas = measured(methods, "saliency")
    found = []
    for field, title, told in (
        (
            "deletion",
            "Taking salient nodes away",
            (
                "Probability of the predicted class as nodes are taken away, the most salient "
                f"first, {ORDERED}: the faster it falls, the better saliency finds what the model "
                "looks at."
            ),
        ),
        (
            "insertion",
            "Putting salient nodes back",
            (
                "Probability of the predicted class as nodes are put back, the most salient "
                f"first, {ORDERED}: the faster it rises, the better saliency finds what the model "
                "looks at."
            ),
        ),
    ):
        lines = saliency_curves_data(methods, field)
        random = saliency_curves_data(methods, f"{field}_random")
        if lines:
            found.append(
                _saliency_curve(lines, random, areas, colours, baseline, field, title, told)
            )
    for field, title, axis in (
        ("auroc", "Does saliency find the motif?", "AUROC of node saliency against the motif"),
        ("precision", "How much of what is salient is motif?", "Precision of the salient nodes"),
    ):
        one = _motif_figure(areas, colours, field, title, axis)
        found += [] if one is None else [one]
    return found


def _saliency_curve(
    lines: Sequence[Line],
    random: Sequence[Line],
    areas: Mapping[str, Mapping[str, Spread]],
    colours: Colours,
    baseline: str,
    field: str,
    title: str,
    told: str,
) -> Figure:
    drawn = [*lines, *random]

    def area(name: str, key: str) -> float | None:
        return areas[name][key].mean if key in areas.get(name, {}) else None

    words = []
    for line in lines:
        own, chance = area(line.name, field), area(line.name, f"{field}_random")
        if own is not None:
            words.append(
                f"{line.name} {three(own)}"
                + ("" if chance is None else f", random {three(chance)}")
            )
    label = f"{title}. " + (
        f"Area under the curve: {'; '.join(words)}"
        if words
        else _line_words(lines, percent, exact_percent)
    )
    rows = [
        (*row, area(str(row[0]), field + ("_random" if row[1] == "random" else "")))
        for row in line_table({"salient first": lines, "random": random}).rows
    ]
    return figure(
        title,
        told
        + (" Dashed: in random order." if random else "")
        + " Mean over trials, the band is one standard deviation."
        + _grey(drawn, baseline),
        lambda width: draw_lines(
            drawn,
            width=width,
            colours=colours,
            titles=(
                "Share of nodes " + ("taken away" if field == "deletion" else "put back"),
                "Probability of the predicted class",
            ),
            forms=(percent, percent),
            exact=exact_percent,
            label=label,
            baseline=baseline,
        ),
        name=f"saliency-{field}",
        data=Table(
            ("method", "order", "share", "probability", "std", "trials", "area"), tuple(rows)
        ),
        group="Saliency",
    )


def _motif_figure(
    areas: Mapping[str, Mapping[str, Spread]],
    colours: Colours,
    field: str,
    title: str,
    axis: str,
) -> Figure | None:
    there = {name: numbers for name, numbers in areas.items() if field in numbers}
    if not there:
        return None

    def chance(numbers: Mapping[str, Spread]) -> float | None:
        if field == "auroc":
            return 0.5
        return numbers["chance"].mean if "chance" in numbers else None

    rows = [
        MeasureRow(name, numbers[field], chance(numbers), "chance")
        for name, numbers in there.items()
    ]
    label = f"{axis}. " + "; ".join(f"{row.method} {exact_percent(row.value.mean)}" for row in rows)
    return figure(
        title,
        (
            "How well node saliency ranks the nodes of the true motif above the others"
            if field == "auroc"
            else "Of as many most salient nodes as the true motif has, the share that belongs to it"
        )
        + ", mean over trials with one standard deviation; saliency as training reads it: the "
        "gradient of the loss at the true class. Hollow: chance.",
        lambda width: draw_measures(
            rows,
            width=width,
            colours=colours,
            axis=axis,
            form=percent,
            exact=exact_percent,
            label=label,
        ),
        name=f"saliency-{field}",
        data=Table(
            ("method", field, "std", "trials", "chance"),
            tuple((row.method, *_spread_cells(row.value), row.mark) for row in rows),
        ),
        group="Saliency",
    )


# Samples and cost -------------------------------------------------------------------------------


def _samples_figure(methods: Methods, colours: Colours) -> Figure | None:
    numbers = measured(methods, "samples")
    shown = {name: own for name, own in numbers.items() if "degree_distance" in own}
    if not shown:
        return None
    rows = [
        MeasureRow(
            name,
            own["degree_distance"],
            own["degree_distance_control"].mean if "degree_distance_control" in own else None,
            "two halves of the originals",
        )
        for name, own in shown.items()
    ]
    columns = tuple(dict.fromkeys(key for own in numbers.values() for key in own))
    label = (
        "Distance of the node degrees of virtual graphs to those of the originals. "
        + "; ".join(
            f"{name} {three(own['degree_distance'].mean)}"
            + (f", label gap {three(own['label_gap'].mean)}" if "label_gap" in own else "")
            for name, own in shown.items()
        )
    )
    return figure(
        "Do virtual graphs look like real ones?",
        "How far the node degrees of the virtual graphs that a method makes are from those of the "
        "graphs they are made of (Wasserstein distance, in edges per node); shorter is closer. "
        "Hollow: between two random halves of the real graphs, what chance gives."
        + _samples_words(shown),
        lambda width: draw_measures(
            rows,
            width=width,
            colours=colours,
            axis="Distance of node degrees, in edges",
            form=_plain,
            exact=three,
            label=label,
        ),
        name="samples",
        data=Table(
            ("method", *columns),
            tuple(
                (name, *(own[key].mean if key in own else None for key in columns))
                for name, own in numbers.items()
            ),
        ),
        group="Virtual graphs",
    )


def _samples_words(shown: Mapping[str, Mapping[str, Spread]]) -> str:
    """Say how labels and structure agree, where that was measured."""
    gaps = {name: own["label_gap"].mean for name, own in shown.items() if "label_gap" in own}
    if not gaps:
        return ""
    if len(gaps) <= FEW_LINES:
        told = ", ".join(f"{name} {percent(gap)}" for name, gap in gaps.items())
    else:
        least, most = (find(gaps, key=lambda name: gaps[name]) for find in (min, max))
        told = f"from {percent(gaps[least])} ({least}) to {percent(gaps[most])} ({most})"
    return f" Mean gap between the weight of a part’s label and its share of the nodes: {told}."


def _cost_figure(methods: Methods, colours: Colours, baseline: str) -> Figure | None:
    costs = cost_data(methods, baseline)
    compared = [cost for cost in costs if cost.epoch_ratio is not None]
    if len(compared) < 2:
        return None

    def times(value: float | None) -> str:
        return "-" if value is None else f"×\N{NO-BREAK SPACE}{value:.1f}"

    plain = next(cost for cost in costs if cost.method == baseline)
    kind = "Processor time" if processor_timed(chain.from_iterable(methods.values())) else "Time"
    rows = []
    for cost in compared:
        std = None if cost.epoch.std is None else cost.epoch.std / plain.epoch.mean
        rows.append(
            MeasureRow(
                cost.method,
                Spread(cost.epoch_ratio or 0.0, std, cost.epoch.trials),
                cost.best_ratio,
                "to the best checkpoint",
                f"{times(cost.epoch_ratio)}, {times(cost.best_ratio)}",
            )
        )
    label = f"{kind} as ratio to {baseline}, per epoch and to the best checkpoint. " + "; ".join(
        f"{row.method} {row.number}" for row in rows
    )
    return figure(
        "What does it cost?",
        f"{kind} of training as ratio to {baseline}: bars per epoch, with one standard deviation "
        f"over trials, hollow dots until the best checkpoint. An epoch of {baseline} takes "
        f"{plain.epoch.mean:.2g} s.",
        lambda width: draw_measures(
            rows,
            width=width,
            colours=colours,
            axis=f"{kind}, compared with {baseline}",
            form=lambda value: f"×\N{NO-BREAK SPACE}{value:g}",
            exact=times,
            label=label,
            heading="epoch, best",
            reference=1.0,
        ),
        name="cost",
        data=Table(
            (
                *("method", "epoch_seconds", "epoch_seconds_std", "trials", "epoch_ratio"),
                *("best_seconds", "best_seconds_std", "best_ratio"),
            ),
            tuple(
                (
                    *(cost.method, *_spread_cells(cost.epoch), cost.epoch_ratio),
                    *(*_spread_cells(cost.best)[:2], cost.best_ratio),
                )
                for cost in costs
            ),
        ),
        group="Cost",
    )


# Axes -------------------------------------------------------------------------------------------


class _Axis(NamedTuple):
    """What the score is drawn over.

    Args:
        field: Field of a condition, and column of the numbers.
        title: Begin of the heading.
        told: The axis in the middle of a sentence.
        label: What stands below it.
        group: Where the figure stands in the report.
    """

    field: str
    title: str
    told: str
    label: str
    group: str


_AXES = (
    _Axis(
        "label_noise",
        "With wrong labels",
        "against the share of training labels that were made wrong; validation and test labels are "
        "right",
        "Wrong training labels",
        "Label noise",
    ),
    _Axis(
        "train_fraction",
        "With little data",
        "against the share of the training graphs that were used; validation and test graphs are "
        "all there",
        "Training graphs used",
        "Little data",
    ),
)


def _axis_figures(
    records: Sequence[Record], axis: _Axis, colours: Colours, metric: str, where: str, stem: str
) -> list[Figure]:
    """Draw the score over one field of the condition, once for each value of the other."""
    default = Condition()._asdict()[axis.field]
    others: dict[Condition, list[Record]] = {}
    for record in records:
        fixed = Condition.of(record)._replace(**{axis.field: default})
        others.setdefault(fixed, []).append(record)
    found = []
    for fixed, own in sorted(others.items(), key=lambda item: item[0].order):
        one = _axis_figure(
            own,
            lambda record: float(getattr(Condition.of(record), axis.field)),
            colours,
            metric,
            title=f"{axis.title} ({_within(where, fixed)})",
            told=f"{axis.told}{_also(fixed)}",
            axis=axis.label,
            name=_axis_name(slug(axis.field), stem, fixed),
            column=axis.field,
            group=axis.group,
        )
        found += [] if one is None else [one]
    return found


def _within(where: str, fixed: Condition) -> str:
    return f"{where}, {fixed.words}" if fixed.words else where


def _also(fixed: Condition) -> str:
    return f"; all {fixed.words}" if fixed.words else ""


def _axis_name(axis: str, stem: str, fixed: Condition) -> str:
    return f"{axis}-{stem}" + (f"-{slug(fixed.short)}" if fixed.short else "")


def _axis_figure(
    records: Sequence[Record],
    place: Callable[[Record], float],
    colours: Colours,
    metric: str,
    *,
    title: str,
    told: str,
    axis: str,
    name: str,
    column: str,
    group: str,
) -> Figure | None:
    methods = by_method(records)
    lines = axis_data(methods, place, metric)
    if len({where for line in lines for where in line.places}) < 2:
        return None
    baseline = baseline_of(methods, colours)
    word = METRICS.get(metric, metric)
    label = f"Test {word} {told}. " + _line_words(lines, percent, exact_percent)
    return figure(
        title,
        f"Test {word} {told}. Mean over trials, the band is one standard deviation."
        + _grey(lines, baseline),
        lambda width: draw_lines(
            lines,
            width=width,
            colours=colours,
            titles=(axis, f"Test {word}"),
            forms=(percent, percent),
            exact=exact_percent,
            label=label,
            baseline=baseline,
        ),
        name=name,
        data=line_table({metric: lines}, ("method", "measure", column, "mean", "std", "trials")),
        group=group,
    )


def baseline_of(methods: Iterable[str], colours: Colours) -> str:
    """Find the method that the others are seen against: the one in grey, or nothing.

    Example:
        >>> baseline_of(["m", "vanilla"], {"m": "c1", "vanilla": "c0"})
        'vanilla'
    """
    return next((name for name in methods if colours.get(name) == "c0"), "")


def sensitivity_figures(
    methods: Methods, colours: Colours, metric: str, *, where: str, stem: str
) -> list[Figure]:
    """Draw the score over each parameter that was varied by itself.

    Args:
        methods: Records of each method by its name with parameters.
        colours: CSS class of each method.
        metric: Name of the test measurement.
        where: What all have in common, in words.
        stem: What all have in common, for the name of the file.

    Returns:
        One figure, or none if no parameter was varied.

    Example:
        >>> methods = {name: [{"test": {"accuracy": value}}] for name, value in
        ...            {"drop-nodes": 0.7, "drop-nodes:ratio=0.4": 0.6}.items()}
        >>> (one,) = sensitivity_figures(methods, {}, "accuracy", where="GCS", stem="gcs")
        >>> one.data.rows[1]
        ('drop-nodes', 'ratio', 0.4, 'no', 0.6, None, 1)
    """
    found = sensitivity_data(methods, metric)
    if not found:
        return []
    word = METRICS.get(metric, metric)
    named = coloured([one.method for one in found], colours)
    label = f"Test {word} by parameter. " + "; ".join(_parameter_words(one) for one in found)
    return [
        figure(
            f"How much do parameters matter? ({where})",
            f"Test {word} for each value of a parameter, the others at their defaults: mean over "
            "trials with one standard deviation. The filled dot is the default, the dashed line "
            "its mean.",
            lambda width: draw_sensitivity(
                found,
                width=width,
                colours=named,
                axis=f"Test {word}",
                form=percent,
                exact=exact_percent,
                label=label,
            ),
            name=f"sensitivity-{stem}",
            data=Table(
                ("method", "parameter", "value", "default", "mean", "std", "trials"),
                tuple(
                    (
                        *(
                            one.method,
                            one.parameter,
                            value,
                            "yes" if value == one.default else "no",
                        ),
                        *_spread_cells(score),
                    )
                    for one in found
                    for value, score in zip(one.values, one.scores, strict=True)
                ),
            ),
            group="Sensitivity",
        )
    ]


def _parameter_words(one: Sensitivity) -> str:
    pairs = zip(one.values, one.scores, strict=True)
    listed = ", ".join(f"{value}: {exact_percent(score.mean)}" for value, score in pairs)
    return f"{one.method}, {one.parameter} {listed} (default {one.default})"


def readout_figure(
    records: Sequence[Record], colours: Colours, metric: str, *, where: str, stem: str
) -> Figure | None:
    """Draw the score of every method with each readout, if there are several.

    Args:
        records: Finished trials.
        colours: CSS class of each method.
        metric: Name of the test measurement.
        where: What all have in common, in words.
        stem: What all have in common, for the name of the file.

    Example:
        >>> records = [{"method": "vanilla", "settings": {"readout": readout},
        ...             "test": {"accuracy": 0.5}} for readout in ("mean", "max")]
        >>> one = readout_figure(records, {"vanilla": "c0"}, "accuracy", where="GCS", stem="gcs")
        >>> [row[:3] for row in one.data.rows]
        [('mean', 'vanilla', 0.5), ('max', 'vanilla', 0.5)]
    """
    readouts: dict[str, list[Record]] = {}
    for record in records:
        if Condition.of(record) == Condition():
            readouts.setdefault(record["settings"].get("readout", "mean"), []).append(record)
    if len(readouts) < 2:
        return None
    names = list(by_method(records))
    groups = []
    for readout, own in readouts.items():
        methods = by_method(own)
        bars = [
            Bar(name, spread(record["test"].get(metric) for record in methods.get(name, ())))
            for name in names
        ]
        groups.append(BarGroup(readout, tuple(bars)))
    word = METRICS.get(metric, metric)
    return groups_figure(
        groups,
        colours,
        title=f"With other readouts ({where})",
        told=f"Test {word} by readout",
        axis=f"Test {word}",
        name=f"readout-{stem}",
        group="Readout",
        columns=("readout", "method"),
    )


def groups_figure(
    groups: Sequence[BarGroup],
    colours: Colours,
    *,
    title: str,
    told: str,
    axis: str,
    name: str,
    group: str,
    columns: tuple[str, str],
    shares: bool = True,
) -> Figure | None:
    """Draw groups of bars with what was published beside them.

    Args:
        groups: The bars.
        colours: CSS class of each bar's name.
        title: Heading of the figure.
        told: What is drawn, as the beginning of a sentence.
        axis: Title of the upright axis.
        name: Stem of its files.
        group: Heading under which it stands.
        columns: What groups and bars are, for the numbers.
        shares: Whether the values are shares, written in per cent.

    Returns:
        The figure, or nothing where nothing was measured.

    Example:
        >>> group = BarGroup("GCS", (Bar("vanilla", Spread(0.6, 0.1, 5), 0.64),))
        >>> one = groups_figure([group], {"vanilla": "c0"}, title="ENZYMES", told="Test accuracy",
        ...                     axis="Test accuracy", name="bars", group="",
        ...                     columns=("model", "method"))
        >>> one.data.rows
        (('GCS', 'vanilla', 0.6, 0.1, 5, 0.64),)
    """
    bars = [bar for one in groups for bar in one.bars]
    if all(bar.value is None for bar in bars):
        return None
    form, exact = (percent, exact_percent) if shares else (_plain, three)
    label = f"{told}. " + "; ".join(
        f"{one.name}: "
        + ", ".join(
            f"{bar.name} {'missing' if bar.value is None else exact(bar.value.mean)}"
            + ("" if bar.published is None else f" (published {exact(bar.published)})")
            for bar in one.bars
        )
        for one in groups
    )

    def draw(width: int) -> Markup:
        return draw_groups(
            groups, width=width, colours=colours, axis=axis, form=form, exact=exact, label=label
        )

    return figure(
        title,
        f"{told}: mean over trials with one standard deviation."
        + (
            " Hollow marks: what was published."
            if any(bar.published is not None for bar in bars)
            else ""
        ),
        draw,
        name=name,
        data=Table(
            (*columns, "mean", "std", "trials", "published"),
            tuple(
                (one.name, bar.name, *_spread_cells(bar.value), bar.published)
                for one in groups
                for bar in one.bars
            ),
        ),
        group=group,
    )
