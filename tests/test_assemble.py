"""Assembly and edits of graphs, held against plain lists and networkx."""

from __future__ import annotations

import itertools
from collections import Counter

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.augment.assemble import (
    EdgePairs,
    EditedGraphs,
    NewEdges,
    assemble,
    edge_order,
    edges_like,
    edit_graphs,
    node_fields,
)
from graph_transplant.augment.subgraphs import View
from graph_transplant.graphs import adjacency_of
from graph_transplant.sparse import Adjacency
from oracles import check_valid_batch, dense_adjacency, is_undirected, same_content
from strategies import batches, random_batch, seeds


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def targets_of(batch: Data) -> Tensor:
    return torch.eye(batch.num_graphs)


def edge_numbers(batch: Data) -> list[tuple[int, int]]:
    return [(int(u), int(v)) for u, v in batch.edge_index.t().tolist()]


def from_store(batch: Batch) -> Batch:
    """The same kind of graphs as a store hands them out: edges sorted, adjacency kept."""
    graphs = batch.to_data_list()
    for graph in graphs:
        for name in [key for key in graph.keys() if key not in ("x", "edge_index", "edge_attr")]:  # noqa: SIM118
            if name not in ("y", "num_nodes"):
                del graph[name]
    store = gt.GraphStore.from_pyg(graphs, num_outputs=batch.num_graphs, task="multiclass")
    return store.batch(range(batch.num_graphs))


# ------------------------------------------------------------------ edges once each


@given(batches(), st.booleans())
def test_every_edge_is_listed_once_with_its_reverse(batch: Batch, stored: bool) -> None:
    if stored:
        batch = from_store(batch)
    edges = edge_numbers(batch)
    pairs = EdgePairs.of(View.of(batch))
    undirected = is_undirected(batch)
    both = zip(pairs.forward.tolist(), pairs.backward.tolist(), strict=True)
    listed: Counter[int] = Counter()
    for k, (forward, backward) in enumerate(both):
        u, v = int(pairs.u[k]), int(pairs.v[k])
        assert edges[forward] == (u, v)
        if undirected and View.of(batch).symmetric:
            assert u <= v
            assert edges[backward] == (v, u)
            assert (forward == backward) == (u == v)
            for name in ("edge_attr", "edge_weight"):
                if name in batch:
                    assert torch.equal(batch[name][forward], batch[name][backward])
        else:
            assert backward == forward
        listed.update({forward, backward})
    assert listed == Counter(range(len(edges)))
    assert pairs.segment.tolist() == sorted(pairs.segment.tolist())
    assert torch.equal(pairs.segment, batch.batch[pairs.u])
    expected = np.bincount(pairs.segment.numpy(), minlength=batch.num_graphs).tolist()
    assert pairs.counts.tolist() == expected
    assert pairs.ptr.tolist() == [0, *np.cumsum(expected).tolist()]


@given(batches(directed=False))
def test_undirected_batches_are_seen_as_such(batch: Batch) -> None:
    pairs = EdgePairs.of(View.of(batch))
    loops = sum(u == v for u, v in edge_numbers(batch))
    assert pairs.u.numel() == (batch.num_edges + loops) // 2


def test_a_batch_without_edges_has_no_pairs() -> None:
    graphs = [Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=n) for n in (1, 3)]
    pairs = EdgePairs.of(View.of(Batch.from_data_list(graphs)))
    assert pairs.u.numel() == 0
    assert pairs.ptr.tolist() == [0, 0, 0]


def repeated(copies: int, *, seed: int = 0, graphs: int = 3, nodes: int = 5) -> Batch:
    """Complete graphs whose edges all stand several times, every copy with its own weight.

    The copies of an edge stand in the same order in both directions, so that each is the reverse of
    one other.
    """
    items = []
    for label in range(graphs):
        listed = [
            (u, v, 1.0 + copy + 10 * u + 100 * v)
            for u, v in itertools.combinations(range(nodes), 2)
            for copy in range(copies)
        ]
        order = torch.randperm(len(listed), generator=generator(seed + label)).tolist()
        listed = [listed[k] for k in order]
        both = [(u, v) for u, v, _ in listed] + [(v, u) for u, v, _ in listed]
        code = torch.tensor([weight for *_, weight in listed]).repeat(2)
        items.append(
            Data(
                x=torch.randn(nodes, 3, generator=generator(label)),
                edge_index=torch.tensor(both).t().contiguous(),
                edge_weight=code / 100,
                edge_attr=code.unsqueeze(1),
                y=torch.tensor([label]),
            )
        )
    return Batch.from_data_list(items)


