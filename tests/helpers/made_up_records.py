"""Made-up records of trials and models, and short ways to what results say about them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from graph_transplant.comparison.progress import Reporter
from graph_transplant.data.targets import TargetScale
from graph_transplant.models.model import TrainedModel
from graph_transplant.nn import GraphClassifier
from graph_transplant.results.predictions import Predictions, TrialPredictions
from graph_transplant.results.record import Record, Trial
from graph_transplant.results.record_file import record_line
from graph_transplant.results.results import Results
from graph_transplant.results.verdict import Verdict

PLAIN = [0.60, 0.55, 0.65, 0.50, 0.60]
BETTER = [0.70, 0.66, 0.74, 0.61, 0.71]  # differences 0.10, 0.11, 0.09, 0.11, 0.11
UNSURE = [0.65, 0.50, 0.75, 0.55, 0.55]  # differences 0.05, -0.05, 0.10, 0.05, -0.05
WORSE = [0.50, 0.44, 0.56, 0.39, 0.49]  # differences -0.10, -0.11, -0.09, -0.11, -0.11

NOISY = {"label_noise": 0.2, "wrong_labels": 12}
FEW = {"train_fraction": 0.1, "sizes": {"train": 6, "validation": 20, "test": 20, "left_out": 54}}
NO_NETWORK = {"model": None, "layers": None, "epochs": None, "best_epoch": None}

NUMBERS = np.arange(2)
PREDICTED = TrialPredictions(
    ("a", "b"), *[Predictions(NUMBERS, NUMBERS[:0], NUMBERS, np.eye(2, dtype=np.float32))] * 2
)
"""Predictions of two graphs of two classes."""


def made_up(
    method: str,
    values: Sequence[float],
    *,
    folds: int = 5,
    settings: dict[str, Any] | None = None,
    **changes: Any,
) -> list[Record]:
    """Trials whose accuracy is the value and whose AUROC is half of it."""
    return [
        {
            "data": "toy",
            "fingerprint": "1f",
            "method": method,
            "model": "gcs",
            "layers": 3,
            "repeat": number // folds,
            "fold": number % folds,
            "validation": {"accuracy": value, "auroc": value / 2},
            "test": {"accuracy": value, "auroc": value / 2, "ece": 0.05, "nll": 1 - value},
            "sizes": {"train": 60, "validation": 20, "test": 20},
            "settings": {"folds": folds, "epochs": 100} | (settings or {}),
            "seconds": 2.0 + number,
            "epochs": 100,
            "best_epoch": 50,
        }
        | changes
        for number, value in enumerate(values)
    ]


def official(
    method: str, values: Sequence[float], split: str = "official", **changes: Any
) -> list[Record]:
    """The same as runs of one split."""
    records = made_up(method, values, settings={"split": split}, **changes)
    return [record | {"repeat": number, "fold": 0} for number, record in enumerate(records)]


def judged_by(metric: str, method: str, values: Sequence[float]) -> list[Record]:
    """Trials whose value is that of another metric, and of this one alone."""
    return [
        record | {"validation": {metric: value}, "test": {metric: value}}
        for record, value in zip(
            made_up(method, values, settings={"metric": metric}), values, strict=True
        )
    ]


def on(data: str, *parts: Sequence[Record], **changes: Any) -> list[Record]:
    """The same trials on another data set."""
    return [record | {"data": data} | changes for part in parts for record in part]


def rows(records: Sequence[Record], selection: str = "none") -> list[SimpleNamespace]:
    """The rows of the summary."""
    return [SimpleNamespace(**row) for row in Results(records, selection).rows]


def verdicts(records: Sequence[Record], selection: str = "none") -> list[Verdict]:
    """What each group says."""
    return list(Results(records, selection).verdicts.values())


def as_trained(
    network: GraphClassifier,
    names: Sequence[str],
    *,
    method: str = "vanilla",
    featurizer: dict[str, Any] | None = None,
    scale: TargetScale | None = None,
) -> TrainedModel:
    """A model as if it had been trained."""
    description = {
        "label_names": list(names),
        "featurizer": featurizer,
        "data": {"name": "toy"},
        "training": {"method": method, "model": "gcs", "layers": 2},
    }
    return TrainedModel(network, 1.7, scale, description)


def timeless(records: Sequence[Record]) -> list[bytes]:
    """What must be equal between two runs: everything but the durations."""
    return [
        record_line({name: item[name] for name in item if name not in ("seconds", "cost")})
        for item in sorted(records, key=Trial.of_record)
    ]


class Counting(Reporter):
    """Remembers the events it receives."""

    def __init__(self) -> None:
        self.started: list[Trial] = []
        self.ran: list[Trial] = []
        self.notes: list[str] = []
        self.epochs: list[str] = []
        self.stopped = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def trial_started(self, trial: Trial) -> None:
        self.started.append(trial)

    def epoch_finished(self, epoch: int, epochs: int, validation_score: float) -> None:
        self.epochs.append(f"{epoch}/{epochs}")

    def trial_finished(self, record: Record) -> None:
        self.ran.append(Trial.of_record(record))

    def stop(self) -> None:
        self.stopped += 1


IDENTITY = {"data": "tiny", "fingerprint": "ab" * 32}


SETTINGS = {"seed": 0, "folds": 3, "epochs": 5, "batch_size": 16, "learning_rate": 5e-4}


def record(fold: int = 0, **changes: Any) -> Record:
    return {
        **IDENTITY,
        "method": "vanilla",
        "model": "gcs",
        "layers": 3,
        "repeat": 0,
        "fold": fold,
        "validation": {"accuracy": 0.25},
        "test": {"accuracy": 0.5},
        "epochs": 5,
        "best_epoch": 2,
        "seconds": 1.5,
        "sizes": {"train": 6, "validation": 2, "test": 2},
        "settings": dict(SETTINGS),
        **changes,
    }
