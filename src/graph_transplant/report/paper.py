"""The paper's experiments as tables (text, Markdown, LaTeX, CSV) and as figures."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from graph_transplant.experiments.paper import ATTACK, EXPERIMENTS, MEASURES, Experiment, plan
from graph_transplant.experiments.protocol import BASELINE, METRICS, Record
from graph_transplant.experiments.records import RecordStore
from graph_transplant.experiments.reproduce import PaperRow, PaperTable
from graph_transplant.experiments.selection import method_key, select
from graph_transplant.experiments.summary import p_cell
from graph_transplant.files import write_atomically
from graph_transplant.report.figures import (
    Bar,
    BarGroup,
    Line,
    Spread,
    curves_data,
    reliability_data,
)
from graph_transplant.report.frame import FOLDER, Figure, Table, figure, write_figures
from graph_transplant.report.names import Names, palette, slug
from graph_transplant.report.plots import draw_line_panels
from graph_transplant.report.studies import (
    by_method,
    groups_figure,
    reliability_figure,
    robustness_figures,
    sensitivity_figures,
)
from graph_transplant.report.svg import exact_percent, percent
from graph_transplant.report.tables import (
    latex_frame,
    latex_row,
    latex_text,
    markdown_row,
    markdown_text,
)

CSV_COLUMNS = (
    *("experiment", "budget", "data", "model", "readout", "method", "metric"),
    *("trials", "finished", "planned", "mean", "std"),
    *("published_mean", "published_std", "published_status", "source", "difference", "spread"),
    *("gain", "published_gain", "p_value", "p_holm", "reproduced", "chosen", "reason"),
)
"""Columns of the table as a CSV file, in order."""


def csv_table(table: PaperTable) -> str:
    """Give the table as CSV; a number that is not defined is an empty cell.

    Example:
        >>> import tempfile
        >>> from graph_transplant.experiments.reproduce import paper_table
        >>> table = paper_table("table2", {"ogbg-ppa": ["gcs"]}, budget="full",
        ...                     out=tempfile.mkdtemp())
        >>> csv_table(table).splitlines()[1].split(",")[:6]
        ['table2', 'full', 'ogbg-ppa', 'gcs', 'mean', 'vanilla']
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in table.rows:
        figure = row.published
        more = {
            "experiment": table.experiment,
            "budget": table.budget,
            "published_mean": None if figure is None else figure.mean,
            "published_std": None if figure is None else figure.std,
            "published_status": row.status,
            "source": "" if figure is None else f"{figure.source.where}, {figure.source.citation}",
        }
        cells = [more[name] if name in more else getattr(row, name) for name in CSV_COLUMNS]
        writer.writerow([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in cells])
    return text.getvalue()


def _cells(table: PaperTable) -> tuple[list[str], list[list[str]]]:
    """Give headings and rows of the table as people read it."""
    experiment = EXPERIMENTS[table.experiment]
    measure = MEASURES[experiment.measure]
    readouts = len(experiment.readouts) > 1
    measures = len({row.metric for row in table.rows}) > 1
    gains = experiment.baseline is not None
    chosen = any(row.chosen for row in table.rows)
    headings = ["data", "model", *(["readout"] if readouts else []), "method"]
    headings += ["measure"] if measures else []
    headings += ["ours", "published", "difference", "spread"]
    headings += ["gain (published)", "p (Holm)", "reproduced"] if gains else []
    headings += ["chosen"] if chosen else []
    rows = []
    for row in table.rows:
        cells = [row.data, row.model, *([row.readout] if readouts else []), row.method]
        cells += [_measure_name(row)] if measures else []
        cells += [_ours(row), _theirs(row)]
        cells += ["-" if row.difference is None else _signed(row.difference), row.spread or "-"]
        if gains:
            gain = measure.worded(row.gain)
            if row.published_gain is not None:
                gain += f" ({measure.worded(row.published_gain)})"
            cells += [gain, p_cell(row.p_holm), row.reproduced or "-"]
        rows.append([*cells, *([row.chosen or "-"] if chosen else [])])
    return headings, rows


