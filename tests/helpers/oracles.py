"""Slow, plain references, written from the paper: networkx and numpy, one graph at a time.

Nothing here looks at how the package does its work. Graphs are ``networkx.MultiDiGraph`` objects
whose nodes are the numbers of the nodes in the batch and whose edges carry their number in the
batch, so that what the package says about provenance can be held against them.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import networkx as nx
import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graph_transplant.data import GraphBatch
from graph_transplant.data.batch import CODE

# ------------------------------------------------------------------ graphs of a batch


def edges_of(batch: GraphBatch | Data) -> list[tuple[int, int]]:
    """Sender and receiver of every edge, in the batch's order."""
    if isinstance(batch, GraphBatch):
        row = np.repeat(np.arange(batch.num_nodes), np.diff(batch.row_ptr))
        return list(zip(batch.column.tolist(), row.tolist(), strict=True))
    return [(u, v) for u, v in batch.edge_index.t().tolist()]


def graphs_of(batch: GraphBatch | Data) -> list[nx.MultiDiGraph]:
    """The graphs of a batch; an edge's ``number`` is its place in the batch."""
    segment = batch.batch.tolist()
    graphs = [nx.MultiDiGraph() for _ in range(batch.num_graphs)]
    for node, graph in enumerate(segment):
        graphs[graph].add_node(node)
    for number, (tail, head) in enumerate(edges_of(batch)):
        assert segment[tail] == segment[head]
        graphs[segment[tail]].add_edge(tail, head, number=number)
    return graphs


def is_undirected(batch: GraphBatch | Data) -> bool:
    """Whether every edge stands in the list as often as its reverse."""
    edges = edges_of(batch)
    return Counter(edges) == Counter((head, tail) for tail, head in edges)


def neighbours(graph: nx.MultiDiGraph, nodes: set[int]) -> set[int]:
    """N(H): every node with an edge from or to a node of H."""
    near: set[int] = set()
    for node in nodes:
        near |= set(graph.successors(node)) | set(graph.predecessors(node))
    return near


def floor_share(ratio: float, count: int) -> int:
    """max(1, floor(ratio · count)), the product not spoilt by binary fractions."""
    return max(1, math.floor(round(ratio * count, 9)))


# ------------------------------------------------------------------ Algorithm 2


def degree(graph: nx.MultiDiGraph, node: int, undirected: bool) -> int:
    """deg_G(v): edges at v; an undirected edge, which stands in both directions, counts once."""
    return graph.out_degree(node) if undirected else graph.degree(node)


@dataclass(frozen=True)
class Part:
    """An induced subgraph, its candidates U and the degrees D they lost."""

    graph: nx.MultiDiGraph
    candidates: set[int]
    lost: int


def induced(graph: nx.MultiDiGraph, nodes: set[int], undirected: bool) -> Part:
    """Cut ``nodes`` out of ``graph``."""
    part = graph.subgraph(nodes)
    missing = {v: degree(graph, v, undirected) - degree(part, v, undirected) for v in nodes}
    return Part(part, {v for v in nodes if missing[v] > 0}, sum(missing.values()))


SOURCE, DESTINATION = "source", "destination"
Node = tuple[str, int]


@dataclass(frozen=True)
class Mixed:
    """One mixed graph: nodes (side, original number) and edges (tail, head, original number)."""

    nodes: set[Node]
    edges: Counter[tuple[Node, Node, int]]


def transplant(source: Part, destination: Part, pairs: list[tuple[int, int, bool, bool]]) -> Mixed:
    """Algorithm 2, merge: both parts and the new edges, which have the number -1.

    A pair is a source node, a destination node, and whether there is an edge to either of them.
    """
    nodes = {(SOURCE, v) for v in source.graph} | {(DESTINATION, v) for v in destination.graph}
    edges: Counter[tuple[Node, Node, int]] = Counter()
    for side, part in ((SOURCE, source), (DESTINATION, destination)):
        for tail, head, number in part.graph.edges(data="number"):
            edges[(side, tail), (side, head), number] += 1
    for u, v, into_source, into_destination in pairs:
        edges[(DESTINATION, v), (SOURCE, u), -1] += into_source
        edges[(SOURCE, u), (DESTINATION, v), -1] += into_destination
    return Mixed(nodes, +edges)


