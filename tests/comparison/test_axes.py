"""Label noise and training fractions: recounted with numpy, from what training was given."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

import graph_transplant as gt
from graph_transplant.comparison import run_trial as trial_module
from graph_transplant.comparison.compare import compare
from graph_transplant.comparison.run_trial import TrialContext, run_trial
from graph_transplant.comparison.training_sets import (
    fewer_graphs,
    split_of,
    trial_seed,
    wrong_labels,
)
from graph_transplant.config.compare import Settings
from graph_transplant.data import GraphStore
from graph_transplant.errors import GraphTransplantError
from graph_transplant.results.record import Condition, Record, Trial
from graph_transplant.results.record_file import RecordStore, record_line
from graph_transplant.results.results import Results
from helpers.made_up_records import Counting, timeless
from helpers.strategies import rings_and_stars, with_fields

NAN = float("nan")
PLACE = {"repeat": 0, "seed": 0, "fold": 0}


def points(y: torch.Tensor, task: str = "multiclass", **changes: Any) -> GraphStore:
    """Graphs of one node each: only their targets count here."""
    count = len(y)
    return GraphStore(
        x=torch.ones(count, 1),
        edge_index=torch.empty(2, 0, dtype=torch.long),
        y=y,
        node_counts=torch.ones(count, dtype=torch.long),
        edge_counts=torch.zeros(count, dtype=torch.long),
        task=task,
        name="points",
        **changes,
    )


def ids(tensor: torch.Tensor) -> set[int]:
    return set(tensor.tolist())


# What is drawn


@given(
    counts=st.lists(st.integers(3, 30), min_size=2, max_size=5),
    shares=st.tuples(st.floats(0.2, 0.95), st.floats(0.2, 0.95)).map(sorted),
    seed=st.integers(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_a_fraction_is_exact_nested_and_keeps_the_classes_in_proportion(
    counts: list[int], shares: list[float], seed: int
) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    # The first graph of the smallest class is taken before half a graph more of any other's share.
    first = Fraction(1, 2 * min(counts))
    before = sum(
        Fraction(2 * rank + 1, 2 * count) <= first for count in counts for rank in range(count)
    )
    assume(round(shares[0] * len(labels)) >= before)
    # The rest of the data is not trained on and must not be taken.
    store = points(torch.from_numpy(np.concatenate([labels, labels])))
    train = torch.arange(len(labels))
    kept = [fewer_graphs(store, train, share, repeat=0, seed=seed, fold=0) for share in shares]
    small, large = kept
    assert ids(small) <= ids(large) <= ids(train)
    for share, graphs in zip(shares, kept, strict=True):
        assert len(graphs) == len(ids(graphs)) == round(share * len(labels))
        assert graphs.tolist() == sorted(graphs.tolist())
        found = np.bincount(labels[graphs.numpy()], minlength=len(counts)).tolist()
        # What makes an apportionment Webster's: one divisor rounds every class to its number.
        lowest = max(Fraction(2 * got - 1, 2 * of) for got, of in zip(found, counts, strict=True))
        highest = min(Fraction(2 * got + 1, 2 * of) for got, of in zip(found, counts, strict=True))
        assert min(found) >= 1
        assert lowest <= highest
    assert fewer_graphs(store, train, 1.0, repeat=0, seed=seed, fold=0) is train


def test_fractions_differ_between_folds_repeats_and_seeds_and_are_drawn_at_random() -> None:
    store, train = points(torch.arange(200) % 2), torch.arange(200)
    draws = [
        ids(fewer_graphs(store, train, 0.1, repeat=repeat, seed=seed, fold=fold))
        for repeat, seed, fold in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))
    ]
    assert len({frozenset(draw) for draw in draws}) == 4
    assert draws[0] == ids(fewer_graphs(store, train, 0.1, **PLACE))
    taken = np.zeros(200)
    for seed in range(300):
        taken[fewer_graphs(store, train, 0.1, repeat=0, seed=seed, fold=0).numpy()] += 1
    # Each graph is left in one draw of ten; 199 degrees of freedom less one for the other class.
    assert taken.sum() == 300 * 20
    assert stats.chisquare(taken, ddof=1).pvalue > 1e-3


def test_several_labels_and_numbers_are_thinned_out_evenly() -> None:
    y = torch.zeros(100, 2)
    y[:60, 0] = 1
    y[:20, 1] = 1
    kept = fewer_graphs(points(y, "multilabel"), torch.arange(100), 0.2, **PLACE)
    assert y[kept].sum(0).tolist() == [12, 4]
    numbers = torch.randperm(100, generator=torch.Generator().manual_seed(0)).float()
    kept = fewer_graphs(points(numbers, "regression"), torch.arange(100), 0.1, **PLACE)
    assert sorted((numbers[kept] // 10).tolist()) == list(range(10)), "one of each tenth"


def recount(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> dict[int, int]:
    """Graphs whose class differs, with the class they have after."""
    return {int(place): int(after[place]) for place in np.flatnonzero(before != after)}


@given(
    counts=st.lists(st.integers(1, 20), min_size=2, max_size=5),
    noises=st.tuples(st.floats(0.0, 0.99), st.floats(0.0, 0.99)).map(sorted),
    seed=st.integers(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_wrong_classes_are_exact_and_nested(
    counts: list[int], noises: list[float], seed: int
) -> None:
    labels = np.repeat(np.arange(len(counts)) * 2, counts)  # classes that no graph has lie between
    store, train = points(torch.from_numpy(labels)), torch.arange(0, len(labels))
    found = []
    for noise in noises:
        after = wrong_labels(store, train, noise, repeat=0, seed=seed, fold=0).numpy()
        found.append(recount(labels, after))
        assert len(found[-1]) == round(noise * len(labels))
        assert set(after) <= set(labels), "a class that training graphs have"
    assert found[0].items() <= found[1].items()
    assert store.y.tolist() == labels.tolist(), "the store is not changed"


def test_every_other_class_is_equally_likely_and_every_graph() -> None:
    labels = np.arange(6000) % 6
    after = wrong_labels(points(torch.from_numpy(labels)), torch.arange(6000), 0.5, **PLACE).numpy()
    wrong = labels != after
    table = np.zeros((6, 6))
    np.add.at(table, (labels[wrong], after[wrong]), 1)
    assert wrong.sum() == 3000
    assert (np.diag(table) == 0).all()
    off = table[~np.eye(6, dtype=bool)]
    assert stats.chisquare(off).pvalue > 1e-3
    assert stats.chisquare(wrong.reshape(60, 100).sum(1)).pvalue > 1e-3


def test_entries_of_several_labels_turn_round_where_they_are_present() -> None:
    generator = torch.Generator().manual_seed(1)
    y = torch.randint(0, 2, (50, 3), generator=generator).float()
    y[torch.rand(50, 3, generator=generator) < 0.3] = NAN
    store, train = points(y, "multilabel"), torch.arange(10, 40)
    true = y[10:40].numpy()
    present = ~np.isnan(true)
    turned = []
    for noise in (0.1, 0.35):
        after = wrong_labels(store, train, noise, **PLACE).numpy()
        assert (np.isnan(after) == np.isnan(true)).all()
        changed = present & (after != true)
        assert changed.sum() == round(noise * present.sum())
        assert (after[changed] == 1 - true[changed]).all()
        turned.append(changed)
    assert (turned[0] <= turned[1]).all()
    assert np.array_equal(store.y.numpy(), y.numpy(), equal_nan=True)


# What training is given


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[GraphStore, GraphStore]]:
    """The training and the validation graphs that ``fit`` is given."""
    given: list[tuple[GraphStore, GraphStore]] = []
    fit_with = trial_module.fit_with

    def noted(
        config: Any, model: Any, train: Any, validation: Any, *rest: Any, **options: Any
    ) -> Any:
        given.append((train, validation))
        return fit_with(config, model, train, validation, *rest, **options)

    monkeypatch.setattr(trial_module, "fit_with", noted)
    return given


def run_one(store: GraphStore, trial: Trial, protocol: Settings) -> Record:
    record = run_trial(store, trial, TrialContext(protocol, "1f", "x")).record
    timed = {name: value for name, value in record.items() if name not in ("seconds", "cost")}
    found: Record = json.loads(record_line(timed))  # which makes NaN comparable
    return found


def test_training_gets_what_the_condition_says_and_validation_stays_clean(
    seen: list[tuple[GraphStore, GraphStore]],
) -> None:
    store = gt.load("motifs", graphs=60)
    protocol = Settings(folds=3, epochs=1, hidden=8, seed=4)
    found: dict[tuple[float, float], dict[int, int]] = {}
    whole = split_of(store, Trial("vanilla", "gcs", 1, 0, 1), protocol)
    runs = (("vanilla", "gcs"), ("transplant-dp", "gin"))
    for noise, fraction, (method, model) in product((0.2, 0.5), (1.0, 0.6), runs):
        trial = Trial(method, model, 1, 0, 1, noise, fraction)
        record = run_one(store, trial, protocol)
        train, validation = seen[-1]
        kept = split_of(store, trial, protocol).train.numpy()
        count = round(fraction * len(whole.train))
        assert len(train) == len(kept) == record["sizes"]["train"] == count
        assert set(kept) <= ids(whole.train)
        # The graphs themselves are those of the data, edge by edge.
        original, trained = store.batch(kept), train.batch(range(len(train)))
        assert np.array_equal(trained.ptr, original.ptr)
        assert torch.equal(trained.edge_index, original.edge_index)
        assert validation.y.tolist() == store.labels[whole.validation].tolist()
        assert record["sizes"]["test"] == len(whole.test)
        assert sum(record["sizes"].values()) == len(store)
        flipped = recount(store.labels.numpy()[kept], train.y.numpy())
        by_graph = {int(kept[place]): value for place, value in flipped.items()}
        assert len(by_graph) == round(noise * count) == record.get("wrong_labels", 0)
        same = found.setdefault((noise, fraction), by_graph)
        assert by_graph == same, "all methods and models of a fold have the same ones"
        assert Trial.of_record(record) == trial
        assert record["label_noise"] == noise
        assert ("train_fraction" in record) == (fraction < 1)
        assert record["seed"] == trial_seed(Trial("any", model, 1, 0, 1), 4)
    for fraction in (1.0, 0.6):
        assert found[0.2, fraction].items() < found[0.5, fraction].items()


def test_training_cannot_see_test_labels_nor_the_graphs_left_out() -> None:
    official = torch.arange(48) % 4 % 3  # a half is trained on, 0 and 3
    store = rings_and_stars(48, seed=2, name="rings", official=official)
    trial = Trial("transplant-dp", "gcs", 2, 0, 0, label_noise=0.25, train_fraction=0.5)
    protocol = Settings(folds=3, epochs=3, hidden=8, batch_size=6, split="official")
    record = run_one(store, trial, protocol)
    test = (official == 2).nonzero().flatten()
    labels = store.labels.clone()
    labels[test] = 1 - labels[test]
    other = run_one(store.with_targets(labels), trial, protocol)
    assert other["curve"] == record["curve"]
    assert other["validation"] == record["validation"]
    assert other["test"]["accuracy"] == pytest.approx(1 - record["test"]["accuracy"])
    # Neither do the features of graphs that are left out count.
    kept = split_of(store, trial, protocol).train
    out = sorted(ids((official == 0).nonzero().flatten()) - ids(kept))
    x = store.x.clone().view(48, 5, 3)
    x[out] = 100.0
    changed = with_fields(store, x=x.view(-1, 3), official=official, name="rings")
    again = run_one(changed, trial, protocol)
    assert again["curve"] == record["curve"]
    assert again["test"] == record["test"]


# Whole comparisons

SMALL: dict[str, Any] = {"folds": 3, "epochs": 2, "batch_size": 8, "layers": [1]}
AXES: dict[str, Any] = {"label_noise": (0.0, 0.25), "train_fraction": (1.0, 0.5)}


def run(out: Path, **changes: Any) -> Results:
    arguments = {"methods": ["vanilla", "drop-nodes"], **SMALL, **changes}
    tiny = rings_and_stars(36, seed=0, name="tiny")
    return compare(arguments.pop("store", tiny), out=out, **arguments)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Two methods, three folds, four conditions."""
    return run(tmp_path_factory.mktemp("whole"), **AXES)


