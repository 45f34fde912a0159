"""Graphs of a store taken apart as they are drawn, and their labels in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import compress, pairwise
from typing import Final

import numpy as np
import torch
from torch import Tensor

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
"""The target of a given label is above this; its predicted probability is at least this."""

_AT_ONCE: Final = 256


# -------------------------------------------------------------------- words


def output_names(store: GraphStore) -> tuple[str, ...]:
    """Say what the outputs of a data set are called; numbers where it does not say.

    Args:
        store: The data set.

    Example:
        >>> import graph_transplant as gt
        >>> output_names(gt.load("motifs", graphs=12))[:2]
        ('house', 'five-cycle')
    """
    if store.label_names is not None:
        return store.label_names
    if store.task == "multiclass":
        return tuple(str(number) for number in range(store.num_outputs))
    word = "label" if store.task == "multilabel" else "value"
    return tuple(f"{word} {number}" for number in range(1, store.num_outputs + 1))


def graph_id(store: GraphStore, number: int) -> str:
    """What a graph is called: its id, or its number counted from 1.

    Args:
        store: The graphs.
        number: Number of the graph, from 0.
    """
    if store.rows is None:
        return str(number + 1)
    return store.rows.ids[number] or str(int(store.rows.number[number]))


def value_words(names: Sequence[str], values: Sequence[float]) -> str:
    """Write regression values with their names.

    Example:
        >>> value_words(["pIC50", "logP"], [7.25, float("nan")])
        'pIC50 7.25'
    """
    return ", ".join(
        f"{name} {value:.4g}"
        for name, value in zip(names, values, strict=True)
        if not math.isnan(value)
    )


def label_words(store: GraphStore, number: int) -> str | None:
    """Write the true label or value of a graph; ``None`` where it is not known.

    Args:
        store: The graphs.
        number: Number of the graph, from 0.

    Example:
        >>> import graph_transplant as gt
        >>> label_words(gt.load("motifs", graphs=12), 0)
        'house'
    """
    names = output_names(store)
    if store.task == "multiclass":
        return None if store.num_outputs < 2 else names[int(store.y[number])]
    values = [float(value) for value in store.y[number].reshape(-1)]
    if all(math.isnan(value) for value in values):
        return None
    if store.task == "regression":
        return value_words(names, values)
    return ";".join(n for n, v in zip(names, values, strict=True) if v > LABELLED) or NO_LABEL


def prediction_words(task: str, names: Sequence[str], outputs: Tensor) -> list[str]:
    """Write what a model predicts.

    Args:
        task: What the outputs are.
        names: Of the outputs.
        outputs: Probabilities, or values in the units of the data, float ``[graphs, outputs]``.

    Returns:
        The likeliest class of every graph, the labels it is given, or its values.

    Example:
        >>> prediction_words("multilabel", ["a", "b"], torch.tensor([[0.9, 0.6], [0.1, 0.2]]))
        ['a, b', 'none of the labels']
    """
    if task == "regression":
        return [value_words(names, row) for row in outputs.tolist()]
    if task == "multiclass":
        return [names[place] for place in outputs.argmax(1).tolist()]
    given = (outputs >= LABELLED).tolist()
    return [", ".join(compress(names, row)) or NO_LABEL for row in given]


# -------------------------------------------------------------------- structure


def structures(store: GraphStore, batch_size: int = _AT_ONCE) -> Iterator[Structure]:
    """Take graphs out of a store as they are drawn.

    Args:
        store: The graphs.
        batch_size: Graphs at a time.

    Example:
        >>> import graph_transplant as gt
        >>> first = next(structures(gt.load("motifs", graphs=12)))
        >>> first.molecule, first.directed
        (False, False)
    """
    for batch in store.batches(torch.arange(len(store)), batch_size):
        for graph, _ in structures_of(batch, store):
            yield graph


def structures_of(
    batch: GraphBatch, store: GraphStore, *, there: Bools | None = None
) -> list[tuple[Structure, list[int]]]:
    """Take the graphs of a batch apart as they are drawn.

    Args:
        batch: Graphs of the store, or graphs with the same features.
        store: Says how features were read and whether edges have directions.
        there: Which edges of the batch are there at all, bool ``[edges]``. (default: all)

    Returns:
        Each graph, and the number in the batch of each of its drawn edges.

    Example:
        >>> import graph_transplant as gt
        >>> motifs = gt.load("motifs", graphs=12)
        >>> [(graph, edges)] = structures_of(motifs.batch([0]), motifs)
        >>> len(graph.edges) == len(edges)
        True
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
        found.append(
            (
                Structure(
                    names=tuple(names[start:end]),
                    edges=tuple((one, two) for one, two in pairs.tolist()),
                    orders=tuple(
                        1.0 if orders is None else float(orders[edge]) for edge in edges.tolist()
                    ),
                    molecule=molecule,
                    directed=not store.undirected,
                ),
                edges.tolist(),
            )
        )
    return found


def atoms_of(batch: GraphBatch, store: GraphStore) -> tuple[list[str], list[float]] | None:
    """Say which elements and bonds the nodes and edges of a batch are.

    Args:
        batch: Graphs of the store, or graphs with the same features.
        store: Says how features were read.

    Returns:
        The symbol of every node and the bond order of every edge, 1 where that is not known;
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
    """Names of all nodes of a batch, and whether these are the elements of molecules."""
    nodes = batch.num_nodes
    reading = store.reading or {}
    x = batch.x
    if x is None:
        return [""] * nodes, False
    from graph_transplant.datasets.molecules import node_names, one_hot_names

    x = x.cpu()
    if reading.get("kind") == "molecules":
        try:
            return node_names(x, reading), True
        except DataError:
            # Anybody may write a reading into a store: one that does not fit the features names
            # nothing, and a comparison does not end for want of names.
            return [""] * nodes, False
    elements = _TU_ELEMENTS.get(store.name)
    if elements is not None and x.shape[1] == len(elements):
        return one_hot_names(x, elements, "?"), True
    labels, numbers = reading.get("node_labels"), reading.get("node_numbers") or 0
    # As above: a reading that does not fit the features names nothing.
    if (
        reading.get("kind") == "graphs"
        and isinstance(labels, list | tuple)
        and isinstance(numbers, int)
        and numbers >= 0
        and labels
        and x.shape[1] - numbers == len(labels)
    ):
        return one_hot_names(x[:, numbers:], [str(label) for label in labels], ""), False
    return [""] * nodes, False


def _orders(batch: GraphBatch, store: GraphStore) -> list[float] | None:
    """Bond orders of all edges of a batch of molecules."""
    attr = batch.edge_attr
    if attr is None:
        return None
    attr = attr.cpu()
    if store.reading is not None:
        from graph_transplant.datasets.molecules import bond_orders

        try:
            return bond_orders(attr, store.reading)
        except DataError:  # as for the names above
            return None
    orders = _TU_ORDERS[store.name]
    if attr.shape[1] != len(orders):
        return None
    return [orders[place] for place in attr.argmax(1).tolist()]
