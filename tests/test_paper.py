"""The paper's experiments: what they run, and their tables made from made-up records."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

import graph_transplant.experiments.compare as compare_module
from graph_transplant import load
from graph_transplant.augment import METHODS, expand_methods
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.experiments import paper, reproduce
from graph_transplant.experiments.paper import EXPERIMENTS, MEASURES, Run, plan
from graph_transplant.experiments.protocol import SCALES, Record, Settings, Trial
from graph_transplant.experiments.published import all_published, data_sizes, published
from graph_transplant.experiments.records import RecordStore
from graph_transplant.experiments.reproduce import PaperRow, PaperTable, paper_table
from graph_transplant.experiments.summary import summarise
from graph_transplant.nn import CONVOLUTIONS
from graph_transplant.report.frame import Figure
from graph_transplant.report.paper import (
    latex_table,
    markdown_table,
    paper_figures,
    text_table,
    write_paper_figures,
    write_table,
)

MAIN = EXPERIMENTS["table1"].methods


# Plans ----------------------------------------------------------------------------------------


def test_every_published_cell_is_in_a_plan() -> None:
    planned = {
        (name, run.data, model, method.partition(":")[0])
        for name in EXPERIMENTS
        for run in plan(name, budget="full")
        for model in run.models
        for method in run.methods
    }
    numbers = {
        (row.experiment, row.data, row.model, row.method)
        for row in all_published()
        if row.status != "chart"
    }
    assert numbers <= planned
    # Only M-Evolve under attack on GIN is run without having been published.
    without = {
        cell
        for cell in planned - numbers
        if cell[0] not in ("ablation", "readout", "edge-predictor")
    }
    assert without == {
        ("table3-robustness", data, "gin", "m-evolve")
        for data in ("ENZYMES", "Mutagenicity", "NCI1")
    }


def test_names_are_known() -> None:
    for experiment in EXPERIMENTS.values():
        assert set(experiment.methods) <= set(METHODS)
        assert set(experiment.models) <= set(CONVOLUTIONS)
        assert experiment.measure in MEASURES
        assert experiment.baseline is None or experiment.baseline in experiment.methods


@pytest.mark.parametrize(
    ("data", "epochs", "batch_size"),
    [
        ("ENZYMES", 400, 128),
        ("NCI1", 60, 128),
        ("Mutagenicity", 58, 128),
        ("COIL-DEL", 64, 128),
        ("COLLAB", 26, 64),
        ("P388", 7, 128),
    ],
)
def test_quick_is_cut_to_twelve_hundred_steps(data: str, epochs: int, batch_size: int) -> None:
    (run,) = plan("table1", data=[data], budget="quick")
    assert (run.epochs, run.batch_size) == (epochs, batch_size)
    assert (run.repeats, run.layers, run.select, run.folds) == (1, (3,), "none", 5)
    assert run.methods == MAIN
    assert list(run.methods) == expand_methods(["paper"])


def test_quick_steps_are_whole_epochs_of_the_training_graphs() -> None:
    for name in ("table1", "table2"):
        for run in plan(name):
            graphs = {"ogbg-ppa": 78_200}.get(run.data, data_sizes()[run.data] * 3 // 5)
            steps = -(-graphs // run.batch_size)
            # The first epoch that reaches the number is the last.
            assert (run.epochs - 1) * steps < 1200 <= run.epochs * steps
    # 32,901 graphs of the official split are 258 batches; three fifths of all would be 193.
    (official,) = plan("table1", data=["ogbg-molhiv"], sizes={"ogbg-molhiv": 41_127})
    assert (official.split, official.epochs) == ("official", 5)
    (part,) = plan("table1", data=["ogbg-molhiv"], sizes={"ogbg-molhiv": 300})
    assert part.epochs == 600


def test_quick_accepts_what_compare_makes_with_the_same_numbers() -> None:
    (run,) = plan("table1", data=["ENZYMES"], models=["gcs"])
    settings = Settings(epochs=400, attack=(0.05, 0.1, 0.2, 0.3))
    for name in ("folds", "epochs", "batch_size", "seed", "readout", "metric", "split", "attack"):
        assert getattr(run, name) == getattr(settings, name)
    assert run.scale == "small"


def test_full_is_the_papers_protocol() -> None:
    (small,) = plan("table1", data=["NCI1"], budget="full")
    assert (small.repeats, small.folds, small.epochs, small.layers) == (3, 5, 1000, (3, 4, 5))
    assert (small.select, small.metric, small.scale) == ("validation", "accuracy", "small")
    # R is 10 % on small data; only the baselines are searched.
    assert len(expand_methods(small.methods)) == 2 + 2 * 5 + 2
    assert small.trials == 15
    medium = plan("table1", data=["P388", "MOLT-4"], budget="full")
    for run in medium:
        assert (run.repeats, run.metric, run.scale, run.models) == (
            1,
            "auroc",
            "medium",
            ("gcs", "gin"),
        )
        ratios = {
            "transplant-ep:anchor_ratio=0.05",
            "transplant-ep",
            "transplant-ep:anchor_ratio=0.15",
        }
        assert ratios <= set(expand_methods(run.methods))
    (large,) = plan("table2", budget="full")
    assert (large.scale, large.split, large.batch_size, large.repeats) == (
        "large",
        "official",
        64,
        3,
    )
    assert large.trials == 3
    assert "transplant-ep:paper" in large.methods  # the paper does not say; as for medium data
    assert {"m-evolve", "m-evolve:paper", "transplant-dp"}.isdisjoint(large.methods)
    assert all(
        run.repeats == 1 and 0.2 in run.attack for run in plan("table3-robustness", budget="full")
    )


@pytest.mark.parametrize("budget", ["quick", "full"])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_table_looks_for_what_the_comparison_runs(name: str, budget: str) -> None:
    for run in plan(name, budget=budget):
        search = run.select != "none"
        made = compare_module.candidates(run.methods, search=search, scale=run.scale)
        assert list(made) == expand_methods(run.methods)


@pytest.mark.parametrize("budget", ["quick", "full"])
def test_experiments_share_records_exactly_where_settings_agree(budget: str) -> None:
    runs = [run for name in EXPERIMENTS for run in plan(name, data=["ENZYMES"], budget=budget)]
    shared: dict[str, set[tuple[Any, ...]]] = {}
    for run in runs:
        settings = (
            run.epochs,
            run.batch_size,
            run.folds,
            run.readout,
            run.attack,
            run.metric,
            run.split,
        )
        shared.setdefault(run.directory, set()).add((*settings, run.scale, run.seed))
    assert set(shared) == {f"{budget}/ENZYMES{end}" for end in ("", "-sum", "-max")}
    assert all(len(settings) == 1 for settings in shared.values())
    # What the paper does not attack is attacked only where that is what one asks for.
    sizes = {"mine": 300}
    plain, attacked = (
        plan(name, data=["mine"], sizes=sizes, budget=budget)[0]
        for name in ("table1", "table3-robustness")
    )
    assert (plain.directory, plain.attack) == (f"{budget}/mine", ())
    assert attacked.directory == f"{budget}/mine-attacked"
    assert 0.2 in attacked.attack
    assert {run.directory for run in plan("gcn", budget=budget)} <= {
        run.directory for run in plan("table1", budget=budget)
    }


def test_arguments_are_those_of_compare() -> None:
    import inspect

    (run,) = plan("table2", budget="full")
    taken = inspect.signature(compare_module.compare).parameters
    assert set(run.arguments()) <= set(taken)
    assert {"store", "out", "workers", "engine", "address", "source", "reporter"} <= set(taken)


def test_other_data_may_be_given_with_their_size() -> None:
    (run,) = plan("table1", data=["my data/x"], sizes={"my data/x": 300})
    assert run.directory == "quick/my-data-x"
    assert run.metric is None
    assert run.epochs == 600  # 180 training graphs are two batches
    assert run.models == ("gcs",)
    (full,) = plan("table1", data=["my data/x"], sizes={"my data/x": 300}, budget="full")
    assert full.models == ("gcs", "gin", "gat")
    with pytest.raises(
        GraphTransplantError, match=r"`data` of gcn: the paper has COLLAB, .*'mine'"
    ):
        plan("gcn", data=["mine"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"experiment": "table9"}, "`experiment` must be one of table1, .*'table9'"),
        (
            {"experiment": "gcn", "budget": "huge"},
            "`budget` must be one of quick, full; got 'huge'",
        ),
        (
            {"experiment": "gcn", "data": []},
            "`data` must name at least one of COLLAB, .*; got none",
        ),
        ({"experiment": "gcn", "models": []}, "`models` must name at least one of gcn; got none"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        plan(**arguments)


# Tables ---------------------------------------------------------------------------------------


def made_up(run: Run, model: str, method: str, values: list[float], **more: Any) -> list[Record]:
    """Make the records of one candidate, one per value, in the order of repeats and folds."""
    settings = SCALES[run.scale].apply(
        Settings(
            epochs=run.epochs,
            readout=run.readout,
            attack=run.attack,
            split=run.split,
            metric=run.metric or "accuracy",
        ),
        run.batch_size,
    )
    folds = 1 if run.split == "official" else run.folds
    records = []
    for number, value in enumerate(values):
        record: Record = {
            "data": run.data,
            "source": run.data,
            "fingerprint": "0f",
            "method": method,
            "model": model,
            "layers": 3,
            "repeat": number // folds,
            "fold": number % folds,
            "validation": {settings.metric: value},
            "test": {settings.metric: value, "ece": 0.5 - value / 2},
            "sizes": {"train": 360, "validation": 120, "test": 120},
            "settings": settings.as_record("0.1.0"),
            "seconds": 1.0,
            "epochs": 5,
            "best_epoch": 3,
            "curve": [],
        }
        records.append(record | more)
    return records


def save(out: Path, run: Run, records: list[Record]) -> None:
    directory = out / run.directory
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "records.jsonl", "a", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")


def rows_of(table: PaperTable) -> dict[tuple[str, str, str], PaperRow]:
    return {(row.data, row.model, row.method): row for row in table.rows}


PLAIN = [0.61, 0.64, 0.66, 0.60, 0.63]
BETTER = [0.70, 0.71, 0.74, 0.66, 0.71]
UNSURE = [0.66, 0.60, 0.70, 0.58, 0.67]
WORSE = [0.50, 0.55, 0.56, 0.51, 0.53]


def test_a_row_holds_ours_the_published_and_how_they_compare(tmp_path: Path) -> None:
    (run,) = plan("table1", data=["ENZYMES"], models=["gcs"])
    records = []
    for method, values in (
        ("vanilla", PLAIN),
        ("transplant-ep", BETTER),
        ("drop-nodes", UNSURE),
        ("subgraph", WORSE),
    ):
        records += made_up(run, "gcs", method, values)
    save(tmp_path, run, records)
    table = paper_table("table1", {"ENZYMES": ["gcs"]}, budget="quick", out=tmp_path)
    rows = rows_of(table)
    assert [row.method for row in table.rows] == list(MAIN)

    best = rows["ENZYMES", "gcs", "transplant-ep"]
    assert best.mean == pytest.approx(np.mean(BETTER))
    assert best.std == pytest.approx(np.std(BETTER, ddof=1))
    assert best.published is not None
    assert (best.published.mean, best.published.std) == (0.707, 0.053)
    assert best.difference == pytest.approx(np.mean(BETTER) - 0.707)
    assert best.spread == "within"
    assert best.published_gain == pytest.approx(0.068)
    differences = np.subtract(BETTER, PLAIN)
    assert best.gain == pytest.approx(differences.mean())
    error = math.sqrt((1 / 5 + 120 / 360) * differences.var(ddof=1))
    p_value = 2 * stats.t.sf(abs(differences.mean()) / error, 4)
    assert best.p_value == pytest.approx(p_value)
    assert best.reproduced == "yes"
    # The tests are those of the summary, Holm's correction included.
    for row in summarise(records):
        ours = rows["ENZYMES", "gcs", row.method]
        assert ours.p_value == pytest.approx(row.p_value)
        assert ours.p_holm == pytest.approx(row.p_holm)

    plain = rows["ENZYMES", "gcs", "vanilla"]
    assert (plain.gain, plain.published_gain, plain.reproduced) == (None, None, "")
    assert rows["ENZYMES", "gcs", "drop-nodes"].reproduced == "sign only"
    worse = rows["ENZYMES", "gcs", "subgraph"]
    assert (worse.reproduced, worse.spread) == ("opposite", "below")
    missing = rows["ENZYMES", "gcs", "m-evolve"]
    assert (missing.mean, missing.trials, missing.reproduced) == (None, 0, "missing")
    assert table.verdict.startswith("25 of 45 trials are missing. 3 of 4 figures lie within")
    assert "1 reproduced with significance, 1 in sign only, 1 significantly the other way" in (
        table.verdict
    )
    assert "transplant-ep on ENZYMES with gcs: +7.6 points over vanilla (p" in table.verdict
    assert "published +6.8" in table.verdict


@pytest.mark.parametrize(
    ("difference", "std", "word"),
    [
        (0.05, 0.05, "within"),
        (-0.05, 0.05, "within"),
        (0.051, 0.05, "above"),
        (-0.051, 0.05, "below"),
        (0.3 - 0.2, 0.1, "within"),  # a rounding error above
        (0.05, None, ""),
        (None, 0.05, ""),
    ],
)
def test_the_published_spread_includes_its_ends(
    difference: float | None, std: float | None, word: str
) -> None:
    assert reproduce._spread(difference, std) == word


@pytest.mark.parametrize(
    ("gain", "p_holm", "published_gain", "word"),
    [
        (0.02, 0.049, 0.01, "yes"),
        (0.02, 0.05, 0.01, "sign only"),
        (0.02, None, 0.01, "sign only"),
        (-0.02, 0.01, -0.01, "yes"),
        (-0.02, 0.2, 0.01, "no"),
        (-0.02, 0.01, 0.01, "opposite"),
        (0.0, None, 0.01, "no"),
        (1e-17, 1.0, 0.01, "no"),
        (0.02, 0.01, 0.0, "none published"),
        (None, None, 0.01, "missing"),
    ],
)
def test_a_gain_is_reproduced_in_sign_and_significance(
    gain: float | None, p_holm: float | None, published_gain: float, word: str
) -> None:
    figure = published("table1", "ENZYMES", "gcs", "transplant-ep")
    assert reproduce._reproduced(gain, p_holm, published_gain, figure, False) == word


def test_missing_trials_are_shown_and_never_guessed(tmp_path: Path) -> None:
    (run,) = plan("table1", data=["ENZYMES"], models=["gcs"])
    save(tmp_path, run, made_up(run, "gcs", "vanilla", PLAIN[:3]))
    table = paper_table("table1", {"ENZYMES": ["gcs"]}, budget="quick", out=tmp_path)
    lines = {line.split()[2]: line for line in text_table(table).splitlines() if "gcs" in line[:20]}
    assert "0.637 ± 0.025 (3 of 5 trials)" in lines["vanilla"]
    assert "missing" in lines["transplant-ep"]
    row = rows_of(table)["ENZYMES", "gcs", "vanilla"]
    assert (row.trials, row.finished, row.planned) == (3, 3, 5)


def test_less_error_is_a_gain(tmp_path: Path) -> None:
    (run,) = plan("table4-calibration", data=["ENZYMES"], models=["gcs"])
    save(tmp_path, run, made_up(run, "gcs", "vanilla", PLAIN))
    save(tmp_path, run, made_up(run, "gcs", "transplant-ep", BETTER))
    table = paper_table("table4-calibration", {"ENZYMES": ["gcs"]}, budget="quick", out=tmp_path)
    row = rows_of(table)["ENZYMES", "gcs", "transplant-ep"]
    assert row.mean == pytest.approx(np.mean([0.5 - value / 2 for value in BETTER]))
    assert row.gain == pytest.approx(np.mean(np.subtract(BETTER, PLAIN)) / 2)
    assert row.published_gain == pytest.approx(0.299 - 0.046)
    assert (row.metric, row.spread, row.reproduced) == ("ece", "", "yes")
    assert "+0.038 (+0.253)" in text_table(table)
    assert "the sign turned" in text_table(table)


def test_an_error_is_tested_as_hand_computed(tmp_path: Path) -> None:
    (run,) = plan("table4-calibration", data=["ENZYMES"], models=["gcs"])
    save(tmp_path, run, made_up(run, "gcs", "vanilla", PLAIN))
    # One fold is missing, and the others lie in another order.
    save(tmp_path, run, made_up(run, "gcs", "subgraph", WORSE)[3:0:-1])
    table = paper_table("table4-calibration", {"ENZYMES": ["gcs"]}, budget="quick", out=tmp_path)
    row = rows_of(table)["ENZYMES", "gcs", "subgraph"]
    differences = np.subtract(WORSE, PLAIN)[1:4] / 2
    error = math.sqrt((1 / 3 + 120 / 360) * differences.var(ddof=1))
    assert row.gain == pytest.approx(differences.mean())
    p_value = 2 * stats.t.sf(abs(differences.mean()) / error, 2)
    assert row.p_value == pytest.approx(p_value)


def test_robust_accuracy_is_read_from_the_attack_of_the_paper(tmp_path: Path) -> None:
    (run,) = plan("table3-robustness", data=["NCI1"], models=["gin"])
    assert run.directory == "quick/NCI1"
    attacked = [
        {"budget": 0.1, "edges": 3, "accuracy": 0.9, "as_stated": 0.91, "random": 0.92},
        {"budget": 0.2, "edges": 6, "accuracy": 0.25, "as_stated": 0.5, "random": 0.75},
    ]
    save(tmp_path, run, made_up(run, "gin", "vanilla", PLAIN, attacked=attacked))
    save(tmp_path, run, made_up(run, "gin", "m-evolve", PLAIN, attacked=attacked[:1]))
    table = paper_table("table3-robustness", {"NCI1": ["gin"]}, budget="quick", out=tmp_path)
    rows = rows_of(table)
    assert rows["NCI1", "gin", "vanilla"].mean == 0.5
    assert rows["NCI1", "gin", "vanilla"].difference == pytest.approx(0.5 - 0.643)
    assert rows["NCI1", "gin", "vanilla"].spread == "below"
    assert (
        "NCI1, gin: accuracy under the stronger attack, which spends its whole budget on changes: "
        "vanilla 0.250."
    ) in table.notes
    assert "vanilla 0.750." in " ".join(table.notes)
    unpublished = rows["NCI1", "gin", "m-evolve"]
    assert (unpublished.mean, unpublished.published, unpublished.reproduced) == (None, None, "")


def test_finished_trials_without_the_figure_are_counted_apart(tmp_path: Path) -> None:
    (run,) = plan("table3-robustness", data=["NCI1"], models=["gin"])
    save(tmp_path, run, made_up(run, "gin", "vanilla", PLAIN))
    table = paper_table("table3-robustness", {"NCI1": ["gin"]}, budget="quick", out=tmp_path)
    assert [(row.finished, row.lacking, row.trials) for row in table.rows] == [
        (5, 5, 0) if row.method == "vanilla" else (0, 0, 0) for row in table.rows
    ]
    # They would not run again, so they are not among those missing.
    assert table.verdict == (
        "35 of 40 trials are missing. 5 of 5 finished trials lack this figure."
    )


def test_the_edge_predictor_is_read_at_the_end_of_the_curve(tmp_path: Path) -> None:
    (run,) = plan("edge-predictor", data=["NCI1"], models=["gcn"])
    curve = [
        {"epoch": 1, "measurements": {"edge_predictor_accuracy": 0.6}},
        {"epoch": 9, "measurements": {"edge_predictor_accuracy": 0.9}},
        {"epoch": 10},
    ]
    save(tmp_path, run, made_up(run, "gcn", "transplant-ep", PLAIN, curve=curve))
    table = paper_table("edge-predictor", {"NCI1": ["gcn"]}, budget="quick", out=tmp_path)
    (row,) = table.rows
    assert row.mean == pytest.approx(0.9)
    assert (row.reproduced, row.gain) == ("chart", None)
    text = text_table(table)
    assert "chart" in text
    assert "Published as a chart only" in table.verdict
    assert "p (Holm)" not in text


def test_ablations_are_held_against_the_complete_method(tmp_path: Path) -> None:
    (run,) = plan("ablation", data=["NCI1"], models=["gcs"])
    assert "vanilla" not in run.methods
    save(tmp_path, run, made_up(run, "gcs", "transplant-ep", BETTER))
    save(tmp_path, run, made_up(run, "gcs", "transplant-random", PLAIN))
    rows = rows_of(paper_table("ablation", {"NCI1": ["gcs"]}, budget="quick", out=tmp_path))
    row = rows["NCI1", "gcs", "transplant-random"]
    assert row.gain == pytest.approx(np.mean(np.subtract(PLAIN, BETTER)))
    assert row.reproduced == "chart"
    assert rows["NCI1", "gcs", "transplant-ep"].gain is None


def test_readouts_are_rows_of_their_own(tmp_path: Path) -> None:
    runs = plan("readout", data=["ENZYMES"])
    for run, values in zip(runs, (PLAIN, BETTER, WORSE), strict=True):
        save(tmp_path, run, made_up(run, "gcs", "vanilla", values))
    table = paper_table("readout", {"ENZYMES": ["gcs"]}, budget="quick", out=tmp_path)
    means = {row.readout: row.mean for row in table.rows if row.method == "vanilla"}
    assert means == pytest.approx(
        {"mean": np.mean(PLAIN), "sum": np.mean(BETTER), "max": np.mean(WORSE)}
    )
    assert "readout" in text_table(table).splitlines()[2].split()
    assert [path.name for path in table.directories] == ["ENZYMES", "ENZYMES-sum", "ENZYMES-max"]


def test_full_shows_the_candidate_chosen_on_validation_alone(tmp_path: Path) -> None:
    (run,) = plan("table1", data=["ENZYMES"], models=["gcs"], budget="full")
    records = []
    for layers in (3, 4, 5):
        for ratio, name in ((0.2, "drop-nodes"), (0.4, "drop-nodes:ratio=0.4")):
            level = 0.9 if (layers, ratio) == (4, 0.4) else 0.5
            # What is best on validation graphs is worst on test graphs.
            for record in made_up(run, "gcs", name, [1.4 - level] * 15, layers=layers):
                record["validation"] = {"accuracy": level}
                records.append(record)
    save(tmp_path, run, records)
    table = paper_table("table1", {"ENZYMES": ["gcs"]}, budget="full", out=tmp_path)
    row = rows_of(table)["ENZYMES", "gcs", "drop-nodes"]
    assert row.chosen == "4 layers, ratio=0.4"
    assert row.mean == pytest.approx(0.5)
    assert (row.trials, row.finished, row.planned) == (15, 90, 90)
    assert row.spread == "below"
    assert table.cuts == []
    assert "4 layers, ratio=0.4" in text_table(table)
    assert "nothing is cut" in text_table(table)


def test_a_grid_that_is_not_finished_says_so(tmp_path: Path) -> None:
    (run,) = plan("gcn", data=["NCI1"], budget="full")
    save(tmp_path, run, made_up(run, "gcn", "vanilla", PLAIN * 3))
    table = paper_table("gcn", {"NCI1": ["gcn"]}, budget="full", out=tmp_path)
    row = rows_of(table)["NCI1", "gcn", "vanilla"]
    assert (row.finished, row.planned) == (15, 45)
    assert "(15 of 45 trials)" in text_table(table)


def test_a_method_of_another_experiment_is_no_beginning(tmp_path: Path) -> None:
    """The ablation trains transplant-ep with GIN, which the other tables have, too."""
    (run,) = plan("ablation", data=["ENZYMES"], models=["gin"])
    save(tmp_path, run, made_up(run, "gin", "transplant-ep", PLAIN))
    asked = {"ENZYMES": ["gcs"]}
    (plain,) = plan("table1", data=["ENZYMES"], models=["gcs"])
    save(tmp_path, plain, made_up(plain, "gcs", "vanilla", PLAIN))
    table = paper_table("table1", asked, budget="quick", out=tmp_path)
    assert {row.model for row in table.rows} == {"gcs"}
    assert {
        row.model for row in paper_table("ablation", {}, budget="quick", out=tmp_path).rows
    } == (set())
    save(tmp_path, run, made_up(run, "gin", "transplant-random", PLAIN))
    ablation = paper_table("ablation", {}, budget="quick", out=tmp_path)
    assert {row.model for row in ablation.rows} == {"gin"}
    # Plain training is a beginning of what is compared with it.
    save(tmp_path, plain, made_up(plain, "gin", "vanilla", PLAIN))
    table = paper_table("table1", asked, budget="quick", out=tmp_path)
    assert {row.model for row in table.rows} == {"gcs", "gin"}
    # What is cut differs between data sets, and is told of each.
    asked = {"ENZYMES": ["gcs", "gin"], "COIL-DEL": ["gcs"]}
    cuts = " ".join(paper_table("table1", asked, budget="quick", out=tmp_path).cuts)
    assert "GCS without GIN and GAT on COIL-DEL." in cuts
    assert "GCS and GIN without GAT on ENZYMES." in cuts


def test_only_trials_of_the_plan_count(tmp_path: Path) -> None:
    (run,) = plan("table1", data=["ENZYMES"], models=["gcs"])
    save(tmp_path, run, made_up(run, "gcs", "vanilla", PLAIN))
    save(tmp_path, run, made_up(run, "gcs", "vanilla", BETTER, layers=4))
    save(tmp_path, run, made_up(run, "gcs", "vanilla", BETTER, repeat=1, fold=0)[:1])
    save(tmp_path, run, made_up(run, "gcs", "drop-nodes:ratio=0.4", BETTER))
    rows = rows_of(paper_table("table1", {"ENZYMES": ["gcs"]}, budget="quick", out=tmp_path))
    assert rows["ENZYMES", "gcs", "vanilla"].mean == pytest.approx(np.mean(PLAIN))
    assert rows["ENZYMES", "gcs", "drop-nodes"].mean is None


@pytest.mark.parametrize(
    ("name", "value", "planned"),
    [
        ("epochs", 30, "400"),
        ("hidden", 8, "128"),
        ("balance", True, "False"),
        ("stop_patience", 50, "1500"),
        ("metric", "auroc", "accuracy"),
    ],
)
def test_records_with_other_settings_are_named_and_not_shown(
    tmp_path: Path, name: str, value: Any, planned: str
) -> None:
    (run,) = plan("table1", data=["ENZYMES"], models=["gcs"])
    other = made_up(run, "gcs", "vanilla", PLAIN)
    for record in other:
        record["settings"][name] = value
    save(tmp_path, run, other)
    table = paper_table("table1", {"ENZYMES": ["gcs"]}, budget="quick", out=tmp_path)
    assert table.verdict.startswith("Nothing is measured yet: 45 of 45")
    words = f"quick/ENZYMES are not shown: their `{name}` is {value}, not {planned}."
    assert words in text_table(table)


def test_records_made_before_a_setting_existed_count(tmp_path: Path) -> None:
    (run,) = plan("table1", data=["ENZYMES"], models=["gcs"])
    old = made_up(run, "gcs", "vanilla", PLAIN)
    for record in old:
        for name in ("metric", "split", "attack", "shards", "ties", "numerics", "patience_unit"):
            del record["settings"][name]
    save(tmp_path, run, old)
    rows = rows_of(paper_table("table1", {"ENZYMES": ["gcs"]}, budget="quick", out=tmp_path))
    assert rows["ENZYMES", "gcs", "vanilla"].trials == 5


def test_what_was_measured_before_stays_in_the_table(tmp_path: Path) -> None:
    for data, model in (("ENZYMES", "gcs"), ("ENZYMES", "gin"), ("NCI1", "gcs")):
        (run,) = plan("table1", data=[data], models=[model])
        save(tmp_path, run, made_up(run, model, "vanilla", PLAIN))
    table = paper_table("table1", {"NCI1": ["gcs"]}, budget="quick", out=tmp_path)
    assert list(dict.fromkeys((row.data, row.model) for row in table.rows)) == [
        ("NCI1", "gcs"),
        ("ENZYMES", "gcs"),
        ("ENZYMES", "gin"),
    ]
    assert table.commands == [
        "graph-transplant paper table1 --data NCI1 --models gcs --budget quick",
        "graph-transplant paper table1 --data ENZYMES --models gcs,gin --budget quick",
    ]
    # Another experiment of the same records shows what it has of them.
    other = paper_table("gcn", {"NCI1": ["gcn"]}, budget="quick", out=tmp_path)
    assert {(row.data, row.model) for row in other.rows} == {("NCI1", "gcn")}


def test_a_dash_of_the_paper_is_a_dash(tmp_path: Path) -> None:
    (run,) = plan("gcn", data=["COLLAB"])
    save(tmp_path, run, [r for name in run.methods if name != "mask-nodes"
                         for r in made_up(run, "gcn", name, PLAIN)])  # fmt: skip
    table = paper_table("gcn", {"COLLAB": ["gcn"]}, budget="quick", out=tmp_path)
    (line,) = [line for line in text_table(table).splitlines() if "mask-nodes" in line[:30]]
    assert line.split() == ["COLLAB", "gcn", "mask-nodes", *["-"] * 7]
    assert "missing" not in table.verdict


def test_no_spread_is_judged_where_runs_share_a_test_set(tmp_path: Path) -> None:
    (run,) = plan("table2", budget="full")
    values = [0.60, 0.62, 0.61]
    save(tmp_path, run, made_up(run, "gcs", "vanilla", values))
    save(tmp_path, run, made_up(run, "gcs", "transplant-ep", [0.66, 0.67, 0.675]))
    rows = rows_of(paper_table("table2", {"ogbg-ppa": ["gcs"]}, budget="full", out=tmp_path))
    row = rows["ogbg-ppa", "gcs", "transplant-ep"]
    # The ordinary paired t-test: there are no overlapping training sets to correct for.
    assert row.p_value == pytest.approx(stats.ttest_rel([0.66, 0.67, 0.675], values).pvalue)


def test_cuts_say_what_is_less_than_the_paper(tmp_path: Path) -> None:
    cuts = paper_table(
        "table1", {"ENZYMES": ["gcs"], "NCI1": ["gcs"]}, budget="quick", out=tmp_path
    ).cuts
    text = " ".join(cuts)
    assert "1 repeat of 5 folds instead of 3." in cuts
    assert "3 layers instead of the best of 3, 4 and 5 by validation." in cuts
    assert (
        "About 1,200 optimiser steps, in whole epochs (NCI1 60 epochs, ENZYMES 400 epochs), "
        "instead of 1,000 epochs with early stopping."
    ) in cuts
    assert "default parameters" in text
    attacked = paper_table(
        "table3-robustness", {"NCI1": ["gcs"]}, budget="quick", out=tmp_path
    ).cuts
    assert not any("repeat" in cut for cut in attacked)
    assert "GCS without GIN." in attacked
    both = paper_table("table3-robustness", {"NCI1": ["gcs", "gin"]}, budget="quick", out=tmp_path)
    assert not any("without" in cut for cut in both.cuts)
    official = paper_table("table2", {"ogbg-ppa": ["gcs"]}, budget="quick", out=tmp_path).cuts
    assert "1 run instead of 3." in official


# Files ----------------------------------------------------------------------------------------


def test_files_hold_the_table_and_can_be_read_back(tmp_path: Path) -> None:
    (run,) = plan("table1", data=["ENZYMES"], models=["gcs"])
    save(tmp_path, run, made_up(run, "gcs", "vanilla", PLAIN))
    table = paper_table("table1", {"ENZYMES": ["gcs"]}, budget="quick", out=tmp_path)
    page, sheet, source = write_table(table, tmp_path / "new")
    names = (page.name, sheet.name, source.name)
    assert names == ("table1-quick.md", "table1-quick.csv", "table1-quick.tex")
    assert source.read_text(encoding="utf-8") == latex_table(table)
    lines = list(csv.DictReader(io.StringIO(sheet.read_text(encoding="utf-8"))))
    assert [line["method"] for line in lines] == list(MAIN)
    assert float(lines[0]["mean"]) == pytest.approx(np.mean(PLAIN))
    assert (lines[0]["published_mean"], lines[0]["published_std"]) == ("0.639", "0.04")
    assert lines[0]["source"].startswith("Table 1 (left), Park")
    assert lines[-1]["mean"] == ""
    text = page.read_text(encoding="utf-8")
    assert text == markdown_table(table)
    cells = [line.count(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert len(cells) == 2 + len(MAIN)
    assert len(set(cells)) == 1
    assert "graph-transplant paper table1 --data ENZYMES --models gcs --budget quick" in text
    assert "Cut by the quick budget" in text
    assert table.verdict in text


def test_names_from_outside_do_not_become_markup(tmp_path: Path) -> None:
    name = "a|b <img src=x> `c` *d*\n```"
    table = paper_table("gcn", {name: ["gcn"]}, budget="quick", out=tmp_path, sizes={name: 100})
    text, fence, rest = markdown_table(table).partition("```console\n")
    assert fence
    assert "<img" not in text.replace("\\<img", "")
    assert rest.count("\n") == 2
    assert rest.endswith("\n```\n")
    row = next(line for line in text.splitlines() if "vanilla" in line and line.startswith("| "))
    assert row.startswith("| a\\|b \\<img src=x\\> \\`c\\` \\*d\\* \\`\\`\\` | gcn | vanilla |")


def test_latex_has_a_cell_for_every_cell_and_escapes_names(tmp_path: Path) -> None:
    name = r"50% of a_b & {c} \input{x} $d$ #1 ~ ^"
    table = paper_table("gcn", {name: ["gcn"]}, budget="quick", out=tmp_path, sizes={name: 100})
    text = latex_table(table)
    body = text.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(lines) == 1 + len(table.rows)
    columns = re.search(r"\\begin\{tabular\}\{(l+r+)\}", text)
    assert columns is not None
    for line in lines:
        assert len(re.findall(r"(?<!\\)&", line)) == len(columns.group(1)) - 1
    assert r"50\% of a\_b \& \{c\} \textbackslash{}input\{x\}" in text
    assert r"\input{" not in text.replace(r"\textbackslash{}input", "")
    assert text.count(r"\begin{") == text.count(r"\end{") == 2


def test_latex_rules_part_data_sets_and_models(tmp_path: Path) -> None:
    asked = {"ENZYMES": ["gcs", "gin"], "COIL-DEL": ["gcs"]}
    table = paper_table("table4-calibration", asked, budget="quick", out=tmp_path)
    assert latex_table(table).count(r"\midrule") == 3
    psi = paper_table("edge-predictor", {"ENZYMES": ["gcs"]}, budget="quick", out=tmp_path)
    assert "ψ" not in latex_table(psi)
    assert r"$\psi$" in latex_table(psi)


def test_plans_and_tables_need_no_torch_to_import() -> None:
    code = (
        "import sys; import graph_transplant.experiments.reproduce as reproduce; "
        "reproduce.plan('table1'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# Figures --------------------------------------------------------------------------------------


def drawn_for(
    experiment: str, asked: dict[str, list[str]], out: Path, more: dict[str, dict[str, Any]]
) -> tuple[PaperTable, dict[str, Figure]]:
    """Save five trials of every method, with ``more`` in those of some, and draw them."""
    for run in plan(experiment, data=list(asked)):
        for model in asked[run.data]:
            for number, method in enumerate(run.methods):
                values = [value + number / 100 for value in PLAIN]
                save(out, run, made_up(run, model, method, values, **more.get(method, {})))
    table = paper_table(experiment, asked, budget="quick", out=out)
    paths = write_paper_figures(table, out)
    records = [r for place in table.directories for r in RecordStore(place).read()]
    figures = {one.name: one for one in paper_figures(table, records)}
    wanted = {f"{name}.{end}" for name in figures for end in ("svg", "csv")}
    assert {path.name for path in paths} == wanted
    assert {path.parent for path in paths} == {out / "figures"}
    for path in paths:
        if path.suffix == ".svg":
            ElementTree.parse(path)
    for one in figures.values():
        for svg in (one.wide, one.narrow):
            ElementTree.fromstring(str(svg))
    return table, figures


def numbers_of(one: Figure) -> list[dict[str, str]]:
    assert one.data is not None
    return list(csv.DictReader(io.StringIO(one.data.csv())))


def test_ablations_are_grouped_by_model_with_the_complete_method_last(tmp_path: Path) -> None:
    table, figures = drawn_for("ablation", {"ENZYMES": ["gcs", "gin"]}, tmp_path, {})
    (one,) = figures.values()
    assert one.name == "ablation-quick-enzymes"
    rows = numbers_of(one)
    assert [row["model"] for row in rows] == ["GCS"] * 5 + ["GIN"] * 5
    assert [row["method"] for row in rows[:5]] == list(EXPERIMENTS["ablation"].methods)
    assert rows[4]["method"] == "transplant-ep"
    for row in rows[:5]:
        ours = rows_of(table)["ENZYMES", "gcs", row["method"]]
        assert ours.mean is not None
        assert float(row["mean"]) == pytest.approx(ours.mean)
        assert float(row["std"]) == pytest.approx(np.std(PLAIN, ddof=1))
        assert row["published"] == ""  # a chart: no numbers to mark
    assert "published" not in one.wide
    # A bar has a text when it is pointed at, a sample of a colour has none.
    bars = [e for e in ElementTree.fromstring(str(one.wide)).iter("rect") if list(e)]
    assert len(bars) == 10


def test_published_numbers_are_marked(tmp_path: Path) -> None:
    _, figures = drawn_for("table4-calibration", {"ENZYMES": ["gcs"]}, tmp_path, {})
    (one,) = figures.values()  # without bins there are no reliability diagrams
    rows = {row["method"]: row for row in numbers_of(one)}
    assert (rows["vanilla"]["published"], rows["transplant-ep"]["published"]) == ("0.299", "0.046")
    marks = [
        e
        for e in ElementTree.fromstring(str(one.wide)).iter("circle")
        if e.get("class") == "published" and list(e)
    ]
    assert len(marks) == len(EXPERIMENTS["table4-calibration"].methods)


def test_calibration_has_reliability_of_plain_training_and_ours(tmp_path: Path) -> None:
    bins = [{"bin": 13, "count": 8, "confidence": 0.9, "accuracy": 0.5}]
    more = {"reliability": bins, "reliability_calibrated": bins, "calibrated": {"ece": 0.1}}
    given = {"vanilla": more, "transplant-ep": more, "subgraph": more}
    asked = {"ENZYMES": ["gcs", "gin"]}
    _, figures = drawn_for("table4-calibration", asked, tmp_path, given)
    one = figures["table4-calibration-quick-reliability-enzymes"]
    rows = numbers_of(one)
    names = list(dict.fromkeys(row["method"] for row in rows))
    assert names == ["GCS vanilla", "GCS transplant-ep", "GIN vanilla", "GIN transplant-ep"]
    # Five trials of eight predictions each.
    assert {row["count"] for row in rows} == {"40"}


def test_readouts_are_the_groups_of_their_chart(tmp_path: Path) -> None:
    _, figures = drawn_for("readout", {"ENZYMES": ["gcs"]}, tmp_path, {})
    (one,) = figures.values()
    assert one.name == "readout-quick-enzymes-gcs"
    rows = numbers_of(one)
    assert list(dict.fromkeys(row["readout"] for row in rows)) == ["mean", "sum", "max"]
    assert len(rows) == 3 * len(EXPERIMENTS["readout"].methods)


def test_the_edge_predictor_has_a_line_per_model_and_a_panel_per_data_set(tmp_path: Path) -> None:
    curve = [
        {
            "epoch": epoch,
            "train_loss": 1.0,
            "validation_loss": 1.0,
            "measurements": {"edge_predictor_accuracy": value},
        }
        for epoch, value in ((1, 0.5), (3, 0.7))
    ]
    asked = {"ENZYMES": ["gcn", "gcs"], "NCI1": ["gcs"]}
    given = {"transplant-ep": {"curve": curve}}
    _, figures = drawn_for("edge-predictor", asked, tmp_path, given)
    (one,) = figures.values()
    rows = numbers_of(one)
    assert {(row["data"], row["model"]) for row in rows} == {
        ("ENZYMES", "GCN"),
        ("ENZYMES", "GCS"),
        ("NCI1", "GCS"),
    }
    own = [row for row in rows if (row["data"], row["model"]) == ("NCI1", "GCS")]
    assert [(row["epoch"], round(float(row["accuracy"]), 6)) for row in own] == [
        ("1.0", 0.5),
        ("2.0", 0.6),
        ("3.0", 0.7),
    ]
    for svg in (one.wide, one.narrow):
        texts = [e.text for e in ElementTree.fromstring(str(svg)).iter("text")]
        assert {"ENZYMES", "NCI1", "GCN", "GCS"} <= set(texts)
        assert svg.count("<polyline") == 3


def test_attacks_have_a_curve_for_each_model(tmp_path: Path) -> None:
    attacked = [
        {"budget": b, "edges": 9, "accuracy": 0.6 - b, "as_stated": 0.62 - b / 2, "random": 0.6}
        for b in (0.05, 0.1, 0.2, 0.3)
    ]
    methods = EXPERIMENTS["table3-robustness"].methods
    given: dict[str, dict[str, Any]] = {name: {"attacked": attacked} for name in methods}
    asked = {"ENZYMES": ["gcs", "gin"]}
    _, figures = drawn_for("table3-robustness", asked, tmp_path, given)
    assert list(figures) == [
        "table3-robustness-quick-enzymes",
        "table3-robustness-quick-attack-enzymes-gcs",
        "table3-robustness-quick-attack-enzymes-gin",
    ]
    bars = {(r["model"], r["method"]): r for r in numbers_of(next(iter(figures.values())))}
    # The table and its bars read the attack to the letter, beside what was published.
    assert float(bars["GCS", "vanilla"]["mean"]) == pytest.approx(0.52)
    assert bars["GCS", "vanilla"]["published"] == "0.543"
    rows = numbers_of(figures["table3-robustness-quick-attack-enzymes-gcs"])
    assert list(dict.fromkeys(row["method"] for row in rows)) == list(methods)
    strong = [r for r in rows if (r["method"], r["attack"]) == ("vanilla", "GradArgmax")]
    assert [float(r["budget"]) for r in strong] == [0.0, 0.05, 0.1, 0.2, 0.3]
    assert float(strong[0]["accuracy"]) == pytest.approx(np.mean(PLAIN))
    assert float(strong[3]["accuracy"]) == pytest.approx(0.4)


def test_only_what_the_table_shows_is_drawn(tmp_path: Path) -> None:
    bins = [{"bin": 13, "count": 8, "confidence": 0.9, "accuracy": 0.5}]
    (run,) = plan("table4-calibration", data=["ENZYMES"], models=["gcs"])
    own = made_up(run, "gcs", "vanilla", PLAIN, reliability=bins)
    noisy = made_up(run, "gcs", "vanilla", PLAIN, reliability=bins, label_noise=0.2)
    deeper = made_up(run, "gcs", "vanilla", PLAIN, reliability=bins, layers=5)
    others = made_up(run, "gcs", "transplant-ep:anchor_ratio=0.05", PLAIN, reliability=bins)
    save(tmp_path, run, [*own, *deeper, *others])
    table = paper_table("table4-calibration", {"ENZYMES": ["gcs"]}, budget="quick", out=tmp_path)
    figures = paper_figures(table, [*own, *noisy, *deeper, *others])
    rows = numbers_of(figures[1])
    assert {(row["method"], row["count"]) for row in rows} == {("GCS vanilla", "40")}


def test_the_full_budget_draws_the_candidate_chosen_on_validation(tmp_path: Path) -> None:
    def bins(accuracy: float) -> list[dict[str, float]]:
        return [{"bin": 13, "count": 8, "confidence": 0.9, "accuracy": accuracy}]

    (run,) = plan("table4-calibration", data=["ENZYMES"], models=["gcs"], budget="full")
    worse = made_up(run, "gcs", "vanilla", PLAIN * 3, reliability=bins(0.1))
    better = made_up(run, "gcs", "vanilla", BETTER * 3, reliability=bins(0.7), layers=4)
    save(tmp_path, run, [*worse, *better])
    asked = {"ENZYMES": ["gcs"]}
    table = paper_table("table4-calibration", asked, budget="full", out=tmp_path)
    _, one = paper_figures(table, [*worse, *better])
    own = [row for row in numbers_of(one) if row["bin"] == "13"]
    assert [(row["count"], round(float(row["accuracy"]), 6)) for row in own] == [("120", 0.7)]


def test_data_sets_of_like_names_do_not_overwrite_each_other(tmp_path: Path) -> None:
    sizes = {"a b": 100, "a_b": 100}
    for name in sizes:
        (run,) = plan("gcn", data=[name], sizes=sizes)
        save(tmp_path, run, made_up(run, "gcn", "vanilla", PLAIN))
    asked = {name: ["gcn"] for name in sizes}
    table = paper_table("gcn", asked, budget="quick", out=tmp_path, sizes=sizes)
    names = sorted(path.name for path in write_paper_figures(table, tmp_path))
    assert names == [
        *("gcn-quick-a-b-2.csv", "gcn-quick-a-b-2.svg", "gcn-quick-a-b.csv", "gcn-quick-a-b.svg"),
    ]


def test_an_experiment_of_single_parameters_has_panels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("vanilla", "transplant-dp", "transplant-dp:anchor_ratio=0.2")
    monkeypatch.setitem(EXPERIMENTS, "gcn", replace(EXPERIMENTS["gcn"], methods=names))
    (run,) = plan("gcn", data=["ENZYMES"])
    records = [r for name in names for r in made_up(run, "gcn", name, PLAIN)]
    save(tmp_path, run, records)
    table = paper_table("gcn", {"ENZYMES": ["gcn"]}, budget="quick", out=tmp_path)
    one = paper_figures(table, records)[-1]
    assert one.name == "gcn-quick-sensitivity-enzymes-gcn"
    assert [row["value"] for row in numbers_of(one)] == ["0.1", "0.2"]


# Running --------------------------------------------------------------------------------------


class Listener:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def start(self, **_: Any) -> None: ...
    def trial_started(self, trial: Trial) -> None: ...
    def epoch_finished(self, epoch: int, epochs: int, validation_score: float) -> None: ...
    def trial_finished(self, record: Record) -> None: ...
    def stop(self) -> None: ...


def test_run_trains_resumes_and_tabulates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = load("motifs", graphs=60)
    monkeypatch.setattr("graph_transplant.datasets.load", lambda name, root: small)
    monkeypatch.setattr(paper, "STEPS", 1)
    listener = Listener()
    arguments: dict[str, Any] = {"data": ["motifs"], "models": ["gcn"], "out": tmp_path}
    table = reproduce.run("edge-predictor", **arguments, reporter=listener)
    (row,) = table.rows
    assert (row.data, row.trials, row.planned, row.published) == ("motifs", 5, 5, None)
    assert row.mean is not None
    assert 0 <= row.mean <= 1
    records = (tmp_path / "quick" / "motifs" / "records.jsonl").read_bytes()
    assert table.verdict == "All 5 trials are there; nothing is published beside."
    again = reproduce.run("edge-predictor", **arguments, reporter=listener)
    assert again == table
    assert (tmp_path / "quick" / "motifs" / "records.jsonl").read_bytes() == records


def fake_compare(calls: list[dict[str, Any]]) -> Any:
    def compare(store: Any, **arguments: Any) -> None:
        calls.append({"store": store, **arguments})

    return compare


def test_a_method_that_cannot_serve_the_data_is_left_out_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(compare_module, "compare", fake_compare(calls))
    monkeypatch.setattr("graph_transplant.datasets.load", lambda name, root: motifs)
    motifs = load("motifs", graphs=60)
    # Nobody listens there.
    monkeypatch.setattr("graph_transplant.experiments.engine.check_engine", lambda *_: None)
    table = reproduce.run(
        "gcn", data=["motifs"], out=tmp_path, workers=2, engine="ray", address="there"
    )
    (call,) = calls
    assert call["methods"] == tuple(name for name in MAIN if name != "mask-nodes")
    assert (call["out"], call["source"]) == (tmp_path / "quick" / "motifs", "motifs")
    assert (call["workers"], call["engine"], call["address"]) == (2, "ray", "there")
    assert call["fresh"] is False
    row = rows_of(table)["motifs", "gcn", "mask-nodes"]
    assert row.reason == "mask-nodes needs node features, but motifs has none"
    assert row.reason in text_table(table)
    assert table.verdict == "Nothing is measured yet: 40 of 40 trials are missing."


def test_starting_over_is_passed_to_each_directory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []
    motifs = load("motifs", graphs=60)
    monkeypatch.setattr(compare_module, "compare", fake_compare(calls))
    monkeypatch.setattr("graph_transplant.datasets.load", lambda name, root: motifs)
    reproduce.run("readout", data=["ENZYMES", "NCI1"], out=tmp_path, fresh=True)
    assert [call["fresh"] for call in calls] == [True] * 6
    assert len({call["out"] for call in calls}) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"models": ["gcn", "gsc"]}, "`models` must be one of gcn, .*; got 'gsc'"),
        ({"models": []}, "`models` must name at least one of gcn; got none"),
        ({"workers": 0}, "`workers` must be at least 1, got 0"),
        ({"engine": "torchrun"}, "`engine` must be one of local, ray; got 'torchrun'"),
        ({"engine": "rai"}, "`engine` must be one of local, ray; got 'rai'"),
        ({"address": "head:6379"}, "`address` names a Ray cluster and needs the engine ray"),
        ({"budget": "huge"}, "`budget` must be one of quick, full; got 'huge'"),
    ],
)
def test_arguments_are_checked_before_any_data_is_loaded(
    arguments: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr("graph_transplant.datasets.load", lambda name, root: loaded.append(name))
    with pytest.raises(GraphTransplantError, match=message):
        reproduce.run("gcn", out=tmp_path / "out", **arguments)
    assert loaded == []
    assert not (tmp_path / "out").exists()


def test_data_of_another_size_than_the_papers_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_module, "compare", fake_compare([]))
    motifs = load("motifs", graphs=60)
    monkeypatch.setattr("graph_transplant.datasets.load", lambda name, root: motifs)
    table = reproduce.run("gcn", data=["NCI1"], out=tmp_path)
    assert "NCI1 has 60 graphs here, 4,110 in the paper." in table.notes


def test_data_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    motifs = load("motifs", graphs=60)

    def only_one(name: str, root: Any) -> Any:
        if name != "NCI1":
            raise DataError(f"{name} is not here")
        return motifs

    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(compare_module, "compare", fake_compare(calls))
    monkeypatch.setattr("graph_transplant.datasets.load", only_one)
    # Asked for by name it is an error, before anything runs, that lists the paper's.
    with pytest.raises(
        DataError, match=r"P388 is not here \(the paper's data for table1: COLLAB, .*P388\)"
    ):
        reproduce.run("table1", data=["NCI1", "P388"], out=tmp_path)
    assert calls == []
    # Of all the paper's, what is there is run.
    listener = Listener()
    table = reproduce.run("table3-robustness", out=tmp_path, reporter=listener)
    assert [call["source"] for call in calls] == ["NCI1"]
    assert "ENZYMES is left out: ENZYMES is not here" in table.notes
    assert "ENZYMES is left out: ENZYMES is not here" in listener.notes
    # The error tells the reason; nobody has been told before.
    listener = Listener()
    message = "none of the data sets of table2 can be had: .*ogbg-ppa is not here"
    with pytest.raises(DataError, match=message):
        reproduce.run("table2", out=tmp_path, reporter=listener)
    assert listener.notes == []
    with pytest.raises(DataError, match="`data` must name at least one of ogbg-ppa; got none"):
        reproduce.run("table2", data=[], out=tmp_path)


def test_a_baseline_alone_is_no_beginning_of_an_experiment(tmp_path: Path) -> None:
    (run,) = plan("ablation", data=["NCI1"], models=["gcs"])
    save(tmp_path, run, made_up(run, "gcs", "transplant-ep", PLAIN))
    table = paper_table("ablation", {"ENZYMES": ["gcs"]}, budget="quick", out=tmp_path)
    assert {row.data for row in table.rows} == {"ENZYMES"}
    save(tmp_path, run, made_up(run, "gcs", "transplant-random", PLAIN))
    table = paper_table("ablation", {"ENZYMES": ["gcs"]}, budget="quick", out=tmp_path)
    assert {row.data for row in table.rows} == {"ENZYMES", "NCI1"}
