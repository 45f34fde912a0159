"""Explanations: saliency of what a trained model says, against derivatives taken by hand."""

from __future__ import annotations

import gzip
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import graph_transplant as gt
from graph_transplant.analysis.drawing import drawn_graphs, examples, mixtures
from graph_transplant.data import Featurizer, GraphStore
from graph_transplant.data.targets import TargetScale, is_correct, label_words
from graph_transplant.datasets.splits import split_for_training
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.models.explanation import explain, explain_rows
from graph_transplant.models.model import TrainedModel
from graph_transplant.models.uncertainty import in_training_set, training_hashes
from graph_transplant.nn import GraphClassifier
from graph_transplant.nn.saliency import NodeSaliency
from graph_transplant.results.examples import DrawnGraph, DrawnVirtual, read_example, write_example
from helpers.edits import both_ways
from helpers.made_up_records import as_trained
from helpers.oracles import unchanged
from helpers.strategies import generator


def graphs(task: str = "multiclass", outputs: int = 3, count: int = 5) -> GraphStore:
    """Paths of 1, 2, 3 ... nodes with random features."""
    source = generator(3)
    y = torch.rand(count, outputs, generator=source)
    y = {"multiclass": torch.arange(count) % outputs, "multilabel": y.round()}.get(task, 10 * y)
    paths = [
        Data(
            x=torch.randn(nodes, 4, generator=source),
            edge_index=both_ways(*pairwise(range(nodes))),
            y=y[nodes - 1 : nodes],
        )
        for nodes in range(1, count + 1)
    ]
    names = [f"name {k}" for k in range(outputs)]
    return GraphStore.from_pyg(paths, num_outputs=outputs, label_names=names, name="paths")


def model_for(store: GraphStore, readout: str = "mean", **more: Any) -> TrainedModel:
    """A model of these graphs that speaks in their units."""
    scale = TargetScale.of(store) if store.task == "regression" else None
    names = list(store.label_names or ())
    return as_trained(network_for(store, readout), names, **{"scale": scale, **more})


def network_for(store: GraphStore, readout: str = "mean", seed: int = 0) -> GraphClassifier:
    network = GraphClassifier.for_data(store, layers=2, hidden=6, readout=readout, seed=seed)
    return network.eval().double()


def numerical(network: GraphClassifier, store: GraphStore, graph: int, output: int) -> Tensor:
    """The gradient of what is explained at the last embeddings, by central differences."""
    batch = store.batch([graph])
    with torch.no_grad():
        nodes = network.embed_nodes(batch)[-1].nodes.clone()
        gradient = torch.zeros_like(nodes)
        step = 1e-5
        for place in range(nodes.numel()):
            values = []
            for sign in (1, -1):
                moved = nodes.clone().flatten()
                moved[place] += sign * step
                logits = network.classify(network.readout(moved.view_as(nodes), batch))[0]
                values.append(float(meaning(logits, output, store.task)))
            gradient.view(-1)[place] = (values[0] - values[1]) / (2 * step)
    return gradient


def meaning(logits: Tensor, output: int, task: str) -> Tensor:
    """What is explained, written out plainly: log-odds of a class, a logit, a value."""
    if task != "multiclass":
        return logits[output]
    others = [logits[k].exp() for k in range(len(logits)) if k != output]
    return logits[output] - torch.stack(others).sum().log()


# -------------------------------------------------------------------- saliency


