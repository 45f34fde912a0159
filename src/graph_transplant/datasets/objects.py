"""Graphs that are in memory already, a stretch at a time: PyG graphs and stores."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor
from torch_geometric.data import Data

from graph_transplant.datasets.rows import Chunk, TargetCodec
from graph_transplant.errors import DataError
from graph_transplant.graphs import GraphStore, Rows, pyg_problem

# Arguments of `GraphStore.from_pyg` that say nothing of targets.
_OF_GRAPHS: Final = frozenset({"name", "num_continuous", "node_fields"})


def stream_store(
    store: GraphStore, *, rows_per_chunk: int, targets: bool, skip_rows: int
) -> Iterator[Chunk]:
    """Cut a store into stretches."""
    for start in range(skip_rows, len(store), rows_per_chunk):
        index = torch.arange(start, min(start + rows_per_chunk, len(store)))
        part = store.subset(index)
        if not targets:
            nothing = torch.zeros(len(index), dtype=torch.long)
            part = part.with_targets(nothing, task="multiclass", num_outputs=1)
        ids = tuple(str(number + 1) for number in index.tolist())
        texts = ("",) * len(ids)
        if part.rows is not None:
            ids, texts = part.rows.ids, part.rows.texts
        part.rows = Rows(index + 1, ids, texts)
        yield Chunk(start + 1, ids, texts, part, {})


def stream_pyg(
    graphs: Any,
    *,
    rows_per_chunk: int,
    targets: bool,
    skip_rows: int,
    codec: TargetCodec | None = None,
    widths: tuple[int, int] | None = None,
    **options: Any,
) -> Iterator[Chunk]:
    """Read PyG graphs; one that is unlike what is expected is a problem."""
    settings = _settings(graphs, options, targets, codec)
    return _pyg_chunks(graphs, settings, widths, rows_per_chunk, targets, skip_rows)


def _settings(
    graphs: Any, options: dict[str, Any], targets: bool, codec: TargetCodec | None
) -> dict[str, Any]:
    """Say how a stretch of PyG graphs becomes a store, whatever is in it."""
    if not targets:
        settings = {key: value for key, value in options.items() if key in _OF_GRAPHS}
        return settings | {"task": "multiclass", "num_outputs": 1}
    if codec is not None:
        named = {"num_outputs": codec.num_outputs, "label_names": codec.label_names}
        return options | {"task": codec.task, **named}
    # All targets together say what the task is, and how many classes there are.
    fitting = (graphs[place] for place in range(len(graphs)))
    found = [torch.as_tensor(data.y).detach() for data in fitting if not pyg_problem(data)]
    if not found:
        raise DataError(f"{options.get('name') or 'graphs'}: there are no graphs with targets")
    (width, _), *_ = Counter(y.numel() for y in found).most_common(1)
    no_edges = torch.empty(2, 0, dtype=torch.long)
    dots = [Data(edge_index=no_edges, num_nodes=1, y=y) for y in found if y.numel() == width]
    mine = {key: value for key, value in options.items() if key not in _OF_GRAPHS}
    whole = GraphStore.from_pyg(dots, name=options.get("name"), **mine)
    return options | {"task": whole.task, "num_outputs": whole.num_outputs}


def _widths(data: Data) -> tuple[int, int]:
    """Return the numbers of node and edge features of a graph that has no problem."""

    def width(value: Tensor | None) -> int:
        return 0 if value is None else 1 if value.dim() == 1 else value.shape[1]

    return width(data.x), width(data.edge_attr)


def _prepared(graph: Any, widths: tuple[int, int] | None, targets: bool) -> Data | str:
    """Return a graph as it is read, or why it is not."""
    problem = pyg_problem(graph, target=targets)
    if problem is not None:
        return f"it {problem}"
    data = copy.copy(graph)
    if widths is not None and not widths[1]:
        data.edge_attr = None
    if not targets:
        data.y = torch.zeros(1, dtype=torch.long)
    for what, mine, expected in zip(("node", "edge"), _widths(data), widths or (), strict=False):
        if mine != expected:
            return f"it has {mine} {what} features; expected are {expected}"
    return data


def _pyg_chunks(
    graphs: Any,
    settings: dict[str, Any],
    widths: tuple[int, int] | None,
    rows: int,
    targets: bool,
    skip: int,
) -> Iterator[Chunk]:
    if widths is None:
        # All of them are asked, also those that are skipped: a stream that goes on judges alike.
        fitting = (_prepared(graphs[place], None, targets) for place in range(len(graphs)))
        seen = Counter(_widths(data) for data in fitting if not isinstance(data, str))
        widths = seen.most_common(1)[0][0] if seen else (0, 0)
    for start in range(skip, len(graphs), rows):
        numbers = range(start + 1, min(start + rows, len(graphs)) + 1)
        read = {number: _prepared(graphs[number - 1], widths, targets) for number in numbers}
        problems = {number: item for number, item in read.items() if isinstance(item, str)}
        items = {number: item for number, item in read.items() if not isinstance(item, str)}
        try:
            store = GraphStore.from_pyg(items.values(), **settings) if items else None
        except DataError:
            # One of them does not fit: which, the graphs tell when they come alone.
            for number, data in list(items.items()):
                try:
                    GraphStore.from_pyg([data], **settings)
                except DataError as error:
                    problems[number] = str(error).replace("graph 0", "the graph")
                    del items[number]
            store = GraphStore.from_pyg(items.values(), **settings) if items else None
        if store is not None:
            names = tuple(str(number) for number in items)
            store.rows = Rows(torch.tensor(list(items)), names, ("",) * len(names))
        ids = tuple(str(number) for number in numbers)
        yield Chunk(start + 1, ids, ("",) * len(ids), store, dict(sorted(problems.items())))
