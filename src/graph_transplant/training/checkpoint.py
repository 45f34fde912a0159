"""Checkpoint files, to resume interrupted training.

Files are written by ``torch.save`` and read with ``weights_only=True``, so no code is executed.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np
import torch
from torch import Tensor, nn

from graph_transplant.config.options import RENAMED_CONNECTIONS
from graph_transplant.errors import DataError, GraphTransplantError

_FORMAT: Final = "graph-transplant checkpoint 2"

# Errors from reading a damaged file.
_DAMAGE: Final = (
    *(OSError, RuntimeError, EOFError, LookupError, TypeError, ValueError, AttributeError),
    *(UnpicklingError, BadZipFile, zlib.error, struct.error, ArithmeticError, AssertionError),
)

# Depth to which modules and other objects, which may have cycles, are described.
_DEPTH: Final = 8
_SHALLOW: Final = 3


class CheckpointError(DataError):
    """A checkpoint that cannot be resumed: damaged, or of another training run."""


def write(path: Path, identity: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically; resuming requires the same ``identity``."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Opened here: of a full disk, torch's own writer only says that a position is unexpected.
        with part.open("wb") as file:
            torch.save({"format": _FORMAT, "identity": dict(identity), "state": dict(state)}, file)
        part.replace(path)
    except (OSError, RuntimeError) as problem:
        part.unlink(missing_ok=True)
        reason = getattr(problem, "strerror", None) or problem
        raise GraphTransplantError(f"cannot write the checkpoint {path}: {reason}") from None


def read(path: Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """Read the state from a checkpoint; ``None`` if there is no file."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise GraphTransplantError(f"cannot read the checkpoint {path}: {problem}") from None
    try:
        with file, ZipFile(file) as archive:
            # As torch writes them, members are not packed: small files cannot hold large tensors.
            packed = any(member.compress_type != ZIP_STORED for member in archive.infolist())
            held = sum(member.file_size for member in archive.infolist())
            # Checked as torch does not verify checksums.
            if packed or held > path.stat().st_size or archive.testzip():
                raise BadZipFile
            file.seek(0)
            found = torch.load(file, map_location="cpu", weights_only=True)
        known, state = found["format"] == _FORMAT, dict(found["state"])
        recorded, wanted = found["identity"], json.loads(json.dumps(identity))
        if isinstance(recorded, dict):
            recorded = _upgraded(recorded, wanted)
        difference = next(_differences(recorded, wanted), None) if known else None
    except _DAMAGE:
        raise CheckpointError(
            f"{path} is damaged, or not a checkpoint; delete it to start over"
        ) from None
    if not known:
        raise CheckpointError(
            f"{path} is not a checkpoint of this version; delete it to start over"
        )
    if difference is not None:
        name, one, other = difference
        raise CheckpointError(
            f"{path} is the checkpoint of another training: `{name}` is {_short(one)} there and "
            f"{_short(other)} here; delete it to start over"
        )
    return state


def _upgraded(recorded: dict[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The identity in the words of this version."""
    # Options that older checkpoints do not have; they say nothing of `output`.
    added = {"output": wanted.get("output"), "call": None, "virtual_weight": 1.0}

    def renamed(value: Any) -> Any:
        if isinstance(value, list):
            return [renamed(each) for each in value]
        if not isinstance(value, dict):
            return value
        found = {name: renamed(each) for name, each in value.items()}
        if isinstance(found.get("connect"), str):
            found["connect"] = RENAMED_CONNECTIONS.get(found["connect"], found["connect"])
        return found

    return {**added, **recorded, "augment": renamed(recorded.get("augment"))}


def _differences(one: Any, other: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield differences between two JSON values: path, such as ``model.conv``, and both values."""
    if one == other:
        return
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        one, other = dict(enumerate(one)), dict(enumerate(other))
    if not (isinstance(one, dict) and isinstance(other, dict)):
        yield name, one, other
        return
    for key in dict.fromkeys([*other, *one]):
        place = f"{name}.{key}" if name else str(key)
        yield from _differences(one.get(key), other.get(key), place)


def _short(value: Any) -> str:
    try:
        # In parts: a file can nest lists so that the whole text would fill the memory.
        text = "".join(islice(json.JSONEncoder().iterencode(value), 100))
    except (TypeError, ValueError):
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}…"


def alike(value: Any, template: Any) -> bool:
    """Whether a value from a file has the keys and types of a template."""
    if isinstance(template, Mapping):
        return (
            isinstance(value, Mapping)
            and value.keys() == template.keys()
            and all(alike(value[key], part) for key, part in template.items())
        )
    if isinstance(template, list | tuple):
        same = isinstance(value, list | tuple) and len(value) == len(template)
        return same and all(map(alike, value, template))
    numbers = isinstance(template, int | float) and isinstance(value, int | float)
    return numbers or template is None or value is None or isinstance(value, type(template))


def settings_of(module: object, depth: int = _DEPTH) -> Any:
    """Describe an object by its name and public attributes except tensors, as JSON values."""
    if module is None or isinstance(module, bool | int | float | str):
        return module
    if isinstance(module, list | tuple):
        return [settings_of(each, depth - 1) for each in module] if depth else len(module)
    if isinstance(module, Tensor):
        return {"class": "Tensor", "values": module.tolist() if module.numel() <= 64 else None}
    if isinstance(module, np.ndarray | np.generic):
        return settings_of(module.tolist(), depth)
    if isinstance(module, Mapping):
        items = module.items() if depth else ()
        return {str(key): settings_of(value, depth - 1) for key, value in items}
    if isinstance(module, partial):
        given = {str(place): value for place, value in enumerate(module.args)} | module.keywords
        named = {name: settings_of(value, depth - 1) for name, value in given.items()}
        return {**settings_of(module.func, depth), **named}
    if isinstance(getattr(module, "__self__", None), type):  # a class method
        return {"function": f"{module.__self__.__name__}.{module.__name__}"}  # type: ignore[attr-defined]
    if hasattr(module, "__qualname__"):
        return {"function": module.__qualname__}
    described: dict[str, Any] = {"class": type(module).__name__}
    if depth:
        own = dict(getattr(module, "__dict__", {}))
        if isinstance(module, nn.Module):
            own.update(module.named_children())
        else:
            depth = min(depth, _SHALLOW)
        for name, value in sorted(own.items()):
            if not name.startswith("_") and name != "training" and not isinstance(value, Tensor):
                described[name] = settings_of(value, depth - 1)
    return described
