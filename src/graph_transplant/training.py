"""Training: one step, the fit loop of the paper's protocol, and evaluation."""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graph_transplant.augment import Augmentation, CleanPass
from graph_transplant.augment.base import merged_measurements
from graph_transplant.errors import GraphTransplantError
from graph_transplant.graphs import GraphStore, task_of
from graph_transplant.nn import GraphClassifier, evaluating
from graph_transplant.saliency import Predictor, as_predictor
from graph_transplant.targets import as_targets, graph_losses

Augmentations = Augmentation | Sequence[Augmentation]


@dataclass(frozen=True)
class StepLosses:
    """The losses of one step.

    Attributes:
        clean: Of the original graphs, a scalar.
        virtual: Of the virtual samples of all augmentations, a scalar.
        auxiliary: Of the augmentations' own parameters, a scalar.
    """

    clean: Tensor
    virtual: Tensor
    auxiliary: Tensor

    @property
    def total(self) -> Tensor:
        """What is minimised."""
        return self.clean + self.virtual + self.auxiliary


def step_losses(
    model: Predictor,
    batch: Batch,
    augment: Sequence[Augmentation],
    *,
    task: str,
    generator: torch.Generator | None,
) -> StepLosses:
    """Run the model on a batch and on its virtual samples.

    Args:
        model: The model, in training mode.
        batch: Original graphs.
        augment: Augmentations; none is plain training.
        task: What the targets are.
        generator: Source of the augmentations' randomness.
    """
    prediction = model(batch)
    targets = as_targets(batch.y, prediction.logits.shape[1])
    clean = CleanPass(batch, targets, prediction, task)
    virtual = auxiliary = clean.loss.new_zeros(())
    for augmentation in augment:
        samples = augmentation(clean, model=model, generator=generator)
        virtual = virtual + samples.loss(model, task)
        if samples.auxiliary_loss is not None:
            auxiliary = auxiliary + samples.auxiliary_loss
    return StepLosses(clean.loss, virtual, auxiliary)


def take_step(
    model: Predictor,
    batch: Batch,
    augment: Sequence[Augmentation],
    optimizer: torch.optim.Optimizer,
    *,
    task: str,
    clip_norm: float,
    generator: torch.Generator | None,
) -> StepLosses:
    """Take one optimiser step on a batch and its virtual samples.

    Args:
        model: The model, in training mode.
        batch: Original graphs.
        augment: Augmentations; none is plain training.
        optimizer: Of the parameters of the model and the augmentations.
        task: What the targets are.
        clip_norm: Limit of the gradient's norm.
        generator: Source of the augmentations' randomness.

    Returns:
        The losses before the step.
    """
    optimizer.zero_grad(set_to_none=True)
    losses = step_losses(model, batch, augment, task=task, generator=generator)
    torch.autograd.backward(losses.total)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    nn.utils.clip_grad_norm_(parameters, clip_norm)
    optimizer.step()
    return losses


def augmented_loss(
    model: nn.Module,
    batch: Batch,
    augment: Augmentations,
    *,
    generator: torch.Generator | None = None,
    task: str | None = None,
    saliency_module: nn.Module | str | None = None,
) -> Tensor:
    """Return the training loss of a batch with augmentation, ready for ``.backward()``.

    It is the loss of the original graphs plus that of the virtual ones plus what the augmentation
    needs to learn itself. Use it in a training loop of your own, with any model; give the optimiser
    the augmentation's parameters too.

    Args:
        model: A :class:`~graph_transplant.GraphClassifier` or any ``nn.Module`` over a PyG batch:
            fields are passed to its ``forward`` by parameter name (``x``, ``edge_index``,
            ``edge_weight``, ``edge_attr``, ``batch``, ``batch_size``); a ``forward`` with one
            single parameter gets the batch. It must return logits ``[graphs, outputs]``.
        batch: A PyG batch with ``y``.
        augment: One augmentation or several.
        generator: Source of the augmentation's randomness; ``None`` is torch's own.
        task: ``"multiclass"``, ``"multilabel"`` or ``"regression"``; found from ``y`` by default.
        saliency_module: For foreign models, where saliency is read: a submodule or its name. By
            default at the message-passing modules.

    Returns:
        A scalar.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8)
        >>> loss = gt.augmented_loss(model, store.batch(range(8)), gt.GraphTransplant())
        >>> loss.backward()
    """
    task = task or (model.task if isinstance(model, GraphClassifier) else task_of(batch.y))
    losses = step_losses(
        as_predictor(model, saliency_module),
        batch,
        _several(augment),
        task=task,
        generator=generator,
    )
    return losses.total


