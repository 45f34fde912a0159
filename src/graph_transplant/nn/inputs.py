"""Inputs of message passing: node features, degrees, random walks, edge attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from graph_transplant.data import GraphBatch, GraphStore, moments
from graph_transplant.data.batch import CODE
from graph_transplant.errors import DataError
from graph_transplant.kernels.random_walk import return_probabilities
from graph_transplant.nn.convolutions import Inputs, project

# Standard deviation of the initial node embeddings.
_EMBEDDING_SIZE: Final = 0.3

# Chunk size for computing edge attribute moments.
_EDGES_AT_ONCE: Final = 1 << 18


def usable_deviation(std: Tensor) -> Tensor:
    """Replace zero deviations by 1; meta tensors, which have no values, are returned as is."""
    return std if std.is_meta else torch.where(std > 0, std, torch.ones_like(std))


class FeatureInput(nn.Module):
    """Standardises the continuous (first) node features; constant ones are only centred."""

    mean: Tensor
    std: Tensor

    def __init__(self, features: int, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.features = features
        self.register_buffer("mean", mean)
        self.register_buffer("std", usable_deviation(std))

    def forward(self, batch: GraphBatch, dtype: torch.dtype) -> Tensor | Inputs:
        """Return the features, ``[nodes, features]``."""
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
    """One-hot degree, up to ``largest``, for graphs without node features."""

    def __init__(self, largest: int) -> None:
        super().__init__()
        self.features = largest + 1

    def forward(self, batch: GraphBatch, dtype: torch.dtype) -> Inputs:
        """Return the one-hot degrees, with ``largest + 1`` columns."""
        degree = batch.adjacency.degree.detach().round().to(torch.long)
        return Inputs(None, degree.clamp_(0, self.features - 1))


class Encoder(nn.Linear):
    """Linear map from node features to the hidden width."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__(features, hidden)
        # Most columns are one-hot: the scale of an embedding must not depend on their number.
        nn.init.normal_(self.weight, std=_EMBEDDING_SIZE)

    def forward(self, x: Tensor | Inputs) -> Tensor:
        """Return float ``[nodes, hidden]``."""
        return project(x, self.weight, self.bias)


class WalkEncoder(nn.Linear):
    """Linear map from random-walk features to the hidden width (Dwivedi et al., 2022).

    The features are the return probabilities of a random walk after 1, …, ``steps`` steps. They
    pass no gradient to edge weights.
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
        walks = return_probabilities(batch.csr, weights, batch.symmetric, self.in_features)
        return super().forward(torch.from_numpy(walks).to(self.weight))


def edge_moments(store: GraphStore) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of every edge attribute.

    Columns of zeros and ones are treated as one-hot and not scaled (mean 0, deviation 1). Constant
    columns have deviation 1.
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
    # Rounding may give a constant column a tiny deviation: compare minimum and maximum.
    std = torch.where(numeric & (low < high) & (std > 0), std, torch.ones_like(std))
    return torch.where(numeric, mean, torch.zeros_like(std)), std
