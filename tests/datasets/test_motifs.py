"""The generated data sets: exact motifs, no trivial statistics, the same on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from networkx.algorithms.isomorphism import GraphMatcher
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score

from graph_transplant.data import GraphStore
from graph_transplant.datasets.motifs import MOTIFS, TYPED_MOTIFS, motifs, typed_motifs

# Of the default data set.
SHA256 = "87a9bbdd3e403c221d4ef7518a6d1505436b9d71ef67ec81ccf0d25cfcfc1932"

REFERENCE = {
    "house": nx.house_graph(),
    "five-cycle": nx.cycle_graph(5),
    "six-cycle": nx.cycle_graph(6),
    "star": nx.star_graph(5),
    "grid": nx.grid_2d_graph(3, 3),
    "clique": nx.complete_graph(4),
}


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return motifs()


def as_networkx(store: GraphStore) -> Iterator[tuple[Any, set[int], str]]:
    """Every graph with the nodes of its motif and the name of its class."""
    for number in range(len(store)):
        batch = store.batch([number])
        graph: nx.Graph[int] = nx.Graph()
        graph.add_nodes_from(range(int(batch.num_nodes)))
        graph.add_edges_from(batch.edge_index.t().tolist())
        inside = set(batch.nodes["motif_mask"].nonzero().flatten().tolist())
        yield graph, inside, store.label_names[int(batch.y)]


def test_graphs_are_connected_and_the_marked_nodes_induce_the_motif(store: GraphStore) -> None:
    assert store.undirected
    assert torch.bincount(store.labels).tolist() == [100] * 6
    assert store.label_names == tuple(name for name, _, _ in MOTIFS) == tuple(REFERENCE)
    largest = []
    for number, (graph, inside, name) in enumerate(as_networkx(store)):
        assert GraphMatcher(graph.subgraph(inside), REFERENCE[name]).is_isomorphic(), name
        assert nx.is_connected(graph), number
        assert nx.number_of_selfloops(graph) == 0
        # Neither a loop nor a repeated edge was lost on the way into networkx.
        assert 2 * graph.number_of_edges() == int(store.edge_counts[number])
        assert 16 <= graph.number_of_nodes() <= 32
        base = graph.subgraph(set(graph) - inside)
        largest.append(max(degree for _, degree in base.degree()))
    # Half of the bases are grown by preferential attachment, and have hubs; the others do not.
    assert 0.2 < float(np.mean(np.asarray(largest) >= 7)) < 0.8


def test_trivial_statistics_do_not_give_the_class_away(store: GraphStore) -> None:
    """A forest on nodes, edges, mean degree stays at chance; the degrees alone stay low too."""
    nodes = store.node_counts.numpy()
    edges = store.edge_counts.numpy() / 2
    sizes = np.stack([nodes, edges, 2 * edges / nodes, edges - nodes], axis=1)
    forest = RandomForestClassifier(50, random_state=0)
    accuracy = cross_val_score(forest, sizes, store.labels.numpy(), cv=3).mean()
    # Chance is 0.167; the standard error of an accuracy over 600 graphs is 0.015.
    assert accuracy < 0.167 + 4 * 0.015

    histogram = np.zeros((len(store), 12))
    for number, (graph, _, _) in enumerate(as_networkx(store)):
        for _, degree in graph.degree():
            histogram[number, min(degree, 11)] += 1
    accuracy = cross_val_score(forest, histogram, store.labels.numpy(), cv=3).mean()
    assert accuracy < 0.5


def test_nodes_of_the_motif_lie_anywhere(store: GraphStore) -> None:
    mask = store.node_fields["motif_mask"]
    starts = store.node_ptr[:-1]
    first = mask[starts].float().mean()
    # The share of motif nodes among all nodes, within four standard errors of 600 draws.
    assert abs(first - mask.float().mean()) < 4 * 0.018


def test_a_seed_means_the_same_graphs_on_every_machine(store: GraphStore) -> None:
    """A fixed value: a change here changes a published data set, and every result on it."""
    content = hashlib.sha256()
    for part in (store.node_counts, store.edge_counts, store.field("edge_index"), store.labels):
        content.update(part.numpy().astype("<i4").tobytes())
    content.update(store.node_fields["motif_mask"].numpy().tobytes())
    assert content.hexdigest() == SHA256


def test_a_smaller_data_set_is_the_beginning_of_a_larger_one() -> None:
    small, large = motifs(graphs=30, seed=3), motifs(graphs=60, seed=3)
    assert large.subset(range(30)).fingerprint() == small.fingerprint()
    assert motifs(graphs=30, seed=4).fingerprint() != small.fingerprint()


def test_typed_motifs() -> None:
    """The marked nodes have the shape and the types of their class; sizes say nothing."""
    store = typed_motifs(graphs=400, seed=1)
    assert torch.bincount(store.labels).tolist() == [100] * 4
    assert store.label_names == tuple(name for name, _, _ in TYPED_MOTIFS)
    shapes = {"cycle": nx.cycle_graph(4), "star": nx.star_graph(3)}
    for number, (graph, inside, name) in enumerate(as_networkx(store)):
        types = store.batch([number]).to_pyg().x.argmax(1).tolist()
        assert nx.is_connected(graph)
        assert GraphMatcher(graph.subgraph(inside), shapes[name.split()[0]]).is_isomorphic()
        wanted = [int(word) for word in name.split() if word.isdigit()]
        assert sorted(types[node] for node in inside) == sorted(wanted * 2)
        if name.startswith("cycle"):
            assert all(types[u] != types[v] for u, v in graph.subgraph(inside).edges)
    sizes = np.stack([store.node_counts.numpy(), store.edge_counts.numpy()], axis=1)
    forest = RandomForestClassifier(50, random_state=0)
    accuracy = cross_val_score(forest, sizes, store.labels.numpy(), cv=3).mean()
    assert accuracy < 0.36  # a star has one edge less than a cycle, nothing else
    assert store.subset(range(30)).fingerprint() == typed_motifs(graphs=30, seed=1).fingerprint()
