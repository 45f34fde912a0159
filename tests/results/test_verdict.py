"""What a verdict says first, what would settle it, and which caveats come with it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import graph_transplant as gt
from graph_transplant.errors import GraphTransplantError
from graph_transplant.figures import CHARTS
from graph_transplant.metrics import METRICS, RESERVED, Metric
from graph_transplant.report import notebook_html, render_report
from graph_transplant.report.tables import rankings
from graph_transplant.results.caveats import CAVEATS, CODES
from graph_transplant.results.record import TrialRecord
from graph_transplant.results.results import Results, read_results
from graph_transplant.results.sentences import joint_headline
from graph_transplant.results.statistics import holm, pairs_needed
from graph_transplant.results.verdict import Verdict
from graph_transplant.utils.text import number, p_words
from helpers.made_up_records import (
    BETTER,
    NO_NETWORK,
    PLAIN,
    UNSURE,
    WORSE,
    judged_by,
    made_up,
    official,
    on,
)
from helpers.page_samples import changed, golden
from helpers.strategies import rings_and_stars

Gains = Sequence[float]


def shifted(values: Gains, gains: Gains) -> list[float]:
    return [value + gain for value, gain in zip(values, gains, strict=True)]


def judged(*parts: list[TrialRecord], **given: object) -> Verdict:
    records = [record for part in parts for record in part]
    (verdict,) = Results(records, **given).verdicts.values()
    return verdict


def corrected(gaps: Sequence[float], ratio: float = 1 / 3) -> tuple[float, float, float, float]:
    """Mean, interval and p-value of Nadeau and Bengio's test, by scipy."""
    mean, n = float(np.mean(gaps)), len(gaps)
    error = float(np.std(gaps, ddof=1)) * math.sqrt(1 / n + ratio)
    half = float(stats.t.ppf(0.975, n - 1)) * error
    return mean, mean - half, mean + half, float(2 * stats.t.sf(abs(mean) / error, n - 1))


# -------------------------------------------------------------------- controls

GAIN = (0.10, 0.11, 0.09, 0.11, 0.11)
NEARLY = (0.06, 0.12, 0.05, 0.14, 0.07)  # a difference from GAIN of 1.6 points, not shown
SMALL = (0.01, 0.02, 0.01, 0.03, 0.02)  # 8.6 points below GAIN in every fold


def with_gain(method: str, gains: Gains) -> list[TrialRecord]:
    return made_up(method, shifted(PLAIN, gains))


def test_a_control_that_is_not_beaten_stands_in_the_first_sentence() -> None:
    plain, best = made_up("vanilla", PLAIN), with_gain("transplant-dp", GAIN)
    verdict = judged(plain, best, with_gain("label-smoothing", NEARLY))
    assert verdict.headline == (
        "transplant-dp beats vanilla on toy by 10.4 points; label-smoothing alone gains 8.8 "
        "points: a difference between the two is not shown"
    )
    mean, low, high, p = corrected(np.subtract(GAIN, NEARLY))
    (control,) = verdict.controls
    assert (control.method, control.other, control.kind) == (
        "transplant-dp",
        "label-smoothing",
        "unclear",
    )
    assert (control.difference, control.low, control.high, control.p) == pytest.approx(
        (mean, low, high, p)
    )
    assert f"transplant-dp against label-smoothing: +{100 * mean:.1f} points" in verdict.evidence
    assert f"{p_words(p)})" in verdict.evidence
    assert verdict.advice == (
        "Train one model with transplant-dp, which is not shown to be better than label-smoothing:",
        "transplant-dp",
    )


def test_a_control_that_is_beaten_does_not() -> None:
    plain, best = made_up("vanilla", PLAIN), with_gain("transplant-dp", GAIN)
    verdict = judged(plain, best, with_gain("label-smoothing", SMALL))
    assert verdict.controls == ()
    assert verdict.headline == "transplant-dp beats vanilla on toy by 10.4 points"
    assert verdict.advice[0] == "Train one model with transplant-dp, calibrate and keep it:"


