"""Prediction tables: one row per input row, also for unreadable ones, in bounded memory."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from graph_transplant.data.targets import LABEL_THRESHOLD
from graph_transplant.datasets import stream
from graph_transplant.datasets.load import Loadable
from graph_transplant.datasets.rows import Chunk
from graph_transplant.errors import GraphTransplantError, check_in
from graph_transplant.models.uncertainty import COVERAGE, conformal_bounds, members_of, set_words
from graph_transplant.utils.files import refuse_overwrite, replacing, without_formulas, writing

if TYPE_CHECKING:
    from graph_transplant.models.model import TrainedModel

ROWS_PER_CHUNK: Final = 2048  # rows read, predicted and written at a time

STANDARD_OUTPUT: Final = "-"

LARGER: Final = "larger than any training graph"
UNLIKE: Final = "unlike the training graphs"

# Reserved column names.
_TAKEN: Final = ("row", "id", "spread", "similarity", "warning", "error")


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of a trained model, as tensors.

    Args:
        task: ``"multiclass"``, ``"multilabel"`` or ``"regression"``.
        label_names: Names of the outputs.
        outputs: float64 ``[graphs, outputs]``: calibrated probabilities, or for regression values
            in the units of the data.
        deviation: Standard deviation of each output over the members of an ensemble.

    Example:
        >>> found = Predictions("multiclass", ("no", "yes"), torch.tensor([[0.2, 0.8], [0.9, 0.1]]))
        >>> found.labels, found.confidence
        (['yes', 'no'], tensor([0.8000, 0.9000]))
    """

    task: str
    label_names: tuple[str, ...]
    outputs: Tensor
    deviation: Tensor | None = None

    def __len__(self) -> int:
        return len(self.outputs)

    @property
    def labels(self) -> list[str]:
        """The predicted class of every graph; labels joined by ``;``; empty for regression."""
        if self.task == "multiclass":
            return [self.label_names[place] for place in self.outputs.argmax(1).tolist()]
        if self.task == "regression":
            return [""] * len(self.outputs)
        return [
            ";".join(name for name, given in zip(self.label_names, row, strict=True) if given)
            for row in (self.outputs >= LABEL_THRESHOLD).tolist()
        ]

    @property
    def confidence(self) -> Tensor:
        """Probability of the predicted class, float ``[graphs]``; NaN for regression.

        For several labels, the mean probability of the predicted values.
        """
        if self.task == "multiclass":
            return self.outputs.amax(1)
        if self.task == "multilabel":
            return torch.maximum(self.outputs, 1 - self.outputs).mean(1)
        return self.outputs.new_full((len(self.outputs),), float("nan"))

    @property
    def spread(self) -> Tensor | None:
        """Standard deviation over the members of an ensemble, float ``[graphs]``; else ``None``.

        Of the probability of the predicted class; for labels or values, the mean of theirs.
        """
        if self.deviation is None or self.task != "multiclass":
            return None if self.deviation is None else self.deviation.mean(1)
        return self.deviation.gather(1, self.outputs.argmax(1, keepdim=True)).squeeze(1)


@dataclass(frozen=True)
class PredictionSummary:
    """Summary of a prediction table, as numbers of rows."""

    rows: int
    failed: int  # without a prediction
    larger: int  # with a graph larger than any training graph
    unlike: int  # with a graph unlike all training graphs
    seconds: float

    @property
    def predicted(self) -> int:
        """Rows with a prediction."""
        return self.rows - self.failed


def warn(text: str) -> None:
    """Show a remark on how data were read to a user of Python."""
    warnings.warn(text, UserWarning, stacklevel=2)


def remarks(chunks: Iterable[Chunk], note: Callable[[str], None]) -> Iterator[Chunk]:
    """Pass chunks on; call ``note`` once with each remark on how they were read."""
    told: set[str] = set()
    for chunk in chunks:
        for text in chunk.notes:
            if text not in told:
                note(text)
        told.update(chunk.notes)
        yield chunk


def prediction_frames(
    model: TrainedModel,
    data: Loadable,
    *,
    rows_per_chunk: int = ROWS_PER_CHUNK,
    coverage: float | None = None,
    batch_size: int | None = None,
    workers: int = 1,
    note: Callable[[str], None] = warn,
    **options: Any,
) -> Iterator[pd.DataFrame]:
    """Predict an input in chunks; arguments are those of :func:`predict_table`."""
    if coverage is not None:
        check_in("(0, 1)", coverage=coverage)
        if model.reference is None:
            raise GraphTransplantError(
                "`coverage` needs a model that keeps the errors of its validation graphs: train it "
                "again with this version"
            )
    chunks = stream(
        data,
        featurizer=model.featurizer,
        rows_per_chunk=rows_per_chunk,
        workers=workers,
        **options,
    )
    for chunk in remarks(chunks, note):
        yield _frame(model, chunk, batch_size, coverage or COVERAGE)