class Stopping(Counting):
    """Ends a comparison after some trials, as Ctrl-C would."""

    def trial_finished(self, record: Record) -> None:
        super().trial_finished(record)
        if len(self.ran) == 7:
            raise KeyboardInterrupt


def test_shares_are_added_to_a_comparison_without_and_a_stopped_one_goes_on(
    whole: Results, tmp_path: Path
) -> None:
    plain = run(tmp_path)
    default = [record for record in whole.records if Condition.of(record) == Condition()]
    assert timeless(plain.records) == timeless(default), "the same, bit by bit"
    first, second, third = Stopping(), Counting(), Counting()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, reporter=first, **AXES)
    assert len(RecordStore(tmp_path).read()) == 6 + 7
    done = run(tmp_path, reporter=second, **AXES)
    assert timeless(done.records) == timeless(whole.records)
    assert len(second.ran) == 11
    assert set(first.ran).isdisjoint(second.ran)
    # Complete pairs: both methods of a condition come before the next condition.
    assert [trial.method for trial in first.ran[:6]] == ["vanilla", "drop-nodes"] * 3
    assert first.ran[0].condition == first.ran[1].condition != first.ran[2].condition
    run(tmp_path, reporter=third, label_noise=0.25)
    assert third.ran == [], "one share may be given as a number"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label_noise": 1.0}, r"`label_noise` must be in \[0, 1\), got 1.0"),
        ({"label_noise": [NAN]}, r"`label_noise` must be in \[0, 1\), got nan"),
        ({"label_noise": []}, "`label_noise` must have at least one value, got none"),
        ({"train_fraction": [0]}, r"`train_fraction` must be in \(0, 1\], got 0"),
        (
            {"train_fraction": [0.5, 0.1]},
            r"`train_fraction` 0.1 leaves 1 of 12 .* in fold 0 of repeat 0 of tiny, and none of .*",
        ),
    ],
)
def test_conditions_that_cannot_be_are_named_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        run(tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists()


def test_numbers_have_no_wrong_labels_but_may_be_fewer(tmp_path: Path) -> None:
    numbers = torch.rand(36, generator=torch.Generator().manual_seed(0))
    store = rings_and_stars(36, seed=0, name="tiny", y=numbers, task="regression")
    for changes, message in (
        ({"label_noise": [0.0, 0.1]}, "`label_noise` needs classes or labels, but the"),
        (
            {"train_fraction": [0.1]},
            r"`train_fraction` 0\.1 leaves 1 of 12 training graphs with a target in fold 0 of",
        ),
    ):
        with pytest.raises(GraphTransplantError, match=message):
            run(tmp_path, store=store, methods=["vanilla"], **changes)
    found = run(tmp_path, store=store, methods=["vanilla"], train_fraction=[0.5])
    assert [record["sizes"]["train"] for record in found.records] == [6, 6, 6]
