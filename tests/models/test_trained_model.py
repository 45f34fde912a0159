"""The model as a folder: what it predicts, and what is refused when it is loaded."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch_geometric.data import Data

import graph_transplant as gt
from graph_transplant.data import GraphStore
from graph_transplant.datasets.splits import random_split
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.models import Predictions, TrainedModel, train
from graph_transplant.models.model import usable_device
from helpers.oracles import unchanged
from helpers.strategies import generator, random_batch

Models = dict[str, tuple[TrainedModel, GraphStore]]


def trained(task: str) -> tuple[TrainedModel, GraphStore]:
    """A model of every task after one or two epochs; what it has learned does not matter."""
    store, source = gt.load("motifs", graphs=60), generator(0)
    if task == "multilabel":
        y = (torch.rand(60, 3, generator=source) < 0.5).float()
        y[::7, 1] = math.nan
        store = store.with_targets(y, task=task, label_names=["a", "b", 'c,"d"'])
    elif task == "regression":
        y = torch.randn(60, 2, generator=source) * torch.tensor([1e3, 1.0]) + 500
        store = store.with_targets(y, task=task, label_names=["mass", "id"])
    return train(store, method="vanilla", hidden=8, epochs=2, seed=3, forest=False), store


@pytest.fixture(scope="module")
def models() -> Models:
    return {task: trained(task) for task in ("multiclass", "multilabel", "regression")}


@pytest.fixture
def folder(models: Models, tmp_path: Path) -> Path:
    models["multiclass"][0].save(tmp_path / "model")
    return tmp_path / "model"


# -------------------------------------------------------------------- predictions


def test_labels_and_confidence_of_several_labels() -> None:
    p = torch.tensor([[0.5, 0.75, 0.25], [0.0, 0.25, 0.5 - 1e-9]], dtype=torch.double)
    found = Predictions("multilabel", ("a", "b", "c"), p)
    assert found.labels == ["a;b", ""]
    assert found.confidence.tolist() == pytest.approx([2 / 3, (1 + 0.75 + 0.5) / 3])


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
def test_predictions_are_the_network_heated_or_in_units(models: Models, task: str) -> None:
    model, store = models[task]
    model.network.eval()
    with torch.no_grad():
        logits = model.network.run(store.batch(range(len(store)))).logits.double()
    if task == "multiclass":
        expected = torch.exp(logits / model.temperature)
        expected = expected / expected.sum(1, keepdim=True)
    elif task == "multilabel":
        expected = 1 / (1 + torch.exp(-logits / model.temperature))
    else:
        trained_on = random_split(store, validation=0.1, test=0.1, seed=3).train
        assert len(trained_on) == model.description.training.sizes.train
        y = store.y[trained_on].double()
        expected = logits * y.std(0, correction=0) + y.mean(0)
    found = model.predictions(store)
    assert found.outputs.dtype == torch.double
    assert torch.allclose(found.outputs, expected, rtol=1e-5, atol=1e-6)
    assert found.task == task
    assert found.label_names == model.label_names == store.label_names
    blank = store.with_targets(torch.zeros(60, dtype=torch.long), task="multiclass", num_outputs=1)
    assert torch.equal(model.predictions(blank).outputs, found.outputs)  # no target is looked at
    small = model.predictions(store, batch_size=7)
    assert torch.allclose(found.outputs, small.outputs, rtol=1e-4, atol=1e-5)


def test_predicting_leaves_the_network_as_it_was(models: Models) -> None:
    model, store = models["multiclass"]
    model.network.train()
    with unchanged(model.network):
        outputs = model.predictions(store.subset(range(4))).outputs
    assert not outputs.requires_grad
    assert not outputs.is_inference()
    assert not model.logits(store.subset([0])).is_inference()
    model.network.eval()


def test_other_features_are_refused(models: Models) -> None:
    model, _ = models["multiclass"]
    graph = Data(x=torch.ones(2, 3), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([0]))
    other = GraphStore.from_pyg([graph], name="mine")
    message = r"mine: the graphs have 3 node features, but .* on motifs with no node features"
    with pytest.raises(DataError, match=message):
        model.predictions(other)
    with pytest.raises(GraphTransplantError, match="`batch_size` must be at least 1, got 0"):
        model.predictions(models["multiclass"][1], batch_size=0)


def bonds(width: int) -> GraphStore:
    """Graphs with edge features."""
    graphs = random_batch(generator(1), graphs=20).to_data_list()
    for number, graph in enumerate(graphs):
        graph.edge_attr, graph.y = torch.ones(graph.num_edges, width), torch.tensor([number % 2])
    return GraphStore.from_pyg(graphs, name="bonds")


def test_edge_features_count_where_the_network_takes_them() -> None:
    store = bonds(4)
    settings: dict[str, Any] = {"method": "vanilla", "hidden": 4, "epochs": 1, "forest": False}
    uses = train(store, model="gine", **settings)
    with pytest.raises(DataError, match=r"2 edge features, but .* with 4 edge features"):
        uses.predictions(bonds(2))
    told: list[str] = []
    ignores = train(store, model="gcs", note=told.append, **settings)
    assert any("gcs does not use the 4 edge features of bonds; gine" in text for text in told)
    assert len(ignores.predictions(bonds(2))) == 20


# -------------------------------------------------------------------- saving and loading


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
def test_a_saved_model_predicts_the_same(models: Models, task: str, tmp_path: Path) -> None:
    model, store = models[task]
    folder = tmp_path / "deep" / "folder"
    model.save(folder)
    again = TrainedModel.load(folder)
    assert torch.equal(again.predictions(store).outputs, model.predictions(store).outputs)
    assert again.temperature == model.temperature
    assert again.label_names == model.label_names
    assert {path.name for path in folder.iterdir()} == {"model.json", "weights.safetensors"}
    document = json.loads((folder / "model.json").read_text())
    assert document["format"] == "graph-transplant model 1"
    assert document["version"] == gt.__version__
    assert document["architecture"] == model.network.config()
    again.save(tmp_path / "second")
    second = (tmp_path / "second" / "model.json").read_bytes()
    assert second == (folder / "model.json").read_bytes()


def test_loading_needs_no_pickle_and_leaves_the_random_numbers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was unpickled")

    for name in ("torch.load", "pickle.load", "pickle.loads", "pickle.Unpickler"):
        monkeypatch.setattr(name, refuse)
    before = torch.random.get_rng_state()
    TrainedModel.load(folder)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_weights_of_another_save_are_noticed(models: Models, folder: Path) -> None:
    state = load_file(folder / "weights.safetensors")
    state["head.0.bias"] = state["head.0.bias"] + 1
    save_file(state, folder / "weights.safetensors")
    with pytest.raises(DataError, match=r"is not the file that model\.json was written with"):
        TrainedModel.load(folder)
    models["multiclass"][0].save(folder)
    TrainedModel.load(folder)


def rewritten(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "model.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def refused(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        TrainedModel.load(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 700
    return message


def test_another_format_says_which_version_wrote_it(folder: Path) -> None:
    rewritten(folder, lambda d: d.update(format="graph-transplant model 2", version="0.9"))
    assert "was written by version '0.9' (format 2)" in refused(folder)
    for line in ("graph-transplant store 1", None, ["x"], "x" * 999):
        rewritten(folder, lambda d, line=line: d.update(format=line))
        assert "does not describe a model: `format` must be" in refused(folder)


def test_a_newer_version_is_named_and_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten(folder, lambda d: d.update(version="1.10.0"))
    for here in ("0.2.0", "1.9.3", "1.10.0rc1"):
        monkeypatch.setattr("graph_transplant.results.model_json.__version__", here)
        if here == "1.10.0rc1":
            TrainedModel.load(folder)
        else:
            assert f"version '1.10.0' (format 1), which is newer than this one, {here}" in refused(
                folder
            )
    # In a source tree that is not installed, it is not known.
    monkeypatch.setattr("graph_transplant.results.model_json.__version__", "0+unknown")
    TrainedModel.load(folder)
    rewritten(folder, lambda d: d.update(format="graph-transplant model 2"))
    assert "(format 2), which is newer than this one" in refused(folder)


@pytest.mark.parametrize("name", ["model.json", "weights.safetensors"])
def test_a_model_is_not_saved_through_links(models: Models, name: str, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / name).symlink_to(tmp_path / "precious")
    with pytest.raises(GraphTransplantError, match=f"{name} is a link to "):
        models["multiclass"][0].save(tmp_path / "model")
    assert (tmp_path / "precious").read_text() == "precious"


def test_what_is_no_json_object_is_refused(folder: Path) -> None:
    for content in (b"", b"[]", b"\xff\xfe{}", b"[" * 200_000, b'{"a": NaN}', b"9" * 10_000):
        (folder / "model.json").write_bytes(content)
        refused(folder)


def nested(document: dict[str, Any], field: str, value: object) -> None:
    *path, last = field.split(".")
    place: Any = document
    for name in path:
        place = place[int(name) if isinstance(place, list) else name]
    place[last] = value


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("task", "clustering", "`task` must be one of multiclass, multilabel, regression"),
        ("task", "multilabel", "`task` must be one of"),
        ("label_names", ["a"], "`label_names` must have 6 entries"),
        ("label_names", [1, 2, 3, 4, 5, 6], r"`label_names[0]` must be a string; got 1"),
        ("temperature", 0, "`temperature` must be above 0; got 0"),
        ("temperature", True, "`temperature` must be a finite number; got True"),
        ("target_scale", {"mean": [1.0], "std": [1.0]}, "`target_scale` must be given for regr"),
        ("featurizer", [], "`featurizer` must be an object; got a list"),
        ("featurizer", {"kind": "tables"}, "featurizer"),
        ("featurizer", {"kind": "molecules", "features": "elements"}, "reads only those of OGB"),
        ("architecture.hidden", 10**12, "too large for any memory"),
        ("architecture.layers", 10**9, "too large for any memory"),
        ("architecture.layers", 190_000, "`layers` must be at most 1000, got 190000"),
        ("architecture.input_layers", 10**6, "`input_layers` must be at most 1000, got 1000000"),
        ("architecture.max_degree", None, "does not fit the architecture"),
        ("architecture.hidden", 9, "is of shape [8, "),
        ("architecture.layers", 2, "in the file and missing in the architecture"),
        ("architecture.layers", 4, "is missing in the file and of shape [8"),
        ("architecture.conv", "transformer", "`conv` must be one of gcn"),
        ("data.max_nodes", "many", "`data.max_nodes` must be an integer"),
        ("data.class_shares", {"test": ["half"]}, "`data.class_shares.test[0]` must be a finite"),
        ("training.ensemble", 0, "`training.ensemble` must be at least 1"),
        ("training.ensemble", 2, "does not fit the architecture"),
        ("training.ensemble", 10**9, "and 1,000,000,000 networks have"),
        ("uncertainty.similarity", {"threshold": "low"}, "`uncertainty.similarity.threshold`"),
        ("training_graphs", 7, "`training_graphs` must be a string"),
        ("training.sizes.test", "many", "`training.sizes.test` must be an integer"),
        ("training.class_weight", 3, "`training.class_weight` must be a string or a list"),
        ("metrics.test", {"accuracy": "high"}, "`metrics.test.accuracy` must be a number"),
        ("reliability", [], "`reliability` must be an object; got a list"),
        ("reliability", {"before": [], "after": [{}]}, "`reliability.after[0].lower` is missing"),
        ("reliability.after.0.count", 2**53, "`reliability.after[0]`: a bin that is not empty"),
        ("curve", [{"epoch": 1, "train_loss": "x"}], "`curve[0].train_loss` must be a finite"),
        ("curve", [{"train_loss": 1.0}], "`curve[0].epoch` is missing"),
        ("roc", {"a": [[0.0]]}, "`roc.a[0]` must be a list of length 2; got 1"),
        ("roc", {"a": []}, "`roc` must hold no empty curve"),
        ("scatter", [[1.0, 2.0, 3.0]], "`scatter[0]` must be a list of length 2; got 3"),
        ("confusion", [[1]], "`confusion[0]` must have 6 entries, one per output; got 1"),
        ("confusion", [], "`confusion` must have 6 entries, one per output; got 0"),
        (
            "metrics.intervals",
            {"auroc": [0.5]},
            "`metrics.intervals.auroc` must be a list of length 2",
        ),
        ("training.best_epochs", [], "`training.best_epochs` must not be empty"),
    ],
)
def test_every_field_is_checked(folder: Path, field: str, value: object, says: str) -> None:
    rewritten(folder, lambda d: nested(d, field, value))
    assert says in refused(folder)


def test_every_field_is_needed(folder: Path) -> None:
    whole = json.loads((folder / "model.json").read_text())
    for name in whole:
        part = {key: value for key, value in whole.items() if key != name}
        (folder / "model.json").write_text(json.dumps(part))
        if name in ("saliency", "training_graphs", "uncertainty"):  # older models lack them
            TrainedModel.load(folder)
        else:
            refused(folder)


def test_a_scale_must_fit_the_outputs(models: Models, tmp_path: Path) -> None:
    models["regression"][0].save(tmp_path)
    rewritten(tmp_path, lambda d: nested(d, "target_scale.std", [1.0]))
    assert "`target_scale.std` must have 2 entries, one per output; got 1" in refused(tmp_path)
    rewritten(tmp_path, lambda d: nested(d, "target_scale.std", [1.0, -1.0]))
    assert "`std` positive" in refused(tmp_path)
    rewritten(tmp_path, lambda d: nested(d, "target_scale", None))
    assert "`target_scale` must be given for regression" in refused(tmp_path)


def test_what_lies_in_the_weights_is_checked(folder: Path) -> None:
    path = folder / "weights.safetensors"
    state = load_file(path)

    def written(**changes: torch.Tensor | None) -> str:
        changed = {**state, **{key.replace("__", "."): value for key, value in changes.items()}}
        save_file({key: value for key, value in changed.items() if value is not None}, path)
        return refused(folder)

    bias = state["head.3.bias"]
    for changed in (None, torch.zeros(7), bias.double(), bias.clone().fill_(math.nan)):
        assert "head.3.bias" in written(head__3__bias=changed)
    assert "more" in written(more=torch.zeros(1))


def test_truncated_and_flipped_weights_are_refused(folder: Path) -> None:
    path = folder / "weights.safetensors"
    whole = path.read_bytes()
    bomb = struct.pack("<Q", 2**60) + b"{}"
    for content in (b"", bomb, struct.pack("<Q", 9) + b'{"a": 12}', b"\x80\x04\x95 a pickle"):
        path.write_bytes(content)
        assert "cannot be read as safetensors" in refused(folder)
    for length in range(0, len(whole), max(1, len(whole) // 20)):
        path.write_bytes(whole[:length])
        refused(folder)
    for place in range(0, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        refused(folder)


def test_what_is_no_folder_of_a_model_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no folder .*nowhere: a model is a folder"):
        TrainedModel.load(tmp_path / "nowhere")
    with pytest.raises(DataError, match="there is no folder"):
        TrainedModel.load(folder / "model.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"is not a model: model\.json is missing"):
        TrainedModel.load(tmp_path / "empty")
    (folder / "weights.safetensors").unlink()
    with pytest.raises(DataError, match=r"is not a model: weights\.safetensors is missing"):
        TrainedModel.load(folder)
    (folder / "weights.safetensors").mkdir()
    assert "weights.safetensors is missing" in refused(folder)
    os.mkfifo(tmp_path / "empty" / "model.json")
    assert "model.json is missing" in refused(tmp_path / "empty")


def test_names_of_every_kind_survive(tmp_path: Path) -> None:
    names = ["<script>alert(1)</script>", "Ж🙂", "a\nb", "q\"'", "x" * 10_000, "\ud800"]
    store = gt.load("motifs", graphs=36)
    store = store.with_targets(store.y, label_names=names)
    train(store, method="vanilla", hidden=4, epochs=1, forest=False).save(tmp_path)
    assert TrainedModel.load(tmp_path).label_names == (*names[:-1], "?")


# -------------------------------------------------------------------- devices


def test_devices() -> None:
    assert usable_device("cpu") == torch.device("cpu")
    with pytest.raises(GraphTransplantError, match="`device` must be one that torch knows"):
        usable_device("toaster")
    if not torch.cuda.is_available():
        with pytest.raises(GraphTransplantError, match="`device` cuda cannot be used here"):
            usable_device("cuda")
