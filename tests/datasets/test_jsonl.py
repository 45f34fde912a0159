"""Graphs as JSON Lines: what becomes of nodes, edges, labels, numbers and targets."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

from graph_transplant.data import Featurizer
from graph_transplant.datasets import load, stream
from graph_transplant.datasets.rows import TargetCodec
from graph_transplant.errors import DataError


def graph(**changes: Any) -> dict[str, Any]:
    """Return a path of three nodes, of the same kind as all others here."""
    return {
        "nodes": [
            {"id": "a", "label": "C", "x": [0.5, 1]},
            {"id": "b", "label": "N", "x": [1.5, 2]},
            {"id": "c", "label": "C", "x": [2.5, 3]},
        ],
        "edges": [
            {"source": "a", "target": "b", "label": "single", "x": 1.25},
            {"source": "c", "target": "b", "label": "double", "x": 2.5},
        ],
        "y": 0,
        **changes,
    }


def write(path: Path, *lines: Any) -> Path:
    """Write objects, or lines that are texts already."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "graphs.jsonl"


def with_problem(file: Path, line: Any) -> str:
    """Return why a line, the second of four, is left out by `load` and by `stream` alike."""
    write(file, graph(y=0), line, graph(y=1), graph(y=1))
    store = load(file)
    (skipped,) = store.skipped
    assert (skipped.row, store.rows.number.tolist()) == (2, [1, 3, 4])
    codec = TargetCodec("multiclass", ("y",), ("0", "1"))
    (chunk,) = stream(file, codec=codec)
    assert chunk.problems.get(2) or chunk.targets[2] == skipped.reason
    (known,) = stream(file, featurizer=store.featurizer, codec=codec)
    assert list(known.problems) == list(chunk.problems)
    assert "\n" not in skipped.reason
    assert len(skipped.reason) < 300
    return skipped.reason


# ------------------------------------------------------------------ what a line becomes


def test_numbers_come_first_and_labels_become_columns(file: Path) -> None:
    store = load(write(file, graph(id="one"), graph(y=1)))
    # 2 numbers, then C and N.
    assert store.x[:3].tolist() == [[0.5, 1, 1, 0], [1.5, 2, 0, 1], [2.5, 3, 1, 0]]
    assert store.num_continuous == 2
    assert store.edge_index[:, :4].tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    # The number, then double and single; the reverse has the same.
    assert store.edge_attr[:4].tolist() == [[1.25, 0, 1], [1.25, 0, 1], [2.5, 1, 0], [2.5, 1, 0]]
    assert store.undirected
    assert (store.task, store.y.tolist(), store.label_names) == ("multiclass", [0, 1], ("0", "1"))
    assert store.name == "graphs"
    assert store.rows.ids == ("one", "2")
    assert store.rows.texts == ("", "")
    assert store.skipped == ()
    assert store.featurizer == Featurizer(
        "graphs",
        node_labels=("C", "N"),
        node_numbers=2,
        edge_labels=("double", "single"),
        edge_numbers=1,
        targets=("y",),
        id="id",
    )


def test_labels_alone_are_kept_small_and_sorted_as_numbers(file: Path) -> None:
    def dots(*labels: Any) -> dict[str, Any]:
        return {"nodes": [{"label": label} for label in labels], "edges": [], "y": len(labels)}

    store = load(write(file, dots(10, "9"), dots(-1, 10, 9)))
    assert store.featurizer.node_labels == ("-1", "9", "10")
    assert store.field("x").dtype == torch.uint8
    assert store.x.argmax(1).tolist() == [2, 1, 0, 2, 1]
    assert store.num_continuous == 0


@pytest.mark.parametrize("make", [nx.Graph, nx.DiGraph])
def test_what_networkx_writes_is_read(make: Any, file: Path) -> None:
    rng = np.random.default_rng(3)
    graphs = []
    for number in range(6):
        one = nx.gnp_random_graph(7, 0.4, seed=number, directed=make is nx.DiGraph)
        for node in one.nodes:
            one.nodes[node]["x"] = rng.normal(size=2).tolist()
        for source, target in one.edges:
            one.edges[source, target]["weight"] = float(rng.normal())
        one.graph["y"] = ["ring", "star"][number % 2]
        graphs.append(one)
    lines = [
        nx.node_link_data(one, edges="links" if n % 2 else "edges") for n, one in enumerate(graphs)
    ]
    store = load(write(file, *lines))
    assert store.label_names == ("ring", "star")
    for number, one in enumerate(graphs):
        data = store.batch([number])
        weights = nx.to_numpy_array(one, nodelist=sorted(one.nodes))
        found = torch.zeros(7, 7)
        found[data.edge_index[0], data.edge_index[1]] = data.edge_attr[:, 0]
        assert np.allclose(found.numpy(), weights)
        assert np.allclose(data.x.numpy(), [one.nodes[node]["x"] for node in range(7)])
    assert store.undirected is (make is nx.Graph)
    assert store.featurizer.directed is (make is nx.DiGraph)


