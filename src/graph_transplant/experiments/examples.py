"""Examples for the report: what a trained model looks at, and what graphs its method makes.

They go into the record of a trial, so that the report is made from records alone.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from graph_transplant.analysis.samples import edges_there
from graph_transplant.augment import Augmentation, CleanPass, MixedGraphs, Sequential, VirtualGraphs
from graph_transplant.experiments.shown import (
    Example,
    Made,
    Mixture,
    Part,
    Salient,
    write_example,
)
from graph_transplant.experiments.structures import (
    LABELLED,
    NO_LABEL,
    graph_id,
    label_words,
    output_words,
    structures,
)
from graph_transplant.graphs import GraphBatch, GraphStore
from graph_transplant.kernels.compiling import Ints
from graph_transplant.nn import evaluating
from graph_transplant.saliency import (
    Predictor,
    as_predictor,
    module_of,
    read_saliency,
    within_graphs,
)
from graph_transplant.segments import offsets, rank_in_segment
from graph_transplant.splits import Split
from graph_transplant.targets import Loss, TargetScale, batch_targets

SMALL_NODES: Final = 60
SMALL_EDGES: Final = 150
"""Graphs with more nodes or edges than this are not shown where there are enough smaller ones."""

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
    seed: int,
    saliency: int = 4,
    mixtures: int = 2,
    scale: TargetScale | None = None,
) -> list[dict[str, Any]]:
    """Choose some examples of what a model looks at and of what its method makes, for a record.

    Which graphs are shown follows from the data and the seed alone, so that methods can be set side
    by side: small ones, of different classes where there are any. The model, the augmentations and
    torch's own generator stay as they are.

    Args:
        model: The trained model.
        augmentations: What it was trained with, as training left it.
        train: Training graphs, with targets in the units of the data.
        test: Test graphs, likewise.
        seed: Determines all choices.
        saliency: How many test graphs to show.
        mixtures: How many virtual graphs to show; none are shown of methods that make no graphs.
        scale: How numbers to predict were standardised for training, if they were.

    Returns:
        One object for each, see :func:`~graph_transplant.experiments.shown.read_example`.
    """
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
            made += _made(predictor, maker, train, shown, generator, scale)
        found += made[:mixtures]
    return [write_example(one) for one in found]


def choose(store: GraphStore, count: int, generator: torch.Generator) -> Tensor:
    """Draw at most ``count`` small graphs, of different classes where there are any."""
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

    A trial knows its graphs only by their number among its training or test graphs, such as
    ``"test-3"``: workers do not have the rows of the file.
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


def _salient(
    model: Predictor, store: GraphStore, shown: Tensor, scale: TargetScale | None
) -> list[Salient]:
    """Explain what the model says about some graphs."""
    task, names = store.task, store.output_names
    batch = store.batch(shown).to(next(module_of(model).parameters()).device)
    prediction, _, saliency = read_saliency(model, batch, task)
    logits = prediction.logits.detach().cpu()
    scaled, _ = within_graphs(saliency.cpu(), batch)
    confidence: list[float | None] = [None] * len(logits)
    if task == "multiclass":
        outputs = logits.softmax(1)
        confidence = list(outputs.amax(1).tolist())
    elif task == "multilabel":
        outputs = logits.sigmoid()
        confidence = list(torch.maximum(outputs, 1 - outputs).mean(1).tolist())
    else:
        outputs = logits if scale is None else scale.undo(logits)
    counts = np.diff(batch.ptr).tolist()
    parts = torch.split(scaled, counts)
    marked = batch.nodes.get("motif_mask")
    motif = None if marked is None else torch.split(marked.cpu(), counts)
    graphs = structures(batch, store)
    return [
        Salient(
            graph=f"test-{number + 1}",
            truth=label_words(store, number),
            predicted=output_words(task, names, outputs[place].tolist()),
            confidence=confidence[place],
            correct=_correct(store, number, outputs[place]),
            structure=graphs[place],
            saliency=tuple(parts[place].tolist()),
            motif=None if motif is None else tuple(motif[place].bool().tolist()),
        )
        for place, number in enumerate(shown.tolist())
        # Else training has failed: there is nothing to see.
        if parts[place].isfinite().all() and logits[place].isfinite().all()
    ]


def _correct(store: GraphStore, number: int, outputs: Tensor) -> bool | None:
    """Whether a prediction is right; labels that were not measured do not count."""
    if store.task == "regression" or label_words(store, number) is None:
        return None
    if store.task == "multiclass":
        return int(outputs.argmax()) == int(store.y[number])
    wanted = store.y[number].reshape(-1)
    return bool(((outputs >= LABELLED) == (wanted >= LABELLED))[~wanted.isnan()].all())


def _made(
    model: Predictor,
    maker: Augmentation,
    store: GraphStore,
    shown: Tensor,
    generator: torch.Generator,
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
    # Where augmentations follow one another, what was mixed last are no graphs of the data.
    ends = any(isinstance(module, Sequential) for module in maker.modules())
    made: Sequence[Mixture | Made]
    if isinstance(virtual, MixedGraphs) and not ends:
        numbers = shown.tolist()
        made = [
            one
            for one in taken_apart(
                store, shown, batch, virtual, rows, lambda place: f"train-{numbers[place] + 1}"
            )
            # A graph mixed with itself shows nothing.
            if one.source.id != one.destination.id and math.isfinite(one.weight)
        ]
    else:
        graphs = structures(virtual.batch, store, there=edges_there(virtual.batch))
        words = [target_words(store, row)[0] for row in rows.tolist()]
        made = [Made(graph, label) for graph, label in zip(graphs, words, strict=True)]
    return [
        one
        for one in made
        if len(one.structure.names) <= 2 * LARGEST_NODES
        and len(one.structure.edges) <= 2 * LARGEST_EDGES
    ]


def taken_apart(
    store: GraphStore,
    shown: Tensor,
    batch: GraphBatch,
    mixed: MixedGraphs,
    targets: Tensor,
    name: Callable[[int], str],
) -> list[Mixture]:
    """Take mixed graphs apart again, with where everything comes from.

    ``shown`` are the numbers of the graphs that were mixed, ``batch`` these graphs, ``targets``
    those of the mixed ones in the units of the data; ``name`` gives what a graph is called.
    """
    plan, places = mixed.plan, shown.tolist()
    originals = structures(batch, store)
    joined = structures(mixed.batch, store, there=edges_there(mixed.batch))
    from_source = np.split(mixed.node_from_source, mixed.batch.ptr[1:-1])

    def part(graph: int, nodes: Ints, share: float) -> Part:
        chosen = np.zeros(len(originals[graph].names), np.bool_)
        chosen[nodes - batch.ptr[graph]] = True
        label = label_words(store, places[graph]) or "unknown"
        return Part(name(graph), label, originals[graph], tuple(chosen.tolist()), float(share))

    found = []
    for number, (graph, row) in enumerate(zip(joined, targets.tolist(), strict=True)):
        taken = plan.taken[plan.taken_ptr[number] : plan.taken_ptr[number + 1]]
        rest = plan.rest[plan.rest_ptr[number] : plan.rest_ptr[number + 1]]
        given = tuple(from_source[number].tolist())
        found.append(
            Mixture(
                source=part(int(mixed.source_of[number]), taken, mixed.source_share[number]),
                destination=part(number, rest, mixed.destination_share[number]),
                structure=graph,
                from_source=given,
                # Edges between the parts are new, all others are kept.
                new_edges=tuple(n for n, (a, b) in enumerate(graph.edges) if given[a] != given[b]),
                label=target_words(store, row)[0],
                weight=float(mixed.label_weight[number]),
            )
        )
    return found


def target_words(
    store: GraphStore, row: Sequence[float]
) -> tuple[str, tuple[tuple[str, float], ...]]:
    """Write mixed targets in words, with the weight of every class or label, the largest first."""
    names = store.output_names
    if store.task == "regression":
        return output_words(store.task, names, row) or "unknown", ()
    # NaN, an entry that was not measured, is not above anything.
    parts = [(name, share) for name, share in zip(names, row, strict=True) if share > _NOTHING]
    parts.sort(key=lambda part: -part[1])
    words = ", ".join(f"{100 * share:.0f} % {name}" for name, share in parts)
    return words or NO_LABEL, tuple(parts)
