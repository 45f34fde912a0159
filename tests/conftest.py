"""What tests share: one torch thread, Hypothesis settings, real data."""

from __future__ import annotations

import os
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# Two test processes with two threads each are far slower on two cores than one thread each.
torch.set_num_threads(1)

# Background jobs ignore Ctrl-C, and so would the processes that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A first example of a property pays for imports and warm-up, so a deadline would only misfire.
settings.register_profile("developer", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "developer")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of real data sets, named by ``GRAPH_TRANSPLANT_DATA``; the test is skipped without."""
    named = os.environ.get("GRAPH_TRANSPLANT_DATA")
    if not named:
        pytest.skip("GRAPH_TRANSPLANT_DATA does not name a folder of data sets")
    folder = Path(named)
    if not folder.is_dir():
        pytest.skip(f"GRAPH_TRANSPLANT_DATA names {named}, which is not a folder")
    return folder


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, which is given; no data folder and no network."""

    def urlopen(url: str, timeout: float) -> None:
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setenv("GRAPH_TRANSPLANT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GRAPH_TRANSPLANT_DATA", raising=False)
    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    return tmp_path / "cache"