def _measure_name(row: PaperRow) -> str:
    return METRICS[row.metric] if row.metric in METRICS else MEASURES[row.metric].name


def _ours(row: PaperRow) -> str:
    if row.mean is None:
        return "-" if row.reason or row.dash else "missing"
    text = f"{row.mean:.3f}" + ("" if row.std is None else f" ± {row.std:.3f}")
    # A mean over some of the trials must not look like the mean over all.
    part = f" ({row.finished} of {row.planned} trials)" if row.finished < row.planned else ""
    return text + part


def _theirs(row: PaperRow) -> str:
    figure = row.published
    if figure is None or figure.mean is None:
        return "chart" if row.status == "chart" else "-"
    return f"{figure.mean:.3f}" + ("" if figure.std is None else f" ± {figure.std:.3f}")


def _signed(value: float) -> str:
    text = f"{value:+.3f}"
    return "0.000" if float(text) == 0 else text.replace("-", "−")


def text_table(table: PaperTable) -> str:
    """Give the table as plain text for a terminal, with its verdict and what was cut.

    Example:
        >>> import tempfile
        >>> from graph_transplant.experiments.reproduce import paper_table
        >>> table = paper_table("table4-calibration", {"ENZYMES": ["gin"]}, budget="quick",
        ...                     out=tempfile.mkdtemp())
        >>> print(text_table(table).splitlines()[2])
        data     model  method          ours     published  difference  spread  gain (published) ...
    """
    headings, rows = _cells(table)
    columns = zip(headings, *rows, strict=True)
    widths = [max(len(cell) for cell in column) for column in columns]
    lines = [EXPERIMENTS[table.experiment].title, ""]
    for number, cells in enumerate((headings, *rows)):
        if number > 1 and cells[:2] != rows[number - 2][:2]:
            lines.append("")
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        lines.append("  ".join(padded).rstrip())
    lines += ["", table.verdict]
    lines += _remarks(table)
    lines += ["", *(f"  {command}" for command in table.commands)]
    return "\n".join(lines) + "\n"


def _remarks(table: PaperTable) -> list[str]:
    experiment = EXPERIMENTS[table.experiment]
    measure = MEASURES[experiment.measure]
    remarks = []
    if experiment.baseline is not None:
        unit = "in points" if measure.points else "with the sign turned, so that less error is +"
        remarks.append(f"Gain: difference to {experiment.baseline} on the same folds, {unit}.")
    if table.cuts:
        remarks.append(f"Cut by the {table.budget} budget: {' '.join(table.cuts)}")
    else:
        remarks.append("The paper's protocol; nothing is cut.")
    reasons = dict.fromkeys(row.reason for row in table.rows if row.reason)
    return [*remarks, *(f"{reason}." for reason in reasons), *table.notes]


def markdown_table(table: PaperTable) -> str:
    """Give the table as a page in Markdown: table, verdict, what was cut, the commands.

    Example:
        >>> import tempfile
        >>> from graph_transplant.experiments.reproduce import paper_table
        >>> table = paper_table("gcn", {"NCI1": ["gcn"]}, budget="full", out=tempfile.mkdtemp())
        >>> markdown_table(table).splitlines()[0]
        '# Appendix: test accuracy with GCN'
    """
    headings, rows = _cells(table)
    sources = dict.fromkeys(
        f"{row.published.source.where}, {row.published.source.citation}"
        + (f": {row.published.source.note}" if row.published.source.note else "")
        for row in table.rows
        if row.published is not None
    )
    lines = [f"# {EXPERIMENTS[table.experiment].title}", "", markdown_text(table.verdict), ""]
    lines += [markdown_row(headings), markdown_row(["---"] * len(headings))]
    lines += [markdown_row([markdown_text(cell) for cell in cells]) for cells in rows]
    lines += ["", *(f"- {markdown_text(remark)}" for remark in _remarks(table))]
    lines += [f"- Published: {markdown_text(source)}." for source in sources]
    lines += ["", "Made from the records by", "", "```console"]
    # On one line each, lest a name end the block.
    lines += [*(f"$ {' '.join(command.splitlines())}" for command in table.commands), "```"]
    return "\n".join(lines) + "\n"


