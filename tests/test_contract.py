"""What every augmentation must hold. A new method is tested by standing in ``METHODS``."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.augment import METHODS, Augmentation, build_method, refusal
from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.protocol import Settings
from graph_transplant.experiments.records import Trial
from graph_transplant.experiments.trial import run_trial
from graph_transplant.nn import CONVOLUTIONS, evaluating
from graph_transplant.saliency import as_predictor
from oracles import check_valid_batch, is_undirected, same_content
from strategies import motifs_for, random_batch

GRAPHS = 6
AUGMENTING = sorted(
    name for name in METHODS if build_method(name, gt.GraphClassifier(3, 2, hidden=4))
)
CONVS = ("gcn", "gcs", "gin", "gat", "gine", "gat-edge")
EDGE_CONVS = tuple(conv for conv in CONVS if CONVOLUTIONS[conv].takes_edge_attr)

# What sets a method apart where the suite would otherwise ask the same of all. Every entry is a
# property of the method as published, and is told on its documentation page.
DETERMINISTIC = {"label-smoothing", "vanilla-x2"}  # nothing is drawn
NAMES_ALL_CLASSES = {"label-smoothing"}
MAKES_FEATURES = {"mask-nodes", "if-mixup", "g-mixup", "node-sam"}  # masked, mixed or averaged
MAKES_WEIGHTS = {"if-mixup"}
NEEDS_OUR_MODEL = {"manifold-mixup"}
NO_GRAPHS = {"manifold-mixup", "label-smoothing"}  # embeddings and logits
NO_ORIGINS = NO_GRAPHS | {"if-mixup", "g-mixup", "vanilla-x2"}  # nodes come from many, none or all
NO_EDGE_ATTR = {"g-mixup"}  # a graphon gives only whether there is an edge


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def edges(*listed: tuple[int, int]) -> Tensor:
    both = [e for u, v in listed for e in ((u, v), (v, u))]
    return torch.tensor(both, dtype=torch.long).reshape(-1, 2).t().contiguous()


def graph(nodes: int, edge_index: Tensor, label: int) -> Data:
    x = torch.randn(nodes, 3, generator=generator(label))
    return Data(x=x, edge_index=edge_index, y=torch.tensor([label]))


@cache
def batch_named(kind: str) -> Batch:
    if kind == "single-node":
        items = [graph(1, edges(), k) for k in range(GRAPHS)]
    elif kind == "edgeless":
        items = [graph(3 + k, edges(), k) for k in range(GRAPHS)]
    elif kind == "complete":
        items = [
            graph(k + 2, edges(*itertools.combinations(range(k + 2), 2)), k) for k in range(GRAPHS)
        ]
    elif kind == "mixed":  # one of each beside ordinary graphs
        ring = edges(*((v, (v + 1) % 6) for v in range(6)))
        items = [
            graph(1, edges(), 0),
            graph(4, edges(), 1),
            graph(4, edges(*itertools.combinations(range(4), 2)), 2),
            graph(6, ring, 3),
            graph(7, edges((0, 1), (1, 2), (4, 5)), 4),
            graph(6, ring, 5),
        ]
    else:
        return random_batch(
            generator(21),
            graphs=GRAPHS,
            undirected=kind != "directed",
            simple=kind != "multi",
            edge_attr=kind == "attributes",
            edge_weight=kind == "weights",
        )
    return Batch.from_data_list(items)


KINDS = (
    "ordinary",
    "directed",
    "multi",
    "attributes",
    "weights",
    "single-node",
    "edgeless",
    "complete",
    "mixed",
)


# What each method refuses of the kinds above, before training starts.
REFUSED: dict[str, set[str]] = {"g-mixup": {"directed", "attributes"}}


def attributed(batch: Batch) -> Batch:
    """The same graphs with edge attributes, of which no two edges have the same."""
    if "edge_attr" in batch:
        return batch
    items = batch.to_data_list()
    for number, item in enumerate(items):
        size = (item.edge_index.shape[1], 2)
        item.edge_attr = torch.randn(size, generator=generator(100 + number))
    return Batch.from_data_list(items)


def setup(
    method: str, kind: str = "ordinary", conv: str = "gcs", dropout: float = 0.5
) -> tuple[gt.GraphClassifier, Augmentation, Batch]:
    ordinary, batch = batch_named("ordinary"), batch_named(kind).clone()
    width = 2 if conv in EDGE_CONVS else 0
    if width:
        ordinary, batch = attributed(ordinary), attributed(batch)
    model = gt.GraphClassifier(
        3,
        GRAPHS,
        conv=conv,
        layers=2,
        hidden=16 if width else 8,  # so that a first saliency tells nodes apart
        dropout=dropout,
        edge_features=width,
        seed=0,
    ).train()
    torch.manual_seed(0)
    (augmentation,) = build_method(method, model)
    store = store_of(ordinary)
    augmentation.prepare(store, generator())
    with evaluating(model):  # as after a first epoch, from which on a filter does its work
        augmentation.after_epoch(model, store)
    return model, augmentation, batch


def store_of(batch: Batch) -> gt.GraphStore:
    return gt.GraphStore.from_pyg(batch.to_data_list(), name="examples")


def refused(method: str, store: gt.GraphStore) -> str | None:
    """What a method says against training on some data, if anything."""
    model = gt.GraphClassifier.for_data(store, layers=1, hidden=4, seed=0)
    return refusal(method, model, store)


SERVED = [
    (method, kind) for method in AUGMENTING for kind in KINDS if kind not in REFUSED.get(method, ())
]
ATTRIBUTED = sorted(set(AUGMENTING) - NO_EDGE_ATTR)


def clean_pass(model: nn.Module, batch: Batch) -> gt.CleanPass:
    return gt.CleanPass(batch, torch.eye(GRAPHS), as_predictor(model)(batch))


def augment(
    model: nn.Module, augmentation: Augmentation, batch: Batch, seed: int = 0
) -> gt.Virtual:
    clean = clean_pass(model, batch)
    return augmentation(clean, model=as_predictor(model), generator=generator(seed))


@contextmanager
def flat_saliency_allowed(kind: str) -> Iterator[None]:
    """On graphs without edges, or complete ones, saliency may truly be flat, and that is said."""
    import warnings

    with warnings.catch_warnings():
        if kind in ("single-node", "edgeless", "complete"):
            warnings.filterwarnings("ignore", message="node saliency is the same")
        yield


def test_every_method_is_looked_at() -> None:
    assert set(METHODS) - set(AUGMENTING) == {"vanilla"}
    for name in AUGMENTING:
        assert len(build_method(name, gt.GraphClassifier(3, 2, hidden=4))) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", AUGMENTING)
def test_what_a_method_refuses_it_says_before_training(method: str, kind: str) -> None:
    said = refused(method, store_of(batch_named(kind)))
    if kind in REFUSED.get(method, ()):
        assert said is not None
        assert "examples" in said
    else:
        assert said is None


@pytest.mark.parametrize("method", AUGMENTING)
def test_same_seed_same_result(method: str) -> None:
    results = []
    for seed in (3, 3, 4):
        model, augmentation, batch = setup(method, dropout=0.0)
        results.append(augment(model, augmentation, batch, seed))
    predictor = as_predictor(model)
    one, again, other = ((r.targets, r.logits(predictor)) for r in results)
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert torch.equal(one[1], other[1]) == (method in DETERMINISTIC)
    if isinstance(results[0], gt.VirtualGraphs):
        assert same_content(results[0].batch, results[1].batch)
        alike = same_content(results[0].batch, results[2].batch)
        assert alike == (method in DETERMINISTIC)


@pytest.mark.parametrize("method", AUGMENTING)
def test_the_global_generator_is_left_alone(method: str) -> None:
    model, augmentation, batch = setup(method)
    clean = clean_pass(model, batch)
    state = torch.get_rng_state()
    augmentation(clean, model=as_predictor(model), generator=generator())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("method", "kind"), SERVED)
def test_targets_are_distributions(method: str, kind: str) -> None:
    with flat_saliency_allowed(kind):
        virtual = augment(*setup(method, kind))
    assert virtual.targets.shape[1] == GRAPHS
    torch.testing.assert_close(virtual.targets.sum(1), torch.ones(len(virtual.targets)))
    assert bool(((virtual.targets >= 0) & (virtual.targets <= 1)).all())
    if virtual.weight is not None:
        assert bool((virtual.weight >= 0).all())
    # Every graph has its own class: no target may name more than two graphs.
    if method not in NAMES_ALL_CLASSES:
        assert int((virtual.targets > 0).sum(1).max()) <= 2
    assert not virtual.targets.requires_grad


@pytest.mark.parametrize(("method", "kind"), SERVED)
def test_input_is_unchanged(method: str, kind: str) -> None:
    model, augmentation, batch = setup(method, kind)
    before, targets = batch.clone(), torch.eye(GRAPHS)
    versions = {key: batch[key]._version for key in batch.keys() if torch.is_tensor(batch[key])}  # noqa: SIM118
    clean = gt.CleanPass(batch, targets, model(batch))
    logits, nodes = clean.prediction.logits.clone(), clean.prediction.nodes.clone()
    with flat_saliency_allowed(kind):
        virtual = augmentation(clean, model=as_predictor(model), generator=generator())
        virtual.loss(as_predictor(model), "multiclass").backward()
    assert same_content(batch, before)
    assert all(batch[key]._version == version for key, version in versions.items())
    assert torch.equal(targets, torch.eye(GRAPHS))
    assert torch.equal(clean.prediction.logits, logits)
    assert torch.equal(clean.prediction.nodes, nodes)


class Foreign(nn.Module):
    """A PyG model that takes edge weights."""

    def __init__(self) -> None:
        super().__init__()
        from torch_geometric.nn import GCNConv

        self.one, self.two = GCNConv(3, 8), GCNConv(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.out = nn.Linear(8, GRAPHS)

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_weight: Tensor | None = None
    ) -> Tensor:
        from torch_geometric.nn import global_mean_pool

        h = self.norm(self.one(x, edge_index, edge_weight)).relu()
        return self.out(global_mean_pool(self.two(h, edge_index, edge_weight).relu(), batch))


@pytest.mark.parametrize("foreign", [False, True], ids=["ours", "foreign"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("method", AUGMENTING)
def test_model_is_unchanged(method: str, training: bool, foreign: bool) -> None:
    model, augmentation, batch = setup(method)
    if foreign:
        torch.manual_seed(0)
        model = Foreign()
        if method in NEEDS_OUR_MODEL:
            with pytest.raises(GraphTransplantError, match="GraphClassifier"):
                augmentation.check(as_predictor(model), store_of(batch))
            return
        augmentation.check(as_predictor(model), store_of(batch))
    model.train(training)
    first = next(model.parameters())
    first.grad = torch.full_like(first, 7.0)  # a gradient somebody is accumulating
    clean = clean_pass(model, batch)
    weights = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    augmentation(clean, model=as_predictor(model), generator=generator())
    assert [module.training for module in model.modules()] == modes
    for module in model.modules():
        for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"):
            assert not getattr(module, hooks)
    assert all(torch.equal(weights[key], value) for key, value in model.state_dict().items())
    assert bool((first.grad == 7.0).all())
    assert all(p.grad is None for p in model.parameters() if p is not first)
    assert all(p.grad is None for p in augmentation.parameters())
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize(
    ("method", "conv"),
    [
        (method, conv)
        for method in AUGMENTING
        for conv in CONVS
        if not (conv in EDGE_CONVS and method in NO_EDGE_ATTR)
    ],
)
def test_all_parameters_move_in_one_step(method: str, conv: str) -> None:
    model, augmentation, batch = setup(method, conv=conv)
    modules = nn.ModuleDict({"model": model, "augmentation": augmentation})
    before = copy.deepcopy(modules.state_dict())
    optimiser = torch.optim.Adam(modules.parameters(), lr=1e-2)
    loss = gt.augmented_loss(model, batch, augmentation, generator=generator())
    assert loss.dim() == 0
    assert bool(torch.isfinite(loss.detach()))
    loss.backward()
    optimiser.step()
    for name, parameter in modules.named_parameters():
        assert parameter.grad is not None, name
        assert not torch.equal(parameter, before[name]), name


@pytest.mark.parametrize("method", AUGMENTING)
def test_the_loss_is_the_sum_of_its_parts(method: str) -> None:
    model, augmentation, batch = setup(method, dropout=0.0)
    clean = clean_pass(model, batch)
    virtual = augmentation(clean, model=as_predictor(model), generator=generator(5))
    parts = clean.loss + virtual.loss(as_predictor(model), "multiclass")
    if virtual.auxiliary_loss is not None:
        parts = parts + virtual.auxiliary_loss
    whole = gt.augmented_loss(model, batch, augmentation, generator=generator(5))
    torch.testing.assert_close(whole, parts)
    logits = virtual.logits(as_predictor(model))
    soft = nn.functional.cross_entropy(logits, virtual.targets, reduction="none")
    weight = torch.ones(len(soft)) if virtual.weight is None else virtual.weight
    expected = (soft * weight).mean()
    torch.testing.assert_close(virtual.loss(as_predictor(model), "multiclass"), expected)


@pytest.mark.parametrize(("method", "kind"), SERVED)
def test_virtual_batch_is_valid(method: str, kind: str) -> None:
    model, augmentation, batch = setup(method, kind)
    with flat_saliency_allowed(kind):
        for seed in range(4):
            virtual = augment(model, augmentation, batch, seed)
            if not isinstance(virtual, gt.VirtualGraphs):
                continue
            check_valid_batch(
                virtual.batch, graphs=len(virtual.targets), undirected=is_undirected(batch)
            )
            assert virtual.batch.x.shape[1] == 3
            assert ("edge_attr" in virtual.batch) == ("edge_attr" in batch)
            if "edge_weight" in batch:
                assert "edge_weight" in virtual.batch
            if method not in MAKES_FEATURES:
                rows = {tuple(row) for row in batch.x.tolist()}
                assert {tuple(row) for row in virtual.batch.x.tolist()} <= rows


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (method, kind)
        for method, kind in SERVED
        if method not in NO_GRAPHS and kind in ("ordinary", "directed", "multi", "weights", "mixed")
    ],
)
def test_virtual_batch_gives_the_same_however_it_is_carried(method: str, kind: str) -> None:
    # What is kept with a batch for speed must not differ from what a fresh batch would give.
    model, augmentation, batch = setup(method, kind, dropout=0.0)
    virtual = augment(model, augmentation, batch)
    assert isinstance(virtual, gt.VirtualGraphs)
    expected = virtual.logits(model).detach()
    plain = virtual.batch.detach()
    for other in (
        Batch.from_data_list(plain.to_data_list()),
        plain.clone(),
        copy.copy(plain),
        pickle.loads(pickle.dumps(plain)),  # noqa: S301 - as a data loader's worker does
    ):
        torch.testing.assert_close(model(other).logits.detach(), expected)


@pytest.mark.parametrize("conv", EDGE_CONVS)
@pytest.mark.parametrize("method", sorted(NO_EDGE_ATTR))
def test_what_cannot_carry_edge_attributes_is_refused_where_they_are_read(
    method: str, conv: str
) -> None:
    model = gt.GraphClassifier(3, GRAPHS, conv=conv, hidden=8, edge_features=2, seed=0)
    batch = attributed(batch_named("ordinary"))
    said = refusal(method, model, store_of(batch))
    assert said is not None
    assert "its edges have features" in said
    (augmentation,) = build_method(method, model)
    augmentation.prepare(store_of(batch_named("ordinary")), generator())
    with pytest.raises(GraphTransplantError, match="edges have features"):
        augment(model, augmentation, batch)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", sorted(set(ATTRIBUTED) - NO_GRAPHS))
def test_edge_attributes_stay_with_their_edges(method: str, kind: str) -> None:
    model, augmentation, batch = setup(method, kind, conv="gine", dropout=0.0)
    with flat_saliency_allowed(kind):
        virtual = augment(model, augmentation, batch, 1)
    assert isinstance(virtual, gt.VirtualGraphs)
    made = virtual.batch.edge_attr
    assert made.shape == (virtual.batch.num_edges, 2)
    assert bool(torch.isfinite(made).all())
    if method not in NO_ORIGINS:
        # No two edges of the input have the same attributes: where they are is where the edge is.
        kept = virtual.edge_origin >= 0
        origin = virtual.edge_origin[kept]
        assert torch.equal(made[kept], batch.edge_attr[origin])
        # A split node gives edges away, a merged one takes them over, and sub-mix swaps the nodes
        # under the edges that remain; elsewhere both ends are the ones the edge had.
        if method not in ("node-sam", "sub-mix"):
            ends = virtual.node_origin[virtual.batch.edge_index[:, kept]]
            assert torch.equal(ends, batch.edge_index[:, origin])
        # New ones are drawn, by a transplant from the edges that one of their ends had; only
        # between the halves of a node without edges nothing can be.
        number = {tuple(row): edge for edge, row in enumerate(batch.edge_attr.tolist())}
        for edge in (~kept).nonzero().flatten().tolist():
            row = tuple(made[edge].tolist())
            if method == "node-sam" and row == (0.0, 0.0):
                continue
            drawn = batch.edge_index[:, number[row]]
            here = virtual.node_origin[virtual.batch.edge_index[:, edge]]
            if "pairing" in METHODS[method].parameters:
                assert set(drawn.tolist()) & set(here.tolist())
            else:
                assert batch.batch[drawn[0]] == batch.batch[here[0]]
    # However the batch is carried, the model reads the same attributes at the same edges.
    expected = virtual.logits(model).detach()
    fresh = Batch.from_data_list(virtual.batch.detach().to_data_list())
    torch.testing.assert_close(model(fresh).logits.detach(), expected)
    rolled = fresh.clone()
    rolled.edge_attr = fresh.edge_attr.roll(1, 0)
    if fresh.num_edges > GRAPHS:  # the model does read them
        assert not torch.allclose(model(rolled).logits.detach(), expected)


@pytest.mark.parametrize("conv", CONVS)
@pytest.mark.parametrize("kind", KINDS)
def test_degenerate_graphs_train(kind: str, conv: str) -> None:
    for method in AUGMENTING:
        if (method, kind) not in SERVED:
            continue
        if conv in EDGE_CONVS and method in NO_EDGE_ATTR:
            continue
        model, augmentation, batch = setup(method, kind, conv)
        with flat_saliency_allowed(kind):
            loss = gt.augmented_loss(model, batch, augmentation, generator=generator())
        loss.backward()
        assert bool(torch.isfinite(loss.detach()))
        for parameter in [*model.parameters(), *augmentation.parameters()]:
            assert parameter.grad is None or bool(torch.isfinite(parameter.grad).all())


@pytest.mark.parametrize("method", AUGMENTING)
def test_a_batch_of_one_graph_trains(method: str) -> None:
    model, augmentation, _ = setup(method)
    batch = random_batch(generator(3), graphs=1, largest=12)
    loss = gt.augmented_loss(model, batch, augmentation, generator=generator())
    loss.backward()
    assert bool(torch.isfinite(loss.detach()))


@pytest.mark.parametrize("method", sorted(set(AUGMENTING) - NO_ORIGINS))
def test_labels_and_nodes_of_a_virtual_graph_are_of_the_same_graphs(method: str) -> None:
    model, augmentation, batch = setup(method)
    virtual = augment(model, augmentation, batch, 2)
    mixes = "pairing" in METHODS[method].parameters
    sources = virtual.source_of if mixes else torch.arange(GRAPHS)
    for number in range(GRAPHS):
        here = virtual.batch.batch == number
        origins = set(batch.batch[virtual.node_origin[here]].tolist())
        assert origins <= {number, int(sources[number])}
        named = set((virtual.targets[number] > 0).nonzero().flatten().tolist())
        assert named <= {number, int(sources[number])}
    edges = virtual.edge_origin[virtual.edge_origin >= 0]
    graph = virtual.batch.batch[virtual.batch.edge_index[0, virtual.edge_origin >= 0]]
    origin = batch.batch[batch.edge_index[0, edges]]
    assert bool(((origin == graph) | (origin == sources[graph])).all())


NEEDS_CLASSES = {
    "g-mixup": {"multilabel", "regression"},
    "m-evolve": {"multilabel", "regression"},
    "label-smoothing": {"regression"},
}


@pytest.mark.parametrize("conv", ["gcs", "gine"])
@pytest.mark.parametrize("task", ["multilabel", "regression"])
@pytest.mark.parametrize("method", AUGMENTING)
def test_other_tasks_train(method: str, task: str, conv: str) -> None:
    batch = batch_named("ordinary").clone()
    batch.y = torch.rand(GRAPHS, 2, generator=generator(1))
    if task == "multilabel":
        batch.y = batch.y.round()
    batch.y[0, 1] = batch.y[3] = float("nan")  # an entry is missing, and all of a graph
    width = 0 if conv == "gcs" else 2
    if width:
        batch = attributed(batch)
    model = gt.GraphClassifier(
        3, 2, conv=conv, layers=2, hidden=8, edge_features=width, task=task, seed=0
    )
    (augmentation,) = build_method(method, model)
    store = gt.GraphStore.from_pyg(batch.to_data_list(), task=task, name="examples")
    said = refusal(method, model, store)
    assert (said is not None) == (task in NEEDS_CLASSES.get(method, ()))
    if said is not None:
        assert task in said
        with pytest.raises(GraphTransplantError):
            gt.fit(model, store, store, augmentation, seed=0, epochs=1, progress=False)
        return
    augmentation.prepare(store, generator())
    clean = gt.CleanPass(batch, batch.y, model(batch), task)
    virtual = augmentation(clean, model=model, generator=generator())
    if "pairing" in METHODS[method].parameters:
        # What either graph does not know, their mixture does not know.
        missing = batch.y.isnan() | batch.y[virtual.source_of].isnan()
        weight = virtual.label_weight.unsqueeze(1).to(batch.y.dtype)
        mixed = weight * batch.y[virtual.source_of].nan_to_num() + (1 - weight) * batch.y
        assert torch.equal(virtual.targets.isnan(), missing)
        torch.testing.assert_close(virtual.targets[~missing], mixed[~missing])
    else:
        assert torch.equal(virtual.targets.isnan(), batch.y.isnan())
    loss = gt.augmented_loss(model, batch, augmentation, task=task, generator=generator())
    loss.backward()
    assert bool(torch.isfinite(loss.detach()))
    assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters())


@pytest.mark.parametrize("method", AUGMENTING)
def test_graphs_without_features_train(method: str) -> None:
    store = gt.load("motifs", graphs=12)
    model = gt.GraphClassifier.for_data(store, layers=2, hidden=8, seed=0)
    (augmentation,) = build_method(method, model)
    said = refused(method, store)
    assert (said is not None) == (method == "mask-nodes")
    if said is not None:
        assert "motifs" in said
        assert "node features" in said
        return
    augmentation.prepare(store, generator())
    batch = store.batch(range(12))
    clean = gt.CleanPass(batch, torch.eye(6)[batch.y], model(batch))
    virtual = augmentation(clean, model=model, generator=generator())
    loss = virtual.loss(model, "multiclass")
    loss.backward()
    assert bool(torch.isfinite(loss.detach()))
    if isinstance(virtual, gt.VirtualGraphs):
        check_valid_batch(virtual.batch, graphs=12, undirected=True)
        assert "x" not in virtual.batch


@pytest.mark.parametrize("method", sorted(METHODS))
def test_several_augmentations_add_up(method: str) -> None:
    model, _, batch = setup("transplant-dp", dropout=0.0)
    parts = build_method(method, model) + build_method("transplant-dp", model)
    for part in parts:
        part.prepare(store_of(batch), generator())
    loss = gt.augmented_loss(model, batch, parts, generator=generator())
    assert bool(torch.isfinite(loss.detach()))
    assert loss > gt.augmented_loss(model, batch, (), generator=generator())


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_trial_is_determined_by_its_seed(method: str) -> None:
    store = motifs_for(method, 60)
    settings = Settings(folds=5, epochs=2, batch_size=16, hidden=8, seed=0)
    trial = Trial(method, "gcs", 2, 0, 0)
    curves = []
    for state in (1, 2):  # what ran before in the same process must not matter
        torch.manual_seed(state)
        record = run_trial(store, trial, settings, fingerprint="", source="motifs")
        curves.append(record["curve"])
    assert curves[0] == curves[1]
