"""Power of Wilcoxon's signed-rank test across data sets, by simulation.

    python reproduction/power.py      # the table of prespecified.md

A data set's true difference is drawn around the mean difference, with a standard deviation of
``BETWEEN`` points between data sets; its measured difference has an error as in the records of
``results/full``: the standard errors of five folds of one repeat.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

RESULTS = Path(__file__).resolve().parent.parent / "results" / "full"
MEAN_DIFFERENCES = (0.0, 1.0, 2.0, 3.0)
BETWEEN = 1.5
DATA_SETS = (5, 6, 8, 10, 12)
# Standard errors in points of the differences to plain training that were known when this was
# specified: ENZYMES, NCI1, Mutagenicity (DP and EP) and COIL-DEL (DP).
ERRORS = (2.2, 3.3, 1.3, 0.7, 0.8, 0.6, 1.8)

Floats = npt.NDArray[np.float64]


def ranks(values: Floats) -> Floats:
    """Ranks along the last axis, from 1; without ties."""
    return values.argsort(axis=-1).argsort(axis=-1) + 1.0


def null_distribution(n: int) -> dict[float, float]:
    """Probability that the sum of positive ranks is at least w, for every w, without ties."""
    counts: dict[float, int] = defaultdict(int)
    for signs in product((0, 1), repeat=n):
        counts[float(np.dot(signs, np.arange(1, n + 1)))] += 1
    tail, total = {}, 0
    for w in sorted(counts, reverse=True):
        total += counts[w]
        tail[w] = total / 2**n
    return tail


def power(n: int, difference: float, level: float, rng: np.random.Generator, draws: int) -> float:
    """Share of simulated comparisons in which the one-sided test is significant at ``level``."""
    true = difference + BETWEEN * rng.standard_normal((draws, n))
    measured = true + rng.choice(ERRORS, (draws, n)) * rng.standard_normal((draws, n))
    statistic = np.where(measured > 0, ranks(np.abs(measured)), 0.0).sum(axis=1)
    critical = min((w for w, p in null_distribution(n).items() if p <= level), default=np.inf)
    return float((statistic >= critical).mean())


def table(draws: int = 20_000) -> str:
    """Power by number of data sets and mean difference, as Markdown."""
    rng = np.random.default_rng(0)
    lines = [
        "| data sets | level | " + " | ".join(f"{d:.0f} points" for d in MEAN_DIFFERENCES) + " |",
        "|---" * (2 + len(MEAN_DIFFERENCES)) + "|",
    ]
    for n, level in product(DATA_SETS, (0.05, 0.025)):
        shares = [power(n, d, level, rng, draws) for d in MEAN_DIFFERENCES]
        lines.append(f"| {n} | {level} | " + " | ".join(f"{s:.2f}" for s in shares) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=20_000, help="simulations per cell")
    print(table(parser.parse_args().draws))
