"""The training protocol: patience, metric, checkpoints, pieces, reproducibility, errors."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, r2_score, roc_auc_score
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.nn import GCNConv, global_mean_pool

import graph_transplant as gt
from graph_transplant import training
from graph_transplant.augment import METHODS, build_method
from graph_transplant.errors import GraphTransplantError
from graph_transplant.training import EpochLog, Evaluation
from strategies import motifs_for, random_batch


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def motifs(graphs: int = 60) -> gt.GraphStore:
    return gt.load("motifs", graphs=graphs)


def model_for(store: gt.GraphStore, **settings: object) -> gt.GraphClassifier:
    return gt.GraphClassifier.for_data(store, **{"layers": 2, "hidden": 8, "seed": 0, **settings})


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return all(torch.equal(first[key], second[key]) for key in first)


# ------------------------------------------------------------------ patience, simulated


class Script:
    """Stands for ``evaluate``: gives written results, one per epoch, and keeps the weights."""

    def __init__(self, accuracies: Sequence[float], losses: Sequence[float] | None = None) -> None:
        self.accuracies = list(accuracies)
        self.losses = list(losses) if losses else [1.0] * len(self.accuracies)
        self.weights: list[dict[str, Tensor]] = []

    def __call__(self, model: nn.Module, store: gt.GraphStore, **settings: object) -> Evaluation:
        epoch = len(self.weights)
        self.weights.append(copy.deepcopy(model.state_dict()))
        right = round(self.accuracies[epoch] * 100)
        targets = torch.eye(2)[torch.zeros(100, dtype=torch.long)]
        logits = torch.eye(2)[torch.tensor([0] * right + [1] * (100 - right))]
        return Evaluation(logits, targets, self.losses[epoch])


def run(
    script: Script, monkeypatch: pytest.MonkeyPatch, **settings: object
) -> tuple[gt.FitResult, gt.GraphClassifier]:
    # 20 graphs in batches of 8: three iterations an epoch.
    store = motifs(20)
    model = model_for(store)
    monkeypatch.setattr(training, "evaluate", script)
    given = {"seed": 0, "epochs": len(script.accuracies), "batch_size": 8, **settings}
    return gt.fit(model, store, store, **given), model


def test_training_stops_after_so_many_iterations_without_a_strict_rise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Epoch 3 rises; then 4 and 5 only equal it. Patience of 7 iterations is over with the ninth
    # iteration after the rise: epochs 4, 5, 6.
    script = Script([0.2, 0.1, 0.5, 0.5, 0.5, 0.4, 0.9, 0.9])
    result, model = run(script, monkeypatch, stop_patience=7)
    assert result.epochs == len(result.history) == 6
    assert result.stopped_early
    assert result.best_epoch == 3
    assert [log.iterations for log in result.history] == [3, 6, 9, 12, 15, 18]
    best = script.weights[2]
    assert all(torch.equal(best[key], value) for key, value in model.state_dict().items())
    assert any(not torch.equal(best[k], v) for k, v in script.weights[-1].items())
    assert result.model is model
    assert not model.training


@pytest.mark.parametrize(("patience", "epochs"), [(5, 4), (6, 4), (7, 5), (9, 5), (10, 6)])
def test_patience_is_counted_in_iterations(
    patience: int, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The rise is in epoch 2; every later epoch adds three iterations of waiting.
    script = Script([0.1, 0.3, 0.2, 0.3, 0.3, 0.0, 0.0])
    result, _ = run(script, monkeypatch, stop_patience=patience)
    assert result.epochs == epochs
    assert result.best_epoch == 2


def test_a_rise_in_time_resets_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script([0.1, 0.0, 0.2, 0.0, 0.3, 0.0, 0.0, 0.9])
    result, _ = run(script, monkeypatch, stop_patience=6)
    assert result.epochs == 7
    assert result.best_epoch == 5


def test_a_training_that_runs_to_its_end_was_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = run(Script([0.1, 0.2, 0.3]), monkeypatch, stop_patience=3)
    assert not result.stopped_early
    assert result.best_epoch == 3


def test_learning_rate_is_halved_without_a_strictly_lower_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Patience 6 iterations are two epochs. Losses: 3, 2 (lower), 2, 2.5 -> halved; 2.4, 2 -> halved
    # (2 is not lower than 2); 1 (lower), 1, 1 -> halved.
    losses = [3.0, 2.0, 2.0, 2.5, 2.4, 2.0, 1.0, 1.0, 1.0, 1.0]
    script = Script([0.1] * 10, losses)
    result, _ = run(script, monkeypatch, decay_patience=6, stop_patience=1000, learning_rate=0.08)
    rates = [log.learning_rate for log in result.history]
    assert rates == pytest.approx([0.08] * 4 + [0.04] * 2 + [0.02] * 3 + [0.01])


@pytest.mark.parametrize(("patience", "epochs"), [(1, 3), (2, 4), (3, 5)])
def test_patience_may_be_counted_in_epochs(
    patience: int, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The rise is in epoch 2; an epoch has three iterations, which must not count here.
    script = Script([0.1, 0.3, 0.2, 0.3, 0.3, 0.0, 0.0])
    result, _ = run(script, monkeypatch, stop_patience=patience, patience_unit="epochs")
    assert result.epochs == epochs
    assert result.best_epoch == 2


def test_learning_rate_decays_after_epochs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script([0.1] * 7, [3.0, 2.0, 2.0, 2.5, 2.4, 2.0, 1.0])
    given = {"decay_patience": 2, "stop_patience": 1000, "patience_unit": "epochs"}
    result, _ = run(script, monkeypatch, learning_rate=0.08, **given)
    rates = [log.learning_rate for log in result.history]
    assert rates == pytest.approx([0.08] * 4 + [0.04] * 2 + [0.02])


@pytest.mark.parametrize(("ties", "best", "epochs"), [("first", 2, 4), ("loss", 4, 6)])
def test_of_equal_scores_the_first_or_that_of_the_lowest_loss_is_the_best(
    ties: str, best: int, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script([0.5, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9], [0.1, 0.8, 0.8, 0.6, 0.7, 0.6, 0.5])
    result, model = run(
        script, monkeypatch, ties=ties, stop_patience=2, patience_unit="epochs", epochs=7
    )
    assert (result.best_epoch, result.epochs) == (best, epochs)
    kept = script.weights[best - 1]
    assert all(torch.equal(model.state_dict()[key], kept[key]) for key in kept)


def test_a_lower_loss_does_not_make_up_for_a_lower_score(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script([0.8, 0.9, 0.8], [0.5, 0.9, 0.1])
    result, _ = run(script, monkeypatch, ties="loss", epochs=3)
    assert result.best_epoch == 2


def test_unknown_ties_are_named() -> None:
    store = motifs(12)
    with pytest.raises(GraphTransplantError, match="`ties` must be one of first, loss; got 'last'"):
        gt.fit(model_for(store), store, store, seed=0, ties="last")


def test_the_score_of_classes_is_their_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = run(Script([0.1, 0.4, 0.2]), monkeypatch)
    assert [log.validation_score for log in result.history] == [0.1, 0.4, 0.2]
    assert [log.validation_accuracy for log in result.history] == [0.1, 0.4, 0.2]


def test_the_protocol_is_the_papers() -> None:
    import inspect

    defaults = {
        name: parameter.default for name, parameter in inspect.signature(gt.fit).parameters.items()
    }
    assert defaults["epochs"] == 1000
    assert defaults["batch_size"] == 128
    assert defaults["learning_rate"] == 5e-4
    assert defaults["stop_patience"] == 1500
    assert defaults["decay_patience"] == 1000
    assert defaults["clip_norm"] == 2.0
    assert defaults["patience_unit"] == "iterations"
    assert defaults["metric"] == "accuracy"
    assert defaults["parts"] == 1


def test_regression_selects_by_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    items = random_batch(generator(0)).to_data_list()
    for number, item in enumerate(items):
        item.y = torch.tensor([float(number) / 3 + 0.1])
    store = gt.GraphStore.from_pyg(items)
    assert store.task == "regression"
    script = Script([0.0] * 5, [3.0, 2.0, 1.0, 2.0, 1.5])
    monkeypatch.setattr(training, "evaluate", script)
    model = model_for(store)
    result = gt.fit(model, store, store, seed=0, epochs=5)
    assert result.best_epoch == 3
    assert all(math.isnan(log.validation_accuracy) for log in result.history)
    assert [log.validation_score for log in result.history] == [-3.0, -2.0, -1.0, -2.0, -1.5]


# ------------------------------------------------------------------ the metric


def labelled(rows: Tensor, task: str | None = None) -> gt.GraphStore:
    """Motifs with other targets, a row or a class for each."""
    items = motifs(len(rows)).to_pyg()
    for item, row in zip(items, rows, strict=True):
        item.y = row.unsqueeze(0)
    return gt.GraphStore.from_pyg(items, task=task)


def test_area_under_roc_decides_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = torch.tensor([0] * 15 + [1] * 5)
    store = labelled(classes)
    drawn = [torch.randn(20, 2, generator=generator(20 + number)) for number in range(6)]
    areas = [roc_auc_score(classes, (logits[:, 1] - logits[:, 0])) for logits in drawn]
    rates = [float((logits.argmax(1) == classes).double().mean()) for logits in drawn]
    best = max(range(6), key=areas.__getitem__)
    assert best not in (0, 5, max(range(6), key=rates.__getitem__)), "the two must disagree"
    told = iter(drawn)

    def evaluation(model: nn.Module, store: gt.GraphStore) -> Evaluation:
        return Evaluation(next(told), torch.eye(2)[classes], 1.0)

    monkeypatch.setattr(training, "evaluate", evaluation)
    result = gt.fit(model_for(store), store, store, seed=0, epochs=6, metric="auroc")
    assert [log.validation_score for log in result.history] == pytest.approx(areas)
    assert [log.validation_accuracy for log in result.history] == pytest.approx(rates)
    assert result.best_epoch == best + 1


def test_every_other_metric_decides_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = torch.randn(20, 1, generator=generator(3))
    classes = torch.tensor([0] * 15 + [1] * 5)
    oracles = {
        "average_precision": (
            labelled(classes),
            torch.eye(2)[classes],
            lambda logits: average_precision_score(classes, logits[:, 1] - logits[:, 0]),
        ),
        "r2": (
            labelled(numbers),
            numbers,
            lambda outputs: r2_score(numbers, outputs),
        ),
    }
    for metric, (store, targets, oracle) in oracles.items():
        drawn = [torch.randn(targets.shape, generator=generator(20 + place)) for place in range(6)]
        expected = [oracle(logits) for logits in drawn]
        best = max(range(6), key=expected.__getitem__)
        assert best > 0, "the first would be kept anyway"
        told = iter([Evaluation(logits, targets, 1.0) for logits in drawn])
        monkeypatch.setattr(training, "evaluate", lambda *_, told=told: next(told))
        result = gt.fit(model_for(store), store, store, seed=0, epochs=6, metric=metric)
        assert [log.validation_score for log in result.history] == pytest.approx(expected)
        assert result.best_epoch == best + 1


def labels_of_graphs(graphs: int = 30) -> Tensor:
    rows = (torch.rand(graphs, 3, generator=generator(4)) < 0.5).float()
    rows[:, 1] = 1.0  # a label that all have
    rows[::3, 2] = math.nan
    return rows


def test_the_metric_of_labels_is_the_mean_over_those_that_differ() -> None:
    rows = labels_of_graphs()
    store = labelled(rows)
    assert store.task == "multilabel"
    model = model_for(store)
    result = gt.fit(model, store, store, seed=0, epochs=4, metric="auroc", learning_rate=0.01)
    logits = gt.evaluate(model, store).logits
    there = ~rows[:, 2].isnan()
    areas = (
        roc_auc_score(rows[:, 0], logits[:, 0]),
        roc_auc_score(rows[there, 2], logits[there, 2]),
    )
    scores = [log.validation_score for log in result.history]
    assert max(scores) == pytest.approx(sum(areas) / 2)
    assert result.best_epoch == scores.index(max(scores)) + 1
    assert all(math.isnan(log.validation_accuracy) for log in result.history)


def test_labels_go_by_their_loss_when_nothing_else_is_asked_for() -> None:
    store = labelled(labels_of_graphs())
    result = gt.fit(model_for(store), store, store, seed=0, epochs=3)
    assert [log.validation_score for log in result.history] == [
        -log.validation_loss for log in result.history
    ]


@pytest.mark.parametrize("metric", ["auroc", "average_precision"])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (torch.arange(12) % 3, "needs two classes or labels; the targets of graphs are 3 classes"),
        (torch.rand(12, 1) + 0.1, "needs two classes or labels; the targets of graphs are numbers"),
        (torch.arange(12) // 11, "the validation graphs of graphs: they are all of one class"),
        (
            torch.tensor([[1.0, 0.0]] * 11 + [[0.0, 1.0]]),
            "the validation graphs of graphs: they have no label with both values",
        ),
    ],
)
def test_a_ranking_that_is_not_defined_is_refused(rows: Tensor, message: str, metric: str) -> None:
    store = labelled(rows)
    model = model_for(store)
    before = copy.deepcopy(model)
    with pytest.raises(GraphTransplantError, match=f"`metric` is '{metric}', .*{message}"):
        gt.fit(model, store, store.subset(range(11)), seed=0, epochs=1, metric=metric)
    assert same_weights(model, before)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (torch.arange(12) % 3, "which needs numbers; the targets of graphs are 3 classes"),
        (torch.eye(2).repeat(6, 1), "which needs numbers; the targets of graphs are labels"),
        (
            torch.tensor([[0.5]] * 11 + [[2.0]]),
            "is not defined on the validation graphs of graphs: they have no target that varies",
        ),
    ],
)
def test_an_r2_that_is_not_defined_is_refused(rows: Tensor, message: str) -> None:
    store = labelled(rows)
    with pytest.raises(GraphTransplantError, match=f"`metric` is 'r2', .*{message}"):
        gt.fit(model_for(store), store, store.subset(range(11)), seed=0, epochs=1, metric="r2")


# ------------------------------------------------------------------ balance


class Watching(gt.OriginalGraphs):
    """Notes which graphs a training sees, by their number of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, clean: gt.CleanPass, **settings: object) -> object:
        self.seen.append(clean.targets.detach().clone())
        return super().forward(clean, **settings)  # type: ignore[arg-type]


