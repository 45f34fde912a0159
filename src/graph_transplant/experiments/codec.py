"""Checks of JSON by types, and drawn examples to and from the JSON of a record; needs no torch."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, Final, get_args, get_type_hints

from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.shown import Example, Made, Mixture, Part, Salient

MOST_NODES: Final = 1_000
MOST_EDGES: Final = 10_000
"""An example with more nodes or edges than this is refused: it could not be drawn."""

KINDS: Final[Mapping[str, type[Example]]] = {
    "saliency": Salient,
    "mixture": Mixture,
    "virtual": Made,
}
"""Kinds of examples."""

_PARTS: Final = ("source", "destination")
_FLAGS: Final = ("molecule", "directed")
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
    """Check a JSON value and convert it; raise an error that names the first field at fault.

    A kind is a scalar type, ``X | None``, a tuple type, a dataclass, a list of one kind, or a table
    of kinds: ``name?`` may be missing, ``*`` is for all other fields.
    """
    if isinstance(kind, UnionType):
        return None if value is None else from_record(kind.__args__[0], value, place)
    if kind in (str, bool, int, float):
        wanted, fits = _SCALARS[kind]
        return kind(_checked(fits(value), wanted, value, place))
    if isinstance(kind, dict):
        return _table(kind, value, place)
    if is_dataclass(kind):
        return _dataclass(kind, value, place)
    # What is left is [X], tuple[X, ...] and tuple[X, Y].
    _checked(isinstance(value, list | tuple), "a list", value, place)
    kinds: Sequence[Any] = kind if isinstance(kind, list) else get_args(kind)
    if isinstance(kind, list) or kinds[-1] is ...:
        kinds = [kinds[0]] * len(value)
    _checked(len(value) == len(kinds), f"a list of {len(kinds)}", value, place)
    pairs = enumerate(zip(kinds, value, strict=True))
    found = [from_record(one, item, f"{place}[{number}]") for number, (one, item) in pairs]
    return found if isinstance(kind, list) else tuple(found)


def _dataclass(kind: Any, record: Any, place: str) -> Any:
    _checked(isinstance(record, Mapping), "an object", record, place)
    found, hints = {}, get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        if "inline" in field.metadata:
            found[field.name] = from_record(hint, record, place)
        elif field.name in record:
            found[field.name] = from_record(hint, record[field.name], _join(place, field.name))
        elif field.default is MISSING:
            raise GraphTransplantError(f"field `{_join(place, field.name)}` is missing")
    return kind(**found)


def _table(table: Mapping[str, Any], record: Any, place: str) -> Any:
    _checked(isinstance(record, Mapping), "an object", record, place)
    for name in table:
        if name != "*" and name[-1] != "?" and name not in record:
            raise GraphTransplantError(f"field `{_join(place, name)}` is missing")
    for name, value in record.items():
        kind = table.get(name) or table.get(f"{name}?") or table.get("*")
        if kind is not None:
            from_record(kind, value, _join(place, name))
    return record


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _checked(fits: bool, wanted: str, value: Any, place: str) -> Any:
    if not fits:
        field = f"field `{place}`" if place else "it"
        # Shortened: a damaged file may hold anything.
        raise GraphTransplantError(f"{field} must be {wanted}, got {reprlib.repr(value)}")
    return value


# -------------------------------------------------------------------- examples


def write_example(example: Example) -> dict[str, Any]:
    """Write an example for a record."""
    kind = next(name for name, cls in KINDS.items() if isinstance(example, cls))
    record = {"kind": kind, **to_record(example)}
    # What kind of graph it is stands there once, not for each part.
    for part in record.keys() & _PARTS:
        record[part] = {name: item for name, item in record[part].items() if name not in _FLAGS}
    return record


def read_example(record: Any) -> Example:
    """Parse one of the ``examples`` of a trial's record; raise if it is malformed."""
    try:
        kind = check_choice("kind", from_record({"kind": str}, record)["kind"], KINDS)
        flags = {flag: record[flag] for flag in _FLAGS if flag in record}
        parts = {part: record[part] for part in _PARTS if isinstance(record.get(part), Mapping)}
        whole = {**record, **{name: {**part, **flags} for name, part in parts.items()}}
        example: Example = from_record(KINDS[kind], whole)
        _check(example)
    except GraphTransplantError as problem:
        raise GraphTransplantError(f"an example in a record is damaged: {problem}") from None
    return example


def _check(one: Example | Part) -> None:
    """Raise if numbers are out of range or do not belong together."""
    graph = one.structure
    nodes, edges = len(graph.names), len(graph.edges)
    if nodes > MOST_NODES or edges > MOST_EDGES:
        raise GraphTransplantError(
            f"a graph may have {MOST_NODES} nodes and {MOST_EDGES} edges, got {nodes} and {edges}"
        )
    ends = tuple(end for edge in graph.edges for end in edge)
    given = {**vars(one), "edges": ends, "orders": graph.orders or None}
    limits = {"edges": nodes - 1, "orders": 4, "new_edges": edges - 1}
    limits |= dict.fromkeys(("saliency", "share", "weight", "confidence"), 1)
    lengths = {"orders": edges}
    lengths |= dict.fromkeys(("chosen", "from_source", "saliency", "motif"), nodes)
    for name, values in given.items():
        several = values if isinstance(values, tuple) else (values,)
        if name in limits and any(v is not None and not 0 <= v <= limits[name] for v in several):
            raise GraphTransplantError(f"field `{name}` must be within 0 and {limits[name]}")
        if name in lengths and values is not None and len(values) != lengths[name]:
            raise GraphTransplantError(f"field `{name}` must have {lengths[name]} entries")
    if isinstance(one, Mixture):
        _check(one.source)
        _check(one.destination)
