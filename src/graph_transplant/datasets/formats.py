"""Tables of molecules: CSV, TSV, SMI, SDF, Excel, Parquet, data frames.

Every format is opened as a :class:`Table` with named columns, which yields its rows. To add a
format, write a function that opens it and list it in :data:`READERS`.
"""

from __future__ import annotations

import csv
import re
import zipfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from graph_transplant.datasets.chemistry import looks_like_smiles
from graph_transplant.datasets.rows import quoted
from graph_transplant.datasets.source import opened
from graph_transplant.errors import DataError
from graph_transplant.format import count

if TYPE_CHECKING:
    import pandas as pd

ROWS: Final = 2048
"""Default number of rows per chunk."""

STRUCTURES: Final = ("smiles", "mol", "structure")
"""Usual names of the structure column, in lower case."""

# Limits on memory for one SDF record and for an unpacked workbook.
_LONGEST_RECORD: Final = 8 << 20
_LARGEST_WORKBOOK: Final = 1 << 30
_SHOWN_COLUMNS: Final = 20
# With a line break, which the name of a property cannot have.
_BLOCK, _TITLE = "mol block\n", "title\n"
# A value ends at a blank line or, if it is missing, at the next property.
_PROPERTY: Final = re.compile(r"^>[^<\n]*<(.+)>.*\n((?:(?!>[ \t]+<).*\S.*\n)*)", re.MULTILINE)


@dataclass(frozen=True)
class Table:
    """Rows with named columns."""

    where: str  # for messages
    name: str  # of the data set
    columns: Sequence[str]
    # Yields the cells of the given columns and an error message, empty if there is none.
    rows: Callable[[Sequence[str]], Iterator[tuple[Sequence[str], str]]]
    # Columns of structures, ids and targets, if known.
    structures: str | None = None
    ids: str | None = None
    targets: tuple[str, ...] = ()
    # Column of structures of formats in which columns have no names of their own.
    unnamed: str | None = None
    # Grows while rows are read. A dictionary, so that a second pass does not repeat notes.
    notes: dict[str, None] = field(default_factory=dict)

    def check(self, argument: str, name: str) -> None:
        """Raise unless exactly one column has this name."""
        columns = self.columns
        times = list(columns).count(name)
        if times > 1:
            raise DataError(
                f"{self.where}: `{argument}` is {quoted(name)}, and {times} columns have that name"
            )
        if not columns:
            raise DataError(f"{self.where}: `{argument}` is {quoted(name)}, but no row has columns")
        if not times:
            lower = {column.casefold(): column for column in reversed(columns)}
            close = get_close_matches(name.casefold(), list(lower), n=1)
            hint = f" (did you mean {quoted(lower[close[0]])}?)" if close else ""
            raise DataError(
                f"{self.where}: `{argument}` must be one of the columns {listed(columns)}; "
                f"got {quoted(name)}{hint}"
            )


def listed(columns: Sequence[str]) -> str:
    """List the first columns, for messages."""
    more = len(columns) - _SHOWN_COLUMNS
    shown = ", ".join(map(quoted, columns[:_SHOWN_COLUMNS]))
    return shown + (f" and {more} more" if more > 0 else "")


# ------------------------------------------------------------------ files of lines


def _lines(path: Path, notes: dict[str, None]) -> Generator[str, None, None]:
    with opened(path) as file:
        for number, line in enumerate(file):
            if not number and line.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise DataError(f"{path}: the file is UTF-16 text; save it as CSV in UTF-8")
            line = line if number else line.removeprefix(b"\xef\xbb\xbf")
            try:
                yield line.decode()
            except UnicodeDecodeError:
                notes["The file is not UTF-8 text and was read as Latin-1 (Windows-1252)."] = None
                yield line.decode("cp1252", "replace")


