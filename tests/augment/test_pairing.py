"""Pairing: which graph is mixed with which, counted against what each policy promises."""

from __future__ import annotations

import math
from collections import Counter
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from graph_transplant.augment.pairing import Pairing
from graph_transplant.augment.transplant import GraphTransplant
from graph_transplant.config.options import PairingPolicy
from graph_transplant.errors import GraphTransplantError
from helpers.edits import agree, uniform
from helpers.strategies import generator, random_batch, seeds


def allowed(policy: str, labels: list, graph: int) -> list[int]:
    """The graphs that a policy may choose for a graph, from its description."""
    everyone = list(range(len(labels)))
    if policy == "same-class":
        return [g for g in everyone if labels[g] == labels[graph] and g != graph] or [graph]
    if policy == "cross-class":
        return [g for g in everyone if labels[g] != labels[graph]] or everyone
    return everyone


def chances(policy: str, labels: list, graph: int) -> dict[int, float]:
    """The probability of every source of a graph."""
    if policy == "minority":
        sizes = Counter(labels)
        return {g: 1 / len(sizes) / sizes[labels[g]] for g in range(len(labels))}
    return uniform(allowed(policy, labels, graph))


@pytest.mark.parametrize("policy", get_args(PairingPolicy))
@pytest.mark.parametrize(
    "labels", [[0, 1, 1, 0, 2, 1, 0, 1], [3, 3, 3, 3], [0, 1, 2, 3], [2, 0, 0, 0, 0, 0]]
)
def test_sources_are_as_likely_as_promised(policy: str, labels: list[int]) -> None:
    random, targets, rounds = np.random.default_rng(5), torch.eye(4)[labels], 1500
    pairing = Pairing(policy)
    drawn = np.stack([pairing.sources(targets, "multiclass", random) for _ in range(rounds)])
    for graph in range(len(labels)):
        agree(Counter(drawn[:, graph].tolist()), chances(policy, labels, graph))


@pytest.mark.parametrize(
    ("policy", "labels", "combinations"),
    [("random", [0, 1, 2, 3], math.factorial(4)), ("same-class", [0, 0, 0], 8)],
)
def test_draws_of_different_graphs_are_independent(
    policy: str, labels: list[int], combinations: int
) -> None:
    random, targets = np.random.default_rng(2), torch.eye(4)[labels]
    pairing = Pairing(policy)
    seen = Counter(tuple(pairing.sources(targets, "multiclass", random)) for _ in range(4800))
    assert len(seen) == combinations
    assert chisquare(list(seen.values())).pvalue > 1e-4


@given(
    st.lists(st.tuples(*[st.sampled_from([0.0, 1.0, float("nan")])] * 2), min_size=1, max_size=10),
    seeds(),
    st.sampled_from(["same-class", "cross-class"]),
)
def test_labels_agree_missing_ones_included(
    rows: list[tuple[float, float]], seed: int, policy: str
) -> None:
    names = [tuple("?" if math.isnan(v) else v for v in row) for row in rows]
    random = np.random.default_rng(seed)
    sources = Pairing(policy).sources(torch.tensor(rows), "multilabel", random)
    for graph, source in enumerate(sources.tolist()):
        assert source in allowed(policy, names, graph)


def test_minority_takes_the_rarest_label_of_a_graph() -> None:
    # Label 0 is everywhere, label 1 once: two classes, however many combinations there are.
    targets = torch.ones(40, 1) * torch.tensor([1.0, 0.0])
    targets[7, 1] = 1.0
    random, pairing = np.random.default_rng(1), Pairing("minority")
    drawn = np.concatenate([pairing.sources(targets, "multilabel", random) for _ in range(50)])
    assert (drawn == 7).mean() == pytest.approx(0.5, abs=4 * math.sqrt(0.25 / 2000))


def test_mixed_targets_belong_to_the_class_they_have_most_of() -> None:
    batch = random_batch(generator(1), graphs=4)
    batch.y = torch.tensor([[0.7, 0.3], [0.2, 0.8], [0.9, 0.1], [0.4, 0.6]])
    mixed = GraphTransplant(pairing="same-class").mix(batch)
    assert mixed.source_of.tolist() == [2, 3, 0, 1]


@pytest.mark.parametrize("policy", ["same-class", "cross-class", "minority"])
def test_regression_has_no_classes(policy: str) -> None:
    message = f"pairing '{policy}' needs classes, but the task is regression: use pairing='random'"
    for refused in (
        lambda: Pairing(policy).check("regression"),
        lambda: Pairing(policy).sources(torch.rand(3, 1), "regression", np.random.default_rng()),
    ):
        with pytest.raises(GraphTransplantError, match=message):
            refused()
