"""Training: one step, the fit loop of the paper's protocol, and evaluation.

A batch may be cut into pieces, whose gradients are averaged before a step is taken, and the pieces
may be shared out among the processes of ``torch.distributed``.
"""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Batch

from graph_transplant.augment import Augmentation, CleanPass
from graph_transplant.augment.base import merged_measurements
from graph_transplant.checkpoints import Checkpoint, load_module, module_state, settings_of
from graph_transplant.errors import DataError, GraphTransplantError, check_choice
from graph_transplant.graphs import GraphStore, task_of
from graph_transplant.metrics import mean_area_under_roc, mean_average_precision, mean_r2
from graph_transplant.nn import GraphClassifier, evaluating
from graph_transplant.saliency import Predictor, as_predictor, module_of
from graph_transplant.segments import offsets
from graph_transplant.targets import as_targets, graph_losses, rarest_label

Augmentations = Augmentation | Sequence[Augmentation]

METRICS = ("accuracy", "auroc", "average_precision", "r2")
"""What training can be stopped and weights be chosen by."""

_SCORES: Final[dict[str, Callable[[Tensor, Tensor, str], float]]] = {
    "auroc": mean_area_under_roc,
    "average_precision": mean_average_precision,
    "r2": lambda outputs, targets, task: mean_r2(outputs, targets),
}

PATIENCE_UNITS = ("iterations", "epochs")
"""What patience can be counted in."""

TIES = ("first", "loss")
"""Which of several epochs with the same validation score is the best."""

CHECKPOINT_SECONDS = 10.0
"""Least time between two checkpoints of a training."""

EVALUATED_GRAPHS = 512
"""Most graphs that are evaluated at a time."""

EVALUATED_ITEMS = 1 << 20
"""About how many nodes and edges are evaluated at a time at most."""


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


