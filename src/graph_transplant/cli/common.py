"""What the commands share: how they print, read lists, name their options and stop."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.progress import Display, Plain, Reporter
from graph_transplant.experiments.protocol import Record

Number = TypeVar("Number", bound=float)

# Exit status: of what the user can mend, when a trial or the machine failed, after Ctrl-C.
BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130

PIPE_WIDTH = 120
"""Columns to print where the output is not a terminal."""


_words: list[str] = []
_options: Mapping[str, str] = {}


def set_command(words: Sequence[str], options: Mapping[str, str]) -> None:
    """Keep the words of the command that runs, and what its parameters are called on it."""
    global _words, _options
    _words, _options = list(words), options


def repeated_command() -> str:
    """Give the command that goes on where this one was stopped."""
    # Starting over once more would put aside what has been done since.
    words = [word for word in _words if word != "--fresh"]
    processes = os.environ.get("WORLD_SIZE")
    if "torchrun" not in words or not processes:
        return shlex.join(["graph-transplant", *words])
    count = os.environ.get("LOCAL_WORLD_SIZE", processes)
    nodes = ["--nnodes", str(int(processes) // int(count))] if count != processes else []
    return shlex.join(
        ["torchrun", "--nproc-per-node", count, *nodes, "-m", "graph_transplant", *words]
    )


def in_options(message: str) -> str:
    """Call parameters of Python as the command that runs does; leave other quoted words alone."""

    def called(match: re.Match[str]) -> str:
        # What takes one name in Python may take several here.
        return _options.get(match[1]) or _options.get(f"{match[1]}s") or match[0]

    return re.sub("`([a-z_]+)`", called, message)


def resumable(
    work: Callable[[], int], directories: Callable[[], Sequence[Path]], *, quiet: bool = False
) -> int:
    """Run trials; when they fail or are stopped, say what is kept and how to go on.

    ``directories`` finds where their records are. ``quiet`` leaves the talking to another process.
    """
    from graph_transplant.experiments.engines import TrialError
    from graph_transplant.experiments.records import RecordStore
    from graph_transplant.ranks import EndedElsewhereError

    def kept() -> str:
        places = directories()
        count = sum(len(RecordStore(directory).read()) for directory in places)
        where = ", ".join(str(directory) for directory in places) or "no directory yet"
        return f"{count} finished trial{'s are' if count != 1 else ' is'} kept in {where}"

    try:
        return work()
    except (TrialError, EndedElsewhereError) as problem:
        if not quiet:
            if isinstance(problem, TrialError) and problem.details:
                print(problem.details, file=sys.stderr)
            print_error(f"{problem} ({kept()})")
        return FAILED
    except KeyboardInterrupt:
        if not quiet:
            print(
                f"\nstopped; {kept()}. Run the same command again to continue:\n"
                f"  {repeated_command()}",
                file=sys.stderr,
            )
        return INTERRUPTED


def split_list(argument: str, text: str) -> list[str]:
    """Take a list apart at its commas; ``argument`` is named in the error."""
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise GraphTransplantError(
            f"`{argument}` must be names separated by single commas, got {text!r}"
        )
    return items


def split_numbers(argument: str, text: str, kind: type[Number]) -> list[Number]:
    """Take a list of numbers apart at its commas; ``kind`` is ``int`` or ``float``."""
    try:
        return [kind(item) for item in text.split(",")]
    except ValueError as problem:
        noun = "whole numbers" if kind is int else "numbers"
        raise GraphTransplantError(
            f"`{argument}` must be {noun} separated by commas, got {text!r}"
        ) from problem


def selection(select: bool) -> str:
    """Name the way of selection that the flag asks for."""
    return "validation" if select else "none"


def print_error(message: str) -> None:
    """Print an error as one line, in the words of the command line."""
    print("error: " + " ".join(in_options(message).split()), file=sys.stderr)


def note(text: str, style: str = "yellow") -> None:
    """Say something besides the results."""
    Console(stderr=True, highlight=False).print(Text(in_options(text), style), soft_wrap=True)


def progress_display(then: Callable[[Record], None] = lambda record: None) -> Reporter:
    """Make what shows a running comparison: live on a terminal, line by line elsewhere.

    ``then`` is called after every trial.
    """
    errors = Console(stderr=True, highlight=False)
    return Display(errors, then) if errors.is_interactive else Plain(errors, then)


def output() -> Console:
    """Make the console that results are printed to."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


def plain_table(words: Sequence[str] = (), numbers: Sequence[str] = ()) -> Table:
    """Make a table without lines: columns of words, then columns of numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in words:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def print_files(console: Console, files: Mapping[Path, str]) -> None:
    """Print where files lie and what they are."""
    for path, content in files.items():
        # Never wrapped: a path is there to be clicked or copied.
        console.print(Text(str(path)).append(f"  {content}", style="dim"), soft_wrap=True)


def cell(value: float | None, form: str) -> str:
    """Write a number for a table; ``-`` where it is not defined."""
    return "-" if value is None else format(value, form)
