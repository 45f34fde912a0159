"""Store files: memory-mapped safetensors, written atomically.

Tensors have the names in :attr:`GraphStore.fields`; the header holds the rest and a digest.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from graph_transplant.data.featurizer import Featurizer
from graph_transplant.data.store import GraphStore, SortedEdges
from graph_transplant.data.tensors import axis_of, bytes_of
from graph_transplant.data.validation import checked_pieces, checked_split, require
from graph_transplant.errors import DataError, brief, check_choice
from graph_transplant.metrics import TASKS
from graph_transplant.utils.schema import Columns, plain, read, refuse_unknown

_FORMAT: Final = "graph-transplant store 2"
# Without a digest, and with the edges of directed graphs sorted by sender.
_FIRST_FORMAT: Final = "graph-transplant store 1"

# Replaces the digest in the hashed bytes.
_NO_DIGEST: Final = "0" * 64

_AT_ONCE: Final = 1 << 22

# Type names of the safetensors format.
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


class StoreWriter:
    """Writes a store to a file in parts, for data sets that do not fit into memory.

    The file has the format of :meth:`GraphStore.save`. Arguments are those of :class:`GraphStore`;
    by default, ``num_outputs`` is the largest of all parts, and ``official`` is taken from them.

    Example:
        >>> import graph_transplant as gt
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "motifs.safetensors"
        ...     with StoreWriter(path, name="more motifs", num_outputs=6) as writer:
        ...         for seed in range(3):
        ...             writer.append(gt.load("motifs", graphs=60, seed=seed))
        ...     GraphStore.load(path)
        GraphStore('more motifs': 180 graphs, 6 classes, ...)
    """

    def __init__(
        self,
        path: str | Path,
        *,
        name: str = "graphs",
        task: str = "multiclass",
        num_outputs: int | None = None,
        label_names: Sequence[str] | None = None,
        num_continuous: int | None = None,
        official: Tensor | None = None,
        featurizer: Featurizer | None = None,
    ) -> None:
        self.path, self.name = Path(path), name
        self._task = check_choice("task", task, TASKS)
        self._num_outputs, self._num_continuous = num_outputs, num_continuous
        self._label_names = None if label_names is None else tuple(map(str, label_names))
        self._featurizer = featurizer
        self._undirected = True
        self._official = official
        self._outputs = 0
        self._names: set[tuple[str, ...] | None] = set()
        self._continuous: set[int] = set()
        self._shapes: dict[str, tuple[torch.dtype, list[int]]] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # In the same directory, so that the finished file can be renamed.
        self._folder = tempfile.TemporaryDirectory(
            dir=self.path.parent, prefix=self.path.name, suffix=".part"
        )
        return self

    def append(self, piece: GraphStore) -> None:
        """Add the graphs of a store."""
        assert self._folder is not None, "only inside the `with` block"
        fits = piece.task == self._task
        require(fits, f"{self.name}: `task` is {self._task}, but a piece is {piece.task}")
        self._names.add(piece.label_names)
        self._continuous.add(piece.num_continuous)
        keys = [key for key in piece.fields if key != "official" or self._official is None]
        other = set(keys) ^ set(self._shapes or keys)
        require(not other, f"{self.name}: only some pieces have `{_label(min(other, default=''))}`")
        for part in piece.pieces():
            for key in keys:
                self._spool(key, part.field(key))
        self._outputs = max(self._outputs, piece.num_outputs)
        self._undirected = self._undirected and piece.undirected

    def _spool(self, key: str, value: Tensor) -> None:
        """Append values to the tensor's temporary file; ``edge_index`` has one file per row."""
        axis = axis_of(key)
        empty = list(value.narrow(axis, 0, 0).shape)
        dtype, shape = self._shapes.setdefault(key, (value.dtype, empty))
        fits = dtype in _TYPE_NAMES
        require(fits, f"{self.name}: `{_label(key)}` cannot be written: files cannot hold {dtype}")
        fits = value.dtype == dtype and empty == [
            0 if d == axis else n for d, n in enumerate(shape)
        ]
        require(
            fits,
            f"{self.name}: `{_label(key)}` must be {dtype} {shape} as before; a piece has "
            f"{value.dtype} {list(value.shape)}",
        )
        shape[axis] += value.shape[axis]
        for spool, row in zip(self._spools(key), value if axis else (value,), strict=True):
            with spool.open("ab") as file:
                file.write(bytes_of(row))

    def _spools(self, key: str) -> list[Path]:
        assert self._folder is not None
        number = list(self._shapes).index(key)
        return [Path(self._folder.name) / f"{number}-{row}" for row in range(axis_of(key) + 1)]

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._folder is not None
        try:
            with self._folder as folder:
                if kind is None:
                    self._finish(Path(folder) / self.path.name)
        finally:
            self._folder = None

    def _finish(self, whole: Path) -> None:
        require(bool(self._shapes), f"{self.name}: there are no graphs")
        outputs = self._outputs if self._num_outputs is None else self._num_outputs
        names, continuous = self._label_names, self._num_continuous
        if names is None and len(self._names) == 1:
            (found,) = self._names
            names = found if found is not None and len(found) == outputs else None
        if continuous is None:
            fits = len(self._continuous) == 1
            require(fits, f"{self.name}: `num_continuous` differs between pieces; pass it")
            (continuous,) = self._continuous
        header = Header(
            name=self.name,
            task=self._task,
            num_outputs=outputs,
            label_names=names,
            num_continuous=continuous,
            undirected=self._undirected,
            featurizer=None if self._featurizer is None else self._featurizer.to_dict(),
        )
        if self._official is not None:
            graphs = self._shapes["node_counts"][1][0]
            self._spool("official", checked_split(self.name, self._official, graphs))
        metadata = {"format": _FORMAT, "store": json.dumps(plain(header)), "sha256": _NO_DIGEST}
        # Wide types first, to align every tensor to its item size.
        order = sorted(self._shapes, key=lambda key: (-self._shapes[key][0].itemsize, key))
        shapes = {key: self._shapes[key] for key in order}
        with whole.open("xb") as file:
            file.write(_header(metadata, shapes))
            for spool in (spool for key in order for spool in self._spools(key)):
                with spool.open("rb") as values:
                    shutil.copyfileobj(values, file, _AT_ONCE)
                spool.unlink()
        metadata["sha256"] = _digest(whole, _NO_DIGEST)
        with whole.open("rb+") as again:
            again.write(_header(metadata, shapes))
        # Loading checks the arguments against the tensors.
        load(whole)
        whole.replace(self.path)


