"""Random edits of single graphs: choosing nodes; dropping, replacing and rewiring edges.

``reverse[e]`` is the reverse of edge ``e``, or ``e`` itself in directed graphs. An undirected edge
counts once, as the first of its two entries.
"""

from __future__ import annotations

import numpy as np

from graph_transplant.kernels.choice import below, choose, distinct, is_in, share_of
from graph_transplant.kernels.compiling import Bools, Ints, compiled
from graph_transplant.kernels.structure import offsets, rows_of

# Paths sampled per requested swap; more would find a few more open triads in dense graphs.
TRIES = 16


@compiled
def choose_nodes(ptr: Ints, ratio: float, rng: np.random.Generator) -> Bools:
    """Mark ``floor(ratio · n)`` random nodes of every graph, at most n - 1."""
    chosen = np.zeros(ptr[-1], np.bool_)
    items = np.arange(ptr[-1])
    for g in range(ptr.size - 1):
        mine = items[ptr[g] : ptr[g + 1]]
        count = max(0, min(share_of(mine.size, ratio), mine.size - 1))
        choose(mine, mine.size, count, rng)
        chosen[mine[:count]] = True
    return chosen


@compiled
def grow(ptr: Ints, near_ptr: Ints, near: Ints, size: float, rng: np.random.Generator) -> Bools:
    """Mark ``floor(size · n)`` nodes of every graph, grown from a random one along random edges."""
    inside = np.zeros(ptr[-1], np.bool_)
    leaving = np.empty_like(near)  # far ends of the edges that leave the set
    for g in range(ptr.size - 1):
        nodes = ptr[g + 1] - ptr[g]
        missing = min(nodes, max(1, share_of(nodes, size)))
        reached, open_edges = ptr[g] + below(nodes, rng), 0
        while missing:
            inside[reached] = True
            missing -= 1
            for v in near[near_ptr[reached] : near_ptr[reached + 1]]:
                if not inside[v]:
                    leaving[open_edges] = v
                    open_edges += 1
            # Skip edges whose far end has been reached in the meantime.
            while open_edges and inside[reached]:
                place = below(open_edges, rng)
                reached = leaving[place]
                open_edges -= 1
                leaving[place] = leaving[open_edges]
            if inside[reached]:
                break
    return inside


@compiled
def list_edges(ptr: Ints, row_ptr: Ints, reverse: Ints, graph: int, edges: Ints) -> int:
    """Write the edges of a graph to ``edges``, undirected ones once; return their number."""
    size = 0
    for e in range(row_ptr[ptr[graph]], row_ptr[ptr[graph + 1]]):
        if e <= reverse[e]:
            edges[size] = e
            size += 1
    return size


@compiled
def drop_edges(
    ptr: Ints, row_ptr: Ints, reverse: Ints, ratio: float, rng: np.random.Generator
) -> Bools:
    """Mark the edges that remain after dropping ``floor(ratio · m)``, each with its reverse."""
    keep = np.ones(reverse.size, np.bool_)
    edges = np.empty_like(reverse)
    for g in range(ptr.size - 1):
        size = list_edges(ptr, row_ptr, reverse, g, edges)
        count = share_of(size, ratio)
        choose(edges, size, count, rng)
        for e in edges[:count]:
            keep[e] = keep[reverse[e]] = False
    return keep


