"""Statistics of comparisons: within one data set over folds, and across data sets.

Scores of different folds are not independent: their training sets overlap. The plain paired t-test
then finds differences that are not there, so differences are judged by the corrected resampled
t-test of Nadeau and Bengio (2003), and several methods at once by Holm's step-down correction.

Across data sets, which are independent but not on one scale, methods are compared by ranks:
Wilcoxon's signed-rank test for two of them, Friedman's test and Nemenyi's critical difference for
several, as Demšar (2006) recommends.

An undefined number (one trial has no spread) is ``None``, never NaN.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import fdtrc, nctdtrinc, stdtr, stdtrit

POWER = 0.8
"""Probability of finding a difference that is called detectable."""

EXACT_PAIRS = 25
"""Up to this many pairs the signed-rank test is exact."""

_TRIED = np.array([*range(2, 100), *range(100, 10_000, 10)])

# scipy.stats is imported late, as it is slow to import.


class Paired(NamedTuple):
    """Test of paired differences over folds, before any correction for multiple tests.

    Without a spread, all but the difference and the number of pairs are ``None``.
    """

    difference: float | None = None  # the mean
    ci_low: float | None = None  # 95 % interval of the mean
    ci_high: float | None = None
    p_value: float | None = None
    effect: float | None = None  # Cohen's d with Hedges' correction
    pairs: int = 0
    detectable: float | None = None  # smallest difference that is found with 80 % power
    pairs_needed: float | None = None  # for this difference; infinite if more pairs do not help
    spread: float | None = None  # standard deviation of the differences


def paired_test(differences: Sequence[float], *, test_to_train: float, tests: int = 1) -> Paired:
    r"""Corrected resampled t-test (Nadeau and Bengio, 2003) of paired differences.

    The variance of the mean is :math:`(\frac{1}{n} + \frac{n_\text{test}}{n_\text{train}}) s^2` in
    place of :math:`\frac{1}{n} s^2`, with :math:`n - 1` degrees of freedom. ``test_to_train`` is
    the number of test graphs per training graph; with 0, this is the ordinary paired t-test.
    ``detectable`` and ``pairs_needed`` are for the first step of Holm's correction over ``tests``.

    Example:
        >>> test = paired_test([0.01, 0.03, 0.02], test_to_train=1 / 3)
        >>> round(test.difference, 3), round(test.p_value, 3)
        (0.02, 0.134)
    """
    pairs = len(differences)
    if not pairs:
        return Paired()
    mean = math.fsum(differences) / pairs
    squares = math.fsum((value - mean) ** 2 for value in differences)
    spread = math.sqrt(squares / max(pairs - 1, 1))
    # A spread of rounding errors only is no spread.
    if spread <= 1e-12 * max(1.0, abs(mean)):
        return Paired(mean, pairs=pairs)
    error = spread * math.sqrt(1 / pairs + test_to_train)
    half_width = float(stdtrit(pairs - 1, 0.975)) * error
    return Paired(
        mean,
        mean - half_width,
        mean + half_width,
        2 * float(stdtr(pairs - 1, -abs(mean / error))),
        _effect(mean / spread, pairs),
        pairs,
        float(_quantiles(pairs, tests)) * error,
        pairs_needed(abs(mean) / spread, test_to_train, tests),
        spread,
    )


def _effect(size: float, pairs: int) -> float | None:
    r"""Hedges' :math:`J(m) = \Gamma(m / 2) / (\sqrt{m / 2}\, \Gamma((m - 1) / 2))`, m = n - 1."""
    freedom = pairs - 1
    if freedom < 2:
        return None
    correction = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2))
    return correction / math.sqrt(freedom / 2) * size


def pairs_needed(size: float, test_to_train: float, tests: int = 1) -> float:
    """Pairs needed to find a difference of ``size`` standard deviations with 80 % power.

    Infinite for small differences: as training sets overlap, the standard error has a floor.
    """
    enough = size >= _tried_quantiles(tests) * np.sqrt(1 / _TRIED + test_to_train)
    if enough.any():
        return float(_TRIED[enough.argmax()])
    # For this many pairs Student's distribution is practically normal.
    rest = (size / float(_quantiles(10_000, tests))) ** 2 - test_to_train
    return float(math.ceil(1 / rest)) if rest > 0 else math.inf


@cache
def _tried_quantiles(tests: int) -> Any:
    return _quantiles(_TRIED, tests)


