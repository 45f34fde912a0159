"""Running trials on Ray: on the nodes of a cluster, or on a private Ray of this machine.

One trial is one Ray task on one processor. The data set is put into Ray's object store once; each
worker process fetches it from there for its first trial and keeps it, so that nodes need no common
disk. The process that called :func:`run_on_ray` alone takes the records.

Tasks are used directly and not through the joblib backend that Ray brings along
(``ray.util.joblib``, as of Ray 2.60). That backend refuses ``return_as="generator_unordered"``, so
that no record would be on disk before the last trial is finished; and it is a pool of actors that
are not replaced, so that one killed worker ends everything with an ``ActorDiedError``. Tasks come
back one by one, can be submitted again one by one, and go to whatever node is there.

Ray retries tasks itself when asked to, but tells nobody and retries without end what ran out of
memory. So tasks are submitted without retries, and a trial whose worker or node was lost is
submitted again here, by the same rule as on one machine
(:class:`~graph_transplant.experiments.worker.Attempts`).
"""

from __future__ import annotations

import logging
import os
import re
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from graph_transplant import __version__
from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.progress import Reporter
from graph_transplant.experiments.protocol import Record, Trial
from graph_transplant.experiments.trial import Job
from graph_transplant.experiments.worker import (
    Attempts,
    Failure,
    TrialError,
    failure_of,
    load_store,
    use_one_thread,
)
from graph_transplant.graphs import GraphStore

_CONNECT = 10.0
"""Seconds that the head of a cluster has to accept a connection."""

_ANSWER = 120.0
"""Seconds that every node has to say which version it runs."""

