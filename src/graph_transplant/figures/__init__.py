"""Charts of comparisons, on matplotlib.

``results.plot.forest()`` draws one chart; pages show every chart that the results have data for. To
add a chart to the pages and to ``results.plot``, add a :class:`Chart` to :data:`CHARTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.axes import Axes

from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.figures import base, scores, studies
from graph_transplant.figures.base import Chart, Drawing
from graph_transplant.figures.style import NARROW, WIDE, standalone, style, svg
from graph_transplant.results.groups import Group, Trials
from graph_transplant.results.results import Results
from graph_transplant.utils.files import write_atomically
from graph_transplant.utils.text import plain

if TYPE_CHECKING:
    from graph_transplant.results.average_ranks import Across


__all__ = [
    "CHARTS",
    "Chart",
    "Plots",
    "RenderedChart",
    "networks",
    "render_chart",
    "svg_elements",
    "write",
]


_BAND = "Mean over trials, the band is one standard deviation."
_GREY = "Where each method has a panel, grey is {reference}."


def _saliency(title: str, kind: str, done: str, moves: str) -> Chart:
    return Chart(
        title,
        f"Probability of the predicted class as nodes are {done}, the most salient first, ordered "
        f"by the norm of the gradient of the predicted class: the faster it {moves}, the better "
        f"saliency finds what the model looks at. Dashed: in random order. {_BAND} {_GREY}",
        partial(base.lines, x="share", title=f"Share of nodes {done}",
                value="Probability of the predicted class"),
        partial(studies.saliency_data, kind=kind),
        "Saliency",
    )  # fmt: skip


def _condition(title: str, caption: str, axis: str, column: str, other: str, usual: float) -> Chart:
    return Chart(
        title,
        f"Test {{metric}} against the share of {caption}. {_BAND} Where noise and number of graphs "
        "both vary, the other one is the easiest that was run.",
        partial(base.lines, x=column, title=axis, value="Test {}"),
        partial(studies.condition_data, column=column, other=other, usual=usual),
        "Conditions",
        "network",
    )


CHARTS: dict[str, Chart] = {
    "forest": Chart(
        "Difference to {reference}",
        "Large dots are mean differences to {reference}, bars their 95 % intervals, small dots "
        "single {fold}s. Filled: significant; hollow: a difference is not shown. p is corrected "
        "for the number of methods, bars are not. Bars within the grey band are practically equal "
        "to {reference}.",
        scores.forest,
        scores.forest_data,
    ),
    "scores": Chart(
        "Every trial",
        "One dot per {fold}; the thick stroke is the mean. Thin lines connect the same {fold}: "
        "look at whether they slope the same way. The dashed line is the mean of {reference}.",
        scores.scores,
        scores.scores_data,
    ),
    "learning": Chart(
        "Learning",
        "Validation {metric} by epoch: the mean over the trials still running at that epoch, as "
        f"long as these are at least half of all. {_GREY}",
        partial(base.lines, x="epoch", title="Epoch", value="Validation {}"),
        studies.learning_data,
    ),
    "reliability": Chart(
        "Reliability diagram",
        "Share of test graphs (for multilabel tasks, of labels) that are predicted correctly "
        "against the confidence, pooled over trials in 15 bins, of which those with fewer than "
        f"{studies.LEAST_IN_BIN} predictions are joined with their neighbours; below the dashed "
        "diagonal the model is overconfident. Larger dots are more predictions, the columns below "
        "count them. Hollow dots: after temperature scaling on the validation graphs. ECE is the "
        "calibration error before → after, mean over trials.",
        studies.reliability,
        studies.reliability_data,
        "Calibration",
    ),
    "robustness": Chart(
        "Under attack",
        "Test accuracy after GradArgmax, which here spends its whole budget on changes (stronger "
        "than the paper’s wording), against its budget, the share of the mean number of edges "
        "that it may change; for networks that read edge features it only removes edges. Dashed: "
        f"after as many random changes. Dotted: the attack to the letter of the paper. {_BAND} "
        f"{_GREY}",
        partial(base.lines, x="budget", title="Budget of the attack", value="Test accuracy"),
        studies.robustness_data,
        "Robustness",
    ),
    "deletion": _saliency("Deletion curve", "deletion", "removed", "falls"),
    "insertion": _saliency("Insertion curve", "insertion", "put back", "rises"),
    "motif": Chart(
        "Saliency against the true motif",
        "How well node saliency ranks the nodes of the true motif above the others, mean over "
        "trials with one standard deviation; saliency as training reads it: the gradient of the "
        "loss at the true class. Hollow: chance.",
        studies.motif,
        studies.motif_data,
        "Saliency",
    ),
    "samples": Chart(
        "Degree distance of augmented graphs",
        "Bars: how far node degrees are from those of the graphs they are made of (Wasserstein "
        "distance), mean over trials with one standard deviation; shorter is closer. Hollow: the "
        "same of two random halves of the real graphs. Split: share of graphs in several parts. "
        "Label gap: mean gap between the weight of a part’s label and its share of the nodes.",
        studies.samples,
        studies.samples_data,
        "Virtual graphs",
    ),
    "cost": Chart(
        "Training time",
        "Median time of training as ratio to {reference}: bars per epoch, with the quartiles of "
        "all trials, hollow dots until the best checkpoint.",
        studies.cost,
        studies.cost_data,
        "Cost",
    ),
    "edge_predictor": Chart(
        "The edge predictor",
        "How often the edge predictor tells a true edge from a pair without one, on pairs it was "
        "not trained on; 50 % is guessing.",
        partial(base.lines, x="epoch", title="Epoch", value="Edge predictor accuracy"),
        partial(studies.curve_data, column="edge_predictor_accuracy"),
        "Edge predictor",
    ),
    "label_noise": _condition(
        "Label noise",
        "training labels that were made wrong; validation and test labels are right",
        "Wrong training labels",
        "label_noise",
        "train_fraction",
        1.0,
    ),
    "train_size": _condition(
        "Training-set size",
        "the training graphs that were used; validation and test graphs are all there",
        "Training graphs used",
        "train_fraction",
        "label_noise",
        0.0,
    ),
    "sensitivity": Chart(
        "Sensitivity to parameters",
        "Test {metric} for each value of a parameter, the others at their defaults: mean over "
        "trials with one standard deviation. A filled dot is the default, the dashed line its "
        "mean.",
        scores.sensitivity,
        scores.sensitivity_data,
        "Sensitivity",
        "network",
    ),
    "ranks": Chart(
        "Average ranks",
        "Average rank of each method over the data sets; 1 is best. Bars are as long as the "
        "critical difference: methods whose bars overlap are not shown to differ (Nemenyi’s "
        "test, 5 %; an approximation that finds too much with few data sets).",
        scores.ranks,
        scores.ranks_data,
        every="data sets",
    ),
}
"""All charts by their name in ``results.plot``, in page order."""


@dataclass(frozen=True)
class RenderedChart:
    """A chart on a page; ``name`` is the stem of its files, ``group`` its heading."""

    name: str
    title: str
    caption: str
    group: str
    data: pd.DataFrame = field(repr=False)
    wide: str = field(repr=False)
    narrow: str = field(repr=False)


def render_chart(
    results: Trials | Across, name: str, *, prefix: str = "", methods: Iterable[str] = ()
) -> RenderedChart | None:
    """Draw a chart for a page; return ``None`` if the results have no data for it."""
    chart = CHARTS[check_choice("name", name, CHARTS)]
    data = chart.data(results)
    if data.empty:
        return None
    stem = prefix + "-".join(name.split("_"))
    title, caption = chart.words(results)
    drawings = svg_elements(lambda: chart.draw(results, data, None), stem, title, methods)
    if not drawings:
        return None
    return RenderedChart(stem, title, caption, chart.group, data, *drawings)


def svg_elements(
    draw: Callable[[], Drawing], name: str, label: str, methods: Iterable[str] = ()
) -> list[str]:
    """Draw ``svg`` elements for desktop and phone; return an empty list if nothing is drawn."""
    found = []
    for width, kind in ((WIDE, "wide"), (NARROW, "narrow")):
        with style(width, methods):
            axes = draw()
        if axes is None:
            return []
        one = axes if isinstance(axes, Axes) else axes[0]
        figure = one.get_figure(root=True)
        assert figure is not None
        found.append(svg(figure, label, f"{name}-{kind}"))
    return found


def write(drawing: RenderedChart, folder: str | Path) -> list[Path]:
    """Write a chart as ``NAME.svg`` and its data as ``NAME.csv``; return the paths."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    numbers = drawing.data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    contents = {"svg": standalone(drawing.wide), "csv": plain(numbers, lines=True)}
    for ending, text in contents.items():
        write_atomically(target / f"{drawing.name}.{ending}", text)
    return [target / f"{drawing.name}.{ending}" for ending in contents]


