"""What a comparison runs: its options resolved for a data set, and checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from torch import Tensor, nn

from graph_transplant.augment import Augmentation, unsupported_reason
from graph_transplant.augment.base import as_augmentations
from graph_transplant.comparison.run_trial import CustomParts
from graph_transplant.comparison.training_sets import split_of, training_labels
from graph_transplant.config.compare import FOLD_SPLITS, CompareConfig, Settings
from graph_transplant.config.recipes import scale_of
from graph_transplant.data import GraphStore
from graph_transplant.data.targets import as_targets
from graph_transplant.datasets.splits import fold_parts, official_split, prepare, strata
from graph_transplant.errors import GraphTransplantError
from graph_transplant.methods import (
    DEFAULT_METHODS,
    GROUPS,
    METHODS,
    MOLECULE_BASELINES,
    expand_methods,
    group_name,
    method_of,
    parse_method,
)
from graph_transplant.metrics import BUILT_IN, METRICS, defined, selection_metrics
from graph_transplant.nn import GraphClassifier
from graph_transplant.results.calls import Asked
from graph_transplant.results.record import Condition, Trial, all_trials
from graph_transplant.training.defaults import (
    automatic_model,
    check_edge_features,
    metric_for,
    unused_edge_features,
)
from graph_transplant.utils.text import listed


@dataclass(frozen=True)
class Plan:
    """A comparison of a data set, with nothing left to decide.

    Example:
        >>> from graph_transplant import load
        >>> plan = resolve(load("motifs"), CompareConfig(methods="vanilla", folds=3))
        >>> plan.settings.metric, len(plan.trials), plan.trials[0]
        ('accuracy', 3, Trial(method='vanilla', model='gcs', layers=3, repeat=0, fold=0, ...))
    """

    store: GraphStore  # as split and grouped
    settings: Settings
    asked: Asked  # names and conditions; candidates of a search one by one
    trials: tuple[Trial, ...]  # fold by fold
    own: CustomParts
    notes: tuple[str, ...]  # for the user


def resolve(store: GraphStore, config: CompareConfig) -> Plan:
    """Decide what a comparison runs; raise if the data do not support it."""
    methods = config.methods
    if methods is None:
        methods = (*(MOLECULE_BASELINES if store.has_structures else ()), *DEFAULT_METHODS)
    own = CustomParts(_own_methods(methods), _own_models(config.model))
    models, built_in = tuple(own.models), tuple[str, ...]()
    if not own.models:
        automatic = automatic_model(store)
        models = tuple(dict.fromkeys(automatic if m == "auto" else m for m in config.model))
        built_in = models
    elif len(config.layers) > 1:
        raise GraphTransplantError(
            "`layers` must be a single number for models of your own, whose functions do not take "
            f"it; got {', '.join(map(str, config.layers))}"
        )
    scale = scale_of(len(store)) if config.scale == "auto" else config.scale
    together = config.group_duplicates
    settings = Settings.resolved(
        config,
        scale,
        metric=config.metric or metric_for(store),
        group_duplicates=store.has_structures if together is None else together,
    )
    store = prepare(store, settings.split, group_duplicates=settings.group_duplicates)
    check_protocol(store, settings, built_in, config.repeats)
    axes = {"label_noise": config.label_noise, "train_fraction": config.train_fraction}
    conditions = [Condition(*values) for values in product(*axes.values())]
    check_training(store, settings, conditions, repeats=config.repeats)
    names = [str(one) for one in methods if not isinstance(one, Augmentation)]
    named = [name for name in names if name not in own.methods]
    wished = dict.fromkeys(own.methods, True)
    wished |= candidates(named, search=config.select != "none", scale=scale)
    left_out = unsupported_methods(wished, models, own, store)
    chosen = [name for name in wished if name not in left_out]
    baselines = [name for name in chosen if not method_of(name).network]
    networks = [name for name in chosen if method_of(name).network]
    shared: dict[str, Any] = {
        "repeats": config.repeats,
        "folds": settings.folds if settings.split in FOLD_SPLITS else 1,
        **axes,
    }
    trials = [
        *all_trials(methods=baselines, models=[""], layers=[0], **shared),
        *all_trials(methods=networks, models=models, layers=config.layers, **shared),
    ]
    return Plan(
        store,
        settings,
        Asked((*baselines, *networks), models, config.layers, **axes),
        tuple(sorted(trials, key=lambda trial: (trial.repeat, trial.fold))),  # stable
        own,
        tuple(filter(None, [unused_edge_features(store, built_in), *left_out.values()])),
    )


def _own_models(model: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(model, Mapping):
        return {}
    for name, make in model.items():
        if isinstance(make, nn.Module) or not callable(make):
            raise GraphTransplantError(
                f"`model`: {name!r} must be a function that makes a model for a store; got {make!r}"
            )
    return dict(model)


def _own_methods(
    methods: Sequence[str] | Mapping[str, Any],
) -> dict[str, tuple[Augmentation, ...] | str]:
    if not isinstance(methods, Mapping):
        augmentations = [one for one in methods if isinstance(one, Augmentation)]
        methods = {type(one).__name__: one for one in augmentations}
        if len(methods) < len(augmentations):
            raise GraphTransplantError(
                "`methods`: augmentations in a list are called by their class, of which there is "
                "more than one; name them in a dict, as in {'more': DropNodes(0.4)}"
            )
    found: dict[str, tuple[Augmentation, ...] | str] = {}
    for name, given in methods.items():
        if not all(method_of(text).network for text in (name, given) if isinstance(text, str)):
            if given != name:
                raise GraphTransplantError(
                    f"`methods`: baselines ({', '.join(expand_methods(['baselines']))}) keep their "
                    f"names; got {given!r} as {name!r}"
                )
        elif isinstance(given, str):
            parse_method(given)
            found[str(name)] = given
        else:
            must = f"`methods`: {name!r} must be an Augmentation, a list of them or a name"
            found[str(name)] = as_augmentations(given, must)
    return found


def candidates(methods: Sequence[str], *, search: bool, scale: str) -> dict[str, bool]:
    """Expand methods; map each to whether it was named itself and not only through a group."""
    found: dict[str, bool] = {}
    for text in map(group_name, methods):
        group = text in GROUPS
        for name in expand_methods([text]) if group else [text]:
            method = METHODS.get(name) if search else None
            if method is not None and not (scale == "small" and "anchor_ratio" in method.search):
                name += ":paper"
            for candidate in expand_methods([name]):
                found[candidate] = found.get(candidate, False) or not group
    return found


def unsupported_methods(
    methods: Mapping[str, bool], models: Sequence[str], own: CustomParts, store: GraphStore
) -> dict[str, str]:
    """Say why methods do not support the data; raise if the user named one of them."""
    built = [
        own.model(name, store, seed=0)
        if name in own.models
        else GraphClassifier.for_data(store, conv=name, layers=1, hidden=8, seed=0)
        for name in models
    ]
    left_out = {}
    for name, named in methods.items():
        given = own.methods.get(name, name)
        problems = (unsupported_reason(given, model, store) for model in built)
        problem = next((each for each in problems if each is not None), None)
        if problem is not None and named:
            raise GraphTransplantError(problem)
        if problem is not None:
            left_out[name] = f"{name} is left out: {problem}"
    return left_out


# ------------------------------------------------------------------ checks

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