@compiled
def absent_pairs(
    first: int,
    last: int,
    row_ptr: Ints,
    column: Ints,
    symmetric: bool,
    ranks: Ints,
    sender: Ints,
    receiver: Ints,
) -> int:
    """Count the unconnected pairs of distinct nodes of a graph.

    Pairs with the given ascending ranks are written to ``sender`` and ``receiver``. Undirected
    pairs count once, with the larger node as the receiver.
    """
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
    ptr: Ints,
    row_ptr: Ints,
    column: Ints,
    reverse: Ints,
    symmetric: bool,
    ratio: float,
    rng: np.random.Generator,
) -> tuple[Bools, Ints, Ints, Ints]:
    """Replace ``floor(ratio · m)`` edges, at most as many as there are unconnected pairs.

    Returns a mask of the kept edges; and the sender, receiver and replaced edge of every new edge.
    """
    keep = np.ones(column.size, np.bool_)
    edges, ones, others = np.empty_like(column), np.empty_like(column), np.empty_like(column)
    sender = np.empty(2 * column.size, np.int64)
    receiver, like = np.empty_like(sender), np.empty_like(sender)
    size = 0
    for g in range(ptr.size - 1):
        first, last = ptr[g], ptr[g + 1]
        total = list_edges(ptr, row_ptr, reverse, g, edges)
        absent = absent_pairs(first, last, row_ptr, column, symmetric, edges[:0], ones, others)
        count = min(share_of(total, ratio), absent)
        choose(edges, total, count, rng)
        ranks = distinct(absent, count, rng)
        absent_pairs(first, last, row_ptr, column, symmetric, ranks, ones, others)
        for i in range(count):
            e = edges[i]
            keep[e] = keep[reverse[e]] = False
            sender[size], receiver[size], like[size] = ones[i], others[i], e
            size += 1
            if symmetric:
                sender[size], receiver[size], like[size] = others[i], ones[i], reverse[e]
                size += 1
    return keep, sender[:size].copy(), receiver[:size].copy(), like[:size].copy()


@compiled
def simple_rows(near_ptr: Ints, near: Ints) -> tuple[Ints, Ints]:
    """Remove self-loops and repeated entries from rows; return offsets and nodes."""
    counts, simple = np.zeros(near_ptr.size - 1, np.int64), np.empty_like(near)
    size = 0
    for v in range(counts.size):
        before = -1
        for u in near[near_ptr[v] : near_ptr[v + 1]]:
            if u != v and u != before:
                simple[size] = u
                size += 1
                counts[v] += 1
            before = u
    return offsets(counts), simple[:size].copy()


@compiled
def swap_open_triads(
    ptr: Ints,
    row_ptr: Ints,
    column: Ints,
    reverse: Ints,
    symmetric: bool,
    near_ptr: Ints,
    near: Ints,
    near_edge: Ints,
    ratio: float,
    rng: np.random.Generator,
) -> tuple[Bools, Ints, Ints, Ints]:
    """Close ``ceil(ratio · m)`` open triads, each by moving one end of one of its edges.

    Paths u - a - v are sampled with probability proportional to 1 / degree(a), hence pairs u, v in
    proportion to their resource-allocation index. Paths are skipped if their ends are connected, in
    the original graph or by an earlier swap, or if their edge has already moved. The return values
    are those of :func:`replace_edges`.
    """
    simple_ptr, simple = simple_rows(near_ptr, near)
    centre_of, row_of = rows_of(simple_ptr), rows_of(row_ptr)
    keep, used = np.ones(column.size, np.bool_), np.zeros(simple.size, np.bool_)
    sender, receiver = np.empty_like(column), np.empty_like(column)
    like, edges = np.empty_like(column), np.empty_like(column)
    # Pairs joined so far, as a linked list per node: the other end and the previous pair.
    chain = np.full(row_ptr.size - 1, -1)
    other, before = np.empty_like(column), np.empty_like(column)
    size, pairs = 0, 0
    for g in range(ptr.size - 1):
        first, nodes = simple_ptr[ptr[g]], ptr[g + 1] - ptr[g]
        entries = simple_ptr[ptr[g + 1]] - first
        total = list_edges(ptr, row_ptr, reverse, g, edges)
        wanted = min(int(np.ceil(ratio * total - 1e-9)), (nodes * (nodes - 1) - entries) // 2)
        tries = TRIES * (wanted + 8) if entries else 0
        while wanted and tries:
            tries -= 1
            path = first + below(entries, rng)
            a, u = centre_of[path], simple[path]
            v = simple[simple_ptr[a] + below(simple_ptr[a + 1] - simple_ptr[a], rng)]
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
            row = near[near_ptr[u] : near_ptr[u + 1]]
            k, end = np.searchsorted(row, a), np.searchsorted(row, a, side="right")
            e = near_edge[near_ptr[u] + k + below(end - k, rng)]
            for _ in range(2 if symmetric else 1):
                keep[e] = False
                sender[size] = v if column[e] == a else column[e]
                receiver[size] = v if row_of[e] == a else row_of[e]
                like[size] = e
                size += 1
                e = reverse[e]
    return keep, sender[:size].copy(), receiver[:size].copy(), like[:size].copy()
