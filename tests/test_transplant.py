"""Graph Transplant: samplers, label weights by hand, degenerate batches, bad input."""

from __future__ import annotations

import itertools
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.augment import (
    METHODS,
    Connection,
    DegreePreservation,
    PartialKHop,
    RandomAnchors,
    SizeImportance,
    build_method,
)
from graph_transplant.augment.connect import (
    Disconnected,
    Pairs,
    sample_non_neighbours,
)
from graph_transplant.augment.importance import label_weights
from graph_transplant.augment.sampling import sample_distinct
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.graphs import GraphStore
from oracles import check_valid_batch, graphs_of, is_undirected, neighbours, same_content
from strategies import batches, random_batch, saliencies, seeds


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ------------------------------------------------------------------ sample_distinct


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 1)), max_size=8), seeds())
def test_distinct_numbers_are_distinct_and_as_many_as_wanted(
    groups: list[tuple[int, float]], seed: int
) -> None:
    size = torch.tensor([s for s, _ in groups], dtype=torch.long)
    count = torch.tensor([round(s * share) for s, share in groups], dtype=torch.long)
    number, group = sample_distinct(size, count, generator(seed))
    assert group.tolist() == sorted(group.tolist())
    for g, (bound, wanted) in enumerate(zip(size.tolist(), count.tolist(), strict=True)):
        mine = number[group == g].tolist()
        assert len(mine) == len(set(mine)) == wanted
        assert all(0 <= value < bound for value in mine)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_set_of_distinct_numbers_is_equally_likely(count: int) -> None:
    # 4000 groups of 5 numbers, few and many wanted; chi-square at 0.1 %. A group of another size
    # beside each keeps the offsets honest.
    repeats = 4000
    size = torch.tensor([5, 2]).repeat(repeats)
    wanted = torch.tensor([count, 1]).repeat(repeats)
    number, group = sample_distinct(size, wanted, generator(count))
    sets = Counter(frozenset(row) for row in number[group % 2 == 0].view(repeats, count).tolist())
    assert len(sets) == len(list(itertools.combinations(range(5), count)))
    assert chisquare(list(sets.values())).pvalue > 1e-3
    assert chisquare(number[group % 2 == 1].bincount().numpy()).pvalue > 1e-3


def test_distinct_numbers_below_large_bounds() -> None:
    size, count = torch.tensor([10**12, 3, 10**6]), torch.tensor([4, 3, 1000])
    number, group = sample_distinct(size, count, generator())
    assert group.bincount().tolist() == count.tolist()
    assert number.unique().numel() >= 1000
    assert int(number[group == 0].max()) > 10**9


# ------------------------------------------------------------------ sample_non_neighbours


def strangers(batch: Batch) -> dict[int, set[int]]:
    """For every node the other nodes of its graph without an edge to or from it."""
    found = {}
    for graph in graphs_of(batch):
        for node in graph:
            found[node] = set(graph) - neighbours(graph, {node}) - {node}
    return found


@settings(max_examples=60)
@given(batches(), seeds())
def test_strangers_are_true_non_neighbours(batch: Batch, seed: int) -> None:
    random = generator(seed)
    nodes = torch.randint(batch.num_nodes, (30,), generator=random)
    keys = torch.rand(30, generator=random, dtype=torch.double)
    keys[:2] = torch.tensor([0.0, 1 - 2**-53], dtype=torch.double)
    lonely, partner = sample_non_neighbours(batch, nodes, keys)
    possible = strangers(batch)
    assert lonely.tolist() == [v for v in nodes.tolist() if possible[v]]
    for node, other in zip(lonely.tolist(), partner.tolist(), strict=True):
        assert other in possible[node]


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("simple", [True, False])
def test_strangers_are_uniform(undirected: bool, simple: bool) -> None:
    # Every node asked 600 times; chi-square for each, the smallest p-value at 0.1 % over all.
    batch = random_batch(generator(11), graphs=5, undirected=undirected, simple=simple, largest=9)
    nodes = torch.arange(batch.num_nodes).repeat(600)
    keys = torch.rand(len(nodes), generator=generator(1), dtype=torch.double)
    lonely, partner = sample_non_neighbours(batch, nodes, keys)
    tested = 0
    lowest = 1.0
    for node, possible in strangers(batch).items():
        seen = Counter(partner[lonely == node].tolist())
        assert set(seen) == possible
        if len(possible) > 1:
            lowest = min(lowest, chisquare(list(seen.values())).pvalue)
            tested += 1
    assert tested > 5
    assert lowest > 1e-3 / tested