# ------------------------------------------------------------------ labels


def saliency_share(graph: nx.MultiDiGraph, part: set[int], saliency: np.ndarray) -> float:
    """I(S, V); a graph without any saliency is measured by size."""
    whole = sum(float(saliency[v]) for v in graph)
    if whole == 0.0:
        return len(part) / len(graph)
    return sum(float(saliency[v]) for v in part) / whole


def label_weight(source_share: float, destination_share: float) -> float:
    """λ; one half where neither part carries anything."""
    total = source_share + destination_share
    return source_share / total if total else 0.5


# ------------------------------------------------------------------ dense layers


def dense_adjacency(edge_index: Tensor, weight: Tensor, nodes: int) -> Tensor:
    """Matrix with the weight of the edge from u to v in row v, column u; repeated edges add up."""
    flat = edge_index[1] * nodes + edge_index[0]
    matrix = torch.zeros(nodes * nodes, dtype=weight.dtype).index_add(0, flat, weight)
    return matrix.view(nodes, nodes)


def _normalised(matrix: Tensor, degree_of: Tensor) -> Tensor:
    scale = torch.stack([d**-0.5 if float(d.detach()) > 0 else d * 0 for d in degree_of])
    return scale.unsqueeze(1) * matrix * scale.unsqueeze(0)


def dense_gcn(x: Tensor, matrix: Tensor, theta: Tensor, bias: Tensor) -> Tensor:
    """GCN: self-loops of weight one, d̂ = 1 + d."""
    looped = matrix + torch.eye(len(x), dtype=x.dtype)
    return _normalised(looped, 1 + matrix.sum(1)) @ x @ theta.t() + bias


def dense_gcs(x: Tensor, matrix: Tensor, theta: Tensor, skip: Tensor, bias: Tensor) -> Tensor:
    """GCS: no self-loops, a learned skip connection."""
    return x @ skip.t() + _normalised(matrix, matrix.sum(1)) @ x @ theta.t() + bias


def dense_gin(
    x: Tensor, matrix: Tensor, epsilon: Tensor, first: torch.nn.Linear, second: torch.nn.Linear
) -> Tensor:
    """GIN: a perceptron with one hidden layer on (1 + ε) x + Σ e x."""
    return second(torch.relu(first((1 + epsilon) * x + matrix @ x)))


def dense_gat(
    x: Tensor,
    edge_index: Tensor,
    weight: Tensor,
    theta: Tensor,
    attend_sender: Tensor,
    attend_receiver: Tensor,
    bias: Tensor,
) -> Tensor:
    """GAT, edge by edge: α ∝ e · exp(LeakyReLU(a · [Θx_u ‖ Θx_v])), with self-loops."""
    nodes, heads = len(x), len(attend_sender)
    hidden = (x @ theta.t()).view(nodes, heads, -1)
    edges = [*zip(*edge_index.tolist(), weight, strict=True)]
    edges += [(v, v, weight.new_ones(())) for v in range(nodes)]
    rows = []
    for v in range(nodes):
        for head in range(heads):
            numerator, denominator = 0.0, 0.0
            for tail, target, e in edges:
                if target != v:
                    continue
                score = (attend_sender[head] * hidden[tail, head]).sum()
                score = score + (attend_receiver[head] * hidden[v, head]).sum()
                share = e * torch.exp(torch.nn.functional.leaky_relu(score, 0.2))
                numerator = numerator + share * hidden[tail, head]
                denominator = denominator + share
            rows.append(numerator / denominator)
    return torch.cat(rows).view(nodes, -1) + bias


# ------------------------------------------------------------------ what a valid batch is


def _fields(batch: GraphBatch | Data) -> dict[str, object]:
    if isinstance(batch, Data):
        return {key: batch[key] for key in batch.keys()}  # noqa: SIM118 - a Data is not a dict
    structure = {name: torch.from_numpy(getattr(batch, name)) for name in ("ptr", "row_ptr")}
    return {
        **structure,
        "column": torch.from_numpy(batch.column),
        "symmetric": batch.symmetric,
        "y": batch.y,
        **{f"nodes {name}": value for name, value in batch.nodes.items()},
        **{f"edges {name}": value for name, value in batch.edges.items()},
    }


