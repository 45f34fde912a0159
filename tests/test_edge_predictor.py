"""ψ: straight-through draws, symmetry, what trains it and what it trains."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINConv, global_mean_pool

import graph_transplant as gt
from graph_transplant.augment import EdgePredictor, connect
from graph_transplant.augment.connect import all_pairs, straight_through
from graph_transplant.augment.transplant import NEW
from graph_transplant.nn import CONVOLUTIONS
from graph_transplant.saliency import as_predictor
from oracles import graphs_of, neighbours
from strategies import random_batch


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch_of(seed: int = 0, **settings: object) -> Batch:
    return random_batch(generator(seed), graphs=6, **settings)


def setup(
    conv: str = "gcs", seed: int = 0, **settings: object
) -> tuple[gt.GraphClassifier, gt.GraphTransplant, gt.CleanPass]:
    torch.manual_seed(seed)
    batch = batch_of(seed, **settings)
    width = 2 if CONVOLUTIONS[conv].takes_edge_attr else 0
    if width:
        items = batch.to_data_list()
        for number, item in enumerate(items):
            size = (item.edge_index.shape[1], width)
            item.edge_attr = torch.randn(size, generator=generator(number))
        batch = Batch.from_data_list(items)
    model = gt.GraphClassifier(
        3, 6, conv=conv, layers=2, hidden=8, dropout=0.0, edge_features=width, seed=seed
    )
    method = gt.GraphTransplant("predict", embedding_size=8, anchor_ratio=0.2)
    return model, method, gt.CleanPass(batch, torch.eye(6), model(batch))


# ------------------------------------------------------------------ straight-through


@pytest.mark.parametrize("probability", [1e-3, 0.05, 0.3, 0.5, 0.8, 0.999])
def test_edges_are_drawn_with_the_stated_probability(probability: float) -> None:
    # 40,000 draws each; the count lies within the central 99.99 % of the binomial distribution.
    draws = 40_000
    noise = torch.rand(draws, generator=generator(1), dtype=torch.double)
    hard = straight_through(torch.full((draws,), probability), noise)
    low, high = binom.interval(0.9999, draws, probability)
    assert low <= float(hard.sum()) <= high


def test_values_are_exactly_zero_or_one() -> None:
    probability = torch.rand(10_000, generator=generator(2)).requires_grad_()
    noise = torch.rand(10_000, generator=generator(3), dtype=torch.double)
    hard = straight_through(probability, noise).detach()
    assert set(hard.unique().tolist()) == {0.0, 1.0}
    extremes = torch.tensor([0.0, 0.0, 1.0, 1.0, 0.5])
    edge = straight_through(extremes, torch.tensor([0.0, 0.999, 0.0, 0.5, 0.0]).double())
    assert bool(((edge == 0) | (edge == 1)).all())


def test_gradient_is_that_of_the_relaxed_draw() -> None:
    probability = torch.linspace(0.05, 0.95, 19, dtype=torch.double).requires_grad_()
    noise = torch.rand(19, generator=generator(4), dtype=torch.double)
    upstream = torch.randn(19, generator=generator(5), dtype=torch.double)
    (found,) = torch.autograd.grad(straight_through(probability, noise), probability, upstream)
    # σ(logit p + logit n), by hand: s (1 - s) / (p (1 - p)).
    p, n = probability.detach().numpy(), noise.numpy()
    soft = 1 / (1 + np.exp(-(np.log(p / (1 - p)) + np.log(n / (1 - n)))))
    expected = upstream.numpy() * soft * (1 - soft) / (p * (1 - p))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9)


# ------------------------------------------------------------------ ψ


def test_probability_is_symmetric_and_the_mean_of_both_directions() -> None:
    torch.manual_seed(0)
    psi = EdgePredictor(embedding_size=5)
    u, v = torch.randn(2, 40, 5)
    torch.testing.assert_close(psi.probability(u, v), psi.probability(v, u))
    # One perceptron with hidden layers of 128 and 64 on the concatenated pair, written out.
    joined = torch.cat((psi.first.weight, psi.second.weight), dim=1)
    layers = (psi.inner, psi.outer)

    def plain(a: Tensor, b: Tensor) -> Tensor:
        hidden = (torch.cat((a, b), dim=1) @ joined.t() + psi.first.bias).relu()
        return layers[1](layers[0](hidden).relu()).sigmoid().squeeze(1)

    torch.testing.assert_close(psi.probability(u, v), (plain(u, v) + plain(v, u)) / 2)
    assert [layer.out_features for layer in (psi.first, *layers)] == [128, 64, 1]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The random numbers that connections draw, in their order."""
    numbers: list[Tensor] = []
    plain = connect.uniform

    def recorded(*arguments: object) -> Tensor:
        numbers.append(plain(*arguments))
        return numbers[-1]

    monkeypatch.setattr(connect, "uniform", recorded)
    return numbers


