"""TU data sets: text files in a folder or zip archive, read into a store and cached.

===================  ==========================  =================================================
file ``NAME_*.txt``  one line per                content
===================  ==========================  =================================================
``A``                directed edge               two node numbers, counted from 1 over all graphs
``graph_indicator``  node                        number of its graph, from 1, sorted, no gaps
``graph_labels``     graph                       its class, any whole number
``graph_attributes`` graph (without labels)      the values to be regressed
``node_labels``      node (optional)             one or more whole numbers
``node_attributes``  node (optional)             real numbers
``edge_labels``      line of ``A`` (optional)    one or more whole numbers
``edge_attributes``  line of ``A`` (optional)    real numbers
===================  ==========================  =================================================

The result agrees with :class:`torch_geometric.datasets.TUDataset`, except for repeated edges:

* ``x`` and ``edge_attr`` are ``[attributes, one-hot labels]``. A label column becomes one one-hot
  column for *every* integer from its smallest to its largest value, used or not (DD: 89 columns
  for 82 labels in use).
* Self-loops are removed (COLLAB has 2837). Repeated edges are kept once (IMDB-BINARY lists each
  twice), with the attributes of the first line; PyG sums them.
* Classes are numbered ``0..C-1`` in the order of their original values, which become
  ``label_names``.
"""

from __future__ import annotations

import logging
import re
from array import array
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError

from graph_transplant.data import GraphStore
from graph_transplant.datasets import files as places
from graph_transplant.datasets.files import Numbers, Parts, check_memory, files_in
from graph_transplant.datasets.molecules import one_hot
from graph_transplant.errors import DataError

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

# Increase whenever the same files would be read into a different store.
_READER_VERSION: Final = 1
_SUBFOLDERS: Final = ("tu",)
_PART_FILE: Final = re.compile(
    r"(?P<name>.+)_(?P<part>A|graph_indicator|graph_labels|graph_attributes|"
    r"node_labels|node_attributes|edge_labels|edge_attributes)\.txt"
)


def _scan(path: Path, name: str | None = None) -> Parts | None:
    """TU files of the one data set in a folder, its ``raw/``, or a zip archive, if any."""
    found = _group(files_in(path, "*.txt")) or _group(files_in(path, "raw/*.txt"))
    # A data set with the name of the folder or archive takes precedence over others.
    wanted = path.stem if name is None else name
    if name is not None or any(key[1] == wanted for key in found):
        found = {key: files for key, files in found.items() if key[1] == wanted}
    if len(found) > 1:
        several = sorted(f"{folder}/{name}" for folder, name in found)
        names = ", ".join(several[:10]) + (", …" if len(several) > 10 else "")
        raise DataError(f"{path}: holds more than one TU data set ({names}); give one of them")
    return next((Parts(key[1], path, files) for key, files in found.items()), None)


