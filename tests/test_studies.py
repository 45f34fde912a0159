"""The figures of a comparison's studies: numbers against hand computation, drawings well-formed."""

from __future__ import annotations

import csv
import io
import re
import zlib
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given as given_any
from hypothesis import strategies as st

from graph_transplant.experiments.protocol import Record
from graph_transplant.report.figures import (
    Bar,
    BarGroup,
    Line,
    Sensitivity,
    Spread,
    cost_data,
    pooled_bins,
    reliability_data,
    robustness_data,
    saliency_curves_data,
    sensitivity_data,
    spread,
)
from graph_transplant.report.frame import Figure
from graph_transplant.report.names import palette, short_names
from graph_transplant.report.plots import bar_range, draw_groups, draw_lines, draw_sensitivity
from graph_transplant.report.studies import axis_figures, study_figures
from graph_transplant.report.svg import shares

MANY = (
    *("vanilla", "drop-edge", "drop-nodes", "g-mixup", "if-mixup", "label-smoothing", "m-evolve"),
    *("manifold-mixup", "mask-nodes", "node-sam", "perturb-edges", "saliency-shuffled", "sub-mix"),
    *("subgraph", "transplant-disconnected", "transplant-dp", "transplant-ep"),
    *("transplant-random", "transplant-scattered", "transplant-size-label", "vanilla-x2"),
)


def trial(method: str = "vanilla", fold: int = 0, lift: float = 0.0, **changes: Any) -> Record:
    """A finished trial with every field that the studies read; ``lift`` is how good it is."""
    draw = np.random.default_rng(zlib.crc32(f"{method} {fold}".encode()))
    accuracy = 0.62 + lift + 0.02 * float(draw.normal())
    bins = [
        {
            "bin": number,
            "count": int(4 + 40 * (number / 14) ** 2),
            "confidence": (number + 0.5) / 15,
            "accuracy": min(1.0, max(0.0, (number + 0.5) / 15 - 0.25 + lift)),
        }
        for number in range(3, 15)
    ]
    scaled = [one | {"accuracy": min(1.0, one["confidence"] + 0.03)} for one in bins]
    shares = [step / 10 for step in range(11)]
    record: Record = {
        "data": "toy",
        "source": "toy",
        "fingerprint": "0f",
        "method": method,
        "model": "gcs",
        "layers": 3,
        "repeat": 0,
        "fold": fold,
        "validation": {"accuracy": accuracy},
        "test": {
            "accuracy": accuracy,
            "ece": 0.25 - lift,
            "adaptive_ece": 0.24 - lift,
            "brier": 0.5 - lift,
            "nll": 1.2 - lift,
        },
        "calibrated": {
            "temperature": 2.0,
            "ece": 0.06,
            "adaptive_ece": 0.07,
            "brier": 0.45,
            "nll": 0.9,
        },
        "reliability": bins,
        "reliability_calibrated": scaled,
        "attacked": [
            {
                "budget": budget,
                "edges": int(100 * budget),
                "accuracy": accuracy - 1.4 * budget + budget * lift,
                "as_stated": accuracy - 0.8 * budget,
                "random": accuracy - 0.3 * budget,
            }
            for budget in (0.05, 0.1, 0.2, 0.3)
        ],
        "cost": {"epoch_seconds": 0.2 + lift, "best_seconds": 20 + 100 * lift, "fit_seconds": 99},
        "saliency": {
            "graphs": 100,
            "deletion": 0.4,
            "insertion": 0.6,
            "deletion_random": 0.5,
            "insertion_random": 0.5,
            "auroc": 0.7 + lift,
            "precision": 0.5 + lift,
            "chance": 0.2,
        },
        "saliency_curve": [
            {
                "share": share,
                "deletion": 0.9 - 0.7 * share**0.5 - lift / 3,
                "insertion": 0.2 + 0.7 * share**0.4 + lift / 3,
                "deletion_random": 0.9 - 0.7 * share,
                "insertion_random": 0.2 + 0.7 * share,
            }
            for share in shares
        ],
        "sizes": {"train": 60, "validation": 20, "test": 20},
        "settings": {"folds": 5, "epochs": 9, "batch_size": 16, "seed": 4},
        "seconds": 18.0,
        "epochs": 9,
        "best_epoch": 5,
    }
    if method not in ("vanilla", "manifold-mixup", "label-smoothing"):
        record["samples"] = {
            "graphs": 100,
            "degree_distance": 0.3 + lift,
            "degree_distance_control": 0.05,
            "label_gap": 0.12,
            "components": 1.4,
            "isolated": 0.02,
            "valence_violations": 0.3,
        }
    return record | changes


def methods(*names: str, folds: int = 5) -> dict[str, list[Record]]:
    return {
        name: [trial(name, fold, 0.02 * number) for fold in range(folds)]
        for number, name in enumerate(names)
    }


