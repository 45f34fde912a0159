"""Scores of methods: their differences (the forest plot), every trial, average ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.axes import Axes

from graph_transplant.figures.chart import (
    KEYS,
    Chart,
    Colours,
    Drawing,
    point,
    ranked,
    row_chart,
    score_form,
    short_number,
    word,
)
from graph_transplant.metrics import METRICS
from graph_transplant.results.verdict import SIGNIFICANT
from graph_transplant.utils.text import number, p_words

if TYPE_CHECKING:
    from graph_transplant.results.average_ranks import Across
    from graph_transplant.results.groups import GroupResults


# -------------------------------------------------------------------- differences


def forest_data(results: GroupResults) -> pd.DataFrame:
    """Differences of mean scores to the reference, with 95 % intervals."""
    table = results.summary().dropna(subset="difference").reset_index(drop=True)
    return table[["method", "difference", "ci_low", "ci_high", "p_holm", "finding"]]


def forest(
    results: GroupResults, table: pd.DataFrame, ax: Axes | None, colours: Colours
) -> Drawing:
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
        colours=colours,
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


FOREST = Chart(
    "Difference to {reference}",
    "Large dots are mean differences to {reference}, bars their 95 % intervals, small dots "
    "single {fold}s. Filled: significant; hollow: a difference is not shown. p is corrected "
    "for the number of methods, bars are not. Bars within the grey band are practically equal "
    "to {reference}.",
    forest,
    forest_data,
)


# -------------------------------------------------------------------- every trial


def scores_data(results: GroupResults) -> pd.DataFrame:
    """Test score of every trial, with methods by rank."""
    table = results.frame[["method", *KEYS, "score"]].dropna()
    return ranked(results, table, reference_first=False)


def scores(
    results: GroupResults, table: pd.DataFrame, ax: Axes | None, colours: Colours
) -> Drawing:
    """Test score of every trial; lines connect the same fold."""
    means = results.summary().set_index("method")["score_mean"]  # as in the table
    means = means.fillna(table.groupby("method")["score"].mean())
    means = means[means.index.isin(table["method"])]
    key = table["repeat"].astype(str) + "/" + table["fold"].astype(str)
    return row_chart(
        means.rename("mean").reset_index(),
        ax,
        colours=colours,
        axis=f"Test {word(results)}",
        form=score_form(results),
        kind="stroke",
        texts=[METRICS[results.metric].score(mean, unit=True) for mean in means],
        heading="mean",
        dots=table.assign(value=table["score"], key=key),
        at=means.get(results.reference),
    )


SCORES = Chart(
    "Every trial",
    "One dot per {fold}; the thick stroke is the mean. Thin lines connect the same {fold}: "
    "look at whether they slope the same way. The dashed line is the mean of {reference}.",
    scores,
    scores_data,
)


# -------------------------------------------------------------------- average ranks


def ranks_data(found: Across) -> pd.DataFrame:
    """Average rank of each method over data sets, and its test against vanilla."""
    return found.frame


def ranks(found: Across, table: pd.DataFrame, ax: Axes | None, colours: Colours) -> Drawing:
    """Average ranks with intervals that overlap if methods do not differ (Demšar, 2006)."""
    half = found.critical_difference / 2
    return row_chart(
        table.assign(mean=table["rank"], low=table["rank"] - half, high=table["rank"] + half),
        ax,
        colours=colours,
        axis=f"Average rank; critical difference {number(found.critical_difference, 2)}",
        form=short_number,
        kind="dot",
        texts=[number(rank, 2) for rank in table["rank"]],
        heading="rank",
    )


RANKS = Chart(
    "Average ranks",
    "Average rank of each method over the data sets; 1 is best. Bars are as long as the "
    "critical difference: methods whose bars overlap are not shown to differ (Nemenyi’s "
    "test, 5 %; an approximation that finds too much with few data sets).",
    ranks,
    ranks_data,
    every="data sets",
)