def _group(names: list[str]) -> dict[tuple[str, str], dict[str, str]]:
    """Group files by folder and data set, then by part."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for name in names:
        file = PurePosixPath(name)
        match = _PART_FILE.fullmatch(file.name)
        if match is not None:
            found.setdefault((str(file.parent), match["name"]), {})[match["part"]] = name
    return found


def is_tu(path: Path) -> bool:
    """Whether this is a folder or zip archive in TU format."""
    return _scan(path) is not None


def find(name: str, root: str | Path | None = None) -> Path | None:
    """Path of a data set on this machine, if any; see :func:`graph_transplant.load`."""
    return places.find(name, _SUBFOLDERS, root, lambda path: _scan(path, name) is not None)


def download(name: str, root: str | Path | None = None) -> Path:
    """Download a data set from the URL that PyG uses; return the path of the archive."""
    # Only needed for downloads.
    from torch_geometric.datasets import TUDataset

    return places.download(name, f"{TUDataset.url}/{name}.zip", name, _SUBFOLDERS, root)


def load(path: Path) -> GraphStore:
    """Load a data set, from the cache if its files have not changed."""
    parts = parts_of(path)

    def make(cached: Path) -> GraphStore:
        store = read(parts)
        try:
            store.save(cached)
        except (OSError, SafetensorError) as error:
            log.warning("data set %s is not cached: %s", parts.name, error)
        return store

    return places.load_cached("tu", _READER_VERSION, parts, make)


def parts_of(path: Path) -> Parts:
    """Files of a data set; raise if a required one is missing."""
    parts = _scan(path)
    assert parts is not None, "see is_tu"
    target = "graph_labels" if "graph_attributes" not in parts else "graph_attributes"
    for part in ("A", "graph_indicator", target):
        if part not in parts:
            there = ", ".join(sorted(PurePosixPath(file).name for file in parts.files.values()))
            raise DataError(
                f"{path}: the file {parts.name}_{part}.txt is missing (there are {there})"
            )
    return parts


def read(parts: Parts) -> GraphStore:
    """Read a data set from its text files."""
    graph = _read_graphs(parts)
    node_counts = np.bincount(graph)
    label_names: list[str] | None = None
    y: npt.NDArray[Any]
    if "graph_labels" in parts:
        table = parts.table("graph_labels", whole=True, columns=1, lines=len(node_counts))
        values, y = np.unique(table[:, 0], return_inverse=True)
        label_names = [str(value) for value in values]
    else:
        y = _read_attributes(parts, "graph_attributes", len(node_counts))
    x, num_continuous = _read_features(parts, "node", len(graph))
    ends, edge_counts, line, lines = _read_edges(parts, graph, node_counts)
    edge_attr, _ = _read_features(parts, "edge", lines)
    return GraphStore(
        x=None if x is None else torch.from_numpy(x),
        edge_index=torch.from_numpy(ends),
        y=torch.from_numpy(y),
        node_counts=torch.from_numpy(node_counts),
        edge_counts=torch.from_numpy(edge_counts),
        edge_attr=None if edge_attr is None else torch.from_numpy(edge_attr[line]),
        name=parts.name,
        task="regression" if label_names is None else "multiclass",
        label_names=label_names,
        num_continuous=num_continuous,
    )


def _read_features(parts: Parts, kind: str, lines: int) -> tuple[Floats | None, int]:
    """Attributes and one-hot labels of nodes or edges, and the number of attributes."""
    columns = []
    if f"{kind}_attributes" in parts:
        columns.append(_read_attributes(parts, f"{kind}_attributes", lines))
    continuous = columns[0].shape[1] if columns else 0
    if f"{kind}_labels" in parts:
        columns.append(_read_one_hot(parts, f"{kind}_labels", lines))
    if len(columns) > 1:
        columns = [np.concatenate(columns, axis=1)]
    return (columns[0] if columns else None), continuous


def _read_attributes(parts: Parts, part: str, lines: int) -> Floats:
    table = parts.table(part, whole=False, lines=lines)
    with np.errstate(over="ignore"):
        values = table.astype(np.float32)
    parts.check(part, ~np.isfinite(values), "expected finite numbers")
    return values


def _read_one_hot(parts: Parts, part: str, lines: int) -> Floats:
    """One-hot labels, one column per integer from the smallest to the largest."""
    table: Ints = parts.table(part, whole=True, lines=lines)
    low = table.min(axis=0)
    # Python integers, so that extreme labels do not overflow.
    widths = [
        int(most) - int(least) + 1 for most, least in zip(table.max(axis=0), low, strict=True)
    ]
    check_memory(
        f"{parts.label(part)}: labels spread over {sum(widths)} values, which as one-hot columns",
        4 * sum(widths) * lines,
        parts.size(),
        "number the labels without gaps, or leave this file out",
    )
    return one_hot(table - low, widths).astype(np.float32)


def _read_graphs(parts: Parts) -> Ints:
    """Graph index of every node."""
    number: Ints = parts.table("graph_indicator", whole=True, columns=1)[:, 0]
    step = np.diff(number, prepend=0)
    wrong = (step != 0) & (step != 1)
    wrong[0] = number[0] != 1
    problem = "graphs must be numbered from 1, sorted and without gaps"
    parts.check("graph_indicator", wrong, f"{problem}; got {number[wrong.argmax()]}")
    return number - 1


def _read_edges(
    parts: Parts, graph: Ints, node_counts: Ints
) -> tuple[npt.NDArray[np.int32], Ints, Ints, int]:
    """Sorted edges as node indices in their graph, ``[2, edges]``, and edge counts of the graphs.

    Also the first line of each edge in the file (if edges have features), and the number of lines.
    """
    nodes = len(graph)
    # One number per edge; lists of pairs would take several times the memory.
    keys = array("q")
    with Numbers(parts, "A", whole=True, columns=2) as numbers:
        for pairs in numbers.pieces():
            ends = pairs.T - 1
            beyond = (ends < 0) | (ends >= nodes)
            numbers.check(beyond.T, f"nodes are numbered from 1 to {nodes}")
            numbers.check(graph[ends[0]] != graph[ends[1]], "the edge joins two graphs")
            keys.frombytes((ends[0] * nodes + ends[1]).tobytes())
    key, line = np.frombuffer(keys, dtype=np.int64), np.empty(0, dtype=np.int64)
    lines = len(key)
    del keys
    if "edge_labels" in parts or "edge_attributes" in parts:
        key, line = np.unique(key, return_index=True)
        line = line[key % (nodes + 1) != 0]
    else:
        key.sort(kind="stable")  # nearly sorted: far faster than np.unique
        key = key[np.append(True, key[1:] != key[:-1])]
    # Without self-loops, whose numbers are node * nodes + node.
    key = key[key % (nodes + 1) != 0]
    first = np.cumsum(node_counts) - node_counts
    counts = np.diff(np.searchsorted(key, np.append(first, nodes) * nodes))
    key -= np.repeat(first * (nodes + 1), counts)  # count nodes within each graph
    ends = np.empty((2, len(key)), dtype=np.int32)
    np.divmod(key, nodes, out=(ends[0], ends[1]), casting="same_kind")
    return ends, counts, line, lines
