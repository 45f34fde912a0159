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
    from graph_transplant.datasets import load, stream
    from graph_transplant.errors import DataError, GraphTransplantError
    from graph_transplant.estimator import GraphTransplantClassifier, GraphTransplantRegressor
    from graph_transplant.graphs import GraphStore, Rows, Skipped, StoreWriter
    from graph_transplant.nn import GraphClassifier, Prediction
    from graph_transplant.saliency import NodeSaliency
    from graph_transplant.targets import TargetScale
    from graph_transplant.tensorboard import TensorBoard
    from graph_transplant.trained import (
        Predictions,
        TrainedModel,
        explain,
        mixtures,
        predict_table,
        to_onnx,
        train,
    )
    from graph_transplant.training import FitResult, augmented_loss, evaluate, fit

_HOMES = {
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
    "GraphTransplantClassifier": "estimator",
    "GraphTransplantError": "errors",
    "GraphTransplantRegressor": "estimator",
    "IfMixup": "augment",
    "LabelSmoothing": "augment",
    "METHODS": "augment",
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
    "Predictions": "trained",
    "RandomSubgraph": "augment",
    "ReliabilityFilter": "augment",
    "Rows": "graphs",
    "Sequential": "augment",
    "ShuffledSaliency": "augment",
    "Skipped": "graphs",
    "StoreWriter": "graphs",
    "SubMix": "augment",
    "SwapOpenTriads": "augment",
    "TargetScale": "targets",
    "TensorBoard": "tensorboard",
    "TrainedModel": "trained",
    "TransplantPlan": "augment",
    "Virtual": "augment",
    "VirtualEmbeddings": "augment",
    "VirtualGraphs": "augment",
    "augmented_loss": "training",
    "evaluate": "training",
    "explain": "trained",
    "fit": "training",
    "load": "datasets",
    "mixtures": "trained",
    "predict_table": "trained",
    "stream": "datasets",
    "to_onnx": "trained",
    "train": "trained",
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
    "GraphTransplantClassifier",
    "GraphTransplantError",
    "GraphTransplantRegressor",
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
    "Predictions",
    "RandomSubgraph",
    "ReliabilityFilter",
    "Rows",
    "Sequential",
    "ShuffledSaliency",
    "Skipped",
    "StoreWriter",
    "SubMix",
    "SwapOpenTriads",
    "TargetScale",
    "TensorBoard",
    "TrainedModel",
    "TransplantPlan",
    "Virtual",
    "VirtualEmbeddings",
    "VirtualGraphs",
    "__version__",
    "augmented_loss",
    "evaluate",
    "explain",
    "fit",
    "load",
    "mixtures",
    "predict_table",
    "stream",
    "to_onnx",
    "train",
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
