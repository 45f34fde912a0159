"""Random edits of single graphs, against networkx and exact distributions."""

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

from graph_transplant.augment import (
    DropEdges,
    DropNodes,
    EditedGraphs,
    MaskNodes,
    PerturbEdges,
    RandomSubgraph,
)
from graph_transplant.augment.perturb import Perturbation
from graph_transplant.data import GraphBatch, GraphStore
from graph_transplant.errors import DataError
from helpers.edits import agree, both_ways, by_graph, copies, drawn, edited, uniform
from helpers.oracles import edges_of, graphs_of
from helpers.strategies import batches, generator, seeds

RATIOS = st.sampled_from([0.0, 0.1, 0.2, 0.29, 0.4, 0.5, 0.75, 0.99])
edits = settings(max_examples=30)


def floor(ratio: float, count: int) -> int:
    return math.floor(round(ratio * count, 9))


def check_induced(virtual: EditedGraphs, batch: GraphBatch) -> None:
    """All edges among the kept nodes are there, and no others; features go with the nodes."""
    nodes = set(virtual.node_origin.tolist())
    expected = [e for e, (u, v) in enumerate(edges_of(batch)) if {u, v} <= nodes]
    assert sorted(virtual.edge_origin.tolist()) == expected
    for name, value in batch.nodes.items():
        assert torch.equal(virtual.batch.nodes[name], value[virtual.node_origin])


def check_nodes_stay(virtual: EditedGraphs, batch: GraphBatch) -> None:
    assert (virtual.node_origin == np.arange(batch.num_nodes)).all()
    for name, value in batch.nodes.items():
        assert torch.equal(virtual.batch.nodes[name], value)


def kept_sets(virtual: EditedGraphs, nodes: int) -> Counter[frozenset[int]]:
    """How often each set of nodes was kept, over copies of a graph."""
    parts = np.split(virtual.node_origin % nodes, virtual.batch.ptr[1:-1])
    return Counter(frozenset(part.tolist()) for part in parts)


def subsets(items: object, size: int) -> dict[frozenset, float]:
    """All subsets of a size, equally likely."""
    return uniform(frozenset(c) for c in itertools.combinations(items, size))


# ------------------------------------------------------------------ what each edit does


@edits
@given(batches(), RATIOS, seeds())
def test_dropping_nodes_leaves_the_induced_subgraph(data: Batch, ratio: float, seed: int) -> None:
    batch = GraphBatch.from_pyg(data)
    virtual = edited(DropNodes(ratio), batch, seed)
    expected = [max(1, n - floor(ratio, n)) for n in np.diff(batch.ptr)]
    assert np.diff(virtual.batch.ptr).tolist() == expected
    check_induced(virtual, batch)


@edits
@given(batches(), RATIOS, seeds())
def test_dropping_edges_keeps_nodes_and_directions(data: Batch, ratio: float, seed: int) -> None:
    batch = GraphBatch.from_pyg(data)
    virtual = edited(DropEdges(ratio), batch, seed)
    check_nodes_stay(virtual, batch)
    assert (virtual.edge_origin >= 0).all()
    pairs = zip(
        by_graph(batch, edges_of(batch)), by_graph(batch, edges_of(virtual.batch)), strict=True
    )
    for old, new in pairs:
        assert not new - old
        assert new.total() == old.total() - floor(ratio, old.total())


def absent_of(batch: GraphBatch) -> list[set[tuple[int, int]]]:
    """Pairs without an edge, by networkx."""
    kind = nx.Graph if batch.symmetric else nx.DiGraph
    found = [set(nx.complement(kind(graph)).edges) for graph in graphs_of(batch)]
    return [{(min(e), max(e)) if batch.symmetric else e for e in pairs} for pairs in found]


