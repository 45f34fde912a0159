"""Training and evaluation."""

from __future__ import annotations

import inspect
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from graph_transplant.augment.base import merged_measurements
from graph_transplant.config.recipes import PATIENCE_UNITS, TIES
from graph_transplant.data import GraphStore, check_stores
from graph_transplant.data.targets import Loss, as_numbers, as_targets, rarest_label
from graph_transplant.errors import (
    DataError,
    GraphTransplantError,
    check_at_least,
    check_callbacks,
    check_choice,
    check_positive,
)
from graph_transplant.metrics import METRICS, defined, selection_metrics
from graph_transplant.metrics.functional import accuracy
from graph_transplant.nn import evaluating
from graph_transplant.nn.adapter import as_predictor, module_of
from graph_transplant.training import checkpoint as checkpoints
from graph_transplant.training.checkpoint import EpochLog as EpochLog
from graph_transplant.training.checkpoint import Patience, TrainingState, states_of
from graph_transplant.training.distributed import Ranks
from graph_transplant.training.step import Augmentations, LossFunction, several, take_step
from graph_transplant.utils.text import count

CHECKPOINT_SECONDS = 10.0
"""Minimum time between checkpoints."""

EVALUATED_GRAPHS = 512
"""Maximum number of graphs per evaluation batch."""

EVALUATED_ITEMS = 1 << 20
"""Approximate maximum number of nodes and edges per evaluation batch."""


@dataclass(frozen=True)
class Evaluation:
    """A model's results on a data set: logits and targets ``[graphs, outputs]``, mean loss."""

    logits: Tensor
    targets: Tensor
    loss: float
    task: str = "multiclass"

    @property
    def accuracy(self) -> float:
        """Share of classes or known labels that are predicted correctly; NaN for regression."""
        if self.task == "regression":
            return math.nan
        return accuracy(self.logits, self.targets, self.task)


def evaluate(
    model: nn.Module,
    store: GraphStore,
    *,
    batch_size: int | None = None,
    output: Callable[[Any], Tensor] | None = None,
) -> Evaluation:
    """Run a model on all graphs of a data set.

    ``batch_size`` is 512 by default, or less for large graphs; ``output`` extracts the logits from
    what the model returns.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> evaluate(gt.GraphClassifier.for_data(store, hidden=8), store).logits.shape
        torch.Size([8, 6])
    """
    check_stores(store=store)
    check_at_least(1, batch_size=1 if batch_size is None else batch_size)
    predictor, device = as_predictor(model, output=output), _device(model)
    with evaluating(model):
        parts = [
            predictor.run(batch.to(device), layers=False).logits.cpu()
            for batch in store.batches(
                torch.arange(len(store)),
                evaluated_at_once(store) if batch_size is None else batch_size,
            )
        ]
    logits = torch.cat(parts)
    targets = as_targets(store.y, logits.shape[1])
    return Evaluation(logits, targets, float(Loss(store.task)(logits, targets).mean()), store.task)


