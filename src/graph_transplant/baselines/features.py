"""What a forest reads: fingerprints and descriptors of molecules, statistics of other graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from graph_transplant.data import GraphStore
from graph_transplant.datasets.chemistry import chemistry, descriptors, quiet, standard

FINGERPRINT_BINS = 2048
RADIUS = 2
"""ECFP4: a diameter of four bonds."""

DEGREES = 16
"""Nodes are counted by degree up to this one, which includes all higher degrees."""

Features = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]


def features(store: GraphStore, kind: str) -> Features:
    """Return ``"fingerprints"``, ``"descriptors"``, ``"both"`` or ``"statistics"`` of graphs."""
    if kind == "statistics":
        return statistics(store)
    parts = []
    if kind != "descriptors":
        parts.append(fingerprints(store))
    if kind != "fingerprints":
        add_descriptors(store)
        assert store.descriptors is not None
        parts.append(store.descriptors.numpy())
    return np.concatenate(parts, axis=1)


def add_descriptors(store: GraphStore, **options: Any) -> None:
    """Compute the descriptors of molecules, unless the store has them."""
    if store.descriptors is None and store.rows is not None:
        store.descriptors = torch.from_numpy(descriptors(store.rows.texts, **options))


def fingerprints(store: GraphStore) -> Features:
    """Return folded ECFP4 counts of circular environments, ``[graphs, 2048]``."""
    generator = _generator()
    texts = store.rows.texts if store.rows is not None else ()
    found = np.empty((len(texts), FINGERPRINT_BINS), np.float32)
    chem = chemistry()
    with quiet():
        for number, text in enumerate(texts):
            found[number] = generator.GetCountFingerprintAsNumPy(standard(chem, text))
    return found


def _generator() -> Any:
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    return GetMorganGenerator(radius=RADIUS, fpSize=FINGERPRINT_BINS)


def environments(text: str) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.bool_]]]:
    """Return the bit of every circular environment of a molecule, and the atoms in it."""
    from rdkit.Chem import GetDistanceMatrix
    from rdkit.Chem.rdFingerprintGenerator import AdditionalOutput

    molecule, more = standard(chemistry(), text), AdditionalOutput()
    more.AllocateBitInfoMap()
    _generator().GetCountFingerprint(molecule, additionalOutput=more)
    distance = GetDistanceMatrix(molecule)
    found = [
        (bit, distance[atom] <= radius)
        for bit, where in more.GetBitInfoMap().items()
        for atom, radius in where
    ]
    return np.array([bit for bit, _ in found], np.int64), [atoms for _, atoms in found]


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
