"""M-Evolve's filter: prototypes, reliability and threshold against plain numpy, and what it costs.

The references follow the publication (Zhou et al. 2020, "Data filtration"), one graph at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, global_mean_pool

import graph_transplant as gt
from graph_transplant.augment import (
    LabelSmoothing,
    ManifoldMixup,
    OneOf,
    OriginalGraphs,
    ReliabilityFilter,
    Sequential,
)
from graph_transplant.augment.evolve import (
    class_prototypes,
    label_reliability,
    reliability_threshold,
)
from graph_transplant.errors import DataError
from graph_transplant.graphs import GraphStore
from graph_transplant.nn import evaluating
from graph_transplant.saliency import as_predictor
from strategies import random_batch


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ------------------------------------------------------------------ references


def plain_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def plain_prototypes(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    rows = []
    for k in range(p.shape[1]):
        mine = [p[i] for i in range(len(p)) if y[i] == k]
        rows.append(sum(mine) / len(mine) if mine else np.eye(p.shape[1])[k])
    return np.array(rows)


def disagreements(theta: float, r: np.ndarray, right: np.ndarray) -> int:
    """Σ Φ[(θ - r_i) g_i]."""
    return sum((theta - r_i) * (1 if ok else -1) > 0 for r_i, ok in zip(r, right, strict=True))


def thresholds_to_try(r: np.ndarray) -> list[float]:
    """All r_i, a number between any two, and both ends: one in every piece of the real line."""
    ranked = sorted(set(r.tolist()))
    between = [(a + b) / 2 for a, b in pairwise(ranked)]
    return [ranked[0] - 1, *ranked, *between, ranked[-1] + 1]


# ------------------------------------------------------------------ the parts


RELIABILITIES = st.lists(
    st.tuples(st.integers(0, 12).map(lambda k: k / 12), st.booleans()), min_size=1, max_size=25
)


@settings(max_examples=300)
@given(RELIABILITIES)
def test_no_threshold_has_fewer_disagreements(cases: list[tuple[float, bool]]) -> None:
    r, right = (np.array(column) for column in zip(*cases, strict=True))
    theta = float(reliability_threshold(torch.from_numpy(r), torch.from_numpy(right)))
    best = min(disagreements(other, r, right) for other in thresholds_to_try(r))
    assert disagreements(theta, r, right) == best
    # Of several r_i as good, the smallest.
    assert theta == min(r_i for r_i in r if disagreements(r_i, r, right) == best)


@pytest.mark.parametrize(
    ("r", "right", "theta"),
    [
        ([0.2, 0.4, 0.6, 0.8], [True] * 4, 0.2),  # nothing to filter: all above the smallest pass
        ([0.2, 0.4, 0.6, 0.8], [False] * 4, 0.8),  # nothing passes that is not surer than all
        ([0.2, 0.4, 0.6, 0.8], [False, False, True, True], 0.4),
        ([0.8, 0.2, 0.6, 0.4], [True, False, True, False], 0.4),
        ([0.2, 0.4, 0.6, 0.8], [True, False, True, True], 0.2),  # as good as 0.4: the smaller one
        ([0.5, 0.5, 0.5], [True, False, True], 0.5),
        ([0.3], [False], 0.3),
    ],
)
def test_threshold_by_hand(r: list[float], right: list[bool], theta: float) -> None:
    found = reliability_threshold(torch.tensor(r, dtype=torch.double), torch.tensor(right))
    assert float(found) == theta


@given(st.integers(2, 5), st.integers(1, 12), st.integers(0, 2**31))
def test_prototypes_and_reliability_are_those_of_the_publication(
    classes: int, graphs: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    p = plain_softmax(random.normal(size=(graphs, classes)))
    y = random.integers(classes, size=graphs)
    expected = plain_prototypes(p, y)
    prototypes = class_prototypes(torch.from_numpy(p), torch.from_numpy(y))
    np.testing.assert_allclose(prototypes.numpy(), expected, atol=1e-12)
    t = plain_softmax(random.normal(size=(graphs, classes)))
    found = label_reliability(torch.from_numpy(p), torch.from_numpy(t), prototypes)
    for i in range(graphs):
        by_hand = sum(
            p[i, c] * t[i, k] * expected[k, c] for k in range(classes) for c in range(classes)
        )
        assert float(found[i]) == pytest.approx(by_hand, abs=1e-12)
    hard = label_reliability(torch.from_numpy(p), torch.eye(classes)[y], prototypes)
    for i in range(graphs):
        assert float(hard[i]) == pytest.approx(p[i] @ expected[y[i]], abs=1e-12)


def test_a_class_without_graphs_has_its_one_hot_vector() -> None:
    p = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]], dtype=torch.double)
    prototypes = class_prototypes(p, torch.tensor([2, 2]))
    expected = torch.tensor([[1, 0, 0], [0, 1, 0], [0.3, 0.45, 0.25]], dtype=torch.double)
    torch.testing.assert_close(prototypes, expected)


# ------------------------------------------------------------------ the whole filter


@cache
def graphs() -> tuple[GraphStore, GraphStore]:
    store = gt.load("motifs", graphs=90)
    return store.subset(range(60)), store.subset(range(60, 90))


def train() -> GraphStore:
    return graphs()[0]


def validation() -> GraphStore:
    return graphs()[1]


@cache
def trained() -> gt.GraphClassifier:
    """A model whose head is trained a little: right about some graphs; nobody changes it."""
    made = gt.GraphClassifier.for_data(train(), hidden=16, layers=2, dropout=0.2, seed=3)
    batch = train().batch(range(len(train())))
    embedded = made(batch).graphs.detach()
    optimiser = torch.optim.Adam(made.head.parameters(), lr=0.05)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for _ in range(150):
            optimiser.zero_grad()
            nn.functional.cross_entropy(made.head(embedded), batch.y).backward()
            optimiser.step()
    made.zero_grad()
    return made.train()


def logits_of(model: nn.Module, batch: Batch) -> np.ndarray:
    with evaluating(model):
        return as_predictor(model)(batch).logits.double().numpy()


def clean_pass(model: gt.GraphClassifier, batch: Batch) -> gt.CleanPass:
    return gt.CleanPass(batch, torch.eye(model.num_outputs)[batch.y], model(batch))


@pytest.mark.parametrize(
    "inner",
    [OriginalGraphs(), gt.GraphTransplant(), ManifoldMixup()],
    ids=lambda a: type(a).__name__,
)
def test_it_filters_exactly_what_its_threshold_says(inner: gt.Augmentation) -> None:
    p = plain_softmax(logits_of(trained(), validation().batch(range(len(validation())))))
    y = validation().labels.numpy()
    q = plain_prototypes(p, y)
    r = np.array([p[i] @ q[y[i]] for i in range(len(p))])
    right = p.argmax(axis=1) == y
    assert 0 < right.sum() < len(right)
    best = min(disagreements(theta, r, right) for theta in thresholds_to_try(r))
    theta = min(r_i for r_i in r if disagreements(r_i, r, right) == best)

    augmentation = ReliabilityFilter(inner)
    measured = augmentation.after_epoch(trained(), validation())
    assert measured["label_threshold"] == pytest.approx(theta, abs=1e-6)
    np.testing.assert_allclose(augmentation.prototypes.numpy(), q, atol=1e-6)

    batch = train().batch(range(len(train())))
    kept = []
    for seed in range(4):
        torch.manual_seed(seed)  # of dropout, which saliency and embeddings depend on
        clean = clean_pass(trained(), batch)
        virtual = augmentation(clean, model=trained(), generator=generator(seed))
        same = inner(clean, model=trained(), generator=generator(seed))
        assert type(virtual) is type(same)
        assert torch.equal(virtual.targets, same.targets)
        with evaluating(trained()):
            sampled = plain_softmax(same.logits(trained()).double().numpy())
        reliability = np.array(
            [sampled[i] @ (same.targets[i].double().numpy() @ q) for i in range(len(sampled))]
        )
        # Where a sample lies so near the threshold that rounding decides, either is right.
        clear = np.abs(reliability - theta) > 1e-5
        assert clear.mean() > 0.9
        assert virtual.weight is not None
        weight = virtual.weight.numpy()
        assert weight[clear].tolist() == (reliability > theta)[clear].astype(float).tolist()
        kept += weight.tolist()
    assert 0 < np.mean(kept) < 1


def test_dropped_samples_add_nothing_to_the_loss() -> None:
    augmentation = ReliabilityFilter(OriginalGraphs())
    augmentation.after_epoch(trained(), validation())
    batch = train().batch(range(len(train())))
    virtual = augmentation(clean_pass(trained(), batch), model=trained(), generator=generator())
    assert virtual.weight is not None
    with evaluating(trained()):
        loss = float(virtual.loss(trained(), "multiclass"))
        each = nn.functional.cross_entropy(trained()(batch).logits, batch.y, reduction="none")
    expected = sum(float(each[i]) for i in range(len(each)) if virtual.weight[i]) / len(each)
    assert loss == pytest.approx(expected, rel=1e-5)


def test_before_the_first_epoch_everything_passes() -> None:
    calls: list[int] = []
    model = copy.deepcopy(trained())
    batch = train().batch(range(20))
    clean = clean_pass(model, batch)
    model.convolutions[0].register_forward_pre_hook(lambda *_: calls.append(1))
    augmentation = ReliabilityFilter(OriginalGraphs())
    virtual = augmentation(clean, model=model, generator=generator())
    assert virtual.weight is not None
    assert virtual.weight.tolist() == [1.0] * 20
    assert calls == []  # nobody asks the model before there is a threshold
    augmentation.after_epoch(model, validation())
    assert calls == [1]
    judged = augmentation(clean, model=model, generator=generator())
    assert calls == [1, 1]
    judged.loss(model, "multiclass")
    assert calls == [1, 1]  # the pass that judged the graphs is the one they are trained by


def test_a_sample_at_the_threshold_is_dropped() -> None:
    # A model that says the same of every graph: all reliabilities equal the threshold.
    model = copy.deepcopy(trained())
    with torch.no_grad():
        model.head[-1].weight.zero_()
        model.head[-1].bias.zero_()
    augmentation = ReliabilityFilter(OriginalGraphs())
    measured = augmentation.after_epoch(model, validation())
    assert measured["label_threshold"] == pytest.approx(1 / 6)
    clean = clean_pass(model, train().batch(range(10)))
    virtual = augmentation(clean, model=model, generator=generator())
    assert virtual.weight is not None
    assert virtual.weight.tolist() == [0.0] * 10
    augmentation.threshold = augmentation.threshold - 1e-9
    virtual = augmentation(clean, model=model, generator=generator())
    assert virtual.weight is not None
    assert virtual.weight.tolist() == [1.0] * 10


class Weighted(gt.Augmentation):
    """The original graphs with weights, a loss and hooks of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.tensor(2.0))
        self.calls: list[str] = []

    def forward(self, clean, *, model, generator) -> gt.VirtualGraphs:  # type: ignore[no-untyped-def]
        weight = torch.arange(len(clean.targets)) + 0.5
        virtual = gt.VirtualGraphs(batch=clean.batch, targets=clean.targets)
        return replace(virtual, weight=weight, auxiliary_loss=self.own.square())

    def check(self, model, data) -> None:  # type: ignore[no-untyped-def]
        self.calls.append("check")

    def prepare(self, train, generator) -> None:  # type: ignore[no-untyped-def]
        self.calls.append("prepare")

    def after_epoch(self, model, validation) -> dict[str, float]:  # type: ignore[no-untyped-def]
        self.calls.append("after_epoch")
        return {"own": 7.0}


