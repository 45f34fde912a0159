"""The fields of ``model.json`` and their types, checked on reading and writing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from graph_transplant import __version__
from graph_transplant.errors import DataError
from graph_transplant.metrics import TASKS

FORMAT: Final = 1
FORMAT_NAME: Final = "graph-transplant model"
FORMAT_LINE: Final = f"{FORMAT_NAME} {FORMAT}"
MOST_BYTES: Final = 16 << 20

_FIGURES: Final = {"*": (None, float)}
_BIN: Final = {
    **dict.fromkeys(("lower", "upper"), float),
    **dict.fromkeys(("confidence", "accuracy"), (None, float)),
    "count": int,
}
_EPOCH: Final = {
    "epoch": int,
    **dict.fromkeys(("train_loss?", "validation_loss?", "validation_score?"), (None, float)),
}

# The fields of model.json. Names with a question mark are optional, "*" is any name, a tuple lists
# alternatives.
SCHEMA: Final[dict[str, Any]] = {
    "format": str,
    "version": str,
    "command?": str,  # of models trained on the command line
    # What `GraphClassifier.config` returns.
    "architecture": {
        **dict.fromkeys(("in_features", "num_outputs", "layers", "hidden"), int),
        **dict.fromkeys(("continuous", "edge_features"), int),
        **dict.fromkeys(("conv", "readout", "task"), str),
        "dropout": float,
        "max_degree": (None, int),
    },
    "task": str,
    "label_names": [str],
    "temperature": float,
    "target_scale": (None, {"mean": [float], "std": [float]}),
    "featurizer": (None, dict),
    "data": {
        **dict.fromkeys(("name", "source", "fingerprint"), str),
        **dict.fromkeys(("graphs", "node_features", "edge_features", "skipped", "max_nodes?"), int),
        **dict.fromkeys(("mean_nodes", "mean_edges"), float),
        "class_counts": [int],
        "measured": [int],
        # By part of the split: the share of graphs of each class or with each label.
        "class_shares?": {"*": [(None, float)]},
        # Graphs with a copy; groups of identical graphs; groups with differing targets; held-out
        # graphs with a copy in the training part.
        "duplicates?": {"graphs": int, "distinct?": int, "differing?": int, "across": int},
    },
    # The `TrainConfig` and the course of training; for ensembles, epochs of the first member.
    "training": {
        **dict.fromkeys(("method", "model", "readout", "metric", "split", "recipe?"), str),
        **dict.fromkeys(("layers", "hidden", "epochs", "batch_size", "seed", "ensemble?"), int),
        **dict.fromkeys(("best_epoch", "epochs_run"), int),
        **dict.fromkeys(("dropout", "learning_rate", "seconds"), float),
        **dict.fromkeys(("validation", "test"), (None, float)),
        **dict.fromkeys(("balance", "stopped_early"), bool),
        "class_weight?": (None, str, [float]),
        "sizes": {"train": int, "validation": int, "test": int},
        "best_epochs?": [int],
    },
    "metrics": {
        **dict.fromkeys(("validation", "test", "test_uncalibrated"), _FIGURES),
        **dict.fromkeys(("baseline?", "forest?"), _FIGURES),
        "intervals": {"*": [float]},
        "over_forest?": {"*": [float]},  # intervals of the differences to the forest
        "forest_left_out?": str,  # why there is none
    },
    "saliency?": (None, _FIGURES),
    "training_graphs?": (None, str),
    # See `graph_transplant.models.uncertainty`.
    "uncertainty?": {
        **dict.fromkeys(("coverage", "held", "size"), (None, float)),
        "spread": (None, _FIGURES),
        "similarity": {"threshold": float, "justified": bool, "test": (None, _FIGURES)},
    },
    "curve": [_EPOCH],
    "reliability": (None, {"before": [_BIN], "after": [_BIN]}),
    "roc": (None, {"*": [[float]]}),
    "confusion": (None, [[int]]),
    "scatter": (None, [[float]]),
    "residual_90": (None, [(None, float)]),
}


def read_description(path: Path) -> dict[str, Any]:
    """Read a ``model.json``; raise a `DataError` if it is invalid."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(
                f"{path} is larger than {MOST_BYTES >> 20} MiB, too large for a model description"
            )
        document = json.loads(path.read_bytes().decode(), parse_constant=_no_constant)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON: {error}") from None
    if isinstance(document, dict) and "reading" in document:  # its name in version 0.1
        document["featurizer"] = document.pop("reading")
    check_description(document, str(path))
    found: dict[str, Any] = document
    return found


