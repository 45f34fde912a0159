"""Options for reading data, shared by the commands."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from graph_transplant.cli.output import note

if TYPE_CHECKING:
    from graph_transplant.data import GraphStore
    from graph_transplant.errors import Skipped

SHOWN_REASONS = 3  # maximum number of skipped rows to print; the file lists all


@Parameter(name="*")
@dataclass(frozen=True)
class InputOptions:
    """How data for a trained model are read; everything else comes from the model.

    Args:
        smiles: Column with the SMILES. [default: as in the training data]
        id: Column with the names of the rows. [default: as in the training data]
        root: Folder where data sets are looked for and kept.
    """

    smiles: str | None = None
    id: str | None = None
    root: Path | None = None

    def given(self) -> dict[str, Any]:
        """Return the options that were set, for ``load`` or ``stream``."""
        return {name: value for name, value in vars(self).items() if value not in (None, False)}


@Parameter(name="*")
@dataclass(frozen=True)
class DataOptions(InputOptions):
    """How data are read.

    Args:
        smiles: Column with the SMILES. [default: detected by its name]
        target: Columns of a table, or properties of an SDF file, to predict, separated by commas.
        id: Column with the names of the rows.
        task: multiclass, multilabel or regression. [default: inferred from the values]
        largest_fragment: Keep only the largest fragment of salts and mixtures; also applied when
            the model predicts.
        root: Folder where data sets are looked for and kept.
    """

    target: str | None = None
    task: str | None = None
    largest_fragment: bool = False


NO_OPTIONS = DataOptions()
NO_INPUT_OPTIONS = InputOptions()


def load_data(data: str, options: DataOptions) -> GraphStore:
    """Load a data set with these options."""
    from graph_transplant.datasets import load
    from graph_transplant.errors import SkippedRows

    with warnings.catch_warnings():
        # Commands print these rows.
        warnings.simplefilter("ignore", SkippedRows)
        return load(data, **options.given())


def tell_skipped(store: GraphStore, path: Path) -> None:
    """Print the notes and the skipped rows, which ``path`` lists."""
    for text in store.notes:
        note(text)
    tell_rows(store.skipped, len(store), f", see {path}")


def tell_rows(skipped: Sequence[Skipped], read: int, where: str = "") -> None:
    """Print how many rows were skipped, and the first reasons."""
    if not skipped:
        return
    note(f"{len(skipped)} of {len(skipped) + read} rows skipped{where}")
    for row in skipped[:SHOWN_REASONS]:
        note(f"  row {row.row}: {row.reason}", "dim")
    if len(skipped) > SHOWN_REASONS:
        note(f"  and {len(skipped) - SHOWN_REASONS} more", "dim")
