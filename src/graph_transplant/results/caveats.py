"""What a reader should know before trusting the numbers: each with a code, a reason, a remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from graph_transplant.config.recipes import RECIPES
from graph_transplant.methods import MAJORITY, method_of
from graph_transplant.metrics import METRICS, TEMPERATURES, no_better_than_random
from graph_transplant.results.record import Condition, Record, Trial, score
from graph_transplant.results.selection import left_out
from graph_transplant.results.statistics import holm
from graph_transplant.results.verdict import NEAR_MAJORITY, SIGNIFICANT, Verdict
from graph_transplant.utils.text import capital, count, listed, number, p_words

if TYPE_CHECKING:
    from graph_transplant.results.groups import GroupResults
    from graph_transplant.results.results import Results

MOST_NAMED = 6
"""Most methods that a caveat names."""

LAST_EPOCHS = 10
"""A best epoch this close to the limit may not be the best."""

CAVEATS: Final[Mapping[str, str]] = {
    "GT001": "Training may be too short: the best epoch is within the last ten, or the last tenth, "
    "of the {epochs} allowed for {methods}; allow more (--epochs).",
    "GT002": "{place} is not finished: {short} of {planned} trials; run the same command again.",
    "GT003": "{place} is not finished: {short} of {planned} trials. Means are over different "
    "folds, differences over common ones; run the same command again.",
    "GT004": "Neither asked for by the last command nor finished, so not part of the verdict: "
    "{methods}; name them in --methods to finish them.",
    "GT005": "{text}",
    "GT006": "{constant} reaches {score}; not clearly above it: {methods}. Differences between "
    "such models say little: check features and target, or train longer.",
    "GT007": "{folds} are few: the intervals are wide, and what is found is preliminary; run at "
    "least five (--folds 5).",
    "GT008": "Calibration gets worse with {method}: ECE {gap} ({p}); calibrate the model you keep.",
    "GT009": "The temperature is at the bound of its fit ({values}) in {methods}: their calibrated "
    "figures depend on the bound and are not comparable; use the uncalibrated ones.",
    "GT010": "Saliency is no better than random for {methods}: removing the most salient nodes, or "
    "keeping only them, changes predictions no more than random nodes do; do not explain with it.",
    "GT011": "Identical copies of {copies} have different targets: no model can be right about all "
    "of them; check the table for repeated measurements.",
    "GT012": "Wrong or fewer labels affect only the training graphs: early stopping and selection "
    "use all validation graphs with their true labels, so that real noise may hurt more.",
    "GT013": "The attack ignores the gradient through the random-walk features of the recipe "
    "{recipes}: stronger attacks may exist; read the accuracies as upper bounds.",
    "GT014": "The test {what} is not finite in: {trials}; look for diverged training.",
}
"""Templates by code; ``docs/statistics.md`` lists them."""


@dataclass(frozen=True)
class Caveat:
    """A caveat: its code, and the values of its template.

    ``where`` names the group it is about if there are several.
    """

    code: str
    values: Mapping[str, str]
    where: str = ""

    @property
    def text(self) -> str:
        """The caveat in a sentence, with its code."""
        text = CAVEATS[self.code].format(**self.values)
        return f"{self.where}: {text} [{self.code}]" if self.where else f"{text} [{self.code}]"


def find_caveats(results: Results) -> Iterator[Caveat]:
    """What a reader should know before trusting the numbers."""
    yield from _short_training(results.records)
    yield from _unfinished(results)
    yield from _left_over(results)
    for text in left_out(results.records, results.selection):
        yield Caveat("GT005", {"text": text})
    for group, part in results.groups.items():
        where = f"{group.data}, {group.title}" if len(results.groups) > 1 else ""
        yield from _near_constant(part, where)
        yield from _few_folds(part.verdict, where)
        yield from _worse_calibration(part, where)
        yield from _useless_saliency(part, where)
    yield from _bounded_temperature(results.records)
    if results.contradictory:
        yield Caveat("GT011", {"copies": count(results.contradictory, "graph")})
    yield from _about_trials(results.records)


def _short_training(records: Sequence[Record]) -> Iterator[Caveat]:
    # Other recipes end with a cosine schedule, which is best towards its end.
    late: Counter[str] = Counter()
    trained: Counter[str] = Counter()
    epochs = set()
    for record in records:
        settings = record["settings"]
        if not record.get("epochs") or settings.get("recipe", "paper") != "paper":
            continue
        allowed, best = settings["epochs"], record["best_epoch"]
        trained[record["method"]] += 1
        if record["epochs"] >= allowed and best > min(0.9 * allowed, allowed - LAST_EPOCHS):
            late[record["method"]] += 1
            epochs.add(allowed)
    methods = _shares(
        {name: (n, trained[name]) for name, n in late.items() if 2 * n > trained[name]}
    )
    if methods:
        yield Caveat("GT001", {"epochs": count(max(epochs), "epoch"), "methods": methods})


def _shares(trials: Mapping[str, tuple[int, int]]) -> str:
    """List the methods with the largest shares of their trials."""
    order = sorted(trials.items(), key=lambda item: (-item[1][0] / item[1][1], item[0]))
    texts = [f"{name} ({some} of {count(of, 'trial')})" for name, (some, of) in order]
    rest = len(texts) - MOST_NAMED
    return listed([*texts[:MOST_NAMED], count(rest, "other method")] if rest > 0 else texts or [""])


def _unfinished(results: Results) -> Iterator[Caveat]:
    for group, part in results.groups.items():
        planned = part.planned
        trials = Counter(r["method"] for r in part.chosen if r["method"] in part.judged)
        short = [f"{name} has {number}" for name, number in trials.items() if number < planned]
        if short:
            words = group.condition.words
            place = f"{group.network or group.data}{f' ({words})' if words else ''}"
            values = {"place": place, "short": ", ".join(short), "planned": str(planned)}
            yield Caveat("GT003" if len(set(trials.values())) > 1 else "GT002", values)


def _left_over(results: Results) -> Iterator[Caveat]:
    trials: Counter[str] = Counter()
    for part in results.groups.values():
        judged = part.judged
        trials.update(r["method"] for r in part.chosen if r["method"] not in judged)
    if trials:
        methods = [f"{name} ({count(number, 'trial')})" for name, number in trials.items()]
        yield Caveat("GT004", {"methods": listed(methods)})


def _near_constant(part: GroupResults, where: str) -> Iterator[Caveat]:
    if part.constant is None:
        return
    words, scores = part.constant
    floor = float(scores.mean())
    means = part.frame.groupby("method")["score"].mean().drop(MAJORITY, errors="ignore")
    near = sorted(str(name) for name, mean in means.items() if mean < floor + NEAR_MAJORITY)
    if near:
        score = METRICS[part.metric].score(floor, unit=True)
        values = {"constant": capital(words), "score": score, "methods": listed(near)}
        yield Caveat("GT006", values, where)


def _few_folds(verdict: Verdict, where: str) -> Iterator[Caveat]:
    folds = int(verdict.rows[0]["folds"])
    if verdict.preliminary and folds > 1:
        pairs = min(one.pairs for one in verdict.told)
        yield Caveat("GT007", {"folds": count(pairs, "fold")}, where)


def _worse_calibration(part: GroupResults, where: str) -> Iterator[Caveat]:
    names = [n for n in part.methods if n != part.reference and method_of(n).network]
    tests = [part.paired(name, part.reference, "ece") for name in names]
    corrected = holm([test.p_value for test in tests])
    for name, test, p in zip(names, tests, corrected, strict=True):
        if p is not None and p < SIGNIFICANT and (test.difference or 0) > 0:
            after = " after Holm" if len(names) > 1 else ""
            gap = number(test.difference, sign=True)
            values = {"method": name, "gap": gap, "p": f"{p_words(p)}{after}"}
            yield Caveat("GT008", values, where)


def _useless_saliency(part: GroupResults, where: str) -> Iterator[Caveat]:
    means = part.wide("saliency").groupby("method").mean(numeric_only=True)
    useless = [str(name) for name, row in means.iterrows() if no_better_than_random(row)]
    if useless:
        yield Caveat("GT010", {"methods": listed(useless)}, where)


def _bounded_temperature(records: Sequence[Record]) -> Iterator[Caveat]:
    found: dict[str, list[float]] = {}
    for record in records:
        temperature = (record.get("calibrated") or {}).get("temperature")
        if temperature is not None:
            found.setdefault(record["method"], []).append(temperature)
    at_bound = {
        name: [value for value in values if not TEMPERATURES[0] < value < TEMPERATURES[1]]
        for name, values in found.items()
    }
    methods = {n: (len(own), len(found[n])) for n, own in at_bound.items() if own}
    if methods:
        bounds = {f"{value:g}" for values in at_bound.values() for value in values}
        yield Caveat("GT009", {"values": listed(sorted(bounds)), "methods": _shares(methods)})


def _about_trials(records: Sequence[Record]) -> Iterator[Caveat]:
    if any(Condition.of(record) != Condition() for record in records):
        yield Caveat("GT012", {})
    recipes = {one["settings"].get("recipe", "paper") for one in records if one.get("attacked")}
    blind = sorted(name for name in recipes if name in RECIPES and RECIPES[name].walk)
    if blind:
        yield Caveat("GT013", {"recipes": listed(blind)})
    for what, lost in (
        ("score", [record for record in records if score(record) is None]),
        ("NLL", [record for record in records if record["test"].get("nll", 0.0) is None]),
    ):
        if lost:
            trials = "; ".join(str(Trial.of_record(record)) for record in lost)
            yield Caveat("GT014", {"what": what, "trials": trials})