def test_weights_losses_hooks_and_parameters_of_the_filtered_one_stay() -> None:
    inner = Weighted()
    augmentation = ReliabilityFilter(inner)
    augmentation.check(trained(), train())
    augmentation.prepare(train(), generator())
    measured = augmentation.after_epoch(trained(), validation())
    assert inner.calls == ["check", "prepare", "after_epoch"]
    assert measured["own"] == 7.0
    assert [id(p) for p in augmentation.parameters()] == [id(inner.own)]
    clean = clean_pass(trained(), train().batch(range(40)))
    virtual = augmentation(clean, model=trained(), generator=generator())
    plain = ReliabilityFilter(OriginalGraphs())
    plain.after_epoch(trained(), validation())
    marks = plain(clean, model=trained(), generator=generator()).weight
    assert virtual.weight is not None
    assert marks is not None
    assert torch.equal(virtual.weight, marks * (torch.arange(40) + 0.5))
    assert virtual.auxiliary_loss is not None
    assert float(virtual.auxiliary_loss.detach()) == 4.0


def test_kept_share_is_of_the_epoch_just_trained() -> None:
    augmentation = ReliabilityFilter(OriginalGraphs())
    assert "kept_share" not in augmentation.after_epoch(
        trained(), validation()
    )  # nothing was filtered
    kept = []
    for start in (0, 20, 40):
        clean = clean_pass(trained(), train().batch(range(start, start + 20)))
        weight = augmentation(clean, model=trained(), generator=generator()).weight
        assert weight is not None
        kept += weight.tolist()
    measured = augmentation.after_epoch(trained(), validation())
    assert measured["kept_share"] == pytest.approx(np.mean(kept))
    assert 0 < measured["kept_share"] < 1
    assert "kept_share" not in augmentation.after_epoch(trained(), validation())  # counted anew


