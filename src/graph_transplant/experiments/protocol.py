"""What one comparison fixes (:class:`Settings`) and what one trial of it is (:class:`Trial`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from graph_transplant.errors import GraphTransplantError

Record = dict[str, Any]
"""One finished trial as it is written to ``records.jsonl``."""

BASELINE = "vanilla"
"""The method that every other method is compared with."""


@dataclass(frozen=True)
class Settings:
    """Everything that all trials of a comparison share; the defaults are the paper's protocol.

    Records with different settings are never mixed in one directory.

    Args:
        folds: Number of folds: one is the test set, the next one the validation set.
        epochs: Most epochs a trial trains.
        batch_size: Graphs per training batch.
        seed: The one number that all randomness derives from.
        learning_rate: Learning rate of Adam at the start.
        stop_patience: Iterations without a higher validation accuracy after which training stops.
        decay_patience: Iterations without a lower validation loss after which the learning rate is
            halved.
        clip_norm: Largest gradient norm.
        hidden: Width of the hidden layers.
        readout: How node embeddings become a graph embedding.
        dropout: Dropout of the classifier head.

    Example:
        >>> Settings(folds=3).folds
        3
        >>> Settings(folds=2)
        Traceback (most recent call last):
        graph_transplant.errors.GraphTransplantError: `folds` must be at least 3, got 2
    """

    folds: int = 5
    epochs: int = 1000
    batch_size: int = 128
    seed: int = 0
    learning_rate: float = 5e-4
    stop_patience: int = 1500
    decay_patience: int = 1000
    clip_norm: float = 2.0
    hidden: int = 128
    readout: str = "mean"
    dropout: float = 0.5

    def __post_init__(self) -> None:
        smallest = {
            "folds": 3,
            "epochs": 1,
            "batch_size": 1,
            "seed": 0,
            "stop_patience": 1,
            "decay_patience": 1,
            "hidden": 1,
        }
        for name, least in smallest.items():
            value = getattr(self, name)
            if value < least:
                raise GraphTransplantError(f"`{name}` must be at least {least}, got {value}")
        for name in ("learning_rate", "clip_norm"):
            value = getattr(self, name)
            if not value > 0:
                raise GraphTransplantError(f"`{name}` must be above 0, got {value}")

    def as_record(self, version: str) -> Record:
        """Give the settings as they stand in a record, with the library version."""
        return {**asdict(self), "version": version}


@dataclass(frozen=True, order=True)
class Trial:
    """One training run: a method and a model on one fold of one repeat.

    Args:
        method: Name of the augmentation method.
        model: Name of the convolution.
        layers: Number of convolution layers.
        repeat: Number of the repeat; each repeat shuffles anew.
        fold: Number of the test fold.

    Example:
        >>> print(Trial("transplant-dp", "gcs", 3, repeat=0, fold=2))
        transplant-dp, gcs with 3 layers, repeat 0, fold 2
    """

    method: str
    model: str
    layers: int
    repeat: int
    fold: int

    def __str__(self) -> str:
        layers = f"{self.layers} layer{'s' if self.layers != 1 else ''}"
        return f"{self.method}, {self.model} with {layers}, repeat {self.repeat}, fold {self.fold}"

    @staticmethod
    def of_record(record: Record) -> Trial:
        """Give the trial that a record is the result of."""
        return Trial(
            record["method"],
            record["model"],
            record["layers"],
            record["repeat"],
            record["fold"],
        )


def all_trials(
    *,
    methods: Sequence[str],
    models: Sequence[str],
    layers: Sequence[int],
    repeats: int,
    folds: int,
) -> Iterator[Trial]:
    """List the trials of a comparison, fold by fold.

    All methods of one fold come before the next fold, so that a comparison stopped half-way holds
    complete pairs.

    Example:
        >>> trials = all_trials(methods=["vanilla", "transplant-dp"], models=["gcs"], layers=[3],
        ...                     repeats=1, folds=3)
        >>> [(trial.fold, trial.method) for trial in trials][:3]
        [(0, 'vanilla'), (0, 'transplant-dp'), (1, 'vanilla')]
    """
    for repeat in range(repeats):
        for fold in range(folds):
            for model in models:
                for depth in layers:
                    for method in methods:
                        yield Trial(method, model, depth, repeat, fold)
