"""Graphs as JSON Lines: one graph per line, as an object of nodes and edges.

.. code-block:: json

    {"id": "g1", "y": "toxic", "directed": false,
     "nodes": [{"id": "a", "label": "C", "x": [0.1, 2]}, {"id": "b", "label": "O", "x": [0.3, 1]}],
     "edges": [{"source": "a", "target": "b", "label": "single", "x": 1.4}]}

(on one line in the file). What ``networkx.node_link_data`` gives is such an object.

============  ======================================================================================
entry         content
============  ======================================================================================
``nodes``     list of objects. ``id``: text or number, different for all (without any, nodes are
              numbered from 0). ``label`` and ``x`` are optional, for all nodes or for none: a text
              or whole number; a number or list of numbers.
``edges``     list of objects; ``links`` is the same. ``source`` and ``target`` are ids of nodes;
              ``label`` and ``x`` as for nodes; without ``x``, ``weight`` is read as one.
``directed``  optional; without it, edges are undirected. Each may be given once, or in both
              directions with the same attributes.
``y``         the target: text, number, true or false, or a list of labels or numbers with ``null``
              where one is missing. Another entry, or several, can be named instead.
``id``        optional: what the graph is called.
``graph``     optional: an object with further entries, where target and id are looked for as well.
============  ======================================================================================

Everything else is not read, and its names are noted; see
``graph_transplant.datasets.networks``, which also says what becomes of labels and numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from graph_transplant.datasets.networks import (
    Network,
    NetworkRow,
    read_networks,
    stream_networks,
)
from graph_transplant.datasets.rows import Chunk, TableOptions, TargetCodec, quoted
from graph_transplant.datasets.source import opened
from graph_transplant.errors import DataError
from graph_transplant.graphs import Featurizer, GraphStore

SUFFIXES: Final = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")

# A line is parsed as a whole, into objects that take some twenty times its length.
_MAX_LINE: Final = 16 << 20
# Packed line breaks must not keep the reader busy for hours.
_MAX_BLANK: Final = 100_000
_BOM: Final = b"\xef\xbb\xbf"
_NAMING: Final = frozenset({"id", "source", "target"})
_STRUCTURE: Final = frozenset({"nodes", "edges", "links", "directed", "multigraph", "graph"})


def is_jsonl(path: Path) -> bool:
    """Tell whether a path is a file of JSON Lines, by its name.

    Args:
        path: The path.

    Example:
        >>> is_jsonl(Path("no/such/file.jsonl"))
        False
    """
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines that are not blank."""
    blank = number = 0
    with opened(path) as file:
        while line := file.readline(_MAX_LINE + 1):
            number += 1
            if len(line) > _MAX_LINE:
                raise DataError(
                    f"{path}: line {number} is longer than {_MAX_LINE >> 20} MiB; a graph must "
                    "stand on a line of its own"
                )
            if number == 1:
                line = line.removeprefix(_BOM)
            if line.isspace() or not line:
                blank += 1
                if blank > _MAX_BLANK:
                    raise DataError(f"{path}: more than {_MAX_BLANK} blank lines in a row")
                continue
            blank = 0
            yield line


def _not_a_number(word: str) -> Any:
    raise ValueError(f"{word} is not a number of JSON")


def _parsed(line: bytes) -> dict[str, Any]:
    """Parse a line, or raise an error that says what is wrong with it."""
    try:
        text = line.rstrip().decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"it is not UTF-8: byte {error.start + 1} of the line") from None
    try:
        value = json.loads(text, parse_constant=_not_a_number)
    except json.JSONDecodeError as error:
        raise DataError(f"it is not JSON: {error.msg} at character {error.pos + 1}") from None
    except ValueError as error:
        reason = "a number has too many digits" if "digit" in str(error) else str(error)
        raise DataError(f"it is not JSON: {reason}") from None
    except RecursionError:
        raise DataError("it cannot be read: lists or objects are nested too deeply") from None
    if not isinstance(value, dict):
        raise DataError("it must be a JSON object with `nodes` and `edges`")
    if "\\ud" in text.lower():
        # Half of a pair of surrogates can be escaped in JSON, but not written anywhere else.
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except (UnicodeEncodeError, RecursionError):
            raise DataError("a text in it is not valid Unicode") from None
    return value


