"""``model.json``: its fields and their types, checked wherever the file comes from."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, NamedTuple, NoReturn, get_args, get_origin

from graph_transplant import __version__
from graph_transplant.errors import DataError

FORMAT: Final = 1
FORMAT_NAME: Final = "graph-transplant model"
MOST_BYTES: Final = 64 << 20


class _OrNull(NamedTuple):
    fields: dict[str, Any]


_TASK: Final = Literal["multiclass", "multilabel", "regression"]
_FIGURES: Final = dict[str, float | None]
_BIN: Final = {
    "lower": float,
    "upper": float,
    "count": int,
    "confidence": float | None,
    "accuracy": float | None,
}

# The fields of model.json and their types; those with a question mark may be missing.
SCHEMA: Final[dict[str, Any]] = {
    "format": str,
    "version": str,
    # What `GraphClassifier.config` returns.
    "architecture": {
        **dict.fromkeys(("in_features", "num_outputs", "layers", "hidden"), int),
        **dict.fromkeys(("continuous", "edge_features"), int),
        "conv": str,
        "readout": str,
        "dropout": float,
        "max_degree": int | None,
        "task": _TASK,
    },
    "task": _TASK,
    "label_names": list[str],
    "temperature": float,
    "target_scale": _OrNull({"mean": list[float], "std": list[float]}),
    "featurizer": dict[str, Any] | None,
    "data": {
        **dict.fromkeys(("name", "source", "fingerprint"), str),
        **dict.fromkeys(("graphs", "node_features", "edge_features", "skipped", "max_nodes?"), int),
        "mean_nodes": float,
        "mean_edges": float,
        "class_counts": list[int],
        "measured": list[int],
        # By part: the share of every class, or of the graphs with every label.
        "class_shares?": dict[str, list[float | None]],
        # Graphs with a copy; held-out graphs with a copy in the training part.
        "duplicates?": {"graphs": int, "across": int},
    },
    # The `TrainConfig`, and how training went.
    "training": {
        **dict.fromkeys(("method", "model", "readout", "metric", "split"), str),
        **dict.fromkeys(("layers", "hidden", "epochs", "batch_size", "seed"), int),
        "dropout": float,
        "learning_rate": float,
        "balance": bool,
        "validation": float | None,
        "test": float | None,
        "recipe?": str,
        "class_weight?": str | list[float] | None,
        "sizes": {"train": int, "validation": int, "test": int},
        "best_epoch": int,
        "epochs_run": int,
        "stopped_early": bool,
        "seconds": float,
    },
    "metrics": {
        **dict.fromkeys(("validation", "test", "test_uncalibrated"), _FIGURES),
        "baseline?": _FIGURES,
        "intervals": dict[str, list[float]],
    },
    "saliency?": dict[str, float | None] | None,
    "training_graphs?": str | None,
    "curve": list[dict[str, Any]],
    "reliability": _OrNull({"before": [_BIN], "after": [_BIN]}),
    "confusion": list[list[int]] | None,
    "roc": dict[str, list[list[float]]] | None,
    "scatter": list[list[float]] | None,
    "residual_90": list[float | None] | None,
}


def format_line() -> str:
    """What ``format`` says in a description written now."""
    return f"{FORMAT_NAME} {FORMAT}"


def read_description(path: Path) -> dict[str, Any]:
    """Read and check a ``model.json``; raises a `DataError` if it is none."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path} is larger than {MOST_BYTES >> 20} MiB: it describes no model")
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
    """Raise a `DataError` that names the first field of a description that is wrong."""
    if not isinstance(document, dict):
        raise DataError(f"{where} must hold a JSON object; got {_shown(document)}")
    _check_format(document.get("format"), document.get("version"), where)
    _check(document, SCHEMA, where, "")
    task, outputs = document["task"], document["architecture"]["num_outputs"]
    if document["architecture"]["task"] != task:
        raise DataError(f"{where}: `task` and `architecture.task` differ")
    if not document["temperature"] > 0:
        raise DataError(f"{where}: `temperature` must be above 0; got {document['temperature']}")
    scale = document["target_scale"]
    if (scale is not None) != (task == "regression"):
        raise DataError(f"{where}: `target_scale` must be given for regression and null otherwise")
    for name, values in (
        ("label_names", document["label_names"]),
        ("target_scale.mean", scale and scale["mean"]),
        ("target_scale.std", scale and scale["std"]),
        ("residual_90", document["residual_90"]),
    ):
        if values is not None and len(values) != outputs:
            raise DataError(
                f"{where}: `{name}` must have {outputs} entries, one per output; got {len(values)}"
            )


def _check_format(value: object, version: object, where: str) -> None:
    found = re.fullmatch(rf"{FORMAT_NAME} ([0-9]{{1,9}})", str(value))
    if found is None:
        raise DataError(
            f"{where} does not describe a model: `format` must be {format_line()!r}; got "
            f"{_shown(value)}"
        )
    if int(found[1]) != FORMAT:
        raise DataError(
            f"{where} was written by version {_shown(version)} (format {found[1]}); this is "
            f"{__version__}, which reads format {FORMAT}: load it with that version, or train again"
        )


def _check(value: Any, kind: Any, where: str, field: str) -> None:
    """Check a value against its type."""

    def each(parts: Any, of: Any, name: str) -> None:
        for key, part in parts:
            _check(part, of, where, f"{field}{name.format(str(key)[:40])}")

    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, _OrNull):
        if value is not None:
            _check(value, kind.fields, where, field)
    elif isinstance(kind, dict):
        if not isinstance(value, dict):
            _refuse(where, field, "an object", value)
        for name, part in kind.items():
            name, optional = name.rstrip("?"), name.endswith("?")
            if name in value or not optional:
                _check(value.get(name, _LACKING), part, where, f"{field}.{name}".lstrip("."))
    elif origin is UnionType:
        if value is not None or type(None) not in inner:
            several = [k for k in inner if k is not type(None)]
            text = str in several and isinstance(value, str)
            _check(value, str if text else several[-1], where, field)
    elif origin is Literal:
        if value not in inner:
            _refuse(where, field, f"one of {', '.join(inner)}", value)
    elif origin is list or isinstance(kind, list):
        if not isinstance(value, list):
            _refuse(where, field, "a list", value)
        each(enumerate(value), inner[0] if inner else kind[0], "[{}]")
    elif origin is dict:
        if not isinstance(value, dict):
            _refuse(where, field, "an object", value)
        each(value.items(), inner[1], ".{}")
    elif kind is not Any and not _PLAIN[kind][1](value):
        _refuse(where, field, _PLAIN[kind][0], value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= 2**53


def _is_number(value: object) -> bool:
    # An overflowing literal such as 1e999 is read as infinity.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 2**1000


_LACKING: Final = object()
_PLAIN: Final[dict[Any, Any]] = {
    str: ("a text", _is_text),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number from 0 on", _is_count),
    float: ("a finite number", _is_number),
}


def _refuse(where: str, field: str, wanted: str, value: object) -> NoReturn:
    raise DataError(f"{where}: `{field}` must be {wanted}; got {_shown(value)}")


def _shown(value: object) -> str:
    if value is _LACKING:
        return "nothing"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON knows")


def plain(value: Any) -> Any:
    """Turn mappings, sequences and numbers into JSON values: NaN and infinities become ``None``."""
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
