"""Examples for the report: what a trained model looks at, and what graphs its method makes.

They go into the record of a trial, so that the report is made from records alone. What a record
holds is read again by :mod:`graph_transplant.experiments.shown`, which needs no torch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import torch
from torch import Tensor, nn

from graph_transplant.analysis.samples import edges_there
from graph_transplant.augment import (
    Augmentation,
    CleanPass,
    MixedGraphs,
    Sequential,
    VirtualGraphs,
)
from graph_transplant.augment.transplant import NEW
from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.shown import Example as Example
from graph_transplant.experiments.shown import Made as Made
from graph_transplant.experiments.shown import Mixture as Mixture
from graph_transplant.experiments.shown import Part as Part
from graph_transplant.experiments.shown import Salient as Salient
from graph_transplant.experiments.shown import Structure as Structure
from graph_transplant.experiments.shown import read_example as read_example
from graph_transplant.experiments.splits import Split
from graph_transplant.experiments.structures import (
    LABELLED,
    NO_LABEL,
    graph_id,
    label_words,
    output_names,
    prediction_words,
    structures_of,
    value_words,
)
from graph_transplant.graphs import GraphBatch, GraphStore
from graph_transplant.kernels.compiling import Ints
from graph_transplant.nn import evaluating
from graph_transplant.saliency import NodeSaliency, Predictor, as_predictor, module_of
from graph_transplant.segments import offsets, rank_in_segment, segment_max, segment_sum
from graph_transplant.targets import Loss, TargetScale, batch_targets

READING: Final = NodeSaliency(kind="gradient-x-activation")
"""How saliency is read for an explanation: the gradient times the embedding of a node.