def test_balanced_epochs_have_every_class_equally_often() -> None:
    # 3 % of the graphs are of class 2, and none is of class 1.
    classes = torch.tensor([0] * 194 + [2] * 6)
    store, watching = labelled(classes), Watching()
    settings = {"seed": 0, "epochs": 10, "batch_size": 64, "balance": True}
    gt.fit(model_for(store), store, store, watching, **settings)
    assert [len(batch) for batch in watching.seen] == [64, 64, 64, 8] * 10
    drawn = torch.cat(watching.seen).argmax(1)
    # 2000 draws: 1000 of each class, give or take five standard deviations.
    assert abs(int((drawn == 2).sum()) - 1000) < 5 * math.sqrt(2000 / 4)
    assert int((drawn == 1).sum()) == 0


def test_balance_draws_members_of_a_class_evenly_and_anew() -> None:
    classes = torch.tensor([1, 0, 1, 0, 0, 0])
    drawn = generator(0)
    orders = torch.stack([training._balanced_order(classes, drawn) for _ in range(2000)])
    assert orders.shape == (2000, 6)
    count = torch.bincount(orders.flatten(), minlength=6).double()
    expected = torch.tensor([3000, 1500, 3000, 1500, 1500, 1500]).double()
    assert bool(((count - expected).abs() < 5 * expected.sqrt()).all())
    assert not torch.equal(orders[0], orders[1])


