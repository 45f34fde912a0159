"""What the strong recipe is made of: validation scores with one ingredient changed at a time.

    python -m reproduction.recipe_study --data MUTAG motifs --folds 3 --epochs 100
    python -m reproduction.recipe_study table

Test folds are never looked at, nor are ENZYMES, NCI1 and BACE, which the recipe is judged on. A
JSON line per training is appended to ``results/recipe/study.jsonl``; what is there is not run
again.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import asdict, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import mean

import pandas as pd
import torch

import graph_transplant as gt
from graph_transplant.augment import build_method
from graph_transplant.comparison.training_sets import split_of, trial_seed
from graph_transplant.config.compare import Settings
from graph_transplant.config.recipes import RECIPES, Recipe
from graph_transplant.results.record import Trial
from graph_transplant.training.defaults import automatic_model, metric_for
from reproduction.studies import Record, read, run_missing

OUT = Path(__file__).parent.parent / "results" / "recipe" / "study.jsonl"
LAST = 0.1  # share of the epochs, at the end, over which validation scores are averaged

START = Recipe(
    epochs=100,
    batch_size=32,
    learning_rate=1e-3,
    weight_decay=1e-4,
    warmup=10,
    cosine=True,
    ties="loss",
    readout="mean-max",
    dropout=0.2,
    input_layers=2,
    norm="batch",
    residual=True,
    layer_dropout=0.1,
)
"""Where the study began: what published configurations have in common."""

CANDIDATES: dict[str, Recipe] = {
    "start": START,
    "paper": RECIPES["paper"],
    "no normalisation": replace(START, norm="none"),
    "layer normalisation": replace(START, norm="layer"),
    "no residual": replace(START, residual=False),
    "mean readout": replace(START, readout="mean"),
    "sum readout": replace(START, readout="sum"),
    "jumping knowledge": replace(START, jumping=True),
    "no layer dropout": replace(START, layer_dropout=0.0),
    "layer dropout 0.2": replace(START, layer_dropout=0.2),
    "head dropout 0.5": replace(START, dropout=0.5),
    "batch size 128": replace(START, batch_size=128),
    "rate 0.003": replace(START, learning_rate=3e-3),
    "decay 0.01": replace(START, weight_decay=1e-2),
    "width 64": replace(START, hidden=64),
    "one input layer": replace(START, input_layers=1),
    "walk 8": replace(START, walk=8),
    "walk 8, rate 0.003": replace(START, walk=8, learning_rate=3e-3),
    "walk 8, layer dropout 0.2": replace(START, walk=8, layer_dropout=0.2),
    "walk 8, jumping knowledge": replace(START, walk=8, jumping=True),
    "walk 8, sum readout": replace(START, walk=8, readout="sum"),
    "more regular": replace(START, layer_dropout=0.2, dropout=0.5, weight_decay=1e-2),
}


@cache
def load(name: str) -> gt.GraphStore:
    """The data of the study; DD is cut to its first 400 graphs of at most 300 nodes."""
    if name in ("ENZYMES", "NCI1", "bace"):
        raise SystemExit(f"{name} is kept for judging the recipe")
    if name == "clintox":
        path = Path(os.environ["GRAPH_TRANSPLANT_DATA"]) / "molecules" / "clintox.csv.gz"
        return gt.load(path, smiles="smiles", target="CT_TOX")
    store = gt.load("motifs", graphs=300) if name == "motifs" else gt.load(name)
    if name == "DD":
        store = store.subset((store.node_counts <= 300).nonzero().flatten()[:400])
    return store


def measure(data: str, candidate: str, method: str, fold: int, epochs: int) -> Record:
    """Train one model; validation scores and losses, and the seconds it took the processor."""
    store, recipe = load(data), CANDIDATES[candidate]
    trial = Trial(method, automatic_model(store), 3, repeat=0, fold=fold)
    settings = Settings(metric=metric_for(store))
    split, seed = split_of(store, trial, settings), trial_seed(trial, 0)
    seen = store.subset(torch.cat([split.train, split.validation]))
    model = gt.GraphClassifier.for_data(
        seen, conv=trial.model, layers=trial.layers, **recipe.network(), seed=seed
    )
    begin = time.process_time()
    result = gt.fit(
        model,
        store.subset(split.train),
        store.subset(split.validation),
        build_method(trial.method, model, seed=seed + 1),
        seed=seed,
        metric=settings.metric,
        progress=False,
        **recipe.fitting(epochs=epochs),
    )
    seconds = time.process_time() - begin
    scores = [log.validation_score for log in result.history]
    losses = [log.validation_loss for log in result.history]
    last = max(1, round(LAST * len(scores)))
    return {
        "metric": settings.metric,
        "final": mean(scores[-last:]),
        "best": max(scores),
        "best_epoch": scores.index(max(scores)) + 1,
        "loss": mean(losses[-last:]),
        "lowest_loss": min(losses),
        "seconds": round(seconds, 2),
        "recipe": asdict(recipe),
    }


def table() -> None:
    """Print the mean over folds, and the mean difference to the start on the same folds."""
    frame = pd.DataFrame(read(OUT))
    index = ["data", "method", "epochs", "fold"]
    for column in ("final", "best", "lowest_loss", "seconds"):
        wide = frame.pivot_table(index=index, columns="candidate", values=column)
        shown = wide.groupby(["data", "method", "epochs"]).mean().T
        shown.columns = [" ".join(map(str, names)) for names in shown.columns]
        difference = wide.sub(wide["start"], axis=0)
        shown["mean difference"] = difference.groupby("data").mean().mean()
        print(f"\n{column}\n{shown.sort_values('mean difference').round(4).to_string()}")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", nargs="?", default="study", choices=["study", "table"])
    parser.add_argument("--data", nargs="+", default=["MUTAG", "motifs", "PROTEINS", "IMDB-BINARY"])
    parser.add_argument("--candidates", nargs="+", default=list(CANDIDATES), choices=CANDIDATES)
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--method", default="vanilla")
    given = parser.parse_args()
    if given.command == "table":
        table()
    else:
        torch.set_num_threads(1)
        cases = product(
            given.data, given.candidates, [given.method], range(given.folds), [given.epochs]
        )
        run_missing(OUT, ("data", "candidate", "method", "fold", "epochs"), cases, measure)


if __name__ == "__main__":
    main()
