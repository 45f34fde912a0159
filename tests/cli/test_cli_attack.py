"""The command ``attack``: what it measures, prints, writes and refuses."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import graph_transplant as gt
from graph_transplant.analysis import mean_edges, robustness
from graph_transplant.cli import main
from graph_transplant.models import TrainedModel, train
from helpers.edits import both_ways
from helpers.strategies import with_fields

Captured = pytest.CaptureFixture[str]
MODELS = Path(__file__).parents[1] / "golden" / "models"


@pytest.fixture(scope="module")
def store() -> gt.GraphStore:
    """Graphs of nodes of two sorts: like joins like, or unlike, or hardly any edges are there."""
    drawn = np.random.default_rng(0)
    graphs = []
    for number in range(90):
        sort = drawn.integers(0, 2, size=10)
        likely = ((0.4, 0.05), (0.05, 0.4), (0.1, 0.1))[number % 3]
        pairs = itertools.combinations(range(10), 2)
        edges = [(u, v) for u, v in pairs if drawn.random() < likely[int(sort[u] != sort[v])]]
        x = torch.eye(2)[torch.from_numpy(sort)]
        graphs.append(Data(x=x, edge_index=both_ways(*edges), y=torch.tensor([number % 3])))
    return gt.GraphStore.from_pyg(graphs, name="sorts", label_names=["alike", "unlike", "few"])


@pytest.fixture(scope="module")
def place(store: gt.GraphStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model that has learned something, and some graphs in a file."""
    folder = tmp_path_factory.mktemp("attack")
    learned = train(store, method="vanilla", model="gin", hidden=16, epochs=20, learning_rate=0.01)
    learned.save(folder / "model")
    store.subset(range(30)).save(folder / "graphs.safetensors")
    return folder