def test_repeated_edges_are_paired_one_to_one() -> None:
    batch = repeated(4)
    view = View.of(batch)
    assert view.symmetric
    pairs = EdgePairs.of(view)
    assert torch.equal(batch.edge_weight[pairs.forward], batch.edge_weight[pairs.backward])
    assert torch.equal(batch.edge_attr[pairs.forward], batch.edge_attr[pairs.backward])


@pytest.mark.parametrize("first_edit", ["nothing", "nodes", "edges", "new"])
def test_repeated_edges_stay_paired_when_edited_again(first_edit: str) -> None:
    # What is made of one edit is the batch of the next, as in Sequential: a copy of an edge must
    # still be found with its own reverse, or a dropped pair leaves one direction of each.
    batch = repeated(6, nodes=7)
    chosen: dict[str, object] = {}
    if first_edit == "nodes":
        keep = torch.ones(batch.num_nodes, dtype=torch.bool)
        keep[::4] = False
        chosen = {"keep_nodes": keep}
    elif first_edit == "edges":
        chosen = {"keep_edges": kept_pairs(batch, generator(3), 0.7)}
    elif first_edit == "new":
        ends = torch.tensor([0, 7, 14])
        chosen = {"new_edges": NewEdges(ends, ends + 1, torch.full_like(ends, -1))}
    virtual = edit_graphs(batch, targets_of(batch), **chosen).batch  # type: ignore[arg-type]
    pairs = EdgePairs.of(View.of(virtual))
    for name in ("edge_weight", "edge_attr"):
        assert torch.equal(virtual[name][pairs.forward], virtual[name][pairs.backward])
    again = edit_graphs(virtual, virtual.y, keep_edges=kept_pairs(virtual, generator(4), 0.5)).batch
    check_adjacency(again)


# ------------------------------------------------------------------ small parts


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_edge_order_is_by_sender_then_receiver(edges: list[tuple[int, int]]) -> None:
    index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2)
    order = edge_order(index[:, 0], index[:, 1], 7)
    assert sorted(order.tolist()) == list(range(len(edges)))
    assert [edges[k] for k in order.tolist()] == sorted(edges)


@given(batches(), seeds())
def test_edges_take_weights_and_attributes_of_others(batch: Batch, seed: int) -> None:
    count = 6
    like = torch.randint(-1, max(batch.num_edges, 0), (count,), generator=generator(seed))
    fields = edges_like(batch, like)
    assert set(fields) == {name for name in ("edge_weight", "edge_attr") if name in batch}
    for name, blank in (("edge_weight", 1.0), ("edge_attr", 0.0)):
        value = fields.get(name)
        if value is None:
            continue
        assert value.shape == (count, *batch[name].shape[1:])
        assert value.dtype == batch[name].dtype
        for k, edge in enumerate(like.tolist()):
            expected = torch.full_like(value[k], blank) if edge < 0 else batch[name][edge]
            assert torch.equal(value[k], expected)


def test_weights_of_edges_keep_their_gradients() -> None:
    batch = random_batch(generator(1), graphs=3, edge_weight=True)
    batch.edge_weight = batch.edge_weight.clone().requires_grad_()
    like = torch.tensor([2, -1, 2, 0])
    weight = edges_like(batch, like)["edge_weight"]
    assert weight is not None
    (gradient,) = torch.autograd.grad(
        (weight * torch.tensor([1.0, 7.0, 10.0, 100.0])).sum(), batch.edge_weight
    )
    expected = torch.zeros(batch.num_edges)
    expected[2], expected[0] = 11.0, 100.0
    assert torch.equal(gradient, expected)


def test_node_fields_are_all_tensors_with_a_row_per_node() -> None:
    batch = random_batch(generator(1), graphs=3, edge_attr=True, edge_weight=True)
    batch.pos = torch.rand(batch.num_nodes, 2)
    batch.atom = torch.arange(batch.num_nodes)
    batch.weather = "fine"
    assert set(node_fields(batch)) == {"x", "pos", "atom"}
    bare = Batch.from_data_list([Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2)])
    assert node_fields(bare) == {}


# ------------------------------------------------------------------ assembly


def check_adjacency(batch: Batch) -> None:
    """The adjacency that a batch carries must be that of its edges."""
    kept = adjacency_of(batch)
    weight = batch.edge_weight.detach() if "edge_weight" in batch else None
    fresh = Adjacency.from_edges(batch.edge_index, batch.num_nodes, weight)
    ones = torch.ones(batch.num_edges) if weight is None else weight
    dense = dense_adjacency(batch.edge_index, ones, batch.num_nodes)
    matrix = torch.zeros_like(dense)
    values = torch.ones(kept.row.numel()) if kept.weight is None else kept.weight.detach()
    matrix.index_put_((kept.row, kept.column), values, accumulate=True)
    if kept.symmetric:
        torch.testing.assert_close(dense, dense.t().contiguous())
        assert fresh.symmetric or kept.order is None
    torch.testing.assert_close(matrix, dense)
    assert bool((kept.row.diff() >= 0).all())


