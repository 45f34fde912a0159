"""Sparse adjacency in compressed rows, built once per batch and shared by every layer and pass.

Row ``i`` of an :class:`Adjacency` lists the nodes that send messages to node ``i``. The product
with node features runs as a weighted embedding bag, which on a CPU is several times faster than
both gather-and-scatter and ``torch.sparse.mm``; its backward pass covers features *and* weights.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

from graph_transplant.data.tensors import offsets

# Torch warns once per process that CSR tensors are in beta; trigger the warning here, silenced.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 0], [], [], (1, 1), check_invariants=False)


class Adjacency:
    """The edges of a batch of graphs in compressed rows, on the device of the model.

    ``column`` is the sending node of every edge, its row the receiving one. A symmetric matrix, in
    which every edge has a reverse of equal weight, is its own transpose, so the backward pass needs
    no second structure. ``weight=None`` means ones.
    """

    def __init__(
        self, row_ptr: Tensor, column: Tensor, *, symmetric: bool, weight: Tensor | None = None
    ) -> None:
        self.row_ptr = row_ptr
        self.column = column
        self.symmetric = symmetric
        self.weight = weight

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.row_ptr.numel() - 1

    @cached_property
    def row(self) -> Tensor:
        """Receiving node of every edge, sorted int64 ``[edges]``."""
        nodes = torch.arange(self.num_nodes, device=self.column.device)
        return torch.repeat_interleave(nodes, self.counts, output_size=self.column.numel())

    @cached_property
    def counts(self) -> Tensor:
        """Number of edges in every row, whatever their weights, int64 ``[nodes]``."""
        return self.row_ptr.diff()

    @cached_property
    def degree(self) -> Tensor:
        """Sum of the edge weights in every row, float ``[nodes]``, with their gradient."""
        if self.weight is None:
            return self.counts.to(torch.get_default_dtype())
        return self.weight.new_zeros(self.num_nodes).index_add(0, self.row, self.weight)

    def values(self, dtype: torch.dtype) -> Tensor | None:
        """Edge weights in the given type, or ``None`` for ones."""
        return None if self.weight is None else self.weight.to(dtype)

    @cached_property
    def transposed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row offsets, columns and the edge number of each entry of the transposed matrix."""
        order = torch.argsort(self.column, stable=True)
        counts = torch.bincount(self.column, minlength=self.num_nodes)
        return offsets(counts), self.row.index_select(0, order), order

    @cached_property
    def _loop_places(self) -> tuple[Tensor, Tensor]:
        """Positions of the loops and of the edges in ``with_self_loops``."""
        nodes = torch.arange(self.num_nodes, device=self.row.device)
        edges = torch.arange(self.row.numel(), device=self.row.device).add_(self.row).add_(1)
        return nodes.add_(self.row_ptr[:-1]), edges

    def beside_loops(self, edges: Tensor, loops: Tensor) -> Tensor:
        """Interleave values of edges and of loops in the order of :attr:`with_self_loops`."""
        loop_places, edge_places = self._loop_places
        laid = edges.new_zeros(len(edges) + len(loops), *edges.shape[1:])
        return laid.index_copy(0, loop_places, loops).index_copy(0, edge_places, edges)

    @cached_property
    def with_self_loops(self) -> Adjacency:
        """The same edges plus a self-loop of weight one at every node, first in its row."""
        nodes = torch.arange(self.num_nodes, device=self.column.device)
        weight = self.weight
        if weight is not None:
            weight = self.beside_loops(weight, weight.new_ones(self.num_nodes))
        return Adjacency(
            self.row_ptr + torch.arange(self.num_nodes + 1, device=self.column.device),
            self.beside_loops(self.column, nodes),
            symmetric=self.symmetric,
            weight=weight,
        )


def _weighted_sum(row_ptr: Tensor, column: Tensor, x: Tensor, values: Tensor | None) -> Tensor:
    """Weighted sum of the rows of ``x`` that each row lists."""
    return embedding_bag(
        column, x, row_ptr, mode="sum", include_last_offset=True, per_sample_weights=values
    )


