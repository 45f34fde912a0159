"""Data sets as flat tensors, in memory or memory-mapped."""

from __future__ import annotations

import copy
import hashlib
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from graph_transplant.data.batch import CODE, GraphBatch
from graph_transplant.data.featurizer import Featurizer
from graph_transplant.data.pyg import Data, flat_tensors
from graph_transplant.data.tensors import (
    axis_of,
    bytes_of,
    moments,
    offsets,
    ranges,
    repeats,
    task_of,
)
from graph_transplant.data.validation import (
    check_shapes,
    checked_groups,
    checked_names,
    checked_pieces,
    checked_split,
    checked_targets,
    require,
)
from graph_transplant.errors import DataError, check_choice
from graph_transplant.kernels import csr
from graph_transplant.metrics import TASKS
from graph_transplant.utils.text import count as counted

if TYPE_CHECKING:
    from graph_transplant.data.pyg_graphs import PyGGraphs
    from graph_transplant.errors import Skipped


# Features of these types are stored unchanged and become float32 in batches.
_SMALL_TYPES: Final = (torch.uint8, torch.int8, torch.bool)

# Minimum number of one-hot columns for an embedding lookup in the first layer.
_LEAST_CODES: Final = 16

# Larger feature tables are not searched for one-hot columns.
_MOST_SEARCHED: Final = 1 << 26

# Chunk size, in values, for passes over all nodes or edges.
_PIECE: Final = 1 << 21


@dataclass(frozen=True)
class InputRows:
    """The input rows of graphs."""

    number: Tensor  # in the file, counted from 1, int64 [graphs]
    ids: tuple[str, ...]  # from the file
    texts: tuple[str, ...]  # source text of each graph, such as its SMILES

    def take(self, index: Tensor) -> InputRows:
        """Select the rows of the graphs ``index``, int64 ``[graphs]``."""
        places = index.tolist()
        return InputRows(
            self.number.index_select(0, index),
            tuple(self.ids[place] for place in places),
            tuple(self.texts[place] for place in places),
        )


class Origin(NamedTuple):
    """What a data set was loaded from: a name or path, and how it was read."""

    data: str
    reading: Mapping[str, Any]


class SortedEdges(NamedTuple):
    """Edges that are already checked and sorted, as in stores and their files."""

    rows: Tensor  # receivers and senders, int32 [2, edges], by graph, receiver and sender
    undirected: bool


def check_stores(**values: object) -> None:
    """Raise if an argument is not a store."""
    for argument, value in values.items():
        if not isinstance(value, GraphStore):
            raise DataError(
                f"`{argument}` must be a GraphStore, which gt.load makes of a list of graphs; got "
                f"{type(value).__name__}"
            )


