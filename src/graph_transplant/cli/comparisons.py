"""The commands that compare methods: ``compare``, ``report`` and ``across``."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from graph_transplant.cli.arguments import NO_COLUMNS, Columns, Select, load_data, tell_skipped
from graph_transplant.cli.output import (
    cell,
    gone,
    note,
    output,
    plain_table,
    print_files,
    progress_display,
    resumable,
    selection,
)
from graph_transplant.config.compare import CompareConfig
from graph_transplant.config.options import ShareBelowOne
from graph_transplant.utils.files import SKIPPED, folder_name, write_atomically
from graph_transplant.utils.text import capital, number, p_value, points

if TYPE_CHECKING:
    from graph_transplant.results.results import Results


def compare(  # noqa: D417 - `Select` has its help
    data: str = "motifs",
    /,
    *,
    config: Annotated[CompareConfig, Parameter(name="*")] = CompareConfig(),  # noqa: B008
    select: Select = False,
    tensorboard: Annotated[Path | None, Parameter(show=False)] = None,
    fresh: bool = False,
    out: Path | None = None,
    columns: Columns = NO_COLUMNS,
) -> int:
    """Compare methods by cross-validation and write a report.

    Running the same command again resumes: only missing trials are run.

    Args:
        data: Name of a data set (see `graph-transplant datasets`), or the path of a table (CSV,
            Excel, Parquet, .smi), SDF or JSON Lines file, or of a TU or OGB folder or archive.
        config: What to compare, and how.
        tensorboard: Removed; see `GONE`.
        fresh: Start over; existing records are kept under another name.
        out: Directory for records, tables and report. [default: comparisons/DATA]
        columns: How the data are read.
    """
    from graph_transplant.comparison.compare import compare as run

    directories: list[Path] = []

    def work() -> int:
        if tensorboard is not None:
            note(gone("compare --tensorboard"))
        store = load_data(data, columns)
        directory = out or Path("comparisons") / folder_name(store.name)
        directories.append(directory)
        tell_skipped(store, directory / SKIPPED)
        asked = vars(config) | {"select": selection(select), "out": directory, "fresh": fresh}
        results = run(store, **asked, reporter=progress_display())
        results.check()
        print_results(results)
        return 0

    return resumable(work, lambda: directories)


def report(  # noqa: D417 - `Select` has its help
    directory: Path,
    /,
    *,
    format: Literal["html", "markdown", "latex", "csv"] = "html",  # noqa: A002 - as the option
    select: Select = False,
    equal_within: ShareBelowOne = CompareConfig.equal_within,
    ignore: tuple[str, ...] = (),
    out: Path | None = None,
) -> None:
    """Rebuild the report of a comparison, or write its ranking tables for a paper.

    Args:
        directory: Directory written by `graph-transplant compare` or `paper`.
        format: html is a page with all figures; latex requires the booktabs package.
        equal_within: Methods are practically equal if the whole 95 % interval of their difference
            lies within this distance of zero; 0.01 is one point.
        ignore: Codes of warnings to leave out, such as GT007, separated by commas.
        out: File to write. [default: report.html in the directory for html, else the terminal]
    """
    from graph_transplant.report.comparison import figures_folder
    from graph_transplant.results.results import read_results

    results = read_results(
        directory,
        selection=selection(select),
        equal_within=equal_within,
        ignore=ignore,
    )
    if format == "html":
        page = results.report(out)
        files = {page: "the report", figures_folder(page): "its figures, as SVG and CSV"}
        if out is None:
            # Keep the table consistent with the page.
            table = directory / "summary.csv"
            write_atomically(table, results.to_csv())
            files[table] = "the ranking"
        print_files(output(), files)
        return
    results.check()
    forms = {
        "markdown": results.to_markdown,
        "latex": results.to_latex,
        "csv": results.to_csv,
    }
    text = forms[format]()
    if out is None:
        # Not by the console, which would wrap long lines.
        sys.stdout.write(text)
    else:
        write_atomically(out, text)
        print_files(output(), {out: "the tables"})


def across(  # noqa: D417 - `Select` has its help
    *directories: Path, select: Select = False, out: Path | None = None
) -> None:
    """Rank methods across several data sets and test the ranks.

    Args:
        directories: Directories written by `graph-transplant compare` or `paper`, for at least two
            data sets.
        out: Folder for the critical-difference diagram of each model as SVG, with its numbers as
            CSV. [default: none is written]
    """
    from graph_transplant.figures import render_chart, write
    from graph_transplant.results.average_ranks import across as rank
    from graph_transplant.results.results import read_results
    from graph_transplant.results.sentences import join_verdicts

    if out is not None and out.suffix == ".html":
        note(gone("across --out PAGE.html"))
        out = out.with_suffix("")
    every = [read_results(one, selection=selection(select)) for one in directories]
    ranked = rank(every)
    console = output()
    figures = ("mean rank", "wins", "ties", "losses", "difference", "p (Wilcoxon)", "p (Holm)")
    files: dict[Path, str] = {}
    for result in ranked:
        table = plain_table([f"method ({result.model})"], figures)
        against = {row.method: row for row in result.wilcoxon}
        for name, place in zip(result.methods, result.ranks, strict=True):
            row = against.get(name)
            counts = (row.wins, row.ties, row.losses) if row else (None,) * 3
            gap = points if result.share else partial(number, sign=True)
            table.add_row(
                Text(name),
                number(place, 2),
                *(cell(value, "d") for value in counts),
                gap(row.difference) if row else "-",
                p_value(row.p_value if row else None),
                p_value(row.p_holm if row else None),
            )
        console.print()
        console.print(table)
        console.print(Text(result.sentence, style="bold"))
        if out is not None:
            chart = render_chart(result, "ranks", prefix=f"{folder_name(result.model)}-")
            for path in write(chart, out) if chart else ():
                files[path] = f"average ranks with {result.model}"
    console.print()
    verdicts = {group: one for results in every for group, one in results.verdicts.items()}
    console.print(Text(f"{capital(join_verdicts(verdicts))}.", style="bold"))
    for results in every:
        for text in results.notes:
            console.print(Text(f"{results.directory}: {text}", style="yellow"))
    if files:
        console.print()
        print_files(console, files)


def print_results(results: Results) -> None:
    """Print table, verdicts and files of a comparison."""
    console = output()
    console.print()
    table = results_table(results)
    wide = console.options.update_width(10_000)
    if console.measure(table, options=wide).maximum > console.width:
        table = results_table(results, few=True)
    console.print(table)
    several = len(results.verdicts) > 1
    for group, verdict in results.verdicts.items():
        where = f"{group.network}: " if several and group.network else ""
        kind = "open" if verdict.floor else verdict.kind
        style = {"better": "bold green", "worse": "bold red"}.get(kind, "bold")
        console.print(Text(where + verdict.sentence, style=style))
        if verdict.next:
            console.print(Text(where + verdict.next))
    for text in results.notes:
        console.print(Text(text, style="yellow"))
    console.print()
    if results.directory is not None:
        contents = {
            "report.html": "the report",
            "summary.csv": "this table",
            "records.jsonl": "every trial",
            "figures": "every figure as SVG, its numbers as CSV",
        }
        print_files(console, {results.directory / name: what for name, what in contents.items()})


def results_table(results: Results, *, few: bool = False) -> Table:
    """Format the ranking for a terminal; ``few`` omits the optional columns."""
    from graph_transplant.methods import method_of
    from graph_transplant.report.tables import rankings

    found = rankings(results)
    shown = [column for one in found for column in one.columns if not (few and column.more)]
    columns = list(dict.fromkeys(column.title for column in shown))
    harder = any(one.group.condition.short for one in found)
    table = plain_table()
    table.add_column("method", overflow="fold")
    for name in ("model", *(["training"] if harder else [])):
        table.add_column(name, no_wrap=True)
    for name in columns:
        table.add_column(name.lower() if name[1:2].islower() else name, justify="right")
    for index, one in enumerate(found):
        if index:
            table.add_row()
        titles = [column.title for column in one.columns]
        for place, row in enumerate(one.rows):
            texts = dict(zip(titles, row.cells, strict=True))
            cells = [
                f"{texts[name].text} {texts[name].spread}".strip() if name in texts else ""
                for name in columns
            ]
            method = row.method + (f" ({row.chosen})" if row.chosen else "")
            table.add_row(
                Text(method, style="bold" if not place else ""),
                Text(one.group.network if method_of(row.method).network else ""),
                *([Text(one.group.condition.short)] if harder else []),
                *(Text(cell) for cell in cells),
            )
    return table
