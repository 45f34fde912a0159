"""Charts of training and of what else is measured: robustness, saliency, samples, cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from graph_transplant.figures.base import KEYS, Drawing, bars, colours, means_of, ranked, series_of
from graph_transplant.figures.parts import DASHED, hollow, panels, row_chart, share, short_number
from graph_transplant.figures.style import SOFT, px
from graph_transplant.utils.text import number, percent

if TYPE_CHECKING:
    from graph_transplant.results.groups import GroupResults
    from graph_transplant.results.results import Results


# -------------------------------------------------------------------- reliability

LEAST_IN_BIN: Final = 10
"""Bins with fewer predictions are drawn together with their neighbours."""


def reliability_data(results: GroupResults) -> pd.DataFrame:
    """Reliability bins pooled over trials, before and after temperature scaling."""
    found = []
    for stage, ending, trials in (
        ("as trained", "", results.frame),
        ("temperature", "_calibrated", results.wide("calibrated")),
    ):
        bins = results.long(f"reliability{ending}")
        if bins.empty:
            continue
        bins = bins[bins["count"] > 0]
        sums = ["confidence", "accuracy"]
        bins[sums] = bins[sums].mul(bins["count"], axis=0)
        table = bins.groupby(["method", "bin"], as_index=False)[["count", *sums]].sum()
        table[sums] = table[sums].div(table["count"], axis=0)
        table.insert(1, "stage", stage)
        errors = trials.groupby("method")["ece"].mean()
        found.append(table.assign(ece=table["method"].map(errors)))
    if not found:
        return pd.DataFrame(columns=["method", "stage", "bin", "count", "confidence", "accuracy"])
    return ranked(results, pd.concat(found))


def reliability(results: GroupResults, table: pd.DataFrame, ax: Axes | None) -> Drawing:
    """Accuracy by confidence; hollow after temperature scaling."""
    shades = colours(results)
    names = list(dict.fromkeys(table["method"]))
    found = panels(
        names, ax, columns=(4, 2), high=134, head=41, left=50,
        axes=("Confidence", "Accuracy"), colours=[shades[n] for n in names],
    )  # fmt: skip
    for panel, name in zip(found, names, strict=True):
        own = table[table["method"] == name]
        draw_reliability(panel, own, shades[name])
        said = [number(one["ece"].iloc[0]) for _, one in own.groupby("stage", sort=False)]
        panel.text(0, 1.05, f"ECE {' → '.join(said)}", transform=panel.transAxes,
                   size=px(11), color=SOFT)  # fmt: skip
    return found


def joined(bins: pd.DataFrame) -> pd.DataFrame:
    """Join neighbouring bins until each has enough predictions to be more than chance.

    Example:
        >>> bins = pd.DataFrame({"count": [1, 3, 12, 2], "accuracy": [0.0, 1.0, 0.5, 0.0]})
        >>> joined(bins.assign(confidence=[0.2, 0.3, 0.5, 0.6]))["count"].tolist()
        [18]
    """
    groups, count = [0], 0
    for own in bins["count"]:
        groups.append(groups[-1] + (count + own >= LEAST_IN_BIN))
        count = 0 if count + own >= LEAST_IN_BIN else count + own
    places = np.array(groups[:-1])
    if count:  # too few are left: they join the bin before
        places[places == groups[-1]] = max(groups[-1] - 1, 0)
    means = ["confidence", "accuracy"]
    sums = bins[means].mul(bins["count"], axis=0).assign(count=bins["count"])
    found = sums.groupby(places).sum()
    return found.assign(**{name: found[name] / found["count"] for name in means})


def draw_reliability(panel: Axes, bins: pd.DataFrame, colour: str) -> None:
    """Draw the first stage filled, with counts as columns below, and the second hollow."""
    panel.plot([0, 1], [0, 1], zorder=1, **DASHED)
    stages = [raw for _, raw in bins.groupby("stage", sort=False)]
    drawn = [joined(raw) for raw in stages]
    most, largest = bins["count"].max(), max(own["count"].max() for own in drawn)
    for place, (raw, own) in enumerate(zip(stages, drawn, strict=True)):
        first = place == 0
        # Few sizes keep the SVG small.
        own = own.assign(size=3 + 7 * np.sqrt(np.ceil(4 * own["count"] / largest) / 4))
        panel.plot(own["confidence"], own["accuracy"], color=colour, linewidth=px(1.2), alpha=0.7,
                   linestyle="solid" if first else (0, (4, 3)), zorder=3)  # fmt: skip
        for size, some in own.groupby("size"):
            panel.plot(some["confidence"], some["accuracy"], alpha=0.6 if first else 1,
                       clip_on=False, **hollow(first, colour, float(size)))  # fmt: skip
        if first:
            panel.bar((raw["bin"] + 0.5) / 15, 0.17 * raw["count"] / most, width=0.058,
                      bottom=-0.22, color=colour, alpha=0.68, linewidth=0)  # fmt: skip
    panel.set(xlim=(-0.03, 1.03), ylim=(-0.22, 1.03))
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_ticks([0, 0.5, 1], [share(value) for value in (0, 0.5, 1)])
    for place, label in enumerate(panel.get_xticklabels()[::2]):
        label.set_horizontalalignment("right" if place else "left")


def robustness_data(results: GroupResults) -> pd.DataFrame:
    """Accuracy by attack budget; 0 is no attack."""
    table = results.long("attacked")
    series = {"accuracy": "attacked", "random": "random", "as_stated": "as stated"}
    clean = results.frame[["method"]].assign(budget=0.0)
    for column in series:
        if column in table:
            # Each series starts at the clean accuracy.
            measured = clean["method"].isin(table.dropna(subset=column)["method"])
            clean[column] = results.frame["accuracy"].where(measured)
    return series_of(results, pd.concat([clean, table]), "budget", series)


def saliency_data(results: GroupResults, kind: str) -> pd.DataFrame:
    """Probability of the predicted class as nodes are removed or put back."""
    table = results.long("saliency_curve")
    if kind in table:
        table["share"] = table["share"].round(6)
    series = {kind: "salient first", f"{kind}_random": "random"}
    return series_of(results, table, "share", series)


def condition_data(results: Results, column: str, other: str, usual: float) -> pd.DataFrame:
    """Score by ``column`` at the value of ``other`` nearest to the usual one with two points."""
    frame = results.frame
    counts = frame.groupby(other)[column].nunique()
    nearest = min(counts.index, key=lambda value: (counts[value] < 2, abs(value - usual)))
    return series_of(results, frame[frame[other] == nearest], column, {"score": ""})


def motif_data(results: GroupResults) -> pd.DataFrame:
    """AUROC of saliency against the known motif; 0.5 is chance."""
    table = results.wide("saliency")
    if "auroc" not in table:
        return pd.DataFrame(columns=["method", "mean", "std", "trials", "chance"])
    return ranked(results, means_of(table, ["method"], "auroc").assign(chance=0.5))


def motif(results: GroupResults, table: pd.DataFrame, ax: Axes | None) -> Drawing:
    """How well saliency finds the known motif."""
    return bars(
        results,
        table,
        ax,
        mark="chance",
        axis="AUROC of node saliency against the motif",
        form=share,
        texts=[percent(value, unit=True) for value in table["mean"]],
        heading="mean",
    )


def samples_data(results: GroupResults) -> pd.DataFrame:
    """Mean measurements of virtual graphs."""
    table = results.wide("samples")
    numbers = [name for name in table.select_dtypes("number") if name not in results.frame]
    if "degree_distance" not in numbers:
        return pd.DataFrame(columns=["method", "degree_distance"])
    table = table.dropna(subset="degree_distance")
    spread = table.groupby("method")["degree_distance"].std()
    means = table.groupby("method", as_index=False)[numbers].mean()
    return ranked(results, means.assign(std=means["method"].map(spread)))


def samples(results: GroupResults, table: pd.DataFrame, ax: Axes | None) -> Drawing:
    """How virtual graphs differ from the graphs they are made of."""
    shares = {"disconnected": "split", "label_gap": "label gap"}
    shown = [name for name in shares if name in table]
    return bars(
        results,
        table.assign(mean=table["degree_distance"]),
        ax,
        mark="degree_distance_control",
        axis="Degree distance, edges per node",
        form=short_number,
        texts=[
            ", ".join(
                [number(row["degree_distance"]), *(percent(row[name], unit=True) for name in shown)]
            )
            for _, row in table.iterrows()
        ],
        heading=", ".join(["mean", *(shares[name] for name in shown)]),
    )


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


def cost(results: GroupResults, table: pd.DataFrame, ax: Axes | None) -> Drawing:
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
        colours=colours(results),
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


GRID_POINTS = 60  # epochs at which mean learning curves are evaluated
FLOOR = -1.0  # learning curves of R² are clipped here: untrained models may be far below


# -------------------------------------------------------------------- lines


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


def learning_data(results: GroupResults) -> pd.DataFrame:
    """Validation score by epoch."""
    table = curve_data(results, "validation_score")
    # Older records have only the accuracy.
    if table.empty and results.metric == "accuracy":
        table = curve_data(results, "validation_accuracy")
    if results.metric == "r2":
        table["mean"] = table["mean"].clip(lower=FLOOR)
    return table
