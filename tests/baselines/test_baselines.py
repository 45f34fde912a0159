"""Rivals without a network: their features against oracles, and their way through a comparison."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import from_networkx, to_networkx

import graph_transplant as gt
from graph_transplant.baselines import features, fit, forest, structure_blind, wl_svm
from graph_transplant.baselines.problems import prior, problems
from graph_transplant.baselines.subtrees import Dictionary
from graph_transplant.data import GraphStore
from graph_transplant.datasets import chemistry
from graph_transplant.datasets.molecules import from_smiles
from graph_transplant.errors import GraphTransplantError
from graph_transplant.kernels.baselines import tree_means
from graph_transplant.methods import expand_methods
from graph_transplant.report import render_report
from graph_transplant.results.results import Results
from graph_transplant.utils.schema import plain
from helpers.edits import both_ways
from helpers.made_up_records import Counting
from helpers.strategies import generator, random_batch

NAMES = sorted(expand_methods(["baselines"]))
SMILES = ["CCO", "c1ccccc1O", "CC(=O)O", "CCN", "C1CCCCC1", "CC(C)C", "OCCO", "c1ccncc1"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer trees, candidates and epochs: what is tested does not depend on their number."""
    monkeypatch.setattr(forest, "TREES", 20)
    monkeypatch.setattr(wl_svm, "DEPTHS", (1, 2))
    monkeypatch.setattr(wl_svm, "COSTS", (1.0, 10.0))
    monkeypatch.setattr(structure_blind, "WIDTHS", (8,))
    monkeypatch.setattr(structure_blind, "EPOCHS", 5)


class Predicted(NamedTuple):
    validation: torch.Tensor
    test: torch.Tensor
    parameters: dict[str, Any]


def fit_predict(
    name: str, train: GraphStore, validation: GraphStore, test: GraphStore, **options: Any
) -> Predicted:
    fitted = fit(name, train, validation, **options)
    return Predicted(fitted.logits(validation), fitted.logits(test), dict(fitted.chosen))


@cache
def motifs() -> GraphStore:
    return gt.load("motifs", graphs=90)


def thirds(store: GraphStore) -> list[GraphStore]:
    third = len(store) // 3
    return [store.subset(range(start, start + third)) for start in (0, third, 2 * third)]


def targets(task: str, graphs: int) -> torch.Tensor:
    draw = generator(5)
    if task == "multiclass":
        return torch.arange(graphs) // 3 % 3
    values = torch.rand(graphs, 2, generator=draw)
    y = values if task == "regression" else values.round()
    y[torch.rand(graphs, 2, generator=draw) < 0.3] = torch.nan
    return y


KINDS = {
    "ordinary": {},
    "directed": {"undirected": False},
    "multi": {"simple": False},
    "attributed": {"edge_attr": True},
}


def kind(name: str) -> GraphStore:
    if name == "featureless":
        return motifs()
    if name == "edgeless":
        graphs = [
            Data(x=torch.randn(1 + k % 4, 3), edge_index=both_ways(), y=torch.tensor([k % 3]))
            for k in range(36)
        ]
    else:
        graphs = random_batch(generator(3), graphs=36, **KINDS[name]).to_data_list()
        for number, graph in enumerate(graphs):
            graph.y = torch.tensor([number % 3])
    return GraphStore.from_pyg(graphs, name=name)


# -------------------------------------------------------------------- features


