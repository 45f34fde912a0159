"""Manifold mixup against mixtures written out by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from scipy.stats import kstest
from torch import Tensor
from torch_geometric.data import Batch

import graph_transplant as gt
from graph_transplant.augment.base import CleanPass
from graph_transplant.augment.manifold import ManifoldMixup, MixedEmbeddings
from graph_transplant.data import GraphBatch
from graph_transplant.data.targets import Loss
from helpers.strategies import batches, classifier, generator, random_batch, seeds


def mix(
    model: gt.GraphClassifier,
    batch: GraphBatch,
    targets: Tensor | None = None,
    *,
    task: str = "multiclass",
    seed: int = 0,
    **settings: object,
) -> tuple[CleanPass, MixedEmbeddings]:
    targets = torch.eye(batch.num_graphs) if targets is None else targets
    clean = CleanPass(batch, targets, model.run(batch), Loss(task))
    mixup = ManifoldMixup(**settings)  # type: ignore[arg-type]
    return clean, mixup(clean, model=model, generator=generator(seed))


@given(batches(with_x=True, max_graphs=5), seeds())
def test_logits_targets_and_gradients_are_those_written_out(data: Batch, seed: int) -> None:
    batch = GraphBatch.from_pyg(data)
    graphs = batch.num_graphs
    model = classifier(graphs)
    _, virtual = mix(model, batch, seed=seed)
    assert sorted(virtual.source_of.tolist()) == list(range(graphs))
    virtual.losses(model, Loss())[0].backward()
    found = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    nodes, expected = model.run(batch).nodes, []
    for i in range(graphs):
        source, weight = int(virtual.source_of[i]), virtual.label_weight[i]
        # With mean readout a mixed embedding is a weighted mean of the nodes of both graphs.
        one, other = (nodes[batch.batch == g].mean(0) for g in (i, source))
        expected.append(model.head(weight * other + (1 - weight) * one))
        row = torch.zeros(graphs)
        row[source] += weight
        row[i] += 1 - weight
        torch.testing.assert_close(virtual.targets[i], row)
    logits = torch.stack(expected)
    torch.testing.assert_close(virtual.outputs(model)[0], logits, rtol=1e-4, atol=1e-5)
    (-(virtual.targets * logits.log_softmax(1)).sum() / graphs).backward()
    for gradient, parameter in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("alpha", [None, 0.5])
def test_weights_are_drawn_from_the_beta_distribution(alpha: float | None) -> None:
    batch = GraphBatch.from_pyg(random_batch(generator(1), graphs=400, largest=1))
    settings = {} if alpha is None else {"alpha": alpha}
    _, virtual = mix(classifier(400), batch, **settings)
    drawn, alpha = virtual.label_weight.double().numpy(), alpha or 2.0  # the paper's
    assert kstest(drawn, "beta", (alpha, alpha)).pvalue > 1e-4
    assert len(set(drawn)) > 390  # one for each pair
