"""Graphs as JSON Lines: one graph per line, as an object of nodes and edges.

.. code-block:: json

    {"id": "g1", "y": "toxic", "directed": false,
     "nodes": [{"id": "a", "label": "C", "x": [0.1, 2]}, {"id": "b", "label": "O", "x": [0.3, 1]}],
     "edges": [{"source": "a", "target": "b", "label": "single", "x": 1.4}]}

The object has the format of ``networkx.node_link_data`` and must be on a single line. ``nodes`` and
``edges`` (or ``links``) are required. If no node has an ``id``, nodes are numbered from 0. An
undirected edge is given once, or in both directions with the same attributes. ``y`` is a string, a
number, or a list with ``null`` for missing values. Target and id may also be in a ``graph`` object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from graph_transplant.data import Featurizer, GraphStore
from graph_transplant.datasets.files import limited, opened
from graph_transplant.datasets.networkx import Source, read_networks, stream_networks
from graph_transplant.datasets.rows import Chunk, Reading, TableOptions, quoted
from graph_transplant.datasets.tables import name_of
from graph_transplant.errors import DataError

SUFFIXES: Final = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")

_STRUCTURE: Final = ("nodes", "edges", "links", "directed", "multigraph", "graph")
_BOM: Final = b"\xef\xbb\xbf"


def is_jsonl(path: Path) -> bool:
    """Whether a path is a JSON Lines file, judged by its suffix."""
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines that are not blank."""
    with opened(path) as file:
        for number, line in enumerate(file):
            text = (line if number else line.removeprefix(_BOM)).strip()
            if text:
                yield text


def _parsed(line: bytes) -> dict[str, Any]:
    """Parse an untrusted line; raise `DataError` if it is malformed."""
    try:
        text = line.decode("utf-8")
        value = json.loads(text)
        if "\\ud" in text or "\\uD" in text:
            # JSON can escape a lone surrogate, which cannot be encoded as UTF-8.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise DataError("it cannot be read: lists or objects are nested too deeply") from None
    except UnicodeDecodeError as error:
        raise DataError(f"it is not UTF-8: byte {error.start + 1} of the line") from None
    except UnicodeEncodeError:
        raise DataError("a string in it is not valid Unicode") from None
    except json.JSONDecodeError as error:
        raise DataError(f"it is not JSON: {error.msg} at character {error.pos + 1}") from None
    except ValueError:
        raise DataError("it cannot be read: a number has too many digits") from None
    if not isinstance(value, dict) or not isinstance(value.get("graph", {}), dict):
        raise DataError("it must be a JSON object with `nodes` and `edges`, and `graph` an object")
    # networkx writes graph attributes to `graph`.
    return {**value.pop("graph", {}), **value}


def _graph(line: dict[str, Any]) -> dict[str, Any]:
    if "edges" in line and "links" in line:
        raise DataError("it has both `edges` and `links`")
    if "links" in line:
        line["edges"] = line.pop("links")
    for entry in ("nodes", "edges"):
        items = line.get(entry)
        if not isinstance(items, list) or not set(map(type, items)) <= {dict}:
            raise DataError(f"`{entry}` must be a list of objects")
    multigraph = line.pop("multigraph", False)
    if not isinstance(line.setdefault("directed", False), bool) or not isinstance(multigraph, bool):
        raise DataError("`directed` and `multigraph` must be true or false")
    if multigraph:
        raise DataError("it is a multigraph; two nodes may have one edge only")
    return line


def _source(path: Path, options: TableOptions, featurizer: Featurizer | None) -> Source:
    """Describe the input; names of entries default to those used in training."""
    known = featurizer or Featurizer("graphs")
    targets = options.targets or known.targets or ("y",)
    name = options.id or known.id or "id"
    for entry in (*targets, name):
        if entry in _STRUCTURE:
            raise DataError(
                f"`target` and `id` must not be {quoted(entry)}, which is reserved for the "
                "graph structure"
            )

    def lines(skip: int) -> Iterator[tuple[Any, dict[str, Any] | str]]:
        for line in islice(limited(_lines(path), path), skip, None):
            given = None
            try:
                value = _parsed(line)
                given = value.get(name)
                yield given, _graph(value)
            except DataError as error:
                yield given, str(error)

    columns = {"targets": targets, "id": name}
    size = path.stat().st_size
    return Source(name_of(path), str(path), lines, targets, name, options.task, columns, size)


def read_jsonl(path: str | Path, **options: Any) -> GraphStore:
    """Read a JSON Lines file, plain or gzipped; see :func:`graph_transplant.load`."""
    return read_networks(_source(Path(path), TableOptions.of(**options), None))


def stream_jsonl(path: str | Path, reading: Reading, **options: Any) -> Iterator[Chunk]:
    """Read a JSON Lines file in chunks; blank lines are not counted as rows."""
    source = _source(Path(path), TableOptions.of(**options), reading.featurizer)
    return stream_networks(source, reading)
