"""Several processes train as one does: two real processes that exchange gradients by gloo.

This file is also what the two processes run: ``python tests/test_distributed.py FOLDER``.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GCNConv, global_mean_pool

import graph_transplant as gt
from graph_transplant import training
from graph_transplant.augment import build_method
from graph_transplant.augment.base import Augmentation, VirtualEmbeddings
from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments import distributed as engine
from graph_transplant.experiments.progress import Silent
from graph_transplant.experiments.protocol import Settings, Trial
from graph_transplant.experiments.trial import run_trial
from graph_transplant.experiments.worker import TrialError
from graph_transplant.training import EndedElsewhereError, EpochLog

ROOT = Path(__file__).resolve().parents[1]
METHODS = ("vanilla", "transplant-dp", "transplant-ep", "m-evolve")

# Seconds after which one of the two processes shows where it is, and ends.
LIMIT = 150

pytestmark = pytest.mark.cluster


def motifs(graphs: int = 60) -> gt.GraphStore:
    return gt.load("motifs", graphs=graphs)


def model_for(store: gt.GraphStore, **settings: Any) -> gt.GraphClassifier:
    return gt.GraphClassifier.for_data(store, **{"layers": 2, "hidden": 16, "seed": 0, **settings})


@contextmanager
def recorded_gradients() -> Iterator[list[list[Tensor | None]]]:
    """Keep the gradients of every step, as they are before they are clipped."""
    found: list[list[Tensor | None]] = []
    clip = nn.utils.clip_grad_norm_

    def recorded(parameters: list[nn.Parameter], limit: float) -> Tensor:
        found.append([None if p.grad is None else p.grad.clone() for p in parameters])
        return clip(parameters, limit)

    nn.utils.clip_grad_norm_ = recorded
    try:
        yield found
    finally:
        nn.utils.clip_grad_norm_ = clip


def gradients(method: str, *, dropout: float, parts: int) -> list[Tensor | None]:
    """The gradients of one step on 13 graphs."""
    store = motifs(13)
    model = model_for(store, dropout=dropout)
    with recorded_gradients() as found:
        augment = build_method(method, model, seed=1)
        gt.fit(model, store, store, augment, seed=5, epochs=1, batch_size=13, parts=parts)
    (only,) = found
    return only


def outcome(model: nn.Module, result: gt.FitResult, *others: nn.Module) -> dict[str, Any]:
    """Everything a training leaves but the time it took."""
    history = [{**asdict(log), "seconds": 0.0} for log in result.history]
    weights = {
        f"{number}.{name}": value.clone()
        for number, module in enumerate((model, *others))
        for name, value in module.state_dict().items()
    }
    return {
        "history": history,
        "weights": weights,
        "end": [result.best_epoch, result.stopped_early],
    }


def whole_fit(method: str, *, parts: int = 4) -> dict[str, Any]:
    # 41 graphs in batches of 13: the last batch has two graphs, and of four pieces two are empty,
    # those of the second process.
    store = motifs(60)
    train, validation = store.subset(range(41)), store.subset(range(41, 60))
    model = model_for(train)
    augment = build_method(method, model, seed=1)
    settings: dict[str, Any] = {"epochs": 3, "batch_size": 13, "learning_rate": 0.01}
    result = gt.fit(model, train, validation, augment, seed=3, parts=parts, **settings)
    return outcome(model, result, *augment)


class Normalised(nn.Module):
    """A model with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = GCNConv(3, 8)
        self.norm = nn.BatchNorm1d(8)
        self.out = nn.Linear(8, 6)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int) -> Tensor:
        x = self.norm(self.conv(x, edge_index)).relu()
        return self.out(global_mean_pool(x, batch, batch_size))


def with_features(graphs: int) -> gt.GraphStore:
    items = motifs(graphs).to_pyg()
    generator = torch.Generator().manual_seed(0)
    for item in items:
        item.x = torch.randn(item.num_nodes, 3, generator=generator)
    return gt.GraphStore.from_pyg(items, num_outputs=6)


def foreign_fit() -> dict[str, Any]:
    # One validation graph: the second process has no share in it.
    store = with_features(21)
    model = Normalised()
    train, validation = store.subset(range(20)), store.subset([20])
    augment = gt.GraphTransplant()
    result = gt.fit(model, train, validation, augment, seed=3, epochs=3, batch_size=9, parts=2)
    return outcome(model, result)


