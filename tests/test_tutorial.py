"""The tutorial, run from its first block to its last as a reader would."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import shlex
from pathlib import Path

import pytest

from graph_transplant.cli import main
from graph_transplant.models import TrainedModel, explain_rows

# One process runs the page once for all tests.
pytestmark = pytest.mark.xdist_group("tutorial")

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all blocks of the page have been run, in order."""
    here = tmp_path_factory.mktemp("tutorial")
    given: dict[str, object] = {}
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) == 7
    with contextlib.chdir(here):
        for language, text in blocks:
            if language == "python":
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(compile(text, PAGE.name, "exec"), given)
                promised = re.findall(r"^print\(.*\)  # (.*)$", text, flags=re.MULTILINE)
                assert printed.getvalue().splitlines() == promised
            else:
                for line in text.splitlines():
                    words = shlex.split(line)
                    assert words[:2] == ["$", "graph-transplant"]
                    assert main(words[2:]) == 0, line
    return here


def test_files_that_the_page_speaks_of_are_there(folder: Path) -> None:
    for name in (
        "comparison/report.html",
        "comparison/skipped.csv",
        "model/weights.safetensors",
        "model/model.json",
        "model/card.html",
        "model/skipped.csv",
        "predictions.csv",
        "explain.html",
        "gallery.html",
    ):
        assert (folder / name).stat().st_size > 0, name


def test_skipped_rows_are_the_two_the_page_made(folder: Path) -> None:
    with (folder / "model" / "skipped.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["row"] for row in rows] == ["101", "201"]
    assert [row["id"] for row in rows] == ["M101", "M201"]
    assert rows[0]["reason"] == "no target"


def test_model_finds_the_rule(folder: Path) -> None:
    with (folder / "molecules.csv").open(newline="") as file:
        truth = list(csv.DictReader(file))
    with (folder / "predictions.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["id"] for row in found] == [row["name"] for row in truth]
    pairs = [
        (given["fails"], float(row["p(1)"]))
        for given, row in zip(truth, found, strict=True)
        if given["fails"] and not row["error"]
    ]
    failing = [p for fails, p in pairs if fails == "1"]
    passing = [p for fails, p in pairs if fails == "0"]
    ranked = sum(a > b for a in failing for b in passing) / (len(failing) * len(passing))
    assert ranked > 0.95


def test_explanations_point_at_the_group_that_the_rule_is_about(folder: Path) -> None:
    found = explain_rows(
        TrainedModel.load(folder / "model"),
        folder / "molecules.csv",
        rows=range(10, 721, 10),  # every tenth molecule ends in a nitro group: its last three atoms
    )
    assert len(found.explanations) == 72
    hits = 0
    for one in found.explanations:
        share = one.views[0].share
        assert one.structure.names[-3:] == ("N", "O", "O")
        salient = sorted(range(len(share)), key=lambda atom: share[atom])[-3:]
        hits += sum(atom >= len(share) - 3 for atom in salient)
    # Chance would be 29 %.
    assert hits / (3 * len(found.explanations)) > 0.9
