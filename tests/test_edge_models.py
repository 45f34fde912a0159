"""Models that read edge attributes, and what everything around them does with such attributes."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from scipy.stats import chisquare
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GINEConv, global_mean_pool

import graph_transplant as gt
from graph_transplant.augment import METHODS, Pairing, build_method, refusal
from graph_transplant.augment.pairing import mix_rows
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.graphs import GraphStore, adjacency_of
from graph_transplant.nn import (
    CONVOLUTIONS,
    GATEdgeConvolution,
    GINEConvolution,
    GraphClassifier,
    classifier,
)
from graph_transplant.saliency import as_predictor
from graph_transplant.sparse import Adjacency, rectified_sum
from strategies import batches, random_batch, rings_and_stars

EDGE_CONVS = ("gine", "gat-edge")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def edge_model(conv: str, outputs: int = 2, **settings: Any) -> GraphClassifier:
    settings = {"layers": 2, "hidden": 8, "edge_features": 2, "seed": 0, **settings}
    return GraphClassifier(3, outputs, conv=conv, **settings)


def code_of(edge_index: Tensor) -> Tensor:
    """Attributes that say which edge they belong to, and in which direction it runs."""
    return torch.stack((edge_index[0], edge_index[1]), dim=1).double()


def sorted_edges(*pairs: tuple[int, int]) -> Tensor:
    """Both directions of every pair, sorted, as a promise of symmetry asks."""
    both = sorted(e for u, v in pairs for e in ({(u, v), (v, u)}))
    return torch.tensor(both).t().contiguous()


PAIRS = ((0, 1), (1, 2), (2, 3), (0, 3), (0, 2), (2, 2), (0, 1))


# ------------------------------------------------------------------ attributes find their edges


@pytest.mark.parametrize("promise", [True, None], ids=["promised", "found out"])
def test_edge_values_belong_to_the_message_of_their_entry(promise: bool | None) -> None:
    edges = sorted_edges(*PAIRS)
    adjacency = Adjacency.from_edges(edges, 4, symmetric=promise)
    assert adjacency.symmetric
    assert adjacency.rows_send == (promise is True)
    found = adjacency.edge_values(code_of(edges))
    # A message runs from the column to the row.
    assert torch.equal(found[:, 0].long(), adjacency.column)
    assert torch.equal(found[:, 1].long(), adjacency.row)


def test_repeated_edges_keep_their_own_values() -> None:
    # 0 - 1 stands there twice in each direction, all four with another value.
    edges = torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0]])
    values = torch.tensor([1.0, 2.0, 3.0, 4.0])
    for promise in (True, None):
        adjacency = Adjacency.from_edges(edges, 2, symmetric=promise)
        found = adjacency.edge_values(values)
        arriving = {node: set(found[adjacency.row == node].tolist()) for node in (0, 1)}
        assert arriving == {0: {3.0, 4.0}, 1: {1.0, 2.0}}


@settings(max_examples=40)
@given(batch=batches())
def test_edge_values_on_any_graphs(batch: Batch) -> None:
    adjacency = adjacency_of(batch)
    found = adjacency.edge_values(code_of(batch.edge_index))
    expected = torch.stack((adjacency.column, adjacency.row), dim=1)
    assert torch.equal(found.long(), expected)


@pytest.mark.parametrize("conv", EDGE_CONVS)
def test_attributes_may_differ_by_direction_where_edges_were_promised_symmetric(conv: str) -> None:
    # Somebody gives a batch of an undirected store attributes of his own.
    store = rings_and_stars(6, seed=0, name="shapes")
    assert store.undirected
    batch = store.batch(range(6))
    batch.edge_attr = torch.randn(batch.num_edges, 2, generator=generator(1))
    assert adjacency_of(batch).rows_send
    model = edge_model(conv).eval()
    plain = Data(
        x=batch.x, edge_index=batch.edge_index, edge_attr=batch.edge_attr, batch=batch.batch
    )
    assert not adjacency_of(plain).rows_send
    torch.testing.assert_close(model(batch).logits, model(plain).logits)
    turned = batch.clone()
    turned.edge_attr = batch.edge_attr[adjacency_of(batch).transposed[2]]
    assert not torch.allclose(model(turned).logits, model(batch).logits)


def test_edges_in_another_order_are_the_same_graph() -> None:
    batch = random_batch(generator(4), simple=False, edge_attr=True, edge_weight=True)
    order = torch.randperm(batch.num_edges, generator=generator(1))
    other = Data(
        x=batch.x,
        edge_index=batch.edge_index[:, order],
        edge_attr=batch.edge_attr[order],
        edge_weight=batch.edge_weight[order],
        batch=batch.batch,
    )
    for conv in EDGE_CONVS:
        model = edge_model(conv).eval()
        torch.testing.assert_close(model(other).logits, model(batch).logits)


# ------------------------------------------------------------------ the sum of messages


def test_rectified_sum_by_hand() -> None:
    #  1 → 0 with weight 2, 2 → 0 with weight 1, 0 → 0 with weight 3
    edges = torch.tensor([[1, 2, 0], [0, 0, 0]])
    weight = torch.tensor([2.0, 1.0, 3.0])
    adjacency = Adjacency.from_edges(edges, 3, weight)
    x = torch.tensor([[1.0, -1.0], [10.0, -10.0], [100.0, 100.0]])
    values = adjacency.edge_values(torch.tensor([[-4.0, 4.0], [0.0, -200.0], [1.0, 3.0]]))
    out = rectified_sum(adjacency, x, values, adjacency.values(torch.float32))
    # relu(10 - 4) · 2 + relu(100) + relu(1 + 1) · 3; relu(-10 + 4) · 2 + relu(-100) + relu(2) · 3
    assert out.tolist() == [[12.0 + 100.0 + 6.0, 6.0], [0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("promise", [True, None])
def test_rectified_sum_gradients(promise: bool | None) -> None:
    edges = sorted_edges(*PAIRS)
    adjacency = Adjacency.from_edges(edges, 4, symmetric=promise)
    x = torch.randn(4, 3, generator=generator(1), dtype=torch.double, requires_grad=True)
    size = (edges.shape[1], 3)
    given_edges = torch.randn(size, generator=generator(2), dtype=torch.double, requires_grad=True)
    values = torch.rand(size[0], generator=generator(3), dtype=torch.double, requires_grad=True)

    def weighted(x: Tensor, edges: Tensor, values: Tensor) -> Tensor:
        return rectified_sum(adjacency, x, adjacency.edge_values(edges), values)

    assert torch.autograd.gradcheck(weighted, (x, given_edges, values))
    assert torch.autograd.gradcheck(
        lambda x, edges: rectified_sum(adjacency, x, edges), (x, given_edges)
    )


def test_rectified_sum_says_that_it_has_no_second_derivative() -> None:
    adjacency = Adjacency.from_edges(torch.tensor([[0, 1], [1, 0]]), 2)
    x = torch.ones(2, 1, requires_grad=True)
    out = rectified_sum(adjacency, x, torch.ones(2, 1)).square().sum()
    (first,) = torch.autograd.grad(out, x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.parametrize("conv", EDGE_CONVS)
def test_graphs_without_edges(conv: str) -> None:
    empty = torch.empty(2, 0, dtype=torch.long)
    items = [
        Data(x=torch.randn(n, 3), edge_index=empty, edge_attr=torch.empty(0, 2)) for n in (1, 3)
    ]
    model = edge_model(conv, dropout=0.0)
    prediction = model(Batch.from_data_list(items))
    prediction.logits.sum().backward()
    assert bool(torch.isfinite(prediction.logits.detach()).all())
    assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters() if p.grad is not None)


# ------------------------------------------------------------------ whole models against PyG


class PyGModel(nn.Module):
    """The same architecture of PyG's own layers, with the weights of one of our models."""

    def __init__(self, model: GraphClassifier) -> None:
        super().__init__()
        self.head = model.head
        self.encoder = model.encoder
        self.layers = nn.ModuleList()
        for ours in model.convolutions:
            if isinstance(ours, GINEConvolution):
                steps = nn.Sequential(ours.first, nn.ReLU(), ours.second)
                layer = GINEConv(steps, train_eps=True, edge_dim=2)
                layer.eps.data.copy_(ours.epsilon.data.reshape(layer.eps.shape))
                layer.lin.load_state_dict(ours.edge.state_dict())
            else:
                assert isinstance(ours, GATEdgeConvolution)
                layer = GATConv(ours.in_features, ours.out_features // 4, heads=4, edge_dim=2)
                layer.lin.weight.data.copy_(ours.linear.weight)
                layer.att_src.data.copy_(ours.attend_sender.unsqueeze(0))
                layer.att_dst.data.copy_(ours.attend_receiver.unsqueeze(0))
                layer.bias.data.copy_(ours.bias)
                # Its two factors: the rows of our matrix, and a one in the first place.
                layer.lin_edge.weight.data.zero_()
                layer.lin_edge.weight.data[:: ours.out_features // 4] = ours.attend_edge.data
                layer.att_edge.data.zero_()
                layer.att_edge.data[0, :, 0] = 1.0
            self.layers.append(layer)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        h = self.encoder(x)
        for layer in self.layers:
            h = layer(h, edge_index, edge_attr).relu()
        return self.head(global_mean_pool(h, batch))


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("conv", EDGE_CONVS)
def test_a_whole_model_is_that_of_pyg(conv: str, undirected: bool) -> None:
    batch = random_batch(generator(2), edge_attr=True, undirected=undirected)
    model = edge_model(conv, layers=3).eval()
    with torch.no_grad():  # nothing may hide behind a zero
        for convolution in model.convolutions:
            if conv == "gine":
                convolution.epsilon.fill_(0.3)
            else:
                convolution.bias.uniform_(-0.5, 0.5)
    theirs = PyGModel(model).eval()
    expected = theirs(batch.x, batch.edge_index, batch.edge_attr, batch.batch)
    torch.testing.assert_close(model(batch).logits, expected)


def test_gine_layers_are_as_wide_as_the_model() -> None:
    model = GraphClassifier(174, 2, conv="gine", edge_features=13)
    assert (model.encoder.in_features, model.encoder.out_features) == (174, 128)
    assert [c.in_features for c in model.convolutions] == [128, 128, 128]
    assert [c.edge.in_features for c in model.convolutions] == [13, 13, 13]
    degrees = GraphClassifier(0, 2, conv="gine", hidden=8, max_degree=4, edge_features=1)
    assert degrees.encoder.in_features == 5


def test_encoded_nodes_start_at_a_size_that_does_not_shrink_with_the_columns() -> None:
    # One-hot columns pick single rows: the first embeddings of nodes must not fade in wide data.
    for columns in (8, 1000):
        model = GraphClassifier(columns, 2, conv="gine", edge_features=1, seed=0)
        assert float(model.encoder.weight.detach().std()) == pytest.approx(0.3, rel=0.1)


# ------------------------------------------------------------------ what stays as it was

# Sum of the absolute initial weights, the first logits and the sum of absolute gradients of the
# models without edge attributes, written down before there were others.
BEFORE = {
    "gcn": (
        37.16239791060798,
        [-0.22150355577468872, 0.08146147429943085, -0.1403103470802307, 0.1849363148212433],
        11.641570026903082,
    ),
    "gcs": (
        54.65138337208191,
        [-0.24558869004249573, -0.17247800529003143, 0.4501018822193146, 0.21584022045135498],
        27.05799427124657,
    ),
    "gin": (
        61.3277526810416,
        [-0.25327998399734497, 0.024217922240495682, -0.21147224307060242, 0.2029755711555481],
        16.394543348528714,
    ),
    "gat": (
        55.240635126654524,
        [0.3770705461502075, 0.0711326077580452, -0.02640983834862709, 0.13703712821006775],
        17.38398907569899,
    ),
}


@pytest.mark.parametrize("conv", sorted(BEFORE))
def test_models_without_edge_attributes_are_as_before(conv: str) -> None:
    batch = random_batch(generator(21), graphs=4, edge_attr=True, edge_weight=True)
    model = GraphClassifier(3, 4, conv=conv, layers=2, hidden=8, seed=11).eval()
    weights, logits, gradients = BEFORE[conv]
    total = sum(float(v.double().abs().sum()) for v in model.state_dict().values())
    assert total == pytest.approx(weights, abs=1e-9)  # the same draws, to the last bit
    found = model(batch).logits
    assert found[0].tolist() == pytest.approx(logits, abs=1e-5)
    found.square().sum().backward()
    slope = sum(float(p.grad.double().abs().sum()) for p in model.parameters())
    assert slope == pytest.approx(gradients, rel=1e-5)
    assert not any(name.startswith("encoder") for name in model.state_dict())


# ------------------------------------------------------------------ settings


def models() -> list[GraphClassifier]:
    return [
        GraphClassifier(3, 4, conv="gcn", layers=2, hidden=8, readout="sum", dropout=0.25),
        GraphClassifier(0, 2, conv="gin", hidden=8, max_degree=7, task="multilabel"),
        GraphClassifier(
            5,
            1,
            conv="gcs",
            hidden=8,
            mean=torch.ones(2),
            std=torch.full((2,), 3.0),
            task="regression",
            readout="max",
        ),
        GraphClassifier(3, 2, conv="gat", hidden=8, max_degree=9),
        edge_model("gine", mean=torch.zeros(1), std=torch.ones(1)),
        edge_model(
            "gat-edge", edge_mean=torch.tensor([3.0, -1.0]), edge_std=torch.tensor([0.5, 0.0])
        ),
    ]


@pytest.mark.parametrize("number", range(6))
def test_a_model_comes_back_from_its_config(number: int) -> None:
    model = models()[number].eval()
    state = torch.get_rng_state()
    config = json.loads(json.dumps(model.config()))
    twin = GraphClassifier.from_config(config).eval()
    assert torch.equal(torch.get_rng_state(), state)
    assert twin.config() == model.config() == config
    twin.load_state_dict(model.state_dict())
    batch = random_batch(generator(1), edge_attr=True)
    if model.in_features == 0:
        del batch.x
        batch.num_nodes = len(batch.batch)
    elif model.in_features == 5:
        batch.x = torch.cat((batch.x, batch.x[:, :2]), dim=1)
    assert torch.equal(twin(batch).logits, model(batch).logits)
    assert twin.task == model.task


def test_config_in_full() -> None:
    assert edge_model("gine", outputs=3, dropout=0.1).config() == {
        "in_features": 3,
        "num_outputs": 3,
        "conv": "gine",
        "layers": 2,
        "hidden": 8,
        "readout": "mean",
        "dropout": 0.1,
        "max_degree": None,
        "continuous": 0,
        "edge_features": 2,
        "task": "multiclass",
    }
    # With node features a largest degree says nothing about the model.
    assert models()[3].config()["max_degree"] is None
    assert models()[1].config()["max_degree"] == 7
    assert models()[2].config()["continuous"] == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": "128"}, "`hidden` of the model cannot be '128'"),
        ({"hidden": True}, "`hidden` of the model cannot be True"),
        ({"layers": -1}, "`layers` of the model cannot be -1"),
        ({"layers": 2.0}, "`layers` of the model cannot be 2.0"),
        ({"conv": None}, "`conv` of the model cannot be None"),
        ({"dropout": float("nan")}, r"`dropout` must be in \[0, 1\), got nan"),
        ({"conv": "gnn"}, "`conv` must be one of"),
        ({"layers": 0}, "`layers` must be at least 1"),
        ({"continuous": 4}, "`continuous` of the model must be at most its 3 node features; got 4"),
        ({"hidden": 10**9}, "more than any memory"),
        ({"layers": 10**12}, "more than any memory"),
        ({"max_degree": 10**12, "in_features": 0}, "more than any memory"),
        ({"edge_features": 0}, "`conv` gine needs `edge_features`"),
        ({"colour": 3}, "'colour' is unknown"),
        ({"task": ...}, "task is missing"),
    ],
)
def test_damaged_configs_are_named(change: dict[str, Any], message: str) -> None:
    config = {**edge_model("gine").config(), **change}
    config = {key: value for key, value in config.items() if value is not ...}
    with pytest.raises(GraphTransplantError, match=message):
        GraphClassifier.from_config(config)


