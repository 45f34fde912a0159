"""SubMix against networkx: the k nodes closest to a root, and the swap edge by edge."""

from __future__ import annotations

import itertools
from collections import Counter

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor
from torch_geometric.data import Batch, Data

from graph_transplant.augment.sub_mix import SubMix, SubMixedGraphs, SubMixPlan
from graph_transplant.data import GraphBatch
from helpers.edits import both_ways, clean_of, mix, planned
from helpers.oracles import assert_valid, edges_of, floor_share, graphs_of, same_content
from helpers.strategies import batches, seeds


def graph(nodes: int, *edges: tuple[int, int]) -> Data:
    return Data(edge_index=both_ways(*edges), num_nodes=nodes, y=torch.tensor([0]))


def cycle(nodes: int) -> Data:
    return graph(nodes, *((v, (v + 1) % nodes) for v in range(nodes)))


def batch_of(*graphs: Data) -> GraphBatch:
    return GraphBatch.from_pyg(Batch.from_data_list(list(graphs)))


def sets_of(plan: SubMixPlan) -> list[tuple[list[int], list[int]]]:
    """S and S_π of every mixed graph, from the root outward."""
    return [
        (plan.replaced.item[a:b].tolist(), plan.brought[a:b].tolist())
        for a, b in itertools.pairwise(plan.replaced.ptr)
    ]


# ------------------------------------------------------------------ the oracle


def scores(whole: nx.MultiDiGraph, root: int, symmetric: bool) -> dict[int, float]:
    """Sixteen steps of personalised PageRank with a dense matrix of how many edges join two."""
    nodes = sorted(whole)
    matrix = np.array([[whole.number_of_edges(u, v) for v in nodes] for u in nodes], dtype=float)
    matrix = matrix if symmetric else matrix + matrix.T
    degree = matrix.sum(1, keepdims=True)
    matrix = np.divide(matrix, degree, out=np.zeros_like(matrix), where=degree > 0)
    score = start = np.array([float(v == root) for v in nodes])
    for _ in range(16):
        score = start + 0.85 * matrix @ score
    return dict(zip(nodes, score, strict=True))


def check_plan(plan: SubMixPlan, batch: GraphBatch, size: float) -> None:
    """Both sets are connected and the k closest to their root, k within bounds."""
    whole = graphs_of(batch)
    for number, sets in enumerate(sets_of(plan)):
        components = []
        for nodes, owner in zip(sets, (number, int(plan.source_of[number])), strict=True):
            plain = nx.Graph(whole[owner])
            components.append(len(nx.node_connected_component(plain, nodes[0])))
            assert nx.is_connected(plain.subgraph(nodes))
            score = scores(whole[owner], nodes[0], batch.symmetric)
            ranked = [score[v] for v in nodes]
            rest = [score[v] for v in plain if v not in nodes]
            assert all(b <= a * (1 + 1e-5) for a, b in itertools.pairwise(ranked))
            assert max(rest, default=0.0) <= ranked[-1] * (1 + 1e-5)
        assert len(set(sets[0])) == len(set(sets[1])) == len(sets[0]) == len(sets[1])
        assert 1 <= len(sets[0]) <= floor_share(size, min(components))  # small: all is reached


def check_mixed(mixed: SubMixedGraphs, batch: GraphBatch, targets: Tensor) -> None:
    """Algorithm 5, one pair and one edge at a time."""
    whole, edges = graphs_of(batch), Counter()
    origin, from_source = list(range(batch.num_nodes)), [False] * batch.num_nodes
    for number, (replaced, brought) in enumerate(sets_of(mixed.plan)):
        source = int(mixed.source_of[number])
        onto = dict(zip(brought, replaced, strict=True))
        for node, taken in zip(replaced, brought, strict=True):
            origin[node], from_source[node] = taken, True
        kept = [
            (tail, head, edge)
            for tail, head, edge in whole[number].edges(data="number")
            if not (tail in replaced and head in replaced)
        ]
        moved = [
            (onto[tail], onto[head], edge)
            for tail, head, edge in whole[source].edges(data="number")
            if tail in onto and head in onto
        ]
        edges.update(kept + moved)
        every = len(kept) + len(moved)
        weight = len(moved) / every if every else len(replaced) / len(whole[number])
        assert float(mixed.label_weight[number]) == pytest.approx(weight, abs=1e-6)
        expected = (1 - weight) * targets[number] + weight * targets[source]
        torch.testing.assert_close(mixed.targets[number], expected)
    assert mixed.node_origin.tolist() == origin
    assert mixed.node_from_source.tolist() == from_source
    virtual = mixed.batch
    ends, numbers = edges_of(virtual), mixed.edge_origin.tolist()
    assert Counter((*e, n) for e, n in zip(ends, numbers, strict=True)) == edges
    assert virtual.nodes.keys() == batch.nodes.keys()
    assert virtual.edges.keys() == batch.edges.keys()
    assert all(torch.equal(virtual.nodes[n], batch.nodes[n][origin]) for n in batch.nodes)
    assert all(torch.equal(virtual.edges[n], batch.edges[n][numbers]) for n in batch.edges)
    assert torch.equal(virtual.y, mixed.targets)