def drawings(shown: Figure) -> list[ElementTree.Element]:
    """Both drawings of a figure, read as XML."""
    return [ElementTree.fromstring(str(drawn)) for drawn in (shown.wide, shown.narrow)]


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter("text")]


def of_class(root: ElementTree.Element, tag: str, kind: str) -> list[ElementTree.Element]:
    return [one for one in root.iter(tag) if kind in one.get("class", "").split()]


def rows(shown: Figure) -> list[dict[str, str]]:
    assert shown.data is not None
    return list(csv.DictReader(io.StringIO(shown.data.csv())))


def figures(given: dict[str, list[Record]]) -> dict[str, Figure]:
    found = study_figures(given, palette(given, "vanilla"), baseline="vanilla")
    assert len({one.name for one in found}) == len(found)
    return {one.name: one for one in found}


ALL = [
    *("reliability", "robustness", "saliency-deletion", "saliency-insertion"),
    *("saliency-auroc", "saliency-precision", "samples", "cost"),
]


# Numbers --------------------------------------------------------------------------------------


def test_mean_and_spread_are_those_of_numpy() -> None:
    values = [0.3, 0.5, 0.55, None, float("nan"), 0.7]
    found = spread(values)
    numbers = [0.3, 0.5, 0.55, 0.7]
    assert found is not None
    assert found.trials == 4
    assert found.mean == pytest.approx(np.mean(numbers))
    assert found.std == pytest.approx(np.std(numbers, ddof=1))
    assert spread([0.4]) == Spread(0.4, None, 1)
    assert spread([None, float("inf"), "0.5", True]) is None


def test_bins_are_pooled_as_if_all_predictions_were_one_set() -> None:
    draw = np.random.default_rng(3)
    records: list[Record] = []
    confidence, right, number = [], [], []
    for size in (40, 7, 100):
        sure = draw.uniform(0.2, 1.0, size)
        hit = draw.uniform(size=size) < sure
        where = np.minimum((sure * 15).astype(int), 14)
        bins = [
            {
                "bin": int(one),
                "count": int((where == one).sum()),
                "confidence": float(sure[where == one].mean()),
                "accuracy": float(hit[where == one].mean()),
            }
            for one in np.unique(where)
        ]
        records.append({"reliability": bins})
        confidence.append(sure)
        right.append(hit)
        number.append(where)
    every, hits, places = (np.concatenate(part) for part in (confidence, right, number))
    found = pooled_bins(records, "reliability")
    assert [one.number for one in found] == np.unique(places).tolist()
    for one in found:
        inside = places == one.number
        assert one.count == inside.sum()
        assert one.confidence == pytest.approx(every[inside].mean())
        assert one.accuracy == pytest.approx(hits[inside].mean())


def test_empty_and_undefined_bins_are_left_out() -> None:
    bins = [
        {"bin": 1, "count": 0, "confidence": 0.1, "accuracy": 0.0},
        {"bin": 2, "count": 3, "confidence": None, "accuracy": 0.0},
        {"bin": 14, "count": 2, "confidence": 1.0, "accuracy": 0.5},
    ]
    (one,) = pooled_bins([{"reliability": bins}, {}], "reliability")
    assert (one.number, one.count, one.accuracy) == (14, 2, 0.5)
    assert reliability_data({"vanilla": [{"test": {}, "reliability": bins[:2]}]}) == []


def test_bins_of_damaged_records_do_no_harm() -> None:
    bins = [
        {"bin": 1, "count": count, "confidence": 0.5, "accuracy": 0.5} for count in (-3, 3, -1, 0)
    ]
    (one,) = pooled_bins([{"reliability": bins}], "reliability")
    assert (one.count, one.confidence, one.accuracy) == (3, 0.5, 0.5)
    assert pooled_bins([{"reliability": bins[::2]}], "reliability") == ()


def test_calibration_errors_are_means_over_trials_before_and_after() -> None:
    first, second = trial(), trial(fold=1)
    first["test"]["ece"], second["test"]["ece"] = 0.3, 0.1
    first["calibrated"]["ece"], second["calibrated"]["ece"] = 0.08, None
    (found,) = reliability_data({"vanilla": [first, second]})
    assert found.measured["ece"] == pytest.approx(0.2)
    assert found.calibrated["ece"] == pytest.approx(0.08)
    assert found.calibrated["temperature"] == 2.0