def test_threshold_and_prototypes_are_refreshed_after_each_epoch() -> None:
    model = gt.GraphClassifier.for_data(train(), hidden=16, layers=2, seed=1)
    augmentation = ReliabilityFilter(OriginalGraphs())
    found = []

    def look(_log: gt.EpochLog) -> None:
        found.append((float(augmentation.threshold), augmentation.prototypes.clone()))

    result = gt.fit(
        model,
        train(),
        validation(),
        augmentation,
        seed=0,
        epochs=3,
        batch_size=20,
        callbacks=[look],
    )
    logs = [log.measurements for log in result.history]
    assert [log["label_threshold"] for log in logs] == [theta for theta, _ in found]
    assert logs[0]["kept_share"] == 1.0
    assert len({theta for theta, _ in found}) == 3
    assert not torch.equal(found[0][1], found[1][1])


# ------------------------------------------------------------------ the model stays as it is


class Normalised(nn.Module):
    """A foreign model with batch normalisation and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.drop = nn.Dropout(0.5)
        self.out = nn.Linear(2, 6)

    def forward(self, edge_index: Tensor, batch: Tensor, batch_size: int) -> Tensor:
        degree = torch.bincount(edge_index[0], minlength=batch.numel()).float()
        sums = torch.zeros(batch_size, 2).index_add(
            0, batch, torch.stack((degree, torch.ones_like(degree)), dim=1)
        )
        return self.out(self.drop(self.norm(sums)))


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    state, rng = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    modes = [part.training for part in module.modules()]
    yield
    assert all(torch.equal(state[key], value) for key, value in module.state_dict().items())
    assert [part.training for part in module.modules()] == modes
    assert all(p.grad is None for p in module.parameters())
    assert torch.equal(torch.get_rng_state(), rng)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("foreign", [True, False])
def test_the_model_is_judged_in_evaluation_mode_and_left_as_it_was(
    training: bool, foreign: bool
) -> None:
    torch.manual_seed(0)
    model = Normalised() if foreign else copy.deepcopy(trained())
    model.zero_grad()
    model.train(training)
    if foreign:
        model.drop.eval()  # a part in another mode than the whole comes back as it was
    predictor = as_predictor(model)
    augmentation = ReliabilityFilter(OriginalGraphs())
    batch = train().batch(range(30))
    clean = gt.CleanPass(batch, torch.eye(6)[batch.y], predictor(batch))
    with unchanged(model):
        augmentation.after_epoch(predictor, validation())
        first = augmentation(clean, model=predictor, generator=generator()).weight
        again = augmentation(clean, model=predictor, generator=generator()).weight
    assert first is not None
    assert torch.equal(first, again)
    p = plain_softmax(logits_of(model, batch))
    q = augmentation.prototypes.numpy()
    r = np.array([p[i] @ q[int(batch.y[i])] for i in range(30)])
    assert first.tolist() == (r > float(augmentation.threshold)).astype(float).tolist()
    assert not first.requires_grad


def test_soft_edges_keep_their_gradient_through_the_filter() -> None:
    # The judging pass runs without gradients on the very batch that is trained on afterwards.
    torch.manual_seed(0)
    inner = gt.GraphTransplant("predict", embedding_size=16)
    augmentation = ReliabilityFilter(inner)
    augmentation.after_epoch(trained(), validation())
    model = copy.deepcopy(trained()).eval()  # without dropout
    clean = clean_pass(model, train().batch(range(30)))
    filtered = augmentation(clean, model=model, generator=generator(2))
    plain = inner(clean, model=model, generator=generator(2))
    assert filtered.weight is not None
    assert 0 < float(filtered.weight.sum()) < 30
    weights = [*inner.parameters(), *model.parameters()]
    ours = torch.autograd.grad(
        filtered.loss(model, "multiclass"), weights, retain_graph=True, materialize_grads=True
    )
    losses = nn.functional.cross_entropy(plain.logits(model), plain.targets, reduction="none")
    theirs = torch.autograd.grad((losses * filtered.weight).mean(), weights, materialize_grads=True)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-6, rtol=1e-4)
    assert any(bool(gradient.any()) for gradient in ours[: len(list(inner.parameters()))])


# ------------------------------------------------------------------ state, composition, refusals


def test_state_is_saved_and_loaded() -> None:
    augmentation = ReliabilityFilter(gt.GraphTransplant("predict", embedding_size=16))
    augmentation.after_epoch(trained(), validation())
    state = augmentation.state_dict()
    assert {"threshold", "prototypes"} <= set(state)
    other = ReliabilityFilter(gt.GraphTransplant("predict", embedding_size=16))
    other.load_state_dict(copy.deepcopy(state))
    assert torch.equal(other.threshold, augmentation.threshold)
    assert torch.equal(other.prototypes, augmentation.prototypes)
    clean = clean_pass(trained(), train().batch(range(30)))
    results = [
        a(clean, model=trained(), generator=generator(1)).weight for a in (augmentation, other)
    ]
    assert torch.equal(*results)
    fresh = ReliabilityFilter(gt.GraphTransplant("predict", embedding_size=16))
    augmentation.load_state_dict(fresh.state_dict())  # back to before the first epoch
    assert (
        augmentation(clean, model=trained(), generator=generator(1)).weight.tolist() == [1.0] * 30
    )


@pytest.mark.parametrize(
    "composed",
    [
        ReliabilityFilter(OneOf(OriginalGraphs(), gt.GraphTransplant())),
        ReliabilityFilter(Sequential(gt.GraphTransplant(), OriginalGraphs())),
        ReliabilityFilter(LabelSmoothing()),
        OneOf(ReliabilityFilter(OriginalGraphs()), OriginalGraphs()),
        Sequential(ReliabilityFilter(OriginalGraphs()), gt.GraphTransplant()),
        ReliabilityFilter(ReliabilityFilter(OriginalGraphs())),
    ],
    ids=["of-one-of", "of-sequence", "of-smoothing", "in-one-of", "in-sequence", "of-itself"],
)
def test_it_can_be_composed(composed: gt.Augmentation) -> None:
    model = copy.deepcopy(trained())
    result = gt.fit(model, train(), validation(), composed, seed=0, epochs=2, batch_size=30)
    assert "label_threshold" in result.history[-1].measurements


def other_task(task: str) -> GraphStore:
    graphs = train().batch(range(6)).to_data_list()
    for k, graph in enumerate(graphs):
        graph.y = torch.tensor([[0.0, 1.0]]) if task == "multilabel" else torch.tensor([[k + 0.5]])
    return GraphStore.from_pyg(graphs, task=task, name="assays")


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_data_without_classes_are_refused(task: str) -> None:
    store = other_task(task)
    outputs = store.num_outputs
    model = gt.GraphClassifier.for_data(store, hidden=8, seed=0)
    augmentation = ReliabilityFilter(OriginalGraphs())
    message = f"reliability filter of m-evolve needs classes, but assays is a {task} data set"
    with pytest.raises(DataError, match=message):
        augmentation.check(model, store)
    with pytest.raises(DataError, match=message):
        augmentation.after_epoch(model, store)
    batch = random_batch(generator(1), graphs=4)
    other = gt.GraphClassifier(3, outputs, hidden=8, task=task, seed=0)
    clean = gt.CleanPass(batch, torch.ones(4, outputs), other(batch), task)
    with pytest.raises(DataError, match=f"m-evolve needs classes, but the task is {task}"):
        augmentation(clean, model=other, generator=generator())


def test_what_the_filtered_one_refuses_is_refused() -> None:
    model = as_predictor(Normalised())
    with pytest.raises(gt.GraphTransplantError, match="manifold-mixup"):
        ReliabilityFilter(ManifoldMixup()).check(model, train())


def test_a_second_training_begins_as_the_first() -> None:
    augmentation = ReliabilityFilter(OriginalGraphs())
    curves = []
    for _ in range(2):
        model = gt.GraphClassifier.for_data(train(), hidden=8, layers=2, seed=0)
        result = gt.fit(model, train(), validation(), augmentation, seed=0, epochs=3)
        curves.append([(log.train_loss, log.measurements) for log in result.history])
    assert curves[0] == curves[1]
    other = gt.GraphStore.from_pyg(
        [
            Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([k]))
            for k in (0, 1) * 4
        ]
    )
    model = gt.GraphClassifier.for_data(other, hidden=8, layers=1, seed=0)
    gt.fit(model, other, other, augmentation, seed=0, epochs=2)  # with another number of classes


class Own(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv, self.norm = GCNConv(1, 8), nn.BatchNorm1d(8)
        self.out = nn.Linear(8, classes)

    def forward(self, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = torch.ones(batch.numel(), 1)
        return self.out(global_mean_pool(self.norm(self.conv(x, edge_index)), batch))


def test_it_works_in_a_loop_of_ones_own_with_a_model_of_ones_own() -> None:
    torch.manual_seed(0)
    model = Own(train().num_outputs).train()
    augmentation = ReliabilityFilter(OriginalGraphs())
    augmentation.prepare(train(), generator())
    statistics = model.norm.running_mean.clone()
    measured = augmentation.after_epoch(model, validation())
    assert set(measured) == {"label_threshold"}
    assert model.training
    assert torch.equal(model.norm.running_mean, statistics)
    gt.augmented_loss(model, train().batch(range(20)), augmentation).backward()
    assert 0 <= augmentation.after_epoch(model, validation())["kept_share"] <= 1


def test_nested_filters_keep_their_measurements_apart() -> None:
    both = ReliabilityFilter(ReliabilityFilter(OriginalGraphs()))
    measured = both.after_epoch(trained(), validation())
    assert set(measured) == {"label_threshold", "label_threshold_2"}
