"""Stores in files: mapped, not read; written piece by piece; damaged ones refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch_geometric.data import Batch

import graph_transplant as gt
from graph_transplant.data import Featurizer, GraphStore, StoreWriter
from graph_transplant.data import store as module
from graph_transplant.errors import DataError
from helpers.oracles import same_content
from helpers.strategies import batches, generator, graphs_of, random_batch

GOLDEN = Path(__file__).parents[1] / "golden" / "models" / "numbers" / "inputs.safetensors"


def make_store(graphs: int = 9, seed: int = 0, **changes: Any) -> GraphStore:
    """Graphs with all that a store can hold; an edge and its reverse have different features."""
    batch = random_batch(generator(seed), graphs=graphs, edge_attr=True, simple=False)
    items = batch.to_data_list()
    arguments: dict[str, Any] = {
        "x": batch.x,
        "edge_index": torch.cat([data.edge_index for data in items], 1),
        "y": batch.y,
        "node_counts": torch.tensor([data.num_nodes for data in items]),
        "edge_counts": torch.tensor([data.num_edges for data in items]),
        "edge_attr": batch.edge_attr,
        "name": "täst",
        "label_names": [f"class {k}" for k in range(graphs)],
        "num_continuous": 1,
        "node_fields": {"mask": batch.x[:, 0] > 0, "place": torch.arange(len(batch.x))},
        "official": torch.arange(graphs) % 3,
        "featurizer": Featurizer("graphs", node_numbers=2),
    }
    return GraphStore(**(arguments | changes))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ------------------------------------------------------------------ fingerprints


def test_fingerprints_are_those_of_the_first_version() -> None:
    motifs = "4ce80aac42d41fd2491ab6e6a3ef9d8a045dba9d7ad57d0606421ba57bcf07e9"
    assert gt.load("motifs").fingerprint() == motifs
    golden = "df7d13655279a167b6d3f9ad2156ca916024dad4d90e1f84c91876278db0b22e"
    assert GraphStore.load(GOLDEN, check=True).fingerprint() == golden


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "fingerprint"),
    [
        ("MUTAG", "54cc428a3133288b4151987c9af8f9ae9be0c0faba926e8dc4c1a4e8aa66d9ce"),
        ("ENZYMES", "c50ced39f1ad77afa9bf5d7a18c8821a6bd075311d64db6954dcba547ee23a92"),
    ],
)
def test_fingerprints_of_tu_data_sets_stay(
    name: str, fingerprint: str, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPH_TRANSPLANT_CACHE", str(tmp_path))
    for cached in (False, True):
        store = gt.load(name, root=data_dir)
        assert store.fingerprint() == fingerprint
        assert (store.path is not None) == cached


def test_fingerprints_tell_contents_apart() -> None:
    store = make_store()
    others = [
        make_store(x=store.field("x") + 1e-3),
        make_store(official=None),
        make_store(num_continuous=2),
        make_store(task="regression", label_names=None),
        store.subset([8, *range(8)]),
    ]
    assert len({store.fingerprint(), *(other.fingerprint() for other in others)}) == 6
    assert make_store(name="other", featurizer=None).fingerprint() == store.fingerprint()


@settings(max_examples=40)
@given(batches(), st.integers(1, 80), st.data())
def test_pieces_of_any_size_find_the_same(batch: Batch, piece: int, data: st.DataObject) -> None:
    graphs = graphs_of(batch)
    chosen = data.draw(st.lists(st.integers(0, len(graphs) - 1), min_size=1, max_size=6))
    at_once = [GraphStore.from_pyg(items) for items in (graphs, [graphs[i] for i in chosen])]
    fingerprints = [store.fingerprint() for store in at_once]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PIECE", piece)
        whole = GraphStore.from_pyg(graphs)
        assert whole.undirected == at_once[0].undirected
        whole.statistics()  # what a store remembers of them must not pass to its parts
        part = whole.subset(chosen).with_targets(torch.tensor(chosen), num_outputs=max(chosen) + 1)
        assert [store.fingerprint() for store in (whole, part)] == fingerprints
        for store in (whole, part):
            degrees, loops = [0], 0
            for graph in store.to_pyg():
                degrees += np.bincount(graph.edge_index[1].numpy(), minlength=1).tolist()
                loops += int((graph.edge_index[0] == graph.edge_index[1]).sum())
            assert store.max_degree() == max(degrees)
            edges = int(store.edge_counts.sum())
            expected = (edges + loops) / 2 if store.undirected else edges
            assert store.statistics()["mean_edges"] == expected / len(store)


def test_moments_of_continuous_features(monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(num_continuous=2)
    for piece in (1 << 21, 50):
        monkeypatch.setattr(module, "_PIECE", piece)
        for part in (store, store.subset([4, 1, 8, 2])):
            values = part.field("x")[:, :2].double().numpy()
            mean, std = part.continuous_moments()
            np.testing.assert_allclose(mean, values.mean(0), rtol=1e-6)
            np.testing.assert_allclose(std, values.std(0), rtol=1e-6)
    assert make_store(num_continuous=0).continuous_moments()[0].tolist() == []


# ------------------------------------------------------------------ the file


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.bool])
def test_save_and_load(dtype: torch.dtype, tmp_path: Path) -> None:
    x = (make_store().field("x") > 0).to(dtype)
    store, floats = make_store(x=x), make_store(x=x.float())
    path = tmp_path / "new" / "store.safetensors"
    store.save(path)
    assert names_in(path.parent) == ["store.safetensors"]
    for again in (GraphStore.load(path), GraphStore.load(path, check=True)):
        assert repr(again) == repr(store)
        # Small integers stay small and mean the same.
        assert again.field("x").dtype == dtype
        assert again.fingerprint() == store.fingerprint() == floats.fingerprint()
        assert (again.label_names, again.featurizer) == (store.label_names, store.featurizer)
        assert again.undirected == store.undirected
        assert same_content(again.batch([3, 1]), floats.batch([3, 1]))
        assert again.path == path
        assert again.subset([0]).path is None  # the file holds other graphs than these
    assert store.path is None  # the file may be a passing one
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_other_readers_of_the_format_understand_the_file(tmp_path: Path) -> None:
    store = make_store()
    store.save(tmp_path / "store.safetensors")
    with safe_open(str(tmp_path / "store.safetensors"), framework="np") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    expected = {key: store.field(key).numpy() for key in store.fields}
    assert set(tensors) == set(expected)
    assert tensors["edge_index"].tolist() == store.edge_index.flip(0).tolist()
    content = (tmp_path / "store.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    for key, value in expected.items():
        assert tensors[key].dtype == value.dtype
        np.testing.assert_array_equal(tensors[key], value)
        # Wide values must not straddle: some machines read them slowly, some not at all.
        assert header[key]["data_offsets"][0] % value.dtype.itemsize == 0


def test_a_store_is_saved_over_its_own_file_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "store.safetensors"
    make_store().save(path)
    store = GraphStore.load(path)
    # A part need not have graphs of every part of the official split.
    store.subset([3, 0, 4]).save(path)
    again = GraphStore.load(path, check=True)
    assert again.field("official").tolist() == [0, 0, 1]
    assert store.fingerprint() == make_store().fingerprint()
    content = path.read_bytes()
    phase = torch.zeros(len(store.field("x")), dtype=torch.cfloat)
    with pytest.raises(
        DataError, match=r"`phase` cannot be written: files cannot hold .*complex64"
    ):
        make_store(node_fields={"phase": phase}).save(path)
    assert path.read_bytes() == content
    assert names_in(tmp_path) == ["store.safetensors"]


# ------------------------------------------------------------------ damaged and foreign files


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    make_store(graphs=4, official=None).save(tmp_path / "sound")
    content = (tmp_path / "sound").read_bytes()
    path = tmp_path / "damaged"
    random = np.random.default_rng(0)
    for place in random.choice(len(content), 100, replace=False).tolist():
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(random.integers(8))
        path.write_bytes(flipped)
        with pytest.raises(DataError):
            GraphStore.load(path, check=True)
    for size in (0, 8, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match="cannot be read as a graph store"):
            GraphStore.load(path)
    save_file({"x": torch.ones(1)}, tmp_path / "other")
    with pytest.raises(DataError, match="cannot be read"):
        GraphStore.load(tmp_path / "other")


def old_file(path: Path, store: GraphStore, changes: dict[str, Any]) -> None:
    """Write a store as the first version did, which had no digest, with some contents changed."""
    tensors = {key: store.field(key).contiguous() for key in store.fields}
    keys = ("name", "task", "num_outputs", "label_names", "num_continuous", "undirected")
    described = {key: getattr(store, key) for key in keys}
    for key, value in changes.items():
        (tensors if isinstance(value, Tensor) else described)[key] = value
    metadata = {"format": "graph-transplant store 1", "store": json.dumps(described)}
    save_file(tensors, path, metadata)


def test_directed_graphs_in_files_of_the_first_version(tmp_path: Path) -> None:
    graphs = random_batch(generator(), undirected=False, edge_attr=True).to_data_list()
    store = GraphStore.from_pyg(graphs)
    assert not store.undirected
    # Rows were senders then.
    sender, receiver = store.edge_index
    graph = torch.repeat_interleave(torch.arange(len(store)), store.edge_counts)
    order = torch.from_numpy(np.lexsort((receiver, sender, graph)))
    edges = torch.stack((sender, receiver))[:, order]
    attr = store.field("edge_attr")[order]
    old_file(tmp_path / "old", store, {"edge_index": edges, "edge_attr": attr})
    again = GraphStore.load(tmp_path / "old", check=True)
    assert again.fingerprint() == store.fingerprint()
    assert same_content(again.batch([3, 1]), store.batch([3, 1]))


def wrong_edges(store: GraphStore, kind: str) -> Tensor:
    """The rows of a store with a mistake that compiled code would not notice."""
    edges = store.field("edge_index").clone()
    first = int(store.edge_ptr[store.edge_counts.argmax()])
    if kind == "unsorted":
        edges[:, first : first + 2] = edges[:, first : first + 2].flip(1)
    elif kind == "directed":
        edges[1, first] = edges[0, first]  # a loop, in the place of an edge
    else:
        edges[0, first] = 1000
    return edges


UNDIRECTED = GraphStore.from_pyg(random_batch(generator(4)).to_data_list())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_index": wrong_edges(UNDIRECTED, "far")}, "an edge of graph . joins nodes"),
        (
            {"edge_index": wrong_edges(UNDIRECTED, "unsorted")},
            "edges are not sorted, or not undirected as stated",
        ),
        (
            {"edge_index": wrong_edges(UNDIRECTED, "directed")},
            "edges are not sorted, or not undirected as stated",
        ),
        ({"x": UNDIRECTED.field("x") / 0}, "node 0 of graph 0 has a feature that is not a finite"),
        ({"node_counts": torch.full((8,), 2**62)}, "or too large counts"),
        ({"name": 5}, "its description: `name` must be a string; got 5"),
        ({"path": "/etc/passwd"}, "its description: 'path' is not known"),
        ({"featurizer": {"kind": 5}}, "featurizer: `kind` must be a string; got 5"),
        (
            {"reading": {"kind": "graphs", "node_labels": [1]}},
            r"featurizer: `node_labels\[0\]` must be a string; got 1",
        ),
    ],
)
def test_contents_of_a_file_from_elsewhere_are_checked(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    old_file(tmp_path / "wrong.safetensors", UNDIRECTED, changes)
    with pytest.raises(DataError, match=message):
        gt.load(tmp_path / "wrong.safetensors")


# ------------------------------------------------------------------ the writer


def write(path: Path, *pieces: GraphStore, **options: Any) -> GraphStore:
    with StoreWriter(path, **options) as writer:
        for piece in pieces:
            writer.append(piece)
    return GraphStore.load(path, check=True)


def test_the_first_piece_says_what_columns_and_classes_are(tmp_path: Path) -> None:
    named = UNDIRECTED.with_targets(UNDIRECTED.y, label_names=[f"c{k}" for k in range(8)])
    named.num_continuous = 1
    found = write(tmp_path / "store.safetensors", named, named)
    assert (found.num_continuous, found.label_names) == (1, named.label_names)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches(), st.data())
def test_pieces_make_the_file_of_the_whole(
    tmp_path: Path, batch: Batch, data: st.DataObject
) -> None:
    graphs = graphs_of(batch)
    whole = GraphStore.from_pyg(graphs, name="all")
    cuts = data.draw(st.lists(st.integers(1, len(graphs) - 1), unique=True)) if graphs[1:] else []
    # One piece is a store of its own, the next a part of the whole.
    pieces = [
        GraphStore.from_pyg(graphs[first:last]) if first % 2 else whole.subset(range(first, last))
        for first, last in pairwise([0, *sorted(cuts), len(graphs)])
    ]
    whole.save(tmp_path / "whole")
    write(tmp_path / "pieces", *pieces, name="all")
    assert (tmp_path / "pieces").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize(
    ("second", "options", "message"),
    [
        ({"edge_attr": None}, {}, "mine: only some pieces have `edge_attr`"),
        ({}, {"num_outputs": 5}, "label of graph 5 is 5; labels must lie between 0 and 4"),
        ({}, {"official": torch.zeros(9)}, r"`official` must have shape \[18\]"),
    ],
)
def test_pieces_and_arguments_that_do_not_fit(
    second: dict[str, Any], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "store").write_text("what was there before")
    with pytest.raises(DataError, match=message):
        write(tmp_path / "store", make_store(), make_store(**second), name="mine", **options)
    assert names_in(tmp_path) == ["store"]
    assert (tmp_path / "store").read_text() == "what was there before"


def test_a_writer_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with StoreWriter(tmp_path / "store") as writer:
            writer.append(make_store())
            # One folder holds all that is needed on the way.
            assert len(names_in(tmp_path)) == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(DataError, match="mine: there are no graphs"):
        write(tmp_path / "store", name="mine")
    assert names_in(tmp_path) == []


# Looks at a whole store under a limit on memory; at the end it does what must exceed the limit.
CHILD = """
import resource, sys
import torch
from graph_transplant.data import GraphStore

