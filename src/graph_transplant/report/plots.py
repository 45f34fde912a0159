"""The figures of a model card: learning, reliability, ROC curves, predicted against true values.

As in :mod:`graph_transplant.report.svg`, a phone gets a drawing of its own, and colours are CSS
classes of the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from graph_transplant.report.drawing import shortened
from graph_transplant.report.svg import NARROW, Drawing, Format, Scale, padded, percent, ticks

Point = tuple[float, float]

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
