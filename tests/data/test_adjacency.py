"""Sparse products and sums of messages, against dense matrices and loops."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graph_transplant.data import GraphBatch
from graph_transplant.data.adjacency import Adjacency, rectified_sum, sampled_product, spmm
from helpers.oracles import dense_adjacency
from helpers.strategies import draw

PATH = [(3, 1), (1, 3), (2, 3), (3, 2)]
EDGES: dict[str, list[tuple[int, int]]] = {
    "symmetric": [*PATH, (0, 1), (1, 0), (0, 2), (2, 0)],
    "directed": [(3, 1), (0, 1), (1, 2), (2, 3), (3, 0), (0, 3)],
    "repeated": [*PATH, (0, 1), (1, 0), (0, 1), (1, 0)],
    "loops": [(0, 0), (3, 1), (1, 3), (2, 2), (2, 2), (0, 2), (2, 0)],
    "edgeless": [],
    "isolated": [(4, 1), (1, 4)],
    "crowded": [(0, 1), (1, 0)] * 3,  # more edges than the matrix has entries
}
NODES = {"isolated": 5, "crowded": 2}
KINDS = sorted(EDGES)


def edges(kind: str) -> tuple[Tensor, int]:
    """Edge list, not sorted, and number of nodes."""
    listed = torch.tensor(EDGES[kind], dtype=torch.long).reshape(-1, 2).t()
    return listed, NODES.get(kind, 4)


def adjacency_of(edge_index: Tensor, nodes: int, weight: Tensor | None = None) -> Adjacency:
    data = Data(edge_index=edge_index, edge_weight=weight, num_nodes=nodes)
    return GraphBatch.from_pyg(data).adjacency


def entries(adjacency: Adjacency) -> Tensor:
    """Sender and receiver of every entry."""
    return torch.stack((adjacency.column, adjacency.row))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_degrees_and_loops(kind: str, weighted: bool) -> None:
    edge_index, nodes = edges(kind)
    weight = torch.ones(edge_index.shape[1], dtype=torch.double)
    if weighted:
        low, high = edge_index.min(0).values, edge_index.max(0).values
        weight = 0.3 + 0.1 * low.double() + 0.07 * high.double()
    adjacency = adjacency_of(edge_index, nodes, weight if weighted else None)
    assert adjacency.symmetric == (kind != "directed")
    dense = dense_adjacency(edge_index, weight, nodes)
    torch.testing.assert_close(adjacency.degree.double(), dense.sum(1))
    looped = adjacency.with_self_loops
    unit = torch.eye(nodes, dtype=torch.double)
    torch.testing.assert_close(spmm(looped, unit, looped.values(torch.double)), dense + unit)


@pytest.mark.parametrize("kind", KINDS)
def test_product_and_gradients_against_dense(kind: str) -> None:
    adjacency = adjacency_of(*edges(kind))
    nodes, count = adjacency.num_nodes, adjacency.column.numel()
    x, values = draw(1, nodes, 3).requires_grad_(), draw(2, count).requires_grad_()
    upstream = draw(3, nodes, 3)
    for used in (None, values):
        entered = torch.ones(count, dtype=torch.double) if used is None else used
        expected = dense_adjacency(entries(adjacency), entered, nodes) @ x
        result = spmm(adjacency, x, used, symmetric_values=used is None)
        torch.testing.assert_close(result, expected)
        leaves = [x] if used is None else [x, used]
        found = torch.autograd.grad(result, leaves, upstream)
        for one, other in zip(found, torch.autograd.grad(expected, leaves, upstream), strict=True):
            torch.testing.assert_close(one, other)


def test_symmetric_values_give_the_same_gradients_as_the_general_way() -> None:
    edge_index, nodes = edges("symmetric")
    adjacency = adjacency_of(edge_index, nodes)
    row, column = adjacency.row, adjacency.column
    values = 0.3 + torch.minimum(row, column).double() + 0.1 * torch.maximum(row, column)
    found = []
    for symmetric in (True, False):
        leaves = draw(0, nodes, 3).requires_grad_(), values.clone().requires_grad_()
        out = spmm(adjacency, *leaves, symmetric_values=symmetric)
        found.append(torch.autograd.grad(out.square().sum(), leaves))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_product(kind: str) -> None:
    adjacency = adjacency_of(*edges(kind))
    left, right = draw(4, 2, adjacency.num_nodes, 5)
    expected = (left[adjacency.row] * right[adjacency.column]).sum(1)
    torch.testing.assert_close(sampled_product(adjacency, left, right), expected)


# ------------------------------------------------------------------ rectified messages


@pytest.mark.parametrize("kind", KINDS)
def test_rectified_sum_against_a_loop(kind: str) -> None:
    adjacency = adjacency_of(*edges(kind))
    nodes, count = adjacency.num_nodes, adjacency.column.numel()
    x, added, values = draw(5, nodes, 3), draw(6, count, 3), draw(7, count)
    expected = torch.zeros(nodes, 3, dtype=torch.double)
    for edge, (sender, receiver) in enumerate(entries(adjacency).t().tolist()):
        expected[receiver] += values[edge] * (x[sender] + added[edge]).clamp(min=0)
    torch.testing.assert_close(rectified_sum(adjacency, x, added, values), expected)


@pytest.mark.parametrize("kind", ["symmetric", "directed", "repeated"])
def test_gradcheck(kind: str) -> None:
    adjacency = adjacency_of(*edges(kind))
    nodes, count = adjacency.num_nodes, adjacency.column.numel()
    x, values = draw(1, nodes, 2).requires_grad_(), draw(2, count).requires_grad_()
    added = draw(3, count, 2).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, values: spmm(adjacency, x, values, symmetric_values=False), (x, values)
    )
    # A penalty on the gradient: torch cannot differentiate the gradient of values again.
    weight, other = values.detach(), draw(4, nodes, 2)

    def penalty(factor: Tensor) -> Tensor:
        product = (spmm(adjacency, x, weight * factor, symmetric_values=False) * other).sum()
        (slope,) = torch.autograd.grad(product, x, create_graph=True)
        return slope.square().sum()

    factor = torch.tensor(1.5, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(penalty, factor)
    assert torch.autograd.gradcheck(
        lambda x, added, values: rectified_sum(adjacency, x, added, values), (x, added, values)
    )
