"""Warm-up: the first trial of a process must not pay for what happens once in a process.

Kernels are compiled or loaded, libraries imported, and torch sets up its threads and kernels on
their first use. Without a warm-up, the method that comes first seems slow.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch

from graph_transplant.graphs import GraphStore

GRAPHS: Final = 16
"""Number of graphs of each part to warm up with."""

_warm: set[Any] = set()


def warm_up(key: Any, work: Callable[[GraphStore, GraphStore], Any], *parts: GraphStore) -> None:
    """Do the work of a trial on a few graphs of its parts, once per process and ``key``.

    The work must depend on its own seeds alone, so that results do not depend on the warm-up.
    """
    if key in _warm:
        return
    _warm.add(key)
    numbers = [min(GRAPHS, len(part)) for part in parts]
    # Spread over all graphs, which may be sorted by class.
    few = [
        part.subset(torch.arange(number) * len(part) // number)
        for part, number in zip(parts, numbers, strict=True)
    ]
    # Work that fails on so few graphs may succeed on all; otherwise the trial fails and says why.
    with suppress(Exception), torch.random.fork_rng(devices=[]):
        work(*few)


def machine() -> dict[str, Any]:
    """The processor and the number of threads, which times depend on."""
    return {"processor": _processor(), "threads": torch.get_num_threads()}


@cache
def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text("utf-8", "replace").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine()
