"""Running trials on this machine, in this process or in worker processes."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.process_executor import TerminatedWorkerError

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.progress import Reporter
from graph_transplant.experiments.protocol import Record, Settings, Trial
from graph_transplant.experiments.trial import run_trial
from graph_transplant.experiments.worker import set_up_worker
from graph_transplant.graphs import GraphStore
from graph_transplant.training import EpochLog


class TrialError(RuntimeError):
    """A trial that failed; the message names it, ``details`` is the traceback of the cause.

    Args:
        message: What failed, in one line.
        details: The traceback, or nothing where it would not help.
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


@dataclass(frozen=True)
class _Failure:
    trial: Trial
    summary: str
    details: str


def run_trials(
    store: GraphStore,
    trials: Sequence[Trial],
    settings: Settings,
    *,
    fingerprint: str,
    source: str,
    workers: int,
    scratch: Path,
    finish: Callable[[Record], None],
    reporter: Reporter,
) -> None:
    """Run trials and hand over each record as soon as it is there.

    With one worker the trials run in this process, otherwise in that many processes, which are
    reused from trial to trial. Every trial runs on one torch thread and gives the same record
    either way.

    Args:
        store: The data set.
        trials: What to run.
        settings: The protocol.
        fingerprint: Fingerprint of ``store``.
        source: How the data set was named by the user.
        workers: How many trials run at once.
        scratch: Directory for a file that the workers read the data from.
        finish: Called in this process with each record, in the order in which trials finish.
        reporter: Told about trials and epochs that run in this process.

    Raises:
        TrialError: If a trial fails; the others are stopped.
    """
    if workers == 1:
        _run_here(store, trials, settings, fingerprint, source, finish, reporter)
    else:
        _run_in_workers(store, trials, settings, fingerprint, source, workers, scratch, finish)


def _run_here(
    store: GraphStore,
    trials: Sequence[Trial],
    settings: Settings,
    fingerprint: str,
    source: str,
    finish: Callable[[Record], None],
    reporter: Reporter,
) -> None:
    def tell(log: EpochLog) -> None:
        reporter.epoch_finished(log.epoch, settings.epochs, log.validation_accuracy)

    with _one_thread():
        for trial in trials:
            reporter.trial_started(trial)
            try:
                record = run_trial(
                    store,
                    trial,
                    settings,
                    fingerprint=fingerprint,
                    source=source,
                    callbacks=(tell,),
                )
            except Exception as problem:
                failure = _failure(trial, problem)
                raise TrialError(failure.summary, failure.details) from problem
            finish(record)


def _run_in_workers(
    store: GraphStore,
    trials: Sequence[Trial],
    settings: Settings,
    fingerprint: str,
    source: str,
    workers: int,
    scratch: Path,
    finish: Callable[[Record], None],
) -> None:
    # The data go through a file that each worker reads once, instead of along with every trial. Its
    # name is always the same, so that a killed comparison leaves nothing that the next one does not
    # replace.
    path = scratch / ".graphs.safetensors"
    store.save(path)
    try:
        with parallel_config(
            backend="loky",
            inner_max_num_threads=1,
            initializer=set_up_worker,
            initargs=(os.getpid(),),
        ):
            outcomes: Generator[Record | _Failure, None, None] = Parallel(
                n_jobs=workers,
                return_as="generator_unordered",
                batch_size=1,
                pre_dispatch="n_jobs",
            )(delayed(_run_there)(path, trial, settings, fingerprint, source) for trial in trials)
            try:
                for outcome in outcomes:
                    if isinstance(outcome, _Failure):
                        raise TrialError(outcome.summary, outcome.details)
                    finish(outcome)
            except TerminatedWorkerError as problem:
                raise TrialError(
                    "a worker process was ended from outside, most often because memory ran out; "
                    "fewer workers need less"
                ) from problem
            finally:
                # Closing kills the workers when trials are left, and joblib then warns that it did.
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    outcomes.close()
    finally:
        path.unlink(missing_ok=True)


def _run_there(
    path: Path, trial: Trial, settings: Settings, fingerprint: str, source: str
) -> Record | _Failure:
    # A failure is returned, not raised, so that it arrives with its trial's name and its traceback
    # whatever the exception is, picklable or not.
    try:
        store = _load(path, fingerprint)
        return run_trial(store, trial, settings, fingerprint=fingerprint, source=source)
    except Exception as problem:  # noqa: BLE001 - raised again where the result arrives
        return _failure(trial, problem)


@lru_cache(maxsize=1)
def _load(path: Path, fingerprint: str) -> GraphStore:
    # The fingerprint is there for the cache: the file of the next comparison has the same name.
    return GraphStore.load(path)


def _failure(trial: Trial, problem: Exception) -> _Failure:
    expected = isinstance(problem, GraphTransplantError)
    text = str(problem) if expected else f"{type(problem).__name__}: {problem}"
    first = text.strip().splitlines()[0] if text.strip() else type(problem).__name__
    details = "" if expected else "".join(traceback.format_exception(problem))
    return _Failure(trial, f"trial {trial} failed: {first}", details)


@contextmanager
def _one_thread() -> Iterator[None]:
    # Sums are split differently on two threads: records would depend on the machine.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
