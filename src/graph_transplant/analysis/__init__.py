"""Analyses beyond accuracy: robustness, calibration, saliency quality and sample quality."""

from graph_transplant.analysis.attack import (
    Attacked,
    attack,
    attack_edges,
    mean_edges,
    nested_attacks,
    robustness,
)
from graph_transplant.analysis.saliency import saliency_quality
from graph_transplant.analysis.samples import sample_quality
from graph_transplant.metrics import TEMPERATURES
from graph_transplant.metrics.calibration import calibration, fit_temperature, reliability

__all__ = [
    "TEMPERATURES",
    "Attacked",
    "attack",
    "attack_edges",
    "calibration",
    "fit_temperature",
    "mean_edges",
    "nested_attacks",
    "reliability",
    "robustness",
    "saliency_quality",
    "sample_quality",
]
