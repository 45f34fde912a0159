"""The paper's four convolutions (appendix, "Architecture"), and two that read edge attributes.

A convolution splits its work: :meth:`Convolution.operator` turns an adjacency into the weighted
matrix that all layers of a model share, computed once per batch; ``forward`` multiplies with it.
A node without neighbours receives the zero message; an edge of weight zero sends nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, leaky_relu, linear

from graph_transplant.errors import GraphTransplantError
from graph_transplant.recipes import MODELS
from graph_transplant.sparse import Adjacency, rectified_sum, spmm


@dataclass(frozen=True)
class Operator:
    """What the layers of one model multiply with; ``values`` of ``None`` stand for ones."""

    adjacency: Adjacency
    values: Tensor | None
    edge_attr: Tensor | None = None

    def __matmul__(self, x: Tensor) -> Tensor:
        return spmm(self.adjacency, x, self.values)


class Inputs(NamedTuple):
    """Node features ``[nodes, columns]`` and, of one-hot columns after them, which one is one."""

    dense: Tensor | None
    code: Tensor


def project(x: Tensor | Inputs, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Apply a linear map; one-hot columns are looked up in its weights, not multiplied."""
    if isinstance(x, Tensor):
        return linear(x, weight, bias)
    columns = 0 if x.dense is None else x.dense.shape[1]
    found = embedding(x.code, weight[:, columns:].t().contiguous())
    if x.dense is not None:
        found = torch.addmm(found, x.dense, weight[:, :columns].t())
    return found if bias is None else found + bias


def _symmetric_norm(adjacency: Adjacency, degree: Tensor, dtype: torch.dtype) -> Operator:
    """Divide every edge by the root of the degrees at its ends, a degree of 0 counting as 1.

    Only edges of weight 0 lead to a node of degree 0: they send nothing, but have a gradient. In
    directed graphs a node that no edge leads to sends nothing, as in PyG.
    """
    degree = degree.to(dtype)
    scale = torch.where(degree > 0, degree, torch.ones_like(degree)).rsqrt()
    sending = scale if adjacency.symmetric else scale.masked_fill(degree <= 0, 0.0)
    values = scale.index_select(0, adjacency.row) * sending.index_select(0, adjacency.column)
    weight = adjacency.values(dtype)
    return Operator(adjacency, values if weight is None else values * weight)


class Convolution(nn.Module, ABC):
    """One message-passing layer, without its activation."""

    loops: ClassVar[bool] = False
    """Whether every node gets a self-loop."""
    normalised: ClassVar[bool] = False
    """Whether an edge is divided by the root of the degrees at its ends."""
    takes_edge_attr: ClassVar[bool] = False
    """Whether this kind reads edge attributes; it then has an argument ``edge_features``."""
    encodes_nodes: ClassVar[bool] = False
    """Whether a model of this kind first maps the node features to the width of its layers."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features

    @classmethod
    def operator(
        cls, adjacency: Adjacency, dtype: torch.dtype, edge_attr: Tensor | None = None
    ) -> Operator:
        """The matrix that every layer of this kind shares on one batch: A, looped and scaled."""
        looped = adjacency.with_self_loops if cls.loops else adjacency
        if cls.normalised:
            degree = adjacency.degree + 1.0 if cls.loops else adjacency.degree
            return _symmetric_norm(looped, degree, dtype)
        if edge_attr is not None:
            edge_attr = edge_attr.to(dtype)
            if cls.loops:
                edge_attr = adjacency.beside_loops(edge_attr, _mean_arriving(adjacency, edge_attr))
        return Operator(looped, looped.values(dtype), edge_attr)

    @abstractmethod
    def forward(self, x: Tensor | Inputs, operator: Operator) -> Tensor:
        """Pass messages, ``[nodes, out_features]``; the first layer also takes :class:`Inputs`."""


class GCNConvolution(Convolution):
    r"""Graph convolution with self-loops.

    .. math::
        x_v' = \Theta \sum_{u \in N(v) \cup \{v\}} \frac{e_{v,u}}{\sqrt{\hat d_u \hat d_v}} x_u,
        \qquad \hat d_v = 1 + d_v

    A self-loop in the data is one more edge beside the inserted one.
    """

    loops = normalised = True

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: Tensor | Inputs, operator: Operator) -> Tensor:
        """Pass messages."""
        if isinstance(x, Tensor) and self.in_features <= self.out_features:
            passed: Tensor = self.linear(operator @ x)
            return passed
        return operator @ project(x, self.linear.weight) + self.linear.bias


class GCSConvolution(Convolution):
    r"""Graph convolution without self-loops, with a learned skip connection.

    .. math::
        x_v' = \Theta_{skip} x_v + \Theta \sum_{u \in N(v)} \frac{e_{v,u}}{\sqrt{d_u d_v}} x_u
    """

    normalised = True

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.skip = nn.Linear(in_features, out_features)

    def forward(self, x: Tensor | Inputs, operator: Operator) -> Tensor:
        """Pass messages."""
        skipped = project(x, self.skip.weight, self.skip.bias)
        if isinstance(x, Tensor) and self.in_features <= self.out_features:
            return torch.add(skipped, self.linear(operator @ x))
        return torch.add(skipped, operator @ project(x, self.linear.weight))


class GINConvolution(Convolution):
    r"""Graph isomorphism layer: a two-layer perceptron on the sum of the neighbours.

    .. math::
        x_v' = h_\Theta\Big((1 + \epsilon) x_v + \sum_{u \in N(v)} e_{u,v} x_u\Big)

    :math:`\epsilon` is learned, from zero.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.epsilon = nn.Parameter(torch.zeros(()))
        self.first = nn.Linear(in_features, out_features)
        self.second = nn.Linear(out_features, out_features)

    def forward(self, x: Tensor | Inputs, operator: Operator) -> Tensor:
        """Pass messages."""
        if isinstance(x, Tensor) and self.in_features <= self.out_features:
            hidden = self.first(torch.addcmul(operator @ x, x, 1.0 + self.epsilon))
        else:
            narrow = project(x, self.first.weight)
            summed = torch.addcmul(operator @ narrow, narrow, 1.0 + self.epsilon)
            hidden = summed + self.first.bias
        out: Tensor = self.second(hidden.relu())
        return out


