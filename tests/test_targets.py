"""Targets and soft losses, against torch's own losses."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from torch_geometric.data import Data

from graph_transplant.errors import DataError
from graph_transplant.graphs import task_of
from graph_transplant.targets import as_targets, batch_targets, graph_losses
from strategies import random_batch, seeds


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