def printed_json(arguments: list[str], capfd: Captured) -> dict[str, Any]:
    """The one JSON object on the standard output."""
    capfd.readouterr()
    assert main(["attack", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return found


def error_of(arguments: list[str], capfd: Captured) -> str:
    """The one line that a command which cannot be carried out prints."""
    capfd.readouterr()
    assert main(["attack", *arguments]) == 2
    printed = capfd.readouterr()
    assert not printed.out
    lines = printed.err.splitlines()
    assert lines[-1].startswith("error: ")
    return lines[-1].removeprefix("error: ")


def test_json_and_table_have_what_the_library_measures(
    place: Path, store: gt.GraphStore, capfd: Captured
) -> None:
    model, data = str(place / "model"), str(place / "graphs.safetensors")
    words = [model, data, "--budget", "0.3,0.1", "--hops", "3", "--seed", "4"]
    found = printed_json(words, capfd)
    graphs, network = store.subset(range(30)), TrainedModel.load(place / "model").network
    rows = robustness(network, graphs, (0.3, 0.1), data=graphs, hops=3, seed=4)
    assert found["budgets"] == rows
    assert found["clean"] == gt.evaluate(network, graphs).accuracy
    assert rows[0]["accuracy"] < found["clean"], "nothing to see in this model"
    assert found["mean_edges"] == mean_edges(graphs)
    assert (found["graphs"], found["skipped"], found["hops"], found["seed"]) == (30, 0, 3, 4)
    assert (found["model"], found["trained_on"], found["data"]) == (model, "sorts", "sorts")
    assert found["seen"] is True
    assert network.walk
    assert main(["attack", *words]) == 0
    printed, told = capfd.readouterr()
    assert "ignores the gradient through the random-walk features" in told
    assert f"attacking 30 graphs, at most {rows[0]['edges']} changes in each" in told
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    assert lines[0] == ["budget", "changes", "clean", "random", "attacked", "as", "stated"]
    for line, row in zip(lines[1:3], rows, strict=True):
        accuracies = (found["clean"], row["random"], row["accuracy"], row["as_stated"])
        expected = [f"{row['budget']:g}", str(row["edges"]), *(f"{one:.3f}" for one in accuracies)]
        assert line == expected
    assert "30 graphs of " in printed
    # The paper's budget and distance.
    found = printed_json([model, data], capfd)
    assert ([row["budget"] for row in found["budgets"]], found["hops"]) == ([0.2], 4)


def test_graphs_of_training_and_of_other_features_are_noticed(
    place: Path, store: gt.GraphStore, tmp_path: Path, capfd: Captured
) -> None:
    words = [str(place / "model"), str(tmp_path / "all.safetensors")]
    store.save(words[1])
    main(["attack", *words])
    assert "the model was trained on 72 of these 90 graphs" in capfd.readouterr().err
    with_fields(store, x=1 - store.x, label_names=store.label_names).save(words[1])
    assert printed_json(words, capfd)["seen"] is False
    x = torch.rand(int(store.node_counts.sum()), 3)
    with_fields(store, x=x, name="wide", label_names=store.label_names).save(words[1])
    message = "wide: the graphs have 3 node features, but the model was trained on"
    assert message in error_of(words, capfd)


def test_classes_are_known_by_their_names(
    place: Path, store: gt.GraphStore, tmp_path: Path, capfd: Captured
) -> None:
    """Another order of the classes, and only two of them: the same graphs, the same figures."""
    names = ("alike", "unlike")
    few = store.subset([n for n in range(30) if int(store.y[n]) in (0, 1)])
    other = few.with_targets(1 - few.y, num_outputs=2, label_names=[names[1], names[0]])
    few.save(tmp_path / "few.safetensors")
    other.save(tmp_path / "other.safetensors")
    one, two = (
        printed_json([str(place / "model"), str(tmp_path / f"{name}.safetensors")], capfd)
        for name in ("few", "other")
    )
    assert one["clean"] == two["clean"] > 0
    assert one["budgets"] == two["budgets"]


def test_classes_that_the_model_does_not_know_are_refused(
    place: Path, store: gt.GraphStore, tmp_path: Path, capfd: Captured
) -> None:
    model, path = str(place / "model"), tmp_path / "graphs.safetensors"
    graphs = store.subset(range(12))
    message = "no row has both a graph and one of the model's classes; an attack needs the true"
    for y, other in (
        (graphs.y, {"label_names": ["tree", "bush", "herb"]}),
        (torch.zeros(12, dtype=torch.long), {"label_names": None}),
        (torch.rand(12), {"label_names": None, "task": "regression"}),
    ):
        with_fields(graphs, y=y, **other).save(path)
        assert message in error_of([model, str(path)], capfd)
    graphs.with_targets(graphs.y, label_names=["tree", "unlike", "few"]).save(path)
    assert printed_json([model, str(path)], capfd)["skipped"] == 4


def test_only_models_of_classes_are_attacked(capfd: Captured) -> None:
    message = error_of([str(MODELS / "numbers"), "motifs"], capfd)
    assert message.startswith("MODEL must predict one class per graph, but the task of ")


def write(path: Path, header: list[str], rows: list[list[str]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def test_rows_that_cannot_be_attacked_are_told(tmp_path: Path, capfd: Captured) -> None:
    pytest.importorskip("rdkit", reason="molecules need RDKit")
    path = tmp_path / "new.csv"
    rows = [["CCO", "polar"], ["C1CC((", "apolar"], ["CCC", ""], ["CCN", "odd"], ["CCCl", "x"]]
    rows += [["C1CCCCC1C", "APOLAR"], ["CCCCO", "polar"], ["CCCCC", "apolar"], ["CC", "apolar"]]
    write(path, ["smiles", "danger"], rows)
    words = ["attack", str(MODELS / "molecules"), str(path), "--target", "danger", "--json"]
    assert main(words) == 0
    printed = capfd.readouterr()
    found = json.loads(printed.out)
    assert (found["graphs"], found["skipped"]) == (5, 4)
    assert "4 of 9 rows skipped" in printed.err
    assert "row 2: " in printed.err
    assert "row 3: no target" in printed.err
    assert "row 4: `danger` must be one of " in printed.err
    assert "and 1 more" in printed.err


def test_classes_must_be_in_the_table(tmp_path: Path, capfd: Captured) -> None:
    pytest.importorskip("rdkit", reason="molecules need RDKit")
    model, path = str(MODELS / "molecules"), tmp_path / "bare.csv"
    write(path, ["smiles"], [["CCO"], ["CCC"]])
    assert "'class'" in error_of([model, str(path)], capfd)
    message = "--target must be one of the columns 'smiles'; got 'a,b'"
    assert message in error_of([model, str(path), "--target", "a,b"], capfd)
    write(path, ["smiles", "class"], [])
    assert "there are no graphs" in error_of([model, str(path)], capfd)
