"""Running each trial on all processes that ``torchrun`` started.

The other engines run many trials at once; this one is for trials that take too long in one process.
Every batch is cut into pieces (``parts`` of :func:`~graph_transplant.fit`), and each process trains
on its share of them. The first process leads: it has the records, posts what is to be run, and
alone hands over results. The others serve until it ends.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.progress import Reporter
from graph_transplant.experiments.protocol import Record, Settings, Trial
from graph_transplant.experiments.splits import by_scaffold
from graph_transplant.experiments.trial import run_trial
from graph_transplant.experiments.worker import TrialError, failure_of
from graph_transplant.graphs import GraphStore
from graph_transplant.training import EndedElsewhereError, EpochLog

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

# Seconds between two looks at the board. (The store has a call that waits, and prints a warning
# whenever it has waited in vain.)
_GLANCE = 0.1

# How long processes wait for one another to join; they start together, and import what they need.
_PATIENCE = timedelta(minutes=5)


class GroupError(RuntimeError):
    """The end of this process's part, because another process of its group has failed or is gone.

    The message tells what happened there. Where one process speaks for all of them, the others have
    nothing to add to it.

    Example:
        >>> issubclass(GroupError, RuntimeError)
        True
    """


class Group:
    """The processes that train together, seen from one of them.

    Beside the exchange of gradients they have a board, a small store of texts that ``torchrun``
    keeps for them: there the first process posts work, and whoever fails first says why.

    Args:
        rank: Number of this process; 0 leads.
        size: Number of processes.
        board: Where all of them read and write.

    Example:
        >>> group = Group(0, 2, distributed.HashStore())
        >>> group.post({"number": 7})
        >>> next(group.messages())
        {'number': 7}
    """

    def __init__(self, rank: int, size: int, board: Store) -> None:
        self.rank = rank
        self.size = size
        self._board = board
        self._posted = 0

    def post(self, message: Record) -> None:
        """Post a message that every other process will read.

        Args:
            message: What JSON can hold.
        """
        self._board.set(f"message-{self._posted}", json.dumps(message))
        self._posted += 1

    def messages(self) -> Iterator[Any]:
        """Read messages as they are posted, and wait for the next one in between.

        Raises:
            GroupError: If a process has failed meanwhile.
        """
        for number in itertools.count():
            key = f"message-{number}"
            while not self._has(key):
                failure = self.failure()
                if failure is not None:
                    raise failure
                time.sleep(_GLANCE)
            yield json.loads(self._board.get(key))

    def _has(self, key: str) -> bool:
        try:
            return self._board.check([key])
        except distributed.DistError as problem:
            raise GroupError("the first process of the group is gone") from problem

    def fail(self, summary: str, details: str = "") -> None:
        """Say that this process has failed and why, unless another one was first.

        Args:
            summary: What happened, in one line.
            details: The traceback, or nothing where it would not help.
        """
        # When the board is gone, so are those who would read it.
        self._reach(lambda: self._board.compare_set("failure", "", json.dumps((summary, details))))

    def failure(self) -> GroupError | None:
        """Return what the first process to fail said, or nothing when none has failed."""
        text = self._reach(
            lambda: self._board.get("failure") if self._board.check(["failure"]) else None
        )
        if text is None:
            return None
        summary, details = json.loads(text)
        problem = GroupError(summary)
        if details:
            problem.add_note(details)
        return problem

    @staticmethod
    def _reach(ask: Callable[[], Any]) -> Any:
        """Ask the board something; nothing comes back when it is gone."""
        try:
            return ask()
        except distributed.DistError:
            return None


_current: Group | None = None
_joined = itertools.count()
_boards: dict[tuple[int, int, str, str], Store] = {}


def _board_of(rank: int, size: int) -> Store:
    """Return the store that ``torchrun`` or the first process keeps, connected to only once.

    Where the first process keeps it, a new one for every group would be a race: another process
    could still reach the one that is about to be closed, and the two would wait for each other.
    Besides, every connection looks up a name, which takes seconds where no name server answers.
    """
    where = (rank, size, os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
    if where not in _boards:
        _boards[where], *_ = next(rendezvous("env://", timeout=_PATIENCE))
    return _boards[where]


def current_group() -> Group:
    """Return the group this process has joined.

    Raises:
        GraphTransplantError: If there is none.

    Example:
        >>> current_group()
        Traceback (most recent call last):
        graph_transplant.errors.GraphTransplantError: the engine torchrun needs the processes that \