def _several(augment: Augmentations) -> tuple[Augmentation, ...]:
    return (augment,) if isinstance(augment, Augmentation) else tuple(augment)


@dataclass(frozen=True)
class Evaluation:
    """What a model says about a data set.

    Attributes:
        logits: float ``[graphs, outputs]``.
        targets: float ``[graphs, outputs]``.
        loss: Mean loss.
    """

    logits: Tensor
    targets: Tensor
    loss: float

    @property
    def accuracy(self) -> float:
        """Share of the graphs whose largest logit is that of the largest target."""
        right = self.logits.argmax(1).eq(self.targets.argmax(1))
        return float(right.to(torch.double).mean())


def evaluate(model: nn.Module, store: GraphStore, *, batch_size: int = 512) -> Evaluation:
    """Let a model predict all graphs of a data set.

    Args:
        model: A classifier.
        store: The graphs.
        batch_size: Graphs at a time.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> evaluate(gt.GraphClassifier.for_data(store, hidden=8), store).logits.shape
        torch.Size([8, 6])
    """
    predictor, device = as_predictor(model), _device(model)
    with evaluating(model):
        parts = [
            predictor(batch.to(device)).logits.cpu()
            for batch in store.batches(torch.arange(len(store)), batch_size)
        ]
    logits = torch.cat(parts)
    targets = as_targets(store.y, logits.shape[1])
    return Evaluation(logits, targets, float(graph_losses(logits, targets, store.task).mean()))


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


@dataclass(frozen=True)
class EpochLog:
    """What happened in one epoch.

    Attributes:
        epoch: Counted from 1.
        iterations: Optimiser steps since training began.
        train_loss: Mean of all losses over the epoch's graphs.
        clean_loss: Its part from original graphs.
        virtual_loss: Its part from virtual graphs.
        auxiliary_loss: Its part from what augmentations learn themselves.
        validation_loss: After the epoch.
        validation_accuracy: After the epoch; NaN where there are no classes.
        learning_rate: During the epoch.
        seconds: Since training began.
        measurements: What augmentations measured after the epoch, by name.
    """

    epoch: int
    iterations: int
    train_loss: float
    clean_loss: float
    virtual_loss: float
    auxiliary_loss: float
    validation_loss: float
    validation_accuracy: float
    learning_rate: float
    seconds: float
    measurements: dict[str, float]


@dataclass(frozen=True)
class FitResult:
    """A finished training.

    Attributes:
        model: The model, with the weights of the best epoch.
        history: Every epoch.
        best_epoch: The first epoch with the highest validation accuracy.
        stopped_early: Whether patience ran out before the last epoch.
        seconds: How long it took.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(12))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8)
        >>> result = gt.fit(model, store, store, seed=0, epochs=3)
        >>> [log.epoch for log in result.history]
        [1, 2, 3]
    """

    model: nn.Module
    history: list[EpochLog] = field(repr=False)
    best_epoch: int
    stopped_early: bool
    seconds: float

    @property
    def epochs(self) -> int:
        """Number of epochs trained."""
        return len(self.history)


