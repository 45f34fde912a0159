"""networkx graphs as stores, against PyG's own conversion."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.utils import from_networkx as pyg_from_networkx

from graph_transplant.data import Featurizer
from graph_transplant.datasets import duplicate_groups, load, stream
from graph_transplant.datasets.duplicates import structure_keys
from graph_transplant.datasets.networkx import from_networkx
from graph_transplant.datasets.rows import TargetCodec
from graph_transplant.errors import DataError, GraphTransplantError


def random_graphs(count: int = 8, *, directed: bool = False) -> list[Any]:
    rng = np.random.default_rng(5)
    graphs = []
    for number in range(count):
        graph = nx.gnp_random_graph(6 + number, 0.4, seed=number, directed=directed)
        for node in graph.nodes:
            graph.nodes[node]["x"] = torch.tensor(rng.normal(size=3), dtype=torch.float32)
        for edge in graph.edges:
            graph.edges[edge]["x"] = torch.tensor(rng.normal(size=2), dtype=torch.float32)
        graphs.append(graph)
    return graphs


@pytest.mark.parametrize("directed", [False, True])
def test_numbers_and_edges_are_those_of_pyg(directed: bool) -> None:
    graphs = random_graphs(directed=directed)
    store = from_networkx(graphs, [n % 2 for n in range(8)])
    assert store.undirected is not directed
    assert store.num_continuous == 3
    for graph, data in zip(graphs, store.to_pyg(), strict=True):
        expected = pyg_from_networkx(graph, ["x"], ["x"]).sort(sort_by_row=False)
        assert torch.equal(data.edge_index, expected.edge_index)
        assert torch.equal(data.x, expected.x)
        assert torch.equal(data.edge_attr, expected.edge_attr)


@pytest.mark.parametrize(
    "value", [[1.0, 2.0], (1, 2), np.array([1, 2]), torch.tensor([1.0, 2.0]), [np.float64(1), 2]]
)
def test_numbers_may_be_of_many_types(value: Any) -> None:
    graph = nx.Graph()
    graph.add_node("a", x=value)
    store = from_networkx([graph, graph], ["one", "two"])
    assert store.x.tolist() == [[1, 2], [1, 2]]


def test_labels_numbers_and_weights_side_by_side() -> None:
    graph = nx.Graph()
    graph.add_node(("a", 1), label="C", x=0.5)
    graph.add_node(("b", 2), label=np.int64(7), x=np.float32(1.5))
    graph.add_edge(("a", 1), ("b", 2), label="single", weight=2)
    other = nx.Graph()
    other.add_node(0, label="N", x=3)
    store = from_networkx([graph, other], [True, False])
    assert store.featurizer == Featurizer(
        "graphs",
        node_labels=("7", "C", "N"),
        node_numbers=1,
        edge_labels=("single",),
        edge_numbers=1,
    )
    assert store.x.tolist() == [[0.5, 0, 1, 0], [1.5, 1, 0, 0], [3, 0, 0, 1]]
    assert store.edge_attr.tolist() == [[2, 1], [2, 1]]
    assert store.y.tolist() == [1, 0]


def test_targets_are_attributes_of_the_graphs_or_given_apart() -> None:
    graphs = [nx.path_graph(2, create_using=nx.Graph) for _ in range(4)]
    for number, graph in enumerate(graphs):
        graph.graph["y"] = ["a", "b"][number % 2]
        graph.graph["dose"] = number + 0.5
    assert from_networkx(graphs).label_names == ("a", "b")
    doses = from_networkx(graphs, target="dose")
    assert (doses.task, doses.y.flatten().tolist()) == ("regression", [0.5, 1.5, 2.5, 3.5])
    for number, graph in enumerate(graphs):
        graph.graph["time"] = 2.5 * number
    several = from_networkx(graphs, target=["dose", "time"])
    assert (several.label_names, several.y[3].tolist()) == (("dose", "time"), [3.5, 7.5])
    # A model reads the same attributes.
    codec = TargetCodec("regression", ("dose", "time"))
    (chunk,) = stream(graphs, featurizer=several.featurizer, codec=codec)
    assert chunk.targets[4] == (3.5, 7.5)
    frame = pd.DataFrame({"dose": [0.5, 1.5, 2.5, 3.5], "time": [0, 2.5, 5, 7.5]})
    given = from_networkx(graphs, frame)
    assert (given.label_names, given.y.tolist()) == (several.label_names, several.y.tolist())
    given = from_networkx(graphs, torch.tensor([[1.0, 0.0], [0.0, float("nan")]] * 2))
    assert given.task == "multilabel"
    assert given.y[0].tolist() == [1, 0]
    assert given.y[1].isnan().tolist() == [False, True]
    assert from_networkx(graphs, np.array([3, 1, 3, 1])).label_names == ("1", "3")
    assert from_networkx(graphs, [1, 2, 3, 4], task="regression").task == "regression"


def labelled(*labels: Any) -> Any:
    graph = nx.path_graph(len(labels))
    nx.set_node_attributes(graph, dict(enumerate(labels)), "label")
    return graph


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (nx.MultiGraph([(0, 1), (0, 1)]), "mine: graph 1: it is a MultiGraph"),
        (labelled("C", None), "mine: graph 1: some of its nodes have no `label`, but others"),
        (nx.path_graph(3), "graph 1: its nodes have 0 numbers and no label; expected"),
    ],
)
def test_the_first_graph_that_does_not_fit_is_an_error(graph: Any, message: str) -> None:
    good = labelled("C", "N")
    with pytest.raises(DataError, match=message):
        from_networkx([good, graph, good, good], [0, 1, 0, 1], name="mine")
    # In a stream it is a problem of its row.
    (chunk,) = stream([good, graph, good, good])
    assert list(chunk.problems) == [2]
    assert chunk.store.rows.number.tolist() == [1, 3, 4]


def test_targets_have_to_fit_the_graphs() -> None:
    path = nx.path_graph(2)
    with pytest.raises(GraphTransplantError, match="`y` must have 2 entries, one per graph; got 1"):
        from_networkx([path, path], [0])
    with pytest.raises(DataError, match="graphs: graph 1: no target"):
        from_networkx([path, path, path], [0, None, 1])
    with pytest.raises(DataError, match="graph 2: it has 2 targets; expected 1"):
        from_networkx([path, path, path], [0, 1, [1, 0]])


def test_graphs_that_differ_in_the_sign_of_zero_are_duplicates() -> None:
    def graph(zero: float) -> nx.Graph:
        made = nx.path_graph(3)
        for node in made:
            made.nodes[node]["x"] = [zero, 1.5]
        for edge in made.edges:
            made.edges[edge]["x"] = zero
        return made

    store = load([graph(0.0), graph(-0.0), graph(1.0)], y=["a", "b", "a"])
    groups = duplicate_groups(store)
    assert groups is not None
    assert groups.tolist() == [0, 0, 1]
    first, second, third = structure_keys(store).tolist()
    assert first == second != third