def evaluate(model: nn.Module, store: GraphStore, *, batch_size: int | None = None) -> Evaluation:
    """Let a model predict all graphs of a data set.

    Args:
        model: A classifier.
        store: The graphs.
        batch_size: Graphs at a time. (default: 512, fewer where graphs are large)

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> evaluate(gt.GraphClassifier.for_data(store, hidden=8), store).logits.shape
        torch.Size([8, 6])
    """
    predictor, device = as_predictor(model), _device(model)
    if batch_size is None:
        items = int(store.node_counts.sum() + store.edge_counts.sum()) // len(store)
        batch_size = max(1, min(EVALUATED_GRAPHS, EVALUATED_ITEMS // max(1, items)))
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
        validation_score: What patience and the best epoch go by, after the epoch: the validation
            value of the metric, or minus the loss where labels and numbers have none.
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
    validation_score: float = math.nan


@dataclass(frozen=True)
class FitResult:
    """A finished training.

    Attributes:
        model: The model, with the weights of the best epoch.
        history: Every epoch.
        best_epoch: The epoch with the highest validation score; of several the first, unless
            :func:`fit` was told otherwise.
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
    """Counts the iterations or epochs since a score last rose."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.best = (-math.inf, -math.inf)
        self.waited = 0

    def improved(self, score: float, passed: int, second: float = 0.0) -> bool:
        """Take in a score reached after some more time; only a strict rise counts.

        Args:
            score: Higher is better.
            passed: How long it took.
            second: Decides between equal scores.
        """
        if (score, second) > self.best:
            self.best, self.waited = (score, second), 0
            return True
        self.waited += passed
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
    patience_unit: str = "iterations",
    metric: str = "accuracy",
    clip_norm: float = 2.0,
    parts: int = 1,
    progress: bool | None = None,
    callbacks: Sequence[Callable[[EpochLog], None]] = (),
    saliency_module: nn.Module | str | None = None,
    balance: bool = False,
    ties: str = "first",
    checkpoint: str | Path | None = None,
) -> FitResult:
    """Train a classifier by the paper's protocol (appendix, "Evaluation protocol").

    Adam without weight decay; the learning rate is halved after ``decay_patience`` iterations
    without a lower validation loss; training stops after ``stop_patience`` iterations without a
    higher validation accuracy; the best epoch's weights are restored.

    With ``parts`` above 1 every batch is cut into so many consecutive pieces. Each is mixed within
    itself, with randomness of its own, and the step goes along the mean of their gradients,
    weighted by graphs. Where ``torch.distributed`` is initialised, each process takes its share of
    the pieces, and the result is that of one process with the same ``parts`` up to rounding: all
    processes call this function with the same arguments, and all end with the same weights.
    Running statistics of batch normalisation become their mean over the pieces.

    With a ``checkpoint`` a training that was ended from outside goes on where it was: the same call
    finds the file and ends with the same weights, bit for bit, as if nothing had happened. The file
    is written after an epoch, at most every ten seconds, and once more at the end; it stays
    until somebody deletes it.

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
        patience_unit: ``"iterations"``, or ``"epochs"`` to count both kinds of patience in epochs.
        metric: What decides when to stop and which weights to keep: ``"accuracy"``; ``"auroc"`` or
            ``"average_precision"`` for two classes and for labels (then the mean over the labels);
            ``"r2"`` for numbers. Labels and numbers have no accuracy here: with ``"accuracy"``
            their validation loss decides.
        clip_norm: Limit of the gradient's norm.
        parts: Number of pieces of a batch; a multiple of the number of processes.
        progress: Show a progress bar; by default when the error stream is a terminal. Of several
            processes only the first shows one.
        callbacks: Called with every epoch's log, of several processes only in the first. One that
            raises ends the training.
        saliency_module: For foreign models, where saliency is read; see :func:`augmented_loss`.
        balance: Draw the graphs of an epoch with replacement, as many as there are, so that every
            class is equally likely; with several labels, the class of a graph is the rarest label
            it has (:func:`~graph_transplant.targets.rarest_label`).
        ties: Which of several epochs with the same validation score is the best: the ``"first"``,
            as in the paper, or that with the lowest validation ``"loss"``. The score of a small or
            easy validation set is soon at its highest, long before the loss is at its lowest.
        checkpoint: File that keeps the whole state of the training; for one process.

    Returns:
        The trained model and its history.

    Raises:
        GraphTransplantError: If an argument cannot be used, the loss is not finite, or the
            checkpoint is that of another training or damaged.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs")
        >>> train, validation = store.subset(range(32)), store.subset(range(32, 48))
        >>> model = gt.GraphClassifier.for_data(train, hidden=8)
        >>> result = gt.fit(model, train, validation, gt.GraphTransplant(), seed=0, epochs=2)
        >>> result.epochs
        2
    """
    device = _device(model)
    group = _Group.current(device)
    least = {"epochs": 1, "batch_size": 1, "stop_patience": 1, "decay_patience": 1, "seed": 0}
    given = (epochs, batch_size, stop_patience, decay_patience, seed)
    for (name, bound), value in zip(least.items(), given, strict=True):
        if value < bound:
            raise GraphTransplantError(f"`{name}` must be at least {bound}, got {value}")
    for name, number in (("learning_rate", learning_rate), ("clip_norm", clip_norm)):
        if not number > 0:
            raise GraphTransplantError(f"`{name}` must be positive, got {number}")
    check_choice("patience_unit", patience_unit, PATIENCE_UNITS)
    check_choice("ties", ties, TIES)
    _check_metric(metric, validation)
    _check_parts(parts, batch_size, group.size)
    classes = _classes_to_balance(train) if balance else None
    augmentations = _several(augment)
    predictor = as_predictor(model, saliency_module)
    streams = [torch.Generator().manual_seed(_child(seed, stream)) for stream in range(2)]
    order_generator, augment_generator = streams
    begin = time.perf_counter()
    file = None
    if checkpoint is not None:
        if group.size > 1:
            raise GraphTransplantError(
                f"`checkpoint` is for one process, but {group.size} processes train together"
            )
        file = _CheckpointFile(
            Path(checkpoint),
            {
                "model": settings_of(model),
                "augment": [settings_of(augmentation) for augmentation in augmentations],
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
                "parts": parts,
                "balance": balance,
                "ties": ties,
            },
        )
    with (
        torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]),
        _progress_bar(progress if group.rank == 0 else False, epochs, metric) as show,
        ExitStack() as at_the_end,
    ):
        torch.manual_seed(_child(seed, 2))
        for augmentation in augmentations:
            augmentation.to(device).train()
            augmentation.check(predictor, train)
            augmentation.prepare(train, augment_generator)
        pieces = None
        if parts > 1:
            pieces = _Pieces(predictor, augmentations, train.task, parts, seed, group)
            at_the_end.callback(pieces.close)
        parameters = [
            p for module in (model, *augmentations) for p in module.parameters() if p.requires_grad
        ]
        optimizer = torch.optim.Adam(parameters, lr=learning_rate, fused=True)
        run = _Run(
            model=model,
            augmentations=augmentations,
            optimizer=optimizer,
            streams=streams,
            stop=_Patience(stop_patience),
            decay=_Patience(decay_patience),
            ties=ties,
            best_weights=copy.deepcopy(model.state_dict()),
        )
        if file is not None:
            file.restore(run)
            begin -= run.seconds
        model.train()
        while not run.finished(epochs):
            epoch = len(run.history) + 1
            rate = optimizer.param_groups[0]["lr"]
            if classes is None:
                order = torch.randperm(len(train), generator=order_generator)
            else:
                order = _balanced_order(classes, order_generator)
            if pieces is None:
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
            else:
                sums, steps = pieces.run_epoch(
                    train,
                    order,
                    optimizer,
                    batch_size=batch_size,
                    clip_norm=clip_norm,
                    begin=run.iterations,
                )
            run.iterations += steps
            if not all(math.isfinite(value) for value in sums):
                raise GraphTransplantError(
                    f"the training loss is not a finite number in epoch {epoch}; a lower "
                    f"`learning_rate` than {rate:g} or smaller features may help"
                )
            checked = _evaluate_together(model, validation, group)
            score = _score(checked, metric, validation.task)
            with evaluating(model):
                measured = merged_measurements(
                    *(part.after_epoch(predictor, validation) for part in augmentations)
                )
            if pieces is not None:
                measured = pieces.mean_measurements(measured)
            log = EpochLog(
                epoch=epoch,
                iterations=run.iterations,
                train_loss=sum(sums),
                clean_loss=sums[0],
                virtual_loss=sums[1],
                auxiliary_loss=sums[2],
                validation_loss=checked.loss,
                validation_accuracy=(
                    checked.accuracy if validation.task == "multiclass" else math.nan
                ),
                learning_rate=rate,
                seconds=time.perf_counter() - begin,
                measurements=measured,
                validation_score=score,
            )
            run.take_in(log, steps if patience_unit == "iterations" else 1)
            with group.ending_together():
                if group.rank == 0:
                    show(log)
                    for callback in callbacks:
                        callback(log)
            if file is not None:
                file.write(run, now=run.finished(epochs))
    model.load_state_dict(run.best_weights)
    model.eval()
    return FitResult(
        model=model,
        history=run.history,
        best_epoch=run.best_epoch,
        stopped_early=len(run.history) < epochs,
        seconds=time.perf_counter() - begin,
    )


