"""Helpers shared by the commands: output, lists, option names, interruption."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from graph_transplant.comparison.progress import Display, Heartbeat, Plain, Reporter
from graph_transplant.utils.text import plain

# Exit status: invalid input, a failed trial or machine, Ctrl-C.
BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130
# As of a program that the system ends because nobody reads its output any more (`| head`).
NO_READER = 141

PIPE_WIDTH = 120  # columns of output that is not a terminal


_words: list[str] = []
_program = "graph-transplant"
_options: Mapping[str, str] = {}


def set_command(
    words: Sequence[str], options: Mapping[str, str], program: str = "graph-transplant"
) -> None:
    """Remember the words of the current command, and the option name of each parameter."""
    global _words, _options, _program
    _words, _options, _program = list(words), options, program


def repeated_command() -> str:
    """Return the command that resumes the current one."""
    # `--fresh` would start over again.
    words = [word for word in _words if word.partition("=")[0] != "--fresh"]
    return shlex.join([*_program.split(), *words])


def in_options(message: str) -> str:
    """Replace Python parameters in a message by the options of the current command."""

    def called(match: re.Match[str]) -> str:
        return _options.get(match[1], match[0])

    return re.sub("`([a-z_]+)`", called, message)


def resumable(work: Callable[[], int], directories: Callable[[], Sequence[Path]]) -> int:
    """Run trials; if they fail or are interrupted, print what is kept and how to resume.

    ``directories`` returns the directories of their records.
    """
    from graph_transplant.comparison.engines import TrialError
    from graph_transplant.results.record_file import RecordStore

    def kept() -> str:
        places = directories()
        count = sum(len(RecordStore(directory).read()) for directory in places)
        where = ", ".join(str(directory) for directory in places) or "no directory yet"
        return f"{count} finished trial{'s are' if count != 1 else ' is'} kept in {where}"

    try:
        return work()
    except TrialError as problem:
        if problem.details:
            print(problem.details, file=sys.stderr)
        print_error(f"{problem} ({kept()})")
        return FAILED
    except KeyboardInterrupt:
        print(
            f"\nstopped; {kept()}. Run the same command again to continue:\n  {repeated_command()}",
            file=sys.stderr,
        )
        return INTERRUPTED


def selection(select: bool) -> str:
    """Return the kind of selection for the flag ``--select``."""
    return "validation" if select else "none"


def print_error(message: str) -> None:
    """Print an error on one line, with parameters named as options."""
    print("error: " + plain(" ".join(in_options(message).split())), file=sys.stderr)


def note(text: str, style: str = "yellow") -> None:
    """Print a remark to standard error."""
    shown = Text(plain(in_options(text), lines=True), style)
    Console(stderr=True, highlight=False).print(shown, soft_wrap=True)


GONE: Mapping[str, str] = {
    "paper": (
        "the paper's experiments are run from a checkout of the project, with "
        "`python -m reproduction`"
    ),
    "compare --engine torchrun": (
        "`--workers` and `--engine ray` run several trials at once; `gt.fit` still shares one "
        "training among the processes of torchrun"
    ),
    "compare --tensorboard": (
        "the page of the comparison has the curves; `gt.TensorBoard` is a callback of `gt.fit`, "
        "and `train` has the option"
    ),
    "across --out PAGE.html": "`--out` names a folder for the diagrams and their numbers",
}
"""What earlier versions had, and what takes its place; an entry stays for one release."""


def gone(what: str) -> str:
    """Say that something has been removed, and what to use instead, in an error or a note."""
    return f"{what!r} has been removed: {GONE[what]}"


def progress_display() -> Reporter:
    """Return a progress display, live on a terminal."""
    errors = Console(stderr=True, highlight=False)
    return Display(errors) if errors.is_interactive else Plain(errors)


def heartbeat(text: str) -> Heartbeat:
    """Repeat what is being done every half minute where the errors are not on a terminal."""
    return Heartbeat(Console(stderr=True, highlight=False), text)


def use_threads(threads: int) -> None:
    """Let torch compute with this number of threads."""
    import torch

    torch.set_num_threads(threads)


def output() -> Console:
    """Return the console for results."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


def plain_table(words: Sequence[str] = (), numbers: Sequence[str] = ()) -> Table:
    """Create a table without lines: columns of text, then columns of numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in words:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def print_files(console: Console, files: Mapping[Path, str]) -> None:
    """Print the path and a description of each file."""
    for path, content in files.items():
        # Not wrapped, so that paths can be clicked or copied.
        console.print(Text(str(path)).append(f"  {content}", style="dim"), soft_wrap=True)


def cell(value: float | None, form: str) -> str:
    """Format a number for a table; ``-`` if undefined."""
    return "-" if value is None else format(value, form)
