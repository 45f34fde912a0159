"""Forests and kernels as trained models: saved, loaded, served, explained, refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import graph_transplant as gt
from graph_transplant.baselines import forest, wl_svm
from graph_transplant.data import GraphStore
from graph_transplant.datasets.molecules import from_smiles
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.models import TrainedModel

TAILS = ("O", "N", "Cl", "c1ccccc1", "C(=O)O", "C#N", "SC", "C1CCNCC1")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest, "TREES", 12)
    monkeypatch.setattr(forest, "TRIED", 6)
    monkeypatch.setattr(wl_svm, "DEPTHS", (1, 2))
    monkeypatch.setattr(wl_svm, "COSTS", (1.0,))


def molecules(task: str = "multiclass") -> GraphStore:
    texts = [f"{'C' * (1 + k % 9)}{'[C@H](F)' if k % 4 == 1 else ''}{tail}" for k in range(9)
             for tail in TAILS]  # fmt: skip
    store = from_smiles(texts)
    draw = torch.Generator().manual_seed(4)
    nitrogen = torch.tensor([text.count("N") > 0 for text in texts]).long()
    noise = torch.rand(len(texts), generator=draw)
    if task == "multiclass":
        return store.with_targets(nitrogen, task=task, label_names=("no", "yes"))
    y = torch.stack([nitrogen.float(), noise], 1)
    y = (y > 0.5).float() if task == "multilabel" else y + store.node_counts[:, None] / 5
    y[::7, 1] = torch.nan
    return store.with_targets(y.float(), task=task)


def trained(method: str, task: str = "multiclass", **options: Any) -> TrainedModel:
    return gt.train(molecules(task), method=method, validation=0.3, test=0.2, **options)


TRAINED = [(method, task) for method in ("forest", "wl-svm", "wl-oa")
           for task in ("multiclass", "multilabel", "regression")]  # fmt: skip


@pytest.mark.parametrize(("method", "task"), TRAINED)
def test_a_model_without_a_network_is_saved_and_serves_as_before(
    method: str, task: str, tmp_path: Path
) -> None:
    model = trained(method, task)
    model.save(tmp_path)
    assert model.device.type == "cpu"
    assert method in repr(model)
    again = TrainedModel.load(tmp_path)
    store = molecules(task)
    assert torch.equal(again.logits(store), model.logits(store))
    # One row does not depend on the others.
    assert torch.equal(again.logits(store.subset([5])), model.logits(store)[[5]])
    table = again.predict(list(store.rows.texts[:9]))
    assert (table["error"] == "").all()
    assert table["similarity"].between(0, 1).all()
    if task == "multiclass":
        assert table["set"].str.contains("no|yes").all()
    page = tmp_path / "card.html"
    again.report(page)
    assert method in page.read_text()
    assert "epoch" not in page.read_text()
    (shown,) = gt.explain(again, store.subset([3]))
    view = shown.views[0]
    assert len(view.added) == store.node_counts[3]
    with pytest.raises(GraphTransplantError, match=f"needs a network, .* trained with {method}"):
        _ = model.network


def test_a_model_is_served_in_a_fresh_process_in_flat_memory(tmp_path: Path) -> None:
    for method in ("forest", "wl-svm"):
        model = trained(method)
        model.save(tmp_path / method)
        torch.save(model.logits(molecules()), tmp_path / f"{method}.pt")
        texts = list(molecules().rows.texts)
        (tmp_path / "texts.json").write_text(json.dumps(texts))
        code = f"""
import json, resource, sys
import torch, graph_transplant as gt
from graph_transplant.datasets.molecules import from_smiles
model = gt.TrainedModel.load({str(tmp_path / method)!r})
texts = json.load(open({str(tmp_path / "texts.json")!r}))
expected = torch.load({str(tmp_path / (method + ".pt"))!r})
assert torch.equal(model.logits(from_smiles(texts)), expected)
assert "sklearn" not in sys.modules
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model.logits(from_smiles(texts * 4))
before = peak()
for _ in range(8):
    model.logits(from_smiles(texts * 4))
