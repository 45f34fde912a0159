"""Training conditions: fewer training graphs and wrong labels, drawn from the comparison's seed."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from graph_transplant.config.compare import FOLD_SPLITS, Settings
from graph_transplant.data import GraphStore
from graph_transplant.data.targets import rarest_label
from graph_transplant.datasets.splits import (
    QUANTILES,
    Split,
    by_rank,
    fold_indices,
    official_split,
    strata,
)
from graph_transplant.errors import GraphTransplantError
from graph_transplant.results.record import Trial

_SIZE, _NOISE = 1, 2
"""Last elements of the spawn keys for leaving out graphs and for label noise."""


def fewer_graphs(
    store: GraphStore, train: Tensor, fraction: float, *, repeat: int, seed: int, fold: int
) -> Tensor:
    """Keep ``round(fraction * len(train))`` of the training graphs, with equal class proportions.

    Smaller fractions are subsets of larger ones: graphs are shuffled within each class, and places
    are allocated to classes by Webster's method. Multilabel data are stratified by the rarest
    label, regression data by ten quantile groups of the first target.
    """
    if fraction == 1:
        return train
    y = store.y[train]
    if store.task == "multiclass":
        classes = y
    elif store.task == "multilabel":
        classes = rarest_label(y)
    else:
        classes = by_rank(y[:, 0], QUANTILES)
    groups = classes.cpu().numpy()
    # Drawn for all graphs, so that a graph's place does not depend on the training set.
    place = _stream(seed, repeat, fold, _SIZE).random(len(store))[train.cpu().numpy()]
    order = np.lexsort((place, groups))
    counts = np.bincount(groups)
    ranks = np.arange(len(order)) - (np.cumsum(counts) - counts)[groups[order]]
    share = np.empty(len(order))
    share[order] = (ranks + 0.5) / counts[groups[order]]
    kept = np.sort(np.lexsort((place, share))[: round(fraction * len(train))])
    where = f"in fold {fold} of repeat {repeat} of {store.name}"
    if store.task == "multiclass":
        lost = np.flatnonzero((counts > 0) & (np.bincount(groups[kept], minlength=len(counts)) < 1))
        if len(lost):
            number = int(lost[0])
            raise GraphTransplantError(
                f"`train_fraction` {fraction:g} leaves {len(kept)} of {len(train)} training graphs "
                f"{where}, and none of the {counts[number]} of class {number}: each class needs at "
                "least one; choose a larger fraction"
            )
    targets = y[torch.from_numpy(kept).to(y.device)]
    usable = len(targets) if targets.dim() == 1 else int((~targets.isnan()).any(1).sum())
    if usable < 2:
        raise GraphTransplantError(
            f"`train_fraction` {fraction:g} leaves {usable} of {len(train)} training graphs with a "
            f"target {where}: training needs at least 2; choose a larger fraction"
        )
    return train[torch.from_numpy(kept).to(train.device)]


def wrong_labels(
    store: GraphStore, train: Tensor, noise: float, *, repeat: int, seed: int, fold: int
) -> Tensor:
    """Return the training labels with a share of them made wrong.

    Multiclass: ``round(noise * len(train))`` graphs get one of the other classes of the training
    graphs, drawn uniformly. Multilabel: ``round(noise * present)`` of the labels that are present
    are flipped. A label that is wrong at some noise is wrong in the same way at any higher noise.
    """
    if store.task == "regression":
        raise GraphTransplantError(
            f"`label_noise` needs classes or labels, but the targets of {store.name} are numbers"
        )
    y = store.y[train].clone()
    if noise == 0:
        return y
    stream = _stream(seed, repeat, fold, _NOISE)
    # Drawn for all graphs, as above.
    rows = train.cpu().numpy()
    place = stream.random(tuple(store.y.shape))[rows]
    if store.task == "multilabel":
        flat = y.view(-1)
        present = (~flat.isnan()).nonzero().flatten()
        first = np.argsort(place.reshape(-1)[present.cpu().numpy()], kind="stable")
        wrong = present[torch.from_numpy(first[: round(noise * len(present))]).to(y.device)]
        flat[wrong] = 1 - flat[wrong]
        return y
    classes = torch.unique(y)
    if len(classes) < 2:
        raise GraphTransplantError(
            "`label_noise` needs at least two classes among the training graphs, but those of fold "
            f"{fold} of repeat {repeat} of {store.name} are all of one"
        )
    shift = torch.from_numpy(stream.integers(len(classes) - 1, size=len(store))[rows]).to(y.device)
    first = np.argsort(place, kind="stable")[: round(noise * len(y))]
    wrong = torch.from_numpy(first).to(y.device)
    own = torch.searchsorted(classes, y[wrong])
    # A cyclic shift by 1 to len(classes) - 1: never the class itself.
    y[wrong] = classes[(own + 1 + shift[wrong]) % len(classes)]
    return y


def _stream(seed: int, repeat: int, fold: int, use: int) -> np.random.Generator:
    # Unique: no other spawn key has three elements; those of folds have one, of trials four.
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(repeat, fold, use)))


def trial_seed(trial: Trial, seed: int) -> int:
    """Derive the seed of a trial from the seed of the comparison.

    It does not depend on method and condition: all methods of a fold start from the same weights
    and see the same batch order, so that differences are due to the method.
    """
    # Python's hash of a string differs between processes.
    name = int.from_bytes(hashlib.sha256(trial.model.encode()).digest()[:4], "little")
    key = (trial.repeat, trial.fold, name, trial.layers)
    return int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1)[0])


def split_of(store: GraphStore, trial: Trial, settings: Settings) -> Split:
    """Return the training, validation and test graphs of a trial.

    With a training fraction below 1, the other training graphs are in no part.
    """
    place = {"repeat": trial.repeat, "seed": settings.seed, "fold": trial.fold}
    if settings.split not in FOLD_SPLITS:
        split = official_split(store)
    else:
        split = fold_indices(
            strata(store, settings.folds),
            folds=settings.folds,
            groups=store.groups,
            **place,
        )
    return replace(split, train=fewer_graphs(store, split.train, trial.train_fraction, **place))


def training_labels(store: GraphStore, split: Split, trial: Trial, settings: Settings) -> Tensor:
    """Return the training targets of a trial, some of them wrong if it has label noise."""
    if not trial.label_noise:
        return store.y[split.train]
    place = {"repeat": trial.repeat, "seed": settings.seed, "fold": trial.fold}
    return wrong_labels(store, split.train, trial.label_noise, **place)
