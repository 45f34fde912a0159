"""Augmentations made of augmentations: draws, the order of work, weights, losses and hooks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor, nn
from torch_geometric.data import Batch

import graph_transplant as gt
from graph_transplant.augment import (
    LabelSmoothing,
    ManifoldMixup,
    OneOf,
    OriginalGraphs,
    ReliabilityFilter,
    Sequential,
)
from graph_transplant.augment.assemble import EdgePairs, EditedGraphs, edit_graphs
from graph_transplant.augment.sampling import uniform
from graph_transplant.augment.subgraphs import View
from graph_transplant.errors import GraphTransplantError
from oracles import check_valid_batch, is_undirected, same_content
from strategies import batches, random_batch, seeds


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def classifier(outputs: int, **options: object) -> gt.GraphClassifier:
    chosen = {"layers": 2, "hidden": 8, "seed": 0, "dropout": 0.0, **options}
    return gt.GraphClassifier(3, outputs, **chosen)  # type: ignore[arg-type]


def clean_pass(model: gt.GraphClassifier, batch: Batch) -> gt.CleanPass:
    return gt.CleanPass(batch, torch.eye(batch.num_graphs), model(batch))


# ------------------------------------------------------------------ plain augmentations to compose


class DropSomeEdges(gt.Augmentation):
    """Drops each edge with probability one half; asks the model nothing."""

    def forward(self, clean, *, model, generator) -> EditedGraphs:  # type: ignore[no-untyped-def]
        pairs = EdgePairs.of(View.of(clean.batch))
        stay = uniform((pairs.u.numel(),), generator, pairs.u.device) < 0.5
        keep = torch.zeros(clean.batch.num_edges, dtype=torch.bool)
        keep[pairs.forward[stay]] = True
        keep[pairs.backward[stay]] = True
        return edit_graphs(clean.batch, clean.targets, keep_edges=keep)


class AddToFeatures(gt.Augmentation):
    """Adds a number to all features, and notes what it was given and did."""

    def __init__(
        self,
        number: float = 1.0,
        *,
        factor: float | None = None,
        weight: float | None = None,
        own: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.number, self.factor, self.weight, self.name = number, factor, weight, name
        self.own = nn.Parameter(torch.tensor(number)) if own else None
        self.calls: list[str] = []
        self.given: gt.CleanPass | None = None

    def forward(self, clean, *, model, generator) -> gt.VirtualGraphs:  # type: ignore[no-untyped-def]
        self.given = clean
        x = clean.batch.x + self.number
        if self.factor is not None:
            x = x * self.factor
        virtual = edit_graphs(clean.batch, clean.targets, features={"x": x})
        count = len(clean.targets)
        return replace(
            virtual,
            weight=None if self.weight is None else torch.arange(count) + self.weight,
            auxiliary_loss=None if self.own is None else self.own.square(),
        )

    def check(self, model, data) -> None:  # type: ignore[no-untyped-def]
        self.calls.append("check")

    def prepare(self, train, generator) -> None:  # type: ignore[no-untyped-def]
        self.calls.append("prepare")

    def after_epoch(self, model, validation) -> dict[str, float]:  # type: ignore[no-untyped-def]
        self.calls.append("after_epoch")
        return {} if self.name is None else {self.name: self.number}


class Asks(gt.Augmentation):
    """Looks at the model's prediction, and hands the graphs on."""

    def forward(self, clean, *, model, generator) -> gt.VirtualGraphs:  # type: ignore[no-untyped-def]
        self.logits = clean.prediction.logits
        clean.saliency(gt.NodeSaliency())
        return gt.VirtualGraphs(batch=clean.batch, targets=clean.targets)


class FirstGraphs(gt.Augmentation):
    """Gives fewer graphs than it is given."""

    def forward(self, clean, *, model, generator) -> gt.VirtualGraphs:  # type: ignore[no-untyped-def]
        few = Batch.from_data_list(clean.batch.to_data_list()[:2])
        return gt.VirtualGraphs(batch=few, targets=clean.targets[:2])


# ------------------------------------------------------------------ one of several


