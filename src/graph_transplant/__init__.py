"""Graph Transplant: mixup for graphs, and an honest answer to whether it helps on yours.

The names below are resolved when first used, so that importing the package (and starting the
command line) does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graph_transplant.augment import (
        METHODS,
        Augmentation,
        CleanPass,
        DropEdges,
        DropNodes,
        GMixup,
        GraphTransplant,
        IfMixup,
        LabelSmoothing,
        ManifoldMixup,
        MaskNodes,
        MixedGraphs,
        NodeSam,
        OneOf,
        OriginalGraphs,
        Pairing,
        PerturbEdges,
        RandomSubgraph,
        ReliabilityFilter,
        Sequential,
        ShuffledSaliency,
        SubMix,
        SwapOpenTriads,
        TransplantPlan,
        Virtual,
        VirtualEmbeddings,
        VirtualGraphs,
    )
    from graph_transplant.datasets import load
    from graph_transplant.errors import DataError, GraphTransplantError
    from graph_transplant.graphs import GraphStore, StoreWriter
    from graph_transplant.nn import GraphClassifier, Prediction
    from graph_transplant.saliency import NodeSaliency
    from graph_transplant.training import FitResult, augmented_loss, evaluate, fit

_HOMES = {
    "METHODS": "augment",
    "Augmentation": "augment",
    "CleanPass": "augment",
    "DataError": "errors",
    "DropEdges": "augment",
    "DropNodes": "augment",
    "FitResult": "training",
    "GMixup": "augment",
    "GraphClassifier": "nn",
    "GraphStore": "graphs",
    "GraphTransplant": "augment",
    "GraphTransplantError": "errors",
    "IfMixup": "augment",
    "LabelSmoothing": "augment",
    "ManifoldMixup": "augment",
    "MaskNodes": "augment",
    "MixedGraphs": "augment",
    "NodeSaliency": "saliency",
    "NodeSam": "augment",
    "OneOf": "augment",
    "OriginalGraphs": "augment",
    "Pairing": "augment",
    "PerturbEdges": "augment",
    "Prediction": "nn",
    "RandomSubgraph": "augment",
    "ReliabilityFilter": "augment",
    "Sequential": "augment",
    "ShuffledSaliency": "augment",
    "StoreWriter": "graphs",
    "SubMix": "augment",
    "SwapOpenTriads": "augment",
    "TransplantPlan": "augment",
    "Virtual": "augment",
    "VirtualEmbeddings": "augment",
    "VirtualGraphs": "augment",
    "augmented_loss": "training",
    "evaluate": "training",
    "fit": "training",
    "load": "datasets",
}

__all__ = [
    "METHODS",
    "Augmentation",
    "CleanPass",
    "DataError",
    "DropEdges",
    "DropNodes",
    "FitResult",
    "GMixup",
    "GraphClassifier",
    "GraphStore",
    "GraphTransplant",
    "GraphTransplantError",
    "IfMixup",
    "LabelSmoothing",
    "ManifoldMixup",
    "MaskNodes",
    "MixedGraphs",
    "NodeSaliency",
    "NodeSam",
    "OneOf",
    "OriginalGraphs",
    "Pairing",
    "PerturbEdges",
    "Prediction",
    "RandomSubgraph",
    "ReliabilityFilter",
    "Sequential",
    "ShuffledSaliency",
    "StoreWriter",
    "SubMix",
    "SwapOpenTriads",
    "TransplantPlan",
    "Virtual",
    "VirtualEmbeddings",
    "VirtualGraphs",
    "__version__",
    "augmented_loss",
    "evaluate",
    "fit",
    "load",
]

try:
    __version__ = version("graph-transplant")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
