"""The convolutions against dense algebra and against PyG's own layers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, GINEConv

from graph_transplant.errors import GraphTransplantError
from graph_transplant.nn import CONVOLUTIONS, Convolution, GATConvolution, GraphClassifier
from graph_transplant.sparse import Adjacency
from oracles import dense_adjacency, dense_gat, dense_gcn, dense_gcs, dense_gin
from strategies import random_batch

NAMES = sorted(CONVOLUTIONS)
EDGE_FEATURES = 2
KINDS = (
    "symmetric",
    "symmetric-weighted",
    "directed",
    "directed-weighted",
    "zero-weight",
    "isolated",
    "edgeless",
    "loops",
    "repeated",
)
# Wider and narrower outputs multiply in another order.
WIDTHS = ((3, 4), (5, 4))


def case(kind: str) -> tuple[Tensor, Tensor | None, int]:
    """Edge list, weights and number of nodes."""
    ring = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
    both = [e for u, v in ring for e in ((u, v), (v, u))]
    listed = {
        "isolated": both,
        "edgeless": [],
        "loops": [*both, (1, 1), (3, 3)],
        "repeated": [*both, (0, 1), (1, 0)],
        "directed": ring,
        "directed-weighted": ring,
    }.get(kind, both)
    nodes = 6 if kind == "isolated" else 4
    edge_index = torch.tensor(listed, dtype=torch.long).reshape(-1, 2).t().contiguous()
    weight = None
    if kind.endswith("weighted") or kind == "zero-weight":
        low, high = edge_index.min(0).values, edge_index.max(0).values
        weight = 0.4 + 0.2 * low.double() + 0.13 * high.double()
        if kind == "zero-weight":
            weight = weight.masked_fill((low == 0) & (high > 1), 0.0)
    return edge_index, weight, nodes


def attributes(edge_index: Tensor) -> Tensor:
    """Edge attributes that tell an edge from its reverse and from its repetitions."""
    sender, receiver = edge_index.double()
    number = torch.arange(edge_index.shape[1], dtype=torch.double)
    return torch.stack(
        ((3 * sender + 7 * receiver + number).cos(), (5 * sender - 2 * receiver + 1).sin()), dim=1
    )


def layer(name: str, wide: int, narrow: int) -> Convolution:
    torch.manual_seed(5)
    kind = CONVOLUTIONS[name]
    settings = {"edge_features": EDGE_FEATURES} if kind.takes_edge_attr else {}
    convolution = kind(wide, narrow, **settings).double()
    with torch.no_grad():  # nothing may hide behind a zero
        for parameter in convolution.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.7)
    return convolution


def ours(
    convolution: Convolution,
    x: Tensor,
    edge_index: Tensor,
    weight: Tensor | None,
    edge_attr: Tensor | None = None,
) -> Tensor:
    adjacency = Adjacency.from_edges(edge_index, len(x), weight)
    if convolution.takes_edge_attr and edge_attr is None:
        edge_attr = attributes(edge_index)
    return convolution(x, convolution.operator(adjacency, x.dtype, edge_attr))


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
        seen = torch.stack([mean] + [a[e] for e in arriving])
        score = (
            (hidden[senders] * c.attend_sender).sum(-1)
            + (hidden[node] * c.attend_receiver).sum(-1)
            + seen @ c.attend_edge.t()
        )
        share = torch.where(score > 0, score, 0.2 * score).exp() * weights.unsqueeze(1)
        share = share / share.sum(0)
        rows.append((share.unsqueeze(2) * hidden[senders]).sum(0).flatten())
    return torch.stack(rows) + c.bias


def dense(
    name: str,
    c: Convolution,
    x: Tensor,
    edge_index: Tensor,
    weight: Tensor | None,
    edge_attr: Tensor | None = None,
) -> Tensor:
    if weight is None:
        weight = torch.ones(edge_index.shape[1], dtype=x.dtype)
    if c.takes_edge_attr:
        assert edge_attr is not None
        formula = dense_gine if name == "gine" else dense_gat_edge
        return formula(c, x, edge_index, weight, edge_attr)
    matrix = dense_adjacency(edge_index, weight, len(x))
    if name == "gcn":
        return dense_gcn(x, matrix, c.linear.weight, c.linear.bias)
    if name == "gcs":
        return dense_gcs(x, matrix, c.linear.weight, c.skip.weight, c.skip.bias)
    if name == "gin":
        return dense_gin(x, matrix, c.epsilon, c.first, c.second)
    return dense_gat(
        x, edge_index, weight, c.linear.weight, c.attend_sender, c.attend_receiver, c.bias
    )


@pytest.mark.parametrize("widths", WIDTHS, ids=["wider", "narrower"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_against_dense_algebra(
    name: str, kind: str, widths: tuple[int, int]
) -> None:
    edge_index, weight, nodes = case(kind)
    convolution = layer(name, *widths)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(nodes, widths[0], generator=generator, dtype=torch.double).requires_grad_()
    upstream = torch.randn(nodes, widths[1], generator=generator, dtype=torch.double)
    leaves = [x, *convolution.parameters()]
    if weight is not None:
        leaves.append(weight.requires_grad_())
    edge_attr = None
    if convolution.takes_edge_attr:
        edge_attr = attributes(edge_index).requires_grad_()
        leaves.append(edge_attr)
    result = ours(convolution, x, edge_index, weight, edge_attr)
    expected = dense(name, convolution, x, edge_index, weight, edge_attr)
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-11)
    # Without edges, nothing depends on how they would be read.
    found = torch.autograd.grad(result, leaves, upstream, materialize_grads=True)
    wanted = torch.autograd.grad(expected, leaves, upstream, materialize_grads=True)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["symmetric-weighted", "directed-weighted"])
@pytest.mark.parametrize("name", NAMES)
def test_gradcheck(name: str, kind: str) -> None:
    edge_index, weight, nodes = case(kind)
    assert weight is not None
    convolution = layer(name, 3, 4)
    names = [n for n, _ in convolution.named_parameters()]
    x = torch.randn(nodes, 3, generator=torch.Generator().manual_seed(1), dtype=torch.double)

    taken = attributes(edge_index)

    def run(features: Tensor, weights: Tensor, edge_attr: Tensor, *parameters: Tensor) -> Tensor:
        adjacency = Adjacency.from_edges(edge_index, nodes, weights)
        given = edge_attr if convolution.takes_edge_attr else None
        operator = convolution.operator(adjacency, features.dtype, given)
        values = dict(zip(names, parameters, strict=True))
        return functional_call(convolution, values, (features, operator))

    leaves = [x, weight, taken, *(p.detach().clone() for p in convolution.parameters())]
    assert torch.autograd.gradcheck(run, [leaf.requires_grad_() for leaf in leaves])


@pytest.mark.parametrize("name", NAMES)
def test_an_edge_of_weight_zero_is_no_edge(name: str) -> None:
    edge_index, weight, nodes = case("zero-weight")
    assert weight is not None
    convolution = layer(name, 3, 4)
    x = torch.randn(nodes, 3, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    present = weight > 0
    assert 0 < int(present.sum()) < len(weight)
    edge_attr = attributes(edge_index)
    whole = ours(convolution, x, edge_index, weight, edge_attr)
    without = ours(convolution, x, edge_index[:, present], weight[present], edge_attr[present])
    torch.testing.assert_close(whole, without, rtol=1e-12, atol=1e-12)
    # All edges of a node at weight zero: the node is isolated, not undefined.
    none = ours(convolution, x, edge_index, torch.zeros_like(weight))
    bare = ours(convolution, x, edge_index[:, :0], None)
    torch.testing.assert_close(none, bare, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_zero_weights_have_finite_gradients(name: str) -> None:
    edge_index, weight, nodes = case("symmetric-weighted")
    assert weight is not None
    convolution = layer(name, 3, 4)
    x = torch.randn(nodes, 3, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    weights = torch.zeros_like(weight).requires_grad_()
    x.requires_grad_()
    result = ours(convolution, x, edge_index, weights)
    for gradient in torch.autograd.grad(result.square().sum(), (x, weights)):
        assert bool(torch.isfinite(gradient).all())


def test_attention_survives_extreme_scores() -> None:
    # Scores of ±1000 overflow a plain exponential; the edge of weight zero has the largest.
    convolution = GATConvolution(1, 1, heads=1)
    with torch.no_grad():
        convolution.linear.weight.fill_(1.0)
        convolution.attend_sender.fill_(1.0)
        convolution.attend_receiver.fill_(0.0)
    x = torch.tensor([[0.0], [1000.0], [900.0], [-1000.0]], requires_grad=True)
    edge_index = torch.tensor([[1, 2, 3], [0, 0, 0]])
    weight = torch.tensor([0.0, 1.0, 1.0], requires_grad=True)
    out = ours(convolution, x, edge_index, weight)
    assert float(out[0].detach()) == pytest.approx(900.0)
    for gradient in torch.autograd.grad(out[0].sum(), (x, weight)):
        assert bool(torch.isfinite(gradient).all())


def pyg_layer(name: str, c: Convolution) -> nn.Module:
    """PyG's own layer with copied parameters."""
    wide, narrow = c.in_features, c.out_features
    if name == "gin":
        module = GINConv(nn.Sequential(c.first, nn.ReLU(), c.second), train_eps=True)
        module.eps.data.fill_(float(c.epsilon.detach()))
        return module.double()
    if name == "gine":
        steps = nn.Sequential(c.first, nn.ReLU(), c.second)
        gine = GINEConv(steps, train_eps=True, edge_dim=EDGE_FEATURES).double()
        gine.eps.data.fill_(float(c.epsilon.detach()))
        gine.lin.load_state_dict(c.edge.state_dict())
        return gine
    if name in ("gat", "gat-edge"):
        edge_dim = EDGE_FEATURES if name == "gat-edge" else None
        gat = GATConv(wide, narrow // c.heads, heads=c.heads, edge_dim=edge_dim).double()
        gat.lin.weight.data.copy_(c.linear.weight)
        gat.att_src.data.copy_(c.attend_sender.unsqueeze(0))
        gat.att_dst.data.copy_(c.attend_receiver.unsqueeze(0))
        gat.bias.data.copy_(c.bias)
        if edge_dim is not None:  # PyG has two factors; ours is their product
            factor = gat.lin_edge.weight.detach().view(c.heads, -1, edge_dim)
            product = (factor * gat.att_edge.detach()[0].unsqueeze(2)).sum(1)
            c.attend_edge.data.copy_(product)
        return gat
    gcn = GCNConv(wide, narrow, add_self_loops=name == "gcn", bias=name == "gcn").double()
    gcn.lin.weight.data.copy_(c.linear.weight)
    if name == "gcn":
        gcn.bias.data.copy_(c.linear.bias)
    return gcn


@pytest.mark.parametrize("undirected", [True, False], ids=["undirected", "directed"])
@pytest.mark.parametrize("weighted", [True, False], ids=["weighted", "plain"])
@pytest.mark.parametrize("name", NAMES)
def test_against_pygs_own_layers(name: str, weighted: bool, undirected: bool) -> None:
    if weighted and name in ("gin", "gat", "gine", "gat-edge"):
        weighted = False  # PyG's layers take no edge_weight: nothing to compare
    batch = random_batch(
        torch.Generator().manual_seed(8), undirected=undirected, edge_weight=weighted
    )
    x = batch.x.double().requires_grad_()
    weight = batch.edge_weight.double().requires_grad_() if weighted else None
    convolution = layer(name, 3, 8)
    theirs = pyg_layer(name, convolution)
    arguments = (x, batch.edge_index) if weight is None else (x, batch.edge_index, weight)
    leaves = [x] if weight is None else [x, weight]
    edge_attr = None
    if convolution.takes_edge_attr:
        edge_attr = attributes(batch.edge_index).requires_grad_()
        arguments = (*arguments, edge_attr)
        leaves.append(edge_attr)
    expected = theirs(*arguments)
    if name == "gcs":
        expected = expected + convolution.skip(x)
    result = ours(convolution, x, batch.edge_index, weight, edge_attr)
    torch.testing.assert_close(result, expected)
    upstream = torch.randn(
        result.shape, generator=torch.Generator().manual_seed(9), dtype=torch.double
    )
    found = torch.autograd.grad(result, leaves, upstream)
    for one, other in zip(found, torch.autograd.grad(expected, leaves, upstream), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", NAMES)
def test_edge_weight_gets_gradients_on_every_pass_over_one_batch(name: str) -> None:
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    weight = torch.tensor([1.0, 1.0, 2.0, 2.0], requires_grad=True)
    x = torch.tensor([[1.0], [-2.0], [0.5]])
    edge_attr = attributes(edge_index).float()
    batch = Data(x=x, edge_index=edge_index, edge_weight=weight, edge_attr=edge_attr)
    width = EDGE_FEATURES if CONVOLUTIONS[name].takes_edge_attr else 0
    model = GraphClassifier(1, 2, conv=name, layers=2, hidden=8, edge_features=width, seed=0).eval()
    with torch.no_grad():
        model(batch)
    found = [torch.autograd.grad(model(batch).logits[0, 0], weight)[0] for _ in range(2)]
    assert torch.equal(*found)
    assert bool(found[0].abs().sum() > 0)


def test_weights_changed_in_place_are_seen() -> None:
    # An edge mask that an optimiser moves starts symmetric and does not stay so.
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    x = torch.tensor([[1.0], [-2.0], [0.5]], dtype=torch.double)
    weight = torch.ones(4, dtype=torch.double, requires_grad=True)
    batch = Data(x=x, edge_index=edge_index, edge_weight=weight)
    model = GraphClassifier(1, 2, conv="gin", layers=2, hidden=4, seed=0).double().eval()
    model(batch)
    with torch.no_grad():
        weight.add_(torch.tensor([0.0, 0.5, 1.0, 0.25]))
    fresh = Data(x=x, edge_index=edge_index, edge_weight=weight.detach().clone())
    parameters = list(model.convolutions.parameters())
    found = torch.autograd.grad(model(batch).logits[0, 0], parameters)
    wanted = torch.autograd.grad(model(fresh).logits[0, 0], parameters)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)
    # The same without gradients.
    plain = Data(x=x, edge_index=edge_index, edge_weight=torch.ones(4, dtype=torch.double))
    before = model(plain).logits
    plain.edge_weight.mul_(3.0)
    assert not torch.equal(model(plain).logits, before)


def test_gat_refuses_a_width_its_heads_do_not_divide() -> None:
    with pytest.raises(GraphTransplantError, match="`hidden` must be divisible by the 4"):
        GATConvolution(3, 6)


@pytest.mark.parametrize("name", NAMES)
def test_nodes_are_interchangeable(name: str) -> None:
    batch = random_batch(torch.Generator().manual_seed(3), graphs=3, simple=False)
    convolution = layer(name, 3, 4)
    x = batch.x.double()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    place = torch.empty_like(order)
    place[order] = torch.arange(len(x))
    edge_attr = attributes(batch.edge_index)
    moved = ours(convolution, x[order], place[batch.edge_index], None, edge_attr)
    still = ours(convolution, x, batch.edge_index, None, edge_attr)
    torch.testing.assert_close(moved, still[order])
