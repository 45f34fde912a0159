"""Batches of graphs, the input of models and augmentations."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graph_transplant.data.adjacency import Adjacency
from graph_transplant.data.pyg import Batch, Data, is_pyg
from graph_transplant.errors import DataError
from graph_transplant.kernels import csr as structure
from graph_transplant.kernels.arrays import CSR, Ints, Neighbours

CODE = "x:code"
"""Node field with the column index of one-hot features; not a valid PyG field name."""

_CPU = torch.device("cpu")

# Fields of a PyG batch that are handled separately.
_LAYOUT = {"batch", "ptr", "y", "edge_index", "num_nodes"}


_DENSE = """\
the batch is dense (`adj`): leave out ToDense and DenseDataLoader, and wrap the model so that it \
makes the batch dense itself:

    class Sparse(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model, self.nodes = model, nn.Identity()

        def forward(self, x, edge_index, batch):
            x, mask = to_dense_batch(self.nodes(x), batch)
            return self.model(x, to_dense_adj(edge_index, batch), mask)

    gt.augmented_loss(Sparse(model), batch, augment, saliency_module="nodes")
"""


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """A batch of graphs: structure on the CPU, features and targets on a device.

    Attributes:
        ptr: Nodes of graph ``g`` are ``ptr[g]`` to ``ptr[g + 1] - 1``, int64 ``[graphs + 1]``.
        row_ptr: Row offsets (CSR), int64 ``[nodes + 1]``.
        column: Row ``v`` lists the nodes that send messages to ``v``, ascending, int64 ``[edges]``.
        symmetric: Whether every edge has a reverse of equal weight up to rounding, as in undirected
            graphs.
        nodes: Tensors ``[nodes, …]`` by name; see :attr:`x` for ``"x"`` and ``CODE``.
        edges: Tensors ``[edges, …]`` by name, in the order of ``column``.
        graphs: Other tensors ``[graphs, …]`` by name; mixed graphs have those of the destination.
        y: Targets, ``[graphs, …]``.
        device: Device of the features and targets.
        num_outputs: Number of classes, labels or values, if known.
        codes: Number of one-hot columns that ``nodes[CODE]`` encodes; 0 if it is absent.
        edge_id: Index of every edge in the source PyG batch; ``None`` if the order is the same.
        source: The PyG batch this was made from, if any; ``dataclasses.replace`` drops it.

    Example:
        >>> from torch_geometric.data import Data
        >>> ring = torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]])
        >>> batch = GraphBatch.from_pyg(Data(x=torch.eye(3), edge_index=ring, y=torch.tensor([1])))
        >>> batch.num_graphs, batch.column.tolist(), batch.symmetric
        (1, [1, 2, 0, 2, 0, 1], True)
    """

    ptr: Ints
    row_ptr: Ints
    column: Ints
    symmetric: bool
    nodes: Mapping[str, Tensor] = field(default_factory=dict)
    edges: Mapping[str, Tensor] = field(default_factory=dict)
    graphs: Mapping[str, Tensor] = field(default_factory=dict)
    y: Tensor | None = None
    device: torch.device = _CPU
    num_outputs: int | None = None
    codes: int = 0
    edge_id: Ints | None = None
    source: Data | None = field(default=None, init=False)

    @classmethod
    def from_pyg(cls, data: Data, num_graphs: int | None = None) -> GraphBatch:
        """Convert a PyG ``Batch`` or ``Data``; ``num_graphs`` includes empty graphs at the end."""
        if is_pyg(data, "HeteroData"):
            raise DataError(
                "graphs of several node types (HeteroData) are not supported: convert each with "
                "`data.to_homogeneous()`, which keeps the types as `node_type` and `edge_type`"
            )
        if not is_pyg(data, "Data"):
            raise DataError(f"`batch` must be a PyG Batch or Data; got {type(data).__name__}")
        edge_index: Any = data.edge_index
        if edge_index is None and "adj" in data:
            raise DataError(_DENSE)
        if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or len(edge_index) != 2:
            sparse = "; leave out ToSparseTensor, which replaces it by `adj_t`"
            raise DataError(
                "the batch has no edges: `batch.edge_index` must be a tensor [2, edges]"
                f"{sparse if 'adj_t' in data else ''}"
            )
        ptr = _ptr_of(data, num_graphs)
        # Contiguous, as kernels are compiled once per memory layout.
        ends = edge_index.detach().cpu().to(torch.long).contiguous().numpy()
        wrong = structure.misplaced_edge(ptr, ends[0], ends[1])
        if wrong >= 0:
            raise DataError(
                f"edge {wrong} of the batch joins nodes {ends[0, wrong]} and {ends[1, wrong]}, "
                f"which are not two nodes of one graph (the batch has {ptr[-1]} nodes)"
            )
        row_ptr, column, edge_id = structure.compress(ends[0], ends[1], int(ptr[-1]))
        order = torch.from_numpy(edge_id).to(edge_index.device)
        tensors = {
            name: data[name]
            for name in data.keys()  # noqa: SIM118 - a Data is not a dict
            if name not in _LAYOUT and isinstance(data[name], Tensor)
            # Node or graph indices would be wrong in virtual graphs.
            if not refers(data, name)
        }
        nodes, ones = np.diff(ptr), np.ones_like(ptr[1:])
        sizes = {"edges": np.diff(row_ptr[ptr]), "nodes": nodes, "graphs": ones}
        fields: dict[str | None, dict[str, Tensor]] = defaultdict(dict)
        for name, value in tensors.items():
            fields[_level(data, name, sizes)][name] = value
        edges = fields["edges"]
        for name, value in edges.items():
            if value.shape[:1] != edge_id.shape or (name == "edge_weight" and value.dim() != 1):
                shape = f"[{edge_id.size}]" if name == "edge_weight" else f"[{edge_id.size}, …]"
                raise DataError(f"`{name}` must have shape {shape}; got {list(value.shape)}")
        weight = edges.get("edge_weight")
        if weight is not None and not weight.is_floating_point():
            edges["edge_weight"] = weight.to(torch.get_default_dtype())
        batch = cls(
            ptr=ptr,
            row_ptr=row_ptr,
            column=column,
            symmetric=False,
            nodes=fields["nodes"],
            graphs=fields["graphs"],
            edges={name: value.index_select(0, order) for name, value in edges.items()},
            y=data.y if isinstance(data.y, Tensor) else None,
            device=edge_index.device,
            edge_id=edge_id,
        )
        return replace(batch, symmetric=batch._is_symmetric())._made_from(data)

    def _made_from(self, source: Data | None) -> GraphBatch:
        object.__setattr__(self, "source", source)
        return self

    def check_nodes(self) -> None:
        """Raise if a graph has no nodes."""
        empty = np.flatnonzero(np.diff(self.ptr) < 1)
        if empty.size:
            raise DataError(f"graph {empty[0]} of the batch has no nodes: leave it out")

    def _is_symmetric(self) -> bool:
        reverse = self.reverse
        weight = self.edges.get("edge_weight")
        if len(reverse) != self.num_edges or weight is None:
            return len(reverse) == self.num_edges
        weight = weight.detach()
        return torch.allclose(weight, weight[self.on_device(reverse)], rtol=1e-4, atol=0)

    @property
    def num_graphs(self) -> int:
        """Number of graphs."""
        return self.ptr.size - 1

    @property
    def num_nodes(self) -> int:
        """Total number of nodes."""
        return self.row_ptr.size - 1

    @property
    def num_edges(self) -> int:
        """Total number of edges; an undirected edge counts twice."""
        return self.column.size

    @property
    def x(self) -> Tensor | None:
        """Node features, float ``[nodes, features]``, or ``None``.

        One-hot features stored as ``nodes[CODE]`` are expanded and follow those of ``nodes["x"]``.
        """
        dense, code = self.nodes.get("x"), self.nodes.get(CODE)
        if code is None:
            return dense
        one_hot = torch.nn.functional.one_hot(code.long(), self.codes).to(torch.float32)
        return one_hot if dense is None else torch.cat((dense, one_hot), dim=1)

    def dense(self) -> GraphBatch:
        """The same batch with one-hot features expanded into ``nodes["x"]``."""
        if not self.codes:
            return self
        x = self.x
        assert x is not None
        nodes = {name: value for name, value in self.nodes.items() if name != CODE}
        return replace(self, nodes={**nodes, "x": x}, codes=0)

    @property
    def edge_attr(self) -> Tensor | None:
        """Edge attributes, ``[edges, features]``, in the order of ``column``, or ``None``."""
        return self.edges.get("edge_attr")

    @property
    def edge_weight(self) -> Tensor | None:
        """Edge weights, float ``[edges]``, in the order of ``column``; ``None`` if all are 1."""
        return self.edges.get("edge_weight")

    def on_device(self, values: np.ndarray[Any, Any]) -> Tensor:
        """Copy an array to the device; on the CPU, memory is shared."""
        return torch.from_numpy(values).to(self.device)

    @cached_property
    def batch(self) -> Tensor:
        """Graph of every node, sorted int64 ``[nodes]``."""
        return self.on_device(structure.rows_of(self.ptr))

    @cached_property
    def offsets(self) -> Tensor:
        """:attr:`ptr` on the device."""
        return self.on_device(self.ptr)

    @cached_property
    def adjacency(self) -> Adjacency:
        """Sparse adjacency matrix on the device."""
        return Adjacency(
            self.on_device(self.row_ptr),
            self.on_device(self.column),
            symmetric=self.symmetric,
            weight=self.edge_weight,
        )

    @cached_property
    def edge_index(self) -> Tensor:
        """Senders and receivers in the order of ``column``, int64 ``[2, edges]``."""
        return torch.stack((self.adjacency.column, self.adjacency.row))

    @cached_property
    def reverse(self) -> Ints:
        """Index of every edge's reverse, int64 ``[edges]``; empty if some edge has none."""
        return structure.reverse_of(self.row_ptr, self.column)

    @property
    def csr(self) -> CSR:
        """The structure as kernels take it."""
        return CSR(self.ptr, self.row_ptr, self.column)

    @cached_property
    def neighbours(self) -> Neighbours:
        """Undirected neighbour lists, with the index of the edge of each entry."""
        if self.symmetric:
            return Neighbours(self.row_ptr, self.column, np.arange(self.num_edges))
        return structure.both_ways(self.row_ptr, self.column)

    def to(self, device: torch.device | str) -> GraphBatch:
        """Move features and targets to a device; the structure stays on the CPU."""
        device = torch.device(device)
        if device == self.device:
            return self
        moved = replace(
            self,
            nodes={name: value.to(device) for name, value in self.nodes.items()},
            edges={name: value.to(device) for name, value in self.edges.items()},
            graphs={name: value.to(device) for name, value in self.graphs.items()},
            y=None if self.y is None else self.y.to(device),
            device=device,
        )
        return moved._made_from(None if self.source is None else self.source.to(device))

    def derive(self, csr: CSR, /, **changes: Any) -> GraphBatch:
        """Create a batch of virtual graphs; attributes that are not given are kept."""
        return replace(self, **csr._asdict(), edge_id=None, **changes)

    def nodes_like(self, origin: Ints) -> dict[str, Tensor]:
        """Copy the fields of nodes ``origin``."""
        if not self.nodes:
            return {}
        index = self.on_device(origin)
        return {name: value.index_select(0, index) for name, value in self.nodes.items()}

    def edges_like(self, origin: Ints) -> dict[str, Tensor]:
        """Copy the fields of edges ``origin``; new edges (-1) get weight 1 and zero attributes."""
        if not self.edges:
            return {}
        index = self.on_device(origin)
        new = index < 0
        fields: dict[str, Tensor] = {}
        for name, value in self.edges.items():
            if not len(value):
                taken = value.new_zeros((len(index), *value.shape[1:]))
            else:
                taken = value.index_select(0, index.clamp(min=0))
            blank = 1.0 if name == "edge_weight" else 0.0
            fields[name] = taken.masked_fill(new.view(-1, *([1] * (value.dim() - 1))), blank)
        return fields

    def to_pyg(self) -> Batch:
        """The graphs as a PyG ``Batch`` that supports ``to_data_list()``."""
        from torch_geometric.data import Batch, Data

        counts = torch.from_numpy(np.diff(self.ptr))
        node_ptr = torch.from_numpy(self.ptr)
        edge_ptr = torch.from_numpy(self.row_ptr[self.ptr])
        nothing = torch.zeros(self.num_graphs, dtype=torch.long)
        batch = Batch(_base_cls=Data)
        batch.edge_index = self.edge_index
        slices, shifts = {"edge_index": edge_ptr}, {"edge_index": node_ptr[:-1]}
        nodes = {name: value for name, value in self.nodes.items() if name not in ("x", CODE)}
        x = self.x
        if x is not None:
            nodes = {"x": x, **nodes}
        graphs = self.graphs
        if self.y is not None:
            # PyG concatenates 1-D targets.
            joined = self.y.dim() == 1 and len(self.y) != self.num_graphs
            several = joined and len(self.y) % self.num_graphs == 0
            graphs = {**graphs, "y": self.y.view(self.num_graphs, -1) if several else self.y}
        every_graph = torch.arange(self.num_graphs + 1)
        for fields, ptr in ((nodes, node_ptr), (self.edges, edge_ptr), (graphs, every_graph)):
            for name, value in fields.items():
                batch[name] = value
                slices[name], shifts[name] = ptr, nothing
        if x is None:
            batch._num_nodes = counts.tolist()
            batch.num_nodes = self.num_nodes
        batch.batch, batch.ptr = self.batch, self.offsets
        batch._num_graphs = self.num_graphs
        batch._slice_dict, batch._inc_dict = slices, shifts
        return batch

    def pyg(self) -> Data:
        """A copy of the source PyG batch, else a new one; models may modify it."""
        return self.to_pyg() if self.source is None else copy.copy(self.source)


