"""Graphs as a report shows them, and as the ``examples`` of a record hold them; needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.experiments.codec import INLINE, from_record, to_record

MOST_NODES: Final = 1_000
MOST_EDGES: Final = 10_000
"""An example with more nodes or edges than this is refused: nobody could look at it."""

_PER_NODE: Final = ("chosen", "from_source", "saliency", "motif")
_PARTS: Final = ("source", "destination")
_FLAGS: Final = ("molecule", "directed")


@dataclass(frozen=True)
class Structure:
    """A graph as it is drawn.

    Attributes:
        names: What every node is called: its element or its label; empty texts for none.
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

    Attributes:
        id: What it is called in its file, or its number.
        label: Its label or value in words.
        structure: The graph.
        chosen: For every node, whether it is in the mixed graph.
        share: The share of the graph's saliency in these nodes: I(S_π, V̄_π) or I(S, V \\ V̄); with
            labels by size, the share of its nodes.
    """

    id: str
    label: str
    structure: Structure = field(metadata=INLINE)
    chosen: tuple[bool, ...]
    share: float


@dataclass(frozen=True)
class Mixture:
    """A mixed graph beside the two it was made of.

    Attributes:
        source: The graph that a part was transplanted from.
        destination: The graph that received it.
        structure: The mixed graph.
        from_source: For every node, whether it was transplanted.
        new_edges: Numbers of the edges that join the two parts.
        label: The mixed label or value in words.
        weight: λ, the weight of the source's label.
        labels: Weight of every class or label in it, the largest first; empty for regression. This
            and what follows is not known of an example in a record.
        method: The method that made it.
        data: Name of the data set.
        note: Where the saliency was read, and which graphs are shown.
    """

    source: Part
    destination: Part
    structure: Structure = field(metadata=INLINE)
    from_source: tuple[bool, ...]
    new_edges: tuple[int, ...]
    label: str
    weight: float
    labels: tuple[tuple[str, float], ...] = ()
    method: str = ""
    data: str = ""
    note: str = ""


@dataclass(frozen=True)
class Salient:
    """What a trained model says about a test graph, and which nodes move it.

    Attributes:
        graph: What the graph is called in its file, or its number in the data set.
        truth: Its true label or value in words; ``None`` where that is not known.
        predicted: What the model says, in words.
        confidence: Of the prediction, between 0 and 1; ``None`` for regression.
        correct: Whether it is right; ``None`` where that is not known, and for regression.
        structure: The graph.
        saliency: Of every node, divided by the largest of the graph: between 0 and 1.
        motif: For every node, whether it is part of what decides the class; ``None`` where the data
            do not say so.
    """

    graph: str
    truth: str | None
    predicted: str
    confidence: float | None
    correct: bool | None
    structure: Structure = field(metadata=INLINE)
    saliency: tuple[float, ...]
    motif: tuple[bool, ...] | None = None


@dataclass(frozen=True)
class Made:
    """A graph that an augmentation made, without a trace of where its nodes come from."""

    structure: Structure = field(metadata=INLINE)
    label: str


Example = Salient | Mixture | Made

KINDS: Final[Mapping[str, type[Example]]] = {
    "saliency": Salient,
    "mixture": Mixture,
    "virtual": Made,
}
"""What kinds of examples a record may hold."""


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
    for name, most in limits.items():
        values = given.get(name)
        for value in values if isinstance(values, tuple) else (values,):
            if value is not None and not 0 <= value <= most:
                raise GraphTransplantError(
                    f"field `{name}` must be within 0 and {most}, got {value}"
                )
    lengths = {"orders": edges, **dict.fromkeys(_PER_NODE, nodes)}
    for name, length in lengths.items():
        values = given.get(name)
        if values is not None and len(values) != length:
            raise GraphTransplantError(f"field `{name}` must have {length} entries")
    if isinstance(one, Mixture):
        _check(one.source)
        _check(one.destination)
