"""Open-triad swaps: what they may do, and how they are distributed, from networkx."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.augment import EditedGraphs, SwapOpenTriads
from graph_transplant.errors import GraphTransplantError
from graph_transplant.graphs import GraphStore
from oracles import check_valid_batch, graphs_of, is_undirected, same_content
from strategies import batches, random_batch, seeds

# A correct sampler fails a test at this level once in 100,000 runs; the seeds are fixed.
LEVEL = 1e-5

MODEL = gt.GraphClassifier(3, 3, hidden=4)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def both_ways(*edges: tuple[int, int]) -> Tensor:
    listed = [e for u, v in edges for e in ((u, v), (v, u))]
    return torch.tensor(listed, dtype=torch.long).reshape(-1, 2).t().contiguous()


def copies(data: Data, count: int) -> Batch:
    """The same graph many times: one call draws a whole sample."""
    data.y = torch.tensor([0])
    return GraphStore.from_pyg([data]).batch([0] * count)


def no_prediction() -> Any:
    raise AssertionError("swaps need no prediction")


def swapped(batch: Batch, ratio: float, seed: int = 0) -> EditedGraphs:
    targets = torch.rand(batch.num_graphs, 3, generator=generator(1))
    clean = gt.CleanPass(batch, targets, no_prediction)
    virtual = SwapOpenTriads(ratio)(clean, model=MODEL, generator=generator(seed))
    assert torch.equal(virtual.targets, targets)
    return virtual


def pair_numbers(batch: Batch) -> Tensor:
    """A number for every edge, which an undirected edge shares with its reverse."""
    if not is_undirected(batch):
        return torch.arange(batch.num_edges)
    number = torch.empty(batch.num_edges, dtype=torch.long)
    waiting: dict[tuple[int, int], list[int]] = {}
    for edge, (u, v) in enumerate(batch.edge_index.t().tolist()):
        mates = waiting.get((v, u), [])
        if mates and u != v:
            number[edge] = mates.pop(0)  # repeated edges in their order
        else:
            number[edge] = edge
            if u != v:
                waiting.setdefault((u, v), []).append(edge)
    return number


def swaps_of(virtual: EditedGraphs, batch: Batch) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Pairs of a removed and a new edge; ``batch.edge_attr`` numbers the edges.

    The new edge carries the number of the one removed for it.
    """
    undirected = is_undirected(batch)
    numbers = batch.edge_attr[:, 0].to(torch.long).tolist()
    kept = set(virtual.edge_origin.tolist())
    old = {
        number: edge
        for place, (number, edge) in enumerate(
            zip(numbers, batch.edge_index.t().tolist(), strict=True)
        )
        if place not in kept
    }
    new = (virtual.edge_origin == -1).nonzero().flatten()
    added = [
        (int(virtual.batch.edge_attr[e, 0]), tuple(virtual.batch.edge_index[:, e].tolist()))
        for e in new.tolist()
    ]
    if undirected:
        assert Counter(added) == Counter((n, (v, u)) for n, (u, v) in added)
        added = [(n, e) for n, e in added if e[0] < e[1]]
    assert sorted(n for n, _ in added) == sorted(old)  # one to one
    return [((old[n][0], old[n][1]), (e[0], e[1])) for n, e in added]


