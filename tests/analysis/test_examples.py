"""Examples in records: chosen by data and seed, true to the graphs, and refused when damaged."""

from __future__ import annotations

import copy
import gzip
import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import graph_transplant as gt
from graph_transplant.analysis.drawing import (
    LARGEST_NODES,
    SMALL_NODES,
    choose,
    drawn_mixes,
    examples,
)
from graph_transplant.augment import Augmentation, CleanPass, build_method
from graph_transplant.data import GraphStore
from graph_transplant.data.targets import TargetScale
from graph_transplant.errors import GraphTransplantError
from graph_transplant.methods import METHODS, expand_methods
from graph_transplant.models.explanation import explain
from graph_transplant.nn import GraphClassifier, evaluating
from graph_transplant.results.examples import (
    KINDS,
    DrawnSaliency,
    Mixture,
    read_example,
    write_example,
)
from helpers.edits import both_ways
from helpers.made_up_records import as_trained
from helpers.oracles import unchanged

NO_GRAPHS = {"vanilla", "manifold-mixup", "label-smoothing"}
TRANSPLANTS = {name for name in METHODS if name.startswith("transplant-")} | {"saliency-shuffled"}


@pytest.fixture(scope="module")
def motifs() -> GraphStore:
    """Motifs with node features, so that every method can serve them."""
    store = gt.load("motifs", graphs=90)
    listed = store.to_pyg()
    for number, data in enumerate(listed):
        generator = torch.Generator().manual_seed(number)
        data.x = torch.rand(int(data.num_nodes), 3, generator=generator)
    return GraphStore.from_pyg(
        listed, num_outputs=6, label_names=store.label_names, node_fields=["motif_mask"]
    )


def parts(store: GraphStore) -> tuple[GraphStore, GraphStore]:
    return store.subset(range(60)), store.subset(range(60, len(store)))


def ready(method: str, store: GraphStore) -> tuple[GraphClassifier, tuple[Augmentation, ...]]:
    model = GraphClassifier.for_data(store, hidden=8, layers=2, seed=0)
    augmentations = build_method(method, model, seed=0)
    for augmentation in augmentations:
        augmentation.prepare(store, torch.Generator().manual_seed(0))
    return model, augmentations


def made(method: str, store: GraphStore, **options: Any) -> list[dict[str, Any]]:
    return examples(*ready(method, store), *parts(store), **{"seed": 5, **options})


@pytest.mark.parametrize("method", expand_methods(["all"]))
def test_every_method_has_examples_that_a_record_can_hold(method: str, motifs: GraphStore) -> None:
    found = made(method, motifs)
    other = [] if method in NO_GRAPHS else ["mixture" if method in TRANSPLANTS else "virtual"]
    assert [one["kind"] for one in found] == ["saliency"] * 4 + other * 2
    text = json.dumps(found, allow_nan=False)
    assert len(text) < 25_000
    assert json.loads(text) == found
    assert [write_example(read_example(one)) for one in json.loads(text)] == found


def test_all_methods_show_the_same_test_graphs(motifs: GraphStore) -> None:
    same = ("graph", "truth", "names", "edges", "motif")

    def shown(method: str, **options: Any) -> list[list[Any]]:
        found = made(method, motifs, **options)
        return [[one[key] for key in same] for one in found if one["kind"] == "saliency"]

    assert shown("vanilla") == shown("transplant-ep") == shown("drop-nodes")
    assert shown("vanilla") != shown("vanilla", seed=6)
    assert len({row[1] for row in shown("vanilla")}) == 4  # different classes


def test_nothing_is_changed_and_the_seed_decides(motifs: GraphStore) -> None:
    model, augmentations = ready("transplant-ep", motifs)
    model.train()
    with unchanged(model), unchanged(augmentations[0]):
        first = examples(model, augmentations, *parts(motifs), seed=1)
    assert not augmentations[0]._warned_about_saliency
    assert first == examples(model, augmentations, *parts(motifs), seed=1)


def test_saliency_maps_say_what_the_model_says(motifs: GraphStore) -> None:
    model, _ = ready("vanilla", motifs)
    _, test = parts(motifs)
    wrapped, listed = as_trained(model, test.output_names), test.to_pyg()
    for record in made("vanilla", motifs):
        one = read_example(record)
        assert isinstance(one, DrawnSaliency)
        number = int(one.graph) - 1
        with evaluating(model):
            probability = model.run(test.batch([number])).logits.softmax(1)[0]
        assert one.predicted == test.output_names[int(probability.argmax())]
        assert one.confidence == pytest.approx(float(probability.max()), abs=5e-5)
        assert one.truth == test.output_names[int(test.y[number])]
        assert one.correct == (one.truth == one.predicted)
        assert one.motif == tuple(listed[number].motif_mask.tolist())
        (view,) = explain(wrapped, test.subset([number]))[0].views
        assert one.saliency == pytest.approx(view.saliency, abs=1e-4)
        assert max(one.saliency) == 1
        wanted = listed[number].edge_index.t().tolist()
        assert sorted(map(list, one.structure.edges)) == sorted(e for e in wanted if e[0] < e[1])


@pytest.mark.parametrize("method", ["transplant-ep", "saliency-shuffled"])
def test_mixtures_are_what_was_mixed(method: str, motifs: GraphStore) -> None:
    train, _ = parts(motifs)
    for record in made(method, motifs)[4:]:
        one = read_example(record)
        assert isinstance(one, Mixture)
        assert one.source.id != one.destination.id
        weights: Counter[str] = Counter()
        for part, weight in ((one.source, one.weight), (one.destination, 1 - one.weight)):
            number = int(part.id) - 1
            assert part.label == train.output_names[int(train.y[number])]
            weights[part.label] += weight
        told = dict(reversed(piece.split(" % ")) for piece in one.label.split(", "))
        assert {name: float(share) for name, share in told.items()} == pytest.approx(
            {name: 100 * weight for name, weight in weights.items()}, abs=0.6
        )


