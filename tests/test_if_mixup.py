"""ifMixup against dense matrices in numpy, one pair at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.augment import IfMixup, Pairing
from graph_transplant.augment.if_mixup import InterpolatedGraphs, interpolate
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.graphs import adjacency_of
from graph_transplant.saliency import as_predictor
from graph_transplant.sparse import spmm
from oracles import check_valid_batch, is_undirected, same_content
from strategies import batches, random_batch, seeds

KINDS = {
    "undirected": {"undirected": True, "simple": True},
    "undirected-multi": {"undirected": True, "simple": False},
    "directed": {"undirected": False, "simple": True},
    "directed-multi": {"undirected": False, "simple": False},
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def forward(method: IfMixup, batch: Batch, seed: int = 0) -> InterpolatedGraphs:
    model = gt.GraphClassifier(3, 2, hidden=4, layers=1)
    clean = gt.CleanPass(batch, torch.eye(batch.num_graphs), lambda: model(batch))
    return method(clean, model=model, generator=generator(seed))


def dense(graph: Data, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """The matrix e of a graph, filled up to so many nodes, and how many edges are in each place."""
    matrix, count = np.zeros((nodes, nodes)), np.zeros((nodes, nodes), dtype=int)
    for number, (tail, head) in enumerate(graph.edge_index.t().tolist()):
        matrix[tail, head] += float(graph.edge_weight[number]) if "edge_weight" in graph else 1.0
        count[tail, head] += 1
    return matrix, count


def padded(x: Tensor, nodes: int) -> np.ndarray:
    filled = np.zeros((nodes, x.shape[1]))
    filled[: len(x)] = x.numpy()
    return filled


def check_pair(mixed: Data, one: Data, other: Data, lam: float) -> None:
    """Algorithm 1 on dense matrices: e' = λ e + (1 - λ) e_π, v' = λ v + (1 - λ) v_π."""
    nodes = max(one.num_nodes, other.num_nodes)
    assert mixed.num_nodes == nodes
    if "x" in one:
        expected = lam * padded(one.x, nodes) + (1 - lam) * padded(other.x, nodes)
        np.testing.assert_allclose(mixed.x.numpy(), expected, atol=1e-5)
    (first, first_count), (second, second_count) = dense(one, nodes), dense(other, nodes)
    found, found_count = dense(mixed, nodes)
    np.testing.assert_allclose(found, lam * first + (1 - lam) * second, atol=1e-5)
    # The edges are those of either graph, each once.
    np.testing.assert_array_equal(found_count, (first_count + second_count > 0).astype(int))
    if "edge_attr" in one:
        for number, ends in enumerate(mixed.edge_index.t().tolist()):
            total, weight = np.zeros(one.edge_attr.shape[1]), 0.0
            # An edge of which nothing is there still has attributes: those of its graph.
            for graph, share in ((one, max(lam, 1e-30)), (other, max(1 - lam, 1e-30))):
                for place, pair in enumerate(graph.edge_index.t().tolist()):
                    if pair == ends:
                        total += share * graph.edge_attr[place].numpy()
                        weight += share
            np.testing.assert_allclose(mixed.edge_attr[number], total / weight, atol=1e-4)


def check_all(result: InterpolatedGraphs, batch: Batch, targets: Tensor) -> None:
    originals, mixed = batch.to_data_list(), result.batch.to_data_list()
    weights = result.label_weight.tolist()
    for number, (source, weight) in enumerate(zip(result.source_of.tolist(), weights, strict=True)):
        check_pair(mixed[number], originals[number], originals[source], 1 - weight)
        expected = (1 - weight) * targets[number] + weight * targets[source]
        torch.testing.assert_close(result.targets[number], expected)
    torch.testing.assert_close(result.batch.y, result.targets)


# ------------------------------------------------------------------ the oracle


@pytest.mark.parametrize("fields", ["plain", "weights", "attributes", "both"])
@pytest.mark.parametrize("kind", KINDS)
def test_mixed_graphs_are_those_of_dense_matrices(kind: str, fields: str) -> None:
    smaller = larger = 0
    for seed in range(5):
        batch = random_batch(
            generator(seed),
            **KINDS[kind],
            edge_weight=fields in ("weights", "both"),
            edge_attr=fields in ("attributes", "both"),
        )
        result = forward(IfMixup(2.0, 3.0), batch, seed)
        check_all(result, batch, torch.eye(batch.num_graphs))
        check_valid_batch(
            result.batch, graphs=batch.num_graphs, undirected=KINDS[kind]["undirected"]
        )
        sizes = batch.ptr.diff()
        smaller += int((sizes[result.source_of] < sizes).sum())
        larger += int((sizes[result.source_of] > sizes).sum())
    assert smaller > 5  # dummy nodes on either side
    assert larger > 5


@given(batches(), seeds(), st.sampled_from([(1.0, 1.0), (20.0, 1.0), (0.2, 0.2)]))
def test_any_batch(batch: Batch, seed: int, parameters: tuple[float, float]) -> None:
    before = batch.clone()
    result = forward(IfMixup(*parameters), batch, seed)
    assert same_content(batch, before)
    check_valid_batch(result.batch, graphs=batch.num_graphs, undirected=is_undirected(batch))
    assert "edge_weight" in result.batch
    for name in ("x", "edge_attr"):
        assert (name in result.batch) == (name in batch)
    weights = result.label_weight
    assert bool(((weights >= 0) & (weights <= 1)).all())
    check_all(result, batch, torch.eye(batch.num_graphs))


@pytest.mark.parametrize("kind", ["undirected", "undirected-multi"])
def test_an_edge_and_its_reverse_weigh_the_same(kind: str) -> None:
    for seed in range(5):
        batch = random_batch(generator(seed), **KINDS[kind], edge_weight=True)
        virtual = forward(IfMixup(1.0), batch, seed).batch
        table = {
            tuple(ends): float(weight)
            for ends, weight in zip(
                virtual.edge_index.t().tolist(), virtual.edge_weight, strict=True
            )
        }
        assert len(table) == virtual.num_edges
        assert all(table[head, tail] == weight for (tail, head), weight in table.items())


@pytest.mark.parametrize("kind", KINDS)
def test_the_kept_adjacency_is_that_of_the_edges(kind: str) -> None:
    batch = random_batch(generator(4), **KINDS[kind], edge_weight=True)
    virtual = forward(IfMixup(1.0), batch).batch
    kept = adjacency_of(virtual)
    fresh = adjacency_of(Batch.from_data_list(virtual.to_data_list()))
    x = torch.randn(virtual.num_nodes, 2, generator=generator())
    product, expected = (spmm(a, x, a.weight) for a in (kept, fresh))
    torch.testing.assert_close(product, expected)


def test_weights_that_differ_by_direction_stay_apart() -> None:
    pair = torch.tensor([[0, 1], [1, 0]])
    one = Data(x=torch.ones(2, 1), edge_index=pair, edge_weight=torch.tensor([1.0, 3.0]))
    other = Data(x=torch.ones(2, 1), edge_index=pair, edge_weight=torch.tensor([5.0, 7.0]))
    batch = Batch.from_data_list([one, other])
    half = torch.full((2,), 0.5)
    result = interpolate(batch, torch.eye(2), torch.tensor([1, 0]), half)
    assert result.batch.edge_weight.tolist() == [3.0, 5.0, 3.0, 5.0]


def test_attributes_that_differ_by_direction_stay_apart() -> None:
    # Edges and weights are symmetric; the attributes are not, and the edge list is not sorted.
    one = Data(edge_index=torch.tensor([[1, 0], [0, 1]]), edge_attr=torch.tensor([[10.0], [1.0]]))
    one.num_nodes = 2
    batch = Batch.from_data_list([one])
    result = interpolate(batch, torch.eye(1), torch.tensor([0]), torch.tensor([0.5]))
    found = dict(
        zip(
            map(tuple, result.batch.edge_index.t().tolist()),
            result.batch.edge_attr.flatten().tolist(),
            strict=True,
        )
    )
    assert found == {(1, 0): 10.0, (0, 1): 1.0}


# ------------------------------------------------------------------ limits


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_a_weight_of_zero_or_one_gives_one_of_the_two_graphs(kind: str, weight: float) -> None:
    batch = random_batch(generator(3), **KINDS[kind], edge_attr=True)
    source_of = torch.randperm(batch.num_graphs, generator=generator(1))
    weights = torch.full((batch.num_graphs,), weight)
    result = interpolate(batch, torch.eye(batch.num_graphs), source_of, weights)
    alone = source_of if weight else torch.arange(batch.num_graphs)
    assert torch.equal(result.targets, torch.eye(batch.num_graphs)[alone])
    originals = batch.to_data_list()
    assert bool(torch.isfinite(result.batch.edge_attr).all())
    for mixed, number in zip(result.batch.to_data_list(), alone.tolist(), strict=True):
        nodes = mixed.num_nodes
        np.testing.assert_allclose(mixed.x.numpy(), padded(originals[number].x, nodes), atol=1e-6)
        np.testing.assert_allclose(
            dense(mixed, nodes)[0], dense(originals[number], nodes)[0], atol=1e-6
        )


@pytest.mark.parametrize("conv", ["gcn", "gcs", "gin", "gat"])
def test_a_graph_mixed_with_itself_is_itself(conv: str) -> None:
    batch = random_batch(generator(5), simple=True)
    model = gt.GraphClassifier(3, 8, conv=conv, hidden=8, dropout=0.0, seed=0)
    same, weights = torch.arange(8), torch.rand(8, generator=generator())
    result = interpolate(batch, torch.eye(8), same, weights)
    torch.testing.assert_close(result.logits(model), model(batch).logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(result.targets, torch.eye(8))


def test_one_source_for_many() -> None:
    batch = random_batch(generator(7), graphs=5, edge_weight=True)
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.9])
    result = interpolate(batch, torch.eye(5), torch.tensor([2, 2, 2, 2, 2]), weights)
    check_all(result, batch, torch.eye(5))


def test_by_hand() -> None:
    # A path of three nodes, λ = 3/4, over an edge and a loop on two nodes.
    path = Data(x=torch.tensor([[4.0], [8.0], [12.0]]), y=torch.tensor([0]))
    path.edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    edge = Data(x=torch.tensor([[16.0], [20.0]]), y=torch.tensor([1]))
    edge.edge_index = torch.tensor([[0, 1, 1], [1, 0, 1]])
    batch = Batch.from_data_list([path, edge])
    weights = torch.tensor([0.25, 0.25])
    result = interpolate(batch, torch.eye(2), torch.tensor([1, 0]), weights)
    assert result.batch.ptr.tolist() == [0, 3, 6]
    assert result.batch.x.flatten().tolist() == [7.0, 11.0, 9.0, 13.0, 17.0, 3.0]
    assert result.batch.edge_index.tolist() == [
        [0, 1, 1, 1, 2, 3, 4, 4, 4, 5],
        [1, 0, 1, 2, 1, 4, 3, 4, 5, 4],
    ]
    expected = [1.0, 1.0, 0.25, 0.75, 0.75, 1.0, 1.0, 0.75, 0.25, 0.25]
    assert result.batch.edge_weight.tolist() == expected
    assert result.targets.tolist() == [[0.75, 0.25], [0.25, 0.75]]


def test_missing_labels_stay_missing() -> None:
    batch = random_batch(generator(2), graphs=3)
    nan = float("nan")
    targets = torch.tensor([[1.0, nan], [0.0, 1.0], [1.0, 0.0]])
    result = interpolate(batch, targets, torch.tensor([1, 2, 0]), torch.full((3,), 0.5))
    expected = torch.tensor([[0.5, nan], [0.5, 0.5], [1.0, nan]])
    torch.testing.assert_close(result.targets, expected, equal_nan=True)


def test_types_are_kept_and_other_node_fields_left_out() -> None:
    batch = random_batch(generator(2), graphs=3, edge_weight=True)
    batch.x, batch.edge_weight = batch.x.double(), batch.edge_weight.double()
    batch.atom = torch.arange(batch.num_nodes)
    result = forward(IfMixup(), batch)
    assert result.batch.x.dtype == result.batch.edge_weight.dtype == torch.double
    assert "atom" not in result.batch


# ------------------------------------------------------------------ draws


def single_nodes(count: int) -> Batch:
    nothing = torch.empty(2, 0, dtype=torch.long)
    return Batch.from_data_list(
        [Data(x=torch.ones(1, 3), edge_index=nothing, y=torch.tensor([0])) for _ in range(count)]
    )


@pytest.mark.parametrize("parameters", [(), (20.0, 1.0), (2.0, 2.0), (1.0, 3.0)])
def test_the_destinations_weight_is_beta_distributed(parameters: tuple[float, ...]) -> None:
    # Kolmogorov-Smirnov at 0.1 % with 2000 pairs, each with a draw of its own.
    alpha, beta = parameters or (20.0, 1.0)
    result = forward(IfMixup(*parameters), single_nodes(2000), seed=1)
    drawn = 1 - result.label_weight.double()
    assert kstest(drawn.numpy(), "beta", args=(alpha, beta)).pvalue > 1e-3
    # float32 tells 1 - λ apart to 2^-24 only, so a few draws may agree by chance.
    assert len(set(drawn.tolist())) > 1900


def test_every_graph_is_a_source_once() -> None:
    result = forward(IfMixup(), random_batch(generator(1)), seed=3)
    assert sorted(result.source_of.tolist()) == list(range(8))


def test_pairing_is_honoured() -> None:
    batch = random_batch(generator(1), graphs=6)
    targets = torch.eye(2)[torch.tensor([0, 1, 0, 1, 0, 1])]
    model = gt.GraphClassifier(3, 2, hidden=4, layers=1)
    clean = gt.CleanPass(batch, targets, lambda: model(batch))
    for pairing in ("same-class", Pairing("same-class")):
        result = IfMixup(pairing=pairing)(clean, model=model, generator=generator())
        assert torch.equal(targets[result.source_of], targets)
        assert bool((result.source_of != torch.arange(6)).all())


# ------------------------------------------------------------------ what is refused


class Unweighted(nn.Module):
    """A model that knows no edge weights."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        graphs = int(batch.max()) + 1
        return self.out(torch.zeros(graphs, 3).index_add(0, batch, x))


