"""OGB data sets for graph classification: ogbg-molhiv and ogbg-ppa.

An OGB data set is a folder or zip archive of gzipped tables without headers:

=============================  ===================  ======================================
file                           one line per         content
=============================  ===================  ======================================
``raw/num-node-list.csv.gz``   graph                its number of nodes
``raw/num-edge-list.csv.gz``   graph                its number of edges
``raw/graph-label.csv.gz``     graph                its class
``raw/edge.csv.gz``            edge                 two node numbers, from 0 in the graph
``raw/edge-feat.csv.gz``       edge                 its features
``raw/node-feat.csv.gz``       node (of molecules)  its features
``split/KIND/*.csv.gz``        graph of that part   its number, from 0 (train, valid, test)
=============================  ===================  ======================================

Every edge is listed once; its reverse is added, with the same features. Tables are read in chunks
into a cache file, which is then memory-mapped: neither the text nor the graphs are ever in memory
as a whole.

* **ogbg-molhiv**: the nine atom and three bond features are categorical and become one-hot columns,
  one for every category of OGB, used or not.
* **ogbg-ppa**: nodes have no features, so they get the mean of the features of their edges, and
  edge features are dropped (appendix, "Datasets"). Isolated nodes get zeros.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from graph_transplant.config.datasets import CACHE_VARIABLE
from graph_transplant.data import Featurizer, GraphStore, StoreWriter
from graph_transplant.datasets import files as places
from graph_transplant.datasets.files import Numbers, Parts, check_memory, files_in
from graph_transplant.datasets.molecules import ATOM_CATEGORIES, BOND_CATEGORIES, one_hot
from graph_transplant.errors import DataError

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

# Increase whenever the same files would be read into a different store.
_READER_VERSION: Final = 1
# Chunk size, in edges of the file.
_PIECE_EDGES: Final = 1 << 19
_SUBFOLDERS: Final = ("ogb", "molecules")
_OGB: Final = "http://snap.stanford.edu/ogb/data/graphproppred"


@dataclass(frozen=True)
class _Recipe:
    """How the tables of one data set become graphs."""

    url: str
    split: str  # name of the published split
    classes: int
    label_names: tuple[str, ...] | None = None
    edge_numbers: int = 0  # edge features to average at the nodes; 0 for molecules

    def files(self) -> dict[str, str]:
        """Path of each table in the folder or archive."""
        raw = ["num-node-list", "num-edge-list", "graph-label", "edge", "edge-feat"]
        raw += [] if self.edge_numbers else ["node-feat"]
        split = ("train", "valid", "test")
        return {part: f"raw/{part}.csv.gz" for part in raw} | {
            part: f"split/{self.split}/{part}.csv.gz" for part in split
        }


DATASETS: Final[dict[str, _Recipe]] = {
    "ogbg-molhiv": _Recipe(
        f"{_OGB}/csv_mol_download/hiv.zip",
        split="scaffold",
        classes=2,
        label_names=("inactive", "active"),
    ),
    "ogbg-ppa": _Recipe(f"{_OGB}/ogbg_ppi_medium.zip", split="species", classes=37, edge_numbers=7),
}


def _scan(path: Path) -> Parts | None:
    """Tables in a folder or zip archive that is named after a data set, if any."""
    stem = path.stem if path.suffix.lower() == ".zip" else path.name
    name = stem.replace("_", "-")
    if name not in DATASETS:
        return None
    found = [PurePosixPath(file) for file in files_in(path, "raw/*.csv.gz", "split/*/*.csv.gz")]
    files: dict[str, str] = {}
    for part, file in DATASETS[name].files().items():
        fitting = [str(member) for member in found if member.match(file)]
        if len(fitting) > 1:
            raise DataError(f"{path}: holds {file} more than once ({', '.join(fitting)})")
        if fitting:
            files[part] = fitting[0]
    return Parts(name, path, files) if files else None


def is_ogb(path: Path) -> bool:
    """Whether this is a folder or zip archive of an OGB data set, and is named after it."""
    return _scan(path) is not None


def _stem(name: str) -> str:
    return name.replace("-", "_")


def find(name: str, root: str | Path | None = None) -> Path | None:
    """Path of a data set on this machine, if any; see :func:`graph_transplant.load`."""
    return places.find(_stem(name), _SUBFOLDERS, root, is_ogb)


def download(name: str, root: str | Path | None = None) -> Path:
    """Download a data set from OGB; return the path of the archive."""
    return places.download(name, DATASETS[name].url, _stem(name), _SUBFOLDERS, root)


def load(path: Path) -> GraphStore:
    """Load a data set from a memory-mapped cache file, which is written first if needed."""
    parts = parts_of(path)

    def make(cached: Path) -> GraphStore:
        log.info("reading %s from %s", parts.name, parts.path)
        try:
            _write(parts, cached)
        except OSError as error:
            raise DataError(
                f"data set {parts.name!r} cannot be written to {cached.parent} ({error}); name "
                f"another folder with the environment variable {CACHE_VARIABLE}"
            ) from error
        return GraphStore.load(cached)

    store = places.load_cached("ogb", _READER_VERSION, parts, make)
    store.featurizer = None if DATASETS[parts.name].edge_numbers else Featurizer("molecules")
    return store


def parts_of(path: Path) -> Parts:
    """Tables of a data set; raise if one is missing."""
    parts = _scan(path)
    assert parts is not None, "see is_ogb"
    for part, file in DATASETS[parts.name].files().items():
        if part not in parts:
            raise DataError(f"{path}: the file {file} of {parts.name} is missing")
    return parts


def _write(parts: Parts, target: Path) -> None:
    recipe = DATASETS[parts.name]
    node_counts = _read_counts(parts, "num-node-list", 1)
    graphs = len(node_counts)
    edge_counts = _read_counts(parts, "num-edge-list", 0, graphs)
    if recipe.edge_numbers:  # otherwise, the file must have a line for every node
        check_memory(
            f"{parts.path}: features of {node_counts.sum()} nodes",
            8 * recipe.edge_numbers * int(node_counts.sum()),
            parts.size(),
            "num-node-list.csv.gz is likely damaged",
        )
    labels: Ints = parts.table("graph-label", whole=True, columns=1, lines=graphs)[:, 0]
    wrong = (labels < 0) | (labels >= recipe.classes)
    parts.check("graph-label", wrong, f"expected a class from 0 to {recipe.classes - 1}")
    official = _read_split(parts, graphs)
    columns = {"edge": 2, "edge-feat": recipe.edge_numbers or len(BOND_CATEGORIES)}
    if not recipe.edge_numbers:
        columns["node-feat"] = len(ATOM_CATEGORIES)
    with ExitStack() as stack:
        tables = {}
        for part, width in columns.items():
            whole = not (part == "edge-feat" and recipe.edge_numbers)
            tables[part] = stack.enter_context(Numbers(parts, part, whole=whole, columns=width))
        writer = stack.enter_context(
            StoreWriter(
                target,
                name=parts.name,
                num_outputs=recipe.classes,
                label_names=recipe.label_names,
                num_continuous=recipe.edge_numbers,
                official=torch.from_numpy(official),
            )
        )
        for piece in _slices(edge_counts):
            counts = node_counts[piece], edge_counts[piece]
            writer.append(_next_graphs(tables, recipe, parts.name, labels[piece], *counts))
        for table in tables.values():
            table.finish()


def _slices(edge_counts: Ints) -> Iterator[slice]:
    """Slices of graphs with about ``_PIECE_EDGES`` edges."""
    _, starts = np.unique(np.cumsum(edge_counts) // _PIECE_EDGES, return_index=True)
    return map(slice, starts, [*starts[1:], len(edge_counts)])


def _read_counts(parts: Parts, part: str, least: int, graphs: int | None = None) -> Ints:
    counts: Ints = parts.table(part, whole=True, columns=1, lines=graphs)[:, 0]
    # Sums of larger numbers might overflow.
    wrong = (counts < least) | (counts >= 2**31)
    parts.check(part, wrong, f"expected a number from {least} to {2**31 - 1}")
    return counts


def _read_split(parts: Parts, graphs: int) -> npt.NDArray[np.int8]:
    official = np.full(graphs, -1, dtype=np.int8)
    for number, part in enumerate(("train", "valid", "test")):
        chosen: Ints = parts.table(part, whole=True, columns=1)[:, 0]
        wrong = (chosen < 0) | (chosen >= graphs)
        parts.check(part, wrong, f"expected the number of a graph, 0 to {graphs - 1}")
        known = official[chosen] >= 0
        known[np.setdiff1d(np.arange(len(chosen)), np.unique(chosen, return_index=True)[1])] = True
        parts.check(part, known, "this graph was listed before")
        official[chosen] = number
    left = np.flatnonzero(official < 0)
    if len(left):
        raise DataError(
            f"{parts.path}: graph {left[0]} is in none of train.csv.gz, valid.csv.gz, test.csv.gz"
        )
    return official


def _next_graphs(
    tables: Mapping[str, Numbers],
    recipe: _Recipe,
    name: str,
    labels: Ints,
    node_counts: Ints,
    edge_counts: Ints,
) -> GraphStore:
    nodes, edges = int(node_counts.sum()), int(edge_counts.sum())
    pairs: Ints = tables["edge"].take(edges)
    limit = np.repeat(node_counts, edge_counts)[:, None]
    tables["edge"].check((pairs < 0) | (pairs >= limit), "its graph has no such node")
    x: npt.NDArray[Any]
    edge_attr: torch.Tensor | None = None
    if recipe.edge_numbers:
        features = tables["edge-feat"].take(edges)
        wrong = ~np.isfinite(features.astype(np.float32))
        tables["edge-feat"].check(wrong, "expected finite numbers")
        first = np.cumsum(node_counts) - node_counts
        ends = pairs + np.repeat(first, edge_counts)[:, None]
        x = _mean_at_nodes(ends, features, nodes).astype(np.float32)
    else:
        x = _one_hot(tables["node-feat"], nodes, ATOM_CATEGORIES)
        bonds = _one_hot(tables["edge-feat"], edges, BOND_CATEGORIES)
        edge_attr = torch.from_numpy(np.repeat(bonds, 2, axis=0))
    # Both directions of an edge next to each other, so that graphs stay contiguous.
    both = np.repeat(pairs, 2, axis=0)
    both[1::2] = pairs[:, ::-1]
    return GraphStore(
        x=torch.from_numpy(x),
        edge_index=torch.from_numpy(both.T),
        y=torch.from_numpy(labels),
        node_counts=torch.from_numpy(node_counts),
        edge_counts=torch.from_numpy(2 * edge_counts),
        edge_attr=edge_attr,
        name=name,
        num_outputs=recipe.classes,
    )


def _one_hot(numbers: Numbers, lines: int, categories: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    table: Ints = numbers.take(lines)
    wrong = (table < 0) | (table >= np.asarray(categories))
    numbers.check(wrong, f"expected categories below {', '.join(map(str, categories))}")
    return one_hot(table, categories)


def _mean_at_nodes(ends: Ints, features: Doubles, nodes: int) -> Doubles:
    total = np.empty((nodes, features.shape[1]))
    for column, values in enumerate(features.T):
        total[:, column] = sum(np.bincount(end, weights=values, minlength=nodes) for end in ends.T)
    degree = np.bincount(ends.ravel(), minlength=nodes)
    return total / np.maximum(degree, 1)[:, None]
