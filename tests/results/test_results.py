"""Results by hand and against scipy: the frame, the summary, pairs, verdicts and notes."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy import stats
from scipy.optimize import brentq
from torch import Tensor

from graph_transplant.cli.comparisons import results_table
from graph_transplant.comparison.compare import compare
from graph_transplant.comparison.progress import Plain
from graph_transplant.errors import GraphTransplantError
from graph_transplant.metrics import METRICS, Metric
from graph_transplant.report.tables import ranking, rankings
from graph_transplant.results.groups import Group
from graph_transplant.results.record import Record, Trial
from graph_transplant.results.results import Results, read_results
from graph_transplant.results.sentences import joint_headline as headline
from graph_transplant.results.statistics import holm
from graph_transplant.results.verdict import Verdict
from graph_transplant.utils.text import p_words
from helpers.made_up_records import (
    BETTER,
    FEW,
    NO_NETWORK,
    NOISY,
    PLAIN,
    UNSURE,
    WORSE,
    judged_by,
    made_up,
    official,
    on,
    rows,
    verdicts,
)
from helpers.strategies import rings_and_stars


def sentence(*parts: list[Record]) -> str:
    (verdict,) = verdicts([record for part in parts for record in part])
    return verdict.sentence


def table(results: Results) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(results.to_csv())))


def shifted(values: list[float], *gains: float) -> list[float]:
    return [value + gain for value, gain in zip(values, gains, strict=True)]


def with_gains(method: str, *gains: float) -> list[Record]:
    return made_up(method, shifted(PLAIN, *gains))


# -------------------------------------------------------------------- the tables


def test_the_frame_has_a_row_per_trial_with_its_metrics() -> None:
    noisy = made_up("a", BETTER, **NOISY)
    noisy[0]["test"] |= {"ece": None}
    frame = Results(made_up("vanilla", PLAIN) + noisy).frame
    assert len(frame) == 10
    assert frame.columns.is_unique
    plain = frame[frame["method"] == "vanilla"]
    assert plain["accuracy"].tolist() == plain["score"].tolist() == PLAIN
    assert plain["fold"].tolist() == [0, 1, 2, 3, 4]
    same = {"data": "toy", "model": "gcs", "layers": 3, "train_graphs": 60, "test_graphs": 20}
    for name, value in (same | {"folds": 5, "epochs": 100}).items():
        assert set(frame[name]) == {value}, name
    assert frame["label_noise"].value_counts().to_dict() == {0.0: 5, 0.2: 5}
    assert frame["ece"].isna().sum() == 1


def test_lists_and_objects_of_records_are_tables_too() -> None:
    curve = [{"epoch": 1, "measurements": {"edges": 0.5}}, {"epoch": 2}]
    records = made_up("vanilla", PLAIN[:2], curve=curve, cost={"fit_seconds": 1.5})
    results = Results(records + made_up("a", PLAIN[:2]))
    long, wide = results.long("curve"), results.wide("cost")
    assert long[["method", "fold", "epoch"]].values.tolist() == [
        ["vanilla", fold, epoch] for fold in (0, 1) for epoch in (1, 2)
    ]
    assert long["edges"].dropna().tolist() == [0.5, 0.5]
    assert wide[["method", "fold", "fit_seconds"]].values.tolist() == [
        ["vanilla", 0, 1.5],
        ["vanilla", 1, 1.5],
    ]
    assert results.wide("saliency").empty
    assert results.long("attacked").empty
    for ask, wrong in ((results.long, "attacks"), (results.wide, "costs")):
        with pytest.raises(GraphTransplantError, match=f"got '{wrong}' .did you mean '{wrong[:4]}"):
            ask(wrong)


def test_summary_by_hand() -> None:
    records = made_up("vanilla", PLAIN) + made_up("a", BETTER) + made_up("b", UNSURE)
    better, unsure, plain = rows(records[::-1])
    assert [row.method for row in (better, unsure, plain)] == ["a", "b", "vanilla"]
    assert plain.score_mean == plain.accuracy_mean == pytest.approx(0.58)
    # Squared distances to 0.58: 0.0004, 0.0009, 0.0049, 0.0064, 0.0004; in all 0.0130.
    assert plain.score_std == pytest.approx(math.sqrt(0.0130 / 4))
    half = 2.776445 * math.sqrt((1 / 5 + 1 / 3) * 0.0130 / 4)
    assert (plain.score_low, plain.score_high) == pytest.approx((0.58 - half, 0.58 + half))
    assert (plain.nll_mean, plain.auroc_mean) == pytest.approx((0.42, 0.29))
    assert (plain.difference, plain.p_value, plain.p_holm, plain.effect) == (None,) * 4
    assert (better.folds, better.repeats, better.pairs, better.trials) == (5, 1, 5, 5)

    # Mean 0.104 and variance 0.00008 of the differences; J(4) = sqrt(2 / pi).
    assert better.difference == pytest.approx(0.104)
    half = 2.776445 * math.sqrt((1 / 5 + 1 / 3) * 0.00008)
    assert (better.ci_low, better.ci_high) == pytest.approx((0.104 - half, 0.104 + half))
    assert better.effect == pytest.approx(math.sqrt(2 / math.pi) * 0.104 / math.sqrt(0.00008))
    # The smaller of two p-values doubles, the larger stays.
    assert better.p_holm == pytest.approx(2 * better.p_value)
    assert unsure.p_holm == pytest.approx(unsure.p_value)


def test_only_folds_that_both_have_with_a_score_are_paired() -> None:
    better, _ = rows(made_up("vanilla", PLAIN[:4]) + made_up("a", BETTER)[1:])
    assert better.pairs == 3
    assert better.difference == pytest.approx((0.11 + 0.09 + 0.11) / 3)
    assert better.accuracy_mean == pytest.approx(sum(BETTER[1:]) / 4)
    records = made_up("vanilla", PLAIN) + made_up("a", BETTER)
    records[7]["test"]["accuracy"] = None
    first, second = rows(records)
    # What has no mean is the last.
    assert (first.method, second.score_mean, second.pairs) == ("vanilla", None, 4)
    assert second.difference == pytest.approx((0.10 + 0.11 + 0.11 + 0.11) / 4)
    few, lost = Results(records).caveats
    assert few.values == {"folds": "4 folds"}
    assert (lost.code, lost.values["trials"]) == (
        "GT014",
        "a, gcs with 3 layers, repeat 0, fold 2",
    )


@pytest.mark.parametrize("split", ["official", "scaffold"])
def test_runs_of_one_split_are_tested_as_independent_runs(split: str) -> None:
    records = official("vanilla", PLAIN, split) + official("a", BETTER, split)
    first, plain = rows(records)
    theirs = stats.ttest_rel(BETTER, PLAIN)
    interval = theirs.confidence_interval(0.95)
    assert first.p_value == pytest.approx(theirs.pvalue)
    assert (first.ci_low, first.ci_high) == pytest.approx((interval.low, interval.high))
    usual = stats.t.interval(0.95, 4, np.mean(PLAIN), stats.sem(PLAIN))
    assert (plain.score_low, plain.score_high) == pytest.approx(usual)
    assert (first.folds, first.repeats, first.pairs) == (1, 5, 5)
    assert sentence(records).endswith(f"5 runs of one {split} split.")


def test_csv_has_empty_cells_for_what_is_not_defined() -> None:
    results = Results(made_up("vanilla", [0.5]) + made_up("a, b", [0.75]))
    first, second = table(results)
    assert (first["method"], float(first["difference"])) == ("a, b", 0.25)
    for name in ("score_std", "ci_low", "ci_high", "p_value", "p_holm"):
        assert first[name] == second[name] == ""
    assert "nan" not in results.to_csv().lower()
    assert "label_noise" not in first, "without any, there is no column of it"
    noisy = table(Results([*results.records, *made_up("vanilla", [0.5], **NOISY)]))
    assert [row["label_noise"] for row in noisy] == ["0", "0", "0.2"]
    assert {row["train_fraction"] for row in noisy} == {"1"}


def test_conditions_are_groups_of_their_own_and_the_graphs_left_out_count() -> None:
    records = [
        record
        for changes, values in (({}, BETTER), (NOISY, WORSE), (FEW, BETTER))
        for record in made_up("vanilla", PLAIN, **changes) + made_up("a", values, **changes)
    ]
    results = Results(records[::-1])
    conditions = ((0.0, 1.0), (0.0, 0.1), (0.2, 1.0))
    expected = [Group("toy", "gcs", 3, *condition) for condition in conditions]
    assert list(results.groups) == list(results.verdicts) == expected
    found = {(row.method, row.label_noise, row.train_fraction): row for row in rows(records)}
    gaps = np.subtract(BETTER, PLAIN)
    t = gaps.mean() / np.sqrt((1 / 5 + 1 / 3) * gaps.var(ddof=1))
    # Parts of training sets overlap less than the sets, not more.
    for fraction in (1.0, 0.1):
        row = found["a", 0.0, fraction]
        assert row.p_value == row.p_holm == pytest.approx(2 * stats.t.sf(abs(t), 4))
    assert found["a", 0.2, 1.0].difference == pytest.approx(-0.104)
    assert results.pairs["first"].tolist() == ["a", "a", "vanilla"]
    assert results.pairs["second"].tolist() == ["vanilla", "vanilla", "a"]
    # A name keeps its first letter.
    noisy = results.verdicts[expected[2]].headline
    assert noisy.startswith(
        "a is worse than vanilla on toy (with 20 % of the training labels wrong)"
    )


def test_selected_rows_have_no_layers_and_say_what_was_chosen() -> None:
    deeper = [value + 0.01 for value in PLAIN]
    records = made_up("vanilla", PLAIN) + made_up("vanilla", deeper, layers=4)
    records += made_up("drop:ratio=0.4:share=1", BETTER, layers=1) + made_up("drop", PLAIN)
    drop, plain = rows(records, "validation")
    assert (drop.method, drop.layers, drop.chosen) == ("drop", None, "1 layer, ratio=0.4, share=1")
    assert (plain.method, plain.layers, plain.chosen) == ("vanilla", None, "4 layers")
    assert drop.difference == pytest.approx(0.094)
    assert len(rows(records)) == 4
    assert table(Results(records, "validation"))[0]["layers"] == ""
    with pytest.raises(GraphTransplantError, match="`select` must be one of"):
        rows(records, "best")


def test_pairs_against_scipy_and_holm_over_all_of_them() -> None:
    methods = {"vanilla": PLAIN, "a": BETTER, "b": UNSURE, "c": [0.4, 0.6, 0.5, 0.5, 0.4]}
    records = [record for name, values in methods.items() for record in official(name, values)]
    pairs = list(Results(records[::-1]).pairs.itertuples())
    assert [(pair.first, pair.second) for pair in pairs] == list(
        itertools.combinations(["a", "b", "vanilla", "c"], 2)
    )
    p_values = []
    for pair in pairs:
        gaps = np.subtract(methods[pair.first], methods[pair.second])
        p_values.append(float(stats.ttest_1samp(gaps, 0).pvalue))
        assert pair.difference == pytest.approx(gaps.mean())
        assert pair.effect == pytest.approx(math.sqrt(2 / math.pi) * gaps.mean() / gaps.std(ddof=1))
    assert [pair.p_value for pair in pairs] == pytest.approx(p_values)
    assert [pair.p_holm for pair in pairs] == pytest.approx(holm(p_values))


# -------------------------------------------------------------------- other contents


def test_methods_can_be_compared_with_another_reference() -> None:
    records = made_up("vanilla", PLAIN) + made_up("a", BETTER) + made_up("b", UNSURE)
    results = Results(records, reference="a")
    assert results.methods == ["a", "b", "vanilla"]
    found = results.summary().set_index("method")
    assert math.isnan(found.loc["a", "difference"])
    assert found.loc["vanilla", "difference"] == pytest.approx(-0.104)
    (verdict,) = results.verdicts.values()
    assert (verdict.kind, verdict.headline) == (
        "worse",
        "No method is shown to be better than a on toy",
    )
    (one,) = rankings(results)
    assert one.reference == "a"


def test_several_data_sets_stand_in_one_table() -> None:
    nearly = with_gains("transplant-ep", 0.05, 0.08, 0.05, 0.08, 0.06)
    plain, unsure = made_up("vanilla", PLAIN), made_up("b", UNSURE)
    records = on("NCI1", plain, unsure, made_up("c", UNSURE))
    records += on("ENZYMES", plain, unsure, nearly)
    records += on("COLLAB", plain, unsure, made_up("c", UNSURE))
    results = Results(records)
    assert [group.data for group in results.groups] == ["COLLAB", "ENZYMES", "NCI1"]
    assert results.verdict == (
        "transplant-ep beats vanilla on ENZYMES by 6.4 points; "
        "No method is shown to differ from vanilla on COLLAB; "
        "No method is shown to differ from vanilla on NCI1"
    )
    assert headline(results.verdicts, "vanilla") == (
        "transplant-ep beats vanilla in 1 of 3 comparisons"
    )
    alone = Results(on("x", plain) + on("y", plain))
    assert headline(alone.verdicts, "vanilla") == "2 comparisons"


def spread(outputs: Tensor, targets: Tensor, task: str) -> float:
    return float(outputs.softmax(1).std())


def test_a_metric_from_outside_is_recorded_shown_and_may_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = Metric("Toy spread", "How far.", spread, ("multiclass",), decides=("multiclass",))
    monkeypatch.setitem(METRICS, "toy", toy)
    store = rings_and_stars(24, seed=0, name="tiny")
    compare(store, methods=["vanilla"], metric="toy", folds=3, epochs=1, layers=1, out=tmp_path)
    results = read_results(tmp_path)
    values = [record["test"]["toy"] for record in results.records]
    assert results.metric == "toy"
    assert results.frame["toy"].tolist() == results.frame["score"].tolist() == values
    assert float(table(results)[0]["toy_mean"]) == pytest.approx(np.mean(values), rel=1e-5)
    assert "a mean toy spread of" in next(iter(results.verdicts.values())).sentence
    plain = {"settings": {"folds": 3, "epochs": 1}}  # by which accuracy decides
    other = Results([record | plain for record in results.records])
    columns = ranking(next(iter(other.groups.values()))).columns
    (column,) = (column for column in columns if column.title == "Toy spread")
    assert (column.definition, column.more) == ("How far.", True)
    assert "| Toy spread |" in other.to_markdown()
    assert "toy spread" in [str(column.header) for column in results_table(other).columns]


# -------------------------------------------------------------------- verdicts


def test_verdicts_give_the_gain_its_interval_and_what_it_rests_on() -> None:
    plain, better, unsure = made_up("vanilla", PLAIN), made_up("a", BETTER), made_up("a", UNSURE)
    (verdict,) = verdicts(plain + better)
    assert (verdict.kind, verdict.best, verdict.next) == ("better", "a", "")
    gain = "a: +10.4 points (95 % interval +8.6 to +12.2, p < 0.001"
    assert verdict.sentence == f"a beats vanilla on toy by 10.4 points. {gain}); 5 folds."
    assert repr(Results(plain + better)) == f"Results(10 trials: {verdict.headline})"
    second = made_up("b", [value - 0.02 for value in BETTER])
    text = sentence(plain, better, second, made_up("c", WORSE), made_up("d", UNSURE))
    assert text.startswith(
        f"a beats vanilla on toy by 10.4 points. {gain} after Holm); b: +8.4 points ("
    )
    assert "c: −10.4 points (95 % interval −12.2 to −8.6, p < 0.001 after Holm); 5 folds." in text
    repeated = sentence(made_up("vanilla", PLAIN * 3), made_up("a", BETTER * 3))
    assert repeated.endswith("; 5 folds × 3 repeats.")
    assert sentence(plain[:3], better[:3]).endswith("; 3 folds, preliminary.")
    # Without a clear difference, the plausible range.
    text = sentence(plain, unsure)
    assert text.startswith("a is not shown to differ from vanilla on toy. a: +2.0 points (")
    assert "95 % interval −11.6 to +15.6, p = 0.7" in text
    many = sentence(plain, unsure, made_up("b", PLAIN))
    assert many.startswith("No method is shown to differ from vanilla on toy. a: +2.0 points")
    # The evidence is about the method closest to a finding: b has a smaller gain, but less spread.
    small = made_up("b", [0.61, 0.57, 0.70, 0.50, 0.61])  # differences 0.01, 0.02, 0.05, 0, 0.01
    assert "on toy. b: +1.8 points (" in sentence(plain, unsure, small)


@pytest.mark.parametrize(
    ("records", "expected", "headline"),
    [
        (
            made_up("a", PLAIN) + made_up("b", BETTER),
            "Differences are taken from vanilla, which was not run.",
            "b reaches a mean accuracy of 68.4 % on toy",
        ),
        (
            made_up("vanilla", [0.5]) + made_up("a", [0.6]),
            "a: +10.0 points; 1 pair of trials without a spread to judge it by.",
            "No difference can be tested on toy",
        ),
        (
            made_up("vanilla", PLAIN) + made_up("a", PLAIN, repeat=1),
            "No method shares a finished fold with vanilla.",
            "Nothing to compare yet on toy",
        ),
    ],
)
def test_verdict_when_nothing_can_be_tested(
    records: list[Record], expected: str, headline: str
) -> None:
    (verdict,) = verdicts(records)
    assert (verdict.kind, verdict.headline) == ("open", headline)
    assert verdict.evidence == expected


def test_a_method_that_failed_on_some_folds_beats_nothing() -> None:
    failed = made_up("a", [0.9], repeat=1, test={"accuracy": None})
    plain = made_up("vanilla", [*PLAIN, *PLAIN[:1]])
    results = Results([*plain, *made_up("a", BETTER), *failed])
    assert results.verdicts[Group("toy", "gcs", 3)].kind == "none"
    lost = [one.values["trials"] for one in results.caveats if one.code == "GT014"]
    assert lost == ["a, gcs with 3 layers, repeat 1, fold 0"]
    # Nor is a small p-value "no significant difference", to be settled by more repeats.
    (verdict,) = results.verdicts.values()
    assert verdict.headline == "No method is shown to be better than vanilla on toy"
    assert "a, where it did not fail: +10.4 points (" in verdict.evidence
    assert verdict.next == ""
    rival = beside([*UNSURE, 0.5])
    (verdict,) = verdicts([*results.records, *rival])
    assert verdict.headline.endswith("; vanilla is not shown to be better than a random forest")
    failed = made_up("b", PLAIN, test={"accuracy": None})
    alike = [with_gains(name, *ALIKE) for name in ("c", "d")]
    (verdict,) = verdicts([*made_up("vanilla", PLAIN), *alike[0], *alike[1], *failed])
    assert verdict.headline == "c and d are practically equal to vanilla on toy"


def test_a_bad_method_does_not_hide_an_open_question() -> None:
    hopeful = with_gains("a", 0.02, 0.1, 0.13, 0.06, -0.02)
    (verdict,) = verdicts([*made_up("vanilla", PLAIN), *made_up("bad", WORSE), *hopeful])
    assert verdict.kind == "worse"
    assert verdict.headline == "No method is shown to be better than vanilla on toy"
    assert "bad: −10.4" in verdict.evidence
    assert "a: +5.8 points" in verdict.evidence
    assert "+5.8 points" in verdict.next


def test_what_next_says_how_small_a_difference_would_be_found_and_how_many_repeats() -> None:
    limit = stats.t.ppf(0.975, 4)
    quantiles = brentq(lambda shift: stats.nct(4, shift).sf(limit) - 0.8, 1, 10)
    # Mean 0.02 and standard deviation 0.067: far too little for folds that overlap.
    error = math.sqrt((1 / 5 + 1 / 3) * np.var(np.subtract(UNSURE, PLAIN), ddof=1))
    (verdict,) = verdicts(made_up("vanilla", PLAIN) + made_up("a", UNSURE))
    detectable = quantiles * error
    assert verdict.next == (
        f"Detectable difference (80 % power, 5 folds): {100 * detectable:.1f} points. Neither more "
        "folds nor more repeats (up to 100 trainings of a method) would settle a difference of "
        "+2.0 points: training sets overlap too much. About "
        f"{(detectable / 0.02) ** 2:.0f} times as many graphs would, or more data sets."
    )
    # Runs of one split do not overlap: with z, (1.96 + 0.84)² (0.067 / 0.02)² = 88, and a few more.
    (runs,) = verdicts(official("vanilla", PLAIN) + official("a", UNSURE))
    assert "About 91 runs would settle a difference of +2.0 points." in runs.next
    assert (verdict.repeats, runs.repeats) == (None, 91)
    # Mean 0.08, standard deviation 0.042: more repeats of five folds would do.
    (nearly,) = verdicts(made_up("vanilla", PLAIN) + with_gains("a", 0.02, 0.1, 0.13, 0.06, 0.09))
    assert nearly.kind == "none"
    assert nearly.next.endswith("repeats would settle a difference of +8.0 points.")


# -------------------------------------------------------------------- notes


def notes(*parts: list[Record]) -> list[str]:
    return Results([record for part in parts for record in part]).notes


def test_notes_name_what_is_cut_short_missing_or_not_finite() -> None:
    plain = made_up("vanilla", PLAIN)
    assert notes(plain, made_up("a", BETTER)) == []
    missing, few = notes(plain, made_up("a", PLAIN[:2]))
    assert missing == (
        "gcs-3 is not finished: a has 2 of 5 trials. Means are over different folds, differences "
        "over common ones; run the same command again. [GT003]"
    )
    assert few.endswith("[GT007]")
    # The second repeat has only begun.
    (begun,) = notes(plain, made_up("vanilla", PLAIN[:1], repeat=1))
    assert begun == (
        "gcs-3 is not finished: vanilla has 6 of 10 trials; run the same command again. [GT002]"
    )
    _, lost = notes(made_up("vanilla", [0.5], test={"accuracy": 0.5, "nll": None}))
    assert lost.startswith(
        "The test NLL is not finite in: vanilla, gcs with 3 layers, repeat 0, fold 0"
    )


def test_notes_say_where_an_attack_does_not_see_all_features() -> None:
    budgets = [{"budget": 0.1, "accuracy": 0.4}]
    plain = made_up("vanilla", PLAIN, attacked=budgets)
    assert notes(plain) == []
    strong = [record | {"settings": record["settings"] | {"recipe": "strong"}} for record in plain]
    (note,) = notes(strong)
    assert note.startswith("The attack ignores the gradient through the random-walk features of")


def test_notes_name_worse_calibration_than_the_reference() -> None:
    off = made_up("a", PLAIN)
    for record, more in zip(off, (0.10, 0.11, 0.09, 0.11, 0.11), strict=True):
        record["test"]["ece"] += more
    (worse,) = notes(made_up("vanilla", PLAIN), off)
    assert worse.startswith("Calibration gets worse with a: ECE +0.104 (p < 0.001); calibrate")
    # Better calibration is no bad news, and of several groups the note says which.
    assert Results(made_up("vanilla", PLAIN) + off, reference="a").notes == []
    both = notes(made_up("vanilla", PLAIN), off, made_up("vanilla", PLAIN, model="gin"))
    assert both[0].startswith("toy, GCS, 3 layers: Calibration gets worse with a")
    # The difference is over common folds, and p is corrected for the number of methods.
    later = made_up("vanilla", PLAIN, repeat=1, test={"accuracy": 0.5, "ece": 0.3})
    for record, ece in zip(off, (0.10, 0.09, 0.08, 0.11, 0.15), strict=True):
        record["test"]["ece"] = ece
    found = notes(made_up("vanilla", PLAIN), later, off)
    assert any("Calibration gets worse with a: ECE +0.056 (p = 0.047)" in note for note in found)
    another = made_up("b", PLAIN)
    another[0]["test"]["ece"] = 0.06
    assert notes(made_up("vanilla", PLAIN), off, another) == []


def test_notes_name_scores_near_the_majority() -> None:
    plain, better = made_up("vanilla", PLAIN, majority=0.57), made_up("a", BETTER, majority=0.57)
    (note,) = notes(plain, better)
    start = "Always predicting the largest class reaches 57.0 %; not clearly above it: vanilla."
    assert note.startswith(start)
    (note,) = notes(judged_by("r2", "vanilla", [-0.1, 0.05, 0.0, 0.1, 0.02]))
    start = "Always predicting the mean reaches 0.000; not clearly above it: vanilla."
    assert note.startswith(start)
    # Not of what is judged by another metric, also beside a data set that is judged by accuracy.
    other = [record | {"majority": 0.9} for record in judged_by("auroc", "vanilla", PLAIN)]
    assert notes(made_up("vanilla", PLAIN), on("z", other)) == []


ALIKE = (0.002, -0.001, 0.001, 0.0, 0.003)  # mean 0.001, interval within ±0.4 points


def test_methods_are_practically_equal_when_the_whole_interval_is_within_a_point() -> None:
    plain, alike = made_up("vanilla", PLAIN), with_gains("a", *ALIKE)
    row, _ = rows(plain + alike)
    error = math.sqrt((1 / 5 + 1 / 3) * np.var(ALIKE, ddof=1)) * stats.t.ppf(0.975, 4)
    assert (row.ci_low, row.ci_high) == pytest.approx((0.001 - error, 0.001 + error))
    assert row.finding == "equal"
    (verdict,) = verdicts(plain + alike)
    assert (verdict.kind, verdict.best, verdict.next) == ("equal", None, "")
    assert verdict.sentence == (
        f"a is practically equal to vanilla on toy. a: +0.1 points (95 % interval "
        f"−{100 * (error - 0.001):.1f} to +{100 * (error + 0.001):.1f}, p = {row.p_holm:.2g}); "
        "5 folds."
    )
    assert Results(plain + alike).verdict == "a is practically equal to vanilla on toy"
    # A narrower margin cannot tell, and none is ever met.
    for margin in (0.003, 0.0):
        (verdict,) = Results(plain + alike, equal_within=margin).verdicts.values()
        assert verdict.kind == "none"
    with pytest.raises(GraphTransplantError, match=r"`equal_within` must be in \[0, 1\)"):
        Results([], equal_within=1.5)


# -------------------------------------------------------------------- classical rivals


def beside(values: list[float], name: str = "forest", **changes: object) -> list[Record]:
    return made_up(name, values, **NO_NETWORK | changes)


ABOVE = shifted(BETTER, 0.03, 0.04, 0.03, 0.05, 0.04)
FLOOR = [0.2, 0.2, 0.2, 0.2, 0.2]


def test_the_verdict_says_that_no_network_beats_a_random_forest() -> None:
    records = [*made_up("vanilla", PLAIN), *made_up("a", BETTER)]
    results = Results([*records, *beside(ABOVE), *beside(FLOOR, "majority")])
    # One table for the network and its rivals.
    assert list(results.groups) == [Group("toy", "gcs", 3)]
    table = results.summary().set_index("method")
    assert list(table.index) == ["forest", "a", "vanilla", "majority"]
    # The tests of the networks are those of before, the floor is not tested.
    alone = Results(records).summary().set_index("method")
    assert table.loc["a", "p_holm"] == alone.loc["a", "p_holm"]
    assert math.isnan(table.loc["majority", "difference"])
    assert "majority" not in set(results.pairs["first"]) | set(results.pairs["second"])
    p_holm = holm([stats_p(np.subtract(one, ABOVE)) for one in (BETTER, PLAIN)])[0]
    (verdict,) = results.verdicts.values()
    assert (verdict.kind, verdict.best, verdict.winner) == ("better", "a", "forest")
    assert results.verdict == verdict.headline
    assert verdict.headline == (
        "A random forest beats a, the best network on toy, by 3.8 points; "
        "a beats vanilla by 10.4 points"
    )
    assert against_forest(verdict) == ("a", "−3.8", p_words(p_holm))
    # A second rival makes two more tests.
    (verdict,) = verdicts([*results.records, *beside(UNSURE, "wl-svm")])
    four = holm([stats_p(np.subtract(o, r)) for r in (ABOVE, UNSURE) for o in (BETTER, PLAIN)])[0]
    assert against_forest(verdict) == ("a", "−3.8", p_words(four))
    assert p_words(four) != p_words(p_holm)


def stats_p(differences: np.ndarray) -> float:
    error = math.sqrt((1 / 5 + 1 / 3) * np.var(differences, ddof=1))
    return float(2 * stats.t.sf(abs(np.mean(differences)) / error, 4))


def against_forest(verdict: Verdict) -> tuple[str, str, str]:
    """Who is compared with the forest, the difference, and its p-value in words."""
    pattern = (
        r"(\S+) against a random forest: (\S+) points "
        r"\(.*?, (p [^)]*) after Holm over all such pairs\)"
    )
    (found,) = re.findall(pattern, verdict.evidence)
    return found


FIRST = (
    "A random forest beats vanilla on toy by 5.8 points; no network is shown to be better than it"
)
UNSHOWN = "no network is shown to be better than a random forest"


@pytest.mark.parametrize(
    ("mine", "rival", "says", "difference", "best", "winner"),
    [
        (BETTER, WORSE, "; a beats a random forest by 20.8 points", "+20.8", "a", "a"),
        (BETTER, UNSURE, f"; {UNSHOWN}", "+8.4", "a", "a"),
        (BETTER, shifted(BETTER, *ALIKE), "; a is practically equal to a random forest", "−0.1",
         "a", "a"),
        # The network has the higher mean, although it cannot be told from the rival.
        (BETTER, shifted(BETTER, -0.05, 0.01, -0.04, 0.02, -0.04),
         "; a random forest gains 8.4 points: a difference from a is not shown", "+2.0", "a", "a"),
        (UNSURE, shifted(PLAIN, 0.05, 0.06, 0.05, 0.06, 0.07),
         f"{FIRST}; a is not shown to differ from vanilla", "−3.8", None, "forest"),
        # Plain training is not advised where a rival is above all.
        (UNSURE, shifted(PLAIN, 0.3, -0.01, 0.4, 0.02, 0.3),
         f"a is not shown to differ from vanilla on toy; {UNSHOWN}", "−18.2", None, "forest"),
    ],
)  # fmt: skip
def test_the_verdict_names_the_winner_whoever_it_is(
    mine: list[float], rival: list[float], says: str, difference: str, best: str | None, winner: str
) -> None:
    (verdict,) = verdicts([*made_up("vanilla", PLAIN), *made_up("a", mine), *beside(rival)])
    assert verdict.headline.endswith(says)
    assert against_forest(verdict)[:2] == ("a", difference)
    assert (verdict.best, verdict.winner) == (best, winner)
    for points in re.findall(r"andom forest (?:beats vanilla on toy by|gains) (\S+) points", says):
        told = f"a random forest against vanilla: +{points} points (95 % interval"
        assert told in verdict.evidence


def test_rivals_stand_beside_every_network_and_alone_without_one() -> None:
    plain, other = made_up("vanilla", PLAIN), made_up("vanilla", PLAIN, model="gin")
    results = Results([*plain, *other, *beside(ABOVE), *beside(PLAIN, "wl-svm")])
    assert [group.network for group in results.groups] == ["gcs-3", "gin-3"]
    for verdict in results.verdicts.values():
        assert verdict.headline == "A random forest beats vanilla on toy by 14.2 points"
        assert (verdict.winner, verdict.compared) == ("forest", True)
    by_network = [*plain, *made_up("a", BETTER), *other, *made_up("b", BETTER, model="gin")]
    text = headline(Results(by_network).verdicts, "vanilla")
    assert text == "a or b beats vanilla in 2 of 2 comparisons"
    against = Results([*plain, *made_up("a", BETTER), *beside(UNSURE)], reference="forest")
    assert against.verdict == "No method is shown to differ from forest on toy"
    assert headline(results.verdicts, "vanilla") == (
        "2 comparisons; no network is shown to be better than a random forest in 2 of 2"
    )
    # Another condition, another comparison; rivals alone are compared with each other.
    noisy = Results([*plain, *beside(ABOVE, **NOISY)])
    assert [group.model for group in noisy.groups] == [None, "gcs"]
    assert noisy.frame["epochs"].isna().sum() == 5
    assert [row["layers"] for row in table(noisy)] == ["", "3"]
    assert "without a network" in rankings(noisy)[0].group.title
    lost = Results(beside([0.5], test={"accuracy": None}))
    assert lost.caveats[-1].values["trials"] == "forest, repeat 0, fold 0"
    (alone,) = verdicts([*beside(ABOVE), *beside(FLOOR, "majority")])
    assert alone.headline == "forest reaches a mean accuracy of 72.2 % on toy"
    (alone,) = verdicts([*plain, *beside(FLOOR, "majority")])
    assert alone.evidence == "There is no other method to compare it with."
    assert Results([*plain, *beside(PLAIN)]).notes == []


def test_r2_is_a_plain_number_everywhere() -> None:
    records = judged_by("r2", "vanilla", [0.41, 0.40, 0.42])
    results = Results(records + judged_by("r2", "x", [0.5, 0.51, 0.5]))
    (verdict,) = results.verdicts.values()
    assert verdict.headline.endswith("by 0.093 in R²")
    assert verdict.evidence.startswith("x: +0.093 in R² (95 % interval +0.0")
    page = results.to_markdown() + results.to_latex()
    assert "0.503" in page
    assert "points" not in page
    texts = [text.get_text() for text in results.plot.forest().texts]
    assert any(text.startswith("+0.093, p") for text in texts)
    said = io.StringIO()
    progress = Plain(Console(file=said))
    progress.start(trials=[Trial.of_record(records[0])], finished=[], workers=1)
    progress.trial_finished(records[0])
    assert "R² 0.410," in said.getvalue()