def latex_table(table: PaperTable) -> str:
    r"""Give the table in LaTeX; it asks for the package ``booktabs``.

    Example:
        >>> import tempfile
        >>> from graph_transplant.experiments.reproduce import paper_table
        >>> table = paper_table("gcn", {"NCI1": ["gcn"]}, budget="full", out=tempfile.mkdtemp())
        >>> lines = latex_table(table).splitlines()
        >>> lines[0], lines[4]
        ('\\begin{table}[tb]', '\\label{tab:gcn-full}')
    """
    headings, rows = _cells(table)
    words = headings.index("ours")
    caption = f"{EXPERIMENTS[table.experiment].title}. {' '.join(_remarks(table))}"
    body = []
    for before, cells in pairwise([[], *rows]):
        if cells[:2] != before[:2]:
            body.append(r"\midrule")
        body.append(latex_row([latex_text(cell) for cell in cells]))
    return latex_frame(
        caption,
        slug(table.experiment, table.budget),
        "l" * words + "r" * (len(headings) - words),
        headings,
        body,
    )


def write_table(table: PaperTable, out: str | Path) -> tuple[Path, Path, Path]:
    """Write the table to ``EXPERIMENT-BUDGET.md``, ``.csv`` and ``.tex``.

    Args:
        table: The table.
        out: Directory of all experiments, made when it is not there.

    Returns:
        The three files.

    Example:
        >>> import tempfile
        >>> from graph_transplant.experiments.reproduce import paper_table
        >>> out = tempfile.mkdtemp()
        >>> table = paper_table("gcn", {"NCI1": ["gcn"]}, budget="full", out=out)
        >>> [path.name for path in write_table(table, out)]
        ['gcn-full.md', 'gcn-full.csv', 'gcn-full.tex']
    """
    directory = Path(out)
    directory.mkdir(parents=True, exist_ok=True)
    name = f"{table.experiment}-{table.budget}"
    page, sheet, source = (directory / f"{name}.{end}" for end in ("md", "csv", "tex"))
    write_atomically(page, markdown_table(table))
    write_atomically(sheet, csv_table(table))
    write_atomically(source, latex_table(table))
    return page, sheet, source


def write_paper_figures(table: PaperTable, out: str | Path) -> list[Path]:
    """Draw the figures of an experiment and write them to ``figures/EXPERIMENT-BUDGET-….svg``.

    Args:
        table: The table; the records are read from its directories.
        out: Directory of all experiments.

    Returns:
        The files: drawings, and their numbers as CSV. None as long as nothing is measured.

    Raises:
        GraphTransplantError: If records cannot be read or the disk refuses.

    Example:
        >>> import tempfile
        >>> from graph_transplant.experiments.reproduce import paper_table
        >>> out = tempfile.mkdtemp()
        >>> write_paper_figures(paper_table("gcn", {"NCI1": ["gcn"]}, budget="full", out=out), out)
        []
    """
    records = [record for place in table.directories for record in RecordStore(place).read()]
    return write_figures(paper_figures(table, records), Path(out) / FOLDER)


