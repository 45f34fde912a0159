"""The page of a comparison: one file, no network, and readable without its script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from markupsafe import Markup

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.across import Across
from graph_transplant.experiments.progress import duration
from graph_transplant.experiments.protocol import (
    BASELINE,
    METRICS,
    SCALES,
    Condition,
    Record,
    Settings,
    is_store_file,
    one_split,
    scale_of,
)
from graph_transplant.experiments.selection import Candidate, select, selection_table
from graph_transplant.experiments.summary import (
    SIGNIFICANT,
    Group,
    PairRow,
    SummaryRow,
    Verdict,
    group_records,
    listed,
    notes,
    p_cell,
    pairwise,
    processor_timed,
    summarise,
    training_seconds,
    verdict_line,
    verdicts,
)
from graph_transplant.files import write_atomically
from graph_transplant.report.drawing import (
    LEFT_OUT,
    REMAINING,
    TRANSPLANTED,
    draw_mark,
    draw_scale,
    plain,
)
from graph_transplant.report.figures import (
    Curve,
    ScoreRow,
    critical_difference_data,
    curves_data,
    differences_data,
    scores_data,
)
from graph_transplant.report.frame import (
    FOLDER,
    Figure,
    Table,
    brief,
    check_figures,
    figure,
    own_script,
    render,
    write_figures,
)
from graph_transplant.report.gallery import Gallery, gallery
from graph_transplant.report.names import COLOURS, Names, palette, short_names, slug
from graph_transplant.report.studies import axis_figures, study_figures
from graph_transplant.report.svg import (
    draw_critical_difference,
    draw_curves,
    draw_differences,
    draw_panels,
    draw_scores,
    exact_percent,
    percent,
    signed,
)
from graph_transplant.report.tables import (
    Ranking,
    direction_of,
    group_title,
    hundredths,
    points,
    ranking,
    rankings,
    three_digits,
    two_digits,
)

DATA_OPTIONS = ("smiles", "target", "id", "features", "task")
"""Options of the command that say how data are read."""

FEW_CONDITIONS = 3
"""A headline names so many conditions; more are counted."""

FLOOR = -1.0
"""Learning curves of R² are drawn down to here: before training has begun it may be anywhere."""

LONG = 8
"""A page with more figures than this has a table of contents."""

METHOD_NOTES = {
    "vanilla": "Plain training, without augmentation: what the others are compared with.",
    "transplant-dp": (
        "Graph Transplant: a salient part of one graph replaces a part of another; new edges keep "
        "the node degrees (degree preservation)."
    ),
    "transplant-ep": (
        "Graph Transplant whose new edges are proposed by a small network trained along the way "
        "(edge prediction)."
    ),
    "transplant-disconnected": "Ablation: the transplanted part gets no edges to its new graph.",
    "transplant-size-label": "Ablation: labels are mixed by number of nodes, not by saliency.",
    "transplant-scattered": "Ablation: the transplanted nodes are scattered, not a connected part.",
    "transplant-random": "Ablation: the transplanted part is chosen at random, not by saliency.",
    "manifold-mixup": "Graph embeddings and labels of two graphs are mixed after the readout.",
    "m-evolve": (
        "Edges of open triads are swapped; graphs whose label the model finds unreliable are left "
        "out."
    ),
    "drop-nodes": "Random nodes are dropped.",
    "perturb-edges": "Random edges are removed and as many added elsewhere.",
    "mask-nodes": "The features of random nodes are masked.",
    "subgraph": "A random connected part of the graph stands for the whole.",
    "if-mixup": "Node features, edges and labels of two graphs are interpolated.",
    "sub-mix": "A part of one graph is swapped for a part of another; labels follow the edges.",
    "node-sam": "A node is split in two, and two others are merged into one.",
    "g-mixup": "Graphs are drawn from a mixture of what is typical of two classes (graphons).",
    "drop-edge": "Random edges are removed.",
    "label-smoothing": "Control: softer labels, without any virtual graph.",
    "vanilla-x2": "Control: the original graphs twice per step, the same work without new graphs.",
    "saliency-shuffled": "Control: Graph Transplant (EP) with saliency shuffled within each graph.",
}
"""What each method is, for people who have not read the paper; one that is not here has no note."""

GLOSSARY = {
    "Accuracy": (
        "Share of test graphs whose class was predicted correctly. The test graphs of a fold are "
        "looked at once, after the best checkpoint was chosen on the validation graphs."
    ),
    "AUROC": (
        "Area under the ROC curve: the chance that a graph that has the label is ranked above one "
        "that does not; with several labels their mean. 50 % is guessing."
    ),
    "Average precision": (
        "Graphs are ranked by how likely they are to have the label: the mean, over those that "
        "have it, of the share that has it among all ranked as high or higher; with several labels "
        "their mean. Of two classes it is that of the second: the one with the higher number, and "
        "of classes that are words the rarer one. Guessing reaches the share of graphs that have "
        "the label."
    ),
    "R²": (
        "Share of the variance of the true values that the predictions explain; with several "
        "values their mean. 100 % is perfect, 0 % is as good as always saying the mean, and it may "
        "be worse than that. A point is a hundredth of R²."
    ),
    "RMSE and MAE": (
        "Root of the mean squared error, and mean absolute error, of the predicted values, in the "
        "units of the data; lower is better."
    ),
    "Chosen": (
        "Number of layers and parameters with the best mean score on validation graphs among those "
        "that were tried; test graphs had no say."
    ),
    "± and dots": (
        "The standard deviation over trials; each dot of a figure is one trial, that is one fold "
        "of one repeat. The range below a mean is its 95 % confidence interval."
    ),
    "Difference": (
        "Mean over folds of the score minus vanilla’s on the same fold, in percentage points. The "
        "range below it is the 95 % confidence interval."
    ),
    "Effect": (
        "The difference divided by how much it varies from fold to fold (Cohen’s d with Hedges’ "
        "correction): how clear it is, whatever the number of folds. 0.8 and more is called large."
    ),
    "p and p (Holm)": (
        "How likely a difference at least as large would be if the methods were equally good: a "
        "paired t-test with the correction of Nadeau and Bengio for overlapping training sets, "
        "then Holm’s correction for testing several methods. Below 0.05 a difference is called "
        "significant."
    ),
    "Average rank": (
        "On each data set the best method has rank 1, the next one 2, and so on; the mean over "
        "data sets is the average rank."
    ),
    "Critical difference": (
        "Average ranks at least this far apart differ significantly (Nemenyi’s test); methods that "
        "a bar joins do not."
    ),
    "Wilcoxon’s test": (
        "Whether a method is better than vanilla over data sets, judged by the ranks of the "
        "differences, then Holm’s correction for testing several methods."
    ),
    "ECE": (
        "Expected calibration error: how far stated confidence is from actual accuracy, over 15 "
        "bins. 0 is perfect, lower is better."
    ),
    "Loss": "Negative log-likelihood of the true class on the test graphs; lower is better.",
    "Adaptive ECE and Brier score": (
        "Adaptive ECE is the calibration error over bins that hold equally many graphs. The Brier "
        "score is the mean squared distance between stated probabilities and the truth. Of both, "
        "lower is better."
    ),
    "Temperature": (
        "The number by which a model’s outputs are divided so that its confidence fits the "
        "validation graphs best. It changes confidence, never the predicted class."
    ),
    "GradArgmax and random changes": (
        "An attack that knows the model: it adds and removes the edges whose gradient promises the "
        "largest loss. Here it spends its whole budget on changes, which makes it stronger than "
        "the paper’s wording. As a control, as many pairs of nodes are changed at random."
    ),
    "Deletion and insertion": (
        "Nodes are taken away, or put back, in the order of their saliency. If saliency finds "
        "what the model looks at, its confidence falls, or rises, faster than in a random order."
    ),
    "Degree distance": (
        "How far the degrees of the graphs that a method makes lie from those of the originals "
        "(Wasserstein distance). The control is the distance of two halves of the originals."
    ),
    "Time": (
        "Mean processor time of one training, and its ratio to vanilla; the duration of a whole "
        "trial where records have no processor time."
    ),
}
"""What the words of a page mean; a page shows those that stand on it."""

NOTHING_SELECTED = (
    "a report needs at least one fold in which {selection} selection has all it asks for, got "
    "{trials} trials without any"
)
"""What is said where selection leaves nothing to report."""

FIGURE_WORDS = {
    "calibration-error": ("ECE",),
    "reliability": ("Adaptive ECE and Brier score", "Temperature"),
    "robustness": ("GradArgmax and random changes",),
    "saliency-deletion": ("Deletion and insertion",),
    "samples": ("Degree distance",),
}
"""Words of the glossary that a figure needs, by its name."""

MADE, MAPS = "Virtual graphs", "Saliency"
"""Groups of figures under which drawn graphs stand."""


@dataclass(frozen=True)
class PairText:
    """A row of the table of all pairs, as text."""

    first: str
    second: str
    difference: str
    direction: str
    effect: str
    p_value: str
    p_holm: str


@dataclass(frozen=True)
class CandidateText:
    """A row of the table of candidates, as text."""

    method: str
    name: str
    layers: str
    validation: str
    trials: int
    chosen: str


@dataclass(frozen=True)
class FigureGroup:
    """Figures of one kind, which fold away together.

    Args:
        id: What links to it are called.
        title: Its heading.
        figures: The figures.
    """

    id: str
    title: str
    figures: list[Figure]


@dataclass(frozen=True)
class Section:
    """What the page says about one model with one number of layers under one condition."""

    id: str
    title: str
    data: str
    verdict: Verdict
    ranking: Ranking
    figures: list[Figure]
    groups: list[FigureGroup]
    gallery: Gallery
    pairs: list[PairText]
    candidates: list[CandidateText]
    words: frozenset[str]

    @property
    def all_figures(self) -> list[Figure]:
        """Every figure and drawing of the section."""
        grouped = [one for group in self.groups for one in group.figures]
        return [*self.figures, *grouped, *self.gallery.figures]


@dataclass(frozen=True)
class Content:
    """Everything that the page of a comparison shows, and the figures to write beside it."""

    main: list[Section]
    harder: list[Section]
    axes: list[FigureGroup]

    @property
    def sections(self) -> list[Section]:
        """All sections in the order of the page."""
        return [*self.main, *self.harder]

    @property
    def figures(self) -> list[Figure]:
        """All figures in the order of the page."""
        return [
            *(one for section in self.main for one in section.all_figures),
            *(one for group in self.axes for one in group.figures),
            *(one for section in self.harder for one in section.all_figures),
        ]


def write_report(
    records: Sequence[Record], path: str | Path, selection: str = "none", *, figures: bool = True
) -> None:
    """Write the page of a comparison, and its figures beside it.

    Args:
        records: The finished trials.
        path: The file; it is replaced in one step.
        selection: How one candidate per method is chosen, see
            :func:`~graph_transplant.experiments.selection.select`.
        figures: Whether to write every figure to a folder beside the page
            (:func:`figures_folder`), as SVG and its numbers as CSV. What an earlier page of this
            name left there is removed.
    """
    content = _content(records, selection)
    path = Path(path)
    folder = figures_folder(path)
    page = _render(records, selection, content, folder.name if figures else "")
    if figures:
        check_figures(content.figures)
    write_atomically(path, page)
    if figures:
        write_figures(content.figures, folder, manifest=f"{path.stem}.txt")


def figures_folder(page: str | Path) -> Path:
    """Give the folder for the figures of a page, so that two pages side by side have their own.

    Args:
        page: File of the page.

    Example:
        >>> figures_folder("a/report.html").as_posix(), figures_folder("a/chosen.html").as_posix()
        ('a/figures', 'a/chosen-figures')
    """
    page = Path(page)
    return page.parent / (FOLDER if page.stem == "report" else f"{page.stem}-{FOLDER}")


def render_report(
    records: Sequence[Record], selection: str = "none", *, figures: bool = True
) -> str:
    """Make the page of a comparison.

    The same records give the same page.

    Args:
        records: The finished trials, of one data set, at least one.
        selection: How one candidate per method is chosen.
        figures: Whether the page names the files of its figures, which lie beside it.

    Returns:
        A whole HTML document that needs nothing else.

    Raises:
        GraphTransplantError: If there are no records, or none that selection can use.
    """
    return _render(records, selection, _content(records, selection), FOLDER if figures else "")


def _content(records: Sequence[Record], selection: str) -> Content:
    if not records:
        raise GraphTransplantError("a report needs at least one finished trial, got no records")
    selected = select(records, selection)
    groups = group_records(selected)
    if not groups:
        raise GraphTransplantError(
            NOTHING_SELECTED.format(selection=selection, trials=len(records))
        )
    rows = summarise(records, selection)
    pairs = pairwise(records, selection)
    candidates = selection_table(records, selection)
    colours = palette(_method_names(rows), BASELINE)
    stems = _stems([verdict.group for verdict in verdicts(rows)])
    # Figures are called by their names in links and on disk: those of a page share one list.
    names = Names([*stems.values(), "axes", "repeat", "words"])
    sections = [
        _section(
            stems[verdict.group],
            names,
            verdict,
            [row for row in rows if row.group == verdict.group],
            groups[verdict.group],
            colours,
            [row for row in pairs if row.group == verdict.group],
            [row for row in candidates if _is_of(row, verdict.group)],
        )
        for verdict in verdicts(rows)
    ]
    plain = [one for one in sections if one.verdict.group.condition == Condition()]
    # What is compared comes before what stands alone.
    main = sorted(plain or sections, key=lambda one: not one.verdict.compared)
    # Candidates that were not chosen are left out, as everywhere on the page.
    ordered = [record for one in groups.values() for trials in one.values() for record in trials]
    axes = axis_figures(ordered, colours, rows[0].metric)
    return Content(
        main,
        [one for one in sections if one not in main],
        _grouped(_unique(axes, "axes", names), "axes"),
    )


def _render(records: Sequence[Record], selection: str, content: Content, folder: str) -> str:
    first = _first(records)
    methods = sorted(
        {row.method for section in content.sections for row in section.ranking.rows},
        key=_baseline_first,
    )
    colours = palette(methods, BASELINE)
    words = frozenset().union(*(section.words for section in content.sections))
    several = len(content.main) > 1
    return _page(
        "report.html",
        data=first["data"],
        headline=headline([section.verdict for section in content.main]),
        main=content.main,
        harder=content.harder,
        axes=content.axes,
        several=several,
        # A page that fits on two screens is quicker scrolled than read about.
        contents=len(content.sections) > 1 or len(content.figures) > LONG,
        facts=_facts(records),
        notes=notes(records, selection),
        commands=repeat_commands(records, selection),
        settings=_settings(first),
        colours=colours,
        methods=_method_notes(methods, colours),
        named=_named(methods),
        glossary=_glossary(words),
        scale=draw_scale(),
        marks={part: draw_mark(part) for part in (TRANSPLANTED, REMAINING, LEFT_OUT, "new edge")},
        files=content.figures if folder else [],
        folder=folder,
        version=first["settings"].get("version", ""),
        fingerprint=first["fingerprint"],
    )


def _first(records: Sequence[Record]) -> Record:
    """Give the trial that speaks for all where they agree, one without a handicap if there is."""
    return min(
        records,
        key=lambda record: (
            Condition.of(record) != Condition(),
            Condition.of(record),
            record["repeat"],
            record["fold"],
        ),
    )


def _method_names(rows: Sequence[SummaryRow]) -> list[str]:
    return sorted({row.method for row in rows}, key=_baseline_first)


def _is_of(row: Candidate, group: Group) -> bool:
    mine = (row.data, row.model, row.label_noise, row.train_fraction)
    return group.layers is None and mine == (
        group.data,
        group.model,
        group.label_noise,
        group.train_fraction,
    )


def _stems(groups: Sequence[Group]) -> dict[Group, str]:
    """Name every group for links and files, no two alike."""
    found: dict[Group, str] = {}
    for group in groups:
        layers = "chosen" if group.layers is None else str(group.layers)
        stem = slug(f"{group.model} {layers} {group.condition.short}", most=40)
        taken = sum(other == stem or other.startswith(f"{stem}-x") for other in found.values())
        found[group] = f"{stem}-x{taken + 1}" if taken else stem
    return found


def _unique(figures: Sequence[Figure], stem: str, names: Names) -> list[Figure]:
    """Put a stem before every figure's name, and a number behind those that come again."""
    return [replace(one, name=names.claim(f"{stem}-{one.name}")) for one in figures]


