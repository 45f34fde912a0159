"""From a data set to a model: splits, figures, intervals, and what is told or refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk
from torch import Tensor

import graph_transplant as gt
from graph_transplant.data import Featurizer, GraphStore
from graph_transplant.datasets.splits import Split, official_split, random_split
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.metrics import measure
from graph_transplant.metrics.calibration import fit_temperature, reliability
from graph_transplant.metrics.functional import bootstrap_intervals
from graph_transplant.models import TrainedModel, evaluate, train
from graph_transplant.report.card import render_card
from graph_transplant.results.model_json import Sizes, Training
from graph_transplant.training import EpochLog
from helpers.strategies import generator

QUICK: dict[str, Any] = {"method": "vanilla", "forest": False}
QUICK |= {"hidden": 8, "layers": 1, "epochs": 2}
NOTHING = torch.empty(0, dtype=torch.long)


def graphs_with(y: Tensor, task: str, **settings: Any) -> GraphStore:
    """Pairs of nodes whose features say something about the target."""
    count = len(y)
    first = y if y.dim() == 1 else y[:, 0].nan_to_num()
    x = torch.randn(2 * count, 3, generator=generator(0))
    x[:, 0] += first.float().repeat_interleave(2)
    edges = torch.tensor([[0, 1], [1, 0]]).repeat(1, count)
    return GraphStore(
        x=x,
        edge_index=edges,
        y=y,
        node_counts=torch.full((count,), 2),
        edge_counts=torch.full((count,), 2),
        task=task,
        name="pairs",
        **settings,
    )


def classes(*counts: int, **settings: Any) -> GraphStore:
    y = torch.cat([torch.full((count,), number) for number, count in enumerate(counts)])
    return graphs_with(y, "multiclass", num_outputs=len(counts), **settings)


def labels(count: int = 80) -> GraphStore:
    drawn = generator(1)
    y = (torch.rand(count, 3, generator=drawn) < torch.tensor([0.5, 0.3, 0.2])).float()
    y[torch.rand(count, 3, generator=drawn) < 0.2] = math.nan
    return graphs_with(y, "multilabel", label_names=["a", "b", "c"])


def values(count: int = 80) -> GraphStore:
    y = torch.randn(count, 2, generator=generator(2)) * torch.tensor([300.0, 1.0]) + 1000
    y[3, 1] = math.nan
    return graphs_with(y, "regression", label_names=["mass", "length"])


def quickly(store: GraphStore, **settings: Any) -> Training:
    """What the description of a model that was trained in short says about its training."""
    return train(store, **{**QUICK, **settings}).description.training


# -------------------------------------------------------------------- random splits


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
    st.sampled_from([0.05, 0.1, 0.2, 0.35]),
    st.sampled_from([0.0, 0.1, 0.25]),
    st.integers(0, 5),
)
def test_a_random_split_has_its_share_of_every_class(
    counts: list[int], validation: float, test: float, seed: int
) -> None:
    store = classes(*counts)
    total = sum(counts)
    held_out = max(1, round(total * validation)) + (max(1, round(total * test)) if test else 0)
    if total - held_out < max(2, len(counts)):
        with pytest.raises(DataError, match="has too few graphs"):
            random_split(store, validation=validation, test=test, seed=seed)
        return
    split = random_split(store, validation=validation, test=test, seed=seed)
    train_part, validation_part, test_part = (
        part.tolist() for part in (split.train, split.validation, split.test)
    )
    assert sorted(train_part + validation_part + test_part) == list(range(total))
    assert all(part == sorted(part) for part in (train_part, validation_part, test_part))
    assert len(validation_part) == max(1, round(total * validation))
    assert len(test_part) == (max(1, round(total * test)) if test else 0)
    assert set(store.labels[split.train].tolist()) == set(range(len(counts)))
    # One graph of each class is set aside, the others are drawn at even distances.
    free = total - len(counts)
    for number, count in enumerate(counts):
        found = int((store.labels[split.test] == number).sum())
        assert abs(found - (count - 1) * len(test_part) / free) < 1 if free else not found


def test_a_random_split_of_values_has_its_share() -> None:
    for seed in range(20):
        store = values(61)
        split = random_split(store, validation=0.3, test=0.4, seed=seed)
        parts = torch.cat((split.train, split.validation, split.test))
        assert (len(split.validation), len(split.test)) == (18, 24)
        assert sorted(parts.tolist()) == list(range(61))


# -------------------------------------------------------------------- which split


def test_given_splits_are_taken_as_they_are() -> None:
    store = classes(10, 10)
    training = quickly(store, split=Split(torch.arange(2, 18), torch.tensor([0, 19]), NOTHING))
    assert training.split == "given"
    assert training.validation is training.test is None
    assert training.sizes == Sizes(train=16, validation=2, test=0)
    lone = Split(torch.arange(1, 20), torch.tensor([0]), NOTHING)
    told: list[str] = []
    quickly(store, split=lone, note=told.append)
    assert "classes missing from the validation graphs: 1" in told


def test_odd_splits_are_refused() -> None:
    store = classes(10, 10)
    for parts, message in (
        (([0, 1, 2], [2, 3], []), "every graph at most once"),
        (([0, 1, 2], [20], []), "graphs from 0 to 19"),
    ):
        with pytest.raises(DataError, match=message):
            quickly(store, split=Split(*parts))  # type: ignore[arg-type]
    given = quickly(store, split=Split(np.arange(18), [18, 19], []))  # type: ignore[arg-type]
    assert given.sizes == Sizes(train=18, validation=2, test=0)


def test_copies_in_a_saved_store_stay_together(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    smiles = ["C" * size + end for size in range(1, 11) for end in ("O", "N")]
    gt.load(smiles * 3, y=[0, 1] * 30).save(tmp_path / "mine.safetensors")
    told: list[str] = []
    description = train(tmp_path / "mine.safetensors", **QUICK, note=told.append).description
    assert description.data.duplicates.across == 0
    assert any("not by scaffold: saved graphs have no SMILES" in text for text in told)


def test_the_official_split_is_taken_where_there_is_one() -> None:
    store = classes(10, 10, official=torch.tensor(([0] * 6 + [1] * 2 + [2] * 2) * 2))
    told: list[str] = []
    training = quickly(store, note=told.append, test=0.2)
    assert training.split == "official"
    assert training.sizes == Sizes(train=12, validation=4, test=4)
    assert official_split(store).validation.tolist() == [6, 7, 16, 17]
    says = "the split is the official one of pairs: `validation` and `test` have no effect"
    assert says in told
    assert training.validation is training.test is None
    assert quickly(store, split="random").split == "random"
    with pytest.raises(DataError, match="`split` is 'official', but pairs comes without"):
        quickly(classes(10, 10), split="official")


RINGS = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CCNCC1", "c1ccsc1", "C1CCC1", "C1CC1", "c1ccoc1"]


@pytest.fixture
def molecules(tmp_path: Path) -> Path:
    pytest.importorskip("rdkit")
    rows = [f"{'C' * (1 + k // 8)}{RINGS[k % 8]},{k % 3 % 2}" for k in range(64)]
    path = tmp_path / "rings.csv"
    path.write_text("smiles,active\n" + "\n".join(rows) + "\n")
    return path


def test_molecules_are_split_by_scaffold(molecules: Path) -> None:
    store, given = gt.load(molecules, target="active"), QUICK | {"validation": 0.2, "test": 0.2}
    model = train(store, **given)
    training = model.description.training
    assert (training.split, training.model) == ("scaffold", "gine")
    assert sum(vars(training.sizes).values()) == 64
    assert training.sizes.test >= 8
    assert model.featurizer is not None
    assert model.featurizer.kind == "molecules"
    same = quickly(store, split="scaffold", seed=9, **given)
    assert same.sizes == training.sizes


def test_scaffolds_of_one_class_make_way_for_a_random_split(molecules: Path) -> None:
    # The last scaffold in order, which is held out for validation or test, has one class only.
    y = torch.tensor([int(k % 8 == 0) for k in range(64)])
    told: list[str] = []
    store = gt.load(molecules, target="active").with_targets(y)
    assert quickly(store, note=told.append).split == "random"
    assert any(text.startswith("the split is random: by scaffold, no ") for text in told)


# -------------------------------------------------------------------- options


def test_options_come_as_a_config_or_by_name_and_data_in_any_form() -> None:
    store = gt.load("motifs", graphs=60)
    config = gt.TrainConfig(method="vanilla", hidden=8, layers=1, epochs=1)
    one, two, three = (
        model.logits(store)
        for model in (
            train("motifs", config, graphs=60, forest=False),
            train(store, config, seed=0, forest=False),
            train(store.to_pyg(), **{**QUICK, "epochs": 1}),
        )
    )
    assert torch.equal(one, two)
    assert torch.equal(one, three)
    again = train("motifs", config, graphs=60, epochs=2, forest=False)
    assert again.description.training.epochs_run == 2
    with pytest.raises(GraphTransplantError, match="no option 'epoch'; did you mean 'epochs'"):
        train("motifs", epoch=3)
    for wrong in ("active", [0, 1], np.array([0, 1])):
        with pytest.raises(GraphTransplantError, match="`config` must be a TrainConfig; give targ"):
            train(store, wrong)  # type: ignore[arg-type]


def test_a_method_may_be_an_augmentation() -> None:
    store, quick = classes(30, 30), {**QUICK, "epochs": 1}
    method = gt.GraphTransplant("ep", anchor_ratio=0.2, embedding_size=8)
    before = {name: value.clone() for name, value in method.state_dict().items()}
    assert quickly(store, method=method).method == "GraphTransplant"
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())
    named, made = (
        train(store, **{**quick, "method": each}).logits(store)
        for each in ("transplant-dp:anchor_ratio=0.2", [gt.GraphTransplant(anchor_ratio=0.2)])
    )
    assert torch.equal(named, made)
    with pytest.raises(GraphTransplantError, match="`method` must be a name or an Augmentation"):
        train(store, method=[3])


def test_class_weights() -> None:
    store = classes(60, 20, label_names=["common", "rare"])
    train_part = store.subset(random_split(store, validation=0.1, test=0.1, seed=0).train)
    counts = torch.bincount(train_part.labels)
    by_hand = (counts.sum() / (2 * counts)).tolist()
    models = [
        train(store, class_weight=weights, **QUICK)
        for weights in ("balanced", by_hand, dict(zip(("common", "rare"), by_hand, strict=True)))
    ]
    for other in models[1:]:
        assert torch.equal(other.logits(store), models[0].logits(store))
        assert other.description.training.class_weight == pytest.approx(by_hand)
    assert models[0].description.training.class_weight == "balanced"
    quick = {**QUICK, "epochs": 10, "learning_rate": 0.02}
    heavy, light = (
        train(store, class_weight=weights, **quick).logits(store).diff(dim=1).mean()
        for weights in ([1.0, 50.0], [50.0, 1.0])
    )
    assert heavy > 0 > light
    numbered = train(classes(60, 20, label_names=["0", "1"]), class_weight={1: 3}, **QUICK)
    assert numbered.description.training.class_weight == [1.0, 3.0]
    for wrong in ("even", [1.0], {"nothing": 1.0}, [1.0, -1.0], 2.0, ["a", "b"]):
        with pytest.raises(GraphTransplantError, match="`class_weight` must"):
            train(store, class_weight=wrong, **QUICK)


def test_graphs_are_drawn_by_their_weight() -> None:
    store = classes(40, 40)
    weights = torch.cat((torch.full((40,), 0.001), torch.ones(40)))
    quick = {**QUICK, "recipe": "paper", "epochs": 30, "learning_rate": 0.05}
    one, other = (
        float(train(store, sample_weight=drawn, **quick).logits(store).diff(dim=1).mean())
        for drawn in (weights, weights.flip(0))
    )
    assert one > 0.4 + other


def test_weights_that_cannot_be_those_of_the_graphs_are_refused(molecules: Path) -> None:
    with pytest.raises(GraphTransplantError, match=r"each of the 80 graphs, .*got shape \[79\]"):
        train(classes(40, 40), sample_weight=torch.ones(79), **QUICK)
    for weights in (-torch.ones(80), torch.zeros(80), torch.full((80,), torch.nan)):
        with pytest.raises(GraphTransplantError, match="must be one finite, non-negative number"):
            train(classes(40, 40), sample_weight=weights, **QUICK)
    # One for each row, also for those that are skipped.
    frame = pd.read_csv(molecules)
    frame.loc[3, "smiles"] = "C1CC(("
    match = r"each of the 63 graphs and 1 row that could not be read, .*got shape \[63\]"
    with pytest.raises(GraphTransplantError, match=match):
        train(frame, target="active", sample_weight=np.ones(63), **QUICK)


def as_json_lines(frame: pd.DataFrame, path: Path) -> Path:
    """Chains of as many nodes as there are characters; a row with a `(` has an edge too far."""
    lines = []
    for text, y in zip(frame["smiles"], frame["active"], strict=True):
        size = len(text)
        edges = [{"source": n, "target": n + 1 + 99 * ("(" in text)} for n in range(size - 1)]
        lines.append({"nodes": [{} for _ in range(size)], "edges": edges, "y": str(y)})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("kind", ["frame", "csv", "list", "json lines"])
def test_what_is_given_per_row_counts_the_rows_of_the_data_as_given(
    kind: str, tmp_path: Path
) -> None:
    pytest.importorskip("rdkit")
    texts = ["C" * (3 + n) + "NO"[n % 2] for n in range(40)]
    texts[4], texts[17], texts[30] = "C1CC((", "CC(C", "CCC("
    frame = pd.DataFrame({"smiles": texts, "active": [n % 2 for n in range(40)]})
    sound = np.array(["(" not in text for text in texts])
    drawn = np.random.default_rng(0)
    order = drawn.permutation(40)
    rows = (order[:28], order[28:34], order[34:])
    weights = drawn.random(40)

    def trained(part: pd.DataFrame, name: str, **given: Any) -> tuple[Any, list[Tensor]]:
        data: Any = part
        if kind == "json lines":
            data = as_json_lines(part, tmp_path / name)
        elif kind == "csv":
            part.to_csv(data := tmp_path / f"{name}.csv", index=False)
        elif kind == "list":
            data, given["y"] = part["smiles"].tolist(), part["active"].tolist()
        if kind in ("frame", "csv"):
            given["target"] = "active"
        model = train(data, **QUICK, **given)
        return model.description.training.sizes, [*model.network.state_dict().values()]

    # The same as with a table without these rows, whose other rows have other numbers.
    number = np.cumsum(sound) - 1
    parts = [number[part[sound[part]]] for part in rows]
    suffix = ".jsonl" if kind == "json lines" else ""
    sizes, expected = trained(
        frame[sound], f"sound{suffix}", split=Split(*parts), sample_weight=weights[sound]
    )
    again, found = trained(frame, f"all{suffix}", split=Split(*rows), sample_weight=weights)
    assert (
        again == sizes == Sizes(train=len(parts[0]), validation=len(parts[1]), test=len(parts[2]))
    )
    assert all(map(torch.equal, found, expected))
    with pytest.raises(DataError, match="`split` must name rows from 0 to 39"):
        trained(frame, f"all{suffix}", split=Split(rows[0], rows[1], [40]))  # type: ignore[arg-type]


def test_what_is_given_per_row_counts_the_graphs_of_a_store(molecules: Path) -> None:
    frame = pd.read_csv(molecules)
    frame.loc[3, "smiles"] = "C1CC(("
    store = gt.load(frame, target="active")
    split = Split(*torch.arange(63).split([50, 10, 3]))
    sizes = quickly(store, split=split, sample_weight=torch.ones(63)).sizes
    assert sizes == Sizes(train=50, validation=10, test=3)
    with pytest.raises(DataError, match="`split` must name graphs from 0 to 62"):
        quickly(store, split=Split(torch.arange(50), torch.tensor([63]), NOTHING))


def test_a_comparison_takes_no_split_of_rows() -> None:
    with pytest.raises(GraphTransplantError, match="`split` must be one of folds, scaffold-folds"):
        gt.compare("motifs", split=Split(NOTHING, NOTHING, NOTHING))  # type: ignore[arg-type]


def test_tables_of_molecules_with_two_classes_are_judged_by_auroc(molecules: Path) -> None:
    balanced = gt.load(molecules, target="active").with_targets(torch.arange(64) % 2)
    assert quickly(balanced, split="random").metric == "auroc"
    balanced.featurizer = Featurizer("molecules")  # named data sets of molecules keep theirs
    assert quickly(balanced, split="random").metric == "accuracy"


# -------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"model": "resnet"}, "`model` must be one of auto, gcn"),
        ({"model": "gine"}, "`model`: gine needs edge features, but .* has none"),
        ({"split": "folds"}, "`split` must be one of auto, random, scaffold, official"),
        ({"method": "vanila"}, "did you mean 'vanilla'"),
        ({"metric": "f1"}, "`metric` must be one of accuracy"),
        ({"metric": "r2"}, "`metric` must be one of accuracy, auroc, average_precision; got 'r2'"),
        ({"validation": 0.5, "test": 0.5}, "together they must be below 1; got 0.5 and 0.5"),
        ({"validation": math.nan}, r"`validation` must be in \(0, 1\), got nan"),
        ({"test": "0.2"}, r"`test` must be in \[0, 1\), got '0.2'"),
        ({"epochs": 0}, "`epochs` must be at least 1, got 0"),
        ({"recipe": "stronger"}, "`recipe` must be one of paper, strong"),
        ({"split": "scaffold"}, "(?i)smiles|scaffold"),
        ({"ensemble": 0}, "`ensemble` must be at least 1, got 0"),
    ],
)
def test_arguments_that_cannot_be_used(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(GraphTransplantError, match=says):
        quickly(classes(10, 10), **arguments)


def test_a_class_that_is_not_trained_on_is_named() -> None:
    store = classes(5, 5, label_names=["plain", "rare"])
    split = Split(torch.arange(5), torch.arange(5, 8), torch.arange(8, 10))
    with pytest.raises(DataError, match="pairs: no training graph is of the class 'rare'"):
        train(store, split=split, **QUICK)
    with pytest.raises(DataError, match="there are no validation graphs"):
        train(store, split=Split(torch.arange(10), NOTHING, NOTHING), **QUICK)
    with pytest.raises(DataError, match="pairs has too few graphs, 3, to hold out 1 for valida"):
        train(classes(2, 1), **QUICK)
    # One of which there is no graph at all is no hindrance.
    y = torch.tensor([0, 2] * 20)
    model = train(graphs_with(y, "multiclass", num_outputs=3), **QUICK)
    assert model.description.data.class_counts == [20, 0, 20]


# -------------------------------------------------------------------- what is told


def test_what_makes_figures_rough_is_told() -> None:
    told: list[str] = []
    train(classes(400, 400), balance=True, note=told.append, **{**QUICK, "epochs": 1})
    assert [text.partition(" the model")[0] for text in told] == ["with balance or class weights,"]
    y = torch.zeros(40, 2)
    y[::2, 0] = 1
    train(graphs_with(y, "multilabel", label_names=["a", "b"]), note=told.append, **QUICK)
    assert "no training graph has the label 'b'" in told


def test_a_metric_that_is_not_defined_gives_way() -> None:
    store = classes(30, 3)
    split = Split(torch.arange(5, 33), torch.arange(5), NOTHING)
    told: list[str] = []
    assert quickly(store, split=split, note=told.append).metric == "accuracy"
    assert any(text.startswith("auroc is not defined on these validation") for text in told)
    with pytest.raises(GraphTransplantError, match="not defined on the validation graphs"):
        train(store, split=split, metric="auroc", **QUICK)
    with pytest.raises(GraphTransplantError, match="must be one of r2; got 'accuracy'"):
        train(values(20), metric="accuracy", **QUICK)
    one = Split(torch.arange(19), torch.tensor([19]), NOTHING)
    found = train(values(20), split=one, **QUICK)
    assert found.description.training.metric == "loss"
    assert found.description.metrics.validation["r2"] is None


# -------------------------------------------------------------------- the description


@pytest.mark.parametrize(
    "make", [lambda: classes(60, 40), labels, values, lambda: classes(9, 9, 9)]
)
def test_the_description_is_whole(make: Callable[[], GraphStore], tmp_path: Path) -> None:
    store = make()
    model = train(store, source="my.csv", balance=store.task != "regression", **QUICK)
    description = model.description
    data, training = description.data, description.training
    assert (data.name, data.source, data.graphs) == ("pairs", "my.csv", len(store))
    assert data.fingerprint == store.fingerprint()
    known = [] if store.task == "multiclass" else np.isfinite(store.y.numpy()).sum(0).tolist()
    assert data.measured == known
    assert training.epochs_run == len(description.curve) == 2
    assert training.balance is (store.task != "regression")
    assert (training.validation, training.test) == (0.1, 0.1)
    assert set(description.metrics.test) == set(description.metrics.validation)
    for name, (low, high) in description.metrics.intervals.items():
        assert low <= description.metrics.test[name] <= high
    model.save(tmp_path)
    assert TrainedModel.load(tmp_path).description.metrics == description.metrics


def test_without_test_graphs_their_figures_are_absent() -> None:
    for store in (classes(20, 20), values(40), labels(40)):
        description = train(store, test=0.0, **QUICK).description
        assert description.training.sizes.test == 0
        for name in ("test", "test_uncalibrated", "intervals"):
            assert getattr(description.metrics, name) == {}
        for name in ("reliability", "confusion", "roc", "scatter"):
            assert getattr(description, name) is None
        assert description.metrics.validation


def test_figures_of_classes_are_those_of_scikit_learn() -> None:
    store = classes(120, 80)
    model = train(store, **{**QUICK, "epochs": 5})
    split = random_split(store, validation=0.1, test=0.1, seed=0)
    test, validation = store.subset(split.test), store.subset(split.validation)
    one_hot = torch.eye(2)[validation.labels]
    assert model.temperature == fit_temperature(model.logits(validation), one_hot)
    found, true = model.predictions(test), test.labels.numpy()
    metrics = model.description.metrics
    p = found.outputs.numpy()
    assert metrics.test["accuracy"] == sk.accuracy_score(true, p.argmax(1))
    assert metrics.test["auroc"] == pytest.approx(sk.roc_auc_score(true, p[:, 1]))
    assert metrics.test["average_precision"] == pytest.approx(
        sk.average_precision_score(true, p[:, 1])
    )
    assert metrics.test["nll"] == pytest.approx(sk.log_loss(true, p), rel=1e-5)
    raw = model.logits(test).double().softmax(1).numpy()
    assert metrics.test_uncalibrated["nll"] == pytest.approx(sk.log_loss(true, raw), rel=1e-5)
    validated = model.predictions(validation).outputs.numpy()
    assert metrics.validation["nll"] == pytest.approx(
        sk.log_loss(validation.labels.numpy(), validated), rel=1e-5
    )
    assert model.description.confusion == sk.confusion_matrix(true, p.argmax(1)).tolist()
    after = model.description.reliability.after
    again = reliability(found.outputs, test.labels)
    assert [b.count for b in after] == [b["count"] for b in again]
    area = sk.auc(*zip(*model.description.roc["1"], strict=True))
    assert area == pytest.approx(metrics.test["auroc"], abs=1e-6)
    assert model.description.scatter is model.description.residual_90 is None


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_a_model_without_validation_errors_is_not_made_more_confident(task: str) -> None:
    y = torch.arange(100) % 2
    store = graphs_with(y if task == "multiclass" else y.float().unsqueeze(1), task)
    store.x[:, 0] += 5 * y.repeat_interleave(2)
    model = train(store, **{**QUICK, "epochs": 30, "learning_rate": 0.01})
    assert model.description.metrics.validation["accuracy"] == 1
    assert model.temperature == 1
    assert "its confidence was not raised" in render_card(model.description)


def test_figures_of_values_are_in_the_units_of_the_data() -> None:
    store = values(200)
    model = train(store, **{**QUICK, "epochs": 5})
    split = random_split(store, validation=0.1, test=0.1, seed=0)
    y = store.y[split.train].double()
    assert model.scale is not None
    assert torch.allclose(model.scale.mean[0], y[:, 0].mean())
    assert torch.allclose(model.scale.std[0], y[:, 0].std(correction=0))
    test = store.subset(split.test)
    found = model.predictions(test).outputs
    metrics = model.description.metrics.test
    present = ~test.y.isnan()
    error = (found - test.y)[present]
    assert metrics["rmse"] == pytest.approx(float(error.square().mean().sqrt()), rel=1e-5)
    assert metrics["mae"] == pytest.approx(float(error.abs().mean()), rel=1e-5)
    assert bool(present.all())
    assert metrics["r2"] == pytest.approx(sk.r2_score(test.y.numpy(), found.numpy()), rel=1e-4)
    scatter = torch.tensor(model.description.scatter, dtype=torch.double)
    assert torch.allclose(scatter[:, 0], test.y[:, 0].double())
    assert torch.allclose(scatter[:, 1], found[:, 0], rtol=1e-5)
    assert model.temperature == 1.0
    assert model.description.reliability is None
    validation = store.subset(split.validation)
    off = (model.predictions(validation).outputs - validation.y).abs()
    # 20 graphs: the 19th of the sorted distances is the conformal one.
    mass = off[:, 0].sort().values
    assert model.description.residual_90[0] == pytest.approx(float(mass[18]), rel=1e-5)


def test_roc_curves_of_labels() -> None:
    store = labels(200)
    model = train(store, **QUICK)
    test = store.subset(random_split(store, validation=0.1, test=0.1, seed=0).test)
    p = model.predictions(test).outputs
    for name, true, scores in zip("abc", test.y.T, p.T, strict=True):
        present = ~true.isnan()
        expected = sk.roc_auc_score(true[present].numpy(), scores[present].numpy())
        curve = model.description.roc[name]
        assert sk.auc(*zip(*curve, strict=True)) == pytest.approx(expected, abs=1e-5)
    assert model.description.confusion is None


def test_the_same_seed_gives_the_same_model_and_leaves_the_random_numbers() -> None:
    store, quick = classes(30, 30), {**QUICK, "method": "transplant-ep"}
    before = torch.random.get_rng_state()
    numpy_before = np.random.get_state()[1].copy()  # noqa: NPY002
    one, two, other = (train(store, seed=seed, **quick) for seed in (5, 5, 6))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002
    for name, value in one.network.state_dict().items():
        assert torch.equal(value, two.network.state_dict()[name])
    assert not torch.equal(other.logits(store), one.logits(store))


def test_an_interrupted_training_goes_on_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graph_transplant.training.loop.CHECKPOINT_SECONDS", 0.0)
    store = classes(30, 30)
    settings = {**QUICK, "method": "transplant-ep", "epochs": 4, "seed": 2}
    whole = train(store, **settings)
    path = tmp_path / "checkpoint"
    epochs: list[int] = []

    def stop(log: EpochLog) -> None:
        epochs.append(log.epoch)
        if log.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(store, checkpoint=path, callbacks=[stop], **settings)
    assert path.exists()
    resumed = train(
        store, checkpoint=path, callbacks=[lambda log: epochs.append(log.epoch)], **settings
    )
    assert (epochs[:2], epochs[-1]) == ([1, 2], 4)
    assert torch.equal(resumed.logits(store), whole.logits(store))
    assert resumed.temperature == whole.temperature
    assert len(resumed.description.curve) == 4


# -------------------------------------------------------------------- intervals


def random_case(task: str, seed: int, graphs: int = 30) -> tuple[Tensor, Tensor]:
    drawn = generator(seed)
    # Rounded: ties are the hard part of rankings.
    logits = (torch.randn(graphs, 3, generator=drawn) * 3).round() / 3
    if task == "regression":
        targets = torch.randn(graphs, 3, generator=drawn) + 50
    elif task == "multilabel":
        targets = torch.randint(2, (graphs, 3), generator=drawn).float()
    else:
        return logits[:, :2], torch.eye(2)[torch.randint(2, (graphs,), generator=drawn)]
    targets[torch.rand(graphs, 3, generator=drawn) < 0.3] = math.nan
    return logits, targets


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
def test_every_metric_but_those_of_calibration_has_an_interval(task: str) -> None:
    logits, targets = random_case(task, 0)
    measured = measure(logits, targets, task)
    found = bootstrap_intervals(logits, targets, task)
    assert set(found) == set(measured) - {"ece", "adaptive_ece", "brier"}
    assert all(low < measured[name] < high for name, (low, high) in found.items())


def test_intervals_of_differences_are_those_of_paired_resamples() -> None:
    draw = torch.Generator().manual_seed(3)
    targets = torch.eye(2)[torch.randint(2, (400,), generator=draw)]
    right = targets.argmax(1)
    one, other = (
        torch.eye(2)[torch.where(torch.rand(400, generator=draw) < share, right, 1 - right)]
        for share in (0.8, 0.6)
    )
    low, high = bootstrap_intervals(one, targets, "multiclass", rival=other)["accuracy"]
    gains = (one * targets).sum(1) - (other * targets).sum(1)
    spread = 1.96 * float(gains.std()) / 20
    assert low == pytest.approx(float(gains.mean()) - spread, abs=0.01)
    assert high == pytest.approx(float(gains.mean()) + spread, abs=0.01)
    same = bootstrap_intervals(one, targets, "multiclass", rival=one)
    assert set(same.values()) == {(0.0, 0.0)}


def test_the_forest_counts_graphs_and_says_why_it_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = graphs_with(torch.rand(60, 12, generator=generator(1)).round(), "multilabel")
    said: list[str] = []
    for most, fitted in ((48, True), (47, False)):
        monkeypatch.setattr(evaluate, "MOST_FOREST", most)
        model = train(store, **QUICK | {"forest": True}, note=said.append)
        metrics = model.description.metrics
        assert bool(metrics.forest) == fitted == (metrics.forest_left_out is None)
    (reason,) = said
    assert "as there are 48 training graphs, more than 47: compare with" in reason
    assert reason in render_card(model.description)
    assert not train(store, **QUICK).description.metrics.forest


def test_intervals_are_quantiles_of_resamples() -> None:
    logits, targets = random_case("multiclass", 3, graphs=60)
    found = bootstrap_intervals(logits, targets, "multiclass")
    random, slow = np.random.default_rng(1), []
    for _ in range(600):
        drawn = torch.from_numpy(random.integers(60, size=60))
        slow.append(measure(logits[drawn], targets[drawn], "multiclass")["auroc"])
    assert found["auroc"] == pytest.approx(np.quantile(slow, [0.025, 0.975]).tolist(), abs=0.02)
    assert bootstrap_intervals(logits, targets, "multiclass") == found
