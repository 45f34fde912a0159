"""What a trained model is like beyond its accuracy: under attack, and as sure as it is right."""

from graph_transplant.analysis.attack import (
    Attacked,
    attack,
    attack_edges,
    mean_edges,
    random_attack,
    robust_accuracy,
    robustness,
)
from graph_transplant.analysis.calibration import (
    TEMPERATURES,
    ReliabilityBin,
    fit_temperature,
    label_cases,
    reliability,
)

__all__ = [
    "TEMPERATURES",
    "Attacked",
    "ReliabilityBin",
    "attack",
    "attack_edges",
    "fit_temperature",
    "label_cases",
    "mean_edges",
    "random_attack",
    "reliability",
    "robust_accuracy",
    "robustness",
]