def test_an_undirected_edge_may_be_given_twice_and_a_loop_is_kept_once(file: Path) -> None:
    first, second = graph()["edges"]
    back = {**first, "source": "b", "target": "a"}
    loop = {**first, "target": "a"}
    lines = [graph(edges=edges) for edges in ([first, second], [first, back, second])]
    store = load(write(file, *lines, graph(edges=[first, second, loop], y=1)))
    assert store.edge_counts.tolist() == [4, 4, 5]
    assert store.undirected
    plain, both = store.to_pyg()[:2]
    assert torch.equal(plain.edge_index, both.edge_index)
    assert torch.equal(plain.edge_attr, both.edge_attr)


def test_a_directed_graph_keeps_its_edges(file: Path) -> None:
    store = load(write(file, graph(directed=True), graph(y=1)))
    assert store.edge_counts.tolist() == [2, 4]
    assert not store.undirected
    # Symmetric edges are undirected, whatever the flag says.
    edges = graph()["edges"]
    swapped = [{**edge, "source": edge["target"], "target": edge["source"]} for edge in edges]
    store = load(write(file, graph(directed=True, edges=edges + swapped), graph(y=1)))
    assert store.undirected
    assert store.featurizer.directed is False


# ------------------------------------------------------------------ targets


@pytest.mark.parametrize(
    ("values", "task", "y", "names"),
    [
        (["toxic", "safe", "toxic"], "multiclass", [0, 1, 0], ("toxic", "safe")),
        ([0.37, 2, -1], "regression", [[0.37], [2], [-1]], ("y",)),
        (
            [[1, 0, None], [None, 1, 1], [0, 0, 0]],
            "multilabel",
            [[1, 0, math.nan], [math.nan, 1, 1], [0, 0, 0]],
            ("y[0]", "y[1]", "y[2]"),
        ),
        ([[0.5, 1], [2, 3], [4, 5]], "regression", [[0.5, 1], [2, 3], [4, 5]], ("y[0]", "y[1]")),
    ],
)
def test_the_task_is_found(
    values: list[Any], task: str, y: list[Any], names: tuple[str, ...], file: Path
) -> None:
    write(file, *(graph(y=value) for value in values))
    store = load(file)
    assert (store.task, store.label_names) == (task, names)
    assert torch.allclose(store.y.double(), torch.tensor(y).double(), equal_nan=True)


def test_targets_and_id_can_have_other_names(file: Path) -> None:
    lines = [graph(name=f"g{n}", a=n % 2, graph={"b": 1}) for n in range(3)]
    store = load(write(file, *lines), target="a,b", id="name")
    assert (store.task, store.label_names) == ("multilabel", ("a", "b"))
    assert store.y.tolist() == [[0, 1], [1, 1], [0, 1]]
    assert store.rows.ids == ("g0", "g1", "g2")
    assert (store.featurizer.targets, store.featurizer.id) == (("a", "b"), "name")
    # A later read takes them as defaults.
    codec = TargetCodec("multilabel", ("a", "b"))
    (chunk,) = stream(file, featurizer=store.featurizer, codec=codec)
    assert chunk.ids == ("g0", "g1", "g2")
    assert [list(row) for row in chunk.targets.values()] == store.y.tolist()
    with pytest.raises(DataError, match="`target` and `id` must not be 'nodes'"):
        load(file, target="nodes")


def without_y(**entries: Any) -> dict[str, Any]:
    line = graph(**entries)
    del line["y"]
    return line


def test_a_target_that_no_graph_has_is_told_with_those_there_are(file: Path) -> None:
    write(file, without_y(toxic=1, id="a"), without_y(toxic=0, graph={"name": "b"}))
    message = "no graph has the target 'y'; name another with `target`: there are 'name', 'toxic'$"
    with pytest.raises(DataError, match=message):
        load(file)


def test_targets_are_read_with_the_codec_of_a_model(file: Path) -> None:
    store = load(write(file, *(graph(y=y) for y in ("safe", "toxic", "safe"))))
    codec = TargetCodec("multiclass", ("y",), ("safe", "toxic"))
    write(file, *(graph(y=y) for y in ("Toxic", "odd", None, "-", [1, 2], "toxic")))
    (chunk,) = stream(file, featurizer=store.featurizer, codec=codec)
    assert len(chunk.store) == 6
    assert chunk.targets == {
        1: (1.0,),
        2: "`y` must be one of safe, toxic; got 'odd'",
        3: "no target",
        4: "no target ('-' counts as missing)",
        5: "it has 2 targets; expected 1",
        6: (1.0,),
    }


# ------------------------------------------------------------------ problems of a line


