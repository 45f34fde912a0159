"""Graph convolutions on the sparse adjacency, and the graph classifier built of them."""

from graph_transplant.nn.classifier import (
    NORMS,
    READOUTS,
    GraphClassifier,
    LayerOutput,
    Prediction,
)
from graph_transplant.nn.convolutions import (
    CONVOLUTIONS,
    Convolution,
    GATConvolution,
    GATEdgeConvolution,
    GCNConvolution,
    GCSConvolution,
    GINConvolution,
    GINEConvolution,
)
from graph_transplant.nn.modes import evaluating, keeping_statistics

__all__ = [
    "CONVOLUTIONS",
    "NORMS",
    "READOUTS",
    "Convolution",
    "GATConvolution",
    "GATEdgeConvolution",
    "GCNConvolution",
    "GCSConvolution",
    "GINConvolution",
    "GINEConvolution",
    "GraphClassifier",
    "LayerOutput",
    "Prediction",
    "evaluating",
    "keeping_statistics",
]