def test_labels_are_balanced_by_the_rarest() -> None:
    rows = torch.tensor([[1.0, 0.0]] * 60 + [[1.0, 1.0]] * 5 + [[0.0, math.nan]] * 135)
    store, watching = labelled(rows), Watching()
    gt.fit(model_for(store), store, store, watching, seed=0, epochs=10, balance=True)
    drawn = torch.cat(watching.seen)
    rare, none = (drawn[:, 1] == 1).sum(), (drawn[:, 0] == 0).sum()
    for count in (int(rare), int(none), len(drawn) - int(rare) - int(none)):
        assert abs(count - 2000 / 3) < 5 * math.sqrt(2000 * 2 / 9)


def test_balance_needs_classes() -> None:
    store = labelled(torch.rand(12, 1) + 0.1)
    with pytest.raises(GraphTransplantError, match="`balance` needs classes or labels, but the"):
        gt.fit(model_for(store), store, store, seed=0, epochs=1, balance=True)


# ------------------------------------------------------------------ the step


def test_steps_are_adam_steps_on_the_clipped_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    # One epoch of one batch, done again by hand.
    store = motifs(12)
    reference = model_for(store, dropout=0.0)
    model = copy.deepcopy(reference)
    monkeypatch.setattr(training, "evaluate", Script([0.5]))
    gt.fit(model, store, store, seed=0, epochs=1, learning_rate=0.01, clip_norm=1e-3)
    loss = gt.augmented_loss(reference, store.batch(range(12)), ())
    loss.backward()
    norm = nn.utils.clip_grad_norm_(reference.parameters(), 1e-3)
    assert float(norm) > 1e-3
    torch.optim.Adam(reference.parameters(), lr=0.01).step()
    for one, other in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_clipping_is_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    norms: list[float] = []
    clip = nn.utils.clip_grad_norm_

    def recorded(parameters: list[nn.Parameter], limit: float) -> Tensor:
        before = clip(parameters, limit)
        total = torch.stack([p.grad.norm() for p in parameters if p.grad is not None]).norm()
        norms.append(float(total))
        assert limit == 0.05
        return before

    monkeypatch.setattr(nn.utils, "clip_grad_norm_", recorded)
    store = motifs(24)
    model = model_for(store)
    (augment,) = build_method("transplant-ep", model)
    gt.fit(model, store, store, augment, seed=0, epochs=2, batch_size=12, clip_norm=0.05)
    assert len(norms) == 4
    assert all(norm <= 0.05 * (1 + 1e-4) for norm in norms)


