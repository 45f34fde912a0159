"""Graphs prepared for drawing: what a model looked at, what an augmentation made."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, cast

import numpy as np
import torch
from torch import Tensor, nn

from graph_transplant.analysis.samples import present_edges
from graph_transplant.augment import (
    Augmentation,
    CleanPass,
    GraphTransplant,
    MixedGraphs,
    Sequential,
    VirtualGraphs,
    build_method,
)
from graph_transplant.augment.pairing import Pairing
from graph_transplant.config import FitConfig
from graph_transplant.data import GraphBatch, GraphStore
from graph_transplant.data.targets import (
    Loss,
    TargetScale,
    batch_targets,
    class_column,
    graph_id,
    is_correct,
    label_words,
    output_words,
    target_words,
)
from graph_transplant.datasets.molecules import (
    atom_names,
    bond_orders_of,
    edge_types_of,
    node_names_of,
)
from graph_transplant.errors import DataError, GraphTransplantError, check_at_least
from graph_transplant.kernels import csr
from graph_transplant.kernels.arrays import Bools, Ints
from graph_transplant.methods import METHODS, parse_method
from graph_transplant.nn import GraphClassifier, evaluating
from graph_transplant.nn.adapter import Predictor, as_predictor, module_of
from graph_transplant.nn.saliency import has_saliency, read_saliency, within_graphs
from graph_transplant.results.examples import (
    DrawnGraph,
    DrawnPart,
    DrawnSaliency,
    DrawnVirtual,
    Example,
    Mixture,
    write_example,
)
from graph_transplant.training.defaults import automatic_model
from graph_transplant.training.loop import fit_with
from graph_transplant.utils.text import count as counted

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
) -> list[DrawnSaliency]:
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
    graphs = drawn_graphs(batch, store)
    rows, wanted = outputs.tolist(), store.y[shown].reshape(len(shown), -1).tolist()
    truths = [label_words(store, number) for number in shown.tolist()]
    return [
        DrawnSaliency(
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
) -> list[Mixture | DrawnVirtual]:
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
    made: list[Mixture | DrawnVirtual] = []
    if isinstance(virtual, MixedGraphs) and not ends:
        numbers = shown.tolist()
        mixed = drawn_mixes(
            store, shown, batch, virtual, rows, lambda place: name("train", numbers[place])
        )
        # A graph mixed with itself shows nothing.
        made += [m for m in mixed if m.source.id != m.destination.id and math.isfinite(m.weight)]
    else:
        graphs = drawn_graphs(virtual.batch, store, there=present_edges(virtual.batch))
        words = [target_words(store, row)[0] for row in rows.tolist()]
        made += [DrawnVirtual(graph, label) for graph, label in zip(graphs, words, strict=True)]
    return [
        one
        for one in made
        if len(one.structure.names) <= 2 * LARGEST_NODES
        and len(one.structure.edges) <= 2 * LARGEST_EDGES
    ]


def drawn_graphs(
    batch: GraphBatch, store: GraphStore, *, there: Bools | None = None
) -> list[DrawnGraph]:
    """Convert a batch with the features of a store; ``there`` masks the edges to keep."""
    names, molecule = node_names_of(batch, store, atom_names)
    orders = bond_orders_of(batch, store) if molecule else None
    kinds = None if molecule else edge_types_of(batch, store)
    row, column = csr.rows_of(batch.row_ptr), batch.column
    # Draw only one direction of an undirected edge.
    first, second = (row, column) if store.undirected else (column, row)
    shown = first <= second if store.undirected else np.ones(batch.num_edges, np.bool_)
    if there is not None:
        shown = shown & there
    found = []
    for start, end in pairwise(batch.ptr.tolist()):
        before = batch.row_ptr[start]
        edges = before + np.flatnonzero(shown[before : batch.row_ptr[end]])
        pairs = np.stack((first[edges], second[edges]), axis=1) - start
        bonds = () if orders is None else tuple(orders[edge] for edge in edges.tolist())
        found.append(
            DrawnGraph(
                names=tuple(names[start:end]),
                edges=tuple((one, two) for one, two in pairs.tolist()),
                orders=bonds if set(bonds) != {1.0} else (),
                molecule=molecule,
                directed=not store.undirected,
                kinds=() if kinds is None else tuple(kinds[edge] for edge in edges.tolist()),
            )
        )
    return found


def drawn_mixes(
    store: GraphStore,
    shown: Tensor,
    batch: GraphBatch,
    mixed: MixedGraphs,
    targets: Tensor,
    name: Callable[[int], str],
) -> list[Mixture]:
    """Convert mixed graphs, with the origin of nodes and edges.

    ``shown`` are the indices of the original graphs in the store, ``batch`` these graphs,
    ``targets`` those of the mixed graphs in the units of the data; ``name`` returns a graph's name.
    """
    plan, places = mixed.plan, shown.tolist()
    originals = drawn_graphs(batch, store)
    joined = drawn_graphs(mixed.batch, store, there=present_edges(mixed.batch))
    from_source = np.split(mixed.node_from_source, mixed.batch.ptr[1:-1])

    def part(graph: int, nodes: Ints, share: float) -> DrawnPart:
        chosen = np.zeros(len(originals[graph].names), np.bool_)
        chosen[nodes - batch.ptr[graph]] = True
        label = label_words(store, places[graph]) or "unknown"
        return DrawnPart(name(graph), label, originals[graph], tuple(chosen.tolist()), float(share))

    found = []
    for number, (graph, row) in enumerate(zip(joined, targets.tolist(), strict=True)):
        part_ptr, rest_ptr = plan.part.ptr, plan.rest.ptr
        taken = plan.part.item[part_ptr[number] : part_ptr[number + 1]]
        rest = plan.rest.item[rest_ptr[number] : rest_ptr[number + 1]]
        given = tuple(from_source[number].tolist())
        found.append(
            Mixture(
                source=part(int(mixed.source_of[number]), taken, mixed.source_share[number]),
                destination=part(number, rest, mixed.destination_share[number]),
                structure=graph,
                from_source=given,
                # Only edges between the parts are new.
                new_edges=tuple(n for n, (a, b) in enumerate(graph.edges) if given[a] != given[b]),
                label=target_words(store, row)[0],
                weight=float(mixed.label_weight[number]),
            )
        )
    return found


DRAWABLE: Final = 100  # maximum number of nodes, if there are enough such graphs
TRAINED_ON: Final = 1000  # maximum number of training graphs for a gallery's model
_VALIDATED_ON: Final = 200


def mixtures(
    store: GraphStore,
    *,
    method: str = "transplant-ep",
    count: int = 12,
    epochs: int = 20,
    hidden: int = 64,
    seed: int = 0,
) -> list[Mixture]:
    """Mix at most ``count`` graphs of a data set, for display.

    Saliency, and the edge predictor ψ of EP, come from a model trained on the data for a few
    epochs. ``method`` is one of ``transplant-…``.

    Example:
        >>> import graph_transplant as gt
        >>> motifs = gt.load("motifs", graphs=60)
        >>> first, *_ = mixtures(motifs, method="transplant-dp", count=2, epochs=1, hidden=8)
        >>> len(first.from_source) == len(first.structure.names)
        True
    """
    check_at_least(1, count=count, epochs=epochs)
    if not parse_method(method)[0].startswith("transplant-"):
        usable = ", ".join(name for name in METHODS if name.startswith("transplant-"))
        raise GraphTransplantError(
            f"`method` must be one that transplants a part, {usable}; {method} has no such part "
            "to show"
        )
    if len(store) < 2:
        raise DataError(f"{store.name} has {len(store)} graph; a mixed graph needs two")
    generator = torch.Generator().manual_seed(seed)
    network, transplant, targets, how = _train(store, method, epochs, hidden, seed, generator)
    shown, which = _choose(store, count, generator)
    batch = targets.batch(shown)
    mixed = _mix(network, transplant, batch, store.task, generator)
    rows, numbers = _mixed_targets(store, shown, mixed), shown.tolist()
    found = drawn_mixes(
        store, shown, batch, mixed, rows, lambda place: graph_id(store, numbers[place])
    )
    about: dict[str, Any] = {
        "method": method,
        "data": store.name,
        "note": f"{how} {which}".strip(),
        "target": class_column(store.task, store.featurizer),
    }
    return [
        replace(one, labels=target_words(store, row)[1], **about)
        for one, row in zip(found, rows.tolist(), strict=True)
    ][:count]


def _train(
    store: GraphStore,
    method: str,
    epochs: int,
    hidden: int,
    seed: int,
    generator: torch.Generator,
) -> tuple[GraphClassifier, GraphTransplant, GraphStore, str]:
    targets = TargetScale.of(store).apply(store) if store.task == "regression" else store
    order = torch.randperm(len(store), generator=generator)
    held = min(_VALIDATED_ON, max(1, len(store) // 5))
    train = targets.subset(order[held : held + TRAINED_ON])
    validation = targets.subset(order[:held])
    conv = automatic_model(store)
    network = GraphClassifier.for_data(targets, conv=conv, hidden=hidden, seed=seed)
    (transplant,) = build_method(method, network, seed=seed)
    assert isinstance(transplant, GraphTransplant)
    transplant.check(network, targets)
    config = FitConfig(seed=seed, epochs=epochs)
    fit_with(config, network, train, validation, transplant, progress=False)
    what = "Saliency comes" if transplant.edge_predictor is None else "Saliency and edges come"
    how = (
        f"{what} from a small {conv} model trained for {counted(epochs, 'epoch')} on "
        f"{len(train):,} of the graphs, only to draw this page."
    )
    return network, transplant, targets, how


def _choose(store: GraphStore, count: int, generator: torch.Generator) -> tuple[Tensor, str]:
    order = torch.randperm(len(store), generator=generator)
    counts = store.node_counts.index_select(0, order)
    small = order[counts <= DRAWABLE]
    wanted = max(count, 2)
    if small.numel() == len(store):
        return order[:wanted], ""
    if small.numel() >= wanted:
        return small[:wanted], f"Only graphs of at most {DRAWABLE} nodes are shown."
    smallest = order[torch.argsort(counts, stable=True)][:wanted]
    return smallest, f"The {smallest.numel()} smallest graphs are shown."


def _mix(
    network: GraphClassifier,
    transplant: GraphTransplant,
    batch: GraphBatch,
    task: str,
    generator: torch.Generator,
) -> MixedGraphs:
    """Mix a batch as in a training step, but without dropout and with hard edges."""
    with evaluating(network), torch.enable_grad():
        clean = CleanPass(batch, batch_targets(batch), network.run(batch), Loss(task))
        if transplant.reads_saliency:
            clean.saliency(transplant.saliency)
    if transplant.pairing.policy == "random":
        transplant.pairing = _Cycle()
    with torch.no_grad():
        return cast("MixedGraphs", transplant(clean, model=None, generator=generator))


class _Cycle(Pairing):
    """A random cycle through all graphs, so that none is mixed with itself."""

    def sources(self, targets: Tensor, task: str, rng: np.random.Generator) -> Ints:
        order = rng.permutation(len(targets))
        source_of = np.empty_like(order)
        source_of[order] = np.roll(order, 1)
        return source_of


def _mixed_targets(store: GraphStore, shown: Tensor, mixed: MixedGraphs) -> Tensor:
    if store.task != "regression":
        return mixed.targets
    own = store.y.index_select(0, shown).to(torch.double)
    weight = mixed.label_weight.to(torch.double).unsqueeze(1)
    return weight * own[torch.from_numpy(mixed.source_of)] + (1 - weight) * own