class Sometimes(Augmentation):
    """Has a parameter that only batches with a graph of class 0 use."""

    def __init__(self, value: float = 1.0) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(value))
        self.used: list[bool] = []

    def forward(self, clean: Any, *, model: Any, generator: Any) -> VirtualEmbeddings:
        there = bool((clean.batch.y == 0).any())
        self.used.append(there)
        graphs = clean.prediction.graphs
        if there:
            graphs = graphs * self.factor
        return VirtualEmbeddings(graphs=graphs, targets=clean.targets)


def fit_with_a_parameter_in_few_pieces() -> dict[str, Any]:
    # The last batch has one graph, and the second process none of it.
    store = motifs(25)
    model, augment = model_for(store), Sometimes()
    settings: dict[str, Any] = {"epochs": 3, "batch_size": 6, "learning_rate": 0.01}
    result = gt.fit(model, store, store, augment, seed=2, parts=4, **settings)
    return {**outcome(model, result, augment), "used": augment.used}


ALONE: dict[str, Callable[[], Any]] = {
    **{
        f"gradients {method}": lambda method=method: gradients(method, dropout=0.5, parts=2)
        for method in METHODS[:3]
    },
    "plain gradients": lambda: gradients("vanilla", dropout=0.0, parts=2),
    **{f"fit {method}": lambda method=method: whole_fit(method) for method in METHODS},
    "foreign": foreign_fit,
    "sometimes": fit_with_a_parameter_in_few_pieces,
}
"""What one process and two processes must give alike."""


# ------------------------------------------------------------------ what the two processes run


def message_of(kind: type[BaseException], action: Callable[[], Any]) -> str:
    """The message of the error that something raises."""
    try:
        action()
    except kind as problem:
        return f"{type(problem).__name__}: {problem}"
    return "nothing was raised"


def short_fit(**settings: Any) -> gt.FitResult:
    store = motifs(12)
    given: dict[str, Any] = {"seed": 0, "epochs": 4, "parts": 2, "augment": (), **settings}
    return gt.fit(model_for(store), store, store, **given)


def endings(rank: int) -> dict[str, Any]:
    """How trainings end that cannot go on, and that the group can go on after them."""
    shown: list[int] = []

    def interrupt(log: EpochLog) -> None:
        shown.append(log.epoch)
        if log.epoch == 2:
            raise KeyboardInterrupt("enough")

    found: dict[str, Any] = {
        "one part": message_of(GraphTransplantError, lambda: short_fit(parts=1)),
        "three parts": message_of(GraphTransplantError, lambda: short_fit(parts=3)),
        "callback": message_of(
            (KeyboardInterrupt, EndedElsewhereError), lambda: short_fit(callbacks=[interrupt])
        ),
        # A loss that is no number only where class 0 is: not in both processes.
        "not finite": message_of(
            GraphTransplantError, lambda: short_fit(augment=Sometimes(math.nan), batch_size=2)
        ),
        "shown": shown,
    }
    return {**found, "after": short_fit().epochs}


SETTINGS = Settings(folds=3, epochs=3, batch_size=16, hidden=16, parts=2, learning_rate=0.01)
TRIALS = [
    Trial("vanilla", "gcs", 2, 0, 0),
    Trial("transplant-ep", "gcs", 2, 0, 0),
    Trial("vanilla", "gcs", 2, 0, 1),
    Trial("transplant-ep", "gcs", 2, 0, 1, label_noise=0.25, train_fraction=0.75),
]


def run_engine(
    group: engine.Group, *, trials: Sequence[Trial] = TRIALS, reporter: Any = None
) -> list[dict[str, Any]]:
    """Lead or serve; return the records, of which only the leading process has any."""
    records: list[dict[str, Any]] = []
    if group.rank:
        engine.serve(lambda: motifs(48))
        return records
    store = motifs(48)
    for some in (trials[:1], trials[1:]):  # work may be posted several times
        engine.run_distributed(
            store,
            some,
            SETTINGS,
            fingerprint=store.fingerprint(),
            source="motifs",
            finish=records.append,
            reporter=reporter or Silent(),
        )
    return records


KEPT: list[list[bool]] = []
"""After each failure: whether the wrapped models that its traceback keeps have their reducer."""


