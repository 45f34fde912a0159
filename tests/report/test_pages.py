"""The pages about one model: what they say, and that nothing in the data can break them."""

from __future__ import annotations

import html
import re
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import graph_transplant as gt
from graph_transplant.analysis.drawing import mixtures
from graph_transplant.cli import main
from graph_transplant.datasets.molecules import from_smiles
from graph_transplant.datasets.splits import Split
from graph_transplant.errors import GraphTransplantError, Skipped
from graph_transplant.metrics import METRICS
from graph_transplant.report.card import render_card
from graph_transplant.report.card_findings import CardData, card_findings
from graph_transplant.report.explanations import render_explanations, render_gallery
from graph_transplant.results.examples import ExplainedRows
from graph_transplant.results.model_json import Duplicates, description_of
from graph_transplant.utils.text import units
from helpers.page_samples import (
    NASTY,
    PHENOL,
    Page,
    card,
    card_page,
    check_harmless,
    check_self_contained,
    explained,
    explanation,
    mixture,
    nasty_card,
    nasty_explanation,
    view,
)

QUICK: dict[str, Any] = {"count": 3, "epochs": 1, "hidden": 8}

PAGES: dict[str, Callable[[str], str]] = {
    "classes": lambda name: card_page(nasty_card(name)),
    "labels": lambda name: card_page(nasty_card(name, "multilabel")),
    "values": lambda name: card_page(nasty_card(name, "regression")),
    "explanations": lambda name: render_explanations(
        ExplainedRows((nasty_explanation(name),) * 2, (Skipped(3, name, name),), name)
    ),
    "gallery": lambda name: render_gallery([mixture(name)] * 2),
}


@pytest.mark.parametrize("kind", PAGES)
def test_pages_need_nothing_else_and_no_name_breaks_them(kind: str) -> None:
    text = PAGES[kind]("ordinary")
    ordinary = check_self_contained(text)
    assert ordinary.tags[0] == ("html", {"lang": "en"})
    assert ordinary.count("h1") == ordinary.count("main") == 1
    assert text == PAGES[kind]("ordinary")
    for title, name in NASTY.items():
        page = check_harmless(PAGES[kind](name), ordinary)
        assert name in page.text or title != "template"
        if title == "long" and kind in ("classes", "explanations", "gallery"):  # whole at hand
            assert max(map(len, page.values("title"))) >= 10_000
    if kind in ("classes", "explanations", "gallery"):  # shown as they are
        name = '<b>&"quoted"\' $x$'
        assert name in Page(PAGES[kind](name)).text


# -------------------------------------------------------------------- explanations


def test_explanations_say_what_models_say() -> None:
    text = render_explanations(explained(explanation()))
    page = Page(text)
    for words in (
        "Explanations for bace.csv",
        "BACE_1",
        "7 atoms, 7 bonds · true label: active",
        "Oc1ccccc1",
        "Predicted: active right",
        "confidence 87 %",
        "Predicted: inactive wrong",
        "transplant-ep: right 1 of 1",
        "vanilla: right 0 of 1",
        "For: O 1 50 %, C 3 10 % Against: C 2 40 %",
    ):
        assert words in page.text, words
    assert "Most salient: O 1, C 2 (against), C 3." in text  # for those who do not see it
    widths = [style for style in page.values("style") if style.startswith("width")]
    assert widths == ["width:87.0%"] * 2
    seen = view(PHENOL, kind="gradient", share=tuple(map(abs, view(PHENOL).share)))
    gradient = Page(render_explanations(explained(explanation(views=(seen,)))))
    assert "the norm of the gradient, as in the paper" in gradient.text
    assert "Most salient: O 1 50 %, C 2 40 %" in gradient.text
    # One model needs no name over its drawings.
    assert gradient.count("h3") == 0
    seen = view(PHENOL, label="pIC50 7.2", confidence=None, correct=None, output="pIC50")
    page = Page(render_explanations(explained(explanation(truth="pIC50 6.9", views=(seen,)))))
    for words in ("Predicted: pIC50 7.2", "true value: pIC50 6.9", "raises the predicted value"):
        assert words in page.text
    assert "confidence" not in page.text.lower()
    assert "Drawn for" not in page.text  # as there is only one value


