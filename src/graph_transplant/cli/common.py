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

Number = TypeVar("Number", bound=float)

BAD_INPUT = 2
"""Exit status when the user can mend it."""

FAILED = 1
"""Exit status when a trial or the machine failed."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

PIPE_WIDTH = 120
"""Columns to print when the output is not a terminal, which would tell its own."""


# ------------------------------------------------------------------ the command that runs

_words: list[str] = []
_options: Mapping[str, str] = {}


def set_command(words: Sequence[str], options: Mapping[str, str]) -> None:
    """Keep the words of the command that runs, and what its parameters are called on it."""
    global _words, _options
    _words, _options = list(words), options


def arguments_given() -> list[str]:
    """Give the words of the command that runs, after the program's name."""
    return _words


def repeated_command() -> str:
    """Give the command that goes on where this one was stopped."""
    # Starting over once more would put aside what has been done since.
    words = [word for word in _words if word != "--fresh"]
    processes = os.environ.get("WORLD_SIZE")
    if "torchrun" not in words or not processes:
        return shlex.join(["graph-transplant", *words])
    count = os.environ.get("LOCAL_WORLD_SIZE", processes)
    start = ["torchrun", "--nproc-per-node", count]
    if count != processes:
        start += ["--nnodes", str(int(processes) // int(count))]
    return shlex.join([*start, "-m", "graph_transplant", *words])


def in_options(message: str, options: Mapping[str, str] | None = None) -> str:
    """Call parameters of Python as the command line does, and leave other quoted words alone.

    By default those of the command that runs.

    Example:
        >>> in_options("`model` and `x` differ by `train_fraction`",
        ...            {"models": "--models", "train_fraction": "--train-fraction"})
        '--models and `x` differ by --train-fraction'
    """
    known = _options if options is None else options

    def called(match: re.Match[str]) -> str:
        # What takes one name in Python may take several here.
        return known.get(match[1]) or known.get(f"{match[1]}s") or match[0]

    return re.sub("`([a-z_]+)`", called, message)


def print_error(message: str) -> None:
    """Print an error as one line, in the words of the command line."""
    print("error: " + " ".join(in_options(message).split()), file=sys.stderr)


def resumable(
    work: Callable[[], int], directories: Callable[[], Sequence[Path]], *, quiet: bool = False
) -> int:
    """Run trials; when they fail or are stopped, say what is kept and how to go on.

    Args:
        work: What runs them and gives the exit status.
        directories: Finds where their records lie.
        quiet: Say nothing of it, because another process does.
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
                f"\nstopped; {kept()}. The same command goes on from there:\n"
                f"  {repeated_command()}",
                file=sys.stderr,
            )
        return INTERRUPTED


# ------------------------------------------------------------------ lists of values


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


def selection(select: bool, nested: bool) -> str:
    """Name the way of selection that the two flags ask for."""
    return "nested" if nested else "validation" if select else "none"


# ------------------------------------------------------------------ printing


def progress_display() -> Reporter:
    """Make what shows a running comparison: live on a terminal, line by line elsewhere."""
    errors = Console(stderr=True, highlight=False)
    return Display(errors) if errors.is_interactive else Plain(errors)


def output() -> Console:
    """Make the console that results are printed to."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


def plain_table() -> Table:
    """Make a table without lines."""
    return Table(box=None, padding=(0, 2, 0, 0), header_style="dim")


def print_files(console: Console, files: Mapping[Path, str]) -> None:
    """Print where files lie and what they are."""
    for path, content in files.items():
        # Never wrapped: a path is there to be clicked or copied.
        console.print(Text(str(path)).append(f"  {content}", style="dim"), soft_wrap=True)


def cell(value: float | None, form: str) -> str:
    """Write a number for a table; ``-`` where it is not defined."""
    return "-" if value is None else format(value, form)
