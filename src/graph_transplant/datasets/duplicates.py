"""Duplicate graphs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
import torch
from torch import Tensor

from graph_transplant.data import GraphStore
from graph_transplant.datasets.chemistry import chemistry, molecule_of, quiet
from graph_transplant.datasets.molecules import BOND_STEREO, CHIRALITY


def duplicate_groups(store: GraphStore) -> Tensor | None:
    """Group identical graphs by number, int64 ``[graphs]``; ``None`` if all differ.

    Molecules are compared by canonical SMILES, other graphs by features and edges, node for node.

    Example:
        >>> from graph_transplant.datasets.molecules import from_smiles
        >>> duplicate_groups(from_smiles(["CCO", "C", "OCC"]))
        tensor([0, 1, 0])
    """
    if store.duplicates is None:
        store.duplicates = find_duplicates(store)
    return None if len(torch.unique(store.duplicates)) == len(store) else store.duplicates


def find_duplicates(store: GraphStore) -> Tensor:
    """Group identical graphs by number, int64 ``[graphs]``."""
    return _same_molecules(store) if store.has_structures else _identical_graphs(store)


def _same_molecules(store: GraphStore) -> Tensor:
    assert store.rows is not None
    # RDKit is slow, so only molecules with the same structure key get a canonical SMILES.
    keys = structure_keys(store, CHIRALITY, BOND_STEREO)
    _, key, count = torch.unique(keys, return_inverse=True, return_counts=True)
    alone = (count[key] == 1).tolist()
    chem = chemistry()
    with quiet():
        return numbered(
            graph if alone[graph] else chem.MolToSmiles(molecule_of(chem, text))
            for graph, text in enumerate(store.rows.texts)
        )


def _identical_graphs(store: GraphStore) -> Tensor:
    keys = []
    for piece in store.pieces():
        tables = [(piece.edge_index.T, piece.edge_ptr), (piece.edge_attr, piece.edge_ptr)]
        tables.append((piece.x, piece.node_ptr))
        # Added zeros turn -0.0 into 0.0: equal numbers need equal bits.
        parts = [
            np.split((t + 0).numpy(), ptr[1:-1].tolist()) for t, ptr in tables if t is not None
        ]
        keys += [
            hash((nodes, *(part.tobytes() for part in graph)))
            for nodes, *graph in zip(piece.node_counts.tolist(), *parts, strict=True)
        ]
    return numbered(keys)


def structure_keys(
    store: GraphStore,
    ignore_node: slice = slice(0),
    ignore_edge: slice = slice(0),
    rounds: int = 2,
) -> Tensor:
    """Weisfeiler-Lehman hashes, equal for isomorphic graphs, int64 ``[graphs]``.

    ``ignore_node`` and ``ignore_edge`` are feature columns to leave out.
    """
    of_nodes, of_edges = _weights(store.num_node_features, store.num_edge_features)
    of_nodes[ignore_node] = 0
    of_edges[ignore_edge] = 0
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


def numbered(names: Iterable[Hashable]) -> Tensor:
    """Number names from 0 in order of first occurrence."""
    numbers: dict[Hashable, int] = {}
    return torch.tensor([numbers.setdefault(name, len(numbers)) for name in names])


def _weights(*sizes: int) -> list[Tensor]:
    random = np.random.default_rng(0)
    return [torch.from_numpy(random.integers(1 << 62, size=size)) for size in sizes]


def _weighted(piece: GraphStore, key: str, weights: Tensor, rows: int) -> Tensor:
    """Weighted sums of the features of nodes or edges, int64 with overflow."""
    if not weights.any():
        return torch.ones(rows, dtype=torch.long)
    # As float32 and without negative zeros, so that equal numbers have equal bits.
    values = (piece.field(key).to(torch.float32) + 0).view(torch.int32)
    return torch.from_numpy(values.numpy().astype(np.int64) @ weights.numpy())


def _summed(values: Tensor, counts: Tensor) -> Tensor:
    graph = torch.repeat_interleave(torch.arange(len(counts)), counts)
    return torch.zeros(len(counts), dtype=torch.long).index_add_(0, graph, values)


def _mixed(values: Tensor) -> Tensor:
    """Scramble bits, so that sums do not cancel out."""
    values = (values ^ (values >> 31)) * 0x7FB5D329728EA185
    return values ^ (values >> 27)
