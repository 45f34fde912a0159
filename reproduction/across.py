"""Tests across data sets, as prespecified.md has them: one difference per data set.

They are made once, when every difference of a hypothesis is measured; until then only how many are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from graph_transplant.results.statistics import (
    bayesian_signed_rank,
    hodges_lehmann,
    holm,
    wilcoxon,
)
from graph_transplant.results.verdict import EQUAL_WITHIN, SIGNIFICANT
from reproduction.claims import scores

KNOWN = ("ENZYMES", "NCI1", "Mutagenicity", "COIL-DEL")
"""Data sets whose results suggested the hypotheses."""

NEW = ("MUTAG", "PROTEINS", "IMDB-BINARY", "BACE", "ClinTox", "COLLAB")

FIRST_FOLDS = {(0, fold) for fold in range(5)}
LIKELY = 0.95  # probability from which a statement is made
DP, EP, LIGHT = "transplant-dp", "transplant-ep", "transplant-light"


@dataclass(frozen=True)
class Hypothesis:
    """A difference between two methods on several data sets."""

    name: str
    method: str
    other: str
    data: tuple[str, ...]
    measure: str = "score"
    greater: bool = False  # a one-sided test: the method is better
    bayesian: bool = False  # decided by the Bayesian test alone

    @property
    def family(self) -> str:
        """Hypotheses that are corrected together."""
        return self.name[:-1]


_ALL = (*KNOWN, *NEW)
_SMALL = _ALL[:-1]  # neither EP nor label smoothing nor an attack on COLLAB

HYPOTHESES = (
    Hypothesis("1a", DP, "vanilla", _ALL, greater=True),
    Hypothesis("1b", EP, "vanilla", _SMALL, greater=True),
    Hypothesis("2a", DP, "transplant-cut", _ALL),
    Hypothesis("2b", DP, LIGHT, _ALL),
    Hypothesis("2c", DP, "drop-nodes", _ALL),
    Hypothesis("2d", DP, "label-smoothing", _SMALL),
    Hypothesis("3a", EP, "vanilla", NEW[:-1], measure="attacked", greater=True),
    Hypothesis("4a", DP, LIGHT, _ALL, bayesian=True),
)


@dataclass(frozen=True)
class Outcome:
    """The differences of a hypothesis in points, and its tests if all of them are measured.

    ``above``, ``within`` and ``below`` are probabilities that the method is better by more than
    a point, that both are practically equal, and that the other is better.
    """

    hypothesis: Hypothesis
    gaps: dict[str, float]
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    p_holm: float | None = None
    above: float | None = None
    within: float | None = None
    below: float | None = None

    @property
    def finished(self) -> bool:
        """Whether every data set has its difference."""
        return len(self.gaps) == len(self.hypothesis.data)

    @property
    def significant(self) -> bool:
        """Whether Wilcoxon's test is, after correction."""
        return self.p_holm is not None and self.p_holm < SIGNIFICANT


def gap(method: str, other: str, data: str, measure: str = "score") -> float | None:
    """Mean difference in points over the folds that both have; all of repeat 0 must be there."""
    one, two = (scores(data, name, measure) for name in (method, other))
    both = one.index.intersection(two.index)
    if not set(both) >= FIRST_FOLDS:
        return None
    return 100 * float(fmean(one[both] - two[both]))


def measured(hypothesis: Hypothesis) -> dict[str, float]:
    """The differences that are measured, by data set."""
    found = {
        data: gap(hypothesis.method, hypothesis.other, data, hypothesis.measure)
        for data in hypothesis.data
    }
    return {data: value for data, value in found.items() if value is not None}


@cache
def outcomes() -> list[Outcome]:
    """All hypotheses, tested and corrected by family once all differences are measured."""
    gaps = {one.name: measured(one) for one in HYPOTHESES}
    if any(len(gaps[one.name]) < len(one.data) for one in HYPOTHESES):
        return [Outcome(one, gaps[one.name]) for one in HYPOTHESES]
    return tested(gaps)


def tested(gaps: dict[str, dict[str, float]]) -> list[Outcome]:
    """Test hypotheses whose differences are given by name and data set."""
    values = {name: list(found.values()) for name, found in gaps.items()}
    p_values = {
        one.name: None if one.bayesian else wilcoxon(values[one.name], greater=one.greater)
        for one in HYPOTHESES
    }
    corrected: dict[str, float | None] = {}
    for family in dict.fromkeys(one.family for one in HYPOTHESES):
        names = [one.name for one in HYPOTHESES if one.family == family]
        corrected |= dict(zip(names, holm([p_values[name] for name in names]), strict=True))
    return [
        Outcome(
            one,
            gaps[one.name],
            *hodges_lehmann(values[one.name]),
            p_values[one.name],
            corrected[one.name],
            *bayesian_signed_rank(values[one.name], equal_within=100 * EQUAL_WITHIN),
        )
        for one in HYPOTHESES
    ]


def new_alone(outcome: Outcome) -> float | None:
    """The same test on the new data sets alone, for families that known ones suggested."""
    values = [value for data, value in outcome.gaps.items() if data in NEW]
    return wilcoxon(values, greater=outcome.hypothesis.greater)


def rows() -> Iterator[tuple[str, list[float | None]]]:
    """Every data set with its differences, in the order of the hypotheses tested by Wilcoxon."""
    for data in _ALL:
        found = [
            outcome.gaps.get(data) for outcome in outcomes() if not outcome.hypothesis.bayesian
        ]
        if any(value is not None for value in found):
            yield data, found
