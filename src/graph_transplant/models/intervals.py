"""How much a measurement depends on the graphs it was taken on: bootstrap intervals.

The test graphs are drawn again with replacement, many times over. A resample is a row of counts,
one per graph, and every measurement is written with such weights: all resamples are one product of
matrices, instead of a loop.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from graph_transplant.errors import check_choice
from graph_transplant.metrics import TASKS

RESAMPLES: Final = 1000
LEVEL: Final = 0.95

# Resamples are taken in pieces of about so many weights.
_PIECE: Final = 1 << 22


def bootstrap_intervals(
    logits: Tensor, targets: Tensor, task: str, *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Give 95 % percentile intervals of what :func:`~graph_transplant.metrics.measure` measures.

    Resamples in which a measurement is not defined, such as AUROC without a positive graph, do not
    count for it. The calibration errors, which resampling makes larger, and Brier have none.

    Args:
        logits: float ``[graphs, outputs]``; for regression values.
        targets: float ``[graphs, outputs]``, with NaN where an entry is missing.
        task: ``"multiclass"``, ``"multilabel"`` or ``"regression"``.
        resamples: How often the graphs are drawn.
        seed: Determines the draws.

    Returns:
        Lower and upper end by measurement; those that are never defined are left out.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0]] * 8 + [[0.0, 2.0]] * 2)
        >>> targets = torch.tensor([[1.0, 0.0]] * 10)
        >>> bootstrap_intervals(logits, targets, "multiclass")["accuracy"]
        (0.5, 1.0)
    """
    graphs = len(logits)
    generator = np.random.default_rng(seed)
    share = np.full(graphs, 1 / graphs)
    step = max(1, _PIECE // graphs)
    parts = []
    for begin in range(0, resamples, step):
        drawn = generator.multinomial(graphs, share, size=min(step, resamples - begin))
        parts.append(weighted_measures(logits, targets, task, torch.from_numpy(drawn)))
    ends = torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=torch.double)
    found = {}
    for name in parts[0]:
        values = torch.cat([part[name] for part in parts])
        if not bool(values.isnan().all()):
            low, high = torch.nanquantile(values, ends).tolist()
            found[name] = (low, high)
    return found


def weighted_measures(
    logits: Tensor, targets: Tensor, task: str, counts: Tensor
) -> dict[str, Tensor]:
    """Measure predictions in which every graph stands as often as is said, for many such sets.

    Args:
        logits: float ``[graphs, outputs]``.
        targets: float ``[graphs, outputs]``.
        task: ``"multiclass"``, ``"multilabel"`` or ``"regression"``.
        counts: How often each graph stands in each set, integer ``[sets, graphs]``.

    Returns:
        By measurement float64 ``[sets]``: what :func:`~graph_transplant.metrics.measure` gives for
        the graphs written out, but for the calibration errors and the Brier score.

    Example:
        >>> logits, targets = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> weighted_measures(logits, targets, "multiclass", torch.tensor([[1, 1], [0, 2]]))["nll"]
        tensor([0.8133, 1.3133], dtype=torch.float64)
    """
    check_choice("task", task, TASKS)
    weights, scores = counts.to(torch.double), logits.to(torch.double)
    wanted = targets.to(torch.double)
    if task == "regression":
        return _of_values(scores, wanted, weights)
    if task == "multilabel":
        return _of_labels(scores, wanted, weights)
    return _of_classes(scores, wanted, weights)


def _of_classes(scores: Tensor, targets: Tensor, weights: Tensor) -> dict[str, Tensor]:
    labels = targets.argmax(1)
    log_probabilities = scores.log_softmax(1)
    right = scores.argmax(1).eq(labels).to(torch.double)
    lost = -log_probabilities.gather(1, labels.unsqueeze(1)).squeeze(1)
    total = weights.sum(1)
    found = {"accuracy": weights @ right / total, "nll": weights @ lost / total}
    if scores.shape[1] == 2:
        margin = log_probabilities[:, 1] - log_probabilities[:, 0]
        found["auroc"], found["average_precision"] = _rankings(margin, labels.eq(1), weights)
    return found


def _of_labels(scores: Tensor, targets: Tensor, weights: Tensor) -> dict[str, Tensor]:
    present = ~targets.isnan()
    positive = targets.gt(0.5)
    right = scores.gt(0).eq(positive) & present
    lost = softplus(torch.where(positive, -scores, scores)).masked_fill(~present, 0.0)
    total = weights @ present.sum(1).to(torch.double)
    rankings = [
        torch.stack(_rankings(score[there], is_positive[there], weights[:, there]))
        for score, is_positive, there in zip(
            scores.unbind(1), positive.unbind(1), present.unbind(1), strict=True
        )
    ]
    areas, precisions = torch.stack(rankings).nanmean(0)
    return {
        "accuracy": weights @ right.sum(1).to(torch.double) / total,
        "nll": weights @ lost.sum(1) / total,
        "auroc": areas,
        "average_precision": precisions,
    }


def _of_values(outputs: Tensor, targets: Tensor, weights: Tensor) -> dict[str, Tensor]:
    present = ~targets.isnan()
    error = (outputs - targets).masked_fill(~present, 0.0)
    total = weights @ present.sum(1).to(torch.double)
    # Squares around some middle lose fewer digits than squares of large numbers.
    centred = (targets - targets.nanmean(0)).masked_fill(~present, 0.0)
    count = weights @ present.to(torch.double)
    squares = weights @ centred.square()
    spread = squares - (weights @ centred).square() / count
    # Equal targets have no spread, but for rounding.
    varies = spread > 1e-12 * squares
    explained = (1 - weights @ error.square() / spread).masked_fill(~varies, float("nan"))
    return {
        "rmse": (weights @ error.square().sum(1) / total).sqrt(),
        "mae": weights @ error.abs().sum(1) / total,
        "r2": explained.nanmean(1),
    }


def _rankings(scores: Tensor, positive: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the area under the ROC curve and the average precision of every set.

    Args:
        scores: float ``[graphs]``.
        positive: bool ``[graphs]``.
        weights: float ``[sets, graphs]``.

    Returns:
        Both float ``[sets]``, NaN where they are not defined.
    """
    ranks, place = torch.unique(scores, return_inverse=True)
    empty = weights.new_zeros(len(weights), len(ranks))
    hits = empty.index_add(1, place[positive], weights[:, positive])
    misses = empty.index_add(1, place[~positive], weights[:, ~positive])
    positives, negatives = hits.sum(1), misses.sum(1)
    # Graphs of one score are not told apart: half of their pairs count as right.
    below = misses.cumsum(1) - misses / 2
    area = (hits * below).sum(1) / (positives * negatives)
    above_hits, above = hits.flip(1).cumsum(1), (hits + misses).flip(1).cumsum(1)
    precision = (hits.flip(1) * above_hits / above.clamp(min=1)).sum(1) / positives
    return area, precision