def test_robustness_starts_at_the_clean_accuracy_and_ascends() -> None:
    def record(clean: float, *attacks: tuple[float, float | None]) -> Record:
        return {
            "test": {"accuracy": clean},
            "attacked": [{"budget": b, "edges": 1, "accuracy": a} for b, a in attacks],
        }

    given = {
        "vanilla": [record(0.8, (0.2, 0.4), (0.1, 0.6)), record(0.6, (0.2, 0.2), (0.1, None))],
        "other": [{"test": {"accuracy": 0.9}}],
    }
    (found,) = robustness_data(given)
    assert found.places == (0.0, 0.1, 0.2)
    assert [value.mean for value in found.values] == pytest.approx([0.7, 0.6, 0.3])
    assert found.values[0].std == pytest.approx(np.std([0.8, 0.6], ddof=1))
    assert (found.values[1].std, found.values[1].trials) == (None, 1)
    assert robustness_data(given, "random") == []


def test_the_clean_accuracy_counts_only_trials_that_were_attacked() -> None:
    attacked = {"test": {"accuracy": 0.5}, "attacked": [{"budget": 0.1, "accuracy": 0.4}]}
    (found,) = robustness_data({"m": [attacked, {"test": {"accuracy": 0.9}}]})
    assert found.values[0] == Spread(0.5, None, 1)


def test_curves_of_saliency_are_means_at_each_share() -> None:
    given = [
        {"saliency_curve": [{"share": 0.1 * step, "deletion": value - 0.05 * step}]}
        for value in (0.9, 0.7)
        for step in (3,)
    ]
    # 0.1 * 3 is not 0.3: shares that differ by a rounding error are one place.
    given.append({"saliency_curve": [{"share": 0.3, "deletion": 0.2}]})
    (found,) = saliency_curves_data({"vanilla": given}, "deletion")
    assert found.places == (0.3,)
    assert found.values[0].mean == pytest.approx(np.mean([0.75, 0.55, 0.2]))


def cost(epoch: float, best: float | None) -> dict[str, float | None]:
    return {"fit_seconds": 9 * epoch, "epoch_seconds": epoch, "best_seconds": best}


def test_cost_is_the_ratio_of_means() -> None:
    given = {
        "vanilla": [trial(cost=cost(s, 10 * s)) for s in (1.0, 3.0)],
        "slow": [trial(cost=cost(s, None)) for s in (4.0, 8.0)],
    }
    plain, slow = cost_data(given, "vanilla")
    assert (plain.epoch_ratio, plain.best_ratio) == (1.0, 1.0)
    assert slow.epoch_ratio == pytest.approx(6.0 / 2.0)
    assert (slow.best, slow.best_ratio) == (None, None)
    assert plain.epoch.std == pytest.approx(np.std([1.0, 3.0], ddof=1))
    assert [one.epoch_ratio for one in cost_data(given, "absent")] == [None, None]


def test_old_records_are_never_compared_with_new_ones() -> None:
    old = trial()
    del old["cost"]
    given = {"vanilla": [old], "m": [trial("m", seconds=36.0)]}
    plain, other = cost_data(given, "vanilla")
    # 18 s for 9 epochs, the best of them the fifth.
    assert plain.epoch.mean == pytest.approx(18 / 9)
    assert plain.best is not None
    assert plain.best.mean == pytest.approx(18 / 9 * 5)
    assert other.epoch_ratio == pytest.approx(2.0)
    assert "Time of training" in figures(given)["cost"].caption
    assert "Processor time" in figures(methods("vanilla", "m"))["cost"].caption


@pytest.mark.parametrize(
    ("places", "told"), [((0.01, 0.05, 1.0), True), ((0.1, 0.5, 1.0), False), ((0.0, 0.01), False)]
)
def test_a_log_scale_is_told(places: tuple[float, ...], told: bool) -> None:
    line = Line("vanilla", places, tuple(Spread(0.5, None, 1) for _ in places))
    drawn = draw_lines(
        [line],
        width=720,
        colours={"vanilla": "c0"},
        titles=("Training graphs used", "Accuracy"),
        forms=(str, str),
        exact=str,
        label="",
        baseline="vanilla",
    )
    assert ("Training graphs used (log scale)" in drawn) is told


def test_sensitivity_takes_one_parameter_at_a_time() -> None:
    def score(value: float) -> list[Record]:
        return [{"test": {"accuracy": value + add}} for add in (-0.1, 0.1)]

    given = {
        "transplant-dp": score(0.6),
        "transplant-dp:anchor_ratio=0.2": score(0.7),
        "transplant-dp:anchor_ratio=0.05": score(0.5),
        "transplant-dp:anchor_ratio=0.3:pairing=other-class": score(0.9),
        "transplant-dp:pairing=other-class": score(0.4),
        "drop-nodes:ratio=0.4": score(0.3),
        "vanilla": score(0.2),
        "<b>no method</b>": score(0.1),
        "drop-nodes:of_another_version=3": score(0.1),
    }
    ratio, pairing = sensitivity_data(given, "accuracy")
    assert (ratio.method, ratio.parameter, ratio.default) == ("transplant-dp", "anchor_ratio", 0.1)
    assert ratio.values == (0.05, 0.1, 0.2)
    assert [one.mean for one in ratio.scores] == pytest.approx([0.5, 0.6, 0.7])
    assert ratio.scores[0].std == pytest.approx(np.std([-0.1, 0.1], ddof=1))
    assert ratio.numeric
    assert pairing.values == ("random", "other-class")
    assert not pairing.numeric
    assert sensitivity_data({"vanilla": score(0.2)}, "accuracy") == []


