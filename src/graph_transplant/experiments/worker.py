"""What a worker process sets up before its first trial.

This module imports no torch, so that a worker ignores Ctrl-C from its first moment: the process
that started it decides when it ends.
"""

from __future__ import annotations

import os
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
    import torch

    torch.set_num_threads(1)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