def test_log_is_the_mean_over_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    # 20 graphs in batches of 8: the last batch of four counts half as much.
    seen: list[tuple[float, int]] = []
    plain = training.step_losses

    def recorded(model, batch, augment, **settings):
        losses = plain(model, batch, augment, **settings)
        seen.append((float(losses.clean.detach()), batch.num_graphs))
        return losses

    monkeypatch.setattr(training, "step_losses", recorded)
    result, _ = run(Script([0.5]), monkeypatch)
    assert [count for _, count in seen] == [8, 8, 4]
    expected = sum(loss * count for loss, count in seen) / 20
    (log,) = result.history
    assert log.clean_loss == pytest.approx(expected, rel=1e-5)
    assert log.train_loss == pytest.approx(log.clean_loss)
    assert log.virtual_loss == log.auxiliary_loss == 0.0


def test_every_graph_is_seen_once_per_epoch_in_a_new_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items = random_batch(generator(0), graphs=10).to_data_list()
    store = gt.GraphStore.from_pyg(items)
    orders: list[list[int]] = []
    plain = training.step_losses

    def recorded(model, batch, augment, **settings):
        orders.append(batch.y.tolist())
        return plain(model, batch, augment, **settings)

    monkeypatch.setattr(training, "step_losses", recorded)
    gt.fit(model_for(store), store, store, seed=0, epochs=2, batch_size=10)
    assert [sorted(order) for order in orders] == [list(range(10))] * 2
    assert orders[0] != orders[1]


