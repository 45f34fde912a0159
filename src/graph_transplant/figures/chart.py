"""What charts share: their description, and a row, a line or a panel for each method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from graph_transplant.figures.style import (
    FAINT,
    INK,
    NEUTRAL,
    PAPER,
    RULE,
    SOFT,
    canvas,
    inline,
    palette,
    px,
    room,
    short,
    text_width,
)
from graph_transplant.methods import REFERENCE
from graph_transplant.metrics import METRICS
from graph_transplant.results.groups import Trials
from graph_transplant.utils.text import number, percent, points

if TYPE_CHECKING:
    from graph_transplant.results.average_ranks import Across


Drawing = Axes | list[Axes] | None
Colours = Mapping[str, str]
Form = Callable[[float], str]

KEYS = ["repeat", "fold"]
BAND: Final = "Mean over trials, the band is one standard deviation."
GREY: Final = "Where each method has a panel, grey is {reference}."
MANY: Final = 8
"""Most lines in one chart; more get a panel each."""
DASHED: Final[dict[str, Any]] = {"color": FAINT, "linewidth": px(1.2), "linestyle": (0, (3, 3))}

_ROW = 54  # height in pixels: a line of text with the drawing below it
_LOOKS: list[dict[str, Any]] = [
    {"linewidth": px(2), "zorder": 4},
    {"linewidth": px(1.2), "linestyle": (0, (4, 3)), "zorder": 3},
    {"linewidth": px(1.2), "linestyle": (0, (1, 2)), "zorder": 3},
]  # line styles of the first, second and third series


@dataclass(frozen=True)
class Chart:
    """A kind of chart.

    ``data`` returns the numbers to draw. ``draw`` takes the results, these numbers, axes (``None``
    for a new figure) and the colour of each method; it returns the axes, or ``None`` if there is
    too little to draw.
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

    def plot(self, results: Any, ax: Axes | None = None, colours: Colours | None = None) -> Drawing:
        """Draw the chart; return ``None`` if the results have no data for it."""
        table = self.data(results)
        if table.empty:
            return None
        return self.draw(results, table, ax, colours or default_colours(results))

    def words(self, results: Trials | Across) -> tuple[str, str]:
        """Title and caption of the chart of some results."""
        if not isinstance(results, Trials):
            return self.title, self.caption
        # Runs of a single split share their test graphs and are not folds.
        fold = "run" if (results.frame["folds"] == 1).all() else "fold"
        values = {"metric": word(results), "fold": fold, "reference": results.reference}
        return self.title.format(**values), self.caption.format(**values)


def default_colours(results: Trials | Across) -> Colours:
    """Colours of the methods of some results."""
    return palette(results.methods, getattr(results, "reference", REFERENCE))


@dataclass(frozen=True)
class RenderedChart:
    """A chart on a page; ``name`` is the stem of its files."""

    name: str
    title: str
    caption: str
    file: str = field(repr=False)
    data: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)

    @property
    def element(self) -> str:
        """The drawing as an element of a page."""
        return inline(self.file, self.title)


def word(results: Trials) -> str:
    """Name of the deciding metric, for use within a sentence."""
    return METRICS[results.metric].word


# -------------------------------------------------------------------- numbers


def ranked(results: Trials, table: pd.DataFrame, *, reference_first: bool = True) -> pd.DataFrame:
    """Sort rows by the mean score of their method, best first after the reference."""
    names = dict.fromkeys(results.summary()["method"])
    order = sorted(names, key=lambda name: reference_first and name != results.reference)
    table = table.reset_index(drop=True)
    place = table["method"].map({name: number for number, name in enumerate(order)})
    return table.loc[place.sort_values(kind="stable").index].reset_index(drop=True)


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


# -------------------------------------------------------------------- axes


def score_form(results: Trials) -> Form:
    """Format of scores on an axis."""
    return share if METRICS[results.metric].share else short_number


def share(value: float) -> str:
    """Format a share for an axis, in per cent with a decimal only if needed."""
    return percent(value, _digit(value), unit=True)


def point(value: float) -> str:
    """Format a difference of shares for an axis, in percentage points."""
    return points(value, _digit(value))


def _digit(value: float) -> int:
    return int(abs(100 * value - round(100 * value)) > 1e-6)


def short_number(value: float) -> str:
    """Format a number for an axis with as few decimals as possible."""
    digits = next((d for d in range(4) if abs(value * 10**d - round(value * 10**d)) < 1e-6), 4)
    return number(value, digits)


def ticks(axis: Any, form: Form, most: int) -> None:
    """Set round ticks, formatted by ``form``."""
    axis.set_major_locator(MaxNLocator(max(most, 2), steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: form(value)))


