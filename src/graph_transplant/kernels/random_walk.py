"""Probabilities that random walks return to their start."""

from __future__ import annotations

import numpy as np

from graph_transplant.kernels.arrays import CSR, Doubles, Floats, compiled, helper

Chances = np.ndarray[tuple[int, int], np.dtype[np.float32]]  # a row per node

DENSE = 8  # a dense matrix is faster above n² / 8 edges


@compiled
def return_probabilities(graphs: CSR, weight: Floats, symmetric: bool, steps: int) -> Chances:
    """Probability that a walk returns to its start after 1, 2, … steps, ``[nodes, steps]``.

    From node ``v`` the walk moves to a node of row ``v`` with probability proportional to the
    entry's weight. It ends at nodes whose row has no weight.
    """
    ptr, row_ptr = graphs.ptr, graphs.row_ptr
    nodes = row_ptr.size - 1
    found = np.zeros((nodes, steps), np.float32)
    total = np.zeros(nodes)
    for v in range(nodes):
        for e in range(row_ptr[v], row_ptr[v + 1]):
            total[v] += weight[e]
    for g in range(ptr.size - 1):
        first, last = ptr[g], ptr[g + 1]
        if (row_ptr[last] - row_ptr[first]) * DENSE > (last - first) ** 2:
            powers_of_matrix(first, last, graphs, weight, total, found)
        else:
            walks_from_nodes(first, last, graphs, weight, total, symmetric, found)
    return found


@helper
def powers_of_matrix(
    first: int, last: int, graphs: CSR, weight: Floats, total: Doubles, found: Chances
) -> None:
    """Diagonals of the powers of the transition matrix, for one dense graph."""
    row_ptr, column = graphs.row_ptr, graphs.column
    step = np.zeros((last - first, last - first))
    for v in range(first, last):
        for e in range(row_ptr[v], row_ptr[v + 1]):
            if total[v] > 0:
                step[v - first, column[e] - first] += weight[e] / total[v]
    power = step
    for k in range(found.shape[1]):
        if k:
            power = power @ step
        found[first:last, k] = np.diag(power)


@helper
def walks_from_nodes(
    first: int,
    last: int,
    graphs: CSR,
    weight: Floats,
    total: Doubles,
    symmetric: bool,
    found: Chances,
) -> None:
    """Follow the walks from every node of one sparse graph, a step at a time."""
    row_ptr, column = graphs.row_ptr, graphs.column
    steps, nodes = found.shape[1], last - first
    # Visit only nodes that the walk can have reached.
    here, there = np.zeros(nodes), np.zeros(nodes)
    reached, following = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    # With symmetric weights p_j(u, v) = p_j(v, u) total[v] / total[u], so i steps suffice for 2i:
    # p_{i+j}(v, v) = Σ_u p_i(v, u) p_j(u, v).
    walked = (steps + 1) // 2 if symmetric else steps
    for start in range(nodes):
        here[start], reached[0], size = 1.0, start, 1
        for step in range(walked):
            count = 0
            for place in range(size):
                v = reached[place]
                whole = total[first + v]
                share = here[v] / whole if whole > 0 else 0.0
                for e in range(row_ptr[first + v], row_ptr[first + v + 1]):
                    probability, u = share * weight[e], column[e] - first
                    if probability > 0:
                        if there[u] == 0.0:
                            following[count] = u
                            count += 1
                        there[u] += probability
            if symmetric:
                odd = even = 0.0
                for place in range(count):
                    u = following[place]
                    back = there[u] * total[first + start] / total[first + u]
                    odd += here[u] * back
                    even += there[u] * back
                found[first + start, 2 * step] = odd
                if 2 * step + 1 < steps:
                    found[first + start, 2 * step + 1] = even
            else:
                found[first + start, step] = there[start]
            for place in range(size):
                here[reached[place]] = 0.0
            here, there, reached, following, size = there, here, following, reached, count
        for place in range(size):
            here[reached[place]] = 0.0
