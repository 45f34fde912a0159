"""Recipes: named settings of networks and their training."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from graph_transplant.config.options import Norm, PatienceUnit, Readout, RecipeName, ScaleName, Ties

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LambdaLR


@dataclass(frozen=True)
class Recipe:
    """Architecture and optimiser settings that belong together; the defaults are the paper's.

    Comparisons record a recipe by its name, so changed values need another ``NUMERICS``.

    Args:
        batch_size: Graphs per training batch of a small data set. (default: that of the scale)
        learning_rate: Highest learning rate.
        weight_decay: Weight decay of AdamW.
        warmup: Warm-up epochs of the learning rate, at most a quarter of all epochs.
        cosine: Use AdamW with cosine decay of the learning rate to zero and no early stopping.
            Otherwise Adam, halving and patience as in the paper.
        ties: Which of several epochs with the same validation metric is the best.
        hidden: This and the following are options of :class:`~graph_transplant.GraphClassifier`.

    Example:
        >>> import graph_transplant as gt
        >>> from graph_transplant.config.recipes import RECIPES
        >>> recipe, store = RECIPES["strong"], gt.load("motifs")
        >>> train, validation = store.subset(range(32)), store.subset(range(32, 48))
        >>> model = gt.GraphClassifier.for_data(train, layers=2, **recipe.network(), seed=0)
        >>> gt.fit(model, train, validation, seed=0, **recipe.fitting(epochs=2)).epochs
        2
    """

    epochs: int = 1000
    batch_size: int | None = None
    learning_rate: float = 5e-4
    weight_decay: float = 0.0
    warmup: int = 0
    cosine: bool = False
    ties: Ties = "first"
    hidden: int = 128
    readout: Readout = "mean"
    dropout: float = 0.5
    input_layers: int = 0
    norm: Norm = "none"
    residual: bool = False
    layer_dropout: float = 0.0
    jumping: bool = False
    walk: int = 0

    def network(self) -> dict[str, Any]:
        """Keyword arguments of :class:`~graph_transplant.GraphClassifier`."""
        names = [field.name for field in fields(self)]
        return {name: getattr(self, name) for name in names[names.index("hidden") :]}

    def fitting(
        self, epochs: int | None = None, learning_rate: float | None = None
    ) -> dict[str, Any]:
        """Keyword arguments of :func:`~graph_transplant.fit`; arguments override the recipe."""
        epochs = self.epochs if epochs is None else epochs
        rate = self.learning_rate if learning_rate is None else learning_rate
        given: dict[str, Any] = {"epochs": epochs, "learning_rate": rate, "ties": self.ties}
        if self.batch_size is not None:
            given["batch_size"] = self.batch_size
        if self.cosine:
            from torch.optim import AdamW

            given |= {
                "optimizer": partial(AdamW, lr=rate, weight_decay=self.weight_decay, fused=True),
                "scheduler": partial(warmup_cosine, warmup=self.warmup, epochs=epochs),
                "stop_patience": epochs,
                "decay_patience": epochs,
                "patience_unit": "epochs",
            }
        return given


def warmup_cosine(optimizer: Optimizer, *, warmup: int, epochs: int) -> LambdaLR:
    """Linear warm-up of the learning rate for ``warmup`` epochs, then cosine decay to zero."""
    from torch.optim.lr_scheduler import LambdaLR

    warmup = min(warmup, epochs // 4)

    def factor(epoch: int) -> float:
        if epoch < warmup:
            return (epoch + 1) / (warmup + 1)
        return (1 + math.cos(math.pi * (epoch - warmup) / (epochs - warmup))) / 2

    return LambdaLR(optimizer, factor)


RECIPES: dict[RecipeName, Recipe] = {
    "paper": Recipe(),
    "strong": Recipe(
        epochs=200,
        batch_size=32,
        learning_rate=1e-3,
        weight_decay=1e-4,
        warmup=10,
        cosine=True,
        ties="loss",
        hidden=128,
        readout="mean-max",
        dropout=0.2,
        input_layers=2,
        norm="batch",
        residual=True,
        layer_dropout=0.1,
        walk=8,
    ),
}


@dataclass(frozen=True)
class Scale:
    """The paper's settings for data sets of at most ``most`` graphs ("Evaluation protocol")."""

    most: float
    batch_size: int
    stop_patience: int
    decay_patience: int
    patience_unit: PatienceUnit


SCALES: dict[ScaleName, Scale] = {
    "small": Scale(9_999, 128, 1500, 1000, "iterations"),
    "medium": Scale(99_999, 128, 50, 20, "epochs"),
    "large": Scale(float("inf"), 64, 10, 5, "epochs"),
}
"""The paper's presets by size of the data set, in ascending order."""


def scale_of(graphs: int) -> ScaleName:
    """Return the name of the preset for a number of graphs."""
    return next(name for name, scale in SCALES.items() if graphs <= scale.most)
