"""Graphs given as nodes and edges with attributes: networkx graphs, and lines of JSON.

Of the attributes of a node or an edge two are read, and those of both become columns of features:

* ``x``: a number, or a list of numbers; for an edge without ``x``, its ``weight``.
* ``label``: a text or a whole number that says of what kind it is. It becomes one one-hot column
  for every label that occurs.

Numbers come first. All graphs have to agree in what they have: those that differ from most others
are not read, with a reason. The names of all other attributes are
logged.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graph_transplant.datasets.rows import (
    Chunk,
    TargetCodec,
    TargetScan,
    check_codec,
    check_readable,
    is_missing,
    lacks_target,
    missing_words,
    no_target,
    quoted,
)
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.graphs import Featurizer, GraphStore, Rows, Skipped

if TYPE_CHECKING:
    import networkx as nx

log = logging.getLogger(__name__)

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]

# More kinds of nodes than this are names, not labels: one-hot columns of them say nothing.
_MOST_LABELS: Final = 1000
# A person reads a few names of attributes, not thousands.
_MOST_IGNORED: Final = 20
# Reading ends when so many rows came first and not one of them is a graph.
_GIVE_UP: Final = 10_000
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
_LARGEST: Final = float(np.finfo(np.float32).max)
# No label or class has nearly as many digits.
_LARGEST_WHOLE: Final = 10**40


# ------------------------------------------------------------------ a graph as it is given


@dataclass(frozen=True)
class Network:
    """A graph as it is given, with the names and attributes of its nodes and edges.

    Attributes:
        names: What its nodes are called.
        nodes: The attributes of every node.
        ends: The names of the two nodes of every edge.
        edges: The attributes of every edge.
        directed: Whether edges lead one way.
        naming: Attributes of nodes and edges that only name them.
        others: Attributes of the graph that are not read.

    Example:
        >>> Network(["a", "b"], [{}, {}], [("a", "b")], [{"label": "single"}]).directed
        False
    """

    names: Sequence[Hashable]
    nodes: Sequence[Mapping[str, Any]]
    ends: Sequence[tuple[Hashable, Hashable]]
    edges: Sequence[Mapping[str, Any]]
    directed: bool = False
    naming: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()


@dataclass(frozen=True)
class NetworkRow:
    """A row of the input.

    Attributes:
        number: Its number, counted from 1.
        id: What the input calls it.
        graph: Its graph, or the reason why there is none.
        target: Its target as given; ``None`` where it has none.
        lacks_target: Whether there is no entry of that name at all, not even an empty one.

    Example:
        >>> NetworkRow(3, "g3", "line 3 is not JSON").target is None
        True
    """

    number: int
    id: str
    graph: Network | str
    target: Any = None
    lacks_target: bool = False


# ------------------------------------------------------------------ from attributes to numbers


@dataclass(frozen=True)
class _Columns:
    """Features of the nodes or the edges of a graph."""

    numbers: Floats  # [rows, numbers]
    labels: Ints | None  # [rows]: places in the encoder's vocabulary

    @property
    def shape(self) -> tuple[int, bool]:
        """How many numbers there are, and whether there are labels."""
        return self.numbers.shape[1], self.labels is not None

    def take(self, index: npt.NDArray[Any]) -> _Columns:
        return _Columns(self.numbers[index], None if self.labels is None else self.labels[index])


@dataclass(frozen=True)
class _Encoded:
    """A graph as numbers."""

    nodes: int
    edge_index: Ints  # [2, edges], both directions of an undirected edge
    node: _Columns
    edge: _Columns
    directed: bool  # whether some edge has no reverse

    @property
    def shape(self) -> tuple[tuple[int, bool], tuple[int, bool] | None]:
        """What nodes and edges have; ``None`` where there are no edges to tell."""
        return self.node.shape, self.edge.shape if self.edge_index.shape[1] else None


def _says(shape: tuple[int, bool]) -> str:
    """Say in words what nodes or edges have."""
    width, labels = shape
    count = {0: "no numbers", 1: "1 number"}.get(width, f"{width} numbers")
    return f"{count} and {'a label' if labels else 'no label'}"


@dataclass(frozen=True)
class _Vocabulary:
    """The labels seen so far; a closed one takes no more."""

    kind: str
    places: dict[str, int]
    closed: bool

    def encode(self, labels: Sequence[str]) -> Ints:
        places = self.places
        if self.closed:
            unknown = next((label for label in labels if label not in places), None)
            if unknown is not None:
                known = ", ".join(quoted(label) for label in list(places)[:10])
                more = ", …" if len(places) > 10 else ""
                raise DataError(
                    f"the {self.kind} label {quoted(unknown)} is not among those known: "
                    f"{known}{more}"
                )
            return np.array([places[label] for label in labels], dtype=np.int32)
        coded = [places.setdefault(label, len(places)) for label in labels]
        if len(places) > 100 * _MOST_LABELS:
            raise _too_many_labels(self.kind, len(places))
        return np.array(coded, dtype=np.int32)


class _TooManyLabelsError(DataError):
    """Labels that are names: an error of the whole input, not of a row."""


def _too_many_labels(kind: str, count: int) -> _TooManyLabelsError:
    return _TooManyLabelsError(
        f"the {kind}s have {count} different labels; more than {_MOST_LABELS} are names, not kinds "
        "of them: leave them out, or give them another attribute than `label`"
    )


class Encoder:
    """Turns the attributes of graphs into numbers, one graph after the other.

    Args:
        featurizer: What graphs have to have; without it, everything is taken, and labels get their
            places in the order in which they come.

    Example:
        >>> encoder = Encoder(Featurizer(
            "graphs", node_labels=("C", "N")))
        >>> encoder.encode(Network(["a", "b"], [{"label": "N"}] * 2, [("a", "b")], [{}])).edge_index
        array([[0, 1],
               [1, 0]], dtype=int32)
    """

    def __init__(self, featurizer: Featurizer | None = None) -> None:
        self.featurizer = featurizer
        self.ignored: dict[str, set[str]] = {"graph": set(), "node": set(), "edge": set()}
        node = featurizer.node_labels if featurizer is not None else None
        edge = featurizer.edge_labels if featurizer is not None else None
        closed = featurizer is not None
        self.labels = {
            "node": _Vocabulary("node", {v: n for n, v in enumerate(node or ())}, closed),
            "edge": _Vocabulary("edge", {v: n for n, v in enumerate(edge or ())}, closed),
        }

    def encode(self, graph: Network) -> _Encoded:
        """Check a graph and turn it into numbers.

        Args:
            graph: As given.

        Raises:
            DataError: If it cannot be used; the message says why.
        """
        names = graph.names
        places = {name: place for place, name in enumerate(names)}
        if not places:
            raise DataError("the graph has no nodes")
        if len(places) < len(names):
            twice = next(name for place, name in enumerate(names) if places[name] != place)
            raise DataError(f"two nodes have the id {_shown(twice)}")
        node = self._columns("node", graph.nodes, graph, lambda n: f"node {_shown(names[n])}")
        try:
            ends = [(places[one], places[other]) for one, other in graph.ends]
        except KeyError:
            one, other = next(ends for ends in graph.ends if not places.keys() >= {*ends})
            lost = other if one in places else one
            raise DataError(
                f"an edge joins {_shown(one)} and {_shown(other)}, but there is no node "
                f"{_shown(lost)}"
            ) from None
        index = np.array(ends, dtype=np.int32).reshape(-1, 2).T

        def edge_name(number: int) -> str:
            one, other = graph.ends[number]
            return f"the edge {_shown(one)}, {_shown(other)}"

        edge = self._columns("edge", graph.edges, graph, edge_name)
        self._note("graph", graph.others)
        encoded = _joined(index, node, edge, len(names), graph.directed, edge_name)
        if self.featurizer is not None:
            problem = _misfit(self.featurizer, encoded)
            if problem:
                raise DataError(problem)
        return encoded

    def _columns(
        self,
        kind: str,
        attributes: Sequence[Mapping[str, Any]],
        graph: Network,
        name: Callable[[int], str],
    ) -> _Columns:
        """Read numbers and labels of all nodes or all edges."""
        seen: set[str] = set().union(*attributes)
        key = "weight" if kind == "edge" and "x" not in seen else "x"
        self._note(kind, seen - graph.naming - {key, "label"})
        values = _complete(key, [item.get(key) for item in attributes], name)
        texts = _complete("label", [item.get("label") for item in attributes], name)
        labels = None
        if texts is not None:
            words = texts
            if not set(map(type, texts)) <= {str}:
                words = [_label(text, number, name) for number, text in enumerate(texts)]
            if self.featurizer is None or _labels_of(self.featurizer, kind) is not None:
                labels = self.labels[kind].encode(words)
            else:
                # There is no vocabulary to look in; that there are labels at all does not fit.
                labels = np.zeros(len(words), dtype=np.int32)
        if values is None:
            return _Columns(np.empty((len(attributes), 0), dtype=np.float32), labels)
        return _Columns(_number_rows(key, values, name), labels)

    def _note(self, kind: str, names: Iterable[Any]) -> None:
        """Note names of attributes that are not read."""
        noted = self.ignored[kind]
        for name in names:
            if len(noted) < _MOST_IGNORED:
                noted.add(quoted(str(name))[1:-1])


def _shown(name: Hashable) -> str:
    return quoted(name) if isinstance(name, str) else quoted(str(name))[1:-1]


def _labels_of(featurizer: Featurizer, kind: str) -> tuple[str, ...] | None:
    return featurizer.node_labels if kind == "node" else featurizer.edge_labels


def _complete(key: str, values: list[Any], name: Callable[[int], str]) -> list[Any] | None:
    """Return values that all nodes or edges have, or ``None`` if none of them has one."""
    lacking = [number for number, value in enumerate(values) if value is None]
    if len(lacking) == len(values):
        return None
    if lacking:
        raise DataError(f"{name(lacking[0])} has no `{key}`, but others have one")
    return values


def _label(value: Any, number: int, name: Callable[[int], str]) -> str:
    if isinstance(value, str):
        return value
    if _is_whole(value) and abs(value) < _LARGEST_WHOLE:
        return str(int(value))
    raise DataError(
        f"the `label` of {name(number)} must be a text or a whole number; got {_given(value)}"
    )


def _given(value: Any) -> str:
    """Show a value of the input as a message can: in JSON's words, and short."""
    words = {None: "null", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return words[value]
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, int) and abs(value) >= _LARGEST_WHOLE:
        return "a number of too many digits"
    return quoted(str(value))[1:-1]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_whole(value) or isinstance(value, float | np.floating)


