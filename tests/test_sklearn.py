"""The scikit-learn estimators: every check that applies, graphs of every kind, labels of any."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import VotingClassifier
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks, get_tags
from torch_geometric.data import Data, InMemoryDataset

import graph_transplant as gt
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.models.fitting import train
from graph_transplant.results.model_json import Sizes
from graph_transplant.sklearn import GraphTransplantClassifier, GraphTransplantRegressor
from helpers.edits import both_ways
from helpers.strategies import generator

FAST: dict[str, Any] = {
    "layers": 1,
    "hidden": 16,
    "epochs": 20,
    "learning_rate": 0.02,
    "dropout": 0.0,
    "batch_size": 32,
    "random_state": 0,
}


def classifier(method: str = "transplant-dp", **changed: Any) -> GraphTransplantClassifier:
    return GraphTransplantClassifier(method, **{**FAST, **changed})


def regressor(method: str = "vanilla", **changed: Any) -> GraphTransplantRegressor:
    return GraphTransplantRegressor(method, **{**FAST, **changed})


# -------------------------------------------------------------------- scikit-learn's own checks

# One step per epoch on what the checks feed: their number, not the size of the data, takes time.
_CHECKED = {"epochs": 12, "batch_size": 512, "learning_rate": 0.1, "random_state": None}
ESTIMATORS = [classifier(**_CHECKED), regressor(**_CHECKED)]

# Not handed out by the generator for these estimators, but they hold as well.
ALSO_RUN = ("check_dataframe_column_names_consistency", "check_inplace_ensure_writeable")

# Of the checks that the generator hands out, those that do not apply.
INAPPLICABLE = {
    "check_sample_weight_equivalence_on_dense_data": (
        "weights say how likely a graph is drawn: equal to repetition on average, not to the bit"
    ),
    "check_array_api_input": "the estimators do not claim to support arrays other than numpy's",
    "check_classifiers_multilabel_output_format_decision_function": (
        "there is no `decision_function`: probabilities are calibrated, margins are not"
    ),
}


def name_of(check: Any) -> str:
    return str(getattr(check, "func", check).__name__)


@estimator_checks.parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    if name_of(check) in INAPPLICABLE:
        pytest.skip(INAPPLICABLE[name_of(check)])
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_further_checks_and_no_tag_that_switches_checks_off(estimator: Any) -> None:
    kind = type(estimator).__name__
    several = ["check_classifier_multioutput"] if "Classifier" in kind else []
    for name in (*ALSO_RUN, *several):
        getattr(estimator_checks, name)(kind, clone(estimator))
    tags = get_tags(estimator)
    of_kind = tags.classifier_tags or tags.regressor_tags
    on = (tags.requires_fit, tags.target_tags.required, tags.input_tags.two_d_array)
    off = (tags._skip_test, tags.no_validation, tags.non_deterministic, of_kind.poor_score)
    assert (all(on), any(off)) == (True, False)


# -------------------------------------------------------------------- graphs of every kind


def rings_and_stars(count: int = 12) -> tuple[list[nx.Graph[Any]], list[str]]:
    """Graphs that degrees alone tell apart."""
    graphs, names = [], []
    for size in range(4, 4 + count):
        graphs += [nx.cycle_graph(size), nx.star_graph(size - 1)]
        names += ["ring", "star"]
    return graphs, names


def as_data(graph: nx.Graph[Any], x: torch.Tensor | None = None, **fields: Any) -> Data:
    return Data(x=x, edge_index=both_ways(*graph.edges), num_nodes=len(graph), **fields)


MOLECULES = [
    *("CCO", "CCCO", "CC(O)C", "OCCO", "CCCCO", "CC(C)CO", "OC1CCCC1", "CCOCC", "COC", "OCC(O)C"),
    *("CCN", "CCCN", "CC(N)C", "NCCN", "CCCCN", "CC(C)CN", "NC1CCCC1", "CCNCC", "CNC", "NCC(N)C"),
]
ATOMS = np.repeat(["oxygen", "nitrogen"], 10)


def test_networkx_graphs_and_names() -> None:
    graphs, names = rings_and_stars()
    fitted = classifier(epochs=40).fit(graphs, names)
    assert fitted.classes_.tolist() == ["ring", "star"]
    assert fitted.predict([nx.star_graph(30), nx.cycle_graph(30)]).tolist() == ["star", "ring"]
    assert fitted.score(graphs, names) == 1.0
    assert not hasattr(fitted, "n_features_in_")
    assert fitted.model_.label_names == ("ring", "star")
    assert next(point["epoch"] for point in fitted.history_) == 1


def test_networkx_labels_are_read_as_in_training() -> None:
    graphs, names = rings_and_stars(6)
    for graph, name in zip(graphs, names, strict=True):
        nx.set_node_attributes(graph, {n: "ab"[n % 2] for n in graph}, "label")
        graph.graph["y"] = name
    fitted = classifier(epochs=2).fit(graphs)
    assert fitted.classes_.tolist() == ["ring", "star"]
    assert fitted.model_.network.in_features == 2
    # One label alone would give one column if it were read afresh.
    only_a = graphs[0].copy()
    nx.set_node_attributes(only_a, "a", "label")
    assert fitted.predict([only_a]).shape == (1,)
    nx.set_node_attributes(only_a, "zinc", "label")
    with pytest.raises(DataError, match="zinc"):
        fitted.predict([only_a])


def test_smiles() -> None:
    fitted = classifier(epochs=40, validation_fraction=0.3).fit(MOLECULES, ATOMS)
    assert fitted.model_.description.training.model == "gine"
    assert fitted.score(MOLECULES, ATOMS) > 0.9
    assert fitted.predict(["OCCCO"]).tolist() == ["oxygen"]
    assert fitted.predict(np.array(["NCCCN"])).tolist() == ["nitrogen"]
    expected = fitted.predict_proba(MOLECULES)
    frame = pd.DataFrame({"smiles": MOLECULES})
    for column in (frame, np.array(MOLECULES)[:, None], np.array(MOLECULES, object)[:, None]):
        np.testing.assert_array_equal(fitted.predict_proba(column), expected)
    frame.loc[3, "smiles"] = None
    with pytest.raises(DataError, match="item 3 is a "):
        fitted.predict(frame)


def test_the_model_goes_by_edge_features_also_in_folds() -> None:
    store = gt.load(MOLECULES, y=ATOMS.tolist())
    estimator = classifier(epochs=1)
    folds = cross_validate(estimator, store, store.y.numpy(), cv=2, return_estimator=True)
    models = [*folds["estimator"], estimator.fit(store)]
    assert [one.model_.description.training.model for one in models] == ["gine"] * 3
    plain = classifier(epochs=1).fit(*rings_and_stars(5)).model_
    assert plain.description.training.model == "gcs"


def test_pyg_data_data_set_array_and_store_give_the_same() -> None:
    graphs, names = rings_and_stars(6)
    data = [as_data(graph) for graph in graphs]
    labels = [["ring", "star"].index(name) for name in names]
    own = [as_data(graph, y=torch.tensor([c])) for graph, c in zip(graphs, labels, strict=True)]
    array = np.empty(len(data), dtype=object)
    array[:] = data

    class Made(InMemoryDataset):
        def __init__(self) -> None:
            super().__init__()
            self.data, self.slices = self.collate(own)

    store = gt.GraphStore.from_pyg(own)
    outputs = [
        classifier(epochs=3).fit(X, y).predict_proba(data)
        for X, y in [
            (data, labels),
            (tuple(data), np.array(labels)),
            (array, torch.tensor(labels)),
            (own, None),
            (Made(), None),
            (store, None),
            (store, labels),
        ]
    ]
    for other in outputs[1:]:
        np.testing.assert_array_equal(other, outputs[0])
    # What stands beside a graph does not matter.
    fitted = classifier(epochs=3).fit(store)
    np.testing.assert_allclose(fitted.predict_proba(store.subset([1, 2])), outputs[0][1:3], 1e-12)


def test_an_eval_set_of_stores_keeps_what_is_known_of_them() -> None:
    store = gt.load(["CCO", "CCN", "CCC", "CCCl"] * 5, y=[0, 1, 2, 0] * 5)
    store.num_continuous = 1
    fitted = classifier(epochs=1).fit(store, eval_set=(store.subset(range(8)), None))
    assert fitted.model_.network.config()["continuous"] == 1
    assert fitted.predict(["CCO"]).shape == (1,)
    chains = [f"{'C' * size}{end}" for size in range(1, 11) for end in ("O", "Cl")]
    other = gt.load(chains, y=[0, 1] * 10, largest_fragment=True)
    with pytest.raises(DataError, match="same kind"):
        classifier(epochs=1).fit(store, eval_set=(other, None))
    with pytest.raises(DataError, match="read with other features"):
        classifier(epochs=1).fit(other).predict(store)


def test_names_of_labels_and_values_are_kept() -> None:
    store = gt.load("motifs", graphs=60)
    names = store.label_names or ()
    fitted = classifier(epochs=1).fit(store)
    assert fitted.classes_.tolist() == sorted(names)
    assert fitted.model_.label_names == tuple(sorted(names))
    some = store.subset(store.labels != 2)
    assert classifier(epochs=1).fit(some).classes_.tolist() == sorted({*names} - {names[2]})
    # The same classes, numbered differently.
    order = torch.arange(5, -1, -1)
    turned = store.with_targets(order[store.y], label_names=names[::-1])
    assert fitted.score(turned) == fitted.score(store)
    with pytest.raises(DataError, match="the labels are not classes of the model; got 0"):
        fitted.score(store, store.y.numpy())
    graphs, names = rings_and_stars(4)
    frame = pd.DataFrame({"star": [n == "star" for n in names], "size": [len(g) for g in graphs]})
    assert regressor(epochs=1).fit(graphs, frame).model_.label_names == ("star", "size")
    labels = frame.assign(size=frame["size"] > 5)
    # Their columns may have gaps, and another order in further graphs.
    labels = labels.astype("Int64")
    labels.loc[0, "size"] = pd.NA
    turned = labels[["size", "star"]]
    one, other = (
        classifier(epochs=1).fit(graphs, labels, eval_set=(graphs, own)) for own in (labels, turned)
    )
    assert one.model_.label_names == ("star", "size")
    assert one.model_.description.metrics == other.model_.description.metrics
    assert one.score(graphs, labels) == one.score(graphs, turned)
    with pytest.warns(DataConversionWarning):
        one_column = classifier(epochs=1).fit(graphs, pd.DataFrame({"kind": names}))
    assert one_column.model_.label_names == ("ring", "star")
    of_classes = regressor(epochs=1).fit(store)
    assert of_classes.model_.label_names == ("value 1",)
    series = pd.Series(names)
    assert classifier(epochs=1).fit(graphs, series).classes_.tolist() == ["ring", "star"]


def test_quantities_are_standardised_and_one_hot_columns_are_not() -> None:
    labels, source, hot = [0, 1] * 8, generator(0), torch.eye(2)[[0, 1, 0, 0]]
    graphs = []
    for label in labels:
        quantity = 1000 + 10 * label + torch.rand(4, 1, generator=source)
        graphs.append(as_data(nx.cycle_graph(4), x=torch.cat((quantity, hot), dim=1)))
    fitted = classifier("vanilla", epochs=30).fit(graphs, labels)
    assert fitted.model_.network.config()["continuous"] == 1
    assert fitted.score(graphs, labels) == 1.0


def test_a_row_of_a_table_is_a_graph_of_one_node() -> None:
    table = np.random.default_rng(0).normal(size=(60, 3))
    labels = table[:, 0] > 0
    fitted = classifier("vanilla", epochs=40, validation_fraction=0.3).fit(table, labels)
    assert fitted.n_features_in_ == 3
    assert fitted.score(table, labels) > 0.9
    rows = [
        Data(x=torch.tensor(row[None]).float(), edge_index=torch.empty(2, 0).long())
        for row in table
    ]
    np.testing.assert_allclose(fitted.predict_proba(rows), fitted.predict_proba(table), atol=1e-6)
    # Graphs have no columns: what the table left behind must go.
    graphs, names = rings_and_stars(4)
    assert not hasattr(fitted.fit(graphs, names), "n_features_in_")


# -------------------------------------------------------------------- labels of any type


@pytest.mark.parametrize(
    "labels",
    [["no", "yes"], [-3, 7], [False, True], np.array([2.0, 5.0]), [np.str_("b"), np.str_("a")]],
    ids=["text", "numbers", "bools", "whole floats", "numpy texts"],
)
def test_labels_come_back_as_they_were(labels: Any) -> None:
    graphs, names = rings_and_stars(5)
    y = [labels[int(name == "star")] for name in names]
    fitted = classifier(epochs=2).fit(graphs, y)
    np.testing.assert_array_equal(fitted.classes_, np.unique(y))
    predicted = fitted.predict(graphs)
    assert predicted.dtype == np.asarray(y).dtype
    best = fitted.predict_proba(graphs).argmax(1)
    np.testing.assert_array_equal(fitted.classes_[best], predicted)


def test_several_labels_of_which_some_are_missing() -> None:
    graphs, names = rings_and_stars(8)
    y = np.array(
        [[name == "star", len(g) > 7] for g, name in zip(graphs, names, strict=True)], float
    )
    y[3, 0] = y[8, 1] = np.nan
    fitted = classifier(readout="sum", epochs=60).fit(graphs, y)
    assert fitted.classes_.tolist() == [0, 1]
    predicted, probabilities = fitted.predict(graphs), fitted.predict_proba(graphs)
    assert predicted.shape == probabilities.shape == (16, 2)
    np.testing.assert_array_equal(predicted, probabilities >= 0.5)
    by_hand = np.mean(
        [
            all(p == t or np.isnan(t) for p, t in zip(*row, strict=True))
            for row in zip(predicted, y, strict=True)
        ]
    )
    assert fitted.score(graphs, y) == by_hand > 0.7


def test_numbers_in_their_own_units_of_which_some_are_missing() -> None:
    graphs = [nx.path_graph(n) for n in range(3, 23)]
    y = np.array([[1000.0 * len(graph), -5.0 * len(graph)] for graph in graphs])
    one = regressor(model="gin", readout="sum", epochs=60).fit(graphs, y[:, 0])
    assert one.predict(graphs).shape == (20,)
    assert one.score(graphs, y[:, 0]) == pytest.approx(r2_score(y[:, 0], one.predict(graphs)))
    assert one.score(graphs, y[:, 0]) > 0.8
    y[4, 1] = np.nan
    fitted = regressor(model="gin", readout="sum", epochs=40).fit(graphs, y)
    predicted = fitted.predict(graphs)
    assert predicted.shape == (20, 2)
    there = np.arange(20) != 4
    by_hand = (r2_score(y[:, 0], predicted[:, 0]) + r2_score(y[there, 1], predicted[there, 1])) / 2
    assert fitted.score(graphs, y) == pytest.approx(by_hand)
    weights = np.arange(1.0, 21.0)
    weighted = [
        r2_score(y[:, 0], predicted[:, 0], sample_weight=weights),
        r2_score(y[there, 1], predicted[there, 1], sample_weight=weights[there]),
    ]
    assert fitted.score(graphs, y, sample_weight=weights) == pytest.approx(np.mean(weighted))
    with pytest.raises(ValueError, match="Input y contains infinity"):
        fitted.fit(graphs, np.nan_to_num(y, nan=np.inf))


# -------------------------------------------------------------------- randomness and inputs


def test_random_generators_and_none() -> None:
    graphs, names = rings_and_stars(5)

    def outputs(state: Any) -> Any:
        return classifier(epochs=2, random_state=state).fit(graphs, names).predict_proba(graphs)

    shared = np.random.RandomState(3)
    first, second = outputs(shared), outputs(shared)
    assert not np.array_equal(first, second), "a generator moves on"
    np.testing.assert_array_equal(first, outputs(np.random.RandomState(3)))
    assert not np.array_equal(outputs(None), outputs(None))


@pytest.mark.parametrize("state", [0, None])
def test_nothing_else_is_changed(state: Any) -> None:
    graphs, names = rings_and_stars(5)
    data = [as_data(graph, x=torch.rand(len(graph), 2)) for graph in graphs]
    before = copy.deepcopy(data)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    classifier(epochs=2, random_state=state).fit(data, names).predict(data)
    assert torch.equal(torch.get_rng_state(), torch_state)
    for was, now in zip(numpy_state, np.random.get_state(), strict=True):  # noqa: NPY002
        np.testing.assert_array_equal(was, now)
    for old, new in zip(before, data, strict=True):
        assert old.to_dict().keys() == new.to_dict().keys()
        assert torch.equal(old.x, new.x)
        assert torch.equal(old.edge_index, new.edge_index)


# -------------------------------------------------------------------- inside scikit-learn


def test_cross_validation_of_graphs_and_of_a_store() -> None:
    graphs, names = rings_and_stars(9)
    scores = cross_val_score(classifier(epochs=40, validation_fraction=0.4), graphs, names, cv=2)
    assert scores.mean() > 0.9
    own = [
        as_data(g, y=torch.tensor([int(n == "star")])) for g, n in zip(graphs, names, strict=True)
    ]
    store = gt.GraphStore.from_pyg(own)
    folds = [(np.arange(6, 18), np.arange(6)), (np.arange(12), np.arange(12, 18))]
    of_list = cross_val_score(classifier(epochs=3), own, store.y.numpy(), cv=folds)
    for found in (
        cross_val_score(classifier(epochs=3), store, store.y.numpy(), cv=folds),
        cross_val_score(classifier(epochs=3), np.fromiter(own, dtype=object), store.y, cv=folds),
        # The graphs' own labels are used for fitting and for scoring.
        cross_val_score(classifier(epochs=3), store, cv=folds),
    ):
        np.testing.assert_array_equal(found, of_list)
    predicted = cross_val_predict(classifier(epochs=3), graphs, names, cv=2, method="predict_proba")
    assert predicted.shape == (18, 2)


def test_pipeline_and_voting() -> None:
    pipe = make_pipeline(
        FunctionTransformer(lambda texts: [s.strip() for s in texts]), classifier(epochs=3)
    )
    padded = [f"  {smiles} " for smiles in MOLECULES]
    pipe.fit(padded, ATOMS).set_params(graphtransplantclassifier__epochs=2)
    assert pipe.predict_proba(padded).shape == (20, 2)
    graphs, names = rings_and_stars(8)
    members = [("mean", classifier(epochs=5)), ("sum", classifier(epochs=5, readout="sum"))]
    vote = VotingClassifier(members, voting="soft").fit(graphs, names)
    by_hand = np.mean([member.predict_proba(graphs) for member in vote.estimators_], axis=0)
    np.testing.assert_allclose(vote.predict_proba(graphs), by_hand)


# -------------------------------------------------------------------- nested parameters, fit


@pytest.mark.parametrize("given", ["transplant-dp", gt.GraphTransplant()], ids=["name", "object"])
def test_parameters_of_the_augmentation_are_nested(given: Any) -> None:
    made = classifier(given, epochs=2)
    assert made.get_params()["augment__anchor_ratio"] == 0.1
    assert "augment__anchor_ratio" not in made.get_params(deep=False)
    changed = clone(made).set_params(augment__anchor_ratio=0.3, augment__alpha=1.5)
    assert changed.get_params()["augment__anchor_ratio"] == 0.3
    assert made.get_params()["augment__anchor_ratio"] == 0.1
    graphs, names = rings_and_stars(6)
    by_name = classifier("transplant-dp:anchor_ratio=0.3:alpha=1.5", epochs=2).fit(graphs, names)
    np.testing.assert_array_equal(
        changed.fit(graphs, names).predict_proba(graphs), by_name.predict_proba(graphs)
    )
    with pytest.raises(ValueError, match="augment__rate"):
        made.set_params(augment__rate=1)
    grid = {"augment__anchor_ratio": [0.1, 0.3], "layers": np.array([1, 2])}
    search = GridSearchCV(made, grid, cv=2).fit(graphs, names)
    assert set(search.best_params_) == set(grid)
    assert len(search.cv_results_["mean_test_score"]) == 4
    assert search.predict(graphs[:2]).shape == (2,)


def test_an_evaluation_set_takes_the_place_of_held_out_graphs() -> None:
    graphs, names = rings_and_stars(8)
    for X, V in (  # noqa: N806
        (graphs[:10], graphs[10:]),
        ([as_data(g) for g in graphs[:10]], [as_data(g) for g in graphs[10:]]),
        (np.arange(20.0).reshape(10, 2), np.arange(12.0).reshape(6, 2)),
    ):
        fitted = classifier(epochs=2).fit(X, names[:10], eval_set=(V, names[10:]))
        sizes = fitted.model_.description.training.sizes
        assert sizes == Sizes(train=10, validation=6, test=0)
        listed = classifier(epochs=2).fit(X, names[:10], eval_set=[(V, names[10:])])
        np.testing.assert_array_equal(listed.predict_proba(X), fitted.predict_proba(X))
    for given, message in (
        ((MOLECULES, ATOMS), "same kind"),
        (graphs, "`eval_set` must be a pair"),
        ((graphs, ["other"] * 16), "no training graph is of the class 'other'$"),
    ):
        with pytest.raises(DataError, match=message):
            classifier().fit(graphs, names, eval_set=given)


def test_groups_stay_on_one_side(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs, names = rings_and_stars(10)
    groups = np.arange(20) // 4
    seen: list[Any] = []
    monkeypatch.setattr(
        "graph_transplant.sklearn.train",
        lambda store, config, **options: seen.append(config) or train(store, config, **options),
    )
    classifier(epochs=1, validation_fraction=0.4).fit(graphs, names, groups=groups)
    split = seen[0].split
    assert set(groups[split.train]) & set(groups[split.validation]) == set()
    assert len(split.train) + len(split.validation) == 20
    named = [None if group == 2 else f"group {group}" for group in groups]
    classifier(epochs=1).fit(graphs, names, groups=named)
    one, other = (set(groups[part]) for part in (seen[1].split.train, seen[1].split.validation))
    assert (one & other, len(other)) == (set(), 1)
    for given, message in (
        ([1, 2, 3], "`groups` must have 20 entries; got 3"),
        (7, "`groups` must have 20 entries"),
        ([0] * 20, "at least two groups"),
    ):
        with pytest.raises(DataError, match=message):
            classifier(epochs=1).fit(graphs, names, groups=given)


def test_weights_of_graphs_and_of_classes() -> None:
    table = np.random.default_rng(0).normal(size=(80, 2))
    labels = np.repeat(["a", "b"], 40)
    plain = classifier("vanilla").fit(table, labels)
    same = classifier("vanilla").fit(table, labels, sample_weight=np.full(80, 3.0))
    np.testing.assert_array_equal(same.predict_proba(table), plain.predict_proba(table))
    # Weight 0 is as good as not there.
    some = classifier("vanilla").fit(table[20:], labels[20:])
    zero = classifier("vanilla").fit(table, labels, sample_weight=np.arange(80) >= 20)
    np.testing.assert_array_equal(zero.predict_proba(table), some.predict_proba(table))
    weights = np.where(labels == "a", 50.0, 1.0)
    by_graph = classifier("vanilla").fit(table, labels, sample_weight=weights)
    assert np.mean(by_graph.predict(table) == "a") > 0.8
    by_class = classifier("vanilla", class_weight={"b": 50.0}).fit(table, labels)
    assert np.mean(by_class.predict(table) == "b") > 0.8


# -------------------------------------------------------------------- what is told


def test_what_is_unusual_is_told_at_the_line_that_fits() -> None:
    table = np.random.default_rng(0).normal(size=(150, 2))
    labels = np.repeat(["common", "rare"], [148, 2])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier(model="gcs", epochs=1).fit(MOLECULES, ATOMS)
        regressor(model="gin", epochs=1).fit(MOLECULES, np.arange(20.0))
        classifier("vanilla", epochs=1).fit(table, labels)
    told = [str(one.message) for one in caught]
    assert "gcs does not use the 13 edge features" in told[0]
    assert "gin does not use the 13 edge features" in told[1]
    assert sorted(told[2:]) == [
        "auroc is not defined on these validation graphs: using loss or accuracy instead",
        "classes missing from the validation graphs: rare",
    ]
    assert {Path(one.filename) for one in caught} == {Path(__file__)}
    # Warnings are errors here: one validation graph cannot be of both classes, and who asks for
    # balance knows.
    classifier(epochs=1).fit(*rings_and_stars(5))
    classifier("vanilla", epochs=1, balance=True).fit(table, np.arange(150) % 2)


# -------------------------------------------------------------------- kept for later


def test_a_model_trained_elsewhere_can_be_loaded(tmp_path: Path) -> None:
    store = gt.load("motifs", graphs=60)
    train(store, method="vanilla", hidden=8, layers=2, epochs=1).save(tmp_path)
    loaded = GraphTransplantClassifier.load(tmp_path)
    assert loaded.classes_.tolist() == list(store.label_names or ())
    assert loaded.augment == "vanilla"
    assert loaded.layers == 2
    predicted = loaded.predict(store.to_pyg()[:3])
    again = pickle.loads(pickle.dumps(loaded))  # noqa: S301
    np.testing.assert_array_equal(again.predict(store.to_pyg()[:3]), predicted)
    assert again.get_params() == loaded.get_params()
    with pytest.raises(DataError, match="is for multiclass, not for regression"):
        GraphTransplantRegressor.load(tmp_path)


# -------------------------------------------------------------------- what is wrong is said

GRAPHS, NAMES = rings_and_stars(4)


@pytest.mark.parametrize(
    ("graphs", "y", "message"),
    [
        ([*GRAPHS[:3], "CCO"], NAMES[:4], "it holds networkx graphs, but item 3 is a str"),
        ("CCO", ["a"], "must be a sequence of graphs; got one str"),
        (GRAPHS, NAMES[:-1], "inconsistent numbers of samples"),
        (GRAPHS, None, r"requires y to be passed.*item 0 of `X` has no target"),
        (GRAPHS, ["a"] * 8, "two classes; got one class, 'a'"),
        (GRAPHS, [*NAMES[:5], None, "star", "star"], "of one type, none missing; got NoneType"),
        (GRAPHS, [0, 1, 0, float("nan"), 1, 0, 1, 0], "Input y contains NaN"),
        (GRAPHS, [*NAMES[:-1], 4], "must be of one type, none missing; got int, str"),
        (GRAPHS, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], "Unknown label type"),
        (GRAPHS, [[0, 1]] * 7 + [[0, 2]], "must be 0, 1 or NaN"),
        (GRAPHS, [[0, 1]] * 7 + [[np.nan, np.nan]], "all targets of graph 7 are missing"),
        (GRAPHS, [[0, 1]] * 7 + [[0]], "`y` must have the same number of entries for every graph"),
        (GRAPHS[:2], NAMES[:2], "at least 3 graphs"),
        (["CCO", "CC(", *MOLECULES], [0, 1] * 11, r"item 1, 'CC\(': .*cannot be parsed"),
        ([nx.MultiGraph([(0, 1)])] * 4, [0, 1, 0, 1], "item 0: it is a MultiGraph"),
        ([], [], "`X` holds no graphs"),
        (pd.DataFrame({"smiles": MOLECULES, "mass": 1.0}), ATOMS, "2 columns, some of texts"),
    ],
)
def test_what_cannot_be_fitted(graphs: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classifier(epochs=1).fit(graphs, y)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"augment": "transplant"}, "`augment` must be one of .*'transplant"),
        ({"augment": None}, "`augment` must be a name or an augmentation, got None"),
        ({"augment__ratio": 0.1, "augment": "vanilla"}, "'vanilla' has no parameters"),
        ({"epochs": 1.5}, "`epochs` must be a whole number, got 1.5"),
        ({"class_weight": {"rng": 3}}, "`class_weight` has 'rng', .* classes are 'ring', 'star'"),
        ({"model": "gcm"}, "`model` must be one of .*did you mean 'gc"),
        ({"validation_fraction": 0.0}, r"`validation_fraction` must be in \(0, 1\), got 0"),
        ({"model": "gine"}, "needs edge features"),
    ],
)
def test_parameters_that_cannot_be_used(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        classifier(epochs=1).set_params(**changed).fit(GRAPHS, NAMES)


def test_graphs_that_the_model_does_not_fit() -> None:
    data = [as_data(graph, x=torch.rand(len(graph), 2)) for graph in GRAPHS]
    fitted = classifier(epochs=1).fit(data, NAMES)
    with pytest.raises(DataError, match="SMILES, but the model was not trained on molecules"):
        fitted.predict(["CCO"])
    molecules = classifier(epochs=1).fit(MOLECULES, ATOMS)
    with pytest.raises(DataError, match=r"item 1, 'C\(': the SMILES cannot be parsed"):
        molecules.predict(["CCO", "C("])
