"""Training on several processes: two real ones that exchange gradients by gloo.

This file is also what the two processes run: ``python tests/training/test_distributed.py FOLDER
PORTS``.
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn

import graph_transplant as gt
from graph_transplant.augment import Augmentation, VirtualEmbeddings, build_method
from graph_transplant.errors import GraphTransplantError
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


@contextlib.contextmanager
def group() -> Iterator[None]:
    """Join the other process."""
    distributed.init_process_group("gloo", timeout=timedelta(seconds=LIMIT))
    try:
        yield
        distributed.barrier()
    finally:
        distributed.destroy_process_group()


def kept(checkpoint: Path, limit: int = 100) -> dict[str, Any]:
    """Train with a checkpoint, and interrupt the training in the epoch ``limit``."""
    heard: list[int] = []

    def hear(log: EpochLog) -> None:
        heard.append(log.epoch)
        if log.epoch == limit:
            raise KeyboardInterrupt("enough")

    model = classifier()
    augment = build_method("transplant-ep", model, seed=1)
    with group():
        given: dict[str, Any] = {"epochs": 4, "callbacks": [hear], "checkpoint": checkpoint}
        said = message_of(lambda: fitted(model, augment, **given))
    return {"heard": heard, "said": said, "weights": [m.state_dict() for m in (model, *augment)]}


def message_of(action: Callable[[], Any]) -> str:
    """The message of the error that something raises."""
    try:
        action()
    except (RuntimeError, GraphTransplantError, KeyboardInterrupt, ZeroDivisionError) as problem:
        return f"{type(problem).__name__}: {problem}"
    return "nothing was raised"


def failing(action: Callable[[], Any], *, where: int) -> str:
    """Let one of the processes do something in the middle of a step."""
    plain = steps.step_losses

    def step(*given: Any, **named: Any) -> Any:
        return action() if distributed.get_rank() == where else plain(*given, **named)

    def train() -> None:
        with group():
            fitted(classifier(), ())

    steps.step_losses = step
    try:
        return message_of(train)
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
        with group():
            return training_results()

    part("fit", trainings)
    loop.CHECKPOINT_SECONDS = 0.0
    part("undisturbed", lambda: kept(folder / "undisturbed.pt"))
    part("stopped", lambda: kept(folder / "kept.pt", limit=3))
    part("resumed", lambda: kept(folder / "kept.pt"))
    part("failed", lambda: failing(lambda: 1 / 0, where=1))
    part("gone", lambda: failing(lambda: os._exit(9), where=1))


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
    common["PYTHONPATH"] = os.pathsep.join(sys.path)  # the helpers of the tests
    command = [sys.executable, __file__, str(folder), *free_ports(6)]
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
    assert there["fit"]["callback"].startswith("PeerFailedError")
    assert (here["fit"]["shown"], there["fit"]["shown"]) == ([1, 2], [])
    for found in two:
        assert "the training loss is not a finite number in epoch 1" in found["fit"]["not finite"]
    assert there["failed"] == "ZeroDivisionError: division by zero"
    for name in ("failed", "gone"):
        assert here[name] != "nothing was raised"


def test_a_training_that_was_stopped_goes_on_from_its_checkpoint(two: Any) -> None:
    here, there = two
    assert here["stopped"]["said"] == "KeyboardInterrupt: enough"
    assert there["stopped"]["said"].startswith("PeerFailedError: another process of the group")
    assert here["stopped"]["heard"] == [1, 2, 3]
    assert here["resumed"]["heard"] == [3, 4]
    assert there["resumed"]["heard"] == []
    for found in two:
        pairs = zip(found["undisturbed"]["weights"], found["resumed"]["weights"], strict=True)
        for one, other in pairs:
            assert all(torch.equal(one[key], other[key]) for key in one)


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


def test_example_runs() -> None:
    printed = torchrun(str(ROOT / "examples" / "distributed.py"), "--epochs", "3")
    *epochs, last = printed.splitlines()
    losses = [float(line.split()[3]) for line in epochs]
    assert len(losses) == 3, "one process prints"
    assert losses[-1] < losses[0]
    assert last.startswith("2 processes, best epoch ")


if __name__ == "__main__":
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2:])
