"""Statistics against hand-computed cases and against independent implementations."""

from __future__ import annotations

import itertools
import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from graph_transplant.results.statistics import (
    EXACT_PAIRS,
    Paired,
    average_ranks,
    bayesian_signed_rank,
    critical_difference,
    friedman,
    hodges_lehmann,
    holm,
    paired_test,
    wilcoxon,
)


def test_corrected_test_by_hand() -> None:
    # Differences 1, 2, 3, 4, 5: mean 3, variance 2.5. With 20 test and 60 training graphs the
    # variance of the mean is (1/5 + 1/3) * 2.5 = 4/3, so t = 3 / sqrt(4/3) = 2.598 with 4 degrees
    # of freedom, and the 97.5 % point of that distribution is 2.776445.
    test = paired_test([1, 2, 3, 4, 5], test_to_train=20 / 60)
    assert test.difference == 3
    assert test.ci_low == pytest.approx(3 - 2.776445 * math.sqrt(4 / 3), abs=1e-5)
    assert test.ci_high == pytest.approx(3 + 2.776445 * math.sqrt(4 / 3), abs=1e-5)
    # For 4 degrees of freedom the distribution has a closed form:
    # P(T > t) = 1/2 - 3/8 * s * (1 - s*s / 12) with s = t / sqrt(1 + t*t / 4).
    statistic = 3 / math.sqrt(4 / 3)
    s = statistic / math.sqrt(1 + statistic**2 / 4)
    assert test.p_value == pytest.approx(2 * (0.5 - 3 / 8 * s * (1 - s**2 / 12)))
    assert test.pairs == 5


@given(
    st.lists(st.floats(-1, 1), min_size=2, max_size=20).filter(lambda values: np.std(values) > 1e-3)
)
def test_without_correction_it_is_the_paired_t_test(differences: list[float]) -> None:
    ours = paired_test(differences, test_to_train=0.0)
    theirs = stats.ttest_rel(differences, np.zeros(len(differences)))
    interval = theirs.confidence_interval(0.95)
    assert ours.p_value == pytest.approx(theirs.pvalue, rel=1e-7, abs=1e-12)
    assert (ours.ci_low, ours.ci_high) == pytest.approx((interval.low, interval.high), abs=1e-9)


@pytest.mark.parametrize("differences", [[0.1], [0.1] * 7, [0.0, 0.0, 0.0], [0.3 - 0.1, 0.2]])
def test_without_spread_there_is_a_difference_but_no_test(differences: list[float]) -> None:
    mean = pytest.approx(differences[0])
    assert paired_test(differences, test_to_train=1 / 3) == Paired(mean, pairs=len(differences))
    assert paired_test([], test_to_train=1 / 3) == Paired()


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


# Power ------------------------------------------------------------------------------------------


def of_size(pairs: int, difference: float) -> list[float]:
    """Differences with this mean and a standard deviation of 1."""
    values = np.linspace(-1, 1, pairs)
    return (values / values.std(ddof=1) + difference).tolist()


@pytest.mark.parametrize(
    ("pairs", "overlap", "family"), [(5, 0.0, 1), (5, 1 / 3, 4), (10, 1 / 8, 1), (30, 1 / 3, 20)]
)
def test_a_detectable_difference_is_found_in_four_of_five_simulated_comparisons(
    pairs: int, overlap: float, family: int
) -> None:
    values = of_size(pairs, 0.0)
    difference = paired_test(values, test_to_train=overlap, tests=family).detectable
    generator = np.random.default_rng(pairs)
    # What folds share, because their training sets overlap, has no part in their spread.
    shared = math.sqrt(overlap) * generator.normal(size=(4000, 1))
    draws = difference + shared + generator.normal(size=(4000, pairs))
    tests = [paired_test(row, test_to_train=overlap) for row in draws.tolist()]
    found = np.mean([test.p_value < 0.05 / family for test in tests])
    # The standard error of this share is 0.006.
    assert found == pytest.approx(0.8, abs=0.02)


@settings(deadline=None)
@given(st.floats(0.03, 5), st.integers(1, 20))
def test_pairs_needed_are_the_fewest_with_the_power(size: float, family: int) -> None:
    needed = paired_test(of_size(4, size), test_to_train=0.0, tests=family).pairs_needed

    def power(pairs: float) -> float:
        limit = stats.t.ppf(1 - 0.025 / family, pairs - 1)
        return float(stats.nct(pairs - 1, size * math.sqrt(pairs)).sf(limit))

    assert needed is not None
    assert power(needed) >= 0.8 - 1e-3
    # Beyond a hundred they are counted in tens.
    if needed > 2:
        assert power(needed - (1 if needed <= 100 else 10)) < 0.8 + 1e-3
    # Never infinite, however many it takes.
    many = paired_test(of_size(4, size / 1000), test_to_train=0.0, tests=family).pairs_needed
    quantiles = stats.norm.ppf(1 - 0.025 / family) + stats.norm.ppf(0.8)
    assert many == pytest.approx((quantiles * 1000 / size) ** 2, rel=2e-3)


