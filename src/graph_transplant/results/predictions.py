"""Outputs of every trial on its validation and test graphs, one compressed file per trial.

``DIR/predictions/TRIAL.npz`` is written before the trial's record, so that no new record lacks it.
With the outputs kept, other metrics, blends and curves need no new training.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from graph_transplant.errors import GraphTransplantError
from graph_transplant.results.record import Trial

if TYPE_CHECKING:
    from torch import Tensor

    from graph_transplant.data import GraphStore

PREDICTIONS = "predictions"
"""Subdirectory of a comparison with the predictions of its trials."""

LARGEST: Final = 2**30
"""Most bytes that one file may hold when unpacked."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Predictions:
    """Outputs of a trial for the graphs of one part, ``"validation"`` or ``"test"``.

    Attributes:
        graph: Numbers of the graphs in the data set, counted from 0, int64 ``[graphs]``.
        row: Their rows in the file that they were read from, counted from 1; empty if unknown.
        target: Class numbers, integer ``[graphs]``; otherwise labels or values, float
            ``[graphs, outputs]``, NaN where missing.
        output: Logits, or values in the units of the data, float ``[graphs, outputs]``.
    """

    graph: Array
    row: Array
    target: Array
    output: Array

    @staticmethod
    def of(store: GraphStore, graphs: Tensor, outputs: Tensor) -> Predictions:
        """Pair outputs with the graphs of a store that they belong to."""
        row = np.empty(0, np.int64)
        if store.rows is not None:
            row = store.rows.number.index_select(0, graphs).numpy()
        target = store.y.index_select(0, graphs).numpy()
        return Predictions(graphs.numpy(), row, target, outputs.detach().cpu().numpy())

    def __post_init__(self) -> None:
        number = len(self.graph)
        fits = self.output.ndim == 2 and len(self.row) in (0, number)
        if not fits or {len(self.target), len(self.output)} != {number}:
            raise ValueError("arrays of different lengths")

    def table(self, names: tuple[str, ...]) -> pd.DataFrame:
        """One row per graph."""
        columns: dict[str, Any] = {"graph": self.graph}
        if len(self.row):
            columns["row"] = self.row
        if np.issubdtype(self.target.dtype, np.integer):
            columns["target"] = self.target.ravel()
        else:
            wanted = self.target.reshape(len(self.graph), -1)
            columns |= {f"target_{name}": wanted[:, i] for i, name in enumerate(names)}
        columns |= {f"output_{name}": self.output[:, i] for i, name in enumerate(names)}
        return pd.DataFrame(columns)


@dataclass(frozen=True)
class TrialPredictions:
    """Predictions of one trial, and the names of the model's outputs."""

    names: tuple[str, ...]
    validation: Predictions
    test: Predictions

    @property
    def parts(self) -> Mapping[str, Predictions]:
        """Validation and test part by name."""
        return {"validation": self.validation, "test": self.test}

    def as_bytes(self) -> bytes:
        """Return the content of the file; equal predictions give equal bytes."""
        arrays: dict[str, Array] = {"names": np.array(self.names, dtype=np.str_)}
        for part, predictions in self.parts.items():
            arrays |= {f"{part}_{name}": value for name, value in asdict(predictions).items()}
        file = io.BytesIO()
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type] # of its options' names
        return file.getvalue()

    def table(self) -> pd.DataFrame:
        """One row per graph and part."""
        parts = {name: part.table(self.names) for name, part in self.parts.items()}
        return pd.concat(parts, names=["part"]).reset_index("part").reset_index(drop=True)


def path_of(directory: Path, trial: Trial) -> Path:
    """Return the path of a trial's predictions in the directory of a comparison."""
    return directory / PREDICTIONS / f"{trial.file_name}.npz"


def predictions_of(directory: Path, trial: Trial) -> TrialPredictions | None:
    """Read the predictions of a trial from the directory of a comparison, if they are there."""
    return read_predictions(path_of(directory, trial))


def read_predictions(path: Path) -> TrialPredictions | None:
    """Read the predictions of a trial; ``None`` if there is no file."""
    if not path.exists():
        return None
    try:
        # Checked first: NumPy reserves what a file claims to hold.
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > LARGEST:
                raise ValueError(f"more than {LARGEST} bytes when unpacked")
        with np.load(path, allow_pickle=False) as arrays:
            parts = {
                part: Predictions(
                    **{f.name: arrays[f"{part}_{f.name}"] for f in fields(Predictions)}
                )
                for part in ("validation", "test")
            }
            names = tuple(map(str, arrays["names"]))
        if {part.output.shape[1] for part in parts.values()} != {len(names)}:
            raise ValueError("names and outputs differ in number")
        return TrialPredictions(names, **parts)
    except (  # NotImplementedError is a RuntimeError
        OSError, ValueError, KeyError, EOFError, MemoryError, RuntimeError,
        zipfile.BadZipFile, zlib.error,
    ) as problem:  # fmt: skip
        raise GraphTransplantError(
            f"{path} is damaged ({problem}); remove it to go on without the predictions of that "
            "trial, or remove its line from records.jsonl too to run the trial again"
        ) from problem
