"""Fitted baselines that can be saved: arrays, and a configuration that describes them.

A baseline has what a :class:`~graph_transplant.nn.GraphClassifier` has for saving and loading: the
names and shapes of its tensors follow from ``config``, so that a file can be compared with them
before it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from graph_transplant.data import GraphStore
from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.methods import METHODS
from graph_transplant.metrics import TASKS
from graph_transplant.utils.lazy import resolve

MOST_ARRAYS = 100

_TYPES = {"bool": torch.bool, "int32": torch.int32, "int64": torch.int64, "float64": torch.double}


class Share(NamedTuple):
    """An output of a baseline for a graph, as the sum of ``base``, ``rest`` and all ``nodes``."""

    nodes: npt.NDArray[np.float64]
    rest: float  # what no node has a part in
    base: float
    output: float


def within(values: npt.NDArray[Any], lowest: float, highest: float) -> bool:
    """Whether all values are in a range, including its ends."""
    return bool(((values >= lowest) & (values <= highest)).all())


class Baseline(nn.Module):
    """A fitted method without a network, of which a trained model can be made.

    It reads the graphs themselves, as it may need more of them than a batch holds.
    """

    reading: ClassVar[str]
    """What the values of nodes are, in explanations."""

    def __init__(
        self, config: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> None:
        """Take arrays, or without them make room for those that ``config`` describes."""
        super().__init__()
        self._config = dict(config)
        self.method: str = str(config["baseline"])
        self.chosen: dict[str, Any] = dict(config["parameters"])
        self.task = check_choice("task", config["task"], TASKS)
        self.num_outputs, self.in_features, self.edge_features = (
            int(config[name]) for name in ("num_outputs", "in_features", "edge_features")
        )
        if arrays is not None:
            self._config["arrays"] = {
                name: [str(array.dtype), *array.shape] for name, array in arrays.items()
            }
        described = self._config["arrays"]
        if len(described) > MOST_ARRAYS:
            raise GraphTransplantError(f"{len(described):,} arrays are more than {MOST_ARRAYS}")
        for name, (kind, *shape) in described.items():
            if not all(type(size) is int for size in shape):
                raise GraphTransplantError(f"the shape of {name[:100]} must be whole numbers")
            if arrays is None:
                value = torch.empty(shape, dtype=_TYPES[check_choice("type", kind, _TYPES)])
            else:
                value = torch.from_numpy(np.ascontiguousarray(arrays[name]))
            self.register_buffer(name, value)

    @staticmethod
    def described(name: str, train: GraphStore, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of the configuration that all baselines have."""
        return {
            "baseline": name,
            "task": train.task,
            "num_outputs": train.num_outputs,
            "in_features": train.num_node_features,
            "edge_features": train.num_edge_features,
            "parameters": dict(parameters),
        }

    def config(self) -> dict[str, Any]:
        """Return what :meth:`from_config` needs."""
        return self._config

    @staticmethod
    def from_config(config: Mapping[str, Any]) -> Baseline:
        """Create a baseline whose arrays have no values yet."""
        models = {name: method.model for name, method in METHODS.items() if method.model}
        kind: type[Baseline] = resolve(models[check_choice("baseline", config["baseline"], models)])
        return kind(config)

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return an array."""
        return self.get_buffer(name).numpy()

    def check(self) -> None:
        """Raise a `ValueError` if arrays from a file do not fit one another."""
        raise NotImplementedError

    def check_graphs(self, store: GraphStore) -> None:
        """Raise a `DataError` if graphs lack what it reads besides their features."""

    def logits(self, store: GraphStore) -> Tensor:
        """Predict graphs, float32 ``[graphs, outputs]``: logits, or values as in training."""
        raise NotImplementedError

    def explain(self, store: GraphStore, number: int, output: int) -> Share:
        """Divide one output for one graph among its nodes."""
        raise NotImplementedError

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # nothing changes its arrays
