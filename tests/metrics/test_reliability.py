"""M-Evolve's filter: prototypes, reliability and threshold against plain numpy, and what it costs.

The references follow the publication (Zhou et al. 2020, "Data filtration"), one graph at a time.
"""

from __future__ import annotations

import copy
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, global_mean_pool

import graph_transplant as gt
from graph_transplant.augment import CleanPass, ManifoldMixup, OriginalGraphs, ReliabilityFilter
from graph_transplant.augment.m_evolve import (
    class_prototypes,
    label_reliability,
    reliability_threshold,
)
from graph_transplant.data.targets import Loss
from graph_transplant.nn import evaluating
from graph_transplant.nn.adapter import as_predictor
from helpers.oracles import unchanged
from helpers.strategies import generator

# ------------------------------------------------------------------ references


def plain_prototypes(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    own = np.eye(p.shape[1])  # of a class without graphs
    return np.array([p[y == k].mean(axis=0) if (y == k).any() else own[k] for k in range(len(own))])


def plain_threshold(r: np.ndarray, right: np.ndarray) -> float:
    """The smallest of the r_i with the least Σ Φ[(θ - r_i) g_i] of all real numbers."""

    def disagreements(theta: float) -> int:
        return sum(
            (theta - each) * (1 if ok else -1) > 0 for each, ok in zip(r, right, strict=True)
        )

    ranked = sorted(set(r.tolist()))
    between = [(a + b) / 2 for a, b in pairwise(ranked)]
    best = min(map(disagreements, [ranked[0] - 1, *ranked, *between, ranked[-1] + 1]))
    return next(each for each in ranked if disagreements(each) == best)


# ------------------------------------------------------------------ the parts


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.integers(0, 12).map(lambda k: k / 12), st.booleans()), min_size=1, max_size=25
    )
)
def test_no_threshold_has_fewer_disagreements(cases: list[tuple[float, bool]]) -> None:
    r, right = (np.array(column) for column in zip(*cases, strict=True))
    theta = reliability_threshold(torch.from_numpy(r), torch.from_numpy(right))
    assert float(theta) == plain_threshold(r, right)


