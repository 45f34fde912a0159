"""Engines that run trials: in this process, in worker processes or on Ray.

Trials are independent. Only the process that called :func:`run_trials` receives their records.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.backend.reduction import dumps
from joblib.externals.loky.process_executor import BrokenProcessPool, TerminatedWorkerError

from graph_transplant import __version__
from graph_transplant.comparison.progress import Reporter
from graph_transplant.comparison.run_trial import (
    Finished,
    TrialContext,
    remove_checkpoint,
    run_trial,
)
from graph_transplant.config.options import Engine
from graph_transplant.data import GraphStore
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.methods import BUILT_IN as BUILT_IN_METHODS
from graph_transplant.methods import METHODS
from graph_transplant.metrics import BUILT_IN, METRICS
from graph_transplant.results.record import Trial
from graph_transplant.training.state import EpochLog
from graph_transplant.utils.processes import set_up_worker

__all__ = ["ENGINES", "Execution", "TrialError", "run_trials"]

CHECKPOINTS = ".checkpoints"
"""Subdirectory of a comparison for the checkpoints of running trials."""

GRAPHS = ".graphs"
"""Subdirectory of a comparison for the file that workers read the data from."""

GRAPHS_FILE = "graphs.safetensors"

RETRIES = 2
"""Maximum number of retries of a trial whose worker was lost."""


class TrialError(RuntimeError):
    """A failed trial; ``details`` is the traceback, or empty if the message suffices."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


@dataclass(frozen=True)
class Execution:
    """Trials to run, and where their records go.

    ``scratch`` holds checkpoints and the file that workers read the data from. ``workers`` is
    ignored on an existing Ray cluster, which uses all its processors.
    """

    store: GraphStore
    trials: Sequence[Trial]
    job: TrialContext
    finish: Callable[[Finished], None] = lambda finished: None
    reporter: Reporter = Reporter()  # noqa: RUF009 - it has no state
    workers: int = 1
    scratch: Path = Path()
    address: str | None = None
    callbacks: Sequence[Callable[[EpochLog], None]] = ()  # for trials in this process


def run_trials(run: Execution, engine: Engine = "local") -> None:
    """Run trials and pass each result to ``run.finish`` as soon as it is available.

    Every process uses one torch thread, so that records do not depend on the machine. A trial whose
    worker was killed is retried from its checkpoint, at most twice; when a trial fails, the others
    are stopped.
    """
    check_engine(engine, run.address)
    folder = (run.scratch / CHECKPOINTS).absolute()
    folder.mkdir(parents=True, exist_ok=True)

    def finish(finished: Finished) -> None:
        run.finish(finished)
        remove_checkpoint(folder, finished.trial)

    metrics = {name: metric for name, metric in METRICS.items() if name not in BUILT_IN}
    methods = {name: METHODS[name] for name in METHODS.keys() - BUILT_IN_METHODS}
    job = replace(
        run.job, checkpoints=folder, rows=run.store.rows, metrics=metrics, methods=methods
    )
    if engine == "ray" or run.workers > 1:
        _check_sendable(job)
    try:
        ENGINES[engine](replace(run, job=job, finish=finish))
    finally:
        with suppress(OSError):  # not empty: the next run resumes from it
            folder.rmdir()


def check_engine(engine: Engine, address: str | None) -> None:
    """Raise if an engine cannot be reached, before anything is written."""
    if engine == "ray":
        _check_ray(address)


def _check_sendable(job: TrialContext) -> None:
    """Raise if something of the user's own cannot be sent to other processes."""
    every = {**job.own.methods, **job.own.models, **job.methods, **job.metrics}
    for name, own in every.items():
        try:
            dumps(own)
        except Exception as problem:  # any, from the user's own objects
            raise GraphTransplantError(
                f"{name!r} cannot be sent to other processes ({problem}); use one worker, or "
                "create within the function what cannot be pickled"
            ) from problem


def failure_of(trial: Trial, problem: Exception) -> TrialError:
    """Convert an exception to an error that describes the failed trial in one line."""
    text = str(problem).strip()
    details = "".join(traceback.format_exception(problem))
    # torch raises a plain RuntimeError when the C library has no memory left.
    if isinstance(problem, MemoryError | torch.OutOfMemoryError) or (
        isinstance(problem, RuntimeError) and re.search("(can't allocate|not enough) memory", text)
    ):
        text = "out of memory; use fewer workers or smaller batches"
    elif isinstance(problem, GraphTransplantError) and text:
        details = ""  # the message suffices
    else:
        text = f"{type(problem).__name__}: {text}" if text else type(problem).__name__
    return TrialError(f"trial {trial} failed: {text.splitlines()[0]}", details)


