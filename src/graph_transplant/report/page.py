"""Rendering of the templates of all pages."""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Mapping
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from graph_transplant.figures.style import DARK, LIGHT
from graph_transplant.report.typography import no_wrap, spaced, truncated, unbroken
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
        light=LIGHT, dark=DARK, script=Markup(script), script_hash=f"sha256-{digest}", **content
    )
    return plain(page, lines=True)


_ABOUT = {
    "Data": ("split", "folds", "validation", "test", "group_duplicates", "seed"),
    "Network": ("model", "layers", "hidden", "readout", "dropout", "ensemble"),
    "Optimiser": (
        *("recipe", "method", "epochs", "batch_size", "learning_rate", "clip_norm", "balance"),
        *("class_weight", "decay_patience", "stop_patience", "patience_unit"),
    ),
    "Measurement": ("metric", "ties", "attack"),
}


Texts = dict[str, str]


def setting_groups(
    settings: Mapping[str, Any], defaults: Mapping[str, Any]
) -> tuple[dict[str, Texts], dict[str, Texts]]:
    """Settings by what they are about, and folded: those equal to the defaults, and all others."""
    groups = {name: title for title, names in _ABOUT.items() for name in names}
    about: dict[str, Texts] = {title: {} for title in _ABOUT}
    usual: Texts = {}
    other: Texts = {}
    for name, value in settings.items():
        place = about[groups[name]] if name in groups else other
        if name in groups and name in defaults and value == defaults[name]:
            place = usual
        shown = ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
        place[spaced(name)] = shown
    return about, {"As the recipe has it": usual, "Other": other}


def unique_id(wanted: str, taken: set[str]) -> str:
    """Make a name unique by appending -2, -3, …, and add it to ``taken``."""
    names = itertools.chain([wanted], (f"{wanted}-{number}" for number in itertools.count(2)))
    name = next(name for name in names if name not in taken)
    taken.add(name)
    return name
