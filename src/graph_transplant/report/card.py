"""Model card: what a model predicts, how well, and how far to trust it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from graph_transplant import __version__
from graph_transplant.config.train import TrainConfig
from graph_transplant.figures import RenderedChart, svg_elements
from graph_transplant.figures import card as charts
from graph_transplant.figures.parts import MANY
from graph_transplant.figures.studies import LEAST_IN_BIN
from graph_transplant.methods import method_of
from graph_transplant.metrics import METRICS
from graph_transplant.report.card_findings import (
    CardData,
    card_findings,
    headline,
    limits,
    split_words,
    summary,
    training_words,
    value_text,
)
from graph_transplant.report.page import render
from graph_transplant.report.typography import shortened, spaced
from graph_transplant.utils.text import count, number, percent, plain

MOST_CLASSES = 12
"""With more classes, the most frequent mistakes replace the confusion matrix."""

_FLOOR = -1.0


def render_card(description: Mapping[str, Any], ignore: Collection[str] = ()) -> str:
    """Render the card as a self-contained page, from the content of ``model.json``.

    Warnings with codes to ``ignore`` are left out.
    """
    m = CardData(description)
    warnings, findings = card_findings(m, ignore)
    ignored = len(card_findings(m)[0]) - len(warnings)
    return render(
        "card.html",
        headline=headline(m),
        dek=summary(m),
        facts=_facts(m) + ([("Warnings left out", str(ignored))] if ignored else []),
        notes=[one.text for one in warnings],
        findings=[one.text for one in findings],
        measures=_measures(m),
        baseline=m.baseline_name if m.baseline else "",
        forest=bool(m.metrics.get("forest")),
        tested=bool(m.training["sizes"]["test"]),
        figures=[one for one in (_roc(m), _scatter(m), _reliability(m)) if one is not None],
        curves=_learning_figures(m),
        confusion=_confusion(m),
        mistakes=_mistakes(m),
        classes=_class_rows(m),
        data=m.data,
        split_words=split_words(m),
        method=m.training["method"],
        about=method_of(m.training["method"]).summary,
        training_words=training_words(m),
        limits=limits(m),
        uses=_uses(m),
        columns=str(m.featurizer.get("smiles") or ""),
        settings=_settings(m),
        command=m.all.get("command"),
        model_version=description["version"],
        noun=m.noun,
        task=m.task,
        version=__version__,
    )


def _facts(m: CardData) -> list[tuple[str, str]]:
    kinds = {
        "multiclass": f"{len(m.names)} classes",
        "multilabel": f"{count(len(m.names), 'label')}, yes or no each",
        "regression": count(len(m.names), "number"),
    }
    sizes = [f"{m.training['sizes'][part]:,}" for part in ("train", "validation", "test")]
    return [
        ("Predicts", kinds[m.task]),
        (m.noun.capitalize(), f"{m.data['graphs']:,}"),
        ("Train, validation, test", " / ".join(sizes)),
        ("Split", m.training["split"]),
        (
            "Network" if m.members == 1 else f"{m.members} networks",
            f"{m.training['model']}, {count(m.training['layers'], 'layer')}",
        ),
        ("Method", m.training["method"]),
    ]


def _measures(m: CardData) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Title, definition and values by column of each metric."""
    found, tested = m.metrics, bool(m.training["sizes"]["test"])
    columns: dict[str, Mapping[str, Any]] = {
        "Test": found["test"],
        "95 % interval": found["intervals"],
        "Forest": found.get("forest") or {},
        "Baseline": m.baseline,
        "Uncalibrated": {} if m.task == "regression" else found["test_uncalibrated"],
    }
    columns = {title: values for title, values in columns.items() if tested and values}
    columns["Validation"] = found["validation"]

    def text(value: Any, key: str) -> str:
        if not isinstance(value, Sequence):
            return value_text(value, key)
        return number(None) if None in value else " to ".join(value_text(v, key) for v in value)

    return [
        (
            metric.title,
            metric.definition,
            [(title, text(values.get(key), key)) for title, values in columns.items()],
        )
        for key, metric in METRICS.items()
        if key in found["test"] or key in found["validation"]
    ]


# -------------------------------------------------------------------- figures


def _sketch(name: str, title: str, caption: str, draw: Callable[[], Axes]) -> RenderedChart:
    return RenderedChart(name, title, caption, "", pd.DataFrame(), *svg_elements(draw, name, title))


def _roc(m: CardData) -> RenderedChart | None:
    if not m.all["roc"]:
        return None
    curves = {plain(m.named(name)): curve for name, curve in m.all["roc"].items()}
    what = f"labelled {shortened(next(iter(curves)), 40)}" if len(curves) == 1 else "with the label"
    return _sketch(
        "roc",
        "ROC curve",
        f"Going down the ranking, how many of those {what} are found and how many false alarms "
        "come with them. The dashed line is guessing."
        + (f" One curve for each of {len(curves)} labels." if len(curves) > MANY else ""),
        lambda: charts.roc(curves),
    )


