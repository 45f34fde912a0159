"""OGB data sets: their tables read in pieces, held against numpy and OGB's own reader."""

from __future__ import annotations

import gzip
import io
import shutil
import sys
import urllib.request
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graph_transplant.data import GraphStore
from graph_transplant.datasets import catalogue, load, ogb
from graph_transplant.datasets import files as places
from graph_transplant.datasets.files import opened
from graph_transplant.errors import DataError

Tables = dict[str, np.ndarray]

WIDTHS = {"ogbg-molhiv": ((119, 5, 12, 12, 10, 6, 6, 2, 2), (5, 6, 2)), "ogbg-ppa": ((), ())}
SPLITS = {"ogbg-molhiv": "scaffold", "ogbg-ppa": "species"}


pytestmark = pytest.mark.usefixtures("offline")


def make_tables(name: str, graphs: int = 12, seed: int = 0) -> Tables:
    """Random tables as OGB lays them out, with an edgeless graph and isolated nodes."""
    random = np.random.default_rng(seed)
    node_counts = random.integers(2, 9, graphs)
    node_counts[3] = 1
    edges, edge_counts = [], []
    for nodes in node_counts:
        pairs = np.stack(np.triu_indices(nodes, 1), 1)
        kept = pairs[random.random(len(pairs)) < 0.4]
        turned = random.random(len(kept)) < 0.5
        kept[turned] = kept[turned, ::-1]
        edges.append(random.permutation(kept))
        edge_counts.append(len(kept))
    total = sum(edge_counts)
    node_widths, edge_widths = WIDTHS[name]
    tables = {
        "raw/num-node-list": node_counts,
        "raw/num-edge-list": np.array(edge_counts),
        "raw/edge": np.concatenate(edges),
        "raw/graph-label": random.integers(0, 37 if name == "ogbg-ppa" else 2, graphs),
    }
    if name == "ogbg-ppa":
        tables["raw/edge-feat"] = random.random((total, 7)).round(3)
    else:
        nodes = int(node_counts.sum())
        tables["raw/node-feat"] = np.stack([random.integers(0, w, nodes) for w in node_widths], 1)
        tables["raw/edge-feat"] = np.stack([random.integers(0, w, total) for w in edge_widths], 1)
    shuffled = random.permutation(graphs)
    for part, chosen in zip(("train", "valid", "test"), np.split(shuffled, [7, 9]), strict=True):
        tables[f"split/{SPLITS[name]}/{part}"] = np.sort(chosen)
    return tables


def text_of(table: np.ndarray) -> str:
    rows = table.reshape(len(table), -1).tolist()
    return "".join(",".join(str(value) for value in row) + "\n" for row in rows)


def write_folder(path: Path, tables: Tables, **texts: str) -> Path:
    """Write tables as packed text; ``texts`` replaces some, by the end of their name."""
    contents = {key: text_of(table) for key, table in tables.items()}
    for end, text in texts.items():
        (key,) = [key for key in contents if key.endswith("/" + end.replace("_", "-"))]
        contents[key] = text
    for key, text in contents.items():
        file = path / f"{key}.csv.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(text.encode()))
    return path


def zipped(folder: Path, target: Path, inside: str) -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, f"{inside}/{file.relative_to(folder).as_posix()}")
    return target


# ------------------------------------------------------------------ reading


