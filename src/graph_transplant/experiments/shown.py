"""Graphs as a report shows them: salient nodes, mixed graphs, and what a record keeps of them.

Everything here is plain Python: reading records and drawing what they hold needs no torch.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from graph_transplant.errors import GraphTransplantError

KINDS: Final = ("saliency", "mixture", "virtual")
"""What kinds of examples a record may hold."""

MOST_NODES: Final = 1_000
MOST_EDGES: Final = 10_000
"""An example with more nodes or edges than this is refused: nobody could look at it."""

_DIGITS: Final = 4


@dataclass(frozen=True)
class Structure:
    """A graph in words and numbers, as it is drawn.

    Attributes:
        names: What every node is called: its element or its label; empty texts for none.
        edges: Pairs of node numbers; an edge without direction stands here once.
        orders: Bond order of every edge, 1.5 for aromatic ones; all 1 for other graphs.
        molecule: Whether it is a molecule.
        directed: Whether its edges have a direction.

    Example:
        >>> water = Structure(("O",), (), (), molecule=True, directed=False)
        >>> len(water.names)
        1
    """

    names: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    orders: tuple[float, ...]
    molecule: bool
    directed: bool

    @classmethod
    def from_record(
        cls, record: Mapping[str, Any], whole: Mapping[str, Any] | None = None
    ) -> Structure:
        """Read a graph from a record, and refuse what is none.

        Args:
            record: Has ``names``, ``edges`` and ``orders``.
            whole: Has ``molecule`` and ``directed``. (default: ``record``)

        Raises:
            GraphTransplantError: Saying what is wrong with it.

        Example:
            >>> Structure.from_record({"names": ["O", "C"], "edges": [[0, 1]], "orders": [2.0],
            ...                        "molecule": True, "directed": False}).orders
            (2.0,)
            >>> Structure.from_record({"names": ["O", "C"], "edges": [[0, 2]], "orders": [],
            ...                        "molecule": True, "directed": False})
            Traceback (most recent call last):
            ...
            graph_transplant.errors.GraphTransplantError: an example in a record is damaged: \
`edges` must be pairs of nodes between 0 and 1, got [0, 2]
        """
        whole = record if whole is None else whole
        names = _list(record, "names", MOST_NODES)
        for name in names:
            if not isinstance(name, str):
                raise _damaged("names", "texts", name)
        edges = _list(record, "edges", MOST_EDGES)
        for edge in edges:
            if not (
                isinstance(edge, list | tuple)
                and len(edge) == 2
                and all(_is_whole(end) and 0 <= end < len(names) for end in edge)
            ):
                last = len(names) - 1
                raise _damaged("edges", f"pairs of nodes between 0 and {last}", edge)
        # All bonds are single where nothing is said about them.
        orders = _numbers(record, "orders", None, 0.0, 4.0) or (1.0,) * len(edges)
        if len(orders) != len(edges):
            raise _damaged("orders", f"{len(edges)} numbers or none", record["orders"])
        return cls(
            names=tuple(names),
            edges=tuple((int(one), int(two)) for one, two in edges),
            orders=orders,
            molecule=_flag(whole, "molecule"),
            directed=_flag(whole, "directed"),
        )

    def as_record(self) -> dict[str, Any]:
        """Write the graph for a record, without ``molecule`` and ``directed``.

        Example:
            >>> Structure(("a", ""), ((0, 1),), (1.0,), molecule=False, directed=False).as_record()
            {'names': ['a', ''], 'edges': [[0, 1]], 'orders': []}
        """
        single = all(order == 1 for order in self.orders)
        return {
            "names": list(self.names),
            "edges": [list(edge) for edge in self.edges],
            "orders": [] if single else list(self.orders),
        }

    def flags(self) -> dict[str, bool]:
        """Write what kind of graph it is, for a record.

        Example:
            >>> Structure((), (), (), molecule=False, directed=True).flags()
            {'molecule': False, 'directed': True}
        """
        return {"molecule": self.molecule, "directed": self.directed}


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

    Example:
        >>> graph = Structure(("C", "O"), ((0, 1),), (1.0,), molecule=True, directed=False)
        >>> Part("7", "toxic", graph, (True, False), 0.8).share
        0.8
    """

    id: str
    label: str
    structure: Structure
    chosen: tuple[bool, ...]
    share: float

    @classmethod
    def from_record(cls, record: Any, whole: Mapping[str, Any]) -> Part:
        """Read one of two mixed graphs from a record, and refuse what is none.

        Args:
            record: The part.
            whole: The record of the mixed graph.

        Raises:
            GraphTransplantError: Saying what is wrong with it.

        Example:
            >>> part = {"id": "7", "label": "toxic", "names": ["C", "O"], "edges": [[0, 1]],
            ...         "orders": [], "chosen": [1, 0], "share": 0.8}
            >>> Part.from_record(part, {"molecule": True, "directed": False}).chosen
            (True, False)
        """
        if not isinstance(record, Mapping):
            raise _damaged("source and destination", "objects", record)
        structure = Structure.from_record(record, whole)
        return cls(
            id=_text(record, "id"),
            label=_text(record, "label"),
            structure=structure,
            chosen=_marks(record, "chosen", len(structure.names)),
            share=_number(record, "share", 0.0, 1.0),
        )

    def as_record(self) -> dict[str, Any]:
        """Write the part for a record.

        Example:
            >>> graph = Structure(("C",), (), (), molecule=True, directed=False)
            >>> Part("7", "toxic", graph, (True,), 0.81234).as_record()["share"]
            0.8123
        """
        return {
            "id": self.id,
            "label": self.label,
            **self.structure.as_record(),
            "chosen": [int(chosen) for chosen in self.chosen],
            "share": round(self.share, _DIGITS),
        }


