"""Functions in several processes of one ``torch.distributed`` group; which processes live."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from torch import distributed

SECONDS = 300  # for machines that have much else to do; only a hang takes so long

# One process imports torch once, and every rank is a fork of it.
multiprocessing.set_forkserver_preload(
    ["graph_transplant.training.loop", "graph_transplant.datasets"]
)


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def of_session(leader: int) -> set[int]:
    """The living processes of a session."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended while it was read
            state, _, _, session = path.read_text().rsplit(")", 1)[1].split()[:4]
            if int(session) == leader and state != "Z":
                found.add(int(path.parent.name))
    return found


def wait_for(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not reached():
        assert time.monotonic() < end, "hangs"
        time.sleep(0.1)


def _work(
    function: Callable[..., Any], rank: int, size: int, meeting: Path, given: Any, out: Connection
) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=meeting.as_uri(),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=SECONDS),
    )
    try:
        out.send(function(rank, *given))
        distributed.barrier()  # a process that leaves early may abort another
    finally:
        distributed.destroy_process_group()


def run_ranks(function: Callable[..., Any], *given: Any, size: int = 2) -> list[Any]:
    """What ``function(rank, *given)`` returns in every process of a group."""
    context = multiprocessing.get_context("forkserver")
    folder = tempfile.TemporaryDirectory()
    meeting = Path(folder.name) / "meeting"
    children, ends = [], []
    for rank in range(size):
        end, out = context.Pipe(duplex=False)
        child = context.Process(target=_work, args=(function, rank, size, meeting, given, out))
        child.start()
        out.close()
        children.append(child)
        ends.append(end)
    try:
        for rank, end in enumerate(ends):
            assert wait([end], SECONDS), f"rank {rank} hangs"
        return [end.recv() for end in ends]  # at its end, a rank has raised and said what
    finally:
        for child in children:
            child.join(5)
            child.kill()
        folder.cleanup()
