"""Targets as float ``[graphs, outputs]``, their losses, and outputs in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, log_softmax, one_hot

from graph_transplant.data.batch import GraphBatch
from graph_transplant.data.featurizer import Featurizer
from graph_transplant.data.store import GraphStore
from graph_transplant.errors import DataError, GraphTransplantError, brief, check_choice
from graph_transplant.metrics import TASKS


def as_numbers(name: str, given: Any) -> Tensor:
    """Convert an argument to a tensor."""
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        raise GraphTransplantError(f"`{name}` must be numbers; got {given!r}") from None


def as_targets(y: Tensor, num_outputs: int, *, checked: bool = False) -> Tensor:
    """Convert ``y``, class numbers or float targets, to float targets.

    ``checked`` class numbers lie in their range: comparing them would wait for the device.
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
    wrong = labels[:0] if checked else labels[(labels < 0) | (labels >= num_outputs)]
    if len(wrong):
        raise DataError(f"labels must lie between 0 and {num_outputs - 1}; got {int(wrong[0])}")
    return one_hot(labels.to(torch.long), num_outputs).to(torch.get_default_dtype())


def batch_targets(
    batch: GraphBatch, num_outputs: int | None = None, task: str = "multiclass"
) -> Tensor:
    """Return the targets of a batch, float ``[graphs, outputs]``.

    By default, the number of outputs is that of the batch's store, else inferred from ``y``: for
    classes, from the largest label of *this* batch. Integers are classes only for ``"multiclass"``.
    """
    y, graphs = targets_of(batch), batch.num_graphs
    y = y.reshape(1) if y.dim() == 0 else y
    if task != "multiclass" and not y.is_floating_point():  # integer labels or values
        y = y.to(torch.get_default_dtype())
    num_outputs = num_outputs or batch.num_outputs
    if num_outputs is None:
        wide = y.dim() == 2 and y.shape[1] > 1
        num_outputs = y.shape[1] if wide else 1 if y.is_floating_point() else int(y.max()) + 1
    if y.is_floating_point() and y.shape == (graphs * num_outputs,):
        y = y.view(graphs, num_outputs)  # PyG concatenates 1-D targets
    if len(y) != graphs:
        raise DataError(f"`y` must have {graphs} rows, one per graph; got {list(y.shape)}")
    # A store checks its labels.
    return as_targets(y, num_outputs, checked=(batch.num_outputs or math.inf) <= num_outputs)


def targets_of(batch: GraphBatch) -> Tensor:
    """Return ``y`` of a batch; raise if it has none."""
    if batch.y is None:
        raise DataError(
            "the batch has no targets: give every graph a `y`, a tensor with its class or values"
        )
    return batch.y


