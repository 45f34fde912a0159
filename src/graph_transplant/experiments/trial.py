"""One trial: one method, with one model if it trains any, on one fold, from one seed."""

from __future__ import annotations

import copy
import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from graph_transplant import __version__
from graph_transplant.augment import Augmentation, build_method
from graph_transplant.checkpoints import CheckpointError
from graph_transplant.classical import CLASSICAL, fit_predict
from graph_transplant.experiments.conditions import fewer_graphs, wrong_labels
from graph_transplant.experiments.measurements import measurements, rival_measurements
from graph_transplant.experiments.protocol import FOLD_SPLITS, Record, Settings, Trial
from graph_transplant.graphs import GraphStore, Rows
from graph_transplant.nn import GraphClassifier
from graph_transplant.splits import Split, fold_indices, official_split, strata
from graph_transplant.targets import TargetScale
from graph_transplant.training import EpochLog, FitResult, fit

CURVE_POINTS = 60
"""Most points of a recorded learning curve."""


def trial_seed(trial: Trial, seed: int) -> int:
    """Derive the seed of a trial from the seed of the comparison.

    The method does not enter: all methods of a fold start from the same weights and see the same
    batch order, so that their difference is the method's. Nor do label noise and training fraction:
    all conditions of a fold start from the same weights, and with the same number of graphs batches
    are drawn in the same order. (Without node features the first layer is as wide as the largest
    degree of the graphs that are used, and a fraction of them may have other weights.)
    """
    # Python's own hash of a string differs between processes.
    name = int.from_bytes(hashlib.sha256(trial.model.encode()).digest()[:4], "little")
    key: tuple[int, ...] = (trial.repeat, trial.fold, name, trial.layers)
    if trial.inner:
        key += (trial.inner,)
    return int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1)[0])


def split_of(store: GraphStore, trial: Trial, settings: Settings) -> Split:
    """Give the training, validation and test graphs of a trial.

    Where the trial asks for a fraction of the training graphs, the rest is in no part.
    """
    if settings.split not in FOLD_SPLITS:
        split = official_split(store)
    else:
        split = fold_indices(
            strata(store, settings.folds),
            folds=settings.folds,
            repeat=trial.repeat,
            seed=settings.seed,
            fold=trial.fold,
            inner=trial.inner,
            groups=store.groups,
        )
    train = fewer_graphs(
        store,
        split.train,
        trial.train_fraction,
        repeat=trial.repeat,
        seed=settings.seed,
        fold=trial.fold,
    )
    return replace(split, train=train)


def training_graphs(
    store: GraphStore, split: Split, trial: Trial, settings: Settings
) -> GraphStore:
    """Give the graphs that a trial trains on, some with wrong labels if it asks for that."""
    train = store.subset(split.train)
    if not trial.label_noise:
        return train
    labels = training_labels(store, split, trial, settings)
    return train.with_targets(labels, num_outputs=store.num_outputs)


def training_labels(store: GraphStore, split: Split, trial: Trial, settings: Settings) -> Tensor:
    """Give the targets that a trial trains on, some of them wrong if it asks for that."""
    if not trial.label_noise:
        return store.y[split.train]
    return wrong_labels(
        store,
        split.train,
        trial.label_noise,
        repeat=trial.repeat,
        seed=settings.seed,
        fold=trial.fold,
    )


@dataclass(frozen=True)
class Own:
    """Methods and models of the user's own, by name, and what is called after every epoch.

    Attributes:
        methods: Augmentations, or the name of a method that is called otherwise here.
        models: Functions that make a model for some graphs.
        callbacks: Called after every epoch of trials in this process.
    """

    methods: Mapping[str, tuple[Augmentation, ...] | str] = field(default_factory=dict)
    models: Mapping[str, Callable[[GraphStore], nn.Module]] = field(default_factory=dict)
    callbacks: tuple[Callable[[EpochLog], None], ...] = ()

    def rival(self, name: str) -> str | None:
        """Key of :data:`CLASSICAL` that a method is; ``None`` for one that trains a network."""
        given = self.methods.get(name, name)
        return given if isinstance(given, str) and given in CLASSICAL else None

    def augmentations(self, name: str, model: nn.Module, seed: int) -> tuple[Augmentation, ...]:
        """Augmentations of a method, as new as on the first day."""
        given = self.methods.get(name, name)
        if isinstance(given, str):
            return build_method(given, model, seed=seed)
        return copy.deepcopy(given)


def checkpoint_of(folder: Path, trial: Trial) -> Path:
    """Name the file that keeps the state of a trial while it trains."""
    key = "-".join(str(value) for value in astuple(trial))
    return folder / f"{re.sub(r'[^-.=A-Za-z0-9]', '_', key)}.pt"


