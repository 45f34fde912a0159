"""The graph classifier: node embedding, readout, classification head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, dropout

from graph_transplant.config.options import NORMS, READOUTS, Convolution, Norm, Readout
from graph_transplant.config.recipes import Architecture
from graph_transplant.data import GraphBatch, GraphStore, as_batch
from graph_transplant.data.pyg import Data
from graph_transplant.errors import (
    DataError,
    GraphTransplantError,
    check_at_least,
    check_choice,
    check_in,
)
from graph_transplant.metrics import TASKS, Task
from graph_transplant.nn.convolutions import CONVOLUTIONS
from graph_transplant.nn.inputs import (
    DegreeInput,
    Encoder,
    FeatureInput,
    WalkEncoder,
    edge_moments,
    usable_deviation,
)
from graph_transplant.nn.segment import segment_max, segment_sum
from graph_transplant.utils.schema import plain, read, refuse_unknown

# Larger models are refused before they exhaust the memory.
_MOST_PARAMETERS: Final = 1 << 31

# Limits what a damaged or hostile file can ask for: a thousand layers are built in a second.
MOST_LAYERS: Final = 1000

# Layers that read edge attributes, and their counterparts without.
_WITHOUT_EDGES: Final = {"gine": "gin", "gat-edge": "gat"}


class LayerOutput(NamedTuple):
    """Output of one layer.

    Only the values after a ReLU are kept. The gradient before it is the gradient after it where the
    output is positive, and zero elsewhere.
    """

    nodes: Tensor  # float [nodes, hidden]
    rectified: bool  # whether a ReLU was applied to `added` if given, else to `nodes`
    added: Tensor | None = None  # the branch that a residual connection adds to the layer's input


class Prediction(NamedTuple):
    """A model's predictions for a batch.

    Example:
        >>> model = GraphClassifier(1, 2, layers=3, hidden=8)
        >>> from torch_geometric.data import Data
        >>> pair = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
        >>> prediction = model.run(pair)
        >>> len(prediction.layers), prediction.graphs.shape
        (3, torch.Size([1, 8]))
    """

    nodes: Tensor  # embeddings after the last layer, float [nodes, hidden]
    graphs: Tensor | None  # after the readout; None for user-defined models
    logits: Tensor  # float [graphs, outputs]
    layers: tuple[LayerOutput, ...]  # first to last
    extra: Tensor | None = None  # a loss of the model's own, a scalar


class NodeBatchNorm(nn.BatchNorm1d):
    """Batch normalisation over nodes; uses running statistics for a single node."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise float ``[nodes, columns]``."""
        if self.training and len(x) < 2:
            return batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(x)


def _norm(kind: str, columns: int) -> nn.Module:
    if kind == "batch":
        return NodeBatchNorm(columns)
    return nn.LayerNorm(columns) if kind == "layer" else nn.Identity()


