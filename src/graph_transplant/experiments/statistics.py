"""Statistics of comparisons: within one data set over folds, and across data sets.

Scores of different folds are not independent: their training sets overlap. The plain paired t-test
then finds differences that are not there, so differences are judged by the corrected resampled
t-test of Nadeau and Bengio (2003), and several methods at once by Holm's step-down correction.

Across data sets, which are independent but not of one scale, methods are compared by ranks:
Wilcoxon's signed-rank test for two of them, Friedman's test and Nemenyi's critical difference for
several, as Demšar (2006) recommends.

A number that is not defined (one trial has no spread) is ``None``, never NaN.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from scipy.special import fdtrc, ndtr, stdtr, stdtrit

from graph_transplant.errors import GraphTransplantError


def mean(values: Sequence[float]) -> float | None:
    """Give the mean, or ``None`` for no values.

    Example:
        >>> mean([0.5, 0.75]), mean([])
        (0.625, None)
    """
    return math.fsum(values) / len(values) if values else None


def standard_deviation(values: Sequence[float]) -> float | None:
    """Give the sample standard deviation (divisor :math:`n - 1`), or ``None`` below two values.

    Example:
        >>> standard_deviation([1.0, 2.0, 3.0]), standard_deviation([1.0])
        (1.0, None)
    """
    if len(values) < 2:
        return None
    centre = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


@dataclass(frozen=True)
class PairedTest:
    """A paired comparison of two methods over the same folds.

    Args:
        difference: Mean of the differences.
        low: Lower end of the confidence interval of the difference.
        high: Upper end of the confidence interval of the difference.
        statistic: The t statistic.
        p_value: Two-sided p-value.
        pairs: Number of pairs.

    The interval, the statistic and the p-value are ``None`` when there are fewer than two pairs or
    when all differences are the same: then there is no spread to judge the difference by.
    """

    difference: float
    low: float | None
    high: float | None
    statistic: float | None
    p_value: float | None
    pairs: int


def mean_interval(
    values: Sequence[float], *, test_to_train: float, level: float = 0.95
) -> tuple[float, float] | None:
    r"""Confidence interval of a mean over folds, corrected as Nadeau and Bengio (2003) do.

    It is :math:`\bar x \pm t_{n-1} \sqrt{\frac{1}{n} + \frac{n_\text{test}}{n_\text{train}}}\, s`
    with :math:`t_{n-1}` the quantile of Student's distribution: the training sets overlap, so that
    the mean varies more from one data set of this kind to the next than
    :math:`s / \sqrt n` says.

    Args:
        values: One score per fold, ``[folds]``.
        test_to_train: Number of test graphs per training graph; 0 for independent values.
        level: Level of the confidence interval.

    Returns:
        The lower and the upper end, or ``None`` when there are fewer than two values or no spread.

    Example:
        >>> low, high = mean_interval([0.5, 0.6, 0.7], test_to_train=1 / 3)
        >>> round(low, 3), round(high, 3)
        (0.249, 0.951)
    """
    if not values:
        return None
    test = corrected_paired_test(values, test_to_train=test_to_train, level=level)
    return None if test.low is None or test.high is None else (test.low, test.high)


def corrected_paired_test(
    differences: Sequence[float], *, test_to_train: float, level: float = 0.95
) -> PairedTest:
    r"""Corrected resampled t-test (Nadeau and Bengio, 2003) of paired differences.

    The variance of the mean difference is estimated by
    :math:`(\frac{1}{n} + \frac{n_\text{test}}{n_\text{train}}) s^2` in place of
    :math:`\frac{1}{n} s^2`, with :math:`n - 1` degrees of freedom. With ``test_to_train=0`` it is
    the ordinary paired t-test.

    Args:
        differences: One difference per fold, ``[pairs]``, at least one.
        test_to_train: Number of test graphs per training graph.
        level: Level of the confidence interval.

    Returns:
        The test.

    Example:
        >>> test = corrected_paired_test([0.01, 0.03, 0.02], test_to_train=1 / 3)
        >>> round(test.difference, 3), round(test.statistic, 3), round(test.p_value, 3)
        (0.02, 2.449, 0.134)
        >>> corrected_paired_test([0.02], test_to_train=1 / 3).p_value is None
        True
    """
    if not differences:
        raise GraphTransplantError("`differences` must have at least one entry, got none")
    if test_to_train < 0:
        raise GraphTransplantError(f"`test_to_train` must be at least 0, got {test_to_train}")
    if not 0 < level < 1:
        raise GraphTransplantError(f"`level` must be between 0 and 1, got {level}")
    pairs = len(differences)
    difference = math.fsum(differences) / pairs
    spread = standard_deviation(differences)
    if spread is None or _is_noise(spread, differences):
        return PairedTest(difference, None, None, None, None, pairs)
    error = spread * math.sqrt(1 / pairs + test_to_train)
    statistic = difference / error
    freedom = pairs - 1
    half_width = float(stdtrit(freedom, (1 + level) / 2)) * error
    return PairedTest(
        difference,
        difference - half_width,
        difference + half_width,
        statistic,
        2 * float(stdtr(freedom, -abs(statistic))),
        pairs,
    )


POWER = 0.8
"""How likely a difference that is called detectable would be found."""


def detectable_difference(differences: Sequence[float], *, test_to_train: float) -> float | None:
    r"""The smallest difference that these pairs would have found with a probability of 80 %.

    It is :math:`t_{0.975} + t_{0.8}` standard errors, corrected as in :func:`mean_interval`,
    with quantiles of Student's distribution, before any correction for several tests.

    Example:
        >>> round(detectable_difference([0.01, 0.03, 0.02, 0.0, 0.04], test_to_train=1 / 3), 3)
        0.043
    """
    spread = standard_deviation(differences)
    if spread is None or _is_noise(spread, differences):
        return None
    return _quantiles(len(differences)) * spread * math.sqrt(1 / len(differences) + test_to_train)


def pairs_needed(differences: Sequence[float], *, test_to_train: float) -> float | None:
    """How many pairs would find a difference as large as this with a probability of 80 %.

    Infinite where no number would: the training sets of folds overlap, so that the error of the
    mean difference does not fall below a floor, whatever the number of repeats.

    Example:
        >>> pairs_needed([0.01, 0.03, 0.02, 0.0, 0.04], test_to_train=0.0)
        8.0
        >>> pairs_needed([0.01, 0.03, -0.02, 0.0, 0.0], test_to_train=1 / 3)
        inf
    """
    spread = standard_deviation(differences)
    if spread is None or _is_noise(spread, differences):
        return None
    wanted = abs(math.fsum(differences) / len(differences)) / spread
    for pairs in (*range(2, 100), *range(100, 10_000, 10)):
        if wanted >= _quantiles(pairs) * math.sqrt(1 / pairs + test_to_train):
            return float(pairs)
    # For so many pairs Student's distribution is the normal one.
    rest = (wanted / _quantiles(10_000)) ** 2 - test_to_train
    return float(math.ceil(1 / rest)) if rest > 0 else math.inf


@lru_cache(maxsize=2048)
def _quantiles(pairs: int) -> float:
    return float(stdtrit(pairs - 1, 0.975) + stdtrit(pairs - 1, POWER))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    r"""Holm's step-down correction for several tests.

    Rejecting where the result is at most :math:`\alpha` keeps the probability of any false
    rejection at most :math:`\alpha`. Tests without a p-value are not counted and stay without.

    Args:
        p_values: One p-value per test, ``[tests]``.

    Returns:
        The corrected p-values in the same order, each at most 1 and in the order of the p-values.

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