def test_complete_graphs_and_single_nodes_have_no_strangers() -> None:
    complete = torch.tensor(list(itertools.permutations(range(4), 2))).t()
    lone = torch.empty(2, 0, dtype=torch.long)
    batch = Batch.from_data_list(
        [Data(edge_index=complete, num_nodes=4), Data(edge_index=lone, num_nodes=1)]
    )
    nodes = torch.arange(5).repeat(3)
    lonely, partner = sample_non_neighbours(batch, nodes, torch.rand(15, dtype=torch.double))
    assert lonely.numel() == partner.numel() == 0


# ------------------------------------------------------------------ label weights


def test_label_weight_by_hand() -> None:
    # Path 0-1-2-3 (class 0) and triangle with a tail 4-5-6, 6-7 (class 1).
    path = Data(
        x=torch.arange(4.0).view(4, 1),
        edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]),
        y=torch.tensor([0]),
    )
    tailed = Data(
        x=torch.arange(4.0, 8.0).view(4, 1),
        edge_index=torch.tensor([[0, 1, 0, 2, 1, 2, 2, 3], [1, 0, 2, 0, 2, 1, 3, 2]]),
        y=torch.tensor([1]),
    )
    batch = Batch.from_data_list([path, tailed])
    saliency = torch.tensor([4.0, 3.0, 2.0, 1.0, 1.0, 1.0, 6.0, 2.0])

    class Fixed(gt.augment.Cutter):
        """Take nodes 0, 1 of the path and 6, 7 of the other; remove the same."""

        def cut(self, source, destination, saliency, anchors, generator):
            chosen = torch.tensor([0, 1, 6, 7])
            return torch.isin(source.node, chosen), torch.isin(destination.node, chosen)

    method = gt.GraphTransplant("degree", cut=Fixed())
    plan = method.plan(batch, saliency, generator=generator(), source_of=torch.tensor([1, 0]))
    mixed = method.apply_plan(plan, batch, torch.eye(2), saliency)
    # Mixed graph 0: {6, 7} of the second with (6+2)/10 of its saliency, {2, 3} of the first with
    # (2+1)/10: λ = 0.8 / 1.1. Mixed graph 1: {0, 1} with 7/10, {4, 5} with 2/10: λ = 0.7 / 0.9.
    expected = torch.tensor([0.8 / 1.1, 0.7 / 0.9])
    torch.testing.assert_close(mixed.label_weight, expected)
    torch.testing.assert_close(mixed.source_share, torch.tensor([0.8, 0.7]))
    torch.testing.assert_close(mixed.destination_share, torch.tensor([0.3, 0.2]))
    torch.testing.assert_close(
        mixed.targets, torch.tensor([[1 - 0.8 / 1.1, 0.8 / 1.1], [0.7 / 0.9, 1 - 0.7 / 0.9]])
    )
    # Node 6 lost two edges (to 4, 5), node 2 one (to 1): ⌊3/2⌋ = 1 new edge, 6-2. The other:
    # node 1 lost one (to 2), nodes 4 and 5 one each (to 6): ⌊3/2⌋ = 1 new edge, 1-4 or 1-5.
    assert mixed.batch.x.flatten().tolist() == [6.0, 7.0, 2.0, 3.0, 0.0, 1.0, 4.0, 5.0]
    first = mixed.batch.to_data_list()[0].edge_index.t().tolist()
    assert first == [[0, 1], [0, 2], [1, 0], [2, 0], [2, 3], [3, 2]]
    second = {tuple(e) for e in mixed.batch.to_data_list()[1].edge_index.t().tolist()}
    kept = {(0, 1), (1, 0), (2, 3), (3, 2)}
    assert second - kept in ({(1, 2), (2, 1)}, {(1, 3), (3, 1)})
    assert kept < second
    assert plan.transplanted.tolist() == [6, 7, 0, 1]
    assert plan.removed.nonzero().flatten().tolist() == [0, 1, 6, 7]
    by_size = gt.GraphTransplant("degree", cut=Fixed(), importance="size")
    halves = by_size.apply_plan(plan, batch, torch.eye(2), saliency).label_weight
    assert halves.tolist() == [0.5, 0.5]


