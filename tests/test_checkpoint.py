"""A training that ends half-way goes on to the very weights it would have had."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, global_mean_pool

import graph_transplant as gt
from graph_transplant import training
from graph_transplant.augment import METHODS, build_method
from graph_transplant.checkpoints import Checkpoint, settings_of
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.training import EpochLog
from strategies import motifs_for, random_batch, rings_and_stars


class EndedError(Exception):
    """Stands for whatever ends a process."""


def end_at(epoch: int) -> Any:
    def callback(log: EpochLog) -> None:
        if log.epoch == epoch:
            raise EndedError

    return callback


@pytest.fixture(autouse=True)
def _after_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)


def train(
    store: gt.GraphStore,
    method: str = "vanilla",
    *,
    weights: int = 0,
    hidden: int = 8,
    conv: str = "gcs",
    **settings: Any,
) -> tuple[gt.FitResult, list[Any]]:
    """A training of seven epochs in which patience and the learning rate have their say."""
    model = gt.GraphClassifier.for_data(store, conv=conv, layers=2, hidden=hidden, seed=weights)
    augment = build_method(method, model, seed=weights)
    given = {
        "seed": 0,
        "epochs": 7,
        "batch_size": 8,
        "learning_rate": 0.01,
        "decay_patience": 2,
        "progress": False,
        **settings,
    }
    cut = len(store) * 2 // 3
    validation = store.subset(range(cut, len(store)))
    result = gt.fit(model, store.subset(range(cut)), validation, augment, **given)
    return result, list(augment)


def without_seconds(history: list[EpochLog]) -> list[str]:
    # As text: NaN is not equal to itself.
    return [repr({**asdict(log), "seconds": 0.0}) for log in history]


def assert_same(one: tuple[gt.FitResult, list[Any]], other: tuple[gt.FitResult, list[Any]]) -> None:
    assert without_seconds(one[0].history) == without_seconds(other[0].history)
    assert one[0].best_epoch == other[0].best_epoch
    assert one[0].stopped_early == other[0].stopped_early
    modules = zip((one[0].model, *one[1]), (other[0].model, *other[1]), strict=True)
    for first, second in modules:
        left, right = first.state_dict(), second.state_dict()
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left)


# Methods that learn or keep something go by several epochs; every one of them is ended twice.
@pytest.mark.parametrize("method", sorted(METHODS))
def test_an_ended_training_goes_on_to_the_same_weights(method: str, tmp_path: Path) -> None:
    store = motifs_for(method, 36)
    whole = train(store, method)
    file = tmp_path / "run.safetensors"
    state = torch.get_rng_state()
    for epoch in (3, 5):
        with pytest.raises(EndedError):
            train(store, method, checkpoint=file, callbacks=[end_at(epoch)])
        assert file.is_file()
    seen: list[int] = []
    # Other weights to start with: what counts is in the file.
    resumed = train(
        store, method, weights=9, checkpoint=file, callbacks=[lambda log: seen.append(log.epoch)]
    )
    assert seen == [5, 6, 7]
    assert_same(whole, resumed)
    assert torch.equal(torch.get_rng_state(), state)


def labels() -> gt.GraphStore:
    y = (torch.rand(36, 2, generator=torch.Generator().manual_seed(1)) < 0.4).float()
    y[::5, 1] = math.nan
    return rings_and_stars(36, seed=0, name="labels", y=y, task="multilabel")


def numbers() -> gt.GraphStore:
    y = torch.randn(36, 2, generator=torch.Generator().manual_seed(1))
    y[::5, 1] = math.nan
    return rings_and_stars(36, seed=0, name="numbers", y=y, task="regression")


# Saliency is looked at in the first batch: that of a training which goes on is a later one.
@pytest.mark.filterwarnings("ignore:node saliency is the same")
@pytest.mark.parametrize(
    ("store", "settings"),
    [
        (labels(), {"metric": "auroc", "balance": True}),
        (labels(), {"metric": "average_precision"}),
        (numbers(), {"metric": "r2"}),
        (numbers(), {}),
        (rings_and_stars(36, seed=0, name="two"), {"balance": True, "metric": "auroc"}),
        (rings_and_stars(36, seed=0, name="two"), {"parts": 3}),
        (
            rings_and_stars(36, seed=0, name="two"),
            {"stop_patience": 3, "epochs": 30, "patience_unit": "epochs"},
        ),
    ],
    ids=["labels", "precision", "numbers", "loss", "balance", "pieces", "stopped"],
)
def test_every_task_and_setting_goes_on(
    store: gt.GraphStore, settings: dict[str, Any], tmp_path: Path
) -> None:
    whole = train(store, "transplant-ep", **settings)
    if settings.get("metric") == "r2":
        rates = [log.learning_rate for log in whole[0].history]
        assert rates[0] > rates[4] > rates[6], "the rate must change before the end and after it"
    file = tmp_path / "deep" / "run.safetensors"
    with pytest.raises(EndedError):
        train(store, "transplant-ep", checkpoint=file, callbacks=[end_at(5)], **settings)
    assert_same(whole, train(store, "transplant-ep", checkpoint=file, **settings))
    # It is finished: the same call has nothing to do.
    again = train(store, "transplant-ep", checkpoint=file, callbacks=[end_at(1)], **settings)
    assert_same(whole, again)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


class Foreign(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(3, 8)
        self.norm = nn.BatchNorm1d(8)
        self.out = nn.Linear(8, 8)
        self.out_again = self.out  # shared weights

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.out_again(global_mean_pool(self.norm(self.conv(x, edge_index)).relu(), batch))


def test_foreign_models_with_buffers_and_shared_weights_go_on(tmp_path: Path) -> None:
    store = gt.GraphStore.from_pyg(random_batch(torch.Generator().manual_seed(0)).to_data_list())

    def trained(**settings: Any) -> gt.FitResult:
        torch.manual_seed(0)
        given = {"seed": 0, "epochs": 5, "batch_size": 3, **settings}
        return gt.fit(Foreign(), store, store, gt.DropNodes(), **given)

    whole = trained()
    with pytest.raises(EndedError):
        trained(checkpoint=tmp_path / "run", callbacks=[end_at(4)])
    assert_same((whole, []), (trained(checkpoint=tmp_path / "run"), []))


def test_time_goes_on_too(tmp_path: Path) -> None:
    store = motifs_for("vanilla", 12)
    file = tmp_path / "run"
    with pytest.raises(EndedError):
        train(store, checkpoint=file, callbacks=[lambda log: time.sleep(0.05), end_at(4)])
    result, _ = train(store, checkpoint=file)
    seconds = [log.seconds for log in result.history]
    assert seconds == sorted(seconds)
    assert result.seconds >= seconds[-1] > 0.1


def test_a_checkpoint_is_written_now_and_then_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    real = Checkpoint.write

    def write(self: Checkpoint, path: str | Path) -> None:
        written.append(len(self.state["history"]))
        real(self, path)

    monkeypatch.setattr(Checkpoint, "write", write)
    clock = iter(range(0, 400, 4))
    monkeypatch.setattr(training.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 10.0)
    train(motifs_for("vanilla", 12), checkpoint=tmp_path / "run")
    # The clock is read once per epoch and once per write: 4, 8, 12 seconds after the last.
    assert written == [3, 6, 7]


KILLED = """
import sys, time
sys.path.insert(0, {tests!r})
import test_checkpoint as here
from graph_transplant import training
training.CHECKPOINT_SECONDS = 0.0
print("ready", flush=True)
here.train(here.motifs_for("transplant-ep", 36), "transplant-ep", checkpoint={file!r},
           callbacks=[lambda log: (print(log.epoch, flush=True), time.sleep(0.2))])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_process_leaves_a_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    file = tmp_path / "run.safetensors"
    code = KILLED.format(tests=str(Path(__file__).parent), file=str(file))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.strip() == "4":
                child.kill()
        assert child.wait() == -signal.SIGKILL
    # Epoch 4 was told of before it was written down.
    assert len(Checkpoint.read(file).state["history"]) in (3, 4)
    store = motifs_for("transplant-ep", 36)
    resumed = train(store, "transplant-ep", checkpoint=file)
    assert_same(train(store, "transplant-ep"), resumed)


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 8}, "`epochs` is 7 there and 8 here"),
        ({"batch_size": 9}, "`batch_size` is 8 there and 9 here"),
        ({"seed": 1}, "`seed` is 0 there and 1 here"),
        ({"learning_rate": 0.02}, "`learning_rate` is 0.01 there and 0.02 here"),
        ({"stop_patience": 4}, "`stop_patience` is 1500 there and 4 here"),
        ({"decay_patience": 4}, "`decay_patience` is 2 there and 4 here"),
        ({"patience_unit": "epochs"}, '`patience_unit` is "iterations" there and "epochs" here'),
        ({"metric": "auroc"}, '`metric` is "accuracy" there and "auroc" here'),
        ({"clip_norm": 1.0}, r"`clip_norm` is 2.0 there and 1.0 here"),
        ({"parts": 2}, "`parts` is 1 there and 2 here"),
        ({"balance": True}, "`balance` is false there and true here"),
        ({"hidden": 9}, r"`model\.\S+_features` is 8 there and 9 here"),
        ({"conv": "gin"}, '`model.conv` is "gcs" there and "gin" here'),
        ({"method": "drop-nodes:ratio=0.4"}, "`augment.0.ratio` is 0.2 there and 0.4 here"),
        ({"method": "vanilla"}, r"`augment` is .*DropNodes.* there and \[\] here"),
    ],
)
def test_the_checkpoint_of_another_training_is_refused(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    store = rings_and_stars(18, seed=0, name="two")
    file = tmp_path / "run"
    with pytest.raises(EndedError):
        train(store, "drop-nodes", checkpoint=file, callbacks=[end_at(2)])
    before = file.read_bytes()
    with pytest.raises(
        GraphTransplantError, match=f"{file} is the checkpoint of another training: {message}"
    ):
        train(store, **{"method": "drop-nodes", "checkpoint": file, **settings})
    assert file.read_bytes() == before


def test_the_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run"
    with pytest.raises(EndedError):
        train(rings_and_stars(18, seed=0, name="two"), checkpoint=file, callbacks=[end_at(2)])
    with pytest.raises(
        GraphTransplantError, match=r"`train.fingerprint` is .*there and .*here; delete it"
    ):
        train(rings_and_stars(18, seed=1, name="two"), checkpoint=file)


def test_settings_tell_every_method_from_every_other() -> None:
    store = rings_and_stars(18, seed=0, name="two")
    model = gt.GraphClassifier.for_data(store, hidden=8)
    names = [*METHODS, "transplant-ep:anchor_ratio=0.2", "transplant-ep:pairing=minority"]
    described = {
        json.dumps([settings_of(part) for part in build_method(name, model)]) for name in names
    }
    assert len(described) == len(names)
    # Where things lie in memory and what is learnt does not count.
    for name in names:
        one, other = (
            [settings_of(part) for part in build_method(name, model, seed=seed)] for seed in (0, 1)
        )
        assert one == other


@pytest.mark.parametrize("cut", [0, 5, 100, -1])
def test_a_truncated_file_is_named(cut: int, tmp_path: Path) -> None:
    file = tmp_path / "run"
    Checkpoint({}, {"a": torch.arange(9.0)}, {}).write(file)
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(DataError, match=f"{file} cannot be read as a checkpoint: .*; delete it"):
        Checkpoint.read(file)


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    file = tmp_path / "run"
    Checkpoint({"seed": 0}, {"a": torch.arange(3.0)}, {"history": []}).write(file)
    whole = file.read_bytes()
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DataError, match=str(file)):
            Checkpoint.read(file)


