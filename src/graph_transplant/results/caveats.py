"""What a reader should know before trusting the numbers: each with a code, a reason, a remedy.

Codes from ``GT001`` are about comparisons, found here; codes from ``GT101`` about a trained model,
found by :mod:`graph_transplant.report.card_findings`.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from graph_transplant.config.recipes import RECIPES
from graph_transplant.errors import check_choice
from graph_transplant.methods import MAJORITY, method_of
from graph_transplant.metrics import METRICS, TEMPERATURES, no_better_than_random
from graph_transplant.results.record import Condition, Record, Trial, score
from graph_transplant.results.selection import left_out
from graph_transplant.results.statistics import holm
from graph_transplant.results.verdict import NEAR_MAJORITY, SIGNIFICANT, Verdict
from graph_transplant.utils.files import SKIPPED
from graph_transplant.utils.text import capital, count, listed, number, p_words

if TYPE_CHECKING:
    from graph_transplant.results.groups import GroupResults
    from graph_transplant.results.results import Results

MOST_NAMED = 6
"""Most methods that a caveat names."""

LAST_EPOCHS = 10
"""A best epoch this close to the limit may not be the best."""

_FOREST = (
    "a random forest on {features} of the same training {noun}, which takes {takes}: {metric} "
    "{value} and {rival}, difference {gain}"
)
_INTERVAL = " (95 % interval {low} to {high})."

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
    "GT015": "{rows} of the data could not be used; {file} lists them.",
    "GT101": "It is not shown to be better than {constant}, which has {metric} {guess}: the "
    "interval goes down to {low}. Train for more epochs, or on more or other data.",
    "GT102": f"It is worse than {_FOREST}{_INTERVAL} Use the forest, or try other options of the "
    "network.",
    "GT102, unclear": f"It is not shown to be better than {_FOREST}{_INTERVAL} A comparison of "
    "both over several folds would tell more.",
    "GT102, better": f"It is better than {_FOREST}{_INTERVAL}",
    "GT102, no interval": f"Compared with {_FOREST}.",  # older models
    "GT102, no forest": "{text}",
    "GT103": "Only {tested} for testing: the figures are rough, see their intervals. The folds of "
    "a comparison test on all.",
    "GT104": "Only {held} for validation, so the best epoch and the calibration owe much to "
    "chance: a larger share (--validation 0.2) or more data would help.",
    "GT105": "The best epoch, {best} of {limit}, is at the limit, so training had not ended: more "
    "epochs (--epochs {more}) may give a better model.",
    "GT106": "It does worse on the test {noun} than on the validation ones: {metric} {test} "
    "instead of {validation}. On new ones expect the lower value, or less.",
    "GT107": "Its temperature, {temperature}, is the {bound} allowed, owing to {reason} on the "
    "validation {noun}: do not rely on its probabilities, or hold out more for validation "
    "(--validation 0.2).",
    "GT108": "Calibration made the calibration error on the test {noun} worse: {before} → {after}.",
    "GT108, changed": "Calibration changed the calibration error on the test {noun} from {before} "
    "to {after}.",
    "GT109": "{accuracy} of its predictions are right; always predicting {constant} would be right "
    "in {largest} of the test {noun}.",
    "GT110": "Prediction sets, of {size} classes on average, should contain the class of {aim} of "
    "new {noun}; on the test part it was {held}.",
    "GT110, multilabel": "Prediction sets should be right about each label for {aim} of new "
    "{noun}; on the test part it was {held}.",
    "GT110, regression": "Intervals should contain the value of {aim} of new {noun}; on the test "
    "part it was {held}.",
    "GT110, split": "That share of sets or intervals holds only for {noun} like the validation "
    "ones, which the test {noun} of this split ({split}) are not.",
    "GT111": "Where its members disagree most (column spread) expect errors: of that quarter of "
    "the test {noun} {errors}.",
    "GT111, unclear": "Where its members disagree most (column spread) there were not clearly more "
    "errors: of that quarter of the test {noun} {errors}.",
    "GT112": "Trust predictions with a low similarity less: of {graphs} test {noun} unlike the "
    "training ones (similarity below {threshold}{where}) {errors}.",
    "GT112, unclear": "Low similarity did not clearly mean more errors: of {graphs} test {noun} "
    "unlike the training ones (similarity below {threshold}) {errors}, which may be chance.",
    "GT113": "The parts differ: {train} of the training {noun} are {label}, {validation} of the "
    "validation ones and {test} of the test ones.",
    "GT113, multilabel": "The parts differ: {train} of the training {noun} have the label {label}, "
    "{validation} of the validation ones and {test} of the test ones.",
    "GT114": "Copies of {copies} held out for validation or test are in the training part: the "
    "figures are too optimistic. Remove the copies, or use a split that keeps them together.",
    "GT115": "Copies of {copies} in the data have different {targets}: no model can be right about "
    "all of them. Correct or remove them.",
    "GT116": "Classes are imbalanced: {share} of the {noun} are {label}.",
    "GT117": "Do not rely on its explanations: on the validation {noun}, removing the most salient "
    "parts changed the predictions no more than removing random parts.",
}
"""Templates by code, some of them with variants; ``docs/warnings.md`` has a section for each."""

CODES: Final = tuple(key for key in CAVEATS if "," not in key)


def check_codes(ignore: Iterable[str]) -> frozenset[str]:
    """Return the codes of caveats to leave out; raise if one does not exist."""
    codes = [ignore] if isinstance(ignore, str) else ignore
    return frozenset(check_choice("ignore", code, CODES) for code in codes)


@dataclass(frozen=True)
class Caveat:
    """A caveat: its code, and the values of its template.

    ``where`` names the group it is about if there are several, ``kind`` the variant of the
    template. What is no ``warning`` is said without its code.
    """

    code: str
    values: Mapping[str, str]
    where: str = ""
    kind: str = ""
    warning: bool = True

    @property
    def text(self) -> str:
        """The caveat in a sentence, with its code."""
        key = f"{self.code}, {self.kind}" if self.kind else self.code
        about = f"{self.where}: " if self.where else ""
        code = f" [{self.code}]" if self.warning else ""
        return f"{about}{CAVEATS[key].format(**self.values)}{code}"


def find_caveats(results: Results) -> Iterator[Caveat]:
    """What a reader should know before trusting the numbers."""
    path = None if results.directory is None else results.directory / SKIPPED
    if path is not None and path.is_file():
        with path.open(encoding="utf-8", newline="") as file:
            rows = sum(1 for _ in csv.reader(file)) - 1
        yield Caveat("GT015", {"rows": count(rows, "row"), "file": SKIPPED})
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