@pytest.mark.parametrize("overlap", [1 / 20, 1 / 3])
def test_overlap_is_a_floor_that_no_number_of_pairs_gets_below(overlap: float) -> None:
    floor = stats.norm.ppf([0.975, 0.8]).sum() * math.sqrt(overlap)
    out_of_reach, needed = (
        paired_test(of_size(5, size * floor), test_to_train=overlap).pairs_needed
        for size in (0.99, -1.2)
    )
    assert out_of_reach == math.inf
    # As many find what is detectable with as many.
    many = paired_test(of_size(int(needed), 0.0), test_to_train=overlap)
    assert many.detectable == pytest.approx(1.2 * floor, rel=0.02)


# Wilcoxon ---------------------------------------------------------------------------------------


def enumerated(differences: list[float]) -> float:
    """The signed-rank test by its definition: all assignments of signs, one by one."""
    kept = [value for value in differences if value]
    ranks = stats.rankdata(np.abs(kept))
    centre = ranks.sum() / 2
    observed = abs(ranks[np.array(kept) > 0].sum() - centre)
    signs = itertools.product([0, 1], repeat=len(kept))
    return float(np.mean([abs(ranks @ np.array(s) - centre) >= observed - 1e-9 for s in signs]))


@given(st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=9).filter(any))
def test_wilcoxon_with_ties_and_zeros_is_the_full_enumeration(differences: list[float]) -> None:
    assert wilcoxon(differences) == pytest.approx(enumerated(differences))


@given(st.lists(st.integers(1, 500), min_size=1, max_size=EXACT_PAIRS, unique=True), st.data())
def test_wilcoxon_without_ties_is_scipys_exact_one(sizes: list[int], data: st.DataObject) -> None:
    signs = data.draw(st.lists(st.sampled_from([-1, 1]), min_size=len(sizes), max_size=len(sizes)))
    differences = [sign * size / 7 for sign, size in zip(signs, sizes, strict=True)]
    theirs = stats.wilcoxon(differences, method="exact").pvalue
    assert wilcoxon(differences) == pytest.approx(theirs)


def test_wilcoxon_sees_ties_through_rounding_errors_and_needs_a_difference() -> None:
    # 0.3 - 0.2 and 0.2 - 0.1 differ in the last digit: as a tie both signs cancel.
    assert wilcoxon([0.3 - 0.2, -(0.2 - 0.1)]) == 1.0
    assert wilcoxon([0.1 + 0.2 - 0.3, 1.0]) == 1.0
    assert wilcoxon([1e-20, 2e-20, 3e-20, 4e-20, 5e-20, 6e-20]) == pytest.approx(2 / 64)
    assert wilcoxon([0.0, 0.0]) is None
    assert wilcoxon([]) is None


# Ranks over data sets ---------------------------------------------------------------------------

# Demsar (2006), Table 6: AUC of C4.5, C4.5+m, C4.5+cf and C4.5+m+cf on 14 data sets. In the row of
# "voting" two printed values are equal but their ranks (2 and 3) are not; a digit is added there.
DEMSAR = [
    [0.763, 0.768, 0.771, 0.798],
    [0.599, 0.591, 0.590, 0.569],
    [0.954, 0.971, 0.968, 0.967],
    [0.628, 0.661, 0.654, 0.657],
    [0.882, 0.888, 0.886, 0.898],
    [0.936, 0.931, 0.916, 0.931],
    [0.661, 0.668, 0.609, 0.685],
    [0.583, 0.583, 0.563, 0.625],
    [0.775, 0.838, 0.866, 0.875],
    [1.000, 1.000, 1.000, 1.000],
    [0.940, 0.962, 0.965, 0.962],
    [0.619, 0.666, 0.614, 0.669],
    [0.972, 0.981, 0.9752, 0.975],
    [0.957, 0.978, 0.946, 0.970],
]


def test_demsars_example() -> None:
    assert average_ranks(DEMSAR) == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
    assert critical_difference(4, 14, level=0.10) == pytest.approx(1.12, abs=0.005)
    statistic, p_value = friedman(DEMSAR) or (0.0, 1.0)
    # He finds 9.28 and F = 3.69 by the formula without correction for ties. Three ties of two and
    # one of four make the correction 1 - (3 * 6 + 60) / (14 * 4 * 15).
    chi_square = 14 * 3 * statistic / (13 + statistic)
    uncorrected = chi_square * (1 - 78 / 840)
    assert uncorrected == pytest.approx(9.28, abs=0.005)
    assert 13 * uncorrected / (14 * 3 - uncorrected) == pytest.approx(3.69, abs=0.005)
    assert p_value == pytest.approx(stats.f.sf(statistic, 3, 39))
    assert p_value < 0.02


