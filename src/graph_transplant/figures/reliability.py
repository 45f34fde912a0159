"""Reliability diagrams: accuracy against confidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from graph_transplant.figures.chart import (
    DASHED,
    Chart,
    Colours,
    Drawing,
    hollow,
    panels,
    ranked,
    share,
)
from graph_transplant.figures.style import SOFT, px
from graph_transplant.utils.text import number

if TYPE_CHECKING:
    from graph_transplant.results.groups import GroupResults

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
