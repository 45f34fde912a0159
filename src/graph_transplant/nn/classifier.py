"""The graph classifier: embed the nodes, read out the graphs, classify."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graph_transplant.errors import DataError, GraphTransplantError, check_choice
from graph_transplant.graphs import GraphBatch, GraphStore, as_batch, moments
from graph_transplant.graphs.batch import CODE
from graph_transplant.metrics import TASKS
from graph_transplant.nn.convolutions import CONVOLUTIONS, Inputs, project
from graph_transplant.segments import segment_max, segment_sum

READOUTS = ("mean", "sum", "max")

# What `GraphClassifier.config` holds, and of which types.
_SETTINGS: Final[dict[str, tuple[type, ...]]] = {
    "in_features": (int,),
    "num_outputs": (int,),
    "conv": (str,),
    "layers": (int,),
    "hidden": (int,),
    "readout": (str,),
    "dropout": (int, float),
    "max_degree": (int, type(None)),
    "continuous": (int,),
    "edge_features": (int,),
    "task": (str,),
}

# A described model with more parameters than this is a mistake, not a model: refused before it
# takes all memory.
_MOST_PARAMETERS: Final = 1 << 31

# Standard deviation of the first embeddings of one-hot node features.
_EMBEDDING_SIZE: Final = 0.3

# Edges whose attributes are looked at together in measuring them: an upper bound for memory, but
# for a single graph with more of them.
_EDGES_AT_ONCE: Final = 1 << 18

# The layers that read edge attributes, and those that are the same without.
_WITHOUT_EDGES: Final = {"gine": "gin", "gat-edge": "gat"}


class LayerOutput(NamedTuple):
    """What one layer gave.

    Only one side of the activation is kept: the gradient before a rectifier is the gradient after
    it where the output is positive, and zero elsewhere.

    Attributes:
        nodes: float ``[nodes, hidden]``.
        rectified: Whether ``nodes`` comes after a rectifier (ReLU).
    """

    nodes: Tensor
    rectified: bool


class Prediction(NamedTuple):
    """What a model says about a batch.

    Attributes:
        nodes: Node embeddings after the last layer, float ``[nodes, hidden]``.
        graphs: Graph embeddings after the readout, float ``[graphs, hidden]``; ``None`` for models
            whose inside is not known.
        logits: float ``[graphs, outputs]``.
        layers: Output of every layer, first to last.

    Example:
        >>> model = GraphClassifier(1, 2, layers=3, hidden=8)
        >>> pair = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
        >>> prediction = model.run(pair)
        >>> len(prediction.layers), prediction.graphs.shape
        (3, torch.Size([1, 8]))
    """

    nodes: Tensor
    graphs: Tensor | None
    logits: Tensor
    layers: tuple[LayerOutput, ...]


class FeatureInput(nn.Module):
    """Input layer for graphs with node features: standardises the continuous ones.

    Args:
        features: Number of node features.
        mean: Of the continuous features, which come first, float ``[continuous]``.
        std: Likewise; a feature that never varies keeps its scale.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, features: int, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.features = features
        self.register_buffer("mean", mean)
        self.register_buffer("std", torch.where(std > 0, std, torch.ones_like(std)))

    def forward(self, batch: GraphBatch, dtype: torch.dtype) -> Tensor | Inputs:
        """Return the features, ``[nodes, features]`` of the given type."""
        x, code = batch.nodes.get("x"), batch.nodes.get(CODE)
        columns = batch.codes + (0 if x is None else x.shape[-1])
        if columns != self.features or (x is not None and x.dim() != 2):
            given = "none" if x is None and code is None else [batch.num_nodes, columns]
            raise DataError(f"the model expects `x` of shape [nodes, {self.features}]; got {given}")
        if x is not None:
            x = self._standardised(x.to(dtype))
        if code is not None:
            return Inputs(x, code)
        assert x is not None
        return x

    def _standardised(self, x: Tensor) -> Tensor:
        continuous = self.mean.numel()
        if not continuous:
            return x
        scaled = (x[:, :continuous] - self.mean) / self.std
        return torch.cat((scaled, x[:, continuous:]), dim=1) if x.shape[1] > continuous else scaled


class DegreeInput(nn.Module):
    """Input layer for graphs without node features: the degree, one-hot.

    A mixed graph is featurised by the same rule as an original one. Larger degrees than any seen
    count as the largest.

    Args:
        largest: Largest degree.
    """

    def __init__(self, largest: int) -> None:
        super().__init__()
        self.features = largest + 1

    def forward(self, batch: GraphBatch, dtype: torch.dtype) -> Inputs:
        """Return the features, one of ``largest + 1`` columns."""
        degree = batch.adjacency.degree.detach().round().to(torch.long)
        return Inputs(None, degree.clamp_(0, self.features - 1))


