"""OGB data sets for graph classification: ogbg-molhiv and ogbg-ppa.

A data set of the Open Graph Benchmark is a folder (or a zip archive of one) of packed tables
without headers:

=============================  ===================  ======================================
file                           one line per         content
=============================  ===================  ======================================
``raw/num-node-list.csv.gz``   graph                its number of nodes
``raw/num-edge-list.csv.gz``   graph                its number of edges
``raw/graph-label.csv.gz``     graph                its class
``raw/edge.csv.gz``            edge                 two node numbers, from 0 in the graph
``raw/edge-feat.csv.gz``       edge                 its features
``raw/node-feat.csv.gz``       node (of molecules)  its features
``split/KIND/train.csv.gz``    graph of that part   its number, from 0
``split/KIND/valid.csv.gz``    likewise             likewise
``split/KIND/test.csv.gz``     likewise             likewise
=============================  ===================  ======================================

Every edge stands there once; its reverse is added, with the same features. The tables are read in
pieces into one file of the cache, which is then mapped into memory: neither the text nor the graphs
are ever in memory as a whole. Files that OGB itself has processed are not looked at.

* **ogbg-molhiv**: the nine numbers of an atom and the three of a bond are categories; each becomes
  one one-hot column for every category that OGB knows, used or not.
* **ogbg-ppa**: nodes have no features, so the mean of the features of a node's edges becomes its
  own, and edge features are then dropped (appendix, "Datasets"). An isolated node has zeros.

The published split stays with the graphs, as ``official`` of
:class:`~graph_transplant.graphs.GraphStore`.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import logging
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, cast, final

import numpy as np
import numpy.typing as npt
import torch

from graph_transplant.datasets import molecules, tu
from graph_transplant.errors import DataError
from graph_transplant.graphs import Featurizer, GraphStore, StoreWriter

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

# Part of every cache key: raise it whenever the same files would be read into a different store.
_READER_VERSION: Final = 1
# Graphs are put together in pieces of about this many edges of the file.
_PIECE_EDGES: Final = 1 << 19
# No line of these tables is nearly as long: packed zeros must not unpack into memory without end.
_MAX_LINE: Final = 1 << 20
_MAX_DOWNLOAD: Final = 16 << 30
# Where a data set may lie in a folder of data sets.
_PLACES: Final = ("", "ogb", "molecules")


@dataclass(frozen=True)
class _Recipe:
    """How the tables of one data set become graphs.

    Attributes:
        split: Kind of the published split.
        classes: Number of classes.
        label_names: What they are called.
        node_categories: How many categories each node feature has; none for no node features.
        edge_categories: Likewise for edge features; none where these are numbers.
        edge_numbers: How many numbers an edge has whose mean over its edges goes to a node.
        featurizer: How further graphs can be read in the same way, if they can.
    """

    split: str
    classes: int
    label_names: tuple[str, ...] | None = None
    node_categories: tuple[int, ...] = ()
    edge_categories: tuple[int, ...] = ()
    edge_numbers: int = 0
    featurizer: Featurizer | None = None

    def parts(self) -> dict[str, str]:
        """Return where each table lies."""
        raw = ["num-node-list", "num-edge-list", "graph-label", "edge", "edge-feat"]
        raw += ["node-feat"] if self.node_categories else []
        split = ("train", "valid", "test")
        return {part: f"raw/{part}.csv.gz" for part in raw} | {
            part: f"split/{self.split}/{part}.csv.gz" for part in split
        }


DATASETS: Final[dict[str, _Recipe]] = {
    "ogbg-molhiv": _Recipe(
        split="scaffold",
        classes=2,
        label_names=("inactive", "active"),
        node_categories=molecules.ATOM_CATEGORIES,
        edge_categories=molecules.BOND_CATEGORIES,
        featurizer=Featurizer("molecules"),
    ),
    "ogbg-ppa": _Recipe(split="species", classes=37, edge_numbers=7),
}


# ------------------------------------------------------------------ where the files lie


class _Unpacked(gzip.GzipFile):
    """A packed table, unpacked while it is read; closing it closes the file it comes from."""

    def __init__(self, packed: IO[bytes]) -> None:
        super().__init__(fileobj=packed, mode="rb")
        self._packed = packed
        self._since_break = 0

    def read(self, size: int | None = -1) -> bytes:
        data: bytes = super().read(size)
        last = data.rfind(b"\n")
        self._since_break = len(data) - 1 - last + (self._since_break if last < 0 else 0)
        if self._since_break > _MAX_LINE:
            raise OSError(f"a line is longer than {_MAX_LINE >> 20} MiB")
        return data

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._packed.close()


@final
class _Tables(tu._Files):
    """The packed tables of one data set."""

    def __init__(self, packed: tu._Files) -> None:
        super().__init__(packed.name, packed.where, packed.files)
        self._packed = packed

    def label(self, part: str) -> str:
        return f"{self.where}: {part}.csv.gz"

    def open(self, part: str) -> IO[bytes]:
        return cast("IO[bytes]", _Unpacked(self._packed.open(part)))

    def state(self) -> list[tuple[str, int, int]]:
        return self._packed.state()


def _name_of(path: Path) -> str | None:
    """Return the data set that a folder or archive is named after, if it is one of these."""
    stem = path.stem if path.suffix.lower() == ".zip" else path.name
    name = stem.replace("_", "-")
    return name if name in DATASETS else None


def _scan(path: Path, name: str) -> _Tables | None:
    """Return the tables in a folder or zip archive, or None where there are none at all.

    Raises:
        DataError: If the archive cannot be read, or a table lies in it more than once.
    """
    parts = DATASETS[name].parts()
    packed: type[tu._Files]
    if path.is_dir():
        packed = tu._Folder
        found = {part: (path / file).as_posix() for part, file in parts.items()}
        files = {part: file for part, file in found.items() if Path(file).is_file()}
    elif path.is_file() and path.suffix.lower() == ".zip":
        packed = tu._Archive
        files = _members(path, parts)
    else:
        return None
    return _Tables(packed(name, str(path), files)) if files else None


def _members(path: Path, parts: dict[str, str]) -> dict[str, str]:
    """Return the member of an archive that is each table."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [PurePosixPath(member) for member in archive.namelist()]
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{path}: not a readable zip archive ({error})") from error
    files: dict[str, str] = {}
    for part, file in parts.items():
        depth = len(PurePosixPath(file).parts)
        fitting = [
            str(member)
            for member in members
            if member.parts[-depth:] == PurePosixPath(file).parts and "__MACOSX" not in member.parts
        ]
        if len(fitting) > 1:
            raise DataError(f"{path}: holds {file} more than once ({', '.join(fitting)})")
        if fitting:
            files[part] = fitting[0]
    return files


