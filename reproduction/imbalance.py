"""Rare classes: plain training, equal draws of the classes (``--balance``) and class weights.

    python -m reproduction.imbalance           # Tox21, NR-AR: 4 % of the molecules are active
    python -m reproduction.imbalance table

Five random splits, the same for all three ways. A JSON line per training is appended to
``results/imbalance.jsonl``; what is there is not run again. Needs ``GRAPH_TRANSPLANT_DATA``.
"""

from __future__ import annotations

import argparse
import os
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import graph_transplant as gt
from graph_transplant.results.statistics import paired_test
from reproduction.studies import Record, read, run_missing

OUT = Path(__file__).parent.parent / "results" / "imbalance.jsonl"
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "balance": {"balance": True},
    "class weights": {"class_weight": "balanced"},
}
SPLITS = 5
FIXED = {"method": "vanilla", "recipe": "strong", "split": "random", "epochs": 30}


@cache
def molecules() -> gt.GraphStore:
    path = Path(os.environ["GRAPH_TRANSPLANT_DATA"]) / "molecules" / "tox21.csv.gz"
    return gt.load(path, smiles="smiles", target="NR-AR")


def measure(way: str, seed: int) -> Record:
    """Train one model; its test metrics."""
    model = gt.train(molecules(), seed=seed, progress=False, **FIXED, **WAYS[way])
    return dict(model.description.metrics.test)


def table() -> None:
    """Print means, and differences to plain training with their p-values."""
    frame = pd.DataFrame(read(OUT)).set_index(["way", "seed"])
    print(frame.groupby("way").mean().round(4).to_string())
    plain = frame.loc["plain"]
    for way in list(WAYS)[1:]:
        for metric in ("auroc", "average_precision", "ece"):
            gaps = (frame.loc[way, metric] - plain[metric]).dropna()
            test = paired_test(gaps.tolist(), test_to_train=1 / 8)
            print(f"{way}, {metric}: {test.difference:+.4f}, p = {test.p_value:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", nargs="?", default="measure", choices=["measure", "table"])
    if parser.parse_args().command == "table":
        table()
    else:
        torch.set_num_threads(1)
        cases = product(WAYS, range(SPLITS))
        run_missing(OUT, ("way", "seed"), cases, measure)
