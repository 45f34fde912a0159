"""What charts share: their description, words, colours, lines and bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
from matplotlib.axes import Axes

from graph_transplant.figures.parts import Form, line_chart, row_chart, share, short_number
from graph_transplant.figures.style import palette
from graph_transplant.metrics import METRICS
from graph_transplant.results.groups import Trials
from graph_transplant.utils.text import number

if TYPE_CHECKING:
    from graph_transplant.results.average_ranks import Across


Drawing = Axes | list[Axes] | None


KEYS = ["repeat", "fold"]


def word(results: Trials) -> str:
    """Name of the deciding metric, for use within a sentence."""
    return METRICS[results.metric].word


def score_form(results: Trials) -> Form:
    """Format of scores on an axis."""
    return share if METRICS[results.metric].share else short_number


def fold_word(results: Trials) -> str:
    """Word for a trial: runs of a single split share their test graphs and are not folds."""
    return "run" if (results.frame["folds"] == 1).all() else "fold"


def ranked(results: Trials, table: pd.DataFrame, *, reference_first: bool = True) -> pd.DataFrame:
    """Sort rows by the mean score of their method, best first after the reference."""
    names = dict.fromkeys(results.summary()["method"])
    order = sorted(names, key=lambda name: reference_first and name != results.reference)
    table = table.reset_index(drop=True)
    place = table["method"].map({name: number for number, name in enumerate(order)})
    return table.loc[place.sort_values(kind="stable").index].reset_index(drop=True)


def colours(results: Trials) -> dict[str, str]:
    """Colour of each method."""
    return palette(results.methods, results.reference)


def lines(
    results: Trials, table: pd.DataFrame, ax: Axes | None, *, x: str, title: str, value: str
) -> Drawing:
    """One line per method along column ``x``; ``{}`` in ``value`` stands for the metric."""
    places, epochs = table[x].nunique(), x == "epoch"
    if places < 2 and not epochs:
        return None
    return line_chart(
        table,
        ax,
        x=x,
        colours=colours(results),
        reference=results.reference,
        titles=(title, value.format(word(results))),
        forms=(
            (lambda epoch: number(epoch, 0)) if epochs else share,
            score_form(results) if "{}" in value else share,
        ),
        dots=not epochs and places < 8,
    )


@dataclass(frozen=True)
class Chart:
    """A kind of chart.

    ``data`` returns the numbers to draw. ``draw`` takes the results, these numbers and axes
    (``None`` for a new figure); it returns the axes, or ``None`` if there is too little to draw.
    ``title`` and ``caption`` may contain ``{reference}``, and ``caption`` also ``{metric}`` and
    ``{fold}`` (the word for a trial).
    ``group`` is its heading on a page. ``every`` is what one chart covers: a group of results
    (data, model, layers and condition), a network (all its conditions), or all data sets.
    """

    title: str
    caption: str
    draw: Callable[..., Drawing]
    data: Callable[[Any], pd.DataFrame]
    group: str = ""
    every: Literal["group", "network", "data sets"] = "group"

    def plot(self, results: Any, ax: Axes | None = None) -> Drawing:
        """Draw the chart; return ``None`` if the results have no data for it."""
        table = self.data(results)
        return None if table.empty else self.draw(results, table, ax)

    def words(self, results: Trials | Across) -> tuple[str, str]:
        """Title and caption of the chart of some results."""
        if not isinstance(results, Trials):
            return self.title, self.caption
        values = {"metric": word(results), "fold": fold_word(results)}
        values["reference"] = results.reference
        return self.title.format(**values), self.caption.format(**values)


# -------------------------------------------------------------------- lines


def means_of(table: pd.DataFrame, keys: Sequence[str], value: str) -> pd.DataFrame:
    """Mean, deviation and number of trials of a column."""
    grouped = table.dropna(subset=value).groupby([*keys], sort=True)[value]
    return grouped.agg(mean="mean", std="std", trials="count").reset_index()


def series_of(
    results: Trials, table: pd.DataFrame, along: str, series: Mapping[str, str]
) -> pd.DataFrame:
    """Means of several columns as series along another column."""
    found = [
        means_of(table, ["method", along], column).assign(series=title)
        for column, title in series.items()
        if column in table and table[column].notna().any()
    ]
    columns = ["method", "series", along, "mean", "std", "trials"]
    if not found:
        return pd.DataFrame(columns=columns)
    return ranked(results, pd.concat(found)[columns])


# -------------------------------------------------------------------- bars


def bars(
    results: Trials, table: pd.DataFrame, ax: Axes | None, *, mark: str, **given: Any
) -> Drawing:
    """One bar per method with its standard deviation, and ``mark`` as a hollow dot."""
    shown = table.assign(
        low=table["mean"] - table["std"], high=table["mean"] + table["std"], mark=table[mark]
    )
    return row_chart(shown, ax, colours=colours(results), kind="bar", **given)