def test_a_model_without_edge_weights_is_refused() -> None:
    model = as_predictor(Unweighted())
    store = gt.load("motifs", graphs=12)
    with pytest.raises(GraphTransplantError, match=r"if-mixup.*motifs.*edge weights.*edge_weight"):
        IfMixup().check(model, store)
    batch = random_batch(generator(1))
    clean = gt.CleanPass(batch, torch.eye(8), lambda: model(batch))
    with pytest.raises(GraphTransplantError, match=r"if-mixup needs a model.*edge weights"):
        IfMixup()(clean, model=model, generator=generator())
    IfMixup().check(gt.GraphClassifier.for_data(store, hidden=4), store)


@pytest.mark.parametrize("field", ["x", "edge_attr"])
def test_whole_numbers_are_refused(field: str) -> None:
    batch = random_batch(generator(1), edge_attr=True)
    batch[field] = batch[field].long()
    with pytest.raises(DataError, match=rf"if-mixup.*`{field}`.*floating-point.*int64"):
        forward(IfMixup(), batch)


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_bad_parameters(name: str, value: float) -> None:
    with pytest.raises(GraphTransplantError, match=rf"`{name}` must be positive.*got"):
        IfMixup(**{name: value})


def test_pairing_by_class_needs_classes() -> None:
    store = gt.GraphStore(
        x=torch.ones(2, 1),
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        y=torch.tensor([[0.5]]),
        node_counts=torch.tensor([2]),
        edge_counts=torch.tensor([2]),
        task="regression",
    )
    model = gt.GraphClassifier.for_data(store, hidden=4)
    IfMixup().check(model, store)
    with pytest.raises(GraphTransplantError, match="regression"):
        IfMixup(pairing="same-class").check(model, store)
    with pytest.raises(GraphTransplantError, match="`pairing`"):
        IfMixup(pairing="nobody")
