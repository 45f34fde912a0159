"""Data sets by name, by path, or from Python objects.

:func:`load` gives every data set as a :class:`~graph_transplant.graphs.GraphStore`; :func:`stream`
reads the same inputs a stretch at a time, for data that no memory holds; :func:`catalogue` lists
the known ones and says which of them lie on this machine.
"""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import torch
from torch import Tensor
from torch.utils.data import Subset
from torch_geometric.data import Data, Dataset

from graph_transplant.datasets import jsonl, motifs, networks, ogb, tables, tu
from graph_transplant.datasets.rows import Chunk, TableOptions, TargetCodec, check_codec
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.graphs import Featurizer, GraphStore, Rows, pyg_problem
from graph_transplant.known import KNOWN, DatasetInfo, existing, is_name, known_names, not_found

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Chunk", "DatasetInfo", "catalogue", "load", "stream"]


# The data sets that are made, not read.
GENERATORS: Final[dict[str, Callable[..., GraphStore]]] = {"motifs": motifs.motifs}


@dataclass(frozen=True)
class FileFormat:
    """A kind of file or folder that can be loaded.

    Attributes:
        kind: What to call it in messages.
        accepts: Whether a path that exists is of this kind.
        read: Reads it.
        options: What :func:`load` takes for it besides the path.
        stream: Reads it a stretch at a time; ``None`` for what is loaded and then cut.
        reads: Kind of ``featurizer`` that its graphs have; ``None`` for what has widths alone.
        holds: What to say that is in such a file, where it has a ``featurizer``.
    """

    kind: str
    accepts: Callable[[Path], bool]
    read: Callable[..., GraphStore]
    options: tuple[str, ...] = ()
    stream: Callable[..., Iterator[Chunk]] | None = None
    reads: str | None = None
    holds: str = ""


def _is_store(path: Path) -> bool:
    return path.suffix == ".safetensors" and path.is_file()


def _read_store(path: Path) -> GraphStore:
    return GraphStore.load(path, check=True)


def _read_table(path: Path, **options: Any) -> GraphStore:
    return tables.read_table(path, TableOptions.of(**options))


def _stream_table(path: Path, arguments: Mapping[str, Any], **options: Any) -> Iterator[Chunk]:
    return tables.stream_table(path, TableOptions.of(**options), **arguments)


def _read_jsonl(path: Path, **options: Any) -> GraphStore:
    return jsonl.read_jsonl(path, TableOptions.of(**options))


def _stream_jsonl(path: Path, arguments: Mapping[str, Any], **options: Any) -> Iterator[Chunk]:
    # Lines of JSON are read in this process: sending them to others costs as much as reading them.
    mine = {key: value for key, value in arguments.items() if key != "workers"}
    return jsonl.stream_jsonl(path, TableOptions.of(**options), **mine)


# The kinds of path that can be given, in the order in which they are tried.
FORMATS: Final = (
    FileFormat("a TU folder or zip archive", tu.is_tu, tu.load),
    FileFormat("a folder or zip archive of OGB", ogb.is_ogb, ogb.load),
    FileFormat("a store written by GraphStore.save (.safetensors)", _is_store, _read_store),
    FileFormat(
        "graphs as JSON Lines (.jsonl, also packed as .gz)",
        jsonl.is_jsonl,
        _read_jsonl,
        options=("target", "id", "task"),
        stream=_stream_jsonl,
        reads="graphs",
        holds="graphs as JSON Lines",
    ),
    FileFormat(
        "a table of molecules (.csv, .tsv, .sdf, also packed as .gz)",
        tables.is_table,
        _read_table,
        options=("smiles", "target", "id", "features", "task"),
        stream=_stream_table,
        reads="molecules",
        holds="molecules (SMILES or SDF)",
    ),
)