torchrun starts: run `torchrun --nproc-per-node 2 -m graph_transplant ...`
    """
    if _current is None:
        raise GraphTransplantError(
            "the engine torchrun needs the processes that torchrun starts: run "
            "`torchrun --nproc-per-node 2 -m graph_transplant ...`"
        )
    return _current


@contextmanager
def join_group() -> Iterator[Group]:
    """Join the processes that ``torchrun`` has started, for as long as the context lasts.

    They exchange gradients by gloo between processors and by nccl between graphics cards. Each has
    one torch thread. All leave together: a process that leaves by an exception ends the others,
    which get a :class:`GroupError` with its message as soon as they wait for it.

    Yields:
        The group.

    Raises:
        GraphTransplantError: If this process was not started by ``torchrun``.
        GroupError: If another process has failed, or has not come within five minutes.

    Example:
        >>> with join_group():
        ...     pass
        Traceback (most recent call last):
        graph_transplant.errors.GraphTransplantError: this process has no group to join (RANK, \
WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not set): start it with \
`torchrun --nproc-per-node 2 ...`
    """
    global _current
    missing = [name for name in _VARIABLES if not os.environ.get(name)]
    if missing:
        named = " and ".join([", ".join(missing[:-1])] * (len(missing) > 1) + missing[-1:])
        raise GraphTransplantError(
            f"this process has no group to join ({named} "
            f"{'is' if len(missing) == 1 else 'are'} not set): start it with "
            "`torchrun --nproc-per-node 2 ...`"
        )
    if distributed.is_initialized():
        raise GraphTransplantError("this process has joined a group already")
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        backend = "cpu:gloo,cuda:nccl"
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    try:
        # What an earlier group of the same processes has left on the board is not for this one.
        board = PrefixStore(f"graph-transplant-{next(_joined)}", _board_of(rank, size))
        board.set(f"here-{rank}", "")
        board.wait([f"here-{each}" for each in range(size)], _PATIENCE)
        meeting = PrefixStore("meeting", board)
        distributed.init_process_group(backend, store=meeting, rank=rank, world_size=size)
    except distributed.DistError as problem:
        raise GroupError(
            f"process {rank} has not met the {size - 1} others of its group at "
            f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']} "
            f"({str(problem).partition(chr(10))[0]})"
        ) from problem
    group = _current = Group(rank, size, board)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield group
        if rank == 0:
            group.post({"end": True})
        _meet(group)
    except BaseException as problem:
        if not isinstance(problem, GroupError):
            group.fail(f"process {rank} of the group has ended: {_named(problem)}")
        # The others may wait for this process in an exchange: losing the connection wakes them. To
        # destroy the group is enough with gloo; with nccl that may itself wait for the others.
        _cut()
        raise
    finally:
        torch.set_num_threads(threads)
        _current = None
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _meet(group: Group) -> None:
    """Wait for all processes: none may take the board away that another one still reads."""
    try:
        distributed.all_reduce(torch.zeros(1))
    except RuntimeError as problem:
        raise group.failure() or _gone(problem) from problem


def _named(problem: BaseException) -> str:
    if isinstance(problem, KeyboardInterrupt):
        return "interrupted"
    text = str(problem).strip().partition("\n")[0]
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _cut() -> None:
    world = distributed.group.WORLD if distributed.is_initialized() else None
    if world is not None:
        world.abort()


def _gone(problem: Exception) -> GroupError:
    return GroupError(
        "another process of the group is gone: it was ended from outside, most often because "
        f"memory ran out ({str(problem).partition(chr(10))[0]})"
    )


def run_distributed(
    store: GraphStore,
    trials: Sequence[Trial],
    settings: Settings,
    *,
    fingerprint: str,
    source: str,
    finish: Callable[[Record], None],
    reporter: Reporter,
) -> None:
    """Run trials one after another, each on all processes of the group; for the first process.

    The others must be in :func:`serve`.

    Args:
        store: The data set.
        trials: What to run.
        settings: The protocol; ``parts`` is a multiple of the number of processes.
        fingerprint: Fingerprint of ``store``.
        source: How the data set was named by the user.
        finish: Called with each record.
        reporter: Told about trials and epochs.

    Raises:
        GraphTransplantError: If there is no group, or ``parts`` does not fit it.
        TrialError: If a trial fails in any of the processes.

    Example:
        Every process runs these lines, started by ``torchrun``::

            with join_group() as group:
                if group.rank == 0:
                    settings = Settings(parts=group.size)
                    run_distributed(store, trials, settings, fingerprint=store.fingerprint(),
                                    source="motifs", finish=print, reporter=Silent())
                else:
                    serve(lambda: gt.load("motifs"))
    """
    group = current_group()
    if settings.parts % group.size:
        raise GraphTransplantError(
            f"{group.size} processes train together: `parts` must be {group.size} or a multiple "
            f"of it, got {settings.parts}"
        )
    group.post(
        {
            "trials": [asdict(trial) for trial in trials],
            "settings": asdict(settings),
            "fingerprint": fingerprint,
            "source": source,
        }
    )

    def tell(log: EpochLog) -> None:
        reporter.epoch_finished(log.epoch, settings.epochs, log.validation_score)

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
            raise _worded(group, trial, problem) from problem
        finish(record)


def _worded(group: Group, trial: Trial, problem: Exception) -> TrialError | GroupError:
    """Say that a trial has failed here, or repeat what was said by the process where it has."""
    elsewhere = group.failure()
    if elsewhere is None and isinstance(problem, EndedElsewhereError):
        elsewhere = GroupError(str(problem))  # the one who ended it says why
    if elsewhere is not None:
        if group.rank:
            return elsewhere
        return TrialError(str(elsewhere), "\n".join(getattr(elsewhere, "__notes__", ())))
    lost = isinstance(problem, distributed.DistError) or "gloo" in str(problem)
    failure = failure_of(trial, _gone(problem) if lost else problem)
    group.fail(f"in process {group.rank}, {failure.summary}", failure.details)
    return failure.error()


def serve(load: Callable[[], GraphStore]) -> None:
    """Do what the first process says until it leaves the group; for all the other processes.

    Ctrl-C reaches every process of a terminal; here it is ignored, because the first process ends
    the others.

    Args:
        load: Reads the data set. It is called when there is work, and so not before the first
            process has read it: what that one puts into a cache is there.

    Raises:
        GroupError: If another process has failed.
        TrialError: If a trial fails in this process.
    """
    group = current_group()
    store, fingerprint = None, ""
    with _ctrl_c_ignored():
        for message in group.messages():
            if "end" in message:
                return
            settings = _settings_of(message["settings"])
            if store is None:
                store = load()
                if settings.split == "scaffold":
                    store = by_scaffold(store)
                fingerprint = store.fingerprint()
            if fingerprint != message["fingerprint"]:
                raise GraphTransplantError(
                    f"process {group.rank} has read other data than the first one: its fingerprint "
                    f"is {fingerprint[:12]}…, that of the first {message['fingerprint'][:12]}…"
                )
            for given in message["trials"]:
                trial = Trial(**given)
                try:
                    run_trial(
                        store,
                        trial,
                        settings,
                        fingerprint=fingerprint,
                        source=message["source"],
                    )
                except Exception as problem:
                    raise _worded(group, trial, problem) from problem


def _settings_of(message: Record) -> Settings:
    """Read settings back; JSON has lists where they have tuples."""
    fields: Record = {
        name: tuple(value) if isinstance(value, list) else value for name, value in message.items()
    }
    return Settings(**fields)


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