def is_ogb(path: Path) -> bool:
    """Tell whether a path is a folder or zip archive of one of these data sets.

    Args:
        path: A path that exists; it has the name of the data set, such as ``ogbg_molhiv.zip``.
    """
    name = _name_of(path)
    return name is not None and _scan(path, name) is not None


def find(name: str, root: str | Path | None = None) -> Path | None:
    """Return where an OGB data set lies on this machine.

    Looked for are, for ogbg-molhiv, ``ogbg_molhiv/`` and ``ogbg_molhiv.zip``, directly or in a
    folder ``ogb`` or ``molecules``, in all of
    :func:`~graph_transplant.datasets.tu.search_folders`.

    Args:
        name: Name of the data set.
        root: Folder to look in first.

    Returns:
        The folder or archive, or None if there is none.
    """
    folder_name = name.replace("-", "_")
    for folder in tu.search_folders(root):
        for place in _PLACES:
            for file in (folder_name, f"{folder_name}.zip"):
                path = folder / place / file
                # A folder of that name without such files is no data set: look further.
                if path.is_dir() and _scan(path, name) is not None:
                    return path
                if path.is_file() and file.endswith(".zip"):
                    return path
    return None


def places(name: str, root: str | Path | None = None) -> str:
    """Return a sentence that says where a data set was looked for.

    Args:
        name: Name of the data set.
        root: Folder to look in first.
    """
    file = name.replace("-", "_")
    folders = ", ".join(str(folder) for folder in tu.search_folders(root))
    return (
        f"Looked for {file}/ and {file}.zip, directly and in ogb/ and molecules/, in: {folders} "
        f"(`root`, and the environment variable {tu.DATA_VARIABLE}, name such folders)."
    )


