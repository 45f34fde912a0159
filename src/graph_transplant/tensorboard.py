"""Training curves and finished trials for TensorBoard: event files, one run per folder.

The package ``tensorboard`` is an extra and is imported when something is written. TensorFlow is not
needed. To look: ``tensorboard --logdir runs``.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from graph_transplant.errors import GraphTransplantError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from graph_transplant.training import EpochLog

_LOGGED: Final = {
    "train_loss": "loss/train",
    "clean_loss": "loss/clean",
    "virtual_loss": "loss/virtual",
    "auxiliary_loss": "loss/auxiliary",
    "validation_loss": "loss/validation",
    "validation_accuracy": "validation/accuracy",
    "validation_score": "validation/score",
    "learning_rate": "learning_rate",
}
"""What is drawn of an epoch, with its name in TensorBoard; a record's curve has some of it."""

_FINAL: Final = {
    "test": "test",
    "validation": "selected",
    "calibrated": "calibrated",
    "cost": "cost",
    "saliency": "saliency",
    "samples": "samples",
}
"""Fields of a record that hold numbers of the finished model, with the group that shows them. Those
of the validation graphs have a name of their own: ``validation`` is the curve."""

_ATTACKED: Final = {
    "accuracy": "attacked",
    "as_stated": "attacked-as-stated",
    "random": "changed-at-random",
}
"""Accuracies under attack, with the group that shows them."""

_NEEDED: Final = ("data", "model", "layers", "method", "repeat", "fold")
_WHERE_GIVEN: Final = {"inner": 0, "label_noise": 0.0, "train_fraction": 1.0}
"""What tells trials apart only where it is not as usual."""

_LONGEST: Final = 80


class TensorBoard:
    """Writes every epoch of a training for TensorBoard; a callback of :func:`graph_transplant.fit`.

    Losses, the validation accuracy and score, the learning rate and what augmentations measure are
    drawn over epochs. What is not a number has no point. Every epoch is on disk when the next one
    begins. A training that goes on from a checkpoint, and another one in the same directory, take
    the place of what was written from their first epoch on.

    The directory is made with the first epoch.

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
        """Write one epoch."""
        with _writing(self.directory):
            if self._writer is None:
                # Earlier points from this epoch on are those of a run that was cut short.
                self._writer = _writer_class()(str(self.directory), purge_step=log.epoch)
            points = {tag: getattr(log, name) for name, tag in _LOGGED.items()}
            for tag, value in {**points, **_measured(log.measurements)}.items():
                if not math.isnan(value):
                    self._writer.add_scalar(tag, value, log.epoch)
            self._writer.flush()

    def close(self) -> None:
        """Close the file. Another epoch would open a new one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def write_record(record: Mapping[str, Any], directory: str | Path) -> Path:
    """Write a finished trial as one run of TensorBoard: its curve, final numbers and what it was.

    The run is a folder named by data set, model, method, repeat and fold. The same record again
    changes nothing; another record of the same trial takes its place. A directory is for one
    comparison: trials that differ in nothing but their settings share a folder.
    """
    summary_writer = _writer_class()
    from torch.utils.tensorboard.summary import hparams

    described: Any = hparams  # torch gives it no types
    missing = [name for name in _NEEDED if name not in record]
    if missing:
        raise GraphTransplantError(
            f"`record` must be that of a trial; it lacks {', '.join(missing)}"
        )
    unusual = {name: record[name] for name, usual in _WHERE_GIVEN.items()
               if record.get(name, usual) != usual}  # fmt: skip
    # A trial without a network has neither model nor layers.
    known = {name: record[name] for name in _NEEDED if record[name] is not None}
    identity = {**known, **unusual}
    number = {"repeat": record["repeat"], "fold": record["fold"], **unusual}
    parts = (
        str(record["data"]),
        f"{record['model']}-{record['layers']}" if record["model"] else "no-network",
        str(record["method"]),
        "-".join(f"{name}{value}" for name, value in number.items()),
    )
    folder = Path(directory).joinpath(*map(_safe, parts))
    points, final = list(_points(record)), dict(_final(record))
    step = int(record.get("best_epoch") or 0)
    # The name of the file says what is in it: a record that was written before is known by it.
    content = json.dumps([identity, points, final, step]).encode()
    ending = f".{hashlib.sha256(content).hexdigest()[:16]}.trial"
    with _writing(folder):
        before = [*folder.glob("*.trial"), *folder.glob("*.partial")]
        if [path.name.endswith(ending) for path in before] == [True]:
            return folder
        writer: Any = summary_writer(str(folder), filename_suffix=f"{ending}.partial")
        for tag, epoch, value in [*points, *((tag, step, value) for tag, value in final.items())]:
            writer.add_scalar(tag, value, epoch)
        # Not `add_hparams`, which would write a file of its own.
        for summary in described(identity, final):
            writer.file_writer.add_summary(summary)
        writer.close()
        for path in before:
            path.unlink()
        (whole,) = folder.glob("*.partial")
        os.replace(whole, whole.with_suffix(""))
    return folder


def _points(record: Mapping[str, Any]) -> Iterator[tuple[str, int, float]]:
    """Name, epoch and value of every point of the curve."""
    for point in record.get("curve", ()):
        values = {tag: point.get(name) for name, tag in _LOGGED.items()}
        for tag, value in _numbers(values | _measured(point.get("measurements", {}))).items():
            yield tag, int(point["epoch"]), value


def _final(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Numbers of the finished model by name."""
    for field, group in _FINAL.items():
        for name, value in _numbers(record.get(field, {})).items():
            yield f"{group}/{name}", value
    for row in record.get("attacked", ()):
        named = {f"{name}/{row['budget']:g}": row.get(field) for field, name in _ATTACKED.items()}
        yield from _numbers(named).items()


def _measured(measurements: Mapping[str, Any]) -> dict[str, Any]:
    """Give what augmentations measured under the names that TensorBoard shows."""
    return {f"measurements/{name}": value for name, value in measurements.items()}


def _numbers(figures: Mapping[str, Any]) -> dict[str, float]:
    """Keep what is a finite number; records have null for others."""
    return {
        name: float(value)
        for name, value in figures.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


def _safe(name: str) -> str:
    """Make a name that may hold anything the name of one folder; different ones stay different."""
    kept = re.sub(r"[^A-Za-z0-9._=,+-]", "_", name)[:_LONGEST].lstrip(".")
    if kept and kept == name:
        return kept
    return f"{kept}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def check_installed() -> None:
    """Raise where the package ``tensorboard`` is missing, before hours of training."""
    _writer_class()


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