@edits
@given(batches(), RATIOS, seeds())
def test_edges_are_replaced_by_absent_pairs(data: Batch, ratio: float, seed: int) -> None:
    # Every edge has a value of its own, and so has its reverse.
    data.edge_attr = torch.arange(data.num_edges).double().unsqueeze(1)
    batch = GraphBatch.from_pyg(data)
    virtual = edited(PerturbEdges(ratio), batch, seed)
    check_nodes_stay(virtual, batch)
    before, after = edges_of(batch), edges_of(virtual.batch)
    groups = zip(by_graph(batch, before), by_graph(batch, after), absent_of(batch), strict=True)
    for old, new, absent in groups:
        added, removed = new - old, old - new
        assert added.total() == removed.total() == min(floor(ratio, old.total()), len(absent))
        assert set(added) <= absent
        assert set(added.values()) <= {1}
    # A new edge carries what a removed one of its graph carried, its reverse what the reverse did.
    number = {float(value): e for e, value in enumerate(batch.edges["edge_attr"][:, 0])}
    place = {edge: e for e, edge in enumerate(after)}
    kept, graph = set(virtual.edge_origin.tolist()), batch.batch.tolist()
    used: Counter[int] = Counter()
    for e in np.flatnonzero(virtual.edge_origin < 0):
        like = number[float(virtual.batch.edges["edge_attr"][e, 0])]
        assert like not in kept
        assert graph[before[like][0]] == graph[after[e][0]]
        used[like] += 1
        if batch.symmetric:
            back = place[after[e][::-1]]
            assert number[float(virtual.batch.edges["edge_attr"][back, 0])] == batch.reverse[like]
    assert all(
        times == (2 if batch.symmetric and u == v else 1)
        for (u, v), times in ((before[e], n) for e, n in used.items())
    )


def test_edges_of_large_graphs_are_replaced_without_listing_all_pairs() -> None:
    nodes = 200_000  # 2 · 10^10 pairs
    ends = torch.arange(nodes - 1)
    path = torch.stack((ends, ends + 1))
    data = Data(edge_index=torch.cat((path, path.flip(0)), 1), num_nodes=nodes)
    batch = GraphBatch.from_pyg(data)
    virtual = drawn(PerturbEdges(0.5), batch)
    sender, receiver = virtual.batch.edge_index[:, virtual.edge_origin < 0]
    assert len(sender) == 2 * ((nodes - 1) // 2)
    assert bool(((sender - receiver).abs() > 1).all())
    assert len(torch.unique(sender * nodes + receiver)) == len(sender)
    # Uniform pairs are a third of the graph apart on average.
    assert float((sender - receiver).abs().double().mean()) == pytest.approx(nodes / 3, rel=0.02)


@edits
@given(batches(with_x=True), RATIOS, seeds())
def test_masking_changes_whole_rows_of_so_many_nodes(data: Batch, ratio: float, seed: int) -> None:
    data.x = torch.rand(data.x.shape) + 1  # no row is zero by itself
    batch = GraphBatch.from_pyg(data)
    virtual = edited(MaskNodes(ratio), batch, seed)
    assert (virtual.batch.column == batch.column).all()
    masked = (virtual.batch.x == 0).all(1)
    assert torch.equal(virtual.batch.x[~masked], data.x[~masked])
    counts = torch.bincount(data.batch[masked], minlength=batch.num_graphs)
    assert counts.tolist() == [floor(ratio, n) for n in np.diff(batch.ptr)]


@edits
@given(batches(), st.sampled_from([0.1, 0.3, 0.6, 0.8, 1.0]), seeds())
def test_subgraphs_are_connected_and_of_the_right_size(data: Batch, size: float, seed: int) -> None:
    batch = GraphBatch.from_pyg(data)
    virtual = edited(RandomSubgraph(size), batch, seed)
    check_induced(virtual, batch)
    parts = np.split(virtual.node_origin, virtual.batch.ptr[1:-1])
    for graph, part in zip(graphs_of(batch), parts, strict=True):
        plain, kept = nx.Graph(graph), set(part.tolist())
        assert nx.is_connected(plain.subgraph(kept))
        whole = nx.node_connected_component(plain, next(iter(kept)))
        assert len(kept) == min(max(1, floor(size, len(plain))), len(whole))


# ------------------------------------------------------------------ how choices are distributed


@pytest.mark.parametrize("kind", [DropNodes, MaskNodes])
def test_every_set_of_nodes_is_equally_likely(kind: type[Perturbation]) -> None:
    path = Data(x=torch.ones(5, 1), edge_index=both_ways((0, 1), (1, 2), (2, 3), (3, 4)))
    virtual = drawn(kind(0.4), copies(path, 3000))
    if kind is DropNodes:
        observed = kept_sets(virtual, 5)
    else:
        rows = virtual.batch.x.view(3000, 5).bool()
        observed = Counter(frozenset(row.nonzero().flatten().tolist()) for row in rows)
    agree(observed, subsets(range(5), 3))


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", [PerturbEdges, DropEdges])
def test_every_set_of_edges_is_equally_likely(kind: type[Perturbation], directed: bool) -> None:
    edges = [(0, 1), (0, 2), (0, 3), (3, 4)]
    index = torch.tensor(edges).t().contiguous() if directed else both_ways(*edges)
    batch = copies(Data(edge_index=index, num_nodes=5), 3000)
    virtual = drawn(kind(0.5), batch)
    old, new = edges_of(batch), edges_of(virtual.batch)
    kept = by_graph(batch, [old[e] for e in virtual.edge_origin if e >= 0])
    agree(Counter(frozenset((u % 5, v % 5) for u, v in graph) for graph in kept), subsets(edges, 2))
    if kind is PerturbEdges:
        one = copies(Data(edge_index=index, num_nodes=5), 1)
        fresh = [e for e, o in zip(new, virtual.edge_origin, strict=True) if o < 0]
        added = by_graph(batch, fresh)
        sets = Counter(frozenset((u % 5, v % 5) for u, v in graph) for graph in added)
        agree(sets, subsets(absent_of(one)[0], 2))


def test_new_edges_are_matched_with_removed_ones_at_random() -> None:
    path = Data(
        edge_index=both_ways((0, 1), (1, 2), (2, 3)),
        edge_attr=torch.tensor([[0.0], [0.0], [1.0], [1.0], [2.0], [2.0]]),
        num_nodes=4,
    )
    virtual = drawn(PerturbEdges(0.7), copies(path, 4000))  # two of three; three pairs are absent
    sender, receiver = virtual.batch.edge_index
    new = torch.from_numpy(virtual.edge_origin < 0) & (sender < receiver)
    values = virtual.batch.edges["edge_attr"][new, 0].view(4000, 2)
    agree(Counter((values[:, 0] < values[:, 1]).tolist()), {True: 0.5, False: 0.5})


def growth(graph: nx.MultiGraph, size: int) -> dict[frozenset[int], float]:
    """Exact chances of the sets that growth ends in, all its steps written out."""
    chances = {frozenset([start]): 1 / len(graph) for start in graph}
    for _ in range(size - 1):
        grown: Counter[frozenset[int]] = Counter()
        for nodes, chance in chances.items():
            leaving = [(u, v) for u, v in graph.edges() if (u in nodes) != (v in nodes)]
            if not leaving:
                grown[nodes] += chance
            for edge in leaving:
                grown[nodes | set(edge)] += chance / len(leaving)
        chances = dict(grown)
    return chances


SHAPES = {
    "tree": [(0, 1), (1, 2), (1, 3), (3, 4), (4, 5)],
    "cycles": [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 2)],
    "parts": [(0, 1), (1, 2), (3, 4)],  # node 5 stands alone
    "repeated": [(0, 1), (0, 1), (0, 2), (0, 3), (3, 4), (4, 5), (1, 1)],
}


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_subgraphs_grow_by_random_edges(shape: str, directed: bool) -> None:
    edges = SHAPES[shape]
    index = torch.tensor(edges).t().contiguous() if directed else both_ways(*edges)
    graph = nx.MultiGraph(edges)
    graph.add_nodes_from(range(6))
    virtual = drawn(RandomSubgraph(0.5), copies(Data(edge_index=index, num_nodes=6), 6000), 7)
    agree(kept_sets(virtual, 6), growth(graph, 3))


