"""Generic charts: rows of dots or bars, lines, panels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from graph_transplant.figures.style import (
    FAINT,
    INK,
    PAPER,
    REFERENCE,
    RULE,
    SOFT,
    canvas,
    px,
    room,
    short,
    text_width,
)
from graph_transplant.utils.text import number, percent, points

Form = Callable[[float], str]

MANY = 8  # most lines in one chart; more get a panel each

DASHED: dict[str, Any] = {"color": FAINT, "linewidth": px(1.2), "linestyle": (0, (3, 3))}

_PHONE = 480  # charts narrower than this, in pixels, use the phone layout
_LOOKS: list[dict[str, Any]] = [
    {"linewidth": px(2), "zorder": 4},
    {"linewidth": px(1.2), "linestyle": (0, (4, 3)), "zorder": 3},
    {"linewidth": px(1.2), "linestyle": (0, (1, 2)), "zorder": 3},
]  # line styles of the first, second and third series


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
    colours: Mapping[str, str],
    axis: str,
    form: Form,
    kind: str,
    texts: Sequence[str],
    heading: str = "",
    dots: pd.DataFrame | None = None,
    at: float | None = None,
    band: float | None = None,
) -> Axes:
    """One row per method: its name, mean, single trials, and text.

    ``table`` has the columns ``method`` and ``mean``, optionally ``low`` and ``high`` (an
    interval), ``filled``, and ``mark`` (a value to compare with). ``kind`` draws the mean as a
    ``"dot"``, ``"stroke"`` or ``"bar"``. ``dots`` are single trials with ``method``, ``key`` and
    ``value``; with strokes, lines connect dots of the same key. ``at`` draws a dashed vertical
    line; with ``band`` the line is solid, inside a grey band of this half-width.
    """
    names = table["method"].tolist()
    wide = room(ax)
    behind = max(text_width(text) for text in [*texts, heading])
    longest = max(text_width(name, weight=700) for name in names)
    beside = longest + behind + 40 <= 0.55 * wide
    shown = short(names, longest + 1 if beside else wide - behind - 50)
    row = (38 if len(names) <= MANY else 28) if beside else 54
    left, right = (longest + 18, behind + 22) if beside else (20, 20)
    ax = canvas(ax, row * len(names) + 76, left=left, right=right, top=28, bottom=48)
    ax.set(ylim=(len(names) - 0.5, -0.5), yticks=[])
    # Names and numbers that do not fit beside their rows go above them.
    y = np.arange(len(names)) + (0.0 if beside else 0.2)
    places = dict(zip(names, y, strict=True))
    lift, before, after = (0.0, px(-12), px(behind + 14)) if beside else (-0.42, 0.0, 0.0)
    for (name, place), text in zip(places.items(), texts, strict=True):
        colour = SOFT if colours[name] == REFERENCE else colours[name]
        side = "right" if beside else "left"
        _write(ax, 0, place + lift, shown[name], before, side, color=colour, weight=700)
        _write(ax, 1, place + lift, text, after, "right")
    _write(ax, 1, -0.5, heading, after, "right", up=px(14), size=px(12), color=SOFT)
    ax.grid(axis="x", color=RULE, linewidth=px(1))
    ticks(ax.xaxis, form, int((wide - (longest + behind if beside else 0)) / 65))
    ax.set_xlabel(axis, color=SOFT, size=px(12.5), labelpad=px(6))
    if at is not None:
        line = DASHED if band is None else {"color": INK, "linewidth": px(1.2)}
        ax.axvline(at, zorder=1.5, **line)
        ax.axvspan(at - (band or 0), at + (band or 0), color=RULE, alpha=0.5, lw=0, zorder=0.5)
    if dots is not None:
        _draw_dots(ax, dots, places, colours, kind, row)
    for one in table.to_dict("records"):
        _draw_mean(ax, one, places[one["method"]], colours[one["method"]], kind, 9 / row)
    if kind == "bar":
        most = np.nanmax(table[[c for c in ("mean", "high", "mark") if c in table]].to_numpy())
        ax.set_xlim(0, 1.03 * most)
    return ax


def _write(
    ax: Axes, side: int, y: float, text: str, offset: float, align: str, *, up: float = 0,
    **look: Any,
) -> None:  # fmt: skip
    """Write a text at the left (0) or right (1) edge of the axes; ``y`` in data coordinates."""
    if not offset:  # inside the axes: hide the lines behind the text
        look["bbox"] = {"facecolor": PAPER, "linewidth": 0, "pad": px(1)}
    ax.annotate(
        text, (side, y), xycoords=ax.get_yaxis_transform(), xytext=(offset, up),
        textcoords="offset points", ha=align, va="center_baseline", annotation_clip=False, **look,
    )  # fmt: skip


def _draw_dots(
    ax: Axes, dots: pd.DataFrame, places: Mapping[str, float], colours: Mapping[str, str],
    kind: str, row: int,
) -> None:  # fmt: skip
    small = kind == "dot"
    dots = dots[dots["method"].isin(places)].dropna(subset="value")
    # Stack overlapping dots.
    width = (dots["value"].max() - dots["value"].min() or 1.0) / 60
    near = dots.groupby(["method", (dots["value"] / width).round()], sort=False).cumcount()
    step = near.map(lambda n: (n + 1) // 2 * (-1 if n % 2 else 1)) * ((4 if small else 7) / row)
    # Small dots go below the interval, which would hide them.
    dots = dots.assign(y=dots["method"].map(places) + (step.abs() + 8 / row if small else step))
    if kind == "stroke":
        for _, one in dots.sort_values("y").groupby("key"):
            ax.plot(one["value"], one["y"], color=FAINT, alpha=0.38, lw=px(1), zorder=1.8)
    for method, own in dots.groupby("method", sort=False):
        size = px(5 if small else 9) ** 2
        ax.scatter(own["value"], own["y"], s=size, color=colours[str(method)], alpha=0.55,
                   linewidth=0, zorder=2)  # fmt: skip


def _draw_mean(
    ax: Axes, row: Mapping[Any, Any], y: float, colour: str, kind: str, half: float
) -> None:
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


# -------------------------------------------------------------------- lines


def line_chart(
    table: pd.DataFrame,
    ax: Axes | None,
    *,
    x: str,
    colours: Mapping[str, str],
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
    phone = wide < _PHONE
    ends = [float(f"{value:.1g}") for value in (table["mean"].min(), table["mean"].max())]
    left = max(44.0, *(text_width(forms[1](value), 12) + 16 for value in ends))
    if len(names) > MANY or (table["series"].nunique() > 1 and len(names) > 2):
        return _line_panels(table, names, ax, x, colours, reference, titles, forms, dots, left)
    shown = short(names, wide - 60 if phone else 190)
    right = 16.0 if phone else max(text_width(text, weight=700) for text in shown.values()) + 34
    below = 20 * len(names) if phone and len(names) > 1 else 0
    height = (300 if phone else 370) + below
    ax = canvas(ax, height, left=left, right=right, top=34, bottom=52 + below)
    for name in names:
        _draw_lines(ax, table[table["method"] == name], x, colours[name], dots)
    ax.grid(axis="y", color=RULE, linewidth=px(1))
    ticks(ax.xaxis, forms[0], int(wide / 90))
    ticks(ax.yaxis, forms[1], 5)
    ax.set_xlabel(titles[0], color=SOFT, size=px(12.5), labelpad=px(6))
    ax.set_title(titles[1], loc="left", color=SOFT, size=px(12.5), pad=px(12), weight=400)
    _mark_places(ax, table[x], wide - left - right)
    if not phone:
        _label_ends(ax, table[table["series"] == table["series"].iloc[0]], x, shown, colours)
    elif below:
        for place, name in enumerate(names):
            legend_row(ax, place, shown[name], colours[name])
    return ax


def legend_row(ax: Axes, place: int, text: str, colour: str) -> None:
    """Write a name below the axes, in its colour."""
    ax.annotate(
        f"● {text}", (0, 0), xycoords="axes fraction", xytext=(0, px(-66 - 20 * place)),
        textcoords="offset points", color=colour, weight=700, annotation_clip=False,
    )  # fmt: skip


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


def _label_ends(
    ax: Axes, table: pd.DataFrame, x: str, shown: Mapping[str, str], colours: Mapping[str, str]
) -> None:
    ends = table.groupby("method").last().sort_values("mean")
    low, high = ax.get_ylim()
    tall = ax.get_position().height * ax.figure.get_figheight() * 100  # type: ignore[union-attr]
    places = spread(((ends["mean"] - low) / (high - low)).tolist(), 17 / tall)
    first, last = ax.get_xlim()
    ax.set(xlim=(first, last), ylim=(low, high))
    for (name, end), place in zip(ends.iterrows(), places, strict=True):
        colour = colours[str(name)]
        ax.plot(end[x], end["mean"], "o", markersize=px(6), color=colour, zorder=5)
        ax.annotate(shown[str(name)], (1, place), xycoords="axes fraction", xytext=(px(12), 0),
                    textcoords="offset points", va="center_baseline", color=colour, weight=700,
                    annotation_clip=False)  # fmt: skip
        ax.plot([end[x], last + 0.012 * (last - first)], [end["mean"], low + place * (high - low)],
                color=FAINT, linewidth=px(0.8), clip_on=False, zorder=2)  # fmt: skip


def spread(values: Sequence[float], step: float) -> list[float]:
    """Move ascending values apart by at least ``step``, as little as needed."""
    blocks: list[tuple[float, int]] = []  # centre and number of values
    for value in values:
        centre, count = value, 1
        while blocks and centre - blocks[-1][0] < step * (count + blocks[-1][1]) / 2:
            before, members = blocks.pop()
            centre = (centre * count + before * members) / (count + members)
            count += members
        blocks.append((centre, count))
    return [
        round(centre + step * (place - (count - 1) / 2), 6)
        for centre, count in blocks
        for place in range(count)
    ]


# -------------------------------------------------------------------- panels


def panels(
    titles: Sequence[str],
    ax: Axes | None,
    *,
    columns: tuple[int, int],
    high: float,
    axes: tuple[str, str],
    colours: Sequence[str],
    left: float = 44,
    head: float = 26,
) -> list[Axes]:
    """Create a grid of titled axes with shared limits, inside ``ax`` or a new figure.

    ``columns`` are the numbers of columns on desktop and phone, ``axes`` the axis titles of all
    panels; ``head`` is the space above each panel in pixels.
    """
    wide = room(ax)
    across = min(columns[wide < _PHONE], len(titles))
    step = head + high + 14
    tall = 64 + -(-len(titles) // across) * step
    outer = canvas(ax, tall)
    outer.axis("off")
    each = (wide - left - 14 - (across - 1) * 26) / across
    shown = short(titles, each)
    found: list[Axes] = []
    for place, title in enumerate(titles):
        row, column = divmod(place, across)
        x, y = left + column * (each + 26), 24 + head + row * step
        box = (x / wide, 1 - (y + high) / tall, each / wide, high / tall)
        panel = canvas(outer.inset_axes(box), 0)
        if found:
            panel.sharex(found[0])
            panel.sharey(found[0])
        panel.xaxis.set_label_coords(0.5, 0)
        colour = SOFT if colours[place] == REFERENCE else colours[place]
        panel.set_title(shown[title], loc="left", size=px(13), weight=700, color=colour,
                        pad=px(head - 18))  # fmt: skip
        panel.grid(axis="y", color=RULE, linewidth=px(1))
        # Only the outer panels keep their tick labels.
        panel.tick_params(labelleft=column == 0, labelbottom=place + across >= len(titles))
        found.append(panel)
    look: dict[str, Any] = {"color": SOFT, "size": px(12.5), "transform": outer.transAxes}
    outer.text(left / wide, 1 - 13 / tall, axes[1], ha="left", **look)
    outer.text((left + wide) / 2 / wide, 8 / tall, axes[0], ha="center", **look)
    return found


def _line_panels(
    table: pd.DataFrame, names: Sequence[str], ax: Axes | None, x: str,
    colours: Mapping[str, str], reference: str, titles: tuple[str, str],
    forms: tuple[Form, Form], dots: bool, left: float,
) -> list[Axes]:  # fmt: skip
    first = table["series"].iloc[0]
    plain = table[(table["method"] == reference) & (table["series"] == first)]
    own = [name for name in names if name != reference or table["series"].nunique() > 1]
    found = panels(
        own, ax, columns=(3, 2), high=96, left=left, axes=titles,
        colours=[colours[name] for name in own],
    )  # fmt: skip
    for panel, name in zip(found, own, strict=True):
        if name != reference:
            _draw_lines(panel, plain.assign(std=np.nan), x, colours[reference], dots=False)
        _draw_lines(panel, table[table["method"] == name], x, colours[name], dots)
        ticks(panel.xaxis, forms[0], 3)
        ticks(panel.yaxis, forms[1], 4)
    return found
