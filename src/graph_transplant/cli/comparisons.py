"""The commands that compare methods: ``compare``, ``report`` and ``across``."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from graph_transplant.cli.inputs import NO_OPTIONS, DataOptions, load_data, tell_skipped
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
    split_list,
    split_numbers,
    warning_codes,
)
from graph_transplant.metrics import selection_metrics
from graph_transplant.utils.files import SKIPPED, folder_name, write_atomically
from graph_transplant.utils.text import capital, listed, number, p_value, points

if TYPE_CHECKING:
    from graph_transplant.results.results import Results


def compare(
    data: str = "motifs",
    /,
    *,
    methods: str | None = None,
    models: str = "auto",
    layers: str = "3",
    folds: int = 5,
    repeats: int = 1,
    select: bool = False,
    metric: str | None = None,
    split: str = "folds",
    scale: str = "auto",
    recipe: str = "paper",
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    readout: str | None = None,
    balance: bool = False,
    attack: str | None = None,
    label_noise: str = "0",
    train_fraction: str = "1",
    group_duplicates: bool | None = None,
    ties: str | None = None,
    equal_within: float = 0.01,
    ignore: str = "",
    seed: int = 0,
    workers: int = 1,
    engine: str = "local",
    address: str | None = None,
    tensorboard: Annotated[Path | None, Parameter(show=False)] = None,
    fresh: bool = False,
    out: Path | None = None,
    columns: DataOptions = NO_OPTIONS,
) -> int:
    """Compare methods by cross-validation and write a report.

    Running the same command again resumes: only missing trials are run.

    Args:
        data: Name of a data set (see `graph-transplant datasets`), or the path of a table (CSV,
            Excel, Parquet, .smi), SDF or JSON Lines file, or of a TU or OGB folder or archive.
        methods: Methods, separated by commas; `all` selects those that train a network, `baselines`
            those that do not; see `graph-transplant methods` for names and parameters. All methods
            are compared with `vanilla`. [default: vanilla,transplant-dp,transplant-ep; for
            molecules read from SMILES also forest,majority]
        models: Convolutions, separated by commas: gcn, gcs, gin, gat, and with edge features gine,
            gat-edge; auto selects gine for molecules read with their bonds, otherwise gcs.
        layers: Numbers of convolution layers, separated by commas.
        folds: Folds of the cross-validation; one is the test set, one the validation set.
        repeats: Number of times the cross-validation is repeated, each with a new shuffle.
        select: Report each method with the number of layers and the parameters from its search
            space that have the best mean validation metric.
        metric: Metric that ranks the methods: METRIC_NAMES. [default: auroc for several labels, for
            two classes of molecules in a table, and for two classes if one is rare; r2 for numbers;
            otherwise accuracy]
        split: folds; scaffold-folds, which keep molecules with the same Bemis-Murcko scaffold
            together; official, the split provided with the data set; or scaffold, a single scaffold
            split of molecules.
        scale: The paper's patience and batch size for small, medium or large data sets; auto
            decides by the number of graphs.
        recipe: How networks are built and trained: paper, or strong (normalisation, residual
            connections, AdamW with warm-up and cosine decay).
        epochs: Maximum number of epochs per trial; the paper's recipe stops earlier if nothing
            improves. [default: 1000; 200 with the strong recipe]
        batch_size: Graphs per training batch. [default: 128; 64 for large data sets; 32 for small
            ones with the strong recipe]
        learning_rate: Highest learning rate. [default: 0.0005; 0.001 with the strong recipe]
        readout: How node embeddings are pooled: mean, sum, max or mean-max. [default: mean;
            mean-max with the strong recipe]
        balance: Draw each class equally often.
        attack: Also attack the test graphs (GradArgmax), changing this share of the mean number of
            edges; several shares, separated by commas, give a curve. For models that use edge
            features, edges are only removed.
        label_noise: Share of the training labels to make wrong; several shares, separated by
            commas, give a curve.
        train_fraction: Share of the training graphs to train on; several shares, separated by
            commas, give a curve.
        group_duplicates: Keep identical graphs in the same fold. [default: for molecules read from
            a table]
        ties: Which epoch to keep if several have the same validation metric: first, loss (the one
            with the lowest validation loss) or reset (the last; every tie restarts patience).
            [default: first; loss with the strong recipe]
        equal_within: Methods are practically equal if the whole 95 % interval of their difference
            lies within this distance of zero; 0.01 is one point.
        ignore: Codes of warnings to leave out, such as GT007, separated by commas.
        seed: Seed for all randomness.
        workers: Number of trials to run in parallel, one core each.
        engine: What runs the trials: local (processes on this machine) or ray (a cluster).
        address: Address of the Ray cluster. [default: one is started on this machine]
        tensorboard: Removed; see `GONE`.
        fresh: Start over; existing records are kept under another name.
        out: Directory for records, tables and report. [default: comparisons/DATA]
        columns: How the data are read.
    """
    asked = dict(locals())
    for name in ("data", "models", "tensorboard", "columns"):
        del asked[name]
    asked |= {
        "methods": None if methods is None else split_list("methods", methods),
        "model": split_list("models", models),
        "layers": split_numbers("layers", layers, int),
        "select": selection(select),
        "ignore": warning_codes(ignore),
        "attack": split_numbers("attack", attack, float) if attack else [],
        "label_noise": split_numbers("label_noise", label_noise, float),
        "train_fraction": split_numbers("train_fraction", train_fraction, float),
    }

    from graph_transplant.comparison.compare import compare as run

    directories: list[Path] = []

    def work() -> int:
        if tensorboard is not None:
            note(gone("compare --tensorboard"))
        store = load_data(data, columns)
        directory = out or Path("comparisons") / folder_name(store.name)
        directories.append(directory)
        tell_skipped(store, directory / SKIPPED)
        results = run(store, **asked | {"out": directory, "reporter": progress_display()})
        results.check()
        print_results(results)
        return 0

    return resumable(work, lambda: directories)


# The names come from the registry of metrics.
compare.__doc__ = (compare.__doc__ or "").replace("METRIC_NAMES", listed(selection_metrics(), "or"))


def report(
    directory: Path,
    /,
    *,
    format: str = "html",  # noqa: A002 - the name of the option
    select: bool = False,
    equal_within: float = 0.01,
    ignore: str = "",
    out: Path | None = None,
) -> None:
    """Rebuild the report of a comparison, or write its ranking tables for a paper.

    Args:
        directory: Directory written by `graph-transplant compare` or `paper`.
        format: html (a page with all figures), markdown, latex (requires the booktabs package) or
            csv.
        select: Report each method with the layers and parameters that have the best mean validation
            metric.
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
        ignore=warning_codes(ignore),
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


def across(*directories: Path, select: bool = False, out: Path | None = None) -> None:
    """Rank methods across several data sets and test the ranks.

    Args:
        directories: Directories written by `graph-transplant compare` or `paper`, for at least two
            data sets.
        select: Report each method with the layers and parameters that have the best mean validation
            metric.
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
