"""Charts of what is measured beyond scores: calibration, attacks, saliency, virtual graphs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from graph_transplant.figures.chart import (
    BAND,
    DASHED,
    GREY,
    Chart,
    Colours,
    Drawing,
    bars,
    hollow,
    lines,
    means_of,
    panels,
    ranked,
    series_of,
    share,
    short_number,
)
from graph_transplant.figures.style import SOFT, px
from graph_transplant.utils.text import number, percent

if TYPE_CHECKING:
    from graph_transplant.results.groups import GroupResults


# -------------------------------------------------------------------- attack


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


ROBUSTNESS = Chart(
    "Under attack",
    "Test accuracy after GradArgmax, which here spends its whole budget on changes (stronger "
    "than the paper’s wording), against its budget, the share of the mean number of edges "
    "that it may change; for networks that read edge features it only removes edges. Dashed: "
    f"after as many random changes. Dotted: the attack to the letter of the paper. {BAND} {GREY}",
    partial(lines, x="budget", title="Budget of the attack", value="Test accuracy"),
    robustness_data,
    "Robustness",
)


# -------------------------------------------------------------------- saliency


def saliency_data(results: GroupResults, kind: str) -> pd.DataFrame:
    """Probability of the predicted class as nodes are removed or put back."""
    table = results.long("saliency_curve")
    if kind in table:
        table["share"] = table["share"].round(6)
    series = {kind: "salient first", f"{kind}_random": "random"}
    return series_of(results, table, "share", series)


def _saliency(title: str, kind: str, done: str, moves: str) -> Chart:
    return Chart(
        title,
        f"Probability of the predicted class as nodes are {done}, the most salient first, ordered "
        f"by the norm of the gradient of the predicted class: the faster it {moves}, the better "
        f"saliency finds what the model looks at. Dashed: in random order. {BAND} {GREY}",
        partial(lines, x="share", title=f"Share of nodes {done}",
                value="Probability of the predicted class"),
        partial(saliency_data, kind=kind),
        "Saliency",
    )  # fmt: skip


DELETION = _saliency("Deletion curve", "deletion", "removed", "falls")
INSERTION = _saliency("Insertion curve", "insertion", "put back", "rises")


def motif_data(results: GroupResults) -> pd.DataFrame:
    """AUROC of saliency against the known motif; 0.5 is chance."""
    table = results.wide("saliency")
    if "auroc" not in table:
        return pd.DataFrame(columns=["method", "mean", "std", "trials", "chance"])
    return ranked(results, means_of(table, ["method"], "auroc").assign(chance=0.5))


def motif(results: GroupResults, table: pd.DataFrame, ax: Axes | None, colours: Colours) -> Drawing:
    """How well saliency finds the known motif."""
    return bars(
        table,
        ax,
        colours,
        mark="chance",
        axis="AUROC of node saliency against the motif",
        form=share,
        texts=[percent(value, unit=True) for value in table["mean"]],
        heading="mean",
    )


MOTIF = Chart(
    "Saliency against the true motif",
    "How well node saliency ranks the nodes of the true motif above the others, mean over "
    "trials with one standard deviation; saliency as training reads it: the gradient of the "
    "loss at the true class. Hollow: chance.",
    motif,
    motif_data,
    "Saliency",
)


# -------------------------------------------------------------------- virtual graphs


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


def samples(
    results: GroupResults, table: pd.DataFrame, ax: Axes | None, colours: Colours
) -> Drawing:
    """How virtual graphs differ from the graphs they are made of."""
    shares = {"disconnected": "split", "label_gap": "label gap"}
    shown = [name for name in shares if name in table]
    return bars(
        table.assign(mean=table["degree_distance"]),
        ax,
        colours,
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


SAMPLES = Chart(
    "Degree distance of augmented graphs",
    "Bars: how far node degrees are from those of the graphs they are made of (Wasserstein "
    "distance), mean over trials with one standard deviation; shorter is closer. Hollow: the "
    "same of two random halves of the real graphs. Split: share of graphs in several parts. "
    "Label gap: mean gap between the weight of a part’s label and its share of the nodes.",
    samples,
    samples_data,
    "Virtual graphs",
)

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


def reliability(
    results: GroupResults, table: pd.DataFrame, ax: Axes | None, colours: Colours
) -> Drawing:
    """Accuracy by confidence; hollow after temperature scaling."""
    names = list(dict.fromkeys(table["method"]))
    found = panels(
        names, ax, high=134, head=41, left=50,
        axes=("Confidence", "Accuracy"), colours=[colours[n] for n in names],
    )  # fmt: skip
    for panel, name in zip(found, names, strict=True):
        own = table[table["method"] == name]
        draw_reliability(panel, own, colours[name])
        said = [number(one["ece"].iloc[0]) for _, one in own.groupby("stage", sort=False)]
        panel.text(0, 1.05, f"ECE {' → '.join(said)}", transform=panel.transAxes, color=SOFT)
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


RELIABILITY = Chart(
    "Reliability diagram",
    "Share of test graphs (for multilabel tasks, of labels) that are predicted correctly "
    "against the confidence, pooled over trials in 15 bins, of which those with fewer than "
    f"{LEAST_IN_BIN} predictions are joined with their neighbours; below the dashed "
    "diagonal the model is overconfident. Larger dots are more predictions, the columns below "
    "count them. Hollow dots: after temperature scaling on the validation graphs. ECE is the "
    "calibration error before → after, mean over trials.",
    reliability,
    reliability_data,
    "Calibration",
)