@pytest.mark.parametrize("probabilities", [None, (0.5, 0.2, 0.3), (0.0, 1.0, 0.0), (0.4, 0.6, 0.0)])
def test_each_is_picked_as_often_as_wanted(probabilities: tuple[float, ...] | None) -> None:
    either = OneOf(*(AddToFeatures(k) for k in range(3)), probabilities=probabilities)
    source = generator(7)
    seen = Counter(either.pick(source) for _ in range(3000))
    wanted = probabilities or (1 / 3,) * 3
    assert set(seen) == {k for k in range(3) if wanted[k] > 0}
    possible = sorted(seen)
    # Chi-square over 3 000 draws; a true sampler fails for one seed in a thousand.
    if len(possible) > 1:
        expected = [3000 * wanted[k] for k in possible]
        assert chisquare([seen[k] for k in possible], expected).pvalue > 1e-3


@settings(max_examples=50)
@given(seeds())
def test_the_one_picked_works_as_if_alone(seed: int) -> None:
    batch = random_batch(generator(1), graphs=4)
    model = classifier(4)
    parts = (DropSomeEdges(), AddToFeatures(3.0), gt.GraphTransplant())
    virtual = OneOf(*parts)(clean_pass(model, batch), model=model, generator=generator(seed))
    after = generator(seed)
    place = min(int(torch.rand((), generator=after, dtype=torch.double) * 3), 2)  # one single draw
    alone = parts[place](clean_pass(model, batch), model=model, generator=after)
    assert type(virtual) is type(alone)
    assert isinstance(virtual, gt.VirtualGraphs)
    assert same_content(virtual.batch, alone.batch)


def test_without_a_generator_torchs_own_is_used() -> None:
    either = OneOf(OriginalGraphs(), OriginalGraphs())
    torch.manual_seed(3)
    first = [either.pick(None) for _ in range(20)]
    torch.manual_seed(3)
    assert first == [either.pick(None) for _ in range(20)]
    assert set(first) == {0, 1}


def test_given_a_generator_the_global_one_is_left_alone() -> None:
    state = torch.get_rng_state()
    OneOf(OriginalGraphs(), OriginalGraphs()).pick(generator())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        ((0.5,), "`probabilities` must be 2 numbers, one per augmentation, got 1"),
        ((0.5, 0.6), r"must not be negative and must add up to 1, got \(0.5, 0.6\)"),
        ((-0.5, 1.5), "must not be negative"),
        ((float("nan"), 1.0), "must not be negative"),
        ((0.0, 0.0), "must add up to 1"),
    ],
)
def test_wrong_probabilities_are_refused(probabilities: tuple[float, ...], message: str) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        OneOf(OriginalGraphs(), OriginalGraphs(), probabilities=probabilities)


# ------------------------------------------------------------------ both


@pytest.mark.parametrize("kind", [OneOf, Sequential])
def test_nothing_cannot_be_composed(kind: type[OneOf | Sequential]) -> None:
    with pytest.raises(GraphTransplantError, match=f"{kind.__name__} needs at least one"):
        kind()
    message = f"{kind.__name__} takes augmentations, but argument 2 is of type str"
    with pytest.raises(GraphTransplantError, match=message):
        kind(OriginalGraphs(), "drop-nodes")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [OneOf, Sequential])
def test_hooks_go_to_all(kind: type[OneOf | Sequential]) -> None:
    store = gt.load("motifs", graphs=12)
    model = gt.GraphClassifier.for_data(store, hidden=8, seed=0)
    parts = (AddToFeatures(1.0), AddToFeatures(2.0))
    both = kind(*parts)
    both.check(model, store)
    both.prepare(store, generator())
    both.after_epoch(model, store)
    for part in parts:
        assert part.calls == ["check", "prepare", "after_epoch"]


@pytest.mark.parametrize("kind", [OneOf, Sequential])
def test_measurements_are_kept_apart(kind: type[OneOf | Sequential]) -> None:
    store = gt.load("motifs", graphs=12)
    model = gt.GraphClassifier.for_data(store, hidden=8, seed=0)
    parts = [AddToFeatures(k, name=name) for k, name in enumerate(["a", "b", None, "a", "a"])]
    assert kind(*parts).after_epoch(model, store) == {"a": 0, "b": 1, "a_2": 3, "a_3": 4}


