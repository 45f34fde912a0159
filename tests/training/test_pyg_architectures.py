"""Architectures of PyG's ``benchmark/kernel`` and ``examples``, small, in anybody's loop."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
import torch_geometric.transforms as T
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader as TorchLoader
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader, DenseDataLoader
from torch_geometric.nn import global_max_pool, global_mean_pool
from torch_geometric.utils import degree, to_dense_adj, to_dense_batch

import graph_transplant as gt
from graph_transplant.errors import DataError, GraphTransplantError
from helpers.processes import run_ranks
from helpers.strategies import generator

WIDTH = 8


def batch_of(seed: int = 0, graphs: int = 8, *, numbers: bool = False) -> Batch:
    """Rings with a chord: pooling by cuts divides by the number of edges."""
    rng, made = generator(seed), []
    for number in range(graphs):
        nodes = 5 + number % 4
        sender = torch.cat([torch.arange(nodes), torch.zeros(1, dtype=torch.long)])
        receiver = torch.cat([(torch.arange(nodes) + 1) % nodes, torch.tensor([2 + number % 2])])
        ends = torch.stack([torch.cat([sender, receiver]), torch.cat([receiver, sender])])
        data = Data(x=torch.randn(nodes, 3, generator=rng), edge_index=ends)
        data.edge_attr = torch.randn(ends.shape[1], 2, generator=rng)
        data.y = torch.randn(1, 1, generator=rng) if numbers else torch.tensor([number % 3])
        made.append(data)
    return Batch.from_data_list(made)


def perceptron(wide: int, narrow: int = WIDTH) -> nn.Sequential:
    return nn.Sequential(nn.Linear(wide, WIDTH), nn.ReLU(), nn.Linear(WIDTH, narrow))


# ------------------------------------------------------------------ benchmark/kernel


def gin(train_eps: bool) -> Callable[[int, int], nn.Module]:
    return lambda wide, narrow: pyg.GINConv(
        nn.Sequential(perceptron(wide, narrow), nn.ReLU(), nn.BatchNorm1d(narrow)),
        train_eps=train_eps,
    )


class Kernel(nn.Module):
    """Convolutions, perhaps all of their outputs, a readout and two linear layers."""

    def __init__(
        self,
        conv: Callable[[int, int], nn.Module] = pyg.GCNConv,
        *,
        jump: bool = False,
        read: Callable[[Tensor, Tensor], Tensor] = global_mean_pool,
        wide: int = WIDTH,
    ) -> None:
        super().__init__()
        self.convs = nn.ModuleList([conv(3, WIDTH), conv(WIDTH, WIDTH)])
        self.jump = pyg.JumpingKnowledge("cat") if jump else None
        self.read = read
        self.first, self.second = nn.Linear(2 * wide if jump else wide, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, data: Data) -> Tensor:
        x, layers = data.x, []
        for conv in self.convs:
            x = conv(x, data.edge_index).relu()
            layers.append(x)
        x = self.read(x if self.jump is None else self.jump(layers), data.batch)
        return F.log_softmax(self.second(self.first(x).relu()), dim=-1)


class Pooled(nn.Module):
    """A convolution, hierarchical pooling, another convolution."""

    def __init__(self, pool: nn.Module, batch_at: int) -> None:
        super().__init__()
        self.one, self.two = pyg.GraphConv(3, WIDTH), pyg.GraphConv(WIDTH, WIDTH)
        self.pool, self.batch_at = pool, batch_at
        self.head = perceptron(WIDTH, 3)

    def forward(self, data: Data) -> Tensor:
        x = self.one(data.x, data.edge_index).relu()
        total = global_mean_pool(x, data.batch)
        pooled = self.pool(x, data.edge_index, batch=data.batch)
        x, edge_index, batch = pooled[0], pooled[1], pooled[self.batch_at]
        total = total + global_mean_pool(self.two(x, edge_index).relu(), batch, len(total))
        return F.log_softmax(self.head(total), dim=-1)


class DiffPool(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.assign = pyg.DenseSAGEConv(3, WIDTH), pyg.DenseSAGEConv(3, 4)
        self.head = perceptron(WIDTH, 3)

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        h, s = self.embed(x, adj, mask).relu(), self.assign(x, adj, mask)
        h, _, link, entropy = pyg.dense_diff_pool(h, adj, s, mask)
        return self.head(h.mean(1)), link + entropy


class Sparse(nn.Module):
    """The wrapper that the error for dense batches shows."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.nodes = model, nn.Identity()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
        x, mask = to_dense_batch(self.nodes(x), batch)
        return self.model(x, to_dense_adj(edge_index, batch), mask)


