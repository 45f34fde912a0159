"""Targets and soft losses, against torch's own losses."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from torch_geometric.data import Data

import graph_transplant as gt
from graph_transplant.errors import DataError
from graph_transplant.graphs import task_of
from graph_transplant.targets import (
    TargetScale,
    as_targets,
    batch_targets,
    graph_losses,
    rarest_label,
)
from strategies import random_batch, rings_and_stars, seeds


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


@given(seeds(), st.integers(1, 6), st.integers(1, 5))
def test_multiclass_is_torchs_cross_entropy_with_probabilities(
    seed: int, graphs: int, classes: int
) -> None:
    logits = (5 * draw(seed, graphs, classes)).requires_grad_()
    targets = draw(seed + 1, graphs, classes).softmax(1)
    ours = graph_losses(logits, targets)
    torchs = cross_entropy(logits, targets, reduction="none")
    torch.testing.assert_close(ours, torchs)
    gradients = [torch.autograd.grad(v.sum(), logits)[0] for v in (ours, torchs)]
    torch.testing.assert_close(*gradients)


def test_mixed_targets_give_the_papers_mixed_loss() -> None:
    logits = draw(0, 4, 3)
    source, own = torch.tensor([0, 1, 2, 0]), torch.tensor([2, 1, 0, 1])
    weight = torch.tensor([0.25, 0.5, 0.0, 1.0], dtype=torch.double)
    one, other = as_targets(source, 3).double(), as_targets(own, 3).double()
    mixed = weight.unsqueeze(1) * one + (1 - weight.unsqueeze(1)) * other
    expected = weight * cross_entropy(logits, source, reduction="none")
    expected += (1 - weight) * cross_entropy(logits, own, reduction="none")
    torch.testing.assert_close(graph_losses(logits, mixed), expected)


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_missing_entries_do_not_count(task: str) -> None:
    logits = draw(1, 4, 3).requires_grad_()
    targets = draw(2, 4, 3).sigmoid()
    present = torch.tensor(
        [[True, False, True], [True, True, True], [False, False, True], [False, False, False]]
    )
    torchs = binary_cross_entropy_with_logits if task == "multilabel" else mse_loss
    losses = graph_losses(logits, targets.masked_fill(~present, float("nan")), task)
    for graph in range(3):
        here = present[graph]
        expected = torchs(logits[graph, here], targets[graph, here])
        torch.testing.assert_close(losses[graph], expected)
    assert float(losses[3].detach()) == 0.0
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert bool(torch.isfinite(gradient).all())
    assert bool((gradient[~present] == 0).all())
    assert bool((gradient[present] != 0).all())


def test_losses_refuse_what_does_not_fit() -> None:
    with pytest.raises(DataError, match=r"shape \[2, 3\].*shape \[2, 4\]"):
        graph_losses(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="`task` must be one of"):
        graph_losses(torch.zeros(2, 3), torch.zeros(2, 3), "ranking")


def test_as_targets() -> None:
    assert as_targets(torch.tensor([1, 0]), 2).tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert as_targets(torch.tensor([[1], [0]]), 2).tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert as_targets(torch.tensor([[1, 1], [0, 1]]), 2).tolist() == [[1.0, 1.0], [0.0, 1.0]]
    assert as_targets(torch.tensor([0.5, 2.0]), 1).tolist() == [[0.5], [2.0]]
    soft = torch.tensor([[0.2, 0.8]])
    assert torch.equal(as_targets(soft, 2), soft)


@pytest.mark.parametrize(
    ("y", "outputs", "message"),
    [
        (torch.tensor([0, 3]), 3, "between 0 and 2; got 3"),
        (torch.tensor([0, -1]), 3, "between 0 and 2; got -1"),
        (torch.zeros(2, 3), 2, "2 columns, one per output; got 3"),
        (torch.zeros(2), 2, "2 columns, one per output; got 1"),
    ],
)
def test_targets_out_of_range(y: torch.Tensor, outputs: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_targets(y, outputs)


def test_batch_targets() -> None:
    batch = random_batch(torch.Generator().manual_seed(0), graphs=3)
    assert torch.equal(batch_targets(batch), torch.eye(3))
    assert batch_targets(batch, 5).shape == (3, 5)
    batch.y = torch.rand(3, 4)
    assert torch.equal(batch_targets(batch), batch.y)
    with pytest.raises(DataError, match=r"`batch.y`"):
        batch_targets(Data(edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=1))


@pytest.mark.parametrize(
    ("y", "task"),
    [
        (torch.tensor([0, 4]), "multiclass"),
        (torch.tensor([[0], [4]]), "multiclass"),
        (torch.tensor([[0, 1], [1, 1]]), "multilabel"),
        (torch.tensor([[0.0, float("nan")]]), "multilabel"),
        (torch.tensor([[0.5]]), "regression"),
    ],
)
def test_task_of(y: torch.Tensor, task: str) -> None:
    assert task_of(y) == task


# ------------------------------------------------------------------ classes of several labels


@given(seeds(), st.integers(1, 20), st.integers(1, 5))
def test_the_rarest_label_is_that_of_a_plain_count(seed: int, graphs: int, labels: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(graphs, labels, generator=generator) < 0.4).float()
    y[torch.rand(graphs, labels, generator=generator) < 0.3] = math.nan
    found = rarest_label(y)
    assert found.dtype == torch.long
    rows = y.tolist()
    count = [sum(row[label] == 1 for row in rows) for label in range(labels)]
    for row, place in zip(rows, found.tolist(), strict=True):
        own = [label for label in range(labels) if row[label] == 1]
        expected = max(own, key=lambda label: (-count[label], label)) + 1 if own else 0
        assert place == expected


# ------------------------------------------------------------------ units of numbers


def numbers(y: torch.Tensor) -> gt.GraphStore:
    return rings_and_stars(len(y), seed=0, name="numbers", y=y, task="regression")


@given(seeds(), st.integers(2, 20), st.integers(1, 3), st.sampled_from([0.0, 0.4]))
def test_a_scale_is_that_of_sklearn(seed: int, graphs: int, outputs: int, missing: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    y = 30 * torch.randn(graphs, outputs, generator=generator) + 100
    y[torch.rand(graphs, outputs, generator=generator) < missing] = math.nan
    y[0] = 1.0
    y[1] = 2.0  # every column varies
    store = numbers(y)
    scale, oracle = TargetScale.of(store), StandardScaler().fit(y.double().numpy())
    np.testing.assert_allclose(scale.mean, oracle.mean_)
    np.testing.assert_allclose(scale.std, oracle.scale_)
    standardised = scale.apply(store)
    assert standardised.y.dtype == torch.float32
    assert torch.equal(store.y.nan_to_num(), y.nan_to_num()), "the store stays as it is"
    np.testing.assert_allclose(
        standardised.y, oracle.transform(y.double().numpy()), rtol=1e-5, atol=1e-6
    )
    torch.testing.assert_close(scale.undo(standardised.y), y, equal_nan=True, rtol=1e-4, atol=1e-4)
    again = TargetScale.from_dict(json.loads(json.dumps(scale.as_dict())))
    assert torch.equal(again.mean, scale.mean)
    assert torch.equal(again.std, scale.std)


def test_columns_that_do_not_vary_keep_their_unit() -> None:
    column = torch.full((3,), 0.1)
    y = torch.stack(
        (column, torch.full((3,), math.nan), torch.tensor([math.nan, 7.0, math.nan])), 1
    )
    scale = TargetScale.of(numbers(y))
    # The mean of 0.1 and 0.1 and 0.1 is not 0.1 to the last digit; its deviation is no unit.
    assert scale.as_dict() == {"mean": [float(column[0]), 0.0, 7.0], "std": [1.0, 1.0, 1.0]}
    assert scale.apply(numbers(y)).y[:, 0].tolist() == [0.0, 0.0, 0.0]


def test_a_scale_gives_back_the_type_it_was_given() -> None:
    scale = TargetScale(torch.tensor([1.0]).double(), torch.tensor([2.0]).double())
    for dtype in (torch.float32, torch.float64):
        assert scale.undo(torch.ones(2, 1, dtype=dtype)).dtype == dtype
    assert scale.undo(torch.tensor([[3.0], [math.nan]])).nan_to_num(-1).tolist() == [[7.0], [-1.0]]


def test_a_scale_is_of_numbers_and_of_as_many() -> None:
    with pytest.raises(DataError, match="standardised, but the task of rings is multiclass"):
        TargetScale.of(rings_and_stars(4, seed=0, name="rings"))
    scale = TargetScale.of(numbers(torch.rand(4, 2)))
    with pytest.raises(DataError, match=r"scale of 2 outputs needs .*\[graphs, 2\]; got \[4, 1\]"):
        scale.apply(numbers(torch.rand(4, 1)))
    with pytest.raises(DataError, match=r"needs values of shape \[graphs, 2\]; got \[2\]"):
        scale.undo(torch.zeros(2))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "`mean` of a target scale must be a list of finite numbers; got None"),
        ({"mean": [1.0]}, "`std` of a target scale must be a list"),
        ({"mean": 1.0, "std": [1.0]}, "`mean` .* got 1.0"),
        ({"mean": [True], "std": [1.0]}, r"`mean` .* got \[True\]"),
        ({"mean": ["1"], "std": [1.0]}, r"`mean` .* got \['1'\]"),
        ({"mean": [math.nan], "std": [1.0]}, r"`mean` .* got \[nan\]"),
        ({"mean": [10**400], "std": [1.0]}, "`mean` .* finite numbers"),
        ({"mean": [1.0], "std": [0.0]}, r"`std` of a target scale must be positive; got \[0.0\]"),
        ({"mean": [1.0], "std": [-1.0]}, "must be positive"),
        ({"mean": [1.0, 2.0], "std": [1.0]}, "one entry per output each; got 2 and 1"),
    ],
)
def test_a_scale_that_cannot_be_one_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        TargetScale.from_dict(values)
