"""The strong recipe: its network against plain PyG, its schedule, its place in comparisons."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch_geometric.data import Batch, Data
from torch_geometric.nn import JumpingKnowledge, global_max_pool, global_mean_pool
from torch_geometric.transforms import AddRandomWalkPE

import graph_transplant as gt
from graph_transplant.augment import CleanPass, OriginalGraphs
from graph_transplant.config.compare import Settings
from graph_transplant.config.recipes import RECIPES
from graph_transplant.data import GraphBatch
from graph_transplant.errors import GraphTransplantError
from graph_transplant.kernels.random_walk import (
    powers_of_matrix,
    return_probabilities,
    walks_from_nodes,
)
from graph_transplant.nn import GraphClassifier
from graph_transplant.results.results import Results
from helpers.foreign_models import pyg_layer
from helpers.made_up_records import PLAIN, made_up
from helpers.strategies import generator, random_batch

SMALL = {"hidden": 8, "dropout": 0.0, "layer_dropout": 0.0}
EVERYTHING = RECIPES["strong"].network() | SMALL | {"jumping": True, "walk": 4}


def batch_of(seed: int = 0, **settings: Any) -> Batch:
    batch = random_batch(generator(seed), graphs=4, **settings)
    batch.y = torch.tensor([0, 1, 2, 1])
    return batch


# ------------------------------------------------------------------ against plain PyG


class Plain(nn.Module):
    """The same network as somebody with PyG alone would write it, with our weights."""

    def __init__(self, ours: GraphClassifier) -> None:
        super().__init__()
        self.residual = ours.residual
        parts = (ours.encoder, ours.walks, ours.mixing, ours.norms, ours.head)
        self.encoder, self.walk, self.mixing, self.norms, self.head = copy.deepcopy(parts)
        self.convs = nn.ModuleList(pyg_layer(layer) for layer in ours.convolutions)
        self.jump = JumpingKnowledge("cat")

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        positions = AddRandomWalkPE(4)(batch.clone()).random_walk_pe.to(batch.x.dtype)
        x = self.mixing(self.encoder(batch.x) + positions @ self.walk.weight.t())
        states = []
        for conv, norm in zip(self.convs, self.norms, strict=True):
            before = norm(conv(x, batch.edge_index))
            x = x + before.relu() if self.residual else before.relu()
            states.append(x)
        # Pooling what was put side by side is putting side by side what was pooled.
        mean, largest = (
            pool(self.jump(states), batch.batch).unflatten(1, (len(states), 8))
            for pool in (global_mean_pool, global_max_pool)
        )
        return self.head(torch.cat((mean, largest), 2).flatten(1)), before


def paired(conv: str, norm: str, residual: bool) -> tuple[GraphClassifier, Plain]:
    """Our network and the plain one with the same weights, of which none is at its start."""
    ours = GraphClassifier(
        3, 3, conv=conv, layers=3, seed=0, **EVERYTHING | {"norm": norm, "residual": residual}
    ).double()
    with torch.no_grad():
        for place, parameter in enumerate(ours.parameters()):
            parameter.normal_(0.1, 0.4, generator=generator(place))
    return ours, Plain(ours)


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("conv", ["gcn", "gin", "gat"])
def test_network_is_that_of_plain_pyg(conv: str, norm: str, residual: bool) -> None:
    ours, theirs = paired(conv, norm, residual)
    batch = batch_of()
    batch.x = batch.x.double()
    prediction = ours.run(batch)
    expected, before = theirs(batch)
    torch.testing.assert_close(prediction.logits, expected)
    graphs = GraphBatch.from_pyg(batch)
    clean = CleanPass(graphs, torch.eye(3).double()[batch.y], prediction)
    loss = nn.functional.cross_entropy(expected, batch.y)
    # Saliency: the gradient at the last layer, after its normalisation, before its activation.
    (gradient,) = torch.autograd.grad(loss, before, retain_graph=True)
    if residual or conv == "gin":  # else joined nodes are alike, and rounding picks the largest
        torch.testing.assert_close(clean.saliency(gt.NodeSaliency()), gradient.norm(dim=1))
    clean.loss.backward()
    loss.backward()
    wanted = sorted(float(p.grad.square().sum()) for p in theirs.parameters())
    found = sorted(float(p.grad.square().sum()) for p in ours.parameters())
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-12)
    # Once trained on, both have the same running statistics.
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours.run(batch).logits, theirs(batch)[0])


def test_a_product_with_the_embedding_is_read_at_what_the_layer_hands_on() -> None:
    model = GraphClassifier(3, 3, layers=2, seed=0, **EVERYTHING | {"jumping": False}).eval()
    batch = GraphBatch.from_pyg(batch_of())
    prediction = model.run(batch)
    loss = prediction.logits[:, 0].sum()
    found = gt.NodeSaliency(kind="gradient-x-activation").read(loss, prediction)
    nodes = prediction.nodes.detach().requires_grad_()
    graphs = torch.cat(
        [pool(nodes, batch.batch) for pool in (global_mean_pool, global_max_pool)], 1
    )
    (gradient,) = torch.autograd.grad(model.head(graphs)[:, 0].sum(), nodes)
    torch.testing.assert_close(found, (gradient * nodes.detach()).sum(1).abs())
    flat = gt.NodeSaliency(activation="after").read(loss, prediction)
    torch.testing.assert_close(flat, gradient.norm(dim=1))


@pytest.mark.parametrize("steps", [1, 4, 5])
@pytest.mark.parametrize("kind", [{}, {"undirected": False}, {"simple": False}])
def test_walks_are_powers_of_a_matrix(kind: dict[str, bool], steps: int) -> None:
    batch = batch_of(3, **kind)
    graphs = GraphBatch.from_pyg(batch)
    ones = np.ones(graphs.num_edges, np.float32)
    found = return_probabilities(graphs.csr, ones, graphs.symmetric, steps)
    matrix = np.zeros((batch.num_nodes, batch.num_nodes))
    np.add.at(matrix, tuple(batch.edge_index.flip(0).numpy()), 1.0)
    matrix /= np.maximum(matrix.sum(1, keepdims=True), 1)
    powers = [np.linalg.matrix_power(matrix, k + 1).diagonal() for k in range(steps)]
    expected = np.stack(powers, 1)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    # Both ways, whichever a graph's density asks for.
    total = np.diff(graphs.row_ptr).astype(float)  # every edge weighs one
    dense, sparse = np.zeros((2, batch.num_nodes, steps), np.float32)
    for first, last in pairwise(graphs.ptr):
        powers_of_matrix(first, last, graphs.csr, ones, total, dense)
        walks_from_nodes(first, last, graphs.csr, ones, total, graphs.symmetric, sparse)
    np.testing.assert_allclose(dense, expected, atol=1e-6)
    np.testing.assert_allclose(sparse, expected, atol=1e-6)


def test_walks_follow_edge_weights() -> None:
    # A path of three nodes; weight zero at one end: what is left is a pair.
    ends = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    model = GraphClassifier(1, 2, layers=1, seed=0, **EVERYTHING).eval()
    weight = torch.tensor([1.0, 1.0, 0.0, 0.0])
    found, expected = (
        model.walks(GraphBatch.from_pyg(Data(x=torch.ones(3, 1), edge_index=index, **fields)))
        for index, fields in ((ends, {"edge_weight": weight}), (ends[:, :2], {}))
    )
    torch.testing.assert_close(found, expected)
    assert not bool(found[2].any())


def test_a_single_node_is_normalised_by_running_statistics_and_dropout_is_for_training() -> None:
    model = GraphClassifier(1, 2, layers=2, seed=0, **EVERYTHING)
    lonely = torch.ones(1, 1), torch.empty(2, 0, dtype=torch.long)
    trained = model(*lonely)
    torch.testing.assert_close(trained, model.eval()(*lonely))
    model = GraphClassifier(3, 3, layers=2, seed=0, **EVERYTHING | {"layer_dropout": 0.5})
    batch = GraphBatch.from_pyg(batch_of())
    assert not torch.equal(model.run(batch).graphs, model.run(batch).graphs)
    model.eval()
    assert torch.equal(model.run(batch).graphs, model.run(batch).graphs)


def test_every_pass_normalises_by_itself() -> None:
    batch = batch_of()
    model = GraphClassifier(3, 3, layers=2, seed=0, **EVERYTHING)

    class Shifted(OriginalGraphs):
        def forward(self, clean: CleanPass, **_: Any) -> Any:
            virtual = super().forward(clean, **_)
            nodes = {**virtual.batch.nodes, "x": 5 * virtual.batch.nodes["x"] + 3}
            return replace(virtual, batch=replace(virtual.batch, nodes=nodes))

    both = gt.augmented_loss(model, batch, Shifted())
    shifted = batch.clone()
    shifted.x = 5 * shifted.x + 3
    alone = [gt.augmented_loss(model, each, ()) for each in (batch, shifted)]
    torch.testing.assert_close(both, alone[0] + alone[1])


def test_the_learning_rate_rises_and_falls() -> None:
    store = gt.load("motifs", graphs=24)
    recipe = replace(RECIPES["strong"], warmup=3)
    model = GraphClassifier.for_data(store, layers=1, **EVERYTHING)
    result = gt.fit(model, store, store, seed=0, **recipe.fitting(epochs=12, learning_rate=0.01))
    assert not result.stopped_early
    steps = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.01)
    rise = LinearLR(steps, start_factor=1 / 4, total_iters=3)
    oracle = SequentialLR(steps, [rise, CosineAnnealingLR(steps, T_max=9)], milestones=[3])
    for log in result.history:
        assert log.learning_rate == pytest.approx(steps.param_groups[0]["lr"])
        steps.step()
        oracle.step()
    # A short training warms up for a quarter of it.
    result = gt.fit(model, store, store, seed=0, **RECIPES["strong"].fitting(epochs=4))
    rates = [log.learning_rate / RECIPES["strong"].learning_rate for log in result.history]
    assert rates == pytest.approx([0.5, 1.0, 0.75, 0.25])


# ------------------------------------------------------------------ comparisons and after


def test_a_recipe_fills_what_is_not_given() -> None:
    strong, recipe = Settings.of("strong", "small"), RECIPES["strong"]
    assert (strong.epochs, strong.dropout) == (recipe.epochs, recipe.dropout)
    assert (strong.stop_patience, strong.patience_unit) == (recipe.epochs, "epochs")
    given = Settings.of("strong", "medium", epochs=9, readout="sum", hidden=16, ties=None)
    assert (given.epochs, given.stop_patience, given.batch_size) == (9, 9, 128)
    assert given.network() == recipe.network() | {"readout": "sum", "hidden": 16}
    assert Settings.of("paper", "small") == Settings()
    with pytest.raises(GraphTransplantError, match="`recipe` must be one of paper, strong; got"):
        Settings.of("stronger", "small")


def test_records_name_their_recipe_and_one_that_runs_to_its_end_is_not_advised_more_epochs() -> (
    None
):
    assert Settings.of("strong", "small").as_record("0.1.0")["recipe"] == "strong"
    # The best epoch of a cosine is one of the last.
    for recipe, advised in (("paper", True), ("strong", False)):
        trials = made_up("vanilla", PLAIN, settings={"recipe": recipe}, best_epoch=100)
        assert any("allow more" in note for note in Results(trials).notes) == advised
