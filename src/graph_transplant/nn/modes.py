"""Context managers that change the mode of a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; restores the previous mode of every module."""
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
    """Keep the running statistics of normalisation layers unchanged in training mode."""
    kept = [
        (module, name, buffer)
        for module in model.modules()
        if module.training and "running_mean" in module._buffers
        for name, buffer in module.named_buffers(recurse=False)
    ]
    # Use copies: PyG's InstanceNorm updates its statistics even without `track_running_stats`.
    for module, name, buffer in kept:
        setattr(module, name, buffer.clone())
    try:
        yield
    finally:
        for module, name, buffer in kept:
            setattr(module, name, buffer)