class GraphStore:
    """A data set of graphs as flat tensors.

    Args:
        x: Node features, ``[nodes, features]``; without them, models use degrees. Small integers
            (uint8, int8, bool) are stored unchanged and become float in batches.
        edge_index: Senders and receivers, ``[2, edges]``, counted from 0 *within each graph*.
        y: Class numbers, int64 ``[graphs]``; for the tasks ``"multilabel"`` (NaN where an entry is
            missing) and ``"regression"`` float ``[graphs, outputs]``.
        node_counts: Nodes of each graph, integer ``[graphs]``; nodes are ordered by graph.
        edge_counts: Edges of each graph, integer ``[graphs]``; an undirected edge counts twice.
        edge_attr: Edge features, ``[edges, features]``, of the same types as ``x``.
        name: Name of the data set.
        task: ``"multiclass"``, ``"multilabel"`` or ``"regression"``.
        num_outputs: Number of classes, labels or values; inferred from ``y`` by default.
        label_names: Names of the outputs.
        num_continuous: Number of continuous (first) columns of ``x``, which models standardise.
        node_fields: Further tensors with one entry per node, by name.
        official: The published split, integer ``[graphs]``: 0 training, 1 validation, 2 test.
        groups: Group number of each graph, integer ``[graphs]``; splits keep groups together.
        rows: The rows of the file that the graphs were read from; not kept by :meth:`save`.
        featurizer: How rows became features, to read other data the same way.

    Attributes:
        skipped: Rows of the file that were skipped.
        duplicates: Group number of identical graphs, int64 ``[graphs]``; ``None`` for named data
            sets, which are not searched. The search runs on first use.
        descriptors: RDKit's descriptors of molecules, float32 ``[graphs, descriptors]``, once they
            were needed; not kept by :meth:`save`.
        path: The memory-mapped file, or ``None``.
        origin: What the whole data set was loaded from, or ``None``.
        undirected: Whether every edge has a reverse with equal features.

    Example:
        >>> store = GraphStore(
        ...     x=torch.ones(5, 1),
        ...     edge_index=torch.tensor([[0, 1, 0, 1, 1, 2], [1, 0, 1, 0, 2, 1]]),
        ...     y=torch.tensor([0, 1]),
        ...     node_counts=torch.tensor([2, 3]),
        ...     edge_counts=torch.tensor([2, 4]),
        ... )
        >>> store.batch([1, 0]).edge_index
        tensor([[1, 0, 2, 1, 4, 3],
                [0, 1, 1, 2, 3, 4]])
    """

    def __init__(
        self,
        *,
        x: Tensor | None,
        edge_index: Tensor | SortedEdges,
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
        official: Tensor | None = None,
        groups: Tensor | None = None,
        rows: InputRows | None = None,
        featurizer: Featurizer | None = None,
    ) -> None:
        self.name = name
        self._notes: tuple[str, ...] = ()
        self.find_duplicates: Callable[[GraphStore], Tensor] | None = None
        self.descriptors: Tensor | None = None
        self.path: Path | None = None
        self.origin: Origin | None = None
        self.rows, self.featurizer = rows, featurizer
        self.skipped: tuple[Skipped, ...] = ()
        self.task = check_choice("task", task, TASKS)
        self.num_continuous = num_continuous
        self.node_counts = node_counts.to(torch.long).contiguous()
        self.edge_counts = edge_counts.to(torch.long).contiguous()
        ends = edge_index.rows if isinstance(edge_index, SortedEdges) else edge_index
        ends = ends if ends.numel() else ends.long()  # `torch.empty(2, 0)` is float
        # Tensors of nodes and edges, by their names in files.
        self._flat = {"edge_index": ends}
        for key, features in (("x", x), ("edge_attr", edge_attr)):
            if features is not None:
                kept = features if features.dtype in _SMALL_TYPES else features.to(torch.float32)
                self._flat[key] = kept.contiguous()
        self._flat |= {f"node_field.{key}": value for key, value in (node_fields or {}).items()}
        check_shapes(self, self._flat, len(y))
        self.y, self.num_outputs = checked_targets(name, task, y, num_outputs)
        self.label_names = checked_names(label_names, self.num_outputs)
        self.official = None if official is None else checked_split(name, official, len(self))
        self.groups = None if groups is None else checked_groups(name, groups, len(self))
        self._node_starts, self._edge_starts = self.node_ptr[:-1], self.edge_ptr[:-1]
        self._loops: int | None = None
        if isinstance(edge_index, SortedEdges):
            self.undirected = edge_index.undirected
        else:
            self._sort_edges()
        self._dense_columns, self._code = self._find_codes()

    def _sort_edges(self) -> None:
        """Check all values and sort the edges by graph, receiver and sender."""
        # Receivers come first in a store. Copies, to be sorted in place.
        self._flat["edge_index"] = self._flat["edge_index"].flip(0)
        if "edge_attr" in self._flat:
            self._flat["edge_attr"] = self._flat["edge_attr"].clone()
        start, self.undirected = 0, True
        for order, undirected in checked_pieces(self):
            for key in self._flat.keys() & {"edge_index", "edge_attr"}:
                part = self._flat[key].narrow(axis_of(key), start, len(order))
                part.copy_(part.index_select(axis_of(key), order))
            start += len(order)
            self.undirected &= undirected
        self._flat["edge_index"] = self._flat["edge_index"].to(torch.int32)

    def _find_codes(self) -> tuple[int, Tensor | None]:
        """Number of columns before wide one-hot features, and the hot column of each row."""
        columns, first = self.num_node_features, self.num_continuous
        if columns - first < _LEAST_CODES or self._flat["x"].numel() > _MOST_SEARCHED:
            return columns, None
        rest = self._flat["x"][:, first:]
        # The first rows are usually enough to rule out one-hot features.
        for part in (rest[:100], rest):
            if not bool(((part == 0) | (part == 1)).all() and (part.sum(1) == 1).all()):
                return columns, None
        return first, rest.to(torch.uint8).argmax(1).to(torch.int32)

    def __len__(self) -> int:
        return self.node_counts.numel()

    def __getitem__(self, index: Any) -> Any:
        """One graph as PyG ``Data``; for a slice, list or mask, a store of the selected graphs."""
        if isinstance(index, slice):
            return self.subset(range(len(self))[index])
        if hasattr(index, "__len__") and getattr(index, "ndim", 1) != 0:
            return self.subset(index)
        place = operator.index(index)
        if not -len(self) <= place < len(self):
            raise IndexError(f"{self.name} has {len(self)} graphs; there is no graph {place}")
        return self.subset([place % len(self)])._as_list()[0]

    def __iter__(self) -> Iterator[Data]:
        for piece in self.pieces():
            yield from piece._as_list()

    @property
    def x(self) -> Tensor | None:
        """Node features, float32 ``[nodes, features]``, or ``None``; loads all into memory."""
        return self.field("x").to(torch.float32) if "x" in self._flat else None

    @property
    def edge_index(self) -> Tensor:
        """Senders and receivers within each graph, int32 ``[2, edges]``, sorted by receiver."""
        return self.field("edge_index").flip(0)

    @property
    def edge_attr(self) -> Tensor | None:
        """Edge features, float32 ``[edges, features]``, or ``None``; loads all into memory."""
        return self.field("edge_attr").to(torch.float32) if "edge_attr" in self._flat else None

    @property
    def node_fields(self) -> dict[str, Tensor]:
        """Further tensors with one entry per node."""
        keys = [key for key in self._flat if key.startswith("node_field.")]
        return {key.removeprefix("node_field."): self.field(key) for key in keys}

    @property
    def node_ptr(self) -> Tensor:
        """Node offset of every graph, int64 ``[graphs + 1]``."""
        return offsets(self.node_counts)

    @property
    def edge_ptr(self) -> Tensor:
        """Edge offset of every graph, int64 ``[graphs + 1]``."""
        return offsets(self.edge_counts)

    @property
    def labels(self) -> Tensor:
        """Class of every graph, int64 ``[graphs]``."""
        if self.task != "multiclass":
            raise DataError(f"{self.name} is a {self.task} data set: it has targets, not classes")
        return self.y

    @property
    def num_node_features(self) -> int:
        """Number of columns of ``x``; 0 without node features."""
        return self._flat["x"].shape[1] if "x" in self._flat else 0

    @property
    def num_edge_features(self) -> int:
        """Number of columns of ``edge_attr``; 0 without edge features."""
        return self._flat["edge_attr"].shape[1] if "edge_attr" in self._flat else 0

    @property
    def fields(self) -> list[str]:
        """Names of all tensors, as in files."""
        optional = [name for name in ("official", "groups") if getattr(self, name) is not None]
        return ["y", "node_counts", "edge_counts", *optional, *self._flat]

    def field(self, key: str) -> Tensor:
        """A tensor by its name in files, as stored; ``"edge_index"`` has receivers first."""
        if key not in self._flat:
            value: Tensor = getattr(self, key)
            return value
        edges = key.startswith("edge_")
        starts = self._edge_starts if edges else self._node_starts
        counts = self.edge_counts if edges else self.node_counts
        if torch.equal(starts[1:], starts[:-1] + counts[:-1]):
            return self._flat[key].narrow(axis_of(key), int(starts[0]), int(counts.sum()))
        return self._flat[key].index_select(axis_of(key), ranges(starts, counts)[0])

    def pieces(self) -> Iterator[GraphStore]:
        """Yield the graphs in order, as stores of a few megabytes."""
        width = 4 + sum(prod(v.shape[1:]) for k, v in self._flat.items() if k != "edge_index")
        values = (self.node_counts + self.edge_counts) * width
        _, sizes = torch.unique_consecutive(values.cumsum(0) // _PIECE, return_counts=True)
        for index in torch.split(torch.arange(len(self)), sizes.tolist()):
            yield self.subset(index)

    def max_degree(self) -> int:
        """Largest in-degree."""
        largest = 0
        for piece in self.pieces():
            base = torch.repeat_interleave(piece.node_ptr[:-1], piece.edge_counts)
            degree = torch.bincount(base + piece.field("edge_index")[0], minlength=1)
            largest = max(largest, int(degree.max()))
        return largest

    def continuous_moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the continuous node features, float32 ``[continuous]``."""
        columns = self.num_continuous
        if not columns:
            return torch.zeros(0), torch.zeros(0)
        return moments(piece.field("x")[:, :columns] for piece in self.pieces())

    def statistics(self) -> dict[str, float | int]:
        """Statistics as in the paper's table of data sets, and numbers of features."""
        edges = int(self.edge_counts.sum())
        if self.undirected:
            if self._loops is None:
                ends = (piece.field("edge_index") for piece in self.pieces())
                self._loops = sum(int((row == column).sum()) for row, column in ends)
            edges = (edges + self._loops) // 2
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

        def columns(count: int, noun: str) -> str:
            return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"

        continuous = f" ({self.num_continuous} continuous)" if self.num_continuous else ""
        edges = "|E|" if self.undirected else "directed |E|"
        return (
            f"GraphStore({self.name!r}: {len(self)} graphs, {self.num_outputs} {nouns[self.task]}, "
            f"|V| {figures['mean_nodes']:.1f}, {edges} {figures['mean_edges']:.1f}, "
            f"{columns(self.num_node_features, 'node feature')}{continuous}, "
            f"{columns(self.num_edge_features, 'edge feature')})"
        )

    def fingerprint(self) -> str:
        """SHA-256 of all values, without the name and the featurizer."""
        described = {
            "task": self.task,
            "num_outputs": self.num_outputs,
            "label_names": self.label_names,
            "num_continuous": self.num_continuous,
        }
        digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
        nodes, edges = int(self.node_counts.sum()), int(self.edge_counts.sum())
        for key in sorted(self.fields):
            kept = self._flat[key] if key in self._flat else self.field(key)
            dtype = torch.float32 if key in ("x", "edge_attr") else kept.dtype
            shape = list(kept.shape)
            if key in self._flat:
                shape[axis_of(key)] = edges if key.startswith("edge_") else nodes
            digest.update(f"{key} {dtype} {shape}".encode())
            for row in (0, 1) if key == "edge_index" else (...,):
                for piece in self.pieces():
                    digest.update(bytes_of(piece.field(key)[row].to(dtype)))
        return digest.hexdigest()

    @property
    def has_structures(self) -> bool:
        """Whether these are molecules with known SMILES or mol blocks."""
        molecules = self.featurizer is not None and self.featurizer.kind == "molecules"
        return molecules and self.rows is not None and all(self.rows.texts)

    @cached_property
    def duplicates(self) -> Tensor | None:
        """Group number of identical graphs; see the class."""
        return None if self.find_duplicates is None else self.find_duplicates(self)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the data for the user, including duplicates."""
        if self.duplicates is None:
            return self._notes
        again = len(self) - len(torch.unique(self.duplicates))
        same = "canonical SMILES" if self.has_structures else "features and edges"
        note = f"{again} of {len(self)} graphs repeat another (the same {same})."
        _, differing = repeats(self.duplicates, self.y)
        if differing:
            note += f" Repeats of {counted(differing, 'graph')} have different targets."
        return (*self._notes, note) if again else self._notes

    @notes.setter
    def notes(self, notes: Iterable[str]) -> None:
        self._notes = tuple(notes)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs; generated if the data set has none."""
        if self.label_names is not None:
            return self.label_names
        if self.task == "multiclass":
            return tuple(str(number) for number in range(self.num_outputs))
        word = "label" if self.task == "multilabel" else "value"
        return tuple(f"{word} {number}" for number in range(1, self.num_outputs + 1))

    def _with(self, **changes: Any) -> GraphStore:
        other = copy.copy(self)
        other.__dict__.update(changes, path=None, origin=None)
        return other

    def _index(self, indices: Any) -> Tensor:
        what = f"`indices` into {self.name} must"
        index = torch.as_tensor(indices)
        if index.dtype == torch.bool:
            fits = index.shape == (len(self),)
            require(fits, f"{what} have shape [{len(self)}] as a mask; got {list(index.shape)}")
            index = index.nonzero()
        require(index.numel() > 0, f"{what} not be empty")
        require(not index.is_floating_point(), f"{what} be integers; got {index.dtype}")
        index = index.to(torch.long).flatten().contiguous()
        wrong = index[(index < 0) | (index >= len(self))].tolist()
        require(not wrong, f"{what} lie between 0 and {len(self) - 1}; got {wrong[:1]}")
        return index

    def subset(self, indices: Any) -> GraphStore:
        """Select graphs by index or mask; memory is shared."""
        index = self._index(indices)
        per_graph = ["y", "node_counts", "edge_counts", "_node_starts", "_edge_starts"]
        per_graph += ["official", "groups", "duplicates", "descriptors"]
        return self._with(
            **{
                name: value.index_select(0, index)
                for name in per_graph
                # Duplicates are missing until they are searched for.
                if (value := self.__dict__.get(name)) is not None
            },
            rows=None if self.rows is None else self.rows.take(index),
            _loops=None,
        )

    def with_targets(
        self,
        y: Tensor,
        *,
        task: str | None = None,
        num_outputs: int | None = None,
        label_names: Sequence[str] | None = None,
    ) -> GraphStore:
        """The same graphs with other targets; task, classes and names are kept by default."""
        require(
            len(y) == len(self), f"`y` must have {len(self)} entries, one per graph; got {len(y)}"
        )
        if num_outputs is None and task is None and self.task == "multiclass":
            classes = 0 if y.is_floating_point() else int(y.max()) + 1
            num_outputs = max(self.num_outputs, classes)
        task = self.task if task is None else check_choice("task", task, TASKS)
        y, outputs = checked_targets(self.name, task, y, num_outputs)
        if label_names is None and len(self.label_names or ()) == outputs:
            label_names = self.label_names
        names = checked_names(label_names, outputs)
        return self._with(y=y, task=task, num_outputs=outputs, label_names=names)

    def with_official(self, official: Tensor) -> GraphStore:
        """The same graphs with another official split, integer ``[graphs]``."""
        return self._with(official=checked_split(self.name, official, len(self)))

    def with_groups(self, groups: Tensor | None) -> GraphStore:
        """The same graphs with other group numbers, integer ``[graphs]``, or none."""
        if groups is not None:
            groups = checked_groups(self.name, groups, len(self))
        return self._with(groups=groups)

    def batch(self, indices: Any) -> GraphBatch:
        """Gather graphs into a batch, by index or mask."""
        return self._gather(self._index(indices))

    def batches(self, order: Any, batch_size: int) -> Iterator[GraphBatch]:
        """Yield batches of the graphs in the given order; the last may be smaller."""
        for index in torch.split(self._index(order), batch_size):
            yield self._gather(index)

    def _gather(self, index: Tensor) -> GraphBatch:
        receiver, sender = self._flat["edge_index"]
        try:
            graphs, nodes, edges = csr.gather(
                index.numpy(),
                self._node_starts.numpy(),
                self.node_counts.numpy(),
                self._edge_starts.numpy(),
                self.edge_counts.numpy(),
                receiver.numpy(),
                sender.numpy(),
            )
        except IndexError as error:  # a file that was damaged after it was written
            raise DataError(f"{self.name}: {error}") from None
        at_node, at_edge = torch.from_numpy(nodes), torch.from_numpy(edges)
        taken: dict[str, Tensor] = {}
        for key, value in self._flat.items():
            if key.startswith("node_field."):
                taken[key.removeprefix("node_field.")] = value.index_select(0, at_node)
        if self._dense_columns:
            dense = self._flat["x"][:, : self._dense_columns]
            taken["x"] = dense.index_select(0, at_node).to(torch.float32)
        if self._code is not None:
            taken[CODE] = self._code.index_select(0, at_node)
        attr = self._flat.get("edge_attr")
        # Symmetry does not require equal attributes, unlike `undirected`.
        symmetric = self.undirected or csr.reverse_of(graphs.row_ptr, graphs.column).size == len(
            edges
        )
        return GraphBatch(
            *graphs,
            symmetric=symmetric,
            nodes=taken,
            edges={} if attr is None else {"edge_attr": attr.index_select(0, at_edge).float()},
            y=self.y.index_select(0, index),
            num_outputs=self.num_outputs,
            codes=self.num_node_features - self._dense_columns,
        )

    @classmethod
    def from_pyg(
        cls,
        graphs: Iterable[Data] | Dataset[Data],
        *,
        name: str | None = None,
        task: str | None = None,
        num_outputs: int | None = None,
        label_names: Sequence[str] | None = None,
        num_continuous: int = 0,
        node_fields: Sequence[str] = (),
    ) -> GraphStore:
        """Create a store from PyG graphs.

        ``graphs`` is an iterable of ``Data``, a ``Batch``, a PyG data set, or a ``Subset`` of one.
        Graphs need ``edge_index`` and ``y``; ``x`` and ``edge_attr`` are optional. ``task`` is
        inferred from ``y`` by default: one integer per graph is a class; several integers, or
        floats that are all 0, 1 or NaN, are labels; other floats are regression targets.
        ``node_fields`` names other per-node tensors to keep; the rest are dropped. For the other
        arguments, see :class:`GraphStore`.

        Example:
            >>> triangle = torch.tensor([[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]])
            >>> from torch_geometric.data import Data
            >>> data = [Data(x=torch.ones(3, 2), edge_index=triangle, y=torch.tensor([k]))
            ...         for k in (0, 1)]
            >>> GraphStore.from_pyg(data, name="triangles")
            GraphStore('triangles': 2 graphs, 2 classes, |V| 3.0, |E| 3.0, 2 node features, \
no edge features)
        """
        name = name or "graphs"
        contents = flat_tensors(graphs, name, node_fields)
        y = contents.pop("y")
        task = task_of(y) if task is None else task
        return cls(
            **contents,
            y=y.flatten() if task == "multiclass" else y,
            name=name,
            task=task,
            num_outputs=num_outputs,
            label_names=label_names,
            num_continuous=num_continuous,
        )

    def to_pyg(self) -> PyGGraphs:
        """The graphs as a PyG ``InMemoryDataset``, whose graphs can be changed as in a list."""
        from graph_transplant.data.pyg_graphs import PyGGraphs

        return PyGGraphs(self._as_list(), self.num_outputs)

    def _as_list(self) -> list[Data]:
        return list(self.batch(torch.arange(len(self))).to_pyg().to_data_list())

    def save(self, path: str | Path) -> None:
        """Write the store to one safetensors file, atomically."""
        from graph_transplant.data.store_file import StoreWriter

        with StoreWriter(
            path,
            name=self.name,
            task=self.task,
            num_outputs=self.num_outputs,
            label_names=self.label_names,
            num_continuous=self.num_continuous,
            featurizer=self.featurizer,
        ) as writer:
            writer.append(self)

    @staticmethod
    def load(path: str | Path, *, check: bool = False) -> GraphStore:
        """Open a store file.

        The file is memory-mapped and must not change while the store is in use. With ``check``, its
        digest and all values are verified; use this for files from untrusted sources.
        """
        from graph_transplant.data.store_file import load

        return load(path, check=check)