class GINEConvolution(Convolution):
    r"""Graph isomorphism layer with edge attributes (Hu et al., 2020).

    .. math::
        x_v' = h_\Theta\Big((1 + \epsilon) x_v +
        \sum_{u \in N(v)} e_{u,v} \, \mathrm{ReLU}(x_u + W a_{u,v} + b)\Big)

    :math:`a_{u,v}` are the attributes of the edge from u to v and :math:`e_{u,v}` its weight, which
    multiplies the message. :math:`\epsilon` is learned, from zero. A sum is rectified before the
    layer can mix its columns, so that a model of this kind encodes the node features first.
    """

    takes_edge_attr = True
    encodes_nodes = True

    def __init__(self, in_features: int, out_features: int, *, edge_features: int) -> None:
        super().__init__(in_features, out_features)
        self.epsilon = nn.Parameter(torch.zeros(()))
        self.edge = nn.Linear(edge_features, in_features)
        self.first = nn.Linear(in_features, out_features)
        self.second = nn.Linear(out_features, out_features)
        # Torch's own first weights shrink what passes through every layer. Without normalisation
        # that costs this model, with its two further linear maps, many epochs.
        for layer in (self.first, self.second):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")

    def forward(self, x: Tensor | Inputs, operator: Operator) -> Tensor:
        """Pass messages."""
        assert isinstance(x, Tensor)  # the model encodes its inputs first
        edges = self.edge(operator.edge_attr)
        summed = rectified_sum(operator.adjacency, x, edges, operator.values)
        hidden = self.first(torch.addcmul(summed, x, 1.0 + self.epsilon))
        out: Tensor = self.second(hidden.relu())
        return out