class _SparseProduct(torch.autograd.Function):
    """``A @ x`` with the gradients of ``x`` and of the values of ``A``."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, values: Tensor | None, adjacency: Adjacency, symmetric: bool
    ) -> Tensor:
        ctx.adjacency, ctx.symmetric = adjacency, symmetric
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, values)
        # For detached tensors torch uses the forward-only kernel, which is twice as fast.
        detached = None if values is None else values.detach()
        return _weighted_sum(adjacency.row_ptr, adjacency.column, x.detach(), detached)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, values = ctx.saved_tensors
        if values is not None and not torch.is_grad_enabled():  # enabled for second derivatives
            values = values.detach()
        adjacency: Adjacency = ctx.adjacency
        gradient = gradients[0].contiguous()
        x_gradient = value_gradient = None
        if ctx.needs_input_grad[0]:
            if ctx.symmetric:
                row_ptr, column = adjacency.row_ptr, adjacency.column
            else:
                row_ptr, column, order = adjacency.transposed
                values = None if values is None else values.index_select(0, order)
            x_gradient = _weighted_sum(row_ptr, column, gradient, values)
        if ctx.needs_input_grad[1]:
            value_gradient = sampled_product(adjacency, gradient, x)
        return x_gradient, value_gradient, None, None


def sampled_product(adjacency: Adjacency, left: Tensor, right: Tensor) -> Tensor:
    """Compute ``left[i] · right[j]`` at every edge ``j → i`` without forming edge features."""
    half = left.dtype not in (torch.float32, torch.float64)
    if half or adjacency.column.numel() > adjacency.num_nodes**2:
        # Torch's kernel rejects half precision, and more edges than matrix entries, which repeated
        # edges can cause.
        ends = left.index_select(0, adjacency.row) * right.index_select(0, adjacency.column)
        return ends.sum(1)
    pattern = torch.sparse_csr_tensor(
        adjacency.row_ptr,
        adjacency.column,
        left.new_zeros(adjacency.column.numel()),
        (adjacency.num_nodes, adjacency.num_nodes),
        check_invariants=False,
    )
    product: Tensor = torch.sparse.sampled_addmm(pattern, left, right.t(), beta=0.0)
    return product.values()


def spmm(
    adjacency: Adjacency,
    x: Tensor,
    values: Tensor | None = None,
    *,
    symmetric_values: bool = True,
) -> Tensor:
    """Multiply a sparse adjacency with node features: ``out[i] = Σ_j values[i, j] · x[j]``.

    The adjacency's own ``weight`` is not applied. ``symmetric_values`` matters only for a symmetric
    adjacency: whether an edge and its reverse have the same value.
    """
    symmetric = adjacency.symmetric and symmetric_values
    values = None if values is None else values.to(x.dtype)  # features may be in half precision
    product: Tensor = _SparseProduct.apply(  # type: ignore[no-untyped-call]
        x.contiguous(), values, adjacency, symmetric
    )
    return product


class _RectifiedSum(torch.autograd.Function):
    """Fused :func:`rectified_sum`: stores one tensor per edge; separate operations store three."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, edges: Tensor, values: Tensor | None, adjacency: Adjacency
    ) -> Tensor:
        message = x.detach().index_select(0, adjacency.column).add_(edges.detach()).relu_()
        ctx.adjacency = adjacency
        ctx.save_for_backward(message, values)
        every = torch.arange(len(message), device=message.device)
        detached = None if values is None else values.detach()
        return _weighted_sum(adjacency.row_ptr, every, message, detached)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        message, values = ctx.saved_tensors
        adjacency: Adjacency = ctx.adjacency
        x_gradient = value_gradient = None
        arriving = gradient.index_select(0, adjacency.row)
        if ctx.needs_input_grad[2]:
            value_gradient = torch.linalg.vecdot(arriving, message)
        if values is not None:
            arriving.mul_(values.detach().unsqueeze(1))
        edge_gradient = torch.ops.aten.threshold_backward(arriving, message, 0.0)
        if ctx.needs_input_grad[0]:
            row_ptr, _, order = adjacency.transposed
            x_gradient = _weighted_sum(row_ptr, order, edge_gradient, None)
        return x_gradient, edge_gradient, value_gradient, None


def rectified_sum(
    adjacency: Adjacency, x: Tensor, edges: Tensor, values: Tensor | None = None
) -> Tensor:
    """Sum messages ``values[k] · relu(x[j] + edges[k])``, where k is j → i; differentiable once."""
    product: Tensor = _RectifiedSum.apply(  # type: ignore[no-untyped-call]
        x, edges, values, adjacency
    )
    return product