class Encoder(nn.Linear):
    """Maps node features linearly to the width of the layers, for layers that want it."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__(features, hidden)
        # Most columns are one-hot, and each is an embedding: its size must not depend on how many
        # other columns there are.
        nn.init.normal_(self.weight, std=_EMBEDDING_SIZE)

    def forward(self, x: Tensor | Inputs) -> Tensor:
        """Return float ``[nodes, hidden]``."""
        return project(x, self.weight, self.bias)


def edge_moments(store: GraphStore) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of the numeric edge attributes over all edges.

    Args:
        store: Graphs with edge attributes; they are gone through in pieces.

    Returns:
        Both float32 ``[edge_features]``; the deviation is that of the population. A column that
        has no other values than 0 and 1 is taken for part of a one-hot code, which is to stay as it
        is: mean 0, deviation 1. A column that never varies has deviation 1 too.

    Example:
        >>> store = GraphStore(
        ...     x=None,
        ...     edge_index=torch.tensor([[0, 1], [1, 0]]),
        ...     edge_attr=torch.tensor([[10.0, 1.0], [30.0, 0.0]]),
        ...     y=torch.tensor([0]),
        ...     node_counts=torch.tensor([2]),
        ...     edge_counts=torch.tensor([2]),
        ... )
        >>> edge_moments(store)
        (tensor([20.,  0.]), tensor([10.,  1.]))
    """
    columns = store.num_edge_features
    low, high = torch.full((columns,), torch.inf), torch.full((columns,), -torch.inf)
    numeric = torch.zeros(columns, dtype=torch.bool)

    def pieces() -> Iterator[Tensor]:
        nonlocal low, high, numeric
        group = store.edge_ptr[:-1] // _EDGES_AT_ONCE
        _, sizes = torch.unique_consecutive(group, return_counts=True)
        for graphs in torch.split(torch.arange(len(store)), sizes.tolist()):
            attr = store.subset(graphs).edge_attr
            if attr is not None and len(attr):
                low, high = torch.minimum(low, attr.amin(0)), torch.maximum(high, attr.amax(0))
                numeric = numeric | ((attr != 0) & (attr != 1)).any(0)
                yield attr

    if not int(store.edge_counts.sum()):
        return torch.zeros(columns), torch.ones(columns)
    mean, std = moments(pieces())
    # Rounding gives a column that never varies a deviation of almost zero: the ends tell.
    std = torch.where(numeric & (low < high) & (std > 0), std, torch.ones_like(std))
    return torch.where(numeric, mean, torch.zeros_like(std)), std


