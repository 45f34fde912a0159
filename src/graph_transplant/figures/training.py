"""How training goes, and what changes its result: curves, time, conditions, parameters."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from graph_transplant.errors import GraphTransplantError
from graph_transplant.figures.chart import (
    BAND,
    GREY,
    KEYS,
    Chart,
    Colours,
    Drawing,
    lines,
    means_of,
    ranked,
    row_chart,
    score_form,
    series_of,
    short_number,
    word,
)
from graph_transplant.methods import METHODS, parse_method
from graph_transplant.metrics import METRICS
from graph_transplant.utils.text import number

if TYPE_CHECKING:
    from graph_transplant.results.groups import GroupResults, Trials


FLOOR: Final = -1.0
"""Learning curves of R² are clipped here: untrained models may be far below."""

_GRID_POINTS = 60  # epochs at which mean learning curves are evaluated


# -------------------------------------------------------------------- curves


def curve_data(results: GroupResults, column: str) -> pd.DataFrame:
    """Mean of a recorded quantity by epoch, over the trials still running.

    Trials are recorded at different epochs; values in between are interpolated. A curve ends when
    fewer than half of its trials are running.
    """
    table = results.long("curve")
    table = table.dropna(subset=column) if column in table else table[:0]
    if table.empty:
        return pd.DataFrame(columns=["method", "series", "epoch", "mean"])
    first, last = table["epoch"].min(), table["epoch"].max()
    grid = np.unique(np.linspace(first, last, min(_GRID_POINTS, int(last - first) + 1)).round())
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


def learning_data(results: GroupResults) -> pd.DataFrame:
    """Validation score by epoch."""
    table = curve_data(results, "validation_score")
    # Older records have only the accuracy.
    if table.empty and results.metric == "accuracy":
        table = curve_data(results, "validation_accuracy")
    if results.metric == "r2":
        table["mean"] = table["mean"].clip(lower=FLOOR)
    return table


LEARNING = Chart(
    "Learning",
    "Validation {metric} by epoch: the mean over the trials still running at that epoch, as "
    f"long as these are at least half of all. {GREY}",
    partial(lines, x="epoch", title="Epoch", value="Validation {}"),
    learning_data,
)

EDGE_PREDICTOR = Chart(
    "The edge predictor",
    "How often the edge predictor tells a true edge from a pair without one, on pairs it was "
    "not trained on; 50 % is guessing.",
    partial(lines, x="epoch", title="Epoch", value="Edge predictor accuracy"),
    partial(curve_data, column="edge_predictor_accuracy"),
    "Edge predictor",
)


# -------------------------------------------------------------------- time


def cost_data(results: GroupResults) -> pd.DataFrame:
    """Median seconds per epoch and to the best checkpoint, and their ratio to the reference.

    Medians, as other processes and first calls make single trials slow.
    """
    table = results.wide("cost")
    if not _timed(results):
        # Old records only have the duration of the whole trial.
        table = results.frame.dropna(subset="epochs")
        table = table.assign(epoch_seconds=table["seconds"] / table["epochs"])
        table["best_seconds"] = table["epoch_seconds"] * table["best_epoch"]
    elif "epoch_seconds" in table:
        table = table.dropna(subset="epoch_seconds")  # baselines have no epochs
    seconds = ["epoch_seconds", "best_seconds"]
    table = table.astype(dict.fromkeys(seconds, float))
    medians = table.groupby("method", as_index=False)[seconds].median()
    for name, part in (("epoch_low", 0.25), ("epoch_high", 0.75)):
        quartile = table.groupby("method")["epoch_seconds"].quantile(part)
        medians[name] = medians["method"].map(quartile)
    plain = medians[medians["method"] == results.reference]
    for name, column in zip(("epoch_ratio", "best_ratio"), seconds, strict=True):
        medians[name] = medians[column] / plain[column].iloc[0] if len(plain) else np.nan
    return ranked(results, medians)


def _timed(results: GroupResults) -> bool:
    trained = results.frame.dropna(subset="epochs")
    return bool(len(trained) and trained["processor_seconds"].notna().all())


def cost(results: GroupResults, table: pd.DataFrame, ax: Axes | None, colours: Colours) -> Drawing:
    """Training time as a ratio to the reference."""
    if len(table) < 2 or table["epoch_ratio"].isna().all():
        return None
    plain = table.loc[table["method"] == results.reference, "epoch_seconds"].iloc[0]
    time = "Processor time" if _timed(results) else "Time"
    return row_chart(
        table.assign(
            mean=table["epoch_ratio"],
            low=table["epoch_low"] / plain,
            high=table["epoch_high"] / plain,
            mark=table["best_ratio"],
        ),
        ax,
        colours=colours,
        kind="bar",
        axis=f"{time}, compared with {results.reference}",
        form=lambda value: f"× {short_number(value)}",
        texts=[
            f"× {number(row.epoch_ratio, 1)}, × {number(row.best_ratio, 1)}"
            for row in table.itertuples()
        ],
        heading="epoch, best",
        at=1.0,
    )


COST = Chart(
    "Training time",
    "Median time of training as ratio to {reference}: bars per epoch, with the quartiles of "
    "all trials, hollow dots until the best checkpoint.",
    cost,
    cost_data,
    "Cost",
)


# -------------------------------------------------------------------- noise, number of graphs


def condition_data(results: Trials, column: str, other: str, usual: float) -> pd.DataFrame:
    """Score by ``column`` at the value of ``other`` nearest to the usual one with two points."""
    frame = results.frame
    counts = frame.groupby(other)[column].nunique()
    nearest = min(counts.index, key=lambda value: (counts[value] < 2, abs(value - usual)))
    return series_of(results, frame[frame[other] == nearest], column, {"score": ""})


def _condition(title: str, caption: str, axis: str, column: str, other: str, usual: float) -> Chart:
    return Chart(
        title,
        f"Test {{metric}} against the share of {caption}. {BAND} Where noise and number of graphs "
        "both vary, the other one is the easiest that was run.",
        partial(lines, x=column, title=axis, value="Test {}"),
        partial(condition_data, column=column, other=other, usual=usual),
        "Conditions",
        "network",
    )


LABEL_NOISE = _condition(
    "Label noise",
    "training labels that were made wrong; validation and test labels are right",
    "Wrong training labels",
    "label_noise",
    "train_fraction",
    1.0,
)

TRAIN_SIZE = _condition(
    "Training-set size",
    "the training graphs that were used; validation and test graphs are all there",
    "Training graphs used",
    "train_fraction",
    "label_noise",
    0.0,
)


# -------------------------------------------------------------------- parameters


def sensitivity_data(results: Trials) -> pd.DataFrame:
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


def sensitivity(results: Trials, table: pd.DataFrame, ax: Axes | None, colours: Colours) -> Drawing:
    """Score by the value of each parameter; the default is filled."""
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
        colours=dict(zip(names, table["method"].map(colours), strict=True)),
        axis=f"Test {word(results)}",
        form=score_form(results),
        kind="dot",
        texts=[METRICS[results.metric].score(mean, unit=True) for mean in table["mean"]],
        heading="mean",
        at=None if several else table.loc[table["default"], "mean"].iloc[0],
    )


SENSITIVITY = Chart(
    "Sensitivity to parameters",
    "Test {metric} for each value of a parameter, the others at their defaults: mean over "
    "trials with one standard deviation. A filled dot is the default, the dashed line its "
    "mean.",
    sensitivity,
    sensitivity_data,
    "Sensitivity",
    "network",
)
