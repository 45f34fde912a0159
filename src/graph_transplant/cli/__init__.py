"""The command line, ``graph-transplant``.

Nothing slow is imported before a command needs it: asking for help must not wait for torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter

from graph_transplant import __version__
from graph_transplant.cli.attack import attack
from graph_transplant.cli.common import (
    BAD_INPUT,
    FAILED,
    INTERRUPTED,
    give_arguments,
    print_error,
)
from graph_transplant.cli.comparisons import across, compare
from graph_transplant.cli.lists import datasets, methods
from graph_transplant.cli.models import explain, predict, show, train
from graph_transplant.cli.paper import paper
from graph_transplant.cli.report import report
from graph_transplant.errors import GraphTransplantError

__all__ = ["app", "main"]

app = App(
    name="graph-transplant",
    help=(
        "Does augmentation help on your graphs? Compare Graph Transplant with plain training; then "
        "train, use and explain the model."
    ),
    version=__version__,
    version_flags=["--version"],
    default_parameter=Parameter(negative=()),
)

for command in (
    *(compare, report, train, predict, explain, attack, show),
    *(paper, across, methods, datasets),
):
    app.command(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The words after the program's name. (default: those it was started with)

    Returns:
        The exit status: 0, 1 when something failed, 2 for bad input, 130 after Ctrl-C.
    """
    try:
        status = app(
            give_arguments(arguments),
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
