"""Random edits of single graphs, against networkx and plain sequential versions."""

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
from graph_transplant.augment import (
    Augmentation,
    DropEdges,
    DropNodes,
    EditedGraphs,
    MaskNodes,
    PerturbEdges,
    RandomSubgraph,
)
from graph_transplant.augment.perturb import AbsentPairs, first_passage
from graph_transplant.augment.subgraphs import View
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.graphs import GraphStore
from oracles import check_valid_batch, graphs_of, is_undirected, same_content
from strategies import batches, random_batch, seeds

# A correct sampler fails a test at this level once in 100,000 runs; the seeds are fixed.
LEVEL = 1e-5

RATIOS = st.sampled_from([0.0, 0.1, 0.2, 0.29, 0.4, 0.5, 0.75, 0.99])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def no_prediction() -> Any:
    raise AssertionError("a random edit needs no prediction")


MODEL = gt.GraphClassifier(3, 3, hidden=4)


def drawn(augmentation: Augmentation, batch: Batch, seed: int = 0) -> EditedGraphs:
    """The virtual graphs."""
    targets = torch.rand(batch.num_graphs, 3, generator=generator(1))
    clean = gt.CleanPass(batch, targets, no_prediction)
    virtual = augmentation(clean, model=MODEL, generator=generator(seed))
    assert isinstance(virtual, EditedGraphs)
    assert torch.equal(virtual.targets, targets)
    return virtual


def edited(augmentation: Augmentation, batch: Batch, seed: int = 0) -> EditedGraphs:
    """The virtual graphs, after checks that hold for all of these augmentations."""
    before = batch.clone()
    virtual = drawn(augmentation, batch, seed)
    assert same_content(batch, before)
    undirected = is_undirected(batch)
    check_valid_batch(virtual.batch, graphs=batch.num_graphs, undirected=undirected)
    assert set(virtual.batch.keys()) == set(batch.keys())
    assert torch.equal(batch.batch[virtual.node_origin], virtual.batch.batch)
    check_kept_edges(virtual, batch)
    return virtual


def check_kept_edges(virtual: EditedGraphs, batch: Batch) -> None:
    """Edges that say where they come from join the same nodes and carry the same values."""
    kept = virtual.edge_origin >= 0
    origin = virtual.edge_origin[kept]
    assert len(set(origin.tolist())) == origin.numel()
    old = virtual.node_origin[virtual.batch.edge_index[:, kept]]
    assert torch.equal(old, batch.edge_index[:, origin])
    for name in ("edge_attr", "edge_weight"):
        if name in batch:
            assert torch.equal(virtual.batch[name][kept], batch[name][origin])


def check_induced(virtual: EditedGraphs, batch: Batch) -> None:
    """All edges among the kept nodes are there, and no others."""
    nodes = set(virtual.node_origin.tolist())
    expected = {
        number
        for number, (u, v) in enumerate(batch.edge_index.t().tolist())
        if u in nodes and v in nodes
    }
    assert set(virtual.edge_origin.tolist()) == expected
    assert virtual.edge_origin.numel() == len(expected)
    if "x" in batch:
        assert torch.equal(virtual.batch.x, batch.x[virtual.node_origin])


def floor(ratio: float, count: int) -> int:
    return math.floor(round(ratio * count, 9))