class _Patience:
    """Counts the iterations since a score last rose."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.best = -math.inf
        self.waited = 0

    def improved(self, score: float, iterations: int) -> bool:
        """Take in a score reached after some more iterations; only a strict rise counts."""
        if score > self.best:
            self.best, self.waited = score, 0
            return True
        self.waited += iterations
        return False

    @property
    def over(self) -> bool:
        """Whether patience has run out."""
        return self.waited >= self.limit


def fit(
    model: nn.Module,
    train: GraphStore,
    validation: GraphStore,
    augment: Augmentations = (),
    *,
    seed: int,
    epochs: int = 1000,
    batch_size: int = 128,
    learning_rate: float = 5e-4,
    stop_patience: int = 1500,
    decay_patience: int = 1000,
    clip_norm: float = 2.0,
    progress: bool | None = None,
    callbacks: Sequence[Callable[[EpochLog], None]] = (),
    saliency_module: nn.Module | str | None = None,
) -> FitResult:
    """Train a classifier by the paper's protocol (appendix, "Evaluation protocol").

    Adam without weight decay; the learning rate is halved after ``decay_patience`` iterations
    without a lower validation loss; training stops after ``stop_patience`` iterations without a
    higher validation accuracy; the best epoch's weights are restored.

    Deviation: clip-norm. The gradient's norm is limited to 2, as in the released code.

    Deviation: one-step. The model and the edge predictor take one optimiser step together.

    Args:
        model: The model to train, in place.
        train: Training graphs.
        validation: Graphs that decide when to stop and which weights to keep.
        augment: One augmentation or several; none is plain training.
        seed: Determines the order of the graphs, dropout and all augmentation. Torch's global
            generator is left as it was.
        epochs: At most so many passes over the training graphs.
        batch_size: Graphs per step.
        learning_rate: At the start.
        stop_patience: In iterations.
        decay_patience: In iterations.
        clip_norm: Limit of the gradient's norm.
        progress: Show a progress bar; by default when the error stream is a terminal.
        callbacks: Called with every epoch's log. One that raises ends the training.
        saliency_module: For foreign models, where saliency is read; see :func:`augmented_loss`.

    Returns:
        The trained model and its history.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs")
        >>> train, validation = store.subset(range(32)), store.subset(range(32, 48))
        >>> model = gt.GraphClassifier.for_data(train, hidden=8)
        >>> result = gt.fit(model, train, validation, gt.GraphTransplant(), seed=0, epochs=2)
        >>> result.epochs
        2
    """
    least = {"epochs": 1, "batch_size": 1, "stop_patience": 1, "decay_patience": 1, "seed": 0}
    given = (epochs, batch_size, stop_patience, decay_patience, seed)
    for (name, bound), value in zip(least.items(), given, strict=True):
        if value < bound:
            raise GraphTransplantError(f"`{name}` must be at least {bound}, got {value}")
    for name, number in (("learning_rate", learning_rate), ("clip_norm", clip_norm)):
        if not number > 0:
            raise GraphTransplantError(f"`{name}` must be positive, got {number}")
    augmentations = _several(augment)
    predictor, device = as_predictor(model, saliency_module), _device(model)
    streams = [torch.Generator().manual_seed(_child(seed, stream)) for stream in range(2)]
    order_generator, augment_generator = streams
    begin = time.perf_counter()
    history: list[EpochLog] = []
    with (
        torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]),
        _progress_bar(progress, epochs) as show,
    ):
        torch.manual_seed(_child(seed, 2))
        for augmentation in augmentations:
            augmentation.to(device).train()
            augmentation.check(predictor, train)
            augmentation.prepare(train, augment_generator)
        parameters = [
            p for module in (model, *augmentations) for p in module.parameters() if p.requires_grad
        ]
        optimizer = torch.optim.Adam(parameters, lr=learning_rate, fused=True)
        stop, decay = _Patience(stop_patience), _Patience(decay_patience)
        best_epoch, best_weights = 0, copy.deepcopy(model.state_dict())
        model.train()
        iterations = 0
        for epoch in range(1, epochs + 1):
            rate = optimizer.param_groups[0]["lr"]
            order = torch.randperm(len(train), generator=order_generator)
            sums, steps = _run_epoch(
                predictor,
                train,
                order,
                augmentations,
                optimizer,
                batch_size=batch_size,
                clip_norm=clip_norm,
                generator=augment_generator,
                device=device,
            )
            iterations += steps
            if not all(math.isfinite(value) for value in sums):
                raise GraphTransplantError(
                    f"the training loss is not a finite number in epoch {epoch}; a lower "
                    f"`learning_rate` than {rate:g} or smaller features may help"
                )
            checked = evaluate(model, validation)
            score = checked.accuracy if validation.task == "multiclass" else -checked.loss
            with evaluating(model):
                measured = merged_measurements(
                    *(part.after_epoch(predictor, validation) for part in augmentations)
                )
            log = EpochLog(
                epoch=epoch,
                iterations=iterations,
                train_loss=sum(sums),
                clean_loss=sums[0],
                virtual_loss=sums[1],
                auxiliary_loss=sums[2],
                validation_loss=checked.loss,
                validation_accuracy=score if validation.task == "multiclass" else math.nan,
                learning_rate=rate,
                seconds=time.perf_counter() - begin,
                measurements=measured,
            )
            history.append(log)
            if stop.improved(score, steps):
                best_epoch, best_weights = epoch, copy.deepcopy(model.state_dict())
            if not decay.improved(-checked.loss, steps) and decay.over:
                decay.waited = 0
                for group in optimizer.param_groups:
                    group["lr"] *= 0.5
            show(log)
            for callback in callbacks:
                callback(log)
            if stop.over:
                break
    model.load_state_dict(best_weights)
    model.eval()
    return FitResult(
        model=model,
        history=history,
        best_epoch=best_epoch,
        stopped_early=len(history) < epochs,
        seconds=time.perf_counter() - begin,
    )


def _run_epoch(
    model: Predictor,
    train: GraphStore,
    order: Tensor,
    augmentations: Sequence[Augmentation],
    optimizer: torch.optim.Optimizer,
    *,
    batch_size: int,
    clip_norm: float,
    generator: torch.Generator,
    device: torch.device,
) -> tuple[list[float], int]:
    """Take one step per batch; return the mean clean, virtual and auxiliary loss, and the steps."""
    totals = torch.zeros(3, device=device)
    steps = 0
    for batch in train.batches(order, batch_size):
        batch = batch.to(device) if device.type != "cpu" else batch
        losses = take_step(
            model,
            batch,
            augmentations,
            optimizer,
            task=train.task,
            clip_norm=clip_norm,
            generator=generator,
        )
        parts = torch.stack((losses.clean, losses.virtual, losses.auxiliary)).detach()
        totals += parts * (batch.num_graphs / len(train))
        steps += 1
    return totals.tolist(), steps


def _child(seed: int, stream: int) -> int:
    """Derive the seed of one stream of randomness from the seed of all."""
    return int(np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0] >> 1)


@contextmanager
def _progress_bar(progress: bool | None, epochs: int) -> Iterator[Callable[[EpochLog], None]]:
    """Show the epochs as they pass, or nothing."""
    if progress is None:
        progress = sys.stderr.isatty()
    if not progress:
        yield lambda log: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns: list[Any] = [
        TextColumn("epoch"),
        MofNCompleteColumn(),
        BarColumn(bar_width=None),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=epochs)

        def show(log: EpochLog) -> None:
            text = (
                f"loss {log.train_loss:.3f}  val loss {log.validation_loss:.3f}  "
                f"val acc {log.validation_accuracy:.3f}"
            )
            bar.update(task, completed=log.epoch, description=text)

        yield show