@pytest.mark.parametrize("edges", [False, True])
@pytest.mark.parametrize("labels", [False, True])
def test_subtree_counts_give_the_kernel_of_networkx(labels: bool, edges: bool) -> None:
    graphs = random_batch(generator(7), graphs=12, edge_attr=edges).to_data_list()
    for graph in graphs:
        graph.x = graph.x.round().abs() if labels else graph.x
        if edges:
            # The same both ways, as networkx keeps one label for both.
            low, high = graph.edge_index.sort(0).values
            graph.edge_attr = ((low + high) % 2).float()[:, None]
        graph.y = torch.tensor([0])
    store = GraphStore.from_pyg(graphs, num_continuous=0 if labels else graphs[0].x.shape[1])
    parts = [store.subset(range(8)), store.subset(range(8, 12))]
    depth = 3
    dictionary = Dictionary.of(parts[0], depth)
    levels = list(zip(*(wl_svm._counted(dictionary, part) for part in parts), strict=True))
    assert len(levels) == depth + 1

    def patterns(graph: Data) -> list[Counter[str]]:
        network = to_networkx(graph, to_undirected=True)
        for node in network:
            own = graph.x[node].tolist() if labels else network.degree(node)
            network.nodes[node]["label"] = str(own)
        for one, two in network.edges:
            network.edges[one, two]["label"] = str((one + two) % 2 if edges else 0)
        hashes = nx.weisfeiler_lehman_subgraph_hashes(
            network,
            node_attr="label",
            edge_attr="label",
            iterations=depth,
            include_initial_labels=True,
            digest_size=32,
        )
        return [Counter(each[level] for each in hashes.values()) for level in range(depth + 1)]

    counted = [patterns(graph) for graph in store.to_pyg()]
    for level, tables in enumerate(levels):
        kernel = (tables[0].known @ tables[1].known.T).toarray()
        for i, one in enumerate(counted[:8]):
            for j, two in enumerate(counted[8:]):
                expected = sum(one[level][key] * two[level][key] for key in one[level])
                assert kernel[i, j] == expected, (level, i, j)


def test_fingerprints_are_those_of_rdkit() -> None:
    from rdkit import Chem
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    found = features.fingerprints(from_smiles(SMILES))
    morgan = GetMorganGenerator(radius=2, fpSize=2048)
    for row, text in zip(found, SMILES, strict=True):
        counts = morgan.GetCountFingerprint(Chem.MolFromSmiles(text)).GetNonzeroElements()
        assert {int(bit): int(row[bit]) for bit in np.flatnonzero(row)} == counts


def test_statistics_are_those_of_networkx() -> None:
    store = motifs().subset(range(20))
    rows = features.statistics(store)
    base = 4 + 2 * (features.DEGREES + 1)  # then sums, means, spreads, … of degree and two others
    for row, graph in zip(rows, store.to_pyg(), strict=True):
        network = to_networkx(graph, to_undirected=True)
        degrees = [degree for _, degree in network.degree]
        assert row[0] == len(network)
        assert row[1] == 2 * network.number_of_edges()
        assert row[3] == nx.number_connected_components(network)
        histogram = np.bincount(
            np.minimum(degrees, features.DEGREES), minlength=features.DEGREES + 1
        )
        assert row[4 : 4 + features.DEGREES + 1].tolist() == histogram.tolist()
        assert row[base + 1] == sum(nx.triangles(network).values())
        assert row[base + 3] == pytest.approx(np.mean(degrees))
        assert row[base + 5] == pytest.approx(nx.average_clustering(network))
        assert row[base + 6] == pytest.approx(np.std(degrees), abs=1e-6)


# -------------------------------------------------------------------- every rival


# Every kind of graph once per rival, and every task on ordinary graphs.
SERVED = [
    *((data, "multiclass") for data in (*KINDS, "edgeless", "featureless")),
    *(("ordinary", task) for task in ("multilabel", "regression")),
]


@pytest.mark.parametrize(("data", "task"), SERVED)
@pytest.mark.parametrize("name", NAMES)
def test_every_rival_serves_every_kind_of_graph_and_target(name: str, data: str, task: str) -> None:
    store = kind(data)
    store = store.with_targets(targets(task, len(store)), task=task)
    parts = thirds(store)
    metric = {"multiclass": "accuracy", "multilabel": "auroc", "regression": "r2"}[task]
    options: dict[str, Any] = {"metric": metric, "balance": task != "regression", "seed": 3}
    outcome = fit_predict(name, *parts, **options)
    for said, part in ((outcome.validation, parts[1]), (outcome.test, parts[2])):
        assert said.shape == (len(part), store.num_outputs)
        assert bool(said.isfinite().all())
    # The seed decides, and the targets of test graphs are not looked at.
    other = parts[2].with_targets(parts[2].y.flip(0), num_outputs=store.num_outputs)
    assert torch.equal(fit_predict(name, *parts[:2], other, **options).test, outcome.test)