class _Attention(Convolution, ABC):
    """What both kinds of graph attention share."""

    loops = True

    def __init__(self, in_features: int, out_features: int, heads: int) -> None:
        super().__init__(in_features, out_features)
        if out_features % heads:
            raise GraphTransplantError(
                f"`hidden` must be divisible by the {heads} attention heads; got {out_features}"
            )
        self.heads = heads
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.attend_sender = nn.Parameter(torch.empty(heads, out_features // heads))
        self.attend_receiver = nn.Parameter(torch.empty(heads, out_features // heads))
        self.bias = nn.Parameter(torch.zeros(out_features))
        for parameter in (self.linear.weight, self.attend_sender, self.attend_receiver):
            nn.init.xavier_uniform_(parameter)

    def _attend(self, x: Tensor | Inputs, operator: Operator, of_edges: Tensor | None) -> Tensor:
        """Pass messages weighted by attention; ``of_edges`` are added to scores of ``A + I``."""
        adjacency = operator.adjacency
        hidden = project(x, self.linear.weight).view(adjacency.num_nodes, self.heads, -1)
        sender = (hidden * self.attend_sender).sum(-1)
        receiver = (hidden * self.attend_receiver).sum(-1)
        ends = sender.index_select(0, adjacency.column) + receiver.index_select(0, adjacency.row)
        score = leaky_relu(ends if of_edges is None else ends + of_edges, 0.2)
        attention = self._attention(score, operator)
        heads = [
            spmm(adjacency, hidden[:, head], attention[:, head], symmetric_values=False)
            for head in range(self.heads)
        ]
        return torch.cat(heads, dim=1) + self.bias

    @staticmethod
    def _attention(score: Tensor, operator: Operator) -> Tensor:
        """Weighted softmax of the scores ``[edges, heads]`` over the edges of each row."""
        adjacency, weight = operator.adjacency, operator.values
        with torch.no_grad():
            counted = score.detach()
            if weight is not None:
                counted = counted.masked_fill((weight <= 0).unsqueeze(1), -torch.inf)
            # Every row has its self-loop of weight one, so that the largest score is finite.
            largest = torch.segment_reduce(
                counted.contiguous(), "max", offsets=adjacency.row_ptr, axis=0
            )
        # An edge of weight zero may exceed the largest counted score; bound it against overflow.
        share = (score - largest.index_select(0, adjacency.row)).clamp(max=20.0).exp()
        if weight is not None:
            share = share * weight.unsqueeze(1)
        total = share.new_zeros(adjacency.num_nodes, share.shape[1])
        total = total.index_add(0, adjacency.row, share)
        return share / total.index_select(0, adjacency.row)


class GATConvolution(_Attention):
    r"""Graph attention with self-loops, four heads side by side.

    .. math::
        x_v' = \sum_{u \in N(v) \cup \{v\}} \alpha_{u,v} \Theta x_u, \qquad
        \alpha_{u,v} \propto e_{u,v} \exp(\mathrm{LeakyReLU}(a^\top [\Theta x_u \| \Theta x_v]))

    Deviation: gat-weight. The paper masks edges of weight zero; multiplying by the weight is the
    same for weights of zero and one, and lets the straight-through gradient reach the edge
    predictor.
    """

    def __init__(self, in_features: int, out_features: int, heads: int = 4) -> None:
        super().__init__(in_features, out_features, heads)

    def forward(self, x: Tensor | Inputs, operator: Operator) -> Tensor:
        """Pass messages."""
        return self._attend(x, operator, None)


class GATEdgeConvolution(_Attention):
    r"""Graph attention whose scores also see the edge attributes.

    .. math::
        \alpha_{u,v} \propto e_{u,v} \exp(\mathrm{LeakyReLU}(
        a^\top [\Theta x_u \| \Theta x_v] + b^\top a_{u,v}))

    Otherwise as :class:`GATConvolution`. An inserted self-loop has the weighted mean of the
    attributes of the edges that arrive at its node, or zeros where none does. PyG's layer factors
    :math:`b` into a projection and a vector, of which only the product counts.
    """

    takes_edge_attr = True

    def __init__(
        self, in_features: int, out_features: int, heads: int = 4, *, edge_features: int
    ) -> None:
        super().__init__(in_features, out_features, heads)
        self.attend_edge = nn.Parameter(torch.empty(heads, edge_features))
        nn.init.xavier_uniform_(self.attend_edge)

    def forward(self, x: Tensor | Inputs, operator: Operator) -> Tensor:
        """Pass messages."""
        assert operator.edge_attr is not None  # the model has checked its batch
        return self._attend(x, operator, operator.edge_attr @ self.attend_edge.t())


def _mean_arriving(adjacency: Adjacency, values: Tensor) -> Tensor:
    """Average ``[edges, columns]`` over each row by weight; zeros where the row weighs nothing."""
    weight = adjacency.values(values.dtype)
    weighted = values if weight is None else values * weight.unsqueeze(1)
    total = values.new_zeros(adjacency.num_nodes, values.shape[1])
    total = total.index_add(0, adjacency.row, weighted)
    degree = adjacency.degree.to(values.dtype)
    positive = degree > 0
    # The inner where keeps the gradient finite at degree zero.
    share = torch.where(positive, torch.where(positive, degree, 1.0).reciprocal(), 0.0)
    return total * share.unsqueeze(1)


CONVOLUTIONS: dict[str, type[Convolution]] = dict(
    zip(
        MODELS,
        (
            GCNConvolution,
            GCSConvolution,
            GINConvolution,
            GATConvolution,
            GINEConvolution,
            GATEdgeConvolution,
        ),
        strict=True,
    )
)
