"""Drawing the report's figures as SVG that lives inside the page and takes its colours from it.

Every figure is drawn for a given width, not scaled: a phone gets a drawing of its own with text of
the same size. Colours are CSS classes (``c0`` for the baseline, ``c1`` … for the other methods), so
that one drawing serves light, dark and paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from markupsafe import Markup

from graph_transplant.experiments.protocol import BASELINE
from graph_transplant.experiments.summary import format_p
from graph_transplant.report.figures import (
    CriticalDifference,
    Curve,
    DifferenceRow,
    MeasureRow,
    ScoreRow,
)
from graph_transplant.report.names import short_names

Format = Callable[[float], str]

WIDE = 720
NARROW = 350

LEAST_SHARES = 0.05
"""An axis of shares spans at least so much: five points."""


class Drawing:
    """A growing SVG drawing; every text that goes in is escaped.

    Args:
        width: Width in pixels.
        height: Height in pixels.
        label: What the figure shows, for people who cannot see it.

    Example:
        >>> drawing = Drawing(10, 10, 'a "small" figure')
        >>> drawing.text(1, 2, "<b>")
        >>> "&lt;b&gt;" in drawing.render() and "&#34;small&#34;" in drawing.render()
        True
    """

    def __init__(self, width: float, height: float, label: str) -> None:
        self.width = width
        self.height = height
        self.label = label
        self._parts: list[Markup] = []

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """Draw a line of a CSS class."""
        self._add(
            '<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>',
            *map(_number, (x1, y1, x2, y2)),
            kind,
        )

    def path(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """Draw a line through points."""
        steps = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        self._add('<polyline points="{}" class="{}"/>', steps, kind)

    def area(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """Fill what lies between points."""
        corners = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        self._add('<polygon points="{}" class="{}"/>', corners, kind)

    def box(
        self, x: float, y: float, width: float, height: float, kind: str, title: str = ""
    ) -> None:
        """Fill a rectangle, with a text that shows when it is pointed at."""
        self._add(
            '<rect x="{}" y="{}" width="{}" height="{}" class="{}">{}</rect>',
            *map(_number, (x, y, width, height)),
            kind,
            Markup("<title>{}</title>").format(title) if title else "",
        )

    def dot(self, x: float, y: float, radius: float, kind: str, title: str = "") -> None:
        """Draw a dot, with a text that shows when it is pointed at."""
        self._add(
            '<circle cx="{}" cy="{}" r="{}" class="{}">{}</circle>',
            *map(_number, (x, y, radius)),
            kind,
            Markup("<title>{}</title>").format(title) if title else "",
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        kind: str = "",
        anchor: str = "start",
        *,
        most: int = 0,
        full: str = "",
    ) -> None:
        """Write text; what is longer than ``most`` characters is cut and shows when pointed at.

        A text that was shortened before has its ``full`` one show.
        """
        title = Markup("")
        full = full or text
        if most and len(text) > most:
            text = text[: most - 1] + "…"
        if text != full:
            title = Markup("<title>{}</title>").format(full)
        self._add(
            '<text x="{}" y="{}" text-anchor="{}" class="{}">{}{}</text>',
            *map(_number, (x, y)),
            anchor,
            kind,
            text,
            title,
        )

    def render(self) -> Markup:
        """Return the drawing as an element of a page."""
        opening = Markup(
            '<svg viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" aria-label="{2}">'
        ).format(_number(self.width), _number(self.height), self.label)
        return opening + Markup("").join(self._parts) + Markup("</svg>")

    def _add(self, pattern: str, *values: object) -> None:
        self._parts.append(Markup(pattern).format(*values))


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Choose round numbers that lie between two values, about ``count`` of them.

    Example:
        >>> ticks(0.52, 0.71)
        [0.55, 0.6, 0.65, 0.7]
        >>> ticks(-3, 9)
        [-2.0, 0.0, 2.0, 4.0, 6.0, 8.0]
    """
    if not high > low:
        return [low]
    rough = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(rough))
    steps = [unit * factor for factor in (1, 2, 5, 10)]
    step = min(steps, key=lambda step: abs((high - low) / step - count))
    # Rounded to the step's own digits: 0.6000000000000001 is no round number.
    digits = max(0, -math.floor(math.log10(step)))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, digits) + 0.0 for number in range(first, last + 1)]


