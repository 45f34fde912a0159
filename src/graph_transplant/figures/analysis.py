"""What is measured beyond scores: attacks, quality of saliency and of virtual graphs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.axes import Axes

from graph_transplant.figures.chart import (
    BAND,
    GREY,
    Chart,
    Colours,
    Drawing,
    bars,
    lines,
    means_of,
    ranked,
    series_of,
    share,
    short_number,
)
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