def _named(methods: Sequence[str]) -> dict[str, Markup]:
    """Write methods so that they fit over a drawing, no two alike."""
    return {
        name: Markup('<bdi title="{}">{}</bdi>').format(name, plain(text))
        if text != name
        else brief(name)
        for name, text in short_names(methods, 60).items()
    }


def _grouped(figures: Sequence[Figure], stem: str) -> list[FigureGroup]:
    # Two hyphens: no figure is called so, and links must not lead to two places.
    groups: dict[str, list[Figure]] = {}
    for one in figures:
        groups.setdefault(one.group, []).append(one)
    return [FigureGroup(f"{stem}--{slug(name)}", name, own) for name, own in groups.items()]


@dataclass(frozen=True)
class RankRow:
    """A row of the table of average ranks, as text."""

    method: str
    colour: str
    rank: str
    record: str
    difference: str
    direction: str
    p_value: str
    p_holm: str


@dataclass(frozen=True)
class AcrossSection:
    """What the page says about one model over several data sets."""

    title: str
    sentence: str
    rows: list[RankRow]
    figures: list[Figure]
    data: tuple[str, ...]
    scores: list[tuple[str, str, list[tuple[str, bool]]]]
    left_out: str


def write_across(found: Sequence[Across], rows: Sequence[SummaryRow], path: str | Path) -> None:
    """Write the page of several data sets, in one step.

    Args:
        found: What :func:`~graph_transplant.experiments.across.across` says, one per model.
        rows: The rows it was made of.
        path: The file.
    """
    write_atomically(Path(path), render_across(found, rows))


