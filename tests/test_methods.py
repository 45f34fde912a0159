"""Names of methods: what they stand for, what is set in them, what they refuse."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
from math import prod
from pathlib import Path

import pytest
import torch

import graph_transplant as gt
from graph_transplant.augment import DropNodes, build_method
from graph_transplant.baselines import BaselineTask, Predictor
from graph_transplant.cli import main
from graph_transplant.errors import GraphTransplantError
from graph_transplant.methods import (
    METHODS,
    Method,
    expand_methods,
    method_name,
    parse_method,
    search_space,
)
from graph_transplant.utils.lazy import resolve

# The paper's appendix, "Baselines" and "Implementation details": what is tuned, among what.
PAPER_SEARCH = {
    "vanilla": {},
    "manifold-mixup": {},
    "m-evolve": {"ratio": (0.2, 0.4)},
    "drop-nodes": {"ratio": (0.2, 0.4)},
    "perturb-edges": {"ratio": (0.2, 0.4)},
    "mask-nodes": {"ratio": (0.2, 0.4)},
    "subgraph": {"size": (0.6, 0.8)},
    "transplant-dp": {"anchor_ratio": (0.05, 0.1, 0.15)},
    "transplant-ep": {"anchor_ratio": (0.05, 0.1, 0.15)},
}


def model() -> gt.GraphClassifier:
    return gt.GraphClassifier(3, 2, hidden=4, layers=1, seed=0)


def test_the_search_spaces_are_those_of_the_paper() -> None:
    listed = {name: dict(method.search) for name, method in METHODS.items() if method.in_paper}
    assert listed == PAPER_SEARCH
    # Ablations and controls may try as many values as what they are held against.
    for name, method in METHODS.items():
        if name.startswith("transplant-") or name == "saliency-shuffled":
            assert dict(method.search) == PAPER_SEARCH["transplant-ep"], name
        elif not method.in_paper:
            assert not method.search, name


@pytest.mark.parametrize("name", expand_methods(["all"]))
def test_a_search_space_is_the_method_with_each_value(name: str) -> None:
    presets, search = search_space(name), METHODS[name].search
    assert len(presets) == len(set(presets)) == prod(len(values) for values in search.values())
    assert name in presets  # the default is one of the paper's values
    for preset in presets:
        assert parse_method(preset)[0] == name
        assert len(build_method(preset, model())) == (0 if name == "vanilla" else 1)
    # A parameter at its default changes nothing.
    written = method_name(name, METHODS[name].parameters)
    assert expand_methods([written, name]) == [name]


def test_parameters_reach_the_augmentation() -> None:
    (dropped,) = build_method("drop-nodes:ratio=0.4", model())
    assert isinstance(dropped, DropNodes)
    assert dropped.ratio == 0.4
    settings = "anchor_ratio=0.05:pairing=minority:max_hops=2:alpha=0.5"
    (mixed,) = build_method(f"transplant-ep:{settings}:saliency=gradient-x-activation", model())
    assert isinstance(mixed, gt.GraphTransplant)
    assert (mixed.anchor_ratio, mixed.hops, mixed.alpha) == (0.05, (1, 2), 0.5)
    assert (mixed.pairing.policy, mixed.connect) == ("minority", "ep")
    assert mixed.saliency == gt.NodeSaliency("gradient-x-activation")


@pytest.mark.parametrize("policy", ["same-class", "cross-class", "minority"])
def test_every_mixing_method_takes_every_pairing(policy: str) -> None:
    mixing = [name for name in METHODS if "mix" in name or name.startswith("transplant")]
    assert len(mixing) == 12
    for name in [*mixing, "saliency-shuffled"]:
        (augmentation,) = build_method(f"{name}:pairing={policy}", model())
        assert augmentation.pairing.policy == policy


def test_groups() -> None:
    networks, others = expand_methods(["all"]), expand_methods(["baselines"])
    assert [*networks, *others] == list(METHODS)
    assert others == ["forest", "wl-svm", "wl-oa", "structure-blind", "majority"]
    assert expand_methods(["paper"]) == list(PAPER_SEARCH)
    expected = ["vanilla", "drop-nodes", "drop-nodes:ratio=0.4"]
    assert expand_methods(["vanilla", "drop-nodes:paper", "vanilla", "all"])[:3] == expected


def test_sensitivity_changes_one_parameter_at_a_time() -> None:
    name, *variants = expand_methods(["transplant-ep:sensitivity"])
    assert name == "transplant-ep"
    values: dict[str, list[object]] = {}
    for variant in variants:
        ((parameter, value),) = parse_method(variant)[1].items()
        values.setdefault(parameter, []).append(value)
    # The defaults (0.1, 3, 2 and the gradient) stand for themselves, once.
    assert values == {
        "anchor_ratio": [0.05, 0.2, 0.3],
        "max_hops": [1, 2, 5],
        "alpha": [0.5, 1.0, 5.0],
        "saliency": ["gradient-x-activation", "gradient-after-activation"],
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("transplant", "must be one of all, paper, baselines, vanilla"),
        ("drop-nodes:rate=0.4", "drop-nodes has ratio; got 'rate=0.4'"),
        ("drop-nodes:ratio", "write each parameter once, as NAME=VALUE"),
        ("drop-nodes:ratio=much", "^drop-nodes:ratio=much: `ratio` must be a number, got"),
        ("drop-nodes:ratio=0.4:ratio=0.2", "write each parameter once"),
        ("vanilla:ratio=0.4", "vanilla has no parameters; got"),
        ("unknown:paper", "`methods` must be one of all, paper, baselines, vanilla"),
        ("all:paper", "`all` stands for several methods and takes no parameters"),
        ("drop-nodes:ratio=0.4:paper", "got 'paper' in"),
        ("drop-nodes:sensitivity", "which drop-nodes does not have"),
        ("forest", "`method` must be one of vanilla, .*; got 'forest'"),
        ("forest:trees=3", "forest has no parameters"),
        ("drop-nodes:ratio=2", r"^drop-nodes:ratio=2.0: `ratio` must be in"),
    ],
)
def test_a_name_that_cannot_be_read_is_told(text: str, said: str) -> None:
    with pytest.raises(GraphTransplantError, match=said):
        build_method(expand_methods([text])[0], model())


def test_a_former_name_of_a_group_is_told() -> None:
    with pytest.warns(FutureWarning, match="`classical` is now called `baselines`"):
        assert expand_methods(["vanilla", "classical"])[1:] == expand_methods(["baselines"])


# -------------------------------------------------------------------- rows


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"vanilla"}))
def test_every_target_is_there(name: str) -> None:
    method = METHODS[name]
    taken = inspect.signature(resolve(method.target)).parameters
    assert {*method.fixed, *method.settable} <= taken.keys()
    assert method.parameters.keys() >= {*method.settable, *method.search}
    assert method.network == (name not in expand_methods(["baselines"]))
    assert bool(method.words) != method.network


def test_names_and_summaries_are_read_without_torch() -> None:
    code = """
        import sys
        from graph_transplant.methods import expand_methods, parse_method
        parse_method("drop-nodes"), expand_methods(["paper", "all", "baselines"])
        print("torch" in sys.modules)
    """
    words = [sys.executable, "-c", textwrap.dedent(code)]
    assert subprocess.run(words, capture_output=True, text=True).stdout == "False\n"


class FewerNodes(DropNodes):
    """Drop few nodes."""

    def __init__(self, share: float = 0.1, least: int = 1) -> None:
        super().__init__(share)
        self.least = least


def half(task: BaselineTask) -> Predictor:
    """Predict the same for every graph."""
    return Predictor(lambda part: torch.zeros(len(part), part.num_outputs))


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {
        "fewer-nodes": Method(FewerNodes, "drops few nodes", fixed={"least": 2}),
        "half": Method(half, "predicts nothing", role="baseline", words="predicting nothing"),
    }
    for name, row in rows.items():
        monkeypatch.setitem(METHODS, name, row)


@pytest.mark.parametrize("workers", [1, 2])
def test_methods_of_your_own_are_compared(own: None, tmp_path: Path, workers: int) -> None:
    names = ["vanilla", "fewer-nodes:share=0.3", "half"]
    results = gt.compare(
        "motifs", graphs=60, methods=names, folds=3, epochs=1, layers=1, workers=workers,
        out=tmp_path,
    )  # fmt: skip
    assert set(results.frame["method"]) == set(names)
    assert results.frame.loc[results.frame["method"] == "half", "model"].isna().all()
    assert parse_method("fewer-nodes:share=0.3") == ("fewer-nodes", {"share": 0.3})
    assert METHODS["fewer-nodes"].parameters == {"share": 0.1}
    assert {"fewer-nodes", "half"} <= {*expand_methods(["all", "baselines"])}
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "drops few nodes" in page
    assert "predicts nothing" in page
    # The command line does not have them.
    (call,) = results.calls
    assert call.compare().startswith("gt.compare(")


def test_a_method_of_your_own_trains_a_model_and_is_listed(
    own: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"graphs": 60, "epochs": 1, "layers": 1, "hidden": 8}
    model = gt.train("motifs", method="fewer-nodes:share=0.3", **options)
    model.save(tmp_path / "model")
    assert (
        gt.TrainedModel.load(tmp_path / "model").description.training.method
        == "fewer-nodes:share=0.3"
    )
    model.report(tmp_path / "card.html")
    assert "drops few nodes" in (tmp_path / "card.html").read_text("utf-8")
    with pytest.raises(
        GraphTransplantError,
        match="`method` half cannot be trained as a model: it is for comparisons",
    ):
        gt.train("motifs", method="half", **options)
    assert main(["methods"]) == 0
    listed = capsys.readouterr().out
    assert "fewer-nodes" in listed
    assert "share=0.1" in listed
    assert "majority, half" in listed


NAN = float("nan")
WRONG: dict[str, list[dict[str, object]]] = {
    "GraphTransplant": [
        {"anchor_ratio": 0.7},
        {"anchor_ratio": NAN},
        {"hops": ()},
        {"hops": (1, -1)},
        {"hops": 1.5},
        {"alpha": 0.0},
        {"connect": "degrees"},
        {"anchors": "best"},
        {"cut": "nodes"},
        {"importance": "label"},
        {"new_edge_attr": "copy"},
        {"pairing": "sameclass"},
        {"pairing": 3},
        {"embedding_size": 0, "connect": "ep"},
    ],
    "GMixup": [
        {"mixing": (0.5, 0.2)},
        {"threshold": -0.1},
        {"largest": 0},
        {"nodes": 0},
        {"pairing": "rnadom"},
    ],
    "IfMixup": [{"alpha": 0.0}, {"alpha": NAN}, {"beta": float("inf")}],
    "ManifoldMixup": [{"alpha": 0.0}, {"alpha": NAN}, {"alpha": float("inf")}],
    "SubMix": [{"size": 0.0}, {"size": 1.1}, {"size": NAN}],
    "RandomSubgraph": [{"size": 0}, {"size": 1.5}, {"size": NAN}],
    "LabelSmoothing": [{"smoothing": 0.0}, {"smoothing": 1.0}, {"smoothing": NAN}],
    "OneOf": [{"probabilities": wrong} for wrong in ((0.5,), (0.5, 0.6), (-0.5, 1.5), (NAN, 1.0))],
    **{
        kind: [{"ratio": wrong} for wrong in (-0.1, 1.0, NAN)]
        for kind in ("DropNodes", "DropEdges", "PerturbEdges", "MaskNodes", "SwapOpenTriads")
    },
}


@pytest.mark.parametrize("kind", WRONG)
def test_settings_out_of_range_are_named(kind: str) -> None:
    parts = [gt.augment.OriginalGraphs()] * 2 if kind == "OneOf" else []
    for settings in WRONG[kind]:
        with pytest.raises(GraphTransplantError, match=f"`{next(iter(settings))}` must"):
            getattr(gt.augment, kind)(*parts, **settings)
