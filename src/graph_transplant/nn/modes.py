"""Modes of a model that hold for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode without gradients, and back as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def keeping_statistics(model: nn.Module) -> Iterator[None]:
    """Let a model in training mode normalise by what it is given, without remembering it."""
    kept = [
        (module, name, buffer)
        for module in model.modules()
        if isinstance(module, _NormBase) and module.training
        for name, buffer in module.named_buffers(recurse=False)
    ]
    # Statistics are counted in copies: PyG's instance normalisation counts whatever it is told.
    for module, name, buffer in kept:
        setattr(module, name, buffer.clone())
    try:
        yield
    finally:
        for module, name, buffer in kept:
            setattr(module, name, buffer)
