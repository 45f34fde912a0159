"""Arrays that kernels take and return, and how kernels are compiled."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np
from numba import from_dtype, njit, types
from numba.core import event
from numba.core.caching import FunctionCache
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Table = np.ndarray[tuple[int, int], np.dtype[np.float64]]
Flags = np.ndarray[tuple[int, int], np.dtype[np.bool_]]


class CSR(NamedTuple):
    """Graphs as compressed sparse rows."""

    ptr: Ints
    row_ptr: Ints
    column: Ints  # node v receives from column[row_ptr[v]:row_ptr[v + 1]], ascending


class Neighbours(NamedTuple):
    """Undirected neighbour lists: every edge at both ends; in undirected graphs, the rows."""

    ptr: Ints
    node: Ints  # node v has the neighbours node[ptr[v]:ptr[v + 1]], ascending
    edge: Ints  # the edge that leads to each


class Segments(NamedTuple):
    """Items of graphs, such as chosen nodes."""

    ptr: Ints
    item: Ints  # item[ptr[g]:ptr[g + 1]] belongs to graph g


class Pairs(NamedTuple):
    """Pairs of a source node and a destination node, which become edges."""

    ptr: Ints  # pairs ptr[g] to ptr[g + 1] - 1 belong to graph g, sorted by source node
    source: Ints
    destination: Ints
    into_source: Bools  # whether a pair becomes an edge to its source node,
    into_destination: Bools  # and to its destination node; both in undirected graphs


Function = TypeVar("Function", bound=Callable[..., Any])

_FILES: Final = sorted(Path(__file__).parent.glob("*.py"))
_SOURCES: Final = hashlib.sha256(b"".join(path.read_bytes() for path in _FILES)).hexdigest()

_called: list[Any] = []  # the kernels that Python calls


class _Cache(FunctionCache):
    """Machine code contains that of the kernels called, so it is valid for the sources of all."""

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(sig, codegen), _SOURCES)  # type: ignore[no-untyped-call]


def helper(function: Function) -> Function:
    """Compile a kernel that other kernels call, and cache the machine code on disk."""
    kernel: Any = njit(nogil=True)(function)
    with suppress(RuntimeError):  # no writable cache directory
        kernel._cache = _Cache(function)  # type: ignore[no-untyped-call]
    return cast(Function, kernel)


def compiled(function: Function) -> Function:
    """Compile a kernel that Python calls; annotations tell which types it is called with."""
    kernel: Any = helper(function)
    if hasattr(kernel, "compile"):  # not with NUMBA_DISABLE_JIT
        kernel.compile = _with_the_others(kernel.compile)
        _called.append(kernel)
    return cast(Function, kernel)


def _with_the_others(compile_one: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def compile_first(types: Any) -> Any:
        entry = compile_one(types)
        _first_use.compile_others()
        return entry

    return compile_first


def compile_all() -> None:
    """Compile all kernels, or load them from the cache."""
    for path in _FILES:
        import_module(f"{__package__}.{path.stem}")
    for kernel in _called:
        kernel.compile(signature(kernel.py_func))


def signature(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return the numba types of the annotated arguments."""
    hints = get_type_hints(function)
    hints.pop("return")
    return tuple(map(_numba_type, hints.values()))


def _numba_type(hint: Any) -> Any:
    if get_origin(hint) is np.ndarray:
        shape, dtype = get_args(hint)
        sizes = [size for size in get_args(shape) if size is not ...]  # NDArray: (Any, ...)
        return types.Array(from_dtype(np.dtype(get_args(dtype)[0])), len(sizes), "C")
    if isinstance(hint, type) and issubclass(hint, tuple):
        fields = [_numba_type(each) for each in get_type_hints(hint).values()]
        return types.BaseTuple.from_types(fields, hint)  # type: ignore[no-untyped-call]
    return {
        int: types.int64,
        float: types.float64,
        bool: types.boolean,
        np.random.Generator: types.npy_rng,
    }[hint]


_ANNOUNCED: Final = "GRAPH_TRANSPLANT_ANNOUNCED"
"""Environment variable that tells the processes that this one starts to be silent."""


class _FirstUse(event.Listener):
    """Announces that a kernel is missing in the cache, and has the others compiled after it."""

    def __init__(self) -> None:
        self._depth = 0  # kernels are compiled within others
        self._missing = False

    def on_start(self, event: Any) -> None:
        kernel = event.data["dispatcher"]
        self._depth += 1
        module = kernel.py_func.__module__ or ""  # none if made by `exec`
        if not module.startswith(__package__):
            return
        kept = isinstance(kernel._cache, _Cache)
        self._missing |= kept
        if _ANNOUNCED in os.environ:
            return
        os.environ[_ANNOUNCED] = "1"
        how = "once per environment, about half a minute"
        if not kept:
            how = "in every process, as no cache directory is writable: set NUMBA_CACHE_DIR"
        print(f"graph-transplant: compiling kernels ({how})", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        self._depth -= 1

    def compile_others(self) -> None:
        """Compile all kernels if one was missing and none is being compiled."""
        if self._missing and not self._depth:
            self._depth += 1
            try:
                compile_all()
            finally:
                self._depth -= 1
            self._missing = False


_first_use: Final = _FirstUse()
event.register("numba:compile", _first_use)  # type: ignore[no-untyped-call]
