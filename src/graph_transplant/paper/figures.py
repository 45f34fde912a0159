"""Bars of an experiment, with the published numbers as hollow marks."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from graph_transplant.experiments.protocol import BASELINE
from graph_transplant.figures.style import (
    INK,
    PAPER,
    RULE,
    SOFT,
    WIDE,
    canvas,
    palette,
    px,
    standalone,
    style,
    svg,
)
from graph_transplant.files import write_atomically
from graph_transplant.format import capital
from graph_transplant.paper.experiments import BUDGETS, EXPERIMENTS
from graph_transplant.paper.tables import PaperTable, word
from graph_transplant.report.page import Names, slug

FOLDER = "figures"


def write_figures(table: PaperTable, out: str | Path) -> list[Path]:
    """Write a chart per data set to ``figures/EXPERIMENT-BUDGET-DATA.svg``, its numbers as CSV."""
    names = Names()
    paths = []
    for data, own in table.frame[table.frame["trials"] > 0].groupby("data", sort=False):
        with style(WIDE):
            axes = bars(table, str(data))
        assert isinstance(axes.figure, Figure)
        folder = Path(out) / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        stem = names.claim(slug(table.experiment, table.budget, str(data)))
        path = folder / f"{stem}.svg"
        label = f"{table.experiment} on {data}"
        write_atomically(path, standalone(svg(axes.figure, label)))
        columns = ["model", "readout", "method", "mean", "std", "published_mean"]
        numbers = own[columns].to_csv(index=False, float_format="%.6g", lineterminator="\n")
        write_atomically(path.with_suffix(".csv"), numbers)
        paths.append(path)
    return paths


def bars(table: PaperTable, data: str, ax: Axes | None = None) -> Axes:
    """Draw the measured means of a data set, grouped by readout or else by model."""
    frame = table.frame[(table.frame["data"] == data) & (table.frame["trials"] > 0)]
    methods = list(dict.fromkeys(frame["method"]))
    colours = palette(methods, BASELINE)
    readouts = len(EXPERIMENTS[table.experiment].readouts) > 1
    label = frame["model"].str.upper() + (" " + frame["readout"] if readouts else "")
    groups = list(dict.fromkeys(label))
    below = 62 + 22 * math.ceil((len(methods) + 1) / 3)
    ax = canvas(ax, 310 + below, left=60, right=16, top=44, bottom=below)
    width = 0.8 / len(methods)
    for number, method in enumerate(methods):
        own = frame[frame["method"] == method]
        x = label[own.index].map(groups.index) + (number + 0.5) * width - 0.4
        ax.bar(x, own["mean"], 0.9 * width, color=colours[method], label=method)
        std = np.nan_to_num(own["std"].to_numpy(dtype=float))
        ax.errorbar(x, own["mean"], std, fmt="none", ecolor=INK, elinewidth=px(1.2))
        theirs = own["published_mean"]
        if theirs.notna().any():
            label_once = "published" if method == methods[-1] else None
            ax.plot(
                x,
                theirs,
                "o",
                markersize=px(8),
                markerfacecolor=PAPER,
                markeredgecolor=INK,
                label=label_once,
            )
    ax.set_xticks(range(len(groups)), groups)
    ax.grid(axis="y", color=RULE, linewidth=px(1))
    measure = capital(word(frame["metric"].iloc[0]))
    kind = "" if table.budget == "full" else f" ({BUDGETS[table.budget]})"
    ax.set_title(f"{data}: {measure}{kind}", loc="left", color=SOFT, size=px(13), pad=px(14))
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.08), ncols=3, frameon=False, labelcolor=SOFT)
    return ax
