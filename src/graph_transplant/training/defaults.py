"""Choices that depend on the data: metric, network, use of edge features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graph_transplant.errors import GraphTransplantError
from graph_transplant.metrics import selection_metrics
from graph_transplant.utils.text import listed

if TYPE_CHECKING:
    from graph_transplant.data import GraphStore
    from graph_transplant.training.state import EpochLog


IMBALANCED = 0.2
"""Two classes are imbalanced if the smaller one has less than this share of the graphs."""

CURVE_POINTS = 60
"""Maximum number of points of a recorded learning curve."""


def metric_for(store: GraphStore) -> str:
    """Return the default metric for a data set.

    Accuracy is misleading when one of two classes is rare: then, and for two classes in a table of
    molecules, the default is AUROC.

    Deviation: metric-decides. The paper stops and selects by validation accuracy even where it
    reports AUROC; here the reported metric decides.
    """
    if store.task != "multiclass":
        return selection_metrics(store.task)[0]
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
