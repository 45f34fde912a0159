"""Colours, fonts and SVG output of all charts.

Charts are drawn in the light colours of the pages. On a page, each colour is replaced by its CSS
variable, so that one drawing serves light, dark and print.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final
from xml.etree import ElementTree

from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from graph_transplant.utils.text import plain

WIDE: Final = 720
NARROW: Final = 350
"""Chart widths on a page in pixels, for desktop and phone."""

COLOURS: Final = {
    "paper": "#fdfcfa", "ink": "#1b1d21", "soft": "#5d636d", "faint": "#8b919b", "rule": "#dedbd4",
    "c0": "#6b717b", "c1": "#2263b3", "c2": "#b8510a", "c3": "#0f7f78", "c4": "#8447a8",
    "c5": "#8f7000", "c6": "#bd2f63", "c7": "#4e7a1e", "c8": "#5a4fcf",
    "halo": "#f08c00", "grafted": "#1f8a4c", "kept": "#c2382b",
    "atom-n": "#1d4fb8", "atom-o": "#b8231a", "atom-s": "#7a6200", "atom-p": "#a8500a",
    "atom-x": "#1a7a2f",
}  # fmt: skip
"""Light colours of the pages by CSS variable."""

PAPER, INK, SOFT, FAINT, RULE = list(COLOURS.values())[:5]
SERIES: Final = [COLOURS[f"c{number}"] for number in range(1, 9)]
REFERENCE: Final = COLOURS["c0"]

_SANS = ["DejaVu Sans", "Segoe UI", "Roboto", "Helvetica Neue", "Arial"]
_PER_INCH = 100.0
CLASSES: Final = {colour: name for name, colour in COLOURS.items()}
"""CSS class and variable of each colour."""

_VARIABLES = {colour: f"var(--{name})" for colour, name in CLASSES.items()}
_SVG = "{http://www.w3.org/2000/svg}"
_PAGE: ContextVar[tuple[str, ...]] = ContextVar("methods of the page", default=())


def px(pixels: float) -> float:
    """Convert pixels to points, at 100 pixels per inch."""
    return pixels * 72 / _PER_INCH


RC: Final[dict[str, Any]] = {
    "font.family": "sans-serif",
    "font.sans-serif": _SANS,
    "font.size": px(13),
    "text.color": INK,
    "text.parse_math": False,
    "text.usetex": False,
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "axes.titley": 1.0,  # fixed: automatic placement measures every tick
    "lines.solid_joinstyle": "round",
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
    "svg.hashsalt": "graph-transplant",
    "savefig.facecolor": "auto",
    "pdf.fonttype": 42,
}


@contextmanager
def style(width: float | None = None, methods: Iterable[str] = ()) -> Iterator[None]:
    """Apply the page style within a ``with`` block.

    ``width`` is the width of new figures in pixels. ``methods`` are all methods of a page, so that
    each has the same colour in all charts.
    """
    settings: Any = dict(RC)
    if width:
        settings["figure.figsize"] = (width / _PER_INCH, 4.0)
    token = _PAGE.set(tuple(methods) or _PAGE.get())
    try:
        with rc_context(settings), warnings.catch_warnings():
            # The browser has glyphs that the measuring font may lack.
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            yield
    finally:
        _PAGE.reset(token)


def palette(methods: Iterable[str], reference: str) -> dict[str, str]:
    """Assign colours to methods: grey for the reference, then a cycle of eight."""
    every = dict.fromkeys([*_PAGE.get(), *methods])
    others = [name for name in every if name != reference]
    found = {name: SERIES[number % len(SERIES)] for number, name in enumerate(others)}
    return {**found, reference: REFERENCE}


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
    ax.tick_params(length=0, labelcolor=SOFT, labelsize=px(12), pad=px(7))
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
def text_width(text: str, size: float = 13, weight: int = 400) -> float:
    """Width of a text in pixels."""
    font = FontProperties(size=size, weight=weight)
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


def svg(figure: Figure, label: str, prefix: str = "chart") -> str:
    """Convert a figure to an ``svg`` element; ``label`` is its alt text, ``prefix`` salts ids."""
    text = io.StringIO()
    with style(), rc_context({"svg.hashsalt": prefix}):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(text, format="svg", metadata=nothing, transparent=True)
    root = ElementTree.fromstring(text.getvalue())
    for child in list(root):
        if child.tag == f"{_SVG}metadata" or child.find(f"{_SVG}style") is not None:
            root.remove(child)
        else:
            child.set("style", "stroke-linejoin: round")
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        element.tail = None
        if element.tag != "text":
            element.text = None
        if element.tag == "g":
            element.attrib.pop("id", None)
        element.attrib = {
            name.rpartition("}")[2]: _themed(value) for name, value in element.attrib.items()
        }
    width, height = (pixels * _PER_INCH for pixels in figure.get_size_inches())
    given = {"class": "chart", "viewBox": root.attrib["viewBox"], "role": "img"}
    root.attrib = {
        **given, "width": f"{width:g}", "height": f"{height:g}", "aria-label": plain(label),
    }  # fmt: skip
    return ElementTree.tostring(root, encoding="unicode")


def _themed(text: str) -> str:
    """Replace colours and fonts by CSS variables; round numbers to two decimals."""
    text = re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", text)
    text = re.sub(r"'DejaVu Sans'[^;]*", "var(--sans, sans-serif)", text)
    return re.sub(r"#[0-9a-f]{6}", lambda found: _VARIABLES.get(found[0], found[0]), text)


def standalone(element: str) -> str:
    """Convert an element made by :func:`svg` to an SVG file in light colours."""
    text = re.sub(r"var\(--([a-z0-9-]+)\)", lambda found: COLOURS.get(found[1], found[0]), element)
    text = text.replace("var(--sans, sans-serif)", ", ".join([*_SANS, "sans-serif"]))
    paper = f"<svg xmlns='{_SVG[1:-1]}' style='background: {PAPER}'"
    return text.replace("<svg", paper, 1) + "\n"