def name_axes(ax: Axes, titles: tuple[str, str]) -> None:
    """Write the title of the horizontal axis below it, that of the vertical one above."""
    ax.grid(axis="y", color=RULE, linewidth=px(1))
    ax.set_xlabel(titles[0], color=SOFT, size=px(13), labelpad=px(6))
    ax.set_title(titles[1], loc="left", color=SOFT, size=px(13), pad=px(12), weight=400)


def legend_row(ax: Axes, place: int, text: str, colour: str) -> None:
    """Write a name below the axes, in its colour."""
    ax.annotate(
        f"● {text}", (0, 0), xycoords="axes fraction", xytext=(0, px(-66 - 20 * place)),
        textcoords="offset points", color=colour, weight=700, annotation_clip=False,
    )  # fmt: skip


def hollow(filled: bool, colour: str, size: float) -> dict[str, Any]:
    """Line style of a filled or hollow dot; ``size`` in pixels."""
    face = colour if filled else PAPER
    return {
        "marker": "o", "linestyle": "none", "markersize": px(size), "color": colour,
        "markerfacecolor": face, "markeredgewidth": px(1.8), "zorder": 5,
    }  # fmt: skip


# -------------------------------------------------------------------- rows


def row_chart(
    table: pd.DataFrame,
    ax: Axes | None,
    *,
    colours: Colours,
    axis: str,
    form: Form,
    kind: str,
    texts: Sequence[str],
    heading: str = "",
    dots: pd.DataFrame | None = None,
    at: float | None = None,
    band: float | None = None,
) -> Axes:
    """One row per method: its name and text, and below them its mean and single trials.

    ``table`` has the columns ``method`` and ``mean``, optionally ``low`` and ``high`` (an
    interval), ``filled``, and ``mark`` (a value to compare with). ``kind`` draws the mean as a
    ``"dot"``, ``"stroke"`` or ``"bar"``. ``dots`` are single trials with ``method``, ``key`` and
    ``value``; with strokes, lines connect dots of the same key. ``at`` draws a dashed vertical
    line; with ``band`` the line is solid, inside a grey band of this half-width.
    """
    names = table["method"].tolist()
    wide = room(ax)
    shown = short(names, wide - max(map(text_width, texts)) - 50)
    ax = canvas(ax, _ROW * len(names) + 76, left=20, right=20, top=28, bottom=48)
    ax.set(ylim=(len(names) - 0.5, -0.5), yticks=[])
    places = {name: place + 0.2 for place, name in enumerate(names)}
    for (name, place), text in zip(places.items(), texts, strict=True):
        colour = SOFT if colours[name] == NEUTRAL else colours[name]
        _write(ax, 0, place - 0.42, shown[name], color=colour, weight=700)
        _write(ax, 1, place - 0.42, text)
    _write(ax, 1, -0.5, heading, up=px(14), color=SOFT)
    ax.grid(axis="x", color=RULE, linewidth=px(1))
    ticks(ax.xaxis, form, int(wide / 70))
    ax.set_xlabel(axis, color=SOFT, size=px(13), labelpad=px(6))
    if at is not None:
        line = DASHED if band is None else {"color": INK, "linewidth": px(1.2)}
        ax.axvline(at, zorder=1.5, **line)
        ax.axvspan(at - (band or 0), at + (band or 0), color=RULE, alpha=0.5, lw=0, zorder=0.5)
    if dots is not None:
        _draw_dots(ax, dots, places, colours, kind)
    for one in table.to_dict("records"):
        _draw_mean(ax, one, places[one["method"]], colours[one["method"]], kind)
    if kind == "bar":
        most = np.nanmax(table[[c for c in ("mean", "high", "mark") if c in table]].to_numpy())
        ax.set_xlim(0, 1.03 * most)
    return ax


def _write(ax: Axes, side: int, y: float, text: str, *, up: float = 0, **look: Any) -> None:
    """Write a text at the left (0) or right (1) end of the axes, hiding the lines behind it."""
    ax.annotate(
        text, (side, y), xycoords=ax.get_yaxis_transform(), xytext=(0, up),
        textcoords="offset points", ha=("left", "right")[side], va="center_baseline",
        annotation_clip=False, bbox={"facecolor": PAPER, "linewidth": 0, "pad": px(1)}, **look,
    )  # fmt: skip


