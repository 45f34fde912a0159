"""Which graphs a model was trained on, as short hashes that ``model.json`` keeps."""

from __future__ import annotations

import base64
from typing import Final

import numpy as np

from graph_transplant.datasets.duplicates import structure_keys
from graph_transplant.errors import DataError
from graph_transplant.graphs import GraphStore

MOST: Final = 180_000
"""With more training graphs than this none are kept: they would take more than 1 MB."""

_ROUNDS: Final = 8  # two rounds do not tell the isomers of a chain apart


def packed(store: GraphStore, edge_features: int) -> str | None:
    """Hash training graphs; ``edge_features`` is how many of them the network looks at."""
    if len(store) > MOST:
        return None
    return base64.b64encode(np.unique(_hashes(store, edge_features)).tobytes()).decode()


def seen(text: str | None, store: GraphStore, edge_features: int) -> list[bool] | None:
    """Whether graphs are among those that were packed; ``None`` where that is not known."""
    if not text:
        return None
    try:
        known = np.frombuffer(base64.b64decode(text, validate=True), dtype="<u4")
    except ValueError:
        raise DataError("the model is damaged: `training_graphs` cannot be read") from None
    found: list[bool] = np.isin(_hashes(store, edge_features), known).tolist()
    return found


def _hashes(store: GraphStore, edge_features: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    ignored = () if edge_features else range(store.num_edge_features)
    keys = structure_keys(store, ignore_edge=ignored, rounds=_ROUNDS).numpy()
    return (keys.view(np.uint64) >> np.uint64(32)).astype("<u4")