def _number_rows(key: str, values: Sequence[Any], name: Callable[[int], str]) -> Floats:
    """Return the numbers of all nodes or edges, float32 ``[rows, numbers]``."""
    rows: list[Sequence[Any]] = []
    for place, value in enumerate(values):
        row = value
        if isinstance(value, np.ndarray | Tensor):
            row = np.asarray(value).reshape(-1).tolist()
        elif not isinstance(value, list | tuple):
            row = (value,)
        wrong = next((item for item in row if not _is_number(item)), row)
        if wrong is not row:
            raise DataError(
                f"the `{key}` of {name(place)} must be a number or a list of numbers; got "
                f"{_given(wrong)}{'' if row == (value,) else ' in it'}"
            )
        if rows and len(row) != len(rows[0]):
            raise DataError(
                f"the `{key}` of {name(place)} has {len(row)} numbers, that of {name(0)} has "
                f"{len(rows[0])}"
            )
        rows.append(row)
    try:
        with np.errstate(over="ignore"):
            table = np.array(rows, dtype=np.float64).astype(np.float32)
        finite = np.isfinite(table).all(axis=1)
    except OverflowError:
        # A whole number of hundreds of digits.
        finite = np.array([all(_is_finite(item) for item in row) for row in rows])
    if not finite.all():
        place = int(np.flatnonzero(~finite)[0])
        item = next(item for item in rows[place] if not _is_finite(item))
        raise DataError(
            f"the `{key}` of {name(place)} must be finite and fit into 32 bits; got {_given(item)}"
        )
    return table


