"""Methods across data sets: average ranks, what differs, and a verdict in words.

A method that wins on one data set may lose on the next. Data sets are independent of each other but
their scores are not of one scale, so methods are ranked within each, as Demšar (2006, *Statistical
comparisons of classifiers over multiple data sets*) recommends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from statistics import median
from typing import Any

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.protocol import BASELINE, Condition
from graph_transplant.experiments.results import Results, plain_rows
from graph_transplant.experiments.statistics import (
    average_ranks,
    critical_difference,
    friedman,
    holm,
    wilcoxon,
)
from graph_transplant.experiments.verdict import MAJORITY, SIGNIFICANT
from graph_transplant.format import count, listed, p_words

Row = dict[str, Any]


@dataclass(frozen=True)
class AgainstBaseline:
    """One method against ``vanilla`` over data sets, by Wilcoxon's signed-rank test.

    ``difference`` is the typical one: the median of the averages of any two differences (Hodges and
    Lehmann, 1963), whose sign is what the test judges.
    """

    method: str
    wins: int
    ties: int
    losses: int
    difference: float
    p_value: float | None
    p_holm: float | None


@dataclass(frozen=True)
class Across:
    """What several data sets say about the methods with one model."""

    model: str
    methods: tuple[str, ...]  # that every data set has finished, the best average rank first
    data: tuple[str, ...]
    scores: tuple[tuple[float, ...], ...]  # mean test scores [data][methods]
    ranks: tuple[float, ...]  # average of each method; 1 is best
    friedman_p: float | None  # whether the methods differ at all; None when all tie
    critical_difference: float  # ranks at least this far apart differ significantly
    wilcoxon: tuple[AgainstBaseline, ...]  # every other method against vanilla, if that is there
    left_out: tuple[str, ...]  # methods that some data set lacks or has not finished
    sentence: str


def across(every: Iterable[Results]) -> list[Across]:
    """Compare methods over at least two data sets, model by model.

    Each has one number of layers per model, or a selected one. Within a data set a method counts
    only with as many trials as the method that has the most: a mean over other folds is not
    comparable. Trials with wrong labels or fewer training graphs are not ranked.
    """
    models: dict[str, dict[str, dict[str, Row]]] = {}
    harder: Counter[str] = Counter()
    for row in [row for results in every for row in plain_rows(results.summary())]:
        model = row["model"] or ""
        if row["method"] == MAJORITY:
            continue  # a floor, not a method to rank
        if Condition.of(row) != Condition():
            harder[model] += 1
            continue
        block = models.setdefault(model, {}).setdefault(row["data"], {})
        if row["method"] in block:
            first = block[row["method"]]["layers"]
            raise GraphTransplantError(
                f"{row['method']} with {row['model']} on {row['data']} is given twice (layers: "
                f"{first} and {row['layers']}): give each data set once, and rows of one number of "
                "layers, or let validation select it"
            )
        block[row["method"]] = row
    # Methods without a network are ranked beside those of every model.
    alone = models.pop("", {})
    for blocks in models.values():
        for data in blocks:
            blocks[data] |= alone.get(data, {})
    if alone and not models:
        models["no network"] = alone
    if not models:
        raise GraphTransplantError(
            "no finished trials to rank: a ranking needs trials with label noise 0 and train "
            "fraction 1"
        )
    several = {model: blocks for model, blocks in models.items() if len(blocks) > 1}
    if not several:
        given = "; ".join(
            f"{model} on {', '.join(blocks)}" for model, blocks in sorted(models.items())
        )
        raise GraphTransplantError(
            f"methods are compared across at least 2 data sets with the same model, got {given}"
        )
    return [_across(model, several[model], harder[model]) for model in sorted(several)]


def _across(model: str, blocks: dict[str, dict[str, Row]], harder: int) -> Across:
    data = sorted(blocks)
    most = {name: max(row["trials"] for row in blocks[name].values()) for name in data}
    table = {
        name: {
            method: row["score_mean"]
            for method, row in blocks[name].items()
            if row["score_mean"] is not None and row["trials"] == most[name]
        }
        for name in data
    }
    every = {method for block in blocks.values() for method in block}
    common = sorted(method for method in every if all(method in table[name] for name in data))
    unfinished = [
        f"{method} is not finished on {name} ({row['trials']} of {most[name]} trials)"
        for name in data
        for method, row in sorted(blocks[name].items())
        if row["trials"] < most[name]
    ]
    if len(common) < 2:
        raise GraphTransplantError(
            f"{model}: the data sets {', '.join(data)} must have at least 2 methods in common, got "
            + "; ".join([", ".join(common) or "none", *unfinished])
        )
    mean_ranks = average_ranks([[table[name][method] for method in common] for name in data])
    ranked = sorted(zip(mean_ranks, common, strict=True))
    methods = [method for _, method in ranked]
    ranks = [rank for rank, _ in ranked]
    scores = [[table[name][method] for method in methods] for name in data]
    tested = friedman(scores)
    against = _against_baseline(methods, scores)
    return Across(
        model=model,
        methods=tuple(methods),
        data=tuple(data),
        scores=tuple(tuple(row) for row in scores),
        ranks=tuple(ranks),
        friedman_p=None if tested is None else tested[1],
        critical_difference=critical_difference(len(methods), len(data)),
        wilcoxon=against,
        left_out=tuple(sorted(every - set(common))),
        sentence=_sentence(model, methods, ranks, tested, len(data), against, unfinished, harder),
    )


def _against_baseline(
    methods: Sequence[str], scores: Sequence[Sequence[float]]
) -> tuple[AgainstBaseline, ...]:
    if BASELINE not in methods:
        return ()
    plain = methods.index(BASELINE)
    others = [number for number in range(len(methods)) if number != plain]
    # Rounded: scores that differ by a rounding error tie.
    gains = [[round(row[number] - row[plain], 12) for row in scores] for number in others]
    p_values = [wilcoxon(column) for column in gains]
    return tuple(
        AgainstBaseline(
            methods[number],
            wins=sum(gain > 0 for gain in column),
            ties=sum(gain == 0 for gain in column),
            losses=sum(gain < 0 for gain in column),
            difference=median((a + b) / 2 for a, b in combinations_with_replacement(column, 2)),
            p_value=p_value,
            p_holm=p_holm,
        )
        for number, column, p_value, p_holm in zip(
            others, gains, p_values, holm(p_values), strict=True
        )
    )


def _sentence(
    model: str,
    methods: Sequence[str],
    ranks: Sequence[float],
    tested: tuple[float, float] | None,
    blocks: int,
    against: Sequence[AgainstBaseline],
    unfinished: Sequence[str],
    harder: int,
) -> str:
    best = [method for method, rank in zip(methods, ranks, strict=True) if rank - ranks[0] < 1e-9]
    names = listed(best)
    verb = "has" if len(best) == 1 else "share"
    among = f"{ranks[0]:.2f} among {len(methods)} methods"
    parts = [
        f"Over {blocks} data sets with {model}, {names} {verb} the best average rank, {among}."
    ]
    if tested is None:
        parts.append("All methods tie everywhere.")
    else:
        differ = "differ" if tested[1] < SIGNIFICANT else "do not differ significantly"
        parts.append(f"The methods {differ} (Friedman's test, {p_words(tested[1])}).")
    parts += _words_against(blocks, against)
    # The most extreme outcome, one method ahead everywhere, has this p-value.
    smallest = 0.5 ** (blocks - 1)
    if smallest > SIGNIFICANT:
        parts.append(
            f"With {blocks} data sets such a test can hardly find anything: even a win on each of "
            f"them has p = {smallest:.2g}. Take this as a hint."
        )
    if unfinished:
        parts.append(f"Left out of the ranking: {'; '.join(unfinished)}.")
    if harder:
        parts.append(
            f"{count(harder, 'row')} with wrong labels or fewer training graphs "
            f"{'is' if harder == 1 else 'are'} not ranked."
        )
    return " ".join(parts)


def _words_against(blocks: int, against: Sequence[AgainstBaseline]) -> list[str]:
    if not against:
        return [f"Without {BASELINE} among the methods no gain is tested."]
    family = sum(row.p_value is not None for row in against)
    correction = f" after Holm's correction over {family} methods" if family > 1 else ""
    significant = [row for row in against if row.p_holm is not None and row.p_holm < SIGNIFICANT]
    sentences = []
    for row in significant:
        gains = (row.difference, row.wins - row.losses) > (0.0, 0)
        verb, number = ("beats", row.wins) if gains else ("is worse than", row.losses)
        sentences.append(
            f"{row.method} {verb} {BASELINE} on {number} of {blocks} data sets (Wilcoxon's test, "
            f"{p_words(row.p_holm)}{correction})."
        )
    if not significant:
        first = against[0]
        subject = "No method differs" if against[1:] else f"{first.method} does not differ"
        sentences.append(
            f"{subject} significantly from {BASELINE} across data sets; {first.method} is better "
            f"on {first.wins} and worse on {first.losses} of {blocks} (Wilcoxon's test, "
            f"{p_words(first.p_holm)}{correction})."
        )
    return sentences
