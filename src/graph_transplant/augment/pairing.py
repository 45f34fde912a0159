"""Which graph each graph of a batch is mixed with."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.kernels.compiling import Ints
from graph_transplant.targets import rarest_label

POLICIES = ("random", "same-class", "cross-class", "minority")


class Pairing:
    """Chooses a source graph for every graph (destination) of a batch.

    With several labels per graph, two graphs are of one class when all their labels agree; only for
    ``"minority"`` such a graph's class is the rarest label it has in the batch, or none. Regression
    has no classes: only ``"random"`` pairing.

    Args:
        policy: ``"random"``: a random permutation, so that every graph is a source once.
            ``"same-class"``: any *other* graph of the destination's class; itself if it is the
            only one. ``"cross-class"``: any graph of another class; any graph at all if the batch
            has one class only. ``"minority"``: a graph of a random class of the batch, each class
            equally likely, so that rare classes are mixed in more often than they occur.

    Example:
        >>> targets = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> Pairing("same-class").sources(targets, "multiclass", np.random.default_rng(0))
        array([1, 0, 2])
    """

    def __init__(self, policy: str = "random") -> None:
        self.policy = check_choice("pairing", policy, POLICIES)

    def __repr__(self) -> str:
        return f"Pairing({self.policy!r})"

    @staticmethod
    def of(pairing: str | Pairing) -> Pairing:
        """A pairing, made of its policy's name where only that is given."""
        return pairing if isinstance(pairing, Pairing) else Pairing(pairing)

    def check(self, task: str) -> None:
        """Refuse a task that has no classes."""
        if task == "regression" and self.policy != "random":
            raise GraphTransplantError(
                f"pairing {self.policy!r} needs classes, but the task is regression: use "
                "pairing='random'"
            )

    def sources(self, targets: Tensor, task: str, rng: np.random.Generator) -> Ints:
        """Choose a source for every graph, int64 ``[graphs]``."""
        self.check(task)
        if self.policy == "random":
            return rng.permutation(len(targets))
        group = self._classes(targets.detach().cpu(), task).numpy()
        members = [np.flatnonzero(group == number) for number in range(group.max() + 1)]
        chosen = np.arange(len(group))
        for graph, own in enumerate(group):
            if self.policy == "minority":
                pool = members[rng.integers(len(members))]
            elif self.policy == "same-class":
                pool = members[own][members[own] != graph]
            else:
                pool = np.flatnonzero(group != own)
                pool = pool if pool.size else np.arange(len(group))
            if pool.size:
                chosen[graph] = pool[rng.integers(pool.size)]
        return chosen

    def _classes(self, targets: Tensor, task: str) -> Tensor:
        """Number the classes among which this policy chooses, int64 ``[graphs]``."""
        if self.policy == "minority" and task == "multilabel":
            # Labels may be mixed already; what is more than half there counts as there.
            classes = rarest_label(targets.ge(0.5).to(targets.dtype))
        else:
            classes = targets.argmax(1) if task == "multiclass" else targets.nan_to_num(nan=-1.0)
        numbered: Tensor = torch.unique(classes, dim=0, return_inverse=True)[1]
        return numbered


def mix_rows(rows: Tensor, source_of: Tensor, weight: Tensor) -> Tensor:
    r"""Mix every row with that of its source: :math:`λ y_\pi + (1 - λ) y`.

    An entry that is missing (NaN) in either row is missing in the mixture, whatever λ is.
    """
    column = weight.unsqueeze(1).to(rows.dtype)
    return column * rows.index_select(0, source_of) + (1 - column) * rows
