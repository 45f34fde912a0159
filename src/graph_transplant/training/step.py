"""One training step on a batch and its virtual samples, also for custom training loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from graph_transplant.augment import Augmentation, CleanPass, Virtual
from graph_transplant.augment.base import as_augmentations
from graph_transplant.data import GraphBatch, as_batch
from graph_transplant.data.pyg import Data
from graph_transplant.data.targets import Loss, batch_targets, targets_of
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.nn import GraphClassifier, keeping_statistics
from graph_transplant.nn.adapter import ModuleAdapter, Predictor, as_predictor, module_of, unwrapped
from graph_transplant.training.distributed import Ranks

Augmentations = Augmentation | Sequence[Augmentation]
LossFunction = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class StepLosses:
    """The losses of one step: original graphs, virtual samples, parameters of augmentations."""

    clean: Tensor
    virtual: Tensor
    auxiliary: Tensor

    @property
    def total(self) -> Tensor:
        """The training objective."""
        return self.clean + self.virtual + self.auxiliary


def step_losses(
    model: Predictor,
    batch: GraphBatch,
    augment: Sequence[Augmentation],
    *,
    loss_of: Loss,
    generator: torch.Generator | None,
) -> StepLosses:
    """Run a model in training mode on a batch and on its virtual samples."""
    prediction = model.run(batch, layers=bool(augment))
    logits = prediction.logits
    if loss_of.task == "multiclass" and logits.shape[1] == 1:
        raise DataError(
            "the model gives one output per graph, but classes need one logit each: let it give "
            "two, or make `y` float and pass task='multilabel'"
        )
    targets = batch_targets(batch, logits.shape[1], loss_of.task)
    if isinstance(model, ModuleAdapter) and not model.logits_checked:
        if loss_of.task == "multiclass" and not loss_of.loss_fn:
            _check_logits(logits)
        model.logits_checked = True  # looking at values waits for the device
    clean = CleanPass(batch, targets, prediction, loss_of)
    virtual = auxiliary = clean.loss.new_zeros(())
    # Virtual samples must not change running statistics.
    with keeping_statistics(module_of(model)):
        for augmentation in augment:
            samples = augmentation(clean, model=model, generator=generator)
            if not isinstance(samples, Virtual):
                name, given = type(augmentation).__name__, type(samples).__name__
                raise GraphTransplantError(f"{name} must return VirtualGraphs; got {given}")
            virtual = virtual + samples.loss(model, loss_of)
            if samples.auxiliary_loss is not None:
                auxiliary = auxiliary + samples.auxiliary_loss
    return StepLosses(clean.loss, virtual, auxiliary)


def take_step(
    model: Predictor,
    batch: GraphBatch | None,
    augment: Sequence[Augmentation],
    optimizer: Optimizer,
    *,
    loss_of: Loss,
    clip_norm: float,
    generator: torch.Generator | None,
    share: float = 1.0,
    ranks: Ranks | None = None,
) -> StepLosses | None:
    """Take one optimiser step on a batch and its virtual samples; return the losses before it.

    ``clip_norm`` limits the gradient of the model only. In distributed training, ``share`` is this
    process's fraction of the batch; ``batch`` is ``None`` if it has no graphs.
    """
    optimizer.zero_grad(set_to_none=True)
    losses = None
    if batch is not None:
        losses = step_losses(model, batch, augment, loss_of=loss_of, generator=generator)
        torch.autograd.backward(losses.total * share)
    if ranks is not None:
        ranks.add_gradients(p for group in optimizer.param_groups for p in group["params"])
    nn.utils.clip_grad_norm_(module_of(model).parameters(), clip_norm)
    optimizer.step()
    return losses


def _check_logits(logits: Tensor) -> None:
    """Raise if the outputs are probabilities, as from a final softmax."""
    rows = logits.detach()
    if len(rows) > 1 and bool((rows >= 0).all()) and bool(((rows.sum(1) - 1).abs() < 1e-5).all()):
        raise GraphTransplantError(
            "the model returns probabilities, but the loss expects logits: leave out the softmax "
            "at its end, or pass a `loss_fn` that takes probabilities"
        )


def augmented_loss(
    model: nn.Module,
    batch: GraphBatch | Data,
    augment: Augmentations,
    *,
    loss_fn: LossFunction | None = None,
    class_weight: Tensor | None = None,
    task: str | None = None,
    output: Callable[[Any], Tensor] | None = None,
    generator: torch.Generator | None = None,
    saliency_module: nn.Module | str | None = None,
    log: Callable[[dict[str, Tensor]], object] | None = None,
) -> Tensor:
    """Return the training loss of a batch with augmentation, ready for ``.backward()``.

    The loss of the original graphs, plus that of the virtual ones, plus the augmentation's own
    training loss, if any. For custom training loops with any model: pass the augmentation's
    parameters to the optimiser as well.

    Args:
        model: A :class:`~graph_transplant.GraphClassifier` or any ``nn.Module`` for PyG batches.
            Fields are passed to ``forward`` by parameter name (``x``, ``edge_index``,
            ``edge_weight``, ``edge_attr``, ``batch``, ``batch_size``, ``num_graphs``). If its only
            required parameter is ``batch``, or not a field, it receives the batch itself.
            ``torch.compile``, ``DataParallel`` and ``DistributedDataParallel`` are supported.
        batch: A PyG batch with ``y``, or a batch from a :class:`~graph_transplant.GraphStore`.
        augment: One augmentation or several.
        loss_fn: Replaces the default loss: takes logits and soft targets, both
            ``[graphs, outputs]``, and returns one loss per graph.
        class_weight: Weight of every class or label, float ``[outputs]``. Losses are averaged over
            graphs, as ``F.cross_entropy`` does with class probabilities, and not divided by the sum
            of weights.
        task: ``"multiclass"``, ``"multilabel"`` or ``"regression"``. Optional for a
            ``GraphClassifier``, or if ``y`` holds one integer class per graph.
        output: Extracts the logits ``[graphs, outputs]`` from what the model returns.
        generator: Source of the augmentation's randomness; ``None`` uses torch's global generator.
        saliency_module: The submodule, or its name, at which the saliency of custom models is
            computed. By default, the message-passing modules.
        log: Called with the parts of the loss, detached: ``"clean"``, ``"virtual"`` and
            ``"auxiliary"``. Lightning's ``log_dict`` or a list's ``append`` will do.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, seed=0)
        >>> loss = gt.augmented_loss(model, store.batch(range(8)), gt.GraphTransplant())
        >>> loss.backward()
    """
    graphs = as_batch(batch)
    task = task or _task_of(model, targets_of(graphs))
    losses = step_losses(
        as_predictor(model, saliency_module, output),
        graphs,
        as_augmentations(augment),
        loss_of=Loss(task, class_weight, loss_fn),
        generator=generator,
    )
    if torch.is_grad_enabled() and not losses.total.requires_grad:
        raise GraphTransplantError(
            "the loss depends on no parameter that requires gradients, so there is nothing to "
            "train: do not freeze all layers of the model"
        )
    if log is not None:
        log({name: part.detach() for name, part in vars(losses).items()})
    return losses.total


def _task_of(model: nn.Module, y: Tensor) -> str:
    """Infer the task from the model or the type of ``y``, never from its values."""
    inner = unwrapped(model)
    if isinstance(inner, GraphClassifier):
        return inner.task
    if not y.is_floating_point() and (y.dim() < 2 or y.shape[1] == 1):
        return "multiclass"
    raise GraphTransplantError(
        f"`y` is {str(y.dtype).removeprefix('torch.')} {list(y.shape)}, which may be labels or "
        "values: pass task='multilabel' or task='regression', or task='multiclass' for soft "
        "class probabilities"
    )
