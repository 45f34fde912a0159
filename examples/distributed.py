"""One training run shared by several processes: each trains on its share of every batch.

Run it with ``torchrun --nproc-per-node 2 examples/distributed.py``.
"""

from __future__ import annotations

import argparse

import torch
from torch import distributed

import graph_transplant as gt
from graph_transplant.training import EpochLog


def show(log: EpochLog) -> None:
    """Print an epoch; only the first process calls this."""
    print(f"epoch {log.epoch:3d}  loss {log.train_loss:.3f}", flush=True)


def main(epochs: int) -> None:
    """Train for some epochs; the first process prints progress."""
    # Every process has the whole data set and builds the same model from the same seed.
    graphs = gt.load("motifs")
    order = torch.randperm(len(graphs), generator=torch.Generator().manual_seed(0))
    train, test = graphs.subset(order[:450]), graphs.subset(order[450:])
    model = gt.GraphClassifier.for_data(train, conv="gin", hidden=32, seed=0)
    result = gt.fit(
        model,
        train,
        test,
        gt.GraphTransplant(connect="dp"),
        seed=0,
        epochs=epochs,
        batch_size=64,  # the graphs of all processes together
        learning_rate=5e-3,
        callbacks=[show],
    )
    # All processes end up with the same weights.
    accuracy = gt.evaluate(result.model, test).accuracy
    if distributed.get_rank() == 0:
        size = distributed.get_world_size()
        print(f"{size} processes, best epoch {result.best_epoch}: {accuracy:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    distributed.init_process_group("gloo")
    main(options.epochs)
    distributed.barrier()  # a process that leaves early may abort another
    distributed.destroy_process_group()
