"""Measure GradArgmax: how long it takes, how much memory, and what it does to a trained model.

For every model one fold is trained, its test graphs are attacked with the paper's budget, and, as a
control, changed at random as much. Without training (``--epochs 0``) only the first columns mean
anything; they need a few seconds.

    python benchmarks/attack.py ENZYMES --epochs 0
    python benchmarks/attack.py ENZYMES --models gcs --epochs 200 --methods vanilla,transplant-ep
    python benchmarks/attack.py ENZYMES --models gcs --epochs 60 --against grbcd
    python benchmarks/attack.py --bench     # part of `make bench`, writes bench-attack.json

Times are processor seconds of one thread.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from bench import machine
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

import graph_transplant as gt
from graph_transplant.analysis import attack, attack_edges, mean_edges
from graph_transplant.augment import build_method
from graph_transplant.datasets.splits import fold_indices

DRAWS_PER_PAIR = 4
"""Size of GRBCD's random block as a multiple of the pairs of a graph.

The block is drawn with replacement: of all pairs 98 % are in it, new ones in every step.
"""


@dataclass(frozen=True)
class Other:
    """What PyG's attack did to a model."""

    accuracy: float
    loss: float  # mean
    seconds: float  # processor time of the attack alone


class Wrapped(nn.Module):
    """A classifier of graphs in the form that PyG's attack on nodes asks for."""

    def __init__(self, model: gt.GraphClassifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        graph = Data(x=x, edge_index=edge_index, edge_weight=edge_weight)
        logits: Tensor = self.model.run(graph).logits
        return logits


def graph_loss(logits: Tensor, labels: Tensor, _: Tensor | None) -> Tensor:
    """The loss of one graph, which GRBCD raises."""
    return cross_entropy(logits, labels)


def grbcd(model: gt.GraphClassifier, store: gt.GraphStore, edges: int, *, seed: int = 0) -> Other:
    """Attack undirected graphs with node features, one after another, with PyG's GRBCD.

    ``edges`` pairs change in every graph; everything else is at its default.
    """
    with warnings.catch_warnings():
        # Asking for this part of PyG warns that it may change.
        warnings.filterwarnings("ignore", message=".*contains experimental code")
        from torch_geometric.contrib.nn import GRBCDAttack

    wrapped = Wrapped(model).eval()
    changed, seconds = [], 0.0
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for data in store.to_pyg():
            nodes = int(data.num_nodes)
            index = data.edge_index
            if nodes > 1:
                block = DRAWS_PER_PAIR * nodes * (nodes - 1) // 2
                begin = time.process_time()
                attacker = GRBCDAttack(wrapped, block_size=block, loss=graph_loss, log=False)
                index, _ = attacker.attack(data.x, index, data.y, edges)
                seconds += time.process_time() - begin
            changed.append(Data(x=data.x, edge_index=index, y=data.y))
    attacked = gt.GraphStore.from_pyg(changed, num_outputs=store.num_outputs)
    evaluation = gt.evaluate(model, attacked)
    return Other(evaluation.accuracy, evaluation.loss, seconds)


def trained_fold(
    store: gt.GraphStore, conv: str, method: str, epochs: int, fold: int
) -> tuple[gt.GraphClassifier, gt.GraphStore]:
    """Train a model on one fold of five; give it and the test graphs."""
    split = fold_indices(store.labels, folds=5, repeat=0, seed=0, fold=fold)
    known = store.subset(torch.cat((split.train, split.validation)))
    model = gt.GraphClassifier.for_data(known, conv=conv, layers=3, seed=0)
    if epochs:
        train, validation = store.subset(split.train), store.subset(split.validation)
        augment = build_method(method, model, seed=1)
        gt.fit(model, train, validation, augment, seed=0, epochs=epochs)
    return model, store.subset(split.test)


def measure(
    model: gt.GraphClassifier, test: gt.GraphStore, edges: int, *, against: bool
) -> dict[str, Any]:
    """Attack the same graphs in every way, at the same budget."""
    # What happens only once, such as loading parts of torch, does not count.
    few = test.subset(range(min(2, len(test))))
    attack(model, few, edges=1)
    begin = time.process_time()
    attacked = attack(model, test, edges=edges)
    row = {
        "graphs": len(test),
        "edges": edges,
        "seconds": round(time.process_time() - begin, 3),
        "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "added": int(attacked.added.sum()),
        "removed": int(attacked.removed.sum()),
        "clean": gt.evaluate(model, test).accuracy,
        "random": attack(model, test, kind="random", edges=edges).accuracy,
        "as_stated": attack(model, test, kind="as-stated", edges=edges).accuracy,
        "attacked": attacked.accuracy,
    }
    if against:
        grbcd(model, few, 1)
        other = grbcd(model, test, edges)
        row |= {"grbcd": other.accuracy, "grbcd_seconds": round(other.seconds, 3)}
    return row


def main() -> None:
    """Print a line for every model and method."""
    parser = argparse.ArgumentParser(description="Measure the GradArgmax attack.")
    parser.add_argument("data", nargs="?", default="ENZYMES")
    parser.add_argument("--models", default="gcs,gin,gcn,gat")
    parser.add_argument("--methods", default="vanilla")
    parser.add_argument("--epochs", type=int, default=0, help="0: the weights of the start")
    parser.add_argument("--budget", type=float, default=0.2)
    parser.add_argument("--fold", type=int, default=0)
    parser.add_argument("--against", choices=["grbcd"], help="attack with PyG's GRBCD too")
    parser.add_argument(
        "--bench", action="store_true", help="GCS on ENZYMES beside GRBCD, 60 epochs"
    )
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.bench:
        chosen.models, chosen.epochs, chosen.against = "gcs", 60, "grbcd"
    try:
        store = gt.load(chosen.data)
    except gt.DataError:
        if not chosen.bench:
            raise
        print("ENZYMES could not be had: generated motifs are attacked")
        store = gt.load("typed-motifs")
    edges = attack_edges(store, chosen.budget)
    print(f"{store}\nmean edges {mean_edges(store):.2f}, m = {edges}\n")
    rows = []
    for conv, method in product(chosen.models.split(","), chosen.methods.split(",")):
        model, test = trained_fold(store, conv, method, chosen.epochs, chosen.fold)
        found = measure(model, test, edges, against=chosen.against is not None)
        rows.append({"data": store.name, "model": conv, "method": method, **found})
    print(pd.DataFrame(rows).round(3).to_string(index=False))
    if chosen.bench:
        document = {**rows[0], "epochs": chosen.epochs, "machine": machine()}
        Path("bench-attack.json").write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