print(peak() - before)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) < 20_000  # KiB


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
@pytest.mark.parametrize("read", ["both", "fingerprints", "descriptors"])
def test_what_atoms_and_descriptors_add_is_the_output_of_a_forest(
    read: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forest, "READ", ("both",))
    if read != "both":
        monkeypatch.setattr(forest, "READ", ("both", read))
        monkeypatch.setattr(forest, "CLEARLY", -2.0)
        values = iter([0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0])
        monkeypatch.setattr(forest, "quality", lambda *_: next(values))
    model = trained("forest", task)
    assert model.fitted.chosen["features"] == read
    store = molecules(task)
    logits = model.logits(store).double()
    output = 1 if task != "regression" else 0
    for number in range(0, len(store), 5):
        share = model.fitted.explain(store, number, output)
        assert share.base + share.rest + share.nodes.sum() == pytest.approx(share.output, abs=1e-9)
        exact = logits[number]
        shares = {"multiclass": exact.softmax(0), "multilabel": exact.sigmoid()}
        assert share.output == pytest.approx(float(shares.get(task, exact)[output]), abs=1e-5)
        if read == "descriptors":
            assert not share.nodes.any()
    (shown,) = gt.explain(model, store.subset([2]), output=model.label_names[output])
    view = shown.views[0]
    assert view.base + view.rest + sum(view.added) == pytest.approx(
        model.fitted.explain(store, 2, output).output
    )


def test_atoms_share_the_bits_that_their_environments_set() -> None:
    """One stump on one bit: the atoms of its only environment have all of its effect."""
    model = trained("forest")
    fitted = model.fitted
    from graph_transplant.baselines.features import environments, fingerprints

    text = "CCN"
    store = from_smiles([text])
    bits, around = environments(text)
    row = fingerprints(store)[0]
    assert np.array_equal(np.bincount(bits, minlength=2048), row)
    # Three atoms alone, then with neighbours; the whole molecule once.
    sizes = sorted(int(atoms.sum()) for atoms in around)
    assert sizes == [1, 1, 1, 2, 2, 3]
    nitrogen = next(bit for bit, atoms in zip(bits, around, strict=True)
                    if atoms.tolist() == [False, False, True])  # fmt: skip
    config = fitted.config() | {"parameters": {"features": "fingerprints"}, "descriptors": []}
    stump = forest.Forest(
        config,
        {
            "ptr": np.array([0, 3]),
            "column": np.array([nitrogen, -1, -1], np.int32),
            "right": np.array([2, -1, -1], np.int32),
            "threshold": np.array([0.5, 0.0, 0.0]),
            "value": np.array([[0.6, 0.4], [0.9, 0.1], [0.2, 0.8]]),
            "known": np.array([True]),
            "prior": np.log([0.5, 0.5]),
            "fill": np.zeros(2048),
        },
    )
    stump.check()
    share = stump.explain(store, 0, 1)
    # One tree of two, the other of which knows the prior.
    assert share.base == pytest.approx((0.4 + 0.5) / 2)
    assert share.nodes.tolist() == pytest.approx([0.0, 0.0, 0.2])
    assert share.rest == pytest.approx(0.0)
    assert stump.logits(store).softmax(1)[0, 1] == pytest.approx((0.8 + 0.5) / 2)


@pytest.mark.parametrize("method", ["wl-svm", "wl-oa"])
@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
def test_what_nodes_add_is_the_decision_of_a_linear_kernel(
    method: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wl_svm, "KERNELS", ("linear",))
    fitted = trained(method, task).fitted
    store = molecules(task)
    counted = wl_svm._counted(fitted.dictionary, store)
    x = wl_svm._vectors(counted, fitted._most)
    for number in range(0, len(store), 9):
        share = fitted.explain(store, number, 1)
        decision = float(fitted.machines.decide(x)[number, 1])
        assert share.output == pytest.approx(decision * (2 if task == "multiclass" else 1))
        assert share.base + share.nodes.sum() == pytest.approx(share.output, abs=1e-9)
        assert share.base == pytest.approx(float(fitted.machines.intercept.ravel()[
            0 if task == "multiclass" else 1]))  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "majority"}, "majority cannot be trained .* says the same of every graph"),
        ({"method": "structure-blind"}, "structure-blind cannot be trained .* at edges"),
        ({"method": "forest", "ensemble": 2}, "`ensemble` is for networks"),
        ({"method": "wl-svm", "layers": 4}, "`layers` is for networks, and wl-svm has none"),
        ({"method": "forest", "class_weight": "balanced"}, "`class_weight` is for networks"),
    ],
)
def test_what_a_method_without_a_network_cannot_do_is_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        gt.train(molecules(), **options)


def test_a_forest_on_statistics_says_that_it_has_no_values_for_nodes(tmp_path: Path) -> None:
    store = gt.load("motifs", graphs=90)
    model = gt.train(store, method="forest")
    model.save(tmp_path)
    again = TrainedModel.load(tmp_path)
    assert torch.equal(again.logits(store), model.logits(store))
    with pytest.raises(GraphTransplantError, match="no values for nodes"):
        gt.explain(again, store.subset([0]))


