"""The page of a comparison: what it says, what lies beside it, and that no name breaks it."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from graph_transplant.figures import CHARTS, Chart, networks
from graph_transplant.report import notebook_html, render_report, write_report
from graph_transplant.results.calls import Asked, Call
from graph_transplant.results.record import TrialRecord
from graph_transplant.results.results import Results
from graph_transplant.utils.schema import plain
from helpers.made_up_records import (
    BETTER,
    FEW,
    NO_NETWORK,
    NOISY,
    PLAIN,
    UNSURE,
    WORSE,
    made_up,
)
from helpers.page_samples import (
    NASTY,
    Page,
    changed,
    check_harmless,
    check_self_contained,
    golden,
    rich,
)

COMMAND = "graph-transplant compare toy --methods vanilla,drop-edge --folds 5 --repeats 1"
TOY = Call(
    "toy",
    options={"methods": ["vanilla", "drop-edge"]},
    asked=Asked(("vanilla", "drop-edge"), ("gcs",), (3,)),
)


def two(**changes: object) -> list[dict]:
    return made_up("vanilla", PLAIN, **changes) + made_up("drop-nodes", BETTER, **changes)


def page_of(records: object, selection: str = "none", **given: object) -> Page:
    return Page(render_report(Results(records, selection, **given)))


@pytest.fixture(scope="module")
def rich_page() -> str:
    return render_report(Results(rich()))


@pytest.fixture(scope="module")
def conditions() -> str:
    return render_report(Results(list(golden("motifs-conditions"))))


# -------------------------------------------------------------------- what it says


def test_the_table_has_five_columns_and_says_what_they_mean() -> None:
    text = render_report(Results(two()))
    (table,) = re.findall(r'<table class="ranking sortable">.*?</table>', text, re.S)
    heads = re.findall(r'<th scope="col"(?: title="([^"]*)")?[^>]*>([^<]*)</th>', table)
    titles = ["Method", "Accuracy, %", "Difference, points", "p", "Time"]
    assert [title for _, title in heads] == titles
    assert all(definition for definition, title in heads if title != "Method")
    cells = re.findall(r'data-name="([^"]*)" data-value="([^"]*)"', table)
    assert [name for name, _ in cells] == titles[1:] * 2
    values = [float(value) for name, value in cells if name == "Accuracy, %"]
    assert values == pytest.approx([sum(BETTER) / 5, sum(PLAIN) / 5])
    # The others are folded, with their definitions.
    (more,) = re.findall(r"<summary>More columns</summary>.*?</details>", text, re.S)
    assert {"Effect", "p (uncorrected)", "ECE", "AUROC"} <= set(
        re.findall(r'data-name="([^"]*)"', more)
    )
    assert len(re.findall(r'<th scope="col" title="[^"]{20,}"', more)) >= 4


def test_what_next_has_a_command_with_enough_repeats(tmp_path: Path) -> None:
    records = made_up("vanilla", PLAIN) + made_up("drop-edge", [0.62, 0.65, 0.78, 0.56, 0.69])
    results = Results(records, calls=[TOY])
    (verdict,) = results.verdicts.values()
    assert f"About {verdict.repeats} repeats" in verdict.next
    page = Page(render_report(results))
    wanted = f"graph-transplant compare toy --methods vanilla,drop-edge --repeats {verdict.repeats}"
    assert f"{verdict.next} {wanted}" in page.text
    assert "What next" in page.text
    assert "graph-transplant train toy --recipe paper --model gcs --method vanilla" in page.text
    assert f" {TOY.compare()} " in page.text.partition("Reproduce")[2]
    # Of earlier versions, the commands are shown as they were noted; without a note there is none.
    (tmp_path / "commands.txt").write_text(f"{COMMAND}\n", encoding="utf-8")
    noted = page_of(records, directory=tmp_path).text
    assert f" {COMMAND} " in noted.partition("Reproduce")[2]
    assert "graph-transplant" not in noted.partition("What next")[2].partition("Reproduce")[0]
    assert "graph-transplant compare" not in page_of(records).text


def test_what_next_after_a_gain_is_to_train_with_the_best() -> None:
    odd = replace(TOY, data="my data; rm -rf $HOME.csv")
    train = "graph-transplant train 'my data; rm -rf $HOME.csv' --recipe paper --model gcs"
    assert f"{train} --method drop-nodes" in page_of(two(), calls=[odd]).text
    # The command line does not know methods and networks of one's own.
    own = made_up("vanilla", PLAIN) + made_up("mine", BETTER)
    for records in (own, [changed(record, model="net") for record in two()]):
        assert "graph-transplant train" not in page_of(records, calls=[TOY]).text
    alone = page_of(made_up("vanilla", PLAIN))
    assert "Add another method to compare." in alone.text
    assert "vanilla reaches a mean accuracy of 58.0 % on toy" in alone.text


def test_what_next_trains_as_the_comparison_did() -> None:
    reading = {"smiles": "my mol", "target": "y", "id": "a,b", "largest_fragment": True}
    options = {"epochs": 100, "balance": True, "readout": "sum", "metric": "accuracy"}
    call = replace(TOY, data="t.csv", reading=reading, options=options)
    deep = [changed(record, layers=4) for record in two()]
    asked = replace(TOY.asked, layers=(4,))
    text = page_of(deep, calls=[replace(call, asked=asked)]).text
    read = "train t.csv --smiles 'my mol' --target y --id a,b --largest-fragment"
    how = "--recipe paper --model gcs --layers 4 --method drop-nodes --epochs 100 --split random"
    assert f"{read} {how} --balance --readout sum --metric accuracy" in text


def test_one_harder_condition_is_told_in_whole() -> None:
    records = [record for record in golden("motifs-conditions") if record.train_fraction < 1]
    one = min(record.train_fraction for record in records)
    page = Page(render_report(Results([r for r in records if r.train_fraction == one])))
    assert "Saliency maps" in page.text
    assert "Learning" in page.text


def test_models_and_conditions_are_sections_and_the_plain_one_leads(conditions: str) -> None:
    page = Page(conditions)
    titles = re.findall(r"<h2>(GCS[^<]*)</h2>", conditions)
    assert titles[0] == "GCS, 3 layers"
    assert len(titles) == 5
    assert "GCS, 3 layers, with 20 % of the training labels wrong" in titles
    assert page.values("class").count("harder") == 4
    assert "on motifs (with 20 % of the training labels wrong)" in page.text
    assert "Label noise and training-set size" in page.text
    assert {"Label noise", "Training-set size"} <= set(re.findall(r"<h4>([^<]*)</h4>", conditions))
    harder = page_of(two() + two(**NOISY) + two(**FEW))
    assert "drop-nodes beats vanilla on toy by 10.4 points" in harder.text.partition("What next")[0]


def test_the_network_with_the_finding_leads_and_is_named() -> None:
    gcs = made_up("vanilla", PLAIN) + made_up("drop-nodes", UNSURE)
    both = replace(TOY, asked=replace(TOY.asked, models=("gcs", "gin")))
    page = page_of([*gcs, *two(model="gin")], calls=[both])
    assert "gin-3: drop-nodes beats vanilla on toy by 10.4 points. drop-nodes: +10.4" in page.text
    assert page.text.lstrip().startswith("drop-nodes beats vanilla in 1 of 2 comparisons")
    assert "--model gin --method drop-nodes" in page.text
    # "Nothing that was tried beats it" is not said where another network does.
    forest = made_up("forest", [value + 0.05 for value in PLAIN], **NO_NETWORK)
    assert "simplest choice" not in page_of([*gcs, *two(model="gin"), *forest]).text


def test_charts_of_conditions_name_their_network_and_start_from_the_easiest() -> None:
    shares = [{**FEW, "train_fraction": share} for share in (0.5, 0.1)]
    records = [
        changed(record, **changes)
        for model in ("gcs", "gin")
        for changes in [{**few, **noise} for few in shares for noise in ({}, NOISY)]
        for record in made_up("vanilla", PLAIN, model=model) + made_up("a", UNSURE, model=model)
    ]
    poor = {"accuracy": 0.3}
    page = page_of([replace(r, test=poor) if r.train_fraction == 0.1 else r for r in records])
    title = "No method is shown to be better than vanilla in 2 comparisons (on 50 % of the training"
    assert page.text.lstrip().startswith(title)
    assert page.text.count("gcs-3: Conditions") == page.text.count("gin-3: Conditions") == 1
    first = next(iter(networks(Results(records)).values()))
    data = CHARTS["label_noise"].data(first)
    assert data["mean"].tolist() == pytest.approx([0.58, 0.58, 0.60, 0.60])


def test_selected_rows_say_what_was_chosen() -> None:
    records = [
        *made_up("vanilla", PLAIN),
        *made_up("vanilla", WORSE, layers=2),
        *made_up("drop-nodes:ratio=0.4", BETTER, layers=4),
        *made_up("drop-nodes:ratio=0.1", UNSURE),
    ]
    page = page_of(records, "validation", calls=[TOY])
    assert "trials 20" in page.text, "those that chose count"
    assert "drop-nodes 4 layers, ratio=0.4 " in page.text
    assert "--model gcs --layers 4 --method drop-nodes:ratio=0.4 " in page.text
    assert "GCS, chosen by validation" in page.text


def test_undefined_numbers_are_not_printed() -> None:
    records = two(test={"accuracy": 0.5, "ece": None, "nll": None, "auroc": None})
    page = page_of([*records, *made_up("alone", [0.5], fold=3)])
    assert not re.search(r"\b(nan|NaN|None|inf)\b", page.text)


def test_a_rich_page_folds_everything_but_the_ranking(rich_page: str) -> None:
    page = check_self_contained(rich_page)
    groups = re.findall(r"<summary><h3>([^<]*)</h3></summary>", rich_page)
    for title in ("Every trial", "Learning", "Reliability diagram", "Under attack", "Saliency",
                  "Training time", "Degree distance of augmented graphs", "The edge predictor",
                  "Saliency maps", "Augmented graphs", "Settings",
                  "Methods and columns"):  # fmt: skip
        assert groups.count(title) == 1, title
    assert [a for tag, a in page.tags if tag == "details" and "open" in a] == []
    # Every picture says what it shows.
    for tag, given in page.tags:
        if tag == "svg" and given.get("aria-hidden") != "true":
            assert (given["role"], bool(given["aria-label"])) == ("img", True)
    # Methods are explained.
    assert "transplant-ep" in page.text.partition("Methods and columns")[2]


def test_drawn_examples_name_methods_and_what_is_damaged(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    records = rich("vanilla", "transplant-dp")
    records[0] = changed(records[0], examples=[{"kind": "saliency", "graph": "x"}])
    text = render_report(Results(records))
    page = Page(text)
    assert "Not drawn: " in page.text
    assert 'aria-label="Mixed graph: Graph of' in text
    assert re.search(r"\d % class \d", page.text)
    # Of many methods the reference and the best are drawn, the rest is named.
    several = golden("paper-quick-enzymes")
    many = [
        changed({k: v for k, v in plain(record).items() if k in PLAINLY}, examples=examples)
        for record in several
        if record.model == "gcs" and (examples := record.examples[:1])
    ]
    found = Page(render_report(Results(many)))
    assert re.search(r"Not drawn: [a-z-]+, [a-z-]+", found.text)
    assert (caplog.records, capfd.readouterr()) == ([], ("", ""))


PLAINLY = {
    *("data", "source", "fingerprint", "method", "model", "layers", "repeat", "fold", "test"),
    *("validation", "sizes", "settings", "seconds", "epochs", "best_epoch"),
}


@pytest.mark.parametrize("name", ["bace-scaffold", "tox21-scaffold"])
def test_committed_comparisons_have_a_page(name: str) -> None:
    results = Results(list(golden(name)))
    page = Page(render_report(results))
    assert next(iter(results.verdicts.values())).headline in page.text
    assert page.count("svg") >= 4


# -------------------------------------------------------------------- safety


def hostile(name: str) -> list[TrialRecord]:
    settings = {"folds": 5, "epochs": 100, name[:100]: name}
    return [
        changed(record, settings=settings, curve=curve(record))
        for record in two(data=name, source=name, fingerprint=name, model=name)
        + made_up(name, UNSURE, data=name, source=name, fingerprint=name, model=name)
    ]


def curve(record: TrialRecord) -> list[dict]:
    score = record.test["accuracy"]
    return [{"epoch": epoch, "validation_accuracy": score * epoch / 9} for epoch in (1, 5, 9)]


@pytest.fixture(scope="module")
def usual() -> Page:
    return Page(render_report(Results(hostile("usual"))))


@pytest.mark.parametrize("kind", NASTY)
def test_no_name_breaks_a_page(kind: str, usual: Page, tmp_path: Path) -> None:
    name = NASTY[kind]
    write_report(Results(hostile(name)), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = check_harmless(text, usual)
    assert name.strip() in page.text or kind != "template"
    drawings = list((tmp_path / "figures").glob("*.svg"))
    assert len(drawings) >= 3
    for path in drawings:
        assert not [e for e in ElementTree.parse(path).iter() if "script" in str(e.tag)]
    for path in (tmp_path / "figures").iterdir():
        assert re.fullmatch(r"[a-z0-9-]{1,120}\.(svg|csv)", path.name)


def test_the_same_records_in_any_order_give_the_same_page(rich_page: str) -> None:
    assert render_report(Results(rich()[::-1])) == rich_page


# -------------------------------------------------------------------- files


def test_figures_lie_beside_the_page(tmp_path: Path) -> None:
    write_report(Results(rich("vanilla", "transplant-dp")), tmp_path / "report.html")
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert names == {f"{name[:-4]}.{ending}" for name in names for ending in ("svg", "csv")}
    assert {"gcs-3-forest.svg", "gcs-3-scores.csv", "gcs-3-robustness.svg"} <= names


def test_two_pages_side_by_side(tmp_path: Path) -> None:
    write_report(Results(two()), tmp_path / "report.html")
    before = {path: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    text = write_report(Results(two()), tmp_path / "other.html").read_text(encoding="utf-8")
    assert {path: path.read_bytes() for path in (tmp_path / "figures").iterdir()} == before
    assert (tmp_path / "other-figures" / "gcs-3-forest.svg").is_file()
    # The same page under another name differs in that alone.
    assert text.replace("other-figures", "figures") == (tmp_path / "report.html").read_text("utf-8")


def test_a_figure_from_outside_is_on_the_page_and_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def data(results: Results):
        return results.frame.groupby("method", as_index=False)["epochs"].mean()

    def draw(results: Results, table, ax, colours):
        ax = Figure().subplots() if ax is None else ax
        ax.bar(range(len(table)), table["epochs"], color=table["method"].map(colours))
        return ax

    toy = Chart("How long?", "Mean number of epochs.", draw, data, "Toys")
    monkeypatch.setitem(CHARTS, "epochs", toy)
    assert Results(two()).plot.epochs().patches
    text = write_report(Results(two()), tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<summary><h3>How long?</h3></summary>" in text
    assert "<h4>How long?</h4>" not in text  # a single chart has one heading
    assert "<figcaption>Mean number of epochs.</figcaption>" in text
    assert (tmp_path / "figures" / "gcs-3-epochs.svg").is_file()
    assert (tmp_path / "figures" / "gcs-3-epochs.csv").read_text().startswith("method,epochs\n")


# -------------------------------------------------------------------- notebooks, data sets


def test_notebooks_show_verdict_table_and_picture() -> None:
    results = Results(made_up("vanilla", PLAIN) + made_up("<b>$x$", BETTER))
    text = results._repr_html_()
    assert text == notebook_html(results)
    page = Page(text)
    assert "<b>$x$ beats vanilla on toy by 10.4 points" in page.text
    assert page.values("alt") == ["Difference to vanilla"]
    (source,) = page.values("src")
    assert base64.b64decode(source.partition("base64,")[2])[:4] == b"\x89PNG"
