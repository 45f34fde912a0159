"""Model card: what a model predicts, how well, and how far to trust it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pandas as pd

from graph_transplant import __version__
from graph_transplant.config.recipes import RECIPES
from graph_transplant.config.training import TrainConfig
from graph_transplant.figures import RenderedChart
from graph_transplant.figures import card as charts
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
from graph_transplant.report.page import Texts, render, setting_groups
from graph_transplant.results.model_json import ModelDescription
from graph_transplant.utils.text import count, percent, plain

MOST_CLASSES = 12
"""With more classes, the most frequent mistakes replace the confusion matrix."""


def render_card(description: ModelDescription, ignore: Collection[str] = ()) -> str:
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
        forest=bool(m.metrics.forest),
        tested=bool(m.training.sizes.test),
        figures=_figures(m),
        curves=_learning(m),
        confusion=_confusion(m),
        mistakes=_mistakes(m),
        classes=_class_rows(m),
        data=m.data,
        split_words=split_words(m),
        method=m.training.method,
        about=method_of(m.training.method).summary,
        training_words=training_words(m),
        limits=limits(m),
        uses=_uses(m),
        columns=str(m.featurizer.get("smiles") or ""),
        settings=_settings(m),
        command=m.all.command,
        model_version=description.version,
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
    sizes = [f"{getattr(m.training.sizes, part):,}" for part in ("train", "validation", "test")]
    return [
        ("Predicts", kinds[m.task]),
        (m.noun.capitalize(), f"{m.data.graphs:,}"),
        ("Train, validation, test", " / ".join(sizes)),
        ("Split", m.training.split),
        *(
            [
                (
                    "Network" if m.members == 1 else f"{m.members} networks",
                    f"{m.training.model}, {count(m.training.layers, 'layer')}",
                )
            ]
            if m.training.model
            else []
        ),
        ("Method", m.training.method),
    ]


def _measures(m: CardData) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Title, definition and values by column of each metric."""
    found, tested = m.metrics, bool(m.training.sizes.test)
    columns: dict[str, Mapping[str, Any]] = {
        "Test": found.test,
        "95 % interval": found.intervals,
        "Forest": found.forest,
        "Baseline": m.baseline,
        "Uncalibrated": {} if m.task == "regression" else found.test_uncalibrated,
    }
    columns = {title: values for title, values in columns.items() if tested and values}
    columns["Validation"] = found.validation

    def text(value: Any, key: str) -> str:
        if not isinstance(value, Sequence):
            return value_text(value, key)
        return " to ".join(value_text(v, key) for v in value)

    return [
        (
            metric.title,
            metric.definition,
            [(title, text(values.get(key), key)) for title, values in columns.items()],
        )
        for key, metric in METRICS.items()
        if key in found.test or key in found.validation
    ]


# -------------------------------------------------------------------- figures


def _figures(m: CardData) -> list[RenderedChart]:
    found = []
    if m.all.roc:
        found.append(charts.roc({plain(m.named(name)): one for name, one in m.all.roc.items()}))
    if m.all.scatter:
        (within, *_) = m.all.residual_90 or [None]
        found.append(charts.scatter(m.all.scatter, m.names, within, m.one))
    bins = m.all.reliability
    if bins and any(one.count for one in bins.after):
        found.append(charts.reliability(vars(bins), m.all.temperature, m.one))
    return found


def _learning(m: CardData) -> list[RenderedChart]:
    training, curve = m.training, pd.DataFrame(m.all.curve)
    return charts.learning(curve, training.best_epoch, training.metric, m.one, m.members)


# -------------------------------------------------------------------- classes


def _confusion(m: CardData) -> list[tuple[str, list[tuple[int, str]]]]:
    """Rows of the confusion matrix; a cell is a count and its share of the row."""
    table = m.all.confusion
    if not table or len(m.names) > MOST_CLASSES:
        return []
    return [
        (m.named(name), [(each, f"{each / max(sum(counts), 1):.3f}") for each in counts])
        for name, counts in zip(m.names, table, strict=True)
    ]


def _mistakes(m: CardData) -> list[tuple[str, str, int]]:
    table = m.all.confusion
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
    counts = m.data.class_counts
    # The share of a label is among the graphs where it was measured.
    wholes = m.data.measured or [sum(counts)] * len(counts)
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
    source = str(m.data.source)
    kinds = {"molecules": "new.csv", "graphs": "new.jsonl"}
    fresh = kinds.get(str(m.featurizer.get("kind")), "new.safetensors")
    if fresh == "new.csv" and ".sdf" in Path(source).suffixes:
        fresh = "new.sdf"
    return [
        f"graph-transplant predict MODEL {fresh} --out predictions.csv",
        f"graph-transplant explain MODEL {fresh} --out explain.html",
    ]


def _settings(m: CardData) -> tuple[dict[str, Texts], dict[str, Texts]]:
    """The training options, with the values that were used."""
    given = {field.name: getattr(m.training, field.name) for field in fields(TrainConfig)}
    usual = {field.name: field.default for field in fields(TrainConfig)}
    usual |= asdict(RECIPES[given["recipe"] or "paper"]) | {"recipe": None}
    network = bool(m.training.model)  # what only networks have is zero or empty otherwise
    known = {
        name: value
        for name, value in given.items()
        if value is not None and (network or value or name == "seed")
    }
    return setting_groups(known, usual)