def test_graphs_that_a_forest_cannot_read_are_refused(tmp_path: Path) -> None:
    model = trained("forest")
    store = molecules()
    store.rows = None
    with pytest.raises(DataError, match="reads their SMILES"):
        model.logits(store)


def change(folder: Path, **arrays: Any) -> None:
    """Replace arrays of a saved model, and all that says what they are."""
    import hashlib

    weights, document = folder / "weights.safetensors", folder / "model.json"
    state = load_file(weights)
    for name, how in arrays.items():
        state[name] = how(state[name].clone())
    save_file(state, weights, {"format": "pt"})
    content = json.loads(document.read_text())
    for name in arrays:
        kind = str(state[name].dtype).removeprefix("torch.")
        content["baseline"]["arrays"][name] = [kind, *state[name].shape]
    content["weights_sha256"] = hashlib.sha256(weights.read_bytes()).hexdigest()
    document.write_text(json.dumps(content))


def put(value: float, place: int = 0) -> Any:
    def how(array: torch.Tensor) -> torch.Tensor:
        array.flatten()[place] = value
        return array

    return how


LIES: list[tuple[str, str, dict[str, Any]]] = [
    ("forest", "linear", {"column": put(10**6)}),  # a column that no row has
    ("forest", "linear", {"right": put(0)}),  # a circle
    ("forest", "linear", {"right": put(10**6)}),
    ("forest", "linear", {"ptr": put(3, 1)}),
    ("forest", "linear", {"ptr": put(10**12, -1)}),
    ("forest", "linear", {"fill": lambda array: array[:-1]}),
    ("forest", "linear", {"value": lambda array: array[:, :1].contiguous()}),
    ("forest", "linear", {"known": put(0)}),
    ("wl-svm", "rbf", {"support": put(10**9)}),
    ("wl-svm", "rbf", {"vector_column": put(-1)}),
    ("wl-svm", "rbf", {"vector_ptr": put(10**9, 1)}),
    ("wl-svm", "rbf", {"sizes": put(10**9)}),
    ("wl-svm", "rbf", {"learned": put(7)}),
    ("wl-svm", "rbf", {"level0_ptr": put(10**9, 1)}),
    ("wl-svm", "linear", {"coefficients": lambda array: array[:, :, 1:].contiguous()}),
    ("wl-svm", "linear", {"nodes_columns": put(10**6)}),
    ("wl-oa", "linear", {"most": put(10**12)}),
    ("wl-oa", "rbf", {"degrees": put(10**15)}),
    ("wl-oa", "rbf", {"temperature": put(0)}),
]


@pytest.mark.parametrize(
    ("method", "kernel", "lie"),
    LIES,
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else each,
)
def test_a_folder_whose_arrays_lie_is_refused(
    method: str, kernel: str, lie: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wl_svm, "KERNELS", (kernel,))
    trained(method).save(tmp_path)
    change(tmp_path)
    TrainedModel.load(tmp_path)
    change(tmp_path, **lie)
    with pytest.raises(DataError, match="do not fit one another"):
        TrainedModel.load(tmp_path)


def test_a_description_that_asks_for_far_too_much_is_refused_before_anything_is_read(
    tmp_path: Path,
) -> None:
    trained("forest").save(tmp_path)
    path = tmp_path / "model.json"
    content = json.loads(path.read_text())
    for arrays in (
        content["baseline"]["arrays"] | {"value": ["float64", 10**12, 10**3]},
        content["baseline"]["arrays"] | {f"a{k}": ["int64", 1] for k in range(200)},
        content["baseline"]["arrays"] | {"value": ["float16", 1, 2]},
        content["baseline"]["arrays"] | {"value": ["float64", "many"]},
    ):
        path.write_text(
            json.dumps(content | {"baseline": content["baseline"] | {"arrays": arrays}})
        )
        with pytest.raises(DataError, match="does not fit the architecture"):
            TrainedModel.load(tmp_path)


def test_an_estimator_fits_a_forest_by_name() -> None:
    store = molecules()
    texts, y = list(store.rows.texts), np.array(["no", "yes"])[store.y.numpy()]
    fitted = gt.GraphTransplantClassifier(augment="forest", random_state=0).fit(texts, y)
    chances = fitted.predict_proba(texts[:5])
    assert np.allclose(chances, fitted.model_.predictions(from_smiles(texts[:5])).outputs.numpy())
    with pytest.raises(GraphTransplantError, match="`augment` majority cannot be trained"):
        gt.GraphTransplantClassifier(augment="majority").fit(texts, y)
