"""Event files, read back with TensorBoard's own reader."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import graph_transplant as gt
from graph_transplant.augment import build_method
from graph_transplant.errors import GraphTransplantError
from graph_transplant.training import EpochLog, TensorBoard


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every point of a run by name; nothing is thinned out."""
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return {
        tag: [(event.step, event.value) for event in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
    }


def log(epoch: int, **fields: Any) -> EpochLog:
    names = [one.name for one in dataclasses.fields(EpochLog)]
    whole = {"epoch": epoch, "iterations": epoch, "measurements": {}}
    return EpochLog(**{**dict.fromkeys(names, 0.5), **whole, **fields})


def test_every_epoch_of_a_training_is_drawn(tmp_path: Path) -> None:
    store = gt.load("motifs", graphs=36)
    train, validation = store.subset(range(24)), store.subset(range(24, 36))
    model = gt.GraphClassifier.for_data(train, hidden=8, seed=0)
    method = build_method("transplant-ep", model, seed=1)
    board, on_disk = TensorBoard(tmp_path / "runs" / "mine"), []
    callbacks = [board, lambda _: on_disk.append(len(scalars(board.directory)["loss/train"]))]
    assert not board.directory.exists()
    with board:
        result = gt.fit(model, train, validation, method, seed=0, epochs=3, callbacks=callbacks)
    assert on_disk == [1, 2, 3]
    found = scalars(board.directory)
    losses = ("train", "clean", "virtual", "auxiliary", "validation")
    wanted = {f"loss/{part}": f"{part}_loss" for part in losses} | {
        "validation/accuracy": "validation_accuracy",
        "validation/score": "validation_score",
        "learning_rate": "learning_rate",
    }
    for tag, name in wanted.items():
        assert found[tag] == [
            (one.epoch, pytest.approx(getattr(one, name), rel=1e-6)) for one in result.history
        ]
    measured = "edge_predictor_accuracy"
    assert found[f"measurements/{measured}"] == [
        (one.epoch, pytest.approx(one.measurements[measured], rel=1e-6)) for one in result.history
    ]
    assert set(found) == {*wanted, f"measurements/{measured}"}


def test_a_training_that_goes_on_replaces_what_was_cut_short(tmp_path: Path) -> None:
    first = TensorBoard(tmp_path)
    for epoch in (1, 2, 3):
        first(log(epoch, train_loss=float(epoch), validation_accuracy=math.nan))
    first.close()
    first.close()
    time.sleep(1.1)  # TensorBoard orders the files of a run by the second of their names
    with TensorBoard(tmp_path) as second:
        for epoch in (3, 4):
            second(log(epoch, train_loss=10.0 * epoch))
    found = scalars(tmp_path)
    assert found["loss/train"] == [(1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0)]
    # What is not a number has no point.
    assert [step for step, _ in found["validation/accuracy"]] == [3, 4]


def test_members_of_an_ensemble_are_runs_of_their_own(tmp_path: Path) -> None:
    store = gt.load("motifs", graphs=60)
    with TensorBoard(tmp_path) as board:
        quick = {"hidden": 8, "epochs": 2, "method": "vanilla", "forest": False}
        gt.train(store, ensemble=2, callbacks=[board], **quick)
    for folder in (tmp_path, tmp_path / "member-2"):
        assert [step for step, _ in scalars(folder)["loss/train"]] == [1, 2]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(GraphTransplantError, match=r"cannot write .*taken"):
        TensorBoard(tmp_path / "taken" / "run")(log(1))
    assert (tmp_path / "taken").read_text() == "a file"


def test_a_missing_extra_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    message = r"needs the package tensorboard: pip install graph-transplant\[tensorboard\]"
    with pytest.raises(GraphTransplantError, match=message):
        TensorBoard(tmp_path)
