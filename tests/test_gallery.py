"""Mixed graphs to look at: what is shown is what was mixed."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import graph_transplant as gt
from graph_transplant.augment import METHODS
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.experiments.shown import Mixture
from graph_transplant.graphs import GraphStore
from graph_transplant.nn import GraphClassifier
from graph_transplant.trained.gallery import DRAWABLE, mixtures
from graph_transplant.trained.model import TrainedModel

QUICK: dict[str, Any] = {"count": 4, "epochs": 1, "hidden": 8}


@pytest.fixture(scope="module")
def motifs() -> GraphStore:
    return gt.load("motifs", graphs=60)


def trained(store: GraphStore, **changes: Any) -> TrainedModel:
    """A model as if it had been trained on the data."""
    network = GraphClassifier.for_data(store, layers=2, hidden=8, seed=0).eval()
    description = {
        "label_names": list(store.label_names or map(str, range(store.num_outputs))),
        "reading": store.reading,
        "data": {"name": store.name},
        "training": {"method": "vanilla"},
        **changes,
    }
    return TrainedModel(network, 1.0, None, description)


def edges_within(edges: tuple[tuple[int, int], ...], chosen: tuple[bool, ...]) -> int:
    return sum(chosen[one] and chosen[two] for one, two in edges)


def check(one: Mixture) -> None:
    """Hold a mixture against the two graphs it says it was made of."""
    source, destination, mixed = one.source, one.destination, one.structure
    assert sum(one.from_source) == sum(source.chosen)
    assert len(one.from_source) - sum(one.from_source) == sum(destination.chosen)
    names = [
        name for name, chosen in zip(source.structure.names, source.chosen, strict=True) if chosen
    ]
    names += [
        name
        for name, chosen in zip(destination.structure.names, destination.chosen, strict=True)
        if chosen
    ]
    assert Counter(names) == Counter(mixed.names)
    # New edges are exactly those between the parts; within, the edges of the two graphs are kept.
    between = {
        number
        for number, (a, b) in enumerate(mixed.edges)
        if one.from_source[a] != one.from_source[b]
    }
    assert set(one.new_edges) == between
    inside = edges_within(source.structure.edges, source.chosen)
    outside = edges_within(destination.structure.edges, destination.chosen)
    assert len(mixed.edges) - len(between) == inside + outside
    assert one.weight == pytest.approx(source.share / (source.share + destination.share), abs=1e-5)


@pytest.mark.parametrize("method", [name for name in METHODS if name.startswith("transplant-")])
def test_what_is_shown_is_what_was_mixed(method: str, motifs: GraphStore) -> None:
    found = mixtures(motifs, method=method, **QUICK)
    assert len(found) == 4
    for one in found:
        check(one)
        assert one.source.id != one.destination.id
        weights = Counter({one.source.label: one.weight})
        weights[one.destination.label] += 1 - one.weight
        wanted = {name: weight for name, weight in weights.items() if weight > 0.0005}
        assert dict(one.labels) == pytest.approx(wanted, abs=1e-5)
        if method == "transplant-disconnected":
            assert one.new_edges == ()
        if method == "transplant-size-label":
            nodes = one.source.chosen
            assert one.source.share == pytest.approx(sum(nodes) / len(nodes), abs=1e-5)
    # Every graph is shown once as a source and once as a destination.
    assert {one.source.id for one in found} == {one.destination.id for one in found}


def test_ids_and_labels_are_those_of_the_graphs(motifs: GraphStore) -> None:
    for one in mixtures(motifs, method="transplant-dp", **QUICK):
        for part in (one.source, one.destination):
            number = int(part.id) - 1
            assert part.label == (motifs.label_names or ())[int(motifs.y[number])]
            assert len(part.structure.names) == int(motifs.node_counts[number])
            assert 2 * len(part.structure.edges) == int(motifs.edge_counts[number])


def test_the_same_seed_shows_the_same_and_another_does_not(motifs: GraphStore) -> None:
    first = mixtures(motifs, seed=1, **QUICK)
    assert first == mixtures(motifs, seed=1, **QUICK)
    assert first != mixtures(motifs, seed=2, **QUICK)


def test_training_is_told(motifs: GraphStore) -> None:
    predicted = mixtures(motifs, **QUICK)[0].note
    assert predicted.startswith(
        "Saliency and edges come from a small gcs model trained for 1 epoch"
    )
    drawn = mixtures(motifs, method="transplant-dp", **QUICK)[0].note
    assert drawn.startswith("Saliency comes from a small gcs model trained for 1 epoch on 48 of")


def test_molecules_with_bonds_are_shown_by_a_model_that_uses_them() -> None:
    pytest.importorskip("rdkit")
    from graph_transplant.datasets.molecules import from_smiles

    store = from_smiles(["CCO", "CCN", "CCCO", "CCCN", "OCCO", "NCCN"])
    store = store.with_targets(torch.tensor([0, 1, 0, 1, 0, 1]))
    assert store.num_edge_features
    (one, *_) = mixtures(store, method="transplant-dp", **QUICK)
    check(one)
    assert "a small gine model" in one.note


def test_a_trained_model_gives_the_saliency(motifs: GraphStore) -> None:
    model = trained(motifs)
    given: dict[str, Any] = {"method": "transplant-dp", "count": 3, "model": model}
    found = mixtures(motifs, **given)
    for one in found:
        check(one)
    assert found[0].note == "Saliency comes from the model trained on motifs with vanilla."
    # Shares of saliency are not shares of nodes: the model was really asked.
    sizes = [sum(one.source.chosen) / len(one.source.chosen) for one in found]
    assert [one.source.share for one in found] != pytest.approx(sizes, abs=1e-3)
    assert all(parameter.grad is None for parameter in model.network.parameters())
    with pytest.raises(GraphTransplantError, match="edge predictor ψ, which is not kept"):
        mixtures(motifs, method="transplant-ep", model=model)


def test_a_model_of_other_data_is_refused(motifs: GraphStore) -> None:
    two = motifs.with_targets(
        motifs.y % 2, task="multiclass", num_outputs=2, label_names=["a", "b"]
    )
    with pytest.raises(DataError, match="with 2 outputs, but the model was trained for"):
        mixtures(two, method="transplant-dp", model=trained(motifs))


def test_methods_without_a_transplanted_part_are_refused(motifs: GraphStore) -> None:
    with pytest.raises(
        GraphTransplantError, match=r"transplant-dp, .*; drop-nodes has no such part"
    ):
        mixtures(motifs, method="drop-nodes")
    with pytest.raises(GraphTransplantError, match="saliency-shuffled has no such part"):
        mixtures(motifs, method="saliency-shuffled")
    with pytest.raises(GraphTransplantError, match="`method` must be one of"):
        mixtures(motifs, method="transplant")


@pytest.mark.parametrize("argument", ["count", "epochs"])
def test_numbers_must_be_positive(argument: str, motifs: GraphStore) -> None:
    with pytest.raises(GraphTransplantError, match=f"`{argument}` must be at least 1, got 0"):
        mixtures(motifs, **{argument: 0})


def test_two_graphs_are_needed(motifs: GraphStore) -> None:
    with pytest.raises(DataError, match="has 1 graph; a mixed graph needs two"):
        mixtures(motifs.subset([0]))
    found = mixtures(motifs.subset(range(3)), method="transplant-dp", count=12, epochs=1, hidden=8)
    assert len(found) == 3
    assert len(mixtures(motifs, method="transplant-dp", count=1, epochs=1, hidden=8)) == 1


def test_pairing_is_that_of_the_method(motifs: GraphStore) -> None:
    found = mixtures(motifs, method="transplant-dp:pairing=cross-class", **{**QUICK, "count": 12})
    assert all(one.source.label != one.destination.label for one in found)


def test_values_are_mixed_in_the_units_of_the_data(motifs: GraphStore) -> None:
    store = motifs.with_targets(
        1000.0 + torch.arange(60.0), task="regression", num_outputs=1, label_names=["mass"]
    )
    for one in mixtures(store, method="transplant-dp", **QUICK):
        source, destination = (1000 + int(part.id) - 1 for part in (one.source, one.destination))
        assert one.source.label == f"mass {source:.4g}"
        value = one.weight * source + (1 - one.weight) * destination
        assert one.label == f"mass {value:.4g}"
        assert one.labels == ()


def test_labels_that_were_not_measured_are_left_out(motifs: GraphStore) -> None:
    y = torch.zeros(60, 3)
    y[:, 0] = 1.0
    y[:, 2] = math.nan
    store = motifs.with_targets(y, task="multilabel", label_names=["p", "q", "r"])
    for one in mixtures(store, method="transplant-dp", **QUICK):
        assert [name for name, _ in one.labels] == ["p"]
        assert one.source.label == "p"
    nothing = motifs.with_targets(torch.zeros(60, 2), task="multilabel", label_names=["p", "q"])
    assert mixtures(nothing, method="transplant-dp", **QUICK)[0].label == "none of the labels"


def test_very_large_graphs_are_not_shown_and_that_is_said() -> None:
    counts = torch.tensor([DRAWABLE + 50, 6, 7, 8, DRAWABLE + 1])
    back = []
    for n in counts.tolist():
        path = torch.stack((torch.arange(n - 1), torch.arange(1, n)))
        back.append(torch.cat((path, path.flip(0)), dim=1))
    edges = torch.cat(back, dim=1)
    store = GraphStore(
        x=torch.ones(int(counts.sum()), 1),
        edge_index=edges,
        y=torch.tensor([0, 1, 0, 1, 0]),
        node_counts=counts,
        edge_counts=2 * (counts - 1),
    )
    found = mixtures(store, method="transplant-dp", count=3, epochs=1, hidden=8)
    assert found[0].note.endswith("Only graphs of at most 100 nodes are shown.")
    assert {one.destination.id for one in found} == {"2", "3", "4"}
    found = mixtures(store, method="transplant-dp", count=4, epochs=1, hidden=8)
    assert found[0].note.endswith("The 4 smallest graphs are shown.")
    assert "1" not in {one.destination.id for one in found}


@pytest.mark.data
def test_molecules_keep_their_elements(data_dir: Path) -> None:
    store = gt.load(data_dir / "tu" / "MUTAG.zip")
    for one in mixtures(store, **QUICK):
        check(one)
        assert one.structure.molecule
        assert set(one.structure.names) <= {"C", "N", "O", "F", "I", "Cl", "Br"}
        assert set(one.structure.orders) <= {1.0, 1.5, 2.0, 3.0}
