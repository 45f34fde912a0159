"""Predictions of any number of rows as a table, in bounded memory and resumable.

The table has one row per row of the input, in order. What cannot be read stays in its place with
the reason. While it grows the table is ``OUT.partial``; ``OUT.partial.json`` says how far it is
sound, so that a prediction that was ended by force goes on from there. ``OUT`` itself appears, or
is replaced, when all rows are there.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import torch

from graph_transplant.datasets import stream
from graph_transplant.datasets.rows import Chunk
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.files import replace_file, try_lock
from graph_transplant.models.description import plain
from graph_transplant.models.model import TrainedModel

ROWS_PER_CHUNK: Final = 2048
"""Rows that are read, predicted and written at a time."""

STANDARD_OUTPUT: Final = "-"

_FORMAT: Final = "graph-transplant prediction 1"
_FIXED: Final = ("row", "id", "label", "confidence", "error")
_NOT_FINITE: Final = "the model's answer is not a finite number"


@dataclass(frozen=True)
class PredictionSummary:
    """What became of the rows of an input.

    Attributes:
        rows: Number of rows.
        predicted: Rows with a prediction.
        failed: Rows with a reason why there is none.
        seconds: How long this run took.
        resumed: Rows that an earlier run had written.

    Example:
        >>> PredictionSummary(rows=10, predicted=9, failed=1, seconds=0.5).failed
        1
    """

    rows: int
    predicted: int
    failed: int
    seconds: float
    resumed: int = 0


@dataclass(frozen=True)
class _Done:
    """How far a table is written."""

    rows: int = 0
    predicted: int = 0
    failed: int = 0
    size: int = 0

    def after(self, rows: int, failed: int, size: int) -> _Done:
        """Add a piece of the table."""
        return _Done(
            self.rows + rows,
            self.predicted + rows - failed,
            self.failed + failed,
            self.size + size,
        )


def predict_table(
    model: TrainedModel,
    data: Any,
    out: str | Path,
    *,
    rows_per_chunk: int = ROWS_PER_CHUNK,
    batch_size: int | None = None,
    workers: int = 1,
    resume: bool = True,
    root: str | Path | None = None,
    progress: Callable[[int], None] | None = None,
    note: Callable[[str], None] | None = None,
    **options: Any,
) -> PredictionSummary:
    """Predict every row of an input and write a CSV table.

    Its columns are ``row`` (counted from 1) and ``id``; then for classes and labels ``p(NAME)``
    for each of them, ``label`` and ``confidence``; for regression the value and, as ``NAME ±90``,
    the distance within which nine of ten validation graphs lay; last ``error``, empty where there
    is a prediction. Numbers have six significant digits. Ids are written as the input has them: a
    spreadsheet may take one that starts with ``=`` for a formula.

    Args:
        model: The model.
        data: As for :func:`~graph_transplant.load`; read as the training data were.
        out: The table, or ``"-"`` for the standard output.
        rows_per_chunk: Rows that are read, predicted and written at a time.
        batch_size: Graphs that the network sees at a time. (default: by their size)
        workers: Processes that read molecules.
        resume: Go on from what an interrupted call with the same arguments left behind.
        root: Folder with data sets.
        progress: Called with the number of rows done, after every chunk.
        note: Told when an interrupted prediction is taken up.
        **options: How the data are read; see :func:`~graph_transplant.load`.

    Returns:
        The numbers of rows.

    Raises:
        DataError: If the input as a whole cannot be read, or holds graphs of another kind.
        GraphTransplantError: If the table cannot be written.

    Example:
        >>> import tempfile
        >>> import graph_transplant as gt
        >>> from graph_transplant.models import train
        >>> store = gt.load("motifs", graphs=60)
        >>> model = train(store, method="vanilla", hidden=8, epochs=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = predict_table(model, store, Path(folder) / "predictions.csv")
        >>> done.rows, done.failed
        (60, 0)
    """
    for name, value in (("rows_per_chunk", rows_per_chunk), ("workers", workers)):
        if value < 1:
            raise GraphTransplantError(f"`{name}` must be at least 1, got {value}")
    begin = time.perf_counter()

    def chunks(skip: int) -> Iterator[Chunk]:
        with _unreadable(data):
            yield from stream(
                data,
                featurizer=model.featurizer,
                widths=model.widths,
                root=root,
                rows_per_chunk=rows_per_chunk,
                skip_rows=skip,
                workers=workers,
                **options,
            )

    table = _Table(model, batch_size)
    if str(out) == STANDARD_OUTPUT:
        done = _to_stream(table, chunks(0), sys.stdout, progress)
        return _summary(done, begin, 0)
    target = Path(out)
    if target.is_dir():
        raise GraphTransplantError(f"`out` must be a file, but {target} is a folder")
    if isinstance(data, str | Path) and target.exists() and _same_file(target, Path(data)):
        raise GraphTransplantError(f"`out` is the input itself: {target} would be replaced")
    with _unreadable(data):
        identity = _identity(model, data, root, rows_per_chunk, batch_size, options)
    with _refusing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with _Partial(target).writing(identity if resume else None) as partial:
        resumed = partial.done.rows
        if resumed and note is not None:
            note(f"going on after row {resumed} of {target}")
        if not resumed:
            partial.append(table.header(), 0, 0)
        for chunk in chunks(resumed):
            text, failed = table.rows(chunk)
            partial.append(text, len(chunk), failed)
            partial.keep(identity)
            if progress is not None:
                progress(partial.done.rows)
        partial.finish()
        return _summary(partial.done, begin, resumed)


@contextmanager
def _unreadable(data: Any) -> Iterator[None]:
    """Say that the input cannot be read when the disk refuses."""
    try:
        yield
    except OSError as problem:
        what = str(data) if isinstance(data, str | Path) else "the graphs"
        raise DataError(f"cannot read {what}: {problem.strerror or problem}") from problem


@contextmanager
def _refusing(target: Path) -> Iterator[None]:
    """Say that a table cannot be written when the disk refuses."""
    try:
        yield
    except OSError as problem:
        raise GraphTransplantError(
            f"cannot write {target}: {problem.strerror or problem}"
        ) from problem


def _summary(done: _Done, begin: float, resumed: int) -> PredictionSummary:
    seconds = time.perf_counter() - begin
    return PredictionSummary(done.rows, done.predicted, done.failed, seconds, resumed)


def _to_stream(
    table: _Table,
    chunks: Iterator[Chunk],
    file: IO[str],
    progress: Callable[[int], None] | None,
) -> _Done:
    done = _Done()
    file.write(table.header())
    for chunk in chunks:
        text, failed = table.rows(chunk)
        file.write(text)
        done = done.after(len(chunk), failed, 0)
        if progress is not None:
            progress(done.rows)
    file.flush()
    return done


def _same_file(first: Path, second: Path) -> bool:
    return second.exists() and first.samefile(second)


# -------------------------------------------------------------------- rows


class _Table:
    """Turns stretches of the input into rows of the table.

    Args:
        model: The model.
        batch_size: Graphs that the network sees at a time.
    """

    def __init__(self, model: TrainedModel, batch_size: int | None) -> None:
        self._model = model
        self._batch_size = batch_size
        # The same for all rows.
        bounds = model.description.get("residual_90") or [None] * len(model.label_names)
        self._bounds = ["" if bound is None else f"{bound:.6g}" for bound in bounds]

    def header(self) -> str:
        """Return the first line."""
        names = self._model.label_names
        if self._model.task == "regression":
            taken = list(_FIXED)
            for name in names:
                taken.append(f"{name} (predicted)" if name in taken else name)
            values = taken[len(_FIXED) :]
            columns = [column for name in values for column in (name, f"{name} ±90")]
        else:
            columns = [*(f"p({name})" for name in names), "label", "confidence"]
        return _lines([["row", "id", *columns, "error"]])

    def rows(self, chunk: Chunk) -> tuple[str, int]:
        """Return the lines of a stretch of the input, and how many of them hold no prediction."""
        cells, problems = self._cells(chunk)
        width = 2 * len(self._bounds) if self._model.task == "regression" else len(self._bounds) + 2
        empty = [""] * width
        lines = []
        for number, name in enumerate(chunk.ids, start=chunk.first):
            found = cells.get(number)
            if found is None:
                lines.append([number, name, *empty, problems[number]])
            else:
                lines.append([number, name, *found, ""])
        return _lines(lines), len(chunk) - len(cells)

    def _cells(self, chunk: Chunk) -> tuple[dict[int, list[str]], dict[int, str]]:
        problems = dict(chunk.problems)
        store = chunk.store
        if store is None:
            return {}, problems
        if store.rows is None:
            numbers = list(range(chunk.first, chunk.first + len(store)))
        else:
            numbers = store.rows.number.tolist()
        predictions = self._model.predict(store, self._batch_size)
        finite = torch.isfinite(predictions.outputs).all(1).tolist()
        values = [[f"{value:.6g}" for value in row] for row in predictions.outputs.tolist()]
        if predictions.task == "regression":
            rows = [
                [cell for pair in zip(row, self._bounds, strict=True) for cell in pair]
                for row in values
            ]
        else:
            sure = predictions.confidence.tolist()
            rows = [
                [*row, label, f"{confidence:.6g}"]
                for row, label, confidence in zip(values, predictions.labels, sure, strict=True)
            ]
        cells = {}
        for number, row, fine in zip(numbers, rows, finite, strict=True):
            if fine:
                cells[number] = row
            else:
                problems[number] = _NOT_FINITE
        return cells, problems


def _lines(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


# -------------------------------------------------------------------- resuming


class _Partial:
    """A table that grows beside the place it will have.

    Args:
        target: The place.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._path = target.with_name(f"{target.name}.partial")
        self._state = target.with_name(f"{target.name}.partial.json")
        self._file: IO[bytes]
        self.done = _Done()

    @contextmanager
    def writing(self, identity: str | None) -> Iterator[_Partial]:
        """Open the table for writing, alone, at the end of what is sound of it.

        Args:
            identity: What an earlier table must have been made by to be gone on with; ``None`` to
                start anew.
        """
        with ExitStack() as closing:
            with _refusing(self._target):
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | _BINARY, 0o666)
                self._file = os.fdopen(descriptor, "r+b")
                closing.callback(self._close)
                if not try_lock(self._file):
                    raise GraphTransplantError(f"another process is writing {self._path}")
                self.done = self._sound(identity)
                if not self.done.rows:
                    self._state.unlink(missing_ok=True)
                self._file.truncate(self.done.size)
                self._file.seek(self.done.size)
            try:
                yield self
            finally:
                if not self.done.rows:
                    # Nothing to go on from is worth no file.
                    with _refusing(self._target):
                        self._path.unlink(missing_ok=True)
                        self._state.unlink(missing_ok=True)

    def _close(self) -> None:
        # A full disk refuses once more what is still to be written.
        with _refusing(self._target):
            self._file.close()

    def _sound(self, identity: str | None) -> _Done:
        """Find out how much of an earlier table can be kept."""
        nothing = _Done()
        try:
            state = json.loads(self._state.read_bytes())
            if identity is None or state["format"] != _FORMAT or state["identity"] != identity:
                return nothing
            done = _Done(*(_count(state[name]) for name in ("rows", "predicted", "failed", "size")))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            # No state, or none that makes sense: the table is written anew, which is always right.
            return nothing
        consistent = done.rows == done.predicted + done.failed
        return (
            done if consistent and os.fstat(self._file.fileno()).st_size >= done.size else nothing
        )

    def append(self, text: str, rows: int, failed: int) -> None:
        """Write some rows."""
        # Lone surrogates, from names that were no UTF-8, have no place in UTF-8.
        content = text.encode("utf-8", "backslashreplace")
        with _refusing(self._target):
            self._file.write(content)
        self.done = self.done.after(rows, failed, len(content))

    def keep(self, identity: str | None) -> None:
        """Make sure that what is written outlives the process, and say how much it is."""
        with _refusing(self._target):
            self._file.flush()
            os.fsync(self._file.fileno())
        if identity is None:
            return
        state = {
            "format": _FORMAT,
            "identity": identity,
            "rows": self.done.rows,
            "predicted": self.done.predicted,
            "failed": self.done.failed,
            "size": self.done.size,
        }
        with _refusing(self._target):
            replace_file(self._state, json.dumps(state).encode())

    def finish(self) -> None:
        """Put the table in its place."""
        with _refusing(self._target):
            self._file.flush()
            os.fsync(self._file.fileno())
            # Not every system lets go of the name of a file that is open.
            self._file.close()
            os.replace(self._path, self._target)
            self._state.unlink(missing_ok=True)


