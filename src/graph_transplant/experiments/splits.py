"""Stratified train, validation and test folds, all derived from one seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from graph_transplant.errors import GraphTransplantError


@dataclass(frozen=True)
class Split:
    """Graph numbers of one fold; the three parts are disjoint and cover the data.

    Args:
        train: Graphs to train on, int64 ``[train]``, ascending.
        validation: Graphs to select on, int64 ``[validation]``, ascending.
        test: Graphs to evaluate on once, int64 ``[test]``, ascending.
    """

    train: Tensor
    validation: Tensor
    test: Tensor


def fold_indices(labels: Tensor, *, folds: int, repeat: int, seed: int, fold: int) -> Split:
    """Give one of the ``folds`` stratified splits of a repeat.

    The graphs are shuffled once per repeat, by a seed that derives from ``seed`` and ``repeat``,
    and cut into ``folds`` parts of equal class proportions. Part ``fold`` is the test set, the next
    part the validation set, the rest the training set: 3:1:1 for five folds. Over the folds of a
    repeat every graph is tested exactly once and validated on exactly once.

    Args:
        labels: Class of each graph, int64 ``[graphs]``.
        folds: Number of parts, at least 3 and at most the size of the smallest class.
        repeat: Number of the repeat, from 0.
        seed: The seed of the comparison.
        fold: Number of the test part, from 0 to ``folds - 1``.

    Returns:
        The split.

    Raises:
        GraphTransplantError: If a number is out of range or a class has fewer graphs than folds.

    Example:
        >>> labels = torch.tensor([0, 1] * 5)
        >>> split = fold_indices(labels, folds=5, repeat=0, seed=0, fold=0)
        >>> len(split.train), len(split.validation), len(split.test)
        (6, 2, 2)
        >>> labels[split.test].sort().values.tolist()
        [0, 1]
    """
    check_folds(labels, folds)
    if not 0 <= fold < folds:
        raise GraphTransplantError(f"`fold` must be from 0 to {folds - 1}, got {fold}")
    for name, value in (("repeat", repeat), ("seed", seed)):
        if value < 0:
            raise GraphTransplantError(f"`{name}` must be at least 0, got {value}")
    classes = labels.cpu().numpy()
    # The spawn key keeps this stream apart from every other use of the comparison's seed.
    stream = np.random.SeedSequence(seed, spawn_key=(repeat,))
    shuffle = StratifiedKFold(folds, shuffle=True, random_state=int(stream.generate_state(1)[0]))
    parts = [part for _, part in shuffle.split(np.zeros(len(classes)), classes)]
    following = (fold + 1) % folds
    train = np.concatenate(
        [part for number, part in enumerate(parts) if number not in (fold, following)]
    )
    return Split(
        train=torch.from_numpy(np.sort(train)).long(),
        validation=torch.from_numpy(np.sort(parts[following])).long(),
        test=torch.from_numpy(np.sort(parts[fold])).long(),
    )


def check_folds(labels: Tensor, folds: int) -> None:
    """Check that ``labels`` can be cut into ``folds`` stratified parts.

    Args:
        labels: Class of each graph, int64 ``[graphs]``.
        folds: Number of parts.

    Raises:
        GraphTransplantError: If not, naming the classes that are too small.

    Example:
        >>> check_folds(torch.tensor([0, 0, 0, 1, 1]), 3)
        Traceback (most recent call last):
        graph_transplant.errors.GraphTransplantError: `folds` is 3, but class 1 has only 2 ...
    """
    if folds < 3:
        raise GraphTransplantError(
            f"`folds` must be at least 3 (train, validation and test), got {folds}"
        )
    if labels.dim() != 1 or labels.is_floating_point():
        raise GraphTransplantError(
            "stratified folds need one class number per graph: `labels` must be an integer tensor "
            f"of shape [graphs], got {labels.dtype} of shape {list(labels.shape)}"
        )
    classes, counts = torch.unique(labels, return_counts=True)
    small = [
        f"class {number} has only {count} graph{'s' if count != 1 else ''}"
        for number, count in zip(classes.tolist(), counts.tolist(), strict=True)
        if count < folds
    ]
    if small:
        shown = ", ".join(small[:5]) + (f" and {len(small) - 5} more" if len(small) > 5 else "")
        raise GraphTransplantError(
            f"`folds` is {folds}, but {shown}: each class needs at least as many graphs as there "
            "are folds"
        )
