"""The command line, ``graph-transplant``.

Slow imports are deferred: help, and errors about wrong names or paths, must not wait for torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from inspect import isfunction

from cyclopts import App, CycloptsError, UnusedCliTokensError

from graph_transplant import __version__
from graph_transplant.cli.arguments import PARAMETER, check_arguments
from graph_transplant.cli.attack import attack
from graph_transplant.cli.comparisons import across, compare, report
from graph_transplant.cli.lists import datasets, methods
from graph_transplant.cli.models import explain, predict, show, train
from graph_transplant.cli.output import (
    BAD_INPUT,
    FAILED,
    INTERRUPTED,
    NO_READER,
    gone,
    print_error,
    set_command,
)
from graph_transplant.errors import GraphTransplantError

__all__ = ["app", "main", "run_app"]

COMMANDS = (
    *(compare, report, train, predict, explain, attack, show),
    *(across, methods, datasets),
)

app = App(
    name="graph-transplant",
    help=(
        "Does augmentation help on your graphs? Compare Graph Transplant with plain training; then "
        "train, use and explain the model."
    ),
    version=__version__,
    version_flags=["--version"],
    default_parameter=PARAMETER,
)
for one in COMMANDS:
    app.command(one)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, by default with ``sys.argv``; return the exit status."""
    return run_app(app, arguments)


def run_app(
    app: App, arguments: Sequence[str] | None = None, program: str = "graph-transplant"
) -> int:
    """Run a command of an app, and report bad input and interruption; return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if program == "graph-transplant" and words[:1] == ["paper"]:
            raise GraphTransplantError(gone("paper"))
        named = app.parse_commands(words)[1][-1]
        if isfunction(named.default_command):  # not the help
            listed = named.assemble_argument_collection()
            set_command(words, {one.field_info.name: one.name for one in listed}, program)
        command, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
        if isfunction(command):
            check_arguments(command, bound)
        status: int | None = command(*bound.args, **bound.kwargs)
        sys.stdout.flush()  # so that its errors are handled below
    except GraphTransplantError as problem:
        print_error(str(problem))
        return BAD_INPUT
    except CycloptsError as problem:
        if isinstance(problem.__cause__, GraphTransplantError):  # of a word of ours
            print_error(str(problem.__cause__))
            return BAD_INPUT
        chain = " ".join([program, *(problem.command_chain or ())])
        said = str(problem)
        if isinstance(problem, UnusedCliTokensError) and problem.unused_tokens:
            said = f"unexpected argument {problem.unused_tokens[0]!r}"
        print_error(f"{said} (see {chain} --help)")
        return BAD_INPUT
    except BrokenPipeError:
        # Python flushes the standard output again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_READER
    except OSError as problem:
        print_error(str(problem))
        return FAILED
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return INTERRUPTED
    return status or 0
