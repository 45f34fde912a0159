"""What enters the message-passing layers: node features, degrees, random walks, edge attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from graph_transplant.errors import DataError
from graph_transplant.graphs import GraphBatch, GraphStore, moments
from graph_transplant.graphs.batch import CODE
from graph_transplant.kernels.walks import return_probabilities
from graph_transplant.nn.convolutions import Inputs, project

# Standard deviation of the first embeddings of one-hot node features.
_EMBEDDING_SIZE: Final = 0.3

# Edges whose attributes are looked at together in measuring them: an upper bound for memory, but
# for a single graph with more of them.
_EDGES_AT_ONCE: Final = 1 << 18


def usable_deviation(std: Tensor) -> Tensor:
    """Deviations to divide by: 1 for what never varies. On the meta device there are no values."""
    return std if std.is_meta else torch.where(std > 0, std, torch.ones_like(std))


class FeatureInput(nn.Module):
    """Input layer for graphs with node features: standardises the continuous (first) ones.

    A feature that never varies keeps its scale.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, features: int, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.features = features
        self.register_buffer("mean", mean)
        self.register_buffer("std", usable_deviation(std))

    def forward(self, batch: GraphBatch, dtype: torch.dtype) -> Tensor | Inputs:
        """Return the features, ``[nodes, features]`` of the given type."""
        x, code = batch.nodes.get("x"), batch.nodes.get(CODE)
        columns = batch.codes + (0 if x is None else x.shape[-1])
        if columns != self.features or (x is not None and x.dim() != 2):
            given = "none" if x is None and code is None else [batch.num_nodes, columns]
            raise DataError(f"the model expects `x` of shape [nodes, {self.features}]; got {given}")
        if x is not None:
            x = self._standardised(x.to(dtype))
        if code is not None:
            return Inputs(x, code)
        assert x is not None
        return x

    def _standardised(self, x: Tensor) -> Tensor:
        continuous = self.mean.numel()
        if not continuous:
            return x
        scaled = (x[:, :continuous] - self.mean) / self.std
        return torch.cat((scaled, x[:, continuous:]), dim=1) if x.shape[1] > continuous else scaled


class DegreeInput(nn.Module):
    """Input layer for graphs without node features: the degree up to ``largest``, one-hot."""

    def __init__(self, largest: int) -> None:
        super().__init__()
        self.features = largest + 1

    def forward(self, batch: GraphBatch, dtype: torch.dtype) -> Inputs:
        """Return the features, one of ``largest + 1`` columns."""
        degree = batch.adjacency.degree.detach().round().to(torch.long)
        return Inputs(None, degree.clamp_(0, self.features - 1))


class Encoder(nn.Linear):
    """Maps node features linearly to the width of the layers."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__(features, hidden)
        # Most columns are one-hot, and each is an embedding: its size must not depend on how many
        # other columns there are.
        nn.init.normal_(self.weight, std=_EMBEDDING_SIZE)

    def forward(self, x: Tensor | Inputs) -> Tensor:
        """Return float ``[nodes, hidden]``."""
        return project(x, self.weight, self.bias)


class WalkEncoder(nn.Linear):
    """Maps random-walk features linearly to the width of the layers (Dwivedi et al., 2022).

    They are the probabilities that a random walk from a node is back after 1, …, ``steps`` steps.
    No gradient reaches edge weights through them.
    """

    def __init__(self, steps: int, hidden: int) -> None:
        super().__init__(steps, hidden, bias=False)

    def forward(self, batch: GraphBatch) -> Tensor:  # type: ignore[override]
        """Return float ``[nodes, hidden]``."""
        weight = batch.edge_weight
        weights = (
            np.ones(batch.num_edges, np.float32)
            if weight is None
            else weight.detach().cpu().to(torch.float32).numpy()
        )
        walks = return_probabilities(
            batch.ptr, batch.row_ptr, batch.column, weights, batch.symmetric, self.in_features
        )
        return super().forward(torch.from_numpy(walks).to(self.weight))


def edge_moments(store: GraphStore) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of the numeric edge attributes over all edges.

    A column of zeros and ones is taken for part of a one-hot code and stays as it is: mean 0,
    deviation 1. A column that never varies has deviation 1 too.
    """
    columns = store.num_edge_features
    low, high = torch.full((columns,), torch.inf), torch.full((columns,), -torch.inf)
    numeric = torch.zeros(columns, dtype=torch.bool)

    def pieces() -> Iterator[Tensor]:
        nonlocal low, high, numeric
        group = store.edge_ptr[:-1] // _EDGES_AT_ONCE
        _, sizes = torch.unique_consecutive(group, return_counts=True)
        for graphs in torch.split(torch.arange(len(store)), sizes.tolist()):
            attr = store.subset(graphs).edge_attr
            if attr is not None and len(attr):
                low, high = torch.minimum(low, attr.amin(0)), torch.maximum(high, attr.amax(0))
                numeric = numeric | ((attr != 0) & (attr != 1)).any(0)
                yield attr

    if not int(store.edge_counts.sum()):
        return torch.zeros(columns), torch.ones(columns)
    mean, std = moments(pieces())
    # Rounding gives a column that never varies a deviation of almost zero: the ends tell.
    std = torch.where(numeric & (low < high) & (std > 0), std, torch.ones_like(std))
    return torch.where(numeric, mean, torch.zeros_like(std)), std
