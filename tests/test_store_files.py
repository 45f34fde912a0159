"""Stores in files: mapped, not read; written piece by piece; looked at in bounded memory."""

from __future__ import annotations

import hashlib
import importlib.util
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
from torch import Tensor
from torch_geometric.data import Batch

from graph_transplant import graphs as module
from graph_transplant.datasets import load
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.graphs import GraphStore, StoreWriter
from graph_transplant.nn import GraphClassifier
from oracles import same_content
from strategies import batches, random_batch

ROOT = Path(__file__).resolve().parents[1]


def make_store(graphs: int = 9, seed: int = 0, **changes: Any) -> GraphStore:
    """Undirected graphs with all that a store can hold."""
    batch = random_batch(
        torch.Generator().manual_seed(seed), graphs=graphs, edge_attr=True, simple=False
    )
    items = batch.to_data_list()
    given_arguments: dict[str, Any] = {
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
    }
    return GraphStore(**(given_arguments | changes))


def plain_fingerprint(store: GraphStore) -> str:
    """The fingerprint as published with the first records: over whole tensors at once."""
    tensors: dict[str, Tensor | None] = {
        "edge_index": store.edge_index,
        "y": store.y,
        "node_counts": store.node_counts,
        "edge_counts": store.edge_counts,
        "x": store.x,
        "edge_attr": store.edge_attr,
        "official": store.official,
    }
    tensors |= {f"node_field.{name}": value for name, value in store.node_fields.items()}
    described = {
        "task": store.task,
        "num_outputs": store.num_outputs,
        "label_names": store.label_names,
        "num_continuous": store.num_continuous,
    }
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for key, value in sorted(tensors.items()):
        if value is not None:
            digest.update(f"{key} {value.dtype} {list(value.shape)}".encode())
            digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()


def recorded_fingerprint(comparison: str) -> str:
    with (ROOT / "results" / comparison / "records.jsonl").open(encoding="utf-8") as file:
        fingerprint: str = json.loads(file.readline())["fingerprint"]
    return fingerprint


# ------------------------------------------------------------------ fingerprints stay


def test_the_fingerprint_of_recorded_motifs_stays() -> None:
    assert load("motifs").fingerprint() == recorded_fingerprint("motifs-all")


