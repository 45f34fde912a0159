"""Examples for the report: what a trained model looks at, and the graphs its method makes."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from graph_transplant.analysis.samples import edges_there
from graph_transplant.augment import Augmentation, CleanPass, MixedGraphs, Sequential, VirtualGraphs
from graph_transplant.graphs import GraphStore
from graph_transplant.nn import evaluating
from graph_transplant.saliency import (
    Predictor,
    as_predictor,
    has_saliency,
    module_of,
    read_saliency,
    within_graphs,
)
from graph_transplant.shown import Example, Made, Mixture, Salient, write_example
from graph_transplant.structures import (
    graph_id,
    is_correct,
    label_words,
    output_words,
    structures,
    taken_apart,
    target_words,
)
from graph_transplant.targets import Loss, TargetScale, batch_targets

SMALL_NODES: Final = 60
SMALL_EDGES: Final = 150
"""Larger graphs are shown only if there are not enough of at most this size."""

LARGEST_NODES: Final = 200
LARGEST_EDGES: Final = 500
"""Larger graphs are never shown: their records would be too long."""

# Numbers of graphs to explain, of graphs to augment together, and of results to show.
_SALIENT: Final = 4
_MIXED_TOGETHER: Final = 16
_MADE: Final = 2

Name = Callable[[str, int], str]
"""Name of a graph, given its part (``"train"`` or ``"test"``) and its number in it."""


def examples(
    model: Predictor | nn.Module,
    augmentations: Sequence[Augmentation],
    train: GraphStore,
    test: GraphStore,
    *,
    seed: int,
    scale: TargetScale | None = None,
    name: Name | None = None,
) -> list[dict[str, Any]]:
    """Return examples, for a record, of what a model looks at and what its method makes.

    The graphs are small and of different classes. They depend only on the data and the seed, so
    that methods can be compared side by side. Nothing is changed, including torch's global
    generator. Targets are in the units of the data; ``scale`` is their standardisation in training.
    """
    name = name or (lambda part, number: graph_id(train if part == "train" else test, number))
    generator = torch.Generator().manual_seed(seed)
    predictor = as_predictor(model)
    found: list[Example] = []
    shown = choose(test, _SALIENT, generator)
    if shown.numel() and has_saliency(predictor):
        found += _salient(predictor, test, shown, scale, name)
    makers = [copy.deepcopy(each) for each in augmentations if each.gives_graphs]
    shown = choose(train, _MIXED_TOGETHER, generator)
    made: list[Example] = []
    for maker in makers if shown.numel() else ():
        made += _made(predictor, maker, train, shown, generator, scale, name)
    return [write_example(one) for one in [*found, *made[:_MADE]]]


def choose(store: GraphStore, count: int, generator: torch.Generator) -> Tensor:
    """Draw at most ``count`` small graphs, of different classes if possible."""
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
        seen = torch.nn.functional.one_hot(store.labels[small], store.num_outputs).cumsum(0)
        rank = seen.gather(1, store.labels[small, None]).flatten()
        small = small[torch.argsort(rank, stable=True)]
    return small[:count]


def _salient(
    model: Predictor, store: GraphStore, shown: Tensor, scale: TargetScale | None, name: Name
) -> list[Salient]:
    task = store.task
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
    rows, wanted = outputs.tolist(), store.y[shown].reshape(len(shown), -1).tolist()
    truths = [label_words(store, number) for number in shown.tolist()]
    return [
        Salient(
            graph=name("test", number),
            truth=truth,
            predicted=output_words(task, store.output_names, rows[place]),
            confidence=confidence[place],
            correct=None if truth is None else is_correct(task, rows[place], wanted[place]),
            structure=graphs[place],
            saliency=tuple(parts[place].tolist()),
            motif=None if motif is None else tuple(motif[place].bool().tolist()),
        )
        for place, (number, truth) in enumerate(zip(shown.tolist(), truths, strict=True))
        # Otherwise training has diverged.
        if parts[place].isfinite().all() and logits[place].isfinite().all()
    ]


def _made(
    model: Predictor,
    maker: Augmentation,
    store: GraphStore,
    shown: Tensor,
    generator: torch.Generator,
    scale: TargetScale | None,
    name: Name,
) -> list[Mixture | Made]:
    """Apply an augmentation to some graphs, as a training step does."""
    targets = store if scale is None else scale.apply(store)
    batch = targets.batch(shown).to(next(module_of(model).parameters()).device)
    with evaluating(module_of(model)), torch.enable_grad():
        clean = CleanPass(batch, batch_targets(batch), model.run(batch), Loss(store.task))
        virtual = maker(clean, model=model, generator=generator)
    if not isinstance(virtual, VirtualGraphs):
        return []
    rows = virtual.targets.detach().cpu()
    rows = rows if scale is None else scale.undo(rows)
    # The last augmentation of a sequence does not mix graphs of the data.
    ends = any(isinstance(module, Sequential) for module in maker.modules())
    made: list[Mixture | Made] = []
    if isinstance(virtual, MixedGraphs) and not ends:
        numbers = shown.tolist()
        mixed = taken_apart(
            store, shown, batch, virtual, rows, lambda place: name("train", numbers[place])
        )
        # A graph mixed with itself shows nothing.
        made += [m for m in mixed if m.source.id != m.destination.id and math.isfinite(m.weight)]
    else:
        graphs = structures(virtual.batch, store, there=edges_there(virtual.batch))
        words = [target_words(store, row)[0] for row in rows.tolist()]
        made += [Made(graph, label) for graph, label in zip(graphs, words, strict=True)]
    return [
        one
        for one in made
        if len(one.structure.names) <= 2 * LARGEST_NODES
        and len(one.structure.edges) <= 2 * LARGEST_EDGES
    ]