# ------------------------------------------------------------------ reading tables


@final
class _Rows:
    """Takes the lines of a table a given number at a time.

    Args:
        files: The tables.
        part: Which one.
        columns: How many values a line has.
        lines: How many lines there are.
        of: What a line stands for.
        whole: Whether the values are whole numbers.
    """

    def __init__(
        self, files: _Tables, part: str, *, columns: int, lines: int, of: str, whole: bool
    ) -> None:
        self.label = files.label(part)
        self.taken = 0
        self._columns, self._lines, self._of = columns, lines, of
        self._source: Iterator[npt.NDArray[Any]] = (
            tu._parse(files, part, whole=whole) if lines else iter(())
        )
        self._held: npt.NDArray[Any] = np.empty((0, columns), np.int64 if whole else np.float64)

    def take(self, count: int) -> npt.NDArray[Any]:
        """Return the next ``count`` lines, ``[count, columns]``."""
        pieces, there = [self._held], len(self._held)
        while there < count:
            piece = next(self._source, None)
            if piece is None:
                raise DataError(
                    f"{self.label}: has {self.taken + there} lines, expected {self._lines}, one "
                    f"for each {self._of}"
                )
            if piece.shape[1] != self._columns:
                raise DataError(
                    f"{self.label}, line 1: expected {self._columns} values, got {piece.shape[1]}"
                )
            pieces.append(piece)
            there += len(piece)
        rows = np.concatenate(pieces) if len(pieces) > 1 else pieces[0]
        # A copy, so that the rest does not keep all of the piece it came from.
        self._held = rows[count:].copy()
        self.taken += count
        return rows[:count]

    def finish(self) -> None:
        """Raise an error if there are further lines."""
        if len(self._held) or next(self._source, None) is not None:
            raise DataError(
                f"{self.label}: has more than the expected {self._lines} lines, one for each "
                f"{self._of}"
            )


def _column(files: _Tables, part: str) -> Ints:
    """Read a table of one whole number a line."""
    table: Ints = np.concatenate(list(tu._parse(files, part, whole=True)))
    if table.shape[1] != 1:
        raise DataError(
            f"{files.label(part)}, line 1: expected one value, got {table.shape[1]} values"
        )
    return table[:, 0]


def _check_line(files: _Tables, part: str, wrong: npt.NDArray[np.bool_], problem: str) -> None:
    """Raise an error that names the first line that is wrong, if there is one."""
    if wrong.any():
        raise DataError(f"{files.label(part)}, line {int(wrong.argmax()) + 1}: {problem}")


def _read_labels(files: _Tables, classes: int, graphs: int) -> Ints:
    rows = _Rows(files, "graph-label", columns=1, lines=graphs, of="graph", whole=False)
    values = rows.take(graphs)[:, 0]
    rows.finish()
    # Some writers put whole numbers as 0.0 and 1.0.
    wrong = ~np.isin(values, np.arange(classes))
    _check_line(files, "graph-label", wrong, f"expected a class from 0 to {classes - 1}")
    return values.astype(np.int64)


def _read_split(files: _Tables, graphs: int) -> npt.NDArray[np.int8]:
    official = np.full(graphs, -1, dtype=np.int8)
    for number, part in enumerate(("train", "valid", "test")):
        chosen = _column(files, part)
        wrong = (chosen < 0) | (chosen >= graphs)
        _check_line(files, part, wrong, f"expected the number of a graph, 0 to {graphs - 1}")
        known = official[chosen] >= 0
        known[np.setdiff1d(np.arange(len(chosen)), np.unique(chosen, return_index=True)[1])] = True
        _check_line(files, part, known, "this graph was listed before")
        official[chosen] = number
    left = np.flatnonzero(official < 0)
    if len(left):
        raise DataError(
            f"{files.where}: graph {left[0]} is in none of train.csv.gz, valid.csv.gz, test.csv.gz"
        )
    return official


