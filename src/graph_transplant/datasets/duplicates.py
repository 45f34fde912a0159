"""Graphs that occur more than once, and molecules of several fragments."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from graph_transplant.datasets.molecules import (
    ATOM_CATEGORIES,
    BOND_CATEGORIES,
    chemistry,
    molecule_of,
    quiet,
)
from graph_transplant.graphs import GraphStore


def duplicate_groups(store: GraphStore) -> Tensor | None:
    """Find graphs that occur more than once.

    Molecules are the same if their canonical SMILES are; other graphs if features and edges are,
    node for node. The answer is kept as ``store.groups``.

    Returns:
        The same number for graphs that are the same, int64 ``[graphs]``; ``None`` if all differ.

    Example:
        >>> duplicate_groups(from_smiles(["CCO", "C", "OCC"]))
        tensor([0, 1, 0])
    """
    if store.groups is None:
        rows, featurizer = store.rows, store.featurizer
        known = rows is not None and all(rows.texts)
        if known and featurizer is not None and featurizer.kind == "molecules":
            store.groups = _same_molecules(store)
        else:
            store.groups = _identical_graphs(store)
    return None if int(store.groups.max()) == len(store) - 1 else store.groups


def _same_molecules(store: GraphStore) -> Tensor:
    assert store.rows is not None
    assert store.featurizer is not None
    # RDKit takes longest, so it only sees molecules of which another one has the same structure.
    # Which way a centre turns depends on the order in which its neighbours are written.
    ogb = store.featurizer.features == "ogb"
    handed = range(ATOM_CATEGORIES[0], sum(ATOM_CATEGORIES[:2])) if ogb else ()
    stereo = range(BOND_CATEGORIES[0], sum(BOND_CATEGORIES[:2])) if ogb else ()
    _, key, count = torch.unique(
        _structure_keys(store, handed, stereo), return_inverse=True, return_counts=True
    )
    chem = chemistry()
    numbers: dict[str | int, int] = {}
    found = []
    with quiet():
        for graph, (text, alone) in enumerate(
            zip(store.rows.texts, (count[key] == 1).tolist(), strict=True)
        ):
            name = graph if alone else chem.MolToSmiles(molecule_of(chem, text))
            found.append(numbers.setdefault(name, len(numbers)))
    return torch.tensor(found)


def count_mixtures(store: GraphStore) -> int:
    """Count the graphs that are not connected: salts and mixtures, if these are molecules."""
    mixtures = 0
    for piece in store.pieces():
        base = torch.repeat_interleave(piece.node_ptr[:-1], piece.edge_counts)
        ends = (piece.field("edge_index") + base).numpy()
        nodes = int(piece.node_counts.sum())
        joined = coo_array((np.ones(ends.shape[1], dtype=np.int8), ends), shape=(nodes, nodes))
        _, component = connected_components(joined, directed=False)
        graph = np.repeat(np.arange(len(piece)), piece.node_counts.numpy())
        _, first = np.unique(component, return_index=True)
        mixtures += int((np.bincount(graph[first]) > 1).sum())
    return mixtures


def _identical_graphs(store: GraphStore) -> Tensor:
    """Give graphs with equal features and edges, node for node, the same number.

    Numbers count from 0 in the order of their first graphs, int64 ``[graphs]``.
    """
    numbers: dict[bytes, int] = {}
    found = []
    for piece in store.pieces():
        features = {k: piece.field(k).numpy() for k in ("x", "edge_attr") if k in piece.fields}
        ends = piece.field("edge_index").t().contiguous().numpy()
        nodes, edges = piece.node_ptr.tolist(), piece.edge_ptr.tolist()
        for graph in range(len(piece)):
            at_node = slice(nodes[graph], nodes[graph + 1])
            at_edge = slice(edges[graph], edges[graph + 1])
            digest = hashlib.blake2b(str(at_node.stop - at_node.start).encode(), digest_size=16)
            digest.update(ends[at_edge].tobytes())
            for key, values in features.items():
                digest.update(values[at_node if key == "x" else at_edge].tobytes())
            found.append(numbers.setdefault(digest.digest(), len(numbers)))
    return torch.tensor(found)


def _structure_keys(
    store: GraphStore, ignore_node: Sequence[int] = (), ignore_edge: Sequence[int] = ()
) -> Tensor:
    """Hash graphs so that isomorphic ones have equal keys, int64 ``[graphs]``.

    Two rounds of Weisfeiler-Lehman over one-hot features, but for some columns that are ignored.
    """
    random = np.random.default_rng(0)

    def weights(columns: int, ignored: Sequence[int]) -> Tensor:
        drawn = torch.from_numpy(random.integers(1 << 62, size=columns))
        drawn[list(ignored)] = 0
        return drawn

    of_nodes = weights(store.num_node_features, ignore_node)
    of_edges = weights(store.num_edge_features, ignore_edge)
    found = []
    for piece in store.pieces():
        receiver, sender = piece.field("edge_index").long()
        base = torch.repeat_interleave(piece.node_ptr[:-1], piece.edge_counts)
        receiver, sender = receiver + base, sender + base
        node = _weighted(piece, "x", of_nodes, int(piece.node_counts.sum()))
        edge = _weighted(piece, "edge_attr", of_edges, len(base))
        for _ in range(2):
            near = _mixed(node[sender] + edge)
            node = _mixed(node + torch.zeros_like(node).index_add_(0, receiver, near))
        graph = torch.repeat_interleave(torch.arange(len(piece)), piece.node_counts)
        found.append(torch.zeros(len(piece), dtype=torch.long).index_add_(0, graph, node))
    return torch.cat(found)


def _weighted(piece: GraphStore, key: str, weights: Tensor, rows: int) -> Tensor:
    """Weighted sums of the features of nodes or edges, int64 with overflow."""
    if not len(weights):
        return torch.ones(rows, dtype=torch.long)
    return torch.from_numpy(piece.field(key).numpy().astype(np.int64) @ weights.numpy())


def _mixed(values: Tensor) -> Tensor:
    """Scramble bits, so that different sums do not cancel out."""
    values = (values ^ (values >> 31)) * 0x7FB5D329728EA185
    return values ^ (values >> 27)