def _is_finite(value: Any) -> bool:
    return bool(abs(value) <= _LARGEST)


def _joined(
    index: Ints,
    node: _Columns,
    edge: _Columns,
    nodes: int,
    directed: bool,
    name: Callable[[int], str],
) -> _Encoded:
    """Check for repeated edges, and give an undirected edge its reverse."""
    code = index[0].astype(np.int64) * nodes + index[1]
    if not len(code):
        return _Encoded(nodes, index, node, edge, False)
    first = np.argsort(code, kind="stable")
    values = code[first]
    again = np.flatnonzero(values[1:] == values[:-1])
    if len(again):
        raise DataError(f"{name(int(first[again].min()))} is given twice")
    reverse = index[1].astype(np.int64) * nodes + index[0]
    place = np.minimum(np.searchsorted(values, reverse), len(values) - 1)
    both = values[place] == reverse
    if directed:
        return _Encoded(nodes, index, node, edge, not bool(both.all()))
    twice = np.flatnonzero(both)
    one, two = edge.take(twice), edge.take(first[place[twice]])
    same = (one.numbers == two.numbers).all(axis=1)
    if one.labels is not None and two.labels is not None:
        same &= one.labels == two.labels
    if not same.all():
        raise DataError(
            f"{name(int(twice[np.flatnonzero(~same)[0]]))} of an undirected graph is given in both "
            "directions with different attributes"
        )
    alone = np.flatnonzero(~both)
    order = np.concatenate([np.arange(index.shape[1]), alone])
    doubled = np.concatenate([index, index[::-1, alone]], axis=1)
    return _Encoded(nodes, doubled, node, edge.take(order), False)


