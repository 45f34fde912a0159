"""What the tests of engines share."""

from __future__ import annotations

from collections.abc import Sequence

from graph_transplant.experiments.progress import Reporter
from graph_transplant.experiments.protocol import Record, Trial
from graph_transplant.experiments.records import record_line


class Listening(Reporter):
    """Remembers the events it receives."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.started: list[Trial] = []
        self.epochs: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def trial_started(self, trial: Trial) -> None:
        self.started.append(trial)

    def epoch_finished(self, epoch: int, epochs: int, validation_score: float) -> None:
        assert 0 <= validation_score <= 1
        self.epochs.append(f"{epoch}/{epochs}")


def lines(records: Sequence[Record]) -> list[bytes]:
    """The bytes of all records without their durations, in a fixed order."""
    return [
        record_line({key: item[key] for key in item if key not in ("seconds", "cost")})
        for item in sorted(records, key=Trial.of_record)
    ]
