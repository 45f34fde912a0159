"""Ensembles, prediction sets with stated coverage, similarity to the training graphs."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch_geometric.data import Data

import graph_transplant as gt
from graph_transplant.config.recipes import RECIPES
from graph_transplant.data import GraphStore
from graph_transplant.datasets.splits import random_split
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.kernels.fingerprints import nearest
from graph_transplant.models import TrainedModel, predict_table, train
from graph_transplant.models.uncertainty import (
    Ensemble,
    conformal_bounds,
    divided,
    fingerprints,
    graph_errors,
    label_columns,
    members_of,
    set_words,
    similarity_threshold,
)
from graph_transplant.nn.saliency import KINDS
from graph_transplant.report.card import render_card
from graph_transplant.results.model_json import DividedErrors, Similarity
from graph_transplant.training import EpochLog
from graph_transplant.utils.text import number, percent
from helpers.edits import both_ways
from helpers.made_up_records import as_trained

QUICK: dict[str, Any] = {
    "method": "vanilla", "hidden": 8, "layers": 1, "epochs": 2, "forest": False,
}  # fmt: skip
TASKS = ("multiclass", "multilabel", "regression")

Trained = tuple[TrainedModel, GraphStore]


def noisy(count: int, task: str = "multiclass", seed: int = 0) -> GraphStore:
    """Pairs of nodes whose features say something, not everything, about their targets."""
    random = np.random.default_rng(seed)
    x = torch.from_numpy(random.normal(size=(count, 3))).float()
    size = torch.from_numpy(random.normal(size=(count, 2))).float()
    y: torch.Tensor = 1.5 * x[:, :2] + size
    if task == "multiclass":
        y = (y[:, 0] > 0).long() + (y[:, 0] > 1.5).long()
    elif task == "multilabel":
        y = (y > 0).float()
        y[::9, 1] = math.nan
    return GraphStore(
        x=x.repeat_interleave(2, 0),
        edge_index=torch.tensor([[0, 1], [1, 0]]).repeat(1, count),
        y=y,
        node_counts=torch.full((count,), 2),
        edge_counts=torch.full((count,), 2),
        task=task,
        label_names=["a", "b", "c"][: 3 if task == "multiclass" else 2],
        name="noisy",
        num_continuous=3,
    )


@pytest.fixture(scope="module", params=TASKS)
def ensemble(request: pytest.FixtureRequest) -> Trained:
    store = noisy(200, request.param)
    return train(store, ensemble=3, validation=0.2, test=0.2, **QUICK), store


# -------------------------------------------------------------------- ensembles


def test_an_ensemble_is_the_mean_of_its_members(ensemble: Trained, tmp_path: Path) -> None:
    model, store = ensemble
    batch = store.batch(range(len(store)))
    with torch.no_grad():
        each = [member.run(batch).logits.double() for member in members_of(model.network)]
    assert not torch.equal(each[0], each[1])
    chances = {
        "multiclass": lambda z: z.softmax(1),
        "multilabel": torch.sigmoid,
        "regression": lambda z: z,
    }[model.task]
    mean = torch.stack([chances(z) for z in each]).mean(0)
    found = model.predictions(store)
    if model.task == "regression":
        assert model.scale is not None
        torch.testing.assert_close(found.outputs, model.scale.undo(mean))
        spread = np.std([model.scale.undo(z).numpy() for z in each], axis=0)
        columns = model.predict(store)[["a spread", "b spread"]].to_numpy()
        np.testing.assert_allclose(columns, spread, rtol=1e-4)
    else:
        # The mean is calibrated as a whole.
        logits = mean.log() if model.task == "multiclass" else mean.logit()
        torch.testing.assert_close(
            found.outputs, chances(logits / model.temperature), rtol=1e-4, atol=1e-6
        )
        own = np.stack([chances(z / model.temperature).numpy() for z in each]).std(axis=0)
        best = found.outputs.argmax(1).numpy()
        spread = own[np.arange(200), best] if model.task == "multiclass" else own.mean(1)
        np.testing.assert_allclose(model.predict(store)["spread"], spread, rtol=1e-3, atol=1e-7)
    model.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "weights.safetensors"]
    again = TrainedModel.load(tmp_path)
    assert torch.equal(again.predictions(store).outputs, found.outputs)
    assert again.predict(store).equals(model.predict(store))
    render_card(again.description)


def test_the_first_member_is_the_model_alone() -> None:
    store = noisy(60)
    alone, several = train(store, **QUICK), train(store, ensemble=2, **QUICK)
    first, second = members_of(several.network)
    assert torch.equal(
        first.run(store.batch([0])).logits, alone.network.run(store.batch([0])).logits
    )
    assert not torch.equal(second.head[0].weight, first.head[0].weight)
    assert "spread" not in alone.predict(store)


def test_a_killed_ensemble_goes_on_and_trains_no_member_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graph_transplant.training.loop.CHECKPOINT_SECONDS", 0.0)
    store = gt.load("motifs", graphs=60)
    settings = {**QUICK, "method": "transplant-dp", "epochs": 3, "ensemble": 3}
    whole = train(store, **settings)
    path, epochs = tmp_path / "checkpoint.pt", []

    def stop(log: EpochLog) -> None:
        epochs.append(log.epoch)
        if len(epochs) == 5:  # in the middle of the second member
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(store, checkpoint=path, callbacks=[stop], **settings)
    left = sorted(file.name for file in tmp_path.iterdir())
    assert left == ["checkpoint-2.pt", "checkpoint.pt"]
    resumed = train(store, checkpoint=path, callbacks=[stop], **settings)
    # The checkpoint of the fifth epoch was not written any more.
    assert epochs == [1, 2, 3, 1, 2, 2, 3, 1, 2, 3]
    assert torch.equal(resumed.logits(store), whole.logits(store))


def test_saliency_of_an_ensemble_is_what_a_node_adds_to_its_mean() -> None:
    store = gt.load("motifs", graphs=60).subset(range(12))
    members = [gt.GraphClassifier.for_data(store, hidden=6, layers=2, seed=k) for k in (0, 1)]
    both = Ensemble([member.double().eval() for member in members])
    found = gt.explain(as_trained(both, store.output_names), store)
    for index, view in enumerate(one.views[0] for one in found):
        batch, best = store.batch([index]), store.output_names.index(view.output)
        nodes = [member.embed_nodes(batch)[-1].nodes.detach() for member in members]
        factor = torch.ones(len(nodes[0]), 1, dtype=torch.double, requires_grad=True)
        # The log-odds of the mean probability, with the embedding of every node scaled.
        p = torch.stack(
            [
                member.classify(member.readout(own * factor, batch)).softmax(1)[0, best]
                for member, own in zip(members, nodes, strict=True)
            ]
        ).mean()
        (wanted,) = torch.autograd.grad((p / (1 - p)).log(), factor)
        shares = wanted.flatten() / wanted.abs().sum()
        torch.testing.assert_close(torch.tensor(view.share).double(), shares, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_saliency_of_an_ensemble_is_read_where_that_of_its_members_is(
    kind: str, recipe: str
) -> None:
    store = gt.load("motifs", graphs=12)
    options = RECIPES[recipe].network() | {"hidden": 8, "readout": "mean"}
    member = gt.GraphClassifier.for_data(store, layers=2, **options, seed=0).double().eval()
    batch, reading = store.batch(range(12)), gt.NodeSaliency(kind=kind)
    alone, together = (
        reading.read(prediction.logits.square().sum(), prediction)
        for prediction in (member.run(batch), Ensemble([member]).run(batch))
    )
    torch.testing.assert_close(together, alone)
    assert len(alone.unique()) > 1


def test_ensembles_are_attacked_and_estimated() -> None:
    from graph_transplant.analysis.attack import robustness

    store = gt.load("motifs", graphs=60)
    settings: dict[str, Any] = {"ensemble": 2, "hidden": 8, "layers": 1, "epochs": 1}
    fitted = gt.GraphTransplantClassifier("vanilla", random_state=0, **settings).fit(store, store.y)
    assert fitted.predict_proba(store).shape == (60, 6)
    (row,) = robustness(fitted.model_.network, store.subset([0, 1]), (0.1,), data=store)
    assert 0 <= row["accuracy"] <= 1


# -------------------------------------------------------------------- sets and intervals


def plain_bound(scores: np.ndarray, coverage: float) -> float:
    """The smallest score that enough of n + 1 exchangeable scores do not exceed."""
    n = len(scores)
    enough = [s for s in scores if (np.sum(scores <= s)) / (n + 1) >= coverage - 1e-12]
    return min(enough, default=math.inf)


def test_bounds_are_the_conformal_quantile() -> None:
    random = np.random.default_rng(0)
    for n in (1, 5, 8, 9, 10, 19, 20, 99, 100):
        scores = random.normal(size=(n, 2)).round(1)
        scores[random.random(size=(n, 2)) < 0.1] = math.nan
        for coverage in (0.5, 0.8, 0.9, 0.95):
            found = conformal_bounds(torch.from_numpy(scores), coverage)
            wanted = [plain_bound(c[~np.isnan(c)], coverage) for c in scores.T]
            assert found.tolist() == wanted


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out of a training what takes longest and has no say in uncertainty."""
    for name in ("fitting.saliency_quality", "evaluate.bootstrap_intervals"):
        monkeypatch.setattr(f"graph_transplant.models.{name}", lambda *_, **__: {})


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("task", TASKS)
def test_coverage_is_the_stated_one(task: str) -> None:
    """Over 20 random splits, where graphs of all parts are drawn alike."""
    held, narrow = [], []
    store = noisy(700, task, seed=1)
    for seed in range(20):
        split = random_split(store, validation=0.3, test=0.5, seed=seed)
        model = train(store, split=split, seed=seed, learning_rate=0.02, **QUICK)
        test = store.subset(split.test)
        held.append(model.description.uncertainty.held)
        # No set is empty, so that none covers less than the accuracy.
        narrow.append(covered(model.predict(test, coverage=0.8), test))
    assert np.mean(held) == pytest.approx(0.9, abs=0.02)
    assert np.mean(narrow) == pytest.approx(0.8, abs=0.02)


