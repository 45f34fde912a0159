"""Similarity to the training graphs: Tanimoto similarity of circular fingerprints, and equality.

A bit stands for the environment of a node up to two steps away, as in ECFP4. Fingerprints use the
features that the model reads: they work for any graph, and molecules are not parsed a second time,
which would take a quarter of the prediction time.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graph_transplant.datasets.duplicates import structure_keys
from graph_transplant.datasets.molecules import BOND_STEREO, CHIRALITY
from graph_transplant.errors import DataError
from graph_transplant.graphs import GraphStore
from graph_transplant.kernels.compiling import compiled

BITS: Final = 2048
RADIUS: Final = 2

MOST_SEEN: Final = 180_000
"""With more training graphs than this, no hashes are kept: they would take more than 1 MB."""

_ROUNDS: Final = 8  # two rounds do not distinguish the isomers of a chain

Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


def label_columns(store: GraphStore) -> tuple[Mask, Mask]:
    """Which node and edge features are labels: integers that are not marked as continuous."""
    of_nodes = np.arange(store.num_node_features) >= store.num_continuous
    of_edges = np.ones(store.num_edge_features, np.bool_)
    how = store.featurizer
    if how is not None and how.kind == "molecules":
        of_nodes[CHIRALITY] = of_edges[BOND_STEREO] = False  # as in ECFP4
    for piece in store.pieces():
        for key, whole in (("x", of_nodes), ("edge_attr", of_edges)):
            if whole.any() and (values := piece.field(key)).is_floating_point():
                whole &= (values == values.round()).all(0).numpy()
    return of_nodes, of_edges


def fingerprints(store: GraphStore, of_nodes: Mask, of_edges: Mask) -> Words:
    """Return fingerprints, uint64 ``[graphs, 32]``, from labels, or degrees without labels."""
    random, parts = np.random.default_rng(0), []
    of_node, of_edge = (
        np.where(mask, random.integers(1 << 62, size=len(mask)), 0).astype(np.uint64)
        for mask in (of_nodes, of_edges)
    )
    for piece in store.pieces():
        batch = piece.batch(np.arange(len(piece)))
        node = np.diff(batch.row_ptr).astype(np.uint64)
        edge = np.zeros(batch.num_edges, np.uint64)
        # Weighted sums of bit patterns, modulo 2^64. Adding 0 turns negative zeros into zeros.
        if batch.x is not None and of_nodes.any():
            node = (batch.x + 0.0).numpy().view(np.uint32).astype(np.uint64) @ of_node
        if batch.edge_attr is not None and of_edges.any():
            edge = (batch.edge_attr + 0.0).numpy().view(np.uint32).astype(np.uint64) @ of_edge
        parts.append(_circles(batch.ptr, batch.row_ptr, batch.column, node, edge))
    return np.concatenate(parts)


@compiled
def _mixed(value: Any) -> Any:
    value = (value ^ (value >> np.uint64(31))) * np.uint64(0x7FB5D329728EA185)
    return value ^ (value >> np.uint64(27))


@compiled
def _circles(
    ptr: npt.NDArray[np.int64],
    row_ptr: npt.NDArray[np.int64],
    column: npt.NDArray[np.int64],
    node: Words,
    edge: Words,
) -> Words:
    """Set the bits of every node's environments of radius 0, 1 and 2."""
    found = np.zeros((len(ptr) - 1, BITS // 64), np.uint64)
    before, after = node, np.zeros_like(node)
    for radius in range(RADIUS + 1):
        for graph in range(len(ptr) - 1):
            for v in range(ptr[graph], ptr[graph + 1]):
                around = before[v] + np.uint64(radius)
                if radius:
                    for e in range(row_ptr[v], row_ptr[v + 1]):
                        around += _mixed(before[column[e]] + edge[e])
                after[v] = _mixed(around)
                bit = after[v] >> np.uint64(53)
                found[graph, bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
        before = after.copy()
    return found


@compiled
def _ones(word: Any) -> Any:
    """Count the set bits of a word; compiles to one instruction."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    pairs = np.uint64(0x3333333333333333)
    word = (word & pairs) + ((word >> np.uint64(2)) & pairs)
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@compiled
def nearest(rows: Words, known: Words) -> npt.NDArray[np.float64]:
    """Return the highest Tanimoto similarity of each row to any known one."""
    sizes = np.zeros(len(known), np.int64)
    for k in range(len(known)):
        for word in known[k]:
            sizes[k] += np.int64(_ones(word))
    found = np.zeros(len(rows))
    for row in range(len(rows)):
        own = np.int64(0)
        for word in rows[row]:
            own += np.int64(_ones(word))
        for k in range(len(known)):
            # At most the bits of the smaller one are shared.
            if min(own, sizes[k]) <= found[row] * max(own, sizes[k]):
                continue
            shared = np.int64(0)
            for w in range(rows.shape[1]):
                shared += np.int64(_ones(rows[row, w] & known[k, w]))
            found[row] = max(found[row], shared / (own + sizes[k] - shared))
    return found


def packed(store: GraphStore, edge_features: int) -> str | None:
    """Hash training graphs; ``edge_features`` is the number that the network uses."""
    if len(store) > MOST_SEEN:
        return None
    return base64.b64encode(np.unique(_keys(store, edge_features)).tobytes()).decode()


def seen(text: str | None, store: GraphStore, edge_features: int) -> list[bool] | None:
    """Whether each graph is among the packed ones; ``None`` if unknown."""
    if not text:
        return None
    try:
        known = np.frombuffer(base64.b64decode(text, validate=True), dtype="<u4")
    except ValueError:
        raise DataError("the model is damaged: `training_graphs` cannot be read") from None
    found: list[bool] = np.isin(_keys(store, edge_features), known).tolist()
    return found


def _keys(store: GraphStore, edge_features: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    node = edge = slice(0)
    if store.featurizer is not None and store.featurizer.kind == "molecules":
        # The first columns stay, so that keys in older models still match flat molecules.
        node, edge = (slice(each.start + 1, each.stop) for each in (CHIRALITY, BOND_STEREO))
    keys = structure_keys(store, node, edge if edge_features else slice(None), _ROUNDS).numpy()
    return (keys.view(np.uint64) >> np.uint64(32)).astype("<u4")
