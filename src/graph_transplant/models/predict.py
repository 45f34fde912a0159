"""Predictions as tables: one row per row of the input, in order, in bounded memory.

What cannot be read stays in its place with the reason.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from graph_transplant.datasets import stream
from graph_transplant.datasets.rows import Chunk
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.files import replacing

if TYPE_CHECKING:
    from graph_transplant.models.model import TrainedModel

ROWS_PER_CHUNK: Final = 2048
"""Rows that are read, predicted and written at a time."""

STANDARD_OUTPUT: Final = "-"

LARGER: Final = "larger than any training graph"

_FIXED: Final = ("row", "id", "prediction", "confidence", "warning", "error")


@dataclass(frozen=True)
class PredictionSummary:
    """What became of the rows of an input.

    Attributes:
        rows: Number of rows.
        failed: Rows with a reason why there is no prediction.
        larger: Rows with a graph larger than any the model was trained on.
        seconds: How long it took.
    """

    rows: int
    failed: int
    larger: int
    seconds: float

    @property
    def predicted(self) -> int:
        """Rows with a prediction."""
        return self.rows - self.failed


def prediction_frames(
    model: TrainedModel,
    data: Any,
    *,
    rows_per_chunk: int = ROWS_PER_CHUNK,
    batch_size: int | None = None,
    workers: int = 1,
    root: str | Path | None = None,
    **options: Any,
) -> Iterator[pd.DataFrame]:
    """Predict an input a stretch at a time; arguments are those of :func:`predict_table`."""
    for name, value in (("rows_per_chunk", rows_per_chunk), ("workers", workers)):
        if value < 1:
            raise GraphTransplantError(f"`{name}` must be at least 1, got {value}")
    if _is_list_of_smiles(data):
        if model.featurizer is None or model.featurizer.kind != "molecules":
            raise DataError("these are SMILES strings, but the model was not trained on molecules")
        # Each is called by its SMILES.
        data = pd.DataFrame({"smiles": list(data), "id": list(data)})
        options |= {"smiles": "smiles", "id": "id"}
    chunks = stream(
        data,
        featurizer=model.featurizer,
        root=root,
        rows_per_chunk=rows_per_chunk,
        workers=workers,
        **options,
    )
    for chunk in _readable(chunks, data):
        yield _frame(model, chunk, batch_size)


def predict_table(
    model: TrainedModel,
    data: Any,
    out: str | Path,
    *,
    rows_per_chunk: int = ROWS_PER_CHUNK,
    batch_size: int | None = None,
    workers: int = 1,
    root: str | Path | None = None,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> PredictionSummary:
    """Predict every row of an input and write a CSV table, whole or not at all.

    Its columns are those of :meth:`TrainedModel.predict
    <graph_transplant.models.model.TrainedModel.predict>`. Ids are written as the input has them: a
    spreadsheet may take one that starts with ``=`` for a formula.

    Args:
        model: The model.
        data: As for :func:`~graph_transplant.load`; read as the training data were.
        out: The table, or ``"-"`` for the standard output.
        rows_per_chunk: Rows that are read, predicted and written at a time.
        batch_size: Graphs that the network sees at a time. (default: by their size)
        workers: Processes that read molecules.
        root: Folder with data sets.
        progress: Called with the number of rows done, after every chunk.
        **options: How the data are read; see :func:`~graph_transplant.load`.

    Example:
        >>> import tempfile
        >>> import graph_transplant as gt
        >>> model = gt.train("motifs", graphs=60, method="vanilla", hidden=8, epochs=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     predict_table(model, "motifs", Path(folder) / "predictions.csv", graphs=30).rows
        30
    """
    begin, target = time.perf_counter(), Path(out)
    frames = prediction_frames(
        model, data, rows_per_chunk=rows_per_chunk, batch_size=batch_size, workers=workers,
        root=root, **options,
    )  # fmt: skip
    # The first stretch tells whether the input can be read at all: before a folder is made.
    first = next(frames, _frame(model, Chunk(1, (), (), None, {}), None))
    rows = failed = larger = 0

    def write(file: IO[bytes]) -> None:
        nonlocal rows, failed, larger
        for frame in chain([first], frames):
            text = frame.to_csv(
                index=False, header=not rows, float_format="%.6g", lineterminator="\n"
            )
            # Lone surrogates, from names that were no UTF-8, have no place in UTF-8.
            file.write(text.encode("utf-8", "backslashreplace"))
            rows += len(frame)
            failed += int((frame["error"] != "").sum())
            larger += int((frame["warning"] == LARGER).sum())
            if progress is not None:
                progress(rows)

    if str(out) == STANDARD_OUTPUT:
        write(sys.stdout.buffer)
        sys.stdout.flush()
    elif target.is_dir():
        raise GraphTransplantError(f"`out` must be a file, but {target} is a folder")
    else:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as file:
                write(file)
        except OSError as problem:
            raise GraphTransplantError(f"cannot write {target}: {problem.strerror}") from problem
    return PredictionSummary(rows, failed, larger, time.perf_counter() - begin)


def _readable(chunks: Iterator[Chunk], data: Any) -> Iterator[Chunk]:
    """Say that the input cannot be read when the disk refuses."""
    try:
        yield from chunks
    except OSError as problem:
        what = str(data) if isinstance(data, str | Path) else "the graphs"
        raise DataError(f"cannot read {what}: {problem.strerror or problem}") from problem


def _is_list_of_smiles(data: Any) -> bool:
    column = isinstance(data, list | tuple | np.ndarray | pd.Series)
    return column and len(data) > 0 and isinstance(next(iter(data)), str)


def _frame(model: TrainedModel, chunk: Chunk, batch_size: int | None) -> pd.DataFrame:
    """Predict one stretch of the input."""
    names = list(model.label_names)
    outputs = np.full((len(chunk), len(names)), np.nan)
    confidence = np.full(len(chunk), np.nan)
    label: list[str | None] = [None] * len(chunk)
    warning, error = [""] * len(chunk), [""] * len(chunk)
    for number, reason in chunk.problems.items():
        error[number - chunk.first] = reason
    if chunk.store is not None:
        store = chunk.store
        numbers = np.arange(len(store)) if store.rows is None else store.rows.number.numpy()
        places = numbers if store.rows is None else numbers - chunk.first
        found = model.predictions(store, batch_size)
        outputs[places], confidence[places] = found.outputs.numpy(), found.confidence.numpy()
        fine = np.isfinite(outputs).all(1)
        sizes, most = store.node_counts.tolist(), model.description["data"].get("max_nodes")
        for place, said, size in zip(places.tolist(), found.labels, sizes, strict=True):
            if not fine[place]:
                error[place] = "the model's answer is not a finite number"
                outputs[place] = confidence[place] = np.nan
                continue
            label[place] = said
            if most is not None and size > most:
                warning[place] = LARGER
    columns: dict[str, Any] = {
        "row": range(chunk.first, chunk.first + len(chunk)),
        "id": list(chunk.ids),
    }
    if model.task == "regression":
        bounds = model.description.get("residual_90") or [None] * len(names)
        sound = [not reason for reason in error]
        for values, name, bound in zip(outputs.T, names, bounds, strict=True):
            name = f"{name} (predicted)" if name in (*_FIXED, *columns) else name
            columns[name] = values
            columns[f"{name} ±90"] = np.where(sound, np.nan if bound is None else bound, np.nan)
    else:
        columns["prediction"] = label
        columns |= {f"p({name})": values for name, values in zip(names, outputs.T, strict=True)}
        columns["confidence"] = confidence
    return pd.DataFrame({**columns, "warning": warning, "error": error})
