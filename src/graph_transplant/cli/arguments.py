"""Checks of names, numbers and paths without torch, so that errors are reported at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from inspect import BoundArguments
from pathlib import Path
from typing import Any

from graph_transplant.cli.output import gone, split_list, split_numbers
from graph_transplant.config.compare import SPLITS
from graph_transplant.config.datasets import SUFFIXES, check_data
from graph_transplant.config.fit import TIES
from graph_transplant.config.recipes import MODELS, READOUTS, RECIPES, SCALES, TRAINING_SPLITS
from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.methods import GROUPS, METHODS, RENAMED_GROUPS, check_trainable
from graph_transplant.metrics import TASKS, selection_metrics
from graph_transplant.utils.files import check_model, refuse_overwrite

# Repeated from modules that import torch; a test checks that they are complete.
ENGINES = ("local", "ray")

FOLDERS = ("across", "compare", "train")  # commands that write a folder, not a file

LISTS = {
    "layers": int,
    "rows": int,
    "attack": float,
    "budget": float,
    "label_noise": float,
    "train_fraction": float,
}
"""Options that take several numbers, separated by commas."""

LIMITS: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "folds": (lambda value: value >= 3, "at least 3"),
    "seed": (lambda value: value >= 0, "at least 0"),
    **dict.fromkeys(
        ("batch_size", "count", "ensemble", "epochs", "hidden", "hops", "layers", "repeats",
         "rows", "threads", "workers"),
        (lambda value: value >= 1, "at least 1"),
    ),
    "learning_rate": (lambda value: value > 0, "above 0"),
    **dict.fromkeys(
        ("attack", "budget", "train_fraction"), (lambda value: 0 < value <= 1, "in (0, 1]")
    ),
    **dict.fromkeys(
        ("label_noise", "equal_within", "dropout", "test"),
        (lambda value: 0 <= value < 1, "in [0, 1)"),
    ),
    **dict.fromkeys(("coverage", "validation"), (lambda value: 0 < value < 1, "in (0, 1)")),
}  # fmt: skip
"""Valid numbers of each option, as a predicate and in words."""


def check_arguments(command: str, bound: BoundArguments) -> None:
    """Raise if an argument of a command is invalid for any data."""
    given: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        given |= vars(value) if is_dataclass(value) else {name: value}
    if given.get("engine") == "torchrun":
        raise GraphTransplantError(gone("compare --engine torchrun"))
    choices = choices_of(command)
    for name, value in given.items():
        if name == "data" and value is not None:
            # These commands also accept SMILES.
            if command not in ("predict", "explain") or value.lower().endswith(SUFFIXES):
                check_data(value, given.get("root"))
        elif name in ("model", "against") and isinstance(value, Path):
            check_model(value, "model.json")
        elif name in ("directory", "directories"):
            for directory in [value] if name == "directory" else value:
                check_records(directory)
        elif command == "train" and name == "method":
            check_trainable(value)
        elif name in choices and isinstance(value, str):
            # Parameters after a method's name are checked elsewhere.
            for item in split_list(name, value) if name in ("methods", "models") else [value]:
                key = item.partition(":")[0] if name in ("method", "methods") else item
                check_choice(name, key, choices[name])
        elif name in LIMITS and value is not None:
            fits, words = LIMITS[name]
            several = isinstance(value, str)
            for number in split_numbers(name, value, LISTS[name]) if several else [value]:
                if not fits(number):
                    raise GraphTransplantError(f"`{name}` must be {words}, got {number:g}")
    engine = given.get("engine", ENGINES[0])
    if given.get("address") and engine != "ray":
        raise GraphTransplantError(
            f"`address` names a Ray cluster and needs the engine ray, got {engine!r}"
        )
    if not given.get("validation", 0) + given.get("test", 0) < 1:
        raise GraphTransplantError(
            "`validation` and `test` must leave graphs to train on: together they must be below 1"
        )
    if command == "across" and not given.get("directories"):
        raise GraphTransplantError(
            "name the directories of comparisons on at least two data sets; got none"
        )
    if given.get("out") is not None and str(given["out"]) != "-":
        check_out(Path(given["out"]), given, folder=command in FOLDERS)


def choices_of(command: str) -> Mapping[str, tuple[str, ...]]:
    """Return the valid names of each option of a command."""
    transplants = tuple(name for name in METHODS if name.startswith("transplant-"))
    return {
        "methods": (*GROUPS, *METHODS, *RENAMED_GROUPS),
        "method": transplants if command == "show" else tuple(METHODS),
        "models": ("auto", *MODELS),
        "model": ("auto", *MODELS),
        "metric": tuple(selection_metrics()),
        "split": SPLITS if command == "compare" else TRAINING_SPLITS,
        "scale": ("auto", *SCALES),
        "recipe": tuple(RECIPES),
        "readout": READOUTS,
        "ties": TIES,
        "task": TASKS,
        "class_weight": ("balanced",),
        "saliency": ("gradient-x-activation", "gradient"),
        "format": ("html", "markdown", "latex", "csv"),
        "engine": ENGINES,
    }


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