def networks(results: Results) -> dict[Group, Results]:
    """Group trials by data set, model and number of layers, over all conditions."""
    parts: dict[Group, list[Group]] = {}
    for group in results.groups:
        parts.setdefault(group._replace(label_noise=0.0, train_fraction=1.0), []).append(group)
    return {network: results.part(groups) for network, groups in parts.items()}


class Plots:
    """The charts of results: ``results.plot.forest(ax=None)``.

    Each method draws a chart of :data:`CHARTS` on the given axes or a new figure, and returns the
    axes; ``axes.figure`` is the figure.
    """

    def __init__(self, results: Trials) -> None:
        self._results = results

    def __dir__(self) -> list[str]:
        return [name for name, chart in CHARTS.items() if chart.every != "data sets"]

    def __getattr__(self, name: str) -> Callable[..., Axes | list[Axes]]:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            chart = CHARTS[check_choice("plot", name, dir(self))]
        except GraphTransplantError as problem:
            raise AttributeError(f"there is no such chart: {problem}") from None

        def draw(ax: Axes | None = None) -> Axes | list[Axes]:
            with style():
                axes = chart.plot(self._part(name, chart), ax)
            if axes is None:
                raise GraphTransplantError(f"the results have no data for the chart {name!r}")
            return axes

        draw.__name__, draw.__doc__ = name, chart.title.format(reference="the reference")
        return draw

    def _part(self, name: str, chart: Chart) -> Trials:
        if not isinstance(self._results, Results):
            return self._results
        parts: Mapping[Group, Trials] = self._results.groups
        where = "results.groups"
        if chart.every != "group":
            parts, where = networks(self._results), "gt.figures.networks(results)"
        if len(parts) > 1:
            titles = "; ".join(f"{group.data}: {group.title}" for group in parts)
            raise GraphTransplantError(
                f"the chart {name!r} needs a single group of results, got {len(parts)} "
                f"({titles}): draw one of `{where}.values()`"
            )
        return next(iter(parts.values()), self._results)
