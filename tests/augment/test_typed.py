"""Typed graphs: new edges join only what their types allow, held against plain Python."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData

import graph_transplant as gt
from graph_transplant.augment.transplant import GraphTransplant, TransplantPlan
from graph_transplant.data import GraphBatch
from graph_transplant.errors import GraphTransplantError
from graph_transplant.kernels import transplant as kernel
from helpers.edits import agree, both_ways, clean_of, planned, uniform
from helpers.oracles import assert_valid, edges_of, graphs_of, induced
from helpers.strategies import KINDS, generator, random_batch

Combination = tuple[int, int, int]
VARIANTS = {
    "degree": {"connect": "dp"},
    "predict": {"connect": "ep", "embedding_size": 3},
    "scattered": {"connect": "dp", "cut": "scattered"},
}


def typed_batch(seed: int, kind: str, *, nodes: bool = True, edges: bool = True) -> GraphBatch:
    """Random graphs of three node types; the type of an edge follows from those of its ends."""
    random = np.random.default_rng(seed)
    batch = random_batch(generator(seed), **KINDS[kind], edge_attr=seed % 2 > 0)
    node_type = torch.from_numpy(random.integers(3, size=batch.num_nodes))
    if nodes:
        batch.node_type = node_type
    if edges:
        # Of most pairs of types there are no edges; of the others there may be two kinds.
        sender, receiver = node_type[batch.edge_index]
        names = torch.tensor([[-1, 10, 11], [12, -1, -1], [-1, -1, 13]])
        kept = names[sender, receiver] >= 0 if nodes else torch.rand(batch.num_edges) < 2
        both = batch.edge_index.sum(0) % 2  # the same for both directions
        kinds = names[sender, receiver].clamp(min=10) + 20 * both
        if kind.startswith("undirected"):
            kept &= names[receiver, sender] >= 0
        batch.edge_index = batch.edge_index[:, kept]
        batch.edge_type = kinds[kept]
        if "edge_attr" in batch:
            batch.edge_attr = batch.edge_attr[kept]
    return GraphBatch.from_pyg(batch)


# ------------------------------------------------------------------ the oracle


def types_in(batch: GraphBatch) -> tuple[list[int], list[int]]:
    node, edge = batch.nodes.get("node_type"), batch.edges.get("edge_type")
    return (
        [0] * batch.num_nodes if node is None else node.tolist(),
        [0] * batch.num_edges if edge is None else edge.tolist(),
    )


def occurring(batch: GraphBatch) -> set[Combination]:
    node, edge = types_in(batch)
    return {(node[u], edge[e], node[v]) for e, (u, v) in enumerate(edges_of(batch))}


def continuations(
    batch: GraphBatch, inside: set[int], end: int, other: int, legal: set[Combination]
) -> set[int]:
    """Lost edges of ``end`` that could have led to ``other`` or come from it instead."""
    node, kind = types_in(batch)
    ends, found = edges_of(batch), set()
    for number, (tail, head) in enumerate(ends):
        if end not in (tail, head) or (tail in inside and head in inside):
            continue
        fits = (
            (node[end], kind[number], node[other]) in legal
            if tail == end
            else (node[other], kind[number], node[end]) in legal
        )
        if batch.symmetric:  # the other direction has to be legal, too
            (back,) = [k for k, way in enumerate(ends) if way == (head, tail)]
            fits &= (
                (node[other], kind[back], node[end]) in legal
                if tail == end
                else (node[end], kind[back], node[other]) in legal
            )
        if fits:
            found.add(number)
    return found


def check(
    method: GraphTransplant, batch: GraphBatch, plan: TransplantPlan, legal: set[Combination]
) -> None:
    graphs, ends = graphs_of(batch), edges_of(batch)
    for i, g in enumerate(plan.source_of.tolist()):
        taken, rest = (
            set(nodes.item[nodes.ptr[i] : nodes.ptr[i + 1]].tolist())
            for nodes in (plan.part, plan.rest)
        )
        source, destination = (
            induced(graphs[g], taken, batch.symmetric),
            induced(graphs[i], rest, batch.symmetric),
        )
        possible = {
            (u, v): continuations(batch, taken, u, v, legal)
            | continuations(batch, rest, v, u, legal)
            for u in source.candidates
            for v in destination.candidates
        }
        possible = {pair: edges for pair, edges in possible.items() if edges}
        here = range(plan.pairs.ptr[i], plan.pairs.ptr[i + 1])
        pairs = [(int(plan.pairs.source[p]), int(plan.pairs.destination[p])) for p in here]
        assert pairs == sorted(set(pairs))
        assert set(pairs) <= set(possible)
        if method.connect == "ep":
            assert set(pairs) == set(possible)
            assert plan.missing is None
        else:
            wanted = (source.lost + destination.lost) // 2
            assert len(pairs) == min(wanted, len(possible))
            assert plan.missing is not None
            assert plan.missing[i] == wanted - len(pairs)
        for p, (u, v) in zip(here, pairs, strict=True):
            template = int(plan.template[p])
            assert template in possible[u, v]
            tail, head = ends[template]
            if not batch.symmetric:  # it keeps its direction
                into_source = bool(plan.pairs.into_source[p])
                assert into_source != bool(plan.pairs.into_destination[p])
                assert (head == u or tail == v) if into_source else (tail == u or head == v)


def new_combinations(mixed: gt.augment.MixedGraphs) -> Counter[Combination]:
    node, edge = types_in(mixed.batch)
    ends = edges_of(mixed.batch)
    return Counter(
        (node[ends[e][0]], edge[e], node[ends[e][1]]) for e in np.flatnonzero(mixed.edge_origin < 0)
    )


@pytest.mark.parametrize("kind", ["undirected", "directed", "directed-multi"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("named", [False, True])
def test_new_edges_are_legal_and_as_many_as_can_be(kind: str, variant: str, named: bool) -> None:
    torch.manual_seed(0)
    new = missing = 0
    for seed in range(12):
        batch = typed_batch(seed, kind, nodes=seed % 4 != 1, edges=seed % 4 != 2)
        legal, random = occurring(batch), np.random.default_rng(seed)
        options: dict[str, object] = {"anchor_ratio": 0.3, **VARIANTS[variant]}
        if named:
            legal = {each for each in sorted(legal) if random.random() < 0.7} | {(7, 7, 7)}
            options["legal_edges"] = legal
        method = GraphTransplant(**options)
        nodes = torch.randn(batch.num_nodes, 3, generator=generator(seed))
        clean = clean_of(batch, nodes=nodes)
        source_of = random.permutation(batch.num_graphs)
        if seed % 2:  # a graph may be the source of several, and of itself
            source_of = random.integers(batch.num_graphs, size=batch.num_graphs)
        with torch.no_grad():
            plan = planned(method, clean, source_of, random)
            check(method, batch, plan, legal)
            mixed = method.transform(plan, clean)
        assert_valid(mixed.batch)
        assert mixed.batch.symmetric == batch.symmetric
        assert set(new_combinations(mixed)) <= legal
        new += sum(new_combinations(mixed).values())
        missing += 0 if plan.missing is None else int(plan.missing.sum())
    assert new > 25
    assert (missing > 0) == (variant != "predict")


def test_types_of_which_there_is_one_forbid_nothing() -> None:
    # Degree preservation draws the same pairs as without types.
    plain = random_batch(generator(3))
    typed = plain.clone()
    typed.node_type = torch.full((plain.num_nodes,), 4)
    plans = [
        planned(method, clean_of(GraphBatch.from_pyg(batch)), np.arange(8)[::-1], random)
        for batch, method, random in (
            (plain, GraphTransplant(), np.random.default_rng(0)),
            (typed, GraphTransplant(), np.random.default_rng(0)),
        )
    ]
    for name in ("source", "destination", "ptr"):
        assert np.array_equal(*(getattr(plan.pairs, name) for plan in plans))
    assert np.array_equal(plans[0].missing, plans[1].missing)


# ------------------------------------------------------------------ by hand


def star(*leaves: int) -> Data:
    """A centre of type 0 with leaves of some types."""
    return Data(
        edge_index=both_ways(*((0, leaf + 1) for leaf in range(len(leaves)))),
        node_type=torch.tensor([0, *leaves]),
        y=torch.tensor([0]),
    )


def test_pairs_and_continued_edges_are_uniform() -> None:
    # The centre of a star goes into a hole where a centre was: leaves of types 1, 1 and 2 remain,
    # which lost one edge each, and so did the centre transplanted, of types 1, 1, 2, 2 and 3.
    one, two = star(1, 1, 2, 2, 3), star(1, 1, 2)
    for data, kinds in ((one, [1, 1, 2, 2, 3]), (two, [1, 1, 2])):
        data.edge_type = torch.tensor(kinds).repeat_interleave(2)
        data.edge_attr = torch.arange(data.num_edges) + 100.0 * len(kinds)
    times = 3000
    batch = GraphBatch.from_pyg(Batch.from_data_list([one, two] * times))
    saliency = np.tile(np.array([1, 0, 0, 0, 0, 0, 0, 0, 0, 0], np.float32), times)
    first = 2 * np.arange(times)
    method = GraphTransplant(hops=0, legal_edges=[(0, 1, 1), (1, 1, 0), (0, 2, 2), (2, 2, 0)])
    source_of = np.arange(2 * times)
    source_of[first], source_of[first + 1] = first + 1, first
    whole, templates = 0, Counter[object]()
    for seed in range(4):
        clean = clean_of(batch, saliency=saliency)
        plan = planned(method, clean, source_of, np.random.default_rng(seed))
        for i in first + 1:  # destinations are the smaller stars
            taken, begin, end = plan.part.item[plan.part.ptr[i]], *plan.pairs.ptr[i : i + 2]
            rest = set(plan.rest.item[plan.rest.ptr[i] : plan.rest.ptr[i + 1]].tolist())
            base = int(batch.ptr[i])
            if taken != batch.ptr[source_of[i]] or rest != {base + 1, base + 2, base + 3}:
                continue
            # (5 + 3) // 2 = 4 edges, for which there are three legal pairs.
            assert plan.missing[i] == 1
            pairs = plan.pairs.destination[begin:end] - base
            assert pairs.tolist() == [1, 2, 3]
            whole += 1
            for p in range(begin, end):
                attribute = float(batch.edges["edge_attr"][plan.template[p]])
                templates[int(plan.pairs.destination[p]) - base, attribute // 100] += 1
    assert whole > 500
    # Either end's edge is continued equally often.
    agree(templates, uniform((v, size) for v in (1, 2, 3) for size in (5, 3)))


def test_the_pairs_drawn_are_uniform_among_legal_ones() -> None:
    # Two of four legal pairs.
    times = 8000
    ptr = np.arange(times + 1)
    pairs = kernel.undirected_pairs(
        4 * ptr, np.zeros(4 * times, np.int64), np.tile(np.array([1, 2, 3, 5]), times)
    )
    found = kernel.degree_preserving_subset(pairs, np.full(times, 5), np.random.default_rng(0))
    assert np.diff(found.ptr).tolist() == [2] * times
    drawn = found.destination.reshape(-1, 2).tolist()
    every = [(1, 2), (1, 3), (1, 5), (2, 3), (2, 5), (3, 5)]
    agree(Counter(map(tuple, drawn)), uniform(every))


# ------------------------------------------------------------------ as people use it


def schema_graphs() -> list[Data]:
    generator_ = generator(0)
    graphs = []
    for i in range(20):
        h = HeteroData()
        h["a"].x = torch.randn(6, 4, generator=generator_)
        h["b"].x = torch.randn(5, 4, generator=generator_)
        # Each way once: an edge may be listed several times.
        ends = torch.stack([torch.randint(n, (12,), generator=generator_) for n in (6, 5)])
        h["a", "to", "b"].edge_index = ends
        h["b", "rev", "a"].edge_index = ends.flip(0)
        data = h.to_homogeneous()
        data.y = torch.tensor([i % 2])
        graphs.append(data)
    return graphs


@pytest.mark.parametrize("both", [True, False])
def test_mixtures_of_to_homogeneous_keep_the_schema(both: bool) -> None:
    graphs = schema_graphs()
    for data in graphs:
        if not both:
            kept = data.edge_type == 0
            data.edge_index, data.edge_type = data.edge_index[:, kept], data.edge_type[kept]
    batch = Batch.from_data_list(graphs)
    new = 0
    for seed in range(5):
        mixed = GraphTransplant().mix(batch, num_outputs=2, generator=generator(seed))
        found = new_combinations(mixed)
        new += sum(found.values())
        assert set(found) <= {(0, 0, 1), (1, 1, 0)}
        assert set(occurring(mixed.batch)) <= {(0, 0, 1), (1, 1, 0)}
    assert new > 100
    none = GraphTransplant(legal_edges=[]).mix(batch, num_outputs=2, generator=generator(0))
    assert (none.edge_origin >= 0).all()
    assert none.plan.missing.sum() > 0


def test_what_occurs_in_the_training_graphs_is_legal_in_every_batch() -> None:
    # The batch has edges between types 0 and 1, and between 2 and 3; the data set 0 and 3 as well.
    def star_of(centre: int, leaf: int) -> Data:
        data = star(*[leaf] * 6)
        data.node_type[0] = centre
        return data

    kinds = [(0, 1), (2, 3), (0, 3)]
    store = gt.load([star_of(*kinds[k % 3]) for k in range(30)], node_fields=["node_type"])
    batch = store.batch([k for k in range(30) if k % 3 < 2])
    method, found = GraphTransplant(), []
    for train in (None, store, gt.load("motifs", graphs=12)):  # the last has no types
        if train is not None:
            method.prepare(train, generator())
        new: Counter[Combination] = Counter()
        for seed in range(4):
            new += new_combinations(method.mix(batch, generator=generator(seed)))
        found.append(set(new))
    known = {(0, 0, 1), (1, 0, 0), (2, 0, 3), (3, 0, 2)}
    assert found == [known, known | {(0, 0, 3), (3, 0, 0)}, known]


def test_types_that_cannot_be_are_named() -> None:
    with pytest.raises(GraphTransplantError, match=r"`legal_edges` must be triples.*\(1, 2\)"):
        GraphTransplant(legal_edges=[(1, 2)])
    batch = Batch.from_data_list(schema_graphs())
    with pytest.raises(GraphTransplantError, match="use 'drawn'"):
        GraphTransplant(new_edge_attr="zero").mix(batch, num_outputs=2)