def test_weights_of_the_pairs_are_draws_of_their_probability(drawn: list[Tensor]) -> None:
    # ψ's own probability of every pair decides, given the same random numbers.
    _, method, clean = setup()
    nodes = clean.prediction.nodes
    saliency = torch.rand(clean.batch.num_nodes, generator=generator(1))
    plan = method.plan(clean.batch, saliency, generator=generator(2), nodes=nodes)
    pairs = all_pairs(plan.source, plan.destination)
    assert torch.equal(pairs.source, plan.pairs.source)
    u = nodes[plan.source.view.node[pairs.source]]
    v = nodes[plan.destination.view.node[pairs.destination]]
    probability = method.connect.probability(u, v)
    assert len(drawn) == 1
    expected = (drawn[0] > 1 - probability.double()).float()
    assert plan.pairs.weight is not None
    agreement = (plan.pairs.weight == expected).float().mean()
    assert float(agreement) > 0.999  # rounding may flip a draw on the very edge
    assert 0 < float(expected.sum()) < len(expected)


def test_frequencies_of_predicted_edges() -> None:
    # 400 plans with one ψ: how many pairs are joined agrees with Σ ê within 4.5 deviations.
    torch.manual_seed(3)
    batch = batch_of(3)
    method = gt.GraphTransplant("predict", embedding_size=3, anchor_ratio=0.2)
    with torch.no_grad():  # away from one half
        method.connect.outer.bias.fill_(-1.0)
        nodes, ones, random = 2 * batch.x, torch.ones(batch.num_nodes), generator(0)
        expected = variance = joined = 0.0
        for _ in range(400):
            plan = method.plan(batch, ones, generator=random, nodes=nodes)
            u = nodes[plan.source.view.node[plan.pairs.source]]
            v = nodes[plan.destination.view.node[plan.pairs.destination]]
            chance = method.connect.probability(u, v).double()
            assert plan.pairs.weight is not None
            expected += float(chance.sum())
            variance += float((chance * (1 - chance)).sum())
            joined += float(plan.pairs.weight.sum())
    assert abs(joined - expected) < 4.5 * variance**0.5
    assert joined > 1000


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("conv", sorted(CONVOLUTIONS))
def test_virtual_loss_trains_psi_end_to_end(
    conv: str, undirected: bool, drawn: list[Tensor]
) -> None:
    model, method, clean = setup(conv, undirected=undirected)
    mixed = method(clean, model=as_predictor(model), generator=generator(1))
    psi = list(method.connect.parameters())
    loss = mixed.loss(model, "multiclass")
    found = torch.autograd.grad(loss, psi, retain_graph=True)
    assert all(float(g.abs().sum()) > 0 for g in found)

    # The same in two steps: the loss's gradient in the weights of the new edges, and from there
    # to ψ through the relaxed draw, written out.
    new = mixed.edge_kind == NEW
    weight = mixed.batch.edge_weight.detach().clone().requires_grad_()
    other = Batch.from_data_list(mixed.batch.to_data_list())
    other.edge_weight = weight
    separate = gt.VirtualGraphs(targets=mixed.targets, batch=other).loss(model, "multiclass")
    torch.testing.assert_close(separate, loss)
    (to_weight,) = torch.autograd.grad(separate, weight)
    source, destination = mixed.plan.source.view.node, mixed.plan.destination.view.node
    pairs = mixed.plan.pairs
    joined = zip(
        source[pairs.source].tolist(), destination[pairs.destination].tolist(), strict=True
    )
    numbers = {pair: number for number, pair in enumerate(joined)}
    to_pair = torch.zeros(len(numbers))
    for edge in new.nonzero().flatten().tolist():
        one, two = mixed.batch.edge_index[:, edge].tolist()
        if not bool(mixed.node_from_source[one]):
            one, two = two, one
        place = numbers[int(mixed.node_origin[one]), int(mixed.node_origin[two])]
        to_pair[place] += to_weight[edge]
    nodes = clean.prediction.nodes.detach()
    probability = method.connect.probability(
        nodes[source[pairs.source]], nodes[destination[pairs.destination]]
    )
    relaxed = (torch.logit(probability) + torch.logit(drawn[0]).float()).sigmoid()
    wanted = torch.autograd.grad(relaxed, psi, to_pair)
    for one, two in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-7)


