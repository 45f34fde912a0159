"""Errors that users can cause and fix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, Final, NamedTuple, TypeVar

__all__ = [
    "DataError",
    "GraphTransplantError",
    "Skipped",
    "SkippedRows",
]

Name = TypeVar("Name", bound=str)

_SHOWN: Final = 100
_LONGEST_REASON: Final = 300


class GraphTransplantError(ValueError):
    """Invalid input; the message says what is wrong and where.

    The command line prints the message as one line and exits with status 2.

    Example:
        >>> import graph_transplant as gt
        >>> gt.GraphTransplant(anchor_ratio=0.7)
        Traceback (most recent call last):
        ...
        graph_transplant.errors.GraphTransplantError: `anchor_ratio` must be in (0, 0.5], got 0.7
    """


class DataError(GraphTransplantError):
    """Graphs, labels or files that are missing or malformed.

    Example:
        >>> import graph_transplant as gt
        >>> gt.GraphStore.from_pyg([], name="mine")
        Traceback (most recent call last):
        ...
        graph_transplant.errors.DataError: mine: there are no graphs
    """


class SkippedRows(UserWarning):
    """Rows of the data that are not used, as they cannot be read or have no target."""


def brief(error: Exception) -> str:
    """First line of the message of another library's error, shortened; its type if it is empty."""
    text = next(iter(str(error).splitlines()), "") or type(error).__name__
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "…"


def check_at_least(least: int, **values: Any) -> None:
    """Raise if an argument is not an integer of at least ``least``."""
    for argument, value in values.items():
        if not isinstance(value, Integral):
            raise GraphTransplantError(f"`{argument}` must be a whole number, got {value!r}")
        if value < least:
            raise GraphTransplantError(f"`{argument}` must be at least {least}, got {value!r}")


def check_positive(**values: Any) -> None:
    """Raise if an argument is not a number above 0."""
    for argument, value in values.items():
        if not (isinstance(value, Real) and float(value) > 0):
            raise GraphTransplantError(f"`{argument}` must be above 0, got {value!r}")


def check_in(interval: str, **values: Any) -> None:
    """Raise if an argument is not a number in an interval such as ``"(0, 0.5]"``."""
    low, high = map(float, interval[1:-1].split(","))
    for argument, value in values.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        inside = number and (
            low < float(value) < high
            or (value == low and interval[0] == "[")
            or (value == high and interval[-1] == "]")
        )
        if not inside:
            raise GraphTransplantError(f"`{argument}` must be in {interval}, got {value!r}")


def check_callbacks(callbacks: Any) -> tuple[Callable[..., Any], ...]:
    """Return the functions as a tuple; raise if there is something else among them."""
    if isinstance(callbacks, Iterable) and not callable(callbacks):
        several = tuple(callbacks)
        if all(map(callable, several)):
            return several
    raise GraphTransplantError(
        f"`callbacks` must be a list of functions, such as [print]; got {callbacks!r}"
    )


def check_spelling(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise if a name is nearly a known one."""
    names = list(known)
    for name in given:
        close = get_close_matches(name, names, n=1, cutoff=0.8)
        if close:
            raise GraphTransplantError(f"there is no option {name!r}; did you mean {close[0]!r}?")


def check_choice(argument: str, value: str, choices: Iterable[Name]) -> Name:
    """Return ``value`` if it is one of ``choices``; otherwise raise an error that lists them."""
    names = list(choices)
    if value in names:
        return names[names.index(value)]
    close = get_close_matches(str(value), names, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    # Values from files can be of any length.
    shown = value if len(str(value)) <= _SHOWN else f"{str(value)[:_SHOWN]}…"
    raise GraphTransplantError(
        f"`{argument}` must be one of {', '.join(names)}; got {shown!r}{hint}"
    )


class Skipped(NamedTuple):
    """An input row that was skipped."""

    row: int  # counted from 1
    id: str  # from the file; empty if unreadable
    reason: str