def load(
    data: str | Path | GraphStore | Dataset | Sequence[Data] | Sequence[nx.Graph[Any]],
    root: str | Path | None = None,
    **options: Any,
) -> GraphStore:
    """Load a data set.

    A TU data set is looked for on this machine first: as ``NAME/``, ``NAME.zip``, ``tu/NAME/`` or
    ``tu/NAME.zip`` under ``root``, then under the folder named by the environment variable
    ``GRAPH_TRANSPLANT_DATA``. An OGB data set is looked for in the same folders, ogbg-molhiv as
    ``ogbg_molhiv/`` or ``ogbg_molhiv.zip``, also in a folder ``ogb`` or ``molecules``. What is not
    there is downloaded; for OGB that takes the extra ``ogb``. What was read once is cached, and
    loads again in a fraction of a second.

    Rows of a table or of JSON Lines that cannot be read are left out and listed in
    ``store.skipped``; more than half of them are an error.

    Args:
        data: A name, such as ``"motifs"`` or ``"ENZYMES"`` (see :func:`catalogue`); or the path of
            a TU or OGB folder, of a zip archive of one, of a table of molecules (CSV, TSV or SDF,
            plain or gzip; takes the extra ``chem``), of graphs as JSON Lines (see
            :mod:`~graph_transplant.datasets.jsonl`), or of a file written by
            :meth:`GraphStore.save() <graph_transplant.graphs.GraphStore.save>`; or a list of PyG
            ``Data``, a PyG data set or a ``Subset`` of one, a list of networkx graphs, or a store,
            which is returned as it is.
        root: Folder to look for a named data set in, and to download it to.
        **options: For tables: ``smiles``, ``target`` (a column, several with commas between, or a
            list), ``id``, ``features`` (``"ogb"`` or ``"elements"``) and ``task``. For JSON Lines:
            ``target``, ``id`` and ``task``. For PyG graphs those of :meth:`GraphStore.from_pyg()
            <graph_transplant.graphs.GraphStore.from_pyg>`, for networkx graphs those of
            :func:`~graph_transplant.datasets.networks.from_networkx`. For a generated data set its
            own, such as ``graphs`` and ``seed`` of
            :func:`~graph_transplant.datasets.motifs.motifs`. Others have none.

    Returns:
        The data set.

    Raises:
        DataError: If the name is unknown, or the data set cannot be found, downloaded or read.
        GraphTransplantError: If an option is unknown or out of range.

    Example:
        >>> load("motifs", graphs=60, seed=1)
        GraphStore('motifs': 60 graphs, 6 classes, ...)
    """
    if not isinstance(data, str | Path):
        return _from_objects(data, options)
    name = str(data)
    if name in GENERATORS:
        make = GENERATORS[name]
        _check_options(f"data set {name!r}", options, tuple(inspect.signature(make).parameters))
        return make(**options)
    path, form = _locate(data, root, options)
    return form.read(path, **options)


