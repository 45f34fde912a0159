"""NodeSam: split a node of every graph, then merge the ends of an edge.

The second half of the node split in graph ``g`` gets the number ``nodes + g``.
"""

from __future__ import annotations

import numpy as np

from graph_transplant.kernels.choice import below
from graph_transplant.kernels.compiling import Bools, Ints, compiled
from graph_transplant.kernels.structure import compress


@compiled
def expected_shared(nodes: float, edges: float, degree: float, triangles: float) -> float:
    """h: number of neighbours that both halves must share to preserve the expected edge count.

    Solves h = 3T' / E', the triangles per edge after the split, with E' = |E| + 1 + h edges and
    about T' = |V| t / 3 - t / 2 + h + h t / d triangles.
    """
    if triangles == 0:
        return 0.0
    c = edges - 2 - 3 * triangles / degree
    return float(np.sqrt(c**2 + 4 * triangles * nodes - 6 * triangles) - c) / 2


@compiled
def sharing_chance(
    first: int, last: int, near_ptr: Ints, near: Ints, is_near: Bools, closing: Bools
) -> float:
    """Probability that a neighbour in a triangle is shared; marks these neighbours as ``closing``.

    Edges count once, regardless of direction and repetition.
    """
    edges = degree = triangles = closers = 0
    for v in range(first, last):
        before = -1
        for u in near[near_ptr[v] : near_ptr[v + 1]]:
            if u != before and u < v:
                edges += 1
                if is_near[u] and is_near[v]:
                    triangles += 1
                    closing[u] = closing[v] = True
            before = u
    for v in range(first, last):
        degree += is_near[v]
        closers += closing[v]
    h = expected_shared(float(last - first), float(edges), float(degree), float(triangles))
    return h / max(closers, 1)


@compiled
def choose_splits(
    ptr: Ints, near_ptr: Ints, near: Ints, near_edge: Ints, adjust: bool, rng: np.random.Generator
) -> tuple[Ints, Bools, Bools, Ints]:
    """Choose a node of every graph to split, and assign its neighbours to the halves.

    Returns the nodes; masks ``[nodes]`` of the neighbours of the second half only and of both; and
    the edge whose attributes the edge between the halves takes, -1 for none.
    """
    split, between = np.empty(ptr.size - 1, np.int64), np.full(ptr.size - 1, -1)
    moved, shared = np.zeros(ptr[-1], np.bool_), np.zeros(ptr[-1], np.bool_)
    is_near, closing = np.zeros(ptr[-1], np.bool_), np.zeros(ptr[-1], np.bool_)
    for g in range(split.size):
        first, last = ptr[g], ptr[g + 1]
        node = split[g] = first + below(last - first, rng)
        seen = 0.0
        for k in range(near_ptr[node], near_ptr[node + 1]):
            if near[k] != node:
                is_near[near[k]] = True
                seen += 1
                if rng.random() * seen < 1:  # reservoir sampling
                    between[g] = near_edge[k]
        chance = sharing_chance(first, last, near_ptr, near, is_near, closing) if adjust else 0.0
        for v in range(first, last):
            if is_near[v]:
                shared[v] = closing[v] and rng.random() < chance
                moved[v] = not shared[v] and rng.random() < 0.5
    return split, moved, shared, between


@compiled
def split_nodes(
    ptr: Ints,
    row_ptr: Ints,
    column: Ints,
    symmetric: bool,
    split: Ints,
    moved: Bools,
    shared: Bools,
    between: Ints,
) -> tuple[Ints, Ints, Ints, Bools, Ints]:
    """List the edges after the split.

    Returns receiver, sender, the edge of the batch whose attributes it takes (-1 for none), and
    whether it is new (a second copy, or the edge between the halves); and the graphs' offsets.
    """
    bound = 2 * (column.size + split.size)
    receiver, sender = np.empty(bound, np.int64), np.empty(bound, np.int64)
    like, new = np.empty(bound, np.int64), np.zeros(bound, np.bool_)
    edge_ptr = np.zeros_like(ptr)
    size = 0
    for g in range(split.size):
        node, half = split[g], ptr[-1] + g
        for v in range(ptr[g], ptr[g + 1]):
            for e in range(row_ptr[v], row_ptr[v + 1]):
                u = column[e]
                touched = v == node or u == node
                other = u if v == node else v
                if not (touched and moved[other]):
                    receiver[size], sender[size], like[size] = v, u, e
                    size += 1
                if touched and (moved[other] or shared[other] or u == v):
                    receiver[size] = half if v == node else v
                    sender[size] = half if u == node else u
                    like[size], new[size] = e, not moved[other]
                    size += 1
        for i in range(1 + symmetric):
            receiver[size], sender[size] = (node, half) if i else (half, node)
            like[size], new[size] = between[g], True
            size += 1
        edge_ptr[g + 1] = size
    return receiver[:size], sender[:size], like[:size], new[:size], edge_ptr


@compiled
def choose_merges(
    receiver: Ints, sender: Ints, edge_ptr: Ints, nodes: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Choose an edge of every graph to merge; return the kept end and the merged end."""
    kept, merged = np.empty(edge_ptr.size - 1, np.int64), np.empty(edge_ptr.size - 1, np.int64)
    for g in range(kept.size):
        kept[g] = merged[g] = -1
        while kept[g] == merged[g]:  # skip self-loops; the edge between the halves is not one
            e = edge_ptr[g] + below(edge_ptr[g + 1] - edge_ptr[g], rng)
            kept[g], merged[g] = receiver[e], sender[e]
        if kept[g] >= nodes:  # the second half has no row of its own
            kept[g], merged[g] = merged[g], kept[g]
    return kept, merged


@compiled
def merge_nodes(
    receiver: Ints, sender: Ints, edge_ptr: Ints, nodes: int, kept: Ints, merged: Ints
) -> tuple[Ints, Ints, Ints]:
    """Merge nodes; return ``row_ptr``, ``column`` and the listed edge of each entry.

    The second half takes the place of the merged node. If both ends of the merged edge had an edge
    to the same node, only that of the kept end remains.
    """
    to, by = np.empty_like(receiver), np.empty_like(sender)
    listed = np.empty_like(receiver)
    size = 0
    for g in range(kept.size):
        keep, merge = kept[g], merged[g]
        for e in range(edge_ptr[g], edge_ptr[g + 1]):
            v, u = receiver[e], sender[e]
            if not ((v == keep and u == merge) or (v == merge and u == keep)):
                to[size] = keep if v == merge else merge if v >= nodes else v
                by[size] = keep if u == merge else merge if u >= nodes else u
                listed[size] = e if v == merge or u == merge else -1 - e
                size += 1
    old_ptr, old_column, order = compress(by[:size], to[:size], nodes)
    row_ptr, column, edge = np.zeros_like(old_ptr), np.empty_like(order), np.empty_like(order)
    size = 0
    for v in range(nodes):
        begin = old_ptr[v]
        while begin < old_ptr[v + 1]:  # a run of edges from the same node
            end, of_kept = begin, False
            while end < old_ptr[v + 1] and old_column[end] == old_column[begin]:
                of_kept |= listed[order[end]] < 0
                end += 1
            for k in range(begin, end):
                e = listed[order[k]]
                if (e < 0) == of_kept:
                    column[size], edge[size] = old_column[k], -1 - e if e < 0 else e
                    size += 1
            begin = end
        row_ptr[v + 1] = size
    return row_ptr, column[:size], edge[:size]
