"""Models that read edge attributes, and what augmentations do with such attributes."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

import graph_transplant as gt
from graph_transplant.data import GraphStore
from graph_transplant.errors import DataError
from graph_transplant.nn import CONVOLUTIONS, GraphClassifier
from graph_transplant.nn.inputs import edge_moments
from helpers.foreign_models import Twin
from helpers.strategies import generator, random_batch, rings_and_stars, with_fields

EDGE_CONVS = ("gine", "gat-edge")


def edge_model(conv: str, outputs: int = 2, **settings: Any) -> GraphClassifier:
    settings = {"layers": 2, "hidden": 8, "edge_features": 2, "seed": 0, **settings}
    return GraphClassifier(3, outputs, conv=conv, **settings)


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("conv", EDGE_CONVS)
def test_a_whole_model_is_that_of_pyg(conv: str, undirected: bool) -> None:
    # Attributes of an edge and of its reverse differ, which a store that calls its graphs
    # undirected must not mix up.
    batch = random_batch(generator(2), edge_attr=True, undirected=undirected)
    model = edge_model(conv, layers=3).eval()
    with torch.no_grad():  # nothing may hide behind a zero
        for convolution in model.convolutions:
            (convolution.epsilon if conv == "gine" else convolution.bias).uniform_(-0.5, 0.5)
    expected = Twin(model).eval()(batch.x, batch.edge_index, batch.batch, batch.edge_attr)
    torch.testing.assert_close(model.run(batch).logits, expected)
    store = GraphStore.from_pyg(batch.to_data_list())
    torch.testing.assert_close(model.run(store.batch(range(8))).logits, expected)


@pytest.mark.parametrize(("conv", "plain"), [("gine", "gin"), ("gat-edge", "gat")])
def test_missing_edge_features_are_named(conv: str, plain: str) -> None:
    store = rings_and_stars(4, seed=0, name="shapes")
    message = f"`conv` {conv} needs edge features, but shapes has none; use {plain} instead"
    with pytest.raises(DataError, match=message):
        GraphClassifier.for_data(store, conv=conv)
    model, batch = edge_model(conv), random_batch(generator(0), edge_attr=True)
    with pytest.raises(DataError, match=r"expects `edge_attr` of shape \[edges, 2\]; got none"):
        model.run(store.batch([0]))
    batch.edge_attr = batch.edge_attr[:, :1]
    with pytest.raises(DataError, match=r"shape \[edges, 2\]; got \[\d+, 1\] for \d+ edges"):
        model.run(batch)


# ------------------------------------------------------------------ numeric attributes


def measured_store(scale: float = 1.0, shift: float = 0.0) -> GraphStore:
    """Edges have a length in any unit, are of one of two kinds, and share a constant."""
    store = GraphStore.from_pyg(random_batch(generator(6)).to_data_list())
    edges = int(store.edge_counts.sum())
    length = torch.rand(edges, 1, generator=generator(7)) * scale + shift
    kind = nn.functional.one_hot(torch.arange(edges) % 2, 2).float()
    return with_fields(
        store, edge_attr=torch.cat((length, kind, torch.full((edges, 1), 0.1)), dim=1)
    )


def test_moments_of_edges_are_those_of_numpy_and_leave_codes_alone() -> None:
    store = measured_store(1e6, 3e5).subset([5, 0, 3, 6, 2])
    length = store.edge_attr[:, 0].double().numpy()
    mean, std = edge_moments(store)
    assert mean.tolist() == pytest.approx([length.mean(), 0, 0, 0.1], rel=1e-6)
    assert std.tolist() == pytest.approx([length.std(), 1, 1, 1], rel=1e-6)


@pytest.mark.parametrize("conv", EDGE_CONVS)
def test_the_units_of_edge_attributes_do_not_matter(conv: str) -> None:
    logits = []
    for scale, shift in ((1.0, 0.0), (1e6, 3e5), (1e-4, -2.0)):
        store = measured_store(scale, shift)
        # Graphs that were not measured are seen in the same units.
        model = GraphClassifier.for_data(store.subset(range(5)), conv=conv, hidden=8, seed=0).eval()
        logits.append(model.run(store.batch(range(8))).logits.detach())
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(logits[2], logits[0], rtol=1e-2, atol=1e-2)
    twin = GraphClassifier.from_config(json.loads(json.dumps(model.config()))).eval()
    twin.load_state_dict(model.state_dict())  # the scale is saved with the weights
    assert torch.equal(twin.run(store.batch(range(8))).logits, logits[2])


def test_codes_of_edges_reach_the_layers_as_they_are() -> None:
    store = measured_store()
    codes = with_fields(store, edge_attr=store.edge_attr[:, 1:3].to(torch.uint8))
    for conv in CONVOLUTIONS:
        width = 2 if conv in EDGE_CONVS else 0
        fitted = GraphClassifier.for_data(codes, conv=conv, hidden=8, seed=0).eval()
        plain = GraphClassifier(3, 8, conv=conv, hidden=8, edge_features=width, seed=0).eval()
        batch = codes.batch(range(8))
        assert torch.equal(fitted.run(batch).logits, plain.run(batch).logits)


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
    one_hot = nn.functional.one_hot
    store = with_fields(
        shapes, edge_attr=one_hot(marked.long(), 2).float(), x=one_hot(kind, 2).float(), y=y
    )
    assert not store.undirected  # the marks differ by direction
    train, validation = store.subset(range(80)), store.subset(range(80, graphs))
    model = GraphClassifier.for_data(train, conv=conv, hidden=16, layers=2, dropout=0.0, seed=0)
    given = {"seed": 0, "epochs": 40, "batch_size": 40, "learning_rate": 0.01}
    result = gt.fit(model, train, validation, **given)
    best = max(epoch.validation_accuracy for epoch in result.history)
    assert best >= 0.95 if conv in EDGE_CONVS else best <= 0.75
