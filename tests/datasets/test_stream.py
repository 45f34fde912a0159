"""Streams of every input: each row once, in order, a graph or a problem."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import pandas as pd
import pytest
import torch
from torch.utils.data import Subset
from torch_geometric.data import Data

from graph_transplant.datasets import Chunk, load, stream
from graph_transplant.datasets.rows import TargetCodec
from graph_transplant.errors import DataError

TU = {
    "A": "1, 2\n2, 1\n3, 4\n4, 3\n",
    "graph_indicator": "1\n1\n2\n2\n3\n",
    "graph_labels": "5\n-1\n5\n",
    "node_labels": "0\n1\n1\n1\n0\n",
}
CSV = "smiles,y,name\nCC,0,a\nO,1,b\nC(,1,c\nCCO,0,d\nN,,e\n"


def lines(count: int) -> str:
    graphs = [
        {"id": f"g{n}", "nodes": [{"label": "CN"[n % 2]}] * (n + 1), "edges": [], "y": n % 2}
        for n in range(count)
    ]
    return "".join(json.dumps(graph) + "\n" for graph in graphs)


def pyg(label: int, nodes: int = 2, features: int = 2) -> Data:
    edges = torch.tensor([[0, 1], [1, 0]])
    return Data(x=torch.full((nodes, features), float(label)), edge_index=edges, y=label)


@pytest.fixture
def place(offline: Path, tmp_path: Path) -> Path:
    (tmp_path / "tiny").mkdir()
    for part, text in TU.items():
        (tmp_path / "tiny" / f"tiny_{part}.txt").write_text(text)
    (tmp_path / "mine.csv").write_text(CSV)
    (tmp_path / "mine.jsonl").write_text(lines(5))
    load("motifs", graphs=6).save(tmp_path / "kept.safetensors")
    return tmp_path


def inputs(place: Path) -> dict[str, tuple[Any, dict[str, Any], int]]:
    """Every kind of input with its options and its number of rows."""
    return {
        "name": ("motifs", {"graphs": 12}, 12),
        "tu": (place / "tiny", {}, 3),
        "store file": (str(place / "kept.safetensors"), {}, 6),
        "store": (load("motifs", graphs=6), {}, 6),
        "table": (place / "mine.csv", {"id": "name"}, 5),
        "lines": (place / "mine.jsonl", {}, 5),
        "pyg": ([pyg(n % 2) for n in range(5)], {}, 5),
        "frame": (pd.read_csv(place / "mine.csv"), {"id": "name"}, 5),
        "texts": (["CC", "O", "C(", "CCO", ""], {}, 5),
        "networkx": ([nx.path_graph(n + 1) for n in range(5)], {}, 5),
    }


KINDS = ("name", "tu", "store file", "store", "table", "frame", "texts", "lines", "pyg", "networkx")


def check(chunks: Sequence[Chunk], first: int, rows: int) -> None:
    """Every row from ``first`` on stands in one chunk, as a graph or as a problem."""
    number = first
    for chunk in chunks:
        assert chunk.first == number
        assert len(chunk.ids) == len(chunk.texts) == len(chunk)
        expected = set(range(number, number + len(chunk)))
        read: list[int] = []
        if chunk.store is not None:
            read = chunk.store.rows.number.tolist()
            assert len(read) == len(chunk.store)
            assert read == sorted(read)
            assert chunk.store.rows.ids == tuple(chunk.ids[n - number] for n in read)
            assert chunk.store.rows.texts == tuple(chunk.texts[n - number] for n in read)
        assert set(read) | set(chunk.problems) == expected
        assert not set(read) & set(chunk.problems)
        number += len(chunk)
    assert number == rows + 1


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_exactly_once(kind: str, place: Path) -> None:
    data, options, rows = inputs(place)[kind]
    check(list(stream(data, **options)), 1, rows)
    chunks = list(stream(data, rows_per_chunk=2, **options))
    check(chunks, 1, rows)
    assert all(len(chunk) == 2 for chunk in chunks[:-1])
    for store in (chunk.store for chunk in chunks if chunk.store is not None):
        assert (store.task, store.num_outputs) == ("multiclass", 1)
        assert not store.y.any()
    check(list(stream(data, rows_per_chunk=2, skip_rows=2, **options)), 3, rows)
    assert not list(stream(data, rows_per_chunk=2, skip_rows=99, **options))


@pytest.mark.parametrize("kind", ["name", "tu", "store file", "store", "lines", "pyg"])
def test_the_graphs_are_those_of_load(kind: str, place: Path) -> None:
    data, options, _ = inputs(place)[kind]
    whole = load(data, **options)
    codec = TargetCodec("multiclass", ("y",), whole.output_names)
    chunks = list(stream(data, rows_per_chunk=2, codec=codec, **options))
    parts = [part for chunk in chunks if chunk.store is not None for part in chunk.store.to_pyg()]
    assert len(parts) == len(whole)
    for one, other in zip(parts, whole.to_pyg(), strict=True):
        assert torch.equal(one.edge_index, other.edge_index)
        if whole.num_node_features:
            assert torch.equal(one.x, other.x)
    found = [value for chunk in chunks for value in chunk.targets.values()]
    assert found == [(float(y),) for y in whole.y]


def test_pyg_graphs_need_no_targets_and_are_not_changed() -> None:
    data = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    (chunk,) = stream([data, data], num_continuous=1)
    assert chunk.store.num_continuous == 1
    assert "y" not in data


def test_targets_are_read_with_a_codec(place: Path) -> None:
    pytest.importorskip("rdkit")
    codec = TargetCodec("multiclass", ("y",), ("0", "1"))
    reading = load(place / "mine.csv", target="y").featurizer
    (place / "new.csv").write_text("smiles,y\nC,1\nCC,1\nN,\nO,5\n")
    ones = [nx.Graph(nx.path_graph(2), y=1), nx.path_graph(2)]
    for data, arguments, targets in (
        (
            place / "new.csv",
            {"featurizer": reading},
            [(1.0,), (1.0,), "no target", "`y` must be one of 0, 1; got '5'"],
        ),
        (place / "new.csv", {}, [(1.0,), (1.0,), "no target", "`y` must be one of 0, 1; got '5'"]),
        (ones, {}, [(1.0,), "no target"]),
        ([pyg(1), pyg(1)], {}, [(1.0,), (1.0,)]),
        ([Data(x=torch.ones(1, 1), edge_index=torch.empty(2, 0))], {}, []),
        (["C", "CC"], {}, ["no target"] * 2),
    ):
        (chunk,) = stream(data, codec=codec, **arguments)
        assert list(chunk.targets.values()) == targets
        # A row without a target is a graph nevertheless.
        assert not chunk.problems
    with pytest.raises(DataError, match="there are no graphs"):
        list(stream(Subset([pyg(1)], []), codec=codec))
    # Targets that are none of the model's are unknown.
    for odd in ("a", torch.empty(0), torch.tensor(-1), torch.tensor(0.5), torch.tensor(2)):
        graph = pyg(1)
        graph.y = odd
        (chunk,) = stream([graph], codec=codec)
        assert not chunk.targets


# ------------------------------------------------------------------ what does not fit a model


def test_data_of_another_kind_than_the_model(place: Path) -> None:
    pytest.importorskip("rdkit")
    molecules = load(place / "mine.csv", target="y").featurizer
    graphs = load(place / "mine.jsonl").featurizer
    lines, table = place / "mine.jsonl", place / "mine.csv"
    for data, featurizer, trained, holds in (
        (lines, molecules, "molecules", f"{lines} holds graphs"),
        (table, graphs, "graphs", f"{table} holds molecules"),
        ([nx.path_graph(2)], molecules, "molecules", "the list holds graphs"),
        (["CCO"], graphs, "graphs", "the list holds molecules"),
        (load(lines), molecules, "molecules", "mine holds graphs"),
    ):
        with pytest.raises(DataError) as caught:
            stream(data, featurizer=featurizer)
        assert str(caught.value).startswith(f"the model was trained on {trained}")
        assert holds in str(caught.value)


def test_a_store_with_other_features_than_the_model(place: Path) -> None:
    store = load(place / "mine.jsonl")
    # Where something stood in the file, and what was not read of it, does not matter.
    elsewhere = replace(store.featurizer, targets=("other",), id="name", smiles="m", directed=True)
    assert len(list(stream(store, featurizer=elsewhere))) == 1
    with pytest.raises(DataError, match=r"mine: .* other features \(.*\) than those of the model"):
        stream(store, featurizer=replace(store.featurizer, node_labels=("C",)))
    # Of a store that does not say how it was read, only widths can be compared, by the model.
    assert len(list(stream(load("motifs", graphs=6), featurizer=store.featurizer))) == 1
