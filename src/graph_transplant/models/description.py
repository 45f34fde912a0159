"""``model.json``: what it holds, and reading one that anybody may have written.

Every field is checked before it is used, so that a file that was damaged, edited or made up ends in
an error that names the field.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from graph_transplant import __version__
from graph_transplant.errors import DataError
from graph_transplant.metrics import TASKS

FORMAT: Final = 1
"""Number of the format that is written, and the newest that can be read."""

FORMAT_NAME: Final = "graph-transplant model"

MOST_BYTES: Final = 64 << 20
"""Size of the largest description that is read."""

_LARGEST: Final = 2**53
_SHOWN: Final = 60


@dataclass(frozen=True)
class _List:
    """A list whose entries are all of one kind."""

    entry: Any


@dataclass(frozen=True)
class _Map:
    """An object with names of any kind whose values are all of one kind."""

    value: Any


@dataclass(frozen=True)
class _OrNull:
    """A value that may be missing."""

    value: Any


@dataclass(frozen=True)
class _Choice:
    """One of some texts."""

    among: tuple[str, ...]


# A whole number that is not negative, and a number.
_COUNT: Final = int
_NUMBER: Final = float

_BIN: Final = {
    "lower": _NUMBER,
    "upper": _NUMBER,
    "count": _COUNT,
    "confidence": _OrNull(_NUMBER),
    "accuracy": _OrNull(_NUMBER),
}

_FIGURES: Final = _Map(_OrNull(_NUMBER))

_SCHEMA: Final[Mapping[str, Any]] = {
    "version": str,
    "architecture": {
        "in_features": _COUNT,
        "num_outputs": _COUNT,
        "conv": str,
        "layers": _COUNT,
        "hidden": _COUNT,
        "readout": str,
        "dropout": _NUMBER,
        "max_degree": _OrNull(_COUNT),
        "continuous": _COUNT,
        "edge_features": _COUNT,
        "task": _Choice(TASKS),
    },
    "task": _Choice(TASKS),
    "label_names": _List(str),
    "temperature": _NUMBER,
    "target_scale": _OrNull({"mean": _List(_NUMBER), "std": _List(_NUMBER)}),
    "featurizer": _OrNull(dict),
    "data": {
        "name": str,
        "source": str,
        "fingerprint": str,
        "graphs": _COUNT,
        "mean_nodes": _NUMBER,
        "mean_edges": _NUMBER,
        "node_features": _COUNT,
        "edge_features": _COUNT,
        "skipped": _COUNT,
        "class_counts": _List(_COUNT),
        "measured": _List(_COUNT),
    },
    "training": {
        "method": str,
        "model": str,
        "layers": _COUNT,
        "hidden": _COUNT,
        "readout": str,
        "dropout": _NUMBER,
        "epochs": _COUNT,
        "batch_size": _COUNT,
        "learning_rate": _NUMBER,
        "balance": bool,
        "metric": str,
        "split": str,
        "validation": _OrNull(_NUMBER),
        "test": _OrNull(_NUMBER),
        "seed": _COUNT,
        "sizes": {"train": _COUNT, "validation": _COUNT, "test": _COUNT},
        "best_epoch": _COUNT,
        "epochs_run": _COUNT,
        "stopped_early": bool,
        "seconds": _NUMBER,
    },
    "metrics": {
        "validation": _FIGURES,
        "test": _FIGURES,
        "test_uncalibrated": _FIGURES,
        "intervals": _Map(_List(_NUMBER)),
    },
    "curve": _List({"epoch": _COUNT}),
    "reliability": _OrNull({"before": _List(_BIN), "after": _List(_BIN)}),
    "confusion": _OrNull(_List(_List(_COUNT))),
    "roc": _OrNull(_Map(_List(_List(_NUMBER)))),
    "scatter": _OrNull(_List(_List(_NUMBER))),
    "residual_90": _OrNull(_List(_OrNull(_NUMBER))),
}

_LACKING: Final = object()


def format_line() -> str:
    """Return what ``format`` says in a description written now."""
    return f"{FORMAT_NAME} {FORMAT}"


def read_description(path: Path) -> dict[str, Any]:
    """Read and check a ``model.json``.

    Args:
        path: The file.

    Returns:
        Its content.

    Raises:
        DataError: If it is no such file, or was written by a newer version.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path} is larger than {MOST_BYTES >> 20} MiB: it describes no model")
        if not path.is_file():
            raise DataError(f"{path} is not a file")
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    try:
        document = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8: byte {error.start} is wrong") from None
    except RecursionError:
        raise DataError(f"{path} is nested too deeply: it describes no model") from None
    except ValueError as error:
        raise DataError(f"{path} is not valid JSON: {error}") from None
    if isinstance(document, dict) and "reading" in document:  # its name in version 0.1
        document["featurizer"] = document.pop("reading")
    check_description(document, str(path))
    found: dict[str, Any] = document
    return found


