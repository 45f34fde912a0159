"""The pages about one model: what they say, and that nothing in the data can break them."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graph_transplant.errors import GraphTransplantError
from graph_transplant.graphs import Skipped
from graph_transplant.report.html import render_report
from graph_transplant.report.pages import (
    MEASURES,
    render_card,
    render_explanations,
    render_gallery,
    write_card,
    write_explanations,
    write_gallery,
)
from graph_transplant.trained.description import check_description
from graph_transplant.trained.explanation import ExplainedRows, Structure
from page_samples import (
    NASTY,
    PHENOL,
    card,
    explanation,
    mixture,
    nasty_card,
    nasty_explanation,
    records,
    view,
)
from page_samples import Page as Parsed


class Page(Parsed):
    """Joins the pieces of a word as a browser does."""

    ENDS_A_WORD = frozenset({"p", "dt", "dd", "th", "td", "li", "h1", "h2", "h3", "caption"})

    def handle_endtag(self, tag: str) -> None:
        super().handle_endtag(tag)
        if tag in self.ENDS_A_WORD:
            self.words.append(" ")

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.words)).replace("\u00a0", " ")


# -------------------------------------------------------------------- safety


PAGES: dict[str, Callable[[str], str]] = {
    "classes": lambda name: render_card(nasty_card(name)),
    "labels": lambda name: render_card(nasty_card(name, "multilabel")),
    "values": lambda name: render_card(nasty_card(name, "regression")),
    "explanations": lambda name: render_explanations(
        ExplainedRows((nasty_explanation(name),) * 2, (Skipped(3, name, name),), name)
    ),
    "gallery": lambda name: render_gallery([mixture(name)] * 2),
    "comparison": lambda name: render_report(records(name, name, name)),
}
HARMLESS = {
    *("html", "head", "meta", "title", "style", "body", "main", "header", "footer", "section"),
    *("article", "aside", "figure", "figcaption", "div", "p", "span", "h1", "h2", "h3", "ul"),
    *("li", "dl", "dt", "dd", "b", "small", "bdi", "code", "pre", "var", "sub", "a"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary"),
    *("svg", "desc", "path", "circle", "rect", "line", "polyline", "polygon", "text"),
}
# A comparison has further headings, and one script of our own that sorts its table.
MORE = {"comparison": {"h4", "nav", "ol", "button", "script"}}


@pytest.mark.parametrize(
    ("kind", "name"),
    [(k, n) for k in PAGES for n in NASTY],
)
def test_no_name_breaks_a_page(kind: str, name: str) -> None:
    text = PAGES[kind](NASTY[name])
    page = Page(text)
    ordinary = Page(PAGES[kind]("ordinary"))
    # The same elements stand on the page whatever the data are called, in the same order, but for
    # the notes about long names; and no attribute can run a script.
    assert {tag for tag, _ in page.tags} <= HARMLESS | MORE.get(kind, set())
    assert page.count("script") == ordinary.count("script")
    assert page.count("section") == ordinary.count("section")
    assert page.count("article") == ordinary.count("article")
    assert page.count("style") == 1
    for _, attributes in page.tags:
        assert not [key for key in attributes if key.startswith("on")]
        assert set(attributes) & {"src", "srcset", "action", "formaction", "data"} == set()
        assert (attributes.get("href") or "#").startswith("#")
    assert "49" not in page.text or name != "template"
    assert text.encode("utf-8")
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", text)


@pytest.mark.parametrize("kind", ["classes", "explanations", "gallery"])
def test_names_are_shown_as_they_are(kind: str) -> None:
    name = '<b>&"quoted"\''
    assert name in Page(PAGES[kind](name)).text


@pytest.mark.parametrize("kind", ["classes", "explanations", "gallery"])
def test_long_names_are_cut_with_the_whole_at_hand(kind: str) -> None:
    page = Page(PAGES[kind](NASTY["long"]))
    assert max(map(len, page.text.split())) <= 400 or kind == "classes"
    assert any(len(attributes.get("title") or "") >= 10_000 for _, attributes in page.tags)


@pytest.mark.parametrize("kind", PAGES)
def test_pages_need_nothing_else(kind: str) -> None:
    text = PAGES[kind]("plain")
    page = Page(text)
    (policy,) = [
        attributes["content"]
        for tag, attributes in page.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    assert "default-src 'none'" in policy
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    if kind == "comparison":
        # Nothing but the very script that stands there may run.
        (script,) = scripts
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert re.findall(r"script-src ([^;]*);", policy) == [f"'sha256-{digest}'"]
    else:
        assert not scripts
        assert "script-src" not in policy
    assert text.count("<script") == len(scripts)
    assert not re.search(r"https?://|url\(|@import|javascript:", text)
    assert page.tags[0] == ("html", {"lang": "en"})
    assert page.count("h1") == page.count("main") == 1
    assert text == PAGES[kind]("plain")


def test_no_torch_is_needed_to_write_a_card() -> None:
    code = "import sys, graph_transplant.report.pages; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_pages_are_written_whole(tmp_path: Path) -> None:
    write_card(card(), tmp_path / "card.html")
    write_explanations([explanation()], str(tmp_path / "explain.html"))
    write_gallery([mixture("half\ud800")], tmp_path / "gallery.html")
    for name in ("card", "explain", "gallery"):
        assert (tmp_path / f"{name}.html").read_text(encoding="utf-8").endswith("</html>")
    with pytest.raises(GraphTransplantError, match="cannot write"):
        write_card(card(), tmp_path / "missing" / "card.html")


# -------------------------------------------------------------------- explanations


def test_explanations_say_what_models_say() -> None:
    page = Page(render_explanations([explanation()], data="some/where/bace.csv"))
    for words in (
        "Explanations for bace.csv",
        "BACE_1",
        "7 atoms, 7 bonds · true label: active",
        "Oc1ccccc1",
        "Says active right",
        "87 % sure",
        "Says inactive wrong",
        "transplant-ep: right 1 of 1",
        "vanilla: right 0 of 1",
    ):
        assert words in page.text, words
    shares = view(PHENOL).share
    assert f"Most salient: O 1 {100 * shares[0]:.1f} %, C 2 {100 * shares[1]:.1f} %" in page.text
    bars = [a["style"] for _, a in page.tags if "style" in a]
    assert bars == ["width:87.0%"] * 2


def test_one_model_needs_no_name_over_its_drawings() -> None:
    text = render_explanations([explanation(views=(view(PHENOL),))])
    assert Page(text).count("h3") == 0
    assert 'class="sheets"' in text
    assert 'class="sheets"' not in render_explanations([explanation()])


def test_values_have_no_confidence() -> None:
    seen = view(PHENOL, label="pIC50 7.2", confidence=None, correct=None, output="pIC50")
    text = render_explanations([explanation(truth="pIC50 6.9", views=(seen,))])
    page = Page(text)
    assert "Predicted pIC50 7.2" in page.text
    assert "true value: pIC50 6.9" in page.text
    assert "Drawn for pIC50" in page.text
    assert "sure" not in page.text
    assert 'class="bar"' not in text


def test_bare_numbers_are_called_classes() -> None:
    seen = view(PHENOL, label="1", output="1")
    page = Page(render_explanations([explanation(truth="0", views=(seen,))]))
    assert "true label: class 0" in page.text
    assert "Says class 1" in page.text
    assert "Drawn for" not in page.text


def test_the_page_says_which_saliency_it_draws() -> None:
    embedding = Page(render_explanations([explanation(views=(view(PHENOL),))])).text
    assert "would change without the embedding of this atom" in embedding
    assert "the gradient times the embedding" in embedding
    assert "norm of the gradient" not in embedding
    seen = view(PHENOL, kind="gradient")
    gradient = Page(render_explanations([explanation(views=(seen,))])).text
    assert "would change if the embedding of this atom moved a little" in gradient
    assert "the norm of the gradient, as in the paper" in gradient
    assert "without the embedding" not in gradient
    assert "times the embedding" not in gradient


def test_unknown_truth_is_left_out() -> None:
    seen = view(PHENOL, correct=None)
    page = Page(render_explanations([explanation(truth=None, views=(seen,))]))
    assert "true label" not in page.text
    assert "Model transplant-ep" in page.text


def test_what_could_not_be_read_is_told() -> None:
    skipped = (Skipped(2, "B", "the SMILES cannot be parsed"),)
    page = Page(render_explanations(ExplainedRows((explanation(),), skipped, "a.csv")))
    assert "Row 2 (B) could not be read: the SMILES cannot be parsed" in page.text
    with pytest.raises(GraphTransplantError, match=r"got none \(row 2: the SMILES"):
        render_explanations(ExplainedRows((), skipped, "a.csv"))
    with pytest.raises(GraphTransplantError, match=r"at least one graph, got none$"):
        render_explanations([])


def test_large_graphs_are_told_to_be_cut() -> None:
    nodes = 501
    edges = tuple((k, k + 1) for k in range(nodes - 1))
    path = Structure(("",) * nodes, edges, (1.0,) * len(edges), molecule=False, directed=False)
    page = Page(render_explanations([explanation(structure=path, views=(view(path),))]))
    assert "only the first 500 are drawn" in page.text
    assert "Graph of 501 nodes, of which the first 500 are drawn" in page.text
    assert "501 nodes, 500 edges, of which the first 500 nodes are drawn" in page.text
    assert "first 500" not in Page(render_explanations([explanation()])).text


# -------------------------------------------------------------------- gallery


def test_the_gallery_shows_shares_and_weight() -> None:
    text = render_gallery([mixture(), mixture()])
    page = Page(text)
    for words in (
        "transplant-ep on bace",
        "1 active →into inactive",
        "I(Sπ, V̄π) = 0.61",
        "I(S, V \\ V̄) = 0.40",
        "λ = 0.60 60.4 % active, 39.6 % inactive",
        "1 new bond",
        "7 · active",
        "Saliency and edges come from a small model.",
        "how much of its saliency",
    ):
        assert words in page.text, words
    assert page.count("article") == 2
    assert text.count('role="img"') == 6
    sizes = Page(render_gallery([mixture(method="transplant-size-label")]))
    assert "how many of its nodes" in sizes.text
    with pytest.raises(GraphTransplantError, match="at least one mixed graph, got none"):
        render_gallery([])


def test_values_are_mixed_in_words() -> None:
    page = Page(render_gallery([mixture(labels=(), label="pIC50 6.61")]))
    assert "λ = 0.60 pIC50 6.61" in page.text


# -------------------------------------------------------------------- model card


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
def test_the_sample_is_a_description(task: str) -> None:
    check_description(card(task), "sample")


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (
            "multiclass",
            (
                "Predicts Class of a molecule, trained on bace",
                "On 152 test molecules that training never saw, given one molecule with the label",
                "and one without, it ranks them rightly 81 times in 100: AUROC 0.810 (95 %",
                "interval 0.740 to 0.870).",
                "Which classes does it confuse?",
                "inactive 822 54.3 %",
                "Can its confidence be trusted?",
                "How well does it rank?",
                "divided by 1.34",
            ),
        ),
        (
            "multilabel",
            (
                "Predicts 3 labels of a molecule",
                "3 labels, yes or no each",
                # Of those that were measured for the label, not of all.
                "NR-AR 90 6 %",
                "NR-ER 40 10 %",
                "SR-p53 300 25 %",
                "their share of those it was measured for",
            ),
        ),
        (
            "regression",
            (
                "Predicts pIC50 of a molecule",
                "it explains 52 % of the variation: R² 0.520",
                "Predictions are given with ±1.4, which holds for nine in ten molecules",
                "here it holds for 100 %.",
                "RMSE",
                "1 number",
            ),
        ),
    ],
)
def test_the_card_speaks_plainly(task: str, words: tuple[str, ...]) -> None:
    page = Page(render_card(card(task)))
    for some in words:
        assert some in page.text, some
    for key in card(task)["metrics"]["test"]:
        assert MEASURES[key][0] in page.text
        assert MEASURES[key][1] in page.text
    for some in (
        "Molecules that share a Bemis–Murcko scaffold",
        "3 rows of the data could not be used",
        "Only 152 molecules were held out",
        "the weights of epoch 41 were kept",
        "5 min 12 s",
        "graph-transplant predict MODEL new.csv --out predictions.csv",
        "The table needs a column mol",
        "graph-transplant train bace.csv.gz",
        "--smiles mol",
        "--split scaffold",
        "ab" * 32,
    ):
        assert some in page.text, some


def test_every_figure_of_the_card_is_drawn_twice() -> None:
    text = render_card(card())
    assert Page(text).count("figure") == 4
    assert text.count("<svg") == 8
    assert Page(render_card(card("regression"))).count("figure") == 3


def test_shades_of_the_confusion_matrix_are_shares_of_its_rows() -> None:
    page = Page(render_card(card()))
    cells = [(a["class"], a["style"]) for tag, a in page.tags if tag == "td" and "style" in a]
    assert cells == [
        ("hit", "--share:0.833"),
        ("miss", "--share:0.167"),
        ("miss", "--share:0.250"),
        ("hit", "--share:0.750"),
    ]


def test_classes_that_are_numbers_are_called_classes_on_the_card() -> None:
    made = card(label_names=["0", "1"], roc={"1": [[0.0, 0.0], [1.0, 1.0]]})
    page = Page(render_card(made))
    assert "class 0 822 54.3 %" in page.text
    assert "class 1 20 60" in page.text  # a row of the confusion matrix


def test_many_classes_are_told_by_their_mistakes() -> None:
    names = [f"c{k}" for k in range(30)]
    table = [[5 if a == b else 0 for b in range(30)] for a in range(30)]
    table[3][7], table[2][1] = 9, 4
    data = {**card()["data"], "class_counts": [50] * 30}
    page = Page(render_card(card(label_names=names, confusion=table, roc=None, data=data)))
    assert "Its most frequent mistakes" in page.text
    assert re.search(r"c3\s*c7\s*9.*c2\s*c1\s*4", page.text)
    assert "Which classes" not in page.text
    assert "18 further classes" in page.text


def test_a_model_without_a_test_set_says_so() -> None:
    made = card()
    made["training"]["sizes"]["test"] = 0
    made["metrics"] |= {"test": {}, "test_uncalibrated": {}, "intervals": {}}
    made |= {"reliability": None, "confusion": None, "roc": None}
    page = Page(render_card(made))
    assert "No molecules were held out for testing" in page.text
    assert "Measured on the validation molecules" in page.text
    assert "Uncalibrated" not in page.text


def test_what_is_not_defined_is_a_dash() -> None:
    made = card()
    made["metrics"]["test"] |= {"auroc": None, "accuracy": 0.5}
    made["metrics"]["intervals"] = {"auroc": [None, None]}
    page = Page(render_card(made))
    assert re.search(r"AUROC How often .*? – – ", page.text)
    assert "50 % of its predictions are right" in page.text


def test_unequal_classes_and_balance_are_told() -> None:
    made = card(data={**card()["data"], "class_counts": [1450, 63]})
    made["training"]["balance"] = True
    page = Page(render_card(made))
    assert "Classes are unequal: 4.2 % of the molecules are active." in page.text
    assert "would be right in 95.8 % of the cases" in page.text
    assert "Every class was drawn equally often." in page.text
    assert "--balance" in page.text
    assert "Classes are unequal" not in Page(render_card(card())).text


def test_a_card_of_other_graphs_does_not_speak_of_molecules() -> None:
    page = Page(render_card(card(reading=None)))
    assert "molecule" not in page.text.replace("Bemis", "").split("Molecules that share")[0]
    assert "Predicts the class of a graph" in page.text
    assert "--smiles" not in page.text


def test_a_model_that_was_chosen_by_its_loss_has_no_curve_of_a_score() -> None:
    made = card("regression")
    made["training"]["metric"] = "loss"
    page = Page(render_card(made))
    assert "Learning " not in page.text.replace("Learning rate", "")
    assert "the best by the lowest loss" in page.text


def command_of(description: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The data and the options of the command that trains a model again, as a shell reads it."""
    text = render_card(description)
    code = html.unescape(re.findall(r"<code>(graph-transplant train .*?)</code>", text, re.S)[0])
    # A shell joins lines that end in a backslash; shlex keeps the line break.
    program, verb, data, *words = shlex.split(code.replace("\\\n", ""))
    assert (program, verb) == ("graph-transplant", "train")
    options: dict[str, str] = {}
    while words:
        name = words.pop(0)
        assert name.startswith("--")
        alone = not words or words[0].startswith("--")
        options[name[2:]] = "" if alone else words.pop(0)
    return data, options


