"""The state of a training: what its steps share, and what a checkpoint holds."""

from __future__ import annotations

import copy
import inspect
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from graph_transplant.augment import Augmentation
from graph_transplant.augment.base import as_augmentations
from graph_transplant.config.training import FitConfig
from graph_transplant.data import GraphStore, check_stores
from graph_transplant.data.targets import Loss, as_numbers, as_targets, rarest_label
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.metrics import defined
from graph_transplant.nn.adapter import Predictor, as_predictor, module_of
from graph_transplant.training import checkpoint as checkpoints
from graph_transplant.training.checkpoint import CheckpointError, alike, settings_of
from graph_transplant.training.distributed import Ranks
from graph_transplant.training.step import Augmentations
from graph_transplant.utils.text import count, listed

# Random streams derived from the seed.
ORDER, AUGMENT, DROPOUT = range(3)


def derived_seed(seed: int, *stream: int) -> int:
    """Return the seed of a random stream, such as that of an epoch."""
    return int(np.random.SeedSequence([seed, *stream]).generate_state(1, np.uint64)[0] >> 1)


def derived_generator(seed: int, *stream: int) -> torch.Generator:
    """Return the generator of a random stream."""
    return torch.Generator().manual_seed(derived_seed(seed, *stream))


@dataclass(frozen=True)
class EpochLog:
    """Losses and scores of one epoch."""

    epoch: int  # counted from 1
    iterations: int  # optimiser steps since training began
    train_loss: float  # mean over the epoch's graphs; sum of its four parts
    clean_loss: float
    virtual_loss: float
    auxiliary_loss: float
    validation_loss: float
    validation_accuracy: float  # NaN unless the task is multiclass
    learning_rate: float
    seconds: float  # since training began
    measurements: dict[str, float]  # by augmentations, after the epoch
    validation_score: float = math.nan  # for patience and the best epoch; higher is better
    extra_loss: float = 0.0  # the model's own


class Patience:
    """Counts the iterations or epochs since the last improvement of a score."""

    def __init__(self, limit: int, *, ties: bool = False) -> None:
        self.limit = limit
        self.ties = ties
        self.best = (-math.inf, -math.inf)
        self.waited = 0

    def improved(self, score: float, passed: int, second: float = 0.0) -> bool:
        """Add a score (higher is better) after ``passed`` units of time; ``second`` breaks ties."""
        now = (score, second)
        if now > self.best or (self.ties and now == self.best):
            self.best, self.waited = now, 0
            return True
        self.waited += passed
        return False

    @property
    def over(self) -> bool:
        """Whether patience has run out."""
        return self.waited >= self.limit


def states_of(modules: Sequence[nn.Module]) -> list[dict[str, Any]]:
    """Copy the weights and buffers of modules."""
    return [copy.deepcopy(module.state_dict()) for module in modules]


@dataclass
class TrainingState:
    """A training under way.

    ``best`` holds the states of the model and its augmentations after the best epoch. Without a
    scheduler, ``decay`` halves the learning rate as in the paper.
    """

    config: FitConfig
    model: nn.Module
    predictor: Predictor
    augmentations: tuple[Augmentation, ...]
    train: GraphStore
    validation: GraphStore
    sampling: Tensor | None  # weights for drawing graphs with replacement, [graphs]
    loss_of: Loss
    optimizer: Optimizer
    scheduler: LRScheduler | None
    stop: Patience
    decay: Patience
    best: list[dict[str, Any]]
    ranks: Ranks
    begun: float  # on the clock of `time.perf_counter`, less the time before an interruption
    best_epoch: int = 0
    iterations: int = 0
    history: list[EpochLog] = field(default_factory=list)

    @property
    def modules(self) -> list[nn.Module]:
        """The model and its augmentations."""
        return [module_of(self.predictor), *self.augmentations]

    @property
    def epoch(self) -> int:
        """Number of the next epoch, counted from 1."""
        return len(self.history) + 1

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step, that of the first group of parameters."""
        rate: float = self.optimizer.param_groups[0]["lr"]
        return rate

    @property
    def finished(self) -> bool:
        """Whether all epochs are done or patience has run out."""
        return len(self.history) >= self.config.epochs or self.stop.over

    @property
    def seconds(self) -> float:
        """Time since training began, without interruptions."""
        return time.perf_counter() - self.begun

    def batches(self) -> tuple[Tensor, ...]:
        """Draw the graphs of the batches of the next epoch."""
        drawn = derived_generator(self.config.seed, ORDER, self.epoch)
        graphs = len(self.train)
        if self.sampling is None:
            order = torch.randperm(graphs, generator=drawn)
        else:
            order = torch.multinomial(self.sampling, graphs, replacement=True, generator=drawn)
        return torch.split(order, self.config.batch_size)

    def record(self, log: EpochLog) -> None:
        """Add an epoch: update patience, the best states and the learning rate."""
        passed = log.iterations - (self.history[-1].iterations if self.history else 0)
        if self.config.patience_unit == "epochs":
            passed = 1
        self.history.append(log)
        second = -log.validation_loss if self.config.ties == "loss" else 0.0
        if self.stop.improved(log.validation_score, passed, second):
            self.best_epoch, self.best = log.epoch, states_of(self.modules)
        if isinstance(self.scheduler, ReduceLROnPlateau):
            upwards = self.scheduler.mode == "max"
            self.scheduler.step(log.validation_score if upwards else log.validation_loss)
        elif self.scheduler is not None:
            self.scheduler.step()
        elif not self.decay.improved(-log.validation_loss, passed) and self.decay.over:
            self.decay.waited = 0
            for group in self.optimizer.param_groups:
                group["lr"] *= 0.5

    def restore_best(self) -> None:
        """Load the states of the best epoch, and end training mode."""
        for module, state in zip(self.modules, self.best, strict=True):
            module.load_state_dict(state)
        self.modules[0].eval()

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with: model, augmentations, data and every option."""
        parts = {"train": self.train, "validation": self.validation}
        return {
            "model": settings_of(self.modules[0]),
            "augment": [settings_of(augmentation) for augmentation in self.augmentations],
            **{
                name: {"graphs": len(part), "fingerprint": part.fingerprint()}
                for name, part in parts.items()
            },
            **{
                option.name: settings_of(getattr(self.config, option.name))
                for option in fields(self.config)
            },
            "processes": self.ranks.size,
        }

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {
            "modules": [module.state_dict() for module in self.modules],
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "patience": [(each.best, each.waited) for each in (self.stop, self.decay)],
            "best": self.best,
            "best_epoch": self.best_epoch,
            "iterations": self.iterations,
            "history": [asdict(log) for log in self.history],
        }

    def restore(self, path: Path, identity: dict[str, Any]) -> None:
        """Resume from a checkpoint, if there is one."""
        state = checkpoints.read(path, identity)
        if state is None:
            return
        try:
            for name in ("best", "modules"):  # the first is loaded again at the end of training
                for module, saved in zip(self.modules, state[name], strict=True):
                    module.load_state_dict(saved)
            template = self.state()
            for name in ("scheduler", "patience", "best_epoch", "iterations"):
                if not alike(state[name], template[name]):
                    raise ValueError(f"`{name}` has other parts")
            self.optimizer.load_state_dict(state["optimizer"])
            # Torch checks neither: the next step would fail.
            groups = alike(
                self.optimizer.state_dict()["param_groups"], template["optimizer"]["param_groups"]
            )
            shapes = all(
                not isinstance(value, Tensor) or not value.dim() or value.shape == parameter.shape
                for parameter, values in self.optimizer.state.items()
                for value in values.values()
            )
            if not (groups and shapes):
                raise ValueError("`optimizer` has other parts")
            if self.scheduler is not None:
                self.scheduler.load_state_dict(state["scheduler"])
            for patience, (best, waited) in zip(
                (self.stop, self.decay), state["patience"], strict=True
            ):
                patience.best, patience.waited = tuple(best), waited
            self.best, self.best_epoch = state["best"], state["best_epoch"]
            self.iterations = state["iterations"]
            self.history = [EpochLog(**log) for log in state["history"]]
            values = [value for log in state["history"] for value in log.values()]
            if not all(isinstance(value, int | float | dict) for value in values):
                raise ValueError("`history` must be numbers")
        except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as problem:
            reason = " ".join(str(problem).split())[:300]
            raise CheckpointError(
                f"the checkpoint {path} does not fit the training: {reason}; delete it to start "
                "over"
            ) from None
        self.begun -= self.history[-1].seconds if self.history else 0.0


