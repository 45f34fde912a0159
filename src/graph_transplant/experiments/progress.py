"""Progress of a comparison: a live display on a terminal, one line per trial elsewhere."""

# ruff: noqa: D102 - Reporter documents the events

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from graph_transplant.experiments.protocol import Record, Trial, metric_of, score
from graph_transplant.format import duration
from graph_transplant.metrics import METRICS


class Reporter:
    """Receives progress events, and by default ignores them."""

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


class Reporters(Reporter):
    """Passes every event on to several reporters."""

    def __init__(self, *reporters: Reporter) -> None:
        def to_all(event: str) -> Callable[..., None]:
            def tell(*given: Any, **named: Any) -> None:
                for reporter in reporters:
                    getattr(reporter, event)(*given, **named)

            return tell

        for event in [name for name in vars(Reporter) if not name.startswith("_")]:
            setattr(self, event, to_all(event))


class Tally:
    """Durations and scores of the trials that are finished."""

    def __init__(self, trials: Sequence[Trial], finished: Sequence[Record], workers: int) -> None:
        self.total = len(trials)
        self.done = 0
        self._left = dict.fromkeys(trials)
        self._workers = workers
        self._seconds: dict[tuple[str, str, int, float], list[float]] = defaultdict(list)
        self._scores: dict[str, list[float]] = defaultdict(list)
        for record in finished:
            self._add(record)

    def finish(self, record: Record) -> None:
        """Count a finished trial."""
        self.done += 1
        self._left.pop(Trial.of_record(record), None)
        self._add(record)

    def _add(self, record: Record) -> None:
        trial = Trial.of_record(record)
        self._seconds[_kind(trial)].append(record["seconds"])
        value = score(record)
        if value is not None:
            self._scores[_name(trial, trial.condition.short)].append(value)

    def seconds_left(self) -> float | None:
        """Estimate the time left, from the mean duration of trials of the same kind."""
        if not self._seconds:
            return None
        overall = fmean(value for values in self._seconds.values() for value in values)
        means = {kind: fmean(values) for kind, values in self._seconds.items()}
        total = sum(means.get(_kind(trial), overall) for trial in self._left)
        return total / min(self._workers, max(1, len(self._left)))

    def best(self, most: int) -> list[tuple[str, float, int]]:
        """Name, mean score and number of trials of the best methods, best first."""
        means = [(name, fmean(values), len(values)) for name, values in self._scores.items()]
        return sorted(means, key=lambda item: -item[1])[:most]


def _kind(trial: Trial) -> tuple[str, str, int, float]:
    return trial.method, trial.model, trial.layers, trial.train_fraction


def _name(trial: Trial, *more: str) -> str:
    network = f" {trial.model}-{trial.layers}" if trial.model else ""
    return ", ".join(filter(None, [f"{trial.method}{network}", *more]))


class Plain(Reporter):
    """Prints one line per trial, for pipes and logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tally = Tally((), (), 1)

    def start(self, *, trials: Sequence[Trial], finished: Sequence[Record], workers: int) -> None:
        self._tally = Tally(trials, finished, workers)

    def note(self, text: str) -> None:
        # A log line is one line: no wrapping, no markup from names, no colours.
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)

    def trial_finished(self, record: Record) -> None:
        tally = self._tally
        tally.finish(record)
        value = score(record)
        # Classical rivals have no epochs.
        epochs = f"best epoch {record['best_epoch']} of {record['epochs']}, "
        line = (
            f"[{tally.done:{len(str(tally.total))}d}/{tally.total}] {Trial.of_record(record)}: "
            f"{METRICS[metric_of(record)].word} "
            f"{'not defined' if value is None else f'{100 * value:.1f} %'}, "
            f"{epochs if record.get('epochs') else ''}{duration(record['seconds'])}"
        )
        left = tally.seconds_left()
        self.note(f"{line}; about {duration(left)} left" if left else line)


class Display(Reporter):
    """Keeps a live display on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(self, console=console, refresh_per_second=8)

    def start(self, *, trials: Sequence[Trial], finished: Sequence[Record], workers: int) -> None:
        self._tally = Tally(trials, finished, workers)
        self._metric = METRICS[metric_of(finished[-1])].word if finished else ""
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]} {task.fields[text]}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._all = self._progress.add_task("trials", total=len(trials), unit="trials", text="")
        self._one = self._progress.add_task("", visible=False, unit="epochs", text="")
        self._show_time()
        self._live.start()

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def trial_started(self, trial: Trial) -> None:
        repeat = f"repeat {trial.repeat}" if trial.repeat else ""
        name = _name(trial, f"fold {trial.fold}", repeat, trial.condition.short)
        # A reset forgets the fields.
        self._progress.reset(
            self._one, total=0, visible=True, description=name, unit="epochs", text=""
        )

    def epoch_finished(self, epoch: int, epochs: int, validation_score: float) -> None:
        text = f"validation {100 * validation_score:.1f} %"
        self._progress.update(self._one, completed=epoch, total=epochs, text=text)

    def trial_finished(self, record: Record) -> None:
        self._tally.finish(record)
        self._metric = METRICS[metric_of(record)].word
        self._progress.advance(self._all)
        self._show_time()

    def _show_time(self) -> None:
        left = self._tally.seconds_left()
        self._progress.update(self._all, text=f"about {duration(left)} left" if left else "")

    def stop(self) -> None:
        self._progress.update(self._one, visible=False)
        self._live.stop()

    def __rich__(self) -> Group:
        best = self._tally.best(4)
        if not best:
            return Group(self._progress)
        line = Text(f"{self._metric} so far: ", style="dim")
        for number, (name, value, trials) in enumerate(best):
            line.append(f"{' · ' if number else ''}{name} ")
            line.append(f"{100 * value:.1f} %", style="not dim" if number else "bold not dim")
            line.append(f" ({trials})")
        return Group(self._progress, line)
