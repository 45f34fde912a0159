"""TU data sets: found on this machine or downloaded, read fast, kept as a flat store.

The TU layout is a folder (or a zip archive of one) of plain text files ``NAME_*.txt``:

===================  ==========================  =================================================
file                 one line per                content
===================  ==========================  =================================================
``A``                directed edge               two node numbers, counted from 1 over all graphs
``graph_indicator``  node                        number of its graph, from 1, sorted, no gaps
``graph_labels``     graph                       its class, any whole number
``graph_attributes`` graph (where there are no   the values to be regressed
                     labels)
``node_labels``      node (optional)             one or more whole numbers
``node_attributes``  node (optional)             real numbers
``edge_labels``      line of ``A`` (optional)    one or more whole numbers
``edge_attributes``  line of ``A`` (optional)    real numbers
===================  ==========================  =================================================

What becomes of them agrees with :class:`torch_geometric.datasets.TUDataset`:

* ``x`` is ``[attributes, one-hot labels]``, and so is ``edge_attr``. A label column becomes one
  one-hot column for *every* whole number from its smallest to its largest value, also for those
  that do not occur (DD: 89 columns for 82 labels in use).
* Self-loops are removed (COLLAB publishes 2837), and an edge that is listed more than once is kept
  once (IMDB-BINARY lists each twice). Unlike in PyG, which adds them up, it keeps the attributes
  of its first line.
* Classes are numbered ``0..C-1`` in the order of their original values, which stay readable as
  ``label_names``.
"""

from __future__ import annotations

import hashlib
import io
import logging
import lzma
import os
import re
import tempfile
import urllib.request
import warnings
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, final

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError

from graph_transplant.errors import DataError
from graph_transplant.graphs import GraphStore

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

DATA_VARIABLE: Final = "GRAPH_TRANSPLANT_DATA"
CACHE_VARIABLE: Final = "GRAPH_TRANSPLANT_CACHE"

# Part of every cache key: raise it whenever the same files would be read into a different store.
_READER_VERSION: Final = 1
# Text is parsed in pieces of this many bytes, so that the largest file never lies in memory whole.
_CHUNK: Final = 1 << 24
# Read in small sips: `zipfile` unpacks at once all the LZMA data it reads, however large it grows.
_SIP: Final = 1 << 18
# No line is nearly as long: what is unpacked must not fill memory without end.
_MAX_LINE: Final = 1 << 24
# A member of an archive that claims more than this is not a graph data set but a zip bomb, and so
# is a large one that was packed far better than numbers of graphs can be.
_MAX_MEMBER: Final = 4 << 30
_LARGE_MEMBER: Final = 1 << 28
_MAX_RATIO: Final = 200
_MAX_DOWNLOAD: Final = 1 << 30
# One-hot columns take memory in proportion to the largest label: refuse what no machine would hold.
_MAX_ONE_HOT: Final = 1 << 30
_TIMEOUT_SECONDS: Final = 30.0

_PARTS: Final = (
    "A",
    "graph_indicator",
    "graph_labels",
    "graph_attributes",
    "node_labels",
    "node_attributes",
    "edge_labels",
    "edge_attributes",
)
_PART_FILE: Final = re.compile(rf"(?P<name>.+)_(?P<part>{'|'.join(_PARTS)})\.txt")
_WHOLE_NUMBER: Final = re.compile(rb"[+-]?[0-9]+")
_BLANK: Final = b" \t\r\n"
_INT_CHARACTERS: Final = b"0123456789+- \t\r"
_FLOAT_CHARACTERS: Final = _INT_CHARACTERS + b".eEnaifNAIF"


# ------------------------------------------------------------------ where the files lie


class _Files(ABC):
    """The text files of one data set, wherever they lie.

    Args:
        name: Name of the data set: what stands before ``_A.txt``.
        where: The folder or archive, for messages.
        files: The path of each part that exists, by part (``"A"``, ``"node_labels"``, …).
    """

    def __init__(self, name: str, where: str, files: dict[str, str]) -> None:
        self.name = name
        self.where = where
        self.files = files

    def __contains__(self, part: str) -> bool:
        return part in self.files

    def label(self, part: str) -> str:
        """Return what messages call the file of ``part``."""
        return f"{self.where}: {self.name}_{part}.txt"

    @abstractmethod
    def open(self, part: str) -> IO[bytes]:
        """Open the file of ``part`` for reading bytes."""

    @abstractmethod
    def state(self) -> list[tuple[str, int, int]]:
        """Return name, size and time of change of what would be read, for the cache key."""


