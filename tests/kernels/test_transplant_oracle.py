"""Plans of Graph Transplant and the graphs made of them, replayed by networkx."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph_transplant.augment.transplant import GraphTransplant, MixedGraphs, TransplantPlan
from graph_transplant.data import GraphBatch
from helpers import oracles
from helpers.edits import clean_of, planned
from helpers.oracles import (
    DESTINATION,
    SOURCE,
    assert_valid,
    edges_of,
    graphs_of,
    induced,
    neighbours,
)
from helpers.strategies import KINDS, batches, generator, random_batch, saliencies, seeds

VARIANTS = {
    "degree": {"connect": "dp"},
    "predict": {"connect": "ep", "embedding_size": 3},
    "none": {"connect": "none", "hops": (0, 5)},
    "size": {"connect": "dp", "importance": "size", "anchor_ratio": 0.5},
    "scattered": {"connect": "dp", "cut": "scattered"},
    "random": {"connect": "ep", "anchors": "random", "embedding_size": 3, "hops": 1},
    "zero": {"connect": "dp", "new_edge_attr": "zero"},
}


def method_named(variant: str) -> GraphTransplant:
    torch.manual_seed(0)
    return GraphTransplant(**{"anchor_ratio": 0.2, **VARIANTS[variant]})


# ------------------------------------------------------------------ the plan


def listed(items: np.ndarray, ptr: np.ndarray, number: int) -> list[int]:
    return items[ptr[number] : ptr[number + 1]].tolist()


def check_steps(
    graph: nx.MultiDiGraph,
    steps: list[list[int]],
    method: GraphTransplant,
    plan: TransplantPlan,
    saliency: np.ndarray | None,
) -> set[int]:
    """Algorithm 1 and its anchors, salient ones if saliency is given; returns V̄."""
    anchors = steps[0]
    assert set(anchors) <= set(graph)
    assert len(set(anchors)) == len(anchors) == oracles.floor_share(method.anchor_ratio, len(graph))
    if saliency is not None:
        ranked = sorted((float(saliency[v]) for v in graph), reverse=True)
        least = ranked[min(2 * len(anchors), len(graph)) - 1]
        assert all(saliency[v] >= least for v in anchors)
    assert len(steps) == plan.hops + 1
    for before, chosen in itertools.pairwise(steps):
        near = neighbours(graph, set(before))
        assert set(chosen) <= near
        wanted = oracles.floor_share(plan.share, len(near)) if near else 0
        assert len(set(chosen)) == len(chosen) == wanted
    return {v for step in steps for v in step}


def check_plan(
    method: GraphTransplant, plan: TransplantPlan, batch: GraphBatch, saliency: np.ndarray
) -> list[tuple[oracles.Part, oracles.Part]]:
    """Hold every choice against Algorithms 1 and 2; returns the parts of every mixed graph."""
    graphs = graphs_of(batch)
    assert plan.hops in method.hops
    salient = method.anchors == "salient"
    scattered = method.cut == "scattered"
    parts = []
    for i, g in enumerate(plan.source_of.tolist()):
        taken = listed(plan.part.item, plan.part.ptr, i)
        rest = listed(plan.rest.item, plan.rest.ptr, i)
        assert taken == sorted(taken)
        assert rest == sorted(rest)
        if not scattered:
            sides = [
                [
                    listed(cut.frontier, cut.frontier_ptr, i * (plan.hops + 1) + k)
                    for k in range(plan.hops + 1)
                ]
                for cut in plan.cuts
            ]
            source = check_steps(graphs[g], sides[0], method, plan, saliency if salient else None)
            removed = check_steps(graphs[i], sides[1], method, plan, None)
            assert set(taken) == source
            assert set(rest) == set(graphs[i]) - removed
        parts.append(
            (
                induced(graphs[g], set(taken), batch.symmetric),
                induced(graphs[i], set(rest), batch.symmetric),
            )
        )
        pairs = pairs_of(plan, i)
        possible = {(u, v) for u in parts[i][0].candidates for v in parts[i][1].candidates}
        joined = {(u, v) for u, v, *_ in pairs}
        assert len(joined) == len(pairs)
        assert joined <= possible
        if method.connect == "dp":
            lost = parts[i][0].lost + parts[i][1].lost
            assert len(pairs) == min(lost // 2, len(possible))
        else:
            assert joined == (possible if method.connect == "ep" else set())
        if batch.symmetric:
            assert all(one and two for *_, one, two in pairs)
        else:
            assert all(one != two for *_, one, two in pairs)
        for p in range(plan.pairs.ptr[i], plan.pairs.ptr[i + 1]):
            if batch.edges and method.new_edge_attr == "drawn":
                u, v = int(plan.pairs.source[p]), int(plan.pairs.destination[p])
                assert plan.template[p] in lost_edges(graphs[g], parts[i][0], u) | lost_edges(
                    graphs[i], parts[i][1], v
                )
            else:
                assert plan.template[p] == -1
    if scattered:
        check_scattered(parts, graphs, saliency)
    return parts


def check_scattered(
    parts: list[tuple[oracles.Part, oracles.Part]],
    graphs: list[nx.MultiDiGraph],
    saliency: np.ndarray,
) -> None:
    """As many nodes of every graph, as far as it has them."""
    taken = [len(source.graph) for source, _ in parts]
    removed = [len(graphs[i]) - len(rest.graph) for i, (_, rest) in enumerate(parts)]
    assert all(removed[i] == min(max(removed), len(graphs[i])) for i in range(len(graphs)))
    for source, _ in parts:
        (graph,) = (g for g in graphs if set(source.graph) <= set(g))
        assert len(source.graph) == min(max(taken), len(graph))
        ranked = sorted((float(saliency[v]) for v in graph), reverse=True)
        least = ranked[min(2 * len(source.graph), len(graph)) - 1]
        assert all(saliency[v] >= least for v in source.graph)


def pairs_of(plan: TransplantPlan, graph: int) -> list[tuple[int, int, bool, bool]]:
    ptr, *columns = plan.pairs
    here = slice(ptr[graph], ptr[graph + 1])
    return list(zip(*(column[here].tolist() for column in columns), strict=True))


def lost_edges(graph: nx.MultiDiGraph, part: oracles.Part, node: int) -> set[int]:
    """Numbers of the edges that a node lost, in either direction."""
    return {
        number
        for tail, head, number in graph.edges(data="number")
        if node in (tail, head) and not (tail in part.graph and head in part.graph)
    }


# ------------------------------------------------------------------ the mixed graphs


def check_mixed(
    result: MixedGraphs,
    plan: TransplantPlan,
    batch: GraphBatch,
    parts: list[tuple[oracles.Part, oracles.Part]],
    measure: np.ndarray,
) -> None:
    """Node by node, edge by edge, field by field, label by label."""
    virtual = result.batch
    assert_valid(virtual)
    assert virtual.symmetric == batch.symmetric
    segment = virtual.batch.tolist()
    sides = [SOURCE if own else DESTINATION for own in result.node_from_source.tolist()]
    names = list(zip(sides, result.node_origin.tolist(), strict=True))
    found = [oracles.Mixed(set(), Counter()) for _ in parts]
    for node, graph in enumerate(segment):
        found[graph].nodes.add(names[node])
    ends, likes = edges_of(virtual), like_of(result, plan, names, segment, batch)
    for (tail, head), number in zip(ends, result.edge_origin.tolist(), strict=True):
        found[segment[tail]].edges[names[tail], names[head], number] += 1
    assert len(segment) == sum(len(graph.nodes) for graph in found)

    graphs, targets = graphs_of(batch), torch.eye(batch.num_graphs)
    for i, g in enumerate(plan.source_of.tolist()):
        source, destination = parts[i]
        assert found[i] == oracles.transplant(source, destination, pairs_of(result.plan, i))
        share = oracles.saliency_share(graphs[g], set(source.graph), measure)
        rest = oracles.saliency_share(graphs[i], set(destination.graph), measure)
        weight = oracles.label_weight(share, rest)
        assert float(result.source_share[i]) == pytest.approx(share, abs=1e-6)
        assert float(result.destination_share[i]) == pytest.approx(rest, abs=1e-6)
        assert float(result.label_weight[i]) == pytest.approx(weight, abs=1e-6)
        # Graph i has class i, so that a wrong partner shows.
        torch.testing.assert_close(
            result.targets[i], weight * targets[g] + (1 - weight) * targets[i]
        )
    assert virtual.y is result.targets

    for name, value in batch.nodes.items():
        assert torch.equal(virtual.nodes[name], value[result.node_origin])
    assert set(batch.edges) <= set(virtual.edges)
    for name, value in batch.edges.items():
        for edge, like in enumerate(likes):
            blank = torch.full_like(value[0], 1.0 if name == "edge_weight" else 0.0)
            assert torch.equal(virtual.edges[name][edge], blank if like < 0 else value[like])


def like_of(
    result: MixedGraphs,
    plan: TransplantPlan,
    names: list[oracles.Node],
    segment: list[int],
    batch: GraphBatch,
) -> list[int]:
    """The edge that every edge of the mixed graphs is like, by origin or by plan.

    Of an undirected new edge, the way to the end that lost an edge is like that edge, the way back
    like its reverse.
    """
    given = edges_of(batch)
    drawn = {
        (graph, u, v): int(plan.template[p])
        for graph in range(len(plan.source_of))
        for p, (u, v, *_) in enumerate(pairs_of(plan, graph), plan.pairs.ptr[graph])
    }
    likes = []
    for (tail, head), number in zip(
        edges_of(result.batch), result.edge_origin.tolist(), strict=True
    ):
        if number < 0:
            one, two = (tail, head) if names[tail][0] == SOURCE else (head, tail)
            number = drawn[segment[tail], names[one][1], names[two][1]]
            if batch.symmetric and number >= 0 and given[number][1] != names[head][1]:
                parallel, back = (
                    [k for k, ends in enumerate(given) if ends == way]
                    for way in (given[number], given[number][::-1])
                )
                number = back[parallel.index(number)]
        likes.append(number)
    return likes


def replay(method: GraphTransplant, batch: GraphBatch, saliency: np.ndarray, seed: int) -> int:
    """Plan a mixing, carry it out, check both; returns the number of pairs joined."""
    random = np.random.default_rng(seed)
    source_of = random.permutation(batch.num_graphs)
    if seed % 2:  # a graph may be the source of several, and of itself
        source_of = random.integers(batch.num_graphs, size=batch.num_graphs)
    nodes = torch.randn(batch.num_nodes, 3, generator=generator(seed))
    with torch.no_grad():
        clean = clean_of(batch, saliency=saliency, nodes=nodes)
        plan = planned(method, clean, source_of, random)
        result = method.transform(plan, clean)
    parts = check_plan(method, plan, batch, saliency)
    measure = np.ones_like(saliency) if method.importance == "size" else saliency
    check_mixed(result, plan, batch, parts, measure)
    if plan.weight is not None:  # ψ was asked about all pairs and joined some
        joined = plan.weight.numpy() == 1
        assert len(result.plan.pairs.source) == joined.sum()
        assert set(plan.weight.tolist()) <= {0.0, 1.0}
    return len(result.plan.pairs.source)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_random_graphs_are_mixed_as_the_paper_says(kind: str, variant: str) -> None:
    method, joined = method_named(variant), 0
    for seed in range(8):
        pyg = random_batch(
            generator(1000 + seed), **KINDS[kind], edge_attr=seed % 4 > 0, edge_weight=seed % 3 == 0
        )
        batch = GraphBatch.from_pyg(pyg)
        assert batch.symmetric == KINDS[kind]["undirected"]
        saliency = np.random.default_rng(seed).permutation(batch.num_nodes) + np.float32(1)
        joined += replay(method, batch, saliency.astype(np.float32), seed)
    assert (joined > 100) == (variant != "none")


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), variant=st.sampled_from(sorted(VARIANTS)), seed=seeds())
def test_degenerate_graphs_are_mixed_as_the_paper_says(
    data: st.DataObject, variant: str, seed: int
) -> None:
    batch = GraphBatch.from_pyg(data.draw(batches()))
    saliency = data.draw(saliencies(batch.num_nodes)).numpy()
    replay(method_named(variant), batch, saliency, seed)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_soft_edges_are_the_hard_ones_and_edges_of_weight_zero(kind: str, weighted: bool) -> None:
    method = method_named("predict")
    for seed in range(6):
        pyg = random_batch(generator(seed), **KINDS[kind], edge_weight=weighted, edge_attr=True)
        batch = GraphBatch.from_pyg(pyg)
        random = np.random.default_rng(seed)
        clean = clean_of(batch, nodes=pyg.x)
        plan = planned(method, clean, random.permutation(8), random)
        soft, hard = (
            method.transform(replace(plan, soft_edges=each), clean) for each in (True, False)
        )
        assert_valid(soft.batch)
        weight, new = soft.batch.edges["edge_weight"].detach(), soft.edge_origin < 0
        assert new.sum() == plan.pairs.into_source.sum() + plan.pairs.into_destination.sum()
        known = batch.edges["edge_weight"].tolist() if weighted else [1.0]  # none is zero
        assert set(weight[new].tolist()) <= {0.0, *known}
        present = torch.from_numpy(~new) | (weight > 0)
        assert torch.equal(soft.batch.edge_index[:, present], hard.batch.edge_index)
        assert soft.edge_origin[present].tolist() == hard.edge_origin.tolist()
        assert torch.equal(soft.batch.edge_attr[present], hard.batch.edge_attr)
        if weighted:
            assert torch.equal(weight[present], hard.batch.edges["edge_weight"])
        else:
            assert "edge_weight" not in hard.batch.edges
            assert bool((weight[~new] == 1).all())
