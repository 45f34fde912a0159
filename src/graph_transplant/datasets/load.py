"""Load data sets by name, from files (:data:`FORMATS`) or Python objects (:data:`OBJECTS`)."""

from __future__ import annotations

import copy
import inspect
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count as count_from
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset

from graph_transplant.config.datasets import (
    CATALOGUE,
    READING,
    DatasetInfo,
    dataset_names,
    existing,
    is_name,
    not_found,
)
from graph_transplant.data import Featurizer, GraphStore, InputRows, Origin
from graph_transplant.data.pyg import is_pyg
from graph_transplant.datasets import jsonl, molecule_tables, motifs, networkx, ogb, tu
from graph_transplant.datasets import tables as formats
from graph_transplant.datasets.chemistry import WRITE_SMILES
from graph_transplant.datasets.duplicates import find_duplicates
from graph_transplant.datasets.rows import Chunk, Reading, TargetCodec
from graph_transplant.errors import DataError, GraphTransplantError, SkippedRows, check_at_least
from graph_transplant.utils.text import count, listed

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    from torch_geometric.data import Data, Dataset

    Loadable: TypeAlias = (
        str
        | Path
        | GraphStore
        | pd.DataFrame
        | pd.Series[str]
        | Dataset
        | Sequence[str]
        | Sequence[Data]
        | Sequence[nx.Graph[Any]]
    )
else:
    # Importing these libraries would be slow and is not needed to evaluate annotations.
    Data = Loadable = Any


log = logging.getLogger(__name__)

_SHOWN_ROWS: Final = 3  # skipped rows in a warning

GENERATORS: Final[dict[str, Callable[..., GraphStore]]] = {
    "motifs": motifs.motifs,
    "typed-motifs": motifs.typed_motifs,
}
"""Generated data sets."""


@dataclass(frozen=True)
class Format:
    """A kind of file, folder or Python object that can be loaded."""

    kind: str  # for messages
    accepts: Callable[[Any], bool]  # takes an existing path, or an object
    read: Callable[..., GraphStore]
    options: tuple[str, ...] = ()  # options of `load` that apply
    stream: Callable[..., Iterator[Chunk]] | None = None  # `None`: load, then split into chunks
    holds: str | None = None  # featurizer kind, if known before reading
    own: bool = False  # user data, which is checked for duplicates


_TABLE_OPTIONS: Final = tuple(name for name in READING if name != "root")
_MOLECULES: Final = Format(
    f"a table of molecules ({', '.join(formats.READERS)}; text also packed as .gz)",
    formats.is_table,
    molecule_tables.read_table,
    options=_TABLE_OPTIONS,
    stream=molecule_tables.stream_table,
    holds="molecules",
    own=True,
)

FORMATS: Final = (
    Format("a TU folder or zip archive", tu.is_tu, tu.load),
    Format("a folder or zip archive of OGB", ogb.is_ogb, ogb.load),
    Format(
        "a store written by GraphStore.save (.safetensors)",
        lambda path: path.suffix == ".safetensors" and path.is_file(),
        lambda path: GraphStore.load(path, check=True),
    ),
    Format(
        f"graphs as JSON Lines ({jsonl.SUFFIXES[0]}, also packed as .gz)",
        jsonl.is_jsonl,
        jsonl.read_jsonl,
        options=("target", "id", "task"),
        stream=jsonl.stream_jsonl,
        holds="graphs",
        own=True,
    ),
    _MOLECULES,
)
"""Supported files and folders, in the order in which they are tried."""


def _first(data: Any) -> Any:
    """First item of a list or column that is not missing, or ``None``."""
    column = isinstance(data, np.ndarray) or hasattr(data, "to_list")
    if not (isinstance(data, list | tuple) or column) or getattr(data, "ndim", 1) != 1:
        return None
    items = data.dropna() if hasattr(data, "dropna") else data
    return next((item for item in items if item is not None and not isinstance(item, float)), None)


def _is_networkx(data: Any) -> bool:
    import networkx as nx

    return isinstance(_first(data), nx.Graph)


