"""The command that writes the report of a comparison anew, or its tables."""

from __future__ import annotations

import sys
from pathlib import Path

from graph_transplant.cli.common import output, print_files, selection
from graph_transplant.errors import check_choice


def report(
    directory: Path,
    /,
    *,
    format: str = "html",  # noqa: A002 - the name of the option
    select: bool = False,
    equal_within: float = 0.01,
    out: Path | None = None,
) -> int:
    """Rebuild the report of a comparison, or write its ranking tables for a paper.

    Args:
        directory: Directory written by `graph-transplant compare` or `paper`.
        format: html (a page with all figures), markdown, latex (requires the booktabs package) or
            csv.
        select: Report each method with the layers and parameters that have the best mean validation
            metric.
        equal_within: Methods are practically equal if the whole 95 % interval of their difference
            lies within this distance of zero; 0.01 is one point.
        out: File to write. [default: report.html in the directory for html, else the terminal]
    """
    check_choice("format", format, ("html", "markdown", "latex", "csv"))

    from graph_transplant.experiments.results import read_results
    from graph_transplant.files import write_atomically
    from graph_transplant.report.comparison import figures_folder

    results = read_results(directory, selection=selection(select), equal_within=equal_within)
    if format == "html":
        page = results.report(out)
        files = {page: "the report", figures_folder(page): "its figures, as SVG and CSV"}
        if out is None:
            # The table beside the page has what the page shows.
            table = directory / "summary.csv"
            write_atomically(table, results.to_csv())
            files[table] = "the ranking"
        print_files(output(), files)
        return 0
    results.check()
    forms = {
        "markdown": results.to_markdown,
        "latex": results.to_latex,
        "csv": results.to_csv,
    }
    text = forms[format]()
    if out is None:
        # Not by the console: it would wrap long lines.
        sys.stdout.write(text)
    else:
        write_atomically(out, text)
        print_files(output(), {out: "the tables"})
    return 0
