"""Shared by the baselines: targets as scikit-learn problems, and predictions as logits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graph_transplant.baselines import BaselineTask, Predictor
from graph_transplant.data import GraphStore
from graph_transplant.data.targets import as_targets, rarest_label
from graph_transplant.metrics import METRICS

Floats = npt.NDArray[np.float64]


class Problem(NamedTuple):
    """A learning problem: the classes of all graphs, or one label or value where it is known."""

    rows: npt.NDArray[np.int64]  # training graphs
    y: npt.NDArray[Any]  # their classes or values
    weight: Floats  # their weights
    columns: slice  # the outputs to fill


def problems(train: GraphStore, balance: bool) -> Iterator[Problem]:
    """Yield the problems that the targets consist of; graphs without a target are left out."""
    weight = graph_weights(train, balance)
    if train.task == "multiclass":
        yield Problem(
            np.arange(len(train)), train.labels.numpy(), weight, slice(0, train.num_outputs)
        )
        return
    for column, values in enumerate(train.y.double().numpy().T):
        rows = np.flatnonzero(~np.isnan(values))
        y = values[rows] if train.task == "regression" else values[rows].astype(np.int64)
        yield Problem(rows, y, weight[rows], slice(column, column + 1))


def graph_weights(train: GraphStore, balance: bool) -> Floats:
    """Return weights of the training graphs; with ``balance``, all classes weigh the same.

    Multilabel data are balanced by the rarest label of each graph, as in training.
    """
    if not balance:
        return np.ones(len(train))
    classes = train.labels if train.task == "multiclass" else rarest_label(train.y)
    _, place, counts = np.unique(classes.numpy(), return_inverse=True, return_counts=True)
    found: Floats = len(train) / (len(counts) * counts[place])
    return found


def prior(train: GraphStore, balance: bool) -> Floats:
    """Return a constant prediction, ``[outputs]``: logits of class frequencies, or means.

    Each class counts one extra graph, so that no probability is zero.
    """
    found = np.zeros(train.num_outputs)
    for problem in problems(train, balance):
        if train.task == "regression":
            found[problem.columns] = problem.y.mean() if len(problem.y) else 0.0
            continue
        classes = max(2, train.num_outputs) if train.task == "multiclass" else 2
        mass = np.bincount(problem.y, problem.weight, classes) + 1
        found[problem.columns] = as_logits(mass[None] / mass.sum(), train.task)[0, : len(found)]
    return found


def as_logits(probabilities: Floats, task: str) -> Floats:
    """Convert probabilities of classes, or of a label's two values, to logits."""
    logs = np.log(probabilities)
    return logs if task == "multiclass" else logs[:, 1:] - logs[:, :1]


def outputs(values: Floats) -> Tensor:
    """Convert logits or values to a float tensor."""
    return torch.from_numpy(np.ascontiguousarray(values)).float()


def quality(predicted: Tensor, graphs: GraphStore, metric: str) -> float:
    """Return the metric that candidates are chosen by; ``-inf`` if it is not defined."""
    targets = as_targets(graphs.y, graphs.num_outputs)
    value = METRICS[metric].compute(predicted, targets, graphs.task)
    return -np.inf if value is None or np.isnan(value) else value


def majority(given: BaselineTask) -> Predictor:
    """Predict the class frequencies, or means, of the training graphs."""
    answer = prior(given.train, balance=False)  # if balanced, no class would be the largest
    return Predictor(lambda part: outputs(np.tile(answer, (len(part), 1))))
