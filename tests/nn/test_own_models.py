"""Models of other people: what goes wrong without a message, or in half precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numba
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import (
    GraphConv,
    HeteroBatchNorm,
    InstanceNorm,
    TopKPooling,
    global_add_pool,
)
from torch_geometric.nn import global_mean_pool as mean_pool

import graph_transplant as gt
from graph_transplant.augment import CleanPass
from graph_transplant.data import as_batch
from graph_transplant.data.targets import batch_targets
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.nn.adapter import as_predictor
from graph_transplant.nn.saliency import NodeSaliency
from helpers.foreign_models import Foreign, Weighted
from helpers.strategies import generator


def graph(nodes: int, seed: int) -> Data:
    rng = generator(seed)
    upper = (torch.rand(nodes, nodes, generator=rng) < 0.4).triu(1)
    edge_index = (upper | upper.T).nonzero().T.contiguous()
    x = torch.randn(nodes, 3, generator=rng)
    return Data(x=x, edge_index=edge_index, y=torch.tensor([seed % 3]))


def graphs(count: int = 8, least: int = 5) -> list[Data]:
    return [graph(least + seed % 7, seed) for seed in range(count)]


def batch_of(*more: Data) -> Batch:
    return Batch.from_data_list([*graphs(), *more])


def test_functions_of_others_are_compiled_without_a_module() -> None:
    space: dict[str, Any] = {}
    exec("def square(x):\n    return x * x", space)
    space["square"].__module__ = None
    assert numba.njit(space["square"])(3.0) == 9.0


@pytest.mark.filterwarnings("ignore:Unable to accurately infer 'num_nodes'")
def test_transforms_count_the_nodes_of_graphs_without_features() -> None:
    ring = torch.stack([torch.arange(6), (torch.arange(6) + 1) % 6])
    for seed in range(10):
        data = Data(z=torch.arange(6), edge_index=ring)
        edited = gt.transforms.DropNodes(0.5, generator(seed))(data)
        assert edited.num_nodes == len(edited.z) == 3


# ------------------------------------------------------------------ half precision


def test_half_precision_saliency_is_that_of_single_precision() -> None:
    batch = as_batch(Batch.from_data_list([graph(30, seed) for seed in range(64)]))
    model = Foreign()
    model.out.bias.data[0] += 14  # so confident that the gradient underflows
    targets = batch_targets(batch, 3)

    def saliency() -> Tensor:
        clean = CleanPass(batch, targets, as_predictor(model).run(batch))
        return clean.saliency(NodeSaliency())

    exact = saliency()
    with torch.autocast("cpu", torch.float16):
        half = saliency()
    assert bool((half > 0).all())
    assert float(torch.corrcoef(torch.stack((exact, half.float())))[0, 1]) > 0.99


@pytest.mark.parametrize("connect", ["dp", "ep"])
def test_edge_weights_of_one_have_the_precision_of_the_features(connect: str) -> None:
    class Seen(Weighted):
        def forward(  # type: ignore[override]
            self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, batch: Tensor
        ) -> Tensor:
            types.add(edge_weight.dtype)
            return super().forward(x, edge_index, edge_weight, batch)

    types: set[torch.dtype] = set()
    batch = batch_of()
    batch.x = batch.x.to(torch.bfloat16)
    augment = gt.GraphTransplant(connect, embedding_size=8)
    gt.augmented_loss(Seen().to(torch.bfloat16), batch, augment).backward()
    assert types == {torch.bfloat16}


# ------------------------------------------------------------------ where saliency is read


class PooledEarly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = GraphConv(3, 8), GraphConv(8, 8)
        self.pool, self.out = TopKPooling(8, ratio=0.99), nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        h = self.one(x, edge_index).relu()
        h, edge_index, _, batch, self.order, _ = self.pool(h, edge_index, batch=batch)
        return self.out(global_add_pool(self.two(h, edge_index).relu(), batch))


def test_layers_behind_a_pooling_layer_are_not_read() -> None:
    model, batch = PooledEarly(), as_batch(batch_of())
    prediction = as_predictor(model).run(batch)
    assert len(model.order) == batch.num_nodes  # all are kept
    assert model.order.tolist() != list(range(batch.num_nodes))  # in another order
    assert len(prediction.layers) == 1


class Shaped(GraphConv):  # type: ignore[misc]
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index).view(len(x), 4, 2)


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shaped, self.out = Shaped(3, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.out(mean_pool(self.shaped(x, edge_index).flatten(1).relu(), batch))


@pytest.mark.parametrize("kind", ["gradient", "gradient-x-activation"])
def test_layers_with_heads_have_a_saliency(kind: str) -> None:
    model, batch = Heads(), as_batch(batch_of())
    prediction = as_predictor(model).run(batch)
    loss = cross_entropy(prediction.logits, batch.y)
    saliency = NodeSaliency(kind).read(loss, prediction)
    embedding = prediction.layers[0].nodes
    (gradient,) = torch.autograd.grad(loss, embedding)
    expected = gradient.flatten(1).norm(dim=1)
    if kind != "gradient":
        expected = (gradient * embedding).flatten(1).sum(1).abs()
    torch.testing.assert_close(saliency, expected.detach())


def test_a_classifier_with_its_own_forward_is_called_through_it() -> None:
    class Sharper(gt.GraphClassifier):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:  # type: ignore[override]
            return 10 * super().forward(x, edge_index, batch=batch)

    batch = batch_of()
    model = Sharper(3, 3, hidden=8, dropout=0.0)
    logits = model(batch.x, batch.edge_index, batch=batch.batch)
    loss = gt.augmented_loss(model, batch, ())
    torch.testing.assert_close(loss, cross_entropy(logits, batch.y))


def test_an_averaged_model_is_called_with_the_number_of_graphs() -> None:
    class Named(Foreign):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
            return super().forward(x, edge_index, batch, num_graphs)

    losses = [
        gt.augmented_loss(model, batch_of(), gt.GraphTransplant(), generator=generator())
        for model in (AveragedModel(Named()), Foreign())
    ]
    torch.testing.assert_close(*losses)


# ------------------------------------------------------------------ what virtual graphs hold


class NoFeatures(gt.Augmentation):
    def __init__(self, as_pyg: bool) -> None:
        super().__init__()
        self.as_pyg = as_pyg

    def forward(self, clean: Any, *, model: Any, generator: Any) -> gt.augment.VirtualGraphs:
        batch = replace(clean.batch, nodes={"x": torch.zeros_like(clean.batch.x)})
        made = batch.to_pyg() if self.as_pyg else batch
        return gt.augment.VirtualGraphs(batch=made, targets=clean.targets)


@pytest.mark.parametrize("as_pyg", [False, True])
def test_an_augmentation_may_replace_features(as_pyg: bool) -> None:
    batch, model, augment = batch_of(), Foreign(), NoFeatures(as_pyg)
    chain = gt.augment.Sequential(augment, gt.augment.OriginalGraphs())
    first, second = (
        cross_entropy(model(x, batch.edge_index, batch.batch, 8), batch.y)
        for x in (batch.x, torch.zeros_like(batch.x))
    )
    torch.testing.assert_close(gt.augmented_loss(model, batch, chain), first + second)
    collated = gt.transforms.MixCollate(augment, num_outputs=3)(graphs())
    assert torch.equal(collated.x, torch.cat((batch.x, torch.zeros_like(batch.x))))


def test_a_residual_classifier_gives_the_output_of_its_layers_through_an_adapter() -> None:
    store = gt.load("motifs", graphs=12)
    options: dict[str, Any] = {"input_layers": 1, "norm": "batch", "residual": True, "layers": 2}
    model = gt.GraphClassifier.for_data(store, hidden=8, seed=0, **options).eval()
    batch = store.batch(range(12))
    plain, adapter = model.run(batch), as_predictor(model, output=lambda logits: logits)
    wrapped = adapter.run(batch)
    assert torch.equal(wrapped.nodes, plain.layers[-1].nodes)
    for kind in ("gradient", "gradient-x-activation"):
        reading = NodeSaliency(kind=kind)
        found = reading.read(wrapped.logits.square().sum(), wrapped)
        torch.testing.assert_close(found, reading.read(plain.logits.square().sum(), plain))
    assert "embed_nodes" not in vars(model)


def test_weights_are_no_use_to_a_model_that_does_not_read_those_of_the_batch() -> None:
    class Whole(Foreign):
        def forward(self, data: Data, edge_weight: Tensor | None = None) -> Tensor:  # type: ignore[override]
            assert edge_weight is None
            return super().forward(data.x, data.edge_index, data.batch, data.num_graphs)

    batch = batch_of()
    with pytest.warns(UserWarning, match="added without weights"):
        gt.augmented_loss(Whole(), batch, gt.GraphTransplant("ep", embedding_size=8))
    with pytest.raises(GraphTransplantError, match="edge_weight"):
        gt.augmented_loss(Whole(), batch, gt.augment.IfMixup())


class Followed(Foreign):
    def forward(self, x: Tensor, edge_index: Tensor, x_batch: Tensor, batch_size: int) -> Tensor:
        return super().forward(x, edge_index, x_batch, batch_size)


class Optional(Foreign):
    def forward(  # type: ignore[override]
        self, x: Tensor, edge_index: Tensor, batch: Tensor, u: Tensor | None = None
    ) -> Tensor:
        return super().forward(x, edge_index, batch, int(batch.max()) + 1)


class Anything(Foreign):
    def forward(self, *given: Tensor, **named: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(*given, **named)  # type: ignore[arg-type]


def test_what_would_go_wrong_without_a_message_is_refused() -> None:
    after = gt.GraphTransplant(saliency=NodeSaliency(activation="after"))
    followed = next(iter(DataLoader(graphs(), 8, follow_batch=["x"])))
    joined = graphs()
    for each in joined:
        each.u = torch.randn(5)  # PyG joins these to [graphs · 5]
    nothing = Data(x=torch.zeros(0, 3), edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=0)
    nothing.y = torch.tensor([0])
    some = batch_of(nothing, graph(5, 1))
    for model, batch, augment, message in (
        (Foreign(), batch_of(), after, "saliency_module"),
        (Followed(), followed, gt.GraphTransplant(), "`x_batch`, which virtual graphs do not"),
        (Optional(), Batch.from_data_list(joined), gt.GraphTransplant(), "`u`"),
        (Anything(), batch_of(), gt.GraphTransplant(), "must name its parameters"),
        (Foreign(), some, gt.augment.SubMix(), "graph 8 of the batch has no nodes"),
        (Foreign(), Data(x=torch.ones(3, 3), adj_t=torch.eye(3)), gt.GraphTransplant(), "`adj_t`"),
    ):
        with pytest.raises(GraphTransplantError, match=message):
            gt.augmented_loss(model, batch, augment)


def test_odd_parts_of_augmentations_are_refused() -> None:
    keep = gt.augment.ReliabilityFilter(gt.augment.DropNodes())
    for make, message in (
        (lambda: keep.after_epoch(Foreign(), graphs()), "`validation` must be a GraphStore"),
        (lambda: gt.GraphTransplant(hops=()), "`hops` must be one or more numbers"),
        (lambda: gt.GraphTransplant(hops=1.5), "`hops` must be a whole number, got 1.5"),
        (lambda: gt.GraphTransplant(alpha=float("inf")), r"`alpha` must be in \(0, inf\), got inf"),
        (lambda: gt.GraphClassifier(3, 2, dropout="0.5"), r"`dropout` must be in .*, got '0.5'"),
        (
            lambda: gt.augment.GMixup().prepare(graphs(), generator()),
            "`train` must be a GraphStore",
        ),
        (
            lambda: gt.evaluate(Foreign(), gt.load(graphs()), batch_size=0),
            "`batch_size` must be at",
        ),
        (lambda: gt.augment.ReliabilityFilter("drop-nodes"), "ReliabilityFilter needs an augment"),
        (lambda: gt.GraphClassifier(3, 2, std=torch.ones(2)), "`mean` and `std` must have one"),
    ):
        with pytest.raises(GraphTransplantError, match=message):
            make()
    assert gt.GraphTransplant(hops={1, 2}).hops == (1, 2)


def test_integers_do_not_truncate_mixtures() -> None:
    whole = graphs()
    for each in whole:
        each.x = nn.functional.one_hot(torch.arange(each.num_nodes) % 3, 3)
    collate = gt.transforms.MixCollate(gt.augment.GMixup(), num_outputs=3)
    collate.augmentation.prepare(gt.load(whole), generator(0))
    x = collate(whole).x[sum(each.num_nodes for each in whole) :]
    torch.testing.assert_close(x.sum(1), torch.ones(len(x)))  # of one-hot features
    for each in whole:
        each.edge_weight = torch.ones(each.num_edges, dtype=torch.long)
    weight = as_batch(Batch.from_data_list(whole)).edge_weight
    assert weight is not None
    assert weight.dtype == torch.float32


def test_targets_may_be_one_dimensional() -> None:
    batch = batch_of()
    values = torch.randn(8)
    mixed = gt.GraphTransplant().mix(batch, targets=values, generator=generator(0))
    assert mixed.targets.shape == (8, 1)
    lone = graph(9, 1)
    lone.y = torch.tensor(1)
    assert gt.augmented_loss(Foreign(), lone, gt.augment.DropNodes()).isfinite()
    several = graphs(3)
    for number, each in enumerate(several):
        each.y = torch.tensor([1.0, 11.0, 21.0]) + number
    back = as_batch(Batch.from_data_list(several)).to_pyg().to_data_list()
    assert [each.y.flatten().tolist() for each in back] == [each.y.tolist() for each in several]


@pytest.mark.parametrize("conv", ["gcn", "gcs", "gin", "gat"])
def test_the_classifier_runs_in_half_precision(conv: str) -> None:
    model = gt.GraphClassifier(3, 3, conv=conv, hidden=8, seed=0)
    with torch.autocast("cpu", torch.bfloat16):
        loss = gt.augmented_loss(model, batch_of(), gt.GraphTransplant("ep", embedding_size=8))
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(("kind", "kept"), [("DropNodes", False), ("DropEdges", True)])
def test_transforms_do_not_leave_numbers_of_nodes_behind(kind: str, kept: bool) -> None:
    data = graph(10, 1)
    data.root_index = torch.tensor([9])
    transform = getattr(gt.transforms, kind)(0.4)
    if kept:
        assert int(transform(data).root_index) == 9
    else:
        with pytest.raises(DataError, match="root_index"):
            transform(data)


def test_both_directions_of_a_new_edge_have_attributes_of_their_own() -> None:
    data = graphs(12, least=8)
    for each in data:
        sender, receiver = each.edge_index
        each.edge_attr = each.x[sender] - each.x[receiver]
    batch = Batch.from_data_list(data)
    mixed = gt.GraphTransplant().mix(batch, generator=generator(3)).batch.to_pyg().to_data_list()
    new = 0
    for each in mixed:
        pairs = map(tuple, each.edge_index.T.tolist())
        of = dict(zip(pairs, each.edge_attr, strict=True))
        for (u, v), attributes in of.items():
            torch.testing.assert_close(attributes, -of[v, u])
            new += not torch.allclose(attributes, each.x[u] - each.x[v])
    assert new > 20  # new edges have attributes of lost ones


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("edge_weight", torch.ones(graph(5, 1).num_edges), "`edge_weight`, which is not kept"),
        ("edge_index", torch.ones(2, 3, dtype=torch.bool), "graph 0 must have an `edge_index`"),
        ("x", torch.ones(5, 2, dtype=torch.complex64), "graph 0 must have an `x`"),
        ("y", torch.ones(1).to_sparse(), "graph 0 must have a `y`"),
    ],
)
def test_a_store_refuses_what_it_cannot_hold(name: str, value: Tensor, message: str) -> None:
    data = graph(5, 1)
    data[name] = value
    with pytest.raises(DataError, match=message):
        gt.load([data], name="odd")


def test_fields_that_data_count_up_by_their_store_and_empty_ones_are_taken() -> None:
    class Counted(Data):  # type: ignore[misc]
        def __inc__(self, key: str, value: object, store: object, *rest: object) -> object:
            return super().__inc__(key, value, store, *rest)

    batch = Batch.from_data_list([Counted(**each.to_dict()) for each in graphs()])
    batch.key_batch = torch.zeros(0)
    loss = gt.augmented_loss(Foreign(), batch, gt.GraphTransplant())
    assert bool(loss.isfinite())


# ------------------------------------------------------------------ state of model and batch


def test_a_model_may_write_to_the_batch() -> None:
    class Writes(Foreign):
        def forward(self, batch: Data) -> Tensor:  # type: ignore[override]
            seen.append(batch.x)
            batch.x = self.one(batch.x, batch.edge_index)
            return self.out(mean_pool(batch.x, batch.batch))

    seen: list[Tensor] = []
    batch = batch_of()
    x = batch.x
    gt.augmented_loss(Writes(), batch, gt.augment.OriginalGraphs())
    assert batch.x is x
    assert all(each is x for each in seen)
    assert len(seen) == 2


class OneType(HeteroBatchNorm):  # type: ignore[misc]
    def forward(self, x: Tensor) -> Any:
        return super().forward(x, torch.zeros(len(x), dtype=torch.long))


@pytest.mark.parametrize(
    "norm", [lambda: InstanceNorm(8, track_running_stats=True), lambda: OneType(8, 1)]
)
def test_normalisation_remembers_original_graphs_only(norm: Callable[[], nn.Module]) -> None:
    batch = batch_of()

    def statistics(augment: object) -> Tensor:
        model = Foreign(norm=norm())
        gt.augmented_loss(model, batch, augment, generator=generator()).backward()  # type: ignore[arg-type]
        mean = model.norm.running_mean
        assert isinstance(mean, Tensor)
        return mean

    torch.testing.assert_close(statistics(gt.GraphTransplant()), statistics(()), rtol=0, atol=0)


def test_a_static_graph_of_distributed_training_is_refused() -> None:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        model = DistributedDataParallel(Foreign(), static_graph=True)
        with pytest.raises(GraphTransplantError, match="static_graph"):
            gt.augmented_loss(model, batch_of(), gt.GraphTransplant())
    finally:
        torch.distributed.destroy_process_group()