def covered(frame: Any, test: GraphStore) -> float:
    """The share of targets that a table of predictions includes, by its words alone."""
    y = test.y.numpy()
    if test.task == "multiclass":
        pairs = zip(y, frame["set"], strict=True)
        return float(np.mean(["abc"[k] in text.split(";") for k, text in pairs]))
    if test.task == "regression":
        off = np.abs(frame[["a", "b"]].to_numpy() - y)
        return float((off <= frame[["a ±80", "b ±80"]].to_numpy()).mean())
    right = []
    for row, text in zip(y, frame["set"], strict=True):
        said = text.split(";")
        for name, value in zip("ab", row, strict=True):
            if not math.isnan(value):
                right.append(f"{name}?" in said or (name in said) == bool(value))
    return float(np.mean(right))


def test_sets_are_never_empty_and_widen_with_coverage() -> None:
    p = torch.tensor([[0.5, 0.3, 0.2], [0.9, 0.06, 0.04]], dtype=torch.double)
    names = ("x", "y", "z")
    for bound, wanted in ((0.05, ["x", "x"]), (0.7, ["x;y", "x"]), (math.inf, ["x;y;z"] * 2)):
        assert (
            set_words(p, torch.tensor([bound], dtype=torch.double), "multiclass", names) == wanted
        )
    bounds = torch.tensor([0.2, 0.8, math.inf], dtype=torch.double)
    q = torch.tensor([[0.9, 0.7, 0.1], [0.1, 0.1, 0.9], [0.45, 0.9, 0.5]], dtype=torch.double)
    assert set_words(q, bounds, "multilabel", names) == ["x;y?;z?", "z?", "y;z?"]


