"""What the rivals share: targets with gaps as problems of scikit-learn, and what comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graph_transplant.graphs import GraphStore
from graph_transplant.metrics import METRICS
from graph_transplant.targets import as_targets, rarest_label

Floats = npt.NDArray[np.float64]


class Problem(NamedTuple):
    """One thing to learn: the classes of all graphs, or one label or value where it is known."""

    rows: npt.NDArray[np.int64]  # training graphs
    y: npt.NDArray[Any]  # classes or values of these
    weight: Floats  # of these graphs
    columns: slice  # the outputs that it fills


def problems(train: GraphStore, balance: bool) -> Iterator[Problem]:
    """Take the targets apart; graphs that lack a label or value do not count for it."""
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
    """Weights of the training graphs: ones, or such that all classes weigh the same.

    Several labels are balanced by the rarest one of every graph, as in training.
    """
    if not balance:
        return np.ones(len(train))
    classes = train.labels if train.task == "multiclass" else rarest_label(train.y)
    _, place, counts = np.unique(classes.numpy(), return_inverse=True, return_counts=True)
    found: Floats = len(train) / (len(counts) * counts[place])
    return found


def prior(train: GraphStore, balance: bool) -> Floats:
    """What to say without looking at a graph, ``[outputs]``: class frequencies, or means.

    Every class counts one graph more than it has, so that no probability is zero.
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
    """Logits of the probabilities of classes, or of those of a label's two values."""
    logs = np.log(probabilities)
    return logs if task == "multiclass" else logs[:, 1:] - logs[:, :1]


def outputs(values: Floats) -> Tensor:
    """Logits or values as a tensor."""
    return torch.from_numpy(np.ascontiguousarray(values)).float()


def quality(predicted: Tensor, graphs: GraphStore, metric: str) -> float:
    """The metric that candidates are chosen by; the worst where it is not defined."""
    targets = as_targets(graphs.y, graphs.num_outputs)
    value = METRICS[metric].compute(predicted, targets, graphs.task)
    return -np.inf if value is None or np.isnan(value) else value
