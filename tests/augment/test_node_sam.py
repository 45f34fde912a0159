"""NodeSam against a plain networkx version, edge by edge, and what it promises of graphs."""

from __future__ import annotations

import math
from collections import Counter

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from scipy.stats import binomtest, chisquare
from torch_geometric.data import Batch, Data

from graph_transplant.augment.base import EditedGraphs
from graph_transplant.augment.node_sam import NodeSam, NodeSamPlan
from graph_transplant.data import GraphBatch
from helpers import edits
from helpers.oracles import assert_valid, edges_of, graphs_of, neighbours, same_content
from helpers.strategies import batches, seeds


def copies(graph: nx.Graph, count: int) -> GraphBatch:
    """The same undirected graph so many times; its nodes are numbers."""
    data = Data(edge_index=edits.both_ways(*graph.edges), num_nodes=len(graph))
    return edits.copies(data, count)


def sam(batch: GraphBatch, seed: int = 0, adjust: bool = True) -> tuple[NodeSamPlan, EditedGraphs]:
    method = NodeSam(adjust)
    clean = edits.clean_of(batch)
    plan = method.plan(clean, None, np.random.default_rng(seed))
    return plan, method.transform(plan, clean)


# ------------------------------------------------------------------ the oracle


def replay(
    graph: nx.MultiDiGraph, plan: NodeSamPlan, number: int, batch: GraphBatch
) -> nx.MultiDiGraph:
    """Split and merge one graph with the choices of a plan, one edge at a time.

    Edges carry ``like`` and ``origin``; the second half is the node ``nodes + number``.
    """
    node, half = int(plan.splits.split[number]), batch.num_nodes + number
    after = nx.MultiDiGraph()
    after.add_nodes_from([*graph, half])
    for tail, head, edge in graph.edges(data="number"):
        ends = [(tail, head, edge)]
        if tail == head == node:
            ends.append((half, half, -1))
        elif node in (tail, head):
            other = head if tail == node else tail
            swapped = tuple(half if end == node else end for end in (tail, head))
            if plan.splits.shared[other]:
                ends.append((*swapped, -1))
            elif plan.splits.moved[other]:
                ends = [(*swapped, edge)]
        for one, two, origin in ends:
            after.add_edge(one, two, like=edge, origin=origin)
    like = int(plan.splits.between[number])
    after.add_edge(node, half, like=like, origin=-1)
    if batch.symmetric:
        after.add_edge(half, node, like=like, origin=-1)

    kept, merged = int(plan.merges.kept[number]), int(plan.merges.merged[number])
    assert after.has_edge(kept, merged) or after.has_edge(merged, kept)
    result = nx.MultiDiGraph()
    result.add_nodes_from(v for v in after if v != merged)
    for tail, head, data in after.edges(data=True):
        if {tail, head} == {kept, merged}:
            continue
        new_tail, new_head = (kept if end == merged else end for end in (tail, head))
        if merged in (tail, head) and after.has_edge(new_tail, new_head):
            continue
        result.add_edge(new_tail, new_head, **data)
    return result


def triangle_nodes(graph: nx.MultiDiGraph, node: int) -> tuple[set[int], int]:
    """The neighbours that form a triangle with a node, and the number of its triangles."""
    simple = nx.Graph((u, v) for u, v in graph.edges() if u != v)
    simple.add_nodes_from(graph)
    near = set(simple[node])
    return {u for u in near if set(simple[u]) & near}, nx.triangles(simple, node)


def check(batch: GraphBatch, seed: int) -> None:
    """A plan is possible, and the graphs are those that networkx makes of it."""
    plan, virtual = sam(batch, seed)
    assert_valid(virtual.batch)
    assert np.array_equal(virtual.batch.ptr, batch.ptr)
    assert not (plan.splits.moved & plan.splits.shared).any()
    wanted, ends, nodes = Counter(), edges_of(batch), batch.num_nodes
    expected_x = None if batch.x is None else batch.x.clone()
    made = graphs_of(virtual.batch)
    for number, graph in enumerate(graphs_of(batch)):
        node, merged = int(plan.splits.split[number]), int(plan.merges.merged[number])
        near = neighbours(graph, {node}) - {node}
        assert {v for v in graph if plan.splits.moved[v] or plan.splits.shared[v]} <= near
        assert {v for v in graph if plan.splits.shared[v]} <= triangle_nodes(graph, node)[0]
        like = int(plan.splits.between[number])
        assert (set(ends[like]) - near == {node}) if near else like == -1

        expected = replay(graph, plan, number, batch)
        place = {v: v for v in graph} | {nodes + number: merged}  # the half moves in
        assert {place[v] for v in expected} == set(graph)
        for tail, head, data in expected.edges(data=True):
            wanted[place[tail], place[head], data["like"], data["origin"]] += 1
        if expected_x is not None:
            other = merged if merged < nodes else node
            expected_x[other] = batch.x[node]
            expected_x[plan.merges.kept[number]] = (
                batch.x[plan.merges.kept[number]] + batch.x[other]
            ) / 2
        parts = nx.number_weakly_connected_components
        assert parts(made[number]) == parts(graph)
    found = list(zip(edges_of(virtual.batch), virtual.edge_origin.tolist(), strict=True))
    assert Counter((*e, o) for e, o in found) == Counter(
        (tail, head, origin) for tail, head, _, origin in wanted.elements()
    )
    if expected_x is not None:
        torch.testing.assert_close(virtual.batch.x, expected_x)
    for name, value in batch.edges.items():
        blank = value.new_full((1, *value.shape[1:]), 1.0 if name == "edge_weight" else 0.0)
        padded = torch.cat((value, blank))  # -1 is the last row
        rows = [(a, b, o, *padded[k].reshape(-1).tolist()) for a, b, k, o in wanted.elements()]
        values = [row.reshape(-1).tolist() for row in virtual.batch.edges[name]]
        assert sorted(rows) == sorted(
            (*e, o, *row) for (e, o), row in zip(found, values, strict=True)
        )


