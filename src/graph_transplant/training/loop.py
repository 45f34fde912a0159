"""Training and evaluation."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from graph_transplant.augment.base import merged_measurements
from graph_transplant.config.options import PatienceUnit, Ties
from graph_transplant.config.training import FitConfig
from graph_transplant.data import GraphStore
from graph_transplant.data.targets import Loss, as_targets
from graph_transplant.datasets.load import Loadable, load
from graph_transplant.errors import GraphTransplantError, check_at_least, check_callbacks
from graph_transplant.metrics import METRICS
from graph_transplant.metrics.functional import accuracy
from graph_transplant.nn import evaluating
from graph_transplant.nn.adapter import as_predictor
from graph_transplant.training import checkpoint as checkpoints
from graph_transplant.training.state import (
    AUGMENT,
    DROPOUT,
    EpochLog,
    TrainingState,
    derived_generator,
    derived_seed,
    device_of,
    start,
)
from graph_transplant.training.step import (
    Augmentations,
    Call,
    LossFunction,
    Output,
    take_step,
)

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
    store: Loadable,
    *,
    batch_size: int | None = None,
    call: Call | None = None,
    output: Output | None = None,
) -> Evaluation:
    """Run a model on all graphs of a data set.

    ``store`` is anything that :func:`~graph_transplant.load` accepts. ``batch_size`` is 512 by
    default, or less for large graphs; for ``call`` and ``output`` see :func:`augmented_loss`.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> evaluate(gt.GraphClassifier.for_data(store, hidden=8), store).logits.shape
        torch.Size([8, 6])
    """
    store = _held_out(store)
    check_at_least(1, batch_size=1 if batch_size is None else batch_size)
    predictor, device = as_predictor(model, None, output, call), device_of(model)
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


def _held_out(data: Loadable) -> GraphStore:
    """Load graphs among which classes may be missing."""
    if isinstance(data, GraphStore):
        return data
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*classes are numbered from 0")
        return load(data)


def evaluated_at_once(store: GraphStore, most_items: int = EVALUATED_ITEMS) -> int:
    """Default batch size for evaluation; smaller for large graphs."""
    items = int(store.node_counts.sum() + store.edge_counts.sum()) // len(store)
    return max(1, min(EVALUATED_GRAPHS, most_items // max(1, items)))


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
    train: Loadable,
    validation: Loadable,
    augment: Augmentations = (),
    *,
    seed: int = 0,
    epochs: int = 1000,
    batch_size: int = 128,
    learning_rate: float = 5e-4,
    stop_patience: int = 1500,
    decay_patience: int = 1000,
    patience_unit: PatienceUnit = "iterations",
    metric: str = "accuracy",
    ties: Ties = "first",
    clip_norm: float = 2.0,
    loss_fn: LossFunction | None = None,
    class_weight: Tensor | None = None,
    virtual_weight: float = 1.0,
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
    scheduler: Callable[[Optimizer], LRScheduler] | None = None,
    call: Call | None = None,
    output: Output | None = None,
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
        train: Training graphs: anything that :func:`~graph_transplant.load` accepts, such as a list
            of PyG graphs, of which a store keeps ``x``, ``edge_index``, ``edge_attr`` and ``y``.
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
        virtual_weight: Factor of the losses of virtual graphs.
        optimizer: Creates the optimiser from parameters, like ``torch.optim.SGD``; by default Adam.
            Its ``step`` must not need a closure, as that of LBFGS does.
        scheduler: Creates a learning rate schedule, stepped after every epoch, that replaces the
            halving. ``ReduceLROnPlateau`` follows the validation loss, with ``mode="max"`` the
            metric. :mod:`graph_transplant.config.recipes` has AdamW, warm-up and cosine.
        call: How the model is called; see :func:`augmented_loss`.
        output: Extracts the logits from what the model returns, or the logits and a loss of its
            own; see :func:`augmented_loss`.
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
    given = locals()  # every option has the name of its field
    config = FitConfig(**{option.name: given[option.name] for option in fields(FitConfig)})
    return fit_with(
        config,
        model,
        load(train),
        _held_out(validation),
        augment,
        progress=progress,
        callbacks=callbacks,
        checkpoint=checkpoint,
    )


def fit_with(
    config: FitConfig,
    model: nn.Module,
    train: GraphStore,
    validation: GraphStore,
    augment: Augmentations = (),
    *,
    progress: bool | None = None,
    callbacks: Sequence[Callable[[EpochLog], None]] = (),
    checkpoint: str | Path | None = None,
) -> FitResult:
    """Train as :func:`fit` does, with its options as one object."""
    callbacks = check_callbacks(callbacks)
    run = start(model, train, validation, augment, config)
    identity: dict[str, Any] = {}
    if checkpoint is not None:
        identity = run.identity()
        run.restore(Path(checkpoint), identity)
    written = time.monotonic()
    device, first = device_of(model), run.ranks.rank == 0
    with (
        torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]),
        _progress_bar(progress if first else False, config) as show,
    ):
        run.ranks.share_state(run.modules)
        while not run.finished:
            losses = train_epoch(run)
            checked = validate(run)
            log = end_epoch(run, losses, checked)
            with run.ranks.ending_together():
                if first:
                    show(log)
                    for callback in callbacks:
                        callback(log)
                    due = time.monotonic() - written >= CHECKPOINT_SECONDS
                    if checkpoint is not None and (due or run.finished):
                        checkpoints.write(Path(checkpoint), identity, run.state())
                        written = time.monotonic()
    run.restore_best()
    return FitResult(
        model=model,
        history=run.history,
        best_epoch=run.best_epoch,
        stopped_early=len(run.history) < config.epochs,
        seconds=run.seconds,
    )


def train_epoch(run: TrainingState) -> list[float]:
    """Take the steps of an epoch; return the mean parts of the loss, as in ``StepLosses.parts``."""
    config, ranks = run.config, run.ranks
    device = device_of(run.model)
    torch.manual_seed(derived_seed(config.seed, DROPOUT, run.epoch, ranks.rank))
    generator = derived_generator(config.seed, AUGMENT, run.epoch, ranks.rank)
    run.modules[0].train()
    totals = torch.zeros(4, device=device)
    for part in run.batches():
        mine = part[ranks.rank :: ranks.size]
        made = take_step(
            run.predictor,
            run.train.batch(mine).to(device) if len(mine) else None,
            run.augmentations,
            run.optimizer,
            loss_of=run.loss_of,
            clip_norm=config.clip_norm,
            virtual_weight=config.virtual_weight,
            generator=generator,
            share=len(mine) / len(part),
            ranks=ranks,
        )
        run.iterations += 1
        if made is not None:
            each = torch.stack(made.parts).detach()
            totals += each * (len(mine) / len(run.train))
    losses: list[float] = ranks.total(totals).tolist()
    if not all(map(math.isfinite, losses)):
        raise GraphTransplantError(
            f"the training loss is not a finite number in epoch {run.epoch}; a lower "
            f"`learning_rate` than {run.learning_rate:g} or smaller features may help"
        )
    return losses


def validate(run: TrainingState) -> Evaluation:
    """Evaluate the model on the validation graphs."""
    run.ranks.share_state(run.modules)
    checked = evaluate(run.model, run.validation, call=run.config.call, output=run.config.output)
    if math.isnan(checked.loss):
        raise GraphTransplantError(
            f"the validation loss is not a number in epoch {run.epoch}: the model returns NaN "
            "for a validation graph"
        )
    return checked


def end_epoch(run: TrainingState, losses: Sequence[float], checked: Evaluation) -> EpochLog:
    """Let augmentations adapt, and record the epoch, which decides when training stops."""
    with evaluating(run.modules[0]):
        measured = merged_measurements(
            *(part.after_epoch(run.predictor, run.validation) for part in run.augmentations)
        )
    task = run.validation.task
    log = EpochLog(
        epoch=run.epoch,
        iterations=run.iterations,
        train_loss=sum(losses),
        clean_loss=losses[0],
        virtual_loss=losses[1],
        auxiliary_loss=losses[2],
        extra_loss=losses[3],
        validation_loss=checked.loss,
        validation_accuracy=checked.accuracy if task == "multiclass" else math.nan,
        learning_rate=run.learning_rate,
        seconds=run.seconds,
        measurements=measured,
        validation_score=_score(checked, run.config.metric, task),
    )
    run.record(log)
    return log


def _score(checked: Evaluation, metric: str, task: str) -> float:
    """Score for patience and the best epoch; higher is better."""
    if metric != "accuracy":
        return METRICS[metric].compute(checked.logits, checked.targets, task) or 0.0
    return checked.accuracy if task == "multiclass" else -checked.loss


@contextmanager
def _progress_bar(progress: bool | None, config: FitConfig) -> Iterator[Callable[[EpochLog], None]]:
    if progress is None:
        progress = sys.stderr.isatty()
    if not progress:
        yield lambda log: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=config.epochs)

        def show(log: EpochLog) -> None:
            text = f"epoch {log.epoch}/{config.epochs}  loss {log.train_loss:.3f}  "
            text += f"val loss {log.validation_loss:.3f}"
            if config.metric != "accuracy":
                text += f"  val {config.metric.replace('_', ' ')} {log.validation_score:.3f}"
            elif not math.isnan(log.validation_accuracy):
                text += f"  val acc {log.validation_accuracy:.3f}"
            bar.update(task, completed=log.epoch, description=text)

        yield show
