"""A comparison that is killed again and again ends with the records of an undisturbed one.

``GRAPH_TRANSPLANT_KILLS=20`` in the environment makes it twenty kills instead of a few.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import graph_transplant as gt
from graph_transplant.cli import main
from graph_transplant.comparison.compare import compare
from graph_transplant.results.predictions import path_of, read_predictions
from graph_transplant.results.record_file import RecordStore
from helpers.made_up_records import timeless

KILLS = int(os.environ.get("GRAPH_TRANSPLANT_KILLS", "4"))
REPEATS = 1 + KILLS // 3
METHODS = ["vanilla", "transplant-dp"]
PATIENCE = 300  # seconds, for machines that have much else to do
TRIALS = len(METHODS) * 3 * REPEATS

pytestmark = pytest.mark.skipif(
    not hasattr(os, "killpg"), reason="needs the process groups of POSIX"
)


# Importing torch takes longer than everything else here, and a killed comparison leaves nothing of
# itself behind: one process imports it once and divides itself for every comparison to be killed.
STARTER = """
import json, os, sys
import graph_transplant.comparison.compare, graph_transplant.report
from graph_transplant.cli import main

for line in sys.stdin:
    words, log = json.loads(line)
    child = os.fork()
    if not child:
        os.setsid()
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for number in (1, 2):
            os.dup2(file, number)
        os._exit(main(words))
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""


def words_for(out: Path, workers: int) -> list[str]:
    words = ["compare", "motifs", "--methods", ",".join(METHODS), "--folds", "3", "--epochs", "2"]
    words += ["--repeats", str(REPEATS), "--batch-size", "100", "--seed", "5"]
    return [*words, "--workers", str(workers), "--out", str(out)]


@contextmanager
def starter() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", STARTER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        yield process


def ended(process: subprocess.Popen[str]) -> bool:
    """Whether the comparison has ended: then the starter says how."""
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0)[0])


def wait_for_moment(
    process: subprocess.Popen[str], path: Path, new: int, generator: random.Random
) -> None:
    """Wait for a moment during start-up, or some time after some record was written."""
    pause = generator.uniform(0, 3) if new == 0 else generator.expovariate(10)
    seen = path.read_bytes().count(b"\n") if path.exists() else 0
    deadline = time.monotonic() + PATIENCE
    while new and not ended(process):
        if path.exists() and path.read_bytes().count(b"\n") >= seen + new:
            break
        assert time.monotonic() < deadline, "nothing goes on"
        time.sleep(0.002)
    time.sleep(pause)


def intact(out: Path, before: bytes) -> bytes:
    """Give what the file of records holds, of which nothing that was whole may be lost."""
    path = out / "records.jsonl"
    found = path.read_bytes() if path.exists() else b""
    assert found.startswith(before[: before.rfind(b"\n") + 1]), "a finished trial was lost"
    for record in RecordStore(out).read():  # whatever the moment, the file can be read
        assert read_predictions(path_of(out, record.trial)) is not None
    return found


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
    with starter() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(KILLS):
            # Workers or none; at once or after some records; all processes or the first alone.
            new, workers = ((0, 2), (1, 2), (2, 1), (1, 1))[number % 4]
            order = (words_for(out, workers), str(out.with_suffix(".log")))
            print(json.dumps(order), file=process.stdin, flush=True)
            child = int(process.stdout.readline())
            wait_for_moment(process, path, new, generator)
            killed += not ended(process)
            if not ended(process):
                # The workers of the odd ones must end by themselves, and not disturb the next one.
                (os.kill if number % 2 else os.killpg)(child, signal.SIGKILL)
            process.stdout.readline()
            content = intact(out, content)
    assert killed >= min(KILLS, 3), "the comparison was finished before it could be killed"

    assert main(words_for(out, 1)) == 0
    assert path.read_bytes().count(b"\n") == TRIALS
    records = RecordStore(out).read()
    assert len({item.trial for item in records}) == len(records) == TRIALS
    assert timeless(records) == timeless(undisturbed.records)
    left = {item.name for item in out.iterdir()} - {"records.torn"}
    files = {"records.jsonl", "summary.csv", "report.html", "commands.txt", "figures", ".lock"}
    assert left == files | {"predictions", "comparison.json"}
    kept, expected = (
        {file.name: file.read_bytes() for file in (place / "predictions").iterdir()}
        for place in (out, tmp_path / "undisturbed")
    )
    assert len(kept) == TRIALS
    assert kept == expected
