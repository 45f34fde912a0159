"""ifMixup against dense matrices in numpy, one pair at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest
from torch import Tensor
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.augment.if_mixup import IfMixup, IfMixupPlan, InterpolatedGraphs
from graph_transplant.data import GraphBatch
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.nn.adapter import as_predictor
from helpers.edits import clean_of, mix
from helpers.foreign_models import Foreign
from helpers.oracles import assert_valid, same_content
from helpers.strategies import batches, generator, random_batch, rings_and_stars, seeds

# ------------------------------------------------------------------ the oracle


def dense(graph: Data, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """The matrix e of a graph, filled up to so many nodes, and how many edges are in each place."""
    matrix, count = np.zeros((nodes, nodes)), np.zeros((nodes, nodes), dtype=int)
    for number, (tail, head) in enumerate(graph.edge_index.t().tolist()):
        matrix[tail, head] += float(graph.edge_weight[number]) if "edge_weight" in graph else 1.0
        count[tail, head] += 1
    return matrix, count


def padded(x: Tensor, nodes: int) -> np.ndarray:
    return np.pad(x.numpy(), ((0, nodes - len(x)), (0, 0)))


def check_pair(mixed: Data, one: Data, other: Data, lam: float) -> None:
    """Algorithm 1 on dense matrices: e' = λ e + (1 - λ) e_π, v' = λ v + (1 - λ) v_π."""
    nodes = max(one.num_nodes, other.num_nodes)
    assert mixed.num_nodes == nodes
    if one.x is not None:
        expected = lam * padded(one.x, nodes) + (1 - lam) * padded(other.x, nodes)
        np.testing.assert_allclose(mixed.x.numpy(), expected, atol=1e-5)
    (first, first_count), (second, second_count) = dense(one, nodes), dense(other, nodes)
    found, found_count = dense(mixed, nodes)
    np.testing.assert_allclose(found, lam * first + (1 - lam) * second, atol=1e-5)
    # The edges are those of either graph, each once.
    np.testing.assert_array_equal(found_count, (first_count + second_count > 0).astype(int))
    if one.edge_attr is not None:
        for number, ends in enumerate(mixed.edge_index.t().tolist()):
            total, weight = np.zeros(one.edge_attr.shape[1]), 0.0
            # An edge of which nothing is there still has attributes: those of its graph.
            for graph, share in ((one, max(lam, 1e-30)), (other, max(1 - lam, 1e-30))):
                for place, pair in enumerate(graph.edge_index.t().tolist()):
                    if pair == ends:
                        total += share * graph.edge_attr[place].numpy()
                        weight += share
            np.testing.assert_allclose(mixed.edge_attr[number], total / weight, atol=1e-4)


def check(result: InterpolatedGraphs, batch: GraphBatch, targets: Tensor) -> None:
    assert_valid(result.batch)
    assert result.batch.symmetric == batch.symmetric
    assert set(result.batch.nodes) == ({"x"} if batch.x is not None else set())
    assert set(result.batch.edges) == set(batch.edges) | {"edge_weight"}
    originals, mixed = batch.to_pyg().to_data_list(), result.batch.to_pyg().to_data_list()
    weights = result.label_weight.tolist()
    for number, (source, weight) in enumerate(zip(result.source_of.tolist(), weights, strict=True)):
        check_pair(mixed[number], originals[number], originals[source], 1 - weight)
        expected = (1 - weight) * targets[number] + weight * targets[source]
        torch.testing.assert_close(result.targets[number], expected)
    assert torch.equal(result.batch.y, result.targets)


def interpolated(
    batch: GraphBatch, source_of: np.ndarray, weight: np.ndarray
) -> InterpolatedGraphs:
    return IfMixup().transform(IfMixupPlan(source_of, weight), clean_of(batch))


@given(batches(), seeds(), st.sampled_from([(1.0, 1.0), (20.0, 1.0), (0.02, 0.02)]))
def test_any_batch(data: Batch, seed: int, parameters: tuple[float, float]) -> None:
    batch, untouched = GraphBatch.from_pyg(data), GraphBatch.from_pyg(data.clone())
    result = mix(IfMixup(*parameters), batch, seed)
    assert same_content(batch, untouched)
    targets = torch.eye(batch.num_graphs)
    check(result, batch, targets)
    # One source for all, of which nothing or everything is there.
    source_of, weight = np.zeros_like(result.source_of), np.arange(batch.num_graphs) % 2.0
    check(interpolated(batch, source_of, weight), batch, targets)


@pytest.mark.parametrize("conv", ["gcn", "gcs", "gin", "gat"])
def test_a_graph_mixed_with_itself_is_itself_to_a_model(conv: str) -> None:
    batch = GraphBatch.from_pyg(random_batch(generator(5)))
    model = gt.GraphClassifier(3, 8, conv=conv, hidden=8, dropout=0.0, seed=0)
    weight = np.random.default_rng(0).random(8)
    result = interpolated(batch, np.arange(8), weight)
    torch.testing.assert_close(
        result.outputs(model)[0], model.run(batch).logits, rtol=1e-4, atol=1e-5
    )


def test_weights_keep_type_and_gradient() -> None:
    data = random_batch(generator(2), graphs=3, edge_weight=True)
    data.x, data.edge_weight = data.x.double(), data.edge_weight.double().requires_grad_()
    result = interpolated(GraphBatch.from_pyg(data), np.array([1, 2, 0]), np.full(3, 0.25))
    assert result.batch.x.dtype == result.batch.edge_weight.dtype == torch.double
    (gradient,) = torch.autograd.grad(result.batch.edge_weight.sum(), data.edge_weight)
    torch.testing.assert_close(gradient, torch.ones_like(gradient))  # 3/4 here, 1/4 as a source


# ------------------------------------------------------------------ draws


@pytest.mark.parametrize("parameters", [(), (2.0, 2.0), (1.0, 3.0)])
def test_the_destinations_weight_is_beta_distributed(parameters: tuple[float, ...]) -> None:
    node = Data(x=torch.ones(1, 3), edge_index=torch.empty(2, 0, dtype=torch.long))
    batch = GraphBatch.from_pyg(Batch.from_data_list([node] * 2000))
    drawn = 1 - mix(IfMixup(*parameters), batch, seed=1).label_weight.double()
    assert kstest(drawn.numpy(), "beta", args=parameters or (20.0, 1.0)).pvalue > 1e-4
    assert len(set(drawn.tolist())) > 1900  # one for each pair


def test_models_without_edge_weights_are_refused() -> None:
    store = rings_and_stars(4, seed=0, name="values")
    with pytest.raises(GraphTransplantError, match=r"if-mixup.*values.*edge weights.*edge_weight"):
        IfMixup().check(as_predictor(Foreign()), store)


@pytest.mark.parametrize("field", ["x", "edge_attr"])
def test_whole_numbers_are_refused(field: str) -> None:
    data = random_batch(generator(1), edge_attr=True)
    data[field] = data[field].long()
    with pytest.raises(DataError, match=rf"if-mixup.*`{field}`.*floating-point.*int64"):
        mix(IfMixup(), GraphBatch.from_pyg(data))