@pytest.mark.parametrize("readout", ["mean", "sum"])
@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
def test_saliency_is_the_gradient_found_by_finite_differences(task: str, readout: str) -> None:
    store = graphs(task)
    model = model_for(store, readout)
    network = model.network
    for side in ("before", "after"):
        found = explain(model, store, saliency=NodeSaliency(activation=side))
        for number, one in enumerate(found):
            with torch.no_grad():
                prediction = network.run(store.batch([number]))
            output = 0 if task == "regression" else int(prediction.logits.argmax())
            assert one.views[0].output == f"name {output}"
            gradient = numerical(network, store, number, output)
            if side == "before":  # the rectifier lets through where it is open
                gradient = gradient * (prediction.nodes > 0)
            wanted = gradient.norm(dim=1)
            total = float(wanted.sum())
            share = wanted / total if total > 0 else wanted
            assert torch.allclose(torch.tensor(one.views[0].share).double(), share, atol=1e-6)


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
def test_signs_are_those_of_gradient_times_embedding(task: str) -> None:
    store = graphs(task)
    model, signs = model_for(store), set()
    network = model.network
    for output in (0, 1):
        for number, one in enumerate(explain(model, store, output=f"name {output}")):
            view = one.views[0]
            assert view.output == f"name {output}"
            nodes = network.run(store.batch([number])).nodes.detach()
            wanted = (numerical(network, store, number, output) * nodes).sum(1)
            signs |= set(wanted.sign().tolist())
            wholes = wanted.abs().sum(), wanted.abs().max()
            for found, whole in zip((view.share, view.saliency), wholes, strict=True):
                scaled = wanted / whole.clamp(min=1e-300)
                assert torch.allclose(torch.tensor(found).double(), scaled, atol=1e-6)
    assert signs >= {-1.0, 1.0}
    with pytest.raises(GraphTransplantError, match="`output` must be one of name 0, name 1"):
        explain(model, store, output="d")


def test_the_model_stays_as_it_was() -> None:
    store = graphs()
    model = model_for(store)
    wanted = explain(model, store)
    model.network.train()
    with unchanged(model.network):
        # Dropout has no say in an explanation.
        assert explain(model, store) == wanted


# -------------------------------------------------------------------- words


def test_predictions_are_those_of_the_model() -> None:
    store = graphs()
    model = model_for(store)
    predicted = model.predictions(store)
    found = explain(model, store)
    assert [one.views[0].label for one in found] == predicted.labels
    assert [one.views[0].confidence for one in found] == pytest.approx(
        predicted.confidence.tolist()
    )
    assert [one.truth for one in found] == [f"name {k}" for k in store.y.tolist()]
    assert [one.views[0].correct for one in found] == [
        one.truth == label for one, label in zip(found, predicted.labels, strict=True)
    ]
    assert [one.id for one in found] == ["1", "2", "3", "4", "5"]


def test_labels_that_were_not_measured_do_not_count() -> None:
    store = graphs("multilabel")
    model = model_for(store)
    given = model.predictions(store).outputs >= 0.5
    y = given.to(torch.float32)
    y[0, 1] = 1 - y[0, 1]  # wrong
    y[1, 1] = math.nan  # not measured
    y[2] = math.nan
    found = explain(model, store.with_targets(y, task="multilabel"))
    assert [one.views[0].correct for one in found] == [False, True, None, True, True]
    assert found[2].truth is None
    for one, row in zip(found, given.tolist(), strict=True):
        names = [f"name {k}" for k, there in enumerate(row) if there]
        assert one.views[0].label == (", ".join(names) or "none of the labels")


def test_regression_speaks_in_the_units_of_the_data() -> None:
    store = graphs("regression", outputs=2)
    scale = TargetScale(torch.tensor([100.0, 5.0]).double(), torch.tensor([10.0, 1.0]).double())
    model = as_trained(network_for(store), ["mass", "length"], scale=scale)
    values = model.predictions(store).outputs
    one = explain(model, store)[0]
    assert one.views[0].label == f"mass {values[0, 0]:.4g}, length {values[0, 1]:.4g}"
    assert 50 < values[0, 0] < 150
    assert one.views[0].confidence is None
    assert one.views[0].correct is None
    assert one.views[0].output == "mass"
    assert one.truth == "mass {:.4g}, length {:.4g}".format(*store.y[0].tolist())


# -------------------------------------------------------------------- several models