def predict_table(
    model: TrainedModel,
    data: Loadable,
    out: str | Path,
    *,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> PredictionSummary:
    """Predict every row of an input and write a CSV table, atomically.

    Its columns are those of :meth:`TrainedModel.predict
    <graph_transplant.models.model.TrainedModel.predict>`. Texts that a spreadsheet would run as a
    formula, such as an id ``=HYPERLINK(...)``, get an apostrophe before them.

    Args:
        model: The model.
        data: As for :func:`~graph_transplant.load`; read like the training data.
        out: Path of the table, or ``"-"`` for standard output.
        progress: Called with the number of rows done, after every chunk.
        **options: ``rows_per_chunk``; ``workers``, processes that read molecules; ``coverage`` and
            ``batch_size`` as for ``TrainedModel.predict``; ``note``, called with remarks on how the
            data were read (default: warnings); and how the data are read, see
            :func:`~graph_transplant.load`.

    Example:
        >>> import tempfile
        >>> import graph_transplant as gt
        >>> model = gt.train("motifs", graphs=60, method="vanilla", hidden=8, epochs=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     predict_table(model, "motifs", Path(folder) / "predictions.csv", graphs=30).rows
        30
    """
    begin, target = time.perf_counter(), Path(out)
    refuse_overwrite([data], [target])
    frames = prediction_frames(model, data, **options)
    # Read the first chunk before a folder is created: the input may be unreadable.
    first = next(frames, None)
    if first is None:
        first = _frame(model, Chunk(1, (), (), None, {}), None, options.get("coverage") or COVERAGE)
    rows = failed = larger = unlike = 0

    def write(file: IO[bytes]) -> None:
        nonlocal rows, failed, larger, unlike
        for frame in chain([first], frames):
            text = without_formulas(frame).to_csv(
                index=False, header=not rows, float_format="%.6g", lineterminator="\n"
            )
            # Names that were not UTF-8 may hold lone surrogates, which UTF-8 cannot encode.
            file.write(text.encode("utf-8", "backslashreplace"))
            rows += len(frame)
            failed += int((frame["error"] != "").sum())
            larger += int(frame["warning"].str.contains(LARGER, regex=False).sum())
            unlike += int(frame["warning"].str.contains(UNLIKE, regex=False).sum())
            if progress is not None:
                progress(rows)

    if str(out) == STANDARD_OUTPUT:
        write(sys.stdout.buffer)
        sys.stdout.flush()
    elif target.is_dir():
        raise GraphTransplantError(f"`out` must be a file, but {target} is a folder")
    else:
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as file:
                write(file)
    return PredictionSummary(rows, failed, larger, unlike, time.perf_counter() - begin)


def _frame(
    model: TrainedModel, chunk: Chunk, batch_size: int | None, coverage: float
) -> pd.DataFrame:
    nothing = torch.empty(0, len(model.label_names), dtype=torch.double)
    found = Predictions(model.task, model.label_names, nothing, nothing)
    places, similarity, sizes = np.arange(0), nothing[:, 0].numpy(), nothing[:, 0].numpy()
    if chunk.store is not None:
        rows = chunk.store.rows
        places = np.arange(len(chunk)) if rows is None else rows.number.numpy() - chunk.first
        found, sizes = model.predictions(chunk.store, batch_size), chunk.store.node_counts.numpy()
        if model.reference is not None:
            similarity = model.reference.similarity(chunk.store).numpy()
    columns = _columns(model, found, coverage)
    warning = np.where(sizes > model.description["data"].get("max_nodes", np.inf), LARGER, "")
    if model.reference is not None:
        columns["similarity"] = similarity
        unlike = similarity < model.description["uncertainty"]["similarity"]["threshold"]
        both = np.where(warning == "", UNLIKE, f"{LARGER}; {UNLIKE}")
        warning = np.where(unlike, both, warning)
    fine = found.outputs.isfinite().all(1).numpy()
    reasons = {number - chunk.first: reason for number, reason in chunk.problems.items()}
    reasons |= dict.fromkeys(places[~fine].tolist(), "the model's output is not finite")
    table = pd.DataFrame({**columns, "warning": warning.astype(object)}, index=places)
    table = table[fine].reindex(range(len(chunk)))
    table["warning"] = table["warning"].fillna("")
    table["error"] = [reasons.get(place, "") for place in range(len(chunk))]
    table.insert(0, "row", range(chunk.first, chunk.first + len(chunk)))
    table.insert(1, "id", list(chunk.ids))
    return table


def _columns(model: TrainedModel, found: Predictions, coverage: float) -> dict[str, Any]:
    names, outputs = model.label_names, found.outputs.numpy()
    reference = model.reference
    bounds = None if reference is None else conformal_bounds(reference.scores, coverage)
    deviation = found.deviation if len(members_of(model.network)) > 1 else None
    columns: dict[str, Any] = {}
    if model.task == "regression":
        # Older models have only the 90 % interval.
        older = model.description.get("residual_90") or [None] * len(names)
        known = older if bounds is None else bounds.tolist()
        for place, (name, bound) in enumerate(zip(names, known, strict=True)):
            name = f"{name} (predicted)" if name in (*_TAKEN, *columns) else name
            columns[name] = outputs[:, place]
            wide = np.nan if bound is None or np.isinf(bound) else bound
            columns[f"{name} ±{100 * coverage:g}"] = np.full(len(found), wide)
            if deviation is not None:
                spread = "spread" if len(names) == 1 else f"{name} spread"
                columns[spread] = deviation[:, place].numpy()
        return columns
    columns["prediction"] = np.array(found.labels, dtype=object)
    columns |= {f"p({name})": values for name, values in zip(names, outputs.T, strict=True)}
    columns["confidence"] = found.confidence.numpy()
    if deviation is not None and found.spread is not None:
        columns["spread"] = found.spread.numpy()
    if bounds is not None:
        columns["set"] = np.array(set_words(found.outputs, bounds, model.task, names), dtype=object)
    return columns