class Scale:
    """A linear axis from values to pixels.

    Args:
        low: Smallest value to show.
        high: Largest value to show.
        start: Pixel of the smallest value.
        end: Pixel of the largest value.
    """

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        if high - low < 1e-9:
            middle, room = (low + high) / 2, max(abs(low), 1.0) * 0.05
            low, high = middle - room, middle + room
        self.low, self.high, self.start, self.end = low, high, start, end

    def __call__(self, value: float) -> float:
        """Give the pixel of a value."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def padded(
    values: Sequence[float],
    *,
    share: float = 0.06,
    low: float | None = None,
    high: float | None = None,
) -> tuple[float, float]:
    """Return the range of values with some room, but not beyond ``low`` and ``high``."""
    smallest, largest = min(values), max(values)
    room = share * (largest - smallest or max(abs(largest), 1.0) * 0.5)
    smallest, largest = smallest - room, largest + room
    return (
        smallest if low is None else max(low, smallest),
        largest if high is None else min(high, largest),
    )


def shares(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of shares with some room: not beyond 1, and below 0 only for values there.

    It is never smaller than :data:`LEAST_SHARES`, lest chance look like a difference.

    Example:
        >>> shares([0.02, 1.0])
        (0.0, 1.0)
        >>> [round(end, 3) for end in (*shares([0.164, 0.171]), *shares([0.99, 1.0]))]
        [0.143, 0.193, 0.95, 1.0]
        >>> low, high = shares([-0.5, 0.5])
        >>> round(low, 2), round(high, 2)
        (-0.56, 0.56)
    """
    low, high = padded(values, low=0.0 if min(values) >= 0 else None, high=1.0)
    if high - low < LEAST_SHARES:
        middle = (low + high) / 2
        # Shares lie between 0 and 1; R² alone may be below.
        least = 0.0 if min(values) >= 0 else -math.inf
        low = max(least, min(middle - LEAST_SHARES / 2, 1.0 - LEAST_SHARES))
        high = low + LEAST_SHARES
    return low, high


def swarm(places: Sequence[float], distance: float, most: float) -> list[float]:
    """Move dots off the line so that equal ones lie beside each other.

    Args:
        places: Pixels along the line.
        distance: Least distance of two dots.
        most: Farthest a dot may be moved; beyond it dots overlap.

    Returns:
        Pixels off the line, one per dot, in the order given.

    Example:
        >>> swarm([10, 10, 50], distance=6, most=12)
        [0.0, -6.0, 0.0]
    """
    steps = [0.0]
    for number in range(1, int(most / distance) + 1):
        steps += [-float(number * distance), float(number * distance)]
    offsets = [0.0] * len(places)
    placed: list[tuple[float, float]] = []
    for number in sorted(range(len(places)), key=lambda number: places[number]):
        here = places[number]
        free = (
            step
            for step in steps
            if all(math.hypot(here - x, step - y) >= distance - 1e-6 for x, y in placed)
        )
        offsets[number] = next(free, steps[-1])
        placed.append((here, offsets[number]))
    return offsets


