"""Trained models as ONNX files, for programs without PyTorch.

The file is written operation by operation. torch's own exporter does not see through the sparse
product, which is an autograd function around an embedding bag; and what is written here is
short, the same for every version of torch, and needs the package ``onnx`` alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from graph_transplant import __version__
from graph_transplant.errors import GraphTransplantError
from graph_transplant.files import replace_file
from graph_transplant.models.model import TrainedModel
from graph_transplant.nn import (
    GATConvolution,
    GATEdgeConvolution,
    GCNConvolution,
    GCSConvolution,
    GINConvolution,
    GINEConvolution,
    GraphClassifier,
)
from graph_transplant.nn.inputs import FeatureInput

# The first version of ONNX in which a scatter can take the largest of several values.
_OPSET: Final = 18

# ONNX takes the largest number for "to the end".
_LAST: Final = int(np.iinfo(np.int64).max)

_AFFINE: Final = ("weight", "bias")


def to_onnx(model: TrainedModel, path: str | Path) -> None:
    """Write a trained model as an ONNX file that gives what its ``predict`` gives.

    Its inputs are the fields of a PyG ``Batch`` by name, of any number of graphs, nodes and edges:

    - ``x``, float ``[nodes, features]``; absent if the model goes by degrees alone,
    - ``edge_index``, int64 ``[2, edges]``,
    - ``edge_attr``, float ``[edges, features]``; only if the model looks at edge features,
    - ``batch``, the graph of every node, int64 ``[nodes]``,
    - ``ptr``, the offsets of the graphs in the nodes, int64 ``[graphs + 1]``.

    The output ``outputs``, float ``[graphs, outputs]``, has calibrated probabilities, or for
    regression values in the units of the data. Task, names of the labels and how data were read
    stand in the file's metadata as JSON.

    Args:
        model: The model.
        path: The file to write, whole or not at all.

    Raises:
        GraphTransplantError: If ``onnx`` is not installed or the file cannot be written.

    Example:
        >>> import tempfile
        >>> import graph_transplant as gt
        >>> from graph_transplant.models import train
        >>> model = train(gt.load("motifs", graphs=120), hidden=8, layers=1, epochs=1)
        >>> path = Path(tempfile.mkdtemp()) / "motifs.onnx"
        >>> to_onnx(model, path)
        >>> path.stat().st_size > 0
        True
    """
    onnx = _onnx()
    program = _Program(onnx)
    network = model.network
    logits = _network(program, network)
    if model.task == "regression":
        outputs = logits
        if model.scale is not None:
            outputs = program.op("Mul", outputs, program.constant(model.scale.std, "target_std"))
            outputs = program.op("Add", outputs, program.constant(model.scale.mean, "target_mean"))
    else:
        scaled = program.op("Div", logits, program.constant(float(model.temperature)))
        multiclass = model.task == "multiclass"
        outputs = (
            program.op("Softmax", scaled, axis=1) if multiclass else program.op("Sigmoid", scaled)
        )
    described = {
        "task": model.task,
        "label_names": list(model.label_names or ()),
        "featurizer": None if model.featurizer is None else model.featurizer.to_dict(),
        "version": __version__,
    }
    proto = program.finish(outputs, network.num_outputs, described)
    _write(Path(path), proto.SerializeToString(deterministic=True))


def _onnx() -> Any:
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError:
        raise GraphTransplantError(
            "writing ONNX files needs the package onnx: pip install graph-transplant[onnx]"
        ) from None
    return onnx


def _write(path: Path, content: bytes) -> None:
    """Put the file in its place in one step."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as problem:
        raise GraphTransplantError(f"cannot write {path}: {problem.strerror}") from problem


