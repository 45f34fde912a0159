"""A PyG user's own model and training loop: ``augmented_loss`` with everything people bring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, global_mean_pool

import graph_transplant as gt
from graph_transplant.augment import OriginalGraphs
from graph_transplant.data import GraphBatch
from graph_transplant.errors import DataError, GraphTransplantError
from helpers.foreign_models import Foreign, Weighted
from helpers.processes import run_ranks
from helpers.strategies import generator, random_batch


def batch_of(seed: int = 4, graphs: int = 4) -> Batch:
    batch = random_batch(generator(seed), graphs=graphs, edge_attr=True)
    batch.y = torch.arange(graphs) % 3
    return batch


class Attributes(Foreign):
    def __init__(self) -> None:
        super().__init__()
        self.one = GATConv(3, 8, edge_dim=2)

    def forward(self, batch: Tensor, edge_attr: Tensor, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        h = self.one(x, edge_index, edge_attr).relu()
        return self.out(global_mean_pool(self.two(h, edge_index).relu(), batch))


class WholeBatch(Foreign):
    def forward(self, batch: Data) -> Tensor:  # type: ignore[override]
        return super().forward(batch.x, batch.edge_index, batch.batch, batch.num_graphs)


def gradients(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


# ------------------------------------------------------------------ models


@pytest.mark.parametrize("kind", [Foreign, Weighted, Attributes, WholeBatch])
def test_models_of_any_signature_train(kind: type[nn.Module]) -> None:
    model = kind()
    gt.augmented_loss(model, batch_of(), gt.GraphTransplant(), generator=generator()).backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in model.parameters())


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda self, x, edge_index: self.one(x, edge_index), r"\[4, outputs\]; got \[.*`output`"),
        (lambda self, x, edge_index: {"a": 1}, r"\[4, outputs\]; got dict"),
        (lambda self, x, pos: None, "forward needs `pos`, which the batch does not have"),
    ],
)
def test_models_that_do_not_fit_are_told_why(forward: Callable[..., Any], message: str) -> None:
    model = type("Odd", (Foreign,), {"forward": forward})()
    with pytest.raises(GraphTransplantError, match=message):
        gt.augmented_loss(model, batch_of(), ())


class Global(Foreign):
    """Uses a tensor of graphs besides."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, u: Tensor) -> Tensor:  # type: ignore[override]
        self.seen.append(u)
        return super().forward(x, edge_index, batch, len(u)) + u.sum(1, keepdim=True)


class Stacked(Data):  # type: ignore[misc]
    def __cat_dim__(self, key: str, value: object, *rest: object) -> Any:
        return None if key == "stacked" else super().__cat_dim__(key, value, *rest)


@pytest.mark.parametrize(
    "augment",
    [gt.GraphTransplant(), gt.augment.DropNodes(), gt.augment.SubMix(), gt.augment.NodeSam()],
    ids=repr,
)
def test_virtual_graphs_keep_the_tensors_of_their_originals(augment: gt.Augmentation) -> None:
    graphs = [
        Stacked(**each.to_dict(), stacked=torch.rand(5)) for each in batch_of().to_data_list()
    ]
    for graph in graphs:
        graph.u = torch.rand(1, 5)
        graph.face = torch.zeros(len(graphs), 2, dtype=torch.long)  # has as many rows by chance
    batch, model = Batch.from_data_list(graphs), Global()
    gt.augmented_loss(model, batch, augment).backward()
    assert set(GraphBatch.from_pyg(batch).graphs) == {"u", "stacked"}
    original, virtual = model.seen
    assert torch.equal(original, batch.u)
    assert torch.equal(virtual, batch.u)


def test_rows_of_fields_are_counted_graph_by_graph() -> None:
    def graph(nodes: int) -> Data:
        star = torch.tensor([[0] * (nodes - 1), range(1, nodes)])
        fields = {"u": torch.ones(1, 4), "three": torch.ones(3), "bond": torch.ones(nodes - 1)}
        return Data(x=torch.ones(nodes, 2), edge_index=star, **fields)

    # As many edges as graphs, as many nodes as entries of `three`.
    edges, nodes = ([graph(size) for size in sizes] for sizes in ((1, 3), (2, 4)))
    for graphs in (edges, nodes):
        found = GraphBatch.from_pyg(Batch.from_data_list(graphs))
        assert [*found.nodes, *found.edges, *found.graphs] == ["x", "bond", "u"]


def test_arguments_of_other_types_are_told() -> None:
    batch, model = batch_of(), Foreign()
    for wrong in ("transplant-dp", [gt.GraphTransplant(), "drop-nodes"]):
        with pytest.raises(GraphTransplantError, match=r"`augment` must be an augmentation.*'"):
            gt.augmented_loss(model, batch, wrong)  # type: ignore[arg-type]
    with pytest.raises(GraphTransplantError, match="`saliency` must be a NodeSaliency"):
        gt.GraphTransplant(saliency=1)  # type: ignore[arg-type]
    with pytest.raises(GraphTransplantError, match=r"`model` must be an nn\.Module"):
        gt.augmented_loss(Foreign, batch, ())  # type: ignore[arg-type]
    with pytest.raises(GraphTransplantError, match=r"`generator` must be a torch.Generator; got 0"):
        gt.augmented_loss(model, batch, gt.GraphTransplant(), generator=0)  # type: ignore[arg-type]
    forward = {"forward": lambda self, clean, model, generator: batch}
    with pytest.raises(GraphTransplantError, match="Odd must return VirtualGraphs; got DataBatch"):
        gt.augmented_loss(model, batch, type("Odd", (gt.Augmentation,), forward)())
    batch.x = batch.x.double()
    with pytest.raises(GraphTransplantError, match=r"float64.*\.double\(\)"):
        gt.augmented_loss(model.double(), batch, gt.GraphTransplant("ep", embedding_size=8))