class GraphClassifier(nn.Module):
    """A graph neural network that classifies graphs (appendix, "Architecture").

    Message-passing layers with ReLU, a readout over the nodes of each graph, and a perceptron with
    one hidden layer and dropout.

    Args:
        in_features: Number of node features; 0 for graphs without: the degree is used.
        num_outputs: Number of classes, labels or values.
        conv: ``"gcn"``, ``"gcs"``, ``"gin"`` or ``"gat"``; or, with edge attributes, ``"gine"``,
            which first maps the node features linearly to ``hidden`` columns, or ``"gat-edge"``.
        layers: Number of message-passing layers.
        hidden: Width of the layers.
        readout: ``"mean"``, ``"sum"`` or ``"max"``.
        dropout: Rate in the head.
        max_degree: Largest degree, for graphs without node features.
        mean: Mean of the continuous node features (the first columns), float ``[continuous]``.
        std: Their standard deviation, float ``[continuous]``.
        edge_features: Number of edge attributes; needed by the two kinds of ``conv`` that read
            them, and 0 for the others.
        edge_mean: Subtracted from the edge attributes, float ``[edge_features]``; zeros by default.
        edge_std: What they are divided by then, float ``[edge_features]``; ones by default. An
            attribute with 0 keeps its scale.
        task: What the outputs are; see :class:`~graph_transplant.graphs.GraphStore`.
        seed: Determines the initial weights; torch's global generator by default.

    Example:
        >>> model = GraphClassifier(2, 3, conv="gin", layers=2, hidden=8, seed=0)
        >>> triangle = torch.tensor([[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]])
        >>> model(torch.ones(3, 2), triangle).shape
        torch.Size([1, 3])
    """

    takes_edge_weight = True
    edge_mean: Tensor
    edge_std: Tensor

    def __init__(
        self,
        in_features: int,
        num_outputs: int,
        *,
        conv: str = "gcs",
        layers: int = 3,
        hidden: int = 128,
        readout: str = "mean",
        dropout: float = 0.5,
        max_degree: int | None = None,
        mean: Tensor | None = None,
        std: Tensor | None = None,
        edge_features: int = 0,
        edge_mean: Tensor | None = None,
        edge_std: Tensor | None = None,
        task: str = "multiclass",
        seed: int | None = None,
    ) -> None:
        super().__init__()
        kind = CONVOLUTIONS[check_choice("conv", conv, CONVOLUTIONS)]
        self.task = check_choice("task", task, TASKS)
        for name, value in (("layers", layers), ("hidden", hidden), ("num_outputs", num_outputs)):
            if value < 1:
                raise GraphTransplantError(f"`{name}` must be at least 1, got {value}")
        if not 0 <= dropout < 1:
            raise GraphTransplantError(f"`dropout` must be in [0, 1), got {dropout}")
        if not in_features and max_degree is None:
            raise GraphTransplantError(
                "graphs without node features need `max_degree`, the largest degree to tell apart"
            )
        if kind.takes_edge_attr and edge_features < 1:
            raise GraphTransplantError(
                f"`conv` {conv} needs `edge_features`, the number of edge attributes; got "
                f"{edge_features} ({_WITHOUT_EDGES[conv]} is the same without)"
            )
        if edge_features and not kind.takes_edge_attr:
            raise GraphTransplantError(
                f"`conv` {conv} reads no edge attributes, but `edge_features` is {edge_features}; "
                f"{', '.join(_WITHOUT_EDGES)} read them"
            )
        self.conv = conv
        self.hidden = hidden
        self.in_features = in_features
        self.max_degree = None if in_features else max_degree
        self.edge_features = edge_features
        self.dropout = dropout
        self.num_outputs = num_outputs
        self.readout_kind = check_choice("readout", readout, READOUTS)
        self.inputs: FeatureInput | DegreeInput
        if in_features:
            nothing = torch.zeros(0)
            self.inputs = FeatureInput(
                in_features, nothing if mean is None else mean, nothing if std is None else std
            )
        else:
            self.inputs = DegreeInput(max_degree or 0)
        with torch.random.fork_rng(devices=[], enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            entering = hidden if kind.encodes_nodes else self.inputs.features
            self.encoder = (
                Encoder(self.inputs.features, hidden) if kind.encodes_nodes else nn.Identity()
            )
            attributes = {"edge_features": edge_features} if kind.takes_edge_attr else {}
            self.convolutions = nn.ModuleList(
                kind(narrow, wide, **attributes)
                for narrow, wide in pairwise([entering] + [hidden] * layers)
            )
            self.head = nn.Sequential(
                nn.Linear(hidden, hidden),
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
                    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
                self.register_buffer(name, scale)

    @classmethod
    def for_data(cls, store: GraphStore, **settings: Any) -> GraphClassifier:
        """Make a model that fits a data set.

        The mean and deviation of continuous node features and of numeric edge attributes
        (:func:`edge_moments`), and the largest degree, are taken from the given graphs: pass the
        training and validation graphs, not the test graphs.

        Args:
            store: The graphs.
            **settings: Further arguments of :class:`GraphClassifier`.
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
                    f"`conv` {conv} needs edge features, but {store.name} has none; "
                    f"{_WITHOUT_EDGES[conv]} is the same without"
                )
            settings.setdefault("edge_features", store.num_edge_features)
            mean, std = edge_moments(store)
            settings.setdefault("edge_mean", mean)
            settings.setdefault("edge_std", std)
        return cls(store.num_node_features, store.num_outputs, **settings)

    def config(self) -> dict[str, Any]:
        """Return all settings as JSON values: what :meth:`from_config` makes the same model of.

        Returns:
            ``in_features``, ``num_outputs``, ``conv``, ``layers``, ``hidden``, ``readout``,
            ``dropout``, ``max_degree`` (``None`` with node features), ``continuous`` (number of
            standardised node features), ``edge_features`` and ``task``. Means and deviations are
            with the weights in the state dict.

        Example:
            >>> model = GraphClassifier(4, 2, conv="gine", hidden=8, edge_features=3, seed=0)
            >>> twin = GraphClassifier.from_config(model.config())
            >>> twin.load_state_dict(model.state_dict())
            <All keys matched successfully>
        """
        scaled = self.inputs.mean.numel() if isinstance(self.inputs, FeatureInput) else 0
        return {
            "in_features": self.in_features,
            "num_outputs": self.num_outputs,
            "conv": self.conv,
            "layers": len(self.convolutions),
            "hidden": self.hidden,
            "readout": self.readout_kind,
            "dropout": self.dropout,
            "max_degree": self.max_degree,
            "continuous": scaled,
            "edge_features": self.edge_features,
            "task": self.task,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> GraphClassifier:
        """Make a model of the shape that :meth:`config` describes, for ``load_state_dict``.

        Args:
            config: As :meth:`config` returns it. The file it comes from may be damaged: everything
                is checked.

        Raises:
            DataError: When a setting is missing, unknown or of another type, or when the model
                would not fit into any memory.
            GraphTransplantError: When a setting has no meaning.
        """
        if not isinstance(config, Mapping):
            raise DataError(f"the model's settings must be a mapping; got {type(config).__name__}")
        if set(config) != set(_SETTINGS):
            missing = [name for name in _SETTINGS if name not in config]
            unknown = [str(name) for name in config if name not in _SETTINGS]
            problem = f"{missing[0]} is missing" if missing else f"{unknown[0]!r} is unknown"
            raise DataError(f"the model's settings must be {', '.join(_SETTINGS)}; {problem}")
        for name, types in _SETTINGS.items():
            value = config[name]
            fits = isinstance(value, types) and not isinstance(value, bool)
            if not fits or (isinstance(value, int) and value < 0):
                raise DataError(f"`{name}` of the model cannot be {value!r}")
        settings = dict(config)
        continuous = settings.pop("continuous")
        if continuous > settings["in_features"]:
            raise DataError(
                f"`continuous` of the model must be at most its {settings['in_features']} node "
                f"features; got {continuous}"
            )
        hidden, layers = settings["hidden"], settings["layers"]
        widths = ("in_features", "num_outputs", "edge_features")
        width = sum(settings[name] for name in widths) + (settings["max_degree"] or 0) + hidden
        if (layers + 2) * (hidden + 1) * (width + 1) > _MOST_PARAMETERS:
            raise DataError(
                f"the model's settings ask for {layers} layers of {hidden} columns, which is "
                f"more than any memory; they may be damaged"
            )
        nothing, ones = torch.zeros(continuous), torch.ones(continuous)
        return cls(mean=nothing, std=ones, seed=0, **settings)

    def _edge_attr(self, batch: GraphBatch) -> Tensor | None:
        """Return the batch's edge attributes, standardised, if the layers read them."""
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
        """Run the message-passing layers; returns the output of each."""
        dtype = next(self.parameters()).dtype
        x = self.encoder(self.inputs(batch, dtype))
        operator = self.operator(batch.adjacency, dtype, self._edge_attr(batch))
        outputs = []
        for convolution in self.convolutions:
            x = convolution(x, operator).relu_()
            outputs.append(LayerOutput(x, rectified=True))
        return tuple(outputs)

    def readout(self, nodes: Tensor, batch: GraphBatch) -> Tensor:
        """Combine the nodes ``[nodes, hidden]`` of each graph to ``[graphs, hidden]``."""
        if self.readout_kind == "max":
            return segment_max(nodes, batch.offsets)
        total = segment_sum(nodes, batch.batch, batch.offsets)
        if self.readout_kind == "sum":
            return total
        return total / batch.offsets.diff().clamp(min=1).to(total.dtype).unsqueeze(1)

    def embed_graphs(self, batch: GraphBatch) -> Tensor:
        """Run everything but the head: graph embeddings, float ``[graphs, hidden]``."""
        return self.readout(self.embed_nodes(batch)[-1].nodes, batch)

    def classify(self, graphs: Tensor) -> Tensor:
        """Run the head on graph embeddings ``[graphs, hidden]``; returns the logits."""
        logits: Tensor = self.head(graphs)
        return logits

    def run(self, batch: GraphBatch | Data, *, layers: bool = True) -> Prediction:
        """Predict a batch, with everything that augmentations and explanations look at.

        Args:
            batch: The graphs.
            layers: Whether the outputs of the layers are wanted; here they always come along.
        """
        batch = as_batch(batch)
        outputs = self.embed_nodes(batch)
        nodes = outputs[-1].nodes
        graphs = self.readout(nodes, batch)
        return Prediction(nodes, graphs, self.classify(graphs), outputs)

    def forward(
        self,
        x: Tensor | None,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        """Return logits ``[graphs, outputs]``, like any PyG model.

        Args:
            x: Node features, float ``[nodes, features]``; ``None`` for graphs without.
            edge_index: int64 ``[2, edges]``.
            edge_weight: float ``[edges]``.
            edge_attr: float ``[edges, features]``, for layers that read it.
            batch: Graph of every node, sorted int64 ``[nodes]``; one graph by default.
            batch_size: Number of graphs.
        """
        nodes = x if x is not None else batch
        if nodes is None:
            raise DataError("graphs without node features need `batch`, the graph of every node")
        data = Data(
            x=x,
            edge_index=edge_index,
            edge_weight=edge_weight,
            edge_attr=edge_attr,
            batch=nodes.new_zeros(len(nodes), dtype=torch.long) if batch is None else batch,
            num_nodes=len(nodes),
        )
        graphs = GraphBatch.from_pyg(data, batch_size)
        return self.run(graphs).logits
