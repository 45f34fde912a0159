"""The pages about one model: what they say, and that nothing in the data can break them."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import graph_transplant as gt
from graph_transplant.augment import METHODS
from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.shown import Structure
from graph_transplant.graphs import GraphStore, Skipped
from graph_transplant.metrics import METRICS
from graph_transplant.models.description import check_description
from graph_transplant.models.explanation import ExplainedRows
from graph_transplant.models.gallery import mixtures
from graph_transplant.report.card import render_card, write_card
from graph_transplant.report.explanations import (
    render_explanations,
    render_gallery,
    write_explanations,
    write_gallery,
)
from page_samples import (
    NASTY,
    PHENOL,
    Page,
    card,
    explanation,
    mixture,
    nasty_card,
    nasty_explanation,
    view,
)

QUICK: dict[str, Any] = {"count": 3, "epochs": 1, "hidden": 8}

# -------------------------------------------------------------------- safety


PAGES: dict[str, Callable[[str], str]] = {
    "classes": lambda name: render_card(nasty_card(name)),
    "labels": lambda name: render_card(nasty_card(name, "multilabel")),
    "values": lambda name: render_card(nasty_card(name, "regression")),
    "explanations": lambda name: render_explanations(
        ExplainedRows((nasty_explanation(name),) * 2, (Skipped(3, name, name),), name)
    ),
    "gallery": lambda name: render_gallery([mixture(name)] * 2),
}


@pytest.mark.parametrize("kind", PAGES)
def test_no_name_breaks_a_page(kind: str) -> None:
    ordinary = Page(PAGES[kind]("ordinary"))
    for title, name in NASTY.items():
        text = PAGES[kind](name)
        page = Page(text)
        # The same elements stand on the page whatever the data are called.
        assert {tag for tag, _ in page.tags} <= {tag for tag, _ in ordinary.tags}, title
        for tag in ("script", "style", "section", "article", "figure", "svg", "tr"):
            assert page.count(tag) == ordinary.count(tag), (title, tag)
        for _, given in page.tags:
            assert not [key for key in given if key.startswith("on")]
            assert set(given) & {"src", "srcset", "action", "formaction", "data"} == set()
            assert (given.get("href") or "#").startswith("#")
        assert text.encode("utf-8")
        assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", text)
        assert name in page.text or title != "template"


@pytest.mark.parametrize("kind", ["classes", "explanations", "gallery"])
def test_names_are_shown_as_they_are_and_long_ones_are_cut(kind: str) -> None:
    name = '<b>&"quoted"\' $x$'
    assert name in Page(PAGES[kind](name)).text
    assert any(len(title) >= 10_000 for title in Page(PAGES[kind](NASTY["long"])).values("title"))


@pytest.mark.parametrize("kind", PAGES)
def test_pages_need_nothing_else(kind: str) -> None:
    text = PAGES[kind]("plain")
    page = Page(text)
    (policy,) = [content for content in page.values("content") if "default-src" in content]
    assert "default-src 'none'" in policy
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert re.findall(r"script-src ([^;]*);", policy) == [f"'sha256-{digest}'"]
    assert not re.search(r"https?://|url\((?!#)|@import|javascript:", text)
    assert page.tags[0] == ("html", {"lang": "en"})
    assert page.count("h1") == page.count("main") == 1
    assert [name for name, n in Counter(page.values("id")).items() if n > 1] == []
    assert text == PAGES[kind]("plain")


def test_no_torch_is_needed_to_write_a_card() -> None:
    code = "import sys, graph_transplant.report.card; print('torch' in sys.modules)"
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
    text = render_explanations([explanation()], data="some/where/bace.csv")
    page = Page(text)
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
        "would change without the embedding of this atom",
    ):
        assert words in page.text, words
    shares = view(PHENOL).share
    assert f"Most salient: O 1 {100 * shares[0]:.0f} %, C 2 {100 * shares[1]:.0f} %" in page.text
    assert [style for style in page.values("style") if style.startswith("width")] == [
        "width:87.0%"
    ] * 2
    assert 'aria-label="BACE_1, saliency of vanilla: Molecule of 7 atoms and 7 bonds. Most' in text
    seen = view(PHENOL, kind="gradient")
    gradient = Page(render_explanations([explanation(views=(seen,))]))
    assert "the norm of the gradient, as in the paper" in gradient.text
    # One model needs no name over its drawings.
    assert gradient.count("h3") == 0


def test_missing_parts_of_explanations_are_left_out() -> None:
    seen = view(PHENOL, label="pIC50 7.2", confidence=None, correct=None, output="pIC50")
    text = render_explanations([explanation(truth="pIC50 6.9", views=(seen,))])
    page = Page(text)
    assert "Predicted pIC50 7.2" in page.text
    assert "true value: pIC50 6.9" in page.text
    assert "Drawn for pIC50" in page.text
    assert "sure" not in page.text
    assert 'class="bar"' not in text
    seen = view(PHENOL, label="1", output="1", correct=None, share=(0.0,) * 7)
    page = Page(render_explanations([explanation(truth=None, text="", views=(seen,))]))
    assert "Says class 1" in page.text
    assert "true label" not in page.text
    assert "Model transplant-ep" in page.text
    assert "No atom moves this prediction." in page.text


def test_what_could_not_be_read_is_told() -> None:
    skipped = (Skipped(2, "B", "the SMILES cannot be parsed"),)
    page = Page(render_explanations(ExplainedRows((explanation(),), skipped, "a.csv")))
    assert "Row 2 (B) could not be read: the SMILES cannot be parsed" in page.text
    with pytest.raises(GraphTransplantError, match=r"got none \(row 2: the SMILES"):
        render_explanations(ExplainedRows((), skipped, "a.csv"))
    with pytest.raises(GraphTransplantError, match=r"at least one graph, got none$"):
        render_explanations([])


def test_large_graphs_are_told_to_be_cut() -> None:
    edges = tuple((k, k + 1) for k in range(500))
    path = Structure(("",) * 501, edges, (1.0,) * 500, molecule=False, directed=False)
    page = Page(render_explanations([explanation(structure=path, text="", views=(view(path),))]))
    assert "only the first 500 are drawn" in page.text
    assert "501 nodes, 500 edges, of which the first 500 nodes are drawn" in page.text


def test_a_molecule_whose_text_has_other_atoms_is_drawn_from_its_graph() -> None:
    pytest.importorskip("rdkit")
    text = render_explanations([explanation(text="CCO")])
    assert text.count("fill:var(--halo)") == 2 * 7 + 5  # two models, and the legend


# -------------------------------------------------------------------- gallery


def test_the_gallery_shows_shares_and_weight() -> None:
    text = render_gallery([mixture(), mixture()])
    page = Page(text)
    for words in (
        "Graphs mixed by transplant-ep",
        "Mixed graphs of bace",
        "1 active →into inactive",
        "I(Sπ, V̄π) = 0.61",
        "I(S, V \\ V̄) = 0.40",
        "λ = 0.60 60 % active, 40 % inactive",
        "1 new bond",
        "7 · active",
        "Saliency and edges come from a small model.",
        "how much of its saliency",
    ):
        assert words in page.text, words
    assert page.count("article") == 2
    assert text.count('role="img"') == 6
    sizes = Page(render_gallery([mixture(method="transplant-size-label", labels=(), label="7.1")]))
    assert "how many of its nodes" in sizes.text
    assert "λ = 0.60 7.1" in sizes.text
    with pytest.raises(GraphTransplantError, match="at least one mixed graph, got none"):
        render_gallery([])


@pytest.fixture(scope="module")
def motifs() -> GraphStore:
    return gt.load("motifs", graphs=60)


@pytest.mark.parametrize("method", [name for name in METHODS if name.startswith("transplant-")])
def test_what_is_shown_is_what_was_mixed(method: str, motifs: GraphStore) -> None:
    found = mixtures(motifs, method=method, **QUICK)
    assert found == mixtures(motifs, method=method, **QUICK)
    for one in found:
        source, destination, mixed = one.source, one.destination, one.structure
        for part in (source, destination):
            number = int(part.id) - 1
            assert part.label == (motifs.label_names or ())[int(motifs.y[number])]
            assert len(part.structure.names) == int(motifs.node_counts[number])
        assert sum(one.from_source) == sum(source.chosen)
        assert len(one.from_source) - sum(one.from_source) == sum(destination.chosen)
        # New edges are those between the parts; within, the edges of the two graphs are kept.
        between = {
            n
            for n, (a, b) in enumerate(mixed.edges)
            if len({*map(one.from_source.__getitem__, (a, b))}) > 1
        }
        assert set(one.new_edges) == between
        kept = [
            sum(p.chosen[a] and p.chosen[b] for a, b in p.structure.edges)
            for p in (source, destination)
        ]
        assert len(mixed.edges) - len(between) == sum(kept)
        shares = source.share, destination.share
        assert one.weight == pytest.approx(shares[0] / sum(shares), abs=1e-5)
    text = render_gallery(found)
    assert text.count('role="img"') == 9
    assert ('stroke-dasharray:5 4"' in text.partition("<article")[2]) == any(
        one.new_edges for one in found
    )


def test_mixtures_say_where_saliency_comes_from_and_what_cannot_be_shown(
    motifs: GraphStore,
) -> None:
    note = mixtures(motifs, method="transplant-dp", **QUICK)[0].note
    assert note.startswith("Saliency comes from a small gcs model trained for 1 epoch on 48 of")
    with pytest.raises(GraphTransplantError, match="drop-nodes has no such part"):
        mixtures(motifs, method="drop-nodes")
    with pytest.raises(GraphTransplantError, match="has 1 graph; a mixed graph needs two"):
        mixtures(motifs.subset([0]))
    values = motifs.with_targets(
        1000.0 + torch.arange(60.0), task="regression", num_outputs=1, label_names=["mass"]
    )
    (one, *_) = mixtures(values, method="transplant-dp", **QUICK)
    assert one.labels == ()
    assert one.label.startswith("mass 10")


def test_molecules_are_drawn_as_molecules() -> None:
    pytest.importorskip("rdkit")
    from graph_transplant.datasets.molecules import from_smiles

    store = from_smiles(["CCO", "CCN", "CCCO", "CCCN", "OCCO", "NCCN"])
    store = store.with_targets(torch.tensor([0, 1, 0, 1, 0, 1]))
    found = mixtures(store, method="transplant-dp", **QUICK)
    assert "a small gine model" in found[0].note
    text = render_gallery(found)
    assert text.count("Molecule of") == 9
    assert "var(--atom-o)" in text.partition("<article")[2]
    assert "opacity:.35" in text.partition("<article")[2], "what is left out is pale"


# -------------------------------------------------------------------- model card


WORDS = {
    "multiclass": (
        "Predicts Class of a molecule, trained on bace",
        "On 152 test molecules that training never saw, given one molecule with the label",
        "it ranks them rightly 81 times in 100: AUROC 0.810 (95 % interval 0.740 to 0.870).",
        "Which classes does it confuse?",
        "inactive 822 54.3 %",
        "divided by 1.34",
    ),
    "multilabel": (
        "Predicts 3 labels of a molecule",
        # Of those that were measured for the label, not of all.
        "NR-AR 90 6.0 %",
        "NR-ER 40 10.0 %",
        "their share of those it was measured for",
    ),
    "regression": (
        "Predicts pIC50 of a molecule",
        "it explains 52.0 % of the variation: R² 0.520",
        "Predictions are given with ±1.4, which holds for nine in ten molecules",
        "here it holds for 100 %.",
    ),
}


@pytest.mark.parametrize("task", WORDS)
def test_the_card_speaks_plainly(task: str) -> None:
    check_description(card(task), "sample")
    page = Page(render_card(card(task)))
    for some in (
        *WORDS[task],
        *(METRICS[key].definition for key in card(task)["metrics"]["test"]),
        "Molecules that share a Bemis–Murcko scaffold",
        "3 rows of the data could not be used",
        "Only 152 molecules were held out",
        "the weights of epoch 41 were kept",
        "graph-transplant predict MODEL new.csv --out predictions.csv",
        "The table needs a column mol",
        "ab" * 32,
    ):
        assert some in page.text, some


def test_shades_of_the_confusion_matrix_are_shares_of_its_rows() -> None:
    page = Page(render_card(card()))
    cells = [(a["class"], a["style"]) for tag, a in page.tags if tag == "td" and "style" in a]
    assert cells == [
        ("hit", "--share:0.833"),
        ("miss", "--share:0.167"),
        ("miss", "--share:0.250"),
        ("hit", "--share:0.750"),
    ]


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
    assert re.search(r"AUROC Area under .*? - - ", page.text)
    assert "50.0 % of its predictions are right" in page.text


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
    page = Page(render_card(card(featurizer=None)))
    assert "molecule" not in page.text.replace("Bemis", "").split("Molecules that share")[0]
    assert "Predicts the class of a graph" in page.text
    assert "--smiles" not in page.text


def test_a_model_that_was_chosen_by_its_loss_has_no_curve_of_a_score() -> None:
    made = card("regression")
    made["training"]["metric"] = "loss"
    page = Page(render_card(made))
    assert "on the validation molecules by epoch" not in page.text
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
    "method": "transplant-ep", "model": "gine", "layers": "3", "hidden": "128", "readout": "mean",
    "dropout": "0.5", "epochs": "300", "batch-size": "128", "learning-rate": "0.0005", "seed": "0",
}  # fmt: skip


def test_the_command_has_every_option_of_a_table() -> None:
    made = card("multilabel")
    made["training"] |= {"validation": 0.25, "test": 0.0, "balance": True}
    made["featurizer"] |= {"smiles": "my column", "features": "elements", "elements": ["C"]}
    told = {"smiles": "my column", "target": "NR-AR,NR-ER,SR-p53", "id": "CID"}
    told |= {"features": "elements", "task": "multilabel", "metric": "auroc", "balance": ""}
    told |= {"split": "scaffold", "validation": "0.25", "test": "0.0"}
    assert command_of(made) == ("bace.csv.gz", TRAINED_WITH | told)


def test_the_command_for_an_sdf_names_features_and_no_column_of_structures() -> None:
    made = card("regression")
    made["featurizer"] |= {"smiles": None, "id": None}
    made["training"]["metric"] = "loss"
    _, options = command_of(made)
    shares = {"split": "scaffold", "validation": "0.1", "test": "0.1"}
    # By "accuracy" training of values goes by their loss; without, it would go by R².
    told = {"target": "pIC50", "features": "ogb", "task": "regression", "metric": "accuracy"}
    assert options == TRAINED_WITH | shares | told
    assert "graph-transplant predict MODEL new.sdf" in Page(render_card(made)).text


def test_parts_that_were_given_are_not_promised_again() -> None:
    made = card()
    assert "Train it again, bit by bit the same" in Page(render_card(made)).text
    made["training"] |= {"split": "given", "validation": None, "test": None}
    page = Page(render_card(made))
    assert "bit by bit" not in page.text
    assert "the parts of the data that this one learned from were given" in page.text
    assert "split" not in command_of(made)[1]


@pytest.mark.parametrize(
    ("featurizer", "fresh"),
    [
        ({"kind": "molecules", "features": "ogb", "smiles": "mol"}, "new.csv"),
        ({"kind": "molecules", "features": "ogb", "smiles": None}, "new.sdf"),
        ({"kind": "molecules", "features": "ogb"}, "new.csv"),
        ({"kind": "graphs", "node_labels": None}, "new.jsonl"),
        (None, "'some where/ENZYMES.zip'"),
    ],
)
def test_the_example_names_data_that_the_model_can_read(
    featurizer: dict[str, Any] | None, fresh: str
) -> None:
    data = {**card()["data"], "source": "some where/ENZYMES.zip"}
    page = Page(render_card(card(featurizer=featurizer, data=data)))
    for verb, out in (("predict", "predictions.csv"), ("explain", "explain.html")):
        assert f"graph-transplant {verb} MODEL {fresh} --out {out}" in page.text


def test_the_command_trains_the_same_model_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rdkit")
    import torch

    from graph_transplant.cli import main
    from graph_transplant.models import TrainedModel

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


def test_the_card_tells_its_worst_news() -> None:
    made = card()
    assert "It does worse" not in Page(render_card(made)).text
    made["metrics"]["validation"]["auroc"] = 0.95
    made["metrics"]["test_uncalibrated"]["ece"] = 0.01
    made["metrics"]["test"]["accuracy"] = 0.54
    page = Page(render_card(made))
    assert (
        "worse on the test molecules than on the validation ones: AUROC 0.810 instead" in page.text
    )
    assert "Calibration made confidence worse on the test molecules" in page.text
    assert "from 0.010 to 0.050" in page.text
    assert "always saying the largest class would be right in 52.6 % of the test" in page.text


def test_missing_parts_of_a_card_are_left_out() -> None:
    page = Page(render_card(card(curve=[], roc=None, reliability=None, confusion=None)))
    assert page.count("figure") == 0
    assert "Learning curves" not in page.text
    whole = Page(render_card(card()))
    assert whole.count("figure") == 4
    assert [tag for tag, given in whole.tags if tag == "details" and "open" in given] == []


def test_hopeless_values_are_called_so_and_do_not_hide_the_rest() -> None:
    made = card("regression")
    made["metrics"]["test"]["r2"] = -0.2
    made["curve"][0]["validation_score"] = -400.0
    page = Page(render_card(made))
    assert "no better than always saying the mean: R² −0.200" in page.text
    assert "Values below −1 are drawn there." in page.text
    assert "−400" not in page.text