def test_label_weight_where_nothing_is_salient() -> None:
    weights = label_weights(torch.tensor([0.0, 0.3, 0.0]), torch.tensor([0.0, 0.0, 0.4]))
    assert weights.tolist() == [0.5, 1.0, 0.0]
    batch = random_batch(generator(3))
    flat = gt.GraphTransplant("none").mix(
        batch, torch.zeros(batch.num_nodes), generator=generator()
    )
    size = gt.GraphTransplant("none", importance="size").mix(
        batch, torch.zeros(batch.num_nodes), generator=generator()
    )
    torch.testing.assert_close(flat.label_weight, size.label_weight)


def test_integer_and_boolean_saliency_mean_the_same_as_float() -> None:
    batch = random_batch(generator(3))
    for saliency in (torch.arange(batch.num_nodes) % 3, torch.arange(batch.num_nodes) % 2 == 0):
        one = gt.GraphTransplant().mix(batch, saliency, generator=generator())
        other = gt.GraphTransplant().mix(batch, saliency.float(), generator=generator())
        torch.testing.assert_close(one.label_weight, other.label_weight)
        torch.testing.assert_close(one.targets, other.targets)


# ------------------------------------------------------------------ degenerate batches

VARIANTS = {
    "degree": {"connect": "degree"},
    "predict": {"connect": "predict", "embedding_size": 5},
    "none": {"connect": "none"},
    "size": {"connect": "degree", "importance": "size"},
    "scattered": {"connect": "degree", "cut": "scattered"},
    "random": {"connect": "predict", "anchors": "random", "embedding_size": 5},
    "mean": {"connect": "degree", "new_edge_attr": "mean"},
    "zero": {"connect": "degree", "new_edge_attr": "zero", "anchor_ratio": 0.5},
}


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), seed=seeds())
def test_mix_survives_degenerate_batches(variant: str, data: st.DataObject, seed: int) -> None:
    batch = data.draw(batches())
    saliency = data.draw(saliencies(batch.num_nodes))
    nodes = torch.randn(batch.num_nodes, 5, generator=generator(seed))
    before = batch.clone()
    torch.manual_seed(0)
    method = gt.GraphTransplant(**VARIANTS[variant])
    mixed = method.mix(batch, saliency, generator=generator(seed), nodes=nodes)
    assert same_content(batch, before)
    check_valid_batch(mixed.batch, graphs=batch.num_graphs, undirected=is_undirected(batch))
    weight = mixed.label_weight
    assert weight.shape == (batch.num_graphs,)
    assert bool(torch.isfinite(weight).all())
    assert bool(((weight >= 0) & (weight <= 1)).all())
    torch.testing.assert_close(mixed.targets.sum(1), torch.ones(batch.num_graphs))
    assert sorted(mixed.source_of.tolist()) == list(range(batch.num_graphs))
    assert bool(
        (
            batch.batch[mixed.node_origin]
            == torch.where(
                mixed.node_from_source, mixed.source_of[mixed.batch.batch], mixed.batch.batch
            )
        ).all()
    )
    for name in ("x", "edge_attr", "edge_weight"):
        assert (name in mixed.batch) == (name in batch)
    again = method.mix(batch, saliency, generator=generator(seed), nodes=nodes)
    assert same_content(mixed.batch, again.batch)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(batch=batches(with_x=True), seed=seeds(), conv=st.sampled_from(["gcn", "gcs", "gin", "gat"]))
def test_training_steps_survive_degenerate_batches(batch: Batch, seed: int, conv: str) -> None:
    model = gt.GraphClassifier(3, batch.num_graphs, conv=conv, layers=2, hidden=8, seed=0)
    torch.manual_seed(0)
    method = gt.GraphTransplant("predict", embedding_size=8)
    with torch.random.fork_rng(devices=[]):
        import warnings

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="node saliency is the same")
            loss = gt.augmented_loss(model, batch, method, generator=generator(seed))
    assert bool(torch.isfinite(loss.detach()))
    loss.backward()
    for module in (model, method):
        for parameter in module.parameters():
            assert parameter.grad is None or bool(torch.isfinite(parameter.grad).all())


