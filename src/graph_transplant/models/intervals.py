"""Bootstrap intervals of metrics.

A resample is a row of counts per graph, used as weights: all resamples are one matrix product.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

RESAMPLES: Final = 1000
LEVEL: Final = 0.95

# Approximate number of weights per chunk of resamples.
_PIECE: Final = 1 << 22


def bootstrap_intervals(
    logits: Tensor, targets: Tensor, task: str, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Return 95 % percentile intervals of the metrics.

    Resamples in which a metric is undefined, such as AUROC without a positive graph, are ignored.
    The calibration errors, which resampling biases upwards, and the Brier score have no interval.
    """
    graphs = len(logits)
    generator = np.random.default_rng(seed)
    step = max(1, _PIECE // graphs)
    parts = []
    for begin in range(0, RESAMPLES, step):
        count = min(step, RESAMPLES - begin)
        drawn = generator.multinomial(graphs, np.full(graphs, 1 / graphs), size=count)
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
    """Return metrics by name, ``[sets]``, weighting graphs by ``counts``, ``[sets, graphs]``."""
    weights, scores, wanted = counts.double(), logits.double(), targets.double()
    if task == "multiclass":
        labels, chances = wanted.argmax(1, keepdim=True), scores.log_softmax(1)
        measured = {
            "accuracy": scores.argmax(1, keepdim=True).eq(labels).double(),
            "nll": -chances.gather(1, labels),
        }
        present = torch.ones_like(labels, dtype=torch.bool)
        ranked, positive = (chances[:, 1:] - chances[:, :1], labels.eq(1))
        if scores.shape[1] != 2:
            ranked = ranked[:, :0]
    elif task == "multilabel":
        present, positive, ranked = ~wanted.isnan(), wanted.gt(0.5), scores
        measured = {
            "accuracy": scores.gt(0).eq(positive).double(),
            "nll": softplus(torch.where(positive, -scores, scores)),
        }
    else:
        present, ranked = ~wanted.isnan(), scores[:, :0]
        measured = {"rmse": (scores - wanted).square(), "mae": (scores - wanted).abs()}
    total = weights @ present.sum(1).double()
    found = {
        name: weights @ values.where(present, 0).sum(1) / total for name, values in measured.items()
    }
    if task == "regression":
        found["rmse"] = found["rmse"].sqrt()
        found["r2"] = _explained(scores, wanted, weights)
    if ranked.shape[1]:
        rankings = [
            _rankings(ranked[there, k], positive[there, k], weights[:, there])
            for k, there in enumerate(present.unbind(1))
        ]
        found["auroc"], found["average_precision"] = torch.stack(rankings).nanmean(0)
    return found


def _explained(outputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    present = ~targets.isnan()
    # Centred, since squares of large numbers lose digits.
    centred = (targets - targets.nanmean(0)).where(present, 0)
    squares = weights @ centred.square()
    spread = squares - (weights @ centred).square() / (weights @ present.double())
    error = weights @ (outputs - targets).where(present, 0).square()
    # Equal targets have no spread, up to rounding.
    return torch.where(spread > 1e-12 * squares, 1 - error / spread, torch.nan).nanmean(1)


def _rankings(scores: Tensor, positive: Tensor, weights: Tensor) -> Tensor:
    """Return AUROC and average precision of every set, float ``[2, sets]``."""
    ranks, place = torch.unique(scores, return_inverse=True)
    empty = weights.new_zeros(len(weights), len(ranks))
    hits = empty.index_add(1, place[positive], weights[:, positive])
    misses = empty.index_add(1, place[~positive], weights[:, ~positive])
    positives, negatives = hits.sum(1), misses.sum(1)
    # Pairs with equal scores count one half.
    area = (hits * (misses.cumsum(1) - misses / 2)).sum(1) / (positives * negatives)
    above_hits, above = hits.flip(1).cumsum(1), (hits + misses).flip(1).cumsum(1)
    precision = (hits.flip(1) * above_hits / above.clamp(min=1)).sum(1) / positives
    return torch.stack((area, precision))