def stream(
    data: str | Path | GraphStore | Dataset | Sequence[Data] | Sequence[nx.Graph[Any]],
    *,
    featurizer: Featurizer | None = None,
    root: str | Path | None = None,
    rows_per_chunk: int = 2048,
    targets: bool = False,
    codec: TargetCodec | None = None,
    widths: tuple[int, int] | None = None,
    skip_rows: int = 0,
    workers: int = 1,
    **options: Any,
) -> Iterator[Chunk]:
    """Read a data set a stretch at a time: in order, every row exactly once.

    A row is a graph or has a reason why it is none. Tables and JSON Lines of any length take a
    bounded amount of memory; other inputs are loaded and then cut.

    Args:
        data: As for :func:`load`.
        featurizer: That of the store a model was trained on: features become the same
            columns, columns of a table have the same names, and a row that does not fit is a
            problem. Found from the data by default, which takes a further pass.
        root: As for :func:`load`.
        rows_per_chunk: Rows of a stretch.
        targets: Whether targets are to be read. Without, all graphs are of one class.
        codec: How targets are to be read, such as those of a model: a row whose target does not fit
            is a problem. Found from the data by default, which takes a further pass. Stores and
            data sets that are loaded first keep their own targets.
        widths: How many node and edge features graphs of a PyG list must have; with 0 for edges,
            their features are not read. (default: as many as most of the list)
        skip_rows: Leave out so many rows, without reading what is in them.
        workers: Processes that read molecules.
        **options: As for :func:`load`.

    Raises:
        DataError: If the data cannot be found or read, or are of another kind than ``featurizer``.
        GraphTransplantError: If an option is unknown or out of range.

    Example:
        >>> [len(chunk) for chunk in stream("motifs", graphs=60, rows_per_chunk=25)]
        [25, 25, 10]
    """
    for argument, value, least in (
        ("rows_per_chunk", rows_per_chunk, 1),
        ("skip_rows", skip_rows, 0),
        ("workers", workers, 1),
    ):
        if value < least:
            raise GraphTransplantError(
                f"`{argument}` must be a whole number of at least {least}; got {value!r}"
            )
    check_codec(codec, targets)
    arguments = {
        "featurizer": featurizer,
        "rows_per_chunk": rows_per_chunk,
        "targets": targets,
        "codec": codec,
        "skip_rows": skip_rows,
    }
    if isinstance(data, str | Path) and str(data) not in GENERATORS:
        path, form = _locate(data, root, options)
        if form.stream is not None:
            _check_kind(featurizer, form.reads, f"{path} holds {form.holds}")
            return form.stream(path, {**arguments, "workers": workers}, **options)
        store = form.read(path, **options)
    elif _kind_of_list(data) == _NETWORKX:
        _check_options(_NETWORKX, options, _NETWORKX_OPTIONS)
        _check_kind(featurizer, "graphs", "the list holds networkx graphs")
        return networks.stream_networkx(
            cast("Sequence[nx.Graph[Any]]", data), **{**options, **arguments}
        )
    elif _kind_of_list(data) == _PYG:
        _check_options(_PYG, options, _PYG_OPTIONS)
        settings = _pyg_settings(data, options, targets, codec)
        return _pyg_chunks(data, settings, widths, rows_per_chunk, targets, skip_rows)
    else:
        store = load(data, root, **options)
    if store.featurizer is not None:
        _check_features(featurizer, store)
    return _store_chunks(store, rows_per_chunk, targets, skip_rows)


# ------------------------------------------------------------------ paths


def _locate(
    data: str | Path, root: str | Path | None, options: dict[str, Any]
) -> tuple[Path, FileFormat]:
    """Find the file or folder of a data set, or download it, and check the options."""
    name = str(data)
    plain = is_name(data)
    path = (_find(name, root) if plain else None) or existing(name)
    if path is None:
        if not plain or name not in known_names():
            raise not_found(data, root)
        # Before anything is downloaded: a misspelt option must not cost minutes.
        _check_options(f"data set {name!r}", options, ())
        path = (ogb.download if name in ogb.DATASETS else tu.download)(name, root)
    try:
        form = next((form for form in FORMATS if form.accepts(path)), None)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if form is None:
        *others, last = (form.kind for form in FORMATS)
        kinds = f"{', '.join(others)} or {last}"
        raise DataError(f"{path}: expected {kinds}; this is none of them")
    _check_options(f"data set {name!r}", options, form.options)
    return path, form


def _find(name: str, root: str | Path | None) -> Path | None:
    """Return where a named data set lies on this machine, if it does."""
    try:
        return (ogb.find if name in ogb.DATASETS else tu.find)(name, root)
    except OSError as error:
        # A folder below `root`, or the cache, that may not be looked into.
        raise DataError(f"cannot look for {name} in {error.filename}: {error.strerror}") from error


def _check_options(what: str, options: dict[str, Any], allowed: Sequence[str]) -> None:
    """Raise an error unless all of the options are allowed."""
    unknown = [option for option in options if option not in allowed]
    if unknown:
        known = f"its options are {', '.join(allowed)}" if allowed else "it takes none"
        raise GraphTransplantError(f"{what} has no option {unknown[0]!r}; {known}")


# ------------------------------------------------------------------ Python objects

_PYG: Final = "a list of PyG graphs"
_NETWORKX: Final = "a list of networkx graphs"
# The first is the graphs.
_PYG_OPTIONS: Final = tuple(inspect.signature(GraphStore.from_pyg).parameters)[1:]
_NETWORKX_OPTIONS: Final = ("y", "target", "task", "name", "featurizer")


