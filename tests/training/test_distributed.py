"""Training on several processes: two real ones that exchange gradients by gloo.

This file is also what the two processes run: ``python tests/training/test_distributed.py FOLDER
PORTS``.
"""

from __future__ import annotations

import faulthandler
import math
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import graph_transplant as gt
from graph_transplant.augment import Augmentation, VirtualEmbeddings, build_method
from graph_transplant.comparison.engines import (
    Execution,
    check_engine,
    join_group,
    lead_or_serve,
    run_trials,
)
from graph_transplant.comparison.progress import Reporter
from graph_transplant.comparison.run_trial import TrialContext
from graph_transplant.config.compare import Settings
from graph_transplant.errors import GraphTransplantError
from graph_transplant.results.record import Trial
from graph_transplant.training import EpochLog, FitResult, loop
from graph_transplant.training import step as steps
from helpers.foreign_models import Foreign
from helpers.strategies import rings_and_stars

ROOT = Path(__file__).resolve().parents[2]
METHODS = ("vanilla", "transplant-dp", "transplant-ep", "m-evolve", "g-mixup")

# Seconds after which one of the two processes shows where it is, and ends.
LIMIT = 900

pytestmark = pytest.mark.cluster


def shapes(graphs: int = 60) -> gt.GraphStore:
    return rings_and_stars(graphs, seed=0, name="shapes")


# ------------------------------------------------------------------ what the two processes run


def fitted(model: nn.Module, augment: Sequence[Augmentation], **settings: Any) -> FitResult:
    # 41 graphs in batches of 8: of the last one, a single graph, the second process has none.
    store = shapes()
    given = {"seed": 3, "epochs": 8, "batch_size": 8, "learning_rate": 0.01, **settings}
    return gt.fit(model, store.subset(range(41)), store.subset(range(41, 60)), augment, **given)


def classifier() -> gt.GraphClassifier:
    return gt.GraphClassifier.for_data(shapes(), layers=2, hidden=16, seed=0)


class NotFinite(Augmentation):
    """A loss that is no number where a graph of class 0 is: not always in both processes."""

    def forward(self, clean: Any, *, model: Any, generator: Any) -> VirtualEmbeddings:
        factor = math.nan if bool((clean.batch.y == 0).any()) else 1.0
        return VirtualEmbeddings(graphs=clean.prediction.graphs * factor, targets=clean.targets)


def training_results() -> dict[str, Any]:
    """What trainings leave, and how those end that cannot go on."""
    found: dict[str, Any] = {}
    for name in (*METHODS, "foreign"):
        # With running statistics; the weights of the first process count.
        foreign = Foreign(2, nn.BatchNorm1d(8), seed=int(os.environ["RANK"]))
        model = foreign if name == "foreign" else classifier()
        augment = () if name == "foreign" else build_method(name, model, seed=1)
        result = fitted(model, augment)
        found[name] = {
            "weights": [m.state_dict() for m in (model, *augment)],
            "scores": [log.validation_score for log in result.history],
            "losses": [log.train_loss for log in result.history],
            "best": result.best_epoch,
        }
    shown: list[int] = []

    def interrupt(log: EpochLog) -> None:
        shown.append(log.epoch)
        if log.epoch == 2:
            raise KeyboardInterrupt("enough")

    found["callback"] = message_of(lambda: fitted(classifier(), (), callbacks=[interrupt]))
    found["shown"] = shown
    found["not finite"] = message_of(lambda: fitted(classifier(), [NotFinite()], batch_size=2))
    return found


SETTINGS = Settings(folds=3, epochs=4, batch_size=16, hidden=16, shards=2, learning_rate=0.01)
TRIALS = [
    Trial("vanilla", "gcs", 2, 0, 0),
    Trial("transplant-ep", "gcs", 2, 0, 1, label_noise=0.25, train_fraction=0.75),
]


class Reporting(Reporter):
    """Remembers what it hears, and may interrupt."""

    def __init__(self, limit: int = 100) -> None:
        self.heard: list[str] = []
        self.limit = limit

    def trial_started(self, trial: Trial) -> None:
        self.heard.append(trial.method)

    def epoch_finished(self, epoch: int, epochs: int, validation_score: float) -> None:
        self.heard.append(f"{epoch}/{epochs}")
        if len(self.heard) == self.limit:
            raise KeyboardInterrupt("enough")


