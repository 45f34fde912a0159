"""Graph Transplant: what it draws, label weights by hand, valid batches, bad input."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from scipy.stats import beta, binomtest, kstest
from torch_geometric import transforms
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.augment.transplant import GraphTransplant, MixedGraphs, TransplantPlan
from graph_transplant.data import GraphBatch
from graph_transplant.errors import GraphTransplantError
from graph_transplant.kernels import transplant as kernel
from graph_transplant.kernels.arrays import Segments
from helpers.edits import agree, both_ways, clean_of, planned, uniform
from helpers.oracles import assert_valid, edges_of, floor_share, graphs_of, neighbours, same_content
from helpers.strategies import generator, random_batch


def graph(edges: list[tuple[int, int]], nodes: int, *, label: int = 0, **fields: object) -> Data:
    """An undirected graph."""
    edge_index = both_ways(*edges)
    return Data(edge_index=edge_index, num_nodes=nodes, y=torch.tensor([label]), **fields)


def batch_of(*graphs: Data) -> GraphBatch:
    return GraphBatch.from_pyg(Batch.from_data_list(list(graphs)))


def cut(
    batch: GraphBatch, times: int, *, ratio: float, saliency: np.ndarray | None = None,
    hops: int = 0, share: float = 0.5, seed: int = 0,
) -> list[tuple[int, ...]]:  # fmt: skip
    """Cut the first graph so many times; by salient anchors if saliency is given."""
    weights = kernel.NO_SALIENCY if saliency is None else saliency
    ptr, nodes = kernel.cut(
        np.zeros(times, np.int64), batch.ptr, batch.neighbours, weights,
        ratio, hops, share, np.random.default_rng(seed),
    ).nodes  # fmt: skip
    return [tuple(nodes[ptr[i] : ptr[i + 1]].tolist()) for i in range(times)]


# ------------------------------------------------------------------ what is drawn


def khop_chances(batch: GraphBatch, ratio: float, hops: int, share: float) -> dict[object, float]:
    """The exact distribution of V̄ with random anchors, by enumeration."""
    (whole,) = graphs_of(batch)
    starts = list(itertools.combinations(whole, floor_share(ratio, len(whole))))
    states = {(start, start): 1 / len(starts) for start in starts}  # H and V̄
    for _ in range(hops):
        following: dict[tuple, float] = defaultdict(float)
        for (here, inside), chance in states.items():
            near = sorted(neighbours(whole, set(here)))
            size = floor_share(share, len(near)) if near else 0
            choices = list(itertools.combinations(near, size))
            for chosen in choices:
                reached = chosen, tuple(sorted({*inside, *chosen}))
                following[reached] += chance / len(choices)
        states = following
    chances: dict[object, float] = defaultdict(float)
    for (_, inside), chance in states.items():
        chances[inside] += chance
    return chances


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_partial_khop_has_its_exact_distribution(hops: int, share: float) -> None:
    # A triangle with a tail of two, one end of a star, and a node by itself.
    batch = batch_of(graph([(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 5)], 7))
    seen = Counter(cut(batch, 30_000, ratio=0.3, hops=hops, share=share, seed=hops))
    agree(seen, khop_chances(batch, 0.3, hops, share))


def test_anchors_are_uniform_in_their_pool() -> None:
    # 10 nodes, R = 0.2: two anchors of the four most salient, or of all.
    batch = batch_of(graph([], 10))
    saliency = np.array([6, 8, 5, 10, 7, 1, 2, 3, 4, 9], np.float32)
    seen = Counter(cut(batch, 6000, ratio=0.2, saliency=saliency))
    agree(seen, uniform(itertools.combinations([1, 3, 4, 9], 2)))
    agree(Counter(cut(batch, 9000, ratio=0.2)), uniform(itertools.combinations(range(10), 2)))
    # Where nothing is salient every node is as likely as any other.
    flat = np.zeros(10, np.float32)
    seen = Counter(cut(batch, 9000, ratio=0.2, saliency=flat))
    agree(seen, uniform(itertools.combinations(range(10), 2)))


def test_hops_and_share_follow_their_distributions() -> None:
    clean = clean_of(batch_of(graph([], 1)))
    method, random = GraphTransplant("none"), np.random.default_rng(1)
    plans = [method.plan(clean, None, random) for _ in range(2000)]
    agree(Counter(plan.hops for plan in plans), uniform([1, 2, 3]))
    assert kstest([plan.share for plan in plans], beta(2, 2).cdf).pvalue > 1e-4


def test_scattered_nodes_are_as_many_as_a_subgraph_has_on_average() -> None:
    pyg = random_batch(generator(1), graphs=12, largest=20)
    batch = GraphBatch.from_pyg(pyg)
    saliency = np.random.default_rng(0).random(batch.num_nodes, np.float32)
    for seed in range(20):
        taken = []
        for kind in ("subgraph", "scattered"):
            method, random = GraphTransplant("none", cut=kind), np.random.default_rng(seed)
            clean = clean_of(batch, saliency=saliency)
            taken.append(planned(method, clean, np.arange(12), random).part.ptr)
        wanted = max(1, round(taken[0][-1] / 12))
        assert np.diff(taken[1]).tolist() == np.minimum(wanted, np.diff(batch.ptr)).tolist()


def test_pairs_of_degree_preservation_are_uniform() -> None:
    # Three source nodes lost an edge each, two of the destination likewise: 2 of six pairs.
    times = 6000
    ptr = np.arange(times + 1)
    found = kernel.degree_preserving_pairs(
        kernel.Boundary(Segments(3 * ptr, np.tile([4, 5, 9], times)), np.full(times, 3)),
        kernel.Boundary(Segments(2 * ptr, np.tile([1, 2], times)), np.full(times, 2)),
        np.random.default_rng(0),
    )
    assert np.diff(found.ptr).tolist() == [2] * times
    pairs = list(zip(found.source.tolist(), found.destination.tolist(), strict=True))
    seen = Counter(zip(pairs[::2], pairs[1::2], strict=True))
    agree(seen, uniform(itertools.combinations(itertools.product([4, 5, 9], [1, 2]), 2)))


def test_attributes_are_drawn_from_both_ends_equally() -> None:
    # A star's centre loses edges with attributes 1, 2, 3; the other centre two with 10 and 20.
    star = graph([(0, 1), (0, 2), (0, 3)], 4, edge_attr=torch.tensor([1.0, 1, 2, 2, 3, 3]))
    other = graph([(0, 1), (0, 2)], 3, edge_attr=torch.tensor([10.0, 10, 20, 20]))
    batch, times = batch_of(star, other), 6000
    ptr = np.arange(times + 1)
    one, two = np.zeros(times, np.int64), np.full(times, 4)
    template = kernel.lost_edges(
        Segments(ptr, one), Segments(ptr, two), kernel.undirected_pairs(ptr, one, two),
        batch.neighbours, np.random.default_rng(0),
    )  # fmt: skip
    seen = Counter(batch.edges["edge_attr"][template].tolist())
    agree(seen, {1.0: 1 / 6, 2.0: 1 / 6, 3.0: 1 / 6, 10.0: 1 / 4, 20.0: 1 / 4})


def test_new_directed_edges_point_either_way_equally_often() -> None:
    batch = random_batch(generator(3), undirected=False, graphs=80)
    mixed = GraphTransplant(hops=1).mix(batch, generator=generator(1))
    sender = mixed.batch.edge_index[0].numpy()[mixed.edge_origin < 0]
    from_source = mixed.node_from_source[sender]
    assert len(from_source) > 200
    assert binomtest(int(from_source.sum()), len(from_source)).pvalue > 1e-4


@pytest.mark.parametrize("undirected", [True, False])
def test_negatives_are_uniform_among_non_neighbours(undirected: bool) -> None:
    batch = GraphBatch.from_pyg(
        random_batch(generator(11), graphs=6, undirected=undirected, simple=False, largest=9)
    )
    times = 600
    nodes = np.repeat(np.arange(batch.num_nodes), times)
    found = kernel.sample_negatives(nodes, batch.ptr, batch.neighbours, np.random.default_rng(1))
    lonely = 0
    for whole in graphs_of(batch):
        for node in whole:
            possible = set(whole) - neighbours(whole, {node}) - {node}
            seen = Counter(found[node * times : (node + 1) * times].tolist())
            agree(seen, uniform(possible or {-1}))
            lonely += not possible
    assert 0 < lonely < batch.num_nodes


def test_a_plan_carried_out_by_hand() -> None:
    # Of the path 0-1-2-3 and the triangle 4-5-6 with the tail 6-7, nodes 0, 1, 6, 7 change places.
    path = graph([(0, 1), (1, 2), (2, 3)], 4)
    tailed = graph([(0, 1), (0, 2), (1, 2), (2, 3)], 4, label=1)
    batch = batch_of(path, tailed)
    ptr = np.array([0, 2, 4])
    plan = TransplantPlan(
        source_of=np.array([1, 0]),
        hops=1,
        share=0.5,
        saliency=np.array([4, 3, 2, 1, 1, 1, 6, 2], np.float32),
        part=Segments(ptr, np.array([6, 7, 0, 1])),
        rest=Segments(ptr, np.array([2, 3, 4, 5])),
        pairs=kernel.undirected_pairs(np.array([0, 1, 2]), np.array([6, 1]), np.array([2, 5])),
        template=np.array([-1, -1]),
    )
    mixed = GraphTransplant().transform(plan, clean_of(batch))
    assert mixed.node_origin.tolist() == [6, 7, 2, 3, 0, 1, 4, 5]
    first, second = (item.edge_index.t().tolist() for item in mixed.batch.to_pyg().to_data_list())
    assert {tuple(sorted(edge)) for edge in first} == {(0, 1), (2, 3), (0, 2)}
    assert {tuple(sorted(edge)) for edge in second} == {(0, 1), (2, 3), (1, 3)}
    # {6, 7} carried (6+2)/10 of its saliency and {2, 3} (2+1)/10; {0, 1} 7/10 and {4, 5} 2/10.
    weights = torch.tensor([0.8 / 1.1, 0.7 / 0.9])
    torch.testing.assert_close(mixed.label_weight, weights)
    torch.testing.assert_close(mixed.targets[:, [1, 0]].diag(), weights)
    by_size = GraphTransplant(importance="size").transform(plan, clean_of(batch))
    assert by_size.label_weight.tolist() == [0.5, 0.5]


# ------------------------------------------------------------------ valid batches


def test_mixing_pyg_graphs() -> None:
    items = random_batch(generator(1), graphs=3, edge_attr=True).to_data_list()
    for number, item in enumerate(items):
        item.graph_number = torch.tensor([number])
        item.name = f"graph {number}"
        item.pos = torch.randn(item.num_nodes, 2)
        item.edge_type = torch.arange(item.num_edges) + 100 * number
    batch = Batch.from_data_list(items)
    before = batch.clone()
    mixed = GraphTransplant().mix(batch, generator=generator())
    assert same_content(batch, before)
    result = mixed.batch.to_pyg()
    assert torch.equal(result.pos, batch.pos[mixed.node_origin])
    # Origins are numbers of the edges as the PyG batch lists them.
    kept = torch.from_numpy(mixed.edge_origin >= 0)
    origin = torch.from_numpy(mixed.edge_origin)[kept]
    ends = torch.from_numpy(mixed.node_origin)[result.edge_index[:, kept]]
    assert torch.equal(ends, batch.edge_index[:, origin])
    for name in ("edge_attr", "edge_type"):
        assert torch.equal(result[name][kept], batch[name][origin])
        rows = {str(row) for row in batch[name].tolist()}
        assert {str(row) for row in result[name].tolist()} <= rows
    assert same_content(Batch.from_data_list(result.to_data_list()), result)
    again = GraphTransplant().mix(mixed.batch, generator=generator())  # mixed graphs mix again
    assert_valid(again.batch)
    assert again.targets.shape == (3, 3)


@pytest.mark.parametrize("cut_kind", ["subgraph", "scattered"])
def test_protected_nodes_stay_and_can_be_read_by_position(cut_kind: str) -> None:
    # As in PyG's examples/upfd.py, the first node of every graph is its root.
    batch = random_batch(generator(3), graphs=40)
    roots = batch.ptr[:-1].numpy()
    batch.root = torch.zeros(batch.num_nodes, dtype=torch.bool)
    batch.root[roots] = True
    lost = {False: 0, True: 0}
    for protect in (False, True):
        method = GraphTransplant(
            cut=cut_kind, protect="root" if protect else None, destination_first=True
        )
        for seed in range(5):
            mixed = method.mix(batch, generator=generator(seed))
            first = mixed.node_origin[mixed.batch.ptr[:-1]]
            lost[protect] += int((first != roots).sum())
            if protect:
                # One root per graph, although roots are transplanted, too.
                assert mixed.batch.nodes["root"].nonzero().flatten().tolist() == (
                    mixed.batch.ptr[:-1].tolist()
                )
                assert np.isin(mixed.plan.part.item, roots).any()
    assert lost[False] > 0
    assert lost[True] == 0


def test_a_store_may_protect_a_field_of_its_nodes() -> None:
    batch = gt.load("motifs", graphs=24).batch(range(24))
    motif = np.flatnonzero(batch.nodes["motif_mask"].numpy())
    mixed = GraphTransplant(protect="motif_mask").mix(batch, generator=generator())
    kept = mixed.node_origin[~mixed.node_from_source]
    assert len(kept) < batch.num_nodes
    assert set(motif.tolist()) <= set(kept.tolist())
    with pytest.raises(GraphTransplantError, match=r"`protect` .*'root'.*there are motif_mask"):
        GraphTransplant(protect="root").mix(batch)


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("connect", ["dp", "ep"])
def test_the_order_of_nodes_changes_nothing_else(undirected: bool, connect: str) -> None:
    batch = random_batch(
        generator(5), graphs=12, undirected=undirected, simple=False, edge_attr=True
    )
    torch.manual_seed(0)
    method = GraphTransplant(connect, embedding_size=3)
    one, other = (
        [
            method.mix(batch, generator=generator(seed), nodes=batch.x)
            for seed in range(4)
            for method.destination_first in [first]
        ]
        for first in (False, True)
    )
    for mixed, turned in zip(one, other, strict=True):
        assert_valid(turned.batch)
        assert turned.batch.symmetric == mixed.batch.symmetric
        assert torch.equal(turned.targets, mixed.targets)
        contents = []
        for result in (mixed, turned):
            side = result.node_from_source
            names = list(zip(side.tolist(), result.node_origin.tolist(), strict=True))
            segment = result.batch.batch.numpy()
            edges = Counter(
                (segment[u], names[u], names[v], origin, tuple(attr))
                for (u, v), origin, attr in zip(
                    edges_of(result.batch),
                    result.edge_origin.tolist(),
                    result.batch.edge_attr.tolist(),
                    strict=True,
                )
            )
            contents.append((Counter(zip(segment, names, strict=True)), edges))
            later = (side if result is turned else ~side).astype(int)  # the second block
            assert (np.diff(later)[np.diff(segment) == 0] >= 0).all()
        assert contents[0] == contents[1]


def test_distances_are_recomputed_or_said_to_be_stale() -> None:
    distance = transforms.Distance(norm=False, cat=False)
    graphs = random_batch(generator(7), graphs=30).to_data_list()
    for data in graphs:
        data.pos = torch.randn(data.num_nodes, 3)
    batch = Batch.from_data_list([distance(data) for data in graphs])

    def wrong(mixed: MixedGraphs) -> int:
        data = mixed.batch.to_pyg()
        step = data.pos[data.edge_index[0]] - data.pos[data.edge_index[1]]
        return int(((data.edge_attr.view(-1) - step.norm(dim=1)).abs() > 1e-5).sum())

    method = GraphTransplant()
    with pytest.warns(UserWarning, match="`edge_attr` follows from `pos`.*T.Distance"):
        stale = method.mix(batch, generator=generator())
    assert wrong(stale) > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method.mix(batch)  # it was said
        mixed = GraphTransplant(edge_attributes=distance).mix(batch, generator=generator())
        assert wrong(mixed) == 0
        assert np.array_equal(mixed.edge_origin, stale.edge_origin)
        batch.edge_attr = torch.randint(4, (batch.num_edges, 1)).float()  # bonds, say
        GraphTransplant().mix(batch)
    for function, message in (
        (
            transforms.Distance(norm=False),
            r"shape of `edge_attr`.*, 1\]; got \[\d+, 2\].*cat=False",
        ),
        (lambda data: None, "must return the batch"),
        (transforms.ToUndirected(), "same edges in order"),
    ):
        directed = random_batch(generator(8), undirected=False)
        directed.pos = torch.randn(directed.num_nodes, 3)
        with pytest.raises(GraphTransplantError, match=message):
            GraphTransplant(edge_attributes=function).mix(distance(directed))


def test_targets_are_those_of_all_classes_of_the_store_or_given() -> None:
    part = gt.load("motifs", graphs=12).batch([0, 1])
    mixed = GraphTransplant().mix(part)
    assert mixed.targets.shape == (2, 6)
    mask = part.nodes["motif_mask"]
    assert torch.equal(mixed.batch.nodes["motif_mask"], mask[mixed.node_origin])
    batch = random_batch(generator(2), graphs=3)
    labels, several = torch.tensor([2, 0, 1]), torch.tensor([[1, 0, 0, 1], [0, 1, 1, 0], [1] * 4])
    for whole, real in ((labels, torch.eye(4)[labels]), (several, several.float())):
        one, other = (
            GraphTransplant().mix(batch, targets=t, num_outputs=4, generator=generator())
            for t in (whole, real)
        )
        assert torch.equal(one.targets, other.targets)
        assert one.targets.shape == (3, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"saliency": torch.ones(9)}, r"`saliency` must have shape \[\d+\].*got \[9\]"),
        ({"saliency": float("nan")}, "`saliency` must be finite"),
        ({"num_outputs": 2}, "labels must lie between 0 and 1; got 2"),
        ({"nodes": None}, "pass `nodes`"),
        ({"width": 3}, "`embedding_size` .*is 4.*3 wide"),
        ({"batch": Data(num_nodes=2, y=torch.tensor([0]))}, "`batch.edge_index`"),
        ({"unlabelled": True}, "no targets.*`y`"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, object], message: str) -> None:
    batch = random_batch(generator(6), graphs=3)
    count = batch.num_nodes
    if arguments.pop("unlabelled", False):
        del batch.y
    if isinstance(arguments.get("saliency"), float):
        arguments["saliency"] = torch.full((count,), arguments["saliency"])
    nodes = torch.ones(count, arguments.pop("width", 4))
    method = GraphTransplant("ep", embedding_size=4)
    with pytest.raises(GraphTransplantError, match=message):
        method.mix(**{"batch": batch, "nodes": nodes, **arguments})
