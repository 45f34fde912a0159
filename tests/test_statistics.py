"""Statistics against hand-computed cases and against independent implementations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.statistics import (
    corrected_paired_test,
    holm,
    mean,
    standard_deviation,
)


def test_corrected_test_by_hand() -> None:
    # Differences 1, 2, 3, 4, 5: mean 3, variance 2.5. With 20 test and 60 training graphs the
    # variance of the mean is (1/5 + 1/3) * 2.5 = 4/3, so t = 3 / sqrt(4/3) = 2.598 with 4 degrees
    # of freedom, and the 97.5 % point of that distribution is 2.776445.
    test = corrected_paired_test([1, 2, 3, 4, 5], test_to_train=20 / 60)
    assert test.difference == 3
    assert test.statistic == pytest.approx(3 / math.sqrt(4 / 3))
    assert test.low == pytest.approx(3 - 2.776445 * math.sqrt(4 / 3), abs=1e-5)
    assert test.high == pytest.approx(3 + 2.776445 * math.sqrt(4 / 3), abs=1e-5)
    # For 4 degrees of freedom the distribution has a closed form:
    # P(T > t) = 1/2 - 3/8 * s * (1 - s*s / 12) with s = t / sqrt(1 + t*t / 4).
    assert test.statistic is not None
    s = test.statistic / math.sqrt(1 + test.statistic**2 / 4)
    assert test.p_value == pytest.approx(2 * (0.5 - 3 / 8 * s * (1 - s**2 / 12)))
    assert test.pairs == 5


@given(
    st.lists(st.floats(-1, 1), min_size=2, max_size=20).filter(lambda values: np.std(values) > 1e-3)
)
def test_without_correction_it_is_the_paired_t_test(differences: list[float]) -> None:
    ours = corrected_paired_test(differences, test_to_train=0.0)
    theirs = stats.ttest_rel(differences, np.zeros(len(differences)))
    interval = theirs.confidence_interval(0.95)
    assert ours.statistic == pytest.approx(theirs.statistic, rel=1e-9, abs=1e-12)
    assert ours.p_value == pytest.approx(theirs.pvalue, rel=1e-7, abs=1e-12)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), abs=1e-9)


def test_the_correction_makes_it_harder_to_be_significant() -> None:
    differences = [0.02, 0.05, 0.01, 0.04, 0.03]
    plain = corrected_paired_test(differences, test_to_train=0.0)
    corrected = corrected_paired_test(differences, test_to_train=1 / 3)
    assert plain.p_value is not None
    assert corrected.p_value is not None
    assert plain.p_value < 0.02 < corrected.p_value


@given(
    st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=15).filter(lambda v: np.std(v) > 1e-3),
    st.floats(0, 1),
)
def test_interval_and_p_value_agree(differences: list[float], ratio: float) -> None:
    test = corrected_paired_test(differences, test_to_train=ratio)
    assert test.low is not None
    assert test.high is not None
    assert test.p_value is not None
    if abs(test.p_value - 0.05) > 1e-6:
        assert (test.low > 0 or test.high < 0) == (test.p_value < 0.05)


@pytest.mark.parametrize("differences", [[0.1], [0.1] * 7, [0.0, 0.0, 0.0], [0.3 - 0.1, 0.2]])
def test_without_spread_there_is_a_difference_but_no_test(differences: list[float]) -> None:
    test = corrected_paired_test(differences, test_to_train=1 / 3)
    assert test.difference == pytest.approx(differences[0])
    assert (test.low, test.high, test.statistic, test.p_value) == (None, None, None, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"differences": []}, "`differences` must have at least one entry"),
        ({"test_to_train": -1.0}, "`test_to_train` must be at least 0"),
        ({"level": 1.0}, "`level` must be between 0 and 1"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    good = {"differences": [0.1, 0.2], "test_to_train": 0.25}
    with pytest.raises(GraphTransplantError, match=message):
        corrected_paired_test(**(good | arguments))  # type: ignore[arg-type]


def closed_testing(p_values: list[float]) -> list[float]:
    """Holm by its definition: the worst Bonferroni test of any set that contains the hypothesis."""
    numbers = range(len(p_values))
    worst = [0.0] * len(p_values)
    for size in range(1, len(p_values) + 1):
        for chosen in itertools.combinations(numbers, size):
            p_value = min(1.0, size * min(p_values[number] for number in chosen))
            for number in chosen:
                worst[number] = max(worst[number], p_value)
    return worst


@given(st.lists(st.floats(0, 1), max_size=7))
def test_holm_is_closed_testing(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(closed_testing(p_values))


def test_holm_leaves_out_what_was_not_tested() -> None:
    assert holm([None, 0.01, None, 0.2]) == [None, 0.02, None, 0.2]
    assert holm([None, None]) == [None, None]
    assert holm([]) == []


def test_mean_and_deviation_by_hand() -> None:
    assert mean([0.1, 0.2, 0.6]) == pytest.approx(0.3)
    assert standard_deviation([0.1, 0.2, 0.6]) == pytest.approx(math.sqrt(0.07))
    assert mean([]) is None
    assert standard_deviation([]) is None
    assert standard_deviation([0.4]) is None
