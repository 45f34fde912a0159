"""Graphs that occur more than once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from graph_transplant.datasets.chemistry import chemistry, molecule_of, quiet
from graph_transplant.datasets.molecules import ATOM_CATEGORIES, BOND_CATEGORIES
from graph_transplant.graphs import GraphStore


def duplicate_groups(store: GraphStore) -> Tensor | None:
    """Find graphs that occur more than once.

    Molecules are identical if their canonical SMILES are; other graphs if their features and edges
    are, node for node.

    Returns:
        The same number for identical graphs, int64 ``[graphs]``; ``None`` if all differ.

    Example:
        >>> from graph_transplant.datasets.molecules import from_smiles
        >>> duplicate_groups(from_smiles(["CCO", "C", "OCC"]))
        tensor([0, 1, 0])
    """
    if store.duplicates is None:
        store.duplicates = find_duplicates(store)
    return None if len(torch.unique(store.duplicates)) == len(store) else store.duplicates


def find_duplicates(store: GraphStore) -> Tensor:
    """The same number for graphs that are the same, int64 ``[graphs]``."""
    return _same_molecules(store) if store.has_structures else _identical_graphs(store)


def _same_molecules(store: GraphStore) -> Tensor:
    assert store.rows is not None
    assert store.featurizer is not None
    # RDKit takes longest, so it only sees molecules of which another one has the same structure.
    # Which way a centre turns depends on the order in which its neighbours are written.
    ogb = store.featurizer.features == "ogb"
    handed = range(ATOM_CATEGORIES[0], sum(ATOM_CATEGORIES[:2])) if ogb else ()
    stereo = range(BOND_CATEGORIES[0], sum(BOND_CATEGORIES[:2])) if ogb else ()
    _, key, count = torch.unique(
        structure_keys(store, handed, stereo), return_inverse=True, return_counts=True
    )
    alone = (count[key] == 1).tolist()
    chem = chemistry()
    with quiet():
        return _numbered(
            graph if alone[graph] else chem.MolToSmiles(molecule_of(chem, text))
            for graph, text in enumerate(store.rows.texts)
        )


def _identical_graphs(store: GraphStore) -> Tensor:
    """Number graphs by the bytes of their features and edges, node for node."""
    keys = []
    for piece in store.pieces():
        tables = [(piece.edge_index.T, piece.edge_ptr), (piece.edge_attr, piece.edge_ptr)]
        tables.append((piece.x, piece.node_ptr))
        parts = [np.split(t.numpy(), ptr[1:-1].tolist()) for t, ptr in tables if t is not None]
        keys += [
            hash((nodes, *(part.tobytes() for part in graph)))
            for nodes, *graph in zip(piece.node_counts.tolist(), *parts, strict=True)
        ]
    return _numbered(keys)


def structure_keys(
    store: GraphStore,
    ignore_node: Sequence[int] = (),
    ignore_edge: Sequence[int] = (),
    rounds: int = 2,
) -> Tensor:
    """Hash graphs so that isomorphic ones have equal keys, int64 ``[graphs]``.

    Rounds of Weisfeiler-Lehman over the features, but for some columns that are ignored.
    """
    of_nodes, of_edges = _weights(store.num_node_features, store.num_edge_features)
    of_nodes[list(ignore_node)] = 0
    of_edges[list(ignore_edge)] = 0
    keys = []
    for piece in store.pieces():
        base = torch.repeat_interleave(piece.node_ptr[:-1], piece.edge_counts)
        receiver, sender = piece.field("edge_index").long() + base
        node = _weighted(piece, "x", of_nodes, int(piece.node_counts.sum()))
        edge = _weighted(piece, "edge_attr", of_edges, len(base))
        for _ in range(rounds):
            near = _mixed(node[sender] + edge)
            node = _mixed(node + torch.zeros_like(node).index_add_(0, receiver, near))
        keys.append(_summed(node, piece.node_counts))
    return torch.cat(keys)


def _numbered(names: Iterable[Hashable]) -> Tensor:
    """Number names from 0 in the order in which they come."""
    numbers: dict[Hashable, int] = {}
    return torch.tensor([numbers.setdefault(name, len(numbers)) for name in names])


def _weights(*sizes: int) -> list[Tensor]:
    random = np.random.default_rng(0)
    return [torch.from_numpy(random.integers(1 << 62, size=size)) for size in sizes]


def _weighted(piece: GraphStore, key: str, weights: Tensor, rows: int) -> Tensor:
    """Weighted sums of the features of nodes or edges, int64 with overflow."""
    if not weights.any():
        return torch.ones(rows, dtype=torch.long)
    # The same numbers have the same bits, in whatever type they are stored.
    values = piece.field(key).to(torch.float32).view(torch.int32)
    return torch.from_numpy(values.numpy().astype(np.int64) @ weights.numpy())


def _summed(values: Tensor, counts: Tensor) -> Tensor:
    graph = torch.repeat_interleave(torch.arange(len(counts)), counts)
    return torch.zeros(len(counts), dtype=torch.long).index_add_(0, graph, values)


def _mixed(values: Tensor) -> Tensor:
    """Scramble bits, so that different sums do not cancel out."""
    values = (values ^ (values >> 31)) * 0x7FB5D329728EA185
    return values ^ (values >> 27)
