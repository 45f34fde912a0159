"""The embedded data set: find the motif that was grafted on a random graph.

Every graph is a random base graph, half of them random trees and half of them grown by preferential
attachment, on which one of six motifs is grafted; the motif is the class. Noise edges run within
the base graph and between it and the motif, never within the motif: its nodes induce it exactly.

Numbers of nodes and edges say nothing about the class: both are drawn first, and the base graph and
the noise edges make up for what the motif brings along. Nodes have no features. The nodes of the
motif are known (``motif_mask``), so that a saliency map can be scored.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Final, SupportsIndex

import numpy as np
import torch

from graph_transplant.errors import GraphTransplantError
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

# Smallest and largest graph.
_NODES: Final = (16, 32)
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


def _grow(motif: int, below: Callable[[int], int]) -> tuple[int, list[tuple[int, int]], list[bool]]:
    """Make one graph: number of nodes, undirected edges, and which nodes are the motif's."""
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

    place = list(range(nodes))
    for last in range(nodes - 1, 0, -1):
        other = below(last + 1)
        place[last], place[other] = place[other], place[last]
    mask = [False] * nodes
    for node in range(base, nodes):
        mask[place[node]] = True
    return nodes, [(place[one], place[other]) for one, other in sorted(edges)], mask


def _at_least(argument: str, value: SupportsIndex, least: int) -> int:
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise GraphTransplantError(
            f"`{argument}` must be a whole number of at least {least}, got {value!r}"
        )
    return number


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
    graphs = _at_least("graphs", graphs, len(MOTIFS))
    seed = _at_least("seed", seed, 0)
    node_counts: list[int] = []
    edge_counts: list[int] = []
    rows: list[int] = []
    columns: list[int] = []
    mask: list[bool] = []
    for number in range(graphs):
        nodes, edges, inside = _grow(number % len(MOTIFS), _uniform(seed, number))
        node_counts.append(nodes)
        edge_counts.append(2 * len(edges))
        for one, other in edges:
            rows += (one, other)
            columns += (other, one)
        mask += inside
    return GraphStore(
        x=None,
        edge_index=torch.tensor([rows, columns]),
        y=torch.arange(graphs) % len(MOTIFS),
        node_counts=torch.tensor(node_counts),
        edge_counts=torch.tensor(edge_counts),
        name="motifs",
        num_outputs=len(MOTIFS),
        label_names=[name for name, _, _ in MOTIFS],
        node_fields={"motif_mask": torch.tensor(mask)},
    )