class _Rows:
    """The frame of a figure with one row per method: labels, grid, axis, a column of numbers."""

    def __init__(
        self,
        *,
        width: int,
        label: str,
        names: Sequence[str],
        colours: Mapping[str, str],
        domain: tuple[float, float],
        form: Format,
        axis: str,
        numbers: Sequence[str],
        heading: str,
        low_rows: bool = False,
    ) -> None:
        narrow = width <= NARROW
        # On a phone the name stands above its row, elsewhere to the left of it.
        self.left = 14.0 if narrow else 198.0
        self.right = width - (14.0 if narrow else 138.0)
        pitch = (46.0 if low_rows else 62.0) if narrow else (28.0 if low_rows else 46.0)
        top = 6.0 if narrow else 26.0
        self.bottom = top + pitch * len(names)
        self.drawing = Drawing(width, self.bottom + 44, label)
        self.scale = Scale(*domain, self.left + 8, self.right - 8)
        middle = (34.0 if low_rows else 42.0) if narrow else pitch / 2
        self.rows = [top + pitch * number + middle for number in range(len(names))]
        self._above = 15.0 if low_rows else 21.0
        self.spread = 13.0
        for value in ticks(self.scale.low, self.scale.high, 5 if narrow else 6):
            x = self.scale(value)
            self.drawing.line(x, top, x, self.bottom, "grid")
            self.drawing.text(x, self.bottom + 17, form(value), "tick", "middle")
        self.drawing.line(self.left, self.bottom, self.right, self.bottom, "axis")
        self.drawing.text((self.left + self.right) / 2, self.bottom + 37, axis, "title", "middle")
        if not narrow:
            self.drawing.text(width - 4, 14, heading, "tick", "end")
        self._labels = list(zip(names, numbers, self.rows, strict=True))
        self._colours = colours
        self._narrow = narrow
        self._short = short_names(names, 24 if narrow else 23)

    def finish(self) -> Markup:
        """Write the labels over whatever was drawn and return the drawing."""
        for name, number, y in self._labels:
            kind = f"name {self._colours[name]}"
            if self._narrow:
                above = y - self._above
                self.drawing.text(self.left, above, self._short[name], kind, full=name)
                self.drawing.text(self.right, above, number, "number", "end")
            else:
                short = self._short[name]
                self.drawing.text(self.left - 14, y + 4.5, short, kind, "end", full=name)
                self.drawing.text(self.drawing.width - 4, y + 4.5, number, "number", "end")
        return self.drawing.render()


def draw_scores(
    rows: Sequence[ScoreRow],
    *,
    width: int,
    colours: Mapping[str, str],
    axis: str,
    form: Format,
    exact: Format,
    label: str,
    baseline: str,
    paired: bool,
    marks: Mapping[str, Sequence[tuple[float, str]]] | None = None,
) -> Markup:
    """Draw one dot per trial and the mean of each method.

    Args:
        rows: The scores.
        width: Width in pixels.
        colours: CSS class of each method.
        axis: Title of the axis.
        form: How to write a value of the axis.
        exact: How to write a mean or a single score.
        label: What the figure shows, in words.
        baseline: The method whose mean is drawn through all rows.
        paired: Whether to join the dots of one fold.
        marks: Hollow marks in the row of a method: where, and what they are.
    """
    marks = marks or {}
    values = [score.value for row in rows for score in row.scores]
    values += [value for row in rows for value, _ in marks.get(row.method, ())]
    frame = _Rows(
        width=width,
        label=label,
        names=[row.method for row in rows],
        colours=colours,
        domain=shares(values),
        form=form,
        axis=axis,
        numbers=[exact(row.mean) for row in rows],
        heading="mean",
    )
    drawing = frame.drawing
    for row in rows:
        if row.method == baseline:
            x = frame.scale(row.mean)
            drawing.line(x, frame.rows[0] - 20, x, frame.bottom, "reference")
    places: dict[tuple[int, int], list[tuple[float, float]]] = {}
    dots = []
    for row, y in zip(rows, frame.rows, strict=True):
        across = [frame.scale(score.value) for score in row.scores]
        offsets = swarm(across, 6.5, frame.spread)
        for score, x, offset in zip(row.scores, across, offsets, strict=True):
            places.setdefault((score.repeat, score.fold), []).append((x, y + offset))
            title = f"{row.method}, repeat {score.repeat}, fold {score.fold}: {exact(score.value)}"
            dots.append((x, y + offset, f"dot {colours[row.method]}", title))
    if paired:
        for points in places.values():
            drawing.path(points, "pair")
    for x, y, kind, title in dots:
        drawing.dot(x, y, 4, kind, title)
    for row, y in zip(rows, frame.rows, strict=True):
        x = frame.scale(row.mean)
        drawing.line(x, y - 15, x, y + 15, f"mean {colours[row.method]}")
        for value, title in marks.get(row.method, ()):
            drawing.dot(frame.scale(value), y, 5, f"hollow {colours[row.method]}", title)
    return frame.finish()