# ------------------------------------------------------------------ examples


class MutagGIN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gnn, self.head = pyg.GIN(3, WIDTH, 2), pyg.MLP([WIDTH, WIDTH, 3], norm=None)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int) -> Tensor:
        x = self.gnn(x, edge_index).relu()
        return self.head(pyg.global_add_pool(x, batch, size=batch_size))


class ProteinsTopK(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool = pyg.GraphConv(3, WIDTH), pyg.TopKPooling(WIDTH, ratio=0.8)
        self.head = perceptron(2 * WIDTH, 3)

    def forward(self, data: Data) -> Tensor:
        x = self.conv(data.x, data.edge_index).relu()
        x, _, _, batch, _, _ = self.pool(x, data.edge_index, None, data.batch)
        both = torch.cat([global_max_pool(x, batch), global_mean_pool(x, batch)], dim=1)
        return F.log_softmax(self.head(both), dim=-1)


class UPFD(nn.Module):
    """Reads the first node of every graph."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.root = pyg.GATConv(3, WIDTH), nn.Linear(3, WIDTH)
        self.head = nn.Linear(2 * WIDTH, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        h = global_max_pool(self.conv(x, edge_index).relu(), batch)
        starts = (batch[1:] - batch[:-1]).nonzero().view(-1) + 1
        root = self.root(x[torch.cat([starts.new_zeros(1), starts])]).relu()
        return self.head(torch.cat([root, h], dim=1)).log_softmax(dim=-1)


class ProteinsGMT(nn.Module):
    """Its first parameter is not named like a field."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(3, WIDTH)
        self.pool = pyg.GraphMultisetTransformer(WIDTH, k=3, heads=2)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x0: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(self.pool(self.conv(x0, edge_index).relu(), batch)).log_softmax(dim=-1)


class DMoN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(3, WIDTH)
        self.pool = pyg.DMoNPooling([WIDTH, WIDTH], 3)
        self.dense, self.head = pyg.DenseGraphConv(WIDTH, WIDTH), perceptron(WIDTH, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        x, mask = to_dense_batch(self.conv(x, edge_index).relu(), batch)
        _, x, adj, spectral, orthogonal, cluster = self.pool(
            x, to_dense_adj(edge_index, batch), mask
        )
        return self.head(self.dense(x, adj).mean(dim=1)), spectral + orthogonal + cluster


class MinCut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.assign = pyg.GCNConv(3, WIDTH), nn.Linear(WIDTH, 3)
        self.dense, self.head = pyg.DenseGraphConv(WIDTH, WIDTH), perceptron(WIDTH, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> tuple[Tensor, ...]:
        x, mask = to_dense_batch(self.conv(x, edge_index).relu(), batch)
        adj = to_dense_adj(edge_index, batch)
        x, adj, cut, orthogonal = pyg.dense_mincut_pool(x, adj, self.assign(x), mask)
        return self.head(self.dense(x, adj).mean(dim=1)), cut, orthogonal


class MemPool(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GATConv(3, WIDTH)
        self.pool = pyg.MemPooling(WIDTH, WIDTH, heads=2, num_clusters=3)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        x, assigned = self.pool(F.leaky_relu(self.conv(x, edge_index)), batch)
        return self.head(x.mean(1)), pyg.MemPooling.kl_loss(assigned)


class SAG(nn.Module):
    """Triangles with supervised attention; here the attention is to sum to one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool = pyg.GCNConv(3, WIDTH), pyg.SAGPooling(WIDTH, min_score=0.05)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, data: Data) -> tuple[Tensor, Tensor, float]:
        x = self.conv(data.x, data.edge_index).relu()
        x, _, _, batch, kept, score = self.pool(x, data.edge_index, batch=data.batch)
        own = (global_mean_pool(score.view(-1, 1), batch) - 1).square().mean()
        return self.head(pyg.global_add_pool(x, batch)), own, len(kept) / data.num_nodes


class PNA(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        counts = degree(batch_of().edge_index[1], dtype=torch.long).bincount()
        self.conv = pyg.PNAConv(
            3, WIDTH, ["mean", "max", "std"], ["identity", "amplification"], counts, edge_dim=2
        )
        self.norm, self.head = pyg.BatchNorm(WIDTH), perceptron(WIDTH, 1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        x = self.norm(self.conv(x, edge_index, edge_attr)).relu()
        return self.head(pyg.global_add_pool(x, batch))


class GPS(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.node, self.edge = nn.Linear(3, WIDTH), nn.Linear(2, WIDTH)
        self.conv = pyg.GPSConv(WIDTH, pyg.GINEConv(perceptron(WIDTH)), heads=2)
        self.head = perceptron(WIDTH, 1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        x = self.conv(self.node(x), edge_index, batch, edge_attr=self.edge(edge_attr))
        return self.head(pyg.global_add_pool(x.relu(), batch))


class QM9NNConv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.node = nn.Linear(3, WIDTH)
        self.conv = pyg.NNConv(WIDTH, WIDTH, perceptron(2, WIDTH * WIDTH), aggr="mean")
        self.gru, self.read = nn.GRU(WIDTH, WIDTH), pyg.Set2Set(WIDTH, processing_steps=2)
        self.head = nn.Linear(2 * WIDTH, 1)

    def forward(self, data: Data) -> Tensor:
        out = self.node(data.x).relu()
        state = out.unsqueeze(0)
        for _ in range(2):
            message = self.conv(out, data.edge_index, data.edge_attr).relu()
            out, state = self.gru(message.unsqueeze(0), state)
            out = out.squeeze(0)
        return self.head(self.read(out, data.batch)).view(-1)


@dataclass
class Row:
    """How a model is made, called and read; by default as its ``forward`` says."""

    make: Callable[[], nn.Module]
    call: Callable[[Any, Any], Any] | None = None
    output: Callable[[Any], Any] | None = None
    numbers: bool = False
    saliency_module: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        task = "regression" if self.numbers else None
        given = {"call": self.call, "output": self.output, "task": task}
        return {**given, "saliency_module": self.saliency_module}


def attention(wide: int) -> nn.Module:
    return pyg.AttentionalAggregation(nn.Linear(wide, 1))


def positional(model: Any, data: Any) -> Any:
    return model(data.x, data.edge_index, data.batch)


ROWS = {
    "gcn": Row(Kernel),
    "gcn-jk": Row(lambda: Kernel(jump=True)),
    "gin0": Row(lambda: Kernel(gin(False))),
    "gin0-jk": Row(lambda: Kernel(gin(False), jump=True)),
    "gin": Row(lambda: Kernel(gin(True))),
    "gin-jk": Row(lambda: Kernel(gin(True), jump=True)),
    "sage": Row(lambda: Kernel(pyg.SAGEConv)),
    "sage-jk": Row(lambda: Kernel(pyg.SAGEConv, jump=True)),
    "set2set": Row(lambda: Kernel(pyg.SAGEConv, read=pyg.Set2Set(WIDTH, 2), wide=2 * WIDTH)),
    "attention": Row(lambda: Kernel(pyg.SAGEConv, read=attention(WIDTH))),
    "sort": Row(lambda: Kernel(pyg.SAGEConv, read=pyg.SortAggregation(3), wide=3 * WIDTH)),
    "topk": Row(lambda: Pooled(pyg.TopKPooling(WIDTH, 0.8), 3)),
    "sag": Row(lambda: Pooled(pyg.SAGPooling(WIDTH, 0.8), 3)),
    "asap": Row(lambda: Pooled(pyg.ASAPooling(WIDTH, 0.8), 3)),
    "edge": Row(lambda: Pooled(pyg.EdgePooling(WIDTH), 2)),
    "diff": Row(lambda: Sparse(DiffPool()), output=tuple, saliency_module="nodes"),
    "mutag_gin": Row(MutagGIN),
    "proteins_topk_pool": Row(ProteinsTopK),
    "upfd": Row(UPFD),
    "proteins_gmt": Row(ProteinsGMT, call=positional),
    "proteins_dmon_pool": Row(DMoN, output=lambda out: (out[0], out[1])),
    "proteins_mincut_pool": Row(MinCut, output=lambda out: (out[0], out[1] + out[2])),
    "mem_pool": Row(MemPool, output=lambda out: (out[0], 0.1 * out[1])),
    "triangles_sag_pool": Row(SAG, output=lambda out: out[:2]),
    "pna": Row(PNA, numbers=True),
    "graph_gps": Row(GPS, numbers=True),
    "qm9_nn_conv": Row(QM9NNConv, numbers=True),
    "attentive_fp": Row(
        lambda: pyg.AttentiveFP(3, WIDTH, 1, 2, num_layers=2, num_timesteps=1), numbers=True
    ),
}


def plainly(model: nn.Module, row: Row, batch: Batch) -> tuple[Tensor, Tensor]:
    """The loss and the model's own loss as a PyG user would write them."""
    names = model.forward.__code__.co_varnames[1 : model.forward.__code__.co_argcount]
    known = {"batch_size": batch.num_graphs}
    if row.call is not None:
        out = row.call(model, batch)
    elif names == ("data",):
        out = model(batch)
    else:
        out = model(**{name: known[name] if name in known else batch[name] for name in names})
    logits, own = row.output(out) if row.output else (out, torch.zeros(()))
    if row.numbers:
        return F.mse_loss(logits.view(-1, 1), batch.y), own
    return F.cross_entropy(logits, batch.y), own  # of log-probabilities, too


@pytest.mark.filterwarnings("ignore:node saliency is the same")
@pytest.mark.filterwarnings("ignore:the model takes no `edge_weight`")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's own, of ASAPooling
@pytest.mark.parametrize("name", ROWS)
def test_models_of_pyg_train_untouched(name: str) -> None:
    row = ROWS[name]
    torch.manual_seed(0)
    model, batch = row.make(), batch_of(numbers=row.numbers)
    loss, own = plainly(model, row, batch)
    (loss + own).backward()
    trained = {key for key, each in model.named_parameters() if each.grad is not None}
    for augment in ((), gt.GraphTransplant("dp"), gt.GraphTransplant("ep")):
        model.zero_grad()
        losses = gt.augmented_losses(model, batch, augment, **row.options)
        losses.total.backward()
        torch.testing.assert_close(losses.clean, loss)
        assert {key for key, each in model.named_parameters() if each.grad is not None} == trained
        if augment == ():
            torch.testing.assert_close(losses.extra, own)
            continue
        assert losses.virtual > 0
        # The losses of the model's own count on virtual graphs, too.
        assert bool(losses.extra != own) == (row.output is not None)
        if augment.edge_predictor is not None:
            assert losses.auxiliary > 0
            assert all(each.grad is not None for each in augment.parameters())


# ------------------------------------------------------------------ losses and outputs


class Net(nn.Module):
    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gnn, self.head = pyg.GIN(3, WIDTH, 2), nn.Linear(WIDTH, outputs)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(global_mean_pool(self.gnn(x, edge_index).relu(), batch))


def step(model: nn.Module, augment: Any = None, data: Any = None, **options: Any) -> float:
    """One pass with the same random numbers every time."""
    augment = gt.GraphTransplant() if augment is None else augment
    options.setdefault("generator", generator(1))
    loss = gt.augmented_loss(model, batch_of() if data is None else data, augment, **options)
    loss.backward()
    return float(loss.detach())


class WithLoss(Net):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:  # type: ignore[override]
        return super().forward(x, edge_index, batch), x.square().mean()


def test_the_models_own_loss_is_kept_or_left_out_as_the_message_says() -> None:
    with pytest.raises(GraphTransplantError, match=r"lambda out: \(out\[0\], out\[1\]\) adds"):
        step(WithLoss())
    plain = step(WithLoss(), output=lambda out: out[0])
    assert plain == step(Net())
    batch, augment = batch_of(), gt.GraphTransplant(anchors="random", importance="size")
    mixed = augment.mix(batch, generator=generator(1), num_outputs=3).batch
    expected = batch.x.square().mean() + 0.5 * mixed.x.square().mean()
    losses = gt.augmented_losses(
        WithLoss(), batch, augment, generator=generator(1), virtual_weight=0.5,
        output=lambda out: out,
    )  # fmt: skip
    torch.testing.assert_close(losses.extra, expected)
    store = gt.load(batch.to_data_list())
    result = gt.fit(WithLoss(), store, store, epochs=1, output=lambda out: out)
    log = result.history[0]
    assert log.extra_loss == pytest.approx(float(batch.x.square().mean()), rel=1e-5)
    assert log.train_loss == pytest.approx(log.clean_loss + log.extra_loss)


@pytest.mark.parametrize(
    ("loss_fn", "message"),
    [
        (F.cross_entropy, r"\[8\]; got \[\], not their mean: use reduction"),
        (F.nll_loss, r"`loss_fn` failed.* float \[8, 3\].*F.nll_loss leave `loss_fn` out"),
        (nn.L1Loss(reduction="none"), r"got \[8, 3\]: reduce over outputs, .*\.mean\(1\)"),
    ],
)
def test_messages_say_what_to_pass_in_the_place_of_a_loss(loss_fn: Any, message: str) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        step(Net(), loss_fn=loss_fn)


def test_a_single_logit_and_graphs_of_other_kinds_are_told_what_to_do() -> None:
    with pytest.raises(DataError, match="let it give two, or make `y` float"):
        step(Net(1))
    several = HeteroData()
    several["a"].x = torch.ones(2, 3)
    with pytest.raises(DataError, match=r"`data.to_homogeneous\(\)`, which keeps"):
        step(Net(), data=Batch.from_data_list([several, several]))
    dense = [T.ToDense(12)(data) for data in batch_of().to_data_list()]
    with pytest.raises(DataError, match=r"leave out ToDense.*\n\n    class Sparse"):
        step(Net(), data=next(iter(DenseDataLoader(dense, 8))))


def test_an_optional_y_is_not_filled_with_labels() -> None:
    class Curious(Net):
        def forward(  # type: ignore[override]
            self, x: Tensor, edge_index: Tensor, batch: Tensor, y: Tensor | None = None
        ) -> Tensor:
            assert y is None
            return super().forward(x, edge_index, batch)

    assert step(Curious()) == step(Net())


# ------------------------------------------------------------------ calls and loaders


class Tempered(Net):
    def forward(self, data: Data, temperature: float) -> Tensor:  # type: ignore[override]
        return super().forward(data.x, data.edge_index, data.batch) / temperature


def test_call_calls_the_model_everywhere() -> None:
    with pytest.raises(GraphTransplantError, match=r"needs `x0`.* pass call=lambda model, data"):
        step(ProteinsGMT())

    def call(model: Any, data: Any) -> Tensor:
        return model(data, 1.0)

    assert step(Tempered(), call=call) == step(Net())
    graphs = batch_of(graphs=12).to_data_list()
    result = gt.fit(Tempered(), graphs, graphs, gt.GraphTransplant(), epochs=1, call=call)
    other = gt.fit(Net(), graphs, graphs, gt.GraphTransplant(), epochs=1)
    assert result.history[0].train_loss == other.history[0].train_loss
    found = gt.evaluate(result.model, graphs, call=call)
    assert torch.equal(found.logits, gt.evaluate(other.model, graphs).logits)
    with pytest.raises(GraphTransplantError, match="`call` must be a function"):
        step(Net(), call="forward")


def test_fit_takes_lists_and_data_sets() -> None:
    graphs = batch_of(graphs=12).to_data_list()
    stored = [gt.load(part) for part in (graphs[:9], graphs[9:])]
    data_set = gt.load(graphs).to_pyg()
    losses = [
        gt.fit(Net(), train, validation, gt.GraphTransplant(), epochs=1, seed=0)
        .history[0]
        .validation_loss
        for train, validation in (
            (graphs[:9], graphs[9:]),
            stored,
            (data_set[:9], data_set[9:]),
        )
    ]
    assert losses[0] == losses[1] == losses[2]
    # Held-out graphs may lack a class.
    lacking = [data for data in graphs if int(data.y) != 1]
    assert gt.evaluate(Net(), lacking).logits.shape == (8, 3)


def test_a_store_is_a_data_set_of_pyg_and_list_like() -> None:
    graphs = gt.load(batch_of(graphs=12).to_data_list()).to_pyg()
    assert (graphs.num_features, graphs.num_classes, len(graphs)) == (3, 3, 12)
    for number, data in enumerate(graphs):
        data.x = torch.full((data.num_nodes, 4), float(number))
    assert graphs.num_features == 4
    assert float(graphs[5].x[0, 0]) == 5.0
    assert [float(data.x[0, 0]) for data in graphs[3:5]] == [3.0, 4.0]
    assert len(gt.load(graphs[:4] + graphs[8:])) == 8

    def blank(data: Data) -> Data:
        data.x = torch.zeros(data.num_nodes, 1)
        return data

    graphs.transform = blank  # works in place
    assert graphs[5].num_features == 1
    graphs.transform = None
    assert graphs[5].num_features == 4
    copied = graphs.copy([5])
    copied[0].x = torch.zeros(1, 1)
    assert graphs[5].num_features == 4


def test_a_loader_of_pyg_mixes() -> None:
    graphs = gt.load(batch_of(graphs=12).to_data_list()).to_pyg()
    mix = gt.transforms.MixCollate(gt.GraphTransplant(), 3, generator=generator(1))
    expected = next(iter(TorchLoader(list(graphs), batch_size=6, collate_fn=mix)))
    loader = gt.transforms.MixLoader(
        graphs, gt.GraphTransplant(), batch_size=6, generator=generator(1)
    )
    assert isinstance(loader, DataLoader)
    found = next(iter(loader))
    assert (found.num_graphs, tuple(found.y.shape)) == (12, (12, 3))
    assert torch.equal(found.y[:6], expected.y[:6])
    for given, message in (
        ({"num_outputs": None}, "`num_outputs`.* must be given for a list"),
        ({"num_outputs": 3, "follow_batch": ["x"]}, "`follow_batch` cannot be used"),
    ):
        with pytest.raises(GraphTransplantError, match=message):
            gt.transforms.MixLoader(list(graphs), gt.GraphTransplant(), **given)


# ------------------------------------------------------------------ compiled


def compiled_call(model: Net, **given: Any) -> nn.Module:
    model.compile(**given)
    return model


def compiled_part(model: Net, **given: Any) -> nn.Module:
    model.gnn = torch.compile(model.gnn, **given)
    return model


def compiled_part_call(model: Net, **given: Any) -> nn.Module:
    model.gnn.compile(**given)
    return model


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's own, while it compiles
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")  # inductor's
@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize(
    ("compiled", "backend"),
    [
        (torch.compile, "aot_eager"),
        (compiled_call, "aot_eager"),
        (compiled_part, "aot_eager"),
        (compiled_part_call, "aot_eager"),
        (compiled_call, "inductor"),
    ],
)
def test_a_compiled_model_trains_as_one_that_is_not(compiled: Any, backend: str) -> None:
    batch, model, plain = batch_of(), Net(), Net()
    made = compiled(model, backend=backend, dynamic=True)
    if backend == "inductor":  # compiled code that is there already must not be used either
        F.cross_entropy(made(batch.x, batch.edge_index, batch.batch), batch.y).backward()
    augment = gt.GraphTransplant()
    for number in range(2):
        model.zero_grad()
        plain.zero_grad()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            loss = step(made, augment)
        assert [str(each.message)[:21] for each in caught if each.category is UserWarning] == (
            ["the model is compiled"] if not number else []
        )
        assert loss == pytest.approx(step(plain, augment), rel=1e-5)
        for one, other in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)


# ------------------------------------------------------------------ the edge predictor


class Weighing(Net):
    def __init__(self, reads: bool) -> None:
        super().__init__()
        del self.gnn
        self.conv, self.reads = pyg.GraphConv(3, WIDTH), reads

    def forward(self, data: Data) -> Tensor:  # type: ignore[override]
        weight = data.edge_weight if self.reads else None
        x = self.conv(data.x, data.edge_index, weight).relu()
        return self.head(global_mean_pool(x, data.batch))


def test_a_model_that_receives_the_batch_is_given_the_weights_that_it_reads() -> None:
    seen: list[Tensor | None] = []

    def call(model: Any, data: Any) -> Tensor:
        seen.append(data.edge_weight)
        return model(data)

    augment, model = gt.GraphTransplant("ep", embedding_size=WIDTH), Weighing(reads=True)
    for given in ({}, {"call": call}):
        augment.zero_grad()
        losses = gt.augmented_losses(model, batch_of(), augment, generator=generator(1), **given)
        losses.virtual.backward()  # reaches ψ through the weights alone
        assert any(bool(each.grad.any()) for each in augment.parameters() if each.grad is not None)
    assert seen[0] is None
    assert set(seen[-1].unique().tolist()) == {0.0, 1.0}
    with pytest.warns(UserWarning, match="added without weights"):
        step(Weighing(reads=False), gt.GraphTransplant("ep"))
    assert step(Weighing(reads=True), gt.augment.IfMixup()) > 0
    with pytest.raises(GraphTransplantError, match="needs a model that takes edge weights"):
        step(Weighing(reads=False), gt.augment.IfMixup())


def test_the_width_of_the_edge_predictor_is_that_of_the_first_batch() -> None:
    model, lazy = Weighing(reads=True), gt.GraphTransplant("ep")
    optimizer = torch.optim.Adam([*model.parameters(), *lazy.parameters()])
    torch.manual_seed(1)
    first = step(model, lazy)
    psi = lazy.edge_predictor
    assert psi is not None
    assert (psi.embedding_size, tuple(psi.first.weight.shape)) == (WIDTH, (128, WIDTH))
    before = psi.first.weight.clone()
    optimizer.step()
    assert not torch.equal(before, psi.first.weight)
    again = gt.GraphTransplant("ep")
    again.load_state_dict(lazy.state_dict())
    copied = copy.deepcopy(again)
    model = Weighing(reads=True)
    assert step(model, copied) == step(Weighing(reads=True), lazy) != first
    with pytest.raises(GraphTransplantError, match=f"pass embedding_size={WIDTH}"):
        step(Weighing(reads=True), gt.GraphTransplant("ep", embedding_size=5))
    graphs, fitted = batch_of().to_data_list(), gt.GraphTransplant("ep")
    gt.fit(Weighing(reads=True), graphs, graphs, fitted, epochs=1)
    assert fitted.edge_predictor is not None
    assert fitted.edge_predictor.embedding_size == WIDTH


def test_an_edge_predictor_that_takes_no_step_is_noticed() -> None:
    model, augment = Weighing(reads=True), gt.GraphTransplant("ep")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(model, augment)
    step(model, augment)  # gradients may be accumulated over batches
    optimizer.step()
    with pytest.warns(UserWarning, match=r"pile up: pass them .* \*augment.parameters\(\)"):
        step(model, augment)
    optimizer.step()
    step(model, augment)  # said once
    model, augment = Weighing(reads=True), gt.GraphTransplant("ep")
    optimizer = torch.optim.SGD([*model.parameters(), *augment.parameters()], lr=0.1)
    for _ in range(3):
        step(model, augment)
        optimizer.step()


def _two_steps(rank: int) -> tuple[list[float], list[float]]:
    """Parameters of model and ψ after two steps on other graphs in every process."""
    model = nn.parallel.DistributedDataParallel(Weighing(reads=True))
    torch.manual_seed(rank)  # ψ starts differently
    augment = gt.GraphTransplant("ep", embedding_size=WIDTH)
    optimizer = torch.optim.SGD([*model.parameters(), *augment.parameters()], lr=0.1)
    gradient = torch.empty(0)
    for number in range(2):
        optimizer.zero_grad()
        step(model, augment, batch_of(rank + 2 * number), generator=generator(rank))
        gradient = torch.cat([each.grad.flatten() for each in augment.parameters()])
        optimizer.step()
    found = torch.cat([each.detach().flatten() for each in augment.parameters()])
    return found.tolist(), gradient.tolist()


@pytest.mark.cluster
def test_edge_predictors_of_several_processes_stay_the_same() -> None:
    (one, slope), (other, other_slope) = run_ranks(_two_steps)
    assert one == other
    assert slope == other_slope
    assert any(slope)


def test_old_names_of_connections_warn() -> None:
    for old, new in (("degree", "dp"), ("predict", "ep")):
        with pytest.warns(DeprecationWarning, match=f"{old}.*is now called '{new}'.*0.4"):
            assert gt.GraphTransplant(old).connect == new
