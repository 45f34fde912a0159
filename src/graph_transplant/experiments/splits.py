"""Stratified train, validation and test folds, fewer training graphs, wrong training labels.

All of it derives from one seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.graphs import GraphStore
from graph_transplant.targets import rarest_label

QUANTILES = 10
"""Numbers are stratified by at most so many groups of equal size, from low to high."""

_SIZE, _NOISE = 1, 2
"""Ends of the spawn keys for the graphs that are left out and for the labels that are wrong."""


@dataclass(frozen=True)
class Split:
    """Graph numbers of one fold; the three parts are disjoint.

    They cover the data, unless only a fraction of the training graphs is used.

    Args:
        train: Graphs to train on, int64 ``[train]``, ascending.
        validation: Graphs to select on, int64 ``[validation]``, ascending.
        test: Graphs to evaluate on once, int64 ``[test]``, ascending.
    """

    train: Tensor
    validation: Tensor
    test: Tensor


def fold_indices(
    labels: Tensor, *, folds: int, repeat: int, seed: int, fold: int, inner: int = 0
) -> Split:
    """Give one of the ``folds`` stratified splits of a repeat.

    The graphs are shuffled once per repeat, by a seed that derives from ``seed`` and ``repeat``,
    and cut into ``folds`` parts of equal class proportions. Part ``fold`` is the test set, the next
    part the validation set, the rest the training set: 3:1:1 for five folds. Over the folds of a
    repeat every graph is tested exactly once and validated on exactly once.

    With ``inner`` above 0 a later part than the next one is the validation set. Over the inner
    splits of a fold every graph outside its test set is validated on exactly once.

    Args:
        labels: Class of each graph, int64 ``[graphs]``.
        folds: Number of parts, at least 3 and at most the size of the smallest class.
        repeat: Number of the repeat, from 0.
        seed: The seed of the comparison.
        fold: Number of the test part, from 0 to ``folds - 1``.
        inner: Number of the validation part, counted from the one after the test part, from 0 to
            ``folds - 2``.

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
    if not 0 <= inner < folds - 1:
        raise GraphTransplantError(f"`inner` must be from 0 to {folds - 2}, got {inner}")
    parts = fold_parts(labels, folds=folds, repeat=repeat, seed=seed)
    held_out = (fold + 1 + inner) % folds
    train = torch.cat([part for number, part in enumerate(parts) if number not in (fold, held_out)])
    return Split(train=train.sort().values, validation=parts[held_out], test=parts[fold])


def fold_parts(labels: Tensor, *, folds: int, repeat: int, seed: int) -> list[Tensor]:
    """Give the parts of a repeat, of which :func:`fold_indices` makes its splits.

    Args:
        labels: Class of each graph, int64 ``[graphs]``.
        folds: Number of parts, at least 3 and at most the size of the smallest class.
        repeat: Number of the repeat, from 0.
        seed: The seed of the comparison.

    Returns:
        The graphs of each part, int64 ``[part]``, ascending; part ``k`` is the test set of fold
        ``k``.

    Raises:
        GraphTransplantError: As :func:`fold_indices`.

    Example:
        >>> parts = fold_parts(torch.tensor([0, 1] * 5), folds=5, repeat=0, seed=0)
        >>> [len(part) for part in parts]
        [2, 2, 2, 2, 2]
    """
    # Late: whoever only predicts should not wait for it.
    from sklearn.model_selection import StratifiedKFold

    check_folds(labels, folds)
    for name, value in (("repeat", repeat), ("seed", seed)):
        if value < 0:
            raise GraphTransplantError(f"`{name}` must be at least 0, got {value}")
    classes = labels.cpu().numpy()
    # The spawn key keeps this stream apart from every other use of the comparison's seed.
    stream = np.random.SeedSequence(seed, spawn_key=(repeat,))
    shuffle = StratifiedKFold(folds, shuffle=True, random_state=int(stream.generate_state(1)[0]))
    return [
        torch.from_numpy(np.sort(part)).long()
        for _, part in shuffle.split(np.zeros(len(classes)), classes)
    ]


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


