"""Selection of candidates: by validation scores alone, against a plain search written here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graph_transplant.results.record import Setup, TrialRecord
from graph_transplant.results.results import Results
from graph_transplant.results.selection import left_out, select
from helpers.made_up_records import made_up

FOLDS = 4


def trial(
    method: str,
    layers: int,
    fold: int,
    validation: float | None,
    *,
    repeat: int = 0,
    test: float = 0.5,
    **changes: Any,
) -> TrialRecord:
    (record,) = made_up(
        method,
        [test],
        layers=layers,
        repeat=repeat,
        validation={"accuracy": validation, "auroc": 0.9},
        **{"fold": fold, "settings": {"folds": FOLDS, "epochs": 100}, **changes},
    )
    return record


def candidate(
    method: str, layers: int, validation: Sequence[float], **changes: Any
) -> list[TrialRecord]:
    return [trial(method, layers, fold, value, **changes) for fold, value in enumerate(validation)]


def chosen(records: Iterable[TrialRecord]) -> list[tuple[int, int, int, str]]:
    return [(record.repeat, record.fold, *record.chosen) for record in records]


def test_validation_chooses_one_candidate_for_all_folds() -> None:
    plain = candidate("drop-nodes", 3, [0.50, 0.60, 0.70, 0.60])  # mean 0.60
    deeper = candidate("drop-nodes:ratio=0.4", 4, [0.70, 0.70, 0.50, 0.62])  # mean 0.63
    deepest = candidate("drop-nodes", 5, [0.90, 0.50, 0.50, 0.60])  # mean 0.625
    other = candidate("vanilla", 3, [0.1] * 4) + candidate("vanilla", 5, [0.2] * 4)
    records = plain + deeper + deepest + other
    assert (select(records, "none"), left_out(records, "none")) == (records, [])
    found = select(records, "validation")
    assert chosen(found) == [
        *((0, fold, 4, "drop-nodes:ratio=0.4") for fold in range(4)),
        *((0, fold, 5, "vanilla") for fold in range(4)),
    ]
    assert {record.method for record in found} == {"drop-nodes", "vanilla"}
    setup = Setup(4, "drop-nodes:ratio=0.4")
    assert found[0] == replace(deeper[0], method="drop-nodes", chosen=setup)
    assert found[0].trial == deeper[0].trial


def test_models_data_sets_and_conditions_choose_for_themselves() -> None:
    good, bad = [0.9] * 4, [0.1] * 4
    records = []
    for changes, first, second in (
        ({}, good, bad),
        ({"model": "gin"}, bad, good),
        ({"data": "other"}, bad, good),
        ({"label_noise": 0.2}, bad, good),
    ):
        records += candidate("a", 3, first, **changes) + candidate("a", 4, second, **changes)
    layers = {
        (record.data, record.model, record.condition.short): record.layers
        for record in select(records[::-1], "validation")
    }
    assert layers == {
        ("toy", "gcs", ""): 3,
        ("toy", "gin", ""): 4,
        ("other", "gcs", ""): 4,
        ("toy", "gcs", "noise 20 %"): 4,
    }
    (passed_over,) = left_out(records[:-1], "validation")
    assert passed_over.startswith("With 20 % of the training labels wrong, a with gcs is chosen on")


def told_of(who: str, folds: str, candidates: str) -> str:
    rest = "candidates; the rest is not finished."
    return f"{who} is chosen on {folds} folds among {candidates} {rest}"


def test_only_folds_that_all_entrants_have_finished_have_a_say() -> None:
    # Over all its folds the second is better; over the two that both have, the first is.
    first = candidate("a", 3, [0.6, 0.6, 0.1])
    second = [trial("a", 4, 0, 0.5), trial("a", 4, 1, 0.5), trial("a", 4, 3, 0.9)]
    # All folds of the one that is chosen are returned, those without a say too.
    assert chosen(select(first + second, "validation")) == [(0, fold, 3, "a") for fold in range(3)]
    assert left_out(first + second, "validation") == [told_of("a with gcs", "2 of 4", "2 of 2")]
    apart = [trial("a", 3, 0, 0.5), trial("a", 4, 1, 0.5), trial("b", 3, 0, 0.5)]
    assert chosen(select(apart, "validation")) == [(0, 0, 3, "b")]
    assert left_out(apart, "validation") == [
        "a with gcs is left out: its candidates have no fold in common."
    ]


def test_stray_trials_of_other_candidates_change_no_choice() -> None:
    # Over all folds, and within each but the first, the second is better.
    records = candidate("a", 3, [0.7, 0.5, 0.5, 0.5]) + candidate("a", 4, [0.6] * 4)
    before = chosen(select(records, "validation"))
    assert {item[2] for item in before} == {4}
    assert left_out(records, "validation") == []
    stray = [trial("a", 5, 0, 1.0)]
    assert chosen(select(records + stray, "validation")) == before
    assert left_out(records + stray, "validation") == [told_of("a with gcs", "4 of 4", "2 of 3")]
    more = [*stray, trial("a:x=1", 1, 2, 1.0), trial("a", 6, 3, 1.0)]
    assert chosen(select(records + more, "validation")) == before
    assert left_out(records + more, "validation") == [told_of("a with gcs", "4 of 4", "2 of 5")]


def test_an_incomplete_vote_is_told_with_the_folds_of_all_repeats() -> None:
    records = [
        *candidate("a", 3, [0.5] * 4),
        *candidate("a", 4, [0.6] * 4),
        *candidate("a", 3, [0.5] * 2, repeat=1),
        *candidate("a", 4, [0.6] * 2, repeat=1),
    ]
    told = told_of("a with gcs", "6 of 8", "2 of 2")
    assert left_out(records, "validation") == [told]
    assert f"{told} [GT005]" in Results(records, "validation").notes
    # A family of one has nothing to choose.
    assert left_out(records[:3], "validation") == []


def test_a_fold_without_a_validation_score_has_no_say() -> None:
    first = [trial("a", 3, 0, 0.5), trial("a", 3, 1, 0.9)]
    second = [trial("a", 4, 0, 0.6), trial("a", 4, 1, None)]
    assert chosen(select(first + second, "validation")) == [(0, 0, 4, "a"), (0, 1, 4, "a")]


def grid(values: Mapping[tuple[str, int], np.ndarray]) -> list[TrialRecord]:
    """Records of several candidates; validation scores of each, ``[repeats, folds]``."""
    return [
        trial(method, layers, fold, float(scores[repeat, fold]), repeat=repeat)
        for (method, layers), scores in values.items()
        for repeat, fold in np.ndindex(*scores.shape)
    ]


@given(st.integers(0, 10_000))
def test_selection_against_a_plain_search_whatever_the_test_scores(seed: int) -> None:
    generator = np.random.default_rng(seed)
    # Few different values, so that ties are common.
    values = {
        (method, layers): generator.integers(0, 3, (2, FOLDS)) / 4
        for method in ("a", "a:x=1", "a:y=1", "a:x=10", "b")
        for layers in (3, 4)
    }
    records = grid(values)
    generator.shuffle(records)
    # Ties go to fewer layers, then to the shorter name, then by the alphabet.
    simplest = [(name, n) for n in (3, 4) for name in ("a", "a:x=1", "a:y=1", "a:x=10")]
    order = {"a": simplest, "b": [("b", 3), ("b", 4)]}
    expected = []
    for candidates in order.values():
        # numpy's argmax takes the first of equals; sums of quarters are exact.
        name, layers = candidates[int(np.argmax([values[item].sum() for item in candidates]))]
        expected += [(*place, layers, name) for place in np.ndindex(2, FOLDS)]
    assert chosen(select(records, "validation")) == expected
    for record in records:
        # A choice that peeked would now take another candidate or fail.
        record.test.clear()
        if generator.random() < 0.5:
            record.test["accuracy"] = generator.random()
    assert chosen(select(records, "validation")) == expected


def test_an_official_split_is_selected_by_validation() -> None:
    settings = {"folds": FOLDS, "split": "official"}
    records = [
        trial("a", layers, 0, layers / 10, repeat=repeat, settings=settings)
        for layers in (3, 4)
        for repeat in range(3)
    ]
    assert chosen(select(records, "validation")) == [(repeat, 0, 4, "a") for repeat in range(3)]
    assert left_out(records, "validation") == []
    (told,) = left_out([*records, trial("a", 5, 0, 0.9, settings=settings)], "validation")
    assert told == told_of("a with gcs", "3 of 3", "2 of 3")