@pytest.mark.parametrize("kind", [OneOf, Sequential])
def test_what_one_part_refuses_is_refused(kind: type[OneOf | Sequential]) -> None:
    store = gt.load("motifs", graphs=12)
    graphs = store.batch(range(12)).to_data_list()
    for graph in graphs:
        graph.y = torch.tensor([0.5])
    values = gt.GraphStore.from_pyg(graphs, task="regression")
    model = classifier(1, task="regression")
    with pytest.raises(GraphTransplantError, match="needs classes"):
        kind(OriginalGraphs(), ReliabilityFilter(OriginalGraphs())).check(model, values)
    kind(OriginalGraphs(), ManifoldMixup()).check(model, values)


@pytest.mark.parametrize("kind", [OneOf, Sequential])
def test_parameters_of_all_parts_are_found(kind: type[OneOf | Sequential]) -> None:
    parts = (AddToFeatures(1.0, own=True), AddToFeatures(2.0, own=True))
    both = kind(*parts)
    assert {id(p) for p in both.parameters()} == {id(part.own) for part in parts}
    again = kind(AddToFeatures(5.0, own=True), AddToFeatures(6.0, own=True))
    again.load_state_dict(both.state_dict())
    assert [float(p.detach()) for p in again.parameters()] == [1.0, 2.0]


@pytest.mark.parametrize("kind", [OneOf, Sequential])
def test_composed_augmentations_train(kind: type[OneOf | Sequential]) -> None:
    store = gt.load("motifs", graphs=24)
    model = gt.GraphClassifier.for_data(store, hidden=8, layers=2, seed=0)
    both = kind(gt.GraphTransplant("predict", embedding_size=8), DropSomeEdges())
    result = gt.fit(model, store, store, both, seed=0, epochs=2, batch_size=12)
    assert set(result.history[-1].measurements) == {"edge_predictor_accuracy"}


# ------------------------------------------------------------------ one after the other


def test_each_works_on_what_the_one_before_made() -> None:
    batch = random_batch(generator(2), graphs=3)
    model = classifier(3)
    parts = (
        AddToFeatures(1.0, factor=2.0),
        AddToFeatures(10.0, factor=3.0),
        AddToFeatures(100.0),
    )
    clean = clean_pass(model, batch)
    virtual = Sequential(*parts)(clean, model=model, generator=generator())
    assert isinstance(virtual, gt.VirtualGraphs)
    torch.testing.assert_close(virtual.batch.x, ((batch.x + 1) * 2 + 10) * 3 + 100)
    assert parts[0].given is clean
    given = parts[2].given
    assert given is not None
    torch.testing.assert_close(given.batch.x, ((batch.x + 1) * 2 + 10) * 3)
    assert given.task == clean.task
    assert torch.equal(given.targets, clean.targets)


@settings(max_examples=50)
@given(batches(with_x=True), seeds())
def test_one_alone_is_itself(batch: Batch, seed: int) -> None:
    graphs = batch.num_graphs
    model = classifier(graphs)
    part = DropSomeEdges()
    results = [
        augmentation(clean_pass(model, batch), model=model, generator=generator(seed))
        for augmentation in (part, Sequential(part))
    ]
    assert type(results[0]) is type(results[1]) is EditedGraphs
    assert same_content(results[0].batch, results[1].batch)
    assert torch.equal(results[0].edge_origin, results[1].edge_origin)


