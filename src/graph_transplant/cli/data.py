"""The options that say how data are read, the same for every command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from graph_transplant.cli.common import note

if TYPE_CHECKING:
    from graph_transplant.graphs import GraphStore, Skipped

SHOWN_REASONS = 3
"""So many reasons for skipped rows are printed; the rest stand in the file."""


@Parameter(name="*")
@dataclass(frozen=True)
class InputOptions:
    """How further data for a trained model are read; everything else the model knows.

    Args:
        smiles: Column with the SMILES. [default: as in the training data]
        id: Column with the names of the rows. [default: as in the training data]
        root: Folder where data sets are looked for and kept.
    """

    smiles: str | None = None
    id: str | None = None
    root: Path | None = None

    def given(self) -> dict[str, Any]:
        """Give what was set, as ``stream`` takes it."""
        return {name: value for name, value in vars(self).items() if value is not None}


@Parameter(name="*")
@dataclass(frozen=True)
class DataOptions:
    """How data are read.

    Args:
        smiles: Column with the SMILES. [default: detected by its name]
        target: Columns of a table, or properties of an SDF file, to predict, separated by commas.
        id: Column with the names of the rows.
        features: Features of molecules: ogb (nine per atom and three per bond, as in OGB) or
            elements (element and bond type).
        task: multiclass, multilabel or regression. [default: inferred from the values]
        largest_fragment: Keep only the largest fragment of salts and mixtures; also applied when
            the model predicts.
        root: Folder where data sets are looked for and kept.
    """

    smiles: str | None = None
    target: str | None = None
    id: str | None = None
    features: str | None = None
    task: str | None = None
    largest_fragment: bool = False
    root: Path | None = None

    def given(self) -> dict[str, Any]:
        """Give what was set, as ``load`` takes it."""
        return {name: value for name, value in vars(self).items() if value not in (None, False)}


NO_OPTIONS = DataOptions()
NO_INPUT_OPTIONS = InputOptions()


def load_data(data: str, options: DataOptions) -> GraphStore:
    """Load a data set as the options say."""
    from graph_transplant.datasets import load

    return load(data, **options.given())


def write_skipped(store: GraphStore, path: Path) -> None:
    """Write the rows that were left out to a table, or remove the table where there are none."""
    import pandas as pd

    from graph_transplant.files import write_atomically

    if not store.skipped:
        # One of an earlier run would tell of other data.
        path.unlink(missing_ok=True)
        return
    table = pd.DataFrame(store.skipped, columns=["row", "id", "reason"])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, table.to_csv(index=False, lineterminator="\n"))


def tell_skipped(store: GraphStore, path: Path) -> None:
    """Print the notes, and how many rows were left out and why; ``path`` lists them."""
    for text in store.notes:
        note(text)
    tell_rows(store.skipped, len(store), f", see {path}")


def tell_rows(skipped: Sequence[Skipped], read: int, where: str = "") -> None:
    """Say how many rows were left out beside those that were read, and why the first were."""
    if not skipped:
        return
    note(f"{len(skipped)} of {len(skipped) + read} rows skipped{where}")
    for row in skipped[:SHOWN_REASONS]:
        note(f"  row {row.row}: {row.reason}", "dim")
    if len(skipped) > SHOWN_REASONS:
        note(f"  and {len(skipped) - SHOWN_REASONS} more", "dim")
