"""Typography of pages and tables: the one place that edits texts."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from graph_transplant.utils.text import plain


def spaced(name: str) -> str:
    """Name an option or a column in words."""
    return name.replace("_", " ")


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


def class_words(label: str) -> str:
    """Name the classes of a mixed label, such as ``66 % 1, 34 % 0``."""
    return re.sub(r"(?<=% )-?\d+(?=,|$)", lambda match: class_word(match[0]), label)


def slug(*words: str, most: int = 60) -> str:
    """File name stem for a text, not necessarily unique."""
    text = "-".join(word[: 4 * most] for word in words).lower()
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:most].strip("-") or "x"


def markdown_text(text: str) -> str:
    """Escape a text for a Markdown table."""
    return re.sub(r"([\\|*_`<>\[\]#&~])", r"\\\1", _one_line(text))


_LATEX = str.maketrans(
    {sign: rf"\{sign}" for sign in "{}&%$#_"}
    # At the start of a row, LaTeX would read these as options of the preceding line break.
    | {sign: f"{{{sign}}}" for sign in "[]*"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''"}
    # pdfTeX lacks most non-ASCII characters.
    | {"−": "$-$", "±": r"$\pm$", "×": r"$\times$", "²": "$^2$", "ψ": r"$\psi$", "’": "'"}
    | {"…": r"\ldots{}", "\N{NO-BREAK SPACE}": "~"}
)


def latex_text(text: str) -> str:
    """Escape a text for LaTeX."""
    # LaTeX would turn two hyphens into a dash.
    return re.sub(r"-(?=-)", "-{}", _one_line(text).translate(_LATEX))


def _one_line(text: str) -> str:
    """Replace line breaks, control characters and lone surrogates by spaces."""
    space = "\N{NO-BREAK SPACE}"
    signs = (sign if sign.isprintable() or sign == space else " " for sign in text)
    return " ".join(part for part in "".join(signs).split(" ") if part)
