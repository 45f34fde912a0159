"""The findings of a comparison in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from graph_transplant.classical import CLASSICAL
from graph_transplant.experiments.protocol import Condition, Record, Trial, one_split, score
from graph_transplant.experiments.selection import left_out, method_key
from graph_transplant.experiments.statistics import Paired, holm
from graph_transplant.format import capital, count, listed, number, p_words
from graph_transplant.metrics import METRICS, no_better_than_random
from graph_transplant.recipes import RECIPES

if TYPE_CHECKING:
    from graph_transplant.experiments.results import Group, Results

SIGNIFICANT = 0.05
"""Significance level of corrected p-values."""

EQUAL_WITHIN = 0.01
"""Methods are practically equal if the interval of their difference lies within this."""

FEW_PAIRS = 5
"""With fewer pairs, a verdict is worded as a hint."""

NEAR_MAJORITY = 0.02
"""Scores that exceed those of a constant prediction by less than this are noted."""

MAJORITY = "majority"
"""The floor: always predicting the largest class."""

Row = dict[str, Any]


def is_classical(method: str) -> bool:
    """Whether a method is classical, without a network."""
    return method_key(method) in CLASSICAL


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
class Verdict:
    """Finding of a comparison about one group of methods.

    Attributes:
        kind: ``"better"`` if a method beats the reference, ``"worse"`` if one is worse and none
            better, ``"equal"`` if all are practically equal to it, ``"none"`` if that is unclear,
            ``"open"`` if no network was tested against it.
        headline: The finding in a few words.
        evidence: The numbers behind it.
        best: The method that beats the reference, if any.
        winner: The best classical method if it is ahead of every network and they are not
            practically equal; otherwise ``best``.
        compared: Whether there is a reference and another method.
        next: What would settle it, in words; empty if it is settled.
        repeats: Number of repeats that would settle it, if any.
    """

    kind: Literal["better", "worse", "equal", "none", "open"]
    headline: str
    evidence: str
    best: str | None = None
    winner: str | None = None
    compared: bool = True
    next: str = ""
    repeats: int | None = None

    @property
    def sentence(self) -> str:
        """The finding with its evidence."""
        return f"{self.headline}. {self.evidence}"


def verdict_of(group: Group, rows: Sequence[Row], reference: str, rivals: Sequence[Row]) -> Verdict:
    """Return the finding of one group, in words.

    A method beats the reference only if the p-value after Holm's correction is below 0.05 and the
    two are not practically equal. ``rows`` are the methods, best first; ``rivals`` are the tests of
    the networks against the best classical method.
    """
    networks = [r for r in rows if not is_classical(r["method"]) or r["method"] == reference]
    networks = networks or list(rows)
    verdict, told = _against_reference(group.data, networks, reference)
    if rivals and rivals[0]["difference"] is not None:
        best = next(row for row in rows if row["method"] == rivals[0]["rival"])
        verdict, more = _beside_rival(group.data, verdict, best, rivals, reference)
        told = [*told, *more]
    if told:
        verdict = replace(verdict, evidence=_evidence(told, rows[0]))
    return replace(verdict, headline=group.condition.sentence(verdict.headline))


def _against_reference(
    data: str, rows: Sequence[Row], reference: str
) -> tuple[Verdict, list[tuple[str, Row]]]:
    """Return the verdict against the reference, and the tests that support it with their names."""
    first = rows[0]
    if len(rows) == 1 or reference not in [row["method"] for row in rows]:
        headline = (
            f"{first['method']} reaches a mean {METRICS[first['metric']].word} of "
            f"{METRICS[first['metric']].score(first['score_mean'], unit=True)} on {data}"
        )
        why = f"Differences are taken from {reference}, which was not run."
        if first["method"] == reference:
            why = "There is no other method to compare it with."
        return Verdict("open", headline, why, compared=False), []
    compared = [row for row in rows if row["difference"] is not None]
    if not compared:
        why = f"No method shares a finished {_place(first)} with {reference}."
        return Verdict("open", f"Nothing to compare yet on {data}", why), []
    largest = max(compared, key=lambda row: abs(row["difference"]))
    found = {
        kind: [row for row in compared if row["finding"] == kind]
        for kind in ("better", "worse", "equal", "unclear")
    }
    if not any(found.values()):
        gap = f"{largest['method']}: {_gap(first, largest['difference'])}"
        why = f"{gap}; {count(largest['pairs'], 'pair')} of trials without a spread to judge it by."
        return Verdict("open", f"No difference can be tested on {data}", why), []
    if found["better"]:
        top = max(found["better"], key=lambda row: row["difference"])
        best, by = top["method"], _gap(first, top["difference"]).lstrip("+")
        headline = f"{best} beats {reference} on {data} by {by}"
        verdict = Verdict("better", headline, "", best=best, winner=best)
        told = [*found["better"], *found["worse"]]
    elif found["worse"] or found["unclear"]:
        # A method without a mean failed on some folds, whatever its p-value on the others.
        failed = [row for row in found["unclear"] if row["p_holm"] < SIGNIFICANT]
        hopeful = [row for row in found["unclear"] if row not in failed]
        told = [*found["worse"], *failed]
        if told:
            kind: Literal["worse", "none"] = "worse" if found["worse"] else "none"
            verdict = Verdict(kind, f"No method beats {reference} on {data}", "")
            hopeful = [row for row in hopeful if row["difference"] > 0]
        else:
            name = largest["method"]
            who = f"{name} does not differ" if len(compared) == 1 else "No method differs"
            verdict = Verdict("none", f"{who} significantly from {reference} on {data}", "")
        if hopeful:
            closest = min(hopeful, key=lambda row: row["p_value"])  # to a finding
            following, repeats = _what_next(closest, tests=len(compared))
            verdict = replace(verdict, next=following, repeats=repeats)
            told.append(closest)
    else:
        equal = [row["method"] for row in found["equal"]]
        who = f"{listed(equal)} {'is' if len(equal) == 1 else 'are'}"
        if 1 < len(equal) == len(rows) - 1:
            who = "All methods are"
        verdict = Verdict("equal", f"{who} practically equal to {reference} on {data}", "")
        told = [largest]
    what = {True: ", where it did not fail", False: ""}
    return verdict, [(row["method"] + what[row["score_mean"] is None], row) for row in told]


def _beside_rival(
    data: str, verdict: Verdict, rival: Row, against: Sequence[Row], reference: str
) -> tuple[Verdict, list[tuple[str, Row]]]:
    top = next((row for row in against if row["finding"] == "better"), against[0])
    name, words = top["method"], CLASSICAL[method_key(rival["method"])].words
    told = [(f"{name} against {words}", top)]
    # Means may be over other folds; a tie may leave a rounding error.
    behind = all(round(row["difference"] or 0.0, 12) < 0 for row in against)
    if top["finding"] == "better":
        text = f"{name} beats {words}"
    elif top["finding"] == "worse":
        text = f"no network beats {words}"
    elif top["finding"] == "equal":
        text = f"{name} is practically equal to {words}"
    elif rival["finding"] == "better":
        text = f"{words} beats {reference} by {_gap(rival, rival['difference']).lstrip('+')}"
        told.append((f"{words} against {reference}", rival))
    elif behind:
        text = f"{words} has a higher mean than every network"
    else:
        text = f"it is unclear whether {name} beats {words}"
    if top["finding"] in ("worse", "unclear") and behind:
        verdict = replace(verdict, winner=rival["method"])
    if len(against) == 1 and not verdict.compared:
        text = text if text.startswith(name) else capital(text)
        return Verdict("open", f"{text} on {data}", "", winner=verdict.winner), told
    return replace(verdict, headline=f"{verdict.headline}; {text}"), told


def _evidence(told: Sequence[tuple[str, Row]], any_row: Row) -> str:
    texts = []
    for name, row in told:
        gap = f"{name}: {_gap(any_row, row['difference'])}"
        if row["ci_low"] is None:
            texts.append(gap)
            continue
        ends = map(METRICS[any_row["metric"]].gap, (row["ci_low"], row["ci_high"]))
        # Tests against rivals are corrected for all pairs of a network and a rival.
        family = " over all such pairs" if "rival" in row else ""
        p_text = f"{p_words(row['p_holm'])} after Holm{family}"
        texts.append(f"{gap} (95 % interval {' to '.join(ends)}, {p_text})")
    pairs = min(row["pairs"] for _, row in told)
    place = _place(any_row)
    runs = count(pairs, place)
    if any_row["folds"] == 1:
        runs += f" of one {any_row['split']} split"
    elif pairs == any_row["folds"] * any_row["repeats"] and any_row["repeats"] > 1:
        runs = f"{any_row['folds']} folds × {any_row['repeats']} repeats"
    hint = f" So few {place}s give no more than a hint." if pairs < FEW_PAIRS else ""
    return f"{'; '.join(texts)}; {runs}.{hint}"


def _what_next(row: Row, tests: int) -> tuple[str, int | None]:
    """Describe the detectable difference and how many repeats would settle this one."""
    found = (
        f"With {count(row['pairs'], _place(row))} a difference of "
        f"{_gap(row, row['detectable']).lstrip('+')} would have been found with a probability of "
        "80 %."
    )
    needed = row["pairs_needed"]
    if not row["difference"]:
        return found, None
    gap = _gap(row, row["difference"])
    if math.isinf(needed):
        return (
            f"{found} No number of repeats would settle {gap}: the training sets overlap too much. "
            f"Only more graphs {'would' if tests == 1 else 'or fewer methods could'}."
        ), None
    repeats = max(math.ceil(needed / row["folds"]), int(row["repeats"]) + 1)
    what = "runs" if row["folds"] == 1 else "repeats"
    return f"{found} About {repeats} {what} would settle a difference of {gap}.", repeats


def join_verdicts(found: Mapping[Group, Verdict]) -> str:
    """Join the headlines in one line without a full stop, gains first."""
    networks = Counter(data for data, _ in {(g.data, g.network) for g in found})
    texts = []
    for group, verdict in sorted(found.items(), key=lambda item: item[1].kind != "better"):
        place = f" on {group.data}"
        network = f" ({group.network or 'without a network'})" if networks[group.data] > 1 else ""
        texts.append(verdict.headline.replace(place, place + network, 1))
    return "; ".join(texts)


def headline(found: Mapping[Group, Verdict], reference: str) -> str:
    """Summarise the verdicts of all models and conditions in a few words."""
    verdicts = [one for one in found.values() if one.compared] or list(found.values())
    if len(verdicts) == 1:
        return verdicts[0].headline
    total = len(verdicts)
    better = [one.best for one in verdicts if one.best]
    if better:
        who = listed(list(dict.fromkeys(better)), "or")
        text = f"{who} beats {reference} in {len(better)} of {total} comparisons"
    elif any(one.kind != "open" for one in verdicts):
        text = f"No method beats {reference} in {total} comparisons"
    else:
        text = f"{total} comparisons"
    rivals = [one.winner for one in verdicts if one.winner and is_classical(one.winner)]
    if rivals:
        who = listed(list(dict.fromkeys(CLASSICAL[method_key(n)].words for n in rivals)), "or")
        text += f"; {who} has a higher mean than every network in {len(rivals)} of {total}"
    conditions = {group.condition for group in found}
    return conditions.pop().sentence(text) if len(conditions) == 1 else text


# -------------------------------------------------------------------- caveats


def notes(results: Results) -> list[str]:
    """Return caveats that a reader should know before trusting the numbers."""
    records = results.records
    return [
        *_still_improving(records),
        *_unfinished(results),
        *left_out(records, results.selection),
        *_near_majority(results),
        *_worse_calibration(results),
        *_no_better_than_random(results),
        *_conditions(records),
        *_blind_attack(records),
        *_undefined(records),
    ]


def _blind_attack(records: Sequence[Record]) -> Iterator[str]:
    recipes = {one["settings"].get("recipe", "paper") for one in records if one.get("attacked")}
    blind = sorted(name for name in recipes if name in RECIPES and RECIPES[name].walk)
    if blind:
        yield (
            "The attack ignores the gradient through the random-walk features of the recipe "
            f"{listed(blind)}: stronger attacks may exist."
        )


def _still_improving(records: Sequence[Record]) -> Iterator[str]:
    # Other recipes end with a cosine schedule, which is best towards its end.
    trained = [
        record
        for record in records
        if record.get("epochs") and record["settings"].get("recipe", "paper") == "paper"
    ]
    late = sum(
        r["epochs"] >= r["settings"]["epochs"] and r["best_epoch"] > 0.9 * r["settings"]["epochs"]
        for r in trained
    )
    if 2 * late > len(trained):
        yield (
            f"In {late} of {len(trained)} trials the best checkpoint is in the last tenth of the "
            f"{trained[0]['settings']['epochs']} epochs allowed: more epochs may change results."
        )


def _unfinished(results: Results) -> Iterator[str]:
    for group, part in results.groups.items():
        settings = part.chosen[0]["settings"]
        repeats = 1 + max(record["repeat"] for record in part.chosen)
        planned = repeats * (1 if one_split(settings) else settings["folds"])
        trials = Counter(record["method"] for record in part.chosen)
        short = [f"{name} has {number}" for name, number in trials.items() if number < planned]
        if short:
            what = group.condition.sentence(f"{group.network or group.data} is not finished")
            apart = " Means are over different folds, differences over common ones."
            end = apart if len(set(trials.values())) > 1 else ""
            yield f"{what}: {', '.join(short)} of {planned} trials.{end}"


def _near_majority(results: Results) -> Iterator[str]:
    for group, part in results.groups.items():
        shares = [record.get("majority") for record in part.chosen]
        known = [share for share in shares if share is not None]
        floors = {"auroc": (0.5, "Guessing"), "r2": (0.0, "Always predicting the mean")}
        if len(known) == len(shares):
            floors["accuracy"] = sum(known) / len(known), "Always predicting the largest class"
        if part.metric not in floors:
            continue
        floor, what = floors[part.metric]
        means = part.frame.groupby("method")["score"].mean()
        near = [n for n, value in means.items() if value < floor + NEAR_MAJORITY and n != MAJORITY]
        if near:
            yield (
                f"{_named(results, group)}{what} would reach "
                f"{METRICS[part.metric].score(floor, unit=True)}; hardly more or less: "
                f"{listed(sorted(near))}."
            )


def _worse_calibration(results: Results) -> Iterator[str]:
    from graph_transplant.experiments.results import paired

    for group, part in results.groups.items():
        names = [n for n in part.methods if n != part.reference and not is_classical(n)]
        tests = [paired(part, name, part.reference, "ece") for name in names]
        corrected = holm([test.p_value for test in tests])
        for name, test, p in zip(names, tests, corrected, strict=True):
            if p is not None and p < SIGNIFICANT and (test.difference or 0) > 0:
                yield (
                    f"{_named(results, group)}Calibration gets worse with {name}: ECE "
                    f"{number(test.difference, sign=True)} ({p_words(p)} after Holm)."
                )


def _no_better_than_random(results: Results) -> Iterator[str]:
    for group, part in results.groups.items():
        means = part.wide("saliency").groupby("method").mean(numeric_only=True)
        useless = [str(name) for name, row in means.iterrows() if no_better_than_random(row)]
        if useless:
            yield (
                f"{_named(results, group)}Saliency is no better than random for {listed(useless)}: "
                "removing the most salient nodes, or keeping only them, changes predictions no "
                "more than random nodes do."
            )


def _conditions(records: Sequence[Record]) -> Iterator[str]:
    if any(Condition.of(record) != Condition() for record in records):
        yield (
            "Wrong or fewer labels affect only the training graphs: early stopping and selection "
            "use all validation graphs with their true labels."
        )


def _undefined(records: Sequence[Record]) -> Iterator[str]:
    for what, lost in (
        ("score", [record for record in records if score(record) is None]),
        ("loss", [record for record in records if record["test"].get("nll", 0.0) is None]),
    ):
        if lost:
            trials = "; ".join(str(Trial.of_record(record)) for record in lost)
            yield f"The test {what} is not finite in: {trials}."


def _named(results: Results, group: Group) -> str:
    return f"{group.data}, {group.title}: " if len(results.groups) > 1 else ""


def _place(row: Row) -> str:
    return "run" if row["folds"] == 1 else "fold"


def _gap(row: Row, difference: float) -> str:
    """Format a difference by the metric of a row, with its unit."""
    metric = METRICS[row["metric"]]
    unit = f"points of {metric.word}" if metric.share else f"in {metric.word}"
    return f"{metric.gap(difference)} {'points' if metric.word == 'accuracy' else unit}"