def nested(depth: int) -> str:
    return '{"nodes": ' + "[" * depth + "]" * depth + "}"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "it is not JSON: Expecting property name enclosed in double quotes at character 2"),
        (nested(100_000), "nested too deeply"),
        ('{"y": ' + "9" * 5000 + "}", "a number has too many digits"),
        ('{"id": "\\ud800"}', "a string in it is not valid Unicode"),
        ({"edges": [], "y": 1}, "`nodes` must be a list of objects"),
        (graph(edges=[1]), "`edges` must be a list of objects"),
        (graph(nodes=[], edges=[]), "the graph has no nodes"),
        (graph(multigraph=True), "it is a multigraph"),
        (graph(nodes=[{"id": [1]}]), "`id`, `source` and `target` must be a string or a number"),
        (graph(edges=[{"source": "a"}]), "an edge joins None, but there is no such node"),
        (graph(y=None), "no target"),
        (graph(y={}), "the target must be a string, a number or a list of them; got {}"),
        (graph(y=[1, 0]), "it has 2 targets; expected 1"),
    ],
)
def test_a_line_that_is_no_graph(line: Any, reason: str, file: Path) -> None:
    assert reason in with_problem(file, line)


def changed(what: str, number: int, **attributes: Any) -> dict[str, Any]:
    """Return a graph with one node or edge changed; ``None`` takes an attribute away."""
    line = graph()
    line[what][number] = {
        key: value
        for key, value in {**line[what][number], **attributes}.items()
        if value is not None
    }
    return line


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (changed("nodes", 1, id="a"), "every node must have a unique `id`; got 'a'"),
        (changed("nodes", 1, label=None), "some of its nodes have no `label`, but others"),
        (changed("nodes", 1, label=1.5), "every `label` must be a string or an integer; got 1.5"),
        (changed("nodes", 2, x=[1]), "all nodes must have the same number of values in `x`"),
        (
            changed("nodes", 2, x=[1, "2"]),
            "the `x` of its nodes must be finite numbers that fit in float32",
        ),
        (changed("nodes", 2, x=[1, 1e39]), "finite numbers that fit in float32"),
        (changed("nodes", 2, x=[10**400, 1]), "finite numbers that fit in float32"),
        (changed("edges", 1, source="a"), "the edge 'a', 'b' is given twice"),
        (changed("edges", 1, source="b", target="a"), "in both directions with different"),
        (graph(nodes=[{"id": n, "label": "X"} for n in "abc"]), "0 numbers and a label; expected"),
        (graph(edges=[{"source": "a", "target": "b", "label": "single"}]), "its edges have 0"),
    ],
)
def test_a_graph_that_cannot_be_used(line: Any, reason: str, file: Path) -> None:
    assert reason in with_problem(file, line)
    # Also where it comes first; labels that it alone has take no column.
    store = load(write(file, line, graph(), graph(y=1)))
    assert [item.row for item in store.skipped] == [1]
    assert store.featurizer.node_labels == ("C", "N")


def test_a_graph_without_edges_fits_all(file: Path) -> None:
    store = load(write(file, graph(edges=[]), graph(y=1)))
    assert store.edge_counts.tolist() == [0, 4]
    assert store.num_edge_features == 3


def test_bytes_that_are_not_utf8(file: Path) -> None:
    good = json.dumps(graph()).encode()
    other = json.dumps(graph(y=1)).encode()
    file.write_bytes(b"\n".join([good, b'{"id": "\xff"}', other]))
    store = load(file)
    assert [tuple(item) for item in store.skipped] == [
        (2, "2", "it is not UTF-8: byte 9 of the line")
    ]


def test_labels_that_are_names_are_an_error(file: Path) -> None:
    nodes = [{"label": f"node {n}"} for n in range(1001)]
    lines = [{"nodes": nodes, "edges": [], "y": n} for n in range(2)]
    message = r"graphs\.jsonl: the nodes have 1001 distinct labels, at most 1000 are supported"
    with pytest.raises(DataError, match=message):
        load(write(file, *lines))


# ------------------------------------------------------------------ files


def test_blank_lines_and_a_byte_order_mark_do_not_count_also_in_a_packed_file(file: Path) -> None:
    line, other = json.dumps(graph()), json.dumps(graph(y=1))
    content = b"\xef\xbb\xbf" + f"{line}\r\n\n  \n{other}".encode()
    for text in (content, gzip.compress(content)):
        file.write_bytes(text)
        assert load(file).rows.number.tolist() == [1, 2]


# ------------------------------------------------------------------ streams


def test_what_a_model_does_not_know_is_a_problem(file: Path) -> None:
    featurizer = load(write(file, graph(), graph(y=1))).featurizer
    platinum = changed("nodes", 2, label="Pt")
    long = changed("edges", 0, label="x" * 500)
    (chunk,) = stream(
        write(file, graph(), platinum, long, graph(directed=True)), featurizer=featurizer
    )
    assert chunk.problems == {
        2: "the node label 'Pt' is not among those known: 'C', 'N'",
        3: f"the edge label '{'x' * 40}…' is not among those known: 'double', 'single'",
        4: "it is directed; expected undirected graphs",
    }
    assert len(chunk.store) == 1
