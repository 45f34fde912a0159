"""What the records in results/full say about each difference that the results page names.

A :class:`Claim` is a difference between two methods. The paper's claims are one family of tests,
the controls two (as they are and attacked), and every list of comparisons in a sentence is one:
p-values are corrected by Holm within the family.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd

import graph_transplant as gt
from graph_transplant.methods import METHODS
from graph_transplant.results.statistics import Paired, holm, paired_test
from graph_transplant.results.verdict import EQUAL_WITHIN, SIGNIFICANT
from reproduction.evidence import BASELINES, MOLECULES, QUEUE
from reproduction.published import published

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "results" / "full"
KEYS = ["repeat", "fold"]
LEAST = 5  # folds; fewer test nothing
TEST_TO_TRAIN = 1 / 3  # of five folds one tests and one validates
ECE = ("ece", "scaled")  # measures that are calibration errors: not in points, lower is better
ATTACK = 0.2  # share of the mean number of edges in the paper's Table 3
ATTACKS = {"attacked": "as_stated", "stronger": "accuracy"}  # columns of attacked accuracies

# A directory named like its data set has the paper's network and protocol.
MAIN = tuple(
    dict.fromkeys(
        run.directory for run in QUEUE if run.directory in (run.data, *MOLECULES)
    )
)  # fmt: skip

# Directories with the same folds of the same graphs.
SAME_FOLDS = (
    ("ENZYMES", "ENZYMES-strong", "ENZYMES-classical"),
    ("NCI1", "NCI1-strong"),
    ("BACE-strong",),
)

WORDS = {
    "transplant-dp": "DP",
    "transplant-ep": "EP",
    "transplant-disconnected": "no new edges",
    "transplant-size-label": "labels by size",
    "transplant-scattered": "scattered nodes",
    "transplant-random": "random anchors",
}


@dataclass(frozen=True)
class Claim:
    """A method differs from another in a measure, on the data set of a directory."""

    kind: str
    data: str
    method: str
    other: str = "vanilla"
    measure: str = "accuracy"
    experiment: str = ""  # of the paper
    model: str = "gcs"
    sign: int = 1  # what the paper says where it gives a chart without numbers
    elsewhere: str = ""  # the directory of `other`, if it is another one

    @property
    def title(self) -> str:
        """What is claimed, in short."""
        network = self.model.upper() if self.model != "gcs" else ""
        method = WORDS.get(self.method, self.method)
        return ", ".join(part for part in (self.kind, method, network) if part)

    @property
    def directory(self) -> str:
        """Where the records are."""
        return self.data if self.model == "gcs" else f"{self.data}-{self.model}"

    @property
    def published(self) -> float | None:
        """The published difference."""
        both = [
            published(self.experiment, self.data, self.model, name)
            for name in (self.method, self.other)
        ]
        means = [None if one is None else one.mean for one in both]
        return None if means[0] is None or means[1] is None else means[0] - means[1]

    @property
    def expected(self) -> int:
        """The published sign."""
        gap = self.published
        return self.sign if gap is None else (1 if gap > 0 else -1)

    @property
    def scores(self) -> tuple[pd.Series, pd.Series]:
        """Both methods' scores."""
        return (
            scores(self.directory, self.method, self.measure),
            scores(self.elsewhere or self.directory, self.other, self.measure),
        )

    @property
    def planned(self) -> int:
        """Folds that both methods have when the queue is through."""
        folds = [
            {trial[-2:] for run in QUEUE if run.directory == where for trial in run.trials
             if trial[0] == name}
            for where, name in (
                (self.directory, self.method), (self.elsewhere or self.directory, self.other)
            )
        ]  # fmt: skip
        return len(folds[0] & folds[1])


@dataclass(frozen=True)
class Finding:
    """A claim with its test, and the p-value corrected for the number of tests in its family."""

    claim: Claim
    test: Paired
    p_holm: float | None

    @property
    def significant(self) -> bool:
        """After correction."""
        return self.p_holm is not None and self.p_holm < SIGNIFICANT

    @property
    def in_sign(self) -> bool:
        """Whether the difference has the expected sign."""
        return (self.test.difference or 0.0) * self.claim.expected > 0

    @property
    def verdict(self) -> str:
        """What became of a claim of the paper."""
        if self.in_sign:
            return "reproduced" if self.significant else "in sign"
        return "contradicted" if self.significant else "other sign"

    @property
    def word(self) -> str:
        """What is known about a difference for which nothing was published."""
        low, high, p = self.test.ci_low, self.test.ci_high, self.test.p_value
        if self.significant:
            return "significant"
        if self.claim.measure not in ECE and low >= -EQUAL_WITHIN and high <= EQUAL_WITHIN:
            return "practically equal"
        return "not significant after correction" if p < SIGNIFICANT else "not shown"