def render_across(found: Sequence[Across], rows: Sequence[SummaryRow]) -> str:
    """Make the page of several data sets: ranks and their diagram, then each data set.

    Args:
        found: What :func:`~graph_transplant.experiments.across.across` says, at least one.
        rows: The rows it was made of.

    Returns:
        A whole HTML document that needs nothing else.

    Raises:
        GraphTransplantError: If there is nothing to show.
    """
    if not found:
        raise GraphTransplantError("a page across data sets needs at least one model, got none")
    rows = list(rows)
    decided = verdicts(rows)
    methods = _method_names(rows)
    colours = palette(methods, BASELINE)
    names = list(dict.fromkeys(name for one in found for name in one.data))
    said = {verdict.group: verdict for verdict in decided}
    tables = [(one, said[one.group]) for one in rankings(rows)]
    words = {"Average rank", "Critical difference", "Wilcoxon’s test"}
    return _page(
        "across.html",
        headline=_across_headline(found),
        line=verdict_line(decided),
        sections=[_across_section(one, colours) for one in found],
        tables=tables,
        data=names,
        colours=colours,
        methods=_method_notes(methods, colours),
        glossary=_glossary(frozenset(words).union(*(_words(one) for one, _ in tables))),
    )


def _page(name: str, **content: object) -> str:
    return render(name, {"tied": _tied, "brief": brief}, own_script(), **content)