def test_several_controls_are_corrected_for_each_other() -> None:
    plain, best = made_up("vanilla", PLAIN), with_gain("transplant-dp", GAIN)
    other = (0.05, 0.13, 0.06, 0.13, 0.06)
    controls = with_gain("label-smoothing", NEARLY), with_gain("drop-nodes:ratio=0.4", other)
    verdict = judged(plain, best, *controls)
    assert verdict.headline.endswith(
        "; a difference from label-smoothing (+8.8 points) or drop-nodes:ratio=0.4 (+8.6 points) "
        "alone is not shown"
    )
    p_values = [corrected(np.subtract(GAIN, gains))[3] for gains in (NEARLY, other)]
    assert [one.p for one in verdict.controls] == pytest.approx(holm(p_values))
    assert "after Holm over the controls" in verdict.evidence


def test_a_control_that_is_the_best_is_compared_with_graph_transplant() -> None:
    plain, control = made_up("vanilla", PLAIN), with_gain("label-smoothing", GAIN)
    verdict = judged(plain, control, with_gain("transplant-ep", NEARLY))
    assert verdict.headline == (
        "label-smoothing beats vanilla on toy by 10.4 points; transplant-ep gains 8.8 points: a "
        "difference between the two is not shown"
    )
    verdict = judged(plain, control, with_gain("transplant-ep", SMALL))
    assert verdict.headline.endswith("; transplant-ep is worse than label-smoothing by 8.6 points")


def test_several_groups_say_where_a_control_is_not_beaten() -> None:
    both = with_gain("transplant-dp", GAIN), with_gain("label-smoothing", NEARLY)
    records = [
        record for name in ("x", "y") for record in on(name, made_up("vanilla", PLAIN), *both)
    ]
    found = Results(records).verdicts
    assert joint_headline(found, "vanilla") == (
        "transplant-dp beats vanilla in 2 of 2 comparisons; a difference from label-smoothing is "
        "not shown in 2 of these"
    )


# -------------------------------------------------------------------- baselines


def forest(values: Gains, **changes: object) -> list[TrialRecord]:
    return made_up("forest", values, **NO_NETWORK | {"seconds": 0.3} | changes)


def test_a_baseline_that_no_network_beats_is_named_with_its_time() -> None:
    records = made_up("vanilla", PLAIN), made_up("transplant-dp", UNSURE), forest(PLAIN[::-1])
    verdict = judged(*records)
    assert verdict.headline == (
        "transplant-dp is not shown to differ from vanilla on toy; no network is shown to be "
        "better than a random forest (trained in 0.3 s)"
    )
    text = "A random forest (trained in 0.3 s) is the simplest choice: no network is shown to be "
    assert verdict.advice == (f"{text}better than it.", "")
    page = render_report(Results([record for part in records for record in part]))
    assert text in page.replace("\u00a0", " ")


def test_a_network_that_beats_plain_training_but_no_baseline_is_advised_with_that() -> None:
    verdict = judged(made_up("vanilla", PLAIN), with_gain("mine", GAIN), forest(UNSURE))
    assert verdict.headline.endswith(
        "; no network is shown to be better than a random forest (trained in 0.3 s)"
    )
    text, method = verdict.advice
    assert text == (
        "Train one model with mine, which is not shown to be better than a random forest "
        "(trained in 0.3 s):"
    )
    assert method == "mine"


def test_a_baseline_that_is_better_leads() -> None:
    higher = shifted(PLAIN, (0.15, 0.16, 0.15, 0.14, 0.15))
    verdict = judged(made_up("vanilla", PLAIN), made_up("transplant-dp", UNSURE), forest(higher))
    assert verdict.headline.startswith("A random forest (trained in 0.3 s) beats vanilla on toy by")
    alone = judged(made_up("vanilla", PLAIN), forest(higher))
    assert alone.headline == "A random forest beats vanilla on toy by 15.0 points"


# -------------------------------------------------------------------- chance


