"""Graphs with node and edge attributes: networkx graphs and JSON Lines.

Two attributes of nodes and edges become feature columns, numbers first:

* ``x``: a number or a list of numbers; for edges without ``x``, their ``weight``.
* ``label``: a string or an integer. Every label that occurs gets a one-hot column.

Other attributes are ignored. All graphs must have the same columns: graphs that differ from the
majority are skipped, or raise an error in :func:`from_networkx`.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from reprlib import repr as shown
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graph_transplant.data import Featurizer, GraphStore, InputRows
from graph_transplant.datasets.files import check_memory
from graph_transplant.datasets.rows import (
    Chunk,
    Reading,
    TableOptions,
    Target,
    TargetCodec,
    check_index,
    check_readable,
    find_codec,
    is_missing,
    quoted,
)
from graph_transplant.errors import DataError, GraphTransplantError, Skipped
from graph_transplant.utils.text import count

if TYPE_CHECKING:
    import networkx as nx

Line = dict[str, Any]
Shape = tuple[int, bool]  # number of numeric columns, and whether there are labels

# More distinct labels than this are names, which are useless as one-hot columns.
_MOST_LABELS: Final = 1000
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
_LARGEST: Final = float(np.finfo(np.float32).max)


class Source(NamedTuple):
    """An input of graphs: mappings with ``nodes``, ``edges``, ``directed`` and other entries."""

    name: str
    where: str  # for messages
    # Skips n graphs, then yields the id, if any, and the graph or the reason why it is invalid.
    lines: Callable[[int], Iterator[tuple[Any, Line | str]]]
    targets: tuple[str, ...]  # names of entries; a single one may hold a list
    id: str  # name of the entry with the id
    task: str | None
    columns: Mapping[str, Any]  # `targets` and `id` as the featurizer keeps them
    size: int | None = None  # of the file in bytes

    def rows(self, skip: int = 0) -> Iterator[tuple[int, str, Line | str]]:
        """Yield the number, the id and the content of every row."""
        for number, (name, line) in enumerate(self.lines(skip), skip + 1):
            named = type(name) in (str, int, float) and name != ""
            yield number, str(name if named else number), line


# ------------------------------------------------------------------ one graph


class _Columns(NamedTuple):
    """Features of the nodes or the edges of one graph."""

    numbers: npt.NDArray[np.float32]  # [rows, numbers]
    labels: list[str] | None

    @property
    def shape(self) -> Shape:
        return self.numbers.shape[1], self.labels is not None


class _Graph(NamedTuple):
    number: int
    id: str
    cells: tuple[str, ...]  # its targets
    nodes: int
    edge_index: npt.NDArray[np.int32]  # [edges, 2], both directions of an undirected edge
    node: _Columns
    edge: _Columns
    directed: bool  # whether some edge has no reverse


def _encode(number: int, name: str, line: Line | str, targets: Sequence[str]) -> _Graph:
    """Validate a graph and convert it to arrays; raise `DataError` if it is malformed."""
    if isinstance(line, str):
        raise DataError(line)
    nodes, edges, directed = line["nodes"], line["edges"], line["directed"]
    if not nodes:
        raise DataError("the graph has no nodes")
    names = [node.get("id") for node in nodes]
    if all(name is None for name in names):
        names = list(range(len(nodes)))
    ends = [(edge.get("source"), edge.get("target")) for edge in edges]

    def edge_name(place: int) -> str:
        return f"the edge {shown(ends[place][0])}, {shown(ends[place][1])}"

    try:
        places = {name: place for place, name in enumerate(names)}
        if len(places) < len(names) or None in places:
            twice = next((name for place, name in enumerate(names) if places[name] != place), None)
            raise DataError(f"every node must have a unique `id`; got {shown(twice)}")
        pairs = [(places[one], places[other]) for one, other in ends]
    except TypeError:
        raise DataError("every `id`, `source` and `target` must be a string or a number") from None
    except KeyError as error:
        lost = shown(error.args[0])
        raise DataError(f"an edge joins {lost}, but there is no such node") from None
    edge_of = {pair: place for place, pair in enumerate(pairs)}
    key = "x" if any("x" in edge for edge in edges) else "weight"
    alone = []
    for place, (one, other) in enumerate(pairs):
        if edge_of[one, other] != place:
            raise DataError(f"{edge_name(place)} is given twice")
        reverse = edge_of.get((other, one))
        if reverse is None:
            alone.append(place)
        elif not directed:
            given, again = ((edges[n].get(key), edges[n].get("label")) for n in (place, reverse))
            if given != again:
                raise DataError(
                    f"{edge_name(place)} of an undirected graph is given in both directions with "
                    "different attributes"
                )
    if not directed:
        pairs += [pairs[place][::-1] for place in alone]
        edges = edges + [edges[place] for place in alone]
    return _Graph(
        number,
        name,
        _cells(line, targets) if targets else (),
        len(nodes),
        np.array(pairs, dtype=np.int32).reshape(-1, 2),
        _columns("x", nodes, "node"),
        _columns(key, edges, "edge"),
        directed and bool(alone),
    )


def _columns(key: str, items: Sequence[Line], kind: str) -> _Columns:
    """Read the numbers and labels of all nodes or edges; ``kind`` is for messages."""
    values, labels = (_given(items, attribute, kind) for attribute in (key, "label"))
    numbers = np.empty((len(items), 0), dtype=np.float32)
    if values:
        try:
            plain = [value.detach() if isinstance(value, Tensor) else value for value in values]
            table = np.asarray(plain).reshape(len(values), -1)
        except ValueError:
            raise DataError(f"all {kind}s must have the same number of values in `{key}`") from None
        if table.dtype.kind not in "iuf" or not (np.abs(table) <= _LARGEST).all():
            raise DataError(
                f"the `{key}` of its {kind}s must be finite numbers that fit in float32"
            )
        numbers = table.astype(np.float32)
    for label in labels:
        if isinstance(label, bool) or not isinstance(label, str | int | np.integer):
            raise DataError(f"every `label` must be a string or an integer; got {shown(label)}")
    # Interned, as the same few labels recur.
    return _Columns(numbers, [sys.intern(str(label)) for label in labels] or None)


def _given(items: Sequence[Line], attribute: str, kind: str) -> list[Any]:
    """Values of an attribute of all nodes or edges; empty if none has it."""
    values = [item[attribute] for item in items if item.get(attribute) is not None]
    if values and len(values) < len(items):
        raise DataError(f"some of its {kind}s have no `{attribute}`, but others have one")
    return values


def _cells(line: Line, targets: Sequence[str]) -> tuple[str, ...]:
    """Return targets as strings, like the cells of a table."""
    values: Any = [line.get(target) for target in targets]
    if len(values) == 1:
        (value,) = values
        value = value.tolist() if isinstance(value, np.ndarray | Tensor) else value
        values = value if isinstance(value, list | tuple) else [value]
    return tuple(map(_cell, values)) or ("",)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int | np.integer | np.bool_):
        return str(int(value))
    if isinstance(value, float | np.floating):
        return "" if math.isnan(value) else repr(float(value))
    raise DataError(f"the target must be a string, a number or a list of them; got {shown(value)}")


# ------------------------------------------------------------------ all graphs


def _majority(source: Source, graphs: Sequence[_Graph]) -> Featurizer:
    """Featurizer with the columns of most graphs; ties go to the first seen."""
    # Graphs without edges are compatible with any edge features.
    joined = [graph for graph in graphs if len(graph.edge_index)]
    seen = Counter((graph.node.shape, graph.edge.shape) for graph in joined or graphs)
    node, edge = next(iter(seen.most_common(1)), (((0, False), (0, False)), 0))[0]
    alike = [
        graph
        for graph in graphs
        if graph.node.shape == node and (graph.edge.shape == edge or not len(graph.edge_index))
    ]
    return Featurizer(
        "graphs",
        node_labels=_kinds(source, "nodes", [g.node for g in alike]) if node[1] else None,
        node_numbers=node[0],
        edge_labels=_kinds(source, "edges", [g.edge for g in alike]) if edge[1] else None,
        edge_numbers=edge[0],
        directed=any(graph.directed for graph in alike),
        **source.columns,
    )


def _kinds(source: Source, what: str, parts: Sequence[_Columns]) -> tuple[str, ...]:
    """Distinct labels of nodes or edges, sorted; by value if all are integers."""
    labels = {label for part in parts for label in part.labels or ()}
    if len(labels) > _MOST_LABELS:
        raise DataError(
            f"{source.where}: the {what} have {len(labels)} distinct labels, at most "
            f"{_MOST_LABELS} are supported; if they are names, remove `label`"
        )
    whole = all(map(_WHOLE_NUMBER.fullmatch, labels))
    return tuple(sorted(labels, key=lambda label: (int(label) if whole else 0, label)))


def _codec(
    source: Source, graphs: Sequence[_Graph], others: Sequence[str]
) -> tuple[TargetCodec, list[str]]:
    """Infer the target codec, with notes; the number of targets is that of most graphs."""
    names = source.targets
    widths = Counter(len(g.cells) for g in graphs if not all(map(is_missing, g.cells)))
    if not widths:
        known = ", ".join(map(quoted, others[:20]))
        advice = (
            f"name another with `target`: there are {known}" if known else "every graph needs one"
        )
        raise DataError(
            f"{source.where}: no graph has the target {', '.join(map(quoted, names))}; {advice}"
        )
    width = widths.most_common(1)[0][0]
    if width > len(names):
        names = tuple(f"{names[0]}[{number}]" for number in range(width))
    rows = ((graph.number, graph.cells) for graph in graphs if len(graph.cells) == width)
    return find_codec(source.where, names, rows, source.task)


def _unfit(graph: _Graph, featurizer: Featurizer) -> str:
    """Why a graph does not fit the featurizer; empty if it does."""
    for kind, given, numbers, known in (
        ("node", graph.node, featurizer.node_numbers, featurizer.node_labels),
        ("edge", graph.edge, featurizer.edge_numbers, featurizer.edge_labels),
    ):
        if kind == "edge" and not len(graph.edge_index):
            continue
        has, expected = (
            f"{count(width, 'number')} and {'a' if labels else 'no'} label"
            for width, labels in (given.shape, (numbers, known is not None))
        )
        if has != expected:
            return f"its {kind}s have {has}; expected {expected}"
        unknown = set(given.labels or ()).difference(known or ())
        if unknown:
            among = ", ".join(map(quoted, islice(known or (), 10)))
            return f"the {kind} label {quoted(min(unknown))} is not among those known: {among}"
    if graph.directed and not featurizer.directed:
        return "it is directed; expected undirected graphs"
    return ""


def _target(codec: TargetCodec, cells: tuple[str, ...]) -> Target:
    if len(cells) != len(codec.names) and not all(map(is_missing, cells)):
        return f"it has {count(len(cells), 'target')}; expected {len(codec.names)}"
    return codec.encode(cells)


def _features(
    parts: Sequence[_Columns], numbers: int, labels: Sequence[str] | None
) -> Tensor | None:
    empty = np.empty((0, numbers), dtype=np.float32)
    table = np.concatenate([empty, *(part.numbers for part in parts)])
    if labels is None:
        return torch.from_numpy(table) if numbers else None
    places = {label: place for place, label in enumerate(labels)}
    codes = [places[label] for part in parts for label in part.labels or ()]
    one_hot = np.zeros((len(codes), len(labels)), dtype=np.uint8)
    one_hot[np.arange(len(codes)), codes] = 1
    if not numbers:
        return torch.from_numpy(one_hot)
    return torch.from_numpy(np.concatenate([table, one_hot.astype(np.float32)], axis=1))


def _store(graphs: Sequence[_Graph], featurizer: Featurizer, source: Source) -> GraphStore:
    """Make a store of graphs, without their targets."""
    # Graphs without edges have no edge columns.
    edges = [graph.edge for graph in graphs if len(graph.edge_index)]
    for what, labels, numbers, rows in (
        ("node", featurizer.node_labels, featurizer.node_numbers, sum(g.nodes for g in graphs)),
        (
            "edge",
            featurizer.edge_labels,
            featurizer.edge_numbers,
            sum(len(g.edge_index) for g in graphs),
        ),
    ):
        if source.size is not None:
            width = len(labels or ()) + numbers
            check_memory(
                f"{source.where}: {width} columns for {rows} {what}s",
                4 * width * rows,
                source.size,
                "use fewer different labels",
            )
    return GraphStore(
        x=_features([g.node for g in graphs], featurizer.node_numbers, featurizer.node_labels),
        edge_index=torch.from_numpy(np.concatenate([graph.edge_index for graph in graphs]).T),
        y=torch.zeros(len(graphs), dtype=torch.long),
        node_counts=torch.tensor([graph.nodes for graph in graphs]),
        edge_counts=torch.tensor([len(graph.edge_index) for graph in graphs]),
        edge_attr=_features(edges, featurizer.edge_numbers, featurizer.edge_labels),
        name=source.name,
        num_outputs=1,
        num_continuous=featurizer.node_numbers,
        rows=InputRows(
            torch.tensor([graph.number for graph in graphs]),
            tuple(graph.id for graph in graphs),
            ("",) * len(graphs),
        ),
        featurizer=featurizer,
    )


def read_networks(
    source: Source, featurizer: Featurizer | None = None, *, strict: bool = False
) -> GraphStore:
    """Read all graphs; with ``strict``, raise for the first that cannot be used."""
    graphs: list[_Graph] = []
    skipped: list[Skipped] = []
    entries: set[str] = set()  # of the last valid graph, for a message
    rows = 0

    def check() -> None:
        for row, _, reason in sorted(skipped)[:1] if strict else ():
            raise DataError(f"{source.where}: graph {row - 1}: {reason}")
        check_readable(source.where, rows, skipped)

    for rows, name, line in source.rows():
        try:
            graphs.append(_encode(rows, name, line, source.targets))
            entries = set(map(str, line)) - {"nodes", "edges", "directed", source.id}
        except DataError as error:
            skipped.append(Skipped(rows, name, str(error)))
    featurizer = featurizer or _majority(source, graphs)
    unfit = {graph.number: _unfit(graph, featurizer) for graph in graphs}
    skipped += [Skipped(g.number, g.id, why) for g in graphs if (why := unfit[g.number])]
    graphs = [graph for graph in graphs if not unfit[graph.number]]
    check()
    codec, notes = _codec(source, graphs, sorted(entries))
    targets = [(graph, _target(codec, graph.cells)) for graph in graphs]
    skipped += [Skipped(g.number, g.id, why) for g, why in targets if isinstance(why, str)]
    check()
    kept = [(graph, target) for graph, target in targets if not isinstance(target, str)]
    store = _store([graph for graph, _ in kept], featurizer, source)
    store = codec.apply(store, [target for _, target in kept])
    store.skipped, store.notes = tuple(sorted(skipped)), tuple(notes)
    return store


def stream_networks(source: Source, reading: Reading) -> Iterator[Chunk]:
    """Read graphs in chunks."""
    featurizer, codec = reading.featurizer, reading.codec
    if featurizer is None:
        read = []
        for row in source.rows():
            with suppress(DataError):
                read.append(_encode(*row, ()))
        featurizer = _majority(source, read)
    first = reading.skip_rows + 1
    rows = source.rows(first - 1)
    while part := list(islice(rows, reading.rows_per_chunk)):
        graphs: list[_Graph] = []
        problems: dict[int, str] = {}
        for number, name, line in part:
            try:
                graph = _encode(number, name, line, source.targets if codec else ())
                problem = _unfit(graph, featurizer)
            except DataError as error:
                problem = str(error)
            if problem:
                problems[number] = problem
            else:
                graphs.append(graph)
        store = _store(graphs, featurizer, source) if graphs else None
        targets = {graph.number: _target(codec, graph.cells) for graph in graphs if codec}
        ids = tuple(name for _, name, _ in part)
        yield Chunk(first, ids, ("",) * len(ids), store, problems, targets)
        first += len(ids)


# ------------------------------------------------------------------ networkx


def _networkx(
    graphs: Sequence[Any],
    y: Any = None,
    *,
    target: Any = None,
    task: str | None = None,
    name: str = "graphs",
    known: Featurizer | None = None,
) -> Source:
    import networkx as nx

    if not len(graphs):
        raise DataError("there are no graphs")
    check_index(graphs, y)
    named = TableOptions.of(target=target, task=task).targets
    columns = () if named or not hasattr(y, "columns") else tuple(map(str, y.columns))
    targets = named or columns or (known.targets if known and y is None else ()) or ("y",)
    values = None if y is None else list(y.to_numpy() if hasattr(y, "to_numpy") else y)
    if values is not None and len(values) != len(graphs):
        raise GraphTransplantError(
            f"`y` must have {len(graphs)} entries, one per graph; got {len(values)}"
        )

    def lines(skip: int) -> Iterator[tuple[Any, Line | str]]:
        for place in range(skip, len(graphs)):
            graph = graphs[place]
            if not isinstance(graph, nx.Graph):
                yield None, f"expected a networkx graph; got {type(graph).__name__}"
            elif graph.is_multigraph():
                yield graph.name, "it is a MultiGraph; two nodes may have one edge only"
            else:
                content = dict(graph.graph) if values is None else {targets[0]: values[place]}
                if columns and values is not None:
                    content = dict(zip(columns, values[place], strict=True))
                content["directed"] = graph.is_directed()
                content["nodes"] = [{**item, "id": node} for node, item in graph.nodes(data=True)]
                content["edges"] = [
                    {**item, "source": one, "target": two}
                    for one, two, item in graph.edges(data=True)
                ]
                yield graph.name, content

    return Source(name, name, lines, targets, "name", task, {"targets": named})


def from_networkx(
    graphs: Sequence[nx.Graph[Any]],
    y: Sequence[Any] | None = None,
    *,
    featurizer: Featurizer | None = None,
    **options: Any,
) -> GraphStore:
    """Create a store from networkx graphs; raise for the first that cannot be used.

    Args:
        graphs: Undirected or directed graphs, with attributes ``x``, ``label`` and ``weight``.
        y: Target of every graph: a class name, a number, or a list of labels or numbers
            (default: the graph attribute named by ``target``).
        featurizer: The featurizer of another store, to get the same columns.
        **options: ``target``, the graph attributes that hold the target (default: ``"y"``);
            ``task``, inferred from the targets by default; ``name`` of the data set.

    Example:
        >>> import networkx as nx
        >>> store = from_networkx([nx.path_graph(4), nx.star_graph(3)], ["path", "star"])
        >>> store.label_names, store.y.tolist()
        (('path', 'star'), [0, 1])
    """
    if featurizer is not None and featurizer.kind != "graphs":
        raise DataError(f"the featurizer is for {featurizer.kind}; these are networkx graphs")
    return read_networks(_networkx(graphs, y, **options), featurizer, strict=True)


def stream_networkx(graphs: Sequence[Any], reading: Reading, **options: Any) -> Iterator[Chunk]:
    """Read networkx graphs in chunks; those that do not fit are reported as problems."""
    return stream_networks(_networkx(graphs, **options, known=reading.featurizer), reading)
