"""Set-up of all worker processes; does not import torch, so that Ctrl-C is ignored at once."""

from __future__ import annotations

import os
import signal
import threading
import time


def set_up_worker(parent: int) -> None:
    """Ignore Ctrl-C, which the parent handles, and exit when the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
