"""Where the nodes of a drawn graph stand.

Molecules are laid out by RDKit, as chemists draw them; all other graphs by stress (Kamada and
Kawai, 1989) or, above some size, by forces (Fruchterman and Reingold, 1991), both from networkx.
Every step is deterministic: the same graph always looks the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_transplant.errors import GraphTransplantError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Points = NDArray[np.float64]

Place = tuple[float, float]

BY_STRESS = 100
"""Largest component that is laid out by stress, which takes time with the cube of its size."""

GAP = 1.4
"""Distance of two components, in lengths of an edge."""

# Atoms closer than this, in bond lengths, cover each other: RDKit found no flat drawing.
_TOUCHING = 0.5

# Nodes of other graphs are drawn at least so far apart, if edges need not be longer than that.
_APART, _LONGEST = 0.6, 2.2

# A landscape sheet: components fill rows about so many times as long as all rows are high.
_ASPECT = 1.6


def positions(
    nodes: int,
    edges: Sequence[tuple[int, int]],
    *,
    names: Sequence[str] = (),
    orders: Sequence[float] = (),
    molecule: bool = False,
) -> list[Place]:
    """Lay out a graph.

    Args:
        nodes: Number of nodes.
        edges: Pairs of node numbers; a pair may come in both directions.
        names: Element symbol of every node, for molecules.
        orders: Bond order of every edge, for molecules.
        molecule: Lay it out as a molecule. Without RDKit, or where RDKit puts atoms on top of each
            other, it is laid out as any graph.

    Returns:
        x to the right and y down, one pair per node; edges are about 1 long, the smallest x and y
        are 0.

    Example:
        >>> [(round(x, 1), round(y, 1)) for x, y in positions(2, [(0, 1)])]
        [(0.0, 0.0), (1.0, 0.0)]
        >>> positions(0, [])
        []
    """
    for edge in edges:
        if not all(0 <= end < nodes for end in edge):
            raise GraphTransplantError(
                f"`edges` must join nodes between 0 and {nodes - 1}; got {edge}"
            )
    if not nodes:
        return []
    points = _as_molecule(nodes, edges, names, orders) if molecule else None
    if points is None:
        points = _as_graph(nodes, edges)
    points = points - points.min(axis=0)
    return [(float(x), float(y)) for x, y in points]


def _as_molecule(
    nodes: int,
    edges: Sequence[tuple[int, int]],
    names: Sequence[str],
    orders: Sequence[float],
) -> Points | None:
    """Ask RDKit; nothing where it is missing or its atoms cover each other."""
    if find_spec("rdkit") is None:
        return None
    from graph_transplant.datasets.molecules import coordinates

    found = coordinates(list(names), list(edges), list(orders))
    points = np.asarray(found, dtype=np.float64).reshape(nodes, 2)
    points = points * np.array([1.0, -1.0])  # RDKit counts y upwards
    points = _unit_edges(points, edges)
    _, parts = _components(nodes, edges)
    if any(_closest(points[part]) < _TOUCHING for part in parts):
        return None
    return _joined(nodes, parts, [points[part] for part in parts])


def _as_graph(nodes: int, edges: Sequence[tuple[int, int]]) -> Points:
    graph, parts = _components(nodes, edges)
    return _joined(nodes, parts, [_component(graph.subgraph(part), part) for part in parts])


def _components(nodes: int, edges: Sequence[tuple[int, int]]) -> tuple[Any, list[list[int]]]:
    """Return the graph, and its connected components from large to small."""
    import networkx

    graph: Any = networkx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from((one, two) for one, two in edges if one != two)
    parts = [sorted(part) for part in networkx.connected_components(graph)]
    return graph, sorted(parts, key=lambda part: (-len(part), part[0]))


def _joined(nodes: int, parts: Sequence[list[int]], pieces: Sequence[Points]) -> Points:
    """Put components, each laid out by itself, on one sheet."""
    points = np.zeros((nodes, 2))
    for part, piece in zip(parts, _packed(pieces), strict=True):
        points[part] = piece
    return points


def _component(graph: Any, part: Sequence[int]) -> Points:
    """Lay out connected nodes, the longer side across."""
    import networkx

    if len(part) == 1:
        return np.zeros((1, 2))
    if len(part) == 2:
        return np.array([[0.0, 0.0], [1.0, 0.0]])
    # networkx keeps no order of nodes in a subgraph view: a copy in order makes it the same always.
    ordered: Any = networkx.Graph()
    ordered.add_nodes_from(part)
    ordered.add_edges_from(sorted(tuple(sorted(edge)) for edge in graph.edges))
    if len(part) <= BY_STRESS:
        found = networkx.kamada_kawai_layout(ordered)
    else:
        found = networkx.spring_layout(ordered, seed=0, iterations=50, k=2 / math.sqrt(len(part)))
    place = {node: number for number, node in enumerate(part)}
    points = np.array([found[node] for node in part], dtype=np.float64)
    edges = [(place[one], place[two]) for one, two in ordered.edges]
    points = _unit_edges(_turned(points), edges)
    # Where many edges meet, nodes crowd: longer edges then, but not without end.
    return points * min(max(1.0, _APART / max(_closest(points), 1e-9)), _LONGEST)


def _turned(points: Points) -> Points:
    """Turn the longest extent across."""
    centred = points - points.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    # The sign of an axis is the whim of the routine; fixed, the drawing is the same everywhere.
    for axis in axes:
        if axis[np.argmax(np.abs(axis))] < 0:
            axis *= -1
    return np.asarray(centred @ axes.T)


def _unit_edges(points: Points, edges: Sequence[tuple[int, int]]) -> Points:
    """Scale so that the middle length of an edge is 1."""
    pairs = np.array([edge for edge in edges if edge[0] != edge[1]], dtype=np.int64).reshape(-1, 2)
    if not len(pairs):
        return points
    length = float(np.median(np.linalg.norm(points[pairs[:, 0]] - points[pairs[:, 1]], axis=1)))
    return points / length if length > 1e-9 else points


def _closest(points: Points) -> float:
    """Smallest distance of two points."""
    if len(points) < 2:
        return math.inf
    from scipy.spatial import cKDTree

    distances, _ = cKDTree(points).query(points, k=[2])
    return float(np.min(distances))


def _packed(pieces: Sequence[Points]) -> list[Points]:
    """Put components side by side in rows, in the order given."""
    sizes = [piece.max(axis=0) - piece.min(axis=0) + GAP for piece in pieces]
    area = sum(float(size[0] * size[1]) for size in sizes)
    widest = max(float(size[0]) for size in sizes)
    limit = max(widest, math.sqrt(area * _ASPECT)) + 1e-9
    placed = []
    x = y = height = 0.0
    for piece, size in zip(pieces, sizes, strict=True):
        if x and x + size[0] > limit:
            x, y, height = 0.0, y + height, 0.0
        placed.append(piece - piece.min(axis=0) + np.array([x, y]))
        x, height = x + float(size[0]), max(height, float(size[1]))
    return placed