def test_the_nodes_in_the_text_have_their_numbers_and_types_in_the_drawing() -> None:
    names = ("a", "b", "a", "c", "b", "a", "c")
    typed = replace(PHENOL, names=names, orders=(), molecule=False)
    shown = explanation(text="", structure=typed, views=(view(typed),))
    text = render_explanations(explained(shown))
    page = Page(text)
    assert "For: node 1 (type a) 50 %, node 3 (type a) 10 %" in page.text
    assert "Against: node 2 (type b) 40 %" in page.text
    assert "The label in or below a node, or on an edge, is its type" in page.text
    drawing = re.search(r'<svg class="graph".*?</svg>', text)
    assert drawing
    numbers = re.findall(r'class="index"[^>]*>(\d+)<', drawing[0])
    assert numbers == ["1", "2", "3"]
    assert re.findall(r'style="text-anchor[^>]*font-weight:600[^>]*>(\w)<', drawing[0]) == [*names]
    # Atoms are named by their elements.
    plain = Page(render_explanations(explained(explanation())))
    assert "type" not in plain.text.lower()


def test_explanations_say_what_to_believe() -> None:
    seen = view(PHENOL, label="1", output="1", trained_on=True, doubtful=True)
    other = view(PHENOL, label="0", output="1", trained_on=False, share=(0.0,) * 7)
    shown = [explanation(truth="1", target="Class", views=(one,)) for one in (seen, other)]
    page = Page(render_explanations(explained(*shown)))
    for words in (
        "true label: Class = 1",
        "Predicted: Class = 0",
        "Drawn for Class = 1",
        "Do not rely on these drawings. On the validation molecules, taking away the most salient",
        "1 of the 2 molecules was in the training data",
        "No atom influences this prediction.",
    ):
        assert words in page.text, words
    assert page.text.count(" was in the training data") == 2  # the note and one molecule
    quiet = Page(render_explanations(explained(explanation()))).text
    assert "Do not rely" not in quiet
    assert "training data" not in quiet


def test_what_could_not_be_read_is_told() -> None:
    skipped = (Skipped(2, "B", "the SMILES cannot be parsed"),)
    page = Page(render_explanations(ExplainedRows((explanation(),), skipped, "a.csv")))
    assert "Row 2 (B) could not be read: the SMILES cannot be parsed" in page.text
    with pytest.raises(GraphTransplantError, match=r"got none \(row 2: the SMILES"):
        render_explanations(ExplainedRows((), skipped, "a.csv"))
    with pytest.raises(GraphTransplantError, match=r"at least one graph, got none$"):
        render_explanations(explained())


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


@pytest.mark.parametrize("method", ["transplant-ep", "transplant-dp", "transplant-disconnected"])
def test_what_is_shown_is_what_was_mixed(method: str) -> None:
    motifs = gt.load("motifs", graphs=60)
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
        taken = one.from_source
        between = {n for n, (a, b) in enumerate(mixed.edges) if taken[a] != taken[b]}
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
    dashed = 'stroke-dasharray:5 4"' in text.partition("<article")[2]
    assert dashed == any(one.new_edges for one in found)


def test_molecules_are_drawn_as_molecules() -> None:
    pytest.importorskip("rdkit")
    store = from_smiles(["CCO", "CCN", "CCCO", "CCCN", "OCCO", "NCCN"])
    store = store.with_targets(torch.tensor([0, 1, 0, 1, 0, 1]))
    assert store.featurizer is not None
    store.featurizer = replace(store.featurizer, targets=("fails",))
    found = mixtures(store, method="transplant-dp", **QUICK)
    assert "a small gine model" in found[0].note
    text = render_gallery(found)
    assert re.search(r"\d % fails = [01]", Page(text).text)
    assert "class 0" not in text
    assert text.count("Molecule of") == 9
    assert "var(--atom-o)" in text.partition("<article")[2]
    assert "opacity:.35" in text.partition("<article")[2], "what is left out is pale"


# -------------------------------------------------------------------- model card


