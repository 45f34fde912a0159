"""Families of graphs whose class is made by known nodes, for measuring saliency.

Each family hangs motifs on random base graphs; ``motif_mask`` marks the nodes of the motif that
makes the class. Graphs whose class is the *absence* of something have no marked nodes.
"""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx
import numpy as np
import torch
from torch_geometric.data import Data

import graph_transplant as gt

Made = tuple["nx.Graph[int]", "np.ndarray[tuple[int], np.dtype[np.int64]] | None", set[int], int]
"""A graph with nodes 0 … n - 1, their types or ``None``, the marked nodes, and the class."""

TYPES = 5


def hang(base: nx.Graph[int], motif: nx.Graph[int], rng: np.random.Generator) -> set[int]:
    """Join a motif to a base graph by one edge, in place; return its nodes."""
    first, size = base.number_of_nodes(), motif.number_of_nodes()
    edges = [(first + u, first + v) for u, v in motif.edges]
    base.add_nodes_from(range(first, first + size))
    base.add_edges_from(edges)
    base.add_edge(int(rng.integers(first)), first + int(rng.integers(size)))
    return set(range(first, first + size))


def tree(nodes: int, rng: np.random.Generator) -> nx.Graph[int]:
    """A random recursive tree."""
    graph: nx.Graph[int] = nx.empty_graph(1)
    graph.add_edges_from((v, int(rng.integers(v))) for v in range(1, nodes))
    return graph


def cycles(rng: np.random.Generator) -> Made:
    """A tree with one cycle of 3, 4 or 6 nodes; its length is the class."""
    label = int(rng.integers(3))
    length = (3, 4, 6)[label]
    graph = tree(int(rng.integers(12, 25)) - length, rng)
    return graph, None, hang(graph, nx.cycle_graph(length), rng), label


def typed(rng: np.random.Generator) -> Made:
    """A preferential-attachment graph of typed nodes with one of four typed motifs of four nodes.

    The motifs differ in shape (a star or a cycle) and in types; the base has all types.
    """
    label = int(rng.integers(4))
    shape = nx.star_graph(3) if label % 2 else nx.cycle_graph(4)
    graph = nx.barabasi_albert_graph(int(rng.integers(12, 25)), 1, seed=int(rng.integers(1 << 30)))
    base = graph.number_of_nodes()
    marked = hang(graph, shape, rng)
    types = rng.integers(TYPES, size=base + 4)
    types[base:] = (0, 1, 0, 1) if label < 2 else (2, 3, 2, 3)
    return graph, types, marked, label


def both(rng: np.random.Generator) -> Made:
    """A tree with a triangle and a star (class 1), or with two of the same (class 0)."""
    label = int(rng.integers(2))
    motifs = [nx.cycle_graph(3), nx.star_graph(4)]
    chosen = motifs if label else [motifs[int(rng.integers(2))]] * 2
    graph = tree(int(rng.integers(10, 20)), rng)
    marked = [hang(graph, motif, rng) for motif in chosen]
    return graph, None, set().union(*marked) if label else set(), label


def shapes(rng: np.random.Generator) -> Made:
    """A Watts-Strogatz graph with one of four motifs of five nodes. Kept out of every choice."""
    label = int(rng.integers(4))
    motif = (nx.house_graph(), nx.cycle_graph(5), nx.star_graph(4), nx.wheel_graph(5))[label]
    nodes = int(rng.integers(15, 26))
    graph = nx.connected_watts_strogatz_graph(nodes, 2, 0.3, seed=int(rng.integers(1 << 30)))
    return graph, None, hang(graph, motif, rng), label


FAMILIES: dict[str, Callable[[np.random.Generator], Made]] = {
    "cycles": cycles,
    "typed": typed,
    "both": both,
    "shapes": shapes,
}


def family(name: str, graphs: int, seed: int) -> gt.GraphStore:
    """Generate a data set of a family."""
    rng = np.random.default_rng([seed, *name.encode()])
    made = []
    for _ in range(graphs):
        graph, types, marked, label = FAMILIES[name](rng)
        order = rng.permutation(graph.number_of_nodes())  # a node's number says nothing
        ends = order[np.array(graph.edges).T]
        mask = torch.zeros(len(order), dtype=torch.bool)
        mask[order[list(marked)]] = True
        data = Data(
            edge_index=torch.from_numpy(np.concatenate((ends, ends[::-1]), axis=1)),
            y=torch.tensor([label]),
            motif_mask=mask,
            num_nodes=len(order),
        )
        if types is not None:
            data.x = torch.eye(TYPES)[torch.from_numpy(types[np.argsort(order)])]
        made.append(data)
    return gt.GraphStore.from_pyg(made, name=name, node_fields=["motif_mask"])
