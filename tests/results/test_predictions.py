"""Predictions of trials: written before the record, read back, and equal to what was measured."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score

import graph_transplant as gt
from graph_transplant.data.targets import as_targets
from graph_transplant.metrics import METRICS, TASKS, Metric, measure
from graph_transplant.results.predictions import path_of, read_predictions
from graph_transplant.results.record_file import RecordStore
from helpers.made_up_records import IDENTITY, PREDICTED, SETTINGS, record

TINY = {"epochs": 2, "folds": 3, "train_fraction": 0.2}


def molecules(target: str) -> pd.DataFrame:
    smiles = [f"{'C' * (1 + n % 5)}{'O' * (n % 2)}{'N' * (n % 3)}" for n in range(36)]
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"smiles": smiles, "y": [n % 2 for n in range(36)]})
    if target == "several":
        table["z"] = rng.integers(0, 2, 36).astype(float)
        table.loc[::7, "y"] = np.nan
    elif target == "value":
        table["y"] = rng.normal(40, 10, 36)
    return table


GIVEN = {"folds": 3, "epochs": 2}
TABLE = {"smiles": "smiles", **GIVEN}
COMPARISONS = {
    "classes": (
        "motifs",
        {"methods": ["vanilla", "structure-blind"], "train_fraction": 0.2} | GIVEN,
    ),
    "labels": (
        molecules("several"),
        {"methods": ["vanilla", "forest", "wl-svm"], "target": ["y", "z"]} | TABLE,
    ),
    "values": (
        molecules("value"),
        {"methods": ["transplant-dp", "forest", "majority"], "target": "y"} | TABLE,
    ),
}


@pytest.mark.parametrize("kind", COMPARISONS)
def test_recorded_metrics_are_those_of_the_predictions(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Metric("Largest", "", lambda out, *_: float(out.max()), TASKS)
    monkeypatch.setitem(METRICS, "largest", own)
    data, options = COMPARISONS[kind]
    results = gt.compare(data, out=tmp_path, **options)
    for item in results.records:
        kept = read_predictions(path_of(tmp_path, item.trial))
        assert kept is not None
        for name, part in kept.parts.items():
            output = torch.from_numpy(part.output)
            targets = as_targets(torch.from_numpy(part.target), output.shape[1])
            measured = measure(output, targets, item.task)
            assert {k: v for k, v in measured.items() if v == v} == {
                k: v for k, v in getattr(item, name).items() if v is not None
            }
            assert len(part.graph) == getattr(item.sizes, name)
    table = results.predictions()
    tests = table[table["part"] == "test"]
    # Every graph is a test graph once, with its own target.
    for _, part in tests.groupby("method"):
        assert sorted(part["graph"]) == list(range(len(set(table["graph"]))))
    for item in results.records:
        rows = tests[(tests["method"] == item.method) & (tests["fold"] == item.fold)].set_index(
            "graph"
        )
        if kind == "classes":
            guess = rows.filter(like="output_").to_numpy().argmax(1)
            assert accuracy_score(rows["target"], guess) == pytest.approx(item.test["accuracy"])
            continue
        assert (rows["row"] == rows.index + 1).all()
        for name in ("y", "z") if kind == "labels" else ("y",):
            assert rows[f"target_{name}"].to_numpy() == pytest.approx(
                data[name].to_numpy()[rows.index], nan_ok=True
            )
        if kind == "values":
            expected = r2_score(rows["target_y"].astype(float), rows["output_y"].astype(float))
            assert item.test["r2"] == pytest.approx(expected)
        else:
            known = rows[rows["target_y"].notna()]
            one = roc_auc_score(known["target_y"], known["output_y"])
            two = roc_auc_score(rows["target_z"], rows["output_z"])
            assert item.test["auroc"] == pytest.approx((one + two) / 2)


def test_predictions_are_there_without_a_directory_and_after_selection(tmp_path: Path) -> None:
    options = {"methods": "drop-nodes", "select": "validation", "train_fraction": 0.2, **GIVEN}
    here = gt.compare("motifs", **options)
    there = gt.compare("motifs", out=tmp_path, **options)
    pd.testing.assert_frame_equal(here.predictions(), there.predictions())
    again = gt.read_results(tmp_path, selection="validation").predictions()
    pd.testing.assert_frame_equal(again, there.predictions())
    assert set(again["method"]) == {"drop-nodes"}
    chosen = there.chosen[0].chosen.method
    every = gt.read_results(tmp_path).predictions()
    alone = every[every["method"] == chosen]
    outputs = (table.filter(like="output_").to_numpy() for table in (alone, again))
    assert np.array_equal(*outputs)


def test_workers_keep_the_same_predictions(tmp_path: Path) -> None:
    found = []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        gt.compare(
            "motifs", methods="vanilla", train_fraction=0.2, out=out, workers=workers, **GIVEN
        )
        found.append({file.name: file.read_bytes() for file in (out / "predictions").iterdir()})
    assert len(found[0]) == 3
    assert found[0] == found[1]


def test_records_without_predictions_stay_valid_and_continue(tmp_path: Path) -> None:
    options = {"methods": ["vanilla"], "train_fraction": 0.2, "out": tmp_path, **GIVEN}
    before = gt.compare("motifs", **options)
    path_of(tmp_path, before.records[0].trial).unlink()
    again = gt.compare("motifs", **options)
    assert again.records == before.records
    assert sorted(set(again.predictions()["fold"])) == [1, 2]
    assert gt.read_results(tmp_path).predictions().shape == again.predictions().shape


def test_a_group_of_results_has_its_predictions(tmp_path: Path) -> None:
    options = {"methods": "vanilla", "layers": [1, 2], "train_fraction": 0.2, **GIVEN}
    there = gt.compare("motifs", out=tmp_path, **options)
    for results in (there, gt.read_results(tmp_path), gt.compare("motifs", **options)):
        every = results.predictions()
        assert set(every["layers"]) == {1, 2}
        for group, part in results.groups.items():
            own = every[every["layers"] == group.layers].reset_index(drop=True)
            pd.testing.assert_frame_equal(part.predictions(), own)
            assert len(own)


def test_workers_know_the_rows_of_a_table(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    found = []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        options = {"target": "y", "methods": "vanilla", "workers": workers, "out": out, **TABLE}
        found.append(gt.compare(molecules("value"), **options).predictions())
    pd.testing.assert_frame_equal(*found)
    assert (found[0]["row"] == found[0]["graph"] + 1).all()


def test_starting_over_keeps_predictions_beside_their_records(tmp_path: Path) -> None:
    for number in range(3):
        with RecordStore(tmp_path).writing(IDENTITY, SETTINGS, fresh=True) as writer:
            (tmp_path / "predictions").mkdir(exist_ok=True)
            (tmp_path / "predictions" / ".x.npz.part").write_text("of a killed process")
            writer.append(record(number), PREDICTED)
    for number, name in enumerate(("predictions-1", "predictions-2")):
        kept = path_of(tmp_path, record(number).trial)
        assert (tmp_path / name / kept.name).exists()
    with RecordStore(tmp_path).writing(IDENTITY, SETTINGS):
        assert [file.suffix for file in (tmp_path / "predictions").iterdir()] == [".npz"]


def test_damaged_predictions_are_named(tmp_path: Path) -> None:
    path = tmp_path / "one.npz"
    assert read_predictions(path) is None
    content = PREDICTED.as_bytes()
    path.write_bytes(content)
    kept = read_predictions(path)
    assert kept is not None
    pd.testing.assert_frame_equal(kept.table(), PREDICTED.table())
    rng = np.random.default_rng(0)
    for number in range(300):
        broken = bytearray(content)
        if number % 2:
            del broken[rng.integers(len(content)) :]
        else:
            broken[rng.integers(len(content))] ^= 1 << rng.integers(8)
        path.write_bytes(bytes(broken))
        try:
            read_predictions(path)  # a flipped bit in a date does no harm
        except gt.GraphTransplantError as problem:
            assert str(path) in str(problem)  # noqa: PT017 - most, but not all, are errors


def test_files_that_claim_too_much_and_objects_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.npz"
    arrays = {"names": np.array(["a"])}
    for part in ("validation", "test"):
        arrays |= {f"{part}_{name}": np.zeros(1, np.int64) for name in ("graph", "row", "target")}
        arrays[f"{part}_output"] = np.zeros((1, 1))
    np.savez(path, **arrays | {"names": np.array([print], dtype=object)})
    with pytest.raises(gt.GraphTransplantError, match="allow_pickle=False"):
        read_predictions(path)
    np.savez(path, **arrays)
    with zipfile.ZipFile(path) as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    header = members["test_graph.npy"].replace(
        b"'shape': (1,), }" + b" " * 12, b"'shape': (999999999999,), }" + b" "
    )
    with zipfile.ZipFile(path, "w") as lying:
        for name, content in (members | {"test_graph.npy": header}).items():
            lying.writestr(name, content)
    with pytest.raises(gt.GraphTransplantError, match="is damaged"):
        read_predictions(path)
