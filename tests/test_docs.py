"""The documents: every block runs, links resolve, lists are complete."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCN, global_mean_pool

import graph_transplant as gt
from graph_transplant.cli import app, main
from graph_transplant.models import TrainedModel, explain_rows

# A deadline for hangs.
pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))]
TUTORIAL = DOCS / "tutorial.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)

# Options that make a command short; the tutorial's are run as they are.
SHORT = {
    "compare": {"--epochs": "1", "--folds": "3", "--repeats": "1", "--workers": "1"},
    "train": {"--epochs": "2"},
    "show": {"--epochs": "1"},
    "predict": {"--workers": "1"},
}
# Read, but not run here: other tests run these engines, experiments and scripts.
ELSEWHERE = {"pip", "ray", "torchrun", "python"}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def shortened(words: list[str]) -> list[str]:
    changed = SHORT.get(words[0], {})
    kept = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if word not in changed and before not in changed
    ]
    return [*kept, *(part for option in changed.items() for part in option)]


def run_command(line: str, *, whole: bool) -> None:
    words = shlex.split(line.removeprefix("$ "), comments=True)
    if words[0] == "make":
        assert f"\n{words[1]}:" in text_of(ROOT / "Makefile"), line
    elif words[0] in ELSEWHERE:
        scripts = [word for word in words if word.endswith(".py")]
        assert all((ROOT / script).exists() for script in scripts), line
    else:
        assert words[0] == "graph-transplant", line
        if "ray" in words:
            app.parse_args(words[1:], exit_on_error=False)
        else:
            assert main(words[1:] if whole else shortened(words[1:])) == 0, line


def run_page(page: Path, given: dict[str, object]) -> None:
    """Run all blocks of a page in order, in the current folder."""
    for language, block in BLOCK.findall(text_of(page)):
        if language == "console":
            for line in block.replace("\\\n", " ").splitlines():
                run_command(line, whole=page == TUTORIAL)
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            # A block of the tutorial is pasted alone, an hour after the one before.
            exec(compile(block, name(page), "exec"), {} if page == TUTORIAL else given)
        # `print(...)  # text` promises the text it prints.
        promised = re.findall(r"^print\(.*\)  # (.*)$", block, flags=re.MULTILINE)
        assert printed.getvalue().splitlines() == promised, name(page)


def write_inputs(folder: Path) -> None:
    """The files that commands name: tables of molecules, and small stand-ins for TU data sets."""
    rings, ends = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CC1"], ["C", "N", "O", "CC", "CN", "Cl"]
    rows = [f"{ring}{end},{int('N' in end)}" for ring in rings for end in ends]
    table = "\n".join(["name,smiles,active", *(f"m{i},{row}" for i, row in enumerate(rows))])
    for file in ("molecules.csv", "new.csv"):
        (folder / file).write_text(table)
    for data in ("ENZYMES", "PROTEINS"):
        (folder / data).mkdir()
        # Rings and paths of six to eight nodes.
        edges, owners, labels, first = [], [], [], 1
        for number in range(24):
            size, ring = 6 + number % 3, number % 2
            nodes = range(first, first + size)
            pairs = [*pairwise(nodes), *([(nodes[-1], first)] * ring)]
            edges += [f"{a}, {b}\n{b}, {a}" for a, b in pairs]
            owners += [str(number + 1)] * size
            labels += [str(node % 2) for node in nodes]
            first += size
        classes = [str(number % 2) for number in range(24)]
        files = {"A": edges, "graph_indicator": owners, "node_labels": labels}
        for kind, lines in {**files, "graph_labels": classes}.items():
            (folder / data / f"{data}_{kind}.txt").write_text("\n".join(lines) + "\n")


class PlainModel(nn.Module):
    """A model as a PyG user would write it."""

    def __init__(self) -> None:
        super().__init__()
        self.gnn, self.head = GCN(4, 16, num_layers=2), nn.Linear(16, 6)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> object:
        return self.head(global_mean_pool(self.gnn(x, edge_index).relu(), batch))


def loop() -> dict[str, object]:
    """What the README's loop is given."""
    graphs = gt.load("motifs", graphs=48).to_pyg()
    for data in graphs:
        data.x = torch.randn(data.num_nodes, 4)
    model = PlainModel()
    optimizer = torch.optim.Adam(model.parameters())
    return {"model": model, "loader": DataLoader(graphs, batch_size=16), "optimizer": optimizer}