TRAINED_WITH = {
    "method": "transplant-ep",
    "model": "gine",
    "layers": "3",
    "hidden": "128",
    "readout": "mean",
    "dropout": "0.5",
    "epochs": "300",
    "batch-size": "128",
    "learning-rate": "0.0005",
    "seed": "0",
}


def test_the_command_has_every_option_of_a_table() -> None:
    made = card("multilabel")
    made["training"] |= {"validation": 0.25, "test": 0.0, "balance": True}
    made["reading"] |= {"smiles": "my column", "features": "elements", "elements": ["C"]}
    assert command_of(made) == (
        "bace.csv.gz",
        TRAINED_WITH
        | {
            "smiles": "my column",
            "target": "NR-AR,NR-ER,SR-p53",
            "id": "CID",
            "features": "elements",
            "task": "multilabel",
            "split": "scaffold",
            "validation": "0.25",
            "test": "0.0",
            "metric": "auroc",
            "balance": "",
        },
    )


def test_the_command_for_an_sdf_names_features_and_no_column_of_structures() -> None:
    made = card("regression")
    made["reading"] |= {"smiles": None, "id": None}
    made["training"]["metric"] = "loss"
    _, options = command_of(made)
    shares = {"split": "scaffold", "validation": "0.1", "test": "0.1"}
    # By "accuracy" training of values goes by their loss; without, it would go by R².
    told = {"target": "pIC50", "features": "ogb", "task": "regression", "metric": "accuracy"}
    assert options == TRAINED_WITH | shares | told
    assert "graph-transplant predict MODEL new.sdf" in Page(render_card(made)).text


