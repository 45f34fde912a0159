"""Classical methods, without a graph network, to compare with on the same folds.

A method is a module with a function ``fit_predict(given: Given) -> Outcome`` and an entry in
:data:`CLASSICAL`. Importing this package imports none of the libraries that they use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from graph_transplant.methods import Role

if TYPE_CHECKING:
    from torch import Tensor

    from graph_transplant.graphs import GraphStore

__all__ = ["CLASSICAL", "Given", "Outcome", "Rival", "fit_predict", "refusal"]


class Rival(NamedTuple):
    """Summary of a classical method, its module, its name for use in sentences, and its role."""

    summary: str
    module: str
    words: str
    role: Role = "baseline"


CLASSICAL: dict[str, Rival] = {
    "forest": Rival(
        "random forest on ECFP4 counts of molecules, on statistics of other graphs",
        "graph_transplant.classical.forest",
        "a random forest",
    ),
    "wl-svm": Rival(
        "support vector machine on Weisfeiler-Lehman subtree counts",
        "graph_transplant.classical.wl_svm",
        "a Weisfeiler-Lehman SVM",
    ),
    "structure-blind": Rival(
        "sum of embedded nodes and a perceptron: looks at no edge",
        "graph_transplant.classical.structure_blind",
        "a model that sees no edges",
    ),
    "majority": Rival(
        "class frequencies, or means, of the training graphs",
        "graph_transplant.classical.majority",
        "always predicting the largest class",
    ),
}
"""Classical methods by name."""


class Given(NamedTuple):
    """Input of a classical method, which is fitted to ``train`` and tuned on ``validation``."""

    train: GraphStore
    validation: GraphStore
    test: GraphStore
    metric: str
    balance: bool
    seed: int


@dataclass(frozen=True)
class Outcome:
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
) -> Outcome:
    """Fit a classical method, tune it on validation graphs, and predict these and test graphs.

    ``name`` is a key of :data:`CLASSICAL`, ``metric`` the one to tune by; ``balance`` weights
    training graphs so that all classes have the same total weight.
    """
    function = import_module(CLASSICAL[name].module).fit_predict
    outcome: Outcome = function(Given(train, validation, test, metric, balance, seed))
    return outcome


def refusal(name: str, store: GraphStore) -> str | None:
    """Return why a method does not support the data, or ``None`` if it does."""
    molecules = store.featurizer is not None and store.featurizer.kind == "molecules"
    if name == "forest" and molecules and not store.has_structures:
        return (
            f"forest needs the SMILES of {store.name}, which saved graphs do not keep: name the "
            "table or SDF file they were read from, or leave forest out of `methods`"
        )
    return None
