"""Training curves as TensorBoard event files, one run per folder.

Requires the extra ``tensorboard``. To view them: ``tensorboard --logdir runs``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from graph_transplant.errors import GraphTransplantError
from graph_transplant.utils.files import writing

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from graph_transplant.training.state import EpochLog

# Values of an epoch and their TensorBoard tags.
_LOGGED: Final = {
    **{f"{part}_loss": f"loss/{part}" for part in ("train", "clean", "virtual", "auxiliary")},
    "validation_loss": "loss/validation",
    "validation_accuracy": "validation/accuracy",
    "validation_score": "validation/score",
    "learning_rate": "learning_rate",
}


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
        with writing(self.directory):
            if self._writer is None:
                # Discard later points of an interrupted run.
                self._writer = _writer_class()(str(self.directory), purge_step=log.epoch)
            _write(self._writer, vars(log))
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


def _write(writer: SummaryWriter, log: Mapping[str, Any]) -> None:
    values = {tag: log.get(name) for name, tag in _LOGGED.items()}
    values |= {f"measurements/{name}": value for name, value in log.get("measurements", {}).items()}
    for tag, value in values.items():
        if value is not None and math.isfinite(value):
            writer.add_scalar(tag, value, log["epoch"])


def _writer_class() -> type[SummaryWriter]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise GraphTransplantError(
            "writing for TensorBoard needs the package tensorboard: "
            "pip install graph-transplant[tensorboard]"
        ) from None
    return SummaryWriter