@settings(max_examples=60)
@given(batches(), st.sampled_from([0.0, 0.1, 0.2, 0.4, 0.9]), seeds())
def test_a_swap_closes_an_open_triad_and_removes_an_edge_of_it(
    batch: Batch, ratio: float, seed: int
) -> None:
    undirected = is_undirected(batch)
    batch.edge_attr = pair_numbers(batch).to(torch.double).unsqueeze(1)
    before = batch.clone()
    virtual = swapped(batch, ratio, seed)
    assert same_content(batch, before)
    check_valid_batch(virtual.batch, graphs=batch.num_graphs, undirected=undirected)
    assert set(virtual.batch.keys()) == set(batch.keys())
    assert virtual.batch.num_edges == batch.num_edges  # the degree sum, too, is kept
    assert torch.equal(virtual.node_origin, torch.arange(int(batch.num_nodes)))
    kept = virtual.edge_origin >= 0
    origin = virtual.edge_origin[kept]
    assert torch.equal(virtual.batch.edge_index[:, kept], batch.edge_index[:, origin])
    assert torch.equal(virtual.batch.edge_attr[kept], batch.edge_attr[origin])

    swaps = swaps_of(virtual, batch)
    added = [frozenset(new) for _, new in swaps]
    assert len(set(added)) == len(added)
    removed = [frozenset(old) for old, _ in swaps]
    assert len(set(removed)) == len(removed)
    graphs = [nx.Graph(graph) for graph in graphs_of(batch)]
    owner = {node: graph for graph in graphs for node in graph}
    for old, new in swaps:
        graph = owner[new[0]]
        assert new[0] != new[1]
        assert graph is owner[new[1]]
        assert not graph.has_edge(*new)
        (stays,) = set(old) & set(new)
        (centre,) = set(old) - {stays}
        (comes,) = set(new) - {stays}
        assert graph.has_edge(stays, centre)
        assert graph.has_edge(centre, comes)
        if not undirected:  # the end that stays sends or receives as before
            assert (old[0] == stays) == (new[0] == stays)
    for number in range(batch.num_graphs):
        edges = pair_numbers(batch)[batch.batch[batch.edge_index[0]] == number]
        here = sum(int(batch.batch[new[0]]) == number for _, new in swaps)
        assert here <= math.ceil(round(ratio * len(set(edges.tolist())), 9))


def test_weights_move_with_the_edges() -> None:
    batch = random_batch(generator(5), graphs=6, edge_weight=True)
    batch.edge_attr = pair_numbers(batch).to(torch.double).unsqueeze(1)
    virtual = swapped(batch, 0.4, 1)
    new = virtual.edge_origin == -1
    assert bool(new.any())
    number = virtual.batch.edge_attr[:, 0].to(torch.long)
    assert torch.equal(virtual.batch.edge_weight, batch.edge_weight[number])


# ------------------------------------------------------------------ how many


@pytest.mark.parametrize(("ratio", "expected"), [(0.0, 0), (0.01, 1), (0.2, 8), (0.29, 12)])
def test_so_many_edges_are_swapped(ratio: float, expected: int) -> None:
    ring = Data(edge_index=both_ways(*((v, (v + 1) % 40) for v in range(40))), num_nodes=40)
    virtual = swapped(copies(ring, 30), ratio)
    new = virtual.batch.batch[virtual.batch.edge_index[0, virtual.edge_origin == -1]]
    assert torch.bincount(new, minlength=30).tolist() == [2 * expected] * 30


def test_a_product_that_is_whole_is_not_rounded_up() -> None:
    # 0.55 · 100 is a little more than 55 in binary fractions, which rounding up must not see.
    assert math.ceil(0.55 * 100) == 56
    ring = Data(edge_index=both_ways(*((v, (v + 1) % 100) for v in range(100))), num_nodes=100)
    virtual = swapped(copies(ring, 20), 0.55)
    new = virtual.batch.batch[virtual.batch.edge_index[0, virtual.edge_origin == -1]]
    assert int(torch.bincount(new).max()) == 2 * 55


def test_few_swaps_are_missed_in_sparse_graphs() -> None:
    items = []
    for k in range(40):
        graph = nx.gnm_random_graph(30, 55, seed=k)
        items.append(Data(edge_index=both_ways(*graph.edges), num_nodes=30, y=torch.tensor([0])))
    virtual = swapped(Batch.from_data_list(items), 0.4)
    made = int((virtual.edge_origin == -1).sum()) // 2
    assert 0.95 * 40 * 22 <= made <= 40 * 22


def test_graphs_without_open_triads_stay_as_they_are() -> None:
    def graph(nodes: int, *edges: tuple[int, int]) -> Data:
        return Data(edge_index=both_ways(*edges), num_nodes=nodes, y=torch.tensor([0]))

    triangles = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)]
    batch = Batch.from_data_list(
        [
            graph(1),
            graph(4),
            graph(2, (0, 1)),
            graph(5, *itertools.combinations(range(5), 2)),
            graph(6, *triangles),
            graph(2, (0, 1), (0, 1)),
            Data(edge_index=torch.tensor([[0], [0]]), num_nodes=2, y=torch.tensor([0])),
        ]
    )
    virtual = swapped(batch, 0.9)
    assert bool((virtual.edge_origin >= 0).all())
    assert virtual.batch.num_edges == batch.num_edges
    alone = Batch.from_data_list([graph(1)])
    assert swapped(alone, 0.9).batch.num_edges == 0