def strata(store: GraphStore, folds: int) -> Tensor:
    """Give the classes that folds are stratified by.

    For several labels per graph they are made up: a graph counts to the rarest label it has, and
    labels too rare to be in every fold count as none. Numbers are put into up to ten groups of
    equal size from low to high, by the first of them; graphs that lack it are a group too.

    Args:
        store: The data set.
        folds: Number of folds.

    Returns:
        int64 ``[graphs]``.

    Raises:
        GraphTransplantError: If the data cannot be cut into so many stratified parts.

    Example:
        >>> y = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, float("nan")]]).repeat(4, 1)
        >>> store = GraphStore(x=torch.ones(12, 1), edge_index=torch.empty(2, 0, dtype=torch.long),
        ...                    y=y, node_counts=torch.ones(12), edge_counts=torch.zeros(12),
        ...                    task="multilabel")
        >>> strata(store, 3)[:3]
        tensor([2, 1, 0])
    """
    if store.task == "multiclass":
        check_folds(store.labels, folds)
        return store.labels
    if store.task == "regression":
        return _quantiles(store, folds)
    classes = rarest_label(store.y)
    small = torch.bincount(classes, minlength=store.num_outputs + 1) < folds
    classes = torch.where(small[classes], 0, classes)
    if 0 < int((classes == 0).sum()) < min(folds, len(classes)):
        # Too few are left over for a class of their own: they join the largest one.
        largest = torch.bincount(classes[classes > 0]).argmax()
        classes = torch.where(classes == 0, largest, classes)
    check_folds(classes, folds)
    return classes


