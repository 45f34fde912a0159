"""The tables of the paper's experiments as text, Markdown and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

from graph_transplant.experiments.paper import EXPERIMENTS, MEASURES
from graph_transplant.experiments.protocol import METRICS
from graph_transplant.experiments.reproduce import PaperRow, PaperTable
from graph_transplant.experiments.summary import p_cell
from graph_transplant.files import write_atomically

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
    lines = [f"# {EXPERIMENTS[table.experiment].title}", "", _plain(table.verdict), ""]
    lines += [_line(headings), _line(["---"] * len(headings))]
    lines += [_line([_plain(cell) for cell in cells]) for cells in rows]
    lines += ["", *(f"- {_plain(remark)}" for remark in _remarks(table))]
    lines += [f"- Published: {_plain(source)}." for source in sources]
    lines += ["", "Made from the records by", "", "```console"]
    # On one line each, lest a name end the block.
    lines += [*(f"$ {' '.join(command.splitlines())}" for command in table.commands), "```"]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    # Names of data sets come from outside: they must not end a cell or become markup.
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", " ".join(text.split()))


def write_table(table: PaperTable, out: str | Path) -> tuple[Path, Path]:
    """Write the table to ``EXPERIMENT-BUDGET.md`` and ``.csv``.

    Args:
        table: The table.
        out: Directory of all experiments, made when it is not there.

    Returns:
        The two files.

    Example:
        >>> import tempfile
        >>> from graph_transplant.experiments.reproduce import paper_table
        >>> out = tempfile.mkdtemp()
        >>> table = paper_table("gcn", {"NCI1": ["gcn"]}, budget="full", out=out)
        >>> [path.name for path in write_table(table, out)]
        ['gcn-full.md', 'gcn-full.csv']
    """
    directory = Path(out)
    directory.mkdir(parents=True, exist_ok=True)
    name = f"{table.experiment}-{table.budget}"
    page, sheet = directory / f"{name}.md", directory / f"{name}.csv"
    write_atomically(page, markdown_table(table))
    write_atomically(sheet, csv_table(table))
    return page, sheet