def check_description(document: object, where: str) -> None:
    """Raise a `DataError` that names the first invalid field of a description."""
    given = document if isinstance(document, dict) else {}
    written = re.fullmatch(rf"{FORMAT_NAME} ([0-9]{{1,9}})", str(given.get("format")))
    if written is None:
        raise DataError(
            f"{where} does not describe a model: `format` must be {FORMAT_LINE!r}; got "
            f"{_shown(given.get('format'))}"
        )
    found = f"{where} was written by version {_shown(given.get('version'))} (format {written[1]})"
    here = _release(__version__)  # unknown in a source tree that is not installed
    if int(written[1]) > FORMAT or (here and _release(given.get("version")) > here):
        raise DataError(
            f"{found}, which is newer than this one, {__version__} (format {FORMAT}): update "
            "graph-transplant, or train again"
        )
    if int(written[1]) < FORMAT:
        raise DataError(
            f"{found}; this is {__version__}, which reads format {FORMAT}: load it with that "
            "version, or train again"
        )
    problem = _problem(given, SCHEMA, "") or _mismatch(given)
    if problem:
        raise DataError(f"{where}: {problem}")


def _release(version: object) -> tuple[int, ...]:
    """Return the numbers of a version such as 0.2.1; none if it is unknown."""
    known = re.match(r"[0-9]{1,6}(\.[0-9]{1,6}){1,3}(?![0-9])", str(version))
    return tuple(map(int, known[0].split("."))) if known else ()


def _mismatch(document: Mapping[str, Any]) -> str:
    """Describe the first inconsistency between fields; empty if there is none."""
    task, outputs = document["task"], document["architecture"]["num_outputs"]
    scale = document["target_scale"]
    if task not in TASKS or document["architecture"]["task"] != task:
        return f"`task` must be one of {', '.join(TASKS)}, and `architecture.task` the same"
    if document["training"].get("ensemble", 1) < 1:
        return "`training.ensemble` must be at least 1; got 0"
    if not document["temperature"] > 0:
        return f"`temperature` must be above 0; got {document['temperature']}"
    if (scale is not None) != (task == "regression"):
        return "`target_scale` must be given for regression and null otherwise"
    lists = {"label_names": document["label_names"], "residual_90": document["residual_90"]}
    lists |= {f"target_scale.{name}": values for name, values in (scale or {}).items()}
    lists |= {f"confusion[{n}]": row for n, row in enumerate(document["confusion"] or ())}
    lists["confusion"] = document["confusion"]
    for name, values in lists.items():
        if values is not None and len(values) != outputs:
            return f"`{name}` must have {outputs} entries, one per output; got {len(values)}"
    pairs = {f"metrics.intervals.{k}": [v] for k, v in document["metrics"]["intervals"].items()}
    pairs |= {"scatter": document["scatter"] or []}
    pairs |= {f"roc.{name}": curve for name, curve in (document["roc"] or {}).items()}
    for name, found in pairs.items():
        if not all(len(pair) == 2 for pair in found):
            return f"`{name[:100]}` must hold pairs of numbers"
    if not all(document["roc"].values() if document["roc"] else ()):
        return "`roc` must hold no empty curve"
    bins = document["reliability"] or {"before": (), "after": ()}
    for one in (*bins["before"], *bins["after"]):
        if one["count"] and None in (one["confidence"], one["accuracy"]):
            return "`reliability` must have confidence and accuracy of all bins that are not empty"
    if not document["training"].get("best_epochs", True):
        return "`training.best_epochs` must not be empty"
    return ""


_LACKING: Final = object()


def _problem(value: Any, kind: Any, field: str) -> str:
    """Describe the first mismatch between a value and its schema; empty if there is none."""
    if isinstance(kind, tuple):
        problems = [_problem(value, each, field) for each in kind]
        return "" if "" in problems else problems[-1]
    inner: list[tuple[Any, Any, str]] = []
    if isinstance(kind, list):
        fits, wanted = isinstance(value, list), "a list"
        inner = [(part, kind[0], f"{field}[{n}]") for n, part in enumerate(value if fits else ())]
    elif isinstance(kind, dict):
        fits, wanted, dot = isinstance(value, dict), "an object", f"{field}." if field else ""
        given = value if fits else {}
        if "*" in kind:
            inner = [(part, kind["*"], f"{dot}{name[:40]}") for name, part in given.items()]
        else:
            inner = [
                (given.get(name.rstrip("?"), _LACKING), part, f"{dot}{name.rstrip('?')}")
                for name, part in kind.items()
                if not name.endswith("?") or name[:-1] in given
            ]
    elif kind is float:
        # An overflowing literal such as 1e999 is parsed as infinity.
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fits, wanted = number and abs(value) < 2**1000, "a finite number"
    elif kind is int:
        fits, wanted = type(value) is int and 0 <= value <= 2**53, "a non-negative integer"
    else:
        fits = value is None if kind is None else isinstance(value, kind)
        wanted = {str: "a string", bool: "true or false", dict: "an object"}.get(kind, "a list")
    if not fits:
        return f"`{field}` must be {wanted}; got {_shown(value)}"
    return next(filter(None, (_problem(*each) for each in inner)), "")


def _shown(value: object) -> str:
    if value is _LACKING:
        return "nothing"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def plain(value: Any) -> Any:
    """Convert to JSON values; NaN and infinities become ``None``."""
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
