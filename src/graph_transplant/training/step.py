"""One training step on a batch and its virtual samples, also for custom training loops."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from graph_transplant.augment import Augmentation, CleanPass, Virtual
from graph_transplant.augment.base import as_augmentations
from graph_transplant.data import GraphBatch, as_batch
from graph_transplant.data.pyg import Data
from graph_transplant.data.targets import Loss, batch_targets, targets_of
from graph_transplant.errors import DataError, GraphTransplantError, check_in
from graph_transplant.nn import GraphClassifier, keeping_statistics
from graph_transplant.nn.adapter import ModuleAdapter, Predictor, as_predictor, module_of, unwrapped
from graph_transplant.training.distributed import Ranks

Augmentations = Augmentation | Sequence[Augmentation]
LossFunction = Callable[[Tensor, Tensor], Tensor]
Call = Callable[[nn.Module, Any], Any]
Output = Callable[[Any], Tensor | tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class StepLosses:
    """The losses of one step, with gradients, and what the model said of the original graphs.

    Attributes:
        clean: Mean loss of the original graphs.
        virtual: That of the virtual samples, times their weight; summed over augmentations.
        auxiliary: The loss of the augmentations' own parameters.
        extra: The model's own losses, on original graphs and, times their weight, virtual ones.
        logits: Of the original graphs, float ``[graphs, outputs]``.
        targets: Of the original graphs, float ``[graphs, outputs]``.
    """

    clean: Tensor
    virtual: Tensor
    auxiliary: Tensor
    extra: Tensor
    logits: Tensor
    targets: Tensor

    @property
    def total(self) -> Tensor:
        """The training objective: the sum of the four losses."""
        return self.clean + self.virtual + self.auxiliary + self.extra

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """The losses that add up to the total."""
        return self.clean, self.virtual, self.auxiliary, self.extra


def step_losses(
    model: Predictor,
    batch: GraphBatch,
    augment: Sequence[Augmentation],
    *,
    loss_of: Loss,
    generator: torch.Generator | None,
    virtual_weight: float = 1.0,
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
    if (
        isinstance(model, ModuleAdapter)
        and not model.memory.logits_checked
        and loss_of.task == "multiclass"
        and not loss_of.loss_fn
    ):
        _check_logits(logits)
        model.memory.logits_checked = True  # looking at values waits for the device
    clean = CleanPass(batch, targets, prediction, loss_of)
    virtual = auxiliary = nothing = clean.loss.new_zeros(())
    extra = nothing if prediction.extra is None else prediction.extra
    # Virtual samples must not change running statistics.
    with keeping_statistics(module_of(model)):
        for augmentation in augment:
            samples = augmentation(clean, model=model, generator=generator)
            if not isinstance(samples, Virtual):
                name, given = type(augmentation).__name__, type(samples).__name__
                raise GraphTransplantError(f"{name} must return VirtualGraphs; got {given}")
            loss, own = samples.losses(model, loss_of)
            virtual = virtual + loss * virtual_weight
            if own is not None:
                extra = extra + own * virtual_weight
            if samples.auxiliary_loss is not None:
                auxiliary = auxiliary + samples.auxiliary_loss
    return StepLosses(clean.loss, virtual, auxiliary, extra, logits, targets)


def take_step(
    model: Predictor,
    batch: GraphBatch | None,
    augment: Sequence[Augmentation],
    optimizer: Optimizer,
    *,
    loss_of: Loss,
    clip_norm: float,
    generator: torch.Generator | None,
    virtual_weight: float = 1.0,
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
        losses = step_losses(
            model,
            batch,
            augment,
            loss_of=loss_of,
            generator=generator,
            virtual_weight=virtual_weight,
        )
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
    virtual_weight: float = 1.0,
    task: str | None = None,
    call: Call | None = None,
    output: Output | None = None,
    generator: torch.Generator | None = None,
    saliency_module: nn.Module | str | None = None,
    log: Callable[[dict[str, Tensor]], object] | None = None,
) -> Tensor:
    """Return the training loss of a batch with augmentation, ready for ``.backward()``.

    The loss of the original graphs, plus that of the virtual ones, plus the model's own losses, if
    ``output`` returns them, plus the augmentation's own training loss, if any. For custom training
    loops with any model: pass the augmentation's parameters to the optimiser as well.
    :func:`augmented_losses` returns the parts.

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
        virtual_weight: Factor of the losses of virtual graphs.
        task: ``"multiclass"``, ``"multilabel"`` or ``"regression"``. Optional for a
            ``GraphClassifier``, or if ``y`` holds one integer class per graph.
        call: Calls the model, in the place of the rules above: takes the model and a PyG batch,
            such as ``lambda model, data: model(data.x, data.edge_index, data.batch)``.
        output: Extracts the logits ``[graphs, outputs]`` from what the model returns; or a pair,
            the logits and a loss of the model's own (a scalar), which is added to the total.
        generator: Source of the augmentation's randomness; ``None`` uses torch's global generator.
        saliency_module: The submodule, or its name, at which the saliency of custom models is
            computed. By default, the message-passing modules.
        log: Deprecated: use :func:`augmented_losses`.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, seed=0)
        >>> loss = gt.augmented_loss(model, store.batch(range(8)), gt.GraphTransplant())
        >>> loss.backward()
    """
    options = dict(locals())  # every other option is one of the parts, too
    options.pop("log")
    losses = augmented_losses(**options)
    if log is not None:
        warnings.warn(
            "`log` goes in version 0.4: gt.augmented_losses returns the parts of the loss",
            DeprecationWarning,
            stacklevel=2,
        )
        parts = zip(("clean", "virtual", "auxiliary", "extra"), losses.parts, strict=True)
        log({name: part.detach() for name, part in parts})
    return losses.total


def augmented_losses(
    model: nn.Module,
    batch: GraphBatch | Data,
    augment: Augmentations,
    *,
    loss_fn: LossFunction | None = None,
    class_weight: Tensor | None = None,
    virtual_weight: float = 1.0,
    task: str | None = None,
    call: Call | None = None,
    output: Output | None = None,
    generator: torch.Generator | None = None,
    saliency_module: nn.Module | str | None = None,
) -> StepLosses:
    """Return the parts of :func:`augmented_loss`, with gradients, and the logits.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, seed=0)
        >>> losses = gt.augmented_losses(model, store.batch(range(8)), gt.GraphTransplant())
        >>> (losses.clean + 0.5 * losses.virtual).backward()
        >>> correct = losses.logits.argmax(1) == store.batch(range(8)).y
    """
    check_in("[0, inf)", virtual_weight=virtual_weight)
    graphs = as_batch(batch)
    task = task or _task_of(model, targets_of(graphs))
    augmentations = as_augmentations(augment)
    with _watching(model, augmentations):
        losses = step_losses(
            as_predictor(model, saliency_module, output, call),
            graphs,
            augmentations,
            loss_of=Loss(task, class_weight, loss_fn),
            generator=generator,
            virtual_weight=virtual_weight,
        )
    if torch.is_grad_enabled() and not losses.total.requires_grad:
        raise GraphTransplantError(
            "the loss depends on no parameter that requires gradients, so there is nothing to "
            "train: do not freeze all layers of the model"
        )
    learned = [p for part in augmentations for p in part.parameters() if p.requires_grad]
    Ranks.current().average_after(losses.clean, learned)
    return losses


@dataclass
class _Watch:
    """What is known of an augmentation with parameters in a loop of one's own."""

    shared: bool = False  # the same in all processes
    stepped: bool = False  # or reported not to be
    versions: tuple[int, int] | None = None  # of the model's and its own parameters