@final
class _Folder(_Files):
    def open(self, part: str) -> IO[bytes]:
        return Path(self.files[part]).open("rb")

    def state(self) -> list[tuple[str, int, int]]:
        status = {part: Path(path).stat() for part, path in sorted(self.files.items())}
        return [(part, s.st_size, s.st_mtime_ns) for part, s in status.items()]


@final
class _Archive(_Files):
    # Members are read in memory and never extracted: a path like "../x" in an archive does no harm.
    def open(self, part: str) -> IO[bytes]:
        with zipfile.ZipFile(self.where) as archive:
            member = archive.getinfo(self.files[part])
            size = member.file_size
            if size > _LARGE_MEMBER and size > _MAX_RATIO * member.compress_size:
                raise DataError(
                    f"{self.label(part)}: claims to unpack to {size >> 20} MiB, more than "
                    f"{_MAX_RATIO} times its size in the archive; that is not read"
                )
            if size > _MAX_MEMBER:
                raise DataError(
                    f"{self.label(part)}: claims to unpack to {size / 2**30:.0f} GiB; "
                    f"more than {_MAX_MEMBER >> 30} GiB is not read"
                )
            # The open member keeps the archive's file open until it is closed itself.
            return archive.open(self.files[part])

    def state(self) -> list[tuple[str, int, int]]:
        status = Path(self.where).stat()
        return [("zip", status.st_size, status.st_mtime_ns)]