@given(batches(), seeds(), st.sampled_from([0.1, 0.4, 1.0]))
def test_any_batch(data: Batch, seed: int, size: float) -> None:
    batch, untouched = GraphBatch.from_pyg(data), GraphBatch.from_pyg(data.clone())
    mixed = mix(SubMix(size), batch, seed)
    assert same_content(batch, untouched)
    assert_valid(mixed.batch)
    check_plan(mixed.plan, batch, size)
    check_mixed(mixed, batch, torch.eye(batch.num_graphs))
    plan = planned(
        SubMix(size), clean_of(batch), np.zeros_like(mixed.source_of), np.random.default_rng(seed)
    )
    check_plan(plan, batch, size)  # one source for all of them


def test_without_edges_labels_go_by_nodes() -> None:
    mixed = mix(SubMix(pairing="cross-class"), batch_of(graph(4), graph(1)))
    assert mixed.batch.num_edges == 0
    assert mixed.label_weight.tolist() == [0.25, 1.0]


def test_connected_graphs_stay_connected_and_keep_their_edges_on_average() -> None:
    # Property 1 of the publication: over random pairs no edges are won or lost on average.
    graphs = []
    for label in range(6):
        nodes = 5 + 3 * label % 12
        tree = nx.random_labeled_tree(nodes, seed=label)
        extra = nx.gnm_random_graph(nodes, 4, seed=label)
        graphs.append(graph(nodes, *nx.compose(tree, extra).edges))
    batch = batch_of(*graphs)
    differences = []
    for seed in range(200):
        mixed = mix(SubMix(0.9), batch, seed)
        assert np.array_equal(mixed.batch.ptr, batch.ptr)
        assert all(nx.is_weakly_connected(one) for one in graphs_of(mixed.batch))
        differences.append(mixed.batch.num_edges - batch.num_edges)
    error = np.std(differences) / len(differences) ** 0.5
    assert error > 0
    assert abs(np.mean(differences)) < 4 * error


# ------------------------------------------------------------------ the draws


def test_roots_and_sizes_are_uniform_and_independent() -> None:
    # Rings of 10 and 15 nodes, each the other's source: up to 0.5 · 10 nodes change places.
    batch = batch_of(*([cycle(10), cycle(15)] * 400))
    source_of = np.arange(800) ^ 1
    plan = planned(SubMix(0.5), clean_of(batch), source_of, np.random.default_rng(4))
    assert np.unique(np.diff(plan.replaced.ptr)).tolist() == [1, 2, 3, 4, 5]
    assert chisquare(np.bincount(np.diff(plan.replaced.ptr))[1:]).pvalue > 1e-4
    mine = plan.replaced.item[plan.replaced.ptr[:-1]] - batch.ptr[:-1]
    theirs = plan.brought[plan.replaced.ptr[:-1]] - batch.ptr[source_of]
    for owner, size in ((0, 10), (1, 15)):
        for roots in (mine[owner::2], theirs[1 - owner :: 2]):
            assert chisquare(np.bincount(roots, minlength=size)).pvalue > 1e-4
    table = np.zeros((5, 5))
    np.add.at(table, (mine[::2] // 2, theirs[::2] // 3), 1)
    assert chisquare(table.ravel()).pvalue > 1e-4


def test_a_source_that_serves_several_times_is_cut_anew_each_time() -> None:
    clean = clean_of(batch_of(*[cycle(12)] * 7))
    plan = planned(SubMix(0.5), clean, np.zeros(7, np.int64), np.random.default_rng(1))
    assert len({brought[0] for _, brought in sets_of(plan)}) > 3


def test_ties_are_broken_at_random() -> None:
    # A star seen from its centre: every leaf is as near.
    batch = batch_of(*[graph(7, *((0, leaf) for leaf in range(1, 7)))] * 3000)
    plan = planned(SubMix(0.4), clean_of(batch), np.arange(3000), np.random.default_rng(2))
    second = [one[1] % 7 for one, _ in sets_of(plan) if one[0] % 7 == 0 and len(one) == 2]
    assert chisquare(np.bincount(second, minlength=7)[1:]).pvalue > 1e-4


def test_nodes_further_than_sixteen_steps_are_never_taken() -> None:
    batch = batch_of(*[graph(100, *((v, v + 1) for v in range(99)))] * 300)
    plan = planned(SubMix(1.0), clean_of(batch), np.arange(300), np.random.default_rng(0))
    assert max(abs(v - one[0]) for one, _ in sets_of(plan) for v in one) == 16