def test_coverage_is_refused_where_it_cannot_be_had(ensemble: Trained) -> None:
    model, store = ensemble
    for wrong in (0, 1, 1.5, -0.1, "0.9"):
        with pytest.raises(GraphTransplantError, match=r"`coverage` must be in \(0, 1\)"):
            model.predict(store, coverage=wrong)


@pytest.mark.usefixtures("quick")
def test_the_header_of_no_predictions_has_the_coverage(tmp_path: Path) -> None:
    nothing, out = tmp_path / "nothing.jsonl", tmp_path / "out.csv"
    nothing.touch()
    predict_table(train(noisy(60, "regression"), **QUICK), nothing, out, coverage=0.8)
    assert "a ±80" in out.read_text()


def test_old_models_have_no_coverage() -> None:
    old = TrainedModel.load(Path(__file__).parents[1] / "golden" / "models" / "motifs")
    motifs = gt.load("motifs", graphs=12)
    assert not {"set", "similarity", "spread"} & set(old.predict(motifs))
    with pytest.raises(GraphTransplantError, match="train it again"):
        old.predict(motifs, coverage=0.8)


# -------------------------------------------------------------------- similarity


def test_similarity_is_the_highest_tanimoto() -> None:
    random = np.random.default_rng(0)
    bits = random.random((30, 2048)) < random.uniform(0.01, 0.4, size=(30, 1))
    words = np.packbits(bits, axis=1, bitorder="little").view(np.uint64)
    found = nearest(words[:10], words[10:])
    for row, similarity in zip(bits[:10], found, strict=True):
        both = [(row & other).sum() / (row | other).sum() for other in bits[10:]]
        assert similarity == pytest.approx(max(both))


