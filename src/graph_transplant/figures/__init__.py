"""Charts of comparisons, on matplotlib.

``results.plot.forest()`` draws one; pages show all that the results have numbers for. To add a
chart, put a :class:`Chart` into :data:`FIGURES`: it is then on pages, in ``results.plot`` and in
its help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.experiments.results import Group, Results
from graph_transplant.figures import charts, studies
from graph_transplant.figures.charts import Drawing, fold_word, word
from graph_transplant.figures.parts import exact_share
from graph_transplant.figures.style import NARROW, WIDE, plain, standalone, style, svg
from graph_transplant.files import write_atomically
from graph_transplant.format import capital, listed, number, points, units

if TYPE_CHECKING:
    from graph_transplant.experiments.across import Across

__all__ = ["FIGURES", "Chart", "Drawn", "Plots", "drawn", "networks", "shown", "write"]


@dataclass(frozen=True)
class Chart:
    """A kind of chart.

    Attributes:
        title: Its heading.
        caption: How to read it, or a function of the results and the numbers that says so.
        draw: Takes results, the numbers and axes (``None`` for a new figure); returns the axes, or
            ``None`` where there is too little to draw.
        data: The numbers that are drawn; none for nothing to draw.
        group: Heading under which it stands on a page; none for the main charts.
        every: What it is drawn for: every ``"group"`` of results (data, model, layers and
            condition), every ``"network"`` (all conditions of one), or all ``"data sets"``.
        value: Column of the numbers in words.
        form: How these are written.
    """

    title: str
    caption: str | Callable[[Any, pd.DataFrame], str]
    draw: Callable[..., Drawing]
    data: Callable[[Any], pd.DataFrame]
    group: str = ""
    every: Literal["group", "network", "data sets"] = "group"
    value: str = "mean"
    form: Callable[[float], str] = exact_share

    def plot(self, results: Any, ax: Axes | None = None) -> Drawing:
        """Draw it, or give ``None`` where the results have no numbers for it."""
        table = self.data(results)
        return None if table.empty else self.draw(results, table, ax)


def _forest_caption(results: Results, table: pd.DataFrame) -> str:
    text = (
        f"Large dots are mean differences to {results.reference}, bars their 95 % intervals, small "
        f"dots single {fold_word(results)}s. A filled dot differs significantly, a hollow one does "
        "not."
    )
    if results.equal_within:
        text += f" Bars within the grey band, ±{100 * results.equal_within:g}, are practically "
        text += f"equal to {results.reference}."
    return text


def _scores_caption(results: Results, table: pd.DataFrame) -> str:
    place = fold_word(results)
    there = results.reference in results.methods
    mean = f" The dashed line is {results.reference}’s mean." if there else ""
    return (
        f"One dot per {place}, the thick stroke is the mean. Thin lines join the same {place}: it "
        f"counts whether they lean the same way.{mean}"
    )


_BAND = "Mean over trials, the band is one standard deviation."
_MOTIF = (
    "mean over trials with one standard deviation; saliency as training reads it: the gradient of "
    "the loss at the true class. Hollow: chance."
)


def _reliability_caption(results: Results, table: pd.DataFrame) -> str:
    several = any(record.get("task") == "multilabel" for record in results.chosen)
    what = (
        "labels that are predicted correctly, each label of a test graph by itself,"
        if several
        else "test graphs that are classified correctly"
    )
    return (
        f"Share of {what} against the confidence stated, in 15 bins pooled over trials; on the "
        "dashed diagonal confidence is honest, below it the model is too sure. Larger dots are "
        "more predictions, the columns below count them. "
        + (
            "Hollow dots: after temperature scaling on the validation graphs. ECE is the "
            "calibration error before → after, mean over trials."
            if table["stage"].nunique() > 1
            else "ECE is the calibration error, mean over trials."
        )
    )


def _robustness_caption(results: Results, table: pd.DataFrame) -> str:
    rows = results.long("attacked")
    models = rows["model"][rows["removals_only"].eq(True)] if "removals_only" in rows else ()
    series = set(table["series"])
    return (
        "Test accuracy after GradArgmax, which here spends its whole budget on changes (stronger "
        "than the paper’s wording), against its budget, the share of the mean number of edges "
        f"that it may change. {_BAND}"
        + (" Dashed: after as many random changes." if "random" in series else "")
        + (" Dotted: the attack to the letter of the paper." if "as stated" in series else "")
        + (
            f" With {listed(sorted(set(models)))} edges are only removed: new ones would lack the "
            "features that it reads."
            if len(models)
            else ""
        )
        + charts.grey(results, table)
    )


def _saliency(title: str, kind: str, done: str, moves: str) -> Chart:
    return Chart(
        title,
        lambda results, table: (
            f"Probability of the predicted class as nodes are {done}, the most salient first, "
            f"ordered by the norm of the gradient of the predicted class: the faster it {moves}, "
            "the better saliency finds what the model looks at. Dashed: in random order. "
            f"{_BAND}{charts.grey(results, table)}"
        ),
        partial(charts.lines, x="share", title=f"Share of nodes {done}",
                value="Probability of the predicted class"),
        partial(studies.saliency_data, kind=kind),
        "Saliency",
    )  # fmt: skip


def _condition(title: str, caption: str, axis: str, column: str, other: str, usual: float) -> Chart:
    return Chart(
        title,
        lambda results, table: f"Test {word(results)} against the share of {caption}. {_BAND}",
        partial(charts.lines, x=column, title=axis, value="Test {}"),
        partial(studies.condition_data, column=column, other=other, usual=usual),
        "Conditions",
        "network",
    )


def _cost_caption(results: Results, table: pd.DataFrame) -> str:
    plain_ = table.loc[table["method"] == results.reference, "epoch_seconds"].iloc[0]
    return (
        f"Time of training as ratio to {results.reference}: bars per epoch, with one standard "
        "deviation over trials, hollow dots until the best checkpoint. An epoch of "
        f"{results.reference} takes {units(plain_)} s."
    )


FIGURES: dict[str, Chart] = {
    "forest": Chart(
        "Who beats plain training?",
        _forest_caption,
        charts.forest,
        charts.forest_data,
        value="difference",
        form=lambda value: f"{points(value)} points",
    ),
    "scores": Chart(
        "Every trial",
        _scores_caption,
        charts.strip,
        partial(charts.trials, column="score"),
        value="score",
    ),
    "learning": Chart(
        "Learning",
        lambda results, table: (
            f"{capital(word(results))} on the validation graphs by epoch, mean over the trials "
            "that trained that long, drawn as long as half of them did."
            + charts.grey(results, table)
        ),
        partial(charts.lines, x="epoch", title="Epoch", value="Validation {}"),
        charts.learning_data,
    ),
    "calibration": Chart(
        "Can its confidence be trusted?",
        lambda results, table: (
            "Expected calibration error on the test graphs, one dot per "
            f"{fold_word(results)}; further left is better."
        ),
        partial(charts.strip, axis="Expected calibration error", form="number"),
        partial(charts.trials, column="ece"),
        "Calibration",
        value="ece",
        form=number,
    ),
    "reliability": Chart(
        "Is it as sure as it is right?",
        _reliability_caption,
        studies.reliability,
        studies.reliability_data,
        "Calibration",
        value="ece",
        form=number,
    ),
    "robustness": Chart(
        "Under attack",
        _robustness_caption,
        partial(charts.lines, x="budget", title="Budget of the attack", value="Test accuracy"),
        studies.robustness_data,
        "Robustness",
    ),
    "deletion": _saliency("Taking salient nodes away", "deletion", "taken away", "falls"),
    "insertion": _saliency("Putting salient nodes back", "insertion", "put back", "rises"),
    "motif": Chart(
        "Does saliency find the motif?",
        f"How well node saliency ranks the nodes of the true motif above the others, {_MOTIF}",
        partial(studies.motif, axis="AUROC of node saliency against the motif"),
        partial(studies.motif_data, kind="auroc"),
        "Saliency",
    ),
    "motif_precision": Chart(
        "How much of what is salient is motif?",
        "Of as many most salient nodes as the true motif has, the share that belongs to it, "
        f"{_MOTIF}",
        partial(studies.motif, axis="Precision of the salient nodes"),
        partial(studies.motif_data, kind="precision"),
        "Saliency",
    ),
    "samples": Chart(
        "Do virtual graphs look like real ones?",
        "Means over trials; shorter bars are closer to the real graphs. Degree distance: how far "
        "node degrees are from those of the graphs they are made of (Wasserstein distance, in "
        "edges per node). Not connected: share of graphs in several parts. Label gap: mean gap "
        "between the weight of a part’s label and its share of the nodes. Hollow: the same of the "
        "real graphs; for degrees, of two random halves of them.",
        studies.samples,
        studies.samples_data,
        "Virtual graphs",
        value="degree_distance",
        form=number,
    ),
    "cost": Chart(
        "What does it cost?",
        _cost_caption,
        studies.cost,
        studies.cost_data,
        "Cost",
        value="epoch_ratio",
        form=lambda value: f"× {number(value, 1)}",
    ),
    "edge_predictor": Chart(
        "The edge predictor",
        "How often the edge predictor tells a true edge from a pair without one, on pairs it was "
        "not trained on; 50 % is guessing.",
        partial(charts.lines, x="epoch", title="Epoch", value="Edge predictor accuracy"),
        partial(charts.curve_data, column="edge_predictor_accuracy"),
        "Edge predictor",
    ),
    "label_noise": _condition(
        "With wrong labels",
        "training labels that were made wrong; validation and test labels are right",
        "Wrong training labels",
        "label_noise",
        "train_fraction",
        1.0,
    ),
    "train_size": _condition(
        "With little data",
        "the training graphs that were used; validation and test graphs are all there",
        "Training graphs used",
        "train_fraction",
        "label_noise",
        0.0,
    ),
    "sensitivity": Chart(
        "How much do parameters matter?",
        lambda results, table: (
            f"Test {word(results)} for each value of a parameter, the others at their defaults: "
            "mean over trials with one standard deviation. The filled dot is the default, the "
            "dashed line its mean."
        ),
        studies.sensitivity,
        studies.sensitivity_data,
        "Sensitivity",
        "network",
    ),
    "ranks": Chart(
        "Average ranks",
        "Average rank of each method over the data sets; 1 is best. A bar joins methods whose "
        "ranks lie closer than the critical difference: these do not differ significantly "
        "(Nemenyi’s test, 5 %).",
        studies.ranks,
        studies.ranks_data,
        every="data sets",
        value="rank",
        form=lambda value: number(value, 2),
    ),
}
"""All charts, by their names in ``results.plot``, in the order of the pages."""


@dataclass(frozen=True)
class Drawn:
    """A chart as a page shows it: ``svg`` elements for a desk and for a phone.

    ``name`` is the stem of its files, ``group`` the heading under which it stands, ``label`` its
    numbers in words.
    """

    name: str
    title: str
    caption: str
    group: str
    wide: str = field(repr=False)
    narrow: str = field(repr=False)
    data: pd.DataFrame = field(repr=False)
    label: str = field(repr=False)


def drawn(
    results: Results | Across, name: str, *, prefix: str = "", methods: Iterable[str] = ()
) -> Drawn | None:
    """Draw a chart for a page, or give ``None`` where the results have no numbers for it."""
    chart = FIGURES[check_choice("name", name, FIGURES)]
    data = chart.data(results)
    if data.empty:
        return None
    caption = chart.caption
    return shown(
        lambda: chart.draw(results, data, None),
        name=f"{prefix}{name.replace('_', '-')}",
        title=chart.title,
        caption=lambda: caption if isinstance(caption, str) else caption(results, data),
        label=f"{chart.title} {_words(data, chart)}",
        data=data,
        group=chart.group,
        methods=methods,
    )


def shown(
    draw: Callable[[], Drawing],
    *,
    name: str,
    title: str,
    caption: Callable[[], str],
    label: str,
    data: pd.DataFrame,
    group: str = "",
    methods: Iterable[str] = (),
) -> Drawn | None:
    """Draw something for a desk and for a phone, or give ``None`` where it draws nothing."""
    found = []
    for width, kind in ((WIDE, "wide"), (NARROW, "narrow")):
        with style(width, methods):
            axes = draw()
        if axes is None:
            return None
        found.append(svg(_figure_of(axes), label, f"{name}-{kind}"))
    wide, narrow = found
    return Drawn(name, title, caption(), group, wide, narrow, data, plain(label))


def write(drawing: Drawn, folder: str | Path) -> list[Path]:
    """Write a chart as ``NAME.svg`` and its numbers as ``NAME.csv``; give the paths."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    numbers = drawing.data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    # Control characters of names are replaced, line ends stay.
    lines = "\n".join(plain(line) for line in numbers.split("\n"))
    contents = {"svg": standalone(drawing.wide), "csv": lines}
    for ending, text in contents.items():
        write_atomically(target / f"{drawing.name}.{ending}", text)
    return [target / f"{drawing.name}.{ending}" for ending in contents]


