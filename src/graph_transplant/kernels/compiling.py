"""How kernels are compiled, and where the machine code is kept.

Numba compiles a kernel when it is first called and keeps the result beside the source, in
``__pycache__``, or, where that folder cannot be written, in the user's cache folder
(``~/.cache/numba`` on Linux); ``NUMBA_CACHE_DIR`` names another. Where no folder can be written,
every process compiles for itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numba.core import event
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.floating[Any]]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a kernel on its first call and keep the machine code on disk."""
    try:
        kernel = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder for the cache can be written
        kernel = njit(nogil=True)(function)
    return cast(Function, kernel)


class _Announcement(event.Listener):
    """Says once per process that kernels of this package are being compiled."""

    said = False

    def on_start(self, event: Any) -> None:
        ours = event.data["dispatcher"].py_func.__module__.startswith(__package__)
        if ours and not self.said:
            self.said = True
            print(
                "graph-transplant: compiling kernels (once per machine, under 30 seconds)",
                file=sys.stderr,
                flush=True,
            )

    def on_end(self, event: Any) -> None: ...


event.register("numba:compile", _Announcement())  # type: ignore[no-untyped-call]
