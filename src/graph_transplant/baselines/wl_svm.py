"""Support vector machines on Weisfeiler-Lehman subtree patterns.

``wl-svm`` counts patterns (:mod:`~graph_transplant.baselines.subtrees`). ``wl-oa`` is the optimal
assignment kernel of Nils Kriege, Pierre-Louis Giscard and Richard Wilson, *On Valid Optimal
Assignment Kernels and Applications to Graph Classification*, NeurIPS 2016: the sum over patterns of
the smaller of two counts. That is the inner product of vectors with as many ones as a pattern
occurs, so both are the same SVM on different vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, hstack
from torch import Tensor

from graph_transplant.baselines import BaselineTask
from graph_transplant.baselines.model import Baseline, Share, within
from graph_transplant.baselines.problems import Floats, outputs, prior, problems, quality
from graph_transplant.baselines.subtrees import Dictionary, Ints, Labels, check_patterns
from graph_transplant.data import GraphStore
from graph_transplant.data.targets import TargetScale, as_targets
from graph_transplant.kernels.baselines import Patterns, one_against_one
from graph_transplant.metrics.calibration import fit_temperature

DEPTHS = (1, 2, 3, 4, 5)
COSTS = (0.1, 1.0, 10.0, 100.0)
KERNELS = ("linear", "rbf")

MOST_PAIRED = 5_000
"""Maximum of training graphs times labels for the RBF kernel, which needs all pairs of graphs."""

_AT_ONCE = 256
_MOST_COLUMNS = 1 << 25  # of vectors, in files
_PATTERNS = Patterns._fields
_SUPPORT = ("ptr", "support", "dual", "sizes", "vector_ptr", "vector_column", "vector_value")


def fit(given: BaselineTask, name: str = "wl-svm") -> Subtrees:
    """Fit SVMs over a grid of depths, kernels and costs; keep the best on the validation graphs."""
    train, validation, metric, balance, _ = given
    scale = TargetScale.of(train) if train.task == "regression" else None
    known = train if scale is None else scale.apply(train)
    dictionary = Dictionary.of(train, max(DEPTHS))
    counted = [_counted(dictionary, part) for part in (train, validation)]
    labels = 1 if train.task == "multiclass" else train.num_outputs
    kernels = KERNELS[: 2 if labels * len(train) <= MOST_PAIRED else 1]
    ignorant = prior(known, balance)
    best = None
    for depth, kernel in product(DEPTHS, kernels):
        most = None
        if name == "wl-oa":
            whole = hstack([part.known for part in counted[0][: depth + 1]], "csc")
            most = whole.max(axis=0).toarray().ravel().astype(np.int64)
        x, asked = (_vectors(part[: depth + 1], most) for part in counted)
        for cost in COSTS:
            machine = _fitted(x, known, kernel, cost, balance, ignorant)
            said = machine.decide(asked)
            value = quality(outputs(said), validation, metric)
            if best is None or value > best:
                parameters: dict[str, Any] = {"depth": depth, "kernel": kernel, "cost": cost}
                best, found = value, (machine, said, most, parameters)
    machine, said, most, parameters = found
    temperature = 1.0
    if scale is None:
        wanted = as_targets(validation.y, validation.num_outputs)
        temperature = fit_temperature(outputs(said), wanted, validation.task)
    dictionary = replace(dictionary, levels=dictionary.levels[: parameters["depth"]])
    config = Baseline.described(name, train, parameters)
    return Subtrees.of(config, machine, dictionary, most, temperature, scale)


fit_assignment = partial(fit, name="wl-oa")
"""Fit SVMs with the optimal assignment kernel."""


class _Level(NamedTuple):
    """The patterns of one level in some graphs."""

    known: csr_array  # how often each pattern of the dictionary occurs, [graphs, patterns]
    counts: Floats  # the sum of all counts of each graph, also of unknown patterns
    squares: Floats  # the sum of their squares


def _counted(dictionary: Dictionary, store: GraphStore) -> list[_Level]:
    batch, numbers = dictionary.numbers(store)
    graph = np.repeat(np.arange(len(store), dtype=np.int32), np.diff(batch.ptr))
    found = []
    for width, number in zip(dictionary.widths, numbers, strict=True):
        # Liblinear requires 32-bit indices.
        places = (graph, number.astype(np.int32))
        shape = (len(store), max(width, 1 + int(number.max())))
        counts = csr_array((np.ones(len(number)), places), shape=shape)
        found.append(_Level(counts[:, :width], counts.sum(1), counts.power(2).sum(1)))
    return found


def _vectors(levels: Sequence[_Level], most: Ints | None) -> csr_array:
    """Return vectors of unit length, so that the size of a graph does not matter."""
    counts = hstack([level.known for level in levels], "csr")
    if most is None:
        length = np.sqrt(sum(level.squares for level in levels))
    else:
        counts = _ones(counts, most)
        length = np.sqrt(sum(level.counts for level in levels))
    return csr_array(counts.multiply((1 / length)[:, None]))


def _ones(counts: csr_array, most: Ints) -> csr_array:
    """Replace each count by as many ones; a pattern has ``most`` columns."""
    first = np.concatenate(([0], np.cumsum(most)))
    times = np.minimum(counts.data.astype(np.int64), most[counts.indices])
    ends = np.cumsum(times)
    column = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - times, times)
    column = column + np.repeat(first[counts.indices], times)
    ptr = np.concatenate(([0], ends))[counts.indptr].astype(np.int32)
    shape = (counts.shape[0], int(first[-1]))
    return csr_array((np.ones(len(column)), column.astype(np.int32), ptr), shape=shape)


class Machines(NamedTuple):
    """Fitted SVMs as arrays: one for all classes, or one for each label or value.

    With a linear kernel there are coefficients; with the RBF kernel, machine m has the support
    vectors ``support[ptr[m]:ptr[m + 1]]``, sorted by class.
    """

    task: str
    prior: Floats  # what is said of outputs without a machine
    learned: Ints  # the classes of the only machine, or the outputs that have one
    intercept: npt.NDArray[np.float64]  # [machines, decisions]
    coefficients: npt.NDArray[np.float64] | None = None  # [machines, decisions, columns]
    vectors: csr_array | None = None
    ptr: Ints = np.zeros(1, np.int64)
    support: Ints = np.zeros(0, np.int64)
    dual: npt.NDArray[np.float64] = np.zeros((1, 0))  # [classes - 1, all support vectors]
    sizes: Ints = np.zeros((0, 0), np.int64)  # support vectors, [machines, classes]

    def of(self, number: int) -> tuple[csr_array, npt.NDArray[np.float64]]:
        """Return the support vectors and dual coefficients of a machine."""
        assert self.vectors is not None
        here = slice(self.ptr[number], self.ptr[number + 1])
        return self.vectors[self.support[here]], np.ascontiguousarray(self.dual[:, here])

    def values(self, x: csr_array, number: int) -> Floats:
        """Return the decisions of a machine, ``[graphs, decisions]``."""
        if self.coefficients is not None:
            found: Floats = x @ self.coefficients[number].T + self.intercept[number]
            return found
        vectors, dual = self.of(number)
        return one_against_one(_rbf(x, vectors), dual, self.intercept[number], self.sizes[number])

    def decide(self, x: csr_array) -> Floats:
        """Return decisions that are logits but for their scale, ``[graphs, outputs]``."""
        said: Floats = np.tile(self.prior, (x.shape[0], 1))
        for number in range(len(self.intercept)):
            values = self.values(x, number)
            if self.task != "multiclass":
                said[:, self.learned[number]] = values[:, 0]
                continue
            if len(self.learned) == 2:
                values = np.concatenate([-values / 2, values / 2], axis=1)
            elif self.coefficients is None:
                values = _one_against_rest(values, len(self.learned))
            # Classes without training graphs get the lowest value.
            said[:] = values.min(1, keepdims=True) - 1
            said[:, self.learned] = values
        return said


def _one_against_rest(pairs: Floats, classes: int) -> Floats:
    """Votes of the pairs of classes, and less than half a vote for how clear they are."""
    votes, sums = np.zeros((2, len(pairs), classes))
    for k, (one, two) in enumerate(combinations(range(classes), 2)):
        sums[:, one] += pairs[:, k]
        sums[:, two] -= pairs[:, k]
        votes[pairs[:, k] >= 0, one] += 1
        votes[pairs[:, k] < 0, two] += 1
    found: Floats = votes + sums / (3 * (np.abs(sums) + 1))
    return found


def _fitted(
    x: csr_array, train: GraphStore, kernel: str, cost: float, balance: bool, ignorant: Floats
) -> Machines:
    """Fit one SVM to the classes, or one to each label or value where it is known."""
    machines: list[tuple[Any, Ints]] = []
    learned: list[int] = []
    for problem in problems(train, balance):
        if len(np.unique(problem.y)) < 2:
            continue
        machine = _machine(train.task, kernel, cost)
        rows = x[problem.rows]
        given = rows if kernel == "linear" else _rbf(rows, rows)
        machine.fit(given, problem.y, sample_weight=problem.weight)
        machines.append((machine, problem.rows))
        whole = train.task == "multiclass"
        learned += machine.classes_.tolist() if whole else [problem.columns.start]
    tell = np.array(learned, np.int64)
    if not machines:
        return Machines(train.task, ignorant, tell, np.zeros((0, 1)), np.zeros((0, 1, x.shape[1])))
    intercept = np.stack([np.atleast_1d(one.intercept_) for one, _ in machines])
    if kernel == "linear":
        coefficients = np.stack([np.atleast_2d(one.coef_) for one, _ in machines])
        return Machines(train.task, ignorant, tell, intercept, coefficients)
    support = [rows[one.support_] for one, rows in machines]
    kept, places = np.unique(np.concatenate(support), return_inverse=True)
    sizes = [one.n_support_[: 1 if train.task == "regression" else None] for one, _ in machines]
    return Machines(
        train.task,
        ignorant,
        tell,
        intercept,
        vectors=x[kept],
        ptr=np.cumsum([0, *map(len, support)]),
        support=places.ravel(),
        dual=np.concatenate([one.dual_coef_ for one, _ in machines], axis=1),
        sizes=np.stack(sizes).astype(np.int64),
    )


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
    """exp(-‖x - y‖²) of vectors of unit length."""
    found: Floats = np.exp(2 * ((one @ two.T).toarray() - 1))
    return found


def _offsets(ptr: npt.NDArray[Any], end: int) -> bool:
    return bool(len(ptr) and ptr[0] == 0 and ptr[-1] == end and (np.diff(ptr) >= 0).all())


class Subtrees(Baseline):
    """SVMs as arrays, with the dictionary of patterns that they read."""

    reading = "subtree patterns"

    @classmethod
    def of(
        cls,
        config: Mapping[str, Any],
        machines: Machines,
        dictionary: Dictionary,
        most: Ints | None,
        temperature: float,
        scale: TargetScale | None,
    ) -> Subtrees:
        """Collect the arrays."""
        outputs = len(machines.prior)
        arrays = {
            "prior": machines.prior,
            "learned": machines.learned,
            "intercept": machines.intercept,
            "temperature": np.array([temperature]),
            "mean": np.zeros(outputs) if scale is None else scale.mean.numpy(),
            "std": np.ones(outputs) if scale is None else scale.std.numpy(),
            "degrees": np.array([dictionary.degrees]),
        }
        for name in ("nodes", "bonds"):
            labels: Labels = getattr(dictionary, name)
            arrays |= {f"{name}_columns": labels.columns, f"{name}_rows": labels.rows}
        for number, level in enumerate(dictionary.levels):
            arrays |= {f"level{number}_{key}": each for key, each in level._asdict().items()}
        if most is not None:
            arrays["most"] = most
        if machines.coefficients is not None:
            return cls(config, arrays | {"coefficients": machines.coefficients})
        assert machines.vectors is not None
        arrays |= {name: getattr(machines, name) for name in ("ptr", "support", "dual", "sizes")}
        arrays |= {
            "vector_ptr": machines.vectors.indptr.astype(np.int64),
            "vector_column": machines.vectors.indices.astype(np.int32),
            "vector_value": machines.vectors.data,
        }
        return cls(config, arrays)

    def _has(self, name: str) -> bool:
        return any(name == key for key, _ in self.named_buffers())

    @property
    def _most(self) -> Ints | None:
        return self.array("most") if self._has("most") else None

    @cached_property
    def dictionary(self) -> Dictionary:
        """The patterns of the training graphs."""
        nodes, bonds = (
            Labels(self.array(f"{name}_columns"), self.array(f"{name}_rows"))
            for name in ("nodes", "bonds")
        )
        levels = tuple(
            Patterns(*(self.array(f"level{number}_{key}") for key in Patterns._fields))
            for number in range(int(self.chosen["depth"]))
        )
        return Dictionary(nodes, bonds, int(self.array("degrees")[0]), levels)

    @cached_property
    def machines(self) -> Machines:
        """The SVMs."""
        names = ("prior", "learned", "intercept", "coefficients", *_SUPPORT[:4])
        shared: dict[str, Any] = {name: self.array(name) for name in names if self._has(name)}
        if self._has("coefficients"):
            return Machines(task=self.task, **shared)
        most = self._most
        width = sum(self.dictionary.widths) if most is None else int(most.sum())
        parts = tuple(self.array(f"vector_{name}") for name in ("value", "column", "ptr"))
        vectors = csr_array(parts, shape=(len(parts[2]) - 1, width))
        return Machines(task=self.task, vectors=vectors, **shared)

    def check(self) -> None:  # noqa: D102
        arrays = {name: each.numpy() for name, each in self.named_buffers()}
        depth: Any = self.chosen.get("depth")
        fits = isinstance(depth, int) and 0 <= depth < len(arrays)
        names = {"prior", "learned", "intercept", "temperature", "mean", "std", "degrees", "most"}
        names |= {f"{kind}_{part}" for kind in ("nodes", "bonds") for part in ("columns", "rows")}
        names |= {f"level{n}_{key}" for n in range(depth if fits else 0) for key in _PATTERNS}
        names |= {"coefficients"} if "coefficients" in arrays else {*_SUPPORT}
        fits = fits and names - {"most"} <= arrays.keys() <= names
        whole = {"learned", "degrees", "most", "ptr", "support", "sizes", "vector_ptr"}
        for name, array in arrays.items():
            exact = name in whole or name.endswith("_columns") or name.startswith("level")
            kind = "int32" if name == "vector_column" else "int64" if exact else "float64"
            fits = fits and str(array.dtype) == kind
            fits = fits and (exact or within(array, -1e100, 1e100))
        if "vector_value" in arrays:
            fits = fits and within(arrays["vector_value"], 0, 1.001)
        if not (fits and self._labels_fit() and self._machines_fit()):
            raise ValueError("the arrays of the support vector machines do not fit one another")

    def _labels_fit(self) -> bool:
        """Whether the dictionary from a file can be used."""
        if self.array("degrees").shape != (1,):
            return False
        patterns, features = self.dictionary, (self.in_features, self.edge_features)
        for labels, width in zip((patterns.nodes, patterns.bonds), features, strict=True):
            columns, rows = labels.columns, labels.rows
            if columns.ndim != 1 or rows.ndim != 2:
                return False
            if len(columns) != rows.shape[1] or not within(columns, 0, width - 1):
                return False
        if any(array.ndim != 1 for level in patterns.levels for array in level):
            return False
        if not 0 <= patterns.degrees <= _MOST_COLUMNS or not all(
            map(check_patterns, patterns.levels)
        ):
            return False
        most = self._most
        if most is None:
            return True
        return most.shape == (sum(patterns.widths),) and within(most, 0, _MOST_COLUMNS - 1)

    def _machines_fit(self) -> bool:
        """Whether the SVMs from a file can be used with the dictionary."""
        most, outputs, whole = self._most, self.num_outputs, self.task == "multiclass"
        width = sum(self.dictionary.widths) if most is None else int(most.sum())
        learned, shape = self.array("learned"), self.array("intercept").shape
        if width > _MOST_COLUMNS or learned.ndim != 1 or len(shape) != 2:
            return False
        classes = len(learned) if whole else 1 if self.task == "regression" else 2
        decisions = 1 if classes < 3 else classes
        if "coefficients" not in dict(self.named_buffers()):
            decisions = max(1, classes * (classes - 1) // 2)
        count = shape[0] if whole else len(learned)
        wanted: dict[str, tuple[int, ...]] = {
            **dict.fromkeys(("prior", "mean", "std"), (outputs,)),
            "temperature": (1,),
            "intercept": (count, decisions),
        }
        fits = count <= 1 and (len(learned) > 1) == bool(count) if whole else True
        fits = fits and within(learned, 0, outputs - 1) and len(np.unique(learned)) == len(learned)
        if self._has("coefficients"):
            wanted["coefficients"] = (count, decisions, width)
        else:
            vectors, total = len(self.array("vector_ptr")) - 1, len(self.array("support"))
            used = len(self.array("vector_value"))
            wanted |= {
                "ptr": (count + 1,), "support": (total,), "sizes": (count, classes),
                "dual": (max(1, classes - 1), total), "vector_ptr": (vectors + 1,),
                "vector_column": (used,), "vector_value": (used,),
            }  # fmt: skip
        fits = fits and all(self.array(name).shape == size for name, size in wanted.items())
        fits = fits and bool((self.array("std") > 0).all() and self.array("temperature")[0] > 0)
        if fits and not self._has("coefficients"):
            ptr, sizes = self.array("ptr"), self.array("sizes")
            fits = (
                _offsets(ptr, total)
                and _offsets(self.array("vector_ptr"), used)
                and within(self.array("support"), 0, vectors - 1)
                and within(self.array("vector_column"), 0, width - 1)
                and bool((sizes >= 0).all() and (sizes.sum(1) == np.diff(ptr)).all())
            )
        return bool(fits)

    def logits(self, store: GraphStore) -> Tensor:  # noqa: D102
        found = []
        for piece in torch.split(torch.arange(len(store)), _AT_ONCE):
            levels = _counted(self.dictionary, store.subset(piece))
            found.append(self.machines.decide(_vectors(levels, self._most)))
        said = outputs(np.concatenate(found))
        if self.task == "regression":
            return TargetScale(self.get_buffer("mean"), self.get_buffer("std")).undo(said)
        return said / float(self.array("temperature")[0])

    def explain(self, store: GraphStore, number: int, output: int) -> Share:
        """Divide a decision: of a class against the others, of a label, or of a value.

        A node has the part of the patterns around it. Of the RBF kernel, that is the part of the
        first order: a pattern's count times the derivative by it, with the length kept.
        """
        graph, machines, most = store.subset([number]), self.machines, self._most
        batch, numbers = self.dictionary.numbers(graph)
        x = _vectors(_counted(self.dictionary, graph), most)
        nodes = np.zeros(batch.num_nodes)
        place = np.flatnonzero(machines.learned == output)
        if not len(place):
            base = float(machines.prior[output])
            return Share(nodes, 0.0, base, base)
        which = 0 if self.task == "multiclass" else int(place[0])
        values = machines.values(x, which)[0]
        signs = self._signs(int(place[0]), len(values))
        total = float(values @ signs)
        if machines.coefficients is not None:
            slope = signs @ machines.coefficients[which]
            base = float(signs @ machines.intercept[which])
        else:
            vectors, dual = machines.of(which)
            weight = np.zeros(vectors.shape[0])
            kernel, classes = _rbf(x, vectors)[0], machines.sizes[which]
            starts = np.cumsum(classes) - classes
            pairs = list(combinations(range(len(classes)), 2)) or [(0, 1)]
            for sign, (one, two) in zip(signs, pairs, strict=True):
                for own, other in ((one, two - 1), (two, one)):
                    if own < len(classes):
                        here = slice(starts[own], starts[own] + classes[own])
                        weight[here] += sign * dual[other, here]
            slope = vectors.T @ (2 * weight * kernel)
            base = total - float((x @ slope)[0])
        worth = np.zeros(x.shape[1])
        worth[x.indices] = x.data * slope[x.indices]
        first = np.cumsum([0, *self.dictionary.widths])
        if most is not None:  # of all ones of a pattern
            worth = np.add.reduceat(np.append(worth, 0.0), np.cumsum(most) - most) * (most > 0)
        for start, width, node in zip(first, self.dictionary.widths, numbers, strict=False):
            times = np.bincount(node, minlength=width)
            seen = node < width
            nodes[seen] += worth[start + node[seen]] / times[node[seen]]
        return Share(nodes, 0.0, base, total)

    def _signs(self, place: int, decisions: int) -> Floats:
        """How the decisions of a machine add up to that for one of its classes."""
        if self.task != "multiclass":
            return np.ones(1)
        classes = len(self.machines.learned)
        if classes == 2:
            return np.array([1.0 if place else -1.0])
        if self.machines.coefficients is not None:
            return np.equal(np.arange(classes), place).astype(np.float64)
        pairs = combinations(range(classes), 2)
        return np.array([(one == place) * 1.0 - (two == place) for one, two in pairs])
