"""What can be chosen: options, recipes, data sets by name. Plain data, without torch."""

from graph_transplant.config.fit import FitConfig
from graph_transplant.config.recipes import RECIPES, Recipe
from graph_transplant.config.train import TrainConfig

__all__ = [
    "RECIPES",
    "FitConfig",
    "Recipe",
    "TrainConfig",
]
