"""Methods without a graph network, to compare with on the same folds.

A baseline is a function of a :class:`BaselineTask` that returns :class:`BaselinePredictions`, and a
row of :data:`~graph_transplant.methods.METHODS` with the role ``baseline``. Importing this package
imports none of the libraries that they use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from graph_transplant.methods import METHODS
from graph_transplant.utils.lazy import resolve

if TYPE_CHECKING:
    from torch import Tensor

    from graph_transplant.data import GraphStore


__all__ = ["BaselinePredictions", "BaselineTask", "fit_predict"]


class BaselineTask(NamedTuple):
    """Input of a baseline, which is fitted to ``train`` and tuned on ``validation``."""

    train: GraphStore
    validation: GraphStore
    test: GraphStore
    metric: str
    balance: bool
    seed: int


@dataclass(frozen=True)
class BaselinePredictions:
    """Predictions, float ``[graphs, outputs]``: logits, or values in the units of the data."""

    validation: Tensor
    test: Tensor
    parameters: dict[str, Any] = field(default_factory=dict)  # chosen on the validation graphs


def fit_predict(
    name: str,
    train: GraphStore,
    validation: GraphStore,
    test: GraphStore,
    *,
    metric: str,
    balance: bool = False,
    seed: int = 0,
) -> BaselinePredictions:
    """Fit a baseline, tune it on validation graphs, and predict these and test graphs.

    ``name`` is that of a method, ``metric`` the one to tune by; ``balance`` weights
    training graphs so that all classes have the same total weight.
    """
    outcome: BaselinePredictions = resolve(METHODS[name].target)(
        BaselineTask(train, validation, test, metric, balance, seed)
    )
    return outcome