def run_again(lost: Counter[Trial], trials: Iterable[Trial], cause: str, run: Execution) -> None:
    """Count and report trials lost with their worker; raise if one has no retries left."""
    again = list(trials)
    lost.update(again)
    for trial in again:
        if lost[trial] > RETRIES:
            raise TrialError(
                f"{cause}, on attempt {lost[trial]} of {RETRIES + 1} to run trial {trial}; "
                "probably out of memory: use fewer workers or smaller batches"
            )
    run.reporter.note(f"{cause}; running again: {'; '.join(map(str, again))}")


# -------------------------------------------------------------------- workers


@contextmanager
def store_file(store: GraphStore, scratch: Path) -> Iterator[Path]:
    """Yield a file with the data set: the one it was read from, or a temporary one."""
    if store.path is not None and store.path.exists():
        yield store.path
        return
    # A fixed name, so that the next comparison removes what a killed one left.
    folder = scratch / GRAPHS
    path = folder / GRAPHS_FILE
    try:
        try:
            _remove_graphs(folder)
            store.save(path)
        except OSError as problem:
            raise GraphTransplantError(
                f"cannot write {path}, which the workers read the data from: {problem.strerror}; "
                "the records are intact"
            ) from problem
        yield path
    finally:
        with suppress(OSError):  # Windows cannot remove memory-mapped files
            _remove_graphs(folder)


def _remove_graphs(folder: Path) -> None:
    """Remove the file for workers, also that of a killed comparison, and nothing else."""
    for path in folder.glob(f"{GRAPHS_FILE}*"):
        if path.is_dir() and not path.is_symlink():  # a file that was being written
            shutil.rmtree(path)
        else:
            path.unlink()
    with suppress(OSError):  # not there, or not empty: the rest is not ours
        folder.rmdir()


@lru_cache(maxsize=1)
def worker_store(data: Path | tuple[Any], fingerprint: str) -> GraphStore:
    """Load the data set, once per worker, from its file or from Ray; raise if it has changed."""
    if isinstance(data, Path):
        store = GraphStore.load(data)
    else:
        import ray

        # Removed while memory-mapped: the space is freed when the process ends, however it ends.
        with tempfile.TemporaryDirectory(prefix="graph-transplant-") as folder:
            path = Path(folder) / "graphs.safetensors"
            ray.get(data[0]).tofile(path)
            store = GraphStore.load(path)
    found = store.fingerprint()
    if found != fingerprint:
        raise DataError(
            f"{data} was changed while the comparison ran: the data's fingerprint was "
            f"{fingerprint[:12]}… and is {found[:12]}…"
        )
    return store


def run_in_worker(
    data: Path | tuple[Any], trial: Trial, job: TrialContext, version: str
) -> Finished | TrialError:
    """Run a trial in a worker; return failures, as some exceptions cannot be pickled."""
    try:
        if version != __version__:
            raise GraphTransplantError(
                f"the worker on {socket.gethostname()} has graph-transplant {__version__}, but the "
                f"main process has {version}; install the same version"
            )
        torch.set_num_threads(1)
        for name in METRICS.keys() - BUILT_IN:  # of an earlier comparison
            del METRICS[name]
        METRICS.update(job.metrics)
        for name in METHODS.keys() - BUILT_IN_METHODS:
            del METHODS[name]
        METHODS.update(job.methods)
        return run_trial(worker_store(data, job.fingerprint), trial, job)
    except Exception as problem:  # noqa: BLE001 - raised again where the result arrives
        return failure_of(trial, problem)


def _run_local(run: Execution) -> None:
    if run.workers == 1:
        _remove_graphs(run.scratch / GRAPHS)  # left by a killed comparison
        _run_here(run)
        return
    lost: Counter[Trial] = Counter()
    left = dict.fromkeys(run.trials)
    with store_file(run.store, run.scratch) as path:
        while left:
            running: dict[Trial, None] = {}
            try:
                _run_in_workers(path, left, running, run)
            except TerminatedWorkerError:
                # joblib ends all workers when one dies: all running trials are lost.
                run_again(lost, running, "a worker process died", run)
            except BrokenProcessPool as problem:
                raise TrialError(f"the worker processes cannot continue: {problem}") from problem


def _run_in_workers(
    path: Path, left: dict[Trial, None], running: dict[Trial, None], run: Execution
) -> None:
    """Run the trials in ``left`` and remove each when it is finished."""

    def jobs() -> Iterator[Any]:
        # joblib takes the next one when a worker is free.
        for trial in list(left):
            running[trial] = None
            yield delayed(run_in_worker)(path, trial, run.job, __version__)

    with parallel_config(
        backend="loky", inner_max_num_threads=1, initializer=set_up_worker, initargs=(os.getpid(),)
    ):
        outcomes: Generator[Finished | TrialError, None, None] = Parallel(
            n_jobs=run.workers,
            return_as="generator_unordered",
            batch_size=1,
            pre_dispatch="n_jobs",
        )(jobs())
        try:
            for outcome in outcomes:
                if isinstance(outcome, TrialError):
                    raise outcome
                run.finish(outcome)
                del left[outcome.trial], running[outcome.trial]
        finally:
            # Closing kills the workers if trials are left, about which joblib warns.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcomes.close()


