"""Constant prediction: class frequencies, or means, of the training graphs."""

from __future__ import annotations

import numpy as np

from graph_transplant.baselines import BaselinePredictions, BaselineTask
from graph_transplant.baselines.problems import outputs, prior


def fit_predict(given: BaselineTask) -> BaselinePredictions:
    """Predict the class frequencies, or means, of the training graphs."""
    answer = prior(given.train, balance=False)  # if balanced, no class would be the largest
    asked = (given.validation, given.test)
    held_out, tested = (outputs(np.tile(answer, (len(part), 1))) for part in asked)
    return BaselinePredictions(held_out, tested)
