"""Similarity to the training graphs: Tanimoto similarity of circular fingerprints, and equality.

A bit stands for the environment of a node up to two steps away, as in ECFP4. Fingerprints use the
features that the model reads: they work for any graph, and molecules are not parsed a second time,
which would take a quarter of the prediction time.
"""

from __future__ import annotations

import base64
from typing import Final

import numpy as np
import numpy.typing as npt

from graph_transplant.datasets.duplicates import structure_keys
from graph_transplant.datasets.molecules import BOND_STEREO, CHIRALITY
from graph_transplant.errors import DataError
from graph_transplant.graphs import GraphStore
from graph_transplant.kernels.fingerprints import circles

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
        parts.append(circles(batch.ptr, batch.row_ptr, batch.column, node, edge))
    return np.concatenate(parts)


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