def failing_engine(action: Callable[[], None], *, where: int) -> str:
    """Let the second trial do something in one of the processes, in the middle of a step."""
    ran: list[Trial] = []
    plain = training.step_losses

    def step_that_fails(*given: Any, **named: Any) -> Any:
        if len(ran) == 2 and engine.current_group().rank == where:
            action()
        return plain(*given, **named)

    def trial_that_fails(store: gt.GraphStore, trial: Trial, *others: Any, **named: Any) -> Any:
        ran.append(trial)
        return run_trial(store, trial, *others, **named)

    def work() -> None:
        try:
            with engine.join_group() as group:
                run_engine(group)
        except BaseException:
            wrapped = [each for each in gc.get_objects() if type(each) is DistributedDataParallel]
            KEPT.append([hasattr(each, "reducer") for each in wrapped])
            raise

    engine.run_trial, training.step_losses = trial_that_fails, step_that_fails
    try:
        return message_of((TrialError, engine.GroupError, KeyboardInterrupt), work)
    finally:
        engine.run_trial, training.step_losses = run_trial, plain


def no_luck() -> None:
    raise ValueError("no luck")


def interrupted() -> None:
    raise KeyboardInterrupt


def gone() -> None:
    os._exit(9)


class Reporting(Silent):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def trial_started(self, trial: Trial) -> None:
        self.heard.append(trial.method)

    def epoch_finished(self, epoch: int, epochs: int, validation_score: float) -> None:
        assert 0 <= validation_score <= 1
        self.heard.append(f"{epoch}/{epochs}")


def other_data(group: engine.Group) -> None:
    if group.rank:
        engine.serve(lambda: motifs(47))
    else:
        run_engine(group)


def joined_other_data() -> None:
    with engine.join_group() as group:
        other_data(group)


def wrong_parts() -> None:
    with engine.join_group() as group:
        if group.rank == 0:
            settings = replace(SETTINGS, parts=3)
            engine.run_distributed(
                motifs(12),
                TRIALS,
                settings,
                fingerprint="",
                source="",
                finish=print,
                reporter=Silent(),
            )
        else:
            engine.serve(motifs)


