"""Augmentations: Graph Transplant, its ablations and baselines, and the registry of methods."""

from __future__ import annotations

from graph_transplant.augment.base import (
    Augmentation,
    CleanPass,
    EditedGraphs,
    Virtual,
    VirtualEmbeddings,
    VirtualGraphs,
)
from graph_transplant.augment.build import build_method, unsupported_reason
from graph_transplant.augment.compose import OneOf, Sequential
from graph_transplant.augment.controls import LabelSmoothing, OriginalGraphs
from graph_transplant.augment.edge_predictor import EdgePredictor
from graph_transplant.augment.g_mixup import GMixup
from graph_transplant.augment.if_mixup import IfMixup
from graph_transplant.augment.m_evolve import ReliabilityFilter, SwapOpenTriads
from graph_transplant.augment.manifold import ManifoldMixup
from graph_transplant.augment.node_sam import NodeSam
from graph_transplant.augment.pairing import Pairing
from graph_transplant.augment.perturb import (
    DropEdges,
    DropNodes,
    MaskNodes,
    PerturbEdges,
    RandomSubgraph,
)
from graph_transplant.augment.sub_mix import SubMix
from graph_transplant.augment.transplant import GraphTransplant, MixedGraphs, TransplantPlan
from graph_transplant.methods import METHODS, Method, expand_methods, search_space

__all__ = [
    "METHODS",
    "Augmentation",
    "CleanPass",
    "DropEdges",
    "DropNodes",
    "EdgePredictor",
    "EditedGraphs",
    "GMixup",
    "GraphTransplant",
    "IfMixup",
    "LabelSmoothing",
    "ManifoldMixup",
    "MaskNodes",
    "Method",
    "MixedGraphs",
    "NodeSam",
    "OneOf",
    "OriginalGraphs",
    "Pairing",
    "PerturbEdges",
    "RandomSubgraph",
    "ReliabilityFilter",
    "Sequential",
    "SubMix",
    "SwapOpenTriads",
    "TransplantPlan",
    "Virtual",
    "VirtualEmbeddings",
    "VirtualGraphs",
    "build_method",
    "expand_methods",
    "search_space",
    "unsupported_reason",
]
