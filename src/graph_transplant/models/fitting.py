"""From a data set to a model that can be used: split, train, calibrate, measure.

The validation graphs decide when training stops, which epoch is kept and what the temperature is;
the test graphs are looked at once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from graph_transplant import __version__
from graph_transplant.analysis import fit_temperature, label_cases, reliability
from graph_transplant.augment import build_method
from graph_transplant.errors import DataError, check_choice
from graph_transplant.experiments.compare import (
    automatic_model,
    metric_for,
    unused_edge_features,
)
from graph_transplant.experiments.protocol import SCALES, scale_of
from graph_transplant.experiments.trial import sampled_curve
from graph_transplant.graphs import GraphStore
from graph_transplant.metrics import measure
from graph_transplant.models.description import format_line, plain
from graph_transplant.models.intervals import bootstrap_intervals
from graph_transplant.models.model import TrainedModel, usable_device
from graph_transplant.nn import CONVOLUTIONS, READOUTS, GraphClassifier
from graph_transplant.splits import SHARE, Split, missing_classes, split_for_training
from graph_transplant.targets import TargetScale, as_targets
from graph_transplant.training import EpochLog, FitResult, evaluate, fit

FEW_POSITIVES: Final = 30
"""With fewer positive test graphs than this, a person is told that the figures are rough."""

BALANCED: Final = (
    "with balance the model takes all classes for equally frequent: probabilities of rare ones "
    "come out too high, and no temperature mends that"
)
"""What a person is told who trains with ``balance``."""

COVERAGE: Final = 0.9
"""Share of the graphs whose value lies within the stated distance of the predicted one."""

_MOST_CLASSES_SHOWN: Final = 100
_ROC_POINTS: Final = 100
_SCATTER_POINTS: Final = 500

Note = Callable[[str], None]


def train(
    store: GraphStore,
    *,
    method: str = "transplant-ep",
    model: str = "auto",
    layers: int = 3,
    hidden: int = 128,
    readout: str = "mean",
    dropout: float = 0.5,
    epochs: int = 300,
    batch_size: int | None = None,
    learning_rate: float = 5e-4,
    split: str | Split = "auto",
    validation: float = SHARE,
    test: float = SHARE,
    balance: bool = False,
    metric: str | None = None,
    seed: int = 0,
    device: str = "cpu",
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
    callbacks: Sequence[Callable[[EpochLog], None]] = (),
    source: str | None = None,
    note: Note | None = None,
) -> TrainedModel:
    """Train one model, calibrate it on the validation graphs and measure it on the test graphs.

    Patience follows the size of the data set as in the paper. A call with the ``checkpoint`` of the
    same call that was interrupted goes on from there and ends in the same weights.

    Args:
        store: The data set.
        method: Name of one method, with parameters or without; see
            :data:`~graph_transplant.methods.METHODS`.
        model: Name of a convolution, or ``"auto"``: ``"gine"`` for molecules with edge features,
            ``"gcs"`` for all others.
        layers: Number of message-passing layers.
        hidden: Width of the layers.
        readout: ``"mean"``, ``"sum"`` or ``"max"``.
        dropout: Rate in the head.
        epochs: Most epochs.
        batch_size: Graphs per training batch. (default: as in the paper for the size of the data)
        learning_rate: Of Adam, at the start.
        split: ``"random"`` (stratified by class, rarest label or value), ``"scaffold"`` (molecules
            of one Bemis–Murcko scaffold stay together), ``"official"`` (that of the data set), or a
            :class:`~graph_transplant.splits.Split` of your own, whose test part may be
            empty. ``"auto"`` takes the official one where there is one, scaffolds for molecules,
            else random.
        validation: Share of the graphs that decides when to stop and what the temperature is.
        test: Share of the graphs that is measured at the end; 0 for none. An official split, or one
            of your own, has its own shares.
        balance: Draw training graphs so that every class is equally likely.
        metric: What the best epoch is chosen by: ``"accuracy"``, ``"auroc"``,
            ``"average_precision"`` or ``"r2"``. (default: what suits the data and is defined on the
            validation graphs; else their loss)
        seed: Determines the split, the weights and all randomness of training.
        device: Where to train.
        checkpoint: File that holds the state of the training while it runs; it is the caller who
            deletes it.
        progress: Show a progress bar; by default when the error stream is a terminal.
        callbacks: Called with every epoch's log.
        source: How the data set was named. (default: its name)
        note: Told what a person should know besides the result.

    Returns:
        The model, with everything that ``model.json`` will say about it.

    Raises:
        GraphTransplantError: If an argument cannot be used, or the data cannot be split so.

    Example:
        >>> import graph_transplant as gt
        >>> model = train(gt.load("motifs", graphs=60), method="vanilla", hidden=8, epochs=2)
        >>> model.description["training"]["sizes"]
        {'train': 48, 'validation': 6, 'test': 6}
    """
    tell: Note = note or (lambda text: None)
    conv = _convolution(model, store)
    check_choice("readout", readout, READOUTS)
    unused = unused_edge_features(store, [conv])
    if unused:
        tell(unused)
    if balance:
        tell(BALANCED)
    place = usable_device(device)
    parts, split_name = split_for_training(
        store, split, validation=validation, test=test, seed=seed, tell=tell
    )
    _check_parts(store, parts, tell)
    names = store.output_names
    known = torch.cat([parts.train, parts.validation])
    scale = TargetScale.of(store.subset(parts.train)) if store.task == "regression" else None
    ready = store if scale is None else scale.apply(store)
    chosen = metric or _defined_metric(ready.subset(parts.validation), metric_for(store), tell)
    network = GraphClassifier.for_data(
        ready.subset(known),
        conv=conv,
        layers=layers,
        hidden=hidden,
        readout=readout,
        dropout=dropout,
        seed=seed,
    ).to(place)
    size = SCALES[scale_of(len(store))]
    batch = size.batch_size if batch_size is None else batch_size
    result = fit(
        network,
        ready.subset(parts.train),
        ready.subset(parts.validation),
        build_method(method, network, seed=seed + 1),
        seed=seed,
        epochs=epochs,
        batch_size=batch,
        learning_rate=learning_rate,
        stop_patience=size.stop_patience,
        decay_patience=size.decay_patience,
        patience_unit=size.patience_unit,
        metric=chosen,
        balance=balance,
        ties="loss",
        checkpoint=checkpoint,
        progress=progress,
        callbacks=callbacks,
    )
    training = {
        "method": method,
        "model": conv,
        "layers": layers,
        "hidden": hidden,
        "readout": readout,
        "dropout": dropout,
        "epochs": epochs,
        "batch_size": batch,
        "learning_rate": learning_rate,
        "balance": balance,
        # What `fit` calls accuracy is minus the loss where there are no classes.
        "metric": chosen if chosen != "accuracy" or store.task == "multiclass" else "loss",
        "split": split_name,
        # Asked for, not reached: what the same split is drawn with. Others have their own parts.
        "validation": validation if split_name in ("random", "scaffold") else None,
        "test": test if split_name in ("random", "scaffold") else None,
        "seed": seed,
        "sizes": {
            "train": len(parts.train),
            "validation": len(parts.validation),
            "test": len(parts.test),
        },
        **_outcome(result),
    }
    logits = evaluate(network, ready.subset(parts.validation)).logits
    wanted = as_targets(store.y, store.num_outputs)
    temperature = 1.0 if scale else fit_temperature(logits, wanted[parts.validation], store.task)
    trained = TrainedModel(network, temperature, scale, {})
    description = {
        "format": format_line(),
        "version": __version__,
        "architecture": network.config(),
        "task": store.task,
        "label_names": list(names),
        "temperature": temperature,
        "target_scale": None if scale is None else scale.as_dict(),
        "featurizer": None if store.featurizer is None else store.featurizer.to_dict(),
        "data": _data(store, source),
        "training": training,
        "curve": sampled_curve(result.history),
        "residual_90": None,
        **_figures(trained, names, logits, wanted, store, parts, seed),
    }
    return TrainedModel(network, temperature, scale, plain(description))


def _convolution(model: str, store: GraphStore) -> str:
    check_choice("model", model, ["auto", *CONVOLUTIONS])
    return automatic_model(store) if model == "auto" else model


def _outcome(result: FitResult) -> dict[str, Any]:
    return {
        "best_epoch": result.best_epoch,
        "epochs_run": result.epochs,
        "stopped_early": result.stopped_early,
        "seconds": round(result.seconds, 3),
    }


def _check_parts(store: GraphStore, parts: Split, tell: Note) -> None:
    """Refuse a split that cannot be trained on; tell what makes its figures doubtful."""
    for name, index in (("training", parts.train), ("validation", parts.validation)):
        if not len(index):
            raise DataError(f"the split of {store.name} leaves no {name} graphs")
    if store.task == "multiclass":
        missing = missing_classes(store, parts.train)
        if missing:
            raise DataError(
                f"no training graph of {store.name} is of the class {missing[0]!r}: another split "
                "(such as 'random'), or leave out the graphs of this class"
            )
        for name, index in (("validation", parts.validation), ("test", parts.test)):
            missing = missing_classes(store, index) if len(index) else []
            if missing:
                shown = ", ".join(missing[:5]) + (" ..." if len(missing) > 5 else "")
                tell(f"the {name} graphs have none of: {shown}")
    if store.task == "multilabel":
        positives = (store.y[parts.train] == 1).any(0)
        for number in (~positives).nonzero().flatten().tolist():
            tell(f"no training graph has the label {store.output_names[number]!r}")
    if len(parts.test) and _positives(store, parts.test) < FEW_POSITIVES:
        kinds = {"multiclass": "of its rarest class", "multilabel": "with its rarest label"}
        tell(
            f"the test set is small ({_positives(store, parts.test)} "
            f"{kinds.get(store.task, 'graphs')}): its figures are rough, see their intervals"
        )


def _positives(store: GraphStore, index: Tensor) -> int:
    """Count the test graphs of the rarest class or label, which limit what can be measured."""
    if store.task == "multiclass":
        return int(torch.bincount(store.labels[index], minlength=store.num_outputs).min())
    if store.task == "multilabel":
        return int((store.y[index] == 1).sum(0).min())
    return len(index)


def _defined_metric(validation: GraphStore, metric: str, tell: Note) -> str:
    """Give the metric, or the loss where the validation graphs do not have it."""
    targets = as_targets(validation.y, validation.num_outputs)
    if metric == "accuracy":
        return metric
    if not math.isnan(measure(torch.zeros_like(targets), targets, validation.task)[metric]):
        return metric
    tell(f"{metric} is not defined on these validation graphs: their loss or accuracy decides")
    return "accuracy"


# -------------------------------------------------------------------- figures


def _data(store: GraphStore, source: str | None) -> dict[str, Any]:
    figures = store.statistics()
    counts: list[int] = []
    measured: list[int] = []
    if store.task == "multiclass":
        counts = torch.bincount(store.labels, minlength=store.num_outputs).tolist()
    else:
        measured = (~store.y.isnan()).sum(0).tolist()
    if store.task == "multilabel":
        counts = (store.y == 1).sum(0).tolist()
    return {
        "name": store.name,
        "source": source or store.name,
        "fingerprint": store.fingerprint(),
        "graphs": len(store),
        "mean_nodes": figures["mean_nodes"],
        "mean_edges": figures["mean_edges"],
        "node_features": figures["node_features"],
        "edge_features": figures["edge_features"],
        "skipped": len(store.skipped),
        "class_counts": counts,
        "measured": measured,
    }


def _figures(
    model: TrainedModel,
    names: Sequence[str],
    validation: Tensor,
    targets: Tensor,
    store: GraphStore,
    parts: Split,
    seed: int,
) -> dict[str, Any]:
    """Measure a model: everything in its description that depends on predictions.

    Args:
        model: The model; its description is not looked at.
        names: What the outputs are called.
        validation: What the network says about the validation graphs, float ``[graphs, outputs]``.
        targets: Of all graphs, in the units of the data, float ``[all graphs, outputs]``.
        store: All graphs.
        parts: Their split.
        seed: Determines the resamples of the intervals.
    """
    task = store.task

    def measured(logits: Tensor, wanted: Tensor, temperature: float) -> dict[str, float]:
        if model.scale is not None:
            return measure(model.scale.undo(logits), wanted, task)
        return measure(logits / temperature, wanted, task)

    held_out = targets[parts.validation]
    metrics: dict[str, Any] = {
        "validation": measured(validation, held_out, model.temperature),
        "test": {},
        "test_uncalibrated": {},
        "intervals": {},
    }
    found: dict[str, Any] = {
        "metrics": metrics,
        "reliability": None,
        "confusion": None,
        "roc": None,
        "scatter": None,
    }
    if model.scale is not None:
        found["residual_90"] = residual_bounds(model.scale.undo(validation), held_out)
    if not len(parts.test):
        return found
    logits = evaluate(model.network, store.subset(parts.test)).logits
    wanted = targets[parts.test]
    metrics["test"] = measured(logits, wanted, model.temperature)
    metrics["test_uncalibrated"] = measured(logits, wanted, 1.0)
    ready = model.scale.undo(logits) if model.scale else logits / model.temperature
    metrics["intervals"] = bootstrap_intervals(ready, wanted, task, seed=seed)
    if model.scale is not None:
        found["scatter"] = _scatter(ready[:, 0], wanted[:, 0])
        return found
    found["reliability"] = {
        "before": _bins(logits, wanted, task),
        "after": _bins(ready, wanted, task),
    }
    if task == "multiclass":
        if len(names) <= _MOST_CLASSES_SHOWN:
            found["confusion"] = confusion(wanted.argmax(1), logits.argmax(1), len(names))
        if len(names) == 2:
            curve = roc_points(logits[:, 1] - logits[:, 0], wanted[:, 1].gt(0.5))
            found["roc"] = {names[1]: curve} if curve else None
    else:
        curves = {}
        for number, name in enumerate(names):
            present = ~wanted[:, number].isnan()
            curve = roc_points(logits[present, number], wanted[present, number].gt(0.5))
            if curve:
                curves[name] = curve
        found["roc"] = curves or None
    return found


def _bins(logits: Tensor, targets: Tensor, task: str) -> list[dict[str, Any]]:
    exact = logits.to(torch.double)
    if task == "multiclass":
        bins = reliability(exact.softmax(1), targets.argmax(1))
    else:
        bins = reliability(*label_cases(exact.sigmoid(), targets))
    return [asdict(part) for part in bins]


def confusion(labels: Tensor, predicted: Tensor, classes: int) -> list[list[int]]:
    """Count graphs by true and by predicted class.

    Args:
        labels: True classes, int64 ``[graphs]``.
        predicted: Predicted classes, int64 ``[graphs]``.
        classes: Number of classes.

    Returns:
        Rows are true classes, columns predicted ones.

    Example:
        >>> confusion(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), 2)
        [[1, 0], [1, 1]]
    """
    counts = torch.bincount(labels * classes + predicted, minlength=classes**2)
    found: list[list[int]] = counts.view(classes, classes).tolist()
    return found


def roc_points(scores: Tensor, positive: Tensor, points: int = _ROC_POINTS) -> list[list[float]]:
    """Give points of the ROC curve, from (0, 0) to (1, 1).

    Args:
        scores: Larger means more likely positive, float ``[graphs]``.
        positive: bool ``[graphs]``.
        points: About how many points to keep at most.

    Returns:
        Share of the negatives and of the positives above each threshold; empty when only one of the
        two is there.

    Example:
        >>> roc_points(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([True, False, True]))
        [[0.0, 0.0], [0.0, 0.5], [1.0, 0.5], [1.0, 1.0]]
    """
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return []
    values, place = torch.unique(scores, return_inverse=True)
    hits = torch.bincount(place[positive], minlength=len(values)).flip(0).cumsum(0)
    misses = torch.bincount(place[~positive], minlength=len(values)).flip(0).cumsum(0)
    kept = torch.linspace(0, len(values) - 1, min(points, len(values))).round().to(torch.long)
    shares = torch.stack((misses[kept] / negatives, hits[kept] / positives), dim=1)
    rows: list[list[float]] = shares.to(torch.double).tolist()
    return [[0.0, 0.0], *([round(x, 6), round(y, 6)] for x, y in rows)]


def residual_bounds(
    outputs: Tensor, targets: Tensor, coverage: float = COVERAGE
) -> list[float | None]:
    """Say how far predicted values are off, at most, for a share of the graphs.

    With the correction of split conformal prediction for a finite number of graphs: graphs that are
    like the validation graphs lie within the distance with at least that probability.

    Args:
        outputs: Predicted values of the validation graphs, float ``[graphs, outputs]``.
        targets: True values, NaN where missing, float ``[graphs, outputs]``.
        coverage: The share.

    Returns:
        The distance for every output; ``None`` where there are too few graphs to say.

    Example:
        >>> outputs, targets = torch.zeros(9, 1), torch.arange(1.0, 10.0).unsqueeze(1)
        >>> residual_bounds(outputs, targets), residual_bounds(outputs[:8], targets[:8])
        ([9.0], [None])
    """
    found: list[float | None] = []
    for error in (outputs.to(torch.double) - targets.to(torch.double)).abs().unbind(1):
        values = error[~error.isnan()].sort().values
        rank = math.ceil((len(values) + 1) * coverage)
        found.append(float(values[rank - 1]) if 0 < rank <= len(values) else None)
    return found


def _scatter(outputs: Tensor, targets: Tensor) -> list[list[float]]:
    there = (~targets.isnan()).nonzero().flatten()
    if len(there) > _SCATTER_POINTS:
        even = torch.linspace(0, len(there) - 1, _SCATTER_POINTS).round().to(torch.long)
        there = there[even]
    pairs = torch.stack((targets[there], outputs[there]), dim=1)
    rows: list[list[float]] = pairs.to(torch.double).tolist()
    return rows
