"""Frozen dataclasses to and from the JSON of a record, and checks of JSON by its types."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Final, get_args, get_type_hints

from graph_transplant.errors import GraphTransplantError

INLINE: Final = {"inline": True}
"""Metadata of a field whose own fields stand among those of its owner."""

_DIGITS: Final = 4
_LARGEST: Final = sys.float_info.max

# Exact types: True is an int to isinstance.
_SCALARS: Final[dict[Any, tuple[str, Any]]] = {
    str: ("text", lambda value: type(value) is str),
    bool: ("true or false", lambda value: type(value) in (bool, int) and value in (0, 1)),
    int: ("a whole number", lambda value: type(value) is int),
    # Comparing refuses NaN, and takes integers that no float holds.
    float: ("a number", lambda v: type(v) in (int, float) and -_LARGEST <= v <= _LARGEST),
}


def to_record(value: Any) -> dict[str, Any]:
    """Write a dataclass; fields that have their default are left out, floats are rounded."""
    record: dict[str, Any] = {}
    for field in fields(value):
        item = getattr(value, field.name)
        if "inline" in field.metadata:
            record |= to_record(item)
        elif item != field.default:
            record[field.name] = _plain(item)
    return record


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return to_record(value)
    if isinstance(value, tuple):
        # One mark per node is shorter as 0 or 1.
        return [int(item) if isinstance(item, bool) else _plain(item) for item in value]
    return round(value, _DIGITS) if isinstance(value, float) else value


def from_record(kind: Any, value: Any, place: str = "") -> Any:
    """Check a JSON value and convert it; raise an error that names the first field at fault."""
    if isinstance(kind, UnionType):
        return None if value is None else from_record(kind.__args__[0], value, place)
    if isinstance(kind, dict):
        return _table(kind, _object(value, place), place)
    if isinstance(kind, list):
        items = enumerate(_list(value, place))
        return [from_record(kind[0], item, f"{place}[{number}]") for number, item in items]
    if kind in _SCALARS:
        wanted, fits = _SCALARS[kind]
        if not fits(value):
            raise _wrong(place, wanted, value)
        return kind(value)
    if is_dataclass(kind):
        return _dataclass(kind, _object(value, place), place)
    # What is left is tuple[X, ...] and tuple[X, Y].
    kinds = get_args(kind)
    if kinds[-1] is ...:
        return tuple(from_record([kinds[0]], value, place))
    if len(_list(value, place)) != len(kinds):
        raise _wrong(place, f"a list of {len(kinds)}", value)
    pairs = enumerate(zip(kinds, value, strict=True))
    return tuple(from_record(one, item, f"{place}[{number}]") for number, (one, item) in pairs)


def _dataclass(kind: Any, record: Mapping[str, Any], place: str) -> Any:
    found = {}
    for field, hint in _fields(kind):
        if "inline" in field.metadata:
            found[field.name] = from_record(hint, record, place)
        elif field.name in record:
            found[field.name] = from_record(hint, record[field.name], _join(place, field.name))
        elif field.default is MISSING:
            raise GraphTransplantError(f"field `{_join(place, field.name)}` is missing")
    return kind(**found)


@cache
def _fields(kind: Any) -> list[tuple[Any, Any]]:
    hints = get_type_hints(kind)
    return [(field, hints[field.name]) for field in fields(kind)]


def _table(table: Mapping[str, Any], record: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    kinds = {name.removesuffix("?"): kind for name, kind in table.items()}
    others = kinds.pop("*", None)
    for name in kinds:
        if name in table and name not in record:
            raise GraphTransplantError(f"field `{_join(place, name)}` is missing")
    for name, value in record.items():
        kind = kinds.get(name, others)
        if kind is not None:
            from_record(kind, value, _join(place, name))
    return record


def _object(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(place, "an object", value)
    return value


def _list(value: Any, place: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise _wrong(place, "a list", value)
    return value


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _wrong(place: str, wanted: str, value: object) -> GraphTransplantError:
    # Shortened: a damaged file may hold anything.
    field = f"field `{place}`" if place else "it"
    return GraphTransplantError(f"{field} must be {wanted}, got {reprlib.repr(value)}")