def unordered(edges: list[tuple[int, int]]) -> Counter[tuple[int, int]]:
    """Undirected edges, each once; ``edges`` lists both directions."""
    both = Counter((min(e), max(e)) for e in edges)
    return Counter({e: n if e[0] == e[1] else n // 2 for e, n in both.items()})


def edges_of(batch: Batch, undirected: bool) -> list[Counter[tuple[int, int]]]:
    """Edges of each graph, with how often they occur."""
    listed: list[list[tuple[int, int]]] = [[] for _ in range(batch.num_graphs)]
    for u, v in batch.edge_index.t().tolist():
        listed[int(batch.batch[u])].append((u, v))
    return [unordered(edges) if undirected else Counter(edges) for edges in listed]


def absent_of(batch: Batch, undirected: bool) -> list[set[tuple[int, int]]]:
    """Pairs without an edge, by networkx."""
    found = []
    for graph in graphs_of(batch):
        simple = nx.Graph(graph) if undirected else nx.DiGraph(graph)
        pairs = set(nx.complement(simple).edges)
        found.append({(min(e), max(e)) for e in pairs} if undirected else pairs)
    return found


def copies(data: Data, count: int) -> Batch:
    """The same graph many times: one call draws a whole sample."""
    data.y = torch.tensor([0])
    return GraphStore.from_pyg([data]).batch([0] * count)


def both_ways(*edges: tuple[int, int]) -> Tensor:
    listed = [e for u, v in edges for e in ((u, v), (v, u))]
    return torch.tensor(listed, dtype=torch.long).reshape(-1, 2).t().contiguous()


def kept_sets(virtual: EditedGraphs, nodes: int) -> Counter[frozenset[int]]:
    """How often each set of nodes was kept, over copies of a graph."""
    origin = virtual.node_origin.tolist()
    ptr = virtual.batch.ptr.tolist()
    return Counter(
        frozenset(node % nodes for node in origin[a:b]) for a, b in itertools.pairwise(ptr)
    )


def agree(observed: Counter[Any], expected: dict[Any, float]) -> None:
    """A chi-square test of counts against probabilities."""
    total = sum(observed.values())
    assert set(observed) <= {outcome for outcome, p in expected.items() if p > 0}
    outcomes = [outcome for outcome, p in expected.items() if p > 0]
    assert sum(expected.values()) == pytest.approx(1)
    counts = [observed[outcome] for outcome in outcomes]
    test = chisquare(counts, [expected[outcome] * total for outcome in outcomes])
    assert test.pvalue > LEVEL


# ------------------------------------------------------------------ drop-nodes


@settings(max_examples=25)
@given(batches(), RATIOS, seeds())
def test_dropping_nodes_leaves_the_induced_subgraph(batch: Batch, ratio: float, seed: int) -> None:
    virtual = edited(DropNodes(ratio), batch, seed)
    for before, after in zip(
        batch.ptr.diff().tolist(), virtual.batch.ptr.diff().tolist(), strict=True
    ):
        assert after == max(1, before - floor(ratio, before))
    check_induced(virtual, batch)


def test_every_set_of_nodes_is_dropped_equally_often() -> None:
    path = Data(x=torch.zeros(5, 1), edge_index=both_ways((0, 1), (1, 2), (2, 3), (3, 4)))
    virtual = drawn(DropNodes(0.4), copies(path, 3000))
    sets = [frozenset(c) for c in itertools.combinations(range(5), 3)]
    agree(kept_sets(virtual, 5), dict.fromkeys(sets, 1 / len(sets)))


# ------------------------------------------------------------------ absent pairs


@settings(max_examples=25)
@given(batches(), seeds())
def test_absent_pairs_are_the_complement(batch: Batch, seed: int) -> None:
    undirected = is_undirected(batch)
    absent = AbsentPairs(View.of(batch))
    expected = absent_of(batch, undirected)
    assert absent.counts.tolist() == [len(pairs) for pairs in expected]
    u, v = absent.sample(absent.counts, generator(seed))
    assert Counter(zip(u.tolist(), v.tolist(), strict=True)) == Counter(
        itertools.chain.from_iterable(expected)
    )


@settings(max_examples=25)
@given(batches(), seeds(), st.floats(0, 1))
def test_some_absent_pairs_are_distinct_and_absent(batch: Batch, seed: int, share: float) -> None:
    absent = AbsentPairs(View.of(batch))
    count = (absent.counts * share).to(torch.long)
    u, v = absent.sample(count, generator(seed))
    found = list(zip(u.tolist(), v.tolist(), strict=True))
    assert len(set(found)) == len(found)
    for graph, (pairs, wanted) in enumerate(
        zip(absent_of(batch, is_undirected(batch)), count.tolist(), strict=True)
    ):
        mine = [pair for pair in found if int(batch.batch[pair[0]]) == graph]
        assert len(mine) == wanted
        assert set(mine) <= pairs


@pytest.mark.parametrize("directed", [False, True])
def test_absent_pairs_are_equally_likely(directed: bool) -> None:
    edges = both_ways((0, 1), (1, 2), (1, 3), (3, 4))
    edges = edges[:, ::2] if directed else edges
    batch = copies(Data(edge_index=edges, num_nodes=5), 4000)
    u, v = AbsentPairs(View.of(batch)).sample(torch.full((4000,), 2), generator(3))
    start = batch.ptr[:-1].repeat_interleave(2)
    found = list(zip((u - start).tolist(), (v - start).tolist(), strict=True))
    sets = Counter(frozenset(found[i : i + 2]) for i in range(0, len(found), 2))
    one = Batch.from_data_list([Data(edge_index=edges, num_nodes=5)])
    every = [frozenset(c) for c in itertools.combinations(absent_of(one, not directed)[0], 2)]
    agree(sets, dict.fromkeys(every, 1 / len(every)))


def test_one_node_stays_whatever_the_ratio() -> None:
    almost_one = 1 - 1e-12
    batch = random_batch(generator(2), graphs=5)
    assert edited(DropNodes(almost_one), batch).batch.ptr.diff().tolist() == [1] * 5


@pytest.mark.parametrize("nodes", [3, 300, 200_000])
def test_absent_pairs_of_large_graphs_are_numbered_right(nodes: int) -> None:
    edges = both_ways((nodes - 2, nodes - 1))
    absent = AbsentPairs(View.of(Batch.from_data_list([Data(edge_index=edges, num_nodes=nodes)])))
    total = nodes * (nodes - 1) // 2 - 1
    assert absent.counts.tolist() == [total]
    u, v = absent.sample(torch.tensor([min(total, 50_000)]), generator())
    assert bool(((u >= 0) & (u < v) & (v < nodes)).all())
    assert not bool(((u == nodes - 2) & (v == nodes - 1)).any())
    assert torch.unique(u * nodes + v).numel() == u.numel() == min(total, 50_000)


# ------------------------------------------------------------------ perturb-edges


def new_edges(virtual: EditedGraphs) -> Tensor:
    """New edges in the numbers of the original batch, int64 ``[2, new]``."""
    return virtual.node_origin[virtual.batch.edge_index[:, virtual.edge_origin == -1]]


@settings(max_examples=25)
@given(batches(), RATIOS, seeds())
def test_perturbed_edges_keep_their_number_and_stay_simple(
    batch: Batch, ratio: float, seed: int
) -> None:
    undirected = is_undirected(batch)
    virtual = edited(PerturbEdges(ratio), batch, seed)
    assert torch.equal(virtual.node_origin, torch.arange(int(batch.num_nodes)))
    if "x" in batch:
        assert torch.equal(virtual.batch.x, batch.x)
    fresh = Batch.from_data_list(virtual.batch.to_data_list())
    for old, new, absent in zip(
        edges_of(batch, undirected),
        edges_of(fresh, undirected),
        absent_of(batch, undirected),
        strict=True,
    ):
        added, removed = new - old, old - new
        expected = min(floor(ratio, old.total()), len(absent))
        assert new.total() == old.total()
        assert added.total() == removed.total() == expected
        assert set(added) <= absent
        assert set(added.values()) <= {1}


@settings(max_examples=25)
@given(batches(), seeds())
def test_new_edges_take_the_values_of_the_removed_ones(batch: Batch, seed: int) -> None:
    undirected = is_undirected(batch)
    number = torch.arange(batch.num_edges)
    if undirected:  # an edge and its reverse are one: give them one number
        low, high = batch.edge_index.min(0).values, batch.edge_index.max(0).values
        number = low * 1000 + high
    batch.edge_attr = number.to(torch.double).unsqueeze(1)
    virtual = edited(PerturbEdges(0.5), batch, seed)
    new = virtual.edge_origin == -1
    kept = set(virtual.edge_origin.tolist())
    gone = torch.tensor([e for e in range(batch.num_edges) if e not in kept], dtype=torch.long)
    values, removed = virtual.batch.edge_attr[new, 0], batch.edge_attr[gone, 0]
    if undirected:
        loops = batch.edge_index[0, gone] == batch.edge_index[1, gone]
        removed = torch.cat((removed, removed[loops]))  # a self-loop stands in the list once
    assert sorted(values.tolist()) == sorted(removed.tolist())
    owner = {float(batch.edge_attr[e, 0]): int(batch.batch[batch.edge_index[0, e]]) for e in gone}
    graphs = batch.batch[new_edges(virtual)[0]].tolist()
    assert [owner[value] for value in values.tolist()] == graphs


def test_new_edges_are_matched_with_removed_ones_at_random() -> None:
    path = Data(
        edge_index=both_ways((0, 1), (1, 2), (2, 3)),
        edge_attr=torch.tensor([[0.0], [0.0], [1.0], [1.0], [2.0], [2.0]]),
        num_nodes=4,
    )
    virtual = drawn(PerturbEdges(0.7), copies(path, 4000))  # two of three, three pairs are absent
    new = (virtual.edge_origin == -1) & (virtual.batch.edge_index[0] < virtual.batch.edge_index[1])
    values = virtual.batch.edge_attr[new, 0].view(4000, 2)
    ascending = int((values[:, 0] < values[:, 1]).sum())
    assert abs(ascending - 2000) < 4.5 * math.sqrt(4000 / 4)


def test_removed_edges_are_equally_likely() -> None:
    star = Data(edge_index=both_ways((0, 1), (0, 2), (0, 3), (3, 4)), num_nodes=5)
    batch = copies(star, 3000)
    for augmentation in (PerturbEdges(0.5), DropEdges(0.5)):
        virtual = drawn(augmentation, batch)
        kept = virtual.edge_origin[virtual.edge_origin >= 0]
        rows: list[set[tuple[int, int]]] = [set() for _ in range(3000)]
        for u, v in batch.edge_index[:, kept].t().tolist():
            rows[u // 5].add((min(u, v) % 5, max(u, v) % 5))
        edges = [(0, 1), (0, 2), (0, 3), (3, 4)]
        sets = [frozenset(c) for c in itertools.combinations(edges, 2)]
        agree(Counter(map(frozenset, rows)), dict.fromkeys(sets, 1 / 6))


def test_complete_graphs_stay_as_they_are() -> None:
    edges = both_ways(*itertools.combinations(range(5), 2))
    batch = copies(Data(x=torch.rand(5, 2), edge_index=edges), 2)
    virtual = edited(PerturbEdges(0.9), batch)
    assert not bool((virtual.edge_origin == -1).any())
    assert virtual.batch.num_edges == batch.num_edges


def test_reverse_of_a_directed_edge_is_absent() -> None:
    batch = copies(Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3), 200)
    virtual = edited(PerturbEdges(0.5), batch)
    start = batch.ptr[:-1]
    added = new_edges(virtual) - start
    found = set(map(tuple, added.t().tolist()))
    assert found == {(1, 0), (2, 1), (0, 2), (2, 0)}


# ------------------------------------------------------------------ drop-edge


@settings(max_examples=25)
@given(batches(), RATIOS, seeds())
def test_dropping_edges_keeps_nodes_and_directions(batch: Batch, ratio: float, seed: int) -> None:
    undirected = is_undirected(batch)
    virtual = edited(DropEdges(ratio), batch, seed)
    assert torch.equal(virtual.node_origin, torch.arange(int(batch.num_nodes)))
    assert bool((virtual.edge_origin >= 0).all())
    fresh = Batch.from_data_list(virtual.batch.to_data_list())
    for old, new in zip(edges_of(batch, undirected), edges_of(fresh, undirected), strict=True):
        assert not new - old
        assert new.total() == old.total() - floor(ratio, old.total())


# ------------------------------------------------------------------ mask-nodes


def store_of(*, continuous: int) -> GraphStore:
    items = [
        Data(
            x=torch.cat((torch.randn(4, 2, generator=generator(k)) * 3 + 7, torch.eye(4)), 1),
            edge_index=both_ways((0, 1), (2, 3)),
            y=torch.tensor([k % 2]),
        )
        for k in range(6)
    ]
    return GraphStore.from_pyg(items, name="mine", num_continuous=continuous)


@settings(max_examples=25)
@given(batches(with_x=True), RATIOS, seeds())
def test_masking_changes_whole_rows_of_so_many_nodes(batch: Batch, ratio: float, seed: int) -> None:
    batch.x = torch.rand(batch.x.shape) + 1  # no row is zero by itself
    virtual = edited(MaskNodes(ratio), batch, seed)
    assert torch.equal(virtual.batch.edge_index.sum(), batch.edge_index.sum())
    assert virtual.batch.num_edges == batch.num_edges
    masked = (virtual.batch.x == 0).all(1)
    assert torch.equal(virtual.batch.x[~masked], batch.x[~masked])
    for graph, nodes in enumerate(batch.ptr.diff().tolist()):
        assert int(masked[batch.batch == graph].sum()) == floor(ratio, nodes)


def test_masked_nodes_are_equally_likely() -> None:
    batch = copies(Data(x=torch.ones(4, 2), edge_index=both_ways((0, 1))), 3000)
    masked = (drawn(MaskNodes(0.5), batch).batch.x == 0).all(1).view(3000, 4)
    sets = [frozenset(c) for c in itertools.combinations(range(4), 2)]
    observed = Counter(frozenset(row.nonzero().flatten().tolist()) for row in masked)
    agree(observed, dict.fromkeys(sets, 1 / 6))


def test_continuous_features_are_masked_by_the_mean_of_the_training_graphs() -> None:
    store = store_of(continuous=2)
    augmentation = MaskNodes(0.5)
    train = store.subset([0, 2, 3])
    augmentation.prepare(train, generator())
    batch = store.batch(range(6))
    virtual = edited(augmentation, batch)
    changed = (virtual.batch.x != batch.x).any(1)
    assert int(changed.sum()) == 12
    mean = torch.cat([store.batch([k]).x for k in (0, 2, 3)])[:, :2].mean(0)
    expected = torch.cat((mean, torch.zeros(4))).expand(12, 6)
    torch.testing.assert_close(virtual.batch.x[changed], expected)
    # What models see of it after they standardise is nothing.
    standardised = (virtual.batch.x[changed, :2] - mean) / 3
    torch.testing.assert_close(standardised, torch.zeros(12, 2))


def test_the_mask_is_no_part_of_the_state_and_moves_with_the_module() -> None:
    augmentation = MaskNodes()
    augmentation.prepare(store_of(continuous=2), generator())
    assert not augmentation.state_dict()
    assert not list(augmentation.parameters())
    assert augmentation.mask is not None
    assert augmentation.to(torch.float64).mask.dtype == torch.float64
    augmentation.prepare(store_of(continuous=0), generator())
    assert not bool(augmentation.mask.any())


def test_masking_refuses_graphs_without_features() -> None:
    motifs = gt.load("motifs", graphs=12)
    model = gt.GraphClassifier.for_data(motifs, hidden=4)
    message = "mask-nodes needs node features, but motifs has none"
    with pytest.raises(DataError, match=message):
        MaskNodes().check(model, motifs)
    with pytest.raises(DataError, match=message):
        MaskNodes().prepare(motifs, generator())
    with pytest.raises(DataError, match="mask-nodes needs node features, but the batch has no `x`"):
        edited(MaskNodes(), motifs.batch(range(3)))
    MaskNodes().check(model, store_of(continuous=1))


def test_masking_refuses_features_of_another_width() -> None:
    augmentation = MaskNodes()
    augmentation.prepare(store_of(continuous=2), generator())
    with pytest.raises(DataError, match=r"must have 6 columns.*got shape \[4, 3\]"):
        edited(augmentation, copies(Data(x=torch.ones(4, 3), edge_index=both_ways((0, 1))), 1))


# ------------------------------------------------------------------ subgraph


@settings(max_examples=25)
@given(batches(), st.sampled_from([0.1, 0.3, 0.6, 0.8, 1.0]), seeds())
def test_subgraphs_are_connected_and_of_the_right_size(
    batch: Batch, size: float, seed: int
) -> None:
    virtual = edited(RandomSubgraph(size), batch, seed)
    check_induced(virtual, batch)
    for number, graph in enumerate(graphs_of(batch)):
        kept = set(virtual.node_origin[virtual.batch.batch == number].tolist())
        plain = nx.Graph(graph)
        assert nx.is_connected(plain.subgraph(kept))
        whole = nx.node_connected_component(plain, next(iter(kept)))
        assert len(kept) == min(max(1, floor(size, len(plain))), len(whole))


def growth(graph: nx.MultiGraph, size: int) -> dict[frozenset[int], float]:
    """Exact chances of the sets that sequential growth ends in, all its steps written out."""
    chances: dict[frozenset[int], float] = {}
    for start in graph:
        chances[frozenset([start])] = 1 / len(graph)
    for _ in range(size - 1):
        grown: dict[frozenset[int], float] = {}
        for nodes, chance in chances.items():
            leaving = [(u, v) for u, v in graph.edges() if (u in nodes) != (v in nodes)]
            if not leaving:
                grown[nodes] = grown.get(nodes, 0) + chance
            for edge in leaving:
                bigger = nodes | set(edge)
                grown[bigger] = grown.get(bigger, 0) + chance / len(leaving)
        chances = grown
    return chances


SHAPES = {
    "tree": [(0, 1), (1, 2), (1, 3), (3, 4), (4, 5)],
    "cycles": [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 2)],
    "parts": [(0, 1), (1, 2), (3, 4)],  # node 5 stands alone
    "repeated": [(0, 1), (0, 1), (0, 2), (0, 3), (3, 4), (4, 5), (1, 1)],
}


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_subgraphs_are_distributed_as_by_sequential_growth(shape: str, directed: bool) -> None:
    edges = both_ways(*SHAPES[shape])
    loops = edges[0] == edges[1]
    edges = edges[:, ~loops | (torch.arange(edges.shape[1]) % 2 == 0)]
    if directed:
        edges = torch.tensor(SHAPES[shape]).t().contiguous()
    batch = copies(Data(edge_index=edges, num_nodes=6), 6000)
    virtual = drawn(RandomSubgraph(0.5), batch, 7)
    graph = nx.MultiGraph(SHAPES[shape])
    graph.add_nodes_from(range(6))
    agree(kept_sets(virtual, 6), growth(graph, 3))


@settings(max_examples=25)
@given(batches(), seeds())
def test_first_passage_is_the_shortest_path(batch: Batch, seed: int) -> None:
    view = View.of(batch)
    weight = torch.rand(view.row.numel(), generator=generator(seed), dtype=torch.double)
    start = view.layout.ptr[:-1]
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(range(view.layout.num_nodes))
    ends = zip(view.row.tolist(), view.column.tolist(), weight.tolist(), strict=True)
    for row, column, time in ends:
        graph.add_edge(column, row, time=time)
        if not view.symmetric:
            graph.add_edge(row, column, time=time)
    expected = torch.full((view.layout.num_nodes,), torch.inf, dtype=torch.double)
    lengths = nx.multi_source_dijkstra_path_length(graph, set(start.tolist()), weight="time")
    for node, length in lengths.items():
        expected[node] = length
    torch.testing.assert_close(first_passage(view, start, weight), expected)


# ------------------------------------------------------------------ all of them


ALL = (DropNodes, PerturbEdges, DropEdges, MaskNodes, RandomSubgraph)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("wrong", [-0.1, 1.5, float("nan")])
def test_shares_out_of_range_are_refused(kind: type[Augmentation], wrong: float) -> None:
    name, allowed = ("size", r"\(0, 1\]") if kind is RandomSubgraph else ("ratio", r"\[0, 1\)")
    with pytest.raises(GraphTransplantError, match=f"`{name}` must be in {allowed}, got {wrong}"):
        kind(wrong)  # type: ignore[call-arg]


def test_the_bounds_themselves() -> None:
    with pytest.raises(GraphTransplantError, match="got 1"):
        DropNodes(1)
    with pytest.raises(GraphTransplantError, match="got 0"):
        RandomSubgraph(0)
    assert RandomSubgraph(1.0).size == 1.0
    assert repr(DropNodes(0.4)) == "DropNodes(ratio=0.4)"
    assert repr(RandomSubgraph()) == "RandomSubgraph(size=0.8)"


@pytest.mark.parametrize("kind", ALL)
def test_missing_labels_stay_missing(kind: type[Augmentation]) -> None:
    batch = random_batch(generator(4), graphs=3)
    targets = torch.tensor([[1.0, float("nan")], [0.0, 1.0], [float("nan"), 0.0]])
    clean = gt.CleanPass(batch, targets, no_prediction, "multilabel")
    model = gt.GraphClassifier(3, 2, hidden=4, task="multilabel")
    virtual = kind()(clean, model=model, generator=None)
    torch.testing.assert_close(virtual.targets, targets, equal_nan=True)


@pytest.mark.parametrize("kind", ALL)
def test_graphs_of_a_batch_do_not_depend_on_one_another(kind: type[Augmentation]) -> None:
    # A graph with many more nodes beside a small one must not change how much of it is edited.
    small = Data(x=torch.ones(5, 2), edge_index=both_ways((0, 1), (1, 2), (2, 3), (3, 4)))
    large = Data(x=torch.ones(80, 2), edge_index=both_ways(*((v, v + 1) for v in range(79))))
    small.y = large.y = torch.tensor([0])
    virtual = edited(kind(0.6), Batch.from_data_list([large, small, large]))  # type: ignore[call-arg]
    nodes = virtual.batch.ptr.diff().tolist()
    share = {DropNodes: [32, 2, 32], RandomSubgraph: [48, 3, 48]}
    assert nodes == share.get(kind, [80, 5, 80])
