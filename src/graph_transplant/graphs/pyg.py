"""Graphs of PyTorch Geometric as the flat tensors of a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.data import Dataset as PyGDataset

from graph_transplant.errors import DataError
from graph_transplant.segments import ranges

_WHOLE_TYPES: Final = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

# A data set that has methods of its own for these may give other graphs than its tensors hold.
_ACCESS: Final = ("get", "len", "indices", "__getitem__", "__len__", "__iter__")


def flat_tensors(graphs: Any, name: str, node_fields: Sequence[str]) -> dict[str, Any]:
    """Lay graphs end to end, as the arguments of a store; ``y`` has a row for each graph."""
    if isinstance(graphs, Subset) and isinstance(graphs.dataset, PyGDataset):
        graphs = graphs.dataset.index_select([int(index) for index in graphs.indices])
    if isinstance(graphs, InMemoryDataset):
        found = _of_dataset(graphs, node_fields)
        if found is not None:
            return found
    return _of_list(_listed(graphs), name, node_fields)


def _listed(graphs: Any) -> list[Any]:
    if isinstance(graphs, Batch):
        return list(graphs.to_data_list())
    if isinstance(graphs, Data | HeteroData):
        return [graphs]
    if isinstance(graphs, Dataset) and not isinstance(graphs, IterableDataset):
        return [graphs[place] for place in range(len(graphs))]  # type: ignore[arg-type]
    return list(graphs)


def _of_list(items: list[Any], name: str, node_fields: Sequence[str]) -> dict[str, Any]:
    for number, data in enumerate(items):
        problem = pyg_problem(data)
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


def _of_dataset(dataset: InMemoryDataset, node_fields: Sequence[str]) -> dict[str, Any] | None:
    """Take the tensors of a data set as they are; ``None`` if its graphs must be taken one by one.

    Whatever is not plain is left to the graphs, so that an error names the one at fault.
    """
    data, slices, kind = dataset._data, dataset.slices, type(dataset)
    own = any(getattr(kind, name) is not getattr(InMemoryDataset, name) for name in _ACCESS)
    if own or dataset.transform is not None or type(data) is not Data or slices is None:
        return None
    index = torch.tensor(list(dataset.indices()), dtype=torch.long)
    if not len(index) or not _is_dense(data.edge_index, (2,)):
        return None
    fields: dict[str, Tensor] = {}
    counts: dict[str, Tensor] = {}
    present = [key for key in ("x", "edge_attr") if key in data and key in slices]
    for key in ("edge_index", "y", *present, *node_fields):
        if key not in data or key not in slices or not _is_dense(data[key], range(1, 9)):
            return None
        value, ptr = data[key].detach().cpu(), torch.as_tensor(slices[key])
        counts[key] = ptr.diff()[index]
        axis = 1 if key == "edge_index" else 0
        if dataset._indices is not None:
            value = value.index_select(axis, ranges(ptr[:-1][index], counts[key])[0])
        fields[key] = value
        along = data.__cat_dim__(key, value) % value.dim()
        if along != axis or value.shape[axis] != int(counts[key].sum()):
            return None
    sizes = getattr(data._store, "_num_nodes", None)
    nodes = counts.get("x") if sizes is None else torch.as_tensor(sizes)[index]
    edges, targets = counts["edge_index"], counts["y"]
    plain = (
        nodes is not None
        and bool((nodes > 0).all())
        and all(torch.equal(counts.get(key, nodes), nodes) for key in ("x", *node_fields))
        and torch.equal(counts.get("edge_attr", edges), edges)
        and bool((targets == targets[0]).all())
        and int(targets[0]) > 0
        and all(fields[key].dim() <= 2 for key in present)
        and fields["edge_index"].dtype in _WHOLE_TYPES
    )
    if not plain:
        return None
    return {
        "x": _columns(fields.get("x")),
        "edge_index": fields["edge_index"],
        "edge_attr": _columns(fields.get("edge_attr")),
        "y": fields["y"].reshape(len(index), -1),
        "node_counts": nodes,
        "edge_counts": edges,
        "node_fields": {name: fields[name] for name in node_fields},
    }


def _columns(value: Tensor | None) -> Tensor | None:
    """Features as a table; without columns, as TU data sets of PyG may be, there are none."""
    if value is None or value.shape[1:] == (0,):
        return None
    return value if value.dim() > 1 else value.unsqueeze(1)


def pyg_problem(data: Any) -> str | None:
    """What keeps a PyG graph from being put into a store, said of "the graph", if anything does."""
    if isinstance(data, HeteroData):
        return "has several types of nodes (HeteroData): convert it with `data.to_homogeneous()`"
    if not isinstance(data, Data):
        return f"must be a PyG `Data`; got {type(data).__name__}"
    fields: dict[str, Any] = {
        field: getattr(data, field, None) for field in ("edge_index", "y", "x", "edge_attr")
    }
    edges = fields["edge_index"]
    if edges is None:
        return "has no `edge_index`"
    # `torch.empty(2, 0)`, which is float, is a usual way to write that there are no edges.
    whole = _is_dense(edges, (2,)) and (edges.dtype in _WHOLE_TYPES or not edges.shape[1])
    if not whole or edges.shape[0] != 2:
        return (
            "must have an `edge_index` that is a tensor [2, edges] of whole numbers; "
            f"got {_what(edges)}"
        )
    for field, rows in (("x", "nodes"), ("edge_attr", "edges")):
        if fields[field] is not None and not _is_dense(fields[field], (1, 2)):
            return (
                f"must have an `{field}` that is a tensor [{rows}, features]; "
                f"got {_what(fields[field])}"
            )
    nodes = data.num_nodes
    if not nodes:
        return "has no nodes"
    if not isinstance(nodes, int):
        return f"must have a `num_nodes` that is a whole number; got {_what(nodes)}"
    for field, count in (("x", nodes), ("edge_attr", edges.shape[1])):
        if fields[field] is not None and len(fields[field]) != count:
            return f"must have an `{field}` of {count} rows; got {len(fields[field])}"
    return _target_problem(fields["y"])


def _target_problem(y: Any) -> str | None:
    if y is None:
        return "has no `y`"
    try:
        value = torch.as_tensor(y)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return f"must have a `y` of numbers; got {_what(y)}"
    if value.is_complex() or value.layout != torch.strided or not value.numel():
        return f"must have a `y` of numbers; got {_what(y)}"
    return None


def _is_dense(value: Any, dimensions: Iterable[int]) -> bool:
    """Whether this is a tensor of real numbers with so many dimensions."""
    return (
        isinstance(value, Tensor)
        and value.layout == torch.strided
        and not value.is_complex()
        and value.dim() in dimensions
    )


def _what(value: Any) -> str:
    """Say what a value is: a tensor by its type and shape."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
