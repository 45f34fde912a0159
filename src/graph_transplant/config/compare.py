"""Settings of a comparison, as resolved and recorded."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from graph_transplant.config.fit import PATIENCE_UNITS, TIES, FitConfig
from graph_transplant.config.recipes import RECIPES, SCALES
from graph_transplant.errors import check_at_least, check_choice, check_in, check_positive
from graph_transplant.methods import NUMERICS
from graph_transplant.metrics import selection_metrics

FOLD_SPLITS = ("folds", "scaffold-folds")
"""Splits for cross-validation."""

SPLITS = (*FOLD_SPLITS, "official", "scaffold")
"""Cross-validation, also by scaffold; or a single split, official or by scaffold."""


@dataclass(frozen=True)
class Settings:
    """Settings that all trials of a comparison share; the defaults are the paper's protocol.

    See :func:`~graph_transplant.compare` and :func:`~graph_transplant.fit` for their meaning.
    ``shards`` is the number of processes that shared every batch in earlier versions; now it is 1.

    Example:
        >>> Settings(folds=2)
        Traceback (most recent call last):
        graph_transplant.errors.GraphTransplantError: `folds` must be at least 3, got 2
    """

    folds: int = 5
    epochs: int = 1000
    batch_size: int = 128
    seed: int = 0
    learning_rate: float = 5e-4
    stop_patience: int = 1500
    decay_patience: int = 1000
    clip_norm: float = 2.0
    hidden: int = 128
    readout: str = "mean"
    dropout: float = 0.5
    patience_unit: str = "iterations"
    metric: str = "accuracy"
    split: str = "folds"
    shards: int = 1
    attack: tuple[float, ...] = ()
    balance: bool = False
    ties: str = "first"
    group_duplicates: bool = False
    recipe: str = "paper"

    def __post_init__(self) -> None:
        least = {"folds": 3, "seed": 0}
        counts = ("epochs", "batch_size", "stop_patience", "decay_patience", "hidden", "shards")
        for name, smallest in {**least, **dict.fromkeys(counts, 1)}.items():
            check_at_least(smallest, **{name: getattr(self, name)})
        check_positive(learning_rate=self.learning_rate, clip_norm=self.clip_norm)
        check_choice("metric", self.metric, selection_metrics())
        check_choice("split", self.split, SPLITS)
        check_choice("patience_unit", self.patience_unit, PATIENCE_UNITS)
        check_choice("ties", self.ties, TIES)
        check_choice("recipe", self.recipe, RECIPES)
        for share in self.attack:
            check_in("(0, 1]", attack=share)
        for name, value in list(vars(self).items()):  # records cannot hold NumPy scalars
            if hasattr(value, "item"):
                object.__setattr__(self, name, value.item())
        object.__setattr__(self, "attack", tuple(map(float, self.attack)))

    @classmethod
    def of(cls, recipe: str, scale: str, **given: Any) -> Settings:
        """Settings of a recipe for data of a scale; given values override unless ``None``."""
        chosen = RECIPES[check_choice("recipe", recipe, RECIPES)]
        size = SCALES[check_choice("scale", scale, SCALES)]
        named = {name: value for name, value in given.items() if value is not None}
        training = asdict(size) | chosen.fitting(named.get("epochs"))
        if scale != "small":  # a small batch would take too many steps
            training["batch_size"] = size.batch_size
        names = {one.name for one in fields(cls)}
        defaults = {
            name: value for name, value in (training | chosen.network()).items() if name in names
        }
        return cls(**{**defaults, **named, "recipe": recipe})

    def network(self) -> dict[str, Any]:
        """Keyword arguments of :class:`~graph_transplant.GraphClassifier`."""
        given = {"hidden": self.hidden, "readout": self.readout, "dropout": self.dropout}
        return RECIPES[self.recipe].network() | given

    def fitting(self, seed: int, **given: Any) -> FitConfig:
        """Options of :func:`~graph_transplant.fit`; given ones override the settings."""
        recipe = RECIPES[self.recipe].fitting(self.epochs, self.learning_rate)
        shared = {one.name for one in fields(FitConfig)} & vars(self).keys()
        own = {name: getattr(self, name) for name in shared}
        return FitConfig(**{**recipe, **own, "seed": seed, **given})

    def as_record(self, version: str, numerics: int = NUMERICS) -> dict[str, Any]:
        """The settings as stored in a record, with the version and the method's numerics."""
        more = {"attack": list(self.attack), "numerics": numerics, "version": version}
        return asdict(self) | more