def test_further_node_fields_travel_and_graph_fields_do_not_break() -> None:
    store = gt.load("motifs", graphs=12)
    batch = store.batch(range(12))
    mixed = gt.GraphTransplant().mix(batch, torch.ones(batch.num_nodes), generator=generator())
    assert torch.equal(mixed.batch.motif_mask, batch.motif_mask[mixed.node_origin])
    assert mixed.targets.shape == (12, 6)  # classes of the data set, not of the batch
    part = store.batch([0, 1])
    assert gt.GraphTransplant().mix(part, torch.ones(part.num_nodes)).targets.shape == (2, 6)
    items = random_batch(generator(1), graphs=3).to_data_list()
    for number, item in enumerate(items):
        item.graph_number = torch.tensor([number])
        item.name = f"graph {number}"
        item.pos = torch.randn(item.num_nodes, 2)
    named = Batch.from_data_list(items)
    mixed = gt.GraphTransplant().mix(named, torch.ones(named.num_nodes), generator=generator())
    assert torch.equal(mixed.batch.pos, named.pos[mixed.node_origin])
    check_valid_batch(mixed.batch, graphs=3, undirected=True)


def test_a_virtual_batch_mixes_again() -> None:
    batch = random_batch(generator(2), edge_attr=True)
    one = gt.GraphTransplant().mix(batch, torch.ones(batch.num_nodes), generator=generator())
    two = gt.GraphTransplant().mix(
        one.batch, torch.ones(one.batch.num_nodes), generator=generator()
    )
    assert two.targets.shape == (8, 8)
    torch.testing.assert_close(two.targets.sum(1), torch.ones(8))


def test_a_single_graph_mixes_with_itself() -> None:
    ring = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]])
    data = Data(x=torch.eye(4), edge_index=ring, y=torch.tensor([0]))
    mixed = gt.GraphTransplant().mix(data, torch.ones(4), generator=generator())
    assert mixed.source_of.tolist() == [0]
    assert mixed.targets.tolist() == [[1.0]]
    check_valid_batch(mixed.batch, graphs=1, undirected=True)


def test_missing_labels_stay_missing() -> None:
    batch = random_batch(generator(2), graphs=2)
    batch.y = torch.tensor([[1.0, float("nan")], [0.0, 1.0]])
    mixed = gt.GraphTransplant().mix(batch, torch.ones(batch.num_nodes), generator=generator())
    for row, source in enumerate(mixed.source_of.tolist()):
        missing = batch.y[row].isnan() | batch.y[source].isnan()
        assert torch.equal(mixed.targets[row].isnan(), missing)


def test_targets_may_be_given() -> None:
    batch = random_batch(generator(2), graphs=3)
    labels = torch.tensor([2, 0, 1])
    ones = torch.ones(batch.num_nodes)
    given_as = [
        gt.GraphTransplant().mix(batch, ones, targets=t, num_outputs=4, generator=generator())
        for t in (labels, torch.eye(4)[labels])
    ]
    torch.testing.assert_close(given_as[0].targets, given_as[1].targets)
    assert given_as[0].targets.shape == (3, 4)


# ------------------------------------------------------------------ randomness


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_generator_is_the_only_source_of_chance(variant: str) -> None:
    batch = random_batch(generator(4), graphs=6)
    torch.manual_seed(0)
    method = gt.GraphTransplant(**VARIANTS[variant])
    nodes, ones = torch.randn(batch.num_nodes, 5), torch.ones(batch.num_nodes)
    state = torch.get_rng_state()
    first = method.mix(batch, ones, generator=generator(1), nodes=nodes)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    second = method.mix(batch, ones, generator=generator(1), nodes=nodes)
    assert same_content(first.batch, second.batch)
    other = method.mix(batch, ones, generator=generator(2), nodes=nodes)
    assert not same_content(first.batch, other.batch)
    torch.manual_seed(5)
    third = method.mix(batch, ones, nodes=nodes)
    torch.manual_seed(5)
    assert same_content(third.batch, method.mix(batch, ones, nodes=nodes).batch)


def test_pairing_is_a_uniform_permutation() -> None:
    # Three graphs: six permutations; chi-square at 0.1 %.
    nothing = torch.empty(2, 0, dtype=torch.long)
    batch = Batch.from_data_list(
        [Data(edge_index=nothing, num_nodes=1, y=torch.tensor([k])) for k in range(3)]
    )
    method, random = gt.GraphTransplant("none"), generator(6)
    plans = Counter(
        tuple(method.plan(batch, torch.ones(3), generator=random).source_of.tolist())
        for _ in range(900)
    )
    assert len(plans) == 6
    assert chisquare(list(plans.values())).pvalue > 1e-3