@pytest.mark.parametrize("name", ["forest", "wl-svm"])
def test_rivals_learn_what_structure_tells(name: str) -> None:
    graphs = []
    for number in range(60):
        network = (nx.cycle_graph if number % 2 else nx.path_graph)(5 + number % 7)
        graphs.append(from_networkx(network))
        graphs[-1].y = torch.tensor([number % 2])
    parts = thirds(GraphStore.from_pyg(graphs))
    outcome = fit_predict(name, *parts, metric="accuracy", seed=0)
    assert outcome.test.argmax(1).tolist() == parts[2].labels.tolist()


def test_structure_blind_sees_features_and_no_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure_blind, "EPOCHS", 60)
    monkeypatch.setattr(structure_blind, "WIDTHS", (32,))
    store = kind("ordinary")
    sums = torch.stack([graph.x.sum() for graph in store.to_pyg()])
    store = store.with_targets((sums > sums.median()).long(), task="multiclass")
    train = store.subset(torch.arange(36))
    outcome = fit_predict("structure-blind", train, train, train, metric="accuracy", seed=0)
    assert outcome.test.argmax(1).eq(train.labels).double().mean() > 0.9
    bare = [Data(x=g.x, edge_index=both_ways(), y=g.y) for g in store.to_pyg()]
    without = GraphStore.from_pyg(bare, name=store.name)
    same = fit_predict("structure-blind", *[without] * 3, metric="accuracy", seed=0)
    assert torch.allclose(same.test, outcome.test, atol=1e-4)


def test_the_majority_is_counted_with_gaps_and_is_never_balanced() -> None:
    y = torch.tensor([[1.0, torch.nan], [1.0, 0.0], [0.0, 0.0], [torch.nan, 1.0]]).repeat(3, 1)
    store = motifs().subset(range(12)).with_targets(y, task="multilabel")
    said = fit_predict("majority", store, store, store, metric="auroc").test.sigmoid()
    # Each value counts once more than it occurs.
    assert torch.allclose(said, torch.tensor([7 / 11, 4 / 11]).expand(12, 2))
    numbers = store.with_targets(torch.arange(12.0), task="regression")
    assert fit_predict("majority", *[numbers] * 3, metric="r2").test.unique().tolist() == [5.5]
    classes = store.with_targets(torch.tensor([0] * 9 + [1] * 3), task="multiclass")
    plain = fit_predict("majority", *[classes] * 3, metric="accuracy").test.softmax(1)
    even = fit_predict("majority", *[classes] * 3, metric="accuracy", balance=True).test.softmax(1)
    assert plain[0].tolist() == pytest.approx([10 / 14, 4 / 14])
    assert even[0].tolist() == plain[0].tolist()


@pytest.mark.parametrize("name", ["wl-svm", "structure-blind"])
def test_the_first_candidate_is_chosen_if_the_metric_is_undefined(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structure_blind, "WIDTHS", (4, 8))
    train, validation, test = thirds(motifs())
    two = [part.with_targets(part.labels % 2, num_outputs=2) for part in (train, test)]
    same = validation.with_targets(torch.zeros(len(validation), dtype=torch.long), num_outputs=2)
    metric = "accuracy" if name == "structure-blind" else "auroc"
    if name == "structure-blind":  # `fit` refuses an undefined metric
        monkeypatch.setattr(structure_blind, "quality", lambda *_: -math.inf)
    outcome = fit_predict(name, two[0], same, two[1], metric=metric)
    first = {
        "wl-svm": {"depth": 1, "kernel": "linear", "cost": 1.0},
        "structure-blind": {"width": 4},
    }
    assert outcome.parameters == first[name]


def test_without_validation_errors_the_decisions_of_an_svm_are_not_scaled() -> None:
    graphs = []
    for number in range(60):
        graphs.append(from_networkx((nx.cycle_graph if number % 2 else nx.path_graph)(6)))
        graphs[-1].y = torch.tensor([number % 2])
    parts = thirds(GraphStore.from_pyg(graphs))
    found = fit_predict("wl-svm", *parts, metric="accuracy").test
    # All vectors are support vectors, on one side or the other: their decision is at most 1.
    margin = (found[:, 1] - found[:, 0]).abs()
    assert 0.5 < float(margin.min()) <= float(margin.max()) <= 1.0