def with_few_gradient_pairs(method: gt.GraphTransplant, count: int) -> gt.GraphTransplant:
    """The same method and the same ψ, with gradients through so many pairs only."""
    few = gt.GraphTransplant(
        EdgePredictor(8, gradient_pairs=count), anchor_ratio=0.2, cut=method.cut
    )
    few.connect.load_state_dict(method.connect.state_dict())
    return few


def edges_of(mixed: gt.MixedGraphs) -> list[tuple[list[int], int]]:
    """Edges that are there, not those of weight zero."""
    present = mixed.batch.edge_weight.detach() > 0.5
    ends = mixed.batch.edge_index[:, present].t().tolist()
    return sorted(zip(ends, mixed.edge_kind[present].tolist(), strict=True))


def test_few_gradient_pairs_draw_the_same_edges() -> None:
    model, method, clean = setup()
    few = with_few_gradient_pairs(method, 5)
    smaller = 0
    for seed in range(10):
        one = method(clean, model=model, generator=generator(seed))
        other = few(clean, model=model, generator=generator(seed))
        assert edges_of(one) == edges_of(other)
        assert one.plan.pairs.weight is not None
        assert other.plan.pairs.weight is not None
        assert torch.equal(one.plan.pairs.weight.sum(), other.plan.pairs.weight.sum())
        torch.testing.assert_close(one.logits(model), other.logits(model))
        torch.testing.assert_close(one.targets, other.targets)
        smaller += len(other.plan.pairs.source) < len(one.plan.pairs.source)
    assert smaller == 10


@pytest.mark.parametrize("conv", sorted(CONVOLUTIONS))
def test_few_gradient_pairs_keep_the_expected_gradient(conv: str) -> None:
    # The mean over 300 choices of the pairs, the same edges drawn, agrees with the gradient through
    # all pairs within 5 standard errors in every entry of ψ's last layer.
    model, method, clean = setup(conv)
    few = with_few_gradient_pairs(method, 6)
    nodes, saliency = clean.prediction.nodes, torch.ones(clean.batch.num_nodes)
    plan = method.plan(clean.batch, saliency, generator=generator(3), nodes=nodes)
    total = len(plan.pairs.source)
    assert total > 12
    noise = torch.rand(total, generator=generator(4), dtype=torch.double)

    def gradient(connect_with: EdgePredictor, random: torch.Generator) -> Tensor:
        def fixed(size, source, device):
            # The first draw of a plan decides the edges; all others choose among the pairs.
            if not asked:
                asked.append(size)
                return noise
            return torch.rand(size, generator=random, dtype=torch.double)

        asked: list[tuple[int, ...]] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connect, "uniform", fixed)
            pairs = connect_with(plan.source, plan.destination, nodes, None)
        keys = torch.zeros(len(pairs.source), 3, dtype=torch.double)
        drawn_plan = gt.TransplantPlan(plan.source_of, plan.source, plan.destination, pairs, keys)
        mixed = method.apply_plan(drawn_plan, clean.batch, clean.targets, saliency, soft_edges=True)
        loss = mixed.loss(model, "multiclass")
        return torch.autograd.grad(loss, connect_with.outer.weight)[0].flatten()

    exact = gradient(method.connect, generator(0))
    random = generator(5)
    sample = torch.stack([gradient(few.connect, random) for _ in range(300)])
    error = sample.std(0) / 300**0.5
    assert float(exact.abs().max()) > 0
    assert bool(((sample.mean(0) - exact).abs() <= 5 * error + 1e-9).all())
    assert not torch.allclose(sample[0], exact)


def test_virtual_loss_does_not_reach_the_original_embeddings() -> None:
    model, method, clean = setup()
    mixed = method(clean, model=as_predictor(model), generator=generator(1))
    loss = mixed.loss(model, "multiclass")
    (reached,) = torch.autograd.grad(loss, clean.prediction.nodes, allow_unused=True)
    assert reached is None


def test_supervised_loss_trains_psi_alone() -> None:
    model, method, clean = setup()
    mixed = method(clean, model=as_predictor(model), generator=generator(1))
    assert mixed.auxiliary_loss is not None
    mixed.auxiliary_loss.backward()
    assert all(p.grad is None for p in model.parameters())
    assert all(
        p.grad is not None and float(p.grad.abs().sum()) > 0 for p in method.connect.parameters()
    )


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("simple", [True, False])
def test_examples_are_edges_and_true_non_edges(undirected: bool, simple: bool) -> None:
    batch = batch_of(5, undirected=undirected, simple=simple)
    near = {v: neighbours(graph, {v}) for graph in graphs_of(batch) for v in graph}
    listed = {tuple(edge) for edge in batch.edge_index.t().tolist()}
    psi = EdgePredictor(3)
    joined_seen = strangers_seen = 0
    for seed in range(20):
        first, second, joined = psi._examples(batch, generator(seed))
        assert set(joined.tolist()) <= {0.0, 1.0}
        for u, v, edge in zip(first.tolist(), second.tolist(), joined.tolist(), strict=True):
            assert int(batch.batch[u]) == int(batch.batch[v])
            if edge:
                assert (u, v) in listed
                joined_seen += 1
            else:
                assert u != v
                assert v not in near[u]
                strangers_seen += 1
    assert joined_seen > 100
    assert strangers_seen > 100


