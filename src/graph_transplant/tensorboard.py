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
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from graph_transplant.errors import GraphTransplantError
from graph_transplant.files import replace_file

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
_EVENTS: Final = "events.out.tfevents"


class TensorBoard:
    """Writes every epoch of a training for TensorBoard; a callback of :func:`graph_transplant.fit`.

    Losses, the validation accuracy and score, the learning rate and what augmentations measure are
    drawn over epochs. What is not a number has no point. Every epoch is on disk when the next one
    begins. A training that goes on from a checkpoint, and another one in the same directory, take
    the place of what was written from their first epoch on.

    Args:
        directory: Where the run is written; it is made with the first epoch.

    Raises:
        GraphTransplantError: If the package ``tensorboard`` is missing, or, with the first epoch,
            if the directory cannot be written.

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
        """Write one epoch.

        Args:
            log: What happened in it.
        """
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

    Args:
        record: The record of a trial, as a comparison writes it; older ones have fewer numbers.
        directory: Where the runs lie; made if it is not there.

    Returns:
        The folder of the run.

    Raises:
        GraphTransplantError: If the package ``tensorboard`` is missing, the record lacks what names
            the trial, or the directory cannot be written.

    Example:
        >>> import tempfile
        >>> record = {"data": "motifs", "method": "vanilla", "model": "gcs", "layers": 3,
        ...           "repeat": 0, "fold": 1, "test": {"accuracy": 0.75}, "best_epoch": 1,
        ...           "curve": [{"epoch": 1, "train_loss": 1.5, "validation_score": 0.5}]}
        >>> directory = tempfile.mkdtemp()
        >>> folder = write_record(record, directory)
        >>> folder.relative_to(directory).as_posix()
        'motifs/gcs-3/vanilla/repeat0-fold1'
        >>> write_record(record, directory) == folder, len(list(folder.iterdir()))
        (True, 1)
    """
    summary_writer = _writer_class()
    run = _Run.of(record)
    folder = Path(directory) / run.folder
    # The name of the file says what is in it: a record that was written before is known by it.
    ending = f".{run.digest()}.trial"
    with _writing(folder):
        before = sorted(folder.glob(f"{_EVENTS}.*.trial"))
        if [path.name.endswith(ending) for path in before] == [True]:
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            writer = summary_writer(scratch)
            for tag, step, value in run.points:
                writer.add_scalar(tag, value, step)
            writer.add_hparams(run.identity, run.final, run_name=".", global_step=run.step)
            writer.close()
            # One file for both, since the writer keeps what a run was in a file of its own: an
            # event file is a sequence of records without a head.
            content = b"".join(path.read_bytes() for path in sorted(Path(scratch).iterdir()))
        # Under a name that TensorBoard does not read until it is whole.
        whole = folder / f"{run.digest()}.partial"
        replace_file(whole, content)
        for path in before:
            path.unlink()
        os.replace(whole, folder / f"{_EVENTS}.{int(time.time()):010d}{ending}")
    return folder


@dataclass(frozen=True)
class _Run:
    """What TensorBoard gets to see of a trial.

    Attributes:
        folder: Its folder.
        identity: What the trial was, as hyperparameters.
        points: Name, epoch and value of every point of the curve.
        final: Numbers of the finished model by name.
        step: The epoch whose weights were kept.
    """

    folder: str
    identity: dict[str, str | int | float]
    points: list[tuple[str, int, float]]
    final: dict[str, float]
    step: int

    @staticmethod
    def of(record: Mapping[str, Any]) -> _Run:
        missing = [name for name in _NEEDED if name not in record]
        if missing:
            raise GraphTransplantError(
                f"`record` must be that of a trial; it lacks {', '.join(missing)}"
            )
        unusual = {
            name: record[name]
            for name, usual in _WHERE_GIVEN.items()
            if name in record and record[name] != usual
        }
        points = [
            (tag, int(point["epoch"]), value)
            for point in record.get("curve", ())
            for tag, value in _numbers(
                {
                    **{tag: point.get(name) for name, tag in _LOGGED.items()},
                    **_measured(point.get("measurements", {})),
                }
            ).items()
        ]
        final = {
            f"{group}/{name}": value
            for field, group in _FINAL.items()
            for name, value in _numbers(record.get(field, {})).items()
        }
        for row in record.get("attacked", ()):
            for field, name in _ATTACKED.items():
                final |= _numbers({f"{name}/{row['budget']:g}": row.get(field)})
        number = {"repeat": record["repeat"], "fold": record["fold"], **unusual}
        parts = (
            str(record["data"]),
            f"{record['model']}-{record['layers']}" if record["model"] else "no network",
            str(record["method"]),
            "-".join(f"{name}{value}" for name, value in number.items()),
        )
        return _Run(
            folder="/".join(_safe(part) for part in parts),
            identity={name: record[name] for name in _NEEDED} | unusual,
            points=points,
            final=final,
            step=int(record.get("best_epoch") or 0),
        )

    def digest(self) -> str:
        content = json.dumps([self.identity, self.points, self.final, self.step])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


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
    """Refuse where the package ``tensorboard`` is missing, before hours of training.

    Raises:
        GraphTransplantError: Saying what to install.

    Example:
        >>> check_installed()
    """
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
