"""Pages about one model: its card, its explanations, and mixed graphs to look at.

Each is one file that opens from disk, without script and without network.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from graph_transplant import __version__
from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.progress import duration
from graph_transplant.files import write_atomically
from graph_transplant.report.drawing import (
    LEFT_OUT,
    MOST_NODES,
    REMAINING,
    TRANSPLANTED,
    GraphPicture,
    class_word,
    count_of,
    draw_graph,
    draw_mark,
    draw_scale,
    most_salient,
    node_word,
    picture_of,
    shortened,
)
from graph_transplant.report.frame import Figure, brief, figure, render
from graph_transplant.report.html import METHOD_NOTES
from graph_transplant.report.plots import (
    COLOURED_CURVES,
    draw_learning,
    draw_reliability,
    draw_roc,
    draw_scatter,
)
from graph_transplant.report.svg import percent

if TYPE_CHECKING:
    from graph_transplant.trained.explanation import (
        ExplainedRows,
        Explanation,
        ModelView,
        Structure,
    )
    from graph_transplant.trained.gallery import Mixture, Part

MOST_CLASSES = 12
"""A confusion matrix with more classes than this is told as its most frequent mistakes."""

SMALL_TEST = 200
"""With fewer test graphs than this, the card says that its figures are rough."""

_FLOOR = -1.0
_SALIENT = 5
_THIRD = 350  # width of a drawing when three stand in a row

MEASURES = {
    "accuracy": (
        "Accuracy",
        "Share of predictions that are right.",
    ),
    "auroc": (
        "AUROC",
        "How often one that has the label is ranked above one that has not; 0.5 is guessing.",
    ),
    "average_precision": (
        "Average precision",
        "How pure the top of the ranking is; guessing gives the share of positives.",
    ),
    "r2": (
        "R²",
        "Share of the variation that is explained; 0 is as good as always saying the mean.",
    ),
    "rmse": ("RMSE", "Typical error in the units of the target; large errors count more."),
    "mae": ("Mean absolute error", "Mean distance from the measured value, in its units."),
    "ece": (
        "Calibration error (ECE)",
        "Mean distance between stated confidence and share that is right; lower is better.",
    ),
    "adaptive_ece": (
        "Adaptive calibration error",
        "The same over bins of equally many predictions; lower is better.",
    ),
    "brier": (
        "Brier score",
        "Mean squared distance of the probabilities from the truth; lower is better.",
    ),
    "nll": ("Log loss", "Punishes being sure and wrong; lower is better."),
}
"""What the measurements of a model are called and what they mean."""

_IN_UNITS = frozenset({"rmse", "mae"})


# -------------------------------------------------------------------- frame


def _page(name: str, **content: object) -> str:
    return render(name, {"brief": brief}, version=__version__, **content)


# -------------------------------------------------------------------- explanations


@dataclass(frozen=True)
class _View:
    """What a card of the page says about one model."""

    model: str
    label: str
    confidence: str
    bar: str
    verdict: str
    output: str
    drawing: Markup
    salient: list[tuple[str, str]]


@dataclass(frozen=True)
class _Card:
    """One graph of the page."""

    id: str
    text: str
    truth: str | None
    size: str
    views: list[_View]


def write_explanations(
    explained: ExplainedRows | Sequence[Explanation], path: str | Path, *, data: str = ""
) -> None:
    """Write the page of explanations, in one step.

    Args:
        explained: What :func:`~graph_transplant.trained.explanation.explain` or ``explain_rows``
            found.
        path: The file.
        data: What the graphs were read from, where ``explained`` does not say.
    """
    write_atomically(Path(path), render_explanations(explained, data=data))


def render_explanations(explained: ExplainedRows | Sequence[Explanation], *, data: str = "") -> str:
    """Make the page of explanations: one card per graph, models side by side.

    Args:
        explained: What :func:`~graph_transplant.trained.explanation.explain` or ``explain_rows``
            found.
        data: What the graphs were read from.

    Returns:
        A whole HTML document that needs nothing else.

    Raises:
        GraphTransplantError: If there is nothing to show.
    """
    skipped: Sequence[Any] = ()
    if not isinstance(explained, Sequence):
        data, skipped = explained.source or data, explained.skipped
        explained = explained.explanations
    if not explained:
        reasons = "; ".join(f"row {one.row}: {one.reason}" for one in skipped[:3])
        raise GraphTransplantError(
            "a page of explanations needs at least one graph, got none"
            + (f" ({reasons})" if reasons else "")
        )
    molecules = explained[0].structure.molecule
    models = [view.model for view in explained[0].views]
    regression = explained[0].views[0].confidence is None
    kinds = {view.kind for one in explained for view in one.views}
    return _page(
        "explain.html",
        headline="Which atoms the predictions rest on"
        if molecules
        else "Which nodes the predictions rest on",
        data=Path(data).name or data or "graphs",
        node="atom" if molecules else "node",
        several=len(models) > 1,
        regression=regression,
        by_gradient=kinds == {"gradient"},
        cards=[_card(one) for one in explained],
        facts=_explained_facts(explained, models),
        skipped=[(one.row, one.id, one.reason) for one in skipped],
        scale=draw_scale(),
        hidden=any(len(one.structure.names) > MOST_NODES for one in explained),
        most=MOST_NODES,
    )


def _explained_facts(
    explained: Sequence[Explanation], models: Sequence[str]
) -> list[tuple[str, str]]:
    noun = "Molecules" if explained[0].structure.molecule else "Graphs"
    facts = [(noun, f"{len(explained):,}")]
    for number, model in enumerate(models):
        judged = [one.views[number].correct for one in explained]
        known = [right for right in judged if right is not None]
        if known:
            facts.append((f"{shortened(model, 40)}: right", f"{sum(known)} of {len(known)}"))
        else:
            facts.append(("Model", shortened(model, 40)))
    return facts


def _card(one: Explanation) -> _Card:
    structure = one.structure
    node, edge = ("atom", "bond") if structure.molecule else ("node", "edge")
    # Laid out once: models differ in what they see, not in the graph.
    bare = picture_of(structure)
    return _Card(
        id=one.id,
        # The block of an SDF record is no line to read.
        text=one.text if "\n" not in one.text else "",
        truth=None if one.truth is None else class_word(one.truth),
        size=f"{count_of(len(structure.names), node)}, {count_of(len(structure.edges), edge)}"
        + (f", of which the first {MOST_NODES} {node}s are drawn" if bare.hidden else ""),
        views=[_view(one, view, bare) for view in one.views],
    )


def _view(one: Explanation, view: ModelView, bare: GraphPicture) -> _View:
    structure = one.structure
    drawn = len(bare.places)
    shown = replace(bare, saliency=view.saliency[:drawn], shares=view.share[:drawn])
    title = f"{shortened(one.id, 80)}, saliency of {shortened(view.model, 80)}"
    verdict = {None: "", True: "right", False: "wrong"}[view.correct]
    confidence = view.confidence
    return _View(
        model=view.model,
        label=class_word(view.label),
        confidence="" if confidence is None else percent(confidence),
        bar="" if confidence is None else f"{100 * min(max(confidence, 0.0), 1.0):.1f}",
        verdict=verdict,
        output=class_word(view.output) if view.output != view.label else "",
        drawing=draw_graph(shown, title),
        salient=[
            (node_word(structure.names, number), _share(view.share[number]))
            for number in most_salient(view.share, _SALIENT)
        ],
    )


def _share(value: float) -> str:
    """A share in per cent; of a large graph it may be far below one."""
    return percent(value) if value >= 0.01 else f"{100 * value:.2g}\N{NO-BREAK SPACE}%"


# -------------------------------------------------------------------- gallery


@dataclass(frozen=True)
class _Row:
    """One mixed graph of the page beside the two it was made of."""

    source: Part
    destination: Part
    labels: tuple[str, str, str]
    weight: str
    source_share: str
    destination_share: str
    drawings: tuple[Markup, Markup, Markup]
    new_edges: str


def write_gallery(mixtures: Sequence[Mixture], path: str | Path) -> None:
    """Write the page of mixed graphs, in one step.

    Args:
        mixtures: What :func:`~graph_transplant.trained.gallery.mixtures` made.
        path: The file.
    """
    write_atomically(Path(path), render_gallery(mixtures))


def render_gallery(mixtures: Sequence[Mixture]) -> str:
    """Make the page of mixed graphs: source, destination and mixed graph in a row.

    Args:
        mixtures: What :func:`~graph_transplant.trained.gallery.mixtures` made.

    Returns:
        A whole HTML document that needs nothing else.

    Raises:
        GraphTransplantError: If there is nothing to show.
    """
    if not mixtures:
        raise GraphTransplantError("a gallery needs at least one mixed graph, got none")
    first = mixtures[0]
    method = first.method.partition(":")[0]
    return _page(
        "gallery.html",
        headline="Graphs that never were",
        data=first.data,
        method=first.method,
        about=METHOD_NOTES.get(method, ""),
        note=first.note,
        by_size=method == "transplant-size-label",
        rows=[_row(one) for one in mixtures],
        marks={part: draw_mark(part) for part in (TRANSPLANTED, REMAINING, LEFT_OUT, "new edge")},
        molecules=first.structure.molecule,
    )


def _row(one: Mixture) -> _Row:
    def drawn(
        structure: Structure, parts: Sequence[str], title: str, new_edges: Sequence[int] = ()
    ) -> Markup:
        shown = picture_of(structure, parts=parts, new_edges=new_edges)
        return draw_graph(shown, title, _THIRD)

    source, destination = one.source, one.destination
    edge = "bond" if one.structure.molecule else "edge"
    return _Row(
        source=source,
        destination=destination,
        labels=(
            class_word(source.label),
            class_word(destination.label),
            ", ".join(f"{percent(share)} {class_word(name)}" for name, share in one.labels)
            or one.label,
        ),
        weight=f"{one.weight:.2f}",
        source_share=f"{source.share:.2f}",
        destination_share=f"{destination.share:.2f}",
        drawings=(
            drawn(
                source.structure,
                [TRANSPLANTED if chosen else LEFT_OUT for chosen in source.chosen],
                f"Source {shortened(source.id, 80)}",
            ),
            drawn(
                destination.structure,
                [REMAINING if chosen else LEFT_OUT for chosen in destination.chosen],
                f"Destination {shortened(destination.id, 80)}",
            ),
            drawn(
                one.structure,
                [TRANSPLANTED if chosen else REMAINING for chosen in one.from_source],
                "Mixed graph",
                one.new_edges,
            ),
        ),
        new_edges=count_of(len(one.new_edges), f"new {edge}"),
    )


# -------------------------------------------------------------------- model card


def write_card(description: Mapping[str, Any], path: str | Path) -> None:
    """Write the card of a model, in one step.

    Args:
        description: The content of ``model.json``.
        path: The file.
    """
    write_atomically(Path(path), render_card(description))


def render_card(description: Mapping[str, Any]) -> str:
    """Make the card of a model from its description alone.

    Args:
        description: The content of ``model.json``.

    Returns:
        A whole HTML document that needs nothing else.
    """
    data, training = description["data"], description["training"]
    reading = description["reading"] or {}
    return _page(
        "card.html",
        headline=_card_headline(description),
        dek=_card_summary(description),
        facts=_card_facts(description),
        notes=_card_notes(description),
        measures=_measure_rows(description),
        tested=bool(training["sizes"]["test"]),
        figures=_card_figures(description),
        confusion=_confusion(description),
        mistakes=_mistakes(description),
        classes=_class_rows(description),
        data=data,
        split_words=_split_words(description),
        about=METHOD_NOTES.get(training["method"].partition(":")[0], ""),
        training_words=_training_words(description),
        limits=_limits(description),
        uses=_uses(description),
        columns=_columns_needed(reading),
        command=_train_command(description),
        own_split=training["split"] not in ("random", "scaffold", "official"),
        settings=_settings(description),
        model_version=description["version"],
        noun=_noun(description),
        task=description["task"],
    )


def _noun(description: Mapping[str, Any], *, many: bool = True) -> str:
    reading = description["reading"] or {}
    word = "molecule" if reading.get("kind") == "molecules" else "graph"
    return word + ("s" if many else "")


def _targets(description: Mapping[str, Any]) -> list[str]:
    reading = description["reading"] or {}
    return [str(name) for name in reading.get("targets") or ()]


def _card_headline(description: Mapping[str, Any]) -> str:
    task, names = description["task"], description["label_names"]
    one = _noun(description, many=False)
    data = shortened(str(description["data"]["name"]), 40)
    targets = [shortened(name, 40) for name in _targets(description)]
    if task == "multiclass":
        what = targets[0] if targets else "the class"
        return f"Predicts {what} of a {one}, trained on {data}"
    if len(names) == 1:
        return f"Predicts {shortened(names[0], 40)} of a {one}, trained on {data}"
    kind = "labels" if task == "multilabel" else "values"
    return f"Predicts {len(names)} {kind} of a {one}, trained on {data}"


def _value(value: float | None, name: str) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if name in _IN_UNITS else f"{value:.3f}".replace("-", "−")


def _in_sentence(name: str) -> str:
    """A name that is a word begins small inside a sentence; AUROC and R² do not."""
    return name[0].lower() + name[1:] if name[1:2].islower() else name


def _card_summary(description: Mapping[str, Any]) -> str:
    """The finding in plain words."""
    training, metrics = description["training"], description["metrics"]
    count, noun = training["sizes"]["test"], _noun(description)
    main = _main_measure(description)
    if not count or main is None:
        return (
            f"No {noun} were held out for testing: how good it is on new ones is not known beyond "
            "the validation figures below, which chose its weights."
        )
    value = metrics["test"][main]
    words = {
        "accuracy": f"{percent(value)} of its predictions are right",
        "auroc": (
            f"given one {_noun(description, many=False)} with the label and one without, it ranks "
            f"them rightly {round(100 * value)} times in 100"
        ),
        "average_precision": f"its average precision is {value:.3f}",
        "r2": f"it explains {percent(value)} of the variation"
        if value > 0
        else "it is no better than always saying the mean",
    }[main]
    interval = metrics["intervals"].get(main)
    between = ""
    if interval and None not in interval:
        low, high = interval
        between = f" (95 % interval {_value(low, main)} to {_value(high, main)})"
    return (
        f"On {count:,} test {noun} that training never saw, {words}: "
        f"{_in_sentence(MEASURES[main][0])} {_value(value, main)}{between}."
    )


def _main_measure(description: Mapping[str, Any]) -> str | None:
    test = description["metrics"]["test"]
    wanted = [description["training"]["metric"], "auroc", "r2", "accuracy", "average_precision"]
    plainly = ("accuracy", "auroc", "average_precision", "r2")
    return next((name for name in wanted if name in plainly and test.get(name) is not None), None)


def _card_facts(description: Mapping[str, Any]) -> list[tuple[str, str]]:
    training, data = description["training"], description["data"]
    kinds = {
        "multiclass": f"{len(description['label_names'])} classes",
        "multilabel": f"{count_of(len(description['label_names']), 'label')}, yes or no each",
        "regression": count_of(len(description["label_names"]), "number"),
    }
    sizes = training["sizes"]
    return [
        ("Predicts", kinds[description["task"]]),
        (_noun(description).capitalize(), f"{data['graphs']:,}"),
        (
            "Train, validation, test",
            f"{sizes['train']:,} / {sizes['validation']:,} / {sizes['test']:,}",
        ),
        ("Split", training["split"]),
        ("Network", f"{training['model']}, {count_of(training['layers'], 'layer')}"),
        ("Method", training["method"]),
    ]


def _card_notes(description: Mapping[str, Any]) -> list[str]:
    """What to know before the figures are trusted."""
    found = []
    sizes = description["training"]["sizes"]
    if 0 < sizes["test"] < SMALL_TEST:
        found.append(
            f"Only {count_of(sizes['test'], _noun(description, many=False))} were held out for "
            "testing: the figures are rough, see their intervals."
        )
    counts = description["data"]["class_counts"]
    if description["task"] == "multiclass" and counts and sum(counts):
        rarest = min(counts) / sum(counts)
        if rarest < 0.1:
            name = shortened(description["label_names"][counts.index(min(counts))], 40)
            found.append(
                f"Classes are unequal: {percent(rarest)} of the {_noun(description)} are {name}. "
                f"Always saying the most frequent class would be right in "
                f"{percent(max(counts) / sum(counts))} of the cases."
            )
    return found


@dataclass(frozen=True)
class _Measure:
    """A row of the table of measurements, as text."""

    name: str
    test: str
    interval: str
    uncalibrated: str
    validation: str
    meaning: str


def _measure_rows(description: Mapping[str, Any]) -> list[_Measure]:
    metrics = description["metrics"]
    rows = []
    for key, (name, meaning) in MEASURES.items():
        if key not in metrics["test"] and key not in metrics["validation"]:
            continue
        interval = metrics["intervals"].get(key)
        known = bool(interval) and None not in interval
        rows.append(
            _Measure(
                name=name,
                test=_value(metrics["test"].get(key), key),
                interval=f"{_value(interval[0], key)} to {_value(interval[1], key)}"
                if known
                else "–",
                uncalibrated=_value(metrics["test_uncalibrated"].get(key), key),
                validation=_value(metrics["validation"].get(key), key),
                meaning=meaning,
            )
        )
    return rows


def _card_figures(description: Mapping[str, Any]) -> list[Figure]:
    return [
        figure
        for figure in (
            _roc_figure(description),
            _scatter_figure(description),
            _reliability_figure(description),
            *_learning_figures(description),
        )
        if figure is not None
    ]


def _roc_figure(description: Mapping[str, Any]) -> Figure | None:
    if not description["roc"]:
        return None
    curves = {class_word(name): curve for name, curve in description["roc"].items()}
    area = description["metrics"]["test"].get("auroc")
    label = f"ROC curve of {count_of(len(curves), 'label')} on the test {_noun(description)}."
    if area is not None:
        label += f" Area under the curve {area:.3f}."
    which = (
        "" if len(curves) <= COLOURED_CURVES else f" One curve for each of {len(curves)} labels."
    )
    return figure(
        "How well does it rank?",
        "Going down the ranking, how many of those with the label are found and how many false "
        f"alarms come with them. The dashed line is guessing.{which}",
        lambda width: draw_roc(curves, width=width, label=label),
        name="roc",
    )


def _scatter_figure(description: Mapping[str, Any]) -> Figure | None:
    points = description["scatter"]
    if not points:
        return None
    name = description["label_names"][0]
    within = (description["residual_90"] or [None])[0]
    caption = f"One dot per test {_noun(description, many=False)}; on the dashed line it is right."
    if within is not None:
        held = sum(abs(true - predicted) <= within for true, predicted in points) / len(points)
        caption += (
            f" Predictions are given with ±{within:.3g}, which holds for nine in ten "
            f"{_noun(description)} like the validation ones; here it holds for {percent(held)}."
        )
    if len(description["label_names"]) > 1:
        caption += f" The first of {len(description['label_names'])} values is shown."
    return figure(
        "Predicted and measured",
        caption,
        lambda width: draw_scatter(
            points,
            width=width,
            name=name,
            label=f"Predicted against measured {shortened(name, 60)} of {len(points)} test "
            f"{_noun(description)}.",
            form=lambda value: f"{value:.3g}".replace("-", "−"),
        ),
        name="predicted-measured",
    )


def _reliability_figure(description: Mapping[str, Any]) -> Figure | None:
    bins = description["reliability"]
    if not bins or not any(one["count"] for one in bins["after"]):
        return None
    metrics = description["metrics"]
    before, after = metrics["test_uncalibrated"].get("ece"), metrics["test"].get("ece")
    change = (
        f" Calibration error {_value(before, 'ece')} before, {_value(after, 'ece')} after."
        if before is not None and after is not None
        else ""
    )
    temperature = f"{description['temperature']:.2f}"
    return figure(
        "Can its confidence be trusted?",
        "On the dashed line the model is right as often as it says. Below it the model is too sure "
        f"of itself. Blue is after its logits were divided by {temperature}, the temperature that "
        f"fits the validation {_noun(description)} best; the area of a dot is the number of "
        "predictions.",
        lambda width: draw_reliability(
            bins["before"],
            bins["after"],
            width=width,
            label=f"Reliability on the test {_noun(description)}.{change}",
        ),
        name="reliability",
    )


def _learning_figures(description: Mapping[str, Any]) -> list[Figure]:
    curve, training = description["curve"], description["training"]
    metric = training["metric"]
    best = training["best_epoch"] if curve else None

    def points(name: str) -> list[tuple[float, float]]:
        return [
            (float(point["epoch"]), float(point[name]))
            for point in curve
            if point.get(name) is not None and math.isfinite(point[name])
        ]

    found = []
    score = points("validation_score") if metric in MEASURES else []
    # Before training has begun R² may be anywhere below nought: it would hide all the rest.
    deep = any(value < _FLOOR for _, value in score)
    score = [(epoch, max(value, _FLOOR)) for epoch, value in score]
    if len(score) > 1:
        word = _in_sentence(MEASURES[metric][0])
        end = f"At epoch {score[-1][0]:g} it is {score[-1][1]:.3f}."
        found.append(
            figure(
                "Learning",
                f"{MEASURES[metric][0]} on the validation {_noun(description)} by epoch. The "
                "weights of the best epoch were kept."
                + (" Values below −1 are drawn there." if deep else ""),
                lambda width: draw_learning(
                    {word: score},
                    width=width,
                    axis=f"Validation {word}",
                    form=lambda value: f"{value:.2f}".replace("-", "−"),
                    label=f"Validation {word} by epoch. {end}",
                    best=best,
                ),
                name="learning",
            )
        )
    losses = {"training": points("train_loss"), "validation": points("validation_loss")}
    if sum(map(len, losses.values())) > 2:
        found.append(
            figure(
                "Loss",
                "What training makes smaller. With augmentation the training loss counts the mixed "
                "graphs too and lies higher.",
                lambda width: draw_learning(
                    losses,
                    width=width,
                    axis="Loss",
                    form=lambda value: f"{value:.3g}",
                    label="Training and validation loss by epoch.",
                    best=best,
                ),
                name="loss",
            )
        )
    return found


@dataclass(frozen=True)
class _Cell:
    """A cell of the confusion matrix: a count, and its share of the row."""

    count: int
    share: str
    right: bool


def _confusion(description: Mapping[str, Any]) -> list[tuple[str, list[_Cell]]]:
    table, names = description["confusion"], description["label_names"]
    if not table or len(names) > MOST_CLASSES:
        return []
    return [
        (
            class_word(names[row]),
            [
                _Cell(count, f"{count / max(sum(counts), 1):.3f}", row == column)
                for column, count in enumerate(counts)
            ],
        )
        for row, counts in enumerate(table)
    ]


def _mistakes(description: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    table, names = description["confusion"], description["label_names"]
    if not table or len(names) <= MOST_CLASSES:
        return []
    wrong = [
        (class_word(names[row]), class_word(names[column]), count)
        for row, counts in enumerate(table)
        for column, count in enumerate(counts)
        if row != column and count
    ]
    return sorted(wrong, key=lambda mistake: -mistake[2])[:10]


def _class_rows(description: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name, number and share of the graphs of each class or label."""
    data, names = description["data"], description["label_names"]
    counts = data["class_counts"]
    # A label that was not measured is neither there nor absent.
    wholes = data["measured"] or [sum(counts)] * len(counts)
    if len(counts) != len(names) or len(wholes) != len(names) or not any(wholes):
        return []
    rows = [
        (class_word(name), f"{count:,}", percent(count / whole) if whole else "–")
        for name, count, whole in zip(names, counts, wholes, strict=True)
    ]
    if len(rows) <= 2 * MOST_CLASSES:
        return rows
    rest = count_of(len(rows) - MOST_CLASSES, "further class").replace("classs", "classes")
    return [*rows[:MOST_CLASSES], (rest, "", "")]