def test_pieces_become_a_batch() -> None:
    batch = assemble(
        node_counts=torch.tensor([2, 1, 3]),
        nodes={"x": torch.arange(12.0).view(6, 2), "colour": torch.arange(6)},
        sender=torch.tensor([0, 1, 3, 4, 4, 5]),
        receiver=torch.tensor([1, 0, 4, 3, 5, 4]),
        edges={"edge_weight": torch.tensor([1.0, 1.0, 2.0, 2.0, 3.0, 3.0]), "edge_attr": None},
        targets=torch.eye(3),
        symmetric=True,
    )
    check_valid_batch(batch, graphs=3, undirected=True)
    check_adjacency(batch)
    assert "edge_attr" not in batch
    parts = batch.to_data_list()
    assert [part.num_nodes for part in parts] == [2, 1, 3]
    assert parts[2].edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert parts[2].edge_weight.tolist() == [2.0, 2.0, 3.0, 3.0]
    assert parts[2].colour.tolist() == [3, 4, 5]
    assert parts[1].y.tolist() == [[0.0, 1.0, 0.0]]


def test_graphs_without_edges_or_features_become_a_batch() -> None:
    nothing = torch.empty(0, dtype=torch.long)
    batch = assemble(
        node_counts=torch.tensor([1, 2]),
        nodes={},
        sender=nothing,
        receiver=nothing,
        edges={},
        targets=torch.eye(2),
        symmetric=True,
    )
    check_valid_batch(batch, graphs=2, undirected=True)
    assert "x" not in batch


def test_directed_edges_are_found_out_anew() -> None:
    batch = assemble(
        node_counts=torch.tensor([3]),
        nodes={"x": torch.ones(3, 1)},
        sender=torch.tensor([0, 1]),
        receiver=torch.tensor([1, 2]),
        edges={},
        targets=torch.eye(1),
        symmetric=False,
    )
    assert not adjacency_of(batch).symmetric
    check_adjacency(batch)


# ------------------------------------------------------------------ edits


def kept_pairs(batch: Batch, source: torch.Generator, share: float) -> Tensor:
    """Choose edges to keep, both directions or neither, without looking at EdgePairs."""
    undirected = View.of(batch).symmetric
    count = batch.num_edges
    keep = torch.rand(count, generator=source) < share
    if not undirected:
        return keep
    # The k-th copy of an edge goes with the k-th copy of its reverse.
    seen: Counter[tuple[int, int]] = Counter()
    number: dict[tuple[int, int, int], int] = {}
    for edge, (u, v) in enumerate(edge_numbers(batch)):
        number[u, v, seen[u, v]] = edge
        seen[u, v] += 1
    for (u, v, copy), edge in number.items():
        if u < v:
            keep[number[v, u, copy]] = keep[edge]
    return keep


def new_pairs(batch: Batch, source: torch.Generator) -> NewEdges:
    """A few new edges between different nodes of a graph."""
    u, v, like = [], [], []
    ptr = batch.ptr.tolist()
    for start, end in itertools.pairwise(ptr):
        for _ in range(2):
            if end - start > 1:
                ends = torch.randperm(end - start, generator=source)[:2] + start
                u.append(int(ends[0]))
                v.append(int(ends[1]))
                like.append(int(torch.randint(-1, max(batch.num_edges, 0), (), generator=source)))
    return NewEdges(*(torch.tensor(part, dtype=torch.long) for part in (u, v, like)))