def evaluated_at_once(store: GraphStore, most_items: int = EVALUATED_ITEMS) -> int:
    """Default batch size for evaluation; smaller for large graphs."""
    items = int(store.node_counts.sum() + store.edge_counts.sum()) // len(store)
    return max(1, min(EVALUATED_GRAPHS, most_items // max(1, items)))


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


@dataclass(frozen=True)
class FitResult:
    """Result of training; the model has the weights of the best epoch."""

    model: nn.Module
    history: list[EpochLog] = field(repr=False)
    best_epoch: int
    stopped_early: bool
    seconds: float

    @property
    def epochs(self) -> int:
        """Number of epochs trained."""
        return len(self.history)


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
    patience_unit: str = "iterations",
    metric: str = "accuracy",
    ties: str = "first",
    clip_norm: float = 2.0,
    loss_fn: LossFunction | None = None,
    class_weight: Tensor | None = None,
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
    scheduler: Callable[[Optimizer], LRScheduler] | None = None,
    output: Callable[[Any], Tensor] | None = None,
    balance: bool = False,
    graph_weight: Tensor | None = None,
    saliency_module: nn.Module | str | None = None,
    progress: bool | None = None,
    callbacks: Sequence[Callable[[EpochLog], None]] = (),
    checkpoint: str | Path | None = None,
) -> FitResult:
    """Train a classifier, by default with the paper's protocol (appendix, "Evaluation protocol").

    Adam without weight decay; the learning rate is halved after ``decay_patience`` iterations
    without a lower validation loss; training stops after ``stop_patience`` iterations without a
    higher validation accuracy; the weights of the best epoch are restored, including those of
    augmentations.

    With a ``checkpoint``, the same call resumes interrupted training and ends with bit-identical
    weights. The file is written after an epoch, at most every ten seconds, and at the end; it is
    not removed.

    If ``torch.distributed`` is initialised, as under torchrun, all processes must call this
    function with the same arguments. Each takes a share of every batch and mixes graphs within it,
    and the gradients are averaged. Only the first process shows progress, calls callbacks and
    writes checkpoints.

    Deviation: clip-norm. The norm of the model's gradient is limited to 2, as in the released code.

    Deviation: one-step. The model and the edge predictor take one optimiser step together.

    Args:
        model: The model to train, in place.
        train: Training graphs.
        validation: Graphs that determine when to stop and which weights to keep.
        augment: One augmentation or several; none for plain training.
        seed: Seed for graph order, dropout and augmentation. Torch's global generator is unchanged.
        epochs: Maximum number of passes over the training graphs.
        batch_size: Graphs per step, over all processes.
        learning_rate: Initial learning rate.
        stop_patience: See above.
        decay_patience: See above.
        patience_unit: Unit of both, ``"iterations"`` or ``"epochs"``.
        metric: Determines when to stop and which weights to keep: ``"accuracy"`` for classes (for
            other tasks, the validation loss); ``"auroc"`` or ``"average_precision"`` for two
            classes, or their mean over labels; ``"r2"`` for regression.
        ties: Which of several epochs with the same validation score is the best: the ``"first"``,
            the one with the lowest validation ``"loss"``, or, as in the released code, the last,
            where every tie resets patience (``"reset"``).
        clip_norm: Maximum norm of the model's gradient.
        loss_fn: Replaces the default loss; see :func:`augmented_loss`. The validation loss remains
            plain cross-entropy or squared error, also with ``class_weight``.
        class_weight: Weight of every class or label, float ``[outputs]``.
        optimizer: Creates the optimiser from parameters, like ``torch.optim.SGD``; by default Adam.
            Its ``step`` must not need a closure, as that of LBFGS does.
        scheduler: Creates a learning rate schedule, stepped after every epoch, that replaces the
            halving. ``ReduceLROnPlateau`` follows the validation loss, with ``mode="max"`` the
            metric. :mod:`graph_transplant.config.recipes` has AdamW, warm-up and cosine.
        output: Extracts the logits from what the model returns.
        balance: Draw the graphs of an epoch with replacement so that every class, or rarest label
            of a graph, is equally likely.
        graph_weight: Weights for sampling graphs with replacement, float ``[graphs]``.
        saliency_module: See :func:`augmented_loss`.
        progress: Show a progress bar; by default if standard error is a terminal.
        callbacks: Called with every epoch's log. An exception ends the training.
        checkpoint: File for the complete state of the training.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs")
        >>> train, validation = store.subset(range(32)), store.subset(range(32, 48))
        >>> model = gt.GraphClassifier.for_data(train, hidden=8, seed=0)
        >>> result = gt.fit(model, train, validation, gt.GraphTransplant(), seed=0, epochs=2)
        >>> result.epochs
        2
    """
    check_stores(train=train, validation=validation)
    check_at_least(0, seed=seed)
    check_at_least(1, epochs=epochs, batch_size=batch_size)
    check_at_least(1, stop_patience=stop_patience, decay_patience=decay_patience)
    check_positive(learning_rate=learning_rate, clip_norm=clip_norm)
    callbacks = check_callbacks(callbacks)
    check_choice("patience_unit", patience_unit, PATIENCE_UNITS)
    check_choice("ties", ties, TIES)
    if validation.task != train.task:
        raise DataError(
            f"`validation` must have the task of `train`, {train.task}; it is {validation.task}: "
            "pass `task` where they are read"
        )
    _check_metric(metric, validation)
    for name, maker in (("optimizer", optimizer), ("scheduler", scheduler)):
        if maker is not None and not callable(maker):
            raise GraphTransplantError(
                f"`{name}` must be callable, such as a class or a functools.partial; got {maker!r}"
            )
    # Checkpoints cannot hold NumPy scalars.
    seed, epochs, batch_size = int(seed), int(epochs), int(batch_size)
    stop_patience, decay_patience = int(stop_patience), int(decay_patience)
    learning_rate, clip_norm = float(learning_rate), float(clip_norm)
    device, ranks = _device(model), Ranks.current()
    if graph_weight is not None:
        graph_weight = checked_weights("graph_weight", graph_weight, len(train))
    weights = graph_weight
    if balance:
        weights = _balancing(train) * (1.0 if weights is None else weights)
    augmentations = several(augment)
    # Gradients are reduced here: DDP would wait for ranks without graphs.
    alone = model.module if isinstance(model, DistributedDataParallel) else model
    predictor = as_predictor(alone, saliency_module, output)
    loss_of = Loss(train.task, class_weight, loss_fn)
    if not any(parameter.requires_grad for parameter in module_of(predictor).parameters()):
        raise GraphTransplantError(
            "the model has no parameter that requires gradients, so there is nothing to train: do "
            "not freeze all of its layers"
        )
    begin = time.perf_counter()
    for augmentation in augmentations:
        augmentation.to(device).train()
        augmentation.check(predictor, train)
        augmentation.prepare(train, _generator(seed, _AUGMENT, 0, ranks.rank))
    modules = [module_of(predictor), *augmentations]
    # Each parameter once, although augmentations may share some.
    parameters = [p for p in nn.ModuleList(modules).parameters() if p.requires_grad]
    if optimizer is None:
        steps: Optimizer = torch.optim.Adam(parameters, lr=learning_rate, fused=True)
    else:
        steps = optimizer(parameters)
        _check_optimizer(steps)
    run = TrainingState(
        modules=modules,
        optimizer=steps,
        scheduler=None if scheduler is None else scheduler(steps),
        stop=Patience(stop_patience, ties=ties == "reset"),
        decay=Patience(decay_patience),
        by_loss=ties == "loss",
        best=states_of(modules),
    )
    identity: dict[str, Any] = {}
    if checkpoint is not None:
        identity = {
            "model": checkpoints.settings_of(modules[0]),
            "augment": [checkpoints.settings_of(augmentation) for augmentation in augmentations],
            "train": {"graphs": len(train), "fingerprint": train.fingerprint()},
            "validation": {"graphs": len(validation), "fingerprint": validation.fingerprint()},
            "seed": seed,
            "epochs": epochs,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "stop_patience": stop_patience,
            "decay_patience": decay_patience,
            "patience_unit": patience_unit,
            "metric": metric,
            "clip_norm": clip_norm,
            "balance": balance,
            "ties": ties,
            "loss_fn": checkpoints.settings_of(loss_fn),
            "class_weight": checkpoints.settings_of(loss_of.class_weight),
            "graph_weight": None if graph_weight is None else graph_weight.tolist(),
            "optimizer": checkpoints.settings_of(optimizer),
            "scheduler": checkpoints.settings_of(scheduler),
            "saliency_module": checkpoints.settings_of(saliency_module),
            "processes": ranks.size,
        }
        run.restore(Path(checkpoint), identity)
        begin -= run.history[-1].seconds if run.history else 0.0
    written = time.monotonic()
    with (
        torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]),
        _progress_bar(progress if ranks.rank == 0 else False, epochs, metric) as show,
    ):
        ranks.share_state(modules)
        while not run.finished(epochs):
            epoch, rate = len(run.history) + 1, steps.param_groups[0]["lr"]
            torch.manual_seed(_child(seed, _DROPOUT, epoch, ranks.rank))
            drawn = _generator(seed, _ORDER, epoch)
            if weights is None:
                order = torch.randperm(len(train), generator=drawn)
            else:
                order = torch.multinomial(weights, len(train), replacement=True, generator=drawn)
            parts = torch.split(order, batch_size)
            generator = _generator(seed, _AUGMENT, epoch, ranks.rank)
            modules[0].train()
            totals = torch.zeros(3, device=device)
            for part in parts:
                mine = part[ranks.rank :: ranks.size]
                made = take_step(
                    predictor,
                    train.batch(mine).to(device) if len(mine) else None,
                    augmentations,
                    steps,
                    loss_of=loss_of,
                    clip_norm=clip_norm,
                    generator=generator,
                    share=len(mine) / len(part),
                    ranks=ranks,
                )
                if made is not None:
                    each = torch.stack((made.clean, made.virtual, made.auxiliary)).detach()
                    totals += each * (len(mine) / len(train))
            losses: list[float] = ranks.total(totals).tolist()
            run.iterations += len(parts)
            if not all(map(math.isfinite, losses)):
                raise GraphTransplantError(
                    f"the training loss is not a finite number in epoch {epoch}; a lower "
                    f"`learning_rate` than {rate:g} or smaller features may help"
                )
            ranks.share_state(modules)
            checked = evaluate(alone, validation, output=output)
            if math.isnan(checked.loss):
                raise GraphTransplantError(
                    f"the validation loss is not a number in epoch {epoch}: the model returns NaN "
                    "for a validation graph"
                )
            with evaluating(modules[0]):
                measured = merged_measurements(
                    *(part.after_epoch(predictor, validation) for part in augmentations)
                )
            log = EpochLog(
                epoch=epoch,
                iterations=run.iterations,
                train_loss=sum(losses),
                clean_loss=losses[0],
                virtual_loss=losses[1],
                auxiliary_loss=losses[2],
                validation_loss=checked.loss,
                validation_accuracy=(
                    checked.accuracy if validation.task == "multiclass" else math.nan
                ),
                learning_rate=rate,
                seconds=time.perf_counter() - begin,
                measurements=measured,
                validation_score=_score(checked, metric, validation.task),
            )
            run.take_in(log, len(parts) if patience_unit == "iterations" else 1)
            with ranks.ending_together():
                if ranks.rank == 0:
                    show(log)
                    for callback in callbacks:
                        callback(log)
                    due = time.monotonic() - written >= CHECKPOINT_SECONDS
                    if checkpoint is not None and (due or run.finished(epochs)):
                        checkpoints.write(Path(checkpoint), identity, run.state())
                        written = time.monotonic()
    for module, state in zip(modules, run.best, strict=True):
        module.load_state_dict(state)
    modules[0].eval()
    return FitResult(
        model=model,
        history=run.history,
        best_epoch=run.best_epoch,
        stopped_early=len(run.history) < epochs,
        seconds=time.perf_counter() - begin,
    )


