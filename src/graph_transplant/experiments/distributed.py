"""Running each trial on all processes that ``torchrun`` started.

The other engines run many trials at once; this one is for trials that take too long in one process.
Every process trains on its share of each batch, and gradients are averaged (see
:func:`~graph_transplant.fit`). All processes run the same trials; the first one has the records,
says which trials those are, and alone hands over results.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import torch
from torch import distributed

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.progress import Reporter
from graph_transplant.experiments.protocol import Record, Trial
from graph_transplant.experiments.splits import by_scaffold
from graph_transplant.experiments.trial import Job
from graph_transplant.experiments.worker import failure_of
from graph_transplant.graphs import GraphStore
from graph_transplant.training import EndedElsewhereError, EpochLog

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

# How long processes wait for one another: the first may have data to load.
_PATIENCE = timedelta(hours=2)


class GroupError(RuntimeError):
    """The end of this process's part, because another process of its group has ended.

    That process says why.
    """


def group_size() -> int:
    """Number of processes that ``torchrun`` has started and :func:`join_group` has joined.

    Raises:
        GraphTransplantError: If there are none.
    """
    if not distributed.is_initialized():
        raise GraphTransplantError(
            "the engine torchrun needs the processes that torchrun starts: run "
            "`torchrun --nproc-per-node 2 -m graph_transplant ...`"
        )
    return distributed.get_world_size()


@contextmanager
def join_group() -> Iterator[int]:
    """Join the processes that ``torchrun`` has started, for as long as the context lasts.

    Each has one torch thread. When one leaves by an exception, the others get a
    :class:`GroupError` as soon as they wait for it.

    Yields:
        The number of this process; 0 leads.

    Raises:
        GraphTransplantError: If this process was not started by ``torchrun``.
        GroupError: If another process has ended.
    """
    missing = [name for name in _VARIABLES if not os.environ.get(name)]
    if missing:
        raise GraphTransplantError(
            f"this process has no group to join (not set: {', '.join(missing)}): start it with "
            "`torchrun --nproc-per-node 2 ...`"
        )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _telling_of_others():
            distributed.init_process_group("gloo", timeout=_PATIENCE)
            yield distributed.get_rank()
            distributed.barrier()
    finally:
        torch.set_num_threads(threads)
        if distributed.is_initialized():
            distributed.destroy_process_group()


@contextmanager
def _telling_of_others() -> Iterator[None]:
    """Tell an exchange that failed, because another process has ended, from errors made here."""
    try:
        yield
    except EndedElsewhereError as problem:
        raise GroupError(str(problem)) from problem
    except RuntimeError as problem:
        if not (isinstance(problem, distributed.DistError) or "gloo" in str(problem)):
            raise
        reason = str(problem).partition("\n")[0]
        raise GroupError(f"another process of the group has ended ({reason})") from problem


Work = tuple[Sequence[Trial], Job]


def _sent(work: Work | None) -> Work | None:
    """What the first process gives here, in every process."""
    box = [work]
    distributed.broadcast_object_list(box)
    return box[0]


def run_distributed(
    store: GraphStore,
    trials: Sequence[Trial],
    job: Job,
    *,
    finish: Callable[[Record], None],
    reporter: Reporter,
) -> None:
    """Run trials one after another, each on all processes of the group; for the first process.

    The others must be in :func:`_serve`.

    Args:
        store: The data set.
        trials: What to run.
        job: What they have in common; its ``shards`` are the processes.
        finish: Called with each record.
        reporter: Told about trials and epochs.

    Raises:
        GraphTransplantError: If there is no group, or another number of processes in it.
        TrialError: If a trial fails in this process.
        GroupError: If another process has ended.
    """
    size = group_size()
    if job.settings.shards != size:
        raise GraphTransplantError(
            f"`shards` must be {size}, the number of processes, got {job.settings.shards}"
        )

    def tell(log: EpochLog) -> None:
        reporter.epoch_finished(log.epoch, job.settings.epochs, log.validation_score)

    _sent((trials, job))
    job = _with_common_disk(job)
    for trial in trials:
        reporter.trial_started(trial)
        finish(_run(store, trial, job, (tell,)))


def lead_or_serve(lead: Callable[[], int], load: Callable[[], GraphStore]) -> int:
    """Let the first process lead, and all the others run the trials that it runs.

    Ctrl-C reaches every process of a terminal; all but the first ignore it, which ends the others.

    Args:
        lead: What the first process does; see :func:`run_distributed`.
        load: Reads the data set, in the other processes. It is called when there is work, and so
            not before the first process has read it: what that one puts into a cache is there.

    Returns:
        What ``lead`` returns; 0 in the other processes.

    Raises:
        GroupError: If another process has ended.
        TrialError: If a trial fails in this process.

    Example:
        Every process runs these lines, started by ``torchrun``::

            def lead() -> int:
                compare(gt.load("motifs"), out="comparison", engine="torchrun")
                return 0

            with join_group():
                lead_or_serve(lead, lambda: gt.load("motifs"))
    """
    if distributed.get_rank():
        _serve(load)
        return 0
    status = lead()
    _sent(None)
    return status


def _serve(load: Callable[[], GraphStore]) -> None:
    store: GraphStore | None = None
    with _ctrl_c_ignored():
        while (work := _sent(None)) is not None:
            trials, job = work
            if store is None:
                store = load()
                if job.settings.split == "scaffold":
                    store = by_scaffold(store)
            found = store.fingerprint()
            if found != job.fingerprint:
                raise GraphTransplantError(
                    f"process {distributed.get_rank()} has read other data than the first one: its "
                    f"fingerprint is {found[:12]}…, that of the first {job.fingerprint[:12]}…"
                )
            job = _with_common_disk(job)
            for trial in trials:
                _run(store, trial, job)


def _with_common_disk(job: Job) -> Job:
    """The same job, without checkpoints unless every process sees their folder."""
    seen = torch.tensor([int(job.checkpoints is not None and job.checkpoints.is_dir())])
    distributed.all_reduce(seen, distributed.ReduceOp.MIN)
    return job if bool(seen) else replace(job, checkpoints=None)


def _run(
    store: GraphStore,
    trial: Trial,
    job: Job,
    callbacks: Sequence[Callable[[EpochLog], None]] = (),
) -> Record:
    try:
        with _telling_of_others():
            return job.run(store, trial, callbacks)
    except GroupError:
        raise
    except Exception as problem:
        raise failure_of(trial, problem).error() from problem


@contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals, and only it may say what becomes of them
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
