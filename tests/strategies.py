"""Hypothesis strategies: batches of ordinary and of degenerate graphs, and their saliency."""

from __future__ import annotations

import itertools

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.graphs import GraphStore


def generator(seed: int = 0) -> torch.Generator:
    """A seeded generator."""
    return torch.Generator().manual_seed(seed)


# Undirected, directed; simple, and with self-loops and repeated edges.
KINDS = {
    "undirected": {"undirected": True, "simple": True},
    "undirected-multi": {"undirected": True, "simple": False},
    "directed": {"undirected": False, "simple": True},
    "directed-multi": {"undirected": False, "simple": False},
}
SHAPES = ("single", "edgeless", "complete", "random", "parts", "star")


def _pairs(draw: st.DrawFn, shape: str, nodes: int) -> list[tuple[int, int]]:
    """Undirected edges of one graph."""
    every = list(itertools.combinations(range(nodes), 2))
    if shape in ("single", "edgeless") or not every:
        return []
    if shape == "complete":
        return every
    if shape == "star":
        return [(0, leaf) for leaf in range(1, nodes)]
    if shape == "parts":  # two components, the nodes of each numbered at random
        side = draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes))
        return [(u, v) for u, v in every if side[u] == side[v]]
    return draw(st.lists(st.sampled_from(every), unique=True))


@st.composite
def graphs(
    draw: st.DrawFn,
    *,
    directed: bool,
    features: str,
    edge_attr: bool,
    edge_weight: bool,
    label: int,
) -> Data:
    """One graph with a label of its own."""
    shape = draw(st.sampled_from(SHAPES))
    nodes = 1 if shape == "single" else draw(st.integers(1, 7))
    edges = _pairs(draw, shape, nodes)
    if draw(st.booleans()) and edges:
        edges += draw(st.lists(st.sampled_from(edges), max_size=4))  # repeated edges
    loops = draw(st.lists(st.integers(0, nodes - 1), max_size=2))
    if directed:
        turned = [draw(st.sampled_from([(u, v), (v, u)])) for u, v in edges]
        listed = turned + [(v, v) for v in loops]
    else:
        listed = [e for u, v in edges for e in ((u, v), (v, u))] + [(v, v) for v in loops]
    listed = draw(st.permutations(listed))
    edge_index = torch.tensor(listed, dtype=torch.long).reshape(-1, 2).t().contiguous()
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    x = torch.randn(nodes, 3, generator=generator)
    data = Data(edge_index=edge_index, y=torch.tensor([label]))
    if features == "none":
        data.num_nodes = nodes
    else:
        data.x = x * 0 if features == "zero" else x
    # Values that are the same for an edge and its reverse, and tell edges apart.
    code = torch.minimum(edge_index[0], edge_index[1]) * 10 + edge_index.max(0).values
    if edge_attr:
        data.edge_attr = torch.stack((code.float() + 1, torch.full_like(code, label).float()), 1)
    if edge_weight:
        data.edge_weight = (code % 3).float() / 2
    return data


@st.composite
def batches(
    draw: st.DrawFn, *, directed: bool | None = None, max_graphs: int = 4, with_x: bool = False
) -> Batch:
    """A batch of one or more graphs, each with its own class."""
    turned = draw(st.booleans()) if directed is None else directed
    features = draw(st.sampled_from(["random", "zero"] if with_x else ["random", "zero", "none"]))
    edge_attr, edge_weight = draw(st.booleans()), draw(st.booleans())
    count = draw(st.integers(1, max_graphs))
    fields = {"features": features, "edge_attr": edge_attr, "edge_weight": edge_weight}
    items = [draw(graphs(directed=turned, label=label, **fields)) for label in range(count)]
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


def with_x(store: GraphStore, x: Tensor, **settings: object) -> GraphStore:
    """The same graphs with other node features."""
    return GraphStore(
        x=x,
        edge_index=store.edge_index,
        y=store.y,
        node_counts=store.node_counts,
        edge_counts=store.edge_counts,
        edge_attr=store.edge_attr,
        **settings,  # type: ignore[arg-type]
    )


def featured_motifs(graphs: int) -> gt.GraphStore:
    """The motifs with the degrees as node features, for methods that need some."""
    plain = gt.load("motifs", graphs=graphs)
    base = torch.repeat_interleave(plain.node_ptr[:-1], plain.edge_counts)
    degree = torch.bincount(base + plain.edge_index[0], minlength=int(plain.node_counts.sum()))
    one_hot = nn.functional.one_hot(degree.clamp(max=7), 8).float()
    return with_x(plain, one_hot, name="motifs with degrees")


def motifs_for(method: str, graphs: int) -> gt.GraphStore:
    """The motifs as they are, or with features for a method that cannot do without."""
    from graph_transplant.augment import refusal

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
