"""Augmentations: Graph Transplant, its ablations and rivals, and the methods by name."""

from __future__ import annotations

from graph_transplant.augment.assemble import EditedGraphs
from graph_transplant.augment.base import (
    Augmentation,
    CleanPass,
    Virtual,
    VirtualEmbeddings,
    VirtualGraphs,
)
from graph_transplant.augment.compose import OneOf, Sequential
from graph_transplant.augment.connect import (
    Connection,
    DegreePreservation,
    Disconnected,
    EdgePredictor,
)
from graph_transplant.augment.controls import LabelSmoothing, OriginalGraphs, ShuffledSaliency
from graph_transplant.augment.evolve import ReliabilityFilter, SwapOpenTriads
from graph_transplant.augment.g_mixup import GMixup
from graph_transplant.augment.if_mixup import IfMixup
from graph_transplant.augment.importance import Importance, SaliencyImportance, SizeImportance
from graph_transplant.augment.manifold import ManifoldMixup
from graph_transplant.augment.methods import (
    METHODS,
    Method,
    build_method,
    expand_methods,
    refusal,
    search_space,
)
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
from graph_transplant.augment.subgraphs import (
    Anchors,
    Cutter,
    PartialKHop,
    RandomAnchors,
    SalientAnchors,
    ScatteredNodes,
)
from graph_transplant.augment.transplant import GraphTransplant, MixedGraphs, TransplantPlan

__all__ = [
    "METHODS",
    "Anchors",
    "Augmentation",
    "CleanPass",
    "Connection",
    "Cutter",
    "DegreePreservation",
    "Disconnected",
    "DropEdges",
    "DropNodes",
    "EdgePredictor",
    "EditedGraphs",
    "GMixup",
    "GraphTransplant",
    "IfMixup",
    "Importance",
    "LabelSmoothing",
    "ManifoldMixup",
    "MaskNodes",
    "Method",
    "MixedGraphs",
    "NodeSam",
    "OneOf",
    "OriginalGraphs",
    "Pairing",
    "PartialKHop",
    "PerturbEdges",
    "RandomAnchors",
    "RandomSubgraph",
    "ReliabilityFilter",
    "SaliencyImportance",
    "SalientAnchors",
    "ScatteredNodes",
    "Sequential",
    "ShuffledSaliency",
    "SizeImportance",
    "SubMix",
    "SwapOpenTriads",
    "TransplantPlan",
    "Virtual",
    "VirtualEmbeddings",
    "VirtualGraphs",
    "build_method",
    "expand_methods",
    "refusal",
    "search_space",
]
