"""Graph Transplant with a PyG GINE model on molecules, with edge attributes.

Run it with ``python examples/gine_molecules.py``; it requires RDKit (``pip install
graph-transplant[chem]``). Atoms and bonds are described by categories, as in the Open Graph
Benchmark. Mixed molecules use the same categories: atoms and existing bonds keep theirs, and a new
bond gets those of a bond that one of its atoms lost.
"""

from __future__ import annotations

import argparse
from itertools import product

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, global_mean_pool
from torch_geometric.utils import from_smiles
from torch_geometric.utils.smiles import e_map, x_map

import graph_transplant as gt

# Alcohols and their ketones or aldehydes: the same atoms, another bond.
CHAINS = ("C", "CC", "CCC", "CC(C)", "CCCC", "C1CC1", "c1ccccc1", "CCOC", "CCN", "ClCC")
ENDS = ("C", "CC", "CCC", "C(C)C", "C1CCCC1", "CF")
MIDDLES = ("C(O)", "C(=O)")


def molecules() -> list[Data]:
    """Make molecules with x [atoms, 9] and edge_attr [bonds, 3], both integer categories."""
    graphs = []
    for chain, end in product(CHAINS, ENDS):
        for label, middle in enumerate(MIDDLES):
            data = from_smiles(chain + middle + end)
            data.y = torch.tensor([label])
            graphs.append(data)
    return graphs


class Categories(nn.Module):
    """Sums one learned vector per category, as OGB's encoders do."""

    def __init__(self, sizes: list[int], width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, width) for size in sizes)

    def forward(self, columns: Tensor) -> Tensor:
        """Return float [rows, width] for integer [rows, columns]."""
        return sum(table(columns[:, k]) for k, table in enumerate(self.tables))


class GINE(nn.Module):
    """Three GINE convolutions, a mean and a linear head."""

    def __init__(self, classes: int, width: int = 64) -> None:
        super().__init__()
        self.atoms = Categories([len(names) for names in x_map.values()], width)
        self.bonds = Categories([len(names) for names in e_map.values()], width)
        self.layers = nn.ModuleList(
            GINEConv(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)))
            for _ in range(3)
        )
        self.head = nn.Linear(width, classes)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor, batch_size: int
    ) -> Tensor:
        """Return logits; arguments are passed from the batch by name."""
        x, bonds = self.atoms(x), self.bonds(edge_attr)
        for layer in self.layers:
            x = layer(x, edge_index, bonds).relu()
        return self.head(global_mean_pool(x, batch, batch_size))


def bonds_stay_categories(batch: Batch, augment: gt.GraphTransplant) -> bool:
    """Whether every bond of the mixed molecules has the categories of a bond in the batch."""
    mixed = augment.mix(batch).batch
    known = {tuple(row) for row in batch.edge_attr.tolist()}
    one_each = len(mixed.edge_attr) == mixed.num_edges
    return one_each and all(tuple(row) in known for row in mixed.edge_attr.tolist())


@torch.no_grad()
def accuracy(model: GINE, batch: Batch) -> float:
    """Share of molecules whose class is predicted correctly."""
    model.eval()
    logits = model(batch.x, batch.edge_index, batch.edge_attr, batch.batch, batch.num_graphs)
    return float(logits.argmax(1).eq(batch.y).float().mean())


def main(epochs: int) -> None:
    """Train for some epochs and print progress."""
    torch.manual_seed(0)
    graphs = molecules()
    order = torch.randperm(len(graphs)).tolist()
    train = DataLoader([graphs[k] for k in order[:90]], batch_size=30, shuffle=True)
    test = Batch.from_data_list([graphs[k] for k in order[90:]])

    model = GINE(classes=2)
    augment = gt.GraphTransplant(connect="dp")
    optimizer = torch.optim.Adam([*model.parameters(), *augment.parameters()], lr=2e-3)
    print(f"bonds of mixed molecules are known bonds: {bonds_stay_categories(test, augment)}")

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
    parser.add_argument("--epochs", type=int, default=15)
    main(parser.parse_args().epochs)