@given(st.integers(2, 5), st.integers(1, 12), st.integers(0, 2**31))
def test_prototypes_and_reliability_are_those_of_the_publication(
    classes: int, graphs: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    p, t = (softmax(random.normal(size=(graphs, classes)), axis=1) for _ in range(2))
    y = random.integers(classes, size=graphs)
    q = class_prototypes(torch.from_numpy(p), torch.from_numpy(y))
    np.testing.assert_allclose(q.numpy(), plain_prototypes(p, y), atol=1e-12)
    for targets in (t, np.eye(classes)[y]):
        found = label_reliability(torch.from_numpy(p), torch.from_numpy(targets), q)
        np.testing.assert_allclose(
            found, np.einsum("ic,ik,kc->i", p, targets, q.numpy()), atol=1e-12
        )


# ------------------------------------------------------------------ the whole filter


STORE = gt.load("motifs", graphs=90)
TRAIN, VALIDATION = STORE.subset(range(60)), STORE.subset(range(60, 90))


@cache
def trained() -> gt.GraphClassifier:
    """A model whose head is trained a little: right about some graphs; nobody changes it."""
    made = gt.GraphClassifier.for_data(TRAIN, hidden=16, layers=2, dropout=0.2, seed=3)
    batch = TRAIN.batch(range(len(TRAIN)))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        embedded = made.run(batch).graphs.detach()
        optimiser = torch.optim.Adam(made.head.parameters(), lr=0.05)
        for _ in range(150):
            optimiser.zero_grad()
            nn.functional.cross_entropy(made.classify(embedded), batch.y).backward()
            optimiser.step()
    made.zero_grad()
    return made.train()


def plain_judgement(model: nn.Module) -> tuple[np.ndarray, float]:
    """Prototypes and threshold on the validation graphs."""
    batch = VALIDATION.batch(range(len(VALIDATION)))
    with evaluating(model):
        p = softmax(as_predictor(model).run(batch).logits.double().numpy(), axis=1)
    y = batch.y.numpy()
    q = plain_prototypes(p, y)
    return q, plain_threshold((p * q[y]).sum(1), p.argmax(1) == y)


def clean_pass(model: nn.Module, indices: range) -> CleanPass:
    batch = TRAIN.batch(indices)
    return CleanPass(batch, torch.eye(6)[batch.y], as_predictor(model).run(batch))


def filtered(inner: gt.Augmentation, model: nn.Module | None = None) -> ReliabilityFilter:
    """A filter after its first epoch."""
    made = ReliabilityFilter(inner)
    made.after_epoch(model or trained(), VALIDATION)
    return made


@pytest.mark.parametrize(
    "inner",
    [OriginalGraphs(), gt.GraphTransplant(), ManifoldMixup()],
    ids=lambda a: type(a).__name__,
)
def test_it_filters_exactly_what_its_threshold_says(inner: gt.Augmentation) -> None:
    q, theta = plain_judgement(trained())
    augmentation = ReliabilityFilter(inner)
    measured = augmentation.after_epoch(trained(), VALIDATION)
    assert measured["label_threshold"] == pytest.approx(theta, abs=1e-6)
    np.testing.assert_allclose(augmentation.prototypes.numpy(), q, atol=1e-6)
    kept = []
    for seed in range(4):
        torch.manual_seed(seed)  # of dropout, which saliency and embeddings depend on
        clean = clean_pass(trained(), range(60))
        virtual, same = (
            made(clean, model=trained(), generator=generator(seed))
            for made in (augmentation, inner)
        )
        assert type(virtual) is type(same)
        with evaluating(trained()):
            p = softmax(same.outputs(trained())[0].double().numpy(), axis=1)
            losses = Loss()(virtual.outputs(trained())[0], virtual.targets)
            loss = float(virtual.losses(trained(), Loss())[0])
        reliability = (p * (same.targets.double().numpy() @ q)).sum(1)
        clear = np.abs(reliability - theta) > 1e-5  # rounding does not decide
        assert clear.mean() > 0.9
        assert (virtual.weight.numpy()[clear] == (reliability > theta)[clear]).all()
        assert loss == pytest.approx(float((losses * virtual.weight).mean()), rel=1e-5)
        kept += virtual.weight.tolist()
    assert 0 < np.mean(kept) < 1


def test_a_sample_at_the_threshold_is_dropped() -> None:
    # A model that says the same of every graph: all reliabilities equal the threshold.
    model = copy.deepcopy(trained())
    with torch.no_grad():
        model.head[-1].weight.zero_()
        model.head[-1].bias.zero_()
    augmentation = filtered(OriginalGraphs(), model)
    clean = clean_pass(model, range(10))
    assert augmentation(clean, model=model, generator=None).weight.tolist() == [0.0] * 10
    augmentation.threshold = augmentation.threshold - 1e-9
    assert augmentation(clean, model=model, generator=None).weight.tolist() == [1.0] * 10


def test_kept_share_is_of_the_epoch_just_trained() -> None:
    augmentation = ReliabilityFilter(OriginalGraphs())
    assert "kept_share" not in augmentation.after_epoch(trained(), VALIDATION)
    kept = []
    for start in (0, 20, 40):
        clean = clean_pass(trained(), range(start, start + 20))
        kept += augmentation(clean, model=trained(), generator=None).weight.tolist()
    measured = augmentation.after_epoch(trained(), VALIDATION)
    assert measured["kept_share"] == pytest.approx(np.mean(kept))
    assert "kept_share" not in augmentation.after_epoch(trained(), VALIDATION)


def test_threshold_and_prototypes_are_found_anew_after_each_epoch_and_training() -> None:
    augmentation = ReliabilityFilter(OriginalGraphs())
    curves = []
    for _ in range(2):
        model = gt.GraphClassifier.for_data(TRAIN, hidden=8, layers=2, seed=0)
        result = gt.fit(model, TRAIN, VALIDATION, augmentation, seed=0, epochs=3, batch_size=20)
        curves.append([(log.train_loss, log.measurements) for log in result.history])
    assert curves[0] == curves[1]
    assert curves[0][0][1]["kept_share"] == 1.0
    assert len({measured["label_threshold"] for _, measured in curves[0]}) == 3


class Foreign(nn.Module):
    """A model with batch normalisation and dropout, a part of it always in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = GCNConv(1, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)
        self.out = nn.Linear(8, 6)

    def forward(self, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.norm(self.conv(torch.ones(batch.numel(), 1), edge_index))
        return self.out(self.drop(global_mean_pool(x, batch)))


@pytest.mark.parametrize("foreign", [True, False])
def test_the_model_judges_in_evaluation_mode_and_is_left_as_it_was(foreign: bool) -> None:
    torch.manual_seed(0)
    model = Foreign().train() if foreign else copy.deepcopy(trained())
    if foreign:
        model.drop.eval()
    clean = clean_pass(model, range(30))
    augmentation = ReliabilityFilter(OriginalGraphs())
    with unchanged(model):
        augmentation.after_epoch(model, VALIDATION)
        weights = [
            augmentation(clean, model=as_predictor(model), generator=generator()).weight
            for _ in range(2)
        ]
    assert torch.equal(*weights)
    _, theta = plain_judgement(model)
    assert float(augmentation.threshold) == pytest.approx(theta, abs=1e-6)
    gt.augmented_loss(model, TRAIN.batch(range(20)), augmentation).backward()
    assert 0 <= augmentation.after_epoch(model, VALIDATION)["kept_share"] <= 1