def test_the_command_for_data_sets_has_no_options_that_they_do_not_take() -> None:
    rest = TRAINED_WITH | {"split": "official", "metric": "auroc"}
    for reading in (None, {"kind": "molecules", "features": "ogb"}):
        made = card(reading=reading)
        made["training"] |= {"split": "official", "validation": None, "test": None}
        assert command_of(made)[1] == rest


def test_parts_that_were_given_are_not_promised_again() -> None:
    made = card()
    assert "Train it again, bit by bit the same" in Page(render_card(made)).text
    made["training"] |= {"split": "given", "validation": None, "test": None}
    page = Page(render_card(made))
    assert "bit by bit" not in page.text
    assert "the parts of the data that this one learned from were given" in page.text
    assert "split" not in command_of(made)[1]


@pytest.mark.parametrize(
    ("reading", "fresh"),
    [
        ({"kind": "molecules", "features": "ogb", "smiles": "mol"}, "new.csv"),
        ({"kind": "molecules", "features": "ogb", "smiles": None}, "new.sdf"),
        ({"kind": "molecules", "features": "ogb"}, "new.csv"),
        ({"kind": "graphs", "node_labels": None}, "new.jsonl"),
        (None, "'some where/ENZYMES.zip'"),
    ],
)
def test_the_example_names_data_that_the_model_can_read(
    reading: dict[str, Any] | None, fresh: str
) -> None:
    data = {**card()["data"], "source": "some where/ENZYMES.zip"}
    page = Page(render_card(card(reading=reading, data=data)))
    for verb, out in (("predict", "predictions.csv"), ("explain", "explain.html")):
        assert f"graph-transplant {verb} MODEL {fresh} --out {out}" in page.text


