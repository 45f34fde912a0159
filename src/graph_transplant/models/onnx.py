"""Export of trained models to ONNX, for use without PyTorch.

torch's exporter can trace neither the batch, which is on the host, nor the sparse product. It gets
the same network over an edge list instead, with scatter operations for sums.
"""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from graph_transplant import __version__
from graph_transplant.errors import GraphTransplantError
from graph_transplant.models.model import TrainedModel
from graph_transplant.models.uncertainty import members_of, pooled
from graph_transplant.nn.inputs import FeatureInput
from graph_transplant.utils.files import replace_file, writing

# The first opset in which scatter can compute a maximum.
_OPSET: Final = 18


def to_onnx(model: TrainedModel, path: str | Path) -> None:
    """Write a trained model as an ONNX file with the same outputs as its ``predict``.

    The inputs are fields of a PyG ``Batch``, with any number of graphs, nodes and edges:

    - ``x``, float ``[nodes, features]``; only if the model uses node features,
    - ``edge_index``, int64 ``[2, edges]``,
    - ``edge_attr``, float ``[edges, features]``; only if the model uses edge features,
    - ``batch``, the graph of every node, int64 ``[nodes]``,
    - ``ptr``, the offsets of the graphs in the nodes, int64 ``[graphs + 1]``.

    The output ``outputs``, float ``[graphs, outputs]``, has calibrated probabilities, or for
    regression values in the units of the data. The file's metadata hold the task, label names and
    featurizer as JSON. With random-walk features (recipe ``strong``), memory grows quadratically
    with the nodes per call: pass about a hundred molecules at a time. Requires the extra ``onnx``.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError:
        raise GraphTransplantError(
            'writing ONNX files needs more packages: pip install "graph-transplant[onnx]"'
        ) from None
    given = _sample(model)
    nodes, edges, offsets = (torch.export.Dim(name) for name in ("nodes", "edges", "offsets"))
    shapes = {
        "edge_index": {1: edges},
        "batch": {0: nodes},
        "ptr": {0: offsets},
        "x": {0: nodes},
        "edge_attr": {0: edges},
    }
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)  # it reports missing optional libraries
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                _Portable(model).eval(),
                kwargs=given,
                dynamo=True,
                opset_version=_OPSET,
                input_names=list(given),
                output_names=["outputs"],
                dynamic_shapes={name: shapes[name] for name in given},
                verbose=False,
            )
    finally:
        log.setLevel(level)
    assert program is not None
    proto = program.model_proto
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "graphs"
    for part in (*proto.graph.node, *proto.graph.value_info, *proto.graph.input):
        del part.metadata_props[:]  # source locations on this machine
    described = {
        "task": model.task,
        "label_names": list(model.label_names),
        "featurizer": None if model.featurizer is None else model.featurizer.to_dict(),
        "version": __version__,
    }
    onnx.helper.set_model_props(proto, {key: json.dumps(value) for key, value in described.items()})
    onnx.checker.check_model(proto, full_check=True)
    with writing(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        replace_file(Path(path), proto.SerializeToString(deterministic=True))


def _sample(model: TrainedModel) -> dict[str, Tensor]:
    features, edge_features = model.widths
    given = {
        "edge_index": torch.tensor([[0, 1, 1, 2, 3, 4, 4, 5], [1, 0, 2, 1, 4, 3, 5, 4]]),
        "batch": torch.tensor([0, 0, 0, 1, 1, 1]),
        "ptr": torch.tensor([0, 3, 6]),
    }
    if features:
        given["x"] = torch.zeros(6, features)
    if edge_features:
        given["edge_attr"] = torch.zeros(8, edge_features)
    return given


class _Portable(nn.Module):
    """A trained model over the fields of a PyG batch, in operations that ONNX supports."""

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        self.members = nn.ModuleList(copy.deepcopy(members_of(model.network))).cpu().float()
        self.temperature, self.scale, self.task = float(model.temperature), model.scale, model.task

    def forward(
        self,
        edge_index: Tensor,
        batch: Tensor,
        ptr: Tensor,
        x: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        each = [_logits(one, edge_index, batch, ptr, x, edge_attr) for one in self.members]
        logits = pooled(torch.stack(each), self.task)
        if self.scale is not None:
            return logits * self.scale.std.float() + self.scale.mean.float()
        logits = logits / self.temperature
        return logits.softmax(1) if self.task == "multiclass" else logits.sigmoid()


def _logits(
    network: Any,
    edge_index: Tensor,
    batch: Tensor,
    ptr: Tensor,
    x: Tensor | None,
    edge_attr: Tensor | None,
) -> Tensor:
    """Compute the same logits as `GraphClassifier.run`."""
    inputs, (sender, receiver) = network.inputs, (edge_index[0], edge_index[1])
    if edge_attr is not None:
        edge_attr = (edge_attr - network.edge_mean) / network.edge_std
    if isinstance(inputs, FeatureInput):
        assert x is not None
        known = inputs.mean.numel()
        x = torch.cat(((x[:, :known] - inputs.mean) / inputs.std, x[:, known:]), dim=1)
    else:
        degree = _degree(receiver, batch).clamp(max=inputs.features - 1)
        x = degree.eq(torch.arange(inputs.features)).float()
    x = network.encoder(x)
    if network.walks is not None:
        walks = _walks(network.walk, sender, receiver, batch)
        x = x + nn.functional.linear(walks, network.walks.weight)
    x = network.mixing(x)
    encoded = isinstance(network.encoder, nn.Linear)
    layers = []
    for number, layer in enumerate(network.convolutions):
        passed = _LAYERS[network.conv](layer, x, sender, receiver, edge_attr)
        active = network.norms[number](passed).relu()
        x = x + active if network.residual and (encoded or number) else active
        layers.append(x)
    read = [
        _readout(kind, nodes, batch, ptr)
        for nodes in (layers if network.jumping else layers[-1:])
        for kind in network.readout_kind.split("-")
    ]
    return cast(Tensor, network.head(torch.cat(read, dim=1)))


def _sums(values: Tensor, index: Tensor, rows: int) -> Tensor:
    # Scatter elements, not rows: runtimes may scatter rows in parallel and lose updates.
    where = index.unsqueeze(1).expand(-1, values.shape[1])
    return values.new_zeros(rows, values.shape[1]).scatter_add(0, where, values)


def _largest(values: Tensor, index: Tensor, rows: int) -> Tensor:
    where = index.unsqueeze(1).expand(-1, values.shape[1])
    lowest = values.new_full((rows, values.shape[1]), torch.finfo(torch.float32).min)
    return lowest.scatter_reduce(0, where, values, "amax")


def _degree(receiver: Tensor, nodes: Tensor) -> Tensor:
    """In-degree of every node, float ``[nodes, 1]``."""
    return _sums(torch.ones(receiver.shape[0], 1), receiver, nodes.shape[0])


def _walks(steps: int, sender: Tensor, receiver: Tensor, nodes: Tensor) -> Tensor:
    """Return probabilities of random walks after 1, 2, … steps, float ``[nodes, steps]``."""
    number = torch.arange(nodes.shape[0])
    start = number.unsqueeze(1).eq(number).float()
    share = _degree(receiver, nodes).clamp(min=1).reciprocal()
    there, back = start, []
    for _ in range(steps):
        there = _sums(there[sender], receiver, nodes.shape[0]) * share
        back.append((there * start).sum(1))
    return torch.stack(back, dim=1)


def _readout(kind: str, nodes: Tensor, batch: Tensor, ptr: Tensor) -> Tensor:
    graphs = ptr.shape[0] - 1
    counts = (ptr[1:] - ptr[:-1]).unsqueeze(1)
    if kind == "max":
        return torch.where(counts > 0, _largest(nodes, batch, graphs), 0.0)
    total = _sums(nodes, batch, graphs)
    return total if kind == "sum" else total / counts.clamp(min=1)


def _gcn(layer: Any, x: Tensor, sender: Tensor, receiver: Tensor, attr: Tensor | None) -> Tensor:
    scale = (_degree(receiver, x) + 1).rsqrt()
    scaled = x * scale
    received = (_sums(scaled[sender], receiver, x.shape[0]) + scaled) * scale
    return cast(Tensor, layer.linear(received))


def _gcs(layer: Any, x: Tensor, sender: Tensor, receiver: Tensor, attr: Tensor | None) -> Tensor:
    degree = _degree(receiver, x)
    scale = torch.where(degree > 0, degree.clamp(min=1).rsqrt(), 0.0)
    received = _sums((x * scale)[sender], receiver, x.shape[0]) * scale
    return cast(Tensor, layer.skip(x) + layer.linear(received))


def _gin(layer: Any, x: Tensor, sender: Tensor, receiver: Tensor, attr: Tensor | None) -> Tensor:
    messages = x[sender] if attr is None else (x[sender] + layer.edge(attr)).relu()
    summed = _sums(messages, receiver, x.shape[0]) + (1.0 + layer.epsilon) * x
    return cast(Tensor, layer.second(layer.first(summed).relu()))


def _gat(layer: Any, x: Tensor, sender: Tensor, receiver: Tensor, attr: Tensor | None) -> Tensor:
    nodes, (heads, width) = x.shape[0], layer.attend_sender.shape
    hidden = layer.linear(x)
    each = hidden.view(-1, heads, width)
    loops = torch.arange(nodes)
    extra: Tensor | float = 0.0
    if attr is not None:
        # A self-loop has the mean attributes of the incoming edges, or zeros if there are none.
        mean = _sums(attr, receiver, nodes) / _degree(receiver, x).clamp(min=1)
        extra = torch.cat((attr, mean)) @ layer.attend_edge.t()
    sender, receiver = torch.cat((sender, loops)), torch.cat((receiver, loops))
    sent, received = ((each * part).sum(2) for part in (layer.attend_sender, layer.attend_receiver))
    score = leaky_relu(sent[sender] + received[receiver] + extra, 0.2)
    share = (score - _largest(score, receiver, nodes)[receiver]).exp()
    attention = share / _sums(share, receiver, nodes)[receiver]
    messages = hidden[sender] * attention.repeat_interleave(width, dim=1)
    return cast(Tensor, _sums(messages, receiver, nodes) + layer.bias)


_LAYERS: Final[dict[str, Callable[..., Tensor]]] = {
    "gcn": _gcn,
    "gcs": _gcs,
    "gin": _gin,
    "gine": _gin,
    "gat": _gat,
    "gat-edge": _gat,
}