def check_description(document: object, where: str) -> None:
    """Check every field of a description.

    Args:
        document: What was read.
        where: What to call it in errors, such as the path of its file.

    Raises:
        DataError: Naming the first field that is wrong.

    Example:
        >>> check_description({"format": "graph-transplant model 7"}, "model.json")
        Traceback (most recent call last):
        ...
        graph_transplant.errors.DataError: model.json was written by a newer version (format 7); \
this is ..., which reads format 1: update
    """
    if not isinstance(document, dict):
        raise DataError(f"{where} must hold a JSON object; got {_kind(document)}")
    _check_format(document.get("format"), where)
    _check(document, _SCHEMA, where, "")
    outputs = document["architecture"]["num_outputs"]
    task = document["task"]
    if document["architecture"]["task"] != task:
        raise DataError(
            f"{where}: `task` is {task!r}, but `architecture.task` is "
            f"{document['architecture']['task']!r}"
        )
    if len(document["label_names"]) != outputs:
        raise DataError(
            f"{where}: `label_names` must have {outputs} names, one per output of the "
            f"architecture; got {len(document['label_names'])}"
        )
    if not document["temperature"] > 0:
        raise DataError(f"{where}: `temperature` must be above 0; got {document['temperature']}")
    if (document["target_scale"] is not None) != (task == "regression"):
        raise DataError(
            f"{where}: `target_scale` must be given for regression and null otherwise; the task is "
            f"{task!r}"
        )
    for name in ("mean", "std") if task == "regression" else ():
        if len(document["target_scale"][name]) != outputs:
            raise DataError(
                f"{where}: `target_scale.{name}` must have {outputs} numbers, one per output; got "
                f"{len(document['target_scale'][name])}"
            )
    residual = document["residual_90"]
    if residual is not None and len(residual) != outputs:
        raise DataError(
            f"{where}: `residual_90` must have {outputs} numbers, one per output; got "
            f"{len(residual)}"
        )


def _check_format(value: object, where: str) -> None:
    found = (
        re.fullmatch(rf"{FORMAT_NAME} ([0-9]{{1,9}})", value) if isinstance(value, str) else None
    )
    if found is None:
        raise DataError(
            f"{where} does not describe a model: `format` must be {format_line()!r}; got "
            f"{'nothing' if value is None else _shown(value)}"
        )
    number = int(found[1])
    if number > FORMAT:
        raise DataError(
            f"{where} was written by a newer version (format {number}); this is {__version__}, "
            f"which reads format {FORMAT}: update"
        )
    if number < FORMAT:
        raise DataError(f"{where}: there has never been a format {number}")


def _check(value: object, kind: Any, where: str, field: str) -> None:
    """Check a value against its kind; the kinds are few, so one function knows them all."""
    if isinstance(kind, _OrNull):
        if value is not None:
            _check(value, kind.value, where, field)
    elif isinstance(kind, Mapping):
        if not isinstance(value, dict):
            _refuse(where, field, "an object", value)
        for name, part in kind.items():
            _check(value.get(name, _LACKING), part, where, f"{field}.{name}" if field else name)
    elif isinstance(kind, _Map):
        if not isinstance(value, dict):
            _refuse(where, field, "an object", value)
        for name, part in value.items():
            _check(part, kind.value, where, f"{field}.{name[:_SHOWN]}")
    elif isinstance(kind, _List):
        if not isinstance(value, list):
            _refuse(where, field, "a list", value)
        for place, part in enumerate(value):
            _check(part, kind.entry, where, f"{field}[{place}]")
    elif isinstance(kind, _Choice):
        if value not in kind.among:
            _refuse(where, field, f"one of {', '.join(kind.among)}", value)
    elif not _PLAIN[kind][1](value):
        _refuse(where, field, _PLAIN[kind][0], value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # An overflowing literal such as 1e999 is read as infinity.
    return abs(value) <= _LARGEST if isinstance(value, int) else math.isfinite(value)


_PLAIN: Final[Mapping[type, Any]] = {
    str: ("a text", lambda value: isinstance(value, str)),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    dict: ("an object", lambda value: isinstance(value, dict)),
    int: (f"a whole number from 0 to {_LARGEST}", _is_count),
    float: ("a finite number", _is_number),
}


def _refuse(where: str, field: str, wanted: str, value: object) -> NoReturn:
    given = "nothing" if value is _LACKING else _shown(value)
    raise DataError(f"{where}: `{field}` must be {wanted}; got {given}")


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return _kind(value)
    # Numbers of thousands of digits cannot be written out; json.loads refuses them before.
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return names.get(type(value), "null" if value is None else "a number")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON knows")


def plain(value: Any) -> Any:
    """Turn what a description is made of into JSON values: NaN and infinities become ``None``.

    Args:
        value: Mappings, sequences, numbers, texts.

    Example:
        >>> plain({"auroc": float("nan"), "sizes": (1, 2)})
        {'auroc': None, 'sizes': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
