"""The findings of a comparison in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from graph_transplant.classical import CLASSICAL
from graph_transplant.experiments.protocol import Condition, Record, Trial, score
from graph_transplant.experiments.selection import left_out, method_key
from graph_transplant.experiments.statistics import Paired
from graph_transplant.format import count, listed, p_words, percent, points
from graph_transplant.metrics import METRICS, no_better_than_random
from graph_transplant.recipes import RECIPES

if TYPE_CHECKING:
    from graph_transplant.experiments.results import Group, Results

SIGNIFICANT = 0.05
"""A corrected p-value below this is called a difference."""

EQUAL_WITHIN = 0.01
"""Methods whose difference lies within this, with its whole interval, are practically equal."""

FEW_PAIRS = 5
"""Below this many pairs a verdict is worded as a hint."""

NEAR_MAJORITY = 0.02
"""A score this close to that of always saying the largest class is named."""

MAJORITY = "majority"
"""The floor: always saying the largest class."""

Row = dict[str, Any]


def is_classical(method: str) -> bool:
    """Whether a method is a classical rival, without a network."""
    return method_key(method) in CLASSICAL


def finding(test: Paired, p_holm: float | None, equal_within: float) -> str:
    """What a test says: better, worse, equal or unclear; empty where nothing was tested."""
    if test.difference is None or test.ci_low is None or test.ci_high is None or p_holm is None:
        return ""
    if -equal_within <= test.ci_low and test.ci_high <= equal_within:
        return "equal"
    if p_holm < SIGNIFICANT:
        return "better" if test.difference > 0 else "worse"
    return "unclear"


@dataclass(frozen=True)
class Verdict:
    """What a comparison says about one group of methods.

    Attributes:
        kind: ``"better"`` when a method beats the reference, ``"worse"`` when one is worse and none
            better, ``"equal"`` when all are practically equal to it, ``"none"`` when that cannot be
            told, ``"open"`` when nothing was tested.
        headline: The finding in a few words.
        sentence: The finding with its evidence.
        clause: The finding as a part of a longer sentence.
        best: The method that beats the reference, if any.
        winner: The best classical rival if its mean is above that of every network, beyond what is
            practically equal; else ``best``.
        compared: Whether there is a reference and another method.
        next: What would settle it, in words; empty where it is settled.
        repeats: How many repeats would settle it, if any number would.
    """

    kind: Literal["better", "worse", "equal", "none", "open"]
    headline: str
    sentence: str
    clause: str
    best: str | None = None
    winner: str | None = None
    compared: bool = True
    next: str = ""
    repeats: int | None = None


def verdict_of(
    group: Group, rows: Sequence[Row], reference: str, rivals: Sequence[Row], equal_within: float
) -> Verdict:
    """Word the finding of one group.

    A method is said to beat the reference only when the p-value after Holm's correction is below
    0.05 and the difference is not within ``equal_within``. Whether a network beats the best
    classical rival is said right after the first finding, before any further evidence.

    Args:
        group: What is compared.
        rows: The methods, the best first.
        reference: The method that the others are compared with.
        rivals: The methods with a network against the best classical rival.
        equal_within: How far apart practically equal methods may be.
    """
    own = [row for row in rows if not is_classical(row["method"])] or rows
    unit = METRICS[rows[0]["metric"]].word
    unit = "points" if unit == "accuracy" else f"points of {unit}"
    beside = bool(rivals) and rivals[0]["difference"] is not None
    # With a rival in between, it must be said what the difference is from.
    gap = f"difference from {reference}" if beside else "difference"
    verdict, details = _verdict(group.data, own, reference, unit, gap, equal_within)
    if beside:
        verdict = _beside_rivals(group.data, verdict, rows, rivals, reference, unit)
        details = [] if len(rivals) == 1 else details
    mark = "; " if beside or verdict.kind in ("better", "worse", "open") else ": "
    sentence = mark.join([verdict.sentence, "; ".join(details)]) if details else verdict.sentence
    tested = [row for row in (*own, *rivals) if row.get("finding")]
    sentence += f".{_few(tested, _unit(rows[0])) if tested else ''}"
    condition = group.condition
    return replace(
        verdict,
        headline=condition.sentence(verdict.headline),
        sentence=condition.sentence(sentence),
        clause=f"{condition.words}, {verdict.clause}" if condition.words else verdict.clause,
    )


def _verdict(
    data: str, rows: Sequence[Row], reference: str, unit: str, gap: str, equal_within: float
) -> tuple[Verdict, list[str]]:
    """The first finding, and the details that follow it."""
    metric = METRICS[rows[0]["metric"]].word
    best, name = rows[0], rows[0]["method"]
    reached, trials = percent(best["score_mean"], unit=True), count(best["trials"], "trial")

    def open_(headline: str, text: str, *details: str, **more: Any) -> tuple[Verdict, list[str]]:
        clause = more.pop("clause", f"{headline[0].lower()}{headline[1:]}")
        return Verdict("open", headline, text, clause, **more), [*details]

    if len(rows) == 1 or reference not in [row["method"] for row in rows]:
        tied = [row["method"] for row in rows if row["score_mean"] == best["score_mean"]]
        share = "has" if len(tied) == 1 else "share"
        most = f"{listed(tied)} {share} the highest {metric} on {data}"
        headline = f"{name} reaches {reached} on {data}" if len(rows) == 1 else most
        text = f"{name} reaches a mean {metric} of {reached} on {data} over {trials}"
        detail = f"differences are taken from {reference}, which was not run"
        if name == reference:
            detail = "there is no other method to compare it with"
        return open_(headline, text, detail, clause=headline, compared=False)
    compared = [row for row in rows if row["difference"] is not None]
    if not compared:
        text = f"No method shares a finished {_unit(best)} with {reference} on {data} yet"
        clause = f"there is nothing to compare yet on {data}"
        return open_(f"Nothing to compare yet on {data}", text, clause=clause)
    family = sum(bool(row["finding"]) for row in compared)
    largest = max(compared, key=lambda row: abs(row["difference"]))
    name = largest["method"]
    if not family:
        text = f"{name} and {reference} are {points(largest['difference'])} {unit} apart on {data}"
        if largest["difference"] == 0:
            text = f"{name} and {reference} have the same {metric} on {data}"
        same = f"all {largest['pairs']} {_unit(largest)}s show the same difference, so there is"
        alone = largest["pairs"] == 1
        why = f"{'one pair of trials shows' if alone else same} no spread to judge it by"
        return open_(f"No difference can be tested on {data}", text, why)
    found = {
        kind: sorted((row for row in compared if row["finding"] == kind), key=_gain)
        for kind in ("better", "worse", "equal", "unclear")
    }
    after = " after Holm" if family > 1 else ""
    if found["better"]:
        top, *others = reversed(found["better"])
        won = top["method"]
        headline = f"{won} beats {reference} on {data} by {_gain(top):.1f} {unit}"
        lead = f"{headline} ({_evidence(top, family)})"
        clause = f"{headline}, {p_words(top['p_holm'])}{after}"
        details = [
            f"so does {row['method']}, by {_gain(row):.1f} ({p_words(row['p_holm'])})"
            for row in others
        ] + [
            f"{row['method']} is worse than {reference} by {-_gain(row):.1f} "
            f"({p_words(row['p_holm'])})"
            for row in found["worse"]
        ]
        return Verdict("better", headline, lead, clause, best=won, winner=won), details
    if found["worse"]:
        last = found["worse"][0]
        headline = f"No method beats {reference} on {data}"
        clause = (
            f"no method helps on {data}, {last['method']} is worse by {-_gain(last):.1f} {unit}, "
            f"{p_words(last['p_holm'])}{after}"
        )
        details = [
            f"{row['method']} is worse than {reference} by {-_gain(row):.1f} {unit} "
            f"({_evidence(row, family)})"
            for row in found["worse"]
        ]
        return Verdict("worse", headline, headline, clause), details
    alone = len(compared) == 1
    if len(found["equal"]) == len(compared):
        clause = f"{f'{name} is' if alone else 'all methods are'} practically equal to {reference}"
        clause += f" on {data}"
        headline = clause if alone else f"A{clause[1:]}"
        which = f"the {gap} is" if alone else f"the largest {gap}, {name}’s, is"
        margin = f"{100 * equal_within:g} {'point' if equal_within == 0.01 else 'points'}"
        detail = (
            f"{which} {points(largest['difference'])} {unit}, and its whole 95 % interval, "
            f"{points(largest['ci_low'])} to {points(largest['ci_high'])}, lies within ±{margin}"
        )
        return Verdict("equal", headline, headline, clause), [detail]
    unsure = [row for row in compared if row["finding"] != "equal"]
    largest = max(unsure, key=lambda row: abs(row["difference"]))
    name = largest["method"]
    headline = f"{f'{name} does not differ' if alone else 'No method differs'} significantly from"
    headline += f" {reference} on {data}"
    which = f"the {gap} is" if alone else f"the largest {gap}, that of {name}, is"
    detail = f"{which} {points(largest['difference'])} {unit}"
    if largest["p_value"] is not None and largest["p_value"] < SIGNIFICANT:
        # The interval, which is for one method alone, would seem to say the opposite.
        detail += (
            f", which taken alone would be significant ({p_words(largest['p_value'])}) but not as "
            f"the largest of {family} ({_evidence(largest, family)})"
        )
    elif largest["ci_low"] is not None:
        detail += (
            f", with anything from {points(largest['ci_low'])} to {points(largest['ci_high'])} "
            f"plausible ({_evidence(largest, family)})"
        )
    details = [detail]
    if found["equal"]:
        names = listed([row["method"] for row in compared if row["finding"] == "equal"])
        verb = "is" if len(found["equal"]) == 1 else "are"
        details.append(f"{names} {verb} practically equal to {reference}")
    clause = f"{f'{name} does not help' if alone else 'no method helps'} significantly on {data}"
    following, repeats = _what_next(largest, unit)
    return Verdict("none", headline, headline, clause, next=following, repeats=repeats), details


def _beside_rivals(
    data: str,
    verdict: Verdict,
    rows: Sequence[Row],
    against: Sequence[Row],
    reference: str,
    unit: str,
) -> Verdict:
    """Add whether a network beats the best classical rival."""
    better = [row for row in against if row["finding"] == "better"]
    top = (better or against)[0]
    name, rival = top["method"], CLASSICAL[method_key(top["rival"])].words
    own = next(row for row in rows if row["method"] == top["rival"])
    beaten = own["finding"] == "better"
    numbers = f"({points(top['difference'])} {unit}, {p_words(top['p_holm'])})"
    if top["finding"] == "better":
        text = f"{name}{' also' if name == verdict.best else ''} beats {rival}"
    elif top["finding"] == "worse":
        none = {1: f"{name} does not beat", 2: "neither beats"}
        text = f"{none.get(len(against), 'none of them beats')} {rival}"
    elif top["finding"] == "equal":
        text = f"{name} is practically equal to {rival}"
    elif beaten:
        text = f"{rival} beats {reference} by {_gain(own):.1f} {unit}"
        gap = f"({points(-top['difference'])} {unit}, {p_words(top['p_holm'])})"
        other = f", and whether it beats {name} is unclear {gap}" if name != reference else ""
        numbers = f"({p_words(own['p_holm'])}){other}"
    elif top["finding"] == "unclear" and top["difference"] < 0:
        text = f"{name} is insignificantly below {rival}"
    else:
        text = f"it is unclear whether {name} beats {rival}"
    lost = top["finding"] in ("worse", "unclear") and top["difference"] < 0
    winner = top["rival"] if lost else verdict.winner
    if len(against) == 1:
        place = f"{text} on {data}"
        return Verdict("open", place, f"{place} {numbers}", place, winner=winner)
    return replace(
        verdict,
        headline=f"{verdict.headline}; {text}",
        sentence=f"{verdict.sentence}; {text} {numbers}",
        clause=f"{verdict.clause}; {text}",
        winner=winner,
    )


def _what_next(row: Row, unit: str) -> tuple[str, int | None]:
    """How small a difference would have been found, and how many repeats would settle this one."""
    if row["detectable"] is None:
        return "", None
    found = (
        f"With {count(row['pairs'], _unit(row))} a difference of {100 * row['detectable']:.1f} "
        f"{unit} would have been found with a probability of 80 %."
    )
    needed = row["pairs_needed"]
    if needed is None or not row["difference"]:
        return found, None
    gap = f"{points(row['difference'])} {unit}"
    if math.isinf(needed):
        return (
            f"{found} No number of repeats would settle {gap}: the training sets overlap too much. "
            "Only more graphs would."
        ), None
    folds = max(1, int(row["folds"]))
    repeats = math.ceil(needed / folds)
    what = "runs" if folds == 1 else "repeats"
    return f"{found} About {repeats} {what} would settle a difference of {gap}.", repeats


def join_verdicts(found: Mapping[Group, Verdict]) -> str:
    """Join verdicts to one line without a full stop; what is the same is said once."""
    networks = Counter(data for data, _ in {(g.data, g.network) for g in found})
    places: dict[str, list[str]] = {}
    for group, verdict in sorted(found.items(), key=lambda item: item[1].kind != "better"):
        text, place = verdict.clause, group.data
        if networks[group.data] > 1:
            place += f" ({group.network or 'without a network'})"
            text = text.replace(f" on {group.data}", f" on {place}", 1)
        shared = text.removesuffix(f" on {place}")
        # Only what ends with the place can be said of several at once.
        places.setdefault(shared, []).extend([place] if shared != text else [])
    return "; ".join(
        f"{text} on {listed(names)}" if names else text for text, names in places.items()
    )


def headline(found: Mapping[Group, Verdict], reference: str) -> str:
    """Sum up the verdicts of all models and conditions in a few words."""
    found = {group: one for group, one in found.items() if one.compared} or dict(found)
    if len(found) == 1:
        return next(iter(found.values())).headline
    data, networks, conditions = (
        {group.data for group in found},
        {group.network for group in found},
        {group.condition for group in found},
    )
    counts = {"data set": len(data), "model": len(networks), "condition": len(conditions)}
    parts = [count(number, what) for what, number in counts.items() if number > 1]
    on = f" on {data.pop()}" if len(data) == 1 else ""
    over = f"({', '.join(parts)})"
    rivals = [one.winner for one in found.values() if one.winner and is_classical(one.winner)]
    who = list(dict.fromkeys(CLASSICAL[method_key(name)].words for name in rivals))
    lost = f"; no network beats {listed(who, 'or')} in {len(rivals)} of {len(found)}" if who else ""
    better = [one.best for one in found.values() if one.kind == "better" and one.best]
    if better:
        who = list(dict.fromkeys(better))
        verb = "beats" if len(who) == 1 else "beat"
        where = "everywhere" if len(better) == len(found) else f"in {len(better)} of {len(found)}"
        return f"{listed(who)} {verb} {reference}{on} {where} {over}{lost}"
    kinds = {one.kind for one in found.values()}
    if "worse" in kinds:
        return f"No method beats {reference}{on} {over}{lost}"
    if kinds == {"equal"}:
        return f"All methods are practically equal to {reference}{on} {over}{lost}"
    if kinds <= {"equal", "none"}:
        return f"No method differs significantly from {reference}{on} {over}{lost}"
    return f"{listed(parts)} compared{on}{lost}"


# -------------------------------------------------------------------- bad news and caveats


def notes(results: Results) -> list[str]:
    """Sentences that a reader should see before trusting the numbers, possibly none."""
    records = results.records
    return [
        *_still_improving(records),
        *_incomplete(results),
        *left_out(records, results.selection),
        *_near_majority(results),
        *_worse_calibration(results),
        *_no_better_than_random(results),
        *_conditions(records),
        *_blind_attack(records),
        *_undefined(records),
    ]


def _blind_attack(records: Sequence[Record]) -> Iterator[str]:
    """An attack goes by gradients, which random-walk features do not hand on."""
    recipes = {one["settings"].get("recipe", "paper") for one in records if one.get("attacked")}
    blind = sorted(name for name in recipes if name in RECIPES and RECIPES[name].walk)
    if blind:
        yield (
            "The attack follows no gradient through the random-walk features of the recipe "
            f"{listed(blind)}: there may be changes that harm those networks more."
        )


def _still_improving(records: Sequence[Record]) -> Iterator[str]:
    # A cosine is at its best towards its end.
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


def _incomplete(results: Results) -> Iterator[str]:
    for group, part in results.groups.items():
        trials = Counter(record["method"] for record in part.chosen)
        most = max(trials.values())
        short = [f"{name} has {number}" for name, number in trials.items() if number < most]
        if short:
            what = group.condition.sentence(f"{group.network or group.data} is not complete")
            yield f"{what}: {', '.join(short)} of {most} trials."


def _near_majority(results: Results) -> Iterator[str]:
    """Accuracies that hardly exceed the share of the largest class."""
    for group, part in results.groups.items():
        shares = [record.get("majority") for record in part.chosen]
        known = [share for share in shares if share is not None]
        if part.metric != "accuracy" or len(known) < len(shares) or not known:
            continue
        share = sum(known) / len(known)
        means = part.frame.groupby("method")["accuracy"].mean()
        near = [n for n, value in means.items() if value < share + NEAR_MAJORITY and n != MAJORITY]
        if near:
            above = max(means[n] for n in near) > share
            verb = "exceeds" if len(near) == 1 else "exceed"
            verb = f"hardly {verb}" if above else f"do{'es' * (len(near) == 1)} not exceed"
            yield (
                f"{_place(results, group)}{listed(sorted(near))} {verb} "
                f"{percent(share, unit=True)}, which always predicting the largest class would "
                "reach."
            )


def _worse_calibration(results: Results) -> Iterator[str]:
    """Methods whose stated confidence is further from the truth than the reference's."""
    from graph_transplant.experiments.results import paired

    for group, part in results.groups.items():
        if "ece" not in part.frame:
            continue
        means = part.frame.groupby("method")["ece"].mean()
        for name in part.methods:
            if name == part.reference or is_classical(name):
                continue
            test = paired(part, name, part.reference, "ece")
            worse = (test.difference or 0) > 0
            if worse and test.p_value is not None and test.p_value < SIGNIFICANT:
                yield (
                    f"{_place(results, group)}Calibration gets worse with {name}: ECE "
                    f"{means[name]:.3f} instead of {means[part.reference]:.3f} "
                    f"({p_words(test.p_value)})."
                )


