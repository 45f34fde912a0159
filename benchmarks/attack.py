"""Measure GradArgmax: how long it takes, how much memory, and what it does to a trained model.

For every model one fold is trained, its test graphs are attacked with the paper's budget, and, as a
control, changed at random as much. Without training (``--epochs 0``) only the first columns mean
anything; they need a few seconds.

    python benchmarks/attack.py ENZYMES --epochs 0
    python benchmarks/attack.py ENZYMES --models gcs --epochs 200 --methods vanilla,transplant-ep

Times are processor seconds of one thread.
"""

from __future__ import annotations

import argparse
import resource
import time

import torch

import graph_transplant as gt
from graph_transplant.analysis import attack, attack_edges, mean_edges, random_attack
from graph_transplant.augment import build_method
from graph_transplant.experiments.splits import fold_indices

COLUMNS = ("method", "model", "graphs", "m", "seconds", "MiB", "added", "removed")
ACCURACIES = ("clean", "random", "attacked")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default="ENZYMES")
    parser.add_argument("--models", default="gcs,gin,gcn,gat")
    parser.add_argument("--methods", default="vanilla")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=0, help="0: the weights of the start")
    parser.add_argument("--budget", type=float, default=0.2)
    parser.add_argument("--hops", type=int, default=4)
    parser.add_argument("--graphs", type=int, help="attack at most so many test graphs")
    parser.add_argument("--fold", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    store = gt.load(arguments.data)
    edges = attack_edges(store, arguments.budget)
    print(f"{store}\nmean edges {mean_edges(store):.2f}, m = {edges}\n")
    split = fold_indices(store.labels, folds=5, repeat=0, seed=arguments.seed, fold=arguments.fold)
    train, validation = store.subset(split.train), store.subset(split.validation)
    test = store.subset(split.test[: arguments.graphs])
    print("".join(f"{name:>10}" for name in (*COLUMNS, *ACCURACIES)))
    for conv in arguments.models.split(","):
        for method in arguments.methods.split(","):
            model = gt.GraphClassifier.for_data(
                store.subset(torch.cat((split.train, split.validation))),
                conv=conv,
                layers=arguments.layers,
                seed=arguments.seed,
            )
            if arguments.epochs:
                augment = build_method(method, model, seed=arguments.seed + 1)
                gt.fit(
                    model,
                    train,
                    validation,
                    augment,
                    seed=arguments.seed,
                    epochs=arguments.epochs,
                )
            begin = time.process_time()
            attacked = attack(model, test, edges=edges, hops=arguments.hops)
            seconds = time.process_time() - begin
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            chance = random_attack(
                model, test, edges=edges, hops=arguments.hops, seed=arguments.seed
            )
            cells = (
                method[:9],
                conv,
                len(test),
                edges,
                f"{seconds:.2f}",
                f"{memory:.0f}",
                int(attacked.added.sum()),
                int(attacked.removed.sum()),
                f"{gt.evaluate(model, test).accuracy:.3f}",
                f"{chance.accuracy:.3f}",
                f"{attacked.accuracy:.3f}",
            )
            print("".join(f"{cell:>10}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