def data():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmData:"))

def limit_to(size):
    resource.setrlimit(resource.RLIMIT_DATA, (size, resource.RLIM_INFINITY))

def look_at(path, limit, room):
    # To the system a mapped file counts as memory of the process.
    limit_to(limit + room)
    store = GraphStore.load(path, check=True)
    for part in (store, store.subset(torch.arange(len(store)) % 5 > 0)):
        repr(part), part.fingerprint(), part.max_degree(), part.continuous_moments()
        sum(batch.num_edges for batch in part.batches(torch.arange(len(part)).flip(0), 16))
    limit_to(limit + 2 * room)
    part.save(path + ".part")
    limit_to(limit + room)
    return part

torch.set_num_threads(1)
small, large, limit, room = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
look_at(small, 1 << 40, 0)  # kernels are compiled and libraries loaded before there is a limit
part = look_at(large, data() + limit, room)
try:
    part.edge_index
except RuntimeError as error:
    print("done:", "memory" in str(error))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_a_store_larger_than_memory_is_used(tmp_path: Path) -> None:
    random = generator()
    graphs, nodes, pairs = 100, 200, 2000
    ends = torch.randint(0, nodes, (2, graphs * pairs), generator=random)
    piece = GraphStore(
        x=torch.randn(graphs * nodes, 8, generator=random),
        edge_index=torch.stack((ends, ends.flip(0)), 2).view(2, -1),
        y=torch.arange(graphs) % 3,
        node_counts=torch.full((graphs,), nodes),
        edge_counts=torch.full((graphs,), 2 * pairs),
    )
    write(tmp_path / "large", *[piece] * 25, num_continuous=8)
    write(tmp_path / "small", piece, num_continuous=8)
    size, limit = (tmp_path / "large").stat().st_size, 32 << 20
    assert size > 2.5 * limit
    # Large blocks go straight back to the system: what is free inside the heap would count too.
    settled = {"MALLOC_MMAP_THRESHOLD_": "1048576", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
    files = (str(tmp_path / "small"), str(tmp_path / "large"))
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *files, str(limit), str(size)],
        env=os.environ | settled,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.stdout == "done: True\n", done.stderr
