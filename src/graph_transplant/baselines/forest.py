"""Random forest on fingerprints and descriptors of molecules, or on statistics of other graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graph_transplant.baselines import BaselineTask
from graph_transplant.baselines.features import (
    FINGERPRINT_BINS,
    Features,
    environments,
    features,
)
from graph_transplant.baselines.model import Baseline, Share, within
from graph_transplant.baselines.problems import (
    Floats,
    Problem,
    as_logits,
    outputs,
    prior,
    problems,
    quality,
)
from graph_transplant.data import GraphStore
from graph_transplant.datasets.chemistry import descriptor_names
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.kernels.baselines import Trees, tree_contributions, tree_means

TREES = 500
"""More trees do not make a forest worse; from a few hundred on, they hardly make it better."""

TRIED = 100
"""Trees while the settings are chosen, which become the first of the 500."""

READ = ("both", "descriptors", "fingerprints")
SHARES = ("log2", "sqrt")

CLEARLY = 0.01
"""By so much other settings must be better than the first ones: one point, as between methods."""

_PARTS = {
    **dict.fromkeys(("both", "statistics"), slice(None)),
    "descriptors": slice(FINGERPRINT_BINS, None),
    "fingerprints": slice(FINGERPRINT_BINS),
}
_AT_ONCE = 512


def fit(given: BaselineTask) -> Forest:
    """Fit a random forest with the best settings.

    Settings are judged by the graphs that trees have not seen: the validation graphs, and training
    graphs by the trees whose samples they are not in, each graph with the same weight. Validation
    graphs alone are too few: on Tox21 NR-AhR chance would choose.

    - 500 fully grown trees, as is usual for molecules: averaging does what pruning would.
    - Molecules are read as counted Morgan fingerprints of radius 2 in 2,048 bins (ECFP4: no wider
      radius or table has been shown to be better at this size) and as RDKit's descriptors. Which
      helps differs: on the scaffold folds of ClinTox descriptors alone reach 0.85 AUROC and
      fingerprints alone 0.75, on BACE 0.87 and 0.88. So both are read unless one alone is clearly
      better. Other graphs are described by statistics.
    - ``Ipc`` and ``AvgIpc`` are left out: they depend on the order of the atoms. Gaps are filled
      with the median of the training graphs, since few molecules have any. Columns that are
      constant in training are dropped, as they would only use up the columns tried at a split.
    - ``max_features``, the number of columns tried at a split, is their binary logarithm or their
      square root if that is clearly better. The logarithm suits many columns of which most are
      informative and takes half the time; the root suits few.
    """
    train, validation, metric, balance, seed = given
    every = list(problems(train, balance))
    ignorant = prior(train, balance)
    read = READ if train.has_structures else ("statistics",)
    whole, held_out = (features(part, read[0]) for part in (train, validation))
    best = None
    for kind, share in product(read, SHARES):
        table, asked = _Table.of(whole[:, _PARTS[kind]]), held_out[:, _PARTS[kind]]
        grown = [_grown(problem, table, train.task, share, seed) for problem in every]
        parameters = {"trees": TREES, "features": kind, "max_features": share}
        tried = _made(train, ignorant, every, grown, table, parameters)
        parts = (
            (tried.answers(asked), validation),
            (_unseen(train, ignorant, every, grown, table), train),
        )
        value = sum(quality(outputs(said), part, metric) * len(part) for said, part in parts)
        value /= len(validation) + len(train)
        value += CLEARLY if best is None else 0.0
        if best is None or value > best:
            best, chosen = value, (grown, table, parameters)
    grown, table, parameters = chosen
    for forest, problem in zip(grown, every, strict=True):
        if forest is not None and TREES > TRIED:
            forest.set_params(n_estimators=TREES)  # the same trees as fitting all at once
            forest.fit(table.x[problem.rows], problem.y, sample_weight=problem.weight)
    return _made(train, ignorant, every, grown, table, parameters)


class _Table(NamedTuple):
    """What a forest is fitted to."""

    x: Features  # without gaps and constant columns
    columns: npt.NDArray[np.int64]  # of these columns
    fill: Features  # what gaps of all columns are filled with

    @classmethod
    def of(cls, x: Features) -> _Table:
        gaps = np.isnan(x)
        fill = np.zeros(x.shape[1], np.float32)
        for column in np.flatnonzero(gaps.any(0) & ~gaps.all(0)):
            fill[column] = np.median(x[~gaps[:, column], column])
        x = np.where(gaps, fill, x)
        columns = np.flatnonzero(x.min(0) < x.max(0))
        if not len(columns):  # a forest needs one
            columns = np.arange(1)
        return cls(np.ascontiguousarray(x[:, columns]), columns, fill)


def _grown(problem: Problem, table: _Table, task: str, share: str, seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    if not len(problem.rows):
        return None
    kind = RandomForestRegressor if task == "regression" else RandomForestClassifier
    count = min(TRIED, TREES)
    forest = kind(count, max_features=share, random_state=seed, n_jobs=1, warm_start=True)
    return forest.fit(table.x[problem.rows], problem.y, sample_weight=problem.weight)


def _unseen(
    train: GraphStore, ignorant: Floats, every: list[Problem], grown: list[Any], table: _Table
) -> Floats:
    """Predict each training graph by the trees that were grown without it."""
    found: Floats = np.tile(ignorant, (len(train), 1))
    for number, (problem, forest) in enumerate(zip(every, grown, strict=True)):
        if forest is None:
            continue
        x, classes = table.x[problem.rows], getattr(forest, "classes_", slice(None))
        total, times = np.zeros((len(x), _width(train.task, train.num_outputs))), np.zeros(len(x))
        for tree, drawn in zip(forest.estimators_, forest.estimators_samples_, strict=True):
            left = np.setdiff1d(np.arange(len(x)), drawn)
            if len(left):
                values = np.zeros((len(left), total.shape[1]))
                values[:, classes] = tree.tree_.predict(x[left]).reshape(len(left), -1)
                total[left] += values
                times[left] += 1
        if train.task == "regression":
            found[problem.rows, number] = (ignorant[number] + total[:, 0]) / (times + 1)
        else:
            shares = (_last_vote(train.task, ignorant, number) + total) / (times[:, None] + 1)
            found[problem.rows, problem.columns] = as_logits(shares, train.task)
    return found


def _last_vote(task: str, ignorant: Floats, number: int) -> Floats:
    """The vote of one more tree, which knows only the prior: so no probability is zero."""
    if task == "multiclass":
        return np.exp(ignorant)
    share = 1 / (1 + np.exp(-ignorant[number]))
    return np.array([1 - share, share])


def _made(
    train: GraphStore,
    ignorant: Floats,
    every: list[Problem],
    grown: list[Any],
    table: _Table,
    parameters: Mapping[str, Any],
) -> Forest:
    """Collect the trees of fitted forests, one for each problem that has training graphs."""
    width = _width(train.task, train.num_outputs)
    parts: dict[str, list[npt.NDArray[Any]]] = {
        name: [] for name in ("column", "right", "threshold", "value")
    }
    counts = []
    for forest in grown:
        for one in () if forest is None else forest.estimators_:
            tree = one.tree_
            leaf = tree.children_left < 0
            value = np.zeros((tree.node_count, width))
            value[:, getattr(forest, "classes_", slice(None))] = tree.value[:, 0]
            column = np.where(leaf, -1, table.columns[tree.feature * ~leaf])
            parts["column"].append(column.astype(np.int32))
            parts["right"].append(tree.children_right.astype(np.int32))
            parts["threshold"].append(np.where(leaf, 0.0, tree.threshold))
            parts["value"].append(value)
            counts.append(tree.node_count)
    arrays = {name: np.concatenate(part) for name, part in parts.items()}
    arrays |= {
        "ptr": np.cumsum([0, *counts]),
        "known": np.array([forest is not None for forest in grown]),
        "prior": ignorant,
        "fill": table.fill.astype(np.float64),
    }
    config = Baseline.described("forest", train, parameters)
    if parameters["features"] in ("both", "descriptors"):
        config["descriptors"] = [*descriptor_names()]
    return Forest(config, arrays)


def _width(task: str, num_outputs: int) -> int:
    """How many numbers a leaf holds."""
    return {"regression": 1, "multilabel": 2}.get(task, num_outputs)


class Forest(Baseline):
    """Forests as arrays, one forest for all classes, or one for each label or value."""

    reading = "tree paths"

    def check(self) -> None:  # noqa: D102
        arrays = {name: each.numpy() for name, each in self.named_buffers()}
        ptr, column, right = arrays["ptr"], arrays["column"], arrays["right"]
        nodes, columns, known = len(column), self.array("fill").size, int(arrays["known"].sum())
        wanted = {
            "ptr": (len(ptr),), "column": (nodes,), "right": (nodes,), "threshold": (nodes,),
            "value": (nodes, _width(self.task, self.num_outputs)),
            "known": (1 if self.task == "multiclass" else self.num_outputs,),
            "prior": (self.num_outputs,), "fill": (columns,),
        }  # fmt: skip
        types = {"column": "int32", "right": "int32", "ptr": "int64", "known": "bool"}
        fits = arrays.keys() == wanted.keys() and all(
            arrays[name].shape == shape and str(arrays[name].dtype) == types.get(name, "float64")
            for name, shape in wanted.items()
        )
        named = self._bins + len(self._config.get("descriptors", ()))
        fits = fits and self._reads in _PARTS and (self._reads == "statistics" or columns == named)
        fits = fits and (len(ptr) > 1) == (known > 0) and (len(ptr) - 1) % max(1, known) == 0
        counts = np.diff(ptr)
        fits = fits and ptr[0] == 0 and ptr[-1] == nodes and bool((counts > 0).all())
        if fits and self.task != "regression":  # shares, and log-odds of shares
            fits = within(arrays["value"], 0, 1) and within(arrays["prior"], -700, 700)
        fits = fits and within(arrays["value"], -1e100, 1e100)
        fits = fits and within(arrays["fill"], *np.finfo(np.float32).max * np.array([-1.0, 1.0]))
        if fits and nodes:
            place, size = np.arange(nodes) - np.repeat(ptr[:-1], counts), np.repeat(counts, counts)
            # Children come after their parent, so that every path ends in a leaf.
            inside = (column < columns) & (right > place + 1) & (right < size)
            fits = bool((inside | (column < 0)).all())
        if not fits:
            raise ValueError("the arrays of the trees do not fit one another")

    @property
    def _trees(self) -> int:
        """Number of trees of each forest."""
        return (len(self.array("ptr")) - 1) // max(1, int(self.array("known").sum()))

    @property
    def _reads(self) -> str:
        return str(self.chosen.get("features"))

    @property
    def _bins(self) -> int:
        return FINGERPRINT_BINS if self._reads in ("both", "fingerprints") else 0

    def check_graphs(self, store: GraphStore) -> None:  # noqa: D102
        if self._reads == "statistics":
            return
        if not store.has_structures:
            raise DataError(
                f"{store.name}: a forest on molecules reads their SMILES, which these graphs do "
                "not have: name the table or SDF file that they come from"
            )
        lacking = set(self._config.get("descriptors", ())) - set(descriptor_names())
        if lacking:
            raise DataError(
                f"this version of RDKit lacks descriptors that the forest reads: "
                f"{', '.join(sorted(lacking)[:5])}"
            )

    def _features(self, store: GraphStore) -> Features:
        found = features(store, self._reads)
        if self._config.get("descriptors", ()):
            here = {name: self._bins + place for place, name in enumerate(descriptor_names())}
            places = [here[name] for name in self._config.get("descriptors", ())]
            found = found[:, [*range(self._bins), *places]]
        return found

    def _forests(self) -> Iterator[tuple[int, Trees | None]]:
        """Yield the number of every problem and its trees."""
        first = 0
        for number, known in enumerate(self.array("known").tolist()):
            if not known:
                yield number, None
                continue
            ptr = self.array("ptr")[first : first + self._trees + 1]
            nodes = slice(ptr[0], ptr[-1])
            names = ("column", "right", "threshold", "value")
            yield number, Trees(ptr - ptr[0], *(self.array(name)[nodes] for name in names))
            first += self._trees

    def _filled(self, x: Features) -> Features:
        """Fill the gaps, which only descriptors have."""
        gaps = np.isnan(x[:, self._bins :])
        if not gaps.any():
            return x
        fill = self.array("fill").astype(np.float32)
        return np.where(np.isnan(x), fill, x)

    def answers(self, x: Features) -> Floats:
        """Return logits or values of rows of features."""
        x = self._filled(x)
        ignorant = self.array("prior")
        found: Floats = np.tile(ignorant, (len(x), 1))
        for number, trees in self._forests():
            if trees is None:
                continue
            means = tree_means(trees, x)
            if self.task == "regression":
                found[:, number] = means[:, 0]
                continue
            shares = (_last_vote(self.task, ignorant, number) + self._trees * means) / (
                self._trees + 1
            )
            if self.task == "multiclass":
                found = as_logits(shares, self.task)
            else:
                found[:, number] = as_logits(shares, self.task)[:, 0]
        return found

    def logits(self, store: GraphStore) -> Tensor:  # noqa: D102
        self.check_graphs(store)
        parts = torch.split(torch.arange(len(store)), _AT_ONCE)
        return torch.cat([outputs(self.answers(self._features(store.subset(p)))) for p in parts])

    def explain(self, store: GraphStore, number: int, output: int) -> Share:
        """Divide the share of votes for a class or label, or a value.

        Every split of every tree moves the mean of the training graphs by some amount. What splits
        by a bit of the fingerprint that the molecule sets add up to is divided among the
        environments that set it, and then among the atoms of each; what splits by descriptors and
        by bits that are not set add up to is the rest.
        """
        if self._reads == "statistics":
            raise GraphTransplantError(
                "a forest on statistics of whole graphs has no values for nodes: `explain` needs a "
                "network, a Weisfeiler-Lehman kernel, or a forest on molecules"
            )
        graph = store.subset([number])
        x = self._features(graph)
        x = self._filled(x)
        problem, column = (0, output) if self.task == "multiclass" else (output, 1)
        column = 0 if self.task == "regression" else column
        trees = dict(self._forests())[problem]
        nodes = np.zeros(int(graph.node_counts[0]))
        if trees is None:
            base = float(self.array("prior")[output])
            base = (
                base
                if self.task == "regression"
                else float(_last_vote(self.task, self.array("prior"), problem)[column])
            )
            return Share(nodes, 0.0, base, base)
        added = tree_contributions(trees, x[0], column)
        total = float(tree_means(trees, x)[0, column])
        if self.task != "regression":
            weight, last = (
                self._trees / (self._trees + 1),
                _last_vote(self.task, self.array("prior"), problem)[column],
            )
            added, total = weight * added, weight * total + last / (self._trees + 1)
            added[-1] += last / (self._trees + 1)
        base = float(added[-1])
        if self._bins and graph.rows is not None:
            bits, around = environments(graph.rows.texts[0])
            times = np.bincount(bits, minlength=self._bins)
            for bit, atoms in zip(bits, around, strict=True):
                nodes[atoms] += added[bit] / times[bit] / atoms.sum()
        return Share(nodes, float(added[:-1].sum() - nodes.sum()), base, total)