def same_content(first: GraphBatch | Data, second: GraphBatch | Data) -> bool:
    """Whether two batches hold the same fields with the same values and types."""
    ones, others = _fields(first), _fields(second)
    if ones.keys() != others.keys():
        return False
    for key, one in ones.items():
        other = others[key]
        if isinstance(one, Tensor) and isinstance(other, Tensor):
            if one.dtype != other.dtype or not torch.equal(
                torch.nan_to_num(one.detach(), nan=-7.5), torch.nan_to_num(other.detach(), nan=-7.5)
            ):
                return False
        elif one != other:
            return False
    return True


def assert_valid(batch: GraphBatch, *, classes: bool = True) -> None:
    """Assert all that kernels and models rely on.

    With ``classes``, rows of soft targets are distributions.
    """
    ptr, row_ptr, column = batch.ptr, batch.row_ptr, batch.column
    for array in (ptr, row_ptr, column):
        assert array.dtype == np.int64
        assert array.ndim == 1
        assert array.flags.c_contiguous
    assert ptr[0] == row_ptr[0] == 0
    assert (np.diff(ptr) > 0).all(), "a graph has no nodes"
    assert ptr[-1] == row_ptr.size - 1
    assert (np.diff(row_ptr) >= 0).all()
    assert row_ptr[-1] == column.size
    row = np.repeat(np.arange(batch.num_nodes), np.diff(row_ptr))
    assert ((column >= 0) & (column < batch.num_nodes)).all()
    assert ((np.diff(column) >= 0) | (np.diff(row) > 0)).all(), "a row does not ascend"
    graph = np.repeat(np.arange(batch.num_graphs), np.diff(ptr))
    assert (graph[row] == graph[column]).all(), "an edge crosses graphs"
    assert all(len(value) == batch.num_nodes for value in batch.nodes.values())
    assert all(len(value) == batch.num_edges for value in batch.edges.values())
    assert all(bool(torch.isfinite(value).all()) for value in batch.edges.values())
    if batch.codes:
        code = batch.nodes[CODE]
        assert bool(((code >= 0) & (code < batch.codes)).all())
    if batch.symmetric:
        # Entries by column, then row, then place: the k-th copy of an edge meets its reverse.
        reverse = np.lexsort((row, column))
        assert (row[reverse] == column).all(), "an edge has lost its reverse"
        assert (column[reverse] == row).all(), "an edge has lost its reverse"
        weight = batch.edges.get("edge_weight")
        assert weight is None or torch.equal(weight, weight[torch.from_numpy(reverse)])
    if batch.y is not None:
        assert len(batch.y) == batch.num_graphs
        if classes and batch.y.is_floating_point() and batch.y.dim() == 2:
            total = batch.y.detach().sum(1)
            assert bool((batch.y >= 0).all())
            torch.testing.assert_close(total, torch.ones_like(total))


def check_valid_batch(batch: GraphBatch | Batch, *, graphs: int, undirected: bool) -> None:
    """Assert all that PyG and a model may rely on."""
    if isinstance(batch, GraphBatch):
        assert_valid(batch, classes=False)
        assert batch.symmetric or not undirected
        batch = batch.to_pyg()
    assert isinstance(batch, Batch)
    assert batch.num_graphs == graphs
    assert batch.num_nodes == len(batch.batch)
    assert bool((batch.ptr.diff() > 0).all()), "a graph has no nodes"
    if undirected:
        assert is_undirected(batch), "an edge has lost its reverse"
    parts = batch.to_data_list()
    assert [part.num_nodes for part in parts] == batch.ptr.diff().tolist()
    assert same_content(batch, Batch.from_data_list(parts)), "to_data_list() does not round-trip"


@contextmanager
def unchanged(module: torch.nn.Module) -> Iterator[None]:
    """Assert that a model keeps its weights, modes and gradients, and torch its generator."""
    state, rng = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    modes = [part.training for part in module.modules()]
    gradients = [copy.deepcopy(parameter.grad) for parameter in module.parameters()]
    yield
    assert all(torch.equal(state[key], value) for key, value in module.state_dict().items())
    assert [part.training for part in module.modules()] == modes
    for before, parameter in zip(gradients, module.parameters(), strict=True):
        same = before is parameter.grad if before is None else torch.equal(before, parameter.grad)
        assert same
    assert torch.equal(torch.get_rng_state(), rng)