def test_fingerprints_are_circular_environments() -> None:
    rings = [nx.cycle_graph(n) for n in (5, 6, 30)]
    paths = [nx.path_graph(n) for n in (5, 10, 30)]
    store = gt.load([*rings, *paths], y=[0, 1] * 3)
    bits = fingerprints(store, *label_columns(store))
    # Two steps do not tell rings apart; the ends of paths are seen up to two steps away.
    assert (bits[0] == bits[1]).all()
    assert (bits[1] == bits[2]).all()
    assert (bits[4] == bits[5]).all()
    assert not (bits[3] == bits[5]).all()
    counts = np.unpackbits(bits.view(np.uint8), axis=1).sum(1)
    assert counts[0] == 3
    assert counts[4] == 2 + 3 + 4
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0)).tolist()
    turned = nx.relabel_nodes(paths[2], dict(enumerate(order)))
    store = gt.load([turned, turned], y=[0, 1])
    assert (fingerprints(store, *label_columns(store)) == bits[5]).all()


@pytest.mark.data
def test_negative_zeros_are_zeros_to_similarity() -> None:
    def pairs(zero: float) -> GraphStore:
        x = torch.tensor([[1.0, zero], [zero, 1.0]]).repeat(3, 1)
        return GraphStore(
            x=x,
            edge_index=torch.tensor([[0, 1], [1, 0]]).repeat(1, 3),
            edge_attr=torch.tensor([[zero], [1.0]]).repeat(3, 1),
            y=torch.zeros(3, dtype=torch.long),
            node_counts=torch.full((3,), 2),
            edge_counts=torch.full((3,), 2),
        )

    one, other = (fingerprints(pairs(zero), *label_columns(pairs(zero))) for zero in (0.0, -0.0))
    assert np.array_equal(one, other)


def test_similarity_ranks_molecules_as_ecfp4_does(data_dir: Path) -> None:
    pytest.importorskip("rdkit")
    from rdkit import Chem
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator
    from scipy.stats import spearmanr

    store = gt.load(data_dir / "molecules" / "bace.csv.gz", smiles="mol", target="Class")
    store = store.subset(range(0, len(store), 4))
    mine = fingerprints(store, *label_columns(store))
    ecfp4 = GetMorganGenerator(radius=2, fpSize=1024)
    bits = [ecfp4.GetFingerprintAsNumPy(Chem.MolFromSmiles(text)) for text in store.rows.texts]
    theirs = np.packbits(np.stack(bits), axis=1, bitorder="little").view(np.uint64)
    half = len(store) // 2
    pairs = [nearest(bits[:half], bits[half:]) for bits in (mine, theirs)]
    assert spearmanr(*pairs).statistic > 0.98