@dataclass
class _Run:
    """A training under way: everything that changes from epoch to epoch.

    Attributes:
        model: The model.
        augmentations: Augmentations, prepared.
        optimizer: Of their parameters.
        streams: Generators of the order of the graphs and of augmentation.
        stop: Until training stops.
        decay: Until the learning rate is halved.
        ties: Which of several epochs with the best score counts.
        best_weights: The state of the model after the best epoch.
        best_epoch: Its number; 0 before there is one.
        iterations: Optimiser steps taken.
        history: Every epoch.
    """

    model: nn.Module
    augmentations: Sequence[Augmentation]
    optimizer: torch.optim.Optimizer
    streams: Sequence[torch.Generator]
    stop: _Patience
    decay: _Patience
    ties: str
    best_weights: dict[str, Any]
    best_epoch: int = 0
    iterations: int = 0
    history: list[EpochLog] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """How long the epochs took."""
        return self.history[-1].seconds if self.history else 0.0

    def finished(self, epochs: int) -> bool:
        """Whether there are so many epochs, or patience is over."""
        return len(self.history) >= epochs or self.stop.over

    def take_in(self, log: EpochLog, passed: int) -> None:
        """Add an epoch: remember the best weights, halve the learning rate when it is time.

        Args:
            log: What happened in it.
            passed: What it adds to the two patiences.
        """
        self.history.append(log)
        second = -log.validation_loss if self.ties == "loss" else 0.0
        if self.stop.improved(log.validation_score, passed, second):
            self.best_epoch = log.epoch
            self.best_weights = copy.deepcopy(self.model.state_dict())
        if not self.decay.improved(-log.validation_loss, passed) and self.decay.over:
            self.decay.waited = 0
            for group in self.optimizer.param_groups:
                group["lr"] *= 0.5

    def _modules(self) -> Iterator[tuple[str, nn.Module]]:
        yield "model.", self.model
        for number, augmentation in enumerate(self.augmentations):
            yield f"augmentation.{number}.", augmentation

    def pack(self, identity: dict[str, Any]) -> Checkpoint:
        """Give the whole state after an epoch.

        Args:
            identity: What tells this training from others.
        """
        tensors: dict[str, Tensor] = {"random.torch": torch.get_rng_state()}
        others: dict[str, Any] = {}
        device = _device(self.model)
        if device.type == "cuda":
            tensors["random.device"] = torch.cuda.get_rng_state(device)
        for number, stream in enumerate(self.streams):
            tensors[f"random.{number}"] = stream.get_state()
        for prefix, module in self._modules():
            own, rest = module_state(prefix, module)
            tensors.update(own)
            others.update(rest)
        for key, value in self.best_weights.items():
            kept = tensors if isinstance(value, Tensor) else others
            kept[f"best.{key}"] = value
        for number, values in self.optimizer.state_dict()["state"].items():
            for name, value in values.items():
                tensors[f"optimizer.{number}.{name}"] = value
        state = {
            "rates": [group["lr"] for group in self.optimizer.param_groups],
            "stop": [self.stop.best, self.stop.waited],
            "decay": [self.decay.best, self.decay.waited],
            "best_epoch": self.best_epoch,
            "iterations": self.iterations,
            "history": [asdict(log) for log in self.history],
            "others": others,
        }
        return Checkpoint(identity, tensors, state)

    def restore(self, found: Checkpoint) -> None:
        """Go back to a state that :meth:`pack` gave.

        Args:
            found: The state.
        """
        tensors, state = found.tensors, found.state
        for prefix, module in self._modules():
            load_module(prefix, module, tensors, state["others"])
        weights = {**tensors, **state["others"]}
        self.best_weights = {key: weights[f"best.{key}"] for key in self.model.state_dict()}
        kept = self.optimizer.state_dict()
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            if key.startswith("optimizer."):
                _, place, name = key.split(".")
                moments.setdefault(int(place), {})[name] = value
        for group, rate in zip(kept["param_groups"], state["rates"], strict=True):
            group["lr"] = rate
        self.optimizer.load_state_dict({**kept, "state": moments})
        for patience, (best, waited) in ((self.stop, state["stop"]), (self.decay, state["decay"])):
            patience.best, patience.waited = tuple(best), waited
        self.best_epoch, self.iterations = state["best_epoch"], state["iterations"]
        self.history = [EpochLog(**log) for log in state["history"]]
        for number, stream in enumerate(self.streams):
            stream.set_state(tensors[f"random.{number}"])
        torch.set_rng_state(tensors["random.torch"])
        device = _device(self.model)
        if device.type == "cuda" and "random.device" in tensors:
            torch.cuda.set_rng_state(tensors["random.device"], device)


