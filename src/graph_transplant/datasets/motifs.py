"""Generated data sets: find the motif that was grafted on a random graph.

``motifs``: a random base graph, half of the time a random tree and half of the time grown by
preferential attachment, on which one of six motifs is grafted; the motif is the class. Noise edges
run within the base graph and between it and the motif, never within the motif: its nodes induce it
exactly.

Numbers of nodes and edges say nothing about the class: both are drawn first, and the base graph and
the noise edges make up for what the motif brings along. Nodes have no features.

``typed-motifs``: random trees with a few further edges and nodes of five types. A motif of four
nodes, told by its shape and its types together, makes the class; the rest is context.

The nodes of the motif are known (``motif_mask``), so that a saliency map can be scored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import torch
from torch.nn.functional import one_hot

from graph_transplant.errors import check_at_least
from graph_transplant.graphs import GraphStore

Edges = tuple[tuple[int, int], ...]


def _cycle(length: int) -> Edges:
    return tuple((node, (node + 1) % length) for node in range(length))


# Name, number of nodes and edges of every class.
MOTIFS: Final[tuple[tuple[str, int, Edges], ...]] = (
    ("house", 5, ((0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (1, 4))),
    ("five-cycle", 5, _cycle(5)),
    ("six-cycle", 6, _cycle(6)),
    ("star", 6, tuple((0, leaf) for leaf in range(1, 6))),
    ("grid", 9, (*((n, n + 1) for n in range(9) if n % 3 < 2), *((n, n + 3) for n in range(6)))),
    ("clique", 4, tuple((one, other) for one in range(4) for other in range(one))),
)

# Number of node types of the typed motifs; name, types and edges of every class.
TYPES: Final = 5
TYPED_MOTIFS: Final[tuple[tuple[str, tuple[int, ...], Edges], ...]] = (
    ("cycle of 0 and 1", (0, 1, 0, 1), _cycle(4)),
    ("star of 0 and 1", (0, 1, 0, 1), ((0, 1), (0, 2), (0, 3))),
    ("cycle of 2 and 3", (2, 3, 2, 3), _cycle(4)),
    ("star of 2 and 3", (2, 3, 2, 3), ((0, 1), (0, 2), (0, 3))),
)

# Smallest and largest graph.
_NODES: Final = (16, 32)
_TYPED_NODES: Final = (15, 30)
# Fewest and most independent cycles, edges - nodes + 1. The grid alone has four.
_CYCLES: Final = (4, 6)


def _uniform(seed: int, number: int) -> Callable[[int], int]:
    """Return a function that draws whole numbers below its argument, for one graph.

    Only the raw stream of PCG64 is used, which NumPy promises never to change, so that a seed means
    the same data set with every version and on every machine.
    """
    raw = np.random.PCG64(np.random.SeedSequence((seed, number)))

    def below(limit: int) -> int:
        # 53 bits: exact in a double, and the bias of the product is far below anything visible.
        return int((int(raw.random_raw()) >> 11) * 2.0**-53 * limit)

    return below


class _Graph(NamedTuple):
    """Undirected edges, which nodes are the motif's, and types of the nodes where they have any."""

    edges: list[tuple[int, int]]
    mask: list[bool]
    types: list[int]


def _grow(motif: int, below: Callable[[int], int]) -> _Graph:
    _, size, motif_edges = MOTIFS[motif]
    nodes = _NODES[0] + below(_NODES[1] - _NODES[0] + 1)
    cycles = _CYCLES[0] + below(_CYCLES[1] - _CYCLES[0] + 1)
    preferential = below(2) == 1
    base = nodes - size  # the motif takes the last numbers until nodes are shuffled
    edges = {(base + min(e), base + max(e)) for e in motif_edges}
    ends = [0]  # every base node as often as it has edges: a uniform draw prefers hubs

    def base_node(limit: int) -> int:
        return ends[below(len(ends))] if preferential else below(limit)

    for node in range(1, base):
        hub = base_node(node)
        edges.add((hub, node))
        ends += (hub, node)
    edges.add((base_node(base), base + below(size)))
    while len(edges) < nodes - 1 + cycles:
        one, other = base_node(base), below(nodes)
        if one != other:
            edges.add((min(one, other), max(one, other)))
    return _shuffled(edges, base, nodes, [], below)


