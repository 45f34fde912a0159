"""What pages are made of: templates in which everything is escaped."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from graph_transplant.methods import METHODS

# Control characters and halves of surrogate pairs, which no page can hold.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


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
    environment.filters |= {"tied": tied, "brief": brief}
    # A browser hashes what it has parsed, and parsing makes one newline of CR LF.
    path = resources.files("graph_transplant.report").joinpath("templates", "page.js")
    script = path.read_text("utf-8").replace("\r\n", "\n")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = environment.get_template(template).render(
        script=Markup(script), script_hash=f"sha256-{digest}", **content
    )
    return plain(page)


def plain(text: str) -> str:
    r"""Replace what no page can hold.

    Example:
        >>> plain("a\x00b\ud800c") == "a\ufffdb\ufffdc"
        True
    """
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def shortened(text: str, most: int) -> str:
    """Cut a text that is longer than ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def brief(text: str, most: int = 60) -> Markup:
    """A text from data: kept apart from the writing direction around it, cut when it is long.

    Example:
        >>> brief("<b>"), brief("abcdef", 4)
        (Markup('<bdi>&lt;b&gt;</bdi>'), Markup('<bdi title="abcdef">abc…</bdi>'))
    """
    text = plain(text)
    if len(text) <= most:
        return Markup("<bdi>{}</bdi>").format(text)
    return Markup('<bdi title="{}">{}</bdi>').format(text, shortened(text, most))


def tied(text: str) -> str:
    """Keep "p = 0.03" and "4.1 points" on one line."""
    text = re.sub(r"(?<=\bp) ([=<]) (?=\d)", "\u00a0\\1\u00a0", text)
    return re.sub(r"(?<=\d) (?=points|folds|methods|repeats|%)", "\u00a0", text)


def class_word(label: str) -> str:
    """A class for a sentence: a number alone would be read as a quantity.

    Example:
        >>> class_word("1"), class_word("toxic")
        ('class 1', 'toxic')
    """
    return f"class {label}" if re.fullmatch(r"-?\d+", label) else label


def method_summary(name: str) -> str:
    """What a method is, in a line; empty for methods of people's own."""
    from graph_transplant.classical import CLASSICAL

    key = name.partition(":")[0]
    found = METHODS.get(key) or CLASSICAL.get(key)
    return found.summary if found else ""


def slug(*words: str, most: int = 60) -> str:
    """The stem of a file's name; two texts may well have the same.

    Example:
        >>> slug("transplant-dp:anchor_ratio=0.05"), slug("GCS", "3"), slug("<>")
        ('transplant-dp-anchor-ratio-0-05', 'gcs-3', 'x')
    """
    text = "-".join(word[: 4 * most] for word in words).lower()
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:most].strip("-") or "x"


class Names:
    """Makes names unique by appending a number."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def claim(self, wanted: str) -> str:
        """The wanted name, or the first free one with a number."""
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}-{number}", number + 1
        self._taken.add(name)
        return name
