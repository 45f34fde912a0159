"""Controls: label smoothing, the graphs twice, shuffled saliency, cuts alone, no saliency."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.augment import CleanPass, LabelSmoothing, OriginalGraphs, build_method
from graph_transplant.data import GraphBatch
from graph_transplant.data.targets import Loss
from helpers.edits import agree, uniform
from helpers.strategies import classifier, generator, random_batch

# ------------------------------------------------------------------ label smoothing


@pytest.mark.parametrize("smoothing", [0.01, 0.5, 0.9])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_total_loss_is_torchs_label_smoothing(smoothing: float, dropout: float) -> None:
    batch = random_batch(generator(1), graphs=7)
    batch.y = torch.tensor([0, 1, 2, 2, 1, 0, 0])
    model = classifier(3, dropout=dropout).train()
    torch.manual_seed(5)
    total = (1 - smoothing) * gt.augmented_loss(model, batch, LabelSmoothing(smoothing))
    torch.manual_seed(5)  # the same dropout: there is one pass only
    logits = model.run(batch).logits
    smoothed = nn.functional.cross_entropy(logits, batch.y, label_smoothing=smoothing)
    torch.testing.assert_close(total, smoothed)
    parameters = list(model.parameters())
    gradients = (torch.autograd.grad(value, parameters) for value in (total, smoothed))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def test_several_labels_are_smoothed_towards_one_half() -> None:
    batch = random_batch(generator(2), graphs=5)
    targets = torch.rand(5, 3, generator=generator(4)).round()
    targets[1, 2] = targets[3, 0] = targets[4, :] = math.nan
    batch.y = targets
    model = classifier(3, task="multilabel")
    total = gt.augmented_loss(model, batch, LabelSmoothing(0.2))
    p = model.run(batch).logits.detach().double().sigmoid().numpy()
    soft = 0.8 * targets.double().numpy() + 0.1
    each = -soft * np.log(p) - (1 - soft) * np.log(1 - p)
    present = ~np.isnan(each)
    rows = np.nan_to_num(each).sum(1) / np.maximum(present.sum(1), 1)
    assert 0.8 * float(total.detach()) == pytest.approx(rows.mean(), rel=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_there_are_two_passes_that_differ_by_dropout_alone(dropout: float) -> None:
    batch = random_batch(generator(1), graphs=8, largest=9)
    model = classifier(8, dropout=dropout).train()
    torch.manual_seed(0)
    total = gt.augmented_loss(model, batch, OriginalGraphs())
    torch.manual_seed(0)
    one, other = (model.run(batch).logits for _ in range(2))
    assert torch.equal(one, other) == (dropout == 0.0)
    expected = sum(nn.functional.cross_entropy(logits, batch.y) for logits in (one, other))
    torch.testing.assert_close(total, expected)


# ------------------------------------------------------------------ shuffled saliency


def mixed_with(saliency: Tensor, batch: GraphBatch, seed: int = 0, **settings: object) -> object:
    """What Graph Transplant with shuffled saliency makes of graphs with this saliency."""
    control = gt.GraphTransplant(shuffle_saliency=True, **settings)  # type: ignore[arg-type]
    model, graphs = classifier(2), batch.num_graphs
    clean = CleanPass(batch, torch.eye(graphs), lambda: model.run(batch), Loss())
    clean._saliency[gt.NodeSaliency()] = saliency
    return control(clean, model=model, generator=generator(seed))


def test_all_permutations_are_equally_likely() -> None:
    # Of every graph of four nodes one is taken: each node with each value equally often.
    lone = Data(x=torch.ones(4, 3), edge_index=torch.zeros(2, 0, dtype=torch.long))
    batch = GraphBatch.from_pyg(Batch.from_data_list([lone] * 3000))
    saliency = torch.tensor([1.0, 2.0, 4.0, 8.0]).repeat(3000)
    mixed = mixed_with(saliency, batch, hops=0, anchors="random")
    taken = mixed.plan.part.item - 4 * mixed.source_of
    carried = (15 * mixed.source_share).round().astype(int)
    seen = Counter(zip(taken.tolist(), carried.tolist(), strict=True))
    agree(seen, uniform(itertools.product(range(4), (1, 2, 4, 8))))


def test_anchors_and_labels_follow_the_shuffled_values() -> None:
    # The hub of each star carries all saliency. One anchor of ten nodes, drawn from the two most
    # salient ones, carries it in half of all cases, but is the hub only by chance.
    ends = torch.tensor([[0] * 9, [*range(1, 10)]])
    star = Data(x=torch.ones(10, 3), edge_index=torch.cat((ends, ends.flip(0)), 1))
    batch = GraphBatch.from_pyg(Batch.from_data_list([star] * 600))
    hub = torch.zeros(batch.num_nodes)
    hub[batch.ptr[:-1]] = 1.0
    mixed = mixed_with(hub, batch, hops=0)
    # Four deviations of shares of 600.
    assert (mixed.source_share == 1.0).mean() == pytest.approx(0.5, abs=0.085)
    assert np.isin(batch.ptr[:-1], mixed.plan.part.item).mean() == pytest.approx(0.1, abs=0.05)


# ------------------------------------------------------------------ cuts alone, no saliency


def built(name: str) -> gt.GraphTransplant:
    (augmentation,) = build_method(name, classifier(2))
    return augmentation


def test_the_cut_leaves_the_rest_of_the_destination_with_the_labels_of_degree_preservation() -> (
    None
):
    batch = GraphBatch.from_pyg(random_batch(generator(3), graphs=12))
    saliency = torch.rand(batch.num_nodes, generator=generator(4))
    for seed in range(20):
        dp, cut = (
            built(name).mix(batch, saliency, generator=generator(seed))
            for name in ("transplant-dp", "transplant-cut")
        )
        for g in range(batch.num_graphs):
            kept = range(cut.batch.ptr[g], cut.batch.ptr[g + 1])
            mine = dp.node_origin[dp.batch.ptr[g] : dp.batch.ptr[g + 1]]
            rest = mine[~dp.node_from_source[dp.batch.ptr[g] : dp.batch.ptr[g + 1]]]
            if len(rest) == 0:  # no graph is empty, so one node stays
                assert len(kept) == 1
                assert batch.ptr[g] <= cut.node_origin[kept[0]] < batch.ptr[g + 1]
                continue
            assert cut.node_origin[kept].tolist() == rest.tolist()
            assert cut.label_weight[g] == dp.label_weight[g]
            torch.testing.assert_close(cut.targets[g], dp.targets[g])
        # All edges of the original among the nodes that stay, and no others.
        inside = np.isin(np.arange(batch.num_nodes), cut.node_origin)
        expected = [
            (u, v) for u, v in batch.to_pyg().edge_index.T.tolist() if inside[u] and inside[v]
        ]
        found = cut.node_origin[cut.batch.to_pyg().edge_index.numpy()].T.tolist()
        assert sorted(map(tuple, found)) == sorted(expected)
        assert not cut.node_from_source.any()
        assert (cut.edge_origin >= 0).all()


def test_a_graph_that_is_cut_out_whole_keeps_any_of_its_nodes() -> None:
    pair = Data(x=torch.ones(2, 3), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([0]))
    batch = GraphBatch.from_pyg(Batch.from_data_list([pair] * 2000))
    cut = gt.GraphTransplant("none", insert=False, hops=1)  # an anchor and all its neighbours
    mixed = cut.mix(batch, num_outputs=2, generator=generator(0))
    assert np.diff(mixed.batch.ptr).tolist() == [1] * 2000
    agree(Counter((mixed.node_origin % 2).tolist()), uniform(range(2)))
    assert mixed.destination_share == pytest.approx(0.5)


def test_a_part_that_is_not_inserted_cannot_be_connected() -> None:
    for connect in ("dp", "ep"):
        with pytest.raises(gt.GraphTransplantError, match="connect='none'"):
            gt.GraphTransplant(connect, insert=False)


@pytest.mark.parametrize(("name", "passes"), [("transplant-light", 1), ("transplant-dp", 2)])
def test_backward_passes_of_a_step(name: str, passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    engine = torch.autograd.graph._engine_run_backward
    for module in (torch.autograd, torch.autograd.graph):  # grad(...) and backward()
        monkeypatch.setattr(
            module, "_engine_run_backward", lambda *a, **k: (counted.append(a), engine(*a, **k))[1]
        )
    batch, model = random_batch(generator(1), graphs=6), classifier(6)
    gt.augmented_loss(model, batch, built(name)).backward()
    assert len(counted) == passes


def test_the_light_variant_takes_random_anchors_and_labels_by_size() -> None:
    batch = GraphBatch.from_pyg(random_batch(generator(5), graphs=10))
    light = built("transplant-light")
    clean = CleanPass(batch, torch.eye(10), lambda: pytest.fail("asked for a prediction"), Loss())
    mixed = light(clean, model=classifier(10), generator=generator(0))
    sizes = np.diff(batch.ptr)
    taken = np.diff(mixed.plan.part.ptr) / sizes[mixed.source_of]
    rest = np.diff(mixed.plan.rest.ptr) / sizes
    assert mixed.label_weight.numpy() == pytest.approx(taken / (taken + rest))
    assert (mixed.edge_origin < 0).any()