def networks(results: Results) -> dict[Group, Results]:
    """The trials of each data set, model and number of layers, of all conditions together."""
    parts: dict[Group, list[Any]] = {}
    for group, part in results.groups.items():
        whole = group._replace(label_noise=0.0, train_fraction=1.0)
        parts.setdefault(whole, []).extend(part.chosen)
    return {group: results.part(own) for group, own in parts.items()}


class Plots:
    """The charts of results: ``results.plot.forest(ax=None)``.

    Each takes matplotlib axes, or makes a figure, and returns the axes it drew on: ``axes.figure``
    is the figure. Names are those of :data:`FIGURES`.
    """

    def __init__(self, results: Results) -> None:
        self._results = results

    def __dir__(self) -> list[str]:
        return [name for name, chart in FIGURES.items() if chart.every != "data sets"]

    def __getattr__(self, name: str) -> Callable[..., Axes | list[Axes]]:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            chart = FIGURES[check_choice("plot", name, dir(self))]
        except GraphTransplantError as problem:
            raise AttributeError(f"there is no such chart: {problem}") from None

        def draw(ax: Axes | None = None) -> Axes | list[Axes]:
            self._check_one(name, chart)
            with style():
                axes = chart.plot(self._results, ax)
            if axes is None:
                raise GraphTransplantError(f"these results have no numbers for the chart {name!r}")
            return axes

        caption = "" if callable(chart.caption) else f"\n\n{chart.caption}"
        draw.__name__, draw.__doc__ = name, f"{chart.title}{caption}"
        return draw

    def _check_one(self, name: str, chart: Chart) -> None:
        parts = self._results.groups if chart.every == "group" else networks(self._results)
        if len(parts) > 1:
            titles = "; ".join(f"{group.data}: {group.title}" for group in parts)
            raise GraphTransplantError(
                f"the chart {name!r} shows one group of results, and these have {len(parts)} "
                f"({titles}): draw one of `results.groups.values()`"
            )

    def __repr__(self) -> str:
        return f"Plots({', '.join(dir(self))})"


def _figure_of(axes: Axes | list[Axes]) -> Figure:
    one = axes if isinstance(axes, Axes) else axes[0]
    figure = one.get_figure(root=True)
    assert isinstance(figure, Figure)
    return figure


def _words(data: pd.DataFrame, chart: Chart) -> str:
    """The numbers of a chart: a mean per method, or the first, middle and last value of a line."""
    keys = [key for key in ("method", "series", "stage", "parameter") if key in data]
    if chart.value not in data or not keys:
        return ""
    parts = []
    for names, own in data.dropna(subset=chart.value).groupby(keys, sort=False):
        title = " ".join(str(name) for name in names if name)
        along = next((key for key in charts.ALONG if key in own), None)
        if along is None:
            parts.append(f"{title} {chart.form(own[chart.value].mean())}")
            continue
        few = own.iloc[sorted({0, len(own) // 2, len(own) - 1})] if len(own) > 6 else own
        said = [f"{chart.form(row[chart.value])} at {row[along]:g}" for _, row in few.iterrows()]
        parts.append(f"{title} {', '.join(said)}")
    return "; ".join(parts)
