"""The graph classifier: readouts, inputs, forward, settings and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch_geometric.data import Batch, Data

from graph_transplant.config.recipes import RECIPES
from graph_transplant.data import GraphBatch, GraphStore
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.nn import CONVOLUTIONS, GraphClassifier
from helpers.strategies import generator, random_batch, with_fields

CONVS = sorted(CONVOLUTIONS)


def batch_of(seed: int = 0, **settings: object) -> Batch:
    return random_batch(generator(seed), **settings)  # type: ignore[arg-type]


def classifier(
    conv: str = "gcs", features: int = 3, outputs: int = 2, **given: Any
) -> GraphClassifier:
    width = 2 if CONVOLUTIONS[conv].takes_edge_attr else 0
    settings = {"layers": 2, "hidden": 8, "edge_features": width, "seed": 0, **given}
    return GraphClassifier(features, outputs, conv=conv, **settings).eval()


# ------------------------------------------------------------------ the pieces


@pytest.mark.parametrize("readout", ["mean", "sum", "max"])
def test_readout_against_a_loop(readout: str) -> None:
    batch = GraphBatch.from_pyg(batch_of(), num_graphs=9)  # the last graph has no nodes
    model = classifier(hidden=5, readout=readout)
    nodes = torch.randn(batch.num_nodes, 5, generator=generator(1)).relu().requires_grad_()
    combine = {"mean": lambda n: n.mean(0), "sum": lambda n: n.sum(0), "max": lambda n: n.amax(0)}
    rows = [combine[readout](nodes[batch.batch == g]) for g in range(8)]
    expected = torch.stack([*rows, torch.zeros(5)])
    found = model.readout(nodes, batch)
    torch.testing.assert_close(found, expected)
    upstream = torch.randn(9, 5, generator=generator(2))
    gradients = [torch.autograd.grad(value, nodes, upstream)[0] for value in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("options", ["mean", "sum", "max", "strong"])
@pytest.mark.parametrize("conv", CONVS)
def test_a_batch_is_as_good_as_its_graphs(conv: str, options: str) -> None:
    batch = batch_of(1, simple=False, edge_weight=True, edge_attr=True)
    model = classifier(conv, **MODELS["strong"] if options == "strong" else {"readout": options})
    together = model.run(batch)
    alone = [model.run(graph) for graph in batch.to_data_list()]
    for name in ("logits", "nodes", "graphs"):
        parts = torch.cat([getattr(prediction, name) for prediction in alone])
        torch.testing.assert_close(getattr(together, name), parts)


@pytest.mark.parametrize("conv", CONVS)
def test_forward_is_that_of_a_pyg_model(conv: str) -> None:
    batch = batch_of(1, simple=False, edge_weight=True, edge_attr=True)
    model = classifier(conv)
    expected = model.run(batch).logits
    fields = batch.x, batch.edge_index, batch.edge_weight, batch.edge_attr
    assert torch.equal(model(*fields, batch.batch), expected)
    more = model(*fields, batch.batch, batch_size=10)  # two graphs without nodes at the end
    assert torch.equal(more[:8], expected)
    torch.testing.assert_close(more[8:], model.classify(torch.zeros(2, 8)))
    one = batch[3]
    alone = model(one.x, one.edge_index, one.edge_weight, one.edge_attr)
    torch.testing.assert_close(alone, expected[3:4])


def test_architecture_of_the_appendix() -> None:
    model = GraphClassifier(7, 6, conv="gat", layers=3)
    assert [c.out_features for c in model.convolutions] == [128, 128, 128]
    assert model.convolutions[0].heads == 4
    kinds = [type(module).__name__ for module in model.head]
    assert kinds == ["Linear", "ReLU", "Dropout", "Linear"]
    assert (model.head[0].out_features, model.head[2].p) == (128, 0.5)


# ------------------------------------------------------------------ inputs


@pytest.mark.parametrize("conv", CONVS)
def test_degrees_stand_in_for_missing_features(conv: str) -> None:
    # A star of four leaves, one at weight zero, and a lone node: degrees 3 (counted as 2), 1, 0.
    ends = torch.tensor([[1, 2, 3, 4, 0, 0, 0, 0], [0, 0, 0, 0, 1, 2, 3, 4]])
    weight = torch.tensor([1.0, 1.0, 1.0, 0.0] * 2)
    attr = torch.randn(8, 2, generator=generator())
    plain, featured = classifier(conv, 0, max_degree=2), classifier(conv, 3)
    segment = torch.tensor([0, 0, 0, 0, 0, 1])
    one_hot = torch.eye(3)[[2, 1, 1, 1, 0, 0]]
    found = plain(None, ends, weight, attr, segment)
    torch.testing.assert_close(found, featured(one_hot, ends, weight, attr, segment))
    assert plain.double()(None, ends, weight, attr, segment).dtype == torch.double
    with pytest.raises(DataError, match="`batch`, the graph of every node"):
        plain(None, ends)


@pytest.mark.parametrize("continuous", [0, 1])
@pytest.mark.parametrize("conv", CONVS)
def test_wide_one_hot_features_give_what_dense_ones_give(conv: str, continuous: int) -> None:
    plain = GraphStore.from_pyg(batch_of(2, edge_attr=True).to_data_list())
    nodes = int(plain.node_counts.sum())
    code = torch.randint(20, (nodes,), generator=generator(1))
    length = 5 + torch.randn(nodes, continuous, generator=generator(2))
    store = with_fields(
        plain, x=torch.cat((length, torch.eye(20)[code]), 1), num_continuous=continuous
    )
    batch = store.batch(range(8))
    dense = batch.to_pyg()
    assert torch.equal(dense.x, store.x)
    model = GraphClassifier.for_data(store, conv=conv, layers=2, hidden=8, dropout=0.0, seed=0)
    parameters = list(model.parameters())
    results = []
    for given in (batch, batch.dense(), dense):
        logits = model.run(given).logits
        gradients = torch.autograd.grad(logits.square().sum(), parameters, materialize_grads=True)
        results.append((logits, *gradients))
    for other in results[1:]:
        for one, same in zip(results[0], other, strict=True):
            torch.testing.assert_close(one, same, rtol=1e-4, atol=1e-5)
    assert model.double().run(batch).logits.dtype == torch.double


def test_the_units_of_continuous_features_do_not_matter() -> None:
    plain = GraphStore.from_pyg(batch_of(4).to_data_list())
    logits = []
    for scale, shift in ((1.0, 0.0), (1e3, -70.0)):
        x = plain.x * torch.tensor([scale, 1.0, 1.0]) + torch.tensor([shift, 0.0, 0.0])
        store = with_fields(plain, x=x, num_continuous=1)
        # Graphs that were not measured are seen in the same units.
        model = GraphClassifier.for_data(store.subset(range(6)), hidden=8, seed=0).eval()
        logits.append(model.run(store.batch(range(8))).logits)
    torch.testing.assert_close(*logits, rtol=1e-3, atol=1e-4)
    constant = with_fields(plain, x=torch.full_like(plain.x, 4.0), num_continuous=3)
    model = GraphClassifier.for_data(constant, hidden=8)
    assert bool(torch.isfinite(model.run(constant.batch([0])).logits).all())


# ------------------------------------------------------------------ settings


MODELS: dict[str, dict[str, Any]] = {
    "plain": {"conv": "gcn", "readout": "sum", "dropout": 0.25},
    "degrees": {"conv": "gin", "features": 0, "max_degree": 7, "task": "multilabel"},
    "scaled": {"mean": torch.ones(2), "std": torch.full((2,), 3.0), "readout": "max"},
    "regression": {"conv": "gat", "outputs": 1, "max_degree": 9, "task": "regression"},
    "edges": {"conv": "gine"},
    "strong": {**RECIPES["strong"].network(), "hidden": 8, "jumping": True, "walk": 3},
    "layer norm": {"input_layers": 1, "norm": "layer", "conv": "gin"},
    "scaled edges": {
        "conv": "gat-edge",
        "edge_mean": torch.tensor([3.0, -1.0]),
        "edge_std": torch.tensor([0.5, 0.0]),
    },
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_comes_back_from_its_config(kind: str) -> None:
    model = classifier(**{"conv": "gcs", **MODELS[kind]})
    state = torch.get_rng_state()
    config = json.loads(json.dumps(model.config()))
    twin = GraphClassifier.from_config(config).eval()
    assert torch.equal(torch.get_rng_state(), state)
    assert twin.config() == model.config() == config
    twin.load_state_dict(model.state_dict())
    batch = batch_of(1, edge_attr=True)
    x = batch.x if model.in_features else None
    fields = x, batch.edge_index, None, batch.edge_attr, batch.batch
    assert torch.equal(twin(*fields), model(*fields))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": "128"}, "`hidden` must be an integer; got '128'"),
        ({"layers": -1}, "`layers` must be an integer >= 0; got -1"),
        ({"dropout": float("nan")}, "`dropout` must be a finite number; got nan"),
        ({"continuous": 4}, "`continuous` of the model must be at most its 3 node features; got 4"),
        ({"layers": 10**12}, "too large for any memory"),
        ({"colour": 3}, "'colour' is not known"),
        ({"norm": "group"}, "`norm` must be one of none, batch, layer; got 'group'"),
        ({"input_layers": 10**12}, "too large for any memory"),
        ({"task": ...}, "`task` is missing"),
    ],
)
def test_damaged_configs_are_named(change: dict[str, Any], message: str) -> None:
    config = {**classifier("gine").config(), **change}
    config = {key: value for key, value in config.items() if value is not ...}
    with pytest.raises(GraphTransplantError, match=message):
        GraphClassifier.from_config(config)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"conv": "gcnn"}, "`conv` must be one of gcn, gcs, gin, gat, gine, gat-edge; got 'gcnn'"),
        ({"readout": "median"}, "`readout` must be one of mean, sum, max, mean-max; got 'median'"),
        ({"dropout": 1.0}, r"`dropout` must be in \[0, 1\), got 1.0"),
        ({"walk": 4}, "`walk` needs an input layer: set `input_layers`"),
        ({"conv": "gat", "hidden": 6}, "`hidden` must be divisible by the 4 attention heads"),
        ({"in_features": 0}, "`max_degree`"),
        (
            {"conv": "gine"},
            r"`conv` gine needs `edge_features`.*\(use gin for graphs without edge features\)",
        ),
        ({"edge_features": 2}, "`conv` gcs does not use edge attributes, but `edge_features` is 2"),
        ({"edge_std": torch.ones(3)}, r"`edge_std` must have shape \[edge_features\], here \[0\]"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        GraphClassifier(**{"in_features": 3, "num_outputs": 2, **settings})


def test_features_that_do_not_fit_are_named() -> None:
    model = classifier(features=4)
    with pytest.raises(DataError, match=r"\[nodes, 4\]; got \[.*, 3\]"):
        model.run(batch_of(6))
    with pytest.raises(DataError, match=r"\[nodes, 4\]; got none"):
        model.run(Data(edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=2))