OBJECTS: Final = (
    Format("a GraphStore", lambda data: isinstance(data, GraphStore), lambda data: data),
    replace(
        _MOLECULES,
        kind="a data frame",
        accepts=lambda data: hasattr(data, "columns") and hasattr(data, "iloc"),
        options=("y", *_TABLE_OPTIONS, "name"),
    ),
    replace(
        _MOLECULES,
        kind="a list of SMILES",
        accepts=lambda data: isinstance(_first(data), str),
        options=("y", "task", "largest_fragment", "name"),
    ),
    Format(
        "a list of PyG graphs",
        lambda data: (
            isinstance(data, Subset | ConcatDataset)
            or is_pyg(data, "Dataset")
            or is_pyg(_first(data), "Data")
        ),
        GraphStore.from_pyg,
        # Without the first parameter, the graphs.
        options=tuple(inspect.signature(GraphStore.from_pyg).parameters)[1:],
        own=True,
    ),
    Format(
        "a list of networkx graphs",
        _is_networkx,
        networkx.from_networkx,
        options=("y", "target", "task", "name", "featurizer"),
        stream=networkx.stream_networkx,
        holds="graphs",
        own=True,
    ),
)
"""Supported Python objects, in the order in which they are tried."""


def load(data: Loadable, root: str | Path | None = None, **options: Any) -> GraphStore:
    """Load a data set.

    A named data set is searched for under ``root``, then under the folder named by the environment
    variable ``GRAPH_TRANSPLANT_DATA``; a missing one is downloaded. Rows that cannot be read are
    listed in ``store.skipped``, with a warning; ``store.notes`` has remarks, for example on guessed
    columns.

    Args:
        data: A name, such as ``"motifs"`` or ``"ENZYMES"`` (see :func:`catalogue`); the path of a
            TU or OGB folder or archive, a table of molecules (``.csv``, ``.tsv``, ``.smi``,
            ``.sdf``, ``.xlsx``, ``.parquet``), JSON Lines or a saved store; or a ``DataFrame`` of
            molecules, a list of SMILES, of PyG or of networkx graphs, a PyG data set or a
            ``Subset`` of one, or a store, which is returned unchanged.
        root: Folder to search for a named data set, and to download it to.
        **options: For molecules: ``smiles``, ``target`` (a column, several separated by commas, or
            a list), ``id``, ``task``, ``largest_fragment``; for a list of SMILES, ``y`` holds the
            targets. For JSON Lines: ``target``, ``id`` and ``task``. Otherwise those of
            :meth:`GraphStore.from_pyg() <graph_transplant.data.GraphStore.from_pyg>`,
            :func:`~graph_transplant.datasets.networkx.from_networkx` or
            :func:`~graph_transplant.datasets.motifs.motifs`.

    Example:
        >>> load("motifs", graphs=60, seed=1)
        GraphStore('motifs': 60 graphs, 6 classes, ...)
        >>> load(["CCO", "c1ccccc1"], y=["safe", "toxic"]).label_names
        ('safe', 'toxic')
    """
    form, source = _input(data, root, options)
    store = form.read(source, **options)
    if isinstance(data, str | Path):
        place = {} if root is None else {"root": root}
        store.origin = Origin(str(data), {**options, **place})
    if form.own:
        store.find_duplicates = find_duplicates
    # Notes count duplicates, and finding these takes time.
    for note in store.notes if log.isEnabledFor(logging.INFO) else ():
        log.info("%s: %s", store.name, note)
    if form.read == GraphStore.from_pyg and "num_outputs" not in options:
        _warn_of_gaps(store)
    if store.skipped and store is not data:
        _warn_of_skipped(store)
    return store


def _warn_of_skipped(store: GraphStore) -> None:
    """Warn where the data were passed: by a caller outside this package."""
    skipped, rows = store.skipped, len(store) + len(store.skipped)
    reasons = [f"row {row.row}: {row.reason}" for row in skipped[:_SHOWN_ROWS]]
    more = ["…"] if len(skipped) > _SHOWN_ROWS else []
    package, level = __name__.partition(".")[0], 2
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"{store.name}: {len(skipped)} of {count(rows, 'row')} skipped ({'; '.join(reasons + more)}"
        "); `store.skipped` of what `gt.load` returns lists them all",
        SkippedRows,
        stacklevel=level,
    )


def _warn_of_gaps(store: GraphStore) -> None:
    """Warn if the classes of PyG graphs do not seem to be numbered from 0 without gaps."""
    present = set(store.y.tolist()) if store.task == "multiclass" else set()
    if present and len(present) < store.num_outputs:
        first = next(number for number in count_from() if number not in present)
        warnings.warn(
            f"{store.name}: classes are numbered from 0, so there are {store.num_outputs}, but no "
            f"graph is of class {first}; renumber `y`, or pass `num_outputs` if that is right",
            UserWarning,
            stacklevel=3,
        )


