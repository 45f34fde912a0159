"""Plan-for-plan equality with a plain networkx version of Algorithms 1 and 2."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import networkx as nx
import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

import oracles
from graph_transplant.augment import (
    EdgePredictor,
    GraphTransplant,
    MixedGraphs,
    PartialKHop,
    RandomAnchors,
    SalientAnchors,
    ScatteredNodes,
    TransplantPlan,
    subgraphs,
)
from graph_transplant.augment.subgraphs import View, anchor_counts, most_salient, partial_khop
from graph_transplant.augment.transplant import KEPT_DESTINATION, KEPT_SOURCE, NEW
from oracles import DESTINATION, SOURCE, graphs_of, induced, transplant
from strategies import random_batch

# Undirected, directed; simple, and with self-loops and repeated edges.
KINDS = {
    "undirected": {"undirected": True, "simple": True},
    "undirected-multi": {"undirected": True, "simple": False},
    "directed": {"undirected": False, "simple": True},
    "directed-multi": {"undirected": False, "simple": False},
}
BATCHES = 12  # of eight graphs, for each kind: 384 graphs per test


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def cases(kind: str, **settings: object) -> list[Batch]:
    return [
        random_batch(generator(1000 + seed), **KINDS[kind], **settings) for seed in range(BATCHES)
    ]


def distinct_saliency(batch: Batch, seed: int) -> Tensor:
    """Positive, no two alike."""
    count = batch.num_nodes
    return (torch.randperm(count, generator=generator(seed)) + 1.0) / count


def nodes_per_graph(batch: Batch, mask: Tensor) -> list[set[int]]:
    return [
        set(((batch.batch == g) & mask).nonzero().flatten().tolist())
        for g in range(batch.num_graphs)
    ]


# ------------------------------------------------------------------ Algorithm 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hops", [0, 1, 2, 3])
def test_partial_khop_selects_what_a_loop_selects(kind: str, hops: int) -> None:
    grew = 0
    for seed, batch in enumerate(cases(kind)):
        random = generator(seed)
        start = torch.rand(batch.num_nodes, generator=random) < 0.2
        ratio = float(torch.rand((), generator=random))
        keys = torch.rand(hops, batch.num_nodes, generator=random, dtype=torch.double)
        found = nodes_per_graph(batch, partial_khop(View.of(batch), start, ratio, keys))
        anchors = nodes_per_graph(batch, start)
        for graph, here, there in zip(graphs_of(batch), anchors, found, strict=True):
            expected = oracles.partial_khop(graph, here, ratio, keys.numpy())
            assert there == expected
            grew += len(there) > len(here)
    assert (grew > 0) == (hops > 0)


@pytest.mark.parametrize("ratio", [0.05, 0.1, 0.15, 0.29, 0.5, 1.0])
def test_counts_are_floors_but_at_least_one(ratio: float) -> None:
    nodes = torch.arange(1, 1001)
    expected = [oracles.floor_share(ratio, n) for n in nodes.tolist()]
    assert anchor_counts(nodes, ratio).tolist() == expected


# ------------------------------------------------------------------ the whole plan


@dataclass
class Recorder:
    """Writes down the random numbers a cutter draws, in the order it draws them."""

    keys: list[Tensor] = field(default_factory=list)
    scalars: list[float] = field(default_factory=list)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        draw, scalar = subgraphs.uniform, subgraphs.scalar_generator

        def uniform(*arguments: object) -> Tensor:
            self.keys.append(draw(*arguments))
            return self.keys[-1]

        def scalar_generator(source: torch.Generator | None) -> object:
            numbers, recorder = scalar(source), self

            class Numbers:
                def choice(self, values: object) -> object:
                    recorder.scalars.append(numbers.choice(values))
                    return recorder.scalars[-1]

                def beta(self, a: float, b: float) -> float:
                    assert (a, b) == (2.0, 2.0)
                    recorder.scalars.append(numbers.beta(a, b))
                    return recorder.scalars[-1]

            return Numbers()

        monkeypatch.setattr(subgraphs, "uniform", uniform)
        monkeypatch.setattr(subgraphs, "scalar_generator", scalar_generator)


def local_keys(view_nodes: Tensor, counts: list[int], keys: Tensor) -> list[np.ndarray]:
    """Random keys of each graph, as arrays over the batch's node numbers."""
    parts = []
    for nodes, values in zip(view_nodes.split(counts), keys.split(counts, dim=-1), strict=True):
        table = np.full((*keys.shape[:-1], int(view_nodes.max()) + 1), np.nan)
        table[..., nodes.numpy()] = values.numpy()
        parts.append(table)
    return parts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("anchors", ["salient", "random"])
