"""Pairing: which graph is mixed with which, counted against what each policy promises."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from graph_transplant.augment import GraphTransplant, Pairing
from graph_transplant.augment.pairing import POLICIES, as_pairing, classes_of
from graph_transplant.errors import GraphTransplantError
from strategies import random_batch, seeds

LABELS = st.lists(st.integers(0, 3), min_size=1, max_size=12)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def allowed(policy: str, labels: list[object], graph: int) -> list[int]:
    """The graphs that a policy may choose for a graph, from its description."""
    everyone = list(range(len(labels)))
    if policy == "same-class":
        return [g for g in everyone if labels[g] == labels[graph] and g != graph] or [graph]
    if policy == "cross-class":
        return [g for g in everyone if labels[g] != labels[graph]] or everyone
    return everyone


def chances(policy: str, labels: list[object], graph: int) -> dict[int, float]:
    """The probability of every source of a graph."""
    if policy == "minority":
        sizes = Counter(labels)
        return {g: 1 / len(sizes) / sizes[labels[g]] for g in range(len(labels))}
    choices = allowed(policy, labels, graph)
    return {g: 1 / len(choices) for g in choices}


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=60)
@given(labels=LABELS, seed=seeds())
def test_sources_are_among_those_allowed(policy: str, labels: list[int], seed: int) -> None:
    targets = torch.eye(4)[labels]
    before = targets.clone()
    sources = Pairing(policy).sources(targets, "multiclass", generator(seed))
    assert sources.dtype == torch.long
    assert sources.shape == (len(labels),)
    for graph, source in enumerate(sources.tolist()):
        assert source in allowed(policy, list(labels), graph)
    assert torch.equal(targets, before)
    if policy == "random":
        assert sorted(sources.tolist()) == list(range(len(labels)))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "labels", [[0, 1, 1, 0, 2, 1, 0, 1], [3, 3, 3, 3], [0, 1, 2, 3], [2, 0, 0, 0, 0, 0]]
)
def test_sources_are_as_likely_as_promised(policy: str, labels: list[int]) -> None:
    source = generator(5)
    targets = torch.eye(4)[labels]
    rounds = 1500
    drawn = torch.stack(
        [Pairing(policy).sources(targets, "multiclass", source) for _ in range(rounds)]
    )
    for graph in range(len(labels)):
        promised = chances(policy, list(labels), graph)
        seen = Counter(drawn[:, graph].tolist())
        assert set(seen) <= set(promised)
        if len(promised) > 1:
            # 1 500 draws a graph, some 90 tests: a bound that a true sampler passes for one seed in
            # a thousand over all of them.
            counts = [seen[g] for g in promised]
            assert chisquare(counts, [rounds * p for p in promised.values()]).pvalue > 1e-5


def test_random_pairing_is_a_uniform_permutation() -> None:
    source, targets = generator(2), torch.eye(4)
    seen = Counter(
        tuple(Pairing().sources(targets, "multiclass", source).tolist()) for _ in range(4800)
    )
    assert len(seen) == math.factorial(4)
    assert chisquare(list(seen.values())).pvalue > 1e-3


def test_draws_of_different_graphs_are_independent() -> None:
    # Two graphs of a class of three have two choices each: all four combinations alike.
    source, targets = generator(3), torch.eye(2)[[0, 0, 0, 1, 1]]
    seen = Counter(
        tuple(Pairing("same-class").sources(targets, "multiclass", source)[:2].tolist())
        for _ in range(2000)
    )
    assert set(seen) == {(1, 0), (1, 2), (2, 0), (2, 2)}
    assert chisquare(list(seen.values())).pvalue > 1e-3


@pytest.mark.parametrize("key", [0.0, 1 - 2**-53, 0.5, 1 / 3, 2 / 3])
@pytest.mark.parametrize("policy", ["same-class", "cross-class", "minority"])
def test_the_ends_of_the_unit_interval_name_graphs_too(
    policy: str, key: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def constant(size: tuple[int, ...], _generator: object, device: torch.device) -> Tensor:
        return torch.full(size, key, dtype=torch.double, device=device)

    monkeypatch.setattr("graph_transplant.augment.pairing.uniform", constant)
    for labels in ([0] * 7, [0, 1, 1, 2, 2, 2, 2], list(range(4)), [0, 0, 1], [1], [3, 0, 3]):
        targets = torch.eye(4)[labels]
        for graph, source in enumerate(Pairing(policy).sources(targets, "multiclass", None)):
            assert int(source) in allowed(policy, list(labels), graph)


def test_same_class_never_pairs_a_graph_with_itself_when_it_need_not() -> None:
    targets = torch.eye(2)[[0, 1, 0, 1, 1, 0, 0]]
    for seed in range(50):
        sources = Pairing("same-class").sources(targets, "multiclass", generator(seed))
        assert not bool((sources == torch.arange(7)).any())


def test_minority_draws_rare_classes_as_often_as_common_ones() -> None:
    labels = torch.tensor([0] * 97 + [1] * 3)
    source = generator(1)
    drawn = torch.cat(
        [Pairing("minority").sources(torch.eye(2)[labels], "multiclass", source) for _ in range(40)]
    )
    share = float((labels[drawn] == 1).double().mean())
    assert share == pytest.approx(0.5, abs=4 * math.sqrt(0.25 / 4000))


# ------------------------------------------------------------------ classes


@given(LABELS)
def test_classes_are_numbered_without_gaps(labels: list[int]) -> None:
    group = classes_of(torch.eye(4)[labels], "multiclass").tolist()
    order = sorted(set(labels))
    assert group == [order.index(label) for label in labels]


def test_mixed_targets_belong_to_the_class_they_have_most_of() -> None:
    targets = torch.tensor([[0.6, 0.4, 0.0], [0.1, 0.3, 0.6], [0.9, 0.1, 0.0]])
    assert classes_of(targets, "multiclass").tolist() == [0, 1, 0]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(*[st.sampled_from([0.0, 1.0, float("nan")])] * 2), min_size=1, max_size=10),
    seeds(),
    st.sampled_from(["same-class", "cross-class"]),
)
def test_labels_agree_missing_ones_included(
    rows: list[tuple[float, float]], seed: int, policy: str
) -> None:
    targets = torch.tensor(rows)
    names = [tuple("?" if math.isnan(v) else v for v in row) for row in rows]
    group = classes_of(targets, "multilabel").tolist()
    for one, first in zip(group, names, strict=True):
        for other, second in zip(group, names, strict=True):
            assert (one == other) == (first == second)
    assert set(group) == set(range(len(set(names))))
    sources = Pairing(policy).sources(targets, "multilabel", generator(seed))
    for graph, source in enumerate(sources.tolist()):
        assert source in allowed(policy, list(names), graph)


# ------------------------------------------------------------------ randomness


@pytest.mark.parametrize("policy", POLICIES)
def test_same_seed_same_pairs_and_no_other_source(policy: str) -> None:
    targets = torch.eye(3)[torch.arange(40) % 3]
    state = torch.get_rng_state()
    one, again, other = (
        Pairing(policy).sources(targets, "multiclass", generator(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(4)
    first = Pairing(policy).sources(targets, "multiclass", None)
    torch.manual_seed(4)
    assert torch.equal(first, Pairing(policy).sources(targets, "multiclass", None))


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("policy", ["same-class", "cross-class", "minority"])
def test_regression_has_no_classes(policy: str) -> None:
    message = f"pairing '{policy}' needs classes, but the task is regression: use pairing='random'"
    with pytest.raises(GraphTransplantError, match=message):
        Pairing(policy).check("regression")
    with pytest.raises(GraphTransplantError, match=message):
        Pairing(policy).sources(torch.rand(3, 1), "regression", None)
    for task in ("multiclass", "multilabel"):
        Pairing(policy).check(task)


def test_regression_pairs_at_random() -> None:
    Pairing("random").check("regression")
    sources = Pairing("random").sources(torch.rand(5, 1), "regression", generator())
    assert sorted(sources.tolist()) == list(range(5))


def test_unknown_policies_are_refused_with_a_hint() -> None:
    with pytest.raises(
        GraphTransplantError, match=r"`pairing` must be one of .*did you mean 'same-class'"
    ):
        Pairing("sameclass")


def test_names_and_pairings_are_taken_alike() -> None:
    pairing = Pairing("minority")
    assert as_pairing(pairing) is pairing
    assert as_pairing("minority").policy == "minority"
    assert repr(pairing) == "Pairing('minority')"


def test_something_that_is_no_pairing_is_refused_at_once() -> None:
    with pytest.raises(GraphTransplantError, match=r"`pairing` must be one of .* got int"):
        as_pairing(3)  # type: ignore[arg-type]


def test_graphs_that_are_mixed_already_pair_by_their_largest_class() -> None:
    batch = random_batch(torch.Generator().manual_seed(1), graphs=4)
    batch.y = torch.tensor([[0.7, 0.3], [0.2, 0.8], [0.9, 0.1], [0.4, 0.6]])
    transplant = GraphTransplant(pairing="same-class")
    mixed = transplant.mix(batch, torch.ones(int(batch.num_nodes)))
    assert mixed.source_of.tolist() == [2, 3, 0, 1]
    batch.y = torch.tensor([[1.5], [0.2], [-3.0], [0.4]])
    with pytest.raises(GraphTransplantError, match="the task is regression"):
        transplant.mix(batch, torch.ones(int(batch.num_nodes)))
