"""The paper's experiments: what they run, and their tables made from made-up records."""

from __future__ import annotations

import csv
import inspect
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

import graph_transplant.comparison.compare as compare_module
from graph_transplant import load
from graph_transplant.comparison.plan import candidates
from graph_transplant.comparison.progress import Plain
from graph_transplant.config.compare import Settings
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.methods import METHODS, expand_methods
from graph_transplant.nn import CONVOLUTIONS
from helpers.made_up_records import BETTER, PLAIN, UNSURE, WORSE, made_up
from reproduction import experiments
from reproduction.experiments import EXPERIMENTS, Request, Run, plan, run
from reproduction.published import all_published
from reproduction.tables import PaperTable, paper_table

MAIN = EXPERIMENTS["table1"].methods
SMOKE = "smoke run, not a reproduction"


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
    charts = ("ablation", "readout", "edge-predictor")
    # Only M-Evolve under attack on GIN is run without having been published.
    assert {cell for cell in planned - numbers if cell[0] not in charts} == {
        ("table3-robustness", data, "gin", "m-evolve")
        for data in ("ENZYMES", "Mutagenicity", "NCI1")
    }
    assert {cell[2] for cell in planned} <= set(CONVOLUTIONS)
    assert {cell[3] for cell in planned} <= set(METHODS)


