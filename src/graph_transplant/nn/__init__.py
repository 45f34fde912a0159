"""Graph convolutions and the graph classifier."""

from graph_transplant.nn.classifier import (
    NORMS,
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
from graph_transplant.recipes import READOUTS

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
