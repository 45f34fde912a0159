"""Classical rivals: what one would use without a graph network, on the same folds.

A rival is a function ``fit_predict(given: Given) -> Outcome`` in a module of its own, and a line in
:data:`CLASSICAL`. Importing this package imports none of the libraries that they use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from graph_transplant.graphs import GraphStore

__all__ = ["CLASSICAL", "Given", "Outcome", "Rival", "fit_predict", "refusal"]


class Rival(NamedTuple):
    """A method without a network: what it is, the module whose ``fit_predict`` it is, its name."""

    summary: str
    module: str
    words: str


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
        "always saying the largest class",
    ),
}
"""Methods of a comparison that train no graph network, by name."""


class Given(NamedTuple):
    """What a rival is given; it is fitted to ``train`` and may choose on ``validation``."""

    train: GraphStore
    validation: GraphStore
    test: GraphStore
    metric: str
    balance: bool
    seed: int


@dataclass(frozen=True)
class Outcome:
    """Logits, or values in the units of the data, float ``[graphs, outputs]``."""

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
    """Fit a rival to training graphs, choose on validation graphs, predict these and test graphs.

    ``name`` is a key of :data:`CLASSICAL`, ``metric`` one that decides for the task; ``balance``
    weighs training graphs so that all classes count the same.
    """
    function = import_module(CLASSICAL[name].module).fit_predict
    outcome: Outcome = function(Given(train, validation, test, metric, balance, seed))
    return outcome


def refusal(name: str, store: GraphStore) -> str | None:
    """Say why a rival cannot serve some data, or ``None`` if it can."""
    molecules = store.featurizer is not None and store.featurizer.kind == "molecules"
    if name == "forest" and molecules and not store.has_structures:
        return (
            f"forest needs the SMILES of {store.name}, which saved graphs do not keep: name the "
            "table or SDF file they were read from, or leave forest out of `methods`"
        )
    return None
