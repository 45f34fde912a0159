"""Settings of comparisons and training, with defaults that suit a data set; needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from graph_transplant.errors import (
    GraphTransplantError,
    check_at_least,
    check_choice,
    check_in,
    check_positive,
)
from graph_transplant.format import listed
from graph_transplant.metrics import deciding
from graph_transplant.recipes import PATIENCE_UNITS, RECIPES, TIES

if TYPE_CHECKING:
    from graph_transplant.graphs import GraphStore
    from graph_transplant.training import EpochLog

FOLD_SPLITS = ("folds", "scaffold-folds")
"""Splits for cross-validation."""

SPLITS = (*FOLD_SPLITS, "official", "scaffold")
"""Cross-validation, also by scaffold; or a single split, official or by scaffold."""

NUMERICS = 2
"""Increased whenever the same settings give different numbers; records without it have 1."""

IMBALANCED = 0.2
"""Two classes are imbalanced if the smaller one has less than this share of the graphs."""

CURVE_POINTS = 60
"""Maximum number of points of a recorded learning curve."""


@dataclass(frozen=True)
class Settings:
    """Settings that all trials of a comparison share; the defaults are the paper's protocol.

    See :func:`~graph_transplant.compare` and :func:`~graph_transplant.fit` for their meaning.
    ``shards`` is the number of processes that share every batch.

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
        check_choice("metric", self.metric, deciding())
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

    def fitting(self) -> dict[str, Any]:
        """Keyword arguments of :func:`~graph_transplant.fit`."""
        names = (
            "epochs", "batch_size", "learning_rate", "stop_patience", "decay_patience",
            "patience_unit", "metric", "ties", "clip_norm", "balance",
        )  # fmt: skip
        chosen = RECIPES[self.recipe].fitting(self.epochs, self.learning_rate)
        return chosen | {name: getattr(self, name) for name in names}

    def as_record(self, version: str) -> dict[str, Any]:
        """The settings as stored in a record, with the library version."""
        more = {"attack": list(self.attack), "numerics": NUMERICS, "version": version}
        return asdict(self) | more

    @staticmethod
    def complete(settings: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in what the settings of an older record lack, with the defaults."""
        complete = {**asdict(Settings()), "attack": [], "numerics": 1, **settings}
        # Older records call `shards` parts, and have unsorted budgets.
        complete["shards"] = complete.pop("parts", complete["shards"])
        complete["attack"] = sorted(set(complete["attack"]))
        return complete


@dataclass(frozen=True)
class Scale:
    """The paper's settings for data sets of at most ``most`` graphs ("Evaluation protocol")."""

    most: float
    batch_size: int
    stop_patience: int
    decay_patience: int
    patience_unit: str


SCALES = {
    "small": Scale(9_999, 128, 1500, 1000, "iterations"),
    "medium": Scale(99_999, 128, 50, 20, "epochs"),
    "large": Scale(float("inf"), 64, 10, 5, "epochs"),
}
"""The paper's presets by size of the data set, in ascending order."""


def scale_of(graphs: int) -> str:
    """Return the name of the preset for a number of graphs."""
    return next(name for name, scale in SCALES.items() if graphs <= scale.most)


def metric_for(store: GraphStore) -> str:
    """Return the default metric for a data set.

    Accuracy is misleading when one of two classes is rare: then, and for two classes in a table of
    molecules, the default is AUROC.

    Deviation: metric-decides. The paper stops and selects by validation accuracy even where it
    reports AUROC; here the reported metric decides.
    """
    if store.task != "multiclass":
        return deciding(store.task)[0]
    if store.num_outputs != 2:
        return "accuracy"
    # Named data sets of molecules have no target columns, and keep the metric of their records.
    how = store.featurizer
    table = how is not None and how.kind == "molecules" and bool(how.targets)
    rarest = min(store.labels.bincount(minlength=2).tolist())
    return "auroc" if table or rarest < IMBALANCED * len(store) else "accuracy"


def automatic_model(store: GraphStore) -> str:
    """Return ``"gine"`` for molecules with edge features, otherwise ``"gcs"``."""
    molecules = store.featurizer is not None and store.featurizer.kind == "molecules"
    return "gine" if molecules and store.num_edge_features else "gcs"


def check_edge_features(store: GraphStore, models: Sequence[str]) -> None:
    """Raise if a model needs edge features and the data set has none."""
    from graph_transplant.nn import CONVOLUTIONS

    needing = [name for name in models if CONVOLUTIONS[name].takes_edge_attr]
    if needing and not store.num_edge_features:
        raise GraphTransplantError(
            f"`model`: {needing[0]} needs edge features, but {store.name} has none"
        )


def unused_edge_features(store: GraphStore, models: Sequence[str]) -> str:
    """Describe which models do not use the edge features of a data set; empty if all do."""
    from graph_transplant.nn import CONVOLUTIONS

    blind = [name for name in models if not CONVOLUTIONS[name].takes_edge_attr]
    count = store.num_edge_features
    if not blind or not count:
        return ""
    able = [name for name, kind in CONVOLUTIONS.items() if kind.takes_edge_attr]
    features = f"the {count} edge features" if count > 1 else "the edge feature"
    return (
        f"{listed(blind)} do{'es' if len(blind) == 1 else ''} not use {features} of {store.name}; "
        f"{listed(able)} do"
    )


def sampled_curve(history: Sequence[EpochLog]) -> list[dict[str, Any]]:
    """Sample at most ``CURVE_POINTS`` epochs evenly, including the first and the last."""
    if len(history) > CURVE_POINTS:
        import numpy as np  # late: the command line imports this module for its help

        kept = np.unique(np.linspace(0, len(history) - 1, CURVE_POINTS).round().astype(int))
        history = [history[number] for number in kept]
    names = ("epoch", "train_loss", "validation_loss", "validation_accuracy", "validation_score")
    return [
        {name: getattr(log, name) for name in names}
        | ({"measurements": dict(log.measurements)} if log.measurements else {})
        for log in history
    ]
