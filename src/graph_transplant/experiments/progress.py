"""Showing a running comparison: a live display on a terminal, one line per trial elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from graph_transplant.experiments.protocol import (
    METRICS,
    Condition,
    Record,
    Trial,
    metric_of,
    score,
)


class Reporter(Protocol):
    """Somebody who is told how a comparison goes on."""

    def start(self, *, trials: Sequence[Trial], finished: Sequence[Record], workers: int) -> None:
        """The trials that will run, the records there are already, and how many run at once."""

    def note(self, text: str) -> None:
        """Something the user should know."""

    def trial_started(self, trial: Trial) -> None:
        """A trial starts in this process."""

    def epoch_finished(self, epoch: int, epochs: int, validation_score: float) -> None:
        """The trial in this process has finished an epoch."""

    def trial_finished(self, record: Record) -> None:
        """A trial is finished and its record is on disk."""

    def stop(self) -> None:
        """The comparison is over, for whatever reason; called once after :meth:`start`."""


class Silent:
    """A :class:`Reporter` that says nothing."""

    def start(self, *, trials: Sequence[Trial], finished: Sequence[Record], workers: int) -> None:
        """The trials that will run, the records there are already, and how many run at once."""

    def note(self, text: str) -> None:
        """Something the user should know."""

    def trial_started(self, trial: Trial) -> None:
        """A trial starts in this process."""

    def epoch_finished(self, epoch: int, epochs: int, validation_score: float) -> None:
        """The trial in this process has finished an epoch."""

    def trial_finished(self, record: Record) -> None:
        """A trial is finished and its record is on disk."""

    def stop(self) -> None:
        """The comparison is over, for whatever reason; called once after :meth:`start`."""


class RemainingTime:
    """Estimates how long the rest of a comparison takes.

    A method's trials are expected to take as long as its finished ones on the same fraction of the
    training graphs did, or as all finished ones did when it has none.

    Args:
        trials: The trials that will run.
        finished: The records there are already.
        workers: How many trials run at once.

    Example:
        >>> trials = [Trial("vanilla", "gcs", 3, 0, fold) for fold in range(5)]
        >>> remaining = RemainingTime(trials, [], workers=2)
        >>> remaining.seconds() is None
        True
        >>> remaining.finish(trials[0], 10.0)
        >>> remaining.seconds()
        20.0
    """

    def __init__(self, trials: Sequence[Trial], finished: Sequence[Record], workers: int) -> None:
        self._left = dict.fromkeys(trials)
        self._workers = workers
        self._durations: dict[tuple[str, str, int, float], list[float]] = {}
        for record in finished:
            self._add(Trial.of_record(record), record["seconds"])

    def _add(self, trial: Trial, seconds: float) -> None:
        self._durations.setdefault(self._kind(trial), []).append(seconds)

    @staticmethod
    def _kind(trial: Trial) -> tuple[str, str, int, float]:
        return trial.method, trial.model, trial.layers, trial.train_fraction

    def finish(self, trial: Trial, seconds: float) -> None:
        """Take note of a finished trial."""
        self._left.pop(trial, None)
        self._add(trial, seconds)

    def seconds(self) -> float | None:
        """Give the estimate in seconds, or nothing before a first trial is finished."""
        everything = [value for values in self._durations.values() for value in values]
        if not everything:
            return None
        overall = sum(everything) / len(everything)
        total = 0.0
        for trial in self._left:
            known = self._durations.get(self._kind(trial))
            total += sum(known) / len(known) if known else overall
        return total / min(self._workers, max(1, len(self._left)))


class RunningMeans:
    """Mean test metric of each method and condition so far, in the order they appeared.

    Attributes:
        metric: The metric in words.
    """

    def __init__(self, finished: Sequence[Record]) -> None:
        self.metric = METRICS["accuracy"]
        self._scores: dict[str, list[float]] = {}
        for record in finished:
            self.add(record)

    def add(self, record: Record) -> None:
        """Take note of a finished trial."""
        self.metric = METRICS[metric_of(record)]
        name = f"{record['method']} {record['model']}-{record['layers']}"
        condition = Condition.of(record).short
        name += f", {condition}" if condition else ""
        value = score(record)
        if value is not None:
            self._scores.setdefault(name, []).append(value)

    def best(self, most: int) -> list[tuple[str, float, int]]:
        """Give name, mean metric and number of trials of the best ones, best first."""
        means = [
            (name, sum(values) / len(values), len(values)) for name, values in self._scores.items()
        ]
        return sorted(means, key=lambda item: -item[1])[:most]


class Plain:
    """A :class:`Reporter` that prints one line per trial, for pipes and logs.

    Args:
        console: Where to print.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._total = 0
        self._done = 0
        self._remaining = RemainingTime((), (), 1)

    def start(self, *, trials: Sequence[Trial], finished: Sequence[Record], workers: int) -> None:
        """The trials that will run, the records there are already, and how many run at once."""
        # Of one comparison after another each counts from the start.
        self._total, self._done = len(trials), 0
        self._remaining = RemainingTime(trials, finished, workers)

    def note(self, text: str) -> None:
        """Something the user should know."""
        self._print(text)

    def trial_started(self, trial: Trial) -> None:
        """A trial starts in this process."""

    def epoch_finished(self, epoch: int, epochs: int, validation_score: float) -> None:
        """The trial in this process has finished an epoch."""

    def trial_finished(self, record: Record) -> None:
        """A trial is finished and its record is on disk."""
        self._done += 1
        trial = Trial.of_record(record)
        self._remaining.finish(trial, record["seconds"])
        left = self._remaining.seconds()
        line = (
            f"[{self._done:{len(str(self._total))}d}/{self._total}] {trial}: "
            f"{_result(record)}, "
            f"best epoch {record['best_epoch']} of {record['epochs']}, "
            f"{duration(record['seconds'])}"
        )
        if left and self._done < self._total:
            line += f"; about {duration(left)} left"
        self._print(line)

    def stop(self) -> None:
        """The comparison is over, for whatever reason; called once after :meth:`start`."""

    def _print(self, text: str) -> None:
        # A log line is one line: no wrapping, no markup from names, no colours.
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)


