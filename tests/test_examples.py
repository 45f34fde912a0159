"""The scripts in examples/ run as they are; what they print and write is what they promise."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch

import graph_transplant as gt

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

TESTED_HERE = {
    "augment_to_disk.py",
    "compare_in_python.py",
    "gine_molecules.py",
    "grid_search.py",
    "lightning_module.py",
    "onnx_export.py",
    "optuna_search.py",
    "pyg_loop.py",
}
TESTED_ELSEWHERE = {"distributed.py"}  # in test_distributed.py


Run = Callable[..., list[str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run an example in an empty folder and return the lines it prints."""

    def inner(name: str, *arguments: str) -> list[str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        printed, said = capfd.readouterr()
        assert [line for line in said.splitlines() if "compiling kernels" not in line] == []
        return printed.splitlines()

    return inner


def losses(lines: list[str]) -> list[float]:
    return [float(found[1]) for line in lines if (found := re.search(r"loss (\d+\.\d+)", line))]


def test_every_example_has_a_test() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == TESTED_ELSEWHERE | TESTED_HERE


def test_pyg_loop(run: Run) -> None:
    found = losses(run("pyg_loop.py", "--epochs", "10"))
    assert found[-1] < found[0]


def test_comparing_in_python(run: Run, tmp_path: Path) -> None:
    lines = run("compare_in_python.py", "--graphs", "60", "--epochs", "2")
    assert any("mine" in line for line in lines)
    assert (tmp_path / "forest.pdf").read_bytes().startswith(b"%PDF")
    table = (tmp_path / "table.tex").read_text()
    assert r"drop 20 \%" in table


def test_gine_on_molecules_keeps_edge_attributes(run: Run, tmp_path: Path) -> None:
    lines = run("gine_molecules.py", "--epochs", "10")
    assert lines[0] == "bonds of mixed molecules are known bonds: True"
    assert losses(lines)[-1] < losses(lines)[0]
    # The two classes differ in one bond alone.
    assert float(lines[-1].split()[-1]) > 0.9
    assert list(tmp_path.iterdir()) == []


def test_lightning(run: Run, tmp_path: Path) -> None:
    lines = run("lightning_module.py", "--epochs", "3")
    assert [line.split()[1] for line in lines[:-1]] == ["1", "2", "3"]
    assert losses(lines)[-1] < losses(lines)[0]
    assert lines[-1] == "the edge predictor has learned: True"
    assert list(tmp_path.iterdir()) == []


def test_grid_search(run: Run) -> None:
    lines = run("grid_search.py", "--graphs", "60", "--epochs", "1")
    assert len(lines) == 7
    assert sum("augment__anchor_ratio" in line for line in lines) >= 4
    assert lines[-1].startswith("best: {'augment")


def test_optuna_prunes_and_finds(run: Run) -> None:
    pytest.importorskip("optuna")
    lines = run("optuna_search.py", "--graphs", "60", "--epochs", "8", "--trials", "6")
    assert lines[0].startswith("6 trials, ")
    assert int(lines[0].split()[2]) > 0
    assert lines[1].startswith("best validation loss")
    assert 0 <= float(lines[2].split()[-1]) <= 1


def test_onnx(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    lines = run("onnx_export.py", "--epochs", "2", "--out", "model.onnx")
    assert lines[0] == "inputs: edge_index, batch, ptr"
    assert [line.rpartition(": ")[2] for line in lines[2:5]] == ["(1, 6)", "(3, 6)", "(60, 6)"]
    assert float(lines[-1].split()[-1]) < 1e-5
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    onnx.checker.check_model(onnx.load(tmp_path / "model.onnx"), full_check=True)


def test_augmented_data_set_on_disk(run: Run, tmp_path: Path) -> None:
    lines = run("augment_to_disk.py", "--out", "made")
    assert lines[:3] == [
        "120 graphs and 240 mixtures of them",
        "both files hold the same graphs: True",
        "mixed labels add up to one: True",
    ]
    store = gt.load(tmp_path / "made" / "augmented.safetensors")
    assert len(store) == 360
    originals = gt.load("motifs", graphs=120)
    assert store.label_names == originals.label_names
    # The originals stand first, as they were; of the rest some are mixed of two classes.
    hard, mixed = store.y[:120], store.y[120:]
    assert torch.equal(hard.argmax(1), originals.labels)
    assert torch.equal(hard.amax(1), torch.ones(120))
    assert bool(((mixed > 0) & (mixed < 1)).any())
    assert len(gt.load(tmp_path / "made" / "augmented.jsonl")) == 360