def test_models_stand_side_by_side() -> None:
    store = graphs()
    names = ["name 0", "name 1", "name 2"]
    one = as_trained(network_for(store, seed=0), names, method="vanilla")
    two = as_trained(network_for(store, seed=1), names, method="transplant-ep")
    both = explain([one, two], store)
    alone = explain(two, store)
    assert [view.model for view in both[0].views] == ["vanilla", "transplant-ep"]
    assert [found.views[1] for found in both] == [found.views[0] for found in alone]
    named = explain({"mine": one, "yours": two}, store)
    assert [view.model for view in named[0].views] == ["mine", "yours"]
    same = explain([one, one], store)
    assert [view.model for view in same[0].views] == ["vanilla, model 1", "vanilla, model 2"]


def test_models_that_cannot_be_compared_are_refused() -> None:
    store = graphs()
    names = ["a", "b", "c"]
    ogb = {"kind": "molecules", "features": "ogb", "smiles": "mol"}
    salts = {"kind": "molecules", "largest_fragment": True}
    one = as_trained(network_for(store), names, featurizer=ogb)
    two = as_trained(network_for(store), names, featurizer=salts)
    with pytest.raises(GraphTransplantError, match="read data in different ways"):
        explain({"one": one, "two": two}, store)
    other = as_trained(network_for(store), ["x", "y", "z"])
    with pytest.raises(GraphTransplantError, match=r"one predicts multiclass \(a, b, c\)"):
        explain([as_trained(network_for(store), names), other], store)
    with pytest.raises(GraphTransplantError, match="at least one trained model, got none"):
        explain([], store)
    graph_model = as_trained(network_for(store), names, featurizer={"kind": "graphs"})
    store.featurizer = Featurizer("molecules")
    with pytest.raises(DataError, match=r"was trained on graphs; .* holds molecules"):
        explain(graph_model, store)


def test_anything_that_can_be_predicted_can_be_explained(table: Path) -> None:
    model = model_of(smiles="smiles", targets=["toxic"])
    found = explain(model, ["CCO", "c1ccccc1"])
    assert [(one.id, one.truth) for one in found] == [("CCO", None), ("c1ccccc1", None)]
    frame = pd.read_csv(table).drop(index=1)
    assert [one.truth for one in explain(model, frame)] == ["0", "1", None, "0"]
    with pytest.raises(DataError, match="row 2 cannot be read: the SMILES"):
        explain(model, table)
    for method in (model.logits, model.predictions):
        with pytest.raises(DataError, match="`store` must be a GraphStore"):
            method(["CCO"])


# -------------------------------------------------------------------- structure


def drawn(store: GraphStore) -> list[DrawnGraph]:
    return drawn_graphs(store.batch(range(len(store))), store)


def orders(graph: DrawnGraph) -> tuple[float, ...]:
    return graph.orders or (1.0,) * len(graph.edges)


@pytest.mark.parametrize(
    ("edges", "wanted"),
    [
        ([(2, 0), (1, 2)], {(2, 0), (1, 2)}),
        ([(0, 1), (1, 0), (2, 2), (1, 2), (2, 1)], {(0, 1), (1, 2), (2, 2)}),
    ],
    ids=["directed", "undirected"],
)
def test_structures_have_the_edges_of_the_graph(
    edges: list[tuple[int, int]], wanted: set[tuple[int, int]]
) -> None:
    data = Data(x=torch.ones(3, 1), edge_index=torch.tensor(edges).T, y=torch.tensor([0]))
    (graph,) = drawn(GraphStore.from_pyg([data], num_outputs=2))
    assert len(graph.edges) == len(wanted)
    assert set(graph.edges) == wanted
    assert graph.directed == (len(edges) == 2)


