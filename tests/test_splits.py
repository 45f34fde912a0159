"""Folds: stratified, disjoint, complete, derived from one seed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.splits import fold_indices


def unequal_labels() -> Tensor:
    return torch.repeat_interleave(torch.arange(3), torch.tensor([53, 31, 16]))


@pytest.mark.parametrize("folds", [3, 5, 10])
def test_every_graph_is_tested_once_and_validated_once(folds: int) -> None:
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
        assert len(split.train) == pytest.approx((folds - 2) / folds * len(labels), abs=3)


def test_validation_fold_is_the_next_test_fold() -> None:
    labels = unequal_labels()
    for fold in range(5):
        here = fold_indices(labels, folds=5, repeat=0, seed=0, fold=fold)
        following = fold_indices(labels, folds=5, repeat=0, seed=0, fold=(fold + 1) % 5)
        assert here.validation.equal(following.test)


def test_parts_keep_the_class_proportions() -> None:
    labels = unequal_labels()
    for fold in range(5):
        split = fold_indices(labels, folds=5, repeat=0, seed=0, fold=fold)
        for part, share in ((split.train, 0.6), (split.validation, 0.2), (split.test, 0.2)):
            counts = labels[part].bincount(minlength=3)
            assert (counts - share * labels.bincount()).abs().max() < 2


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


def test_the_message_names_class_count_and_folds() -> None:
    labels = torch.tensor([0] * 9 + [1] * 4 + [2])
    with pytest.raises(
        GraphTransplantError,
        match=r"`folds` is 5, but class 1 has only 4 graphs, class 2 has only 1 graph:",
    ):
        fold_indices(labels, folds=5, repeat=0, seed=0, fold=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"folds": 2}, "`folds` must be at least 3"),
        ({"fold": 5}, "`fold` must be from 0 to 4, got 5"),
        ({"repeat": -1}, "`repeat` must be at least 0, got -1"),
        ({"seed": -3}, "`seed` must be at least 0, got -3"),
        ({"labels": torch.rand(20)}, r"`labels` must be an integer tensor .* got torch.float32"),
        ({"labels": torch.ones(20, 2, dtype=torch.long)}, r"of shape \[20, 2\]"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    good = {"labels": torch.tensor([0, 1] * 10), "folds": 5, "repeat": 0, "seed": 0, "fold": 0}
    with pytest.raises(GraphTransplantError, match=message):
        fold_indices(**(good | arguments))  # type: ignore[arg-type]