WORDS = {
    "multiclass": (
        "Predicts Class of a molecule, trained on bace",
        "On 152 test molecules that training never saw, given one molecule labelled",
        "given one molecule labelled active and one labelled inactive,",
        "it ranks them correctly 81 times in 100: AUROC 0.810 (95 % interval 0.740 to 0.870).",
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
    page = Page(card_page(card(task)))
    for some in (
        *WORDS[task],
        *(METRICS[key].definition for key in card(task)["metrics"]["test"]),
        "Molecules that share a Bemis–Murcko scaffold",
        "3 rows of the data could not be used",
        "Only 152 molecules for testing",
        "the weights of epoch 41 were kept",
        "graph-transplant predict MODEL new.csv --out predictions.csv",
        "The table needs a column mol",
        "ab" * 32,
    ):
        assert some in page.text, some


def test_each_finding_of_a_card_is_a_paragraph() -> None:
    made = card()
    made["metrics"]["forest"] = {"accuracy": 0.7, "auroc": 0.79}
    _, findings = card_findings(CardData(description_of(made, "sample")))
    assert len(findings) > 1
    text = html.unescape(card_page(made))
    for finding in findings:
        assert f'<p class="finding">{finding.text}</p>' in text


def test_a_card_predicts_new_graphs_not_those_of_training() -> None:
    made = card()
    made["featurizer"] = None
    made["data"] = {**made["data"], "source": "typed-motifs", "name": "typed-motifs"}
    page = Page(card_page(made))
    assert "graph-transplant explain MODEL new.safetensors --out explain.html" in page.text
    assert "MODEL typed-motifs" not in page.text
    assert "GraphStore.save" in page.text


def test_the_card_names_the_class_that_is_ranked_first() -> None:
    made = card()
    made["label_names"], made["roc"] = ["0", "1"], {"1": [[0.0, 0.0], [1.0, 1.0]]}
    page = Page(card_page(made))
    assert "given one molecule labelled Class = 1 and one labelled Class = 0, it ranks" in page.text
    assert "how many of those labelled Class = 1 are found" in page.text


def test_a_model_without_a_test_set_says_so() -> None:
    made = card()
    made["training"]["sizes"]["test"] = 0
    made["metrics"] |= {"test": {}, "test_uncalibrated": {}, "intervals": {}}
    made |= {"reliability": None, "confusion": None, "roc": None}
    page = Page(card_page(made))
    assert "No molecules were held out for testing" in page.text
    assert "Measured on the validation molecules" in page.text
    assert "Uncalibrated" not in page.text


def test_the_card_has_the_settings_and_a_command_only_if_one_was_given() -> None:
    made = card("multilabel")
    made["training"] |= {"balance": True, "test": 0.0, "class_weight": [1.0, 2.0, 1.0]}
    page = Page(card_page(made))
    for told in ("batch size 128", "balance True", "test 0.0", "class weight 1.0, 2.0, 1.0"):
        assert told in page.text
    assert "graph-transplant train" not in page.text
    page = Page(card_page(made | {"command": "graph-transplant train 'my data.csv' --seed 4"}))
    assert "same weights: graph-transplant train 'my data.csv' --seed 4" in page.text


def test_values_are_written_alike_on_both_sides_of_zero() -> None:
    for value, text in ((5000.0, "5000"), (0.25, "0.250"), (3.2e8, "3.2e+08"), (0.004, "0.004")):
        assert (units(value), units(-value)) == (text, f"−{text}")


@pytest.mark.parametrize(
    ("counts", "warned"),
    [([90, 10], False), ([91, 9], True), ([10] * 12, False), ([10] * 11 + [4], True)],
)
def test_the_card_warns_of_rare_classes(counts: list[int], warned: bool) -> None:
    made = card(label_names=[f"kind {number}" for number in range(len(counts))])
    made["data"]["class_counts"] = counts
    warnings, _ = card_findings(CardData(description_of(made, "sample")))
    assert any(one.code == "GT116" for one in warnings) == warned


def test_the_command_trains_the_same_model_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gt.load("motifs", graphs=60).save("my graphs.safetensors")
    words = "--method vanilla --hidden 8 --epochs 2 --split random --seed 4 --out first"
    assert main(["train", "my graphs.safetensors", "--fresh", *words.split()]) == 0
    first = gt.TrainedModel.load("first")
    command = first.description.command
    assert command == f"graph-transplant train 'my graphs.safetensors' {words}"
    assert command in html.unescape(Path("first", "card.html").read_text("utf-8"))
    assert main([*shlex.split(command)[1:-1], "second"]) == 0
    second = gt.TrainedModel.load("second")
    for name, value in first.network.state_dict().items():
        assert torch.equal(value, second.network.state_dict()[name])
    assert second.description.metrics == first.description.metrics


def test_a_model_of_an_sdf_reads_an_sdf() -> None:
    made = card("regression", data={**card("regression")["data"], "source": "some.sdf.gz"})
    del made["featurizer"]["smiles"]
    assert "graph-transplant predict MODEL new.sdf" in Page(card_page(made)).text


def test_the_card_compares_validation_test_and_baseline() -> None:
    made = card()
    made["metrics"]["baseline"] = {"accuracy": 0.526, "auroc": 0.5}
    made["metrics"]["validation"]["auroc"] = 0.95
    made["metrics"]["test_uncalibrated"]["ece"] = 0.01
    made["metrics"]["test"]["accuracy"] = 0.54
    made["metrics"]["intervals"]["auroc"] = [0.45, 0.87]
    made["data"]["class_shares"] = {
        "train": [0.24, 0.76], "validation": [0.3, 0.7], "test": [0.48, 0.52],
    }  # fmt: skip
    made["saliency"] = {
        "deletion": 0.55, "deletion_random": 0.52, "insertion": 0.45, "insertion_random": 0.51,
    }  # fmt: skip
    text = card_page(made)
    warned = Page(text[text.index("<aside") : text.index("</aside>") + 8]).text
    for words in (
        "worse on the test molecules than on the validation ones: AUROC 0.810 instead of 0.950",
        "made the calibration error on the test molecules worse: 0.010 → 0.050",
        "54.0 % of its predictions are right; always predicting the largest class",
        "76 % of the training molecules are active, 70 % of the validation ones and 52 % of the",
        "It is not shown to be better than guessing, which has AUROC 0.500",
        "Do not rely on its explanations",
    ):
        assert words in warned, words


LATE, CHANCE = "is at the limit, so training had not ended", "is not shown to be better than always"
FEW, BOUND = "for validation, so what they chose", "allowed, owing to"
CONTRADICTORY = "have different classes: no model can be right about all of them. Correct"


@pytest.mark.parametrize(
    ("part", "changes", "warning", "warned"),
    [
        ("training", {"epochs": 60, "best_epoch": 55, "stopped_early": False}, LATE, True),
        ("training", {"epochs": 60, "best_epoch": 53, "stopped_early": False}, LATE, False),
        ("training", {"epochs": 60, "best_epoch": 60, "stopped_early": True}, LATE, False),
        ("training", {"best_epochs": [41, 300], "stopped_early": False}, LATE, True),
        # The cosine schedule of this recipe is best towards its end.
        (
            "training",
            {"epochs": 60, "best_epoch": 55, "stopped_early": False, "recipe": "strong"},
            LATE,
            False,
        ),
        (
            "metrics",
            {"intervals": {"accuracy": [0.5, 0.8]}, "baseline": {"accuracy": 0.52}},
            CHANCE,
            True,
        ),
        (
            "metrics",
            {"intervals": {"accuracy": [0.6, 0.8]}, "baseline": {"accuracy": 0.52}},
            CHANCE,
            False,
        ),
        ("training", {"sizes": {"train": 90, "validation": 49, "test": 300}}, FEW, True),
        ("training", {"sizes": {"train": 90, "validation": 50, "test": 300}}, FEW, False),
        ("temperature", 0.2, BOUND, True),
        ("temperature", 20.0, BOUND, True),
        ("temperature", 19.9, BOUND, False),
        (
            "data",
            {"duplicates": {"graphs": 4, "distinct": 2, "differing": 2, "across": 0}},
            CONTRADICTORY,
            True,
        ),
    ],
)
def test_the_card_warns_where_it_is_due(
    part: str, changes: Any, warning: str, warned: bool
) -> None:
    made = card()
    made["training"]["metric"] = "accuracy"
    made[part] = made[part] | changes if isinstance(changes, dict) else changes
    warnings, _ = card_findings(CardData(description_of(made, "sample")))
    assert any(warning in one.text for one in warnings) == warned


def test_ignored_warnings_of_a_card_are_counted_and_not_shown() -> None:
    warnings, _ = card_findings(CardData(description_of(card(), "sample")))
    code = warnings[0].code
    assert code in card_page(card())
    page = Page(card_page(card(), [code]))
    assert code not in page.text
    assert "Warnings left out 1" in page.text
    with pytest.raises(GraphTransplantError, match="`ignore` must be one of GT001, "):
        card_page(card(), ["GT1"])


@pytest.mark.parametrize(
    ("forest", "interval", "warned", "words"),
    [
        (0.83, [-0.06, 0.02], True, "not shown to be better than a random forest on fingerprints"),
        (0.80, [-0.03, 0.05], True, "difference +0.010 (95 % interval −0.030 to +0.050)"),
        (0.90, [-0.15, -0.02], True, "It is worse than a random forest"),
        (0.70, [0.02, 0.2], False, "It is better than a random forest"),
        (0.82, None, True, "which takes seconds: AUROC 0.810 and 0.820"),
        (0.79, None, False, "which takes seconds: AUROC 0.810 and 0.790"),
    ],
)
def test_the_card_says_whether_a_forest_is_as_good(
    forest: float, interval: list[float] | None, warned: bool, words: str
) -> None:
    made = card()
    made["metrics"]["forest"] = {"auroc": forest}
    if interval is not None:
        made["metrics"]["over_forest"] = {"auroc": interval}
    warnings, findings = card_findings(CardData(description_of(made, "sample")))
    assert any(words in one.text for one in (warnings if warned else findings))
    assert not any("random forest" in one.text for one in (findings if warned else warnings))


@pytest.mark.parametrize("name", ["molecules", "motifs", "numbers"])
def test_old_models_have_a_card(name: str) -> None:
    folder = Path(__file__).parents[1] / "golden" / "models" / name
    page = Page(render_card(gt.TrainedModel.load(folder).description))
    assert "How good is it?" in page.text
    assert "The parts differ" not in page.text


def test_a_trained_model_knows_its_baseline_class_mix_and_duplicates(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    rows = [f"{'C' * (k % 12 + 1)}{'ON'[k % 3 == 0]},{int(k % 3 == 0)}" for k in range(48)]
    table = tmp_path / "m.csv"
    table.write_text("\n".join(["smiles,toxic", *rows]))
    out = tmp_path / "model"
    words = ["train", str(table), "--target", "toxic", "--split", "random", "--epochs", "1"]
    words += ["--hidden", "4", "--method", "vanilla", "--test", "0.3", "--out", str(out)]
    assert main(words) == 0
    description = gt.TrainedModel.load(out).description
    copies = Counter(row.split(",")[0] for row in rows)
    assert description.data.duplicates == Duplicates(
        graphs=sum(n for n in copies.values() if n > 1),
        distinct=sum(n > 1 for n in copies.values()),
        differing=0,
        across=0,
    )
    truth = [sum(row) / sum(map(sum, description.confusion)) for row in description.confusion]
    assert description.data.class_shares["test"] == pytest.approx(truth)
    baseline = description.metrics.baseline
    train = description.data.class_shares["train"]
    assert baseline["accuracy"] == pytest.approx(truth[train.index(max(train))])
    assert baseline["auroc"] == 0.5
    assert {"deletion", "deletion_random"} <= set(description.saliency)
    text = (out / "card.html").read_text("utf-8")
    assert "occur more than once; all copies of one are in the same part" in Page(text).text
    assert main(["explain", str(out), "CCCO", "--out", str(tmp_path / "one.html")]) == 0
    text = (tmp_path / "one.html").read_text("utf-8")
    assert re.search(r"Predicted: toxic = [01]", Page(text).text)
    assert 'class="graph"' in text


def test_copies_across_given_parts_are_counted(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    table = tmp_path / "m.csv"
    chains = [f"{'C' * (1 + k % 14)}O" for k in range(30)]
    toxic = [k % 2 if k < 28 else 1 - k % 2 for k in range(30)]  # the last two contradict others
    rows = [f"{chain},{y}" for chain, y in zip(chains, toxic, strict=True)]
    table.write_text("\n".join(["smiles,toxic", *rows]))
    parts = Split(torch.arange(10), torch.arange(10, 20), torch.arange(20, 30))
    model = gt.train(
        table, target="toxic", split=parts, method="vanilla", hidden=4, epochs=1, forest=False
    )
    page = Page(render_card(model.description))
    twice = [chain for chain in set(chains) if chains.count(chain) > 1]
    assert f"{len(twice)} molecules occur more than once." in page.text
    assert "Copies of 2 molecules in the data have different classes" in page.text
    across = sum(chain in chains[:10] for chain in chains[10:])
    assert model.description.data.duplicates.across == across > 0
    assert f"Copies of {across} molecules held out for validation or test are in" in page.text