class _CheckpointFile:
    """The file that keeps the state of a training.

    Args:
        path: The file.
        identity: What tells this training from others.
    """

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self._path = path
        self._identity = identity
        self._written = time.monotonic()
        self._found: Checkpoint | None = None
        # What cannot be used is found out before there is any work to lose.
        if path.exists():
            self._found = Checkpoint.read(path)
            self._found.check(identity, path)

    def restore(self, run: _Run) -> None:
        """Let a training go on from the file, if there was one.

        Args:
            run: The training, ready to start.
        """
        if self._found is None:
            return
        try:
            run.restore(self._found)
        except DataError:
            raise
        except (KeyError, TypeError, ValueError, RuntimeError) as problem:
            raise DataError(
                f"the checkpoint {self._path} does not fit the training: "
                f"{type(problem).__name__}: {problem}; delete it to start anew"
            ) from None

    def write(self, run: _Run, *, now: bool) -> None:
        """Write the state when the last time was long enough ago.

        Args:
            run: The training.
            now: Write it in any case.
        """
        if now or time.monotonic() - self._written >= CHECKPOINT_SECONDS:
            run.pack(self._identity).write(self._path)
            self._written = time.monotonic()


def _classes_to_balance(train: GraphStore) -> Tensor:
    """Number the classes that batches are balanced by, int64 ``[graphs]``, without gaps."""
    if train.task == "regression":
        raise GraphTransplantError(
            f"`balance` needs classes or labels, but the targets of {train.name} are numbers"
        )
    classes = train.labels if train.task == "multiclass" else rarest_label(train.y)
    found: Tensor
    _, found = torch.unique(classes, return_inverse=True)
    return found