# Figures --------------------------------------------------------------------------------------


def test_every_study_is_drawn_twice_and_has_its_numbers() -> None:
    found = figures(methods("vanilla", "transplant-dp", "transplant-ep"))
    assert list(found) == ALL
    for one in found.values():
        assert one.group
        assert rows(one)
        for root in drawings(one):
            assert root.get("role") == "img"
            # What the drawing says is said to those who do not see it, with numbers.
            assert re.search(r"\d", root.get("aria-label", ""))


def test_the_baseline_stands_first() -> None:
    given = methods("transplant-ep", "vanilla")
    for root in drawings(figures(given)["reliability"]):
        names = [text for text in texts(root) if text in given]
        assert names == ["vanilla", "transplant-ep"]


def test_old_records_show_what_they_have() -> None:
    old: list[Record] = [
        {
            "repeat": 0,
            "fold": fold,
            "test": {"accuracy": 0.5, "ece": 0.1},
            "seconds": 2.0,
            "epochs": 4,
            "best_epoch": 2,
        }
        for fold in range(2)
    ]
    assert list(figures({"vanilla": old, "m": old})) == ["cost"]
    attack = {"attacked": [{"budget": 0.2, "edges": 12, "accuracy": 0.4}]}
    attacked = [record | attack for record in old]
    assert list(figures({"vanilla": attacked})) == ["robustness"]
    assert figures({"vanilla": []}) == {}
    assert study_figures({}, {}, baseline="vanilla") == []


def test_one_budget_is_drawn_as_dots_with_random_changes_hollow() -> None:
    given = methods("vanilla", "m", folds=3)
    for records in given.values():
        for record in records:
            record["attacked"] = record["attacked"][2:3]
    one = figures(given)["robustness"]
    for root in drawings(one):
        assert len(of_class(root, "circle", "dot")) == 6
        assert len(of_class(root, "circle", "hollow")) == 2
    table = {(row["method"], row["attack"], row["budget"]): row for row in rows(one)}
    expected = np.mean([record["attacked"][0]["as_stated"] for record in given["m"]])
    assert float(table["m", "as stated", "0.2"]["accuracy"]) == pytest.approx(expected)
    clean = np.mean([record["test"]["accuracy"] for record in given["m"]])
    assert float(table["m", "GradArgmax", "0.0"]["accuracy"]) == pytest.approx(clean)


def test_captions_say_which_attack_it_is() -> None:
    single = methods("vanilla", "m", folds=2)
    for records in single.values():
        for record in records:
            record["attacked"] = record["attacked"][:1]
    old = methods("vanilla", "m", folds=2)
    for records in old.values():
        for record in records:
            for attack in record["attacked"]:
                del attack["as_stated"]
    for given, letter in ((methods("vanilla", "m", folds=2), 1), (single, 1), (old, 0)):
        caption = figures(given)["robustness"].caption
        assert "GradArgmax, which here spends its whole budget on changes" in caption
        assert "(stronger than the paper’s wording)" in caption
        assert caption.count("to the letter of the paper") == letter


def test_captions_say_which_saliency_it_is() -> None:
    found = figures(methods("vanilla"))
    for name in ("saliency-deletion", "saliency-insertion"):
        assert "by the norm of the gradient of the predicted class" in found[name].caption
    for name in ("saliency-auroc", "saliency-precision"):
        assert "the gradient of the loss at the true class" in found[name].caption


def test_with_several_labels_reliability_speaks_of_labels() -> None:
    given = methods("vanilla")
    assert "Share of test graphs" in figures(given)["reliability"].caption
    for record in given["vanilla"]:
        record["task"] = "multilabel"
    caption = figures(given)["reliability"].caption
    assert caption.startswith("Share of labels that are predicted correctly, each label of a test")
    assert "test graphs that are classified" not in caption


def test_several_budgets_are_a_line_with_its_band_and_a_dashed_control() -> None:
    one = figures(methods("vanilla", "m"))["robustness"]
    for root in drawings(one):
        assert len(of_class(root, "polyline", "curve")) == 2
        assert len(of_class(root, "polyline", "control")) == 2
        assert len(of_class(root, "polygon", "band")) == 2
        points = of_class(root, "polyline", "curve")[0].get("points", "").split()
        assert len(points) == 5  # clean and four budgets
        heights = [float(point.split(",")[1]) for point in points]
        assert heights == sorted(heights)  # downwards in pixels: accuracy falls
    assert {row["attack"] for row in rows(one)} == {"GradArgmax", "as stated", "random"}