def _draw_dots(
    ax: Axes, dots: pd.DataFrame, places: Mapping[str, float], colours: Colours, kind: str
) -> None:
    small = kind == "dot"
    dots = dots[dots["method"].isin(places)].dropna(subset="value")
    # Stack overlapping dots.
    width = (dots["value"].max() - dots["value"].min() or 1.0) / 60
    near = dots.groupby(["method", (dots["value"] / width).round()], sort=False).cumcount()
    step = near.map(lambda n: (n + 1) // 2 * (-1 if n % 2 else 1)) * ((4 if small else 7) / _ROW)
    # Small dots go below the interval, which would hide them.
    dots = dots.assign(y=dots["method"].map(places) + (step.abs() + 8 / _ROW if small else step))
    if kind == "stroke":
        for _, one in dots.sort_values("y").groupby("key"):
            ax.plot(one["value"], one["y"], color=FAINT, alpha=0.38, lw=px(1), zorder=1.8)
    for method, own in dots.groupby("method", sort=False):
        size = px(5 if small else 9) ** 2
        ax.scatter(own["value"], own["y"], s=size, color=colours[str(method)], alpha=0.55,
                   linewidth=0, zorder=2)  # fmt: skip


def _draw_mean(ax: Axes, row: Mapping[Any, Any], y: float, colour: str, kind: str) -> None:
    half = 9 / _ROW
    mean, low, high = (float(row.get(name, np.nan)) for name in ("mean", "low", "high"))
    if np.isfinite(low) and np.isfinite(high):
        line: dict[str, Any] = {"color": INK, "linewidth": px(1.2), "zorder": 3}
        if kind == "dot":
            line |= {"color": colour, "linewidth": px(2)}
        ax.plot([low, high], [y, y], **line)
        for end in (low, high):
            ax.plot([end, end], [y - half / 2, y + half / 2], **line)
    if kind == "stroke":
        ax.plot([mean, mean], [y - half, y + half], color=colour, lw=px(3), zorder=4,
                solid_capstyle="butt")  # fmt: skip
    elif kind == "bar":
        ax.barh(y, mean, height=1.7 * half, color=colour, alpha=0.68, linewidth=0, zorder=2)
    else:
        ax.plot(mean, y, **hollow(bool(row.get("filled", True)), colour, 11))
    if np.isfinite(mark := float(row.get("mark", np.nan))):
        ax.plot(mark, y, **hollow(False, colour, 8))


def bars(
    table: pd.DataFrame, ax: Axes | None, colours: Colours, *, mark: str, **given: Any
) -> Drawing:
    """One bar per method with its standard deviation, and ``mark`` as a hollow dot."""
    shown = table.assign(
        low=table["mean"] - table["std"], high=table["mean"] + table["std"], mark=table[mark]
    )
    return row_chart(shown, ax, colours=colours, kind="bar", **given)


# -------------------------------------------------------------------- lines


def lines(
    results: Trials, table: pd.DataFrame, ax: Axes | None, colours: Colours, *, x: str,
    title: str, value: str,
) -> Drawing:  # fmt: skip
    """One line per method along column ``x``; ``{}`` in ``value`` stands for the metric."""
    places, epochs = table[x].nunique(), x == "epoch"
    if places < 2 and not epochs:
        return None
    return line_chart(
        table,
        ax,
        x=x,
        colours=colours,
        reference=results.reference,
        titles=(title, value.format(word(results))),
        forms=(
            (lambda epoch: number(epoch, 0)) if epochs else share,
            score_form(results) if "{}" in value else share,
        ),
        dots=not epochs and places < 8,
    )


def line_chart(
    table: pd.DataFrame,
    ax: Axes | None,
    *,
    x: str,
    colours: Colours,
    reference: str,
    titles: tuple[str, str],
    forms: tuple[Form, Form],
    dots: bool = False,
) -> Axes | list[Axes]:
    """One line per method, in separate panels if there are too many for one chart.

    ``table`` has the columns ``method``, ``series``, ``x``, ``mean`` and optionally ``std``. The
    first series is solid, the others dashed and dotted. All panels show the reference.
    """
    names = list(dict.fromkeys(table["method"]))
    wide = room(ax)
    ends = [float(f"{value:.1g}") for value in (table["mean"].min(), table["mean"].max())]
    left = max(44.0, *(text_width(forms[1](value)) + 16 for value in ends))
    if len(names) > MANY or (table["series"].nunique() > 1 and len(names) > 2):
        return _line_panels(table, names, ax, x, colours, reference, titles, forms, dots, left)
    shown = short(names, wide - 60)
    below = 20 * len(names) if len(names) > 1 else 0
    ax = canvas(ax, 300 + below, left=left, right=16, top=34, bottom=52 + below)
    for name in names:
        _draw_lines(ax, table[table["method"] == name], x, colours[name], dots)
    name_axes(ax, titles)
    ticks(ax.xaxis, forms[0], int(wide / 90))
    ticks(ax.yaxis, forms[1], 5)
    _mark_places(ax, table[x], wide - left - 16)
    for place, name in enumerate(names if below else ()):
        legend_row(ax, place, shown[name], colours[name])
    return ax


def _mark_places(ax: Axes, values: pd.Series, wide: float) -> None:
    """Put ticks at up to six measured values if they fit; use a log scale for wide ranges."""
    places = np.sort(values.unique())
    if not 2 <= len(places) <= 6:
        return
    form, scaled = ax.xaxis.get_major_formatter(), places
    if places[0] > 0 and places[-1] >= 20 * places[0]:
        ax.set_xscale("log")
        ax.xaxis.set_minor_locator(NullLocator())
        scaled = np.log(places)
    if np.diff(scaled).min() / (scaled[-1] - scaled[0]) * wide > 44:
        ax.xaxis.set_major_locator(FixedLocator(places.tolist()))
        ax.xaxis.set_major_formatter(form)


def _draw_lines(ax: Axes, own: pd.DataFrame, x: str, colour: str, dots: bool) -> None:
    for place, (_, one) in enumerate(own.groupby("series", sort=False)):
        ax.plot(one[x], one["mean"], color=colour, **_LOOKS[place])
        if place == 0 and dots:
            ax.plot(one[x], one["mean"], "o", markersize=px(6), color=colour, zorder=4)
        if place == 0 and "std" in one and one["std"].notna().any():
            std = one["std"].fillna(0)
            ends = one["mean"] - std, one["mean"] + std
            ax.fill_between(one[x], *ends, color=colour, alpha=0.1, linewidth=0)


# -------------------------------------------------------------------- panels


def panels(
    titles: Sequence[str],
    ax: Axes | None,
    *,
    high: float,
    axes: tuple[str, str],
    colours: Sequence[str],
    left: float = 44,
    head: float = 26,
) -> list[Axes]:
    """Create titled axes in two columns with shared limits, inside ``ax`` or a new figure.

    ``axes`` are the axis titles of all panels, ``head`` is the space above each panel in pixels.
    """
    wide, across, gap = room(ax), min(2, len(titles)), 26
    step = head + high + 14
    tall = 64 + -(-len(titles) // across) * step
    outer = canvas(ax, tall)
    outer.axis("off")
    each = (wide - left - 14 - (across - 1) * gap) / across
    shown = short(titles, each)
    found: list[Axes] = []
    for place, title in enumerate(titles):
        row, column = divmod(place, across)
        x, y = left + column * (each + gap), 24 + head + row * step
        box = (x / wide, 1 - (y + high) / tall, each / wide, high / tall)
        panel = canvas(outer.inset_axes(box), 0)
        if found:
            panel.sharex(found[0])
            panel.sharey(found[0])
        panel.xaxis.set_label_coords(0.5, 0)
        colour = SOFT if colours[place] == NEUTRAL else colours[place]
        panel.set_title(shown[title], loc="left", size=px(13), weight=700, color=colour,
                        pad=px(head - 18))  # fmt: skip
        panel.grid(axis="y", color=RULE, linewidth=px(1))
        # Only the outer panels keep their tick labels.
        panel.tick_params(labelleft=column == 0, labelbottom=place + across >= len(titles))
        found.append(panel)
    look: dict[str, Any] = {"color": SOFT, "transform": outer.transAxes}
    outer.text(left / wide, 1 - 13 / tall, axes[1], ha="left", **look)
    outer.text((left + wide) / 2 / wide, 8 / tall, axes[0], ha="center", **look)
    return found


def _line_panels(
    table: pd.DataFrame, names: Sequence[str], ax: Axes | None, x: str, colours: Colours,
    reference: str, titles: tuple[str, str], forms: tuple[Form, Form], dots: bool, left: float,
) -> list[Axes]:  # fmt: skip
    first = table["series"].iloc[0]
    plain = table[(table["method"] == reference) & (table["series"] == first)]
    own = [name for name in names if name != reference or table["series"].nunique() > 1]
    found = panels(
        own, ax, high=96, left=left, axes=titles, colours=[colours[name] for name in own]
    )
    for panel, name in zip(found, own, strict=True):
        if name != reference:
            _draw_lines(panel, plain.assign(std=np.nan), x, colours[reference], dots=False)
        _draw_lines(panel, table[table["method"] == name], x, colours[name], dots)
        ticks(panel.xaxis, forms[0], 3)
        ticks(panel.yaxis, forms[1], 4)
    return found