def run_trial(
    store: GraphStore,
    trial: Trial,
    settings: Settings,
    *,
    fingerprint: str,
    source: str,
    callbacks: Sequence[Callable[[EpochLog], None]] = (),
    checkpoint: Path | None = None,
    own: Own | None = None,
) -> Record:
    """Train and evaluate one trial.

    Selection looks at the validation graphs only; the test graphs are evaluated once, at the
    selected checkpoint. Standardisation statistics come from training and validation graphs, those
    of numbers to predict from the training graphs alone; predicted numbers are measured in the
    units of the data. Label noise and training fraction change the training graphs alone:
    validation and test graphs are all there and have their true labels, so that the choice of a
    checkpoint sees no wrong label. The record depends on the arguments alone, apart from its times,
    ``seconds`` and ``cost``.
    """
    own = own or Own()
    start = time.perf_counter()
    split = split_of(store, trial, settings)
    seed = trial_seed(trial, settings.seed)
    train = training_graphs(store, split, trial, settings)
    validation = store.subset(split.validation)
    found = partial(_record, store, trial, settings, split, train, seed, fingerprint, source)
    rival = own.rival(trial.method)
    if rival is not None:
        processor = time.process_time()
        test = store.subset(split.test)
        outcome = fit_predict(
            rival,
            train,
            validation,
            test,
            metric=settings.metric,
            balance=settings.balance,
            seed=seed,
        )
        processor = time.process_time() - processor
        seconds = time.perf_counter() - start
        return found(seconds, rival_measurements(outcome, validation, test, processor))
    scale = TargetScale.of(train) if store.task == "regression" else None

    def trained() -> tuple[FitResult, Sequence[Augmentation]]:
        seen = store.subset(torch.cat([split.train, split.validation]))
        if trial.model in own.models:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model = own.models[trial.model](seen)
        else:
            model = GraphClassifier.for_data(
                seen, conv=trial.model, layers=trial.layers, **settings.network(), seed=seed
            )
        augmentations = own.augmentations(trial.method, model, seed + 1)
        result = fit(
            model,
            train if scale is None else scale.apply(train),
            validation if scale is None else scale.apply(validation),
            augmentations,
            seed=seed,
            **settings.fitting(),
            progress=False,
            callbacks=callbacks,
            checkpoint=checkpoint,
        )
        return result, augmentations

    begin, processor = time.perf_counter(), time.process_time()
    try:
        result, augmentations = trained()
    except CheckpointError:
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)
        result, augmentations = trained()
    processor = time.process_time() - processor
    # What is measured afterwards is the same work for all methods, and no part of their training.
    now = time.perf_counter()
    # Epochs that were trained before the trial was killed count by the clock.
    earlier = max(0.0, result.seconds - (now - begin))
    seconds = now - start + earlier
    measured = measurements(
        result,
        augmentations,
        processor=processor + earlier,
        store=store,
        split=split,
        train=train,
        trial=trial,
        settings=settings,
        scale=scale,
        seed=seed,
    )
    measured |= {
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "stopped_early": result.stopped_early,
        "curve": sampled_curve(result.history),
    }
    return found(seconds, measured)


def _record(
    store: GraphStore,
    trial: Trial,
    settings: Settings,
    split: Split,
    train: GraphStore,
    seed: int,
    fingerprint: str,
    source: str,
    seconds: float,
    measured: Record,
) -> Record:
    """Put together what a trial is and what was measured of it."""
    record: Record = {
        "data": store.name,
        "source": source,
        "fingerprint": fingerprint,
        "task": store.task,
        "method": trial.method,
        "model": trial.model or None,
        "layers": trial.layers or None,
        "repeat": trial.repeat,
        "fold": trial.fold,
        "inner": trial.inner,
        "seed": seed,
        "validation": measured["validation"],
        "test": measured["test"],
        "epochs": None,
        "best_epoch": None,
        "seconds": round(seconds, 3),
        "sizes": {
            "train": len(split.train),
            "validation": len(split.validation),
            "test": len(split.test),
        },
        "settings": settings.as_record(__version__),
        **trial.condition.as_record(),
    }
    if trial.train_fraction != 1:
        record["sizes"]["left_out"] = len(store) - sum(record["sizes"].values())
    if store.task == "multiclass":
        # What always saying the largest class of the training graphs would reach.
        largest = torch.bincount(store.labels[split.train]).argmax()
        record["majority"] = float(store.labels[split.test].eq(largest).double().mean())
    if trial.label_noise:
        true = store.y[split.train]
        # What is missing is not wrong, though it does not equal itself.
        record["wrong_labels"] = int(((train.y != true) & ~true.isnan()).sum())
    return record | measured


@dataclass(frozen=True)
class Job:
    """What all trials of a comparison have in common, for whatever process runs them.

    Args:
        settings: The protocol.
        fingerprint: Fingerprint of the data set.
        source: How the data set was named by the user.
        checkpoints: Folder for the states of trials. Where it is not there, as on another machine
            without a common disk, trials keep none.
        own: Methods and models of the user's own.
        rows: What the graphs were read from, which the files that workers read do not hold.
    """

    settings: Settings
    fingerprint: str
    source: str
    checkpoints: Path | None = None
    own: Own = field(default_factory=Own)
    rows: Rows | None = None

    def run(
        self,
        store: GraphStore,
        trial: Trial,
        callbacks: Sequence[Callable[[EpochLog], None]] = (),
    ) -> Record:
        """Run one trial, see :func:`run_trial`."""
        folder = self.checkpoints
        path = None if folder is None or not folder.is_dir() else checkpoint_of(folder, trial)
        if store.rows is None and self.rows is not None:
            store = copy.copy(store)
            store.rows = self.rows
        return run_trial(
            store,
            trial,
            self.settings,
            fingerprint=self.fingerprint,
            source=self.source,
            callbacks=callbacks,
            checkpoint=path,
            own=self.own,
        )


def sampled_curve(history: Sequence[EpochLog], points: int = CURVE_POINTS) -> list[Record]:
    """Take at most ``points`` epochs from a history, evenly, the first and the last among them.

    Each point has the values of one epoch, not an average over several.
    """
    if len(history) > points:
        kept = np.unique(np.linspace(0, len(history) - 1, points).round().astype(int))
        history = [history[number] for number in kept]
    curve = []
    for log in history:
        point: Record = {
            "epoch": log.epoch,
            "train_loss": log.train_loss,
            "validation_loss": log.validation_loss,
            "validation_accuracy": log.validation_accuracy,
            "validation_score": log.validation_score,
        }
        if log.measurements:
            point["measurements"] = dict(log.measurements)
        curve.append(point)
    return curve