def import_ogb(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a module of OGB without its question to the network for a newer version."""
    monkeypatch.setitem(sys.modules, "outdated", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


@pytest.mark.parametrize("name", ["ogbg-molhiv", "ogbg-ppa"])
def test_graphs_are_those_of_ogbs_own_reader(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = import_ogb("ogb.io.read_graph_raw", monkeypatch)
    tables = make_tables(name)
    folder = write_folder(tmp_path / name.replace("-", "_"), tables)
    for piece in (1, 5, 1 << 19):
        monkeypatch.setattr(ogb, "_PIECE_EDGES", piece)
        monkeypatch.setenv("GRAPH_TRANSPLANT_CACHE", str(tmp_path / f"cache-{piece}"))
        store = load(name, root=tmp_path)
        check_against_ogb(store, reader, folder / "raw", len(tables["raw/edge"]))
    assert store.labels.tolist() == tables["raw/graph-label"].tolist()
    for number, part in enumerate(("train", "valid", "test")):
        chosen = (store.official == number).nonzero().flatten().tolist()
        assert chosen == tables[f"split/{SPLITS[name]}/{part}"].tolist()
    assert (store.name, store.undirected, store.path is None) == (name, True, False)
    if name == "ogbg-ppa":
        assert (store.num_outputs, store.num_continuous, store.label_names) == (37, 7, None)
    else:
        assert (store.num_outputs, store.label_names) == (2, ("inactive", "active"))
        # One-hot columns take a byte each.
        assert store.field("x").dtype == torch.uint8


@pytest.mark.parametrize("name", ["ogbg-molhiv", "ogbg-ppa"])
def test_every_place_and_form_gives_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = name.replace("-", "_")
    folder = write_folder(tmp_path / "made" / file, make_tables(name))
    expected = load(folder).fingerprint()
    zipped(folder, tmp_path / f"{file}.zip", "hiv")
    with zipfile.ZipFile(tmp_path / f"{file}.zip", "a") as archive:
        archive.writestr("__MACOSX/hiv/raw/edge.csv.gz", b"what some packers add")
    assert load(tmp_path / f"{file}.zip").fingerprint() == expected
    root = tmp_path / "root"
    (root / "ogb").mkdir(parents=True)
    shutil.copy(tmp_path / f"{file}.zip", root / "ogb")
    assert load(name, root=root).fingerprint() == expected
    assert {i.name: i.location for i in catalogue(root)}[name] == root / "ogb" / f"{file}.zip"
    monkeypatch.setenv("GRAPH_TRANSPLANT_DATA", str(tmp_path / "made"))
    assert load(name).fingerprint() == expected
    # A path with hyphens, as the data set itself is called.
    shutil.copy(tmp_path / f"{file}.zip", tmp_path / f"{name}.zip")
    assert load(tmp_path / f"{name}.zip").fingerprint() == expected


# ------------------------------------------------------------------ bad files


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"num_edge_list": "0\n" * 3}, r"num-edge-list\.csv\.gz: has 3 lines, expected 12"),
        ({"num_node_list": "0\n" + "5\n" * 11}, "num-node-list.*line 1: expected a number from"),
        ({"graph_label": "0\n" * 11 + "37\n"}, "line 12: expected a class from 0 to 36"),
        ({"edge": "0,1\n"}, r"edge\.csv\.gz: has 1 lines, expected at least \d+"),
        ({"edge": "0,77\n" * 99}, r"edge\.csv\.gz, line 1: its graph has no such node"),
        (
            {"edge_feat": "0,0,0,0,0,0,0\n" * 4 + "0,0,inf,0,0,0,0\n" * 99},
            "edge-feat.*line 5: expected finite numbers",
        ),
        ({"train": "0\n12\n"}, "train.*line 2: expected the number of a graph, 0 to 11"),
        ({"train": "0\n1\n0\n"}, "train.*line 3: this graph was listed before"),
        ({"test": "4\n"}, "graph 3 is in none of train"),
    ],
)
def test_bad_tables_are_named(
    texts: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ogb, "_PIECE_EDGES", 5)
    tables = make_tables("ogbg-ppa")
    # Graphs 3 and 4 test, the others train or validate.
    for part, chosen in (("train", range(5, 12)), ("valid", range(3)), ("test", (3, 4))):
        tables[f"split/species/{part}"] = np.array(chosen)
    folder = write_folder(tmp_path / "ogbg_ppa", tables, **texts)
    with pytest.raises(DataError, match=message) as caught:
        load(folder)
    assert str(folder) in str(caught.value)
    # Nothing half-made stays behind.
    assert not list((tmp_path / "cache").rglob("*.*"))


def test_a_missing_table_is_named_and_does_not_spoil_the_catalogue(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "ogbg_molhiv", make_tables("ogbg-molhiv"))
    (folder / "split" / "scaffold" / "valid.csv.gz").unlink()
    message = r"the file split/scaffold/valid\.csv\.gz of ogbg-molhiv is missing"
    with pytest.raises(DataError, match=message):
        load("ogbg-molhiv", root=tmp_path)
    assert {i.name: i.location for i in catalogue(tmp_path)}["ogbg-molhiv"] == folder


def test_an_archive_writes_nowhere_and_is_read_once(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "made" / "ogbg_ppa", make_tables("ogbg-ppa"))
    archive = zipped(folder, tmp_path / "ogbg_ppa.zip", "../../outside")
    before = sorted(tmp_path.rglob("*"))
    store = load(archive)
    cache = tmp_path / "cache"
    assert [p for p in sorted(tmp_path.rglob("*")) if cache not in p.parents] == sorted(
        [*before, cache]
    )
    assert store.fingerprint() == load(folder).fingerprint()
    with zipfile.ZipFile(archive, "a") as more:
        more.writestr("second/raw/edge.csv.gz", b"")
    with pytest.raises(DataError, match=r"holds raw/edge\.csv\.gz more than once \(.*second/raw"):
        load(archive)


# ------------------------------------------------------------------ download


def answer(content: bytes, asked: list[str]) -> Any:
    def urlopen(url: str, timeout: float) -> io.BytesIO:
        asked.append(url)
        return io.BytesIO(content)

    return urlopen


@pytest.mark.parametrize(
    ("name", "address"),
    [("ogbg-molhiv", "csv_mol_download/hiv.zip"), ("ogbg-ppa", "ogbg_ppi_medium.zip")],
)
def test_a_data_set_is_downloaded_once(
    name: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "made" / name.replace("-", "_"), make_tables(name))
    expected = load(folder).fingerprint()
    content = zipped(folder, tmp_path / "served.zip", address.rpartition("/")[2][:-4]).read_bytes()
    asked: list[str] = []
    monkeypatch.setattr(urllib.request, "urlopen", answer(content, asked))
    for _ in range(2):
        assert load(name, root=tmp_path / "root").fingerprint() == expected
    assert [url.endswith(f"/graphproppred/{address}") for url in asked] == [True]
    assert [p.name for p in (tmp_path / "root").iterdir()] == [f"{name.replace('-', '_')}.zip"]
    load(name)  # without a root it goes among the other downloads
    assert len(asked) == 2
    assert (tmp_path / "cache" / "downloads" / f"{name.replace('-', '_')}.zip").is_file()


def test_an_answer_that_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib.request, "urlopen", answer(b"<html>", []))
    message = r"could not be downloaded from http.*not a zip archive.*Looked for ogbg_ppa/ and"
    with pytest.raises(DataError, match=message):
        load("ogbg-ppa", root=tmp_path / "root")
    assert list((tmp_path / "root").iterdir()) == []
    monkeypatch.setattr(places, "_MAX_DOWNLOAD", 3)
    with pytest.raises(DataError, match="larger than 0 GiB, download aborted"):
        load("ogbg-ppa", root=tmp_path / "root")


def check_against_ogb(store: GraphStore, reader: Any, raw: Path, edges: int) -> None:
    graphs = reader.read_csv_graph_raw(str(raw), add_inverse_edge=True)
    assert sum(graph["edge_index"].shape[1] for graph in graphs) == 2 * edges
    assert len(graphs) == len(store)
    for data, graph in zip(store.to_pyg(), graphs, strict=True):
        assert data.num_nodes == graph["num_nodes"]
        order = np.lexsort(graph["edge_index"])
        np.testing.assert_array_equal(data.edge_index.numpy(), graph["edge_index"][:, order])
        if "edge_attr" not in data:
            # Means over the edges that arrive, both directions being there.
            for node in range(data.num_nodes):
                arriving = graph["edge_feat"][graph["edge_index"][1] == node]
                mean = arriving.mean(0) if len(arriving) else np.zeros(7)
                np.testing.assert_allclose(data.x[node].numpy(), mean, rtol=1e-5, atol=1e-7)
            continue
        for found, table, widths in (
            (data.x, graph["node_feat"], WIDTHS["ogbg-molhiv"][0]),
            (data.edge_attr, graph["edge_feat"][order], WIDTHS["ogbg-molhiv"][1]),
        ):
            assert found.sum(1).eq(len(widths)).all() or not len(found)
            for column, block in enumerate(torch.split(found, widths, dim=1)):
                np.testing.assert_array_equal(block.argmax(1).numpy(), table[:, column])


@pytest.mark.data
def test_ogbg_molhiv(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if ogb.find("ogbg-molhiv", data_dir) is None:
        pytest.skip("ogbg-molhiv is not in the data folder")
    store = load("ogbg-molhiv", root=data_dir)
    found = store.statistics()
    info = {info.name: info for info in catalogue(data_dir)}["ogbg-molhiv"]
    assert (found["graphs"], info.graphs, store.num_outputs) == (41127, 41127, 2)
    assert (round(found["mean_nodes"], 2), info.mean_nodes) == (25.51, 25.51)
    assert (round(found["mean_edges"], 2), info.mean_edges) == (27.47, 27.47)
    assert int(store.labels.sum()) == 1443
    assert store.official.bincount().tolist() == [32901, 4113, 4113]
    assert [int(store.labels[store.official == part].sum()) for part in range(3)] == [1232, 81, 130]
    # The first 200 graphs beside OGB's own reader, from tables cut after them.
    reader = import_ogb("ogb.io.read_graph_raw", monkeypatch)
    place = ogb.find("ogbg-molhiv", data_dir)
    nodes, edges = int(store.node_counts[:200].sum()), int(store.edge_counts[:200].sum()) // 2
    counts = {"edge": edges, "edge-feat": edges, "node-feat": nodes}
    counts |= {"num-node-list": 200, "num-edge-list": 200}
    files = ogb.parts_of(place)
    for part, count in counts.items():
        with opened(files.path, files.files[part]) as table:
            kept = b"".join(table.readline() for _ in range(count))
        (tmp_path / f"{part}.csv.gz").write_bytes(gzip.compress(kept))
    check_against_ogb(store.subset(range(200)), reader, tmp_path, edges)