def effect_size(differences: Sequence[float]) -> float | None:
    r"""Size of an effect: the mean difference in standard deviations of the differences.

    It is Cohen's d for pairs with Hedges' correction for small samples,

    .. math::
        g = J(n - 1)\, \frac{\bar d}{s_d}, \qquad
        J(m) = \frac{\Gamma(m / 2)}{\sqrt{m / 2}\; \Gamma((m - 1) / 2)}
        \approx 1 - \frac{3}{4 m - 1},

    without which few pairs exaggerate it: :math:`J(4) = 0.80`. Beside the p-value, which falls as
    folds are added, it says how large a difference is against how much it varies from fold to fold.

    Args:
        differences: One difference per fold, ``[pairs]``.

    Returns:
        The effect size, or ``None`` when there are fewer than three pairs (:math:`J(1) = 0`) or the
        differences do not vary.

    Example:
        >>> round(effect_size([1.0, 2.0, 3.0, 4.0, 5.0]), 3)  # 0.798 * 3 / 1.581
        1.514
    """
    spread = standard_deviation(differences)
    if spread is None or len(differences) < 3 or _is_noise(spread, differences):
        return None
    freedom = len(differences) - 1
    correction = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2))
    return correction / math.sqrt(freedom / 2) * math.fsum(differences) / len(differences) / spread


