"""The command line, ``graph-transplant``.

Nothing slow is imported before a command needs it: asking for help must not wait for torch.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App, CycloptsError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from graph_transplant import __version__
from graph_transplant.errors import GraphTransplantError

if TYPE_CHECKING:
    from graph_transplant.experiments.compare import Comparison
    from graph_transplant.experiments.summary import SummaryRow

BAD_INPUT = 2
"""Exit status when the user can mend it."""

FAILED = 1
"""Exit status when a trial or the machine failed."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

PIPE_WIDTH = 120
"""Columns to print when the output is not a terminal, which would tell its own."""

app = App(
    name="graph-transplant",
    help="Does augmentation help on your graphs? Compare Graph Transplant with plain training.",
    version=__version__,
    version_flags=["--version"],
)


@app.command
def compare(
    data: str = "motifs",
    /,
    *,
    methods: str = "vanilla,transplant-dp,transplant-ep",
    models: str = "gcs",
    layers: str = "3",
    folds: int = 5,
    repeats: int = 1,
    epochs: int = 1000,
    batch_size: int = 128,
    seed: int = 0,
    workers: int = 1,
    out: Path | None = None,
    root: Path | None = None,
) -> int:
    """Compare methods by cross-validation and write a report.

    The same command again runs only what is missing, whatever stopped it before.

    Args:
        data: Name of a data set (see `graph-transplant datasets`) or a path.
        methods: Methods, separated by commas, or `all`; see `graph-transplant methods` for names
            and parameters. Differences are taken to `vanilla`.
        models: Convolutions, separated by commas: gcn, gcs, gin, gat.
        layers: Numbers of convolution layers, separated by commas.
        folds: Folds of the cross-validation; one is the test set, one the validation set.
        repeats: How often to repeat the cross-validation with another shuffle.
        epochs: Most epochs per trial; training stops earlier when nothing improves.
        batch_size: Graphs per training batch.
        seed: The one number that all randomness derives from.
        workers: Trials that run at the same time, one core each.
        out: Directory for records, tables and report. [default: comparisons/DATA]
        root: Folder where data sets are looked for and kept.
    """
    # Checked before the slow imports: a mistyped number should not cost seconds.
    names = split_list("methods", methods)
    convolutions = split_list("models", models)
    depths = split_numbers("layers", layers)

    from graph_transplant.datasets import load
    from graph_transplant.experiments.compare import compare as run
    from graph_transplant.experiments.engine import TrialError
    from graph_transplant.experiments.progress import Display, Plain
    from graph_transplant.experiments.records import RecordStore
    from graph_transplant.experiments.worker import keep_freed_memory
    from graph_transplant.report import write_report

    keep_freed_memory()
    errors = Console(stderr=True, highlight=False)
    store = load(data, root)
    directory = out or Path("comparisons") / slug(store.name)
    try:
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
            workers=workers,
            source=data,
            reporter=Display(errors) if errors.is_interactive else Plain(errors),
        )
    except TrialError as problem:
        if problem.details:
            print(problem.details, file=sys.stderr)
        kept = len(RecordStore(directory).read())
        print_error(f"{problem} ({kept} finished trials are kept in {directory})")
        return FAILED
    except KeyboardInterrupt:
        kept = len(RecordStore(directory).read())
        print(
            f"\nstopped; {kept} finished trials are kept in {directory}. The same command goes on "
            f"from there:\n  {shlex.join(['graph-transplant', *_arguments()])}",
            file=sys.stderr,
        )
        return INTERRUPTED
    write_report(comparison.records, directory / "report.html")
    print_comparison(comparison)
    return 0


@app.command
def methods() -> int:
    """List methods: names, what they are, their parameters, the values the paper tries.

    A name may set parameters: `drop-nodes:ratio=0.4`. `NAME:paper` stands for the method with each
    value the paper tries, `paper` for all methods of its main table, `all` for every method.
    """
    from graph_transplant.augment import METHODS

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("what it is")
    for name in ("parameters", "NAME:paper tries"):
        table.add_column(name, no_wrap=True)
    for name, method in METHODS.items():
        set_to = " ".join(f"{key}={value}" for key, value in method.parameters.items())
        tried = " ".join(
            f"{key}={','.join(str(value) for value in values)}"
            for key, values in method.search.items()
        )
        table.add_row(Text(name), Text(method.summary), Text(set_to or "-"), Text(tried or "-"))
    console = output()
    console.print(table)
    for line in (
        "drop-nodes:ratio=0.4 sets a parameter; drop-nodes:paper tries each value of the paper",
        "all is every method, paper those of its main table",
    ):
        console.print(line, style="dim")
    return 0


