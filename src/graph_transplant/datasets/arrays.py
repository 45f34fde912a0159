"""What the scikit-learn estimators accept as ``X`` and ``y``."""

from __future__ import annotations

from typing import Any, Final

import networkx as nx
import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.utils.validation import check_array, column_or_1d
from torch_geometric.data import Data

from graph_transplant.data import GraphStore
from graph_transplant.errors import DataError

Array = npt.NDArray[Any]

_KINDS: Final = {"PyG graphs": Data, "SMILES": str, "networkx graphs": nx.Graph}


def items_of(graphs: Any) -> tuple[str, Any]:
    """Return the kind of ``X`` and its items; stores and tables are returned unchanged."""
    if isinstance(graphs, GraphStore):
        return "store", graphs
    if isinstance(graphs, tuple(_KINDS.values())):
        raise DataError(f"`X` must be a sequence of graphs; got one {type(graphs).__name__}")
    cells = graphs.to_numpy() if hasattr(graphs, "to_numpy") else graphs
    if getattr(cells, "shape", ())[1:] == (1,) and len(cells) and isinstance(cells[0, 0], str):
        cells = cells[:, 0]
    if getattr(cells, "ndim", 1) != 1 or not hasattr(cells, "__len__"):
        texts = hasattr(graphs, "columns") and cells.dtype == object
        if texts and any(isinstance(cell, str) for cell in cells.flat):
            raise DataError(
                f"`X` has {cells.shape[1]} columns, some of texts: give the column of SMILES alone"
            )
        return "table", graphs
    if not len(cells):
        raise DataError("`X` holds no graphs: found 0 sample(s) where a minimum of 1 is required")
    items = [cells[place] for place in range(len(cells))]
    kind = next((name for name, one in _KINDS.items() if isinstance(items[0], one)), None)
    if kind is None and any(isinstance(item, str) for item in items):
        kind = "SMILES"
    if kind is None:
        # Loading unknown objects raises an error that lists what can be loaded.
        unknown = np.ndim(items[0]) == 0 and np.asarray(items[0]).dtype == object
        return ("unknown", items) if unknown else ("table", graphs)
    for number, item in enumerate(items):
        if not isinstance(item, _KINDS[kind]):
            raise DataError(
                f"`X` must hold graphs of one kind: it holds {kind}, but item {number} is a "
                f"{type(item).__name__}"
            )
    return kind, items


def from_table(table: Array) -> GraphStore:
    """Turn each row into a graph with one node."""
    rows, columns = table.shape
    return GraphStore(
        # A copy: the table may be read-only.
        x=torch.tensor(table, dtype=torch.float32),
        edge_index=torch.empty(2, 0, dtype=torch.long),
        y=torch.zeros(rows, dtype=torch.long),
        node_counts=torch.ones(rows, dtype=torch.long),
        edge_counts=torch.zeros(rows, dtype=torch.long),
        name="table",
        num_continuous=columns,
    )


def values_of(targets: Array) -> Array:
    """Return float64 ``[graphs]`` or ``[graphs, outputs]``; only the latter may have NaN."""
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = column_or_1d(targets, warn=True)
    if targets.dtype == object:  # of nullable columns
        targets = np.where(pd.isna(targets), np.nan, targets)
    several = targets.ndim == 2
    values: Array = check_array(
        targets,
        ensure_2d=False,
        dtype=np.float64,
        ensure_all_finite="allow-nan" if several else True,
        input_name="y",
        copy=True,
    )
    missing = np.isnan(values).all(axis=-1) if several else np.zeros(1, dtype=bool)
    if missing.any():
        raise DataError(
            f"Input y contains NaN: all targets of graph {missing.argmax()} are missing"
        )
    return values


def label_matrix(targets: Array) -> Array:
    """Return several labels per graph: 0, 1 or NaN, float64 ``[graphs, labels]``."""
    labels = values_of(targets)
    if not np.isin(labels[~np.isnan(labels)], (0, 1)).all():
        raise DataError("several labels per graph must be 0, 1 or NaN (missing)")
    return labels
