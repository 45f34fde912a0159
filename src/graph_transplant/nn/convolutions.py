"""The paper's four convolutions (appendix, "Architecture"), and two that read edge attributes.

:meth:`Convolution.operator` turns an adjacency into a weighted matrix, once per batch and for all
layers of a model; ``forward`` multiplies by it. Nodes without neighbours receive a zero message;
edges of weight zero send nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, leaky_relu, linear

from graph_transplant.config.options import MODELS
from graph_transplant.data.adjacency import Adjacency, rectified_sum, spmm
from graph_transplant.errors import GraphTransplantError


@dataclass(frozen=True)
class Operator:
    """Weighted adjacency matrix shared by the layers of a model; ``values`` default to ones."""

    adjacency: Adjacency
    values: Tensor | None
    edge_attr: Tensor | None = None

    def __matmul__(self, x: Tensor) -> Tensor:
        return spmm(self.adjacency, x, self.values)


class Inputs(NamedTuple):
    """Node features ``[nodes, columns]``, and the hot index of one-hot columns after them."""

    dense: Tensor | None
    code: Tensor


def project(x: Tensor | Inputs, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Apply a linear map; one-hot columns are an embedding lookup."""
    if isinstance(x, Tensor):
        return linear(x, weight, bias)
    columns = 0 if x.dense is None else x.dense.shape[1]
    found = embedding(x.code, weight[:, columns:].t().contiguous())
    if x.dense is not None:
        found = torch.addmm(found, x.dense, weight[:, :columns].t())
    return found if bias is None else found + bias


def _symmetric_norm(adjacency: Adjacency, degree: Tensor, dtype: torch.dtype) -> Operator:
    """Divide every edge by the square root of its end nodes' degrees; a degree of 0 counts as 1.

    Edges into a node of degree 0 have weight 0: they send nothing but need a gradient. In directed
    graphs, nodes without incoming edges send nothing, as in PyG.
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
    """Whether edges are divided by the square root of the degrees of their end nodes."""
    takes_edge_attr: ClassVar[bool] = False
    """Whether it uses edge attributes, and has an argument ``edge_features``."""
    encodes_nodes: ClassVar[bool] = False
    """Whether the model must first map node features to the hidden width."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features

    @classmethod
    def operator(
        cls, adjacency: Adjacency, dtype: torch.dtype, edge_attr: Tensor | None = None
    ) -> Operator:
        """Create the matrix shared by all layers: the adjacency with self-loops and scaling."""
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
        """Return ``[nodes, out_features]``; only the first layer receives :class:`Inputs`."""


class GCNConvolution(Convolution):
    r"""Graph convolution with self-loops.

    .. math::
        x_v' = \Theta \sum_{u \in N(v) \cup \{v\}} \frac{e_{v,u}}{\sqrt{\hat d_u \hat d_v}} x_u,
        \qquad \hat d_v = 1 + d_v

    Self-loops in the data are kept beside the inserted ones.
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

    :math:`\epsilon` is initialised to zero and learned.
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

    :math:`a_{u,v}` are the attributes of the edge from u to v and :math:`e_{u,v}` is its weight.
    :math:`\epsilon` is initialised to zero and learned. As the ReLU acts before the layer can mix
    columns, the model encodes node features first.
    """

    takes_edge_attr = True
    encodes_nodes = True

    def __init__(self, in_features: int, out_features: int, *, edge_features: int) -> None:
        super().__init__(in_features, out_features)
        self.epsilon = nn.Parameter(torch.zeros(()))
        self.edge = nn.Linear(edge_features, in_features)
        self.first = nn.Linear(in_features, out_features)
        self.second = nn.Linear(out_features, out_features)
        # PyTorch's default initialisation shrinks activations in every layer, which without
        # normalisation slows down training by many epochs.
        for layer in (self.first, self.second):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")

    def forward(self, x: Tensor | Inputs, operator: Operator) -> Tensor:
        """Pass messages."""
        assert isinstance(x, Tensor)  # `encodes_nodes`
        edges = self.edge(operator.edge_attr)
        summed = rectified_sum(operator.adjacency, x, edges, operator.values)
        hidden = self.first(torch.addcmul(summed, x, 1.0 + self.epsilon))
        out: Tensor = self.second(hidden.relu())
        return out


class _Attention(Convolution, ABC):
    loops = True

    def __init__(self, in_features: int, out_features: int, heads: int = 4) -> None:
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
        """Pass messages weighted by attention; ``of_edges`` is added to the scores."""
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
            # Every row has a self-loop of weight one, so the largest score is finite.
            largest = torch.segment_reduce(
                counted.contiguous(), "max", offsets=adjacency.row_ptr, axis=0
            )
        # Edges of weight zero may exceed the largest score: clamp against overflow.
        share = (score - largest.index_select(0, adjacency.row)).clamp(max=20.0).exp()
        if weight is not None:
            share = share * weight.unsqueeze(1)
        total = share.new_zeros(adjacency.num_nodes, share.shape[1])
        total = total.index_add(0, adjacency.row, share)
        return share / total.index_select(0, adjacency.row)


class GATConvolution(_Attention):
    r"""Graph attention with self-loops and four concatenated heads.

    .. math::
        x_v' = \sum_{u \in N(v) \cup \{v\}} \alpha_{u,v} \Theta x_u, \qquad
        \alpha_{u,v} \propto e_{u,v} \exp(\mathrm{LeakyReLU}(a^\top [\Theta x_u \| \Theta x_v]))

    Deviation: gat-weight. The paper masks edges of weight zero. Multiplying by the weight is
    equivalent for weights 0 and 1, and lets the straight-through gradient reach the edge predictor.
    """

    def forward(self, x: Tensor | Inputs, operator: Operator) -> Tensor:
        """Pass messages."""
        return self._attend(x, operator, None)


class GATEdgeConvolution(_Attention):
    r"""Graph attention whose scores also depend on edge attributes.

    .. math::
        \alpha_{u,v} \propto e_{u,v} \exp(\mathrm{LeakyReLU}(
        a^\top [\Theta x_u \| \Theta x_v] + b^\top a_{u,v}))

    Otherwise like :class:`GATConvolution`. Inserted self-loops have the weighted mean attributes of
    the node's incoming edges, or zeros. PyG's layer factors :math:`b` into a projection and a
    vector, which is equivalent.
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
        assert operator.edge_attr is not None  # checked by the model
        return self._attend(x, operator, operator.edge_attr @ self.attend_edge.t())


def _mean_arriving(adjacency: Adjacency, values: Tensor) -> Tensor:
    """Weighted mean of ``[edges, columns]`` over each row; zeros if the total weight is 0."""
    weight = adjacency.values(values.dtype)
    weighted = values if weight is None else values * weight.unsqueeze(1)
    total = values.new_zeros(adjacency.num_nodes, values.shape[1])
    total = total.index_add(0, adjacency.row, weighted)
    degree = adjacency.degree.to(values.dtype)
    positive = degree > 0
    # The inner `where` keeps the gradient finite at degree zero.
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
