"""Saliency measured: against sklearn and scipy, and against PyG subgraphs one graph at a time."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

import graph_transplant as gt
from graph_transplant.analysis.saliency import (
    CURVES,
    STEPS,
    motif_scores,
    saliency_quality,
    salient_order,
    spread,
)
from graph_transplant.metrics import no_better_than_random
from graph_transplant.nn.adapter import as_predictor
from helpers.foreign_models import Twin
from helpers.oracles import unchanged
from helpers.strategies import generator

CONTINUOUS = gt.NodeSaliency("gradient-x-activation")
Model = Callable[[Data], Tensor]


def random_store(
    *,
    sizes: tuple[int, ...] = (1, 2, 5, 11, 15),
    features: int = 4,
    edge_features: int = 0,
    directed: bool = False,
    task: str = "multiclass",
    seed: int = 0,
) -> gt.GraphStore:
    """Random graphs with continuous features: most have no two nodes that are equally salient."""
    rng = np.random.default_rng(seed)
    graphs = []
    for number, nodes in enumerate(sizes):
        drawn = nx.gnp_random_graph(nodes, 0.35, seed=seed + number, directed=directed)
        ends = [e for u, v in drawn.edges for e in ([(u, v)] if directed else [(u, v), (v, u)])]
        edge_index = torch.tensor(ends, dtype=torch.long).reshape(-1, 2).T.contiguous()
        data = Data(edge_index=edge_index, num_nodes=nodes)
        if features:
            data.x = torch.from_numpy(rng.normal(size=(nodes, features))).float()
        if edge_features:
            pairs = [tuple(sorted(e)) for e in ends]
            values = {pair: rng.normal(size=edge_features) for pair in set(pairs)}
            rows = np.array([values[pair] for pair in pairs])
            data.edge_attr = torch.from_numpy(rows).float().reshape(-1, edge_features)
        data.y = torch.tensor([number % 3])
        graphs.append(data)
    store = gt.GraphStore.from_pyg(graphs, name="random", num_outputs=3)
    if task == "multilabel":
        y = torch.from_numpy(rng.integers(0, 2, size=(len(sizes), 3))).float()
        y[0] = torch.nan
        y[1, 2] = torch.nan
        store = store.with_targets(y, task="multilabel")
    if task == "regression":
        store = store.with_targets(torch.arange(float(len(sizes))), task="regression")
    return store


def marked(store: gt.GraphStore, mask: Tensor) -> gt.GraphStore:
    graphs = store.to_pyg()
    for data, part in zip(graphs, torch.split(mask, store.node_counts.tolist()), strict=True):
        data.motif_mask = part
    return gt.GraphStore.from_pyg(graphs, node_fields=["motif_mask"], num_outputs=3)


def ptr(*counts: int) -> Tensor:
    return torch.tensor([0, *itertools.accumulate(counts)])


def plain(model: nn.Module) -> Model:
    """Logits of one graph, as anybody would compute them."""
    if isinstance(model, gt.GraphClassifier):
        return lambda data: model.run(data).logits
    return lambda data: model(data.x, data.edge_index, torch.zeros(data.num_nodes).long())


# ------------------------------------------------------------------ known motifs


@pytest.mark.parametrize("levels", [2, 1000])
def test_scores_match_sklearn_and_all_orders_of_ties(levels: int) -> None:
    rng = np.random.default_rng(levels)
    counts = [int(n) for n in rng.integers(2, 7, size=40)]
    saliency = torch.from_numpy(rng.integers(0, levels, size=sum(counts))).float()
    mask = torch.from_numpy(rng.random(sum(counts)) < 0.4)
    scores = motif_scores(saliency, mask, ptr(*counts))
    auroc, precision, chance = [], [], []
    parts = zip(torch.split(saliency, counts), torch.split(mask, counts), strict=True)
    for value, inside in ((v.numpy(), m.numpy()) for v, m in parts):
        size = int(inside.sum())
        if size in (0, len(inside)):
            continue
        auroc.append(roc_auc_score(inside, value))
        # Every order in which the saliency does not rise, each equally likely.
        orders = [
            order
            for order in itertools.permutations(range(len(value)))
            if all(value[a] >= value[b] for a, b in itertools.pairwise(order))
        ]
        precision.append(np.mean([inside[list(order[:size])].mean() for order in orders]))
        chance.append(size / len(inside))
    assert 0 < len(auroc) < len(counts), "some graphs have nothing to find"
    np.testing.assert_allclose(scores.auroc, auroc)
    np.testing.assert_allclose(scores.precision, precision)
    np.testing.assert_allclose(scores.chance, chance)


def test_graphs_without_anything_to_find_are_left_out() -> None:
    store = random_store(sizes=(4, 4, 4))
    model = gt.GraphClassifier.for_data(store, hidden=8, seed=0)
    mask = torch.zeros(12, dtype=torch.bool)
    mask[4:8] = True
    measured = saliency_quality(model, marked(store, mask), seed=0)["saliency"]
    assert set(measured) == {"graphs", *CURVES}
    mask[0] = True
    measured = saliency_quality(model, marked(store, mask), seed=0)["saliency"]
    assert measured["graphs"] == 3
    assert measured["chance"] == 0.25


# ------------------------------------------------------------------ which graphs, which order


@pytest.mark.parametrize(("total", "count"), [(600, 20), (600, 500), (7, 7), (7, 90), (1, 1)])
def test_graphs_are_spread_one_in_each_stretch(total: int, count: int) -> None:
    chosen = spread(total, count)
    taken = min(total, count)
    assert len(chosen) == taken
    bounds = [number * total // taken for number in range(taken + 1)]
    for low, high, number in zip(bounds, bounds[1:], chosen.tolist(), strict=False):
        assert low <= number < high
    # Classes that take turns are all there.
    assert total < 600 or set((chosen % 6).tolist()) == set(range(6))


def test_equally_salient_nodes_come_in_the_order_of_the_keys() -> None:
    saliency = torch.tensor([1.0, 3.0, 1.0, 2.0, 2.0])
    keys = torch.tensor([0.8, 0.9, 0.2, 0.7, 0.1], dtype=torch.double)
    assert salient_order(saliency, ptr(3, 2), keys).tolist() == [2, 0, 1, 1, 0]


# ------------------------------------------------------------------ curves


def slow_saliency(model: nn.Module, data: Data, reading: gt.NodeSaliency) -> Tensor:
    """Of the class that the model predicts, whether it is right or not."""
    prediction = as_predictor(model).run(data)
    return reading.read(cross_entropy(prediction.logits, prediction.logits.argmax(1)), prediction)


def slow_curves(
    model: nn.Module, store: gt.GraphStore, *, seed: int, reading: gt.NodeSaliency | None = None
) -> dict[str, list[float]]:
    """One graph and one share at a time, PyG takes the subgraphs; no reading: by chance alone."""
    model = copy.deepcopy(model).eval()
    logits_of = plain(model)
    nodes = int(store.node_counts.sum())
    keys = torch.rand(2, nodes, dtype=torch.double, generator=generator(seed))
    found: dict[str, list[list[float]]] = {name: [] for name in CURVES}
    drawn = torch.split(keys[1], store.node_counts.tolist())
    for data, chance in zip(store.to_pyg(), drawn, strict=True):
        nodes = int(data.num_nodes or 0)
        orders = {"_random": chance.argsort().tolist()}
        if reading is not None:
            value, order = slow_saliency(model, data, reading).sort(descending=True)
            # Twins may be equally salient; random keys, not this order, decide between them.
            assert bool((value[:-1] > value[1:] * (1 + 1e-5)).all()), "choose other graphs"
            orders[""] = order.tolist()
        with torch.no_grad():
            output = int(logits_of(data).argmax())
        for name, order in orders.items():
            deletion, insertion = [], []
            for step in range(11):
                # Half a node counts as one: the decimal share is exact here.
                count = int(np.floor(round(step / 10 * nodes, 6) + 0.5))
                for kept, row in (
                    (order[min(count, nodes - 1) :], deletion),
                    (order[: max(count, 1)], insertion),
                ):
                    with torch.no_grad():
                        logits = logits_of(induced(data, sorted(kept)))[0]
                    sure = logits.softmax(0) if store.task == "multiclass" else logits.sigmoid()
                    row.append(float(sure[output]))
            found[f"deletion{name}"].append(deletion)
            found[f"insertion{name}"].append(insertion)
    return {name: np.mean(rows, axis=0).tolist() for name, rows in found.items() if rows}


def induced(data: Data, kept: list[int]) -> Data:
    edge_index, edge_attr = subgraph(
        kept, data.edge_index, data.edge_attr, relabel_nodes=True, num_nodes=data.num_nodes
    )
    part = Data(edge_index=edge_index, num_nodes=len(kept))
    if data.x is not None:
        part.x = data.x[kept]
    if edge_attr is not None:
        part.edge_attr = edge_attr
    return part


def model_for(store: gt.GraphStore, kind: str) -> nn.Module:
    if kind == "plain":
        return Twin(model_for(store, "gcn"))
    model = gt.GraphClassifier.for_data(store, conv=kind, layers=2, hidden=16, seed=1)
    # Larger than at the start of training, so that probabilities differ from graph to graph;
    # gine is large enough, and sums over neighbours would make it sure of everything.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.0 if kind == "gine" else 1.7)
    return model


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("gcs", {}),
        ("gat", {"seed": 1}),
        ("gcn", {"directed": True}),
        ("gine", {"edge_features": 2}),
        ("gat-edge", {"edge_features": 2}),
        ("plain", {"seed": 1}),
    ],
)
def test_curves_match_pyg_subgraphs_one_by_one(kind: str, options: dict[str, object]) -> None:
    store = random_store(**options)  # type: ignore[arg-type]
    model = model_for(store, kind)
    found = saliency_quality(model, store, seed=3, reading=CONTINUOUS)
    expected = slow_curves(model, store, seed=3, reading=CONTINUOUS)
    curve = found["saliency_curve"]
    assert [point["share"] for point in curve] == [step / STEPS for step in range(STEPS + 1)]
    assert expected["deletion"] != pytest.approx(expected["deletion_random"], abs=1e-3)
    for name in CURVES:
        values = [point[name] for point in curve]
        np.testing.assert_allclose(values, expected[name], atol=2e-6)
        area = np.trapezoid(expected[name], dx=0.1)
        assert found["saliency"][name] == pytest.approx(area, abs=2e-6)


@pytest.mark.parametrize("options", [{"features": 0}, {"task": "multilabel"}])
def test_degrees_are_counted_anew_and_labels_followed(options: dict[str, object]) -> None:
    # Nodes of one degree may be equally salient: only the random order is the same by itself.
    store = random_store(**options)  # type: ignore[arg-type]
    model = model_for(store, "gcs")
    found = saliency_quality(model, store, seed=5)
    expected = slow_curves(model, store, seed=5)
    for name in ("deletion_random", "insertion_random"):
        values = [point[name] for point in found["saliency_curve"]]
        np.testing.assert_allclose(values, expected[name], atol=2e-6)
    assert all(np.isfinite(value) for value in found["saliency"].values())
    # Numbers have no class to follow.
    store = random_store(task="regression")
    assert saliency_quality(model_for(store, "gcs"), store, seed=0) == {}
    assert not no_better_than_random({})


@pytest.mark.parametrize("reading", [gt.NodeSaliency(), CONTINUOUS])
def test_a_model_that_is_very_sure_orders_nodes_as_before(reading: gt.NodeSaliency) -> None:
    store = random_store(sizes=(9, 12, 15, 18))
    graphs = store.to_pyg()
    for number, data in enumerate(graphs):
        data.y = torch.tensor([number % 2])
        data.motif_mask = torch.arange(data.num_nodes) < 4
    store = gt.GraphStore.from_pyg(graphs, node_fields=["motif_mask"], num_outputs=2)
    model = gt.GraphClassifier.for_data(store, hidden=16, seed=0)
    unsure = saliency_quality(model, store, seed=0, reading=reading)["saliency"]
    with torch.no_grad():
        # With two classes the log-odds grow by this factor and change in nothing else.
        for parameter in model.head[-1].parameters():
            parameter.mul_(2.0**14)
    logits = gt.evaluate(model, store).logits
    assert float((logits[:, 0] - logits[:, 1]).abs().min()) > 110, "exp underflows"
    sure = saliency_quality(model, store, seed=0, reading=reading)["saliency"]
    assert sure["auroc"] == pytest.approx(unsure["auroc"], abs=1e-6)
    assert sure["precision"] == pytest.approx(unsure["precision"], abs=1e-6)
    assert sure["auroc"] != 0.5


def test_model_and_generator_stay_as_they_are() -> None:
    store = random_store()
    model = gt.GraphClassifier.for_data(store, hidden=8, seed=0).train()
    with unchanged(model):
        first = saliency_quality(model, store, seed=0)
    assert saliency_quality(model, store, seed=0) == first
    assert saliency_quality(model, store, seed=1) != first


def test_saliency_of_a_trained_model_finds_motifs() -> None:
    store = gt.load("motifs", graphs=480)
    train, validation, test = (
        store.subset(range(a, b)) for a, b in ((0, 300), (300, 360), (360, 480))
    )
    model = gt.GraphClassifier.for_data(train, layers=2, hidden=32, dropout=0.0, seed=0)
    gt.fit(model, train, validation, seed=0, epochs=25, learning_rate=1e-2)
    measured = saliency_quality(model, test, seed=0, reading=CONTINUOUS)["saliency"]
    assert measured["graphs"] == 120
    assert measured["auroc"] > 0.65
    assert measured["precision"] > measured["chance"] + 0.1
    assert measured["insertion"] > measured["insertion_random"] + 0.05
    assert measured["deletion"] < measured["deletion_random"]
    assert not no_better_than_random(measured)
    swapped = {name: measured[name] for name in CURVES}
    for one, other in (("deletion", "deletion_random"), ("insertion", "insertion_random")):
        swapped[one], swapped[other] = swapped[other], swapped[one]
    assert no_better_than_random(swapped)
    # Either curve suffices, and what is not known proves nothing.
    assert not no_better_than_random({**swapped, "deletion": 0.0})
    assert not no_better_than_random({**swapped, "deletion": None})
    shares = [float(mask.float().mean()) for mask in (d.motif_mask for d in test.to_pyg())]
    assert measured["chance"] == pytest.approx(np.mean(shares))