def _method_notes(methods: Sequence[str], colours: Mapping[str, str]) -> list[tuple[str, str, str]]:
    # The parameters stand in the name; what the method is, they do not change.
    return [(name, METHOD_NOTES.get(name.partition(":")[0], ""), colours[name]) for name in methods]


def _glossary(words: frozenset[str]) -> list[tuple[str, str]]:
    return [(word, text) for word, text in GLOSSARY.items() if word in words]


def _across_headline(found: Sequence[Across]) -> str:
    count = len({name for one in found for name in one.data})
    better = [
        row.method
        for one in found
        for row in one.wilcoxon
        if row.p_holm is not None and row.p_holm < SIGNIFICANT and row.wins > row.losses
    ]
    if better:
        names = listed(list(dict.fromkeys(better)))
        verb = "beats" if len(set(better)) == 1 else "beat"
        return f"{names} {verb} {BASELINE} across {count} data sets"
    if any(one.wilcoxon for one in found):
        return f"No method beats {BASELINE} significantly across {count} data sets"
    return f"Methods compared across {count} data sets"


def _across_section(one: Across, colours: Mapping[str, str]) -> AcrossSection:
    against = {row.method: row for row in one.wilcoxon}
    rows = []
    for method, rank in zip(one.methods, one.ranks, strict=True):
        row = against.get(method)
        rows.append(
            RankRow(
                method=method,
                colour=colours[method],
                rank=f"{rank:.2f}",
                record="-" if row is None else f"{row.wins} : {row.ties} : {row.losses}",
                difference="-" if row is None else points(row.difference),
                direction="" if row is None else direction_of(row.difference, row.p_holm),
                p_value=p_cell(None if row is None else row.p_value),
                p_holm=p_cell(None if row is None else row.p_holm),
            )
        )
    diagram = critical_difference_data(one)
    label = (
        f"Average ranks over {len(one.data)} data sets, critical difference "
        f"{one.critical_difference:.2f}. "
        + "; ".join(f"{name} {rank:.2f}" for name, rank in zip(one.methods, one.ranks, strict=True))
        + ". Not significantly different: "
        + ("; ".join(listed(clique) for clique in one.cliques) or "none")
    )
    drawn = figure(
        "Who ranks where?",
        "Average rank over the data sets, 1 is best. Methods that a bar joins are closer together "
        "than the critical difference (CD): they do not differ significantly.",
        lambda width: draw_critical_difference(diagram, width=width, colours=colours, label=label),
        name="ranks",
        data=Table(
            ("method", "average_rank"),
            tuple(zip(one.methods, one.ranks, strict=True)),
        ),
    )
    best = [max(row) for row in one.scores]
    columns = zip(one.methods, zip(*one.scores, strict=True), strict=True)
    scores = [
        (
            method,
            colours[method],
            [
                (hundredths(score), score == highest)
                for score, highest in zip(column, best, strict=True)
            ],
        )
        for method, column in columns
    ]
    return AcrossSection(
        title=one.model.upper(),
        sentence=one.sentence,
        rows=rows,
        figures=[drawn],
        data=one.data,
        scores=scores,
        left_out=listed(one.left_out) if one.left_out else "",
    )


