"""What the documents promise: code that runs, links that lead somewhere, deviations all told."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

import graph_transplant as gt
from graph_transplant.classical import CLASSICAL

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS]


def python_blocks(page: Path) -> list[str]:
    """The fenced blocks of a page that are marked as Python."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


class PlainModel(nn.Module):
    """A model as a PyG user would write it."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first = GCNConv(features, 16)
        self.second = GCNConv(16, 16)
        self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.first(x, edge_index).relu()
        x = self.second(x, edge_index).relu()
        return self.head(global_mean_pool(x, batch))


def test_readme_loop_runs_and_trains() -> None:
    (block,) = python_blocks(ROOT / "README.md")
    torch.manual_seed(0)
    graphs = gt.load("motifs", graphs=48).to_pyg()
    for data in graphs:
        data.x = torch.randn(data.num_nodes, 4)
    model = PlainModel(features=4, classes=6)
    before = [parameter.clone() for parameter in model.parameters()]
    given = {
        "model": model,
        "loader": DataLoader(graphs, batch_size=16),
        "optimizer": torch.optim.Adam(model.parameters()),
    }
    exec(compile(block, "README.md", "exec"), given)
    loss = given["loss"]
    assert isinstance(loss, Tensor)
    assert torch.isfinite(loss)
    for old, new in zip(before, model.parameters(), strict=True):
        assert not torch.equal(old, new)


# The tutorial has commands between its blocks: tests/test_tutorial.py runs it whole.
RUNNING = [page for page in DOCS if python_blocks(page) and page.stem != "tutorial"]


@pytest.mark.parametrize("page", RUNNING, ids=name)
def test_code_on_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    given: dict[str, object] = {}
    for number, block in enumerate(python_blocks(page), start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, f"{name(page)}, block {number}", "exec"), given)
        # `print(...)  # text` promises the text it prints.
        promised = re.findall(r"^print\(.*\)  # (.*)$", block, flags=re.MULTILINE)
        if promised:
            assert printed.getvalue().splitlines() == promised, f"{name(page)}, block {number}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    local = [t for t in targets if not re.match(r"(https?|mailto):|#", t)]
    missing = [t for t in local if not (page.parent / t.partition("#")[0]).exists()]
    assert missing == []


def marked_deviations() -> dict[str, str]:
    """Key of every `Deviation:` in the source, with where it stands; keyless ones under ''."""
    found = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if "Deviation:" in line:
                key = re.search(r"Deviation: ([a-z0-9]+(?:-[a-z0-9]+)*)\.", line)
                found[key[1] if key else ""] = f"{path.relative_to(ROOT)}:{number}"
    return found


def test_every_deviation_has_a_key() -> None:
    assert marked_deviations().get("") is None, "write `Deviation: some-key. What and why`"


def test_every_deviation_is_told() -> None:
    page = (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^`([a-z0-9-]+)`$", page, flags=re.MULTILINE))
    marked = set(marked_deviations()) - {""}
    assert marked - told == set(), "marked in the source, not told in docs/deviations.md"
    assert told - marked == set(), "told in docs/deviations.md, not marked in the source"


def test_command_line_page_knows_every_option() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    commands = "compare train predict explain show paper across methods datasets"
    for command in commands.split():
        section = page.partition(f"## `graph-transplant {command}`")[2].partition("\n## ")[0]
        helped = subprocess.run(
            [sys.executable, "-m", "graph_transplant", command, "--help"],
            env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        options = {o for o in re.findall(r"--[a-z-]+", helped) if not o.startswith("--empty-")}
        assert options - {"--help", "--version"} == set(re.findall(r"`(--[a-z-]+)", section))


def test_methods_on_the_command_line_page() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    section = page.partition("## `graph-transplant methods`")[2].partition("\n#")[0]
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.*?) \|$", section, flags=re.MULTILINE)
    every = {**gt.METHODS, **CLASSICAL}
    assert rows == [(name, method.summary) for name, method in every.items()]


def test_every_method_stands_on_exactly_one_family_page() -> None:
    pages = sorted((ROOT / "docs" / "methods").glob("*.md"))
    headings = [
        named
        for page in pages
        for line in re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        for named in re.findall(r"`([a-z0-9-]+)`", line)
    ]
    assert sorted(headings) == sorted([*gt.METHODS, *CLASSICAL])