# ------------------------------------------------------------------ masks


def store_of(continuous: int) -> GraphStore:
    items = [
        Data(
            x=torch.cat((torch.randn(4, 2, generator=generator(k)) * 3 + 7, torch.eye(20)[:4]), 1),
            edge_index=both_ways((0, 1), (2, 3)),
            y=torch.tensor([k % 2]),
        )
        for k in range(6)
    ]
    return GraphStore.from_pyg(items, name="mine", num_continuous=continuous)


def test_continuous_features_are_masked_by_the_mean_of_the_training_graphs() -> None:
    store, augmentation = store_of(continuous=2), MaskNodes(0.5)
    augmentation.prepare(store.subset([0, 2, 3]), generator())
    batch = store.batch(range(6))
    assert batch.codes == 20  # the others are kept as codes
    virtual = drawn(augmentation, batch)
    changed = (virtual.batch.x != batch.x).any(1)
    mean = torch.cat([store.batch([k]).x for k in (0, 2, 3)])[:, :2].mean(0)
    expected = torch.cat((mean, torch.zeros(20))).expand(12, 22)
    torch.testing.assert_close(virtual.batch.x[changed], expected)
    assert not augmentation.state_dict()  # it follows from the training graphs
    with pytest.raises(DataError, match=r"must have 22 columns.*got shape \[4, 3\]"):
        drawn(augmentation, copies(Data(x=torch.ones(4, 3), edge_index=both_ways((0, 1))), 1))