def _group(paths: list[str]) -> dict[tuple[str, str], dict[str, str]]:
    """Group file paths by (folder, data set name) and part."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for path in sorted(paths):
        pure = PurePosixPath(path)
        match = _PART_FILE.fullmatch(pure.name)
        if match is not None and "__MACOSX" not in pure.parts:
            found.setdefault((str(pure.parent), match["name"]), {})[match["part"]] = path
    return found


def _scan(path: Path, name: str | None = None) -> _Files | None:
    """Return the TU files in a folder (or its ``raw/``) or in a zip archive, or None.

    Args:
        path: The folder or archive.
        name: Name of the data set, or None for the only one there is.

    Raises:
        DataError: If the archive cannot be read, or if there is more than one data set.
    """
    kind: type[_Files]
    if path.is_dir():
        kind = _Folder
        found = _group([p.as_posix() for p in path.glob("*.txt")])
        if not found:
            found = _group([p.as_posix() for p in path.glob("raw/*.txt")])
    elif path.is_file() and path.suffix.lower() == ".zip":
        kind = _Archive
        try:
            with zipfile.ZipFile(path) as archive:
                found = _group(archive.namelist())
        except (zipfile.BadZipFile, OSError) as error:
            raise DataError(f"{path}: not a readable zip archive ({error})") from error
    else:
        return None
    # The data set that a folder or archive is named after comes before others in it.
    wanted = path.stem if name is None else name
    if name is not None or any(key[1] == wanted for key in found):
        found = {key: files for key, files in found.items() if key[1] == wanted}
    if len(found) > 1:
        several = sorted(f"{folder}/{name}" for folder, name in found)
        names = ", ".join(several[:10]) + (", …" if len(several) > 10 else "")
        raise DataError(f"{path}: holds more than one TU data set ({names}); give one of them")
    for (_, found_name), files in found.items():
        return kind(found_name, str(path), files)
    return None


def is_tu(path: Path) -> bool:
    """Tell whether ``path`` is a folder or a zip archive with files of the TU layout."""
    return _scan(path) is not None


def search_folders(root: str | Path | None = None) -> list[Path]:
    """Return the folders in which data sets are looked for, first the one that counts most.

    These are ``root``, the folder named by the environment variable ``GRAPH_TRANSPLANT_DATA``, and
    the package's own folder for downloads. Any of them may not exist yet.

    Raises:
        DataError: If one of the first two is a file, or cannot be looked into.
    """
    variable = os.environ.get(DATA_VARIABLE)
    given = {"`root`": root, DATA_VARIABLE: variable or None}
    folders = [_folder(what, place) for what, place in given.items() if place is not None]
    return [*folders, (cache_folder() / "downloads").expanduser()]


def _folder(what: str, place: str | Path) -> Path:
    """Return a folder to look in, unless it cannot be looked into."""
    folder = Path(place).expanduser()
    try:
        if folder.is_file():
            raise DataError(f"{what} must be a folder, got the file {folder}")
        # What permissions say is known from trying alone; the dot asks for what lies in the folder.
        os.stat(os.path.join(folder, os.curdir))
    except FileNotFoundError:
        pass  # A download makes it.
    except OSError as error:
        raise DataError(
            f"{what} must be a folder that can be looked into, got {folder}: {error.strerror}"
        ) from error
    return folder


def find(name: str, root: str | Path | None = None) -> Path | None:
    """Return where a TU data set lies on this machine.

    Looked for are ``name/`` (with the text files in it or in ``name/raw/``), ``name.zip``,
    ``tu/name/`` and ``tu/name.zip``, each in all of :func:`search_folders`.

    Args:
        name: Name of the data set, such as ``"ENZYMES"``.
        root: Folder to look in first.

    Returns:
        The folder or archive, or None if there is none.
    """
    for folder in search_folders(root):
        for place in ("", "tu"):
            for file in (name, f"{name}.zip"):
                path = folder / place / file
                # A folder of that name without such files is no data set: look further.
                if path.is_dir() and _scan(path, name) is not None:
                    return path
                if path.is_file() and file.endswith(".zip"):
                    return path
    return None


# ------------------------------------------------------------------ reading text


def _explain(lines: list[bytes], first_line: int, columns: int, whole: bool) -> str:
    """Find the first line that is not ``columns`` numbers and say what is wrong with it."""
    kind = "a whole number" if whole else "a number"
    for offset, line in enumerate(lines):
        shown = line.decode("utf-8", "replace").strip()
        shown = repr(shown if len(shown) <= 60 else shown[:57] + "...")
        values = line.split(b",")
        if not line.strip():
            return f"line {first_line + offset} is empty"
        if len(values) != columns:
            return (
                f"line {first_line + offset}: expected {columns} "
                f"{'value' if columns == 1 else 'values separated by commas'}, "
                f"got {len(values)} in {shown}"
            )
        for value in values:
            text = value.strip()
            if whole:
                good = _WHOLE_NUMBER.fullmatch(text) is not None
            else:
                try:
                    float(text)
                except ValueError:
                    good = False
                else:
                    good = b"_" not in text
            if not good:
                shown_value = text.decode("utf-8", "replace")[:60]
                return f"line {first_line + offset}: expected {kind}, got {shown_value!r}"
    return f"lines {first_line} to {first_line + len(lines) - 1} cannot be read as numbers"


def _pieces(files: _Files, part: str) -> Iterator[bytes]:
    """Yield the text of a file in pieces of whole lines, none of which ends in a line break.

    The last line so far and the blanks after it are always held back, so that blank lines at the
    very end of the file are dropped and those in the middle stay for the parser to see.
    """
    held = b""
    try:
        with files.open(part) as stream:
            while chunk := b"".join(islice(iter(partial(stream.read, _SIP), b""), _CHUNK // _SIP)):
                held += chunk
                cut = held.rstrip(_BLANK).rfind(b"\n")
                if cut >= 0:
                    yield held[:cut]
                    held = held[cut + 1 :]
                if len(held) > _MAX_LINE:
                    raise DataError(
                        f"{files.label(part)}: a line, or blank lines in a row, of more than "
                        f"{_MAX_LINE >> 20} MiB"
                    )
    except (
        OSError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        NotImplementedError,  # a compression method this Python does not know
        RuntimeError,  # an encrypted archive
    ) as error:
        raise DataError(f"{files.label(part)}: cannot be read ({error})") from error
    held = held.rstrip(_BLANK)
    if held:
        yield held


def _parse(files: _Files, part: str, *, whole: bool) -> Iterator[npt.NDArray[Any]]:
    """Yield the numbers of a file, piece by piece, as int64 or float64 ``[lines, columns]``.

    All lines must have as many values as the first; anything else is a :class:`DataError` with the
    line. ``numpy.fromstring`` reads 40 million numbers a second but does not see where lines end,
    so the shape of a piece is checked on its text beforehand.
    """
    columns = 0
    line = 1
    skip = _INT_CHARACTERS if whole else _FLOAT_CHARACTERS
    dtype = np.int64 if whole else np.float64
    for piece in _pieces(files, part):
        text = piece.removeprefix(b"\xef\xbb\xbf") if line == 1 else piece
        if columns == 0:
            columns = text.partition(b"\n")[0].count(b",") + 1
        lines = text.count(b"\n") + 1
        row = b"," * (columns - 1) + b"\n"
        values = None
        if text.translate(None, skip) == (row * lines)[:-1]:
            with warnings.catch_warnings():
                # Text that does not parse to its end is so far only a warning in NumPy.
                warnings.simplefilter("error", DeprecationWarning)
                try:
                    values = np.fromstring(text.replace(b"\n", b","), dtype=dtype, sep=",")
                except (DeprecationWarning, ValueError):
                    values = None
        if values is None or values.size != lines * columns:
            problem = _explain(text.split(b"\n"), line, columns, whole)
            raise DataError(f"{files.label(part)}, {problem}")
        yield values.reshape(lines, columns)
        line += lines
    if columns == 0:
        raise DataError(f"{files.label(part)}: is empty")


def _require(files: _Files, part: str) -> None:
    if part not in files:
        there = ", ".join(f"{files.name}_{p}.txt" for p in _PARTS if p in files)
        raise DataError(
            f"{files.where}: the file {files.name}_{part}.txt is missing (there are {there})"
        )


def _read_table(files: _Files, part: str, *, whole: bool, lines: int, of: str) -> npt.NDArray[Any]:
    """Read a file that must have ``lines`` lines, one per ``of``."""
    table = np.concatenate(list(_parse(files, part, whole=whole)))
    if len(table) != lines:
        raise DataError(
            f"{files.label(part)}: has {len(table)} lines, expected {lines}, one for each {of}"
        )
    return table


def _read_attributes(files: _Files, part: str, *, lines: int, of: str) -> Floats:
    """Read real numbers as float32 ``[lines, columns]``, all of them finite."""
    if part not in files:
        return np.empty((lines, 0), dtype=np.float32)
    table = _read_table(files, part, whole=False, lines=lines, of=of)
    # What overflows to infinity here is reported below with its line, not as a warning.
    with np.errstate(over="ignore"):
        values = table.astype(np.float32)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        line, column = bad[0].tolist()
        raise DataError(
            f"{files.label(part)}, line {line + 1}: value {column + 1} is "
            f"{table[line, column]}, expected a finite number"
        )
    return values


def _read_one_hot(files: _Files, part: str, *, lines: int, of: str) -> Floats:
    """Read whole-number labels as one-hot float32 columns, smallest to largest value."""
    if part not in files:
        return np.empty((lines, 0), dtype=np.float32)
    table: Ints = _read_table(files, part, whole=True, lines=lines, of=of)
    # Python integers: the span of absurd labels must not wrap around.
    low = [int(v) for v in table.min(axis=0)]
    widths = [int(v) - m + 1 for v, m in zip(table.max(axis=0), low, strict=True)]
    if sum(widths) * lines > _MAX_ONE_HOT:
        raise DataError(
            f"{files.label(part)}: labels spread over {sum(widths)} values would take "
            f"{sum(widths) * lines * 4 / 2**30:.0f} GiB as one-hot columns for {lines} {of}s; "
            "number the labels without gaps, or leave this file out"
        )
    one_hot = np.zeros((lines, sum(widths)), dtype=np.float32)
    rows = np.arange(lines)
    first = 0
    for column, (smallest, width) in enumerate(zip(low, widths, strict=True)):
        one_hot[rows, first + table[:, column] - smallest] = 1.0
        first += width
    return one_hot


# ------------------------------------------------------------------ putting a store together


@dataclass(frozen=True)
class _Nodes:
    """Which node belongs to which graph."""

    graph: npt.NDArray[np.int32]  # [nodes], from 0
    counts: Ints  # [graphs]
    start: npt.NDArray[np.int32]  # [graphs], number of the first node


def _read_nodes(files: _Files) -> _Nodes:
    part = "graph_indicator"
    _require(files, part)
    table: Ints = np.concatenate(list(_parse(files, part, whole=True)))
    label = files.label(part)
    if table.shape[1] != 1:
        raise DataError(f"{label}, line 1: expected one graph number, got {table.shape[1]} values")
    number = table[:, 0]
    if number[0] != 1:
        raise DataError(f"{label}, line 1: graphs are numbered from 1, got {number[0]}")
    step = np.diff(number)
    bad = np.flatnonzero((step != 0) & (step != 1))
    if len(bad):
        line = int(bad[0]) + 2
        before, after = number[bad[0]], number[bad[0] + 1]
        problem = (
            f"must be sorted, got graph {after} after graph {before}"
            if after < before
            else f"jumps from graph {before} to graph {after}, a graph between has no nodes"
        )
        raise DataError(f"{label}, line {line}: {problem}")
    counts = np.bincount(number - 1)
    start = np.cumsum(counts) - counts
    return _Nodes((number - 1).astype(np.int32), counts, start.astype(np.int32))


@dataclass(frozen=True)
class _Edges:
    """Edges in the order graph, row, column, without self-loops and repeats."""

    index: npt.NDArray[np.int32]  # [2, edges], nodes numbered within their graph
    counts: Ints  # [graphs]
    lines: int  # of the file
    line: Ints | None  # [edges], from 0: where each edge stands in the file, if that matters


def _read_edges(files: _Files, nodes: _Nodes) -> _Edges:
    """Read, check and sort the edges.

    While being read, an edge is the one number ``row · (size of the largest graph) + (column within
    its graph)``: sorting these numbers sorts the edges by graph, row and column, and for nearly all
    data sets they fit in 32 bits, so that the 24.6 million edges of COLLAB take 100 MB.
    """
    label = files.label("A")
    total, width = len(nodes.graph), int(nodes.counts.max())
    dtype = np.int32 if total * width <= np.iinfo(np.int32).max else np.int64
    attributed = "edge_labels" in files or "edge_attributes" in files
    keys: list[npt.NDArray[Any]] = []
    kept: list[Ints] = []
    lines = 0
    for pairs in _parse(files, "A", whole=True):
        if pairs.shape[1] != 2:
            raise DataError(
                f"{label}, line 1: expected 2 node numbers, got {pairs.shape[1]} values"
            )
        if pairs.min() < 1 or pairs.max() > total:
            at = int(np.flatnonzero(((pairs < 1) | (pairs > total)).any(axis=1))[0])
            node = next(v for v in pairs[at].tolist() if not 1 <= v <= total)
            raise DataError(
                f"{label}, line {lines + at + 1}: there is no node {node}; "
                f"nodes are numbered from 1 to {total}"
            )
        row, column = (pairs - 1).T
        graph = nodes.graph[row]
        crossing = np.flatnonzero(graph != nodes.graph[column])
        if len(crossing):
            at = int(crossing[0])
            one, other = nodes.graph[[row[at], column[at]]] + 1
            raise DataError(
                f"{label}, line {lines + at + 1}: the edge {row[at] + 1}, {column[at] + 1} joins "
                f"graph {one} and graph {other}; an edge must stay in one graph"
            )
        proper = np.flatnonzero(row != column)
        key = row * width + (column - nodes.start[graph])
        keys.append(key[proper].astype(dtype))
        if attributed:
            kept.append(proper + lines)
        lines += len(pairs)

    key = np.concatenate(keys)
    keys.clear()
    line = None
    if attributed:
        # Stable, so that a repeated edge keeps its first line.
        order = np.argsort(key, kind="stable")
        key, line = key[order], np.concatenate(kept)[order]
    else:
        key.sort()
    first = np.ones(len(key), dtype=np.bool_)
    np.not_equal(key[1:], key[:-1], out=first[1:])
    if not first.all():
        key = key[first]
        line = None if line is None else line[first]
    index = np.empty((2, len(key)), dtype=np.int32)
    np.divmod(key, dtype(width), out=(index[0], index[1]), casting="unsafe")
    del key
    graph = nodes.graph[index[0]]
    index[0] -= nodes.start[graph]
    return _Edges(index, np.bincount(graph, minlength=len(nodes.counts)), lines, line)


def read(path: str | Path) -> GraphStore:
    r"""Read a TU data set from its text files, without looking at or writing a cache.

    Args:
        path: Folder with ``NAME_A.txt`` and the other files, in it or in its folder ``raw``; or a
            zip archive of such a folder.

    Returns:
        The data set as a :class:`~graph_transplant.graphs.GraphStore`.

    Raises:
        DataError: If files are missing or malformed; the message names file, line and problem.

    Example:
        >>> import tempfile
        >>> text = {"A": "1, 2\n2, 1\n3, 4\n4, 3\n", "graph_indicator": "1\n1\n2\n2\n",
        ...         "graph_labels": "-1\n1\n", "node_labels": "6\n8\n6\n7\n"}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for part, lines in text.items():
        ...         _ = (Path(folder) / f"PAIR_{part}.txt").write_text(lines)
        ...     store = read(folder)
        >>> len(store), store.label_names, store.labels.tolist()
        (2, ('-1', '1'), [0, 1])
        >>> store.x.tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    return _read(_open(Path(path)))


