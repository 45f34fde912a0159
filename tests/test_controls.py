"""Controls: label smoothing, a second pass on the same graphs, saliency that says nothing."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from scipy.stats import chisquare
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.augment import (
    LabelSmoothing,
    OriginalGraphs,
    ShuffledSaliency,
    build_method,
)
from graph_transplant.augment.controls import VirtualLogits, shuffle_within_graphs
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.graphs import layout_of
from graph_transplant.saliency import as_predictor
from oracles import check_valid_batch, graphs_of, label_weight, saliency_share, same_content
from strategies import batches, random_batch, seeds


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def classifier(outputs: int, **options: object) -> gt.GraphClassifier:
    chosen = {"layers": 2, "hidden": 8, "seed": 0, "dropout": 0.0, **options}
    return gt.GraphClassifier(3, outputs, **chosen)  # type: ignore[arg-type]


# ------------------------------------------------------------------ label smoothing


@pytest.mark.parametrize("smoothing", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_total_loss_is_torchs_label_smoothing(smoothing: float, dropout: float) -> None:
    batch = random_batch(generator(1), graphs=7)
    batch.y = torch.tensor([0, 1, 2, 2, 1, 0, 0])
    model = classifier(3, dropout=dropout).train()
    torch.manual_seed(5)
    total = gt.augmented_loss(model, batch, LabelSmoothing(smoothing), generator=generator())
    torch.manual_seed(5)  # the same dropout: there is one pass only
    logits = model(batch).logits
    smoothed = nn.functional.cross_entropy(logits, batch.y, label_smoothing=smoothing)
    torch.testing.assert_close((1 - smoothing) * total, smoothed)
    ours = torch.autograd.grad((1 - smoothing) * total, list(model.parameters()))
    theirs = torch.autograd.grad(smoothed, list(model.parameters()))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-6, rtol=1e-4)


def test_soft_targets_are_smoothed_too() -> None:
    batch = random_batch(generator(2), graphs=4)
    model = classifier(3, dropout=0.0)
    targets = torch.rand(4, 3, generator=generator(3)).softmax(1)
    clean = gt.CleanPass(batch, targets, model(batch))
    virtual = LabelSmoothing(0.3)(clean, model=model, generator=None)
    total = clean.loss + virtual.loss(model, "multiclass")
    logs = clean.prediction.logits.detach().double().log_softmax(1).numpy()
    rows = 0.7 * targets.double().numpy() + 0.3 / 3
    assert 0.7 * float(total.detach()) == pytest.approx(-(rows * logs).sum(1).mean(), rel=1e-5)


def test_several_labels_are_smoothed_towards_one_half() -> None:
    batch = random_batch(generator(2), graphs=5)
    targets = torch.rand(5, 3, generator=generator(4)).round()
    targets[1, 2] = targets[3, 0] = float("nan")
    targets[4] = float("nan")
    batch.y = targets
    model = classifier(3, dropout=0.0, task="multilabel")
    total = gt.augmented_loss(model, batch, LabelSmoothing(0.2), generator=generator())
    logits = model(batch).logits.detach().double().numpy()
    losses = []
    for row, target in zip(logits, targets.numpy(), strict=True):
        known = [
            -(0.8 * t + 0.1) * np.log(1 / (1 + np.exp(-z)))
            - (0.8 * (1 - t) + 0.1) * np.log(1 - 1 / (1 + np.exp(-z)))
            for z, t in zip(row, target, strict=True)
            if not np.isnan(t)
        ]
        losses.append(np.mean(known) if known else 0.0)
    assert 0.8 * float(total.detach()) == pytest.approx(np.mean(losses), rel=1e-5)
    clean = gt.CleanPass(batch, targets, model(batch), "multilabel")
    virtual = LabelSmoothing()(clean, model=model, generator=None)
    assert torch.equal(virtual.targets.isnan(), targets.isnan())


def test_smoothing_runs_no_further_pass() -> None:
    calls = []
    batch = random_batch(generator(1), graphs=4)
    model = classifier(4)
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    gt.augmented_loss(model, batch, LabelSmoothing(), generator=generator())
    assert len(calls) == 1
    clean = gt.CleanPass(batch, torch.eye(4), model(batch))
    virtual = LabelSmoothing()(clean, model=model, generator=generator())
    assert isinstance(virtual, VirtualLogits)
    assert virtual.logits(model) is clean.prediction.logits


def test_smoothing_works_for_any_model() -> None:
    class Foreign(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(3, 4)

        def forward(self, x: Tensor, batch: Tensor, batch_size: int) -> Tensor:
            return self.out(x.new_zeros(batch_size, 3).index_add(0, batch, x))

    batch, model = random_batch(generator(1), graphs=4), Foreign()
    total = gt.augmented_loss(model, batch, LabelSmoothing(0.1), generator=generator())
    logits = as_predictor(model)(batch).logits
    smoothed = nn.functional.cross_entropy(logits, batch.y, label_smoothing=0.1)
    torch.testing.assert_close(0.9 * total, smoothed)


def test_regression_cannot_be_smoothed() -> None:
    store = gt.load("motifs").subset(range(4))
    graphs = store.batch(range(4)).to_data_list()
    for graph in graphs:
        graph.y = torch.tensor([0.5])
    values = gt.GraphStore.from_pyg(graphs, task="regression", name="melting-points")
    model = classifier(1, task="regression")
    message = "label-smoothing needs classes or labels, but melting-points is a regression data set"
    with pytest.raises(DataError, match=message):
        LabelSmoothing().check(model, values)
    LabelSmoothing().check(model, store)
    batch = random_batch(generator(1), graphs=4)
    clean = gt.CleanPass(batch, torch.rand(4, 1), model(batch), "regression")
    with pytest.raises(DataError, match=r"label-smoothing .* the task is regression"):
        LabelSmoothing()(clean, model=model, generator=None)


@pytest.mark.parametrize("smoothing", [0.0, 1.0, -0.1, 2.0, float("nan")])
def test_smoothing_must_be_a_share(smoothing: float) -> None:
    with pytest.raises(GraphTransplantError, match=r"`smoothing` must be in \(0, 1\), got"):
        LabelSmoothing(smoothing)


# ------------------------------------------------------------------ the same graphs again


@given(batches(with_x=True), seeds())
def test_original_graphs_are_the_same_graphs(batch: Batch, seed: int) -> None:
    graphs = batch.num_graphs
    model, before = classifier(graphs), batch.clone()
    clean = gt.CleanPass(batch, torch.eye(graphs), model(batch))
    virtual = OriginalGraphs()(clean, model=model, generator=generator(seed))
    assert same_content(virtual.batch, before)
    assert torch.equal(virtual.targets, torch.eye(graphs))
    assert virtual.weight is None
    check_valid_batch(virtual.batch, graphs=graphs, undirected=False)


def test_there_are_two_passes_that_differ_by_dropout_alone() -> None:
    batch = random_batch(generator(1), graphs=8, largest=9)
    for dropout in (0.0, 0.5):
        model, calls = classifier(8, dropout=dropout).train(), []
        model.register_forward_hook(lambda _m, _i, out, calls=calls: calls.append(out.logits))
        torch.manual_seed(0)
        total = gt.augmented_loss(model, batch, OriginalGraphs(), generator=generator())
        assert len(calls) == 2
        assert torch.equal(calls[0], calls[1]) == (dropout == 0.0)
        parts = [nn.functional.cross_entropy(logits, batch.y) for logits in calls]
        torch.testing.assert_close(total, parts[0] + parts[1])


# ------------------------------------------------------------------ shuffled saliency


def clean_pass(model: gt.GraphClassifier, batch: Batch) -> gt.CleanPass:
    return gt.CleanPass(batch, torch.eye(batch.num_graphs), model(batch))


class Recording(gt.GraphTransplant):
    """Remembers the saliency it was handed."""

    def forward(self, clean, *, model, generator):  # type: ignore[no-untyped-def]
        self.seen = clean.saliency(self.saliency)
        return super().forward(clean, model=model, generator=generator)


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(batches(with_x=True), seeds())
def test_every_graph_keeps_its_saliency_values(batch: Batch, seed: int) -> None:
    model = classifier(batch.num_graphs)
    clean = clean_pass(model, batch)
    original = clean.saliency(gt.NodeSaliency()).clone()
    recording = Recording()
    recording._looked_at_saliency = True  # flat saliency is no news here
    ShuffledSaliency(recording)(clean, model=model, generator=generator(seed))
    for graph in range(batch.num_graphs):
        mine = batch.batch == graph
        assert sorted(recording.seen[mine].tolist()) == sorted(original[mine].tolist())
    assert torch.equal(clean.saliency(gt.NodeSaliency()), original)  # the pass stays as it was


def test_values_of_the_chosen_reading_are_shuffled() -> None:
    batch = random_batch(generator(6), graphs=6)
    model = classifier(6, layers=3)
    clean = clean_pass(model, batch)
    reading = gt.NodeSaliency(kind="gradient-x-activation", layer=0)
    recording = Recording(saliency=reading)
    ShuffledSaliency(recording)(clean, model=model, generator=generator())
    expected = clean.saliency(reading)
    assert not torch.equal(recording.seen, expected)
    torch.testing.assert_close(recording.seen.sort().values, expected.sort().values)


def test_all_permutations_are_equally_likely() -> None:
    # 3 000 graphs of four nodes beside graphs of other sizes; chi-square over the 24 permutations.
    counts = torch.tensor([4, 1, 3] * 3000)
    ptr = torch.cat((torch.zeros(1, dtype=torch.long), counts.cumsum(0)))
    layout = gt.graphs.Layout(torch.repeat_interleave(torch.arange(9000), counts), ptr)
    order = shuffle_within_graphs(layout, generator(11))
    assert torch.equal(layout.segment[order], layout.segment)
    assert torch.equal(order.sort().values, torch.arange(layout.num_nodes))
    for size, offset in ((4, 0), (3, 2)):
        starts = ptr[offset:-1:3]
        seen = Counter(tuple((order[s : s + size] - s).tolist()) for s in starts)
        every = list(itertools.permutations(range(size)))
        assert set(seen) == set(every)
        assert chisquare([seen[p] for p in every]).pvalue > 1e-3


def test_keys_come_from_the_generator() -> None:
    batch = random_batch(generator(6), graphs=6)
    layout = layout_of(batch)
    state = torch.get_rng_state()
    one, again = (shuffle_within_graphs(layout, generator(1)) for _ in range(2))
    assert torch.equal(one, again)
    assert not torch.equal(one, shuffle_within_graphs(layout, generator(2)))
    assert torch.equal(torch.get_rng_state(), state)


def test_label_weights_follow_the_shuffled_values() -> None:
    batch = random_batch(generator(8), graphs=8, largest=12)
    model = classifier(8)
    clean = clean_pass(model, batch)
    recording = Recording()
    mixed = ShuffledSaliency(recording)(clean, model=model, generator=generator(3))
    saliency = recording.seen.double().numpy()
    graphs = graphs_of(batch)
    differs = False
    for i, source in enumerate(mixed.source_of.tolist()):
        here = mixed.batch.batch == i
        taken = mixed.node_origin[here & mixed.node_from_source].tolist()
        left = mixed.node_origin[here & ~mixed.node_from_source].tolist()

        def weight(values: np.ndarray, i=i, source=source, taken=taken, left=left) -> float:  # type: ignore[no-untyped-def]
            return label_weight(
                saliency_share(graphs[source], set(taken), values),
                saliency_share(graphs[i], set(left), values),
            )

        assert float(mixed.label_weight[i]) == pytest.approx(weight(saliency), abs=1e-5)
        true = clean.saliency(gt.NodeSaliency()).double().numpy()
        differs = differs or abs(weight(true) - weight(saliency)) > 1e-3
    assert differs


def star(leaves: int, label: int) -> Data:
    ends = torch.tensor([[0] * leaves, list(range(1, leaves + 1))])
    edge_index = torch.cat((ends, ends.flip(0)), dim=1)
    return Data(x=torch.ones(leaves + 1, 3), edge_index=edge_index, y=torch.tensor([label]))


def test_anchors_follow_the_shuffled_values() -> None:
    # One node of each star carries all saliency. One anchor of ten nodes, drawn from the two most
    # salient ones, is the salient node in half of all cases: the hub with true saliency, any node
    # alike with shuffled saliency.
    stars = 600
    batch = Batch.from_data_list([star(9, k % 2) for k in range(stars)])
    model = classifier(2)
    prediction = model(batch)
    targets = torch.eye(2)[batch.y]
    hub = torch.zeros(batch.num_nodes)
    hub[batch.ptr[:-1]] = 1.0

    def anchored_hubs(augmentation: gt.Augmentation) -> float:
        clean = gt.CleanPass(batch, targets, prediction)
        clean = clean.with_saliency(gt.NodeSaliency(), hub)
        mixed = augmentation(clean, model=model, generator=generator(5))
        taken = mixed.plan.transplanted
        return float(torch.isin(batch.ptr[:-1], taken).double().mean())

    # Without hops the anchor is all that is transplanted.
    plain = gt.GraphTransplant(hops=0, anchor_ratio=0.1)
    # One half against one tenth; four deviations of a share of 600 are 0.082 and 0.049.
    assert anchored_hubs(plain) == pytest.approx(0.5, abs=0.085)
    assert anchored_hubs(ShuffledSaliency(plain)) == pytest.approx(0.1, abs=0.05)


def test_parameters_and_hooks_are_the_transplants() -> None:
    calls = []

    class Hooked(gt.GraphTransplant):
        def check(self, model, data):  # type: ignore[no-untyped-def]
            calls.append("check")
            super().check(model, data)

        def prepare(self, train, generator):  # type: ignore[no-untyped-def]
            calls.append("prepare")

    store = gt.load("motifs", graphs=24)
    model = gt.GraphClassifier.for_data(store, hidden=8, layers=2, seed=0)
    inner = Hooked("predict", embedding_size=8)
    shuffled = ShuffledSaliency(inner)
    assert {id(p) for p in shuffled.parameters()} == {id(p) for p in inner.parameters()}
    before = [p.detach().clone() for p in inner.parameters()]
    result = gt.fit(model, store, store, shuffled, seed=0, epochs=1, batch_size=12)
    assert calls == ["check", "prepare"]
    assert set(result.history[0].measurements) == {"edge_predictor_accuracy"}
    assert all(not torch.equal(a, b) for a, b in zip(before, inner.parameters(), strict=True))


def test_pairing_that_cannot_be_is_refused_through_the_control() -> None:
    store = gt.load("motifs").subset(range(4))
    graphs = store.batch(range(4)).to_data_list()
    for graph in graphs:
        graph.y = torch.tensor([0.5])
    values = gt.GraphStore.from_pyg(graphs, task="regression")
    shuffled = ShuffledSaliency(gt.GraphTransplant(pairing="same-class"))
    with pytest.raises(GraphTransplantError, match="needs classes"):
        shuffled.check(classifier(1, task="regression"), values)


def test_only_a_transplant_has_saliency_to_shuffle() -> None:
    with pytest.raises(GraphTransplantError, match="`transplant` must be a GraphTransplant, got "):
        ShuffledSaliency(OriginalGraphs())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["label-smoothing", "vanilla-x2", "saliency-shuffled"])
def test_controls_stand_among_the_methods(name: str) -> None:
    (augmentation,) = build_method(name, classifier(2))
    kinds = {
        "label-smoothing": LabelSmoothing,
        "vanilla-x2": OriginalGraphs,
        "saliency-shuffled": ShuffledSaliency,
    }
    assert type(augmentation) is kinds[name]
