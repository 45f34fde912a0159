"""Colours, fonts and SVG output of all charts.

A chart is drawn once, in light colours. A page shows this drawing in its own colours, which are CSS
variables, so that one drawing serves a phone and a desktop, light, dark and print.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from html import escape
from typing import Any, Final

from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from graph_transplant.utils.text import plain

WIDTH: Final = 380
"""Width of charts on a page in pixels: as on a phone, so that a desktop shows two beside another.

Scaled to 350 pixels, letters of the size ``TEXT`` are still 12 pixels high."""
TEXT: Final = 13

LIGHT: Final = {
    "paper": "#fdfcfa", "ink": "#1b1d21", "soft": "#5d636d", "faint": "#8b919b", "rule": "#dedbd4",
    "wash": "#f4f2ed", "good": "#17694a", "bad": "#a63a2b",
    "c0": "#6b717b", "c1": "#2263b3", "c2": "#b8510a", "c3": "#0f7f78", "c4": "#8447a8",
    "c5": "#8f7000", "c6": "#bd2f63", "c7": "#4e7a1e", "c8": "#5a4fcf",
    "halo": "#f08c00", "grafted": "#1f8a4c", "kept": "#c2382b",
    "atom-n": "#1d4fb8", "atom-o": "#b8231a", "atom-s": "#7a6200", "atom-p": "#a8500a",
    "atom-x": "#1a7a2f",
}  # fmt: skip
DARK: Final = {
    "paper": "#15171b", "ink": "#e9e7e2", "soft": "#a4a9b2", "faint": "#7b818b", "rule": "#31353c",
    "wash": "#1d2025", "good": "#6fd0a4", "bad": "#f0907f",
    "c0": "#9aa1ac", "c1": "#6ea8f0", "c2": "#f0924d", "c3": "#4cc3ba", "c4": "#c491e6",
    "c5": "#d8b43c", "c6": "#f07fa8", "c7": "#9ccb62", "c8": "#a79df5",
    "halo": "#ff9d1e", "grafted": "#53c98a", "kept": "#f47f70",
    "atom-n": "#8fb8ff", "atom-o": "#ff9a8f", "atom-s": "#e5cf5c", "atom-p": "#ffb066",
    "atom-x": "#7fdc93",
}  # fmt: skip
"""Colours of pages by CSS variable; drawings use the light ones."""

VARIABLES: Final = {colour: name for name, colour in LIGHT.items()}
PAPER, INK, SOFT, FAINT, RULE = list(LIGHT.values())[:5]
SERIES: Final = [LIGHT[f"c{number}"] for number in range(1, 9)]
NEUTRAL: Final = LIGHT["c0"]

_PER_INCH = 100.0


def px(pixels: float) -> float:
    """Convert pixels to points, at 100 pixels per inch."""
    return pixels * 72 / _PER_INCH


RC: Final[dict[Any, Any]] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Segoe UI", "Roboto", "Helvetica Neue", "Arial"],
    "font.size": px(TEXT),
    "text.color": INK,
    "text.parse_math": False,
    "text.usetex": False,
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "axes.titley": 1.0,  # fixed: automatic placement measures every tick
    "lines.solid_joinstyle": "round",
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
    "savefig.facecolor": "auto",
    "pdf.fonttype": 42,
}


@contextmanager
def style(width: float | None = None) -> Iterator[None]:
    """Apply the page style within a ``with`` block, to new figures of ``width`` pixels."""
    size = {"figure.figsize": (width / _PER_INCH, 4.0)} if width else {}
    with rc_context(RC | size), warnings.catch_warnings():
        # The browser has glyphs that the measuring font may lack.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def palette(methods: Iterable[str], reference: str) -> dict[str, str]:
    """Assign colours to methods: grey for the reference, then a cycle of eight."""
    others = [name for name in dict.fromkeys(methods) if name != reference]
    found = {name: SERIES[number % len(SERIES)] for number, name in enumerate(others)}
    return {**found, reference: NEUTRAL}


# -------------------------------------------------------------------- sizes and names


def canvas(
    ax: Axes | None, height: float, *, left: float = 0, right: float = 0, top: float = 0,
    bottom: float = 0,
) -> Axes:  # fmt: skip
    """Prepare the given axes, or those of a new figure with margins in pixels."""
    if ax is None:
        wide = rcParams["figure.figsize"][0] * _PER_INCH
        figure = Figure(figsize=(wide / _PER_INCH, height / _PER_INCH))
        box = (
            left / wide, bottom / height,
            max(wide - left - right, 40) / wide, max(height - top - bottom, 40) / height,
        )  # fmt: skip
        ax = figure.add_axes(box)
    ax.spines[["left", "right", "top"]].set_visible(False)
    ax.spines["bottom"].set_color(FAINT)
    ax.tick_params(length=0, labelcolor=SOFT, labelsize=px(TEXT), pad=px(7))
    ax.set_axisbelow(True)
    # Vertical axes have no label; fixed coordinates save measuring its place.
    ax.yaxis.set_label_coords(0, 0.5)
    return ax


def room(ax: Axes | None) -> float:
    """Width available to a chart in pixels: of a new figure, or of the given axes."""
    if ax is None:
        return float(rcParams["figure.figsize"][0]) * _PER_INCH
    return float(ax.get_position().width * ax.get_figure(root=True).get_figwidth() * _PER_INCH)  # type: ignore[union-attr]


@lru_cache(maxsize=10_000)
def text_width(text: str, weight: int = 400) -> float:
    """Width of a text in pixels."""
    font = FontProperties(size=TEXT, weight=weight)
    width, _, _ = text_to_path.get_text_width_height_descent(plain(text), font, ismath=False)
    return float(width)


def short(names: Sequence[str], most: float) -> dict[str, str]:
    """Shorten names in the middle to about ``most`` pixels, keeping them distinct."""
    found: dict[str, str] = {}
    for name in names:
        number = 1
        while (shown := _cut(plain(name), most, number)) in found.values():
            number += 1
        found[name] = shown
    return found


def _cut(text: str, most: float, number: int) -> str:
    tail = f" ({number})" if number > 1 else ""
    if len(text) <= 200 and text_width(text + tail, weight=700) <= most:
        return text + tail
    # Keep twice as much of the end, which holds the parameter value.
    for kept in range(min(len(text), 200) - 1, 2, -1):
        shown = f"{text[: kept // 3]}…{text[len(text) - kept + kept // 3 :]}{tail}"
        if text_width(shown, weight=700) <= most:
            return shown
    return f"{text[:1]}…{text[-2:]}{tail}"


# -------------------------------------------------------------------- SVG


def svg(axes: Axes | list[Axes], salt: str) -> str:
    """The figure of some axes as an SVG file; another ``salt`` gives it other ids."""
    figure = (axes if isinstance(axes, Axes) else axes[0]).get_figure(root=True)
    assert figure is not None
    text = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with style(), rc_context({"svg.hashsalt": salt}):
        figure.savefig(text, format="svg", metadata=nothing)
    return text.getvalue()


def inline(file: str, label: str) -> str:
    """An SVG file as an element of a page, in the page's colours; ``label`` is its alt text."""
    # Without the style sheet, which would apply to the whole page, and names of groups.
    head, _, body = file.partition("</defs>")
    (view,) = re.findall(r'viewBox="[^"]*"', head)
    body = re.sub(r'<g id="[^"]*"', "<g", body).replace("xlink:href", "href")
    body = re.sub(r"(?<=: )#[0-9a-f]{6}", lambda found: _variable(found[0]), body)
    alt = escape(plain(label))
    return f'<svg class="chart" {view} role="img" aria-label="{alt}">{body}'


def _variable(colour: str) -> str:
    return f"var(--{VARIABLES[colour]})" if colour in VARIABLES else colour
