"""Checkpoints: the whole state of a training in one file, so that a killed one goes on.

The file is one of ``torch.save``, read with ``weights_only=True``: nothing in it is executed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final
from zipfile import BadZipFile, ZipFile

import torch
from torch import Tensor, nn

from graph_transplant.errors import DataError, GraphTransplantError

_FORMAT: Final = "graph-transplant checkpoint 2"

# What reading a damaged file raises.
_DAMAGE: Final = (
    *(OSError, RuntimeError, EOFError, LookupError, TypeError, ValueError),
    *(UnpicklingError, BadZipFile),
)

# How deep the parts of modules are described, and those of anything else, which may be entangled.
_DEPTH: Final = 8
_SHALLOW: Final = 3


class CheckpointError(DataError):
    """A checkpoint that cannot be gone on from: damaged, or that of another training."""


def write(path: Path, identity: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Write a checkpoint, whole or not at all.

    Args:
        path: The file; its folder is made when it is not there.
        identity: What was trained, on what and how, as JSON values: only a training with the same
            identity may go on from here.
        state: Tensors, numbers, texts, and lists and mappings of them.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"format": _FORMAT, "identity": dict(identity), "state": dict(state)}, part)
        part.replace(path)
    except (OSError, RuntimeError) as problem:
        part.unlink(missing_ok=True)
        raise GraphTransplantError(f"cannot write the checkpoint {path}: {problem}") from None


def read(path: Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """Read the state in a checkpoint; ``None`` if there is no file.

    Raises:
        CheckpointError: If it is damaged, or that of another training, naming what differs.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise GraphTransplantError(f"cannot read the checkpoint {path}: {problem}") from None
    try:
        with file, ZipFile(file) as archive:
            if archive.testzip():  # torch does not look at the checksums that it writes
                raise BadZipFile
            file.seek(0)
            found = torch.load(file, map_location="cpu", weights_only=True)
        known = found["format"] == _FORMAT
        there, state = found["identity"], found["state"]
    except _DAMAGE:
        raise CheckpointError(
            f"{path} is damaged, or not a checkpoint; delete it to start anew"
        ) from None
    if not known:
        raise CheckpointError(
            f"{path} is not a checkpoint of this version; delete it to start anew"
        )
    for name, one, other in _differences(there, json.loads(json.dumps(identity))):
        raise CheckpointError(
            f"{path} is the checkpoint of another training: `{name}` is {_short(one)} there and "
            f"{_short(other)} here; delete it to start anew, or name another file"
        )
    return dict(state)


def _differences(one: Any, other: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield what differs between two JSON values: its place, as ``model.conv``, and both."""
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
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:60]}…"


def settings_of(module: object, depth: int = _DEPTH) -> Any:
    """Describe a module, function or other object by its name and public settings, as JSON values.

    Where objects lie in memory, what they have learnt and their private parts do not count.

    Example:
        >>> settings_of(nn.Dropout(0.5))
        {'class': 'Dropout', 'inplace': False, 'p': 0.5}
    """
    if module is None or isinstance(module, bool | int | float | str):
        return module
    if isinstance(module, list | tuple):
        return [settings_of(each, depth - 1) for each in module] if depth else len(module)
    if isinstance(module, Tensor):
        return {"class": "Tensor", "values": module.tolist() if module.numel() <= 64 else None}
    if isinstance(module, partial):
        given = {str(place): value for place, value in enumerate(module.args)} | module.keywords
        named = {name: settings_of(value, depth - 1) for name, value in given.items()}
        return {**settings_of(module.func, depth), **named}
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