@given(
    st.integers(3, 5).flatmap(
        lambda methods: st.lists(
            st.lists(st.integers(0, 4).map(float), min_size=methods, max_size=methods),
            min_size=2,
            max_size=8,
        )
    )
)
def test_friedman_is_scipys_with_ties(scores: list[list[float]]) -> None:
    ours = friedman(scores)
    if all(len(set(row)) == 1 for row in scores):
        assert ours is None
        return
    chi_square = stats.friedmanchisquare(*np.array(scores).T).statistic
    blocks, methods = len(scores), len(scores[0])
    assert ours is not None
    statistic, p_value = ours
    rest = blocks * (methods - 1) - chi_square
    if rest < 1e-9:
        assert statistic == math.inf
        assert p_value == pytest.approx(len(set(permutations(scores[0]))) ** -(blocks - 1))
        return
    expected = (blocks - 1) * chi_square / rest
    assert statistic == pytest.approx(expected, rel=1e-6, abs=1e-9)
    freedom = methods - 1
    assert p_value == pytest.approx(
        stats.f.sf(expected, freedom, freedom * (blocks - 1)), rel=1e-6, abs=1e-12
    )


@pytest.mark.parametrize(
    ("methods", "quantiles"),
    # Demsar (2006), Table 5a: quantiles at 0.05 and 0.10.
    [(2, (1.960, 1.645)), (3, (2.343, 2.052)), (5, (2.728, 2.459)), (10, (3.164, 2.920))],
)
def test_critical_difference_from_the_published_table(
    methods: int, quantiles: tuple[float, float]
) -> None:
    for level, quantile in zip((0.05, 0.10), quantiles, strict=True):
        expected = quantile * math.sqrt(methods * (methods + 1) / 6 / 30)
        # The table has three decimals, and some of them are off by one.
        assert critical_difference(methods, 30, level) == pytest.approx(expected, rel=6e-4)


def test_effect_size_is_unbiased() -> None:
    draws = np.random.default_rng(0).normal(0.8, 1.0, size=(10_000, 5))
    sizes = [paired_test(row, test_to_train=0.0).effect for row in draws.tolist()]
    # The standard error of this mean is 0.008; without the correction it would be 1.0.
    assert np.mean([size for size in sizes if size is not None]) == pytest.approx(0.8, abs=0.03)


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=12).filter(any))
def test_one_sided_signed_rank_counts_all_signs(values: list[int]) -> None:
    signed = [value for value in values if value]
    ranks = stats.rankdata(np.abs(signed))
    observed = sum(rank for rank, value in zip(ranks, signed, strict=True) if value > 0)
    sums = [np.dot(signs, ranks) for signs in itertools.product((0, 1), repeat=len(signed))]
    assert wilcoxon(values, greater=True) == pytest.approx(np.mean(np.array(sums) >= observed))


def test_one_sided_signed_rank_of_many_pairs_is_that_of_scipy() -> None:
    values = np.random.default_rng(0).standard_normal(40) + 0.2
    expected = stats.wilcoxon(values, alternative="greater", method="asymptotic").pvalue
    assert wilcoxon(values.tolist(), greater=True) == pytest.approx(expected)


@pytest.mark.parametrize("number", [6, 8, 10, 13])
def test_the_interval_holds_what_the_signed_rank_test_does_not_reject(number: int) -> None:
    values = np.random.default_rng(number).normal(1, 2, number)
    estimate, low, high = hodges_lehmann(values.tolist())
    assert low is not None
    assert high is not None
    assert low < estimate < high
    step = 1e-6

    def rejected(centre: float) -> bool:
        return bool(stats.wilcoxon(values - centre, method="exact").pvalue <= 0.05)

    assert rejected(low - step)
    assert rejected(high + step)
    assert not any(rejected(centre) for centre in np.linspace(low + step, high - step, 20))
    # By hand: means of pairs of 1, 2, 6 are 1, 1.5, 2, 3.5, 4, 6.
    assert hodges_lehmann([1.0, 6.0, 2.0]) == (2.75, None, None)


# From baycomp 1.0.3: SignedRankTest.probs(y, 0, rope=1, prior=0.5, nsamples=400_000).
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 2.0, -0.5, 3.0, 4.0, 2.5], (0.927, 0.073, 0.0)),
        ([0.3, -0.2, 0.1, 0.5, -0.4, 0.2, 0.0], (0.0, 1.0, 0.0)),
        ([6.2, 1.6, 0.7, 14.9, 2.0, -1.0, 0.4, 3.0, -0.2, 1.1], (0.787, 0.213, 0.0)),
    ],
)
def test_bayesian_signed_rank_beside_baycomp(
    values: list[float], expected: tuple[float, float, float]
) -> None:
    found = bayesian_signed_rank(values, equal_within=1.0)
    assert found == pytest.approx(expected, abs=0.004)
    mirrored = bayesian_signed_rank([-value for value in values], equal_within=1.0)
    assert mirrored == pytest.approx(expected[::-1], abs=0.004)
