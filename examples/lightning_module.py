"""Graph Transplant in a LightningModule: one new line in ``training_step``.

Run it with ``python examples/lightning_module.py``; it requires Lightning (``pip install
graph-transplant[lightning]``).
"""

from __future__ import annotations

import argparse
import logging
import warnings

import lightning
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool
from torch_geometric.utils import degree

import graph_transplant as gt

LARGEST_DEGREE = 16


class Net(nn.Module):
    """Two graph convolutions on degrees, a mean and a linear head."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.first = GCNConv(LARGEST_DEGREE + 1, 32)
        self.second = GCNConv(32, 32)
        self.head = nn.Linear(32, classes)

    def forward(
        self, edge_index: Tensor, batch: Tensor, batch_size: int, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Return logits; arguments are passed from the batch by name.

        The edge predictor learns through ``edge_weight``.
        """
        count = degree(edge_index[0], batch.numel(), dtype=torch.long).clamp(max=LARGEST_DEGREE)
        x = nn.functional.one_hot(count, LARGEST_DEGREE + 1).float()
        x = self.first(x, edge_index, edge_weight).relu()
        x = self.second(x, edge_index, edge_weight).relu()
        return self.head(global_mean_pool(x, batch, batch_size))


class Classifier(lightning.LightningModule):
    """Trains any graph classifier with Graph Transplant."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.net = Net(classes)
        # As a submodule, the edge predictor is trained and moved between devices with the model.
        self.augment = gt.GraphTransplant(connect="ep", embedding_size=32)

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        """Return the loss of the original and mixed graphs."""
        loss = gt.augmented_loss(self.net, batch, self.augment)
        self.log("train_loss", loss, batch_size=batch.num_graphs, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Evaluate on original graphs only."""
        logits = self.net(batch.edge_index, batch.batch, batch.num_graphs)
        right = logits.argmax(1).eq(batch.y).float().mean()
        self.log("accuracy", right, batch_size=batch.num_graphs)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return one optimiser for the model and the augmentation."""
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class Printer(lightning.Callback):
    """Prints what was logged after every epoch."""

    def on_train_epoch_end(self, trainer, module) -> None:
        """Print the metrics of the epoch."""
        found = trainer.callback_metrics
        loss, right = float(found["train_loss"]), float(found["accuracy"])
        print(f"epoch {trainer.current_epoch + 1}  loss {loss:.3f}  accuracy {right:.3f}")


def main(epochs: int) -> None:
    """Train for some epochs."""
    # Hide advice on hardware and data loading, which does not apply to a small example.
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    lightning.seed_everything(0, verbose=False)
    graphs = gt.load("motifs", graphs=240)
    data = graphs.to_pyg()
    order = torch.randperm(len(data)).tolist()
    train = DataLoader([data[k] for k in order[:180]], batch_size=30, shuffle=True)
    validation = DataLoader([data[k] for k in order[180:]], batch_size=60)

    module = Classifier(graphs.num_outputs)
    before = [parameter.detach().clone() for parameter in module.augment.parameters()]
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Printer()],
    )
    trainer.fit(module, train, validation)
    after = module.augment.parameters()
    moved = any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    print(f"the edge predictor has learned: {moved}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    main(parser.parse_args().epochs)
