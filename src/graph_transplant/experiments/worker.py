"""What a worker process sets up before its first trial.

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