# Random streams derived from the seed.
_ORDER, _AUGMENT, _DROPOUT = range(3)


def _child(seed: int, *stream: int) -> int:
    return int(np.random.SeedSequence([seed, *stream]).generate_state(1, np.uint64)[0] >> 1)


def _generator(seed: int, *stream: int) -> torch.Generator:
    return torch.Generator().manual_seed(_child(seed, *stream))


def checked_weights(name: str, given: Any, graphs: int, unread: int = 0) -> Tensor:
    """Return sampling weights of graphs and unread rows, float64; raise if they cannot be used."""
    weights = as_numbers(name, given).detach().double().cpu()
    if (
        weights.shape != (graphs + unread,)
        or not (weights >= 0).all()
        or not 0 < weights.sum() < math.inf
    ):
        remark = f" and {count(unread, 'row')} that could not be read" if unread else ""
        raise GraphTransplantError(
            f"`{name}` must be one finite, non-negative number for each of the {graphs} graphs"
            f"{remark}, not all of them zero; got shape {list(weights.shape)}"
        )
    return weights


def _balancing(train: GraphStore) -> Tensor:
    """Sampling weights that balance the classes, float64 ``[graphs]``."""
    if train.task == "regression":
        raise GraphTransplantError(
            f"`balance` needs classes or labels, but the targets of {train.name} are numbers"
        )
    classes = train.labels if train.task == "multiclass" else rarest_label(train.y)
    _, number, count = torch.unique(classes, return_inverse=True, return_counts=True)
    weight: Tensor = count.double().reciprocal()[number]
    return weight