@pytest.mark.parametrize(
    ("experiment", "data", "epochs", "batch_size", "training"),
    [
        ("table1", "ENZYMES", 400, 128, 360),
        ("table1", "NCI1", 60, 128, 2466),
        ("table1", "COLLAB", 26, 64, 3000),
        ("table1", "P388", 7, 128, 24883),
        ("table2", "ogbg-ppa", 1, 64, 78200),
    ],
)
def test_quick_is_about_twelve_hundred_steps(
    experiment: str, data: str, epochs: int, batch_size: int, training: int
) -> None:
    (one,) = plan(experiment, data=[data])
    assert (one.epochs, one.batch_size) == (epochs, batch_size)
    assert (one.repeats, one.layers, one.select, one.models) == (1, (3,), "none", ("gcs",))
    steps = -(-training // batch_size)
    # The first epoch that reaches the number is the last.
    assert (epochs - 1) * steps < 1200 <= epochs * steps


def test_full_is_the_papers_protocol() -> None:
    (small,) = plan("table1", data=["NCI1"], budget="full")
    assert (small.repeats, small.folds, small.epochs, small.layers) == (3, 5, 1000, (3, 4, 5))
    assert (small.select, small.metric, small.scale) == ("validation", "accuracy", "small")
    # On small data only the baselines are searched.
    assert len(expand_methods(small.methods)) == 2 + 2 * 5 + 2
    (medium,) = plan("table1", data=["P388"], budget="full")
    assert (medium.repeats, medium.metric, medium.models) == (1, "auroc", ("gcs", "gin"))
    assert "transplant-ep:anchor_ratio=0.05" in expand_methods(medium.methods)
    (large,) = plan("table2", budget="full")
    assert (large.split, large.batch_size, large.repeats) == ("official", 64, 3)
    attacked = plan("table3-robustness", budget="full")
    assert all(one.repeats == 1 and 0.2 in one.attack for one in attacked)


@pytest.mark.parametrize("budget", ["quick", "full"])
def test_experiments_share_records_exactly_where_settings_agree(budget: str) -> None:
    taken = inspect.signature(compare_module.compare).parameters
    free = ("methods", "model", "repeats")
    shared: dict[str, list[Any]] = {}
    for name in EXPERIMENTS:
        for one in plan(name, data=["ENZYMES"], budget=budget):
            given = one.arguments()
            assert set(given) <= set(taken)
            settings = {key: value for key, value in given.items() if key not in free}
            shared.setdefault(one.directory, []).append(settings)
            # The table looks for the candidates that the comparison runs.
            search = one.select != "none"
            made = candidates(one.methods, search=search, scale=one.scale)
            assert list(made) == expand_methods(one.methods)
    assert set(shared) == {f"{budget}/ENZYMES{end}" for end in ("", "-sum", "-max")}
    assert all(settings == found[0] for found in shared.values() for settings in found)
    # Other data are attacked only where the experiment is about it.
    sizes = {"my data/x": 300}
    plain, attacked = (
        plan(name, data=list(sizes), sizes=sizes, budget=budget)[0]
        for name in ("table1", "table3-robustness")
    )
    assert (plain.directory, plain.attack, plain.metric) == (f"{budget}/my-data-x", (), None)
    assert attacked.directory == f"{budget}/my-data-x-attacked"
    assert 0.2 in attacked.attack


# Tables ---------------------------------------------------------------------------------------


def save(out: Path, one: Run, model: str, method: str, values: list[float], **more: Any) -> None:
    """Append the records of one candidate, one per value, in the order of repeats and folds."""
    names = ("epochs", "batch_size", "readout", "attack", "split", "metric")
    settings = Settings.of("paper", one.scale, **{name: getattr(one, name) for name in names})
    given = {"data": one.data, "source": one.data, "model": model, "seconds": 20.0, "curve": []}
    records = made_up(
        method, values, folds=1 if one.split == "official" else one.folds,
        settings=settings.as_record("0.1.0"), **given | more,
    )  # fmt: skip
    for record, value in zip(records, values, strict=True):
        record["test"] |= {"ece": 0.5 - value / 2}
    directory = out / one.directory
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "records.jsonl", "a", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def table_of(out: Path, experiment: str, budget: str = "quick", **asked: list[str]) -> PaperTable:
    return paper_table(Request(experiment, budget, out, asked))


def row_of(table: PaperTable, method: str, **place: str) -> dict[str, Any]:
    (row,) = [
        row
        for row in table.frame.to_dict("records")
        if row["method"] == method and all(row[key] == value for key, value in place.items())
    ]
    return row


def by_hand(values: list[float], other: list[float]) -> tuple[float, float]:
    """Mean difference and p of the corrected resampled t-test with 20 of 60 graphs tested."""
    gaps = np.subtract(values, other)
    error = math.sqrt((1 / len(gaps) + 20 / 60) * gaps.var(ddof=1))
    return gaps.mean(), 2 * stats.t.sf(abs(gaps.mean()) / error, len(gaps) - 1)


def test_a_row_holds_ours_the_published_and_how_they_compare(tmp_path: Path) -> None:
    (one,) = plan("table1", data=["ENZYMES"])
    given = {"transplant-ep": BETTER, "drop-nodes": UNSURE, "subgraph": WORSE}
    for method, values in {"vanilla": PLAIN, **given}.items():
        save(tmp_path, one, "gcs", method, values)
    # What is not in the plan does not count.
    save(tmp_path, one, "gcs", "vanilla", BETTER, layers=4)
    save(tmp_path, one, "gcs", "vanilla", BETTER, label_noise=0.2)
    save(tmp_path, one, "gcs", "drop-nodes:ratio=0.4", BETTER)
    table = table_of(tmp_path, "table1", ENZYMES=["gcs"])
    assert table.frame["method"].tolist() == list(MAIN)
    assert row_of(table, "vanilla")["mean"] == pytest.approx(np.mean(PLAIN))
    tests = {method: by_hand(values, PLAIN) for method, values in given.items()}
    ascending = sorted(tests, key=lambda method: tests[method][1])
    holm = 0.0
    for place, method in enumerate(ascending):
        row = row_of(table, method)
        holm = max(holm, min(1.0, (3 - place) * tests[method][1]))
        assert row["mean"] == pytest.approx(np.mean(given[method]))
        assert row["std"] == pytest.approx(np.std(given[method], ddof=1))
        assert (row["gain"], row["p_value"]) == pytest.approx(tests[method])
        assert row["p_holm"] == pytest.approx(holm)
    best = row_of(table, "transplant-ep")
    assert (best["published_mean"], best["published_std"]) == (0.707, 0.053)
    assert best["difference"] == pytest.approx(np.mean(BETTER) - 0.707)
    assert best["published_gain"] == pytest.approx(0.068)
    missing = row_of(table, "m-evolve")
    assert math.isnan(missing["mean"])
    assert (missing["trials"], missing["finished"], missing["planned"]) == (0, 0, 5)
    assert table.verdict == "20 of 45 trials are finished."
    assert "| +10.4 (+6.8) " in table.to_markdown()
    # A quick run is never called a reproduction: a note says so, and the title.
    assert SMOKE in table.title
    assert "400 epochs on ENZYMES" in table.remarks[0]
    for text in (table.to_markdown(), table.to_latex()):
        assert text.lower().count(SMOKE) == 2
        assert "reproduced" not in text
    rows = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert {(row["protocol"], row["reproduced"]) for row in rows} == {(SMOKE, "")}
    full = table_of(tmp_path, "table1", "full", ENZYMES=["gcs"])
    assert "smoke" not in full.to_markdown()


def test_a_full_run_judges_gains_by_sign_and_significance(tmp_path: Path) -> None:
    (one,) = plan("gcn", data=["ENZYMES"], budget="full")
    outcomes = {
        "vanilla": (PLAIN, ""),
        "transplant-ep": (BETTER, "yes"),
        "transplant-dp": (WORSE, "opposite"),
        "manifold-mixup": (UNSURE, "sign only"),
    }
    for method, (values, _) in outcomes.items():
        for layers in (3, 4, 5):
            save(tmp_path, one, "gcn", method, values * 3, layers=layers)
    save(tmp_path, one, "gcn", "m-evolve", BETTER * 3)
    table = table_of(tmp_path, "gcn", "full", ENZYMES=["gcn"])
    assert {name: row_of(table, name)["reproduced"] for name in outcomes} == {
        name: word for name, (_, word) in outcomes.items()
    }
    # Candidates are missing: nothing is judged before the whole grid is there.
    assert row_of(table, "m-evolve")["reproduced"] == "unfinished"
    assert "(15 of 90 trials)" in table.to_markdown()
    assert row_of(table, "subgraph")["reproduced"] == "missing"
    assert (
        "1 reproduced with significance, 1 in sign only, 1 significantly the other way"
        in table.verdict
    )
    both = table.frame.dropna(subset=["mean", "published_std"])
    within = sum(abs(both["mean"] - both["published_mean"]) <= both["published_std"])
    assert f"{within} of 5 means lie within the published standard deviation" in table.verdict


def test_the_gain_of_an_error_has_its_sign_turned(tmp_path: Path) -> None:
    (one,) = plan("table4-calibration", data=["ENZYMES"])
    save(tmp_path, one, "gcs", "vanilla", PLAIN)
    save(tmp_path, one, "gcs", "transplant-ep", BETTER[:3])
    table = table_of(tmp_path, "table4-calibration", ENZYMES=["gcs"])
    row = row_of(table, "transplant-ep")
    # Errors are half of what is missing to 1, and only folds that both have are compared.
    gain, p_value = by_hand(BETTER[:3], PLAIN[:3])
    assert (row["gain"], row["p_value"]) == pytest.approx((gain / 2, p_value))
    assert (row["metric"], row["published_gain"]) == ("ece", pytest.approx(0.299 - 0.046))
    assert "(3 of 5 trials)" in table.to_markdown()
    assert "the sign turned" in table.to_markdown()


def test_robust_accuracy_is_that_of_the_papers_attack(tmp_path: Path) -> None:
    (one,) = plan("table3-robustness", data=["NCI1"], models=["gin"])
    attacked = [
        {"budget": 0.1, "edges": 3, "accuracy": 0.9, "as_stated": 0.91, "random": 0.92},
        {"budget": 0.2, "edges": 6, "accuracy": 0.25, "as_stated": 0.5, "random": 0.75},
        {"budget": 0.3, "edges": 9, "accuracy": 0.1, "as_stated": 0.2, "random": 0.3},
    ]
    save(tmp_path, one, "gin", "vanilla", PLAIN, attacked=attacked)
    save(tmp_path, one, "gin", "m-evolve", PLAIN)
    table = table_of(tmp_path, "table3-robustness", NCI1=["gin"])
    assert row_of(table, "vanilla")["mean"] == 0.5
    # Trials without an attack do not count.
    assert row_of(table, "m-evolve")["finished"] == 0


def test_charts_have_no_number_to_compare_with(tmp_path: Path) -> None:
    (one,) = plan("edge-predictor", data=["NCI1"], models=["gcn"])
    accuracies = [{"edge_predictor_accuracy": 0.6}, {"edge_predictor_accuracy": 0.9}, {}]
    curve = [{"epoch": epoch, "measurements": own} for epoch, own in enumerate(accuracies, 1)]
    save(tmp_path, one, "gcn", "transplant-ep", PLAIN, curve=curve)
    table = table_of(tmp_path, "edge-predictor", NCI1=["gcn"])
    assert row_of(table, "transplant-ep")["mean"] == pytest.approx(0.9)
    assert "| chart " in table.to_markdown()
    assert "p (Holm)" not in table.to_markdown()
    (one,) = plan("ablation", data=["NCI1"], models=["gcs"])
    save(tmp_path, one, "gcs", "transplant-ep", BETTER)
    save(tmp_path, one, "gcs", "transplant-random", PLAIN)
    row = row_of(table_of(tmp_path, "ablation", NCI1=["gcs"]), "transplant-random")
    assert row["gain"] == pytest.approx(np.mean(PLAIN) - np.mean(BETTER))
    for one, values in zip(plan("readout", data=["NCI1"]), (PLAIN, BETTER, WORSE), strict=True):
        save(tmp_path, one, "gcs", "vanilla", values)
    table = table_of(tmp_path, "readout", NCI1=["gcs"])
    for readout, values in {"sum": BETTER, "max": WORSE}.items():
        assert row_of(table, "vanilla", readout=readout)["mean"] == pytest.approx(np.mean(values))


def test_what_was_measured_before_stays_in_the_table(tmp_path: Path) -> None:
    for data, model in (("ENZYMES", "gcs"), ("ENZYMES", "gin"), ("NCI1", "gcs")):
        (one,) = plan("table1", data=[data], models=[model])
        save(tmp_path, one, model, "vanilla", PLAIN)
    # The ablation trains transplant-ep with GIN: by itself no beginning of another table.
    (one,) = plan("ablation", data=["COLLAB"], models=["gin"])
    save(tmp_path, one, "gin", "transplant-ep", PLAIN)
    frame = table_of(tmp_path, "table1", NCI1=["gcs"]).frame
    assert list(dict.fromkeys(zip(frame["data"], frame["model"], strict=True))) == [
        ("NCI1", "gcs"),
        ("ENZYMES", "gcs"),
        ("ENZYMES", "gin"),
    ]
    assert table_of(tmp_path, "ablation").frame.empty
    assert set(table_of(tmp_path, "gcn", NCI1=["gcn"]).frame["model"]) == {"gcn"}


def test_a_dash_of_the_paper_is_a_dash(tmp_path: Path) -> None:
    (one,) = plan("gcn", data=["COLLAB"])
    for name in MAIN:
        if name != "mask-nodes":
            save(tmp_path, one, "gcn", name, PLAIN)
    table = table_of(tmp_path, "gcn", COLLAB=["gcn"])
    (line,) = [line for line in table.to_markdown().splitlines() if "mask-nodes" in line[:40]]
    assert line.replace("|", "").split() == ["COLLAB", "gcn", "mask-nodes", *["-"] * 5]
    assert table.verdict == "40 of 40 trials are finished."


def test_files_can_be_read_back_and_names_do_not_become_markup(tmp_path: Path) -> None:
    name = "a|b_ <img> `c` & {d} \\input{x} 5%\n```"
    asked = Request("gcn", "quick", tmp_path, {name: ["gcn"]}, {name: 100})
    page, sheet, source = paper_table(asked).write(tmp_path / "new")
    assert (page.name, sheet.name, source.name) == (
        *("gcn-quick.md", "gcn-quick.csv", "gcn-quick.tex"),
    )
    text, _, commands = page.read_text(encoding="utf-8").partition("```console\n")
    assert "<img" not in text.replace("\\<img", "")
    assert commands.count("\n") == 2
    with open(sheet, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["data"], row["method"], row["mean"]) for row in rows] == [
        (name, method, "") for method in MAIN
    ]
    latex = source.read_text(encoding="utf-8")
    assert r"\input{" not in latex.replace(r"\textbackslash{}input", "")