@settings(max_examples=50)
@given(batches(with_x=True), seeds(), st.booleans())
def test_any_batch_survives_several(batch: Batch, seed: int, mix: bool) -> None:
    graphs, before = batch.num_graphs, batch.clone()
    model = classifier(graphs)
    transplant = gt.GraphTransplant("predict", embedding_size=8)
    transplant._looked_at_saliency = True  # flat saliency is no news here
    first = transplant if mix else AddToFeatures()
    several = Sequential(first, DropSomeEdges(), DropSomeEdges())
    virtual = several(clean_pass(model, batch), model=model, generator=generator(seed))
    assert isinstance(virtual, EditedGraphs)
    plain = virtual.batch.detach()
    check_valid_batch(plain, graphs=graphs, undirected=is_undirected(batch))
    assert same_content(batch, before)
    torch.testing.assert_close(virtual.targets.sum(1), torch.ones(graphs))
    fresh = Batch.from_data_list(plain.to_data_list())
    torch.testing.assert_close(model(fresh).logits, virtual.logits(model).detach())


def test_provenance_is_of_the_batch_between() -> None:
    batch = random_batch(generator(2), graphs=6, largest=12)
    model = classifier(6)
    seen = AddToFeatures(0.0)
    several = Sequential(gt.GraphTransplant(), seen, DropSomeEdges())
    virtual = several(clean_pass(model, batch), model=model, generator=generator())
    assert isinstance(virtual, EditedGraphs)
    assert seen.given is not None
    between = seen.given.batch
    assert virtual.node_origin.max() == between.num_nodes - 1
    torch.testing.assert_close(virtual.batch.x, between.x[virtual.node_origin])
    torch.testing.assert_close(virtual.batch.edge_index, between.edge_index[:, virtual.edge_origin])


def test_targets_of_mixed_graphs_are_handed_on() -> None:
    batch = random_batch(generator(2), graphs=6, largest=12)
    model = classifier(6)
    alone = gt.GraphTransplant()(clean_pass(model, batch), model=model, generator=generator(4))
    several = Sequential(gt.GraphTransplant(), DropSomeEdges())
    virtual = several(clean_pass(model, batch), model=model, generator=generator(4))
    assert torch.equal(virtual.targets, alone.targets)
    assert bool((alone.targets > 0).sum() > 6)


def test_the_model_runs_only_where_it_is_asked() -> None:
    batch = random_batch(generator(2), graphs=6, largest=12)
    model = classifier(6)
    clean = clean_pass(model, batch)
    runs: list[Batch] = []
    model.register_forward_pre_hook(lambda _module, given: runs.append(given[0]))
    Sequential(AddToFeatures(), DropSomeEdges(), AddToFeatures())(
        clean, model=model, generator=generator()
    )
    assert runs == []
    Sequential(gt.GraphTransplant(), DropSomeEdges())(clean, model=model, generator=generator())
    assert runs == []  # saliency of the original graphs comes from the clean pass
    asks = Asks()
    shifted = AddToFeatures(2.0)
    Sequential(shifted, asks, AddToFeatures())(clean, model=model, generator=generator())
    assert len(runs) == 1  # prediction and saliency are of one pass
    torch.testing.assert_close(runs[0].x, batch.x + 2.0)
    torch.testing.assert_close(asks.logits, model(runs[0]).logits)
    runs.clear()
    Sequential(DropSomeEdges(), gt.GraphTransplant())(clean, model=model, generator=generator())
    assert len(runs) == 1
    runs.clear()
    gt.augmented_loss(model, batch, Sequential(AddToFeatures(), DropSomeEdges()))
    assert len(runs) == 2  # the clean pass and the virtual one


def test_the_last_may_give_anything() -> None:
    batch = random_batch(generator(2), graphs=4)
    model = classifier(4)
    last = ManifoldMixup()
    clean = clean_pass(model, batch)
    several = Sequential(AddToFeatures(5.0), last)
    virtual = several(clean, model=model, generator=generator())
    shifted = batch.clone()
    shifted.x = batch.x + 5.0
    alone = last(clean_pass(model, shifted), model=model, generator=generator())
    torch.testing.assert_close(virtual.logits(model), alone.logits(model))
    virtual.loss(model, "multiclass").backward()


