"""What can be chosen: options, recipes, data sets by name. Plain data, without torch."""

from graph_transplant.config.compare import CompareConfig
from graph_transplant.config.datasets import LoadConfig
from graph_transplant.config.recipes import RECIPES, Recipe
from graph_transplant.config.training import FitConfig, TrainConfig

__all__ = [
    "RECIPES",
    "CompareConfig",
    "FitConfig",
    "LoadConfig",
    "Recipe",
    "TrainConfig",
]
