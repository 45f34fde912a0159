"""Augmentations: Graph Transplant, its ablations, and the named methods of a comparison."""

from __future__ import annotations

from collections.abc import Callable

import torch

from graph_transplant.augment.assemble import EditedGraphs
from graph_transplant.augment.base import (
    Augmentation,
    CleanPass,
    Virtual,
    VirtualEmbeddings,
    VirtualGraphs,
)
from graph_transplant.augment.connect import (
    Connection,
    DegreePreservation,
    Disconnected,
    EdgePredictor,
)
from graph_transplant.augment.importance import Importance, SaliencyImportance, SizeImportance
from graph_transplant.augment.pairing import Pairing
from graph_transplant.augment.subgraphs import (
    Anchors,
    Cutter,
    PartialKHop,
    RandomAnchors,
    SalientAnchors,
    ScatteredNodes,
)
from graph_transplant.augment.transplant import GraphTransplant, MixedGraphs, TransplantPlan
from graph_transplant.errors import check_choice
from graph_transplant.nn import GraphClassifier

__all__ = [
    "METHODS",
    "Anchors",
    "Augmentation",
    "CleanPass",
    "Connection",
    "Cutter",
    "DegreePreservation",
    "Disconnected",
    "EdgePredictor",
    "EditedGraphs",
    "GraphTransplant",
    "Importance",
    "MixedGraphs",
    "Pairing",
    "PartialKHop",
    "RandomAnchors",
    "SaliencyImportance",
    "SalientAnchors",
    "ScatteredNodes",
    "SizeImportance",
    "TransplantPlan",
    "Virtual",
    "VirtualEmbeddings",
    "VirtualGraphs",
    "build_method",
]

METHODS: dict[str, Callable[[GraphClassifier], tuple[Augmentation, ...]]] = {
    "vanilla": lambda model: (),
    "transplant-dp": lambda model: (GraphTransplant("degree"),),
    "transplant-ep": lambda model: (GraphTransplant("predict", embedding_size=model.hidden),),
    "transplant-disconnected": lambda model: (GraphTransplant("none"),),
    "transplant-size-label": lambda model: (
        GraphTransplant("predict", importance="size", embedding_size=model.hidden),
    ),
    "transplant-scattered": lambda model: (
        GraphTransplant("predict", cut="scattered", embedding_size=model.hidden),
    ),
    "transplant-random": lambda model: (
        GraphTransplant("predict", anchors="random", embedding_size=model.hidden),
    ),
}
"""The methods of a comparison by name, each made for one model."""


def build_method(
    name: str, model: GraphClassifier, *, seed: int | None = None
) -> tuple[Augmentation, ...]:
    """Make the augmentations of a named method for a model.

    Args:
        name: A key of :data:`METHODS`.
        model: The model that will be trained.
        seed: Determines the initial weights of what learns itself; torch's global generator by
            default.

    Example:
        >>> build_method("vanilla", GraphClassifier(1, 2))
        ()
    """
    check_choice("method", name, METHODS)
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        return METHODS[name](model)