def draw_measures(
    rows: Sequence[MeasureRow],
    *,
    width: int,
    colours: Mapping[str, str],
    axis: str,
    form: Format,
    exact: Format,
    label: str,
    heading: str = "mean",
    reference: float | None = None,
) -> Markup:
    """Draw one bar per method with its spread, and a hollow mark beside it.

    Args:
        rows: The numbers; none of them below 0.
        width: Width in pixels.
        colours: CSS class of each method.
        axis: Title of the axis.
        form: How to write a value of the axis.
        exact: How to write a mean.
        label: What the figure shows, in words.
        heading: What stands over the column of numbers.
        reference: A value to draw a dashed line at.

    Example:
        >>> from graph_transplant.report.figures import Spread
        >>> row = MeasureRow("vanilla", Spread(0.5, 0.1, 5), 0.2, "chance")
        >>> drawn = draw_measures([row], width=350, colours={"vanilla": "c0"}, axis="Precision",
        ...                       form=str, exact=str, label="precision")
        >>> drawn.count("<rect"), drawn.count("<circle")
        (1, 1)
    """
    values = [0.0, *([] if reference is None else [reference])]
    for row in rows:
        values += [row.value.mean + (row.value.std or 0.0)]
        values += [] if row.mark is None else [row.mark]
    frame = _Rows(
        width=width,
        label=label,
        names=[row.method for row in rows],
        colours=colours,
        domain=padded(values, low=0.0),
        form=form,
        axis=axis,
        numbers=[row.number or exact(row.value.mean) for row in rows],
        heading=heading,
        low_rows=True,
    )
    drawing = frame.drawing
    zero = frame.scale(0.0)
    if reference is not None:
        x = frame.scale(reference)
        drawing.line(x, frame.rows[0] - 12, x, frame.bottom, "reference")
    for row, y in zip(rows, frame.rows, strict=True):
        colour = colours[row.method]
        end = frame.scale(row.value.mean)
        tip = f"{row.method}: {exact(row.value.mean)}"
        drawing.box(zero, y - 6, max(0.0, end - zero), 12, f"column {colour}", tip)
        if row.value.std is not None:
            low = frame.scale(max(0.0, row.value.mean - row.value.std))
            drawing.line(low, y, frame.scale(row.value.mean + row.value.std), y, "whisker")
        if row.mark is not None:
            title = f"{row.method}, {row.meaning}: {exact(row.mark)}"
            drawing.dot(frame.scale(row.mark), y, 4.5, f"hollow {colour}", title)
    return frame.finish()


def draw_differences(
    rows: Sequence[DifferenceRow],
    *,
    width: int,
    colours: Mapping[str, str],
    axis: str,
    label: str,
) -> Markup:
    """Draw the mean difference of each method to the baseline with its interval.

    Args:
        rows: The differences, in points.
        width: Width in pixels.
        colours: CSS class of each method.
        axis: Title of the axis.
        label: What the figure shows, in words.
    """
    values = [0.0]
    for row in rows:
        values += [*row.values, row.mean]
        values += [end for end in (row.low, row.high) if end is not None]
    frame = _Rows(
        width=width,
        label=label,
        names=[row.method for row in rows],
        colours=colours,
        domain=padded(values),
        form=signed,
        axis=axis,
        numbers=[
            signed(row.mean, 1) + (f", {format_p(row.p_holm)}" if row.p_holm is not None else "")
            for row in rows
        ],
        heading="mean, p",
    )
    drawing = frame.drawing
    zero = frame.scale(0.0)
    drawing.line(zero, frame.rows[0] - 20, zero, frame.bottom, "zero")
    for row, y in zip(rows, frame.rows, strict=True):
        colour = colours[row.method]
        across = [frame.scale(value) for value in row.values]
        for x, value, offset in zip(across, row.values, swarm(across, 5, 10), strict=True):
            drawing.dot(x, y + offset, 2.6, f"faint {colour}", f"one pair: {signed(value, 1)}")
        if row.low is not None and row.high is not None:
            low, high = frame.scale(row.low), frame.scale(row.high)
            drawing.line(low, y, high, y, f"interval {colour}")
            for end in (low, high):
                drawing.line(end, y - 5, end, y + 5, f"interval {colour}")
        title = f"{row.method}: {signed(row.mean, 1)} points, {format_p(row.p_holm)}"
        kind = "sure" if row.significant else "unsure"
        drawing.dot(frame.scale(row.mean), y, 6, f"{kind} {colour}", title)
    return frame.finish()


