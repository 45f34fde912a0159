"""Node saliency against a gradient written by hand; foreign models."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GCNConv, SAGPooling, global_mean_pool

import graph_transplant as gt
from graph_transplant.augment import CleanPass
from graph_transplant.errors import GraphTransplantError
from graph_transplant.nn import GraphClassifier
from graph_transplant.saliency import ModuleAdapter, as_predictor, varies_within_graphs
from graph_transplant.targets import graph_losses
from oracles import dense_adjacency, dense_gcn
from strategies import random_batch


def batch_of(seed: int = 0, **settings: object) -> Batch:
    batch = random_batch(torch.Generator().manual_seed(seed), graphs=4, **settings)
    batch.y = torch.tensor([0, 1, 2, 1])
    return batch


def clean_pass(model: GraphClassifier, batch: Batch) -> CleanPass:
    predictor = as_predictor(model)
    prediction = predictor(batch)
    targets = torch.nn.functional.one_hot(batch.y, prediction.logits.shape[1]).to(
        prediction.logits.dtype
    )
    return CleanPass(batch, targets, prediction)


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

    labels = np.eye(logits.shape[1])[batch.y.numpy()]
    to_logits = (probability - labels) / graphs
    to_hidden = (to_logits @ weights["head.3.weight"]) * (hidden > 0)
    to_after = share.T @ (to_hidden @ weights["head.0.weight"])
    to_before = to_after * (before > 0)
    return {
        "gradient before": np.linalg.norm(to_before, axis=1),
        "gradient after": np.linalg.norm(to_after, axis=1),
        "gradient-x-activation before": np.abs((to_before * before).sum(1)),
        "gradient-x-activation after": np.abs((to_after * after).sum(1)),
        "loss": -np.log(probability[np.arange(graphs), batch.y.numpy()]).mean(),
    }


@pytest.mark.parametrize("kind", ["gradient", "gradient-x-activation"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_saliency_of_a_hand_differentiated_model(kind: str, side: str) -> None:
    batch = batch_of()
    model = GraphClassifier(3, 3, conv="gcn", layers=1, hidden=6, dropout=0.0, seed=0).double()
    batch.x = batch.x.double()
    clean = clean_pass(model, batch)
    expected = by_hand(model, batch)
    assert float(clean.loss.detach()) == pytest.approx(expected["loss"])
    found = clean.saliency(gt.NodeSaliency(kind=kind, activation=side))
    assert not found.requires_grad
    np.testing.assert_allclose(found.numpy(), expected[f"{kind} {side}"], rtol=1e-9, atol=1e-14)
    assert float(found.max()) > 0


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
    reading = gt.NodeSaliency(layer=layer, activation=side)
    found = clean_pass(model, batch).saliency(reading)
    torch.testing.assert_close(found, gradient.norm(dim=1))


@pytest.mark.parametrize("readout", ["mean", "sum"])
def test_last_output_after_the_activation_ranks_nothing(readout: str) -> None:
    batch = batch_of(2)
    model = GraphClassifier(3, 3, layers=2, hidden=8, readout=readout, seed=0)
    flat = clean_pass(model, batch).saliency(gt.NodeSaliency(activation="after"))
    for graph in range(4):
        values = flat[batch.batch == graph]
        assert float(values.max() - values.min()) <= 1e-6 * float(values.max())
    assert not varies_within_graphs(flat, batch)
    assert varies_within_graphs(clean_pass(model, batch).saliency(gt.NodeSaliency()), batch)


def test_flat_saliency_is_said_once() -> None:
    batch = batch_of(2)
    model = GraphClassifier(3, 3, layers=2, hidden=8, seed=0)
    transplant = gt.GraphTransplant(saliency=gt.NodeSaliency(activation="after"))
    with pytest.warns(UserWarning, match="saliency is the same for all nodes"):
        gt.augmented_loss(model, batch, transplant, generator=torch.Generator())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gt.augmented_loss(model, batch, transplant, generator=torch.Generator())
        gt.augmented_loss(model, batch, gt.GraphTransplant(), generator=torch.Generator())


def test_single_nodes_do_not_count_as_flat() -> None:
    nothing = torch.empty(2, 0, dtype=torch.long)
    lone = Batch.from_data_list([Data(x=torch.ones(1, 1), edge_index=nothing)] * 3)
    assert varies_within_graphs(torch.ones(3), lone)


def test_reading_leaves_everything_as_it_was() -> None:
    batch = batch_of(3)
    model = GraphClassifier(3, 3, layers=2, hidden=8, seed=0)
    clean = clean_pass(model, batch)
    reading = gt.NodeSaliency()
    first = clean.saliency(reading)
    assert clean.saliency(gt.NodeSaliency()) is first  # read once
    assert all(p.grad is None for p in model.parameters())
    clean.loss.backward()  # the graph of the pass is still there
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gt.NodeSaliency(kind="occlusion"), "`kind` must be one of gradient"),
        (lambda: gt.NodeSaliency(activation="during"), "`activation` must be one of before, after"),
    ],
)
def test_bad_readings_are_named(make: object, message: str) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        make()  # type: ignore[operator]


def test_readings_that_the_model_cannot_give() -> None:
    batch = batch_of(3)
    model = GraphClassifier(3, 3, layers=2, hidden=8)
    for layer in (2, -3):
        with pytest.raises(GraphTransplantError, match=f"`layer` .*{layer}.*2 message-passing"):
            clean_pass(model, batch).saliency(gt.NodeSaliency(layer=layer))
    with torch.no_grad():
        clean = clean_pass(model, batch)
    with pytest.raises(GraphTransplantError, match="gradients"):
        clean.saliency(gt.NodeSaliency())


# ------------------------------------------------------------------ foreign models


class ByName(nn.Module):
    """Fields by name; two message-passing layers."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.one = GCNConv(3, width)
        self.two = GCNConv(width, width)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 3)
        self.seen: list[int] = []

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int) -> Tensor:
        assert isinstance(batch, Tensor)
        self.seen.append(batch_size)
        h = self.one(x, edge_index).relu()
        h = self.norm(self.two(h, edge_index)).relu()
        return self.out(global_mean_pool(h, batch, batch_size))


