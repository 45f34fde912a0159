"""Charts of a model card."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

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
from graph_transplant.figures.reliability import LEAST_IN_BIN, draw_reliability
from graph_transplant.figures.style import SERIES, SOFT, WIDTH, canvas, px, room, short, style, svg
from graph_transplant.figures.training import FLOOR
from graph_transplant.metrics import METRICS
from graph_transplant.utils.text import number, percent, plain


def _render(name: str, title: str, caption: str, draw: Callable[[], Axes]) -> RenderedChart:
    with style(WIDTH):
        return RenderedChart(name, title, caption, svg(draw(), name))


def _square(titles: tuple[str, str], form: Form, rows: int = 0) -> Axes:
    """Square axes, with room for ``rows`` names below."""
    below = 56 + 22 * rows
    ax = canvas(None, room(None) - 82 + 34 + below, left=56, right=26, top=34, bottom=below)
    name_axes(ax, titles)
    ticks(ax.xaxis, form, 5)
    ticks(ax.yaxis, form, 5)
    return ax


# -------------------------------------------------------------------- ROC


def roc(curves: Mapping[str, Sequence[Sequence[float]]]) -> RenderedChart:
    """ROC curves from pairs (false positive rate, true positive rate) by label."""
    names = list(curves)
    what = f"labelled {names[0][:40]}" if len(names) == 1 else "with the label"
    caption = (
        f"Going down the ranking, how many of those {what} are found and how many false alarms "
        "come with them. The dashed line is guessing."
    )
    if len(names) > MANY:
        caption += f" One curve for each of {len(names)} labels."
    return _render("roc", "ROC curve", caption, lambda: draw_roc(curves))


def draw_roc(curves: Mapping[str, Sequence[Sequence[float]]]) -> Axes:
    """Draw ROC curves, with their names below if there are few."""
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
    return ax


# -------------------------------------------------------------------- values


def scatter(
    points: Sequence[tuple[float, float]], names: Sequence[str], within: float | None, noun: str
) -> RenderedChart:
    """Predicted against measured values; nine in ten validation errors are ``within`` a value."""
    caption = f"One dot per test {noun}; on the dashed line it is right."
    if within is not None:
        held = sum(abs(true - predicted) <= within for true, predicted in points) / len(points)
        caption += (
            f" Predictions are given with ±{within:.3g}, which holds for nine in ten {noun}s like "
            f"the validation ones; here it holds for {percent(held, 0, unit=True)}."
        )
    if len(names) > 1:
        caption += f" The first of {len(names)} values is shown."
    title = "Predicted and measured"
    return _render("predicted-measured", title, caption, lambda: draw_scatter(points, names[0]))


def draw_scatter(points: Sequence[tuple[float, float]], name: str) -> Axes:
    """Draw predicted against true values of the target ``name``."""
    what = short([name], 150)[name]
    ax = _square((f"Measured {what}", f"Predicted {what}"), short_number)
    values = np.array(points, dtype=float)
    pad = 0.05 * np.ptp(values) or 1.0
    low, high = values.min() - pad, values.max() + pad
    ax.plot([low, high], [low, high], zorder=1, **DASHED)
    ax.plot(*values.T, "o", markersize=px(6), color=SERIES[0], alpha=0.4, markeredgewidth=0)
    ax.set(xlim=(low, high), ylim=(low, high))
    return ax


# -------------------------------------------------------------------- calibration


def reliability(
    bins: Mapping[str, Sequence[Mapping[str, Any]]], temperature: float, noun: str
) -> RenderedChart:
    """Reliability diagram of bins ``before`` and ``after`` temperature scaling."""
    caption = (
        "Accuracy against confidence: on the dashed line they agree, below it the model is "
        f"overconfident. Filled dots are after its logits were divided by {temperature:.2f}, the "
        f"temperature chosen on the validation {noun}s; hollow dots are before. The area of a dot "
        f"is the number of predictions; bins with fewer than {LEAST_IN_BIN} are joined with their "
        "neighbours."
    )
    table = pd.concat([pd.DataFrame(bins[one]).assign(stage=one) for one in ("after", "before")])
    return _render(
        "reliability", "Reliability diagram", caption, lambda: draw_reliability_bins(table)
    )


def draw_reliability_bins(table: pd.DataFrame) -> Axes:
    """Draw bins with ``stage``, ``confidence``, ``accuracy`` and ``count``."""
    ax = _square(("Confidence", "Accuracy"), share)
    table = table[table["count"] > 0]
    bins = np.minimum((15 * table["confidence"]).astype(int), 14)
    draw_reliability(ax, table.assign(bin=bins), SERIES[0])
    return ax


# -------------------------------------------------------------------- learning


def learning(
    curve: pd.DataFrame, best: float, metric: str, noun: str, members: int
) -> list[RenderedChart]:
    """Validation score and losses by epoch, as far as they are known."""
    found = []
    if metric in METRICS and "validation_score" in curve and curve["validation_score"].count() > 1:
        caption = (
            f"{METRICS[metric].title} on the validation {noun}s by epoch"
            + (", of the first network" if members > 1 else "")
            + ". The weights of the best epoch were kept."
            + (" Values below −1 are drawn there." if metric == "r2" else "")
        )
        # R² of an untrained model may be far below zero and would hide the rest.
        scores = {"validation": curve["validation_score"].clip(lower=FLOOR)}
        title = f"Validation {METRICS[metric].word}"
        found.append(
            _render(
                "learning", "Learning", caption,
                lambda: draw_learning(
                    curve["epoch"], scores, best, title, lambda value: number(value, 2)
                ),
            )
        )  # fmt: skip
    losses = {
        name: curve[f"{name}_loss"]
        for name in ("training", "validation")
        if f"{name}_loss" in curve
    }
    if sum(values.count() for values in losses.values()) > 2:
        caption = (
            "What training minimises. With augmentation, the training loss includes the mixed "
            "graphs and is higher."
        )
        found.append(
            _render("loss", "Loss", caption, lambda: draw_learning(curve["epoch"], losses, best))
        )
    return found


def draw_learning(
    epochs: Sequence[float],
    values: Mapping[str, Sequence[float]],
    best: float,
    title: str = "Loss",
    form: Form = short_number,
) -> Axes:
    """Draw ``training`` and ``validation`` values by epoch; ``best`` is marked."""
    table = pd.concat(
        pd.DataFrame({"method": name, "series": "", "epoch": epochs, "mean": column})
        for name, column in values.items()
    ).dropna(subset="mean")
    axes = line_chart(
        table,
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
