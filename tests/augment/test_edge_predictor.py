"""ψ: straight-through draws, symmetry, what trains it and what it trains."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.augment.base import CleanPass
from graph_transplant.augment.edge_predictor import EdgePredictor, straight_through
from graph_transplant.augment.transplant import GraphTransplant, MixedGraphs, TransplantPlan
from graph_transplant.data import GraphBatch
from graph_transplant.data.targets import Loss
from graph_transplant.nn import CONVOLUTIONS, GraphClassifier
from graph_transplant.nn.adapter import as_predictor
from helpers.edits import clean_of, planned
from helpers.foreign_models import Foreign
from helpers.oracles import edges_of, graphs_of, neighbours
from helpers.strategies import generator, random_batch


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def batch_of(seed: int = 0, **settings: object) -> GraphBatch:
    return GraphBatch.from_pyg(random_batch(generator(seed), graphs=6, **settings))


def setup(
    conv: str = "gcs", **settings: object
) -> tuple[GraphClassifier, GraphTransplant, CleanPass]:
    torch.manual_seed(0)
    width = 2 if CONVOLUTIONS[conv].takes_edge_attr else 0
    batch = batch_of(1, edge_attr=bool(width), **settings)
    model = GraphClassifier(
        3, 6, conv=conv, layers=2, hidden=8, dropout=0.0, edge_features=width, seed=0
    )
    method = GraphTransplant("ep", embedding_size=8, anchor_ratio=0.2, hops=1)
    return model, method, CleanPass(batch, torch.eye(6), model.run(batch))


# ------------------------------------------------------------------ straight-through


@pytest.mark.parametrize("probability", [1e-3, 0.05, 0.3, 0.5, 0.8, 0.999])
def test_edges_are_drawn_with_the_stated_probability(probability: float) -> None:
    draws = 40_000
    noise = torch.rand(draws, generator=generator(1), dtype=torch.double)
    hard = straight_through(torch.full((draws,), probability).requires_grad_(), noise).detach()
    assert set(hard.tolist()) == {0.0, 1.0}
    low, high = binom.interval(0.9999, draws, probability)
    assert low <= float(hard.sum()) <= high


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_certain_edges_are_finite(dtype: torch.dtype) -> None:
    certain = torch.tensor([0.0, 0.0, 1.0, 1.0]).requires_grad_()
    noise = torch.tensor([0.0, 0.999, 0.5, 0.0], dtype=torch.double)
    drawn = straight_through(certain.to(dtype), noise)
    assert drawn.tolist()[:3] == [0.0, 0.0, 1.0]
    drawn.sum().backward()
    assert certain.grad is not None
    assert bool(torch.isfinite(certain.grad).all())


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


def test_probability_is_the_mean_of_both_directions() -> None:
    torch.manual_seed(0)
    psi = EdgePredictor(embedding_size=5)
    u, v = torch.randn(2, 40, 5)
    # One perceptron with hidden layers of 128 and 64 on the concatenated pair, written out.
    joined = torch.cat((psi.first.weight, psi.second.weight), dim=1)

    def plain(a: Tensor, b: Tensor) -> Tensor:
        hidden = (torch.cat((a, b), dim=1) @ joined.t() + psi.first.bias).relu()
        return psi.outer(psi.inner(hidden).relu()).sigmoid().squeeze(1)

    torch.testing.assert_close(psi.probability(u, v), (plain(u, v) + plain(v, u)) / 2)
    torch.testing.assert_close(psi.probability(u, v), psi.probability(v, u))
    assert [layer.out_features for layer in (psi.first, psi.inner, psi.outer)] == [128, 64, 1]


@pytest.mark.parametrize("gradient_pairs", [1000, 3])
def test_every_pair_is_joined_with_its_own_probability(gradient_pairs: int) -> None:
    torch.manual_seed(3)
    psi, nodes = EdgePredictor(3, gradient_pairs=gradient_pairs), 4 * torch.randn(9, 3)
    with torch.no_grad():  # spread out
        psi.outer.weight.mul_(20)
    u, v = (np.array(ends) for ends in zip(*itertools.product(range(4), range(4, 9)), strict=True))
    chance = psi.probability(nodes[u], nodes[v]).detach().double().numpy()
    assert np.ptp(chance) > 0.5
    source, times = random(1), 1000
    joined = np.zeros(len(u))
    for _ in range(times):
        weight, carrying = psi.draw(nodes, u, v, source)
        joined += weight.detach().numpy()
        assert len(carrying) == min(gradient_pairs, len(u))
    deviation = np.sqrt(times * chance * (1 - chance))
    assert (np.abs(joined - times * chance) < 4.5 * deviation + 1).all()


def new_weights(mixed: MixedGraphs) -> Tensor:
    """The place in the plan of every new edge's pair, and -1 for other edges."""
    plan, names = mixed.plan, mixed.node_origin.tolist()
    graph = mixed.batch.batch.tolist()
    place = {
        (g, int(plan.pairs.source[p]), int(plan.pairs.destination[p])): p
        for g in range(6)
        for p in range(plan.pairs.ptr[g], plan.pairs.ptr[g + 1])
    }
    found = []
    for (tail, head), like in zip(edges_of(mixed.batch), mixed.edge_origin.tolist(), strict=True):
        one, two = (tail, head) if mixed.node_from_source[tail] else (head, tail)
        found.append(place[graph[tail], names[one], names[two]] if like < 0 else -1)
    return torch.tensor(found)


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("conv", sorted(CONVOLUTIONS))
def test_virtual_loss_trains_psi_end_to_end(conv: str, undirected: bool) -> None:
    model, method, clean = setup(conv, undirected=undirected)
    mixed = method(clean, model=as_predictor(model), generator=generator(1))
    psi = list(method.edge_predictor.parameters())
    loss = mixed.losses(as_predictor(model), Loss())[0]
    found = torch.autograd.grad(loss, psi, retain_graph=True)
    assert all(float(g.abs().sum()) > 0 for g in found)
    assert torch.autograd.grad(
        loss, clean.prediction.nodes, allow_unused=True, retain_graph=True
    ) == (None,)  # embeddings are detached

    # The same in two steps: the loss's gradient in the weights of the new edges, then from the
    # weights of the pairs to ψ.
    weight = mixed.batch.edges["edge_weight"].detach().clone().requires_grad_()
    pyg = mixed.batch.to_pyg()
    pyg.edge_weight = weight
    separate = nn.functional.cross_entropy(model.run(pyg).logits, mixed.targets)
    torch.testing.assert_close(separate, loss)
    (to_weight,) = torch.autograd.grad(separate, weight)
    pair, drawn = new_weights(mixed), mixed.plan.weight
    to_pair = torch.zeros(len(drawn)).index_add(0, pair[pair >= 0], to_weight[pair >= 0])
    assert torch.equal(weight[pair >= 0], drawn[pair[pair >= 0]])
    wanted = torch.autograd.grad(drawn, psi, to_pair)
    for one, two in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-7)


