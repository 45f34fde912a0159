"""Graph Transplant: mixup for graphs, and a fair test of whether it helps on your data.

Public names are imported on first use, so that importing the package (and starting the command
line) does not import torch.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from graph_transplant.utils.lazy import lazy

if TYPE_CHECKING:
    from graph_transplant import augment, datasets, figures, transforms
    from graph_transplant.augment import Augmentation, GraphTransplant
    from graph_transplant.comparison.compare import compare
    from graph_transplant.config import TrainConfig
    from graph_transplant.data import GraphStore
    from graph_transplant.datasets import load, stream
    from graph_transplant.errors import DataError, GraphTransplantError
    from graph_transplant.methods import METHODS
    from graph_transplant.models import TrainedModel, explain, train
    from graph_transplant.nn import GraphClassifier
    from graph_transplant.nn.saliency import NodeSaliency
    from graph_transplant.results.results import Results, read_results
    from graph_transplant.sklearn import GraphTransplantClassifier, GraphTransplantRegressor
    from graph_transplant.training import (
        TensorBoard,
        augmented_loss,
        augmented_losses,
        evaluate,
        fit,
    )

__all__ = [
    "METHODS",
    "Augmentation",
    "DataError",
    "GraphClassifier",
    "GraphStore",
    "GraphTransplant",
    "GraphTransplantClassifier",
    "GraphTransplantError",
    "GraphTransplantRegressor",
    "NodeSaliency",
    "Results",
    "TensorBoard",
    "TrainConfig",
    "TrainedModel",
    "__version__",
    "augment",
    "augmented_loss",
    "augmented_losses",
    "compare",
    "datasets",
    "evaluate",
    "explain",
    "figures",
    "fit",
    "load",
    "read_results",
    "stream",
    "train",
    "transforms",
]

try:
    __version__ = version("graph-transplant")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"


__getattr__ = lazy(
    __name__,
    {
        "augment": "Augmentation GraphTransplant",
        "comparison.compare": "compare",
        "config": "TrainConfig",
        "data": "GraphStore",
        "datasets": "load stream",
        "errors": "DataError GraphTransplantError",
        "methods": "METHODS",
        "models": "TrainedModel explain train",
        "nn": "GraphClassifier",
        "nn.saliency": "NodeSaliency",
        "results.results": "Results read_results",
        "sklearn": "GraphTransplantClassifier GraphTransplantRegressor",
        "training": "augmented_loss augmented_losses TensorBoard evaluate fit",
    },
    modules=("augment", "datasets", "figures", "transforms"),
)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
