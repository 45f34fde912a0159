"""Charts that tell why a method works: calibration, attacks, saliency, samples, conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from graph_transplant.errors import GraphTransplantError
from graph_transplant.figures.charts import Drawing, colours, ordered, ranked, word
from graph_transplant.figures.parts import (
    bar_columns,
    exact_share,
    is_phone,
    line_chart,
    panels,
    row_chart,
    same_limits,
    share,
    short_number,
    ticks,
)
from graph_transplant.figures.style import (
    FAINT,
    INK,
    PAPER,
    SOFT,
    canvas,
    palette,
    px,
    room,
    short,
    text_width,
)
from graph_transplant.format import number

if TYPE_CHECKING:
    from graph_transplant.experiments.across import Across
    from graph_transplant.experiments.results import Results

# -------------------------------------------------------------------- reliability


def reliability_data(results: Results) -> pd.DataFrame:
    """Reliability bins pooled over trials, before and after temperature scaling."""
    errors = {
        "as trained": _trial_means(results.frame, "ece"),
        "temperature": _trial_means(results.wide("calibrated"), "ece"),
    }
    found = []
    for stage, name in (("as trained", ""), ("temperature", "_calibrated")):
        bins = results.long(f"reliability{name}")
        if bins.empty:
            continue
        bins = bins[bins["count"] > 0]
        for column in ("confidence", "accuracy"):
            bins[column] *= bins["count"]
        table = bins.groupby(["method", "bin"], as_index=False)[
            ["count", "confidence", "accuracy"]
        ].sum()
        for column in ("confidence", "accuracy"):
            table[column] /= table["count"]
        table.insert(1, "stage", stage)
        found.append(table.assign(ece=table["method"].map(errors[stage])))
    if not found:
        return pd.DataFrame(columns=["method", "stage", "bin", "count", "confidence", "accuracy"])
    return ordered(pd.concat(found), ranked(results, reference_first=True))


def _trial_means(table: pd.DataFrame, column: str) -> dict[Any, float]:
    if column not in table:
        return {}
    means: dict[Any, float] = table.groupby("method")[column].mean().dropna().to_dict()
    return means


def reliability(results: Results, ax: Axes | None = None) -> Drawing:
    """Accuracy by stated confidence; hollow after temperature scaling."""
    table = reliability_data(results)
    if table.empty:
        return None
    shades = colours(results)
    names = list(dict.fromkeys(table["method"]))
    phone = is_phone(ax)
    across = min(2 if phone else 4, len(names))
    found = panels(
        names, ax, columns=(4, 2), high=134, head=42, pad=23, left=50,
        axes=("Stated confidence", "Share that is right"), colours=[shades[n] for n in names],
    )  # fmt: skip
    for panel, name in zip(found, names, strict=True):
        own = table[table["method"] == name]
        draw_reliability(panel, own, shades[name])
        said = [number(one["ece"].iloc[0]) for _, one in own.groupby("stage", sort=False)]
        panel.text(0, 1.05, f"ECE {' → '.join(said)}", transform=panel.transAxes,
                   size=px(11), color=SOFT)  # fmt: skip
    same_limits(found, across)
    return found


def draw_reliability(panel: Axes, bins: pd.DataFrame, colour: str) -> None:
    """Draw bins by stage: the first filled, the second hollow, the numbers as columns below."""
    panel.plot([0, 1], [0, 1], color=FAINT, linewidth=px(1), linestyle=(0, (3, 3)), zorder=1)
    # Few sizes keep the SVG small.
    most = bins["count"].max()
    bins = bins.assign(size=px(3) + px(7) * np.sqrt(np.ceil(4 * bins["count"] / most) / 4))
    for number_, (_, own) in enumerate(bins.groupby("stage", sort=False)):
        first = number_ == 0
        panel.plot(own["confidence"], own["accuracy"], color=colour, linewidth=px(1.2), alpha=0.7,
                   linestyle="solid" if first else (0, (4, 3)), zorder=3)  # fmt: skip
        for size, some in own.groupby("size"):
            panel.plot(some["confidence"], some["accuracy"], "o", markersize=size, zorder=4,
                       markeredgewidth=px(1.4), color=colour, alpha=0.6 if first else 1,
                       markerfacecolor=colour if first else PAPER, clip_on=False)  # fmt: skip
        if first:
            panel.bar((own["bin"] + 0.5) / 15, 0.17 * own["count"] / most, width=0.058,
                      bottom=-0.22, color=colour, alpha=0.68, linewidth=0)  # fmt: skip
    panel.set_xlim(-0.03, 1.03)
    panel.set_ylim(-0.22, 1.03)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_ticks([0, 0.5, 1], [share(value) for value in (0, 0.5, 1)])
    labels = panel.get_xticklabels()
    labels[0].set_horizontalalignment("left")
    labels[-1].set_horizontalalignment("right")


# -------------------------------------------------------------------- lines over conditions


def _lines(table: pd.DataFrame, keys: Sequence[str], value: str) -> pd.DataFrame:
    """Mean, standard deviation and number of trials."""
    grouped = table.dropna(subset=value).groupby([*keys], sort=True)[value]
    return grouped.agg(mean="mean", std="std", trials="count").reset_index()


def robustness_data(results: Results) -> pd.DataFrame:
    """Accuracy by budget of the attack; 0 is without."""
    table = results.long("attacked")
    columns = ["method", "series", "budget", "mean", "std", "trials"]
    found = []
    for column, series in (
        ("accuracy", "attacked"),
        ("random", "random"),
        ("as_stated", "as stated"),
    ):
        if column not in table or table[column].isna().all():
            continue
        own = table.dropna(subset=column)
        clean = results.frame[results.frame["method"].isin(own["method"])].assign(budget=0.0)
        both = pd.concat([
            clean[["method", "budget", "accuracy"]].rename(columns={"accuracy": "value"}),
            own[["method", "budget", column]].rename(columns={column: "value"}),
        ])  # fmt: skip
        found.append(_lines(both, ["method", "budget"], "value").assign(series=series))
    if not found:
        return pd.DataFrame(columns=columns)
    return ordered(pd.concat(found)[columns], ranked(results, reference_first=True))


def robustness(results: Results, ax: Axes | None = None) -> Drawing:
    """Accuracy by budget of the attack."""
    return _condition_lines(
        results, ax, robustness_data(results), "budget", "Budget of the attack", "Test accuracy"
    )


def _condition_data(results: Results, column: str, other: str, usual: float) -> pd.DataFrame:
    """Score by one condition, where the other is as usual, else at its most frequent value."""
    frame = results.frame
    rest = frame[frame[other] == usual]
    if rest[column].nunique() < 2:
        counts = frame.groupby(other)[column].nunique()
        rest = frame[frame[other] == counts.idxmax()]
    table = _lines(rest.assign(series=""), ["method", "series", column], "score")
    return ordered(table, ranked(results, reference_first=True))


def label_noise_data(results: Results) -> pd.DataFrame:
    """Score by share of wrong training labels."""
    return _condition_data(results, "label_noise", "train_fraction", 1.0)


def label_noise(results: Results, ax: Axes | None = None) -> Drawing:
    """Score by share of wrong training labels."""
    return _condition_lines(
        results, ax, label_noise_data(results), "label_noise", "Wrong training labels"
    )


def train_size_data(results: Results) -> pd.DataFrame:
    """Score by share of the training graphs."""
    return _condition_data(results, "train_fraction", "label_noise", 0.0)


def train_size(results: Results, ax: Axes | None = None) -> Drawing:
    """Score by share of the training graphs."""
    return _condition_lines(
        results, ax, train_size_data(results), "train_fraction", "Training graphs used"
    )


def _condition_lines(
    results: Results, ax: Axes | None, table: pd.DataFrame, x: str, title: str, value: str = ""
) -> Drawing:
    if table[x].nunique() < 2:
        return None
    return line_chart(
        table,
        ax,
        x=x,
        colours=colours(results),
        reference=results.reference,
        titles=(title, value or f"Test {word(results)}"),
        forms=(share, share),
        dots=table[x].nunique() < 8,
    )


# -------------------------------------------------------------------- saliency


def saliency_data(results: Results, kind: str) -> pd.DataFrame:
    """Probability of the predicted class as nodes are removed or put back."""
    table = results.long("saliency_curve")
    columns = ["method", "series", "share", "mean", "std", "trials"]
    if kind not in table:
        return pd.DataFrame(columns=columns)
    table["share"] = table["share"].round(6)
    found = [
        _lines(table, ["method", "share"], column).assign(series=series)
        for column, series in ((kind, "salient first"), (f"{kind}_random", "random"))
        if column in table
    ]
    return ordered(pd.concat(found)[columns], ranked(results, reference_first=True))


def saliency(results: Results, ax: Axes | None = None, *, kind: str = "deletion") -> Drawing:
    """Probability of the predicted class by share of nodes removed, or put back."""
    done = "taken away" if kind == "deletion" else "put back"
    table = saliency_data(results, kind)
    return _condition_lines(
        results, ax, table, "share", f"Share of nodes {done}", "Probability of the predicted class"
    )


def motif_data(results: Results, kind: str) -> pd.DataFrame:
    """AUROC or precision of saliency against the known motif, with what chance gives."""
    table = results.wide("saliency")
    if kind not in table:
        return pd.DataFrame(columns=["method", "mean", "std", "trials", "chance"])
    found = _lines(table, ["method"], kind)
    # An AUROC of one half is chance; the precision of chance depends on the graphs.
    if kind == "auroc":
        found["chance"] = 0.5
    else:
        found["chance"] = found["method"].map(_trial_means(table, "chance"))
    return ordered(found, ranked(results, reference_first=True))


def motif(results: Results, ax: Axes | None = None, *, kind: str = "auroc") -> Drawing:
    """How well saliency finds the known motif."""
    table = motif_data(results, kind)
    if table.empty:
        return None
    return row_chart(
        _with_std(table, "chance"),
        ax,
        colours=colours(results),
        axis={"auroc": "AUROC of node saliency against the motif"}.get(
            kind, "Precision of the salient nodes"
        ),
        form=share,
        kind="bar",
        texts=[exact_share(value) for value in table["mean"]],
        heading="mean",
    )


def _with_std(table: pd.DataFrame, mark: str) -> pd.DataFrame:
    return table.assign(
        low=table["mean"] - table["std"], high=table["mean"] + table["std"], mark=table[mark]
    )


# -------------------------------------------------------------------- virtual graphs and cost

MEASURES = {
    "degree_distance": ("Degree distance", "degree_distance_control", number),
    "disconnected": ("Not connected", "disconnected_original", exact_share),
    "isolated": ("Isolated nodes", "isolated_original", exact_share),
    "label_gap": ("Label gap", "", exact_share),
}
"""Measurements of virtual graphs: title, what they are seen against, how they are written."""


def samples_data(results: Results) -> pd.DataFrame:
    """Means of all measurements of virtual graphs."""
    table = results.wide("samples")
    numbers = [name for name in table.select_dtypes("number") if name not in results.frame]
    if "degree_distance" not in numbers:
        return pd.DataFrame(columns=["method", "degree_distance"])
    means = table.groupby("method", as_index=False)[numbers].mean()
    means = means.dropna(subset="degree_distance")
    return ordered(means, ranked(results, reference_first=True))


def samples(results: Results, ax: Axes | None = None) -> Drawing:
    """How virtual graphs differ from those they are made of."""
    table = samples_data(results)
    if table.empty:
        return None
    shown = {
        title: (table[name], table.get(mark), form)
        for name, (title, mark, form) in MEASURES.items()
        if name in table and table[name].notna().any()
    }
    return bar_columns(table["method"].tolist(), shown, ax, colours=colours(results))


def cost_data(results: Results) -> pd.DataFrame:
    """Seconds per epoch and to the best checkpoint, and their ratio to the reference."""
    timed = results.frame["processor_seconds"].notna().all()
    seconds = ["epoch_seconds", "best_seconds"]
    if timed:
        # Without a network there are no epochs.
        table = results.wide("cost").reindex(columns=["method", *seconds])
    else:
        # Old records have the duration of the whole trial alone: its share by epoch stands for it.
        table = results.frame.assign(epoch_seconds=lambda t: t["seconds"] / t["epochs"])
        table["best_seconds"] = table["epoch_seconds"] * table["best_epoch"]
    means = table.groupby("method", as_index=False)[seconds].mean().dropna()
    means["epoch_std"] = means["method"].map(table.groupby("method")["epoch_seconds"].std())
    plain = means[means["method"] == results.reference]
    for name in seconds:
        ratio = means[name] / plain[name].iloc[0] if len(plain) else np.nan
        means[name.replace("seconds", "ratio")] = ratio
    return ordered(means, ranked(results, reference_first=True))


def cost(results: Results, ax: Axes | None = None) -> Drawing:
    """Time of training as a ratio to the reference."""
    table = cost_data(results)
    if len(table) < 2 or table["epoch_ratio"].isna().all():
        return None
    plain = table.loc[table["method"] == results.reference, "epoch_seconds"].iloc[0]
    shown = table.assign(mean=table["epoch_ratio"], std=table["epoch_std"] / plain)
    timed = results.frame["processor_seconds"].notna().all()
    return row_chart(
        _with_std(shown, "best_ratio"),
        ax,
        colours=colours(results),
        axis=f"{'Processor time' if timed else 'Time'}, compared with {results.reference}",
        form=lambda value: f"× {short_number(value)}",
        kind="bar",
        texts=[
            ", ".join(f"× {number(value, 1)}" for value in (row.epoch_ratio, row.best_ratio))
            for row in table.itertuples()
        ],
        heading="epoch, best",
        at=1.0,
    )


# -------------------------------------------------------------------- parameters


def sensitivity_data(results: Results) -> pd.DataFrame:
    """Score by the value of each parameter that was varied by itself."""
    columns = ["method", "parameter", "value", "default", "mean", "std", "trials"]
    frame = results.frame
    frame = frame[(frame["label_noise"] == 0) & (frame["train_fraction"] == 1)]
    if not frame["method"].str.contains(":", regex=False).any():
        return pd.DataFrame(columns=columns)
    from graph_transplant.methods import METHODS, parse_method

    means = _lines(frame, ["method"], "score").set_index("method")
    rows: list[dict[str, Any]] = []
    for text in results.methods:
        try:
            name, changed = parse_method(text)
        except GraphTransplantError:
            continue  # records of another version, whose methods have other parameters
        if len(changed) == 1 and text in means.index:
            ((parameter, value),) = changed.items()
            given = {"method": name, "parameter": parameter, "value": value, "default": False}
            rows.append({**given, **means.loc[text]})
    varied = dict.fromkeys((row["method"], row["parameter"]) for row in rows)
    for name, parameter in varied:
        if name in means.index:
            value = METHODS[name].parameters[parameter]
            given = {"method": name, "parameter": parameter, "value": value, "default": True}
            rows.append({**given, **means.loc[name]})
    order = list(varied)
    rows.sort(key=lambda row: (order.index((row["method"], row["parameter"])), _rank(row["value"])))
    table = pd.DataFrame(rows, columns=columns)
    return table[table.groupby(["method", "parameter"])["mean"].transform("count") > 1]


def _rank(value: Any) -> tuple[float, str]:
    return (0.0, str(value)) if isinstance(value, str) else (float(value), "")


def sensitivity(results: Results, ax: Axes | None = None) -> Drawing:
    """Score by the value of each parameter; the default is filled."""
    table = sensitivity_data(results)
    if table.empty:
        return None
    parts = list(table.groupby(["method", "parameter"], sort=False))
    several = table["method"].nunique() > 1
    titles = [f"{name}: {parameter}" if several else parameter for (name, parameter), _ in parts]
    shades = colours(results)
    paints = [shades.get(name, SOFT) for (name, _), _ in parts]
    across = 1 if is_phone(ax) else min(2 if len(parts) in (2, 4) else 3, len(parts))
    lines = max(value.count("-") + 1 if isinstance(value, str) else 1 for value in table["value"])
    found = panels(
        titles, ax, columns=(across, across), high=120, left=48, colours=paints,
        axes=("", f"Test {word(results)}"), gap=(26, 26 + 14 * lines),
    )  # fmt: skip
    for panel, (_, own), paint in zip(found, parts, paints, strict=True):
        own = own.reset_index(drop=True)
        panel.errorbar(own.index, own["mean"], own["std"].fillna(0), color=paint,
                       linewidth=px(1.6), elinewidth=px(1.2), zorder=3)  # fmt: skip
        for place, row in own.iterrows():
            panel.plot(place, row["mean"], "o", color=paint, markersize=px(8), zorder=4,
                       markeredgewidth=px(1.6),
                       markerfacecolor=paint if row["default"] else PAPER)  # fmt: skip
        for mean in own.loc[own["default"], "mean"]:
            panel.axhline(mean, color=FAINT, linewidth=px(1.2), linestyle=(0, (3, 3)), zorder=2)
        each = (room(ax) - 62) / across / len(own) - 8
        panel.set_xticks(own.index, [_value_lines(value, each) for value in own["value"]])
        panel.set_xlim(-0.5, len(own) - 0.5)
        ticks(panel.yaxis, share, 4)
    same_limits(found, across, sides=["y"])
    return found


def _value_lines(value: Any, most: float) -> str:
    """A value of a parameter; a long word has a line for each of its parts."""
    if not isinstance(value, str):
        return short_number(value)
    return "\n".join(short([part], most, 12, 400)[part] for part in value.split("-"))


# -------------------------------------------------------------------- several data sets


def ranks_data(found: Across) -> pd.DataFrame:
    """Average rank of each method over data sets."""
    return pd.DataFrame({"method": found.methods, "rank": found.ranks})


def ranks(found: Across, ax: Axes | None = None) -> Drawing:
    """Critical-difference diagram (Demšar, 2006): bars join methods that do not differ."""
    names = list(found.methods)
    shades = palette(names, "vanilla")
    wide = room(ax)
    phone = is_phone(ax)
    shown = short(names, (0.6 if phone else 0.38) * wide - 50)
    lanes = _lanes(found)
    half = len(names) if phone else -(-len(names) // 2)
    top = 74 + 12 * (max(lanes, default=-1) + 1)
    height = top + 26 * half + 14
    side = max(text_width(text, weight=700) for text in shown.values()) + 50
    side = max(side, 180) if phone else side
    ax = canvas(ax, height, left=side, right=16 if phone else side)
    ax.set_ylim(height, 0)
    last = max(len(names), 2)
    ax.set_xlim(1, last)
    ax.axis("off")
    ax.plot([1, last], [48, 48], color=FAINT, linewidth=px(1.2), clip_on=False)
    each = (wide - side - (16 if phone else side)) / (last - 1)
    step = next(n for n in (1, 2, 5, 10, last) if n * each >= 20 or n == last)
    for mark in range(1, last + 1):
        ax.plot([mark, mark], [44, 48], color=FAINT, linewidth=px(1.2), clip_on=False)
        if mark == 1 or mark % step == 0:
            ax.text(mark, 38, number(mark, 0), ha="center", color=SOFT, size=px(12))
    difference = min(found.critical_difference, last - 1)
    ax.plot([1, 1 + difference], [12, 12], color=INK, linewidth=px(1.6), clip_on=False)
    for end in (1, 1 + difference):
        ax.plot([end, end], [8, 16], color=INK, linewidth=px(1.6), clip_on=False)
    said = f"critical difference {number(found.critical_difference, 2)}"
    ax.annotate(said, (1 if phone else 1 + difference, 12), xytext=(px(-8 if phone else 8), 0),
                textcoords="offset points", ha="right" if phone else "left", color=SOFT,
                va="center_baseline", size=px(12), annotation_clip=False)  # fmt: skip
    for lane, clique in zip(lanes, found.cliques, strict=True):
        ends = [found.ranks[names.index(name)] for name in (clique[0], clique[-1])]
        y = 62 + 12 * lane
        ax.plot(ends, [y, y], color=INK, linewidth=px(5), clip_on=False, zorder=4)
    for place, (name, rank) in enumerate(zip(names, found.ranks, strict=True)):
        left = place < half
        y = top + 26 * (place if left else len(names) - 1 - place)
        edge = 1 if left else last
        ax.plot([rank, rank, edge], [48, y, y], color=shades[name], linewidth=px(1.4),
                clip_on=False)  # fmt: skip
        text = f"{shown[name]} {number(rank, 2)}" if left else f"{number(rank, 2)} {shown[name]}"
        ax.annotate(text, (edge, y), xytext=(px(-8 if left else 8), 0),
                    textcoords="offset points", ha="right" if left else "left", weight=700,
                    va="center_baseline", color=shades[name], annotation_clip=False)  # fmt: skip
    return ax


def _lanes(found: Across) -> list[int]:
    """The line each bar is drawn on, so that bars that overlap lie apart."""
    place = {method: number for number, method in enumerate(found.methods)}
    ends: list[int] = []
    lanes = []
    for clique in found.cliques:
        first, last = place[clique[0]], place[clique[-1]]
        lane = next((lane for lane, end in enumerate(ends) if end < first), len(ends))
        ends[lane : lane + 1] = [last]
        lanes.append(lane)
    return lanes