def stream(
    data: Loadable,
    *,
    featurizer: Featurizer | None = None,
    root: str | Path | None = None,
    rows_per_chunk: int = formats.ROWS,
    codec: TargetCodec | None = None,
    skip_rows: int = 0,
    workers: int = 1,
    **options: Any,
) -> Iterator[Chunk]:
    """Read a data set in chunks: in order, every row exactly once.

    Each row yields a graph without its target, or the reason why it could not be read. Tables
    (except Excel) and, with a ``featurizer``, JSON Lines are read in bounded memory; other inputs
    are loaded first.

    Args:
        data: As for :func:`load`.
        featurizer: The featurizer of the store that a model was trained on. Features get the same
            columns, table columns the same names, and rows that do not fit are reported as
            problems. Default: ``"ogb"`` for molecules; for graphs, inferred in an extra pass.
        root: As for :func:`load`.
        rows_per_chunk: Rows per chunk.
        codec: Codec, such as that of a model, to read targets into ``chunk.targets``.
        skip_rows: Number of rows to skip without reading their content.
        workers: Number of processes that read molecules.
        **options: As for :func:`load`.

    Example:
        >>> [len(chunk) for chunk in stream("motifs", graphs=60, rows_per_chunk=25)]
        [25, 25, 10]
    """
    check_at_least(1, rows_per_chunk=rows_per_chunk, workers=workers)
    check_at_least(0, skip_rows=skip_rows)
    form, source = _input(data, root, options)
    if form.stream is not None:
        shown = source if isinstance(source, Path) else f"the {type(source).__name__}"
        _check_kind(featurizer, form.holds, shown)
        reading = Reading(featurizer, codec, rows_per_chunk, skip_rows, workers)
        return form.stream(source, reading, **options)
    if form.read == GraphStore.from_pyg:
        # Targets may be missing. They are set on copies: the given graphs stay unchanged.
        source = [copy.copy(source[place]) for place in range(len(source))]
        graphs = [graph for graph in source if is_pyg(graph, "Data")]
        if codec is not None and _have_targets(graphs, codec):
            options["task"] = codec.task
            if codec.task == "multiclass":
                options.setdefault("num_outputs", codec.num_outputs)
        else:
            codec = None
            for graph in graphs:
                graph.y = torch.zeros(1, dtype=torch.long)
            options |= {"task": "multiclass", "num_outputs": 1, "label_names": None}
        store, problems = _readable(source, options)
        return _stream_store(store, rows_per_chunk, codec, skip_rows, problems)
    store = form.read(source, **options)
    if featurizer is not None and store.featurizer is not None:
        _check_kind(featurizer, store.featurizer.kind, store.name)
        featurizer.check_features(store.featurizer, store.name)
    return _stream_store(store, rows_per_chunk, codec, skip_rows)


def _have_targets(graphs: Sequence[Data], codec: TargetCodec) -> bool:
    """Whether PyG graphs have targets that the codec reads."""
    try:
        y = torch.cat([torch.as_tensor(graph.y).reshape(1, -1) for graph in graphs])
    except (TypeError, ValueError, RuntimeError):
        return False
    if codec.task != "multiclass":
        fits = codec.task == "regression" or not ((y < 0) | (y > 1)).any()
        return y.shape[1] == codec.num_outputs and fits
    whole = not y.is_floating_point() and y.shape[1] == 1
    return whole and 0 <= int(y.min()) <= int(y.max()) < codec.num_outputs


def _readable(graphs: list[Data], options: dict[str, Any]) -> tuple[GraphStore, dict[int, str]]:
    """Read PyG graphs; return also why some cannot be read, by row number."""
    try:
        return GraphStore.from_pyg(graphs, **options), {}
    except DataError:
        # Each by itself, which takes long, to find out which they are.
        widths: dict[int, tuple[int, int]] = {}
        problems: dict[int, str] = {}
        for row, graph in enumerate(graphs, start=1):
            try:
                alone = GraphStore.from_pyg([graph], **options)
            except DataError as problem:
                text = str(problem).removeprefix(f"{options.get('name') or 'graphs'}: ")
                problems[row] = text.replace("graph 0", "the graph", 1)
            else:
                widths[row] = alone.num_node_features, alone.num_edge_features
        if not widths:
            raise
        usual = Counter(widths.values()).most_common(1)[0][0]
        for row, own in widths.items():
            if own != usual:
                problems[row] = (
                    f"the graph has {count(own[0], 'node feature')} and "
                    f"{count(own[1], 'edge feature')}; the others have {usual[0]} and {usual[1]}"
                )
        kept = [graph for row, graph in enumerate(graphs, start=1) if row not in problems]
        return GraphStore.from_pyg(kept, **options), problems