def _balanced_order(classes: Tensor, generator: torch.Generator) -> Tensor:
    """Draw as many graphs as there are, with replacement, every class equally likely.

    Args:
        classes: From 0 without gaps, int64 ``[graphs]``.
        generator: Source of randomness.

    Returns:
        Graph numbers, int64 ``[graphs]``.
    """
    size = torch.bincount(classes)
    order = torch.argsort(classes, stable=True)
    drawn = torch.randint(len(size), classes.shape, generator=generator)
    share = torch.rand(classes.shape, generator=generator, dtype=torch.double)
    inside = (share * size.index_select(0, drawn)).to(torch.long)
    return order.index_select(0, offsets(size).index_select(0, drawn) + inside)


def _check_metric(metric: str, validation: GraphStore) -> None:
    """Refuse a metric that the validation graphs do not have."""
    check_choice("metric", metric, METRICS)
    if metric == "accuracy":
        return
    task = validation.task
    two_classes = task == "multiclass" and validation.num_outputs == 2
    fits = task == "regression" if metric == "r2" else two_classes or task == "multilabel"
    if not fits:
        kinds = {"multiclass": f"{validation.num_outputs} classes", "multilabel": "labels"}
        raise GraphTransplantError(
            f"`metric` is {metric!r}, which needs "
            f"{'numbers' if metric == 'r2' else 'two classes or labels'}; the targets of "
            f"{validation.name} are {kinds.get(task, 'numbers')}"
        )
    targets = as_targets(validation.y, validation.num_outputs)
    # Average precision is defined without negatives, but then it is 1 whatever the model says.
    decisive = "auroc" if metric == "average_precision" else metric
    if math.isnan(_SCORES[decisive](torch.zeros_like(targets), targets, task)):
        if metric == "r2":
            found = "have no target that varies"
        else:
            found = "are all of one class" if two_classes else "have no label with both values"
        raise GraphTransplantError(
            f"`metric` is {metric!r}, which is not defined on the validation graphs of "
            f"{validation.name}: they {found}"
        )


def _check_parts(parts: int, batch_size: int, processes: int) -> None:
    """Refuse a number of pieces that cannot be shared out."""
    if not 1 <= parts <= batch_size:
        raise GraphTransplantError(
            f"`parts` must lie between 1 and `batch_size`, which is {batch_size}; got {parts}"
        )
    if parts % processes:
        raise GraphTransplantError(
            f"{processes} processes train together: `parts` must be {processes} or a multiple of "
            f"it, got {parts}"
        )