def test_config_must_be_a_mapping() -> None:
    with pytest.raises(DataError, match="settings must be a mapping; got list"):
        GraphClassifier.from_config([])  # type: ignore[arg-type]


@pytest.mark.parametrize(("conv", "plain"), [("gine", "gin"), ("gat-edge", "gat")])
def test_missing_edge_features_are_named(conv: str, plain: str) -> None:
    store = rings_and_stars(4, seed=0, name="shapes")
    message = f"`conv` {conv} needs edge features, but shapes has none; {plain} is the same without"
    with pytest.raises(DataError, match=message):
        GraphClassifier.for_data(store, conv=conv)
    with pytest.raises(GraphTransplantError, match=f"`conv` {conv} needs `edge_features`"):
        GraphClassifier(3, 2, conv=conv)
    model = edge_model(conv)
    with pytest.raises(
        DataError, match=r"expects `batch\.edge_attr` of shape \[edges, 2\]; got none"
    ):
        model(store.batch([0]))
    batch = random_batch(generator(0), edge_attr=True)
    batch.edge_attr = batch.edge_attr[:, :1]
    with pytest.raises(DataError, match=r"shape \[edges, 2\]; got \[\d+, 1\] for \d+ edges"):
        model(batch)
    batch.edge_attr = torch.zeros(3, 2)
    with pytest.raises(DataError, match=r"shape \[edges, 2\]; got \[3, 2\] for \d+ edges"):
        model(batch)