def _kind_of_list(data: Any) -> str | None:
    """Tell which graphs a list or data set holds, by its first."""
    if isinstance(data, Dataset | Subset):
        return _PYG
    if not isinstance(data, list | tuple) or not data:
        return None
    if isinstance(data[0], Data):
        return _PYG
    # Whoever has such a graph has imported networkx already.
    import networkx as nx

    return _NETWORKX if isinstance(data[0], nx.Graph) else None


def _from_objects(data: Any, options: dict[str, Any]) -> GraphStore:
    """Make a store of what is not a name or a path."""
    if isinstance(data, GraphStore):
        _check_options("a GraphStore", options, ())
        return data
    kind = _kind_of_list(data)
    if kind == _PYG:
        _check_options(kind, options, _PYG_OPTIONS)
        return GraphStore.from_pyg(data, **options)
    if kind == _NETWORKX:
        _check_options(kind, options, _NETWORKX_OPTIONS)
        return networks.from_networkx(data, **options)
    given = f"a {type(data).__name__}"
    if isinstance(data, list | tuple):
        given = f"a {type(data).__name__} of {type(data[0]).__name__}" if data else "nothing in it"
    raise DataError(
        "`data` must be a name, a path, a list of PyG or networkx graphs, a PyG data set or a "
        f"GraphStore; got {given}"
    )


def _pyg_settings(
    graphs: Any, options: dict[str, Any], targets: bool, codec: TargetCodec | None
) -> dict[str, Any]:
    """Say how a stretch of PyG graphs becomes a store, whatever is in it."""
    if not targets:
        settings = {key: value for key, value in options.items() if key in _PYG_WITHOUT_TARGETS}
        return settings | {"task": "multiclass", "num_outputs": 1}
    if codec is not None:
        return options | {
            "task": codec.task,
            "num_outputs": codec.num_outputs,
            "label_names": codec.label_names,
        }
    # All targets together say what the task is, and how many classes there are.
    fitting = (graphs[place] for place in range(len(graphs)))
    found = [torch.as_tensor(data.y).detach() for data in fitting if not pyg_problem(data)]
    if not found:
        raise DataError(f"{options.get('name') or 'graphs'}: there are no graphs with targets")
    (width, _), *_ = Counter(y.numel() for y in found).most_common(1)
    dots = [
        Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=1, y=y)
        for y in found
        if y.numel() == width
    ]
    mine = {key: value for key, value in options.items() if key not in _PYG_WITHOUT_TARGETS}
    whole = GraphStore.from_pyg(dots, name=options.get("name"), **mine)
    return options | {"task": whole.task, "num_outputs": whole.num_outputs}


def _pyg_widths(data: Data) -> tuple[int, int]:
    """Return the numbers of node and edge features of a graph that has no problem."""

    def width(value: Tensor | None) -> int:
        return 0 if value is None else 1 if value.dim() == 1 else value.shape[1]

    return width(data.x), width(data.edge_attr)


def _other_widths(given: tuple[int, int], expected: tuple[int, int]) -> str | None:
    """Say how the numbers of features differ, if they do."""
    for what, mine, others in zip(("node", "edge"), given, expected, strict=True):
        if mine != others:
            return f"it has {mine} {what} features; expected are {others}"
    return None


