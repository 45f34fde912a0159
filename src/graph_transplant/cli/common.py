"""What the commands share: how they print, read lists, show progress and stop."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.text import Text

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.progress import Display, Plain, Reporter

if TYPE_CHECKING:
    from graph_transplant.experiments.protocol import Record, Trial

Number = TypeVar("Number", bound=float)

BAD_INPUT = 2
"""Exit status when the user can mend it."""

FAILED = 1
"""Exit status when a trial or the machine failed."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

PIPE_WIDTH = 120
"""Columns to print when the output is not a terminal, which would tell its own."""


def progress_display() -> Reporter:
    """Make what shows a running comparison: live on a terminal, line by line elsewhere."""
    errors = Console(stderr=True, highlight=False)
    return Display(errors) if errors.is_interactive else Plain(errors)


class Beginning(Reporter):
    """Calls a function when a comparison has been accepted and begins."""

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin

    def start(self, *, trials: Sequence[Trial], finished: Sequence[Record], workers: int) -> None:
        """The trials that will run, the records there are already, and how many run at once."""
        self._begin()


class Logged(Reporter):
    """Logs finished trials to TensorBoard; raises if the directory cannot be written to."""

    def __init__(self, directory: Path) -> None:
        from graph_transplant.tensorboard import check_installed

        check_installed()
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise GraphTransplantError(
                f"cannot log to {directory}: {problem.strerror or problem}"
            ) from problem
        if not os.access(directory, os.W_OK | os.X_OK):
            raise GraphTransplantError(f"cannot log to {directory}: Permission denied")
        self._directory = directory

    def trial_finished(self, record: Record) -> None:
        """A trial is finished and its record is on disk."""
        from graph_transplant.tensorboard import write_record

        write_record(record, self._directory)


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
                f"  {shlex.join(_command())}",
                file=sys.stderr,
            )
        return INTERRUPTED


_given: list[str] | None = None


def give_arguments(arguments: Sequence[str] | None) -> list[str]:
    """Remember the words of a command, by default those the program was started with."""
    global _given
    _given = None if arguments is None else list(arguments)
    return arguments_given()


def arguments_given() -> list[str]:
    """Give the words of the command that runs, after the program's name."""
    return sys.argv[1:] if _given is None else _given


def _command() -> list[str]:
    """Give the command that goes on where this one was stopped."""
    # Starting over once more would put aside what has been done since.
    arguments = [item for item in arguments_given() if item != "--fresh"]
    processes = os.environ.get("WORLD_SIZE")
    if "torchrun" in arguments and processes:
        count = os.environ.get("LOCAL_WORLD_SIZE", processes)
        start = ["torchrun", "--nproc-per-node", count]
        if count != processes:
            start += ["--nnodes", str(int(processes) // int(count))]
        return [*start, "-m", "graph_transplant", *arguments]
    return ["graph-transplant", *arguments]


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


def split_numbers(argument: str, text: str, kind: type[Number]) -> list[Number]:
    """Take a list of numbers apart at its commas.

    Args:
        argument: Name of the argument, for messages.
        text: The list.
        kind: ``int`` or ``float``.

    Example:
        >>> split_numbers("layers", "3,4", int), split_numbers("attack", "0.1, 1", float)
        ([3, 4], [0.1, 1.0])
    """
    try:
        return [kind(item) for item in text.split(",")]
    except ValueError as problem:
        noun = "whole numbers" if kind is int else "numbers"
        raise GraphTransplantError(
            f"`{argument}` must be {noun} separated by commas, got {text!r}"
        ) from problem


def output() -> Console:
    """Make the console that results are printed to."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


def print_error(message: str) -> None:
    """Print an error as one line."""
    print("error: " + " ".join(message.split()), file=sys.stderr)


def print_files(console: Console, files: Mapping[Path, str]) -> None:
    """Print where files lie and what they are."""
    for path, content in files.items():
        # Never wrapped: a path is there to be clicked or copied.
        console.print(Text(str(path)).append(f"  {content}", style="dim"), soft_wrap=True)


def cell(value: float | None, form: str, factor: int = 1) -> str:
    """Write a number for a table; ``-`` where it is not defined.

    Example:
        >>> cell(0.256, ".1f", 100), cell(None, ".1f")
        ('25.6', '-')
    """
    return "-" if value is None else format(factor * value, form)
