"""Charts of a comparison: ``*_data`` functions return the numbers that the others draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from graph_transplant.experiments.verdict import SIGNIFICANT
from graph_transplant.figures.parts import (
    Form,
    line_chart,
    point,
    row_chart,
    share,
    short_number,
)
from graph_transplant.figures.style import palette
from graph_transplant.format import number, p_words
from graph_transplant.metrics import METRICS

if TYPE_CHECKING:
    from graph_transplant.experiments.results import Results

Drawing = Axes | list[Axes] | None

GRID_POINTS = 60  # epochs at which mean learning curves are evaluated
FLOOR = -1.0  # learning curves of R² are clipped here: untrained models may be far below

KEYS = ["repeat", "fold"]


def word(results: Results) -> str:
    """Name of the deciding metric, for use within a sentence."""
    return METRICS[results.metric].word


def score_form(results: Results) -> Form:
    """Format of scores on an axis."""
    return share if METRICS[results.metric].share else short_number


def fold_word(results: Results) -> str:
    """Word for a trial: runs of a single split share their test graphs and are not folds."""
    return "run" if (results.frame["folds"] == 1).all() else "fold"


def ranked(results: Results, table: pd.DataFrame, *, reference_first: bool = True) -> pd.DataFrame:
    """Sort rows by the mean score of their method, best first after the reference."""
    names = dict.fromkeys(results.summary()["method"])
    order = sorted(names, key=lambda name: reference_first and name != results.reference)
    table = table.reset_index(drop=True)
    place = table["method"].map({name: number for number, name in enumerate(order)})
    return table.loc[place.sort_values(kind="stable").index].reset_index(drop=True)


def colours(results: Results) -> dict[str, str]:
    """Colour of each method."""
    return palette(results.methods, results.reference)


# -------------------------------------------------------------------- scores


def forest_data(results: Results) -> pd.DataFrame:
    """Differences of mean scores to the reference, with 95 % intervals."""
    table = results.summary().dropna(subset="difference").reset_index(drop=True)
    return table[["method", "difference", "ci_low", "ci_high", "p_holm", "finding"]]


def forest(results: Results, table: pd.DataFrame, ax: Axes | None) -> Drawing:
    """Differences to the reference; filled if significant after Holm's correction."""
    wide = results.frame.pivot_table("score", KEYS, "method")
    folds = wide[table["method"].tolist()].sub(wide[results.reference], axis=0)
    dots = folds.melt(ignore_index=False).rename(columns={"variable": "method"})
    names = {"difference": "mean", "ci_low": "low", "ci_high": "high"}
    metric = METRICS[results.metric]
    what = "Points of" if metric.share else "Difference in"
    return row_chart(
        table.rename(columns=names).assign(filled=table["p_holm"] < SIGNIFICANT),
        ax,
        colours=colours(results),
        axis=f"{what} test {word(results)}, compared with {results.reference}",
        form=point if metric.share else short_number,
        kind="dot",
        texts=[
            f"{metric.gap(row.difference)}, {p_words(row.p_holm)}"
            if row.p_holm == row.p_holm
            else metric.gap(row.difference)
            for row in table.itertuples()
        ],
        heading="mean, p",
        dots=dots.assign(key=0),
        at=0.0,
        band=results.equal_within,
    )


def scores_data(results: Results) -> pd.DataFrame:
    """Test score of every trial, with methods by rank."""
    table = results.frame[["method", *KEYS, "score"]].dropna()
    return ranked(results, table, reference_first=False)


def scores(results: Results, table: pd.DataFrame, ax: Axes | None) -> Drawing:
    """Test score of every trial; lines connect the same fold."""
    means = results.summary().set_index("method")["score_mean"]  # as in the table
    means = means.fillna(table.groupby("method")["score"].mean())
    means = means[means.index.isin(table["method"])]
    key = table["repeat"].astype(str) + "/" + table["fold"].astype(str)
    return row_chart(
        means.rename("mean").reset_index(),
        ax,
        colours=colours(results),
        axis=f"Test {word(results)}",
        form=score_form(results),
        kind="stroke",
        texts=[METRICS[results.metric].score(mean, unit=True) for mean in means],
        heading="mean",
        dots=table.assign(value=table["score"], key=key),
        at=means.get(results.reference),
    )


# -------------------------------------------------------------------- lines


def curve_data(results: Results, column: str) -> pd.DataFrame:
    """Mean of a recorded quantity by epoch, over the trials still running.

    Trials are recorded at different epochs; values in between are interpolated. A curve ends when
    fewer than half of its trials are running.
    """
    table = results.long("curve")
    table = table.dropna(subset=column) if column in table else table[:0]
    if table.empty:
        return pd.DataFrame(columns=["method", "series", "epoch", "mean"])
    first, last = table["epoch"].min(), table["epoch"].max()
    grid = np.unique(np.linspace(first, last, min(GRID_POINTS, int(last - first) + 1)).round())
    found = []
    for method, own in table.groupby("method"):
        curves = np.array([
            np.interp(grid, one["epoch"], one[column], left=np.nan, right=np.nan)
            for _, one in own.groupby(KEYS)
        ])  # fmt: skip
        enough = 2 * np.isfinite(curves).sum(axis=0) >= len(curves)
        means = np.nanmean(curves[:, enough], axis=0)
        found.append(
            pd.DataFrame({"method": method, "series": "", "epoch": grid[enough], "mean": means})
        )
    return ranked(results, pd.concat(found))


def learning_data(results: Results) -> pd.DataFrame:
    """Validation score by epoch."""
    table = curve_data(results, "validation_score")
    # Older records have only the accuracy.
    if table.empty and results.metric == "accuracy":
        table = curve_data(results, "validation_accuracy")
    if results.metric == "r2":
        table["mean"] = table["mean"].clip(lower=FLOOR)
    return table


def lines(
    results: Results, table: pd.DataFrame, ax: Axes | None, *, x: str, title: str, value: str
) -> Drawing:
    """One line per method along column ``x``; ``{}`` in ``value`` stands for the metric."""
    places, epochs = table[x].nunique(), x == "epoch"
    if places < 2 and not epochs:
        return None
    return line_chart(
        table,
        ax,
        x=x,
        colours=colours(results),
        reference=results.reference,
        titles=(title, value.format(word(results))),
        forms=(
            (lambda epoch: number(epoch, 0)) if epochs else share,
            score_form(results) if "{}" in value else share,
        ),
        dots=not epochs and places < 8,
    )
