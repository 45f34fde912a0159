"""Conversion of PyG graphs to the flat tensors of a store."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from graph_transplant.errors import DataError

if TYPE_CHECKING:
    from torch_geometric.data import Batch as Batch
    from torch_geometric.data import Data as Data
else:
    # PyG is slow to import and not needed to evaluate annotations.
    _PYG = sys.modules.get("torch_geometric.data")
    Batch, Data = (getattr(_PYG, name, Any) for name in ("Batch", "Data"))


def is_pyg(value: object, *names: str) -> bool:
    """Whether a value is of these ``torch_geometric.data`` classes; never imports the module."""
    known = sys.modules.get("torch_geometric.data")  # another thread may be importing it
    return isinstance(value, tuple(getattr(known, name, ()) for name in names))


def flat_tensors(graphs: Any, name: str, node_fields: Sequence[str]) -> dict[str, Any]:
    """Concatenate graphs into the arguments of a store; ``y`` has one row per graph."""
    items = _listed(graphs)
    for number, data in enumerate(items):
        problem = _problem(data)
        if problem is not None:
            raise DataError(f"{name}: graph {number} {problem}")
    if not items:
        raise DataError(f"{name}: there are no graphs")

    def stacked(field: str) -> Tensor | None:
        present = [field in data and data[field] is not None for data in items]
        if not any(present):
            return None
        if not all(present):
            raise DataError(f"{name}: graph {present.index(False)} has no `{field}`")
        try:
            return torch.cat([data[field].detach().cpu() for data in items])
        except RuntimeError as error:
            raise DataError(f"{name}: the graphs' `{field}` do not fit together: {error}") from None

    fields = {field: stacked(field) for field in node_fields}
    missing = [field for field, value in fields.items() if value is None]
    if missing:
        raise DataError(f"{name}: the graphs have no `{missing[0]}`")
    rows = [torch.as_tensor(data.y).detach().cpu().reshape(1, -1) for data in items]
    widths = {row.shape[1] for row in rows}
    if len(widths) > 1:
        raise DataError(f"{name}: `y` has {min(widths)} to {max(widths)} entries per graph")
    return {
        "x": _columns(stacked("x")),
        "edge_index": torch.cat([data.edge_index.detach().cpu().long() for data in items], dim=1),
        "edge_attr": _columns(stacked("edge_attr")),
        "y": torch.cat(rows),
        "node_counts": torch.tensor([data.num_nodes for data in items]),
        "edge_counts": torch.tensor([data.edge_index.shape[1] for data in items]),
        "node_fields": fields,
    }


def _listed(graphs: Any) -> list[Any]:
    if is_pyg(graphs, "Batch"):
        return list(graphs.to_data_list())
    if is_pyg(graphs, "Data", "HeteroData"):
        return [graphs]
    if isinstance(graphs, Dataset) and not isinstance(graphs, IterableDataset):
        return [graphs[place] for place in range(len(graphs))]  # type: ignore[arg-type]
    return list(graphs)


def _columns(value: Tensor | None) -> Tensor | None:
    """Features as 2-D; ``None`` for zero columns, as in some TU data sets of PyG."""
    if value is None or value.shape[1:] == (0,):
        return None
    return value if value.dim() > 1 else value.unsqueeze(1)


def _is_dense(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.strided and not value.is_complex()


def _problem(data: Any) -> str | None:
    if is_pyg(data, "HeteroData"):
        return "has several types of nodes (HeteroData): convert it with `data.to_homogeneous()`"
    if not is_pyg(data, "Data"):
        return f"must be a PyG `Data`; got {type(data).__name__}"
    edges = data.edge_index
    pairs = _is_dense(edges) and edges.dim() == 2 and len(edges) == 2
    # `torch.empty(2, 0)`, a common way to write "no edges", is float.
    if not pairs or ((edges.is_floating_point() or edges.dtype == torch.bool) and edges.numel()):
        return "must have an `edge_index` that is a tensor [2, edges] of whole numbers"
    tables = {name: data[name] for name in ("x", "edge_attr") if getattr(data, name) is not None}
    for name, value in tables.items():
        if not _is_dense(value) or value.dim() not in (1, 2):
            return f"must have an `{name}` that is a tensor of numbers, one row each"
    if getattr(data, "edge_weight", None) is not None:
        return "has an `edge_weight`, which is not kept: put it into `edge_attr`, or remove it"
    if not data.num_nodes:
        return "has no nodes"
    for name, value in tables.items():
        rows = data.num_nodes if name == "x" else edges.shape[1]
        if len(value) != rows:
            return f"must have an `{name}` of {rows} rows; got {len(value)}"
    if data.y is None:
        return "has no `y`"
    try:
        y = torch.as_tensor(data.y)
        numbers = _is_dense(y) and y.numel() > 0
    except (TypeError, ValueError, RuntimeError, OverflowError):
        numbers = False
    return None if numbers else f"must have a `y` of numbers; got {type(data.y).__name__}"
