"""Selection of candidates: by validation scores alone, against a plain search written here."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.protocol import Condition, Record
from graph_transplant.experiments.results import Results
from graph_transplant.experiments.selection import (
    left_out,
    select,
    selection_table,
)
from made_up import made_up

FOLDS = 4


def trial(
    method: str,
    layers: int,
    fold: int,
    validation: float | None,
    *,
    inner: int = 0,
    repeat: int = 0,
    test: float = 0.5,
    **changes: Any,
) -> Record:
    (record,) = made_up(method, [test], layers=layers, repeat=repeat, fold=fold, inner=inner)
    record["validation"] = {"accuracy": validation, "auroc": 0.9}
    return record | {"settings": {"folds": FOLDS, "epochs": 100}} | changes


def candidate(
    method: str, layers: int, validation: Sequence[float], **changes: Any
) -> list[Record]:
    return [trial(method, layers, fold, value, **changes) for fold, value in enumerate(validation)]


def chosen(records: Iterable[Record]) -> list[tuple[int, int, int, str]]:
    return [
        (record["repeat"], record["fold"], record["chosen"]["layers"], record["chosen"]["method"])
        for record in records
    ]


def test_none_leaves_everything_as_it_is_but_inner_trials() -> None:
    records = [trial("a", 3, 0, 0.5), trial("a:x=1", 4, 0, 0.6), trial("a", 3, 0, 0.7, inner=1)]
    del records[0]["inner"]  # as in older records
    kept = select(records, "none")
    assert len(kept) == 2
    assert kept[0] is records[0]
    assert kept[1] is records[1]
    assert selection_table(records, "none") == []
    assert left_out(records, "none") == []


def test_validation_chooses_one_candidate_for_all_folds() -> None:
    plain = candidate("drop-nodes", 3, [0.50, 0.60, 0.70, 0.60])  # mean 0.60
    deeper = candidate("drop-nodes:ratio=0.4", 4, [0.70, 0.70, 0.50, 0.62])  # mean 0.63
    deepest = candidate("drop-nodes", 5, [0.90, 0.50, 0.50, 0.60])  # mean 0.625
    other = candidate("vanilla", 3, [0.1] * 4) + candidate("vanilla", 5, [0.2] * 4)
    found = select(plain + deeper + deepest + other, "validation")
    assert chosen(found) == [
        *((0, fold, 4, "drop-nodes:ratio=0.4") for fold in range(4)),
        *((0, fold, 5, "vanilla") for fold in range(4)),
    ]
    assert {record["method"] for record in found} == {"drop-nodes", "vanilla"}
    assert found[0] == deeper[0] | {
        "method": "drop-nodes",
        "chosen": {"layers": 4, "method": "drop-nodes:ratio=0.4"},
    }
    assert "chosen" not in deeper[0], "records are copied, not changed"
    assert deeper[0]["method"] == "drop-nodes:ratio=0.4"


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
        (record["data"], record["model"], Condition.of(record).short): record["layers"]
        for record in select(records[::-1], "validation")
    }
    assert layers == {
        ("toy", "gcs", ""): 3,
        ("toy", "gin", ""): 4,
        ("other", "gcs", ""): 4,
        ("toy", "gcs", "noise 20 %"): 4,
    }
    (passed_over,) = left_out(records[:-1], "validation")
    assert passed_over.startswith("With 20 % of the training labels wrong, gcs: a with 4 layers")


def test_only_folds_that_all_entrants_have_finished_have_a_say() -> None:
    # Over all its folds the second is better; over the two that both have, the first is.
    first = candidate("a", 3, [0.6, 0.6, 0.1])
    second = [trial("a", 4, 0, 0.5), trial("a", 4, 1, 0.5), trial("a", 4, 3, 0.9)]
    # All folds of the one that is chosen are returned, those without a say too.
    assert chosen(select(first + second, "validation")) == [(0, fold, 3, "a") for fold in range(3)]
    assert left_out(first + second, "validation") == ["a with gcs is chosen on 2 of 4 folds."]
    apart = [trial("a", 3, 0, 0.5), trial("a", 4, 1, 0.5), trial("b", 3, 0, 0.5)]
    assert chosen(select(apart, "validation")) == [(0, 0, 3, "b")]
    assert left_out(apart, "validation") == [
        "a with gcs is left out: there is no fold that all of its 2 candidates have finished."
    ]
    found = [(item.validation, item.chosen) for item in selection_table(apart, "validation")]
    assert found == [(None, False), (None, False), (0.5, True)]


@pytest.mark.parametrize("how", ["validation", "nested"])
def test_stray_trials_of_other_candidates_change_no_choice(how: str) -> None:
    # Over all folds, and within each but the first, the second is better.
    first, second = np.full((1, FOLDS, 3), 0.5), np.full((1, FOLDS, 3), 0.6)
    first[0, 0] = 0.7 if how == "validation" else 0.5
    records = grid({("a", 3): first, ("a", 4): second})
    before = chosen(select(records, how))
    assert {item[2] for item in before} == {4}
    assert left_out(records, how) == []
    stray = [trial("a", 5, 0, 1.0, inner=inner) for inner in range(3)]
    assert chosen(select(records + stray, how)) == before
    (told,) = left_out(records + stray, how)
    assert told.startswith("gcs: a with 5 layers takes no part in the selection: fewer folds")
    *table, left = selection_table(records + stray, how)
    assert table == selection_table(records, how)
    assert (left.layers, left.validation, left.trials, left.chosen) == (5, None, 0, False)
    more = [*stray, trial("a:x=1", 1, 2, 1.0), trial("a", 6, 3, 1.0)]
    assert chosen(select(records + more, how)) == before
    (told,) = left_out(records + more, how)
    assert told.startswith(
        "gcs: a:x=1 with 1 layer, a with 5 layers and a with 6 layers take no part"
    )


def test_an_incomplete_vote_is_told_with_the_folds_of_all_repeats() -> None:
    records = [
        *candidate("a", 3, [0.5] * 4),
        *candidate("a", 4, [0.6] * 4),
        *candidate("a", 3, [0.5] * 2, repeat=1),
        *candidate("a", 4, [0.6] * 2, repeat=1),
    ]
    assert left_out(records, "validation") == ["a with gcs is chosen on 6 of 8 folds."]
    assert "a with gcs is chosen on 6 of 8 folds." in Results(records, "validation").notes
    assert Results(records).notes == [], "nothing is chosen"
    # A family of one has nothing to choose.
    assert left_out(records[:3], "validation") == []
    # Of those that do take part none shares a fold.
    apart = [trial("a", layers, fold, 0.5) for layers, fold in ((3, 0), (3, 1), (4, 2), (4, 3))]
    first, second = left_out([*apart, trial("a", 5, 0, 0.5)], "validation")
    assert first.startswith("gcs: a with 5 layers takes no part in the selection")
    assert second == (
        "a with gcs is left out: there is no fold that all of its 2 candidates have finished."
    )


def test_a_fold_without_a_validation_score_has_no_say() -> None:
    first = [trial("a", 3, 0, 0.5), trial("a", 3, 1, 0.9)]
    second = [trial("a", 4, 0, 0.6), trial("a", 4, 1, None)]
    assert chosen(select(first + second, "validation")) == [(0, 0, 4, "a"), (0, 1, 4, "a")]


@pytest.mark.parametrize("how", ["validation", "nested"])
@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ([(4, "a"), (3, "a:x=10")], (3, "a:x=10")),
        ([(3, "a:x=10"), (3, "a:y=1")], (3, "a:y=1")),
        ([(3, "a:y=1"), (3, "a:x=1")], (3, "a:x=1")),
    ],
)
def test_ties_go_to_fewer_layers_then_the_shorter_name_then_the_alphabet(
    how: str, candidates: list[tuple[int, str]], expected: tuple[int, str]
) -> None:
    values = np.full((1, FOLDS, 3), 0.5)
    for order in (candidates, candidates[::-1]):
        records = grid({(name, layers): values for layers, name in order})
        assert {item[2:] for item in chosen(select(records, how))} == {expected}


def grid(values: Mapping[tuple[str, int], np.ndarray]) -> list[Record]:
    """Records of several candidates; validation scores of each, ``[repeats, folds, inner]``."""
    return [
        trial(method, layers, fold, float(scores[repeat, fold, inner]), inner=inner, repeat=repeat)
        for (method, layers), scores in values.items()
        for repeat, fold, inner in np.ndindex(*scores.shape)
    ]


@given(st.integers(0, 10_000))
def test_nested_and_validation_against_a_plain_search(seed: int) -> None:
    generator = np.random.default_rng(seed)
    # Few different values, so that ties are common.
    values = {
        (method, layers): generator.integers(0, 3, (2, FOLDS, FOLDS - 1)) / 4
        for method in ("a", "a:x=1", "b")
        for layers in (3, 4)
    }
    records = grid(values)
    generator.shuffle(records)
    order = {"a": [("a", 3), ("a:x=1", 3), ("a", 4), ("a:x=1", 4)], "b": [("b", 3), ("b", 4)]}
    nested, once = [], []
    for candidates in order.values():
        # numpy's argmax takes the first of equals; sums of quarters are exact.
        best = int(np.argmax([values[item][:, :, 0].sum() for item in candidates]))
        for repeat, fold in itertools.product(range(2), range(FOLDS)):
            inner = int(np.argmax([values[item][repeat, fold].sum() for item in candidates]))
            nested.append((repeat, fold, candidates[inner][1], candidates[inner][0]))
            once.append((repeat, fold, candidates[best][1], candidates[best][0]))
    assert chosen(select(records, "nested")) == nested
    assert chosen(select(records, "validation")) == once
    assert all(record["inner"] == 0 for record in select(records, "nested"))


@given(st.integers(0, 10_000), st.sampled_from(["validation", "nested"]))
def test_test_scores_change_no_choice(seed: int, how: str) -> None:
    generator = np.random.default_rng(seed)
    records = grid(
        {(m, n): generator.random((1, FOLDS, 3)) for m in ("a", "a:x=1") for n in (3, 4)}
    )
    before = chosen(select(records, how))
    table = selection_table(records, how)
    for record in records:
        # A choice that peeked would now take another candidate or fail.
        record["test"] = {"accuracy": generator.random()} if generator.random() < 0.5 else {}
    assert chosen(select(records, how)) == before
    assert selection_table(records, how) == table


def test_nested_leaves_out_a_fold_whose_inner_trials_are_not_all_there() -> None:
    values = {("a", layers): np.full((1, FOLDS, 3), layers / 10) for layers in (3, 4)}
    records = [
        record
        for record in grid(values)
        if (record["layers"], record["fold"], record["inner"]) not in {(3, 1, 2), (4, 3, 0)}
    ]
    assert chosen(select(records, "nested")) == [(0, 0, 4, "a"), (0, 2, 4, "a")]
    assert left_out(records, "nested") == [
        "a with gcs: 2 of 4 folds are left out, for lack of finished inner trials."
    ]
    assert left_out(grid(values), "nested") == []
    assert select([record for record in records if record["inner"] == 0], "nested") == []


def test_the_table_tells_means_and_choices() -> None:
    low, high = np.full((1, FOLDS, 3), 0.25), np.full((1, FOLDS, 3), 0.5)
    low[0, 1] = 1.0  # the shallow one wins this fold
    high[0, 2, 0] = 0.75
    records = grid({("a", 3): low, ("a:x=1", 4): high, ("b", 3): low})
    shallow, deep, alone = selection_table(records, "nested")
    assert (shallow.layers, shallow.name, shallow.folds, shallow.chosen) == (3, "a", 1, True)
    assert (deep.layers, deep.name, deep.folds, deep.chosen) == (4, "a:x=1", 3, True)
    assert (deep.method, alone.method, alone.folds) == ("a", "b", 4)
    assert shallow.validation == pytest.approx((9 * 0.25 + 3 * 1.0) / 12)
    assert deep.validation == pytest.approx((11 * 0.5 + 0.75) / 12)
    assert shallow.trials == 12

    shallow, deep, _ = selection_table(records, "validation")
    assert shallow.validation == pytest.approx((3 * 0.25 + 1.0) / 4)
    assert deep.validation == pytest.approx((3 * 0.5 + 0.75) / 4)
    assert (shallow.chosen, deep.chosen) == (False, True)
    assert (shallow.folds, deep.folds) == (0, 4)
    assert shallow.trials == 4


def test_an_official_split_is_selected_by_validation_and_not_nested() -> None:
    settings = {"folds": FOLDS, "split": "official"}
    records = [
        trial("a", layers, 0, layers / 10, repeat=repeat, settings=settings)
        for layers in (3, 4)
        for repeat in range(3)
    ]
    assert chosen(select(records, "validation")) == [(repeat, 0, 4, "a") for repeat in range(3)]
    assert left_out(records, "validation") == []
    (told,) = left_out([*records, trial("a", 5, 0, 0.9, settings=settings)], "validation")
    assert "fewer runs are finished" in told
    with pytest.raises(GraphTransplantError, match=r"'nested', which needs folds, .*'validation'"):
        select(records, "nested")
