"""How much of its graph each part carries: label weights (section "Adaptive Label Mixing")."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from graph_transplant.graphs import Layout
from graph_transplant.segments import segment_sum


class Importance(ABC):
    """The share of a graph's importance that lies in the kept nodes."""

    @abstractmethod
    def share(self, keep: Tensor, saliency: Tensor, layout: Layout) -> Tensor:
        """Return the share of every graph.

        Args:
            keep: The part, bool ``[nodes]``.
            saliency: float ``[nodes]``.
            layout: Which nodes belong to which graph.

        Returns:
            float ``[graphs]`` between 0 and 1.
        """


def _totals(values: Tensor, layout: Layout) -> Tensor:
    """Sum of the values of each graph, float64 ``[graphs]``."""
    return segment_sum(values.to(torch.double), layout.segment, layout.ptr)


class SizeImportance(Importance):
    """The share of the nodes (ablation "Size-based Label").

    Example:
        >>> layout = Layout(torch.tensor([0, 0, 0, 0]), torch.tensor([0, 4]))
        >>> keep = torch.tensor([True, False, False, False])
        >>> SizeImportance().share(keep, torch.ones(4), layout)
        tensor([0.2500])
    """

    def share(self, keep: Tensor, saliency: Tensor, layout: Layout) -> Tensor:
        """Return the share of every graph; see :meth:`Importance.share`."""
        share = _totals(keep, layout) / layout.counts.clamp(min=1)
        return share.to(saliency.dtype)


class SaliencyImportance(Importance):
    r"""The share of the saliency: :math:`I(S, V) = \sum_{v \in V} s_v / \|S\|_1`.

    A graph all of whose saliency is zero is measured by size.

    Example:
        >>> layout = Layout(torch.tensor([0, 0, 0, 0]), torch.tensor([0, 4]))
        >>> keep = torch.tensor([True, False, False, False])
        >>> SaliencyImportance().share(keep, torch.tensor([3.0, 0.0, 1.0, 0.0]), layout)
        tensor([0.7500])
    """

    def share(self, keep: Tensor, saliency: Tensor, layout: Layout) -> Tensor:
        """Return the share of every graph; see :meth:`Importance.share`."""
        total = _totals(saliency, layout)
        part = _totals(saliency * keep, layout)
        known = total > 0
        share = torch.where(known, part / torch.where(known, total, 1.0), 0.0)
        size = SizeImportance().share(keep, saliency, layout)
        return torch.where(known, share.to(saliency.dtype), size)


def label_weights(source_share: Tensor, destination_share: Tensor) -> Tensor:
    r"""Return :math:`\lambda = I_\pi / (I_\pi + I)`, the weight of the source's label.

    Args:
        source_share: :math:`I(S_{G_\pi}, \bar V_\pi)`, float ``[graphs]``.
        destination_share: :math:`I(S_G, V \setminus \bar V)`, float ``[graphs]``.

    Returns:
        float ``[graphs]`` between 0 and 1; one half where both shares are zero.

    Example:
        >>> label_weights(torch.tensor([0.6, 0.0]), torch.tensor([0.2, 0.0]))
        tensor([0.7500, 0.5000])
    """
    total = source_share + destination_share
    known = total > 0
    return torch.where(known, source_share / torch.where(known, total, 1.0), 0.5)
