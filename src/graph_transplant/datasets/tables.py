"""Molecules from tables (CSV, TSV) and from SDF files, plain or packed with gzip.

Files are read row by row, in memory bounded by a chunk, and every row is accounted for: it becomes
a graph, or a reason says why not. A row of a table is a line of values (or several lines, where a
quoted value has line breaks); blank lines are no rows. A row of an SDF is a record that ends with
``$$$$``; its properties are the columns.

:func:`read_table` reads a data set to learn from, :func:`stream_table` a file of any size in
chunks, in the way that a trained model was read.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

import numpy as np

from graph_transplant.datasets.molecules import (
    MoleculeArrays,
    chemistry,
    chunk_of,
    molecule_arrays,
    store_of,
)
from graph_transplant.datasets.rows import (
    Chunk,
    TableOptions,
    TargetCodec,
    TargetScan,
    check_codec,
    check_readable,
    quoted,
)
from graph_transplant.datasets.source import opened
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.graphs import Featurizer, GraphStore, Skipped

# A row, or a record of an SDF, is not longer: packed zeros must not unpack into memory without end.
_LONGEST_LINE: Final = 1 << 20
_LONGEST_RECORD: Final = 8 << 20
# Nor are there so many blank lines in a row.
_MOST_BLANK: Final = 100_000
# Molecules are read in stretches of so many rows, which only bounds what is kept on the way.
_ROWS: Final = 2048
_SHOWN_COLUMNS: Final = 20
_LONG_NAME: Final = 40

_TABLES: Final = (".csv", ".tsv", ".tab")
_RECORDS: Final = (".sdf", ".sd")
_STRUCTURES: Final = ("smiles", "mol", "structure")
_PROPERTY: Final = re.compile(r"^>.*?<([^>]+)>")


class _Row(NamedTuple):
    """A row as it stands in the file.

    Attributes:
        text: Its structure.
        id: What the file calls it; empty where it does not.
        cells: Its targets.
        reason: Why it cannot be used; empty if it can as far as this is known yet.
    """

    text: str
    id: str
    cells: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True)
class _Source:
    """The rows of a file.

    Attributes:
        path: The file.
        options: The columns that are used.
        rows: Reads them from the beginning.
    """

    path: Path
    options: TableOptions
    rows: Callable[[], Iterator[_Row]]


def _suffix(path: Path) -> str:
    """The suffix that says what a file is, without that of its packing."""
    name = path.name.lower().removesuffix(".gz")
    return "." + name.rpartition(".")[2] if "." in name else ""


def _name(path: Path) -> str:
    """The name of a file without its suffixes."""
    name = path.name[:-3] if path.name.lower().endswith(".gz") else path.name
    return name.rpartition(".")[0] or name


def is_table(path: Path) -> bool:
    """Tell whether a path is a table or an SDF, by its name.

    Args:
        path: The path.

    Example:
        >>> is_table(Path("no/such/file.csv"))
        False
    """
    return _suffix(path) in (*_TABLES, *_RECORDS) and path.is_file()


# ------------------------------------------------------------------ lines


class _Lines:
    """The lines of a file as text; bytes that are no UTF-8 become lone surrogates.

    Attributes:
        number: Number of the last line, from 1.
        ended: Whether there are no more.
    """

    def __init__(self, file: IO[bytes], path: Path, longest: int) -> None:
        self._file, self._path, self._longest = file, path, longest
        self._since_row = 0
        self._blank = 0
        self.number = 0
        self.ended = False

    def new_row(self) -> None:
        """Begin to count the length of a row."""
        self._since_row = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._file.readline(self._longest + 1)
        if not line:
            self.ended = True
            raise StopIteration
        self.number += 1
        self._since_row += len(line)
        if self._since_row > self._longest:
            raise DataError(
                f"{self._path}, line {self.number}: a row is longer than "
                f"{self._longest >> 20} MiB; is a quote left open?"
            )
        self._blank = 0 if line.strip() else self._blank + 1
        if self._blank > _MOST_BLANK:
            raise DataError(
                f"{self._path}, line {self.number}: more than {_MOST_BLANK} blank lines in a row"
            )
        if self.number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        return line.decode("utf-8", errors="surrogateescape")


def _broken_text(text: str) -> bool:
    """Whether bytes were no UTF-8."""
    if text.isascii():
        return False
    return any("\udc80" <= letter <= "\udcff" for letter in text)


# ------------------------------------------------------------------ columns


def _shown(column: str) -> str:
    """A column as messages show it; quoted where it is long or has odd signs."""
    return column if column.isprintable() and len(column) <= _LONG_NAME else quoted(column)


def _listed(columns: Sequence[str]) -> str:
    shown = ", ".join(map(_shown, columns[:_SHOWN_COLUMNS]))
    more = len(columns) - _SHOWN_COLUMNS
    return shown + (f" and {more} more" if more > 0 else "")


def _place(path: Path, columns: Sequence[str], argument: str, name: str) -> int:
    """Return the place of a column, or raise an error that lists those there are."""
    count = columns.count(name)
    if count == 1:
        return columns.index(name)
    if count:
        raise DataError(
            f"{path}: `{argument}` is {quoted(name)}, and {count} columns have that name"
        )
    lower = {column.casefold(): column for column in reversed(columns)}
    close = get_close_matches(name.casefold(), list(lower), n=1)
    hint = f" (did you mean {quoted(lower[close[0]])}?)" if close else ""
    raise DataError(
        f"{path}: `{argument}` must be one of the columns {_listed(columns)}; "
        f"got {quoted(name)}{hint}"
    )


def _structures(path: Path, columns: Sequence[str]) -> str:
    """Find the column of the structures by its name."""
    found = [column for column in columns if column.casefold() in _STRUCTURES]
    if len(found) == 1:
        return found[0]
    which = f"several of the columns ({_listed(found)}) may" if found else "no column seems to"
    raise DataError(
        f"{path}: {which} hold the structures; name the one that does with `smiles`. The columns "
        f"are {_listed(columns)}"
    )


def _with_defaults(
    options: TableOptions, featurizer: Featurizer, columns: Sequence[str]
) -> TableOptions:
    """Fill in the columns that a model was read from, as far as this file has them."""

    def there(name: Any) -> bool:
        return isinstance(name, str) and columns.count(name) == 1

    smiles, name, targets = featurizer.smiles, featurizer.id, featurizer.targets
    known = all(map(there, targets))
    return replace(
        options,
        smiles=smiles if options.smiles is None and there(smiles) else options.smiles,
        id=name if options.id is None and there(name) else options.id,
        targets=targets if targets and known and not options.targets else options.targets,
    )


# ------------------------------------------------------------------ tables


def _delimiter(path: Path, header: str) -> str:
    if _suffix(path) in (".tsv", ".tab"):
        return "\t"
    plain = re.sub(r'"[^"]*"', "", header)
    return max((",", ";", "\t"), key=plain.count)


def _header(path: Path, lines: _Lines) -> tuple[list[str], str]:
    """Read the names of the columns, and find what separates them."""
    for line in lines:
        lines.new_row()
        if not line.strip():
            continue
        if _broken_text(line) or "\0" in line:
            raise DataError(
                f"{path}, line {lines.number}: the header is not UTF-8 text; save the table as "
                "CSV in UTF-8"
            )
        if "\r" in line.rstrip("\r\n"):
            raise DataError(
                f"{path}, line {lines.number}: lines must end with LF or CRLF, not with CR alone"
            )
        delimiter = _delimiter(path, line)
        try:
            columns = next(csv.reader([line], delimiter=delimiter, strict=True))
        except csv.Error as error:
            raise DataError(
                f"{path}, line {lines.number}: the header is broken ({error})"
            ) from None
        return [column.strip() for column in columns], delimiter
    raise DataError(f"{path}: is empty")


def _table_rows(path: Path, options: TableOptions) -> Iterator[_Row]:
    """Yield the rows of a table; its columns are those of ``options``."""
    with opened(path) as file:
        lines = _Lines(file, path, _LONGEST_LINE)
        columns, delimiter = _header(path, lines)
        assert options.smiles is not None
        text_at = _place(path, columns, "smiles", options.smiles)
        id_at = None if options.id is None else _place(path, columns, "id", options.id)
        targets_at = [_place(path, columns, "target", name) for name in options.targets]
        rows = csv.reader(lines, delimiter=delimiter, strict=True)
        while True:
            lines.new_row()
            start = lines.number + 1
            try:
                values = next(rows, None)
            except csv.Error as error:
                yield _Row("", "", (), _broken_row(path, lines, start, error))
                continue
            if values is None:
                return
            if not values or (len(values) == 1 and len(columns) > 1 and not values[0].strip()):
                continue
            if len(values) != len(columns):
                counts = f"{len(values)} values, the header has {len(columns)}"
                yield _Row("", "", (), f"the row has {counts}")
                continue
            row = _Row(
                values[text_at].strip(),
                "" if id_at is None else values[id_at].strip(),
                tuple(values[place] for place in targets_at),
            )
            # Columns that are not used may be in whatever encoding.
            broken = any(map(_broken_text, (row.text, row.id, *row.cells)))
            yield _Row("", "", (), "the row is not UTF-8 text") if broken else row


def _broken_row(path: Path, lines: _Lines, start: int, error: csv.Error) -> str:
    """Say what is wrong with a row, unless nothing after it can be trusted."""
    if lines.ended:
        raise DataError(
            f"{path}, line {start}: a quoted value is not closed up to the end of the file"
        ) from None
    if "field larger" in str(error):
        raise DataError(
            f"{path}, line {start}: a value is longer than {csv.field_size_limit()} characters; is "
            "a quote left open?"
        ) from None
    return f"the row is broken ({error})"


def _table(path: Path, options: TableOptions, featurizer: Featurizer | None) -> _Source:
    with opened(path) as file:
        columns, _ = _header(path, _Lines(file, path, _LONGEST_LINE))
    if featurizer is not None:
        options = _with_defaults(options, featurizer, columns)
    if options.smiles is None:
        options = replace(options, smiles=_structures(path, columns))
    # All columns are looked up now, so that a wrong one is told before anything is read.
    _place(path, columns, "smiles", cast("str", options.smiles))
    if options.id is not None:
        _place(path, columns, "id", options.id)
    for target in options.targets:
        _place(path, columns, "target", target)
    return _Source(path, options, partial(_table_rows, path, options))


def _columns_of(path: Path) -> list[str]:
    """Columns of a table, or the properties of the first records of an SDF."""
    with opened(path) as file:
        if _suffix(path) not in _RECORDS:
            return _header(path, _Lines(file, path, _LONGEST_LINE))[0]
        names: dict[str, None] = {}
        for record in islice(_records(path, file), 100):
            names.update(dict.fromkeys(_properties(record)))
        return list(names)


# ------------------------------------------------------------------ SDF


def _records(path: Path, file: IO[bytes]) -> Iterator[list[str]]:
    """Yield the lines of every record of an SDF."""
    lines = _Lines(file, path, _LONGEST_RECORD)
    record: list[str] = []
    for line in lines:
        line = line.rstrip("\r\n")
        if line.startswith("$$$$"):
            yield record
            record = []
            lines.new_row()
        else:
            record.append(line)
    # The last record may lack its end; blank lines behind the last end are no record.
    if any(line.strip() for line in record):
        yield record


def _properties(record: Sequence[str]) -> dict[str, str]:
    """Return the properties of a record by name."""
    found: dict[str, str] = {}
    name: str | None = None
    values: list[str] = []
    ends = (place for place, line in enumerate(record) if line.startswith("M  END"))
    for line in (*record[next(ends, -1) + 1 :], ""):
        if name is None:
            start = _PROPERTY.match(line)
            name, values = (start.group(1), []) if start else (None, [])
        elif line.strip():
            values.append(line)
        else:
            found[name] = "\n".join(values)
            name = None
    return found


def _record_rows(path: Path, options: TableOptions) -> Iterator[_Row]:
    with opened(path) as file:
        for record in _records(path, file):
            yield _record_row(record, options)


def _record_row(record: Sequence[str], options: TableOptions) -> _Row:
    ends = [place for place, line in enumerate(record) if line.startswith("M  END")]
    properties = _properties(record)
    title = record[0].strip() if record else ""
    name = title if options.id is None else properties.get(options.id, "").strip()
    cells = tuple(properties.get(target, "") for target in options.targets)
    if any(map(_broken_text, (name, *cells))):
        return _Row("", "", cells, "the record is not UTF-8 text")
    if not ends:
        return _Row("", name, cells, "the record has no line 'M  END'")
    if len(ends) > 1:
        # Whose the properties are cannot be told: the first would get the labels of the second.
        name = title if options.id is None else ""
        return _Row("", name, cells, "the record holds two structures; is `$$$$` missing?")
    end = ends[0]
    if _broken_text("".join(record[1 : end + 1])):
        return _Row("", name, cells, "the record is not UTF-8 text")
    # A title in another encoding does not matter to the structure.
    head = "" if _broken_text(record[0]) else record[0]
    return _Row("\n".join((head, *record[1 : end + 1], "")), name, cells)


def _sdf(path: Path, options: TableOptions, featurizer: Featurizer | None) -> _Source:
    if options.smiles is not None:
        raise GraphTransplantError(
            f"{path}: `smiles` names a column of a table; the structures of an SDF have none"
        )
    with opened(path) as file:
        if next(_records(path, file), None) is None:
            raise DataError(f"{path}: is empty")
    if featurizer is not None:
        options = replace(_with_defaults(options, featurizer, _columns_of(path)), smiles=None)
    return _Source(path, options, partial(_record_rows, path, options))


def _source(path: Path, options: TableOptions, featurizer: Featurizer | None) -> _Source:
    return (_sdf if _suffix(path) in _RECORDS else _table)(path, options, featurizer)


# ------------------------------------------------------------------ data sets


def _stretches(rows: Iterable[_Row], size: int) -> Iterator[list[_Row]]:
    source = iter(rows)
    while stretch := list(islice(source, size)):
        yield stretch


def _problems(rows: Sequence[_Row]) -> dict[int, str]:
    return {place: row.reason for place, row in enumerate(rows) if row.reason}


def read_table(path: str | Path, options: TableOptions | None = None) -> GraphStore:
    r"""Read a table of molecules, or an SDF, to learn from.

    Rows without a target are left out, and so are rows that cannot be read; ``skipped`` of the
    store lists them. How targets are understood says
    :class:`~graph_transplant.datasets.rows.TargetScan`.

    Args:
        path: The file: CSV, TSV or SDF, plain or packed with gzip.
        options: Columns, features and task; ``targets`` must be there.

    Returns:
        The molecules with their targets.

    Raises:
        DataError: If the file, a column or more than half of the rows cannot be read, or the
            targets set no task.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "mine.csv"
        ...     _ = file.write_text("smiles,toxic\nCCO,0\nc1ccccc1,1\nC1CC,1\n")
        ...     store = read_table(file, TableOptions.of(target="toxic"))
        >>> store
        GraphStore('mine': 2 graphs, 2 classes, ..., 174 node features, 13 edge features)
        >>> store.skipped
        (Skipped(row=3, id='3', reason='the SMILES cannot be parsed: unclosed ring 1'),)
    """
    path = Path(path)
    options = options or TableOptions()
    source = _source(path, options, None)
    if not options.targets:
        raise DataError(
            f"{path}: name the columns to learn with `target`; there are "
            f"{_listed(_columns_of(path))}"
        )
    chemistry()
    features = options.features or "ogb"
    rows: list[_Row] = []
    parts: list[MoleculeArrays] = []
    sizes: list[int] = []
    for stretch in _stretches(source.rows(), _ROWS):
        parts.append(molecule_arrays([row.text for row in stretch], features, _problems(stretch)))
        sizes.append(len(stretch))
        rows += stretch
    if not rows:
        raise DataError(f"{path}: there are no rows")
    arrays = MoleculeArrays.join(parts, sizes)
    ids = [row.id or str(number) for number, row in enumerate(rows, 1)]
    _check_structures(path, arrays, ids)
    arrays, codec, values = _read_targets(source, rows, arrays)
    skipped = [Skipped(place + 1, ids[place], why) for place, why in arrays.problems.items()]
    check_readable(str(path), len(rows), skipped)
    featurizer = Featurizer("molecules", features, **source.options.columns())
    store = store_of(arrays, featurizer, ids, [row.text for row in rows], _name(path))
    return store.with_targets(
        codec.tensor(values),
        task=codec.task,
        num_outputs=codec.num_outputs,
        label_names=codec.label_names,
    )


def _check_structures(path: Path, arrays: MoleculeArrays, ids: Sequence[str]) -> None:
    """Before targets are looked at: the wrong column of structures is the likeliest mistake."""
    skipped = [Skipped(place + 1, ids[place], why) for place, why in arrays.problems.items()]
    check_readable(str(path), len(ids), skipped)


def _read_targets(
    source: _Source, rows: Sequence[_Row], arrays: MoleculeArrays
) -> tuple[MoleculeArrays, TargetCodec, list[tuple[float, ...]]]:
    """Find the targets of the molecules, and drop those that have none."""
    scan = TargetScan(source.options.targets, source.options.task)
    places = arrays.places.tolist()
    for place in places:
        scan.add(rows[place].cells)
    codec = _finish(scan, source)
    problems = dict(arrays.problems)
    values: list[tuple[float, ...]] = []
    kept = []
    for place in places:
        value = codec.encode(rows[place].cells)
        kept.append(not isinstance(value, str))
        if isinstance(value, str):
            problems[place] = value
        else:
            values.append(value)
    arrays = replace(
        arrays.keep(np.array(kept, dtype=bool)), problems=dict(sorted(problems.items()))
    )
    return arrays, codec, values


def _finish(scan: TargetScan, source: _Source) -> TargetCodec:
    """End a scan; in an SDF only now it is known that there is no such property."""
    try:
        return scan.finish(str(source.path))
    except DataError:
        if _suffix(source.path) in _RECORDS and not any(scan.seen):
            _place(source.path, _columns_of(source.path), "target", source.options.targets[0])
        raise


# ------------------------------------------------------------------ streams


def stream_table(
    path: str | Path,
    options: TableOptions | None = None,
    *,
    featurizer: Featurizer | None = None,
    rows_per_chunk: int = _ROWS,
    targets: bool = False,
    codec: TargetCodec | None = None,
    skip_rows: int = 0,
    workers: int = 1,
) -> Iterator[Chunk]:
    r"""Read a table of molecules, or an SDF, chunk by chunk in bounded memory.

    Args:
        path: The file: CSV, TSV or SDF, plain or packed with gzip.
        options: Columns, features and task.
        featurizer: ``featurizer`` of a model: features are made as for it, and its columns are used
            where ``options`` names none and the file has them.
        rows_per_chunk: How many rows a chunk has.
        targets: Whether targets are read. Without a ``codec`` the file is then gone through twice,
            first to find the task and the classes.
        codec: How targets are to be read, such as those of a model. Its names are the columns where
            neither ``options`` nor ``featurizer`` names any.
        skip_rows: How many rows to pass over, unread, at the beginning.
        workers: How many processes read molecules; with 1 it is done here.

    Yields:
        The chunks in order; every row, after those skipped, is in one of them.

    Raises:
        DataError: If the file or a column cannot be read, or the model is not about molecules.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "mine.csv"
        ...     _ = file.write_text("id,smiles\na,CCO\nb,C1CC\nc,C\n")
        ...     chunks = list(stream_table(file, TableOptions.of(id="id"), rows_per_chunk=2))
        >>> [chunk.ids for chunk in chunks], chunks[0].problems
        ([('a', 'b'), ('c',)], {2: 'the SMILES cannot be parsed: unclosed ring 1'})
    """
    for argument, value, least in (
        ("rows_per_chunk", rows_per_chunk, 1),
        ("skip_rows", skip_rows, 0),
        ("workers", workers, 1),
    ):
        if value < least:
            raise GraphTransplantError(f"`{argument}` must be at least {least}, got {value}")
    path = Path(path)
    options = options or TableOptions()
    how = _features(options, featurizer)
    check_codec(codec, targets)
    if not targets:
        options = replace(options, targets=())
        featurizer = None if featurizer is None else replace(featurizer, targets=())
    source = _source(path, options, featurizer)
    if codec is not None and not source.options.targets:
        source = _source(path, replace(source.options, targets=codec.names), None)
    if targets and not source.options.targets:
        raise DataError(
            f"{path}: name the columns of the targets with `target`; there are "
            f"{_listed(_columns_of(path))}"
        )
    if codec is not None and len(source.options.targets) != len(codec.names):
        raise DataError(
            f"{path}: the target must be {len(codec.names)} columns "
            f"({_listed(codec.names)}); got {_listed(source.options.targets)}"
        )
    chemistry()
    how = replace(how, **source.options.columns())
    return _stream(source, how, rows_per_chunk, targets, codec, skip_rows, workers)


def _features(options: TableOptions, featurizer: Featurizer | None) -> Featurizer:
    """How features are made: as for the model, or as asked for."""
    if featurizer is None:
        if options.features == "elements":
            raise GraphTransplantError(
                "`features` is elements, which are those of the training data: `featurizer` of a "
                "model must say which"
            )
        return Featurizer("molecules")
    if options.features not in (None, featurizer.features):
        raise GraphTransplantError(
            f"`features` is {options.features}, but the model was made for {featurizer.features}"
        )
    return featurizer


def _stream(
    source: _Source,
    featurizer: Featurizer,
    rows_per_chunk: int,
    targets: bool,
    codec: TargetCodec | None,
    skip_rows: int,
    workers: int,
) -> Iterator[Chunk]:
    if targets and codec is None:
        scan = TargetScan(source.options.targets, source.options.task)
        for row in source.rows():
            if not row.reason:
                scan.add(row.cells)
        codec = _finish(scan, source)
    rows = islice(source.rows(), skip_rows, None)
    first = skip_rows + 1
    name = _name(source.path)
    jobs = (_job(stretch, codec) for stretch in _stretches(rows, rows_per_chunk))
    for job, arrays in _in_order(jobs, featurizer.features, workers):
        ids = [row.id or str(first + place) for place, row in enumerate(job.rows)]
        texts = [row.text for row in job.rows]
        chunk = chunk_of(arrays, featurizer, ids=ids, texts=texts, first=first, name=name)
        yield chunk if codec is None else _with_targets(chunk, codec, job.values)
        first += len(job.rows)


class _Job(NamedTuple):
    """A stretch of rows whose molecules are to be read.

    Attributes:
        rows: The rows.
        problems: Those that are not to be read, by place.
        values: Targets of the others, by place.
    """

    rows: list[_Row]
    problems: dict[int, str]
    values: dict[int, tuple[float, ...]]


def _job(rows: list[_Row], codec: TargetCodec | None) -> _Job:
    problems = _problems(rows)
    values: dict[int, tuple[float, ...]] = {}
    if codec is not None:
        for place, row in enumerate(rows):
            if place not in problems:
                value = codec.encode(row.cells)
                if isinstance(value, str):
                    problems[place] = value
                else:
                    values[place] = value
    return _Job(rows, problems, values)


def _with_targets(
    chunk: Chunk, codec: TargetCodec, values: Mapping[int, tuple[float, ...]]
) -> Chunk:
    if chunk.store is None:
        return chunk
    assert chunk.store.rows is not None
    places = (chunk.store.rows.number - chunk.first).tolist()
    store = chunk.store.with_targets(
        codec.tensor([values[place] for place in places]),
        task=codec.task,
        num_outputs=codec.num_outputs,
        label_names=codec.label_names,
    )
    return replace(chunk, store=store)


def _in_order(
    jobs: Iterator[_Job], features: str, workers: int
) -> Iterator[tuple[_Job, MoleculeArrays]]:
    """Read the molecules of jobs, here or in processes, and give them back in order."""
    if workers == 1:
        for job in jobs:
            yield job, molecule_arrays([row.text for row in job.rows], features, job.problems)
        return
    # Spawned: a fork of a process with threads, such as those of torch, may hang.
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    waiting: deque[tuple[_Job, Future[MoleculeArrays]]] = deque()
    try:
        while True:
            # Two for each worker, so that none waits while the oldest is being used.
            for job in islice(jobs, max(0, 2 * workers - len(waiting))):
                texts = [row.text for row in job.rows]
                future = pool.submit(molecule_arrays, texts, features, job.problems)
                waiting.append((job, future))
            if not waiting:
                return
            job, future = waiting.popleft()
            yield job, future.result()
    except BrokenExecutor:
        raise GraphTransplantError(
            f"a process that reads molecules ended abruptly; `workers` is {workers}, with 1 no "
            "further processes are needed"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
