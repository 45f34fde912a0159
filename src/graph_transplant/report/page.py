"""What pages are made of: templates in which everything is escaped."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from graph_transplant.classical import CLASSICAL
from graph_transplant.format import number, p_value, percent, plain, points
from graph_transplant.methods import METHODS


def render(template: str, /, **content: object) -> str:
    """Fill in a template; whatever is not ``Markup`` is escaped.

    The one script of a page is named by its hash in its policy, so that no other can run.
    """
    environment = Environment(
        loader=PackageLoader("graph_transplant.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"tied": tied, "words": words, "brief": brief}
    environment.filters |= {"number": number, "p": p_value, "percent": percent, "points": points}
    # A browser hashes what it has parsed, and parsing makes one newline of CR LF.
    path = resources.files("graph_transplant.report").joinpath("templates", "page.js")
    script = path.read_text("utf-8").replace("\r\n", "\n")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = environment.get_template(template).render(
        script=Markup(script), script_hash=f"sha256-{digest}", **content
    )
    return plain(page, lines=True)


def shortened(text: str, most: int) -> str:
    """Cut a text that is longer than ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def brief(text: str, most: int = 60) -> Markup:
    """A text from data: kept apart from the writing direction around it, cut when it is long."""
    text = plain(text)
    if len(text) <= most:
        return Markup("<bdi>{}</bdi>").format(text)
    return Markup('<bdi title="{}">{}</bdi>').format(text, shortened(text, most))


def words(text: str) -> Markup:
    """A command of which no word is broken where it fits."""
    whole = Markup('<span class="whole">{}</span>')
    return Markup(" ").join(whole.format(word) for word in text.split(" "))


_NAME = re.compile(r"\b\w+(?:[-:=.]\w+)*-\w+(?:[-:=.]\w+)*")


def tied(text: str) -> Markup:
    """Keep "p = 0.03" and "4.1 points" on one line, and names with a hyphen where they fit."""
    text = re.sub(r"(?<=\bp) ([=<]) (?=\d)", "\u00a0\\1\u00a0", text)
    text = re.sub(r"(?<=\d) (?=points|folds|methods|repeats|%)", "\u00a0", text)
    return Markup(_NAME.sub(r'<span class="whole">\g<0></span>', str(escape(text))))


def class_word(label: str, target: str = "") -> str:
    """A class for a sentence, as ``Class = 1``: a number alone would be read as a quantity."""
    if not re.fullmatch(r"-?\d+", label):
        return label
    return f"{shortened(target, 40)} = {label}" if target else f"class {label}"


def method_summary(name: str) -> str:
    """What a method is, in a line; empty for methods of people's own."""
    key = name.partition(":")[0]
    found = METHODS.get(key) or CLASSICAL.get(key)
    return found.summary if found else ""


def slug(*words: str, most: int = 60) -> str:
    """The stem of a file's name; two texts may well have the same."""
    text = "-".join(word[: 4 * most] for word in words).lower()
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:most].strip("-") or "x"


def claim(wanted: str, taken: set[str]) -> str:
    """Take the wanted name, or the first free one with a number."""
    names = itertools.chain([wanted], (f"{wanted}-{number}" for number in itertools.count(2)))
    name = next(name for name in names if name not in taken)
    taken.add(name)
    return name
