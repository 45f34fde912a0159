"""Graphs of a store as structures to draw, and their labels in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from torch import Tensor

from graph_transplant.analysis.samples import edges_there
from graph_transplant.augment import MixedGraphs
from graph_transplant.datasets.molecules import (
    BOND_CATEGORIES,
    SYMBOLS,
    atom_names,
    bond_orders,
    node_names,
    one_hot_names,
)
from graph_transplant.graphs import Featurizer, GraphBatch, GraphStore
from graph_transplant.kernels import structure
from graph_transplant.kernels.arrays import Bools, Ints
from graph_transplant.shown import Mixture, Part, Structure

# Elements and bond orders of the columns, from the readmes; the files only hold numbers.
_TU_ELEMENTS: Final = {
    "MUTAG": ("C", "N", "O", "F", "I", "Cl", "Br"),
    "Mutagenicity": (
        *("C", "O", "Cl", "H", "N", "F", "Br"),
        *("S", "P", "I", "Na", "K", "Li", "Ca"),
    ),
}
_TU_ORDERS: Final = {"MUTAG": (1.5, 1.0, 2.0, 3.0), "Mutagenicity": (1.0, 2.0, 3.0)}

NO_LABEL: Final = "none of the labels"

LABELLED: Final = 0.5
"""Threshold for the targets and predicted probabilities of labels."""

# Smaller shares are left out.
_NOTHING: Final = 0.0005


def graph_id(store: GraphStore, number: int) -> str:
    """The id of a graph, or its number counted from 1."""
    if store.rows is None:
        return str(number + 1)
    return store.rows.ids[number] or str(int(store.rows.number[number]))


def class_column(task: str, featurizer: Featurizer | None) -> str:
    """The input column with the classes; empty if there is none."""
    targets = () if featurizer is None else featurizer.targets
    return targets[0] if task == "multiclass" and len(targets) == 1 else ""


def output_words(task: str, names: Sequence[str], values: Sequence[float]) -> str:
    """Format a row of targets or outputs: the likeliest class, positive labels, or known values.

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
    """Format the true label or value of a graph; ``None`` if unknown."""
    names = store.output_names
    if store.task == "multiclass":
        return None if store.num_outputs < 2 else names[int(store.y[number])]
    values = store.y[number].reshape(-1).tolist()
    return None if all(map(math.isnan, values)) else output_words(store.task, names, values)


def is_correct(task: str, outputs: Sequence[float], targets: Sequence[float]) -> bool | None:
    """Whether a prediction is correct; ``None`` for regression and if no target is known.

    ``targets`` are the number of the class, or a value for each label (NaN if missing).
    """
    if task == "regression":
        return None
    if task == "multiclass":
        return max(range(len(outputs)), key=outputs.__getitem__) == targets[0]
    pairs = zip(outputs, targets, strict=True)
    known = [(value, target) for value, target in pairs if not math.isnan(target)]
    return all((v >= LABELLED) == (t >= LABELLED) for v, t in known) if known else None


def target_words(
    store: GraphStore, row: Sequence[float]
) -> tuple[str, tuple[tuple[str, float], ...]]:
    """Format mixed targets; also return the weights of classes or labels, largest first."""
    names = store.output_names
    if store.task == "regression":
        return output_words(store.task, names, row) or "unknown", ()
    # The comparison also excludes missing entries (NaN).
    parts = [(name, share) for name, share in zip(names, row, strict=True) if share > _NOTHING]
    parts.sort(key=lambda part: -part[1])
    words = ", ".join(f"{100 * share:.0f} % {name}" for name, share in parts)
    return words or NO_LABEL, tuple(parts)


def structures(
    batch: GraphBatch, store: GraphStore, *, there: Bools | None = None
) -> list[Structure]:
    """Convert a batch with the features of a store; ``there`` masks the edges to keep."""
    names, molecule = _node_names(batch, store, atom_names)
    orders = _orders(batch, store) if molecule else None
    kinds = None if molecule else _edge_types(batch, store)
    row, column = structure.rows_of(batch.row_ptr), batch.column
    # Draw only one direction of an undirected edge.
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
                kinds=() if kinds is None else tuple(kinds[edge] for edge in edges.tolist()),
            )
        )
    return found


