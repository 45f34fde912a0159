"""Charts of scores: differences, folds, parameters, ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.axes import Axes

from graph_transplant.errors import GraphTransplantError
from graph_transplant.figures.base import KEYS, Drawing, colours, means_of, ranked, score_form, word
from graph_transplant.figures.parts import point, row_chart, short_number
from graph_transplant.figures.style import palette
from graph_transplant.methods import METHODS, parse_method
from graph_transplant.metrics import METRICS
from graph_transplant.results.verdict import SIGNIFICANT
from graph_transplant.utils.text import number, p_words

if TYPE_CHECKING:
    from graph_transplant.results.average_ranks import Across
    from graph_transplant.results.groups import GroupResults
    from graph_transplant.results.results import Results


# -------------------------------------------------------------------- scores


def forest_data(results: GroupResults) -> pd.DataFrame:
    """Differences of mean scores to the reference, with 95 % intervals."""
    table = results.summary().dropna(subset="difference").reset_index(drop=True)
    return table[["method", "difference", "ci_low", "ci_high", "p_holm", "finding"]]


def forest(results: GroupResults, table: pd.DataFrame, ax: Axes | None) -> Drawing:
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


def scores_data(results: GroupResults) -> pd.DataFrame:
    """Test score of every trial, with methods by rank."""
    table = results.frame[["method", *KEYS, "score"]].dropna()
    return ranked(results, table, reference_first=False)


def scores(results: GroupResults, table: pd.DataFrame, ax: Axes | None) -> Drawing:
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


# -------------------------------------------------------------------- parameters, data sets


def sensitivity_data(results: Results) -> pd.DataFrame:
    """Score by the value of each parameter that was varied on its own."""
    frame = results.frame
    frame = frame[(frame["label_noise"] == 0) & (frame["train_fraction"] == 1)]
    means = means_of(frame, ["method"], "score").set_index("method")
    rows: list[dict[str, Any]] = []
    for text in (method for method in means.index if ":" in method):
        try:
            name, changed = parse_method(text)
        except GraphTransplantError:
            continue  # record of a version with other parameters
        if len(changed) == 1 and name in means.index:
            ((parameter, value),) = changed.items()
            usual = METHODS[name].parameters[parameter]
            for one, key in ((value, text), (usual, name)):
                given = {"method": name, "parameter": parameter, "value": one}
                rows.append({**given, "default": one == usual, **means.loc[key]})
    columns = ["method", "parameter", "value", "default", "mean", "std", "trials"]
    table = pd.DataFrame(rows, columns=columns).drop_duplicates(columns[:3])
    # Text values first, then numbers in order.
    rank = pd.to_numeric(table["value"], errors="coerce").fillna(-1)
    return table.assign(rank=rank).sort_values(["method", "parameter", "rank"])[columns]


def sensitivity(results: Results, table: pd.DataFrame, ax: Axes | None) -> Drawing:
    """Score by the value of each parameter; the default is filled."""
    shades = colours(results)
    several = table["method"].nunique() > 1
    names = [
        f"{row.method + ' ' if several else ''}{row.parameter} = {row.value}"
        for row in table.itertuples()
    ]
    return row_chart(
        table.assign(
            method=names,
            low=table["mean"] - table["std"],
            high=table["mean"] + table["std"],
            filled=table["default"],
        ),
        ax,
        colours=dict(zip(names, table["method"].map(shades), strict=True)),
        axis=f"Test {word(results)}",
        form=score_form(results),
        kind="dot",
        texts=[METRICS[results.metric].score(mean, unit=True) for mean in table["mean"]],
        heading="mean",
        at=None if several else table.loc[table["default"], "mean"].iloc[0],
    )


def ranks_data(found: Across) -> pd.DataFrame:
    """Average rank of each method over data sets, and its test against vanilla."""
    return found.frame


def ranks(found: Across, table: pd.DataFrame, ax: Axes | None) -> Drawing:
    """Average ranks with intervals that overlap if methods do not differ (Demšar, 2006)."""
    half = found.critical_difference / 2
    return row_chart(
        table.assign(mean=table["rank"], low=table["rank"] - half, high=table["rank"] + half),
        ax,
        colours=palette(found.methods, "vanilla"),
        axis=f"Average rank; critical difference {number(found.critical_difference, 2)}",
        form=short_number,
        kind="dot",
        texts=[number(rank, 2) for rank in table["rank"]],
        heading="rank",
    )