def start(
    model: nn.Module,
    train: GraphStore,
    validation: GraphStore,
    augment: Augmentations,
    config: FitConfig,
) -> TrainingState:
    """Check that a model can be trained as configured, and prepare everything for its steps."""
    check_stores(train=train, validation=validation)
    if validation.task != train.task:
        raise DataError(
            f"`validation` must have the task of `train`, {train.task}; it is {validation.task}: "
            "pass `task` where they are read"
        )
    names, others = train.label_names, validation.label_names
    if names and others and names != others:
        raise DataError(
            f"the classes of `train` are {listed(names)}, those of `validation` {listed(others)}: "
            "load both together with gt.load, and pass subsets"
        )
    _check_metric(config.metric, validation)
    ranks, device = Ranks.current(), device_of(model)
    sampling = None
    if config.graph_weight is not None:
        sampling = checked_weights("graph_weight", config.graph_weight, len(train))
        config = replace(config, graph_weight=sampling.tolist())
    if config.balance:
        sampling = _balancing(train) * (1.0 if sampling is None else sampling)
    augmentations = as_augmentations(augment)
    # Gradients are reduced here: DDP would wait for ranks without graphs.
    alone = model.module if isinstance(model, DistributedDataParallel) else model
    predictor = as_predictor(alone, config.saliency_module, config.output, config.call)
    weight = config.class_weight
    weight = None if weight is None else as_numbers("class_weight", weight)
    loss_of = Loss(train.task, weight, config.loss_fn)
    config = replace(config, class_weight=weight)
    if not any(parameter.requires_grad for parameter in module_of(predictor).parameters()):
        raise GraphTransplantError(
            "the model has no parameter that requires gradients, so there is nothing to train: do "
            "not freeze all of its layers"
        )
    begun = time.perf_counter()
    for augmentation in augmentations:
        augmentation.to(device).train()
        augmentation.check(predictor, train)
        augmentation.prepare(train, derived_generator(config.seed, AUGMENT, 0, ranks.rank))
    modules = [module_of(predictor), *augmentations]
    # Each parameter once, although augmentations may share some.
    parameters = [p for p in nn.ModuleList(modules).parameters() if p.requires_grad]
    if config.optimizer is None:
        optimizer: Optimizer = torch.optim.Adam(parameters, lr=config.learning_rate, fused=True)
    else:
        optimizer = config.optimizer(parameters)
        _check_optimizer(optimizer)
    return TrainingState(
        config=config,
        model=alone,
        predictor=predictor,
        augmentations=augmentations,
        train=train,
        validation=validation,
        sampling=sampling,
        loss_of=loss_of,
        optimizer=optimizer,
        scheduler=None if config.scheduler is None else config.scheduler(optimizer),
        stop=Patience(config.stop_patience, ties=config.ties == "reset"),
        decay=Patience(config.decay_patience),
        best=states_of(modules),
        ranks=ranks,
        begun=begun,
    )


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model's parameters."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


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
