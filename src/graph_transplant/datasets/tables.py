"""Tables of molecules: CSV, TSV, SMI, SDF, Excel, Parquet, data frames.

Every format is opened as a :class:`Table` with named columns, which yields its rows. To add a
format, write a function that opens it and list it in :data:`READERS`.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from graph_transplant.datasets.chemistry import looks_like_smiles
from graph_transplant.datasets.files import check_size, files_in, limited, opened
from graph_transplant.datasets.rows import check_index, quoted
from graph_transplant.errors import DataError, brief
from graph_transplant.utils.text import count

if TYPE_CHECKING:
    import pandas as pd

ROWS: Final = 2048
"""Default number of rows per chunk."""

STRUCTURES: Final = ("smiles", "mol", "structure")
"""Usual names of the structure column, in lower case."""

# Limits on memory for one SDF record and for the columns of any table.
_LONGEST_RECORD: Final = 8 << 20
_MOST_COLUMNS: Final = 100_000
# Of a workbook: tags of cells and texts, other tags (openpyxl makes a large object of each), cells,
# and empty rows between others, which are likely above a stray cell.
_FEW_TAGS: Final = 1 << 20
_TAGS_PER_BYTE: Final = 4
_MOST_OTHER_TAGS: Final = 1 << 18
_FEW_CELLS: Final = 1 << 24
_CELLS_PER_BYTE: Final = 16
_MOST_EMPTY_ROWS: Final = 10_000
_LAST_ROW: Final = 1 << 20
# Rows of Parquet that are read at once where texts share prefixes.
_PREFIXED_ROWS: Final = 16
_CELL_TAG: Final = re.compile(rb"</?(?:\w+:)?(?:row|c|v|f|is|si|r|t)[ >/\s]")
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
    size: int | None = None  # of the file in bytes

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
    """Yield lines with their ends, which may be LF, CRLF or CR."""
    with opened(path) as file:
        # Latin-1 keeps all bytes as they are.
        split = io.TextIOWrapper(file, encoding="latin-1", newline="")
        for number, line in enumerate(text.encode("latin-1") for text in split):
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
        plain = re.sub(r'"[^"]*"', "", first)
        tabs = suffix_of(path) in (".tsv", ".tab")
        delimiter = "\t" if tabs else max((",", ";", "\t"), key=plain.count)
        _check_width(path, first.count(delimiter))
        try:
            head = next(csv.reader([first], delimiter=delimiter, strict=True))
            columns, structures = _header(head, csv.reader(lines, delimiter=delimiter), notes)
        except csv.Error as error:
            raise DataError(f"{path}: the first row is broken ({error})") from None

    def rows(names: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
        places = [columns.index(name) for name in names]
        last = [""]

        def lines() -> Iterator[str]:
            for last[0] in _lines(path, notes):
                yield last[0]

        cells = csv.reader(lines(), delimiter=delimiter, strict=True)
        passed = structures is not None
        held = 0  # rows without any value: they count if another row follows
        while True:
            start, reason = cells.line_num + 1, ""
            try:
                values = next(cells, None)
            except csv.Error as error:
                large = "field larger" in str(error)
                alone = cells.line_num == start and last[0].count('"') % 2 == 0
                if "unexpected end" in str(error) or (large and not alone):
                    # The rest of the file cannot be split into rows.
                    raise DataError(
                        f"{path}, line {start}: a quoted value is not closed (or over 128 KiB)"
                    ) from None
                what = "a value is longer than 128 KiB" if large else str(error)
                values, reason = ["broken"], f"the row is broken ({what})"
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


def _check_width(path: Path, columns: int) -> None:
    if columns > _MOST_COLUMNS:
        raise DataError(f"{path}: has {columns} columns, at most {_MOST_COLUMNS} are read")


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
    _check_width(path, len(next(cells(), [])))
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
    names: dict[str, None] = {}
    for record in limited(records(), path):
        names |= dict.fromkeys(name.strip() for name, _ in _PROPERTY.findall(record))
        _check_width(path, len(names))
    columns = list(names)
    return Table(
        str(path), name_of(path), columns, rows, structures=_BLOCK, ids=_TITLE, notes=notes
    )


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

    check_index(texts, y)
    ids = None
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
    notes: dict[str, None] = {}
    try:
        import openpyxl
    except ImportError:
        raise DataError(
            f'{path}: Excel needs openpyxl: pip install "graph-transplant[excel]"'
        ) from None
    _check_workbook(path)
    try:
        # It warns of formats and extensions that do not change values.
        with warnings.catch_warnings(action="ignore"), path.open("rb") as file:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
            cells = _sheet(path, book.worksheets[0]) if book.worksheets else []
    except DataError:
        raise
    except Exception as error:  # noqa: BLE001 - openpyxl raises anything if a workbook is damaged
        raise DataError(f"{path}: not a readable Excel workbook ({brief(error)})") from None
    if not cells:
        raise DataError(f"{path}: is empty")
    if len(book.sheetnames) > 1:
        first = quoted(book.sheetnames[0])
        notes[f"Of {len(book.sheetnames)} sheets only the first, {first}, was read."] = None
    width = max(map(len, cells))
    top = [[*row, *[""] * (width - len(row))] for row in cells[:2]]
    columns, structures = _header(top[0], iter(top[1:]), notes)

    def rows(names: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
        places = [columns.index(name) for name in names]
        for row in cells[structures is None :]:
            yield [row[place] if place < len(row) else "" for place in places], ""

    return Table(str(path), name_of(path), columns, rows, structures=structures, notes=notes)


def _check_workbook(path: Path) -> None:
    """Raise if the XML in a workbook is far larger than its file, or describes far more."""
    size = path.stat().st_size
    cells = others = 0
    for member in files_in(path, suffix=".xlsx"):
        if not member.lower().endswith((".xml", ".rels")):
            continue
        with opened(path, member, lines=False) as file:
            kept = b""
            while block := file.read(1 << 20):
                # A tag may be cut in two.
                block = kept + block
                cut = max(block.rfind(b"<"), len(block) - 64)
                block, kept = block[:cut], block[cut:]
                of_cells = len(_CELL_TAG.findall(block))
                cells, others = cells + of_cells, others + block.count(b"<") - of_cells
            others += kept.count(b"<")
        if cells > max(_FEW_TAGS, _TAGS_PER_BYTE * size) or others > _MOST_OTHER_TAGS:
            raise DataError(f"{path}: the workbook is too complex for its size; save it as CSV")


def _sheet(path: Path, sheet: Any) -> list[Sequence[str]]:
    """Rows from the first to the last with a value, without empty cells at the end."""
    most = max(_FEW_CELLS, _CELLS_PER_BYTE * path.stat().st_size)
    rows: list[Sequence[str]] = []
    seen = empty = 0
    # The size that a file states may be wrong.
    sheet.reset_dimensions()
    for number, row in enumerate(sheet.rows, 1):
        seen += len(row)
        texts = [_text(cell) for cell in row]
        while texts and not texts[-1]:
            texts.pop()
        if not texts:
            empty += 1
        elif rows and empty > _MOST_EMPTY_ROWS:
            raise DataError(
                f"{path}: there are {empty} empty rows above row {number}; clear stray cells below "
                "the table"
            )
        else:
            rows += [()] * empty if rows else []
            rows.append(texts)
            empty = 0
        if seen > most or number > _LAST_ROW:
            raise DataError(
                f"{path}: the sheet spans more than {number - 1} rows and {len(row)} columns; "
                "clear stray cells beside the table, or save it as CSV"
            )
    if max(map(len, rows), default=0) == 1:
        rows = [row for row in rows if row]
    return rows


def _text(cell: Any) -> str:
    """Text of a cell; whole numbers have no decimal point."""
    value = cell.value
    if value is None or cell.data_type == "e":
        return ""
    if cell.data_type == "n" and float(value).is_integer():
        value = int(value)
    return str(value)


def _parquet(path: Path) -> Table:
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise DataError(
            f'{path}: Parquet needs pyarrow: pip install "graph-transplant[parquet]"'
        ) from None

    at_once = ROWS

    def rows(names: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
        try:
            # Texts that recur are held once.
            with ParquetFile(path, read_dictionary=texts) as file:
                stored = [known[columns.index(name)] for name in names]
                for batch in file.iter_batches(batch_size=at_once, columns=stored):
                    # An index of pandas is a column like others; integers with gaps stay integers.
                    part = batch.to_pandas(ignore_metadata=True, integer_object_nulls=True)
                    yield from frame_table(part, "", "").rows(stored)
        except Exception as error:  # noqa: BLE001 - pyarrow raises anything if a file is damaged
            raise DataError(f"{path}: cannot be read ({brief(error)})") from None

    try:
        with ParquetFile(path) as file:
            schema, groups = file.schema_arrow, file.metadata
            numbers = range(groups.num_row_groups)
            unpacked = sum(groups.row_group(number).total_byte_size for number in numbers)
            check_size(str(path), unpacked, path.stat().st_size)
            # Raises where a column is described wrongly; to ask for the description would abort.
            for number in numbers:
                next(file.iter_batches(batch_size=1, row_groups=[number]), None)
            known = schema.names
            of_text = (pa.string(), pa.large_string())
            texts = [field.name for field in schema if field.type in of_text]
            if _shares_prefixes(groups):
                texts, at_once = [], _PREFIXED_ROWS
    except DataError:
        raise
    except Exception as error:  # noqa: BLE001 - as above
        raise DataError(f"{path}: not a readable Parquet file ({brief(error)})") from None
    columns = [name.strip() for name in known]
    return Table(str(path), name_of(path), columns, rows)


def _shares_prefixes(groups: Any) -> bool:
    """Whether texts are stored by what they add to the one before: these grow when read."""
    columns = range(groups.num_columns)
    parts = (groups.row_group(n).column(c) for n in range(groups.num_row_groups) for c in columns)
    return any("DELTA_BYTE_ARRAY" in part.encodings for part in parts)


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
        return _limited(READERS[suffix_of(data)](data), data)
    return _texts_table(data, y, name)


def _limited(table: Table, path: Path) -> Table:
    """Limit the number of rows, and the length of their texts."""
    _check_width(path, len(table.columns))
    size = path.stat().st_size

    def rows(names: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
        length = 0
        for cells, reason in limited(table.rows(names), path):
            length += sum(map(len, cells))
            check_size(table.where, length, size)
            yield cells, reason

    return replace(table, rows=rows, size=size)