@dataclass(frozen=True)
class Loss:
    """Loss per graph.

    Cross-entropy with soft targets equals the paper's ``λ L(G', y_π) + (1 - λ) L(G', y)``.

    Args:
        task: ``"multiclass"`` (cross-entropy), ``"multilabel"`` (binary cross-entropy) or
            ``"regression"`` (squared error).
        class_weight: Weight of every class or label, float ``[outputs]``.
        loss_fn: Replaces these losses: takes logits and soft targets, both ``[graphs, outputs]``,
            and returns one loss per graph, like ``F.cross_entropy`` with ``reduction="none"``.
    """

    task: str = "multiclass"
    class_weight: Tensor | None = None
    loss_fn: Callable[[Tensor, Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        check_choice("task", self.task, TASKS)
        if self.class_weight is None:
            return
        if self.loss_fn or self.task == "regression":
            reason = "`loss_fn` is given" if self.loss_fn else "the task is regression"
            raise GraphTransplantError(f"`class_weight` cannot be used where {reason}")
        weight = as_numbers("class_weight", self.class_weight)
        object.__setattr__(self, "class_weight", weight)

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the losses, float ``[graphs]``."""
        if logits.shape != targets.shape:
            raise DataError(
                f"the model gives outputs of shape {list(logits.shape)}, the targets have shape "
                f"{list(targets.shape)}"
            )
        if self.loss_fn is not None:
            return self._own_losses(self.loss_fn, logits, targets)
        weight = self.class_weight
        if weight is not None and weight.shape != logits.shape[1:]:
            raise GraphTransplantError(
                f"`class_weight` must have {logits.shape[1]} entries, one per output; got "
                f"{list(weight.shape)}"
            )
        if self.task == "multiclass":
            if weight is not None:
                targets = targets * weight.to(targets)
            return -(targets * log_softmax(logits, dim=1)).sum(1)
        present = ~targets.isnan()
        filled = targets.masked_fill(~present, 0.0)
        if self.task == "multilabel":
            # The loss has the type of its targets: promote them for double-precision models.
            filled = filled.to(torch.promote_types(filled.dtype, logits.dtype))
            each = binary_cross_entropy_with_logits(logits, filled, reduction="none")
            each = each if weight is None else each * weight.to(each)
        else:
            each = (logits - filled).square()
        return (each * present).sum(1) / present.sum(1).clamp(min=1)

    @staticmethod
    def _own_losses(
        loss_fn: Callable[[Tensor, Tensor], Tensor], logits: Tensor, targets: Tensor
    ) -> Tensor:
        shape = list(logits.shape)
        try:
            losses = loss_fn(logits, targets)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise GraphTransplantError(
                f"`loss_fn` failed: {brief(error)}. Its targets are float {shape}, one column per "
                "output, not class numbers, as those of mixed graphs lie between classes. For "
                "F.nll_loss leave `loss_fn` out: the default loss of log-probabilities is the same"
            ) from error
        if losses.shape == logits.shape[:1]:
            return losses
        advice = ""
        if losses.dim() == 0:
            advice = ', not their mean: use reduction="none"'
        elif losses.shape == logits.shape:
            advice = ": reduce over outputs, as in lambda z, y: loss_fn(z, y).mean(1)"
        raise GraphTransplantError(
            f"`loss_fn` must return one loss per graph, [{len(logits)}]; got {list(losses.shape)}"
            f"{advice}"
        )


def rarest_label(y: Tensor) -> Tensor:
    """Return the rarest positive label of every graph plus 1 (0 if none); ties go to the last."""
    positive = y == 1
    counts = positive.sum(0)
    rank = torch.arange(1, counts.numel() + 1, device=counts.device)
    rarity = torch.zeros_like(counts).index_copy_(
        0, counts.argsort(descending=True, stable=True), rank
    )
    rarest, label = (positive * rarity).max(1)
    return torch.where(rarest > 0, label + 1, 0)


@dataclass(frozen=True, eq=False)
class TargetScale:
    """Mean and standard deviation of regression targets; ``std`` is 1 for constant targets."""

    mean: Tensor
    std: Tensor

    def __post_init__(self) -> None:
        same = self.mean.shape == self.std.shape and self.mean.dim() == 1
        finite = same and bool(torch.stack((self.mean, self.std)).isfinite().all())
        if not finite or not bool((self.std > 0).all()):
            raise DataError(
                "`mean` and `std` of a target scale must be finite numbers, one each per output, "
                f"and `std` positive; got {self.mean.tolist()} and {self.std.tolist()}"
            )

    @staticmethod
    def of(store: GraphStore) -> TargetScale:
        """Compute the scale of a regression data set, ignoring missing entries."""
        if store.task != "regression":
            raise DataError(
                f"only the targets of regression are standardised, but the task of {store.name} is "
                f"{store.task}"
            )
        means, deviations = [], []
        for column in store.y.to(torch.double).unbind(1):
            values = column[~column.isnan()]
            varies = bool(len(values)) and bool(values.min() < values.max())
            # The mean of equal numbers may have a rounding error.
            means.append(float(values.mean() if varies else values[0]) if len(values) else 0.0)
            deviations.append(float(values.std(correction=0)) if varies else 1.0)
        mean, std = torch.tensor([means, deviations], dtype=torch.double).unbind(0)
        return TargetScale(mean, std)

    def apply(self, store: GraphStore) -> GraphStore:
        """Return the same graphs with standardised targets."""
        scaled = (store.y.to(torch.double) - self.mean) / self.std
        return store.with_targets(scaled.to(store.y.dtype))

    def undo(self, outputs: Tensor) -> Tensor:
        """Convert outputs of a model to the units of the data."""
        mean, std = self.mean.to(outputs.device), self.std.to(outputs.device)
        return (outputs.to(torch.double) * std + mean).to(outputs.dtype)

    def as_dict(self) -> dict[str, list[float]]:
        """Return the scale as JSON values."""
        return {"mean": self.mean.tolist(), "std": self.std.tolist()}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> TargetScale:
        """Parse the output of :meth:`as_dict`; raise if malformed."""
        try:
            columns = [torch.tensor(values[name], dtype=torch.double) for name in ("mean", "std")]
        except (KeyError, TypeError, ValueError, OverflowError, RuntimeError):
            raise DataError(
                f"a target scale must be two lists of numbers, `mean` and `std`; got {values!r}"
            ) from None
        return TargetScale(*columns)


NO_POSITIVE_LABEL: Final = "none of the labels"

LABEL_THRESHOLD: Final = 0.5
"""Threshold for the targets and predicted probabilities of labels."""

# Smaller shares are left out.
_NOTHING: Final = 0.0005


def graph_id(store: GraphStore, number: int) -> str:
    """The id of a graph, or its number counted from 1."""
    if store.rows is None:
        return str(number + 1)
    return store.rows.ids[number] or str(int(store.rows.number[number]))


def class_column(task: str, featurizer: Featurizer | None) -> str:
    """The input column with the classes; empty if there is none."""
    targets = () if featurizer is None else featurizer.targets
    return targets[0] if task == "multiclass" and len(targets) == 1 else ""


def output_words(task: str, names: Sequence[str], values: Sequence[float]) -> str:
    """Format a row of targets or outputs: the likeliest class, positive labels, or known values.

    Example:
        >>> output_words("multilabel", ["a", "b", "c"], [0.9, 0.6, 0.2])
        'a, b'
    """
    if task == "multiclass":
        return names[max(range(len(names)), key=values.__getitem__)]
    pairs = list(zip(names, values, strict=True))
    if task == "multilabel":
        return (
            ", ".join(name for name, value in pairs if value >= LABEL_THRESHOLD)
            or NO_POSITIVE_LABEL
        )
    return ", ".join(f"{name} {value:.4g}" for name, value in pairs if not math.isnan(value))


def label_words(store: GraphStore, number: int) -> str | None:
    """Format the true label or value of a graph; ``None`` if unknown."""
    names = store.output_names
    if store.task == "multiclass":
        return None if store.num_outputs < 2 else names[int(store.y[number])]
    values = store.y[number].reshape(-1).tolist()
    return None if all(map(math.isnan, values)) else output_words(store.task, names, values)


def is_correct(task: str, outputs: Sequence[float], targets: Sequence[float]) -> bool | None:
    """Whether a prediction is correct; ``None`` for regression and if no target is known.

    ``targets`` are the number of the class, or a value for each label (NaN if missing).
    """
    if task == "regression":
        return None
    if task == "multiclass":
        return max(range(len(outputs)), key=outputs.__getitem__) == targets[0]
    pairs = zip(outputs, targets, strict=True)
    known = [(value, target) for value, target in pairs if not math.isnan(target)]
    return (
        all((v >= LABEL_THRESHOLD) == (t >= LABEL_THRESHOLD) for v, t in known) if known else None
    )


def target_words(
    store: GraphStore, row: Sequence[float]
) -> tuple[str, tuple[tuple[str, float], ...]]:
    """Format mixed targets; also return the weights of classes or labels, largest first."""
    names = store.output_names
    if store.task == "regression":
        return output_words(store.task, names, row) or "unknown", ()
    # The comparison also excludes missing entries (NaN).
    parts = [(name, share) for name, share in zip(names, row, strict=True) if share > _NOTHING]
    parts.sort(key=lambda part: -part[1])
    words = ", ".join(f"{100 * share:.0f} % {name}" for name, share in parts)
    return words or NO_POSITIVE_LABEL, tuple(parts)
