"""Mixed graphs with their two originals (appendix, "Examples of Graph Transplant")."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, cast

import numpy as np
import torch
from torch import Tensor

from graph_transplant.augment import METHODS, CleanPass, GraphTransplant, MixedGraphs, build_method
from graph_transplant.augment.pairing import Pairing
from graph_transplant.errors import DataError, GraphTransplantError, check_at_least
from graph_transplant.format import count as counted
from graph_transplant.graphs import GraphBatch, GraphStore
from graph_transplant.kernels.arrays import Ints
from graph_transplant.methods import parse_method
from graph_transplant.nn import GraphClassifier, evaluating
from graph_transplant.settings import automatic_model
from graph_transplant.shown import Mixture
from graph_transplant.structures import class_column, graph_id, taken_apart, target_words
from graph_transplant.targets import Loss, TargetScale, batch_targets
from graph_transplant.training import fit

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
    found = taken_apart(
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
    fit(network, train, validation, transplant, seed=seed, epochs=epochs, progress=False)
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