def draw_curves(
    curves: Sequence[Curve],
    *,
    width: int,
    colours: Mapping[str, str],
    axis: str,
    form: Format,
    label: str,
) -> Markup:
    """Draw learning curves.

    Args:
        curves: The curves.
        width: Width in pixels.
        colours: CSS class of each method.
        axis: Title of the upright axis.
        form: How to write a value.
        label: What the figure shows, in words.
    """
    narrow = width <= NARROW
    legend = 20.0 * len(curves) if narrow else 0.0
    top, left = 30.0 + legend, 54.0
    right = width - (20.0 if narrow else 182.0)
    bottom = top + (200.0 if narrow else 260.0)
    drawing = Drawing(width, bottom + 44, label)
    values = [value for curve in curves for value in curve.values]
    epochs = [epoch for curve in curves for epoch in curve.epochs]
    across = Scale(min(epochs), max(epochs), left, right)
    up = Scale(*shares(values), bottom, top)
    for value in ticks(up.low, up.high, 5):
        y = up(value)
        drawing.line(left, y, right, y, "grid")
        drawing.text(left - 8, y + 4, form(value), "tick", "end")
    for value in ticks(across.low, across.high, 5 if narrow else 6):
        if value >= across.low:
            drawing.text(across(value), bottom + 17, f"{value:g}", "tick", "middle")
    drawing.line(left, bottom, right, bottom, "axis")
    drawing.text(4, 14, axis, "title")
    drawing.text((left + right) / 2, bottom + 37, "Epoch", "title", "middle")
    short = short_names((curve.method for curve in curves), 30 if narrow else 22)
    for curve in curves:
        points = [
            (across(epoch), up(value))
            for epoch, value in zip(curve.epochs, curve.values, strict=True)
        ]
        colour = colours[curve.method]
        drawing.path(points, f"curve {colour}")
        drawing.dot(*points[-1], 3, f"end {colour}")
    if narrow:
        for number, curve in enumerate(curves):
            y = 36.0 + 20 * number
            name, kind = curve.method, colours[curve.method]
            drawing.line(left, y - 4, left + 22, y - 4, f"curve {kind}")
            drawing.text(left + 30, y, short[name], f"name {kind}", full=name)
    else:
        ends = [up(curve.values[-1]) for curve in curves]
        for curve, end, y in zip(curves, ends, spaced(ends, 18, top, bottom), strict=True):
            colour = colours[curve.method]
            x = across(curve.epochs[-1])
            # A curve that ends early has its dot there; a leader from so far would cross the
            # others.
            if right - x < 6 and abs(end - y) > 3:
                drawing.path([(right + 4, end), (right + 11, y)], "leader")
            name = curve.method
            drawing.text(right + 14, y + 4, short[name], f"name {colour}", full=name)
    return drawing.render()


