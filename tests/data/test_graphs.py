"""The store: batches against PyG's own collation, graphs from PyG in every form, bad data."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Subset
from torch_geometric.data import Batch, Data, Dataset, HeteroData, InMemoryDataset

import graph_transplant as gt
from graph_transplant.data import GraphBatch, GraphStore
from graph_transplant.datasets.rows import TargetCodec
from graph_transplant.errors import DataError
from helpers.oracles import assert_valid, is_undirected, same_content
from helpers.strategies import batches, generator, graphs_of, random_batch

EDGES = torch.tensor([[0, 1], [1, 0]])


def arguments(**changes: Any) -> dict[str, Any]:
    """Two graphs: an edge, and a path of three nodes."""
    return {
        "x": torch.arange(10.0).view(5, 2),
        "edge_index": torch.tensor([[0, 1, 0, 1, 1, 2], [1, 0, 1, 0, 2, 1]]),
        "y": torch.tensor([0, 1]),
        "node_counts": torch.tensor([2, 3]),
        "edge_counts": torch.tensor([2, 4]),
    } | changes


def by_receiver(data: Data) -> Data:
    """The same graph with its edges sorted by receiver, then sender, as a store keeps them."""
    data = data.clone()
    order = torch.from_numpy(np.lexsort(data.edge_index.numpy()))
    data.edge_index = data.edge_index[:, order]
    for name in ("edge_attr", "edge_weight"):
        if name in data:
            data[name] = data[name][order]
    return data


# ------------------------------------------------------------------ batches


@settings(max_examples=50)
@given(batches(), st.data())
def test_a_batch_is_what_pyg_collates(batch: Batch, data: st.DataObject) -> None:
    graphs = graphs_of(batch)
    store = GraphStore.from_pyg(graphs, num_outputs=9)
    chosen = data.draw(st.lists(st.integers(0, len(graphs) - 1), min_size=1, max_size=6))
    gathered = store.batch(chosen)
    assert_valid(gathered)
    expected = Batch.from_data_list([by_receiver(graphs[i]) for i in chosen])
    assert same_content(gathered.to_pyg(), expected)
    sorted_here = GraphBatch.from_pyg(Batch.from_data_list([graphs[i] for i in chosen]))
    for name in ("ptr", "row_ptr", "column"):
        np.testing.assert_array_equal(getattr(gathered, name), getattr(sorted_here, name))
    assert gathered.symmetric == sorted_here.symmetric == is_undirected(expected)
    part = store.subset(chosen)
    assert same_content(part.batch(range(len(chosen))).to_pyg(), expected)
    assert part.labels.tolist() == chosen
    for found in (part.to_pyg(), list(part), [part[i] for i in range(len(part))]):
        assert same_content(Batch.from_data_list(found), expected)


@pytest.mark.parametrize("continuous", [0, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_one_hot_features_are_codes_and_come_back(continuous: int, dtype: torch.dtype) -> None:
    kinds = torch.randint(40, (5,), generator=generator())
    x = torch.cat((torch.arange(5 * continuous).view(5, -1), torch.eye(40)[kinds]), 1).to(dtype)
    store = GraphStore(**arguments(x=x), num_continuous=continuous)
    batch = store.batch([1, 0])
    assert batch.codes == 40
    expected = x[[2, 3, 4, 0, 1]].float()
    for found in (batch.x, batch.dense().nodes["x"], batch.to_pyg().x):
        assert torch.equal(found, expected)
    assert torch.equal(store.x, x.float())
    # A node that is of no kind, or of two, has features like any other.
    x[3, continuous:] = 0
    assert GraphStore(**arguments(x=x), num_continuous=continuous).batch([0]).codes == 0


def test_edges_are_symmetric_although_their_features_differ() -> None:
    store = GraphStore(**arguments(), edge_attr=torch.arange(6.0).view(6, 1))
    assert not store.undirected
    assert store.batch([0, 1]).symmetric
    # Row v lists the senders to v: features move along.
    assert store.edge_index.tolist() == [[1, 0, 1, 0, 2, 1], [0, 1, 0, 1, 1, 2]]
    assert store.edge_attr.flatten().tolist() == [1, 0, 3, 2, 5, 4]


@pytest.mark.parametrize(("factor", "symmetric"), [(1 + 1e-6, True), (1.01, False)])
def test_weights_may_differ_by_rounding(factor: float, symmetric: bool) -> None:
    weight = torch.tensor([0.3, 0.3 * factor])
    data = Data(x=torch.ones(2, 1), edge_index=EDGES, edge_weight=weight)
    assert GraphBatch.from_pyg(data).symmetric == symmetric


def test_orders_masks_and_parts_of_parts() -> None:
    store = GraphStore.from_pyg(random_batch(generator()).to_data_list())
    parts = list(store.batches(torch.tensor([5, 0, 7, 2, 3]), 2))
    assert [part.y.tolist() for part in parts if part.y is not None] == [[5, 0], [7, 2], [3]]
    part = store.subset([6, 1, 4, 3]).subset(np.array([2, 0]))
    assert part.y.tolist() == [4, 6]
    assert part.num_outputs == 8  # the number of classes is the data set's, not the part's
    assert same_content(part.batch([0, 1]), store.batch([4, 6]))
    mask = torch.zeros(8, dtype=torch.bool)
    mask[2:5] = True
    for part in (store.subset(mask), store[mask], store[2:5], store[[2, 3, 4]]):
        assert part.fingerprint() == store.subset(np.array([2, 3, 4])).fingerprint()
    assert store[-1].num_nodes == store[torch.tensor(7)].num_nodes == int(store.node_counts[7])


def test_other_targets_keep_classes_and_names() -> None:
    store = GraphStore.from_pyg(random_batch(generator()).to_data_list())
    named = store.with_targets(store.y, label_names=list("abcdefgh"))
    fewer = named.with_targets(torch.zeros(8, dtype=torch.long))
    assert (fewer.num_outputs, fewer.label_names) == (8, tuple("abcdefgh"))
    with pytest.raises(DataError, match="`label_names` must differ; got a twice"):
        store.with_targets(store.y, label_names=list("abcdefga"))


def test_classes_without_graphs_are_told() -> None:
    graphs = gt.load("motifs", graphs=12).to_pyg()
    for graph in graphs:
        graph.y = graph.y % 2 + 1
    with pytest.warns(UserWarning, match="there are 3, but no graph is of class 0"):
        gt.load(graphs)
    assert gt.load(graphs, num_outputs=3).num_outputs == 3  # and no warning


def test_numbers_that_single_precision_cannot_tell_apart_are_refused() -> None:
    values = [1e6 + number / 1000 for number in range(60)]
    smiles, graphs = ["C" * n for n in range(1, 61)], gt.load("motifs", graphs=60).to_pyg()
    with pytest.raises(DataError, match="the targets 'y' differ too little"):
        gt.load(smiles, y=values)
    with pytest.raises(DataError, match="subtract a constant"):
        gt.GraphTransplantRegressor("vanilla", hidden=8, epochs=1).fit(graphs, values)
    for fine in ([value - 1e6 for value in values], [1e9 + 1] * 60, [1e9, math.nan] * 30):
        assert gt.load(smiles, y=fine, task="regression").task == "regression"
    # A few rows may be alike where a model learnt from others.
    (chunk,) = gt.stream(smiles[:2], y=values[:2], codec=TargetCodec("regression", ("y",)))
    assert chunk.targets == {1: (1e6,), 2: (1e6 + 0.001,)}


def test_node_fields_travel_with_their_nodes() -> None:
    mask = torch.tensor([True, False, False, True, True])
    store = GraphStore(**arguments(), node_fields={"motif_mask": mask})
    batch = store.batch([1, 0]).to_pyg()
    assert batch.motif_mask.tolist() == [False, True, True, True, False]
    assert store.subset([1])[0].motif_mask.tolist() == [False, True, True]


def test_statistics() -> None:
    loop = torch.tensor([[0, 1, 0], [1, 0, 0]])
    graphs = [Data(x=torch.ones(2, 3), edge_index=loop, y=torch.tensor([k])) for k in (0, 1)]
    store = GraphStore.from_pyg(graphs, name="loops", num_continuous=1)
    assert store.statistics() == {
        "graphs": 2,
        "mean_nodes": 2.0,
        "mean_edges": 2.0,
        "outputs": 2,
        "node_features": 3,
        "continuous_node_features": 1,
        "edge_features": 0,
    }
    assert store.max_degree() == 2
    directed = GraphStore.from_pyg([Data(edge_index=EDGES[:, :1], num_nodes=2, y=0)])
    assert directed.statistics()["mean_edges"] == 1.0


# ------------------------------------------------------------------ targets


def test_the_task_is_found_from_all_targets() -> None:
    graphs = random_batch(generator(), graphs=2).to_data_list()
    for targets, task, outputs in (
        ([0, [3]], "multiclass", 4),
        ([torch.tensor([[1.0, float("nan")]]), [0.0, 1.0]], "multilabel", 2),
        ([0.0, 2.5], "regression", 1),
        ([np.int64(1), torch.tensor(0)], "multiclass", 2),
    ):
        for graph, y in zip(graphs, targets, strict=True):
            graph.y = y
        store = GraphStore.from_pyg(graphs)
        assert (store.task, store.num_outputs) == (task, outputs)
    with pytest.raises(DataError, match="multilabel data set: it has targets"):
        _ = GraphStore(**arguments(y=torch.ones(2, 3)), task="multilabel").labels


def test_other_targets_and_splits_for_the_same_graphs() -> None:
    store = gt.load("motifs", graphs=12)
    other = store.with_targets(torch.rand(12), task="regression", label_names=["size"])
    assert (other.task, other.num_outputs, other.label_names) == ("regression", 1, ("size",))
    assert other.with_targets(torch.arange(12) % 6, task="multiclass").label_names is None
    same = store.with_targets(store.y.flip(0))
    assert same.label_names == store.label_names
    assert same.y.tolist() == store.y.tolist()[::-1]
    split = store.with_official(torch.arange(12) % 3)
    assert (split.official.tolist(), store.official) == ([0, 1, 2] * 4, None)
    with pytest.raises(DataError, match="must have 12 entries"):
        store.with_targets(torch.zeros(3))
    with pytest.raises(DataError, match="none for test"):
        store.with_official(torch.arange(12) % 2)


# ------------------------------------------------------------------ graphs of PyG


class InMemory(InMemoryDataset):
    def __init__(self, graphs: list[Data], transform: Any = None) -> None:
        super().__init__(transform=transform)
        self.data, self.slices = self.collate(graphs)


class OneByOne(Dataset):
    def __init__(self, graphs: list[Data]) -> None:
        super().__init__()
        self.graphs = graphs

    def len(self) -> int:
        return len(self.graphs)

    def get(self, idx: int) -> Data:
        return self.graphs[idx]


def same_store(found: GraphStore, expected: GraphStore) -> bool:
    return (found.fingerprint(), found.undirected) == (expected.fingerprint(), expected.undirected)


@settings(max_examples=25)
@given(batches(), st.data())
def test_every_form_gives_the_same_store(batch: Batch, data: st.DataObject) -> None:
    graphs = graphs_of(batch)
    whole = GraphStore.from_pyg(graphs)
    dataset = InMemory(graphs)
    forms: list[Iterable[Data]] = [dataset, iter(graphs), OneByOne(graphs), whole]
    if len(graphs) > 1:
        forms.append(Batch.from_data_list(graphs))
    assert all(same_store(GraphStore.from_pyg(form), whole) for form in forms)
    chosen = data.draw(st.lists(st.integers(0, len(graphs) - 1), min_size=1, max_size=6))
    part = GraphStore.from_pyg([graphs[i] for i in chosen])
    subsets = [dataset[chosen], Subset(dataset, chosen), Subset(graphs, chosen)]
    subsets.append(Subset(Subset(dataset, range(len(graphs))), torch.tensor(chosen)))
    assert all(same_store(GraphStore.from_pyg(form), part) for form in subsets)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": [[1.0], [2.0]]}, "an `x` that is a tensor of numbers"),
        ({"edge_attr": torch.ones(3, 1)}, "an `edge_attr` of 2 rows; got 3"),
        ({"edge_index": EDGES.float()}, r"tensor \[2, edges\] of whole numbers"),
        ({"y": "toxic"}, "a `y` of numbers; got str"),
    ],
)
def test_bad_graphs_of_pyg_are_named(changes: dict[str, Any], message: str) -> None:
    good = Data(x=torch.ones(2, 1), edge_index=EDGES, edge_attr=torch.ones(2, 1), y=0)
    bad = copy.copy(good)
    for field, value in changes.items():
        setattr(bad, field, value)
    with pytest.raises(DataError, match=f"mine: graph 1 must have .*{message}"):
        GraphStore.from_pyg([good, bad], name="mine")


def test_graphs_of_pyg_that_do_not_fit_together() -> None:
    good = Data(x=torch.ones(2, 1), edge_index=EDGES, y=torch.tensor([0]))

    def without(field: str) -> Data:
        return Data(**{key: value for key, value in good if key != field})

    several = HeteroData()
    several["atom"].x = torch.ones(2, 1)
    for graphs, message in (
        ([], "there are no graphs"),
        ([good, without("y")], "graph 1 has no `y`"),
        ([good, Data(x=torch.ones(2, 2), edge_index=EDGES, y=0)], "`x` do not fit together"),
        ([good, Data(x=torch.ones(2, 1), edge_index=EDGES, y=[0, 1])], "1 to 2 entries per graph"),
        ([good, several], r"graph 1 has several types of nodes .*to_homogeneous\(\)"),
        ([good, "CCO"], "graph 1 must be a PyG `Data`; got str"),
    ):
        with pytest.raises(DataError, match=message):
            GraphStore.from_pyg(graphs)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no `motif_mask`"):
        GraphStore.from_pyg([good], node_fields=["motif_mask"])


def test_a_store_may_have_no_edges() -> None:
    none = {"edge_index": torch.empty(2, 0), "edge_counts": torch.zeros(2, dtype=torch.long)}
    assert GraphStore(**arguments(**none)).batch([1, 0]).num_edges == 0


# ------------------------------------------------------------------ bad data


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.tensor([[1.0, 2]] * 4 + [[float("nan"), 1]])}, "node 2 of graph 1 .*finite"),
        ({"x": torch.ones(4, 2)}, r"`x` must have shape \[5, features\].*got \[4, 2\]"),
        ({"num_outputs": 1}, "label of graph 1 is 1; labels must lie between 0 and 0"),
        ({"edge_index": torch.tensor([[0, 1, 0, 1, 1, 3]] * 2)}, "edge of graph 1 joins .*0 to 2"),
        ({"node_counts": torch.tensor([5, 0])}, "graph 1 has no nodes"),
        ({"edge_attr": torch.tensor([[1.0]] * 5 + [[float("inf")]])}, "edge of graph 1 .*finite"),
        ({"official": torch.tensor([0, 2])}, "got none for validation"),
        (
            {"task": "multilabel", "y": torch.tensor([[0, 1], [2, 0]])},
            r"labels of graph 1 must be 0 to 1, or NaN .* regression; got \[2.0, 0.0\]",
        ),
    ],
)
def test_bad_data_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GraphStore(**arguments(**changes))


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([], "must not be empty"),
        ([-1], "between 0 and 1; got .*-1"),
        (torch.tensor([True]), r"shape \[2\] as a mask"),
        ([0.5], "must be integers"),
    ],
)
def test_bad_indices_are_named(indices: Any, message: str) -> None:
    store = GraphStore(**arguments())
    for take in (store.subset, store.batch, lambda order: list(store.batches(order, 2))):
        with pytest.raises(DataError, match=message):
            take(indices)
    with pytest.raises(IndexError, match="has 2 graphs; there is no graph 2"):
        store[2]