def _no_better_than_random(results: Results) -> Iterator[str]:
    """Methods whose saliency orders nodes no better than chance."""
    means = results.wide("saliency").groupby("method").mean(numeric_only=True)
    useless = [str(name) for name, row in means.iterrows() if no_better_than_random(row)]
    if useless:
        yield (
            f"The saliency used in training is no better than random for {listed(useless)}: "
            "removing the most salient nodes, or keeping only them, changes predictions no more "
            "than random nodes do."
        )


def _conditions(records: Sequence[Record]) -> Iterator[str]:
    """What label noise and a training fraction do not touch."""
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


# -------------------------------------------------------------------- parts of sentences


def _place(results: Results, group: Group) -> str:
    """Name the group that a note is about, where there are several."""
    if len(results.groups) == 1:
        return ""
    several = len({each.data for each in results.groups}) > 1
    return f"{group.data}, {group.title}: " if several else f"{group.title}: "


def _gain(row: Row) -> float:
    return float(100 * row["difference"])


def _unit(row: Row) -> str:
    return "run" if row["folds"] == 1 else "fold"


def _evidence(row: Row, family: int) -> str:
    correction = f" after Holm's correction over {family} methods" if family > 1 else ""
    runs = count(row["pairs"], _unit(row))
    if row["folds"] == 1:
        runs += f" of one {row['split']} split"
    elif row["pairs"] == row["folds"] * row["repeats"] and row["repeats"] > 1:
        runs = f"{row['folds']} folds × {row['repeats']} repeats"
    return f"{p_words(row['p_holm'])}{correction}, {runs}"


def _few(rows: Sequence[Row], unit: str) -> str:
    pairs = min(row["pairs"] for row in rows)
    if pairs >= FEW_PAIRS:
        return ""
    return (
        f" {f'One {unit} is' if pairs == 1 else f'{pairs} {unit}s are'} few: take this as a hint."
    )