@settings(max_examples=150)
@given(batches(), seeds(), st.tuples(*[st.booleans()] * 5))
def test_edits_are_those_of_a_plain_graph(
    batch: Batch, seed: int, chosen: tuple[bool, bool, bool, bool, bool]
) -> None:
    cut_nodes, cut_edges, add_edges, new_features, stored = chosen
    if stored:
        batch = from_store(batch)
    before, source = batch.clone(), generator(seed)
    symmetric = View.of(batch).symmetric
    nodes = batch.num_nodes
    keep_nodes = torch.rand(nodes, generator=source) < 0.6
    keep_nodes[batch.ptr[:-1]] = True
    if not cut_nodes:
        keep_nodes = torch.ones(nodes, dtype=torch.bool)
    keep_edges = kept_pairs(batch, source, 0.6 if cut_edges else 2.0)
    added = new_pairs(batch, source)
    inside = keep_nodes[added.u] & keep_nodes[added.v]
    if not add_edges:
        inside = torch.zeros_like(inside)
    added = NewEdges(added.u[inside], added.v[inside], added.like[inside])
    features = torch.randn(nodes, 2, generator=source)

    virtual = edit_graphs(
        batch,
        targets_of(batch),
        keep_nodes=keep_nodes if cut_nodes else None,
        keep_edges=keep_edges if cut_edges else None,
        new_edges=added if add_edges else None,
        features={"x": features} if new_features else None,
    )

    # The same edits of a plain multigraph whose edges carry all they have.
    def details(edge: int) -> tuple[object, ...]:
        weight: object = None
        attr: object = None
        if "edge_weight" in batch:
            weight = 1.0 if edge < 0 else float(batch.edge_weight[edge])
        if "edge_attr" in batch:
            blank = [0.0] * batch.edge_attr.shape[1]
            attr = tuple(blank if edge < 0 else batch.edge_attr[edge].tolist())
        return weight, attr

    graph = nx.MultiDiGraph()
    graph.add_nodes_from(range(nodes))
    for edge, (u, v) in enumerate(edge_numbers(batch)):
        if keep_edges[edge]:
            graph.add_edge(u, v, details=(edge, *details(edge)))
    for u, v, like in zip(added.u.tolist(), added.v.tolist(), added.like.tolist(), strict=True):
        graph.add_edge(u, v, details=(-1, *details(like)))
        if symmetric:
            graph.add_edge(v, u, details=(-1, *details(like)))
    graph.remove_nodes_from((~keep_nodes).nonzero().flatten().tolist())
    left = sorted(graph.nodes)

    result = virtual.batch
    check_valid_batch(result, graphs=batch.num_graphs, undirected=symmetric)
    check_adjacency(result)
    assert virtual.node_origin.tolist() == left
    assert result.batch.tolist() == batch.batch[left].tolist()
    expected_edges = Counter(graph.edges(data="details"))
    found: Counter[tuple[object, ...]] = Counter()
    for edge, (u, v) in enumerate(edge_numbers(result)):
        weight = float(result.edge_weight[edge]) if "edge_weight" in result else None
        attr = tuple(result.edge_attr[edge].tolist()) if "edge_attr" in result else None
        found[left[u], left[v], (int(virtual.edge_origin[edge]), weight, attr)] += 1
    assert found == expected_edges
    assert edge_numbers(result) == sorted(edge_numbers(result))
    if new_features:
        assert torch.equal(result.x, features[left])
    elif "x" in batch:
        assert torch.equal(result.x, batch.x[left])
    else:
        assert "x" not in result
    assert torch.equal(result.y, targets_of(batch))
    assert same_content(batch, before)


@given(batches(), st.booleans())
def test_an_edit_of_nothing_gives_the_same_graphs(batch: Batch, stored: bool) -> None:
    if stored:
        batch = from_store(batch)
    same = edit_graphs(batch, targets_of(batch))
    assert isinstance(same, EditedGraphs)
    assert same.node_origin.tolist() == list(range(batch.num_nodes))
    assert sorted(same.edge_origin.tolist()) == list(range(batch.num_edges))
    assert torch.equal(same.batch.edge_index, batch.edge_index[:, same.edge_origin])
    assert ("x" in same.batch) == ("x" in batch)


@pytest.mark.parametrize("conv", ["gcn", "gcs", "gin", "gat"])
@pytest.mark.parametrize("kind", ["undirected", "directed", "multi"])
def test_models_see_edited_graphs_as_fresh_ones(conv: str, kind: str) -> None:
    batch = random_batch(
        generator(4),
        graphs=6,
        undirected=kind != "directed",
        simple=kind != "multi",
        edge_weight=True,
    )
    model = gt.GraphClassifier(3, 6, conv=conv, layers=2, hidden=8, dropout=0.0, seed=0)
    keep = torch.rand(batch.num_nodes, generator=generator(5)) < 0.7
    keep[batch.ptr[:-1]] = True
    source = generator(6)
    keep_edges, added = kept_pairs(batch, source, 0.7), new_pairs(batch, source)
    inside = keep[added.u] & keep[added.v]
    virtual = edit_graphs(
        batch,
        targets_of(batch),
        keep_nodes=keep,
        keep_edges=keep_edges,
        new_edges=NewEdges(added.u[inside], added.v[inside], added.like[inside]),
    )
    fresh = Batch.from_data_list(virtual.batch.to_data_list())
    torch.testing.assert_close(virtual.logits(model), model(fresh).logits)
    ours = torch.autograd.grad(virtual.loss(model, "multiclass"), list(model.parameters()))
    loss = torch.nn.functional.cross_entropy(model(fresh).logits, virtual.targets)
    theirs = torch.autograd.grad(loss, list(model.parameters()))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-6, rtol=1e-4)