def _run_here(run: Execution) -> None:
    """Run trials one after another."""
    job = run.job

    def tell(log: EpochLog) -> None:
        run.reporter.epoch_finished(log.epoch, job.settings.epochs, log.validation_score)

    with _one_thread():
        for trial in run.trials:
            run.reporter.trial_started(trial)
            try:
                finished = run_trial(run.store, trial, job, (tell, *run.callbacks))
            except Exception as problem:
                raise failure_of(trial, problem) from problem
            run.finish(finished)


@contextmanager
def _one_thread() -> Iterator[None]:
    # The number of threads affects the order of summation, and with it the records.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# -------------------------------------------------------------------- Ray

_RAY_ENVIRONMENT = {
    # Send no usage statistics.
    "RAY_USAGE_STATS_ENABLED": "0",
    # When off, a private Ray listens only on the loopback address on every system.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # The default of later versions; this version warns if it is not set.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def _run_on_ray(run: Execution) -> None:
    """Run each trial as one Ray task on one processor.

    Ray's joblib backend (as of 2.60) returns nothing before the last trial is finished, and fails
    if one worker is killed. Ray's own retries are silent, and endless when memory runs out, so
    lost trials are resubmitted here.
    """
    ray = _import_ray()
    with store_file(run.store, run.scratch) as path, _connected(ray, run.workers, run.address):
        if not ray.cluster_resources().get("CPU"):
            raise GraphTransplantError("the Ray cluster has no processor to run trials on")
        # In a tuple, so that Ray does not fetch it for every task; each worker fetches it once.
        data = (ray.put(np.memmap(path, dtype=np.uint8, mode="r")),)
        task = ray.remote(num_cpus=1, max_retries=0)(run_in_worker)
        lost: Counter[Trial] = Counter()
        waiting = list(reversed(run.trials))
        running: dict[Any, Trial] = {}
        try:
            while waiting or running:
                # Two per processor, so that none is idle. The size of the cluster may change.
                most = max(1, 2 * int(ray.cluster_resources().get("CPU", 1)))
                while waiting and len(running) < most:
                    trial = waiting.pop()
                    running[task.remote(data, trial, run.job, __version__)] = trial
                (reference,), _ = ray.wait(list(running))
                trial = running.pop(reference)
                try:
                    outcome: Finished | TrialError = ray.get(reference)
                except ray.exceptions.RayTaskError as problem:
                    # Trials return their failures, so the worker could not even load its task.
                    reason = str(problem.cause).partition("\n")[0]
                    raise TrialError(
                        f"trial {trial} cannot start on Ray: {reason}; every node needs "
                        f"graph-transplant {__version__}",
                        str(problem),
                    ) from problem
                except ray.exceptions.RayError as problem:
                    cause = f"a worker on Ray was lost ({type(problem).__name__})"
                    run_again(lost, [trial], cause, run)
                    waiting.append(trial)
                    continue
                if isinstance(outcome, TrialError):
                    raise outcome
                run.finish(outcome)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _check_ray(address: str | None) -> None:
    _import_ray()
    # Ray itself waits forever for a missing head node.
    match = re.fullmatch(r"(?:ray://)?\[?([^/\]]+)\]?:(\d+)", address or "")
    if match:
        try:
            socket.create_connection((match[1], int(match[2])), timeout=10).close()
        except (OSError, OverflowError) as problem:
            raise GraphTransplantError(
                f"there is no Ray cluster at {address}: {problem}; `ray start --head` prints the "
                "address of one"
            ) from problem


def _import_ray() -> Any:
    for name, value in _RAY_ENVIRONMENT.items():
        os.environ.setdefault(name, value)  # read when Ray is imported
    try:
        import ray
    except ImportError as problem:
        raise GraphTransplantError(
            "the engine ray needs the package ray: pip install 'graph-transplant[cluster]'"
        ) from problem
    return ray


@contextmanager
def _connected(ray: Any, workers: int, address: str | None) -> Iterator[None]:
    """Connect to a cluster or start a private Ray, unless this process is connected already."""
    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"address": address}
    if address is None:
        options = {
            "address": "local",  # otherwise Ray joins any cluster that it finds on this machine
            "num_cpus": workers,
            "num_gpus": 0,
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
            "_system_config": {"worker_niceness": 0},  # Ray's default is a low priority
        }
    try:
        ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as problem:  # Ray also raises plain exceptions
        where = "on this machine" if address is None else f"at {address}"
        raise GraphTransplantError(
            f"cannot use Ray {where}: {str(problem).strip().splitlines()[0]}"
        ) from problem
    try:
        yield
    finally:
        ray.shutdown()


ENGINES: dict[Engine, Callable[[Execution], None]] = {
    "local": _run_local,
    "ray": _run_on_ray,
}
"""Engines by name."""
