"""Slow, plain references, written from the paper: networkx and numpy, one graph at a time.

Nothing here looks at how the package does its work. Graphs are ``networkx.MultiDiGraph`` objects
whose nodes are the numbers of the nodes in the batch and whose edges carry their number in the
batch's edge list, so that what the package says about provenance can be held against them.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import networkx as nx
import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

# ------------------------------------------------------------------ graphs of a batch


def graphs_of(batch: Data) -> list[nx.MultiDiGraph]:
    """The graphs of a batch; an edge's ``number`` is its place in the batch's edge list."""
    segment = batch.batch.tolist()
    graphs = [nx.MultiDiGraph() for _ in range(max(segment) + 1)]
    for node, graph in enumerate(segment):
        graphs[graph].add_node(node)
    for number, (tail, head) in enumerate(batch.edge_index.t().tolist()):
        assert segment[tail] == segment[head]
        graphs[segment[tail]].add_edge(tail, head, number=number)
    return graphs


def is_undirected(batch: Data) -> bool:
    """Whether every edge stands in the list as often as its reverse."""
    edges = [tuple(edge) for edge in batch.edge_index.t().tolist()]
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


# ------------------------------------------------------------------ Algorithm 1


def partial_khop(
    graph: nx.MultiDiGraph, anchors: set[int], ratio: float, keys: np.ndarray
) -> set[int]:
    """Algorithm 1: in step k take p % of N(H), those with the smallest ``keys[k]``."""
    grown, here = set(anchors), set(anchors)
    for step in keys:
        near = neighbours(graph, here)
        take = floor_share(ratio, len(near)) if near else 0
        here = set(sorted(near, key=lambda node: step[node])[:take])
        grown |= here
    return grown


def salient_pool(graph: nx.MultiDiGraph, saliency: np.ndarray, ratio: float) -> set[int]:
    """The top 2R % of the nodes by saliency, which must have no ties."""
    ranked = sorted(graph.nodes, key=lambda node: -saliency[node])
    return set(ranked[: floor_share(2 * ratio, len(ranked))])


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


def transplant(
    source: Part, destination: Part, pairs: list[tuple[int, int]], undirected: bool
) -> Mixed:
    """Algorithm 2, merge: both parts and the new edges, which have the number -1.

    In a directed graph a new edge has one direction; it is entered from source to destination and
    the comparison allows for the other.
    """
    nodes = {(SOURCE, v) for v in source.graph} | {(DESTINATION, v) for v in destination.graph}
    edges: Counter[tuple[Node, Node, int]] = Counter()
    for side, part in ((SOURCE, source), (DESTINATION, destination)):
        for tail, head, number in part.graph.edges(data="number"):
            edges[(side, tail), (side, head), number] += 1
    for u, v in pairs:
        edges[(SOURCE, u), (DESTINATION, v), -1] += 1
        if undirected:
            edges[(DESTINATION, v), (SOURCE, u), -1] += 1
    return Mixed(nodes, edges)


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


def same_content(first: Data, second: Data) -> bool:
    """Whether two batches hold the same fields with the same values and types."""
    if set(first.keys()) != set(second.keys()):
        return False
    for key in first.keys():  # noqa: SIM118 - a Data is not a dict
        one, other = first[key], second[key]
        if isinstance(one, Tensor):
            if one.dtype != other.dtype or not torch.equal(
                torch.nan_to_num(one.detach(), nan=-7.5), torch.nan_to_num(other.detach(), nan=-7.5)
            ):
                return False
        elif one != other:
            return False
    return True


def snapshot(batch: Data) -> Data:
    """A copy that shares no memory with the batch."""
    return batch.clone()


def check_valid_batch(batch: Batch, *, graphs: int, undirected: bool) -> None:
    """Assert all that PyG and a model may rely on."""
    assert isinstance(batch, Batch)
    assert batch.num_graphs == graphs
    segment, ptr = batch.batch, batch.ptr
    assert bool((segment.diff() >= 0).all()), "`batch` is not sorted"
    assert ptr.tolist() == [0, *np.cumsum(np.bincount(segment.numpy(), minlength=graphs)).tolist()]
    assert bool((ptr.diff() > 0).all()), "a graph has no nodes"
    nodes = segment.numel()
    assert batch.num_nodes == nodes
    edge_index = batch.edge_index
    assert edge_index.dtype == torch.long
    assert edge_index.shape[0] == 2
    if edge_index.numel():
        assert int(edge_index.min()) >= 0
        assert int(edge_index.max()) < nodes
    assert torch.equal(segment[edge_index[0]], segment[edge_index[1]]), "an edge crosses graphs"
    for name in ("edge_attr", "edge_weight"):
        if name in batch:
            assert len(batch[name]) == edge_index.shape[1]
            assert bool(torch.isfinite(batch[name]).all())
    if undirected:
        assert is_undirected(batch), "an edge has lost its reverse"
    parts = batch.to_data_list()
    assert len(parts) == graphs
    for number, part in enumerate(parts):
        assert part.num_nodes == int(ptr[number + 1] - ptr[number])
    again = Batch.from_data_list(parts)
    assert same_content(batch, again), "to_data_list() does not round-trip"
