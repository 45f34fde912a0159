"""Measure the ways to read node saliency, and so choose the default.

For every reading Graph Transplant (degree preservation) trains on the training graphs of some
folds; recorded are the *validation* accuracy (test graphs are never looked at) and, where the data
set knows which nodes carry the class (``motif_mask``), the precision of the most salient nodes: of
the k most salient nodes of a validation graph, k being the size of its motif, the share in it.

    python benchmarks/saliency_choice.py motifs --epochs 200 --out results/saliency
    python benchmarks/saliency_choice.py ENZYMES --layers 4 --epochs 300 --out results/saliency

One JSON line per finished training is appended to ``OUT/DATA.jsonl``; what is there is not run
again.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from pathlib import Path

import torch

import graph_transplant as gt
from graph_transplant.augment.subgraphs import most_salient
from graph_transplant.experiments.splits import fold_indices
from graph_transplant.graphs import layout_of
from graph_transplant.segments import segment_sum
from graph_transplant.training import evaluating

READINGS = {
    "gradient, last layer, before activation": gt.NodeSaliency("gradient", -1, "before"),
    "gradient, last layer, after activation": gt.NodeSaliency("gradient", -1, "after"),
    "gradient, penultimate layer, after activation": gt.NodeSaliency("gradient", -2, "after"),
    "gradient-x-activation, last layer, after activation": gt.NodeSaliency(
        "gradient-x-activation", -1, "after"
    ),
    "gradient-x-activation, penultimate layer, after activation": gt.NodeSaliency(
        "gradient-x-activation", -2, "after"
    ),
}


def top_precision(
    model: gt.GraphClassifier, store: gt.GraphStore, reading: gt.NodeSaliency
) -> float:
    """Share of motif nodes among the k most salient nodes, k being the size of the motif."""
    batch = store.batch(range(len(store)))
    with evaluating(model), torch.enable_grad():
        prediction = model(batch)
        targets = torch.nn.functional.one_hot(batch.y, store.num_outputs).to(torch.float32)
        clean = gt.CleanPass(batch, targets, prediction)
        saliency = clean.saliency(reading)
    layout = layout_of(batch)
    mask = batch.motif_mask.to(torch.float32)
    size = segment_sum(mask, layout.segment, layout.ptr)
    keys = torch.rand(len(mask), generator=torch.Generator().manual_seed(0)).to(torch.double)
    top = most_salient(saliency, layout, size.to(torch.long), keys).to(torch.float32)
    return float((segment_sum(top * mask, layout.segment, layout.ptr) / size).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--model", default="gcs")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--folds", type=int, default=3, help="how many of the five folds")
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    store = gt.load(arguments.data)
    path = arguments.out / f"{store.name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(record["reading"], record["fold"]) for record in records}
    for fold in range(arguments.folds):
        split = fold_indices(store.labels, folds=5, repeat=0, seed=arguments.seed, fold=fold)
        train, validation = store.subset(split.train), store.subset(split.validation)
        for name, reading in READINGS.items():
            if (name, fold) in done:
                continue
            model = gt.GraphClassifier.for_data(
                store.subset(torch.cat((split.train, split.validation))),
                conv=arguments.model,
                layers=arguments.layers,
                seed=fold,
            )
            transplant = gt.GraphTransplant("degree", saliency=reading)
            result = gt.fit(
                model, train, validation, transplant, seed=fold, epochs=arguments.epochs
            )
            record = {
                "data": store.name,
                "model": arguments.model,
                "layers": arguments.layers,
                "reading": name,
                "fold": fold,
                "epochs": result.epochs,
                "validation_accuracy": max(log.validation_accuracy for log in result.history),
            }
            if "motif_mask" in store.node_fields:
                record["top_precision"] = top_precision(model, validation, reading)
            records.append(record)
            with path.open("a") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
                os.fsync(file.fileno())
            print(record, flush=True)
    table = defaultdict(list)
    for record in records:
        table[record["reading"]].append(record)
    for name, rows in table.items():
        accuracy = [row["validation_accuracy"] for row in rows]
        line = f"{name:60} accuracy {sum(accuracy) / len(rows):.3f}"
        if all("top_precision" in row for row in rows):
            line += f"  top precision {sum(row['top_precision'] for row in rows) / len(rows):.3f}"
        print(line)


if __name__ == "__main__":
    main()
