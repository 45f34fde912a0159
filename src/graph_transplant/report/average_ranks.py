"""Page across data sets: average ranks, their diagram, and each data set."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from graph_transplant.config.recipes import MODELS
from graph_transplant.errors import GraphTransplantError
from graph_transplant.figures import render_chart
from graph_transplant.methods import REFERENCE
from graph_transplant.report.comparison import colour_classes
from graph_transplant.report.page import render
from graph_transplant.report.tables import ranking
from graph_transplant.results.average_ranks import Across
from graph_transplant.results.results import Results
from graph_transplant.results.sentences import join_verdicts
from graph_transplant.results.verdict import SIGNIFICANT
from graph_transplant.utils.text import NOTHING, listed, number, percent, points


def render_across(found: Sequence[Across], every: Sequence[Results]) -> str:
    """Render the page across data sets."""
    if not found:
        raise GraphTransplantError("a page across data sets needs at least one model, got none")
    methods = sorted(
        {name for results in every for name in results.methods}, key=lambda m: (m != REFERENCE, m)
    )
    verdicts = {group: one for results in every for group, one in results.verdicts.items()}
    data = list(dict.fromkeys(name for one in found for name in one.data))
    return render(
        "across.html",
        headline=_headline(found, len(data)),
        line=join_verdicts(verdicts),
        sections=[_section(one, place, methods) for place, one in enumerate(found, 1)],
        tables=[
            (ranking(group, part), results.verdicts[group])
            for results in every
            for group, part in results.groups.items()
        ],
        data=data,
        significant=SIGNIFICANT,
        colours=colour_classes(methods, REFERENCE),
    )


def _headline(found: Sequence[Across], sets: int) -> str:
    texts = []
    for one in found:
        better = [
            row.method
            for row in one.wilcoxon
            if row.p_holm is not None and row.p_holm < SIGNIFICANT and row.difference > 0
        ]
        if better:
            verb = "beats" if len(better) == 1 else "beat"
            network = f" with {one.model}" if len(found) > 1 else ""
            texts.append(
                f"{listed(better)} {verb} {REFERENCE} across {len(one.data)} data sets{network}"
            )
    if texts:
        return "; ".join(texts)
    if any(one.wilcoxon for one in found):
        return f"No method is shown to be better than {REFERENCE} across {sets} data sets"
    return f"Methods compared across {sets} data sets"


def _section(one: Across, place: int, methods: Sequence[str]) -> dict[str, Any]:
    against = {row.method: row for row in one.wilcoxon}
    best = [max(row) for row in one.scores]
    form = percent if one.share else number
    gap = points if one.share else partial(number, sign=True)
    gaps = {row.method: gap(row.difference) for row in one.wilcoxon}
    scores = [
        (method, [(form(value), value == top) for value, top in zip(column, best, strict=True)])
        for method, column in zip(one.methods, zip(*one.scores, strict=True), strict=True)
    ]
    return {
        "found": one,
        "title": one.model.upper() if one.model in MODELS else one.model,
        "rows": [
            (method, rank, against.get(method), gaps.get(method, NOTHING))
            for method, rank in zip(one.methods, one.ranks, strict=True)
        ],
        "diagram": render_chart(one, "ranks", prefix=f"model-{place}-", methods=methods),
        "scores": scores,
        "difference": "Difference, points" if one.share else "Difference",
        "unit": " in %" if one.share else "",
    }
