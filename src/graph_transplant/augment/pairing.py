"""Which graph each graph of a batch is mixed with."""

from __future__ import annotations

import torch
from torch import Tensor

from graph_transplant.augment.sampling import uniform
from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.segments import offsets
from graph_transplant.targets import rarest_label

POLICIES = ("random", "same-class", "cross-class", "minority")


class Pairing:
    """Chooses a source graph for every graph of a batch, the destination.

    Classes are those of the graphs themselves; with several labels per graph, two graphs are of one
    class when all their labels agree, missing ones included. Only for ``"minority"`` such a graph's
    class is the rarest label it has (in the batch), and graphs without any label are one class too:
    with many labels nearly every combination of them is the only one of its kind, and drawing them
    alike would favour nothing. Regression has no classes: only ``"random"`` pairing.

    Args:
        policy: ``"random"``: a random permutation, so that every graph is a source once.
            ``"same-class"``: any *other* graph of the destination's class; itself if it is the
            only one. ``"cross-class"``: any graph of another class; any graph at all if the batch
            has one class only. ``"minority"``: a graph of a random class of the batch, each class
            equally likely, so that rare classes are mixed in more often than they occur.

    Example:
        >>> targets = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> Pairing("same-class").sources(targets, "multiclass", None)
        tensor([1, 0, 2])
        >>> Pairing("cross-class").sources(targets, "multiclass", None)[:2]
        tensor([2, 2])
    """

    def __init__(self, policy: str = "random") -> None:
        self.policy = check_choice("pairing", policy, POLICIES)

    def __repr__(self) -> str:
        return f"Pairing({self.policy!r})"

    def check(self, task: str) -> None:
        """Refuse a task that has no classes.

        Args:
            task: What the targets are.
        """
        if task == "regression" and self.policy != "random":
            raise GraphTransplantError(
                f"pairing {self.policy!r} needs classes, but the task is regression: use "
                "pairing='random'"
            )

    def sources(self, targets: Tensor, task: str, generator: torch.Generator | None) -> Tensor:
        """Choose a source for every graph.

        Args:
            targets: float ``[graphs, outputs]``.
            task: What the targets are.
            generator: Source of randomness; ``None`` is torch's own.

        Returns:
            Numbers of graphs, int64 ``[graphs]``.
        """
        self.check(task)
        graphs = targets.shape[0]
        keys = uniform((graphs,), generator, targets.device)
        if self.policy == "random":
            return torch.argsort(keys)
        group = self._classes(targets, task)
        order = torch.argsort(group, stable=True)
        size = torch.bincount(group)
        ptr = offsets(size)
        mine, first = size.index_select(0, group), ptr.index_select(0, group)
        if self.policy == "minority":
            # The classes of the batch lie evenly on [0, 1): one number names class and member.
            scaled = keys * size.numel()
            drawn = scaled.to(torch.long).clamp_(max=size.numel() - 1)
            inside = ((scaled - drawn) * size.index_select(0, drawn)).to(torch.long)
            return order.index_select(0, ptr.index_select(0, drawn) + inside)
        if self.policy == "same-class":
            place = torch.empty_like(order)
            place.scatter_(0, order, torch.arange(graphs, device=order.device))
            rank = (keys * (mine - 1)).to(torch.long)
            rank = rank + (first + rank >= place)  # step over oneself
            rank = torch.where(mine > 1, rank, 0)
            return order.index_select(0, first + rank)
        others = graphs - mine
        place = (keys * torch.where(others > 0, others, graphs)).to(torch.long)
        place = torch.where((others > 0) & (place >= first), place + mine, place)
        return order.index_select(0, place)

    def _classes(self, targets: Tensor, task: str) -> Tensor:
        """Number the classes among which this policy chooses, int64 ``[graphs]``."""
        if self.policy != "minority" or task != "multilabel":
            return classes_of(targets, task)
        # Labels may be mixed already; what is more than half there counts as there.
        rarest = rarest_label(targets.ge(0.5).to(targets.dtype))
        group: Tensor
        _, group = torch.unique(rarest, return_inverse=True)
        return group


def classes_of(targets: Tensor, task: str) -> Tensor:
    """Number the classes that occur among targets.

    Args:
        targets: float ``[graphs, outputs]``; for ``"multiclass"`` the largest entry of a row names
            the class, otherwise the whole row does.
        task: What the targets are.

    Returns:
        int64 ``[graphs]``, from 0 without gaps.

    Example:
        >>> classes_of(torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]), "multiclass")
        tensor([1, 0])
    """
    group: Tensor
    if task == "multiclass":
        _, group = torch.unique(targets.argmax(1), return_inverse=True)
    else:
        _, group = torch.unique(targets.nan_to_num(nan=-1.0), dim=0, return_inverse=True)
    return group


def mix_rows(rows: Tensor, source_of: Tensor, weight: Tensor) -> Tensor:
    r"""Mix every row with that of its source: :math:`λ y_\pi + (1 - λ) y`.

    An entry that is missing (NaN) in either row is missing in the mixture, whatever λ is: half a
    label says nothing about the other half.

    Args:
        rows: Targets or embeddings, float ``[graphs, columns]``.
        source_of: The source graph of every graph, int64 ``[graphs]``.
        weight: λ, float ``[graphs]``.

    Returns:
        float ``[graphs, columns]``.

    Example:
        >>> mix_rows(torch.eye(2), torch.tensor([1, 0]), torch.tensor([0.25, 0.5]))
        tensor([[0.7500, 0.2500],
                [0.5000, 0.5000]])
        >>> missing = torch.tensor([[1.0, float("nan")], [0.0, 1.0]])
        >>> mix_rows(missing, torch.tensor([1, 1]), torch.tensor([0.25, 0.5]))
        tensor([[0.7500,    nan],
                [0.0000, 1.0000]])
    """
    column = weight.unsqueeze(1).to(rows.dtype)
    return column * rows.index_select(0, source_of) + (1 - column) * rows


def as_pairing(pairing: str | Pairing) -> Pairing:
    """Return a pairing, made of its policy's name where only that is given.

    Args:
        pairing: A policy or a :class:`Pairing`.
    """
    if isinstance(pairing, str):
        return Pairing(pairing)
    if not isinstance(pairing, Pairing):
        raise GraphTransplantError(
            f"`pairing` must be one of {', '.join(POLICIES)} or a Pairing, got "
            f"{type(pairing).__name__}"
        )
    return pairing
