"""Charts with two axes: those of a model card, those of a comparison's studies and the paper's.

As in :mod:`graph_transplant.report.svg`, a phone gets a drawing of its own, and colours are CSS
classes of the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from graph_transplant.report.drawing import shortened
from graph_transplant.report.figures import BarGroup, Bin, Line, Reliability, Sensitivity, Spread
from graph_transplant.report.names import short_names
from graph_transplant.report.svg import (
    NARROW,
    Drawing,
    Format,
    Scale,
    padded,
    percent,
    shares,
    spaced,
    ticks,
)

Point = tuple[float, float]

FEW_LINES = 4
"""So many lines share a chart; more get a panel each."""

COLOURED_CURVES = 8
"""So many ROC curves have a colour and a name each; more are drawn alike."""


class _Frame:
    """Two axes with their grids and titles."""

    def __init__(
        self,
        *,
        width: int,
        label: str,
        across: tuple[float, float],
        up: tuple[float, float],
        titles: tuple[str, str],
        forms: tuple[Format, Format],
        square: bool,
        room: float = 0.0,
    ) -> None:
        narrow = width <= NARROW
        side = min(width - 24.0, 400.0)
        left, top = 52.0, 30.0
        right = side if square else width - 16.0
        bottom = top + (right - left if square else 200.0 if narrow else 230.0)
        self.narrow = narrow
        self.left, self.top, self.right, self.bottom = left, top, right, bottom
        # A square figure has its legend beside it, or below it on a phone.
        beside = square and not narrow
        self.legend = (right + 32.0, top + 14.0) if beside else (left, bottom + 62.0)
        self.drawing = Drawing(width, bottom + 44 + (0 if beside else room), label)
        self.across = Scale(*across, left, right)
        self.up = Scale(*up, bottom, top)
        for value in ticks(self.up.low, self.up.high, 5):
            y = self.up(value)
            self.drawing.line(left, y, right, y, "grid")
            self.drawing.text(left - 8, y + 4, forms[1](value), "tick", "end")
        for value in ticks(self.across.low, self.across.high, 4 if narrow else 5):
            x = self.across(value)
            if square:
                self.drawing.line(x, top, x, bottom, "grid")
            self.drawing.text(x, bottom + 17, forms[0](value), "tick", "middle")
        self.drawing.line(left, bottom, right, bottom, "axis")
        self.drawing.text(4, 14, titles[1], "title")
        self.drawing.text((left + right) / 2, bottom + 37, titles[0], "title", "middle")

    def places(self, points: Sequence[Point]) -> list[Point]:
        return [(self.across(x), self.up(y)) for x, y in points]

    def key(self, number: int, name: str, kind: str, note: str = "") -> None:
        """Name a curve in the legend."""
        x, y = self.legend
        y += 22 * number
        self.drawing.line(x, y - 4, x + 22, y - 4, f"curve {kind}")
        self.drawing.text(x + 30, y, name, f"name {kind}", most=26)
        if note:
            self.drawing.text(x + 30, y + 16, note, "tick")


def draw_learning(
    series: Mapping[str, Sequence[Point]],
    *,
    width: int,
    axis: str,
    form: Format,
    label: str,
    best: float | None = None,
) -> Markup:
    """Draw values by epoch.

    Args:
        series: Points (epoch, value) of each line by name; at least one point in all.
        width: Width in pixels.
        axis: Title of the upright axis.
        form: How to write a value.
        label: What the figure shows, in words.
        best: The epoch whose weights were kept.

    Example:
        >>> drawn = draw_learning({"train": [(1, 0.5), (2, 0.4)]}, width=350, axis="Loss",
        ...                       form=str, label="loss", best=2)
        >>> drawn.count("<polyline")
        1
    """
    points = [point for line in series.values() for point in line]
    legend = len(series) > 1
    frame = _Frame(
        width=width,
        label=label,
        across=(min(x for x, _ in points), max(x for x, _ in points)),
        up=padded([y for _, y in points]),
        titles=("Epoch", axis),
        forms=(lambda value: f"{value:g}", form),
        square=False,
        room=22.0 * len(series) + 8 if legend else 0.0,
    )
    if best is not None:
        x = frame.across(best)
        frame.drawing.line(x, frame.top, x, frame.bottom, "reference")
        near_end = x > (frame.left + frame.right) / 2
        anchor, shift = ("end", -6) if near_end else ("start", 6)
        frame.drawing.text(x + shift, frame.top + 10, f"kept: epoch {best:g}", "tick", anchor)
    for number, (name, line) in enumerate(series.items()):
        kind = f"c{(0, 1, 2)[number % 3]}" if legend else "c1"
        if line:
            frame.drawing.path(frame.places(line), f"curve {kind}")
        if legend:
            frame.key(number, name, kind)
    return frame.drawing.render()


def draw_reliability(
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    *,
    width: int,
    label: str,
) -> Markup:
    """Draw how often the model is right against how sure it is.

    Args:
        before: Bins with ``confidence``, ``accuracy`` and ``count``, as the network gives them.
        after: The same after temperature scaling.
        width: Width in pixels.
        label: What the figure shows, in words.

    Example:
        >>> bins = [{"confidence": 0.9, "accuracy": 0.7, "count": 12}]
        >>> draw_reliability(bins, bins, width=350, label="reliability").count("<circle")
        4
    """
    frame = _Frame(
        width=width,
        label=label,
        across=(0.0, 1.0),
        up=(0.0, 1.0),
        titles=("Stated confidence", "Share that is right"),
        forms=(percent, percent),
        square=True,
        room=60.0,
    )
    frame.drawing.path(frame.places([(0.0, 0.0), (1.0, 1.0)]), "reference")
    most = max((one["count"] for one in [*before, *after]), default=0)
    for bins, kind in ((before, "c0"), (after, "c1")):
        full = [one for one in bins if one["count"] and one["accuracy"] is not None]
        points = frame.places([(one["confidence"], one["accuracy"]) for one in full])
        frame.drawing.path(points, f"thin {kind}")
        for (x, y), one in zip(points, full, strict=True):
            tip = (
                f"{one['count']} predictions: {percent(one['confidence'])} sure, "
                f"{percent(one['accuracy'])} right"
            )
            # Area goes with the number of predictions: a small dot may lie anywhere by chance.
            radius = 2.0 + 7.0 * (one["count"] / most) ** 0.5
            frame.drawing.dot(x, y, radius, f"bubble {kind}", tip)
    for number, (name, kind) in enumerate((("before calibration", "c0"), ("after", "c1"))):
        x, y = frame.legend
        y += 22 * number
        frame.drawing.dot(x + 11, y - 4, 6, f"bubble {kind}")
        frame.drawing.text(x + 30, y, name, f"name {kind}")
    return frame.drawing.render()


def draw_roc(curves: Mapping[str, Sequence[Sequence[float]]], *, width: int, label: str) -> Markup:
    """Draw ROC curves, one per label.

    Args:
        curves: Pairs (false positive rate, true positive rate) by label.
        width: Width in pixels.
        label: What the figure shows, in words.

    Example:
        >>> draw_roc({"toxic": [[0, 0], [0.2, 0.7], [1, 1]]}, width=350, label="ROC").count("curve")
        2
    """
    named = len(curves) <= COLOURED_CURVES
    frame = _Frame(
        width=width,
        label=label,
        across=(0.0, 1.0),
        up=(0.0, 1.0),
        titles=("False alarms: share of the others", "Found: share of those with the label"),
        forms=(percent, percent),
        square=True,
        room=22.0 * len(curves) + 8 if named else 8.0,
    )
    frame.drawing.path(frame.places([(0.0, 0.0), (1.0, 1.0)]), "reference")
    for number, (name, curve) in enumerate(curves.items()):
        kind = f"c{number % COLOURED_CURVES + 1}" if named else "c1"
        points = frame.places([(float(x), float(y)) for x, y in curve])
        frame.drawing.path(points, f"curve {kind}" if named else f"thin {kind}")
        if named:
            frame.key(number, shortened(name, 26), kind)
    return frame.drawing.render()


def draw_scatter(
    points: Sequence[Sequence[float]], *, width: int, name: str, label: str, form: Format
) -> Markup:
    """Draw predicted against true values.

    Args:
        points: Pairs (true, predicted), at least one.
        width: Width in pixels.
        name: What the values are called.
        label: What the figure shows, in words.
        form: How to write a value.

    Example:
        >>> drawn = draw_scatter([[1, 1.5], [2, 1.8]], width=350, name="pIC50", label="values",
        ...                      form=str)
        >>> drawn.count("<circle")
        2
    """
    values = [float(value) for point in points for value in point]
    domain = padded(values)
    short = shortened(name, 22)
    frame = _Frame(
        width=width,
        label=label,
        across=domain,
        up=domain,
        titles=(f"Measured {short}", f"Predicted {short}"),
        forms=(form, form),
        square=True,
    )
    frame.drawing.path(frame.places([(domain[0], domain[0]), (domain[1], domain[1])]), "reference")
    for true, predicted in points:
        tip = f"measured {form(float(true))}, predicted {form(float(predicted))}"
        x, y = frame.across(float(true)), frame.up(float(predicted))
        frame.drawing.dot(x, y, 3, "faint c1", tip)
    return frame.drawing.render()


class _Across:
    """The axis of places that were measured, with a mark at each of them if they are few.

    Few places of which some would nearly touch, such as 1 %, 5 % and 100 % of the data, are drawn
    on a log scale.
    """

    def __init__(self, places: Sequence[float], start: float, end: float) -> None:
        self.places = sorted(set(places))
        first, last = self.places[0], self.places[-1]
        gaps = [right - left for left, right in pairwise(self.places)]
        self.powers = first > 0 and len(gaps) in range(1, 8) and min(gaps) < (last - first) / 8
        self._scale = Scale(self._warped(first), self._warped(last), start, end)

    @property
    def note(self) -> str:
        """What must be told with the name of the axis."""
        return " (log scale)" if self.powers else ""

    def _warped(self, place: float) -> float:
        return math.log(place) if self.powers else place

    def __call__(self, place: float) -> float:
        """Give the pixel of a place."""
        return self._scale(self._warped(place))

    def marks(self, room: float) -> list[float]:
        """Choose the places that are written, so far apart that their numbers do not touch."""
        given = self.places
        if len(given) > 8:
            most = int((self._scale.end - self._scale.start) / room / 1.5)
            given = ticks(given[0], given[-1], max(2, most))
        kept: list[float] = []
        for place in given:
            if not kept or self(place) - self(kept[-1]) >= room:
                kept.append(place)
            elif place == given[-1]:
                kept[-1] = place  # the end of the axis matters more than what stands before it
        return kept


class _Grid:
    """Panels of one size, row by row."""

    def __init__(
        self, width: int, count: int, *, top: float, gap: float, head: float, square: bool = False
    ) -> None:
        narrow = width <= NARROW
        most = 2 if narrow else 4 if square and count > 3 else 3
        self.columns = min(most, count) if not narrow else min(2, count)
        self.left = 54.0
        room = width - self.left - 6 - gap * (self.columns - 1)
        self.wide = min(room / self.columns, 230.0 if square else 400.0)
        self.tall = self.wide if square else 110.0 if self.columns > 1 else 190.0
        self.head, self.gap, self.top = head, gap, top
        self.count = count
        self.lines = -(-count // self.columns)

    def corner(self, number: int, pitch: float) -> Point:
        """Give the upper left corner of a panel."""
        x = self.left + (self.wide + self.gap) * (number % self.columns)
        return x, self.top + self.head + pitch * (number // self.columns)

    def letters(self) -> int:
        """Give the number of letters of a name that fit over a panel."""
        return max(4, int(self.wide / 7.8))

    def lowest(self, number: int) -> bool:
        """Tell whether no panel stands below this one."""
        return number + self.columns >= self.count

    @property
    def middle(self) -> float:
        """The middle of all panels."""
        return self.left + (self.columns * (self.wide + self.gap) - self.gap) / 2


def _ends(lines: Sequence[Line]) -> list[float]:
    """Give every number that lines and their bands reach."""
    found = []
    for line in lines:
        for value in line.values:
            room = 0.0 if line.control else value.std or 0.0
            found += [value.mean - room, value.mean + room]
    return found


def _draw_line(
    drawing: Drawing,
    line: Line,
    across: _Across,
    up: Scale,
    kind: str,
    tip: Callable[[float, Spread], str] | None,
    *,
    band: bool = True,
) -> None:
    points = [
        (across(place), up(value.mean))
        for place, value in zip(line.places, line.values, strict=True)
    ]
    if line.control:
        drawing.path(points, f"control {kind}")
        return
    if band and len(points) > 1 and any(value.std for value in line.values):
        # Not beyond the axis: a share is not above 1, however widely it is spread.
        edges = [
            (x, *(up(min(up.high, max(up.low, value.mean + side))) for side in (-std, std)))
            for (x, _), value in zip(points, line.values, strict=True)
            for std in (value.std or 0.0,)
        ]
        outline = [(x, high) for x, _, high in edges] + [(x, low) for x, low, _ in edges[::-1]]
        drawing.area(outline, f"band {kind}")
    drawing.path(points, f"curve {kind}")
    if len(points) <= 8:
        for (x, y), place, value in zip(points, line.places, line.values, strict=True):
            drawing.dot(x, y, 3, f"end {kind}", tip(place, value) if tip else "")


def draw_lines(
    lines: Sequence[Line],
    *,
    width: int,
    colours: Mapping[str, str],
    titles: tuple[str, str],
    forms: tuple[Format, Format],
    exact: Format,
    label: str,
    baseline: str,
) -> Markup:
    """Draw means over an axis with bands of one standard deviation, controls dashed.

    More than :data:`FEW_LINES` methods get a panel each, with the baseline's line in all of them.

    Args:
        lines: The lines, at least one; a method's control has the method's name.
        width: Width in pixels.
        colours: CSS class of each method.
        titles: Titles of the two axes: across and up.
        forms: How to write values of the two axes.
        exact: How to write a mean.
        label: What the figure shows, in words.
        baseline: The method that the others are seen against.

    Example:
        >>> line = Line("vanilla", (0.0, 0.2), (Spread(0.7, 0.1, 5), Spread(0.5, 0.1, 5)))
        >>> drawn = draw_lines([line], width=350, colours={"vanilla": "c0"},
        ...                    titles=("Budget", "Accuracy"), forms=(str, str), exact=str,
        ...                    label="robustness", baseline="vanilla")
        >>> drawn.count("<polygon"), drawn.count("<polyline")
        (1, 1)
    """
    names = list(dict.fromkeys(line.name for line in lines))
    if len(names) > FEW_LINES:
        plain = [line for line in lines if line.name == baseline and not line.control]
        controlled = any(line.control for line in lines)
        panels = {}
        for name in names:
            # Where there are no controls the baseline's panel would show what all others show.
            if name != baseline or controlled:
                own = [line for line in lines if line.name == name]
                panels[name] = [*(plain if name != baseline else ()), *own]
        return draw_line_panels(
            panels,
            width=width,
            colours=colours,
            heads={name: colours[name] for name in panels},
            titles=titles,
            forms=forms,
            exact=exact,
            label=label,
        )
    narrow = width <= NARROW
    top, left = 30.0 + (20.0 * len(names) if narrow else 0.0), 54.0
    right = width - (22.0 if narrow else 182.0)
    bottom = top + (200.0 if narrow else 250.0)
    drawing = Drawing(width, bottom + 44, label)
    across = _Across([place for line in lines for place in line.places], left + 6, right)
    up = Scale(*shares(_ends(lines)), bottom, top)
    for value in ticks(up.low, up.high, 5):
        drawing.line(left, up(value), right, up(value), "grid")
        drawing.text(left - 8, up(value) + 4, forms[1](value), "tick", "end")
    for place in across.marks(44):
        drawing.text(across(place), bottom + 17, forms[0](place), "tick", "middle")
    drawing.line(left, bottom, right, bottom, "axis")
    drawing.text(4, 14, titles[1], "title")
    drawing.text((left + right) / 2, bottom + 37, titles[0] + across.note, "title", "middle")
    for line in sorted(lines, key=lambda line: line.name != baseline):
        _draw_line(drawing, line, across, up, colours[line.name], _tips(line, forms[0], exact))
    firsts: dict[str, Line] = {}
    for line in sorted(lines, key=lambda line: line.control):
        firsts.setdefault(line.name, line)
    short = short_names(names, 30 if narrow else 22)
    if narrow:
        for number, name in enumerate(names):
            y = 36.0 + 20 * number
            drawing.line(left, y - 4, left + 22, y - 4, f"curve {colours[name]}")
            drawing.text(left + 30, y, short[name], f"name {colours[name]}", full=name)
    else:
        ends = [up(firsts[name].values[-1].mean) for name in names]
        for name, end, y in zip(names, ends, spaced(ends, 18, top, bottom), strict=True):
            if abs(end - y) > 3:
                drawing.path([(right + 4, end), (right + 11, y)], "leader")
            drawing.text(right + 14, y + 4, short[name], f"name {colours[name]}", full=name)
    return drawing.render()


def _tips(line: Line, form: Format, exact: Format) -> Callable[[float, Spread], str]:
    def tip(place: float, value: Spread) -> str:
        return f"{line.name}, {form(place)}: {_worded(value, exact)}"

    return tip


def _worded(value: Spread, exact: Format) -> str:
    return exact(value.mean) + ("" if value.std is None else f" ± {exact(value.std)}")


def draw_line_panels(
    panels: Mapping[str, Sequence[Line]],
    *,
    width: int,
    colours: Mapping[str, str],
    heads: Mapping[str, str],
    titles: tuple[str, str],
    forms: tuple[Format, Format],
    exact: Format,
    label: str,
    legend: Sequence[str] = (),
    shared: bool = True,
) -> Markup:
    """Draw panels of lines, all to one scale.

    Args:
        panels: The lines of each panel by its title, at least one line in all.
        width: Width in pixels.
        colours: CSS class of each line's name.
        heads: CSS class of each panel's title.
        titles: Titles of the two axes: across and up.
        forms: How to write values of the two axes.
        exact: How to write a mean.
        label: What the figure shows, in words.
        legend: Names of lines to explain above the panels.
        shared: Whether the axis across is the same for all panels, too.

    Example:
        >>> line = Line("gcs", (1.0, 9.0), (Spread(0.5, None, 1), Spread(0.8, None, 1)))
        >>> drawn = draw_line_panels({"ENZYMES": [line], "NCI1": [line]}, width=720,
        ...                          colours={"gcs": "c1"}, heads={"ENZYMES": "", "NCI1": ""},
        ...                          titles=("Epoch", "Accuracy"), forms=(str, str), exact=str,
        ...                          label="edge predictor", legend=["gcs"])
        >>> drawn.count("<polyline"), drawn.count(">gcs<")
        (2, 1)
    """
    every = [line for lines in panels.values() for line in lines]
    keys = _Legend(width, [(name, colours[name]) for name in legend], 54.0)
    grid = _Grid(width, len(panels), top=22.0 + keys.tall, gap=18.0, head=22.0)
    pitch = grid.tall + 46
    drawing = Drawing(width, grid.top + pitch * grid.lines + 22, label)
    drawing.text(4, 14, titles[1], "title")
    keys.draw(drawing, 34.0)
    low, high = shares(_ends(every))
    short = short_names(panels, grid.letters())
    for number, (title, lines) in enumerate(panels.items()):
        x, y = grid.corner(number, pitch)
        places = [place for line in (every if shared else lines) for place in line.places]
        across, up = _Across(places, x + 4, x + grid.wide - 4), Scale(low, high, y + grid.tall, y)
        for value in ticks(low, high, 3 if grid.columns > 1 else 5):
            drawing.line(x, up(value), x + grid.wide, up(value), "grid")
            if number % grid.columns == 0:
                drawing.text(grid.left - 8, up(value) + 4, forms[1](value), "tick", "end")
        drawing.line(x, y + grid.tall, x + grid.wide, y + grid.tall, "axis")
        for position, line in enumerate(lines):
            # Of the lines drawn for comparison the last, the panel's own, has the band.
            own = position == len(lines) - 1 or line.name == title
            tip = _tips(line, forms[0], exact)
            _draw_line(drawing, line, across, up, colours[line.name], tip, band=own)
        drawing.text(x, y - 8, short[title], f"name {heads[title]}", full=title)
        if grid.lowest(number) or not shared:
            marks = across.marks(48)
            for place in marks:
                anchor = "middle"
                if grid.columns > 1 and len(marks) > 1:
                    # Numbers at the ends stay within their panel.
                    anchor = {marks[0]: "start", marks[-1]: "end"}.get(place, "middle")
                drawing.text(across(place), y + grid.tall + 17, forms[0](place), "tick", anchor)
    title = titles[0] + (across.note if shared else "")
    drawing.text(grid.middle, grid.top + pitch * grid.lines + 14, title, "title", "middle")
    return drawing.render()


class _Legend:
    """Names with their colours in as many columns as fit."""

    def __init__(self, width: int, names: Sequence[tuple[str, str]], left: float) -> None:
        self._names, self._left = names, left
        self._short = short_names((name for name, _ in names), 26)
        longest = max((len(text) for text in self._short.values()), default=1)
        self._pitch = 8.0 * longest + 40
        self._columns = max(1, min(len(names), int((width - left + 12) / self._pitch)))
        self.tall = 20.0 * -(-len(names) // self._columns)

    def draw(self, drawing: Drawing, y: float, shape: str = "line") -> None:
        for number, (name, kind) in enumerate(self._names):
            x = self._left + self._pitch * (number % self._columns)
            here = y + 20 * (number // self._columns)
            if shape == "line":
                drawing.line(x, here - 4, x + 18, here - 4, f"curve {kind}")
            elif kind == "published":
                drawing.dot(x + 9, here - 4.5, 4, "published")
            else:
                drawing.box(x + 4, here - 10, 11, 11, f"column {kind}")
            style = "" if kind == "published" else f"name {kind}"
            drawing.text(x + 25, here, self._short[name], style, full=name)


def draw_reliability_panels(
    found: Sequence[Reliability],
    *,
    width: int,
    colours: Mapping[str, str],
    label: str,
) -> Markup:
    """Draw how often each method is right against how sure it is, with counts below.

    Filled dots are the network's own confidence, hollow ones that after temperature scaling.

    Args:
        found: The bins, at least one method.
        width: Width in pixels.
        colours: CSS class of each method.
        label: What the figure shows, in words.

    Example:
        >>> bins = (Bin(8, 10, 0.55, 0.5), Bin(13, 30, 0.9, 0.7))
        >>> one = Reliability("vanilla", bins, (), {"ece": 0.2}, {"ece": 0.1})
        >>> drawn = draw_reliability_panels([one], width=350, colours={"vanilla": "c0"}, label="")
        >>> drawn.count("<circle"), drawn.count("<rect"), "ECE 0.200 → 0.100" in drawn
        (2, 2, True)
    """
    grid = _Grid(width, len(found), top=22.0, gap=20.0, head=40.0, square=True)
    counts = 26.0  # height of the columns of counts
    pitch = grid.tall + counts + 70
    drawing = Drawing(width, grid.top + pitch * grid.lines + 18, label)
    drawing.text(4, 14, "Share that is right", "title")
    step = 0.25 if grid.wide > 180 else 0.5
    short = short_names((one.method for one in found), grid.letters())
    for number, one in enumerate(found):
        x, y = grid.corner(number, pitch)
        kind = colours[one.method]
        bottom = y + grid.tall
        across, up = Scale(0, 1, x, x + grid.wide), Scale(0, 1, bottom, y)
        for part in range(round(1 / step) + 1):
            value = part * step
            drawing.line(x, up(value), x + grid.wide, up(value), "grid")
            if number % grid.columns == 0:
                drawing.text(grid.left - 8, up(value) + 4, percent(value), "tick", "end")
        drawing.path([(across(0), up(0)), (across(1), up(1))], "reference")
        _draw_bins(drawing, one.after, across, up, f"hollow {kind}", f"control {kind}")
        _draw_bins(drawing, one.before, across, up, f"bubble {kind}", f"thin {kind}")
        drawing.text(x, y - 24, short[one.method], f"name {kind}", full=one.method)
        drawing.text(x, y - 8, _calibration_words(one), "small")
        base = bottom + 6 + counts
        most = max(full.count for full in one.before)
        for full in one.before:
            # Of 15 bins of equal width; an empty one has no column.
            start, end = across(full.number / 15), across((full.number + 1) / 15)
            high = max(1.0, counts * full.count / most)
            tip = f"{full.count} predictions"
            drawing.box(start + 0.5, base - high, end - start - 1, high, f"column {kind}", tip)
        drawing.line(x, base, x + grid.wide, base, "axis")
        if grid.lowest(number):
            for value, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
                drawing.text(across(value), base + 16, percent(value), "tick", anchor)
    bottom = grid.top + pitch * grid.lines
    drawing.text(grid.middle, bottom + 10, "Stated confidence", "title", "middle")
    return drawing.render()


def _draw_bins(
    drawing: Drawing, bins: Sequence[Bin], across: Scale, up: Scale, kind: str, path: str
) -> None:
    if not bins:
        return
    points = [(across(one.confidence), up(one.accuracy)) for one in bins]
    most = max(one.count for one in bins)
    if len(points) > 1:
        drawing.path(points, path)
    for (x, y), one in zip(points, bins, strict=True):
        tip = (
            f"{one.count} predictions: {percent(one.confidence)} sure, "
            f"{percent(one.accuracy)} right"
        )
        drawing.dot(x, y, 1.8 + 3.6 * (one.count / most) ** 0.5, kind, tip)


def _calibration_words(one: Reliability) -> str:
    before, after = one.measured.get("ece"), one.calibrated.get("ece")
    if before is None:
        return ""
    return f"ECE {before:.3f}" + ("" if after is None else f" → {after:.3f}")


def draw_groups(
    groups: Sequence[BarGroup],
    *,
    width: int,
    colours: Mapping[str, str],
    axis: str,
    form: Format,
    exact: Format,
    label: str,
) -> Markup:
    """Draw groups of bars with their spread, and what was published as hollow marks.

    Bars start at nought: their lengths are what one compares.

    Args:
        groups: The groups, at least one bar with a value in all.
        width: Width in pixels.
        colours: CSS class of each bar's name.
        axis: Title of the upright axis.
        form: How to write a value of the axis.
        exact: How to write a mean.
        label: What the figure shows, in words.

    Example:
        >>> from graph_transplant.report.figures import Bar
        >>> group = BarGroup("gcs", (Bar("vanilla", Spread(0.6, 0.1, 5), 0.64), Bar("m", None)))
        >>> drawn = draw_groups([group], width=350, colours={"vanilla": "c0", "m": "c1"},
        ...                     axis="Accuracy", form=str, exact=str, label="accuracy")
        >>> drawn.count("<rect"), drawn.count('class="published"')
        (3, 2)
    """
    bars = [bar for group in groups for bar in group.bars]
    names = list(dict.fromkeys(bar.name for bar in bars))
    keys = [(name, colours[name]) for name in names]
    if any(bar.published is not None for bar in bars):
        keys.append(("published", "published"))
    left, right = 54.0, width - 8.0
    legend = _Legend(width, keys, left)
    top = 30.0
    bottom = top + (190.0 if width <= NARROW else 240.0)
    drawing = Drawing(width, bottom + 38 + legend.tall, label)
    low, high = bar_range(groups)
    up = Scale(low, high, bottom, top)
    for value in ticks(up.low, up.high, 5):
        drawing.line(left, up(value), right, up(value), "grid")
        drawing.text(left - 8, up(value) + 4, form(value), "tick", "end")
    drawing.text(4, 14, axis, "title")
    room = (right - left) / len(groups)
    most = max(len(group.bars) for group in groups)
    # Few bars are not drawn as wide as there is room.
    step = min(34.0, room * 0.84 / most)
    short = short_names((group.name for group in groups), max(4, int(room / 7)))
    for number, group in enumerate(groups):
        centre = left + room * (number + 0.5)
        for place, bar in enumerate(group.bars):
            x = centre + step * (place - (len(group.bars) - 1) / 2)
            if bar.value is not None:
                tip = f"{group.name}, {bar.name}: {_worded(bar.value, exact)}"
                y = up(bar.value.mean)
                drawing.box(
                    *(x - step * 0.42, y, step * 0.84, max(0.0, bottom - y)),
                    f"column {colours[bar.name]}",
                    tip,
                )
                if bar.value.std is not None:
                    ends = [
                        up(min(high, max(low, bar.value.mean + side)))
                        for side in (-bar.value.std, bar.value.std)
                    ]
                    drawing.line(x, ends[0], x, ends[1], "whisker")
            if bar.published is not None:
                tip = f"{group.name}, {bar.name}, published: {exact(bar.published)}"
                drawing.dot(x, up(bar.published), min(4.0, step * 0.36), "published", tip)
        drawing.text(centre, bottom + 18, short[group.name], "tick", "middle", full=group.name)
    drawing.line(left, bottom, right, bottom, "axis")
    legend.draw(drawing, bottom + 46, "box")
    return drawing.render()


def bar_range(groups: Sequence[BarGroup]) -> tuple[float, float]:
    """Choose where the axis of bars starts and ends: at nought, or below it with a negative bar.

    Example:
        >>> from graph_transplant.report.figures import Bar
        >>> def of(*means):
        ...     return [BarGroup("a", tuple(Bar("b", Spread(mean, None, 1)) for mean in means))]
        >>> [round(end, 2) for end in (*bar_range(of(0.05, 0.2)), *bar_range(of(0.6, 0.7)))]
        [0.0, 0.21, 0.0, 0.74]
    """
    values = []
    for group in groups:
        for bar in group.bars:
            if bar.value is not None:
                room = bar.value.std or 0.0
                values += [bar.value.mean - room, bar.value.mean, bar.value.mean + room]
            values += [] if bar.published is None else [bar.published]
    lowest, highest = min(values), max(values)
    reach = highest - lowest or abs(highest) or 1.0
    # The spread of a bar that is not negative may reach below nought; it is cut off there.
    negative = any(
        bar.value is not None and bar.value.mean < 0 for group in groups for bar in group.bars
    )
    low = lowest - 0.4 * reach if negative else 0.0
    high = highest + 0.06 * (highest - low)
    return low, min(1.0, high) if highest <= 1 else high


def draw_sensitivity(
    found: Sequence[Sensitivity],
    *,
    width: int,
    colours: Mapping[str, str],
    axis: str,
    form: Format,
    exact: Format,
    label: str,
) -> Markup:
    """Draw the score over the values of each parameter in a panel of its own.

    The default is the filled dot, and the dashed line is its score. Numbers are joined, words are
    not.

    Args:
        found: The parameters, at least one.
        width: Width in pixels.
        colours: CSS class of each method.
        axis: Title of the upright axis.
        form: How to write a value of the axis.
        exact: How to write a score.
        label: What the figure shows, in words.

    Example:
        >>> one = Sensitivity("transplant-dp", "anchor_ratio", 0.1, (0.05, 0.1),
        ...                   (Spread(0.6, 0.1, 5), Spread(0.7, 0.1, 5)))
        >>> drawn = draw_sensitivity([one], width=350, colours={"transplant-dp": "c1"},
        ...                          axis="Accuracy", form=str, exact=str, label="sensitivity")
        >>> drawn.count('class="sure'), drawn.count('class="unsure')
        (1, 1)
    """
    grid = _Grid(width, len(found), top=22.0, gap=20.0, head=38.0)
    pitch = grid.tall + 72
    drawing = Drawing(width, grid.top + pitch * grid.lines + 2, label)
    drawing.text(4, 14, axis, "title")
    ends = [
        value.mean + side * (value.std or 0.0)
        for one in found
        for value in one.scores
        for side in (-1, 1)
    ]
    low, high = shares(ends)
    short = short_names((one.method for one in found), grid.letters())
    for number, one in enumerate(found):
        x, y = grid.corner(number, pitch)
        kind = colours[one.method]
        up = Scale(low, high, y + grid.tall, y)
        # Words stand at equal distances.
        places = [
            float(value) if one.numeric else float(place) for place, value in enumerate(one.values)
        ]
        margin = 16.0 if one.numeric else grid.wide / (2 * len(places))
        across = _Across(places, x + margin, x + grid.wide - margin)
        for level in ticks(low, high, 3 if grid.columns > 1 else 5):
            drawing.line(x, up(level), x + grid.wide, up(level), "grid")
            if number % grid.columns == 0:
                drawing.text(grid.left - 8, up(level) + 4, form(level), "tick", "end")
        drawing.line(x, y + grid.tall, x + grid.wide, y + grid.tall, "axis")
        points = [
            (across(place), up(score.mean)) for place, score in zip(places, one.scores, strict=True)
        ]
        for value, (_, middle) in zip(one.values, points, strict=True):
            if value == one.default:
                drawing.line(x, middle, x + grid.wide, middle, "reference")
        if one.numeric:
            drawing.path(points, f"thin {kind}")
        written = {across(place) for place in across.marks(34)} if one.numeric else None
        letters = max(3, int(grid.wide / len(places) / 6.6))
        crowded = max(len(_value(value)) for value in one.values) > letters
        letters *= 1 + crowded
        for (here, middle), score, value in zip(points, one.scores, one.values, strict=True):
            if score.std is not None:
                spread = [up(min(high, max(low, score.mean + s))) for s in (-score.std, score.std)]
                drawing.line(here, spread[0], here, spread[1], f"interval {kind}")
            filled = "sure" if value == one.default else "unsure"
            tip = f"{one.parameter} = {value}: {_worded(score, exact)}"
            drawing.dot(here, middle, 4.5, f"{filled} {kind}", tip)
            if written is None:
                # Words take turns on two lines.
                low_line = 14 * (one.values.index(value) % 2) if crowded else 0
                under = y + grid.tall + 17 + low_line
                drawing.text(here, under, _value(value), "tick", "middle", most=letters)
            elif here in written:
                drawing.text(here, y + grid.tall + 17, _value(value), "tick", "middle")
        drawing.text(x, y - 22, short[one.method], f"name {kind}", full=one.method)
        parameter = one.parameter.replace("_", " ") + (across.note if one.numeric else "")
        drawing.text(x, y - 7, parameter, "tick", most=int(grid.wide / 6.6))
    return drawing.render()


def _value(value: float | int | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"
