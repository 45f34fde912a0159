"""Where to read saliency: what every reading finds, and what the best do to Graph Transplant.

    python -m reproduction.saliency_study find       # AUROC against nodes known to make the class
    python -m reproduction.saliency_study transplant # accuracy of DP with the best readings
    python -m reproduction.saliency_study table      # both as tables, from the records

``find`` trains models on generated families (``causal_graphs.py``) and scores every reading of the
predicted class on test graphs. ``transplant`` trains with Graph Transplant (DP) in five-fold
cross-validation. A JSON line per training is appended to ``results/saliency``; what is there is
not run again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import graph_transplant as gt
from graph_transplant.analysis.saliency import MOTIF_FIELD, motif_scores
from graph_transplant.augment import build_method
from graph_transplant.augment.perturb import keep_parts
from graph_transplant.data import GraphBatch
from graph_transplant.datasets.splits import fold_indices
from graph_transplant.nn import evaluating
from graph_transplant.nn.saliency import margins
from graph_transplant.nn.segment import segment_sum
from reproduction.causal_graphs import FAMILIES, family
from reproduction.studies import Record, read, run_missing

OUT = Path(__file__).parent.parent / "results" / "saliency"
HELD_OUT = "shapes"
GRAPHS = 1000  # of every family

READINGS = {
    "last layer, gradient (the paper's)": gt.NodeSaliency("gradient", -1, "before"),
    "first layer, gradient": gt.NodeSaliency("gradient", 0, "before"),
    "first layer, gradient x activation": gt.NodeSaliency("gradient-x-activation", 0),
    "last layer, gradient x activation": gt.NodeSaliency("gradient-x-activation", -1),
}
"""What Graph Transplant is trained with."""


def layer_readings(batch: GraphBatch, margin: Tensor, layers: Any) -> Iterator[tuple[str, Tensor]]:
    """Every reading: layer, kind, and the side of the activation where that matters."""
    gradients = torch.autograd.grad(margin, [layer.nodes for layer in layers], retain_graph=True)
    sums: dict[str, Tensor] = {}
    for number, (layer, after) in enumerate(zip(layers, gradients, strict=True), start=1):
        nodes = layer.nodes.detach()
        product_ = (after * nodes).sum(1)
        found = {
            "gradient after": after.norm(dim=1),
            "gradient before": (after * (nodes > 0)).norm(dim=1),
            "gradient x activation": product_.abs(),
            "signed gradient x activation": product_,
        }
        place = "last" if number == len(layers) else str(number)
        for kind, values in found.items():
            yield f"{place}, {kind}", values
            # Layers have different scales: each counts by its share of a graph.
            total = segment_sum(values.abs(), batch.batch, batch.offsets).clamp(min=1e-30)
            share = values / total.index_select(0, batch.batch)
            sums[kind] = sums.get(kind, torch.zeros_like(share)) + share
    for kind, values in sums.items():
        yield f"all, {kind}", values


def occlusion(model: gt.GraphClassifier, store: gt.GraphStore, chosen: Tensor) -> Tensor:
    """How much the margin falls when a node is taken away, by node."""
    falls = []
    for g in range(len(store)):
        nodes = int(store.node_counts[g])
        batch = store.batch([g] * (nodes + 1))
        keep = np.ones((nodes + 1, nodes), np.bool_)
        np.fill_diagonal(keep[:nodes], False)
        cut = keep_parts(batch, torch.zeros(nodes + 1), nodes=keep.ravel())
        logits = model.run(cut.batch, layers=False).logits
        margin = margins(logits, chosen[g].expand(nodes + 1), store.task)
        falls.append(margin[-1] - margin[:-1])
    return torch.cat(falls)


def score(model: gt.GraphClassifier, test: gt.GraphStore) -> dict[str, float]:
    """AUROC of every reading against the marked nodes, over all test graphs that have any."""
    batch = test.batch(range(len(test)))
    ptr, marked = torch.from_numpy(batch.ptr), batch.nodes[MOTIF_FIELD]
    with evaluating(model), torch.enable_grad():
        prediction = model.run(batch)
        chosen = prediction.logits.detach().argmax(1)
        margin = margins(prediction.logits, chosen, test.task).sum()
        found = dict(layer_readings(batch, margin, prediction.layers))
    with evaluating(model):
        found["occlusion, signed"] = occlusion(model, test, chosen)
    return {
        name: float(motif_scores(values.detach(), marked, ptr).auroc.mean())
        for name, values in found.items()
    }


def found_by(name: str, conv: str, layers: int, method: str, seed: int) -> Record:
    """Train on a family and score every reading."""
    store = family(name, GRAPHS, seed)
    parts = np.split(np.arange(GRAPHS), [GRAPHS * 3 // 5, GRAPHS * 4 // 5])
    train, validation, test = (store.subset(part) for part in parts)
    model = gt.GraphClassifier.for_data(train, conv=conv, layers=layers, hidden=64, seed=seed)
    augment = build_method(method, model, seed=seed)
    gt.fit(
        model, train, validation, augment, seed=seed, epochs=60, batch_size=64,
        learning_rate=2e-3, ties="loss",
    )  # fmt: skip
    return {"accuracy": gt.evaluate(model, test).accuracy, "auroc": score(model, test)}


def trained_with(data: str, reading: str, fold: int) -> Record:
    """Train with one reading of saliency, on one of five folds."""
    store = family(data, 500, 100) if data in FAMILIES else gt.load(data)
    split = fold_indices(store.labels, folds=5, repeat=0, seed=0, fold=fold)
    train, validation, test = (
        store.subset(part) for part in (split.train, split.validation, split.test)
    )
    model = gt.GraphClassifier.for_data(train, conv="gcs", layers=3, seed=fold)
    augment = () if reading == "vanilla" else gt.GraphTransplant(saliency=READINGS[reading])
    result = gt.fit(model, train, validation, augment, seed=fold, epochs=200)
    return {"epochs": result.epochs, "accuracy": gt.evaluate(model, test).accuracy}


def table() -> None:
    """Print what the records say."""
    found = read(OUT / "find.jsonl")
    rows = [
        {**{key: value for key, value in record.items() if key != "auroc"}, **record["auroc"]}
        for record in found
    ]
    frame = pd.DataFrame(rows)
    readings = [name for name in frame.columns if ", " in name]
    pd.set_option("display.width", 200, "display.max_rows", 200, "display.max_columns", 30)
    by = frame.groupby(["family", "conv"])[["accuracy", *readings]].mean().T.round(3)
    chosen_on = frame[frame["family"] != HELD_OUT]
    by = by.copy()
    by.columns = [" ".join(map(str, column)) for column in by.columns]
    by["choice"] = chosen_on[readings].mean().round(3)
    by["worst"] = chosen_on.groupby(["family", "conv", "layers"])[readings].mean().min().round(3)
    print(by.sort_values("choice", ascending=False))
    held = frame[(frame["family"] == HELD_OUT) & (frame["layers"] == 3)]
    print(held.groupby(["conv", "method"])[["accuracy", *readings]].mean().T.round(3))
    accuracy = pd.DataFrame(read(OUT / "transplant.jsonl"))
    if len(accuracy):
        means = accuracy.pivot_table(index="reading", columns="data", values="accuracy")
        print(means.round(3))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=["find", "transplant", "table"])
    part = parser.parse_args().part
    torch.set_num_threads(1)
    if part == "find":
        keys = ("family", "conv", "layers", "method", "seed")
        methods = ("vanilla", "transplant-dp")
        cases = product(FAMILIES, ("gin", "gcs"), (2, 3, 4), methods, range(3))
        run_missing(OUT / "find.jsonl", keys, cases, found_by)
    elif part == "transplant":
        cases = product(("MUTAG", "typed", "both", "PROTEINS"), ("vanilla", *READINGS), range(5))
        run_missing(OUT / "transplant.jsonl", ("data", "reading", "fold"), cases, trained_with)
    else:
        table()


if __name__ == "__main__":
    main()