def test_molecules_have_their_elements_and_bond_orders() -> None:
    chem = pytest.importorskip("rdkit.Chem")
    from graph_transplant.datasets.molecules import from_smiles

    smiles = ["CC(=O)Nc1ccc(O)cc1", "C#N", "[Na+].[Cl-]", "FC(Cl)(Br)I"]
    store = from_smiles(smiles)
    for text, graph in zip(smiles, drawn(store), strict=True):
        molecule = chem.MolFromSmiles(text)
        symbols = [atom.GetSymbol() for atom in molecule.GetAtoms()]
        assert [re.sub(r"(?<=.)H\d?|[+-]", "", name) for name in graph.names] == symbols
        assert graph.molecule
        wanted = {
            tuple(sorted((b.GetBeginAtomIdx(), b.GetEndAtomIdx()))): b.GetBondTypeAsDouble()
            for b in molecule.GetBonds()
        }
        assert dict(zip(graph.edges, orders(graph), strict=True)) == wanted


@pytest.mark.data
@pytest.mark.parametrize(("name", "first"), [("MUTAG", "CCCCCCCCCCCCCCNOO"), ("Mutagenicity", "")])
def test_molecules_of_tu_have_their_elements(data_dir: Path, name: str, first: str) -> None:
    store = gt.load(data_dir / "tu" / f"{name}.zip").subset(range(30))
    found = drawn(store)
    assert all(graph.molecule for graph in found)
    if first:
        assert "".join(found[0].names) == first
    # Valences that chemistry allows show that the tables are not mixed up.
    most = {"H": 1, "F": 1, "Cl": 1, "Br": 1, "I": 1, "O": 2, "N": 4, "C": 4}
    for graph in found:
        valence = [0.0] * len(graph.names)
        for (one, two), order in zip(graph.edges, orders(graph), strict=True):
            valence[one] += order
            valence[two] += order
        for element, value in zip(graph.names, valence, strict=True):
            assert math.floor(value) <= most.get(element, 6)


def test_labels_of_json_graphs_name_the_nodes() -> None:
    graph, other = nx.Graph([(0, 1)], y="p"), nx.Graph(y="q")
    graph.add_node(0, label="red", x=[1.0])
    graph.add_node(1, label="blue", x=[2.0])
    other.add_node(0, label="red", x=[0.5])
    store = gt.load([graph, other])
    assert [one.names for one in drawn(store)] == [("red", "blue"), ("red",)]


def test_one_hot_types_are_drawn_as_the_numbers_of_their_columns(tmp_path: Path) -> None:
    store = gt.load("typed-motifs", graphs=8)
    for graph, data in zip(drawn(store), store, strict=True):
        assert graph.names == tuple(str(row.index(1)) for row in data.x.tolist())
        assert graph.typed
    # The types of the motif are those in the name of its class.
    first = drawn(store)[0]
    inside = [n for n, of in zip(first.names, store[0].motif_mask.tolist(), strict=True) if of]
    assert (sorted(inside), label_words(store, 0)) == (["0", "0", "1", "1"], "cycle of 0 and 1")
    store.save(tmp_path / "typed.safetensors")
    again = gt.load(tmp_path / "typed.safetensors")
    assert [g.names for g in drawn(again)] == [g.names for g in drawn(store)]


@pytest.mark.parametrize(
    ("x", "continuous", "names"),
    [
        ([[0.3, 0, 1], [0.7, 1, 0]], 1, ("1", "0")),
        ([[0.3, 0, 1], [0.7, 1, 0]], 0, ("", "")),  # a number among them
        ([[1, 0, 1], [0, 1, 0]], 0, ("", "")),  # two at once
        ([[0, 0], [0, 1]], 0, ("", "")),  # one without any
        ([[1], [1]], 0, ("", "")),  # nothing to tell apart
    ],
)
def test_other_features_are_no_types(
    x: list[list[float]], continuous: int, names: tuple[str, ...]
) -> None:
    data = Data(x=torch.tensor(x), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([0]))
    store = GraphStore.from_pyg([data], num_outputs=2, num_continuous=continuous)
    assert [graph.names for graph in drawn(store)] == [names]


