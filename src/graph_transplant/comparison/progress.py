"""Progress: one line per trial, a live display on terminals, and signs of life in logs."""

# ruff: noqa: D102 - Reporter documents the events

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from graph_transplant.metrics import METRICS
from graph_transplant.results.record import Trial, TrialRecord
from graph_transplant.utils.text import count, duration

BEAT_SECONDS = 30.0


class Heartbeat:
    """Repeats what is being done every half minute, unless the console is a terminal."""

    def __init__(self, console: Console, text: str = "") -> None:
        self.text = text
        self._console = console
        self._ended = threading.Event()
        self._begin = monotonic()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Heartbeat:
        if not self._console.is_interactive:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            line = f"{duration(monotonic() - self._begin)}: {self.text}"
            self._console.print(line, soft_wrap=True, markup=False, highlight=False)


class Reporter:
    """Receives progress events; ignores them by default."""

    def start(
        self, *, trials: Sequence[Trial], finished: Sequence[TrialRecord], workers: int
    ) -> None:
        """Trials start, ``workers`` at a time; ``finished`` are the existing records."""

    def note(self, text: str) -> None:
        """A message for the user."""

    def trial_started(self, trial: Trial) -> None:
        """A trial starts in this process."""

    def epoch_finished(self, epoch: int, epochs: int, validation_score: float) -> None:
        """The trial in this process has finished an epoch."""

    def trial_finished(self, record: TrialRecord) -> None:
        """A trial is finished and its record is on disk."""

    def stop(self) -> None:
        """The comparison has ended, for any reason; called once after :meth:`start`."""


class Tally:
    """Durations of finished trials."""

    def __init__(
        self, trials: Sequence[Trial], finished: Sequence[TrialRecord], workers: int
    ) -> None:
        self.total = len(trials)
        self.done = 0
        self._left = dict.fromkeys(trials)
        self._workers = workers
        self._seconds: dict[tuple[str, str, int, float], list[float]] = defaultdict(list)
        for record in finished:
            self._seconds[_kind(record.trial)].append(record.seconds)

    def finish(self, record: TrialRecord) -> None:
        """Count a finished trial."""
        trial = record.trial
        self.done += 1
        self._left.pop(trial, None)
        self._seconds[_kind(trial)].append(record.seconds)

    def seconds_left(self) -> float | None:
        """Estimate the time left, from the mean duration of trials of the same kind."""
        if not self._seconds:
            return None
        overall = fmean(value for values in self._seconds.values() for value in values)
        means = {kind: fmean(values) for kind, values in self._seconds.items()}
        total = sum(means.get(_kind(trial), overall) for trial in self._left)
        return total / min(self._workers, max(1, len(self._left)))


def _kind(trial: Trial) -> tuple[str, str, int, float]:
    return trial.method, trial.model, trial.layers, trial.train_fraction


class Plain(Reporter):
    """Prints one line per trial, for pipes and logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tally = Tally((), (), 1)
        self._heartbeat = Heartbeat(console)

    def start(
        self, *, trials: Sequence[Trial], finished: Sequence[TrialRecord], workers: int
    ) -> None:
        self._tally = Tally(trials, finished, workers)
        self._running = f"{count(min(workers, len(trials)), 'trial')} at a time"
        self._heartbeat = Heartbeat(self._console, self._status())
        self._heartbeat.__enter__()

    def trial_started(self, trial: Trial) -> None:
        self._running = str(trial)
        self._heartbeat.text = self._status()

    def epoch_finished(self, epoch: int, epochs: int, validation_score: float) -> None:
        self._heartbeat.text = f"{self._status()}, epoch {epoch} of {epochs}"

    def stop(self) -> None:
        self._heartbeat.__exit__()

    def _status(self) -> str:
        return f"{self._tally.done} of {count(self._tally.total, 'trial')} done, {self._running}"

    def note(self, text: str) -> None:
        # A log line is one line: no wrapping, no markup from names, no colours.
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)

    def trial_finished(self, record: TrialRecord) -> None:
        tally = self._tally
        tally.finish(record)
        metric, value = METRICS[record.metric], record.score()
        # Baselines have no epochs.
        epochs = f"best epoch {record.best_epoch} of {record.epochs}, "
        line = (
            f"[{tally.done:{len(str(tally.total))}d}/{tally.total}] {record.trial}: "
            f"{metric.word} {'not defined' if value is None else metric.score(value, unit=True)}, "
            f"{epochs if record.epochs else ''}{duration(record.seconds)}"
        )
        self._heartbeat.text = self._status()
        left = tally.seconds_left()
        self.note(f"{line}; about {duration(left)} left" if left else line)


class Display(Plain):
    """Adds a live display of trials and epochs, for terminals."""

    def start(
        self, *, trials: Sequence[Trial], finished: Sequence[TrialRecord], workers: int
    ) -> None:
        super().start(trials=trials, finished=finished, workers=workers)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._all = self._progress.add_task("trials", total=len(trials))
        self._one = self._progress.add_task("", visible=False)
        self._progress.start()

    def trial_started(self, trial: Trial) -> None:
        self._progress.reset(self._one, total=0, visible=True, description=f"epochs of {trial}")

    def epoch_finished(self, epoch: int, epochs: int, validation_score: float) -> None:
        self._progress.update(self._one, completed=epoch, total=epochs)

    def trial_finished(self, record: TrialRecord) -> None:
        super().trial_finished(record)
        self._progress.advance(self._all)

    def stop(self) -> None:
        super().stop()
        self._progress.update(self._one, visible=False)
        self._progress.stop()
