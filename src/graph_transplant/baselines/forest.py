"""Random forest on circular fingerprints of molecules, or on statistics of other graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from graph_transplant.baselines import BaselinePredictions, BaselineTask
from graph_transplant.baselines.problems import Floats, as_logits, outputs, prior, problems
from graph_transplant.data import GraphStore
from graph_transplant.datasets.chemistry import chemistry, is_block

TREES = 500
FINGERPRINT_BINS = 2048
RADIUS = 2
"""ECFP4: a diameter of four bonds."""

DEGREES = 16
"""Nodes are counted by degree up to this one, which includes all higher degrees."""

Features = npt.NDArray[np.float32]


def fit_predict(given: BaselineTask) -> BaselinePredictions:
    """Fit a random forest and predict."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    train, balance = given.train, given.balance
    kind = RandomForestRegressor if train.task == "regression" else RandomForestClassifier
    describe = fingerprints if train.has_structures else statistics
    known, *asked = (describe(part) for part in (train, given.validation, given.test))
    ignorant = prior(train, balance)
    said: list[Floats] = [np.tile(ignorant, (len(part), 1)) for part in asked]
    for problem in problems(train, balance):
        if not len(problem.rows):
            continue
        # For regression a third of the columns is usual, but slow with 2,048.
        forest = kind(TREES, max_features="sqrt", random_state=given.seed, n_jobs=1)
        forest.fit(known[problem.rows], problem.y, sample_weight=problem.weight)
        for part, values in zip(asked, said, strict=True):
            values[:, problem.columns] = _answers(forest, part, ignorant[problem.columns])
    held_out, tested = map(outputs, said)
    return BaselinePredictions(held_out, tested, {"trees": TREES, "features": describe.__name__})


def _answers(forest: Any, x: Features, ignorant: Floats) -> Floats:
    """Return logits or values; an extra tree that votes by the prior avoids zero probabilities."""
    if not hasattr(forest, "classes_"):
        values: Floats = forest.predict(x)[:, None]
        return values
    labels = len(ignorant) == 1
    if labels:
        share = 1 / (1 + np.exp(-ignorant[0]))
        last = np.array([1 - share, share])
    else:
        last = np.exp(ignorant)
    votes = np.tile(last, (len(x), 1))
    votes[:, forest.classes_] += TREES * forest.predict_proba(x)
    return as_logits(votes / (TREES + 1), "multilabel" if labels else "multiclass")


def fingerprints(store: GraphStore) -> Features:
    """Return folded ECFP4 counts of circular environments, ``[graphs, 2048]``."""
    chem = chemistry()
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator
    from rdkit.rdBase import BlockLogs

    generator = GetMorganGenerator(radius=RADIUS, fpSize=FINGERPRINT_BINS)
    texts = store.rows.texts if store.rows is not None else ()
    found = np.empty((len(texts), FINGERPRINT_BINS), np.float32)
    with BlockLogs():
        for number, text in enumerate(texts):
            # All texts have been parsed before, so none is invalid.
            block = is_block(text)
            molecule = chem.MolFromMolBlock(text) if block else chem.MolFromSmiles(text.strip())
            found[number] = generator.GetCountFingerprintAsNumPy(molecule)
    return found


def statistics(store: GraphStore) -> Features:
    """Return descriptive statistics of graphs, ``[graphs, columns]``.

    Numbers of nodes and edges, density, number of components; number and share of nodes with each
    degree; sum, mean, spread, minimum and maximum of degrees, triangles, clustering coefficients
    and continuous node features; sum and mean of other node features and of edge features. Degrees
    count incoming edges; triangles, clustering and components ignore directions.
    """
    return np.concatenate([_piece(piece) for piece in store.pieces()]).astype(np.float32)


def _piece(store: GraphStore) -> Floats:
    batch = store.batch(np.arange(len(store)))
    nodes, degree = np.diff(batch.ptr).astype(float), np.diff(batch.row_ptr)
    edges = np.add.reduceat(degree, batch.ptr[:-1]).astype(float)
    shape = (batch.num_nodes, batch.num_nodes)
    adjacency = csr_array((np.ones(batch.num_edges), batch.column, batch.row_ptr), shape=shape)
    simple: Any = adjacency + adjacency.T
    simple.setdiag(0)
    simple.eliminate_zeros()
    simple.data[:] = 1
    around = np.diff(simple.indptr)
    triangles = ((simple @ simple) * simple).sum(1) / 2
    clustering = triangles / np.maximum(around * (around - 1) / 2, 1)
    _, component = connected_components(simple, directed=False)
    graph = np.repeat(np.arange(len(store)), np.diff(batch.ptr))
    components = np.bincount(graph[np.unique(component, return_index=True)[1]])
    counted = np.zeros((len(store), DEGREES + 1))
    np.add.at(counted, (graph, np.minimum(degree, DEGREES)), 1)
    parts = [
        np.stack([nodes, edges, edges / nodes**2, components], axis=1),
        counted,
        counted / nodes[:, None],
        _moments(np.stack([degree, triangles, clustering], axis=1), batch.ptr),
    ]
    if store.x is not None:
        x = store.x.double().numpy()
        parts.append(_moments(x[:, : store.num_continuous], batch.ptr))
        parts += _sums(x[:, store.num_continuous :], batch.ptr, nodes)
    if store.edge_attr is not None:
        parts += _sums(store.edge_attr.double().numpy(), store.edge_ptr.numpy(), edges)
    return np.concatenate(parts, axis=1)


def _sums(values: Floats, ptr: npt.NDArray[np.int64], counts: Floats) -> list[Floats]:
    """Sum and mean over the rows of each graph, which may have none."""
    total = np.zeros((1 + len(values), values.shape[1]))
    np.cumsum(values, axis=0, out=total[1:])
    sums = total[ptr[1:]] - total[ptr[:-1]]
    return [sums, sums / np.maximum(counts, 1)[:, None]]


def _moments(values: Floats, ptr: npt.NDArray[np.int64]) -> Floats:
    """Sum, mean, standard deviation, minimum and maximum over the nodes of each graph."""
    starts, counts = ptr[:-1], np.diff(ptr)[:, None]
    total = np.add.reduceat(values, starts, axis=0)
    mean = total / counts
    squares = np.add.reduceat((values - np.repeat(mean, counts[:, 0], axis=0)) ** 2, starts, axis=0)
    least = np.minimum.reduceat(values, starts, axis=0)
    most = np.maximum.reduceat(values, starts, axis=0)
    return np.concatenate([total, mean, np.sqrt(squares / counts), least, most], axis=1)
