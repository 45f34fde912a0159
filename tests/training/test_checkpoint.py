"""A training that ends half-way goes on to the very weights it would have had."""

from __future__ import annotations

import io
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import ExponentialLR, OneCycleLR, ReduceLROnPlateau

import graph_transplant as gt
from graph_transplant.augment import DropNodes, build_method
from graph_transplant.config import FitConfig
from graph_transplant.config.recipes import RECIPES
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.methods import expand_methods
from graph_transplant.training import EpochLog, FitResult, checkpoint, loop
from graph_transplant.training.checkpoint import CheckpointError, settings_of
from graph_transplant.training.loop import fit_with
from helpers.foreign_models import Foreign
from helpers.strategies import generator, motifs_for, random_batch, rings_and_stars


class EndedError(Exception):
    """Stands for whatever ends a process."""


def end_at(epoch: int) -> Callable[[EpochLog], None]:
    def callback(log: EpochLog) -> None:
        if log.epoch == epoch:
            raise EndedError

    return callback


@pytest.fixture(autouse=True)
def _after_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)


def two(seed: int = 0) -> gt.GraphStore:
    return rings_and_stars(18, seed=seed, name="two")


def train(
    store: gt.GraphStore,
    method: str = "vanilla",
    *,
    weights: int = 0,
    hidden: int = 8,
    conv: str = "gcs",
    recipe: str = "paper",
    **settings: Any,
) -> tuple[FitResult, list[nn.Module]]:
    """A training of seven epochs in which patience and the learning rate have their say."""
    network = RECIPES[recipe].network() | {"hidden": hidden}
    model = gt.GraphClassifier.for_data(store, conv=conv, layers=2, seed=weights, **network)
    augment = build_method(method, model, seed=weights)
    given = {"seed": 0, "epochs": 7, "batch_size": 8, "learning_rate": 0.01, "decay_patience": 2}
    if recipe == "strong":
        given |= RECIPES[recipe].fitting(epochs=7, learning_rate=0.01)
    cut = len(store) * 2 // 3
    validation = store.subset(range(cut, len(store)))
    result = gt.fit(model, store.subset(range(cut)), validation, augment, **{**given, **settings})
    return result, [model, *augment]


def assert_same(one: tuple[FitResult, list[Any]], other: tuple[FitResult, list[Any]]) -> None:
    def without_seconds(result: FitResult) -> list[str]:
        # As text: NaN is not equal to itself.
        return [repr({**asdict(log), "seconds": 0.0}) for log in result.history]

    assert without_seconds(one[0]) == without_seconds(other[0])
    assert one[0].best_epoch == other[0].best_epoch
    assert one[0].stopped_early == other[0].stopped_early
    for first, second in zip(one[1], other[1], strict=True):
        left, right = first.state_dict(), second.state_dict()
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left)


RUNS = [(method, "paper") for method in sorted(expand_methods(["all"]))]


@pytest.mark.parametrize(
    ("method", "recipe"), [*RUNS, ("vanilla", "strong"), ("transplant-ep", "strong")]
)
def test_an_ended_training_goes_on_to_the_same_weights(
    method: str, recipe: str, tmp_path: Path
) -> None:
    store, file = motifs_for(method, 36), tmp_path / "deep" / "run"
    training_of = partial(train, recipe=recipe)
    whole = training_of(store, method)
    state = torch.get_rng_state()
    for epoch in (3, 5):
        with pytest.raises(EndedError):
            training_of(store, method, checkpoint=file, callbacks=[end_at(epoch)])
    seen: list[int] = []
    # Other weights to start with: what counts is in the file.
    watch = [lambda log: seen.append(log.epoch)]
    assert_same(whole, training_of(store, method, weights=9, checkpoint=file, callbacks=watch))
    assert seen == [5, 6, 7]  # epoch 5 ended before it was written
    assert torch.equal(torch.get_rng_state(), state)
    # It is finished: the same call has nothing to do.
    assert_same(whole, training_of(store, method, checkpoint=file, callbacks=[end_at(1)]))
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def with_targets(task: str) -> gt.GraphStore:
    y = torch.randn(36, 2, generator=generator(1))
    if task == "multilabel":
        y = (y > 0.2).float()
    y[::5, 1] = math.nan
    return rings_and_stars(36, seed=0, name=task, y=y, task=task)


