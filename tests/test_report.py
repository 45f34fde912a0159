"""The report: numbers first, then drawings, then one page that needs nothing else."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from golden.make import unpack
from graph_transplant.augment import METHODS
from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.across import Across, across
from graph_transplant.experiments.protocol import Record, Settings
from graph_transplant.experiments.records import RecordStore
from graph_transplant.experiments.statistics import holm
from graph_transplant.experiments.summary import (
    SummaryRow,
    group_records,
    pairwise,
    summarise,
    verdicts,
)
from graph_transplant.report import render_across, render_report, write_across, write_report
from graph_transplant.report.figures import (
    attacked_data,
    critical_difference_data,
    curves_data,
    differences_data,
    scores_data,
)
from graph_transplant.report.frame import Table, figure, own_script, write_figures
from graph_transplant.report.gallery import gallery
from graph_transplant.report.html import (
    GLOSSARY,
    METHOD_NOTES,
    _content,
    headline,
    repeat_command,
    repeat_commands,
)
from graph_transplant.report.names import Names
from graph_transplant.report.svg import (
    NARROW,
    WIDE,
    draw_critical_difference,
    padded,
    percent,
    spaced,
    swarm,
    ticks,
)
from page_samples import Page, rich_records

NASTY = "<script>alert('x')</script> & \"q\" 🧬"


def made_up(
    method: str, accuracies: Sequence[float], *, folds: int = 5, **changes: Any
) -> list[Record]:
    records = []
    for number, accuracy in enumerate(accuracies):
        curve: list[dict[str, Any]] = [
            {
                "epoch": epoch,
                "train_loss": 1.0,
                "validation_loss": 1.0,
                "validation_accuracy": value,
            }
            for epoch, value in ((1, 0.2), (50, accuracy), (100, accuracy))
        ]
        if method == "transplant-ep":
            for point in curve:
                point["measurements"] = {"edge_predictor_accuracy": 0.8}
        records.append(
            {
                "data": "toy",
                "source": "toy",
                "fingerprint": "0f" * 32,
                "method": method,
                "model": "gcs",
                "layers": 3,
                "repeat": number // folds,
                "fold": number % folds,
                "test": {"accuracy": accuracy, "ece": accuracy / 10, "nll": 1 - accuracy},
                "sizes": {"train": 60, "validation": 20, "test": 20},
                "settings": {
                    "folds": folds,
                    "epochs": 100,
                    "batch_size": 16,
                    "seed": 4,
                    "version": "9.8.7",
                },
                "seconds": 2.0,
                "epochs": 100,
                "best_epoch": 50,
                "curve": curve,
            }
            | changes
        )
    return records


PLAIN = [0.60, 0.55, 0.65, 0.50, 0.60]
BETTER = [0.70, 0.66, 0.74, 0.61, 0.71]
TWO = made_up("vanilla", PLAIN) + made_up("transplant-ep", BETTER)


def svgs(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(part) for part in re.findall(r"<svg.*?</svg>", page, re.S)]


def places(figure: ElementTree.Element) -> list[tuple[float, float]]:
    """Where dots lie and lines turn in a drawing."""
    found = [
        (float(dot.get("cx", "nan")), float(dot.get("cy", "nan")))
        for dot in figure.iter()
        if dot.tag.endswith("circle")
    ]
    for line in figure.iter():
        if line.tag.endswith("polyline"):
            found += [
                (float(x), float(y))
                for x, y in (point.split(",") for point in line.get("points", "").split())
            ]
    return found


def test_the_verdict_comes_first_then_numbers_then_how_to_repeat() -> None:
    text = Page(render_report(TWO)).text
    order = [
        "transplant-ep beats vanilla on toy by 10.4 points",
        "(p < 0.001, 5 folds)",
        "Methods ranked by mean test accuracy",
        "Who beats plain training?",
        "Every fold",
        "Learning",
        "Can its confidence be trusted?",
        "The edge predictor",
        "graph-transplant compare toy",
        "What the words mean",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert "68.4 ± 5.0" in text
    assert "+10.4 +8.6 to +12.2" in text
    # By hand: differences 10, 11, 9, 11, 11 have mean 10.4 and deviation 0.894; J(4) is 0.798.
    assert "+9.28" in text
    assert "--epochs 100" in text
    assert "9.8.7" in text
    assert "0f" * 32 in text


def only_own_script(text: str) -> str:
    """Check that a page runs its one script and no other; give the page without it."""
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert script == own_script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'"Content-Security-Policy" content="([^"]*)"', text)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'sha256-{digest}'"
    rest = text.replace(script, "", 1)
    assert rest.count("<script") == 1
    return rest


def test_the_page_needs_nothing_from_elsewhere_and_runs_no_script_but_its_own() -> None:
    text = only_own_script(render_report(TWO))
    page = Page(text)
    assert "http:" not in text
    assert "https:" not in text
    assert "url(" not in text
    assert "@import" not in text
    names = {tag for tag, _ in page.tags}
    assert not names & {"link", "img", "iframe", "object", "embed", "form", "button"}
    for _, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        assert "src" not in attributes


def test_every_figure_is_drawn_for_desk_and_phone_and_says_in_words_what_it_shows() -> None:
    text = render_report(TWO)
    drawings = [one for one in svgs(text) if one.get("class") != "graph"]
    assert len(drawings) == 12
    assert {drawing.get("width") for drawing in drawings} == {"720", "350"}
    for drawing in drawings:
        assert drawing.get("role") == "img"
        label = drawing.get("aria-label")
        assert label is not None
        assert "transplant-ep" in label
        width, height = (float(drawing.get(name, "nan")) for name in ("width", "height"))
        for element in drawing.iter():
            for name, most in (("x", width), ("cx", width), ("y", height), ("cy", height)):
                if (place := element.get(name)) is not None:
                    assert -0.1 <= float(place) <= most + 0.1


def test_page_is_fit_for_phones_dark_rooms_and_paper() -> None:
    text = render_report(TWO)
    assert 'name="viewport" content="width=device-width' in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert '<html lang="en">' in text


@pytest.mark.parametrize("field", ["data", "method", "model", "source", "fingerprint"])
def test_whatever_stands_in_the_records_is_escaped(field: str) -> None:
    changed = [record | {field: NASTY} for record in made_up("a", BETTER)]
    if field != "method":
        changed += [record | {field: NASTY} for record in made_up("vanilla", PLAIN)]
    else:
        changed += made_up("vanilla", PLAIN)
    text = render_report(changed)
    page = Page(text)
    only_own_script(text)
    # `model` is shown in capitals, `source` quoted for a shell.
    assert "alert(" in page.text.lower()
    assert "🧬" in page.text
    svgs(text)


def test_settings_are_escaped_too() -> None:
    settings = {"folds": 5, "epochs": 100, "batch_size": 16, "seed": NASTY, NASTY: "<b>"}
    text = only_own_script(render_report(made_up("vanilla", PLAIN, settings=settings)))
    assert "<b>" not in text.replace("<b>60.0", "").replace("<b>58.0</b>", "")


def test_no_undefined_number_is_printed() -> None:
    for records in (
        made_up("vanilla", [0.5], folds=3),
        made_up("vanilla", [0.5]) + made_up("a", [0.5]),
        made_up("a", PLAIN) + made_up("b", PLAIN),
        made_up("vanilla", PLAIN, test={"accuracy": 1.0, "ece": None, "nll": None}),
        made_up("vanilla", PLAIN, curve=[]),
        made_up("vanilla", [0.0] * 5) + made_up("a", [0.0] * 5),
    ):
        text = render_report(records)
        Page(text)
        svgs(text)
        for word in ("nan", "inf", "None", "Undefined"):
            assert not re.search(rf"\b{word}\b", text)


def test_auroc_is_shown_only_for_two_classes() -> None:
    assert "AUROC" not in render_report(TWO)
    two = [record | {"test": record["test"] | {"auroc": 0.875}} for record in TWO]
    text = Page(render_report(two)).text
    assert "AUROC" in text
    assert "0.875" in text


def test_the_same_records_in_any_order_give_the_same_page() -> None:
    assert render_report(TWO) == render_report(TWO[::-1])


def test_several_models_get_a_section_and_a_finding_each() -> None:
    other = [record | {"model": "gin", "layers": 4} for record in made_up("vanilla", PLAIN)]
    other += [record | {"model": "gin", "layers": 4} for record in made_up("transplant-ep", PLAIN)]
    page = Page(render_report(TWO + other))
    assert "transplant-ep beats vanilla on toy with 1 of 2 models" in page.text
    targets = {attributes.get("id") for tag, attributes in page.tags if tag == "section"}
    links = {attributes["href"] for tag, attributes in page.tags if tag == "a"}
    assert {"#gcs-3", "#gin-4", "#gcs-3--calibration", "#repeat", "#words"} <= links
    targets |= {attributes.get("id") for tag, attributes in page.tags if tag == "details"}
    assert {link.removeprefix("#") for link in links} <= targets
    # Names and links are of one page: none may come twice.
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_models_that_were_tested_lead_the_page() -> None:
    records = made_up("vanilla", PLAIN) + made_up("a", PLAIN[::-1])
    records += made_up("a", PLAIN, model="gcn") + made_up("b", BETTER, model="gcn")
    content = _content(records, "none")
    assert [section.verdict.model for section in content.main] == ["gcs", "gcn"]
    found = [section.verdict for section in content.main]
    assert headline(found) == found[0].headline
    assert found[0].headline == "a does not differ significantly from vanilla on toy"


def test_headline_of_several_models() -> None:
    def on(model: str, *records: list[Record]) -> list[Record]:
        return [record | {"model": model} for part in records for record in part]

    def words(*records: list[Record]) -> str:
        return headline(verdicts(summarise([record for part in records for record in part])))

    plain, better = made_up("vanilla", PLAIN), made_up("transplant-dp", BETTER)
    worse = made_up("transplant-dp", [value - 0.2 for value in BETTER])
    unsure = made_up("transplant-dp", [0.65, 0.50, 0.75, 0.55, 0.55])
    other = made_up("transplant-ep", BETTER)
    assert words(on("gcn", plain, better), on("gcs", plain, better)).endswith("with every model")
    assert words(on("gcn", plain, better), on("gcs", plain, other)) == (
        "Graph Transplant beats vanilla on toy with every model"
    )
    assert words(on("gcn", plain, worse), on("gcs", plain, unsure)) == (
        "No method beats vanilla on toy"
    )
    assert words(on("gcn", plain, unsure), on("gcs", plain, unsure)) == (
        "No method differs significantly from vanilla on toy"
    )
    assert words(on("gcn", plain), on("gcs", plain)) == "2 models compared on toy"


def test_headline_counts_models_and_conditions_apart() -> None:
    def under(noise: float, *records: list[Record], model: str = "gcs") -> list[Record]:
        changes = {"label_noise": noise, "model": model}
        return [record | changes for part in records for record in part]

    def words(*records: list[Record]) -> str:
        return headline(verdicts(summarise([record for part in records for record in part])))

    plain, better = made_up("vanilla", PLAIN), made_up("transplant-dp", BETTER)
    unsure = made_up("transplant-dp", [0.65, 0.50, 0.75, 0.55, 0.55])
    worse = made_up("transplant-dp", [value - 0.2 for value in BETTER])
    beats = "transplant-dp beats vanilla on toy"
    assert words(under(0.2, plain, better), under(0.4, plain, better)) == (
        f"{beats} under both conditions (noise 20 %; noise 40 %)"
    )
    assert words(under(0.2, plain, better), under(0.4, plain, unsure)) == (
        f"{beats} under 1 of 2 conditions (noise 20 %)"
    )
    four = [under(noise, plain, better) for noise in (0.1, 0.2, 0.3, 0.4)]
    assert words(*four) == f"{beats} under all 4 conditions"
    assert words(under(0.2, plain, unsure), under(0.4, plain, worse)) == (
        "No method beats vanilla on toy under any of 2 conditions (noise 20 %; noise 40 %)"
    )
    assert words(under(0.2, plain, unsure), under(0.4, plain, unsure)) == (
        "No method differs significantly from vanilla on toy under any of 2 conditions "
        "(noise 20 %; noise 40 %)"
    )
    assert words(under(0.2, plain), under(0.4, plain)) == (
        "2 conditions compared on toy (noise 20 %; noise 40 %)"
    )
    # Several models under one condition: it stands before, and models are counted.
    both = [under(0.2, plain, better), under(0.2, plain, unsure, model="gin")]
    assert words(*both) == (f"With 20 % of the training labels wrong, {beats} with 1 of 2 models")
    none = [under(0.2, plain, unsure), under(0.2, plain, unsure, model="gin")]
    assert words(*none).startswith("With 20 % of the training labels wrong, no method differs")
    more = [under(0.4, plain, better), under(0.4, plain, better, model="gin")]
    assert words(*both, *more) == f"{beats} in 3 of 4 comparisons (2 models, 2 conditions)"
    assert words(under(0.2, plain), under(0.4, plain, model="gin")) == (
        "2 models under 2 conditions compared on toy"
    )
    # On the page of records that are all hard.
    text = render_report(rich_records(conditions=((0.2, 1.0), (0.4, 1.0)), points=2))
    (heading,) = re.findall(r"<h1>(.*?)</h1>", text)
    assert "model" not in heading
    assert "noise 20 %; noise 40 %" in heading


def test_the_command_repeats_the_comparison_and_is_quoted_for_a_shell() -> None:
    records = made_up("vanilla", PLAIN * 2, source="my data/x; rm") + made_up("a", PLAIN, layers=4)
    assert repeat_command(records) == [
        "graph-transplant compare 'my data/x; rm'",
        "--methods vanilla,a",
        "--models gcs",
        "--layers 3,4",
        "--folds 5",
        "--repeats 2",
        "--epochs 100",
        "--batch-size 16",
        "--seed 4",
    ]


def test_a_report_needs_records_and_replaces_the_old_one_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(GraphTransplantError, match="at least one finished trial"):
        write_report([], path)
    assert path.read_text() == "old"
    write_report(TWO, path)
    assert path.read_text(encoding="utf-8") == render_report(TWO)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["figures", "report.html"]
    other = tmp_path / "other"
    other.mkdir()
    write_report(TWO, other / "report.html", figures=False)
    assert [item.name for item in other.iterdir()] == ["report.html"]
    assert "Every figure as a file" in path.read_text(encoding="utf-8")
    assert "Every figure as a file" not in (other / "report.html").read_text(encoding="utf-8")


# Numbers of the figures -----------------------------------------------------------------------


def test_differences_are_in_points_and_marked_when_significant() -> None:
    (methods,) = group_records(TWO).values()
    (row,) = differences_data(summarise(TWO), methods, "vanilla")
    assert row.values == pytest.approx([10, 11, 9, 11, 11])
    assert row.mean == pytest.approx(10.4)
    assert row.significant
    assert row.low is not None
    assert row.high is not None
    assert row.low < row.mean < row.high


def test_scores_leave_out_what_is_not_there() -> None:
    (methods,) = group_records(TWO).values()
    assert [row.method for row in scores_data(methods, "ece")] == ["transplant-ep", "vanilla"]
    assert scores_data(methods, "auroc") == []


def test_curves_are_means_over_the_trials_that_train_that_long() -> None:
    def record(last: int, level: float) -> Record:
        curve = [{"epoch": epoch, "validation_accuracy": level} for epoch in (1, last)]
        return {"curve": curve}

    trials = [record(10, 0.2), record(20, 0.4), record(20, 0.6), record(4, 0.8)]
    (curve,) = curves_data({"a": trials}, "validation_accuracy")
    means = dict(zip(curve.epochs, curve.values, strict=True))
    assert means[1] == pytest.approx(0.5)
    assert means[7] == pytest.approx((0.2 + 0.4 + 0.6) / 3)
    assert means[20] == pytest.approx(0.5)
    (half,) = curves_data(
        {"a": [record(10, 0.2), record(20, 0.4), record(4, 0.2)]}, "validation_accuracy"
    )
    assert half.epochs[-1] == 10
    assert curves_data({"a": [{"curve": []}, {}]}, "validation_accuracy") == []


def test_measurements_of_an_augmentation_are_found() -> None:
    (methods,) = group_records(TWO).values()
    (curve,) = curves_data(methods, "edge_predictor_accuracy")
    assert curve.method == "transplant-ep"
    assert curve.values == pytest.approx([0.8] * len(curve.values))


# Drawing --------------------------------------------------------------------------------------


@given(st.floats(-1e4, 1e4), st.floats(1e-3, 1e4), st.integers(3, 8))
def test_ticks_are_round_within_the_range_and_about_as_many_as_asked(
    low: float, span: float, count: int
) -> None:
    high = low + span
    found = ticks(low, high, count)
    assert 1 <= len(found) <= 3 * count
    assert all(low - 1e-6 * span <= value <= high + 1e-6 * span for value in found)
    if len(found) > 1:
        step = found[1] - found[0]
        digits = step / 10 ** math.floor(math.log10(step) + 1e-9)
        assert any(digits == pytest.approx(nice, rel=1e-3) for nice in (1, 2, 5, 10))


@given(st.lists(st.floats(0, 300), max_size=8))
def test_labels_do_not_overlap_and_keep_their_order(places: list[float]) -> None:
    found = spaced(places, 18, 0, 300)
    ordered = sorted(found)
    assert all(after - before > 17.9 for before, after in itertools.pairwise(ordered))
    assert all(-0.1 <= place <= 300.1 for place in found)
    ranks = sorted(range(len(places)), key=lambda number: places[number])
    assert [found[number] for number in ranks] == ordered


def test_equal_dots_lie_beside_each_other() -> None:
    offsets = swarm([5.0] * 5, distance=6, most=12)
    assert sorted(offsets) == [-12, -6, 0, 6, 12]
    assert swarm([0.0, 100.0], distance=6, most=12) == [0.0, 0.0]


def test_a_range_gets_room_but_not_beyond_its_limits() -> None:
    low, high = padded([0.5, 1.0], low=0.0, high=1.0)
    assert 0.4 < low < 0.5
    assert high == 1.0
    low, high = padded([0.7])
    assert low < 0.7 < high


# ------------------------------------------------------------------ many methods


def crowd() -> list[Record]:
    records = made_up("vanilla", PLAIN)
    for number, method in enumerate(name for name in METHODS if name != "vanilla"):
        shift = 0.01 * (number % 7) - 0.02
        changed = [score + shift + 0.01 * (fold % 3) for fold, score in enumerate(PLAIN)]
        records += made_up(method, changed)
    return records


def test_every_method_has_a_note() -> None:
    assert set(METHOD_NOTES) == set(METHODS)
    page = Page(render_report([*TWO, *made_up("drop-nodes:ratio=0.4", BETTER)]))
    assert METHOD_NOTES["drop-nodes"] in page.text


def test_all_methods_are_ranked_with_corrected_p_values() -> None:
    table = Page(render_report(crowd())).text.partition("Methods ranked")[2]
    scores = {
        name: sum(record["test"]["accuracy"] for record in trials) / len(trials)
        for trials_of in group_records(crowd()).values()
        for name, trials in trials_of.items()
    }
    places = {name: table.index(f" {name} ") for name in METHODS}
    ranked = sorted(places, key=places.__getitem__)
    means = [round(scores[name], 9) for name in ranked]
    assert means == sorted(means, reverse=True)
    rows = summarise(crowd())
    assert [row.p_holm for row in rows] == holm([row.p_value for row in rows])
    assert "p (Holm)" in table


def test_a_crowd_of_curves_gets_a_panel_each() -> None:
    figures = svgs(render_report(crowd()))
    panels = [f for f in figures if f.get("aria-label", "").startswith("Validation accuracy by")]
    assert len(panels) == 2  # desk and phone
    for panel in panels:
        space = panel.tag.removesuffix("svg")
        names = [t.text for t in panel.iter(f"{space}text") if "name" in t.get("class", "")]
        assert len(names) == len(METHODS) - 1
        drawn = [p.get("class", "") for p in panel.iter(f"{space}polyline")]
        assert len(drawn) == 2 * (len(METHODS) - 1)
        assert sum("c0" in kind.split() for kind in drawn) == len(METHODS) - 1
    few = svgs(render_report(TWO))
    (wide, _) = [f for f in few if f.get("aria-label", "").startswith("Validation accuracy by")]
    lines = [p for p in wide.iter() if "curve" in p.get("class", "").split()]
    assert len(lines) == 2


# ------------------------------------------------------------------ metric, selection, pairs


def settings_with(**changes: Any) -> dict[str, Any]:
    return Settings(epochs=100, batch_size=16, seed=4, **changes).as_record("9.8.7")


def with_auroc(records: Sequence[Record], **changes: Any) -> list[Record]:
    """Judge records by AUROC, which takes the place of their accuracy; that is 0.9 throughout."""
    return [
        record
        | {
            "test": record["test"] | {"auroc": record["test"]["accuracy"], "accuracy": 0.9},
            "settings": settings_with(metric="auroc"),
            "curve": [
                {"epoch": epoch, "validation_accuracy": 0.9, "validation_score": 0.3}
                for epoch in (1, 9)
            ],
        }
        | changes
        for record in records
    ]


def test_the_page_speaks_of_the_metric_it_was_judged_by() -> None:
    text = Page(render_report(with_auroc(TWO))).text
    assert "Methods ranked by mean test AUROC" in text
    assert "AUROC, %" in text
    assert "68.4 ± 5.0" in text
    assert "Accuracy, % " in text
    assert "90.0" in text
    labels = [figure.get("aria-label", "") for figure in svgs(render_report(with_auroc(TWO)))]
    assert any(label.startswith("Test AUROC of every fold") for label in labels)
    assert any(
        label.startswith("Difference to vanilla in points of test AUROC") for label in labels
    )
    learning = [label for label in labels if label.startswith("Validation AUROC by epoch")]
    assert learning
    assert all("30.0" in label for label in learning)
    assert "--metric auroc" in text
    assert GLOSSARY["AUROC"] in text


def of_numbers(records: Sequence[Record], shift: float = 0.0) -> list[Record]:
    """Records of numbers to predict; R² takes the place of the accuracy."""
    return [
        record
        | {
            "task": "regression",
            "test": {"r2": record["test"]["accuracy"] + shift, "rmse": 1.25, "mae": 0.5},
            "settings": settings_with(metric="r2", split="scaffold"),
            "curve": [
                {"epoch": 1, "validation_accuracy": None, "validation_score": -7.0},
                {"epoch": 9, "validation_accuracy": None, "validation_score": 0.3},
            ],
        }
        for record in records
    ]


def test_the_page_of_numbers_has_no_columns_of_classes() -> None:
    page = render_report(of_numbers(TWO))
    text = Page(page).text
    assert "Methods ranked by mean test R²" in text
    assert "R², %" in text
    assert "68.4 ± 5.0" in text
    for shown in ("RMSE", "1.250", "MAE", "0.500", GLOSSARY["R²"], GLOSSARY["RMSE and MAE"]):
        assert shown in text
    for absent in ("ECE", "Loss", "Accuracy", "AUROC", "nan", "None"):
        assert absent not in text
    assert "points of R²" in text
    assert "runs of the scaffold split" in text
    assert "--split scaffold" in text
    # Before training R² may be anywhere; the curve is drawn from -100 % on and says so.
    assert "What is below −100 % is drawn there." in text.replace("\u00a0", " ")


def test_scores_below_zero_are_drawn_where_they_are() -> None:
    page = render_report(of_numbers(TWO, shift=-1.2))
    text = Page(page).text
    assert "−51.6 ± 5.0" in text
    best, _ = summarise(of_numbers(TWO, shift=-1.2))
    assert best.score_low is not None
    assert best.score_high is not None
    assert f"−{-100 * best.score_low:.1f} to −{-100 * best.score_high:.1f}" in text
    for drawing in svgs(page):
        _, _, width, height = map(float, drawing.get("viewBox", "").split())
        assert places(drawing)
        for x, y in places(drawing):
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_the_page_shows_average_precision_beside_the_score() -> None:
    records = [
        record | {"test": record["test"] | {"auroc": 0.875, "average_precision": 0.4375}}
        for record in TWO
    ]
    text = Page(render_report(records)).text
    assert "Average precision" in text
    assert "0.438" in text
    assert GLOSSARY["Average precision"] in text
    assert "of the second" in GLOSSARY["Average precision"]


def test_the_command_names_the_columns_of_a_table() -> None:
    columns = {"smiles": "mol", "target": "Class", "features": "ogb", "task": "multiclass"}
    (record, *_) = made_up("vanilla", PLAIN, settings=settings_with(balance=True))
    command = repeat_command([record | {"columns": columns}])
    for option in ("--smiles mol", "--target Class", "--features ogb", "--balance"):
        assert option in command
    assert "--balance" not in repeat_command(made_up("vanilla", PLAIN, settings=settings_with()))
    evil = repeat_command([record | {"columns": {"target": "a b; rm -rf /"}}])
    assert "--target 'a b; rm -rf /'" in evil
    # Records may come from elsewhere: what is no option of the command is left out.
    assert repeat_command([record | {"columns": {"x; rm -rf /": "a"}}]) == repeat_command([record])
    # The file of a store takes no options, whatever records of it say.
    saved = record | {"source": "mine.safetensors"}
    assert repeat_command([saved | {"columns": columns}]) == repeat_command([saved])


def test_curves_of_records_without_a_score_are_left_out_when_the_metric_is_another() -> None:
    old = with_auroc(TWO, curve=[{"epoch": 1, "validation_accuracy": 0.9}])
    labels = [figure.get("aria-label", "") for figure in svgs(render_report(old))]
    assert not any("by epoch" in label for label in labels)


def test_the_mean_has_its_interval() -> None:
    (row,) = [row for row in summarise(TWO) if row.method == "vanilla"]
    assert row.score_low is not None
    assert row.score_high is not None
    text = Page(render_report(TWO)).text
    assert f"58.0 ± 5.7 {100 * row.score_low:.1f} to {100 * row.score_high:.1f}" in text
    # The interval of a few scores near 1 is not printed beyond 100 %.
    assert "to 100.0" in Page(render_report(made_up("vanilla", [1.0, 0.9, 1.0, 1.0, 0.9]))).text


def test_every_pair_is_listed_and_folded_away() -> None:
    three = [*TWO, *made_up("drop-nodes", [0.62, 0.60, 0.64, 0.52, 0.63])]
    page = Page(render_report(three))
    assert ("details", {"class": "table"}) in page.tags  # not open
    table = page.text.partition("Every method against every other")[2].partition("Who beats")[0]
    for row in pairwise(three):
        assert f"{row.first} against {row.second}" in table
        assert row.p_holm is not None
        assert f"{row.p_holm:.3f}" in table or row.p_holm < 0.001
    # With two methods the ranking has it all.
    assert "against every other" not in Page(render_report(TWO)).text


def grid() -> list[Record]:
    """Make candidates whose best on validation graphs is not the best on test graphs."""
    records = []
    for method, layers, valid, tested in (
        ("vanilla", 3, 0.5, PLAIN),
        ("vanilla", 4, 0.6, PLAIN),
        ("drop-nodes", 3, 0.7, BETTER),
        ("drop-nodes:ratio=0.4", 4, 0.8, PLAIN),
    ):
        records += made_up(method, tested, layers=layers, validation={"accuracy": valid})
    return records


def test_what_was_chosen_is_told_with_what_it_was_chosen_among() -> None:
    text = Page(render_report(grid(), "validation")).text
    assert "GCS, chosen by validation" in text
    assert "drop-nodes 4 layers, ratio=0.4 58.0" in text
    assert "vanilla 4 layers 58.0" in text
    table = text.partition("What was chosen, and among what")[2]
    assert "drop-nodes:ratio=0.4 4 80.0 5 yes" in table
    assert "drop-nodes 3 70.0 5" in table
    assert "drop-nodes 3 70.0 5 yes" not in table
    assert GLOSSARY["Chosen"] in text
    assert "--select" in text
    plain = Page(render_report(grid())).text
    assert "among what" not in plain
    assert "--select" not in plain
    assert "GCS, 3 layers" in plain
    assert "GCS, 4 layers" in plain


def test_nested_selection_says_in_how_many_folds() -> None:
    records = []
    for layers, level in ((3, 0.6), (4, 0.5)):
        for inner in range(2):
            records += made_up(
                "vanilla",
                PLAIN[:3],
                folds=3,
                layers=layers,
                inner=inner,
                validation={"accuracy": level},
            )
    text = Page(render_report(records, "nested")).text
    assert "vanilla 3 60.0 6 in 3 folds" in text
    assert "--nested" in text
    first = [record for record in records if record["inner"] == 0]
    with pytest.raises(GraphTransplantError, match="nested selection has all it asks for, got 6"):
        render_report(first, "nested")


def test_an_unknown_selection_lists_the_known() -> None:
    with pytest.raises(GraphTransplantError, match="none, validation, nested; got 'test'"):
        render_report(TWO, "test")


def test_accuracy_under_attack_has_figures_of_its_own() -> None:
    attacked = [
        record
        | {
            "attacked": [
                {"budget": budget, "edges": 3, "accuracy": record["test"]["accuracy"] - budget}
                for budget in (0.2, 0.1)
            ]
        }
        for record in TWO
    ]
    (methods,) = group_records(attacked).values()
    data = attacked_data(methods)
    assert list(data) == [0.1, 0.2]
    assert [(row.method, round(row.mean, 3)) for row in data[0.2]] == [
        ("transplant-ep", 0.484),
        ("vanilla", 0.38),
    ]
    page = Page(render_report(attacked))
    assert "gcs-3--robustness" in {tags.get("id") for _, tags in page.tags}
    assert attacked_data({"vanilla": made_up("vanilla", PLAIN)}) == {}


def test_runs_of_an_official_split_are_not_called_folds() -> None:
    runs = [
        record | {"settings": settings_with(split="official"), "fold": 0, "repeat": record["fold"]}
        for record in TWO
    ]
    text = Page(render_report(runs)).text
    assert "runs of the official split 5" in text
    assert "Every run" in text
    assert "One dot per run" in text
    assert "--split official" in text


def test_the_command_repeats_what_is_not_the_default() -> None:
    def options(**changes: Any) -> list[str]:
        return repeat_command(made_up("vanilla", PLAIN, settings=settings_with(**changes)))[9:]

    assert options() == ["--metric accuracy"]
    assert options(readout="sum", attack=(0.1, 0.2)) == [
        "--metric accuracy",
        "--readout sum",
        "--attack 0.1,0.2",
    ]
    medium = {"stop_patience": 50, "decay_patience": 20, "patience_unit": "epochs"}
    assert options(**medium) == ["--metric accuracy", "--scale medium"]
    many = {"train": 30_000, "validation": 10_000, "test": 10_000}
    large = made_up("vanilla", PLAIN, settings=settings_with(**medium), sizes=many)
    assert repeat_command(large)[9:] == ["--metric accuracy"]


@pytest.mark.parametrize("name", ["enzymes-all", "enzymes-gcs4", "motifs-all"])
def test_golden_records_make_a_page(name: str, tmp_path: Path) -> None:
    text = render_report(RecordStore(unpack(name, tmp_path)).read())
    Page(text)
    assert len(svgs(text)) >= 10
    assert not re.search(r"\b(nan|inf|None|Undefined)\b", text)


# ------------------------------------------------------------------ everything a record may have

CONDITIONS = ((0.0, 1.0), (0.2, 1.0), (0.0, 0.5))


def test_a_rich_page_tells_everything_in_order() -> None:
    text = Page(render_report(rich_records())).text
    order = [
        "transplant-ep beats vanilla on ENZYMES",
        "On this page",
        "Methods ranked by mean test accuracy",
        "Who beats plain training?",
        "Learning",
        "Can its confidence be trusted?",
        "Under attack",
        "Taking salient nodes away",
        "What the models look at",
        "What the methods make",
        "Repeat it",
        "What the words mean",
    ]
    places = [text.index(words, 600 if number > 3 else 0) for number, words in enumerate(order)]
    assert places == sorted(places)
    for word in ("Temperature", "GradArgmax and random changes", "Degree distance"):
        assert GLOSSARY[word] in text
        assert GLOSSARY[word] not in Page(render_report(made_up("vanilla", PLAIN))).text


def test_conditions_are_sections_and_the_plain_one_is_the_verdict() -> None:
    records = rich_records(("vanilla", "transplant-ep"), conditions=CONDITIONS, points=4)
    page = Page(render_report(records))
    sections = [tags["id"] for tag, tags in page.tags if tag == "section" and "id" in tags]
    assert sections == [
        "gcs-3",
        "axes",
        "gcs-3-noise-20",
        "gcs-3-size-50",
        "repeat",
        "words",
    ] or sections == ["gcs-3", "axes", "gcs-3-size-50", "gcs-3-noise-20", "repeat", "words"]
    plain = [record for record in records if not {"label_noise", "train_fraction"} & set(record)]
    (heading,) = re.findall(r"<h1>(.*?)</h1>", render_report(records))
    assert heading == headline(verdicts(summarise(plain)))
    # What is not the plain condition is folded, and nobody's graphs are shown twice.
    folded = [tags for tag, tags in page.tags if tag == "details" and "open" not in tags]
    assert sum("noise" in (tags.get("id") or "") for tags in folded) >= 2
    assert page.text.count("What the models look at") == 1
    assert "GCS, 3 layers, with 20 % of the training labels wrong" in page.text
    # Where only a hard condition was run, it is what the page is about.
    hard = Page(render_report([one for one in records if one.get("label_noise")]))
    assert "axes" not in {tags.get("id") for _, tags in hard.tags}
    (finding,) = verdicts(summarise([one for one in records if one.get("label_noise")]))
    assert finding.headline in hard.text


@given(
    st.sets(
        st.tuples(
            st.sampled_from(["vanilla", "a", "b:c=1"]),
            st.sampled_from(["gcs", "gin"]),
            st.sampled_from([3, 4]),
            st.sampled_from([0.0, 0.2]),
            st.sampled_from([1, 2]),
        ),
        min_size=1,
    )
)
def test_the_commands_make_these_trials_and_no_others(
    wanted: set[tuple[str, str, int, float, int]],
) -> None:
    (one,) = made_up("vanilla", [0.5])
    records = [
        one
        | {"method": method, "model": model, "layers": layers, "repeat": repeat}
        | ({"label_noise": noise} if noise else {})
        for method, model, layers, noise, repeats in wanted
        for repeat in range(repeats)
    ]
    expected = {}
    for method, model, layers, noise, repeats in wanted:
        place = method, model, layers, noise
        expected[place] = max(expected.get(place, 0), repeats)
    made: dict[tuple[str, str, int, float], int] = {}
    for command in repeat_commands(records):
        told = dict(option.removeprefix("--").split(" ", 1) for option in command[1:])
        for method in told["methods"].split(","):
            for model in told["models"].split(","):
                for layers in told["layers"].split(","):
                    for noise in told.get("label-noise", "0").split(","):
                        place = method, model, int(layers), float(noise)
                        assert place not in made
                        made[place] = int(told["repeats"])
    assert made.keys() == expected.keys()
    # Conditions of one method share a command, and so its number of repeats.
    assert all(made[place] >= repeats for place, repeats in expected.items())


def test_one_command_is_enough_for_one_comparison() -> None:
    records = [
        record
        for model in ("gcs", "gin")
        for layers in (3, 4)
        for method in ("vanilla", "a")
        for record in made_up(method, PLAIN, model=model, layers=layers)
    ]
    assert len(repeat_commands(records)) == 1
    # Half of it stopped: the method that is missing for one model has it named apart.
    assert len(repeat_commands(records[: -len(PLAIN)])) > 1


def test_the_command_starts_torchrun_where_it_was_started() -> None:
    (record,) = made_up("vanilla", [0.5])
    record["settings"] |= {"parts": 4}
    (command,) = repeat_commands([record])
    assert command[0] == "torchrun --nproc-per-node 4 -m graph_transplant compare toy"
    assert "--engine torchrun" in command


def test_numbers_below_the_floor_are_drawn_there_and_written_as_they_are() -> None:
    records = made_up("vanilla", PLAIN) + made_up("a", BETTER)
    for record in records:
        record["settings"] |= {"metric": "r2"}
        record["test"] = {"r2": 0.5}
        record["curve"] = [
            {"epoch": epoch, "validation_score": score} for epoch, score in ((1, -7.25), (2, 0.25))
        ]
    drawn = {figure.name: figure for figure in _content(records, "none").figures}
    learning = drawn["gcs-3-learning"]
    assert learning.data is not None
    assert "-7.25" in learning.data.csv()
    assert "is drawn there" in learning.caption


def test_the_headline_does_not_credit_what_was_taken_away() -> None:
    def words(*methods: str) -> str:
        records = []
        for method, model in zip(methods, ("gcs", "gin"), strict=True):
            records += made_up("vanilla", PLAIN, model=model)
            records += made_up(method, BETTER, model=model)
        return headline(verdicts(summarise(records)))

    assert words("transplant-dp", "transplant-ep:alpha=2.0").startswith("Graph Transplant beats")
    assert words("transplant-random", "transplant-disconnected").startswith("A method beats")


def test_the_command_names_the_conditions() -> None:
    def options(conditions: Sequence[tuple[float, float]]) -> list[list[str]]:
        records = rich_records(("vanilla",), conditions=conditions, folds=2, points=2)
        return [
            [one for one in command if "label" in one or "fraction" in one]
            for command in repeat_commands(records)
        ]

    assert options(((0.0, 1.0),)) == [[]]
    assert options(((0.0, 1.0), (0.2, 1.0))) == [["--label-noise 0,0.2"]]
    assert options(((0.0, 0.1),)) == [["--train-fraction 0.1"]]
    # No product of both axes: a command for each part that is one.
    assert options(CONDITIONS) == [["--label-noise 0,0.2"], ["--train-fraction 0.5"]]
    whole = [(noise, share) for noise in (0.0, 0.2) for share in (1.0, 0.5)]
    assert options(whole) == [["--label-noise 0,0.2", "--train-fraction 1,0.5"]]
    assert "--attack 0.05,0.1,0.2" in repeat_command(rich_records(("vanilla",), folds=2))


@given(
    st.sets(
        st.tuples(st.sampled_from([0.0, 0.1, 1 / 3, 0.2]), st.sampled_from([1.0, 2 / 3, 0.1])),
        min_size=1,
    )
)
def test_the_commands_make_these_conditions_and_no_others(
    conditions: set[tuple[float, float]],
) -> None:
    (one,) = made_up("vanilla", [0.5])
    records = [one | {"label_noise": n, "train_fraction": f} for n, f in sorted(conditions)]
    made = []
    for command in repeat_commands(records):
        given_values = dict(option.removeprefix("--").split(" ", 1) for option in command[1:])
        noises = given_values.get("label-noise", "0").split(",")
        shares = given_values.get("train-fraction", "1").split(",")
        made += [(float(n), float(f)) for n in noises for f in shares]
    # Each once, and to the last digit.
    assert sorted(made) == sorted(conditions)
    rows = {frozenset(f for n, f in conditions if n == noise) for noise, _ in conditions}
    columns = {frozenset(n for n, f in conditions if f == share) for _, share in conditions}
    assert len(repeat_commands(records)) == min(len(rows), len(columns))


def test_every_command_stands_on_the_page() -> None:
    page = Page(render_report(rich_records(("vanilla",), conditions=CONDITIONS, folds=2, points=2)))
    assert page.count("pre") == 2
    assert "The same commands make" in page.text
    alone = Page(render_report(TWO))
    assert alone.count("pre") == 1
    assert "The same command makes" in alone.text


def test_facts_count_all_graphs_and_show_the_plain_split() -> None:
    records = rich_records(("vanilla",), conditions=CONDITIONS[::-1], folds=2, points=2)
    for record in records:
        if "train_fraction" in record:
            record["sizes"] = {"train": 180, "validation": 120, "test": 120, "left_out": 180}
    assert "graphs 600 folds 2 train : validation : test 360 : 120 : 120" in Page(
        render_report(records)
    ).text.replace("  ", " ")


def test_every_cell_of_the_ranking_has_the_number_to_sort_by() -> None:
    rows = {row.method: row for row in summarise(TWO)}
    page = Page(render_report(TWO))
    names = ["Accuracy, %", "Difference, points", "Effect", "p", "p (Holm)", "ECE", "Loss", "Time"]
    fields = ["score_mean", "difference", "effect", "p_value", "p_holm"]
    fields += ["ece_mean", "nll_mean", "seconds_mean"]
    cells = [tags for tag, tags in page.tags if tag == "td" and "data-value" in tags]
    assert [cell["data-name"] for cell in cells[:8]] == names
    for number, method in enumerate(("transplant-ep", "vanilla")):
        for field, cell in zip(fields, cells[8 * number : 8 * number + 8], strict=True):
            value = getattr(rows[method], field)
            assert cell["data-value"] == ("" if value is None else repr(value))


def test_graphs_of_the_records_are_drawn_and_damaged_ones_are_named() -> None:
    records = rich_records(("vanilla", "transplant-ep", "drop-nodes"), points=2)
    text = render_report(records)
    titles = re.findall(r'<svg class="graph".*?<title>(.*?)</title>', text)
    assert sum("saliency of vanilla" in title for title in titles) == 4
    assert sum("the motif that decides the class" in title for title in titles) == 4
    assert sum("Mixed graph of transplant-ep" in title for title in titles) == 2
    assert sum("Graph made by drop-nodes" in title for title in titles) == 2
    first = next(record for record in records if record.get("examples"))
    shown = first["examples"][0]
    pairs = zip(shown["saliency"], shown["motif"], strict=True)
    share = sum(value for value, inside in pairs if inside) / sum(shown["saliency"])
    told = f"{percent(share)} of its saliency in the motif"
    assert told.replace("\N{NO-BREAK SPACE}", " ") in Page(text).text
    first["examples"] = [{"kind": "saliency", "graph": NASTY}, {"kind": NASTY}, 7]
    page = Page(only_own_script(render_report(records)))
    assert page.text.count("Not drawn: ") == 3
    assert "an example in a record is damaged" in page.text


def test_maps_of_many_methods_are_those_of_the_best_and_the_rest_is_named() -> None:
    methods = ("vanilla", "transplant-ep", "transplant-dp", "drop-nodes", "mask-nodes")
    page = Page(render_report(rich_records(methods, points=2)))
    assert page.text.count("Not drawn: ") == 1
    left_out = page.text.partition("Not drawn: ")[2].partition(".")[0]
    assert sorted(left_out.split(", ")) == ["drop-nodes", "mask-nodes"]


def test_names_in_examples_are_escaped() -> None:
    records = rich_records(("vanilla", "transplant-ep"), points=2)
    for record in records:
        for example in record.get("examples", ()):
            example["names"] = [NASTY] * len(example["names"])
            for field in ("graph", "truth", "predicted", "label"):
                if field in example:
                    example[field] = NASTY
    text = only_own_script(render_report(records))
    Page(text)
    svgs(text)
    assert "onerror" not in text


# ------------------------------------------------------------------ files of the figures


def test_every_figure_is_a_file_and_its_numbers_are_another(tmp_path: Path) -> None:
    records = rich_records(models=("gcs", "gin"), conditions=CONDITIONS, points=6)
    write_report(records, tmp_path / "report.html")
    folder = tmp_path / "figures"
    drawings = sorted(folder.glob("*.svg"))
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    shown = {tags["id"] for tag, tags in page.tags if tag == "figure" and "id" in tags}
    assert shown <= {path.stem for path in drawings}
    assert len(shown) > 30
    for path in drawings:
        root = ElementTree.parse(path).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        text = path.read_text(encoding="utf-8")
        assert "var(" not in text  # other programs do not know custom properties
        assert "prefers-color-scheme: dark" in text
        assert path.with_suffix(".csv").is_file()
    (methods,) = (
        found
        for group, found in group_records(records).items()
        if group.model == "gin" and group.condition == (0.0, 1.0)
    )
    sheet = csv.DictReader(io.StringIO((folder / "gin-3-scores.csv").read_text(encoding="utf-8")))
    measured = {
        (name, str(one["repeat"]), str(one["fold"])): one["test"]["accuracy"]
        for name, trials in methods.items()
        for one in trials
    }
    written = {(row["method"], row["repeat"], row["fold"]): float(row["accuracy"]) for row in sheet}
    assert written == measured
    listed = (folder / "report.txt").read_text(encoding="utf-8").split()
    assert sorted(listed) == sorted(
        path.name for path in folder.iterdir() if path.name != "report.txt"
    )


def test_only_figures_of_the_earlier_page_are_removed(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_report(rich_records(points=2), page)
    folder = tmp_path / "figures"
    (folder / "mine.svg").write_text("mine")
    assert (folder / "gcs-3-robustness.svg").is_file()
    outside = tmp_path / "outside.svg"
    outside.write_text("kept")
    with (folder / "report.txt").open("a") as file:
        file.write("../outside.svg\n../report.html\n")
    write_report(TWO, page)
    assert not (folder / "gcs-3-robustness.svg").exists()
    assert not list(folder.glob("*map*"))
    assert (folder / "mine.svg").read_text() == "mine"
    assert outside.read_text() == "kept"
    assert page.is_file()
    assert (folder / "gcs-3-scores.svg").is_file()


LONG = "transplant-size-label:anchor_ratio=0.05:max_hops=2:alpha=1.0:concentration"


def test_methods_whose_names_begin_alike_have_files_of_their_own(tmp_path: Path) -> None:
    signs = ("drop-nodes:ratio=1", "drop-nodes:ratio=-1", "drop-nodes:ratio=1-1")
    methods = ("vanilla", f"{LONG}=1.0", f"{LONG}=2.0", *signs)
    records = rich_records(methods, points=2, folds=2)
    write_report(records, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    listed = re.findall(r"<li><code>(.*?)</code>", text)
    assert len(set(listed)) == len(listed)
    assert {path.stem for path in (tmp_path / "figures").glob("*.svg")} == set(listed)
    # What stands over the drawings tells them apart, too.
    heads = re.findall(r"<h5>.*?<bdi(?: title=\"(.*?)\")?>(.*?)</bdi></h5>", text)
    told = {(full or short, short) for full, short in heads}
    assert {full for full, _ in told} >= set(methods[1:])
    assert len({short for _, short in told}) == len(told)
    (found,) = group_records(records).values()
    names = [one.name for one in gallery(found).figures]
    assert len(set(names)) == len(names)


def test_names_are_checked_before_the_page_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Names, "claim", lambda self, wanted: "same")
    page = tmp_path / "report.html"
    page.write_text("old")
    with pytest.raises(GraphTransplantError, match=r"got twice: \['same'\]"):
        write_report(TWO, page)
    assert page.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_maps_say_which_saliency_they_show() -> None:
    text = Page(render_report(rich_records(points=2))).text
    assert "follows this node: gradient times embedding, of the prediction." in text


def test_figures_are_checked(tmp_path: Path) -> None:
    drawn = figure("T", "C", lambda width: Markup("<svg>{}</svg>").format(width), name="a")
    with pytest.raises(GraphTransplantError, match=r"got twice: \['a'\]"):
        write_figures([drawn, drawn], tmp_path)
    for name in ("", "A", "a--b", "-a", "../a", "a.svg", "a b"):
        with pytest.raises(GraphTransplantError, match="small letters, digits and single hyphens"):
            figure("T", "C", lambda width: Markup("<svg></svg>"), name=name)
    with pytest.raises(GraphTransplantError, match="for each of 2 columns, got a row of 1"):
        Table(("a", "b"), ((1,),))
    with pytest.raises(GraphTransplantError, match="must be one svg element"):
        write_figures([figure("T", "C", lambda width: Markup("<p></p>"), name="a")], tmp_path)
    assert write_figures([], tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "figures").write_text("a file")
    with pytest.raises(GraphTransplantError, match="cannot write"):
        write_figures([drawn], tmp_path / "figures")


@pytest.mark.parametrize("full", ["paper", "all methods"])
def test_a_full_table_stays_under_five_megabytes(full: str) -> None:
    # The paper's table of one data set, and every method there is.
    if full == "paper":
        methods = [name for name in METHODS if "transplant-" not in name or name[-2:] in "dp ep"]
        records = rich_records(methods[:9], models=("gcn", "gcs", "gin"), repeats=3)
    else:
        records = rich_records(list(METHODS))
    assert len(records) == (9 * 3 * 15 if full == "paper" else len(METHODS) * 5)
    page = render_report(records)
    assert len(page.encode()) < 5_000_000, len(page.encode())
    Page(page)


# ------------------------------------------------------------------ across data sets

NAMES = ("NCI1", "ENZYMES", "COLLAB", "PROTEINS", "DD", "MUTAG")


def several(
    count: int = 6, methods: Sequence[str] = ("vanilla", "drop-nodes", "transplant-ep")
) -> list[SummaryRow]:
    """Summarise data sets on which every later method is better than the one before."""
    rows = []
    for number, data in enumerate(NAMES[:count]):
        records = []
        for step, method in enumerate(methods):
            values = [value + 0.03 * step + 0.002 * number for value in PLAIN]
            records += made_up(method, values, data=data)
        rows += summarise(records)
    return rows


def a_diagram(ranks: Sequence[float], cliques: Sequence[Sequence[str]], distance: float) -> Across:
    names = tuple("abcdefghijklmnopqrstu"[: len(ranks)])
    return Across(
        "gcs",
        names,
        ("x", "y"),
        ((0.5,) * len(ranks),) * 2,
        tuple(ranks),
        0.5,
        distance,
        tuple(tuple(clique) for clique in cliques),
        (),
        (),
        "",
    )


def test_bars_span_their_methods_and_lie_apart_where_they_overlap() -> None:
    ranks = [1.2, 2.0, 2.9, 4.1, 4.8]
    data = critical_difference_data(a_diagram(ranks, ["abc", "bcd", "de"], 2.2))
    assert data.bars == ((1.2, 2.9, 0, 2), (2.0, 4.1, 1, 3), (4.1, 4.8, 3, 4))
    assert data.lanes == (0, 1, 0)
    assert critical_difference_data(a_diagram(ranks, ["ab", "bc"], 1.2)).lanes == (0, 1)
    assert critical_difference_data(a_diagram(ranks, [], 0.1)).bars == ()


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("count", [2, 5, 21])
def test_diagram_shows_every_method_at_its_rank_within_the_drawing(width: int, count: int) -> None:
    ranks = [1 + (count - 1) * number / (count - 1) for number in range(count)]
    found = a_diagram(ranks, ["ab"], 1.01)
    colours = {name: f"c{number % 9}" for number, name in enumerate(found.methods)}
    drawing = ElementTree.fromstring(
        draw_critical_difference(
            critical_difference_data(found), width=width, colours=colours, label="ranks"
        )
    )
    height = float(drawing.get("height", "nan"))
    names = [t.text for t in drawing.iter("text") if "name" in t.get("class", "").split()]
    assert sorted(name or "" for name in names) == sorted(found.methods)
    for element in drawing.iter():
        for name, most in (
            *(("x", width), ("x1", width), ("x2", width), ("cx", width)),
            *(("y", height), ("y1", height), ("y2", height), ("cy", height)),
        ):
            if (place := element.get(name)) is not None:
                assert -0.1 <= float(place) <= most + 0.1
    # Dots stand in the order of the ranks, evenly as these are here.
    across_page = [float(dot.get("cx", "nan")) for dot in drawing.iter("circle")]
    steps = [after - before for before, after in itertools.pairwise(across_page)]
    assert min(steps) > 0
    assert max(steps) - min(steps) < 0.25
    (bar,) = [line for line in drawing.iter("line") if line.get("class") == "clique"]
    if width == WIDE:
        start, end = float(bar.get("x1", "nan")), float(bar.get("x2", "nan"))
        assert start < across_page[0] < across_page[1] < end
        assert count == 2 or end < across_page[2]
    else:
        heights = [float(dot.get("cy", "nan")) for dot in drawing.iter("circle")]
        start, end = float(bar.get("y1", "nan")), float(bar.get("y2", "nan"))
        assert start < heights[0] < heights[1] < end
        assert count == 2 or end < heights[2]


def test_labels_of_the_diagram_do_not_cross() -> None:
    # The vertical part of a leader must not meet the horizontal part of another one.
    found = a_diagram([1.0, 1.5, 2.5, 4.0, 5.5, 6.0], [], 2.0)
    drawing = ElementTree.fromstring(
        draw_critical_difference(
            critical_difference_data(found),
            width=WIDE,
            colours=dict.fromkeys(found.methods, "c1"),
            label="ranks",
        )
    )
    leaders = []
    for line in drawing.iter("polyline"):
        points = [tuple(map(float, point.split(","))) for point in line.get("points", "").split()]
        (x, top), (_, bottom), (end, _) = points
        leaders.append((x, top, bottom, end))
    assert len(leaders) == 6
    for x, top, bottom, _ in leaders:
        for other, _, level, end in leaders:
            if other != x:
                low, high = sorted((other, end))
                assert not (low < x < high and top < level < bottom)


def test_a_critical_difference_longer_than_the_axis_is_told_in_words() -> None:
    for width in (WIDE, NARROW):
        text = draw_critical_difference(
            critical_difference_data(a_diagram([1.0, 2.0], ["ab"], 1.4)),
            width=width,
            colours={"a": "c0", "b": "c1"},
            label="ranks",
        )
        assert "CD = 1.40, longer than the axis" in text


def test_the_page_across_data_sets_has_verdict_ranks_diagram_and_each_data_set() -> None:
    rows = several()
    found = across(rows)
    page = Page(render_across(found, rows))
    text = page.text.replace("\u00a0", " ")
    (one,) = found
    order = [
        "Comparison across COLLAB, DD, ENZYMES, MUTAG, NCI1, PROTEINS",
        one.sentence,
        "Each data set by itself:",
        "Methods by average rank",
        "Who ranks where?",
        "Mean test scores in %",
        "COLLAB: GCS, 3 layers",
        "What the words mean",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert "transplant-ep 1.00 6 : 0 : 0 +6.0" in text
    scores = render_across(found, rows).partition("Mean test scores")[2].partition("</table>")[0]
    assert scores.count("<td><b>") == len(NAMES)  # transplant-ep is the best on each
    assert scores.count("<td>") == 3 * len(NAMES)
    for data in NAMES:
        assert f"{data}: GCS, 3 layers" in text
    for word in ("Average rank", "Critical difference", "Wilcoxon’s test", "Difference"):
        assert GLOSSARY[word] in page.text
    assert len(svgs(render_across(found, rows))) == 2
    # p is 2 / 2^6 with six wins of six, twice that after Holm's correction over two methods.
    assert "transplant-ep 1.00 6 : 0 : 0 +6.0 0.031 0.062" in text
    assert "<h1>No method beats vanilla significantly across 6 data sets</h1>" in render_across(
        found, rows
    )


def test_a_method_that_wins_everywhere_is_the_headline() -> None:
    rows = several(6, ("vanilla", "transplant-ep"))
    assert "<h1>transplant-ep beats vanilla across 6 data sets</h1>" in render_across(
        across(rows), rows
    )
    without = several(3, ("drop-nodes", "transplant-ep"))
    assert "<h1>Methods compared across 3 data sets</h1>" in render_across(across(without), without)


def test_methods_that_a_data_set_lacks_are_named() -> None:
    rows = [row for row in several(3) if (row.data, row.method) != ("ENZYMES", "drop-nodes")]
    text = Page(render_across(across(rows), rows)).text
    assert "Left out, because not every data set has them finished: drop-nodes." in text


def test_names_on_the_page_across_data_sets_are_escaped() -> None:
    rows = []
    for data in (NASTY, "plain"):
        records = made_up("vanilla", PLAIN, data=data, model=NASTY)
        rows += summarise([*records, *made_up(NASTY, BETTER, data=data, model=NASTY)])
    text = only_own_script(render_across(across(rows), rows))
    page = Page(text)
    assert "alert(" in page.text
    svgs(text)
    assert "https:" not in text
    assert "url(" not in text


def test_the_page_across_data_sets_is_written_whole(tmp_path: Path) -> None:
    rows = several(2)
    path = tmp_path / "across.html"
    write_across(across(rows), rows, path)
    assert path.read_text(encoding="utf-8") == render_across(across(rows), rows)
    with pytest.raises(GraphTransplantError, match="at least one model, got none"):
        write_across([], rows, path)
    assert path.read_text(encoding="utf-8") == render_across(across(rows), rows)