def _one_hot(rows: _Rows, count: int, categories: tuple[int, ...]) -> Bytes:
    """Read categories as one-hot columns, uint8 ``[count, sum(categories)]``."""
    before = rows.taken
    table: Ints = rows.take(count)
    wrong = (table < 0) | (table >= np.asarray(categories))
    if wrong.any():
        line, column = np.argwhere(wrong)[0].tolist()
        raise DataError(
            f"{rows.label}, line {before + line + 1}: value {column + 1} is {table[line, column]}, "
            f"expected a category from 0 to {categories[column] - 1}"
        )
    columns = np.zeros((count, sum(categories)), dtype=np.uint8)
    first = np.cumsum((0, *categories[:-1]))
    columns[np.arange(count)[:, None], table + first] = 1
    return columns


def _mean_at_nodes(ends: Ints, features: Doubles, nodes: int) -> Doubles:
    """Return the mean of the features of each node's edges, ``[nodes, features]``.

    Args:
        ends: The two nodes of every edge, ``[edges, 2]``.
        features: Of the edges, ``[edges, features]``.
        nodes: Number of nodes.
    """
    total = np.empty((nodes, features.shape[1]))
    for column, values in enumerate(features.T):
        total[:, column] = sum(np.bincount(end, weights=values, minlength=nodes) for end in ends.T)
    degree = np.bincount(ends.ravel(), minlength=nodes)
    return total / np.maximum(degree, 1)[:, None]


@final
class _Reader:
    """Puts graphs together from the tables of one data set.

    Args:
        files: The tables.
    """

    def __init__(self, files: _Tables) -> None:
        self.files = files
        self.recipe = DATASETS[files.name]
        self.node_counts = _column(files, "num-node-list")
        self.edge_counts = _column(files, "num-edge-list")
        graphs = len(self.node_counts)
        if len(self.edge_counts) != graphs:
            raise DataError(
                f"{files.label('num-edge-list')}: has {len(self.edge_counts)} lines, expected "
                f"{graphs}, one for each graph"
            )
        few = "expected at least {} of them in each graph"
        _check_line(files, "num-node-list", self.node_counts < 1, few.format(1))
        _check_line(files, "num-edge-list", self.edge_counts < 0, few.format(0))
        # Sums of such numbers must not wrap around.
        many = "expected fewer than 2**31 of them in each graph"
        _check_line(files, "num-node-list", self.node_counts >= 2**31, many)
        _check_line(files, "num-edge-list", self.edge_counts >= 2**31, many)
        self.labels = _read_labels(files, self.recipe.classes, graphs)
        self.official = _read_split(files, graphs)
        nodes, edges = int(self.node_counts.sum()), int(self.edge_counts.sum())
        self._edges = _Rows(files, "edge", columns=2, lines=edges, of="edge", whole=True)
        self._edge_features = _Rows(
            files,
            "edge-feat",
            columns=self.recipe.edge_numbers or len(self.recipe.edge_categories),
            lines=edges,
            of="edge",
            whole=not self.recipe.edge_numbers,
        )
        self._node_features: _Rows | None = None
        if self.recipe.node_categories:
            columns = len(self.recipe.node_categories)
            self._node_features = _Rows(
                files, "node-feat", columns=columns, lines=nodes, of="node", whole=True
            )

    def pieces(self) -> Iterator[GraphStore]:
        """Yield all graphs, a piece at a time."""
        ends = np.cumsum(self.edge_counts)
        start = 0
        while start < len(self.node_counts):
            before = ends[start - 1] if start else 0
            stop = int(np.searchsorted(ends, before + _PIECE_EDGES, side="right"))
            stop = max(stop, start + 1)
            yield self._piece(slice(start, stop))
            start = stop
        for rows in (self._edges, self._edge_features, self._node_features):
            if rows is not None:
                rows.finish()

    def _piece(self, graphs: slice) -> GraphStore:
        node_counts, edge_counts = self.node_counts[graphs], self.edge_counts[graphs]
        nodes, edges = int(node_counts.sum()), int(edge_counts.sum())
        pairs = self._read_pairs(graphs, edges)
        x: Bytes | npt.NDArray[np.float32]
        edge_attr: torch.Tensor | None = None
        if self._node_features is not None:
            x = _one_hot(self._node_features, nodes, self.recipe.node_categories)
            one_hot = _one_hot(self._edge_features, edges, self.recipe.edge_categories)
            edge_attr = torch.from_numpy(np.repeat(one_hot, 2, axis=0))
        else:
            features = self._read_numbers(edges)
            first = np.cumsum(node_counts) - node_counts
            ends = pairs + np.repeat(first, edge_counts)[:, None]
            x = _mean_at_nodes(ends, features, nodes).astype(np.float32)
        # Both directions of an edge one after the other, so that graphs stay together.
        both = np.repeat(pairs, 2, axis=0)
        both[1::2] = pairs[:, ::-1]
        return GraphStore(
            x=torch.from_numpy(x),
            edge_index=torch.from_numpy(both.T),
            y=torch.from_numpy(self.labels[graphs]),
            node_counts=torch.from_numpy(node_counts),
            edge_counts=torch.from_numpy(2 * edge_counts),
            edge_attr=edge_attr,
            name=self.files.name,
            num_outputs=self.recipe.classes,
        )

    def _read_pairs(self, graphs: slice, edges: int) -> Ints:
        """Read the edges of some graphs, ``[edges, 2]``, and check that their nodes exist."""
        before = self._edges.taken
        pairs: Ints = self._edges.take(edges)
        limit = np.repeat(self.node_counts[graphs], self.edge_counts[graphs])
        wrong = ((pairs < 0) | (pairs >= limit[:, None])).any(axis=1)
        if wrong.any():
            line = int(wrong.argmax())
            ends = np.cumsum(self.edge_counts[graphs])
            graph = graphs.start + int(np.searchsorted(ends, line, side="right"))
            raise DataError(
                f"{self._edges.label}, line {before + line + 1}: an edge of graph {graph} joins "
                f"nodes {pairs[line, 0]} and {pairs[line, 1]}, but the graph has nodes 0 to "
                f"{limit[line] - 1}"
            )
        return pairs

    def _read_numbers(self, edges: int) -> Doubles:
        before = self._edge_features.taken
        features: Doubles = self._edge_features.take(edges)
        wrong = ~np.isfinite(features.astype(np.float32)).all(axis=1)
        if wrong.any():
            line = before + int(wrong.argmax()) + 1
            raise DataError(f"{self._edge_features.label}, line {line}: expected finite numbers")
        return features