# ------------------------------------------------------------------ pieces of batches


@dataclass(frozen=True)
class Piece:
    """What one call of ``step_losses`` was given."""

    batch: Batch
    generator_seed: int
    global_seed: int
    before: tuple[Tensor, Tensor]


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[Piece]:
    """Every piece that training has worked on."""
    seen: list[Piece] = []
    plain = training.step_losses

    def recorded(model, batch, augment, *, task, generator):
        states = (generator.get_state(), torch.get_rng_state())
        seen.append(Piece(batch, generator.initial_seed(), torch.initial_seed(), states))
        return plain(model, batch, augment, task=task, generator=generator)

    monkeypatch.setattr(training, "step_losses", recorded)
    return seen


def test_pieces_are_consecutive_and_as_equal_as_can_be(pieces: list[Piece]) -> None:
    store = gt.GraphStore.from_pyg(random_batch(generator(0), graphs=16).to_data_list())
    for parts in (1, 4):
        gt.fit(model_for(store), store, store, seed=0, epochs=1, batch_size=13, parts=parts)
    orders = [piece.batch.y.tolist() for piece in pieces]
    whole, cut = orders[:2], orders[2:]
    # 13 graphs in four pieces; then 3 graphs, and a piece that is empty is none.
    assert [len(order) for order in cut] == [4, 3, 3, 3, 1, 1, 1]
    assert list(chain(*cut)) == list(chain(*whole)), "the batches are those of one piece"


@pytest.mark.parametrize("method", ["vanilla", "transplant-ep"])
def test_the_gradient_is_the_mean_over_the_pieces(
    method: str, pieces: list[Piece], monkeypatch: pytest.MonkeyPatch
) -> None:
    # One step on 13 graphs, then by hand: each piece with the chance that it was given.
    store = motifs(13)
    model = model_for(store)
    augment = build_method(method, model, seed=1)
    reference = copy.deepcopy((model, augment))
    found: list[list[Tensor]] = []
    clip = nn.utils.clip_grad_norm_

    def recorded(parameters: list[nn.Parameter], limit: float) -> Tensor:
        found.append([p.grad.clone() for p in parameters])
        return clip(parameters, limit)

    monkeypatch.setattr(nn.utils, "clip_grad_norm_", recorded)
    result = gt.fit(model, store, store, augment, seed=0, epochs=1, batch_size=13, parts=3)
    assert len(found) == 1, "clipped once, after all pieces"
    given = list(pieces)
    assert [piece.batch.num_graphs for piece in given] == [5, 4, 4]
    model, augment = reference
    means = torch.zeros(3)
    with torch.random.fork_rng(devices=[]):
        for piece in given:
            chance = torch.Generator()
            chance.set_state(piece.before[0])
            torch.set_rng_state(piece.before[1])
            losses = training.step_losses(
                model.train(), piece.batch, augment, task=store.task, generator=chance
            )
            share = piece.batch.num_graphs / 13
            torch.autograd.backward(losses.total * share)
            means += share * torch.stack((losses.clean, losses.virtual, losses.auxiliary)).detach()
    parameters = [*model.parameters(), *(p for a in augment for p in a.parameters())]
    for gradient, parameter in zip(found[0], parameters, strict=True):
        torch.testing.assert_close(gradient, parameter.grad)
    (log,) = result.history
    assert [log.clean_loss, log.virtual_loss, log.auxiliary_loss] == pytest.approx(means.tolist())
    assert log.train_loss == pytest.approx(float(means.sum()))
    assert log.iterations == 1


