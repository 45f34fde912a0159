"""Names of methods: what they stand for, what is set in them, what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

import graph_transplant as gt
from graph_transplant.augment import METHODS, build_method, expand_methods, refusal, search_space
from graph_transplant.augment.methods import method_name, parse_method
from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.compare import compare
from graph_transplant.experiments.progress import Silent

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


def model(features: int = 3) -> gt.GraphClassifier:
    return gt.GraphClassifier(features, 2, hidden=4, layers=1, seed=0)


def test_the_search_spaces_are_those_of_the_paper() -> None:
    listed = {name: dict(method.search) for name, method in METHODS.items() if method.in_paper}
    assert listed == PAPER_SEARCH


def test_ablations_and_controls_may_try_as_many_values_as_what_they_are_held_against() -> None:
    for name, method in METHODS.items():
        if name.startswith("transplant-") or name == "saliency-shuffled":
            assert dict(method.search) == PAPER_SEARCH["transplant-ep"], name
        elif not method.in_paper:
            assert not method.search, name


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_search_space_is_the_method_with_each_value(name: str) -> None:
    presets = search_space(name)
    count = 1
    for values in METHODS[name].search.values():
        count *= len(values)
    assert len(presets) == len(set(presets)) == count
    for preset in presets:
        assert parse_method(preset)[0] == name
        assert len(build_method(preset, model())) == (0 if name == "vanilla" else 1)
    if METHODS[name].search:
        assert name in presets  # the default is one of the paper's values


def test_parameters_reach_the_augmentation() -> None:
    (dropped,) = build_method("drop-nodes:ratio=0.4", model())
    assert isinstance(dropped, gt.DropNodes)
    assert dropped.ratio == 0.4
    (mixed,) = build_method("transplant-ep:anchor_ratio=0.05:pairing=minority", model())
    assert isinstance(mixed, gt.GraphTransplant)
    assert mixed.pairing.policy == "minority"
    assert mixed.cut.anchor_ratio == 0.05


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_parameter_at_its_default_changes_nothing(name: str) -> None:
    written = method_name(name, METHODS[name].parameters)
    assert expand_methods([written, name]) == [name]


@pytest.mark.parametrize(
    "name", [name for name, method in METHODS.items() if "pairing" in method.parameters]
)
@pytest.mark.parametrize("policy", ["same-class", "cross-class", "minority"])
def test_every_mixing_method_takes_every_pairing(name: str, policy: str) -> None:
    (augmentation,) = build_method(f"{name}:pairing={policy}", model())
    wrapped = isinstance(augmentation, gt.ShuffledSaliency)
    inner = augmentation.transplant if wrapped else augmentation
    assert inner.pairing.policy == policy


def test_all_mixing_methods_have_a_pairing() -> None:
    mixing = {name for name in METHODS if "mix" in name or name.startswith("transplant")}
    assert len(mixing) == 10
    assert mixing <= {n for n, method in METHODS.items() if "pairing" in method.parameters}


def test_groups() -> None:
    assert expand_methods(["all"]) == list(METHODS)
    assert expand_methods(["paper"]) == list(PAPER_SEARCH)
    assert expand_methods(["vanilla", "drop-nodes:paper", "all"])[:3] == [
        "vanilla",
        "drop-nodes",
        "drop-nodes:ratio=0.4",
    ]
    assert expand_methods(["vanilla", "vanilla"]) == ["vanilla"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("transplant", "must be one of all, paper, vanilla"),
        ("drop-nodes:rate=0.4", "drop-nodes has no parameter 'rate'; it has ratio"),
        ("drop-nodes:ratio", "written NAME=VALUE"),
        ("drop-nodes:ratio=", "written NAME=VALUE"),
        ("drop-nodes:ratio=much", "`ratio` must be a number, got 'much'"),
        ("drop-nodes:ratio=0.4:ratio=0.2", "`ratio` is set twice"),
        ("vanilla:ratio=0.4", "vanilla has no parameters to set"),
        ("unknown:paper", "`methods` must be one of all, paper, vanilla"),
        ("ALL", "`methods` must be one of all, paper, vanilla"),
        ("all:paper", "`all` stands for several methods and takes no parameters"),
        ("drop-nodes:paper:ratio=0.4", "`paper` after a method stands alone"),
        ("drop-nodes:ratio=0.4:paper", "`paper` after a method stands alone"),
    ],
)
def test_a_name_that_cannot_be_read_is_told(text: str, said: str) -> None:
    with pytest.raises(GraphTransplantError, match=said):
        expand_methods([text])


@pytest.mark.parametrize("value", ["-0.1", "1.5", "nan"])
@pytest.mark.parametrize("name", [f"{n}:{key}" for n, m in METHODS.items() for key in m.search])
def test_values_out_of_range_are_refused(name: str, value: str) -> None:
    with pytest.raises(GraphTransplantError, match=name.partition(":")[2]):
        build_method(f"{name}={value}", model())


class Notes(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_named_method_that_cannot_serve_is_an_error_before_training(tmp_path: Path) -> None:
    store = gt.load("motifs", graphs=24)
    with pytest.raises(GraphTransplantError, match="mask-nodes needs node features, but motifs"):
        compare(store, out=tmp_path / "x", methods=["vanilla", "mask-nodes"], folds=3, epochs=1)
    assert not (tmp_path / "x").exists()


def test_of_a_group_it_is_left_out_and_said(tmp_path: Path) -> None:
    store, notes = gt.load("motifs", graphs=24), Notes()
    result = compare(store, out=tmp_path, methods=["paper"], folds=3, epochs=1, reporter=notes)
    ran = {record["method"] for record in result.records}
    assert ran == set(PAPER_SEARCH) - {"mask-nodes"}
    assert notes.notes == [
        "mask-nodes is left out: mask-nodes needs node features, but motifs has none"
    ]


def test_a_preset_is_a_method_of_its_own_in_the_records(tmp_path: Path) -> None:
    store = gt.load("motifs", graphs=24)
    names = ["vanilla", "drop-nodes:paper"]
    result = compare(store, out=tmp_path, methods=names, folds=3, epochs=2)
    ran = [row.method for row in result.rows]
    assert sorted(ran) == ["drop-nodes", "drop-nodes:ratio=0.4", "vanilla"]
    before = (tmp_path / "records.jsonl").read_bytes()
    again = compare(
        store, out=tmp_path, methods=["drop-nodes:ratio=0.40", *names], folds=3, epochs=2
    )
    assert (tmp_path / "records.jsonl").read_bytes() == before
    assert [row.method for row in again.rows] == ran


def test_refusal_is_none_for_what_can_be_served() -> None:
    motifs = gt.load("motifs", graphs=12)
    ours = gt.GraphClassifier.for_data(motifs, hidden=4, layers=1)
    assert refusal("transplant-ep", ours, motifs) is None


def test_sensitivity_changes_one_parameter_at_a_time() -> None:
    names = expand_methods(["transplant-ep:sensitivity"])
    assert names[0] == "transplant-ep"
    changed = [parse_method(name)[1] for name in names[1:]]
    assert all(len(one) == 1 for one in changed)
    values: dict[str, list[object]] = {}
    for one in changed:
        for parameter, value in one.items():
            values.setdefault(parameter, []).append(value)
    # The defaults (0.1, 3, 2 and the gradient) stand for themselves, once.
    assert values == {
        "anchor_ratio": [0.05, 0.2, 0.3],
        "max_hops": [1, 2, 5],
        "alpha": [0.5, 1.0, 5.0],
        "saliency": ["gradient-x-activation", "gradient-after-activation"],
    }


def test_parameters_of_graph_transplant_reach_its_parts() -> None:
    (mixed,) = build_method(
        "transplant-dp:max_hops=2:alpha=0.5:saliency=gradient-x-activation", model()
    )
    assert isinstance(mixed, gt.GraphTransplant)
    assert tuple(mixed.cut.hops) == (1, 2)
    assert mixed.cut.alpha == 0.5
    assert mixed.saliency == gt.NodeSaliency("gradient-x-activation")
    (plain,) = build_method("transplant-dp", model())
    written = gt.GraphTransplant("degree")
    assert isinstance(plain, gt.GraphTransplant)
    assert tuple(plain.cut.hops) == tuple(written.cut.hops)
    assert (plain.cut.alpha, plain.saliency) == (written.cut.alpha, written.saliency)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("transplant-dp:max_hops=0", "`max_hops` must be at least 1, got 0"),
        ("transplant-dp:saliency=norm", "`saliency` must be one of"),
        ("transplant-dp:alpha=0", "`alpha` must be positive"),
    ],
)
def test_parameters_of_graph_transplant_are_checked(text: str, message: str) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        build_method(text, model())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drop-nodes:sensitivity", "which drop-nodes does not have"),
        ("transplant-dp:sensitivity:alpha=1", "`sensitivity` after a method stands alone"),
    ],
)
def test_sensitivity_is_refused_where_it_has_no_meaning(text: str, message: str) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        expand_methods([text])