def _split_words(description: Mapping[str, Any]) -> str:
    noun = _noun(description)
    return {
        "random": (
            f"Validation and test {noun} were drawn at random, with every class in proportion. "
            f"They resemble the training {noun}: expect less on {noun} of a new kind."
        ),
        "scaffold": (
            "Molecules that share a Bemis–Murcko scaffold are all in the same part: test molecules "
            "have scaffolds that training never saw, which is closer to new chemistry than a "
            "random split."
        ),
        "official": f"The split that the data set is published with decides which {noun} are "
        "trained on.",
    }.get(description["training"]["split"], "The parts were given by whoever trained the model.")


def _training_words(description: Mapping[str, Any]) -> str:
    training = description["training"]
    ended = (
        "training stopped early because nothing improved"
        if training["stopped_early"]
        else "training ran to its last epoch"
    )
    chosen = (
        _in_sentence(MEASURES[training["metric"]][0])
        if training["metric"] in MEASURES
        else "the lowest loss"
    )
    return (
        f"Of {count_of(training['epochs_run'], 'epoch')} the weights of epoch "
        f"{training['best_epoch']} were kept, the best by {chosen} on the validation "
        f"{_noun(description)}; {ended}. It took {duration(training['seconds'])}."
        + (" Every class was drawn equally often." if training["balance"] else "")
    )


