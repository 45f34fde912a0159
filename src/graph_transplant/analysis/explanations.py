"""Whether node saliency points at what counts: known motifs, curves, and other explainers.

The paper shows saliency by examples. Here it is measured: against the nodes that are known to make
the class, by taking salient nodes away or keeping them alone, and beside explainers of PyG.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch_geometric.data import Data
from torch_geometric.explain import CaptumExplainer, Explainer, GNNExplainer

from graph_transplant.augment.perturb import keep_parts
from graph_transplant.errors import DataError, GraphTransplantError, check_choice
from graph_transplant.graphs import GraphBatch, GraphStore, as_batch
from graph_transplant.kernels.compiling import Ints
from graph_transplant.nn import GraphClassifier, Prediction, evaluating
from graph_transplant.saliency import (
    NodeSaliency,
    Predictor,
    as_predictor,
    margins,
    read_saliency,
)
from graph_transplant.segments import offsets, rank_in_segment, segment_sum
from graph_transplant.targets import batch_targets, graph_losses, targets_of
from graph_transplant.training import EVALUATED_GRAPHS, EVALUATED_ITEMS

MOTIF_FIELD: Final = "motif_mask"
"""The node field of a store that marks the nodes which make the class."""

STEPS: Final = 10
"""A curve has so many steps: shares 0, 0.1, … 1."""

# Nodes and edges of cut graphs that are predicted at a time.
_CUT_ITEMS: Final = 1 << 17

CURVES: Final = ("deletion", "insertion", "deletion_random", "insertion_random")
"""What a point of a saliency curve holds beside its share."""

# Fraction of the golden ratio: its multiples fill an interval evenly and follow no period.
_GOLDEN: Final = 0.6180339887498949

_EXPLAINERS: Final[dict[str, Callable[[], tuple[Any, str]]]] = {
    "gnn-explainer": lambda: (GNNExplainer(), "object"),
    "integrated-gradients": lambda: (_integrated_gradients(), "attributes"),
}

EXPLAINERS: Final = tuple(_EXPLAINERS)
"""Explainers of PyG that :func:`agreement` knows."""


def saliency_quality(
    model: nn.Module,
    store: GraphStore,
    *,
    reading: NodeSaliency | None = None,
    seed: int,
    graphs: int = 500,
) -> dict[str, Any]:
    """Measure whether the most salient nodes are those that the class rests on.

    *Motifs.* Where the store marks the nodes that make the class (``motif_mask``), saliency is
    scored against the marks; see :func:`motif_scores`. It is the saliency of training: of the loss
    at the true targets, in evaluation mode.

    *Curves.* The nodes of every graph are ordered by their saliency for the class that the model
    predicts for it, or for the label with the highest probability. Deletion takes the most salient
    ones away, insertion keeps them alone; at every share stands the mean probability of that class.
    Where the model is right, both saliencies order the nodes alike. Good
    saliency makes the deletion curve fall early and the insertion curve rise early, each compared
    with a random order. Of n nodes a share means the nearest whole number, halves rounded up. One
    node always stays: at deletion share 1 the least salient, at insertion share 0 the most salient
    one. What stays is the induced subgraph; the degrees of graphs without features are counted
    anew.

    Args:
        model: A :class:`~graph_transplant.GraphClassifier` or any other model over PyG batches.
        store: The graphs, usually those that training did not see.
        reading: How saliency is read. (default: ``NodeSaliency()``, as in training)
        seed: Determines the random order, and the order of equally salient nodes.
        graphs: At most so many graphs are looked at, spread evenly over the store; see
            :func:`spread`.

    Returns:
        ``saliency``: the number of ``graphs``, the areas under the four curves (``deletion``,
        ``insertion``, ``deletion_random``, ``insertion_random``), and with known motifs ``auroc``,
        ``precision`` and ``chance``. ``saliency_curve``: for every share the four probabilities.
        Nothing at all for regression, where no class is predicted.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs", graphs=60)
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, seed=0)
        >>> found = saliency_quality(model, store, seed=0, graphs=30)
        >>> found["saliency"]["graphs"], round(found["saliency"]["chance"], 2)
        (30, 0.24)
        >>> [point["share"] for point in found["saliency_curve"]][:3]
        [0.0, 0.1, 0.2]
    """
    _check_count(graphs)
    if store.task == "regression":
        return {}
    reading = reading or NodeSaliency()
    predictor, device = as_predictor(model), _device(model)
    part = store.subset(spread(len(store), graphs))
    generator = torch.Generator().manual_seed(seed)
    nodes = int(part.node_counts.sum())
    # Drawn for all graphs at once, so that the size of a batch decides nothing.
    keys = torch.rand(2, nodes, dtype=torch.double, generator=generator)
    size = max(1, min(EVALUATED_GRAPHS, EVALUATED_ITEMS // max(1, _items(part))))
    total = torch.zeros(len(CURVES), STEPS + 1, dtype=torch.double)
    found: list[MotifScores] = []
    done, first = 0, 0
    with evaluating(model):
        for batch in part.batches(torch.arange(len(part)), size):
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
            copies = partial(_copies, part, here, device)
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
    """Choose some of many graphs, evenly spread and always the same.

    Graphs are cut into ``count`` stretches of equal length and one is taken of each. Its place
    within the stretch changes from one to the next: data sets whose classes take turns would else
    give graphs of one class alone.

    Args:
        total: How many graphs there are.
        count: How many are wanted at most.

    Returns:
        Graph numbers, rising, int64 ``[min(total, count)]``.

    Example:
        >>> spread(12, 4)
        tensor([ 0,  4,  6, 11])
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
    """Rank the nodes of each graph, the most salient one first.

    Args:
        saliency: float ``[nodes]``.
        ptr: Offsets of the graphs in the nodes, int64 ``[graphs + 1]``.
        keys: Random numbers in ``[0, 1)`` that decide between equally salient nodes, float64
            ``[nodes]``.

    Returns:
        int64 ``[nodes]``: 0 for the most salient node of a graph, 1 for the next, and so on.

    Example:
        >>> keys = torch.tensor([0.9, 0.5, 0.1], dtype=torch.double)
        >>> salient_order(torch.tensor([1.0, 2.0, 1.0]), torch.tensor([0, 3]), keys)
        tensor([2, 0, 1])
    """
    # Whole numbers in the order of the values leave the room below one to the random keys.
    level = torch.unique(saliency, return_inverse=True)[1]
    return rank_in_segment(keys - level, _segment(ptr), ptr)


