"""Bars of an experiment, with the published numbers as hollow marks."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from graph_transplant.experiments.protocol import BASELINE
from graph_transplant.figures import shown, write
from graph_transplant.figures.parts import row_chart, short_number
from graph_transplant.figures.style import palette
from graph_transplant.format import capital, number
from graph_transplant.paper.experiments import BUDGETS, EXPERIMENTS
from graph_transplant.paper.tables import PaperTable, word
from graph_transplant.report.page import Names, slug


def write_figures(table: PaperTable, out: str | Path) -> list[Path]:
    """Write a chart per data set and network to the folder ``figures``, its numbers as CSV."""
    names, paths = Names(), list[Path]()
    measured = table.frame[table.frame["trials"] > 0]
    kind = "" if table.budget == "full" else f" ({BUDGETS[table.budget]})"
    for (data, model, readout), own in measured.groupby(["data", "model", "readout"], sort=False):
        several = len(EXPERIMENTS[table.experiment].readouts) > 1
        network = f"{model} {readout}" if several else str(model)
        title = f"{data}, {network}: {capital(word(own['metric'].iloc[0]))}{kind}"
        found = shown(
            partial(bars, own, title),
            name=names.claim(slug(table.experiment, table.budget, str(data), network)),
            title=title,
            caption=str,
            label=title,
            data=own[["model", "readout", "method", "mean", "std", "published_mean"]],
        )
        assert found is not None
        paths.append(write(found, Path(out) / "figures")[0])
    return paths


def bars(own: pd.DataFrame, title: str, ax: Axes | None = None) -> Axes:
    """Draw the measured means of one network."""
    std = own["std"].fillna(0)
    texts = [
        number(mean) if math.isnan(theirs) else f"{number(mean)} ({number(theirs)})"
        for mean, theirs in zip(own["mean"], own["published_mean"], strict=True)
    ]
    return row_chart(
        own.assign(low=own["mean"] - std, high=own["mean"] + std, mark=own["published_mean"]),
        ax,
        colours=palette(own["method"], BASELINE),
        axis=title,
        form=short_number,
        kind="bar",
        texts=texts,
        heading="mean (published)",
    )