EXACT_PAIRS = 25
"""Up to this many pairs the signed-rank test counts every assignment of signs."""


def wilcoxon(differences: Sequence[float]) -> float | None:
    r"""Wilcoxon's signed-rank test of paired differences, two-sided.

    Differences of zero are dropped, the absolute values of the others ranked (ties share the mean
    of their ranks), and the ranks of the positive ones summed to :math:`W`. Up to 25 pairs the
    p-value is exact, ties or not: the share of the :math:`2^n` assignments of signs whose
    :math:`W` is as far from its mean. Beyond, :math:`W` is taken as normal with mean
    :math:`n (n + 1) / 4` and variance
    :math:`n (n + 1) (2 n + 1) / 24 - \sum (t^3 - t) / 48` over ties of :math:`t` values.

    Five pairs have a smallest p-value of :math:`2 / 2^5 = 0.0625`: they cannot be significant.

    Args:
        differences: One difference per data set, ``[pairs]``.

    Returns:
        The p-value, or ``None`` when no difference is other than zero.

    Example:
        >>> wilcoxon([1.0, 2.0, 3.0, 4.0, 5.0])
        0.0625
        >>> wilcoxon([1.0, -1.0, 0.0])
        1.0
    """
    largest = max((abs(value) for value in differences), default=0.0)
    if largest == 0:
        return None
    # Rounded: 0.7 - 0.6 and 0.6 - 0.5 are meant to tie.
    scaled = [round(value / largest, 12) for value in differences]
    signed = [value for value in scaled if value]
    # Twice the rank is a whole number even where ties share one.
    doubled = [round(2 * rank) for rank in _ranks([abs(value) for value in signed])]
    positive = sum(rank for rank, value in zip(doubled, signed, strict=True) if value > 0)
    total = sum(doubled)
    pairs = len(signed)
    if pairs <= EXACT_PAIRS:
        ways = Counter({0: 1})
        for rank in doubled:
            ways += Counter({count + rank: number for count, number in ways.items()})
        extreme = min(positive, total - positive)
        as_extreme = sum(number for count, number in ways.items() if count <= extreme)
        return min(1.0, math.ldexp(as_extreme, 1 - pairs))
    ties = Counter(doubled).values()
    variance = pairs * (pairs + 1) * (2 * pairs + 1) / 24 - sum(t**3 - t for t in ties) / 48
    distance = abs(positive - total / 2) / 2 / math.sqrt(variance)
    return 2 * float(ndtr(-distance))


def average_ranks(scores: Sequence[Sequence[float]]) -> list[float]:
    """Mean rank of each method over blocks (data sets); rank 1 is the highest score.

    Args:
        scores: Scores of the same methods in every block, ``[blocks, methods]``; higher is better.
            Ties share the mean of their ranks.

    Returns:
        The mean ranks, ``[methods]``.

    Example:
        >>> average_ranks([[0.9, 0.8, 0.8], [0.7, 0.9, 0.5]])
        [1.5, 1.75, 2.75]
    """
    table = _block_ranks(scores)
    return [math.fsum(column) / len(table) for column in zip(*table, strict=True)]