def _label(key: str) -> str:
    return key.removeprefix("node_field.")


def _header(
    metadata: Mapping[str, str], shapes: Mapping[str, tuple[torch.dtype, list[int]]]
) -> bytes:
    """Header of a safetensors file: the length of the JSON text in 8 bytes, then the text."""
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for key, (dtype, shape) in shapes.items():
        start, end = end, end + prod(shape) * dtype.itemsize
        header[key] = {"dtype": _TYPE_NAMES[dtype], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _digest(path: Path, entered: str) -> str:
    """SHA-256 of a file, with its digest in the header blanked out."""
    with path.open("rb") as file:
        head = file.read(8)
        head += file.read(int.from_bytes(head, "little"))
        digest = hashlib.sha256(head.replace(entered.encode(), _NO_DIGEST.encode()))
        while piece := file.read(_AT_ONCE):
            digest.update(piece)
    return digest.hexdigest()


def load(path: str | Path, *, check: bool = False) -> GraphStore:
    """Open a store; see :meth:`GraphStore.load`."""
    path = Path(path)
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        form, digest = metadata.get("format"), metadata.get("sha256", "")
        _expect(form in (_FORMAT, _FIRST_FORMAT), "its format is not supported by this version")
        if check and form == _FORMAT:
            fits = len(digest) == len(_NO_DIGEST) and digest == _digest(path, digest)
            _expect(fits, "it is damaged: its checksum does not match")
        content, where = upgrade(json.loads(metadata["store"])), f"{path}: its description"
        refuse_unknown(Header, content, where)
        store = _store_of(tensors, read(Header, content, where), by_receiver=form == _FORMAT)
        if check:
            for order, undirected in checked_pieces(store):
                fits = torch.equal(order, torch.arange(len(order)))
                fits = fits and undirected >= store.undirected
                _expect(fits, "its edges are not sorted, or not undirected as stated")
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except DataError:
        raise
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as a graph store: {brief(error)}") from None
    store.path = path.absolute()
    return store


def _expect(fits: bool, problem: str) -> None:
    if not fits:
        raise ValueError(problem)


@dataclass(frozen=True, kw_only=True)
class Header:
    """The description of a store in the header of its file."""

    name: str
    task: str
    num_outputs: Columns
    label_names: tuple[str, ...] | None
    num_continuous: Columns
    undirected: bool
    featurizer: dict[str, Any] | None


def upgrade(header: Any) -> Any:
    """Convert the header of an earlier version."""
    if not isinstance(header, dict):
        return header
    header = {"label_names": None, "featurizer": None, **header}
    reading = header.pop("reading", None)  # the featurizer's name in version 0.1
    return header | {"featurizer": header["featurizer"] or reading}


# Expected type and dimensions of tensors.
_TENSORS: Final = {
    "edge_index": (torch.int32, 2),
    "node_counts": (torch.int64, 1),
    "edge_counts": (torch.int64, 1),
    "official": (torch.int8, 1),
    "groups": (torch.int64, 1),
}
# Limit for numbers of nodes, edges or outputs, against overflow.
_TOO_LARGE: Final = 2**31
# Limits for what takes no space in the file: outputs, and nodes without features.
_MOST_OUTPUTS: Final = 1 << 16
_MANY_NODES: Final = 1 << 24


def _store_of(tensors: Mapping[str, Tensor], header: Header, *, by_receiver: bool) -> GraphStore:
    """Build the store; the edges of old files are not sorted by receiver."""
    for key, value in tensors.items():
        kind = value.dtype, value.dim()
        fits = kind == _TENSORS.get(key, kind) and value.dim() > 0 and value.dtype in _TYPE_NAMES
        fits = fits and not (key.endswith("_counts") and bool((value >= _TOO_LARGE).any()))
        found = f"{value.dtype} {list(value.shape)}"
        _expect(fits, f"{key[:40]!r} has an unexpected type or shape, or too large counts: {found}")
    _expect(header.num_outputs <= _MOST_OUTPUTS, "it has too many classes or targets")
    nodes, size = int(tensors["node_counts"].sum()), sum(value.nbytes for value in tensors.values())
    _expect(nodes <= max(_MANY_NODES, size), "it has too many nodes for its size")
    undirected, edges, made = header.undirected, tensors["edge_index"], header.featurizer
    store = GraphStore(
        name=header.name,
        task=header.task,
        num_outputs=header.num_outputs,
        label_names=header.label_names,
        num_continuous=header.num_continuous,
        x=tensors.get("x"),
        edge_index=SortedEdges(edges, undirected) if by_receiver or undirected else edges,
        edge_attr=tensors.get("edge_attr"),
        y=tensors["y"],
        node_counts=tensors["node_counts"],
        edge_counts=tensors["edge_counts"],
        node_fields={_label(k): v for k, v in tensors.items() if k.startswith("node_field.")},
        featurizer=None if made is None else Featurizer.from_dict(made),
    )
    store.groups = tensors.get("groups")
    if "official" in tensors:
        # A saved subset may lack some parts.
        split = checked_split(store.name, tensors["official"], len(store), whole=False)
        store.official = split
    return store
