"""G-Mixup: its estimator against numpy and a planted graphon, its draws against the graphon."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.augment.g_mixup import (
    GMixup,
    GraphonGraphs,
    aligned_means,
    threshold_singular_values,
)
from graph_transplant.augment.pairing import mix_rows
from graph_transplant.errors import DataError, GraphTransplantError
from oracles import check_valid_batch, graphs_of, same_content
from strategies import batches, random_batch, seeds

MODEL = gt.GraphClassifier(3, 2, hidden=4)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def store_of(batch: Batch, classes: int) -> gt.GraphStore:
    items = batch.to_data_list()
    for number, item in enumerate(items):
        item.y = torch.tensor([number % classes])
    return gt.GraphStore.from_pyg(items, name="examples", num_outputs=classes)


def from_dense(matrix: np.ndarray, label: int) -> Data:
    edge_index = torch.from_numpy(np.stack(np.nonzero(matrix)))
    return Data(edge_index=edge_index, num_nodes=len(matrix), y=torch.tensor([label]))


def block_graphs(
    blocks: np.ndarray, sizes: tuple[int, ...], label: int, count: int, rng: np.random.Generator
) -> list[Data]:
    """Graphs of a stochastic block model, nodes in random order."""
    block = np.repeat(np.arange(len(sizes)), sizes)
    items = []
    for _ in range(count):
        here = rng.permutation(block)
        upper = np.triu(rng.random((len(here), len(here))) < blocks[here][:, here], 1)
        items.append(from_dense(upper | upper.T, label))
    return items


def with_graphons(graphons: Tensor, features: Tensor | None = None, **settings: object) -> GMixup:
    """G-Mixup as it is after estimating the given graphons."""
    mixup = GMixup(**settings)  # type: ignore[arg-type]
    mixup.graphons = graphons
    mixup.features = graphons.new_empty(*graphons.shape[:2], 0) if features is None else features
    mixup.graphs_of_class = torch.ones(len(graphons), dtype=torch.long)
    return mixup


def edgeless(nodes: list[int]) -> Batch:
    none = torch.empty(2, 0, dtype=torch.long)
    return Batch.from_data_list([Data(edge_index=none, num_nodes=n) for n in nodes])


def draw(mixup: GMixup, batch: Batch, targets: Tensor, seed: int = 0) -> GraphonGraphs:
    clean = gt.CleanPass(batch, targets, lambda: pytest.fail("no prediction is needed"))
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
            if width:
                everything += list(graph.x.numpy())
                for position, node in enumerate(order[:r]):
                    at_position[position].append(graph.x[node].numpy())
        if width and graphs:
            for position, rows in enumerate(at_position):
                features[label, position] = np.mean(rows or everything, axis=0)
    return adjacency, features


@pytest.mark.parametrize("r", [1, 4, 9, 30])
def test_means_are_those_of_plain_numpy(r: int) -> None:
    for seed in range(3):
        batch = random_batch(generator(seed), graphs=13, simple=False)
        store = store_of(batch, 4).subset([k for k in range(13) if k % 4 != 2])
        adjacency, features, graphs = aligned_means(store, r)
        expected, expected_features = plain_means(store, r)
        np.testing.assert_allclose(adjacency.numpy(), expected, atol=1e-12)
        np.testing.assert_allclose(features.numpy(), expected_features, atol=1e-6)
        assert graphs.tolist() == [4, 3, 0, 3]


def test_means_do_not_depend_on_the_size_of_the_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    store = gt.load("motifs", graphs=60)
    whole = aligned_means(store, 20)
    monkeypatch.setattr("graph_transplant.augment.g_mixup._PIECE", 7)
    for one, other in zip(whole, aligned_means(store, 20), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.2, 2.02])
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
        items += block_graphs(blocks, (100, 100), label, 60, rng)
    store = gt.GraphStore.from_pyg(items, name="planted")
    mixup = GMixup()
    mixup.check(MODEL, store)
    mixup.prepare(store, generator())
    assert mixup.graphons.shape == (2, 200, 200)
    assert mixup.features.shape == (2, 200, 0)
    for estimate, blocks in zip(mixup.graphons.numpy(), planted, strict=True):
        truth = np.kron(blocks, np.ones((100, 100)))
        off = ~np.eye(200, dtype=bool)
        assert np.abs(estimate - truth)[off].mean() < 0.05
        for one in (0, 1):
            for two in (0, 1):
                part = np.s_[one * 100 : one * 100 + 100, two * 100 : two * 100 + 100]
                assert abs(estimate[part][off[part]].mean() - blocks[one, two]) < 0.02


def test_resolution_is_the_median_size_within_a_bound() -> None:
    sizes = [2, 5, 8, 30]  # median 6.5
    items = [from_dense(np.ones((n, n)) - np.eye(n), n % 2) for n in sizes]
    store = gt.GraphStore.from_pyg(items)
    for largest, r in ((200, 6), (4, 4)):
        mixup = GMixup(largest=largest)
        mixup.prepare(store, generator())
        assert mixup.graphons.shape == (2, r, r)


def test_graphons_are_buffers_that_follow_the_module() -> None:
    mixup = GMixup()
    store = store_of(random_batch(generator(0), graphs=8), 2)
    mixup.to(torch.double)
    mixup.prepare(store, generator())
    assert not list(mixup.parameters())
    assert {name for name, _ in mixup.named_buffers()} >= {"graphons", "features"}
    assert mixup.state_dict() == {}
    assert mixup.to("meta").graphons.device.type == "meta"
    mixup.prepare(store_of(random_batch(generator(1), graphs=4), 3), generator())
    assert mixup.graphons.shape[0] == 3  # a second data set replaces the first
    assert mixup.graphons.device.type == "meta"


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
    label = torch.arange(800) % 2
    plan = mixup.plan(edgeless([5] * 800), torch.eye(2)[label], generator=generator(4))
    position, graph = plan.position.numpy(), np.repeat(np.arange(800), 20)
    shares = np.bincount(position, minlength=3) / len(position)
    assert np.abs(shares - 1 / 3).max() < 0.02
    u, v = plan.edges.numpy()
    assert (graph[u] == graph[v]).all()
    assert (u < v).all()
    for number in (0, 1):
        met, hit = np.zeros((3, 3)), np.zeros((3, 3))
        for g in np.flatnonzero(label.numpy() == number):
            count = np.bincount(position[g * 20 : g * 20 + 20], minlength=3)
            met += np.outer(count, count) - np.diag(count)
        here = label.numpy()[graph[u]] == number
        np.add.at(hit, (position[u[here]], position[v[here]]), 1)
        hit += hit.T
        chance = (0.75 * graphons[number] + 0.25 * graphons[1 - number]).numpy()
        deviation = np.sqrt(chance * (1 - chance) / (met / 2))
        assert (np.abs(hit / met - chance) <= 4.5 * deviation + 1e-6).all()
    assert len(np.unique(plan.edges.numpy(), axis=1).T) == plan.edges.shape[1]


def test_lambda_is_uniform_in_its_range() -> None:
    mixup = with_graphons(torch.full((2, 2, 2), 0.5))
    targets = torch.eye(2)[torch.arange(4000) % 2]
    weight = mixup.plan(edgeless([1] * 4000), targets, generator=generator(1)).label_weight
    assert bool(((weight >= 0.1) & (weight <= 0.2)).all())
    spread = 0.1 / math.sqrt(12)  # of a uniform variable
    assert abs(float(weight.mean()) - 0.15) < 4 * spread / math.sqrt(4000)
    assert abs(float(weight.std()) - spread) < 0.002


def test_labels_and_features_are_mixed_by_hand() -> None:
    graphons = torch.full((3, 4, 4), 0.7)
    features = torch.randn(3, 4, 5, generator=generator(7))
    mixup = with_graphons(graphons, features, mixing=(0.2, 0.9))
    batch = edgeless([6, 2, 9, 4, 1])
    batch.x = torch.zeros(int(batch.num_nodes), 5)
    label = [2, 0, 1, 1, 0]
    virtual = draw(mixup, batch, torch.eye(3)[label], 3)
    assert sorted(virtual.source_of.tolist()) == [0, 1, 2, 3, 4]
    assert not same_content(virtual.batch, batch)
    for graph in range(5):
        weight = float(virtual.label_weight[graph])
        mine, other = label[graph], label[int(virtual.source_of[graph])]
        expected = [0.0] * 3
        expected[mine] += 1 - weight
        expected[other] += weight
        torch.testing.assert_close(virtual.targets[graph], torch.tensor(expected))
        for node in (virtual.batch.batch == graph).nonzero().flatten().tolist():
            at = int(virtual.position[node])
            row = (1 - weight) * features[mine, at] + weight * features[other, at]
            torch.testing.assert_close(virtual.batch.x[node], row)
    torch.testing.assert_close(virtual.batch.y, virtual.targets)


def test_mixed_targets_stand_for_mixtures_of_graphons() -> None:
    graphons = torch.stack((torch.zeros(1, 1), torch.ones(1, 1)))
    mixup = with_graphons(graphons, nodes=10)
    targets = torch.tensor([[0.7, 0.3]]).repeat(300, 1)
    plan = mixup.plan(edgeless([2] * 300), targets, generator=generator(2))
    share = plan.edges.shape[1] / (300 * 45)
    assert abs(share - 0.3) < 4.5 * math.sqrt(0.21 / (300 * 45))


def test_only_nodes_with_edges_remain_or_one() -> None:
    mixup = with_graphons(torch.full((2, 3, 3), 0.1), nodes=8)
    virtual = draw(mixup, edgeless([1, 40] * 15), torch.eye(2)[[0, 1] * 15], 5)
    check_valid_batch(virtual.batch, graphs=30, undirected=True)
    assert virtual.plan.node_counts.tolist() == [8] * 30
    sizes = set()
    for graph in graphs_of(virtual.batch):
        sizes.add(len(graph))
        assert len(graph) == 1 or min(dict(graph.out_degree()).values()) >= 1
    assert 1 in sizes
    assert max(sizes) > 5
    # The positions are those of the nodes that remain, in their order.
    reached = torch.zeros(8 * 30, dtype=torch.bool)
    reached[virtual.plan.edges.flatten()] = True
    degree = torch.bincount(virtual.batch.edge_index[0], minlength=virtual.batch.num_nodes)
    assert torch.equal(virtual.position[degree > 0], virtual.plan.position[reached])


def test_drawn_graphs_have_the_nodes_and_edges_of_the_class_whatever_their_originals() -> None:
    # As many nodes as positions, so that the expected number of edges is that of the graphon.
    full = with_graphons(torch.ones(2, 5, 5))
    virtual = draw(full, edgeless([40, 3, 8]), torch.eye(2)[[0, 1, 1]])
    assert virtual.batch.ptr.diff().tolist() == [5, 5, 5]
    assert virtual.batch.num_edges == 3 * 5 * 4
    rng = np.random.default_rng(0)
    items = []
    for label, chance in ((0, 0.1), (1, 0.3)):
        for _ in range(60):
            upper = np.triu(rng.random((30, 30)) < chance, 1)
            items.append(from_dense(upper | upper.T, label))
    store = gt.GraphStore.from_pyg(items)
    mixup = GMixup("same-class")
    mixup.prepare(store, generator())
    small = edgeless([3] * 200)
    for label, chance in ((0, 0.1), (1, 0.3)):
        plan = mixup.plan(small, torch.eye(2)[[label] * 200], generator=generator(label))
        edges = plan.edges.shape[1] / 200
        assert abs(edges - chance * 30 * 29 / 2) < 0.15 * chance * 30 * 29 / 2


@given(batches(directed=False), seeds())
def test_virtual_batches_are_valid(batch: Batch, seed: int) -> None:
    if "edge_attr" in batch:
        del batch.edge_attr
        batch = Batch.from_data_list(batch.to_data_list())
    classes = batch.num_graphs
    store = gt.GraphStore.from_pyg(batch.to_data_list(), num_outputs=classes)
    before = batch.clone()
    mixup = GMixup(threshold=0.0)
    mixup.prepare(store, generator())
    assert torch.equal(mixup.graphons, mixup.graphons.mT)
    assert bool(((mixup.graphons >= 0) & (mixup.graphons <= 1)).all())
    virtual = draw(mixup, batch, torch.eye(classes), seed)
    assert same_content(batch, before)
    check_valid_batch(virtual.batch, graphs=classes, undirected=True)
    assert ("x" in virtual.batch) == ("x" in batch)
    assert ("edge_weight" in virtual.batch) == ("edge_weight" in batch)
    if "edge_weight" in batch:
        assert bool((virtual.batch.edge_weight == 1).all())
    assert int(virtual.batch.ptr.diff().max()) <= mixup.graphons.shape[1]
    assert bool((virtual.batch.edge_index[0] != virtual.batch.edge_index[1]).all())
    edges = virtual.batch.edge_index
    assert len(torch.unique(edges, dim=1).t()) == edges.shape[1]
    again = mixup.apply_plan(virtual.plan, batch, torch.eye(classes))
    assert same_content(again.batch, virtual.batch)


def test_same_seed_same_graphs() -> None:
    store = gt.load("motifs", graphs=30)
    mixup = GMixup()
    mixup.prepare(store, generator())
    batch = store.batch(range(30))
    one, again, other = (draw(mixup, batch, torch.eye(6)[batch.y], seed) for seed in (3, 3, 4))
    assert same_content(one.batch, again.batch)
    assert not same_content(one.batch, other.batch)


def test_mix_rows_is_linear() -> None:
    targets, source = torch.rand(5, 3), torch.tensor([4, 3, 2, 1, 0])
    torch.testing.assert_close(mix_rows(targets, source, torch.zeros(5)), targets)
    torch.testing.assert_close(mix_rows(targets, source, torch.ones(5)), targets.flip(0))


# ------------------------------------------------------------------ what it refuses


def refused(store: gt.GraphStore) -> str:
    mixup = GMixup()
    with pytest.raises(DataError) as caught:
        mixup.check(MODEL, store)
    with pytest.raises(DataError):
        mixup.prepare(store, generator())
    return str(caught.value)


def test_data_without_graphons_are_refused_by_name() -> None:
    directed = random_batch(generator(0), undirected=False)
    assert "examples: its graphs are directed" in refused(store_of(directed, 2))
    attributes = [graph.clone() for graph in random_batch(generator(0)).to_data_list()]
    for graph in attributes:
        graph.edge_attr = torch.ones(graph.num_edges, 1)
    store = gt.GraphStore.from_pyg(attributes, name="bonds")
    assert "bonds: its edges have features" in refused(store)
    for task in ("multilabel", "regression"):
        for graph in attributes:
            graph.y = torch.ones(1, 2) / (1 if task == "multilabel" else 2)
        store = gt.GraphStore.from_pyg(attributes, name="targets", task=task)
        said = refused(store)
        assert said.startswith("g-mixup cannot serve targets: it has one graphon per class")
        assert f"the task is {task}" in said


def test_a_batch_that_does_not_fit_is_refused() -> None:
    batch = random_batch(generator(2), graphs=4)
    targets = torch.eye(4)
    with pytest.raises(GraphTransplantError, match="no graphons yet: call prepare"):
        draw(GMixup(), batch, targets)
    mixup = GMixup()
    mixup.prepare(store_of(batch, 4).subset([0, 1, 3]), generator())
    with pytest.raises(DataError, match="class 2, which has no graphon"):
        draw(mixup, batch, targets)
    draw(mixup, batch, targets[[0, 1, 3, 3]])
    with pytest.raises(DataError, match="must have 4 columns, one per graphon; got 3"):
        draw(mixup, batch, torch.ones(4, 3) / 3)
    directed = random_batch(generator(2), graphs=4, undirected=False)
    with pytest.raises(DataError, match="the batch: its graphs are directed"):
        draw(mixup, directed, targets)
    attributes = random_batch(generator(2), graphs=4, edge_attr=True)
    with pytest.raises(DataError, match="the batch: its edges have features"):
        draw(mixup, attributes, targets)
    wide = batch.clone()
    wide.x = torch.ones(int(batch.num_nodes), 7)
    with pytest.raises(DataError, match=r"has 7 node features, .* training graphs with 3"):
        draw(mixup, wide, targets)
    clean = gt.CleanPass(batch, targets, lambda: pytest.fail("unused"), "regression")
    with pytest.raises(DataError, match="the task is regression"):
        mixup(clean, model=MODEL, generator=None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mixing": (0.5, 0.2)}, r"`mixing` must be a range \(low, high\) within \[0, 1\]"),
        ({"mixing": (0.5, 1.2)}, r"got \(0.5, 1.2\)"),
        ({"threshold": -0.1}, "`threshold` must not be negative, got -0.1"),
        ({"largest": 0}, "`largest` must be at least 1, got 0"),
        ({"nodes": 0}, "`nodes` must be at least 1, got 0"),
        ({"pairing": "rnadom"}, "did you mean 'random'"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        GMixup(**settings)  # type: ignore[arg-type]