def headline(found: Sequence[Verdict]) -> str:
    """Sum up the verdicts of all models and conditions in a few words.

    Args:
        found: The verdicts, at least one.
    """
    # Where something is compared, what stands alone has nothing to add.
    found = [verdict for verdict in found if verdict.compared] or found
    if len(found) == 1:
        return found[0].headline
    data = found[0].data
    conditions = list(dict.fromkeys(verdict.group.condition for verdict in found))
    models = list(dict.fromkeys((verdict.model, verdict.layers) for verdict in found))
    # One condition that all share stands before the sentence, as it does for one model.
    shared = conditions[0] if len(conditions) == 1 else Condition()
    better = [verdict for verdict in found if verdict.kind == "better"]
    if better:
        names = list(dict.fromkeys(verdict.best for verdict in better if verdict.best))
        subject = (
            names[0] if len(names) == 1 else "Graph Transplant" if _only_ours(names) else "A method"
        )
        text = f"{subject} beats {BASELINE} on {data} {_where(better, found)}"
    elif any(verdict.kind == "worse" for verdict in found):
        text = f"No method beats {BASELINE} on {data}{_anywhere(conditions)}"
    elif all(verdict.kind == "none" for verdict in found):
        text = f"No method differs significantly from {BASELINE} on {data}{_anywhere(conditions)}"
    elif len(conditions) == 1:
        text = f"{len(models)} models compared on {data}"
    elif len(models) == 1:
        text = f"{len(conditions)} conditions compared on {data}{_listed(conditions)}"
    else:
        text = f"{len(models)} models under {len(conditions)} conditions compared on {data}"
    return _first_kept(shared, text)


def _first_kept(condition: Condition, text: str) -> str:
    """Put a condition before a headline that may begin with a name."""
    if not condition.words:
        return text
    # Only our own words lose their capital letter; names of methods keep theirs.
    return (
        condition.sentence(text)
        if text.startswith(("No ", "A "))
        else (f"{condition.words[0].upper()}{condition.words[1:]}, {text}")
    )


def _where(better: Sequence[Verdict], found: Sequence[Verdict]) -> str:
    """Say with which models and under which conditions a method is better."""
    conditions = list(dict.fromkeys(verdict.group.condition for verdict in found))
    models = len({(verdict.model, verdict.layers) for verdict in found})
    every = len(better) == len(found)
    if len(conditions) == 1:
        return "with every model" if every else f"with {len(better)} of {len(found)} models"
    if models == 1:
        won = [verdict.group.condition for verdict in better]
        count = f"{len(better)} of {len(found)}"
        count = ("both" if len(found) == 2 else f"all {len(found)}") if every else count
        return f"under {count} conditions{_listed(won)}"
    count = f"all {len(found)}" if every else f"{len(better)} of {len(found)}"
    return f"in {count} comparisons ({models} models, {len(conditions)} conditions)"


def _anywhere(conditions: Sequence[Condition]) -> str:
    if len(conditions) == 1:
        return ""
    return f" under any of {len(conditions)} conditions{_listed(conditions)}"


def _listed(conditions: Sequence[Condition]) -> str:
    """Name conditions, if they are few enough for a headline."""
    names = [one.short or "as they are" for one in conditions]
    return f" ({'; '.join(names)})" if len(names) <= FEW_CONDITIONS else ""


def _tied(text: str) -> str:
    # "p = 0.03" and "4.1 points" stay on one line.
    text = re.sub(r"(?<=\bp) ([=<]) (?=\d)", "\u00a0\\1\u00a0", text)
    return re.sub(r"(?<=\d) (?=points|folds|methods|repeats|%)", "\u00a0", text)


def _only_ours(names: Sequence[str]) -> bool:
    # Its ablations are not it: a gain without saliency is none of saliency's.
    return all(name.partition(":")[0] in ("transplant-dp", "transplant-ep") for name in names)


