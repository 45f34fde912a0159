"""A comparison that is killed again and again ends with the records of an undisturbed one.

``GRAPH_TRANSPLANT_KILLS=20`` in the environment makes it twenty kills instead of a few.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import graph_transplant as gt
from graph_transplant.experiments.compare import compare
from graph_transplant.experiments.protocol import Record, Trial
from graph_transplant.experiments.records import RecordStore, record_line

KILLS = int(os.environ.get("GRAPH_TRANSPLANT_KILLS", "4"))
REPEATS = 1 + KILLS // 3
METHODS = ["vanilla", "transplant-dp"]
PATIENCE = 300  # seconds, for machines that have much else to do
TRIALS = len(METHODS) * 3 * REPEATS

pytestmark = pytest.mark.skipif(
    not hasattr(os, "killpg"), reason="needs the process groups of POSIX"
)


def lines(records: Sequence[Record]) -> list[bytes]:
    """The bytes of every record but for its duration, trial by trial."""
    return [
        record_line({key: item[key] for key in item if key != "seconds"})
        for item in sorted(records, key=Trial.of_record)
    ]


@contextmanager
def started(out: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start or resume the comparison; in the end nothing of it is left."""
    words = ["compare", "motifs", "--methods", ",".join(METHODS), "--folds", "3", "--epochs", "2"]
    words += ["--repeats", str(REPEATS), "--batch-size", "100", "--seed", "5", "--workers", "2"]
    with (
        open(out.with_suffix(".log"), "ab") as log,
        subprocess.Popen(
            [sys.executable, "-m", "graph_transplant", *words, "--out", str(out)],
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def wait_for_moment(process: subprocess.Popen[bytes], path: Path, generator: random.Random) -> None:
    """Wait for a moment during start-up, or some time after some record was written."""
    before = path.stat().st_size if path.exists() else 0
    new = generator.choice([0, 1, 1, 2])
    pause = generator.uniform(0, 3) if new == 0 else generator.expovariate(10)
    seen = path.read_bytes()[:before].count(b"\n") if before else 0
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and new:
        if path.exists() and path.read_bytes().count(b"\n") >= seen + new:
            break
        assert time.monotonic() < deadline, "nothing goes on"
        time.sleep(0.002)
    time.sleep(pause)


@pytest.mark.timeout(PATIENCE * (1 + KILLS))
def test_killed_at_random_moments_and_restarted_it_ends_with_the_same_records(
    tmp_path: Path,
) -> None:
    undisturbed = compare(
        gt.load("motifs"),
        out=tmp_path / "undisturbed",
        methods=METHODS,
        folds=3,
        epochs=2,
        repeats=REPEATS,
        batch_size=100,
        seed=5,
    )
    assert len(undisturbed.records) == TRIALS

    generator = random.Random(20220715)
    out = tmp_path / "killed"
    path = out / "records.jsonl"
    killed, content = 0, b""
    for number in range(KILLS):
        with started(out) as process:
            wait_for_moment(process, path, generator)
            killed += process.poll() is None
            if number % 2:
                process.kill()  # its workers must end by themselves, and not disturb the next one
            elif process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        found = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        assert found.startswith(whole), "a finished trial was lost"
        content = found
        RecordStore(out).read()  # whatever the moment, the file can be read
    assert killed >= min(KILLS, 3), "the comparison was finished before it could be killed"

    with started(out) as process:
        assert process.wait(timeout=PATIENCE) == 0, out.with_suffix(".log").read_text()
    assert path.read_bytes().count(b"\n") == TRIALS
    records = RecordStore(out).read()
    assert len({Trial.of_record(item) for item in records}) == len(records) == TRIALS
    assert lines(records) == lines(undisturbed.records)
    left = {item.name for item in out.iterdir()} - {"records.torn"}
    assert left == {"records.jsonl", "summary.csv", "report.html", ".lock"}
    print(f"{killed} of {KILLS} kills hit a running comparison of {TRIALS} trials")
