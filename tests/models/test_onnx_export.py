"""Trained models as ONNX files: onnxruntime gives what torch gives, on graphs of any size."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch_geometric.data import Batch, Data

import graph_transplant as gt
from graph_transplant.config.options import READOUTS
from graph_transplant.config.recipes import RECIPES
from graph_transplant.data.targets import TargetScale
from graph_transplant.errors import GraphTransplantError
from graph_transplant.models import TrainedModel
from graph_transplant.models.onnx import to_onnx
from graph_transplant.models.uncertainty import Ensemble
from graph_transplant.nn import CONVOLUTIONS
from helpers.made_up_records import as_trained

pytest.importorskip("onnxscript")

FEATURES, EDGE_FEATURES = 5, 3


def trained(network: gt.GraphClassifier, **changed: Any) -> TrainedModel:
    """A model as if it had been trained: weights are random, dropout must not count."""
    # Larger weights than the initial ones, so that outputs differ between graphs.
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.5).add_(0.05 * torch.randn_like(parameter))
    names = [f"label {k}" for k in range(network.num_outputs)]
    molecules = {"kind": "molecules", "features": "ogb"}
    return replace(as_trained(network.eval(), names, featurizer=molecules), **changed)


def network(conv: str, **settings: Any) -> gt.GraphClassifier:
    edges = EDGE_FEATURES if CONVOLUTIONS[conv].takes_edge_attr else 0
    given: dict[str, Any] = {"hidden": 8, "layers": 1, "edge_features": edges, "seed": 3}
    return gt.GraphClassifier(FEATURES, 3, conv=conv, **{**given, **settings})


def random_graph(nodes: int, edges: int, generator: torch.Generator) -> Data:
    return Data(
        x=torch.randn(nodes, FEATURES, generator=generator),
        edge_index=torch.randint(nodes, (2, edges), generator=generator),
        edge_attr=torch.randn(edges, EDGE_FEATURES, generator=generator),
    )


# Nodes and edges of graphs: alone, edgeless, with repeated edges and loops, many, large.
BATCHES: dict[str, list[tuple[int, int]]] = {
    "one node": [(1, 0)],
    "edgeless": [(3, 0), (2, 0)],
    "loops and repeated edges": [(2, 9), (1, 2)],
    "mixed": [(4, 6), (1, 0), (7, 20), (3, 1)],
    "large": [(400, 3000), (50, 10), *[(5, 8)] * 100],
}


def batch_of(sizes: list[tuple[int, int]]) -> Batch:
    generator = torch.Generator().manual_seed(len(sizes))
    return Batch.from_data_list([random_graph(n, e, generator) for n, e in sizes])


def run(path: Path, batch: Batch) -> torch.Tensor:
    """What onnxruntime says about a batch."""
    session = onnxruntime.InferenceSession(str(path))
    given = {field.name: batch[field.name].numpy() for field in session.get_inputs()}
    (outputs,) = session.run(None, given)
    return torch.from_numpy(outputs)


def check(model: TrainedModel, path: Path, batch: Batch, rtol: float = 1e-4) -> None:
    """Both say the same about a batch."""
    with torch.no_grad():
        expected = model.outputs(model.network.run(batch).logits).float()
    assert torch.allclose(run(path, batch), expected, rtol=rtol, atol=rtol / 10)


# Every kind of layer, of readout and of task has its turn.
CASES = dict(zip(CONVOLUTIONS, cycle(READOUTS), strict=False))


@pytest.mark.parametrize("conv", CONVOLUTIONS)
def test_outputs_are_those_of_torch(conv: str, tmp_path: Path) -> None:
    task = "multilabel" if conv == "gin" else "multiclass"
    model = trained(network(conv, readout=CASES[conv], task=task))
    path = tmp_path / "model.onnx"
    to_onnx(model, path)
    for sizes in BATCHES.values():
        check(model, path, batch_of(sizes))
    outputs = run(path, batch_of(BATCHES["large"]))
    assert (outputs - outputs[0]).abs().max() > 1e-3, "graphs differ"
    # A graph without nodes.
    batch = batch_of(BATCHES["mixed"])
    batch.ptr = torch.cat((batch.ptr, batch.ptr[-1:]))
    outputs = run(path, batch)
    with torch.no_grad():
        logits = model.network(
            batch.x, batch.edge_index, edge_attr=batch.edge_attr, batch=batch.batch, batch_size=5
        )
    assert torch.allclose(outputs, model.outputs(logits).float(), rtol=1e-4, atol=1e-5)


def test_an_ensemble_by_degrees_where_there_are_no_features(tmp_path: Path) -> None:
    store = gt.load("motifs", graphs=24)
    members = [
        trained(gt.GraphClassifier.for_data(store, hidden=8, layers=1, max_degree=3, seed=seed))
        for seed in (0, 1)
    ]
    model = replace(members[0], fitted=Ensemble([member.network for member in members]))
    to_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    assert [field.name for field in session.get_inputs()] == ["edge_index", "batch", "ptr"]
    batch = store.batch(range(24)).to_pyg()
    assert store.max_degree() > 3, "some degrees are beyond the largest one told apart"
    check(model, tmp_path / "model.onnx", batch)


def test_the_file_says_what_it_is_and_standardises_features(tmp_path: Path) -> None:
    mean, std = torch.tensor([100.0, -3.0]), torch.tensor([25.0, 0.01])
    edge_mean, edge_std = torch.tensor([3e5, 0.0, -2.0]), torch.tensor([1e6, 1.0, 0.05])
    model = trained(network("gine", mean=mean, std=std, edge_mean=edge_mean, edge_std=edge_std))
    path = tmp_path / "new" / "model.onnx"
    to_onnx(model, path)
    batch = batch_of(BATCHES["mixed"])
    batch.x[:, :2] = batch.x[:, :2] * std + mean
    batch.edge_attr = batch.edge_attr * edge_std + edge_mean
    check(model, path, batch, rtol=1e-3)
    session = onnxruntime.InferenceSession(str(path))
    shapes = {field.name: field.shape for field in session.get_inputs()}
    assert shapes == {
        "x": ["nodes", FEATURES],
        "edge_index": [2, "edges"],
        "edge_attr": ["edges", EDGE_FEATURES],
        "batch": ["nodes"],
        "ptr": ["offsets"],
    }
    (given,) = session.get_outputs()
    assert (given.name, given.shape) == ("outputs", ["graphs", 3])
    told = session.get_modelmeta().custom_metadata_map
    assert json.loads(told["task"]) == "multiclass"
    assert json.loads(told["label_names"]) == ["label 0", "label 1", "label 2"]
    assert json.loads(told["featurizer"]) == {"kind": "molecules"}
    first = path.read_bytes()
    assert str(Path(__file__).parents[2]).encode() not in first, "no path of this machine"
    to_onnx(model, path)
    assert path.read_bytes() == first
    assert [file.name for file in path.parent.iterdir()] == ["model.onnx"]
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(GraphTransplantError, match=r"cannot write .*model\.onnx"):
        to_onnx(model, tmp_path / "file" / "model.onnx")


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(GraphTransplantError, match=r"graph-transplant\[onnx\]"):
        to_onnx(trained(network("gcs")), tmp_path / "model.onnx")


@pytest.mark.parametrize(("conv", "norm"), [("gcs", "batch"), ("gine", "layer")])
def test_options_of_the_strong_recipe(conv: str, norm: str, tmp_path: Path) -> None:
    options = RECIPES["strong"].network() | {"hidden": 8, "walk": 4, "norm": norm, "jumping": True}
    model = trained(network(conv, layers=2, **options))
    batch = batch_of(BATCHES["mixed"])
    with torch.no_grad():  # running statistics that are not those of the start
        model.network.train().run(batch)
        for parameter in model.network.parameters():
            parameter.add_(0.1)
    model.network.eval()
    to_onnx(model, tmp_path / "model.onnx")
    for sizes in BATCHES.values():
        check(model, tmp_path / "model.onnx", batch_of(sizes))


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_an_ensemble_is_the_mean_of_its_members(task: str, tmp_path: Path) -> None:
    members = [trained(network("gcs", task=task, seed=seed)).network for seed in (1, 2)]
    scale = TargetScale(torch.tensor([10.0, 0.0, -5.0]), torch.tensor([2.0, 1.0, 100.0]))
    more: Any = {"scale": scale, "temperature": 1.0} if task == "regression" else {}
    model = replace(trained(members[0], **more), fitted=Ensemble(members))
    to_onnx(model, tmp_path / "model.onnx")
    check(model, tmp_path / "model.onnx", batch_of(BATCHES["mixed"]))
