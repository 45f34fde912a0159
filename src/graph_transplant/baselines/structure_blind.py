"""Perceptron on the sum of node embeddings, which ignores edges.

The structure-agnostic baseline of Federico Errica, Marco Podda, Davide Bacciu and Alessio Micheli,
*A Fair Comparison of Graph Neural Networks for Graph Classification*, ICLR 2020. With one-hot
features, the sum is a linear function of the numbers of nodes with each label.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from graph_transplant.baselines import BaselineTask, Predictor
from graph_transplant.baselines.problems import quality
from graph_transplant.config import FitConfig
from graph_transplant.data import GraphStore
from graph_transplant.data.targets import TargetScale
from graph_transplant.training.loop import evaluate, fit_with

WIDTHS = (32, 128)
EPOCHS = 1000
PATIENCE = 100
"""Epochs without improvement of the validation metric before training stops."""


class Perceptron(nn.Module):
    """One layer per node, a sum over nodes, two layers per graph."""

    mean: Tensor
    std: Tensor

    def __init__(self, graphs: GraphStore, width: int) -> None:
        super().__init__()
        features = max(1, graphs.num_node_features)
        mean, std = torch.zeros(features), torch.ones(features)
        mean[: graphs.num_continuous], std[: graphs.num_continuous] = graphs.continuous_moments()
        self.register_buffer("mean", mean)
        self.register_buffer("std", torch.where(std > 0, std, 1.0))
        self.nodes = nn.Linear(features, width)
        self.hidden = nn.Linear(width, width)
        self.out = nn.Linear(width, graphs.num_outputs)

    def forward(self, batch: Tensor, batch_size: int, x: Tensor | None = None) -> Tensor:
        """Return logits, float ``[graphs, outputs]``; without features, nodes are counted."""
        if x is None:
            x = torch.ones(len(batch), 1)
        nodes = self.nodes((x - self.mean) / self.std).relu()
        sums = nodes.new_zeros(batch_size, nodes.shape[1]).index_add(0, batch, nodes)
        logits: Tensor = self.out(self.hidden(sums).relu())
        return logits


def fit(given: BaselineTask) -> Predictor:
    """Train a model of each width and predict with the best."""
    train, validation, metric, balance, seed = given
    scale = TargetScale.of(train) if train.task == "regression" else None
    known, held_out = (part if scale is None else scale.apply(part) for part in (train, validation))
    config = FitConfig(
        seed=seed, epochs=EPOCHS, batch_size=32, learning_rate=1e-3, stop_patience=PATIENCE,
        decay_patience=PATIENCE // 2, patience_unit="epochs", metric=metric, ties="loss",
        balance=balance,
    )  # fmt: skip

    def logits(model: Perceptron, part: GraphStore) -> Tensor:
        values = evaluate(model, part).logits
        return values if scale is None else scale.undo(values)

    best = None
    for width in WIDTHS:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = Perceptron(train, width)
        fit_with(config, model, known, held_out, progress=False)
        value = quality(logits(model, validation), validation, metric)
        if best is None or value > best:
            best, found = value, Predictor(partial(logits, model), {"width": width})
    return found
