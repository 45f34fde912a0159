"""Training of a model: split, train, calibrate, evaluate.

The validation graphs determine early stopping, the best epoch and the temperature; the test graphs
are used once, at the end.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from graph_transplant import __version__
from graph_transplant.analysis import saliency_quality
from graph_transplant.augment import Augmentation, build_method, unsupported_reason
from graph_transplant.augment.base import as_augmentations
from graph_transplant.baselines import fit as fit_baseline
from graph_transplant.baselines.features import add_descriptors
from graph_transplant.baselines.model import Baseline
from graph_transplant.config.compare import Settings
from graph_transplant.config.recipes import scale_of
from graph_transplant.config.training import ClassWeight, MethodLike, TrainConfig
from graph_transplant.data import GraphStore
from graph_transplant.data.targets import TargetScale, as_targets
from graph_transplant.datasets import load
from graph_transplant.datasets.load import Loadable
from graph_transplant.datasets.splits import (
    Split,
    graphs_of_rows,
    lacking,
    missing_classes,
    split_for_training,
)
from graph_transplant.errors import (
    DataError,
    GraphTransplantError,
    check_callbacks,
    check_choice,
    check_spelling,
)
from graph_transplant.methods import method_of
from graph_transplant.metrics import defined, selection_metrics
from graph_transplant.metrics.calibration import fit_temperature
from graph_transplant.models.evaluate import data_summary, model_metrics, no_figures
from graph_transplant.models.model import TrainedModel, usable_device
from graph_transplant.models.uncertainty import Ensemble, training_hashes
from graph_transplant.nn import GraphClassifier
from graph_transplant.nn.saliency import EXPLANATION_SALIENCY
from graph_transplant.results.model_json import FORMAT_LINE, description_of
from graph_transplant.training.defaults import (
    automatic_model,
    check_edge_features,
    metric_for,
    sampled_curve,
    unused_edge_features,
)
from graph_transplant.training.loop import FitResult, evaluate, fit_with
from graph_transplant.training.state import EpochLog, checked_weights
from graph_transplant.training.tensorboard import TensorBoard
from graph_transplant.utils.schema import plain

BALANCED: Final = (
    "with balance or class weights, the model overestimates the probabilities of rare classes, and "
    "calibration by a temperature does not correct that"
)
"""Warning when training with ``balance`` or ``class_weight``."""

EPOCHS: Final = 300  # default maximum with the recipe paper
EXPLAINED: Final = 100  # maximum number of validation graphs for saliency quality

# Fields of `TrainConfig` whose defaults depend on the recipe.
_OF_RECIPE: Final = ("hidden", "readout", "dropout", "epochs", "batch_size", "learning_rate")

Note = Callable[[str], None]


def train(
    data: Loadable,
    config: TrainConfig | None = None,
    *,
    device: str = "cpu",
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
    callbacks: Sequence[Callable[[EpochLog], None]] = (),
    sample_weight: Any = None,
    forest: bool = True,
    source: str | None = None,
    note: Note | None = None,
    **options: Any,
) -> TrainedModel:
    """Train one model, calibrate it on the validation graphs and evaluate it on the test graphs.

    Patience depends on the size of the data set, as in the paper. With a ``checkpoint``, repeating
    an interrupted call resumes it and yields the same weights. Torch's number of threads is kept.

    Args:
        data: Anything that :func:`~graph_transplant.load` accepts.
        config: How to train.
        device: Where to train.
        checkpoint: File for the state of the training while it runs; it is not removed. Further
            members of an ensemble have their own files next to it.
        progress: Show a progress bar; by default if standard error is a terminal.
        callbacks: Called with every epoch's log.
        sample_weight: How likely each graph is to be drawn in training, relative to the others.
            Like the numbers of a ``Split`` of your own, one for each row of the data as given, also
            for rows that cannot be read; for a store, one for each of its graphs.
        forest: Also evaluate a random forest on the test graphs, for comparison.
        source: Name or path of the data, for the model card. (default: that given as ``data``, or
            the name of the graphs)
        note: Called with remarks for the user.
        **options: Fields of :class:`~graph_transplant.config.TrainConfig`, such as ``epochs``, and
            how the data are read, such as ``target``; see :func:`~graph_transplant.load`.

    Example:
        >>> import graph_transplant as gt
        >>> model = gt.train("motifs", graphs=60, method="vanilla", hidden=8, epochs=2)
        >>> model.description.training.sizes
        Sizes(train=48, validation=6, test=6)
    """
    if not isinstance(config, TrainConfig | None):
        raise GraphTransplantError(
            "`config` must be a TrainConfig; give targets by name, as `target` or `y`"
        )
    config, reading = _separated(config or TrainConfig(), options)
    callbacks = check_callbacks(callbacks)
    network = not isinstance(config.method, str) or method_of(config.method).network
    if not network:
        _refuse_network_options(config, sample_weight)
    store = load(data, **reading)
    if isinstance(data, str | Path):
        source = source or str(data)
    # What is given per row counts the rows of the data as given, also those that cannot be read.
    of_row = None if isinstance(data, GraphStore) else graphs_of_rows(store)
    if sample_weight is not None:
        sample_weight = _weights(sample_weight, store, of_row)
    tell: Note = note or (lambda text: None)
    conv = automatic_model(store) if config.model == "auto" else config.model
    if network:
        check_edge_features(store, [conv])
    elif problem := unsupported_reason(str(config.method), None, store):
        raise GraphTransplantError(problem)
    if config.metric is not None:
        check_choice("metric", config.metric, selection_metrics(store.task))
    unused = unused_edge_features(store, [conv]) if network else None
    if unused:
        tell(unused)
    if config.balance or config.class_weight is not None:
        tell(BALANCED)
    place = usable_device(device)
    parts, split_name = split_for_training(
        store,
        config.split,
        validation=config.validation,
        test=config.test,
        seed=config.seed,
        tell=tell,
        of_row=of_row,
    )
    _check_parts(store, parts, split_name, tell)
    if not network and method_of(str(config.method)).needs_smiles and store.has_structures:
        add_descriptors(store, workers=torch.get_num_threads(), tell=tell)
    weights = class_weights(config.class_weight, store.subset(parts.train), store.output_names)
    scale = TargetScale.of(store.subset(parts.train)) if store.task == "regression" else None
    ready = store if scale is None else scale.apply(store)
    validation = ready.subset(parts.validation)
    chosen = config.metric or _defined_metric(validation, metric_for(store), tell)
    settings = Settings.of(
        config.recipe,
        scale_of(len(store)),
        **{name: getattr(config, name) for name in _OF_RECIPE},
        metric=chosen,
        balance=config.balance,
        ties="loss",
    )
    if config.recipe == "paper" and config.epochs is None:
        settings = replace(settings, epochs=EPOCHS)
    drawn = split_name in ("random", "scaffold")
    training = {
        **vars(config),
        "method": _method_name(config.method),
        "split": split_name,
        "class_weight": config.class_weight if isinstance(config.class_weight, str) else weights,
        # Without classes, `fit` takes accuracy to mean the negative loss.
        "metric": chosen if chosen != "accuracy" or store.task == "multiclass" else "loss",
        # The requested shares, which reproduce a drawn split; other splits have none.
        "validation": config.validation if drawn else None,
        "test": config.test if drawn else None,
        "sizes": {part.name: len(getattr(parts, part.name)) for part in fields(parts)},
    }
    fitted: GraphClassifier | Baseline
    explained: Mapping[str, Any] = {}
    curve: list[dict[str, Any]] = []
    if network:
        fitted, results = _fit_networks(
            config,
            settings,
            conv,
            ready,
            parts,
            place,
            checkpoint,
            class_weight=None if weights is None else torch.tensor(weights),
            graph_weight=None if sample_weight is None else sample_weight[parts.train],
            progress=progress,
            callbacks=callbacks,
            tell=tell,
        )
        training |= _course(conv, settings, results)
        curve = sampled_curve(results[0].history)
        # Quality of explanations; empty for regression.
        explained = saliency_quality(
            fitted, validation, reading=EXPLANATION_SALIENCY, seed=config.seed, graphs=EXPLAINED
        )
        logits = evaluate(fitted, validation).logits
    else:
        begin = time.perf_counter()
        fitted = _fit_baseline(config, ready.subset(parts.train), validation, chosen)
        training |= NO_NETWORK | {"seconds": round(time.perf_counter() - begin, 3)}
        logits, forest = fitted.logits(validation), forest and fitted.method != "forest"
    wanted = as_targets(store.y, store.num_outputs)[parts.validation]
    temperature = 1.0 if scale else fit_temperature(logits, wanted, store.task)
    description = {
        "format": FORMAT_LINE,
        "version": __version__,
        "architecture" if network else "baseline": fitted.config(),
        "task": store.task,
        "label_names": list(store.output_names),
        "temperature": temperature,
        "target_scale": None if scale is None else scale.as_dict(),
        "featurizer": None if store.featurizer is None else store.featurizer.to_dict(),
        "data": data_summary(store, parts, source),
        "training": training,
        "curve": curve,
        "saliency": explained.get("saliency"),
        "training_graphs": training_hashes(store.subset(parts.train), fitted.edge_features),
    }
    before = description_of(plain(description | no_figures()), "this model")
    trained = TrainedModel(fitted, temperature, scale, before)
    figures, reference = model_metrics(trained, store, parts, chosen, forest=forest)
    if "forest_left_out" in figures["metrics"]:
        tell(figures["metrics"]["forest_left_out"])
    after = description_of(plain(description | figures), "this model")
    return replace(trained, description=after, reference=reference)


def _fit_networks(
    config: TrainConfig,
    settings: Settings,
    conv: str,
    ready: GraphStore,
    parts: Split,
    place: torch.device,
    checkpoint: str | Path | None,
    *,
    class_weight: Tensor | None,
    graph_weight: Tensor | None,
    progress: bool | None,
    callbacks: Sequence[Callable[[EpochLog], None]],
    tell: Note,
) -> tuple[GraphClassifier, list[FitResult]]:
    """Train a network, or the members of an ensemble."""
    seen = ready.subset(torch.cat([parts.train, parts.validation]))
    members, results = [], []
    for number in range(config.ensemble):
        seed = config.seed
        if number:
            seed = int(np.random.SeedSequence([config.seed, number]).generate_state(1)[0])
        if config.ensemble > 1:
            tell(f"training member {number + 1} of {config.ensemble}")
        network = GraphClassifier.for_data(
            seen, conv=conv, layers=config.layers, **settings.network(), seed=seed
        ).to(place)
        own = [
            one.of_member(number + 1) if isinstance(one, TensorBoard) else one for one in callbacks
        ]
        result = fit_with(
            settings.fitting(seed, class_weight=class_weight, graph_weight=graph_weight),
            network,
            ready.subset(parts.train),
            ready.subset(parts.validation),
            _augmentations(config.method, network, seed + 1),
            checkpoint=checkpoint and member_checkpoint(checkpoint, number),
            progress=progress,
            callbacks=own,
        )
        for one in own:
            if isinstance(one, TensorBoard):
                one.close()
        members.append(network)
        results.append(result)
    return (members[0] if len(members) == 1 else Ensemble(members)), results


def _course(conv: str, settings: Settings, results: Sequence[FitResult]) -> dict[str, Any]:
    """What a description says of networks and of their training."""
    return {
        "model": conv,
        **{name: getattr(settings, name) for name in _OF_RECIPE},
        "best_epoch": results[0].best_epoch,
        "best_epochs": [result.best_epoch for result in results],
        "epochs_run": results[0].epochs,
        "stopped_early": results[0].stopped_early,
        "seconds": round(sum(result.seconds for result in results), 3),
    }


NO_NETWORK: Final = {
    **dict.fromkeys(("layers", *_OF_RECIPE, "best_epoch", "epochs_run"), 0),
    **dict.fromkeys(("model", "recipe", "readout"), ""),
    "best_epochs": [0],
    "stopped_early": False,
}
"""What a description says in place of :func:`_course`."""


def _refuse_network_options(config: TrainConfig, sample_weight: Any) -> None:
    """Raise if options are given that a method without a network does not have."""
    if config.ensemble > 1:
        raise GraphTransplantError(
            f"`ensemble` is for networks: {config.method} is one already, or the same every time"
        )
    plainly = TrainConfig()
    names = ("model", "layers", "recipe", *_OF_RECIPE, "class_weight")
    given = [name for name in names if getattr(config, name) != getattr(plainly, name)]
    given += [] if sample_weight is None else ["sample_weight"]
    if given:
        raise GraphTransplantError(
            f"`{given[0]}` is for networks, and {config.method} has none: leave it out"
        )


def _fit_baseline(
    config: TrainConfig, train: GraphStore, validation: GraphStore, metric: str
) -> Baseline:
    name = str(config.method)
    fitted = fit_baseline(
        name, train, validation, metric=metric, balance=config.balance, seed=config.seed
    )
    if not isinstance(fitted, Baseline):
        raise GraphTransplantError(f"`method` {name} must return a Baseline to be saved")
    return fitted


def _weights(given: Any, store: GraphStore, of_row: Tensor | None) -> Tensor:
    """Return sampling weights of the graphs, from one for each row that ``of_row`` has."""
    if of_row is None:
        return checked_weights("sample_weight", given, len(store))
    weights = checked_weights("sample_weight", given, len(store), len(of_row) - len(store))
    found = torch.empty(len(store), dtype=weights.dtype)
    found[of_row[of_row >= 0]] = weights[of_row >= 0]
    return found


def member_checkpoint(path: str | Path, number: int) -> Path:
    """Return the checkpoint of an ensemble member; for the first, ``path`` itself."""
    path = Path(path)
    return path if not number else path.with_name(f"{path.stem}-{number + 1}{path.suffix}")


def _separated(
    config: TrainConfig, options: Mapping[str, Any]
) -> tuple[TrainConfig, dict[str, Any]]:
    known = [field.name for field in fields(TrainConfig)]
    reading = {name: value for name, value in options.items() if name not in known}
    check_spelling(reading, known)
    return replace(config, **{k: v for k, v in options.items() if k in known}), reading


def _augmentations(
    method: MethodLike, network: GraphClassifier, seed: int
) -> tuple[Augmentation, ...]:
    if isinstance(method, str):
        return build_method(method, network, seed=seed)
    several = as_augmentations(method, "`method` must be a name or an Augmentation")
    # Augmentations with learnt parameters must not be changed for the caller.
    return copy.deepcopy(several)


def _method_name(method: MethodLike) -> str:
    if isinstance(method, str):
        return method
    several = (method,) if isinstance(method, Augmentation) else tuple(method)
    return " + ".join(type(one).__name__ for one in several) or "vanilla"


def class_weights(
    given: ClassWeight | None, train: GraphStore, names: Sequence[str]
) -> list[float] | None:
    """Return the weight of each class or label; ``balanced`` gives classes equal totals."""
    if given is None:
        return None
    if isinstance(given, str):
        if train.task != "multiclass":
            raise GraphTransplantError(
                f"`class_weight` balanced needs classes; {train.name} is for {train.task}"
            )
        counts = torch.bincount(train.labels, minlength=train.num_outputs).double()
        found: list[float] = (counts.sum() / (counts.gt(0).sum() * counts.clamp(min=1))).tolist()
        return found
    if isinstance(given, Mapping):
        named = {str(name): weight for name, weight in given.items()}  # classes may be numbers
        for name in named:
            check_choice("class_weight", name, names)
        given = [named.get(name, 1.0) for name in names]
    try:
        weights = [float(weight) for weight in given]
    except (TypeError, ValueError):
        weights = []
    if len(weights) != len(names) or not all(0 <= weight < math.inf for weight in weights):
        raise GraphTransplantError(
            f"`class_weight` must be {len(names)} finite, non-negative numbers, one per output"
        )
    return weights


def _check_parts(store: GraphStore, parts: Split, name: str, tell: Note) -> None:
    """Raise if a split cannot be trained on; report missing classes and labels."""
    problem = lacking(store, parts)
    if problem is not None:
        advice = "" if name in ("given", "random") else "; use another split, such as 'random'"
        raise DataError(f"{store.name}: {problem}{advice}")
    if store.task == "multiclass":
        for name, index in (("validation", parts.validation), ("test", parts.test)):
            missing = missing_classes(store, index) if len(index) else []
            if missing:
                shown = ", ".join(missing[:5]) + (" ..." if len(missing) > 5 else "")
                tell(f"classes missing from the {name} graphs: {shown}")
    if store.task == "multilabel":
        positives = (store.y[parts.train] == 1).any(0)
        for number in (~positives).nonzero().flatten().tolist():
            tell(f"no training graph has the label {store.output_names[number]!r}")


def _defined_metric(validation: GraphStore, metric: str, tell: Note) -> str:
    """Return the metric, or ``"accuracy"`` if it is undefined on the validation graphs."""
    targets = as_targets(validation.y, validation.num_outputs)
    if defined(metric, targets, validation.task):
        return metric
    tell(f"{metric} is not defined on these validation graphs: using loss or accuracy instead")
    return "accuracy"
