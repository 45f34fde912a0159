"""The flat store: batches against PyG's own collation, checks of bad data, files."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from graph_transplant.datasets import load
from graph_transplant.errors import DataError
from graph_transplant.graphs import GraphStore, adjacency_of, layout_of, make_batch
from graph_transplant.nn import GraphClassifier
from oracles import check_valid_batch, is_undirected, same_content
from strategies import batches, random_batch


def sorted_edges(data: Data) -> Data:
    """The same graph with its edges sorted, as a store keeps them."""
    data = data.clone()
    order = torch.argsort(
        data.edge_index[0] * (data.num_nodes + 1) + data.edge_index[1], stable=True
    )
    data.edge_index = data.edge_index[:, order]
    if "edge_attr" in data:
        data.edge_attr = data.edge_attr[order]
    return data


def arguments() -> dict[str, object]:
    """Two graphs: an edge, and a path of three nodes."""
    return {
        "x": torch.arange(10.0).view(5, 2),
        "edge_index": torch.tensor([[0, 1, 0, 1, 1, 2], [1, 0, 1, 0, 2, 1]]),
        "y": torch.tensor([0, 1]),
        "node_counts": torch.tensor([2, 3]),
        "edge_counts": torch.tensor([2, 4]),
    }


# ------------------------------------------------------------------ batches


@settings(max_examples=60)
@given(batches(), st.data())
def test_a_batch_of_a_store_is_what_pyg_collates(batch: Batch, data: st.DataObject) -> None:
    graphs = batch.to_data_list()
    for graph in graphs:
        if "edge_weight" in graph:
            del graph.edge_weight
    store = GraphStore.from_pyg(graphs, num_outputs=9)
    assert len(store) == len(graphs)
    chosen = data.draw(st.lists(st.integers(0, len(graphs) - 1), min_size=1, max_size=6))
    gathered = store.batch(chosen)
    expected = Batch.from_data_list([sorted_edges(graphs[i]) for i in chosen])
    assert same_content(gathered, expected)
    undirected = all(is_undirected(Batch.from_data_list([g])) for g in graphs)
    check_valid_batch(gathered, graphs=len(chosen), undirected=undirected)
    if "edge_attr" not in graphs[0]:
        assert store.undirected == undirected
    part = store.subset(chosen)
    assert same_content(part.batch(range(len(chosen))), gathered)
    assert part.labels.tolist() == chosen
    adjacency = adjacency_of(gathered)
    again = adjacency_of(expected)
    for name in ("row_ptr", "row", "column", "symmetric"):
        one, other = getattr(adjacency, name), getattr(again, name)
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_batches_cover_the_order_given() -> None:
    store = GraphStore.from_pyg(random_batch(torch.Generator().manual_seed(0)).to_data_list())
    order = torch.tensor([5, 0, 7, 2, 3])
    parts = list(store.batches(order, 2))
    assert [part.y.tolist() for part in parts] == [[5, 0], [7, 2], [3]]


def test_subset_of_subset_and_masks() -> None:
    store = GraphStore.from_pyg(random_batch(torch.Generator().manual_seed(0)).to_data_list())
    part = store.subset([6, 1, 4, 3]).subset([2, 0])
    assert part.y.tolist() == [4, 6]
    mask = torch.zeros(8, dtype=torch.bool)
    mask[[1, 5]] = True
    assert store.subset(mask).y.tolist() == [1, 5]
    assert same_content(part.batch([0, 1]), store.batch([4, 6]))
    assert part.num_outputs == 8  # the number of classes is the data set's, not the part's


def test_flat_views_of_a_subset() -> None:
    store = GraphStore(**arguments(), edge_attr=torch.arange(6.0).view(6, 1))
    part = store.subset([1])
    assert part.x is not None
    assert part.x.tolist() == [[4.0, 5.0], [6.0, 7.0], [8.0, 9.0]]
    assert part.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert part.edge_attr is not None
    assert part.edge_attr.flatten().tolist() == [2.0, 3.0, 4.0, 5.0]
    assert part.node_ptr.tolist() == [0, 3]
    assert part.edge_ptr.tolist() == [0, 4]


def test_edges_are_sorted_and_their_features_move_along() -> None:
    given_arguments = arguments() | {
        "edge_index": torch.tensor([[1, 0, 2, 1, 0, 1], [0, 1, 1, 2, 1, 0]]),
        "edge_attr": torch.tensor([10.0, 1, 21, 12, 1, 10]).view(6, 1),
    }
    store = GraphStore(**given_arguments)
    assert store.edge_index.tolist() == [[0, 1, 0, 1, 1, 2], [1, 0, 1, 0, 2, 1]]
    assert store.edge_attr is not None
    assert store.edge_attr.flatten().tolist() == [1.0, 10, 1, 10, 12, 21]
    assert not store.undirected  # an edge and its reverse differ in their features


def test_statistics_and_repr() -> None:
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
    text = repr(store)
    assert all(part in text for part in ("loops", "2 graphs", "2 classes", "1 continuous"))
    directed = GraphStore.from_pyg(
        [Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0]))]
    )
    assert directed.statistics()["mean_edges"] == 1.0
    assert "directed" in repr(directed)


def test_node_fields_travel_with_their_nodes() -> None:
    mask = torch.tensor([True, False, False, True, True])
    store = GraphStore(**arguments(), node_fields={"motif_mask": mask})
    batch = store.batch([1, 0])
    assert batch.motif_mask.tolist() == [False, True, True, True, False]
    assert [g.motif_mask.tolist() for g in batch.to_data_list()] == [
        [False, True, True],
        [True, False],
    ]


def test_multilabel_with_missing_entries_and_regression() -> None:
    graphs = random_batch(torch.Generator().manual_seed(0), graphs=2).to_data_list()
    for graph, y in zip(graphs, ([[1.0, float("nan")]], [[0.0, 1.0]]), strict=True):
        graph.y = torch.tensor(y)
    store = GraphStore.from_pyg(graphs)
    assert (store.task, store.num_outputs) == ("multilabel", 2)
    assert store.batch([1, 0]).y.nan_to_num(7.0).tolist() == [[0.0, 1.0], [1.0, 7.0]]
    with pytest.raises(DataError, match="multilabel"):
        _ = store.labels
    for graph, value in zip(graphs, (0.5, 2.0), strict=True):
        graph.y = torch.tensor([value])
    assert GraphStore.from_pyg(graphs).task == "regression"


def test_to_pyg_and_back() -> None:
    batch = random_batch(torch.Generator().manual_seed(1), edge_attr=True, simple=False)
    store = GraphStore.from_pyg(batch.to_data_list())
    assert GraphStore.from_pyg(store.to_pyg()).fingerprint() == store.fingerprint()


# ------------------------------------------------------------------ layout and adjacency


def test_layout_of_data_with_a_batch_vector() -> None:
    nothing = torch.empty(2, 0, dtype=torch.long)
    data = Data(x=torch.zeros(3, 1), edge_index=nothing, batch=torch.tensor([0, 0, 1]))
    layout = layout_of(data)
    assert layout.ptr.tolist() == [0, 2, 3]
    assert layout.num_graphs == 2
    with pytest.raises(DataError, match="sorted"):
        layout_of(Data(x=torch.zeros(2, 1), edge_index=nothing, batch=torch.tensor([1, 0])))


def test_adjacency_is_rebuilt_when_edges_are_replaced() -> None:
    batch = random_batch(torch.Generator().manual_seed(2))
    first = adjacency_of(batch)
    assert adjacency_of(batch) is first
    other = copy.copy(batch)
    other.edge_index = batch.edge_index[:, :2]
    assert adjacency_of(other).row.numel() == 2
    assert adjacency_of(batch) is first
    batch.edge_weight = torch.full((batch.num_edges,), 2.0)
    weighted = adjacency_of(batch)
    assert weighted.weight is not None
    assert float(weighted.degree.sum()) == 2.0 * batch.num_edges


def test_batches_work_in_inference_mode() -> None:
    store = GraphStore.from_pyg(random_batch(torch.Generator().manual_seed(0)).to_data_list())
    model = GraphClassifier.for_data(store, layers=2, hidden=8, seed=0).eval()
    outside = store.batch([0, 1, 2])
    with torch.inference_mode():
        inside = model(store.batch([0, 1, 2])).logits
        again = model(outside).logits
    after = model(outside).logits  # what was kept inside must not spoil a pass with gradients
    after.sum().backward()
    torch.testing.assert_close(inside, after.detach())
    torch.testing.assert_close(again, after.detach())


def test_edges_changed_in_place_are_seen() -> None:
    batch = random_batch(torch.Generator().manual_seed(2), undirected=False)
    before = adjacency_of(batch).row.clone()
    batch.edge_index[:, 0] = batch.edge_index[:, 0].flip(0)
    assert not torch.equal(adjacency_of(batch).row, before)


def test_keeping_the_adjacency_adds_no_field() -> None:
    batch = random_batch(torch.Generator().manual_seed(2))
    before = batch.clone()
    adjacency_of(batch)
    assert same_content(batch, before)


def test_make_batch_without_features() -> None:
    batch = make_batch(
        edge_index=torch.tensor([[0, 1, 2], [1, 0, 2]]),
        node_counts=torch.tensor([2, 1, 2]),
        edge_counts=torch.tensor([2, 1, 0]),
        node_fields={},
        edge_fields={"edge_weight": torch.tensor([1.0, 1.0, 3.0])},
        graph_fields={"y": torch.tensor([0, 1, 2])},
    )
    check_valid_batch(batch, graphs=3, undirected=True)
    assert [g.edge_index.tolist() for g in batch.to_data_list()] == [
        [[0, 1], [1, 0]],
        [[0], [0]],
        [[], []],
    ]


# ------------------------------------------------------------------ bad data


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.tensor([[1.0, 2]] * 4 + [[float("nan"), 1]])}, "node 2 of graph 1 .*finite"),
        ({"x": torch.full((5, 2), float("inf"))}, "node 0 of graph 0 .*finite"),
        ({"x": torch.ones(4, 2)}, r"`x` must have 5 rows.*got 4"),
        ({"x": torch.ones(5)}, r"`x` must have shape \[nodes, features\]"),
        ({"x": torch.ones(5, 0)}, "at least one feature"),
        ({"y": torch.tensor([0, -1])}, "label of graph 1 is -1"),
        ({"num_outputs": 1}, "label of graph 1 is 1; labels must lie between 0 and 0"),
        ({"y": torch.tensor([0.0, 1.0])}, "must be integers"),
        ({"y": torch.tensor([0, 1, 1])}, "one entry per graph; got 2, 2 and 3"),
        ({"edge_index": torch.tensor([[0, 1, 0, 1, 1, 3]] * 2)}, "edge of graph 1 joins .*0 to 2"),
        ({"edge_index": torch.tensor([[0, 2, 0, 1, 1, 2]] * 2)}, "edge of graph 0 joins .*0 to 1"),
        ({"edge_index": torch.tensor([[0, -1, 0, 1, 1, 2]] * 2)}, "edge of graph 0 joins"),
        ({"edge_index": torch.zeros(2, 3, dtype=torch.long)}, r"shape \[2, 6\].*got \[2, 3\]"),
        (
            {"node_counts": torch.tensor([5, 0]), "edge_counts": torch.tensor([6, 0])},
            "graph 1 has no nodes",
        ),
        ({"edge_attr": torch.ones(5, 1)}, r"`edge_attr` must have shape \[6, features\]"),
        ({"edge_attr": torch.tensor([[1.0]] * 5 + [[float("nan")]])}, "edge of graph 1 .*finite"),
        ({"label_names": ["a"]}, "`label_names` must have 2 names.*got 1"),
        ({"num_continuous": 3}, "`num_continuous`.*got 3"),
        ({"node_fields": {"mask": torch.ones(3)}}, "`mask` must have 5 rows"),
        ({"task": "ranking"}, "`task` must be one of multiclass, multilabel, regression"),
        (
            {"task": "regression", "y": torch.tensor([[1.0], [float("inf")]])},
            "target of graph 1 is infinite",
        ),
    ],
)
def test_bad_data_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GraphStore(**(arguments() | changes))


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([], "must not be empty"),
        (torch.zeros(2, dtype=torch.bool), "must not be empty"),
        ([0, 2], "between 0 and 1; got 2"),
        ([-1], "between 0 and 1; got -1"),
        (torch.tensor([True]), r"mask .*shape \[2\]"),
    ],
)
@pytest.mark.parametrize("method", ["subset", "batch"])
def test_bad_indices_are_named(method: str, indices: object, message: str) -> None:
    store = GraphStore(**arguments())
    with pytest.raises(DataError, match=message):
        getattr(store, method)(indices)


def test_bad_pyg_graphs_are_named() -> None:
    good = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0]))
    without_y = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]))
    without_edges = Data(x=torch.ones(2, 1), y=torch.tensor([0]))
    without_x = Data(edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0]), num_nodes=2)
    wider = Data(x=torch.ones(2, 2), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0]))
    two = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
    for graphs, message in (
        ([], "there are no graphs"),
        ([good, without_y], "graph 1 has no `y`"),
        ([good, without_edges], "graph 1 has no `edge_index`"),
        ([good, without_x], "graph 1 has no `x`"),
        ([good, wider], "`x` do not fit together"),
        ([good, two], "1 to 2 entries per graph"),
    ):
        with pytest.raises(DataError, match=message):
            GraphStore.from_pyg(graphs)
    with pytest.raises(DataError, match="no `motif_mask`"):
        GraphStore.from_pyg([good], node_fields=["motif_mask"])


EDGES = torch.tensor([[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": [[1.0], [2.0]]}, r"an `x` that is a tensor \[nodes, features\]; got list"),
        ({"x": "CC"}, "an `x` that is a tensor .* got str"),
        ({"x": torch.ones(2, 1, 1)}, r"an `x` that is a tensor .* got float32 \[2, 1, 1\]"),
        ({"x": torch.ones(2, 1).to_sparse()}, "an `x` that is a tensor"),
        ({"x": torch.ones(3, 1), "num_nodes": 2}, "an `x` of 2 rows; got 3"),
        ({"num_nodes": 2.5}, "a `num_nodes` that is a whole number; got float"),
        ({"edge_attr": [1, 2]}, r"an `edge_attr` that is a tensor \[edges, features\]; got list"),
        ({"edge_attr": torch.ones(3, 1)}, "an `edge_attr` of 2 rows; got 3"),
        ({"edge_index": EDGES.float()}, r"tensor \[2, edges\] of whole .* got float32 \[2, 2\]"),
        ({"edge_index": EDGES.bool()}, "got bool"),
        ({"edge_index": EDGES.tolist()}, "of whole numbers; got list"),
        ({"edge_index": EDGES[0]}, r"got int64 \[2\]"),
        ({"y": "toxic"}, "a `y` of numbers; got str"),
        ({"y": ["toxic"]}, "a `y` of numbers; got list"),
        ({"y": [[1], [1, 2]]}, "a `y` of numbers; got list"),
        ({"y": torch.empty(0)}, r"a `y` of numbers; got float32 \[0\]"),
        ({"y": 10**30}, "a `y` of numbers; got int"),
    ],
)
def test_pyg_graphs_that_are_no_tensors_are_named(changes: dict[str, object], message: str) -> None:
    good = Data(x=torch.ones(2, 1), edge_index=EDGES, y=torch.tensor([0]))
    bad = copy.copy(good)
    for field, value in changes.items():
        setattr(bad, field, value)
    with pytest.raises(DataError, match=f"mine: graph 1 must have .*{message}"):
        GraphStore.from_pyg([good, bad], name="mine")


def test_pyg_graphs_may_have_plain_targets_and_no_edges() -> None:
    graphs = [Data(x=torch.ones(2, 1), edge_index=EDGES, y=y) for y in (0, [1], np.int64(2))]
    # This is float.
    graphs[1].edge_index = torch.empty(2, 0)
    store = GraphStore.from_pyg(graphs)
    assert store.y.tolist() == [0, 1, 2]
    assert store.edge_counts.tolist() == [2, 0, 2]
    assert store.edge_index.tolist() == [[0, 1, 0, 1], [1, 0, 1, 0]]


# ------------------------------------------------------------------ files


@pytest.mark.parametrize(
    ("reading", "message"),
    [
        ({"kind": 5}, "'kind' must be a text"),
        ({"kind": None}, "'kind' must be a text"),
        ({"elements": ["C", 5]}, "'elements' must be a list of texts"),
        ({"elements": None}, "'elements' must be a list of texts"),
        ({"targets": "y"}, "'targets' must be a list of texts"),
        ({"id": ["name"]}, "'id' must be a text or null"),
        ({"node_labels": {"C": 0}}, "'node_labels' must be a list of texts or null"),
        ({"node_numbers": 1.5}, "'node_numbers' must be a whole number"),
        ({"edge_numbers": True}, "'edge_numbers' must be a whole number"),
        ({"directed": 0}, "'directed' must be true or false"),
        ({"ignored": ["mass"]}, "'ignored' must be an object of lists of texts"),
        ({"ignored": {"node": ["mass", 1], "edge": []}}, "'ignored' must be an object of lists"),
        ({"other": {"a": "b"}}, "'other' must be a text, a list of texts, a whole number, true"),
        ({"other": 0.5}, "'other' must be a text"),
    ],
)
def test_a_store_from_elsewhere_has_a_sound_reading(
    reading: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "store.safetensors"
    GraphStore(**arguments(), reading=reading).save(path)
    assert GraphStore.load(path).reading == reading
    with pytest.raises(DataError, match=f"{path} cannot be read .* in its `reading`, {message}"):
        GraphStore.load(path, check=True)


@pytest.mark.parametrize(
    "reading",
    [
        None,
        {},
        {"kind": "molecules", "features": "elements", "elements": ["C"], "smiles": None,
         "targets": ["y"], "id": "CID"},
        {"kind": "graphs", "node_labels": ["C"], "node_numbers": 1, "edge_labels": None,
         "edge_numbers": 0, "directed": True, "ignored": {"node": ["mass"]}},
        {"other": ["a"], "another": None, "number": 3, "flag": True},
    ],
)  # fmt: skip
def test_a_sound_reading_is_kept(reading: dict[str, object] | None, tmp_path: Path) -> None:
    GraphStore(**arguments(), reading=reading).save(tmp_path / "store.safetensors")
    assert GraphStore.load(tmp_path / "store.safetensors", check=True).reading == reading


def full_store() -> GraphStore:
    return GraphStore(
        **arguments(),
        edge_attr=torch.tensor([1.0, 1, 2, 2, 3, 3]).view(6, 1),
        name="täst",
        label_names=["a", "b"],
        num_continuous=1,
        node_fields={"motif_mask": torch.tensor([True, False, True, False, True])},
    )


def test_save_and_load(tmp_path: Path) -> None:
    store = full_store()
    path = tmp_path / "new" / "store.safetensors"
    store.save(path)
    assert [p.name for p in path.parent.iterdir()] == ["store.safetensors"]
    again = GraphStore.load(path)
    assert repr(again) == repr(store)
    assert again.fingerprint() == store.fingerprint()
    assert again.label_names == ("a", "b")
    assert (again.num_continuous, again.undirected, again.task) == (1, True, "multiclass")
    assert same_content(again.batch([1, 0]), store.batch([1, 0]))


def test_fingerprint_tells_contents_apart() -> None:
    store = full_store()
    prints = {store.fingerprint(), store.subset([0]).fingerprint(), store.subset([1]).fingerprint()}
    changed = arguments()
    assert isinstance(changed["x"], torch.Tensor)
    changed["x"] = changed["x"] + torch.eye(5, 2) * 1e-3
    prints |= {GraphStore(**arguments()).fingerprint(), GraphStore(**changed).fingerprint()}
    assert len(prints) == 5
    assert store.subset([0, 1]).fingerprint() == store.fingerprint()


def test_a_part_saves_as_a_whole(tmp_path: Path) -> None:
    part = full_store().subset([1])
    part.save(tmp_path / "part")
    assert GraphStore.load(tmp_path / "part").fingerprint() == part.fingerprint()


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store"
    store = full_store()
    store.save(path)
    content = path.read_bytes()

    def fail(*args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("graph_transplant.graphs._bytes_of", fail)
    with pytest.raises(OSError, match="disk full"):
        store.subset([0]).save(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_files_that_are_no_stores(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    with pytest.raises(DataError, match="there is no file"):
        GraphStore.load(tmp_path / "missing")
    (tmp_path / "text").write_text("not a store")
    save_file({"x": torch.ones(1)}, tmp_path / "other")
    store = full_store()
    store.save(tmp_path / "cut")
    content = (tmp_path / "cut").read_bytes()
    (tmp_path / "cut").write_bytes(content[: len(content) // 2])
    for name in ("text", "other", "cut", "."):
        with pytest.raises(DataError, match="store"):
            GraphStore.load(tmp_path / name)


def test_one_graph_is_taken_as_data_and_all_are_gone_through() -> None:
    store = load("motifs", graphs=12)
    listed = store.to_pyg()
    assert len(list(store)) == 12
    for place in (0, 5, -1):
        one, same = store[place], listed[place]
        assert torch.equal(one.edge_index, same.edge_index)
        assert torch.equal(one.y, same.y)
        assert torch.equal(one.motif_mask, same.motif_mask)
        assert one.num_nodes == same.num_nodes
    with pytest.raises(IndexError, match="motifs has 12 graphs; there is no graph 12"):
        store[12]
    with pytest.raises(TypeError):
        store["0"]  # type: ignore[index]