def _quantiles(pairs: Any, tests: int) -> Any:
    """Number of standard errors that a difference must have to be found with this power."""
    return nctdtrinc(pairs - 1, 1 - POWER, stdtrit(pairs - 1, 1 - 0.025 / tests))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction; ``None`` is not counted as a test and stays ``None``.

    Example:
        >>> holm([0.01, 0.04, 0.03, None])
        [0.03, 0.06, 0.06, None]
    """
    tested = sorted((value, number) for number, value in enumerate(p_values) if value is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (value, number) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * value))
        corrected[number] = largest
    return corrected


# -------------------------------------------------------------------- across data sets


def wilcoxon(differences: Sequence[float], *, greater: bool = False) -> float | None:
    """p-value of Wilcoxon's signed-rank test, ``None`` if all differences are zero.

    Two-sided, or with ``greater`` one-sided: differences are above zero. Zero differences are
    dropped; ties share the mean of their ranks. Up to 25 pairs the p-value is exact, even with
    ties; with five pairs a two-sided one is at least 0.0625.
    """
    from scipy import stats

    largest = max((abs(value) for value in differences), default=0.0)
    if largest == 0:
        return None
    # Rounded: 0.7 - 0.6 and 0.6 - 0.5 should tie.
    signed = np.round(np.array(differences) / largest, 12)
    signed = signed[signed != 0]
    if len(signed) > EXACT_PAIRS:
        approximate: Any = stats.wilcoxon  # its stubs lack `method`
        side = "greater" if greater else "two-sided"
        return float(approximate(signed, alternative=side, method="asymptotic").pvalue)
    # Doubled, as ties may share half a rank.
    doubled = (2 * stats.rankdata(abs(signed))).astype(int).tolist()
    negative = sum(rank for rank, value in zip(doubled, signed, strict=True) if value < 0)
    extreme = negative if greater else min(negative, sum(doubled) - negative)
    as_extreme = sum(ways for total, ways in _rank_sums(doubled).items() if total <= extreme)
    return min(1.0, math.ldexp(as_extreme, (0 if greater else 1) - len(doubled)))


def _rank_sums(ranks: Sequence[int]) -> Counter[int]:
    """Number of subsets of the ranks by their sum."""
    ways = Counter({0: 1})
    for rank in ranks:
        ways += Counter({total + rank: number for total, number in ways.items()})
    return ways


def hodges_lehmann(differences: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The median of the means of all pairs of differences, with its 95 % interval.

    The interval holds the values that the two-sided signed-rank test does not reject; with five
    differences or fewer it rejects nothing, and the ends are ``None``.

    Example:
        >>> hodges_lehmann([1.0, 2.0, -0.5, 3.0, 4.0, 2.5])
        (2.0, -0.5, 4.0)
    """
    number = len(differences)
    one, two = np.triu_indices(number)
    means = np.sort((np.array(differences)[one] + np.array(differences)[two]) / 2)
    ways, tail, outside = _rank_sums(range(1, number + 1)), 0, 0
    while (tail := tail + ways[outside]) * 2 <= 0.05 * 2**number:
        outside += 1
    low, high = (float(means[outside - 1]), float(means[-outside])) if outside else (None, None)
    return float(np.median(means)), low, high


def bayesian_signed_rank(
    differences: Sequence[float], *, equal_within: float, draws: int = 50_000, seed: int = 0
) -> tuple[float, float, float]:
    """Probabilities that differences are above, within and below a region of practical equality.

    The Bayesian signed-rank test of Benavoli, Corani, Demšar and Zaffalon (2017), with a prior of
    strength 0.5 at zero. A draw goes to the region with the largest share of pairwise means.

    Example:
        >>> above, within, below = bayesian_signed_rank([3.0, 4.0, 5.0, 4.5], equal_within=1.0)
        >>> above > 0.95
        True
    """
    values = np.array([0.0, *differences])
    sums = values[:, None] + values
    above = np.heaviside(sums - 2 * equal_within, 0.5)
    below = np.heaviside(-sums - 2 * equal_within, 0.5)
    strength = np.array([0.5, *np.ones(len(differences))])
    weights = np.random.default_rng(seed).dirichlet(strength, draws)
    shares = [np.einsum("di,ij,dj->d", weights, part, weights) for part in (above, below)]
    shares.insert(1, 1.0 - shares[0] - shares[1])
    table = np.stack(shares, axis=1).round(12)
    largest = table == table.max(axis=1, keepdims=True)
    probabilities = (largest / largest.sum(axis=1, keepdims=True)).mean(axis=0)
    return float(probabilities[0]), float(probabilities[1]), float(probabilities[2])


def _ranks(scores: Sequence[Sequence[float]]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Ranks within each block; rank 1 is the highest score, ties share the mean of their ranks."""
    from scipy.stats import rankdata

    # Rounded: means that differ by a rounding error tie.
    return np.asarray(rankdata(-np.round(np.array(scores), 12), axis=1))


def average_ranks(scores: Sequence[Sequence[float]]) -> list[float]:
    """Mean rank of each method over blocks (data sets), from scores ``[blocks, methods]``."""
    return [float(rank) for rank in _ranks(scores).mean(axis=0)]


def friedman(scores: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    r"""Friedman's test of whether methods differ at all, in the form of Iman and Davenport (1980).

    With :math:`N` blocks, :math:`k` methods and Friedman's :math:`\chi^2`, corrected for ties,
    :math:`F = (N - 1) \chi^2 / (N (k - 1) - \chi^2)` has :math:`k - 1` and
    :math:`(k - 1)(N - 1)` degrees of freedom; :math:`\chi^2` itself is too conservative. If all
    blocks rank the methods alike, :math:`F` is infinite and the p-value is the chance of that.

    Returns :math:`F` and its p-value, or ``None`` if all methods tie in every block.
    """
    ranks = _ranks(scores)
    blocks, methods = ranks.shape
    centred = ranks - (methods + 1) / 2
    within = float((centred**2).sum())
    if within == 0:
        return None
    freedom = methods - 1
    chi_square = freedom * float((centred.sum(axis=0) ** 2).sum()) / within
    rest = blocks * freedom - chi_square
    if rest <= 1e-9:
        _, tied = np.unique(ranks[0], return_counts=True)
        orders = math.factorial(methods) // math.prod(map(math.factorial, tied.tolist()))
        return math.inf, orders ** (1.0 - blocks)
    statistic = (blocks - 1) * chi_square / rest
    return statistic, float(fdtrc(freedom, freedom * (blocks - 1), statistic))


def critical_difference(methods: int, blocks: int, level: float = 0.05) -> float:
    r"""Nemenyi's critical difference: mean ranks at least this far apart differ significantly.

    It is :math:`q_\alpha \sqrt{k (k + 1) / (6 N)}` with :math:`q_\alpha` the quantile of the
    studentised range with infinitely many degrees of freedom, divided by :math:`\sqrt 2`.
    """
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(1 - level, methods, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(methods * (methods + 1) / (6 * blocks))
