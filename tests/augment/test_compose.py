"""Augmentations made of augmentations: draws, the order of work, weights, losses and hooks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import graph_transplant as gt
from graph_transplant.augment import (
    CleanPass,
    DropEdges,
    LabelSmoothing,
    ManifoldMixup,
    OneOf,
    OriginalGraphs,
    ReliabilityFilter,
    Sequential,
    VirtualGraphs,
)
from graph_transplant.data import GraphBatch
from graph_transplant.errors import GraphTransplantError
from helpers.edits import agree
from helpers.strategies import classifier, generator, random_batch, rings_and_stars


def batch_of(seed: int = 2, **options: Any) -> GraphBatch:
    return GraphBatch.from_pyg(random_batch(generator(seed), **options))


def clean_pass(model: gt.GraphClassifier, batch: GraphBatch) -> CleanPass:
    return CleanPass(batch, torch.eye(batch.num_graphs), model.run(batch))


class Shift(gt.Augmentation):
    """Adds a number to all features and multiplies them; notes what it was given and did."""

    def __init__(self, number: float = 1.0, *, own: bool = False, **given: Any) -> None:
        super().__init__()
        self.number, self.factor = number, given.get("factor", 1.0)
        self.weight, self.name = given.get("weight"), given.get("name")
        self.own = nn.Parameter(torch.tensor(number)) if own else None
        self.calls: list[str] = []
        self.given: CleanPass | None = None

    def forward(self, clean: CleanPass, **settings: Any) -> VirtualGraphs:
        self.given = clean
        count = len(clean.targets)
        x = (clean.batch.nodes["x"] + self.number) * self.factor
        return VirtualGraphs(
            batch=replace(clean.batch, nodes={**clean.batch.nodes, "x": x}),
            targets=clean.targets,
            weight=None if self.weight is None else torch.arange(count) + self.weight,
            auxiliary_loss=None if self.own is None else self.own.square(),
        )

    def check(self, *given: Any) -> None:
        self.calls.append("check")

    def prepare(self, *given: Any) -> None:
        self.calls.append("prepare")

    def after_epoch(self, *given: Any) -> dict[str, float]:
        self.calls.append("after_epoch")
        return {} if self.name is None else {self.name: self.number}


@pytest.mark.parametrize("probabilities", [None, (0.5, 0.2, 0.3), (0.0, 1.0, 0.0), (0.4, 0.6, 0.0)])
def test_each_is_drawn_as_often_as_wanted(probabilities: tuple[float, ...] | None) -> None:
    either = OneOf(*(Shift(float(k)) for k in range(3)), probabilities=probabilities)
    clean, source = clean_pass(classifier(2), batch_of(graphs=2)), generator(7)
    state = torch.get_rng_state()
    drawn = [either(clean, model=None, generator=source) for _ in range(2000)]
    assert torch.equal(torch.get_rng_state(), state)
    seen = Counter(round(float((v.batch.x - clean.batch.x).mean())) for v in drawn)
    agree(seen, dict(enumerate(probabilities or (1 / 3,) * 3)))


# ------------------------------------------------------------------ both

both_kinds = pytest.mark.parametrize("kind", [OneOf, Sequential])


@both_kinds
def test_what_cannot_be_composed_is_refused(kind: type[OneOf | Sequential]) -> None:
    with pytest.raises(GraphTransplantError, match=f"{kind.__name__} needs at least one"):
        kind()
    message = f"{kind.__name__} takes augmentations; got 'drop-nodes'"
    with pytest.raises(GraphTransplantError, match=message):
        kind(OriginalGraphs(), "drop-nodes")  # type: ignore[arg-type]
    values = rings_and_stars(4, seed=0, name="points", y=torch.rand(4, 1), task="regression")
    model = classifier(1, task="regression")
    with pytest.raises(GraphTransplantError, match="needs classes"):
        kind(OriginalGraphs(), ReliabilityFilter(OriginalGraphs())).check(model, values)
    kind(OriginalGraphs(), ManifoldMixup()).check(model, values)


@both_kinds
def test_hooks_and_parameters_are_those_of_all(kind: type[OneOf | Sequential]) -> None:
    store = rings_and_stars(4, seed=0, name="shapes")
    names = enumerate(["a", "b", None, "a", "a"])
    parts = [Shift(float(k), name=name, own=True) for k, name in names]
    several = kind(*parts)
    several.check(classifier(2), store)
    several.prepare(store, generator())
    measured = several.after_epoch(classifier(2), store)
    assert measured == {"a": 0, "b": 1, "a_2": 3, "a_3": 4}
    assert all(part.calls == ["check", "prepare", "after_epoch"] for part in parts)
    again = kind(*(Shift(9.0, own=True) for _ in range(5)))
    again.load_state_dict(several.state_dict())
    assert [float(p.detach()) for p in again.parameters()] == [0, 1, 2, 3, 4]


# ------------------------------------------------------------------ one after the other


def test_each_works_on_what_the_one_before_made() -> None:
    batch, model = batch_of(graphs=3), classifier(3)
    parts = (Shift(1.0, factor=2.0), Shift(10.0, factor=3.0), Shift(100.0))
    clean = clean_pass(model, batch)
    virtual = Sequential(*parts)(clean, model=model, generator=generator())
    assert isinstance(virtual, VirtualGraphs)
    torch.testing.assert_close(virtual.batch.x, ((batch.x + 1) * 2 + 10) * 3 + 100)
    assert parts[0].given is clean
    assert parts[2].given is not None
    assert parts[2].given.loss_of is clean.loss_of
    assert parts[2].given.targets is clean.targets


def test_the_model_runs_only_where_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, model = batch_of(graphs=6, largest=12), classifier(6)
    clean, runs, plain = clean_pass(model, batch), [], gt.GraphClassifier.run

    def noted(self: gt.GraphClassifier, given: GraphBatch, **settings: Any) -> Any:
        runs.append(given)
        return plain(self, given, **settings)

    monkeypatch.setattr(gt.GraphClassifier, "run", noted)
    for several, count in (
        (Sequential(Shift(), DropEdges(), Shift()), 0),
        (Sequential(gt.GraphTransplant(), DropEdges()), 0),  # saliency is that of the clean pass
        (Sequential(Shift(2.0), gt.GraphTransplant(), Shift()), 1),
    ):
        runs.clear()
        several(clean, model=model, generator=generator())
        assert len(runs) == count
    torch.testing.assert_close(runs[0].x, batch.x + 2.0)


@pytest.mark.parametrize("given", [(1,), (0.5, 0.6), (1.5, -0.5), (1, float("nan")), ("a", "b")])
def test_probabilities_that_are_none_are_refused(given: Any) -> None:
    with pytest.raises(GraphTransplantError, match="`probabilities` must be non-negative, one per"):
        OneOf(Shift(0.0), Shift(1.0), probabilities=given)


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
        f"Sequential: {type(first).__name__} does not return graphs, so DropEdges cannot follow"
    )
    with pytest.raises(GraphTransplantError, match=message):
        Sequential(Shift(), first, DropEdges())
    # Smoothing adds to a loss of labels that the graphs before it would not have.
    with pytest.raises(GraphTransplantError, match="put it next to the others"):
        Sequential(Shift(), LabelSmoothing())


def test_the_gradient_of_a_soft_edge_is_that_of_the_graphs_it_is_left_in() -> None:
    # The same graphs built from scratch, their soft weights a leaf.
    batch, model = batch_of(12, graphs=6, largest=12), classifier(6)
    pair = np.minimum(np.arange(batch.num_edges), batch.reverse)
    leaf = torch.rand(batch.num_edges, generator=generator(1)).requires_grad_()
    soft = replace(batch, edges={"edge_weight": leaf[pair]})
    clean = CleanPass(soft, torch.eye(6), model.run(soft))
    virtual = Sequential(DropEdges(0.5), Shift(0.0))(clean, model=model, generator=generator(1))
    (found,) = torch.autograd.grad(virtual.losses(model, clean.loss_of)[0], leaf)
    edges = DropEdges(0.5)(clean, model=model, generator=generator(1)).edge_origin
    logits = model(
        batch.x, batch.edge_index[:, edges], leaf[pair][edges], batch=batch.batch, batch_size=6
    )
    (expected,) = torch.autograd.grad(nn.functional.cross_entropy(logits, torch.eye(6)), leaf)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)
    assert bool(found.any())


# ------------------------------------------------------------------ weights and losses


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ((None, None), None),
        ((2.0, None), [2.0, 3.0, 4.0]),
        ((None, 2.0), [2.0, 3.0, 4.0]),
        ((1.0, 1.0, 2.0), [2.0, 12.0, 36.0]),
    ],
)
def test_weights_multiply(weights: tuple[float | None, ...], expected: list[float] | None) -> None:
    model = classifier(3)
    clean = clean_pass(model, batch_of(graphs=3))
    several = Sequential(*(Shift(weight=weight) for weight in weights))
    virtual = several(clean, model=model, generator=generator())
    assert (None if virtual.weight is None else virtual.weight.tolist()) == expected


def test_auxiliary_losses_add_up() -> None:
    batch, model = batch_of(graphs=3), classifier(3)
    several = Sequential(Shift(3.0, own=True), Shift(1.0), Shift(4.0, own=True))
    virtual = several(clean_pass(model, batch), model=model, generator=generator())
    assert float(virtual.auxiliary_loss.detach()) == 25.0
    gt.augmented_loss(model, batch, several, generator=generator()).backward()
    assert [float(p.grad) for p in several.parameters()] == [6.0, 8.0]
