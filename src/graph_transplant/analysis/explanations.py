"""Whether node saliency points at what counts: known motifs, and curves of cut graphs.

The paper shows saliency by examples. Here it is measured: against the nodes that are known to make
the class, and by taking salient nodes away or keeping them alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from graph_transplant.augment.perturb import keep_parts
from graph_transplant.errors import check_at_least
from graph_transplant.graphs import GraphBatch, GraphStore
from graph_transplant.kernels.compiling import Ints
from graph_transplant.nn import Prediction, evaluating
from graph_transplant.saliency import (
    NodeSaliency,
    Predictor,
    as_predictor,
    margins,
    read_saliency,
)
from graph_transplant.segments import rank_in_segment
from graph_transplant.targets import Loss, batch_targets, targets_of
from graph_transplant.training import evaluated_at_once

MOTIF_FIELD: Final = "motif_mask"
"""The node field of a store that marks the nodes which make the class."""

STEPS: Final = 10  # a curve has so many steps: shares 0, 0.1, … 1

# Nodes and edges of cut graphs that are predicted at a time.
_CUT_ITEMS: Final = 1 << 17

CURVES: Final = ("deletion", "insertion", "deletion_random", "insertion_random")
"""What a point of a saliency curve holds beside its share."""

# Fraction of the golden ratio: its multiples fill an interval evenly and follow no period.
_GOLDEN: Final = 0.6180339887498949


def saliency_quality(
    model: nn.Module,
    store: GraphStore,
    *,
    reading: NodeSaliency | None = None,
    seed: int,
    graphs: int = 500,
) -> dict[str, Any]:
    """Measure whether the most salient nodes are those that determine the class.

    *Motifs.* Where the store marks the nodes that make the class (``motif_mask``), the saliency of
    training, but in evaluation mode, is scored against the marks; see :func:`motif_scores`.

    *Curves.* The nodes of every graph are ordered by their saliency for the class that the model
    predicts for it, or for the label with the highest probability. Deletion takes the most salient
    ones away, insertion keeps them alone; at every share stands the mean probability of that class.
    Good saliency makes the deletion curve fall early and the insertion curve rise early, each
    compared with a random order. Of n nodes a share means the nearest whole number, halves rounded
    up; one node always stays. What stays is the induced subgraph.

    Args:
        model: A :class:`~graph_transplant.GraphClassifier` or any other model over PyG batches.
        store: The graphs, usually those that training did not see.
        reading: How saliency is read. (default: ``NodeSaliency()``, as in training)
        seed: Determines the random order, and the order of equally salient nodes.
        graphs: At most so many graphs are looked at, see :func:`spread`.

    Returns:
        ``saliency``: the number of ``graphs``, the areas under the four :data:`CURVES`, and with
        known motifs ``auroc``, ``precision`` and ``chance``. ``saliency_curve``: the four
        probabilities at every share. Nothing at all for regression, where no class is predicted.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs", graphs=60)
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, seed=0)
        >>> found = saliency_quality(model, store, seed=0, graphs=30)
        >>> found["saliency"]["graphs"], round(found["saliency"]["chance"], 2)
        (30, 0.24)
    """
    check_at_least(1, graphs=graphs)
    if store.task == "regression":
        return {}
    predictor, reading = as_predictor(model), reading or NodeSaliency()
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    part = store.subset(spread(len(store), graphs))
    generator = torch.Generator().manual_seed(seed)
    nodes = int(part.node_counts.sum())
    # Drawn for all graphs at once, so that the size of a batch decides nothing.
    keys = torch.rand(2, nodes, dtype=torch.double, generator=generator)
    total = torch.zeros(len(CURVES), STEPS + 1, dtype=torch.double)
    found: list[MotifScores] = []
    done, first = 0, 0
    with evaluating(model):
        for batch in part.batches(torch.arange(len(part)), evaluated_at_once(part)):
            batch = batch.to(device)
            prediction, saliency, followed = _read(predictor, batch, store.task, reading)
            ptr = torch.from_numpy(batch.ptr)
            tie, order = keys[:, done : done + batch.num_nodes]
            done += batch.num_nodes
            ranks = (
                salient_order(followed.cpu(), ptr, tie).numpy(),
                rank_in_segment(order, _segment(ptr), ptr).numpy(),
            )
            here = torch.arange(first, first + batch.num_graphs)
            first += batch.num_graphs

            def copies(many: int, graphs: Tensor = here) -> GraphBatch:
                return part.batch(graphs.repeat(many)).to(device)

            total += _curves(predictor, copies, batch, prediction.logits, store.task, ranks).cpu()
            if MOTIF_FIELD in batch.nodes:
                found.append(motif_scores(saliency.cpu(), batch.nodes[MOTIF_FIELD].cpu(), ptr))
    curves = total / len(part)
    areas = torch.trapezoid(curves, dx=1 / STEPS).tolist()
    measured: dict[str, float | int] = {
        "graphs": len(part),
        **dict(zip(CURVES, areas, strict=True)),
        **_means(found),
    }
    points = [
        {"share": step / STEPS, **dict(zip(CURVES, column, strict=True))}
        for step, column in enumerate(curves.T.tolist())
    ]
    return {"saliency": measured, "saliency_curve": points}


def spread(total: int, count: int) -> Tensor:
    """Choose some of many graphs, evenly spread and always the same: one of each stretch.

    Its place within the stretch changes from one to the next: data sets whose classes take turns
    would else give graphs of one class alone.
    """
    count = min(total, count)
    number = torch.arange(count)
    bounds = torch.arange(count + 1) * total // max(count, 1)
    place = number.to(torch.double).mul_(_GOLDEN).frac_()
    return bounds[:-1] + (place * bounds.diff()).to(torch.long)


def _segment(ptr: Tensor) -> Tensor:
    """The graph of every node."""
    return torch.repeat_interleave(ptr.diff())


def salient_order(saliency: Tensor, ptr: Tensor, keys: Tensor) -> Tensor:
    """Rank the nodes of each graph, int64 ``[nodes]``: 0 for the most salient one.

    ``keys``, float64 in ``[0, 1)``, decide between equally salient nodes.
    """
    # Whole numbers in the order of the values leave the room below one to the random keys.
    level = torch.unique(saliency, return_inverse=True)[1]
    return rank_in_segment(keys - level, _segment(ptr), ptr)


class MotifScores(NamedTuple):
    """How well the saliency of some graphs finds the nodes known to count, float64 ``[graphs]``."""

    auroc: Tensor
    """Probability that a marked node is more salient than another one of its graph."""
    precision: Tensor
    """Share of marked nodes among the k most salient ones, of k marked nodes in all."""
    chance: Tensor
    """Share of marked nodes, the precision of a random order."""


def motif_scores(saliency: Tensor, marked: Tensor, ptr: Tensor) -> MotifScores:
    """Score saliency against the ``marked`` nodes that are known to count, all graphs at once.

    Equally salient nodes count by the mean over their orders. A graph all of whose nodes are
    marked, or none, is left out; where saliency is not finite the scores of its graph are NaN.
    """
    scores = []
    for first, last in pairwise(ptr.tolist()):
        values, inside = saliency[first:last].numpy(), marked[first:last].bool().numpy()
        nodes, size = last - first, int(inside.sum())
        if not 0 < size < nodes:
            continue
        if not np.isfinite(values).all():
            scores.append((math.nan, math.nan, size / nodes))
            continue
        ordered, theirs = np.sort(values), values[inside]
        # Ranks from 1; where values tie, the lowest and the highest of theirs.
        lowest = np.searchsorted(ordered, theirs, "left") + 1
        highest = np.searchsorted(ordered, theirs, "right")
        # Sum of the ranks of marked nodes, as Mann and Whitney count.
        above = float((lowest + highest).sum()) / 2 - size * (size + 1) / 2
        # Of nodes that tie for the last places among the k most salient, each has its chance.
        chosen = (size - (nodes - highest)) / (highest - lowest + 1)
        hits = sum(chosen.clip(0.0, 1.0).tolist())
        scores.append((above / (size * (nodes - size)), hits / size, size / nodes))
    return MotifScores(*torch.tensor(scores, dtype=torch.double).view(-1, 3).unbind(1))


def _means(found: Sequence[MotifScores]) -> dict[str, float]:
    """Average over all graphs; nothing where no graph has a motif to find."""
    if not sum(len(scores.chance) for scores in found):
        return {}
    joined = (torch.cat(each).mean() for each in zip(*found, strict=True))
    return dict(zip(MotifScores._fields, map(float, joined), strict=True))


def _read(
    predictor: Predictor, batch: GraphBatch, task: str, reading: NodeSaliency
) -> tuple[Prediction, Tensor, Tensor]:
    """Return the prediction and two saliencies: of the true targets, of what is predicted."""
    prediction, _, followed = read_saliency(predictor, batch, task, reading)
    logits = prediction.logits
    with torch.enable_grad():
        targets = batch_targets(batch, logits.shape[1])
        # The loss of a class is log(1 + exp(-m)) of its log-odds m: its gradient is that of -m
        # times the probability of being wrong. That factor is the same for all nodes of a graph,
        # and it vanishes where the model is very sure; without it such graphs keep their order.
        if task == "multiclass" and logits.shape[1] > 1:
            loss = -margins(logits, targets.argmax(1), task)
        else:
            loss = Loss(task)(logits, targets)
        return prediction, reading.read(loss.sum(), prediction), followed


def _curves(
    predictor: Predictor,
    copies: Callable[[int], GraphBatch],
    batch: GraphBatch,
    logits: Tensor,
    task: str,
    ranks: Sequence[Ints],
) -> Tensor:
    """Sum over graphs of the probability at every share, float64 ``[4, STEPS + 1]``.

    ``copies`` lays so many copies of the batch end to end, to predict many cut graphs at a time.
    """
    counts = np.diff(batch.ptr)
    chosen = logits.argmax(1, keepdim=True)

    def probability(outputs: Tensor) -> Tensor:
        each = outputs.softmax(-1) if task == "multiclass" else outputs.sigmoid()
        where = chosen.expand(*outputs.shape[:-1], 1)
        return each.gather(-1, where).to(torch.double).sum((-2, -1))

    def kept(masks: Sequence[np.ndarray[Any, Any]]) -> Tensor:
        many = len(masks)
        whole = copies(many)
        cut = keep_parts(whole, targets_of(whole), nodes=np.concatenate(masks))
        outputs = predictor.run(cut.batch, layers=False).logits
        return probability(outputs.view(many, *logits.shape))

    masks = []
    for rank in ranks:
        for step in range(STEPS):
            # Whole numbers round exactly; 0.1 is no binary fraction.
            taken, shown = ((counts * share + STEPS // 2) // STEPS for share in (step + 1, step))
            removed = np.repeat(np.minimum(taken, counts - 1), counts)
            added = np.repeat(np.maximum(shown, 1), counts)
            masks += [rank >= removed, rank < added]
    items = batch.num_nodes + batch.num_edges
    at_once = max(1, _CUT_ITEMS // max(1, items))
    found = torch.cat(
        [kept(masks[start : start + at_once]) for start in range(0, len(masks), at_once)]
    )
    # From [order, step, deletion or insertion] to one row for each curve, with the whole graph at
    # the end where nothing is cut.
    cut = found.view(len(ranks), STEPS, 2).transpose(1, 2)
    whole = probability(logits).expand(len(ranks), 1)
    deletion = torch.cat((whole, cut[:, 0]), dim=1)
    insertion = torch.cat((cut[:, 1], whole), dim=1)
    return torch.stack((deletion, insertion), dim=1).flatten(0, 1)
