"""Graph Transplant: mixup for graphs, and a fair test of whether it helps on your data.

Public names are imported on first use, so that importing the package (and starting the command
line) does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

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
    from graph_transplant.training import TensorBoard, augmented_loss, evaluate, fit

_NAMES = {
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
    "training": "augmented_loss TensorBoard evaluate fit",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
_SUBPACKAGES = ("augment", "datasets", "figures", "transforms")

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


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name in _SUBPACKAGES:
        return import_module(f"{__name__}.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
