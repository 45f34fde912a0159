"""Checks of names and paths that need no torch: a misspelt one is answered at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from inspect import BoundArguments
from pathlib import Path
from typing import Any

from graph_transplant.classical import CLASSICAL
from graph_transplant.cli.common import split_list
from graph_transplant.errors import DataError, GraphTransplantError, check_choice
from graph_transplant.known import SUFFIXES, check_data
from graph_transplant.methods import GROUPS, METHODS
from graph_transplant.metrics import TASKS, deciding
from graph_transplant.recipes import MODELS, READOUTS, RECIPES, TIES, TRAINING_SPLITS
from graph_transplant.settings import SCALES, SPLITS


def check_arguments(command: str, bound: BoundArguments) -> None:
    """Raise for a name or path among the arguments of a command that cannot be right."""
    given: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        given |= vars(value) if is_dataclass(value) else {name: value}
    choices = choices_of(command)
    for name, value in given.items():
        if name == "data":
            for data in split_list(name, value) if command == "paper" else [value]:
                # What these are given may also be a SMILES.
                if command not in ("predict", "explain") or data.lower().endswith(SUFFIXES):
                    check_data(data, given.get("root"))
        elif name in ("model", "against", "trained") and isinstance(value, Path):
            check_model(value)
        elif name == "directory":
            check_records(value)
        elif name == "directories":
            for directory in value:
                check_records(directory)
        elif name in choices and isinstance(value, str):
            # A method may be followed by its parameters, of which others know.
            for item in split_list(name, value) if name in ("methods", "models") else [value]:
                key = item.partition(":")[0] if name in ("method", "methods") else item
                check_choice(name, key, choices[name])


def choices_of(command: str) -> Mapping[str, tuple[str, ...]]:
    """The names that options of a command take."""
    return {
        "methods": (*GROUPS, "classical", *METHODS, *CLASSICAL),
        "method": tuple(METHODS),
        "models": MODELS if command == "paper" else ("auto", *MODELS),
        "model": ("auto", *MODELS),
        "metric": tuple(deciding()),
        "split": SPLITS if command == "compare" else TRAINING_SPLITS,
        "scale": ("auto", *SCALES),
        "recipe": tuple(RECIPES),
        "readout": READOUTS,
        "ties": TIES,
        "task": TASKS,
    }


def check_model(folder: Path) -> None:
    """Raise unless a folder holds a trained model."""
    if not folder.is_dir():
        raise DataError(
            f"there is no folder {folder}: a model is a folder that `graph-transplant train` wrote"
        )
    if not (folder / "model.json").is_file():
        raise DataError(f"{folder} holds no model: there is no file model.json")


def check_records(directory: Path) -> None:
    """Raise unless a directory holds records of a comparison."""
    if not directory.is_dir():
        raise GraphTransplantError(f"there is no directory {directory}")
    if not (directory / "records.jsonl").is_file():
        raise GraphTransplantError(
            f"there are no records in {directory}: `graph-transplant compare` writes records.jsonl"
        )
