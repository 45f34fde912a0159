"""Summaries by hand and against scipy: metrics, selection, official splits, pairs, words."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.protocol import Record
from graph_transplant.experiments.selection import select
from graph_transplant.experiments.statistics import holm
from graph_transplant.experiments.summary import (
    COLUMNS,
    CONDITIONS,
    WHEN_THERE,
    Group,
    Verdict,
    group_records,
    notes,
    paired_differences,
    pairwise,
    summarise,
    summary_csv,
    verdict_line,
    verdicts,
)

PLAIN = [0.60, 0.55, 0.65, 0.50, 0.60]
BETTER = [0.70, 0.66, 0.74, 0.61, 0.71]  # differences 0.10, 0.11, 0.09, 0.11, 0.11
UNSURE = [0.65, 0.50, 0.75, 0.55, 0.55]  # differences 0.05, -0.05, 0.10, 0.05, -0.05


def made_up(
    method: str,
    values: Sequence[float],
    *,
    folds: int = 5,
    settings: dict[str, Any] | None = None,
    **changes: Any,
) -> list[Record]:
    """Trials whose accuracy is the value and whose AUROC is half of it."""
    return [
        {
            "data": "toy",
            "method": method,
            "model": "gcs",
            "layers": 3,
            "repeat": number // folds,
            "fold": number % folds,
            "validation": {"accuracy": value, "auroc": value / 2},
            "test": {"accuracy": value, "auroc": value / 2, "ece": value / 10, "nll": 1 - value},
            "sizes": {"train": 60, "validation": 20, "test": 20},
            "settings": {"folds": folds, "epochs": 100} | (settings or {}),
            "seconds": 2.0,
            "epochs": 100,
            "best_epoch": 50,
        }
        | changes
        for number, value in enumerate(values)
    ]


def official(method: str, values: Sequence[float], **changes: Any) -> list[Record]:
    records = made_up(method, values, settings={"split": "official"}, **changes)
    return [record | {"repeat": number, "fold": 0} for number, record in enumerate(records)]


def test_score_interval_and_effect_by_hand() -> None:
    better, plain = summarise(made_up("vanilla", PLAIN) + made_up("a", BETTER))
    assert (plain.metric, better.metric) == ("accuracy", "accuracy")
    assert plain.score_mean == plain.accuracy_mean == pytest.approx(0.58)
    # Squared distances to 0.58: 0.0004, 0.0009, 0.0049, 0.0064, 0.0004; in all 0.0130.
    assert plain.score_std == pytest.approx(math.sqrt(0.0130 / 4))
    half = 2.776445 * math.sqrt((1 / 5 + 1 / 3) * 0.0130 / 4)
    assert plain.score_low == pytest.approx(0.58 - half, abs=1e-6)
    assert plain.score_high == pytest.approx(0.58 + half, abs=1e-6)
    # Mean 0.104 and variance 0.00008 of the differences; J(4) = sqrt(2 / pi).
    assert better.effect == pytest.approx(math.sqrt(2 / math.pi) * 0.104 / math.sqrt(0.00008))
    assert (plain.effect, plain.chosen, better.chosen) == (None, "", "")
    assert (better.folds, better.repeats, better.pairs) == (5, 1, 5)


def test_the_metric_of_the_records_is_what_is_compared() -> None:
    # Accuracy and AUROC disagree about which is better.
    turned = made_up("a", BETTER, settings={"metric": "auroc"})
    for record, value in zip(turned, PLAIN, strict=True):
        record["test"]["auroc"] = value / 2 - 0.1 - record["fold"] / 1000
    records = made_up("vanilla", PLAIN, settings={"metric": "auroc"}) + turned
    first, second = summarise(records)
    assert (first.method, second.method) == ("vanilla", "a")
    assert first.metric == "auroc"
    assert first.score_mean == first.auroc_mean == pytest.approx(0.29)
    assert first.accuracy_mean == pytest.approx(0.58)
    assert second.difference == pytest.approx(-0.102)
    (verdict,) = verdicts([first, second])
    assert verdict.sentence == (
        "No method beats vanilla; a is worse than vanilla on toy by 10.2 points of AUROC "
        "(p < 0.001, 5 folds)."
    )


def test_auroc_words() -> None:
    auroc = {"metric": "auroc"}
    plain = made_up("vanilla", PLAIN, settings=auroc)
    (gain,) = verdicts(summarise(plain + made_up("a", BETTER, settings=auroc)))
    assert gain.headline == "a beats vanilla on toy by 5.2 points of AUROC"
    (alone,) = verdicts(summarise(plain))
    assert "vanilla reaches a mean AUROC of 29.0 %" in alone.sentence
    (same,) = verdicts(summarise(plain + made_up("a", PLAIN, settings=auroc)))
    assert "a and vanilla have the same AUROC on toy" in same.sentence
    two = made_up("a", BETTER, settings=auroc) + made_up("b", PLAIN, settings=auroc)
    (best,) = verdicts(summarise(two))
    assert best.headline == "a has the highest AUROC on toy"


def test_a_fold_without_a_score_is_not_paired_and_is_told() -> None:
    records = made_up("vanilla", PLAIN) + made_up("a", BETTER)
    for record in records:
        record["settings"]["metric"] = "auroc"
    records[7]["test"]["auroc"] = None
    first, second = summarise(records)
    assert (first.method, first.score_mean, second.score_mean) == (
        "vanilla",
        pytest.approx(0.29),
        None,
    )
    assert second.pairs == 4
    assert second.difference == pytest.approx((0.10 + 0.11 + 0.11 + 0.11) / 8)
    assert notes(records) == [
        "The test score is not finite in: a, gcs with 3 layers, repeat 0, fold 2."
    ]


def test_runs_on_an_official_split_are_tested_as_independent_runs() -> None:
    records = official("vanilla", PLAIN) + official("a", BETTER) + official("b", UNSURE)
    first, second, plain = summarise(records)
    theirs = stats.ttest_rel(BETTER, PLAIN)
    interval = theirs.confidence_interval(0.95)
    assert first.p_value == pytest.approx(theirs.pvalue)
    assert (first.ci_low, first.ci_high) == pytest.approx((interval.low, interval.high))
    usual = stats.t.interval(0.95, 4, np.mean(PLAIN), stats.sem(PLAIN))
    assert (plain.score_low, plain.score_high) == pytest.approx(usual)
    assert (first.folds, first.repeats, first.pairs) == (1, 5, 5)
    # With folds of the same sizes the corrected test is less sure.
    folded = summarise(made_up("vanilla", PLAIN) + made_up("b", UNSURE))[0]
    assert folded.p_value is not None
    assert second.p_value is not None
    assert second.p_value < folded.p_value
    (verdict,) = verdicts([first, second, plain])
    assert verdict.sentence == (
        "a beats vanilla on toy by 10.4 points (p < 0.001 after Holm's correction over 2 methods, "
        "5 runs of one official split)."
    )
    (few,) = verdicts(summarise(official("vanilla", PLAIN[:3]) + official("a", UNSURE[:3])))
    assert few.sentence.endswith(
        "3 runs of one official split). 3 runs are few: take this as a hint."
    )
    (same,) = verdicts(summarise(official("vanilla", PLAIN) + official("a", PLAIN)))
    assert "all 5 runs show the same difference" in same.sentence


def test_runs_on_a_split_by_scaffold_are_called_so() -> None:
    records = official("vanilla", PLAIN) + official("a", BETTER)
    for record in records:
        record["settings"] = record["settings"] | {"split": "scaffold"}
    first, plain = summarise(records)
    # The test is that of an official split: seeds are independent, graphs are the same.
    assert first.p_value == pytest.approx(stats.ttest_rel(BETTER, PLAIN).pvalue)
    (verdict,) = verdicts([first, plain])
    assert verdict.sentence.endswith("5 runs of one scaffold split).")
    with pytest.raises(GraphTransplantError, match="but the trials are of a scaffold split"):
        summarise(records, "nested")


# ------------------------------------------------------------------ numbers


def numbers(method: str, values: Sequence[float], **changes: Any) -> list[Record]:
    """Trials on numbers to predict, whose R² is the value."""
    return [
        record
        | {
            "task": "regression",
            "validation": {"rmse": 1.0, "mae": 0.75, "r2": value},
            "test": {"rmse": 2 - value, "mae": 1 - value, "r2": value},
        }
        for value, record in zip(
            values, made_up(method, values, settings={"metric": "r2"}, **changes), strict=True
        )
    ]


def test_numbers_are_ranked_by_r2_also_below_zero() -> None:
    low = [-0.5, -0.3, -0.4, -0.2, -0.6]
    records = numbers("vanilla", low) + numbers("a", [value - 0.2 for value in low])
    lost = numbers("b", low)
    for record in lost:
        record["test"]["r2"] = None
    rows = summarise([*records, *lost])
    # What has no score is the last, not better than what is below zero.
    assert [row.method for row in rows] == ["vanilla", "a", "b"]
    plain, worse, nothing = rows
    assert plain.score_mean == plain.r2_mean == pytest.approx(-0.4)
    assert (plain.rmse_mean, plain.mae_mean) == pytest.approx((2.4, 1.4))
    assert (plain.accuracy_mean, plain.ece_mean, plain.nll_mean, plain.auroc_mean) == (None,) * 4
    assert worse.difference == pytest.approx(-0.2)
    assert nothing.score_mean is None
    (alone,) = verdicts(summarise(numbers("vanilla", low)))
    assert alone.headline == "vanilla reaches −40.0 % on toy"
    assert "a mean R² of −40.0 % on toy over 5 trials" in alone.sentence
    # A loss that numbers do not have is not called lost.
    assert notes(numbers("vanilla", low)) == []


def test_words_about_numbers_name_the_unit() -> None:
    (gain,) = verdicts(summarise(numbers("vanilla", PLAIN) + numbers("a", BETTER)))
    assert gain.headline == "a beats vanilla on toy by 10.4 points of R²"
    (same,) = verdicts(summarise(numbers("vanilla", PLAIN) + numbers("a", PLAIN)))
    assert "have the same R² on toy" in same.sentence
    (best,) = verdicts(summarise(numbers("a", BETTER) + numbers("b", PLAIN)))
    assert best.headline == "a has the highest R² on toy"


def test_csv_has_columns_of_numbers_when_there_are_any() -> None:
    text = summary_csv(summarise(numbers("vanilla", PLAIN)))
    (row,) = csv.DictReader(io.StringIO(text))
    assert [name for name in WHEN_THERE if name in row] == ["r2_mean", "rmse_mean", "mae_mean"]
    assert float(row["rmse_mean"]) == pytest.approx(1.42)
    assert row["accuracy_mean"] == row["ece_mean"] == row["nll_mean"] == ""


def test_average_precision_is_summarised_and_worded() -> None:
    settings = {"metric": "average_precision"}
    records = made_up("vanilla", PLAIN, settings=settings) + made_up("a", BETTER, settings=settings)
    for record in records:
        for part in ("validation", "test"):
            record[part]["average_precision"] = record[part]["accuracy"]
    rows = summarise(records)
    assert rows[0].score_mean == rows[0].average_precision_mean == pytest.approx(0.684)
    (verdict,) = verdicts(rows)
    assert verdict.headline == "a beats vanilla on toy by 10.4 points of average precision"
    assert "average_precision_mean" in summary_csv(rows).splitlines()[0]


def grown(values: Sequence[float]) -> list[float]:
    return [value + 0.01 for value in values]


def test_selected_rows_have_no_layers_and_tell_what_was_chosen() -> None:
    records = made_up("vanilla", PLAIN) + made_up("vanilla", grown(PLAIN), layers=4)
    records += made_up("drop:ratio=0.4:share=1", BETTER, layers=1) + made_up("drop", PLAIN)
    drop, plain = summarise(records, "validation")
    assert (drop.method, drop.layers, drop.chosen) == ("drop", None, "1 layer, ratio=0.4, share=1")
    assert (plain.method, plain.layers, plain.chosen) == ("vanilla", None, "4 layers")
    assert drop.difference == pytest.approx(0.094)
    assert drop.trials == 5
    (verdict,) = verdicts([drop, plain])
    assert verdict.layers is None
    assert verdict.best == "drop"
    assert len(summarise(records)) == 4
    with pytest.raises(GraphTransplantError, match="`select` must be one of"):
        summarise(records, "best")


def nested(method: str, layers: int, inner_scores: Sequence[float]) -> list[Record]:
    """Trials of one candidate with the same score in all inner splits of a fold."""
    return [
        record | {"inner": inner}
        for inner in range(4)
        for record in made_up(method, inner_scores, layers=layers)
    ]


def test_nested_selection_pairs_the_chosen_candidates_of_each_fold() -> None:
    shallow, deep = [0.5, 0.6, 0.7, 0.5, 0.5], [0.6, 0.5, 0.6, 0.6, 0.6]
    records = nested("vanilla", 5, shallow) + nested("vanilla", 4, deep)
    records += nested("drop", 3, PLAIN) + nested("drop:ratio=0.4", 3, BETTER)
    records += nested("one", 2, PLAIN) + nested("one:x=1", 2, [*PLAIN[:4], 0.9])
    rows = {row.method: row for row in summarise(records, "nested")}
    assert rows["vanilla"].chosen == "4 layers in 3 folds, 5 in 2"
    assert rows["drop"].chosen == "3 layers, ratio=0.4"
    assert rows["one"].chosen == "2 layers in 4 folds; 2 layers, x=1 in 1"
    assert rows["vanilla"].score_mean == pytest.approx((0.6 + 0.6 + 0.7 + 0.6 + 0.6) / 5)
    best = [0.6, 0.6, 0.7, 0.6, 0.6]
    assert rows["drop"].difference == pytest.approx(np.mean(BETTER) - np.mean(best))
    assert rows["drop"].trials == rows["drop"].pairs == 5


def test_groups_of_selected_records_are_in_the_order_of_folds() -> None:
    records = nested("vanilla", 5, [0.9, 0.1, 0.9, 0.1, 0.9]) + nested("vanilla", 3, [0.5] * 5)
    groups = group_records(select(records[::-1], "nested"))
    (trials,) = groups[Group("toy", "gcs", None)].values()
    assert [record["fold"] for record in trials] == [0, 1, 2, 3, 4]
    assert [record["layers"] for record in trials] == [5, 3, 5, 3, 5]
    assert list(group_records(records)) == [Group("toy", "gcs", 3), Group("toy", "gcs", 5)]
    (trials,) = group_records(records)[Group("toy", "gcs", 3)].values()
    assert len(trials) == 5, "inner trials are left out"


def test_pairs_against_scipy_and_holm_over_all_of_them() -> None:
    methods = {"vanilla": PLAIN, "a": BETTER, "b": UNSURE, "c": [0.4, 0.6, 0.5, 0.5, 0.4]}
    records = [record for name, values in methods.items() for record in official(name, values)]
    rows = pairwise(records[::-1])
    assert [(row.first, row.second) for row in rows] == list(
        itertools.combinations(["a", "b", "vanilla", "c"], 2)
    )
    p_values = []
    for row in rows:
        difference = np.subtract(methods[row.first], methods[row.second])
        theirs = stats.ttest_rel(methods[row.first], methods[row.second]).pvalue
        assert row.p_value == pytest.approx(theirs)
        assert row.difference == pytest.approx(difference.mean())
        effect = math.sqrt(2 / math.pi) * difference.mean() / difference.std(ddof=1)
        assert row.effect == pytest.approx(effect)
        p_values.append(float(theirs))
    assert [row.p_holm for row in rows] == pytest.approx(holm(p_values))


def test_pairs_with_folds_are_corrected_and_with_nothing_shared_are_empty() -> None:
    records = made_up("vanilla", PLAIN) + made_up("a", BETTER)
    (pair,) = pairwise(records)
    better, _ = summarise(records)
    assert (pair.p_value, pair.difference) == (better.p_value, better.difference)
    (apart,) = pairwise(made_up("a", PLAIN) + made_up("b", PLAIN, repeat=1))
    assert (apart.difference, apart.p_value, apart.p_holm, apart.effect) == (None,) * 4
    (chosen,) = pairwise(records + made_up("a:x=1", grown(BETTER), layers=4), "validation")
    assert (chosen.layers, chosen.first, chosen.second) == (None, "a", "vanilla")
    assert chosen.difference == pytest.approx(0.114)
    assert pairwise([]) == []


def test_pairs_are_compared_within_a_model() -> None:
    records = [
        record
        for model in ("gcs", "gin")
        for name in ("a", "b")
        for record in made_up(name, PLAIN, model=model)
    ]
    assert [(row.model, row.first, row.second) for row in pairwise(records)] == [
        ("gcs", "a", "b"),
        ("gin", "a", "b"),
    ]


def test_paired_differences_are_of_the_metric() -> None:
    records = made_up("a", [0.8], settings={"metric": "auroc"})
    others = made_up("vanilla", [0.6], settings={"metric": "auroc"})
    ((first, second, difference),) = paired_differences(records, others)
    assert (first, second) == (records[0], others[0])
    assert difference == pytest.approx(0.1)


def test_csv_of_selected_rows() -> None:
    records = made_up("vanilla", PLAIN) + made_up("vanilla", grown(PLAIN), layers=4)
    (row,) = csv.DictReader(io.StringIO(summary_csv(summarise(records, "validation"))))
    assert tuple(row) == tuple(
        name for name in COLUMNS if name not in WHEN_THERE and name not in CONDITIONS
    )
    assert row["layers"] == ""
    assert row["chosen"] == "4 layers"
    assert row["metric"] == "accuracy"
    assert float(row["score_mean"]) == pytest.approx(0.59)


def test_notes_on_selection() -> None:
    records = nested("vanilla", 3, PLAIN) + nested("vanilla", 4, PLAIN)
    assert notes(records, "nested") == []
    (unfinished,) = notes(records[:-1], "nested")
    assert unfinished == (
        "gcs: vanilla with 4 layers has all inner trials of 4 of 5 folds and takes no part in the "
        "selection."
    )
    assert notes(records[:-1], "validation") == []
    (short,) = notes(records + nested("a", 3, PLAIN)[:-3])
    assert short == "gcs with 3 layers is not complete: a has 17 of 20 trials."


# The line over several data sets -----------------------------------------------------------------


def on(data: str, *parts: list[Record], **changes: Any) -> list[Record]:
    return [record | {"data": data} | changes for part in parts for record in part]


def line(records: Sequence[Record]) -> str:
    return verdict_line(verdicts(summarise(records)))


def test_verdict_line_of_several_data_sets() -> None:
    plain, unsure = made_up("vanilla", PLAIN), made_up("b", UNSURE)
    nearly = [0.65, 0.63, 0.70, 0.58, 0.66]  # differences 0.05, 0.08, 0.05, 0.08, 0.06
    records = on("NCI1", plain, unsure, made_up("c", UNSURE))
    records += on("ENZYMES", plain, unsure, made_up("transplant-ep", nearly))
    records += on("COLLAB", plain, unsure, made_up("c", UNSURE))
    enzymes = next(row for row in summarise(records) if row.method == "transplant-ep")
    assert enzymes.p_holm is not None
    assert line(records) == (
        "transplant-ep beats vanilla on ENZYMES by 6.4 points, "
        f"p = {enzymes.p_holm:.2g} after Holm; no method helps significantly on COLLAB and NCI1"
    )


def test_verdict_line_names_models_only_where_there_are_several() -> None:
    plain, better, unsure = made_up("vanilla", PLAIN), made_up("a", BETTER), made_up("a", UNSURE)
    records = on("x", plain, better) + on("x", plain, unsure, model="gin", layers=4)
    records += on("y", plain, unsure)
    assert line(records) == (
        "a beats vanilla on x (gcs-3) by 10.4 points, p < 0.001; "
        "a does not help significantly on x (gin-4) and y"
    )
    chosen = verdict_line(verdicts(summarise(records, "validation")))
    assert "on x (gcs) by 10.4 points" in chosen


def test_verdict_line_of_what_is_worse_or_open() -> None:
    plain = made_up("vanilla", PLAIN)
    worse = made_up("a", [value - 0.2 for value in BETTER])
    assert line(plain + worse) == ("no method helps on toy, a is worse by 9.6 points, p < 0.001")
    assert line(plain) == "vanilla is alone on toy"
    assert line(made_up("a", PLAIN)) == "a is alone on toy"
    two = made_up("a", PLAIN) + made_up("b", BETTER)
    assert line(two) == "b has the highest accuracy on toy"
    assert line(plain + made_up("a", PLAIN)) == "no difference can be tested on toy"
    assert line(plain + made_up("a", PLAIN, repeat=1)) == "there is nothing to compare yet on toy"
    assert line([]) == ""


def test_a_name_that_looks_like_words_does_not_confuse_the_line() -> None:
    found = [
        Verdict("a on b", "gcs", 3, "", "", "no method helps significantly on a on b", "none"),
        Verdict("b", "gcs", 3, "", "", "no method helps significantly on b", "none"),
        Verdict("c", "gcs", 3, "", "", "no method helps significantly on c", "none"),
    ]
    assert verdict_line(found) == "no method helps significantly on a on b, b and c"
