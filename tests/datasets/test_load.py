"""Data sets by name or by path, and the catalogue of known names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data, InMemoryDataset

from graph_transplant.config.datasets import cache_folder
from graph_transplant.datasets import catalogue, jsonl, load, tables
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.sklearn import GraphTransplantClassifier

TINY = {
    "A": "1, 2\n2, 1\n3, 4\n4, 3\n",
    "graph_indicator": "1\n1\n2\n2\n",
    "graph_labels": "0\n1\n",
}


@pytest.fixture(autouse=True)
def alone(offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def folder(path: Path, name: str) -> Path:
    path.mkdir(parents=True)
    for part, text in TINY.items():
        (path / f"{name}_{part}.txt").write_text(text)
    return path


def test_a_name_under_root_or_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path / "root" / "MUTAG", "MUTAG")
    assert load("MUTAG", root=tmp_path / "root").name == "MUTAG"
    # A copy on this machine may have any name.
    folder(tmp_path / "root" / "tu" / "mine", "mine")
    assert load("mine", root=str(tmp_path / "root")).name == "mine"
    monkeypatch.setenv("GRAPH_TRANSPLANT_DATA", str(tmp_path / "root"))
    assert load("mine").name == "mine"


def test_a_path_in_the_working_directory_needs_no_separator() -> None:
    folder(Path("tiny"), "tiny")
    assert load("tiny").name == "tiny"
    assert load("./tiny").name == "tiny"
    # The embedded data set keeps its name whatever lies around.
    folder(Path("motifs"), "tiny")
    assert load("motifs", graphs=6).name == "motifs"
    assert load("./motifs").name == "tiny"


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ("ENZIMES", "ENZYMES"),
        ("motif", "motifs"),
        ("IMDB_BINARY", "IMDB-BINARY"),
        ("nothing like it at all", "motifs"),
    ],
)
def test_an_unknown_name_lists_the_known_ones_closest_first(given: str, first: str) -> None:
    with pytest.raises(DataError) as caught:
        load(given)
    message = str(caught.value)
    hint = "" if first == "motifs" != f"{given}s" else f" (did you mean {first!r}?)"
    assert message.startswith(f"unknown data set {given!r}{hint}; known are {first}, ")
    for info in catalogue():
        assert info.name in message
    assert f"Looked for {given}/" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "given",
    [
        "no/such/place",
        "missing.zip",
        "missing.CSV.gz",
        *(f"missing{suffix}" for suffix in (*tables.READERS, *jsonl.SUFFIXES)),
        "../ENZYMES",
        Path("ENZYMES"),
    ],
)
def test_a_path_that_does_not_exist(given: str | Path) -> None:
    with pytest.raises(DataError, match="`data`: there is no file or folder '"):
        load(given)


def test_a_path_that_is_nothing_known(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("1, 2\n")
    message = r"unknown format; expected a TU folder .*\.csv"
    for path in (file, tmp_path / "work"):
        with pytest.raises(DataError, match=message):
            load(path)


@pytest.mark.parametrize(
    ("data", "known"),
    [
        ("motifs", "takes graphs, seed"),
        ("MUTAG", "takes no options"),
        ("some.csv", "takes smiles, id, target, task, largest_fragment"),
        ("some.jsonl", "takes target, id, task"),
    ],
)
def test_unknown_options_are_refused(data: str, known: str) -> None:
    for file in ("some.csv", "some.jsonl"):
        Path(file).write_text("")
    message = f"`smile` does not apply to .*'{data}', which {known}$"
    with pytest.raises(GraphTransplantError, match=message):
        load(data, smile="x")


def test_the_catalogue_says_what_lies_where(tmp_path: Path) -> None:
    entries = catalogue(tmp_path)
    assert [info.name for info in entries][:3] == ["motifs", "typed-motifs", "COLLAB"]
    assert all(info.location is None for info in entries)
    assert {info.source for info in entries} == {"generated", "TUDataset", "OGB"}
    place = folder(tmp_path / "tu" / "DD", "DD")
    assert {info.name: info for info in catalogue(tmp_path)}["DD"].location == place


# ------------------------------------------------------------------ one's own graphs


def pair(label: int, features: int = 2) -> Data:
    edges = torch.tensor([[0, 1], [1, 0]])
    return Data(x=torch.ones(2, features), edge_index=edges, y=torch.tensor([label]))


class Pairs(InMemoryDataset):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.data, self.slices = self.collate([pair(0), pair(1), pair(1)])


def test_pyg_graphs() -> None:
    for graphs in ([pair(0), pair(1), pair(1)], (pair(0), pair(1), pair(1)), Pairs()):
        store = load(graphs)
        assert (len(store), store.y.tolist(), store.name) == (3, [0, 1, 1], "graphs")
    named = load(Pairs(), name="pairs", num_outputs=3, num_continuous=2)
    assert (named.name, named.num_outputs, named.num_continuous) == ("pairs", 3, 2)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ([], {}, "a data frame, a list of SMILES, .* got a list with nothing in it"),
        (np.ones(3), {}, "got a ndarray"),
        (pd.DataFrame({"smiles": ["C", "CC"], 1: [0, 1]}), {"y": "1"}, "column with `target`"),
        ([pair(0)], {"y": [1]}, "`y` does not apply to a list of PyG graphs, which takes name, ta"),
        ([pair(0), "CCO"], {}, "graphs: graph 1 must be a PyG `Data`; got str"),
        ([nx.path_graph(2), 5], {"y": [0, 1]}, "graphs: graph 1: expected a networkx graph"),
    ],
)
def test_objects_that_are_no_graphs(data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        load(data, **options)


def test_rdkit_molecules_must_be_written_as_smiles() -> None:
    chem = pytest.importorskip("rdkit.Chem")
    molecules, y = [chem.MolFromSmiles("CCO")] * 4, [0, 1, 0, 1]
    frame = pd.DataFrame({"ROMol": molecules, "y": y})
    for use in (
        lambda: load(frame["ROMol"], y=y),
        lambda: load(frame, smiles="ROMol", target="y"),
        lambda: GraphTransplantClassifier().fit(molecules, y),
    ):
        with pytest.raises(DataError, match=r"write molecules as SMILES, with Chem\.MolToSmiles"):
            use()


@pytest.mark.parametrize(
    "name", ["x" * 5000, "a/" * 3000, "~nobody-of-this-name/data", "a\0b", "a\nb", "/dev/null"]
)
def test_paths_that_no_system_has(name: str) -> None:
    with pytest.raises(DataError) as caught:
        load(name)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="the folder of Linux")
def test_the_cache_is_where_the_system_keeps_caches_unless_a_variable_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_folder() == tmp_path / "cache"  # GRAPH_TRANSPLANT_CACHE
    monkeypatch.delenv("GRAPH_TRANSPLANT_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "graph-transplant"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "graph-transplant"
