"""Folds: stratified, disjoint, complete, derived from one seed."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graph_transplant.data import GraphStore
from graph_transplant.datasets.molecules import from_smiles
from graph_transplant.datasets.splits import fold_indices, prepare, random_split, strata
from graph_transplant.errors import GraphTransplantError
from helpers.strategies import rings_and_stars


def unequal_labels() -> Tensor:
    return torch.repeat_interleave(torch.arange(3), torch.tensor([53, 31, 16]))


@pytest.mark.parametrize("folds", [3, 5, 10])
def test_every_graph_is_tested_and_validated_once_in_parts_of_the_same_classes(folds: int) -> None:
    labels = unequal_labels()
    splits = [
        fold_indices(labels, folds=folds, repeat=2, seed=7, fold=fold) for fold in range(folds)
    ]
    for part in ("test", "validation"):
        seen = torch.cat([getattr(split, part) for split in splits])
        assert seen.sort().values.tolist() == list(range(len(labels)))
    for split in splits:
        together = torch.cat([split.train, split.validation, split.test])
        assert together.sort().values.tolist() == list(range(len(labels)))
        for part, shares in ((split.train, folds - 2), (split.validation, 1), (split.test, 1)):
            counts = labels[part].bincount(minlength=3)
            assert (counts - shares / folds * labels.bincount()).abs().max() < 2


def test_repeats_and_seeds_shuffle_anew_and_the_same_call_gives_the_same_split() -> None:
    labels = unequal_labels()

    def test_graphs(repeat: int, seed: int, fold: int) -> tuple[int, ...]:
        split = fold_indices(labels, folds=5, repeat=repeat, seed=seed, fold=fold)
        return tuple(split.test.tolist())

    distinct = {
        test_graphs(repeat, seed, fold)
        for repeat in range(3)
        for seed in range(2)
        for fold in range(5)
    }
    assert len(distinct) == 30
    assert test_graphs(1, 1, 1) == test_graphs(1, 1, 1)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(3, 6))
def test_small_classes_are_refused_and_nothing_else(classes: list[int], folds: int) -> None:
    labels = torch.tensor(classes)
    smallest = min(classes.count(number) for number in set(classes))
    if smallest >= folds:
        split = fold_indices(labels, folds=folds, repeat=0, seed=0, fold=0)
        assert set(labels[split.test].tolist()) == set(classes)
    else:
        with pytest.raises(GraphTransplantError, match=f"`folds` is {folds}, but class"):
            fold_indices(labels, folds=folds, repeat=0, seed=0, fold=0)


def labelled(y: Tensor, task: str) -> GraphStore:
    return rings_and_stars(len(y), seed=0, name="mine", y=y, task=task)


def test_folds_of_several_labels_hold_each_label_in_its_proportion() -> None:
    generator = torch.Generator().manual_seed(0)
    y = (torch.rand(400, 3, generator=generator) < torch.tensor([0.5, 0.2, 0.05])).float()
    y[torch.rand(400, 3, generator=generator) < 0.1] = float("nan")
    classes = strata(labelled(y, "multilabel"), 5)
    positive = y == 1
    for fold in range(5):
        test = fold_indices(classes, folds=5, repeat=0, seed=0, fold=fold).test
        # The rarest label decides, so its share is even; the others follow with chance.
        assert abs(int(positive[test, 2].sum()) - positive[:, 2].sum() / 5) < 1
        assert abs(int(positive[test, 1].sum()) - positive[:, 1].sum() / 5) < 5


def test_a_label_rarer_than_the_folds_does_not_stop_a_comparison() -> None:
    y = torch.zeros(40, 2)
    y[:2, 1] = 1
    y[10:30, 0] = 1
    assert strata(labelled(y, "multilabel"), 5).unique().tolist() == [0, 1]
    # With everything else positive too, the two rare ones have nobody to share a class with.
    y[2:, 0] = 1
    assert strata(labelled(y, "multilabel"), 5).unique().tolist() == [1]


@pytest.mark.parametrize("missing", [0, 3, 40])
def test_folds_of_numbers_have_low_and_high_ones_alike(missing: int) -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(200, 2, generator=generator).exp()
    y[torch.randperm(200, generator=generator)[:missing], 0] = float("nan")
    store = labelled(y, "regression")
    classes = strata(store, 5)
    there = ~y[:, 0].isnan()
    # Groups of equal size, one after the other in the order of the numbers.
    groups = [y[classes == group, 0] for group in range(1, 11)]
    if missing != 3:
        assert max(map(len, groups)) - min(map(len, groups)) <= 1
        for low, high in pairwise(groups):
            assert low.max() < high.min()
    # Three are too few for a group of their own, forty are enough.
    assert int((classes == 0).sum()) == (40 if missing == 40 else 0)
    for fold in range(5):
        test = fold_indices(classes, folds=5, repeat=0, seed=0, fold=fold).test
        own = y[test, 0][there[test]]
        share = [float((own <= y[there, 0].quantile(q)).float().mean()) for q in (0.1, 0.5, 0.9)]
        assert share == pytest.approx([0.1, 0.5, 0.9], abs=0.06)


def test_numbers_are_stratified_by_the_first_target_that_enough_graphs_have() -> None:
    y = torch.stack((torch.full((7,), float("nan")), torch.arange(7.0), torch.arange(7.0) * -1), 1)
    y[:2, 0] = 1.0
    assert strata(labelled(y, "regression"), 3).tolist() == [1, 1, 1, 1, 2, 2, 2]


# -------------------------------------------------------------------- groups


def test_folds_keep_groups_together_and_classes_balanced() -> None:
    labels = torch.arange(200) % 2
    groups = torch.arange(200) // 4
    splits = [
        fold_indices(labels, folds=5, repeat=0, seed=3, fold=fold, groups=groups)
        for fold in range(5)
    ]
    assert torch.cat([split.test for split in splits]).sort().values.tolist() == list(range(200))
    for split in splits:
        parts = [set(groups[part].tolist()) for part in (split.train, split.validation, split.test)]
        assert sum(map(len, parts)) == len(set.union(*parts)) == 50
        assert labels[split.test].double().mean() == 0.5
    other = fold_indices(labels, folds=5, repeat=1, seed=3, fold=0, groups=groups)
    assert not other.test.equal(splits[0].test)


def test_scaffold_folds_never_test_a_scaffold_that_was_trained_on() -> None:
    rings = ("c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CCNCC1", "c1ccoc1", "c1ccsc1", "C1CCOC1")
    smiles = [f"{'C' * (n + 1)}{ring}" for ring in rings for n in range(6)]
    store = from_smiles(smiles).with_targets(torch.arange(len(smiles)) % 2, num_outputs=2)
    ready = prepare(store, "scaffold-folds")
    assert ready.groups.tolist() == [place // 6 for place in range(len(smiles))]
    for fold in range(5):
        split = fold_indices(
            strata(ready, 5), folds=5, repeat=0, seed=0, fold=fold, groups=ready.groups
        )
        trained = {place // 6 for place in torch.cat([split.train, split.validation]).tolist()}
        assert not trained & {place // 6 for place in split.test.tolist()}


def test_a_random_split_keeps_groups_together() -> None:
    store = labelled(torch.arange(60) % 3, "multiclass").with_groups(torch.arange(60) // 6)
    split = random_split(store, validation=0.2, test=0.2, seed=1)
    parts = [
        {n // 6 for n in part.tolist()} for part in (split.train, split.validation, split.test)
    ]
    assert [len(part) for part in parts] == [6, 2, 2]
    assert sum(map(len, parts)) == 10
