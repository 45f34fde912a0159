"""Compressed rows: conversion from edge lists, gathering from a store, reverses, subgraphs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graph_transplant.kernels.arrays import CSR, Bools, Ints, Neighbours, compiled, helper

Locals = NDArray[np.int32]  # numbers of nodes within their graph


class Selected(NamedTuple):
    """Graphs made of some nodes and edges of others."""

    graphs: CSR
    nodes: Ints  # which nodes and edges they are
    edges: Ints


@compiled
def offsets(counts: Ints) -> Ints:
    """Offsets of segments with these counts, ``[segments + 1]``."""
    ptr = np.zeros(counts.size + 1, np.int64)
    for i in range(counts.size):
        ptr[i + 1] = ptr[i] + counts[i]
    return ptr


@helper
def largest_of(ptr: Ints) -> int:
    """Size of the largest segment."""
    largest = 0
    for i in range(ptr.size - 1):
        largest = max(largest, ptr[i + 1] - ptr[i])
    return largest


@helper
def mark(flags: Bools, items: Ints) -> None:
    """Set ``flags[items]``; compiles faster than fancy indexing."""
    for item in items:
        flags[item] = True


@helper
def unmark(flags: Bools, items: Ints) -> None:
    """Clear ``flags[items]``."""
    for item in items:
        flags[item] = False


@helper
def sort_by(keys: Ints, order: Ints, limit: int) -> tuple[Ints, Ints]:
    """Stable counting sort of ``order`` by ``keys[order]`` < ``limit``; also return key offsets."""
    place = np.zeros(limit + 1, np.int64)
    for key in keys:
        place[key + 1] += 1
    for i in range(limit):
        place[i + 1] += place[i]
    ptr = place.copy()
    result = np.empty_like(order)
    for item in order:
        key = keys[item]
        result[place[key]] = item
        place[key] += 1
    return result, ptr


@compiled
def compress(sender: Ints, receiver: Ints, num_nodes: int) -> tuple[Ints, Ints, Ints]:
    """Convert an edge list to rows: ``row_ptr``, ``column`` and each entry's index in the list."""
    by_sender, _ = sort_by(sender, np.arange(sender.size), num_nodes)
    order, row_ptr = sort_by(receiver, by_sender, num_nodes)
    return row_ptr, sender[order], order


@compiled
def rows_of(row_ptr: Ints) -> Ints:
    """Row of every entry."""
    row = np.empty(row_ptr[-1], np.int64)
    for v in range(row_ptr.size - 1):
        row[row_ptr[v] : row_ptr[v + 1]] = v
    return row


@compiled
def exchange(
    row_ptr: Ints, column: Ints, keep: Bools, sender: Ints, receiver: Ints
) -> tuple[Ints, Ints, Ints]:
    """Keep the marked entries, add new edges; return rows and origins, new edges numbered last."""
    kept = np.flatnonzero(keep)
    senders = np.concatenate((column[kept], sender))
    receivers = np.concatenate((rows_of(row_ptr)[kept], receiver))
    new_row_ptr, new_column, order = compress(senders, receivers, row_ptr.size - 1)
    origin = np.concatenate((kept, column.size + np.arange(sender.size)))
    return new_row_ptr, new_column, origin[order]


@compiled
def reverse_of(row_ptr: Ints, column: Ints) -> Ints:
    """Entry of every edge's reverse, repeated edges matched one to one; empty if one has none."""
    cursor = row_ptr[:-1].copy()
    reverse = np.empty_like(column)
    for u in range(row_ptr.size - 1):
        for e in range(row_ptr[u], row_ptr[u + 1]):
            # Rows are visited in ascending order, as are the entries of row v.
            v = column[e]
            k = cursor[v]
            if k >= row_ptr[v + 1] or column[k] != u:
                return np.empty(0, np.int64)
            reverse[e] = k
            cursor[v] += 1
    return reverse


@compiled
def both_ways(row_ptr: Ints, column: Ints) -> Neighbours:
    """Neighbours in a directed graph, whose edges are listed at both ends."""
    row = rows_of(row_ptr)
    ptr, node, order = compress(
        np.concatenate((column, row)), np.concatenate((row, column)), row_ptr.size - 1
    )
    return Neighbours(ptr, node, order % max(column.size, 1))


