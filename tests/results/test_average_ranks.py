"""Methods across data sets, by hand, against scipy and against a plain search."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from graph_transplant.errors import GraphTransplantError
from graph_transplant.results.average_ranks import Across, across
from graph_transplant.results.record import TrialRecord
from graph_transplant.results.results import Results
from graph_transplant.results.statistics import holm
from helpers.made_up_records import NO_NETWORK, NOISY, judged_by, made_up, on
from helpers.page_samples import changed


def trials(
    data: str, method: str, score: float | None, model: str = "gcs", count: int = 5, **changes: Any
) -> list[TrialRecord]:
    """Trials of one method on one data set, with this mean."""
    found = made_up(method, [0.5] * count, test={"accuracy": score}, model=model, **changes)
    return on(data, found)


def results(
    scores: Mapping[str, Sequence[float | None]],
    model: str = "gcs",
    counts: Mapping[tuple[int, str], int] | None = None,
) -> list[Results]:
    """One data set after another, each method with one score per data set."""
    found: list[list[TrialRecord]] = [[] for _ in next(iter(scores.values()))]
    for method, values in scores.items():
        for number, value in enumerate(values):
            count = (counts or {}).get((number, method), 5)
            found[number] += trials(f"data-{number:02}", method, value, model, count)
    return [Results(records) for records in found]


def one(scores: Mapping[str, Sequence[float | None]]) -> Across:
    (found,) = across(results(scores))
    return found


GOOD = [0.70, 0.81, 0.62, 0.93, 0.54, 0.75, 0.66, 0.87]
PLAIN = [0.65, 0.75, 0.58, 0.90, 0.50, 0.73, 0.65, 0.80]  # always below
MIXED = [0.66, 0.74, 0.60, 0.88, 0.51, 0.72, 0.655, 0.79]


def test_everything_by_hand() -> None:
    found = one({"vanilla": PLAIN, "good": GOOD, "mixed": MIXED})
    assert found.model == "gcs"
    assert found.data == tuple(f"data-{number:02}" for number in range(8))
    assert found.methods == ("good", "mixed", "vanilla")
    # Good is first everywhere; mixed is second in 4 of 8 and so is vanilla.
    assert found.ranks == (1.0, 2.5, 2.5)
    assert found.scores[1] == pytest.approx((0.81, 0.74, 0.75))
    # Nemenyi for three methods: 2.343 * sqrt(3 * 4 / (6 * 8)).
    assert found.critical_difference == pytest.approx(2.343 / 2, abs=1e-3)
    chi_square = stats.friedmanchisquare(PLAIN, GOOD, MIXED).statistic
    statistic = 7 * chi_square / (8 * 2 - chi_square)
    assert found.friedman_p == pytest.approx(stats.f.sf(statistic, 2, 14))

    good, mixed = found.wilcoxon
    assert (good.method, good.wins, good.ties, good.losses) == ("good", 8, 0, 0)
    assert (mixed.method, mixed.wins, mixed.ties, mixed.losses) == ("mixed", 4, 0, 4)
    expected = [2 / 256, stats.wilcoxon(np.round(np.subtract(MIXED, PLAIN), 9)).pvalue]
    assert good.p_value == expected[0]
    assert mixed.p_value == pytest.approx(expected[1])
    assert [good.p_holm, mixed.p_holm] == holm([good.p_value, mixed.p_value])
    walsh = [
        (a + b) / 2 for a, b in itertools.combinations_with_replacement(np.subtract(GOOD, PLAIN), 2)
    ]
    assert good.difference == pytest.approx(np.median(walsh))
    assert found.left_out == ()
    frame = found.frame
    assert frame["method"].tolist() == ["good", "mixed", "vanilla"]
    assert frame["rank"].tolist() == [1.0, 2.5, 2.5]
    assert frame["wins"].tolist() == [8, 4, pd.NA]
    assert frame["p_holm"].tolist()[:2] == [good.p_holm, mixed.p_holm]
    assert found.sentence == (
        "Over 8 data sets with gcs, good has the best average rank, 1.00 among 3 methods. "
        "The methods differ (Friedman's test, p < 0.001). "
        "good is better than vanilla on 8 and worse on 0 of 8 (Wilcoxon's test, p = 0.016 after "
        "Holm)."
    )


def test_the_direction_of_a_finding_is_that_of_the_ranks_not_of_the_count() -> None:
    # Seven small losses and nine large gains of ranks 8 to 16: the sum of ranks is what is tested.
    plain = [0.5] * 16
    shifts = [-0.001 * number for number in range(1, 8)] + [0.01 * n for n in range(1, 10)]
    found = one({"vanilla": plain, "a": [0.5 + shift for shift in shifts]})
    (a,) = found.wilcoxon
    assert a.p_value is not None
    assert a.p_value < 0.05
    assert a.difference > 0
    assert "a is better than vanilla on 9 and worse on 7 of 16 (Wilcoxon's test, " in found.sentence


@pytest.mark.parametrize(
    ("count", "others", "smallest"),
    [(2, 1, "p = 0.5"), (5, 1, "p = 0.062"), (6, 2, "p = 0.062 after Holm")],
)
def test_few_data_sets_can_hardly_show_anything(count: int, others: int, smallest: str) -> None:
    good = {f"good-{number}": GOOD[:count] for number in range(others)}
    found = one({"vanilla": PLAIN[:count], **good})
    assert found.sentence.endswith(
        f"With {count} data sets even a win on each of them has {smallest}: preliminary."
    )
    # By this test: the chart of ranks shows another one.
    assert "No method is shown to differ from vanilla (Wilcoxon's test)." in found.sentence
    for row in found.wilcoxon:
        assert row.p_value == 2 / 2**count


def test_only_methods_that_every_data_set_has_finished_are_ranked() -> None:
    scores = {"vanilla": PLAIN, "a": GOOD, "b": MIXED, "c": [*GOOD[:-1], None], "d": MIXED}
    every = results(scores, counts={(3, "a"): 1, (5, "a"): 4, (4, "d"): 0})
    (found,) = across(every[::-1])
    assert set(found.methods) == {"b", "vanilla"}
    assert found.left_out == ("a", "c", "d")
    assert found.sentence.endswith(" Left out, not finished on every data set: a, c and d.")
    # What counts is the most trials within the data set, not that of other data sets.
    fewer = {(3, method): 3 for method in ("vanilla", "a")}
    (found,) = across(results({"vanilla": PLAIN, "a": GOOD}, counts=fewer))
    assert (found.methods, found.left_out) == (("a", "vanilla"), ())


def test_trials_with_wrong_labels_are_not_ranked() -> None:
    plain = results({"vanilla": PLAIN, "a": GOOD})
    noisy = [
        Results([changed(record, **NOISY) for record in each.records if record.method == "a"])
        for each in plain
    ]
    (without,), (found,) = across(plain), across([*plain, *noisy])
    assert (found.ranks, found.scores) == (without.ranks, without.scores)
    assert found.sentence == (
        without.sentence + " Not ranked: 8 rows with wrong labels or fewer training graphs."
    )
    with pytest.raises(GraphTransplantError, match=r"no finished trials to rank: .*label noise 0"):
        across(noisy)


def test_methods_that_tie_everywhere() -> None:
    found = one({"vanilla": PLAIN, "a": PLAIN, "b": [value + 1e-15 for value in PLAIN]})
    assert found.ranks == (2.0, 2.0, 2.0)
    assert found.friedman_p is None
    for item in found.wilcoxon:
        assert (item.ties, item.p_value, item.p_holm) == (8, None, None)
    assert "are not shown to differ (Friedman's test, p not defined)." in found.sentence


def test_models_are_compared_apart_and_those_with_one_data_set_passed_over() -> None:
    every = results({"vanilla": PLAIN, "a": GOOD}, "gin")
    every += results({"vanilla": GOOD, "a": PLAIN}, "gcs")
    every += results({"vanilla": [0.5], "a": [0.6]}, "gat")
    first, second = across(every)
    assert (first.model, first.methods) == ("gcs", ("vanilla", "a"))
    assert (second.model, second.methods) == ("gin", ("a", "vanilla"))


def test_methods_without_a_network_are_ranked_beside_every_model() -> None:
    forest, svm = (made_up(name, [0.9] * 5, **NO_NETWORK) for name in ("forest", "wl-svm"))
    networks = made_up("vanilla", [0.5] * 5) + made_up("vanilla", [0.6] * 5, model="gin")
    every, alone = (
        across([Results(on(data, *parts)) for data in ("one", "two")])
        for parts in ((forest, networks), (forest, svm))
    )
    found = {each.model: each.methods for each in every}
    assert found == {"gcs": ("forest", "vanilla"), "gin": ("forest", "vanilla")}
    assert [each.model for each in alone] == ["no network"]
    # Interrupted: the forest of the next repeat is finished, the networks are not.
    ahead = made_up("forest", [0.9] * 6, **NO_NETWORK)
    plain = made_up("vanilla", [0.5] * 5) + made_up("a", [0.6] * 5)
    (found,) = across([Results(on(data, ahead, plain)) for data in ("one", "two")])
    assert (found.methods, found.left_out) == (("forest", "a", "vanilla"), ())


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "no finished trials to rank"),
        (
            trials("x", "vanilla", 0.5) + trials("y", "vanilla", 0.5, "gin"),
            "at least 2 data sets with the same model, got gcs on x; gin on y",
        ),
        (
            trials("x", "vanilla", 0.5) + trials("y", "a", 0.5),
            "gcs: the data sets x, y must have at least 2 methods in common .*, got none",
        ),
        (
            trials("x", "vanilla", 0.5) + trials("x", "vanilla", 0.5, layers=4),
            r"vanilla with gcs on x is given twice \(layers: 3 and 4\)",
        ),
        (
            [r for m in ("vanilla", "a") for r in trials("x", m, 0.5)]
            + on("y", judged_by("r2", "vanilla", [0.5]), judged_by("r2", "a", [0.4])),
            r"different scales, x \(accuracy\), y \(R²\): rank them separately",
        ),
    ],
)
def test_what_cannot_be_compared_is_named(records: list[TrialRecord], message: str) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        across([Results(records)])


@given(st.integers(0, 10_000), st.integers(2, 7), st.integers(2, 12))
@settings(max_examples=8)
def test_ranks_against_scipy(seed: int, methods: int, blocks: int) -> None:
    table = np.random.default_rng(seed).integers(0, 9, (methods, blocks)) / 10
    found = one({f"m{number}": values for number, values in enumerate(table.tolist())})
    ranks = dict(zip(found.methods, found.ranks, strict=True))
    expected = np.mean([stats.rankdata(-column) for column in np.round(table.T, 9)], axis=0)
    assert [ranks[f"m{number}"] for number in range(methods)] == pytest.approx(expected.tolist())
    assert list(found.ranks) == sorted(found.ranks)
    assert math.fsum(found.ranks) == pytest.approx(methods * (methods + 1) / 2)