def test_pairs_that_the_edge_predictor_left_apart_are_not_drawn(motifs: GraphStore) -> None:
    model, (transplant,) = ready("transplant-ep", motifs)
    assert isinstance(transplant, gt.GraphTransplant)
    shown = torch.arange(12)
    batch = motifs.batch(shown)
    with evaluating(model), torch.enable_grad():
        clean = CleanPass(batch, torch.eye(6)[batch.y], model.run(batch))
        soft = transplant(clean, model=model, generator=torch.Generator().manual_seed(0))
    assert bool((soft.batch.edge_weight == 0).any())
    hard = transplant.transform(replace(soft.plan, soft_edges=False), clean)
    assert hard.batch.edge_weight is None
    assert drawn_mixes(motifs, shown, batch, soft, soft.targets, str) == drawn_mixes(
        motifs, shown, batch, hard, hard.targets, str
    )


def test_numbers_are_in_the_units_of_the_data(motifs: GraphStore) -> None:
    y = 1000.0 + 3 * torch.arange(90.0)
    store = motifs.with_targets(y, task="regression", num_outputs=1, label_names=["mass"])
    train, test = parts(store)
    scale = TargetScale.of(train)
    found = made("transplant-dp", store, scale=scale)
    model, _ = ready("transplant-dp", store)
    for record in found[:4]:
        number = int(record["graph"]) - 1
        with evaluating(model):
            value = float(scale.undo(model.run(test.batch([number])).logits)[0, 0])
        assert record["predicted"] == f"mass {value:.4g}"
        assert record["truth"] == f"mass {float(test.y[number, 0]):.4g}"
        assert record["confidence"] is record["correct"] is None
    for record in found[4:]:
        label = [float(record[side]["label"].split()[1]) for side in ("source", "destination")]
        mixed = record["weight"] * label[0] + (1 - record["weight"]) * label[1]
        assert float(record["label"].split()[1]) == pytest.approx(mixed, abs=1.0)


def paths(counts: list[int]) -> GraphStore:
    listed = [
        Data(edge_index=both_ways(*pairwise(range(nodes))), num_nodes=nodes, y=torch.tensor([0]))
        for nodes in counts
    ]
    return GraphStore.from_pyg(listed, num_outputs=2)


def test_small_graphs_are_shown_and_huge_ones_never() -> None:
    store = paths([SMALL_NODES + 1, 5, SMALL_NODES, LARGEST_NODES + 1, 6])
    generator = torch.Generator().manual_seed(0)
    assert set(choose(store, 3, generator).tolist()) == {1, 2, 4}
    assert choose(store, 4, generator).tolist() == [1, 4, 2, 0]  # the smallest
    assert choose(store, 5, generator).tolist() == [1, 4, 2, 0]
    huge = paths([LARGEST_NODES + 1, LARGEST_NODES + 2])
    assert examples(*ready("drop-nodes", huge), huge, huge, seed=0) == []


# -------------------------------------------------------------------- damaged records


def graph(nodes: int = 3) -> dict[str, Any]:
    return {"names": ["a"] * nodes, "edges": [[0, 1], [1, 2]], "orders": [1.5, 2.0]}


def sample(kind: str) -> dict[str, Any]:
    flags: dict[str, Any] = {"molecule": True, "directed": False}
    if kind == "saliency":
        said = {"graph": "7", "truth": "x", "predicted": "y", "confidence": 0.5, "correct": False}
        own = {"saliency": [0, 0.5, 1.0], "motif": [0, 1, 1]}
        return {"kind": kind, **said, **graph(), **flags, **own}
    if kind == "virtual":
        return {"kind": kind, **graph(), **flags, "label": "x"}
    part = {"id": "7", "label": "x", **graph(), "chosen": [1, 0, 1], "share": 0.5}
    sides = {"source": part, "destination": copy.deepcopy(part)}
    mixed = {"from_source": [1, 1, 0], "new_edges": [1], "label": "x", "weight": 0.25}
    return {"kind": kind, **sides, **graph(), **flags, **mixed}


def test_examples_of_earlier_versions_are_read_and_written_back() -> None:
    found = [
        example
        for path in sorted((Path(__file__).parents[1] / "golden" / "records").glob("*.gz"))
        for line in gzip.decompress(path.read_bytes()).splitlines()
        for example in json.loads(line).get("examples", ())
    ]
    assert {one["kind"] for one in found} == set(KINDS)
    for one in found:
        again = write_example(read_example(one))
        assert again == one
        assert list(again) == list(one)


WRONG: list[tuple[str, str, Any, str]] = [
    ("virtual", "kind", "other", "'other'"),
    ("virtual", "edges", [[0, 3]], "an edge refers to a missing node"),
    ("virtual", "edges", [[0, 1, 2]], r"`structure.edges\[0\]` must be a list of length 2; got 3"),
    ("virtual", "orders", [1.0], "`orders` must have a value for each edge"),
    ("saliency", "saliency", [0, 1], "`saliency` must have a value for each node"),
    ("mixture", "source", None, ""),
]


@pytest.mark.parametrize(("kind", "field", "value", "message"), WRONG)
def test_a_damaged_record_is_told(kind: str, field: str, value: Any, message: str) -> None:
    with pytest.raises(GraphTransplantError, match="an example in a record is damaged: " + message):
        read_example(sample(kind) | {field: value})
    missing = sample(kind)
    del missing["label" if kind != "saliency" else "predicted"]
    with pytest.raises(GraphTransplantError, match="is missing"):
        read_example(missing)
