"""What suits a data set, and whether it can be compared on: checked before anything runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.protocol import (
    FOLD_SPLITS,
    Condition,
    Settings,
    all_trials,
    default_metric,
)
from graph_transplant.experiments.trial import split_of, training_labels
from graph_transplant.format import listed
from graph_transplant.graphs import GraphStore
from graph_transplant.metrics import deciding
from graph_transplant.nn import CONVOLUTIONS
from graph_transplant.scores import mean_area_under_roc, mean_average_precision, mean_r2
from graph_transplant.splits import fold_parts, official_split, strata
from graph_transplant.targets import as_targets


def metric_for(store: GraphStore) -> str:
    """Choose the metric that suits a data set: AUROC for two classes in a table of molecules.

    Example:
        >>> from graph_transplant import load
        >>> metric_for(load("motifs", graphs=12))
        'accuracy'
    """
    classes = store.task == "multiclass"
    # Named data sets of molecules have no columns, and keep the metric of their records.
    how = store.featurizer
    table = how is not None and how.kind == "molecules" and bool(how.targets)
    if table and classes and store.num_outputs == 2:
        return "auroc"
    counts = torch.bincount(store.labels, minlength=store.num_outputs).tolist() if classes else []
    return default_metric(store.task, counts)


def automatic_model(store: GraphStore) -> str:
    """Choose the convolution that suits a data set.

    Returns:
        ``"gine"`` for molecules with edge features, else ``"gcs"``.

    Example:
        >>> from graph_transplant import load
        >>> automatic_model(load("motifs", graphs=12))
        'gcs'
    """
    molecules = store.featurizer is not None and store.featurizer.kind == "molecules"
    return "gine" if molecules and store.num_edge_features else "gcs"


def unused_edge_features(store: GraphStore, models: Sequence[str]) -> str:
    """Say which models do not look at the edge features that a data set has.

    Returns:
        A sentence without full stop; empty when nothing is passed over.

    Example:
        >>> from graph_transplant import load
        >>> unused_edge_features(load("motifs", graphs=12), ["gcs"])
        ''
    """
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


def check_protocol(
    store: GraphStore,
    settings: Settings,
    select: str,
    models: Sequence[str] = (),
    repeats: int = 1,
) -> None:
    """Check that a data set can be compared on in this way, before anything runs.

    Raises:
        GraphTransplantError: If it cannot, saying why.
    """
    if settings.split not in FOLD_SPLITS:
        official_split(store)
        if select == "nested":
            raise GraphTransplantError(
                f"nested selection needs folds, but `split` is {settings.split!r}: choose one of "
                "the two"
            )
    else:
        strata(store, settings.folds)
    choices = deciding(store.task)
    if settings.metric not in choices:
        kinds = {
            "multiclass": "graphs have one class each",
            "multilabel": "graphs have several labels",
            "regression": "targets are numbers",
        }
        raise GraphTransplantError(
            f"`metric` must be {listed(choices, 'or')} for {store.name}, whose "
            f"{kinds[store.task]}; got {settings.metric!r}"
        )
    if settings.metric != "accuracy" and store.task == "multiclass" and store.num_outputs != 2:
        raise GraphTransplantError(
            f"`metric` {settings.metric} needs two classes, but {store.name} has "
            f"{store.num_outputs}"
        )
    _check_defined(store, settings, repeats)
    if settings.balance and store.task == "regression":
        raise GraphTransplantError(
            f"`balance` needs classes or labels, but the targets of {store.name} are numbers"
        )
    edge_models = [name for name in models if CONVOLUTIONS[name].takes_edge_attr]
    if edge_models and not store.num_edge_features:
        raise GraphTransplantError(
            f"`model`: {edge_models[0]} needs edge features, but {store.name} has none"
        )
    if settings.attack and store.task != "multiclass":
        raise GraphTransplantError(
            f"`attack` needs one class per graph, but the task of {store.name} is {store.task}"
        )


def check_training(
    store: GraphStore,
    settings: Settings,
    conditions: Sequence[Condition],
    *,
    repeats: int = 1,
    nested: bool = False,
) -> None:
    """Check that every fold can be trained on in all conditions, before anything runs.

    Raises:
        GraphTransplantError: If it cannot, naming the fold and what it lacks.

    Example:
        >>> from graph_transplant import load
        >>> check_training(load("motifs", graphs=60), Settings(folds=3), [Condition(0.0, 0.1)])
        Traceback (most recent call last):
        graph_transplant.errors.GraphTransplantError: `train_fraction` 0.1 leaves 2 of 20 training \
graphs in fold 0 of repeat 0 of motifs, and none of the 3 of class 0: each class needs at least \
one; choose a larger fraction
    """
    harder = [condition for condition in conditions if condition != Condition()]
    if not harder:
        return
    places = all_trials(
        methods=[""],
        models=[""],
        layers=[0],
        repeats=repeats,
        folds=settings.folds if settings.split in FOLD_SPLITS else 1,
        nested=nested,
    )
    for trial in places:
        for condition in harder:
            tried = replace(trial, **condition._asdict())
            training_labels(store, split_of(store, tried, settings), tried, settings)


def _check_defined(store: GraphStore, settings: Settings, repeats: int) -> None:
    """Refuse a metric that is not defined on the graphs that will be validated or tested on."""
    if settings.metric == "accuracy":
        return
    if settings.split not in FOLD_SPLITS:
        split = official_split(store)
        place = f"of the {settings.split} split of {store.name}"
        _check_part(store, split.validation, settings.metric, f"validation graphs {place}")
        _check_part(store, split.test, settings.metric, f"test graphs {place}", decides=False)
        return
    classes = strata(store, settings.folds)
    for repeat in range(repeats):
        parts = fold_parts(
            classes, folds=settings.folds, repeat=repeat, seed=settings.seed, groups=store.groups
        )
        # Each part is tested on in its own fold and validated on in another.
        for fold, part in enumerate(parts):
            place = f"graphs of fold {fold} of repeat {repeat} of {store.name}"
            _check_part(store, part, settings.metric, place)


def _check_part(
    store: GraphStore, graphs: Tensor, metric: str, place: str, *, decides: bool = True
) -> None:
    """Refuse a metric that is not defined on some graphs."""
    targets = as_targets(store.y[graphs], store.num_outputs)
    zeros = torch.zeros_like(targets)
    labels = store.task == "multilabel"
    if metric == "r2":
        found, reason = mean_r2(zeros, targets), "their targets do not differ"
    elif metric == "auroc" or decides:
        # Where all is positive, average precision is 1 for every model: nothing to choose by.
        found = mean_area_under_roc(zeros, targets, store.task)
        reason = "no label has both values there" if labels else "they are all of one class"
    else:
        found = mean_average_precision(zeros, targets, store.task)
        reason = "no label is positive there" if labels else "none is of the second class"
    if math.isnan(found):
        raise GraphTransplantError(
            f"`metric` {metric} is not defined on the {len(graphs)} {place}: {reason}"
        )
