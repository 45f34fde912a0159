"""What tests of edits and of mixing share: graphs, checks that hold for all, and sampling."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.augment import CleanPass
from graph_transplant.augment.base import EditedGraphs
from graph_transplant.augment.pairing import Pairing
from graph_transplant.augment.perturb import Perturbation
from graph_transplant.data import GraphBatch
from graph_transplant.nn import Prediction
from helpers.oracles import assert_valid, edges_of, same_content


def both_ways(*edges: tuple[int, int]) -> Tensor:
    """An edge list with both directions of every edge."""
    listed = [e for u, v in edges for e in ((u, v), (v, u))]
    return torch.tensor(listed, dtype=torch.long).reshape(-1, 2).t().contiguous()


def copies(data: Data, count: int) -> GraphBatch:
    """The same graph many times: one call draws a whole sample."""
    return GraphBatch.from_pyg(Batch.from_data_list([data] * count))


def drawn(augmentation: Perturbation, batch: GraphBatch, seed: int = 0) -> EditedGraphs:
    """The virtual graphs."""
    targets = torch.eye(2)[torch.arange(batch.num_graphs) % 2]
    clean = clean_of(batch, targets)
    return augmentation.transform(
        augmentation.plan(clean, None, np.random.default_rng(seed)), clean
    )


def edited(augmentation: Perturbation, batch: GraphBatch, seed: int = 0) -> EditedGraphs:
    """The virtual graphs, after checks that hold for every edit."""
    before = copy.deepcopy(batch)
    virtual = drawn(augmentation, batch, seed)
    assert same_content(batch, before)
    assert same_content(virtual.batch, drawn(augmentation, batch, seed).batch)
    assert_valid(virtual.batch)
    assert virtual.batch.symmetric == batch.symmetric
    assert virtual.batch.nodes.keys() == batch.nodes.keys()
    assert virtual.batch.edges.keys() == batch.edges.keys()
    graph, new_graph = batch.batch.numpy(), virtual.batch.batch.numpy()
    assert (graph[virtual.node_origin] == new_graph).all()
    # Edges that say where they come from join the same nodes and carry the same values.
    ends, old = edges_of(virtual.batch), edges_of(batch)
    kept = np.flatnonzero(virtual.edge_origin >= 0)
    origin = virtual.edge_origin[kept]
    assert len(np.unique(origin)) == len(origin)
    for new, number in zip(kept, origin, strict=True):
        u, v = ends[new]
        assert (virtual.node_origin[u], virtual.node_origin[v]) == old[number]
    for name, value in batch.edges.items():
        assert torch.equal(virtual.batch.edges[name][kept], value[origin])
    return virtual


def mix(method: gt.Augmentation, batch: GraphBatch, seed: int = 0) -> Any:
    """What a method that needs no prediction makes of a batch, graph i of class i."""
    clean = CleanPass(batch, torch.eye(batch.num_graphs), lambda: pytest.fail("unneeded"))
    model = gt.GraphClassifier(3, 2, hidden=4, layers=1)
    return method(clean, model=model, generator=torch.Generator().manual_seed(seed))


def by_graph(batch: GraphBatch, edges: list[tuple[int, int]]) -> list[Counter[tuple[int, int]]]:
    """Edges of every graph and how often they occur; an undirected one once, as (low, high)."""
    found: list[Counter[tuple[int, int]]] = [Counter() for _ in range(batch.num_graphs)]
    graph = batch.batch.tolist()
    for u, v in edges:
        if not batch.symmetric or u <= v:
            found[graph[u]][u, v] += 1
    return found


def agree(observed: Counter[Hashable], expected: Mapping[Hashable, float]) -> None:
    """A chi-square test of counts against the probabilities of all possible outcomes."""
    assert sum(expected.values()) == pytest.approx(1)
    total = sum(observed.values())
    possible = {k: p * total for k, p in expected.items() if p > 0}
    assert all(possible.get(k) for k in observed)
    if len(possible) > 1:
        assert chisquare([observed[k] for k in possible], [*possible.values()]).pvalue > 1e-4


def uniform(outcomes: Iterable[Hashable]) -> dict[Hashable, float]:
    """The same probability for all outcomes."""
    every = list(outcomes)
    return dict.fromkeys(every, 1 / len(every))


class Fixed(Pairing):
    """Pairs every graph with the source that a test names."""

    def __init__(self, source_of: np.ndarray) -> None:
        super().__init__()
        self.source_of = source_of

    def sources(self, *_: object) -> np.ndarray:
        return self.source_of


def clean_of(
    batch: GraphBatch,
    targets: Tensor | None = None,
    *,
    saliency: np.ndarray | None = None,
    nodes: Tensor | None = None,
) -> CleanPass:
    """A clean pass without a model: graph i of class i, given saliency and node embeddings."""
    targets = torch.eye(batch.num_graphs) if targets is None else targets
    given = np.ones(batch.num_nodes, np.float32) if saliency is None else saliency
    prediction = Prediction(torch.empty(0, 0) if nodes is None else nodes, None, targets, ())
    return CleanPass(batch, targets, prediction, saliency=lambda _: torch.from_numpy(given))


def planned(
    method: gt.Augmentation, clean: CleanPass, source_of: np.ndarray, rng: np.random.Generator
) -> Any:
    """The plan of a mixing method with the given sources."""
    method = copy.copy(method)
    method.pairing = Fixed(source_of)
    return method.plan(clean, None, rng)