def test_unlike_graphs_are_warned_of(tmp_path: Path) -> None:
    store = gt.load("motifs", graphs=120)
    model = train(store, **QUICK)
    seen = model.predict(store)
    train_part = random_split(store, validation=0.1, test=0.1, seed=0).train
    assert (seen["similarity"].to_numpy()[train_part.numpy()] == 1).all()
    threshold = model.description.uncertainty.similarity.threshold
    below = seen["similarity"] < threshold
    assert (seen["warning"].str.contains("unlike the training graphs") == below).all()
    star = both_ways(*((0, leaf) for leaf in range(1, 301)))
    lone = GraphStore.from_pyg([Data(edge_index=star, num_nodes=301, y=torch.tensor([0]))])
    done = predict_table(model, lone, tmp_path / "out.csv")
    assert (done.larger, done.unlike) == (1, 1)
    assert "larger than any training graph; unlike" in (tmp_path / "out.csv").read_text()


def test_the_threshold_is_where_errors_rise() -> None:
    similarity = torch.linspace(0, 1, 100, dtype=torch.double)
    errors = (torch.arange(100) < 25).double()
    threshold, justified = similarity_threshold(similarity, errors)
    assert justified
    assert 0.24 < threshold < 0.26
    for same in (torch.zeros(100).double(), errors.flip(0), (torch.arange(100) % 2).double()):
        threshold, justified = similarity_threshold(similarity, same)
        assert not justified
        assert 0.04 < threshold < 0.06
    assert divided(errors, similarity < 0.02) is None


def test_errors_of_graphs() -> None:
    p, y = torch.tensor([[0.9, 0.1], [0.4, 0.6]]).double(), torch.eye(2)
    assert graph_errors(p, y.flip(1), "multiclass").tolist() == [1, 1]
    labels = torch.tensor([[1.0, 1.0], [0.0, math.nan]])
    assert graph_errors(p, labels, "multilabel").tolist() == [0.5, 0.0]
    values = torch.tensor([[0.0, 10.0], [2.0, 10.0]])
    off = graph_errors(torch.tensor([[1.0, 10.0], [2.0, 10.0]]).double(), values, "regression")
    assert off.tolist() == [0.5, 0.0]


def test_a_damaged_reference_is_refused(tmp_path: Path) -> None:
    train(noisy(60), **QUICK).save(tmp_path)
    path = tmp_path / "weights.safetensors"
    state = load_file(path)
    for name, value in (
        ("known", torch.zeros(3, 31, dtype=torch.long)),
        ("known", state["reference.known"].double()),
        ("scores", torch.zeros(4, 7, dtype=torch.double)),
        ("of_nodes", torch.ones(9, dtype=torch.bool)),
    ):
        save_file({**state, f"reference.{name}": value}, path)
        described = json.loads((tmp_path / "model.json").read_text())
        described["weights_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        (tmp_path / "model.json").write_text(json.dumps(described))
        with pytest.raises(DataError, match="do not fit the model"):
            TrainedModel.load(tmp_path)


# -------------------------------------------------------------------- the card


@pytest.mark.usefixtures("quick")
def test_the_card_says_what_uncertainty_is_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graph_transplant.baselines.forest.TREES", 20)
    store = noisy(400)
    settings = {**QUICK, "forest": True, "learning_rate": 0.02, "epochs": 10}
    model = train(store, ensemble=2, validation=0.2, test=0.3, **settings)
    page = render_card(model.description)
    forest = model.description.metrics.forest["accuracy"]
    assert "a random forest on simple statistics of the same training graphs" in page
    assert f" and {number(forest)}, difference" in page
    held = model.description.uncertainty.held
    assert f"on the test part it was {percent(held, 0, unit=True)}." in page
    assert "like the validation ones only" not in page
    assert "Where its members disagree most" in page
    training = replace(model.description.training, split="scaffold")
    for chance, says in ((0.01, "Trust predictions with a low similarity less"), (0.5, "did not")):
        test = DividedErrors(graphs=12, first=0.5, rest=0.2, chance=chance)
        likeness = Similarity(threshold=0.4, justified=True, test=test)
        changed = replace(model.description.uncertainty, similarity=likeness)
        told = render_card(replace(model.description, training=training, uncertainty=changed))
        assert says in told
        assert ("validation errors rise" in told) == (chance < 0.05) != ("may be chance" in told)
        assert "holds only for graphs like the validation ones" in told
