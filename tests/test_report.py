"""The report: numbers first, then drawings, then one page that needs nothing else."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_transplant.augment import METHODS
from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.protocol import Record
from graph_transplant.experiments.statistics import holm
from graph_transplant.experiments.summary import group_records, summarise, verdicts
from graph_transplant.report import render_report, write_report
from graph_transplant.report.figures import curves_data, differences_data, scores_data
from graph_transplant.report.html import METHOD_NOTES, headline, repeat_command
from graph_transplant.report.svg import padded, spaced, swarm, ticks

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


class Page(HTMLParser):
    """Checks that tags are balanced and collects what a test may ask for."""

    VOID = frozenset({"meta", "br", "hr", "img", "link", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def svgs(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(part) for part in re.findall(r"<svg.*?</svg>", page, re.S)]


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
    assert "--epochs 100" in text
    assert "9.8.7" in text
    assert "0f" * 32 in text


def test_the_page_needs_nothing_from_elsewhere_and_runs_no_script() -> None:
    text = render_report(TWO)
    page = Page(text)
    assert "http:" not in text
    assert "https:" not in text
    assert "url(" not in text
    assert "@import" not in text
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "img", "iframe", "object", "embed"}
    for _, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        assert "src" not in attributes


def test_every_figure_is_drawn_for_desk_and_phone_and_says_in_words_what_it_shows() -> None:
    drawings = svgs(render_report(TWO))
    assert len(drawings) == 10
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
    assert "<script" not in text
    # `model` is shown in capitals, `source` quoted for a shell.
    assert "alert(" in page.text.lower()
    assert "🧬" in page.text
    svgs(text)


def test_settings_are_escaped_too() -> None:
    settings = {"folds": 5, "epochs": 100, "batch_size": 16, "seed": NASTY, NASTY: "<b>"}
    text = render_report(made_up("vanilla", PLAIN, settings=settings))
    assert "<script" not in text
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
    assert links == {"#model-1", "#model-2"}
    assert {"model-1", "model-2"} <= targets


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
    assert [item.name for item in tmp_path.iterdir()] == ["report.html"]


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