@pytest.mark.parametrize(
    "page", [p for p in PAGES if BLOCK.search(text_of(p)) and p != TUTORIAL], ids=name
)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPH_TRANSPLANT_DATA", str(tmp_path))
    monkeypatch.setenv("GRAPH_TRANSPLANT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("graph_transplant.baselines.forest.TREES", 20)
    torch.manual_seed(0)
    given = loop() if page.name == "README.md" else {}
    run_page(page, given)
    if "loss" in given:
        assert bool(torch.isfinite(torch.as_tensor(given["loss"])))


NITRO = "[N+](=O)[O-]"


def test_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tutorial as it is written: the model finds the rule behind labels that are partly wrong,
    its card does not claim to be perfect, and explanations show the rule."""
    monkeypatch.setattr("graph_transplant.baselines.forest.TREES", 20)
    monkeypatch.chdir(tmp_path)
    run_page(TUTORIAL, {})
    for file in re.findall(
        r"`((?:comparison/)?\w+\.(?:html|csv|json|safetensors))`", text_of(TUTORIAL)
    ):
        assert (tmp_path / file).exists() or (tmp_path / "model" / file).exists(), file
    with open("molecules.csv", newline="") as truth, open("predictions.csv", newline="") as found:
        pairs = [
            (given["smiles"].endswith(NITRO), float(row["p(1)"]))
            for given, row in zip(csv.DictReader(truth), csv.DictReader(found), strict=True)
            if not row["error"]
        ]
    ruled, others = ([p for nitro, p in pairs if nitro is wanted] for wanted in (True, False))
    assert sum(a > b for a in ruled for b in others) / (len(ruled) * len(others)) > 0.95
    model = TrainedModel.load(tmp_path / "model")
    low, high = model.description.metrics.intervals["auroc"]
    assert low < high
    assert 0.7 < model.description.metrics.test["auroc"] < 1
    # Every tenth molecule ends in a nitro group, its last three atoms.
    shown = explain_rows(model, tmp_path / "molecules.csv", rows=range(10, 721, 10)).explanations
    hits = 0
    for one in shown:
        assert one.structure.names[-3:] == ("N+", "O", "O-")
        share = one.views[0].share
        hits += sum(
            atom >= len(share) - 3 for atom in sorted(range(len(share)), key=share.__getitem__)[-3:]
        )
    assert hits > 0.75 * 3 * len(shown) == 0.75 * 216  # chance: 29 %


def test_readme_and_tutorial_use_one_column_name() -> None:
    used = {
        page.name: set(re.findall(r"--target (\S+)", text_of(page)))
        for page in (ROOT / "README.md", TUTORIAL)
    }
    assert used["README.md"] == used["tutorial.md"]
    assert len(used["tutorial.md"]) == 1


def test_readme_installs_before_its_first_command() -> None:
    lines = [
        line.removeprefix("$ ")
        for _, block in BLOCK.findall(text_of(ROOT / "README.md"))
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    first = next(i for i, line in enumerate(lines) if line.startswith("graph-transplant"))
    before = " ".join(lines[:first])
    assert "pip install torch" in before
    assert "'.[chem]'" in before


def test_code_fits_its_column() -> None:
    """A column of 1,200 pixels holds 90 characters, of a phone 42: there, code wraps, diagrams fit.

    The commands of a generated page wrap on both.
    """
    wide = [
        (name(page), line)
        for page in sorted(DOCS.glob("*.md"))
        if page.name != "results-details.md"
        for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", text_of(page), re.M | re.S)
        for line in block.splitlines()
        if len(line) > (42 if language == "text" else 84)
    ]
    assert wide == []


def test_relative_links_resolve() -> None:
    missing = []
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.M | re.S)
        targets = re.findall(r"\]\(([^)\s]+)\)", text)
        local = [t for t in targets if not re.match(r"(https?|mailto):|#", t)]
        missing += [t for t in local if not (page.parent / t.partition("#")[0]).exists()]
    assert missing == []


def test_deviations_in_the_source_and_on_the_page_are_the_same() -> None:
    folders = (ROOT / "src", ROOT / "reproduction")
    source = "\n".join(text_of(path) for folder in folders for path in folder.rglob("*.py"))
    marked = re.findall(r"Deviation: ([a-z0-9]+(?:-[a-z0-9]+)*)\.", source)
    told = re.findall(r"^`([a-z0-9-]+)`(?: \(`[a-z-]+`\))?$", text_of(DOCS / "deviations.md"), re.M)
    assert len(marked) == source.count("Deviation:"), "write `Deviation: some-key. What and why`"
    assert sorted(marked) == sorted(told)


def test_pages_list_every_command_and_method() -> None:
    listed = text_of(DOCS / "command-line.md").partition("\n## ")[0]
    commands = re.findall(r"^\| `([a-z]+)` \| ", listed, re.M)
    assert sorted(commands) == sorted(key for key in app if not key.startswith("-"))
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| ([^|]*) \|$", text_of(DOCS / "methods.md"), re.M)
    assert rows[: len(gt.METHODS)] == [(name, one.summary) for name, one in gt.METHODS.items()]
