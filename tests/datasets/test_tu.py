"""TU data sets: equal to PyG's reading, every malformed folder named, cached, found, downloaded."""

from __future__ import annotations

import logging
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.datasets import TUDataset

from graph_transplant.data import GraphStore
from graph_transplant.datasets import tu
from graph_transplant.datasets.files import Parts
from graph_transplant.errors import DataError

# Two graphs: a triangle with a tail (1-4) and an edge (5-6).
SMALL = {
    "A": "1, 2\n2, 1\n2, 3\n3, 2\n1, 3\n3, 1\n3, 4\n4, 3\n5, 6\n6, 5\n",
    "graph_indicator": "1\n1\n1\n1\n2\n2\n",
    "graph_labels": "7\n-3\n",
    "node_labels": "2\n2\n5\n3\n2\n2\n",
    "node_attributes": "0.5, -1\n1e-3, 2\n3, 4\n-5, 6.25\n7, 8\n9, 10\n",
    "edge_labels": "1\n1\n0\n0\n1\n1\n1\n1\n0\n0\n",
}

Write = Callable[..., Path]


pytestmark = pytest.mark.usefixtures("offline")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a TU folder, by default the small one with some files changed or, if None, left out."""

    def writer(folder: str = "data/SMALL", name: str = "SMALL", **changes: str | None) -> Path:
        path = tmp_path / folder
        path.mkdir(parents=True, exist_ok=True)
        for part, text in {**SMALL, **changes}.items():
            if text is not None:
                (path / f"{name}_{part}.txt").write_bytes(text.encode())
        return path

    return writer


def real(name: str, data_dir: Path) -> Path:
    """The archive of a published data set, or a visible skip."""
    return tu.find(name, data_dir) or pytest.skip(f"{name} is not in {data_dir}")


def read(path: Path) -> GraphStore:
    return tu.read(tu.parts_of(path))


# ------------------------------------------------------------------ what is read


def test_a_small_folder_by_hand(write: Write) -> None:
    store = read(write())
    assert store.name == "SMALL"
    assert store.node_counts.tolist() == [4, 2]
    assert store.edge_counts.tolist() == [8, 2]
    assert store.edge_index.tolist() == [
        [1, 2, 0, 2, 0, 1, 3, 2, 1, 0],
        [0, 0, 1, 1, 2, 2, 2, 3, 0, 1],
    ]
    assert store.labels.tolist() == [1, 0]
    assert store.label_names == ("-3", "7")
    assert store.num_continuous == 2
    # Two attributes, then one column for each of the labels 2, 3, 4 and 5, though 4 is not used.
    assert store.x[2].tolist() == [3, 4, 0, 0, 0, 1]
    assert store.x[3].tolist() == [-5, 6.25, 0, 1, 0, 0]
    assert store.x.shape == (6, 6)
    # Edge 0-1 has label 1, edge 0-2 label 1, edge 1-2 label 0.
    assert store.edge_attr[:4].argmax(1).tolist() == [1, 1, 1, 0]
    assert store.undirected


def test_self_loops_and_repeats_are_removed_and_the_first_line_keeps_its_label(
    write: Write,
) -> None:
    store = read(
        write(
            A="2, 1\n1, 1\n1, 2\n2, 1\n5, 5\n5, 6\n6, 5\n1, 2\n",
            edge_labels="4\n9\n4\n9\n9\n6\n6\n9\n",
        )
    )
    assert store.edge_index.tolist() == [[1, 0, 1, 0], [0, 1, 0, 1]]
    assert store.edge_counts.tolist() == [2, 2]
    # Columns run from 4 to 9, the labels of the whole file.
    assert store.edge_attr.argmax(1).tolist() == [0, 0, 2, 2]
    assert store.edge_attr.sum(1).tolist() == [1, 1, 1, 1]


def test_graphs_may_have_self_loops_alone(write: Write) -> None:
    store = read(write(A="1, 1\n2, 2\n", edge_labels=None))
    assert store.edge_counts.tolist() == [0, 0]


def test_several_label_columns_and_edge_attributes(write: Write) -> None:
    store = read(
        write(
            node_labels="0, 5\n1, 5\n0, 6\n0, 5\n0, 5\n1, 5\n",
            node_attributes=None,
            edge_labels=None,
            edge_attributes="\n".join(str(k / 4) for k in range(10)),
        )
    )
    assert store.x[:3].tolist() == [[1, 0, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]]
    # The sorted edges 1-0, 2-0, 0-1, 2-1 stand in lines 2, 6, 1 and 4 of the file.
    assert store.edge_attr[:4].flatten().tolist() == [0.25, 1.25, 0.0, 0.75]


def test_graph_attributes_without_labels_are_regression_targets(write: Write) -> None:
    store = read(write(graph_labels=None, graph_attributes="0.5, 1\n-2, 3\n"))
    assert store.task == "regression"
    assert store.y.tolist() == [[0.5, 1.0], [-2.0, 3.0]]


def test_the_folder_may_have_a_raw_folder_or_be_an_archive(write: Write, tmp_path: Path) -> None:
    plain = write()
    raw = write("pyg/SMALL/raw").parent
    fingerprint = read(plain).fingerprint()
    assert read(raw).fingerprint() == fingerprint
    for method, inside in (
        (zipfile.ZIP_STORED, "SMALL/"),
        (zipfile.ZIP_DEFLATED, ""),
        (zipfile.ZIP_BZIP2, "../../elsewhere/"),
        (zipfile.ZIP_LZMA, "SMALL/"),
    ):
        archive = pack(plain, tmp_path / "SMALL.zip", inside, method)
        assert read(archive).fingerprint() == fingerprint
    assert not (tmp_path / "../../elsewhere").exists()


def pack(folder: Path, path: Path, inside: str, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for file in folder.glob("*.txt"):
            archive.write(file, inside + file.name)
            archive.writestr(f"__MACOSX/{inside}._{file.name}", b"\0\1")
    return path


# ------------------------------------------------------------------ against other readers


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "published"),
    [
        # Graphs, nodes, edges, classes; columns of nodes, of these continuous; columns of edges.
        ("ENZYMES", (600, 32.63, 62.14, 6, 21, 18, 0)),
        ("MUTAG", (188, 17.93, 19.79, 2, 7, 0, 4)),
        ("PROTEINS", (1113, 39.06, 72.82, 2, 4, 1, 0)),
        ("IMDB-BINARY", (1000, 19.77, 96.53, 2, 0, 0, 0)),
    ],
)
def test_published_data_sets_equal_what_pyg_makes_of_them(
    name: str, published: Any, tmp_path: Path, data_dir: Path
) -> None:
    path = real(name, data_dir)
    raw = tmp_path / name / "raw"
    raw.mkdir(parents=True)
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.endswith(".txt"):
                (raw / Path(member).name).write_bytes(archive.read(member))
    theirs = TUDataset(str(tmp_path), name, use_node_attr=True, use_edge_attr=True)
    ours = read(path)
    check_statistics(ours, published)
    assert ours.num_continuous == theirs.num_node_attributes
    assert ours.num_outputs == theirs.num_classes
    for one, other in zip(ours.to_pyg(), theirs, strict=True):
        other = other.sort(sort_by_row=False)
        assert one.num_nodes == other.num_nodes
        assert torch.equal(one.edge_index.long(), other.edge_index)
        assert int(one.y) == int(other.y)
        for field in ("x", "edge_attr"):
            assert (field in one) == (field in other)
            if field in other:
                assert torch.equal(one[field], other[field])


def check_statistics(store: GraphStore, published: Any) -> None:
    assert tuple(round(value, 2) for value in store.statistics().values()) == published
    assert store.undirected


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("NCI1", (4110, 29.87, 32.30, 2, 37, 0, 0)),
        ("Mutagenicity", (4337, 30.32, 30.77, 2, 14, 0, 3)),
        ("COIL-DEL", (3900, 21.54, 54.24, 100, 2, 2, 2)),
        # 82 labels are in use, between 1 and 89.
        ("DD", (1178, 284.32, 715.66, 2, 89, 0, 0)),
    ],
)
def test_published_data_sets_have_the_published_statistics(
    name: str, published: Any, data_dir: Path
) -> None:
    check_statistics(read(real(name, data_dir)), published)


def test_random_data_sets_equal_what_pyg_makes_of_them(write: Write, tmp_path: Path) -> None:
    """Sizes, self-loops, repeats, directed edges, labels and attributes at random."""
    rng = np.random.default_rng(0)
    for trial in range(5):
        sizes = rng.integers(1, 9, size=12)
        starts = np.cumsum(sizes) - sizes
        graph = rng.integers(0, len(sizes), size=150)
        pairs = starts[graph, None] + rng.integers(0, sizes[graph, None], size=(150, 2)) + 1
        # The last node has an edge, as PyG finds the number of nodes by it where it must.
        pairs = np.concatenate([pairs, [[sizes.sum(), starts[-1] + 1]]])
        labels = rng.integers(-2, 3, size=(sizes.sum(), 2))
        attributes = rng.normal(size=(sizes.sum(), 3))
        name = f"R{trial}"
        folder = write(
            f"{name}/raw",
            name,
            A=lines(pairs),
            graph_indicator=lines(np.repeat(np.arange(1, len(sizes) + 1), sizes)[:, None]),
            graph_labels=lines(rng.permutation(np.arange(12) % 3)[:, None] * 5 - 1),
            node_labels=lines(labels) if trial % 2 == 0 else None,
            node_attributes=lines(attributes) if trial < 3 else None,
            edge_labels=None,
        )
        theirs = TUDataset(str(tmp_path), name, use_node_attr=True)
        ours = read(folder)
        assert ours.num_continuous == (3 if trial < 3 else 0)
        for number, other in enumerate(theirs):
            one = ours.batch([number])
            assert one.num_nodes == other.num_nodes
            assert torch.equal(one.edge_index, other.sort(sort_by_row=False).edge_index)
            assert int(one.y) == int(other.y)
            if other.x is not None:
                assert torch.equal(one.x, other.x)


def lines(table: Any) -> str:
    return "".join(", ".join(repr(value) for value in row) + "\n" for row in table.tolist())


# ------------------------------------------------------------------ malformed folders


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"graph_labels": None}, ": the file SMALL_graph_labels.txt is missing (there are SMALL_A"),
        ({"A": ""}, "SMALL_A.txt: is empty"),
        ({"edge_labels": "1\n" * 9}, "SMALL_edge_labels.txt: has 9 lines, expected 10"),
        (
            {"A": "1, 2\n\n2, 1.5\n"},
            "line 3: expected 2 comma-separated integers, got '2, 1.5'",
        ),
        ({"A": "1, 2\n2, 1, 4\n"}, "SMALL_A.txt, line 2: expected 2 comma-separated integers"),
        ({"A": "1, 2\n0, 1\n"}, "SMALL_A.txt, line 2: nodes are numbered from 1 to 6"),
        ({"A": "1, 2\n2, 1\n4, 5\n"}, "SMALL_A.txt, line 3: the edge joins two graphs"),
        ({"graph_indicator": "1\n1\n2\n1\n2\n2\n"}, "indicator.txt, line 4: graphs must be num"),
        ({"node_attributes": "1, 2\n1, 1e300\n" + "3, 4\n" * 4}, "line 2: expected finite numbers"),
        ({"node_labels": "0\n" * 5 + "4000000000\n"}, "labels spread over 4000000001 values"),
    ],
)
def test_malformed_folders_are_named(
    write: Write, changes: dict[str, str | None], message: str
) -> None:
    path = write(**changes)
    with pytest.raises(DataError) as caught:
        read(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_folder_with_several_data_sets(write: Write, tmp_path: Path) -> None:
    write("two", "ONE")
    write("two", "OTHER")
    with pytest.raises(DataError, match=r"holds more than one TU data set \(.*ONE, .*OTHER\)"):
        read(tmp_path / "two")
    write("TWO", "TWO")
    write("TWO", "OTHER")
    assert read(tmp_path / "TWO").name == "TWO"


# ------------------------------------------------------------------ the cache


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which data sets were read from text, in order."""
    names: list[str] = []
    original = tu.read

    def counting(files: Parts) -> GraphStore:
        names.append(files.name)
        return original(files)

    monkeypatch.setattr(tu, "read", counting)
    return names


