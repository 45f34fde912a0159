"""Statistics of cross-validated comparisons.

Scores of different folds are not independent: their training sets overlap. The plain paired t-test
then finds differences that are not there, so differences are judged by the corrected resampled
t-test of Nadeau and Bengio (2003), and several methods at once by Holm's step-down correction.

A number that is not defined (one trial has no spread) is ``None``, never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtr, stdtrit

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
    # Equal differences leave a spread of rounding errors, whose p-value would mean nothing.
    if spread is None or spread <= 1e-12 * max(1.0, abs(difference)):
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
