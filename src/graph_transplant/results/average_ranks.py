"""Comparison of methods across data sets: average ranks, tests and a verdict in words.

Scores of different data sets are not on one scale, so methods are ranked within each, as Demšar
(2006, *Statistical comparisons of classifiers over multiple data sets*) recommends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import combinations_with_replacement
from statistics import median
from typing import TYPE_CHECKING

from graph_transplant.errors import GraphTransplantError
from graph_transplant.methods import MAJORITY, REFERENCE, method_of
from graph_transplant.metrics import METRICS
from graph_transplant.results.record import Condition
from graph_transplant.results.results import Results
from graph_transplant.results.statistics import (
    average_ranks,
    critical_difference,
    friedman,
    holm,
    wilcoxon,
)
from graph_transplant.results.verdict import SIGNIFICANT, Row
from graph_transplant.utils.text import count, listed, number, p_words

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class AgainstBaseline:
    """One method against ``vanilla`` across data sets, by Wilcoxon's signed-rank test.

    ``difference`` is the Hodges-Lehmann estimate: the median of all pairwise means of differences.
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
    """Comparison of methods across data sets, with one model."""

    model: str
    methods: tuple[str, ...]  # finished on every data set, best average rank first
    data: tuple[str, ...]
    scores: tuple[tuple[float, ...], ...]  # mean test scores [data][methods]
    ranks: tuple[float, ...]  # average per method; 1 is best
    friedman_p: float | None  # None if all methods tie
    critical_difference: float  # ranks at least this far apart differ significantly
    wilcoxon: tuple[AgainstBaseline, ...]  # empty without vanilla
    left_out: tuple[str, ...]  # methods missing or unfinished on some data set
    share: bool = True  # scores are shown in per cent, differences in points
    sentence: str = ""

    @property
    def frame(self) -> pd.DataFrame:
        """One row per method, best first: average rank and Wilcoxon's test against vanilla."""
        import pandas as pd

        ranks = pd.DataFrame({"method": self.methods, "rank": self.ranks})
        columns = [one.name for one in fields(AgainstBaseline)]
        tests = pd.DataFrame([asdict(one) for one in self.wilcoxon], columns=columns)
        counts = dict.fromkeys(("wins", "ties", "losses"), "Int64")
        return ranks.merge(tests.astype(counts), how="left", on="method")


def across(every: Iterable[Results]) -> list[Across]:
    """Compare methods across at least two data sets, separately for each model.

    Each data set needs a single number of layers per model, fixed or selected. Methods with fewer
    trials than other networks on a data set are left out, since means over different folds are not
    comparable. Trials with wrong labels or fewer training graphs are not ranked.
    """
    models: dict[str, dict[str, dict[str, Row]]] = {}
    harder: Counter[str] = Counter()
    for row in [row for results in every for row in results.rows]:
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
    # Methods without a network are ranked together with those of every model.
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
    metrics = {name: METRICS[row["metric"]] for name in data for row in blocks[name].values()}
    if len({metric.share for metric in metrics.values()}) > 1:
        given = ", ".join(f"{name} ({metric.word})" for name, metric in metrics.items())
        raise GraphTransplantError(
            f"{model}: the data sets have scores on different scales, {given}: rank them separately"
        )
    # Of networks: baselines finish first in an interrupted comparison.
    most = {
        name: max((method_of(method).network, row["trials"]) for method, row in block.items())[1]
        for name, block in blocks.items()
    }
    table = {
        name: {
            method: row["score_mean"]
            for method, row in blocks[name].items()
            if row["score_mean"] is not None and row["trials"] >= most[name]
        }
        for name in data
    }
    every = {method for block in blocks.values() for method in block}
    common = sorted(method for method in every if all(method in table[name] for name in data))
    if len(common) < 2:
        raise GraphTransplantError(
            f"{model}: the data sets {', '.join(data)} must have at least 2 methods in common that "
            f"are finished, got {', '.join(common) or 'none'}"
        )
    mean_ranks = average_ranks([[table[name][method] for method in common] for name in data])
    ranked = sorted(zip(mean_ranks, common, strict=True))
    methods = [method for _, method in ranked]
    scores = [[table[name][method] for method in methods] for name in data]
    tested = friedman(scores)
    found = Across(
        model=model,
        methods=tuple(methods),
        data=tuple(data),
        scores=tuple(tuple(row) for row in scores),
        ranks=tuple(rank for rank, _ in ranked),
        friedman_p=None if tested is None else tested[1],
        critical_difference=critical_difference(len(methods), len(data)),
        wilcoxon=_against_baseline(methods, scores),
        left_out=tuple(sorted(every - set(common))),
        share=next(iter(metrics.values())).share,
    )
    return replace(found, sentence=_sentence(found, harder))


def _against_baseline(
    methods: Sequence[str], scores: Sequence[Sequence[float]]
) -> tuple[AgainstBaseline, ...]:
    if REFERENCE not in methods:
        return ()
    plain = methods.index(REFERENCE)
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


def _sentence(found: Across, harder: int) -> str:
    blocks, first = len(found.data), found.ranks[0]
    best = [m for m, rank in zip(found.methods, found.ranks, strict=True) if rank - first < 1e-9]
    differ = found.friedman_p is not None and found.friedman_p < SIGNIFICANT
    share = "has" if len(best) == 1 else "share"
    parts = [
        (
            f"Over {blocks} data sets with {found.model}, {listed(best)} {share} the best average "
            f"rank, {number(first, 2)} among {len(found.methods)} methods."
        ),
        (
            f"The methods {'differ' if differ else 'are not shown to differ'} (Friedman's test, "
            f"{p_words(found.friedman_p)})."
        ),
    ]
    significant = [
        row for row in found.wilcoxon if row.p_holm is not None and row.p_holm < SIGNIFICANT
    ]
    if not found.wilcoxon:
        parts.append(f"Without {REFERENCE} among the methods no gain is tested.")
    elif not significant:
        parts.append(f"No method is shown to differ from {REFERENCE} (Wilcoxon's test).")
    parts += [
        f"{row.method} is better than {REFERENCE} on {row.wins} and worse on {row.losses} of "
        f"{blocks} (Wilcoxon's test, {p_words(row.p_holm)} after Holm)."
        for row in significant or found.wilcoxon[:1]
    ]
    # The smallest possible p-value: one method is ahead on every data set.
    tests = sum(row.p_value is not None for row in found.wilcoxon)
    smallest = min(1.0, 0.5 ** (blocks - 1) * max(tests, 1))
    if smallest > SIGNIFICANT:
        parts.append(
            f"With {blocks} data sets even a win on each of them has {p_words(smallest)}"
            f"{' after Holm' if tests > 1 else ''}: preliminary."
        )
    if found.left_out:
        parts.append(f"Left out, not finished on every data set: {listed(found.left_out)}.")
    if harder:
        rows = count(harder, "row")
        parts.append(f"Not ranked: {rows} with wrong labels or fewer training graphs.")
    return " ".join(parts)