def test_at_most_so_many_examples() -> None:
    batch = batch_of(5)
    first, _, joined = EdgePredictor(3, examples=10)._examples(batch, generator())
    assert int(joined.sum()) == 10
    assert len(first) <= 20


def test_edgeless_and_complete_graphs_give_what_examples_there_are() -> None:
    nothing = torch.empty(2, 0, dtype=torch.long)
    edgeless = Batch.from_data_list([Data(x=torch.ones(3, 3), edge_index=nothing)] * 2)
    psi = EdgePredictor(3)
    clean = gt.CleanPass(
        edgeless, torch.eye(2), gt.Prediction(torch.ones(6, 3), None, torch.zeros(2, 2), ())
    )
    assert psi.supervise(clean, generator()) is None
    assert np.isnan(psi.accuracy(torch.ones(6, 3), edgeless, generator()))
    complete = torch.tensor([[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]])
    batch = Batch.from_data_list([Data(x=torch.ones(3, 3), edge_index=complete)])
    _, _, joined = psi._examples(batch, generator())
    assert joined.numel() > 0
    assert bool((joined == 1).all())


def test_psi_learns_what_can_be_learnt() -> None:
    # Cliques of nodes with equal features: an edge exactly where features agree.
    rows = []
    for number in range(8):
        kind = (torch.arange(12) + number) % 3
        same = (kind.unsqueeze(0) == kind.unsqueeze(1)) & ~torch.eye(12, dtype=torch.bool)
        rows.append(Data(x=torch.eye(3)[kind], edge_index=same.nonzero().t()))
    batch = Batch.from_data_list(rows)
    torch.manual_seed(0)
    psi = EdgePredictor(3)
    optimiser = torch.optim.Adam(psi.parameters(), lr=1e-2)
    prediction = gt.Prediction(batch.x, None, torch.zeros(8, 1), ())
    clean, random = gt.CleanPass(batch, torch.zeros(8, 1), prediction), generator(1)
    before = psi.accuracy(batch.x, batch, generator(2))
    for _ in range(60):
        optimiser.zero_grad()
        loss = psi.supervise(clean, random)
        assert loss is not None
        loss.backward()
        optimiser.step()
    after = psi.accuracy(batch.x, batch, generator(2))
    assert after > 0.99
    assert after > before


def test_accuracy_counts_right_answers_and_repeats() -> None:
    batch = batch_of(6)
    psi = EdgePredictor(3)
    first = psi.accuracy(batch.x, batch, generator(1))
    assert psi.accuracy(batch.x, batch, generator(1)) == first
    with torch.no_grad():
        psi.outer.weight.zero_()
        psi.outer.bias.fill_(5.0)  # always an edge
    _, _, joined = psi._examples(batch, generator(1))
    assert psi.accuracy(batch.x, batch, generator(1)) == pytest.approx(float(joined.mean()))


# ------------------------------------------------------------------ models without edge weights


class NoWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GINConv(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8)))
        self.out = nn.Linear(8, 6)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.out(global_mean_pool(self.conv(x, edge_index).relu(), batch))


def test_without_edge_weight_edges_are_hard_and_it_is_said_once() -> None:
    torch.manual_seed(0)
    model, batch = NoWeight(), batch_of(1)
    method = gt.GraphTransplant("predict", embedding_size=8)
    with pytest.warns(UserWarning, match="takes no `edge_weight`"):
        gt.augmented_loss(model, batch, method, generator=generator())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predictor = as_predictor(model)
        clean = gt.CleanPass(batch, torch.eye(6), predictor(batch))
        mixed = method(clean, model=predictor, generator=generator())
    assert "edge_weight" not in mixed.batch
    hard = (mixed.edge_kind == NEW).sum()
    assert mixed.plan.pairs.weight is not None
    assert int(hard) == 2 * int(mixed.plan.pairs.weight.detach().sum())
    loss = mixed.loss(predictor, "multiclass")
    psi = list(method.connect.parameters())
    assert all(g is None for g in torch.autograd.grad(loss, psi, allow_unused=True))
    assert mixed.auxiliary_loss is not None
    assert all(float(g.abs().sum()) > 0 for g in torch.autograd.grad(mixed.auxiliary_loss, psi))
