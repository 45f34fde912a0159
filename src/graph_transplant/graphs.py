"""A whole data set as flat tensors, and batches gathered from it.

:class:`GraphStore` keeps the nodes and edges of all graphs end to end, so that a batch is a few
gathers instead of a Python loop over ``Data`` objects. A batch is an ordinary PyG ``Batch``; its
sparse adjacency is built once and kept with it for every layer and pass.

A store read from its file stays there: the file is mapped into memory and only what a batch takes
is read, so that a data set may be larger than memory. :class:`StoreWriter` writes such a file piece
by piece.
"""

from __future__ import annotations

import hashlib
import json
import operator
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, NamedTuple, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch_geometric.data import Batch, Data

from graph_transplant.errors import DataError, check_choice
from graph_transplant.segments import offsets, ranges, segment_ids
from graph_transplant.sparse import Adjacency

TASKS = ("multiclass", "multilabel", "regression")

_FORMAT = "graph-transplant store 1"

# Parts of the official split, as `GraphStore.official` numbers them.
PARTS: Final = ("train", "validation", "test")

# Features of these types are kept as they are and become float32 in batches.
_SMALL_TYPES: Final = (torch.uint8, torch.int8, torch.bool)

# What looks at all nodes or edges does so in pieces of about this many values.
_PIECE: Final = 1 << 21

# Up to so many values, means are taken in one go.
_AT_ONCE: Final = 1 << 26

# What the safetensors format calls the types.
_TYPE_NAMES: Final = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.int64: "I64",
    torch.float64: "F64",
}


@dataclass(frozen=True)
class Layout:
    """Which nodes of a batch belong to which graph.

    Attributes:
        segment: Graph of every node, sorted int64 ``[nodes]``.
        ptr: Offsets of the graphs, int64 ``[graphs + 1]``.
    """

    segment: Tensor
    ptr: Tensor

    @property
    def num_graphs(self) -> int:
        """Number of graphs."""
        return self.ptr.numel() - 1

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all graphs."""
        return self.segment.numel()

    @property
    def counts(self) -> Tensor:
        """Nodes of every graph, int64 ``[graphs]``."""
        return self.ptr.diff()


def layout_of(batch: Data) -> Layout:
    """Read the layout of a PyG batch; a single ``Data`` is a batch of one.

    Args:
        batch: A PyG ``Batch`` or ``Data``.

    Example:
        >>> layout_of(Data(x=torch.zeros(3, 1), edge_index=torch.empty(2, 0, dtype=torch.long))).ptr
        tensor([0, 3])
    """
    if batch.edge_index is None:
        raise DataError("the batch has no edges: `batch.edge_index` must be a tensor [2, edges]")
    segment: Tensor | None = batch.batch
    if segment is None:
        count = torch.tensor([batch.num_nodes], device=batch.edge_index.device)
        return Layout(segment_ids(count), offsets(count))
    ptr: Tensor | None = batch.ptr if "ptr" in batch else None
    if ptr is None:
        if bool((segment.diff() < 0).any()):
            raise DataError("`batch.batch` must be sorted: the nodes of a graph lie together")
        graphs = batch.num_graphs if isinstance(batch, Batch) else 0
        ptr = offsets(torch.bincount(segment, minlength=graphs))
    return Layout(segment, ptr)


@dataclass(frozen=True)
class _KeptAdjacency:
    """An adjacency and the very tensors, with their versions, that it was built from."""

    adjacency: Adjacency
    edge_index: Tensor
    weight: Tensor | None
    versions: tuple[int, int]

    def fits(self, edge_index: Tensor, weight: Tensor | None) -> bool:
        """Whether these are the same tensors, unchanged."""
        same = edge_index is self.edge_index and weight is self.weight
        return same and self.versions == _versions(edge_index, weight)


def _versions(edge_index: Tensor, weight: Tensor | None) -> tuple[int, int]:
    """Count the changes in place of both tensors; those of inference mode are not counted."""
    first, second = (
        -1 if tensor is None or tensor.is_inference() else tensor._version
        for tensor in (edge_index, weight)
    )
    return first, second


def adjacency_of(batch: Data) -> Adjacency:
    """Return the sparse adjacency of a batch, built once and kept with the batch.

    It is rebuilt when the batch's ``edge_index`` or ``edge_weight`` has been replaced or changed in
    place. Weights that require gradients are put on the kept structure anew for every pass.

    Args:
        batch: A PyG ``Batch`` or ``Data``.

    Example:
        >>> batch = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> adjacency_of(batch) is adjacency_of(batch)
        True
    """
    weight: Tensor | None = batch.edge_weight if "edge_weight" in batch else None
    kept: _KeptAdjacency | None = getattr(batch, "_adjacency", None)
    if kept is not None and kept.fits(batch.edge_index, weight):
        adjacency = kept.adjacency
    else:
        nodes = int(batch.num_nodes or 0)
        detached = None if weight is None else weight.detach()
        adjacency = Adjacency.from_edges(batch.edge_index, nodes, detached)
        keep_adjacency(batch, adjacency)
    if weight is not None and weight.requires_grad:
        return adjacency.reweighted(weight)
    return adjacency


def keep_adjacency(batch: Data, adjacency: Adjacency) -> None:
    """Keep a ready-made adjacency with its batch.

    Args:
        batch: The batch whose edges it describes.
        adjacency: Built from the batch's present ``edge_index`` and ``edge_weight``.
    """
    edge_index = batch.edge_index
    weight = batch.edge_weight if "edge_weight" in batch else None
    versions = _versions(edge_index, weight)
    batch._adjacency = _KeptAdjacency(adjacency, edge_index, weight, versions)


def make_batch(
    *,
    edge_index: Tensor,
    node_counts: Tensor,
    edge_counts: Tensor,
    node_fields: Mapping[str, Tensor | None],
    edge_fields: Mapping[str, Tensor | None],
    graph_fields: Mapping[str, Tensor | None],
    symmetric: bool | None = None,
) -> Batch:
    """Assemble a PyG ``Batch`` that splits again into its graphs with ``to_data_list()``.

    Args:
        edge_index: int64 ``[2, edges]``, numbered through the batch, graph after graph.
        node_counts: int64 ``[graphs]``.
        edge_counts: int64 ``[graphs]``.
        node_fields: Tensors ``[nodes, …]`` by name; ``None`` is left out. Likewise the next two.
        edge_fields: Tensors ``[edges, …]`` by name.
        graph_fields: Tensors ``[graphs, …]`` by name.
        symmetric: ``True`` promises edges sorted by their first row and symmetric with equal
            weights; the adjacency is then built at once, without sorting.
    """
    graphs = node_counts.numel()
    node_ptr, edge_ptr = offsets(node_counts), offsets(edge_counts)
    segment = segment_ids(node_counts)
    nothing = torch.zeros(graphs, dtype=torch.long)
    slices: dict[str, Tensor] = {"edge_index": edge_ptr}
    shifts: dict[str, Tensor | None] = {"edge_index": node_ptr[:-1]}
    batch = Batch(_base_cls=Data)
    groups = (
        (node_fields, node_ptr),
        (edge_fields, edge_ptr),
        (graph_fields, torch.arange(graphs + 1)),
    )
    batch.edge_index = edge_index
    for fields, ptr in groups:
        for name, value in fields.items():
            if value is not None:
                batch[name] = value
                slices[name], shifts[name] = ptr, nothing
    if node_fields.get("x") is None:
        batch._num_nodes = node_counts.tolist()
        batch.num_nodes = segment.numel()
    batch.batch, batch.ptr = segment, node_ptr
    batch._num_graphs = graphs
    batch._slice_dict, batch._inc_dict = slices, shifts
    if symmetric:
        weight = edge_fields.get("edge_weight")
        detached = None if weight is None else weight.detach()
        adjacency = Adjacency.from_edges(edge_index, segment.numel(), detached, symmetric=True)
        keep_adjacency(batch, adjacency)
    return batch


@dataclass(frozen=True)
class Rows:
    """The input rows that graphs were read from.

    Attributes:
        number: Row of every graph in its file, counted from 1, int64 ``[graphs]``.
        ids: What the file calls every graph.
        texts: What every graph was read from where that is one text, such as its SMILES; else
            empty.

    Example:
        >>> rows = Rows(torch.tensor([1, 3]), ("ethane", "water"), ("CC", "O"))
        >>> rows.take(torch.tensor([1])).ids
        ('water',)
    """

    number: Tensor
    ids: tuple[str, ...]
    texts: tuple[str, ...]

    def take(self, index: Tensor) -> Rows:
        """Return the rows of some of the graphs.

        Args:
            index: Graph numbers, int64 ``[graphs]``.
        """
        places = index.tolist()
        return Rows(
            self.number.index_select(0, index),
            tuple(self.ids[place] for place in places),
            tuple(self.texts[place] for place in places),
        )


class Skipped(NamedTuple):
    """A row of the input that is not a graph.

    Attributes:
        row: Its number, counted from 1.
        id: What the file calls it; empty where that cannot be read.
        reason: What is wrong with it.

    Example:
        >>> Skipped(7, "BACE_7", "the SMILES cannot be parsed").row
        7
    """

    row: int
    id: str
    reason: str


def moments(pieces: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of the columns of a table that comes in pieces.

    Args:
        pieces: At least one piece with rows, ``[rows, columns]``.

    Returns:
        Both float32 ``[columns]``; the deviation is that of the population.

    Example:
        >>> moments([torch.tensor([[1.0]]), torch.tensor([[3.0], [5.0], [7.0]])])
        (tensor([4.]), tensor([2.2361]))
    """
    count = 0
    mean = squares = torch.zeros((), dtype=torch.double)
    for rows in pieces:
        if not len(rows):
            continue
        # Chan, Golub, LeVeque: the squares of two pieces around their common mean.
        piece = rows.to(torch.double)
        shift = piece.mean(0) - mean
        total = count + len(piece)
        squares = squares + (piece - piece.mean(0)).square_().sum(0)
        squares = squares + shift.square() * (count * len(piece) / total)
        mean = mean + shift * (len(piece) / total)
        count = total
    return mean.to(torch.float32), (squares / count).sqrt().to(torch.float32)