def test_further_node_tensors_come_along() -> None:
    batch = random_batch(generator(2), graphs=4)
    batch.pos = torch.rand(batch.num_nodes, 2)
    keep = torch.zeros(batch.num_nodes, dtype=torch.bool)
    keep[batch.ptr[:-1]] = True
    virtual = edit_graphs(batch, targets_of(batch), keep_nodes=keep)
    assert torch.equal(virtual.batch.pos, batch.pos[batch.ptr[:-1]])
    changed = edit_graphs(batch, targets_of(batch), features={"pos": batch.pos * 2})
    assert torch.equal(changed.batch.pos, batch.pos * 2)
    assert torch.equal(changed.batch.x, batch.x)


def test_gradients_pass_through_features_and_weights() -> None:
    batch = random_batch(generator(2), graphs=4, edge_weight=True, largest=8)
    factor = torch.tensor(1.0, requires_grad=True)
    batch.edge_weight = batch.edge_weight * factor
    x = batch.x * factor
    model = gt.GraphClassifier(3, 4, layers=2, hidden=8, dropout=0.0, seed=0)
    keep = torch.rand(batch.num_nodes, generator=generator(5)) < 0.7
    keep[batch.ptr[:-1]] = True
    virtual = edit_graphs(batch, targets_of(batch), keep_nodes=keep, features={"x": x})
    assert virtual.batch.edge_weight.requires_grad
    (found,) = torch.autograd.grad(virtual.loss(model, "multiclass"), factor)
    step = 1e-3
    losses = []
    for value in (1 + step, 1 - step):
        other = batch.clone().detach()
        other.edge_weight = other.edge_weight * value
        scaled = edit_graphs(
            other, targets_of(batch), keep_nodes=keep, features={"x": batch.x * value}
        )
        fresh = Batch.from_data_list(scaled.batch.to_data_list())
        logits = model.double()(fresh).logits
        losses.append(
            float(torch.nn.functional.cross_entropy(logits, scaled.targets.double()).detach())
        )
        model.float()
    assert float(found) == pytest.approx((losses[0] - losses[1]) / (2 * step), rel=2e-2, abs=1e-5)


def test_a_single_graph_without_a_batch_vector_can_be_edited() -> None:
    path = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    keep = torch.tensor([True, True, False])
    virtual = edit_graphs(path, torch.eye(1), keep_nodes=keep)
    assert edge_numbers(virtual.batch) == [(0, 1), (1, 0)]
    check_valid_batch(virtual.batch, graphs=1, undirected=True)


@pytest.mark.parametrize(
    "augmentation",
    [
        gt.DropNodes(),
        gt.PerturbEdges(),
        gt.NodeSam(),
        gt.SubMix(),
        gt.GraphTransplant(),
        gt.GraphTransplant(new_edge_attr="mean"),
    ],
    ids=lambda augmentation: type(augmentation).__name__,
)
def test_further_fields_of_edges_are_carried(augmentation: gt.Augmentation) -> None:
    # Types are numbers of things: each edge has that of an edge of one of its graphs.
    batch = random_batch(generator(4), graphs=6)
    graph = batch.batch[batch.edge_index[0]]
    pair = batch.edge_index.min(0).values * 100 + batch.edge_index.max(0).values
    batch.edge_type = torch.stack((graph, pair), 1)
    model = gt.GraphClassifier(3, 6, hidden=8, layers=1, seed=0)
    clean = gt.CleanPass(batch, torch.eye(6), model(batch))
    virtual = augmentation(clean, model=model, generator=generator(1))
    types = virtual.batch.edge_type
    assert types.dtype == torch.long
    assert len(types) == virtual.batch.num_edges
    known = {tuple(row) for row in batch.edge_type.tolist()}
    assert {tuple(row) for row in types.tolist()} <= known
    kept = virtual.edge_origin >= 0
    assert torch.equal(types[kept], batch.edge_type[virtual.edge_origin[kept]])
    there = virtual.batch.batch[virtual.batch.edge_index[0]]
    sources = getattr(virtual, "source_of", torch.arange(6))
    assert bool(((types[:, 0] == there) | (types[:, 0] == sources[there])).all())