def _check_metric(metric: str, validation: GraphStore) -> None:
    check_choice("metric", metric, selection_metrics())
    targets = as_targets(validation.y, validation.num_outputs)
    if not defined(metric, targets, validation.task):
        needs = (
            "numbers that vary" if metric == "r2" else "two classes, or labels, with both values"
        )
        raise GraphTransplantError(
            f"`metric` is {metric!r}, which needs {needs}; it is not defined on the validation "
            f"graphs of {validation.name}"
        )


def _check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise GraphTransplantError(
            f"`optimizer` must return a torch.optim.Optimizer; got {optimizer!r}"
        )
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise GraphTransplantError(
            f"`optimizer` {type(optimizer).__name__} computes the loss several times a step, which "
            "fit does not support: use one whose step() needs no closure, such as torch.optim.AdamW"
        )


def _score(checked: Evaluation, metric: str, task: str) -> float:
    """Score for patience and the best epoch; higher is better."""
    if metric != "accuracy":
        return METRICS[metric].compute(checked.logits, checked.targets, task) or 0.0
    return checked.accuracy if task == "multiclass" else -checked.loss


@contextmanager
def _progress_bar(
    progress: bool | None, epochs: int, metric: str
) -> Iterator[Callable[[EpochLog], None]]:
    if progress is None:
        progress = sys.stderr.isatty()
    if not progress:
        yield lambda log: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=epochs)

        def show(log: EpochLog) -> None:
            text = f"epoch {log.epoch}/{epochs}  loss {log.train_loss:.3f}  "
            text += f"val loss {log.validation_loss:.3f}"
            if metric != "accuracy":
                text += f"  val {metric.replace('_', ' ')} {log.validation_score:.3f}"
            elif not math.isnan(log.validation_accuracy):
                text += f"  val acc {log.validation_accuracy:.3f}"
            bar.update(task, completed=log.epoch, description=text)

        yield show