@dataclass(frozen=True)
class MotifScores:
    """How well the saliency of some graphs finds the nodes that are known to count.

    A graph all of whose nodes are marked, or none, has nothing to be found and is left out.

    Attributes:
        auroc: Probability that a marked node is more salient than another one of its graph, equal
            ones counting half; float64 ``[graphs]``.
        precision: Share of marked nodes among the k most salient ones, k being the number of marked
            nodes; among equally salient nodes the expectation over their orders counts. float64
            ``[graphs]``.
        chance: Share of marked nodes, the precision of a random order, float64 ``[graphs]``.

    Example:
        >>> marked, ptr = torch.tensor([True, True, False, False]), torch.tensor([0, 4])
        >>> scores = motif_scores(torch.tensor([0.9, 0.2, 0.2, 0.1]), marked, ptr)
        >>> scores.auroc.item(), scores.precision.item(), scores.chance.item()
        (0.875, 0.75, 0.5)
    """

    auroc: Tensor
    precision: Tensor
    chance: Tensor


def motif_scores(saliency: Tensor, marked: Tensor, ptr: Tensor) -> MotifScores:
    """Score saliency against the nodes that are known to count, all graphs at once.

    Args:
        saliency: float ``[nodes]``. Where it is not finite the scores of its graph are NaN.
        marked: The nodes that count, bool ``[nodes]``.
        ptr: Offsets of the graphs in the nodes, int64 ``[graphs + 1]``.

    Returns:
        One entry for every graph that has marked nodes and others.
    """
    if marked.shape != saliency.shape:
        raise DataError(
            f"`marked` must have one entry per node, [{saliency.numel()}]; got {list(marked.shape)}"
        )
    segment = _segment(ptr)
    inside = marked.to(torch.bool).to(torch.double)
    size, nodes = segment_sum(inside, segment, ptr), ptr.diff().to(torch.double)
    low, ties = _tied_ranks(saliency, segment, ptr)
    # Sum of the ranks of marked nodes, as Mann and Whitney count.
    above = segment_sum(inside * (low + (ties - 1) / 2), segment, ptr) - size * (size - 1) / 2
    ahead = nodes.index_select(0, segment) - low - ties
    chosen = ((size.index_select(0, segment) - ahead) / ties).clamp(0.0, 1.0)
    hits = segment_sum(inside * chosen, segment, ptr)
    undefined = segment_sum((~saliency.isfinite()).to(torch.double), segment, ptr) > 0
    kept = ((size > 0) & (size < nodes)).nonzero().flatten()
    size, nodes, above, hits, undefined = (
        value.index_select(0, kept) for value in (size, nodes, above, hits, undefined)
    )
    return MotifScores(
        auroc=(above / (size * (nodes - size))).masked_fill(undefined, torch.nan),
        precision=(hits / size).masked_fill(undefined, torch.nan),
        chance=size / nodes,
    )


