"""The paper's experiments from a shell: ``python -m reproduction table1``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from cyclopts import App

from graph_transplant.cli import run_app
from graph_transplant.cli.arguments import PARAMETER
from graph_transplant.cli.output import output, print_files, progress_display, resumable
from graph_transplant.config.datasets import check_data
from graph_transplant.config.options import Convolution, Count, Engine
from graph_transplant.errors import check_choice
from graph_transplant.results.results import read_results
from reproduction.experiments import EXPERIMENTS, run
from reproduction.tables import paper_table

PROGRAM = "python -m reproduction"


def reproduce(
    experiment: str,
    /,
    *,
    data: tuple[str, ...] | None = None,
    models: tuple[Convolution, ...] | None = None,
    budget: Literal["quick", "full"] = "quick",
    workers: Count = 1,
    engine: Engine = "local",
    address: str | None = None,
    fresh: bool = False,
    out: Path = Path("paper"),
    root: Path | None = None,
) -> int:
    """Run an experiment of the paper and print its published numbers next to the measured ones.

    Running the same command again resumes: only missing trials are run. Experiments on the same
    data share trials.

    Args:
        experiment: table1, table2, table3-robustness, table4-calibration, gcn, ablation, readout or
            edge-predictor.
        data: Data sets, separated by commas. [default: all of the experiment]
        models: Convolutions, separated by commas. [default: all of the experiment]
        budget: quick (a smoke test: one repeat, three layers, no search, about 1,200 steps per
            trial) or full (the paper's protocol).
        workers: Number of trials to run in parallel, one core each.
        engine: What runs the trials: local (processes on this machine) or ray (a cluster).
        address: Address of the Ray cluster. [default: one is started on this machine]
        fresh: Start over; existing records are kept under another name.
        out: Directory for records and tables.
        root: Folder where data sets are looked for and kept.
    """
    check_choice("experiment", experiment, EXPERIMENTS)
    for name in data or ():
        check_data(name, root)

    def work() -> int:
        request = run(
            experiment,
            data=data,
            models=models,
            budget=budget,
            out=out,
            root=root,
            workers=workers,
            engine=engine,
            address=address,
            fresh=fresh,
            reporter=progress_display(),
        )
        table = paper_table(request)
        files = dict.fromkeys(table.write(out), "this table")
        selection = "validation" if budget == "full" else "none"
        for directory in table.directories:
            # Some rows of the table may have no trials yet.
            if (directory / "records.jsonl").exists():
                page = read_results(directory, selection=selection).report()
                files[page] = "the report of the comparison"
        console = output()
        console.print()
        console.print(table.to_markdown(), soft_wrap=True, markup=False, highlight=False)
        print_files(console, files)
        return 0

    return resumable(
        work, lambda: sorted(path.parent for path in (out / budget).glob("*/records.jsonl"))
    )


app = App(
    name=PROGRAM,
    help=reproduce.__doc__,
    version_flags=(),
    default_parameter=PARAMETER,
)
app.default(reproduce)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an experiment, by default the one that ``sys.argv`` names; return the exit status."""
    return run_app(app, arguments, PROGRAM)


if __name__ == "__main__":
    sys.exit(main())