def _of_graphs(featurizer: Featurizer | None) -> Featurizer | None:
    if featurizer is not None and featurizer.kind != "graphs":
        raise DataError(
            f"the featurizer is for {featurizer.kind}; these are graphs with attributes"
        )
    return featurizer


def _misfit(featurizer: Featurizer, encoded: _Encoded) -> str | None:
    """Say what a graph has that others have not, if anything."""
    node, edge = encoded.shape
    expected = featurizer.node_numbers, featurizer.node_labels is not None
    if node != expected:
        return f"its nodes have {_says(node)}; expected are {_says(expected)}"
    expected = featurizer.edge_numbers, featurizer.edge_labels is not None
    if edge is not None and edge != expected:
        return f"its edges have {_says(edge)}; expected are {_says(expected)}"
    if encoded.directed and not featurizer.directed:
        return "it is directed; expected are undirected graphs"
    return None


@dataclass
class _Survey:
    """Finds out what most of the graphs have."""

    counts: Counter[Any] = field(default_factory=Counter)
    used: dict[Any, tuple[set[int], set[int]]] = field(default_factory=dict)
    directed: set[Any] = field(default_factory=set)

    def see(self, encoded: _Encoded) -> None:
        shape = encoded.shape
        self.counts[shape] += 1
        nodes, edges = self.used.setdefault(shape, (set(), set()))
        if encoded.node.labels is not None:
            nodes.update(np.unique(encoded.node.labels).tolist())
        if encoded.edge.labels is not None:
            edges.update(np.unique(encoded.edge.labels).tolist())
        if encoded.directed:
            self.directed.add(shape)

    def featurizer(self, encoder: Encoder) -> Featurizer:
        """Return what most of the graphs have; the first come, first served where it is even."""
        of_nodes: Counter[tuple[int, bool]] = Counter()
        for (node, _), count in self.counts.items():
            of_nodes[node] += count
        node = of_nodes.most_common(1)[0][0] if of_nodes else (0, False)
        of_edges: Counter[tuple[int, bool]] = Counter()
        for (other, shape), count in self.counts.items():
            if other == node and shape is not None:
                of_edges[shape] += count
        edge = of_edges.most_common(1)[0][0] if of_edges else (0, False)
        fitting = [shape for shape in self.used if shape in ((node, edge), (node, None))]

        def labels(kind: str, side: int) -> tuple[str, ...]:
            codes = set().union(*(self.used[shape][side] for shape in fitting))
            names = list(encoder.labels[kind].places)
            found = [names[code] for code in codes]
            if len(found) > _MOST_LABELS:
                raise _too_many_labels(kind, len(found))
            whole = all(_WHOLE_NUMBER.fullmatch(name) for name in found)
            return tuple(sorted(found, key=lambda name: (int(name) if whole else 0, name)))

        return Featurizer(
            "graphs",
            node_labels=labels("node", 0) if node[1] else None,
            node_numbers=node[0],
            edge_labels=labels("edge", 1) if edge[1] else None,
            edge_numbers=edge[0],
            directed=any(shape in self.directed for shape in fitting),
        )


# ------------------------------------------------------------------ targets


def target_cells(value: Any) -> tuple[str, ...]:
    """Return a target as the texts of which tables have columns.

    Args:
        value: A text, a number, true or false, or a list of these; ``None`` and NaN are missing.

    Raises:
        DataError: If it is something else.

    Example:
        >>> target_cells([1, None, 0.5]), target_cells("toxic")
        (('1', '', '0.5'), ('toxic',))
    """
    if isinstance(value, np.ndarray | Tensor):
        value = np.asarray(value).tolist()
    if isinstance(value, list | tuple):
        return tuple(_cell(item) for item in value) or ("",)
    return (_cell(value),)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    if _is_whole(value) and abs(value) < _LARGEST_WHOLE:
        return str(int(value))
    if isinstance(value, float | np.floating):
        return "" if math.isnan(value) else repr(float(value))
    raise DataError(f"the target must be a text, a number or a list of them; got {_given(value)}")


