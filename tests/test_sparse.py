"""The sparse adjacency and its product, against dense matrices."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graph_transplant.sparse import Adjacency, sampled_product, spmm
from oracles import dense_adjacency

KINDS = ("symmetric", "directed", "repeated", "loops", "edgeless", "isolated", "crowded")


def edges(kind: str) -> tuple[torch.Tensor, int]:
    """Edge list, not sorted, and number of nodes."""
    listed = {
        "symmetric": [(3, 1), (0, 1), (1, 0), (1, 3), (2, 3), (3, 2), (0, 2), (2, 0)],
        "directed": [(3, 1), (0, 1), (1, 2), (2, 3), (3, 0), (0, 3)],
        "repeated": [
            (3, 1),
            (0, 1),
            (1, 0),
            (0, 1),
            (1, 3),
            (1, 0),
            (3, 1),
            (1, 3),
            (2, 3),
            (3, 2),
        ],
        "loops": [(0, 0), (3, 1), (1, 3), (2, 2), (2, 2), (0, 2), (2, 0)],
        "edgeless": [],
        "isolated": [(4, 1), (1, 4)],
        "crowded": [(0, 1), (1, 0)] * 3,  # more edges than the matrix has entries
    }[kind]
    nodes = {"isolated": 5, "crowded": 2}.get(kind, 4)
    return torch.tensor(listed, dtype=torch.long).reshape(-1, 2).t(), nodes


def symmetric_weight(edge_index: torch.Tensor) -> torch.Tensor:
    low, high = edge_index.min(0).values, edge_index.max(0).values
    return 0.3 + 0.1 * low.double() + 0.07 * high.double()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_sorted_and_say_where_they_come_from(kind: str) -> None:
    edge_index, nodes = edges(kind)
    adjacency = Adjacency.from_edges(edge_index, nodes)
    row, column = adjacency.row, adjacency.column
    assert adjacency.num_nodes == nodes
    assert bool((row * nodes + column).diff().ge(0).all())
    assert adjacency.row_ptr.tolist() == [int((row < v).sum()) for v in range(nodes + 1)]
    assert adjacency.order is not None
    tail, head = edge_index[:, adjacency.order]
    assert torch.equal(row, head)
    assert torch.equal(column, tail)
    assert not adjacency.rows_send


@pytest.mark.parametrize("kind", KINDS)
def test_symmetry_is_found(kind: str) -> None:
    edge_index, nodes = edges(kind)
    assert Adjacency.from_edges(edge_index, nodes).symmetric == (kind != "directed")


def test_unequal_weights_are_not_symmetric() -> None:
    edge_index = torch.tensor([[0, 1], [1, 0]])
    weight = torch.tensor([1.0, 2.0])
    assert not Adjacency.from_edges(edge_index, 2, weight).symmetric
    assert Adjacency.from_edges(edge_index, 2, weight * 0 + 1).symmetric


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_degree_counts_and_loops(kind: str, weighted: bool) -> None:
    edge_index, nodes = edges(kind)
    weight = symmetric_weight(edge_index) if weighted else None
    ones = torch.ones(edge_index.shape[1], dtype=torch.double)
    dense = dense_adjacency(edge_index, ones if weight is None else weight, nodes)
    adjacency = Adjacency.from_edges(edge_index, nodes, weight)
    torch.testing.assert_close(adjacency.degree.double(), dense.sum(1))
    assert adjacency.counts.tolist() == torch.bincount(edge_index[1], minlength=nodes).tolist()
    looped = adjacency.with_self_loops
    x = torch.eye(nodes, dtype=torch.double)
    matrix = spmm(looped, x, looped.values(torch.double))
    torch.testing.assert_close(matrix, dense + x)
    assert looped.symmetric == adjacency.symmetric


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("values", [None, "weights"])
def test_product_and_gradients_against_dense(kind: str, values: str | None) -> None:
    edge_index, nodes = edges(kind)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(nodes, 3, generator=generator, dtype=torch.double).requires_grad_()
    adjacency = Adjacency.from_edges(edge_index, nodes)
    assert adjacency.order is not None
    count = edge_index.shape[1]
    weight = torch.randn(count, generator=generator, dtype=torch.double).requires_grad_()
    upstream = torch.randn(nodes, 3, generator=generator, dtype=torch.double)
    # Entry k of `weight` belongs to edge k of the adjacency: row <- column.
    listed = torch.stack((adjacency.column, adjacency.row))
    used = weight if values else torch.ones(count, dtype=torch.double)
    expected = dense_adjacency(listed, used, nodes) @ x
    result = spmm(adjacency, x, weight if values else None, symmetric_values=False)
    torch.testing.assert_close(result, expected)
    wanted = [x, weight] if values else [x]
    ours = torch.autograd.grad(result, wanted, upstream)
    dense = torch.autograd.grad(expected, wanted, upstream)
    for one, other in zip(ours, dense, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck(kind: str) -> None:
    edge_index, nodes = edges(kind)
    adjacency = Adjacency.from_edges(edge_index, nodes)
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(nodes, 2, generator=generator, dtype=torch.double).requires_grad_()
    weight = torch.rand(edge_index.shape[1], generator=generator, dtype=torch.double)
    weight.requires_grad_()
    if not weight.numel():
        assert torch.autograd.gradcheck(lambda a: spmm(adjacency, a), (x,))
        return
    assert torch.autograd.gradcheck(
        lambda a, w: spmm(adjacency, a, w, symmetric_values=False), (x, weight)
    )


def test_symmetric_values_give_the_same_gradients_as_the_general_way() -> None:
    edge_index, nodes = edges("symmetric")
    adjacency = Adjacency.from_edges(edge_index, nodes, symmetric_weight(edge_index))
    weight = adjacency.weight
    assert weight is not None
    assert adjacency.symmetric
    x = torch.randn(nodes, 3, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    grads = []
    for symmetric_values in (True, False):
        leaf, values = x.clone().requires_grad_(), weight.clone().requires_grad_()
        out = spmm(adjacency, leaf, values, symmetric_values=symmetric_values)
        grads.append(torch.autograd.grad((out**2).sum(), (leaf, values)))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


def test_weight_gradients_of_symmetric_graphs_follow_pyg_direction() -> None:
    # The edge from 1 to 0 alone reaches node 0, although its reverse has the same weight.
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    x = torch.tensor([[1.0], [10.0], [100.0]])
    weight = torch.ones(4, requires_grad=True)
    adjacency = Adjacency.from_edges(edge_index, 3, weight)
    out = spmm(adjacency, x, adjacency.weight)
    (gradient,) = torch.autograd.grad(out[0].sum(), weight)
    assert gradient.tolist() == [0.0, 10.0, 0.0, 0.0]


def test_promised_symmetry_gives_what_is_found() -> None:
    edge_index, nodes = edges("symmetric")
    code = torch.argsort(edge_index[0] * nodes + edge_index[1])
    edge_index = edge_index[:, code]
    weight = symmetric_weight(edge_index)
    promised = Adjacency.from_edges(edge_index, nodes, weight, symmetric=True)
    found = Adjacency.from_edges(edge_index, nodes, weight)
    assert found.symmetric
    for name in ("row_ptr", "row", "column", "weight", "degree"):
        assert torch.equal(getattr(promised, name), getattr(found, name)), name


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_product(kind: str) -> None:
    edge_index, nodes = edges(kind)
    adjacency = Adjacency.from_edges(edge_index, nodes)
    generator = torch.Generator().manual_seed(4)
    left, right = torch.randn(2, nodes, 5, generator=generator)
    found = sampled_product(adjacency, left, right)
    expected = (left[adjacency.row] * right[adjacency.column]).sum(1)
    torch.testing.assert_close(found, expected)


@given(st.integers(0, 2**31), st.integers(1, 9), st.booleans())
def test_random_structures_against_dense(seed: int, nodes: int, symmetric: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    count = int(torch.randint(0, 20, (), generator=generator))
    edge_index = torch.randint(nodes, (2, count), generator=generator)
    if symmetric:
        edge_index = torch.cat((edge_index, edge_index.flip(0)), dim=1)
        edge_index = edge_index[:, torch.randperm(2 * count, generator=generator)]
    ones = torch.ones(edge_index.shape[1], dtype=torch.double)
    x = torch.randn(nodes, 2, generator=generator, dtype=torch.double).requires_grad_()
    adjacency = Adjacency.from_edges(edge_index, nodes)
    if symmetric:
        assert adjacency.symmetric
    dense = dense_adjacency(edge_index, ones, nodes)
    result = spmm(adjacency, x)
    torch.testing.assert_close(result, dense @ x)
    upstream = torch.randn(nodes, 2, generator=generator, dtype=torch.double)
    (gradient,) = torch.autograd.grad(result, x, upstream)
    torch.testing.assert_close(gradient, dense.t() @ upstream)