def family(claims: Iterable[Claim]) -> list[Finding]:
    """Test every claim that has enough folds, and correct for their number."""
    tests = [(claim, compared(*claim.scores)) for claim in claims]
    tests = [
        (claim, test) for claim, test in tests if test.pairs >= LEAST and test.p_value is not None
    ]
    corrected = holm([test.p_value for _, test in tests])
    return [Finding(*pair, p) for pair, p in zip(tests, corrected, strict=True)]


# ------------------------------------------------------------------------------ which claims


def of_paper() -> Iterator[Claim]:
    """Every claim of the paper that the queue of measurements serves."""
    both = ("transplant-dp", "transplant-ep")
    for data in ("COIL-DEL", "ENZYMES", "NCI1", "Mutagenicity", "COLLAB"):
        for method in both:
            yield Claim("accuracy", data, method, experiment="table1")
    for model, experiment, sets in (
        ("gin", "table1", ("ENZYMES", "NCI1", "Mutagenicity")),
        ("gat", "table1", ("ENZYMES",)),
        ("gcn", "gcn", ("ENZYMES",)),
    ):
        for data in sets:
            for method in both:
                yield Claim("accuracy", data, method, experiment=experiment, model=model)
    for data in ("ENZYMES", "Mutagenicity", "COIL-DEL"):
        experiment = "table4-calibration"
        yield Claim("ECE", data, "transplant-ep", measure="ece", experiment=experiment)
    for data in ("ENZYMES", "Mutagenicity", "NCI1"):
        experiment = "table3-robustness"
        yield Claim("attacked", data, "transplant-ep", measure="attacked", experiment=experiment)
    for method in list(WORDS)[2:]:
        yield Claim("ablation", "ENZYMES", method, "transplant-ep", experiment="ablation", sign=-1)


@cache
def claims() -> list[Finding]:
    """The paper's claims: one family."""
    return family(of_paper())


@cache
def controls(measure: str) -> list[Finding]:
    """Graph Transplant against methods that share a part of it: one family per measure."""
    pairs = [
        ("transplant-ep" if name == "saliency-shuffled" else "transplant-dp", name)
        for name, method in METHODS.items()
        if method.controls
    ]
    kind = "attacked" if measure == "attacked" else ""
    experiment = "" if measure == "attacked" else "table1"
    return family(
        Claim(kind or metric(data), data, method, control, measure, experiment)
        for data in MAIN
        for method, control in pairs
    )


@cache
def beside_networks() -> list[Finding]:
    """Methods without a network against the network with the highest mean on the same folds."""
    found = []
    for folders in SAME_FOLDS:
        names = [(folder, name) for folder in folders for name in methods_of(folder)]
        networks = [one for one in names if one[1] not in BASELINES]
        for folder, rival in names:
            if rival in BASELINES and rival != "majority":
                mine = scores(folder, rival, "score").index
                shared = {one: scores(*one, "score").reindex(mine) for one in networks}
                means = {one: s.mean() for one, s in shared.items() if s.notna().all()}
                if means:
                    where, best = max(means, key=means.__getitem__)
                    claim = Claim(metric(folder), folder, rival, best, "score", elsewhere=where)
                    found.append(claim)
    return family(found)


# ------------------------------------------------------------------------------ the records


@cache
def results(directory: str) -> gt.Results | None:
    """The finished trials of a directory, if there are any."""
    folder = RECORDS / directory
    return gt.read_results(folder) if (folder / "records.jsonl").exists() else None


def methods_of(directory: str) -> tuple[str, ...]:
    """The methods that a directory has records of."""
    found = results(directory)
    return tuple(found.methods) if found else ()


def metric(directory: str) -> str:
    """What the score of a data set is, as in a sentence."""
    found = results(directory)
    return {"auroc": "AUROC"}.get(found.metric, found.metric) if found else "accuracy"


@cache
def scores(directory: str, method: str, measure: str, layers: int | None = None) -> pd.Series:
    """A measure of a method by repeat and fold; empty where nothing was measured."""
    trials = results(directory)
    nothing = pd.Series(dtype=float)
    if trials is None:
        return nothing
    frame, column = trials.frame, measure
    if measure in ATTACKS:
        frame, column = trials.long("attacked"), ATTACKS[measure]
        if "budget" not in frame:
            return nothing
        frame = frame[frame["budget"] == ATTACK]
    elif measure == "scaled":
        frame, column = trials.wide("calibrated"), "ece"
    if column not in frame:
        return nothing
    rows = (frame["method"] == method) & (frame["layers"].eq(layers) if layers else True)
    found = frame[rows].set_index(KEYS)[column].dropna()
    if not found.index.is_unique:
        sys.exit(f"{directory}: {method} has several records of one fold")
    return found


def compared(one: pd.Series, two: pd.Series) -> Paired:
    """Corrected resampled t-test over the folds that both have: one tests, one validates."""
    gaps = (one - two).dropna() if len(one) and len(two) else pd.Series(dtype=float)
    return paired_test(gaps.tolist(), test_to_train=TEST_TO_TRAIN)