class _TargetSurvey:
    """Finds the task from all targets, whose number is that of most graphs.

    Args:
        names: What the targets are called; a single one may be a list in every graph.
        task: The task where it is known.
    """

    def __init__(self, names: Sequence[str], task: str | None) -> None:
        self.names = tuple(names)
        self.task = task
        self._scans: dict[int, TargetScan] = {}
        self._counts: Counter[int] = Counter()
        self._missing: set[str] = set()
        self._rows = 0
        self._lacking = 0
        self._entries: set[str] = set()

    def see(self, row: NetworkRow, cells: tuple[str, ...]) -> None:
        """Look at a row that may have no target.

        Raises:
            DataError: If it has none.
        """
        self._rows += 1
        if row.lacks_target:
            self._lacking += 1
            others = row.graph.others if isinstance(row.graph, Network) else ()
            for name in others if len(self._entries) < _MOST_IGNORED else ():
                self._entries.add(quoted(name)[1:-1])
        if all(is_missing(cell) for cell in cells):
            self._missing.update(missing_words(cells))
            raise DataError(no_target(cells))

    def check_there(self, where: str) -> None:
        """Raise an error if not a single graph has the entry of the target."""
        if self._rows and self._lacking == self._rows:
            entries = "entry" if len(self.names) == 1 else "entries"
            asked = ", ".join(map(quoted, self.names))
            known = ", ".join(sorted(self._entries)[:_MOST_IGNORED]) or "none"
            raise DataError(
                f"{where}: no graph has the {entries} {asked}; name another with `target`: "
                f"there are {known}"
            )

    def _names(self, width: int) -> tuple[str, ...]:
        if len(self.names) > 1 or width == 1:
            return self.names
        return tuple(f"{self.names[0]}[{number}]" for number in range(width))

    def add(self, cells: tuple[str, ...]) -> None:
        width = len(cells)
        if len(self.names) > 1 and width != len(self.names):
            raise DataError(f"it has {width} targets, expected are {len(self.names)}")
        if self.task == "multiclass" and width > 1:
            raise DataError(f"it has {width} targets; the task multiclass takes one")
        if width not in self._scans:
            self._scans[width] = TargetScan(self._names(width), self.task)
        self._scans[width].add(cells)
        self._counts[width] += 1

    def finish(self, where: str) -> TargetCodec:
        self.check_there(where)
        if not self._counts:
            raise DataError(
                f"{where}: there are no targets `{'`, `'.join(self.names)}` that could be read"
            )
        scan = self._scans[self._counts.most_common(1)[0][0]]
        scan.add_missing(sorted(self._missing))
        return scan.finish(where)


def _encode_target(codec: TargetCodec, cells: tuple[str, ...]) -> tuple[float, ...]:
    if len(cells) != len(codec.names):
        raise DataError(f"it has {len(cells)} targets; expected are {len(codec.names)}")
    value = codec.encode(cells)
    if isinstance(value, str):
        raise DataError(value)
    return value


# ------------------------------------------------------------------ stores


@dataclass(frozen=True)
class _Graph:
    """A graph that could be read, with its row."""

    row: NetworkRow
    encoded: _Encoded
    cells: tuple[str, ...] = ()


def _features(parts: Sequence[_Columns], labels: Sequence[str] | None) -> Tensor | None:
    """Put numbers and one-hot labels side by side."""
    table = np.concatenate([part.numbers for part in parts])
    if labels is None:
        return torch.from_numpy(table) if table.shape[1] else None
    codes = np.concatenate([cast("Ints", part.labels) for part in parts])
    one_hot = np.zeros((len(codes), len(labels)), dtype=np.uint8)
    one_hot[np.arange(len(codes)), codes] = 1
    if not table.shape[1]:
        return torch.from_numpy(one_hot)
    return torch.from_numpy(np.concatenate([table, one_hot.astype(np.float32)], axis=1))


def _edge_parts(graphs: Sequence[_Graph], featurizer: Featurizer) -> list[_Columns]:
    """Return the features of edges; graphs without edges have none, but of the right width."""
    nothing = _Columns(
        np.empty((0, featurizer.edge_numbers), dtype=np.float32),
        None if featurizer.edge_labels is None else np.empty(0, dtype=np.int32),
    )
    return [
        graph.encoded.edge if graph.encoded.edge_index.shape[1] else nothing for graph in graphs
    ]


def _store(
    graphs: Sequence[_Graph],
    featurizer: Featurizer,
    *,
    name: str,
    noted: Mapping[str, Any],
    codec: TargetCodec | None = None,
    values: Sequence[tuple[float, ...]] = (),
    skipped: Sequence[Skipped] = (),
) -> GraphStore:
    """Put graphs together; their labels are places in those of ``featurizer``."""
    x = _features([graph.encoded.node for graph in graphs], featurizer.node_labels)
    edges = [graph.encoded.edge_index for graph in graphs]
    return GraphStore(
        x=x,
        edge_index=torch.from_numpy(np.concatenate(edges, axis=1)),
        y=torch.zeros(len(graphs), dtype=torch.long) if codec is None else codec.tensor(values),
        node_counts=torch.tensor([graph.encoded.nodes for graph in graphs]),
        edge_counts=torch.tensor([index.shape[1] for index in edges]),
        edge_attr=_features(_edge_parts(graphs, featurizer), featurizer.edge_labels),
        name=name,
        task="multiclass" if codec is None else codec.task,
        num_outputs=1 if codec is None else codec.num_outputs,
        label_names=None if codec is None else codec.label_names,
        num_continuous=featurizer.node_numbers,
        rows=Rows(
            torch.tensor([graph.row.number for graph in graphs]),
            tuple(graph.row.id for graph in graphs),
            ("",) * len(graphs),
        ),
        featurizer=replace(featurizer, **noted),
        skipped=skipped,
    )


