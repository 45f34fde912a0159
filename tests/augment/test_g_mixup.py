"""G-Mixup: its estimator against numpy and a planted graphon, its draws against the graphon."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, kstest
from torch import Tensor
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.augment.base import CleanPass
from graph_transplant.augment.g_mixup import (
    GMixup,
    GraphonGraphs,
    aligned_means,
    threshold_singular_values,
)
from graph_transplant.data import GraphBatch
from graph_transplant.errors import DataError, GraphTransplantError
from helpers.edits import clean_of
from helpers.oracles import graphs_of
from helpers.strategies import featured_motifs, generator, random_batch

MODEL = gt.GraphClassifier(3, 2, hidden=4)


def store_of(batch: Batch, classes: int) -> gt.GraphStore:
    items = batch.to_data_list()
    for number, item in enumerate(items):
        item.y = torch.tensor([number % classes])
    return gt.GraphStore.from_pyg(items, name="examples", num_outputs=classes)


def random_graph(chance: np.ndarray, label: int, rng: np.random.Generator) -> Data:
    upper = np.triu(rng.random(chance.shape) < chance, 1)
    edge_index = torch.from_numpy(np.stack(np.nonzero(upper | upper.T)))
    return Data(edge_index=edge_index, num_nodes=len(chance), y=torch.tensor([label]))


def with_graphons(graphons: Tensor, features: Tensor | None = None, **settings: object) -> GMixup:
    """G-Mixup as it is after estimating the given graphons."""
    mixup = GMixup(**settings)  # type: ignore[arg-type]
    mixup.graphons = graphons.double()
    mixup.features = torch.empty(*graphons.shape[:2], 0) if features is None else features
    mixup.graphs_of_class = torch.ones(len(graphons), dtype=torch.long)
    return mixup


def edgeless(nodes: list[int], width: int = 0) -> GraphBatch:
    none = torch.empty(2, 0, dtype=torch.long)
    items = [Data(edge_index=none, num_nodes=n) for n in nodes]
    if width:
        items = [Data(edge_index=none, x=torch.zeros(n, width)) for n in nodes]
    return GraphBatch.from_pyg(Batch.from_data_list(items))


def draw(mixup: GMixup, batch: GraphBatch, targets: Tensor, seed: int = 0) -> GraphonGraphs:
    clean = CleanPass(batch, targets, lambda: pytest.fail("no prediction is needed"))
    return mixup(clean, model=MODEL, generator=generator(seed))


# ------------------------------------------------------------------ the estimator


def plain_means(store: gt.GraphStore, r: int) -> tuple[np.ndarray, np.ndarray]:
    """Align, pad and cut the graphs one by one, then average those of each class."""
    width = store.num_node_features
    adjacency = np.zeros((store.num_outputs, r, r))
    features = np.zeros((store.num_outputs, r, width))
    for label in range(store.num_outputs):
        graphs = [g for g in store.to_pyg() if int(g.y) == label]
        at_position: list[list[np.ndarray]] = [[] for _ in range(r)]
        everything = []
        for graph in graphs:
            n = graph.num_nodes
            dense = np.zeros((n, n))
            for u, v in graph.edge_index.t().tolist():
                dense[u, v] = 1.0 if u != v else 0.0
            order = sorted(range(n), key=lambda v: (-dense[v].sum(), v))
            aligned = np.zeros((max(n, r), max(n, r)))
            aligned[:n, :n] = dense[order][:, order]
            adjacency[label] += aligned[:r, :r] / len(graphs)
            everything += list(graph.x.numpy())
            for position, node in enumerate(order[:r]):
                at_position[position].append(graph.x[node].numpy())
        if graphs:
            for position, rows in enumerate(at_position):
                features[label, position] = np.mean(rows or everything, axis=0)
    return adjacency, features


@pytest.mark.parametrize("r", [1, 4, 30])
def test_means_are_those_of_plain_numpy(r: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graph_transplant.augment.g_mixup._PIECE", 7)
    loose = store_of(random_batch(generator(2), graphs=13, simple=False), 4)
    for store in (loose.subset([k for k in range(13) if k % 4 != 2]), featured_motifs(30)):
        adjacency, features, graphs = aligned_means(store, r)
        expected, expected_features = plain_means(store, r)
        np.testing.assert_allclose(adjacency.numpy(), expected, atol=1e-12)
        np.testing.assert_allclose(features.numpy(), expected_features, atol=1e-6)
        assert graphs.tolist() == np.bincount(store.y, minlength=store.num_outputs).tolist()


@pytest.mark.parametrize("threshold", [0.0, 0.2, 2.02])
def test_thresholding_is_that_of_a_plain_decomposition(threshold: float) -> None:
    rng = np.random.default_rng(3)
    matrix = rng.random((4, 11, 11)) * rng.random((4, 1, 1))
    matrix = (matrix + matrix.transpose(0, 2, 1)) / 2
    got = threshold_singular_values(torch.from_numpy(matrix), threshold).numpy()
    for one, estimate in zip(matrix, got, strict=True):
        left, size, right = np.linalg.svd(one)
        kept = size >= threshold * math.sqrt(11)
        kept[0] = True
        expected = np.clip((left * (size * kept)) @ right, 0, 1)
        np.testing.assert_allclose(estimate, expected, atol=1e-10)


def test_a_planted_two_block_graphon_is_recovered() -> None:
    # Two classes, 60 graphs each, 100 + 100 nodes. Degree tells the blocks apart; within a block,
    # where degrees differ by chance only, sorting by them tilts the estimate by about their
    # deviation, 0.5 / √200 = 0.035. Tolerances: 0.05 for the mean absolute error of the whole
    # matrix, 0.02 for the mean of every block.
    rng = np.random.default_rng(0)
    planted = [np.array([[0.9, 0.4], [0.4, 0.1]]), np.array([[0.5, 0.6], [0.6, 0.1]])]
    items = []
    for label, blocks in enumerate(planted):
        for _ in range(60):
            block = rng.permutation(np.repeat([0, 1], 100))
            items.append(random_graph(blocks[block][:, block], label, rng))
    mixup = GMixup()
    mixup.prepare(gt.GraphStore.from_pyg(items, name="planted"), generator())
    for estimate, blocks in zip(mixup.graphons.numpy(), planted, strict=True):
        error = estimate - np.kron(blocks, np.ones((100, 100)))
        error[np.eye(200, dtype=bool)] = 0
        assert np.abs(error).mean() < 0.05
        assert np.abs(error.reshape(2, 100, 2, 100).mean((1, 3))).max() < 0.02


def test_resolution_is_the_median_size_within_a_bound() -> None:
    rng = np.random.default_rng(0)
    items = [random_graph(np.ones((n, n)), n % 2, rng) for n in (2, 5, 8, 30)]  # median 6.5
    for largest, r in ((200, 6), (4, 4)):
        mixup = GMixup(largest=largest)
        mixup.prepare(gt.GraphStore.from_pyg(items), generator())
        assert mixup.graphons.shape == (2, r, r)
    assert mixup.state_dict() == {}


# ------------------------------------------------------------------ the draws


def test_pairs_are_joined_as_often_as_the_mixed_graphon_says() -> None:
    # 800 graphs of 20 nodes from the graphons of two classes with λ = 0.25. Each cell of the mixed
    # graphon is met thousands of times; shares lie within 4.5 standard deviations.
    graphons = torch.tensor(
        [
            [[1.0, 0.3, 0.0], [0.3, 0.6, 0.1], [0.0, 0.1, 0.0]],
            [[1.0, 0.9, 0.0], [0.9, 0.2, 0.5], [0.0, 0.5, 1.0]],
        ]
    )
    mixup = with_graphons(graphons, mixing=(0.25, 0.25), pairing="cross-class", nodes=20)
    label = np.arange(800) % 2
    plan = mixup.plan(
        clean_of(edgeless([1] * 800), torch.eye(2)[label]), None, np.random.default_rng(4)
    )
    assert chisquare(np.bincount(plan.position)).pvalue > 1e-4
    graph, u, v = np.repeat(np.arange(800), 20), plan.first, plan.second
    assert (graph[u] == graph[v]).all()
    assert (u < v).all()
    assert len(set(zip(u.tolist(), v.tolist(), strict=True))) == len(u)
    for number in (0, 1):
        met, hit = np.zeros((3, 3)), np.zeros((3, 3))
        for g in np.flatnonzero(label == number):
            count = np.bincount(plan.position[g * 20 : g * 20 + 20], minlength=3)
            met += np.outer(count, count) - np.diag(count)
        here = label[graph[u]] == number
        np.add.at(hit, (plan.position[u[here]], plan.position[v[here]]), 1)
        hit += hit.T
        chance = (0.75 * graphons[number] + 0.25 * graphons[1 - number]).numpy()
        deviation = np.sqrt(chance * (1 - chance) / (met / 2))
        assert (np.abs(hit / met - chance) <= 4.5 * deviation + 1e-6).all()


def test_lambda_is_uniform_in_its_range() -> None:
    clean = clean_of(edgeless([1] * 4000), torch.eye(2)[torch.arange(4000) % 2])
    plan = with_graphons(torch.full((2, 2, 2), 0.5)).plan(clean, None, np.random.default_rng(1))
    assert kstest(plan.label_weight, "uniform", (0.1, 0.1)).pvalue > 1e-4


def test_labels_and_features_are_mixed_by_hand() -> None:
    features = torch.randn(3, 4, 5, generator=generator(7))
    mixup = with_graphons(torch.full((3, 4, 4), 0.7), features, mixing=(0.2, 0.9))
    label = [2, 0, 1, 1, 0]
    virtual = draw(mixup, edgeless([6, 2, 9, 4, 1], 5), torch.eye(3)[label], 3)
    assert sorted(virtual.plan.source_of.tolist()) == [0, 1, 2, 3, 4]
    for graph in range(5):
        weight = float(virtual.label_weight[graph])
        mine, other = label[graph], label[int(virtual.plan.source_of[graph])]
        expected = (1 - weight) * torch.eye(3)[mine] + weight * torch.eye(3)[other]
        torch.testing.assert_close(virtual.targets[graph], expected)
        for node in (virtual.batch.batch == graph).nonzero().flatten().tolist():
            at = int(virtual.position[node])
            row = (1 - weight) * features[mine, at] + weight * features[other, at]
            torch.testing.assert_close(virtual.batch.x[node], row)


def test_mixed_targets_stand_for_mixtures_of_graphons() -> None:
    mixup = with_graphons(torch.tensor([[[0.0]], [[1.0]]]), nodes=10)
    clean = clean_of(edgeless([1] * 300), torch.tensor([[0.7, 0.3]]).repeat(300, 1))
    plan = mixup.plan(clean, None, np.random.default_rng(2))
    share = len(plan.first) / (300 * 45)
    assert abs(share - 0.3) < 4.5 * math.sqrt(0.21 / (300 * 45))


def test_only_nodes_with_edges_remain_or_one() -> None:
    mixup = with_graphons(torch.full((2, 3, 3), 0.1), nodes=8)
    virtual = draw(mixup, edgeless([1, 40] * 15), torch.eye(2)[[0, 1] * 15], 5)
    plan, sizes = virtual.plan, []
    drawn = {number: set() for number in range(30)}
    for pair in zip(plan.first.tolist(), plan.second.tolist(), strict=True):
        drawn[pair[0] // 8] |= {pair, pair[::-1]}
    for number, graph in enumerate(graphs_of(virtual.batch)):
        kept = sorted({u for u, _ in drawn[number]}) or [8 * number]
        assert virtual.position[sorted(graph)].tolist() == plan.position[kept].tolist()
        place = dict(zip(kept, sorted(graph), strict=True))
        assert {(u, v) for u, v, _ in graph.edges} == {
            (place[u], place[v]) for u, v in drawn[number]
        }
        sizes.append(len(graph))
    assert min(sizes) == 1
    assert max(sizes) > 5


def test_drawn_graphs_have_the_nodes_and_edges_of_the_class_whatever_their_originals() -> None:
    # As many nodes as positions, so that the expected number of edges is that of the graphon.
    rng, chances = np.random.default_rng(0), (0.1, 0.3)
    items = [
        random_graph(np.full((30, 30), chance), label, rng)
        for label, chance in enumerate(chances)
        for _ in range(60)
    ]
    mixup = GMixup("same-class")
    mixup.prepare(gt.GraphStore.from_pyg(items), generator())
    for label, chance in enumerate(chances):
        virtual = draw(mixup, edgeless([3] * 200), torch.eye(2)[[label] * 200], label)
        assert virtual.batch.num_edges / 200 == pytest.approx(chance * 30 * 29, rel=0.15)


def test_a_batch_that_does_not_fit_is_refused() -> None:
    data = random_batch(generator(2), graphs=4)
    batch, targets = GraphBatch.from_pyg(data), torch.eye(4)
    with pytest.raises(GraphTransplantError, match="no graphons yet: call prepare"):
        draw(GMixup(), batch, targets)
    mixup = GMixup()
    mixup.prepare(store_of(data, 4).subset([0, 1, 3]), generator())
    draw(mixup, batch, targets[[0, 1, 3, 3]])
    with pytest.raises(DataError, match="class 2, which has no graphon"):
        draw(mixup, batch, targets)
