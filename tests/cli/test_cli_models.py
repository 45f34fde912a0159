"""The commands around one model: what they write, say and refuse."""

from __future__ import annotations

import _thread
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from signal import SIGKILL, SIGTERM
from threading import Thread

import pytest
import torch

from graph_transplant.cli import main
from graph_transplant.cli.output import NO_READER
from graph_transplant.comparison import progress
from graph_transplant.comparison.compare import compare
from graph_transplant.errors import GraphTransplantError
from graph_transplant.models import TrainedModel, predict_table
from helpers.processes import of_session, wait_for

pytest.importorskip("rdkit", reason="molecules need RDKit")

Capture = pytest.CaptureFixture[str]

ROWS = [
    *(["c1ccccc1" + "C" * n, "a", 0] for n in range(12)),
    *(["C1CCCCC1" + "C" * n + "O", "b", 1] for n in range(12)),
    ["C1CC((", "broken", 1],
    ["CCO", "unmeasured", ""],
]
TRAIN = [
    *("--target", "fails", "--id", "name", "--epochs", "2"),
    *("--hidden", "16", "--split", "random"),
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "molecules.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", "name", "fails"])
        writer.writerows(ROWS)
    return path


@pytest.fixture(scope="module")
def model(table: Path) -> Path:
    folder = table.parent / "model"
    assert main(["train", str(table), "--method", "vanilla", *TRAIN, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def own(model: Path, tmp_path: Path) -> Path:
    """A copy of the model that a test may change."""
    return shutil.copytree(model, tmp_path / "model")


def error_of(arguments: list[str], capfd: Capture) -> str:
    """The one line that a command which cannot be carried out prints."""
    capfd.readouterr()
    assert main(arguments) == 2
    lines = capfd.readouterr().err.splitlines()
    assert lines[-1].startswith("error: ")
    return lines[-1].removeprefix("error: ")


def test_a_training_that_is_refused_or_stopped_at_once_leaves_nothing(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    words = ["train", "motifs", "--model", "gine", "--out", str(tmp_path / "model")]
    assert "gine needs edge features" in error_of(words, capfd)
    assert list(tmp_path.iterdir()) == []

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("graph_transplant.models.train", stopped)
    assert main(["train", str(table), *TRAIN, "--out", str(tmp_path / "m")]) == 130
    assert "stopped before anything was saved" in capfd.readouterr().err


def test_train_writes_a_model_its_card_and_what_was_skipped(
    table: Path, tmp_path: Path, capfd: Capture
) -> None:
    folder = tmp_path / "new" / "model"
    assert main(["train", str(table), *TRAIN, "--out", str(folder)]) == 0
    printed = capfd.readouterr()
    written = {"card.html", "model.json", "weights.safetensors"}
    assert {path.name for path in folder.iterdir()} == written | {"skipped.csv"}
    assert f"2 of 26 rows skipped, see {folder / 'skipped.csv'}" in printed.err
    assert "  row 25: the SMILES cannot be parsed" in printed.err
    assert (folder / "skipped.csv").read_text().splitlines()[2] == "26,unmeasured,no target"
    description = json.loads((folder / "model.json").read_text())
    auroc = description["metrics"]["test"]["auroc"]
    line = next(line for line in printed.out.splitlines() if line.startswith("AUROC"))
    assert line.split()[2] == f"{auroc:.3f}"
    assert all(str(folder / name) in printed.out for name in written)
    # What the card warns of.
    assert re.search(r"Only \d molecules for testing", printed.err)


@pytest.mark.parametrize("command", ["train", "predict", "explain"])
def test_commands_use_one_thread_unless_told_otherwise(
    command: str, model: Path, table: Path, tmp_path: Path
) -> None:
    words = {
        "train": ["train", str(table), "--method", "vanilla", *TRAIN, "--out", str(tmp_path)],
        "predict": ["predict", str(model), str(table), "--out", str(tmp_path / "rows.csv")],
        "explain": ["explain", str(model), str(table), "--out", str(tmp_path / "page.html")],
    }[command]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert main([*words, *(["--fresh"] if command == "train" else [])]) == 0
        assert torch.get_num_threads() == 1
        assert main([*words, "--threads", "2", *(["--fresh"] if command == "train" else [])]) == 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert main([*words, "--threads", "0"]) == 2


@pytest.mark.parametrize("command", ["train", "predict", "compare"])
def test_output_that_is_no_terminal_gets_a_line_now_and_then(
    command: str,
    model: Path,
    table: Path,
    tmp_path: Path,
    capfd: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "BEAT_SECONDS", 0.001)
    out = ["--out", str(tmp_path / "out")]
    words, expected = {
        "train": (["train", str(table), "--method", "vanilla", *TRAIN, *out], r"epoch \d, valid"),
        "predict": (["predict", str(model), str(table), *out], "(?:reading|36 rows)"),
        "compare": (
            ["compare", "motifs", "--folds", "3", "--epochs", "1", "--methods", "vanilla", *out],
            r"\d of 3 trials done, vanilla, gcs",
        ),
    }[command]
    assert main(words) == 0
    said = capfd.readouterr().err
    assert re.search(rf"(?m)^[\d.]+ s: {expected}", said), said
    # The line ends with the command.
    time.sleep(0.1)
    assert capfd.readouterr().err == ""


def test_a_model_is_not_replaced_unless_asked(table: Path, own: Path, capfd: Capture) -> None:
    before = (own / "weights.safetensors").read_bytes()
    again = ["train", str(table), *TRAIN, "--method", "vanilla", "--seed", "1", "--out", str(own)]
    assert f"there is a model in {own} already" in error_of(again, capfd)
    assert (own / "weights.safetensors").read_bytes() == before
    assert main([*again, "--fresh"]) == 0
    assert (own / "weights.safetensors").read_bytes() != before


def test_a_killed_ensemble_goes_on(table: Path, tmp_path: Path, capfd: Capture) -> None:
    out = tmp_path / "model"
    command = ["train", str(table), *TRAIN, "--method", "vanilla", "--out", str(out), "--ensemble"]
    code = (
        "import sys; from graph_transplant import cli; from graph_transplant.training import loop; "
        "loop.CHECKPOINT_SECONDS = 0.0; sys.exit(cli.main(sys.argv[1:]))"
    )
    second = out / ".checkpoint-2.pt"
    with subprocess.Popen([sys.executable, "-c", code, *command, "400"]) as child:
        end = time.monotonic() + 300
        while not second.exists() and child.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        child.kill()
    assert second.exists()
    (out / ".checkpoint-2.pt.1.part").touch()  # as a kill in the middle of writing leaves it
    assert not (out / "model.json").exists()
    assert main([*command, "2"]) == 0
    printed = capfd.readouterr()
    assert "resuming from" in printed.err
    assert "2 networks gine with 3 layers" in printed.out
    assert not list(out.glob(".checkpoint*"))
    assert main(["predict", str(out), "CCO", "--coverage", "0.6"]) == 0
    assert "spread" in capfd.readouterr().out


def test_an_interrupted_training_goes_on_also_when_it_replaces_a_model(
    table: Path, own: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    long = ["train", str(table), "--target", "fails", "--method", "vanilla", "--hidden", "16"]
    long += ["--split", "random", "--epochs", "3000", "--out", str(own)]
    checkpoint = own / ".checkpoint.pt"
    monkeypatch.setattr("graph_transplant.training.loop.CHECKPOINT_SECONDS", 0.0)

    def interrupt() -> None:
        end = time.monotonic() + 200
        while not checkpoint.exists() and time.monotonic() < end:
            time.sleep(0.02)
        _thread.interrupt_main()

    Thread(target=interrupt).start()
    assert main([*long, "--fresh"]) == 130
    said = capfd.readouterr().err
    assert f"saved in {checkpoint}" in said
    assert said.splitlines()[-1].split()[:2] == ["graph-transplant", "train"]
    assert "--fresh" not in said.splitlines()[-1]
    # Without --fresh, although the model that was to be replaced is still there.
    found: list[bool] = []

    def go_on(*_: object, checkpoint: Path, **__: object) -> None:
        found.append(checkpoint.exists())
        raise KeyboardInterrupt

    monkeypatch.setattr("graph_transplant.models.train", go_on)
    assert main(long) == 130
    assert found == [True]
    assert f"resuming from {checkpoint}" in capfd.readouterr().err
    assert main([*long, "--fresh"]) == 130
    assert found == [True, False]


def test_predict_gives_every_row_in_order_into_a_file_or_alone_on_the_standard_output(
    table: Path, model: Path, tmp_path: Path, capfd: Capture
) -> None:
    out = tmp_path / "new" / "predictions.csv"
    assert main(["predict", str(model), str(table), "--out", str(out)]) == 0
    printed = capfd.readouterr()
    assert printed.out.startswith("25 of 26 rows predicted")
    assert "1 row could not be read: see the column error" in printed.err
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [str(row[1]) for row in ROWS]
    assert [bool(row["error"]) for row in rows] == [row[1] == "broken" for row in ROWS]
    for row in rows:
        if not row["error"]:
            assert abs(float(row["p(0)"]) + float(row["p(1)"]) - 1) < 1e-5
    for words in (["--out=-"], ["--out", "-"]):
        assert main(["predict", str(model), str(table), *words]) == 0
        printed = capfd.readouterr()
        assert printed.out == out.read_text()
        assert "25 of 26 rows predicted" in printed.err
    header = "row,id,prediction,p(0),p(1),confidence,set,similarity,warning,error"
    assert printed.out.splitlines()[0] == header
    assert "--target" in error_of(["predict", str(model), str(table), "--target", "fails"], capfd)


def test_predict_fails_if_no_row_can_be_read(model: Path, tmp_path: Path, capfd: Capture) -> None:
    data, out = tmp_path / "new.csv", tmp_path / "out.csv"
    data.write_text("smiles\nC1CC((\n?\n")
    assert main(["predict", str(model), str(data), "--out", str(out)]) == 2
    assert capfd.readouterr().err.endswith(
        "error: no row could be predicted: the column error says why\n"
    )
    with out.open(newline="") as file:
        assert all(row["error"] for row in csv.DictReader(file))
    assert main(["predict", str(model), "C1CC((", "?"]) == 2
    assert "cannot be parsed" in capfd.readouterr().out
    data.write_text("smiles\nCCO\n")
    assert main(["predict", str(model), str(data), "--out", str(out)]) == 0
    assert capfd.readouterr().out.startswith("1 of 1 row predicted")


def test_what_is_read_is_not_overwritten(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "smiles,fails\nCCO,0\nC1CC((,0\n" + "".join(f"{'C' * n}N,1\nCO,0\n" for n in range(9))
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("skipped.csv", "summary.csv"):
        (folder / name).write_text(rows)
        words = ["compare", str(folder / name), "--target", "fails", "--out", "folder"]
        assert f"--out would overwrite {folder / name}, which is an input" in error_of(words, capfd)
    words = ["train", str(folder / "skipped.csv"), "--target", "fails", "--out", "folder"]
    assert "--out would overwrite" in error_of(words, capfd)
    # The default is an output like others, and Python is told the same.
    Path("predictions.csv").write_text(rows)
    words = ["predict", str(model), "predictions.csv"]
    assert "--out would overwrite predictions.csv" in error_of(words, capfd)
    loaded = TrainedModel.load(model)
    with pytest.raises(GraphTransplantError, match="`out` would overwrite"):
        predict_table(loaded, Path("predictions.csv"), tmp_path / "predictions.csv")
    with pytest.raises(GraphTransplantError, match="`out` would overwrite"):
        compare(folder / "summary.csv", target="fails", out="folder")
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 3
    assert {path.read_text() for path in written} == {rows}


def test_smiles_are_predicted_on_the_screen(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["predict", str(model), "CCO"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split()[:6] == ["id", "prediction", "p(0)", "p(1)", "confidence", "set"]
    assert lines[1].split()[0] == "CCO"
    assert main(["predict", str(model), "CCO", "C1CC(", "C" * 60]) == 0
    printed = capfd.readouterr().out
    assert "cannot be parsed" in printed
    assert "larger" in printed
    assert not (tmp_path / "predictions.csv").exists()
    assert main(["predict", str(model), "CCO", "CCN", "--out", "two.csv"]) == 0
    assert len((tmp_path / "two.csv").read_text().splitlines()) == 3
    error = error_of(["predict", str(model), "c1ccccc"], capfd)
    assert "'c1ccccc' is neither the name or path of data nor a molecule: the SMILES" in error


def test_a_long_smiles_is_a_molecule_and_not_the_path_of_a_file(
    model: Path, tmp_path: Path, capfd: Capture
) -> None:
    peptide = "N[C@@H](C)C(=O)" * 50 + "O"  # longer than any file name
    assert main(["predict", str(model), peptide]) == 0
    assert peptide[:80] in capfd.readouterr().out
    assert main(["explain", str(model), peptide, "--out", str(tmp_path / "page.html")]) == 0
    error = error_of(["predict", str(model), peptide + "("], capfd)
    assert "is neither the name or path of data nor a molecule: the SMILES" in error
    assert len(error) < 500


def test_another_structure_column_is_told(model: Path, tmp_path: Path, capfd: Capture) -> None:
    (tmp_path / "new.csv").write_text("structure\nCCO\n")
    for command in ("predict", "explain"):
        out = str(tmp_path / f"{command}.html")
        assert main([command, str(model), str(tmp_path / "new.csv"), "--out", out]) == 0
        error = " ".join(capfd.readouterr().err.split())
        assert "from the column 'structure': there is no column 'smiles', which the model" in error


def test_control_characters_of_names_do_not_reach_the_terminal(own: Path, capfd: Capture) -> None:
    path = own / "model.json"
    document = json.loads(path.read_text())
    document["label_names"] = ["\x1b[2J\x1b]0;owned\x07", "fine\r\x9b31m"]
    path.write_text(json.dumps(document))
    assert main(["predict", str(own), "c1ccccc1CC"]) == 0
    assert main(["explain", str(own), "CCO", "--label", "none", "--out", str(own / "x")]) == 2
    shown = capfd.readouterr()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown.out + shown.err)
    assert "31m" in shown.out
    assert "owned" in shown.err


@pytest.mark.skipif(sys.platform == "win32", reason="has other pipes")
def test_a_reader_that_has_seen_enough_is_no_error(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "many.csv"
    data.write_text("smiles\n" + "CCO\nc1ccccc1O\n" * 20_000)
    command = [sys.executable, "-m", "graph_transplant", "predict", str(model), str(data)]
    with subprocess.Popen(
        [*command, "--out", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"row,id,prediction")
        process.stdout.close()
        assert process.stderr is not None
        assert b"roken" not in process.stderr.read()
        assert process.wait(300) == NO_READER


@pytest.mark.parametrize(
    "text",
    [
        "CCO\nC1CC(\n\nCCN\n",
        "name,smiles\na,CCO\nb,C1CC(\nc,CCN\n",
        "CCO x\nC1CC(\ty\nCCN\n",
        "smiles\nCCO\nC1CC(\nCCN\n",
        "smiles;name\nCCO;a\nC1CC(;b\nCCN;c\n",
        # Excel marks the start of a file; a row has a cell too many; names are not UTF-8.
        "\ufeffSMILES,name\nCCO,a\nCCO,b,c\nCCN,c\n",
        b"smiles,name\nCCO,\xe9\nC1CC(,b\nCCN,c\n",
        "drawn,name\nCCO,a\nC1CC(,b\nCCN,c\n",
        "drawn\nCCO\nC1CC(\nCCN\n",
        "name,mol\na,CCO\nb,C1CC(\nc,CCN\n",
        "name\tcanonical_smiles\na\tCCO\nb\tC1CC(\nc\tCCN\n",
        "canonical_smiles name\nCCO a\nC1CC( b\nCCN c\n",
    ],
)
def test_the_standard_input_is_smiles_or_a_table(
    model: Path, text: str | bytes, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    content = text if isinstance(text, bytes) else text.encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    column = ["--smiles", "drawn"] if b"drawn" in content else []
    assert main(["predict", str(model), "-", *column]) == 0
    rows = list(csv.DictReader(capfd.readouterr().out.splitlines()))
    assert [bool(row["error"]) for row in rows] == [False, True, False]
    if b"name" in content:
        first, second = "é" if b"\xe9" in content else "a", "2" if b"b,c" in content else "b"
        assert [row["id"] for row in rows] == [first, second, "c"]
    else:
        assert rows[2]["id"] == "CCN"


def test_too_few_validation_graphs_for_the_coverage_are_told(model: Path, capfd: Capture) -> None:
    assert main(["predict", str(model), "CCO", "--coverage", "0.99"]) == 0
    assert "--coverage 0.99 needs 99 validation graphs; there are " in capfd.readouterr().err


def test_explain_and_show_write_pages_into_a_new_folder(
    table: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    out = tmp_path / "pages" / "explain.html"
    other = shutil.copytree(model, tmp_path / "another")
    arguments = ["explain", str(model), "-", "--rows", "2,25,13", "--out", str(out)]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(table.read_bytes())))
    assert main([*arguments, "--against", str(other)]) == 0
    assert "row 25 could not be read: the SMILES cannot be parsed" in capfd.readouterr().err
    page = out.read_text(encoding="utf-8")
    assert page.count("<article") == 2
    assert page.count("c1ccccc1C<") >= 1
    assert re.findall("<h3>.*(model|another)<", page) == ["model", "another"] * 2
    out = tmp_path / "more" / "gallery.html"
    arguments = ["show", str(table), "--target", "fails", "--method", "transplant-dp"]
    assert main([*arguments, "--count", "2", "--epochs", "1", "--out", str(out)]) == 0
    assert "2 of 26 rows skipped" in capfd.readouterr().err
    assert len((tmp_path / "more" / "gallery.skipped.csv").read_text().splitlines()) == 3
    assert out.read_text(encoding="utf-8").count("new bond") >= 2


def test_explain_names_what_it_cannot_use(
    table: Path, model: Path, tmp_path: Path, capfd: Capture
) -> None:
    out = tmp_path / "explain.html"
    for option, value, message in (
        ("--rows", "0", "--rows"),
        ("--label", "2", "--label must be one of 0, 1"),
        ("--smiles", "nosuch", "nosuch"),
    ):
        arguments = ["explain", str(model), str(table), "--out", str(out), option, value]
        assert message in error_of(arguments, capfd)
    assert not out.exists()


# -------------------------------------------------------------------- killed


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("signal", [SIGKILL, SIGTERM])
def test_no_process_outlives_a_killed_prediction_and_the_next_one_tidies_up(
    signal: int, model: Path, tmp_path: Path
) -> None:
    data, out = tmp_path / "many.csv", tmp_path / "p.csv"
    data.write_text("smiles\n" + "CCO\nc1ccccc1O\n" * 500_000)
    (tmp_path / ".p.csv.original").touch()  # of the user
    command = [sys.executable, "-m", "graph_transplant", "predict", str(model), str(data)]
    with subprocess.Popen(
        [*command, "--workers", "2", "--out", str(out)],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as parent:
        wait_for(lambda: any(tmp_path.glob(".p.csv.*.part")))
        assert len(of_session(parent.pid)) > 2
        os.kill(parent.pid, signal)
        assert parent.wait() == -signal
    assert list(tmp_path.glob(".p.csv.*.part"))
    wait_for(lambda: not of_session(parent.pid))
    data.write_text("smiles\nCCO\n")
    assert main(["predict", str(model), str(data), "--out", str(out)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"many.csv", "p.csv", ".p.csv.original"}