def test_edge_features_that_would_be_ignored_are_named() -> None:
    with pytest.raises(
        GraphTransplantError,
        match="`conv` gcs reads no edge attributes, but `edge_features` is 2; gine, gat-edge read",
    ):
        GraphClassifier(3, 2, conv="gcs", edge_features=2)


def test_for_data_takes_the_width_of_the_store() -> None:
    items = random_batch(generator(5), edge_attr=True).to_data_list()
    store = GraphStore.from_pyg(items, name="attributed")
    for conv in CONVOLUTIONS:
        model = GraphClassifier.for_data(store, conv=conv, hidden=8)
        assert model.edge_features == (2 if conv in EDGE_CONVS else 0)
        assert model.takes_edge_attr == (conv in EDGE_CONVS)
        assert model(store.batch([0, 1])).logits.shape == (2, 8)
    # Small integers, as molecules are kept, are read as numbers.
    bonds = GraphStore(
        x=store.x,
        edge_index=store.edge_index,
        y=store.y,
        node_counts=store.node_counts,
        edge_counts=store.edge_counts,
        edge_attr=(store.edge_attr > 0).to(torch.uint8),
    )
    assert bool(torch.isfinite(edge_model("gine")(bonds.batch([0, 1])).logits.detach()).all())


# ------------------------------------------------------------------ numeric attributes