@given(batches(), seeds())
def test_any_batch(data: Batch, seed: int) -> None:
    batch, untouched = GraphBatch.from_pyg(data), GraphBatch.from_pyg(data.clone())
    check(batch, seed)
    assert same_content(batch, untouched)


# ------------------------------------------------------------------ what it promises


def test_fields_without_a_mean_are_those_of_the_node_that_stays() -> None:
    batch = copies(nx.path_graph(3), 40)
    data = batch.pyg()
    data.x = torch.arange(120).view(-1, 1)  # integers have no mean
    data.mask = torch.arange(120) % 3 == 0
    plan, virtual = sam(GraphBatch.from_pyg(data))
    assert torch.equal(virtual.batch.nodes["x"], data.x[virtual.node_origin])
    assert torch.equal(virtual.batch.nodes["mask"], data.mask[virtual.node_origin])
    assert np.array_equal(virtual.node_origin[plan.merges.kept], plan.merges.kept)


# ------------------------------------------------------------------ the draws


def test_split_nodes_sides_and_merged_edges_are_uniform() -> None:
    batch = copies(nx.path_graph(4), 6000)
    plan, _ = sam(batch, 11)
    start = batch.ptr[:-1]
    local = plan.splits.split - start
    assert chisquare(np.bincount(local)).pvalue > 1e-4
    degree = int(np.array([1, 2, 2, 1])[local].sum())
    assert binomtest(int(plan.splits.moved.sum()), degree).pvalue > 1e-4
    assert not plan.splits.shared.any()
    # The first end was split: of four edges one joins the halves, and two are far from both.
    first = np.flatnonzero(local == 0)
    ends = np.stack((plan.merges.kept[first], plan.merges.merged[first])) - start[first]
    ends[1, plan.merges.merged[first] >= batch.num_nodes] = 4  # the second half
    named = Counter(tuple(sorted(pair)) for pair in ends.T.tolist())
    halves = [named[0, 4], named[0, 1] + named[1, 4], named[1, 2], named[2, 3]]
    assert sum(halves) == len(first)
    assert chisquare(halves).pvalue > 1e-4
    # The edge between the halves is like either edge of an inner node.
    inner = np.flatnonzero(local == 1)
    senders = np.array(edges_of(batch))[plan.splits.between[inner], 0] - start[inner]
    assert chisquare(np.bincount(senders)[[0, 2]]).pvalue > 1e-4


@pytest.mark.parametrize(
    "graph",
    [
        nx.circulant_graph(12, [1, 2]),
        nx.wheel_graph(7),
        nx.corona_product(nx.complete_graph(4), nx.empty_graph(2)),  # with leaves
    ],
    ids=["circulant", "wheel", "corona"],
)
def test_triangle_nodes_are_shared_as_often_as_the_formula_says(graph: nx.Graph) -> None:
    graph = nx.convert_node_labels_to_integers(graph)
    batch = copies(graph, 4000)
    plan, _ = sam(batch, 5)
    chances = {}
    for node in graph:
        closing, triangles = triangle_nodes(nx.MultiDiGraph(graph), node)
        if not closing:
            chances[node] = 0.0, 0
            continue
        c = graph.number_of_edges() - 2 - 3 * triangles / graph.degree(node)
        h = (math.sqrt(c**2 + 4 * triangles * len(graph) - 6 * triangles) - c) / 2
        chances[node] = min(h / len(closing), 1.0), len(closing)
    drawn = [chances[node] for node in (plan.splits.split - batch.ptr[:-1]).tolist()]
    expected = sum(chance * size for chance, size in drawn)
    variance = sum(chance * (1 - chance) * size for chance, size in drawn)
    assert abs(int(plan.splits.shared.sum()) - expected) < 4 * math.sqrt(variance) + 1e-9


def test_adjustment_keeps_the_expected_number_of_edges() -> None:
    # Every node has three triangles here, so the estimate |V| t / 3 of all triangles is exact. Over
    # 4,000 graphs the standard error of the mean is 0.02 edges; h is exact to first order only.
    batch = copies(nx.circulant_graph(14, [1, 2]), 4000)
    base, adjusted = (
        sam(batch, 2, adjust=adjust)[1].batch.num_edges / 8000 for adjust in (False, True)
    )
    assert abs(adjusted - 28) < 0.15
    assert base < 28 - 1.0
    assert sam(copies(nx.star_graph(6), 50))[1].batch.num_edges == 50 * 12  # a tree, exactly