def taken_apart(
    store: GraphStore,
    shown: Tensor,
    batch: GraphBatch,
    mixed: MixedGraphs,
    targets: Tensor,
    name: Callable[[int], str],
) -> list[Mixture]:
    """Convert mixed graphs, with the origin of nodes and edges.

    ``shown`` are the indices of the original graphs in the store, ``batch`` these graphs,
    ``targets`` those of the mixed graphs in the units of the data; ``name`` returns a graph's name.
    """
    plan, places = mixed.plan, shown.tolist()
    originals = structures(batch, store)
    joined = structures(mixed.batch, store, there=edges_there(mixed.batch))
    from_source = np.split(mixed.node_from_source, mixed.batch.ptr[1:-1])

    def part(graph: int, nodes: Ints, share: float) -> Part:
        chosen = np.zeros(len(originals[graph].names), np.bool_)
        chosen[nodes - batch.ptr[graph]] = True
        label = label_words(store, places[graph]) or "unknown"
        return Part(name(graph), label, originals[graph], tuple(chosen.tolist()), float(share))

    found = []
    for number, (graph, row) in enumerate(zip(joined, targets.tolist(), strict=True)):
        part_ptr, rest_ptr = plan.part.ptr, plan.rest.ptr
        taken = plan.part.item[part_ptr[number] : part_ptr[number + 1]]
        rest = plan.rest.item[rest_ptr[number] : rest_ptr[number + 1]]
        given = tuple(from_source[number].tolist())
        found.append(
            Mixture(
                source=part(int(mixed.source_of[number]), taken, mixed.source_share[number]),
                destination=part(number, rest, mixed.destination_share[number]),
                structure=graph,
                from_source=given,
                # Only edges between the parts are new.
                new_edges=tuple(n for n, (a, b) in enumerate(graph.edges) if given[a] != given[b]),
                label=target_words(store, row)[0],
                weight=float(mixed.label_weight[number]),
            )
        )
    return found


def atoms_of(batch: GraphBatch, store: GraphStore) -> tuple[list[str], list[float]] | None:
    """Elements of nodes and bond orders of edges (1 if unknown); ``None`` if not molecules."""
    names, molecule = _node_names(batch, store, node_names)
    if not molecule:
        return None
    return names, _orders(batch, store) or [1.0] * batch.num_edges


def _node_names(
    batch: GraphBatch, store: GraphStore, of_atoms: Callable[[Tensor], list[str]]
) -> tuple[list[str], bool]:
    """Node names, empty if the featurizer does not match, and whether they are atoms."""
    nameless = [""] * batch.num_nodes, False
    featurizer = store.featurizer
    if batch.x is None:
        return nameless
    x = batch.x.cpu()
    if featurizer is not None and featurizer.kind == "molecules":
        return (of_atoms(x), True) if x.shape[1] >= len(SYMBOLS) else nameless
    elements = _TU_ELEMENTS.get(store.name) if featurizer is None else None
    if elements is not None and x.shape[1] == len(elements):
        return one_hot_names(x, elements, "?"), True
    numbers, labels = store.num_continuous, _types(store, "x", store.num_continuous)
    if featurizer is not None and featurizer.node_labels:
        numbers, labels = featurizer.node_numbers, featurizer.node_labels
    if labels and x.shape[1] - numbers == len(labels):
        return one_hot_names(x[:, numbers:], labels, ""), False
    return nameless


def _edge_types(batch: GraphBatch, store: GraphStore) -> list[str] | None:
    featurizer, attr = store.featurizer, batch.edge_attr
    if attr is None or not len(attr):
        return None
    numbers, labels = 0, _types(store, "edge_attr", 0)
    if featurizer is not None and featurizer.edge_labels:
        numbers, labels = featurizer.edge_numbers, featurizer.edge_labels
    if len(labels) < 2 or attr.shape[1] - numbers != len(labels):
        return None
    return one_hot_names(attr.cpu()[:, numbers:], labels, "")


def _types(store: GraphStore, key: str, first: int) -> tuple[str, ...]:
    """Numbers of the columns from ``first`` on, as types; empty if they are not one-hot."""
    if key not in store.fields:
        return ()
    columns = next(store.pieces()).field(key)[:, first:]
    one_hot = bool(((columns == 0) | (columns == 1)).all() and (columns.sum(1) == 1).all())
    return tuple(map(str, range(columns.shape[1]))) if one_hot and columns.shape[1] > 1 else ()


def _orders(batch: GraphBatch, store: GraphStore) -> list[float] | None:
    attr = batch.edge_attr
    if attr is None:
        return None
    attr = attr.cpu()
    if store.featurizer is not None:
        return bond_orders(attr) if attr.shape[1] >= BOND_CATEGORIES[0] else None
    orders = _TU_ORDERS[store.name]
    if attr.shape[1] != len(orders):
        return None
    return [orders[place] for place in attr.argmax(1).tolist()]
