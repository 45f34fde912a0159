"""Models as PyG users write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, global_mean_pool


class Foreign(nn.Module):
    """Fields by name; two message-passing layers of PyG."""

    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = GCNConv(3, 8), GCNConv(8, 8)
        self.out = nn.Linear(8, outputs)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int) -> Tensor:
        h = self.two(self.one(x, edge_index).relu(), edge_index).relu()
        return self.out(global_mean_pool(h, batch, batch_size))


class Weighted(Foreign):
    """Cannot do without edge weights."""

    def forward(  # type: ignore[override]
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, batch: Tensor
    ) -> Tensor:
        h = self.one(x, edge_index, edge_weight).relu()
        return self.out(global_mean_pool(self.two(h, edge_index, edge_weight).relu(), batch))