def test_a_class_that_no_training_graph_has_comes_last() -> None:
    train, validation, test = thirds(motifs())
    train = train.subset(train.labels < 3)
    for name in NAMES:
        said = fit_predict(name, train, validation, test, metric="accuracy").test
        assert said.shape[1] == 6
        if name != "structure-blind":
            assert int(said.argmax(1).max()) < 3


# -------------------------------------------------------------------- in a comparison


def test_rivals_run_once_per_fold_and_are_resumed(tmp_path: Path) -> None:
    arguments = {
        "methods": ["vanilla", "baselines"], "model": ["gcs", "gin"], "layers": 1,
        "folds": 3, "epochs": 1, "train_fraction": [0.5, 1.0], "label_noise": 0.2,
    }  # fmt: skip
    counting = Counting()
    results = gt.compare(motifs(), out=tmp_path, reporter=counting, **arguments)
    ran = Counter(trial.method for trial in counting.ran)
    assert ran == {"vanilla": 3 * 2 * 2, **dict.fromkeys(NAMES, 3 * 2)}
    assert [trial.fold for trial in counting.ran] == sorted(trial.fold for trial in counting.ran)
    for record in results.records:
        if record.method in NAMES:
            empty = ("model", "layers", "epochs", "best_epoch")
            assert [getattr(record, name) for name in empty] == [None] * 4
            assert {"accuracy", "ece", "nll"} <= record.test.keys()
            assert record.cost.keys() == {"fit_seconds"}
            assert record.wrong_labels > 0
            of_networks = {"saliency", "samples", "attacked", "examples", "curve"}
            assert not plain(record).keys() & of_networks
    # They stand beside the methods of every network.
    assert {group.model for group in results.groups} == {"gcs", "gin"}
    frame = results.frame
    assert set(frame.loc[frame["model"].isna(), "method"]) == set(NAMES)
    # The same folds as the networks.
    assert frame.groupby(["fold", "train_fraction"])["test_graphs"].nunique().eq(1).all()
    # Again, and with what only networks know changed in what is asked for.
    again = Counting()
    gt.compare(motifs(), out=tmp_path, reporter=again, **(arguments | {"model": ["gcs"]}))
    assert again.ran == []
    one_network = [r for r in results.records if r.model != "gin" and r.train_fraction == 1]
    assert "wl-svm" in render_report(Results(one_network))


def table(path: Path) -> Path:
    lines = [f"{text},{number % 2}" for number, text in enumerate(SMILES * 3)]
    path.write_text("smiles,active\n" + "\n".join(lines) + "\n")
    return path


def test_molecules_are_compared_with_a_forest_by_default(tmp_path: Path) -> None:
    rivals = {"forest", "majority"}
    networks = {"vanilla", "transplant-dp", "transplant-ep"}
    store = gt.load(table(tmp_path / "table.csv"), target="active")
    for data, expected in ((store, rivals | networks), (motifs(), networks)):
        found = gt.compare(data, folds=3, epochs=1, layers=1, train_fraction=0.3)
        assert set(found.frame["method"]) == expected


def test_what_cannot_be_served_is_said_before_anything_runs(tmp_path: Path) -> None:
    store = gt.load(table(tmp_path / "table.csv"), target="active")
    store.save(tmp_path / "saved.safetensors")
    saved = GraphStore.load(tmp_path / "saved.safetensors")
    for methods in (["forest"], {"forest": "forest"}):
        with pytest.raises(GraphTransplantError, match="forest needs the SMILES"):
            gt.compare(saved, methods=methods, folds=3, out=tmp_path / "out")
    with pytest.raises(GraphTransplantError, match="forest has no parameters"):
        gt.compare(motifs(), methods=["forest:trees=3"])
    with pytest.raises(GraphTransplantError, match="majority"):
        gt.compare(motifs(), methods=["majorty"])
    assert not (tmp_path / "out").exists()


# -------------------------------------------------------------------- settings and oracles


def molecules(count: int = 90) -> GraphStore:
    """Molecules with enough variety for descriptors to differ."""
    chains = [f"C{'C' * (k % 7)}{tail}" for k in range(20) for tail in ("O", "N", "Cl", "c1ccccc1")]
    store = from_smiles([*SMILES, *chains, "[Na+].[Cl-]", "c1ccc2c(c1)cccc2C(=O)O"][:count])
    heavy = torch.tensor([text.count("C") + text.count("c") for text in store.rows.texts])
    return store.with_targets((heavy % 3 == 0).long(), task="multiclass")