def _scatter(m: CardData) -> RenderedChart | None:
    points = m.all["scatter"]
    if not points:
        return None
    within = (m.all["residual_90"] or [None])[0]
    caption = f"One dot per test {m.one}; on the dashed line it is right."
    if within is not None:
        held = sum(abs(true - predicted) <= within for true, predicted in points) / len(points)
        caption += (
            f" Predictions are given with ±{within:.3g}, which holds for nine in ten {m.noun} like "
            f"the validation ones; here it holds for {percent(held, 0, unit=True)}."
        )
    if len(m.names) > 1:
        caption += f" The first of {len(m.names)} values is shown."
    true, predicted = zip(*points, strict=True)
    return _sketch(
        "predicted-measured",
        "Predicted and measured",
        caption,
        lambda: charts.scatter(true, predicted, m.names[0]),
    )


def _reliability(m: CardData) -> RenderedChart | None:
    bins = m.all["reliability"]
    if not bins or not any(one["count"] for one in bins["after"]):
        return None
    table = pd.concat(
        [pd.DataFrame(bins[stage]).assign(stage=stage) for stage in ("after", "before")]
    )
    return _sketch(
        "reliability",
        "Reliability diagram",
        "Accuracy against confidence: on the dashed line they agree, below it the model is "
        "overconfident. "
        f"Filled dots are after its logits were divided by {m.all['temperature']:.2f}, the "
        f"temperature chosen on the validation {m.noun}; hollow dots are before. The area of a "
        f"dot is the number of predictions; bins with fewer than {LEAST_IN_BIN} are joined with "
        "their neighbours.",
        lambda: charts.reliability_bins(table),
    )


def _learning_figures(m: CardData) -> list[RenderedChart]:
    curve, metric = pd.DataFrame(m.all["curve"]), m.training["metric"]
    found: list[RenderedChart] = []
    best = m.training["best_epoch"]
    if metric in METRICS and "validation_score" in curve and curve["validation_score"].count() > 1:
        found.append(
            _sketch(
                "learning",
                "Learning",
                f"{METRICS[metric].title} on the validation {m.noun} by epoch"
                + (", of the first network" if m.members > 1 else "")
                + ". The weights of the best epoch were kept."
                + (" Values below −1 are drawn there." if metric == "r2" else ""),
                lambda: charts.learning_curve(
                    curve["epoch"],
                    None,
                    # R² of an untrained model may be far below zero and would hide the rest.
                    curve["validation_score"].clip(lower=_FLOOR),
                    best,
                    title=f"Validation {METRICS[metric].word}",
                    form=lambda value: number(value, 2),
                ),
            )
        )
    losses = [name for name in ("train_loss", "validation_loss") if name in curve]
    if losses and curve[losses].count().sum() > 2:
        found.append(
            _sketch(
                "loss",
                "Loss",
                "What training minimises. With augmentation, the training loss includes the mixed "
                "graphs and is higher.",
                lambda: charts.learning_curve(
                    curve["epoch"], curve.get("train_loss"), curve.get("validation_loss"), best
                ),
            )
        )
    return found


# -------------------------------------------------------------------- classes


def _confusion(m: CardData) -> list[tuple[str, list[tuple[int, str]]]]:
    """Rows of the confusion matrix; a cell is a count and its share of the row."""
    table = m.all["confusion"]
    if not table or len(m.names) > MOST_CLASSES:
        return []
    return [
        (m.named(name), [(each, f"{each / max(sum(counts), 1):.3f}") for each in counts])
        for name, counts in zip(m.names, table, strict=True)
    ]


def _mistakes(m: CardData) -> list[tuple[str, str, int]]:
    table = m.all["confusion"]
    if not table or len(m.names) <= MOST_CLASSES:
        return []
    wrong = [
        (m.named(m.names[row]), m.named(m.names[column]), each)
        for row, counts in enumerate(table)
        for column, each in enumerate(counts)
        if row != column and each
    ]
    return sorted(wrong, key=lambda mistake: -mistake[2])[:10]


def _class_rows(m: CardData) -> list[tuple[str, str, str]]:
    """Name, count and share of each class or label."""
    counts = m.data["class_counts"]
    # The share of a label is among the graphs where it was measured.
    wholes = m.data["measured"] or [sum(counts)] * len(counts)
    if len(counts) != len(m.names) or len(wholes) != len(m.names) or not any(wholes):
        return []
    rows = [
        (m.named(name), f"{own:,}", percent(own / whole if whole else None, unit=True))
        for name, own, whole in zip(m.names, counts, wholes, strict=True)
    ]
    if len(rows) <= 2 * MOST_CLASSES:
        return rows
    return [*rows[:MOST_CLASSES], (f"{len(rows) - MOST_CLASSES} further classes", "", "")]


# -------------------------------------------------------------------- how it was made


def _uses(m: CardData) -> list[str]:
    source = str(m.data["source"])
    kinds = {"molecules": "new.csv", "graphs": "new.jsonl"}
    fresh = kinds.get(str(m.featurizer.get("kind")), "new.safetensors")
    if fresh == "new.csv" and ".sdf" in Path(source).suffixes:
        fresh = "new.sdf"
    return [
        f"graph-transplant predict MODEL {fresh} --out predictions.csv",
        f"graph-transplant explain MODEL {fresh} --out explain.html",
    ]


def _settings(m: CardData) -> list[tuple[str, str]]:
    """The training options, with the values that were used."""
    given = {field.name: m.training.get(field.name) for field in fields(TrainConfig)}
    return [
        (spaced(name), str(value))
        for name, value in given.items()
        if value is not None and value is not False
    ]