# Running --------------------------------------------------------------------------------------

Calls = list[dict[str, Any]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Comparisons that were asked for; none runs. All data sets are 60 motifs."""
    found: Calls = []
    motifs = load("motifs", graphs=60)
    monkeypatch.setattr(experiments, "load", lambda name, root: motifs)
    monkeypatch.setattr(experiments, "compare", lambda store, **given: found.append(given))
    return found


def test_a_run_tells_its_duration_trains_resumes_and_tabulates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = load("motifs", graphs=60)
    monkeypatch.setattr(experiments, "load", lambda name, root: small)
    monkeypatch.setattr(experiments, "STEPS", 1)
    log = io.StringIO()
    given: dict[str, Any] = {"data": ["motifs"], "models": ["gcn"], "out": tmp_path}
    given["reporter"] = Plain(Console(file=log))
    table = paper_table(run("edge-predictor", **given))
    told = log.getvalue().splitlines()
    assert told[0] == "edge-predictor: reading motifs"
    assert f"{SMOKE}: 5 of 5 trials are missing; they will take about" in told[1]
    assert [line[:5] for line in told if line.startswith("[")] == [f"[{n}/5]" for n in range(1, 6)]
    row = row_of(table, "transplant-ep")
    assert (row["data"], row["trials"], row["planned"]) == ("motifs", 5, 5)
    assert 0 <= row["mean"] <= 1
    assert table.verdict == "5 of 5 trials are finished."
    records = (tmp_path / "quick" / "motifs" / "records.jsonl").read_bytes()
    again = paper_table(run("edge-predictor", **given))
    assert again.to_csv() == table.to_csv()
    assert f"{SMOKE}: all 5 trials are finished" in log.getvalue().splitlines()[-3]
    assert (tmp_path / "quick" / "motifs" / "records.jsonl").read_bytes() == records


def test_the_estimate_goes_by_finished_trials_where_there_are(tmp_path: Path, calls: Calls) -> None:
    (one,) = plan("gcn", data=["motifs"], sizes={"motifs": 60})
    save(tmp_path, one, "gcn", "vanilla", PLAIN)
    log = io.StringIO()
    reporter = Plain(Console(file=log))
    run("gcn", data=["motifs"], out=tmp_path, workers=2, reporter=reporter)
    # 7 other methods can serve motifs, with 5 trials of 20 seconds each, two at a time.
    expected = "35 of 40 trials are missing; they will take about 5 min 50 s with 2 workers"
    assert expected in log.getvalue().splitlines()[1]
    run("gcn", data=["motifs"], out=tmp_path, fresh=True, reporter=reporter)
    assert "40 of 40 trials are missing" in log.getvalue().splitlines()[4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"experiment": "table9"}, "`experiment` must be one of table1, .*'table9'"),
        ({"models": ["gcn", "gsc"]}, "`models` must be one of gcn, .*; got 'gsc'"),
        ({"address": "head:6379"}, "`address` names a Ray cluster and needs the engine ray"),
        ({"budget": "huge"}, "`budget` must be one of quick, full; got 'huge'"),
    ],
)
def test_arguments_are_checked_before_any_data_is_loaded(
    arguments: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "load", lambda name, root: pytest.fail("data were loaded"))
    with pytest.raises(GraphTransplantError, match=message):
        run(**{"experiment": "gcn", "out": tmp_path / "out", **arguments})
    assert not (tmp_path / "out").exists()


def test_data_that_cannot_be_had(
    tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    motifs = load("motifs", graphs=60)

    def only_one(name: str, root: Any) -> Any:
        if name != "NCI1":
            raise DataError(f"{name} is not here")
        return motifs

    monkeypatch.setattr(experiments, "load", only_one)
    # Asked for by name it is an error, before anything runs, that lists the paper's.
    message = r"P388 is not here \(the paper's data for table1: COLLAB, .*P388\)"
    with pytest.raises(DataError, match=message):
        run("table1", data=["NCI1", "P388"], out=tmp_path)
    assert calls == []
    # Of all the paper's, what is there is run.
    request = run("table3-robustness", out=tmp_path)
    assert [call["source"] for call in calls] == ["NCI1"]
    assert "ENZYMES is left out: ENZYMES is not here" in request.notes
    assert "NCI1 has 60 graphs here, 4,110 in the paper." in request.notes
    with pytest.raises(DataError, match="no data set of table2 could be loaded: ogbg-ppa"):
        run("table2", out=tmp_path)


def test_the_command_prints_the_table_and_names_its_files(
    tmp_path: Path, calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    from reproduction.__main__ import main

    (one,) = plan("gcn", data=["motifs"], sizes={"motifs": 60})
    save(tmp_path, one, "gcn", "vanilla", PLAIN)
    assert main(["gcn", "--data", "motifs", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert f"Appendix: test accuracy with GCN ({SMOKE})" in printed.out
    assert f"{SMOKE}: 35 of 40 trials are missing" in printed.err
    for name in ("gcn-quick.md", "quick/motifs/report.html"):
        assert str(tmp_path / name) in printed.out
        assert (tmp_path / name).exists()