_QUIET = {
    # Usage statistics would go to the makers of Ray.
    "RAY_USAGE_STATS_ENABLED": "0",
    # Off, Ray takes the loopback address and listens to nobody else, on every system.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # What a later version of Ray does by default; this one warns that it will.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Environment in which a private Ray starts. It counts when Ray is imported first of all here."""


def run_on_ray(
    path: Path,
    trials: Sequence[Trial],
    job: Job,
    *,
    workers: int,
    finish: Callable[[Record], None],
    reporter: Reporter,
    address: str | None = None,
) -> None:
    """Run trials on Ray and hand over each record as soon as it is there.

    Args:
        path: File of the data set, on this machine.
        trials: What to run.
        job: What they have in common.
        workers: Processors of the private Ray. A cluster uses those it has.
        finish: Called in this process with each record, in the order in which trials finish.
        reporter: Told about trials that run again.
        address: Address of a cluster (``"auto"``, ``"10.0.0.5:6379"``). By default a private Ray
            starts for this call and ends with it, unless this process is connected to one already.

    Raises:
        GraphTransplantError: If Ray is not installed, the cluster cannot be reached, or it runs
            another version of this package.
        TrialError: If a trial fails or is lost too often; the others are stopped.
    """
    ray = _import_ray()
    with _connected(ray, workers, address):
        _check_versions(ray)
        content = np.memmap(path, dtype=np.uint8, mode="r")
        # In a list, so that Ray does not fetch it for every task: the worker does, once.
        data = [ray.put(content)]
        task = ray.remote(num_cpus=1, max_retries=0)(_run_there)
        attempts = Attempts(reporter)
        waiting = list(reversed(trials))
        running: dict[Any, Trial] = {}
        try:
            while waiting or running:
                while waiting and len(running) < _most_tasks(ray):
                    trial = waiting.pop()
                    reference = task.remote(data, trial, job)
                    running[reference] = trial
                (reference,), _ = ray.wait(list(running))
                trial = running.pop(reference)
                try:
                    outcome: Record | Failure = ray.get(reference)
                except ray.exceptions.RayTaskError as problem:
                    # Not in the trial, which returns its failures: the task itself could not start.
                    raise failure_of(trial, problem).error() from problem
                except ray.exceptions.RayError as problem:
                    attempts.lost([trial], f"a worker on Ray was lost ({type(problem).__name__})")
                    waiting.append(trial)
                    continue
                if isinstance(outcome, Failure):
                    raise outcome.error()
                _check_record(outcome)
                finish(outcome)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def check_ray(address: str | None) -> None:
    """Check that Ray is installed and that somebody listens at the address.

    Args:
        address: Address of a cluster, or ``None`` for a private Ray.

    Raises:
        GraphTransplantError: If not.
    """
    _import_ray()
    if address is not None:
        _check_address(address)


def _import_ray() -> Any:
    with _environment(_QUIET):
        try:
            import ray
        except ImportError as problem:
            raise GraphTransplantError(
                "the engine ray needs the package ray: pip install 'graph-transplant[cluster]'"
            ) from problem
    return ray


@contextmanager
def _connected(ray: Any, workers: int, address: str | None) -> Iterator[None]:
    if ray.is_initialized():
        # Whoever connected this process to Ray also ends that.
        yield
        return
    if address is not None:
        _check_address(address)
    try:
        if address is None:
            with _environment(_QUIET):
                ray.init(
                    address="local",  # or Ray would join a cluster that it finds on this machine
                    num_cpus=workers,
                    num_gpus=0,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    _node_ip_address="127.0.0.1",
                    # Ray's own default is a low priority, which other programs of the machine would
                    # notice; this Ray is there for the trials alone.
                    _system_config={"worker_niceness": 0},
                )
        else:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as problem:
        where = "on this machine" if address is None else f"at {address}"
        raise GraphTransplantError(
            f"cannot use Ray {where}: {str(problem).strip().splitlines()[0]}"
        ) from problem
    try:
        yield
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    # Ray itself waits without end for a head that is not there.
    match = re.fullmatch(r"(?:ray://)?\[?([^/\]]+)\]?:(\d+)", address)
    if not match:
        return
    try:
        socket.create_connection((match[1], int(match[2])), timeout=_CONNECT).close()
    except (OSError, OverflowError) as problem:
        raise GraphTransplantError(
            f"there is no Ray cluster at {address}: {problem}; `ray start --head` prints the "
            "address of one"
        ) from problem


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables of the environment that have no value yet, and remove them again."""
    missing = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


def _most_tasks(ray: Any) -> int:
    # Asked again each time: nodes come and go. Twice the processors: no node waits for this process
    # to send the next trial.
    return max(1, 2 * int(ray.cluster_resources().get("CPU", 1)))


def _check_versions(ray: Any) -> None:
    """Refuse a cluster with a node whose records would not be ours."""

    # Defined here, it travels as code: a node that lacks the package can run it and say so.
    def version() -> str | None:
        try:
            from graph_transplant import __version__ as found
        except ImportError:
            return None
        return found

    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    asked = {}
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU", 0) >= 1:
            here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            job = ray.remote(num_cpus=0, scheduling_strategy=here)(version)
            asked[job.remote()] = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
    if not asked:
        raise GraphTransplantError("the Ray cluster has no node with a processor to run trials on")
    silent = {}
    for reference, node in asked.items():
        try:
            found = ray.get(reference, timeout=_ANSWER)
        except ray.exceptions.RayError as problem:
            # A node that was just lost is listed for a while. One that is merely slow has its
            # records checked like one that joins later.
            silent[node] = type(problem).__name__
            continue
        if found != __version__:
            has = "lacks graph-transplant" if found is None else f"has graph-transplant {found}"
            raise GraphTransplantError(
                f"the Ray node {node} {has}; all nodes need {__version__}, which runs here"
            )
    if len(silent) == len(asked):
        reasons = ", ".join(f"{node} ({reason})" for node, reason in silent.items())
        raise GraphTransplantError(f"no node of the Ray cluster answers: {reasons}")


def _check_record(record: Record) -> None:
    # A node that joined later was not asked for its version.
    found = record["settings"]["version"]
    if found != __version__:
        raise TrialError(
            f"trial {Trial.of_record(record)} ran with graph-transplant {found} on a node of the "
            f"cluster; all nodes need {__version__}, which runs here"
        )


def _run_there(data: list[Any], trial: Trial, job: Job) -> Record | Failure:
    try:
        use_one_thread()
        return job.run(_load(job.fingerprint, data[0]), trial)
    except Exception as problem:  # noqa: BLE001 - raised again where the result arrives
        return failure_of(trial, problem)


@lru_cache(maxsize=1)
def _load(fingerprint: str, data: Any) -> GraphStore:
    # Through a file of this process, mapped and at once without a name: it is gone with the process
    # however that ends, and on a disk it takes no memory that the system could not have back.
    import ray

    with tempfile.TemporaryDirectory(prefix="graph-transplant-") as folder:
        path = Path(folder) / "graphs.safetensors"
        ray.get(data).tofile(path)
        return load_store(path, fingerprint)
