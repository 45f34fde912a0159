"""Kernel compilation and its on-disk cache.

Numba compiles a kernel on its first call and caches the machine code in ``NUMBA_CACHE_DIR`` if set,
else in ``__pycache__`` beside the source, else in the user's cache directory (``~/.cache/numba`` on
Linux). If none is writable, every process compiles for itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import event

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a kernel on its first call and cache the machine code on disk."""
    try:
        kernel = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no writable cache directory
        kernel = njit(nogil=True)(function)
    return cast(Function, kernel)


_ANNOUNCED = "GRAPH_TRANSPLANT_ANNOUNCED"
"""Environment variable that tells the processes that this one starts to be silent."""


class _Announcement(event.Listener):
    """Prints a notice the first time a kernel of this package is compiled."""

    def on_start(self, event: Any) -> None:
        module = event.data["dispatcher"].py_func.__module__ or ""  # none if made by `exec`
        if module.startswith(__package__) and _ANNOUNCED not in os.environ:
            os.environ[_ANNOUNCED] = "1"
            print(
                "graph-transplant: compiling kernels (once per machine, under 30 seconds)",
                file=sys.stderr,
                flush=True,
            )

    def on_end(self, event: Any) -> None: ...


event.register("numba:compile", _Announcement())  # type: ignore[no-untyped-call]