def test_the_command_trains_the_same_model_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rdkit")
    import torch

    from graph_transplant.cli import main
    from graph_transplant.trained import TrainedModel

    monkeypatch.chdir(tmp_path)
    rings = ("c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CCNCC1", "c1ccsc1", "C1CCC1")
    rows = [f"{'C' * (1 + k // 6)}{rings[k % 6]},{k % 3 % 2 * 2.5}" for k in range(36)]
    Path("rings.csv").write_text("mol,value\n" + "\n".join(rows) + "\n")
    # Every choice is another than the default.
    words = [
        *("train", "rings.csv", "--smiles", "mol", "--target", "value", "--task", "regression"),
        *("--features", "elements", "--method", "vanilla", "--hidden", "8", "--layers", "2"),
        *("--epochs", "3", "--split", "random", "--validation", "0.3", "--test", "0.2"),
        *("--metric", "accuracy", "--seed", "4", "--readout", "sum", "--out", "first"),
    ]
    assert main(words) == 0
    first = TrainedModel.load("first")
    data, options = command_of(dict(first.description))
    again = [word for name, value in options.items() for word in (f"--{name}", value) if word]
    assert main(["train", data, *again, "--out", "second"]) == 0
    second = TrainedModel.load("second")
    for name, value in first.network.state_dict().items():
        assert torch.equal(value, second.network.state_dict()[name])
    assert second.description["metrics"] == first.description["metrics"]


def test_the_command_is_safe_to_paste() -> None:
    made = card(data={**card()["data"], "source": "my data; rm -rf $HOME.csv"})
    page = Page(render_card(made))
    assert "graph-transplant train 'my data; rm -rf $HOME.csv'" in page.text


def test_a_hopeless_regression_is_called_so() -> None:
    made = card("regression")
    made["metrics"]["test"]["r2"] = -0.2
    assert "no better than always saying the mean: R² −0.200" in Page(render_card(made)).text


def test_values_far_below_nought_do_not_hide_the_rest() -> None:
    made = card("regression")
    plain = render_card(made)
    made["curve"][0]["validation_score"] = -400.0
    page = Page(render_card(made))
    assert "Values below −1 are drawn there." in page.text
    assert "−400" not in page.text
    assert "drawn there" not in plain


def test_an_empty_curve_draws_no_learning() -> None:
    made: dict[str, Any] = card(curve=[])
    assert "Learning " not in Page(render_card(made)).text.replace("Learning rate", "")
