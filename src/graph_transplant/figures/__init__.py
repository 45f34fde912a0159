"""Charts of comparisons, on matplotlib.

``results.plot.forest()`` draws one chart; pages show every chart that the results have data for. To
add a chart to the pages and to ``results.plot``, add a :class:`Chart` to :data:`CHARTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.figures import analysis, forest, training
from graph_transplant.figures.chart import Chart, Colours, RenderedChart, default_colours
from graph_transplant.figures.style import WIDTH, style, svg
from graph_transplant.results.groups import Group, Trials
from graph_transplant.results.results import Results
from graph_transplant.utils.files import write_atomically
from graph_transplant.utils.text import plain

if TYPE_CHECKING:
    from graph_transplant.results.average_ranks import Across


__all__ = ["CHARTS", "Chart", "Plots", "RenderedChart", "networks", "render_chart", "write"]


CHARTS: dict[str, Chart] = {
    "forest": forest.FOREST,
    "scores": forest.SCORES,
    "learning": training.LEARNING,
    "reliability": analysis.RELIABILITY,
    "robustness": analysis.ROBUSTNESS,
    "deletion": analysis.DELETION,
    "insertion": analysis.INSERTION,
    "motif": analysis.MOTIF,
    "samples": analysis.SAMPLES,
    "cost": training.COST,
    "edge_predictor": training.EDGE_PREDICTOR,
    "label_noise": training.LABEL_NOISE,
    "train_size": training.TRAIN_SIZE,
    "sensitivity": training.SENSITIVITY,
    "ranks": forest.RANKS,
}
"""All charts by their name in ``results.plot``, in page order."""


def render_chart(
    results: Trials | Across, name: str, *, prefix: str = "", colours: Colours | None = None
) -> RenderedChart | None:
    """Draw a chart for a page; return ``None`` if the results have no data for it.

    ``colours`` are those of all methods on the page, so that each has one colour in all charts.
    """
    chart = CHARTS[check_choice("name", name, CHARTS)]
    data = chart.data(results)
    if data.empty:
        return None
    stem = prefix + "-".join(name.split("_"))
    title, caption = chart.words(results)
    with style(WIDTH):
        axes = chart.draw(results, data, None, colours or default_colours(results))
    if axes is None:
        return None
    return RenderedChart(stem, title, caption, svg(axes, stem), data)


def write(drawing: RenderedChart, folder: str | Path) -> list[Path]:
    """Write a chart as ``NAME.svg`` and its data as ``NAME.csv``; return the paths."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    numbers = drawing.data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    contents = {"svg": drawing.file, "csv": plain(numbers, lines=True)}
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