def refers(data: Data, name: str) -> bool:
    """Whether PyG increments a field when it collates graphs, as it does with indices."""
    value = data[name]
    return value.numel() > 0 and bool(torch.as_tensor(data.__inc__(name, value, data._store)).any())


def _level(data: Data, name: str, sizes: Mapping[str, Ints]) -> str | None:
    """Whether a field has a row per edge, node or graph; ``None`` for other fields."""
    if name in ("edge_weight", "edge_attr"):
        return "edges"
    value, slices = data[name], getattr(data, "_slice_dict", None) or {}
    bounds = np.ravel(slices.get(name, -1))
    if value.shape[:1] == tuple(bounds[-1:]):  # as collated
        rows = np.diff(bounds)
        levels = [level for level, size in sizes.items() if np.array_equal(rows, size)]
        if len(levels) < 2:
            return levels[0] if levels else None
    if data.is_edge_attr(name):
        return "edges"
    if data.is_node_attr(name):
        return "nodes"
    stacked = data.__cat_dim__(name, value) in (0, None)
    return "graphs" if stacked and value.shape[:1] == sizes["graphs"].shape else None


def _ptr_of(data: Data, num_graphs: int | None) -> Ints:
    segment: Tensor | None = data.batch
    if segment is None:
        return np.array([0, data.num_nodes or 0])
    ids = segment.detach().cpu().numpy()
    if ids.dtype.kind not in "iu" or (ids[:1] < 0).any() or (np.diff(ids) < 0).any():
        raise DataError("`batch.batch` must be sorted, non-negative graph indices")
    graphs = num_graphs or (data.num_graphs if is_pyg(data, "Batch") else 0)
    if data.num_nodes != ids.size:
        raise DataError(
            f"`batch.batch` must name the graph of each of the {data.num_nodes} nodes; it has "
            f"{ids.size} entries"
        )
    return structure.offsets(np.bincount(ids, minlength=graphs))


def as_batch(data: GraphBatch | Data) -> GraphBatch:
    """Convert a PyG batch to a :class:`GraphBatch`, if necessary."""
    return data if isinstance(data, GraphBatch) else GraphBatch.from_pyg(data)
