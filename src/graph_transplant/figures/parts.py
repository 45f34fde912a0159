"""The generic charts: rows of dots or bars, lines, panels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

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
from graph_transplant.format import number, percent, points

Form = Callable[[float], str]

MANY = 8
"""So many lines can be told apart in one chart; more get a panel each."""

_PHONE = 480  # pixels below which a chart has the layout for phones


def share(value: float) -> str:
    """A share for an axis: in per cent, with a digit only where one is needed."""
    return percent(value, _digit(value), unit=True)


def point(value: float) -> str:
    """A difference of shares for an axis, in points."""
    return points(value, _digit(value))


def _digit(value: float) -> int:
    return int(abs(100 * value - round(100 * value)) > 1e-6)


def exact_share(value: float) -> str:
    """A share in per cent with one digit."""
    return percent(value, unit=True)


def short_number(value: float) -> str:
    """A number for an axis, without more digits than needed."""
    digits = next((d for d in range(4) if abs(value * 10**d - round(value * 10**d)) < 1e-6), 4)
    return number(value, digits)


def is_phone(ax: Axes | None) -> bool:
    """Whether a chart has the room of a phone."""
    return room(ax) < _PHONE


def ticks(axis: Any, form: Form, most: int) -> None:
    """Round ticks, written by ``form``."""
    axis.set_major_locator(MaxNLocator(max(most, 2), steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: form(value)))


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
    joined: bool = False,
    at: float | None = None,
    zero: bool = False,
    band: float = 0.0,
) -> Axes:
    """One row per method: its name, its mean, dots of single trials, and the number in words.

    ``table`` has ``method`` and ``mean``; ``low`` and ``high`` of an interval, ``filled``, and
    ``mark``, a value to see the mean against, where there are. ``dots`` has ``method``, ``key``
    and ``value`` of single trials; those of one key are ``joined`` by a line. The mean is a
    ``"dot"``, a ``"stroke"`` or a ``"bar"``. A reference line stands ``at`` a value, with a grey
    ``band`` around it.
    """
    names = table["method"].tolist()
    wide = room(ax)
    behind = max([text_width(text) for text in [*texts, heading]], default=0.0)
    longest = max(text_width(name, weight=700) for name in names) if names else 0.0
    beside = longest + behind + 40 <= 0.55 * wide
    shown = short(names, longest + 1 if beside else wide - behind - 50)
    row = (38 if len(names) <= MANY else 28) if beside else 54
    ax = canvas(
        ax,
        row * len(names) + 76,
        left=longest + 18 if beside else 20,
        right=behind + 22 if beside else 20,
        top=28,
        bottom=48,
    )
    ax.set_ylim(len(names) - 0.5, -0.5)
    # Names above their rows take the upper half of them.
    y = np.arange(len(names)) + (0.0 if beside else 0.2)
    places = dict(zip(names, y, strict=True))
    if beside:
        ax.set_yticks(y, [shown[name] for name in names], weight=700, size=px(13))
        for label, name in zip(ax.get_yticklabels(), names, strict=True):
            label.set_color(SOFT if colours[name] == REFERENCE else colours[name])
        ax.tick_params(axis="y", pad=px(12))
    else:
        ax.set_yticks([])
        for name, place in places.items():
            colour = SOFT if colours[name] == REFERENCE else colours[name]
            _at_edge(
                ax, 0, place - 0.42, shown[name], 0, "left", color=colour, weight=700, box=True
            )
    edge, lift = (px(behind + 14), 0.0) if beside else (0.0, -0.42)
    for place, text in zip(y, texts, strict=True):
        _at_edge(ax, 1, place + lift, text, edge, "right", size=px(13), box=not beside)
    if heading:
        _at_edge(ax, 1, -0.5, heading, edge, "right", size=px(12), color=SOFT, up=px(8))
    ax.grid(axis="x", color=RULE, linewidth=px(1))
    ticks(ax.xaxis, form, int((wide - (longest + behind if beside else 0)) / 65))
    ax.set_xlabel(axis, color=SOFT, size=px(12.5), labelpad=px(6))
    if at is not None:
        line = {"color": INK, "linewidth": px(1.2)} if zero else _dashed()
        ax.axvline(at, zorder=1.5, **line)
        if band:
            ax.axvspan(at - band, at + band, color=RULE, alpha=0.5, linewidth=0, zorder=0.5)
    if dots is not None:
        _draw_dots(ax, dots, places, colours, kind, joined, row)
    _draw_means(ax, table, places, colours, kind, 9 / row)
    if kind == "bar":
        most = np.nanmax(table[[c for c in ("mean", "high", "mark") if c in table]].to_numpy())
        ax.set_xlim(0, 1.03 * most)
    return ax


def _at_edge(
    ax: Axes, side: int, y: float, text: str, offset: float, align: str, up: float = 0,
    box: bool = False, **style: Any,
) -> None:  # fmt: skip
    """Write a text at the left (0) or right (1) edge of the axes, at a height of its data."""
    if box:  # nothing runs through a name that stands inside the axes
        style["bbox"] = {"facecolor": PAPER, "linewidth": 0, "pad": px(1)}
    ax.annotate(
        text, (side, y), xycoords=ax.get_yaxis_transform(), xytext=(offset, up),
        textcoords="offset points", ha=align, va="center_baseline" if not up else "baseline",
        annotation_clip=False, **style,
    )  # fmt: skip


def _dashed() -> dict[str, Any]:
    return {"color": FAINT, "linewidth": px(1.2), "linestyle": (0, (3, 3))}


def _draw_dots(
    ax: Axes, dots: pd.DataFrame, places: Mapping[str, float], colours: Mapping[str, str],
    kind: str, joined: bool, row: int,
) -> None:  # fmt: skip
    small = kind == "dot"
    dots = dots[dots["method"].isin(places)].dropna(subset="value")
    # Dots that would hide each other are stacked.
    width = (dots["value"].max() - dots["value"].min() or 1.0) / 60
    near = dots.groupby(["method", (dots["value"] / width).round()], sort=False).cumcount()
    step = near.map(lambda n: (n + 1) // 2 * (-1 if n % 2 else 1)) * ((4 if small else 7) / row)
    # Small dots stand below the interval, which would hide them.
    dots = dots.assign(y=dots["method"].map(places) + (step.abs() + 8 / row if small else step))
    if joined:
        for _, one in dots.sort_values("y").groupby("key"):
            ax.plot(one["value"], one["y"], color=FAINT, alpha=0.38, lw=px(1), zorder=1.8)
    for method, own in dots.groupby("method", sort=False):
        ax.scatter(
            own["value"], own["y"], s=px(5 if small else 9) ** 2, color=colours[str(method)],
            alpha=0.55, linewidth=0, zorder=2,
        )  # fmt: skip


def _draw_means(
    ax: Axes, table: pd.DataFrame, places: Mapping[str, float], colours: Mapping[str, str],
    kind: str, half: float,
) -> None:  # fmt: skip
    for row in table.to_dict("records"):
        y, colour, mean = places[row["method"]], colours[row["method"]], row["mean"]
        low, high = row.get("low"), row.get("high")
        if low is not None and low == low and high == high:
            line: dict[str, Any] = {"color": colour, "linewidth": px(2), "zorder": 3}
            if kind == "bar":
                line |= {"color": INK, "linewidth": px(1.2)}
            ax.plot([low, high], [y, y], **line)
            for end in (low, high):
                ax.plot([end, end], [y - half / 2, y + half / 2],
                        **line)  # fmt: skip
        if kind == "stroke":
            ax.plot([mean, mean], [y - half, y + half], color=colour, lw=px(3), zorder=4,
                    solid_capstyle="butt")  # fmt: skip
        elif kind == "bar":
            ax.barh(y, mean, height=1.7 * half, color=colour, alpha=0.68, linewidth=0, zorder=2)
        else:
            filled = bool(row.get("filled", True))
            ax.plot(mean, y, "o", markersize=px(11), zorder=5, markeredgewidth=px(2),
                    markerfacecolor=colour if filled else PAPER, color=colour)  # fmt: skip
        mark = row.get("mark")
        if mark is not None and mark == mark:
            ax.plot(mark, y, "o", markersize=px(8), zorder=5, markeredgewidth=px(1.6),
                    markerfacecolor=PAPER, color=colour)  # fmt: skip


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
    """A line per method; in a panel each where there are too many for one chart.

    ``table`` has ``method``, ``series``, ``x``, ``mean`` and perhaps ``std``. The first series is
    drawn solid, the others dashed and dotted. The reference is grey in all panels.
    """
    names = list(dict.fromkeys(table["method"]))
    crowded = len(names) > MANY or (table["series"].nunique() > 1 and len(names) > 2)
    if crowded:
        return _line_panels(table, names, ax, x, colours, reference, titles, forms, dots)
    wide = room(ax)
    phone = wide < _PHONE
    shown = short(names, wide - 60 if phone else 190)
    label = max(text_width(text, weight=700) for text in shown.values())
    left = _left(table, forms[1])
    below = 20 * len(names) if phone and len(names) > 1 else 0
    ax = canvas(
        ax, (300 if phone else 370) + below,
        left=left, right=16 if phone else label + 34, top=34, bottom=52 + below,
    )  # fmt: skip
    for name in names:
        _draw_lines(ax, table[table["method"] == name], x, colours[name], dots)
    _line_axes(ax, titles, forms, wide)
    _mark_places(ax, table[x], wide - left - (16 if phone else label + 34))
    if not phone:
        _label_ends(ax, table, x, shown, colours)
    elif len(names) > 1:
        for number_, name in enumerate(names):
            ax.annotate(
                f"● {shown[name]}", (0, 0), xycoords="axes fraction",
                xytext=(0, px(-66 - 20 * number_)), textcoords="offset points",
                color=colours[name], weight=700, annotation_clip=False,
            )  # fmt: skip
    return ax


def _mark_places(ax: Axes, values: pd.Series, wide: float) -> None:
    """Put ticks at few measured places; on a log scale where some would touch."""
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


def _left(table: pd.DataFrame, form: Form) -> float:
    """Room for the ticks of the vertical axis."""
    values = [table["mean"].min(), table["mean"].max()]
    return max(44.0, *(text_width(form(float(f"{value:.1g}")), 12) + 16 for value in values))


def _line_axes(ax: Axes, titles: tuple[str, str], forms: tuple[Form, Form], wide: float) -> None:
    ax.grid(axis="y", color=RULE, linewidth=px(1))
    ticks(ax.xaxis, forms[0], int(wide / 90))
    ticks(ax.yaxis, forms[1], 5)
    ax.set_xlabel(titles[0], color=SOFT, size=px(12.5), labelpad=px(6))
    ax.set_title(titles[1], loc="left", color=SOFT, size=px(12.5), pad=px(12), weight=400)


def _draw_lines(
    ax: Axes, own: pd.DataFrame, x: str, colour: str, dots: bool, *, band: bool = True
) -> None:
    looks: list[dict[str, Any]] = [
        {"linewidth": px(2), "zorder": 4},
        {"linewidth": px(1.2), "linestyle": (0, (4, 3)), "zorder": 3},
        {"linewidth": px(1.2), "linestyle": (0, (1, 2)), "zorder": 3},
    ]
    for look, (_, one) in zip(looks, own.groupby("series", sort=False), strict=False):
        first = look is looks[0]
        ax.plot(one[x], one["mean"], color=colour, **look)
        if first and dots:
            ax.plot(one[x], one["mean"], "o", markersize=px(6), color=colour, zorder=4)
        if first and band and "std" in one and one["std"].notna().any():
            std = one["std"].fillna(0)
            ax.fill_between(
                one[x], one["mean"] - std, one["mean"] + std, color=colour, alpha=0.1, linewidth=0
            )


def _label_ends(
    ax: Axes, table: pd.DataFrame, x: str, shown: Mapping[str, str], colours: Mapping[str, str]
) -> None:
    """Write the name of each line at its end, spread so that names do not overlap."""
    first = table["series"].iloc[0]
    ends = {
        name: own.iloc[-1]
        for name, own in table[table["series"] == first].groupby("method", sort=False)
    }
    low, high = ax.get_ylim()
    ax.set_ylim(low, high)
    ax.set_xlim(*ax.get_xlim())
    tall = ax.get_position().height * ax.figure.get_figheight() * 100  # type: ignore[union-attr]
    step = 17 / tall
    order = sorted(ends, key=lambda name: ends[name]["mean"])
    places = spread([(ends[name]["mean"] - low) / (high - low) for name in order], step)
    right = ax.get_xlim()[1]
    for name, place in zip(order, places, strict=True):
        end = ends[name]
        ax.plot(end[x], end["mean"], "o", markersize=px(6), color=colours[name], zorder=5)
        ax.annotate(
            shown[str(name)], (1, place), xycoords="axes fraction", xytext=(px(12), 0),
            textcoords="offset points", va="center_baseline", color=colours[name], weight=700,
            annotation_clip=False,
        )  # fmt: skip
        ax.plot(
            [end[x], right + 0.012 * (right - ax.get_xlim()[0])],
            [end["mean"], low + place * (high - low)],
            color=FAINT, linewidth=px(0.8), clip_on=False, zorder=2,
        )  # fmt: skip


def spread(values: Sequence[float], step: float) -> list[float]:
    """Move ascending values apart by at least ``step``, as little as needed."""
    blocks: list[tuple[float, int]] = []  # centre and number of values
    for value in values:
        centre, count = value, 1
        while blocks and centre - blocks[-1][0] < step * (count + blocks[-1][1]) / 2:
            before, number_ = blocks.pop()
            centre = (centre * count + before * number_) / (count + number_)
            count += number_
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
    left: float = 44,
    axes: tuple[str, str] = ("", ""),
    head: float = 26,
    gap: tuple[float, float] = (26, 14),
    colours: Sequence[str] = (),
    pad: float = 8,
) -> list[Axes]:
    """A grid of axes with a title each, inside the axes given or a new figure.

    ``columns`` are those of a desk and of a phone, ``axes`` the titles of both axes of all panels,
    ``gap`` the pixels between columns and between rows, ``pad`` those between a panel and its
    title.
    """
    wide = room(ax)
    across = min(columns[wide < _PHONE], len(titles))
    rows = -(-len(titles) // across)
    top, bottom = 24 if axes[1] else 0, 40 if axes[0] else 6
    tall = top + bottom + rows * (head + high + gap[1])
    outer = canvas(ax, tall)
    outer.axis("off")
    each = (wide - left - 14 - (across - 1) * gap[0]) / across
    shown = short(list(dict.fromkeys(titles)), each)
    found = []
    for number_, title in enumerate(titles):
        row, column = divmod(number_, across)
        x = left + column * (each + gap[0])
        y = top + head + row * (head + high + gap[1])
        box = (x / wide, 1 - (y + high) / tall, each / wide, high / tall)
        panel = canvas(outer.inset_axes(box), 0)
        panel.xaxis.set_label_coords(0.5, 0)
        colour = colours[number_] if colours else INK
        panel.set_title(shown[title], loc="left", size=px(13), weight=700, pad=px(pad),
                        color=SOFT if colour == REFERENCE else colour)  # fmt: skip
        panel.grid(axis="y", color=RULE, linewidth=px(1))
        found.append(panel)
    outer.text(left / wide, 1 - 13 / tall, axes[1], color=SOFT, size=px(12.5), ha="left",
               transform=outer.transAxes)  # fmt: skip
    outer.text((left + wide) / 2 / wide, 8 / tall, axes[0], color=SOFT, size=px(12.5), ha="center",
               transform=outer.transAxes)  # fmt: skip
    return found


def same_limits(
    found: Sequence[Axes], columns: int, *, sides: Iterable[Literal["x", "y"]] = ("x", "y")
) -> None:
    """Give all panels the same limits; only the outer ones keep their tick labels."""
    for side in sides:
        limits = [getattr(panel, f"get_{side}lim")() for panel in found]
        whole = min(low for low, _ in limits), max(high for _, high in limits)
        for number_, panel in enumerate(found):
            getattr(panel, f"set_{side}lim")(*whole)
            inner = number_ % columns if side == "y" else number_ + columns < len(found)
            if inner and side == "x":
                panel.xaxis.set_major_locator(NullLocator())
            elif inner:
                panel.tick_params(axis=side, labelleft=False)


def _line_panels(
    table: pd.DataFrame, names: Sequence[str], ax: Axes | None, x: str,
    colours: Mapping[str, str], reference: str, titles: tuple[str, str],
    forms: tuple[Form, Form], dots: bool,
) -> list[Axes]:  # fmt: skip
    plain = table[(table["method"] == reference) & (table["series"] == table["series"].iloc[0])]
    own = [name for name in names if name != reference or table["series"].nunique() > 1]
    columns = (3, 2)
    phone = room(ax) < _PHONE
    found = panels(
        own, ax, columns=columns, high=90 if phone else 96, left=_left(table, forms[1]),
        axes=titles, colours=[colours[name] for name in own],
    )  # fmt: skip
    for panel, name in zip(found, own, strict=True):
        if name != reference:
            _draw_lines(panel, plain, x, colours[reference], dots=False, band=False)
        _draw_lines(panel, table[table["method"] == name], x, colours[name], dots)
        ticks(panel.xaxis, forms[0], 3)
        ticks(panel.yaxis, forms[1], 4)
    same_limits(found, min(columns[phone], len(own)))
    return found


def bar_columns(
    names: Sequence[str],
    columns: Mapping[str, tuple[Sequence[float], Sequence[float] | None, Form]],
    ax: Axes | None,
    *,
    colours: Mapping[str, str],
) -> list[Axes]:
    """Several measurements side by side: a column of bars each, a row per method.

    ``columns`` has, by title, the values, what they are seen against or nothing, and how they are
    written.
    """
    phone = is_phone(ax)
    wide = room(ax)
    longest = max(text_width(name, weight=700) for name in names)
    left = 12.0 if phone else min(longest + 18, 0.34 * wide)
    shown = short(names, wide - 24 if phone else left - 18)
    high = (46 if phone else 30) * len(names) + 4.0
    found = panels(
        list(columns), ax, columns=(len(columns), len(columns)), high=high, left=left,
        head=48 if phone else 30, gap=(14, 26), colours=[SOFT] * len(columns),
    )  # fmt: skip
    y = np.arange(len(names)) + (0.2 if phone else 0.0)
    half = 0.3 if not phone else 0.2
    for panel, (title, (values, against, form)) in zip(found, columns.items(), strict=True):
        panel.grid(visible=False)
        panel.spines["bottom"].set_visible(False)
        panel.barh(y, values, height=2 * half, color=[colours[name] for name in names], alpha=0.68,
                   linewidth=0, zorder=2)  # fmt: skip
        ends = np.array(values, dtype=float)
        if against is not None:
            for place, mark, name in zip(y, against, names, strict=True):
                panel.plot(mark, place, "o", markersize=px(7), markeredgewidth=px(1.5), zorder=4,
                           markerfacecolor=PAPER, color=colours[name], clip_on=False)  # fmt: skip
            ends = np.fmax(ends, np.array(against, dtype=float))
        top = np.nanmax(ends) or 1.0
        # Room for the numbers behind the bars.
        panel.set_xlim(0, top * (2.2 if phone else 1.65))
        for place, value, end in zip(y, values, ends, strict=True):
            if value == value:
                panel.annotate(form(value), (end, place), xytext=(px(7), 0),
                               textcoords="offset points", va="center_baseline",
                               size=px(11 if phone else 12))  # fmt: skip
        panel.set_ylim(len(names) - 0.5, -0.5)
        panel.set_xticks([])
        panel.set_yticks([])
        panel.set_title(_two_lines(title) if phone else title, loc="left", size=px(12), color=SOFT,
                        weight=400)  # fmt: skip
    for place, name in zip(y, names, strict=True):
        colour = SOFT if colours[name] == REFERENCE else colours[name]
        if phone:
            _at_edge(found[0], 0, place - 0.4, shown[name], 0, "left", color=colour, weight=700)
        else:
            _at_edge(found[0], 0, place, shown[name], px(-10), "right", color=colour, weight=700)
    return found


def _two_lines(title: str) -> str:
    return title.replace(" ", "\n", 1)
