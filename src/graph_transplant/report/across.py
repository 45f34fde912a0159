"""The page of several data sets: average ranks, their diagram, and each data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.across import Across, AgainstBaseline
from graph_transplant.experiments.protocol import BASELINE
from graph_transplant.experiments.results import Results
from graph_transplant.experiments.verdict import SIGNIFICANT, join_verdicts
from graph_transplant.figures import Drawn, drawn
from graph_transplant.files import write_atomically
from graph_transplant.format import listed, p_value, percent, points
from graph_transplant.report.comparison import colour_classes
from graph_transplant.report.page import render
from graph_transplant.report.tables import ranking


@dataclass(frozen=True)
class Section:
    """What the page says about one model."""

    found: Across
    title: str
    rows: list[dict[str, str]]
    diagram: Drawn | None
    scores: list[tuple[str, list[tuple[str, bool]]]]
    left_out: str


def write_across(found: Sequence[Across], every: Sequence[Results], path: Path) -> None:
    """Write the page of several data sets, in one step."""
    write_atomically(path, render_across(found, every))


def render_across(found: Sequence[Across], every: Sequence[Results]) -> str:
    """The page of several data sets."""
    if not found:
        raise GraphTransplantError("a page across data sets needs at least one model, got none")
    methods = sorted(
        {name for results in every for name in results.methods}, key=lambda m: (m != BASELINE, m)
    )
    verdicts = {group: one for results in every for group, one in results.verdicts.items()}
    return render(
        "across.html",
        headline=_headline(found),
        line=join_verdicts(verdicts),
        sections=[_section(one, number, methods) for number, one in enumerate(found, 1)],
        tables=[
            (ranking(group, part), results.verdicts[group])
            for results in every
            for group, part in results.groups.items()
        ],
        data=list(dict.fromkeys(name for one in found for name in one.data)),
        colours=colour_classes(methods, BASELINE),
    )


def _headline(found: Sequence[Across]) -> str:
    count = len({name for one in found for name in one.data})
    better = [
        row.method
        for one in found
        for row in one.wilcoxon
        if row.p_holm is not None and row.p_holm < SIGNIFICANT and row.wins > row.losses
    ]
    if better:
        verb = "beats" if len(set(better)) == 1 else "beat"
        return f"{listed(list(dict.fromkeys(better)))} {verb} {BASELINE} across {count} data sets"
    if any(one.wilcoxon for one in found):
        return f"No method beats {BASELINE} significantly across {count} data sets"
    return f"Methods compared across {count} data sets"


def _direction(row: AgainstBaseline | None) -> str:
    if row is None or row.p_holm is None or row.p_holm >= SIGNIFICANT:
        return ""
    return "better" if row.difference > 0 else "worse"


def _section(one: Across, number: int, methods: Sequence[str]) -> Section:
    against = {row.method: row for row in one.wilcoxon}
    rows = []
    for method, rank in zip(one.methods, one.ranks, strict=True):
        row = against.get(method)
        rows.append(
            {
                "method": method,
                "rank": f"{rank:.2f}",
                "record": "-" if row is None else f"{row.wins} : {row.ties} : {row.losses}",
                "difference": points(None if row is None else row.difference),
                "direction": _direction(row),
                "p": p_value(None if row is None else row.p_holm),
            }
        )
    best = [max(row) for row in one.scores]
    scores = [
        (
            method,
            [(percent(score), score == top) for score, top in zip(column, best, strict=True)],
        )
        for method, column in zip(one.methods, zip(*one.scores, strict=True), strict=True)
    ]
    return Section(
        one,
        one.model.upper(),
        rows,
        drawn(one, "ranks", prefix=f"model-{number}-", methods=methods),
        scores,
        listed(one.left_out) if one.left_out else "",
    )
