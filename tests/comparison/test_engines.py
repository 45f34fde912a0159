"""Engines: the same records whatever runs the trials, also when workers are killed."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graph_transplant import __version__
from graph_transplant.comparison import engines
from graph_transplant.comparison.engines import (
    Execution,
    TrialError,
    failure_of,
    run_again,
    run_in_worker,
    run_trials,
    store_file,
    worker_store,
)
from graph_transplant.comparison.run_trial import TrialContext, checkpoint_of, run_trial
from graph_transplant.comparison.training_sets import split_of
from graph_transplant.config.compare import Settings
from graph_transplant.data import GraphStore, InputRows
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.metrics import METRICS, Metric
from graph_transplant.results.record import Trial, TrialRecord, all_trials
from graph_transplant.results.record_file import RecordStore
from graph_transplant.training import EpochLog, loop
from helpers.made_up_records import Counting, timeless
from helpers.processes import alive, of_session, wait_for
from helpers.strategies import rings_and_stars

SETTINGS = Settings(folds=3, epochs=3, batch_size=8, seed=3, hidden=16)
TRIALS = list(
    all_trials(methods=["vanilla", "transplant-dp"], models=["gcs"], layers=[2], repeats=1, folds=3)
)
CULPRIT = TRIALS[3]


def tiny_store() -> GraphStore:
    store = rings_and_stars(24, seed=0, name="tiny")
    store.rows = InputRows(torch.arange(1, 25), tuple(f"id {n}" for n in range(24)), ("",) * 24)
    return store


def run(
    scratch: Path,
    *,
    trials: Sequence[Trial] = TRIALS,
    store: GraphStore | None = None,
    finish: Callable[[TrialRecord], None] | None = None,
    engine: str = "local",
    **options: Any,
) -> list[TrialRecord]:
    store = store or tiny_store()
    records: list[TrialRecord] = []
    job = TrialContext(SETTINGS, store.fingerprint(), "tiny")
    options = {
        "finish": finish or (lambda done: records.append(done.record)),
        "scratch": scratch,
        **options,
    }
    run_trials(Execution(store, trials, job, **options), engine)
    return records


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> list[TrialRecord]:
    """The records of all trials, run one after another in this process."""
    return run(tmp_path_factory.mktemp("here"), workers=1)


@pytest.fixture(scope="module")
def expected(here: list[TrialRecord]) -> list[bytes]:
    """What all engines must agree on."""
    return timeless(here)


def test_graphs_have_their_ids_in_all_examples(here: list[TrialRecord]) -> None:
    store, seen = tiny_store(), Counter[str]()
    for record in (each for each in here if each.fold == 0):
        split = split_of(store, record.trial, SETTINGS)
        tested, trained = (
            {f"id {number}" for number in part.tolist()} for part in (split.test, split.train)
        )
        for one in record.examples:
            seen[one["kind"]] += 1
            if one["kind"] == "saliency":
                assert one["graph"] in tested
                number = int(one["graph"].removeprefix("id "))
                assert len(one["names"]) == int(store.node_counts[number])
            else:
                assert {one["source"]["id"], one["destination"]["id"]} <= trained
    assert seen.keys() == {"saliency", "mixture"}


def test_in_this_process_the_reporter_hears_of_trials_and_epochs(
    tmp_path: Path, expected: list[bytes]
) -> None:
    reporter = Counting()
    shuffled = random.Random(0).sample(TRIALS, len(TRIALS))
    assert shuffled != TRIALS
    records = run(tmp_path, trials=shuffled, workers=1, reporter=reporter)
    assert timeless(records) == expected
    assert [item.trial for item in records] == reporter.started == shuffled
    assert reporter.epochs == len(TRIALS) * ["1/3", "2/3", "3/3"]
    assert list(tmp_path.iterdir()) == []


def test_a_killed_worker_is_replaced_and_its_trial_goes_on_from_its_checkpoint(
    tmp_path: Path, expected: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    flag, epochs = tmp_path / "flag", tmp_path / "epochs"
    real = engines.run_in_worker

    def killed_once(path: Path, trial: Trial, job: TrialContext, version: str) -> Any:
        def watch(log: EpochLog) -> None:
            with epochs.open("a") as file:
                file.write(f"{log.epoch} ")
            if log.epoch == 3 and not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        if trial != CULPRIT:
            return real(path, trial, job, version)
        loop.CHECKPOINT_SECONDS = 0  # of this worker
        return run_trial(worker_store(path, job.fingerprint), trial, job, [watch])

    # Defined in this function, it travels to the workers as code.
    monkeypatch.setattr(engines, "run_in_worker", killed_once)
    reporter = Counting()
    shuffled = random.Random(1).sample(TRIALS, len(TRIALS))
    (tmp_path / "out").mkdir()
    records = run(tmp_path / "out", trials=shuffled, workers=2, reporter=reporter)
    assert epochs.read_text() == "1 2 3 3 "
    assert timeless(records) == expected  # none lost, none doubled, equal to the last bit
    (note,) = reporter.notes
    assert note.startswith("a worker process died; running again: ")
    assert str(CULPRIT) in note
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("content", [b"nothing", None], ids=["damaged", "of other settings"])
def test_a_checkpoint_that_does_not_fit_is_removed(
    tmp_path: Path, expected: list[bytes], content: bytes | None
) -> None:
    path = checkpoint_of(tmp_path / engines.CHECKPOINTS, CULPRIT)
    path.parent.mkdir()
    store = tiny_store()
    if content is None:
        other = replace(SETTINGS, batch_size=4)
        run_trial(store, CULPRIT, TrialContext(other, "", "", checkpoints=path.parent))
    else:
        path.write_bytes(content)
    (record,) = run(tmp_path, trials=[CULPRIT], store=store, workers=1)
    assert timeless([record])[0] in expected
    assert list(tmp_path.iterdir()) == []


def test_a_failing_trial_in_a_worker_is_named_with_its_traceback(tmp_path: Path) -> None:
    culprit = replace(CULPRIT, repeat="two")
    with pytest.raises(TrialError) as caught:
        run(tmp_path, trials=[culprit], workers=2)
    assert str(caught.value).startswith(f"trial {culprit} failed: ValueError: ")
    assert "Traceback" in caught.value.details
    assert list(tmp_path.iterdir()) == []


def test_a_metric_that_workers_cannot_receive_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = threading.Lock()
    locked = Metric("Locked", "", lambda *_: float(lock.locked()), ("multiclass",))
    monkeypatch.setitem(METRICS, "locked", locked)
    with pytest.raises(GraphTransplantError, match="'locked' cannot be sent to other processes"):
        run(tmp_path, workers=2)
    (record,) = run(tmp_path, trials=TRIALS[:1])
    assert record.test["locked"] == 0


def test_a_trial_that_is_lost_with_every_worker_ends_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = engines.run_in_worker

    def killed(path: Path, trial: Trial, *rest: Any) -> Any:
        if trial == CULPRIT:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(path, trial, *rest)

    monkeypatch.setattr(engines, "run_in_worker", killed)
    monkeypatch.setattr(engines, "RETRIES", 0)  # the number is tested without processes
    records: list[TrialRecord] = []
    with pytest.raises(TrialError) as caught:
        run(
            tmp_path,
            trials=[*TRIALS[:2], CULPRIT],
            workers=2,
            finish=lambda done: records.append(done.record),
        )
    message = str(caught.value)
    assert message.startswith("a worker process died, on attempt 1 of 1 to run")
    assert "probably out of memory: use fewer workers or smaller batches" in message
    assert {item.trial for item in records} < set(TRIALS)
    assert not (tmp_path / ".graphs").exists()


def test_a_trial_gets_two_more_attempts_of_its_own() -> None:
    reporter, lost = Counting(), Counter[Trial]()
    given = Execution(tiny_store(), TRIALS, TrialContext(SETTINGS, "", ""), reporter=reporter)
    first, second = TRIALS[:2]
    for trials in ([first, second], [second], [first]):
        run_again(lost, trials, "gone", given)
    assert reporter.notes[:2] == [
        f"gone; running again: {first}; {second}",
        f"gone; running again: {second}",
    ]
    with pytest.raises(TrialError, match=f"gone, on attempt 3 of 3 to run trial {second};"):
        run_again(lost, [second], "gone", given)


def test_a_worker_of_another_version_is_refused(tmp_path: Path) -> None:
    found = run_in_worker(tmp_path / "no file", CULPRIT, TrialContext(SETTINGS, "", ""), "9.9.9")
    assert str(found).endswith(
        f"has graph-transplant {__version__}, but the main process has 9.9.9; "
        "install the same version"
    )


def memory_error() -> Exception:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50)
    return caught.value


@pytest.mark.parametrize(
    ("problem", "words", "has_details"),
    [
        (ValueError("one\ntwo"), "ValueError: one", True),
        (KeyError(), "KeyError", True),
        (GraphTransplantError("`x` is wrong\nreally"), "`x` is wrong", False),
        (DataError(""), "DataError", True),
        (MemoryError(), "out of memory; use fewer workers or smaller batches", True),
        (memory_error(), "out of memory; use fewer workers or smaller batches", True),
        (RuntimeError("not of memory"), "RuntimeError: not of memory", True),
    ],
)
def test_failures_are_worded_in_one_line(problem: Exception, words: str, has_details: bool) -> None:
    error = pickle.loads(pickle.dumps(failure_of(CULPRIT, problem)))  # noqa: S301 - our own
    assert str(error) == f"trial {CULPRIT} failed: {words}"
    assert bool(error.details) == has_details


# The file that workers read --------------------------------------------------------------------


def test_a_store_from_a_file_names_that_file_and_others_are_written_and_removed(
    tmp_path: Path,
) -> None:
    scratch = tmp_path / "scratch"
    left = scratch / ".graphs" / "graphs.safetensors1a2b.part"  # by a comparison that was killed
    left.mkdir(parents=True)
    (left / "half").write_text("half")
    store = tiny_store()
    with store_file(store, scratch) as path:
        assert not left.exists()
        assert path.is_relative_to(scratch)
        assert len(worker_store(path, store.fingerprint())) == len(store)
    assert list(scratch.iterdir()) == []

    (scratch / ".graphs").mkdir()
    (scratch / ".graphs" / "mine.txt").write_text("of the user")
    with store_file(store, scratch):
        pass
    assert [path.name for path in (scratch / ".graphs").iterdir()] == ["mine.txt"]
    shutil.rmtree(scratch / ".graphs")

    store.save(tmp_path / "tiny.safetensors")
    loaded = GraphStore.load(tmp_path / "tiny.safetensors")
    with store_file(loaded, scratch) as path:
        assert path == tmp_path / "tiny.safetensors"
        assert list(scratch.iterdir()) == []
    assert path.exists()
    # A part of it is another data set, and so is one whose file is gone.
    part = loaded.subset(range(12))
    with store_file(part, scratch) as path:
        assert path.is_relative_to(scratch)
        assert len(worker_store(path, part.fingerprint())) == 12
        with pytest.raises(DataError, match=r"graphs.* was changed while the comparison ran"):
            worker_store(path, store.fingerprint())
    (tmp_path / "tiny.safetensors").unlink()
    with store_file(loaded, scratch) as path:
        assert path.is_relative_to(scratch)


# Choosing an engine ----------------------------------------------------------------------------


def test_without_ray_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(GraphTransplantError, match=r"pip install 'graph-transplant\[cluster\]'"):
        run(tmp_path, workers=1, engine="ray")
    assert list(tmp_path.iterdir()) == []


# Ctrl-C ----------------------------------------------------------------------------------------


def descendants(process: int) -> list[int]:
    """Process numbers of all children, their children and so on."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rsplit(")", 1)[1].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            parents.setdefault(int(parent), []).append(int(stat.parent.name))
    found = [process]
    for member in found:
        found += parents.get(member, [])
    return found[1:]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_a_killed_comparison(number: int, tmp_path: Path) -> None:
    words = ["compare", "motifs", "--methods", "vanilla", "--folds", "3", "--repeats", "50"]
    words += ["--epochs", "4", "--workers", "2", "--out", str(tmp_path / "out")]
    with subprocess.Popen(
        [sys.executable, "-m", "graph_transplant", *words],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as parent:
        wait_for((tmp_path / "out" / "commands.txt").exists)
        assert len(of_session(parent.pid)) > 2
        os.kill(parent.pid, number)
        assert parent.wait() == -number
    wait_for(lambda: not of_session(parent.pid))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_ctrl_c_ends_workers_and_says_how_to_resume(tmp_path: Path) -> None:
    words = ["compare", "motifs", "--methods", "vanilla", "--folds", "3", "--repeats", "50"]
    words += ["--epochs", "4", "--workers", "2", "--out", str(tmp_path / "out")]
    # Written with the first trial, so that a report of what there is can say what was run.
    path, commands = (tmp_path / "out" / name for name in ("records.jsonl", "commands.txt"))
    with subprocess.Popen(
        [sys.executable, "-m", "graph_transplant", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            deadline = time.monotonic() + 900
            while not commands.exists():
                assert running.poll() is None, running.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            children = descendants(running.pid)
            assert len(children) >= 2
            start = time.monotonic()
            os.killpg(running.pid, signal.SIGINT)  # as a terminal does; workers ignore it
            _, errors = running.communicate(timeout=600)
            while any(alive(child) for child in children):
                assert time.monotonic() < start + 600, "a worker is still there"
                time.sleep(0.02)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 130
    kept = len(RecordStore(tmp_path / "out").read())
    verb = "trial is" if kept == 1 else "trials are"
    assert f"{kept} finished {verb} kept in {tmp_path / 'out'}" in errors
    assert f"graph-transplant {' '.join(words)}" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "out" / ".graphs").exists()
    assert json.loads(path.read_bytes().splitlines()[-1])["data"] == "motifs"