def _score(checked: Evaluation, metric: str, task: str) -> float:
    """Return what patience and the best weights go by; higher is better."""
    if metric != "accuracy":
        return _SCORES[metric](checked.logits, checked.targets, task)
    return checked.accuracy if task == "multiclass" else -checked.loss


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


class EndedElsewhereError(GraphTransplantError):
    """Another of the processes that train together has ended the training; it says why.

    Example:
        >>> issubclass(EndedElsewhereError, GraphTransplantError)
        True
    """


@dataclass(frozen=True)
class _Group:
    """The processes that train one model together: those of ``torch.distributed``, or this one.

    Attributes:
        rank: Number of this process.
        size: Number of processes.
        device: Where the model is, and what is exchanged.
    """

    rank: int
    size: int
    device: torch.device

    @classmethod
    def current(cls, device: torch.device) -> _Group:
        """Return the group this process is in."""
        if distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_rank(), distributed.get_world_size(), device)
        return cls(0, 1, device)

    def share(self, items: int) -> range:
        """Return the places of this process's share of some items; the first shares are larger."""
        least, more = divmod(items, self.size)
        begin = self.rank * least + min(self.rank, more)
        return range(begin, begin + least + (self.rank < more))

    def total(self, values: Tensor) -> Tensor:
        """Add up the values of all processes, in place."""
        if self.size > 1:
            distributed.all_reduce(values)
        return values

    def stacked(self, rows: Tensor) -> Tensor:
        """Put the rows of all processes one after another, ``[rows of all, columns]``."""
        rows = rows.to(self.device)
        counts = torch.zeros(self.size, dtype=torch.long, device=self.device)
        counts[self.rank] = len(rows)
        lengths: list[int] = self.total(counts).tolist()
        # The collective wants one shape of all.
        padded = nn.functional.pad(rows, (0, 0, 0, max(lengths) - len(rows)))
        found = [torch.empty_like(padded) for _ in lengths]
        distributed.all_gather(found, padded.contiguous())
        return torch.cat([part[:length] for part, length in zip(found, lengths, strict=True)])

    @contextmanager
    def ending_together(self) -> Iterator[None]:
        """Let processes do something by themselves; when it raises in one, all end."""
        failed = True
        try:
            yield
            failed = False
        finally:
            if self.size > 1:
                failures = self.total(torch.tensor([int(failed)], device=self.device))
                if int(failures) and not failed:
                    raise EndedElsewhereError("another process of the group ended the training")


def _evaluate_together(model: nn.Module, store: GraphStore, group: _Group) -> Evaluation:
    """Let every process predict a share of the graphs; all get the predictions of all graphs."""
    if group.size == 1:
        return evaluate(model, store)
    share = group.share(len(store))
    # A process without a share predicts one graph and hands over no row of it: it must know how
    # many columns there are.
    own = evaluate(model, store.subset(share or range(1))).logits[: len(share)]
    logits = group.stacked(own).cpu()
    targets = as_targets(store.y, logits.shape[1])
    return Evaluation(logits, targets, float(graph_losses(logits, targets, store.task).mean()))


