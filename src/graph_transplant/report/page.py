"""Rendering of the templates of all pages."""

from __future__ import annotations

import base64
import hashlib
import itertools
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from graph_transplant.report.typography import no_wrap, truncated, unbroken
from graph_transplant.utils.text import number, p_value, plain


def render(template: str, /, **content: object) -> str:
    """Render a template; everything but ``Markup`` is escaped.

    The content security policy allows only the page's own script, by its hash.
    """
    environment = Environment(
        loader=PackageLoader("graph_transplant.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"tied": no_wrap, "words": unbroken, "brief": truncated}
    environment.filters |= {"number": number, "p": p_value}
    path = resources.files("graph_transplant.report").joinpath("templates", "page.js")
    script = path.read_text("utf-8")  # with line breaks as LF, to which browsers normalise them
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = environment.get_template(template).render(
        script=Markup(script), script_hash=f"sha256-{digest}", **content
    )
    return plain(page, lines=True)


def unique_id(wanted: str, taken: set[str]) -> str:
    """Make a name unique by appending -2, -3, …, and add it to ``taken``."""
    names = itertools.chain([wanted], (f"{wanted}-{number}" for number in itertools.count(2)))
    name = next(name for name in names if name not in taken)
    taken.add(name)
    return name
