"""Hypothesis strategies: batches of ordinary and of degenerate graphs, and their saliency."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.data import GraphStore


def generator(seed: int = 0) -> torch.Generator:
    """A seeded generator."""
    return torch.Generator().manual_seed(seed)


def draw(seed: int, *shape: int) -> Tensor:
    """Normal numbers in double precision."""
    return torch.randn(shape, generator=generator(seed), dtype=torch.double)


# Undirected, directed; simple, and with self-loops and repeated edges.
KINDS = {
    "undirected": {"undirected": True, "simple": True},
    "undirected-multi": {"undirected": True, "simple": False},
    "directed": {"undirected": False, "simple": True},
    "directed-multi": {"undirected": False, "simple": False},
}


@st.composite
def batches(draw: st.DrawFn, *, max_graphs: int = 4, with_x: bool = False) -> Batch:
    """A batch of one or more small graphs, each with its own class; weights may be zero."""
    flags = st.booleans()
    batch = random_batch(
        generator(draw(seeds())),
        graphs=draw(st.integers(1, max_graphs)),
        undirected=draw(flags),
        simple=draw(flags),
        largest=9,
        edge_attr=draw(flags),
        edge_weight=draw(flags),
    )
    features = draw(st.sampled_from(["random", "zero"] if with_x else ["random", "zero", "none"]))
    items = batch.to_data_list()
    for item in items:
        if "edge_weight" in item:
            item.edge_weight = (2 * item.edge_weight).floor() / 2  # 0, ½ or 1
        if features == "zero":
            item.x = torch.zeros_like(item.x)
        elif features == "none":
            item.num_nodes = len(item.x)
            del item.x
    return Batch.from_data_list(items)


@st.composite
def saliencies(draw: st.DrawFn, nodes: int) -> torch.Tensor:
    """Saliency of so many nodes: none at all, all alike, on one node, or random."""
    kind = draw(st.sampled_from(["zero", "one", "single", "random", "tiny"]))
    if kind == "zero":
        return torch.zeros(nodes)
    if kind == "one":
        return torch.ones(nodes)
    if kind == "single":
        saliency = torch.zeros(nodes)
        saliency[draw(st.integers(0, nodes - 1))] = 2.5
        return saliency
    saliency = torch.rand(nodes, generator=torch.Generator().manual_seed(draw(seeds())))
    return saliency * 1e-38 if kind == "tiny" else saliency


def seeds() -> st.SearchStrategy[int]:
    """Seeds of generators."""
    return st.integers(0, 2**31)


def random_batch(
    generator: torch.Generator,
    *,
    graphs: int = 8,
    undirected: bool = True,
    simple: bool = True,
    largest: int = 14,
    edge_attr: bool = False,
    edge_weight: bool = False,
) -> Batch:
    """A batch of random graphs, graph i of class i, for oracle tests without Hypothesis.

    Not simple means some self-loops and repeated edges.
    """

    def below(limit: int) -> int:
        return int(torch.randint(limit, (), generator=generator))

    items = []
    for label in range(graphs):
        nodes = 1 + below(largest)
        every = list(itertools.combinations(range(nodes), 2))
        density = (0.0, 0.15, 0.3, 0.6, 1.0)[below(5)]
        edges = [e for e in every if float(torch.rand((), generator=generator)) < density]
        loops = []
        if not simple:
            edges += [edges[below(len(edges))] for _ in range(min(len(edges), below(4)))]
            loops = [below(nodes) for _ in range(below(3))]
        if undirected:
            listed = [pair for u, v in edges for pair in ((u, v), (v, u))]
        else:
            listed = [(u, v) if below(2) else (v, u) for u, v in edges]
        listed += [(v, v) for v in loops]
        order = torch.randperm(len(listed), generator=generator).tolist()
        edge_index = torch.tensor([listed[i] for i in order], dtype=torch.long)
        edge_index = edge_index.reshape(-1, 2).t().contiguous()
        data = Data(
            x=torch.randn(nodes, 3, generator=generator),
            edge_index=edge_index,
            y=torch.tensor([label]),
        )
        if edge_attr:
            data.edge_attr = torch.randn(len(listed), 2, generator=generator)
        if edge_weight:
            low, high = edge_index.min(0).values, edge_index.max(0).values
            table = torch.rand(nodes, nodes, generator=generator) + 0.25
            data.edge_weight = table[low, high]
        items.append(data)
    return Batch.from_data_list(items)


def classifier(outputs: int, **settings: object) -> gt.GraphClassifier:
    """A small network of three features, without dropout."""
    given = {"layers": 2, "hidden": 8, "seed": 0, "dropout": 0.0, **settings}
    return gt.GraphClassifier(3, outputs, **given)  # type: ignore[arg-type]


def with_fields(store: GraphStore, **changes: Any) -> GraphStore:
    """The same graphs with some fields changed."""
    same = ("x", "edge_index", "y", "node_counts", "edge_counts", "edge_attr")
    return GraphStore(**{name: getattr(store, name) for name in same} | changes)


def featured_motifs(graphs: int) -> gt.GraphStore:
    """The motifs with the degrees as node features, for methods that need some."""
    plain = gt.load("motifs", graphs=graphs)
    base = torch.repeat_interleave(plain.node_ptr[:-1], plain.edge_counts)
    degree = torch.bincount(base + plain.edge_index[0], minlength=int(plain.node_counts.sum()))
    one_hot = nn.functional.one_hot(degree.clamp(max=7), 8).float()
    return with_fields(plain, x=one_hot, name="motifs with degrees")


def motifs_for(method: str, graphs: int) -> gt.GraphStore:
    """The motifs as they are, or with features for a method that cannot do without."""
    from graph_transplant.augment import unsupported_reason as refusal

    plain = gt.load("motifs", graphs=graphs)
    model = gt.GraphClassifier.for_data(plain, layers=1, hidden=4)
    return plain if refusal(method, model, plain) is None else featured_motifs(graphs)


def rings_and_stars(
    graphs: int,
    *,
    seed: int,
    name: str,
    y: Tensor | None = None,
    task: str = "multiclass",
    official: Tensor | None = None,
) -> GraphStore:
    """Make graphs of five nodes, rings and stars by turns, with noisy features.

    Without ``y`` the shape is the class.
    """
    generator = torch.Generator().manual_seed(seed)
    nodes = 5
    shape = torch.arange(graphs) % 2
    ring = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
    star = torch.tensor([[0, 0, 0, 0], [1, 2, 3, 4]])
    edges = [torch.cat([part, part.flip(0)], 1) for part in (ring, star)]
    return GraphStore(
        x=torch.rand(nodes * graphs, 3, generator=generator),
        edge_index=torch.cat([edges[kind] for kind in shape.tolist()], 1),
        y=shape if y is None else y,
        node_counts=torch.full((graphs,), nodes),
        edge_counts=torch.tensor([edges[kind].shape[1] for kind in shape.tolist()]),
        task=task,
        official=official,
        name=name,
    )


def graphs_of(batch: Batch) -> list[Data]:
    """The graphs of a batch, without weights, which stores do not keep."""
    graphs = batch.to_data_list()
    for graph in graphs:
        graph.pop("edge_weight", None)
    return graphs
