"""Quality of node saliency: agreement with known motifs, deletion and insertion curves.

The paper shows examples of saliency. Here it is evaluated: against the nodes known to determine the
class, and by removing the salient nodes or keeping only those.
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
from graph_transplant.data import GraphBatch, GraphStore
from graph_transplant.data.targets import Loss, batch_targets, targets_of
from graph_transplant.data.tensors import rank_in_segment
from graph_transplant.errors import check_at_least
from graph_transplant.kernels.arrays import Ints
from graph_transplant.nn import Prediction, evaluating
from graph_transplant.nn.adapter import Predictor, as_predictor
from graph_transplant.nn.saliency import NodeSaliency, margins, read_saliency
from graph_transplant.training.loop import evaluated_at_once

MOTIF_FIELD: Final = "motif_mask"  # node field that marks the nodes which determine the class
STEPS: Final = 10  # of a curve: shares 0, 0.1, … 1

# Approximate number of nodes and edges of cut graphs per batch.
_CUT_ITEMS: Final = 1 << 17

CURVES: Final = ("deletion", "insertion", "deletion_random", "insertion_random")
"""Fields of a point of a saliency curve, besides its share."""

# Fractional part of the golden ratio: its multiples fill an interval evenly, without a period.
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

    *Motifs.* If the store marks the nodes that determine the class (``motif_mask``), the saliency
    of the loss, in evaluation mode, is scored against the marks; see :func:`motif_scores`.

    *Curves.* The nodes of every graph are ordered by their saliency for the class that the model
    predicts for it, or for the label with the highest probability. Deletion removes the most
    salient nodes, insertion keeps only those; the curves are the mean probability of that class in
    the induced subgraph. Good saliency makes the deletion curve fall and the insertion curve rise
    earlier than a random order. Numbers of nodes are rounded, halves up; one node always stays.

    Args:
        model: A :class:`~graph_transplant.GraphClassifier` or any other model over PyG batches.
        store: The graphs, usually those that training did not see.
        reading: How saliency is computed. (default: ``NodeSaliency()``, as in training)
        seed: Seed for the random order and for the order of equally salient nodes.
        graphs: Maximum number of graphs to use, see :func:`spread`.

    Returns:
        ``saliency``: the number of ``graphs``, the areas under the four :data:`CURVES`, and with
        known motifs ``auroc``, ``precision`` and ``chance``. ``saliency_curve``: the four
        probabilities at every share. Empty for regression.

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
    # Drawn for all graphs at once, so that results do not depend on the batch size.
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
    """Choose some of many graphs, evenly and deterministically: one per interval.

    The position within the interval varies: otherwise, data sets with alternating classes would
    yield graphs of a single class.
    """
    count = min(total, count)
    number = torch.arange(count)
    bounds = torch.arange(count + 1) * total // max(count, 1)
    place = number.to(torch.double).mul_(_GOLDEN).frac_()
    return bounds[:-1] + (place * bounds.diff()).to(torch.long)


def _segment(ptr: Tensor) -> Tensor:
    return torch.repeat_interleave(ptr.diff())


def salient_order(saliency: Tensor, ptr: Tensor, keys: Tensor) -> Tensor:
    """Rank the nodes of each graph, 0 for the most salient; ``keys`` in ``[0, 1)`` break ties."""
    # Ranks are integers, so that keys below one decide only between equal values.
    level = torch.unique(saliency, return_inverse=True)[1]
    return rank_in_segment(keys - level, _segment(ptr), ptr)


class MotifScores(NamedTuple):
    """Agreement of saliency with marked nodes, float64 ``[graphs]``."""

    auroc: Tensor  # probability that a marked node is more salient than an unmarked one
    precision: Tensor  # share of marked nodes among the k most salient, where k are marked
    chance: Tensor  # share of marked nodes: the precision of a random order


def motif_scores(saliency: Tensor, marked: Tensor, ptr: Tensor) -> MotifScores:
    """Score saliency against the ``marked`` nodes, which are known to determine the class.

    Ties are averaged over their orders. Graphs with all or no nodes marked are left out; AUROC and
    precision are NaN if saliency is not finite.
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
        # Ranks from 1; for ties, the lowest and the highest.
        lowest = np.searchsorted(ordered, theirs, "left") + 1
        highest = np.searchsorted(ordered, theirs, "right")
        # Mann-Whitney U of the marked nodes.
        above = float((lowest + highest).sum()) / 2 - size * (size + 1) / 2
        # Nodes tied for the last places among the k most salient count proportionally.
        chosen = (size - (nodes - highest)) / (highest - lowest + 1)
        hits = sum(chosen.clip(0.0, 1.0).tolist())
        scores.append((above / (size * (nodes - size)), hits / size, size / nodes))
    return MotifScores(*torch.tensor(scores, dtype=torch.double).view(-1, 3).unbind(1))


def _means(found: Sequence[MotifScores]) -> dict[str, float]:
    """Average over all graphs; empty if no graph has a motif."""
    if not sum(len(scores.chance) for scores in found):
        return {}
    joined = (torch.cat(each).mean() for each in zip(*found, strict=True))
    return dict(zip(MotifScores._fields, map(float, joined), strict=True))


def _read(
    predictor: Predictor, batch: GraphBatch, task: str, reading: NodeSaliency
) -> tuple[Prediction, Tensor, Tensor]:
    """Return the prediction, and saliency for the true targets and for the predicted class."""
    prediction, _, followed = read_saliency(predictor, batch, task, reading)
    logits = prediction.logits
    with torch.enable_grad():
        targets = batch_targets(batch, logits.shape[1])
        # The loss of a class is log(1 + exp(-m)) of its log-odds m: its gradient is that of -m
        # times the probability of being wrong. That factor is the same for all nodes of a graph
        # but underflows for a very confident model, so it is left out.
        if task == "multiclass" and logits.shape[1] > 1:
            loss = -margins(logits, targets.argmax(1), task)
        else:
            loss = Loss(task)(logits, targets)
        return prediction, reading.nearest(loss.sum(), prediction, batch)[1], followed


def _curves(
    predictor: Predictor,
    copies: Callable[[int], GraphBatch],
    batch: GraphBatch,
    logits: Tensor,
    task: str,
    ranks: Sequence[Ints],
) -> Tensor:
    """Sum over graphs of the probability at every share, float64 ``[4, STEPS + 1]``.

    ``copies`` concatenates n copies of the batch, to predict many cut graphs at a time.
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
            # Integer arithmetic: 0.1 has no exact binary representation.
            taken, shown = ((counts * share + STEPS // 2) // STEPS for share in (step + 1, step))
            removed = np.repeat(np.minimum(taken, counts - 1), counts)
            added = np.repeat(np.maximum(shown, 1), counts)
            masks += [rank >= removed, rank < added]
    items = batch.num_nodes + batch.num_edges
    at_once = max(1, _CUT_ITEMS // max(1, items))
    found = torch.cat(
        [kept(masks[start : start + at_once]) for start in range(0, len(masks), at_once)]
    )
    # One row per curve; the uncut graph comes first for deletion and last for insertion.
    cut = found.view(len(ranks), STEPS, 2).transpose(1, 2)
    whole = probability(logits).expand(len(ranks), 1)
    deletion = torch.cat((whole, cut[:, 0]), dim=1)
    insertion = torch.cat((cut[:, 1], whole), dim=1)
    return torch.stack((deletion, insertion), dim=1).flatten(0, 1)