def test_plan_cuts_what_the_paper_cuts(
    kind: str, anchors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ratio, hops_seen = 0.25, set()
    method = GraphTransplant("none", anchor_ratio=ratio, anchors=anchors)
    for seed, batch in enumerate(cases(kind)):
        saliency = distinct_saliency(batch, seed)
        with monkeypatch.context() as patch:
            recorder = Recorder()
            recorder.install(patch)
            plan = method.plan(batch, saliency, generator=generator(seed))
        hops, share = int(recorder.scalars[0]), float(recorder.scalars[1])
        hops_seen.add(hops)
        assert len(recorder.scalars) == 2  # K and p are drawn once, for both sides and all graphs
        source_anchor, source_grow, anchor, grow = recorder.keys
        assert source_grow.shape[0] == grow.shape[0] == hops
        graphs = graphs_of(batch)
        pi = plan.source_of.tolist()
        assert sorted(pi) == list(range(len(graphs)))

        counts = [len(graphs[g]) for g in pi]
        view = plan.source.view.node
        draws = [local_keys(view, counts, keys) for keys in (source_anchor, source_grow)]
        transplanted = plan.transplanted.tolist()
        expected_all: list[int] = []
        for i, g in enumerate(pi):
            graph, pool = graphs[g], set(graphs[g])
            order = draws[0][i]
            if anchors == "salient":
                pool = oracles.salient_pool(graph, saliency.numpy(), ratio)
                order = order[1]
            start = sorted(pool, key=lambda v, order=order: order[v])
            start = start[: oracles.floor_share(ratio, len(graph))]
            grown = oracles.partial_khop(graph, set(start), share, draws[1][i])
            expected_all += sorted(grown)
        assert transplanted == expected_all

        counts = [len(graph) for graph in graphs]
        everything = torch.arange(batch.num_nodes)
        draws = [local_keys(everything, counts, keys) for keys in (anchor, grow)]
        removed = nodes_per_graph(batch, plan.removed)
        for i, graph in enumerate(graphs):
            order = draws[0][i]
            start = sorted(graph, key=lambda v, order=order: order[v])
            start = start[: oracles.floor_share(ratio, len(graph))]
            assert removed[i] == oracles.partial_khop(graph, set(start), share, draws[1][i])
    assert hops_seen == {1, 2, 3}


def test_anchors_come_uniformly_from_the_top_two_r() -> None:
    # 10 nodes, R = 0.2: two anchors of the four most salient; each of the six pairs 1/6 of the
    # time, chi-square at 0.1 %.
    from scipy.stats import chisquare

    repeats = 1500
    nothing = torch.empty(2, 0, dtype=torch.long)
    batch = Batch.from_data_list(
        [Data(edge_index=nothing, num_nodes=10, y=torch.tensor([0]))] * repeats
    )
    order = torch.tensor([3, 9, 1, 4, 0, 2, 8, 7, 6, 5])  # nodes by falling saliency
    saliency = torch.empty(10).scatter_(0, order, torch.arange(10, 0, -1.0)).repeat(repeats)
    view, counts = View.of(batch), torch.full((repeats,), 10)
    picked = SalientAnchors().pick(
        view, saliency, anchor_counts(counts, 0.2), anchor_counts(counts, 0.4), generator(0)
    )
    pairs = Counter(tuple(row.nonzero().flatten().tolist()) for row in picked.view(repeats, 10))
    assert len(pairs) == 6
    assert {v for pair in pairs for v in pair} == {1, 3, 4, 9}
    assert all(len(pair) == 2 for pair in pairs)
    assert chisquare(list(pairs.values())).pvalue > 1e-3
    anywhere = RandomAnchors().pick(
        view, saliency, anchor_counts(counts, 0.2), anchor_counts(counts, 0.4), generator(0)
    )
    per_node = anywhere.view(repeats, 10).sum(0)
    assert int(per_node.sum()) == 2 * repeats
    assert chisquare(per_node.numpy()).pvalue > 1e-3


def test_most_salient_ranks_any_number() -> None:
    # Very large, very small and equal numbers; the top nodes of each graph by a plain sort.
    nothing = torch.empty(2, 0, dtype=torch.long)
    sizes = [1, 7, 12, 3, 30]
    batch = Batch.from_data_list([Data(edge_index=nothing, num_nodes=n) for n in sizes])
    layout = View.of(batch).layout
    for seed in range(60):
        random = generator(seed)
        exponent = 70 * torch.rand(sum(sizes), generator=random) - 37
        saliency = 10**exponent
        saliency[torch.rand(sum(sizes), generator=random) < 0.2] = 0.0
        saliency[torch.rand(sum(sizes), generator=random) < 0.1] = float(saliency.max())
        keys = torch.rand(sum(sizes), generator=random, dtype=torch.double)
        count = torch.tensor([1 + seed % n for n in sizes])
        chosen = most_salient(saliency, layout, count, keys)
        start = 0
        for size, wanted in zip(sizes, count.tolist(), strict=True):
            here, mine = saliency[start : start + size], chosen[start : start + size]
            assert int(mine.sum()) == wanted
            if wanted < size:  # nobody left out is more salient than somebody chosen
                assert float(here[mine].min()) >= float(here[~mine].max())
            start += size


def test_equal_saliency_is_ranked_at_random() -> None:
    from scipy.stats import chisquare

    repeats = 1000
    nothing = torch.empty(2, 0, dtype=torch.long)
    batch = Batch.from_data_list(
        [Data(edge_index=nothing, num_nodes=6, y=torch.tensor([0]))] * repeats
    )
    one = torch.ones(repeats, dtype=torch.long)
    picked = SalientAnchors().pick(
        View.of(batch), torch.zeros(6 * repeats), one, 2 * one, generator(1)
    )
    assert chisquare(picked.view(repeats, 6).sum(0).numpy()).pvalue > 1e-3


def test_k_and_p_follow_their_distributions() -> None:
    # K uniform over the given values; p ~ Beta(2, 2) by Kolmogorov-Smirnov, both at 0.1 %.
    from scipy.stats import beta, chisquare, kstest

    random = generator(5)
    hops, shares = [], []
    for _ in range(2000):
        numbers = subgraphs.scalar_generator(random)
        hops.append(int(numbers.choice((1, 2, 3))))
        shares.append(float(numbers.beta(2.0, 2.0)))
    assert chisquare(list(Counter(hops).values())).pvalue > 1e-3
    assert kstest(shares, beta(2, 2).cdf).pvalue > 1e-3


def test_scattered_nodes_are_as_many_as_subgraphs_on_average(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cutter, beyond = ScatteredNodes(PartialKHop(0.2)), 0
    for seed, batch in enumerate(cases("undirected")):
        saliency = distinct_saliency(batch, seed)
        grown: list[tuple[Tensor, Tensor]] = []
        plain = PartialKHop.cut

        def cut(self, *arguments, grown=grown, plain=plain):
            grown.append(plain(self, *arguments))
            return grown[-1]

        with monkeypatch.context() as patch:
            patch.setattr(PartialKHop, "cut", cut)
            view = View.of(batch)
            masks = cutter.cut(view, view, saliency, SalientAnchors(), generator(seed))
        for number, (mask, subgraph) in enumerate(zip(masks, grown[0], strict=True)):
            wanted = max(1, round(float(subgraph.sum() / batch.num_graphs)))
            for graph, chosen in zip(graphs_of(batch), nodes_per_graph(batch, mask), strict=True):
                assert len(chosen) == min(wanted, len(graph))
                if number == 0:
                    ranked = sorted(graph, key=lambda v: -float(saliency[v]))
                    assert chosen <= set(ranked[: 2 * wanted])
                    beyond += not chosen <= set(ranked[:wanted])
    assert beyond > 10  # drawn from the top 2N, not the top N


# ------------------------------------------------------------------ Algorithm 2 under a plan


def pairs_of(plan: TransplantPlan, batch: Batch) -> list[list[tuple[int, int]]]:
    """New edges of every mixed graph as node numbers of the batch."""
    drawn = plan.pairs.drawn()
    found: list[list[tuple[int, int]]] = [[] for _ in range(batch.num_graphs)]
    for u, v in zip(drawn.source.tolist(), drawn.destination.tolist(), strict=True):
        graph = int(plan.source.view.layout.segment[u])
        assert int(plan.destination.view.layout.segment[v]) == graph
        here = int(plan.source.view.node[u]), int(plan.destination.view.node[v])
        assert int(batch.batch[here[0]]) == int(plan.source_of[graph])
        assert int(batch.batch[here[1]]) == graph
        found[graph].append(here)
    return found


def cut_parts(
    plan: TransplantPlan, batch: Batch, undirected: bool
) -> list[tuple[oracles.Part, oracles.Part]]:
    graphs = graphs_of(batch)
    segment = plan.source.view.layout.segment[plan.source.keep]
    remaining = nodes_per_graph(batch, ~plan.removed)
    return [
        (
            induced(graphs[g], set(plan.transplanted[segment == i].tolist()), undirected),
            induced(graphs[i], remaining[i], undirected),
        )
        for i, g in enumerate(plan.source_of.tolist())
    ]


def mixed_graphs(result: MixedGraphs) -> list[oracles.Mixed]:
    """What the package built, in the oracle's terms."""
    sides = [SOURCE if own else DESTINATION for own in result.node_from_source.tolist()]
    names = list(zip(sides, result.node_origin.tolist(), strict=True))
    graphs = [oracles.Mixed(set(), Counter()) for _ in range(result.batch.num_graphs)]
    segment = result.batch.batch.tolist()
    for node, graph in enumerate(segment):
        assert names[node] not in graphs[graph].nodes
        graphs[graph].nodes.add(names[node])
    edges = result.batch.edge_index.t().tolist()
    for (tail, head), number in zip(edges, result.edge_origin.tolist(), strict=True):
        graphs[segment[tail]].edges[names[tail], names[head], number] += 1
    return graphs


def canonical(edges: Counter[tuple]) -> Counter[tuple]:
    """New directed edges written from source to destination, whichever way they point."""
    turned: Counter[tuple] = Counter()
    for (tail, head, number), times in edges.items():
        if number == -1 and tail[0] == DESTINATION:
            tail, head = head, tail
        turned[tail, head, number] += times
    return turned


def check_mixed(
    result: MixedGraphs, plan: TransplantPlan, batch: Batch, saliency: Tensor, undirected: bool
) -> None:
    """Node by node, edge by edge, field by field, label by label."""
    parts, pairs = cut_parts(plan, batch, undirected), pairs_of(plan, batch)
    for (source, destination), joined, found in zip(
        parts, pairs, mixed_graphs(result), strict=True
    ):
        expected = transplant(source, destination, joined, undirected)
        assert found.nodes == expected.nodes
        if undirected:
            assert found.edges == expected.edges
        else:
            assert canonical(found.edges) == canonical(expected.edges)
        assert len(set(joined)) == len(joined)
        assert {u for u, _ in joined} <= source.candidates
        assert {v for _, v in joined} <= destination.candidates

    virtual = result.batch
    assert torch.equal(virtual.x, batch.x[result.node_origin])
    # Transplanted nodes come first, each side in its old order.
    for graph in range(batch.num_graphs):
        here = virtual.batch == graph
        own = result.node_from_source[here].tolist()
        assert own == sorted(own, reverse=True)
        for side in (True, False):
            origin = result.node_origin[here & (result.node_from_source == side)].tolist()
            assert origin == sorted(origin)
    oracles.check_valid_batch(virtual, graphs=batch.num_graphs, undirected=undirected)

    new = result.edge_origin == -1
    assert torch.equal(result.edge_kind == NEW, new)
    from_source = result.node_from_source[virtual.edge_index]
    assert bool((from_source[0] != from_source[1]).eq(new).all())
    assert torch.equal(result.edge_kind == KEPT_SOURCE, from_source.all(0))
    assert torch.equal(result.edge_kind == KEPT_DESTINATION, ~from_source.any(0))
    kept = result.edge_origin[~new]
    ends = result.node_origin[virtual.edge_index[:, ~new]]
    assert torch.equal(ends, batch.edge_index[:, kept])

    graphs = graphs_of(batch)
    for i, g in enumerate(plan.source_of.tolist()):
        source, destination = parts[i]
        share = oracles.saliency_share(graphs[g], set(source.graph), saliency.numpy())
        rest = oracles.saliency_share(graphs[i], set(destination.graph), saliency.numpy())
        weight = oracles.label_weight(share, rest)
        assert float(result.source_share[i]) == pytest.approx(share, abs=1e-6)
        assert float(result.destination_share[i]) == pytest.approx(rest, abs=1e-6)
        assert float(result.label_weight[i]) == pytest.approx(weight, abs=1e-6)
        # Graph i has class i, so that a wrong partner shows.
        target = torch.zeros(batch.num_graphs)
        target[g] += weight
        target[i] += 1 - weight
        torch.testing.assert_close(result.targets[i], target)
    assert torch.equal(result.batch.y, result.targets)
    assert torch.equal(result.source_of, plan.source_of)


def apply(
    method: GraphTransplant, batch: Batch, saliency: Tensor, seed: int
) -> tuple[MixedGraphs, TransplantPlan]:
    nodes = batch.x if isinstance(method.connect, EdgePredictor) else None
    with torch.no_grad():
        plan = method.plan(batch, saliency, generator=generator(seed), nodes=nodes)
        result = method.apply_plan(plan, batch, torch.eye(batch.num_graphs), saliency)
    assert result.plan is plan
    return result, plan


@pytest.mark.parametrize("kind", KINDS)
def test_degree_preservation_builds_the_papers_graphs(kind: str) -> None:
    undirected, new_edges, capped = KINDS[kind]["undirected"], 0, 0
    method = GraphTransplant("degree", anchor_ratio=0.2)
    for seed, batch in enumerate(cases(kind)):
        saliency = distinct_saliency(batch, seed)
        result, plan = apply(method, batch, saliency, seed)
        check_mixed(result, plan, batch, saliency, undirected)
        joined = pairs_of(plan, batch)
        for (source, destination), pairs in zip(
            cut_parts(plan, batch, undirected), joined, strict=True
        ):
            possible = len(source.candidates) * len(destination.candidates)
            wanted = (source.lost + destination.lost) // 2
            assert len(pairs) == min(wanted, possible)
            capped += possible < wanted and possible > 0
            new_edges += len(pairs)
    assert new_edges > 100
    assert capped > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("connect", ["predict", "none"])
def test_the_other_connections_build_the_papers_graphs(kind: str, connect: str) -> None:
    torch.manual_seed(0)
    undirected, drawn, possible = KINDS[kind]["undirected"], 0, 0
    method = GraphTransplant(connect, anchor_ratio=0.2, embedding_size=3)
    for seed, batch in enumerate(cases(kind)):
        saliency = distinct_saliency(batch, seed)
        result, plan = apply(method, batch, saliency, seed)
        check_mixed(result, plan, batch, saliency, undirected)
        drawn += sum(map(len, pairs_of(plan, batch)))
        for source, destination in cut_parts(plan, batch, undirected):
            possible += len(source.candidates) * len(destination.candidates)
        if connect == "predict":  # ψ is asked about every pair of U_π × U, and no other
            asked = Counter(
                zip(
                    plan.source.view.node[plan.pairs.source].tolist(),
                    plan.destination.view.node[plan.pairs.destination].tolist(),
                    strict=True,
                )
            )
            expected = Counter(
                (u, v)
                for source, destination in cut_parts(plan, batch, undirected)
                for u in source.candidates
                for v in destination.candidates
            )
            assert asked == expected
            assert torch.is_tensor(plan.pairs.weight)
    assert (drawn > 0) == (connect == "predict")
    assert drawn < possible


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "parts",
    [{"cut": "scattered"}, {"importance": "size"}, {"anchors": "random"}],
    ids=["scattered", "size", "random"],
)
def test_the_ablations_build_the_papers_graphs(kind: str, parts: dict[str, str]) -> None:
    undirected = KINDS[kind]["undirected"]
    method = GraphTransplant("degree", anchor_ratio=0.2, **parts)
    for seed, batch in enumerate(cases(kind)[:4]):
        saliency = distinct_saliency(batch, seed)
        result, plan = apply(method, batch, saliency, seed)
        # Where labels go by size, every node counts alike.
        measure = torch.ones_like(saliency) if "importance" in parts else saliency
        check_mixed(result, plan, batch, measure, undirected)


@pytest.mark.parametrize("kind", KINDS)
def test_edges_ignored_by_order_give_the_same_graphs(kind: str) -> None:
    # The edge list's order is of no meaning: the same plan on a shuffled list, the same graphs.
    method = GraphTransplant("degree", anchor_ratio=0.2)
    for seed, batch in enumerate(cases(kind, edge_attr=True)[:4]):
        saliency = distinct_saliency(batch, seed)
        plain, _ = apply(method, batch, saliency, seed)
        order = torch.randperm(batch.num_edges, generator=generator(seed))
        graph_of = batch.batch[batch.edge_index[0][order]]
        order = order[torch.argsort(graph_of, stable=True)]
        shuffled = batch.clone()
        shuffled.edge_index = batch.edge_index[:, order]
        shuffled.edge_attr = batch.edge_attr[order]
        other, _ = apply(method, shuffled, saliency, seed)
        assert torch.equal(plain.node_origin, other.node_origin)
        assert torch.equal(plain.targets, other.targets)
        assert torch.equal(plain.batch.edge_index, other.batch.edge_index)


# ------------------------------------------------------------------ edge fields


def lost_edges(graph: nx.MultiDiGraph, part: oracles.Part, node: int, undirected: bool) -> set[int]:
    """Numbers of the edges that a node lost, in either direction."""
    lost = set()
    for tail, head, number in graph.edges(data="number"):
        if node in (tail, head) and not (tail in part.graph and head in part.graph):
            lost.add(number)
    return lost


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["drawn", "mean", "zero"])
def test_edge_attributes(kind: str, policy: str) -> None:
    undirected, new_edges = KINDS[kind]["undirected"], 0
    method = GraphTransplant("degree", anchor_ratio=0.2, new_edge_attr=policy)
    for seed, batch in enumerate(cases(kind, edge_attr=True)):
        if undirected:  # an edge and its reverse have one attribute
            low, high = batch.edge_index.min(0).values, batch.edge_index.max(0).values
            table = torch.randn(batch.num_nodes, batch.num_nodes, 2, generator=generator(seed))
            batch.edge_attr = table[low, high]
        saliency = distinct_saliency(batch, seed)
        result, plan = apply(method, batch, saliency, seed)
        attr = result.batch.edge_attr
        kept = result.edge_origin >= 0
        assert torch.equal(attr[kept], batch.edge_attr[result.edge_origin[kept]])
        graphs, parts = graphs_of(batch), cut_parts(plan, batch, undirected)
        by_pair: dict[tuple[int, frozenset[int]], Tensor] = {}
        for edge in (~kept).nonzero().flatten().tolist():
            new_edges += 1
            ends = result.batch.edge_index[:, edge].tolist()
            graph = int(result.batch.batch[ends[0]])
            again = by_pair.setdefault((graph, frozenset(ends)), attr[edge])
            assert torch.equal(again, attr[edge])  # both directions have one attribute
            u, v = sorted(ends, key=lambda end: not bool(result.node_from_source[end]))
            candidates = []
            for end, side, whole in (
                (u, parts[graph][0], graphs[int(plan.source_of[graph])]),
                (v, parts[graph][1], graphs[graph]),
            ):
                origin = int(result.node_origin[end])
                numbers = lost_edges(whole, side, origin, undirected)
                candidates.append(batch.edge_attr[sorted(numbers)])
                assert len(candidates[-1]) > 0
            if policy == "zero":
                assert bool((attr[edge] == 0).all())
            elif policy == "mean":
                expected = (candidates[0].mean(0) + candidates[1].mean(0)) / 2
                torch.testing.assert_close(attr[edge], expected)
            else:
                assert bool((torch.cat(candidates) == attr[edge]).all(1).any())
    assert new_edges > 100