def test_every_piece_has_chances_of_its_own(pieces: list[Piece]) -> None:
    store = motifs(12)
    for seed in (0, 0, 1):
        given = {"seed": seed, "epochs": 2, "batch_size": 6, "parts": 3}
        gt.fit(model_for(store), store, store, gt.GraphTransplant(), **given)
    seeds = [(piece.generator_seed, piece.global_seed) for piece in pieces]
    first, again, other = seeds[:12], seeds[12:24], seeds[24:]
    assert first == again
    assert len({number for pair in (*first, *other) for number in pair}) == 4 * 12


def test_plain_training_does_not_see_the_cuts() -> None:
    # Without dropout and mixing, pieces know nothing of one another.
    store = motifs(40)
    results = []
    for parts in (1, 3):
        model = model_for(store, dropout=0.0)
        given = {"epochs": 3, "batch_size": 16, "learning_rate": 0.01}
        results.append(gt.fit(model, store, store, seed=0, parts=parts, **given))
    one, three = results
    for log, other in zip(one.history, three.history, strict=True):
        assert log.train_loss == pytest.approx(other.train_loss, rel=1e-4)
        assert log.validation_loss == pytest.approx(other.validation_loss, rel=1e-3)
    for value, same in zip(one.model.parameters(), three.model.parameters(), strict=True):
        torch.testing.assert_close(value, same, rtol=1e-2, atol=1e-4)


def test_running_statistics_are_the_mean_over_the_pieces() -> None:
    store = gt.GraphStore.from_pyg(random_batch(generator(0)).to_data_list())
    torch.manual_seed(0)
    model = Foreign()
    order: list[Batch] = []

    class Watching(gt.Augmentation):
        """Keeps the pieces and makes samples that do not run the model."""

        def forward(self, clean, *, model, generator):
            order.append(clean.batch)
            return Nothing(targets=clean.targets)

    start = copy.deepcopy(model)
    gt.fit(model, store, store, Watching(), seed=0, epochs=1, batch_size=len(store), parts=3)
    assert [len(batch.y) for batch in order] == [3, 3, 2]
    mean, variance = torch.zeros(8), torch.zeros(8)
    for batch in order:
        alone = copy.deepcopy(start).train()
        alone(batch.x, batch.edge_index, batch.batch)
        mean += alone.norm.running_mean * len(batch.y) / 8
        variance += alone.norm.running_var * len(batch.y) / 8
    torch.testing.assert_close(model.norm.running_mean, mean)
    torch.testing.assert_close(model.norm.running_var, variance)
    assert int(model.norm.num_batches_tracked) == 1


class Nothing(gt.Virtual):
    def logits(self, model: object) -> Tensor:
        return torch.zeros_like(self.targets)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_trains_on_pieces_of_one_graph(method: str) -> None:
    store = motifs_for(method, 12)
    model = model_for(store)
    augment = build_method(method, model, seed=0)
    result = gt.fit(model, store, store, augment, seed=0, epochs=1, batch_size=4, parts=4)
    assert math.isfinite(result.history[0].train_loss)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # 3 of 4 and 1 of 6 samples: 4 of 10 of all.
        ([({"kept": 0.75}, 4), ({"kept": 1 / 6}, 6)], {"kept": 0.4}),
        ([({"same": 0.1}, 3), ({"same": 0.1}, 7), ({"same": 0.1}, 1)], {"same": 0.1}),
        ([({"kept": 0.5, "own": 2.0}, 5), ({"kept": 9.0}, 0)], {"kept": 0.5, "own": 2.0}),
        ([({}, 5), ({"late": 0.5}, 5)], {"late": 0.5}),
    ],
)
def test_measurements_of_processes_are_weighed_by_graphs(
    found: list[tuple[dict[str, float], int]], expected: dict[str, float]
) -> None:
    assert training._weighted_means(found) == pytest.approx(expected)


@pytest.mark.parametrize(("items", "size"), [(7, 3), (6, 3), (2, 4), (0, 2), (5, 1)])
def test_shares_are_those_of_numpy(items: int, size: int) -> None:
    expected = [part.tolist() for part in np.array_split(np.arange(items), size)]
    device = torch.device("cpu")
    shares = [list(training._Group(rank, size, device).share(items)) for rank in range(size)]
    assert shares == expected


