"""Graph Transplant: Algorithms 1 and 2 of the paper.

:func:`cut` chooses the nodes, :func:`open_nodes` finds those that lost edges,
:func:`degree_preserving_pairs` or :func:`all_pairs` list the pairs to connect, and :func:`assemble`
builds the mixed graphs. The rows ``near_ptr`` and ``near`` list every edge at both ends; in
undirected graphs they are ``row_ptr`` and ``column``.
"""

from __future__ import annotations

import numpy as np

from graph_transplant.kernels.choice import below, choose, distinct, share_of
from graph_transplant.kernels.compiling import Bools, Floats, Ints, compiled
from graph_transplant.kernels.structure import largest_of, mark, offsets


@compiled
def neighbours(frontier: Ints, near_ptr: Ints, near: Ints, found: Ints, seen: Bools) -> int:
    """N(H): write the neighbours of the frontier to ``found``, each once; return their number."""
    size = 0
    for u in frontier:
        for v in near[near_ptr[u] : near_ptr[u + 1]]:
            if not seen[v]:
                seen[v] = True
                found[size] = v
                size += 1
    for i in range(size):
        seen[found[i]] = False
    return size


@compiled
def bring_forward(items: Ints, count: int, saliency: Floats) -> None:
    """Move the ``count`` most salient items to the front (quickselect)."""
    low, high = 0, items.size - 1
    while low < high:
        pivot = saliency[items[(low + high) // 2]]
        i, j = low, high
        while i <= j:
            while saliency[items[i]] > pivot:
                i += 1
            while saliency[items[j]] < pivot:
                j -= 1
            if i <= j:
                items[i], items[j] = items[j], items[i]
                i += 1
                j -= 1
        if count - 1 <= j:
            high = j
        elif count - 1 >= i:
            low = i
        else:
            return


@compiled
def choose_anchors(
    items: Ints, saliency: Floats, salient: bool, count: int, rng: np.random.Generator
) -> None:
    """Move anchors to the front: random nodes, or random ones of the ``2 · count`` most salient."""
    pool = items.size
    if salient:
        pool = min(2 * count, items.size)
        choose(items, items.size, items.size, rng)  # break ties at random
        bring_forward(items, pool, saliency)
    choose(items, pool, count, rng)


@compiled
def partial_khop(
    anchors: Ints,
    hops: int,
    share: float,
    near_ptr: Ints,
    near: Ints,
    inside: Bools,
    found: Ints,
    seen: Bools,
    steps: Ints,
    sizes: Ints,
    rng: np.random.Generator,
) -> int:
    """Algorithm 1: mark V̄ in ``inside``; write H of every step to ``steps`` and ``sizes``."""
    mark(inside, anchors, True)
    for i in range(anchors.size):
        steps[i] = anchors[i]
    frontier, total = anchors.copy(), anchors.size  # H
    sizes[0] = anchors.size
    for k in range(hops):
        size = neighbours(frontier, near_ptr, near, found, seen)
        count = min(size, max(1, share_of(size, share)))  # p % of N(H), per graph
        choose(found, size, count, rng)
        frontier = found[:count].copy()
        mark(inside, frontier, True)
        for i in range(count):
            steps[total + i] = frontier[i]
        total += count
        sizes[k + 1] = count
    return total


@compiled
def collect(first: int, last: int, inside: Bools, remove: bool, kept: Ints, size: int) -> int:
    """List the nodes of a graph inside (with ``remove``: outside) and clear the marks."""
    for v in range(first, last):
        if inside[v] != remove:
            kept[size] = v
            size += 1
        inside[v] = False
    return size


@compiled
def cut(
    graphs: Ints,
    ptr: Ints,
    near_ptr: Ints,
    near: Ints,
    saliency: Floats,
    salient: bool,
    remove: bool,
    ratio: float,
    hops: int,
    share: float,
    rng: np.random.Generator,
) -> tuple[Ints, Ints, Ints, Ints]:
    """Choose the nodes of one side: lines 1-2 of Algorithm 2 (source) or 4-5 (destination).

    Returns the kept nodes (the chosen ones, or with ``remove`` the others) in ascending order and
    their offsets; and the nodes chosen in each step and the offsets of the steps.
    """
    counts = ptr[graphs + 1] - ptr[graphs]
    total = counts.sum()
    kept, kept_ptr = np.empty(total, np.int64), np.zeros(graphs.size + 1, np.int64)
    steps = np.empty(total * (hops + 1), np.int64)
    sizes = np.zeros(graphs.size * (hops + 1), np.int64)
    inside, seen = np.zeros(ptr[-1], np.bool_), np.zeros(ptr[-1], np.bool_)
    found = np.empty(ptr[-1], np.int64)
    size, step = 0, 0
    for i in range(graphs.size):
        first, last = ptr[graphs[i]], ptr[graphs[i] + 1]
        items = np.arange(first, last)
        count = min(items.size, max(1, share_of(items.size, ratio)))  # R % of the nodes
        choose_anchors(items, saliency, salient, count, rng)
        step += partial_khop(
            items[:count], hops, share, near_ptr, near, inside, found, seen,
            steps[step:], sizes[i * (hops + 1) :], rng,
        )  # fmt: skip
        size = kept_ptr[i + 1] = collect(first, last, inside, remove, kept, size)
    return kept[:size].copy(), kept_ptr, steps[:step].copy(), offsets(sizes)


@compiled
def scattered(
    graphs: Ints,
    ptr: Ints,
    saliency: Floats,
    salient: bool,
    remove: bool,
    count: int,
    rng: np.random.Generator,
) -> tuple[Ints, Ints]:
    """Choose ``count`` scattered nodes of every graph (ablation); return kept nodes and offsets."""
    total = (ptr[graphs + 1] - ptr[graphs]).sum()
    kept, kept_ptr = np.empty(total, np.int64), np.zeros(graphs.size + 1, np.int64)
    inside = np.zeros(ptr[-1], np.bool_)
    size = 0
    for i in range(graphs.size):
        first, last = ptr[graphs[i]], ptr[graphs[i] + 1]
        items = np.arange(first, last)
        wanted = min(count, items.size)
        choose_anchors(items, saliency, salient, wanted, rng)
        mark(inside, items[:wanted], True)
        size = kept_ptr[i + 1] = collect(first, last, inside, remove, kept, size)
    return kept[:size].copy(), kept_ptr


@compiled
def open_nodes(kept: Ints, kept_ptr: Ints, near_ptr: Ints, near: Ints) -> tuple[Ints, Ints, Ints]:
    """Nodes that lost edges in the cut, U_π or U, their offsets, and D_π or D of every graph."""
    nodes, node_ptr = np.empty_like(kept), np.zeros_like(kept_ptr)
    lost = np.zeros(kept_ptr.size - 1, np.int64)
    inside = np.zeros(near_ptr.size - 1, np.bool_)
    size = 0
    for g in range(kept_ptr.size - 1):
        mine = kept[kept_ptr[g] : kept_ptr[g + 1]]
        mark(inside, mine, True)
        for u in mine:
            gone = 0
            for v in near[near_ptr[u] : near_ptr[u + 1]]:
                gone += not inside[v]
            if gone:
                lost[g] += gone
                nodes[size] = u
                size += 1
        mark(inside, mine, False)
        node_ptr[g + 1] = size
    return nodes[:size].copy(), node_ptr, lost


@compiled
def degree_preserving_pairs(
    source: Ints,
    source_ptr: Ints,
    source_lost: Ints,
    destination: Ints,
    destination_ptr: Ints,
    destination_lost: Ints,
    rng: np.random.Generator,
) -> tuple[Ints, Ints, Ints]:
    """DP: ``⌊(D + D_π) / 2⌋`` distinct pairs of U_π × U, or all if there are fewer."""
    ones, twos = np.diff(source_ptr), np.diff(destination_ptr)
    pair_ptr = offsets(np.minimum((source_lost + destination_lost) // 2, ones * twos))
    first, second = np.empty(pair_ptr[-1], np.int64), np.empty(pair_ptr[-1], np.int64)
    for g in range(ones.size):
        place = pair_ptr[g]
        for code in distinct(ones[g] * twos[g], pair_ptr[g + 1] - place, rng):
            first[place] = source[source_ptr[g] + code // twos[g]]
            second[place] = destination[destination_ptr[g] + code % twos[g]]
            place += 1
    return first, second, pair_ptr


@compiled
def all_pairs(
    source: Ints, source_ptr: Ints, destination: Ints, destination_ptr: Ints
) -> tuple[Ints, Ints, Ints]:
    """U_π × U: the candidate pairs of the edge predictor ψ (lines 9-10 of Algorithm 2)."""
    pair_ptr = offsets(np.diff(source_ptr) * np.diff(destination_ptr))
    first, second = np.empty(pair_ptr[-1], np.int64), np.empty(pair_ptr[-1], np.int64)
    place = 0
    for g in range(source_ptr.size - 1):
        for u in source[source_ptr[g] : source_ptr[g + 1]]:
            for v in destination[destination_ptr[g] : destination_ptr[g + 1]]:
                first[place], second[place] = u, v
                place += 1
    return first, second, pair_ptr


@compiled
def lost_edges(
    taken: Ints,
    taken_ptr: Ints,
    rest: Ints,
    rest_ptr: Ints,
    first: Ints,
    second: Ints,
    pair_ptr: Ints,
    near_ptr: Ints,
    near: Ints,
    near_edge: Ints,
    rng: np.random.Generator,
) -> Ints:
    """For every new edge, draw an edge that one of its ends, chosen at random, lost in the cut."""
    inside = np.zeros(near_ptr.size - 1, np.bool_)
    edges = np.empty_like(first)
    candidates = np.empty(largest_of(near_ptr), np.int64)
    for g in range(pair_ptr.size - 1):
        # Source and destination may be the same graph, so each side is marked separately.
        from_source = rng.random(pair_ptr[g + 1] - pair_ptr[g]) < 0.5
        for side in range(2):
            kept = taken[taken_ptr[g] : taken_ptr[g + 1]]
            if side == 1:
                kept = rest[rest_ptr[g] : rest_ptr[g + 1]]
            mark(inside, kept, True)
            for p in range(pair_ptr[g], pair_ptr[g + 1]):
                if from_source[p - pair_ptr[g]] == (side == 0):
                    u = first[p] if side == 0 else second[p]
                    size = 0
                    for k in range(near_ptr[u], near_ptr[u + 1]):
                        if not inside[near[k]]:
                            candidates[size] = near_edge[k]
                            size += 1
                    edges[p] = candidates[below(size, rng)]
            mark(inside, kept, False)
    return edges


@compiled
def assemble(
    row_ptr: Ints,
    column: Ints,
    taken: Ints,
    taken_ptr: Ints,
    rest: Ints,
    rest_ptr: Ints,
    first: Ints,
    second: Ints,
    pair_ptr: Ints,
    into_source: Bools,
    into_destination: Bools,
) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
    r"""Merge: V' = V̄_π ∪ (V \ V̄), E' = Ē_π ∪ Ē ∪ new edges (lines 7-15 of Algorithm 2).

    In a mixed graph the transplanted nodes come first. Pair ``p`` becomes an edge to its source
    node, to its destination node, or both. Returns ``ptr``, ``row_ptr``, ``column``, the origin of
    every node, and the origin of every edge (-1 for new ones) and its pair (-1 for kept ones).
    """
    graphs = taken_ptr.size - 1
    ptr = taken_ptr + rest_ptr
    origin = np.empty(ptr[-1], np.int64)
    new_row_ptr = np.zeros(ptr[-1] + 1, np.int64)
    source_place = np.full(row_ptr.size - 1, -1)
    destination_place = np.full(row_ptr.size - 1, -1)
    bound = into_source.sum() + into_destination.sum()
    for u in taken:
        bound += row_ptr[u + 1] - row_ptr[u]
    for v in rest:
        bound += row_ptr[v + 1] - row_ptr[v]
    new_column, edge = np.empty(bound, np.int64), np.full(bound, -1)
    pair = np.full(bound, -1)
    added = np.empty(largest_of(ptr) + 1, np.int64)
    incoming = np.empty(largest_of(pair_ptr), np.int64)
    size = 0
    for g in range(graphs):
        start, middle = ptr[g], ptr[g] + taken_ptr[g + 1] - taken_ptr[g]
        mine = taken[taken_ptr[g] : taken_ptr[g + 1]]
        others = rest[rest_ptr[g] : rest_ptr[g + 1]]
        for i in range(mine.size):
            source_place[mine[i]] = start + i
        for i in range(others.size):
            destination_place[others[i]] = middle + i
        # Group pairs by destination node; they are already sorted by source node.
        added[: others.size + 1] = 0
        for p in range(pair_ptr[g], pair_ptr[g + 1]):
            added[destination_place[second[p]] - middle + 1] += into_destination[p]
        for i in range(others.size):
            added[i + 1] += added[i]
        for p in range(pair_ptr[g], pair_ptr[g + 1]):
            if into_destination[p]:
                i = destination_place[second[p]] - middle
                incoming[added[i]] = p
                added[i] += 1
        p = pair_ptr[g]
        for i in range(mine.size):
            u = mine[i]
            origin[start + i] = u
            for e in range(row_ptr[u], row_ptr[u + 1]):
                if source_place[column[e]] >= 0:
                    new_column[size], edge[size] = source_place[column[e]], e
                    size += 1
            while p < pair_ptr[g + 1] and first[p] == u:
                if into_source[p]:
                    new_column[size], pair[size] = destination_place[second[p]], p
                    size += 1
                p += 1
            new_row_ptr[start + i + 1] = size
        for i in range(others.size):
            v = others[i]
            origin[middle + i] = v
            for k in range(0 if i == 0 else added[i - 1], added[i]):
                p = incoming[k]
                new_column[size], pair[size] = source_place[first[p]], p
                size += 1
            for e in range(row_ptr[v], row_ptr[v + 1]):
                if destination_place[column[e]] >= 0:
                    new_column[size], edge[size] = destination_place[column[e]], e
                    size += 1
            new_row_ptr[middle + i + 1] = size
        for u in mine:
            source_place[u] = -1
        for v in others:
            destination_place[v] = -1
    return ptr, new_row_ptr, new_column[:size], origin, edge[:size], pair[:size]


@compiled
def importance(graphs: Ints, ptr: Ints, kept: Ints, kept_ptr: Ints, saliency: Floats) -> Floats:
    """I(S, V): the kept nodes' share of a graph's saliency, or of its nodes if all of it is 0."""
    share = np.empty(graphs.size)
    for i in range(graphs.size):
        total = 0.0
        for v in range(ptr[graphs[i]], ptr[graphs[i] + 1]):
            total += saliency[v]
        part = 0.0
        for v in kept[kept_ptr[i] : kept_ptr[i + 1]]:
            part += saliency[v]
        if total > 0:
            share[i] = part / total
        else:
            nodes = ptr[graphs[i] + 1] - ptr[graphs[i]]
            share[i] = (kept_ptr[i + 1] - kept_ptr[i]) / max(nodes, 1)
    return share


@compiled
def strangers(nodes: Ints, ptr: Ints, near_ptr: Ints, near: Ints, rng: np.random.Generator) -> Ints:
    """Draw a non-neighbour of every node in its graph; -1 if it is connected to all others."""
    graph = np.searchsorted(ptr, nodes, side="right") - 1
    found = np.full(nodes.size, -1)
    for i in range(nodes.size):
        u, first, last = nodes[i], ptr[graph[i]], ptr[graph[i] + 1]
        row = near[near_ptr[u] : near_ptr[u + 1]]
        excluded, before, itself = 1, -1, False
        for v in row:
            excluded += v != before and v != u
            before = v
        others = last - first - excluded
        if others <= 0:
            continue
        # Map a random rank to a node that is neither u nor in its row, which is sorted.
        place = first + below(others, rng)
        before = -1
        for v in row:
            if not itself and u <= v:
                place += u <= place
                itself = True
            if v != before and v != u:
                place += v <= place
            before = v
        if not itself:
            place += u <= place
        found[i] = place
    return found