def test_drawn_attributes_come_from_both_ends_equally_and_uniformly() -> None:
    # A star's centre is kept and loses three edges with attributes 1, 2, 3; on the other side a
    # centre loses two with 10 and 20. Each end is asked half of the time: chi-square at 0.1 %.
    from scipy.stats import chisquare

    from graph_transplant.augment.connect import Pairs, Side

    star = Data(
        edge_index=torch.tensor([[0, 1, 0, 2, 0, 3], [1, 0, 2, 0, 3, 0]]),
        edge_attr=torch.tensor([1.0, 1, 2, 2, 3, 3]).view(6, 1),
        x=torch.zeros(4, 1),
        y=torch.tensor([0]),
    )
    other = Data(
        edge_index=torch.tensor([[0, 1, 0, 2], [1, 0, 2, 0]]),
        edge_attr=torch.tensor([10.0, 10, 20, 20]).view(4, 1),
        x=torch.zeros(3, 1),
        y=torch.tensor([1]),
    )
    batch = Batch.from_data_list([star, other])
    view = View.of(batch)
    source = view.take(torch.tensor([1, 0]))
    giving = Side.of(source, torch.tensor([1, 0, 0, 1, 0, 0, 0]).bool())
    taking = Side.of(view, torch.tensor([1, 0, 0, 0, 1, 0, 0]).bool())
    pairs = Pairs(torch.tensor([0, 3]), torch.tensor([0, 4]))
    method = GraphTransplant("degree")
    random, seen = generator(0), Counter()
    for _ in range(600):
        keys = torch.rand(2, 3, generator=random, dtype=torch.double)
        plan = TransplantPlan(torch.tensor([1, 0]), giving, taking, pairs, keys)
        result = method.apply_plan(plan, batch, torch.eye(2), torch.ones(7))
        seen[float(result.batch.edge_attr[0])] += 1
    expected = {1.0: 100, 2.0: 100, 3.0: 100, 10.0: 150, 20.0: 150}
    assert set(seen) == set(expected)
    assert chisquare([seen[k] for k in expected], list(expected.values())).pvalue > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("connect", ["degree", "predict"])
