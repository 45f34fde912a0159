"""The charts of a comparison: each with the numbers that it draws.

A chart takes a :class:`~graph_transplant.experiments.results.Results` and axes, or none for a new
figure, and returns the axes; ``None`` where the results have nothing to draw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from graph_transplant.experiments.verdict import SIGNIFICANT
from graph_transplant.figures.parts import (
    MANY,
    exact_share,
    line_chart,
    point,
    row_chart,
    share,
    short_number,
)
from graph_transplant.figures.style import palette
from graph_transplant.format import number, p_words, points
from graph_transplant.metrics import METRICS

if TYPE_CHECKING:
    from graph_transplant.experiments.results import Results

Drawing = Axes | list[Axes] | None

GRID_POINTS = 60
"""Number of epochs at which mean learning curves are given."""

FLOOR = -1.0
"""Learning curves of R² are drawn down to here: before training it may be anywhere."""

KEYS = ["repeat", "fold"]

ALONG = ("epoch", "budget", "share", "label_noise", "train_fraction")
"""Columns that lines are drawn along."""


def word(results: Results) -> str:
    """The deciding metric within a sentence."""
    return METRICS[results.metric].word


def fold_word(results: Results) -> str:
    """What a trial is: runs of one split share their test graphs and are no folds."""
    return "run" if (results.frame["folds"] == 1).all() else "fold"


def grey(results: Results, table: pd.DataFrame) -> str:
    """What grey is, where each method has a panel."""
    names = set(table["method"])
    crowded = len(names) > MANY or (table["series"].nunique() > 1 and len(names) > 2)
    return f" Grey is {results.reference}." if crowded and results.reference in names else ""


def ranked(results: Results, *, reference_first: bool = False) -> list[str]:
    """Methods by mean score, the best first."""
    names = list(dict.fromkeys(results.summary()["method"]))
    return sorted(names, key=lambda n: reference_first and n != results.reference)


def ordered(table: pd.DataFrame, order: list[str]) -> pd.DataFrame:
    """Rows in the order of their methods."""
    table = table.reset_index(drop=True)
    place = table["method"].map({name: number for number, name in enumerate(order)})
    return table.loc[place.sort_values(kind="stable").index].reset_index(drop=True)


def colours(results: Results) -> dict[str, str]:
    """Colour of each method."""
    return palette(results.methods, results.reference)


# -------------------------------------------------------------------- scores


def forest_data(results: Results) -> pd.DataFrame:
    """Differences of mean scores to the reference, with 95 % intervals."""
    table = results.summary().dropna(subset="difference")
    table = table[["method", "difference", "ci_low", "ci_high", "p_holm"]]
    return table.assign(significant=table["p_holm"] < SIGNIFICANT).reset_index(drop=True)


def forest(results: Results, ax: Axes | None = None) -> Drawing:
    """Differences to the reference; filled where significant after Holm's correction."""
    table = forest_data(results)
    if table.empty:
        return None
    wide = results.frame.pivot_table("score", KEYS, "method")
    folds = wide[table["method"].tolist()].sub(wide[results.reference], axis=0)
    dots = folds.melt(ignore_index=False).rename(columns={"variable": "method"})
    return row_chart(
        table.rename(
            columns={
                "difference": "mean",
                "ci_low": "low",
                "ci_high": "high",
                "significant": "filled",
            }
        ),
        ax,
        colours=colours(results),
        axis=f"Points of test {word(results)}, compared with {results.reference}",
        form=point,
        kind="dot",
        texts=[
            f"{points(row.difference)}, {p_words(row.p_holm)}"
            if row.p_holm == row.p_holm
            else points(row.difference)
            for row in table.itertuples()
        ],
        heading="mean, p",
        dots=dots.assign(key=0),
        at=0.0,
        zero=True,
    )


def trials(results: Results, column: str) -> pd.DataFrame:
    """One test measurement of every trial, the methods by rank."""
    if column not in results.frame:
        return pd.DataFrame(columns=["method", *KEYS, column])
    table = results.frame[["method", *KEYS, column]].dropna()
    return ordered(table, ranked(results))


def scores_data(results: Results) -> pd.DataFrame:
    """The score of every trial."""
    return trials(results, "score")


def scores(results: Results, ax: Axes | None = None) -> Drawing:
    """The score of every fold; lines join the same fold."""
    return _strip(results, ax, scores_data(results), f"Test {word(results)}", share=True)


def calibration_data(results: Results) -> pd.DataFrame:
    """The calibration error of every trial."""
    return trials(results, "ece")


def calibration(results: Results, ax: Axes | None = None) -> Drawing:
    """The expected calibration error of every fold."""
    return _strip(results, ax, calibration_data(results), "Expected calibration error")


def _strip(
    results: Results, ax: Axes | None, table: pd.DataFrame, axis: str, *, share: bool = False
) -> Drawing:
    if table.empty:
        return None
    value = table.columns[-1]
    means = table.groupby("method", sort=False)[value].mean()
    form, exact = (_share, exact_share) if share else (short_number, number)
    return row_chart(
        pd.DataFrame({"method": means.index, "mean": means.to_numpy()}),
        ax,
        colours=colours(results),
        axis=axis,
        form=form,
        kind="stroke",
        texts=[exact(mean) for mean in means],
        heading="mean",
        dots=table.assign(
            value=table[value], key=table["repeat"].astype(str) + "/" + table["fold"].astype(str)
        ),
        joined=share,
        at=means.get(results.reference),
    )


_share = share


# -------------------------------------------------------------------- curves


def curve_data(results: Results, column: str) -> pd.DataFrame:
    """A recorded quantity by epoch: mean over the trials that still train.

    Trials are recorded at different epochs, values between are interpolated. A curve ends where
    fewer than half of its trials train.
    """
    table = results.long("curve")
    columns = ["method", "series", "epoch", "mean"]
    if column not in table:
        return pd.DataFrame(columns=columns)
    table = table.dropna(subset=column)
    if table.empty:
        return pd.DataFrame(columns=columns)
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
    return ordered(pd.concat(found), ranked(results, reference_first=True))


def learning_data(results: Results) -> pd.DataFrame:
    """The validation score by epoch."""
    table = curve_data(results, "validation_score")
    # Records made before there was a choice of metric have the accuracy alone.
    if table.empty and results.metric == "accuracy":
        table = curve_data(results, "validation_accuracy")
    if results.metric == "r2":
        table["mean"] = table["mean"].clip(lower=FLOOR)
    return table


def learning(results: Results, ax: Axes | None = None) -> Drawing:
    """The validation score by epoch."""
    return _curves(results, ax, learning_data(results), f"Validation {word(results)}")


def edge_predictor_data(results: Results) -> pd.DataFrame:
    """The accuracy of the edge predictor by epoch."""
    return curve_data(results, "edge_predictor_accuracy")


def edge_predictor(results: Results, ax: Axes | None = None) -> Drawing:
    """The accuracy of the edge predictor by epoch."""
    return _curves(results, ax, edge_predictor_data(results), "Edge predictor accuracy")


def _curves(results: Results, ax: Axes | None, table: pd.DataFrame, title: str) -> Drawing:
    if table.empty:
        return None
    return line_chart(
        table,
        ax,
        x="epoch",
        colours=colours(results),
        reference=results.reference,
        titles=("Epoch", title),
        forms=(lambda value: number(value, 0), share),
    )
