"""Node saliency against gradients written by hand, for our models and for foreign ones."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGPooling, global_mean_pool

import graph_transplant as gt
from graph_transplant.augment import CleanPass
from graph_transplant.data import GraphBatch
from graph_transplant.errors import GraphTransplantError
from graph_transplant.nn import GraphClassifier
from graph_transplant.nn.adapter import as_predictor, varies_within_graphs
from helpers.foreign_models import Foreign
from helpers.oracles import dense_adjacency, dense_gcn
from helpers.strategies import generator, random_batch


def batch_of(seed: int = 0, **settings: object) -> Batch:
    batch = random_batch(generator(seed), graphs=4, **settings)  # type: ignore[arg-type]
    batch.y = torch.tensor([0, 1, 2, 1])
    return batch


def clean_pass(model: nn.Module, batch: Batch, module: nn.Module | str | None = None) -> CleanPass:
    graphs = GraphBatch.from_pyg(batch)
    prediction = as_predictor(model, module).run(graphs)
    targets = torch.eye(3, dtype=prediction.logits.dtype)[batch.y]
    return CleanPass(graphs, targets, prediction)


# ------------------------------------------------------------------ by hand


def by_hand(model: GraphClassifier, batch: Batch) -> dict[str, np.ndarray]:
    """One GCN layer, mean readout and head: every step and its derivative in numpy."""
    weights = {k: v.detach().numpy() for k, v in model.state_dict().items()}
    x, segment = batch.x.double().numpy(), batch.batch.numpy()
    nodes, graphs = len(x), batch.num_graphs
    matrix = np.zeros((nodes, nodes))
    for tail, head in batch.edge_index.t().tolist():
        matrix[head, tail] += 1.0
    degree = 1.0 + matrix.sum(1)
    operator = (matrix + np.eye(nodes)) / np.sqrt(np.outer(degree, degree))
    before = operator @ x @ weights["convolutions.0.linear.weight"].T
    before += weights["convolutions.0.linear.bias"]
    after = np.maximum(before, 0)
    share = np.zeros((graphs, nodes))
    share[segment, np.arange(nodes)] = 1.0 / np.bincount(segment)[segment]
    hidden = share @ after @ weights["head.0.weight"].T + weights["head.0.bias"]
    logits = np.maximum(hidden, 0) @ weights["head.3.weight"].T + weights["head.3.bias"]
    probability = np.exp(logits - logits.max(1, keepdims=True))
    probability /= probability.sum(1, keepdims=True)

    to_logits = (probability - np.eye(logits.shape[1])[batch.y.numpy()]) / graphs
    to_hidden = (to_logits @ weights["head.3.weight"]) * (hidden > 0)
    to_after = share.T @ (to_hidden @ weights["head.0.weight"])
    to_before = to_after * (before > 0)
    return {
        "gradient before": np.linalg.norm(to_before, axis=1),
        "gradient after": np.linalg.norm(to_after, axis=1),
        "gradient-x-activation before": np.abs((to_before * before).sum(1)),
        "gradient-x-activation after": np.abs((to_after * after).sum(1)),
    }


@pytest.mark.parametrize("kind", ["gradient", "gradient-x-activation"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_saliency_of_a_hand_differentiated_model(kind: str, side: str) -> None:
    batch = batch_of()
    batch.x = batch.x.double()
    model = GraphClassifier(3, 3, conv="gcn", layers=1, hidden=6, dropout=0.0, seed=0).double()
    clean = clean_pass(model, batch)
    found = clean.saliency(gt.NodeSaliency(kind=kind, activation=side))
    expected = by_hand(model, batch)[f"{kind} {side}"]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-14)
    assert float(found.max()) > 0
    # Nothing was left behind, and the graph of the pass is still there.
    assert all(p.grad is None for p in model.parameters())
    clean.loss.backward()


@pytest.mark.parametrize("layer", [0, -2])
@pytest.mark.parametrize("side", ["before", "after"])
def test_saliency_of_an_earlier_layer(layer: int, side: str) -> None:
    batch = batch_of(1)
    batch.x = batch.x.double()
    model = GraphClassifier(3, 3, conv="gcn", layers=2, hidden=6, dropout=0.0, seed=0).double()
    first, second = model.convolutions
    ones = torch.ones(batch.num_edges, dtype=torch.double)
    matrix = dense_adjacency(batch.edge_index, ones, batch.num_nodes)
    before = dense_gcn(batch.x, matrix, first.linear.weight, first.linear.bias).detach()
    point = (before if side == "before" else before.relu()).requires_grad_()
    entering = point.relu() if side == "before" else point
    last = dense_gcn(entering, matrix, second.linear.weight, second.linear.bias).relu()
    graphs = torch.stack([last[batch.batch == g].mean(0) for g in range(4)])
    loss = nn.functional.cross_entropy(model.head(graphs), batch.y)
    (gradient,) = torch.autograd.grad(loss, point)
    found = clean_pass(model, batch).saliency(gt.NodeSaliency(layer=layer, activation=side))
    torch.testing.assert_close(found, gradient.norm(dim=1))


# ------------------------------------------------------------------ saliency that ranks nothing


@pytest.mark.parametrize("readout", ["mean", "sum"])
def test_the_last_output_ranks_nothing_which_is_said_once(readout: str) -> None:
    batch = batch_of(2)
    model = GraphClassifier(3, 3, layers=2, hidden=8, readout=readout, seed=0)
    clean = clean_pass(model, batch)
    flat = clean.saliency(gt.NodeSaliency(activation="after"))
    for graph in range(4):
        values = flat[batch.batch == graph]
        assert float(values.max() - values.min()) <= 1e-6 * float(values.max())
    assert not varies_within_graphs(flat, clean.batch)
    assert varies_within_graphs(clean.saliency(gt.NodeSaliency()), clean.batch)
    transplant = gt.GraphTransplant(saliency=gt.NodeSaliency(activation="after"))
    with pytest.warns(UserWarning, match="saliency is the same for all nodes"):
        gt.augmented_loss(model, batch, transplant)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gt.augmented_loss(model, batch, transplant)
        gt.augmented_loss(model, batch, gt.GraphTransplant())


class Colab(nn.Module):
    """PyG's introductory model: no activation after the last layer."""

    def __init__(self, layers: int = 3, outputs: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList(GCNConv(8 if k else 3, 8) for k in range(layers))
        self.out = nn.Linear(8, outputs)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for k, conv in enumerate(self.convs):
            x = conv(x.relu() if k else x, edge_index)
        pooled = global_mean_pool(x, batch)
        return self.out(nn.functional.dropout(pooled, training=self.training))


class Normed(nn.Module):
    """GIN as in PyG's benchmark/kernel: batch norm at the end of every layer."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        parts = [
            [nn.Linear(8 if k else 3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.BatchNorm1d(8)]
            for k in range(layers)
        ]
        self.convs = nn.ModuleList(GINConv(nn.Sequential(*each)) for each in parts)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index)
        return self.out(global_mean_pool(x, batch))


@pytest.mark.parametrize(
    ("model", "reading", "words"),
    [
        (Colab(), gt.NodeSaliency(layer=-2), "gradient at layer -2"),
        (Normed(), gt.NodeSaliency(layer=-2), "gradient at layer -2"),
        (
            Colab(1),
            gt.NodeSaliency("gradient-x-activation", -1),
            "gradient-x-activation at layer -1",
        ),
        (
            Normed(1),
            gt.NodeSaliency("gradient-x-activation", -1),
            "gradient-x-activation at layer -1",
        ),
    ],
    ids=["colab", "norm", "one-layer", "one-layer-norm"],
)
def test_where_the_last_gradient_ranks_nothing_the_nearest_reading_is_used(
    model: nn.Module, reading: gt.NodeSaliency, words: str
) -> None:
    batch = batch_of(5)
    clean = clean_pass(model, batch)
    assert not varies_within_graphs(clean.saliency(gt.NodeSaliency(layer=-1)), clean.batch)
    assert torch.equal(clean.saliency(gt.NodeSaliency()), clean.saliency(reading))
    assert clean.nearest[gt.NodeSaliency()] == reading
    transplant = gt.GraphTransplant()
    with pytest.warns(UserWarning, match=f"saliency is the {words} instead") as said:
        gt.augmented_loss(model, batch, transplant).backward()
    assert len(said) == 1
    assert "layer=-2" not in str(said[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gt.augmented_loss(model, batch, transplant)
        gt.augmented_loss(model, batch, gt.GraphTransplant(saliency=reading))
    assert transplant.after_epoch(model, gt.load("motifs", graphs=12)) == {
        "saliency_layer": reading.layer
    }
    # One that is named is used as it is.
    with pytest.warns(UserWarning, match="anchors are random.*NodeSaliency"):
        gt.augmented_loss(model, batch, gt.GraphTransplant(saliency=gt.NodeSaliency(layer=-1)))


@pytest.mark.parametrize("model", [Foreign(), GraphClassifier(3, 3, layers=2, hidden=8)])
def test_a_last_gradient_that_ranks_nodes_is_used(model: nn.Module) -> None:
    batch, transplant = batch_of(6), gt.GraphTransplant()
    clean = clean_pass(model, batch)
    clean.saliency(gt.NodeSaliency())
    assert clean.nearest[gt.NodeSaliency()] == gt.NodeSaliency(layer=-1)
    gt.augmented_loss(model, batch, transplant)
    assert transplant.after_epoch(model, gt.load("motifs", graphs=12)) == {}


def test_records_keep_what_was_read(tmp_path: Path) -> None:
    class Own(Colab):
        def forward(self, edge_index: Tensor, batch: Tensor) -> Tensor:
            return super().forward(torch.ones(len(batch), 3), edge_index, batch)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = gt.compare(
            gt.load("motifs", graphs=60),
            methods=["vanilla", "transplant-dp"],
            model={"own": lambda data: Own(outputs=6)},
            folds=3,
            epochs=2,
            out=tmp_path,
        )
    found = results.long("curve").groupby("method")["saliency_layer"].unique()
    assert found["transplant-dp"].tolist() == [-2.0]
    assert np.isnan(found["vanilla"]).all()


def test_readings_that_cannot_be_are_named() -> None:
    with pytest.raises(GraphTransplantError, match="`kind` must be one of gradient"):
        gt.NodeSaliency(kind="occlusion")
    with pytest.raises(GraphTransplantError, match="`layer` must be an integer or 'auto'"):
        gt.NodeSaliency(layer="last")
    with pytest.raises(GraphTransplantError, match="`activation` must be one of before, after"):
        gt.NodeSaliency(activation="during")
    batch, model = batch_of(3), GraphClassifier(3, 3, layers=2, hidden=8)
    for layer in (2, -3):
        with pytest.raises(GraphTransplantError, match=f"`layer` .*{layer}.*2 message-passing"):
            clean_pass(model, batch).saliency(gt.NodeSaliency(layer=layer))
    with torch.no_grad():
        clean = clean_pass(model, batch)
    with pytest.raises(GraphTransplantError, match="gradients"):
        clean.saliency(gt.NodeSaliency())


# ------------------------------------------------------------------ foreign models


@pytest.mark.parametrize("read_at", [None, "norm", "module"])
def test_foreign_saliency_is_the_gradient_at_the_module_it_is_read_at(read_at: str | None) -> None:
    batch, model = batch_of(4), Foreign(norm=nn.LayerNorm(8))
    kept: list[Tensor] = []
    watched = model.norm if read_at else model.two
    watched.register_forward_hook(lambda m, i, output: kept.append(output))
    clean = clean_pass(model, batch, model.norm if read_at == "module" else read_at)
    (gradient,) = torch.autograd.grad(clean.loss, kept[0], retain_graph=True)
    torch.testing.assert_close(clean.saliency(gt.NodeSaliency()), gradient.norm(dim=1))
    assert torch.equal(clean.prediction.nodes, kept[0])
    assert len(clean.prediction.layers) == (1 if read_at else 2)


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_hooks_are_removed_and_those_of_the_user_stay() -> None:
    class Broken(Foreign):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
            self.one(x, edge_index)
            raise RuntimeError("out of luck")

    broken, model = Broken(), Foreign()
    with pytest.raises(RuntimeError, match="out of luck"):
        gt.augmented_loss(broken, batch_of(4), gt.GraphTransplant())
    assert hooks(broken) == 0
    calls: list[int] = []
    model.two.register_forward_hook(lambda m, i, o: calls.append(1))
    gt.augmented_loss(model, batch_of(4), gt.GraphTransplant())
    assert hooks(model) == 1
    assert len(calls) == 2


def test_a_model_that_pools_nodes_away_can_be_used() -> None:
    class Pooling(Foreign):
        def __init__(self) -> None:
            super().__init__()
            self.pool = SAGPooling(8, ratio=0.5)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int) -> Tensor:
            h = self.one(x, edge_index).relu()
            h, edge_index, _, batch, _, _ = self.pool(h, edge_index, batch=batch)
            h = self.two(h, edge_index).relu()
            return self.out(global_mean_pool(h, batch, batch_size))

    batch, model = batch_of(4), Pooling()
    # Neither layers that no longer have one row per node nor the scores of the pooling count.
    (layer,) = as_predictor(model).run(batch).layers
    assert layer.nodes.shape == (batch.num_nodes, 8)
    gt.augmented_loss(model, batch, gt.GraphTransplant()).backward()
    with pytest.raises(GraphTransplantError, match="one row per node"):
        gt.augmented_loss(model, batch, gt.GraphTransplant(), saliency_module="out")


@pytest.mark.parametrize("conv", [GCNConv, GATConv])
def test_activations_in_place_do_not_change_what_is_read(conv: type[nn.Module]) -> None:
    class Gated(nn.Module):
        def __init__(self, inplace: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.one, self.two = conv(3, 8), conv(8, 8)
            self.gate, self.out = nn.Linear(8, 1), nn.Linear(8, 3)
            self.act = nn.ReLU(inplace)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            h = self.act(self.one(x, edge_index))
            h = self.act(self.two(h, edge_index))
            return self.out(global_mean_pool(h * self.gate(h).sigmoid(), batch))

    batch, found = batch_of(4), []
    for inplace in (False, True):
        model = Gated(inplace)
        gt.augmented_loss(model, batch, gt.GraphTransplant(), generator=generator(1)).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        found.append([clean_pass(model, batch).saliency(gt.NodeSaliency()), *gradients])
    for apart, inside in zip(*found, strict=True):
        assert torch.equal(apart, inside)
    assert varies_within_graphs(found[0][0], GraphBatch.from_pyg(batch))


def test_saliency_of_a_frozen_backbone_is_that_of_a_trainable_one() -> None:
    batch, model = batch_of(4), Foreign()
    expected = clean_pass(model, batch).saliency(gt.NodeSaliency())
    for parameter in (*model.one.parameters(), *model.two.parameters()):
        parameter.requires_grad_(False)
    assert torch.allclose(clean_pass(model, batch).saliency(gt.NodeSaliency()), expected)
    gt.augmented_loss(model, batch, gt.GraphTransplant()).backward()
    assert model.out.weight.grad is not None
    assert all(parameter.grad is None for parameter in model.one.parameters())


def test_a_forward_with_one_required_parameter_gets_the_batch_or_that_field() -> None:
    class Options(Foreign):
        def forward(self, data: Data, scale: float = 1.0) -> Tensor:  # type: ignore[override]
            return scale * super().forward(data.x, data.edge_index, data.batch, data.num_graphs)

    class Positions(nn.Module):
        def forward(self, pos: Tensor, batch: Tensor | None = None) -> Tensor:
            return global_mean_pool(pos, batch)

    batch = batch_of(4)
    batch.pos = torch.rand(batch.num_nodes, 3)
    one, other = (as_predictor(model).run(batch).logits for model in (Options(), Foreign()))
    assert torch.equal(one, other)
    found = as_predictor(Positions()).run(batch).logits
    assert torch.equal(found, global_mean_pool(batch.pos, batch.batch))


def test_layers_may_return_named_tuples_and_run_without_gradients() -> None:
    class Out(NamedTuple):
        nodes: Tensor
        more: int

    class Named(GCNConv):
        def forward(self, x: Tensor, edge_index: Tensor) -> Out:  # type: ignore[override]
            return Out(super().forward(x, edge_index), 1)

    class Model(Foreign):
        def __init__(self, frozen: bool) -> None:
            super().__init__()
            self.two, self.frozen = Named(8, 8), frozen

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:  # type: ignore[override]
            with torch.set_grad_enabled(not self.frozen):
                h = self.two(self.one(x, edge_index).relu(), edge_index).nodes
            return self.out(global_mean_pool(h.relu(), batch))

    gt.augmented_loss(Model(frozen=False), batch_of(4), gt.GraphTransplant()).backward()
    gt.augmented_loss(Model(frozen=True), batch_of(4), gt.augment.DropNodes()).backward()
    with pytest.raises(GraphTransplantError, match="the loss does not depend on the layer"):
        gt.augmented_loss(Model(frozen=True), batch_of(4), gt.GraphTransplant())


def test_a_model_without_message_passing_is_told_what_to_do() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Linear(3, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor, batch: Tensor) -> Tensor:
            return self.out(global_mean_pool(self.embed(x).relu(), batch))

    model, batch = Plain(), batch_of(4)
    with pytest.raises(GraphTransplantError, match="`saliency_module`"):
        gt.augmented_loss(model, batch, gt.GraphTransplant())
    gt.augmented_loss(model, batch, gt.GraphTransplant(), saliency_module="embed").backward()
    gt.augmented_loss(model, batch, ()).backward()  # plain training reads no saliency


def test_unknown_saliency_modules_are_named() -> None:
    with pytest.raises(GraphTransplantError, match=r"'three'.*one.*two.*norm"):
        as_predictor(Foreign(), "three")
    with pytest.raises(GraphTransplantError, match="submodule of the model"):
        as_predictor(Foreign(), nn.Linear(1, 1))
