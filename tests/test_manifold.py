"""Manifold mixup: held against mixtures written out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from scipy.stats import kstest
from torch import Tensor, nn
from torch_geometric.data import Batch

import graph_transplant as gt
from graph_transplant.augment import ManifoldMixup, Pairing
from graph_transplant.augment.manifold import MixedEmbeddings
from graph_transplant.errors import GraphTransplantError
from graph_transplant.saliency import as_predictor
from strategies import batches, random_batch, seeds


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def classifier(outputs: int, **settings: object) -> gt.GraphClassifier:
    options = {"layers": 2, "hidden": 8, "seed": 0, **settings}
    return gt.GraphClassifier(3, outputs, **options)  # type: ignore[arg-type]


def mixed(
    model: gt.GraphClassifier,
    batch: Batch,
    targets: Tensor | None = None,
    *,
    task: str = "multiclass",
    seed: int = 0,
    **settings: object,
) -> tuple[gt.CleanPass, MixedEmbeddings]:
    targets = torch.eye(batch.num_graphs) if targets is None else targets
    clean = gt.CleanPass(batch, targets, model(batch), task)
    mixup = ManifoldMixup(**settings)  # type: ignore[arg-type]
    return clean, mixup(clean, model=model, generator=generator(seed))


# ------------------------------------------------------------------ by hand


def test_logits_are_those_of_the_weighted_node_mean() -> None:
    # With mean readout a mixed embedding is a weighted mean of the nodes of both graphs: λ/n for
    # the n nodes of the source, (1 - λ)/m for the m nodes of the destination.
    batch = random_batch(generator(3), graphs=5)
    model = classifier(5, dropout=0.5).eval()
    clean, virtual = mixed(model, batch, seed=1)
    nodes = clean.prediction.nodes.detach().double().numpy()
    first, second = (m for m in model.head if isinstance(m, nn.Linear))
    for i in range(5):
        source, weight = int(virtual.source_of[i]), float(virtual.label_weight[i])
        mixture = np.zeros(8)
        for v, graph in enumerate(batch.batch.tolist()):
            if graph == source:
                mixture += weight * nodes[v] / int((batch.batch == source).sum())
            if graph == i:
                mixture += (1 - weight) * nodes[v] / int((batch.batch == i).sum())
        hidden = first.weight.detach().double().numpy() @ mixture + first.bias.detach().numpy()
        output = second.weight.detach().double().numpy() @ np.maximum(hidden, 0)
        output += second.bias.detach().numpy()
        given = virtual.logits(model)[i].detach().numpy()
        np.testing.assert_allclose(given, output, rtol=1e-4, atol=1e-6)
        row = np.zeros(5)
        row[source] += weight
        row[i] += 1 - weight
        np.testing.assert_allclose(virtual.targets[i].numpy(), row, atol=1e-6)
    assert virtual.source_of.tolist() != list(range(5))


def test_two_graphs_with_a_linear_head_mix_linearly() -> None:
    # A head without its rectifier is affine: the logits are then the mixture of the clean ones.
    batch = random_batch(generator(5), graphs=2)
    model = classifier(2, dropout=0.0)
    model.head = nn.Sequential(nn.Linear(8, 2))
    clean, virtual = mixed(model, batch, pairing="cross-class")
    assert virtual.source_of.tolist() == [1, 0]
    weight = virtual.label_weight.unsqueeze(1)
    expected = weight * clean.prediction.logits.flip(0) + (1 - weight) * clean.prediction.logits
    torch.testing.assert_close(virtual.logits(model), expected)


def test_gradient_reaches_all_layers_from_both_graphs() -> None:
    batch = random_batch(generator(7), graphs=4, largest=9)
    model = classifier(4, dropout=0.0)
    clean, virtual = mixed(model, batch, pairing="cross-class")
    nodes = clean.prediction.nodes
    (reach,) = torch.autograd.grad(virtual.logits(model)[0].sum(), nodes, retain_graph=True)
    touched = {int(batch.batch[v]) for v in range(len(nodes)) if bool(reach[v].any())}
    assert touched == {0, int(virtual.source_of[0])}
    virtual.loss(model, "multiclass").backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.any()), name


def test_gradient_is_that_of_the_mixture_written_out() -> None:
    batch = random_batch(generator(9), graphs=4)
    model = classifier(4, dropout=0.0)
    _, virtual = mixed(model, batch)
    virtual.loss(model, "multiclass").backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    total = torch.zeros(())
    graphs = model(batch).graphs
    for i in range(4):
        source, weight = int(virtual.source_of[i]), virtual.label_weight[i]
        logits = model.head(weight * graphs[source] + (1 - weight) * graphs[i])
        logs = logits.log_softmax(0)
        total = total - (weight * logs[source] + (1 - weight) * logs[i]) / 4
    total.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)


# ------------------------------------------------------------------ weights and pairs


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_weights_are_drawn_from_the_beta_distribution(alpha: float) -> None:
    batch = random_batch(generator(1), graphs=400, largest=1)
    _, virtual = mixed(classifier(400), batch, alpha=alpha)
    # 400 draws: the test fails for a true sampler once in a thousand seeds; the seed is fixed.
    assert kstest(virtual.label_weight.double().numpy(), "beta", (alpha, alpha)).pvalue > 1e-3
    assert len(set(virtual.label_weight.tolist())) > 390  # one per pair, not one per batch


def test_default_is_that_of_the_paper() -> None:
    assert ManifoldMixup().alpha == 2.0
    assert ManifoldMixup().pairing.policy == "random"


@pytest.mark.parametrize("policy", ["same-class", "cross-class"])
def test_pairing_is_by_class(policy: str) -> None:
    batch = random_batch(generator(2), graphs=12)
    labels = torch.arange(12) % 3
    for given_as in (policy, Pairing(policy)):
        _, virtual = mixed(classifier(3), batch, torch.eye(3)[labels], pairing=given_as)
        same = labels == labels[virtual.source_of]
        assert bool(same.all()) if policy == "same-class" else not bool(same.any())


@given(batches(with_x=True, max_graphs=5), seeds())
def test_any_batch_mixes(batch: Batch, seed: int) -> None:
    graphs = batch.num_graphs
    model = classifier(graphs)
    _, virtual = mixed(model, batch, seed=seed)
    assert virtual.graphs.shape == (graphs, 8)
    assert sorted(virtual.source_of.tolist()) == list(range(graphs))
    torch.testing.assert_close(virtual.targets.sum(1), torch.ones(graphs))
    assert bool(((virtual.label_weight >= 0) & (virtual.label_weight <= 1)).all())
    assert bool(torch.isfinite(virtual.loss(model, "multiclass").detach()))
    _, again = mixed(model, batch, seed=seed)
    assert torch.equal(virtual.graphs, again.graphs)


def test_missing_labels_stay_missing() -> None:
    batch = random_batch(generator(4), graphs=6)
    targets = torch.rand(6, 2, generator=generator(1)).round()
    targets[2, 1] = float("nan")
    model = classifier(2, task="multilabel")
    _, virtual = mixed(model, batch, targets, task="multilabel", seed=2)
    for i in range(6):
        for column in range(2):
            pair = targets[i, column], targets[virtual.source_of[i], column]
            assert bool(virtual.targets[i, column].isnan()) == any(bool(t.isnan()) for t in pair)
    assert bool(torch.isfinite(virtual.loss(model, "multilabel").detach()))


def test_values_of_a_regression_mix() -> None:
    batch = random_batch(generator(4), graphs=4)
    targets = torch.tensor([[0.0], [10.0], [100.0], [-5.0]])
    model = classifier(1, task="regression")
    _, virtual = mixed(model, batch, targets, task="regression")
    weight = virtual.label_weight.unsqueeze(1)
    expected = weight * targets[virtual.source_of] + (1 - weight) * targets
    torch.testing.assert_close(virtual.targets, expected)
    with pytest.raises(GraphTransplantError, match="needs classes, but the task is regression"):
        mixed(model, batch, targets, task="regression", pairing="same-class")


# ------------------------------------------------------------------ what is refused


class Foreign(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 4)

    def forward(self, x: Tensor, batch: Tensor, batch_size: int) -> Tensor:
        return self.out(x.new_zeros(batch_size, 3).index_add(0, batch, x))


def test_models_without_a_known_head_are_refused() -> None:
    batch = random_batch(generator(4), graphs=4)
    model = as_predictor(Foreign())
    message = r"known only in a graph_transplant\.GraphClassifier; got Foreign"
    with pytest.raises(GraphTransplantError, match=message):
        ManifoldMixup().check(model, gt.load("motifs").subset(range(4)))
    clean = gt.CleanPass(batch, torch.eye(4), model(batch))
    with pytest.raises(GraphTransplantError, match=message):
        ManifoldMixup()(clean, model=model, generator=generator())


def test_check_lets_pass_what_can_be_served() -> None:
    store = gt.load("motifs").subset(range(8))
    model = gt.GraphClassifier.for_data(store, hidden=8)
    ManifoldMixup(pairing="minority").check(model, store)
    graphs = store.batch(range(8)).to_data_list()
    for graph in graphs:
        graph.y = torch.tensor([0.5])
    values = gt.GraphStore.from_pyg(graphs, task="regression")
    ManifoldMixup().check(model, values)
    with pytest.raises(GraphTransplantError, match="needs classes"):
        ManifoldMixup(pairing="minority").check(model, values)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_alpha_must_be_positive(alpha: float) -> None:
    with pytest.raises(GraphTransplantError, match="`alpha` must be positive and finite, got"):
        ManifoldMixup(alpha)


def test_unknown_pairing_lists_the_choices() -> None:
    with pytest.raises(GraphTransplantError, match="same-class"):
        ManifoldMixup(pairing="samclass")
