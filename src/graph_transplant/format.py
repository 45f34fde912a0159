"""How numbers and lists are written, in tables, sentences and figures alike."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

NOTHING = "-"
"""Stands for a number that is not defined."""


def _missing(value: float | None) -> bool:
    return value is None or math.isnan(value)


def number(value: float | None, digits: int = 3, *, sign: bool = False) -> str:
    """Write a number with a true minus sign, and no sign before zero.

    Example:
        >>> number(0.12345), number(-0.5, 1, sign=True), number(-0.0001, 1), number(None)
        ('0.123', '−0.5', '0.0', '-')
    """
    if value is None or _missing(value):
        return NOTHING
    text = f"{value:{'+' if sign else ''}.{digits}f}"
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")


def percent(value: float | None, digits: int = 1, *, unit: bool = False) -> str:
    """Write a share in per cent.

    Example:
        >>> percent(0.6841), percent(0.2, 0, unit=True)
        ('68.4', '20 %')
    """
    text = number(None if value is None else 100 * value, digits)
    return f"{text} %" if unit and text != NOTHING else text


def points(value: float | None, digits: int = 1) -> str:
    """Write a difference of scores in percentage points.

    Example:
        >>> points(0.041), points(-0.0151), points(-0.0001)
        ('+4.1', '−1.5', '0.0')
    """
    return number(None if value is None else 100 * value, digits, sign=True)


def units(value: float | None) -> str:
    """Write a number in the units of the data, of whatever size.

    Example:
        >>> units(0.5124), units(5123.4), units(1.2e-5)
        ('0.512', '5123', '1.2e-05')
    """
    if value is None or _missing(value):
        return NOTHING
    form = (
        ".3f" if 0.1 <= abs(value) < 1000 or not value else ".0f" if 1000 <= value < 1e7 else ".3g"
    )
    return format(value, form).replace("-", "−", 1) if value < 0 else format(value, form)


def p_value(value: float | None) -> str:
    """Write a p-value for a column.

    Example:
        >>> p_value(0.0312), p_value(0.00002), p_value(None)
        ('0.031', '< 0.001', '-')
    """
    return "< 0.001" if value is not None and value < 0.001 else number(value)


def p_words(value: float | None) -> str:
    """Write a p-value for a sentence, with two significant digits.

    Example:
        >>> p_words(0.0312), p_words(0.00002), p_words(1.0), p_words(None)
        ('p = 0.031', 'p < 0.001', 'p = 1', 'p not defined')
    """
    if value is None or _missing(value):
        return "p not defined"
    if value < 0.001:
        return "p < 0.001"
    return f"p = {value:.2g}" if value < 0.995 else "p = 1"


def duration(seconds: float | None) -> str:
    """Write a duration.

    Example:
        >>> duration(0.42), duration(31.4), duration(190), duration(8000), duration(200000)
        ('0.4 s', '31 s', '3 min 10 s', '2 h 13 min', '2 d 7 h')
    """
    if seconds is None or _missing(seconds):
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
    """Join words as in a sentence.

    Example:
        >>> listed(["a"]), listed(["a", "b", "c"])
        ('a', 'a, b and c')
    """
    *first, end = names
    return f"{', '.join(first)} {last} {end}" if first else end


def count(number: int, noun: str) -> str:
    """Write a number of things.

    Example:
        >>> count(1, "trial"), count(12, "trial")
        ('1 trial', '12 trials')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def plain(text: str) -> str:
    """Replace control characters and halves of surrogate pairs, which no page or table can hold."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def capital(text: str) -> str:
    """Begin with a capital letter and leave the rest as it is."""
    return text[:1].upper() + text[1:]
