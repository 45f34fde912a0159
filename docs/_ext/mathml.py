"""Formulas as MathML, which browsers draw themselves: no script, no image, no font to fetch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.errors import ExtensionError

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

# In MathML brackets grow with what they hold, so commands for their size say nothing.
_SIZE = re.compile(r"\\[bB]igg?[lr]?(?![A-Za-z])")
# The empty group keeps the converter from putting the index of an accented letter below it.
_ACCENT = re.compile(r"\\(bar|hat)\s*(\{[^{}]*\}|[A-Za-z])")
# Signs that browsers draw badly or not at all with ordinary fonts, and what to write instead.
_BETTER = {
    "\u29f5": "\u2216",  # set minus
    "\u02c9": "\u00af",  # bar
    '<mover accent="true">': "<mover>",  # as an accent it would touch its letter
}


def convert(node: nodes.math | nodes.math_block, *, block: bool) -> str:
    """Turn the LaTeX of a node into MathML, or say which formula cannot be."""
    source = _ACCENT.sub(r"{{\\\1 \2}{}}", _SIZE.sub("", node.astext()))
    try:
        written = tex2mathml(source, as_block=block)
    except MathError as problem:
        raise ExtensionError(f"formula {source!r}: {problem}") from problem
    for sign, better in _BETTER.items():
        written = written.replace(sign, better)
    return written


def write_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write an inline formula, and leave out its source text."""
    self.body.append(convert(node, block=False))
    raise nodes.SkipNode


def write_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula, and leave out its source text."""
    self.body.append(self.starttag(node, "div", CLASS="math"))
    self.body.append(convert(node, block=True))
    self.body.append("</div>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool | str]:
    """Register the renderer under the name ``mathml``."""
    app.add_html_math_renderer("mathml", (write_inline, None), (write_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
