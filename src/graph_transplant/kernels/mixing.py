"""Kernels of the mixing baselines: SubMix, ifMixup and G-Mixup."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graph_transplant.kernels.arrays import (
    CSR,
    Doubles,
    Ints,
    Neighbours,
    Segments,
    Table,
    compiled,
    helper,
)
from graph_transplant.kernels.csr import compress, sort_by
from graph_transplant.kernels.sampling import random_below, share_of

RESTART = 0.15  # α of SubMix: probability that a walk stops at each step
ROUNDS = 16  # maximum steps of a walk; nodes further from the root are never selected
TIE = 1e-6  # relative difference below which scores count as tied
LEAST = 1e-30  # minimum share of an edge, so that means of attributes are always defined

# Of every class, between positions.
Graphons = np.ndarray[tuple[int, int, int], np.dtype[np.float64]]
Counts = np.ndarray[tuple[int, int, int], np.dtype[np.int64]]

# ------------------------------------------------------------------ SubMix


@helper
def root_scores(
    roots: Ints, first: int, last: int, neighbours: Neighbours, score: Table, spare: Table
) -> Table:
    """Personalised PageRank of two roots: P(a walk from each node stops there) / α.

    The top k nodes are connected for every k. The scores are ``q_0 = e_root`` and
    ``q_{t+1} = e_root + (1 - α) M q_t``, where M takes the mean over neighbours. They never
    decrease: ``q_1 >= q_0``, and M is monotone. So for a node v other than the root with best
    neighbour u, ``q_{t+1}(v) <= (1 - α) q_t(u) <= (1 - α) q_{t+1}(u)``: every such node with a
    positive score has a neighbour with a larger one, and increasing scores lead to the root.
    """
    for v in range(first, last):
        score[v, 0], score[v, 1] = v == roots[0], v == roots[1]
    for _ in range(ROUNDS):
        for v in range(first, last):
            begin, end = neighbours.ptr[v], neighbours.ptr[v + 1]
            one = two = 0.0
            for u in neighbours.node[begin:end]:
                one += score[u, 0]
                two += score[u, 1]
            going_on = (1 - RESTART) / max(end - begin, 1)
            spare[v, 0], spare[v, 1] = going_on * one, going_on * two
        spare[roots[0], 0] += 1
        spare[roots[1], 1] += 1
        score, spare = spare, score
    return score


@helper
def list_by_score(
    score: Doubles, first: int, listed: Ints, codes: Ints, rng: np.random.Generator
) -> int:
    """List the nodes with a positive score, descending, ties at random; return their number."""
    size = 0
    for i in range(score.size):
        if score[i] > 0:
            level = TIE * rng.random() - np.log2(score[i])
            codes[size] = int(level * 2**30) * score.size + i
            size += 1
    codes[:size].sort()
    for i in range(size):
        listed[i] = first + codes[i] % score.size
    return size


@compiled
def choose_subgraphs(
    source_of: Ints, ptr: Ints, neighbours: Neighbours, size: float, rng: np.random.Generator
) -> tuple[Segments, Ints]:
    """Choose connected sets of k nodes in every graph and as many in its source."""
    graphs = source_of.size
    # Search i is in graph i, search graphs + i in its source.
    searched, ranked_ptr = np.empty(2 * graphs, np.int64), np.zeros(2 * graphs + 1, np.int64)
    for i in range(2 * graphs):
        searched[i] = i if i < graphs else source_of[i - graphs]
        ranked_ptr[i + 1] = ranked_ptr[i] + ptr[searched[i] + 1] - ptr[searched[i]]
    order, _ = sort_by(searched, np.arange(2 * graphs), graphs)
    ranked, reached = np.empty(ranked_ptr[-1], np.int64), np.empty(2 * graphs, np.int64)
    score, spare = np.empty((ptr[-1], 2)), np.empty((ptr[-1], 2))
    codes, roots = np.empty(ptr[-1], np.int64), np.empty(2, np.int64)
    done = 0
    while done < order.size:  # two searches at once cost little more than one
        g = searched[order[done]]
        first, last = ptr[g], ptr[g + 1]
        roots[0], roots[1] = (
            first + random_below(last - first, rng),
            first + random_below(last - first, rng),
        )
        found = root_scores(roots, first, last, neighbours, score, spare)
        for j in range(2):
            if done < order.size and searched[order[done]] == g:
                mine = ranked[ranked_ptr[order[done]] :]
                reached[order[done]] = list_by_score(found[first:last, j], first, mine, codes, rng)
                done += 1

    chosen_ptr = np.zeros_like(ptr)
    replaced, brought = np.empty(ptr[-1], np.int64), np.empty(ptr[-1], np.int64)
    for g in range(graphs):
        most = max(1, share_of(min(reached[g], reached[graphs + g]), size))
        chosen_ptr[g + 1] = chosen_ptr[g] + 1 + random_below(most, rng)
        for i in range(chosen_ptr[g + 1] - chosen_ptr[g]):
            replaced[chosen_ptr[g] + i] = ranked[ranked_ptr[g] + i]
            brought[chosen_ptr[g] + i] = ranked[ranked_ptr[graphs + g] + i]
    return Segments(chosen_ptr, replaced[: chosen_ptr[-1]]), brought[: chosen_ptr[-1]]


@compiled
def swap_subgraphs(graphs: CSR, replaced: Segments, brought: Ints) -> tuple[CSR, Ints, Doubles]:
    """Replace the edges among ``replaced`` by those among ``brought``.

    Returns the graphs, the origin of every edge, and for every graph the share of its edges (of its
    nodes if it has no edges) that come from its source.
    """
    ptr, row_ptr, column = graphs
    chosen = replaced.item
    inside, place = np.zeros(ptr[-1], np.bool_), np.full(ptr[-1], -1)
    bound = column.size
    for i in range(chosen.size):
        inside[chosen[i]] = True
        bound += row_ptr[brought[i] + 1] - row_ptr[brought[i]]
    sender, receiver = np.empty(bound, np.int64), np.empty(bound, np.int64)
    edge, share = np.empty(bound, np.int64), np.empty(ptr.size - 1)
    size = 0
    for g in range(ptr.size - 1):
        start = size
        for v in range(ptr[g], ptr[g + 1]):
            for e in range(row_ptr[v], row_ptr[v + 1]):
                if not (inside[v] and inside[column[e]]):
                    sender[size], receiver[size], edge[size] = column[e], v, e
                    size += 1
        mine, kept = range(replaced.ptr[g], replaced.ptr[g + 1]), size - start
        for i in mine:
            place[brought[i]] = chosen[i]
        for i in mine:
            for e in range(row_ptr[brought[i]], row_ptr[brought[i] + 1]):
                if place[column[e]] >= 0:
                    sender[size], receiver[size], edge[size] = place[column[e]], chosen[i], e
                    size += 1
        for i in mine:
            place[brought[i]] = -1
        edges, nodes = size - start, ptr[g + 1] - ptr[g]
        share[g] = (edges - kept) / edges if edges else len(mine) / nodes
    new_row_ptr, new_column, order = compress(sender[:size], receiver[:size], ptr[-1])
    return CSR(ptr, new_row_ptr, new_column), edge[order], share


# ------------------------------------------------------------------ ifMixup


class Shares(NamedTuple):
    """What original nodes or edges contribute to mixed ones."""

    item: Ints  # the original node or edge
    onto: Ints  # the mixed one that it is part of
    share: Doubles  # with this weight


class Overlay(NamedTuple):
    """Mixed graphs, and what they are mixed from."""

    graphs: CSR
    weight: Doubles  # of every edge
    nodes: Shares
    edges: Shares


@compiled
def overlay(source_of: Ints, weight: Doubles, graphs: CSR) -> Overlay:
    """Overlay every graph with its source, node by node, and merge edges between the same nodes."""
    ptr, row_ptr, column = graphs
    new_ptr = np.zeros_like(ptr)
    total, edges = ptr[-1], column.size
    for g in range(source_of.size):
        first, last = ptr[source_of[g]], ptr[source_of[g] + 1]
        new_ptr[g + 1] = new_ptr[g] + max(ptr[g + 1] - ptr[g], last - first)
        total += last - first
        edges += row_ptr[last] - row_ptr[first]
    node, onto, node_share = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total)
    sender, receiver = np.empty(edges, np.int64), np.empty(edges, np.int64)
    edge, share = np.empty(edges, np.int64), np.empty(edges)
    nodes, size = 0, 0
    for g in range(source_of.size):
        for side in range(2):
            graph, part = (g, 1 - weight[g]) if side == 0 else (source_of[g], weight[g])
            shift = new_ptr[g] - ptr[graph]
            for v in range(ptr[graph], ptr[graph + 1]):
                node[nodes], onto[nodes], node_share[nodes] = v, v + shift, part
                nodes += 1
                for e in range(row_ptr[v], row_ptr[v + 1]):
                    sender[size], receiver[size] = column[e] + shift, v + shift
                    edge[size], share[size] = e, max(part, LEAST)
                    size += 1
    old_ptr, old_column, order = compress(sender, receiver, new_ptr[-1])
    share = share[order]
    new_row_ptr, new_column = np.zeros_like(old_ptr), np.empty_like(old_column)
    whole, entry = np.zeros(edges), np.empty_like(order)
    size = 0
    for v in range(new_ptr[-1]):
        for k in range(old_ptr[v], old_ptr[v + 1]):
            if k == old_ptr[v] or old_column[k] != old_column[k - 1]:
                new_column[size] = old_column[k]
                size += 1
            whole[size - 1] += share[k]
            entry[k] = size - 1
        new_row_ptr[v + 1] = size
    return Overlay(
        CSR(new_ptr, new_row_ptr, new_column[:size]),
        whole[:size],
        Shares(node, onto, node_share),
        Shares(edge[order], entry, share),
    )


# ------------------------------------------------------------------ G-Mixup


@compiled
def add_aligned(graphs: CSR, label: Ints, joined: Counts, rank: Ints) -> None:
    """Add edge counts between positions to ``joined[class]``; write the ``rank`` of every node.

    Nodes are ranked by descending degree; ties keep their order. Graphs must be undirected.
    Self-loops and repeated edges do not count.
    """
    ptr, row_ptr, column = graphs
    resolution = joined.shape[1]
    for g in range(ptr.size - 1):
        first, nodes = ptr[g], ptr[g + 1] - ptr[g]
        fewer = np.full(nodes, nodes - 1)
        for i in range(nodes):
            before = -1
            for u in column[row_ptr[first + i] : row_ptr[first + i + 1]]:
                fewer[i] -= u != before and u != first + i
                before = u
        order, _ = sort_by(fewer, np.arange(nodes), nodes)
        for i in range(nodes):
            rank[first + order[i]] = i
        for v in range(first, first + nodes):
            if rank[v] >= resolution:
                continue
            before = -1
            for u in column[row_ptr[v] : row_ptr[v + 1]]:
                if u != before and u != v and rank[u] < resolution:
                    joined[label[g], rank[v], rank[u]] += 1
                before = u


@compiled
def draw_pairs(
    mixture: Table, graphons: Graphons, nodes: int, rng: np.random.Generator
) -> tuple[Ints, Ints, Ints]:
    """Sample graphs from graphon mixtures ``[graphs, classes]``: node positions, edges (i < j)."""
    classes, resolution = graphons.shape[:2]
    position, chance = np.empty(mixture.shape[0] * nodes, np.int64), np.empty(resolution)
    first, second = np.empty(1024, np.int64), np.empty(1024, np.int64)
    size = 0
    for g in range(mixture.shape[0]):
        start, end = g * nodes, (g + 1) * nodes
        for i in range(start, end):
            position[i] = random_below(resolution, rng)
        for i in range(start, end):
            chance[:] = 0.0
            for c in range(classes):
                if mixture[g, c] != 0:
                    for k in range(resolution):
                        chance[k] += mixture[g, c] * graphons[c, position[i], k]
            for j in range(i + 1, end):
                if chance[position[j]] > 0 and rng.random() < chance[position[j]]:
                    if size == first.size:
                        first = np.concatenate((first, np.empty_like(first)))
                        second = np.concatenate((second, np.empty_like(second)))
                    first[size], second[size] = i, j
                    size += 1
    return position, first[:size], second[:size]