_BINARY: Final = getattr(os, "O_BINARY", 0)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("not a count")
    return value


def _identity(
    model: TrainedModel,
    data: Any,
    root: str | Path | None,
    rows_per_chunk: int,
    batch_size: int | None,
    options: dict[str, Any],
) -> str | None:
    """Give a checksum of everything the table depends on, or ``None`` for data in memory.

    Chunks and batches belong to it: sums over other batches differ in their last digits.
    """
    if not isinstance(data, str | Path):
        return None
    digest = hashlib.sha256()
    for name, value in sorted(model.network.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().view(-1).numpy().tobytes())
    described = {
        "model": [model.temperature, model.label_names, model.featurizer, model.network.config()],
        "scale": None if model.scale is None else model.scale.as_dict(),
        "residual_90": model.description.get("residual_90"),
        "data": _stamps(Path(data), root),
        "rows_per_chunk": rows_per_chunk,
        "batch_size": batch_size,
        "options": options,
    }
    digest.update(json.dumps(plain(described), sort_keys=True, default=str).encode())
    return digest.hexdigest()


def _stamps(data: Path, root: str | Path | None) -> list[Any]:
    """Say which file is meant, how large it is and when it was changed last."""
    stamps: list[Any] = [str(data.absolute() if data.exists() else data), str(root)]
    files = sorted(data.iterdir()) if data.is_dir() else [data] if data.exists() else []
    for file in files:
        status = file.stat()
        stamps.append([file.name, status.st_size, status.st_mtime_ns])
    return stamps
