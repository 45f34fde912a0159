"""Training curves and finished trials as TensorBoard event files, one run per folder.

Requires the extra ``tensorboard``. To view them: ``tensorboard --logdir runs``.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from graph_transplant.errors import GraphTransplantError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from graph_transplant.training import EpochLog

# Values of an epoch and their TensorBoard tags; the curves of records have some of them.
_LOGGED: Final = {
    **{f"{part}_loss": f"loss/{part}" for part in ("train", "clean", "virtual", "auxiliary")},
    "validation_loss": "loss/validation",
    "validation_accuracy": "validation/accuracy",
    "validation_score": "validation/score",
    "learning_rate": "learning_rate",
}
_FINAL: Final = ("test", "calibrated", "cost", "saliency", "samples")
_IDENTITY: Final = ("data", "model", "layers", "method", "repeat", "fold")
_CONDITION: Final = {"label_noise": 0.0, "train_fraction": 1.0}


class TensorBoard:
    """Callback of :func:`graph_transplant.fit` that logs every epoch to TensorBoard.

    Logs losses, validation accuracy and score, the learning rate and measurements of augmentations.
    Resumed training, or another run in the same directory, replaces earlier values from its first
    epoch on.

    Example:
        >>> import tempfile
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs", graphs=24)
        >>> model = gt.GraphClassifier.for_data(store, hidden=8)
        >>> with TensorBoard(tempfile.mkdtemp()) as board:
        ...     result = gt.fit(model, store, store, seed=0, epochs=2, callbacks=[board])
        >>> len(list(board.directory.iterdir()))
        1
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self._writer: SummaryWriter | None = None
        _writer_class()

    def __call__(self, log: EpochLog) -> None:
        """Write one epoch and flush it to disk."""
        with _writing(self.directory):
            if self._writer is None:
                # Discard later points of an interrupted run.
                self._writer = _writer_class()(str(self.directory), purge_step=log.epoch)
            for tag, value in _epoch(vars(log)).items():
                self._writer.add_scalar(tag, value, log.epoch)
            self._writer.flush()

    def of_member(self, number: int) -> TensorBoard:
        """Return the callback for an ensemble member; all but the first log to a subdirectory."""
        return TensorBoard(self.directory / f"member-{number}") if number > 1 else self

    def close(self) -> None:
        """Close the file; the next epoch opens a new one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_record(record: Mapping[str, Any], directory: str | Path) -> Path:
    """Write a finished trial as a TensorBoard run: curve, final results and identity.

    The run is a folder named by data set, model, method, repeat and fold, and is replaced if it
    exists. Use one directory per comparison, as settings are not part of the name.
    """
    condition = {
        name: record[name]
        for name, default in _CONDITION.items()
        if record.get(name, default) != default
    }
    # Trials without a network have no model and layers.
    identity = {name: record[name] for name in _IDENTITY if record[name] is not None} | condition
    number = {"repeat": record["repeat"], "fold": record["fold"], **condition}
    parts = (
        str(record["data"]),
        f"{record['model']}-{record['layers']}" if record["model"] else "no-network",
        str(record["method"]),
        "-".join(f"{name}{value}" for name, value in number.items()),
    )
    folder = Path(directory).joinpath(*map(_safe, parts))
    summary_writer: Any = _writer_class()
    with _writing(folder):
        for path in folder.glob("events.out.tfevents.*"):
            path.unlink()
        with summary_writer(str(folder)) as writer:
            for row in record.get("curve", ()):
                for tag, value in _epoch(row).items():
                    writer.add_scalar(tag, value, row["epoch"])
            step = int(record.get("best_epoch") or 0)
            writer.add_hparams(identity, _final(record), run_name=".", global_step=step)
    return folder


def check_directory(directory: Path) -> None:
    """Raise early if TensorBoard is not installed or the directory is not writable."""
    _writer_class()
    with _writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError("permission denied")


def _epoch(log: Mapping[str, Any]) -> dict[str, float]:
    measured = log.get("measurements", {})
    return _numbers(
        {tag: log.get(name) for name, tag in _LOGGED.items()}
        | {f"measurements/{name}": value for name, value in measured.items()}
    )


def _final(record: Mapping[str, Any]) -> dict[str, float]:
    return _numbers(
        {f"{part}/{name}": v for part in _FINAL for name, v in record.get(part, {}).items()}
        | {f"attacked/{row['budget']:g}": row.get("accuracy") for row in record.get("attacked", ())}
    )


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {k: float(v) for k, v in values.items() if v is not None and math.isfinite(v)}


def _safe(name: str) -> str:
    """Turn any name into a valid, unique folder name."""
    kept = re.sub(r"[^A-Za-z0-9._=,+-]", "_", name)[:80].lstrip(".")
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return kept if kept and kept == name else f"{kept}-{digest}"


def _writer_class() -> type[SummaryWriter]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise GraphTransplantError(
            "writing for TensorBoard needs the package tensorboard: "
            "pip install graph-transplant[tensorboard]"
        ) from None
    return SummaryWriter


@contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise GraphTransplantError(
            f"cannot write to {directory}: {problem.strerror or problem}"
        ) from problem