def test_changed_files_are_read_again_and_replace_the_old_cache(
    write: Write, parsed: list[str], offline: Path
) -> None:
    path = write()
    tu.load(path)
    write(graph_labels="1\n10\n")
    assert tu.load(path).label_names == ("1", "10")
    os.utime(path / "SMALL_A.txt", ns=(1, 1))
    tu.load(path)
    assert parsed == ["SMALL"] * 3
    assert len(list(offline.rglob("*.safetensors"))) == 1
    # One of the same name elsewhere has a file of its own.
    assert tu.load(write("elsewhere/SMALL")).label_names == ("-3", "7")
    assert tu.load(path).label_names == ("1", "10")
    assert parsed == ["SMALL"] * 4


def test_a_cache_that_cannot_be_written_is_no_error(
    write: Write, offline: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # A file where the folder should be stops everybody, also those who may write everywhere.
    offline.write_text("in the way")
    with caplog.at_level(logging.WARNING):
        assert len(tu.load(write())) == 2
    assert "data set SMALL is not cached" in caplog.text


# ------------------------------------------------------------------ finding and downloading


def test_where_a_data_set_is_found(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write("elsewhere")
    root = tmp_path / "root"
    # From the last resort to the first choice.
    folder_in_tu = write("root/tu/SMALL")
    assert tu.find("SMALL", root) == folder_in_tu
    archive = pack(folder, root / "SMALL.zip", "SMALL/")
    assert tu.find("SMALL", root) == archive
    write("root/SMALL", "OTHER")
    assert tu.find("SMALL", root) == archive  # a folder with other files is no data set
    write("root/SMALL", A=None)
    assert tu.find("SMALL", root) == root / "SMALL"  # what lacks a file is malformed, not absent

    assert tu.find("SMALL") is None
    monkeypatch.setenv("GRAPH_TRANSPLANT_DATA", str(root))
    assert tu.find("SMALL") == root / "SMALL"
    assert tu.find("SMALL", write("first/SMALL").parent) == tmp_path / "first" / "SMALL"


def test_offline_the_message_says_what_to_do(tmp_path: Path, offline: Path) -> None:
    with pytest.raises(DataError) as caught:
        tu.download("NCI-H23")
    message = str(caught.value)
    assert f"could not be downloaded from {TUDataset.url}/NCI-H23.zip" in message
    assert f"NCI-H23/ and NCI-H23.zip, directly and in tu/, in: {offline}" in message
    assert "save it as NCI-H23.zip in one of these folders" in message
    assert not list(tmp_path.rglob("*.zip"))
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="`root` must be a folder"):
        tu.download("NCI-H23", tmp_path / "file")
