"""Checks that a data set supports a comparison, made before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from graph_transplant.comparison.training_sets import split_of, training_labels
from graph_transplant.config.compare import FOLD_SPLITS, Settings
from graph_transplant.data import GraphStore
from graph_transplant.data.targets import as_targets
from graph_transplant.datasets.splits import fold_parts, official_split, strata
from graph_transplant.errors import GraphTransplantError
from graph_transplant.metrics import BUILT_IN, METRICS, defined, selection_metrics
from graph_transplant.results.record import Condition, all_trials
from graph_transplant.training.defaults import check_edge_features
from graph_transplant.utils.text import listed

_KINDS = {
    "multiclass": "graphs have one class each",
    "multilabel": "graphs have several labels",
    "regression": "targets are numbers",
}


def check_protocol(
    store: GraphStore,
    settings: Settings,
    models: Sequence[str] = (),
    repeats: int = 1,
) -> None:
    """Raise if a data set does not support the settings."""
    if settings.split in FOLD_SPLITS:
        strata(store, settings.folds)
    else:
        official_split(store)
    choices = selection_metrics(store.task)
    if settings.metric not in choices:
        raise GraphTransplantError(
            f"`metric` must be {listed(choices, 'or')} for {store.name}, whose "
            f"{_KINDS[store.task]}; got {settings.metric!r}"
        )
    if not METRICS[settings.metric].higher:
        raise GraphTransplantError(
            f"`metric` {settings.metric} cannot rank methods, as lower is better: negate it"
        )
    if settings.metric != "accuracy":
        two = store.task == "multiclass" and settings.metric in BUILT_IN
        if two and store.num_outputs != 2:
            raise GraphTransplantError(
                f"`metric` {settings.metric} needs two classes, but {store.name} has "
                f"{store.num_outputs}"
            )
        _check_defined(store, settings, repeats)
    if settings.balance and store.task == "regression":
        raise GraphTransplantError(
            f"`balance` needs classes or labels, but the targets of {store.name} are numbers"
        )
    check_edge_features(store, models)
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
) -> None:
    """Raise if a fold cannot be trained on under one of the conditions."""
    harder = [condition for condition in conditions if condition != Condition()]
    folds = settings.folds if settings.split in FOLD_SPLITS else 1
    places = all_trials(methods=[""], models=[""], layers=[0], repeats=repeats, folds=folds)
    for trial in places if harder else ():
        for condition in harder:
            tried = replace(trial, **condition._asdict())
            training_labels(store, split_of(store, tried, settings), tried, settings)


def _check_defined(store: GraphStore, settings: Settings, repeats: int) -> None:
    """Raise if the metric is undefined on a validation or test set."""
    parts: dict[str, Tensor] = {}
    if settings.split not in FOLD_SPLITS:
        split, place = official_split(store), f"of the {settings.split} split of {store.name}"
        parts = {
            f"validation graphs {place}": split.validation,
            f"test graphs {place}": split.test,
        }
    else:
        classes, folds, seed = strata(store, settings.folds), settings.folds, settings.seed
        for repeat in range(repeats):
            found = fold_parts(classes, folds=folds, repeat=repeat, seed=seed, groups=store.groups)
            # Each part is the test set of one fold and the validation set of another.
            for fold, part in enumerate(found):
                parts[f"graphs of fold {fold} of repeat {repeat} of {store.name}"] = part
    reason = "each class or label is present in all of these graphs or in none"
    if settings.metric == "r2":
        reason = "their targets do not differ"
    for place, graphs in parts.items():
        if not defined(settings.metric, as_targets(store.y[graphs], store.num_outputs), store.task):
            raise GraphTransplantError(
                f"`metric` {settings.metric} is not defined on the {len(graphs)} {place}: {reason}"
            )
