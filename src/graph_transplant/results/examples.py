"""Graphs and explanations to draw, as plain data that records hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import product
from typing import Any, Final

from graph_transplant.errors import GraphTransplantError, Skipped
from graph_transplant.utils.schema import read

_DIGITS: Final = 4


@dataclass(frozen=True)
class DrawnGraph:
    """A graph to draw.

    Attributes:
        names: Node labels, or elements with hydrogens and charge (``NH``, ``O-``); may be empty.
        edges: Pairs of node indices; undirected edges appear once.
        orders: Bond order of every edge, 1.5 if aromatic; empty if all are 1.
        molecule: Whether it is a molecule.
        directed: Whether its edges have a direction.
        kinds: Type of every edge; empty if they have none.
    """

    names: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    orders: tuple[float, ...]
    molecule: bool
    directed: bool
    kinds: tuple[str, ...] = ()

    @property
    def typed(self) -> bool:
        """Whether nodes or edges have types other than elements and bond orders."""
        return not self.molecule and any((*self.names, *self.kinds))


@dataclass(frozen=True)
class DrawnPart:
    r"""One of the two graphs that were mixed.

    ``chosen`` marks the nodes in the mixed graph. ``share`` is their share of the graph's saliency,
    I(S_π, V̄_π) or I(S, V \ V̄), or of its nodes if labels are mixed by size.
    """

    id: str
    label: str
    structure: DrawnGraph
    chosen: tuple[bool, ...]
    share: float


@dataclass(frozen=True)
class Mixture:
    """A mixed graph and the two graphs it was made from.

    ``from_source`` marks the transplanted nodes, ``new_edges`` are the indices of edges between the
    parts, and ``weight`` is λ, the weight of the source's label. Examples in records lack
    ``labels`` (the weight of every class or label, largest first) and the fields after it.
    ``target`` is the input column of the classes.
    """

    source: DrawnPart
    destination: DrawnPart
    structure: DrawnGraph
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
class DrawnSaliency:
    """Prediction for a test graph, and the saliency of its nodes.

    ``truth``, ``confidence`` and ``correct`` are ``None`` if unknown. ``saliency`` is divided by
    its maximum in the graph. ``motif`` marks the nodes that determine the class, if known.
    """

    graph: str
    truth: str | None
    predicted: str
    confidence: float | None
    correct: bool | None
    structure: DrawnGraph
    saliency: tuple[float, ...]
    motif: tuple[bool, ...] | None = None


@dataclass(frozen=True)
class DrawnVirtual:
    """A graph made by an augmentation, without the origin of its nodes."""

    structure: DrawnGraph
    label: str


Example = DrawnSaliency | Mixture | DrawnVirtual

KINDS: Final[Mapping[str, type[Example]]] = {
    "saliency": DrawnSaliency,
    "mixture": Mixture,
    "virtual": DrawnVirtual,
}
"""Kinds of examples in records."""

_FLAGS: Final = ("molecule", "directed")  # stored once per mixture
_GRAPH: Final = ("names", "edges", "orders", "kinds")
_MASKS: Final = ("chosen", "from_source", "motif")  # of nodes


def write_example(example: Example) -> dict[str, Any]:
    """Convert an example for a record; defaults are left out and floats are rounded."""
    kind = next(name for name, cls in KINDS.items() if isinstance(example, cls))
    record = {"kind": kind, **_plain(example)}
    if isinstance(example, Mixture):
        for part, flag in product((record["source"], record["destination"]), _FLAGS):
            del part[flag]
    return record


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        # Masks are shorter as 0 and 1.
        return [int(item) if isinstance(item, bool) else _plain(item) for item in value]
    if not is_dataclass(value):
        return round(value, _DIGITS) if isinstance(value, float) else value
    record: dict[str, Any] = {}
    for field in fields(value):
        item = getattr(value, field.name)
        if isinstance(item, DrawnGraph):
            record |= _plain(item)
        elif item != field.default:
            record[field.name] = _plain(item)
    return record


def read_example(record: Mapping[str, Any]) -> Example:
    """Parse an example from a record; raise if malformed."""
    try:
        flags = {name: record[name] for name in _FLAGS}
        kind, content = KINDS[record["kind"]], _nested(record, flags)
        if kind is Mixture:
            content |= {side: _nested(record[side], flags) for side in ("source", "destination")}
        example = read(kind, content)
        parts: list[Example | DrawnPart] = [example]
        if isinstance(example, Mixture):
            parts += [example.source, example.destination]
        for part in parts:
            _check_lengths(part)
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise GraphTransplantError(f"an example in a record is damaged: {problem}") from None
    return example


def _nested(record: Mapping[str, Any], flags: Mapping[str, bool]) -> dict[str, Any]:
    """Make the graph an object of its own; records have its fields beside those of the example."""
    graph = {name: value for name, value in record.items() if name in _GRAPH}
    masks = {
        name: list(map(bool, value))
        for name, value in record.items()
        if name in _MASKS and value is not None
    }
    return {**record, **masks, "structure": {**graph, **flags}}


def _check_lengths(part: Example | DrawnPart) -> None:
    graph = part.structure
    if any(not 0 <= end < len(graph.names) for edge in graph.edges for end in edge):
        raise ValueError("an edge refers to a missing node")
    for name in ("orders", "kinds"):
        if (values := getattr(graph, name)) and len(values) != len(graph.edges):
            raise ValueError(f"`{name}` must have a value for each edge")
    for name in (*_MASKS, "saliency"):
        values = getattr(part, name, None)
        if values is not None and len(values) != len(graph.names):
            raise ValueError(f"`{name}` must have a value for each node")


@dataclass(frozen=True)
class ModelView:
    """One model's prediction for one graph, and the saliency of its nodes.

    Nodes with positive ``saliency`` support the output, those with negative saliency oppose it;
    kind ``"gradient"`` has no sign. ``doubtful`` means that on the validation graphs, salient nodes
    mattered no more to the predictions than random ones.
    """

    model: str
    label: str  # the predicted class, labels or values, as text
    confidence: float | None  # None for regression
    correct: bool | None  # None if unknown, and for regression
    output: str  # the output that the saliency explains
    saliency: tuple[float, ...]  # divided by the largest magnitude in the graph
    share: tuple[float, ...]  # divided by the sum of magnitudes; all 0 if nothing is salient
    kind: str = "gradient-x-activation"
    trained_on: bool | None = None  # whether this is a training graph; None if unknown
    doubtful: bool = False
    base: float | None = None  # without a network, what the output is before any node and `rest`
    rest: float | None = None  # what no node has a part in, such as descriptors of a molecule
    added: tuple[float, ...] = ()  # what each node adds: base, rest and these sum to the output


@dataclass(frozen=True)
class Explanation:
    """One graph, as explained by one or more models."""

    id: str  # its name in the file, or its number
    text: str  # what it was read from, such as a SMILES, or empty
    truth: str | None  # true label or value as text; None if unknown
    structure: DrawnGraph
    views: tuple[ModelView, ...]  # one per model
    target: str = ""  # column of the classes


@dataclass(frozen=True)
class ExplainedRows:
    """Explanations of the rows of ``source`` that could be read, and the rows that could not."""

    explanations: tuple[Explanation, ...]
    skipped: tuple[Skipped, ...]
    source: str