def test_mixed_graphs_keep_the_types_of_their_nodes() -> None:
    store = gt.load("typed-motifs", graphs=40)
    for one in mixtures(store, method="transplant-dp", count=3, epochs=1, hidden=8):
        for part, transplanted in ((one.source, True), (one.destination, False)):
            kept = [n for n, of in zip(part.structure.names, part.chosen, strict=True) if of]
            pairs = zip(one.structure.names, one.from_source, strict=True)
            assert sorted(kept) == sorted(name for name, of in pairs if of == transplanted)
            assert set(kept) <= set("01234")


def test_pages_of_models_and_of_comparisons_judge_labels_alike() -> None:
    # A target of one half counts as present, as `output_words` names it.
    assert is_correct("multilabel", [0.9, 0.1], [0.5, math.nan])
    assert not is_correct("multilabel", [0.1, 0.1], [0.5, 0.0])
    assert is_correct("multilabel", [0.1], [math.nan]) is None
    assert is_correct("multiclass", [0.1, 0.7, 0.2], [1.0])
    assert is_correct("regression", [0.1], [0.1]) is None
    store = graphs("multilabel")
    model = model_for(store)
    y = torch.full_like(model.predictions(store).outputs, 0.5, dtype=torch.float32)
    halves = store.with_targets(y, task="multilabel")
    seen = [one.views[0].correct for one in explain(model, halves)]
    records = examples(model.network, [], halves, halves, seed=0)
    told = {int(record["graph"]) - 1: record["correct"] for record in records}
    assert told
    assert all(seen[number] == bool(value) for number, value in told.items())


def test_edges_have_their_labels_as_types() -> None:
    graph = nx.Graph(y="p")
    graph.add_edge(0, 1, label="owns", x=[0.5])
    graph.add_edge(1, 2, label="knows", x=[1.0])
    graph.add_edge(0, 2, label="owns", x=[0.0])
    store = gt.load([graph, nx.Graph([(0, 1, {"label": "knows", "x": [2.0]})], y="q")])
    (first, other) = drawn(store)
    types = dict(zip(first.edges, first.kinds, strict=True))
    assert types == {(0, 1): "owns", (1, 2): "knows", (0, 2): "owns"}
    assert other.kinds == ("knows",)
    record = write_example(DrawnVirtual(first, "p"))
    assert read_example(record) == DrawnVirtual(first, "p")
    with pytest.raises(GraphTransplantError, match="`kinds` must have a value for each edge"):
        read_example(record | {"kinds": ["owns"]})
    # One-hot columns without names are numbered.
    data = Data(
        x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([0]),
        edge_attr=torch.tensor([[0.0, 1.0], [0.0, 1.0]]),
    )  # fmt: skip
    assert drawn(GraphStore.from_pyg([data], num_outputs=2))[0].kinds == ("1",)


# -------------------------------------------------------------------- rows of files


@pytest.fixture
def table(tmp_path: Path) -> Path:
    pytest.importorskip("rdkit")
    rows = ["CCO,0,a", "C1CC,1,b", "c1ccccc1,1,c", "CCN,,d", "CC(=O)O,0,e"]
    path = tmp_path / "m.csv.gz"
    path.write_bytes(gzip.compress("\n".join(["smiles,toxic,id", *rows, ""]).encode()))
    return path


def model_of(**reading: Any) -> TrainedModel:
    from graph_transplant.datasets.molecules import from_smiles

    store = from_smiles(["CCO", "CCN"])
    network = GraphClassifier(store.num_node_features, 2, layers=2, hidden=6, seed=0).eval()
    assert store.featurizer is not None
    return as_trained(network, ["0", "1"], featurizer={**store.featurizer.to_dict(), **reading})


def test_rows_of_a_table_are_explained_and_broken_ones_listed(table: Path) -> None:
    model = model_of(smiles="smiles", targets=["toxic"], id="id")
    found = explain_rows(model, table, count=4)
    assert [one.id for one in found.explanations] == ["a", "c", "d"]
    assert [one.text for one in found.explanations] == ["CCO", "c1ccccc1", "CCN"]
    # A row without a target is still a molecule.
    assert [one.truth for one in found.explanations] == ["0", "1", None]
    assert [(one.row, one.id) for one in found.skipped] == [(2, "b")]
    assert found.skipped[0].reason
    assert found.source == str(table)


