"""How a page is made of its template: everything escaped, nothing missing, nothing unprintable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from graph_transplant.report.drawing import plain
from graph_transplant.report.svg import NARROW, WIDE


def render(name: str, filters: Mapping[str, Callable[..., object]], **content: object) -> str:
    """Fill in a template.

    Args:
        name: File name of the template.
        filters: What the template may apply to texts, by name.
        **content: What it is filled with; whatever is not ``Markup`` is escaped.

    Returns:
        The page. What no page can hold, such as control characters, is replaced.
    """
    environment = Environment(
        loader=PackageLoader("graph_transplant.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return plain(environment.get_template(name).render(**content))


@dataclass(frozen=True)
class Figure:
    """A figure of a page.

    Args:
        title: Its heading.
        caption: How to read it.
        wide: The drawing for a desk.
        narrow: The drawing for a phone.
    """

    title: str
    caption: str
    wide: Markup
    narrow: Markup


def figure(title: str, caption: str, draw: Callable[[int], Markup]) -> Figure:
    """Draw a figure for a desk and for a phone.

    Args:
        title: Its heading.
        caption: How to read it.
        draw: Draws it in a width of so many pixels.
    """
    return Figure(title, caption, draw(WIDE), draw(NARROW))
