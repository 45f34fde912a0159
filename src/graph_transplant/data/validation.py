"""Validation of data sets; all other code relies on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor

from graph_transplant.errors import DataError
from graph_transplant.kernels import csr

if TYPE_CHECKING:
    from graph_transplant.data.store import GraphStore

# Parts of the official split, as `GraphStore.official` numbers them.
PARTS: Final = ("train", "validation", "test")

_RESERVED: Final = {"x", "y", "batch", "ptr", "num_nodes", "edge_index", "edge_attr"}


def require(fits: bool, problem: str) -> None:
    """Raise a :class:`DataError` unless ``fits``."""
    if not fits:
        raise DataError(problem)


def _first(wrong: Tensor) -> int | None:
    return int(wrong.to(torch.uint8).argmax()) if bool(wrong.any()) else None


def check_shapes(store: GraphStore, tensors: Mapping[str, Tensor], targets: int) -> None:
    """Check the counts of a store and the shapes of its tensors."""
    name, graphs, counted = store.name, store.node_counts.numel(), store.edge_counts.numel()
    require(graphs > 0, f"{name}: there are no graphs")
    require(
        graphs == counted == targets,
        f"{name}: `node_counts`, `edge_counts` and `y` must have one entry per graph; got "
        f"{graphs}, {counted} and {targets}",
    )
    empty = _first(store.node_counts < 1)
    require(empty is None, f"{name}: graph {empty} has no nodes")
    require(_first(store.edge_counts < 0) is None, f"{name}: `edge_counts` has negative numbers")
    nodes, edges = int(store.node_counts.sum()), int(store.edge_counts.sum())
    shapes: dict[str, tuple[Any, ...]] = {
        "edge_index": (2, edges),
        "x": (nodes, "features"),
        "edge_attr": (edges, "features"),
    }
    for key, value in tensors.items():
        shape, label = shapes.get(key, (nodes, *value.shape[1:])), key.split(".", 1)[-1]
        fits = value.dim() == len(shape) and all(
            given > 0 if wanted == "features" else given == wanted
            for given, wanted in zip(value.shape, shape, strict=True)
        )
        require(
            fits,
            f"{name}: `{label}` must have shape [{', '.join(map(str, shape))}], to fit the counts "
            f"of nodes and edges; got {list(value.shape)}",
        )
        require(key == label or label not in _RESERVED, f"{name}: `{label}` is a reserved name")
    floating = tensors["edge_index"].is_floating_point()
    require(not floating, f"{name}: `edge_index` must be integers")
    require(
        0 <= store.num_continuous <= store.num_node_features,
        f"{name}: `num_continuous` must lie between 0 and the number of node features; got "
        f"{store.num_continuous}",
    )


def checked_targets(name: str, task: str, y: Tensor, num_outputs: int | None) -> tuple[Tensor, int]:
    """Normalise targets; also return the number of outputs."""
    shape = list(y.shape)
    if task == "multiclass":
        require(
            len(shape) == 1 and not y.is_floating_point(),
            f"{name}: classes `y` must be integers of shape [graphs]; got {y.dtype} of {shape}",
        )
        y = y.to(torch.long)
        classes = int(y.max()) + 1 if num_outputs is None else num_outputs
        wrong = _first((y < 0) | (y >= classes))
        require(
            wrong is None,
            f"{name}: the label of graph {wrong} is {int(y[wrong or 0])}; labels must lie between "
            f"0 and {classes - 1}",
        )
        return y, classes
    y = y.to(torch.float32)
    y = y.unsqueeze(1) if y.dim() == 1 else y
    require(
        y.dim() == 2 and num_outputs in (None, y.shape[1]),
        f"{name}: targets `y` must have shape [graphs, {num_outputs or 'outputs'}]; got {shape}",
    )
    wrong = _first(y.isinf().any(1))
    require(wrong is None, f"{name}: the target of graph {wrong} is infinite")
    wrong = _first(((y < 0) | (y > 1)).any(1)) if task == "multilabel" else None
    require(
        wrong is None,
        f"{name}: the labels of graph {wrong} must be 0 to 1, or NaN (missing); for other numbers, "
        f"the task is regression; got {y[wrong or 0].tolist()[:20]}",
    )
    return y, y.shape[1]


def check_precision(what: str, values: Iterable[float]) -> None:
    """Raise if single precision, used for storage, cannot resolve the differences of targets."""
    exact = np.array([value for value in values if abs(value) < np.inf], dtype=np.float64)
    spread = np.ptp(exact) if exact.size else 0.0
    lost = np.abs(exact.astype(np.float32) - exact).max(initial=0.0)
    require(
        not spread or bool(lost <= 0.001 * spread),
        f"{what} differ too little for their size to be distinguished in single precision: "
        "subtract a constant, such as their mean",
    )


def checked_names(names: Sequence[str] | None, outputs: int) -> tuple[str, ...] | None:
    """Return output names as a tuple; raise if their number is wrong."""
    if names is None:
        return None
    texts = tuple(str(name) for name in names)
    require(
        len(texts) == outputs,
        f"`label_names` must have {outputs} names, one per output; got {len(texts)}",
    )
    twice = [name for name, count in Counter(texts).items() if count > 1]
    require(not twice, f"`label_names` must differ; got {', '.join(twice)} twice")
    return texts


def checked_groups(name: str, groups: Tensor, graphs: int) -> Tensor:
    """Return group numbers as int64; raise if malformed."""
    fits = groups.shape == (graphs,) and not groups.is_floating_point()
    require(fits, f"{name}: `groups` must be integers of shape [{graphs}], one per graph")
    return groups.to(torch.long)


def checked_split(name: str, official: Tensor, graphs: int, *, whole: bool = True) -> Tensor:
    """Return an official split as int8; with ``whole``, every part must have graphs."""
    require(
        official.shape == (graphs,),
        f"{name}: `official` must have shape [{graphs}], one entry per graph; got "
        f"{list(official.shape)}",
    )
    wrong = _first((official != 0) & (official != 1) & (official != 2))
    require(
        wrong is None,
        f"{name}: `official` must be 0 (train), 1 (validation) or 2 (test); got "
        f"{official[wrong or 0].item()} for graph {wrong}",
    )
    for number, part in enumerate(PARTS if whole else ()):
        some = bool((official == number).any())
        require(some, f"{name}: `official` must name graphs for every part; got none for {part}")
    return official.to(torch.int8)


def checked_pieces(store: GraphStore) -> Iterator[tuple[Tensor, bool]]:
    """Check all values; yield the sorted edge order of each chunk and whether it is undirected."""
    graphs = 0
    for piece in store.pieces():
        _check_values(piece, graphs)
        graphs += len(piece)
        base = np.repeat(piece.node_ptr[:-1].numpy(), piece.edge_counts.numpy())
        receiver, sender = (base + row.numpy() for row in piece.field("edge_index"))
        row_ptr, column, order = csr.compress(sender, receiver, int(piece.node_ptr[-1]))
        reverse = csr.reverse_of(row_ptr, column)
        undirected = reverse.size == column.size
        if undirected and "edge_attr" in piece.fields:
            attr = piece.field("edge_attr")[torch.from_numpy(order)]
            undirected = torch.equal(attr, attr[torch.from_numpy(reverse)])
        yield torch.from_numpy(order), undirected


def _check_values(piece: GraphStore, before: int) -> None:
    """Check edge indices, which compiled code relies on, and that features are finite."""

    def graph_of(item: int, ptr: Tensor) -> int:
        return int(torch.searchsorted(ptr, item, right=True)) - 1

    ends = piece.field("edge_index")
    limit = torch.repeat_interleave(piece.node_counts, piece.edge_counts)
    edge = _first(((ends < 0) | (ends >= limit)).any(0))
    if edge is not None:
        receiver, sender = ends[:, edge].tolist()
        raise DataError(
            f"{piece.name}: an edge of graph {before + graph_of(edge, piece.edge_ptr)} joins nodes "
            f"{sender} and {receiver}, but the graph has nodes 0 to {int(limit[edge]) - 1}"
        )
    for key, ptr in (("x", piece.node_ptr), ("edge_attr", piece.edge_ptr)):
        row = _first((~piece.field(key).isfinite()).any(1)) if key in piece.fields else None
        if row is not None:
            graph = graph_of(row, ptr)
            what = f"node {row - int(ptr[graph])}" if key == "x" else "an edge"
            raise DataError(
                f"{piece.name}: {what} of graph {before + graph} has a feature that is not a "
                "finite number"
            )
