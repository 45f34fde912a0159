"""Uncertainty of predictions: conformal sets and intervals, similarity to the training graphs.

Split conformal prediction on the validation graphs covers the stated share of new graphs from the
same distribution. The coverage is approximate, since the same graphs select the epoch and the
temperature, and does not hold for other kinds of graphs, such as new scaffolds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from graph_transplant.errors import DataError
from graph_transplant.graphs import GraphStore
from graph_transplant.kernels.fingerprints import BITS, nearest
from graph_transplant.models.similarity import fingerprints, label_columns

COVERAGE: Final = 0.9  # default share of new graphs that sets and intervals should cover
MOST_KNOWN: Final = 5_000  # maximum number of training graphs to compare with

# Minimum number of graphs for comparing a quarter with the rest.
_FEWEST: Final = 20
_LEAST_ALIKE: Final = 0.05


@dataclass(frozen=True, eq=False)
class Reference:
    """Reference data for uncertainty, saved with the weights of a model."""

    scores: Tensor  # `scores_of` the validation graphs; NaN where a target is missing
    known: Tensor  # fingerprints of training graphs, int64 [graphs, 32]
    of_nodes: Tensor  # which node features the fingerprints use, bool [features]
    of_edges: Tensor  # the same for edge features

    @classmethod
    def of(cls, train: GraphStore, scores: Tensor, *, edges: bool, seed: int) -> Reference:
        """Summarise training graphs; ``edges`` includes edge features."""
        if len(train) > MOST_KNOWN:
            drawn = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
            train = train.subset(drawn[:MOST_KNOWN])
        of_nodes, of_edges = label_columns(train)
        of_edges = of_edges if edges else of_edges[:0]
        known = np.unique(fingerprints(train, of_nodes, of_edges), axis=0).view(np.int64)
        return cls(scores, *map(torch.from_numpy, (known, of_nodes, of_edges)))

    def similarity(self, store: GraphStore) -> Tensor:
        """Return each graph's highest Tanimoto similarity to a training graph, ``[graphs]``."""
        rows = fingerprints(store, self.of_nodes.numpy(), self.of_edges.numpy())
        return torch.from_numpy(nearest(rows, self.known.numpy().view(np.uint64)))

    def check(self, where: str, columns: int, widths: tuple[int, int]) -> None:
        """Raise a `DataError` if tensors from a file do not fit the model."""
        tensors = (self.scores, self.known, self.of_nodes, self.of_edges)
        types, shapes = zip(*((each.dtype, tuple(each.shape)) for each in tensors), strict=True)
        if (
            types != (torch.double, torch.long, torch.bool, torch.bool)
            or (shapes[0][1:], shapes[1][1:]) != ((columns,), (BITS // 64,))
            or shapes[2:] != ((widths[0],), (widths[1],))
        ):
            raise DataError(f"{where}: the reference tensors do not fit the model")


def scores_of(outputs: Tensor, targets: Tensor, task: str) -> Tensor:
    """Nonconformity, ``[graphs, 1 or outputs]``: 1 - p of the true value, or the absolute error."""
    exact, wanted = outputs.double(), targets.double()
    if task == "multiclass":
        return 1 - exact.gather(1, wanted.argmax(1, keepdim=True))
    return (exact - wanted).abs()


def conformal_bounds(scores: Tensor, coverage: float) -> Tensor:
    """Upper bounds on the scores of a new graph with probability ``coverage``, ``[columns]``.

    The ⌈(n + 1) · coverage⌉-th smallest of n scores; infinity if there are too few.
    """
    found = []
    for column in scores.unbind(1):
        known = column[~column.isnan()].sort().values
        # The inner rounding corrects floating-point errors: 0.55 * 100 is 55.00000000000001.
        rank = math.ceil(round((len(known) + 1) * coverage, 9))
        found.append(float(known[rank - 1]) if 0 < rank <= len(known) else math.inf)
    return torch.tensor(found, dtype=torch.double)


def graphs_needed(coverage: float) -> int:
    """Return from how many scores on :func:`conformal_bounds` are finite."""
    return math.ceil(round(coverage / (1 - coverage), 9))


def likely(outputs: Tensor, bounds: Tensor, task: str) -> Tensor:
    """Prediction sets, bool ``[graphs, classes]``; for labels ``[graphs, labels, 2]``, no and yes.

    No set is empty: the most likely value is always included.
    """
    chances = outputs.double() if task == "multiclass" else torch.stack((1 - outputs, outputs), 2)
    limit = bounds if task == "multiclass" else bounds[:, None]
    return (1 - chances <= limit) | (chances == chances.amax(-1, keepdim=True))


def set_words(outputs: Tensor, bounds: Tensor, task: str, names: tuple[str, ...]) -> list[str]:
    """Format sets: classes, or labels that may be present, with ``?`` if undecided."""
    held = likely(outputs, bounds, task)
    if task == "multiclass":
        rows = held.tolist()
        return [";".join(n for n, there in zip(names, row, strict=True) if there) for row in rows]
    return [
        ";".join(f"{n}?" if no else n for n, (no, yes) in zip(names, row, strict=True) if yes)
        for row in held.tolist()
    ]


def graph_errors(outputs: Tensor, targets: Tensor, task: str) -> Tensor:
    """Return the error of every graph, float64 ``[graphs]``; NaN if no target is known.

    Whether the class is wrong, the share of wrong labels, or the mean absolute error of values,
    each divided by the standard deviation of its targets.
    """
    if task == "multiclass":
        return outputs.argmax(1).ne(targets.argmax(1)).double()
    if task == "multilabel":
        wrong = outputs.ge(0.5).ne(targets.gt(0.5)).double()
        return wrong.where(~targets.isnan(), torch.nan).nanmean(1)
    wanted = targets.double()
    size = (wanted - wanted.nanmean(0)).square().nanmean(0).sqrt().clamp(min=1e-12)
    return ((outputs.double() - wanted).abs() / size).nanmean(1)


def divided(errors: Tensor, first: Tensor) -> dict[str, Any] | None:
    """Compare the errors of the graphs ``first`` with the rest; ``None`` if either is too few."""
    known = ~errors.isnan()
    one, other = errors[known & first], errors[known & ~first]
    if min(len(one), len(other)) < _FEWEST // 4:
        return None
    from scipy.stats import mannwhitneyu  # slow to import

    chance = float(mannwhitneyu(one, other, alternative="greater").pvalue)
    found = {"graphs": len(one), "first": float(one.mean()), "rest": float(other.mean())}
    return found | {"chance": 1.0 if math.isnan(chance) else chance}


def similarity_threshold(similarity: Tensor, errors: Tensor) -> tuple[float, bool]:
    """Return the similarity below which to warn, and whether the validation graphs justify it.

    The lower quartile, if errors below it are significantly larger; otherwise the 5 % quantile.
    """
    quarter = float(similarity.quantile(0.25))
    found = divided(errors, similarity < quarter) if len(errors) >= _FEWEST else None
    if found is not None and found["chance"] < 0.05:
        return quarter, True
    return float(similarity.quantile(_LEAST_ALIKE)), False


def uncertainty_figures(
    reference: Reference,
    task: str,
    validation: tuple[GraphStore, Tensor, Tensor],
    test: tuple[GraphStore, Tensor, Tensor] | None,
    spread: Tensor | None,
) -> dict[str, Any]:
    """Evaluate prediction sets, ensemble spread and similarity on the test graphs.

    Both parts are graphs, outputs and targets in the units of the data; ``spread`` is the
    ensemble's on the test graphs.
    """
    store, outputs, targets = validation
    threshold, justified = similarity_threshold(
        reference.similarity(store), graph_errors(outputs, targets, task)
    )
    likeness: dict[str, Any] = {"threshold": threshold, "justified": justified, "test": None}
    found: dict[str, Any] = {
        "coverage": COVERAGE, "held": None, "size": None, "spread": None, "similarity": likeness,
    }  # fmt: skip
    if test is None:
        return found
    store, outputs, targets = test
    bounds = conformal_bounds(reference.scores, COVERAGE)
    scores = scores_of(outputs, targets, task)
    within = (scores <= bounds).double()
    if task != "regression":
        held = likely(outputs, bounds, task)
        found["size"] = float(held.double().sum(-1).mean())
        wanted = targets.argmax(1) if task == "multiclass" else targets.nan_to_num().long()
        within = held.gather(-1, wanted.unsqueeze(-1)).double().reshape(scores.shape)
    known = ~scores.isnan() & (bounds.isfinite() if task == "regression" else True)
    found["held"] = float(within[known].mean())
    errors = graph_errors(outputs, targets, task)
    likeness["test"] = divided(errors, reference.similarity(store) < threshold)
    if spread is not None and len(errors) >= _FEWEST:
        found["spread"] = divided(errors, spread > spread.quantile(0.75))
    return found