@dataclass(frozen=True)
class Mixture:
    """A mixed graph beside the two it was made of.

    Attributes:
        source: The graph that a part was transplanted from.
        destination: The graph that received it.
        structure: The mixed graph.
        from_source: For every node, whether it was transplanted.
        new_edges: Numbers of the drawn edges that join the two parts.
        label: The mixed label or value in words.
        labels: Weight of every class or label in it, the largest first; empty for regression, and
            where it was read from a record.
        weight: λ, the weight of the source's label.
        method: The method that made it.
        data: Name of the data set.
        note: Where the saliency was read, and which graphs are shown.

    Example:
        >>> import graph_transplant as gt
        >>> from graph_transplant.trained import mixtures
        >>> store = gt.load("motifs", graphs=60)
        >>> found = mixtures(store, method="transplant-dp", count=2, epochs=1, hidden=8)
        >>> len(found), 0 <= found[0].weight <= 1
        (2, True)
    """

    source: Part
    destination: Part
    structure: Structure
    from_source: tuple[bool, ...]
    new_edges: tuple[int, ...]
    label: str
    labels: tuple[tuple[str, float], ...]
    weight: float
    method: str
    data: str
    note: str

    @classmethod
    def from_record(cls, record: Mapping[str, Any], *, method: str = "", data: str = "") -> Mixture:
        """Read a mixed graph from a record, and refuse what is none.

        Args:
            record: One of the ``examples`` of a trial's record.
            method: The trial's method.
            data: The trial's data set.

        Raises:
            GraphTransplantError: Saying what is wrong with it.

        Example:
            >>> part = {"id": "7", "label": "toxic", "names": ["C"], "edges": [], "orders": [],
            ...         "chosen": [1], "share": 1.0}
            >>> mixed = {"kind": "mixture", "source": part, "destination": part, "edges": [[0, 1]],
            ...          "names": ["C", "C"], "orders": [], "molecule": True, "directed": False,
            ...          "from_source": [1, 0], "new_edges": [0], "label": "100 % toxic",
            ...          "weight": 0.5}
            >>> Mixture.from_record(mixed).new_edges
            (0,)
        """
        _check_kind(record, "mixture")
        structure = Structure.from_record(record)
        new = _list(record, "new_edges", MOST_EDGES)
        for number in new:
            if not (_is_whole(number) and 0 <= number < len(structure.edges)):
                last = len(structure.edges) - 1
                raise _damaged("new_edges", f"numbers of edges between 0 and {last}", number)
        return cls(
            source=Part.from_record(record.get("source"), record),
            destination=Part.from_record(record.get("destination"), record),
            structure=structure,
            from_source=_marks(record, "from_source", len(structure.names)),
            new_edges=tuple(new),
            label=_text(record, "label"),
            labels=(),
            weight=_number(record, "weight", 0.0, 1.0),
            method=method,
            data=data,
            note="",
        )

    def as_record(self) -> dict[str, Any]:
        """Write the mixed graph for a record.

        Example:
            >>> graph = Structure(("C",), (), (), molecule=True, directed=False)
            >>> part = Part("7", "toxic", graph, (True,), 1.0)
            >>> both = Structure(("C", "C"), ((0, 1),), (1.0,), molecule=True, directed=False)
            >>> mixed = Mixture(part, part, both, (True, False), (0,), "100 % toxic", (), 0.5, "",
            ...                 "", "")
            >>> Mixture.from_record(mixed.as_record()) == mixed
            True
        """
        return {
            "kind": "mixture",
            "source": self.source.as_record(),
            "destination": self.destination.as_record(),
            **self.structure.as_record(),
            **self.structure.flags(),
            "from_source": [int(given) for given in self.from_source],
            "new_edges": list(self.new_edges),
            "label": self.label,
            "weight": round(self.weight, _DIGITS),
        }


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

    Example:
        >>> graph = Structure(("C", "O"), ((0, 1),), (1.0,), molecule=True, directed=False)
        >>> found = Salient("7", "toxic", "toxic", 0.9, True, graph, (1.0, 0.25))
        >>> Salient.from_record(found.as_record()) == found
        True
    """

    graph: str
    truth: str | None
    predicted: str
    confidence: float | None
    correct: bool | None
    structure: Structure
    saliency: tuple[float, ...]
    motif: tuple[bool, ...] | None = None

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Salient:
        """Read a saliency map from a record, and refuse what is none.

        Args:
            record: One of the ``examples`` of a trial's record.

        Raises:
            GraphTransplantError: Saying what is wrong with it.

        Example:
            >>> Salient.from_record({"kind": "saliency", "graph": 7})
            Traceback (most recent call last):
            ...
            graph_transplant.errors.GraphTransplantError: an example in a record is damaged: \
