"""Graphs that are in memory already, a stretch at a time."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch_geometric.data import Data

from graph_transplant.datasets.rows import Chunk
from graph_transplant.graphs import GraphStore, Rows


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


def unlabelled(graphs: Any) -> list[Any]:
    """PyG graphs with a target of zero each; the given ones may have none."""
    items = [copy.copy(graphs[place]) for place in range(len(graphs))]
    for data in items:
        if isinstance(data, Data):
            data.y = torch.zeros(1, dtype=torch.long)
    return items
