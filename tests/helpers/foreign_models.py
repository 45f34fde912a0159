"""Models as PyG users write them, and PyG's own layers with our weights."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, GINEConv, global_mean_pool

from graph_transplant.nn import (
    Convolution,
    GATConvolution,
    GATEdgeConvolution,
    GCNConvolution,
    GINConvolution,
    GINEConvolution,
    GraphClassifier,
)


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


def pyg_layer(ours: Convolution) -> nn.Module:
    """PyG's own layer with the weights of one of ours; of GCS all but the skip connection."""
    wide, narrow = ours.in_features, ours.out_features
    dtype = next(ours.parameters()).dtype
    if isinstance(ours, GINConvolution | GINEConvolution):
        steps = nn.Sequential(ours.first, nn.ReLU(), ours.second)
        if isinstance(ours, GINConvolution):
            layer = GINConv(copy.deepcopy(steps), train_eps=True).to(dtype)
        else:
            layer = GINEConv(
                copy.deepcopy(steps), train_eps=True, edge_dim=ours.edge.in_features
            ).to(dtype)
            layer.lin.load_state_dict(ours.edge.state_dict())
        layer.nn.load_state_dict(steps.state_dict())  # it has drawn new weights
        layer.eps.data.fill_(float(ours.epsilon.detach()))
    elif isinstance(ours, GATConvolution | GATEdgeConvolution):
        heads, edges = ours.heads, None
        if isinstance(ours, GATEdgeConvolution):
            edges = ours.attend_edge.shape[1]
        layer = GATConv(wide, narrow // heads, heads=heads, edge_dim=edges).to(dtype)
        layer.lin.weight.data = ours.linear.weight.detach().clone()
        layer.att_src.data = ours.attend_sender.detach().clone().unsqueeze(0)
        layer.att_dst.data = ours.attend_receiver.detach().clone().unsqueeze(0)
        layer.bias.data = ours.bias.detach().clone()
        if edges is not None:
            # Its two factors: the rows of our matrix, and a one in the first place.
            factor, vector = layer.lin_edge.weight.data.zero_(), layer.att_edge.data.zero_()
            factor[:: narrow // heads], vector[0, :, 0] = ours.attend_edge.data, 1.0
    else:
        looped = isinstance(ours, GCNConvolution)
        layer = GCNConv(wide, narrow, add_self_loops=looped, bias=looped).to(dtype)
        layer.lin.weight.data = ours.linear.weight.detach().clone()
        if looped:
            layer.bias.data = ours.linear.bias.detach().clone()
    return layer


class Twin(nn.Module):
    """One of our models in PyG's own layers, which read edge weights or attributes."""

    def __init__(self, ours: GraphClassifier) -> None:
        super().__init__()
        self.encoder, self.head = ours.encoder, ours.head
        self.layers = nn.ModuleList(pyg_layer(layer) for layer in ours.convolutions)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor,
        edge_attr: Tensor | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        h = self.encoder(x.to(self.head[0].weight.dtype))
        for layer in self.layers:
            h = layer(h, edge_index, edge_weight if edge_attr is None else edge_attr).relu()
        return self.head(global_mean_pool(h, batch))