def test_edge_weights(kind: str, connect: str) -> None:
    torch.manual_seed(0)
    method = GraphTransplant(connect, anchor_ratio=0.2, embedding_size=3)
    for seed, batch in enumerate(cases(kind, edge_weight=True)[:6]):
        saliency = distinct_saliency(batch, seed)
        result, plan = apply(method, batch, saliency, seed)
        check_mixed(result, plan, batch, saliency, KINDS[kind]["undirected"])
        weight, kept = result.batch.edge_weight, result.edge_origin >= 0
        assert torch.equal(weight[kept], batch.edge_weight[result.edge_origin[kept]])
        assert bool((weight[~kept] == 1).all())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_soft_edges_are_the_hard_ones_and_edges_of_weight_zero(kind: str, weighted: bool) -> None:
    torch.manual_seed(0)
    method = GraphTransplant("predict", anchor_ratio=0.2, embedding_size=3)
    undirected = KINDS[kind]["undirected"]
    for seed, batch in enumerate(cases(kind, edge_weight=weighted)[:6]):
        saliency = distinct_saliency(batch, seed)
        plan = method.plan(batch, saliency, generator=generator(seed), nodes=batch.x)
        targets = torch.eye(batch.num_graphs)
        soft = method.apply_plan(plan, batch, targets, saliency, soft_edges=True)
        hard = method.apply_plan(plan, batch, targets, saliency)
        weight = soft.batch.edge_weight
        new = soft.edge_kind == NEW
        assert bool(((weight[new] == 0) | (weight[new] == 1)).all())
        assert int(new.sum()) == len(plan.pairs.source) * (2 if undirected else 1)
        oracles.check_valid_batch(soft.batch, graphs=batch.num_graphs, undirected=undirected)
        present = ~new | (weight > 0.5)
        assert torch.equal(soft.batch.edge_index[:, present], hard.batch.edge_index)
        # Repeated edges have no order among themselves.
        ends = hard.batch.edge_index.t().tolist()
        one = sorted(zip(ends, soft.edge_origin[present].tolist(), strict=True))
        assert one == sorted(zip(ends, hard.edge_origin.tolist(), strict=True))
        if weighted:
            assert torch.equal(weight[present].detach(), hard.batch.edge_weight)
        else:
            assert "edge_weight" not in hard.batch
            assert bool((weight[~new] == 1).all())
        if undirected:  # an edge and its reverse share one weight
            table = {
                tuple(edge): float(value)
                for edge, value in zip(
                    soft.batch.edge_index[:, new].t().tolist(), weight[new].detach(), strict=True
                )
            }
            assert all(table[head, tail] == value for (tail, head), value in table.items())


def test_new_directed_edges_point_either_way_equally_often() -> None:
    method = GraphTransplant("degree", anchor_ratio=0.2)
    to_destination = new_edges = 0
    for seed, batch in enumerate(cases("directed")):
        result, _ = apply(method, batch, distinct_saliency(batch, seed), seed)
        new = result.edge_kind == NEW
        to_destination += int(result.node_from_source[result.batch.edge_index[0, new]].sum())
        new_edges += int(new.sum())
    # Binomial with one half: four standard deviations.
    assert abs(to_destination - new_edges / 2) < 2 * new_edges**0.5
    assert new_edges > 200
