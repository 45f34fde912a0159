"""The finding of a comparison, as data; :mod:`graph_transplant.results.sentences` words it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from graph_transplant.config.compare import FOLD_SPLITS, CompareConfig
from graph_transplant.methods import MAJORITY, method_of
from graph_transplant.results import sentences
from graph_transplant.results.statistics import Paired, pairs_needed

if TYPE_CHECKING:
    from graph_transplant.results.groups import Group, GroupResults

SIGNIFICANT = 0.05
"""Significance level of corrected p-values."""

EQUAL_WITHIN = CompareConfig.equal_within
"""Methods are practically equal if the interval of their difference lies within this."""

FEW_PAIRS = 5
"""With fewer pairs, a verdict is preliminary."""

NEAR_MAJORITY = 0.02
"""Scores that exceed those of a constant prediction by less than this are noted."""

FOLDS = (5, 10)
"""Numbers of folds that may be advised."""

LEAST_TESTED = 10
"""Fewest graphs in a test fold that may be advised."""

MOST_TRAININGS = 100
"""Most trainings of a method that may be advised."""

Row = dict[str, Any]
Family = Literal["gains", "baseline", "baselines", "controls", "floor"]


def finding(test: Paired, p_holm: float | None, equal_within: float) -> str:
    """Classify a test as better, worse, equal or unclear; empty if nothing was tested."""
    if test.difference is None or test.ci_low is None or test.ci_high is None or p_holm is None:
        return ""
    if -equal_within <= test.ci_low and test.ci_high <= equal_within:
        return "equal"
    if p_holm < SIGNIFICANT:
        return "better" if test.difference > 0 else "worse"
    return "unclear"


@dataclass(frozen=True)
class Finding:
    """A difference between two methods: ``method`` minus ``other``.

    ``kind`` is better, worse, equal, unclear, or empty if it could not be tested. ``p`` is
    corrected for the ``tests`` of a ``family``. What ``failed`` has no score on some folds.
    """

    kind: str
    method: str
    other: str
    difference: float
    low: float | None
    high: float | None
    p: float | None
    p_alone: float | None
    pairs: int
    tests: int
    family: Family
    failed: bool = False

    @property
    def in_sign(self) -> bool:
        """Whether it would be significant if it were the only test."""
        return self.p_alone is not None and self.p_alone < SIGNIFICANT


@dataclass(frozen=True)
class Floor:
    """The score of a constant prediction, and how far the best of the methods is above it."""

    words: str
    score: float
    above: Finding
    methods: int


@dataclass(frozen=True)
class Remedy:
    """What would settle an open finding: ``runs``, ``repeats``, ``folds`` or ``graphs``.

    ``graphs`` is the number of times as many. Empty if nothing can be said.
    """

    kind: Literal["runs", "repeats", "folds", "graphs", ""]
    finding: Finding
    detectable: float
    folds: int = 0
    repeats: int = 0
    graphs: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """Finding of a comparison about one group of methods.

    Attributes:
        kind: ``"better"`` if a method beats the reference, ``"worse"`` if one is worse and none
            better, ``"equal"`` if all are practically equal to it, ``"none"`` if that is unclear,
            ``"open"`` if no network was tested against it.
        best: The method that beats the reference, if any.
        winner: The best baseline if it is ahead of every network and they are not
            practically equal; otherwise ``best``.
        compared: Whether there is a reference and another method.
        gains: The findings against the reference that decide.
        equal: The methods that are practically equal to the reference, if all are.
        others: Number of methods that were compared with the reference.
        controls: Differences between the best method and controls that it is not shown to beat.
        baseline: A network against the best baseline: one that beats it, or the best of the
            ``networks``.
        baseline_gain: That baseline against the reference.
        floor: Set if no method is shown to be better than a constant prediction.
        remedy: What would settle an open finding.
    """

    kind: Literal["better", "worse", "equal", "none", "open"]
    group: Group
    reference: str
    rows: tuple[Row, ...] = field(repr=False)  # the networks that are judged, best first
    why: Literal["", "alone", "no reference", "no pairs", "no spread"] = ""
    best: str | None = None
    winner: str | None = None
    compared: bool = True
    gains: tuple[Finding, ...] = ()
    equal: tuple[Finding, ...] = ()
    others: int = 0
    controls: tuple[Finding, ...] = ()
    baseline: Finding | None = None
    baseline_gain: Finding | None = None
    baseline_row: Row | None = field(default=None, repr=False)
    networks: int = 0
    floor: Floor | None = None
    remedy: Remedy | None = None

    @property
    def metric(self) -> str:
        """The metric that decides."""
        name: str = self.rows[0]["metric"]
        return name

    @property
    def told(self) -> list[Finding]:
        """The findings that the verdict rests on."""
        above = self.floor.above if self.floor else None
        found = [above, *self.gains, *self.controls, self.baseline]
        if self.baseline_leads:
            found.append(self.baseline_gain)
        return [one for one in found if one is not None]

    @property
    def baseline_leads(self) -> bool:
        """Whether the best baseline beats the reference, and no network beats it."""
        gain, top = self.baseline_gain, self.baseline
        return bool(gain and top and gain.kind == "better" and top.kind != "better")

    @property
    def preliminary(self) -> bool:
        """Whether it rests on few folds."""
        return any(one.pairs < FEW_PAIRS for one in self.told)

    @property
    def best_is_control(self) -> bool:
        """Whether the best method is a control of Graph Transplant."""
        return self.best is not None and bool(method_of(self.best).controls)

    @property
    def repeats(self) -> int | None:
        """Number of repeats that would settle it, with the same folds."""
        one = self.remedy
        return one.repeats if one and one.kind in ("runs", "repeats") else None

    @property
    def headline(self) -> str:
        """The finding in a few words."""
        return sentences.headline(self)

    @property
    def evidence(self) -> str:
        """The numbers behind the finding."""
        return sentences.evidence(self)

    @property
    def next(self) -> str:
        """What would settle it, in words; empty if it is settled."""
        return sentences.remedy(self)

    @property
    def advice(self) -> tuple[str, str]:
        """What to use, and the method to train for it; both may be empty."""
        return sentences.advice(self)

    @property
    def sentence(self) -> str:
        """The finding with its evidence."""
        return f"{self.headline}. {self.evidence}"


def judge(part: GroupResults) -> Verdict:
    """Return the finding of one group about the methods that are judged.

    A method beats the reference only if the p-value after Holm's correction is below 0.05 and the
    two are not practically equal. The correction is over every row: what was tested counts, also
    if a later command no longer asks for it.
    """
    rows = [row for row in part.rows if row["method"] in part.judged]
    reference = part.reference
    networks = [r for r in rows if method_of(r["method"]).network or r["method"] == reference]
    verdict = Verdict("open", part.group, reference, tuple(networks or rows))
    tests = sum(method_of(r["method"]).network and r["p_value"] is not None for r in part.rows)
    verdict = _against_reference(verdict, part, tests)
    verdict = replace(verdict, controls=_controls(verdict, part))
    verdict = _beside_baseline(verdict, part, rows)
    floor = _floor(part, rows)
    if floor is not None and (verdict.kind != "better" or floor.above.difference < NEAR_MAJORITY):
        verdict = replace(verdict, floor=floor)
    return verdict


def _finding(row: Row, method: str, other: str, tests: int, family: Family) -> Finding:
    return Finding(
        kind=row["finding"],
        method=method,
        other=other,
        difference=row["difference"],
        low=row["ci_low"],
        high=row["ci_high"],
        p=row["p_holm"],
        p_alone=row["p_value"],
        pairs=row["pairs"],
        tests=tests,
        family=family,
        failed=row.get("score_mean", 0.0) is None,
    )


def _against_reference(verdict: Verdict, part: GroupResults, tests: int) -> Verdict:
    rows, reference = verdict.rows, verdict.reference
    if len(rows) == 1 or reference not in [row["method"] for row in rows]:
        alone = rows[0]["method"] == reference
        return replace(verdict, why="alone" if alone else "no reference", compared=False)
    gains = [
        _finding(row, row["method"], reference, tests, "gains")
        for row in rows
        if row["difference"] is not None
    ]
    if not gains:
        return replace(verdict, why="no pairs")
    verdict = replace(verdict, others=len(gains))
    largest = max(gains, key=lambda one: abs(one.difference))
    better, worse, equal, unclear = (
        [one for one in gains if one.kind == kind]
        for kind in ("better", "worse", "equal", "unclear")
    )
    if not (better or worse or equal or unclear):
        return replace(verdict, why="no spread", gains=(largest,))
    if better:
        best = max(better, key=lambda one: one.difference).method
        told = (*better, *worse)
        return replace(verdict, kind="better", gains=told, best=best, winner=best)
    if not worse and not unclear:
        same = tuple(one for one in equal if one != largest)
        return replace(verdict, kind="equal", gains=(largest,), equal=(largest, *same))
    # A method without a mean failed on some folds, whatever its p-value on the others.
    failed = [one for one in unclear if (one.p or 0.0) < SIGNIFICANT]
    told = (*worse, *failed)
    hopeful = [one for one in unclear if one not in failed and (not told or one.difference > 0)]
    verdict = replace(verdict, kind="worse" if worse else "none", gains=told)
    if hopeful:
        closest = min(hopeful, key=lambda one: one.p_alone or 0.0)  # to a finding
        verdict = replace(verdict, gains=(*told, closest), remedy=_remedy(closest, part, rows))
    return verdict


def _remedy(found: Finding, part: GroupResults, rows: Sequence[Row]) -> Remedy:
    """Find what would settle a finding with 80 % power in the fewest trainings."""
    row = next(row for row in rows if row["method"] == found.method)
    none = Remedy("", found, row["detectable"])
    if not found.difference:
        return none
    folds, done, needed = int(row["folds"]), int(row["repeats"]), row["pairs_needed"]
    repeats = 0 if math.isinf(needed) else max(math.ceil(needed / folds), done + 1)
    if folds == 1 and repeats:
        return replace(none, kind="runs", repeats=repeats)
    options = [(folds * (repeats - done), folds, repeats)] if repeats else []
    if row["split"] in FOLD_SPLITS:
        graphs = sum(part.chosen[0]["sizes"].values())
        spread = row["spread"] or math.inf
        for more in (number for number in FOLDS if folds < number <= graphs / LEAST_TESTED):
            # The spread over folds grows at most by the root of how much smaller they are.
            size = abs(found.difference) / spread * math.sqrt(folds / more)
            pairs = pairs_needed(size, 1 / (more - 2), tests=max(found.tests, 1))
            if not math.isinf(pairs):
                times = math.ceil(pairs / more)
                options.append((more * times, more, times))
    options = [option for option in options if option[0] <= MOST_TRAININGS]
    if not options:
        # Standard errors shrink with the root of the number of graphs.
        return replace(none, kind="graphs", graphs=(row["detectable"] / found.difference) ** 2)
    _, best, repeats = min(options, key=lambda option: option[0])
    return replace(none, kind="repeats" if best == folds else "folds", folds=best, repeats=repeats)


def _tested(part: GroupResults, pairs: Sequence[tuple[str, str]], family: Family) -> list[Finding]:
    """Test pairs of methods, with Holm's correction over all of them."""
    tests = part.tested(pairs)
    tested = sum(test["p_value"] is not None for test in tests)
    return [
        _finding(test, one, two, tested, family)
        for (one, two), test in zip(pairs, tests, strict=True)
    ]