class Weighted(ByName):
    def forward(  # type: ignore[override]
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, batch=None
    ) -> Tensor:
        h = self.one(x, edge_index, edge_weight).relu()
        h = self.two(h, edge_index, edge_weight).relu()
        return self.out(global_mean_pool(h, batch))


class Attributes(ByName):
    def __init__(self) -> None:
        super().__init__()
        self.one = GATConv(3, 8, edge_dim=2)

    def forward(self, batch: Tensor, edge_attr: Tensor, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        h = self.one(x, edge_index, edge_attr).relu()
        return self.out(global_mean_pool(self.two(h, edge_index).relu(), batch))


class WholeBatch(ByName):
    def forward(self, data: Data) -> Tensor:  # type: ignore[override]
        return super().forward(data.x, data.edge_index, data.batch, data.num_graphs)


class WholeBatchCalledBatch(ByName):
    def forward(self, batch: Data) -> Tensor:  # type: ignore[override]
        return super().forward(batch.x, batch.edge_index, batch.batch, batch.num_graphs)


FOREIGN = [ByName, Weighted, Attributes, WholeBatch, WholeBatchCalledBatch]


def hooks(model: nn.Module) -> int:
    return sum(
        len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks)
        for m in model.modules()
    )


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_models_train_in_three_lines(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    batch, model = batch_of(4, edge_attr=True), kind()
    loss = gt.augmented_loss(model, batch, gt.GraphTransplant(), generator=torch.Generator())
    assert hooks(model) == 0
    loss.backward()
    used = [p for name, p in model.named_parameters() if not name.startswith("norm")]
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in used)


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_saliency_is_the_gradient_at_the_last_message_passing_module(
    kind: type[nn.Module],
) -> None:
    torch.manual_seed(0)
    batch, model = batch_of(4, edge_attr=True), kind()
    kept: list[Tensor] = []
    handle = model.two.register_forward_hook(lambda m, i, output: kept.append(output))
    clean = clean_pass(model, batch)
    handle.remove()
    assert len(clean.prediction.layers) == 2
    (gradient,) = torch.autograd.grad(clean.loss, kept[0], retain_graph=True)
    torch.testing.assert_close(clean.saliency(gt.NodeSaliency()), gradient.norm(dim=1))
    assert torch.equal(clean.prediction.nodes, kept[0])


@pytest.mark.parametrize("named", ["norm", "module"])
def test_saliency_at_a_named_module(named: str) -> None:
    torch.manual_seed(0)
    batch, model = batch_of(4), ByName()
    adapter = as_predictor(model, model.norm if named == "module" else named)
    kept: list[Tensor] = []
    handle = model.norm.register_forward_hook(lambda m, i, output: kept.append(output))
    prediction = adapter(batch)
    handle.remove()
    loss = graph_losses(prediction.logits, torch.eye(3)[batch.y]).mean()
    (gradient,) = torch.autograd.grad(loss, kept[0], retain_graph=True)
    found = gt.NodeSaliency().read(loss, prediction)
    torch.testing.assert_close(found, gradient.norm(dim=1))
    assert hooks(model) == 0
    gt.augmented_loss(
        model, batch, gt.GraphTransplant(), saliency_module=named if named == "norm" else model.norm
    )


