"""Methods without a graph network, to compare with on the same folds.

A baseline is a function of a :class:`BaselineTask` that returns something :class:`Fitted`, and a
row of :data:`~graph_transplant.methods.METHODS` with the role ``baseline``. What a trained model
can be made of is a :class:`~graph_transplant.baselines.model.Baseline`. Importing this package
imports none of the libraries that they use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from graph_transplant.methods import METHODS
from graph_transplant.utils.lazy import resolve

if TYPE_CHECKING:
    from torch import Tensor

    from graph_transplant.data import GraphStore


__all__ = ["BaselineTask", "Fitted", "Predictor", "fit"]


class BaselineTask(NamedTuple):
    """Input of a baseline, which is fitted to ``train`` and tuned on ``validation``."""

    train: GraphStore
    validation: GraphStore
    metric: str
    balance: bool
    seed: int


class Fitted(Protocol):
    """A fitted baseline."""

    @property
    def chosen(self) -> Mapping[str, Any]:
        """The parameters chosen on the validation graphs."""

    @property
    def logits(self) -> Callable[[GraphStore], Tensor]:
        """Predicts graphs, float ``[graphs, outputs]``: logits, or values as in training."""


@dataclass(frozen=True)
class Predictor:
    """A fitted baseline that is not saved."""

    logits: Callable[[GraphStore], Tensor]
    chosen: Mapping[str, Any] = field(default_factory=dict)


def fit(
    name: str,
    train: GraphStore,
    validation: GraphStore,
    *,
    metric: str,
    balance: bool = False,
    seed: int = 0,
) -> Fitted:
    """Fit a baseline and tune it on validation graphs.

    ``name`` is that of a method, ``metric`` the one to tune by; ``balance`` weights
    training graphs so that all classes have the same total weight.
    """
    fitted: Fitted = resolve(METHODS[name].target)(
        BaselineTask(train, validation, metric, balance, seed)
    )
    return fitted
