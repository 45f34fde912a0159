"""Random edits of single graphs: choosing nodes; dropping, replacing and rewiring edges.

``reverse[e]`` is the reverse of edge ``e``, or ``e`` itself in directed graphs. An undirected edge
counts once, as the first of its two entries.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graph_transplant.kernels.arrays import CSR, Bools, Ints, Neighbours, compiled, helper
from graph_transplant.kernels.csr import list_edges, rows_of, simple_rows
from graph_transplant.kernels.sampling import (
    is_in,
    random_below,
    sample_distinct,
    share_of,
    shuffle_front,
)

# Paths sampled per requested swap; more would find a few more open triads in dense graphs.
TRIES = 16


class Replacement(NamedTuple):
    """Edges that replace others."""

    keep: Bools  # the edges that remain
    sender: Ints  # ends of the new edges
    receiver: Ints
    template: Ints  # the edge that each replaces, whose attributes it takes


@compiled
def choose_nodes(ptr: Ints, ratio: float, rng: np.random.Generator) -> Bools:
    """Mark ``floor(ratio · n)`` random nodes of every graph, at most n - 1."""
    chosen = np.zeros(ptr[-1], np.bool_)
    items = np.arange(ptr[-1])
    for g in range(ptr.size - 1):
        mine = items[ptr[g] : ptr[g + 1]]
        count = max(0, min(share_of(mine.size, ratio), mine.size - 1))
        shuffle_front(mine, mine.size, count, rng)
        chosen[mine[:count]] = True
    return chosen


@compiled
def random_connected_set(
    ptr: Ints, neighbours: Neighbours, size: float, rng: np.random.Generator
) -> Bools:
    """Mark ``floor(size · n)`` nodes of every graph, grown from a random one along random edges."""
    inside = np.zeros(ptr[-1], np.bool_)
    leaving = np.empty_like(neighbours.node)  # far ends of the edges that leave the set
    for g in range(ptr.size - 1):
        nodes = ptr[g + 1] - ptr[g]
        missing = min(nodes, max(1, share_of(nodes, size)))
        reached, open_edges = ptr[g] + random_below(nodes, rng), 0
        while missing:
            inside[reached] = True
            missing -= 1
            for v in neighbours.node[neighbours.ptr[reached] : neighbours.ptr[reached + 1]]:
                if not inside[v]:
                    leaving[open_edges] = v
                    open_edges += 1
            # Skip edges whose far end has been reached in the meantime.
            while open_edges and inside[reached]:
                place = random_below(open_edges, rng)
                reached = leaving[place]
                open_edges -= 1
                leaving[place] = leaving[open_edges]
            if inside[reached]:
                break
    return inside


@compiled
def drop_edges(graphs: CSR, reverse: Ints, ratio: float, rng: np.random.Generator) -> Bools:
    """Mark the edges that remain after dropping ``floor(ratio · m)``, each with its reverse."""
    keep = np.ones(reverse.size, np.bool_)
    edges = np.empty_like(reverse)
    for g in range(graphs.ptr.size - 1):
        size = list_edges(graphs, reverse, g, edges)
        count = share_of(size, ratio)
        shuffle_front(edges, size, count, rng)
        for e in edges[:count]:
            keep[e] = keep[reverse[e]] = False
    return keep


@helper
def absent_pairs(
    graphs: CSR, g: int, symmetric: bool, ranks: Ints, sender: Ints, receiver: Ints
) -> int:
    """Count the unconnected pairs of distinct nodes of a graph.

    Pairs with the given ascending ranks are written to ``sender`` and ``receiver``. Undirected
    pairs count once, with the larger node as the receiver.
    """
    first, last = graphs.ptr[g], graphs.ptr[g + 1]
    row_ptr, column = graphs.row_ptr, graphs.column
    count, found = 0, 0
    for v in range(first, last):
        for start, high in ((first, v), (v + 1, last)):
            if symmetric and start > v:
                break
            low = start
            for e in range(row_ptr[v], row_ptr[v + 1] + 1):  # + 1: the gap after the last entry
                stop = min(column[e], high) if e < row_ptr[v + 1] else high
                gap = max(0, stop - low)
                while found < ranks.size and ranks[found] < count + gap:
                    sender[found] = low + ranks[found] - count
                    receiver[found] = v
                    found += 1
                count += gap
                low = max(low, stop + 1)
    return count


@compiled
def replace_edges(
    graphs: CSR, reverse: Ints, symmetric: bool, ratio: float, rng: np.random.Generator
) -> Replacement:
    """Replace ``floor(ratio · m)`` edges, at most as many as there are unconnected pairs."""
    column = graphs.column
    keep = np.ones(column.size, np.bool_)
    edges, ones, others = np.empty_like(column), np.empty_like(column), np.empty_like(column)
    sender = np.empty(2 * column.size, np.int64)
    receiver, template = np.empty_like(sender), np.empty_like(sender)
    size = 0
    for g in range(graphs.ptr.size - 1):
        total = list_edges(graphs, reverse, g, edges)
        absent = absent_pairs(graphs, g, symmetric, edges[:0], ones, others)
        count = min(share_of(total, ratio), absent)
        shuffle_front(edges, total, count, rng)
        ranks = sample_distinct(absent, count, rng)
        absent_pairs(graphs, g, symmetric, ranks, ones, others)
        for i in range(count):
            e = edges[i]
            keep[e] = keep[reverse[e]] = False
            sender[size], receiver[size], template[size] = ones[i], others[i], e
            size += 1
            if symmetric:
                sender[size], receiver[size], template[size] = others[i], ones[i], reverse[e]
                size += 1
    return Replacement(keep, sender[:size].copy(), receiver[:size].copy(), template[:size].copy())


@compiled
def swap_open_triads(
    graphs: CSR,
    reverse: Ints,
    symmetric: bool,
    neighbours: Neighbours,
    ratio: float,
    rng: np.random.Generator,
) -> Replacement:
    """Close ``ceil(ratio · m)`` open triads, each by moving one end of one of its edges.

    Paths u - a - v are sampled with probability proportional to 1 / degree(a), hence pairs u, v in
    proportion to their resource-allocation index. Paths are skipped if their ends are connected, in
    the original graph or by an earlier swap, or if their edge has already moved.
    """
    ptr, row_ptr, column = graphs
    simple_ptr, simple = simple_rows(neighbours)
    centre_of, row_of = rows_of(simple_ptr), rows_of(row_ptr)
    keep, used = np.ones(column.size, np.bool_), np.zeros(simple.size, np.bool_)
    sender, receiver = np.empty_like(column), np.empty_like(column)
    template, edges = np.empty_like(column), np.empty_like(column)
    # Pairs joined so far, as a linked list per node: the other end and the previous pair.
    chain = np.full(row_ptr.size - 1, -1)
    other, before = np.empty_like(column), np.empty_like(column)
    size, pairs = 0, 0
    for g in range(ptr.size - 1):
        first, nodes = simple_ptr[ptr[g]], ptr[g + 1] - ptr[g]
        entries = simple_ptr[ptr[g + 1]] - first
        total = list_edges(graphs, reverse, g, edges)
        wanted = min(int(np.ceil(ratio * total - 1e-9)), (nodes * (nodes - 1) - entries) // 2)
        tries = TRIES * (wanted + 8) if entries else 0
        while wanted and tries:
            tries -= 1
            path = first + random_below(entries, rng)
            a, u = centre_of[path], simple[path]
            v = simple[simple_ptr[a] + random_below(simple_ptr[a + 1] - simple_ptr[a], rng)]
            near_u = simple[simple_ptr[u] : simple_ptr[u + 1]]
            if u == v or used[path] or is_in(near_u, v):
                continue
            low, high = min(u, v), max(u, v)
            pair = chain[low]
            while pair >= 0 and other[pair] != high:
                pair = before[pair]
            if pair >= 0:
                continue
            other[pairs], before[pairs], chain[low] = high, chain[low], pairs
            pairs += 1
            wanted -= 1
            used[path] = used[simple_ptr[u] + np.searchsorted(near_u, a)] = True
            # Of parallel edges between u and a, a random one moves.
            row = neighbours.node[neighbours.ptr[u] : neighbours.ptr[u + 1]]
            k, end = np.searchsorted(row, a), np.searchsorted(row, a, side="right")
            e = neighbours.edge[neighbours.ptr[u] + k + random_below(end - k, rng)]
            for _ in range(2 if symmetric else 1):
                keep[e] = False
                sender[size] = v if column[e] == a else column[e]
                receiver[size] = v if row_of[e] == a else row_of[e]
                template[size] = e
                size += 1
                e = reverse[e]
    return Replacement(keep, sender[:size].copy(), receiver[:size].copy(), template[:size].copy())