def test_one_trial_has_no_band() -> None:
    for name, one in figures(methods("vanilla", "m", folds=1)).items():
        for root in drawings(one):
            assert not of_class(root, "polygon", "band"), name
            assert not of_class(root, "line", "whisker"), name
        if name != "reliability":
            assert all(row.get("std", "") == "" for row in rows(one))


def test_reliability_shows_both_stages_and_the_counts() -> None:
    one = figures(methods("vanilla", "m"))["reliability"]
    for root in drawings(one):
        assert len(of_class(root, "circle", "bubble")) == 2 * 12
        assert len(of_class(root, "circle", "hollow")) == 2 * 12
        assert len(of_class(root, "rect", "column")) == 2 * 12
        assert "ECE 0.250 → 0.060" in texts(root)
    table = rows(one)
    whole = next(
        r for r in table if (r["method"], r["stage"], r["bin"]) == ("m", "temperature", "all")
    )
    assert (float(whole["ece"]), float(whole["brier"])) == (0.06, 0.45)
    for stage in ("as trained", "temperature"):
        own = [r for r in table if (r["method"], r["stage"]) == ("m", stage)]
        total = [r for r in own if r["bin"] == "all"]
        assert int(total[0]["count"]) == sum(int(r["count"]) for r in own if r["bin"] != "all")


def test_dots_of_reliability_lie_where_the_numbers_are() -> None:
    bins = [{"bin": 7, "count": 4, "confidence": 0.5, "accuracy": 0.0}]
    one = figures({"vanilla": [trial(reliability=bins, reliability_calibrated=[])]})["reliability"]
    for root in drawings(one):
        (dot,) = of_class(root, "circle", "bubble")
        diagonal = of_class(root, "polyline", "reference")[0].get("points", "")
        (x0, y0), (x1, _) = (map(float, point.split(",")) for point in diagonal.split())
        assert float(dot.get("cx", "")) == pytest.approx((x0 + x1) / 2, abs=0.11)
        assert float(dot.get("cy", "")) == pytest.approx(y0, abs=0.11)


def test_many_methods_get_panels() -> None:
    found = figures(methods(*MANY, folds=2))
    assert list(found) == ALL
    for root in drawings(found["robustness"]):
        # The baseline's line is in every panel, the others' in their own.
        assert len(of_class(root, "polyline", "curve")) == 1 + 2 * (len(MANY) - 1)
        assert len(of_class(root, "polygon", "band")) == len(MANY)
    for one in found.values():
        for root in drawings(one):
            width = float(root.get("width", ""))
            for text in root.iter("text"):
                assert 0 <= float(text.get("x", "")) <= width
            height = float(root.get("height", ""))
            for element in (*root.iter("text"), *root.iter("circle")):
                place = float(element.get("y") or element.get("cy") or "")
                assert 0 <= place <= height
    assert sum(len(one.wide) + len(one.narrow) for one in found.values()) < 700_000


def test_areas_stand_beside_the_curves() -> None:
    one = figures(methods("vanilla"))["saliency-deletion"]
    areas = {row["order"]: float(row["area"]) for row in rows(one)}
    assert areas == {"salient first": 0.4, "random": 0.5}
    assert "vanilla 0.400, random 0.500" in drawings(one)[0].get("aria-label", "")


def test_motifs_are_held_against_chance() -> None:
    found = figures(methods("vanilla", "m"))
    for name, chance in (("saliency-auroc", 0.5), ("saliency-precision", 0.2)):
        assert {float(row["chance"]) for row in rows(found[name])} == {chance}
        for root in drawings(found[name]):
            assert len(of_class(root, "circle", "hollow")) == 2
    without = methods("vanilla")
    for record in without["vanilla"]:
        del record["saliency"]["auroc"], record["saliency"]["precision"]
    assert not {"saliency-auroc", "saliency-precision"} & set(figures(without))


def test_all_numbers_of_samples_are_in_the_table() -> None:
    given = methods("vanilla", "transplant-ep", "drop-nodes")
    for record in given["drop-nodes"]:
        del record["samples"]["label_gap"]
    one = figures(given)["samples"]
    table = {row["method"]: row for row in rows(one)}
    assert set(table) == {"transplant-ep", "drop-nodes"}  # plain training makes no graphs
    assert float(table["transplant-ep"]["label_gap"]) == pytest.approx(0.12)
    assert table["drop-nodes"]["label_gap"] == ""
    assert {"components", "isolated", "valence_violations"} <= set(table["drop-nodes"])
    assert "transplant-ep 12" in one.caption


