"""NodeSam: split a node of every graph, then merge the ends of an edge.

The second half of the node split in graph ``g`` gets the number ``nodes + g``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graph_transplant.kernels.arrays import CSR, Bools, Ints, Neighbours, compiled, helper
from graph_transplant.kernels.csr import compress
from graph_transplant.kernels.sampling import random_below


class Splits(NamedTuple):
    """Which node of every graph is split, and how."""

    split: Ints  # the node, which becomes the first half
    moved: Bools  # its neighbours that move to the second half, [nodes]
    shared: Bools  # its neighbours that are connected to both halves, [nodes]
    between: Ints  # edge whose attributes the one between the halves takes, -1 for none


class SplitEdges(NamedTuple):
    """Edges after the split."""

    ptr: Ints  # edges ptr[g] to ptr[g + 1] - 1 belong to graph g
    receiver: Ints
    sender: Ints
    template: Ints  # the edge of the batch whose attributes each takes, -1 for none
    new: Bools  # whether it is a second copy, or the edge between the halves


class Merges(NamedTuple):
    """Which nodes are merged, one pair a graph."""

    kept: Ints  # the end of the merged edge that remains
    merged: Ints  # the other end


@helper
def expected_shared(nodes: float, edges: float, degree: float, triangles: float) -> float:
    """h: number of neighbours that both halves must share to preserve the expected edge count.

    Solves h = 3T' / E', the triangles per edge after the split, with E' = |E| + 1 + h edges and
    about T' = |V| t / 3 - t / 2 + h + h t / d triangles.
    """
    if triangles == 0:
        return 0.0
    c = edges - 2 - 3 * triangles / degree
    return float(np.sqrt(c**2 + 4 * triangles * nodes - 6 * triangles) - c) / 2


@helper
def sharing_chance(
    first: int, last: int, neighbours: Neighbours, is_near: Bools, closing: Bools
) -> float:
    """Probability that a neighbour in a triangle is shared; marks these neighbours as ``closing``.

    Edges count once, regardless of direction and repetition.
    """
    edges = degree = triangles = closers = 0
    for v in range(first, last):
        before = -1
        for u in neighbours.node[neighbours.ptr[v] : neighbours.ptr[v + 1]]:
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
    ptr: Ints, neighbours: Neighbours, adjust: bool, rng: np.random.Generator
) -> Splits:
    """Choose a node of every graph to split, and assign its neighbours to the halves."""
    split, between = np.empty(ptr.size - 1, np.int64), np.full(ptr.size - 1, -1)
    moved, shared = np.zeros(ptr[-1], np.bool_), np.zeros(ptr[-1], np.bool_)
    is_near, closing = np.zeros(ptr[-1], np.bool_), np.zeros(ptr[-1], np.bool_)
    for g in range(split.size):
        first, last = ptr[g], ptr[g + 1]
        node = split[g] = first + random_below(last - first, rng)
        seen = 0.0
        for k in range(neighbours.ptr[node], neighbours.ptr[node + 1]):
            if neighbours.node[k] != node:
                is_near[neighbours.node[k]] = True
                seen += 1
                if rng.random() * seen < 1:  # reservoir sampling
                    between[g] = neighbours.edge[k]
        chance = sharing_chance(first, last, neighbours, is_near, closing) if adjust else 0.0
        for v in range(first, last):
            if is_near[v]:
                shared[v] = closing[v] and rng.random() < chance
                moved[v] = not shared[v] and rng.random() < 0.5
    return Splits(split, moved, shared, between)


@compiled
def split_nodes(graphs: CSR, symmetric: bool, splits: Splits) -> SplitEdges:
    """List the edges after the split."""
    ptr, row_ptr, column = graphs
    split, moved, shared, between = splits
    bound = 2 * (column.size + split.size)
    receiver, sender = np.empty(bound, np.int64), np.empty(bound, np.int64)
    template, new = np.empty(bound, np.int64), np.zeros(bound, np.bool_)
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
                    receiver[size], sender[size], template[size] = v, u, e
                    size += 1
                if touched and (moved[other] or shared[other] or u == v):
                    receiver[size] = half if v == node else v
                    sender[size] = half if u == node else u
                    template[size], new[size] = e, not moved[other]
                    size += 1
        for i in range(1 + symmetric):
            receiver[size], sender[size] = (node, half) if i else (half, node)
            template[size], new[size] = between[g], True
            size += 1
        edge_ptr[g + 1] = size
    return SplitEdges(edge_ptr, receiver[:size], sender[:size], template[:size], new[:size])


@compiled
def choose_merges(edges: SplitEdges, nodes: int, rng: np.random.Generator) -> Merges:
    """Choose an edge of every graph to merge."""
    edge_ptr, receiver, sender = edges.ptr, edges.receiver, edges.sender
    kept, merged = np.empty(edge_ptr.size - 1, np.int64), np.empty(edge_ptr.size - 1, np.int64)
    for g in range(kept.size):
        kept[g] = merged[g] = -1
        while kept[g] == merged[g]:  # skip self-loops; the edge between the halves is not one
            e = edge_ptr[g] + random_below(edge_ptr[g + 1] - edge_ptr[g], rng)
            kept[g], merged[g] = receiver[e], sender[e]
        if kept[g] >= nodes:  # the second half has no row of its own
            kept[g], merged[g] = merged[g], kept[g]
    return Merges(kept, merged)


@compiled
def merge_nodes(edges: SplitEdges, nodes: int, merges: Merges) -> tuple[Ints, Ints, Ints]:
    """Merge nodes; return ``row_ptr``, ``column`` and the listed edge of each entry.

    The second half takes the place of the merged node. If both ends of the merged edge had an edge
    to the same node, only that of the kept end remains.
    """
    edge_ptr, receiver, sender = edges.ptr, edges.receiver, edges.sender
    kept, merged = merges
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