def test_no_method_better_than_a_constant_prediction_is_the_headline() -> None:
    shares = {"majority": 0.57}
    small = made_up("a", [0.58, 0.59, 0.55, 0.58, 0.59], **shares)
    verdict = judged(made_up("vanilla", [0.56, 0.57, 0.58, 0.55, 0.58], **shares), small)
    assert verdict.headline == (
        "No method is shown to be better than always predicting the largest class on toy, which "
        "reaches 57.0 %"
    )
    mean, low, high, p = corrected([0.01, 0.02, -0.02, 0.01, 0.02])
    assert verdict.floor is not None
    above = verdict.floor.above
    assert (above.method, above.difference, above.low, above.high, above.p) == (
        "a",
        *(pytest.approx(value) for value in (mean, low, high, p)),
    )
    assert verdict.evidence.startswith("a above always predicting the largest class: +0.8 points")
    text, method = verdict.advice
    assert (text.startswith("No model is worth keeping yet"), method) == (True, "")


def test_a_method_above_a_constant_prediction_is_not_called_chance() -> None:
    plain = made_up("vanilla", PLAIN, majority=0.3)
    assert judged(plain, made_up("a", UNSURE, majority=0.3)).floor is None
    # One that wins against plain training far above the floor is not hidden by a wide interval.
    shares = {"majority": 0.55}
    best = judged(made_up("vanilla", PLAIN, **shares), made_up("a", BETTER, **shares))
    assert best.headline.startswith("a beats vanilla on toy by 10.4 points")
    # Without the share of the largest class nothing is said.
    assert judged(made_up("vanilla", PLAIN), made_up("a", UNSURE)).floor is None


def test_chance_is_known_by_metric_or_from_the_constant_method() -> None:
    guesses = [0.51, 0.48, 0.52, 0.47, 0.53]
    verdict = judged(judged_by("auroc", "vanilla", guesses), judged_by("auroc", "a", guesses[::-1]))
    assert verdict.headline == (
        "No method is shown to be better than guessing on toy, which reaches 50.0 %"
    )
    floor = made_up("majority", PLAIN, **NO_NETWORK)
    verdict = judged(made_up("vanilla", PLAIN), floor)
    assert verdict.headline == (
        "vanilla is not shown to be better than always predicting the largest class on toy, "
        "which reaches 58.0 %"
    )


def test_a_comparison_without_any_signal_says_so_from_records_on_disk(tmp_path: Path) -> None:
    unrelated = torch.arange(24) // 2 % 2  # shapes take turns
    store = rings_and_stars(24, seed=0, name="tiny", y=unrelated)
    gt.compare(store, methods=["vanilla", "drop-nodes"], folds=3, epochs=1, layers=1, out=tmp_path)
    (verdict,) = read_results(tmp_path).verdicts.values()
    assert verdict.headline.startswith("No method is shown to be better than always predicting")


# -------------------------------------------------------------------- words by interval


def test_in_sign_is_said_of_a_gain_that_does_not_survive_the_correction() -> None:
    gain = (0.03, 0.10, 0.13, 0.06, 0.09)
    p = corrected(gain)[3]
    assert p < 0.05 < 2 * p
    plain, hopeful = made_up("vanilla", PLAIN), with_gain("a", gain)
    verdict = judged(plain, hopeful, made_up("b", UNSURE))
    assert (
        verdict.headline == "No method is shown to differ from vanilla on toy; a is better in sign"
    )
    assert judged(plain, hopeful).kind == "better", "alone"
    text = render_report(Results([*plain, *hopeful, *made_up("b", UNSURE)]))
    assert "does not differ" not in text


def test_all_golden_and_committed_verdicts_say_not_shown_and_never_no_difference() -> None:
    for name in ("enzymes-all", "motifs-conditions", "paper-quick-enzymes", "bace-scaffold"):
        for verdict in Results(list(golden(name))).verdicts.values():
            assert "does not differ" not in verdict.sentence + verdict.next
            assert "differs significantly" not in verdict.sentence


# -------------------------------------------------------------------- what was asked