def test_few_gradient_pairs_draw_the_same_edges_and_keep_the_expected_gradient() -> None:
    # The mean over 300 choices of pairs agrees with the gradient through all of them, within 5
    # standard errors in every entry of ψ's last layer.
    model, method, clean = setup()
    psi = method.edge_predictor
    few = EdgePredictor(8, gradient_pairs=6)
    few.load_state_dict(psi.state_dict())
    nodes = clean.prediction.nodes
    given = clean_of(clean.batch, clean.targets, nodes=nodes)
    plan = planned(method, given, random(3).permutation(6), random(3))
    u, v = plan.pairs.source, plan.pairs.destination
    assert len(u) > 12

    def gradient(predictor: EdgePredictor, seed: int) -> tuple[Tensor, TransplantPlan]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "graph_transplant.augment.edge_predictor.sampling.sample_distinct",
                lambda limit, count, rng: np.sort(random(seed).permutation(limit)[:count]),
            )
            # The same noise every time; the pairs that carry the gradient differ.
            weight, carrying = predictor.draw(nodes, u, v, random(4))
        drawn = replace(plan, weight=weight, soft_edges=True)
        needed = weight.detach().numpy() > 0.5
        needed[carrying] = True
        kept = drawn.only(needed)
        mixed = method.transform(kept, given)
        loss = mixed.losses(as_predictor(model), Loss())[0]
        return torch.autograd.grad(loss, predictor.outer.weight)[0].flatten(), drawn

    exact, whole = gradient(psi, 0)
    sample = []
    for seed in range(300):
        found, drawn = gradient(few, seed)
        assert torch.equal(drawn.weight, whole.weight)
        sample.append(found)
    several = torch.stack(sample)
    error = several.std(0) / 300**0.5
    assert float(exact.abs().max()) > 0
    assert not torch.allclose(several[0], exact)
    assert bool(((several.mean(0) - exact).abs() <= 5 * error + 1e-9).all())


