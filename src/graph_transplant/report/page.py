"""Template rendering and text helpers of all pages."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from graph_transplant.figures.style import DARK, LIGHT
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
    # Browsers normalise CR LF to LF before hashing.
    path = resources.files("graph_transplant.report").joinpath("templates", "page.js")
    script = path.read_text("utf-8").replace("\r\n", "\n")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = environment.get_template(template).render(
        light=LIGHT, dark=DARK, script=Markup(script), script_hash=f"sha256-{digest}", **content
    )
    return plain(page, lines=True)


def shortened(text: str, most: int) -> str:
    """Truncate a text to ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def truncated(text: str, most: int = 60) -> Markup:
    """Truncate a text from data and isolate its writing direction."""
    text = plain(text)
    if len(text) <= most:
        return Markup("<bdi>{}</bdi>").format(text)
    return Markup('<bdi title="{}">{}</bdi>').format(text, shortened(text, most))


def unbroken(text: str) -> Markup:
    """Prevent line breaks within the words of a command if they fit."""
    whole = Markup('<span class="whole">{}</span>')
    return Markup(" ").join(whole.format(word) for word in text.split(" "))


_NAME = re.compile(r"--\w+(?:-\w+)*|\b\w+(?:[-:=.]\w+)*-\w+(?:[-:=.]\w+)*")


def no_wrap(text: str) -> Markup:
    """Keep "p = 0.03" and "4.1 points" on one line, and hyphenated names if they fit."""
    text = re.sub(r"(?<=\bp) ([=<]) (?=\d)", "\u00a0\\1\u00a0", text)
    text = re.sub(r"(?<=\d) (?=points|folds|methods|repeats|%)", "\u00a0", text)
    return Markup(_NAME.sub(r'<span class="whole">\g<0></span>', str(escape(text))))


def class_word(label: str, target: str = "") -> str:
    """Name a class in a sentence, numbers as ``Class = 1`` so that they do not look like counts."""
    if not re.fullmatch(r"-?\d+", label):
        return label
    return f"{shortened(target, 40)} = {label}" if target else f"class {label}"


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
        place[" ".join(name.split("_"))] = shown
    return about, {"As the recipe has it": usual, "Other": other}


def slug(*words: str, most: int = 60) -> str:
    """File name stem for a text, not necessarily unique."""
    text = "-".join(word[: 4 * most] for word in words).lower()
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:most].strip("-") or "x"


def unique_id(wanted: str, taken: set[str]) -> str:
    """Make a name unique by appending -2, -3, …, and add it to ``taken``."""
    names = itertools.chain([wanted], (f"{wanted}-{number}" for number in itertools.count(2)))
    name = next(name for name in names if name not in taken)
    taken.add(name)
    return name