Where it is known what a prediction rests on, this finds it far better than the norm of the
gradient, which training goes by as in the paper; see the page on explanations.
"""

SMALL_NODES: Final = 60
"""Graphs with more nodes than this are not shown where there are enough smaller ones."""

SMALL_EDGES: Final = 150
"""Nor are graphs with more edges than this."""

LARGEST_NODES: Final = 200
LARGEST_EDGES: Final = 500
"""Graphs with more nodes or edges than this are never shown: their records would be too long."""

# So many graphs are mixed with each other for the examples.
_MIXED_TOGETHER: Final = 16

# Shares below this would be written as nought.
_NOTHING: Final = 0.0005


def examples(
    model: Predictor | nn.Module,
    augmentations: Sequence[Augmentation],
    train: GraphStore,
    test: GraphStore,
    *,
    method: str,
    seed: int,
    saliency: int = 4,
    mixtures: int = 2,
    scale: TargetScale | None = None,
) -> list[dict[str, Any]]:
    """Choose some examples of what a model looks at and of what its method makes, for a record.

    Which graphs are shown follows from the data and the seed alone, so that methods can be set side
    by side: small ones, of different classes where there are any. The model and the augmentations
    stay as they are, and so does torch's own generator.

    Args:
        model: The trained model.
        augmentations: What it was trained with, as training left it.
        train: Training graphs, with targets in the units of the data.
        test: Test graphs, likewise.
        method: Name of the method.
        seed: Determines all choices.
        saliency: How many test graphs to show.
        mixtures: How many virtual graphs to show; none are shown of methods that make no graphs.
        scale: How numbers to predict were standardised for training, if they were.

    Returns:
        One object for each, as :func:`~graph_transplant.experiments.shown.read_example` reads it:
        of the kind ``"saliency"``; ``"mixture"`` for Graph Transplant; ``"virtual"`` for graphs of
        other methods.

    Raises:
        GraphTransplantError: If a number of examples is negative.

    Example:
        >>> import graph_transplant as gt
        >>> motifs = gt.load("motifs", graphs=60)
        >>> model = gt.GraphClassifier.for_data(motifs, hidden=8, seed=0)
        >>> found = examples(model, [gt.GraphTransplant()], motifs.subset(range(40)),
        ...                  motifs.subset(range(40, 60)), method="transplant-dp", seed=0)
        >>> [one["kind"] for one in found]
        ['saliency', 'saliency', 'saliency', 'saliency', 'mixture', 'mixture']
    """
    for name, value in (("saliency", saliency), ("mixtures", mixtures)):
        if value < 0:
            raise GraphTransplantError(f"`{name}` must not be negative, got {value}")
    generator = torch.Generator().manual_seed(seed)
    predictor = as_predictor(model)
    found: list[Example] = []
    shown = choose(test, saliency, generator)
    if shown.numel():
        found += _salient(predictor, test, shown, scale)
    makers = [copy.deepcopy(each) for each in augmentations if each.gives_graphs]
    shown = choose(train, max(mixtures, _MIXED_TOGETHER), generator)
    if makers and mixtures and shown.numel():
        made: list[Example] = []
        for maker in makers:
            made += _made(predictor, maker, train, shown, generator, method, scale)
        found += made[:mixtures]
    return [one.as_record() for one in found]


def choose(store: GraphStore, count: int, generator: torch.Generator) -> Tensor:
    """Draw small graphs to show, of different classes where there are any.

    Args:
        store: The graphs.
        count: How many at most.
        generator: Source of randomness.

    Returns:
        Their numbers, int64 ``[at most count]``; fewer where graphs are too large to show.

    Example:
        >>> import graph_transplant as gt
        >>> motifs = gt.load("motifs", graphs=60)
        >>> shown = choose(motifs, 6, torch.Generator().manual_seed(0))
        >>> sorted(motifs.labels[shown].tolist())
        [0, 1, 2, 3, 4, 5]
    """
    order = torch.randperm(len(store), generator=generator)
    nodes = store.node_counts.index_select(0, order)
    edges = store.edge_counts.index_select(0, order)
    edges = edges // 2 if store.undirected else edges
    small = order[(nodes <= SMALL_NODES) & (edges <= SMALL_EDGES)]
    if small.numel() < count:
        by_size = torch.argsort(nodes + edges, stable=True)
        fits = (nodes <= LARGEST_NODES) & (edges <= LARGEST_EDGES)
        small = order[by_size[fits[by_size]]]
    if store.task == "multiclass":
        # The first of every class, then the second of every class, and so on.
        label, by_label = torch.sort(store.labels.index_select(0, small), stable=True)
        ptr = offsets(torch.bincount(label, minlength=store.num_outputs))
        place = torch.arange(label.numel())
        rank = torch.empty_like(place)
        rank[by_label] = rank_in_segment(place.to(torch.double), label, ptr)
        small = small[torch.argsort(rank, stable=True)]
    return small[:count]


def with_ids(
    found: Sequence[Mapping[str, Any]], store: GraphStore, split: Split
) -> list[dict[str, Any]]:
    """Call the graphs of a trial's examples what their file calls them.

    A trial knows its graphs by their number among its training or test graphs: where it runs there
    may be nothing but the graphs.

    Args:
        found: As :func:`examples` gives them.
        store: The whole data set, with the rows that it was read from.
        split: The graphs of the trial.

    Example:
        >>> from graph_transplant.graphs import Rows
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs", graphs=6)
        >>> store.rows = Rows(torch.arange(1, 7), tuple("abcdef"), ("",) * 6)
        >>> split = Split(torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([4, 5]))
        >>> with_ids([{"graph": "test-2", "source": {"id": "train-1"}}], store, split)
        [{'graph': 'f', 'source': {'id': 'a'}}]
    """

    def named(text: str) -> str:
        part, _, number = text.rpartition("-")
        return graph_id(store, int(getattr(split, part)[int(number) - 1]))

    renamed = []
    for one in found:
        other = dict(one)
        if "graph" in one:
            other["graph"] = named(one["graph"])
        for part in ("source", "destination"):
            if part in one:
                other[part] = {**one[part], "id": named(one[part]["id"])}
        renamed.append(other)
    return renamed


def _name(number: int, part: Literal["train", "test"]) -> str:
    return f"{part}-{number + 1}"


# -------------------------------------------------------------------- saliency


def read_saliency(
    model: Predictor,
    batch: GraphBatch,
    task: str,
    reading: NodeSaliency = READING,
    output: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a model on a batch and read the saliency of every node.

    What is explained is for classes the margin of one class (its logit minus the log-sum-exp of the
    others, the logarithm of its odds), for labels the logit of one label, for regression one value.

    Args:
        model: The model; its mode and gradients stay as they are.
        batch: The graphs, on the model's device.
        task: What the outputs are.
        reading: Where and how saliency is read.
        output: Number of the output to explain. (default: the predicted class; the label with the
            highest probability; the first value)

    Returns:
        Logits ``[graphs, outputs]``, the number of the output that was explained, int64
        ``[graphs]``, and the saliency, float ``[nodes]``, all on the CPU.

    Example:
        >>> import graph_transplant as gt
        >>> motifs = gt.load("motifs", graphs=12)
        >>> model = gt.GraphClassifier.for_data(motifs, hidden=8, seed=0)
        >>> logits, chosen, saliency = read_saliency(model, motifs.batch([0, 1]), "multiclass")
        >>> bool((logits.argmax(1) == chosen).all())
        True
    """
    with evaluating(module_of(model)), torch.enable_grad():
        prediction = model.run(batch)
        logits = prediction.logits
        if output is not None:
            chosen = torch.full((len(logits),), output)
        elif task == "regression":
            chosen = torch.zeros(len(logits), dtype=torch.long)
        else:
            chosen = logits.detach().argmax(1)
        # Graphs do not touch each other in evaluation mode: one sum has all their gradients.
        margin = margins(logits, chosen.to(logits.device), task).sum()
        saliency = reading.read(margin, prediction)
    return logits.detach().cpu(), chosen.cpu(), saliency.cpu()