def paper_figures(table: PaperTable, records: Iterable[Record]) -> list[Figure]:
    """Draw an experiment as the paper does, with the published numbers as hollow marks.

    Every experiment has grouped bars, one chart per data set: by model, or by readout where there
    are several. The edge predictor has its accuracy over training instead; attacks have the
    accuracy over the budget beside, calibration the reliability diagrams, and where a parameter
    is varied by itself there are panels.

    Args:
        table: The table.
        records: The records that lie in its directories; those it does not show are left out.

    Returns:
        The figures; none as long as nothing is measured.

    Example:
        >>> import tempfile
        >>> from graph_transplant.experiments.reproduce import paper_table
        >>> table = paper_table("gcn", {"NCI1": ["gcn"]}, budget="full", out=tempfile.mkdtemp())
        >>> paper_figures(table, [])
        []
    """
    experiment = EXPERIMENTS[table.experiment]
    colours = palette((row.method for row in table.rows), BASELINE)
    own = _shown_records(table, records)
    found: list[Figure] = []
    if table.experiment == "edge-predictor":
        found += _predictor_figures(own)
    else:
        found += _bar_figures(table, experiment, colours)
    if table.experiment == "table3-robustness":
        for (data, model, _), group in own.items():
            found += robustness_figures(
                by_method(group),
                colours,
                BASELINE,
                name=slug("attack", data, model),
                title=f"{data}, {model.upper()}: accuracy under attack",
            )
    if table.experiment == "table4-calibration":
        found += _reliability_figures(own)
    for (data, model, _), group in own.items():
        found += sensitivity_figures(
            by_method(group),
            colours,
            _metric(table, data),
            where=f"{data}, {model.upper()}",
            stem=slug(data, model),
        )
    return _named(table, found)


Group = tuple[str, str, str]
"""Data, model and readout."""


def _shown_records(table: PaperTable, records: Iterable[Record]) -> dict[Group, list[Record]]:
    """Keep the records that the table's numbers are made of."""
    experiment = EXPERIMENTS[table.experiment]
    shown = {(row.data, row.model, row.readout): True for row in table.rows if row.trials}
    layers = plan(table.experiment, budget=table.budget)[0].layers
    full = table.budget == "full"
    methods = set(experiment.methods)
    if any(":" in name for name in methods):
        from graph_transplant.augment.methods import expand_methods

        methods = set(expand_methods(experiment.methods))
    groups: dict[Group, list[Record]] = {group: [] for group in shown}
    for record in records:
        place = (
            *(record.get("source", record["data"]), record["model"]),
            record["settings"].get("readout", "mean"),
        )
        # Directories are shared: other experiments' methods lie there, and other axes' trials.
        name = method_key(record["method"]) if full else record["method"]
        usual = not record.get("label_noise", 0.0) and record.get("train_fraction", 1.0) == 1.0
        if place in groups and name in methods and record["layers"] in layers and usual:
            groups[place].append(record)
    how = "validation" if full else "none"
    chosen = {group: select(own, how) for group, own in groups.items()}
    order = [method_key(name) for name in experiment.methods]
    return {
        group: sorted(
            own,
            key=lambda record: (
                *(order.index(method_key(record["method"])), record["repeat"], record["fold"]),
            ),
        )
        for group, own in chosen.items()
        if own
    }


def _metric(table: PaperTable, data: str) -> str:
    names = [row.metric for row in table.rows if row.data == data and row.metric in METRICS]
    return names[0] if names else "accuracy"


def _named(table: PaperTable, figures: Sequence[Figure]) -> list[Figure]:
    """Put experiment and budget before the names; where two data sets have one, number them."""
    names = Names()
    stem = slug(table.experiment, table.budget)
    return [replace(one, name=names.claim(f"{stem}-{one.name}")) for one in figures]


