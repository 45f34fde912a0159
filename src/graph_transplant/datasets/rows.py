"""Shared parts of the row-based readers: chunks of rows, options, targets."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from graph_transplant.data import Featurizer, GraphStore
from graph_transplant.data.validation import check_precision
from graph_transplant.errors import DataError, GraphTransplantError, Skipped, check_choice
from graph_transplant.metrics import TASKS
from graph_transplant.utils.text import count

# Markers of missing values, in lower case.
MISSING: Final = frozenset({"", "nan", "na", "n/a", "null", "none", "-"})
# Reason for skipping a row that is readable but has no target.
NO_TARGET: Final = "no target"

# Columns with more distinct values are not classes, unless `task` says so.
_MOST_CLASSES: Final = 50
_MANY_CLASSES: Final = 10  # of more numbers, a note says that they are read as classes
_LARGEST: Final = float(np.finfo(np.float32).max)
_YES_NO: Final = {"0": 0.0, "1": 1.0, "false": 0.0, "true": 1.0, "no": 0.0, "yes": 1.0}
# Class pairs with a conventional positive class, which comes second even if it is more frequent.
_PAIRS: Final = (("inactive", "active"), ("negative", "positive"))
_COMMA_NUMBER: Final = re.compile(r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?")
# A comma before exactly three digits may also separate thousands.
_THOUSANDS: Final = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")
# A percentage, or a number with a sign such as < or ~.
_AMOUNT: Final = re.compile(r"\s*[<>≤≥=~≈]*\s*[+-]?[0-9]+([.,][0-9]+)?\s*%?\s*")

# Maximum length of values quoted in messages.
_QUOTED: Final = 40

Target = tuple[float, ...] | str
"""Class, labels or values of a graph (NaN if missing), or why it has none."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of the input, each of them a graph or a problem.

    Attributes:
        first: Number of the first row, counted from 1 without the header.
        ids: Id of every row; without one, its SMILES or number.
        texts: Source text of every row, such as its SMILES, or an empty string.
        store: Graphs of the readable rows, in order; their row numbers are in
            ``store.rows.number``. ``None`` if there are none.
        problems: Why the other rows could not be read, by row number.
        targets: Encoded target of each row, or why it has none, by row number; empty without a
            codec.
        notes: Remarks on how the input was read so far, such as on a guessed column.
    """

    first: int
    ids: tuple[str, ...]
    texts: tuple[str, ...]
    store: GraphStore | None
    problems: Mapping[int, str]
    targets: Mapping[int, Target] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class TableOptions:
    """Columns of a table, and how molecules become features."""

    smiles: str | None = None  # guessed by default
    targets: tuple[str, ...] = ()
    whole: str | None = None  # `target` if it has commas: may be a single column
    id: str | None = None  # the SMILES by default
    task: str | None = None  # inferred from the values by default
    largest_fragment: bool = False

    def __post_init__(self) -> None:
        if self.task is not None:
            check_choice("task", self.task, TASKS)

    @classmethod
    def of(cls, *, target: Any = None, **options: Any) -> TableOptions:
        """Create from user options; several targets are a list, or separated by commas."""
        given = target.split(",") if isinstance(target, str) else target
        if not isinstance(given, Iterable):  # a column name may be a number
            given = [] if given is None else [given]
        names = tuple(str(name).strip() for name in given)
        if "" in names:
            raise GraphTransplantError(
                f"`target` must be a column, or several separated by commas; got {target!r}"
            )
        if len(set(names)) < len(names):
            raise GraphTransplantError(f"`target` names a column twice; got {', '.join(names)}")
        whole = target.strip() if isinstance(target, str) and len(names) > 1 else None
        for name in {"smiles", "id"} & options.keys():
            if options[name] is not None:
                options[name] = str(options[name]).strip()
        return cls(targets=names, whole=whole, **options)

    def columns(self) -> dict[str, Any]:
        """Return the columns for the featurizer of a store."""
        return {"smiles": self.smiles, "targets": self.targets, "id": self.id}


@dataclass(frozen=True)
class Reading:
    """How a data set is read in chunks, see :func:`~graph_transplant.stream`."""

    featurizer: Featurizer | None
    codec: TargetCodec | None
    rows_per_chunk: int
    skip_rows: int
    workers: int


# ------------------------------------------------------------------ cells


def quoted(text: str) -> str:
    """Quote and shorten a text of the input for messages."""
    return repr(text if len(text) <= _QUOTED else text[:_QUOTED] + "…")


def is_missing(cell: str) -> bool:
    """Whether a cell is empty or marks a missing value."""
    return cell.strip().lower() in MISSING


def number_of(cell: str) -> float | None:
    """Parse a cell as a number (which may be ``inf``); ``None`` if it is not one."""
    # `float` also accepts underscores and the digits of other scripts.
    if "_" in cell or not cell.isascii():
        return None
    try:
        return float(cell)
    except ValueError:
        return None


def class_name(cell: str) -> str:
    """Normalised class name: 1, 1.0, 1,0 and +1 are the same class, as are NFC and NFD."""
    number, comma = number_of(cell), _comma_number(cell)
    if comma is not None and comma.is_integer() and not _thousands(cell):
        number = comma
    if number is None or not math.isfinite(number):
        return unicodedata.normalize("NFC", cell.strip())
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)


def key_of(name: str) -> str:
    """Key of a class name: equal if names differ only in case."""
    return unicodedata.normalize("NFC", name.casefold())


def no_target(cells: Sequence[str]) -> str:
    """Reason for skipping a row without a target; names the marker of missing values, if any."""
    words = [cell.strip() for cell in cells if cell.strip() and is_missing(cell)]
    return f"{NO_TARGET} ({quoted(words[0])} counts as missing)" if words else NO_TARGET


def check_index(data: Any, y: Any) -> None:
    """Raise if an index of pandas says that targets belong to other rows than their position."""
    of_rows: Any = getattr(data, "index", None)
    of_targets: Any = getattr(y, "index", None)
    if not (hasattr(of_rows, "equals") and hasattr(of_targets, "equals")):
        return
    common = set(of_rows) & set(of_targets)
    if common and not of_rows.equals(of_targets):
        whole = set(of_rows) == set(of_targets)
        what = "is in another order" if whole else "has only some of their entries"
        raise DataError(
            f"`y` must be in the order of the rows: its index {what}; give `y.loc[data.index]`, or "
            "`y.to_numpy()` if it is in their order"
        )


def check_readable(where: str, rows: int, skipped: Sequence[Skipped]) -> None:
    """Raise if over half of the rows are unreadable, not counting missing targets, or all fail."""
    if not rows:
        raise DataError(f"{where}: there are no rows")
    broken = [skip for skip in skipped if not skip.reason.startswith(NO_TARGET)]
    if 2 * len(broken) > rows:
        shown = "; ".join(f"row {skip.row}: {skip.reason}" for skip in broken[:3])
        more, total = "; …" if len(broken) > 3 else "", count(rows, "row")
        raise DataError(f"{where}: {len(broken)} of {total} cannot be read; {shown}{more}")
    if len(skipped) == rows:
        raise DataError(f"{where}: no row has both a graph that can be read and a target")


# ------------------------------------------------------------------ targets


@dataclass(frozen=True)
class TargetCodec:
    """Converts targets from text to the ``y`` of a store.

    Class names are case-insensitive, unless classes differ only in case. If they mean no and yes,
    other words for these are read as well: 0, false, no and 1, true, yes.

    Example:
        >>> codec = TargetCodec("multiclass", ("Class",), ("0", "1"))
        >>> codec.encode(["1.0"]), codec.encode([""]), codec.encode(["2"])
        ((1.0,), 'no target', "`Class` must be one of 0, 1; got '2'")
    """

    task: str
    names: tuple[str, ...]  # target columns: the labels or values
    classes: tuple[str, ...] = ()  # in order; only for the task "multiclass"
    decimal_comma: bool = False  # whether 1,234 means 1.234

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.classes if self.task == "multiclass" else self.names

    @property
    def num_outputs(self) -> int:
        """Number of classes, labels or values."""
        return len(self.label_names)

    def encode(self, cells: Sequence[str]) -> Target:
        """Class, labels or values (NaN if missing) of a row, or why it has none."""
        if all(is_missing(cell) for cell in cells):
            return no_target(cells)
        if self.task == "multiclass":
            name = class_name(cells[0])
            place = self._places.get(name, self._places.get(key_of(name)))
            if place is None:
                shown = ", ".join(self.classes[:10]) + (", …" if len(self.classes) > 10 else "")
                return f"`{self.names[0]}` must be one of {shown}; got {quoted(cells[0])}"
            return (float(place),)
        values = []
        for column, cell in zip(self.names, cells, strict=True):
            value = math.nan if is_missing(cell) else self._value(cell)
            if isinstance(value, str):
                return f"`{column}` must be {value}; got {quoted(cell)}"
            values.append(value)
        return tuple(values)

    @cached_property
    def _places(self) -> dict[str, int]:
        """Class indices by exact and by case-folded name; exact names take precedence."""
        exact = {name: place for place, name in enumerate(self.classes)}
        found = {key_of(name): place for name, place in reversed(exact.items())} | exact
        values = {_YES_NO.get(key_of(name)): place for name, place in exact.items()}
        if len(values) == len(exact) and None not in values:
            found = {word: values[v] for word, v in _YES_NO.items() if v in values} | found
        return found

    def _value(self, cell: str) -> float | str:
        """Parse a label or value; return what was expected if it is invalid."""
        if self.task == "multilabel":
            return _YES_NO.get(key_of(class_name(cell)), "0, 1 or empty")
        number = number_of(cell)
        if number is None and (comma := _comma_number(cell)) is not None:
            number = comma if self.decimal_comma or not _thousands(cell) else None
        if number is None:
            return "a number"
        if math.isnan(number) or abs(number) > _LARGEST:
            return f"a number between -{_LARGEST:.1e} and {_LARGEST:.1e}"
        return number

    def of_store(self, store: GraphStore) -> list[Target]:
        """Targets of all graphs in a store, or why they have none that fits this codec."""
        unknown: list[Target] = [NO_TARGET] * len(store)
        if store.task != self.task:
            return unknown
        if self.task != "multiclass":
            if store.num_outputs != self.num_outputs:
                return unknown
            y, given = store.y, store.label_names or ()
            if set(given) == set(self.names):  # perhaps in another order
                y = y[:, [given.index(name) for name in self.names]]
            return [NO_TARGET if all(map(math.isnan, row)) else tuple(row) for row in y.tolist()]
        if store.num_outputs < 2:
            return unknown
        # Classes without names are taken to be numbered as in this codec.
        names = store.label_names or self.classes[: store.num_outputs]
        classes = [self.encode([name]) for name in names]
        return [classes[n] if n < len(classes) else NO_TARGET for n in store.y.tolist()]

    def tensor(self, values: Sequence[tuple[float, ...]]) -> Tensor:
        """Convert the results of :meth:`encode` to the ``y`` of a store."""
        table = torch.tensor(values, dtype=torch.float64).reshape(len(values), len(self.names))
        return table[:, 0].long() if self.task == "multiclass" else table.float()

    def apply(self, store: GraphStore, values: Sequence[tuple[float, ...]]) -> GraphStore:
        """Return a store with the results of :meth:`encode` as its targets."""
        return store.with_targets(
            self.tensor(values),
            task=self.task,
            num_outputs=self.num_outputs,
            label_names=self.label_names,
        )


def _comma_number(cell: str) -> float | None:
    text = cell.strip()
    return float(text.replace(",", ".")) if _COMMA_NUMBER.fullmatch(text) else None


def _thousands(cell: str) -> bool:
    return _THOUSANDS.fullmatch(cell.strip()) is not None


class _Column:
    """Distinct cells of a target column, in order of first occurrence."""

    def __init__(self, cells: Counter[str], first: Mapping[str, int]) -> None:
        self.missing = {cell.strip().lower() for cell in cells if is_missing(cell)} - {""}
        self.values = {cell: number_of(cell) for cell in cells if not is_missing(cell)}
        self.commas = [
            c for c, n in self.values.items() if n is None and _comma_number(c) is not None
        ]
        # Their comma cannot separate thousands.
        self.decimals = [cell for cell in self.commas if not _thousands(cell)]
        others = [cell for cell, number in self.values.items() if number is None]
        with_comma = set(self.commas)
        self.texts = [cell for cell in others if cell not in with_comma]
        # At least 90 % of the cells are numbers: the texts are more likely errors than classes.
        self.slips = 10 * sum(cells[c] for c in others) <= sum(cells[c] for c in self.values)
        # Percentages, or censored values such as "<5".
        self.amounts = bool(self.texts) and all(map(_AMOUNT.fullmatch, self.texts))
        self.odd = f"{quoted(self.texts[0])} in row {first[self.texts[0]]}" if self.texts else ""
        numbers = [number for number in self.values.values() if number is not None]
        self.whole = all(n.is_integer() for n in numbers) and all(
            class_name(cell) != cell.strip() for cell in self.commas
        )
        self.fraction = any(math.isfinite(n) and not n.is_integer() for n in numbers)
        # Counts of the spellings of each class, by key. True and 1 are one class, if all are such.
        spellings = {cell: class_name(cell) for cell in self.values}
        self.yes_no = all(key_of(name) in _YES_NO for name in spellings.values())
        self.classes: dict[str, Counter[str]] = {}
        for cell, name in spellings.items():
            key = str(_YES_NO[key_of(name)]) if self.yes_no else key_of(name)
            self.classes.setdefault(key, Counter())[name] += cells[cell]

    @property
    def decimal_comma(self) -> bool:
        """Whether commas are decimal; undecided if there are also decimal points."""
        return bool(self.decimals) and not self.fraction


def find_codec(
    where: str,
    names: Sequence[str],
    rows: Iterable[tuple[int, Sequence[str]]],
    task: str | None = None,
) -> tuple[TargetCodec, list[str]]:
    """Infer how to read the targets; also return notes for the user.

    One column of texts, or of integers with at most 50 distinct values, is multiclass; other
    numbers are regression. Several columns of 0 and 1, or no and yes, are multilabel; several
    columns of other numbers are regression. A few texts among numbers are an error, which names
    the row of the first.

    Class names that differ only in case are one class, named by its most frequent spelling.
    """
    if task == "multiclass" and len(names) != 1:
        raise DataError(f"`task` is multiclass, which takes one target; got {', '.join(names)}")
    seen: list[Counter[str]] = [Counter() for _ in names]
    first: list[dict[str, int]] = [{} for _ in names]
    for number, cells in rows:
        for counter, places, cell in zip(seen, first, cells, strict=True):
            counter[cell] += 1
            places.setdefault(cell, number)
    columns = dict(zip(names, map(_Column, seen, first), strict=True))
    which = " and ".join(map(quoted, names))
    # Markers of missing values that may have been meant as classes.
    missing = sorted(set().union(*(column.missing for column in columns.values())))
    verb = "counts" if len(missing) == 1 else "count"
    hint = f" ({' and '.join(map(quoted, missing))} {verb} as missing)" if missing else ""
    if not any(column.values for column in columns.values()):
        # Some of several columns may be empty.
        has = f"the target {which} has" if len(names) == 1 else f"the targets {which} have"
        raise DataError(f"{where}: {has} no values that could be read{hint}")
    given, task = task, task or _find_task(where, columns)
    if task == "multiclass":
        classes = _ordered(columns[names[0]])
        if len(classes) < 2:
            raise DataError(
                f"{where}: the target {which} has only one class, {quoted(classes[0])}; at least "
                f"two are needed{hint}"
            )
        note = (
            f"The {len(classes)} whole numbers of {which} are read as classes; give `task` as "
            "regression to read them as values."
        )
        many = given is None and len(classes) > _MANY_CLASSES and not columns[names[0]].texts
        return TargetCodec(task, tuple(names), tuple(classes)), [note] if many else []
    if task == "regression":
        for name, column in columns.items():
            numbers = (n for n in column.values.values() if n is not None and abs(n) <= _LARGEST)
            check_precision(f"{where}: the targets {quoted(name)}", numbers)
    commas = {name: c.decimals[0] for name, c in columns.items() if c.decimal_comma}
    notes = [
        f"Numbers of {quoted(name)} have decimal commas: {quoted(cell.strip())} was read as "
        f"{_comma_number(cell)}."
        for name, cell in commas.items()
    ]
    decimal = task == "regression" and bool(commas)
    return TargetCodec(task, tuple(names), decimal_comma=decimal), notes[:1] if decimal else []


def _ordered(column: _Column) -> list[str]:
    """Return the class names in the order of their indices."""
    # Most frequent spelling; ties go to the first seen.
    names = {key: seen.most_common(1)[0][0] for key, seen in column.classes.items()}
    if column.yes_no:
        return [names[key] for key in sorted(names)]
    numbers = {name: number_of(name) for name in names.values()}
    if all(number is not None for number in numbers.values()):
        return sorted(numbers, key=lambda name: (numbers[name], name))
    if len(names) != 2:
        return sorted(names.values())
    known = next((pair for pair in _PAIRS if set(pair) == set(names)), None)
    if known is not None:
        return [names[key] for key in known]
    # The rarer class is usually the positive one, and average precision is that of the second.
    counts = {names[key]: -seen.total() for key, seen in column.classes.items()}
    return sorted(counts, key=lambda name: (counts[name], name))


def _find_task(where: str, columns: Mapping[str, _Column]) -> str:
    ask = "give `task` as regression (rows that are not numbers are left out) or multiclass"
    for name, column in columns.items():
        if column.commas and not column.decimal_comma:
            raise DataError(
                f"{where}: the target {quoted(name)} holds numbers with a comma, such as "
                f"{quoted(column.commas[0])}, which may be decimal or separate thousands; write "
                f"them without, or {ask}"
            )
    if len(columns) > 1:
        if all(column.yes_no for column in columns.values()):
            return "multilabel"
        for name, column in sorted(columns.items(), key=lambda item: item[1].yes_no):
            if column.texts:
                raise DataError(
                    f"{where}: several targets must all be 0, 1 or empty, or all be numbers; "
                    f"{name!r} has {column.odd} (give `task` to leave out such rows)"
                )
        return "regression"
    ((name, column),) = columns.items()
    few = len(column.classes) <= _MOST_CLASSES and (column.whole or not column.commas)
    if column.yes_no:
        return "multiclass"
    if not column.texts:
        return "multiclass" if few and column.whole else "regression"
    if column.amounts and len(column.classes) > 2:
        raise DataError(
            f"{where}: the target {quoted(name)} holds values with signs such as <, > or %: "
            f"{column.odd}; write plain numbers and leave other cells empty, or {ask}"
        )
    if few and not column.fraction and not column.slips:
        return "multiclass"
    if len(column.texts) == len(column.values):
        raise DataError(
            f"{where}: the target {quoted(name)} holds more than {_MOST_CLASSES} different texts, "
            f"such as {column.odd}; {ask}"
        )
    numbers = "" if few and column.whole else ", or as regression to leave these rows out"
    raise DataError(
        f"{where}: the target {quoted(name)} holds both numbers and text, such as {column.odd}; "
        f"correct or clear such cells, or give `task` as multiclass if they are classes{numbers}"
    )