def _grow_typed(motif: int, below: Callable[[int], int]) -> _Graph:
    _, motif_types, motif_edges = TYPED_MOTIFS[motif]
    nodes = _TYPED_NODES[0] + below(_TYPED_NODES[1] - _TYPED_NODES[0] + 1)
    base = nodes - len(motif_types)
    edges = {(base + min(e), base + max(e)) for e in motif_edges}
    edges |= {(below(node), node) for node in range(1, base)}
    edges.add((below(base), base + below(len(motif_types))))
    wanted = len(edges) + 1 + below(4)
    while len(edges) < wanted:
        one, other = sorted((below(base), below(base)))
        if one != other:
            edges.add((one, other))
    types = [below(TYPES) for _ in range(base)] + list(motif_types)
    return _shuffled(edges, base, nodes, types, below)


def _shuffled(
    edges: set[tuple[int, int]],
    base: int,
    nodes: int,
    types: list[int],
    below: Callable[[int], int],
) -> _Graph:
    """Give the nodes other numbers, so that these say nothing."""
    place = list(range(nodes))
    for last in range(nodes - 1, 0, -1):
        other = below(last + 1)
        place[last], place[other] = place[other], place[last]
    before = sorted(range(nodes), key=place.__getitem__)
    return _Graph(
        [(place[one], place[other]) for one, other in sorted(edges)],
        [node >= base for node in before],
        [types[node] for node in before] if types else [],
    )


def motifs(*, graphs: int = 600, seed: int = 0) -> GraphStore:
    """Generate the embedded data set.

    Graph ``i`` depends on ``seed`` and ``i`` alone: a smaller data set is the beginning of a larger
    one, and the same seed gives the same graphs on every machine. Classes take turns, so they are
    as equal in size as ``graphs`` allows.

    Args:
        graphs: Number of graphs, at least one for each of the six classes.
        seed: Determines the graphs; not negative.

    Returns:
        A store of undirected graphs without node features, with the boolean node field
        ``motif_mask`` ``[nodes]``: true for the nodes of the motif.

    Raises:
        GraphTransplantError: If an argument is out of range.

    Example:
        >>> store = motifs(graphs=12)
        >>> store.label_names
        ('house', 'five-cycle', 'six-cycle', 'star', 'grid', 'clique')
        >>> store.batch([0]).nodes["motif_mask"].sum()
        tensor(5)
    """
    return _generate("motifs", [name for name, *_ in MOTIFS], _grow, graphs, seed)


def typed_motifs(*, graphs: int = 800, seed: int = 0) -> GraphStore:
    """Generate graphs of typed nodes whose class lies in four of them.

    A graph depends on ``seed`` and its number alone, and classes take turns, as with
    :func:`motifs`.

    Example:
        >>> typed_motifs(graphs=8)
        GraphStore('typed-motifs': 8 graphs, 4 classes, ...)
    """
    names = [name for name, *_ in TYPED_MOTIFS]
    return _generate("typed-motifs", names, _grow_typed, graphs, seed)


def _generate(
    name: str,
    classes: list[str],
    grow: Callable[[int, Callable[[int], int]], _Graph],
    graphs: int,
    seed: int,
) -> GraphStore:
    check_at_least(len(classes), graphs=graphs)
    check_at_least(0, seed=seed)
    made = [grow(number % len(classes), _uniform(seed, number)) for number in range(graphs)]
    pairs = torch.tensor([pair for graph in made for pair in graph.edges])
    types = torch.tensor([kind for graph in made for kind in graph.types], dtype=torch.long)
    mask = [inside for graph in made for inside in graph.mask]
    return GraphStore(
        x=one_hot(types, TYPES).float() if len(types) else None,
        # Each edge in both directions, one after the other.
        edge_index=torch.stack((pairs, pairs.flip(1)), 1).view(-1, 2).T.contiguous(),
        y=torch.arange(graphs) % len(classes),
        node_counts=torch.tensor([len(graph.mask) for graph in made]),
        edge_counts=torch.tensor([2 * len(graph.edges) for graph in made]),
        name=name,
        num_outputs=len(classes),
        label_names=classes,
        node_fields={"motif_mask": torch.tensor(mask)},
    )
