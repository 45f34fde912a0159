"""Evaluation of a trained model: the metrics and curves in ``model.json``."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from graph_transplant.augment import unsupported_reason
from graph_transplant.baselines import fit as fit_baseline
from graph_transplant.data import GraphStore
from graph_transplant.data.targets import as_targets
from graph_transplant.data.tensors import repeats
from graph_transplant.datasets.splits import Split
from graph_transplant.metrics import measure
from graph_transplant.metrics.calibration import reliability
from graph_transplant.metrics.functional import bootstrap_intervals, probabilities_of
from graph_transplant.models.model import TrainedModel
from graph_transplant.models.uncertainty import (
    COVERAGE,
    Reference,
    conformal_bounds,
    scores_of,
    uncertainty_metrics,
)
from graph_transplant.training.loop import evaluated_at_once

MOST_FOREST: Final = 10_000
"""Maximum of training graphs; beyond it, a random forest would take minutes."""

_MOST_CLASSES_SHOWN: Final = 100
_ROC_POINTS: Final = 100
_SCATTER_POINTS: Final = 500


def data_summary(store: GraphStore, parts: Split, source: str | None) -> dict[str, Any]:
    """Describe a data set and its parts."""
    figures = store.statistics()
    counts: list[int] = []
    measured: list[int] = []
    if store.task == "multiclass":
        counts = torch.bincount(store.labels, minlength=store.num_outputs).tolist()
    else:
        measured = (~store.y.isnan()).sum(0).tolist()
    if store.task == "multilabel":
        counts = (store.y == 1).sum(0).tolist()
    kept = ("mean_nodes", "mean_edges", "node_features", "edge_features")
    return {
        "name": store.name,
        "source": source or store.name,
        "fingerprint": store.fingerprint(),
        "graphs": len(store),
        "max_nodes": int(store.node_counts[parts.train].max()),
        **{name: figures[name] for name in kept},
        "skipped": len(store.skipped),
        "class_counts": counts,
        "measured": measured,
        **_class_shares(store, parts),
        **_duplicates(store, parts),
    }


def _class_shares(store: GraphStore, parts: Split) -> dict[str, Any]:
    if store.task == "regression":
        return {}
    targets = as_targets(store.y, store.num_outputs)
    indices = {part.name: getattr(parts, part.name) for part in fields(parts)}
    shares = {name: targets[i].nanmean(0).tolist() for name, i in indices.items() if len(i)}
    return {"class_shares": shares}


def _duplicates(store: GraphStore, parts: Split) -> dict[str, Any]:
    """Count duplicates, if they were searched for when the data were read or split."""
    if store.duplicates is None:
        return {}
    _, group, size = torch.unique(store.duplicates, return_inverse=True, return_counts=True)
    held = torch.cat([parts.validation, parts.test])
    distinct, differing = repeats(store.duplicates, store.y)
    return {
        "duplicates": {
            "graphs": int((size[group] > 1).sum()),
            "distinct": distinct,
            "differing": differing,
            "across": int(torch.isin(group[held], group[parts.train]).sum()),
        }
    }


def no_figures() -> dict[str, Any]:
    """The fields of a description that :func:`model_metrics` fills in."""
    metrics = ("validation", "test", "test_uncalibrated", "intervals")
    charts = ("reliability", "confusion", "roc", "scatter", "residual_90")
    return {"metrics": {name: {} for name in metrics}, **dict.fromkeys(charts)}


def model_metrics(
    model: TrainedModel, store: GraphStore, parts: Split, metric: str, *, forest: bool
) -> tuple[dict[str, Any], Reference]:
    """Evaluate a model; return the fields for its description, and its reference data.

    With ``forest``, a random forest, tuned by ``metric``, is evaluated too.
    """
    task, names, seed = store.task, store.output_names, model.description.training.seed
    targets = as_targets(store.y, store.num_outputs)
    train, validation = store.subset(parts.train), store.subset(parts.validation)

    def ready(logits: Tensor, temperature: float = model.temperature) -> Tensor:
        return logits / temperature if model.scale is None else model.scale.undo(logits)

    held_out, wanted = _logits(model, validation), targets[parts.validation]
    found = no_figures()
    metrics = found["metrics"]
    metrics["validation"] = measure(ready(held_out), wanted, task)
    judged = (validation, model.outputs(held_out), wanted)
    reference = Reference.of(
        train, scores_of(*judged[1:], task), edges=bool(model.fitted.edge_features), seed=seed
    )
    if task == "regression":
        found["residual_90"] = conformal_bounds(reference.scores, COVERAGE).tolist()
    if not len(parts.test):
        found["uncertainty"] = uncertainty_metrics(reference, task, judged, None, None)
        return found, reference
    test, wanted = store.subset(parts.test), targets[parts.test]
    logits, predictions = _logits(model, test), model.predictions(test)
    outputs = ready(logits)
    found["uncertainty"] = uncertainty_metrics(
        reference, task, judged, (test, predictions.outputs, wanted), predictions.spread
    )
    metrics["test"] = measure(outputs, wanted, task)
    metrics["test_uncalibrated"] = measure(ready(logits, 1.0), wanted, task)
    metrics["baseline"] = _baseline(targets[parts.train], wanted, task)
    metrics["intervals"] = bootstrap_intervals(outputs, wanted, task, seed=seed)
    without = no_forest(store, len(train)) if forest else None
    if without is not None:
        metrics["forest_left_out"] = without
    elif forest:
        rival = fit_baseline("forest", train, validation, metric=metric, seed=seed).logits(test)
        metrics["forest"] = measure(rival, wanted, task)
        metrics["over_forest"] = bootstrap_intervals(outputs, wanted, task, seed=seed, rival=rival)
    if task == "regression":
        found["scatter"] = _scatter(outputs[:, 0], wanted[:, 0])
        return found, reference
    found["reliability"] = {
        when: reliability(*probabilities_of(values, wanted, task))
        for when, values in (("before", logits), ("after", outputs))
    }
    if task == "multiclass" and len(names) <= _MOST_CLASSES_SHOWN:
        every = np.arange(len(names))
        from sklearn.metrics import confusion_matrix  # slow to import

        table = confusion_matrix(wanted.argmax(1), logits.argmax(1), labels=every)
        found["confusion"] = table.tolist()
    ranked = {k: logits[:, k] for k in range(len(names))} if task == "multilabel" else {}
    if task == "multiclass" and len(names) == 2:
        ranked = {1: logits[:, 1] - logits[:, 0]}
    curves = {names[k]: roc_points(scores, wanted[:, k]) for k, scores in ranked.items()}
    found["roc"] = {name: curve for name, curve in curves.items() if curve} or None
    return found, reference


def _logits(model: TrainedModel, store: GraphStore) -> Tensor:
    return model.logits(store, batch_size=evaluated_at_once(store))


def no_forest(store: GraphStore, training: int) -> str | None:
    """Return why no random forest is fitted, as a sentence; ``None`` if one is."""
    if training > MOST_FOREST:
        return (
            f"No random forest was fitted for comparison, as there are {training:,} training "
            f"graphs, more than {MOST_FOREST:,}: compare with the method forest fits one."
        )
    if unsupported_reason("forest", None, store) is not None:
        return (
            "No random forest was fitted for comparison, as it needs SMILES, which saved graphs "
            "do not keep: train on the table or SDF file that they were read from."
        )
    return None


def _baseline(train: Tensor, wanted: Tensor, task: str) -> dict[str, float]:
    """Evaluate a constant prediction: class frequencies or mean of the training graphs."""
    guess = train.nanmean(0)
    if task != "regression":
        share = guess.nan_to_num(0.5).clamp(1e-6, 1 - 1e-6)
        guess = share.log() if task == "multiclass" else share.logit()
    return measure(guess.expand_as(wanted), wanted, task)


def roc_points(scores: Tensor, targets: Tensor) -> list[list[float]]:
    """Return points of the ROC curve, thinned out; none if only one class is present."""
    there = ~targets.isnan()
    positive = targets[there].gt(0.5)
    if bool(positive.all()) or not bool(positive.any()):
        return []
    from sklearn.metrics import roc_curve

    false, true, _ = roc_curve(positive, scores[there].double())
    kept = np.linspace(0, len(false) - 1, min(_ROC_POINTS, len(false))).round().astype(int)
    points: list[list[float]] = np.stack((false[kept], true[kept]), axis=1).round(6).tolist()
    return points


def _scatter(outputs: Tensor, targets: Tensor) -> list[list[float]]:
    there = (~targets.isnan()).nonzero().flatten()
    kept = torch.linspace(0, len(there) - 1, min(_SCATTER_POINTS, len(there))).round().long()
    pairs = torch.stack((targets[there[kept]], outputs[there[kept]]), dim=1)
    rows: list[list[float]] = pairs.to(torch.double).tolist()
    return rows