def measured_store(scale: float = 1.0, shift: float = 0.0) -> GraphStore:
    """Graphs whose edges have a length, which may be in any units, and are of one of two kinds."""
    store = GraphStore.from_pyg(random_batch(generator(6), edge_attr=True).to_data_list())
    edges = int(store.edge_counts.sum())
    length = torch.rand(edges, generator=generator(7)) * scale + shift
    kind = nn.functional.one_hot(torch.arange(edges) % 2, 2).float()
    return GraphStore(
        x=store.x,
        edge_index=store.edge_index,
        y=store.y,
        node_counts=store.node_counts,
        edge_counts=store.edge_counts,
        edge_attr=torch.cat((length.unsqueeze(1), kind, torch.full((edges, 1), 0.1)), dim=1),
        name="lengths",
    )


def test_moments_of_edges_are_those_of_numpy_and_leave_codes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = measured_store(1e6, 3e5).subset([5, 0, 3, 6, 2])
    length = store.edge_attr[:, 0].double().numpy()
    for most in (classifier._EDGES_AT_ONCE, 7, 1):
        monkeypatch.setattr(classifier, "_EDGES_AT_ONCE", most)
        mean, std = classifier.edge_moments(store)
        assert mean.tolist() == pytest.approx([length.mean(), 0, 0, 0.1], rel=1e-6)
        # A column that never varies keeps its scale, whatever rounding makes of its deviation.
        assert std.tolist() == pytest.approx([length.std(), 1, 1, 1], rel=1e-6)
        assert mean[1:3].tolist() == [0, 0]
        assert std[1:].tolist() == [1, 1, 1]


