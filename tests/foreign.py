"""Models as PyG users write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, global_mean_pool


class Foreign(nn.Module):
    """Fields by name; two message-passing layers of PyG, and perhaps a norm after them."""

    def __init__(self, outputs: int = 3, norm: nn.Module | None = None, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.one, self.two = GCNConv(3, 8), GCNConv(8, 8)
        self.norm = nn.Identity() if norm is None else norm
        self.out = nn.Linear(8, outputs)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int) -> Tensor:
        h = self.norm(self.two(self.one(x, edge_index).relu(), edge_index)).relu()
        return self.out(global_mean_pool(h, batch, batch_size))


class Weighted(Foreign):
    """Cannot do without edge weights."""

    def forward(  # type: ignore[override]
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, batch: Tensor
    ) -> Tensor:
        h = self.one(x, edge_index, edge_weight).relu()
        h = self.norm(self.two(h, edge_index, edge_weight)).relu()
        return self.out(global_mean_pool(h, batch))
