"""NodeSam against a plain networkx version, edge by edge, and what it promises of graphs."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import networkx as nx
import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.augment.assemble import EditedGraphs, simple_pairs
from graph_transplant.augment.node_sam import NodeSam, NodeSamPlan, expected_shared
from graph_transplant.augment.subgraphs import View
from oracles import check_valid_batch, graphs_of, is_undirected, neighbours, same_content
from strategies import batches, random_batch, seeds


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def undirected(nodes: int, pairs: list[tuple[int, int]], **fields: Tensor) -> Data:
    both = [e for u, v in pairs for e in ((u, v), (v, u))]
    edge_index = torch.tensor(both, dtype=torch.long).reshape(-1, 2).t().contiguous()
    return Data(edge_index=edge_index, num_nodes=nodes, y=torch.tensor([0]), **fields)


def copies(graph: Data, count: int) -> Batch:
    return Batch.from_data_list([graph] * count)


def sam(
    batch: Batch, seed: int = 0, adjust: bool = True
) -> tuple[NodeSamPlan, EditedGraphs, Tensor]:
    method = NodeSam(adjust)
    plan = method.plan(batch, generator=generator(seed))
    targets = torch.eye(batch.num_graphs)
    return plan, method.apply_plan(plan, batch, targets), targets


# ------------------------------------------------------------------ the oracle


def replay(
    graph: nx.MultiDiGraph, plan: NodeSamPlan, number: int, symmetric: bool, nodes: int
) -> nx.MultiDiGraph:
    """Split and merge one graph with the choices of a plan, one edge at a time.

    Edges carry ``like`` and ``origin``; the second half is the node ``nodes + number``.
    """
    node, half = int(plan.split[number]), nodes + number
    after = nx.MultiDiGraph()
    after.add_nodes_from([*graph, half])
    for tail, head, edge in graph.edges(data="number"):
        ends = [(tail, head, edge)]
        if tail == head == node:
            ends.append((half, half, -1))
        elif node in (tail, head):
            other = head if tail == node else tail
            swapped = tuple(half if end == node else end for end in (tail, head))
            if bool(plan.shared[other]):
                ends.append((*swapped, -1))
            elif bool(plan.moved[other]):
                ends = [(*swapped, edge)]
        for one, two, origin in ends:
            after.add_edge(one, two, like=edge, origin=origin)
    like = int(plan.attribute_of[number])
    after.add_edge(node, half, like=like, origin=-1)
    if symmetric:
        after.add_edge(half, node, like=like, origin=-1)

    kept, merged = int(plan.kept[number]), int(plan.merged[number])
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
    found = {u for u in near if set(simple[u]) & near}
    return found, nx.triangles(simple, node)


def check_against_oracle(batch: Batch, seed: int) -> None:
    plan, virtual, _ = sam(batch, seed)
    nodes, symmetric = int(batch.num_nodes), View.of(batch).symmetric
    for number, graph in enumerate(graphs_of(batch)):
        node = int(plan.split[number])
        assert node in graph
        near = neighbours(graph, {node}) - {node}
        closing, _ = triangle_nodes(graph, node)
        marked = {v for v in graph if bool(plan.moved[v] | plan.shared[v])}
        assert marked <= near
        assert {v for v in graph if bool(plan.shared[v])} <= closing
        assert not bool((plan.moved & plan.shared).any())
        like = int(plan.attribute_of[number])
        if near:
            tail, head = batch.edge_index[:, like].tolist()
            assert node in (tail, head)
            assert tail != head
        else:
            assert like == -1

        expected = replay(graph, plan, number, symmetric, nodes)
        merged = int(plan.merged[number])
        place = {v: v for v in graph}
        place[nodes + number] = merged  # the second half moves in where the merged node was
        wanted = Counter(
            (place[tail], place[head], data["like"], data["origin"])
            for tail, head, data in expected.edges(data=True)
        )
        here = {v for v in range(nodes) if int(batch.batch[v]) == number}
        assert {place[v] for v in expected} == here
        tails, heads = virtual.batch.edge_index.tolist()
        listed = [e for e, tail in enumerate(tails) if tail in here]
        got = Counter((tails[e], heads[e], int(virtual.edge_origin[e])) for e in listed)
        assert got == Counter((a, b, o) for a, b, _, o in wanted.elements())
        for name, blank in (("edge_attr", 0.0), ("edge_weight", 1.0)):
            if name not in batch:
                assert name not in virtual.batch
                continue
            value, made = batch[name], virtual.batch[name]
            rows = [
                (a, b, o, *(value[k] if k >= 0 else torch.full_like(made[0], blank)).reshape(-1))
                for a, b, k, o in wanted.elements()
            ]
            found = [
                (tails[e], heads[e], int(virtual.edge_origin[e]), *made[e].reshape(-1))
                for e in listed
            ]
            assert sorted(tuple(map(float, row)) for row in rows) == sorted(
                tuple(map(float, row)) for row in found
            )
        if "x" in batch:
            for v in here:
                origin = int(plan.split[number]) if v == merged else v
                expected_x = batch.x[origin]
                if v == int(plan.kept[number]):
                    other = merged if merged < nodes else int(plan.split[number])
                    expected_x = (batch.x[v] + batch.x[other]) / 2
                torch.testing.assert_close(virtual.batch.x[v], expected_x)
                assert int(virtual.node_origin[v]) == origin


@given(batches(), seeds())
def test_apply_is_what_networkx_says(batch: Batch, seed: int) -> None:
    check_against_oracle(batch, seed)


@pytest.mark.parametrize("kind", ["simple", "multi", "directed", "directed multi"])
def test_larger_graphs_too(kind: str) -> None:
    for seed in range(6):
        batch = random_batch(
            generator(seed),
            undirected="directed" not in kind,
            simple="multi" not in kind,
            edge_attr=seed % 2 == 0,
            edge_weight=seed % 3 == 0,
        )
        check_against_oracle(batch, seed)


def test_batches_of_a_store_too() -> None:  # their rows send
    store = gt.load("motifs", graphs=24)
    batch = store.batch(range(24))
    assert View.of(batch).rows_send
    check_against_oracle(batch, 0)


# ------------------------------------------------------------------ what it promises


@given(batches(), seeds())
def test_nodes_components_and_simplicity_stay(batch: Batch, seed: int) -> None:
    before = batch.clone()
    _, virtual, targets = sam(batch, seed)
    assert same_content(batch, before)
    assert virtual.targets is targets
    check_valid_batch(virtual.batch, graphs=batch.num_graphs, undirected=is_undirected(batch))
    assert torch.equal(virtual.batch.ptr, batch.ptr)
    for one, other in zip(graphs_of(batch), graphs_of(virtual.batch), strict=True):
        assert nx.number_weakly_connected_components(one) == nx.number_weakly_connected_components(
            other
        )
        loops = {v for v in one if one.has_edge(v, v)}
        if not loops:
            assert not any(other.has_edge(v, v) for v in other)
        if one.number_of_edges() == len(set(one.edges())):
            assert other.number_of_edges() == len(set(other.edges()))


def test_without_edges_nothing_happens() -> None:
    items = [Data(x=torch.randn(n, 2), edge_index=torch.empty(2, 0).long()) for n in (1, 3)]
    batch = Batch.from_data_list(items)
    _, virtual, _ = sam(batch)
    assert torch.equal(virtual.batch.x, batch.x)
    assert virtual.batch.num_edges == 0


def test_trees_keep_their_number_of_edges() -> None:
    star = undirected(7, [(0, leaf) for leaf in range(1, 7)])
    for adjust in (False, True):
        _, virtual, _ = sam(copies(star, 50), adjust=adjust)
        assert virtual.batch.num_edges == 50 * 12


def test_node_fields_of_the_merged_node_are_those_of_the_one_that_stays() -> None:
    path = undirected(3, [(0, 1), (1, 2)], x=torch.tensor([[0], [10], [20]]))
    path.mask = torch.tensor([True, False, False])
    batch = copies(path, 40)
    plan, virtual, _ = sam(batch)
    assert virtual.batch.x.dtype == batch.x.dtype  # integers have no mean
    assert torch.equal(virtual.batch.x, batch.x[virtual.node_origin])
    assert torch.equal(virtual.batch.mask, batch.mask[virtual.node_origin])
    assert torch.equal(virtual.node_origin[plan.kept], plan.kept)


def test_same_seed_same_graphs() -> None:
    batch = random_batch(generator(1), graphs=6)
    clean = gt.CleanPass(batch, torch.eye(6), lambda: pytest.fail("no prediction is needed"))
    model = gt.GraphClassifier(3, 6, hidden=4)
    one, again, other = (NodeSam()(clean, model=model, generator=generator(s)) for s in (3, 3, 4))
    assert same_content(one.batch, again.batch)
    assert not same_content(one.batch, other.batch)


# ------------------------------------------------------------------ the draws


def test_simple_pairs_of_any_graphs() -> None:
    for seed, undirected_ in itertools.product(range(4), (False, True)):
        batch = random_batch(generator(seed), undirected=undirected_, simple=False)
        got = list(zip(*(part.tolist() for part in simple_pairs(View.of(batch))), strict=True))
        pairs = {(min(e), max(e)) for e in batch.edge_index.t().tolist() if e[0] != e[1]}
        assert got == sorted(pairs)


def test_split_nodes_sides_and_merged_edges_are_uniform() -> None:
    # A path of four nodes, 6,000 times: every share below lies within four standard deviations.
    count = 6000
    batch = copies(undirected(4, [(0, 1), (1, 2), (2, 3)]), count)
    plan, _, _ = sam(batch, 11)

    def close(hits: int, chance: float, of: int) -> None:
        assert abs(hits - chance * of) < 4 * math.sqrt(of * chance * (1 - chance))

    local = plan.split - batch.ptr[:-1]
    for node in range(4):
        close(int((local == node).sum()), 1 / 4, count)
    degree = torch.tensor([1, 2, 2, 1])[local].sum()
    close(int(plan.moved.sum()), 1 / 2, int(degree))
    assert not bool(plan.shared.any())
    # After the split there are four edges, all alike; one joins the halves.
    halves = (plan.merged >= batch.num_nodes) & (plan.kept == plan.split)
    close(int(halves.sum()), 1 / 4, count)
    untouched = (plan.split == batch.ptr[:-1]).nonzero().flatten()  # the first end was split
    far = plan.kept[untouched] + plan.merged[untouched] - 2 * batch.ptr[untouched] == 5
    close(int(far.sum()), 1 / 4, untouched.numel())
    # The edge between the halves takes the attributes of either edge of an inner node.
    inner = (local == 1).nonzero().flatten()
    ends = batch.edge_index[:, plan.attribute_of[inner]] - batch.ptr[inner]
    close(int((ends.sum(0) == 1).sum()), 1 / 2, inner.numel())


@pytest.mark.parametrize(
    "graph",
    [nx.circulant_graph(12, [1, 2]), nx.complete_graph(4), nx.wheel_graph(7)],
    ids=["circulant", "complete", "wheel"],
)
def test_triangle_nodes_are_shared_as_often_as_the_formula_says(graph: nx.Graph) -> None:
    count = 4000
    batch = copies(undirected(len(graph), list(graph.edges)), count)
    plan, _, _ = sam(batch, 5)
    chances = {}
    for node in graph:
        closing, triangles = triangle_nodes(nx.MultiDiGraph(graph), node)
        c = graph.number_of_edges() - 2 - 3 * triangles / graph.degree(node)
        h = (math.sqrt(c**2 + 4 * triangles * len(graph) - 6 * triangles) - c) / 2
        chances[node] = min(h / len(closing), 1.0), len(closing)
    drawn = [chances[node] for node in (plan.split - batch.ptr[:-1]).tolist()]
    expected = sum(chance * size for chance, size in drawn)
    variance = sum(chance * (1 - chance) * size for chance, size in drawn)
    assert abs(int(plan.shared.sum()) - expected) < 4 * math.sqrt(variance) + 1e-9


def test_h_solves_the_balance_of_edges() -> None:
    # E' h = 3 T' with E' = E + 1 + h and T' = V t / 3 - t / 2 + h + h t / d.
    nodes, edges = torch.tensor([10, 30, 7]), torch.tensor([20, 90, 15])
    degree, triangles = torch.tensor([4, 9, 6]), torch.tensor([3, 20, 9])
    h = expected_shared(nodes, edges, degree, triangles)
    t, d = triangles.double(), degree.double()
    after = nodes * t / 3 - t / 2 + h + h * t / d
    torch.testing.assert_close((edges + 1 + h) * h, 3 * after)
    zero = torch.zeros(1, dtype=torch.long)
    assert float(expected_shared(zero + 2, zero + 1, zero + 1, zero)) == 0.0


def test_adjustment_keeps_the_expected_number_of_edges() -> None:
    # Every node has three triangles here, so the estimate |V| t / 3 of all triangles is exact. Over
    # 4,000 graphs the standard error of the mean is 0.02 edges; h is exact to first order only.
    graph = nx.circulant_graph(14, [1, 2])
    batch = copies(undirected(14, list(graph.edges)), 4000)
    means = {}
    for adjust in (False, True):
        _, virtual, _ = sam(batch, 2, adjust=adjust)
        means[adjust] = virtual.batch.num_edges / 2 / 4000
    assert abs(means[True] - 28) < 0.15
    assert means[False] < 28 - 1.0


def test_nothing_is_refused() -> None:
    for directed in (False, True):
        batch = random_batch(generator(0), undirected=not directed, edge_attr=True)
        store = gt.GraphStore.from_pyg(batch.to_data_list())
        NodeSam().check(gt.GraphClassifier.for_data(store, hidden=4), store)
