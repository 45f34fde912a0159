"""The graph classifier: readouts against loops, inputs, settings."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch, Data

from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.graphs import GraphStore, adjacency_of
from graph_transplant.nn import CONVOLUTIONS, GraphClassifier
from strategies import random_batch


def batch_of(seed: int = 0, **settings: object) -> Batch:
    return random_batch(torch.Generator().manual_seed(seed), **settings)


@pytest.mark.parametrize("readout", ["mean", "sum", "max"])
def test_readout_against_a_loop(readout: str) -> None:
    batch = batch_of()
    model = GraphClassifier(3, 2, hidden=5, readout=readout)
    nodes = torch.randn(batch.num_nodes, 5, requires_grad=True)
    found = model.readout(nodes, batch)
    combine = {"mean": lambda n: n.mean(0), "sum": lambda n: n.sum(0), "max": lambda n: n.amax(0)}
    expected = torch.stack(
        [combine[readout](nodes[batch.batch == g]) for g in range(batch.num_graphs)]
    )
    torch.testing.assert_close(found, expected)
    upstream = torch.randn_like(found)
    (one,) = torch.autograd.grad(found, nodes, upstream)
    (other,) = torch.autograd.grad(expected, nodes, upstream)
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("conv", sorted(CONVOLUTIONS))
@pytest.mark.parametrize("readout", ["mean", "sum", "max"])
def test_a_batch_is_as_good_as_its_graphs(conv: str, readout: str) -> None:
    batch = batch_of(1, simple=False, edge_weight=True, edge_attr=True)
    width = 2 if CONVOLUTIONS[conv].takes_edge_attr else 0
    model = GraphClassifier(
        3, 2, conv=conv, layers=2, hidden=8, readout=readout, edge_features=width, seed=0
    ).eval()
    together = model(batch)
    alone = [model(graph) for graph in batch.to_data_list()]
    torch.testing.assert_close(together.logits, torch.cat([p.logits for p in alone]))
    torch.testing.assert_close(together.nodes, torch.cat([p.nodes for p in alone]))
    assert together.graphs is not None
    torch.testing.assert_close(together.graphs, torch.cat([p.graphs for p in alone]))


def test_the_prediction_is_composed_of_the_three_steps() -> None:
    batch = batch_of(2)
    model = GraphClassifier(3, 4, layers=3, hidden=8, seed=0).eval()
    prediction = model(batch)
    layers = model.embed_nodes(batch)
    assert len(layers) == len(prediction.layers) == 3
    adjacency, entering = adjacency_of(batch), batch.x
    for convolution, one, other in zip(model.convolutions, layers, prediction.layers, strict=True):
        operator = convolution.operator(adjacency, torch.float32)
        entering = convolution(entering, operator).relu()
        assert torch.equal(one.nodes, entering)
        assert torch.equal(other.nodes, entering)
    assert torch.equal(prediction.nodes, entering)
    graphs = model.readout(prediction.nodes, batch)
    assert torch.equal(prediction.logits, model.classify(graphs))
    assert prediction.logits.shape == (8, 4)


def test_architecture_of_the_appendix() -> None:
    model = GraphClassifier(7, 6, conv="gat", layers=3)
    assert [c.out_features for c in model.convolutions] == [128, 128, 128]
    assert model.convolutions[0].heads == 4
    kinds = [type(module).__name__ for module in model.head]
    assert kinds == ["Linear", "ReLU", "Dropout", "Linear"]
    assert (model.head[0].out_features, model.head[2].p) == (128, 0.5)


def test_degrees_stand_in_for_missing_features() -> None:
    path = Data(edge_index=torch.tensor([[0, 1, 1, 2, 3], [1, 0, 2, 1, 3]]), num_nodes=5)
    model = GraphClassifier(0, 2, layers=1, hidden=4, max_degree=2)
    assert model.convolutions[0].in_features == 3
    features = model.inputs(path, adjacency_of(path), torch.float32)
    assert features.tolist() == [[0, 1, 0], [0, 0, 1], [0, 1, 0], [0, 1, 0], [1, 0, 0]]
    # A larger degree than any seen counts as the largest; weighted edges count by their weight.
    star = Data(
        edge_index=torch.tensor([[1, 2, 3, 0, 0, 0], [0, 0, 0, 1, 2, 3]]),
        edge_weight=torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 0.0]),
        num_nodes=4,
    )
    features = model.inputs(star, adjacency_of(star), torch.float32)
    assert features.argmax(1).tolist() == [2, 1, 1, 0]


def test_double_precision_model_on_degree_features() -> None:
    graphs = batch_of(3).to_data_list()
    for graph in graphs:
        graph.num_nodes = graph.num_nodes
        del graph.x
    store = GraphStore.from_pyg(graphs)
    model = GraphClassifier.for_data(store, hidden=8).double()
    assert model(store.batch([0, 1])).logits.dtype == torch.double


def test_continuous_features_are_standardised_over_the_nodes_given() -> None:
    batch = batch_of(4)
    batch.x = batch.x * torch.tensor([10.0, 1.0, 0.0]) + torch.tensor([5.0, 0.0, 3.0])
    store = GraphStore.from_pyg(batch.to_data_list(), num_continuous=1)
    part = store.subset(range(6))
    model = GraphClassifier.for_data(part, hidden=8)
    assert part.x is not None
    column = part.x[:, 0].numpy()
    assert float(model.inputs.mean) == pytest.approx(column.mean(), rel=1e-5)
    assert float(model.inputs.std) == pytest.approx(column.std(), rel=1e-5)
    whole = store.batch(range(8))
    features = model.inputs(whole, adjacency_of(whole), torch.float32)
    expected = (whole.x[:, 0] - column.mean()) / column.std()
    torch.testing.assert_close(features[:, 0], expected)
    assert torch.equal(features[:, 1:], whole.x[:, 1:])
    constant = GraphStore.from_pyg(
        [Data(x=torch.full((2, 1), 4.0), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0]))],
        num_continuous=1,
    )
    lone = GraphClassifier.for_data(constant, hidden=8)
    assert bool(torch.isfinite(lone(constant.batch([0])).logits).all())


def test_the_scale_of_the_features_is_saved_with_the_weights() -> None:
    store = GraphStore.from_pyg(batch_of(4).to_data_list(), num_continuous=3)
    model = GraphClassifier.for_data(store, hidden=8, seed=0).eval()
    other = GraphClassifier(3, 8, hidden=8, mean=torch.zeros(3), std=torch.ones(3)).eval()
    other.load_state_dict(model.state_dict())
    batch = store.batch(range(4))
    assert torch.equal(model(batch).logits, other(batch).logits)


def test_seed_fixes_the_weights_and_leaves_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    one, other = (GraphClassifier(3, 2, hidden=8, seed=7).state_dict() for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one[key], other[key]) for key in one)
    third = GraphClassifier(3, 2, hidden=8, seed=8).state_dict()
    assert not torch.equal(one["head.0.weight"], third["head.0.weight"])


def test_for_data_follows_the_store() -> None:
    store = GraphStore.from_pyg(batch_of(5).to_data_list())
    model = GraphClassifier.for_data(store, conv="gin", layers=2, hidden=16, readout="max")
    assert (model.num_outputs, model.task, len(model.convolutions)) == (8, "multiclass", 2)
    assert model(store.batch([0])).logits.shape == (1, 8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"conv": "gcnn"}, "`conv` must be one of gcn, gcs, gin, gat, gine, gat-edge; got 'gcnn'"),
        ({"readout": "median"}, "`readout` must be one of mean, sum, max; got 'median'"),
        ({"layers": 0}, "`layers` must be at least 1, got 0"),
        ({"hidden": 0}, "`hidden` must be at least 1, got 0"),
        ({"dropout": 1.0}, r"`dropout` must be in \[0, 1\), got 1.0"),
        ({"task": "ranking"}, "`task` must be one of"),
        ({"conv": "gat", "hidden": 6}, "divisible by the 4"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        GraphClassifier(3, 2, **settings)


def test_bad_features_are_named() -> None:
    with pytest.raises(GraphTransplantError, match="`max_degree`"):
        GraphClassifier(0, 2)
    model = GraphClassifier(4, 2, hidden=8)
    with pytest.raises(DataError, match=r"\[nodes, 4\]; got \[.*, 3\]"):
        model(batch_of(6))
    with pytest.raises(DataError, match=r"\[nodes, 4\]; got none"):
        model(Data(edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=2))
