"""What a worker process sets up before its first trial, and what comes back from it.

This module imports no torch, so that a worker ignores Ctrl-C from its first moment: the process
that started it decides when it ends.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import threading
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.experiments.protocol import Trial

if TYPE_CHECKING:
    from graph_transplant.experiments.progress import Reporter
    from graph_transplant.graphs import GraphStore

RETRIES = 2
"""How often a trial runs again when the worker that ran it was lost."""


class TrialError(RuntimeError):
    """A trial that failed; the message names it, ``details`` is the traceback of the cause.

    Args:
        message: What failed, in one line.
        details: The traceback, or nothing where it would not help.

    Example:
        >>> TrialError("trial vanilla, gcs with 3 layers, repeat 0, fold 1 failed: no luck").details
        ''
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


@dataclass(frozen=True)
class Failure:
    """What a worker returns instead of a record when a trial fails.

    It is returned, not raised, so that it arrives with its trial's name and its traceback whatever
    the exception is, picklable or not.

    Args:
        trial: The trial that failed.
        summary: What happened, in one line that names the trial.
        details: The traceback, or nothing where it would not help.
    """

    trial: Trial
    summary: str
    details: str

    def error(self) -> TrialError:
        """Give the error to raise."""
        return TrialError(self.summary, self.details)


def failure_of(trial: Trial, problem: Exception) -> Failure:
    """Word what a trial failed with.

    Args:
        trial: The trial.
        problem: What it raised.

    Example:
        >>> trial = Trial("vanilla", "gcs", 3, repeat=0, fold=1)
        >>> failure_of(trial, ZeroDivisionError("no graphs")).summary
        'trial vanilla, gcs with 3 layers, repeat 0, fold 1 failed: ZeroDivisionError: no graphs'
    """
    text = str(problem).strip()
    details = "".join(traceback.format_exception(problem))
    if _lacks_memory(problem):
        text = "memory ran out; fewer workers or smaller batches need less"
    elif isinstance(problem, GraphTransplantError) and text:
        details = ""  # such a message says all there is to know
    else:
        text = f"{type(problem).__name__}: {text}" if text else type(problem).__name__
    return Failure(trial, f"trial {trial} failed: {text.splitlines()[0]}", details)


def _lacks_memory(problem: Exception) -> bool:
    # torch raises a plain RuntimeError when the C library has no memory left for it.
    return isinstance(problem, MemoryError) or (
        isinstance(problem, RuntimeError)
        and (
            type(problem).__name__ == "OutOfMemoryError"
            or "can't allocate memory" in str(problem)
            or "not enough memory" in str(problem)
        )
    )


class Attempts:
    """Counts how often each trial was lost with its worker, and says when it was too often.

    A worker that is ended from outside may have been the wrong process at the wrong moment: its
    trial deserves another try. One that is lost with every worker would keep a comparison busy for
    ever.

    Args:
        reporter: Told which trials run again.

    Example:
        >>> from graph_transplant.experiments.progress import Silent
        >>> attempts = Attempts(Silent())
        >>> trial = Trial("vanilla", "gcs", 3, repeat=0, fold=1)
        >>> attempts.lost([trial], "a worker was ended from outside")
        >>> attempts.lost([trial], "a worker was ended from outside")
        >>> attempts.lost([trial], "a worker was ended from outside")
        Traceback (most recent call last):
        graph_transplant.experiments.worker.TrialError: a worker was ended from outside, at \
attempt 3 of 3 to run trial vanilla, gcs with 3 layers, repeat 0, fold 1; most often memory ran \
out: fewer workers or smaller batches need less
    """

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._lost: dict[Trial, int] = {}

    def lost(self, trials: Iterable[Trial], cause: str) -> None:
        """Take note of trials that were running when their worker was lost.

        Args:
            trials: The trials.
            cause: What happened to the worker, for the messages.

        Raises:
            TrialError: If one of them was lost more than :data:`RETRIES` times.
        """
        again = list(trials)
        for trial in again:
            self._lost[trial] = self._lost.get(trial, 0) + 1
            if self._lost[trial] > RETRIES:
                raise TrialError(
                    f"{cause}, at attempt {self._lost[trial]} of {RETRIES + 1} to run trial "
                    f"{trial}; most often memory ran out: fewer workers or smaller batches need "
                    "less"
                )
        names = "; ".join(str(trial) for trial in again)
        self._reporter.note(f"{cause}; running again: {names}")


def load_store(path: Path, fingerprint: str) -> GraphStore:
    """Read a data set from its file and make sure that it is the one that is meant.

    Args:
        path: The file.
        fingerprint: Fingerprint of the data set.

    Raises:
        DataError: If the file holds something else.
    """
    from graph_transplant.graphs import GraphStore

    store = GraphStore.load(path)
    found = store.fingerprint()
    if found != fingerprint:
        raise DataError(
            f"{path} was changed while the comparison ran: the data's fingerprint was "
            f"{fingerprint[:12]}… and is {found[:12]}…"
        )
    return store


def set_up_worker(parent: int) -> None:
    """Make this process a worker of another one.

    Ctrl-C reaches every process of a terminal; here it is ignored, because the parent ends its
    workers itself. When the parent is gone (killed, say), the worker ends too instead of computing
    a result that nobody takes.

    Args:
        parent: Process number of the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    use_one_thread()


def use_one_thread() -> None:
    """Let this process, which is our own, compute on one thread and keep the memory it frees.

    Sums are split differently on two threads: records would depend on the machine.
    """
    keep_freed_memory()
    import torch

    torch.set_num_threads(1)


def keep_freed_memory() -> bool:
    """Let the C library keep freed memory for the next step instead of giving it back.

    A training step frees all it allocated, and the next one allocates the same again; by default
    glibc returns the memory to the system in between and the system clears it anew. This is a
    setting of the whole process, for processes that are our own.

    Returns:
        Whether the C library took the setting.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
    library = ctypes.CDLL(None)
    taken = (library.mallopt(trim_threshold, 1 << 30), library.mallopt(mmap_threshold, 1 << 25))
    return all(taken)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