def run_engine(
    folder: Path,
    trials: Sequence[Trial] = TRIALS,
    reporter: Reporter | None = None,
    settings: Settings = SETTINGS,
    other: int = 60,
) -> list[dict[str, Any]]:
    """Lead or serve; return the records, of which only the leading process has any."""
    records: list[dict[str, Any]] = []

    def lead() -> int:
        store = shapes()
        for trial in trials:  # work may be sent several times
            job = TrialContext(settings, store.fingerprint(), "shapes")
            heard = reporter or Reporter()
            run_trials(
                Execution(
                    store,
                    [trial],
                    job,
                    lambda done: records.append(done.record),
                    heard,
                    scratch=folder,
                ),
                "torchrun",
            )
        return 0

    with join_group():
        lead_or_serve(lead, lambda: shapes(other))
    return records


def message_of(action: Callable[[], Any]) -> str:
    """The message of the error that something raises."""
    try:
        action()
    except (RuntimeError, GraphTransplantError, KeyboardInterrupt) as problem:
        return f"{type(problem).__name__}: {problem}"
    return "nothing was raised"


def failing(folder: Path, action: Callable[[], Any], *, where: int) -> str:
    """Let one of the processes do something in the middle of a step."""
    plain = steps.step_losses

    def step(*given: Any, **named: Any) -> Any:
        return action() if torch.distributed.get_rank() == where else plain(*given, **named)

    steps.step_losses = step
    try:
        return message_of(lambda: run_engine(folder))
    finally:
        steps.step_losses = plain


def main(folder: Path, ports: Sequence[str]) -> None:
    rank = int(os.environ["RANK"])
    found: dict[str, Any] = {}
    free = iter(ports)

    def part(name: str, action: Callable[[], Any]) -> None:
        # A port of its own for every group: the one before may be in the state of closing.
        os.environ["MASTER_PORT"] = next(free)
        found[name] = action()
        torch.save(found, folder / f"{rank}.pt")

    def trainings() -> dict[str, Any]:
        with join_group() as joined:
            assert (joined, torch.get_num_threads()) == (rank, 1)
            return training_results()

    part("fit", trainings)
    assert torch.get_num_threads() == 2
    kept = folder / "kept"
    loop.CHECKPOINT_SECONDS = 0.0
    undisturbed, stopped, resumed = Reporting(), Reporting(limit=4), Reporting()
    part("records", lambda: run_engine(folder / "undisturbed", reporter=undisturbed))
    part("stopped", lambda: message_of(lambda: run_engine(kept, reporter=stopped)))
    part("resumed", lambda: run_engine(kept, reporter=resumed))
    found["heard"] = [undisturbed.heard, stopped.heard, resumed.heard]
    part("other data", lambda: message_of(lambda: run_engine(folder, other=58)))
    part("failed", lambda: failing(folder, lambda: 1 / 0, where=1))
    part("gone", lambda: failing(folder, lambda: os._exit(9), where=1))


# ------------------------------------------------------------------ the tests