def margins(logits: Tensor, chosen: Tensor, task: str) -> Tensor:
    """Return how far one output of every graph is ahead.

    Args:
        logits: float ``[graphs, outputs]``.
        chosen: Number of an output for every graph, int64 ``[graphs]``.
        task: For ``"multiclass"`` the logit minus the log-sum-exp of the others; else the logit.

    Returns:
        float ``[graphs]``.

    Example:
        >>> margins(torch.tensor([[2.0, 0.5]]), torch.tensor([0]), "multiclass")
        tensor([1.5000])
    """
    column = chosen.unsqueeze(1)
    own = logits.gather(1, column).squeeze(1)
    if task != "multiclass" or logits.shape[1] < 2:
        return own
    return own - logits.scatter(1, column, -math.inf).logsumexp(1)


def within_graphs(saliency: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
    """Divide by the largest and by the sum of each graph.

    Args:
        saliency: float ``[nodes]``, not negative.
        batch: The batch of the nodes.

    Returns:
        float64 ``[nodes]`` both; zeros in graphs where nothing is salient.

    Example:
        >>> import graph_transplant as gt
        >>> batch = gt.load("motifs", graphs=12).batch([0])
        >>> scaled, share = within_graphs(torch.ones(batch.num_nodes), batch)
        >>> float(scaled.max()), round(float(share.sum()), 6)
        (1.0, 1.0)
    """
    segment, ptr = batch.batch.cpu(), batch.offsets.cpu()
    exact = saliency.to(torch.double)
    found = []
    largest = segment_max(exact.unsqueeze(1), ptr).squeeze(1)
    for whole in (largest, segment_sum(exact, segment, ptr)):
        divisor = torch.where(whole > 0, whole, 1.0)
        found.append(exact / divisor.index_select(0, segment))
    return found[0], found[1]


def _salient(
    model: Predictor, store: GraphStore, shown: Tensor, scale: TargetScale | None
) -> list[Salient]:
    """Explain what the model says about some graphs."""
    task, names = store.task, output_names(store)
    batch = store.batch(shown).to(next(module_of(model).parameters()).device)
    logits, _, saliency = read_saliency(model, batch, task)
    scaled, _ = within_graphs(saliency, batch)
    confidence: list[float | None] = [None] * len(logits)
    if task == "multiclass":
        outputs = logits.softmax(1)
        confidence = list(outputs.amax(1).tolist())
    elif task == "multilabel":
        outputs = logits.sigmoid()
        confidence = list(torch.maximum(outputs, 1 - outputs).mean(1).tolist())
    else:
        outputs = logits if scale is None else scale.undo(logits)
    words = prediction_words(task, names, outputs)
    counts = np.diff(batch.ptr).tolist()
    parts = torch.split(scaled, counts)
    marked = batch.nodes.get("motif_mask")
    motif = None if marked is None else torch.split(marked.cpu(), counts)
    found = []
    for place, (number, (graph, _)) in enumerate(
        zip(shown.tolist(), structures_of(batch, store), strict=True)
    ):
        if not bool(torch.isfinite(parts[place]).all() and torch.isfinite(logits[place]).all()):
            continue  # training has failed: there is nothing to see
        found.append(
            Salient(
                graph=_name(number, "test"),
                truth=label_words(store, number),
                predicted=words[place],
                confidence=confidence[place],
                correct=_correct(store, number, outputs[place]),
                structure=graph,
                saliency=tuple(parts[place].tolist()),
                motif=None if motif is None else tuple(motif[place].bool().tolist()),
            )
        )
    return found


def _correct(store: GraphStore, number: int, outputs: Tensor) -> bool | None:
    """Whether a prediction is right; labels that were not measured do not count."""
    if store.task == "regression" or label_words(store, number) is None:
        return None
    if store.task == "multiclass":
        return int(outputs.argmax()) == int(store.y[number])
    wanted = store.y[number].reshape(-1)
    return bool(((outputs >= LABELLED) == (wanted > LABELLED))[~wanted.isnan()].all())


# -------------------------------------------------------------------- virtual graphs


def _made(
    model: Predictor,
    maker: Augmentation,
    store: GraphStore,
    shown: Tensor,
    generator: torch.Generator,
    method: str,
    scale: TargetScale | None,
) -> list[Example]:
    """Let an augmentation make graphs of some graphs, as a training step does."""
    targets = store if scale is None else scale.apply(store)
    batch = targets.batch(shown).to(next(module_of(model).parameters()).device)
    with evaluating(module_of(model)), torch.enable_grad():
        clean = CleanPass(batch, batch_targets(batch), model.run(batch), Loss(store.task))
        virtual = maker(clean, model=model, generator=generator)
    if not isinstance(virtual, VirtualGraphs):
        return []
    rows = virtual.targets.detach().cpu()
    rows = rows if scale is None else scale.undo(rows)
    words = target_words(output_names(store), store.task, rows.tolist())
    # Where augmentations follow one another, what was mixed last are no graphs of the data.
    ends = any(isinstance(module, Sequential) for module in maker.modules())
    if isinstance(virtual, MixedGraphs) and not ends:
        return _mixtures(store, shown, batch, virtual, words, method)
    made = structures_of(virtual.batch, store, there=edges_there(virtual.batch))
    return [
        Made(graph, label)
        for (graph, _), (label, _) in zip(made, words, strict=True)
        if _fits(graph)
    ]


def _mixtures(
    store: GraphStore,
    shown: Tensor,
    batch: GraphBatch,
    mixed: MixedGraphs,
    words: Sequence[tuple[str, tuple[tuple[str, float], ...]]],
    method: str,
) -> list[Example]:
    numbers = shown.tolist()
    found = taken_apart(store, shown, batch, mixed, lambda place: _name(numbers[place], "train"))
    weights, sources = mixed.label_weight.tolist(), mixed.source_of.tolist()
    return [
        Mixture(*parts, *label, weight=weight, method=method, data=store.name, note="")
        for place, (parts, label, weight) in enumerate(zip(found, words, weights, strict=True))
        # A graph mixed with itself shows nothing.
        if sources[place] != place and _fits(parts[2]) and math.isfinite(weight)
    ]


def _fits(graph: Structure) -> bool:
    return len(graph.names) <= 2 * LARGEST_NODES and len(graph.edges) <= 2 * LARGEST_EDGES


def taken_apart(
    store: GraphStore,
    shown: Tensor,
    batch: GraphBatch,
    mixed: MixedGraphs,
    name: Callable[[int], str],
) -> list[tuple[Part, Part, Structure, tuple[bool, ...], tuple[int, ...]]]:
    """Take mixed graphs apart again, with where everything comes from.

    Args:
        store: The data set.
        shown: Numbers of the graphs that were mixed, int64 ``[graphs]``.
        batch: These graphs.
        mixed: What was made of them.
        name: Gives what a graph of the batch is called.

    Returns:
        Source, destination, mixed graph, which nodes were transplanted, and numbers of new edges.
    """
    plan = mixed.plan
    originals = [graph for graph, _ in structures_of(batch, store)]
    joined = structures_of(mixed.batch, store, there=edges_there(mixed.batch))
    from_source = np.split(mixed.node_from_source, mixed.batch.ptr[1:-1])
    kinds = mixed.edge_kind
    places = shown.tolist()
    sizes = np.diff(batch.ptr)

    def chosen(nodes: Ints, ptr: Ints, number: int, graph: int) -> tuple[bool, ...]:
        """Mark the nodes of an original graph that are in a mixed one."""
        inside = np.zeros(sizes[graph], np.bool_)
        inside[nodes[ptr[number] : ptr[number + 1]] - batch.ptr[graph]] = True
        return tuple(inside.tolist())

    found = []
    for number, (graph, edges) in enumerate(joined):
        giver = int(mixed.source_of[number])
        source = Part(
            id=name(giver),
            label=label_words(store, places[giver]) or "unknown",
            structure=originals[giver],
            chosen=chosen(plan.taken, plan.taken_ptr, number, giver),
            share=float(mixed.source_share[number]),
        )
        destination = Part(
            id=name(number),
            label=label_words(store, places[number]) or "unknown",
            structure=originals[number],
            chosen=chosen(plan.rest, plan.rest_ptr, number, number),
            share=float(mixed.destination_share[number]),
        )
        fresh = tuple(place for place, edge in enumerate(edges) if int(kinds[edge]) == NEW)
        found.append((source, destination, graph, tuple(from_source[number].tolist()), fresh))
    return found


def target_words(
    names: Sequence[str], task: str, rows: Sequence[Sequence[float]]
) -> list[tuple[str, tuple[tuple[str, float], ...]]]:
    """Write mixed targets in words.

    Args:
        names: Of the outputs.
        task: What the targets are.
        rows: One of targets for each graph, in the units of the data.

    Returns:
        For each the words, and the weight of every class or label in it, the largest first; no
        weights for regression.

    Example:
        >>> target_words(["a", "b"], "multiclass", [[0.25, 0.75]])
        [('75 % b, 25 % a', (('b', 0.75), ('a', 0.25)))]
    """
    if task == "regression":
        return [(value_words(names, row) or "unknown", ()) for row in rows]
    found = []
    for row in rows:
        # NaN, an entry that was not measured, is not above anything.
        parts = [(names[place], share) for place, share in enumerate(row) if share > _NOTHING]
        parts.sort(key=lambda part: -part[1])
        words = ", ".join(f"{100 * share:.0f} % {name}" for name, share in parts)
        found.append((words or NO_LABEL, tuple(parts)))
    return found