def friedman(scores: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    r"""Friedman's test of whether methods differ at all, in the form of Iman and Davenport (1980).

    With :math:`N` blocks, :math:`k` methods and :math:`r_{ij}` the rank of method :math:`j` in
    block :math:`i`,

    .. math::
        \chi^2_F = \frac{(k - 1) \sum_j \bigl(\sum_i r_{ij} - N \frac{k + 1}{2}\bigr)^2}
                      {\sum_{ij} r_{ij}^2 - N k (k + 1)^2 / 4}, \qquad
        F_F = \frac{(N - 1) \chi^2_F}{N (k - 1) - \chi^2_F},

    where the denominator of :math:`\chi^2_F` corrects for ties. :math:`F_F` is referred to the F
    distribution with :math:`k - 1` and :math:`(k - 1)(N - 1)` degrees of freedom; Friedman's own
    :math:`\chi^2` is too cautious. When all blocks rank the methods alike, :math:`F_F` is infinite
    and the p-value the chance of that, :math:`(1 / k!)^{N - 1}`.

    Args:
        scores: Scores of the same methods in every block, ``[blocks, methods]``; at least two of
            each.

    Returns:
        :math:`F_F` and its p-value, or ``None`` when all methods tie in every block.

    Example:
        >>> statistic, p_value = friedman([[3, 2, 1], [3, 2, 1], [3, 1, 2], [2, 3, 1]])
        >>> round(statistic, 3), round(p_value, 3)
        (3.857, 0.084)
    """
    table = _block_ranks(scores)
    blocks, methods = len(table), len(table[0])
    if blocks < 2 or methods < 2:
        raise GraphTransplantError(
            f"`scores` must have at least two blocks and two methods, got {blocks} and {methods}"
        )
    centre = (methods + 1) / 2
    within = math.fsum((rank - centre) ** 2 for row in table for rank in row)
    if within == 0:
        return None
    between = math.fsum((sum(column) - blocks * centre) ** 2 for column in zip(*table, strict=True))
    chi_square = (methods - 1) * between / within
    rest = blocks * (methods - 1) - chi_square
    if rest <= 1e-9:
        return math.inf, math.factorial(methods) ** (1.0 - blocks)
    statistic = (blocks - 1) * chi_square / rest
    freedom = methods - 1
    return statistic, float(fdtrc(freedom, freedom * (blocks - 1), statistic))


def critical_difference(methods: int, blocks: int, level: float = 0.05) -> float:
    r"""Nemenyi's critical difference: mean ranks at least this far apart differ significantly.

    It is :math:`q_\alpha \sqrt{k (k + 1) / (6 N)}` for :math:`k` methods and :math:`N` blocks, with
    :math:`q_\alpha` the quantile of the studentised range of :math:`k` values with infinitely many
    degrees of freedom, divided by :math:`\sqrt 2` (Demšar, 2006).

    Args:
        methods: Number of methods, at least 2.
        blocks: Number of blocks (data sets), at least 2.
        level: Probability of calling any two equal methods different.

    Returns:
        The critical difference.

    Example:
        >>> round(critical_difference(4, 14), 2)
        1.25
    """
    for name, value in (("methods", methods), ("blocks", blocks)):
        if value < 2:
            raise GraphTransplantError(f"`{name}` must be at least 2, got {value}")
    if not 0 < level < 1:
        raise GraphTransplantError(f"`level` must be between 0 and 1, got {level}")
    # Imported late: scipy.stats takes longer to import than everything else here.
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(1 - level, methods, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(methods * (methods + 1) / (6 * blocks))


def _ranks(values: Sequence[float]) -> list[float]:
    """Rank values from 1, the smallest first; ties share the mean of their ranks."""
    order = sorted(range(len(values)), key=lambda number: values[number])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for number in order[start:end]:
            ranks[number] = (start + 1 + end) / 2
        start = end
    return ranks


def _block_ranks(scores: Sequence[Sequence[float]]) -> list[list[float]]:
    if not scores or not scores[0] or any(len(row) != len(scores[0]) for row in scores):
        lengths = ", ".join(str(len(row)) for row in scores) or "no blocks"
        raise GraphTransplantError(
            f"`scores` must have the same methods in every block, got {lengths}"
        )
    # Rounded: means that differ by a rounding error tie.
    return [_ranks([-round(value, 12) for value in row]) for row in scores]


def _is_noise(spread: float, values: Sequence[float]) -> bool:
    """Tell whether a spread is nothing but rounding errors: its ratios would mean nothing."""
    return spread <= 1e-12 * max(1.0, abs(math.fsum(values) / len(values)))
