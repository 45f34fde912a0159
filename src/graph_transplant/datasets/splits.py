"""Splits into training, validation and test graphs: folds, random, by scaffold, official.

Graphs of one *group* (one scaffold, duplicates) stay in one part, except in official splits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from graph_transplant.config.options import TrainingSplit, check_shares
from graph_transplant.data import GraphStore
from graph_transplant.data.targets import rarest_label
from graph_transplant.errors import (
    DataError,
    GraphTransplantError,
)
from graph_transplant.utils.text import count as counted

SHARE = 0.1
"""Default share of the validation graphs, and of the test graphs."""

QUANTILES = 10
"""Maximum number of quantile groups that regression targets are stratified by."""


@dataclass(frozen=True)
class Split:
    """Graph numbers of three disjoint parts, each int64 and ascending.

    They cover the data unless only a fraction of the training graphs is used. For data that are
    read from a table or another list, they are numbers of its rows from 0, whether or not all could
    be read; those of a store number its graphs.

    Example:
        >>> import graph_transplant as gt
        >>> own = Split(train=range(40), validation=range(40, 50), test=range(50, 60))
        >>> model = gt.train("motifs", graphs=60, split=own, method="vanilla", hidden=8, epochs=1)
        >>> model.description["training"]["sizes"]
        {'train': 40, 'validation': 10, 'test': 10}
    """

    train: Tensor
    validation: Tensor
    test: Tensor


def graphs_of_rows(store: GraphStore) -> Tensor:
    """Return the graph of every row that a store was read from, int64 ``[rows]``; -1 if unread."""
    number = torch.arange(1, len(store) + 1) if store.rows is None else store.rows.number
    found = torch.full((len(store) + len(store.skipped),), -1)
    found[number - 1] = torch.arange(len(store))
    return found


def prepare(store: GraphStore, split: str, *, group_duplicates: bool = False) -> GraphStore:
    """Add the groups or the parts that a split needs to a data set."""
    if split == "scaffold":
        return store.with_official(scaffold_split(store))
    if split == "scaffold-folds":
        return store.with_groups(scaffold_groups(store))
    return _with_duplicates(store) if group_duplicates and split == "folds" else store


def _with_duplicates(store: GraphStore) -> GraphStore:
    from graph_transplant.datasets.duplicates import duplicate_groups

    return store.with_groups(duplicate_groups(store))


# -------------------------------------------------------------------- folds


def fold_indices(
    labels: Tensor,
    *,
    folds: int,
    repeat: int,
    seed: int,
    fold: int,
    groups: Tensor | None = None,
) -> Split:
    """Return one of the ``folds`` stratified splits of a repeat.

    Part ``fold`` of :func:`fold_parts` is the test set, the next part the validation set, and the
    rest the training set: 3:1:1 for five folds.
    """
    parts = fold_parts(labels, folds=folds, repeat=repeat, seed=seed, groups=groups)
    held_out = (fold + 1) % folds
    train = torch.cat([part for number, part in enumerate(parts) if number not in (fold, held_out)])
    return Split(train=train.sort().values, validation=parts[held_out], test=parts[fold])


def fold_parts(
    labels: Tensor, *, folds: int, repeat: int, seed: int, groups: Tensor | None = None
) -> list[Tensor]:
    """Shuffle graphs and divide them into ``folds`` parts of equal class proportions.

    Groups stay together; proportions are then as equal as they allow.
    """
    # Imported late, as prediction does not need it.
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    check_folds(labels, folds)
    classes = labels.cpu().numpy()
    # The spawn key separates this stream from all others of the comparison's seed.
    stream = np.random.SeedSequence(seed, spawn_key=(repeat,))
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    shuffle = kind(folds, shuffle=True, random_state=int(stream.generate_state(1)[0]))
    together = None if groups is None else groups.cpu().numpy()
    if together is not None and (count := len(np.unique(together))) < folds:
        raise GraphTransplantError(
            f"`folds` is {folds}, but there are only {count} groups of graphs that must stay "
            "together: there must be at least as many as folds"
        )
    return [
        torch.from_numpy(np.sort(part)).long()
        for _, part in shuffle.split(np.zeros(len(classes)), classes, together)
    ]


def check_folds(labels: Tensor, folds: int, names: Sequence[str] = ()) -> None:
    """Raise if a class has fewer graphs than ``folds``; ``names`` are those of the classes."""
    classes, counts = torch.unique(labels, return_counts=True)
    small = [
        f"class {names[number] if names else number} has only {counted(graphs, 'graph')}"
        for number, graphs in zip(classes.tolist(), counts.tolist(), strict=True)
        if graphs < folds
    ]
    if small:
        shown = ", ".join(small[:5]) + (f" and {len(small) - 5} more" if len(small) > 5 else "")
        fewest = int(counts.min())
        advice = f"with these graphs `folds` can be at most {fewest}"
        if fewest < 3:
            advice = "with fewer than 3, join rare classes or leave them out"
        raise GraphTransplantError(
            f"`folds` is {folds}, but {shown}: each class needs at least as many graphs as there "
            f"are folds; {advice}"
        )


def strata(store: GraphStore, folds: int) -> Tensor:
    """Return the classes that folds are stratified by, int64 ``[graphs]``.

    Multilabel data: the rarest label of each graph, unless it is too rare to be in every fold.
    Regression data: up to ten quantile groups of the first target that enough graphs have.
    """
    if store.task == "multiclass":
        check_folds(store.labels, folds, store.output_names)
        return store.labels
    if store.task == "regression":
        return _quantiles(store, folds)
    classes = rarest_label(store.y)
    small = torch.bincount(classes, minlength=store.num_outputs + 1) < folds
    classes = torch.where(small[classes], 0, classes)
    if 0 < int((classes == 0).sum()) < min(folds, len(classes)):
        # Too few for a class of their own: they join the largest one.
        largest = torch.bincount(classes[classes > 0]).argmax()
        classes = torch.where(classes == 0, largest, classes)
    check_folds(classes, folds)
    return classes


def _quantiles(store: GraphStore, folds: int) -> Tensor:
    """Group graphs by quantiles of the first target that enough have; 0 if it is missing."""
    counts = (~store.y.isnan()).sum(0).tolist()
    column = next((number for number, there in enumerate(counts) if there >= folds), None)
    if column is None:
        raise GraphTransplantError(
            f"`folds` is {folds}, but of {store.name} only {counted(max(counts), 'graph')} with a "
            "target can be used: there must be at least as many as there are folds"
        )
    count = counts[column]
    classes = by_rank(store.y[:, column], min(QUANTILES, count // folds))
    if len(store) - count < folds:
        # Too few for a group of their own.
        classes.clamp_(min=1)
    check_folds(classes, folds)
    return classes


def by_rank(values: Tensor, groups: int) -> Tensor:
    """Divide numbers into groups of equal size from low (1) to high; 0 is for missing ones."""
    present = (~values.isnan()).nonzero().flatten()
    order = values[present].argsort(stable=True)
    classes = torch.zeros(len(values), dtype=torch.long)
    classes[present[order]] = torch.arange(len(present)) * groups // max(len(present), 1) + 1
    return classes


# -------------------------------------------------------------------- single splits


def official_split(store: GraphStore) -> Split:
    """Return the split that comes with a data set."""
    if store.official is None:
        raise DataError(f"`split` is 'official', but {store.name} comes without a split of its own")
    split = _parts(store.official)
    for part in fields(split):
        if not len(getattr(split, part.name)):
            raise DataError(f"the official split of {store.name} has no {part.name} graphs here")
    return split


def _parts(official: Tensor) -> Split:
    return Split(*((official == part).nonzero().flatten() for part in range(3)))


def scaffold_groups(store: GraphStore) -> Tensor:
    """Number molecules by their Bemis-Murcko scaffold, int64 ``[graphs]``."""
    from graph_transplant.datasets.chemistry import scaffold
    from graph_transplant.datasets.duplicates import numbered

    if store.rows is None or not all(store.rows.texts):
        raise DataError(
            "`split` is by scaffold, which needs molecules read from a table or an SDF file, but "
            f"{store.name} has none"
        )
    return numbered(map(scaffold, store.rows.texts))


def scaffold_split(store: GraphStore, validation: float = SHARE, test: float = SHARE) -> Tensor:
    """Split molecules so that those with one scaffold stay together; int8 ``[graphs]``.

    As in MoleculeNet and OGB, scaffold sets are assigned from the largest to the smallest: to
    training (0) if they fit, else to validation (1) if they fit into training and validation
    together, else to test (2). Test molecules thus have rare, unseen scaffolds. Deterministic.
    """
    check_shares(validation, test)
    groups = scaffold_groups(store)
    # Of two sets of equal size, the one that starts later comes first, as in MoleculeNet.
    ends = torch.bincount(groups).cumsum(0).tolist()
    order = groups.argsort(stable=True).tolist()
    sets = [order[start:end] for start, end in pairwise([0, *ends])]
    sets.sort(key=lambda graphs: (len(graphs), graphs[0]), reverse=True)
    # Rounded, as 1 - 0.1 - 0.1 is slightly less than 0.8.
    room = round((1 - validation - test) * len(store), 6)
    room_both = round((1 - test) * len(store), 6)
    part = torch.zeros(len(store), dtype=torch.int8)
    counts = [0, 0, 0]
    for graphs in sets:
        if counts[0] + len(graphs) <= room:
            number = 0
        elif counts[0] + counts[1] + len(graphs) <= room_both:
            number = 1
        else:
            number = 2
        part[graphs] = number
        counts[number] += len(graphs)
    for name, count, share in zip(
        ("training", "validation", "test"), counts, (1.0, validation, test), strict=True
    ):
        if share and not count:
            raise DataError(
                f"{store.name} has {counted(len(store), 'molecule')} of "
                f"{counted(len(sets), 'scaffold')}: splitting by whole scaffolds leaves none "
                f"for {name} (a random split does not need scaffolds)"
            )
    return part


def random_split(store: GraphStore, *, validation: float, test: float, seed: int) -> Split:
    """Draw validation and test graphs that are representative of the data set.

    Stratified systematic sampling by class, rarest label or value: each part has its share of each
    class up to one graph. At least one graph of every class is for training. If there are groups,
    whole groups are drawn instead, each represented by its first graph.
    """
    if store.groups is not None:
        number, group = torch.unique(store.groups, return_inverse=True)
        first = torch.full((len(number),), len(store)).scatter_reduce(
            0, group, torch.arange(len(store)), "amin"
        )
        alone = store.subset(first).with_groups(None)
        drawn = random_split(alone, validation=validation, test=test, seed=seed)
        part = torch.zeros(len(number), dtype=torch.int8)
        part[drawn.validation], part[drawn.test] = 1, 2
        return _parts(part[group])
    graphs = len(store)
    wanted = {"test": round(graphs * test), "validation": max(1, round(graphs * validation))}
    if test:
        wanted["test"] = max(1, wanted["test"])
    generator = np.random.default_rng([seed, 5])
    shuffled = torch.from_numpy(generator.permutation(graphs))
    key = _key(store)
    order = shuffled[key[shuffled].argsort(stable=True)]
    if store.task != "regression":
        # Keep the first of each class for training.
        first = torch.ones(graphs, dtype=torch.bool)
        first[1:] = key[order][1:] != key[order][:-1]
        order = order[~first]
    if len(order) < sum(wanted.values()) or graphs - sum(wanted.values()) < 2:
        classes = "" if store.task == "regression" else " and keep one of every class for training"
        kept = 2 if store.task == "regression" else max(2, len(torch.unique(key)))
        raise DataError(
            f"{store.name} has too few graphs, {graphs}, to hold out {wanted['validation']} for "
            f"validation and {wanted['test']} for testing{classes}: at least "
            f"{sum(wanted.values()) + kept} are needed"
        )
    held_out = {}
    for name, count in wanted.items():
        step = len(order) / count if count else 0.0
        # At equal distances from a random start. Values have only one order, so one is drawn at
        # random from each interval; otherwise there would be few different splits.
        starts = torch.from_numpy(generator.random(count if store.task == "regression" else 1))
        places = (torch.arange(count) + starts) * step
        if store.task == "regression":  # whole bounds, so that neighbours draw different places
            first, last = (((torch.arange(count) + k) * step).floor() for k in (0, 1))
            places = first + starts * (last - first)
        taken = torch.zeros(len(order), dtype=torch.bool)
        taken[places.long().clamp_(max=len(order) - 1)] = True
        held_out[name] = order[taken].sort().values
        order = order[~taken]
    train = torch.ones(graphs, dtype=torch.bool)
    train[torch.cat(list(held_out.values()))] = False
    return Split(train.nonzero().flatten(), held_out["validation"], held_out["test"])


def _key(store: GraphStore) -> Tensor:
    """Return the sort key of graphs for systematic sampling."""
    if store.task == "multiclass":
        return store.labels
    if store.task == "multilabel":
        return rarest_label(store.y)
    # By the first target; missing values come last.
    return store.y[:, 0].nan_to_num(nan=math.inf)


# -------------------------------------------------------------------- training one model


def split_for_training(
    store: GraphStore,
    split: TrainingSplit | Split,
    *,
    validation: float,
    test: float,
    seed: int,
    tell: Callable[[str], None],
    of_row: Tensor | None = None,
) -> tuple[Split, str]:
    """Split the graphs for training one model; return also the kind of split.

    Random splits keep duplicate molecules together. ``of_row`` is the graph of every row that a
    split of the user's own numbers; by default, it numbers graphs.
    """
    if isinstance(split, Split):
        what = "graph" if of_row is None else "row"
        return _checked(
            split, torch.arange(len(store)) if of_row is None else of_row, what
        ), "given"
    if split == "official" or (split == "auto" and store.official is not None):
        if (validation, test) != (SHARE, SHARE):
            tell(
                f"the split is the official one of {store.name}: `validation` and `test` have no "
                "effect"
            )
        return official_split(store), "official"
    if split == "scaffold":
        return _parts(scaffold_split(store, validation, test)), "scaffold"
    if split == "auto" and store.has_structures:
        try:
            parts = _parts(scaffold_split(store, validation, test))
            problem = lacking(store, parts)
            # Without both classes, the validation graphs rank nothing.
            if problem is None and store.task == "multiclass" and store.num_outputs == 2:
                missing = missing_classes(store, parts.validation)
                problem = f"no validation graph is of the class {missing[0]!r}" if missing else None
            problem = problem and f"by scaffold, {problem}"
        except DataError as error:
            problem = str(error)
        if problem is None:
            return parts, "scaffold"
        tell(f"the split is random: {problem}")
    molecules = store.featurizer is not None and store.featurizer.kind == "molecules"
    if molecules and split == "auto" and not store.has_structures:
        tell("the split is random and not by scaffold: saved graphs have no SMILES")
    if store.groups is None and molecules:
        store = _with_duplicates(store)
    return random_split(store, validation=validation, test=test, seed=seed), "random"


def _checked(split: Split, of_row: Tensor, what: str) -> Split:
    """Return the graphs of a custom split; raise if a row does not exist or occurs twice."""
    given = (split.train, split.validation, split.test)
    parts = [torch.as_tensor(part, dtype=torch.long) for part in given]
    every = torch.cat(parts)
    if len(every) and not 0 <= int(every.min()) <= int(every.max()) < len(of_row):
        raise DataError(f"`split` must name {what}s from 0 to {len(of_row) - 1}")
    if len(torch.unique(every)) < len(every):
        raise DataError(f"`split` must name every {what} at most once, in one of its parts")
    graphs = [of_row[part] for part in parts]
    return Split(*(part[part >= 0] for part in graphs))  # without rows that could not be read


def lacking(store: GraphStore, parts: Split) -> str | None:
    """Return what a split lacks for training, or ``None``."""
    for name, index in (("training", parts.train), ("validation", parts.validation)):
        if not len(index):
            return f"there are no {name} graphs"
    if store.task == "multiclass":
        missing = missing_classes(store, parts.train)
        if missing:
            return f"no training graph is of the class {missing[0]!r}"
    return None


def missing_classes(store: GraphStore, index: Tensor) -> list[str]:
    """Return the classes of a data set that are missing from some of its graphs."""
    there = torch.bincount(store.labels, minlength=store.num_outputs).gt(0)
    here = torch.bincount(store.labels[index], minlength=store.num_outputs).gt(0)
    return [store.output_names[n] for n in (there & ~here).nonzero().flatten().tolist()]