def test_descriptors_do_not_depend_on_the_order_of_atoms() -> None:
    from rdkit import Chem

    texts = ["CC(=O)Oc1ccccc1C(=O)O", "CN1C=NC2=C1C(=O)N(C(=O)N2C)C", "C[N+](C)(C)CC(O)CC([O-])=O"]
    shuffled = [
        Chem.MolToSmiles(Chem.MolFromSmiles(text), doRandom=True, canonical=False)
        for text in texts
        for _ in range(5)
    ]
    found = chemistry.compute_descriptors(shuffled)
    expected = np.repeat(chemistry.compute_descriptors(texts), 5, axis=0)
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-4)
    names = chemistry.descriptor_names()
    assert "Ipc" not in names
    assert expected[0, names.index("MolWt")] == pytest.approx(180.16, abs=0.01)
    # Without bonds there is no matrix to take eigenvalues of.
    assert np.isnan(chemistry.compute_descriptors(["[Pt]"])[0, names.index("BCUT2D_MWHI")])


def test_descriptors_of_a_data_set_are_computed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPH_TRANSPLANT_CACHE", str(tmp_path))
    monkeypatch.setattr(chemistry, "_LEAST_KEPT", 4)
    monkeypatch.setattr(chemistry, "_AT_ONCE", 3)
    said: list[str] = []
    whole = chemistry.descriptors(SMILES, workers=2, tell=said.append)
    assert np.array_equal(whole, chemistry.compute_descriptors(SMILES), equal_nan=True)
    assert len(said) == 1
    assert said[0].endswith("RDKit descriptors of 8 molecules, once")
    (kept,) = (tmp_path / "descriptors").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(chemistry, "compute_descriptors", None)
        assert np.array_equal(chemistry.descriptors(SMILES), whole, equal_nan=True)
    other = chemistry.descriptors([*SMILES[:-1], "CCCC"])  # other content, another file
    assert not np.array_equal(other, whole, equal_nan=True)
    kept.write_bytes(b"cut short")  # a damaged file is computed again
    assert np.array_equal(chemistry.descriptors(SMILES), whole, equal_nan=True)
    # A store keeps them, and so do its parts.
    store = from_smiles(SMILES)
    features.add_descriptors(store)
    part = store.subset([5, 2])
    assert np.array_equal(part.descriptors.numpy(), whole[[5, 2]], equal_nan=True)


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
def test_a_forest_predicts_as_scikit_learn_does(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest, "TRIED", 5)
    grown: list[Any] = []
    made = forest._made
    monkeypatch.setattr(forest, "_made", lambda *args: (grown.append(args), made(*args))[1])
    store = molecules()
    store = store.with_targets(targets(task, len(store)), task=task)
    parts = thirds(store)
    metric = {"multiclass": "accuracy", "multilabel": "auroc", "regression": "r2"}[task]
    fitted = fit("forest", *parts[:2], metric=metric, seed=3)
    *_, every, forests, table, parameters = grown[-1]
    assert parameters == fitted.chosen
    assert {args[5]["max_features"] for args in grown} == {"log2", "sqrt"}
    assert {args[5]["features"] for args in grown} == {"both", "descriptors", "fingerprints"}
    x = features.features(parts[2], parameters["features"])
    x = np.where(np.isnan(x), table.fill, x)[:, table.columns]
    fitted.check()
    wide = np.zeros((len(x), len(table.fill)), np.float32)
    wide[:, table.columns] = x
    for (number, trees), known in zip(fitted._forests(), forests, strict=True):
        assert len(known.estimators_) == forest.TREES == 20
        means = tree_means(trees, wide)
        if task == "regression":
            assert np.array_equal(means[:, 0], known.predict(x))
            assert torch.equal(fitted.logits(parts[2])[:, number].double(),
                               torch.from_numpy(means[:, 0]).float().double())  # fmt: skip
            continue
        assert np.array_equal(means[:, known.classes_], known.predict_proba(x))
    if task == "multiclass":  # one more tree has the frequencies of the classes, each once more
        counts = torch.bincount(parts[0].labels, minlength=3) + 1
        shares = (20 * torch.from_numpy(means) + counts / counts.sum()) / 21
        assert torch.allclose(fitted.logits(parts[2]).double().softmax(1), shares, atol=1e-6)
    assert len(every) == len(forests)