def test_files_of_other_kinds_are_named(tmp_path: Path) -> None:
    file = tmp_path / "run"
    save_file({"a": torch.ones(1)}, file)
    with pytest.raises(DataError, match="is not a checkpoint of this version"):
        Checkpoint.read(file)
    save_file({"a": torch.ones(1)}, file, {"format": "graph-transplant checkpoint 1"})
    with pytest.raises(DataError, match="cannot be read as a checkpoint"):
        Checkpoint.read(file)
    with pytest.raises(DataError, match="there is no checkpoint"):
        Checkpoint.read(tmp_path / "none")
    store = rings_and_stars(18, seed=0, name="two")
    file.write_bytes(b"not a checkpoint")
    model = gt.GraphClassifier.for_data(store, hidden=8, seed=0)
    before = [value.clone() for value in model.state_dict().values()]
    with pytest.raises(DataError, match="cannot be read as a checkpoint"):
        gt.fit(model, store, store, seed=0, epochs=1, checkpoint=file)
    assert all(map(torch.equal, before, model.state_dict().values()))


def test_a_checkpoint_that_lacks_something_is_named(tmp_path: Path) -> None:
    store, file = rings_and_stars(18, seed=0, name="two"), tmp_path / "run"
    with pytest.raises(EndedError):
        train(store, checkpoint=file, callbacks=[end_at(2)])
    found = Checkpoint.read(file)
    for lost, message in (
        ("random.torch", "does not fit the training: KeyError: 'random.torch'"),
        ("model.head.0.weight", "does not fit: .*head.0.weight"),
    ):
        tensors = {key: value for key, value in found.tensors.items() if key != lost}
        Checkpoint(found.identity, tensors, found.state).write(file)
        with pytest.raises(DataError, match=message):
            train(store, checkpoint=file)


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(GraphTransplantError, match=r"cannot be kept in .*run: .*not JSON"):
        Checkpoint({}, {}, {"object": object()}).write(tmp_path / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(GraphTransplantError, match=r"cannot write the checkpoint .*run: "):
        Checkpoint({}, {}, {}).write(tmp_path / "file" / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_checkpoint_holds_tensors_and_json_alone(tmp_path: Path) -> None:
    store, file = rings_and_stars(18, seed=0, name="two"), tmp_path / "run.safetensors"
    train(store, "transplant-ep", checkpoint=file)
    names = {key.split(".")[0] for key in load_file(file)}
    assert names == {"model", "best", "augmentation", "optimizer", "random"}
    assert set(Checkpoint.read(file).state) == {
        "rates",
        "stop",
        "decay",
        "best_epoch",
        "iterations",
        "history",
        "others",
    }