# ------------------------------------------------------------------ what ψ learns from


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("simple", [True, False])
def test_psi_is_asked_about_edges_and_true_non_edges(undirected: bool, simple: bool) -> None:
    batch = batch_of(5, undirected=undirected, simple=simple)
    near = {v: neighbours(graph, {v}) for graph in graphs_of(batch) for v in graph}
    seen: Counter[bool] = Counter()

    class Knowing(EdgePredictor):
        """Embeddings are one-hot numbers of nodes, for which it knows the answers."""

        def probability(self, u: Tensor, v: Tensor) -> Tensor:
            pairs = list(zip(u.argmax(1).tolist(), v.argmax(1).tolist(), strict=True))
            joined = [b in near[a] for a, b in pairs]
            assert all(edge or a != b for (a, b), edge in zip(pairs, joined, strict=True))
            assert all(batch.batch[a] == batch.batch[b] for a, b in pairs)
            seen.update(joined)
            return torch.tensor(joined).double()

    psi, nodes = Knowing(batch.num_nodes), torch.eye(batch.num_nodes)
    assert all(psi.accuracy(nodes, batch, random(seed)) == 1.0 for seed in range(5))
    assert min(seen[True], seen[False]) > 100


def test_edgeless_and_complete_graphs() -> None:
    nothing, psi = torch.empty(2, 0, dtype=torch.long), EdgePredictor(3)
    edgeless = GraphBatch.from_pyg(Data(x=torch.ones(6, 3), edge_index=nothing))
    assert psi.supervise(torch.ones(6, 3), edgeless, random()) is None
    assert np.isnan(psi.accuracy(torch.ones(6, 3), edgeless, random()))
    pairs = torch.tensor(list(itertools.permutations(range(3), 2))).t()
    complete = GraphBatch.from_pyg(Data(x=torch.ones(3, 3), edge_index=pairs))
    with torch.no_grad():
        psi.outer.weight.zero_()
        psi.outer.bias.fill_(5.0)  # always an edge, and there are no non-edges
    assert psi.accuracy(torch.ones(3, 3), complete, random()) == 1.0


def test_psi_learns_what_can_be_learnt() -> None:
    # Cliques of nodes with equal features: an edge exactly where features agree.
    rows = []
    for number in range(8):
        kind = (torch.arange(12) + number) % 3
        same = (kind.unsqueeze(0) == kind.unsqueeze(1)) & ~torch.eye(12, dtype=torch.bool)
        rows.append(Data(x=torch.eye(3)[kind], edge_index=same.nonzero().t()))
    batch = GraphBatch.from_pyg(Batch.from_data_list(rows))
    torch.manual_seed(0)
    psi = EdgePredictor(3)
    optimiser = torch.optim.Adam(psi.parameters(), lr=1e-2)
    assert psi.accuracy(batch.x, batch, random(2)) < 0.9
    source = random(1)
    for _ in range(60):
        optimiser.zero_grad()
        psi.supervise(batch.x, batch, source).backward()
        optimiser.step()
    assert psi.accuracy(batch.x, batch, random(2)) > 0.99


# ------------------------------------------------------------------ models without edge weights


def test_without_edge_weight_edges_are_hard_and_it_is_said_once() -> None:
    model, batch = Foreign(6), random_batch(generator(1), graphs=6)
    method = GraphTransplant("ep", embedding_size=8)
    with pytest.warns(UserWarning, match="takes no `edge_weight`"):
        gt.augmented_loss(model, batch, method, generator=generator())
    predictor, ours = as_predictor(model), GraphBatch.from_pyg(batch)
    clean = CleanPass(ours, torch.eye(6), predictor.run(ours))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mixed = method(clean, model=predictor, generator=generator())
    assert mixed.batch.edge_weight is None
    assert (mixed.edge_origin < 0).sum() == 2 * len(mixed.plan.pairs.source) > 0
    psi = list(method.edge_predictor.parameters())
    loss = mixed.losses(predictor, Loss())[0]
    assert all(g is None for g in torch.autograd.grad(loss, psi, allow_unused=True))
    assert mixed.auxiliary_loss is not None
    assert all(float(g.abs().sum()) > 0 for g in torch.autograd.grad(mixed.auxiliary_loss, psi))