def _limits(description: Mapping[str, Any]) -> list[str]:
    data, reading = description["data"], description["reading"] or {}
    noun = _noun(description)
    found = [
        (
            f"It has learned from {noun} with {data['mean_nodes']:.0f} "
            f"{'atoms' if noun == 'molecules' else 'nodes'} on average. Others, much larger or of "
            "another kind, may be predicted wrongly and with high confidence."
        ),
        (
            "One training run with one seed was measured. The intervals say how much the figures "
            f"hang on which test {noun} were drawn, not how much another run would differ."
        ),
    ]
    if reading.get("features") == "elements" and reading.get("elements"):
        elements = ", ".join(str(element) for element in reading["elements"])
        found.append(f"It knows the elements {shortened(elements, 200)} and refuses others.")
    if description["task"] != "regression":
        found.append(
            f"Probabilities were calibrated on {description['training']['sizes']['validation']:,} "
            f"validation {noun} and hold for {noun} like those."
        )
    if data["skipped"]:
        found.append(
            f"{count_of(data['skipped'], 'row')} of the data could not be used; skipped.csv lists "
            "them."
        )
    found.append(
        "Saliency, as the command explain draws it, shows what the model looks at. It does not "
        "show what causes the property."
    )
    return found


def _uses(description: Mapping[str, Any]) -> list[str]:
    reading = description["reading"] or {}
    fresh = shlex.quote(str(description["data"]["source"]))
    if reading.get("kind") == "molecules":
        # An SDF has no column of structures; a data set of OGB has no columns at all.
        fresh = "new.csv" if reading.get("smiles") or "smiles" not in reading else "new.sdf"
    elif reading.get("kind") == "graphs":
        fresh = "new.jsonl"
    return [
        f"graph-transplant predict MODEL {fresh} --out predictions.csv",
        f"graph-transplant explain MODEL {fresh} --out explain.html",
    ]


