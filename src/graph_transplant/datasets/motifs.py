"""Generated data sets: classify the motif attached to a random graph.

``motifs``: one of six motifs is attached to a random base graph, with equal probability a random
tree or one grown by preferential attachment; the motif is the class. Noise edges run within the
base graph and between it and the motif, never within the motif, which stays an induced subgraph.

The numbers of nodes and edges carry no information about the class: both are drawn first, and the
base graph and the noise edges make up the rest. Nodes have no features.

``typed-motifs``: random trees with a few extra edges and nodes of five types. The class is the
shape and the node types of a motif of four nodes.

The nodes of the motif are known (``motif_mask``), so that saliency maps can be evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import torch
from torch.nn.functional import one_hot

from graph_transplant.data import GraphStore
from graph_transplant.errors import check_at_least

Edges = tuple[tuple[int, int], ...]


def _cycle(length: int) -> Edges:
    return tuple((node, (node + 1) % length) for node in range(length))


# Name, number of nodes, and edges of every class.
MOTIFS: Final[tuple[tuple[str, int, Edges], ...]] = (
    ("house", 5, ((0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (1, 4))),
    ("five-cycle", 5, _cycle(5)),
    ("six-cycle", 6, _cycle(6)),
    ("star", 6, tuple((0, leaf) for leaf in range(1, 6))),
    ("grid", 9, (*((n, n + 1) for n in range(9) if n % 3 < 2), *((n, n + 3) for n in range(6)))),
    ("clique", 4, tuple((one, other) for one in range(4) for other in range(one))),
)

# Number of node types; name, node types and edges of every class.
TYPES: Final = 5
TYPED_MOTIFS: Final[tuple[tuple[str, tuple[int, ...], Edges], ...]] = (
    ("cycle of 0 and 1", (0, 1, 0, 1), _cycle(4)),
    ("star of 0 and 1", (0, 1, 0, 1), ((0, 1), (0, 2), (0, 3))),
    ("cycle of 2 and 3", (2, 3, 2, 3), _cycle(4)),
    ("star of 2 and 3", (2, 3, 2, 3), ((0, 1), (0, 2), (0, 3))),
)

# Smallest and largest number of nodes.
_NODES: Final = (16, 32)
_TYPED_NODES: Final = (15, 30)
# Smallest and largest number of independent cycles, edges - nodes + 1. The grid has four.
_CYCLES: Final = (4, 6)


def _uniform(seed: int, number: int) -> Callable[[int], int]:
    """Return a function that draws integers below its argument, for one graph.

    Uses only the raw stream of PCG64, which NumPy guarantees never to change, so that a seed gives
    the same data set with every version and on every machine.
    """
    raw = np.random.PCG64(np.random.SeedSequence((seed, number)))

    def below(limit: int) -> int:
        # 53 bits are exact in a double; the bias of the product is negligible.
        return int((int(raw.random_raw()) >> 11) * 2.0**-53 * limit)

    return below


class _Graph(NamedTuple):
    """Undirected edges, mask of the motif's nodes, and node types, if any."""

    edges: list[tuple[int, int]]
    mask: list[bool]
    types: list[int]


def _grow(motif: int, below: Callable[[int], int]) -> _Graph:
    _, size, motif_edges = MOTIFS[motif]
    nodes = _NODES[0] + below(_NODES[1] - _NODES[0] + 1)
    cycles = _CYCLES[0] + below(_CYCLES[1] - _CYCLES[0] + 1)
    preferential = below(2) == 1
    base = nodes - size  # the motif has the last nodes until they are shuffled
    edges = {(base + min(e), base + max(e)) for e in motif_edges}
    ends = [0]  # base nodes repeated by degree: a uniform draw prefers hubs

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
    """Renumber the nodes at random, so that their order reveals nothing."""
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
    """Generate the data set ``motifs``.

    Graph ``i`` depends only on ``seed`` and ``i``: a smaller data set is a prefix of a larger one,
    and a seed gives the same graphs on every machine. Classes alternate. The boolean node field
    ``motif_mask`` ``[nodes]`` marks the nodes of the motif.

    Args:
        graphs: Number of graphs, at least one for each of the six classes.
        seed: Random seed, not negative.

    Example:
        >>> store = motifs(graphs=12)
        >>> store.label_names
        ('house', 'five-cycle', 'six-cycle', 'star', 'grid', 'clique')
        >>> store.batch([0]).nodes["motif_mask"].sum()
        tensor(5)
    """
    return _generate("motifs", [name for name, *_ in MOTIFS], _grow, graphs, seed)


def typed_motifs(*, graphs: int = 800, seed: int = 0) -> GraphStore:
    """Generate the data set ``typed-motifs``, with node types as features; see :func:`motifs`.

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
        # Both directions of each edge, next to each other.
        edge_index=torch.stack((pairs, pairs.flip(1)), 1).view(-1, 2).T.contiguous(),
        y=torch.arange(graphs) % len(classes),
        node_counts=torch.tensor([len(graph.mask) for graph in made]),
        edge_counts=torch.tensor([2 * len(graph.edges) for graph in made]),
        name=name,
        num_outputs=len(classes),
        label_names=classes,
        node_fields={"motif_mask": torch.tensor(mask)},
    )
