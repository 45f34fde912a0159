"""Charts of a model card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from graph_transplant.figures.parts import (
    DASHED,
    MANY,
    Form,
    legend_row,
    line_chart,
    share,
    short_number,
    ticks,
)
from graph_transplant.figures.studies import draw_reliability
from graph_transplant.figures.style import RULE, SERIES, SOFT, canvas, px, room, short
from graph_transplant.utils.text import plain

_SQUARE = 380  # pixels


def roc(curves: Mapping[str, Sequence[Sequence[float]]]) -> Axes:
    """ROC curves from pairs (false positive rate, true positive rate) by label."""
    titles = ("False positive rate", "True positive rate")
    named = len(curves) <= MANY
    ax = _square(titles, share, rows=len(curves) if named else 0)
    ax.plot([0, 1], [0, 1], zorder=1, **DASHED)
    for number, (name, curve) in enumerate(curves.items()):
        colour = SERIES[number % len(SERIES)] if named else SERIES[0]
        x, y = np.array(curve, dtype=float).T
        wide, alpha = (2, 1.0) if named else (1.2, 0.7)
        ax.plot(x, y, color=colour, clip_on=False, linewidth=px(wide), alpha=alpha)
        if named:
            legend_row(ax, number, short([plain(name)], 240)[plain(name)], colour)
    ax.set(xlim=(0, 1), ylim=(0, 1))
    return ax


def scatter(true: Sequence[float], predicted: Sequence[float], name: str) -> Axes:
    """Predicted against true values of the target ``name``."""
    what = short([name], 150)[name]
    ax = _square((f"Measured {what}", f"Predicted {what}"), short_number)
    values = np.array([*true, *predicted], dtype=float)
    pad = 0.05 * (values.max() - values.min()) or 1.0
    low, high = values.min() - pad, values.max() + pad
    ax.plot([low, high], [low, high], zorder=1, **DASHED)
    ax.plot(true, predicted, "o", markersize=px(6), color=SERIES[0], alpha=0.4, markeredgewidth=0)
    ax.set(xlim=(low, high), ylim=(low, high))
    return ax


def learning_curve(
    epochs: Sequence[float],
    train: Sequence[float] | None,
    validation: Sequence[float] | None,
    best: float,
    *,
    title: str = "Loss",
    form: Form = short_number,
) -> Axes:
    """Training and validation values by epoch, both optional; ``best`` is marked."""
    parts = {"training": train, "validation": validation}
    table = pd.concat(
        [
            pd.DataFrame({"method": name, "series": "", "epoch": epochs, "mean": values})
            for name, values in parts.items()
            if values is not None
        ]
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
        textcoords="offset points", ha="center", color=SOFT, size=px(12),
    )  # fmt: skip
    return axes


def reliability_bins(table: pd.DataFrame) -> Axes:
    """Accuracy by confidence; bins have ``stage``, ``confidence``, ``accuracy`` and ``count``."""
    ax = _square(("Confidence", "Accuracy"), share)
    table = table[table["count"] > 0]
    bins = np.minimum((15 * table["confidence"]).astype(int), 14)
    draw_reliability(ax, table.assign(bin=bins), SERIES[0])
    return ax


def _square(titles: tuple[str, str], form: Form, rows: int = 0) -> Axes:
    """Square axes, with room for ``rows`` names below."""
    side = min(room(None), _SQUARE) - 82
    right = max(room(None) - 56 - side, 26)
    ax = canvas(None, side + 90 + 22 * rows, left=56, right=right, top=34, bottom=56 + 22 * rows)
    ax.grid(axis="y", color=RULE, linewidth=px(1))
    ticks(ax.xaxis, form, 5)
    ticks(ax.yaxis, form, 5)
    ax.set_xlabel(titles[0], color=SOFT, size=px(12.5), labelpad=px(6))
    ax.set_title(titles[1], loc="left", color=SOFT, size=px(12.5), pad=px(12), weight=400)
    return ax