def _delimited(path: Path) -> Table:
    """Open a table separated by commas, semicolons or tabs."""
    notes: dict[str, None] = {}
    with closing(_lines(path, notes)) as lines:
        first = next((line for line in lines if line.strip()), None)
        if first is None:
            raise DataError(f"{path}: is empty")
        if "\r" in first.rstrip("\r\n"):
            raise DataError(f"{path}: lines must end with LF or CRLF, not with CR alone")
        plain = re.sub(r'"[^"]*"', "", first)
        tabs = suffix_of(path) in (".tsv", ".tab")
        delimiter = "\t" if tabs else max((",", ";", "\t"), key=plain.count)
        try:
            head = next(csv.reader([first], delimiter=delimiter, strict=True))
            columns, structures = _header(head, csv.reader(lines, delimiter=delimiter), notes)
        except csv.Error as error:
            raise DataError(f"{path}: the first row is broken ({error})") from None

    def rows(names: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
        places = [columns.index(name) for name in names]
        cells = csv.reader(_lines(path, notes), delimiter=delimiter, strict=True)
        passed = structures is not None
        held = 0  # rows without any value: they count if another row follows
        while True:
            start, reason = cells.line_num + 1, ""
            try:
                values = next(cells, None)
            except csv.Error as error:
                if "field larger" in str(error) or "unexpected end" in str(error):
                    # The rest of the file cannot be split into rows.
                    raise DataError(
                        f"{path}, line {start}: a quoted value is not closed (or over 128 KiB)"
                    ) from None
                values, reason = ["broken"], f"the row is broken ({error})"
            if values is None:
                return
            if not values or (len(columns) > 1 and not any(map(str.strip, values))):
                held += len(values) > 1
                continue
            yield from repeat(([""] * len(names), ""), held)
            held = 0
            if not passed:
                passed = True
            elif reason:
                yield (), reason
            elif len(values) != len(columns):
                heads = "the header" if structures is None else "the first row"
                yield (), f"the row has {count(len(values), 'value')}, {heads} has {len(columns)}"
            else:
                yield [values[place] for place in places], ""

    return Table(str(path), name_of(path), columns, rows, structures=structures, notes=notes)


def _header(
    first: Sequence[str], rest: Iterator[Sequence[str]], notes: dict[str, None]
) -> tuple[list[str], str | None]:
    """Return the column names and, if there is no header, the structure column."""
    columns = [cell.strip() for cell in first]
    if any(map(_of_structures, columns)):
        return columns, None
    second = next(filter(any, rest), ())
    for place, cell in enumerate(columns):
        below = second[place] if len(second) == len(columns) else cell
        if looks_like_smiles(cell) and looks_like_smiles(below):
            names = [f"column {number}" for number in range(1, len(columns) + 1)]
            notes[
                f"The first row is not a header: it contains the SMILES {quoted(cell)}. Columns "
                f"are named {listed(names)}; structures were read from {quoted(names[place])}."
            ] = None
            return names, names[place]
    return columns, None


def _of_structures(name: str) -> bool:
    return name.casefold() in STRUCTURES or "smiles" in name.casefold()


def _smi(path: Path) -> Table:
    """Open a file of SMILES, each followed by an optional name; tabs separate more columns."""
    notes: dict[str, None] = {}

    def cells() -> Iterator[list[str]]:
        for number, line in enumerate(_lines(path, notes)):
            text = line.rstrip()
            found = text.split("\t") if "\t" in text else text.split(None, 1)
            # Some programs write a header.
            if text and (number or not _of_structures(found[0].strip())):
                yield found

    columns = ["smiles", "name"]
    columns += [f"column {number}" for number in range(3, len(next(cells(), [])) + 1)]

    def rows(names: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
        places = [columns.index(name) for name in names]
        for found in cells():
            yield [found[place] if place < len(found) else "" for place in places], ""

    return Table(str(path), name_of(path), columns, rows, ids="name", unnamed="smiles", notes=notes)


def _sdf(path: Path) -> Table:
    """Open an SDF; its mol blocks are parsed later, as SMILES are."""
    notes: dict[str, None] = {}

    def records() -> Iterator[str]:
        record: list[str] = []
        size = 0
        for line in _lines(path, notes):
            size += len(line)
            if line.startswith("$$$$"):
                yield "".join(record)
                record, size = [], 0
            elif size > _LONGEST_RECORD:
                raise DataError(f"{path}: a record is longer than {_LONGEST_RECORD >> 20} MiB")
            else:
                record.append(line.rstrip("\r\n") + "\n")
        # The last record may lack `$$$$`; trailing blank lines are not a record.
        if any(line.strip() for line in record):
            yield "".join(record)

    def rows(names: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
        for record in records():
            block, *rest = re.split(r"^(?=M  END)", record, flags=re.MULTILINE)
            items = _PROPERTY.findall("".join(rest))
            found = {name.strip(): text.strip() for name, text in items}
            found[_TITLE], found[_BLOCK] = record.partition("\n")[0], block + "M  END\n"
            reason = "" if rest else "the record has no line 'M  END'"
            if len(rest) > 1:
                # Properties cannot be assigned to one of the two.
                reason = "the record holds two structures; is `$$$$` missing?"
                found = {_TITLE: found[_TITLE]}
            yield [found.get(name, "") for name in names], reason

    if next(records(), None) is None:
        raise DataError(f"{path}: is empty")
    columns = [name.strip() for record in records() for name, _ in _PROPERTY.findall(record)]
    names = list(dict.fromkeys(columns))
    return Table(str(path), name_of(path), names, rows, structures=_BLOCK, ids=_TITLE, notes=notes)


# ------------------------------------------------------------------ frames


def frame_table(frame: pd.DataFrame, where: str, name: str) -> Table:
    """Open a data frame; missing values become empty cells."""
    columns = [str(column) for column in frame.columns]

    def rows(names: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
        places = [columns.index(name) for name in names]
        for start in range(0, len(frame), ROWS):
            part = frame.iloc[start : start + ROWS, places].astype(object)
            for values, missing in zip(part.to_numpy(), part.isna().to_numpy(), strict=True):
                cells = zip(values, missing, strict=True)
                yield ["" if gone else str(value) for value, gone in cells], ""

    return Table(where, name, columns, rows)


def _texts_table(texts: Any, y: Any, name: str | None) -> Table:
    """Open a list of SMILES, which are also the ids, or a data frame; ``y`` holds targets."""
    import pandas as pd

    ids, index = None, texts.index if isinstance(texts, pd.Series | pd.DataFrame) else None
    if not isinstance(texts, pd.DataFrame):
        texts, ids = pd.DataFrame({"smiles": list(texts)}, dtype=object), "smiles"
    texts = texts.set_axis([str(column).strip() for column in texts.columns], axis=1)
    where = name or "`data`"
    if y is None:
        return replace(frame_table(texts, where, name or "molecules"), ids=ids, unnamed=ids)
    if isinstance(y, str):
        raise DataError(
            f"`y` must be the targets themselves; name a column with `target`, not {y!r}"
        )
    if isinstance(y, list | tuple):
        y = [each.tolist() if hasattr(each, "tolist") else each for each in y]
    labels = pd.DataFrame(y.numpy(force=True) if hasattr(y, "numpy") else y)
    own = y.index if isinstance(y, pd.Series | pd.DataFrame) else None
    if index is not None and own is not None and {*index} == {*own} and not index.equals(own):
        raise DataError("`y` must be in the order of the rows: its index is in another order")
    if len(labels) != len(texts):
        raise DataError(
            f"`y` must have one target per row: there are {len(texts)} rows and {len(labels)} "
            "targets"
        )
    if not hasattr(y, "columns"):
        several = [f"y{number}" for number in range(1, labels.shape[1] + 1)]
        given = getattr(y, "name", None)
        labels.columns = several if labels.shape[1] > 1 else [given or "y"]
    labels.columns = [f"{c} (y)" if c in texts.columns else str(c) for c in labels.columns]
    both = pd.concat([texts.reset_index(drop=True), labels.reset_index(drop=True)], axis=1)
    table = frame_table(both, where, name or "molecules")
    return replace(table, ids=ids, unnamed=ids, targets=tuple(labels.columns))


def _excel(path: Path) -> Table:
    """Open the first sheet of a workbook."""
    import pandas as pd

    notes: dict[str, None] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > _LARGEST_WORKBOOK:
            raise DataError(f"{path}: unpacks to {size >> 20} MiB; save it as CSV")
        with pd.ExcelFile(path, engine="openpyxl") as book:
            sheets = book.sheet_names
            frame = pd.read_excel(book, header=None, dtype=str, na_filter=False)
    except ImportError:
        raise DataError(
            f'{path}: Excel needs openpyxl: pip install "graph-transplant[excel]"'
        ) from None
    except (OSError, ValueError, KeyError, TypeError, SyntaxError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not a readable Excel workbook ({error})") from None
    there = (frame != "").any(axis=1).to_numpy().nonzero()[0]
    if not len(there):
        raise DataError(f"{path}: is empty")
    frame = frame.iloc[there[0] : there[-1] + 1]
    if len(sheets) > 1:
        notes[f"Of {len(sheets)} sheets only the first, {quoted(str(sheets[0]))}, was read."] = None
    top = frame.iloc[:2].astype(str).to_numpy().tolist()
    columns, structures = _header(top[0], iter(top[1:]), notes)
    frame = frame.iloc[1:] if structures is None else frame
    frame.columns = pd.Index(columns)
    table = frame_table(frame, str(path), name_of(path))
    return replace(table, structures=structures, notes=notes)


def _parquet(path: Path) -> Table:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise DataError(
            f'{path}: Parquet needs pyarrow: pip install "graph-transplant[parquet]"'
        ) from None

    def rows(names: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
        try:
            with ParquetFile(path) as file:
                stored = [file.schema_arrow.names[columns.index(name)] for name in names]
                for batch in file.iter_batches(batch_size=ROWS, columns=stored):
                    # An index of pandas is a column like others; integers with gaps stay integers.
                    part = batch.to_pandas(ignore_metadata=True, integer_object_nulls=True)
                    yield from frame_table(part, "", "").rows(stored)
        except (ArrowException, OSError) as error:
            raise DataError(f"{path}: cannot be read ({error})") from None

    try:
        with ParquetFile(path) as file:
            columns = [name.strip() for name in file.schema_arrow.names]
    except (ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({error})") from None
    return Table(str(path), name_of(path), columns, rows)


# ------------------------------------------------------------------ the formats

READERS: Final[Mapping[str, Callable[[Path], Table]]] = {
    ".csv": _delimited,
    ".tsv": _delimited,
    ".tab": _delimited,
    ".smi": _smi,
    ".sdf": _sdf,
    ".sd": _sdf,
    ".xlsx": _excel,
    ".parquet": _parquet,
}
"""Functions that open a file, by suffix; ``.gz`` may follow that of a text format."""


def suffix_of(path: Path) -> str:
    """Suffix of a file in lower case, without the ``.gz`` of a text format."""
    inner = Path(path.name.lower().removesuffix(".gz")).suffix
    return path.suffix.lower() if READERS.get(inner) in (_excel, _parquet) else inner


def name_of(path: Path) -> str:
    """Name of a file without its suffix and ``.gz``."""
    return Path(re.sub(r"\.gz$", "", path.name, flags=re.IGNORECASE)).stem


def is_table(path: Path) -> bool:
    """Whether a path is a table of molecules, judged by its suffix."""
    return suffix_of(path) in READERS and path.is_file()


def open_table(data: Any, y: Any = None, name: str | None = None) -> Table:
    """Open a file, a list of SMILES or a data frame."""
    if isinstance(data, Path):
        return READERS[suffix_of(data)](data)
    return _texts_table(data, y, name)
