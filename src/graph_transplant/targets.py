"""Targets as float ``[graphs, outputs]``, and the losses that take them.

From here on a target is a row of numbers: one-hot or mixed class probabilities, labels of which
some may be missing (NaN), or regression values. Mixing is linear in all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, log_softmax, one_hot
from torch_geometric.data import Data

from graph_transplant.errors import DataError, check_choice
from graph_transplant.graphs import TASKS


def as_targets(y: Tensor, num_outputs: int) -> Tensor:
    """Turn what a batch carries as ``y`` into float targets.

    Args:
        y: Class numbers, integer ``[graphs]`` or ``[graphs, 1]``; or targets, float
            ``[graphs, outputs]``.
        num_outputs: Number of outputs.

    Returns:
        float ``[graphs, num_outputs]``.

    Example:
        >>> as_targets(torch.tensor([2, 0]), 3)
        tensor([[0., 0., 1.],
                [1., 0., 0.]])
    """
    if y.is_floating_point():
        targets = y.unsqueeze(1) if y.dim() == 1 else y
        if targets.shape[1] != num_outputs:
            raise DataError(
                f"targets must have {num_outputs} columns, one per output; got {targets.shape[1]}"
            )
        return targets
    if y.dim() == 2 and y.shape[1] == num_outputs and num_outputs > 1:
        return y.to(torch.get_default_dtype())
    labels = y.reshape(-1)
    if labels.numel() and (int(labels.min()) < 0 or int(labels.max()) >= num_outputs):
        wrong = labels[(labels < 0) | (labels >= num_outputs)]
        raise DataError(f"labels must lie between 0 and {num_outputs - 1}; got {int(wrong[0])}")
    return one_hot(labels.to(torch.long), num_outputs).to(torch.get_default_dtype())


def batch_targets(batch: Data, num_outputs: int | None = None) -> Tensor:
    """Return the targets of a batch.

    Args:
        batch: A PyG batch with ``y``.
        num_outputs: Number of outputs. By default what the batch's store says, else what its ``y``
            shows: for classes the largest label of *this* batch.

    Returns:
        float ``[graphs, outputs]``.
    """
    y = batch.y if "y" in batch else None
    if not isinstance(y, Tensor):
        raise DataError("the batch has no targets: `batch.y` must be a tensor")
    if num_outputs is None:
        num_outputs = getattr(batch, "_num_outputs", None)
    if num_outputs is None:
        wide = y.dim() == 2 and y.shape[1] > 1
        num_outputs = y.shape[1] if wide else 1 if y.is_floating_point() else int(y.max()) + 1
    return as_targets(y, num_outputs)


def graph_losses(logits: Tensor, targets: Tensor, task: str = "multiclass") -> Tensor:
    """Compute the loss of every graph.

    Cross-entropy with soft targets equals the paper's ``λ L(G', y_π) + (1 - λ) L(G', y)``.

    Args:
        logits: float ``[graphs, outputs]``.
        targets: float ``[graphs, outputs]``; for ``"multilabel"`` and ``"regression"`` NaN marks an
            entry that is missing and does not count.
        task: ``"multiclass"`` (cross-entropy), ``"multilabel"`` (binary cross-entropy) or
            ``"regression"`` (squared error).

    Returns:
        float ``[graphs]``.

    Example:
        >>> logits = torch.tensor([[0.0, 0.0]])
        >>> graph_losses(logits, torch.tensor([[0.25, 0.75]]))
        tensor([0.6931])
    """
    if logits.shape != targets.shape:
        raise DataError(
            f"the model gives outputs of shape {list(logits.shape)}, the targets have shape "
            f"{list(targets.shape)}"
        )
    check_choice("task", task, TASKS)
    if task == "multiclass":
        return -(targets * log_softmax(logits, dim=1)).sum(1)
    present = ~targets.isnan()
    filled = targets.masked_fill(~present, 0.0)
    if task == "multilabel":
        each = binary_cross_entropy_with_logits(logits, filled, reduction="none")
    else:
        each = (logits - filled).square()
    return (each * present).sum(1) / present.sum(1).clamp(min=1)