def draw_panels(
    curves: Sequence[Curve],
    *,
    width: int,
    colours: Mapping[str, str],
    axis: str,
    form: Format,
    label: str,
    baseline: str = BASELINE,
) -> Markup:
    """Draw learning curves in one small panel each, all to the same scale, over the baseline's.

    Args:
        curves: The curves; the baseline's is drawn in every panel.
        width: Width in pixels.
        colours: CSS class of each method.
        axis: Title of the upright axis.
        form: How to write a value.
        label: What the figure shows, in words.
        baseline: The method that the others are seen against.
    """
    narrow = width <= NARROW
    columns, gap, left, top, tall = (2 if narrow else 3), 16.0, 54.0, 44.0, 90.0
    wide = (width - left - gap * (columns - 1) - 4) / columns
    own = [curve for curve in curves if curve.method != baseline]
    # As many letters as fit over a panel.
    short = short_names((curve.method for curve in own), int(wide / 8))
    plain = [curve for curve in curves if curve.method == baseline]
    lines = -(-len(own) // columns)
    pitch = tall + 44
    drawing = Drawing(width, top + pitch * lines + 16, label)
    values = [value for curve in curves for value in curve.values]
    epochs = [epoch for curve in curves for epoch in curve.epochs]
    low, high = shares(values)
    drawing.text(4, 14, axis, "title")
    for number, curve in enumerate(own):
        x, y = left + (wide + gap) * (number % columns), top + pitch * (number // columns)
        across = Scale(min(epochs), max(epochs), x, x + wide)
        up = Scale(low, high, y + tall, y)
        for value in ticks(low, high, 3):
            drawing.line(x, up(value), x + wide, up(value), "grid")
            if number % columns == 0:
                drawing.text(left - 8, up(value) + 4, form(value), "tick", "end")
        drawing.line(x, y + tall, x + wide, y + tall, "axis")
        for shown, colour in [(c, "c0") for c in plain] + [(curve, colours[curve.method])]:
            points = zip(shown.epochs, shown.values, strict=True)
            drawing.path([(across(e), up(v)) for e, v in points], f"curve {colour}")
        name = curve.method
        drawing.text(x, y - 8, short[name], f"name {colours[name]}", full=name)
        if number + columns >= len(own):  # nothing below: the axis of the column
            for epoch, anchor in ((across.low, "start"), (across.high, "end")):
                drawing.text(across(epoch), y + tall + 17, f"{epoch:g}", "tick", anchor)
    middle = left + (width - left) / 2
    drawing.text(middle, top + pitch * lines + 4, "Epoch", "title", "middle")
    return drawing.render()


def draw_critical_difference(
    data: CriticalDifference, *, width: int, colours: Mapping[str, str], label: str
) -> Markup:
    """Draw average ranks and which of them do not differ (Demšar, 2006, figure 1).

    On a desk the names stand left and right of one axis, as published; on a phone, where they would
    not fit, each method has a row and bars run down beside the rows.

    Args:
        data: The ranks and the bars.
        width: Width in pixels.
        colours: CSS class of each method.
        label: What the figure shows, in words.
    """
    draw = _ranks_in_rows if width <= NARROW else _ranks_on_axis
    return draw(data, width, colours, label)


def _rank_axis(drawing: Drawing, scale: Scale, y: float, worst: int) -> None:
    drawing.line(scale(1), y, scale(worst), y, "zero")
    step = max(1, math.ceil((worst - 1) / 10))
    for rank in range(1, worst + 1, step):
        drawing.line(scale(rank), y - 5, scale(rank), y, "zero")
        drawing.text(scale(rank), y - 10, f"{rank}", "tick", "middle")


def _critical_length(
    drawing: Drawing, data: CriticalDifference, scale: Scale, y: float, worst: int
) -> None:
    # Farther than the axis is long no two ranks can lie: then the words alone are shown.
    text = f"CD = {data.difference:.2f}"
    if data.difference > worst - 1:
        drawing.text(scale(1), y + 4, f"{text}, longer than the axis", "tick")
        return
    start, end = scale(1), scale(1 + data.difference)
    drawing.line(start, y, end, y, "zero")
    for x in (start, end):
        drawing.line(x, y - 4, x, y + 4, "zero")
    drawing.text(end + 8, y + 4, text, "tick")


def _ranks_on_axis(
    data: CriticalDifference, width: int, colours: Mapping[str, str], label: str
) -> Markup:
    count = len(data.methods)
    left_side = (count + 1) // 2
    lanes = max(data.lanes, default=-1) + 1
    axis, pitch, lane = 52.0, 22.0, 9.0
    first = axis + 14 + lane * lanes + 14
    drawing = Drawing(width, first + pitch * (left_side - 1) + 12, label)
    scale = Scale(1, count, 206.0, width - 206.0)
    short = short_names(data.methods, 21)
    _critical_length(drawing, data, scale, 12, count)
    _rank_axis(drawing, scale, axis, count)
    for number, (method, rank) in enumerate(zip(data.methods, data.ranks, strict=True)):
        colour = colours[method]
        x = scale(rank)
        left = number < left_side
        # The outermost method has the uppermost label: no line crosses another.
        y = first + pitch * (number if left else count - 1 - number)
        end = 170.0 if left else width - 170.0
        drawing.path([(x, axis), (x, y), (end, y)], f"rank {colour}")
        drawing.dot(x, axis, 3.5, f"end {colour}", f"{method}: average rank {rank:.2f}")
        anchor, place = ("end", 164.0) if left else ("start", width - 164.0)
        drawing.text(place, y + 4.5, short[method], f"name {colour}", anchor, full=method)
        inside, side = (end + 3, "start") if left else (end - 3, "end")
        drawing.text(inside, y - 4, f"{rank:.2f}", "tick", side)
    for (best, worst, _, _), number in zip(data.bars, data.lanes, strict=True):
        y = axis + 14 + lane * number
        drawing.line(scale(best) - 4, y, scale(worst) + 4, y, "clique")
    return drawing.render()


def _ranks_in_rows(
    data: CriticalDifference, width: int, colours: Mapping[str, str], label: str
) -> Markup:
    count = len(data.methods)
    lanes = max(data.lanes, default=-1) + 1
    top, pitch, lane = 58.0, 40.0, 9.0
    right = width - 12 - lane * lanes - 8
    bottom = top + pitch * count
    drawing = Drawing(width, bottom + 8, label)
    scale = Scale(1, count, 10, right - 8)
    short = short_names(data.methods, 26)
    _critical_length(drawing, data, scale, 12, count)
    _rank_axis(drawing, scale, top - 8, count)
    for number, (method, rank) in enumerate(zip(data.methods, data.ranks, strict=True)):
        colour = colours[method]
        y = top + pitch * number + 28
        drawing.line(scale(1), y, scale(count), y, "grid")
        drawing.dot(scale(rank), y, 5, f"end {colour}", f"{method}: average rank {rank:.2f}")
        drawing.text(2, y - 10, short[method], f"name {colour}", full=method)
        drawing.text(right, y - 10, f"{rank:.2f}", "number", "end")
    for (_, _, start, end), number in zip(data.bars, data.lanes, strict=True):
        x = width - 8 - lane * number
        drawing.line(x, top + pitch * start + 14, x, top + pitch * end + 34, "clique")
    return drawing.render()


def spaced(places: Sequence[float], distance: float, low: float, high: float) -> list[float]:
    """Move labels apart so that they do not overlap, as little as a simple sweep needs.

    Args:
        places: Where the labels would stand.
        distance: Least distance of two labels.
        low: Smallest place allowed.
        high: Largest place allowed.

    Returns:
        Where they stand, in the order given.

    Example:
        >>> spaced([10, 11, 50], 18, 0, 100)
        [1.5, 19.5, 50.0]
    """
    order = sorted(range(len(places)), key=lambda number: places[number])
    clusters: list[tuple[float, int]] = []  # centre and number of labels
    for number in order:
        centre, count = float(places[number]), 1
        while True:
            room = distance * (count - 1) / 2
            centre = max(low + room, min(high - room, centre))
            if not clusters:
                break
            before, members = clusters[-1]
            if centre - before >= distance * (count + members) / 2 - 1e-9:
                break
            clusters.pop()
            centre = (before * members + centre * count) / (members + count)
            count += members
        clusters.append((centre, count))
    sorted_places = [
        centre + distance * (member - (count - 1) / 2)
        for centre, count in clusters
        for member in range(count)
    ]
    result = [0.0] * len(places)
    for number, place in zip(order, sorted_places, strict=True):
        result[number] = place
    return result


def percent(value: float) -> str:
    """Write a share as a percentage, without digits that are not needed.

    Example:
        >>> percent(0.6).split(), percent(0.654).split(), percent(-0.2).split()
        (['60', '%'], ['65.4', '%'], ['−20', '%'])
    """
    text = f"{round(100 * value, 1) + 0.0:.1f}".replace("-", "−")
    return f"{text.removesuffix('.0')}\N{NO-BREAK SPACE}%"


def exact_percent(value: float) -> str:
    """Write a share as a percentage with one digit after the point.

    Example:
        >>> exact_percent(0.6).split()
        ['60.0', '%']
    """
    # Adding zero takes the sign off a zero.
    text = f"{round(100 * value, 1) + 0.0:.1f}".replace("-", "−")
    return f"{text}\N{NO-BREAK SPACE}%"


def signed(value: float, digits: int | None = None) -> str:
    """Write a number with its sign and a true minus.

    Example:
        >>> signed(2.0), signed(-1.25, 1), signed(0.0), signed(0.01, 1)
        ('+2', '−1.2', '0', '0.0')
    """
    text = f"{value:+g}" if digits is None else f"{value:+.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    return text.replace("-", "−")


def _number(value: float) -> str:
    text = f"{value:.1f}"
    return text.removesuffix(".0")