def _stream_store(
    store: GraphStore,
    rows_per_chunk: int,
    codec: TargetCodec | None,
    skip_rows: int,
    problems: Mapping[int, str] | None = None,
) -> Iterator[Chunk]:
    problems = problems or {}
    rows = len(store) + len(problems)
    there = torch.tensor([row for row in range(1, rows + 1) if row not in problems])
    for start in range(skip_rows, rows, rows_per_chunk):
        end = min(start + rows_per_chunk, rows)
        index = ((there > start) & (there <= end)).nonzero().flatten()
        found = {row: problems[row] for row in range(start + 1, end + 1) if row in problems}
        if not len(index):
            ids = tuple(map(str, range(start + 1, end + 1)))
            yield Chunk(start + 1, ids, ("",) * len(ids), None, found)
            continue
        part = store.subset(index)
        numbers = there[index].tolist()
        targets = {} if codec is None else dict(zip(numbers, codec.of_store(part), strict=True))
        nothing = torch.zeros(len(index), dtype=torch.long)
        part = part.with_targets(nothing, task="multiclass", num_outputs=1)
        ids = tuple(map(str, numbers))
        texts = ("",) * len(ids)
        if part.rows is not None:
            ids, texts = part.rows.ids, part.rows.texts
        part.rows = InputRows(there[index], ids, texts)
        if found:
            ids = tuple(map(str, range(start + 1, end + 1)))
            texts = ("",) * len(ids)
        yield Chunk(start + 1, ids, texts, part, found, targets)


def _check_kind(featurizer: Featurizer | None, kind: str | None, given: object) -> None:
    if featurizer is not None and kind is not None and featurizer.kind != kind:
        raise DataError(f"the model was trained on {featurizer.kind}; {given} holds {kind}")


def _input(data: Any, root: str | Path | None, options: dict[str, Any]) -> tuple[Format, Any]:
    """Detect the format of the input, and check the options."""
    name = str(data)
    if isinstance(data, str) and name in GENERATORS:
        make = GENERATORS[name]
        _check_options(f"data set {name!r}", options, tuple(inspect.signature(make).parameters))
        return Format(name, bool, lambda _, **given: make(**given)), data
    if isinstance(data, str | Path):
        path, form = _locate(data, root, options)
        _check_options(f"data set {name!r}", options, form.options)
        return form, path
    found = next((form for form in OBJECTS if form.accepts(data)), None)
    if found is None:
        given, item = f"a {type(data).__name__}", _first(data)
        if item is not None:
            given += f" of {type(item).__name__}"
        elif isinstance(data, list | tuple):
            given += f" of {type(data[0]).__name__}" if data else " with nothing in it"
        if hasattr(item, "GetAtoms"):
            given += f"; {WRITE_SMILES}"
        kinds = ", ".join(form.kind for form in OBJECTS)
        raise DataError(f"`data` must be a name, a path, or {kinds}; got {given}")
    _check_options(found.kind, options, found.options)
    return found, data


def _locate(
    data: str | Path, root: str | Path | None, options: dict[str, Any]
) -> tuple[Path, Format]:
    """Find the file or folder of a data set, or download it."""
    name = str(data)
    plain = is_name(data)
    path = (_find(name, root) if plain else None) or existing(name)
    if path is None:
        if not plain or name not in dataset_names():
            raise not_found(data, root)
        # Before the download, so that a misspelt option fails at once.
        _check_options(f"data set {name!r}", options, ())
        path = (ogb.download if name in ogb.DATASETS else tu.download)(name, root)
    form = next((form for form in FORMATS if form.accepts(path)), None)
    if form is None:
        kinds = listed([form.kind for form in FORMATS], "or")
        raise DataError(f"{path}: unknown format; expected {kinds}")
    return path, form


def _find(name: str, root: str | Path | None) -> Path | None:
    return (ogb.find if name in ogb.DATASETS else tu.find)(name, root)


def _check_options(what: str, options: dict[str, Any], allowed: Sequence[str]) -> None:
    unknown = [option for option in options if option not in allowed]
    if unknown:
        known = f"takes {', '.join(allowed)}" if allowed else "takes no options"
        raise GraphTransplantError(f"`{unknown[0]}` does not apply to {what}, which {known}")


def catalogue(root: str | Path | None = None) -> list[DatasetInfo]:
    """List the generated data sets, those of the paper, and a few common others.

    Args:
        root: Folder to search, besides ``GRAPH_TRANSPLANT_DATA`` and the downloads.

    Example:
        >>> [info.name for info in catalogue()][:4]
        ['motifs', 'typed-motifs', 'COLLAB', 'NCI1']
    """
    return [
        replace(info, location=None if info.name in GENERATORS else _find(info.name, root))
        for info in CATALOGUE
    ]
