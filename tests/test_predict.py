"""Tables of predictions: every row in its place, resumable, and no memory for what is written."""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import graph_transplant as gt
from graph_transplant.datasets.rows import Chunk
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.graphs import GraphStore
from graph_transplant.models import PredictionSummary, TrainedModel, predict_table, train

QUICK: dict[str, Any] = {"method": "vanilla", "hidden": 8, "layers": 1, "epochs": 1}
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
def motif_model() -> tuple[TrainedModel, GraphStore]:
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
    assert (done.rows, done.predicted, done.failed, done.resumed) == (50, 46, 4, 0)
    assert seen == [7, 14, 21, 28, 35, 42, 49, 50]
    rows = table(tmp_path / "out.csv")
    assert list(rows[0]) == ["row", "id", "p(0)", "p(1)", "label", "confidence", "error"]
    assert [row["row"] for row in rows] == [str(k) for k in range(1, 51)]
    assert [row["id"] for row in rows] == [f"mol {k}" for k in range(1, 51)]
    readable = [k for k in range(1, 51) if k not in broken]
    plain = written(tmp_path / "plain.csv", 50)
    store = gt.load(plain, smiles="smiles", target="active")
    expected = molecule_model.predict(store)
    for row in rows:
        number = int(row["row"])
        if number in broken:
            assert row["error"]
            assert not any(row[name] for name in ("p(0)", "p(1)", "label", "confidence"))
        else:
            assert row["error"] == ""
            p = expected.outputs[number - 1].tolist()
            assert float(row["p(0)"]) == pytest.approx(p[0], rel=2e-5)
            assert float(row["p(1)"]) == pytest.approx(p[1], rel=2e-5)
            assert row["label"] == str(int(p[1] > p[0]))
            assert float(row["confidence"]) == pytest.approx(max(p), rel=2e-5)
    assert len(readable) == done.predicted
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.csv", "out.csv", "plain.csv"]


def test_a_table_without_targets_and_with_other_columns(
    molecule_model: TrainedModel, tmp_path: Path
) -> None:
    data = tmp_path / "new.csv.gz"
    with gzip.open(data, "wt") as file:
        file.write('structure,code\nCCO,=1+1\n,@x\nCCN,"a,""b"""\n')
    done = predict_table(molecule_model, data, tmp_path / "out.csv", smiles="structure", id="code")
    assert (done.rows, done.failed) == (3, 1)
    rows = table(tmp_path / "out.csv")
    assert [row["id"] for row in rows] == ["=1+1", "@x", 'a,"b"']
    (tmp_path / "strange.csv").write_text("kind,code\nCCO,1\n")
    with pytest.raises(DataError, match="kind, code"):
        predict_table(molecule_model, tmp_path / "strange.csv", tmp_path / "other.csv")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["new.csv.gz", "out.csv", "strange.csv"]