def write(path: str | Path, target: str | Path) -> None:
    """Read the tables of an OGB data set into the file of a store, in bounded memory.

    Args:
        path: Folder or zip archive, named after the data set, such as ``ogbg_molhiv.zip``.
        target: The file to write, for :meth:`GraphStore.load()
            <graph_transplant.graphs.GraphStore.load>`.

    Raises:
        DataError: If files are missing or malformed; the message names file, line and problem.
    """
    _write(_open(Path(path)), Path(target))


def _open(path: Path) -> _Tables:
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    name = _name_of(path)
    files = None if name is None else _scan(path, name)
    if files is None:
        known = ", ".join(known.replace("-", "_") for known in DATASETS)
        raise DataError(
            f"{path}: not an OGB data set; expected a folder or zip archive called one of {known} "
            "with the files raw/edge.csv.gz, raw/num-node-list.csv.gz and others"
        )
    for part, file in DATASETS[files.name].parts().items():
        if part not in files:
            raise DataError(f"{path}: the file {file} of {files.name} is missing")
    return files


def _write(files: _Tables, target: Path) -> None:
    reader = _Reader(files)
    recipe = reader.recipe
    with StoreWriter(
        target,
        name=files.name,
        num_outputs=recipe.classes,
        label_names=recipe.label_names,
        num_continuous=recipe.edge_numbers,
        official=torch.from_numpy(reader.official),
    ) as writer:
        for piece in reader.pieces():
            writer.append(piece)