def _controls(verdict: Verdict, part: GroupResults) -> tuple[Finding, ...]:
    """What the best method is not shown to beat of the controls; of a control, Graph Transplant."""
    best = verdict.best
    others = [row["method"] for row in verdict.rows if row["finding"] and row["method"] != best]
    if best is None:
        return ()
    if verdict.best_is_control:
        pairs = [(best, name) for name in others if method_of(name).role == "method"][:1]
    else:
        pairs = [(best, name) for name in others if method_of(name).controls]
    found = _tested(part, pairs, "controls")
    return tuple(
        one for one in found if one.kind and (verdict.best_is_control or one.kind != "better")
    )


def _beside_baseline(verdict: Verdict, part: GroupResults, rows: Sequence[Row]) -> Verdict:
    """Compare the networks with the best baseline.

    All baselines are tested, so that Holm's correction covers the choice of the best.
    """
    reference = verdict.reference
    means = {row["method"]: row["score_mean"] for row in part.rows if row["method"] != MAJORITY}
    baselines = [name for name in means if not method_of(name).network]
    networks = [name for name in means if method_of(name).network]
    rival = next((r for r in rows if r["method"] in baselines), None)
    if rival is None or rival["method"] == reference:
        return verdict
    found = _tested(part, [(name, one) for one in baselines for name in networks], "baselines")
    judged = [row["method"] for row in rows if row["score_mean"] is not None]
    against = [one for one in found if one.other == rival["method"] and one.method in judged]
    if not against or against[0].difference is None:
        return verdict
    gain = None
    if rival["difference"] is not None:
        tests = sum(row["method"] in baselines and row["p_value"] is not None for row in part.rows)
        gain = _finding(rival, rival["method"], reference, tests, "baseline")
    # Means may be over other folds; a tie may leave a rounding error.
    behind = all(round(one.difference or 0.0, 12) < 0 for one in against)
    top = next((one for one in against if one.kind == "better"), against[0])
    return replace(
        verdict,
        baseline=top,
        baseline_gain=gain,
        baseline_row=rival,
        networks=len(against),
        winner=rival["method"] if behind and top.kind in ("worse", "unclear") else verdict.winner,
        compared=verdict.compared or len(against) == 1,
    )


def _floor(part: GroupResults, rows: Sequence[Row]) -> Floor | None:
    """The score of a constant prediction, if no method is shown to be better than that."""
    constant = part.constant
    above = []
    for row in rows if constant else ():
        if row["method"] == MAJORITY or row["score_mean"] is None:
            continue
        assert constant is not None
        test = part.above(row["method"], constant[1])
        known = test.ci_low is not None
        if test.difference is None or (test.ci_low or 0.0) > 0:
            return None
        if not known and test.difference >= NEAR_MAJORITY:
            return None
        tested = {**test._asdict(), "finding": "", "p_holm": test.p_value}
        above.append(_finding(tested, row["method"], constant[0], 1, "floor"))
    if constant is None or not above:
        return None
    best = max(above, key=lambda one: one.difference)
    return Floor(constant[0], float(constant[1].mean()), best, len(above))