def _objects(value: Any, entry: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not set(map(type, value)) <= {dict}:
        raise DataError(f"`{entry}` must be a list of objects")
    return value


def _are_names(values: Iterable[Any]) -> bool:
    """Whether these can be ids; true and false are no numbers here."""
    return set(map(type, values)) <= {str, int, float}


def _flag(line: Mapping[str, Any], entry: str) -> bool:
    value = line.get(entry, False)
    if not isinstance(value, bool):
        raise DataError(f"`{entry}` must be true or false")
    return value


def _network(line: dict[str, Any], read: frozenset[str]) -> Network:
    """Take the graph out of a parsed line."""
    if _flag(line, "multigraph"):
        raise DataError("it is a multigraph; two nodes may have one edge only")
    if "nodes" not in line:
        raise DataError("it has no `nodes`")
    if ("edges" in line) == ("links" in line):
        raise DataError(
            "it has both `edges` and `links`" if "edges" in line else "it has no `edges`"
        )
    entry = "edges" if "edges" in line else "links"
    nodes, edges = _objects(line["nodes"], "nodes"), _objects(line[entry], entry)
    names: list[Any] = [node.get("id") for node in nodes]
    if all(name is None for name in names):
        names = list(range(len(nodes)))
    if not _are_names(names):
        raise DataError("the `id` of every node must be a text or a number")
    sources, targets = ([edge.get(end) for edge in edges] for end in ("source", "target"))
    if not _are_names(sources) or not _are_names(targets):
        raise DataError("`source` and `target` of every edge must be ids of nodes")
    return Network(
        names=names,
        nodes=nodes,
        ends=list(zip(sources, targets, strict=True)),
        edges=edges,
        directed=_flag(line, "directed"),
        naming=_NAMING,
        others=(frozenset(line) | frozenset(_attributes(line))) - _STRUCTURE - read,
    )


def _attributes(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes of the graph as networkx writes them."""
    value = line.get("graph", {})
    if not isinstance(value, dict):
        raise DataError("`graph` must be an object")
    return value


def _rows(path: Path, targets: tuple[str, ...], id_entry: str, skip: int) -> Iterator[NetworkRow]:
    read = frozenset({*targets, id_entry})
    for number, line in enumerate(_lines(path), start=1):
        if number <= skip:
            continue
        name = str(number)
        try:
            value = _parsed(line)
            found = {**_attributes(value), **value}
            given = found.get(id_entry)
            if _are_names([given]) and str(given):
                name = str(given)
            values = [found.get(target) for target in targets]
            yield NetworkRow(
                number,
                name,
                _network(value, read),
                values[0] if len(values) == 1 else values,
                lacks_target=found.keys().isdisjoint(targets),
            )
        except DataError as error:
            yield NetworkRow(number, name, str(error))


def _entries(options: TableOptions, featurizer: Featurizer | None) -> tuple[tuple[str, ...], str]:
    """Return the entries of the targets and of the id, as given or as in training."""
    known = featurizer or Featurizer("graphs")
    targets = options.targets or known.targets or ("y",)
    entry = options.id or known.id or "id"
    taken = next((name for name in (*targets, entry) if name in _STRUCTURE), None)
    if taken is not None:
        raise DataError(f"`target` and `id` must not be {quoted(taken)}: that is the graph itself")
    return targets, entry


def _name_of(path: Path) -> str:
    return path.name.split(".")[0] or "graphs"


def read_jsonl(path: str | Path, options: TableOptions | None = None) -> GraphStore:
    r"""Read a file of JSON Lines, plain or packed with gzip.

    Args:
        path: The file.
        options: ``targets``, ``id`` and ``task``.

    Returns:
        The graphs; ``store.skipped`` lists the lines that are none.

    Raises:
        DataError: If the file cannot be read, or more than half of its lines.

    Example:
        >>> import tempfile
        >>> line = '{"nodes": [{"label": "C"}, {"label": "O"}], "edges": [%s], "y": %d}\n'
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "pairs.jsonl"
        ...     _ = path.write_text(line % ('{"source": 0, "target": 1}', 1) + line % ("", 0))
        ...     store = read_jsonl(path)
        >>> store.featurizer["node_labels"], store.x.tolist()
        (['C', 'O'], [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
        >>> store.edge_counts.tolist(), store.y.tolist()
        ([2, 0], [1, 0])
    """
    path = Path(path)
    options = TableOptions() if options is None else options
    targets, entry = _entries(options, None)
    return read_networks(
        _rows(path, targets, entry, 0),
        name=_name_of(path),
        where=str(path),
        targets=targets,
        task=options.task,
        noted={"targets": tuple(targets), "id": entry},
    )


def stream_jsonl(
    path: str | Path,
    options: TableOptions | None = None,
    *,
    featurizer: Featurizer | None = None,
    rows_per_chunk: int = 2048,
    targets: bool = False,
    codec: TargetCodec | None = None,
    skip_rows: int = 0,
) -> Iterator[Chunk]:
    """Read a file of JSON Lines a stretch at a time, in bounded memory; blank lines do not count.

    Args:
        path: The file.
        options: ``targets``, ``id`` and ``task``; by default those of ``featurizer``.
        featurizer: ``featurizer`` of another store, to get the same columns.
        rows_per_chunk: Lines of a stretch.
        targets: Whether targets are to be read.
        codec: How targets are to be read; found from all of them by default.
        skip_rows: Leave out so many lines, without parsing them.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "one.jsonl"
        ...     _ = path.write_text('{"id": "a", "nodes": [{}], "edges": []}')
        ...     [chunk.ids for chunk in stream_jsonl(path)]
        [('a',)]
    """
    path = Path(path)
    options = TableOptions() if options is None else options
    names, entry = _entries(options, featurizer)
    return stream_networks(
        lambda skip: _rows(path, names, entry, skip),
        name=_name_of(path),
        where=str(path),
        featurizer=featurizer,
        rows_per_chunk=rows_per_chunk,
        targets=names if targets else None,
        task=options.task,
        codec=codec,
        skip_rows=skip_rows,
    )