def test_settings_of_a_forest_are_judged_by_graphs_that_trees_have_not_seen() -> None:
    from sklearn.ensemble import RandomForestClassifier

    train, _, _ = thirds(molecules())
    every, ignorant = list(problems(train, False)), prior(train, False)
    table = forest._Table.of(features.features(train, "both"))
    grown = [forest._grown(every[0], table, train.task, "sqrt", 3)]
    found = forest._unseen(train, ignorant, every, grown, table)
    (count,) = {len(one.estimators_) for one in grown}
    known = RandomForestClassifier(count, max_features="sqrt", random_state=3, oob_score=True)
    known.fit(table.x, every[0].y, sample_weight=every[0].weight)
    times = sum(~np.isin(np.arange(len(train)), one) for one in known.estimators_samples_)[:, None]
    shares = (times * known.oob_decision_function_ + np.exp(ignorant)) / (times + 1)
    assert np.allclose(np.exp(found), shares)


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("name", ["wl-svm", "wl-oa"])
def test_support_vector_machines_predict_as_scikit_learn_does(
    name: str, kernel: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wl_svm, "KERNELS", (kernel,))
    monkeypatch.setattr(wl_svm, "DEPTHS", (2,))
    monkeypatch.setattr(wl_svm, "COSTS", (1.0,))
    store = kind("ordinary")
    store = store.with_targets(targets(task, len(store)), task=task)
    train, validation, test = thirds(store)
    metric = {"multiclass": "accuracy", "multilabel": "auroc", "regression": "r2"}[task]
    machines: list[Any] = []
    make = wl_svm._machine
    monkeypatch.setattr(
        wl_svm, "_machine", lambda *args: (machines.append(make(*args)), machines[-1])[1]
    )
    fitted = fit(name, train, validation, metric=metric)
    fitted.check()
    # Vectors of unit length from dictionaries of Python.
    counts = [patterns(graph, 2) for graph in store.to_pyg()]
    known = sorted({key for one in counts[: len(train)] for key in one})

    def vector(one: Counter[Any], most: Counter[Any]) -> list[float]:
        if name == "wl-svm":
            length = math.sqrt(sum(value**2 for value in one.values()))
            return [one[key] / length for key in known]
        length = math.sqrt(sum(one.values()))
        return [(one[key] > k) / length for key in known for k in range(most[key])]

    most: Counter[Any] = Counter()
    for one in counts[: len(train)]:
        most |= one
    x = np.array([vector(one, most) for one in counts])
    mine, asked = (
        wl_svm._vectors(wl_svm._counted(fitted.dictionary, part), fitted._most)
        for part in (train, test)
    )
    products = x[2 * len(train) :] @ x[: len(train)].T
    assert np.allclose((asked @ mine.T).toarray(), products, atol=1e-12)
    found = fitted.machines.decide(asked)
    for number, machine in enumerate(machines):
        given: Any = asked
        if kernel == "rbf":
            known_rows = np.arange(len(train))
            if task != "multiclass":
                known_rows = (~train.y[:, number].isnan()).nonzero().flatten().numpy()
            given = wl_svm._rbf(asked, mine[known_rows])
        said = machine.predict(given) if task == "regression" else machine.decision_function(given)
        assert np.array_equal(found if task == "multiclass" else found[:, number], said)


def patterns(graph: Data, depth: int) -> Counter[Any]:
    """The Weisfeiler-Lehman patterns of a graph without labels, as nested tuples."""
    around: dict[int, list[int]] = {node: [] for node in range(graph.num_nodes)}
    for one, two in graph.edge_index.T.tolist():
        around[two].append(one)
    own: dict[int, Any] = {node: len(senders) for node, senders in around.items()}
    found = Counter((0, value) for value in own.values())
    for level in range(1, depth + 1):
        own = {v: (own[v], tuple(sorted(own[u] for u in around[v]))) for v in own}
        found += Counter((level, value) for value in own.values())
    return found