def free_ports(count: int) -> list[str]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [str(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


# Every connection to the store looks up the name of its other end. Without an answer that would
# take ten seconds each.
QUICK_LOOKUP = {"RES_OPTIONS": "timeout:1 attempts:1"}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes found."""
    folder = tmp_path_factory.mktemp("two")
    common = {**os.environ, **QUICK_LOOKUP, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    command = [sys.executable, __file__, str(folder), *free_ports(8)]
    files = [folder / f"{rank}.txt" for rank in range(2)]
    processes = []
    try:
        for rank, file in enumerate(files):
            environment = {**common, "RANK": str(rank)}
            with file.open("w") as printed:
                processes.append(
                    subprocess.Popen(command, env=environment, stdout=printed, stderr=printed)
                )
        for process in processes:
            process.wait(timeout=2 * LIMIT)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    texts = [file.read_text() for file in files]
    # The second process ends itself at the very end.
    assert [process.returncode for process in processes] == [0, 9], "\n".join(texts)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("name", [*METHODS, "foreign"])
def test_all_processes_end_with_the_same_weights_and_learn(name: str, two: Any) -> None:
    first, second = (found["fit"][name] for found in two)
    for mine, theirs in zip(first["weights"], second["weights"], strict=True):
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    for key in ("scores", "losses", "best"):
        assert first[key] == second[key]
    assert first["losses"][-1] < first["losses"][0]
    if name in METHODS[:3]:
        assert max(first["scores"]) > 0.8


def test_what_ends_one_process_ends_all_and_is_told(two: Any) -> None:
    here, there = two
    assert here["fit"]["callback"] == "KeyboardInterrupt: enough"
    assert there["fit"]["callback"].startswith("EndedElsewhereError")
    assert (here["fit"]["shown"], there["fit"]["shown"]) == ([1, 2], [])
    for found in two:
        assert "the training loss is not a finite number in epoch 1" in found["fit"]["not finite"]
    reason = f"trial {TRIALS[0]} failed: ZeroDivisionError: division by zero"
    assert there["failed"] == f"TrialError: {reason}"
    assert there["other data"].startswith(
        "GraphTransplantError: process 1 loaded different data than process 0"
    )
    for name in ("failed", "other data", "gone"):
        assert here[name].startswith("EndedElsewhereError: another process of the group has ended")


def test_the_first_process_has_the_records(two: Any) -> None:
    assert two[1]["records"] == []
    assert [Trial.of_record(record) for record in two[0]["records"]] == TRIALS
    for record in two[0]["records"]:
        assert record["settings"]["shards"] == 2
        assert record["validation"]["accuracy"] >= 0.5
    epochs = ["1/4", "2/4", "3/4", "4/4"]
    assert two[0]["heard"][0] == ["vanilla", *epochs, "transplant-ep", *epochs]
    assert two[1]["heard"][0] == []


def test_a_trial_that_was_stopped_goes_on_from_its_checkpoint(two: Any) -> None:
    assert two[0]["stopped"] == "KeyboardInterrupt: enough"
    assert two[1]["stopped"].startswith("EndedElsewhereError: another process of the group ended")
    _, stopped, resumed = two[0]["heard"]
    assert stopped == ["vanilla", "1/4", "2/4", "3/4"]
    assert resumed[:3] == ["vanilla", "3/4", "4/4"]
    for record, other in zip(two[0]["records"], two[0]["resumed"], strict=True):
        assert record | {"seconds": 0, "cost": 0} == other | {"seconds": 0, "cost": 0}


def test_without_torchrun_the_way_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "0")
    message = r"not set: WORLD_SIZE, MASTER_ADDR, MASTER_PORT\): start it with `torchrun"
    with pytest.raises(GraphTransplantError, match=message), join_group():
        pass
    with pytest.raises(GraphTransplantError, match="engine torchrun needs the processes"):
        check_engine("torchrun", None)


def torchrun(*words: str) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, **QUICK_LOOKUP, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_comparison_under_torchrun(tmp_path: Path) -> None:
    words = ["compare", "motifs", "--methods", "vanilla", "--folds", "3", "--epochs", "1"]
    words += ["--layers", "1", "--engine", "torchrun", "--out", str(tmp_path)]
    printed = torchrun("-m", "graph_transplant", *words)
    assert printed.count("report.html") == 1, "one process prints"
    assert (tmp_path / "records.jsonl").read_text().count('"shards":2') == 3
    assert not (tmp_path / ".checkpoints").exists()


def test_example_runs() -> None:
    printed = torchrun(str(ROOT / "examples" / "distributed.py"), "--epochs", "3")
    *epochs, last = printed.splitlines()
    losses = [float(line.split()[3]) for line in epochs]
    assert len(losses) == 3, "one process prints"
    assert losses[-1] < losses[0]
    assert last.startswith("2 processes, best epoch ")


if __name__ == "__main__":
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    torch.set_num_threads(2)  # joining a group must set its own number, and set this one again
    main(Path(sys.argv[1]), sys.argv[2:])