class Display:
    """A :class:`Reporter` that keeps a live display on a terminal.

    Args:
        console: The terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TextColumn("{task.fields[time]}", markup=False),
            console=console,
        )
        self._all = self._progress.add_task("trials", total=0, unit="trials", time="")
        self._one = self._progress.add_task("", total=0, unit="epochs", time="", visible=False)
        self._remaining = RemainingTime((), (), 1)
        self._means = RunningMeans(())
        self._started = time.monotonic()
        self._latest = self._started
        self._live = Live(console=console, refresh_per_second=8, get_renderable=self._render)

    def start(self, *, trials: Sequence[Trial], finished: Sequence[Record], workers: int) -> None:
        """The trials that will run, the records there are already, and how many run at once."""
        self._remaining = RemainingTime(trials, finished, workers)
        self._means = RunningMeans(finished)
        self._started = self._latest = time.monotonic()
        self._progress.update(self._all, total=len(trials), completed=0)
        self._live.start()

    def note(self, text: str) -> None:
        """Something the user should know."""
        self._console.print(text, markup=False, highlight=False)

    def trial_started(self, trial: Trial) -> None:
        """A trial starts in this process."""
        self._latest = time.monotonic()
        name = f"{trial.method} {trial.model}-{trial.layers}"
        place = f"fold {trial.fold}" + (f", repeat {trial.repeat}" if trial.repeat else "")
        place += f", {trial.condition.short}" if trial.condition.short else ""
        # Reset forgets the fields of the task, so that all of them are given again.
        self._progress.reset(
            self._one,
            total=0,
            visible=True,
            description=f"{name}, {place}",
            unit="epochs",
            time="",
        )

    def epoch_finished(self, epoch: int, epochs: int, validation_score: float) -> None:
        """The trial in this process has finished an epoch."""
        self._progress.update(
            self._one,
            completed=epoch,
            total=epochs,
            time=f"validation {100 * validation_score:.1f} %",
        )

    def trial_finished(self, record: Record) -> None:
        """A trial is finished and its record is on disk."""
        self._remaining.finish(Trial.of_record(record), record["seconds"])
        self._means.add(record)
        self._latest = time.monotonic()
        self._progress.advance(self._all)

    def stop(self) -> None:
        """The comparison is over, for whatever reason; called once after :meth:`start`."""
        self._progress.update(self._one, visible=False)
        self._live.stop()

    def _render(self) -> Group:
        now = time.monotonic()
        text = duration(now - self._started)
        left = self._remaining.seconds()
        if left is not None and not self._progress.tasks[0].finished:
            # The trials that are running have done a part of what is left.
            text += f", about {duration(max(0.0, left - (now - self._latest)))} left"
        self._progress.update(self._all, time=text)
        lines: list[Text | Progress] = [self._progress]
        best = self._means.best(4)
        if best:
            line = Text(f"{self._means.metric} so far: ", style="dim")
            for number, (name, value, trials) in enumerate(best):
                line.append(" · " if number else "")
                line.append(f"{name} ")
                line.append(
                    f"{100 * value:.1f} %", style="bold not dim" if not number else "not dim"
                )
                line.append(f" ({trials})")
            lines.append(line)
        return Group(*lines)


def _result(record: Record) -> str:
    value = score(record)
    number = "not defined" if value is None else f"{100 * value:.1f} %"
    return f"{METRICS[metric_of(record)]} {number}"


def duration(seconds: float) -> str:
    """Word a duration.

    Example:
        >>> duration(0.42), duration(31.4), duration(190), duration(8000), duration(200000)
        ('0.4 s', '31 s', '3 min 10 s', '2 h 13 min', '2 d 7 h')
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
