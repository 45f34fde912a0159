"""Page across data sets: average ranks, their diagram, and each data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.across import Across
from graph_transplant.experiments.protocol import BASELINE
from graph_transplant.experiments.results import Results
from graph_transplant.experiments.verdict import SIGNIFICANT, join_verdicts
from graph_transplant.figures import drawn
from graph_transplant.format import listed, percent
from graph_transplant.report.comparison import colour_classes
from graph_transplant.report.page import render
from graph_transplant.report.tables import ranking


def render_across(found: Sequence[Across], every: Sequence[Results]) -> str:
    """Render the page across data sets."""
    if not found:
        raise GraphTransplantError("a page across data sets needs at least one model, got none")
    methods = sorted(
        {name for results in every for name in results.methods}, key=lambda m: (m != BASELINE, m)
    )
    verdicts = {group: one for results in every for group, one in results.verdicts.items()}
    data = list(dict.fromkeys(name for one in found for name in one.data))
    return render(
        "across.html",
        headline=_headline(found, len(data)),
        line=join_verdicts(verdicts),
        sections=[_section(one, number, methods) for number, one in enumerate(found, 1)],
        tables=[
            (ranking(group, part), results.verdicts[group])
            for results in every
            for group, part in results.groups.items()
        ],
        data=data,
        significant=SIGNIFICANT,
        colours=colour_classes(methods, BASELINE),
    )


def _headline(found: Sequence[Across], sets: int) -> str:
    rows = [row for one in found for row in one.wilcoxon]
    better = {
        row.method: None
        for row in rows
        if row.p_holm is not None and row.p_holm < SIGNIFICANT and row.wins > row.losses
    }
    if better:
        verb = "beats" if len(better) == 1 else "beat"
        return f"{listed(list(better))} {verb} {BASELINE} across {sets} data sets"
    if rows:
        return f"No method beats {BASELINE} significantly across {sets} data sets"
    return f"Methods compared across {sets} data sets"


def _section(one: Across, number: int, methods: Sequence[str]) -> dict[str, Any]:
    against = {row.method: row for row in one.wilcoxon}
    best = [max(row) for row in one.scores]
    scores = [
        (method, [(percent(value), value == top) for value, top in zip(column, best, strict=True)])
        for method, column in zip(one.methods, zip(*one.scores, strict=True), strict=True)
    ]
    return {
        "found": one,
        "title": one.model.upper(),
        "rows": [
            (method, rank, against.get(method))
            for method, rank in zip(one.methods, one.ranks, strict=True)
        ],
        "diagram": drawn(one, "ranks", prefix=f"model-{number}-", methods=methods),
        "scores": scores,
    }