def focal(logits: Tensor, targets: Tensor) -> Tensor:
    loss = cross_entropy(logits, targets, reduction="none")
    return (1 - (-loss).exp()).square() * loss


SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)


# Saliency is looked at in the first batch: that of a training which goes on is a later one.
@pytest.mark.filterwarnings("ignore:node saliency is the same")
@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("multilabel", {"metric": "auroc", "balance": True}),
        ("regression", {"metric": "r2"}),
        ("regression", {"loss_fn": lambda z, y: (z - y).nan_to_num().abs().mean(1)}),
        (
            "multiclass",
            {"ties": "reset", "epochs": 12, "stop_patience": 3, "patience_unit": "epochs"},
        ),
        ("multiclass", {"ties": "loss", "loss_fn": focal, "optimizer": SGD}),
        (
            "multiclass",
            {
                "class_weight": torch.tensor([1.0, 3.0]),
                "scheduler": partial(ReduceLROnPlateau, patience=0),
            },
        ),
        (
            "multiclass",
            {"optimizer": SGD, "scheduler": partial(OneCycleLR, max_lr=0.1, total_steps=8)},
        ),
    ],
)
def test_every_task_and_setting_goes_on(
    task: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    store = rings_and_stars(36, seed=0, name="two") if task == "multiclass" else with_targets(task)
    whole = train(store, "transplant-ep", **settings)
    if "scheduler" in settings:
        rates = [log.learning_rate for log in whole[0].history]
        assert len({rates[0], rates[4], rates[6]}) == 3, "the rate must change before and after"
    file = tmp_path / "run"
    with pytest.raises(EndedError):
        train(store, "transplant-ep", checkpoint=file, callbacks=[end_at(5)], **settings)
    assert_same(whole, train(store, "transplant-ep", checkpoint=file, **settings))


def test_foreign_models_with_buffers_and_shared_weights_go_on(tmp_path: Path) -> None:
    store = gt.GraphStore.from_pyg(random_batch(generator(0)).to_data_list())

    def trained(**settings: Any) -> tuple[FitResult, list[nn.Module]]:
        model = Foreign(8, nn.BatchNorm1d(8))
        model.out_again = model.out  # shared weights
        given = {"seed": 0, "epochs": 5, "batch_size": 3, **settings}
        return gt.fit(model, store, store, DropNodes(), **given), [model]

    whole = trained()
    with pytest.raises(EndedError):
        trained(checkpoint=tmp_path / "run", callbacks=[end_at(4)])
    assert_same(whole, trained(checkpoint=tmp_path / "run"))


KILLED = """
import sys, time
sys.path.insert(0, {tests!r})
from training import test_checkpoint as here
from graph_transplant.training import loop as training
training.CHECKPOINT_SECONDS = 0.0
here.train(here.two(), "transplant-ep", checkpoint={file!r},
           callbacks=[lambda log: (print(log.epoch, flush=True), time.sleep(0.2))])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.filterwarnings("ignore:node saliency is the same")
def test_a_killed_process_leaves_a_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    file = tmp_path / "run"
    code = KILLED.format(tests=str(Path(__file__).parents[1]), file=str(file))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.strip() == "4":
                child.kill()
        assert child.wait() == -signal.SIGKILL
    seen: list[int] = []
    resumed = train(
        two(), "transplant-ep", checkpoint=file, callbacks=[lambda log: seen.append(log.epoch)]
    )
    # Epoch 4 was told of before it was written down.
    assert seen in ([4, 5, 6, 7], [5, 6, 7])
    assert_same(train(two(), "transplant-ep"), resumed)


def whole(returned: Tensor) -> Tensor:
    return returned


def test_a_checkpoint_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    # After four of seven epochs, written before `FitConfig` and before `output` was recorded.
    file, seen = tmp_path / "run", []
    file.write_bytes((Path(__file__).parents[1] / "golden" / "checkpoint-2.pt").read_bytes())
    given: dict[str, Any] = {
        "optimizer": SGD,
        "scheduler": partial(ExponentialLR, gamma=0.5),
        "class_weight": torch.tensor([1.0, 3.0]),
        "graph_weight": [1.0, 2.0] * 6,
        "balance": True,
        "metric": "auroc",
        "ties": "loss",
        "output": whole,
        "hidden": 4,
    }
    result, _ = train(
        two(),
        "drop-nodes",
        checkpoint=file,
        callbacks=[lambda log: seen.append(log.epoch)],
        **given,
    )
    assert seen == [5, 6, 7]
    uninterrupted, _ = train(two(), "drop-nodes", **given)
    for name in ("train_loss", "validation_loss", "learning_rate"):
        losses, expected = (
            [getattr(log, name) for log in run.history] for run in (result, uninterrupted)
        )
        assert losses == pytest.approx(expected, rel=1e-4)


# ------------------------------------------------------------------ what is refused


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The checkpoint of a training of two epochs."""
    file = tmp_path_factory.mktemp("begun") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
        with pytest.raises(EndedError):
            train(two(), "drop-nodes", checkpoint=file, optimizer=SGD, callbacks=[end_at(3)])
    return file.read_bytes()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 8}, "`epochs` is 7 there and 8 here"),
        ({"metric": "auroc"}, '`metric` is "accuracy" there and "auroc" here'),
        ({"hidden": 9}, r"`model\.\S+_features` is 8 there and 9 here"),
        ({"method": "drop-nodes:ratio=0.4"}, "`augment.0.ratio` is 0.2 there and 0.4 here"),
        ({"method": "vanilla"}, r"`augment` is .*DropNodes.* there and \[\] here"),
        ({"loss_fn": focal}, "`loss_fn` is null there and .*focal.* here"),
        ({"class_weight": torch.ones(2)}, r"`class_weight` is null there and .*1\.0.* here"),
        ({"optimizer": partial(SGD, lr=0.1)}, "`optimizer.lr` is 0.05 there and 0.1 here"),
        ({"store": two(1)}, "`train.fingerprint` is .*there and .*here"),
    ],
)
def test_the_checkpoint_of_another_training_is_refused(
    settings: dict[str, Any], message: str, begun: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "run"
    file.write_bytes(begun)
    given = {"store": two(), "method": "drop-nodes", "checkpoint": file, "optimizer": SGD}
    with pytest.raises(
        GraphTransplantError,
        match=f"{file} is the checkpoint of another training: {message}; delete it to start over",
    ):
        train(**{**given, **settings})
    assert file.read_bytes() == begun


@dataclass(frozen=True, kw_only=True, eq=False)
class _WithAnother(FitConfig):
    another: float = 0.5


def test_an_option_that_is_added_belongs_to_a_training(tmp_path: Path) -> None:
    store, file = two(), tmp_path / "run"

    def trained(**options: Any) -> FitResult:
        model = gt.GraphClassifier.for_data(store, hidden=4, layers=1, seed=0)
        config = _WithAnother(seed=0, epochs=1, **options)
        return fit_with(config, model, store, store, checkpoint=file)

    for _ in range(2):
        trained(another=0.5)
    with pytest.raises(CheckpointError, match=r"`another` is 0\.5 there and 0\.7 here"):
        trained(another=0.7)


def test_the_output_belongs_to_a_training(tmp_path: Path) -> None:
    file = tmp_path / "run"
    train(two(), checkpoint=file, output=whole)
    with pytest.raises(CheckpointError, match=r"`output.function` is .whole. there and"):
        train(two(), checkpoint=file, output=focal)


def test_settings_in_containers_belong_to_a_training() -> None:
    one, other = (settings_of(partial(focal, power={"of": np.int64(each)})) for each in (1, 2))
    assert one != other


def test_a_damaged_file_is_named(begun: bytes, tmp_path: Path) -> None:
    file = tmp_path / "run"
    file.write_bytes(begun)
    identity = torch.load(file, weights_only=True)["identity"]
    sound = repr(checkpoint.read(file, identity))
    for damaged in (
        b"",
        b"not a checkpoint",
        *(begun[:cut] for cut in (5, 100, -1, len(begun) // 2)),
    ):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=f"{file} is damaged, or not a checkpoint; delete it"):
            train(two(), "drop-nodes", checkpoint=file, optimizer=SGD)
    found = 0
    for place in range(0, len(begun), 97):
        file.write_bytes(begun[:place] + bytes([begun[place] ^ 1]) + begun[place + 1 :])
        try:
            assert repr(checkpoint.read(file, identity)) == sound  # a byte that fills up
        except DataError:
            found += 1
    assert found > 50
    torch.save({"format": "graph-transplant checkpoint 1", "identity": {}, "state": {}}, file)
    with pytest.raises(DataError, match="is not a checkpoint of this version"):
        checkpoint.read(file, {})


def test_a_checkpoint_that_lacks_something_is_named(begun: bytes, tmp_path: Path) -> None:
    file = tmp_path / "run"
    for path, message in (
        (("optimizer",), "does not fit the training: 'optimizer'"),
        (("modules", 0, "head.0.weight"), "(?s)does not fit the training: .*head.0.weight"),
    ):
        file.write_bytes(begun)
        content = torch.load(file, weights_only=True)
        *outer, last = path
        place = content["state"]
        for key in outer:
            place = place[key]
        del place[last]
        torch.save(content, file)
        with pytest.raises(DataError, match=message):
            train(two(), "drop-nodes", checkpoint=file, optimizer=SGD)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("state", "best"), [{}]),
        (("state", "best", 0, "head.0.weight"), torch.zeros(())),
        (("state", "best_epoch"), "one"),
        (("state", "iterations"), [1]),
        (("state", "history", 0, "train_loss"), "low"),
        (("state", "history", 0), 7),
        (("state", "patience"), [(("x", "y"), 0)] * 2),
        (("state", "optimizer", "state"), {0: {"exp_avg": torch.zeros(1, 1)}}),
        (("state", "optimizer", "state"), {0: 3}),
        (("state", "optimizer", "param_groups", 0, "lr"), "fast"),
        (("state",), 5),
        (("identity",), torch.zeros(2)),
        (("identity", "model"), torch.zeros(2)),
    ],
    ids=str,
)
def test_a_checkpoint_with_other_contents_is_refused_in_one_line(
    path: tuple[Any, ...], value: Any, begun: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "run"
    file.write_bytes(begun)
    content = torch.load(file, weights_only=True)
    place: Any = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    torch.save(content, file)
    with pytest.raises(DataError, match="delete it to start over") as caught:
        train(two(), "drop-nodes", checkpoint=file, optimizer=SGD)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_that_unpacks_to_far_more_is_refused(begun: bytes, tmp_path: Path) -> None:
    file = tmp_path / "run"
    with ZipFile(io.BytesIO(begun)) as old, ZipFile(file, "w", ZIP_DEFLATED) as new:
        for number, member in enumerate(old.namelist()):
            new.writestr(member, old.read(member) + b"\0" * (number < 4) * (64 << 20))
    assert file.stat().st_size < 1 << 21
    with pytest.raises(DataError, match="is damaged, or not a checkpoint; delete it to start over"):
        train(two(), "drop-nodes", checkpoint=file, optimizer=SGD)
    # Lists in lists that are the same: short in the file, without end as text.
    deep: Any = []
    for _ in range(60):
        deep = [deep, deep]
    torch.save({"format": "graph-transplant checkpoint 2", "identity": deep, "state": {}}, file)
    with pytest.raises(DataError, match="is the checkpoint of another training"):
        checkpoint.read(file, {"seed": 0})
    identity = {"identity": {"seed": deep}, "format": "graph-transplant checkpoint 2", "state": {}}
    torch.save(identity, file)
    with pytest.raises(DataError, match=r"`seed` is .* there and 0 here"):
        checkpoint.read(file, {"seed": 0})


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    (tmp_path / f"run.{os.getpid()}.part").symlink_to("/dev/full")
    with pytest.raises(
        GraphTransplantError, match=r"cannot write the checkpoint .*run: No space left on device$"
    ):
        train(two(), checkpoint=tmp_path / "run")


def test_files_that_cannot_be_read_or_written_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> None:
        raise OSError("No space left on device")

    with pytest.raises(GraphTransplantError, match=r"cannot read the checkpoint .*directory"):
        train(two(), checkpoint=tmp_path)
    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(GraphTransplantError, match=r"cannot write the checkpoint .*run: No space"):
        train(two(), checkpoint=tmp_path / "run")
    assert not list(tmp_path.iterdir())
