"""Graph Transplant in a plain PyTorch Geometric training loop, with an ordinary model.

Run it with ``python examples/pyg_loop.py``. One run on one split shows how to use it, not whether
it helps. To find out, use ``graph-transplant compare``, which runs the same folds with and without
it.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GIN, global_mean_pool
from torch_geometric.utils import degree

import graph_transplant as gt

LARGEST_DEGREE = 16


class Net(nn.Module):
    """A GIN of PyG on degrees, a readout and a linear head."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.gnn = GIN(LARGEST_DEGREE + 1, hidden_channels=64, num_layers=3)
        self.head = nn.Linear(64, classes)

    def forward(self, edge_index: Tensor, batch: Tensor, batch_size: int) -> Tensor:
        """Return logits; arguments are passed from the batch by name."""
        # Degrees are counted here, not stored with the graphs: mixed graphs have their own.
        count = degree(edge_index[0], batch.numel(), dtype=torch.long).clamp(max=LARGEST_DEGREE)
        x = nn.functional.one_hot(count, LARGEST_DEGREE + 1).float()
        # The activation must come between the last convolution and the mean. Without it, every
        # node of a graph would have the same gradient, and no node would be more salient.
        x = self.gnn(x, edge_index).relu()
        return self.head(global_mean_pool(x, batch, batch_size))


@torch.no_grad()
def accuracy(model: Net, loader: DataLoader) -> float:
    """Share of graphs whose class is predicted correctly."""
    model.eval()
    right = [model(b.edge_index, b.batch, b.num_graphs).argmax(1).eq(b.y) for b in loader]
    return float(torch.cat(right).float().mean())


def main(epochs: int) -> None:
    """Train for some epochs and print progress."""
    torch.manual_seed(0)
    graphs = gt.load("motifs")
    order = torch.randperm(len(graphs)).tolist()
    train = DataLoader(graphs.subset(order[:450]).to_pyg(), batch_size=64, shuffle=True)
    test = DataLoader(graphs.subset(order[450:]).to_pyg(), batch_size=150)

    model = Net(graphs.num_outputs)
    augment = gt.GraphTransplant(connect="dp")
    # With connect="ep" the augmentation has its own parameters: pass them as well.
    optimizer = torch.optim.Adam([*model.parameters(), *augment.parameters()], lr=2e-3)

    for epoch in range(1, epochs + 1):
        model.train()
        total = 0.0
        for batch in train:
            optimizer.zero_grad()
            loss = gt.augmented_loss(model, batch, augment)
            loss.backward()
            optimizer.step()
            total += float(loss.detach())
        if epoch % 5 == 0 or epoch == epochs:
            mean, right = total / len(train), accuracy(model, test)
            print(f"epoch {epoch:3d}  loss {mean:.3f}  test accuracy {right:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    main(parser.parse_args().epochs)
