r"""Graph Transplant: Algorithms 1 and 2 of the paper.

Algorithm 2 mixes a source :math:`G_\pi` and a destination :math:`G`::

     1  V̂_π  ← R % salient nodes of G_π      cut: salient_anchors
     2  V̄_π  ← Partial K-hop(K, G_π, V̂_π)    cut: partial_khop
     3  Ḡ_π  ← induced subgraph of V̄_π       assemble
     4  V̂    ← R % random nodes of G         cut
     5  V̄    ← Partial K-hop(K, G, V̂)        cut
     6  Ḡ    ← induced subgraph of V \ V̄     complement, assemble
     7  V'   ← V̄_π ∪ (V \ V̄)                assemble
     8  E'   ← Ē_π ∪ Ē                       assemble
     9  for u in V̄_π, v in V \ V̄            all_pairs
    10    if both lost an edge               boundary_nodes
    11      ē_uv ~ Bernoulli((ψ(u, v) + ψ(v, u)) / 2)      (EdgePredictor.draw)
    16  E'   ← E' ∪ {{u, v} : ē_uv = 1}      assemble

Degree preservation replaces lines 9 to 15 by :func:`degree_preserving_pairs`. In typed graphs a new
edge continues a lost one: line 10 is :func:`legal_pairs`, and :func:`legal_lost_edges` draws which.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graph_transplant.kernels.arrays import (
    CSR,
    Bools,
    Doubles,
    Flags,
    Floats,
    Ints,
    Neighbours,
    Pairs,
    Segments,
    compiled,
    helper,
)
from graph_transplant.kernels.csr import largest_of, mark, offsets, unmark
from graph_transplant.kernels.sampling import random_below, sample_distinct, share_of, shuffle_front

NO_SALIENCY: Floats = np.empty(0, np.float32)
"""Saliency for :func:`cut` with random anchors."""


class Cut(NamedTuple):
    """Nodes cut out of every graph, and how they were reached."""

    nodes: Segments  # V̄, ascending
    frontier: Ints  # H of every step: the anchors, then those of each of the K hops
    frontier_ptr: Ints  # offsets of the steps, K + 1 per graph


class Boundary(NamedTuple):
    """Nodes of a part that lost edges in the cut."""

    nodes: Segments  # U
    lost: Ints  # D, the edges that each graph's part lost


class Types(NamedTuple):
    """Types of nodes, and which types each edge may join."""

    node: Ints
    fits: Flags  # [entries of the neighbour lists, types]: may a node of the type replace the entry


class Assembled(NamedTuple):
    """Mixed graphs, and where their nodes and edges come from."""

    graphs: CSR
    node_origin: Ints
    edge_origin: Ints  # -1 for new edges
    pair: Ints  # the pair that a new edge was made from; -1 for kept edges


class Scratch(NamedTuple):
    """Memory that the cuts of a batch share; marks are cleared after use."""

    inside: Bools
    seen: Bools
    found: Ints


@helper
def neighbours_of(frontier: Ints, neighbours: Neighbours, scratch: Scratch) -> int:
    """N(H): write the neighbours of the frontier to ``scratch.found``; return their number."""
    seen, found = scratch.seen, scratch.found
    size = 0
    for u in frontier:
        for v in neighbours.node[neighbours.ptr[u] : neighbours.ptr[u + 1]]:
            if not seen[v]:  # each once
                seen[v] = True
                found[size] = v
                size += 1
    for i in range(size):
        seen[found[i]] = False
    return size


@helper
def partition_largest(items: Ints, count: int, saliency: Floats) -> None:
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


@helper
def choose_anchors(items: Ints, count: int, saliency: Floats, rng: np.random.Generator) -> None:
    """V̂: move anchors to the front: random ones of the ``2 · count`` most salient nodes.

    Without saliency they are random nodes.
    """
    pool = items.size
    if saliency.size:
        pool = min(2 * count, items.size)
        shuffle_front(items, items.size, items.size, rng)  # break ties at random
        partition_largest(items, pool, saliency)
    shuffle_front(items, pool, count, rng)


@helper
def partial_khop(
    anchors: Ints,
    hops: int,
    share: float,
    neighbours: Neighbours,
    scratch: Scratch,
    frontiers: Ints,
    sizes: Ints,
    rng: np.random.Generator,
) -> int:
    """Algorithm 1: mark V̄ in ``scratch.inside``; list H of every step, and its size."""
    frontier = anchors.copy()  # H ← V̂
    mark(scratch.inside, frontier)  # V̄ ← V̂
    frontiers[: frontier.size] = frontier
    sizes[0] = total = frontier.size
    for k in range(1, hops + 1):
        size = neighbours_of(frontier, neighbours, scratch)
        count = min(size, max(1, share_of(size, share)))  # p % of N(H), per graph
        shuffle_front(scratch.found, size, count, rng)
        frontier = scratch.found[:count].copy()  # line 2: H ← p % of N(H)
        mark(scratch.inside, frontier)  # line 3: V̄ ← V̄ ∪ H
        frontiers[total : total + count] = frontier
        sizes[k] = count
        total += count
    return total


@compiled
def cut(
    graphs: Ints,
    ptr: Ints,
    neighbours: Neighbours,
    saliency: Floats,
    ratio: float,
    hops: int,
    share: float,
    rng: np.random.Generator,
) -> Cut:
    """Cut a partial K-hop subgraph out of each of ``graphs``: lines 1-2 of Algorithm 2, or 4-5.

    Anchors are salient nodes (line 1), or random ones (line 4) with ``NO_SALIENCY``.
    """
    total = (ptr[graphs + 1] - ptr[graphs]).sum()
    nodes, node_ptr = np.empty(total, np.int64), np.zeros(graphs.size + 1, np.int64)
    frontiers = np.empty(total * (hops + 1), np.int64)
    sizes = np.zeros(graphs.size * (hops + 1), np.int64)
    marks = np.zeros(ptr[-1], np.bool_)
    scratch = Scratch(marks, np.zeros_like(marks), np.empty(ptr[-1], np.int64))
    size, listed = 0, 0
    for i in range(graphs.size):
        first, last = ptr[graphs[i]], ptr[graphs[i] + 1]
        items = np.arange(first, last)
        count = min(items.size, max(1, share_of(items.size, ratio)))  # R % of the nodes
        choose_anchors(items, count, saliency, rng)
        listed += partial_khop(
            items[:count], hops, share, neighbours, scratch,
            frontiers[listed:], sizes[i * (hops + 1) :], rng,
        )  # fmt: skip
        size = node_ptr[i + 1] = collect(first, last, scratch.inside, nodes, size)
    return Cut(Segments(node_ptr, nodes[:size].copy()), frontiers[:listed].copy(), offsets(sizes))


@helper
def collect(first: int, last: int, inside: Bools, nodes: Ints, size: int) -> int:
    """List the marked nodes of a graph and clear their marks."""
    for v in range(first, last):
        if inside[v]:
            nodes[size] = v
            size += 1
            inside[v] = False
    return size


@compiled
def scattered(
    graphs: Ints, ptr: Ints, saliency: Floats, count: int, rng: np.random.Generator
) -> Segments:
    """Cut ``count`` scattered nodes out of each of ``graphs`` (ablation)."""
    total = (ptr[graphs + 1] - ptr[graphs]).sum()
    nodes, node_ptr = np.empty(total, np.int64), np.zeros(graphs.size + 1, np.int64)
    inside = np.zeros(ptr[-1], np.bool_)
    size = 0
    for i in range(graphs.size):
        first, last = ptr[graphs[i]], ptr[graphs[i] + 1]
        items = np.arange(first, last)
        wanted = min(count, items.size)
        choose_anchors(items, wanted, saliency, rng)
        mark(inside, items[:wanted])
        size = node_ptr[i + 1] = collect(first, last, inside, nodes, size)
    return Segments(node_ptr, nodes[:size].copy())


@compiled
def complement(removed: Segments, ptr: Ints) -> Segments:
    r"""V \ V̄: the nodes of every graph that were not cut out (line 6)."""
    rest = np.empty(ptr[-1] - removed.item.size, np.int64)
    k = 0
    for v in range(ptr[-1]):
        if k < removed.item.size and removed.item[k] == v:
            k += 1
        else:
            rest[v - k] = v
    return Segments(ptr - removed.ptr, rest)


@compiled
def boundary_nodes(part: Segments, neighbours: Neighbours) -> Boundary:
    """U and D: the nodes of a part whose degree fell in the cut, and by how much (line 10)."""
    nodes, node_ptr = np.empty_like(part.item), np.zeros_like(part.ptr)
    lost = np.zeros(part.ptr.size - 1, np.int64)
    inside = np.zeros(neighbours.ptr.size - 1, np.bool_)
    size = 0
    for g in range(lost.size):
        own = part.item[part.ptr[g] : part.ptr[g + 1]]
        mark(inside, own)
        for u in own:
            gone = 0  # deg_G(u) - deg_Ḡ(u)
            for v in neighbours.node[neighbours.ptr[u] : neighbours.ptr[u + 1]]:
                gone += not inside[v]
            if gone:
                lost[g] += gone
                nodes[size] = u
                size += 1
        unmark(inside, own)
        node_ptr[g + 1] = size
    return Boundary(Segments(node_ptr, nodes[:size].copy()), lost)


@compiled
def undirected_pairs(ptr: Ints, source: Ints, destination: Ints) -> Pairs:
    """Pairs that become edges in both directions."""
    both = np.ones(source.size, np.bool_)
    return Pairs(ptr, source, destination, both, both)


@compiled
def degree_preserving_pairs(
    source: Boundary, destination: Boundary, rng: np.random.Generator
) -> Pairs:
    """DP: ``⌊(D + D_π) / 2⌋`` distinct pairs of U_π × U, or all if there are fewer."""
    rows, columns = np.diff(source.nodes.ptr), np.diff(destination.nodes.ptr)
    ptr = offsets(np.minimum((source.lost + destination.lost) // 2, rows * columns))
    first, second = np.empty(ptr[-1], np.int64), np.empty(ptr[-1], np.int64)
    for g in range(rows.size):
        p = ptr[g]
        for code in sample_distinct(rows[g] * columns[g], ptr[g + 1] - p, rng):
            first[p] = source.nodes.item[source.nodes.ptr[g] + code // columns[g]]
            second[p] = destination.nodes.item[destination.nodes.ptr[g] + code % columns[g]]
            p += 1
    return undirected_pairs(ptr, first, second)


@compiled
def all_pairs(source: Segments, destination: Segments) -> Pairs:
    """U_π × U: the candidate pairs of the edge predictor ψ (lines 9-10)."""
    ptr = offsets(np.diff(source.ptr) * np.diff(destination.ptr))
    first, second = np.empty(ptr[-1], np.int64), np.empty(ptr[-1], np.int64)
    p = 0
    for g in range(source.ptr.size - 1):
        for u in source.item[source.ptr[g] : source.ptr[g + 1]]:
            for v in destination.item[destination.ptr[g] : destination.ptr[g + 1]]:
                first[p], second[p] = u, v
                p += 1
    return undirected_pairs(ptr, first, second)


@compiled
def lost_edges(
    part: Segments,
    rest: Segments,
    pairs: Pairs,
    neighbours: Neighbours,
    rng: np.random.Generator,
) -> Ints:
    """For every pair, draw an edge that one of its ends, chosen at random, lost in the cut."""
    inside = np.zeros(neighbours.ptr.size - 1, np.bool_)
    edges = np.empty_like(pairs.source)
    candidates = np.empty(largest_of(neighbours.ptr), np.int64)
    for g in range(pairs.ptr.size - 1):
        begin, end = pairs.ptr[g], pairs.ptr[g + 1]
        from_source = rng.random(end - begin) < 0.5
        # Source and destination may be the same graph, so each side is marked separately.
        for side in range(2):
            nodes = part if side == 0 else rest
            ends = pairs.source if side == 0 else pairs.destination
            own = nodes.item[nodes.ptr[g] : nodes.ptr[g + 1]]
            mark(inside, own)
            for p in range(begin, end):
                if from_source[p - begin] == (side == 0):
                    size = 0
                    for k in range(neighbours.ptr[ends[p]], neighbours.ptr[ends[p] + 1]):
                        if not inside[neighbours.node[k]]:
                            candidates[size] = neighbours.edge[k]
                            size += 1
                    edges[p] = candidates[random_below(size, rng)]
            unmark(inside, own)
    return edges


@compiled
def open_ends(part: Segments, nodes: Segments, neighbours: Neighbours, types: Types) -> Flags:
    """Whether each of U lost an edge that a node of each type may end instead, [U, types]."""
    inside = np.zeros(types.node.size, np.bool_)
    joins = np.zeros((nodes.item.size, types.fits.shape[1]), np.bool_)
    for g in range(part.ptr.size - 1):
        own = part.item[part.ptr[g] : part.ptr[g + 1]]
        mark(inside, own)
        for i in range(nodes.ptr[g], nodes.ptr[g + 1]):
            u = nodes.item[i]
            for k in range(neighbours.ptr[u], neighbours.ptr[u + 1]):
                if not inside[neighbours.node[k]]:
                    joins[i] |= types.fits[k]
        unmark(inside, own)
    return joins


@compiled
def legal_pairs(
    source: Segments, destination: Segments, from_source: Flags, from_destination: Flags, kind: Ints
) -> Pairs:
    """Pairs of U_π × U that a lost edge of one of them may join (lines 9-10, for typed graphs)."""
    ptr = np.zeros_like(source.ptr)
    most = (np.diff(source.ptr) * np.diff(destination.ptr)).sum()
    first, second = np.empty(most, np.int64), np.empty(most, np.int64)
    p = 0
    for g in range(source.ptr.size - 1):
        for i in range(source.ptr[g], source.ptr[g + 1]):
            u = source.item[i]
            for j in range(destination.ptr[g], destination.ptr[g + 1]):
                v = destination.item[j]
                if from_source[i, kind[v]] or from_destination[j, kind[u]]:
                    first[p], second[p] = u, v
                    p += 1
        ptr[g + 1] = p
    return undirected_pairs(ptr, first[:p].copy(), second[:p].copy())


@compiled
def degree_preserving_subset(pairs: Pairs, lost: Ints, rng: np.random.Generator) -> Pairs:
    """DP for typed graphs: ``⌊lost / 2⌋`` of the legal pairs of every graph, or all."""
    ptr = offsets(np.minimum(lost // 2, np.diff(pairs.ptr)))
    chosen = np.empty(ptr[-1], np.int64)
    for g in range(lost.size):
        begin, end = pairs.ptr[g], pairs.ptr[g + 1]
        chosen[ptr[g] : ptr[g + 1]] = begin + sample_distinct(end - begin, ptr[g + 1] - ptr[g], rng)
    return undirected_pairs(ptr, pairs.source[chosen], pairs.destination[chosen])


@helper
def fitting_edges(
    u: int, kind: int, inside: Bools, neighbours: Neighbours, types: Types, candidates: Ints
) -> int:
    """List the edges that a node lost and a node of a type may end instead; return their number."""
    size = 0
    for k in range(neighbours.ptr[u], neighbours.ptr[u + 1]):
        if not inside[neighbours.node[k]] and types.fits[k, kind]:
            candidates[size] = neighbours.edge[k]
            size += 1
    return size


@compiled
def legal_lost_edges(
    part: Segments,
    rest: Segments,
    pairs: Pairs,
    neighbours: Neighbours,
    types: Types,
    rng: np.random.Generator,
) -> Ints:
    """For every legal pair, draw a lost edge that may join it; from an end chosen at random."""
    in_part = np.zeros(types.node.size, np.bool_)
    in_rest = np.zeros(types.node.size, np.bool_)
    edges = np.empty_like(pairs.source)
    candidates = np.empty(largest_of(neighbours.ptr), np.int64)
    for g in range(pairs.ptr.size - 1):
        transplanted = part.item[part.ptr[g] : part.ptr[g + 1]]
        remaining = rest.item[rest.ptr[g] : rest.ptr[g + 1]]
        mark(in_part, transplanted)
        mark(in_rest, remaining)
        for p in range(pairs.ptr[g], pairs.ptr[g + 1]):
            u, v = pairs.source[p], pairs.destination[p]
            from_source, size = rng.random() < 0.5, 0
            for _ in range(2):  # if the end has no such edge, the other end has
                if size == 0:
                    if from_source:
                        size = fitting_edges(
                            u, types.node[v], in_part, neighbours, types, candidates
                        )
                    else:
                        size = fitting_edges(
                            v, types.node[u], in_rest, neighbours, types, candidates
                        )
                    from_source = not from_source
            edges[p] = candidates[random_below(size, rng)]
        unmark(in_part, transplanted)
        unmark(in_rest, remaining)
    return edges


@compiled
def assemble(graphs: CSR, part: Segments, rest: Segments, pairs: Pairs) -> Assembled:
    """Merge the part of the source and the rest of the destination: lines 3 and 6-16.

    In a mixed graph the transplanted nodes come first.
    """
    row_ptr, column = graphs.row_ptr, graphs.column
    ptr = part.ptr + rest.ptr  # line 7: V' = V̄_π ∪ (V \ V̄)
    node_origin = np.empty(ptr[-1], np.int64)
    new_row_ptr = np.zeros(ptr[-1] + 1, np.int64)
    # Numbers of the nodes in their mixed graph; -1 for nodes that are not in it. Source and
    # destination may be the same graph, so each has its own.
    in_part, in_rest = np.full(row_ptr.size - 1, -1), np.full(row_ptr.size - 1, -1)
    most = pairs.into_source.sum() + pairs.into_destination.sum()
    for nodes in (part, rest):
        for v in nodes.item:
            most += row_ptr[v + 1] - row_ptr[v]
    new_column = np.empty(most, np.int64)
    edge_origin, pair = np.full(most, -1), np.full(most, -1)
    incoming = np.empty(largest_of(pairs.ptr), np.int64)
    size = 0
    for g in range(ptr.size - 1):
        first, middle = ptr[g], ptr[g] + part.ptr[g + 1] - part.ptr[g]
        transplanted = part.item[part.ptr[g] : part.ptr[g + 1]]
        remaining = rest.item[rest.ptr[g] : rest.ptr[g + 1]]
        for i in range(transplanted.size):
            in_part[transplanted[i]] = first + i
        for i in range(remaining.size):
            in_rest[remaining[i]] = middle + i
        incoming_ptr = group_by_destination(pairs, g, in_rest, middle, remaining.size, incoming)
        p = pairs.ptr[g]
        for i in range(transplanted.size):
            u = transplanted[i]
            node_origin[first + i] = u
            for e in range(row_ptr[u], row_ptr[u + 1]):  # lines 3 and 8: Ē_π
                if in_part[column[e]] >= 0:
                    new_column[size], edge_origin[size] = in_part[column[e]], e
                    size += 1
            while p < pairs.ptr[g + 1] and pairs.source[p] == u:  # line 16: new edges to u
                if pairs.into_source[p]:
                    new_column[size], pair[size] = in_rest[pairs.destination[p]], p
                    size += 1
                p += 1
            new_row_ptr[first + i + 1] = size
        for i in range(remaining.size):
            v = remaining[i]
            node_origin[middle + i] = v
            for k in range(incoming_ptr[i], incoming_ptr[i + 1]):  # line 16: new edges to v
                new_column[size], pair[size] = in_part[pairs.source[incoming[k]]], incoming[k]
                size += 1
            for e in range(row_ptr[v], row_ptr[v + 1]):  # lines 6 and 8: Ē
                if in_rest[column[e]] >= 0:
                    new_column[size], edge_origin[size] = in_rest[column[e]], e
                    size += 1
            new_row_ptr[middle + i + 1] = size
        for u in transplanted:
            in_part[u] = -1
        for v in remaining:
            in_rest[v] = -1
    mixed = CSR(ptr, new_row_ptr, new_column[:size])
    return Assembled(mixed, node_origin, edge_origin[:size], pair[:size])


@helper
def group_by_destination(
    pairs: Pairs, g: int, in_rest: Ints, middle: int, remaining: int, incoming: Ints
) -> Ints:
    """List the pairs of a graph by destination node; they are already sorted by source node."""
    ptr = np.zeros(remaining + 1, np.int64)
    for p in range(pairs.ptr[g], pairs.ptr[g + 1]):
        ptr[in_rest[pairs.destination[p]] - middle + 1] += pairs.into_destination[p]
    for i in range(remaining):
        ptr[i + 1] += ptr[i]
    cursor = ptr.copy()
    for p in range(pairs.ptr[g], pairs.ptr[g + 1]):
        if pairs.into_destination[p]:
            i = in_rest[pairs.destination[p]] - middle
            incoming[cursor[i]] = p
            cursor[i] += 1
    return ptr


@compiled
def importance(graphs: Ints, ptr: Ints, part: Segments, saliency: Floats) -> Doubles:
    """I(S, V): the part's share of a graph's saliency, or of its nodes if all of it is 0."""
    share = np.empty(graphs.size)
    for i in range(graphs.size):
        first, last = ptr[graphs[i]], ptr[graphs[i] + 1]
        total = 0.0
        for v in range(first, last):
            total += saliency[v]
        own = 0.0
        for v in part.item[part.ptr[i] : part.ptr[i + 1]]:
            own += saliency[v]
        if total > 0:
            share[i] = own / total
        else:
            share[i] = (part.ptr[i + 1] - part.ptr[i]) / max(last - first, 1)
    return share


@compiled
def sample_negatives(
    nodes: Ints, ptr: Ints, neighbours: Neighbours, rng: np.random.Generator
) -> Ints:
    """Draw a non-neighbour of every node in its graph; -1 if it is connected to all others."""
    graph = np.searchsorted(ptr, nodes, side="right") - 1
    drawn = np.full(nodes.size, -1)
    for i in range(nodes.size):
        u, first, last = nodes[i], ptr[graph[i]], ptr[graph[i] + 1]
        row = neighbours.node[neighbours.ptr[u] : neighbours.ptr[u + 1]]
        excluded, before, itself = 1, -1, False
        for v in row:
            excluded += v != before and v != u
            before = v
        others = last - first - excluded
        if others <= 0:
            continue
        # Map a random rank to a node that is neither u nor in its row, which is sorted.
        node = first + random_below(others, rng)
        before = -1
        for v in row:
            if not itself and u <= v:
                node += u <= node
                itself = True
            if v != before and v != u:
                node += v <= node
            before = v
        if not itself:
            node += u <= node
        drawn[i] = node
    return drawn