def test_left_over_trials_of_other_methods_do_not_decide(tmp_path: Path) -> None:
    plain, rival = made_up("vanilla", PLAIN), forest(BETTER)
    left = made_up("transplant-dp", [0.9])
    every = Results([*plain, *rival, *left], asked=frozenset({"vanilla", "forest"}))
    (verdict,) = every.verdicts.values()
    assert verdict.headline == "A random forest beats vanilla on toy by 10.4 points"
    (note,) = [one for one in every.caveats if one.code == "GT004"]
    assert "transplant-dp (1 trial)" in note.text
    assert "GT003" not in {one.code for one in every.caveats}
    # What is finished is judged whoever asked for it.
    done = Results([*plain, *rival, *made_up("a", BETTER)], asked=frozenset({"vanilla", "forest"}))
    (verdict,) = done.verdicts.values()
    assert verdict.best == "a"
    # A group of which nothing was asked for is judged as a whole.
    other = made_up("b", PLAIN[:2], model="gin")
    found = Results([*plain, *other], asked=frozenset({"vanilla"})).verdicts
    assert [one.headline.split()[0] for one in found.values()] == ["vanilla", "b"]
    # The correction still counts every test.
    two = made_up("a", BETTER), made_up("b", [0.61, 0.50, 0.60])
    some = judged(plain, *two, asked=frozenset({"vanilla", "a"}))
    alone = judged(plain, two[0])
    assert some.gains[0].p == pytest.approx(2 * (alone.gains[0].p or 0.0))