@compiled
def misplaced_edge(ptr: Ints, sender: Ints, receiver: Ints) -> int:
    """Index of the first edge with an invalid node or between two graphs; -1 if there is none."""
    graph = np.empty(ptr[-1], np.int64)
    for g in range(ptr.size - 1):
        graph[ptr[g] : ptr[g + 1]] = g
    for e in range(sender.size):
        u, v = sender[e], receiver[e]
        if u < 0 or v < 0 or u >= graph.size or v >= graph.size or graph[u] != graph[v]:
            return e
    return -1


@compiled
def gather(
    graphs: Ints,
    node_start: Ints,
    node_count: Ints,
    edge_start: Ints,
    edge_count: Ints,
    row: Locals,
    column: Locals,
) -> Selected:
    """Gather graphs from a store with nodes numbered within each graph and edges sorted by row."""
    ptr, edge_ptr = offsets(node_count[graphs]), offsets(edge_count[graphs])
    row_ptr = np.zeros(ptr[-1] + 1, np.int64)
    new_column = np.empty(edge_ptr[-1], np.int64)
    nodes, edges = np.empty(ptr[-1], np.int64), np.empty(edge_ptr[-1], np.int64)
    for i in range(graphs.size):
        g, first = graphs[i], ptr[i]
        for k in range(ptr[i + 1] - first):
            nodes[first + k] = node_start[g] + k
        for k in range(edge_ptr[i + 1] - edge_ptr[i]):
            e = edge_start[g] + k
            if not (0 <= row[e] < node_count[g] and 0 <= column[e] < node_count[g]):
                raise IndexError("an edge of the store refers to a node that does not exist")
            edges[edge_ptr[i] + k] = e
            new_column[edge_ptr[i] + k] = first + column[e]
            row_ptr[first + row[e] + 1] += 1
    for v in range(row_ptr.size - 1):
        row_ptr[v + 1] += row_ptr[v]
    return Selected(CSR(ptr, row_ptr, new_column), nodes, edges)


@compiled
def induced(graphs: CSR, keep: Bools, keep_edge: Bools) -> Selected:
    """Subgraphs of the kept nodes and edges."""
    ptr, row_ptr, column = graphs
    nodes = np.flatnonzero(keep)
    place = np.cumsum(keep) - 1
    new_ptr = np.zeros_like(ptr)
    for g in range(ptr.size - 1):
        new_ptr[g + 1] = new_ptr[g] + np.sum(keep[ptr[g] : ptr[g + 1]])
    new_row_ptr = np.zeros(nodes.size + 1, np.int64)
    new_column, edges = np.empty_like(column), np.empty_like(column)
    size = 0
    for i in range(nodes.size):
        for e in range(row_ptr[nodes[i]], row_ptr[nodes[i] + 1]):
            if keep_edge[e] and keep[column[e]]:
                new_column[size], edges[size] = place[column[e]], e
                size += 1
        new_row_ptr[i + 1] = size
    subgraphs = CSR(new_ptr, new_row_ptr, new_column[:size].copy())
    return Selected(subgraphs, nodes, edges[:size].copy())


@helper
def list_edges(graphs: CSR, reverse: Ints, g: int, edges: Ints) -> int:
    """Write the edges of a graph to ``edges``, undirected ones once; return their number."""
    size = 0
    for e in range(graphs.row_ptr[graphs.ptr[g]], graphs.row_ptr[graphs.ptr[g + 1]]):
        if e <= reverse[e]:
            edges[size] = e
            size += 1
    return size


@helper
def simple_rows(neighbours: Neighbours) -> tuple[Ints, Ints]:
    """Remove self-loops and repeated entries from rows; return offsets and nodes."""
    ptr, node, _ = neighbours
    counts, simple = np.zeros(ptr.size - 1, np.int64), np.empty_like(node)
    size = 0
    for v in range(counts.size):
        before = -1
        for u in node[ptr[v] : ptr[v + 1]]:
            if u != v and u != before:
                simple[size] = u
                size += 1
                counts[v] += 1
            before = u
    return offsets(counts), simple[:size].copy()
