"""Pairing policies: which graph each graph of a batch is mixed with."""

from __future__ import annotations

from typing import get_args

import numpy as np
import torch
from torch import Tensor

from graph_transplant.config.options import PairingPolicy
from graph_transplant.data.targets import rarest_label
from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.kernels.arrays import Ints


class Pairing:
    """Chooses a source graph for every graph (destination) of a batch.

    In multilabel tasks, graphs with identical labels form a class; for ``"minority"``, the class of
    a graph is the rarest of its labels in the batch, or none. Regression allows only ``"random"``.

    Args:
        policy: ``"random"``: a random permutation, so every graph is a source once.
            ``"same-class"``: another graph of the destination's class, or itself if it is the only
            one. ``"cross-class"``: any graph of another class, or any graph if the batch has only
            one class. ``"minority"``: a graph of a random class of the batch, each class equally
            likely, which oversamples rare classes.

    Example:
        >>> targets = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> Pairing("same-class").sources(targets, "multiclass", np.random.default_rng(0))
        array([1, 0, 2])
    """

    def __init__(self, policy: PairingPolicy = "random") -> None:
        self.policy = check_choice("pairing", policy, get_args(PairingPolicy))

    def __repr__(self) -> str:
        return f"Pairing({self.policy!r})"

    @staticmethod
    def of(pairing: PairingPolicy | Pairing) -> Pairing:
        """Return a pairing, given one or the name of a policy."""
        return pairing if isinstance(pairing, Pairing) else Pairing(pairing)

    def check(self, task: str) -> None:
        """Raise if the policy needs classes and the task has none."""
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
        """Class number of every graph under this policy, int64 ``[graphs]``."""
        if self.policy == "minority" and task == "multilabel":
            # Labels may already be mixed; those of at least one half count.
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
