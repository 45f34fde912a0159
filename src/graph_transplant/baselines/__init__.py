"""Classical methods, without a graph network, to compare with on the same folds.

A method is a module with a function ``fit_predict(given: Given) -> Outcome`` and an entry in
:data:`CLASSICAL`. Importing this package imports none of the libraries that they use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from graph_transplant.methods import CLASSICAL, Rival

if TYPE_CHECKING:
    from torch import Tensor

    from graph_transplant.data import GraphStore


__all__ = [
    "CLASSICAL",
    "BaselinePredictions",
    "BaselineTask",
    "Rival",
    "fit_predict",
    "unsupported_reason",
]


class BaselineTask(NamedTuple):
    """Input of a classical method, which is fitted to ``train`` and tuned on ``validation``."""

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
    """Fit a classical method, tune it on validation graphs, and predict these and test graphs.

    ``name`` is a key of :data:`CLASSICAL`, ``metric`` the one to tune by; ``balance`` weights
    training graphs so that all classes have the same total weight.
    """
    function = import_module(CLASSICAL[name].module).fit_predict
    outcome: BaselinePredictions = function(
        BaselineTask(train, validation, test, metric, balance, seed)
    )
    return outcome


def unsupported_reason(name: str, store: GraphStore) -> str | None:
    """Return why a method does not support the data, or ``None`` if it does."""
    molecules = store.featurizer is not None and store.featurizer.kind == "molecules"
    if name == "forest" and molecules and not store.has_structures:
        return (
            f"forest needs the SMILES of {store.name}, which saved graphs do not keep: name the "
            "table or SDF file they were read from, or leave forest out of `methods`"
        )
    return None
