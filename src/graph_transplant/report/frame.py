"""What pages are made of: templates in which everything is escaped, and figures with files."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from graph_transplant.errors import GraphTransplantError
from graph_transplant.files import write_atomically
from graph_transplant.report.drawing import plain, shortened
from graph_transplant.report.svg import NARROW, WIDE

Cell = str | float | int | None
"""What a cell of a figure's table may hold; nothing where a number is not defined."""

FOLDER = "figures"
"""Name of the folder, beside a page, that the files of its figures lie in."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_OWN_FILE = re.compile(rf"{_NAME.pattern}\.(svg|csv)")
_SANS = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def render(
    name: str,
    filters: Mapping[str, Callable[..., object]],
    script: str = "",
    /,
    **content: object,
) -> str:
    """Fill in a template.

    Args:
        name: File name of the template.
        filters: What the template may apply to texts, by name.
        script: The one script that the page may run; its policy names it by its hash, so that no
            other can run even if one got in.
        **content: What it is filled with; whatever is not ``Markup`` is escaped.

    Returns:
        The page. What no page can hold, such as control characters, is replaced.
    """
    environment = _environment()
    environment.filters.update(filters)
    page = environment.get_template(name).render(
        script=Markup(script), script_hash=_hash(script) if script else "", **content
    )
    return plain(page)


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


def own_script() -> str:
    """Give the script of the pages: it sorts tables and switches between light and dark."""
    return _template("page.js")


def stylesheet() -> str:
    """Give the whole style sheet of a page.

    Example:
        >>> "--paper" in stylesheet() and "svg .tick" in stylesheet()
        True
    """
    return _environment().get_template("report.css").render()


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("graph_transplant.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _template(name: str) -> str:
    text = resources.files("graph_transplant.report").joinpath("templates", name).read_text("utf-8")
    # A browser hashes what it has parsed, and parsing makes one newline of CR LF.
    return text.replace("\r\n", "\n")


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@dataclass(frozen=True)
class Table:
    """The numbers that a figure draws.

    Args:
        columns: Names of the columns.
        rows: The rows, each with a value per column.

    Example:
        >>> print(Table(("method", "score"), (("vanilla", 0.5), ("a, b", None))).csv(), end="")
        method,score
        vanilla,0.5
        "a, b",
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise GraphTransplantError(
                    f"`rows` must have a value for each of {len(self.columns)} columns, "
                    f"got a row of {len(row)}"
                )

    def csv(self) -> str:
        """Write the table as CSV; a number that is not defined is an empty cell."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()


@dataclass(frozen=True)
class Figure:
    """A figure of a page.

    Args:
        name: Stem of its files: small letters, digits and single hyphens.
        title: Its heading.
        caption: How to read it.
        wide: The drawing for a desk.
        narrow: The drawing for a phone.
        data: The numbers that are drawn.
        group: Heading under which it stands with others of its kind.
    """

    name: str
    title: str
    caption: str
    wide: Markup
    narrow: Markup
    data: Table | None = None
    group: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise GraphTransplantError(
                "`name` of a figure must be small letters, digits and single hyphens, "
                f"got {self.name!r}"
            )


def figure(
    title: str,
    caption: str,
    draw: Callable[[int], Markup],
    *,
    name: str,
    data: Table | None = None,
    group: str = "",
) -> Figure:
    """Draw a figure for a desk and for a phone.

    Args:
        title: Its heading.
        caption: How to read it.
        draw: Draws it in a width of so many pixels.
        name: Stem of its files.
        data: The numbers that are drawn.
        group: Heading under which it stands with others of its kind.

    Example:
        >>> found = figure("Size", "A line.", lambda width: Markup(f"<svg>{width}</svg>"), name="a")
        >>> found.wide, found.narrow
        (Markup('<svg>720</svg>'), Markup('<svg>350</svg>'))
    """
    return Figure(name, title, caption, draw(WIDE), draw(NARROW), data, group)


def standalone(shown: Figure) -> str:
    """Give the drawing of a figure as a file of its own.

    Colours are written out, light ones and those for dark rooms: programs that know no custom
    properties, and most that make a PDF of it do not, show the light ones.

    Args:
        shown: The figure.

    Returns:
        An SVG document that needs nothing else.

    Example:
        >>> drawn = figure("Size", "Read it.", lambda width: Markup("<svg></svg>"), name="size")
        >>> standalone(drawn).startswith('<svg xmlns="http://www.w3.org/2000/svg"')
        True
    """
    if not shown.wide.startswith("<svg"):
        raise GraphTransplantError(
            f"the drawing of figure {shown.name!r} must be one svg element, got {shown.wide[:20]!r}"
        )
    opening, _, rest = str(shown.wide).partition(">")
    graph = re.search(r'class="[^"]*\bgraph\b', opening)
    rules = [
        rule
        for rule in _template("drawing.css").splitlines()
        if rule and (graph or not rule.startswith("svg.graph"))
    ]
    rules = [f"svg {{ font-family: {_SANS}; background: var(--paper); }}", *rules]
    light = "\n".join(_coloured(rules, "light"))
    dark = "\n".join(_coloured([rule for rule in rules if "var(" in rule], "dark"))
    words = Markup("<title>{}</title><desc>{}</desc>").format(shown.title, shown.caption)
    style = f"<style>\n{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n</style>"
    namespace = ' xmlns="http://www.w3.org/2000/svg"'
    return plain(f"<svg{namespace}{opening.removeprefix('<svg')}>{words}{style}{rest}\n")


def _coloured(rules: Iterable[str], theme: str) -> list[str]:
    colours = dict(re.findall(r"--([a-z0-9-]+): *([^;]+);", _template(f"{theme}.css")))
    colours["sans"] = _SANS
    return [re.sub(r"var\(--([a-z0-9-]+)\)", lambda name: colours[name[1]], rule) for rule in rules]


def check_figures(figures: Sequence[Figure]) -> None:
    """Check that figures can be written side by side, before anything is.

    Args:
        figures: The figures.

    Raises:
        GraphTransplantError: If two figures have one name.

    Example:
        >>> check_figures([Figure("a", "", "", Markup("<svg></svg>"), Markup(""))] * 2)
        Traceback (most recent call last):
        graph_transplant.errors.GraphTransplantError: no two figures may have one name, got twice...
    """
    names = [shown.name for shown in figures]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise GraphTransplantError(f"no two figures may have one name, got twice: {twice}")


def write_figures(
    figures: Sequence[Figure], folder: str | Path, *, manifest: str = ""
) -> list[Path]:
    """Write every figure as SVG and its numbers as CSV.

    Args:
        figures: The figures, no two of one name.
        folder: Where to; it is made where it is not there.
        manifest: Name of a file in that folder which lists what was written. What it listed before
            and is not written again is removed; nothing else ever is.

    Returns:
        The files, in the order of the figures.

    Raises:
        GraphTransplantError: If two figures have one name, or the disk refuses.

    Example:
        >>> import tempfile
        >>> drawn = figure("Size", "Read it.", lambda width: Markup("<svg></svg>"), name="size",
        ...                data=Table(("n",), ((1,),)))
        >>> [path.name for path in write_figures([drawn], tempfile.mkdtemp())]
        ['size.svg', 'size.csv']
    """
    check_figures(figures)
    contents = {}
    for shown in figures:
        contents[f"{shown.name}.svg"] = standalone(shown)
        if shown.data is not None:
            contents[f"{shown.name}.csv"] = plain(shown.data.csv())
    folder = Path(folder)
    if not contents and not folder.is_dir():
        return []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if manifest:
            _remove_stale(folder, manifest, contents)
    except OSError as problem:
        raise GraphTransplantError(f"cannot write {folder}: {problem.strerror}") from problem
    for name, text in contents.items():
        write_atomically(folder / name, text)
    return [folder / name for name in contents]


def _remove_stale(folder: Path, manifest: str, contents: Mapping[str, str]) -> None:
    """Remove what an earlier page drew and this one does not, and list what this one draws."""
    listed = folder / manifest
    if listed.is_file():
        for name in listed.read_text(encoding="utf-8", errors="replace").split("\n"):
            # The list may have been changed: no name of it leads out of the folder.
            if _OWN_FILE.fullmatch(name) and name not in contents:
                (folder / name).unlink(missing_ok=True)
    write_atomically(listed, "".join(f"{name}\n" for name in contents))
