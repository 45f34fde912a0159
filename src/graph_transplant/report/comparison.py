"""Comparison page: one file that works offline and without its script."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes

from graph_transplant.config.compare import Settings
from graph_transplant.config.options import MODELS
from graph_transplant.figures import CHARTS, RenderedChart, networks, render_chart, write
from graph_transplant.figures.chart import Colours, default_colours
from graph_transplant.figures.style import VARIABLES, style
from graph_transplant.methods import METHODS, method_key, method_of
from graph_transplant.metrics import METRICS
from graph_transplant.report.explanations import gallery
from graph_transplant.report.page import Texts, render, setting_groups, unique_id
from graph_transplant.report.tables import Ranking, ranking
from graph_transplant.report.typography import slug
from graph_transplant.results.calls import Call
from graph_transplant.results.groups import Group, GroupResults, Trials
from graph_transplant.results.record import Condition, TrialRecord
from graph_transplant.results.results import Results
from graph_transplant.results.sentences import joint_headline
from graph_transplant.results.verdict import Verdict
from graph_transplant.utils.files import COMMANDS, write_atomically
from graph_transplant.utils.text import count, duration

FOLDER = "figures"  # folder for figure files, next to the page


class FigureGroup(NamedTuple):
    """Figures that are folded together."""

    id: str
    title: str
    figures: list[RenderedChart]


class Section(NamedTuple):
    """Content for one model under one condition."""

    id: str
    group: Group
    verdict: Verdict
    ranking: Ranking
    forest: RenderedChart | None
    folded: list[FigureGroup]
    gallery: dict[str, Any]
    pairs: list[dict[str, Any]]


def write_report(results: Results, path: Path) -> Path:
    """Write the comparison page, and its figures as SVG and CSV in a folder next to it."""
    sections, axes = _sections(results)
    folder = figures_folder(path)
    write_atomically(path, _render(results, sections, axes, folder.name))
    groups = [*axes, *(group for section in sections for group in section.folded)]
    every = [section.forest for section in sections if section.forest]
    for one in [*every, *(one for group in groups for one in group.figures)]:
        write(one, folder)
    return path


def render_report(results: Results) -> str:
    """Render the comparison page; the same records yield the same page."""
    return _render(results, *_sections(results), FOLDER)


def figures_folder(page: Path) -> Path:
    """Folder for the figures of a page, distinct for pages in the same directory."""
    return page.parent / (FOLDER if page.stem == "report" else f"{page.stem}-{FOLDER}")


def _sections(results: Results) -> tuple[list[Section], list[FigureGroup]]:
    results.check()
    names, colours = {"axes", "repeat", "words"}, default_colours(results)
    easiest = min((group.condition for group in results.groups), key=lambda one: one.order)
    found = [
        _section(part, names, colours, whole=group.condition == easiest)
        for group, part in results.groups.items()
    ]
    # The easiest condition first, groups with a comparison before single methods, and networks
    # that are not behind a baseline or have a finding before others.
    found.sort(
        key=lambda one: (
            one.group.condition != easiest,
            not one.verdict.compared,
            not method_of(one.verdict.winner or "").network,
            one.verdict.kind != "better",
        )
    )
    parts = networks(results)
    axes = [
        one._replace(title=f"{group.network}: {one.title}") if len(parts) > 1 else one
        for place, (group, part) in enumerate(parts.items(), 1)
        for one in _folded(part, names, f"axes-{place}", "network", colours)
    ]
    return found, axes


def _section(part: GroupResults, names: set[str], colours: Colours, *, whole: bool) -> Section:
    group = part.group
    stem = unique_id(slug(group.network or "no network", group.condition.short, most=40), names)
    return Section(
        id=stem,
        group=group,
        verdict=part.verdict,
        ranking=ranking(part),
        forest=render_chart(part, "forest", prefix=f"{stem}-", colours=colours),
        # Harder conditions get only the tables and the forest plot.
        folded=_folded(part, names, stem, "group", colours) if whole else [],
        gallery=gallery(part) if whole else {},
        pairs=[
            row | {"difference": METRICS[part.metric].gap(row["difference"])}
            for row in (part.pair_rows if len(part.methods) > 2 else [])
        ],
    )


def _folded(
    results: Trials, names: set[str], stem: str, every: str, colours: Colours
) -> list[FigureGroup]:
    """Charts with this value of ``every``, except the forest plot, by heading."""
    groups: dict[str, list[RenderedChart]] = {}
    for name, chart in CHARTS.items():
        if chart.every != every or name == "forest":
            continue
        if one := render_chart(results, name, prefix=f"{stem}-", colours=colours):
            groups.setdefault(chart.group or one.title, []).append(one)
    return [
        # A single chart needs no second heading.
        FigureGroup(
            unique_id(f"{stem}--{slug(title)}", names), title if len(own) > 1 else own[0].title, own
        )
        for title, own in groups.items()
    ]


def _render(
    results: Results, sections: Sequence[Section], axes: Sequence[FigureGroup], folder: str
) -> str:
    lead = sections[0]
    first = results.groups[lead.group].chosen[0]
    colours = {name: VARIABLES[colour] for name, colour in default_colours(results).items()}
    compared = {one.group: one.verdict for one in sections}
    # The headline is about the easiest condition only.
    first_of = {g: one for g, one in compared.items() if g.condition == lead.group.condition}
    said, verdict = joint_headline(first_of, results.reference), lead.verdict
    network = f"{lead.group.network}: " if lead.group.network else ""
    versions = ", ".join(sorted({one.settings["version"] for one in results.chosen}))
    return render(
        "report.html",
        data=first.data,
        headline=said,
        # With several groups, the headline may not state the verdict of the lead.
        sentence=verdict.evidence if said == verdict.headline else network + verdict.sentence,
        lead=lead,
        sections=sections,
        axes=axes,
        facts=_facts(results, first),
        notes=results.notes,
        next=_next(results, lead),
        commands=_commands(results),
        settings=_settings(first.settings, versions),
        colours=colours,
        methods=[(name, method_of(name).summary, colours[name]) for name in results.methods],
        definitions={
            column.title: column.definition for one in sections for column in one.ranking.columns
        },
        folder=folder,
        version=versions,
        fingerprint=first.fingerprint,
    )


def _next(results: Results, lead: Section) -> list[tuple[str, str]]:
    """Next steps: a sentence and an optional command each."""
    verdict, call = lead.verdict, results.call_of(lead.group)
    steps: list[tuple[str, str]] = []
    if verdict.next:
        steps.append((verdict.next, _settling(call, verdict) if call else ""))
    text, method = verdict.advice
    if lead.group.condition != Condition():
        said = f"This was found {lead.group.condition.words}. Compare on all graphs as they are"
        whole = call.compare(label_noise=None, train_fraction=None) if call else ""
        steps.append((f"{said} before you train a model{':' if whole else '.'}", whole))
    elif text and not method:  # a baseline, or nothing yet: more trials come second
        steps.insert(0, (text, ""))
    elif lead.group.model in MODELS and method_key(method) in METHODS:  # not the user's own
        own = (r for r in results.groups[lead.group].chosen if r.method == method)
        steps.append((text, call.train(next(own)) if call else ""))
    if not verdict.compared:
        added = "another method" if results.reference in results.methods else results.reference
        steps.append((f"Add {added} to compare.", ""))
    return steps


def _settling(call: Call, verdict: Verdict) -> str:
    """The command that settles an open finding; empty if only more graphs could."""
    remedy = verdict.remedy
    if remedy is None or not remedy.repeats:
        return ""
    if remedy.kind != "folds":
        return call.compare(repeats=remedy.repeats)
    # Records of other folds belong into another directory.
    out = None if call.out is None else f"{call.out}-{remedy.folds}-folds"
    return replace(call, out=out).compare(folds=remedy.folds, repeats=remedy.repeats)


def _commands(results: Results) -> list[str]:
    """The commands that made the records; for earlier versions, as they were noted."""
    if results.calls:
        return list(dict.fromkeys(call.compare() for call in results.calls))
    path = None if results.directory is None else results.directory / COMMANDS
    return path.read_text("utf-8").splitlines() if path is not None and path.is_file() else []


def _facts(results: Results, first: TrialRecord) -> list[tuple[str, object]]:
    whole = results if results.selection == "none" else replace(results, selection="none")
    frame = whole.frame  # with all candidates
    repeats = int(frame["repeat"].max()) + 1
    place = ("folds", f"{first.folds} × {repeats}" if repeats > 1 else first.folds)
    if first.one_split:
        place = (f"runs of the {first.settings['split']} split", repeats)
    timed = frame["processor_seconds"].notna().all()
    seconds = frame["processor_seconds" if timed else "seconds"].sum()
    parts = [str(n) for n in (first.sizes.train, first.sizes.validation, first.sizes.test)]
    return [
        ("graphs", f"{first.sizes.graphs:,}"),
        place,
        ("train : validation : test", " : ".join(parts)),
        ("trials", f"{len(frame):,}"),
        ("training time", duration(float(seconds))),
        *_machines(frame),
        *([("warnings left out", results.ignored)] if results.ignored else []),
    ]


def _machines(frame: pd.DataFrame) -> list[tuple[str, object]]:
    """Processors that times were measured on; nothing if no record names one."""
    known = frame[["processor", "threads"]].dropna().drop_duplicates()
    names = [f"{name}, {count(int(threads), 'thread')}" for name, threads in known.to_numpy()]
    names += ["unknown"] if names and frame["processor"].isna().any() else []
    return [(f"processor{'s' if len(names) > 1 else ''}", "; ".join(names))] if names else []


def _settings(
    settings: Mapping[str, Any], versions: str
) -> tuple[dict[str, Texts], dict[str, Texts]]:
    shown = {**settings, "library version": versions}
    shown.pop("version", None)
    usual = asdict(Settings.of(shown["recipe"], "small")) | {"recipe": None, "attack": []}
    return setting_groups(shown, usual)


# -------------------------------------------------------------------- notebooks


def notebook_html(results: Results) -> str:
    """Render verdict, table and forest plot for a notebook."""
    parts = [(part.verdict, ranking(part), _picture(part)) for part in results.groups.values()]
    title, _ = CHARTS["forest"].words(results)
    return render("notebook.html", title=title, parts=parts, notes=results.notes)


def _picture(part: GroupResults) -> str:
    """Forest plot as a base64 PNG; empty if there is nothing to compare."""
    with style():
        axes = CHARTS["forest"].plot(part)
        if not isinstance(axes, Axes):
            return ""
        buffer = BytesIO()
        figure = axes.get_figure(root=True)
        assert figure is not None
        figure.savefig(buffer, format="png", dpi=110, bbox_inches="tight")
    return base64.b64encode(buffer.getvalue()).decode()