def repeat_command(records: Sequence[Record], selection: str = "none") -> list[str]:
    """Give the one command that makes these records.

    Args:
        records: The finished trials, at least one; every label noise with every amount of data,
            see :func:`repeat_commands`.
        selection: How one candidate per method was chosen.

    Returns:
        The command and its options, each quoted for a shell.

    Example:
        >>> record = {"data": "motifs", "method": "vanilla", "model": "gcs", "layers": 3,
        ...           "repeat": 0, "sizes": {"train": 360, "validation": 120, "test": 120},
        ...           "settings": {"folds": 5, "epochs": 50, "batch_size": 128, "seed": 0}}
        >>> repeat_command([record])[:3]
        ['graph-transplant compare motifs', '--methods vanilla', '--models gcs']
    """
    first = records[0]
    settings = first["settings"]
    complete = Settings.complete(settings)
    methods = sorted({record["method"] for record in records}, key=_baseline_first)
    options = {
        "methods": ",".join(methods),
        "models": ",".join(sorted({record["model"] for record in records})),
        "layers": ",".join(map(str, sorted({record["layers"] for record in records}))),
        "folds": settings["folds"],
        "repeats": max(record["repeat"] for record in records) + 1,
        "epochs": settings["epochs"],
        "batch-size": complete["batch_size"],
        "seed": complete["seed"],
    }
    if "metric" in settings:  # by default it goes by the data, which are not at hand here
        options["metric"] = settings["metric"]
    plain = Settings()
    for name in ("split", "readout", "ties"):
        if settings.get(name, getattr(plain, name)) != getattr(plain, name):
            options[name] = settings[name]
    source = str(first.get("source", first["data"]))
    if not is_store_file(source):
        columns = first.get("columns", {})
        options |= {name: columns[name] for name in DATA_OPTIONS if name in columns}
    conditions = {Condition.of(record) for record in records}
    if conditions != {Condition()}:
        for name in Condition._fields:
            values = sorted({getattr(one, name) for one in conditions})
            # The whole training set first: what is taken away from it follows.
            values = values[::-1] if name == "train_fraction" else values
            if values != [getattr(Condition(), name)]:
                options[name.replace("_", "-")] = ",".join(map(_exact, values))
    if settings.get("attack"):
        options["attack"] = ",".join(str(budget) for budget in settings["attack"])
    scale = _scale(first)
    if scale is not None:
        options["scale"] = scale
    program = ["graph-transplant"]
    if complete["shards"] > 1:
        processes = str(complete["shards"])
        program = ["torchrun", "--nproc-per-node", processes, "-m", "graph_transplant"]
        options["engine"] = "torchrun"
    command = shlex.join([*program, "compare", source])
    flags = {"validation": ["--select"], "nested": ["--nested"]}.get(selection, [])
    if settings.get("balance"):
        flags = ["--balance", *flags]
    return [
        command,
        *(f"--{name} {shlex.quote(str(value))}" for name, value in options.items()),
        *flags,
    ]


def repeat_commands(records: Sequence[Record], selection: str = "none") -> list[list[str]]:
    """Give the commands that make these records and no others.

    A command runs every method with every model, number of layers, label noise and amount of data.
    Records that are no such product take several commands.

    Args:
        records: The finished trials, at least one.
        selection: How one candidate per method was chosen.

    Returns:
        The commands, each as :func:`repeat_command` gives it.

    Example:
        >>> record = {"data": "motifs", "method": "vanilla", "model": "gcs", "layers": 3,
        ...           "repeat": 0, "sizes": {"train": 360, "validation": 120, "test": 120},
        ...           "settings": {"folds": 5, "epochs": 50, "batch_size": 128, "seed": 0}}
        >>> noisy, small = record | {"label_noise": 0.2}, record | {"train_fraction": 0.5}
        >>> [command[9:] for command in repeat_commands([record, noisy, small])]
        [['--label-noise 0,0.2'], ['--train-fraction 0.5']]
    """
    return [
        repeat_command([one for one in part if Condition.of(one) in conditions], selection)
        for part in _products(records)
        for conditions in _condition_products(part)
    ]


_Kind = frozenset[tuple[Condition, int]]


def _products(records: Sequence[Record]) -> list[list[Record]]:
    """Sort records into parts, each of which has all its methods with all its models and layers."""
    # Of every method with a model and layers: how many repeats it has under which conditions.
    found: dict[tuple[str, int, str], dict[Condition, int]] = {}
    for record in records:
        repeats = found.setdefault((record["model"], record["layers"], record["method"]), {})
        condition = Condition.of(record)
        repeats[condition] = max(repeats.get(condition, 0), record["repeat"])
    methods: dict[tuple[str, int, _Kind], set[str]] = {}
    for (model, layers, method), repeats in found.items():
        methods.setdefault((model, layers, frozenset(repeats.items())), set()).add(method)
    layered: dict[tuple[str, _Kind, frozenset[str]], set[int]] = {}
    for (model, layers, kind), own in methods.items():
        layered.setdefault((model, kind, frozenset(own)), set()).add(layers)
    parts: dict[tuple[_Kind, frozenset[str], frozenset[int]], int] = {}
    place: dict[tuple[str, int, str], int] = {}
    for (model, kind, names), deep in layered.items():
        number = parts.setdefault((kind, names, frozenset(deep)), len(parts))
        place |= {(model, layers, method): number for layers in deep for method in names}
    cut: list[list[Record]] = [[] for _ in parts]
    for record in records:
        cut[place[record["model"], record["layers"], record["method"]]].append(record)
    return cut


