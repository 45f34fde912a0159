"""Graph convolutions on the sparse adjacency, and the graph classifier built of them."""

from graph_transplant.nn.classifier import READOUTS, GraphClassifier, LayerOutput, Prediction
from graph_transplant.nn.convolutions import (
    CONVOLUTIONS,
    Convolution,
    GATConvolution,
    GCNConvolution,
    GCSConvolution,
    GINConvolution,
)
from graph_transplant.nn.modes import evaluating

__all__ = [
    "CONVOLUTIONS",
    "READOUTS",
    "Convolution",
    "GATConvolution",
    "GCNConvolution",
    "GCSConvolution",
    "GINConvolution",
    "GraphClassifier",
    "LayerOutput",
    "Prediction",
    "evaluating",
]
