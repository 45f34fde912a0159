"""SubMix against networkx: scores, connected subgraphs, and the swap edge by edge."""

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

import graph_transplant as gt
import oracles
from graph_transplant.augment import Pairing, SubMix, sub_mix
from graph_transplant.augment.sub_mix import SubMixedGraphs, SubMixPlan, root_scores
from graph_transplant.augment.subgraphs import View
from graph_transplant.errors import GraphTransplantError
from graph_transplant.graphs import adjacency_of
from graph_transplant.sparse import spmm
from oracles import check_valid_batch, graphs_of, is_undirected, same_content
from strategies import batches, random_batch, seeds

KINDS = {
    "undirected": {"undirected": True, "simple": True},
    "undirected-multi": {"undirected": True, "simple": False},
    "directed": {"undirected": False, "simple": True},
    "directed-multi": {"undirected": False, "simple": False},
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def graph(nodes: int, *edges: tuple[int, int], label: int = 0) -> Data:
    both = [pair for u, v in edges for pair in ((u, v), (v, u))]
    edge_index = torch.tensor(both, dtype=torch.long).reshape(-1, 2).t().contiguous()
    x = torch.arange(nodes).view(-1, 1) + 100.0 * label
    return Data(x=x, edge_index=edge_index, y=torch.tensor([label]))


def mix(method: SubMix, batch: Batch, seed: int = 0) -> SubMixedGraphs:
    model = gt.GraphClassifier(3, 2, hidden=4, layers=1)
    clean = gt.CleanPass(batch, torch.eye(batch.num_graphs), lambda: model(batch))
    return method(clean, model=model, generator=generator(seed))


def groups(plan: SubMixPlan) -> list[tuple[list[int], list[int]]]:
    """S and S_π of every pair, in order, as numbers of the batch."""
    counts = plan.count.tolist()
    brought = plan.source.node[plan.brought]
    return [
        (one.tolist(), other.tolist())
        for one, other in zip(plan.replaced.split(counts), brought.split(counts), strict=True)
    ]


# ------------------------------------------------------------------ scores


@pytest.mark.parametrize("simple", [True, False])
def test_scores_are_personalised_pagerank(monkeypatch: pytest.MonkeyPatch, simple: bool) -> None:
    # A walk from v stops at the root as often as one from the root at v, up to their degrees: what
    # networkx computes for the root's walks gives the scores, once enough steps are followed.
    monkeypatch.setattr(sub_mix, "ROUNDS", 300)
    looked_at = 0
    for seed in range(6):
        batch = random_batch(generator(seed), simple=simple)
        view = View.of(batch)
        for whole in graphs_of(batch):
            root = min(whole)
            score = root_scores(view.row_ptr, view.column, torch.tensor([root]))
            component = nx.node_connected_component(nx.Graph(whole), root)
            reached = (score > 0).nonzero().flatten().tolist()
            assert set(reached) == component
            if len(component) < 2:
                continue
            weighted = nx.DiGraph()
            for tail, head in whole.subgraph(component).edges():
                before = weighted.get_edge_data(tail, head, {"weight": 0})["weight"]
                weighted.add_edge(tail, head, weight=before + 1)
            rank = nx.pagerank(
                weighted, alpha=0.85, personalization={root: 1}, tol=1e-14, max_iter=2000
            )
            degree = dict(weighted.out_degree(weight="weight"))
            for v in component:
                expected = rank[v] * degree[root] / degree[v] / 0.15
                assert float(score[v]) == pytest.approx(expected, rel=1e-6)
            looked_at += 1
    assert looked_at > 15


@pytest.mark.parametrize("kind", KINDS)
def test_every_prefix_of_the_order_is_connected(kind: str) -> None:
    longest = 0
    for seed in range(12):
        batch = random_batch(generator(seed), **KINDS[kind], largest=20)
        # All the nodes that a root reaches, in order.
        plan = all_reached(batch, seed)
        whole = graphs_of(batch)
        for number, (replaced, brought) in enumerate(groups(plan)):
            source = int(plan.source_of[number])
            for nodes, owner in ((replaced, number), (brought, source)):
                plain = nx.Graph(whole[owner])
                assert set(nodes) <= set(plain)
                assert len(set(nodes)) == len(nodes)
                for size in range(1, len(nodes) + 1):
                    assert nx.is_connected(plain.subgraph(nodes[:size]))
                longest = max(longest, len(nodes))
    assert longest > 10


def all_reached(batch: Batch, seed: int) -> SubMixPlan:
    """A plan with k as large as it can be: drawn until it is, since 1 to k are equally likely."""
    method = SubMix(1.0)
    source_of = torch.randperm(batch.num_graphs, generator=generator(seed))
    draws = [
        method.plan(batch, source_of, generator=generator(100 * seed + again)) for again in range(8)
    ]
    return max(draws, key=lambda plan: int(plan.count.sum()))


@given(batches(), seeds(), st.sampled_from([0.1, 0.4, 1.0]))
def test_any_batch(batch: Batch, seed: int, size: float) -> None:
    before = batch.clone()
    result = mix(SubMix(size), batch, seed)
    assert same_content(batch, before)
    undirected = is_undirected(batch)
    check_valid_batch(result.batch, graphs=batch.num_graphs, undirected=undirected)
    assert torch.equal(result.batch.batch, batch.batch)
    for name in ("x", "edge_attr", "edge_weight"):
        assert (name in result.batch) == (name in batch)
    check_mixed(result, batch, torch.eye(batch.num_graphs))
    check_choice(result.plan, batch, size)


# ------------------------------------------------------------------ the choice of nodes


def check_choice(plan: SubMixPlan, batch: Batch, size: float) -> None:
    """Both sets are the k closest to their root, k within bounds. Graphs are small: all reached."""
    whole = graphs_of(batch)
    for number, (replaced, brought) in enumerate(groups(plan)):
        source = int(plan.source_of[number])
        assert len(replaced) == len(brought) == int(plan.count[number])
        components = []
        for nodes, owner in ((replaced, number), (brought, source)):
            root = nodes[0]
            assert root in whole[owner]
            plain = nx.Graph(whole[owner])
            component = nx.node_connected_component(plain, root)
            components.append(len(component))
            assert nx.is_connected(plain.subgraph(nodes))
            dense = dense_scores(whole[owner], root, is_undirected(batch))
            ranked = [dense[v] for v in nodes]
            rest = [dense[v] for v in plain if v not in nodes]
            assert all(b <= a * (1 + 1e-5) for a, b in itertools.pairwise(ranked))
            assert max(rest, default=0.0) <= ranked[-1] * (1 + 1e-5)
        assert 1 <= len(replaced) <= oracles.floor_share(size, min(components))


def dense_scores(whole: nx.MultiDiGraph, root: int, undirected: bool) -> dict[int, float]:
    """Sixteen steps with a dense matrix of how many edges join two nodes."""
    nodes = sorted(whole)
    matrix = np.array([[whole.number_of_edges(u, v) for v in nodes] for u in nodes], dtype=float)
    if not undirected:
        matrix = matrix + matrix.T
    degree = matrix.sum(1, keepdims=True)
    matrix = np.divide(matrix, degree, out=np.zeros_like(matrix), where=degree > 0)
    start = np.array([float(v == root) for v in nodes])
    score = start
    for _ in range(16):
        score = start + 0.85 * matrix @ score
    return dict(zip(nodes, score, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_the_nodes_closest_to_a_root_are_chosen(kind: str) -> None:
    sizes: Counter[int] = Counter()
    for seed in range(12):
        batch = random_batch(generator(seed), **KINDS[kind], largest=18)
        result = mix(SubMix(0.6), batch, seed)
        check_choice(result.plan, batch, 0.6)
        sizes.update(result.plan.count.tolist())
    assert len(sizes) > 4


def cycle(nodes: int) -> Data:
    return graph(nodes, *((v, (v + 1) % nodes) for v in range(nodes)))


def test_roots_and_sizes_are_uniform() -> None:
    # Chi-square at 0.1 %. Of 10 and 15 nodes in rings, 0.5 * 10 nodes at most.
    batch = Batch.from_data_list([cycle(10), cycle(15)] * 20)
    source_of = torch.tensor([1, 0] * 20)
    counts: Counter[int] = Counter()
    roots: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
    random = generator(4)
    for _ in range(50):
        plan = SubMix(0.5).plan(batch, source_of, generator=random)
        counts.update(plan.count.tolist())
        for number, sets in enumerate(groups(plan)):
            for nodes, owner in zip(sets, (number, int(source_of[number])), strict=True):
                roots[owner % 2][nodes[0] - int(batch.ptr[owner])] += 1
    assert set(counts) == {1, 2, 3, 4, 5}
    assert chisquare(list(counts.values())).pvalue > 1e-3
    for seen, size in zip(roots, (10, 15), strict=True):
        assert set(seen) == set(range(size))
        assert chisquare(list(seen.values())).pvalue > 1e-3


def test_destination_and_source_have_roots_of_their_own() -> None:
    # A source that serves several times is cut anew each time.
    batch = Batch.from_data_list([cycle(12)] * 6)
    plan = SubMix(0.5).plan(batch, torch.zeros(6, dtype=torch.long), generator=generator(1))
    sets = groups(plan)
    assert len({other[0] for _, other in sets}) > 2
    assert len({one[0] % 12 for one, _ in sets}) > 2
    assert any(one[0] % 12 != other[0] % 12 for one, other in sets)


def test_ties_are_broken_at_random() -> None:
    # A star seen from its centre: every leaf is as near. Chi-square at 0.1 %.
    star = Batch.from_data_list([graph(7, *((0, leaf) for leaf in range(1, 7)))] * 50)
    seen: Counter[int] = Counter()
    random = generator(2)
    for _ in range(60):
        plan = SubMix(0.4).plan(star, torch.arange(50), generator=random)
        for nodes, _ in groups(plan):
            if nodes[0] % 7 == 0 and len(nodes) == 2:
                seen[nodes[1] % 7] += 1
    assert set(seen) == set(range(1, 7))
    assert sum(seen.values()) > 100
    assert chisquare(list(seen.values())).pvalue > 1e-3


def test_nodes_too_far_from_the_root_are_never_taken() -> None:
    path = graph(100, *((v, v + 1) for v in range(99)))
    batch = Batch.from_data_list([path] * 30)
    plan = SubMix(1.0).plan(batch, torch.arange(30), generator=generator(0))
    largest = 0
    for nodes, _ in groups(plan):
        assert max(abs(v - nodes[0]) for v in nodes) <= sub_mix.ROUNDS
        largest = max(largest, len(nodes))
    assert largest > sub_mix.ROUNDS  # both ways


def test_hubs_do_not_starve_the_scores() -> None:
    # Two hubs of 3,000 leaves each, joined by a path: scores fall by 3,000 at a hub, and stay.
    leaves = [(0, 10 + v) for v in range(3000)] + [(5, 4000 + v) for v in range(3000)]
    path = [(v, v + 1) for v in range(5)]
    view = View.of(graph(7000, *leaves, *path))
    score = root_scores(view.row_ptr, view.column, torch.tensor([10]))
    reached = [v for v in range(7000) if v < 6 or 10 <= v < 3010 or v >= 4000]
    assert score[reached].min() > 0
    assert int((score > 0).sum()) == len(reached)


# ------------------------------------------------------------------ the swap


def check_mixed(result: SubMixedGraphs, batch: Batch, targets: Tensor) -> None:
    """Algorithm 5, one pair and one edge at a time."""
    plan, whole = result.plan, graphs_of(batch)
    assert torch.equal(result.source_of, plan.source_of)
    edges: Counter[tuple[int, int, int, int]] = Counter()
    origin = list(range(batch.num_nodes))
    from_source = [False] * batch.num_nodes
    for number, (replaced, brought) in enumerate(groups(plan)):
        source = int(plan.source_of[number])
        onto = dict(zip(brought, replaced, strict=True))
        for node, taken in zip(replaced, brought, strict=True):
            origin[node], from_source[node] = taken, True
        kept = [
            (tail, head, edge, 1)
            for tail, head, edge in whole[number].edges(data="number")
            if not (tail in replaced and head in replaced)
        ]
        moved = [
            (onto[tail], onto[head], edge, 0)
            for tail, head, edge in whole[source].edges(data="number")
            if tail in onto and head in onto
        ]
        edges.update(kept + moved)
        every = len(kept) + len(moved)
        weight = len(moved) / every if every else len(replaced) / len(whole[number])
        assert float(result.label_weight[number]) == pytest.approx(weight, abs=1e-6)
        expected = (1 - weight) * targets[number] + weight * targets[source]
        torch.testing.assert_close(result.targets[number], expected)
    assert result.node_origin.tolist() == origin
    assert result.node_from_source.tolist() == from_source
    virtual = result.batch
    found = Counter(
        zip(
            *virtual.edge_index.tolist(),
            result.edge_origin.tolist(),
            result.edge_kind.tolist(),
            strict=True,
        )
    )
    assert found == edges
    for name in ("edge_attr", "edge_weight"):
        if name in batch:
            assert torch.equal(virtual[name], batch[name][result.edge_origin])
    if "x" in batch:
        assert torch.equal(virtual.x, batch.x[origin])
    torch.testing.assert_close(virtual.y, result.targets)


@pytest.mark.parametrize("fields", ["plain", "weights", "attributes"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_swap_is_that_of_a_loop(kind: str, fields: str) -> None:
    moved = 0
    for seed in range(6):
        batch = random_batch(
            generator(seed),
            **KINDS[kind],
            edge_weight=fields == "weights",
            edge_attr=fields == "attributes",
        )
        result = mix(SubMix(0.8), batch, seed)
        check_mixed(result, batch, torch.eye(batch.num_graphs))
        check_valid_batch(result.batch, graphs=8, undirected=KINDS[kind]["undirected"])
        moved += int((result.edge_kind == 0).sum())
    assert moved > 50


@pytest.mark.parametrize("kind", KINDS)
def test_the_kept_adjacency_is_that_of_the_edges(kind: str) -> None:
    batch = random_batch(generator(4), **KINDS[kind], edge_weight=True)
    virtual = mix(SubMix(0.8), batch).batch
    kept = adjacency_of(virtual)
    fresh = adjacency_of(Batch.from_data_list(virtual.to_data_list()))
    x = torch.randn(virtual.num_nodes, 2, generator=generator())
    product, expected = (spmm(a, x, a.weight) for a in (kept, fresh))
    torch.testing.assert_close(product, expected)


def test_one_source_for_many() -> None:
    batch = random_batch(generator(8), edge_attr=True)
    method = SubMix(0.9)
    plan = method.plan(batch, torch.full((8,), 3), generator=generator(0))
    check_mixed(method.apply_plan(plan, batch, torch.eye(8)), batch, torch.eye(8))
    check_choice(plan, batch, 0.9)


def by_hand(batch: Batch, replaced: list[int], brought: list[int], count: list[int]) -> SubMixPlan:
    source_of = torch.tensor([1, 0])
    return SubMixPlan(
        source_of,
        View.of(batch).take(source_of),
        torch.tensor(count),
        torch.tensor(replaced),
        torch.tensor(brought),
    )


def test_by_hand() -> None:
    # A path of four nodes gets the triangle of the other graph on its first three nodes, in the
    # order 2, 1, 0; the triangle with a tail gets one node of the path.
    path = graph(4, (0, 1), (1, 2), (2, 3), label=0)
    triangle = graph(4, (0, 1), (1, 2), (0, 2), (2, 3), label=1)
    batch = Batch.from_data_list([path, triangle])
    # The source view lists the triangle first: its nodes are 0 to 3, those of the path 4 to 7.
    plan = by_hand(batch, [2, 1, 0, 7], [0, 1, 2, 4], [3, 1])
    result = SubMix().apply_plan(plan, batch, torch.eye(2))
    assert result.batch.x.flatten().tolist() == [102, 101, 100, 3, 100, 101, 102, 0]
    assert result.batch.edge_index.tolist() == [
        [0, 0, 1, 1, 2, 2, 2, 3, 4, 4, 5, 5, 6, 6, 6, 7],
        [1, 2, 0, 2, 0, 1, 3, 2, 5, 6, 4, 6, 4, 5, 7, 6],
    ]
    # Three of four edges are the source's; then none of four.
    assert result.label_weight.tolist() == [0.75, 0.0]
    assert result.targets.tolist() == [[0.25, 0.75], [0.0, 1.0]]


def test_without_edges_labels_go_by_nodes() -> None:
    batch = Batch.from_data_list([graph(4, label=0), graph(1, label=1)])
    result = mix(SubMix(), batch)
    assert result.batch.num_edges == 0
    assert result.label_weight.tolist() == [0.25, 1.0]
    # Two nodes of a path that lose their only edge to two nodes without one cannot happen by
    # drawing, for sets are connected; the plan could still say so.
    batch = Batch.from_data_list([graph(3, (0, 1), label=0), graph(2, label=1)])
    plan = by_hand(batch, [0, 1, 3], [0, 1, 2], [2, 1])
    result = SubMix().apply_plan(plan, batch, torch.eye(2))
    assert result.batch.num_edges == 0
    torch.testing.assert_close(result.label_weight, torch.tensor([2 / 3, 1 / 2]))


def test_all_node_fields_move_along() -> None:
    batch = random_batch(generator(3))
    batch.atom = torch.arange(batch.num_nodes)
    result = mix(SubMix(), batch)
    assert torch.equal(result.batch.atom, result.node_origin)
    assert bool((result.node_origin != batch.atom).any())


def test_connected_graphs_stay_connected() -> None:
    changed = 0
    for seed in range(10):
        items = []
        for label in range(6):
            nodes = 5 + (seed + 3 * label) % 12
            tree = nx.random_labeled_tree(nodes, seed=10 * seed + label)
            extra = nx.gnm_random_graph(nodes, 4, seed=seed).edges
            items.append(graph(nodes, *nx.Graph([*tree.edges, *extra]).edges, label=label))
        batch = Batch.from_data_list(items)
        result = mix(SubMix(0.9), batch, seed)
        assert torch.equal(result.batch.ptr, batch.ptr)
        for one in graphs_of(result.batch):
            assert nx.is_connected(nx.Graph(one))
        changed += int((result.edge_kind == 0).sum())
    assert changed > 100


def test_the_expected_number_of_edges_is_kept() -> None:
    # Property 1 of the publication: over random pairs no edges are won or lost on average.
    differences = []
    for seed in range(150):
        batch = random_batch(generator(seed % 10), graphs=8)
        differences.append(mix(SubMix(), batch, seed).batch.num_edges - batch.num_edges)
    mean, error = np.mean(differences), np.std(differences) / len(differences) ** 0.5
    assert error > 0
    assert abs(mean) < 4 * error


def test_missing_labels_stay_missing() -> None:
    batch = Batch.from_data_list([cycle(8), cycle(9)])
    method = SubMix(1.0)
    plan = method.plan(batch, torch.tensor([1, 0]), generator=generator(3))
    targets = torch.tensor([[1.0, float("nan")], [0.0, 1.0]])
    result = method.apply_plan(plan, batch, targets)
    assert bool(result.targets[:, 1].isnan().all())
    torch.testing.assert_close(
        result.targets[:, 0], torch.stack((1 - result.label_weight[0], result.label_weight[1]))
    )


# ------------------------------------------------------------------ parameters


def test_pairing_is_honoured() -> None:
    batch = random_batch(generator(1), graphs=6)
    targets = torch.eye(2)[torch.tensor([0, 1, 0, 1, 0, 1])]
    model = gt.GraphClassifier(3, 2, hidden=4, layers=1)
    clean = gt.CleanPass(batch, targets, lambda: model(batch))
    for pairing in ("cross-class", Pairing("cross-class")):
        result = SubMix(pairing=pairing)(clean, model=model, generator=generator())
        assert bool((targets[result.source_of] != targets).any(1).all())
    plain = SubMix()(clean, model=model, generator=generator())
    assert sorted(plain.source_of.tolist()) == list(range(6))


@pytest.mark.parametrize("size", [0.0, -0.1, 1.1, float("nan")])
def test_bad_sizes(size: float) -> None:
    with pytest.raises(GraphTransplantError, match=r"`size` must be in \(0, 1\], got"):
        SubMix(size)


def test_pairing_by_class_needs_classes() -> None:
    store = gt.GraphStore(
        x=torch.ones(2, 1),
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        y=torch.tensor([[0.5]]),
        node_counts=torch.tensor([2]),
        edge_counts=torch.tensor([2]),
        task="regression",
    )
    model = gt.GraphClassifier.for_data(store, hidden=4)
    SubMix().check(model, store)
    with pytest.raises(GraphTransplantError, match="regression"):
        SubMix(pairing="same-class").check(model, store)
    with pytest.raises(GraphTransplantError, match="`pairing`"):
        SubMix(pairing="nobody")