class GraphClassifier(nn.Module):
    """A graph neural network that classifies graphs.

    The default is the network of the paper (appendix, "Architecture"): message-passing layers with
    ReLU, a readout over the nodes of each graph, and a perceptron with one hidden layer and
    dropout. With all options a layer is ``x + relu(norm(conv(dropout(x))))``.

    Args:
        in_features: Number of node features; 0 to use the degree instead.
        num_outputs: Number of classes, labels or values.
        conv: ``"gcn"``, ``"gcs"``, ``"gin"`` or ``"gat"``; with edge attributes ``"gat-edge"`` or
            ``"gine"``, which has at least one input layer.
        layers: Number of message-passing layers.
        hidden: Width of the layers.
        readout: ``"mean"``, ``"sum"``, ``"max"``, or ``"mean-max"``, which concatenates both.
        dropout: Dropout rate in the head.
        max_degree: Largest degree, for graphs without node features.
        mean: Mean of the continuous node features (the first columns), float ``[continuous]``.
        std: Their standard deviation, float ``[continuous]``.
        edge_features: Number of edge attributes; 0 if ``conv`` does not use them.
        edge_mean: Mean of the edge attributes, float ``[edge_features]``; zeros by default.
        edge_std: Their standard deviation, of the same shape; 1 by default and in place of 0.
        task: See :class:`~graph_transplant.data.GraphStore`.
        input_layers: Layers of the perceptron on the node features before message passing.
        norm: ``"batch"`` or ``"layer"`` normalisation before every activation, or ``"none"``.
        residual: Add each layer's input to its output, except for raw node features.
        layer_dropout: Dropout rate on the input of each layer, except on raw node features.
        jumping: Read out every layer, not only the last, and concatenate.
        walk: Number of random-walk features (return probabilities); requires an input layer.
        seed: Seed for the initial weights; torch's global generator by default.

    Example:
        >>> model = GraphClassifier(2, 3, conv="gin", layers=2, hidden=8, seed=0)
        >>> triangle = torch.tensor([[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]])
        >>> model(torch.ones(3, 2), triangle).shape
        torch.Size([1, 3])
    """

    edge_mean: Tensor
    edge_std: Tensor

    def __init__(
        self,
        in_features: int,
        num_outputs: int,
        *,
        conv: Convolution = "gcs",
        layers: int = 3,
        hidden: int = 128,
        readout: Readout = "mean",
        dropout: float = 0.5,
        max_degree: int | None = None,
        mean: Tensor | None = None,
        std: Tensor | None = None,
        edge_features: int = 0,
        edge_mean: Tensor | None = None,
        edge_std: Tensor | None = None,
        task: Task = "multiclass",
        input_layers: int = 0,
        norm: Norm = "none",
        residual: bool = False,
        layer_dropout: float = 0.0,
        jumping: bool = False,
        walk: int = 0,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        kind = CONVOLUTIONS[check_choice("conv", conv, CONVOLUTIONS)]
        self.task = check_choice("task", task, TASKS)
        self.norm = check_choice("norm", norm, NORMS)
        check_at_least(1, layers=layers, hidden=hidden, num_outputs=num_outputs)
        check_at_least(0, input_layers=input_layers, walk=walk)
        if max(layers, input_layers) > MOST_LAYERS:
            name, count = max(("layers", layers), ("input_layers", input_layers), key=itemgetter(1))
            raise GraphTransplantError(f"`{name}` must be at most {MOST_LAYERS}, got {count}")
        check_in("[0, 1)", dropout=dropout, layer_dropout=layer_dropout)
        if not in_features and max_degree is None:
            raise GraphTransplantError(
                "graphs without node features need `max_degree`, the largest degree to distinguish"
            )
        if kind.takes_edge_attr and edge_features < 1:
            raise GraphTransplantError(
                f"`conv` {conv} needs `edge_features`, the number of edge attributes; got "
                f"{edge_features} (use {_WITHOUT_EDGES[conv]} for graphs without edge features)"
            )
        if edge_features and not kind.takes_edge_attr:
            raise GraphTransplantError(
                f"`conv` {conv} does not use edge attributes, but `edge_features` is "
                f"{edge_features}; {', '.join(_WITHOUT_EDGES)} use them"
            )
        encodes = kind.encodes_nodes or input_layers > 0
        if walk and not encodes:
            raise GraphTransplantError("`walk` needs an input layer: set `input_layers` to 1 or 2")
        self.conv = conv
        self.hidden = hidden
        self.in_features = in_features
        self.max_degree = None if in_features else max_degree
        self.edge_features = edge_features
        self.dropout = dropout
        self.num_outputs = num_outputs
        self.readout_kind = check_choice("readout", readout, READOUTS)
        self.input_layers = input_layers
        self.residual = residual
        self.layer_dropout = layer_dropout
        self.jumping = jumping
        self.walk = walk
        scales = [torch.zeros(0) if each is None else each for each in (mean, std)]
        if scales[0].shape != scales[1].shape or scales[0].numel() > in_features:
            raise GraphTransplantError(
                f"`mean` and `std` must have one value for each of the first, continuous features, "
                f"of {in_features}; got {scales[0].numel()} and {scales[1].numel()}"
            )
        self.inputs: FeatureInput | DegreeInput = (
            FeatureInput(in_features, *scales) if in_features else DegreeInput(max_degree or 0)
        )
        with torch.random.fork_rng(devices=[], enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            entering = hidden if encodes else self.inputs.features
            self.encoder = Encoder(self.inputs.features, hidden) if encodes else nn.Identity()
            self.walks = WalkEncoder(walk, hidden) if walk else None
            self.mixing = nn.Sequential()
            for _ in range(input_layers - 1):
                self.mixing.extend([_norm(norm, hidden), nn.ReLU(), nn.Linear(hidden, hidden)])
            attributes = {"edge_features": edge_features} if kind.takes_edge_attr else {}
            self.convolutions = nn.ModuleList(
                kind(narrow, wide, **attributes)
                for narrow, wide in pairwise([entering] + [hidden] * layers)
            )
            self.norms = nn.ModuleList(_norm(norm, hidden) for _ in range(layers))
            several = (2 if readout == "mean-max" else 1) * (layers if jumping else 1)
            self.head = nn.Sequential(
                nn.Linear(several * hidden, hidden),
                nn.ReLU(),
                nn.Dropout(dropout),
                nn.Linear(hidden, num_outputs),
            )
        self.operator = kind.operator
        self.takes_edge_attr = kind.takes_edge_attr
        for name, given, neutral in (("edge_mean", edge_mean, 0.0), ("edge_std", edge_std, 1.0)):
            if given is not None and given.shape != (edge_features,):
                raise GraphTransplantError(
                    f"`{name}` must have shape [edge_features], here [{edge_features}]; got "
                    f"{list(given.shape)}"
                )
            if kind.takes_edge_attr:
                scale = torch.full((edge_features,), neutral) if given is None else given
                if name == "edge_std":
                    scale = usable_deviation(scale)
                self.register_buffer(name, scale)

    @classmethod
    def for_data(cls, store: GraphStore, **settings: Any) -> GraphClassifier:
        """Create a model for a data set; ``settings`` are further arguments of the class.

        Feature statistics and the largest degree are computed from ``store``: omit test graphs.
        """
        settings = {"task": store.task, **settings}
        if not store.num_node_features:
            settings.setdefault("max_degree", store.max_degree())
        elif store.num_continuous:
            mean, std = store.continuous_moments()
            settings.setdefault("mean", mean)
            settings.setdefault("std", std)
        conv = settings.get("conv")
        if conv in CONVOLUTIONS and CONVOLUTIONS[conv].takes_edge_attr:
            if not store.num_edge_features:
                raise DataError(
                    f"`conv` {conv} needs edge features, but {store.name} has none; use "
                    f"{_WITHOUT_EDGES[conv]} instead"
                )
            settings.setdefault("edge_features", store.num_edge_features)
            mean, std = edge_moments(store)
            settings.setdefault("edge_mean", mean)
            settings.setdefault("edge_std", std)
        return cls(store.num_node_features, store.num_outputs, **settings)

    def config(self) -> dict[str, Any]:
        """Return all settings as JSON values; feature statistics are in the state dict."""
        scaled = self.inputs.mean.numel() if isinstance(self.inputs, FeatureInput) else 0
        derived: dict[str, Any] = {
            "layers": len(self.convolutions), "readout": self.readout_kind, "continuous": scaled
        }  # fmt: skip
        own: dict[str, Any] = {
            field.name: getattr(self, field.name)
            for field in fields(Architecture)
            if field.name not in derived
        }
        config: dict[str, Any] = plain(Architecture(**own, **derived))
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> GraphClassifier:
        """Create a model from :meth:`config`, for ``load_state_dict``; raise if malformed."""
        refuse_unknown(Architecture, config, "the model's settings")
        a = read(Architecture, config, "the model's settings")
        settings = asdict(a)
        continuous = settings.pop("continuous")
        if continuous > a.in_features:
            raise DataError(
                f"`continuous` of the model must be at most its {a.in_features} node features; got "
                f"{continuous}"
            )
        width = a.in_features + a.num_outputs + a.edge_features + a.walk + (a.max_degree or 0)
        depth = a.layers * (3 if a.jumping else 1) + a.input_layers + 2
        if depth * (a.hidden + 1) * (width + a.hidden + 1) > _MOST_PARAMETERS:
            raise DataError(
                f"the model's settings ask for {a.layers} layers of {a.hidden} columns, which is "
                f"too large for any memory; they may be damaged"
            )
        nothing, ones = torch.zeros(continuous), torch.ones(continuous)
        return cls(mean=nothing, std=ones, seed=0, **settings)

    def _edge_attr(self, batch: GraphBatch) -> Tensor | None:
        if not self.takes_edge_attr:
            return None
        given = batch.edge_attr
        expected = (batch.num_edges, self.edge_features)
        if given is None or given.shape != expected:
            found = "none" if given is None else f"{list(given.shape)} for {expected[0]} edges"
            raise DataError(
                f"the model expects `edge_attr` of shape [edges, {expected[1]}]; got {found}"
            )
        return (given.to(self.edge_mean.dtype) - self.edge_mean) / self.edge_std

    def embed_nodes(self, batch: GraphBatch) -> tuple[LayerOutput, ...]:
        """Run the message-passing layers and return the output of each."""
        dtype = next(self.parameters()).dtype
        x = self.encoder(self.inputs(batch, dtype))
        if self.walks is not None:
            x = x + self.walks(batch)
        x = self.mixing(x)
        operator = self.operator(batch.adjacency, dtype, self._edge_attr(batch))
        outputs: list[LayerOutput] = []
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            encoded = bool(outputs) or isinstance(self.encoder, Encoder)
            entering = x
            if self.layer_dropout and encoded:
                entering = dropout(x, self.layer_dropout, self.training)
            active = norm(convolution(entering, operator)).relu_()
            added = self.residual and encoded
            x = x + active if added else active
            outputs.append(LayerOutput(x, rectified=True, added=active if added else None))
        return tuple(outputs)

    def readout(self, nodes: Tensor, batch: GraphBatch) -> Tensor:
        """Aggregate node embeddings ``[nodes, hidden]`` into one row per graph."""
        if self.readout_kind == "max":
            return segment_max(nodes, batch.offsets)
        total = segment_sum(nodes, batch.batch, batch.offsets)
        if self.readout_kind == "sum":
            return total
        mean = total / batch.offsets.diff().clamp(min=1).to(total.dtype).unsqueeze(1)
        if self.readout_kind == "mean":
            return mean
        return torch.cat((mean, segment_max(nodes, batch.offsets)), dim=1)

    def _read_out(self, outputs: tuple[LayerOutput, ...], batch: GraphBatch) -> Tensor:
        if not self.jumping:
            return self.readout(outputs[-1].nodes, batch)
        return torch.cat([self.readout(output.nodes, batch) for output in outputs], dim=1)

    def classify(self, graphs: Tensor) -> Tensor:
        """Return the logits for graph embeddings."""
        logits: Tensor = self.head(graphs)
        return logits

    def reads_edge_weight(self, batch: GraphBatch) -> bool:
        """Whether the outputs depend on the weights of edges."""
        return True

    def run(self, batch: GraphBatch | Data, *, layers: bool = True) -> Prediction:
        """Predict a batch, with the intermediate results for augmentations and explanations."""
        batch = as_batch(batch)
        outputs = self.embed_nodes(batch)
        graphs = self._read_out(outputs, batch)
        return Prediction(outputs[-1].nodes, graphs, self.classify(graphs), outputs)

    def forward(
        self,
        x: Tensor | None,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        """Return logits ``[graphs, outputs]``; without ``batch``, there is a single graph."""
        nodes = x if x is not None else batch
        if nodes is None:
            raise DataError("graphs without node features need `batch`, the graph of every node")
        from torch_geometric.data import Data as Graph

        data = Graph(
            x=x,
            edge_index=edge_index,
            edge_weight=edge_weight,
            edge_attr=edge_attr,
            batch=nodes.new_zeros(len(nodes), dtype=torch.long) if batch is None else batch,
            num_nodes=len(nodes),
        )
        return self.run(GraphBatch.from_pyg(data, batch_size)).logits