def _open(path: Path) -> _Files:
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    files = _scan(path)
    if files is None:
        raise DataError(
            f"{path}: not a TU data set; expected a folder or a zip archive with the files "
            "NAME_A.txt, NAME_graph_indicator.txt and NAME_graph_labels.txt"
        )
    return files


def _read(files: _Files) -> GraphStore:
    for part in ("A", "graph_indicator"):
        _require(files, part)
    if "graph_attributes" not in files:
        _require(files, "graph_labels")

    nodes = _read_nodes(files)
    total, graphs = len(nodes.graph), len(nodes.counts)
    label_names: list[str] | None = None
    if "graph_labels" in files:
        table: Ints = _read_table(files, "graph_labels", whole=True, lines=graphs, of="graph")
        if table.shape[1] != 1:
            raise DataError(
                f"{files.label('graph_labels')}, line 1: expected one class, "
                f"got {table.shape[1]} values"
            )
        values, classes = np.unique(table[:, 0], return_inverse=True)
        y = torch.from_numpy(classes)
        label_names = [str(value) for value in values]
    else:
        y = torch.from_numpy(_read_attributes(files, "graph_attributes", lines=graphs, of="graph"))

    attributes = _read_attributes(files, "node_attributes", lines=total, of="node")
    one_hot = _read_one_hot(files, "node_labels", lines=total, of="node")
    x = _side_by_side(attributes, one_hot)

    edges = _read_edges(files, nodes)
    edge_attr = _side_by_side(
        _read_attributes(files, "edge_attributes", lines=edges.lines, of="edge"),
        _read_one_hot(files, "edge_labels", lines=edges.lines, of="edge"),
    )
    if edge_attr is not None:
        edge_attr = edge_attr[edges.line]

    return GraphStore(
        x=None if x is None else torch.from_numpy(x),
        edge_index=torch.from_numpy(edges.index),
        y=y,
        node_counts=torch.from_numpy(nodes.counts),
        edge_counts=torch.from_numpy(edges.counts),
        edge_attr=None if edge_attr is None else torch.from_numpy(edge_attr),
        name=files.name,
        task="multiclass" if label_names is not None else "regression",
        label_names=label_names,
        num_continuous=attributes.shape[1],
    )