def _tied_ranks(values: Tensor, segment: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many smaller and how many equal values of its graph each node has.

    Both float64 ``[nodes]``; a node is equal to itself.
    """
    level = torch.unique(values, return_inverse=True)[1]
    code = segment * values.numel() + level
    _, group, counts = torch.unique(code, return_inverse=True, return_counts=True)
    start = offsets(counts)[:-1].index_select(0, group) - ptr.index_select(0, segment)
    return start.to(torch.double), counts.index_select(0, group).to(torch.double)


def _means(found: Sequence[MotifScores]) -> dict[str, float]:
    """Average over all graphs; nothing where no graph has a motif to find."""
    if not sum(scores.chance.numel() for scores in found):
        return {}
    return {
        name: float(torch.cat([getattr(scores, name) for scores in found]).mean())
        for name in ("auroc", "precision", "chance")
    }


def _check_count(graphs: int) -> None:
    if graphs < 1:
        raise GraphTransplantError(f"`graphs` must be at least 1, got {graphs}")


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def _items(store: GraphStore) -> int:
    """Nodes and edges of a mean graph."""
    return int(store.node_counts.sum() + store.edge_counts.sum()) // len(store)


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
            loss = graph_losses(logits, targets, task)
        return prediction, reading.read(loss.sum(), prediction), followed


def _copies(store: GraphStore, graphs: Tensor, device: torch.device, many: int) -> GraphBatch:
    return store.batch(graphs.repeat(many)).to(device)


def _curves(
    predictor: Predictor,
    copies: Callable[[int], GraphBatch],
    batch: GraphBatch,
    logits: Tensor,
    task: str,
    ranks: Sequence[Ints],
) -> Tensor:
    """Sum over graphs of the probability at every share, float64 ``[4, STEPS + 1]``.

    Cut graphs are predicted many at a time: ``copies`` lays so many copies of the batch end to end.
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


# -------------------------------------------------------------------- other explainers


def agreement(
    model: GraphClassifier,
    store: GraphStore,
    *,
    graphs: int = 20,
    seed: int,
    explainers: Sequence[str] = EXPLAINERS,
    reading: NodeSaliency | None = None,
) -> dict[str, float]:
    """Compare node saliency with explainers of PyG, one graph at a time.

    All explain the same thing, the logarithm of the probability of the true class, which is the
    loss without its sign. GNNExplainer learns one mask value per node; integrated gradients give
    every input feature a part of the difference to an input of zeros, and the score of a node is
    the size of the sum of its parts. Both start from what enters the first layer: standardised
    features, or for graphs without features the one-hot degrees, which stay those of the whole
    graph.

    Args:
        model: The model; it stays as it is.
        store: Graphs with one class each.
        graphs: At most so many graphs, spread evenly over the store.
        seed: Determines the first masks of GNNExplainer.
        explainers: Which ones: ``"gnn-explainer"``, and ``"integrated-gradients"``, which needs
            captum.
        reading: How our saliency is read. (default: ``NodeSaliency()``, as in training)

    Returns:
        For every explainer the mean over graphs of Spearman's rank correlation, between -1 and 1.
        A graph in which either ranks nothing, all nodes being equal, is left out.

    Raises:
        GraphTransplantError: If captum is missing, if the model is none of ours, or if no graph is
            left.
        DataError: If the graphs have no classes.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs", graphs=12)
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, seed=0)
        >>> reading = gt.NodeSaliency("gradient-x-activation")
        >>> found = agreement(
        ...     model, store, graphs=2, seed=0, explainers=["gnn-explainer"], reading=reading
        ... )
        >>> -1 <= found["gnn-explainer"] <= 1
        True
    """
    _check_count(graphs)
    for name in explainers:
        # Made once beforehand: what is missing is told before anything is computed.
        _EXPLAINERS[check_choice("explainers", name, EXPLAINERS)]()
    if not isinstance(model, GraphClassifier):
        raise GraphTransplantError(
            f"`model` must be a graph_transplant.GraphClassifier; got {type(model).__name__}"
        )
    if store.task != "multiclass":
        raise DataError(
            f"explainers are compared where every graph has one class, but the task of "
            f"{store.name} is {store.task}"
        )
    part = store.subset(spread(len(store), graphs))
    batch = part.batch(range(len(part))).to(_device(model))
    with evaluating(model):
        _, ours, _ = _read(model, batch, store.task, reading or NodeSaliency())
    correlations: dict[str, float] = {}
    for name in explainers:
        scores = [
            node_masks(model, part.batch([number]), explainer=name, seed=seed).sum(1).abs()
            for number in range(len(part))
        ]
        each = rank_correlation(ours.cpu(), torch.cat(scores), torch.from_numpy(batch.ptr))
        each = each[~each.isnan()]
        if not each.numel():
            raise GraphTransplantError(
                f"no graph of {store.name} is left to compare with {name}: all nodes of a graph "
                "are equally salient"
            )
        correlations[name] = float(each.mean())
    return correlations


def node_masks(
    model: GraphClassifier, graph: GraphBatch | Data, *, explainer: str, seed: int
) -> Tensor:
    """Return what an explainer of PyG says about the nodes of one graph, with its sign.

    Args:
        model: The model; its weights, gradients and mode stay as they are.
        graph: One graph with its class ``y``.
        explainer: ``"gnn-explainer"`` or ``"integrated-gradients"``.
        seed: Determines the first mask of GNNExplainer; torch's own generator stays as it is.

    Returns:
        float ``[nodes, 1]`` of GNNExplainer, ``[nodes, features]`` of integrated gradients.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs", graphs=6)
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, seed=0)
        >>> node_masks(model, store.batch([0]), explainer="gnn-explainer", seed=0).shape[1]
        1
    """
    check_choice("explainer", explainer, EXPLAINERS)
    algorithm, mask = _EXPLAINERS[explainer]()
    graph = as_batch(graph).to(_device(model))
    explained = LogProbabilities(model).eval()
    explaining = Explainer(
        model=explained,
        algorithm=algorithm,
        explanation_type="phenomenon",
        node_mask_type=mask,
        model_config={
            "mode": "multiclass_classification",
            "task_level": "graph",
            "return_type": "log_probs",
        },
    )
    further = {"edge_attr": graph.edge_attr} if model.takes_edge_attr else {}
    # Explainers draw from torch's own generator and know no other.
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        explanation = explaining(
            explained.inputs_of(graph),
            graph.edge_index,
            target=batch_targets(graph, model.num_outputs).argmax(1),
            batch=graph.batch,
            **further,
        )
    found: Tensor = explanation.node_mask.detach().cpu()
    return found


def _integrated_gradients() -> Any:
    try:
        importlib.import_module("captum.attr")
    except ImportError as error:
        raise GraphTransplantError(
            "integrated-gradients needs captum: pip install graph-transplant[explain]"
        ) from error
    return CaptumExplainer("IntegratedGradients")


class _Given(nn.Module):
    """An input layer that takes the features as they are."""

    def forward(self, batch: GraphBatch, dtype: torch.dtype) -> Tensor:
        """Return the features, ``[nodes, features]``."""
        return batch.nodes["x"].to(dtype)


class LogProbabilities(nn.Module):
    """A graph classifier as explainers of PyG want it: a function of features and edges.

    The weights are a copy without gradients: explainers run backward passes that would else leave
    gradients in the model.

    Args:
        model: The classifier.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs", graphs=6)
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, seed=0).eval()
        >>> explained, batch = LogProbabilities(model).eval(), store.batch([0, 1])
        >>> found = explained(explained.inputs_of(batch), batch.edge_index, batch.batch)
        >>> torch.allclose(found, model.run(batch).logits.log_softmax(1))
        True
    """

    def __init__(self, model: GraphClassifier) -> None:
        super().__init__()
        self.classifier = copy.deepcopy(model).requires_grad_(False)
        self.inputs = self.classifier.inputs
        self.classifier.add_module("inputs", _Given())

    def inputs_of(self, batch: GraphBatch) -> Tensor:
        """Return what enters the encoder or the first layer, float ``[nodes, features]``."""
        dtype = next(self.classifier.parameters()).dtype
        given = self.inputs(batch.dense(), dtype)
        if isinstance(given, Tensor):
            return given
        return one_hot(given.code, self.inputs.features).to(dtype)  # degrees

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_attr: Tensor | None = None
    ) -> Tensor:
        """Predict.

        Args:
            x: As :meth:`inputs_of` gives it, float ``[nodes, features]``.
            edge_index: int64 ``[2, edges]``.
            batch: Graph of every node, int64 ``[nodes]``.
            edge_attr: float ``[edges, edge features]``, for models that read them.

        Returns:
            Logarithms of the probabilities, float ``[graphs, classes]``.
        """
        data = Data(x=x, edge_index=edge_index, batch=batch, edge_attr=edge_attr)
        return self.classifier.run(data).logits.log_softmax(1)


def rank_correlation(one: Tensor, other: Tensor, ptr: Tensor) -> Tensor:
    """Return Spearman's rank correlation within each graph; equal values share their mean rank.

    Args:
        one: float ``[nodes]``.
        other: float ``[nodes]``.
        ptr: Offsets of the graphs in the nodes, int64 ``[graphs + 1]``.

    Returns:
        float64 ``[graphs]``; NaN where all values of a graph are equal.

    Example:
        >>> one, other = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([9.0, 5.0, 1.0])
        >>> rank_correlation(one, other, torch.tensor([0, 3]))
        tensor([-1.], dtype=torch.float64)
    """
    segment = _segment(ptr)
    middle = (ptr.diff().to(torch.double) - 1) / 2
    centred = []
    for values in (one, other):
        low, ties = _tied_ranks(values, segment, ptr)
        centred.append(low + (ties - 1) / 2 - middle.index_select(0, segment))
    first, second = (segment_sum(rank.square(), segment, ptr) for rank in centred)
    return segment_sum(centred[0] * centred[1], segment, ptr) / (first * second).sqrt()