class _PieceLoss(nn.Module):
    """The losses of a piece of a batch as one module.

    ``DistributedDataParallel`` looks after the passes of the one module it wraps; the many passes
    of a step, on original graphs and on virtual ones, are one to it.

    Args:
        predictor: The model.
        augmentations: Augmentations.
        task: What the targets are.
    """

    def __init__(
        self, predictor: Predictor, augmentations: Sequence[Augmentation], task: str
    ) -> None:
        super().__init__()
        self.model = module_of(predictor)
        self.augmentations = nn.ModuleList(augmentations)
        # Where every parameter is used, torch prints a warning that it looks for unused ones. It
        # has to: an edge predictor has nothing to do in a piece without edges to predict.
        self.unused = nn.Parameter(torch.zeros(1, device=_device(self.model)))
        self._given = (predictor, tuple(augmentations), task)

    def forward(
        self, batch: Batch | None, scale: float, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return the sum of the losses times a factor, and the three losses, float ``[3]``."""
        if batch is None:
            # A zero that a parameter has part in, so that there is a backward pass. A parameter of
            # the model, used by every piece: a zero gradient is not the same to Adam as none.
            every = (*self.model.parameters(), *self.augmentations.parameters())
            used = next(p for p in every if p.requires_grad)
            return used.sum() * 0.0, used.new_zeros(3)
        predictor, augmentations, task = self._given
        losses = step_losses(predictor, batch, augmentations, task=task, generator=generator)
        each = torch.stack((losses.clean, losses.virtual, losses.auxiliary))
        return losses.total * scale, each.detach()


class _Pieces:
    """Takes steps on batches that are cut into pieces.

    Args:
        predictor: The model.
        augmentations: Augmentations, ready for training.
        task: What the targets are.
        parts: Number of pieces of a batch.
        seed: All randomness of a piece follows from it, the number of the step and the number of
            the piece, and so does not depend on who works on it.
        group: The processes that share the pieces.
    """

    def __init__(
        self,
        predictor: Predictor,
        augmentations: Sequence[Augmentation],
        task: str,
        parts: int,
        seed: int,
        group: _Group,
    ) -> None:
        self._step: nn.Module = _PieceLoss(predictor, augmentations, task)
        if group.size > 1:
            self._step = DistributedDataParallel(
                self._step, forward_sync_buffers=False, find_unused_parameters=True
            )
        self._parts, self._seed, self._group = parts, seed, group
        self._running = _RunningStatistics(module_of(predictor))
        self._graphs = 0

    def close(self) -> None:
        """Give back what gradients were exchanged with, while there still is a process group.

        The reducer has a share in the group, and a traceback may keep it beyond the group's end.
        As the last to let go it would end the group's threads while it holds Python's global lock;
        a thread that needs the lock for its own end and the reducer then wait for each other.
        """
        if isinstance(self._step, DistributedDataParallel):
            del self._step.logger, self._step.reducer

    def run_epoch(
        self,
        train: GraphStore,
        order: Tensor,
        optimizer: torch.optim.Optimizer,
        *,
        batch_size: int,
        clip_norm: float,
        begin: int,
    ) -> tuple[list[float], int]:
        """Take one step per batch, like ``_run_epoch``.

        Args:
            train: Training graphs.
            order: Their order, int64 ``[graphs]``.
            optimizer: Of the parameters of the model and the augmentations.
            batch_size: Graphs per step, of all processes together.
            clip_norm: Limit of the gradient's norm.
            begin: Number of steps taken before.
        """
        parameters = [p for each in optimizer.param_groups for p in each["params"]]
        totals = torch.zeros(3, device=self._group.device)
        batches = torch.split(order, batch_size)
        self._graphs = 0
        for iteration, batch in enumerate(batches, start=begin):
            optimizer.zero_grad(set_to_none=True)
            totals += self._accumulate(train, batch, iteration) * (len(batch) / len(train))
            nn.utils.clip_grad_norm_(parameters, clip_norm)
            optimizer.step()
        return self._group.total(totals).tolist(), len(batches)

    def _accumulate(self, train: GraphStore, batch: Tensor, iteration: int) -> Tensor:
        """Add up the gradients of this process's pieces; return its part of the mean losses."""
        pieces = list(enumerate(torch.tensor_split(batch, self._parts)))
        share = self._group.share(self._parts)
        own = [(number, piece) for number, piece in pieces[share.start : share.stop] if len(piece)]
        found = torch.zeros(3, device=self._group.device)
        generator = torch.Generator()
        self._running.begin_step()
        # Without a piece there is still the gradient of the others to receive.
        for number, piece in own or [(share.start, batch[:0])]:
            torch.manual_seed(_child(self._seed, 3, iteration, number))
            generator.manual_seed(_child(self._seed, 4, iteration, number))
            weight = len(piece) / len(batch)
            graphs = train.batch(piece).to(self._group.device) if len(piece) else None
            last = not own or number == own[-1][0]
            with self._kept_to_itself(not last):
                # Processes are averaged over, but what is wanted is the sum over pieces.
                loss, each = self._step(graphs, weight * self._group.size, generator)
                torch.autograd.backward(loss)
            self._running.take_in(weight)
            found += each * weight
            self._graphs += len(piece)
        self._running.end_step(self._group)
        return found

    def _kept_to_itself(self, really: bool) -> AbstractContextManager[None]:
        """Let gradients add up here; they are sent around with those of the last piece."""
        if really and isinstance(self._step, DistributedDataParallel):
            return self._step.no_sync()
        return nullcontext()

    def mean_measurements(self, own: dict[str, float]) -> dict[str, float]:
        """Average measurements over the processes, weighted by the graphs each has trained on.

        What all of them measured on the same graphs stays what it is; what each counted during the
        epoch becomes what one process would have counted.
        """
        if self._group.size == 1:
            return own
        found: list[tuple[dict[str, float], int]] = [({}, 0)] * self._group.size
        distributed.all_gather_object(found, (own, self._graphs))
        return _weighted_means(found)


def _weighted_means(found: Sequence[tuple[dict[str, float], int]]) -> dict[str, float]:
    """Average measurements by name, each over those who have it.

    Args:
        found: Measurements and their weight; those without weight do not count.
    """
    counting = [(measured, weight) for measured, weight in found if weight]
    means: dict[str, float] = {}
    for name in dict.fromkeys(name for measured, _ in counting for name in measured):
        having = [(measured[name], weight) for measured, weight in counting if name in measured]
        if all(value == having[0][0] for value, _ in having):
            means[name] = having[0][0]
        else:
            means[name] = sum(v * w for v, w in having) / sum(w for _, w in having)
    return means


class _RunningStatistics:
    """The running statistics of a model, which every pass of batch normalisation changes.

    Each piece of a batch starts from the same ones, and the step ends with their mean, weighted by
    graphs: so they do not depend on how the pieces are shared out.

    Args:
        model: The model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._buffers = [
            buffer
            for module in model.modules()
            if getattr(module, "running_mean", None) is not None
            for buffer in module.buffers(recurse=False)
        ]
        self._start: list[Tensor] = []
        self._sums: list[Tensor] = []

    def begin_step(self) -> None:
        """Remember what the pieces start from."""
        self._start = [buffer.clone() for buffer in self._buffers]
        self._sums = [torch.zeros_like(buffer, dtype=torch.double) for buffer in self._buffers]

    def take_in(self, weight: float) -> None:
        """Take in what a piece left, and go back to the start."""
        for buffer, start, total in zip(self._buffers, self._start, self._sums, strict=True):
            total.add_(buffer, alpha=weight)
            buffer.copy_(start)

    def end_step(self, group: _Group) -> None:
        """Set the mean over all pieces of all processes."""
        if not self._buffers:
            return
        flat = group.total(torch.cat([total.flatten() for total in self._sums]))
        parts = torch.split(flat, [buffer.numel() for buffer in self._buffers])
        for buffer, part in zip(self._buffers, parts, strict=True):
            # Counts of batches are whole numbers; their mean is, but for rounding.
            mean = part if buffer.is_floating_point() else part.round()
            buffer.copy_(mean.view_as(buffer))


def _child(seed: int, *stream: int) -> int:
    """Derive the seed of one stream of randomness from the seed of all."""
    return int(np.random.SeedSequence([seed, *stream]).generate_state(1, np.uint64)[0] >> 1)


@contextmanager
def _progress_bar(
    progress: bool | None, epochs: int, metric: str
) -> Iterator[Callable[[EpochLog], None]]:
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
            text = f"loss {log.train_loss:.3f}  val loss {log.validation_loss:.3f}"
            if metric != "accuracy":
                text += f"  val {metric.replace('_', ' ')} {log.validation_score:.3f}"
            elif not math.isnan(log.validation_accuracy):
                text += f"  val acc {log.validation_accuracy:.3f}"
            bar.update(task, completed=log.epoch, description=text)

        yield show