# ------------------------------------------------------------------ reproducibility


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("method", ["vanilla", "transplant-dp", "transplant-ep"])
def test_same_seed_same_weights_to_the_bit(method: str, parts: int) -> None:
    store = motifs(24)
    results = []
    for seed, state in ((1, 10), (1, 11), (2, 10)):
        model = model_for(store)
        torch.manual_seed(5)
        augment = build_method(method, model)
        torch.manual_seed(state)
        global_state = torch.get_rng_state()
        given = {"epochs": 3, "batch_size": 10, "parts": parts}
        results.append(gt.fit(model, store, store, augment, seed=seed, **given))
        assert torch.equal(torch.get_rng_state(), global_state)
    assert same_weights(results[0].model, results[1].model)
    assert not same_weights(results[0].model, results[2].model)
    one, again = ([log.train_loss for log in r.history] for r in results[:2])
    assert one == again


def test_augmentation_does_not_change_the_order_of_the_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Methods that are compared see the same batches: the streams of chance are separate.
    store, orders = motifs(24), {}
    plain = training.step_losses
    for method in ("vanilla", "transplant-dp"):
        orders[method] = []

        def recorded(model, batch, augment, *, method=method, **settings):
            orders[method].append(batch.motif_mask.tolist())
            return plain(model, batch, augment, **settings)

        monkeypatch.setattr(training, "step_losses", recorded)
        model = model_for(store)
        gt.fit(model, store, store, build_method(method, model), seed=0, epochs=2, batch_size=10)
    assert orders["vanilla"] == orders["transplant-dp"]


# ------------------------------------------------------------------ evaluation


def test_evaluate_against_a_loop() -> None:
    store = motifs(20)
    model = model_for(store)
    model.train()
    found = gt.evaluate(model, store, batch_size=7)
    assert model.training
    model.eval()
    with torch.no_grad():
        rows = [model(store.batch([i])).logits for i in range(20)]
    torch.testing.assert_close(found.logits, torch.cat(rows))
    assert torch.equal(found.targets, torch.eye(6)[store.labels])
    expected = nn.functional.cross_entropy(torch.cat(rows), store.labels)
    assert found.loss == pytest.approx(float(expected), rel=1e-5)
    assert found.accuracy == float((torch.cat(rows).argmax(1) == store.labels).double().mean())
    assert not found.logits.requires_grad


def test_evaluate_restores_the_mode_of_every_submodule() -> None:
    store = motifs(12)
    model = model_for(store).train()
    model.head[2].eval()  # a part somebody froze
    gt.evaluate(model, store)
    assert model.training
    assert not model.head[2].training


def test_evaluate_restores_the_mode_when_the_model_raises() -> None:
    model = gt.GraphClassifier(7, 6, hidden=8).train()
    with pytest.raises(GraphTransplantError, match=r"\[nodes, 7\]"):
        gt.evaluate(model, motifs(12))
    assert model.training
    assert torch.is_grad_enabled()


# ------------------------------------------------------------------ methods learn


@pytest.mark.parametrize("method", sorted(METHODS))
def test_fit_lowers_the_loss(method: str) -> None:
    store = motifs_for(method, 48)
    model = model_for(store, hidden=16)
    torch.manual_seed(0)
    augment = build_method(method, model)
    before = gt.evaluate(model, store).loss
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    result = gt.fit(
        model, store, store, augment, seed=0, epochs=25, batch_size=24, learning_rate=0.01
    )
    first, last = result.history[0], result.history[-1]
    assert last.clean_loss < first.clean_loss
    # What a filter keeps changes from epoch to epoch, and the sum of the losses with it.
    kept = [log.measurements.get("kept_share", 1.0) for log in (first, last)]
    if kept == [1.0, 1.0]:
        assert last.train_loss < first.train_loss
    for name, value in model.named_parameters():
        assert not torch.equal(value, weights[name]), name
    assert min(log.validation_loss for log in result.history) < before - 0.05
    if augment:
        assert first.virtual_loss > 0
        if method != "label-smoothing":  # a sure model is far from uniform, and pays for it
            assert last.virtual_loss / max(kept[1], 1e-9) < first.virtual_loss / kept[0]
    if any(True for a in augment for _ in a.parameters()):
        accuracies = [log.measurements["edge_predictor_accuracy"] for log in result.history]
        assert all(0 <= value <= 1 for value in accuracies)
        assert first.auxiliary_loss > last.auxiliary_loss > 0
    assert gt.evaluate(model, store).accuracy == max(
        log.validation_accuracy for log in result.history
    )