def _side_by_side(attributes: Floats, one_hot: Floats) -> Floats | None:
    """Join columns, or return None where there are none at all."""
    if attributes.shape[1] and one_hot.shape[1]:
        return np.concatenate([attributes, one_hot], axis=1)
    columns = attributes if attributes.shape[1] else one_hot
    return columns if columns.shape[1] else None


# ------------------------------------------------------------------ the cache


def cache_folder() -> Path:
    """Return the folder for what was read or downloaded once.

    It is the folder named by the environment variable ``GRAPH_TRANSPLANT_CACHE``, or else
    ``graph-transplant`` in ``XDG_CACHE_HOME`` or ``~/.cache``. Nothing in it is needed to be kept.
    """
    variable = os.environ.get(CACHE_VARIABLE)
    if variable:
        return Path(variable).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "graph-transplant"


def load(path: str | Path) -> GraphStore:
    """Read a TU data set, from the cache if the files have not changed since they were read.

    The cache holds the finished store in one file for each data set and place. A cache file that
    cannot be read is replaced, with a warning in the log; a cache folder that cannot be written is
    noted in the log, and the data set is read from text each time.

    Args:
        path: Folder or zip archive, as for :func:`read`.

    Returns:
        The data set as a :class:`~graph_transplant.graphs.GraphStore`.

    Raises:
        DataError: If files are missing or malformed; the message names file, line and problem.
    """
    files = _open(Path(path))
    place = f"{files.name}\0{Path(path).resolve()}"
    content = f"{_READER_VERSION}\0{files.state()}"
    prefix = f"{files.name}-{_digest(place)}-"
    cached = cache_folder() / "tu" / f"{prefix}{_digest(content)}.safetensors"
    if cached.is_file():
        try:
            return GraphStore.load(cached)
        except (DataError, OSError) as error:
            log.warning("cached data set %s cannot be used and is made anew: %s", cached, error)
    store = _read(files)
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        store.save(cached)
        for old in cached.parent.glob(f"{prefix}*.safetensors"):
            if old != cached:
                old.unlink(missing_ok=True)
    except (OSError, SafetensorError) as error:
        log.warning("data set %s is not cached: %s", files.name, error)
    return store


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ------------------------------------------------------------------ download