@pytest.mark.parametrize(
    ("form", "name"),
    [("csv", "toxic"), ("sdf", "toxic"), ("pyg", "toxic"), ("pyg", "harmless")],
)
def test_one_class_alone_is_known_by_the_model(form: str, name: str, tmp_path: Path) -> None:
    chem = pytest.importorskip("rdkit.Chem")
    from graph_transplant.datasets.molecules import from_smiles

    store = from_smiles(["CCO", "CCN"])
    assert store.featurizer is not None
    featurizer = {**store.featurizer.to_dict(), "targets": ["kind"]}
    data: Any = tmp_path / f"m.{form}"
    if form == "csv":
        data.write_text("smiles,kind\nCCO,toxic\nCCN,toxic\n")
    elif form == "sdf":
        with chem.SDWriter(str(data)) as writer:
            for text in ("CCO", "CCN"):
                molecule = chem.MolFromSmiles(text)
                molecule.SetProp("kind", "toxic")
                writer.write(molecule)
    else:
        y = torch.full((2,), int(name == "toxic"))
        data = store.with_targets(y, num_outputs=2).to_pyg()
    network = GraphClassifier(store.num_node_features, 2, layers=1, hidden=4, seed=0).eval()
    given = None if form == "pyg" else featurizer
    model = as_trained(network, ["harmless", "toxic"], featurizer=given)
    found = explain_rows(model, data, count=2).explanations
    assert [one.truth for one in found] == [name, name]
    assert [one.views[0].correct for one in found] == [one.views[0].label == name for one in found]


def test_targets_may_be_named_in_any_order() -> None:
    pytest.importorskip("rdkit")
    frame = pd.DataFrame({"smiles": ["CCO", "CCN"], "a": [0.5, 1.5], "b": [None, 20]})
    network = GraphClassifier(model_of().network.in_features, 2, layers=1, task="regression")
    scale = TargetScale(torch.zeros(2).double(), torch.ones(2).double())
    reading = {"kind": "molecules", "targets": ["a", "b"]}
    model = as_trained(network.eval(), ["a", "b"], featurizer=reading, scale=scale)
    for target in (None, "a,b", "b,a", ["b", "a"]):
        assert [one.truth for one in explain(model, frame, target=target)] == [
            "a 0.5",
            "a 1.5, b 20",
        ]


