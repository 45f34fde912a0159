"""What a trained model is like beyond its accuracy: how it stands up to an attack on its graphs."""

from graph_transplant.analysis.attack import (
    Attacked,
    attack,
    attack_edges,
    mean_edges,
    random_attack,
    robust_accuracy,
    robustness,
)

__all__ = [
    "Attacked",
    "attack",
    "attack_edges",
    "mean_edges",
    "random_attack",
    "robust_accuracy",
    "robustness",
]
