"""Running trials: in this process, in worker processes, on a Ray cluster or under torchrun.

Trials are independent jobs. Whatever runs them, however many at once and in whatever order, a trial
gives the same record, and the process that called :func:`run_trials` alone takes the records.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.process_executor import BrokenProcessPool, TerminatedWorkerError

from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.experiments.examples import with_ids
from graph_transplant.experiments.progress import Reporter
from graph_transplant.experiments.protocol import Record, Settings, Trial
from graph_transplant.experiments.trial import Job, checkpoint_of, split_of
from graph_transplant.experiments.worker import (
    Attempts,
    Failure,
    TrialError,
    failure_of,
    load_store,
    set_up_worker,
)
from graph_transplant.graphs import GraphStore
from graph_transplant.training import EpochLog

__all__ = ["ENGINES", "TrialError", "run_trials"]

ENGINES = {
    "local": "processes of this machine",
    "ray": "a Ray cluster, or Ray on this machine",
    "torchrun": "one trial after another, each on all processes that torchrun started",
}
"""What can run trials, with a description."""

CHECKPOINTS = "checkpoints"
"""The folder, within that of a comparison, where trials that are running keep their state."""


def check_engine(engine: str, address: str | None) -> None:
    """Check that an engine can be used, before anything is written or moved.

    Args:
        engine: A key of :data:`ENGINES`.
        address: Address of the cluster, for the engine ``"ray"`` alone.

    Raises:
        GraphTransplantError: If it cannot, saying why.

    Example:
        >>> check_engine("local", "HEAD:6379")
        Traceback (most recent call last):
        graph_transplant.errors.GraphTransplantError: `address` names a Ray cluster and needs ...
    """
    check_choice("engine", engine, ENGINES)
    if address is not None and engine != "ray":
        raise GraphTransplantError(
            f"`address` names a Ray cluster and needs the engine ray, got {engine!r}"
        )
    if engine == "torchrun":
        from graph_transplant.experiments.distributed import group_size

        group_size()
    elif engine == "ray":
        from graph_transplant.experiments.ray_engine import check_ray

        check_ray(address)


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
    engine: str = "local",
    address: str | None = None,
) -> None:
    """Run trials and hand over each record as soon as it is there.

    The engine ``"local"`` runs them in this process when there is one worker, otherwise in that
    many processes, which are reused from trial to trial. Every trial runs on one torch thread and
    gives the same record either way. A trial whose worker was ended from outside runs again, twice
    at most, and goes on from its checkpoint.

    Args:
        store: The data set.
        trials: What to run.
        settings: The protocol.
        fingerprint: Fingerprint of ``store``.
        source: How the data set was named by the user.
        workers: How many trials run at once; a Ray cluster runs as many as it has processors for.
        scratch: Directory for a file that the workers read the data from, and for checkpoints.
        finish: Called in this process with each record, in the order in which trials finish.
        reporter: Told about trials that run again, and about trials and epochs in this process.
        engine: A key of :data:`ENGINES`.
        address: Address of the cluster, for the engine ``"ray"`` alone.

    Raises:
        GraphTransplantError: If the engine cannot be used, or the disk is full.
        TrialError: If a trial fails; the others are stopped.
    """
    check_engine(engine, address)
    if store.rows is not None:
        finish = _with_ids(finish, store, settings)
    folder = (scratch / CHECKPOINTS).absolute()
    folder.mkdir(parents=True, exist_ok=True)

    def finished(record: Record) -> None:
        finish(record)
        checkpoint_of(folder, Trial.of_record(record)).unlink(missing_ok=True)

    job = Job(settings, fingerprint, source, folder)
    try:
        if engine == "torchrun":
            from graph_transplant.experiments.distributed import run_distributed

            run_distributed(store, trials, job, finish=finished, reporter=reporter)
        elif engine == "ray":
            from graph_transplant.experiments.ray_engine import run_on_ray

            with store_file(store, scratch) as path:
                run_on_ray(
                    path,
                    trials,
                    job,
                    workers=workers,
                    finish=finished,
                    reporter=reporter,
                    address=address,
                )
        elif workers == 1:
            # One with several workers, killed before, may have left the file of its data.
            shutil.rmtree(_data_folder(scratch), ignore_errors=True)
            _run_here(store, trials, job, finished, reporter)
        else:
            with store_file(store, scratch) as path:
                _run_in_workers(path, trials, job, workers, finished, Attempts(reporter))
    finally:
        with suppress(OSError):  # unless it holds what another run goes on from
            folder.rmdir()


def _with_ids(
    finish: Callable[[Record], None], store: GraphStore, settings: Settings
) -> Callable[[Record], None]:
    """Have records name graphs by their ids, which files for workers do not hold."""

    def named(record: Record) -> None:
        if record.get("examples"):
            split = split_of(store, Trial.of_record(record), settings)
            record = {**record, "examples": with_ids(record["examples"], store, split)}
        finish(record)

    return named


@contextmanager
def store_file(store: GraphStore, scratch: Path) -> Iterator[Path]:
    """Name a file that holds the data set, for processes that do not have it in memory.

    A store that was read from a file names that one; any other is written to ``scratch`` and
    removed again.

    Args:
        store: The data set.
        scratch: Directory to write to.

    Yields:
        The file.

    Raises:
        GraphTransplantError: If the disk refuses.
    """
    if store.path is not None and store.path.exists():
        yield store.path
        return
    # The name is always the same, so that a killed comparison leaves nothing that the next one does
    # not remove, half-written files among it.
    folder = _data_folder(scratch)
    path = folder / "graphs.safetensors"
    try:
        if folder.exists():
            shutil.rmtree(folder)
        store.save(path)
    except OSError as problem:
        shutil.rmtree(folder, ignore_errors=True)
        raise GraphTransplantError(
            f"cannot write {path}, which the workers read the data from: {problem.strerror}; the "
            "records are intact"
        ) from problem
    try:
        yield path
    finally:
        # Errors are ignored for Windows, which keeps a file that a worker has mapped; the next
        # comparison removes it.
        shutil.rmtree(folder, ignore_errors=True)


def _data_folder(scratch: Path) -> Path:
    return scratch / ".graphs"


def _run_here(
    store: GraphStore,
    trials: Sequence[Trial],
    job: Job,
    finish: Callable[[Record], None],
    reporter: Reporter,
) -> None:
    def tell(log: EpochLog) -> None:
        reporter.epoch_finished(log.epoch, job.settings.epochs, log.validation_score)

    with _one_thread():
        for trial in trials:
            reporter.trial_started(trial)
            try:
                record = job.run(store, trial, callbacks=(tell,))
            except Exception as problem:
                raise failure_of(trial, problem).error() from problem
            finish(record)


def _run_in_workers(
    path: Path,
    trials: Sequence[Trial],
    job: Job,
    workers: int,
    finish: Callable[[Record], None],
    attempts: Attempts,
) -> None:
    left = dict.fromkeys(trials)
    while left:
        running: dict[Trial, None] = {}

        def jobs(running: dict[Trial, None] = running) -> Iterator[Any]:
            # Taken by joblib one by one, whenever a worker is free.
            for trial in list(left):
                running[trial] = None
                yield delayed(_run_there)(path, trial, job)

        with parallel_config(
            backend="loky",
            inner_max_num_threads=1,
            initializer=set_up_worker,
            initargs=(os.getpid(),),
        ):
            outcomes: Generator[Record | Failure, None, None] = Parallel(
                n_jobs=workers,
                return_as="generator_unordered",
                batch_size=1,
                pre_dispatch="n_jobs",
            )(jobs())
            try:
                for outcome in outcomes:
                    if isinstance(outcome, Failure):
                        raise outcome.error()
                    finish(outcome)
                    trial = Trial.of_record(outcome)
                    del left[trial], running[trial]
            except TerminatedWorkerError:
                # joblib ends all workers when one is gone: the trials of the others are lost too.
                attempts.lost(running, "a worker process was ended from outside")
            except BrokenProcessPool as problem:
                raise TrialError(f"the worker processes cannot go on: {problem}") from problem
            finally:
                # Closing kills the workers when trials are left, and joblib then warns that it did.
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    outcomes.close()


def _run_there(path: Path, trial: Trial, job: Job) -> Record | Failure:
    try:
        return job.run(_load(path, job.fingerprint), trial)
    except Exception as problem:  # noqa: BLE001 - raised again where the result arrives
        return failure_of(trial, problem)


@lru_cache(maxsize=1)
def _load(path: Path, fingerprint: str) -> GraphStore:
    # The fingerprint is there for the cache as well: the file of the next comparison may have the
    # same name.
    return load_store(path, fingerprint)


@contextmanager
def _one_thread() -> Iterator[None]:
    # Sums are split differently on two threads: records would depend on the machine.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