class Foreign(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(3, 8)
        self.norm = nn.BatchNorm1d(8)
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.out(global_mean_pool(self.norm(self.conv(x, edge_index)).relu(), batch))


def test_foreign_models_fit_and_their_buffers_are_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = gt.GraphStore.from_pyg(random_batch(generator(0)).to_data_list())
    torch.manual_seed(0)
    model = Foreign()
    script = Script([0.1, 0.9, 0.2, 0.3])
    monkeypatch.setattr(training, "evaluate", script)
    result = gt.fit(model, store, store, gt.GraphTransplant(), seed=0, epochs=4)
    assert result.best_epoch == 2
    best = script.weights[1]
    assert all(torch.equal(best[key], value) for key, value in model.state_dict().items())
    assert int(model.norm.num_batches_tracked) == int(best["norm.num_batches_tracked"])


# ------------------------------------------------------------------ callbacks, progress, errors


def test_callbacks_get_every_epoch_and_may_end_the_training() -> None:
    store, seen = motifs(12), []

    def watch(log: EpochLog) -> None:
        seen.append(log.epoch)
        if log.epoch == 3:
            raise KeyboardInterrupt

    state = torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt):
        gt.fit(model_for(store), store, store, seed=0, epochs=9, callbacks=[watch])
    assert seen == [1, 2, 3]
    assert torch.equal(torch.get_rng_state(), state)


def test_progress_is_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    store = motifs(12)
    gt.fit(model_for(store), store, store, seed=0, epochs=2, progress=True)
    shown = capsys.readouterr()
    assert "2/2" in shown.err
    assert "val acc" in shown.err
    assert shown.out == ""
    gt.fit(model_for(store), store, store, seed=0, epochs=2, progress=False)
    assert capsys.readouterr().err == ""
    two = labelled(torch.arange(12) % 2)
    gt.fit(model_for(two), two, two, seed=0, epochs=1, progress=True, metric="auroc")
    assert "val auroc" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["vanilla", "transplant-dp", "transplant-ep"])
def test_a_loss_that_is_no_number_is_named(method: str) -> None:
    store = gt.GraphStore.from_pyg(random_batch(generator(0)).to_data_list())
    model = model_for(store)
    with torch.no_grad():
        model.head[0].weight.fill_(float("nan"))
    augment = build_method(method, model)
    with pytest.raises(GraphTransplantError, match=r"finite number in epoch 1.*learning_rate"):
        gt.fit(model, store, store, augment, seed=0, epochs=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "`epochs` must be at least 1, got 0"),
        ({"batch_size": 0}, "`batch_size` must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "`learning_rate` must be positive, got 0.0"),
        ({"learning_rate": float("nan")}, "`learning_rate` must be positive, got nan"),
        ({"seed": -1}, "`seed`.*-1"),
        ({"stop_patience": 0}, "`stop_patience` must be at least 1, got 0"),
        ({"decay_patience": 0}, "`decay_patience` must be at least 1, got 0"),
        ({"clip_norm": 0.0}, "`clip_norm` must be positive, got 0.0"),
        ({"metric": "f1"}, "`metric` must be one of accuracy, auroc, .*, r2; got 'f1'"),
        ({"patience_unit": "epoch"}, "`patience_unit` must be one of .*did you mean 'epochs'"),
        ({"parts": 0}, "`parts` must lie between 1 and `batch_size`, which is 128; got 0"),
        ({"parts": 9, "batch_size": 8}, "`parts` must .* `batch_size`, which is 8; got 9"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], message: str) -> None:
    store = motifs(12)
    with pytest.raises(GraphTransplantError, match=message):
        gt.fit(model_for(store), store, store, **{"seed": 0, "epochs": 1, **settings})


def test_data_that_does_not_fit_the_model_is_named() -> None:
    store = motifs(12)
    few = gt.GraphClassifier(0, 3, hidden=8, max_degree=9)
    with pytest.raises(GraphTransplantError, match="labels must lie between 0 and 2; got"):
        gt.fit(few, store, store, seed=0, epochs=1)
    with pytest.raises(GraphTransplantError, match="labels must lie between 0 and 2; got"):
        gt.augmented_loss(few, store.batch(range(12)), gt.GraphTransplant())


def test_loss_of_a_user_loop_needs_three_lines() -> None:
    batch: Batch = random_batch(generator(0))
    model = gt.GraphClassifier(3, 8, layers=2, hidden=8, seed=0)
    transplant = gt.GraphTransplant("predict", embedding_size=8)
    optimiser = torch.optim.Adam([*model.parameters(), *transplant.parameters()], lr=0.01)
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        loss = gt.augmented_loss(model, batch, transplant)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert sum(losses[-5:]) < sum(losses[:5])
