"""From the name of a method to its augmentations."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING

from graph_transplant.augment.base import as_augmentations
from graph_transplant.errors import GraphTransplantError
from graph_transplant.methods import METHODS, method_of, parse_method
from graph_transplant.utils.lazy import resolve

if TYPE_CHECKING:
    from torch import nn

    from graph_transplant.augment.base import Augmentation
    from graph_transplant.data import GraphStore


def build_method(
    name: str, model: nn.Module, *, data: GraphStore | None = None, seed: int | None = None
) -> tuple[Augmentation, ...]:
    """Create the augmentations of a named method for a model.

    For models other than ``GraphClassifier``, the width of node embeddings is measured on a graph
    of ``data``, or on their first batch. ``seed`` determines the initial weights of learned parts,
    by default drawn from torch's global generator.
    """
    import torch

    from graph_transplant.nn.adapter import as_predictor, node_width

    key, parameters = parse_method(name, network=True)
    method = METHODS[key]
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        width = node_width(as_predictor(model), data)  # lazy layers draw their weights here
        if not method.target:
            return ()
        target = resolve(method.target)
        try:
            if "embedding_size" in inspect.signature(target).parameters:
                made = target(**method.fixed, **parameters, embedding_size=width)
            else:
                made = target(**method.fixed, **parameters)
        except GraphTransplantError as problem:
            raise GraphTransplantError(f"{name}: {problem}") from problem
    return as_augmentations(made, f"`METHODS`: the target of {key!r} must make an Augmentation")


def unsupported_reason(
    method: str | Sequence[Augmentation], model: nn.Module | None, data: GraphStore
) -> str | None:
    """Return why a method cannot train a model on some data, or ``None`` if it can.

    Methods without a network do not look at the model.
    """
    from graph_transplant.nn.adapter import as_predictor

    if isinstance(method, str) and not method_of(method).network:
        molecules = data.featurizer is not None and data.featurizer.kind == "molecules"
        if not method_of(method).needs_smiles or not molecules or data.has_structures:
            return None
        return (
            f"{method} needs the SMILES of {data.name}, which saved graphs do not keep: name the "
            f"table or SDF file they were read from, or leave {method} out of `methods`"
        )
    assert model is not None
    try:
        if isinstance(method, str):
            method = build_method(method, model, data=data)
        for augmentation in copy.deepcopy(method):  # the check settles the width of ψ
            augmentation.check(as_predictor(model), data)
    except GraphTransplantError as problem:
        return str(problem)
    return None