def _condition_products(records: Sequence[Record]) -> list[set[Condition]]:
    """Sort conditions into parts, each of which has every label noise with every fraction."""
    conditions = {Condition.of(record) for record in records}
    # Values of one axis that go with the same values of the other share a command.
    ways = []
    for axis in (0, 1):
        partners: dict[float, set[Condition]] = {}
        for one in conditions:
            partners.setdefault(one[axis], set()).add(one)
        products: dict[frozenset[float], set[Condition]] = {}
        for own in partners.values():
            others = frozenset(one[1 - axis] for one in own)
            products.setdefault(others, set()).update(own)
        ways.append(sorted(products.values(), key=lambda own: min(one.order for one in own)))
    # Of two ways with as many commands, that which keeps the whole training set together.
    return min(reversed(ways), key=len)


def _exact(value: float) -> str:
    """Write a number so that it is read back as the same one."""
    return repr(float(value)).removesuffix(".0")


def _scale(record: Record) -> str | None:
    """Name the preset of patiences that was used, unless it is the one for so many graphs."""
    settings = Settings.complete(record["settings"])
    usual = scale_of(sum(record["sizes"].values()))
    names = ("stop_patience", "decay_patience", "patience_unit")
    for name in (usual, *SCALES):
        if all(settings[item] == getattr(SCALES[name], item) for item in names):
            return None if name == usual else name
    return None


def _baseline_first(name: str) -> tuple[bool, str]:
    return name != BASELINE, name


def _facts(records: Sequence[Record]) -> list[tuple[str, str]]:
    first = _first(records)
    sizes = first["sizes"]
    folds = first["settings"]["folds"]
    repeats = max(record["repeat"] for record in records) + 1
    processor = processor_timed(records)
    seconds = sum(training_seconds(record, processor=processor) for record in records)
    place = ("folds", f"{folds}" if repeats == 1 else f"{folds} × {repeats}")
    if one_split(first["settings"]):
        place = (f"runs of the {first['settings']['split']} split", f"{repeats}")
    return [
        ("graphs", f"{sum(sizes.values()):,}"),
        place,
        (
            "train : validation : test",
            " : ".join(str(sizes[part]) for part in ("train", "validation", "test")),
        ),
        ("trials", f"{len(records):,}"),
        ("training time", duration(seconds)),
    ]


def _settings(record: Record) -> list[tuple[str, str]]:
    named = {"seed": "seed", "version": "library version"}
    return [
        (
            named.get(name, name.replace("_", " ")),
            (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value),
        )
        for name, value in record["settings"].items()
    ]


def _section(
    stem: str,
    names: Names,
    verdict: Verdict,
    rows: Sequence[SummaryRow],
    methods: Mapping[str, Sequence[Record]],
    colours: Mapping[str, str],
    pairs: Sequence[PairRow],
    candidates: Sequence[Candidate],
) -> Section:
    ranked = {row.method: methods[row.method] for row in rows if row.method in methods}
    table = ranking(rows)
    drawn = _figures(rows, ranked, colours, rows[0].metric)
    single = _unique([one for one in drawn if not one.group], stem, names)
    groups = _grouped(_unique([one for one in drawn if one.group], stem, names), stem)
    # Conditions other than the plain one are told in short: their graphs look no different.
    shown = gallery(ranked if verdict.group.condition == Condition() else {})
    shown = shown.renamed(lambda name: names.claim(f"{stem}-{name}"))
    titles = [group.title for group in groups]
    for title, there in ((MAPS, shown.maps), (MADE, shown.made)):
        if there and title not in titles:
            groups.append(FigureGroup(f"{stem}--{slug(title)}", title, []))
    words = {word for one in drawn for word in FIGURE_WORDS.get(one.name, ())}
    return Section(
        id=stem,
        title=group_title(verdict.group),
        data=verdict.data,
        verdict=verdict,
        ranking=table,
        figures=single,
        groups=groups,
        gallery=shown,
        pairs=[_pair(row) for row in pairs if len(rows) > 2],
        candidates=[_candidate(row) for row in candidates],
        words=_words(table) | words,
    )


def _words(table: Ranking) -> frozenset[str]:
    """Give the words of the glossary that a table needs."""
    found = {"± and dots"}
    if any(row.chosen for row in table.rows):
        found.add("Chosen")
    for number, column in enumerate(table.columns):
        if any(row.entries[number].value is not None for row in table.rows):
            found.add(column.word)
    return frozenset(found)


def _pair(row: PairRow) -> PairText:
    return PairText(
        first=row.first,
        second=row.second,
        difference="-" if row.difference is None else points(row.difference),
        direction=direction_of(row.difference, row.p_holm),
        effect="-" if row.effect is None else two_digits(row.effect),
        p_value=p_cell(row.p_value),
        p_holm=p_cell(row.p_holm),
    )


def _candidate(row: Candidate) -> CandidateText:
    chosen = "yes" if row.chosen else ""
    if row.chosen and row.trials > row.folds:
        chosen = f"in {row.folds} fold{'s' if row.folds != 1 else ''}"
    return CandidateText(
        method=row.method,
        name=row.name,
        layers=str(row.layers),
        validation="-" if row.validation is None else hundredths(row.validation),
        trials=row.trials,
        chosen=chosen,
    )