`names` must be a list of at most 1000, got nothing
        """
        _check_kind(record, "saliency")
        structure = Structure.from_record(record)
        nodes = len(structure.names)
        unknown = record.get("confidence") is None
        return cls(
            graph=_text(record, "graph"),
            truth=None if record.get("truth") is None else _text(record, "truth"),
            predicted=_text(record, "predicted"),
            confidence=None if unknown else _number(record, "confidence", 0.0, 1.0),
            correct=None if record.get("correct") is None else _flag(record, "correct"),
            structure=structure,
            saliency=_numbers(record, "saliency", nodes, 0.0, 1.0),
            motif=_marks(record, "motif", nodes) if "motif" in record else None,
        )

    def as_record(self) -> dict[str, Any]:
        """Write the saliency map for a record.

        Example:
            >>> graph = Structure(("a",), (), (), molecule=False, directed=False)
            >>> Salient("7", None, "toxic", 0.98765, None, graph, (1.0,)).as_record()["confidence"]
            0.9877
        """
        written: dict[str, Any] = {
            "kind": "saliency",
            "graph": self.graph,
            "truth": self.truth,
            "predicted": self.predicted,
            "confidence": None if self.confidence is None else round(self.confidence, _DIGITS),
            "correct": self.correct,
            **self.structure.as_record(),
            **self.structure.flags(),
            "saliency": [round(value, _DIGITS) for value in self.saliency],
        }
        if self.motif is not None:
            written["motif"] = [int(inside) for inside in self.motif]
        return written


@dataclass(frozen=True)
class Made:
    """A graph that an augmentation made, without a trace of where its nodes come from.

    Attributes:
        structure: The graph.
        label: Its label or value in words.

    Example:
        >>> graph = Structure(("C", "O"), ((0, 1),), (1.0,), molecule=True, directed=False)
        >>> Made.from_record(Made(graph, "toxic").as_record()).label
        'toxic'
    """

    structure: Structure
    label: str

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Made:
        """Read a virtual graph from a record, and refuse what is none.

        Args:
            record: One of the ``examples`` of a trial's record.

        Raises:
            GraphTransplantError: Saying what is wrong with it.

        Example:
            >>> Made.from_record({"kind": "virtual", "names": ["a"], "edges": [], "orders": [],
            ...                   "molecule": False, "directed": False, "label": "b"}).label
            'b'
        """
        _check_kind(record, "virtual")
        return cls(Structure.from_record(record), _text(record, "label"))

    def as_record(self) -> dict[str, Any]:
        """Write the graph for a record.

        Example:
            >>> Made(Structure((), (), (), molecule=False, directed=False), "b").as_record()["kind"]
            'virtual'
        """
        return {
            "kind": "virtual",
            **self.structure.as_record(),
            **self.structure.flags(),
            "label": self.label,
        }


Example = Salient | Mixture | Made


def read_example(record: Any, *, method: str = "", data: str = "") -> Example:
    """Read an example of any kind from a record, and refuse what is none.

    Args:
        record: One of the ``examples`` of a trial's record.
        method: The trial's method.
        data: The trial's data set.

    Raises:
        GraphTransplantError: Saying what is wrong with it.

    Example:
        >>> graph = Structure(("C", "O"), ((0, 1),), (1.0,), molecule=True, directed=False)
        >>> read_example(Made(graph, "toxic").as_record())
        Made(structure=Structure(names=('C', 'O'), edges=((0, 1),), orders=(1.0,), molecule=True, \
directed=False), label='toxic')
        >>> read_example({"kind": "poem"})
        Traceback (most recent call last):
        ...
        graph_transplant.errors.GraphTransplantError: an example in a record is damaged: `kind` \
