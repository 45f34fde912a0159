"""Augmentations in PyG pipelines: transforms of single graphs, and mixing while collating."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.loader import DataLoader as PygLoader
from torch_geometric.transforms import BaseTransform, Compose, ToUndirected

import graph_transplant as gt
from graph_transplant import transforms
from graph_transplant.augment import GMixup, IfMixup, ManifoldMixup, OneOf, Sequential, SubMix
from graph_transplant.errors import DataError, GraphTransplantError
from helpers.edits import both_ways
from helpers.oracles import check_valid_batch, is_undirected, same_content
from helpers.strategies import generator, random_batch

KINDS = (
    transforms.DropNodes,
    transforms.DropEdges,
    transforms.PerturbEdges,
    transforms.MaskNodes,
    transforms.RandomSubgraph,
    transforms.SwapOpenTriads,
    transforms.NodeSam,
)


def molecule(label: int = 1) -> Data:
    """A ring of ten nodes with every kind of field."""
    ring = both_ways(*((v, (v + 1) % 10) for v in range(10)), (0, 5))
    return Data(
        x=torch.rand(10, 3) + 1,
        edge_index=ring,
        edge_attr=torch.rand(11, 2).repeat_interleave(2, 0),
        edge_weight=torch.rand(11).repeat_interleave(2),
        y=torch.tensor([label]),
        pos=torch.rand(10, 3),
        smiles="C1CCCCCCCCC1",
        weight=torch.tensor([[140.27]]),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_transform_gives_a_new_graph_with_all_fields(kind: type[BaseTransform]) -> None:
    data = molecule()
    before = copy.deepcopy(data)
    transform = kind(generator=generator(1))
    new, other = transform(data), transform(data)
    again = kind(generator=generator(1))(data)
    assert same_content(data, before)
    assert same_content(new, again)
    assert not same_content(new, other)
    assert isinstance(new, Data)
    assert set(new.keys()) == set(data.keys())
    assert (new.y.item(), new.smiles, new.weight.item()) == (1, data.smiles, data.weight.item())
    assert len(new.x) == len(new.pos) == new.num_nodes
    assert len(new.edge_attr) == len(new.edge_weight) == new.num_edges
    assert is_undirected(new)
    new.validate(raise_on_error=True)


def test_a_transform_is_the_edit_of_the_augmentation() -> None:
    dropped = transforms.DropNodes(0.4, generator=generator())(molecule())
    assert dropped.num_nodes == 6
    bare = Data(edge_index=both_ways((0, 1), (1, 2), (2, 3)), num_nodes=5)
    assert transforms.RandomSubgraph(0.5)(bare).num_nodes <= 2
    assert bare.num_nodes == 5
    masked = transforms.MaskNodes(0.5)(molecule())
    assert int((masked.x == 0).all(1).sum()) == 5
    with pytest.raises(GraphTransplantError, match="`ratio` must be in"):
        transforms.DropEdges(1.5)
    assert repr(transforms.DropEdges(0.3)) == "DropEdges(ratio=0.3)"


def test_transforms_work_in_pipelines_data_sets_and_on_batches() -> None:
    class Molecules(InMemoryDataset):
        def __init__(self, transform: BaseTransform) -> None:
            super().__init__(None, transform)
            self.data, self.slices = self.collate([molecule(k) for k in range(6)])

    pipeline = Compose([transforms.DropNodes(0.2), ToUndirected(), transforms.PerturbEdges(0.5)])
    batch = next(iter(PygLoader(Molecules(pipeline), batch_size=6)))
    assert batch.ptr.diff().tolist() == [8] * 6
    assert batch.y.tolist() == list(range(6))
    part = transforms.DropNodes(0.5)(batch)
    assert part.ptr.diff().tolist() == [4] * 6
    assert [graph.smiles for graph in part.to_data_list()] == [molecule().smiles] * 6


# ------------------------------------------------------------------ mixing


def prepared_g_mixup() -> GMixup:
    made = GMixup()
    made.prepare(gt.load("motifs", graphs=60), generator())
    return made


MIXING = {
    "degree": lambda: gt.GraphTransplant("dp"),
    "sub-mix": SubMix,
    "if-mixup": IfMixup,
    "node-sam": gt.augment.NodeSam,
    "g-mixup": prepared_g_mixup,
    "one-of": lambda: OneOf(SubMix(), gt.augment.DropEdges()),
    "sequential": lambda: Sequential(gt.augment.DropNodes(), gt.GraphTransplant()),
}


def graphs_for(method: str) -> list[Data]:
    """Graphs of six classes; without features for G-Mixup, which makes graphs without any."""
    graphs = gt.load("motifs", graphs=60).batch(range(0, 60, 5)).to_pyg().to_data_list()
    for k, graph in enumerate(graphs):
        graph.smiles = f"graph {k}"
        if method != "g-mixup":
            graph.x = torch.rand(graph.num_nodes, 3)
    return graphs


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", MIXING)
def test_collating_appends_mixed_graphs(method: str) -> None:
    graphs = graphs_for(method)
    before = copy.deepcopy(graphs)
    labels = torch.cat([graph.y for graph in graphs])
    collate = transforms.MixCollate(MIXING[method](), 6, generator=generator(3))
    batch = collate(graphs)
    assert all(same_content(*both) for both in zip(graphs, before, strict=True))
    check_valid_batch(batch, graphs=24, undirected=True)
    assert torch.equal(batch.y[:12], torch.eye(6)[labels])
    torch.testing.assert_close(batch.y.sum(1), torch.ones(24))
    for old, new in zip(graphs, batch.to_data_list()[:12], strict=True):
        edges = (set(map(tuple, one.edge_index.t().tolist())) for one in (old, new))
        assert next(edges) == next(edges)
        assert method == "g-mixup" or torch.equal(new.x, old.x)
        assert "edge_weight" not in new or bool((new.edge_weight == 1).all())
    assert ("edge_weight" in batch) == (method == "if-mixup")
    alone = transforms.MixCollate(MIXING[method](), 6, False, generator(3))(graphs)
    assert same_content(alone, Batch.from_data_list(batch.to_data_list()[12:]))


def test_without_a_model_labels_are_mixed_by_size() -> None:
    graphs = graphs_for("degree")
    for k, graph in enumerate(graphs):
        graph.x = torch.full((graph.num_nodes, 1), float(k))  # tells where a node comes from
        graph.y = torch.tensor([k])
    batch = transforms.MixCollate(gt.GraphTransplant(), 12, False, generator(5))(graphs)
    mixtures = 0
    for k, mixed in enumerate(batch.to_data_list()):
        taken = mixed.x[0, 0].long().item()  # nodes of the source come first
        share, rest = (
            int((mixed.x[:, 0] == number).sum()) / graphs[number].num_nodes for number in (taken, k)
        )
        expected = torch.eye(12)[k]
        if taken != k:
            mixtures += 1
            expected = (share * torch.eye(12)[taken] + rest * torch.eye(12)[k]) / (share + rest)
        torch.testing.assert_close(mixed.y[0], expected)
    assert mixtures >= 8


@pytest.mark.parametrize("needy", [gt.GraphTransplant("ep"), ManifoldMixup()], ids=repr)
def test_what_needs_a_model_says_so(needy: gt.Augmentation) -> None:
    with pytest.raises(GraphTransplantError, match="needs a model"):
        transforms.MixCollate(needy, 6)(graphs_for("degree"))
    with pytest.raises(GraphTransplantError, match="one augmentation"):
        transforms.MixCollate([needy], 6)  # type: ignore[arg-type]


def test_a_loader_collates_targets_of_any_task() -> None:
    graphs = random_batch(generator(1), graphs=8, edge_weight=True).to_data_list()
    for k, graph in enumerate(graphs):
        graph.y = torch.tensor([[k + 0.5]])
    collate = transforms.MixCollate(gt.GraphTransplant(), 1, task="regression")
    loader = DataLoader(graphs, batch_size=4, collate_fn=collate, num_workers=1)
    sizes = [(batch.num_graphs, tuple(batch.y.shape)) for batch in loader]
    assert sizes == [(8, (8, 1))] * 2
    for k, graph in enumerate(graphs):
        graph.y = torch.tensor([k])  # whole numbers are numbers, too
    assert collate(graphs).y[:8].tolist() == [[k] for k in range(8)]
    for graph in graphs:
        graph.y = torch.tensor([0.0, 1.0, 1.0])  # laid end to end in a batch
    labels = transforms.MixCollate(gt.GraphTransplant(), 3, task="multilabel")(graphs)
    assert labels.y.tolist() == [[0.0, 1.0, 1.0]] * 16
    with pytest.raises(DataError, match="has no targets"):
        collate([Data(edge_index=both_ways((0, 1)), num_nodes=2)])


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_workers_of_a_loader_draw_different_numbers_in_every_epoch() -> None:
    ring = both_ways(*((v, (v + 1) % 40) for v in range(40)))
    graphs = [Data(x=torch.arange(40.0).unsqueeze(1), edge_index=ring, y=torch.tensor([0]))] * 4
    shared = generator(2)
    # Two transforms that share a generator must not drop the same nodes.
    both = [transforms.DropNodes(0.2, shared), transforms.DropNodes(0.2, shared)]

    class Dropped(torch.utils.data.Dataset[Data]):
        def __len__(self) -> int:
            return len(graphs)

        def __getitem__(self, place: int) -> Data:
            first, second = (one(graphs[place]) for one in both)
            assert not torch.equal(first.x, second.x)
            return Compose(both)(graphs[place])

    mix = transforms.MixCollate(gt.augment.DropNodes(0.5), 2, False, generator(2))
    for loader in (
        DataLoader(graphs, batch_size=1, collate_fn=mix, num_workers=2),
        PygLoader(Dropped(), batch_size=1, num_workers=2),
    ):
        found = []
        for _ in range(2):  # the same seed of torch, the same epochs
            torch.manual_seed(0)
            epochs = [tuple(batch.x.flatten().tolist()) for _ in range(2) for batch in loader]
            assert len(set(epochs)) == 8
            found.append(epochs)
        assert found[0] == found[1]


def test_soft_targets_stand_beside_mixed_graphs() -> None:
    store = gt.load("motifs", graphs=12)  # with a node field that mixed graphs do not have
    mixed = transforms.MixCollate(IfMixup(), 6, False)(list(store))
    originals = transforms.soft_targets(store.batch(range(12)), 6, like=mixed)
    both = Batch.from_data_list(originals.to_data_list() + mixed.to_data_list())
    assert torch.equal(both.y[:12], torch.eye(6)[store.y])
    assert bool((both.edge_weight[: originals.num_edges] == 1).all())
    plain = transforms.soft_targets(Batch.from_data_list([molecule(2)]), 6)
    assert set(plain.keys()) == set(molecule().keys()) - {"smiles"} | {"batch", "ptr"}
    assert plain.y.tolist() == [[0, 0, 1, 0, 0, 0]]
    single = molecule(2)
    single.y = torch.tensor(2)  # without a dimension
    assert transforms.soft_targets(single, 3).y.tolist() == [[0, 0, 1]]
    assert transforms.soft_targets(single, 1, task="regression").y.tolist() == [[2]]