@dataclass(frozen=True)
class _Field:
    """A tensor of a store as its file holds it, read in pieces.

    Attributes:
        dtype: Type of its values.
        shape: Its shape.
        parts: Each yields its part of the values in order; one part follows the other.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    parts: tuple[Callable[[], Iterator[Tensor]], ...]


class GraphStore:
    """A data set of graphs as flat tensors.

    Args:
        x: Node features, float ``[nodes, features]``, or ``None``: then models use degrees. Small
            integers (uint8, int8, bool) are kept as they are and become float in batches.
        edge_index: Edges, integer ``[2, edges]``; node numbers count from 0 *within each graph*.
        y: Class numbers, int64 ``[graphs]``; for the tasks ``"multilabel"`` (with NaN where an
            entry is missing) and ``"regression"`` float ``[graphs, outputs]``.
        node_counts: Nodes of each graph, integer ``[graphs]``; nodes lie graph after graph.
        edge_counts: Edges of each graph, integer ``[graphs]``; an undirected edge counts twice.
        edge_attr: Edge features, float ``[edges, features]``, or small integers as for ``x``.
        name: Name of the data set.
        task: ``"multiclass"``, ``"multilabel"`` or ``"regression"``.
        num_outputs: Number of classes, labels or values; found from ``y`` by default.
        label_names: What the outputs are called.
        num_continuous: The first so many columns of ``x`` are continuous; models standardise them.
        node_fields: Further tensors with one entry per node, by name.
        undirected: Whether every edge has its reverse with equal features. ``None`` finds it out,
            sorts the edges and checks all numbers; anything else promises that this was done, as
            for a store read from its file.
        official: The split that the data set is published with, integer ``[graphs]``: 0 for
            training, 1 for validation, 2 for test.
        rows: The rows of the file that the graphs were read from.
        reading: How they were read, as JSON values: what a reader needs to know to read further
            graphs in the same way. Kept with a trained model.
        skipped: The rows of the file that are not among the graphs.

    Attributes:
        path: The file that the store was read from with :meth:`load` and still reads from, or
            ``None``.
        official: As given, int8 ``[graphs]``, or ``None``.
        rows: As given, or ``None``; not kept in files of :meth:`save`, nor is ``skipped``.
        reading: As given, or ``None``.
        skipped: As given; empty by default.

    Raises:
        DataError: When something does not fit, naming the graph.

    Example:
        >>> store = GraphStore(
        ...     x=torch.ones(5, 1),
        ...     edge_index=torch.tensor([[0, 1, 0, 1, 1, 2], [1, 0, 1, 0, 2, 1]]),
        ...     y=torch.tensor([0, 1]),
        ...     node_counts=torch.tensor([2, 3]),
        ...     edge_counts=torch.tensor([2, 4]),
        ... )
        >>> store
        GraphStore('graphs': 2 graphs, 2 classes, |V| 2.5, |E| 1.5, 1 node feature, \
no edge features)
        >>> store.batch([1, 0]).edge_index
        tensor([[0, 1, 1, 2, 3, 4],
                [1, 0, 2, 1, 4, 3]])
    """

    def __init__(
        self,
        *,
        x: Tensor | None,
        edge_index: Tensor,
        y: Tensor,
        node_counts: Tensor,
        edge_counts: Tensor,
        edge_attr: Tensor | None = None,
        name: str = "graphs",
        task: str = "multiclass",
        num_outputs: int | None = None,
        label_names: Sequence[str] | None = None,
        num_continuous: int = 0,
        node_fields: Mapping[str, Tensor] | None = None,
        undirected: bool | None = None,
        official: Tensor | None = None,
        rows: Rows | None = None,
        reading: Mapping[str, Any] | None = None,
        skipped: Sequence[Skipped] = (),
    ) -> None:
        self.name = name
        self.path: Path | None = None
        self.rows = rows
        self.reading = reading
        self.skipped = tuple(skipped)
        self.task = check_choice("task", task, TASKS)
        self.num_continuous = num_continuous
        self.y = y
        self.node_counts = node_counts.to(torch.long)
        self.edge_counts = edge_counts.to(torch.long)
        self._check_shapes(x, edge_index, edge_attr, node_fields or {})
        self.num_outputs = self._check_labels(num_outputs)
        self.label_names = None if label_names is None else tuple(str(n) for n in label_names)
        if self.label_names is not None and len(self.label_names) != self.num_outputs:
            raise DataError(
                f"`label_names` must have {self.num_outputs} names, one per output; "
                f"got {len(self.label_names)}"
            )
        self._node_starts = offsets(self.node_counts)[:-1]
        self._edge_starts = offsets(self.edge_counts)[:-1]
        self._whole = True
        self._loops: int | None = None
        # What comes from a file is not copied here: its types and its order are right already.
        self._x = None if x is None else _kept(x)
        self._edge_attr = None if edge_attr is None else _kept(edge_attr)
        self._node_fields = dict(node_fields or {})
        self.official = None if official is None else self._check_official(official)
        if undirected is None:
            self._check_values(edge_index)
            self._check_all_parts()
            self._edge_index = self._sorted(edge_index)
            self.undirected = self._find_undirected()
        else:
            self._edge_index = edge_index.to(torch.int32)
            self.undirected = undirected

    # ---------------------------------------------------------------- checks

    def _check_shapes(
        self,
        x: Tensor | None,
        edge_index: Tensor,
        edge_attr: Tensor | None,
        node_fields: Mapping[str, Tensor],
    ) -> None:
        graphs = self.node_counts.numel()
        if graphs == 0:
            raise DataError(f"{self.name}: there are no graphs")
        if self.edge_counts.numel() != graphs or len(self.y) != graphs:
            raise DataError(
                f"{self.name}: `node_counts`, `edge_counts` and `y` must have one entry per graph; "
                f"got {graphs}, {self.edge_counts.numel()} and {len(self.y)}"
            )
        empty = (self.node_counts < 1).nonzero().flatten()
        if empty.numel():
            raise DataError(f"{self.name}: graph {int(empty[0])} has no nodes")
        if bool((self.edge_counts < 0).any()):
            raise DataError(f"{self.name}: `edge_counts` must not be negative")
        nodes, edges = int(self.node_counts.sum()), int(self.edge_counts.sum())
        if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.shape[1] != edges:
            raise DataError(
                f"{self.name}: `edge_index` must have shape [2, {edges}] to fit `edge_counts`; "
                f"got {list(edge_index.shape)}"
            )
        per_node: dict[str, Tensor | None] = {"x": x, **node_fields}
        for field, value in per_node.items():
            if value is not None and len(value) != nodes:
                raise DataError(
                    f"{self.name}: `{field}` must have {nodes} rows, one per node; got {len(value)}"
                )
        if x is not None and (x.dim() != 2 or x.shape[1] == 0):
            raise DataError(
                f"{self.name}: `x` must have shape [nodes, features] with at least one feature; "
                f"got {list(x.shape)} (use None for graphs without node features)"
            )
        if not 0 <= self.num_continuous <= (0 if x is None else x.shape[1]):
            raise DataError(
                f"{self.name}: `num_continuous` must lie between 0 and the number of node "
                f"features; got {self.num_continuous}"
            )
        if edge_attr is not None and (edge_attr.dim() != 2 or len(edge_attr) != edges):
            raise DataError(
                f"{self.name}: `edge_attr` must have shape [{edges}, features], one row per edge; "
                f"got {list(edge_attr.shape)}"
            )

    def _check_labels(self, num_outputs: int | None) -> int:
        if self.task != "multiclass":
            self.y = self.y.to(torch.float32)
            if self.y.dim() == 1:
                self.y = self.y.unsqueeze(1)
            infinite = self.y.isinf().any(1).nonzero().flatten()
            if infinite.numel():
                raise DataError(f"{self.name}: the target of graph {int(infinite[0])} is infinite")
            if num_outputs not in (None, self.y.shape[1]):
                raise DataError(
                    f"{self.name}: `num_outputs` is {num_outputs} but `y` has "
                    f"{self.y.shape[1]} columns"
                )
            return self.y.shape[1]
        if self.y.is_floating_point() or self.y.dim() != 1:
            raise DataError(
                f"{self.name}: class labels `y` must be integers of shape [graphs]; got "
                f"{self.y.dtype} of shape {list(self.y.shape)}"
            )
        self.y = self.y.to(torch.long)
        classes = int(self.y.max()) + 1 if num_outputs is None else num_outputs
        wrong = ((self.y < 0) | (self.y >= classes)).nonzero().flatten()
        if wrong.numel():
            graph = int(wrong[0])
            raise DataError(
                f"{self.name}: the label of graph {graph} is {int(self.y[graph])}; labels must lie "
                f"between 0 and {classes - 1}"
            )
        return classes

    def _check_official(self, official: Tensor) -> Tensor:
        if official.shape != (len(self),):
            raise DataError(
                f"{self.name}: `official` must have shape [{len(self)}], one entry per graph; "
                f"got {list(official.shape)}"
            )
        known = (official == 0) | (official == 1) | (official == 2)
        if not bool(known.all()):
            graph = int((~known).nonzero()[0])
            raise DataError(
                f"{self.name}: `official` must be 0 (train), 1 (validation) or 2 (test); "
                f"got {official[graph].item()} for graph {graph}"
            )
        return official.to(torch.int8)

    def _check_all_parts(self) -> None:
        # Not asked of what a file holds: some of the graphs may have been saved on their own.
        if self.official is None:
            return
        counts = torch.bincount(self.official.to(torch.long), minlength=len(PARTS)).tolist()
        for number, part in enumerate(PARTS):
            if not counts[number]:
                raise DataError(
                    f"{self.name}: `official` must name graphs for train, validation and test; "
                    f"got none for {part}"
                )

    def _check_values(self, edge_index: Tensor) -> None:
        if edge_index.numel():
            limit = torch.repeat_interleave(self.node_counts, self.edge_counts)
            wrong = ((edge_index < 0) | (edge_index >= limit)).any(0)
            if bool(wrong.any()):
                edge = int(wrong.nonzero()[0])
                graph = _segment_of(edge, self.edge_counts)
                raise DataError(
                    f"{self.name}: an edge of graph {graph} joins nodes "
                    f"{int(edge_index[0, edge])} and {int(edge_index[1, edge])}, but the graph has "
                    f"nodes 0 to {int(self.node_counts[graph]) - 1}"
                )
        if self._x is not None and not _finite(self._x):
            node = int((~torch.isfinite(self._x)).any(1).nonzero()[0])
            graph = _segment_of(node, self.node_counts)
            raise DataError(
                f"{self.name}: node {node - int(self._node_starts[graph])} of graph {graph} has a "
                "feature that is not a finite number"
            )
        if self._edge_attr is not None and not _finite(self._edge_attr):
            edge = int((~torch.isfinite(self._edge_attr)).any(1).nonzero()[0])
            graph = _segment_of(edge, self.edge_counts)
            raise DataError(
                f"{self.name}: an edge of graph {graph} has a feature that is not a finite number"
            )

    def _sorted(self, edge_index: Tensor) -> Tensor:
        """Sort the edges by graph, first node, second node; edge features move along."""
        base = torch.repeat_interleave(self._node_starts, self.edge_counts)
        row = base + edge_index[0]
        longest = int(self.node_counts.max())
        code = row.mul_(longest).add_(edge_index[1])
        if bool((code.diff() >= 0).all()):
            return edge_index.to(torch.int32)
        order = torch.argsort(code, stable=True)
        if self._edge_attr is not None:
            self._edge_attr = self._edge_attr.index_select(0, order)
        return edge_index.to(torch.int32).index_select(1, order)

    def _find_undirected(self) -> bool:
        """Whether every edge has its reverse with the same features."""
        base = torch.repeat_interleave(self._node_starts, self.edge_counts)
        row, column = base + self._edge_index[0], base + self._edge_index[1]
        order = torch.argsort(column, stable=True)
        if not torch.equal(column.index_select(0, order), row):
            return False
        if not torch.equal(row.index_select(0, order), column):
            return False
        attr = self._edge_attr
        return attr is None or torch.equal(attr.index_select(0, order), attr)

    # ---------------------------------------------------------------- contents

    def __len__(self) -> int:
        return self.node_counts.numel()

    def __getitem__(self, index: int) -> Data:
        """Return one graph as PyG ``Data``; for many at a time :meth:`batch` is the fast way."""
        place = operator.index(index)
        if not -len(self) <= place < len(self):
            raise IndexError(f"{self.name} has {len(self)} graphs; there is no graph {place}")
        graph: Data = self.batch([place % len(self)]).get_example(0)
        return graph

    def __iter__(self) -> Iterator[Data]:
        return (self[place] for place in range(len(self)))

    @property
    def x(self) -> Tensor | None:
        """Node features, float32 ``[nodes, features]``, or ``None``.

        All of them at once: a copy in memory unless the store is whole and keeps them as float32.
        """
        return None if self._x is None else self._of_nodes(self._x).to(torch.float32)

    @property
    def edge_index(self) -> Tensor:
        """Edges, int32 ``[2, edges]``, numbered within each graph and sorted."""
        return self._edge_index if self._whole else self._edge_index[:, self._edge_rows()]

    @property
    def edge_attr(self) -> Tensor | None:
        """Edge features, float32 ``[edges, features]``, or ``None``; see :attr:`x`."""
        if self._edge_attr is None:
            return None
        if self._whole:
            return self._edge_attr.to(torch.float32)
        return self._edge_attr.index_select(0, self._edge_rows()).to(torch.float32)

    @property
    def node_fields(self) -> dict[str, Tensor]:
        """Further tensors with one entry per node."""
        return {name: self._of_nodes(value) for name, value in self._node_fields.items()}

    @property
    def node_ptr(self) -> Tensor:
        """Offsets of the graphs in the nodes, int64 ``[graphs + 1]``."""
        return offsets(self.node_counts)

    @property
    def edge_ptr(self) -> Tensor:
        """Offsets of the graphs in the edges, int64 ``[graphs + 1]``."""
        return offsets(self.edge_counts)

    def _of_nodes(self, value: Tensor) -> Tensor:
        if self._whole:
            return value
        return value.index_select(0, ranges(self._node_starts, self.node_counts)[0])

    def _edge_rows(self) -> Tensor:
        return ranges(self._edge_starts, self.edge_counts)[0]

    @property
    def labels(self) -> Tensor:
        """Class of every graph, int64 ``[graphs]``."""
        if self.task != "multiclass":
            raise DataError(f"{self.name} is a {self.task} data set: it has targets, not classes")
        return self.y

    @property
    def num_node_features(self) -> int:
        """Columns of ``x``; 0 for graphs without node features."""
        return 0 if self._x is None else self._x.shape[1]

    @property
    def num_edge_features(self) -> int:
        """Columns of ``edge_attr``; 0 for graphs without edge features."""
        return 0 if self._edge_attr is None else self._edge_attr.shape[1]

    def max_degree(self) -> int:
        """Return the largest number of edges at one node."""
        largest = 0
        # A piece has whole graphs, so that all edges of a node are in one.
        for graphs, receiver in zip(
            self._groups("edge"), self._edge_pieces(self._edge_index[1]), strict=True
        ):
            first = offsets(self.node_counts[graphs])[:-1]
            base = torch.repeat_interleave(first, self.edge_counts[graphs])
            largest = max(largest, int(torch.bincount(base + receiver, minlength=1).max()))
        return largest

    def continuous_moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of the continuous node features over all nodes.

        Returns:
            Both float32 ``[continuous]``; the deviation is that of the population.

        Example:
            >>> store = GraphStore(
            ...     x=torch.tensor([[1.0, 7.0], [3.0, 7.0]]),
            ...     edge_index=torch.tensor([[0, 1], [1, 0]]),
            ...     y=torch.tensor([0]),
            ...     node_counts=torch.tensor([2]),
            ...     edge_counts=torch.tensor([2]),
            ...     num_continuous=1,
            ... )
            >>> store.continuous_moments()
            (tensor([2.]), tensor([1.]))
        """
        columns = self.num_continuous
        if self._x is None or not columns:
            return torch.zeros(0), torch.zeros(0)
        nodes = int(self.node_counts.sum())
        if nodes * self._x.shape[1] <= _AT_ONCE:
            x = self._of_nodes(self._x)[:, :columns].to(torch.float32)
            return x.mean(0), x.std(0, correction=0)
        return moments(rows[:, :columns] for rows in self._node_pieces(self._x))

    def _count_loops(self) -> int:
        if self._loops is None:
            pairs = zip(
                self._edge_pieces(self._edge_index[0]),
                self._edge_pieces(self._edge_index[1]),
                strict=True,
            )
            self._loops = sum(int((sender == receiver).sum()) for sender, receiver in pairs)
        return self._loops

    def statistics(self) -> dict[str, float | int]:
        """Return the figures of the paper's data table, and the widths of the features."""
        edges = int(self.edge_counts.sum())
        if self.undirected:
            edges = (edges + self._count_loops()) // 2
        return {
            "graphs": len(self),
            "mean_nodes": float(self.node_counts.sum()) / len(self),
            "mean_edges": edges / len(self),
            "outputs": self.num_outputs,
            "node_features": self.num_node_features,
            "continuous_node_features": self.num_continuous,
            "edge_features": self.num_edge_features,
        }

    def __repr__(self) -> str:
        figures = self.statistics()
        nouns = {"multiclass": "classes", "multilabel": "labels", "regression": "targets"}

        def columns(count: float | int, noun: str) -> str:
            if not count:
                return f"no {noun}s"
            return f"{count} {noun}{'' if count == 1 else 's'}"

        continuous = f" ({self.num_continuous} continuous)" if self.num_continuous else ""
        edges = "|E|" if self.undirected else "directed |E|"
        return (
            f"GraphStore({self.name!r}: {len(self)} graphs, {self.num_outputs} {nouns[self.task]}, "
            f"|V| {figures['mean_nodes']:.1f}, {edges} {figures['mean_edges']:.1f}, "
            f"{columns(self.num_node_features, 'node feature')}{continuous}, "
            f"{columns(self.num_edge_features, 'edge feature')})"
        )

    # ---------------------------------------------------------------- pieces

    def _groups(self, per: str, width: int = 1) -> Iterator[slice]:
        """Yield stretches of graphs whose nodes or edges, of ``width`` values each, are a piece."""
        ptr = self.node_ptr if per == "node" else self.edge_ptr
        # The numbers of the rows to be gathered take room as well.
        rows = max(1, _PIECE // max(width, 4))
        start = 0
        while start < len(self):
            fitting = int(torch.searchsorted(ptr, ptr[start] + rows, right=True)) - 1
            stop = max(start + 1, fitting)
            yield slice(start, stop)
            start = stop

    def _in_pieces(self, value: Tensor, per: str) -> Iterator[Tensor]:
        """Yield the rows of this store's graphs, in the order of the graphs."""
        starts, counts = (
            (self._node_starts, self.node_counts)
            if per == "node"
            else (self._edge_starts, self.edge_counts)
        )
        for graphs in self._groups(per, prod(value.shape[1:])):
            if self._whole:
                first, length = int(starts[graphs.start]), int(counts[graphs].sum())
                yield value[first : first + length]
            else:
                yield value.index_select(0, ranges(starts[graphs], counts[graphs])[0])

    def _node_pieces(self, value: Tensor) -> Iterator[Tensor]:
        return self._in_pieces(value, "node")

    def _edge_pieces(self, value: Tensor) -> Iterator[Tensor]:
        return self._in_pieces(value, "edge")

    def _fields(self) -> dict[str, _Field]:
        """Return every tensor of the store by the name it has in a file."""
        nodes, edges = int(self.node_counts.sum()), int(self.edge_counts.sum())

        def per_graph(value: Tensor) -> _Field:
            return _Field(value.dtype, tuple(value.shape), (lambda: iter((value,)),))

        def per_node(value: Tensor) -> _Field:
            shape = (nodes, *value.shape[1:])
            return _Field(value.dtype, shape, (partial(self._node_pieces, value),))

        rows = tuple(partial(self._edge_pieces, row) for row in self._edge_index)
        fields = {
            "edge_index": _Field(self._edge_index.dtype, (2, edges), rows),
            "y": per_graph(self.y),
            "node_counts": per_graph(self.node_counts),
            "edge_counts": per_graph(self.edge_counts),
        }
        if self.official is not None:
            fields["official"] = per_graph(self.official)
        if self._x is not None:
            fields["x"] = per_node(self._x)
        if self._edge_attr is not None:
            attr = self._edge_attr
            shape = (edges, *attr.shape[1:])
            fields["edge_attr"] = _Field(attr.dtype, shape, (partial(self._edge_pieces, attr),))
        fields.update({f"node_field.{k}": per_node(v) for k, v in self._node_fields.items()})
        return fields

    # ---------------------------------------------------------------- parts

    def _index(self, indices: Any) -> Tensor:
        index = torch.as_tensor(indices)
        if index.dtype == torch.bool:
            if index.shape != (len(self),):
                raise DataError(
                    f"a mask over {self.name} must have shape [{len(self)}]; "
                    f"got {list(index.shape)}"
                )
            index = index.nonzero()
        index = index.to(torch.long).flatten()
        if index.numel() == 0:
            raise DataError(f"`indices` into {self.name} must not be empty")
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= len(self):
            wrong = low if low < 0 else high
            raise DataError(
                f"`indices` into {self.name} must lie between 0 and {len(self) - 1}; got {wrong}"
            )
        return index

    def subset(self, indices: Any) -> GraphStore:
        """Return some of the graphs as a store that shares this one's memory.

        Args:
            indices: Graph numbers, ``[graphs]`` (tensor, array or list), or a boolean mask.
        """
        index = self._index(indices)
        part = object.__new__(GraphStore)
        part.__dict__.update(self.__dict__)
        part.y = self.y.index_select(0, index)
        part.node_counts = self.node_counts.index_select(0, index)
        part.edge_counts = self.edge_counts.index_select(0, index)
        part._node_starts = self._node_starts.index_select(0, index)
        part._edge_starts = self._edge_starts.index_select(0, index)
        part._whole = False
        part._loops = None
        part.path = None
        part.official = None if self.official is None else self.official.index_select(0, index)
        part.rows = None if self.rows is None else self.rows.take(index)
        return part

    def with_targets(
        self,
        y: Tensor,
        *,
        task: str | None = None,
        num_outputs: int | None = None,
        label_names: Sequence[str] | None = None,
    ) -> GraphStore:
        """Return the same graphs with other targets; everything else is shared.

        Args:
            y: As for :class:`GraphStore`.
            task: (default: that of this store)
            num_outputs: (default: found from ``y``)
            label_names: What the outputs are called. (default: as here, if their number fits)

        Example:
            >>> import graph_transplant as gt
            >>> store = gt.load("motifs", graphs=12)
            >>> store.with_targets(torch.rand(12), task="regression").y.shape
            torch.Size([12, 1])
        """
        other = object.__new__(GraphStore)
        other.__dict__.update(self.__dict__)
        other.task = self.task if task is None else check_choice("task", task, TASKS)
        if len(y) != len(self):
            raise DataError(f"`y` must have {len(self)} entries, one per graph; got {len(y)}")
        other.y = y
        other.path = None
        other.num_outputs = other._check_labels(num_outputs)
        names = self.label_names if label_names is None else tuple(str(n) for n in label_names)
        if names is not None and len(names) != other.num_outputs:
            if label_names is not None:
                raise DataError(
                    f"`label_names` must have {other.num_outputs} names, one per output; "
                    f"got {len(names)}"
                )
            names = None
        other.label_names = names
        return other

    def with_official(self, official: Tensor | None) -> GraphStore:
        """Return the same graphs with another official split; everything else is shared.

        Args:
            official: As for :class:`GraphStore`, integer ``[graphs]``.
        """
        other = object.__new__(GraphStore)
        other.__dict__.update(self.__dict__)
        other.path = None
        other.official = None if official is None else self._check_official(official)
        other._check_all_parts()
        return other

    def batch(self, indices: Any) -> Batch:
        """Gather some of the graphs into a PyG ``Batch``.

        Args:
            indices: Graph numbers, ``[graphs]`` (tensor, array or list), or a boolean mask.

        Returns:
            A batch with ``x``, ``edge_index``, ``edge_attr``, ``y``, ``batch``, ``ptr`` and the
            store's further node fields.
        """
        return self._gather(self._index(indices))

    def _gather(self, index: Tensor) -> Batch:
        node_counts = self.node_counts.index_select(0, index)
        edge_counts = self.edge_counts.index_select(0, index)
        nodes, _ = ranges(self._node_starts.index_select(0, index), node_counts)
        edges, graph = ranges(self._edge_starts.index_select(0, index), edge_counts)
        shift = offsets(node_counts)[:-1].index_select(0, graph)
        edge_index = self._edge_index.index_select(1, edges) + shift

        def taken(value: Tensor | None, rows: Tensor) -> Tensor | None:
            return None if value is None else value.index_select(0, rows)

        batch = make_batch(
            edge_index=edge_index,
            node_counts=node_counts,
            edge_counts=edge_counts,
            node_fields={
                "x": _as_float(taken(self._x, nodes)),
                **{name: taken(value, nodes) for name, value in self._node_fields.items()},
            },
            edge_fields={"edge_attr": _as_float(taken(self._edge_attr, edges))},
            graph_fields={"y": self.y.index_select(0, index)},
            symmetric=self.undirected,
        )
        batch._num_outputs = self.num_outputs
        return batch

    def batches(self, order: Tensor, batch_size: int) -> Iterable[Batch]:
        """Yield the graphs in the given order, a batch at a time.

        Args:
            order: Graph numbers, int64 ``[graphs]``.
            batch_size: Graphs per batch; the last may have fewer.
        """
        for part in torch.split(order, batch_size):
            yield self._gather(part)

    # ---------------------------------------------------------------- from and to other forms

    @classmethod
    def from_pyg(
        cls,
        graphs: Iterable[Data],
        *,
        name: str | None = None,
        task: str | None = None,
        num_outputs: int | None = None,
        label_names: Sequence[str] | None = None,
        num_continuous: int = 0,
        node_fields: Sequence[str] = (),
    ) -> GraphStore:
        """Make a store of PyG ``Data`` objects: a list, or a PyG data set.

        Args:
            graphs: The graphs, each with ``edge_index``, ``y`` (a tensor, a number or a list of
                numbers) and usually ``x``.
            name: Name of the data set.
            task: Found from ``y`` by default: integers are classes; floats that are all 0, 1 or NaN
                are labels; other floats are regression targets.
            num_outputs: Number of classes.
            label_names: What the outputs are called.
            num_continuous: The first so many columns of ``x`` are continuous.
            node_fields: Names of further per-node tensors to keep.

        Raises:
            DataError: If a graph cannot be used; the message names it.

        Example:
            >>> triangle = torch.tensor([[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]])
            >>> data = [Data(x=torch.ones(3, 2), edge_index=triangle, y=torch.tensor([k]))
            ...         for k in (0, 1)]
            >>> GraphStore.from_pyg(data, name="triangles")
            GraphStore('triangles': 2 graphs, 2 classes, |V| 3.0, |E| 3.0, 2 node features, \
no edge features)
        """
        items = list(graphs)
        name = name or "graphs"
        for number, data in enumerate(items):
            problem = pyg_problem(data)
            if problem is not None:
                raise DataError(f"{name}: graph {number} {problem}")
        if not items:
            raise DataError(f"{name}: there are no graphs")
        node_counts = torch.tensor([data.num_nodes for data in items])
        edge_counts = torch.tensor([data.edge_index.shape[1] for data in items])

        def stacked(field: str) -> Tensor | None:
            present = [field in data and data[field] is not None for data in items]
            if not any(present):
                return None
            if not all(present):
                raise DataError(f"{name}: graph {present.index(False)} has no `{field}`")
            try:
                return torch.cat([data[field].detach().cpu() for data in items])
            except RuntimeError as error:
                raise DataError(
                    f"{name}: the graphs' `{field}` do not fit together: {error}"
                ) from None

        x, edge_attr = stacked("x"), stacked("edge_attr")
        if x is not None and x.dim() == 1:
            x = x.unsqueeze(1)
        if edge_attr is not None and edge_attr.dim() == 1:
            edge_attr = edge_attr.unsqueeze(1)
        extra: dict[str, Tensor] = {}
        for field in node_fields:
            value = stacked(field)
            if value is None:
                raise DataError(f"{name}: the graphs have no `{field}`")
            extra[field] = value
        rows = [torch.as_tensor(data.y).detach().cpu().reshape(1, -1) for data in items]
        widths = {row.shape[1] for row in rows}
        if len(widths) > 1:
            raise DataError(f"{name}: `y` has {min(widths)} to {max(widths)} entries per graph")
        y = torch.cat(rows)
        if task is None:
            task = task_of(y)
        return cls(
            x=x,
            edge_index=torch.cat([data.edge_index.detach().cpu().long() for data in items], dim=1),
            y=y.flatten() if task == "multiclass" else y,
            node_counts=node_counts,
            edge_counts=edge_counts,
            edge_attr=edge_attr,
            name=name,
            task=task,
            num_outputs=num_outputs,
            label_names=label_names,
            num_continuous=num_continuous,
            node_fields=extra,
        )

    def to_pyg(self) -> list[Data]:
        """Return the graphs as a list of PyG ``Data``."""
        graphs: list[Data] = self.batch(torch.arange(len(self))).to_data_list()
        return graphs

    def _description(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "task": self.task,
            "num_outputs": self.num_outputs,
            "label_names": self.label_names,
            "num_continuous": self.num_continuous,
            **({} if self.reading is None else {"reading": self.reading}),
        }

    def fingerprint(self) -> str:
        """Return a SHA-256 of the contents, in hexadecimal: equal data, equal fingerprint.

        Features count by their values: it makes no difference whether they are kept as small
        integers or as float32.
        """
        digest = hashlib.sha256()
        # How graphs are called and how they were read does not change what they are.
        described = {
            key: value
            for key, value in self._description().items()
            if key not in ("name", "reading")
        }
        digest.update(json.dumps(described, sort_keys=True).encode())
        for key, field in sorted(self._fields().items()):
            features = key in ("x", "edge_attr")
            dtype = torch.float32 if features else field.dtype
            digest.update(f"{key} {dtype} {list(field.shape)}".encode())
            for part in field.parts:
                for piece in part():
                    digest.update(_bytes_of(piece.to(dtype)))
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the store to one safetensors file, whole or not at all.

        The store itself goes on as it is and does not take the file as its ``path``, since nobody
        promises that the file stays.

        Args:
            path: Where to write.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = self._fields()

        def write(key: str, file: IO[bytes]) -> None:
            for part in fields[key].parts:
                for piece in part():
                    file.write(_bytes_of(piece))

        described = {**self._description(), "undirected": self.undirected}
        with _folder_beside(path) as folder:
            whole = Path(folder) / path.name
            shapes = {key: (field.dtype, field.shape) for key, field in fields.items()}
            _write_store(whole, shapes, write, described)
            whole.replace(path)

    @classmethod
    def load(cls, path: str | Path, *, check: bool = False) -> GraphStore:
        """Open a store that :meth:`save` or a :class:`StoreWriter` wrote.

        The file is mapped into memory, not read: whatever is asked for is fetched then, and may be
        dropped again when memory is short. It must not change as long as the store is in use.

        Args:
            path: The file.
            check: Whether to go through the file once, in pieces, and check that edges join nodes
                that there are, that features are numbers and that ``reading`` is one; for a file
                that comes from elsewhere.

        Raises:
            DataError: When the file is not a store, or is damaged.
        """
        try:
            with safe_open(str(path), framework="pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != _FORMAT:
                    raise DataError(f"{path} is not a graph store of this version")
                described = json.loads(metadata["store"])
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except FileNotFoundError:
            raise DataError(f"there is no file {path}") from None
        except (SafetensorError, OSError, ValueError, KeyError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{path} cannot be read as a graph store: {error}") from None
        except RecursionError:
            raise DataError(f"{path} cannot be read as a graph store: nested too deeply") from None
        _check_contents(path, tensors, described)
        extra = {
            key.removeprefix("node_field."): tensors.pop(key)
            for key in list(tensors)
            if key.startswith("node_field.")
        }
        try:
            store = cls(
                x=tensors.get("x"),
                edge_attr=tensors.get("edge_attr"),
                official=tensors.get("official"),
                edge_index=tensors["edge_index"],
                y=tensors["y"],
                node_counts=tensors["node_counts"],
                edge_counts=tensors["edge_counts"],
                node_fields=extra,
                **described,
            )
        except (KeyError, TypeError) as error:
            raise DataError(f"{path} cannot be read as a graph store: {error}") from None
        if check:
            _check_reading(path, store.reading)
            store._check_pieces()
        store.path = Path(path).absolute()
        return store

    def _check_pieces(self) -> None:
        """Check what :meth:`_check_values` checks, a piece of the file at a time."""
        pairs = zip(
            self._groups("edge"),
            self._edge_pieces(self._edge_index[0]),
            self._edge_pieces(self._edge_index[1]),
            strict=True,
        )
        for graphs, sender, receiver in pairs:
            counts = self.edge_counts[graphs]
            limit = torch.repeat_interleave(self.node_counts[graphs], counts)
            wrong = (torch.minimum(sender, receiver) < 0) | (
                torch.maximum(sender, receiver) >= limit
            )
            if bool(wrong.any()):
                graph = graphs.start + _segment_of(int(wrong.nonzero()[0]), counts)
                raise DataError(
                    f"{self.name}: an edge of graph {graph} joins nodes that are not there; the "
                    f"graph has nodes 0 to {int(self.node_counts[graph]) - 1}"
                )
        features = {
            "node": () if self._x is None else self._node_pieces(self._x),
            "edge": () if self._edge_attr is None else self._edge_pieces(self._edge_attr),
        }
        for what, pieces in features.items():
            if not all(_finite(piece) for piece in pieces):
                raise DataError(f"{self.name}: a {what} feature is not a finite number")


def pyg_problem(data: Any, *, target: bool = True) -> str | None:
    """Say what keeps a PyG graph from being put into a store, if anything does.

    Args:
        data: The graph.
        target: Whether it has to have a target.

    Returns:
        What to say of "the graph", or ``None``.

    Example:
        >>> edges = torch.tensor([[0, 1], [1, 0]])
        >>> pyg_problem(Data(x=[[1.0], [2.0]], edge_index=edges, y=0))
        'must have an `x` that is a tensor [nodes, features]; got list'
    """
    if not isinstance(data, Data):
        return f"must be a PyG `Data`; got {type(data).__name__}"
    given: dict[str, Any] = {
        field: getattr(data, field, None) for field in ("edge_index", "y", "x", "edge_attr")
    }
    edges = given["edge_index"]
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
        if given[field] is not None and not _is_dense(given[field], (1, 2)):
            return (
                f"must have an `{field}` that is a tensor [{rows}, features]; "
                f"got {_what(given[field])}"
            )
    nodes = data.num_nodes
    if not nodes:
        return "has no nodes"
    if not isinstance(nodes, int):
        return f"must have a `num_nodes` that is a whole number; got {_what(nodes)}"
    for field, count in (("x", nodes), ("edge_attr", edges.shape[1])):
        if given[field] is not None and len(given[field]) != count:
            return f"must have an `{field}` of {count} rows; got {len(given[field])}"
    return _target_problem(given["y"]) if target else None


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


def _is_dense(value: Any, dimensions: tuple[int, ...]) -> bool:
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


class StoreWriter:
    """Writes a store to one file, piece by piece, for data sets that do not fit into memory.

    The file is the one that :meth:`GraphStore.save` would write if all pieces were one store. It
    appears under its name when all is well at the end, and not at all otherwise; what is needed on
    the way lies in a folder beside it, which is gone afterwards.

    Args:
        path: Where to write.
        name: Name of the data set, as are the next four; see :class:`GraphStore`. The pieces' own
            do not count.
        task: The task; that of every piece.
        num_outputs: Number of classes, labels or values; by default the largest of the pieces.
        label_names: What the outputs are called.
        num_continuous: The first so many columns of ``x`` are continuous.
        official: The official split of all graphs of all pieces, integer ``[graphs]``.

    Raises:
        DataError: When a piece does not fit those before it, or the arguments do not fit the
            pieces.

    Example:
        >>> def pair(label):
        ...     return GraphStore(
        ...         x=torch.ones(2, 1),
        ...         edge_index=torch.tensor([[0, 1], [1, 0]]),
        ...         y=torch.tensor([label]),
        ...         node_counts=torch.tensor([2]),
        ...         edge_counts=torch.tensor([2]),
        ...     )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with StoreWriter(Path(folder) / "pairs.safetensors", name="pairs") as writer:
        ...         for label in (0, 1, 1):
        ...             writer.append(pair(label))
        ...     GraphStore.load(Path(folder) / "pairs.safetensors")
        GraphStore('pairs': 3 graphs, 2 classes, |V| 2.0, |E| 1.0, 1 node feature, no edge features)
    """

    def __init__(
        self,
        path: str | Path,
        *,
        name: str = "graphs",
        task: str = "multiclass",
        num_outputs: int | None = None,
        label_names: Sequence[str] | None = None,
        num_continuous: int = 0,
        official: Tensor | None = None,
    ) -> None:
        self.path = Path(path)
        self.name = name
        self.task = check_choice("task", task, TASKS)
        self._num_outputs = num_outputs
        self._label_names = None if label_names is None else [str(n) for n in label_names]
        self._num_continuous = num_continuous
        self._official = official
        self._largest = 0
        self._undirected = True
        self._pieces = 0
        self._graphs = 0
        self._shapes: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
        self._spools: dict[str, list[Path]] = {}
        self._folder: Path | None = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._folder = Path(self._open.enter_context(_folder_beside(self.path)))
        return self

    def append(self, piece: GraphStore) -> None:
        """Add the graphs of a store, some thousand at a time.

        Args:
            piece: The graphs; its official split, if any, does not count.
        """
        if self._folder is None:
            raise DataError("a `StoreWriter` takes pieces inside its `with` block alone")
        if piece.task != self.task:
            raise DataError(f"{self.name}: `task` is {self.task}, but a piece is {piece.task}")
        fields = {key: field for key, field in piece._fields().items() if key != "official"}
        self._check_fits(fields)
        for key, field in fields.items():
            for spool, part in zip(self._spools[key], field.parts, strict=True):
                with spool.open("ab") as file:
                    for rows in part():
                        file.write(_bytes_of(rows))
            dtype, shape = self._shapes[key]
            axis = _axis(key)
            grown = (*shape[:axis], shape[axis] + field.shape[axis], *shape[axis + 1 :])
            self._shapes[key] = dtype, grown
        self._largest = max(self._largest, piece.num_outputs)
        self._undirected = self._undirected and piece.undirected
        self._pieces += 1
        self._graphs += len(piece)

    def _check_fits(self, fields: Mapping[str, _Field]) -> None:
        """Refuse a piece that has other fields, types or widths; learn them from the first."""
        if not self._pieces:
            assert self._folder is not None
            for number, (key, field) in enumerate(fields.items()):
                axis = _axis(key)
                nothing = (*field.shape[:axis], 0, *field.shape[axis + 1 :])
                self._shapes[key] = field.dtype, nothing
                self._spools[key] = [
                    self._folder / f"{number}-{part}" for part in range(len(field.parts))
                ]
            return
        for key in (*self._shapes, *fields):
            known, given = self._shapes.get(key), fields.get(key)
            before = None if known is None else _kind(key, *known)
            now = None if given is None else _kind(key, given.dtype, given.shape)
            if before != now:
                label = key.removeprefix("node_field.")
                raise DataError(
                    f"{self.name}: `{label}` must be {before or 'absent'}, as in the pieces "
                    f"before; piece {self._pieces} has {now or 'none'}"
                )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._open:
            folder, self._folder = self._folder, None
            if kind is None and folder is not None:
                self._finish(folder)

    def _finish(self, folder: Path) -> None:
        if not self._pieces:
            raise DataError(f"{self.name}: there are no graphs")
        official = self._official
        if official is not None:
            self._shapes["official"] = torch.int8, (self._graphs,)

        def write(key: str, file: IO[bytes]) -> None:
            if key == "official":
                assert official is not None
                file.write(_bytes_of(official.to(torch.int8)))
                return
            for spool in self._spools[key]:
                with spool.open("rb") as part:
                    shutil.copyfileobj(part, file, _PIECE)
                spool.unlink()

        described = {
            "name": self.name,
            "task": self.task,
            "num_outputs": self._largest if self._num_outputs is None else self._num_outputs,
            "label_names": self._label_names,
            "num_continuous": self._num_continuous,
            "undirected": self._undirected,
        }
        if official is not None:
            self._check_split(official)
        whole = folder / self.path.name
        _write_store(whole, self._shapes, write, described)
        # Opening it checks the arguments against the labels and the shapes.
        GraphStore.load(whole)
        whole.replace(self.path)

    def _check_split(self, official: Tensor) -> None:
        """Check the split as a store of so many graphs would."""
        nothing = torch.zeros(self._graphs, dtype=torch.long)
        GraphStore(
            x=None,
            edge_index=torch.empty(2, 0, dtype=torch.int32),
            y=nothing,
            node_counts=nothing + 1,
            edge_counts=nothing,
            name=self.name,
            official=official,
        )


# What a file has to hold: the dimensions of each tensor, and whether its values are whole numbers.
_CONTENTS: Final = {
    "edge_index": (2, True),
    "node_counts": (1, True),
    "edge_counts": (1, True),
    "official": (1, True),
    "x": (2, False),
    "edge_attr": (2, False),
}
_WHOLE_TYPES: Final = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_DESCRIBED: Final = {
    "name": str,
    "task": str,
    "num_outputs": int,
    "label_names": list | None,
    "num_continuous": int,
    "undirected": bool,
    "reading": dict | None,
}

_TEXT_OR_NULL: Final = ("a text or null", str | None)
_TEXTS_OR_NULL: Final = ("a list of texts or null", list | None)
_WHOLE: Final = ("a whole number", int)
# What readers note: in words, and as types.
_READING: Final[dict[str, tuple[str, Any]]] = {
    "kind": ("a text", str),
    "features": ("a text", str),
    "elements": ("a list of texts", list),
    "smiles": _TEXT_OR_NULL,
    "targets": ("a list of texts", list),
    "id": _TEXT_OR_NULL,
    "node_labels": _TEXTS_OR_NULL,
    "node_numbers": _WHOLE,
    "edge_labels": _TEXTS_OR_NULL,
    "edge_numbers": _WHOLE,
    "directed": ("true or false", bool),
}


def _check_contents(path: str | Path, tensors: Mapping[str, Tensor], described: Any) -> None:
    """Refuse a file whose tensors or description are of other types than a store writes."""
    problem = None
    if not isinstance(described, dict):
        problem = "its description is not an object"
    else:
        for key, value in described.items():
            if key not in _DESCRIBED or not isinstance(value, _DESCRIBED[key]):
                problem = f"its description has {key[:40]!r} of {type(value).__name__}"
    for key, value in tensors.items():
        dimensions, whole = _CONTENTS.get(key, (value.dim() or 1, False))
        types = _WHOLE_TYPES if whole else _TYPE_NAMES
        if value.dim() != dimensions or value.dtype not in types:
            problem = f"{key[:40]!r} is {value.dtype} {list(value.shape)}"
        elif key in ("node_counts", "edge_counts") and bool((value >= 2**31).any()):
            problem = f"{key!r} has a number that is too large"
    if problem is not None:
        raise DataError(f"{path} cannot be read as a graph store: {problem}")


def _check_reading(path: str | Path, reading: Mapping[str, Any] | None) -> None:
    """Refuse a file whose ``reading`` holds other values than readers note."""
    for key, value in (reading or {}).items():
        texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if key == "ignored":
            expected, fits = "an object of lists of texts", isinstance(value, dict)
            for names in value.values() if isinstance(value, dict) else ():
                fits &= isinstance(names, list) and all(isinstance(name, str) for name in names)
        elif key in _READING:
            expected, types = _READING[key]
            # To Python true and false are whole numbers, too.
            fits = isinstance(value, types) and isinstance(value, bool) == (types is bool)
            fits = fits and (texts or not isinstance(value, list))
        else:
            expected = "a text, a list of texts, a whole number, true, false or null"
            fits = texts or value is None or isinstance(value, str | int)
        if not fits:
            raise DataError(
                f"{path} cannot be read as a graph store: in its `reading`, {key[:40]!r} must be "
                f"{expected}"
            )


def _axis(key: str) -> int:
    """Which dimension of a field grows with the graphs."""
    return 1 if key == "edge_index" else 0


def _kind(key: str, dtype: torch.dtype, shape: tuple[int, ...]) -> str:
    """Type and width of a field, whatever the number of graphs."""
    width = shape[1:] if _axis(key) == 0 else shape[:1]
    return f"{str(dtype).removeprefix('torch.')} {list(width)}" if width else str(dtype)


def _kept(features: Tensor) -> Tensor:
    """Features as a store keeps them."""
    if features.dtype not in _SMALL_TYPES:
        features = features.to(torch.float32)
    return features.contiguous()


def _as_float(features: Tensor | None) -> Tensor | None:
    return None if features is None else features.to(torch.float32)


def _finite(features: Tensor) -> bool:
    return not features.is_floating_point() or bool(torch.isfinite(features).all())


def _bytes_of(value: Tensor) -> memoryview:
    """The memory of a tensor in row-major order."""
    flat = value.contiguous().reshape(-1)
    # One value, or none, counts as contiguous whatever its stride.
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8).numpy().data


def _folder_beside(path: Path) -> tempfile.TemporaryDirectory[str]:
    """Make a folder that is removed after use, from which a file can be renamed to ``path``."""
    return tempfile.TemporaryDirectory(dir=path.parent, prefix=path.name, suffix=".part")


def _write_store(
    path: Path,
    shapes: Mapping[str, tuple[torch.dtype, tuple[int, ...]]],
    write: Callable[[str, IO[bytes]], None],
    described: Mapping[str, Any],
) -> None:
    """Write a safetensors file: the length of the header in 8 bytes, the header, the values.

    Args:
        path: The file.
        shapes: Type and shape of every tensor.
        write: Writes the values of one of them.
        described: What :meth:`GraphStore.load` needs besides the tensors.
    """
    for key, (dtype, _) in shapes.items():
        if dtype not in _TYPE_NAMES:
            label = key.removeprefix("node_field.")
            raise DataError(f"`{label}` cannot be written: files do not hold values of {dtype}")
    # Wide types first: every tensor then starts at a multiple of its item size.
    order = sorted(shapes, key=lambda key: (-shapes[key][0].itemsize, key))
    header: dict[str, Any] = {
        "__metadata__": {"format": _FORMAT, "store": json.dumps(dict(described))}
    }
    end = 0
    for key in order:
        dtype, shape = shapes[key]
        start, end = end, end + prod(shape) * dtype.itemsize
        header[key] = {
            "dtype": _TYPE_NAMES[dtype],
            "shape": list(shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for key in order:
            write(key, file)


def _segment_of(item: int, counts: Tensor) -> int:
    """Number of the segment that an item lies in."""
    return int(torch.searchsorted(offsets(counts), item, right=True)) - 1


def task_of(y: Tensor) -> str:
    """Find the task from targets: classes, labels (all 0, 1 or NaN) or regression values.

    Args:
        y: What a batch carries as ``y``.

    Example:
        >>> task_of(torch.tensor([3, 1])), task_of(torch.tensor([[0.5], [2.0]]))
        ('multiclass', 'regression')
    """
    if not y.is_floating_point():
        return "multilabel" if y.dim() == 2 and y.shape[1] > 1 else "multiclass"
    binary = (y == 0) | (y == 1) | y.isnan()
    return "multilabel" if bool(binary.all()) else "regression"
