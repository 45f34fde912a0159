"""Bootstrap intervals of metrics."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor

from graph_transplant.metrics import METRICS

RESAMPLES: Final = 1000
LEVEL: Final = 0.95

# Without the calibration errors, which resampling biases upwards, and the Brier score.
_MEASURED: Final = ("accuracy", "nll", "auroc", "average_precision", "rmse", "mae", "r2")

# Above about this number of targets in all resamples, fewer are drawn, but at least a fifth.
_MOST_TARGETS: Final = 10_000_000


def bootstrap_intervals(
    logits: Tensor, targets: Tensor, task: str, seed: int = 0, *, rival: Tensor | None = None
) -> dict[str, tuple[float, float]]:
    """Return 95 % percentile intervals of the metrics, or of their differences to a ``rival``.

    Resamples in which a metric is undefined, such as AUROC without a positive graph, are ignored.
    """
    graphs = len(logits)
    generator = np.random.default_rng(seed)
    measured = [name for name in _MEASURED if task in METRICS[name].tasks]
    resamples = max(RESAMPLES // 5, min(RESAMPLES, _MOST_TARGETS // targets.numel()))
    values = np.zeros((resamples, len(measured)))
    for row in values:
        counts = generator.multinomial(graphs, np.full(graphs, 1 / graphs))
        drawn = torch.from_numpy(np.repeat(np.arange(graphs), counts))
        for outputs, sign in ((logits, 1), (rival, -1)):
            if outputs is not None:
                found = [METRICS[k].compute(outputs[drawn], targets[drawn], task) for k in measured]
                # None, for a metric that does not apply, becomes NaN.
                row += sign * np.array(found, float)
    ends = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    intervals = {}
    for name, column in zip(measured, values.T, strict=True):
        if not np.isnan(column).all():
            low, high = np.nanquantile(column, ends).tolist()
            intervals[name] = (low, high)
    return intervals