@pytest.mark.parametrize(
    "first",
    [
        ManifoldMixup(),
        LabelSmoothing(),
        OneOf(OriginalGraphs(), ManifoldMixup()),
        Sequential(OriginalGraphs(), ManifoldMixup()),
        ReliabilityFilter(ManifoldMixup()),
    ],
    ids=lambda first: type(first).__name__,
)
def test_what_gives_no_graphs_can_only_come_last(first: gt.Augmentation) -> None:
    message = (
        f"Sequential: {type(first).__name__} gives no graphs for DropSomeEdges to work on; it can "
        "only come last"
    )
    with pytest.raises(GraphTransplantError, match=message):
        Sequential(AddToFeatures(), first, DropSomeEdges())


def test_label_smoothing_stands_beside_others_not_after_them() -> None:
    # It adds to a loss of labels that the graphs before it in a sequence would not have.
    for last in (LabelSmoothing(), OneOf(OriginalGraphs(), LabelSmoothing())):
        with pytest.raises(GraphTransplantError, match="put it beside the others"):
            Sequential(AddToFeatures(), last)
    assert isinstance(Sequential(LabelSmoothing()), Sequential)


def test_gradients_of_soft_edges_survive_every_augmentation_of_graphs() -> None:
    batch = random_batch(generator(5), graphs=8, largest=14)
    model = classifier(8)
    for later in (
        gt.DropNodes(),
        gt.DropEdges(),
        gt.PerturbEdges(),
        gt.MaskNodes(),
        gt.RandomSubgraph(),
        gt.SwapOpenTriads(),
        gt.NodeSam(),
        gt.SubMix(),
        gt.IfMixup(),
    ):
        torch.manual_seed(0)
        psi = gt.GraphTransplant("predict", embedding_size=8)
        virtual = Sequential(psi, later)(
            clean_pass(model, batch), model=model, generator=generator(1)
        )
        loss = virtual.loss(model, "multiclass")
        found = torch.autograd.grad(loss, list(psi.parameters()), allow_unused=True)
        assert any(g is not None and bool(g.any()) for g in found), type(later).__name__


# ------------------------------------------------------------------ weights and losses


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ((None, None), None),
        ((2.0, None), [2.0, 3.0, 4.0]),
        ((None, 2.0), [2.0, 3.0, 4.0]),
        ((2.0, 5.0), [10.0, 18.0, 28.0]),
        ((1.0, None, 1.0), [1.0, 4.0, 9.0]),
        ((1.0, 1.0, 1.0), [1.0, 8.0, 27.0]),
    ],
)
def test_weights_multiply(weights: tuple[float | None, ...], expected: list[float] | None) -> None:
    model = classifier(3)
    clean = clean_pass(model, random_batch(generator(2), graphs=3))
    several = Sequential(*(AddToFeatures(weight=weight) for weight in weights))
    virtual = several(clean, model=model, generator=generator())
    assert (None if virtual.weight is None else virtual.weight.tolist()) == expected


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ((False, False), None),
        ((True, False), 9.0),
        ((False, True), 16.0),
        ((True, True), 25.0),
    ],
)
def test_auxiliary_losses_add_up(own: tuple[bool, bool], expected: float | None) -> None:
    batch = random_batch(generator(2), graphs=3)
    model = classifier(3)
    several = Sequential(AddToFeatures(3.0, own=own[0]), AddToFeatures(4.0, own=own[1]))
    virtual = several(clean_pass(model, batch), model=model, generator=generator())
    if expected is None:
        assert virtual.auxiliary_loss is None
        return
    assert virtual.auxiliary_loss is not None
    assert float(virtual.auxiliary_loss.detach()) == expected
    gt.augmented_loss(model, batch, several, generator=generator()).backward()
    for parameter in several.parameters():
        assert parameter.grad is not None
        assert float(parameter.grad) == 2 * float(parameter.detach())


def test_weights_of_another_number_of_samples_are_an_error() -> None:
    model = classifier(3)
    clean = clean_pass(model, random_batch(generator(2), graphs=3))
    virtual = Sequential(AddToFeatures(), FirstGraphs())(clean, model=model, generator=generator())
    assert virtual.weight is None
    assert len(virtual.targets) == 2
    with pytest.raises(GraphTransplantError, match="3 weighted graphs became 2 samples"):
        Sequential(AddToFeatures(weight=1.0), FirstGraphs())(
            clean, model=model, generator=generator()
        )


