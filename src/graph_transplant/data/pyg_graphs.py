"""The graphs of a store as a PyG data set; imported late, as PyG is slow to import."""

from __future__ import annotations

import copy
from typing import Any

from torch_geometric.data import Data, InMemoryDataset


class PyGGraphs(InMemoryDataset):  # type: ignore[misc]
    """Graphs as a PyG data set that, like a list, gives the graphs themselves and not copies.

    What is set on a graph stays, as in ``for data in graphs: data.x = ...``.
    """

    def __init__(self, graphs: list[Data], num_classes: int) -> None:
        super().__init__()
        self._data, self.slices = self.collate(graphs)
        self._graphs = graphs  # PyG empties its own list now and then
        self._num_classes = num_classes

    @property
    def num_classes(self) -> int:
        """Number of classes, labels or values, also of those that no graph has."""
        return self._num_classes

    def get(self, idx: int) -> Data:
        """One of the graphs; a copy if there is a transform, which may work in place."""
        return self._graphs[idx] if self.transform is None else copy.copy(self._graphs[idx])

    def copy(self, idx: Any = None) -> PyGGraphs:
        """Copy all graphs, or some."""
        chosen = self if idx is None else self.index_select(idx)
        return PyGGraphs([data.clone() for data in chosen], self.num_classes)