def test_a_resumed_folder_knows_what_was_asked_for_last(tmp_path: Path) -> None:
    store = rings_and_stars(24, seed=0, name="tiny")
    given = {"folds": 3, "epochs": 1, "layers": 1, "out": tmp_path}
    gt.compare(store, methods=["vanilla", "drop-nodes", "majority"], **given)
    records = (tmp_path / "records.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in records if '"drop-nodes"' not in line or '"fold":0' in line]
    (tmp_path / "records.jsonl").write_text("".join(kept))
    results = gt.compare(store, methods=["vanilla", "majority"], **given)
    for found in (results, gt.read_results(tmp_path)):
        (part,) = found.groups.values()
        assert part.judged == ["vanilla", "majority"]
        assert [one.values["methods"] for one in found.caveats if one.code == "GT004"] == [
            "drop-nodes (1 trial)"
        ]


# -------------------------------------------------------------------- what would settle it


def power(size: float, pairs: int, ratio: float, tests: int = 1) -> float:
    """Power of the test, by the noncentral t distribution of scipy."""
    limit = stats.t.ppf(1 - 0.025 / tests, pairs - 1)
    return float(stats.nct(pairs - 1, size / math.sqrt(1 / pairs + ratio)).sf(limit))


@pytest.mark.parametrize(("size", "ratio"), [(1.9, 1 / 3), (1.2, 1 / 8), (3.0, 1.0), (0.9, 0.0)])
@pytest.mark.parametrize("tests", [1, 4])
def test_the_number_of_pairs_needed_is_the_smallest_with_80_percent_power(
    size: float, ratio: float, tests: int
) -> None:
    pairs = pairs_needed(size, ratio, tests)
    if math.isinf(pairs):
        assert power(size, 100_000, ratio, tests) < 0.8
    else:
        assert power(size, int(pairs), ratio, tests) >= 0.8
        assert pairs == 2 or power(size, int(pairs) - 1, ratio, tests) < 0.8


def test_more_folds_are_advised_where_three_hardly_overlap() -> None:
    gains = (0.10, 0.04, 0.06)
    sizes = {"train": 200, "validation": 200, "test": 200}
    plain = made_up("vanilla", PLAIN[:3], folds=3, sizes=sizes)
    verdict = judged(plain, made_up("a", shifted(PLAIN[:3], gains), folds=3, sizes=sizes))
    remedy = verdict.remedy
    assert remedy is not None
    assert (remedy.kind, verdict.repeats) == ("folds", None)
    # The cheapest of five or ten folds, whose spread is larger by the root of the folds' ratio.
    size = np.mean(gains) / np.std(gains, ddof=1)
    costs = {}
    for folds in (5, 10):
        pairs = next(
            n
            for n in range(2, 400)
            if power(size * math.sqrt(3 / folds), n, 1 / (folds - 2)) >= 0.8
        )
        costs[folds] = folds * math.ceil(pairs / folds)
    best = min(costs, key=lambda folds: costs[folds])
    assert (remedy.folds, remedy.folds * remedy.repeats) == (best, costs[best])
    assert f"About {best} folds × " in verdict.next
    # Too few graphs for so many folds.
    few = {"train": 15, "validation": 15, "test": 15}
    small = [
        changed(record, sizes=few)
        for record in [*plain, *made_up("a", shifted(PLAIN[:3], gains), folds=3)]
    ]
    assert judged(small).remedy.kind != "folds"  # type: ignore[union-attr]


def test_the_evidence_counts_folds_and_repeats_of_what_it_is_about() -> None:
    plain, three = made_up("vanilla", PLAIN * 3), made_up("a", UNSURE * 3)
    once = made_up("b", [0.9, 0.4, 0.9, 0.3, 0.9])  # the best row, with one repeat
    text = judged(plain, three, once).sentence
    assert "15 folds" not in text
    assert text.endswith(("; 5 folds × 3 repeats.", "; 5 folds."))
    assert "5 folds × 3 repeats" in judged(plain, three).sentence


# -------------------------------------------------------------------- caveats


def codes(*parts: list[TrialRecord], **given: object) -> list[str]:
    records = [record for part in parts for record in part]
    return [caveat.code for caveat in Results(records, **given).caveats]


def test_training_at_its_limit_is_named_per_method() -> None:
    late = {"best_epoch": 97}
    records = [
        *made_up("vanilla", PLAIN, **late),
        *made_up("a", UNSURE[:3], **late),
        *made_up("a", UNSURE[3:], fold=3),
        *made_up("b", UNSURE),
    ]
    records[8] = changed(records[8], fold=4, best_epoch=50)
    (caveat,) = [one for one in Results(records).caveats if one.code == "GT001"]
    assert caveat.values == {
        "epochs": "100 epochs",
        "methods": "vanilla (5 of 5 trials) and a (3 of 5 trials)",
    }
    # Three epochs are few even where the first was the best; the plural is right for one.
    for epochs in (3, 1):
        given = {"settings": {"epochs": epochs}, "epochs": epochs, "best_epoch": 1}
        (note,) = [t for t in Results(made_up("vanilla", PLAIN, **given)).notes if "GT001" in t]
        assert f"of the {epochs} epoch{'s' if epochs > 1 else ''} allowed" in note
    # A model that stopped by itself is not cut short.
    early = {"settings": {"epochs": 1000}, "epochs": 40, "best_epoch": 36}
    assert "GT001" not in codes(made_up("vanilla", PLAIN, **early))


def test_few_folds_are_preliminary_and_runs_of_one_split_are_not_folds() -> None:
    three = made_up("vanilla", PLAIN[:3], folds=3), made_up("a", BETTER[:3], folds=3)
    assert "GT007" in codes(*three)
    assert "GT007" not in codes(made_up("vanilla", PLAIN), made_up("a", BETTER))
    assert "GT007" not in codes(official("vanilla", PLAIN[:3]), official("a", BETTER[:3]))


def test_a_temperature_at_its_bound_is_named_per_method() -> None:
    plain = made_up("vanilla", PLAIN, calibrated={"temperature": 0.2, "ece": 0.1})
    other = made_up("a", UNSURE, calibrated={"temperature": 1.3, "ece": 0.1})
    (caveat,) = [one for one in Results(plain + other).caveats if one.code == "GT009"]
    assert caveat.values == {"values": "0.2", "methods": "vanilla (5 of 5 trials)"}
    assert "GT009" not in codes(other)


def test_contradictory_copies_are_told_of_and_kept_with_the_folder(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"smiles": ["CCO", "OCC", "CCN", "CCC", "CCCl", "CCBr"] * 2, "y": [0, 1, 0, 1, 0, 1] * 2}
    )
    table.loc[6:, "smiles"] = ["C1CC1", "C1CCC1", "CCCO", "CCCN", "CCCC", "CCS"]
    path = tmp_path / "t.csv"
    table.to_csv(path, index=False)
    given = {"target": "y", "methods": "majority", "folds": 3, "out": tmp_path / "out"}
    results = gt.compare(str(path), **given)
    for found in (results, gt.read_results(tmp_path / "out")):
        (note,) = [one for one in found.caveats if one.code == "GT011"]
        assert note.text.startswith("Identical copies of 1 graph have different targets")