def load(path: str | Path) -> GraphStore:
    """Load an OGB data set, by way of a file in the cache that is mapped into memory.

    The first time the tables are read and the file is written; later only if they have changed.

    Args:
        path: Folder or zip archive, named after the data set, such as ``ogbg_molhiv.zip``.

    Returns:
        The data set, with its published split as ``official``.

    Raises:
        DataError: If files are missing or malformed, or the cache cannot be written.
    """
    files = _open(Path(path))
    prefix = f"{files.name}-{tu._digest(str(Path(path).resolve()))}-"
    content = tu._digest(f"{_READER_VERSION}\0{files.state()}")
    folder = tu.cache_folder() / "ogb"
    cached = folder / f"{prefix}{content}.safetensors"
    if cached.is_file():
        try:
            return _load_cached(cached, files.name)
        except DataError as error:
            log.warning("cached data set %s cannot be used and is made anew: %s", cached, error)
    log.info("reading %s from %s", files.name, files.where)
    try:
        _write(files, cached)
        for old in folder.glob(f"{prefix}*.safetensors"):
            if old != cached:
                old.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"data set {files.name!r} cannot be written to {folder} ({error}); name another folder "
            f"with the environment variable {tu.CACHE_VARIABLE}"
        ) from error
    return _load_cached(cached, files.name)


def _load_cached(cached: Path, name: str) -> GraphStore:
    store = GraphStore.load(cached)
    store.featurizer = DATASETS[name].featurizer
    return store


# ------------------------------------------------------------------ download


def _address(name: str, root: str | Path | None) -> str:
    """Look up the address of a data set in the table of the package ``ogb``."""
    # The package is not imported: that would ask the network for its newest version.
    spec = importlib.util.find_spec("ogb")
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"data set {name!r} is not on this machine, and its address is known to the package "
            f"`ogb` alone: pip install graph-transplant[ogb]. {places(name, root)}"
        )
    table = Path(spec.submodule_search_locations[0]) / "graphproppred" / "master.csv"
    try:
        with table.open(encoding="utf-8", newline="") as file:
            rows = {row[0]: row for row in csv.reader(file) if row}
        return rows["url"][rows[""].index(name)]
    except (OSError, KeyError, ValueError, IndexError) as error:
        raise DataError(
            f"the address of data set {name!r} cannot be read from {table} ({error}); "
            "pip install graph-transplant[ogb] installs a version of `ogb` that has it"
        ) from error


def download(name: str, root: str | Path | None = None) -> Path:
    """Download an OGB data set from the address that the package ``ogb`` knows.

    Args:
        name: Name of the data set, such as ``"ogbg-molhiv"``.
        root: Folder to put the archive in. By default a folder of the package's cache.

    Returns:
        The path of the archive.

    Raises:
        DataError: If the package ``ogb`` is missing, or the data set cannot be downloaded or
            written; the message says where it was looked for and how to fetch it by hand.
    """
    url = _address(name, root)
    folder = (tu.cache_folder() / "downloads") if root is None else Path(root).expanduser()
    target = folder / f"{name.replace('-', '_')}.zip"
    log.info("downloading %s", url)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: an interrupted download must not look like a data set.
        with tempfile.TemporaryDirectory(dir=folder) as beside:
            arrived = Path(beside) / target.name
            _fetch(url, arrived)
            arrived.replace(target)
    except OSError as error:
        raise DataError(
            f"data set {name!r} is not on this machine and could not be downloaded from {url} to "
            f"{folder} ({error}). {places(name, root)} To get it by hand, download that address "
            f"elsewhere and put it as {target.name} in one of these folders."
        ) from error
    return target


def _fetch(url: str, target: Path) -> None:
    """Download to a file; nothing of it is kept in memory."""
    with urllib.request.urlopen(url, timeout=tu._TIMEOUT_SECONDS) as answer, target.open("wb") as f:
        while chunk := answer.read(1 << 20):
            f.write(chunk)
            if f.tell() > _MAX_DOWNLOAD:
                raise OSError(f"larger than {_MAX_DOWNLOAD >> 30} GiB, given up")
    if not zipfile.is_zipfile(target):
        raise OSError("the answer is not a zip archive")
