"""Findings in words: one template for each kind, for terminal, notebook and pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from graph_transplant.methods import REFERENCE, method_of
from graph_transplant.metrics import METRICS
from graph_transplant.utils.text import capital, count, duration, listed, p_words, ratio

if TYPE_CHECKING:
    from graph_transplant.results.groups import Group
    from graph_transplant.results.verdict import Finding, Verdict

CLAUSES: Final[Mapping[str, str]] = {
    "score": "{method} reaches a mean {metric} of {score}{on}",
    "no pairs": "Nothing to compare yet{on}",
    "no spread": "No difference can be tested{on}",
    "floor": "No method is shown to be better than {constant}{on}, which reaches {score}",
    "floor, one": "{method} is not shown to be better than {constant}{on}, which reaches {score}",
    "better": "{method} beats {other}{on} by {gap}",
    "equal": "{methods} is practically equal to {other}{on}",
    "equal, several": "{methods} are practically equal to {other}{on}",
    "equal, all": "All methods are practically equal to {other}{on}",
    "worse": "{method} is worse than {other}{on} by {gap}",
    "worse, all": "All methods are worse than {other}{on}",
    "worse, some": "No method is shown to be better than {other}{on}",
    "unclear": "{method} is not shown to differ from {other}{on}",
    "unclear, several": "No method is shown to differ from {other}{on}",
    "in sign": "{method} is {sign} in sign",
    # A control beside the best method, or the best method being a control.
    "control": "{other} alone {gains} {gain}: a difference between the two is not shown",
    "control, equal": "{other} alone is practically equal to it",
    "controls": "a difference from {others} alone is not shown",
    "transplant": "{other} {gains} {gain}: a difference between the two is not shown",
    "transplant, equal": "{other} is practically equal to it",
    "transplant, better": "{other} is worse than {method} by {gap}",
    # Methods without a network. The first three open a headline.
    "baseline beats": "{Baseline} beats {method}{on} by {gap}",
    "baseline beats all": "{Baseline} beats {method}, the best network{on}, by {gap}",
    "baseline leads": "{Baseline}{trained} beats {reference}{on} by {gain}",
    "no network": "no network is shown to be better than it",
    "network, better": "{method} beats {baseline}{on} by {gap}",
    "network, equal": "{method} is practically equal to {baseline}{trained}{on}",
    "network, gain": "{baseline}{trained} gains {gain}: a difference from {method} is not shown",
    "network": "{method} is not shown to be better than {baseline}{trained}{on}",
    "networks": "no network is shown to be better than {baseline}{trained}",
}
"""Clauses of a headline by kind of finding. ``on`` is the place, in the first clause only."""

EVIDENCE: Final = {
    "gains": "{method}: {gap}",
    "failed": "{method}, where it did not fail: {gap}",
    "controls": "{method} against {other}: {gap}",
    "baselines": "{method} against {other}: {gap}",
    "baseline": "{method} against {other}: {gap}",
    "floor": "{method} above {other}: {gap}",
}

CORRECTED: Final = {
    **dict.fromkeys(("gains", "baseline"), " after Holm"),
    "controls": " after Holm over the controls",
    "baselines": " after Holm over all such pairs",
}
"""How a p-value was corrected, where there are several tests."""

REMEDIES: Final = {
    "": "",
    "runs": " About {repeats} runs would settle a difference of {gap}.",
    "repeats": " About {repeats} repeats would settle a difference of {gap}.",
    "folds": " About {folds} folds × {repeats}, as a new comparison, would settle a difference of "
    "{gap}: larger training sets narrow the interval at the least cost.",
    "graphs": " Neither more folds nor more repeats (up to 100 trainings of a method) would settle "
    "a difference of {gap}: training sets overlap too much. About {times} times as many graphs "
    "would, or more data sets{fewer}.",
}

ADVICE: Final = {
    "floor": "No model is worth keeping yet: none is shown to be better than {constant}. Check "
    "that the features and the structure bear on the target; train longer, or on more graphs.",
    "baseline": "{Baseline}{trained} is the simplest choice: no network is shown to be better "
    "than it.",
    "train": "Train one model with {method}, calibrate and keep it:",
    "train, baseline": "Train one model with {method}, which is not shown to be better than "
    "{baseline}{trained}:",
    "train, controls": "Train one model with {method}, which is not shown to be better than "
    "{controls}:",
    "open": "Until that is settled, plain training is the simplest choice:",
    "plain": "Plain training is the simplest choice:",
}


# -------------------------------------------------------------------- headlines


def headline(verdict: Verdict, place: str = "") -> str:
    """Word a verdict in a few words; ``place`` replaces the data set and the condition."""
    ons = iter([f" on {place or place_of(verdict.group)}"])
    return "; ".join(
        CLAUSES[kind].format(on=next(ons, ""), **values) for kind, values in _clauses(verdict)
    )


def place_of(group: Group, *, network: bool = False) -> str:
    """Name the data set, the training condition, and with ``network`` the model."""
    model = (group.network or "without a network") if network else ""
    more = ", ".join(filter(None, [model, group.condition.words]))
    return f"{group.data} ({more})" if more else group.data


def _clauses(verdict: Verdict) -> Iterator[tuple[str, dict[str, str]]]:
    metric, floor, top = METRICS[verdict.metric], verdict.floor, verdict.baseline
    if floor is not None:
        values = {"constant": floor.words, "score": metric.score(floor.score, unit=True)}
        yield (
            "floor" if floor.methods > 1 else "floor, one",
            {
                "method": floor.above.method,
                **values,
            },
        )
        return
    beside = _beside(verdict)
    leads = verdict.baseline_leads and verdict.kind != "better"
    if top is not None and top.kind == "worse":
        yield "baseline beats all" if verdict.networks > 1 else "baseline beats", beside
    elif leads:
        yield "baseline leads", beside
        yield "no network", {}
    if top is None or verdict.networks > 1 or verdict.why not in ("alone", "no reference"):
        yield from _reference(verdict)
    yield from _controls(verdict)
    if top is None or top.kind == "worse" or leads:
        return
    if top.kind in ("better", "equal"):
        yield f"network, {top.kind}", beside
    elif verdict.baseline_leads:
        yield "network, gain", beside
    else:
        yield "networks" if verdict.networks > 1 else "network", beside


def _reference(verdict: Verdict) -> Iterator[tuple[str, dict[str, str]]]:
    """What is said about the reference."""
    metric, first = METRICS[verdict.metric], verdict.rows[0]
    if not verdict.compared:
        score = metric.score(first["score_mean"], unit=True)
        yield "score", {"method": first["method"], "metric": metric.word, "score": score}
    elif verdict.why:
        yield verdict.why, {}
    elif verdict.kind == "better":
        top = next(one for one in verdict.gains if one.method == verdict.best)
        yield "better", _values(verdict, top)
    elif verdict.kind == "equal":
        names = [one.method for one in verdict.equal]
        values = {"methods": listed(names), "other": verdict.reference}
        if len(names) == 1:
            yield "equal", values
        else:
            yield "equal, all" if len(names) == len(verdict.rows) - 1 else "equal, several", values
    else:
        worse = [one for one in verdict.gains if one.kind == "worse"]
        last = verdict.gains[-1]
        values = _values(verdict, worse[0] if worse else last)
        if worse and len(worse) == verdict.others:
            yield "worse" if len(worse) == 1 else "worse, all", values
        elif worse or last.failed:
            yield "worse, some", values
        elif verdict.others == 1:
            yield "unclear", values
        else:
            yield "unclear, several", values
            if last.in_sign:
                yield "in sign", values


def _controls(verdict: Verdict) -> Iterator[tuple[str, dict[str, str]]]:
    found = verdict.controls
    gains = {row["method"]: row["difference"] for row in verdict.rows}
    metric = METRICS[verdict.metric]
    if len(found) > 1:
        names = [f"{one.other} ({metric.gap_words(gains[one.other])})" for one in found]
        yield "controls", {"others": listed(names, "or")}
        return
    for one in found:
        gain = gains[one.other]
        values = _values(verdict, one) | {
            "gains": "gains" if gain >= 0 else "loses",
            "gain": metric.gap_words(gain, sign=False),
        }
        who = "transplant" if verdict.best_is_control else "control"
        kinds = {"unclear": who, "worse": who}
        yield kinds.get(one.kind, f"{who}, {one.kind}"), values


def _values(verdict: Verdict, one: Finding) -> dict[str, str]:
    return {
        "method": one.method,
        "other": one.other,
        "gap": METRICS[verdict.metric].gap_words(one.difference, sign=False),
        "sign": "better" if one.difference > 0 else "worse",
    }


def _beside(verdict: Verdict) -> dict[str, str]:
    """What templates about the best baseline need."""
    top, row, gain = verdict.baseline, verdict.baseline_row, verdict.baseline_gain
    if top is None or row is None:
        return {}
    words = baseline_words(top.other)
    seconds = next(r["seconds_mean"] for r in verdict.rows if r["method"] == top.method)
    quick = row["seconds_mean"] is not None and seconds and row["seconds_mean"] < seconds
    return _values(verdict, top) | {
        "baseline": words,
        "Baseline": capital(words),
        "trained": f" (trained in {duration(row['seconds_mean'])})" if quick else "",
        "reference": verdict.reference,
        "gain": _values(verdict, gain)["gap"] if gain else "",
    }


def baseline_words(method: str) -> str:
    """Name a baseline within a sentence."""
    return method_of(method).words or method


def join_verdicts(found: Mapping[Group, Verdict]) -> str:
    """Join the headlines in one line without a full stop, gains first."""
    networks = Counter(data for data, _ in {(g.data, g.network) for g in found})
    return "; ".join(
        headline(verdict, place_of(group, network=networks[group.data] > 1))
        for group, verdict in sorted(found.items(), key=lambda item: item[1].kind != "better")
    )


def joint_headline(found: Mapping[Group, Verdict], reference: str) -> str:
    """Summarise the verdicts of all models and conditions in a few words."""
    verdicts = [one for one in found.values() if one.compared] or list(found.values())
    if len(verdicts) == 1:
        return verdicts[0].headline
    total = len(verdicts)
    conditions = {group.condition.words for group in found}
    where = f"{total} comparisons"
    if len(conditions) == 1 and conditions != {""}:
        where += f" ({conditions.pop()})"
    floors = [one.floor.words for one in verdicts if one.floor]
    if len(floors) == total:
        return f"No method is shown to be better than {floors[0]} in {where}"
    better = [one for one in verdicts if one.best and not one.floor]
    if better:
        who = listed(list(dict.fromkeys(one.best or "" for one in better)), "or")
        texts = [f"{who} beats {reference} in {len(better)} of {where}"]
    elif any(one.kind != "open" for one in verdicts):
        texts = [f"No method is shown to be better than {reference} in {where}"]
    else:
        texts = [where]
    controls = [one for one in better if one.controls]
    if controls:
        names = list(dict.fromkeys(f.other for one in controls for f in one.controls))
        few = f"in {len(controls)} of these"
        texts.append(f"a difference from {listed(names, 'or')} is not shown {few}")
    open_ = [one.baseline for one in verdicts if one.baseline and one.baseline.kind != "better"]
    if open_:
        who = listed(list(dict.fromkeys(baseline_words(one.other) for one in open_)), "or")
        few = f"in {len(open_)} of {total}"
        texts.append(f"no network is shown to be better than {who} {few}")
    return "; ".join(texts)


# -------------------------------------------------------------------- evidence


def evidence(verdict: Verdict) -> str:
    """The numbers behind a finding."""
    told = verdict.told
    if verdict.why == "no spread" and len(told) == 1:
        tried = count(told[0].pairs, "pair")
        return f"{_number(verdict, told[0])}; {tried} of trials without a spread to judge it by."
    if not told:
        return {
            "alone": "There is no other method to compare it with.",
            "no reference": f"Differences are taken from {verdict.reference}, which was not run.",
            "no pairs": f"No method shares a finished {_trial(verdict)} with {verdict.reference}.",
        }.get(verdict.why, "")
    pairs = {one.pairs for one in told}
    least = "at least " if len(pairs) > 1 else ""
    early = ", preliminary" if verdict.preliminary else ""
    texts = "; ".join(_number(verdict, one) for one in told)
    return f"{texts}; {least}{runs(verdict, min(pairs))}{early}."


def _number(verdict: Verdict, one: Finding) -> str:
    """One difference with its interval and p-value."""
    metric = METRICS[verdict.metric]
    names = {name: baseline_words(name) for name in (one.method, one.other)}
    about = "failed" if one.failed and one.family == "gains" else one.family
    text = EVIDENCE[about].format(
        method=names[one.method], other=names[one.other], gap=metric.gap_words(one.difference)
    )
    if one.low is None or one.high is None:
        return text
    p = p_words(one.p) + (CORRECTED[one.family] if one.tests > 1 else "")
    return f"{text} (95 % interval {metric.gap(one.low)} to {metric.gap(one.high)}, {p})"


def runs(verdict: Verdict, pairs: int) -> str:
    """Name the trials that a difference rests on, such as ``5 folds × 3 repeats``."""
    folds = int(verdict.rows[0]["folds"])
    if folds == 1:
        return f"{count(pairs, 'run')} of one {verdict.rows[0]['split']} split"
    if pairs > folds and pairs % folds == 0:
        return f"{count(folds, 'fold')} × {count(pairs // folds, 'repeat')}"
    return count(pairs, "fold")


def _trial(verdict: Verdict) -> str:
    return "run" if verdict.rows[0]["folds"] == 1 else "fold"


# -------------------------------------------------------------------- what next


def remedy(verdict: Verdict) -> str:
    """The detectable difference, and what would settle an open finding at the least cost."""
    one = verdict.remedy
    if one is None:
        return ""
    metric = METRICS[verdict.metric]
    detectable = metric.gap_words(one.detectable, sign=False)
    text = f"Detectable difference (80 % power, {runs(verdict, one.finding.pairs)}): {detectable}."
    repeats = count(one.repeats, "repeat") if one.kind == "folds" else one.repeats
    return text + REMEDIES[one.kind].format(
        repeats=repeats,
        folds=one.folds,
        gap=metric.gap_words(one.finding.difference),
        times=ratio(one.graphs),
        fewer=", or fewer methods" if one.finding.tests > 1 else "",
    )


def advice(verdict: Verdict) -> tuple[str, str]:
    """What to use, and the method to train for it, if any."""
    values, top, best = _beside(verdict), verdict.baseline, verdict.best
    if verdict.floor is not None:
        return ADVICE["floor"].format(constant=verdict.floor.words), ""
    behind = top is not None and (verdict.winner == top.other or best is None)
    if top is not None and top.kind != "better" and behind:
        return ADVICE["baseline"].format(**values), ""
    if best is None:
        if verdict.reference != REFERENCE or verdict.kind not in ("none", "worse", "equal"):
            return "", ""
        return ADVICE["open" if verdict.remedy else "plain"], REFERENCE
    if top is not None and top.kind != "better":
        return ADVICE["train, baseline"].format(**values | {"method": best}), best
    names = [one.other for one in verdict.controls if one.kind != "better"]
    if names:
        return ADVICE["train, controls"].format(method=best, controls=listed(names, "or")), best
    return ADVICE["train"].format(method=best), best