# ------------------------------------------------------------------ how distributed

Outcome = tuple[frozenset[int], frozenset[int]]


def agree(observed: Counter[Any], expected: dict[Any, float]) -> None:
    """A chi-square test of counts against probabilities."""
    total = sum(observed.values())
    assert set(observed) <= set(expected)
    assert sum(expected.values()) == pytest.approx(1)
    test = chisquare(
        [observed[outcome] for outcome in expected],
        [chance * total for chance in expected.values()],
    )
    assert test.pvalue > LEVEL


SHAPES = {
    "tree": [(0, 1), (0, 2), (0, 3), (3, 4), (4, 5)],
    "dense": [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (2, 3), (3, 4), (4, 5), (5, 1)],
    "shared": [(0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (4, 2), (4, 5)],
}


def single_swaps(edges: list[tuple[int, int]]) -> dict[Outcome, float]:
    """Chances of what one swap adds and removes.

    Ends are drawn by their resource-allocation index, as networkx gives it; the centre contributes
    to it by 1 / degree, and either edge of the triad goes.
    """
    graph = nx.Graph(edges)
    index = {(u, v): s for u, v, s in nx.resource_allocation_index(graph) if s > 0}
    total = sum(index.values())
    chances: dict[Outcome, float] = {}
    for (u, v), similarity in index.items():
        for centre in nx.common_neighbors(graph, u, v):
            share = similarity / total * (1 / graph.degree(centre)) / similarity
            for end in (u, v):
                chances[frozenset((u, v)), frozenset((centre, end))] = share / 2
    return chances


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_pairs_are_drawn_by_their_similarity(shape: str, directed: bool) -> None:
    edges = SHAPES[shape]
    index = torch.tensor(edges).t().contiguous() if directed else both_ways(*edges)
    batch = copies(Data(edge_index=index, num_nodes=6), 8000)
    virtual = swapped(batch, 0.01, 2)  # one swap each
    gone = torch.ones(batch.num_edges, dtype=torch.bool)
    gone[virtual.edge_origin[virtual.edge_origin >= 0]] = False
    new = virtual.batch.edge_index[:, virtual.edge_origin == -1]

    def by_graph(ends: Tensor) -> dict[int, frozenset[int]]:
        return {u // 6: frozenset((u % 6, v % 6)) for u, v in ends.t().tolist()}

    added, removed = by_graph(new), by_graph(batch.edge_index[:, gone])
    assert added.keys() == removed.keys()
    assert len(added) > 7500  # in a few graphs no draw finds an open triad
    agree(Counter((added[g], removed[g]) for g in added), single_swaps(edges))


def test_of_repeated_edges_any_may_go() -> None:
    # Two edges between 0 and 1, of different values; the triad 0 - 1 - 2 is open.
    edges = both_ways((0, 1), (0, 1), (1, 2))
    attr = torch.tensor([[5.0], [5.0], [7.0], [7.0], [9.0], [9.0]])
    batch = copies(Data(edge_index=edges, edge_attr=attr, num_nodes=3), 3000)
    virtual = swapped(batch, 0.1)
    values = virtual.batch.edge_attr[virtual.edge_origin == -1, 0][::2].tolist()
    agree(Counter(values), {5.0: 0.25, 7.0: 0.25, 9.0: 0.5})


def test_self_loops_make_no_triads() -> None:
    edges = torch.cat((both_ways((0, 1)), torch.tensor([[0, 1], [0, 1]])), 1)
    batch = Batch.from_data_list([Data(edge_index=edges, num_nodes=2, y=torch.tensor([0]))])
    assert bool((swapped(batch, 0.9).edge_origin >= 0).all())


@pytest.mark.parametrize("wrong", [-0.2, 1.0, float("nan")])
def test_ratios_out_of_range_are_refused(wrong: float) -> None:
    with pytest.raises(GraphTransplantError, match=rf"`ratio` must be in \[0, 1\), got {wrong}"):
        SwapOpenTriads(wrong)


def test_it_says_its_ratio() -> None:
    assert repr(SwapOpenTriads(0.4)) == "SwapOpenTriads(ratio=0.4)"
