"""Formatting of numbers and lists for tables, text and figures."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

NOTHING = "-"
"""Placeholder for an undefined number."""


def number(value: float | None, digits: int = 3, *, sign: bool = False) -> str:
    """Format a number with a true minus sign, and no sign before zero."""
    if value is None or math.isnan(value):
        return NOTHING
    # Two ways to add the same numbers differ in the last bits, which must not decide the rounding.
    text = f"{round(value, 9):{'+' if sign else ''}.{digits}f}"
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")


def percent(value: float | None, digits: int = 1, *, unit: bool = False) -> str:
    """Format a fraction as a percentage."""
    text = number(None if value is None else 100 * value, digits)
    return f"{text} %" if unit and text != NOTHING else text


def points(value: float | None, digits: int = 1, *, sign: bool = True) -> str:
    """Format a difference of scores in percentage points."""
    return number(None if value is None else 100 * value, digits, sign=sign)


def ratio(value: float) -> str:
    """Format a ratio, with a decimal below 10."""
    if value < 0.1:
        return f"{value:.1g}"
    return number(value, 1) if value < 9.95 else f"{value:,.0f}"


def units(value: float | None) -> str:
    """Format a number of any magnitude in the units of the data."""
    if value is None or math.isnan(value):
        return NOTHING
    size = abs(value)
    form = ".3f" if 0.1 <= size < 1000 or not value else ".0f" if 1000 <= size < 1e7 else ".3g"
    text = format(size, form)
    return f"−{text}" if value < 0 else text


def p_value(value: float | None) -> str:
    """Format a p-value for a table."""
    return "< 0.001" if value is not None and value < 0.001 else number(value)


def p_words(value: float | None) -> str:
    """Format a p-value for a sentence, with two significant digits."""
    if value is None or math.isnan(value):
        return "p not defined"
    if value < 0.001:
        return "p < 0.001"
    return f"p = {value:.2g}" if value < 0.995 else "p = 1"


def duration(seconds: float | None) -> str:
    """Format a duration."""
    if seconds is None or math.isnan(seconds):
        return NOTHING
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def listed(names: Sequence[str], last: str = "and") -> str:
    """Join words as in a sentence."""
    *first, end = names
    return f"{', '.join(first)} {last} {end}" if first else end


def count(number: int, noun: str) -> str:
    """Format a count with its noun, in the plural unless it is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def plain(text: str, *, lines: bool = False) -> str:
    """Replace control characters and lone surrogates, which are invalid in HTML and figures.

    ``lines`` keeps tabs and line breaks.
    """
    kept = "\t\n\r" if lines else ""
    return _UNPRINTABLE.sub(lambda found: found[0] if found[0] in kept else "\ufffd", text)


def capital(text: str) -> str:
    """Capitalise the first letter and keep the rest unchanged."""
    return text[:1].upper() + text[1:]