def _averaged(rank: int) -> tuple[list[float], list[float]]:
    """Gradients of one rank in a group, and by itself."""
    batch, found = batch_of(rank), []
    for model in (DistributedDataParallel(Foreign()), Foreign()):
        loss = gt.augmented_loss(model, batch, gt.GraphTransplant(), generator=generator(rank))
        loss.backward()
        found.append(gradients(model).tolist())
    return found[0], found[1]


def test_gradients_of_several_processes_are_averaged() -> None:
    (one, first), (other, second) = run_ranks(_averaged)
    assert one == other
    mean = (torch.tensor(first) + torch.tensor(second)) / 2
    torch.testing.assert_close(torch.tensor(one), mean)
    assert first != second


# ------------------------------------------------------------------ targets


def test_the_loss_of_a_double_model_is_double_for_every_kind_of_targets() -> None:
    batch, model = batch_of(), Foreign(2).double()
    batch.x = batch.x.double()
    for y in (torch.tensor([[0, 1]] * 4), torch.tensor([[0.0, 1.0]] * 4)):
        for task in ("multilabel", "regression"):
            batch.y = y
            loss = gt.augmented_loss(model, batch, gt.GraphTransplant(), task=task)
            assert loss.dtype == torch.double


def test_rows_of_labels_may_lie_end_to_end() -> None:
    # PyG lays `y` of shape [labels] of several graphs end to end.
    batch, model = batch_of(), Foreign(2)
    rows = torch.tensor([[0.0, 1.0], [1.0, float("nan")], [1.0, 1.0], [0.0, 0.0]])
    losses = []
    for y in (rows, rows.flatten()):
        batch.y = y
        losses.append(gt.augmented_loss(model, batch, (), task="multilabel"))
    torch.testing.assert_close(*losses)
    batch.y = rows.nan_to_num().argmax(1)[:3]
    with pytest.raises(DataError, match=r"`y` must have 4 rows, one per graph; got \[3\]"):
        gt.augmented_loss(model, batch, ())


# ------------------------------------------------------------------ losses and outputs


def focal(logits: Tensor, targets: Tensor) -> Tensor:
    loss = cross_entropy(logits, targets, reduction="none")
    return (1 - (-loss).exp()).square() * loss


WEIGHT = torch.tensor([0.5, 1.0, 4.0])


@pytest.mark.parametrize(
    ("settings", "loss"),
    [
        ({}, cross_entropy),
        ({"class_weight": WEIGHT}, lambda z, y: cross_entropy(z, y, WEIGHT, reduction="none")),
        ({"loss_fn": focal}, focal),
    ],
)
def test_the_loss_is_that_of_original_and_of_mixed_graphs(
    settings: dict[str, Any], loss: Callable[[Tensor, Tensor], Tensor]
) -> None:
    batch, model = batch_of(), Foreign()
    # Without saliency the mixing needs no model and can be done again.
    mixing = gt.GraphTransplant(anchors="random", importance="size")
    losses = gt.augmented_losses(
        model, batch, mixing, generator=generator(1), virtual_weight=0.5, **settings
    )
    mixed = mixing.mix(batch, generator=generator(1), num_outputs=3).batch.to_pyg()
    clean, virtual = (
        loss(model(graphs.x, graphs.edge_index, graphs.batch, 4), targets).mean()
        for graphs, targets in ((batch, torch.eye(3)[batch.y]), (mixed, mixed.y))
    )
    nothing = torch.zeros(())
    torch.testing.assert_close(losses.parts, (clean, 0.5 * virtual, nothing, nothing))
    torch.testing.assert_close(losses.total, clean + 0.5 * virtual)
    torch.testing.assert_close(losses.logits, model(batch.x, batch.edge_index, batch.batch, 4))
    assert torch.equal(losses.targets, torch.eye(3)[batch.y])
    assert bool((mixed.y.max(1).values < 1).any())


@pytest.mark.parametrize(
    ("wrap", "output"),
    [
        (lambda logits: {"logits": logits, "extra": 1}, lambda out: out["logits"]),
        (lambda logits: ("extra", logits), lambda out: out[1]),
    ],
)
def test_logits_are_picked_out_of_what_the_model_returns(
    wrap: Callable[[Tensor], Any], output: Callable[[Any], Tensor]
) -> None:
    class Wrapped(Foreign):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int) -> Any:  # type: ignore[override]
            return wrap(super().forward(x, edge_index, batch, batch_size))

    batch = batch_of(graphs=12)
    losses = [
        gt.augmented_loss(model, batch, gt.GraphTransplant(), output=pick, generator=generator(1))
        for model, pick in ((Wrapped(), output), (Foreign(), None))
    ]
    torch.testing.assert_close(*losses)
    store = gt.GraphStore.from_pyg(batch.to_data_list())
    result = gt.fit(Wrapped(), store, store, OriginalGraphs(), seed=0, epochs=2, output=output)
    assert result.epochs == 2
    assert gt.evaluate(result.model, store, output=output).logits.shape == (12, 3)


def test_log_warns_for_one_release() -> None:
    parts: list[dict[str, Tensor]] = []
    with pytest.warns(DeprecationWarning, match=r"0\.4: gt\.augmented_losses returns"):
        loss = gt.augmented_loss(Foreign(), batch_of(), gt.GraphTransplant(), log=parts.append)
    assert list(parts[0]) == ["clean", "virtual", "auxiliary", "extra"]
    torch.testing.assert_close(sum(parts[0].values()), loss.detach())


def test_annotations_can_be_evaluated() -> None:
    for function in (gt.augmented_loss, gt.GraphTransplant.mix, gt.GraphStore.from_pyg):
        assert get_type_hints(function)