def test_pairs_of_degree_preservation_are_uniform() -> None:
    # A star keeps its three leaves, the other graph two: six pairs, of which ⌊(3 + 2) / 2⌋ = 2.
    one = Data(edge_index=torch.tensor([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]]), num_nodes=4)
    two = Data(edge_index=torch.tensor([[0, 0, 1, 2], [1, 2, 0, 0]]), num_nodes=3)
    batch = Batch.from_data_list([one, two])
    from graph_transplant.augment.connect import Side
    from graph_transplant.augment.subgraphs import View

    view = View.of(batch)
    repeats = 1500
    source, destination = (view.take(torch.tensor([g] * repeats)) for g in (0, 1))
    giving = Side.of(source, torch.tensor([False, True, True, True]).repeat(repeats))
    taking = Side.of(destination, torch.tensor([False, True, True]).repeat(repeats))
    pairs = DegreePreservation()(giving, taking, None, generator(0))
    graph = giving.view.layout.segment[pairs.source]
    assert torch.equal(graph, taking.view.layout.segment[pairs.destination])
    assert graph.bincount().tolist() == [2] * repeats
    code = (giving.view.node[pairs.source] - 1) * 2 + taking.view.node[pairs.destination] - 5
    sets = Counter(frozenset(row) for row in code.view(repeats, 2).tolist())
    assert len(sets) == 15
    assert chisquare(list(sets.values())).pvalue > 1e-3


# ------------------------------------------------------------------ parts and bad input


def test_parts_can_be_replaced_by_objects() -> None:
    class Bridge(Connection):
        """Join the first open node of either side, graph by graph."""

        def forward(self, source, destination, nodes, generator):
            first, second = [], []
            for graph in range(source.view.layout.num_graphs):
                u = (source.open & (source.view.layout.segment == graph)).nonzero().flatten()
                v = (
                    (destination.open & (destination.view.layout.segment == graph))
                    .nonzero()
                    .flatten()
                )
                if u.numel() and v.numel():
                    first.append(int(u[0]))
                    second.append(int(v[0]))
            return Pairs(
                torch.tensor(first, dtype=torch.long), torch.tensor(second, dtype=torch.long)
            )

    method = gt.GraphTransplant(
        Bridge(), anchors=RandomAnchors(), cut=PartialKHop(0.3, (1,)), importance=SizeImportance()
    )
    batch = random_batch(generator(5))
    mixed = method.mix(batch, torch.ones(batch.num_nodes), generator=generator())
    check_valid_batch(mixed.batch, graphs=8, undirected=True)
    new = mixed.edge_kind == 2
    assert 0 < int(new.sum()) <= 16


def test_methods_by_name() -> None:
    model = gt.GraphClassifier(3, 2, hidden=16)
    assert build_method("vanilla", model) == ()
    for name in METHODS:
        assert all(isinstance(a, gt.Augmentation) for a in build_method(name, model))
    (disconnected,) = build_method("transplant-disconnected", model)
    assert isinstance(disconnected.connect, Disconnected)
    with pytest.raises(
        GraphTransplantError, match=r"`method` .*vanilla.*got 'transplant-pd'.*did you"
    ):
        build_method("transplant-pd", model)


@pytest.mark.parametrize(
    ("settings_given", "message"),
    [
        ({"anchor_ratio": 0.7}, r"`anchor_ratio` must be in \(0, 0.5\], got 0.7"),
        ({"anchor_ratio": 0.0}, r"`anchor_ratio` must be in \(0, 0.5\], got 0.0"),
        ({"anchor_ratio": float("nan")}, r"`anchor_ratio` must be in \(0, 0.5\], got nan"),
        ({"hops": ()}, "`hops`"),
        ({"hops": (1, -1)}, "`hops`"),
        ({"alpha": 0.0}, "`alpha` must be positive, got 0.0"),
        ({"connect": "degrees"}, r"`connect` must be one of degree, predict, none; got 'degrees'"),
        ({"anchors": "best"}, "`anchors` must be one of salient, random; got 'best'"),
        ({"cut": "nodes"}, "`cut` must be one of subgraph, scattered; got 'nodes'"),
        ({"importance": "label"}, "`importance` must be one of saliency, size; got 'label'"),
        ({"new_edge_attr": "copy"}, "`new_edge_attr` must be one of drawn, mean, zero; got 'copy'"),
        ({"connect": "predict", "embedding_size": 0}, "`embedding_size` must be at least 1, got 0"),
    ],
)
def test_bad_settings_are_named(settings_given: dict[str, object], message: str) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        gt.GraphTransplant(**settings_given)


