"""What first-time users stumbled over: each test does what they did."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss
from torch.nn.parallel import DataParallel
from torch.utils.data import Subset
from torch_geometric.data import Batch, HeteroData

import graph_transplant as gt
from graph_transplant.cli import main
from helpers.foreign_models import Foreign, Weighted
from helpers.page_samples import Page, card_page
from helpers.strategies import generator, random_batch

SLOW = (
    *("torch", "torch_geometric", "numpy", "numba", "scipy", "sklearn", "matplotlib", "joblib"),
    *("networkx", "pandas"),
)
CHAINS = [(f"{'C' * size}{end}", "ON".index(end)) for size in range(1, 15) for end in "ON"]


def run(*words: object) -> SimpleNamespace:
    """Run a command; return its exit status and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main([str(word) for word in words])
    return SimpleNamespace(status=status, out=out.getvalue(), err=err.getvalue())


def text_of(page: Path) -> str:
    return Page(page.read_text(encoding="utf-8")).text


# ------------------------------------------------------------------ a chemist's table and model


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Alcohols and amines; one twice, one salt, one broken, one not measured."""
    pytest.importorskip("rdkit", reason="molecules need RDKit")
    path = tmp_path_factory.mktemp("chemist") / "assay.csv"
    rows = [*CHAINS, ("OCC", 0), ("CC[O-].[Na+]", 0), ("C1CC((", 1), ("CCCl", "")]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("Canonical_Smiles", "toxic"), *rows])
    return path


@pytest.fixture(scope="module")
def trained(table: Path) -> SimpleNamespace:
    """What `train` printed, and the folder of the model."""
    folder = table.parent / "model"
    words = ("--target", "toxic", "--method", "vanilla", "--hidden", 8, "--epochs", 2)
    done = run("train", table, *words, "--split", "random", "--out", folder)
    assert done.status == 0, done.err
    return SimpleNamespace(folder=folder, out=done.out, err=done.err)


# ------------------------------------------------------------------ a PyG user's model


def batch_of(graphs: int = 4) -> Batch:
    batch = random_batch(generator(4), graphs=graphs, edge_attr=True)
    batch.y = torch.arange(graphs) % 3
    return batch


def loss_of(model: Any, batch: Any, augment: Any = (), **settings: Any) -> Tensor:
    return gt.augmented_loss(model, batch, augment, generator=generator(1), **settings)


def test_01_float_targets_never_switch_the_loss_between_batches() -> None:
    batch, model = batch_of(), Foreign(1)
    # Values that look like labels, like numbers, and like both, from batch to batch.
    for values in ([0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 2.0, 0.5], [0.0, 0.0, 0.0, 0.0]):
        batch.y = torch.tensor(values)
        with pytest.raises(ValueError, match="pass task='multilabel' or task='regression'"):
            loss_of(model, batch, gt.GraphTransplant())
        logits = model(batch.x, batch.edge_index, batch.batch, 4)[:, 0]
        for task, loss in (
            ("regression", mse_loss),
            ("multilabel", binary_cross_entropy_with_logits),
        ):
            for y in (batch.y, batch.y.long()):  # whole numbers are numbers
                batch.y = y
                torch.testing.assert_close(
                    loss_of(model, batch, task=task), loss(logits, y.float())
                )


def gradients(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("model", [Foreign(), gt.GraphClassifier(3, 3, hidden=8, dropout=0.0)])
def test_02_wrapped_models_give_what_they_give_alone(model: nn.Module) -> None:
    found = []
    for each in (model, DataParallel(model)):
        model.zero_grad()
        loss = loss_of(each, batch_of(), gt.GraphTransplant())
        loss.backward()
        found.append((loss.detach(), gradients(model)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's own, while it compiles
@pytest.mark.filterwarnings("ignore:the model is compiled")
def test_02_a_compiled_model_runs_compiled_where_its_layers_are_not_looked_at() -> None:
    compiled: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    batch, model, plain = batch_of(), Foreign(), Foreign()
    wrapped = torch.compile(model, backend=backend)
    loss_of(wrapped, batch, gt.augment.LabelSmoothing()).backward()  # its layers are looked at
    assert not compiled
    model.zero_grad()
    for each in (wrapped, plain):
        loss_of(each, batch, gt.GraphTransplant()).backward()
    assert compiled
    torch.testing.assert_close(gradients(model), gradients(plain))


def test_04_explanations_no_better_than_random_are_not_to_be_relied_on(
    trained: SimpleNamespace, tmp_path: Path
) -> None:
    shutil.copytree(trained.folder, tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    description = json.loads(path.read_text())
    areas = {"deletion": 0.548, "deletion_random": 0.516}
    for insertion, doubtful in ((0.454, True), (0.6, False)):
        measured = areas | {"insertion": insertion, "insertion_random": 0.512}
        description["saliency"] |= measured
        path.write_text(json.dumps(description))
        assert run("explain", path.parent, "CCO", "--out", tmp_path / "page.html").status == 0
        assert ("Do not rely on these" in text_of(tmp_path / "page.html")) == doubtful
        (tmp_path / "card.html").write_text(card_page(description), "utf-8")
        assert ("Do not rely on its expl" in text_of(tmp_path / "card.html")) == doubtful


def test_06_the_default_model_of_molecules_can_be_attacked(
    table: Path, trained: SimpleNamespace
) -> None:
    done = run("attack", trained.folder, table, "--json")
    assert done.status == 0
    found = json.loads(done.out)
    (row,) = found["budgets"]
    assert found["removals_only"] is row["removals_only"] is True
    assert "edges are only removed: gine uses edge features" in done.err
    quick = {"epochs": 1, "layers": 1, "folds": 3}
    results = gt.compare(table, target="toxic", methods="vanilla", attack=[0.2], **quick)
    assert all(row["removals_only"] for record in results.records for row in record.attacked)


WRONG = [
    ("compare nosuch.csv", "DATA: there is no file or folder 'nosuch.csv'"),
    ("compare ENZIMES", "unknown data set 'ENZIMES' (did you mean 'ENZYMES'?)"),
    ("paper table1", "'paper' has been removed: the paper's experiments are run from a checkout"),
    ("predict nomodel x.csv", "there is no folder nomodel: a model is a folder"),
    ("predict {folder} CCO", "is not a model: model.json is missing"),
    ("predict {model} x.csv", "DATA: there is no file or folder 'x.csv'"),
    ("explain {model} CCO --count 0", "--count must be at least 1, got 0"),
    ("predict {model} CCO --coverage 2", "--coverage must be in (0, 1), got 2"),
    (
        "explain {model} CCO --saliency lime",
        "--saliency must be one of gradient, gradient-x",
    ),
    ("attack {model} motifs --budget much", "--budget must be numbers separated by commas"),
    ("show motifs --method drop-nodes", "--method must be one of transplant-dp"),
    ("report nodir", "there is no directory nodir"),
    ("report {folder}", "there are no records in"),
    ("across", "at least two data sets"),
    ("compare --methods vanila", "--methods must be one of"),
    ("compare --methods vanilla,", "--methods must be names separated by commas"),
    ("compare --models gcx", "--models must be one of auto, gcn, gcs, gin, gat"),
    ("compare --metric auc", "got 'auc' (did you mean 'auroc'?)"),
    ("compare --engine spark", "--engine must be one of local, ray; got 'spark'"),
    ("compare --engine torchrun", "'compare --engine torchrun' has been removed: `--workers` and"),
    ("compare --address HEAD:6379", "--address names a Ray cluster and needs the engine ray"),
    ("compare --folds 2", "--folds must be at least 3, got 2"),
    (
        "compare --layers 3,x",
        "--layers must be whole numbers separated by commas",
    ),
    ("compare --train-fraction 1,2", "--train-fraction must be in (0, 1], got 2"),
    ("compare --label-noise 1", "--label-noise must be in [0, 1), got 1"),
    ("train motifs --method majority", "--method majority cannot be trained as a model"),
    ("train motifs --validation 0.95", "--validation and --test must leave graphs"),
    ("train motifs --learning-rate -1", "--learning-rate must be above 0, got -1"),
    ("compare --out {folder}/t.csv", "--out must be a folder, but {folder}/t.csv is a file"),
    ("compare --out {folder}/t.csv/new", "--out must be in a folder, but {folder}/t.csv is a file"),
    ("show motifs --out {folder}", "--out must be a file, but {folder} is a folder"),
    ("show {folder}/t.csv --out {folder}/../folder/t.csv", "--out would overwrite {folder}/t.csv"),
    ("explain {model} {folder}/t.csv --out {link}", "--out would overwrite {folder}/t.csv"),
    ("predict {model} {folder}/t.csv --out {model}/model.json", "would overwrite {model}/model.js"),
    ("show {folder}/g.skipped.csv --out {folder}/g.html", "overwrite {folder}/g.skipped.csv"),
    ("report {done} --format csv --out {done}/records.jsonl", "--out would overwrite {done}/rec"),
    ("train motifs Class", "unexpected argument 'Class' (see graph-transplant train --help)"),
    ("compare --no-such-option 1", "(see graph-transplant compare --help)"),
]


def test_09_what_is_wrong_is_said_before_torch_is_imported(tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("folder", "model", "done", "link")}
    for name in ("folder/t.csv", "folder/g.skipped.csv", "model/model.json", "done/records.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}" if "json" in name else "smiles,y\nC,0\n")
    places["link"].symlink_to(tmp_path / "folder" / "t.csv")
    commands = [words.format(**places).split() for words, _ in WRONG]
    code = (
        "import sys\n"
        "from graph_transplant.cli import main\n"
        f"for words in {commands!r}:\n"
        f"    print(main(words), [name for name in {SLOW!r} if name in sys.modules])\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines() == ["2 []"] * len(WRONG)
    for line, (words, message) in zip(told.stderr.splitlines(), WRONG, strict=True):
        assert line.startswith("error: "), words
        assert message.format(**places) in line, (words, line)


def test_10_drawings_show_stereo(trained: SimpleNamespace, tmp_path: Path) -> None:
    lines = []
    for smiles in ("C[C@H](N)O", "CC(N)O"):
        assert run("explain", trained.folder, smiles, "--out", tmp_path / "p.html").status == 0
        page = (tmp_path / "p.html").read_text()
        lines.append(re.findall(r'<svg class="graph".*?</svg>', page, re.DOTALL)[0].count("<path"))
    assert lines[0] > lines[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("compare m.csv", "name the columns to learn with --target; there are 'id', 'y', 'v'"),
        ("compare m.csv --target z", "--target must be one of the columns 'smiles', 'id', 'y'"),
        ("compare m.csv --target y --smiles s", "--smiles must be one of the columns"),
        ("train m.csv --target y", "m.csv: the target 'y' has only one class, '1'"),
        ("train m.csv --target y,z", "m.csv: the target 'y,z' has only one class, '0'"),
        ("train m.csv --target v", "at least 4 are needed"),
        ("train m.csv --target v --split scaffold", "random split does not need scaffolds"),
    ],
)
def test_11_messages_of_the_command_line_speak_its_language(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rdkit")
    (tmp_path / "m.csv").write_text(
        'smiles,id,y,v,"y,z"\nCCO,a,1,low,0\nCCN,b,1,high,0\nCCC,c,1,low,0\n'
    )
    monkeypatch.chdir(tmp_path)
    done = run(*words.split())
    assert (done.status, done.out) == (2, "")
    assert message in done.err.splitlines()[-1]
    assert not re.search("`(target|smiles|task|data)`", done.err)


def test_12_duplicates_salts_and_a_guessed_column_are_told(trained: SimpleNamespace) -> None:
    for words in (
        "1 of 30 graphs repeat another (the same canonical SMILES).",
        "1 of 30 molecules have several fragments (salts, mixtures)",
        "--largest-fragment",
        "Canonical_Smiles",  # the table has no column called smiles
    ):
        assert words in trained.err, words


def test_13_edge_weights_that_the_data_have_not_are_ones() -> None:
    for augment in ((), gt.GraphTransplant()):
        losses = [loss_of(model, batch_of(), augment) for model in (Weighted(), Foreign())]
        torch.testing.assert_close(*losses)


def test_14_odd_models_and_data_are_told_why_or_work() -> None:
    class Probabilities(Foreign):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int) -> Tensor:
            return super().forward(x, edge_index, batch, batch_size).softmax(1)

    batch = batch_of(6)
    with pytest.raises(ValueError, match="one output per graph, but classes need one logit each"):
        loss_of(Foreign(1), batch)
    with pytest.raises(ValueError, match=r"returns probabilities, .* leave out the softmax"):
        loss_of(Probabilities(), batch)
    with pytest.raises(gt.DataError, match=r"HeteroData.*to_homogeneous"):
        loss_of(Foreign(), HeteroData(), gt.GraphTransplant())
    items = batch.to_data_list()
    del batch.y
    with pytest.raises(gt.DataError, match="the batch has no targets: give every graph a `y`"):
        loss_of(Foreign(), batch)
    assert gt.load(Subset(items, [4, 1, 3]), num_outputs=3).y.tolist() == [1, 1, 0]


def test_16_the_papers_experiments_tell_a_log_file_how_long_they_take(tmp_path: Path) -> None:
    class Log(io.StringIO):
        def write(self, text: str) -> int:
            super().write(text)
            if "they will take about" in text:
                raise KeyboardInterrupt
            return len(text)

    from reproduction.__main__ import main

    words = ["edge-predictor", "--data", "motifs", "--out", str(tmp_path / "out")]
    with redirect_stderr(Log()) as log:
        assert main(words) == 130
    lines = [line for line in log.getvalue().splitlines() if "compiling" not in line]
    assert lines[0] == "edge-predictor: reading motifs"
    assert re.search(r"\d+ of \d+ trials are missing; they will take about \d+", lines[1])
    assert "Run the same command again to continue" in log.getvalue()