_WATCHES: WeakKeyDictionary[nn.Module, _Watch] = WeakKeyDictionary()


@contextmanager
def _watching(model: nn.Module, augmentations: Sequence[Augmentation]) -> Iterator[None]:
    """Start learned parts alike in all processes; warn if the model is stepped and they are not."""

    def versions(part: Augmentation) -> tuple[int, int]:
        """How often the parameters were written to."""
        one, other = (sum(p._version for p in each.parameters()) for each in (model, part))
        return one, other

    for part in augmentations:
        learned = [p for p in part.parameters() if p.requires_grad]
        if not learned or any(map(is_lazy, learned)):
            continue
        watch = _WATCHES.setdefault(part, _Watch())
        if not watch.shared:
            Ranks.current().share_state([part])
            watch.shared = True
        if watch.stepped or watch.versions is None:
            continue
        (before, own_before), (now, own_now) = watch.versions, versions(part)
        if own_now == own_before and now != before and any(p.grad is not None for p in learned):
            warnings.warn(
                f"{type(part).__name__} has parameters that took no step when the model did, and "
                "their gradients pile up: pass them to the optimiser as well, as in "
                "Adam([*model.parameters(), *augment.parameters()])",
                stacklevel=5,
            )
        watch.stepped = now != before
    yield
    for part in augmentations:
        watch = _WATCHES.setdefault(part, _Watch())
        if not watch.stepped:
            watch.versions = versions(part)


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
