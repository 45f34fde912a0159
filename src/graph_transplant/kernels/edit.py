"""Random edits of single graphs: what goes, what stays, and which edges move.

``reverse`` holds the reverse of every edge; in directed graphs each edge is its own. An undirected
edge counts once, as the entry that comes before its reverse.
"""

from __future__ import annotations

import numpy as np

from graph_transplant.kernels.choice import below, choose, distinct, is_in, share_of
from graph_transplant.kernels.compiling import Bools, Ints, compiled
from graph_transplant.kernels.structure import offsets, rows_of

# Paths drawn for every swap that is wanted; more would find a few more open triads of dense graphs.
TRIES = 16


@compiled
def choose_nodes(ptr: Ints, ratio: float, rng: np.random.Generator) -> Bools:
    """Mark ``floor(ratio · n)`` nodes of every graph, but not all of them."""
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
    """Mark ``floor(size · n)`` nodes of every graph, reached from one by random edges."""
    inside = np.zeros(ptr[-1], np.bool_)
    leaving = np.empty_like(near)  # nodes at the far ends of the edges that were seen
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
            # An edge whose far end was reached by another one does not leave the set any more.
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
    """List the edges of a graph, an undirected one once; return how many."""
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
    """Mark the edges that stay when ``floor(ratio · m)`` go, each with its reverse."""
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
    """Count the pairs of different nodes of a graph that no edge joins.

    Those of the given ranks, which ascend, are written to ``sender`` and ``receiver``. Undirected
    pairs are counted once, with the larger node as the receiver.
    """
    count, found = 0, 0
    for v in range(first, last):
        for start, high in ((first, v), (v + 1, last)):
            if symmetric and start > v:
                break
            low = start
            for e in range(row_ptr[v], row_ptr[v + 1] + 1):  # one more: the end of the row
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
    """Replace ``floor(ratio · m)`` edges by absent pairs, or as many as there are.

    Returns the edges that stay, and sender and receiver of every new edge and the one it replaces.
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
    """Rows without self-loops and repeated entries: offsets and nodes."""
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

    A path u - a - v is drawn with probability proportional to 1 / degree of a, so that u and v are
    drawn in proportion to their resource-allocation index. Paths that are closed, whose ends were
    joined before or whose edge was moved before are passed over; all see the original graph.

    Returns as :func:`replace_edges` does.
    """
    simple_ptr, simple = simple_rows(near_ptr, near)
    centre_of, row_of = rows_of(simple_ptr), rows_of(row_ptr)
    keep, used = np.ones(column.size, np.bool_), np.zeros(simple.size, np.bool_)
    sender, receiver = np.empty_like(column), np.empty_like(column)
    like, edges = np.empty_like(column), np.empty_like(column)
    # Joined pairs as a chain for every node: the other end and the pair before.
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
            # Of several edges between u and a any may move.
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