def test_moments_where_there_are_no_edges() -> None:
    lonely = GraphStore(
        x=torch.ones(2, 1),
        edge_index=torch.empty(2, 0, dtype=torch.long),
        y=torch.tensor([0, 1]),
        node_counts=torch.tensor([1, 1]),
        edge_counts=torch.tensor([0, 0]),
        edge_attr=torch.empty(0, 2),
    )
    mean, std = classifier.edge_moments(lonely)
    assert (mean.tolist(), std.tolist()) == ([0, 0], [1, 1])
    model = GraphClassifier.for_data(lonely, conv="gine", hidden=8)
    assert bool(torch.isfinite(model(lonely.batch([0, 1])).logits.detach()).all())


@pytest.mark.parametrize("conv", EDGE_CONVS)
def test_the_units_of_edge_attributes_do_not_matter(conv: str) -> None:
    logits = []
    for scale, shift in ((1.0, 0.0), (1e6, 3e5), (1e-4, -2.0)):
        store = measured_store(scale, shift)
        # Graphs that were not measured are seen in the same units.
        model = GraphClassifier.for_data(store.subset(range(5)), conv=conv, hidden=8, seed=0).eval()
        logits.append(model(store.batch(range(8))).logits.detach())
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(logits[2], logits[0], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("conv", EDGE_CONVS)
def test_codes_of_edges_reach_the_layers_as_they_are(conv: str) -> None:
    store = measured_store()
    codes = GraphStore(
        x=store.x,
        edge_index=store.edge_index,
        y=store.y,
        node_counts=store.node_counts,
        edge_counts=store.edge_counts,
        edge_attr=store.edge_attr[:, 1:3].to(torch.uint8),
    )
    fitted = GraphClassifier.for_data(codes, conv=conv, hidden=8, seed=0).eval()
    plain = GraphClassifier(3, 8, conv=conv, hidden=8, edge_features=2, seed=0).eval()
    batch = codes.batch(range(8))
    assert torch.equal(fitted(batch).logits, plain(batch).logits)
    assert torch.equal(fitted._edge_attr(batch), batch.edge_attr.float())


def test_the_scale_of_edge_attributes_is_saved_with_the_weights() -> None:
    store = measured_store(1e6, 3e5)
    for conv in CONVOLUTIONS:
        model = GraphClassifier.for_data(store, conv=conv, hidden=8, seed=0).eval()
        state = model.state_dict()
        kept = {name for name in state if name.startswith("edge_")}
        assert kept == ({"edge_mean", "edge_std"} if conv in EDGE_CONVS else set())
        twin = GraphClassifier.from_config(json.loads(json.dumps(model.config()))).eval()
        twin.load_state_dict(state)
        batch = store.batch(range(4))
        assert torch.equal(twin(batch).logits, model(batch).logits)
    assert model.double()(store.batch([0])).logits.dtype == torch.double


@pytest.mark.parametrize(("name", "conv"), [("edge_mean", "gine"), ("edge_std", "gcs")])
def test_moments_of_another_width_are_named(name: str, conv: str) -> None:
    width = 2 if conv == "gine" else 0
    message = rf"`{name}` must have shape \[edge_features\], here \[{width}\]; got \[3\]"
    with pytest.raises(GraphTransplantError, match=message):
        GraphClassifier(3, 2, conv=conv, edge_features=width, **{name: torch.ones(3)})


# ------------------------------------------------------------------ methods


class ForeignGINE(nn.Module):
    """What a PyG user has: GINE layers, no edge weights."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        steps = [nn.Sequential(nn.Linear(w, 8), nn.ReLU(), nn.Linear(8, 8)) for w in (3, 8)]
        self.layers = nn.ModuleList(GINEConv(step, edge_dim=2) for step in steps)
        self.out = nn.Linear(8, outputs)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index, edge_attr).relu()
        return self.out(global_mean_pool(x, batch))


@pytest.mark.filterwarnings("ignore:the model takes no `edge_weight`")
@pytest.mark.filterwarnings("ignore:node saliency is the same")
@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_pyg_model_with_edge_attributes_trains_or_is_refused(method: str) -> None:
    items = random_batch(generator(6), graphs=6, edge_attr=True).to_data_list()
    store = GraphStore.from_pyg(items, name="attributed")
    torch.manual_seed(0)
    model = ForeignGINE(6)
    predictor = as_predictor(model)
    assert predictor.takes_edge_attr
    parts = build_method(method, GraphClassifier(3, 6, hidden=8))
    reasons = {"manifold-mixup": "GraphClassifier", "g-mixup": "features", "if-mixup": "weights"}
    if method in reasons:
        with pytest.raises(GraphTransplantError, match=reasons[method]):
            parts[0].check(predictor, store)
        return
    for part in parts:
        part.check(predictor, store)
        part.prepare(store, generator())
    loss = gt.augmented_loss(model, store.batch(range(6)), parts, generator=generator())
    loss.backward()
    assert all(bool(p.grad.abs().sum() > 0) for p in model.parameters())


def symmetric_store(graphs: int = 6) -> GraphStore:
    """Undirected graphs whose edges all have other attributes, the same in both directions."""
    items = random_batch(generator(9), graphs=graphs, largest=12).to_data_list()
    for number, item in enumerate(items):
        low, high = item.edge_index.min(0).values, item.edge_index.max(0).values
        item.edge_attr = torch.stack((low * 100 + high + 1.0, torch.full_like(low, number)), 1)
    store = GraphStore.from_pyg(items, name="pairs")
    assert store.undirected
    return store


@pytest.mark.parametrize(
    "method", sorted(set(METHODS) - {"vanilla", "manifold-mixup", "label-smoothing", "g-mixup"})
)
def test_both_directions_of_an_edge_carry_the_same_attributes(method: str) -> None:
    store = symmetric_store()
    model = GraphClassifier.for_data(store, conv="gine", hidden=16, dropout=0.0, seed=0)
    (augmentation,) = build_method(method, model, seed=0)
    augmentation.prepare(store, generator())
    batch = store.batch(range(6))
    for seed in range(3):
        clean = gt.CleanPass(batch, torch.eye(6), model(batch))
        virtual = augmentation(clean, model=model, generator=generator(seed))
        made = virtual.batch
        forward: Counter[tuple[float, ...]] = Counter()
        backward: Counter[tuple[float, ...]] = Counter()
        rounded = made.edge_attr.double().round(decimals=3).tolist()
        for (u, v), attr in zip(made.edge_index.t().tolist(), rounded, strict=True):
            forward[u, v, *attr] += 1
            backward[v, u, *attr] += 1
        assert forward == backward
        plain = Batch.from_data_list(made.detach().to_data_list())
        torch.testing.assert_close(model(plain).logits, virtual.logits(model))


def test_refusals_name_the_data() -> None:
    store = symmetric_store()
    model = GraphClassifier.for_data(store, conv="gine", hidden=8)
    said = {method: refusal(method, model, store) for method in METHODS}
    assert [method for method, reason in said.items() if reason is not None] == ["g-mixup"]
    assert "pairs: its edges have features" in str(said["g-mixup"])


@pytest.mark.parametrize("conv", [*EDGE_CONVS, "gin"])
def test_only_models_that_read_attributes_learn_what_is_written_there(conv: str) -> None:
    # Nodes are of two kinds at random. In a graph of class k the edges that come from nodes of kind
    # k are marked: neither the nodes nor the marks alone say anything about the class.
    graphs = 120
    shapes = rings_and_stars(graphs, seed=3, name="marked")
    y = torch.randint(2, (graphs,), generator=generator(1))
    kind = torch.randint(2, (5 * graphs,), generator=generator(2))
    base = torch.repeat_interleave(shapes.node_ptr[:-1], shapes.edge_counts)
    marked = kind[base + shapes.edge_index[0]] == torch.repeat_interleave(y, shapes.edge_counts)
    store = GraphStore(
        x=nn.functional.one_hot(kind, 2).float(),
        edge_index=shapes.edge_index,
        y=y,
        node_counts=shapes.node_counts,
        edge_counts=shapes.edge_counts,
        edge_attr=nn.functional.one_hot(marked.long(), 2).float(),
        name="marked",
    )
    assert not store.undirected  # the marks differ by direction
    train, validation = store.subset(range(80)), store.subset(range(80, graphs))
    model = GraphClassifier.for_data(train, conv=conv, hidden=16, layers=2, dropout=0.0, seed=0)
    augment = build_method("transplant-dp", model, seed=0)
    result = gt.fit(
        model,
        train,
        validation,
        augment,
        seed=0,
        epochs=40,
        batch_size=40,
        learning_rate=0.01,
        progress=False,
    )
    best = max(epoch.validation_accuracy for epoch in result.history)
    assert best >= 0.95 if conv in EDGE_CONVS else best <= 0.75


# ------------------------------------------------------------------ several labels, some missing


def test_a_missing_entry_is_missing_in_the_mixture_whatever_the_weight() -> None:
    nan = float("nan")
    rows = torch.tensor([[1.0, nan, 0.0], [0.0, 1.0, nan]])
    for weight in (0.0, 0.25, 1.0):
        mixed = mix_rows(rows, torch.tensor([1, 0]), torch.tensor([weight, weight]))
        assert mixed.isnan().tolist() == [[False, True, True], [False, True, True]]
        assert mixed[:, 0].tolist() == pytest.approx([1 - weight, weight])
    assert mix_rows(rows, torch.tensor([0, 1]), torch.tensor([0.5, 0.5])).isnan().sum() == 2


def many_labels() -> tuple[Tensor, dict[int, int]]:
    """Twelve labels of forty graphs, hardly two rows alike, and the class of each by hand.

    Label 0 is common, label 5 rare; four graphs have none; some entries are missing.
    """
    y = torch.zeros(40, 12)
    y[:36, 0] = 1.0
    y[:4, 5] = 1.0
    noise = torch.rand(40, 12, generator=generator(8)) < 0.3
    y = y.masked_fill(noise & (y == 0), float("nan"))
    classes = {graph: 6 if graph < 4 else 1 if graph < 36 else 0 for graph in range(40)}
    return y, classes


def test_minority_pairing_draws_the_rarest_label_of_graphs_with_many() -> None:
    targets, classes = many_labels()
    assert len({tuple(row) for row in targets.nan_to_num(nan=-1).tolist()}) > 30
    source, pairing, rounds = generator(3), Pairing("minority"), 200
    drawn = torch.cat([pairing.sources(targets, "multilabel", source) for _ in range(rounds)])
    # Three classes alike: the rare label, the common one, none; graphs of a class alike.
    seen = Counter(drawn.tolist())
    sizes = Counter(classes.values())
    expected = [40 * rounds / 3 / sizes[classes[graph]] for graph in range(40)]
    assert chisquare([seen[graph] for graph in range(40)], expected).pvalue > 1e-4


def test_minority_pairing_reads_mixed_labels_by_halves() -> None:
    # The virtual graphs of one augmentation are the input of the next.
    targets = torch.tensor([[0.9, 0.1], [0.8, 0.0], [0.7, 0.2], [0.3, 0.6]])
    source = generator(1)
    drawn = torch.cat(
        [Pairing("minority").sources(targets, "multilabel", source) for _ in range(500)]
    )
    share = float((drawn == 3).double().mean())
    assert share == pytest.approx(0.5, abs=4 * (0.25 / 2000) ** 0.5)


def test_other_pairings_of_many_labels_go_by_the_whole_row() -> None:
    targets = torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0], [1.0, float("nan")]])
    sources = Pairing("same-class").sources(targets, "multilabel", generator(0))
    assert sources.tolist() == [2, 1, 0, 3]