def _bar_figures(
    table: PaperTable, experiment: Experiment, colours: Mapping[str, str]
) -> list[Figure]:
    measure = MEASURES[experiment.measure]
    readouts = len(experiment.readouts) > 1
    attacked = experiment.measure == "robust_accuracy"
    how = f", {100 * ATTACK:g} % of the edges, to the letter of the paper" if attacked else ""
    charts: dict[tuple[str, str], dict[str, list[Bar]]] = {}
    words: dict[str, str] = {}
    for row in table.rows:
        chart = row.data, row.model if readouts else ""
        group = row.readout if readouts else row.model.upper()
        value = None if row.mean is None else Spread(row.mean, row.std, row.trials)
        theirs = None if row.published is None else row.published.mean
        charts.setdefault(chart, {}).setdefault(group, []).append(Bar(row.method, value, theirs))
        words[row.data] = _measure_name(row)
    found = []
    for (data, model), groups in charts.items():
        word = words[data]
        where = f"{data}, {model.upper()}" if model else data
        one = groups_figure(
            [
                BarGroup(name, tuple(bars))
                for name, bars in groups.items()
                if any(bar.value is not None for bar in bars)
            ],
            colours,
            title=f"{where}: {word}",
            told=f"Test {word} on {where} by {'readout' if readouts else 'model'}{how}",
            axis=f"Test {word}",
            name=slug(data, model),
            group="",
            columns=("readout" if readouts else "model", "method"),
            shares=measure.points,
        )
        found += [] if one is None else [one]
    return found


def _reliability_figures(own: Mapping[Group, Sequence[Record]]) -> list[Figure]:
    """Draw plain training beside Graph Transplant, a pair of panels for each model."""
    data_sets: dict[str, dict[str, list[Record]]] = {}
    colours = {}
    for (data, model, _), group in own.items():
        methods = by_method(group)
        for method, kind in ((BASELINE, "c0"), ("transplant-ep", "c1")):
            name = f"{model.upper()} {method}"
            colours[name] = kind
            if method in methods:
                data_sets.setdefault(data, {})[name] = methods[method]
    found = [
        reliability_figure(
            reliability_data(methods),
            colours,
            name=slug("reliability", data),
            title=f"{data}: reliability of {BASELINE} and transplant-ep",
        )
        for data, methods in data_sets.items()
    ]
    return [one for one in found if one is not None]


def _predictor_figures(own: Mapping[Group, Sequence[Record]]) -> list[Figure]:
    """Draw the accuracy of ψ over training, a line per model and a panel per data set."""
    data_sets: dict[str, dict[str, Sequence[Record]]] = {}
    for (data, model, _), group in own.items():
        data_sets.setdefault(data, {})[model.upper()] = group
    panels: dict[str, list[Line]] = {}
    for data, models in data_sets.items():
        curves = curves_data(models, "edge_predictor_accuracy")
        if curves:
            panels[data] = [
                Line(
                    curve.method,
                    tuple(curve.epochs),
                    tuple(Spread(value, None, curve.trials) for value in curve.values),
                )
                for curve in curves
            ]
    if not panels:
        return []
    names = list(dict.fromkeys(line.name for lines in panels.values() for line in lines))
    colours = palette(names, "")
    label = "Accuracy of the edge predictor by epoch. At the end: " + "; ".join(
        f"{data}, {line.name} {exact_percent(line.values[-1].mean)}"
        for data, lines in panels.items()
        for line in lines
    )
    table = [
        (data, line.name, epoch, value.mean, value.trials)
        for data, lines in panels.items()
        for line in lines
        for epoch, value in zip(line.places, line.values, strict=True)
    ]
    return [
        figure(
            "Accuracy of the edge predictor ψ over training",
            "How often ψ tells a true edge from a pair without one, on validation graphs; 50 % is "
            "guessing. Mean over the trials that trained that long.",
            lambda width: draw_line_panels(
                panels,
                width=width,
                colours=colours,
                heads=dict.fromkeys(panels, ""),
                titles=("Epoch", "Accuracy of ψ"),
                forms=(lambda value: f"{value:g}", percent),
                exact=exact_percent,
                label=label,
                legend=names,
                shared=False,
            ),
            name="curves",
            data=Table(("data", "model", "epoch", "accuracy", "trials"), tuple(table)),
        )
    ]
