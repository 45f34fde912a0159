"""One training run shared by several processes, with the result of one process.

Run it with ``torchrun --nproc-per-node 2 examples/distributed.py``, or with 1 or 4 processes: the
losses are the same up to rounding, because every batch is cut into four pieces either way.
"""

from __future__ import annotations

import argparse

import torch

import graph_transplant as gt
from graph_transplant.experiments.distributed import join_group
from graph_transplant.training import EpochLog

PIECES = 4


def main(epochs: int) -> None:
    """Train for some epochs; the first process prints how it goes.

    Args:
        epochs: Number of epochs.
    """
    with join_group() as group:
        # Every process has the whole data set and builds the same model from the same seed.
        graphs = gt.load("motifs")
        order = torch.randperm(len(graphs), generator=torch.Generator().manual_seed(0))
        train, test = graphs.subset(order[:450]), graphs.subset(order[450:])
        model = gt.GraphClassifier.for_data(train, hidden=32, seed=0)

        def show(log: EpochLog) -> None:
            print(f"epoch {log.epoch:3d}  loss {log.train_loss:.3f}", flush=True)

        # `batch_size` counts the graphs of all processes together.
        augment = gt.GraphTransplant(connect="degree")
        result = gt.fit(
            model,
            train,
            test,
            augment,
            seed=0,
            epochs=epochs,
            batch_size=64,
            learning_rate=2e-3,
            parts=PIECES,
            callbacks=[show],
        )
        if group.rank == 0:
            accuracy = gt.evaluate(result.model, test).accuracy
            print(f"{group.size} processes, best epoch {result.best_epoch}: {accuracy:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    main(parser.parse_args().epochs)
