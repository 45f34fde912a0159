"""Arguments of the commands: lists, checks without torch, and the data they name."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from inspect import BoundArguments
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from cyclopts import Parameter, Token
from cyclopts import convert as convert_token

from graph_transplant.cli.output import gone, note
from graph_transplant.config.datasets import SUFFIXES, InputConfig, LoadConfig, check_data
from graph_transplant.config.options import checked
from graph_transplant.errors import GraphTransplantError
from graph_transplant.utils.files import check_model, refuse_overwrite

if TYPE_CHECKING:
    from graph_transplant.data import GraphStore
    from graph_transplant.errors import Skipped

FOLDERS = ("across", "compare", "reproduce", "train")  # commands that write a folder, not a file

SHOWN_REASONS = 3  # maximum number of skipped rows to print; the file lists all

Columns = Annotated[LoadConfig, Parameter(name="*")]
InputColumns = Annotated[InputConfig, Parameter(name="*")]
NO_COLUMNS, NO_INPUT_COLUMNS = LoadConfig(), InputConfig()

Select = Annotated[
    bool,
    Parameter(
        help="Report each method with the number of layers and the parameters from its search "
        "space that have the best mean validation metric."
    ),
]


# ------------------------------------------------------------------ words to values


def convert(kind: Any, tokens: Sequence[Token]) -> Any:
    """Convert a word: lists at commas; names stay as they are, and are checked as in Python."""
    kind, option = _plain(kind), tokens[0].keyword
    word = ",".join(token.value for token in tokens)  # more than one if a list is repeated
    if option == "--engine" and word == "torchrun":
        raise GraphTransplantError(gone("compare --engine torchrun"))
    if get_origin(kind) is Literal:
        return word
    if get_origin(kind) is not tuple:
        return convert_token(kind, tokens)
    item = _plain(get_args(kind)[0])
    item = item if item in (int, float) else str
    try:
        items = [item(part.strip()) for part in word.split(",")]
    except ValueError:
        items = [""]
    if "" in items:
        noun = {int: "whole numbers", float: "numbers", str: "names"}[item]
        raise GraphTransplantError(f"{option} must be {noun} separated by commas, got {word!r}")
    return items


def _plain(kind: Any) -> Any:
    """A type without what says that it may be missing, and without its checks."""
    while get_origin(kind) in (Annotated, Union, UnionType):
        kind = get_args(kind)[0]
    return kind


def show_default(value: Any) -> Any:
    """Return a default for the help, as it would be typed."""
    if not isinstance(value, tuple):
        return value
    return ",".join(f"{one:g}" if isinstance(one, float) else str(one) for one in value) or "none"


PARAMETER = Parameter(negative=(), converter=convert, show_default=show_default)
"""How every option is read and shown."""


# ------------------------------------------------------------------ checks


def check_arguments(command: Callable[..., Any], bound: BoundArguments) -> None:
    """Raise if an argument of a command is invalid for any data."""
    name, kinds = command.__name__, get_type_hints(command, include_extras=True)
    given: dict[str, Any] = {}
    for argument, value in bound.arguments.items():
        # The options of a dataclass are checked by itself.
        given |= vars(value) if is_dataclass(value) else {argument: value}
        if get_origin(kinds[argument]) in (Annotated, Literal, Union, UnionType):
            bound.arguments[argument] = checked(argument, kinds[argument], value)
    for argument, value in given.items():
        if argument == "data" and isinstance(value, str):
            # These commands also accept SMILES.
            if name not in ("predict", "explain") or value.lower().endswith(SUFFIXES):
                check_data(value, given.get("root"))
        elif argument in ("model", "against") and isinstance(value, Path):
            check_model(value, "model.json")
        elif argument in ("directory", "directories"):
            for directory in [value] if argument == "directory" else value:
                check_records(directory)
    if name == "across" and not given.get("directories"):
        raise GraphTransplantError(
            "name the directories of comparisons on at least two data sets; got none"
        )
    if given.get("out") is not None and str(given["out"]) != "-":
        check_out(Path(given["out"]), given, folder=name in FOLDERS)


def check_out(out: Path, given: Mapping[str, Any], *, folder: bool) -> None:
    """Raise if ``out`` cannot be written, or would overwrite an input."""
    place = out if folder else out.parent
    there = next((one for one in (place, *place.parents) if os.path.exists(one)), place)
    if there.is_file():
        what = "a folder" if folder and there == out else "in a folder"
        raise GraphTransplantError(f"`out` must be {what}, but {there} is a file")
    if not folder and out.is_dir():
        raise GraphTransplantError(f"`out` must be a file, but {out} is a folder")
    folders = [given.get(name) for name in ("model", "against", "directory")]
    folders += given.get("directories", ())
    names = ("model.json", "weights.safetensors", "records.jsonl")
    kept = [one / name for one in folders if isinstance(one, Path) for name in names]
    refuse_overwrite([given.get("data"), *kept], [] if folder else [out])


def check_records(directory: Path) -> None:
    """Raise unless a directory contains records of a comparison."""
    if not directory.is_dir():
        raise GraphTransplantError(f"there is no directory {directory}")
    if not (directory / "records.jsonl").is_file():
        raise GraphTransplantError(
            f"there are no records in {directory}: `graph-transplant compare` writes records.jsonl"
        )


# ------------------------------------------------------------------ data


def load_data(data: str, options: LoadConfig) -> GraphStore:
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