must be one of saliency, mixture, virtual, got 'poem'
    """
    if not isinstance(record, Mapping):
        raise _damaged("it", "an object", record)
    kind = record.get("kind")
    if kind == "saliency":
        return Salient.from_record(record)
    if kind == "mixture":
        return Mixture.from_record(record, method=method, data=data)
    if kind == "virtual":
        return Made.from_record(record)
    raise _damaged("kind", f"one of {', '.join(KINDS)}", kind)


# -------------------------------------------------------------------- checks

_NOTHING: Final = object()


def _damaged(field: str, wanted: str, given: object) -> GraphTransplantError:
    # Shortened: what stands in a damaged file may be anything.
    told = "nothing" if given is _NOTHING else reprlib.repr(given)
    return GraphTransplantError(
        f"an example in a record is damaged: `{field}` must be {wanted}, got {told}"
    )


def _check_kind(record: Mapping[str, Any], kind: str) -> None:
    if record.get("kind") != kind:
        raise _damaged("kind", repr(kind), record.get("kind", _NOTHING))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _list(record: Mapping[str, Any], field: str, most: int) -> Sequence[Any]:
    found = record.get(field, _NOTHING)
    if not isinstance(found, list | tuple):
        raise _damaged(field, f"a list of at most {most}", found)
    if len(found) > most:
        raise GraphTransplantError(
            f"an example in a record is damaged: `{field}` must be a list of at most {most}, got "
            f"{len(found)}"
        )
    return found


def _text(record: Mapping[str, Any], field: str) -> str:
    found = record.get(field, _NOTHING)
    if not isinstance(found, str):
        raise _damaged(field, "a text", found)
    return found


def _flag(record: Mapping[str, Any], field: str) -> bool:
    found = record.get(field, _NOTHING)
    if not isinstance(found, bool):
        raise _damaged(field, "true or false", found)
    return found


def _between(value: object, least: float, most: float) -> bool:
    # Comparing takes whole numbers of any size, and is false for what is not a number.
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def _number(record: Mapping[str, Any], field: str, least: float, most: float) -> float:
    found = record.get(field, _NOTHING)
    if not _between(found, least, most):
        raise _damaged(field, f"a number between {least:g} and {most:g}", found)
    return float(record[field])


def _numbers(
    record: Mapping[str, Any], field: str, count: int | None, least: float, most: float
) -> tuple[float, ...]:
    found = _list(record, field, MOST_EDGES)
    if count is not None and len(found) != count:
        raise _damaged(field, f"{count} numbers, one per node", found)
    for value in found:
        if not _between(value, least, most):
            raise _damaged(field, f"numbers between {least:g} and {most:g}", value)
    return tuple(float(value) for value in found)


def _marks(record: Mapping[str, Any], field: str, count: int) -> tuple[bool, ...]:
    found = _list(record, field, MOST_NODES)
    if len(found) != count or not all(value in (0, 1) for value in found):
        raise _damaged(field, f"{count} marks of 0 or 1, one per node", found)
    return tuple(bool(value) for value in found)
