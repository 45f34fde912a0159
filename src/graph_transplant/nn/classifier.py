"""The graph classifier: embed the nodes, read out the graphs, classify."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graph_transplant.errors import DataError, GraphTransplantError, check_choice
from graph_transplant.graphs import TASKS, GraphStore, adjacency_of, layout_of
from graph_transplant.nn.convolutions import CONVOLUTIONS
from graph_transplant.segments import segment_max, segment_sum
from graph_transplant.sparse import Adjacency

READOUTS = ("mean", "sum", "max")


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
        >>> prediction = model(Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]])))
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

    def forward(self, batch: Data, adjacency: Adjacency, dtype: torch.dtype) -> Tensor:
        """Return the features, ``[nodes, features]`` of the given type."""
        x: Tensor | None = batch.x
        if x is None or x.dim() != 2 or x.shape[1] != self.features:
            given = "none" if x is None else list(x.shape)
            raise DataError(
                f"the model expects `batch.x` of shape [nodes, {self.features}]; got {given}"
            )
        x = x.to(dtype)
        continuous = self.mean.numel()
        if not continuous:
            return x
        scaled = (x[:, :continuous] - self.mean) / self.std
        return torch.cat((scaled, x[:, continuous:]), dim=1)


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

    def forward(self, batch: Data, adjacency: Adjacency, dtype: torch.dtype) -> Tensor:
        """Return the features, ``[nodes, largest + 1]`` of the given type."""
        with torch.no_grad():
            degree = adjacency.degree.round().to(torch.long).clamp_(0, self.features - 1)
            x = torch.zeros(degree.numel(), self.features, dtype=dtype, device=degree.device)
            return x.scatter_(1, degree.unsqueeze(1), 1.0)


class GraphClassifier(nn.Module):
    """A graph neural network that classifies graphs (appendix, "Architecture").

    Message-passing layers with ReLU, a readout over the nodes of each graph, and a perceptron with
    one hidden layer and dropout.

    Args:
        in_features: Number of node features; 0 for graphs without: the degree is used.
        num_outputs: Number of classes, labels or values.
        conv: ``"gcn"``, ``"gcs"``, ``"gin"`` or ``"gat"``.
        layers: Number of message-passing layers.
        hidden: Width of the layers.
        readout: ``"mean"``, ``"sum"`` or ``"max"``.
        dropout: Rate in the head.
        max_degree: Largest degree, for graphs without node features.
        mean: Mean of the continuous node features (the first columns), float ``[continuous]``.
        std: Their standard deviation, float ``[continuous]``.
        task: What the outputs are; see :class:`~graph_transplant.graphs.GraphStore`.
        seed: Determines the initial weights; torch's global generator by default.

    Example:
        >>> model = GraphClassifier(2, 3, conv="gin", layers=2, hidden=8, seed=0)
        >>> triangle = torch.tensor([[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]])
        >>> prediction = model(Data(x=torch.ones(3, 2), edge_index=triangle))
        >>> prediction.logits.shape, prediction.nodes.shape
        (torch.Size([1, 3]), torch.Size([3, 8]))
    """

    takes_edge_weight = True

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
        task: str = "multiclass",
        seed: int | None = None,
    ) -> None:
        super().__init__()
        check_choice("conv", conv, CONVOLUTIONS)
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
        self.conv = conv
        self.hidden = hidden
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
            kind = CONVOLUTIONS[conv]
            widths = [self.inputs.features] + [hidden] * layers
            self.convolutions = nn.ModuleList(
                kind(narrow, wide) for narrow, wide in pairwise(widths)
            )
            self.head = nn.Sequential(
                nn.Linear(hidden, hidden),
                nn.ReLU(),
                nn.Dropout(dropout),
                nn.Linear(hidden, num_outputs),
            )
        self.operator = kind.operator

    @classmethod
    def for_data(cls, store: GraphStore, **settings: Any) -> GraphClassifier:
        """Make a model that fits a data set.

        The mean and deviation of continuous node features, and the largest degree, are taken from
        the given graphs: pass the training and validation graphs, not the test graphs.

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
        return cls(store.num_node_features, store.num_outputs, **settings)

    def embed_nodes(self, batch: Data) -> tuple[LayerOutput, ...]:
        """Run the message-passing layers.

        Args:
            batch: A PyG batch; an ``edge_weight`` is honoured.

        Returns:
            The output of every layer, float ``[nodes, hidden]``.
        """
        adjacency = adjacency_of(batch)
        x = self.inputs(batch, adjacency, next(self.parameters()).dtype)
        operator = self.operator(adjacency, x.dtype)
        outputs = []
        for convolution in self.convolutions:
            x = convolution(x, operator).relu_()
            outputs.append(LayerOutput(x, rectified=True))
        return tuple(outputs)

    def readout(self, nodes: Tensor, batch: Data) -> Tensor:
        """Combine the nodes of each graph.

        Args:
            nodes: float ``[nodes, hidden]``.
            batch: The batch they belong to.

        Returns:
            float ``[graphs, hidden]``.
        """
        layout = layout_of(batch)
        if self.readout_kind == "max":
            return segment_max(nodes, layout.segment, layout.ptr)
        total = segment_sum(nodes, layout.segment, layout.ptr)
        if self.readout_kind == "sum":
            return total
        return total / layout.counts.clamp(min=1).to(total.dtype).unsqueeze(1)

    def embed_graphs(self, batch: Data) -> Tensor:
        """Run everything but the head, which is the same in training and in evaluation mode.

        Args:
            batch: A PyG batch.

        Returns:
            Graph embeddings, float ``[graphs, hidden]``.
        """
        return self.readout(self.embed_nodes(batch)[-1].nodes, batch)

    def classify(self, graphs: Tensor) -> Tensor:
        """Classify graph embeddings.

        Args:
            graphs: float ``[graphs, hidden]``.

        Returns:
            Logits, float ``[graphs, outputs]``.
        """
        logits: Tensor = self.head(graphs)
        return logits

    def forward(self, batch: Data) -> Prediction:
        """Predict.

        Args:
            batch: A PyG ``Batch`` or ``Data``.
        """
        layers = self.embed_nodes(batch)
        nodes = layers[-1].nodes
        graphs = self.readout(nodes, batch)
        return Prediction(nodes, graphs, self.classify(graphs), layers)