def _figures(
    rows: Sequence[SummaryRow],
    methods: Mapping[str, Sequence[Record]],
    colours: Mapping[str, str],
    metric: str,
) -> list[Figure]:
    figures = []
    word = METRICS[metric]
    first = next(record for trials in methods.values() for record in trials)
    # Runs of one split share their test graphs: they are no folds.
    place = "run" if one_split(first["settings"]) else "fold"
    differences = differences_data(rows, methods, BASELINE) if BASELINE in methods else []
    if differences:
        label = f"Difference to vanilla in points of test {word}. " + "; ".join(
            f"{row.method} {signed(row.mean, 1)}"
            + (
                f", interval {signed(row.low, 1)} to {signed(row.high, 1)}"
                if row.low is not None and row.high is not None
                else ""
            )
            for row in differences
        )
        figures.append(
            figure(
                "Who beats plain training?",
                "Large dots are mean differences to vanilla, bars their 95 % intervals, small dots "
                f"single {place}s. A filled dot differs significantly, a hollow one does not.",
                lambda width: draw_differences(
                    differences,
                    width=width,
                    colours=colours,
                    axis=f"Points of test {word}, compared with {BASELINE}",
                    label=label,
                ),
                name="differences",
                data=Table(
                    ("method", "difference_points", "low_points", "high_points", "p_holm"),
                    tuple(
                        (row.method, row.mean, row.low, row.high, row.p_holm) for row in differences
                    ),
                ),
            )
        )
    scored = scores_data(methods, metric)
    if scored:
        figures.append(
            figure(
                f"Every {place}",
                f"One dot per {place}, the thick stroke is the mean. Thin lines join the same "
                f"{place}: it counts whether they lean the same way."
                + (" The dashed line is vanilla’s mean." if BASELINE in methods else ""),
                lambda width: draw_scores(
                    scored,
                    width=width,
                    colours=colours,
                    axis=f"Test {word}",
                    form=percent,
                    exact=exact_percent,
                    label=_score_label(f"Test {word} of every {place}", scored, exact_percent),
                    baseline=BASELINE,
                    paired=True,
                ),
                name="scores",
                data=_score_table(scored, metric),
            )
        )
    # Records made before there was a choice of metric have the accuracy alone.
    curves = curves_data(methods, "validation_score")
    if not curves and metric == "accuracy":
        curves = curves_data(methods, "validation_accuracy")
    floored = metric == "r2" and any(min(curve.values) < FLOOR for curve in curves)
    drawn = curves
    if floored:
        drawn = [
            replace(curve, values=[max(FLOOR, value) for value in curve.values]) for curve in curves
        ]
    if curves:
        crowded = len(curves) > COLOURS  # one panel each: so many curves cannot be told apart
        figures.append(
            figure(
                "Learning",
                f"{word[0].upper()}{word[1:]} on the validation graphs by epoch, mean over the "
                "trials that trained that long, drawn as long as half of them did."
                + (" Grey is vanilla." if crowded and BASELINE in methods else "")
                + (f" What is below {percent(FLOOR)} is drawn there." if floored else ""),
                lambda width: (draw_panels if crowded else draw_curves)(
                    drawn,
                    width=width,
                    colours=colours,
                    axis=f"Validation {word}",
                    form=percent,
                    label=_curve_label(f"Validation {word} by epoch", curves),
                ),
                name="learning",
                data=_curve_table(curves, f"validation_{metric}"),
            )
        )
    calibration = scores_data(methods, "ece")
    if calibration:
        figures.append(
            figure(
                "Can its confidence be trusted?",
                f"Expected calibration error on the test graphs, one dot per {place}; further left "
                "is better.",
                lambda width: draw_scores(
                    calibration,
                    width=width,
                    colours=colours,
                    axis="Expected calibration error",
                    form=lambda value: f"{value:g}",
                    exact=three_digits,
                    label=_score_label(
                        f"Calibration error of every {place}", calibration, three_digits
                    ),
                    baseline=BASELINE,
                    paired=False,
                ),
                name="calibration-error",
                data=_score_table(calibration, "ece"),
                group="Calibration",
            )
        )
    figures += study_figures(methods, colours, baseline=BASELINE)
    predictor = curves_data(methods, "edge_predictor_accuracy")
    if predictor:
        names = listed([curve.method for curve in predictor])
        figures.append(
            figure(
                "The edge predictor",
                f"How often the edge predictor of {names} tells a true edge from a pair without "
                "one, on pairs it was not trained on; 50 % is guessing.",
                lambda width: draw_curves(
                    predictor,
                    width=width,
                    colours=colours,
                    axis="Edge predictor accuracy",
                    form=percent,
                    label=_curve_label("Edge predictor accuracy by epoch", predictor),
                ),
                name="edge-predictor",
                data=_curve_table(predictor, "edge_predictor_accuracy"),
                group="Edge predictor",
            )
        )
    return figures


def _score_table(rows: Sequence[ScoreRow], measure: str) -> Table:
    return Table(
        ("method", "repeat", "fold", measure),
        tuple(
            (row.method, score.repeat, score.fold, score.value)
            for row in rows
            for score in row.scores
        ),
    )


def _curve_table(curves: Sequence[Curve], measure: str) -> Table:
    return Table(
        ("method", "epoch", measure),
        tuple(
            (curve.method, epoch, value)
            for curve in curves
            for epoch, value in zip(curve.epochs, curve.values, strict=True)
        ),
    )


def _score_label(title: str, rows: Sequence[ScoreRow], form: Callable[[float], str]) -> str:
    return f"{title}. Means: " + "; ".join(f"{row.method} {form(row.mean)}" for row in rows)


def _curve_label(title: str, curves: Sequence[Curve]) -> str:
    return f"{title}. At the end: " + "; ".join(
        f"{curve.method} {exact_percent(curve.values[-1])} at epoch {curve.epochs[-1]:g}"
        for curve in curves
    )