def _quantiles(store: GraphStore, folds: int) -> Tensor:
    """Group graphs by the rank of the first target that enough have; 0 is for those without."""
    counts = (~store.y.isnan()).sum(0).tolist()
    column = next((number for number, there in enumerate(counts) if there >= folds), None)
    if column is None:
        count = max(counts)
        raise GraphTransplantError(
            f"`folds` is {folds}, but only {count} graph{'s' if count != 1 else ''} of "
            f"{store.name} ha{'ve' if count != 1 else 's'} a target: there must be at least as many"
            " as there are folds"
        )
    count = counts[column]
    groups = min(QUANTILES, count // folds)
    classes = _by_rank(store.y[:, column], groups)
    if len(store) - count < folds:
        # Too few for a group of their own.
        classes.clamp_(min=1)
    check_folds(classes, folds)
    return classes


def _by_rank(values: Tensor, groups: int) -> Tensor:
    """Cut numbers into groups of equal size from low to high, from 1 up; 0 is for those missing."""
    present = (~values.isnan()).nonzero().flatten()
    order = values[present].argsort(stable=True)
    classes = torch.zeros(len(values), dtype=torch.long)
    classes[present[order]] = torch.arange(len(present)) * groups // max(len(present), 1) + 1
    return classes


def fewer_graphs(
    store: GraphStore, train: Tensor, fraction: float, *, repeat: int, seed: int, fold: int
) -> Tensor:
    """Leave a part of the training graphs, with equal class proportions.

    Exactly ``round(fraction * len(train))`` graphs are left. Those of a smaller fraction are among
    those of a larger one: the graphs of each class are put in a random order, and the classes are
    gone through at the same pace, which shares the graphs out among them by Webster's method.
    Several labels are stratified by the rarest label, numbers by ten groups from low to high.

    Args:
        store: The whole data set.
        train: Training graphs, int64 ``[train]``, ascending.
        fraction: Share to leave, in (0, 1].
        repeat: Number of the repeat.
        seed: The seed of the comparison.
        fold: Number of the test fold. Method, model and validation fold do not enter: the order of
            two graphs is the same for all of them.

    Returns:
        Graphs to train on, int64 ``[left]``, ascending.

    Raises:
        GraphTransplantError: If a class of the training graphs would be lost, or fewer than two
            graphs with a target would be left.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs", graphs=60)
        >>> half = fewer_graphs(store, torch.arange(60), 0.5, repeat=0, seed=0, fold=0)
        >>> torch.bincount(store.labels[half])
        tensor([5, 5, 5, 5, 5, 5])
        >>> fewer = fewer_graphs(store, torch.arange(60), 0.1, repeat=0, seed=0, fold=0)
        >>> set(fewer.tolist()) < set(half.tolist())
        True
    """
    if fraction == 1:
        return train
    y = store.y[train]
    if store.task == "multiclass":
        classes = y
    elif store.task == "multilabel":
        classes = rarest_label(y)
    else:
        classes = _by_rank(y[:, 0], QUANTILES)
    groups = classes.cpu().numpy()
    # Drawn for all graphs, so that a graph has its place whichever fold is validated on.
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
    """Give the training labels with some of them wrong.

    Of one class per graph, exactly ``round(noise * len(train))`` graphs get another one of the
    classes that the training graphs have, each equally likely. Of several labels, exactly
    ``round(noise * present)`` of the entries that are present are turned round. What is wrong at
    some noise is wrong in the same way at any higher one.

    Args:
        store: The whole data set; it is not changed.
        train: Training graphs, int64 ``[train]``, ascending.
        noise: Share of the labels to make wrong, in [0, 1).
        repeat: Number of the repeat.
        seed: The seed of the comparison.
        fold: Number of the test fold. Method, model and validation fold do not enter.

    Returns:
        The labels of these graphs, as ``store.y`` has them, ``[train]`` or ``[train, labels]``.

    Raises:
        GraphTransplantError: If the targets are numbers, or there is one class only.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs", graphs=60)
        >>> train = torch.arange(30)
        >>> labels = wrong_labels(store, train, 0.2, repeat=0, seed=0, fold=0)
        >>> int((labels != store.labels[train]).sum())
        6
    """
    if store.task == "regression":
        raise GraphTransplantError(
            f"`label_noise` needs classes or labels, but the targets of {store.name} are numbers"
        )
    y = store.y[train].clone()
    if noise == 0:
        return y
    stream = _stream(seed, repeat, fold, _NOISE)
    # Drawn for all graphs, as above: a graph is wrong in the same way in all inner splits.
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
    # One to all but one steps further, round and round: never the class itself.
    y[wrong] = classes[(own + 1 + shift[wrong]) % len(classes)]
    return y


def _stream(seed: int, repeat: int, fold: int, use: int) -> np.random.Generator:
    # No other spawn key has three numbers: the folds have one, trials have four and five.
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(repeat, fold, use)))


def by_scaffold(store: GraphStore) -> GraphStore:
    """Give molecules a split that keeps those of one scaffold together, as their official one.

    Args:
        store: Molecules with the texts that they were read from.

    Raises:
        DataError: If it is not known what they were read from.

    Example:
        >>> by_scaffold(GraphStore(x=None, edge_index=torch.empty(2, 0, dtype=torch.long),
        ...                        y=torch.zeros(1, dtype=torch.long), node_counts=torch.ones(1),
        ...                        edge_counts=torch.zeros(1), name="rings"))
        Traceback (most recent call last):
        graph_transplant.errors.DataError: `split` is 'scaffold', which needs molecules read from \
a table or an SDF file, but rings has none
    """
    from graph_transplant.datasets.molecules import scaffold_split

    if store.rows is None or not all(store.rows.texts):
        raise DataError(
            "`split` is 'scaffold', which needs molecules read from a table or an SDF file, but "
            f"{store.name} has none"
        )
    return store.with_official(scaffold_split(store))


def official_split(store: GraphStore) -> Split:
    """Give the split that comes with a data set.

    Args:
        store: The data set.

    Raises:
        DataError: If it has none.
    """
    if store.official is None:
        raise DataError(f"`split` is 'official', but {store.name} comes without a split of its own")
    train, validation, test = ((store.official == part).nonzero().flatten() for part in range(3))
    for name, part in (("training", train), ("validation", validation), ("test", test)):
        if not len(part):
            raise DataError(f"the official split of {store.name} has no {name} graphs here")
    return Split(train, validation, test)
