"""Graphs as pages show them, and as examples in records; needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import product
from typing import Any, Final

from graph_transplant.errors import GraphTransplantError

_DIGITS: Final = 4  # of numbers in a record


@dataclass(frozen=True)
class Structure:
    """A graph as it is drawn.

    Attributes:
        names: Label of every node, or element with hydrogens and charge where they are known
            (``NH``, ``O-``); empty texts for none.
        edges: Pairs of node numbers; an undirected edge stands here once.
        orders: Bond order of every edge, 1.5 for aromatic ones; empty where all are 1.
        molecule: Whether it is a molecule.
        directed: Whether its edges have a direction.
    """

    names: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    orders: tuple[float, ...]
    molecule: bool
    directed: bool


@dataclass(frozen=True)
class Part:
    r"""One of the two graphs that were mixed.

    ``chosen`` marks the nodes that are in the mixed graph, ``share`` is their share of the graph's
    saliency, I(S_π, V̄_π) or I(S, V \ V̄); with labels by size, of its nodes.
    """

    id: str
    label: str
    structure: Structure
    chosen: tuple[bool, ...]
    share: float


@dataclass(frozen=True)
class Mixture:
    """A mixed graph beside the two it was made of.

    ``from_source`` marks the transplanted nodes, ``new_edges`` numbers the edges between the parts,
    ``weight`` is λ, the weight of the source's label. ``labels`` (weight of every class or label in
    it, the largest first) and what follows is not known of an example in a record. ``target`` is
    the column of the classes.
    """

    source: Part
    destination: Part
    structure: Structure
    from_source: tuple[bool, ...]
    new_edges: tuple[int, ...]
    label: str
    weight: float
    labels: tuple[tuple[str, float], ...] = ()
    method: str = ""
    data: str = ""
    note: str = ""
    target: str = ""


@dataclass(frozen=True)
class Salient:
    """What a trained model says about a test graph, and which nodes move it.

    ``truth``, ``confidence`` and ``correct`` are ``None`` where they are not known. ``saliency`` of
    every node is divided by the largest of the graph. ``motif`` marks the nodes that decide the
    class, where the data say so.
    """

    graph: str
    truth: str | None
    predicted: str
    confidence: float | None
    correct: bool | None
    structure: Structure
    saliency: tuple[float, ...]
    motif: tuple[bool, ...] | None = None


@dataclass(frozen=True)
class Made:
    """A graph that an augmentation made, without a trace of where its nodes come from."""

    structure: Structure
    label: str


Example = Salient | Mixture | Made

KINDS: Final[Mapping[str, type[Example]]] = {
    "saliency": Salient,
    "mixture": Mixture,
    "virtual": Made,
}
"""Kinds of examples in records."""

_FLAGS: Final = ("molecule", "directed")  # of a mixture, not of each part


def write_example(example: Example) -> dict[str, Any]:
    """An example for a record; what has its default is left out, floats are rounded."""
    kind = next(name for name, cls in KINDS.items() if isinstance(example, cls))
    record = {"kind": kind, **_plain(example)}
    if isinstance(example, Mixture):
        for part, flag in product((record["source"], record["destination"]), _FLAGS):
            del part[flag]
    return record


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        # One mark per node is shorter as 0 or 1.
        return [int(item) if isinstance(item, bool) else _plain(item) for item in value]
    if not is_dataclass(value):
        return round(value, _DIGITS) if isinstance(value, float) else value
    record: dict[str, Any] = {}
    for field in fields(value):
        item = getattr(value, field.name)
        if isinstance(item, Structure):
            record |= _plain(item)
        elif item != field.default:
            record[field.name] = _plain(item)
    return record


def read_example(record: Mapping[str, Any]) -> Example:
    """Parse one of the ``examples`` of a trial's record; raise if a part is missing or unfit."""
    try:
        flags = {name: record[name] for name in _FLAGS}
        example: Example = _read(KINDS[record["kind"]], record, flags)
    except (KeyError, TypeError, ValueError) as problem:
        raise GraphTransplantError(f"an example in a record is damaged: {problem}") from None
    return example


def _read(kind: Any, record: Mapping[str, Any], flags: Mapping[str, bool]) -> Any:
    graph = Structure(
        tuple(map(str, record["names"])),
        tuple((int(one), int(two)) for one, two in record["edges"]),
        tuple(map(float, record["orders"])),
        **flags,
    )
    nodes = len(graph.names)
    if any(not 0 <= end < nodes for edge in graph.edges for end in edge):
        raise ValueError("an edge ends at no node")
    if graph.orders and len(graph.orders) != len(graph.edges):
        raise ValueError("`orders` must have a value for each edge")
    given: dict[str, Any] = {"structure": graph}
    for field in fields(kind):
        value = record.get(field.name)
        if field.name in ("source", "destination"):
            given[field.name] = _read(Part, record[field.name], flags)
        elif field.name in ("chosen", "from_source", "motif") and value is not None:
            given[field.name] = tuple(map(bool, value))
        elif field.name == "saliency" and value is not None:
            given[field.name] = tuple(map(float, value))
        elif field.name in ("confidence", "share", "weight") and value is not None:
            given[field.name] = float(value)
        elif field.name in record:
            given[field.name] = tuple(value) if isinstance(value, list) else value
    for name in {"chosen", "from_source", "motif", "saliency"} & given.keys():
        if given[name] is not None and len(given[name]) != nodes:
            raise ValueError(f"`{name}` must have a value for each node")
    return kind(**given)
