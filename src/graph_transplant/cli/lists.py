"""The listing commands: ``methods`` and ``datasets``."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from graph_transplant.cli.output import output, plain_table


def methods() -> None:
    """List methods with a description, their parameters and the values the paper tries.

    A name may set parameters: `drop-nodes:ratio=0.4`. `NAME:paper` selects the method with each
    value the paper tries, `paper` all methods of its main table, `all` every method that trains a
    network, and `baselines` every method that does not.
    """
    from graph_transplant.methods import METHODS, expand_methods

    table = plain_table()
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("what it is")
    table.add_column("parameters", min_width=24)
    table.add_column("NAME:paper tries", no_wrap=True)
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
        "transplant-dp:sensitivity changes one parameter after another",
        "all is every method that trains a network, paper those of its main table",
        f"baselines is every one that does not: {', '.join(expand_methods(['baselines']))}",
    ):
        console.print(line, style="dim")


def datasets(*, root: Path | None = None) -> None:
    """List data sets with their sizes and origin, and whether they are on this machine.

    Args:
        root: Folder with data sets.
    """
    from graph_transplant.datasets import catalogue

    table = plain_table()
    table.add_column("name", style="bold", no_wrap=True)
    for name in ("graphs", "nodes", "edges", "classes"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("domain", "source", "on this machine"):
        table.add_column(name, overflow="fold")
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