def _recoded(columns: _Columns, encoder: Encoder, kind: str, featurizer: Featurizer) -> _Columns:
    """Number labels as ``featurizer`` does."""
    labels = _labels_of(featurizer, kind)
    if labels is None or columns.labels is None:
        return columns
    places = encoder.labels[kind].places
    table = np.zeros(len(places), dtype=np.int32)
    table[[places[label] for label in labels]] = np.arange(len(labels))
    return _Columns(columns.numbers, table[columns.labels])


def _noted(encoder: Encoder, names: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return what else ``featurizer`` keeps, and say which attributes were not read."""
    ignored = {kind: sorted(found) for kind, found in encoder.ignored.items() if found}
    if ignored:
        told = "; ".join(f"{kind}: {', '.join(found)}" for kind, found in ignored.items())
        log.warning("%s: some attributes are not read: %s", where, told)
    return dict(names)


def read_networks(
    rows: Iterable[NetworkRow],
    *,
    name: str,
    where: str,
    targets: Sequence[str] = ("y",),
    task: str | None = None,
    noted: Mapping[str, Any] | None = None,
    encoder: Encoder | None = None,
    strict: bool = False,
) -> GraphStore:
    """Read all graphs of an input into one store.

    Args:
        rows: The rows of the input.
        name: Name of the data set.
        where: The input, for messages.
        targets: What the targets are called.
        task: The task; found from the targets by default.
        noted: Further entries of the store's ``featurizer``.
        encoder: One that knows what graphs have to have. (default: one that finds out)
        strict: Whether the first row that cannot be used is an error.

    Raises:
        DataError: If more than half of the rows cannot be used.

    Example:
        >>> dot = Network(["a"], [{}], [], [])
        >>> rows = [NetworkRow(1, "x", dot, 0), NetworkRow(2, "y", "no graph"),
        ...         NetworkRow(3, "z", dot, 1)]
        >>> read_networks(rows, name="dots", where="dots.jsonl").skipped
        (Skipped(row=2, id='y', reason='no graph'),)
    """
    encoder = Encoder() if encoder is None else encoder
    survey, aims = _Survey(), _TargetSurvey(targets, task)
    graphs: list[_Graph] = []
    skipped: list[Skipped] = []

    def leave_out(row: NetworkRow, reason: DataError) -> None:
        if strict:
            raise DataError(f"{where}: graph {row.number - 1}: {reason}") from None
        skipped.append(Skipped(row.number, row.id, str(reason)))

    count = 0
    for row in rows:
        count += 1
        try:
            if isinstance(row.graph, str):
                raise DataError(row.graph)
            cells = target_cells(row.target)
            aims.see(row, cells)
            encoded = encoder.encode(row.graph)
            aims.add(cells)
        except _TooManyLabelsError as error:
            raise DataError(f"{where}: {error}") from None
        except DataError as error:
            leave_out(row, error)
            if not graphs and count >= _GIVE_UP:
                break
            continue
        survey.see(encoded)
        graphs.append(_Graph(row, encoded, cells))
    # Where most of the rows are not even graphs, that is what is to be told.
    if 2 * sum(lacks_target(skip.reason) for skip in skipped) >= count:
        aims.check_there(where)
    check_readable(where, count, skipped)
    codec = aims.finish(where)
    featurizer = encoder.featurizer
    if featurizer is None:
        try:
            featurizer = survey.featurizer(encoder)
        except _TooManyLabelsError as error:
            raise DataError(f"{where}: {error}") from None
    kept: list[_Graph] = []
    values: list[tuple[float, ...]] = []
    for graph in graphs:
        try:
            problem = _misfit(featurizer, graph.encoded)
            if problem:
                raise DataError(problem)
            values.append(_encode_target(codec, graph.cells))
        except DataError as error:
            leave_out(graph.row, error)
            continue
        kept.append(graph)
    skipped.sort()
    check_readable(where, count, skipped)
    final = [
        _Graph(
            graph.row,
            _Encoded(
                graph.encoded.nodes,
                graph.encoded.edge_index,
                _recoded(graph.encoded.node, encoder, "node", featurizer),
                _recoded(graph.encoded.edge, encoder, "edge", featurizer),
                graph.encoded.directed,
            ),
        )
        for graph in kept
    ]
    extra = _noted(encoder, noted or {}, where)
    return _store(
        final, featurizer, name=name, noted=extra, codec=codec, values=values, skipped=skipped
    )


def stream_networks(
    rows: Callable[[int], Iterator[NetworkRow]],
    *,
    name: str,
    where: str,
    featurizer: Featurizer | None = None,
    rows_per_chunk: int = 2048,
    targets: Sequence[str] | None = None,
    task: str | None = None,
    codec: TargetCodec | None = None,
    skip_rows: int = 0,
) -> Iterator[Chunk]:
    """Read the graphs of an input a stretch at a time, every row exactly once.

    Without a ``featurizer``, or when targets are asked for without a ``codec``, the input is gone
    through twice.

    Args:
        rows: Called with a number of rows to leave out, goes through the others.
        name: Name of the data set.
        where: The input, for messages.
        featurizer: How graphs are to be read; found from all of them by default.
        rows_per_chunk: Rows of a stretch.
        targets: What the targets are called; ``None`` if they do not matter.
        task: The task; found from the targets by default.
        codec: How targets are to be read; found from all of them by default.
        skip_rows: Leave out so many rows.

    Example:
        >>> rows = [NetworkRow(n, f"g{n}", Network(["a"], [{}], [], [])) for n in (1, 2, 3)]
        >>> chunks = stream_networks(
        ...     lambda skip: iter(rows[skip:]), name="dots", where="dots", rows_per_chunk=2
        ... )
        >>> [chunk.ids for chunk in chunks]
        [('g1', 'g2'), ('g3',)]
    """
    known = _of_graphs(featurizer)
    check_codec(codec, targets is not None)
    asked = targets if codec is None else None
    if known is None or asked is not None:
        found, scanned = _look_through(rows(0), where, known, asked, task)
        known = found if known is None else known
        codec = scanned if codec is None else codec
    encoder = Encoder(known)
    pending: list[NetworkRow] = []
    for row in rows(skip_rows):
        pending.append(row)
        if len(pending) == rows_per_chunk:
            yield _chunk(pending, encoder, known, codec, name)
            pending = []
    if pending:
        yield _chunk(pending, encoder, known, codec, name)


def _look_through(
    rows: Iterator[NetworkRow],
    where: str,
    known: Featurizer | None,
    targets: Sequence[str] | None,
    task: str | None,
) -> tuple[Featurizer, TargetCodec | None]:
    """Find what most graphs have, and the task, without keeping the graphs."""
    encoder, survey = Encoder(known), _Survey()
    aims = None if targets is None else _TargetSurvey(targets, task)
    for row in rows:
        if isinstance(row.graph, str):
            continue
        try:
            encoded = encoder.encode(row.graph)
            if aims is not None:
                cells = target_cells(row.target)
                aims.see(row, cells)
                aims.add(cells)
        except _TooManyLabelsError as error:
            raise DataError(f"{where}: {error}") from None
        except DataError:
            # Its reason is given when the row is read for good.
            continue
        survey.see(encoded)
    try:
        found = survey.featurizer(encoder) if known is None else known
    except _TooManyLabelsError as error:
        raise DataError(f"{where}: {error}") from None
    return found, None if aims is None else aims.finish(where)


def _chunk(
    rows: Sequence[NetworkRow],
    encoder: Encoder,
    featurizer: Featurizer,
    codec: TargetCodec | None,
    name: str,
) -> Chunk:
    graphs: list[_Graph] = []
    values: list[tuple[float, ...]] = []
    problems: dict[int, str] = {}
    for row in rows:
        try:
            if isinstance(row.graph, str):
                raise DataError(row.graph)
            if codec is not None:
                value = _encode_target(codec, target_cells(row.target))
            encoded = encoder.encode(row.graph)
        except DataError as error:
            problems[row.number] = str(error)
            continue
        if codec is not None:
            values.append(value)
        graphs.append(_Graph(row, encoded))
    store = None
    if graphs:
        store = _store(graphs, featurizer, name=name, noted={}, codec=codec, values=values)
    ids = tuple(row.id for row in rows)
    return Chunk(rows[0].number, ids, ("",) * len(ids), store, problems)


# ------------------------------------------------------------------ networkx


def network_of(graph: nx.Graph[Any], target: str = "y") -> Network:
    """Take a networkx graph apart.

    Args:
        graph: A ``Graph`` or a ``DiGraph``.
        target: The attribute of the graph that holds its target.

    Raises:
        DataError: If it is a ``MultiGraph``, or no graph at all.

    Example:
        >>> import networkx as nx
        >>> network_of(nx.path_graph(3)).ends
        [(0, 1), (1, 2)]
    """
    import networkx as nx

    if not isinstance(graph, nx.Graph):
        raise DataError(f"expected is a networkx graph; got {type(graph).__name__}")
    if graph.is_multigraph():
        raise DataError(
            "it is a MultiGraph; two nodes may have one edge only, so make it a Graph or a DiGraph "
            "first"
        )
    edges = list(graph.edges(data=True))
    return Network(
        names=list(graph.nodes),
        nodes=[graph.nodes[node] for node in graph.nodes],
        ends=[(one, other) for one, other, _ in edges],
        edges=[attributes for _, _, attributes in edges],
        directed=graph.is_directed(),
        others=frozenset(graph.graph) - {target, "name"},
    )


def _networkx_rows(
    graphs: Sequence[Any], y: Sequence[Any] | None, target: str, skip: int
) -> Iterator[NetworkRow]:
    for place in range(skip, len(graphs)):
        graph = graphs[place]
        number = place + 1
        try:
            network: Network | str = network_of(graph, target)
        except DataError as error:
            yield NetworkRow(number, str(number), str(error))
            continue
        value = graph.graph.get(target) if y is None else y[place]
        lacks = y is None and target not in graph.graph
        yield NetworkRow(number, str(graph.name or number), network, value, lacks)


def _check_lengths(graphs: Sequence[Any], y: Any) -> None:
    if not len(graphs):
        raise DataError("there are no graphs")
    if y is not None and len(y) != len(graphs):
        raise GraphTransplantError(
            f"`y` must have {len(graphs)} entries, one per graph; got {len(y)}"
        )


def from_networkx(
    graphs: Sequence[nx.Graph[Any]],
    y: Sequence[Any] | None = None,
    *,
    target: str = "y",
    task: str | None = None,
    name: str = "graphs",
    featurizer: Featurizer | None = None,
) -> GraphStore:
    """Make a store of networkx graphs.

    Of the attributes of nodes and edges, ``x`` (a number or several) and ``label`` are read; of an
    edge without ``x``, its ``weight``. Nothing is left out: the first graph that does not fit is an
    error. The names of other attributes are noted in ``store.featurizer["ignored"]``.

    Args:
        graphs: Graphs or directed graphs.
        y: Target of every graph: a class of any name, a number, or a list of labels or numbers.
            (default: the graphs' own attribute)
        target: The attribute of a graph that holds its target.
        task: Found from the targets by default, as for tables.
        name: Name of the data set.
        featurizer: ``featurizer`` of another store, to get the same columns.

    Raises:
        DataError: If a graph cannot be used; the message names it.

    Example:
        >>> import networkx as nx
        >>> path, star = nx.path_graph(4), nx.star_graph(3)
        >>> store = from_networkx([path, star], ["path", "star"])
        >>> store.label_names, store.y.tolist(), store.featurizer["directed"]
        (('path', 'star'), [0, 1], False)
    """
    _check_lengths(graphs, y)
    encoder = Encoder(_of_graphs(featurizer))
    return read_networks(
        _networkx_rows(graphs, y, target, 0),
        name=name,
        where=name,
        targets=(target,),
        task=task,
        encoder=encoder,
        strict=True,
    )


def stream_networkx(
    graphs: Sequence[nx.Graph[Any]],
    y: Sequence[Any] | None = None,
    *,
    target: str = "y",
    task: str | None = None,
    name: str = "graphs",
    featurizer: Featurizer | None = None,
    rows_per_chunk: int = 2048,
    targets: bool = False,
    codec: TargetCodec | None = None,
    skip_rows: int = 0,
) -> Iterator[Chunk]:
    """Read networkx graphs a stretch at a time; a graph that does not fit is a problem of its row.

    Args:
        graphs: As for :func:`from_networkx`, as are the next five.
        y: Target of every graph.
        target: The attribute of a graph that holds its target.
        task: The task.
        name: Name of the data set.
        featurizer: ``featurizer`` of another store.
        rows_per_chunk: Graphs of a stretch.
        targets: Whether targets are to be read.
        codec: How targets are to be read; found from all of them by default.
        skip_rows: Leave out so many graphs.

    Example:
        >>> import networkx as nx
        >>> chunk, = stream_networkx([nx.path_graph(4), nx.Graph()])
        >>> len(chunk.store), chunk.problems
        (1, {2: 'the graph has no nodes'})
    """
    _check_lengths(graphs, y)
    return stream_networks(
        lambda skip: _networkx_rows(graphs, y, target, skip),
        name=name,
        where=name,
        featurizer=featurizer,
        rows_per_chunk=rows_per_chunk,
        targets=(target,) if targets else None,
        task=task,
        codec=codec,
        skip_rows=skip_rows,
    )
