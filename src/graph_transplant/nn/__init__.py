"""Graph convolutions and the graph classifier."""

from graph_transplant.config.options import NORMS, READOUTS
from graph_transplant.nn.adapter import evaluating, keeping_statistics
from graph_transplant.nn.classifier import GraphClassifier, LayerOutput, Prediction
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