def _columns_needed(reading: Mapping[str, Any]) -> str:
    return str(reading.get("smiles") or "")


def _train_command(description: Mapping[str, Any]) -> list[str]:
    """The command that trains this model again: every option that decides about the weights."""
    training, reading = description["training"], description["reading"] or {}
    options: dict[str, Any] = {}
    if reading.get("smiles"):
        options["smiles"] = reading["smiles"]
    if _targets(description):
        options["target"] = ",".join(_targets(description))
    if reading.get("id"):
        options["id"] = reading["id"]
    # Only what is read row by row has these; an SDF has no column of structures.
    if reading.get("features") and "smiles" in reading:
        options["features"] = reading["features"]
    if _targets(description):
        options["task"] = description["task"]
    names = ("method", "model", "layers", "hidden", "readout", "dropout", "epochs", "batch_size")
    options |= {name.replace("_", "-"): training[name] for name in names}
    options["learning-rate"] = training["learning_rate"]
    if training["split"] in ("random", "scaffold", "official"):
        options["split"] = training["split"]
    options |= {
        name: training[name] for name in ("validation", "test") if training[name] is not None
    }
    # Where there are no classes, training by accuracy goes by the loss.
    options["metric"] = "accuracy" if training["metric"] == "loss" else training["metric"]
    options["seed"] = training["seed"]
    command = shlex.join(["graph-transplant", "train", str(description["data"]["source"])])
    flags = ["--balance"] if training["balance"] else []
    return [
        command,
        *(f"--{name} {shlex.quote(str(value))}" for name, value in options.items()),
        *flags,
    ]


def _settings(description: Mapping[str, Any]) -> list[tuple[str, str]]:
    training, data = description["training"], description["data"]
    return [
        ("Convolution", training["model"]),
        ("Layers", str(training["layers"])),
        ("Width", str(training["hidden"])),
        ("Readout", training["readout"]),
        ("Dropout", f"{training['dropout']:g}"),
        ("Batch size", str(training["batch_size"])),
        ("Learning rate", f"{training['learning_rate']:g}"),
        ("Most epochs", str(training["epochs"])),
        ("Chosen by", training["metric"]),
        ("Balanced classes", "yes" if training["balance"] else "no"),
        ("Seed", str(training["seed"])),
        ("Temperature", f"{description['temperature']:.3f}"),
        ("Node features", str(data["node_features"])),
        ("Edge features", str(data["edge_features"])),
    ]
