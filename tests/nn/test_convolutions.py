"""The convolutions against PyG's own layers, and against their formulas with edge weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch_geometric.data import Data

from graph_transplant.data import GraphBatch
from graph_transplant.nn import CONVOLUTIONS, Convolution, GATConvolution
from helpers.foreign_models import pyg_layer
from helpers.oracles import dense_adjacency, dense_gat, dense_gcn, dense_gcs, dense_gin
from helpers.strategies import draw, random_batch

NAMES = sorted(CONVOLUTIONS)
EDGE_FEATURES = 2
RING = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
BOTH = [e for u, v in RING for e in ((u, v), (v, u))]
EDGES: dict[str, list[tuple[int, int]]] = {
    "symmetric": BOTH,
    "directed": RING,
    "isolated": BOTH,
    "edgeless": [],
    "loops": [*BOTH, (1, 1), (3, 3)],
    "repeated": [*BOTH, (0, 1), (1, 0)],
    "zero-weight": BOTH,
}


def case(kind: str, *, weighted: bool = True) -> tuple[Tensor, Tensor | None, int]:
    """Edge list, weights and number of nodes."""
    edge_index = torch.tensor(EDGES[kind], dtype=torch.long).reshape(-1, 2).t().contiguous()
    low, high = edge_index.min(0).values, edge_index.max(0).values
    weight = 0.4 + 0.2 * low.double() + 0.13 * high.double()
    if kind == "zero-weight":
        weight = weight.masked_fill((low == 0) & (high > 1), 0.0)
    return edge_index, weight if weighted else None, 6 if kind == "isolated" else 4


def attributes(edge_index: Tensor) -> Tensor:
    """Edge attributes that tell an edge from its reverse and from its repetitions."""
    sender, receiver = edge_index.double()
    number = torch.arange(edge_index.shape[1], dtype=torch.double)
    return torch.stack(
        ((3 * sender + 7 * receiver + number).cos(), (5 * sender - 2 * receiver + 1).sin()), dim=1
    )


def layer(name: str, wide: int, narrow: int) -> Convolution:
    kind = CONVOLUTIONS[name]
    settings = {"edge_features": EDGE_FEATURES} if kind.takes_edge_attr else {}
    convolution = kind(wide, narrow, **settings).double()
    with torch.no_grad():  # nothing may hide behind a zero
        for place, parameter in enumerate(convolution.parameters()):
            parameter.copy_(0.7 * draw(place, *parameter.shape))
    return convolution


def ours(
    c: Convolution, x: Tensor, edge_index: Tensor, weight: Tensor | None, edge_attr: Tensor
) -> Tensor:
    """What the layer gives, the edges sorted into a batch first."""
    data = Data(x=x, edge_index=edge_index, edge_weight=weight, edge_attr=edge_attr)
    batch = GraphBatch.from_pyg(data)
    return c(x, c.operator(batch.adjacency, x.dtype, batch.edge_attr))


# ------------------------------------------------------------------ formulas


def dense_gine(c: Convolution, x: Tensor, edge_index: Tensor, weight: Tensor, a: Tensor) -> Tensor:
    """The formula, edge by edge."""
    rows = [(1 + c.epsilon) * x[node] for node in range(len(x))]
    for edge, (u, v) in enumerate(edge_index.t().tolist()):
        message = x[u] + c.edge.weight @ a[edge] + c.edge.bias
        rows[v] = rows[v] + weight[edge] * message.clamp(min=0)
    return c.second(c.first(torch.stack(rows)).clamp(min=0))


def dense_gat_edge(
    c: Convolution, x: Tensor, edge_index: Tensor, weight: Tensor, a: Tensor
) -> Tensor:
    """The formula, node by node: the loop of a node has the weighted mean of what arrives."""
    hidden = (x @ c.linear.weight.t()).view(len(x), c.heads, -1)
    ends = edge_index.t().tolist()
    rows = []
    for node in range(len(x)):
        arriving = [e for e, (_, v) in enumerate(ends) if v == node]
        total = sum((weight[e] for e in arriving), torch.zeros((), dtype=x.dtype))
        mean = torch.zeros(a.shape[1], dtype=x.dtype)
        if float(total.detach()) > 0:
            mean = sum((weight[e] * a[e] for e in arriving), mean) / total
        senders = [node] + [ends[e][0] for e in arriving]
        weights = torch.stack([torch.ones((), dtype=x.dtype)] + [weight[e] for e in arriving])
        score = (
            (hidden[senders] * c.attend_sender).sum(-1)
            + (hidden[node] * c.attend_receiver).sum(-1)
            + torch.stack([mean] + [a[e] for e in arriving]) @ c.attend_edge.t()
        )
        share = torch.where(score > 0, score, 0.2 * score).exp() * weights.unsqueeze(1)
        share = share / share.sum(0)
        rows.append((share.unsqueeze(2) * hidden[senders]).sum(0).flatten())
    return torch.stack(rows) + c.bias


def dense(
    name: str, c: Convolution, x: Tensor, edge_index: Tensor, weight: Tensor | None, a: Tensor
) -> Tensor:
    if weight is None:
        weight = torch.ones(edge_index.shape[1], dtype=x.dtype)
    if c.takes_edge_attr:
        formula = dense_gine if name == "gine" else dense_gat_edge
        return formula(c, x, edge_index, weight, a)
    matrix = dense_adjacency(edge_index, weight, len(x))
    if name == "gcn":
        return dense_gcn(x, matrix, c.linear.weight, c.linear.bias)
    if name == "gcs":
        return dense_gcs(x, matrix, c.linear.weight, c.skip.weight, c.skip.bias)
    if name == "gin":
        return dense_gin(x, matrix, c.epsilon, c.first, c.second)
    vectors = c.attend_sender, c.attend_receiver
    return dense_gat(x, edge_index, weight, c.linear.weight, *vectors, c.bias)


def assert_same(result: Tensor, expected: Tensor, leaves: list[Tensor]) -> None:
    """Values and gradients."""
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-11)
    upstream = draw(9, *result.shape)
    # Without edges, nothing depends on how they would be read.
    found = torch.autograd.grad(result, leaves, upstream, materialize_grads=True)
    wanted = torch.autograd.grad(expected, leaves, upstream, materialize_grads=True)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", sorted(EDGES))
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_against_the_formula(name: str, kind: str) -> None:
    for weighted in (False, True):
        for wide, narrow in ((3, 4), (5, 4)):  # wider and narrower multiply in another order
            edge_index, weight, nodes = case(kind, weighted=weighted)
            convolution, x = layer(name, wide, narrow), draw(1, nodes, wide).requires_grad_()
            given = attributes(edge_index).requires_grad_()
            leaves = [x, given, *convolution.parameters()]
            if weight is not None:
                leaves.append(weight.requires_grad_())
            result = ours(convolution, x, edge_index, weight, given)
            expected = dense(name, convolution, x, edge_index, weight, given)
            assert_same(result, expected, leaves)


@pytest.mark.parametrize("kind", ["symmetric", "directed"])
@pytest.mark.parametrize("name", NAMES)
def test_gradcheck(name: str, kind: str) -> None:
    edge_index, weight, nodes = case(kind)
    convolution = layer(name, 3, 4)
    names = [n for n, _ in convolution.named_parameters()]

    def run(x: Tensor, weight: Tensor, given: Tensor, *parameters: Tensor) -> Tensor:
        data = Data(x=x, edge_index=edge_index, edge_weight=weight, edge_attr=given)
        batch = GraphBatch.from_pyg(data)
        operator = convolution.operator(batch.adjacency, x.dtype, batch.edge_attr)
        return functional_call(
            convolution, dict(zip(names, parameters, strict=True)), (x, operator)
        )

    parameters = [p.detach().clone() for p in convolution.parameters()]
    leaves = [draw(1, nodes, 3), weight, attributes(edge_index), *parameters]
    assert torch.autograd.gradcheck(run, [leaf.requires_grad_() for leaf in leaves])


# ------------------------------------------------------------------ PyG


@pytest.mark.parametrize("undirected", [True, False], ids=["undirected", "directed"])
@pytest.mark.parametrize("name", [*NAMES, "gcn weighted", "gcs weighted"])
def test_against_pygs_own_layers(name: str, undirected: bool) -> None:
    name, _, weighted = name.partition(" ")
    generator = torch.Generator().manual_seed(8)
    batch = random_batch(generator, undirected=undirected, edge_weight=bool(weighted))
    x = batch.x.double().requires_grad_()
    given = attributes(batch.edge_index).requires_grad_()
    weight = batch.edge_weight.double().requires_grad_() if weighted else None
    convolution = layer(name, 3, 8)
    theirs = pyg_layer(convolution)
    further = ([given] if convolution.takes_edge_attr else []) if weight is None else [weight]
    expected = theirs(x, batch.edge_index, *further)
    if name == "gcs":
        expected = expected + convolution.skip(x)
    assert_same(ours(convolution, x, batch.edge_index, weight, given), expected, [x, *further])


# ------------------------------------------------------------------ edges of weight zero


@pytest.mark.parametrize("name", NAMES)
def test_an_edge_of_weight_zero_is_no_edge(name: str) -> None:
    edge_index, weight, nodes = case("zero-weight")
    assert weight is not None
    convolution, x, a = layer(name, 3, 4), draw(1, nodes, 3), attributes(edge_index)
    present = weight > 0
    whole = ours(convolution, x, edge_index, weight, a)
    without = ours(convolution, x, edge_index[:, present], weight[present], a[present])
    torch.testing.assert_close(whole, without, rtol=1e-12, atol=1e-12)
    # All edges of weight zero: the nodes are isolated, and gradients are finite.
    leaves = [x.requires_grad_(), torch.zeros_like(weight).requires_grad_()]
    none = ours(convolution, x, edge_index, leaves[1], a)
    bare = ours(convolution, x, edge_index[:, :0], None, a[:0])
    torch.testing.assert_close(none, bare, rtol=1e-12, atol=1e-12)
    for gradient in torch.autograd.grad(none.square().sum(), leaves):
        assert bool(torch.isfinite(gradient).all())


def test_gcs_slope_at_a_node_of_degree_zero() -> None:
    # A path 0 - 1 - 2 whose first edge has weight w = 0: node 0 has degree 0, which counts as 1.
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    convolution, x = layer("gcs", 3, 4), draw(1, 3, 3)

    def formula(w: float, degree: float) -> Tensor:
        """The layer's formula for a given degree of node 0."""
        scale = torch.tensor([degree, 1.0 + w, 1.0], dtype=torch.double).rsqrt()
        matrix = torch.tensor([[0, w, 0], [w, 0, 1], [0, 1, 0]], dtype=torch.double)
        passed = scale.unsqueeze(1) * matrix * scale @ x @ convolution.linear.weight.t()
        return convolution.skip(x) + passed

    w = torch.zeros((), dtype=torch.double, requires_grad=True)
    one = torch.ones((), dtype=torch.double)
    out = ours(convolution, x, edge_index, torch.stack((w, w, one, one)), attributes(edge_index))
    torch.testing.assert_close(out, formula(0.0, 1.0))
    upstream = draw(2, 3, 4)
    for node in (slice(None), 0):
        (slope,) = torch.autograd.grad((upstream * out)[node].sum(), w, retain_graph=True)
        step = 1e-6
        change = formula(step, 1.0) - formula(-step, 1.0)
        difference = float((upstream * change)[node].sum().detach()) / (2 * step)
        assert float(slope) == pytest.approx(difference, rel=1e-6)
    # What reaches node 0 moves the way the slope says when the edge really appears.
    appeared = (upstream * (formula(0.01, 0.01) - formula(0.0, 1.0)))[0].sum()
    assert float(slope) * float(appeared.detach()) > 0


def test_attention_survives_extreme_scores() -> None:
    # Scores of ±1000 overflow a plain exponential; the edge of weight zero has the largest.
    convolution = GATConvolution(1, 1, heads=1)
    with torch.no_grad():
        convolution.linear.weight.fill_(1.0)
        convolution.attend_sender.fill_(1.0)
        convolution.attend_receiver.fill_(0.0)
    x = torch.tensor([[0.0], [1000.0], [900.0], [-1000.0]], requires_grad=True)
    weight = torch.tensor([0.0, 1.0, 1.0], requires_grad=True)
    out = ours(convolution, x, torch.tensor([[1, 2, 3], [0, 0, 0]]), weight, torch.zeros(3, 1))
    assert float(out[0].detach()) == pytest.approx(900.0)
    for gradient in torch.autograd.grad(out[0].sum(), (x, weight)):
        assert bool(torch.isfinite(gradient).all())
