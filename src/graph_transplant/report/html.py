"""The page of a comparison: one file, no network, no script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.files import write_atomically
from graph_transplant.experiments.progress import duration
from graph_transplant.experiments.protocol import BASELINE, Record
from graph_transplant.experiments.summary import (
    SummaryRow,
    Verdict,
    group_records,
    notes,
    summarise,
    verdicts,
)
from graph_transplant.report.figures import (
    Curve,
    ScoreRow,
    curves_data,
    differences_data,
    scores_data,
)
from graph_transplant.report.svg import (
    NARROW,
    WIDE,
    caption_list,
    draw_curves,
    draw_differences,
    draw_panels,
    draw_scores,
    exact_percent,
    percent,
    signed,
)

COLOURS = 8
"""Number of colours for methods beside the baseline; with more methods they come round again."""

METHOD_NOTES = {
    "vanilla": "Plain training, without augmentation: what the others are compared with.",
    "transplant-dp": (
        "Graph Transplant: a salient part of one graph replaces a part of another; new edges keep "
        "the node degrees (degree preservation)."
    ),
    "transplant-ep": (
        "Graph Transplant whose new edges are proposed by a small network trained along the way "
        "(edge prediction)."
    ),
    "transplant-disconnected": "Ablation: the transplanted part gets no edges to its new graph.",
    "transplant-size-label": "Ablation: labels are mixed by number of nodes, not by saliency.",
    "transplant-scattered": "Ablation: the transplanted nodes are scattered, not a connected part.",
    "transplant-random": "Ablation: the transplanted part is chosen at random, not by saliency.",
    "manifold-mixup": "Graph embeddings and labels of two graphs are mixed after the readout.",
    "m-evolve": (
        "Edges of open triads are swapped; graphs whose label the model finds unreliable are left "
        "out."
    ),
    "drop-nodes": "Random nodes are dropped.",
    "perturb-edges": "Random edges are removed and as many added elsewhere.",
    "mask-nodes": "The features of random nodes are masked.",
    "subgraph": "A random connected part of the graph stands for the whole.",
    "if-mixup": "Node features, edges and labels of two graphs are interpolated.",
    "sub-mix": "A part of one graph is swapped for a part of another; labels follow the edges.",
    "node-sam": "A node is split in two, and two others are merged into one.",
    "g-mixup": "Graphs are drawn from a mixture of what is typical of two classes (graphons).",
    "drop-edge": "Random edges are removed.",
    "label-smoothing": "Control: softer labels, without any virtual graph.",
    "vanilla-x2": "Control: the original graphs twice per step, the same work without new graphs.",
    "saliency-shuffled": "Control: Graph Transplant (EP) with saliency shuffled within each graph.",
}
"""What each method is, for people who have not read the paper; one that is not here has no note."""

GLOSSARY = (
    (
        "Accuracy",
        (
            "Share of test graphs whose class was predicted correctly. The test graphs of a fold "
            "are looked at once, after the best checkpoint was chosen on the validation graphs."
        ),
    ),
    (
        "± and dots",
        (
            "The standard deviation over trials; each dot of a figure is one trial, that is one "
            "fold of one repeat."
        ),
    ),
    (
        "Difference",
        (
            "Mean over folds of the accuracy minus vanilla's on the same fold, in percentage "
            "points. The range below it is the 95 % confidence interval."
        ),
    ),
    (
        "p and p (Holm)",
        (
            "How likely a difference at least as large would be if the methods were equally good: "
            "a paired t-test with the correction of Nadeau and Bengio for overlapping training "
            "sets, then Holm’s correction for testing several methods. Below 0.05 a difference is "
            "called significant."
        ),
    ),
    (
        "ECE",
        (
            "Expected calibration error: how far stated confidence is from actual accuracy, over "
            "15 bins. 0 is perfect, lower is better."
        ),
    ),
    ("Loss", "Negative log-likelihood of the true class on the test graphs; lower is better."),
    (
        "AUROC",
        (
            "Area under the ROC curve, for data with two classes: the chance that a graph of the "
            "second class is ranked above one of the first."
        ),
    ),
    ("Time", "Mean duration of one trial on one thread, and its ratio to vanilla."),
)


@dataclass(frozen=True)
class Figure:
    """A figure of the page.

    Args:
        title: Its heading.
        caption: How to read it.
        wide: The drawing for a desk.
        narrow: The drawing for a phone.
    """

    title: str
    caption: str
    wide: Markup
    narrow: Markup


@dataclass(frozen=True)
class TableRow:
    """A row of the ranking table, as text; ``-`` where a number is not defined."""

    method: str
    colour: str
    accuracy: str
    spread: str
    difference: str
    interval: str
    direction: str
    p_value: str
    p_holm: str
    ece: str
    nll: str
    auroc: str
    time: str
    ratio: str
    trials: int


@dataclass(frozen=True)
class Section:
    """What the page says about one model with one number of layers."""

    title: str
    verdict: Verdict
    rows: list[TableRow]
    figures: list[Figure]
    has_auroc: bool


def write_report(records: Sequence[Record], path: str | Path) -> None:
    """Write the page of a comparison, in one step.

    Args:
        records: The finished trials.
        path: The file.
    """
    write_atomically(Path(path), render_report(records))


def render_report(records: Sequence[Record]) -> str:
    """Make the page of a comparison.

    The same records give the same page.

    Args:
        records: The finished trials, of one data set, at least one.

    Returns:
        A whole HTML document that needs nothing else.

    Raises:
        GraphTransplantError: If there are no records.
    """
    if not records:
        raise GraphTransplantError("a report needs at least one finished trial, got no records")
    rows = summarise(records)
    found = verdicts(rows)
    groups = group_records(records)
    methods = sorted({row.method for row in rows}, key=_baseline_first)
    colours = _colours(methods)
    sections = [
        _section(verdict, rows, groups[verdict.data, verdict.model, verdict.layers], colours)
        for verdict in found
    ]
    environment = Environment(
        loader=PackageLoader("graph_transplant.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["tied"] = _tied
    has_auroc = any(section.has_auroc for section in sections)
    first = records[0]
    return environment.get_template("report.html").render(
        data=first["data"],
        headline=headline(found),
        sections=sections,
        facts=_facts(records),
        notes=notes(records),
        command=repeat_command(records),
        settings=_settings(first),
        methods=[
            # The parameters stand in the name; what the method is, they do not change.
            (name, METHOD_NOTES.get(name.partition(":")[0], ""), colours[name])
            for name in methods
        ],
        glossary=[item for item in GLOSSARY if item[0] != "AUROC" or has_auroc],
        version=first["settings"].get("version", ""),
        fingerprint=first["fingerprint"],
    )


def headline(found: Sequence[Verdict]) -> str:
    """Sum up the verdicts of all models in a few words.

    Args:
        found: The verdicts, at least one.
    """
    if len(found) == 1:
        return found[0].headline
    data = found[0].data
    better = [verdict for verdict in found if verdict.kind == "better"]
    if better:
        names = list(dict.fromkeys(verdict.best for verdict in better if verdict.best))
        subject = (
            names[0] if len(names) == 1 else "Graph Transplant" if _only_ours(names) else "A method"
        )
        where = (
            "with every model"
            if len(better) == len(found)
            else (f"with {len(better)} of {len(found)} models")
        )
        return f"{subject} beats {BASELINE} on {data} {where}"
    if any(verdict.kind == "worse" for verdict in found):
        return f"No method beats {BASELINE} on {data}"
    if all(verdict.kind == "none" for verdict in found):
        return f"No method differs significantly from {BASELINE} on {data}"
    return f"{len(found)} models compared on {data}"


def _tied(text: str) -> str:
    # "p = 0.03" and "4.1 points" stay on one line.
    text = re.sub(r"(?<=\bp) ([=<]) (?=\d)", "\u00a0\\1\u00a0", text)
    return re.sub(r"(?<=\d) (?=points|folds|methods|repeats|%)", "\u00a0", text)


def _only_ours(names: Sequence[str]) -> bool:
    return all(name.startswith("transplant-") for name in names)


def repeat_command(records: Sequence[Record]) -> list[str]:
    """Give the command that makes these records.

    Args:
        records: The finished trials, at least one.

    Returns:
        The command and its options, each quoted for a shell.

    Example:
        >>> record = {"data": "motifs", "method": "vanilla", "model": "gcs", "layers": 3,
        ...           "repeat": 0,
        ...           "settings": {"folds": 5, "epochs": 50, "batch_size": 128, "seed": 0}}
        >>> repeat_command([record])[:3]
        ['graph-transplant compare motifs', '--methods vanilla', '--models gcs']
    """
    first = records[0]
    settings = first["settings"]
    methods = sorted({record["method"] for record in records}, key=_baseline_first)
    options = {
        "methods": ",".join(methods),
        "models": ",".join(sorted({record["model"] for record in records})),
        "layers": ",".join(map(str, sorted({record["layers"] for record in records}))),
        "folds": settings["folds"],
        "repeats": max(record["repeat"] for record in records) + 1,
        "epochs": settings["epochs"],
        "batch-size": settings["batch_size"],
        "seed": settings["seed"],
    }
    command = shlex.join(["graph-transplant", "compare", str(first.get("source", first["data"]))])
    return [command, *(f"--{name} {shlex.quote(str(value))}" for name, value in options.items())]


def _baseline_first(name: str) -> tuple[bool, str]:
    return name != BASELINE, name


def _colours(methods: Sequence[str]) -> dict[str, str]:
    colours = {}
    number = 0
    for name in methods:
        if name == BASELINE:
            colours[name] = "c0"
        else:
            colours[name] = f"c{number % COLOURS + 1}"
            number += 1
    return colours


def _facts(records: Sequence[Record]) -> list[tuple[str, str]]:
    first = records[0]
    sizes = first["sizes"]
    folds = first["settings"]["folds"]
    repeats = max(record["repeat"] for record in records) + 1
    seconds = sum(record["seconds"] for record in records)
    return [
        ("graphs", f"{sum(sizes.values()):,}"),
        ("folds", f"{folds}" if repeats == 1 else f"{folds} × {repeats}"),
        ("train : validation : test", " : ".join(str(size) for size in sizes.values())),
        ("trials", f"{len(records):,}"),
        ("training time", duration(seconds)),
    ]


def _settings(record: Record) -> list[tuple[str, str]]:
    named = {"seed": "seed", "version": "library version"}
    return [
        (named.get(name, name.replace("_", " ")), str(value))
        for name, value in record["settings"].items()
    ]


def _section(
    verdict: Verdict,
    rows: Sequence[SummaryRow],
    methods: Mapping[str, Sequence[Record]],
    colours: Mapping[str, str],
) -> Section:
    own = [
        row
        for row in rows
        if (row.data, row.model, row.layers) == (verdict.data, verdict.model, verdict.layers)
    ]
    ranked = {row.method: methods[row.method] for row in own}
    plain = next((row for row in own if row.method == BASELINE), None)
    layers = f"{verdict.layers} layer{'s' if verdict.layers != 1 else ''}"
    return Section(
        title=f"{verdict.model.upper()}, {layers}",
        verdict=verdict,
        rows=[_table_row(row, plain, colours[row.method]) for row in own],
        figures=_figures(own, ranked, colours),
        has_auroc=any(row.auroc_mean is not None for row in own),
    )


def _table_row(row: SummaryRow, plain: SummaryRow | None, colour: str) -> TableRow:
    def text(value: float | None, form: Callable[[float], str]) -> str:
        return "-" if value is None else form(value)

    def p_value(value: float) -> str:
        return "< 0.001" if value < 0.001 else f"{value:.3f}"

    def points(value: float) -> str:
        return signed(100 * value, 1)

    direction = ""
    if row.p_holm is not None and row.difference is not None:
        direction = "unclear"
        if row.p_holm < 0.05:
            direction = "better" if row.difference > 0 else "worse"
    ratio = ""
    if plain is not None and row is not plain and plain.seconds_mean and row.seconds_mean:
        ratio = f"× {row.seconds_mean / plain.seconds_mean:.1f}"
    interval = ""
    if row.ci_low is not None and row.ci_high is not None:
        interval = f"{points(row.ci_low)} to {points(row.ci_high)}"
    return TableRow(
        method=row.method,
        colour=colour,
        accuracy=text(row.accuracy_mean, lambda value: f"{100 * value:.1f}"),
        spread=text(row.accuracy_std, lambda value: f"± {100 * value:.1f}"),
        difference=text(row.difference, points),
        interval=interval,
        direction=direction,
        p_value=text(row.p_value, p_value),
        p_holm=text(row.p_holm, p_value),
        ece=text(row.ece_mean, three_digits),
        nll=text(row.nll_mean, three_digits),
        auroc=text(row.auroc_mean, three_digits),
        time=text(row.seconds_mean, duration),
        ratio=ratio,
        trials=row.trials,
    )


def _figures(
    rows: Sequence[SummaryRow],
    methods: Mapping[str, Sequence[Record]],
    colours: Mapping[str, str],
) -> list[Figure]:
    figures = []
    differences = differences_data(rows, methods, BASELINE) if BASELINE in methods else []
    if differences:
        label = "Difference to vanilla in points of test accuracy. " + "; ".join(
            f"{row.method} {signed(row.mean, 1)}"
            + (
                f", interval {signed(row.low, 1)} to {signed(row.high, 1)}"
                if row.low is not None and row.high is not None
                else ""
            )
            for row in differences
        )
        figures.append(
            _both(
                "Who beats plain training?",
                "Large dots are mean differences to vanilla, bars their 95 % intervals, small dots "
                "single folds. A filled dot differs significantly, a hollow one does not.",
                lambda width: draw_differences(
                    differences, width=width, colours=colours, label=label, baseline=BASELINE
                ),
            )
        )
    accuracy = scores_data(methods, "accuracy")
    if accuracy:
        figures.append(
            _both(
                "Every fold",
                "One dot per fold, the thick stroke is the mean. Thin lines join the same fold: it "
                "counts whether they lean the same way."
                + (" The dashed line is vanilla’s mean." if BASELINE in methods else ""),
                lambda width: draw_scores(
                    accuracy,
                    width=width,
                    colours=colours,
                    axis="Test accuracy",
                    form=percent,
                    exact=exact_percent,
                    label=_score_label("Test accuracy of every fold", accuracy, exact_percent),
                    baseline=BASELINE,
                    paired=True,
                ),
            )
        )
    curves = curves_data(methods, "validation_accuracy")
    if curves:
        crowded = len(curves) > COLOURS  # one panel each: so many curves cannot be told apart
        figures.append(
            _both(
                "Learning",
                "Accuracy on the validation graphs by epoch, mean over the trials that trained "
                "that long, drawn as long as half of them did."
                + (" Grey is vanilla." if crowded and BASELINE in methods else ""),
                lambda width: (draw_panels if crowded else draw_curves)(
                    curves,
                    width=width,
                    colours=colours,
                    axis="Validation accuracy",
                    form=percent,
                    label=_curve_label("Validation accuracy by epoch", curves),
                ),
            )
        )
    calibration = scores_data(methods, "ece")
    if calibration:
        figures.append(
            _both(
                "Can its confidence be trusted?",
                "Expected calibration error on the test graphs, one dot per fold; further left is "
                "better.",
                lambda width: draw_scores(
                    calibration,
                    width=width,
                    colours=colours,
                    axis="Expected calibration error",
                    form=lambda value: f"{value:.2f}",
                    exact=three_digits,
                    label=_score_label(
                        "Calibration error of every fold", calibration, three_digits
                    ),
                    baseline=BASELINE,
                    paired=False,
                ),
            )
        )
    predictor = curves_data(methods, "edge_predictor_accuracy")
    if predictor:
        names = caption_list([curve.method for curve in predictor])
        figures.append(
            _both(
                "The edge predictor",
                f"How often the edge predictor of {names} tells a true edge from a pair without "
                "one, on pairs it was not trained on; 50 % is guessing.",
                lambda width: draw_curves(
                    predictor,
                    width=width,
                    colours=colours,
                    axis="Edge predictor accuracy",
                    form=percent,
                    label=_curve_label("Edge predictor accuracy by epoch", predictor),
                ),
            )
        )
    return figures


def three_digits(value: float) -> str:
    """Write a number with three digits after the point."""
    return f"{value:.3f}"


def _both(title: str, caption: str, draw: Callable[[int], Markup]) -> Figure:
    return Figure(title, caption, draw(WIDE), draw(NARROW))


def _score_label(title: str, rows: Sequence[ScoreRow], form: Callable[[float], str]) -> str:
    return f"{title}. Means: " + "; ".join(f"{row.method} {form(row.mean)}" for row in rows)


def _curve_label(title: str, curves: Sequence[Curve]) -> str:
    return f"{title}. At the end: " + "; ".join(
        f"{curve.method} {exact_percent(curve.values[-1])} at epoch {curve.epochs[-1]:g}"
        for curve in curves
    )