def _pyg_chunks(
    graphs: Any,
    settings: dict[str, Any],
    widths: tuple[int, int] | None,
    rows: int,
    targets: bool,
    skip: int,
) -> Iterator[Chunk]:
    """Yield PyG graphs; one that is unlike what is expected is a problem."""
    without_edges = widths is not None and not widths[1]
    if widths is None:
        # All of them are asked, also those that are skipped: a stream that goes on judges alike.
        all_graphs = (graphs[place] for place in range(len(graphs)))
        seen = Counter(
            _pyg_widths(data) for data in all_graphs if not pyg_problem(data, target=targets)
        )
        widths = seen.most_common(1)[0][0] if seen else (0, 0)

    for start in range(skip, len(graphs), rows):
        numbers = range(start + 1, min(start + rows, len(graphs)) + 1)
        items: dict[int, Data] = {}
        problems: dict[int, str] = {}
        for number in numbers:
            data = graphs[number - 1]
            problem = pyg_problem(data, target=targets)
            if problem is not None:
                problems[number] = f"it {problem}"
                continue
            data = copy.copy(data)
            if without_edges:
                data.edge_attr = None
            if not targets:
                data.y = torch.zeros(1, dtype=torch.long)
            problem = _other_widths(_pyg_widths(data), widths)
            if problem is not None:
                problems[number] = problem
                continue
            items[number] = data
        try:
            store = GraphStore.from_pyg(items.values(), **settings) if items else None
        except DataError:
            # One of them does not fit: which, the graphs tell when they come alone.
            for number, data in list(items.items()):
                try:
                    GraphStore.from_pyg([data], **settings)
                except DataError as error:
                    problems[number] = str(error).replace("graph 0", "the graph")
                    del items[number]
            store = GraphStore.from_pyg(items.values(), **settings) if items else None
        if store is not None:
            names = tuple(str(number) for number in items)
            store.rows = Rows(torch.tensor(list(items)), names, ("",) * len(names))
        ids = tuple(str(number) for number in numbers)
        yield Chunk(start + 1, ids, ("",) * len(ids), store, dict(sorted(problems.items())))


_PYG_WITHOUT_TARGETS: Final = frozenset({"name", "num_continuous", "node_fields"})


_TRAINED_ON: Final = {
    "molecules": "molecules (SMILES or SDF)",
    "graphs": "graphs with attributes (JSON Lines or networkx)",
}


def _check_kind(featurizer: Featurizer | None, kind: str | None, given: str) -> None:
    """Raise an error if a model has learnt from data of another kind."""
    if featurizer is not None and featurizer.kind != kind:
        raise DataError(f"the model was trained on {_TRAINED_ON[featurizer.kind]}; {given}")


def _check_features(featurizer: Featurizer | None, store: GraphStore) -> None:
    """Raise an error if the columns of a store mean something else than those of a model."""
    if featurizer is None or store.featurizer is None:
        return
    kind = store.featurizer.kind
    _check_kind(featurizer, kind, f"{store.name} holds {_TRAINED_ON[kind]}")
    if not featurizer.same_features(store.featurizer):
        raise DataError(
            f"{store.name}: the graphs were read with other features ({store.featurizer}) than "
            f"those of the model ({featurizer})"
        )


def _store_chunks(store: GraphStore, rows: int, targets: bool, skip: int) -> Iterator[Chunk]:
    """Cut a store into stretches."""
    for start in range(skip, len(store), rows):
        index = torch.arange(start, min(start + rows, len(store)))
        part = store.subset(index)
        if not targets:
            nothing = torch.zeros(len(index), dtype=torch.long)
            part = part.with_targets(nothing, task="multiclass", num_outputs=1)
        number = index + 1
        if store.rows is None:
            ids = tuple(str(n) for n in number.tolist())
            part.rows = Rows(number, ids, ("",) * len(ids))
        else:
            taken = store.rows.take(index)
            part.rows = Rows(number, taken.ids, taken.texts)
        yield Chunk(start + 1, part.rows.ids, part.rows.texts, part, {})


# ------------------------------------------------------------------ the catalogue


def catalogue(root: str | Path | None = None) -> list[DatasetInfo]:
    """List the embedded data set, those of the paper, and a few common others.

    Args:
        root: Folder to look for data sets in, besides the one named by the environment variable
            ``GRAPH_TRANSPLANT_DATA``.

    Returns:
        One entry for each data set, with its size and, if it lies on this machine, where.

    Raises:
        DataError: If a folder cannot be looked into.

    Example:
        >>> [info.name for info in catalogue()][:4]
        ['motifs', 'COLLAB', 'NCI1', 'ENZYMES']
    """
    entries = []
    for info in KNOWN:
        location = None if info.name in GENERATORS else _find(info.name, root)
        entries.append(replace(info, location=location))
    return entries