def test_bars_are_as_long_as_their_numbers() -> None:
    given = {
        "vanilla": [trial(cost=cost(1.0, 9.0))],
        "m": [trial("m", cost=cost(2.5, 9.0))],
    }
    for root in drawings(figures(given)["cost"]):
        one, other = (float(bar.get("width", "")) for bar in of_class(root, "rect", "column"))
        assert other / one == pytest.approx(2.5, rel=0.01)


@pytest.mark.parametrize("name", ['<script>alert("1")</script>', "a&b", "x" * 400, "ψ—\u202eabc"])
def test_names_stay_texts(name: str) -> None:
    given = methods("vanilla", name, "c", "d", "e", "f")
    found = list(figures(given).values())
    noisy = [trial(name, label_noise=noise) for noise in (0.0, 0.2)]
    found += axis_figures(noisy, {}, "accuracy")
    assert len(found) == 9
    for one in found:
        for root in drawings(one):
            assert not list(root.iter("script"))
            words = [element.text or "" for element in root.iter()]
            assert any(name[:10] in word for word in words)
    assert "<script" not in "".join(one.wide + one.narrow for one in found)


VARIANTS = (
    *("transplant-dp:anchor_ratio=0.05", "transplant-dp:anchor_ratio=0.2"),
    *("transplant-ep:anchor_ratio=0.05", "transplant-dp:anchor_ratio=0.05:max_hops=3"),
    *("transplant-dp:anchor_ratio=0.2:max_hops=3", "transplant-size-label:anchor_ratio=0.05"),
)


@pytest.mark.parametrize("count", [2, 6])
def test_variants_can_be_told_apart_in_every_figure(count: int) -> None:
    given = methods("vanilla", *VARIANTS[:count], folds=2)
    found = list(figures(given).values())
    noisy = [
        trial(name, fold, label_noise=noise)
        for name in given
        for fold in (0, 1)
        for noise in (0.0, 0.2)
    ]
    found += axis_figures(noisy, palette(given, "vanilla"), "accuracy")
    assert len(found) == len(ALL) + 2  # with noise and sensitivity
    for one in found:
        for root in drawings(one):
            named = of_class(root, "text", "name")
            words = {element.text or "" for element in named}
            full = {(element.findtext("title") or element.text or "") for element in named}
            # As many texts as methods, and the value is in each of them.
            assert len(words) == len(full), (one.name, words)
            if not one.name.startswith("sensitivity"):
                assert full >= set(VARIANTS[:count]), one.name
            for element in named:
                name = element.findtext("title") or element.text or ""
                if ":" in name:
                    assert (element.text or "").endswith(name.rpartition("=")[2]), element.text


@given_any(
    st.lists(st.text("ab:=_-,.5", min_size=1, max_size=40), unique=True, max_size=12),
    st.integers(8, 30),
)
def test_short_names_fit_and_are_never_alike(names: list[str], most: int) -> None:
    found = short_names(names, most)
    assert list(found) == names
    assert len(set(found.values())) == len(names)
    for name, text in found.items():
        assert len(text) <= most
        assert "…" in text or "~" in text or text == name


def test_names_that_fit_are_not_shortened() -> None:
    assert short_names(["a" * 20, "a" * 21], 20) == {"a" * 20: "a" * 20, "a" * 21: "a" * 19 + "…"}
    # Equal in all that fits: at the worst they are numbered.
    alike = [f"{'a' * 30}{sign}{'a' * 30}" for sign in "bcd"]
    assert list(short_names(alike, 10).values())[1:] == ["…aaaaaaa~2", "…aaaaaaa~3"]