@pytest.mark.data
def test_the_fingerprint_of_recorded_enzymes_stays(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPH_TRANSPLANT_CACHE", str(tmp_path))
    for _ in range(2):  # from text, then from the cache
        store = load("ENZYMES", root=data_dir)
        assert store.fingerprint() == recorded_fingerprint("enzymes-gcs4")
    assert store.path is not None


# ------------------------------------------------------------------ pieces


@settings(max_examples=40)
@given(batches(), st.integers(1, 40), st.data())
def test_pieces_of_any_size_find_the_same(batch: Batch, piece: int, data: st.DataObject) -> None:
    graphs = batch.to_data_list()
    whole = GraphStore.from_pyg(graphs, num_outputs=9)
    chosen = data.draw(st.lists(st.integers(0, len(graphs) - 1), min_size=1, max_size=6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PIECE", piece)
        whole.statistics()  # what a store remembers of them must not pass to its parts
        for store in (whole, whole.subset(chosen)):
            assert store.fingerprint() == plain_fingerprint(store)
            degrees, loops = [0], 0
            for graph in store.to_pyg():
                degrees += np.bincount(graph.edge_index[1].numpy(), minlength=1).tolist()
                loops += int((graph.edge_index[0] == graph.edge_index[1]).sum())
            assert store.max_degree() == max(degrees)
            edges = int(store.edge_counts.sum())
            expected = (edges + loops) / 2 if store.undirected else edges
            assert store.statistics()["mean_edges"] == expected / len(store)


@pytest.mark.parametrize("chosen", [None, [4, 1, 8, 2]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_moments_in_pieces_are_those_of_all_nodes(
    dtype: torch.dtype, chosen: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = (torch.rand(400, 3, generator=torch.Generator().manual_seed(3)) * 50 + 100).to(dtype)
    counts = torch.tensor([40] * 10)
    store = GraphStore(
        x=x,
        edge_index=torch.empty(2, 0, dtype=torch.long),
        y=torch.arange(10),
        node_counts=counts,
        edge_counts=counts * 0,
        num_continuous=2,
    )
    part = store if chosen is None else store.subset(chosen)
    assert part.x is not None
    values = part.x.numpy().astype(np.float64)[:, :2]
    at_once = part.continuous_moments()
    # To the last bit what it has always been: trials on record depend on it.
    assert torch.equal(at_once[0], part.x[:, :2].mean(0))
    assert torch.equal(at_once[1], part.x[:, :2].std(0, correction=0))
    monkeypatch.setattr(module, "_AT_ONCE", 0)
    monkeypatch.setattr(module, "_PIECE", 200)
    mean, std = part.continuous_moments()
    assert (mean.dtype, std.dtype) == (torch.float32, torch.float32)
    np.testing.assert_allclose(mean.numpy(), values.mean(0), rtol=1e-7)
    np.testing.assert_allclose(std.numpy(), values.std(0), rtol=1e-6)
    model = GraphClassifier.for_data(part, hidden=4)
    assert torch.equal(model.inputs.mean, mean)


def test_there_are_no_moments_without_continuous_features() -> None:
    for store in (load("motifs", graphs=6), make_store(num_continuous=0)):
        assert [m.tolist() for m in store.continuous_moments()] == [[], []]


# ------------------------------------------------------------------ the file


def test_other_readers_of_the_format_understand_the_file(tmp_path: Path) -> None:
    store = make_store()
    store.save(tmp_path / "store.safetensors")
    content = (tmp_path / "store.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert length % 8 == 0
    with safe_open(str(tmp_path / "store.safetensors"), framework="np") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    assert store.official is not None
    expected = {
        "x": store.x,
        "y": store.y,
        "edge_index": store.edge_index,
        "edge_attr": store.edge_attr,
        "node_counts": store.node_counts,
        "edge_counts": store.edge_counts,
        "official": store.official,
        "node_field.mask": store.node_fields["mask"],
        "node_field.place": store.node_fields["place"],
    }
    assert set(tensors) == set(expected)
    for key, value in expected.items():
        assert value is not None
        assert tensors[key].dtype == value.numpy().dtype
        np.testing.assert_array_equal(tensors[key], value.numpy())
        # Wide values must not straddle: some machines read them slowly, some not at all.
        assert header[key]["data_offsets"][0] % tensors[key].dtype.itemsize == 0


def mapped_range(path: Path) -> range:
    """Addresses at which a file is mapped into this process."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    found = [line.split()[0].split("-") for line in lines if line.endswith(str(path))]
    return range(min(int(a, 16) for a, _ in found), max(int(b, 16) for _, b in found))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("small", [False, True])
def test_nothing_is_copied_out_of_the_file(small: bool, tmp_path: Path) -> None:
    changes: dict[str, Any] = {}
    if small:
        plain = make_store()
        assert plain.x is not None
        assert plain.edge_attr is not None
        changes = {"x": plain.x > 0, "edge_attr": plain.edge_attr.to(torch.uint8)}
    make_store(**changes).save(tmp_path / "store.safetensors")
    store = GraphStore.load(tmp_path / "store.safetensors")
    place = mapped_range(tmp_path / "store.safetensors")
    tensors = [value for value in vars(store).values() if isinstance(value, Tensor)]
    tensors += store._node_fields.values()
    ours = {id(store._node_starts), id(store._edge_starts)}  # counted up, not read
    inside = [tensor for tensor in tensors if id(tensor) not in ours]
    assert len(inside) == 9
    for tensor in inside:
        assert tensor.data_ptr() in place
    part = store.subset([0, 2, 4])
    assert part._x is store._x
    assert part._edge_index is store._edge_index


def test_a_store_remembers_the_file_it_reads_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = make_store()
    store.save("store.safetensors")
    assert store.path is None  # the file may be a passing one
    again = GraphStore.load("store.safetensors")
    assert again.path == tmp_path / "store.safetensors"
    assert again.subset([0]).path is None  # the file holds other graphs than these


def test_a_mapped_store_can_be_saved_over_its_own_file(tmp_path: Path) -> None:
    path = tmp_path / "store.safetensors"
    make_store().save(path)
    before = path.read_bytes()
    store = GraphStore.load(path)
    store.save(path)
    assert path.read_bytes() == before
    store.subset([2, 0, 1]).save(path)
    assert len(GraphStore.load(path)) == 3
    assert store.fingerprint() == make_store().fingerprint()
    assert [p.name for p in tmp_path.iterdir()] == ["store.safetensors"]


def test_others_may_read_what_was_saved(tmp_path: Path) -> None:
    make_store().save(tmp_path / "store.safetensors")
    (tmp_path / "plain").touch()
    modes = {(tmp_path / name).stat().st_mode for name in ("store.safetensors", "plain")}
    assert len(modes) == 1


def test_a_type_that_the_format_does_not_know_is_named(tmp_path: Path) -> None:
    store = make_store()
    odd = make_store(node_fields={"phase": torch.zeros(int(store.node_counts.sum())).cfloat()})
    with pytest.raises(DataError, match=r"`phase` cannot be written: .* torch\.complex64"):
        odd.save(tmp_path / "store.safetensors")
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ small integers


def one_hot_store(dtype: torch.dtype) -> GraphStore:
    plain = make_store()
    assert plain.x is not None
    assert plain.edge_attr is not None
    return make_store(x=(plain.x > 0).to(dtype), edge_attr=(plain.edge_attr > 1.5).to(dtype))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.bool])
def test_small_integers_stay_small_and_mean_the_same(dtype: torch.dtype, tmp_path: Path) -> None:
    floats, small = one_hot_store(torch.float32), one_hot_store(dtype)
    small.save(tmp_path / "small")
    floats.save(tmp_path / "floats")
    assert (tmp_path / "small").stat().st_size < (tmp_path / "floats").stat().st_size
    for store in (small, GraphStore.load(tmp_path / "small"), small.subset(range(9))):
        assert store.fingerprint() == floats.fingerprint()
        assert store.undirected == floats.undirected
        assert same_content(store.batch([3, 1]), floats.batch([3, 1]))
        for mine, theirs in ((store.x, floats.x), (store.edge_attr, floats.edge_attr)):
            assert mine is not None
            assert theirs is not None
            assert mine.dtype == torch.float32
            assert torch.equal(mine, theirs)
    with safe_open(str(tmp_path / "small"), framework="pt") as file:
        assert file.get_tensor("x").dtype == dtype


def test_other_integers_become_floats() -> None:
    plain = make_store()
    assert plain.x is not None
    store = make_store(x=plain.x.round().long())
    assert store._x is not None
    assert store._x.dtype == torch.float32


# ------------------------------------------------------------------ the official split


def test_the_official_split_is_kept(tmp_path: Path) -> None:
    store = make_store()
    assert store.official is not None
    assert store.official.dtype == torch.int8
    store.save(tmp_path / "store")
    again = GraphStore.load(tmp_path / "store")
    assert again.official is not None
    assert again.official.tolist() == [0, 1, 2] * 3
    part = store.subset([3, 0, 4])
    assert part.official is not None
    assert part.official.tolist() == [0, 0, 1]
    # A part need not have graphs of every kind, and can be saved all the same.
    part.save(tmp_path / "part")
    assert GraphStore.load(tmp_path / "part").fingerprint() == part.fingerprint()
    without, other = make_store(official=None), make_store(official=torch.arange(9) // 3)
    assert without.official is None
    assert len({store.fingerprint(), without.fingerprint(), other.fingerprint()}) == 3


@pytest.mark.parametrize(
    ("official", "message"),
    [
        (torch.zeros(8), r"`official` must have shape \[9\], one entry per graph; got \[8\]"),
        (torch.zeros(9, 1), r"`official` must have shape \[9\].*got \[9, 1\]"),
        (torch.tensor([0, 1, 2, 0, 3, 0, 0, 0, 0]), r"0 \(train\).*got 3 for graph 4"),
        (torch.tensor([0, 1, 2, -1, 3, 0, 0, 0, 0]), "got -1 for graph 3"),
        (torch.tensor([0, 1, 2, 0, 0.5, 0, 0, 0, 0]), "got 0.5 for graph 4"),
        (torch.tensor([0, 256, 2] * 3), "got 256 for graph 1"),
        (torch.tensor([0, 0, 2] * 3), "train, validation and test; got none for validation"),
        (torch.tensor([0, 1, 1] * 3), "got none for test"),
    ],
)
def test_a_bad_official_split_is_named(official: Tensor, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        make_store(official=official)
    writer = StoreWriter(tmp_path / "store", official=official)
    with pytest.raises(DataError, match=message), writer:
        writer.append(make_store())
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ the writer


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches(), st.data())
def test_pieces_make_the_file_of_the_whole(
    tmp_path: Path, batch: Batch, data: st.DataObject
) -> None:
    graphs = batch.to_data_list()
    whole = GraphStore.from_pyg(graphs, name="all", label_names=None)
    cuts = data.draw(st.lists(st.integers(1, len(graphs) - 1), unique=True)) if graphs[1:] else []
    bounds = [0, *sorted(cuts), len(graphs)]
    whole.save(tmp_path / "whole")
    with StoreWriter(tmp_path / "pieces", name="all") as writer:
        for first, last in pairwise(bounds):
            # One piece is a store of its own, the next a part of the whole.
            own = GraphStore.from_pyg(graphs[first:last])
            writer.append(own if first % 2 else whole.subset(range(first, last)))
    assert (tmp_path / "pieces").read_bytes() == (tmp_path / "whole").read_bytes()


def test_pieces_with_everything_make_the_file_of_the_whole(tmp_path: Path) -> None:
    whole = make_store()
    whole.save(tmp_path / "whole")
    with StoreWriter(
        tmp_path / "new" / "pieces",
        name="täst",
        label_names=whole.label_names,
        num_continuous=1,
        official=torch.arange(9) % 3,
    ) as writer:
        for part in ([0, 1, 2, 3], [4], [5, 6, 7, 8]):
            writer.append(whole.subset(part))
    assert (tmp_path / "new" / "pieces").read_bytes() == (tmp_path / "whole").read_bytes()
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["pieces"]


def test_the_largest_label_of_any_piece_counts(tmp_path: Path) -> None:
    whole = make_store(label_names=None)
    with StoreWriter(tmp_path / "store") as writer:
        for label in (2, 7, 4):
            writer.append(GraphStore.from_pyg(whole.subset([label]).to_pyg()))
    store = GraphStore.load(tmp_path / "store")
    assert (store.labels.tolist(), store.num_outputs) == ([2, 7, 4], 8)


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_targets_of_other_tasks(task: str, tmp_path: Path) -> None:
    y = torch.rand(9, 2, generator=torch.Generator().manual_seed(0)).round()
    whole = make_store(task=task, y=y, label_names=None, name="all", num_continuous=0)
    whole.save(tmp_path / "whole")
    with StoreWriter(tmp_path / "pieces", name="all", task=task, official=whole.official) as writer:
        writer.append(whole.subset(range(4)))
        writer.append(whole.subset(range(4, 9)))
    assert (tmp_path / "pieces").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_directed_piece_makes_the_whole_directed(tmp_path: Path) -> None:
    def pair(edges: list[list[int]], label: int) -> GraphStore:
        return GraphStore(
            x=None,
            edge_index=torch.tensor(edges),
            y=torch.tensor([label]),
            node_counts=torch.tensor([2]),
            edge_counts=torch.tensor([len(edges[0])]),
        )

    both, one_way = pair([[0, 1], [1, 0]], 0), pair([[0], [1]], 1)
    for pieces in ((both, one_way), (one_way, both), (both, both)):
        with StoreWriter(tmp_path / "store", num_outputs=5) as writer:
            for piece in pieces:
                writer.append(piece)
        store = GraphStore.load(tmp_path / "store")
        assert store.undirected == (one_way not in pieces)
        assert store.num_outputs == 5


def write_pieces(path: Path, *pieces: GraphStore) -> None:
    with StoreWriter(path, name="mine") as writer:
        for piece in pieces:
            writer.append(piece)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"x": None, "num_continuous": 0}, r"`x` must be float32 \[3\].*; piece 1 has none"),
        ({"edge_attr": None}, r"`edge_attr` must be float32 \[2\].*piece 1 has none"),
        ({"node_fields": {}}, r"`mask` must be torch\.bool, .*piece 1 has none"),
        ({"x": torch.zeros(0)}, r"`x` must be float32 \[3\].*piece 1 has uint8 \[3\]"),
        ({"task": "regression", "label_names": None}, "`task` is multiclass, but .* regression"),
    ],
)
def test_a_piece_that_does_not_fit_is_named(
    second: dict[str, Any], message: str, tmp_path: Path
) -> None:
    first = make_store()
    assert first.x is not None
    if isinstance(second.get("x"), Tensor):
        second = {"x": first.x.to(torch.uint8)}
    (tmp_path / "store").write_text("what was there before")
    with pytest.raises(DataError, match=f"mine: {message}"):
        write_pieces(tmp_path / "store", first, make_store(**second))
    assert [p.name for p in tmp_path.iterdir()] == ["store"]
    assert (tmp_path / "store").read_text() == "what was there before"


def test_a_new_field_in_a_later_piece_is_named(tmp_path: Path) -> None:
    pieces = make_store(node_fields={}), make_store()
    with pytest.raises(DataError, match=r"`mask` must be absent, .* piece 1 has torch\.bool"):
        write_pieces(tmp_path / "store", *pieces)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_outputs": 5}, "label of graph 5 is 5; labels must lie between 0 and 4"),
        ({"label_names": ["a", "b"]}, "`label_names` must have 9 names.*got 2"),
        ({"num_continuous": 4}, "`num_continuous` must lie between 0 and .*got 4"),
    ],
)
def test_arguments_that_do_not_fit_the_pieces(
    arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    writer = StoreWriter(tmp_path / "store", **arguments)
    with pytest.raises(DataError, match=message), writer:
        writer.append(make_store())
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with StoreWriter(tmp_path / "store") as writer:
            writer.append(make_store())
            # One folder holds all that is needed on the way.
            assert len(list(tmp_path.iterdir())) == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_a_writer_without_pieces_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="mine: there are no graphs"):
        write_pieces(tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_pieces_are_taken_inside_the_block_alone(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    with pytest.raises(DataError, match="inside its `with` block"):
        writer.append(make_store())
    with writer:
        writer.append(make_store())
    with pytest.raises(DataError, match="inside its `with` block"):
        writer.append(make_store())
    with pytest.raises(GraphTransplantError, match="`task` must be one of"):
        StoreWriter(tmp_path / "store", task="ranking")


# ------------------------------------------------------------------ memory

# What a training process does with a store, under a limit on memory of its own; only the mapped
# file is left out of account. At the end it does what needs the whole in memory, which must fail.
CHILD = """
import resource, sys
import torch
from graph_transplant.graphs import GraphStore
from graph_transplant.nn import GraphClassifier
from graph_transplant.training import take_step

def status(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key + ":"))

torch.set_num_threads(1)
small = GraphStore.load(sys.argv[2])
model = GraphClassifier.for_data(small, hidden=8, layers=2, seed=0)
optimizer = torch.optim.Adam(model.parameters())

def step(store, index):
    batch = store.batch(index)
    take_step(model, batch, (), optimizer, task="multiclass", clip_norm=2.0, generator=None)

step(small, [0, 1])  # libraries are loaded and threads started before the limit is set
store = GraphStore.load(sys.argv[1])
limit = int(sys.argv[3])
allowed = status("VmData") + limit
resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
before = peak = status("RssAnon")
mask = torch.arange(len(store)) % 5 > 0
part = store.subset(mask)
work = [
    lambda: repr(store), store.fingerprint, store.max_degree, store.continuous_moments,
    lambda: repr(part), part.fingerprint, part.max_degree, part.continuous_moments,
    lambda: part.save(sys.argv[1] + ".part"),
    lambda: GraphClassifier.for_data(part, hidden=8),
]
order = torch.randperm(len(part), generator=torch.Generator().manual_seed(0))
work += [lambda chosen=chosen: step(part, chosen) for chosen in order.split(16)[:20]]
for job in work:
    job()
    peak = max(peak, status("RssAnon"))
assert peak - before < limit, (peak, before)
try:
    part.edge_index
except RuntimeError as error:
    print("done:", "memory" in str(error))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_a_store_larger_than_memory_is_used(tmp_path: Path) -> None:
    random = torch.Generator().manual_seed(0)
    graphs, nodes, pairs = 100, 200, 2000
    ends = torch.randint(0, nodes, (2, graphs * pairs), generator=random)
    piece = GraphStore(
        x=torch.randn(graphs * nodes, 8, generator=random),
        edge_index=torch.stack((ends, ends.flip(0)), 2).view(2, -1),
        y=torch.arange(graphs) % 3,
        node_counts=torch.full((graphs,), nodes),
        edge_counts=torch.full((graphs,), 2 * pairs),
    )
    with StoreWriter(tmp_path / "large", num_continuous=8) as writer:
        for _ in range(40):
            writer.append(piece)
    with StoreWriter(tmp_path / "small", num_continuous=8) as writer:
        writer.append(piece)
    limit = 64 << 20
    assert (tmp_path / "large").stat().st_size > 2.2 * limit
    command = [sys.executable, "-c", CHILD, str(tmp_path / "large"), str(tmp_path / "small")]
    # Large blocks go straight back to the system: what is free inside the heap would count too.
    settled = {"MALLOC_MMAP_THRESHOLD_": "1048576", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(limit)],
        env=os.environ | settled,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done: True\n"


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_the_benchmark_of_large_stores_trains_alike_under_its_limit(tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "large_store.py"
    spec = importlib.util.spec_from_file_location("large_store", script)
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    path = tmp_path / "large.safetensors"
    benchmark.write(path, 170, 20, 60, 0)
    store = GraphStore.load(path)
    assert (len(store), store.undirected, store.num_outputs) == (170, True, 37)
    assert (store.statistics()["mean_nodes"], store.statistics()["mean_edges"]) == (20, 30)
    assert store.official is not None
    assert store.official.bincount().tolist() == [136, 17, 17]
    with torch.random.fork_rng():
        here = benchmark.train(path, "transplant-dp", 2, 0)
    limit = 4096 << 20  # libraries alone take some hundred MiB; what it forbids is tested above
    there = benchmark.run_child(path, "transplant-dp", 2, limit)
    assert len(here["losses"]) == 2
    assert there["losses"] == here["losses"]
    assert there["accuracy"] == here["accuracy"]
    assert 0 < there["own"] < there["peak"] < limit
