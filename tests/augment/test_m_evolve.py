"""Open-triad swaps: what they may do, and how they are distributed, from networkx."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from graph_transplant.augment import EditedGraphs, SwapOpenTriads
from graph_transplant.data import GraphBatch
from helpers.edits import agree, both_ways, copies, drawn, edited
from helpers.oracles import edges_of, graphs_of
from helpers.strategies import batches, seeds

Edge = tuple[int, int]


def swaps_of(virtual: EditedGraphs, batch: GraphBatch) -> list[tuple[Edge, Edge]]:
    """Removed and new edges, one to one: ``edge_attr`` numbers the edges of the batch."""
    old, new = edges_of(batch), edges_of(virtual.batch)
    number = {float(value): e for e, value in enumerate(batch.edges["edge_attr"][:, 0])}
    moved = np.flatnonzero(virtual.edge_origin < 0)
    like = [number[float(virtual.batch.edges["edge_attr"][e, 0])] for e in moved]
    assert set(like) == set(range(batch.num_edges)) - set(virtual.edge_origin.tolist())
    swaps = {like_e: (old[like_e], new[e]) for like_e, e in zip(like, moved, strict=True)}
    if not batch.symmetric:
        return list(swaps.values())
    for e, ((u, v), (a, b)) in swaps.items():  # with the reverse goes the reverse
        assert swaps[batch.reverse[e]] == ((v, u), (b, a))
    return [swap for e, swap in swaps.items() if e < batch.reverse[e]]


@settings(max_examples=60)
@given(batches(), st.sampled_from([0.0, 0.1, 0.2, 0.4, 0.9]), seeds())
def test_a_swap_closes_an_open_triad_and_removes_an_edge_of_it(
    data: Batch, ratio: float, seed: int
) -> None:
    data.edge_attr = torch.arange(data.num_edges).double().unsqueeze(1)
    batch = GraphBatch.from_pyg(data)
    virtual = edited(SwapOpenTriads(ratio), batch, seed)
    assert virtual.batch.num_edges == batch.num_edges
    assert (virtual.node_origin == np.arange(batch.num_nodes)).all()
    graph = nx.compose_all([nx.Graph(each) for each in graphs_of(batch)])
    swaps = swaps_of(virtual, batch)
    for old, new in swaps:
        (stays,), (centre,), (comes,) = (
            set(old) & set(new),
            set(old) - set(new),
            set(new) - set(old),
        )
        assert graph.has_edge(stays, centre)
        assert graph.has_edge(centre, comes)
        assert not graph.has_edge(stays, comes)
        assert (old[0] == stays) == (new[0] == stays)  # it sends or receives as before
    for ends in zip(*swaps, strict=True):
        assert len({frozenset(edge) for edge in ends}) == len(swaps)
    owner = batch.batch.tolist()
    made = Counter(owner[new[0]] for _, new in swaps)
    reverse = batch.reverse if batch.symmetric else np.arange(batch.num_edges)
    edges = Counter(owner[u] for e, (u, _) in enumerate(edges_of(batch)) if e <= reverse[e])
    assert all(made[g] <= math.ceil(round(ratio * edges[g], 9)) for g in made)


def swapped_by_graph(virtual: EditedGraphs) -> list[int]:
    """Undirected edges that moved in each graph."""
    receiver = virtual.batch.edge_index[1, virtual.edge_origin < 0]
    graphs = virtual.batch.batch[receiver]
    return (torch.bincount(graphs, minlength=virtual.batch.num_graphs) // 2).tolist()


# 0.55 · 100 is a little more than 55 in binary fractions, which rounding up must not see.
@pytest.mark.parametrize(
    ("ratio", "nodes", "expected"), [(0.01, 40, 1), (0.2, 40, 8), (0.29, 40, 12), (0.55, 100, 55)]
)
def test_so_many_edges_are_swapped(ratio: float, nodes: int, expected: int) -> None:
    ring = Data(edge_index=both_ways(*((v, (v + 1) % nodes) for v in range(nodes))))
    ring.num_nodes = nodes
    assert swapped_by_graph(drawn(SwapOpenTriads(ratio), copies(ring, 30))) == [expected] * 30


def test_few_swaps_are_missed_in_sparse_graphs() -> None:
    items = [
        Data(edge_index=both_ways(*nx.gnm_random_graph(30, 55, seed=k).edges), num_nodes=30)
        for k in range(40)
    ]
    virtual = drawn(SwapOpenTriads(0.4), GraphBatch.from_pyg(Batch.from_data_list(items)))
    made = swapped_by_graph(virtual)
    assert max(made) <= 22
    assert sum(made) >= 0.99 * 40 * 22


SHAPES = {
    "tree": [(0, 1), (0, 2), (0, 3), (3, 4), (4, 5)],
    "dense": [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (2, 3), (3, 4), (4, 5), (5, 1)],
    "shared": [(0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (4, 2), (4, 5)],
}


def single_swaps(graph: nx.Graph) -> dict[tuple[frozenset[int], frozenset[int]], float]:
    """Chances of what one swap adds and removes.

    Ends are drawn by their resource-allocation index; a centre contributes 1 / degree to it, and
    either edge of the triad goes.
    """
    index = {(u, v): s for u, v, s in nx.resource_allocation_index(graph) if s > 0}
    total = sum(index.values())
    return {
        (frozenset((u, v)), frozenset((centre, end))): 1 / graph.degree(centre) / total / 2
        for u, v in index
        for centre in nx.common_neighbors(graph, u, v)
        for end in (u, v)
    }


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_pairs_are_drawn_by_their_similarity(shape: str, directed: bool) -> None:
    edges = SHAPES[shape]
    index = torch.tensor(edges).t().contiguous() if directed else both_ways(*edges)
    batch = copies(Data(edge_index=index, num_nodes=6), 8000)
    virtual = drawn(SwapOpenTriads(0.01), batch, 2)  # one swap each
    old, new = edges_of(batch), edges_of(virtual.batch)
    gone = set(range(len(old))) - set(virtual.edge_origin.tolist())

    def ends(found: list[Edge]) -> dict[int, frozenset[int]]:
        return {u // 6: frozenset((u % 6, v % 6)) for u, v in found}

    added = ends([new[e] for e in np.flatnonzero(virtual.edge_origin < 0)])
    removed = ends([old[e] for e in gone])
    assert added.keys() == removed.keys()
    assert len(added) == 8000
    agree(Counter((added[g], removed[g]) for g in added), single_swaps(nx.Graph(edges)))


def test_pairs_are_drawn_without_replacement() -> None:
    # A star with three leaves: three pairs of leaves, equally similar; two of them are joined.
    star = Data(edge_index=both_ways((0, 1), (0, 2), (0, 3)), num_nodes=4)
    virtual = drawn(SwapOpenTriads(0.6), copies(star, 3000))
    assert swapped_by_graph(virtual) == [2] * 3000
    rows: list[set[Edge]] = [set() for _ in range(3000)]
    for u, v in virtual.batch.edge_index[:, virtual.edge_origin < 0].t().tolist():
        rows[u // 4].add((min(u, v) % 4, max(u, v) % 4))
    pairs = [(1, 2), (1, 3), (2, 3)]
    sets = [frozenset(c) for c in itertools.combinations(pairs, 2)]
    agree(Counter(map(frozenset, rows)), dict.fromkeys(sets, 1 / 3))


def test_of_repeated_edges_any_may_go() -> None:
    # Two edges between 0 and 1, of different values; the triad 0 - 1 - 2 is open.
    attr = torch.tensor([[5.0], [5.0], [7.0], [7.0], [9.0], [9.0]])
    data = Data(edge_index=both_ways((0, 1), (0, 1), (1, 2)), edge_attr=attr, num_nodes=3)
    virtual = drawn(SwapOpenTriads(0.1), copies(data, 3000))
    values = virtual.batch.edges["edge_attr"][virtual.edge_origin < 0, 0]
    agree(Counter(values.tolist()), {5.0: 0.25, 7.0: 0.25, 9.0: 0.5})