def main(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    threads = torch.get_num_threads()
    found: dict[str, Any] = {"reporter": Reporting()}
    with engine.join_group() as group:
        assert (group.rank, group.size, torch.get_num_threads()) == (rank, 2, 1)
        for name, action in ALONE.items():
            found[name] = action()
        found.update(endings(rank))
        found["again"] = message_of(GraphTransplantError, lambda: engine.join_group().__enter__())
    assert torch.get_num_threads() == threads
    with engine.join_group() as group:  # the same processes meet again
        found["records"] = run_engine(group, reporter=found["reporter"])
    found["reporter"] = found["reporter"].heard
    anything = (GraphTransplantError, engine.GroupError, TrialError)
    found["other data"] = message_of(anything, joined_other_data)
    found["wrong parts"] = message_of(anything, wrong_parts)
    for where in (0, 1):
        found[f"failure in {where}"] = failing_engine(no_luck, where=where)
    found["interrupted"] = failing_engine(interrupted, where=0)
    found["kept"] = list(KEPT)
    torch.save(found, folder / f"{rank}.pt")
    found["gone"] = failing_engine(gone, where=1)
    torch.save(found, folder / f"{rank}.pt")


# ------------------------------------------------------------------ the tests


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# Every connection to the store looks up the name of its other end. Without an answer that would
# take ten seconds each, and a line that tells so.
QUICK_LOOKUP = {"RES_OPTIONS": "timeout:1 attempts:1"}
NO_NAME = "The hostname of the client socket cannot be retrieved"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes found."""
    folder = tmp_path_factory.mktemp("two")
    common = {
        **os.environ,
        **QUICK_LOOKUP,
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    files = [folder / f"{rank}.txt" for rank in range(2)]
    processes = []
    try:
        for rank, file in enumerate(files):
            with file.open("w") as printed:
                process = subprocess.Popen(
                    [sys.executable, __file__, str(folder)],
                    env={**common, "RANK": str(rank)},
                    stdout=printed,
                    stderr=subprocess.STDOUT,
                )
            processes.append(process)
        for process in processes:
            process.wait(timeout=LIMIT + 30)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    texts = [file.read_text() for file in files]
    # The second process ends itself at the very end.
    assert [process.returncode for process in processes] == [0, 9], "\n".join(texts)
    assert [line for text in texts for line in text.splitlines() if NO_NAME not in line] == []
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.fixture(scope="module")
def one() -> dict[str, Any]:
    """What this process finds alone."""
    return {name: action() for name, action in ALONE.items()}


@pytest.mark.parametrize("method", METHODS[:3])
def test_gradients_are_those_of_one_process(method: str, one: Any, two: Any) -> None:
    name = f"gradients {method}"
    for found in two:
        torch.testing.assert_close(found[name], one[name], rtol=1e-4, atol=1e-7)
    assert all(gradient is not None for gradient in one[name])
    assert max(float(gradient.abs().max()) for gradient in one[name]) > 1e-3


def test_gradients_of_plain_training_are_those_of_the_whole_batch(one: Any, two: Any) -> None:
    # Without dropout and mixing the pieces know nothing of one another: no cut can be seen.
    whole = gradients("vanilla", dropout=0.0, parts=1)
    for found in (one, *two):
        torch.testing.assert_close(found["plain gradients"], whole, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", [*(f"fit {method}" for method in METHODS), "foreign", "sometimes"])
def test_whole_trainings_are_those_of_one_process(name: str, one: Any, two: Any) -> None:
    for found in two:
        torch.testing.assert_close(
            found[name]["weights"], one[name]["weights"], rtol=1e-3, atol=1e-5
        )
        assert found[name]["end"] == one[name]["end"]
        assert len(found[name]["history"]) == len(one[name]["history"]) == 3
        for here, there in zip(one[name]["history"], found[name]["history"], strict=True):
            assert here["measurements"] == pytest.approx(there["measurements"], abs=1e-6)
            numbers = {key: value for key, value in here.items() if key != "measurements"}
            assert numbers == pytest.approx({key: there[key] for key in numbers}, rel=1e-3)


@pytest.mark.parametrize("name", [*(f"fit {method}" for method in METHODS), "foreign", "sometimes"])
def test_all_processes_end_with_the_same_weights_to_the_bit(name: str, two: Any) -> None:
    first, second = (found[name]["weights"] for found in two)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)
    for key in ("history", "end"):
        assert json.dumps(two[0][name][key]) == json.dumps(two[1][name][key])


def test_measurements_and_running_statistics_were_at_stake(one: Any) -> None:
    kept = [log["measurements"]["kept_share"] for log in one["fit m-evolve"]["history"]]
    assert any(0 < share < 1 for share in kept)
    assert float(one["foreign"]["weights"]["0.norm.running_mean"].abs().max()) > 0.01


def test_a_parameter_was_used_in_some_pieces_of_some_steps_only(one: Any, two: Any) -> None:
    used = one["sometimes"]["used"]
    flags = iter(used)
    steps = [list(islice(flags, pieces)) for _ in range(3) for pieces in (4, 4, 4, 4, 1)]
    assert sum(len(step) for step in steps) == len(used)
    assert [False] in steps[5:], "nor in one that the second process has no piece of"
    assert any(not any(step) for step in steps), "in one step by nobody"
    assert any(any(step[:2]) and not any(step[2:]) for step in steps), "by the first process alone"
    assert any(any(step[2:]) and not any(step[:2]) for step in steps), "by the second alone"
    assert any(step[2] and not step[3] for step in steps), "before the last piece, not in it"
    shared = [found["sometimes"]["used"] for found in two]
    assert [flag for step in steps for flag in step[:2]] == shared[0]
    assert [flag for step in steps for flag in step[2:]] == shared[1]


def test_parts_must_fit_the_processes(two: Any) -> None:
    for found in two:
        for name, parts in (("one part", 1), ("three parts", 3)):
            assert found[name] == (
                "GraphTransplantError: 2 processes train together: `parts` must be 2 or a multiple "
                f"of it, got {parts}"
            )


def test_a_callback_that_raises_ends_all_processes(two: Any) -> None:
    assert two[0]["callback"] == "KeyboardInterrupt: enough"
    assert two[1]["callback"] == (
        "EndedElsewhereError: another process of the group ended the training"
    )
    assert two[0]["shown"] == [1, 2]
    assert two[1]["shown"] == [], "only the first process calls back"
    assert [found["after"] for found in two] == [4, 4]


def test_a_loss_that_is_no_number_ends_all_processes(two: Any) -> None:
    for found in two:
        assert "the training loss is not a finite number in epoch 1" in found["not finite"]


# What a rounding may turn over (a bin, the order of two nodes, a drawn edge), and times.
UNSTEADY = (
    *("seconds", "cost", "curve", "reliability", "reliability_calibrated"),
    *("saliency_curve", "samples", "examples"),
)


def values(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in UNSTEADY}


def test_the_engine_gives_the_records_of_one_process(two: Any) -> None:
    store = motifs(48)
    given = {"fingerprint": store.fingerprint(), "source": "motifs"}
    alone = [run_trial(store, trial, SETTINGS, **given) for trial in TRIALS]
    assert len(two[0]["records"]) == len(alone) == 4
    assert two[1]["records"] == []
    for here, there in zip(alone, two[0]["records"], strict=True):
        assert here.keys() == there.keys()
        parts = ("validation", "test", "calibrated", "saliency")
        for part in parts:
            assert here[part] == pytest.approx(
                there[part], rel=1e-2 if part == "saliency" else 1e-3
            )
        assert {k: v for k, v in values(here).items() if k not in parts} == {
            k: v for k, v in values(there).items() if k not in parts
        }
        for point, other in zip(here["curve"], there["curve"], strict=True):
            assert point.keys() == other.keys()
            assert point["train_loss"] == pytest.approx(other["train_loss"], rel=1e-3)


def test_the_first_process_reports(two: Any) -> None:
    heard = [name for t in TRIALS for name in (t.method, "1/3", "2/3", "3/3")]
    assert two[0]["reporter"] == heard
    assert two[1]["reporter"] == []


def test_a_trial_that_fails_anywhere_ends_all_processes(two: Any) -> None:
    name = f"trial {TRIALS[1]} failed: ValueError: no luck"
    assert two[0]["failure in 0"] == f"TrialError: {name}"
    assert two[1]["failure in 0"] == f"GroupError: in process 0, {name}"
    assert two[0]["failure in 1"] == f"TrialError: in process 1, {name}"
    assert two[1]["failure in 1"] == f"TrialError: {name}"


def test_no_reducer_outlives_its_group(two: Any) -> None:
    # As the last owner of the group it could wait forever, see `close` in training.py.
    for found in two:
        assert len(found["kept"]) == 3
        assert any(found["kept"]), "some traceback kept a wrapped model"
        assert not any(flag for flags in found["kept"] for flag in flags)


def test_interrupting_the_first_process_ends_the_others(two: Any) -> None:
    assert two[0]["interrupted"] == "KeyboardInterrupt: "
    assert two[1]["interrupted"] == "GroupError: process 0 of the group has ended: interrupted"


def test_a_process_that_is_killed_ends_the_first(two: Any) -> None:
    assert two[0]["gone"].startswith(f"TrialError: trial {TRIALS[1]} failed: ")
    assert "another process of the group is gone: it was ended from outside" in two[0]["gone"]


def test_processes_must_read_the_same_data(two: Any) -> None:
    assert two[1]["other data"].startswith(
        "GraphTransplantError: process 1 has read other data than the first one: its fingerprint is"
    )
    assert "process 1 has read other data" in two[0]["other data"]


def test_the_engine_refuses_parts_that_do_not_fit(two: Any) -> None:
    expected = "2 processes train together: `parts` must be 2 or a multiple of it, got 3"
    assert two[0]["wrong parts"] == f"GraphTransplantError: {expected}"
    assert two[1]["wrong parts"] == (
        f"GroupError: process 0 of the group has ended: GraphTransplantError: {expected}"
    )


def test_a_group_is_joined_once(two: Any) -> None:
    for found in two:
        assert found["again"] == "GraphTransplantError: this process has joined a group already"


def test_without_torchrun_the_way_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "0")
    with (
        pytest.raises(
            GraphTransplantError,
            match=r"WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not set\): start it with `torchrun",
        ),
        engine.join_group(),
    ):
        pass
    for action in (lambda: engine.serve(motifs), engine.current_group):
        with pytest.raises(GraphTransplantError, match="engine torchrun needs the processes"):
            action()


def test_a_process_whose_group_does_not_come_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    port = str(free_port())
    given = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(engine, "_PATIENCE", timedelta(seconds=0.5))
    expected = f"process 0 has not met the 1 others of its group at 127.0.0.1:{port} "
    with pytest.raises(engine.GroupError, match=expected), engine.join_group():
        pass
    assert not torch.distributed.is_initialized()


def test_example_runs() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", "2", str(ROOT / "examples" / "distributed.py"), "--epochs", "3"),
        ],
        env={**os.environ, **QUICK_LOOKUP, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *epochs, last = done.stdout.splitlines()
    losses = [float(line.split()[3]) for line in epochs]
    assert len(losses) == 3, "one process prints"
    assert losses[-1] < losses[0]
    assert last.startswith("2 processes, best epoch ")


if __name__ == "__main__":
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    torch.set_num_threads(2)  # joining a group must set its own number, and set this one again
    main(Path(sys.argv[1]))
