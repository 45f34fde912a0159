"""Predictions as tables: every row in its place, whole files, flat memory."""

from __future__ import annotations

import csv
import gzip
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

import graph_transplant as gt
from graph_transplant.data import GraphStore
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.models import TrainedModel, predict_table, train
from helpers.strategies import generator

Trained = tuple[TrainedModel, GraphStore]

QUICK: dict[str, Any] = {"method": "vanilla", "forest": False}
QUICK |= {"hidden": 8, "layers": 1, "epochs": 1}
PARTS = ["CCO", "c1ccccc1", "CC(=O)O", "CCN", "C1CCCCC1", "CCCl", "C(=O)N", "CC#N"]


def smiles(number: int) -> str:
    """A molecule of its own for every row."""
    return "N" * (number % 3) + "C" * (1 + number % 13) + PARTS[number % 8]


def written(path: Path, rows: int, *, broken: tuple[int, ...] = ()) -> Path:
    """A table of molecules; the given rows cannot be read."""
    lines = ["name,smiles,active"]
    for number in range(1, rows + 1):
        text = "C1CC(" if number in broken else smiles(number)
        lines.append(f"mol {number},{text},{number % 2}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def molecule_model(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    pytest.importorskip("rdkit")
    path = written(tmp_path_factory.mktemp("train") / "train.csv", 80)
    store = gt.load(path, smiles="smiles", target="active", id="name")
    return train(store, split="random", **QUICK)


@pytest.fixture(scope="module")
def motif_model() -> Trained:
    store = gt.load("motifs", graphs=60)
    return train(store, **QUICK), store


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# -------------------------------------------------------------------- rows


def test_every_row_has_its_place(molecule_model: TrainedModel, tmp_path: Path) -> None:
    broken = (1, 7, 8, 50)
    data = written(tmp_path / "new.csv", 50, broken=broken)
    seen: list[int] = []
    done = predict_table(
        molecule_model, data, tmp_path / "out.csv", rows_per_chunk=7, progress=seen.append
    )
    assert (done.rows, done.predicted, done.failed) == (50, 46, 4)
    assert seen == [7, 14, 21, 28, 35, 42, 49, 50]
    rows = table(tmp_path / "out.csv")
    assert list(rows[0]) == [
        "row", "id", "prediction", "p(0)", "p(1)", "confidence", "set", "similarity", "warning",
        "error",
    ]  # fmt: skip
    assert [row["row"] for row in rows] == [str(k) for k in range(1, 51)]
    assert [row["id"] for row in rows] == [f"mol {k}" for k in range(1, 51)]
    store = gt.load(written(tmp_path / "plain.csv", 50), smiles="smiles", target="active")
    expected = molecule_model.predictions(store).outputs.tolist()
    for row, p in zip(rows, expected, strict=True):
        if int(row["row"]) in broken:
            assert row["error"]
            assert not any(row[name] for name in ("p(0)", "p(1)", "prediction", "confidence"))
        else:
            assert row["error"] == ""
            assert [float(row["p(0)"]), float(row["p(1)"])] == pytest.approx(p, rel=2e-5)
            assert row["p(0)"] == f"{float(row['p(0)']):.6g}"
            assert row["prediction"] == str(int(p[1] > p[0]))
            assert float(row["confidence"]) == pytest.approx(max(p), rel=2e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.csv", "out.csv", "plain.csv"]


def test_smiles_lists_and_data_frames_give_the_same(
    molecule_model: TrainedModel, tmp_path: Path
) -> None:
    texts = ["CCO", "C1CC(", "CCN", ""]
    frame = pd.DataFrame({"smiles": texts, "name": ["a", "b", "c", "d"]})
    frame.to_csv(tmp_path / "new.csv", index=False)
    from_file = molecule_model.predict(tmp_path / "new.csv")
    assert from_file["id"].tolist() == ["a", "b", "c", "d"]
    pd.testing.assert_frame_equal(molecule_model.predict(frame), from_file)
    from_list = molecule_model.predict(texts)
    assert from_list["id"].tolist() == [*texts[:3], "4"]
    pd.testing.assert_frame_equal(from_list.drop(columns="id"), from_file.drop(columns="id"))
    assert (from_list["error"] != "").tolist() == [False, True, False, True]
    # The index is kept, so that predictions can be put beside the data.
    moved = frame.set_axis([7, 3, 5, 1])
    for given in (moved, moved["smiles"]):
        assert molecule_model.predict(given).index.tolist() == [7, 3, 5, 1]
    for named in (frame["smiles"], frame["smiles"].to_numpy(), tuple(texts)):
        pd.testing.assert_frame_equal(molecule_model.predict(named), from_list)
    other = frame.rename(columns={"smiles": "drawing"})
    pd.testing.assert_frame_equal(molecule_model.predict(other, smiles="drawing"), from_file)
    with pytest.raises(DataError, match="drawing"):
        molecule_model.predict(other)
    # A first one that is missing keeps its row.
    for given in ([None, "CCO"], pd.Series([math.nan, "CCO"], dtype=object)):
        found = molecule_model.predict(given)
        assert [bool(error) for error in found["error"]] == [True, False]


def test_graphs_larger_than_any_trained_on_are_marked(
    molecule_model: TrainedModel, tmp_path: Path
) -> None:
    most = molecule_model.description.data.max_nodes
    found = molecule_model.predict(["C" * most, "C" * (most + 1)])["warning"]
    assert found.str.contains("larger than any training graph").tolist() == [False, True]
    done = predict_table(molecule_model, ["C" * 200, "CC"], tmp_path / "out.csv")
    assert done.larger == 1
    # Models of the first version do not know.
    data = replace(molecule_model.description.data, max_nodes=None)
    description = replace(molecule_model.description, data=data)
    older = replace(molecule_model, description=description, reference=None)
    assert older.predict(["C" * 200])["warning"].tolist() == [""]


def test_a_table_without_targets_and_with_other_columns(
    molecule_model: TrainedModel, tmp_path: Path
) -> None:
    data = tmp_path / "new.csv.gz"
    with gzip.open(data, "wt") as file:
        file.write('structure,code\nCCO,=1+1\n,@x\nCCN,"a,""b"""\n')
    done = predict_table(molecule_model, data, tmp_path / "out.csv", smiles="structure", id="code")
    assert (done.rows, done.failed) == (3, 1)
    rows = table(tmp_path / "out.csv")
    assert [row["id"] for row in rows] == ["'=1+1", "'@x", 'a,"b"']  # no formulas
    (tmp_path / "strange.csv").write_text("kind,code\nCCO,1\n")
    with pytest.raises(DataError, match="'kind', 'code'"):
        predict_table(molecule_model, tmp_path / "strange.csv", tmp_path / "new" / "other.csv")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["new.csv.gz", "out.csv", "strange.csv"]


def test_no_text_is_a_formula_in_a_written_table_and_every_other_text_is_unchanged(
    molecule_model: TrainedModel, tmp_path: Path
) -> None:
    classes = ["=HYPERLINK(1)", "-"]
    description = replace(molecule_model.description, label_names=classes)
    model = replace(molecule_model, description=description)
    ids = ["-1.5", "+3", "=1", "-cmd|' /C x'!A0", "+x(1)", "@SUM(1)", "\t=1", "-", "-logS", "+/-b"]
    frame = pd.DataFrame({"smiles": ["c1ccccc1" + "C" * n for n in range(10)], "name": ids})
    predict_table(model, frame, tmp_path / "p.csv", coverage=0.99)
    rows = table(tmp_path / "p.csv")
    kept = ["-1.5", "+3", "'=1", "'-cmd|' /C x'!A0", "'+x(1)", "'@SUM(1)", "'=1"]
    assert [row["id"] for row in rows] == [*kept, "-", "-logS", "+/-b"]
    assert {row["prediction"] for row in rows} <= {"'=HYPERLINK(1)", "-"}
    assert {row["set"] for row in rows} <= {"'=HYPERLINK(1);-", "'=HYPERLINK(1)", "-"}
    assert model.predict(frame)["id"].tolist()[2] == "=1"  # not in Python

    y = [-5.0, 4.0] * 20
    texts = ["C" * (1 + n) for n in range(40)]
    values = train(texts, y=pd.Series(y, name="=x"), task="regression", split="random", **QUICK)
    predict_table(values, ["CCO"] * 20, tmp_path / "values.csv")
    assert list(table(tmp_path / "values.csv")[0])[2] == "'=x"
    assert float(table(tmp_path / "values.csv")[0]["'=x"])


def columns(path: Path, **texts: list[str]) -> Path:
    pd.DataFrame(texts).to_csv(path, index=False)
    return path


def test_another_structure_column_is_taken_only_if_there_is_a_single_one_and_told(
    molecule_model: TrainedModel, tmp_path: Path
) -> None:
    right, wrong = [smiles(n) for n in range(9)], ["CCO"] * 9
    expected = molecule_model.predict(right)["p(0)"].tolist()
    # The model was trained on `smiles`.
    data = columns(tmp_path / "two.csv", SMILES_canonical=right, structure=wrong)
    several = (
        r"there is no column 'smiles', which the model was trained on, and several of the columns "
        r"\('SMILES_canonical', 'structure'\) may hold the structures; name the one that does with "
        r"`smiles`"
    )
    for use in (molecule_model.predict, partial(gt.explain, molecule_model)):
        with pytest.raises(DataError, match=several):
            use(data)
    assert molecule_model.predict(data, smiles="SMILES_canonical")["p(0)"].tolist() == expected
    for others in (
        {"Structure": right},
        {"canonical_smiles": right, "name": wrong},
        {"SMILES": right, "canonical_smiles": wrong},  # the same name but for the case
    ):
        data = columns(tmp_path / "one.csv", **others)
        taken = f"read from the column '{next(iter(others))}': there is no column 'smiles', which"
        with pytest.warns(UserWarning, match=taken):
            assert molecule_model.predict(data)["p(0)"].tolist() == expected
        with pytest.warns(UserWarning, match=taken):
            gt.explain(molecule_model, data)
        told: list[str] = []
        predict_table(
            molecule_model, data, tmp_path / "out.csv", rows_per_chunk=2, note=told.append
        )
        assert [taken in text for text in told] == [True]
    # Also if nothing in the column can be read.
    data = columns(tmp_path / "none.csv", structure=["C1CC("])
    with pytest.warns(UserWarning, match="read from the column 'structure': there is no column"):
        assert molecule_model.predict(data)["error"].tolist() != [""]


def test_training_tells_which_of_several_structure_columns_it_reads(tmp_path: Path) -> None:
    texts = [smiles(n) for n in range(10)]
    data = columns(tmp_path / "t.csv", canonical_smiles=texts, smiles=texts, y=["0", "1"] * 5)
    told = "Structures were read from the column 'smiles', not from 'canonical_smiles'."
    assert told in gt.load(data, target="y").notes


def test_labels_have_a_column_each(motif_model: Trained) -> None:
    _, store = motif_model
    y = (torch.rand(60, 2, generator=generator(0)) < 0.5).float()
    several = store.with_targets(y, task="multilabel", label_names=["toxic", 'x,"y"'])
    model = train(several, **QUICK)
    frame, found = model.predict(several), model.predictions(several)
    assert list(frame)[3:5] == ["p(toxic)", 'p(x,"y")']
    assert frame["prediction"].tolist() == found.labels
    assert frame["p(toxic)"].tolist() == found.outputs[:, 0].tolist()
    assert frame["confidence"].tolist() == found.confidence.tolist()


def test_values_have_their_bounds_beside_them(motif_model: Trained, tmp_path: Path) -> None:
    _, store = motif_model
    y = torch.randn(60, 2, generator=generator(0)) * 1e5
    numbers = store.with_targets(y, task="regression", label_names=["mass", "id"])
    model = train(numbers, validation=0.2, **QUICK)
    frame = model.predict(numbers)
    names = ["mass", "mass ±90", "id (predicted)", "id (predicted) ±90"]
    assert list(frame) == ["row", "id", *names, "similarity", "warning", "error"]
    found = model.predictions(numbers).outputs
    assert frame["mass"].tolist() == found[:, 0].tolist()
    assert frame["id (predicted)"].tolist() == found[:, 1].tolist()
    assert set(frame["mass ±90"]) == {model.description.residual_90[0]}
    few = train(numbers, validation=0.05, **QUICK)
    predict_table(few, numbers, tmp_path / "few.csv")
    assert table(tmp_path / "few.csv")[0]["mass ±90"] == ""


def test_what_is_in_memory_can_be_predicted(motif_model: Trained, tmp_path: Path) -> None:
    model, store = motif_model
    store.save(tmp_path / "motifs.safetensors")
    expected = model.predict(store)
    assert len(expected) == 60
    for data in (store.to_pyg(), tmp_path / "motifs.safetensors"):
        pd.testing.assert_frame_equal(model.predict(data), expected)
    assert len(model.predict("motifs", graphs=30)) == 30


def test_an_answer_that_is_no_number_is_an_error_of_its_row() -> None:
    ends = torch.tensor([[0, 1], [1, 0]])
    graphs = [
        Data(x=torch.tensor([[float(k)], [1.0]]), edge_index=ends, y=torch.tensor([k % 2]))
        for k in range(20)
    ]
    # Without normalisation, so that large numbers overflow.
    model = train(GraphStore.from_pyg(graphs), recipe="paper", **QUICK)
    graphs[4].x = torch.full((2, 1), 3e38)
    found = model.predict(graphs)
    assert [bool(error) for error in found["error"]] == [k == 4 for k in range(20)]
    assert found["prediction"].isna().tolist() == [k == 4 for k in range(20)]


def test_a_bad_graph_is_an_error_of_its_row_and_the_others_have_their_predictions() -> None:
    ends = torch.tensor([[0, 1], [1, 0]])

    def graph(number: int, **changes: Any) -> Data:
        x = torch.tensor([[float(number), 1.0], [1.0, 0.0]])
        return Data(**{"x": x, "edge_index": ends, "y": torch.tensor([number % 2]), **changes})

    model = train(GraphStore.from_pyg([graph(k) for k in range(20)]), **QUICK)
    bad = {
        2: graph(2, edge_index=ends + 1),
        3: graph(3, x=torch.full((2, 2), math.nan)),
        5: graph(5, x=torch.ones(2, 3)),
        6: graph(6, x=None, num_nodes=2),
        8: Data(x=torch.ones(0, 2), edge_index=ends[:, :0]),
        9: None,
    }
    given = [bad.get(row, graph(row)) for row in range(1, 13)]
    expected = model.predict([graph(row) for row in range(1, 13) if row not in bad])
    for size in (1, 5, 100):
        found = model.predict(given, rows_per_chunk=size)
        assert found["row"].tolist() == list(range(1, 13))
        assert {
            row for row, error in zip(found["row"], found["error"], strict=True) if error
        } == set(bad)
        fine = found[found["error"] == ""].reset_index(drop=True)
        assert fine["p(0)"].tolist() == pytest.approx(expected["p(0)"].tolist())
    reasons = found["error"].tolist()
    assert "the graph" in reasons[1]
    assert "joins nodes" in reasons[1]
    assert (
        reasons[4] == "the graph has 3 node features and 0 edge features; the others have 2 and 0"
    )
    assert reasons[7] == "the graph has no nodes"
    with pytest.raises(DataError, match="row 2 cannot be read: an edge of the graph joins"):
        gt.explain(model, given)
    with pytest.raises(DataError, match="graph 0 has no nodes"):
        model.predict([bad[8]] * 3)


def test_graphs_of_another_kind_are_refused(
    molecule_model: TrainedModel, motif_model: Trained, tmp_path: Path
) -> None:
    with pytest.raises(DataError):
        predict_table(molecule_model, motif_model[1], tmp_path / "out.csv")
    data = written(tmp_path / "new.csv", 5)
    with pytest.raises(DataError):
        predict_table(motif_model[0], data, tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


# -------------------------------------------------------------------- files


def test_what_cannot_be_written_is_named(motif_model: Trained, tmp_path: Path) -> None:
    model, store = motif_model
    with pytest.raises(GraphTransplantError, match=r"`out` must be a file, but .* is a folder"):
        predict_table(model, store, tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(GraphTransplantError, match=r"cannot write .*out\.csv: "):
        predict_table(model, store, tmp_path / "file" / "out.csv")
    for name in ("rows_per_chunk", "workers", "batch_size"):
        with pytest.raises(GraphTransplantError, match=f"`{name}` must be at least 1, got 0"):
            predict_table(model, store, tmp_path / "out.csv", **{name: 0})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert predict_table(model, store, tmp_path / "new" / "folder" / "out.csv").rows == 60


class Interruption(Exception):  # noqa: N818
    """Ends a prediction in the middle."""


def test_a_table_is_written_whole_or_not_at_all(
    molecule_model: TrainedModel, tmp_path: Path
) -> None:
    whole = written(tmp_path / "new.csv", 3000).read_bytes()
    packed = gzip.compress(whole)
    data, out = tmp_path / "new.csv.gz", tmp_path / "out.csv"
    data.write_bytes(packed[: len(packed) * 3 // 4])
    out.write_text("an older table")
    with pytest.raises(DataError):
        predict_table(molecule_model, data, out, rows_per_chunk=200)

    def stop(rows: int) -> None:
        raise Interruption

    with pytest.raises(Interruption):
        predict_table(molecule_model, tmp_path / "new.csv", out, progress=stop)
    assert out.read_text() == "an older table"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new.csv", "new.csv.gz", "out.csv"]
