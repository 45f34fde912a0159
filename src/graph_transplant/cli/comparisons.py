"""The commands that compare methods: ``compare``, ``paper`` and ``across``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from graph_transplant.cli.common import (
    Beginning,
    Logged,
    cell,
    output,
    print_error,
    print_files,
    progress_display,
    resumable,
    split_list,
    split_numbers,
)
from graph_transplant.cli.data import (
    NO_OPTIONS,
    DataOptions,
    load_data,
    tell_skipped,
    write_skipped,
)
from graph_transplant.errors import GraphTransplantError

if TYPE_CHECKING:
    from graph_transplant.experiments.compare import Comparison
    from graph_transplant.experiments.summary import SummaryRow


def compare(
    data: str = "motifs",
    /,
    *,
    methods: str = "vanilla,transplant-dp,transplant-ep",
    models: str = "auto",
    layers: str = "3",
    folds: int = 5,
    repeats: int = 1,
    select: bool = False,
    nested: bool = False,
    metric: str | None = None,
    split: str = "folds",
    scale: str = "auto",
    epochs: int = 1000,
    batch_size: int | None = None,
    readout: str = "mean",
    balance: bool = False,
    attack: str | None = None,
    label_noise: str = "0",
    train_fraction: str = "1",
    ties: str = "first",
    seed: int = 0,
    workers: int = 1,
    engine: str = "local",
    address: str | None = None,
    tensorboard: Path | None = None,
    fresh: bool = False,
    out: Path | None = None,
    columns: DataOptions = NO_OPTIONS,
) -> int:
    """Compare methods by cross-validation and write a report.

    The same command again runs only what is missing, whatever stopped it before.

    Args:
        data: Name of a data set (see `graph-transplant datasets`), or the path of a table (CSV),
            SDF or JSON Lines file, or of a TU or OGB folder or archive.
        methods: Methods, separated by commas, or `all`; see `graph-transplant methods` for names
            and parameters. Differences are taken to `vanilla`.
        models: Convolutions, separated by commas: gcn, gcs, gin, gat, and with edge features gine,
            gat-edge; auto takes gine for molecules read from a table or SDF file, else gcs.
        layers: Numbers of convolution layers, separated by commas.
        folds: Folds of the cross-validation; one is the test set, one the validation set.
        repeats: How often to repeat the cross-validation with another shuffle.
        select: Report each method with the number of layers and the parameters, among those of its
            search space, that have the best mean validation metric.
        nested: Select for every test fold anew, on the other folds alone.
        metric: accuracy, auroc, average_precision or r2. [default: auroc for several labels or two
            classes of which one is rare, r2 for numbers, else accuracy]
        split: folds, official for the split that comes with the data set, or scaffold for one
            split of molecules by their Bemis-Murcko scaffold.
        scale: Patience and batch size of the paper for small, medium or large data sets; auto goes
            by the number of graphs.
        epochs: Most epochs per trial; training stops earlier when nothing improves.
        batch_size: Graphs per training batch. [default: 128, for large data sets 64]
        readout: How nodes become a graph: mean, sum, max.
        balance: Draw each class equally often.
        attack: Also attack the test graphs (GradArgmax), changing this share of the mean number of
            edges; several separated by commas make a curve.
        label_noise: Share of the training labels that are made wrong; several separated by commas
            make a curve.
        train_fraction: Share of the training graphs that are trained on; several separated by
            commas make a curve.
        ties: Which of several epochs with the same validation metric is the best: first, loss (the
            one with the lowest validation loss) or reset (the last; every tie restarts patience).
        seed: The one number that all randomness derives from.
        workers: Trials that run at the same time, one core each.
        engine: What runs the trials: local (processes on this machine), ray (a cluster), torchrun
            (all its processes on one trial at a time, each with a share of every batch).
        address: Address of the Ray cluster. [default: one is started on this machine]
        tensorboard: Directory to log finished trials to, for TensorBoard.
        fresh: Start over; the records that are there are kept under another name.
        out: Directory for records, tables and report. [default: comparisons/DATA]
        columns: How the data are read.
    """
    # Checked before the slow imports: a mistyped number should not cost seconds.
    names = split_list("methods", methods)
    convolutions = split_list("models", models)
    depths = split_numbers("layers", layers, int)
    budgets = split_numbers("attack", attack, float) if attack else []
    noises = split_numbers("label-noise", label_noise, float)
    fractions = split_numbers("train-fraction", train_fraction, float)

    from graph_transplant.experiments.compare import compare as run
    from graph_transplant.experiments.distributed import join_group, lead_or_serve
    from graph_transplant.experiments.paper import slug
    from graph_transplant.experiments.worker import TrialError, keep_freed_memory
    from graph_transplant.report import write_report
    from graph_transplant.tensorboard import write_record

    keep_freed_memory()
    directories: list[Path] = []

    def work() -> int:
        reporter = progress_display()
        if tensorboard is not None:
            reporter = Logged(reporter, tensorboard)
        store = load_data(data, columns)
        directory = out or Path("comparisons") / slug(store.name)
        directories.append(directory)
        skipped = directory / "skipped.csv"
        tell_skipped(store, skipped)
        # Not before it is clear that this is the comparison that the directory holds.
        reporter = Beginning(reporter, lambda: write_skipped(store, skipped))
        comparison = run(
            store,
            out=directory,
            methods=names,
            models=convolutions,
            layers=depths,
            folds=folds,
            repeats=repeats,
            epochs=epochs,
            batch_size=batch_size,
            seed=seed,
            select=selection(select, nested),
            metric=metric,
            scale=scale,
            split=split,
            readout=readout,
            balance=balance,
            attack=budgets,
            label_noise=noises,
            train_fraction=fractions,
            ties=ties,
            workers=workers,
            engine=engine,
            address=address,
            fresh=fresh,
            source=data,
            reporter=reporter,
        )
        if tensorboard is not None:
            # Those too that were there before; what is logged already is not logged again.
            for record in comparison.records:
                write_record(record, tensorboard)
        write_skipped(store, skipped)
        write_report(comparison.records, directory / "report.html", comparison.selection)
        print_comparison(comparison)
        return 0

    def work_together() -> int:
        with join_group() as rank:
            try:
                return lead_or_serve(work, lambda: load_data(data, columns))
            except TrialError as problem:
                if rank:
                    print(problem.details, end="", file=sys.stderr)
                    print_error(f"in process {rank}, {problem}")
                raise

    if engine != "torchrun":
        return resumable(work, lambda: directories)
    # What else there is to say, the first process says.
    return resumable(work_together, lambda: directories, quiet=os.environ.get("RANK") != "0")


def paper(
    experiment: str,
    /,
    *,
    data: str | None = None,
    models: str | None = None,
    budget: str = "quick",
    workers: int = 1,
    engine: str = "local",
    address: str | None = None,
    fresh: bool = False,
    out: Path = Path("paper"),
    root: Path | None = None,
) -> int:
    """Run an experiment of the paper and print its published figures beside the measured ones.

    The same command again runs only what is missing. Experiments on the same data share their
    trials.

    Args:
        experiment: table1, table2, table3-robustness, table4-calibration, gcn, ablation, readout or
            edge-predictor.
        data: Data sets, separated by commas. [default: all of the experiment]
        models: Convolutions, separated by commas. [default: all of the experiment]
        budget: quick (one repeat, three layers, no search, about 1,200 steps per trial) or full
            (the paper's protocol).
        workers: Trials that run at the same time, one core each.
        engine: What runs the trials: local (processes on this machine) or ray (a cluster).
        address: Address of the Ray cluster. [default: one is started on this machine]
        fresh: Start over; the records that are there are kept under another name.
        out: Directory for records and tables.
        root: Folder where data sets are looked for and kept.
    """
    names = split_list("data", data) if data else None
    convolutions = split_list("models", models) if models else None

    from graph_transplant.experiments.records import RecordStore
    from graph_transplant.experiments.reproduce import run
    from graph_transplant.experiments.worker import keep_freed_memory
    from graph_transplant.report import write_report
    from graph_transplant.report.paper import text_table, write_paper_figures, write_table

    keep_freed_memory()

    def work() -> int:
        table = run(
            experiment,
            data=names,
            models=convolutions,
            budget=budget,
            out=out,
            root=root,
            workers=workers,
            engine=engine,
            address=address,
            fresh=fresh,
            reporter=progress_display(),
        )
        files = dict.fromkeys(write_table(table, out), "this table")
        for path in write_paper_figures(table, out):
            if path.suffix == ".svg":
                files[path] = "a figure, its numbers beside it as CSV"
        console = output()
        console.print()
        console.print(text_table(table), soft_wrap=True, markup=False)
        console.print()
        for directory in table.directories:
            records = RecordStore(directory).read()
            # The table may have columns that nothing is measured of yet.
            if records:
                page = directory / "report.html"
                write_report(records, page, selection(budget == "full", False))
                files[page] = "the report"
        print_files(console, files)
        return 0

    return resumable(
        work, lambda: sorted(path.parent for path in (out / budget).glob("*/records.jsonl"))
    )


def across(
    *directories: Path, select: bool = False, nested: bool = False, out: Path = Path("across.html")
) -> int:
    """Rank methods over several data sets and write a page with a critical-difference diagram.

    Args:
        directories: Directories that `graph-transplant compare` or `paper` wrote, of at least two
            data sets.
        select: Report each method with the layers and parameters that have the best mean validation
            metric.
        nested: Select for every test fold anew, on the other folds alone.
        out: The page to write.
    """
    from graph_transplant.experiments.across import across as rank
    from graph_transplant.experiments.records import RecordStore
    from graph_transplant.experiments.summary import (
        notes,
        p_cell,
        summarise,
        verdict_line,
        verdicts,
    )
    from graph_transplant.report import write_across

    if not directories:
        raise GraphTransplantError(
            "name the directories of comparisons on at least two data sets; got none"
        )
    rows: list[SummaryRow] = []
    remarks: list[str] = []
    for directory in directories:
        records = RecordStore(directory).read()
        if not records:
            raise GraphTransplantError(f"there are no records in {directory}")
        # Directory by directory: trials of two comparisons must never be paired.
        rows += summarise(records, selection(select, nested))
        remarks += [f"{directory}: {note}" for note in notes(records, selection(select, nested))]
    ranked = rank(rows)
    write_across(ranked, rows, out)
    console = output()
    for result in ranked:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column(f"method ({result.model})", overflow="fold")
        for name in ("mean rank", "wins", "ties", "losses", "p (Wilcoxon)", "p (Holm)"):
            table.add_column(name, justify="right", no_wrap=True)
        against = {row.method: row for row in result.wilcoxon}
        for name, place in zip(result.methods, result.ranks, strict=True):
            row = against.get(name)
            counts = (row.wins, row.ties, row.losses) if row else (None,) * 3
            table.add_row(
                Text(name),
                f"{place:.2f}",
                *(cell(value, "d") for value in counts),
                p_cell(row.p_value if row else None),
                p_cell(row.p_holm if row else None),
            )
        console.print()
        console.print(table)
        console.print(Text(result.sentence, style="bold"))
    console.print()
    line = verdict_line(verdicts(rows))
    console.print(Text(f"{line[:1].upper()}{line[1:]}.", style="bold"))
    for remark in remarks:
        console.print(Text(remark, style="yellow"))
    console.print()
    print_files(console, {out: "the page"})
    return 0


def selection(select: bool, nested: bool) -> str:
    """Name the way of selection that the two flags ask for.

    Example:
        >>> selection(False, False), selection(True, False), selection(True, True)
        ('none', 'validation', 'nested')
    """
    return "nested" if nested else "validation" if select else "none"


def print_comparison(comparison: Comparison) -> None:
    """Print table, verdicts and files of a comparison."""
    from graph_transplant.experiments.summary import model_name, notes

    console = output()
    console.print()
    console.print(comparison_table(comparison.rows))
    several = len(comparison.verdicts) > 1
    for verdict in comparison.verdicts:
        where = f"{model_name(verdict.model, verdict.layers)}: " if several else ""
        style = {"better": "bold green", "worse": "bold red"}.get(verdict.kind, "bold")
        console.print(Text(where + verdict.sentence, style=style))
    for note in notes(comparison.records, comparison.selection):
        console.print(Text(note, style="yellow"))
    console.print()
    print_files(
        console,
        {
            comparison.directory / "report.html": "the report",
            comparison.directory / "summary.csv": "this table",
            comparison.directory / "records.jsonl": "every trial",
            comparison.directory / "figures": "every figure as SVG, its numbers as CSV",
        },
    )


def comparison_table(rows: Sequence[SummaryRow]) -> Table:
    """Lay out the summary of a comparison; ``-`` stands for a number that is not defined.

    What is measured beside the score has a column when a row has it.

    Args:
        rows: The rows of the summary.
    """
    from graph_transplant.experiments.protocol import METRICS, Condition
    from graph_transplant.experiments.summary import format_points, model_name, p_cell

    metrics = list(dict.fromkeys(row.metric for row in rows)) or ["accuracy"]
    main = METRICS[metrics[0]] if len(metrics) == 1 else "metric"
    titles = {"ece": "ECE", "nll": "loss", **METRICS, "rmse": "RMSE", "mae": "MAE"}
    further = {
        title: f"{name}_mean"
        for name, title in titles.items()
        if name not in metrics and any(getattr(row, f"{name}_mean") is not None for row in rows)
    }
    selected = any(row.chosen for row in rows)

    def condition(row: SummaryRow) -> str:
        return Condition(row.label_noise, row.train_fraction).short

    harder = any(condition(row) for row in rows)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("method", overflow="fold")
    words = ["model", "training"] if harder else ["model"]
    names = [*words, f"{main}, %", *further, "points", "p", "p (Holm)", "d", "time"]
    for name in names:
        table.add_column(name, justify="left" if name in words else "right", no_wrap=True)
    if selected:
        table.add_column("selected", overflow="fold")
    previous = None
    for row in rows:
        group = row.group
        if previous not in (None, group):
            table.add_row()
        first = group != previous
        previous = group
        spread = "" if row.score_std is None else f" ± {100 * row.score_std:.1f}"
        cells = [
            Text(row.method, style="bold" if first else ""),
            Text(model_name(row.model, row.layers)),
            *([Text(condition(row))] if harder else []),
            Text(_signed(row.score_mean, ".1f", 100) + spread, style="bold" if first else ""),
            *(Text(_measure(getattr(row, field), field)) for field in further.values()),
            Text("-" if row.difference is None else format_points(row.difference)),
            Text(p_cell(row.p_value)),
            Text(p_cell(row.p_holm)),
            Text(_signed(row.effect, ".1f")),
            Text(cell(row.seconds_mean, ".1f") + (" s" if row.seconds_mean is not None else "")),
        ]
        if selected:
            cells.append(Text(row.chosen))
        table.add_row(*cells)
    return table


def _measure(value: float | None, field: str) -> str:
    form = ".3f"
    if value and field in ("rmse_mean", "mae_mean"):
        # In the units of the data, where three digits after the point may say nothing or too much.
        form = ".3f" if 0.1 <= value < 1000 else ".0f" if 1000 <= value < 1e7 else ".3g"
    return _signed(value, form)


def _signed(value: float | None, form: str, factor: int = 1) -> str:
    """Write a number with a true minus sign, and none before a zero."""
    if value is None:
        return cell(None, form)
    text = cell(value, form, factor)
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")