@app.command
def datasets(*, root: Path | None = None) -> int:
    """List data sets: names, sizes, where they come from, what is on this machine.

    Args:
        root: Folder where data sets are looked for.
    """
    from graph_transplant.datasets import catalogue

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("name", style="bold", no_wrap=True)
    for name in ("graphs", "nodes", "edges", "classes"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("domain", "source", "on this machine"):
        table.add_column(name)
    for info in catalogue(root):
        table.add_row(
            Text(info.name),
            f"{info.graphs:,}",
            f"{info.mean_nodes:.1f}",
            f"{info.mean_edges:.1f}",
            str(info.classes),
            Text(info.domain),
            Text(info.source),
            Text(str(info.location) if info.location else "-"),
        )
    console = output()
    console.print(table)
    console.print("nodes and edges are means per graph", style="dim")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The words after the program's name. (default: those it was started with)

    Returns:
        The exit status: 0, 1 when something failed, 2 for bad input, 130 after Ctrl-C.
    """
    try:
        status = app(
            sys.argv[1:] if arguments is None else list(arguments),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except GraphTransplantError as problem:
        print_error(str(problem))
        return BAD_INPUT
    except CycloptsError as problem:
        print_error(f"{problem} (see graph-transplant --help)")
        return BAD_INPUT
    except OSError as problem:
        print_error(str(problem))
        return FAILED
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return INTERRUPTED
    return status if isinstance(status, int) else 0


def _arguments() -> list[str]:
    return sys.argv[1:]


def split_list(argument: str, text: str) -> list[str]:
    """Take a list apart at its commas.

    Args:
        argument: Name of the argument, for messages.
        text: The list.

    Example:
        >>> split_list("models", "gcs, gin")
        ['gcs', 'gin']
    """
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise GraphTransplantError(
            f"`{argument}` must be names separated by single commas, got {text!r}"
        )
    return items


def split_numbers(argument: str, text: str) -> list[int]:
    """Take a list of whole numbers apart at its commas.

    Args:
        argument: Name of the argument, for messages.
        text: The list.

    Example:
        >>> split_numbers("layers", "3,4")
        [3, 4]
    """
    try:
        return [int(item) for item in split_list(argument, text)]
    except GraphTransplantError:
        raise
    except ValueError as problem:
        raise GraphTransplantError(
            f"`{argument}` must be whole numbers separated by commas, got {text!r}"
        ) from problem


def slug(name: str) -> str:
    """Make a directory name of a data set's name.

    Example:
        >>> slug("my data/v2")
        'my-data-v2'
    """
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "data"


def output() -> Console:
    """Make the console that results are printed to."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


def print_error(message: str) -> None:
    """Print an error as one line."""
    print("error: " + " ".join(message.split()), file=sys.stderr)


def print_comparison(comparison: Comparison) -> None:
    """Print table, verdicts and files of a comparison."""
    from graph_transplant.experiments.summary import notes

    console = output()
    console.print()
    console.print(comparison_table(comparison.rows))
    several = len(comparison.verdicts) > 1
    for verdict in comparison.verdicts:
        where = f"{verdict.model}-{verdict.layers}: " if several else ""
        style = {"better": "bold green", "worse": "bold red"}.get(verdict.kind, "bold")
        console.print(Text(where + verdict.sentence, style=style))
    for note in notes(comparison.records):
        console.print(Text(note, style="yellow"))
    console.print()
    for name, content in (
        ("report.html", "the report"),
        ("summary.csv", "this table"),
        ("records.jsonl", "every trial"),
    ):
        # Never wrapped: a path is there to be clicked or copied.
        path = Text(str(comparison.directory / name))
        console.print(path.append(f"  {content}", style="dim"), soft_wrap=True)


def comparison_table(rows: Sequence[SummaryRow]) -> Table:
    """Lay out the summary of a comparison; ``-`` stands for a number that is not defined.

    Args:
        rows: The rows of the summary.
    """
    from graph_transplant.experiments.summary import format_points

    has_auroc = any(row.auroc_mean is not None for row in rows)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("method", overflow="fold")
    names = ["model", "accuracy, %", "ECE", "loss"]
    names += ["AUROC"] if has_auroc else []
    names += ["points", "p", "p (Holm)", "time"]
    for name in names:
        table.add_column(name, justify="left" if name == "model" else "right", no_wrap=True)
    previous = None
    for row in rows:
        group = (row.data, row.model, row.layers)
        if previous not in (None, group):
            table.add_row()
        first = group != previous
        previous = group
        spread = "" if row.accuracy_std is None else f" ± {100 * row.accuracy_std:.1f}"
        cells = [
            Text(row.method, style="bold" if first else ""),
            Text(f"{row.model}-{row.layers}"),
            Text(_cell(row.accuracy_mean, ".1f", 100) + spread, style="bold" if first else ""),
            Text(_cell(row.ece_mean, ".3f")),
            Text(_cell(row.nll_mean, ".3f")),
        ]
        if has_auroc:
            cells.append(Text(_cell(row.auroc_mean, ".3f")))
        cells += [
            Text("-" if row.difference is None else format_points(row.difference)),
            Text(_p_cell(row.p_value)),
            Text(_p_cell(row.p_holm)),
            Text(_cell(row.seconds_mean, ".1f") + (" s" if row.seconds_mean is not None else "")),
        ]
        table.add_row(*cells)
    return table


def _cell(value: float | None, form: str, factor: float = 1.0) -> str:
    return "-" if value is None else format(factor * value, form)


def _p_cell(value: float | None) -> str:
    if value is None:
        return "-"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