def test_the_task_is_that_of_the_model(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    path = tmp_path / "m.csv"
    path.write_text("smiles,value\nCCO,1\nCCN,2\nCCC,1\n")  # taken for classes on its own
    width = model_of().network.in_features
    network = GraphClassifier(width, 1, layers=1, hidden=4, task="regression").eval()
    scale = TargetScale(torch.zeros(1).double(), torch.ones(1).double())
    reading = {"kind": "molecules", "features": "ogb", "smiles": "smiles", "targets": ["value"]}
    model = as_trained(network, ["value"], featurizer=reading, scale=scale)
    found = explain_rows(model, path, count=3).explanations
    assert [one.truth for one in found] == ["value 1", "value 2", "value 1"]


def test_decimal_commas_are_read_as_in_training(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    path = tmp_path / "values.csv"
    rows = [f"{'C' * n}O;{n},{'250' if n % 2 else '5'}" for n in range(1, 21)]
    path.write_text("smiles;v\n" + "\n".join(rows) + "\n")
    model = gt.train(path, target="v", method="vanilla", hidden=8, epochs=1, split="random")
    found = explain_rows(model, path, rows=np.array([1, 2, 3])).explanations
    assert [one.truth for one in found] == ["v 1.25", "v 2.5", "v 3.25"]


def test_targets_that_are_named_must_be_there(table: Path) -> None:
    model = model_of(smiles="smiles", targets=["no such column"], id="id")
    assert explain_rows(model, table, count=1).explanations[0].truth is None
    found = explain_rows(model, table, count=1, target="toxic")
    assert found.explanations[0].truth == "0"
    with pytest.raises(DataError, match="nothing"):
        explain_rows(model, table, count=1, target="nothing")
    with pytest.raises(
        GraphTransplantError, match=r"must name a single class column; got toxic, id"
    ):
        explain_rows(model, table, count=1, target=["toxic", "id"])
    with pytest.raises(DataError, match=r"`target` must be one of the .*; got 'toxic,id'"):
        explain_rows(model, table, count=1, target="toxic,id")


def test_a_row_that_is_not_there_is_named(table: Path) -> None:
    model = model_of(smiles="smiles", targets=["toxic"])
    with pytest.raises(DataError, match=r"m\.csv\.gz has no row 9: it has 5 rows$"):
        explain_rows(model, table, rows=[1, 9, 11])
    # Rows that are passed over are not counted.
    with pytest.raises(DataError, match=r"m\.csv\.gz has no row 100000$"):
        explain_rows(model, table, rows=[100000])
    store = graphs()
    with pytest.raises(DataError, match=r"^paths has no row 9: it has 5 rows$"):
        explain_rows(model_for(store), store, rows=[9])
    for rows in (3, "3", [1.5], []):
        with pytest.raises(GraphTransplantError, match="`rows` must be a list of numbers from 1"):
            explain_rows(model_for(store), store, rows=rows)


# -------------------------------------------------------------------- what to believe


def test_rows_of_the_training_part_are_marked(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    chains = [f"{'C' * (k % 11 + 1)}{'ON'[k % 2]}{'F' * (k > 10)}" for k in range(22)]
    path = tmp_path / "m.csv"
    path.write_text("\n".join(["smiles,toxic", *(f"{c},{k % 2}" for k, c in enumerate(chains))]))
    config = gt.TrainConfig(method="vanilla", hidden=4, layers=1, epochs=1, split="random")
    gt.train(path, config, target="toxic", forest=False).save(tmp_path / "model")
    model = TrainedModel.load(tmp_path / "model")
    store, shares = gt.load(path, target="toxic"), {"validation": 0.1, "test": 0.1}
    parts, *_ = split_for_training(store, "random", **shares, seed=0, tell=lambda text: None)
    trained = {chains[k] for k in parts.train.tolist()}
    found = explain_rows(model, path, count=22).explanations
    assert {one.text for one in found if one.views[0].trained_on} == trained
    assert {one.target for one in found} == {"toxic"}
    # However a molecule is written, and without the table.
    from rdkit import Chem

    first = max(trained, key=len)
    turned = Chem.MolToSmiles(Chem.MolFromSmiles(first), rootedAtAtom=1, canonical=False)
    again = explain_rows(model, [turned, "c1ccccc1"]).explanations
    assert [one.views[0].trained_on for one in again] == [True, False]


def test_training_graphs_are_known_however_chirality_is_written() -> None:
    pytest.importorskip("rdkit")
    from graph_transplant.datasets.molecules import from_smiles

    written = ["C[C@H](N)C(=O)O", "C/C=C/C"], ["OC(=O)[C@H](C)N", "C(=C/C)\\C"]
    for bonds in (0, 13):
        known = training_hashes(from_smiles(written[0]), bonds)
        assert in_training_set(known, from_smiles([*written[1], "CC(F)N"]), bonds) == [
            True,
            True,
            False,
        ]
    # The hash in models of earlier versions.
    assert training_hashes(from_smiles(["CCO"]), 13) == "Cwpryw=="


def test_old_models_say_nothing_of_what_they_do_not_know() -> None:
    pytest.importorskip("rdkit")
    folder = Path(__file__).parents[1] / "golden" / "models" / "molecules"
    (one, *_) = explain_rows(TrainedModel.load(folder), folder / "inputs.csv").explanations
    assert (one.views[0].trained_on, one.views[0].doubtful) == (None, False)
