"""Charts of a model card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from graph_transplant.figures.analysis import LEAST_IN_BIN, draw_reliability
from graph_transplant.figures.chart import (
    DASHED,
    MANY,
    Form,
    RenderedChart,
    legend_row,
    line_chart,
    name_axes,
    share,
    short_number,
    ticks,
)
from graph_transplant.figures.style import SERIES, SOFT, WIDTH, canvas, px, room, short, style, svg
from graph_transplant.figures.training import FLOOR
from graph_transplant.metrics import METRICS
from graph_transplant.utils.text import number, percent, plain


def _render(name: str, title: str, caption: str, ax: Axes) -> RenderedChart:
    return RenderedChart(name, title, caption, svg(ax, name))


def _square(titles: tuple[str, str], form: Form, rows: int = 0) -> Axes:
    """Square axes, with room for ``rows`` names below."""
    below = 56 + 22 * rows
    ax = canvas(None, room(None) - 82 + 34 + below, left=56, right=26, top=34, bottom=below)
    name_axes(ax, titles)
    ticks(ax.xaxis, form, 5)
    ticks(ax.yaxis, form, 5)
    return ax


@style(WIDTH)
def roc(curves: Mapping[str, Sequence[Sequence[float]]]) -> RenderedChart:
    """ROC curves from pairs (false positive rate, true positive rate) by label."""
    named = len(curves) <= MANY
    titles = ("False positive rate", "True positive rate")
    ax = _square(titles, share, rows=len(curves) if named else 0)
    ax.plot([0, 1], [0, 1], zorder=1, **DASHED)
    for place, (name, curve) in enumerate(curves.items()):
        colour = SERIES[place % len(SERIES)] if named else SERIES[0]
        x, y = np.array(curve, dtype=float).T
        wide, alpha = (2, 1.0) if named else (1.2, 0.7)
        ax.plot(x, y, color=colour, clip_on=False, linewidth=px(wide), alpha=alpha)
        if named:
            legend_row(ax, place, short([plain(name)], 280)[plain(name)], colour)
    ax.set(xlim=(0, 1), ylim=(0, 1))
    what = f"labelled {next(iter(curves))[:40]}" if len(curves) == 1 else "with the label"
    caption = (
        f"Going down the ranking, how many of those {what} are found and how many false alarms "
        "come with them. The dashed line is guessing."
    )
    caption += "" if named else f" One curve for each of {len(curves)} labels."
    return _render("roc", "ROC curve", caption, ax)


@style(WIDTH)
def scatter(
    points: Sequence[tuple[float, float]], names: Sequence[str], within: float | None, noun: str
) -> RenderedChart:
    """Predicted against measured values; nine in ten validation errors are ``within`` a value."""
    what = short(names[:1], 150)[names[0]]
    ax = _square((f"Measured {what}", f"Predicted {what}"), short_number)
    values = np.array(points, dtype=float)
    pad = 0.05 * np.ptp(values) or 1.0
    low, high = values.min() - pad, values.max() + pad
    ax.plot([low, high], [low, high], zorder=1, **DASHED)
    ax.plot(*values.T, "o", markersize=px(6), color=SERIES[0], alpha=0.4, markeredgewidth=0)
    ax.set(xlim=(low, high), ylim=(low, high))
    caption = f"One dot per test {noun}; on the dashed line it is right."
    if within is not None:
        held = sum(abs(true - predicted) <= within for true, predicted in points) / len(points)
        caption += (
            f" Predictions are given with ±{within:.3g}, which holds for nine in ten {noun}s like "
            f"the validation ones; here it holds for {percent(held, 0, unit=True)}."
        )
    if len(names) > 1:
        caption += f" The first of {len(names)} values is shown."
    return _render("predicted-measured", "Predicted and measured", caption, ax)


@style(WIDTH)
def reliability(
    stages: Mapping[str, Sequence[Mapping[str, Any]]], temperature: float, noun: str
) -> RenderedChart:
    """Reliability diagram of bins ``before`` and ``after`` temperature scaling."""
    ax = _square(("Confidence", "Accuracy"), share)
    every = [pd.DataFrame(stages[one]).assign(stage=one) for one in ("after", "before")]
    table = pd.concat([one[one["count"] > 0] for one in every])
    bins = np.minimum((15 * table["confidence"]).astype(int), 14)
    draw_reliability(ax, table.assign(bin=bins), SERIES[0])
    caption = (
        "Accuracy against confidence: on the dashed line they agree, below it the model is "
        f"overconfident. Filled dots are after its logits were divided by {temperature:.2f}, the "
        f"temperature chosen on the validation {noun}s; hollow dots are before. The area of a dot "
        f"is the number of predictions; bins with fewer than {LEAST_IN_BIN} are joined with their "
        "neighbours."
    )
    return _render("reliability", "Reliability diagram", caption, ax)


def learning(
    curve: pd.DataFrame, best: float, metric: str, noun: str, members: int
) -> list[RenderedChart]:
    """Validation score and losses by epoch, as far as they are known."""
    found = []
    if metric in METRICS and "validation_score" in curve and curve["validation_score"].count() > 1:
        # R² of an untrained model may be far below zero and would hide the rest.
        scores = curve[["epoch"]].assign(validation=curve["validation_score"].clip(lower=FLOOR))
        title = f"Validation {METRICS[metric].word}"
        caption = (
            f"{METRICS[metric].title} on the validation {noun}s by epoch"
            + (", of the first network" if members > 1 else "")
            + ". The weights of the best epoch were kept."
            + (" Values below −1 are drawn there." if metric == "r2" else "")
        )
        ax = by_epoch(scores, best, title, lambda value: number(value, 2))
        found.append(_render("learning", "Learning", caption, ax))
    names = {"train_loss": "training", "validation_loss": "validation"}
    losses = curve.rename(columns=names).reindex(columns=["epoch", *names.values()])
    if losses.drop(columns="epoch").count().sum() > 2:
        caption = (
            "What training minimises. With augmentation, the training loss includes the mixed "
            "graphs and is higher."
        )
        found.append(_render("loss", "Loss", caption, by_epoch(losses, best)))
    return found


@style(WIDTH)
def by_epoch(
    table: pd.DataFrame, best: float, title: str = "Loss", form: Form = short_number
) -> Axes:
    """Draw the columns ``training`` and ``validation`` by ``epoch``; ``best`` is marked."""
    table = table.melt("epoch", var_name="method", value_name="mean").dropna(subset="mean")
    axes = line_chart(
        table.assign(series=""),
        None,
        x="epoch",
        colours={"training": SERIES[1], "validation": SERIES[0]},
        reference="",
        titles=("Epoch", title),
        forms=(short_number, form),
    )
    assert isinstance(axes, Axes)
    axes.axvline(best, zorder=1, **DASHED)
    axes.annotate(
        "best", (best, 1), xycoords=axes.get_xaxis_transform(), xytext=(0, px(4)),
        textcoords="offset points", ha="center", color=SOFT,
    )  # fmt: skip
    return axes
