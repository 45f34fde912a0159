"""Checkpoints: the whole state of a training in one file, so that it can go on after an end.

A checkpoint is a safetensors file. Tensors lie there as they are; everything else is JSON in its
header, with a digest of all of it. Nothing in it is ever executed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.files import replace_file

_FORMAT: Final = "graph-transplant checkpoint 1"

# How deep the parts of modules are looked into, and those of anything else, which may be entangled.
_DEPTH: Final = 8
_SHALLOW: Final = 3


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training.

    Attributes:
        identity: What was trained, on what and how, as JSON values: only a training with the same
            identity may go on from here.
        tensors: Weights and other tensors by name, on the CPU.
        state: Everything else, as JSON values.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "run.safetensors"
        ...     Checkpoint({"seed": 0}, {"weight": torch.ones(2)}, {"epoch": 3}).write(path)
        ...     Checkpoint.read(path).state["epoch"]
        3
    """

    identity: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    state: Mapping[str, Any]

    def write(self, path: str | Path) -> None:
        """Write the checkpoint, whole or not at all; a reader never sees half of it.

        Args:
            path: The file; its folder is made when it is not there.

        Raises:
            GraphTransplantError: If something is no JSON value, or the disk refuses.
        """
        path = Path(path)
        try:
            text = json.dumps({"identity": self.identity, "state": self.state})
        except (TypeError, ValueError) as problem:
            raise GraphTransplantError(
                f"the state of the training cannot be kept in {path}: {problem}"
            ) from None
        # Weights that modules share would be refused, and a view would bring all it is a view of.
        tensors = {key: value.detach().cpu().clone() for key, value in self.tensors.items()}
        tensors = {key: value.contiguous() for key, value in tensors.items()}
        metadata = {"format": _FORMAT, "content": text, "digest": _digest(tensors, text)}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, save(tensors, metadata))
        except OSError as problem:
            reason = problem.strerror or problem
            raise GraphTransplantError(f"cannot write the checkpoint {path}: {reason}") from None

    @staticmethod
    def read(path: str | Path) -> Checkpoint:
        """Read what :meth:`write` wrote.

        Args:
            path: The file.

        Raises:
            DataError: If there is none, or it is damaged or something else.
        """
        try:
            with safe_open(str(path), framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            if metadata.get("format") != _FORMAT:
                raise DataError(f"{path} is not a checkpoint of this version; {_ANEW}")
            text = metadata["content"]
            if metadata["digest"] != _digest(tensors, text):
                raise DataError(f"the checkpoint {path} is damaged; {_ANEW}")
            content = json.loads(text)
            return Checkpoint(content["identity"], tensors, content["state"])
        except FileNotFoundError:
            raise DataError(f"there is no checkpoint {path}") from None
        except DataError:
            raise
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise DataError(f"{path} cannot be read as a checkpoint: {reason}; {_ANEW}") from None

    def check(self, identity: Mapping[str, Any], path: str | Path) -> None:
        """Refuse the checkpoint of another training.

        Args:
            identity: That of the training that wants to go on.
            path: Where the checkpoint comes from, for the message.

        Raises:
            GraphTransplantError: If they differ, naming the first thing that does.
        """
        here = json.loads(json.dumps(identity))
        there = self.identity
        for name, one, other in _differences(there, here):
            both = f"{_short(one)} there and {_short(other)} here"
            raise GraphTransplantError(
                f"{path} is the checkpoint of another training: `{name}` is {both}; delete "
                "it to start anew, or name another file"
            )


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


_ANEW: Final = "delete it to start anew"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:60]}… ({_text_digest(text)[:8]})"


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for key, value in sorted(tensors.items()):
        digest.update(f"{key} {value.dtype} {list(value.shape)}".encode())
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def module_state(prefix: str, module: nn.Module) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Take apart the state of a module.

    Args:
        prefix: Put before the names.
        module: The module.

    Returns:
        Its tensors, and what else ``get_extra_state`` of its parts gives, which must be JSON
        values.

    Example:
        >>> tensors, others = module_state("model.", nn.Linear(2, 1))
        >>> sorted(tensors), others
        (['model.bias', 'model.weight'], {})
    """
    tensors: dict[str, Tensor] = {}
    others: dict[str, Any] = {}
    for key, value in module.state_dict().items():
        if isinstance(value, Tensor):
            tensors[prefix + key] = value
        else:
            others[prefix + key] = value
    return tensors, others


def load_module(
    prefix: str, module: nn.Module, tensors: Mapping[str, Tensor], others: Mapping[str, Any]
) -> None:
    """Give a module the state that :func:`module_state` took from one.

    Args:
        prefix: As there.
        module: The module.
        tensors: Tensors of this and perhaps other modules.
        others: Other values of this and perhaps other modules.

    Raises:
        DataError: If names or shapes are not the module's.

    Example:
        >>> one, other = nn.Linear(2, 1), nn.Linear(2, 1)
        >>> load_module("model.", other, *module_state("model.", one))
        >>> torch.equal(one.weight, other.weight)
        True
    """
    state = {
        key.removeprefix(prefix): value
        for key, value in {**tensors, **others}.items()
        if key.startswith(prefix)
    }
    try:
        module.load_state_dict(state)
    except RuntimeError as problem:
        reason = " ".join(str(problem).split())[:300]
        raise DataError(f"the checkpoint does not fit: {reason}; {_ANEW}") from None


def settings_of(module: object, depth: int = _DEPTH) -> Any:
    """Describe a module or another object by its class and its public settings.

    Two augmentations with the same description do the same; where objects lie in memory, what they
    have learnt and what they keep to themselves does not count.

    Args:
        module: Whatever is described.
        depth: How deep parts are looked into.

    Returns:
        JSON values.

    Example:
        >>> settings_of(nn.Dropout(0.5))
        {'class': 'Dropout', 'inplace': False, 'p': 0.5}
    """
    if module is None or isinstance(module, bool | int | float | str):
        return module
    if isinstance(module, list | tuple):
        return [settings_of(each, depth - 1) for each in module] if depth else len(module)
    described: dict[str, Any] = {"class": type(module).__name__}
    if depth and not isinstance(module, Tensor):
        own = dict(getattr(module, "__dict__", {}))
        if isinstance(module, nn.Module):
            own.update(module.named_children())
        else:
            depth = min(depth, _SHALLOW)
        for name, value in sorted(own.items()):
            if not name.startswith("_") and name != "training" and not isinstance(value, Tensor):
                described[name] = settings_of(value, depth - 1)
    return described
