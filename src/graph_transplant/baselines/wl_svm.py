"""Support vector machine on Weisfeiler-Lehman subtree counts.

Nino Shervashidze, Pascal Schweitzer, Erik Jan van Leeuwen, Kurt Mehlhorn and Karsten Borgwardt,
*Weisfeiler-Lehman Graph Kernels*, JMLR 2011.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, hstack
from torch import Tensor

from graph_transplant.baselines import BaselinePredictions, BaselineTask
from graph_transplant.baselines.problems import Floats, outputs, prior, problems, quality
from graph_transplant.data import GraphStore
from graph_transplant.data.targets import TargetScale, as_targets
from graph_transplant.metrics.calibration import fit_temperature

DEPTHS = (1, 2, 3, 4, 5)
COSTS = (0.1, 1.0, 10.0, 100.0)
KERNELS = ("linear", "rbf")

MOST_PAIRED = 5_000
"""Maximum of training graphs times labels for the RBF kernel, which needs all pairs of graphs."""

Ints = npt.NDArray[np.int64]
Decide = Callable[[csr_array], Floats]


def fit_predict(given: BaselineTask) -> BaselinePredictions:
    """Fit SVMs over a grid of depths, kernels and costs, and predict with the best."""
    train, validation, test, metric, balance, _ = given
    scale = TargetScale.of(train) if train.task == "regression" else None
    known = train if scale is None else scale.apply(train)
    levels = list(subtree_counts([train, validation, test], max(DEPTHS)))
    labels = 1 if train.task == "multiclass" else train.num_outputs
    kernels = KERNELS[: 2 if labels * len(train) <= MOST_PAIRED else 1]
    best = None
    for depth, kernel in product(DEPTHS, kernels):
        counts = [hstack(parts, "csr") for parts in zip(*levels[: depth + 1], strict=True)]
        features = [_unit_length(part) for part in counts]
        for cost in COSTS:
            decide = _fitted(features[0], known, kernel, cost, balance)
            said = decide(features[1])
            value = quality(outputs(said), validation, metric)
            if best is None or value > best:
                best, found = value, (said, decide(features[2]))
                parameters = {"depth": depth, "kernel": kernel, "cost": cost}
    held_out, tested = map(outputs, found)
    if scale is not None:
        return BaselinePredictions(scale.undo(held_out), scale.undo(tested), parameters)
    wanted = as_targets(validation.y, validation.num_outputs)
    temperature = fit_temperature(held_out, wanted, validation.task)
    return BaselinePredictions(held_out / temperature, tested / temperature, parameters)


def subtree_counts(parts: Sequence[GraphStore], depth: int) -> Iterator[list[csr_array]]:
    """Count the subtree patterns of graphs, level by level from 0 (the labels) to ``depth``.

    Yields one sparse table ``[graphs, patterns]`` per part; equal patterns share a column in all of
    them. A pattern is a node's label; on later levels, its previous pattern with the multiset of
    the patterns and edge labels around it. A node's label consists of its features that are whole
    numbers and not marked as continuous; without any it is the degree. Edge labels likewise;
    without any, all edges are alike. In directed graphs, patterns follow incoming edges.
    """
    batches = [part.batch(np.arange(len(part))) for part in parts]
    graphs = [np.repeat(np.arange(len(b.ptr) - 1), np.diff(b.ptr)) for b in batches]
    rows = [np.repeat(np.arange(b.num_nodes), np.diff(b.row_ptr)) for b in batches]
    labels = _labels(
        [None if part.x is None else part.x[:, part.num_continuous :] for part in parts],
        otherwise=[np.diff(b.row_ptr) for b in batches],
    )
    bonds = _labels(
        [part.edge_attr for part in parts],
        otherwise=[np.zeros(b.num_edges, np.int64) for b in batches],
    )
    for level in range(depth + 1):
        width = 1 + max(int(each.max()) for each in labels)
        yield [
            # Liblinear requires 32-bit indices.
            csr_array(
                (np.ones(len(own)), (graph.astype(np.int32), own.astype(np.int32))),
                shape=(len(batch.ptr) - 1, width),
            )
            for own, graph, batch in zip(labels, graphs, batches, strict=True)
        ]
        if level == depth:
            return
        patterns: dict[tuple[int, bytes], int] = {}
        around = [
            _sorted_within(row, bond * width + own[batch.column])
            for own, row, bond, batch in zip(labels, rows, bonds, batches, strict=True)
        ]
        labels = [
            _renumbered(own, near, batch.row_ptr, patterns)
            for own, near, batch in zip(labels, around, batches, strict=True)
        ]


def _labels(features: Sequence[Tensor | None], otherwise: Sequence[Ints]) -> list[Ints]:
    """Number the distinct rows of integer-valued columns, jointly over all parts."""
    tables = [np.zeros((len(other), 0)) if x is None else x.numpy()
              for x, other in zip(features, otherwise, strict=True)]  # fmt: skip
    table = np.concatenate(tables)
    table = table[:, (table == np.round(table)).all(0)]
    if not table.shape[1] or not len(table):
        return list(otherwise)
    numbers = np.unique(table, axis=0, return_inverse=True)[1].ravel()
    return np.split(numbers, np.cumsum([len(part) for part in tables])[:-1])


def _sorted_within(row: Ints, values: Ints) -> Ints:
    return values[np.lexsort((values, row))]


def _renumbered(
    own: Ints, around: Ints, row_ptr: Ints, patterns: dict[tuple[int, bytes], int]
) -> Ints:
    """Number nodes by their own pattern and the sorted ones around them, without collisions."""
    bounds = row_ptr.tolist()
    return np.fromiter(
        (
            patterns.setdefault((label, around[bounds[v] : bounds[v + 1]].tobytes()), len(patterns))
            for v, label in enumerate(own.tolist())
        ),
        np.int64,
        len(own),
    )


def _unit_length(counts: csr_array) -> csr_array:
    """Normalise rows to unit length, so that the size of a graph does not matter."""
    scale = 1 / np.sqrt(counts.power(2).sum(1))
    return csr_array(counts.multiply(scale[:, None]))


def _fitted(x: csr_array, train: GraphStore, kernel: str, cost: float, balance: bool) -> Decide:
    """Fit one SVM to the classes, or one to each label or value where it is known."""
    ignorant = prior(train, balance)
    machines = []
    for problem in problems(train, balance):
        if len(np.unique(problem.y)) < 2:
            continue
        machine = _machine(train.task, kernel, cost)
        rows = x[problem.rows]
        given = rows if kernel == "linear" else _rbf(rows, rows)
        machine.fit(given, problem.y, sample_weight=problem.weight)
        machines.append((problem.columns, rows, machine))

    def decide(asked: csr_array) -> Floats:
        said: Floats = np.tile(ignorant, (asked.shape[0], 1))
        for columns, rows, machine in machines:
            given = asked if kernel == "linear" else _rbf(asked, rows)
            said[:, columns] = _decisions(machine, given, train)
        return said

    return decide


def _machine(task: str, kernel: str, cost: float) -> Any:
    from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

    if kernel == "linear":
        # The primal problem is deterministic, and converges where the dual one does not.
        if task == "regression":
            loss = "squared_epsilon_insensitive"
            return LinearSVR(C=cost, epsilon=0.1, loss=loss, dual=False, max_iter=10_000)
        return LinearSVC(C=cost, dual=False, max_iter=10_000)
    if task == "regression":
        return SVR(kernel="precomputed", C=cost, epsilon=0.1)
    return SVC(kernel="precomputed", C=cost)


def _rbf(one: csr_array, two: csr_array) -> Floats:
    """exp(-‖x - y‖²) of unit-length rows."""
    found: Floats = np.exp(2 * ((one @ two.T).toarray() - 1))
    return found


def _decisions(machine: Any, given: Any, train: GraphStore) -> Floats:
    if train.task == "regression":
        values: Floats = machine.predict(given)[:, None]
        return values
    values = machine.decision_function(given)
    if train.task == "multilabel":
        return values[:, None]
    if values.ndim == 1:
        values = np.stack([-values / 2, values / 2], axis=1)
    # Classes without training graphs get the lowest value.
    said: Floats = np.full((len(values), train.num_outputs), values.min() - 1)
    said[:, machine.classes_] = values
    return said
