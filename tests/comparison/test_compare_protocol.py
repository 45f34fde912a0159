"""Comparisons by other rules: selection, other metrics, official splits, attacks."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graph_transplant.comparison import run_trial, training_sets
from graph_transplant.comparison.compare import compare
from graph_transplant.comparison.plan import candidates
from graph_transplant.config.compare import Settings
from graph_transplant.data import GraphStore
from graph_transplant.data.targets import TargetScale
from graph_transplant.datasets.molecules import from_smiles
from graph_transplant.datasets.splits import prepare
from graph_transplant.errors import GraphTransplantError
from graph_transplant.methods import METHODS
from graph_transplant.metrics import METRICS
from graph_transplant.report.tables import rankings
from graph_transplant.results.record import Trial
from graph_transplant.results.results import Results
from graph_transplant.training.defaults import metric_for
from helpers.made_up_records import Counting, judged_by, rows
from helpers.strategies import rings_and_stars


def rings(
    y: Tensor | None = None, *, task: str = "multiclass", official: Tensor | None = None
) -> GraphStore:
    return rings_and_stars(30, seed=1, name="rings", y=y, task=task, official=official)


def run(out: Path | None, store: GraphStore | None = None, **changes: Any) -> Results:
    arguments: dict[str, Any] = {
        "methods": ["vanilla", "drop-nodes"],
        "folds": 3,
        "epochs": 2,
        "batch_size": 8,
        **changes,
    }
    return compare(store or rings(), out=out, **arguments)


def test_selection_runs_and_reports_the_candidates_of_every_method(tmp_path: Path) -> None:
    results = run(tmp_path, layers=[1, 2], epochs=1, select="validation")
    assert Counter(record["method"] for record in results.records) == dict.fromkeys(
        ("vanilla", "drop-nodes", "drop-nodes:ratio=0.4"), 6
    )
    for row in rows(results.records, "validation"):
        found = results.summary().set_index("method").loc[row.method]
        assert (found["trials"], found["chosen"]) == (3, row.chosen)
        assert row.chosen
    assert set(results.methods) == {"vanilla", "drop-nodes"}
    # The records are ordinary ones.
    plain = run(tmp_path, methods=["vanilla", "drop-nodes:paper"], layers=[1, 2], epochs=1)
    assert plain.records == results.records
    assert set(plain.methods) == {"vanilla", "drop-nodes", "drop-nodes:ratio=0.4"}


def test_candidates_are_the_search_space_of_what_is_named_without_parameters() -> None:
    ratios = METHODS["transplant-dp"].search["anchor_ratio"]
    # The anchor ratio is searched on larger data only, unless it is asked for.
    assert list(candidates(["transplant-dp"], search=True, scale="small")) == ["transplant-dp"]
    medium = candidates(["transplant-dp"], search=True, scale="medium")
    assert len(medium) == len(ratios) == 3
    assert set(candidates(["transplant-dp:paper"], search=True, scale="small")) == set(medium)
    found = candidates(["drop-nodes:ratio=0.3", "subgraph"], search=True, scale="small")
    assert list(found) == ["drop-nodes:ratio=0.3", "subgraph:size=0.6", "subgraph"]
    # Those of a group are told from those asked for by name.
    found = candidates(["paper", "drop-nodes"], search=False, scale="small")
    assert (found["drop-nodes"], found["mask-nodes"]) == (True, False)


def several_labels() -> GraphStore:
    generator = torch.Generator().manual_seed(0)
    y = (torch.rand(30, 3, generator=generator) < 0.5).float()
    y[torch.rand(30, 3, generator=generator) < 0.2] = float("nan")
    return rings(y, task="multilabel")


def test_several_labels_with_gaps_are_compared_by_mean_auroc() -> None:
    methods = ["vanilla", "transplant-dp", "transplant-ep", "manifold-mixup"]
    results = run(None, several_labels(), methods=methods)
    assert {record["task"] for record in results.records} == {"multilabel"}
    assert set(results.methods) == set(methods)
    assert results.metric == "auroc"
    assert results.frame["score"].between(0, 1).all()


def numbers() -> GraphStore:
    generator = torch.Generator().manual_seed(0)
    shape = torch.arange(30) % 2
    y = 5000 + 200 * shape + 20 * torch.randn(30, generator=generator)
    second = torch.where(torch.arange(30) % 4 == 0, torch.nan, -shape.float())
    return rings(torch.stack((y, second), 1), task="regression")


def test_numbers_are_compared_in_their_own_units(monkeypatch: pytest.MonkeyPatch) -> None:
    store, seen, real = numbers(), [], run_trial.TargetScale.of

    def of(given: GraphStore) -> TargetScale:
        seen.append(len(given))
        return real(given)

    monkeypatch.setattr(run_trial.TargetScale, "of", staticmethod(of))
    results = run(None, store, methods=["vanilla", "transplant-ep"], epochs=5)
    assert results.metric == metric_for(store) == "r2"
    assert seen == [10] * 6, "the scale is that of the training graphs"
    for record in results.records:
        assert record["task"] == "regression"
        for part in ("validation", "test"):
            assert set(record[part]) == {"rmse", "mae", "r2"}
        best = max(point["validation_score"] for point in record["curve"])
        # R² does not change when targets and outputs are standardised together.
        assert record["validation"]["r2"] == pytest.approx(best, abs=1e-3)
    # The numbers lie around 5000 and about 100 apart; a network whose outputs were taken as they
    # are would be off by thousands.
    assert results.summary()["rmse_mean"].between(10, 200).all()
    assert "RMSE" in results.to_markdown()
    assert "ECE" not in results.to_markdown()


RINGS = ("c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CCCC1", "c1ccoc1", "C1CCC1", "c1ccsc1", "C1CCNCC1")
MOLECULES = [
    f"{'C' * size}{ring}" for ring in (*RINGS, "C1CCOCC1", "c1cnccn1") for size in range(1, 4)
]


def molecules() -> GraphStore:
    store = from_smiles(MOLECULES)
    return store.with_targets(torch.arange(30) % 2)


def test_molecules_are_split_by_scaffold_and_read_their_bonds(tmp_path: Path) -> None:
    store, told = molecules(), Counting()
    settings = {"split": "scaffold", "repeats": 2, "model": ["auto", "gcs"], "reporter": told}
    results = run(tmp_path, store, methods=["vanilla"], **settings)
    assert len(results.records) == 2 * 2
    assert {record["model"] for record in results.records} == {"gine", "gcs"}
    expected = prepare(store, "scaffold")
    for record in results.records:
        assert record["fold"] == 0
        assert record["sizes"] == {
            name: int((expected.official == part).sum())
            for part, name in enumerate(("train", "validation", "test"))
        }
        assert record["fingerprint"] == expected.fingerprint()
    assert len({record["seed"] for record in results.records}) == 4
    count = store.num_edge_features
    assert told.notes == [
        f"gcs does not use the {count} edge features of molecules; gine and gat-edge do"
    ]


NOT_BOTH = "each class or label is present in all of these graphs or in none"


def test_what_a_data_set_cannot_be_judged_by_is_refused_before_anything_runs(
    tmp_path: Path,
) -> None:
    many, halves = rings(torch.arange(30) % 3), torch.arange(30) // 15
    values = rings(torch.linspace(0, 1, 30).unsqueeze(1), task="regression")
    auroc, precision = (
        {"split": "official", "metric": metric} for metric in ("auroc", "average_precision")
    )
    # Of the parts of these official splits, one has graphs of a single class.
    same = rings(halves, official=halves + torch.arange(30) // 29)
    first = rings(halves, official=torch.arange(30) % 3 * (torch.arange(30) < 15))
    parts = torch.tensor([2] * 5 + [0] * 5 + [1] * 10 + [0] * 10)
    for store, arguments, message in (
        (several_labels(), {"metric": "accuracy"}, "`metric` must be auroc or average_precision f"),
        (many, {"metric": "auroc"}, "`metric` auroc needs two classes, but rings has 3"),
        (values, {"metric": "auroc"}, "`metric` must be r2 for rings, whose targets are numbers"),
        (values, {"balance": True}, "`balance` needs classes or labels, but the targets of rings"),
        (values, {"attack": [0.2]}, "`attack` needs one class per graph"),
        (many, {"split": "scaffold"}, "by scaffold, which needs molecules"),
        (many, {"model": ["gine"]}, "`model`: gine needs edge features, but rings has none"),
        (same, auroc, "auroc is not defined on the 14 validation graphs of the official split of"),
        (first, precision, f"not defined on the 5 validation graphs .*: {NOT_BOTH}"),
        (rings(halves, official=parts), precision, f"on the 5 test graphs .*: {NOT_BOTH}"),
        (many, {"split": "official"}, "rings comes without a split of its own"),
        (many, {"select": "best"}, "`select` must be one of none, validation;"),
        (many, {"engine": "cloud"}, "`engine` must be one of local, ray"),
    ):
        with pytest.raises(GraphTransplantError, match=message):
            run(tmp_path, store, **arguments)
    assert not list(tmp_path.iterdir())


def test_own_metrics_rank_by_the_higher_value_whatever_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = replace(
        METRICS["accuracy"],
        title="Profit",
        share=False,
        bounds=(-math.inf, math.inf),
        compute=lambda o, t, task: 9.0,
    )
    monkeypatch.setitem(METRICS, "profit", own)
    results = run(None, rings(torch.arange(30) % 3), metric="profit", epochs=1)
    assert results.metric == "profit"
    # An interval of a metric of one's own may be anywhere.
    judged = judged_by("profit", "vanilla", [7.0, 9.0]) + judged_by("profit", "a", [-7.0, -9.0])
    (ranked,) = rankings(Results(judged))
    low, high = (row.cells[0].below.split(" to ") for row in ranked.rows[::-1])
    assert (high[1], low[0]) == ("24.404", "−24.404")
    monkeypatch.setitem(METRICS, "profit", replace(own, higher=False))
    with pytest.raises(GraphTransplantError, match="profit cannot rank methods, as lower is bett"):
        run(None, metric="profit")


def mostly(value: float, other: float, rare: int, gaps: bool = False) -> Tensor:
    """Thirty targets that are equal but for a few."""
    y = torch.full((30, 1), value)
    y[:rare] = other
    if gaps:
        y[rare:18] = torch.nan
    return y


@pytest.mark.parametrize(
    ("store", "metric", "reason"),
    [
        # Folds are stratified by quantiles, which cannot part equal numbers.
        (rings(mostly(0.0, 7.5, 2), task="regression"), "r2", "their targets do not differ"),
        # A label that too few graphs have cannot be in every fold.
        (rings(mostly(0.0, 1.0, 2), task="multilabel"), "auroc", NOT_BOTH),
        # All that is known there is positive: every model has an average precision of 1.
        (rings(mostly(1.0, 0.0, 2, gaps=True), task="multilabel"), "average_precision", NOT_BOTH),
    ],
)
def test_a_metric_that_some_fold_does_not_define_is_refused_before_anything_runs(
    tmp_path: Path, store: GraphStore, metric: str, reason: str
) -> None:
    place = r"the 10 graphs of fold (\d) of repeat 0 of rings"
    message = rf"`metric` {metric} is not defined on {place}: {reason}"
    with pytest.raises(GraphTransplantError, match=message) as problem:
        run(tmp_path, store, metric=metric)
    assert not list(tmp_path.iterdir())
    # By hand: that part has one value only.
    fold = int(re.findall(r"fold (\d)", str(problem.value))[0])
    judged = Trial("vanilla", "gcs", 3, repeat=0, fold=fold)
    test = store.y[training_sets.split_of(store, judged, Settings(folds=3, metric=metric)).test]
    assert len(test[~test.isnan()].unique()) == 1


def test_an_attack_is_measured_on_the_test_graphs(tmp_path: Path) -> None:
    results = run(tmp_path, methods=["vanilla"], attack=[0.25, 1.0], epochs=20)
    # Rings have five edges and stars four.
    edges = [1, 4]
    for record in results.records:
        attacked = record["attacked"]
        assert [item["edges"] for item in attacked] == edges
        assert [item["budget"] for item in attacked] == [0.25, 1.0]
        for item in attacked:
            # Ten test graphs: accuracies are tenths.
            assert 10 * item["accuracy"] == pytest.approx(round(10 * item["accuracy"]))
    clean = sum(record["test"]["accuracy"] for record in results.records)
    strongest = sum(record["attacked"][1]["accuracy"] for record in results.records)
    assert strongest < clean
