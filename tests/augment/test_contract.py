"""What every augmentation must hold. A new method is tested by standing in ``METHODS``."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.augment import (
    Augmentation,
    CleanPass,
    Virtual,
    VirtualGraphs,
    build_method,
    unsupported_reason,
)
from graph_transplant.config.recipes import RECIPES
from graph_transplant.data import GraphBatch, GraphStore
from graph_transplant.data.targets import Loss
from graph_transplant.errors import GraphTransplantError
from graph_transplant.methods import expand_methods
from graph_transplant.nn import CONVOLUTIONS, GraphClassifier, evaluating, keeping_statistics
from graph_transplant.nn.adapter import as_predictor
from helpers.edits import both_ways
from helpers.foreign_models import Weighted
from helpers.oracles import assert_valid, check_valid_batch, same_content
from helpers.strategies import generator, graphs_of, random_batch

GRAPHS = 6
AUGMENTING = sorted(set(expand_methods(["all"])) - {"vanilla"})

# What sets a method apart where the suite would otherwise ask the same of all. Every entry is a
# property of the method as published, and is told on its documentation page.
DETERMINISTIC = {"label-smoothing", "vanilla-x2"}  # nothing is drawn
NAMES_ALL_CLASSES = {"label-smoothing"}
MAKES_FEATURES = {"mask-nodes", "if-mixup", "g-mixup", "node-sam"}  # masked, mixed or averaged
NEEDS_OUR_MODEL = {"manifold-mixup"}
NO_EDGE_ATTR = {"g-mixup"}  # a graphon gives only whether there is an edge
MOVES_EDGES = {"node-sam", "sub-mix"}  # kept edges get other ends
NEEDS_CLASSES = {
    "g-mixup": {"multilabel", "regression"},
    "m-evolve": {"multilabel", "regression"},
    "label-smoothing": {"regression"},
}
# What a method refuses of the kinds below, before training starts.
REFUSED = {"g-mixup": {"directed", "attributed"}}


def graph(nodes: int, edges: list[tuple[int, int]], label: int) -> Data:
    x = torch.randn(nodes, 3, generator=generator(label))
    return Data(x=x, edge_index=both_ways(*edges), y=torch.tensor([label]))


def complete(nodes: int) -> list[tuple[int, int]]:
    return list(itertools.combinations(range(nodes), 2))


RING = [(v, (v + 1) % 6) for v in range(6)]
TREE = [(0, 1), (1, 2), (4, 5)]
KINDS = {
    "ordinary": {},
    "directed": {"undirected": False},
    "multi": {"simple": False},
    "attributed": {},
    "weighted": {"edge_weight": True},
    "single-node": [(1, [])] * GRAPHS,
    "edgeless": [(3 + k, []) for k in range(GRAPHS)],
    "complete": [(2 + k, complete(2 + k)) for k in range(GRAPHS)],
    "mixed": [(1, []), (4, []), (4, complete(4)), (6, RING), (7, TREE), (6, RING)],
}


@cache
def batch_named(kind: str) -> Batch:
    if kind == "attributed":
        return attributed(batch_named("ordinary"))
    described = KINDS[kind]
    if isinstance(described, dict):
        return random_batch(generator(21), graphs=GRAPHS, **described)
    return Batch.from_data_list([graph(*each, k) for k, each in enumerate(described)])


def store_of(batch: Batch, task: str | None = None) -> GraphStore:
    return GraphStore.from_pyg(graphs_of(batch), name="examples", task=task)


def attributed(batch: Batch) -> Batch:
    """The same graphs with attributes of every edge, the same in both directions."""
    items = batch.to_data_list()
    for number, item in enumerate(items):
        table = torch.randn(item.num_nodes, item.num_nodes, 2, generator=generator(100 + number))
        item.edge_attr = table[item.edge_index.min(0).values, item.edge_index.max(0).values]
    return Batch.from_data_list(items)


def options(recipe: str) -> dict[str, Any]:
    """Of a small network without dropout, with everything that a recipe may ask for."""
    small = {"hidden": 16, "dropout": 0.0, "layer_dropout": 0.0}
    more = {"jumping": True, "walk": 3} if recipe == "strong" else {}
    return RECIPES[recipe].network() | small | more


def setup(
    method: str, kind: str = "ordinary", conv: str = "gcs", recipe: str = "paper"
) -> tuple[GraphClassifier, Augmentation, GraphBatch]:
    """A model, an augmentation as it is after an epoch, and a batch."""
    ordinary, batch = batch_named("ordinary"), batch_named(kind)
    width = 2 if CONVOLUTIONS[conv].takes_edge_attr else 0
    if width:
        ordinary, batch = attributed(ordinary), attributed(batch)
    model = GraphClassifier(
        3, GRAPHS, conv=conv, layers=2, edge_features=width, seed=0, **options(recipe)
    )
    torch.manual_seed(0)
    (augmentation,) = build_method(method, model)
    augmentation.prepare(store_of(ordinary), generator())
    with evaluating(model):  # from here on a filter does its work
        augmentation.after_epoch(model, store_of(ordinary))
    return model, augmentation, GraphBatch.from_pyg(batch)


def augment(
    model: nn.Module, augmentation: Augmentation, batch: GraphBatch, seed: int = 0
) -> Virtual:
    predictor = as_predictor(model)
    clean = CleanPass(batch, torch.eye(GRAPHS), predictor.run(batch))
    return augmentation(clean, model=predictor, generator=generator(seed))


# ------------------------------------------------------------------ every method, every kind


# On graphs without edges, or complete ones, saliency may truly be flat, and that is said.
@pytest.mark.filterwarnings("ignore:node saliency is the same")
@pytest.mark.parametrize(
    ("recipe", "kind"),
    [("paper", kind) for kind in KINDS] + [(r, "mixed") for r in RECIPES if r != "paper"],
)
@pytest.mark.parametrize("method", AUGMENTING)
def test_a_method_on_a_kind_of_graphs(method: str, recipe: str, kind: str) -> None:
    pyg = batch_named(kind)
    store = store_of(pyg)
    said = unsupported_reason(
        method, GraphClassifier.for_data(store, layers=1, hidden=4, seed=0), store
    )
    if kind in REFUSED.get(method, ()):
        assert said is not None
        assert "examples" in said
        return
    assert said is None
    model, augmentation, batch = setup(method, kind, recipe=recipe)
    before, weights = copy.deepcopy(batch), copy.deepcopy(model.state_dict())
    with keeping_statistics(model):  # as in a step of training
        check_virtual(method, kind, model, augmentation, batch)
    assert same_content(batch, before)
    assert all(torch.equal(weights[key], value) for key, value in model.state_dict().items())


def check_virtual(
    method: str, kind: str, model: GraphClassifier, augmentation: Augmentation, batch: GraphBatch
) -> None:
    """Virtual samples follow from the seed, and their targets, losses and graphs are sound."""
    state = torch.get_rng_state()
    virtual, again, other = (augment(model, augmentation, batch, seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), state)  # the generator is the only source of chance
    logits = virtual.outputs(model)[0]
    assert torch.equal(virtual.targets, again.targets)
    assert torch.equal(logits, again.outputs(model)[0])
    if kind == "ordinary":
        alike = logits.shape == other.targets.shape and torch.equal(logits, other.outputs(model)[0])
        assert alike == (method in DETERMINISTIC)

    targets = virtual.targets
    assert not targets.requires_grad
    assert bool((targets >= 0).all())
    torch.testing.assert_close(targets.sum(1), torch.ones(len(targets)))
    # Every graph has its own class: no target may name more than two graphs.
    assert int((targets > 0).sum(1).max()) <= 2 or method in NAMES_ALL_CLASSES

    weight = torch.ones(len(targets)) if virtual.weight is None else virtual.weight
    losses = nn.functional.cross_entropy(logits, targets, reduction="none")
    loss = virtual.losses(model, Loss())[0]
    torch.testing.assert_close(loss, (losses * weight).mean())
    if virtual.auxiliary_loss is not None:
        loss = loss + virtual.auxiliary_loss
    assert all(p.grad is None for p in [*model.parameters(), *augmentation.parameters()])
    loss.backward()
    for parameter in [*model.parameters(), *augmentation.parameters()]:
        assert parameter.grad is None or bool(torch.isfinite(parameter.grad).all())
    if isinstance(virtual, VirtualGraphs):
        check_graphs(virtual, method, batch, model)


def check_graphs(
    virtual: VirtualGraphs, method: str, batch: GraphBatch, model: GraphClassifier
) -> None:
    """Virtual graphs are valid, and what is said about their origins is true."""
    made = virtual.batch
    assert_valid(made)
    check_valid_batch(made, graphs=len(virtual.targets), undirected=batch.symmetric)
    assert made.x.shape[1] == 3
    assert set(batch.edges) <= set(made.edges)
    assert ("edge_attr" in made.edges) == ("edge_attr" in batch.edges)
    if method not in MAKES_FEATURES:
        assert {*map(tuple, made.x.tolist())} <= {*map(tuple, batch.x.tolist())}
    if batch.symmetric and "edge_attr" in batch.edges:
        rows = made.edge_attr.double().round(decimals=3).tolist()
        ends = made.edge_index.t().tolist()
        assert Counter((u, v, *row) for (u, v), row in zip(ends, rows, strict=True)) == Counter(
            (v, u, *row) for (u, v), row in zip(ends, rows, strict=True)
        )
    # A model sees the same, however the graphs are carried.
    fresh = Batch.from_data_list(made.to_pyg().to_data_list())
    torch.testing.assert_close(model.run(fresh).logits, virtual.outputs(model)[0])
    if not hasattr(virtual, "node_origin"):
        return
    sources = getattr(virtual, "source_of", np.arange(GRAPHS))
    own, number = batch.batch.numpy(), made.batch.numpy()
    from_graph = own[virtual.node_origin]
    assert ((from_graph == number) | (from_graph == sources[number])).all()
    for row, target in enumerate(virtual.targets):
        assert set(target.nonzero().flatten().tolist()) <= {row, int(sources[row])}
    kept = virtual.edge_origin >= 0
    origin, edge_index = virtual.edge_origin[kept], made.edge_index.numpy()[:, kept]
    if method not in MOVES_EDGES:
        ends = virtual.node_origin[edge_index]
        assert (ends == batch.edge_index.numpy()[:, origin]).all()
    for name, value in batch.edges.items():
        assert torch.equal(made.edges[name][kept], value[origin])
    if "edge_attr" in batch.edges:  # new edges are like others, those of a lone node blank
        known = {*map(tuple, batch.edge_attr.tolist())} | {(0.0, 0.0)}
        assert {*map(tuple, made.edge_attr.tolist())} <= known


# ------------------------------------------------------------------ models


@pytest.mark.parametrize(
    ("recipe", "conv"),
    [("paper", conv) for conv in ("gcn", "gin", "gat", "gine", "gat-edge")] + [("strong", "gcn")],
)
@pytest.mark.parametrize("method", AUGMENTING)
def test_all_parameters_move_in_one_step(method: str, recipe: str, conv: str) -> None:
    if CONVOLUTIONS[conv].takes_edge_attr and method in NO_EDGE_ATTR:
        model = GraphClassifier(3, GRAPHS, conv=conv, hidden=8, edge_features=2, seed=0)
        said = unsupported_reason(method, model, store_of(attributed(batch_named("ordinary"))))
        assert said is not None
        assert "edges have features" in said
        return
    model, augmentation, batch = setup(method, conv=conv, recipe=recipe)
    modules = nn.ModuleDict({"model": model, "augmentation": augmentation})
    before, plain = copy.deepcopy(modules.state_dict()), copy.deepcopy(model)
    optimiser = torch.optim.Adam(modules.parameters(), lr=1e-2)
    gt.augmented_loss(model, batch, augmentation, generator=generator()).backward()
    optimiser.step()
    for name, parameter in modules.named_parameters():
        assert not torch.equal(parameter, before[name]), name
    # Of all passes only that on the original graphs counts in running statistics.
    gt.augmented_loss(plain, batch, ())
    for (name, one), same in zip(model.named_buffers(), plain.buffers(), strict=True):
        assert torch.equal(one, same), name


@pytest.mark.parametrize("method", AUGMENTING)
def test_a_foreign_model_is_left_as_it_is(method: str) -> None:
    torch.manual_seed(0)
    model, store = Weighted(GRAPHS, nn.BatchNorm1d(8)), store_of(batch_named("ordinary"))
    (augmentation,) = build_method(method, GraphClassifier(3, GRAPHS, hidden=8))
    if method in NEEDS_OUR_MODEL:
        with pytest.raises(GraphTransplantError, match="GraphClassifier"):
            augmentation.check(as_predictor(model), store)
        return
    augmentation.check(as_predictor(model), store)
    augmentation.prepare(store, generator())
    batch, first = GraphBatch.from_pyg(batch_named("ordinary")), next(model.parameters())
    first.grad = torch.full_like(first, 7.0)  # a gradient somebody is accumulating
    clean = CleanPass(batch, torch.eye(GRAPHS), as_predictor(model).run(batch))
    weights = copy.deepcopy(model.state_dict())
    virtual = augmentation(clean, model=as_predictor(model), generator=generator())
    assert all(torch.equal(weights[key], value) for key, value in model.state_dict().items())
    loss = virtual.losses(as_predictor(model), Loss())[0]
    assert bool((first.grad == 7.0).all())
    assert bool(torch.isfinite(loss.detach()))
    for module in model.modules():
        assert module.training
        for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"):
            assert not getattr(module, hooks)


# ------------------------------------------------------------------ other data


@pytest.mark.parametrize(("recipe", "task"), [("paper", "multilabel"), ("strong", "regression")])
@pytest.mark.parametrize("method", AUGMENTING)
def test_other_tasks_train(method: str, recipe: str, task: str) -> None:
    pyg = batch_named("ordinary").clone()
    pyg.y = torch.rand(GRAPHS, 2, generator=generator(1))
    if task == "multilabel":
        pyg.y = pyg.y.round()
    pyg.y[0, 1] = pyg.y[3] = float("nan")  # an entry is missing, and all of a graph
    model = GraphClassifier(3, 2, layers=2, task=task, seed=0, **options(recipe))
    (augmentation,) = build_method(method, model)
    store = store_of(pyg, task)
    said = unsupported_reason(method, model, store)
    if task in NEEDS_CLASSES.get(method, ()):
        assert said is not None
        assert task in said
        return
    assert said is None
    augmentation.prepare(store, generator())
    batch = GraphBatch.from_pyg(pyg)
    clean = CleanPass(batch, pyg.y, model.run(batch), Loss(task))
    virtual = augmentation(clean, model=model, generator=generator())
    expected = pyg.y
    if hasattr(virtual, "source_of"):  # what either graph does not know, their mixture does not
        share = virtual.label_weight.unsqueeze(1).to(pyg.y.dtype)
        expected = share * pyg.y[virtual.source_of] + (1 - share) * pyg.y
    if method not in NAMES_ALL_CLASSES:
        torch.testing.assert_close(virtual.targets, expected, equal_nan=True)
    loss = gt.augmented_loss(model, batch, augmentation, generator=generator())
    loss.backward()
    assert bool(torch.isfinite(loss.detach()))
    assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters())


@pytest.mark.parametrize("method", AUGMENTING)
@pytest.mark.parametrize("recipe", RECIPES)
def test_graphs_without_features_and_a_batch_of_one(recipe: str, method: str) -> None:
    store = gt.load("motifs", graphs=12)
    model = GraphClassifier.for_data(store, layers=2, seed=0, **options(recipe))
    (augmentation,) = build_method(method, model)
    said = unsupported_reason(method, model, store)
    assert (said is not None) == (method == "mask-nodes")
    if said is not None:
        assert "node features" in said
        return
    augmentation.prepare(store, generator())
    for graphs in (range(12), [5]):
        batch = store.batch(graphs)
        clean = CleanPass(batch, torch.eye(6)[batch.y], model.run(batch))
        virtual = augmentation(clean, model=model, generator=generator())
        loss = virtual.losses(model, Loss())[0]
        loss.backward()
        assert bool(torch.isfinite(loss.detach()))
        if isinstance(virtual, VirtualGraphs):
            check_valid_batch(virtual.batch, graphs=len(graphs), undirected=True)
            assert virtual.batch.x is None