def bad_calls() -> dict[str, tuple[object, str]]:
    batch = random_batch(generator(6), graphs=3)
    count = batch.num_nodes
    ones = torch.ones(count)
    nan = ones.clone()
    nan[0] = float("nan")
    unlabelled = batch.clone()
    del unlabelled.y
    degree = gt.GraphTransplant()
    predict = gt.GraphTransplant("predict", embedding_size=4)
    edgeless = Batch.from_data_list([Data(x=torch.ones(2, 1), y=torch.tensor([0]))])
    return {
        "saliency too long": (
            lambda: degree.mix(batch, torch.ones(count + 1)),
            rf"`saliency` must have shape \[{count}\].*got \[{count + 1}\]",
        ),
        "saliency two-dimensional": (
            lambda: degree.mix(batch, ones.unsqueeze(1)),
            rf"`saliency` must have shape \[{count}\].*got \[{count}, 1\]",
        ),
        "saliency negative": (lambda: degree.mix(batch, -ones), "`saliency` .*not negative"),
        "saliency NaN": (lambda: degree.mix(batch, nan), "`saliency` must be finite"),
        "no labels": (lambda: degree.mix(unlabelled, ones), r"`batch.y`"),
        "labels out of range": (
            lambda: degree.mix(batch, ones, num_outputs=2),
            "labels must lie between 0 and 1; got 2",
        ),
        "targets of other graphs": (
            lambda: degree.mix(batch, ones, targets=torch.ones(4, 2) / 2),
            r"`targets` must have 3 rows.*got 4",
        ),
        "not a batch": (lambda: degree.mix([1, 2], ones), "`batch` must be a PyG Batch, got list"),
        "no edges": (lambda: degree.mix(edgeless, torch.ones(2)), r"`batch.edge_index`"),
        "no embeddings": (lambda: predict.mix(batch, ones), "pass `nodes`"),
        "embeddings of another width": (
            lambda: predict.mix(batch, ones, nodes=torch.ones(count, 3)),
            "`embedding_size` .*is 4.*3 wide",
        ),
        "embeddings of other nodes": (
            lambda: predict.mix(batch, ones, nodes=torch.ones(count + 2, 4)),
            rf"`nodes` must have .*{count}",
        ),
        "wrong embedding size in training": (
            lambda: gt.augmented_loss(gt.GraphClassifier(3, 3, hidden=8), batch, predict),
            "`embedding_size` .*is 4.*8 wide",
        ),
    }


@pytest.mark.parametrize("name", bad_calls())
def test_bad_input_is_named(name: str) -> None:
    call, message = bad_calls()[name]
    with pytest.raises(GraphTransplantError, match=message):
        call()  # type: ignore[operator]


def test_one_number_of_hops() -> None:
    assert gt.GraphTransplant(hops=2).cut.hops == (2,)


def test_nan_features_of_a_store_are_refused() -> None:
    items = random_batch(generator(6), graphs=2).to_data_list()
    items[1].x[0, 0] = float("nan")
    with pytest.raises(DataError, match="node 0 of graph 1"):
        GraphStore.from_pyg(items)


def test_deepest_provenance_survives_a_plan_made_for_given_partners() -> None:
    batch = random_batch(generator(7))
    pi = torch.tensor([1, 1, 1, 0, 4, 5, 6, 7])  # not a permutation: a source may serve twice
    method = gt.GraphTransplant()
    ones = torch.ones(batch.num_nodes)
    plan = method.plan(batch, ones, generator=generator(), source_of=pi)
    mixed = method.apply_plan(plan, batch, torch.eye(8), ones)
    origin = batch.batch[mixed.node_origin]
    assert torch.equal(
        origin[mixed.node_from_source], pi[mixed.batch.batch[mixed.node_from_source]]
    )
    check_valid_batch(mixed.batch, graphs=8, undirected=True)


def test_mixing_asks_nothing_of_the_model() -> None:
    # The model's pass is given; only what the contract names may be touched.
    batch = random_batch(generator(8))
    model = gt.GraphClassifier(3, 8, layers=2, hidden=8, seed=0)
    prediction = model(batch)
    clean = gt.CleanPass(batch, torch.eye(8), prediction)
    stand_in = SimpleNamespace(takes_edge_weight=True)
    mixed = gt.GraphTransplant()(clean, model=stand_in, generator=generator())
    assert isinstance(mixed.targets, Tensor)