def download(name: str, root: str | Path | None = None) -> Path:
    """Download a TU data set from where PyTorch Geometric gets it.

    Args:
        name: Name of the data set, such as ``"ENZYMES"``.
        root: Folder to put ``name.zip`` in. By default a folder of the package's cache.

    Returns:
        The path of the archive.

    Raises:
        DataError: If the data set cannot be downloaded or written; the message says where it was
            looked for and how to fetch it by hand.
    """
    # Only people who download need it.
    from torch_geometric.datasets import TUDataset

    url = f"{TUDataset.url}/{name}.zip"
    folder = (cache_folder() / "downloads") if root is None else Path(root).expanduser()
    log.info("downloading %s", url)
    try:
        content = _fetch(url)
    except OSError as error:
        raise DataError(
            f"data set {name!r} is not on this machine and could not be downloaded from {url} "
            f"({error}). {places(name, root)} To get it by hand, download that address elsewhere "
            f"and put {name}.zip in one of these folders."
        ) from error
    target = folder / f"{name}.zip"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: an interrupted download must not look like a data set.
        with tempfile.TemporaryDirectory(dir=folder) as beside:
            arrived = Path(beside) / target.name
            arrived.write_bytes(content)
            arrived.replace(target)
    except OSError as error:
        raise DataError(
            f"data set {name!r} was downloaded but cannot be written to {folder} ({error}); "
            f"name another folder with `root` or the environment variable {CACHE_VARIABLE}"
        ) from error
    return target


def _fetch(url: str) -> bytes:
    content = bytearray()
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:
        while chunk := answer.read(1 << 20):
            content += chunk
            if len(content) > _MAX_DOWNLOAD:
                raise OSError(f"larger than {_MAX_DOWNLOAD >> 20} MiB, given up")
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise OSError("the answer is not a zip archive")
    return bytes(content)


def places(name: str, root: str | Path | None = None) -> str:
    """Return a sentence that says where a data set was looked for."""
    folders = ", ".join(str(folder) for folder in search_folders(root))
    hints = []
    if root is None:
        hints.append("`root` is not given")
    if not os.environ.get(DATA_VARIABLE):
        hints.append(f"{DATA_VARIABLE} is not set")
    hint = f" ({' and '.join(hints)})" if hints else ""
    return f"Looked for {name}/, {name}.zip, tu/{name}/ and tu/{name}.zip in: {folders}{hint}."
