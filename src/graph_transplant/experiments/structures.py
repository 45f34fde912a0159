"""Graphs of a store taken apart as they are drawn, and their labels in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from graph_transplant.errors import DataError
from graph_transplant.experiments.shown import Structure
from graph_transplant.graphs import GraphBatch, GraphStore
from graph_transplant.kernels import structure
from graph_transplant.kernels.compiling import Bools

# What the columns of the two molecule sets mean whose readme says so; their files hold numbers.
_TU_ELEMENTS: Final = {
    "MUTAG": ("C", "N", "O", "F", "I", "Cl", "Br"),
    "Mutagenicity": (
        *("C", "O", "Cl", "H", "N", "F", "Br"),
        *("S", "P", "I", "Na", "K", "Li", "Ca"),
    ),
}
_TU_ORDERS: Final = {"MUTAG": (1.5, 1.0, 2.0, 3.0), "Mutagenicity": (1.0, 2.0, 3.0)}

NO_LABEL: Final = "none of the labels"
"""What a graph without any label is called."""

LABELLED: Final = 0.5
"""The target of a given label, and its predicted probability, is at least this."""


def graph_id(store: GraphStore, number: int) -> str:
    """What a graph is called: its id, or its number counted from 1."""
    if store.rows is None:
        return str(number + 1)
    return store.rows.ids[number] or str(int(store.rows.number[number]))


def output_words(task: str, names: Sequence[str], values: Sequence[float]) -> str:
    """Write one row of targets or outputs: the likeliest class, the given labels, or all values.

    Values that are NaN are not known and left out.

    Example:
        >>> output_words("multilabel", ["a", "b", "c"], [0.9, 0.6, 0.2])
        'a, b'
    """
    if task == "multiclass":
        return names[max(range(len(names)), key=values.__getitem__)]
    pairs = list(zip(names, values, strict=True))
    if task == "multilabel":
        return ", ".join(name for name, value in pairs if value >= LABELLED) or NO_LABEL
    return ", ".join(f"{name} {value:.4g}" for name, value in pairs if not math.isnan(value))


def label_words(store: GraphStore, number: int) -> str | None:
    """Write the true label or value of a graph; ``None`` where it is not known."""
    names = store.output_names
    if store.task == "multiclass":
        return None if store.num_outputs < 2 else names[int(store.y[number])]
    values = store.y[number].reshape(-1).tolist()
    return None if all(map(math.isnan, values)) else output_words(store.task, names, values)


def structures(
    batch: GraphBatch, store: GraphStore, *, there: Bools | None = None
) -> list[Structure]:
    """Take the graphs of a batch apart as they are drawn.

    Args:
        batch: Graphs of the store, or graphs with the same features.
        store: Says how features were read and whether edges have directions.
        there: Which edges of the batch are there at all, bool ``[edges]``. (default: all)
    """
    names, molecule = _node_names(batch, store)
    orders = _orders(batch, store) if molecule else None
    row, column = structure.rows_of(batch.row_ptr), batch.column
    # Both directions of an undirected edge are there: draw the one that goes up.
    first, second = (row, column) if store.undirected else (column, row)
    shown = first <= second if store.undirected else np.ones(batch.num_edges, np.bool_)
    if there is not None:
        shown = shown & there
    found = []
    for start, end in pairwise(batch.ptr.tolist()):
        before = batch.row_ptr[start]
        edges = before + np.flatnonzero(shown[before : batch.row_ptr[end]])
        pairs = np.stack((first[edges], second[edges]), axis=1) - start
        bonds = () if orders is None else tuple(orders[edge] for edge in edges.tolist())
        found.append(
            Structure(
                names=tuple(names[start:end]),
                edges=tuple((one, two) for one, two in pairs.tolist()),
                orders=bonds if set(bonds) != {1.0} else (),
                molecule=molecule,
                directed=not store.undirected,
            )
        )
    return found


def atoms_of(batch: GraphBatch, store: GraphStore) -> tuple[list[str], list[float]] | None:
    """The element of every node and the bond order of every edge, 1 where that is not known.

    ``None`` if the graphs are not known to be molecules.

    Example:
        >>> from graph_transplant.datasets.molecules import from_smiles
        >>> store = from_smiles(["C=O"])
        >>> atoms_of(store.batch([0]), store)
        (['C', 'O'], [2.0, 2.0])
    """
    names, molecule = _node_names(batch, store)
    if not molecule:
        return None
    return names, _orders(batch, store) or [1.0] * batch.num_edges


def _node_names(batch: GraphBatch, store: GraphStore) -> tuple[list[str], bool]:
    """Names of all nodes of a batch, and whether these are the elements of molecules.

    A featurizer may come from anywhere: one that does not fit the features names nothing.
    """
    nameless = [""] * batch.num_nodes, False
    featurizer = store.featurizer
    if batch.x is None:
        return nameless
    from graph_transplant.datasets.molecules import node_names, one_hot_names

    x = batch.x.cpu()
    if featurizer is not None and featurizer.kind == "molecules":
        try:
            return node_names(x, featurizer), True
        except DataError:
            return nameless
    elements = _TU_ELEMENTS.get(store.name)
    if elements is not None and x.shape[1] == len(elements):
        return one_hot_names(x, elements, "?"), True
    if featurizer is not None and featurizer.node_labels:
        labels, numbers = featurizer.node_labels, featurizer.node_numbers
        if x.shape[1] - numbers == len(labels):
            return one_hot_names(x[:, numbers:], labels, ""), False
    return nameless


def _orders(batch: GraphBatch, store: GraphStore) -> list[float] | None:
    """Bond orders of all edges of a batch of molecules."""
    attr = batch.edge_attr
    if attr is None:
        return None
    attr = attr.cpu()
    if store.featurizer is not None:
        from graph_transplant.datasets.molecules import bond_orders

        try:
            return bond_orders(attr, store.featurizer)
        except DataError:  # as for the names
            return None
    orders = _TU_ORDERS[store.name]
    if attr.shape[1] != len(orders):
        return None
    return [orders[place] for place in attr.argmax(1).tolist()]