def test_hooks_are_removed_when_forward_raises() -> None:
    class Broken(ByName):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
            self.one(x, edge_index)
            raise RuntimeError("out of luck")

    model = Broken()
    with pytest.raises(RuntimeError, match="out of luck"):
        gt.augmented_loss(model, batch_of(4), gt.GraphTransplant())
    assert hooks(model) == 0


def test_the_users_own_hooks_stay() -> None:
    model = ByName()
    calls: list[int] = []
    model.two.register_forward_hook(lambda m, i, o: calls.append(1))
    gt.augmented_loss(model, batch_of(4), gt.GraphTransplant(), generator=torch.Generator())
    assert hooks(model) == 1
    assert len(calls) == 2


def test_batch_size_is_the_number_of_graphs() -> None:
    model = ByName()
    gt.augmented_loss(model, batch_of(4), gt.GraphTransplant(), generator=torch.Generator())
    assert model.seen == [4, 4]


def test_a_model_that_pools_nodes_away_can_still_be_used() -> None:
    class Pooling(ByName):
        def __init__(self) -> None:
            super().__init__()
            self.pool = SAGPooling(8, ratio=0.5)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int) -> Tensor:
            h = self.one(x, edge_index).relu()
            h, edge_index, _, batch, _, _ = self.pool(h, edge_index, batch=batch)
            h = self.two(h, edge_index).relu()
            return self.out(global_mean_pool(h, batch, batch_size))

    batch, model = batch_of(4), Pooling()
    loss = gt.augmented_loss(model, batch, gt.GraphTransplant(), saliency_module="one")
    loss.backward()
    assert model(batch.x, batch.edge_index, batch.batch, 4).shape == (4, 3)
    # Plain training and evaluation read no saliency, so that nothing can be wrong with it.
    gt.augmented_loss(model, batch, ()).backward()
    store = gt.GraphStore.from_pyg(batch.to_data_list())
    assert gt.evaluate(model, store).logits.shape == (4, 3)
    # Layers that no longer have one row per node do not count as layers.
    assert all(len(layer.nodes) == batch.num_nodes for layer in as_predictor(model)(batch).layers)
    gt.augmented_loss(model, batch, gt.GraphTransplant()).backward()
    with pytest.raises(GraphTransplantError, match="one row per node"):
        gt.augmented_loss(model, batch, gt.GraphTransplant(), saliency_module="out")
    assert hooks(model) == 0


def test_a_model_without_message_passing_says_what_to_do() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(3, 4)
            self.out = nn.Linear(4, 3)

        def forward(self, x: Tensor, batch: Tensor) -> Tensor:
            return self.out(global_mean_pool(self.embed(x).relu(), batch))

    model, batch = Plain(), batch_of(4)
    with pytest.raises(GraphTransplantError, match="`saliency_module`"):
        gt.augmented_loss(model, batch, gt.GraphTransplant())
    gt.augmented_loss(model, batch, gt.GraphTransplant(), saliency_module="embed").backward()
    gt.augmented_loss(model, batch, ()).backward()


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda self, x, edge_index: self.one(x, edge_index), r"\[4, outputs\]; got \["),
        (lambda self, x, edge_index: {"a": 1}, r"\[4, outputs\]; got dict"),
        (
            lambda self, x, edge_index, pos: None,
            "forward needs `pos`, which the batch does not have",
        ),
    ],
)
def test_models_that_do_not_fit_are_told_why(forward: object, message: str) -> None:
    model = type("Odd", (ByName,), {"forward": forward})()
    with pytest.raises(GraphTransplantError, match=message):
        gt.augmented_loss(model, batch_of(4), gt.GraphTransplant())
    assert hooks(model) == 0


def test_one_number_per_graph_is_one_column() -> None:
    class OneValue(ByName):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int) -> Tensor:
            return super().forward(x, edge_index, batch, batch_size)[:, 0]

    model, batch = OneValue(), batch_of(4)
    batch.y = torch.tensor([0.1, 0.7, 2.0, -1.0])
    assert as_predictor(model)(batch).logits.shape == (4, 1)
    gt.augmented_loss(model, batch, gt.GraphTransplant(), generator=torch.Generator()).backward()


def test_unknown_saliency_modules_are_named() -> None:
    model = ByName()
    with pytest.raises(GraphTransplantError, match=r"'three'.*one.*two.*norm"):
        as_predictor(model, "three")
    with pytest.raises(GraphTransplantError, match="submodule of the model"):
        as_predictor(model, nn.Linear(1, 1))
    assert isinstance(as_predictor(model), ModuleAdapter)
    assert as_predictor(model).takes_edge_weight is False
    assert as_predictor(Weighted()).takes_edge_weight is True
