"""From the name of a method to its augmentations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graph_transplant.errors import GraphTransplantError
from graph_transplant.methods import METHODS, parse_method

if TYPE_CHECKING:
    from torch import nn

    from graph_transplant.augment.base import Augmentation
    from graph_transplant.data import GraphStore


def build_method(
    name: str, model: nn.Module, *, data: GraphStore | None = None, seed: int | None = None
) -> tuple[Augmentation, ...]:
    """Create the augmentations of a named method for a model.

    For models other than ``GraphClassifier``, the width of node embeddings is measured on a graph
    of ``data``; without data it is 128. ``seed`` determines the initial weights of learned parts,
    by default drawn from torch's global generator.
    """
    import torch

    key, parameters = parse_method(name)
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        width = _node_width(model, data)  # lazy layers draw their weights here
        try:
            return METHODS[key].build(width, **parameters)
        except GraphTransplantError as problem:
            raise GraphTransplantError(f"{name}: {problem}") from problem


def _node_width(model: nn.Module, data: GraphStore | None) -> int:
    from graph_transplant.nn import GraphClassifier, evaluating
    from graph_transplant.nn.adapter import as_predictor, module_of

    predictor = as_predictor(model)
    module = module_of(predictor)
    if isinstance(module, GraphClassifier):
        return module.hidden
    if data is None:
        return 128
    device = next((parameter.device for parameter in module.parameters()), "cpu")
    with evaluating(module):
        nodes = predictor.run(data.batch([0]).to(device)).nodes
    return nodes.shape[1] or 128


def unsupported_reason(
    method: str | Sequence[Augmentation], model: nn.Module, data: GraphStore
) -> str | None:
    """Return why a method cannot train a model on some data, or ``None`` if it can."""
    from graph_transplant.nn.adapter import as_predictor

    try:
        if isinstance(method, str):
            method = build_method(method, model, data=data)
        for augmentation in method:
            augmentation.check(as_predictor(model), data)
    except GraphTransplantError as problem:
        return str(problem)
    return None