@dataclass(frozen=True, kw_only=True)
class Signed(gt.VirtualGraphs):
    """A result with a field of its own."""

    signature: Tensor


def test_further_fields_of_the_last_result_stay() -> None:
    class Signs(gt.Augmentation):
        def forward(self, clean, *, model, generator) -> Signed:  # type: ignore[no-untyped-def]
            return Signed(
                batch=clean.batch, targets=clean.targets, signature=clean.batch.x.sum().view(1)
            )

    batch = random_batch(generator(2), graphs=3)
    model = classifier(3)
    several = Sequential(AddToFeatures(1.0, weight=1.0), Signs())
    virtual = several(clean_pass(model, batch), model=model, generator=generator())
    assert isinstance(virtual, Signed)
    torch.testing.assert_close(virtual.signature, (batch.x + 1).sum().view(1))


# ------------------------------------------------------------------ gradients


@pytest.mark.parametrize("conv", ["gcn", "gcs", "gin", "gat"])
def test_gradients_of_soft_edges_survive(conv: str) -> None:
    batch = random_batch(generator(12), graphs=6, largest=12)
    model = classifier(6, conv=conv, hidden=16)
    torch.manual_seed(0)
    transplant = gt.GraphTransplant("predict", embedding_size=16)
    several = Sequential(transplant, DropSomeEdges())
    virtual = several(clean_pass(model, batch), model=model, generator=generator(1))
    assert isinstance(virtual, EditedGraphs)
    assert virtual.batch.edge_weight.requires_grad
    loss = virtual.loss(model, "multiclass")  # without what trains ψ by itself
    gradients = torch.autograd.grad(loss, list(transplant.parameters()))
    assert any(bool(gradient.any()) for gradient in gradients)


def test_gradient_of_a_dropped_soft_edge_is_zero_and_of_a_kept_one_as_ever() -> None:
    # The same graphs built from scratch, their soft weights a leaf: the gradient of every kept edge
    # must be what the batch between passes on, that of every dropped edge nothing.
    batch = random_batch(generator(12), graphs=6, largest=12)
    model = classifier(6)

    class SoftWeights(gt.Augmentation):
        def forward(self, clean, *, model, generator) -> gt.VirtualGraphs:  # type: ignore[no-untyped-def]
            pairs = EdgePairs.of(View.of(clean.batch))
            self.leaf = torch.rand(pairs.u.numel(), generator=generator).requires_grad_()
            weight = torch.zeros(clean.batch.num_edges)
            weight = weight.index_copy(0, pairs.forward, self.leaf)
            weight = weight.index_copy(0, pairs.backward, self.leaf)
            given = Batch.from_data_list(clean.batch.to_data_list())
            given.edge_weight = weight
            self.pairs = pairs
            return gt.VirtualGraphs(batch=given, targets=clean.targets)

    soft = SoftWeights()
    several = Sequential(soft, DropSomeEdges())
    virtual = several(clean_pass(model, batch), model=model, generator=generator(1))
    (found,) = torch.autograd.grad(virtual.loss(model, "multiclass"), soft.leaf)
    kept = set(virtual.edge_origin.tolist())
    leaf = soft.leaf.detach().clone().requires_grad_()
    pair_of = {int(e): k for k, e in enumerate(soft.pairs.forward.tolist())}
    pair_of |= {int(e): k for k, e in enumerate(soft.pairs.backward.tolist())}
    listed = sorted(kept)
    again = Batch(x=batch.x, edge_index=batch.edge_index[:, listed], batch=batch.batch)
    again.edge_weight = leaf[torch.tensor([pair_of[e] for e in listed])]
    loss = nn.functional.cross_entropy(model(again).logits, virtual.targets)
    (expected,) = torch.autograd.grad(loss, leaf)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)
    dropped = [k for k, e in enumerate(soft.pairs.forward.tolist()) if e not in kept]
    assert dropped
    assert not bool(found[dropped].any())
    assert bool(found.any())