class _Program:
    """An ONNX graph in the making; values go by their names.

    Args:
        onnx: The package.
    """

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._inputs: list[Any] = []
        self.float32: int = onnx.TensorProto.FLOAT
        self.int64: int = onnx.TensorProto.INT64

    def input(self, name: str, kind: type[np.generic], shape: list[str | int]) -> str:
        """Declare an input."""
        element = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        self._inputs.append(self._onnx.helper.make_tensor_value_info(name, element, shape))
        return name

    def constant(self, value: Tensor | float | int | list[int], name: str | None = None) -> str:
        """Write a value into the file: weights as float32, whole numbers as int64."""
        if isinstance(value, Tensor):
            array = value.detach().cpu().to(torch.float32).numpy()
        else:
            array = np.asarray(value, dtype=np.float32 if isinstance(value, float) else np.int64)
        name = name or f"{array.dtype}_{array.tolist()}"
        if name not in self._constants:
            self._constants[name] = self._onnx.numpy_helper.from_array(array, name)
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operation; return the name of its result."""
        name = f"{kind.lower()}_{len(self._nodes)}"
        node = self._onnx.helper.make_node(kind, list(inputs), [name], name=name, **attributes)
        self._nodes.append(node)
        return name

    def size(self, value: str, axis: int = 0) -> str:
        """Return the length of a dimension, int64 ``[1]``."""
        return self.op("Shape", value, start=axis, end=axis + 1)

    def columns(self, value: str) -> str:
        """Make ``[rows]`` ``[rows, 1]``."""
        return self.op("Unsqueeze", value, self.constant([1]))

    def take(self, value: str, index: str) -> str:
        """Take rows by number."""
        return self.op("Gather", value, index, axis=0)

    def linear(self, value: str, layer: nn.Linear, name: str) -> str:
        """Apply a linear layer to ``[rows, columns]``."""
        weights = layer.state_dict()
        out = self.op("MatMul", value, self.constant(weights["weight"].t(), f"{name}.weight"))
        if "bias" not in weights:
            return out
        return self.op("Add", out, self.constant(weights["bias"], f"{name}.bias"))

    def scatter(self, value: str, index: str, rows: str, how: str = "add") -> str:
        """Combine ``[items, columns]`` by row number.

        Args:
            value: float ``[items, columns]``.
            index: Row of each item, int64 ``[items]``.
            rows: Number of rows, int64 ``[1]``.
            how: ``"add"``, or ``"max"``; then a row without items has a very low number.
        """
        shape = self.op("Concat", rows, self.size(value, 1), axis=0)
        lowest = 0.0 if how == "add" else float(np.finfo(np.float32).min)
        start = self.op("Expand", self.constant(lowest), shape)
        # Scattering rows is written as scattering numbers: runtimes may scatter whole rows on
        # several threads at once, which loses sums.
        where = self.op("Expand", self.columns(index), self.op("Shape", value))
        return self.op("ScatterElements", start, where, value, axis=0, reduction=how)

    def finish(self, outputs: str, width: int, described: dict[str, Any]) -> Any:
        """Return the checked model.

        Args:
            outputs: The value to give out.
            width: Its columns.
            described: Written into the metadata, each as JSON.
        """
        helper = self._onnx.helper
        self._nodes.append(helper.make_node("Identity", [outputs], ["outputs"], name="outputs"))
        out = helper.make_tensor_value_info(
            "outputs", self._onnx.TensorProto.FLOAT, ["graphs", width]
        )
        graph = helper.make_graph(
            self._nodes,
            "graph_transplant",
            self._inputs,
            [out],
            initializer=list(self._constants.values()),
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            producer_name="graph-transplant",
            producer_version=__version__,
            # What the version of the format was when the operations above became complete.
            ir_version=8,
        )
        helper.set_model_props(model, {key: json.dumps(value) for key, value in described.items()})
        self._onnx.checker.check_model(model, full_check=True)
        return model


@dataclass(frozen=True)
class _Edges:
    """The edges of the batch, by the names of their values.

    Attributes:
        sender: int64 ``[edges]``.
        receiver: int64 ``[edges]``.
        nodes: Number of nodes, int64 ``[1]``.
        attr: float ``[edges, features]``, or ``None``.
    """

    sender: str
    receiver: str
    nodes: str
    attr: str | None = None

    def sums(self, program: _Program, messages: str) -> str:
        """Add up what every node receives."""
        return program.scatter(messages, self.receiver, self.nodes)

    def degree(self, program: _Program) -> str:
        """Count what every node receives, float ``[nodes, 1]``."""
        shape = program.op("Concat", program.size(self.receiver), program.constant([1]), axis=0)
        return self.sums(program, program.op("Expand", program.constant(1.0), shape))

    def with_loops(self, program: _Program) -> _Edges:
        """Put one loop at every node, after the edges; none of them has attributes."""
        whole = program.op("Squeeze", self.nodes)
        loops = program.op("Range", program.constant(0), whole, program.constant(1))
        return _Edges(
            program.op("Concat", self.sender, loops, axis=0),
            program.op("Concat", self.receiver, loops, axis=0),
            self.nodes,
        )


def _network(program: _Program, network: GraphClassifier) -> str:
    """Write everything up to the logits."""
    if network.walk:
        raise GraphTransplantError(
            "a model with random-walk features (`walk`) cannot be written as an ONNX file"
        )
    inputs = network.inputs
    x = ""
    if isinstance(inputs, FeatureInput):
        x = program.input("x", np.float32, ["nodes", inputs.features])
    edge_index = program.input("edge_index", np.int64, [2, "edges"])
    attr = None
    if network.edge_features:
        attr = program.input("edge_attr", np.float32, ["edges", network.edge_features])
    batch = program.input("batch", np.int64, ["nodes"])
    ptr = program.input("ptr", np.int64, ["offsets"])
    sender, receiver = (
        program.op("Gather", edge_index, program.constant(row), axis=0) for row in (0, 1)
    )
    if attr is not None:
        attr = program.op("Sub", attr, program.constant(network.edge_mean, "edge_mean"))
        attr = program.op("Div", attr, program.constant(network.edge_std, "edge_std"))
    edges = _Edges(sender, receiver, program.size(batch), attr)
    if isinstance(inputs, FeatureInput):
        x = _standardised(program, x, inputs)
    else:
        x = _one_hot_degree(program, edges, inputs.features)
    encoded = isinstance(network.encoder, nn.Linear)
    if isinstance(network.encoder, nn.Linear):
        x = program.linear(x, network.encoder, "encoder")
    x = _sequence(program, x, network.mixing, "mixing")
    write = _LAYERS[network.conv]
    outputs = []
    for number, layer in enumerate(network.convolutions):
        passed = write(program, layer, x, edges, f"convolutions.{number}")
        active = program.op(
            "Relu", _normalised(program, passed, network.norms[number], f"norms.{number}")
        )
        x = program.op("Add", x, active) if network.residual and (encoded or number) else active
        outputs.append(x)
    read = [
        _readout(program, nodes, batch, ptr, kind)
        for nodes in (outputs if network.jumping else outputs[-1:])
        for kind in network.readout_kind.split("-")
    ]
    graphs = read[0] if len(read) == 1 else program.op("Concat", *read, axis=1)
    return _sequence(program, graphs, network.head, "head")


def _sequence(program: _Program, x: str, parts: nn.Sequential, name: str) -> str:
    for number, part in enumerate(parts):
        if isinstance(part, nn.Linear):
            x = program.linear(x, part, f"{name}.{number}")
        elif isinstance(part, nn.ReLU):
            x = program.op("Relu", x)
        else:
            x = _normalised(program, x, part, f"{name}.{number}")
    return x


def _normalised(program: _Program, x: str, norm: nn.Module, name: str) -> str:
    """Write a normalisation in evaluation mode; other modules do nothing then."""
    if isinstance(norm, nn.BatchNorm1d):
        weights = norm.state_dict()
        scale = weights["weight"] / (weights["running_var"] + norm.eps).sqrt()
        shift = weights["bias"] - weights["running_mean"] * scale
        x = program.op("Mul", x, program.constant(scale, f"{name}.scale"))
        return program.op("Add", x, program.constant(shift, f"{name}.shift"))
    if isinstance(norm, nn.LayerNorm):
        weight, bias = (program.constant(getattr(norm, p), f"{name}.{p}") for p in _AFFINE)
        return program.op("LayerNormalization", x, weight, bias, epsilon=norm.eps)
    return x


def _one_hot_degree(program: _Program, edges: _Edges, features: int) -> str:
    degree = program.op("Cast", edges.degree(program), to=program.int64)
    degree = program.op("Min", degree, program.constant(features - 1))
    hot = program.op("Equal", degree, program.constant(list(range(features)), "degrees"))
    return program.op("Cast", hot, to=program.float32)


def _standardised(program: _Program, x: str, inputs: FeatureInput) -> str:
    continuous = inputs.mean.numel()
    if not continuous:
        return x
    mean, std = torch.zeros(inputs.features), torch.ones(inputs.features)
    mean[:continuous], std[:continuous] = inputs.mean.cpu(), inputs.std.cpu()
    x = program.op("Sub", x, program.constant(mean, "inputs.mean"))
    return program.op("Div", x, program.constant(std, "inputs.std"))


def _readout(program: _Program, nodes: str, batch: str, ptr: str, kind: str) -> str:
    start = program.op("Slice", ptr, program.constant([0]), program.constant([-1]))
    end = program.op("Slice", ptr, program.constant([1]), program.constant([_LAST]))
    counts = program.columns(program.op("Cast", program.op("Sub", end, start), to=program.float32))
    graphs = program.size(start)
    if kind == "max":
        largest = program.scatter(nodes, batch, graphs, "max")
        some = program.op("Greater", counts, program.constant(0.0))
        return program.op("Where", some, largest, program.constant(0.0))
    total = program.scatter(nodes, batch, graphs)
    if kind == "sum":
        return total
    return program.op("Div", total, program.op("Max", counts, program.constant(1.0)))


def _inverse_root(program: _Program, degree: str) -> str:
    """One over the root of degrees; 0 for degree 0."""
    positive = program.op("Greater", degree, program.constant(0.0))
    safe = program.op("Where", positive, degree, program.constant(1.0))
    root = program.op("Reciprocal", program.op("Sqrt", safe))
    return program.op("Where", positive, root, program.constant(0.0))


def _gcn(program: _Program, layer: nn.Module, x: str, edges: _Edges, name: str) -> str:
    assert isinstance(layer, GCNConvolution)
    degree = program.op("Add", edges.degree(program), program.constant(1.0))
    scale = _inverse_root(program, degree)
    scaled = program.op("Mul", x, scale)
    received = edges.sums(program, program.take(scaled, edges.sender))
    received = program.op("Mul", program.op("Add", received, scaled), scale)
    return program.linear(received, layer.linear, f"{name}.linear")


def _gcs(program: _Program, layer: nn.Module, x: str, edges: _Edges, name: str) -> str:
    assert isinstance(layer, GCSConvolution)
    scale = _inverse_root(program, edges.degree(program))
    scaled = program.op("Mul", x, scale)
    received = edges.sums(program, program.take(scaled, edges.sender))
    received = program.op("Mul", received, scale)
    passed = program.linear(received, layer.linear, f"{name}.linear")
    return program.op("Add", program.linear(x, layer.skip, f"{name}.skip"), passed)


def _gin(program: _Program, layer: nn.Module, x: str, edges: _Edges, name: str) -> str:
    assert isinstance(layer, GINConvolution)
    received = edges.sums(program, program.take(x, edges.sender))
    own = program.op("Mul", x, program.constant(1.0 + layer.epsilon, f"{name}.own"))
    hidden = program.linear(program.op("Add", received, own), layer.first, f"{name}.first")
    return program.linear(program.op("Relu", hidden), layer.second, f"{name}.second")


def _gat(program: _Program, layer: nn.Module, x: str, edges: _Edges, name: str) -> str:
    assert isinstance(layer, GATConvolution)
    looped = edges.with_loops(program)
    return _attend(program, layer, x, looped, None, name)


def _attend(
    program: _Program,
    layer: GATConvolution | GATEdgeConvolution,
    x: str,
    edges: _Edges,
    edge_score: str | None,
    name: str,
) -> str:
    """Write an attention layer on edges that have a loop at every node."""
    heads, width = layer.attend_sender.shape
    # Column h of the matrix has ones where the columns of head h are.
    belongs = torch.eye(heads).repeat_interleave(width, dim=0)
    hidden = program.linear(x, layer.linear, f"{name}.linear")

    def scores(parameter: Tensor, role: str, index: str) -> str:
        attend = belongs.to(parameter.device) * parameter.detach().reshape(-1, 1)
        each = program.op("MatMul", hidden, program.constant(attend, f"{name}.attend_{role}"))
        return program.take(each, index)

    score = program.op(
        "Add",
        scores(layer.attend_sender, "sender", edges.sender),
        scores(layer.attend_receiver, "receiver", edges.receiver),
    )
    if edge_score is not None:
        score = program.op("Add", score, edge_score)
    score = program.op("LeakyRelu", score, alpha=0.2)
    largest = program.scatter(score, edges.receiver, edges.nodes, "max")
    share = program.op("Sub", score, program.take(largest, edges.receiver))
    share = program.op("Exp", share)
    total = program.take(edges.sums(program, share), edges.receiver)
    attention = program.op("Div", share, total)
    spread = program.op(
        "MatMul", attention, program.constant(belongs.t(), f"heads_{heads}_{width}")
    )
    messages = program.op("Mul", program.take(hidden, edges.sender), spread)
    received = edges.sums(program, messages)
    return program.op("Add", received, program.constant(layer.bias, f"{name}.bias"))


def _gine(program: _Program, layer: nn.Module, x: str, edges: _Edges, name: str) -> str:
    assert isinstance(layer, GINEConvolution)
    assert edges.attr is not None
    added = program.linear(edges.attr, layer.edge, f"{name}.edge")
    messages = program.op("Relu", program.op("Add", program.take(x, edges.sender), added))
    own = program.op("Mul", x, program.constant(1.0 + layer.epsilon, f"{name}.own"))
    summed = program.op("Add", edges.sums(program, messages), own)
    hidden = program.linear(summed, layer.first, f"{name}.first")
    return program.linear(program.op("Relu", hidden), layer.second, f"{name}.second")


def _gat_edge(program: _Program, layer: nn.Module, x: str, edges: _Edges, name: str) -> str:
    assert isinstance(layer, GATEdgeConvolution)
    assert edges.attr is not None
    degree = program.op("Max", edges.degree(program), program.constant(1.0))
    # A loop has the mean attributes of the edges that arrive; zeros where there are none.
    mean = program.op("Div", edges.sums(program, edges.attr), degree)
    attr = program.op("Concat", edges.attr, mean, axis=0)
    attend = program.constant(layer.attend_edge.t(), f"{name}.attend_edge")
    score = program.op("MatMul", attr, attend)
    return _attend(program, layer, x, edges.with_loops(program), score, name)


_LAYERS: Final[dict[str, Callable[[_Program, nn.Module, str, _Edges, str], str]]] = {
    "gcn": _gcn,
    "gcs": _gcs,
    "gin": _gin,
    "gat": _gat,
    "gine": _gine,
    "gat-edge": _gat_edge,
}