def test_every_code_has_a_section_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "warnings.md").read_text("utf-8")
    sections = re.findall(r"^\((gt\d+)\)=\n### (GT\d+): ", page, flags=re.MULTILINE)
    assert sections == [(code.lower(), code) for code in CODES]
    assert {key.partition(",")[0] for key in CAVEATS} == set(CODES)
    notebook = notebook_html(Results(made_up("vanilla", PLAIN, best_epoch=99)))
    assert "[GT001]" in notebook


def test_ignored_caveats_are_counted_and_shown_nowhere() -> None:
    records = [*made_up("vanilla", PLAIN[:3], best_epoch=99), *made_up("a", BETTER[:3])]
    every, few = Results(records), Results(records, ignore=["GT007"])
    assert [one.code for one in every.caveats] == ["GT001", "GT002", "GT007"]
    assert [one.code for one in few.caveats] == ["GT001", "GT002"]
    assert (every.ignored, few.ignored) == (0, 1)
    for shown, results in ((True, every), (False, few)):
        for text in (render_report(results), notebook_html(results), " ".join(results.notes)):
            assert ("[GT007]" in text) == shown
        assert ("<dt>warnings left out</dt><dd>1</dd>" in render_report(results)) != shown
    assert Results(records, ignore="GT007").notes == few.notes
    with pytest.raises(GraphTransplantError, match=r"`ignore` must be one of GT001, .*GT117; got"):
        Results(records, ignore=["GT999"])


# -------------------------------------------------------------------- numbers and names


def test_a_mean_has_one_rounding_in_table_and_chart() -> None:
    # Added in another order, the mean is 0.7725 or a bit more.
    values = [0.7725, 0.7700, 0.7750, 0.7724, 0.7726]
    for order in (values, values[::-1], sorted(values)):
        records = made_up("vanilla", order) + made_up("a", UNSURE)
        results = Results(records)
        (table,) = rankings(results)
        cell = next(row.cells[0].text for row in table.rows if row.method == "vanilla")
        drawn = [text.get_text() for text in results.plot.scores().texts]
        assert f"{cell} %" in drawn
    assert number(77.25) == number(77.25 + 1e-13) == number(77.25 - 1e-13)
    assert {number(100 * sum(order) / 5, 1) for order in (values, values[::-1])} == {"77.2"}


def test_intervals_of_bounded_metrics_end_at_their_bounds() -> None:
    results = Results(judged_by("auroc", "vanilla", [0.99, 0.80, 0.95, 0.99, 0.99]))
    row = results.summary().iloc[0]
    assert corrected([0.99, 0.80, 0.95, 0.99, 0.99])[2] > 1
    assert row["score_high"] == 1
    assert ",1," in results.to_csv().splitlines()[1]
    r2 = Results(judged_by("r2", "vanilla", [0.9, -0.9, 0.9])).summary().iloc[0]
    assert (r2["score_low"] < -1, r2["score_high"]) == (True, 1)


def test_a_metric_cannot_take_the_name_of_a_column() -> None:
    def one(outputs: object, targets: object, task: str) -> float:
        return 1.0

    frame = Results(made_up("vanilla", PLAIN, chosen=[3, "vanilla"])).frame
    measured = set(METRICS) | {"ece", "nll", "auroc", "accuracy"}
    assert set(frame.columns) - measured <= RESERVED
    for name in ("method", "score", "seconds"):
        with pytest.raises(GraphTransplantError, match=f"a metric cannot be named '{name}'"):
            METRICS[name] = Metric("Mine", "", one, ("multiclass",))
        with pytest.raises(GraphTransplantError, match="a column of that name"):
            METRICS.update({name: Metric("Mine", "", one, ("multiclass",))})
    # In records of before, the column stays what it is.
    old = made_up("vanilla", PLAIN)
    for record in old:
        record.test["method"] = 3.0
    assert set(Results(old).frame["method"]) == {"vanilla"}


def test_the_forest_plot_names_its_reference() -> None:
    records = made_up("vanilla", PLAIN) + made_up("a", BETTER) + made_up("b", WORSE)
    title, _ = CHARTS["forest"].words(Results(records, reference="a"))
    assert title == "Difference to a"
    page = render_report(Results(records))
    assert 'aria-label="Difference to vanilla"' in page
    assert "{reference}" not in page
