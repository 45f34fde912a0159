"""The options that say how data are read, the same for every command."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from graph_transplant.cli.common import in_options, split_list

if TYPE_CHECKING:
    from graph_transplant.graphs import GraphStore

SHOWN_REASONS = 3
"""So many reasons for skipped rows are printed; the rest stand in the file."""


@Parameter(name="*")
@dataclass(frozen=True)
class InputOptions:
    """How further data for a trained model are read; everything else the model knows.

    Args:
        smiles: Column of a table that holds the SMILES. [default: that of the training data]
        id: Column that names the rows. [default: that of the training data]
        root: Folder where data sets are looked for and kept.
    """

    smiles: str | None = None
    id: str | None = None
    root: Path | None = None

    def given(self) -> dict[str, Any]:
        """Give what was set, as ``stream`` takes it."""
        named = {"smiles": self.smiles, "id": self.id, "root": self.root}
        return {name: value for name, value in named.items() if value is not None}


@Parameter(name="*")
@dataclass(frozen=True)
class DataOptions:
    """How data are read.

    Args:
        smiles: Column of a table that holds the SMILES. [default: the one called so]
        target: Columns of a table, properties of an SDF file, that are predicted, separated by
            commas.
        id: Column that names the rows.
        features: Features of molecules: ogb (nine of each atom, three of each bond, as OGB has
            them) or elements (element and bond type).
        task: multiclass, multilabel or regression. [default: by the values]
        largest_fragment: Keep only the largest fragment of salts and mixtures; the model does so,
            too, with what it predicts.
        root: Folder where data sets are looked for and kept.
    """

    smiles: str | None = None
    target: str | None = None
    id: str | None = None
    features: str | None = None
    task: str | None = None
    largest_fragment: bool = False
    root: Path | None = None

    def of_table(self) -> dict[str, Any]:
        """Give what was set of the options of tables, as ``load`` takes them."""
        given = {
            "smiles": self.smiles,
            "target": None if self.target is None else split_list("target", self.target),
            "id": self.id,
            "features": self.features,
            "task": self.task,
            "largest_fragment": self.largest_fragment or None,
        }
        return {name: value for name, value in given.items() if value is not None}


NO_OPTIONS = DataOptions()
"""What commands that train assume when nothing is given."""

NO_INPUT_OPTIONS = InputOptions()
"""What commands with a trained model assume when nothing is given."""


def load_data(data: str, options: DataOptions) -> GraphStore:
    """Load a data set as the options say."""
    from graph_transplant.datasets import load

    return load(data, options.root, **options.of_table())


def write_skipped(store: GraphStore, path: Path) -> None:
    """Write the rows that were left out to a table, or remove the table where there are none."""
    from graph_transplant.files import write_atomically

    if not store.skipped:
        # One of an earlier run would tell of other data.
        path.unlink(missing_ok=True)
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "id", "reason"])
    writer.writerows(store.skipped)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue())


def tell_skipped(store: GraphStore, path: Path) -> None:
    """Print the notes, and how many rows were left out and why; ``path`` lists them."""
    errors = Console(stderr=True, highlight=False)
    for note in store.notes:
        errors.print(Text(in_options(note), style="yellow"), soft_wrap=True)
    if not store.skipped:
        return
    count, rows = len(store.skipped), len(store.skipped) + len(store)
    errors.print(
        Text(f"{count} of {rows} rows skipped, see {path}", style="yellow"), soft_wrap=True
    )
    for row in store.skipped[:SHOWN_REASONS]:
        errors.print(Text(f"  row {row.row}: {row.reason}", style="dim"), soft_wrap=True)
    if count > SHOWN_REASONS:
        errors.print(Text(f"  and {count - SHOWN_REASONS} more", style="dim"))
