"""Charts of calibration, attacks, saliency, virtual graphs, conditions, cost and ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from graph_transplant.errors import GraphTransplantError
from graph_transplant.figures.charts import Drawing, colours, ranked, score_form, word
from graph_transplant.figures.parts import (
    DASHED,
    hollow,
    panels,
    row_chart,
    share,
    short_number,
)
from graph_transplant.figures.style import SOFT, palette, px
from graph_transplant.format import number, percent
from graph_transplant.methods import METHODS, parse_method
from graph_transplant.metrics import METRICS

if TYPE_CHECKING:
    from graph_transplant.experiments.across import Across
    from graph_transplant.experiments.results import Results

# -------------------------------------------------------------------- reliability

LEAST_IN_BIN: Final = 10
"""Bins with fewer predictions are drawn together with their neighbours."""


def reliability_data(results: Results) -> pd.DataFrame:
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


def reliability(results: Results, table: pd.DataFrame, ax: Axes | None) -> Drawing:
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


# -------------------------------------------------------------------- lines


def _means(table: pd.DataFrame, keys: Sequence[str], value: str) -> pd.DataFrame:
    grouped = table.dropna(subset=value).groupby([*keys], sort=True)[value]
    return grouped.agg(mean="mean", std="std", trials="count").reset_index()


def _series(
    results: Results, table: pd.DataFrame, along: str, series: Mapping[str, str]
) -> pd.DataFrame:
    """Means of several columns as series along another column."""
    found = [
        _means(table, ["method", along], column).assign(series=title)
        for column, title in series.items()
        if column in table and table[column].notna().any()
    ]
    columns = ["method", "series", along, "mean", "std", "trials"]
    if not found:
        return pd.DataFrame(columns=columns)
    return ranked(results, pd.concat(found)[columns])


def robustness_data(results: Results) -> pd.DataFrame:
    """Accuracy by attack budget; 0 is no attack."""
    table = results.long("attacked")
    series = {"accuracy": "attacked", "random": "random", "as_stated": "as stated"}
    clean = results.frame[["method"]].assign(budget=0.0)
    for column in series:
        if column in table:
            # Each series starts at the clean accuracy.
            measured = clean["method"].isin(table.dropna(subset=column)["method"])
            clean[column] = results.frame["accuracy"].where(measured)
    return _series(results, pd.concat([clean, table]), "budget", series)


def saliency_data(results: Results, kind: str) -> pd.DataFrame:
    """Probability of the predicted class as nodes are removed or put back."""
    table = results.long("saliency_curve")
    if kind in table:
        table["share"] = table["share"].round(6)
    series = {kind: "salient first", f"{kind}_random": "random"}
    return _series(results, table, "share", series)


def condition_data(results: Results, column: str, other: str, usual: float) -> pd.DataFrame:
    """Score by ``column`` at the value of ``other`` nearest to the usual one with two points."""
    frame = results.frame
    counts = frame.groupby(other)[column].nunique()
    nearest = min(counts.index, key=lambda value: (counts[value] < 2, abs(value - usual)))
    return _series(results, frame[frame[other] == nearest], column, {"score": ""})


# -------------------------------------------------------------------- bars


def bars(
    results: Results, table: pd.DataFrame, ax: Axes | None, *, mark: str, **given: Any
) -> Drawing:
    """One bar per method with its standard deviation, and ``mark`` as a hollow dot."""
    shown = table.assign(
        low=table["mean"] - table["std"], high=table["mean"] + table["std"], mark=table[mark]
    )
    return row_chart(shown, ax, colours=colours(results), kind="bar", **given)


def motif_data(results: Results) -> pd.DataFrame:
    """AUROC of saliency against the known motif; 0.5 is chance."""
    table = results.wide("saliency")
    if "auroc" not in table:
        return pd.DataFrame(columns=["method", "mean", "std", "trials", "chance"])
    return ranked(results, _means(table, ["method"], "auroc").assign(chance=0.5))


def motif(results: Results, table: pd.DataFrame, ax: Axes | None) -> Drawing:
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


def samples_data(results: Results) -> pd.DataFrame:
    """Mean measurements of virtual graphs."""
    table = results.wide("samples")
    numbers = [name for name in table.select_dtypes("number") if name not in results.frame]
    if "degree_distance" not in numbers:
        return pd.DataFrame(columns=["method", "degree_distance"])
    table = table.dropna(subset="degree_distance")
    spread = table.groupby("method")["degree_distance"].std()
    means = table.groupby("method", as_index=False)[numbers].mean()
    return ranked(results, means.assign(std=means["method"].map(spread)))


def samples(results: Results, table: pd.DataFrame, ax: Axes | None) -> Drawing:
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


def cost_data(results: Results) -> pd.DataFrame:
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
        table = table.dropna(subset="epoch_seconds")  # classical methods have no epochs
    seconds = ["epoch_seconds", "best_seconds"]
    table = table.astype(dict.fromkeys(seconds, float))
    medians = table.groupby("method", as_index=False)[seconds].median()
    for name, part in (("epoch_low", 0.25), ("epoch_high", 0.75)):
        quartile = table.groupby("method")["epoch_seconds"].quantile(part)
        medians[name] = medians["method"].map(quartile)
    plain = medians[medians["method"] == results.reference]
    for name in seconds:
        ratio = medians[name] / plain[name].iloc[0] if len(plain) else np.nan
        medians[name.replace("seconds", "ratio")] = ratio
    return ranked(results, medians)


def _timed(results: Results) -> bool:
    trained = results.frame.dropna(subset="epochs")
    return bool(len(trained) and trained["processor_seconds"].notna().all())


def cost(results: Results, table: pd.DataFrame, ax: Axes | None) -> Drawing:
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


# -------------------------------------------------------------------- parameters, data sets


def sensitivity_data(results: Results) -> pd.DataFrame:
    """Score by the value of each parameter that was varied on its own."""
    frame = results.frame
    frame = frame[(frame["label_noise"] == 0) & (frame["train_fraction"] == 1)]
    means = _means(frame, ["method"], "score").set_index("method")
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
    """Average rank of each method over data sets."""
    return pd.DataFrame({"method": found.methods, "rank": found.ranks})


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
