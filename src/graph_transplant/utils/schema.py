"""Files as dataclasses: JSON values are converted and checked here, once, when they are read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, Final, TypeVar

import msgspec

from graph_transplant.errors import DataError

T = TypeVar("T")

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""A number of things."""

Columns = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
"""A number of columns."""

Finite = Annotated[float, msgspec.Meta(gt=-(2.0**1000), lt=2.0**1000)]
"""A finite number; an overflowing literal such as 1e999 is parsed as infinity."""

Share = Annotated[float, msgspec.Meta(ge=0, lt=1)]
"""A part of a whole, never all of it."""

Fraction = Annotated[float, msgspec.Meta(gt=0, le=1)]
"""A part of a whole, never nothing."""

_WORDS: Final = {
    "int": "an integer",
    "float": "a finite number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_NAMES: Final = dict(zip((int, float, str, bool, list, dict, type(None)), _WORDS, strict=True))


def read(kind: type[T], content: Any, where: str = "") -> T:
    """Convert JSON values to a dataclass; raise a `DataError` that names the first wrong field.

    Fields that the class does not have are left out; those with defaults may be missing.
    """
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        problem = _reworded(str(error), content)
    raise DataError(f"{where}: {problem}" if where else problem)


def refuse_unknown(kind: type, content: Any, where: str) -> None:
    """Raise a `DataError` if an object has fields that a dataclass does not have."""
    names = {field.name for field in fields(kind)}
    for name in content if isinstance(content, Mapping) else ():
        if name not in names:
            raise DataError(f"{where}: {shown(name)} is not known")


def plain(value: Any) -> Any:
    """Convert to JSON values, without fields that have their defaults; NaN becomes null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if not is_dataclass(value):
        return value
    items = {field: getattr(value, field.name) for field in fields(value)}
    return {field.name: plain(v) for field, v in items.items() if v != _default(field)}


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def shown(value: object) -> str:
    """A value in a message, shortened: a damaged file may contain anything."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _reworded(message: str, content: Any) -> str:
    """Say in our words, with the name of the field and its value, what msgspec found."""
    problem, _, path = message.partition(" - at `$")
    steps = re.findall(r"[^.\[\]`]+|\[\.\.\.\]", path)
    if missing := re.fullmatch(r"Object missing required field `(.*)`", problem):
        name, _ = next(_found(content, steps))
        return f"`{'.'.join(filter(None, [name, missing[1]]))}` is missing"
    expected = re.fullmatch(r"Expected `([^`]*)`(.*?)(?:, got `?(\w+)`?)?", problem)
    places = list(_found(content, steps))
    if expected is None:  # raised by a class
        name, _ = places[0]
        return f"`{name}`: {problem}" if name else problem
    kinds, limit, got = expected.groups()
    # What is not of the wrong type is a number out of range.
    name, value = next(
        (
            (name, value)
            for name, value in places
            if _NAMES.get(type(value)) == got
            or (got is None and isinstance(value, float) and not math.isfinite(value))
        ),
        places[0],
    )
    wanted = [_WORDS.get(kind, kind) for kind in kinds.split(" | ")]
    if "an integer" in wanted and "a finite number" in wanted:
        wanted = ["a number"]
    text = " or ".join(kind for kind in wanted if kind != "null" or wanted == ["null"])
    if limit.startswith(" of "):
        return f"`{name}` must be {text}{limit}; got {len(value)}"
    if limit and math.isfinite(value):
        text = f"{text.replace('finite ', '')}{limit}"
    return f"{f'`{name}`' if name else 'it'} must be {text}; got {shown(value)}"


def _found(content: Any, steps: Sequence[str], name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name and value of all that a path may mean: ``[...]`` is the value of any key."""
    if not steps:
        yield name, content
        return
    step, rest = steps[0], steps[1:]
    if isinstance(content, list | tuple):
        yield from _found(content[int(step)], rest, f"{name}[{step}]")
        return
    for key in content if step == "[...]" else [step]:
        yield from _found(content[key], rest, f"{name}.{str(key)[:40]}".lstrip("."))