def test_labels_have_a_column_each(
    motif_model: tuple[TrainedModel, GraphStore], tmp_path: Path
) -> None:
    _, store = motif_model
    y = (torch.rand(60, 2, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    several = store.with_targets(y, task="multilabel", label_names=["toxic", 'x,"y"'])
    model = train(several, **QUICK)
    predict_table(model, several, tmp_path / "out.csv")
    rows = table(tmp_path / "out.csv")
    assert list(rows[0]) == [
        "row", "id", "p(toxic)", 'p(x,"y")', "label", "confidence", "error",
    ]  # fmt: skip
    found = model.predict(several)
    assert [row["label"] for row in rows] == found.labels
    assert float(rows[5]["p(toxic)"]) == pytest.approx(float(found.outputs[5, 0]), rel=1e-5)
    assert float(rows[5]["confidence"]) == pytest.approx(float(found.confidence[5]), rel=1e-5)


def test_values_have_their_bounds_beside_them(
    motif_model: tuple[TrainedModel, GraphStore], tmp_path: Path
) -> None:
    _, store = motif_model
    y = torch.randn(60, 2, generator=torch.Generator().manual_seed(0)) * 1e5
    numbers = store.with_targets(y, task="regression", label_names=["mass", "id"])
    model = train(numbers, validation=0.2, **QUICK)
    predict_table(model, numbers, tmp_path / "out.csv")
    rows = table(tmp_path / "out.csv")
    names = ["mass", "mass ±90", "id (predicted)", "id (predicted) ±90"]
    assert list(rows[0]) == ["row", "id", *names, "error"]
    found = model.predict(numbers).outputs
    bounds = model.description["residual_90"]
    for number, row in enumerate(rows):
        assert float(row["mass"]) == pytest.approx(float(found[number, 0]), rel=1e-5)
        assert float(row["id (predicted)"]) == pytest.approx(float(found[number, 1]), rel=1e-5)
        assert float(row["mass ±90"]) == pytest.approx(bounds[0], rel=1e-5)
    few = train(numbers, validation=0.05, **QUICK)
    predict_table(few, numbers, tmp_path / "few.csv")
    assert table(tmp_path / "few.csv")[0]["mass ±90"] == ""


def test_numbers_have_six_digits(
    motif_model: tuple[TrainedModel, GraphStore], tmp_path: Path
) -> None:
    model, store = motif_model
    predict_table(model, store, tmp_path / "out.csv")
    for row in table(tmp_path / "out.csv"):
        for name, cell in row.items():
            if name.startswith("p("):
                assert cell == f"{float(cell):.6g}"


def test_what_is_in_memory_can_be_predicted(
    motif_model: tuple[TrainedModel, GraphStore], tmp_path: Path
) -> None:
    model, store = motif_model
    predict_table(model, store, tmp_path / "store.csv", rows_per_chunk=50)
    predict_table(model, store.to_pyg(), tmp_path / "list.csv", rows_per_chunk=50)
    assert (tmp_path / "store.csv").read_text() == (tmp_path / "list.csv").read_text()
    store.save(tmp_path / "motifs.safetensors")
    predict_table(model, tmp_path / "motifs.safetensors", tmp_path / "file.csv", rows_per_chunk=50)
    assert (tmp_path / "store.csv").read_text() == (tmp_path / "file.csv").read_text()


def test_a_name_of_a_data_set_will_do(
    motif_model: tuple[TrainedModel, GraphStore], tmp_path: Path
) -> None:
    done = predict_table(motif_model[0], "motifs", tmp_path / "out.csv", graphs=30)
    assert done.rows == 30


def test_standard_output_takes_the_same_table(
    molecule_model: TrainedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = written(tmp_path / "new.csv", 20, broken=(3,))
    predict_table(molecule_model, data, tmp_path / "out.csv", rows_per_chunk=8)
    seen: list[int] = []
    done = predict_table(molecule_model, data, "-", rows_per_chunk=8, progress=seen.append)
    assert capsys.readouterr().out == (tmp_path / "out.csv").read_text()
    assert (done.rows, done.failed) == (20, 1)
    assert seen == [8, 16, 20]


def test_an_answer_that_is_no_number_is_an_error_of_its_row(tmp_path: Path) -> None:
    graphs = [
        Data(
            x=torch.tensor([[float(k)], [1.0]]),
            edge_index=torch.tensor([[0, 1], [1, 0]]),
            y=torch.tensor([k % 2]),
        )
        for k in range(20)
    ]
    model = train(GraphStore.from_pyg(graphs), **QUICK)
    graphs[4].x = torch.full((2, 1), 3e38)
    done = predict_table(model, graphs, tmp_path / "out.csv")
    assert (done.rows, done.predicted, done.failed) == (20, 19, 1)
    rows = table(tmp_path / "out.csv")
    assert rows[4]["error"] == "the model's answer is not a finite number"
    assert rows[4]["label"] == ""
    assert rows[5]["error"] == ""


def test_graphs_of_another_kind_are_refused(
    molecule_model: TrainedModel,
    motif_model: tuple[TrainedModel, GraphStore],
    tmp_path: Path,
) -> None:
    with pytest.raises(DataError):
        predict_table(molecule_model, motif_model[1], tmp_path / "out.csv")
    data = written(tmp_path / "new.csv", 5)
    with pytest.raises(DataError):
        predict_table(motif_model[0], data, tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


# -------------------------------------------------------------------- files


def test_what_cannot_be_written_is_named(
    motif_model: tuple[TrainedModel, GraphStore], tmp_path: Path
) -> None:
    model, store = motif_model
    with pytest.raises(GraphTransplantError, match=r"`out` must be a file, but .* is a folder"):
        predict_table(model, store, tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(GraphTransplantError, match=r"cannot write .*out\.csv: "):
        predict_table(model, store, tmp_path / "file" / "out.csv")
    store.save(tmp_path / "motifs.safetensors")
    before = (tmp_path / "motifs.safetensors").read_bytes()
    with pytest.raises(GraphTransplantError, match="`out` is the input itself"):
        predict_table(model, tmp_path / "motifs.safetensors", tmp_path / "motifs.safetensors")
    assert (tmp_path / "motifs.safetensors").read_bytes() == before
    for name in ("rows_per_chunk", "workers", "batch_size"):
        with pytest.raises(GraphTransplantError, match=f"`{name}` must be at least 1, got 0"):
            predict_table(model, store, tmp_path / "out.csv", **{name: 0})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "motifs.safetensors"]
    done = predict_table(model, store, tmp_path / "new" / "folder" / "out.csv")
    assert done.rows == 60


def test_what_cannot_be_read_is_not_told_of_the_table(
    motif_model: tuple[TrainedModel, GraphStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, store = motif_model

    def failing(*args: Any, **options: Any) -> Iterator[Chunk]:
        yield from gt.datasets.stream(*args, **{**options, "rows_per_chunk": 20})
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("graph_transplant.models.predict.stream", failing)
    with pytest.raises(DataError, match=r"^cannot read the graphs: Input/output error$"):
        predict_table(model, store, tmp_path / "out.csv")
    store.save(tmp_path / "motifs.safetensors")
    for out in (tmp_path / "out.csv", "-"):
        with pytest.raises(DataError, match=r"^cannot read .*motifs\.safetensors: Input/output"):
            predict_table(model, tmp_path / "motifs.safetensors", out)
    assert not (tmp_path / "out.csv").exists()


def test_what_a_callback_raises_is_not_told_of_the_table(
    motif_model: tuple[TrainedModel, GraphStore], tmp_path: Path
) -> None:
    def broken(rows: int) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        predict_table(*motif_model, tmp_path / "out.csv", progress=broken)


def test_a_full_disk_is_named(
    motif_model: tuple[TrainedModel, GraphStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("graph_transplant.models.predict.os.fsync", full)
    with pytest.raises(GraphTransplantError, match=r"^cannot write .*out\.csv: No space left"):
        predict_table(*motif_model, tmp_path / "out.csv")


def test_pyg_graphs_of_another_width_are_errors_of_their_rows(
    molecule_model: TrainedModel, tmp_path: Path
) -> None:
    from graph_transplant.datasets.molecules import from_smiles

    def narrow() -> Data:
        return Data(x=torch.ones(1, 3), edge_index=torch.empty(2, 0, dtype=torch.long))

    sound = from_smiles(["CCO", "CCN"]).to_pyg()
    # The model knows what it was trained on, whichever graphs come first or are the most.
    graphs = [narrow(), narrow(), narrow(), *sound]
    model = replace(molecule_model, description={**molecule_model.description, "featurizer": None})
    done = predict_table(model, graphs, tmp_path / "out.csv", rows_per_chunk=2)
    assert (done.rows, done.failed) == (5, 3)
    assert [bool(row["error"]) for row in table(tmp_path / "out.csv")] == [True] * 3 + [False] * 2


class Interruption(Exception):  # noqa: N818
    """Ends a prediction in the middle."""


def interrupted(rows: int) -> Any:
    def stop(done: int) -> None:
        if done >= rows:
            raise Interruption

    return stop


def test_an_interrupted_table_goes_on(molecule_model: TrainedModel, tmp_path: Path) -> None:
    data = written(tmp_path / "new.csv", 100, broken=(5, 61))
    predict_table(molecule_model, data, tmp_path / "whole.csv", rows_per_chunk=16)
    out = tmp_path / "out.csv"
    out.write_text("an older table")
    with pytest.raises(Interruption):
        predict_table(molecule_model, data, out, rows_per_chunk=16, progress=interrupted(48))
    assert out.read_text() == "an older table"
    # What was not yet recorded as sound does not count.
    with (tmp_path / "out.csv.partial").open("ab") as file:
        file.write(b"49,mol 49,0.1,torn in the mid")
    seen: list[int] = []
    told: list[str] = []
    done = predict_table(
        molecule_model, data, out, rows_per_chunk=16, progress=seen.append, note=told.append
    )
    assert (done.rows, done.failed, done.resumed) == (100, 2, 48)
    assert seen[0] == 64
    assert told == [f"going on after row 48 of {out}"]
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.csv", "out.csv", "whole.csv"]


@pytest.mark.parametrize(
    "change", ["model", "temperature", "data", "options", "chunks", "batch", "state", "cut", "ask"]
)
def test_a_table_of_something_else_is_begun_anew(
    molecule_model: TrainedModel, tmp_path: Path, change: str
) -> None:
    data = written(tmp_path / "new.csv", 40)
    out = tmp_path / "out.csv"
    arguments: dict[str, Any] = {"rows_per_chunk": 8}
    with pytest.raises(Interruption):
        predict_table(molecule_model, data, out, progress=interrupted(16), **arguments)
    model = molecule_model
    state = tmp_path / "out.csv.partial.json"
    if change == "model":
        model = TrainedModel(
            gt.GraphClassifier.from_config(model.network.config()).eval(),
            model.temperature,
            None,
            model.description,
        )
    elif change == "temperature":
        model = replace(model, temperature=model.temperature * 2)
    elif change == "data":
        written(data, 40, broken=(1,))
    elif change == "options":
        arguments["id"] = "smiles"
    elif change == "chunks":
        arguments["rows_per_chunk"] = 9
    elif change == "batch":
        arguments["batch_size"] = 3
    elif change == "state":
        state.write_text(state.read_text()[:-9])
    elif change == "cut":
        with (tmp_path / "out.csv.partial").open("r+b") as file:
            file.truncate(50)
    else:
        arguments["resume"] = False
    done = predict_table(model, data, out, **arguments)
    assert (done.rows, done.resumed) == (40, 0)
    arguments.pop("resume", None)
    predict_table(model, data, tmp_path / "fresh.csv", **arguments)
    assert out.read_bytes() == (tmp_path / "fresh.csv").read_bytes()


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"[]",
        b"3",
        b"[" * 100_000,
        b'{"format": "graph-transplant prediction 1"}',
        b"\xff",
        b'{"rows": -1}',
    ],
)
def test_a_broken_state_is_begun_anew(
    molecule_model: TrainedModel, tmp_path: Path, state: bytes
) -> None:
    data = written(tmp_path / "new.csv", 10)
    (tmp_path / "out.csv.partial.json").write_bytes(state)
    (tmp_path / "out.csv.partial").write_bytes(b"noise")
    done = predict_table(molecule_model, data, tmp_path / "out.csv")
    assert (done.rows, done.resumed) == (10, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.csv", "out.csv"]


@pytest.mark.parametrize("field", ["rows", "predicted", "size"])
@pytest.mark.parametrize("value", [-1, True, "8", 1.5, 10**12])
def test_numbers_of_the_state_are_checked(
    molecule_model: TrainedModel, tmp_path: Path, field: str, value: object
) -> None:
    data = written(tmp_path / "new.csv", 24)
    out = tmp_path / "out.csv"
    with pytest.raises(Interruption):
        predict_table(molecule_model, data, out, rows_per_chunk=8, progress=interrupted(8))
    path = tmp_path / "out.csv.partial.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps({**state, field: value}))
    done = predict_table(molecule_model, data, out, rows_per_chunk=8)
    assert (done.rows, done.resumed) == (24, 0)


def test_data_in_memory_is_not_gone_on_with(
    motif_model: tuple[TrainedModel, GraphStore], tmp_path: Path
) -> None:
    model, store = motif_model
    out = tmp_path / "out.csv"
    with pytest.raises(Interruption):
        predict_table(model, store, out, rows_per_chunk=20, progress=interrupted(20))
    assert predict_table(model, store, out, rows_per_chunk=20).resumed == 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs flock")
def test_two_processes_do_not_write_one_table(
    motif_model: tuple[TrainedModel, GraphStore], tmp_path: Path
) -> None:
    import fcntl

    model, store = motif_model
    with (tmp_path / "out.csv.partial").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(GraphTransplantError, match=r"another process is writing .*partial"):
            predict_table(model, store, tmp_path / "out.csv")
    assert predict_table(model, store, tmp_path / "out.csv").rows == 60


def test_a_broken_input_keeps_what_is_there(molecule_model: TrainedModel, tmp_path: Path) -> None:
    """A file that ends too early is an error, and what was predicted is gone on with."""
    whole = written(tmp_path / "new.csv", 3000).read_bytes()
    packed = gzip.compress(whole)
    data = tmp_path / "new.csv.gz"
    data.write_bytes(packed[: len(packed) * 3 // 4])
    with pytest.raises(DataError):
        predict_table(molecule_model, data, tmp_path / "out.csv", rows_per_chunk=200)
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_process_is_gone_on_with(molecule_model: TrainedModel, tmp_path: Path) -> None:
    data = written(tmp_path / "new.csv", 400, broken=(17,))
    molecule_model.save(tmp_path / "model")
    code = (
        "import sys, time, torch\n"
        "torch.set_num_threads(1)\n"
        "from graph_transplant.models import TrainedModel, predict_table\n"
        "model = TrainedModel.load(sys.argv[1])\n"
        "predict_table(model, sys.argv[2], sys.argv[3], rows_per_chunk=20,\n"
        "              progress=lambda rows: time.sleep(0.1))\n"
    )
    out = tmp_path / "out.csv"
    command = [sys.executable, "-c", code, str(tmp_path / "model"), str(data), str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment)
    state = tmp_path / "out.csv.partial.json"
    limit = time.monotonic() + 60
    while time.monotonic() < limit and process.poll() is None:
        if state.exists() and json.loads(state.read_bytes())["rows"] >= 60:
            break
        time.sleep(0.05)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not out.exists()
    model = TrainedModel.load(tmp_path / "model")
    done = predict_table(model, data, out, rows_per_chunk=20)
    assert done.rows == 400
    assert 60 <= done.resumed < 400
    predict_table(model, data, tmp_path / "whole.csv", rows_per_chunk=20)
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


# -------------------------------------------------------------------- memory


def test_a_chunk_is_let_go_before_the_next_but_one(
    motif_model: tuple[TrainedModel, GraphStore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long the input is, no more than two stretches of it are held at a time."""
    import weakref

    model, store = motif_model
    alive: list[weakref.ref[GraphStore]] = []
    most = 0

    def endless(*_: object, **__: object) -> Iterator[Chunk]:
        nonlocal most
        for number in range(50):
            part = store.subset(range(5))
            alive.append(weakref.ref(part))
            most = max(most, sum(each() is not None for each in alive))
            ids = tuple(str(number * 5 + k + 1) for k in range(5))
            yield Chunk(number * 5 + 1, ids, ("",) * 5, _numbered(part, number * 5 + 1), {})

    monkeypatch.setattr("graph_transplant.models.predict.stream", endless)
    done = predict_table(model, "anything", tmp_path / "out.csv")
    assert done.rows == 250
    assert most <= 3


def _numbered(store: GraphStore, first: int) -> GraphStore:
    from graph_transplant.graphs import Rows

    store.rows = Rows(torch.arange(first, first + len(store)), ("",) * 5, ("",) * 5)
    return store


def test_summaries_are_plain() -> None:
    found = PredictionSummary(3, 2, 1, 0.5)
    assert found == PredictionSummary(rows=3, predicted=2, failed=1, seconds=0.5, resumed=0)
    assert not math.isnan(found.seconds)


# -------------------------------------------------------------------- real data


@pytest.mark.data
def test_clintox_keeps_its_broken_rows(data_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    path = data_dir / "molecules" / "clintox.csv.gz"
    store = gt.load(path, target="CT_TOX")
    model = train(store.subset(range(0, len(store), 8)), split="random", **QUICK)
    done = predict_table(model, path, tmp_path / "out.csv")
    assert done.rows == 1484
    assert done.failed == len(store.skipped)
    rows = table(tmp_path / "out.csv")
    broken = [int(row["row"]) for row in rows if row["error"]]
    assert broken == [problem.row for problem in store.skipped]
