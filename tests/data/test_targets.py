"""Targets and losses against torch's own, classes of several labels, units of numbers."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from graph_transplant.data import GraphBatch, GraphStore
from graph_transplant.data.targets import Loss, TargetScale, as_targets, batch_targets, rarest_label
from graph_transplant.errors import DataError, GraphTransplantError
from helpers.strategies import draw, generator, random_batch, rings_and_stars, seeds

# ------------------------------------------------------------------ losses


@pytest.mark.parametrize("weighted", [False, True])
@given(seed=seeds(), graphs=st.integers(1, 6), classes=st.integers(1, 5))
def test_classes_have_torchs_cross_entropy(
    weighted: bool, seed: int, graphs: int, classes: int
) -> None:
    logits = (5 * draw(seed, graphs, classes)).requires_grad_()
    targets = draw(seed + 1, graphs, classes).softmax(1)
    weight = draw(seed + 2, classes).exp() if weighted else None
    ours = Loss(class_weight=weight)(logits, targets)
    torchs = cross_entropy(logits, targets, weight=weight, reduction="none")
    torch.testing.assert_close(ours, torchs)
    torch.testing.assert_close(
        *(torch.autograd.grad(value.sum(), logits)[0] for value in (ours, torchs))
    )


def test_mixed_targets_give_the_papers_mixed_loss() -> None:
    logits = draw(0, 4, 3)
    source, own = torch.tensor([0, 1, 2, 0]), torch.tensor([2, 1, 0, 1])
    share = torch.tensor([0.25, 0.5, 0.0, 1.0], dtype=torch.double)
    one, other = (as_targets(labels, 3).double() for labels in (source, own))
    mixed = share.unsqueeze(1) * one + (1 - share.unsqueeze(1)) * other
    expected = share * cross_entropy(logits, source, reduction="none")
    expected += (1 - share) * cross_entropy(logits, own, reduction="none")
    torch.testing.assert_close(Loss()(logits, mixed), expected)


@pytest.mark.parametrize("task", ["multilabel", "multilabel weighted", "regression"])
def test_missing_entries_do_not_count(task: str) -> None:
    logits, targets = draw(1, 4, 3).requires_grad_(), draw(2, 4, 3).sigmoid()
    present = torch.tensor([[1, 0, 1], [1, 1, 1], [0, 0, 1], [0, 0, 0]], dtype=torch.bool)
    weight = torch.tensor([0.5, 2.0, 3.0]).double() if "weighted" in task else None
    losses = Loss(task.split()[0], weight)(logits, targets.masked_fill(~present, math.nan))
    for graph in range(3):
        here = present[graph]
        pair = logits[graph, here], targets[graph, here]
        if task == "regression":
            expected = mse_loss(*pair)
        else:
            each = None if weight is None else weight[here]
            expected = binary_cross_entropy_with_logits(*pair, weight=each)
        torch.testing.assert_close(losses[graph], expected)
    assert float(losses[3].detach()) == 0.0
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert torch.equal(gradient != 0, present)


def test_a_loss_of_the_users_own() -> None:
    logits, targets = draw(1, 4, 3), draw(2, 4, 3).softmax(1)
    smoothed = Loss(loss_fn=lambda a, b: cross_entropy(a, b, label_smoothing=0.2, reduction="none"))
    expected = cross_entropy(logits, 0.8 * targets + 0.2 / 3, reduction="none")
    torch.testing.assert_close(smoothed(logits, targets), expected)
    with pytest.raises(GraphTransplantError, match=r'one loss per graph, \[4\].*reduction="none"'):
        Loss(loss_fn=cross_entropy)(logits, targets)


# ------------------------------------------------------------------ targets


def test_as_targets() -> None:
    assert as_targets(torch.tensor([1, 0]), 2).tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert as_targets(torch.tensor([[1], [0]]), 2).tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert as_targets(torch.tensor([[1, 1], [0, 1]]), 2).tolist() == [[1.0, 1.0], [0.0, 1.0]]
    assert as_targets(torch.tensor([0.5, 2.0]), 1).tolist() == [[0.5], [2.0]]
    assert as_targets(torch.tensor([[0.25, 0.75]]), 2).tolist() == [[0.25, 0.75]]


@pytest.mark.parametrize(
    ("y", "outputs", "message"),
    [
        (torch.tensor([0, 3]), 3, "between 0 and 2; got 3"),
        (torch.tensor([0, -1]), 3, "between 0 and 2; got -1"),
        (torch.zeros(2, 3), 2, "2 columns, one per output; got 3"),
        (torch.zeros(2), 2, "2 columns, one per output; got 1"),
    ],
)
def test_targets_out_of_range(y: Tensor, outputs: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_targets(y, outputs)


def test_targets_of_a_batch() -> None:
    data = random_batch(generator(0), graphs=3)
    batch = GraphBatch.from_pyg(data)
    assert torch.equal(batch_targets(batch), torch.eye(3))
    assert torch.equal(batch_targets(batch, 5), torch.eye(3, 5))
    data.y = torch.rand(3, 4)
    assert torch.equal(batch_targets(GraphBatch.from_pyg(data)), data.y)


@given(seeds(), st.integers(1, 20), st.integers(1, 5))
def test_the_rarest_label_is_that_of_a_plain_count(seed: int, graphs: int, labels: int) -> None:
    source = generator(seed)
    y = (torch.rand(graphs, labels, generator=source) < 0.4).float()
    y[torch.rand(graphs, labels, generator=source) < 0.3] = math.nan
    rows = y.tolist()
    count = [sum(row[label] == 1 for row in rows) for label in range(labels)]
    for row, place in zip(rows, rarest_label(y).tolist(), strict=True):
        own = [label for label in range(labels) if row[label] == 1]
        assert place == (max(own, key=lambda label: (-count[label], label)) + 1 if own else 0)


# ------------------------------------------------------------------ units of numbers


def numbers(y: Tensor) -> GraphStore:
    return rings_and_stars(len(y), seed=0, name="numbers", y=y, task="regression")


@given(seeds(), st.integers(2, 20), st.integers(1, 3), st.sampled_from([0.0, 0.4]))
def test_a_scale_is_that_of_sklearn(seed: int, graphs: int, outputs: int, missing: float) -> None:
    source = generator(seed)
    y = 30 * torch.randn(graphs, outputs, generator=source) + 100
    y[torch.rand(graphs, outputs, generator=source) < missing] = math.nan
    y[0], y[1] = 1.0, 2.0  # every column varies
    store, oracle = numbers(y), StandardScaler().fit(y.double().numpy())
    scale = TargetScale.of(store)
    np.testing.assert_allclose(scale.mean, oracle.mean_)
    np.testing.assert_allclose(scale.std, oracle.scale_)
    applied, expected = scale.apply(store).y, oracle.transform(y.double().numpy())
    np.testing.assert_allclose(applied, expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(store.y.nan_to_num(), y.nan_to_num()), "the store stays as it is"
    back = scale.undo(applied)
    assert back.dtype == torch.float32
    torch.testing.assert_close(back, y, equal_nan=True, rtol=1e-4, atol=1e-4)
    again = TargetScale.from_dict(json.loads(json.dumps(scale.as_dict())))
    assert torch.equal(again.mean, scale.mean)
    assert torch.equal(again.std, scale.std)


def test_columns_that_do_not_vary_keep_their_unit() -> None:
    nan = math.nan
    y = torch.tensor([[0.1, nan, nan], [0.1, nan, 7.0], [0.1, nan, nan]])
    scale = TargetScale.of(numbers(y))
    # The mean of three times 0.1 is not 0.1 to the last digit.
    assert scale.as_dict() == {"mean": [float(y[0, 0]), 0.0, 7.0], "std": [1.0, 1.0, 1.0]}


@pytest.mark.parametrize(
    "values",
    [
        {"mean": [1.0]},
        {"mean": [math.nan], "std": [1.0]},
        {"mean": [10**400], "std": [1.0]},
        {"mean": [1.0], "std": [0.0]},
    ],
)
def test_a_scale_that_cannot_be_one_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(DataError, match="target scale"):
        TargetScale.from_dict(values)