@given_any(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_an_axis_of_shares_spans_five_points_within_nought_and_one(values: list[float]) -> None:
    low, high = shares(values)
    assert high - low >= 0.05 - 1e-9
    assert low >= 0
    assert high <= 1 + 1e-9
    assert low <= min(values)
    assert high >= max(values) - 1e-9


def test_untrained_models_do_not_look_different() -> None:
    records = [
        trial(fold=fold, label_noise=n, test={"accuracy": 0.164 + 0.004 * fold + n / 99})
        for fold in (0, 1)
        for n in (0.0, 0.2)
    ]
    (one,) = axis_figures(records, {"vanilla": "c0"}, "accuracy")
    for root in drawings(one):
        marks = [text for text in texts(root) if text.endswith("%")]
        numbers = [float(text.removesuffix("%").strip()) for text in marks if "." not in text]
        assert len([number for number in numbers if 14 <= number <= 20]) >= 3
        ((band),) = of_class(root, "polygon", "band")
        heights = [float(point.split(",")[1]) for point in band.get("points", "").split()]
        # 0.8 points of 5 are a sixth of the axis, not all of it.
        assert max(heights) - min(heights) < 80


# Axes -----------------------------------------------------------------------------------------


def test_noise_and_size_have_a_figure_each() -> None:
    records = [
        trial(method, fold, label_noise=noise, train_fraction=share, test={"accuracy": value})
        for method in ("vanilla", "m")
        for fold, shift in ((0, 0.0), (1, 0.1))
        for noise, share, value in (
            (0.2, 1.0, 0.5 + shift),
            (0.0, 0.1, 0.3 + shift),
            (0.2, 0.1, 0.9),  # both: in figures of their own
        )
    ]
    plain = [
        trial(method, fold, test={"accuracy": 0.7})
        for method in ("vanilla", "m")
        for fold in (0, 1)
    ]
    found = axis_figures([*records, *plain], {"vanilla": "c0", "m": "c1"}, "accuracy")
    noise, noise_of_few, size, size_of_noisy = found
    assert (noise.name, size.name) == ("label-noise-gcs-3", "train-fraction-gcs-3")
    for one, words, column in (
        (noise_of_few, "on 10 % of the training graphs", "label_noise"),
        (size_of_noisy, "with 20 % of the training labels wrong", "train_fraction"),
    ):
        assert words in one.title
        assert words in one.caption
        assert words not in noise.title + noise.caption + size.title + size.caption
        values = {(r["method"], float(r[column])): float(r["mean"]) for r in rows(one)}
        other = 0.35 if one is noise_of_few else 0.55  # the end that is hard in one way alone
        assert sorted(value for (name, _), value in values.items() if name == "m") == (
            pytest.approx([other, 0.9])
        )
    table = {(r["method"], float(r["label_noise"])): r for r in rows(noise)}
    assert float(table["m", 0.2]["mean"]) == pytest.approx(0.55)
    assert float(table["m", 0.2]["std"]) == pytest.approx(np.std([0.5, 0.6], ddof=1))
    assert float(table["m", 0.0]["mean"]) == pytest.approx(0.7)
    assert {float(r["train_fraction"]) for r in rows(size)} == {0.1, 1.0}
    assert axis_figures(plain, {"vanilla": "c0", "m": "c1"}, "accuracy") == []


@pytest.mark.parametrize(
    ("conditions", "names"),
    [
        (((0.2, 1.0), (0.2, 0.5)), ["train-fraction-gcs-3-noise-20"]),
        (((0.0, 0.5), (0.2, 0.5)), ["label-noise-gcs-3-size-50"]),
        (((0.0, 1.0), (0.2, 0.5)), []),
    ],
)
def test_an_axis_is_drawn_where_the_other_is_not_at_its_default(
    conditions: tuple[tuple[float, float], ...], names: list[str]
) -> None:
    records = [trial(label_noise=noise, train_fraction=share) for noise, share in conditions]
    found = axis_figures(records, {"vanilla": "c0"}, "accuracy")
    assert [one.name for one in found] == names


def test_each_model_has_axes_of_its_own() -> None:
    records = [
        trial(model=model, layers=layers, label_noise=noise)
        for model, layers in (("gin", 4), ("gcs", 3), ("gin", 3))
        for noise in (0.0, 0.1)
    ]
    found = axis_figures(records, {"vanilla": "c0"}, "accuracy")
    assert [one.name for one in found] == [
        f"label-noise-{end}" for end in ("gcs-3", "gin-3", "gin-4")
    ]
    chosen = [record | {"chosen": {"layers": 4, "method": "m"}} for record in records[:2]]
    (one,) = axis_figures(chosen, {"vanilla": "c0"}, "accuracy")
    assert one.name == "label-noise-gin-chosen"


def test_parameters_have_panels_with_the_default_filled() -> None:
    names = ["transplant-dp", *(f"transplant-dp:anchor_ratio={ratio}" for ratio in (0.05, 0.3))]
    records = [trial(name, fold) for name in (*names, "vanilla") for fold in range(3)]
    records.append(
        trial("transplant-dp:anchor_ratio=0.2", label_noise=0.1)
    )  # not with clean labels
    (one,) = axis_figures(records, {"transplant-dp": "c2"}, "accuracy")[-1:]
    assert one.name == "sensitivity-gcs-3"
    assert [(row["value"], row["default"]) for row in rows(one)] == [
        ("0.05", "no"),
        ("0.1", "yes"),
        ("0.3", "no"),
    ]
    for root in drawings(one):
        assert len(of_class(root, "circle", "sure")) == 1
        assert len(of_class(root, "circle", "unsure")) == 2
        assert of_class(root, "circle", "sure")[0].get("class") == "sure c2"
        assert len(of_class(root, "line", "interval")) == 3


def test_readouts_are_groups() -> None:
    records = [
        trial(method, test={"accuracy": value}, settings={"readout": readout})
        for readout, value in (("mean", 0.6), ("sum", 0.5), ("max", 0.7))
        for method in ("vanilla", "m")
    ]
    records = records[:-1]  # one is missing
    (one,) = axis_figures(records, {"vanilla": "c0", "m": "c1"}, "accuracy")
    assert [row["readout"] for row in rows(one)] == ["mean", "mean", "sum", "sum", "max", "max"]
    assert rows(one)[-1]["mean"] == ""
    for root in drawings(one):
        assert len([bar for bar in of_class(root, "rect", "column") if list(bar)]) == 5
    assert "m missing" in drawings(one)[0].get("aria-label", "")


# Drawing --------------------------------------------------------------------------------------


def test_bars_start_at_nought() -> None:
    def groups(*means: float) -> list[BarGroup]:
        return [BarGroup("g", tuple(Bar(str(n), Spread(m, 0.01, 3)) for n, m in enumerate(means)))]

    low, high = bar_range(groups(0.6, 0.65))
    assert low == 0.0
    assert 0.66 <= high <= 1.0
    assert bar_range(groups(0.002, 0.3))[0] == 0.0
    assert 1.01 <= bar_range(groups(0.98, 1.0))[1] < 1.1
    low, high = bar_range([BarGroup("g", (Bar("b", None, 0.5), Bar("c", Spread(-0.2, None, 1))))])
    assert low < -0.2
    assert high > 0.5


def test_published_numbers_are_hollow_marks_beside_ours() -> None:
    groups = [BarGroup("gcs", (Bar("a", Spread(0.6, 0.02, 5), 0.6), Bar("b", None, 0.7)))]
    drawn = draw_groups(
        groups,
        width=720,
        colours={"a": "c0", "b": "c1"},
        axis="Accuracy",
        form=str,
        exact=str,
        label="bars",
    )
    root = ElementTree.fromstring(str(drawn))
    (bar,) = [one for one in of_class(root, "rect", "column") if list(one)]
    marks = [one for one in of_class(root, "circle", "published") if list(one)]
    assert len(marks) == 2
    # The same value is at the same height, in the middle of its bar.
    assert float(marks[0].get("cy", "")) == pytest.approx(float(bar.get("y", "")), abs=0.11)
    middle = float(bar.get("x", "")) + float(bar.get("width", "")) / 2
    assert float(marks[0].get("cx", "")) == pytest.approx(middle, abs=0.11)


@pytest.mark.parametrize("width", [720, 350])
def test_numbers_of_the_axis_do_not_touch(width: int) -> None:
    places = (0.0, 0.01, 0.02, 0.2, 0.21, 0.5)
    line = Line("vanilla", places, (Spread(0.5, None, 1),) * 6)
    drawn = draw_lines(
        [line],
        width=width,
        colours={"vanilla": "c0"},
        titles=("x", "y"),
        forms=(lambda value: f"at {value}", str),
        exact=str,
        label="",
        baseline="vanilla",
    )
    marks = list(ElementTree.fromstring(str(drawn)).iter("text"))
    across = [float(one.get("x", "")) for one in marks if (one.text or "").startswith("at ")]
    assert [one.text for one in marks if (one.text or "").startswith("at ")][-1] == "at 0.5"
    assert min(np.diff(across)) >= 44


def test_places_that_would_touch_are_drawn_by_their_powers() -> None:
    def across(*places: float) -> list[float]:
        one = Sensitivity("m", "p", places[0], places, (Spread(0.5, None, 1),) * len(places))
        drawn = draw_sensitivity(
            [one], width=720, colours={"m": "c1"}, axis="", form=str, exact=str, label=""
        )
        root = ElementTree.fromstring(str(drawn))
        dots = [*of_class(root, "circle", "sure"), *of_class(root, "circle", "unsure")]
        return sorted(float(dot.get("cx", "")) for dot in dots)

    first, second, third = across(0.01, 0.1, 1.0)
    assert second - first == pytest.approx(third - second, abs=0.3)
    first, second, third = across(0.25, 0.5, 1.0)
    assert (third - first) / (second - first) == pytest.approx(3.0, abs=0.02)
    first, second = across(0.0, 2.0)  # nought has no power
    assert second > first


def test_words_are_dots_that_no_line_joins() -> None:
    one = Sensitivity("m", "pairing", "a", ("a", "b", "c" * 30), (Spread(0.5, 0.1, 3),) * 3)
    for width in (720, 350):
        drawn = draw_sensitivity(
            [one], width=width, colours={"m": "c1"}, axis="", form=str, exact=str, label=""
        )
        root = ElementTree.fromstring(str(drawn))
        assert not list(root.iter("polyline"))
        assert len(list(root.iter("circle"))) == 3
