"""Training: the protocol of fit, its steps, its randomness, evaluation and several processes."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, r2_score, roc_auc_score
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ExponentialLR, ReduceLROnPlateau

import graph_transplant as gt
from graph_transplant.augment import CleanPass, OriginalGraphs, build_method
from graph_transplant.config import FitConfig
from graph_transplant.errors import GraphTransplantError
from graph_transplant.training import EpochLog, Evaluation, FitResult, loop
from helpers.processes import run_ranks
from helpers.strategies import generator, random_batch, rings_and_stars


def motifs(graphs: int = 60) -> gt.GraphStore:
    return gt.load("motifs", graphs=graphs)


def labelled(rows: Tensor) -> gt.GraphStore:
    """Motifs with other targets, a row or a class for each."""
    items = motifs(len(rows)).to_pyg()
    for item, row in zip(items, rows, strict=True):
        item.y = row.unsqueeze(0)
    return gt.GraphStore.from_pyg(items)


def model_for(store: gt.GraphStore, **settings: Any) -> gt.GraphClassifier:
    return gt.GraphClassifier.for_data(store, **{"layers": 2, "hidden": 8, "seed": 0, **settings})


def state_of(module: nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(module.state_dict())


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[key], other[key]) for key in one)


class Watching(OriginalGraphs):
    """Notes the targets and the loss of every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Tensor, float]] = []

    def forward(self, clean: CleanPass, **settings: Any) -> Any:
        self.seen.append((clean.targets, float(clean.loss.detach())))
        return super().forward(clean, **settings)


def test_accuracy_is_that_of_the_task() -> None:
    targets = torch.tensor([[1.0, 0.0], [1.0, torch.nan]])
    logits = torch.tensor([[2.0, 1.0], [-1.0, 3.0]])
    assert Evaluation(logits, targets, 0.0, "multilabel").accuracy == pytest.approx(1 / 3)
    assert math.isnan(Evaluation(logits, targets, 0.0, "regression").accuracy)


@pytest.mark.parametrize("weights", [[1.0] * 5, [-1.0] * 24, [0.0] * 24, [[1.0]] * 24])
def test_weights_that_do_not_fit_the_graphs_are_refused(weights: Any) -> None:
    store = rings_and_stars(24, seed=0, name="tiny")
    with pytest.raises(GraphTransplantError, match="`graph_weight` must be one finite"):
        gt.fit(model_for(store), store, store, seed=0, epochs=1, graph_weight=weights)


def test_numbers_of_numpy_can_be_resumed(tmp_path: Path) -> None:
    store = rings_and_stars(24, seed=0, name="tiny")
    given: dict[str, Any] = {"seed": np.int64(0), "learning_rate": np.float64(0.01)}
    given |= {"batch_size": np.int64(8), "checkpoint": tmp_path / "state.pt", "epochs": 2}
    given |= {"graph_weight": [1.0, 2.0] * 12, "stop_patience": np.int64(50)}
    runs = [gt.fit(model_for(store), store, store, **given) for _ in range(2)]
    assert same(*(run.model.state_dict() for run in runs))


# ------------------------------------------------------------------ patience, simulated


class Script:
    """Stands for ``evaluate``: gives written results, one per epoch, and keeps the weights."""

    def __init__(self, accuracies: Sequence[float], losses: Sequence[float] = ()) -> None:
        self.accuracies = list(accuracies)
        self.losses = list(losses) or [1.0] * len(self.accuracies)
        self.weights: list[dict[str, Tensor]] = []

    def __call__(self, model: nn.Module, store: gt.GraphStore, **settings: Any) -> Evaluation:
        epoch = len(self.weights)
        self.weights.append(state_of(model))
        right = round(self.accuracies[epoch] * 100)
        logits = torch.eye(2)[torch.tensor([0] * right + [1] * (100 - right))]
        return Evaluation(logits, torch.eye(2)[[0] * 100], self.losses[epoch])


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FitResult]:
    """Train by a script on 20 graphs in batches of 8: three iterations an epoch."""

    def trained(script: Script, **settings: Any) -> FitResult:
        monkeypatch.setattr(loop, "evaluate", script)
        store = motifs(20)
        given = {"seed": 0, "epochs": len(script.accuracies), "batch_size": 8, **settings}
        return gt.fit(model_for(store), store, store, **given)

    return trained


@pytest.mark.parametrize(
    ("accuracies", "settings", "epochs", "best"),
    [
        # Waiting begins after the rise in epoch 2; every later epoch adds three iterations.
        ([0.1, 0.3, 0.2, 0.3, 0.3, 0.0, 0.0], {"stop_patience": 6}, 4, 2),
        ([0.1, 0.3, 0.2, 0.3, 0.3, 0.0, 0.0], {"stop_patience": 7}, 5, 2),
        ([0.1, 0.3, 0.2, 0.3, 0.3, 0.0], {"stop_patience": 2, "patience_unit": "epochs"}, 4, 2),
        # A rise in time lets it start over.
        ([0.1, 0.0, 0.2, 0.0, 0.3, 0.0, 0.0, 0.9], {"stop_patience": 6}, 7, 5),
        ([0.1, 0.2, 0.3], {"stop_patience": 3}, 3, 3),
    ],
)
def test_training_stops_when_patience_is_over(
    run: Callable[..., FitResult],
    accuracies: list[float],
    settings: dict[str, Any],
    epochs: int,
    best: int,
) -> None:
    script = Script(accuracies)
    result = run(script, **settings)
    assert (result.epochs, result.best_epoch) == (epochs, best)
    assert result.stopped_early == (epochs < len(accuracies))
    assert [log.iterations for log in result.history] == [3 * (n + 1) for n in range(epochs)]
    assert [log.validation_score for log in result.history] == accuracies[:epochs]
    assert same(result.model.state_dict(), script.weights[best - 1])
    assert not result.model.training


@pytest.mark.parametrize(
    ("ties", "best", "epochs"), [("first", 2, 4), ("loss", 4, 6), ("reset", 7, 7)]
)
def test_of_equal_scores_ties_decides(
    run: Callable[..., FitResult], ties: str, best: int, epochs: int
) -> None:
    script = Script([0.5, *[0.9] * 6, 0.8], [0.1, 0.8, 0.8, 0.6, 0.7, 0.6, 0.5, 0.1])
    result = run(script, ties=ties, stop_patience=2, patience_unit="epochs", epochs=7)
    assert (result.best_epoch, result.epochs) == (best, epochs)
    assert same(result.model.state_dict(), script.weights[best - 1])


@pytest.mark.parametrize(
    "unit", [{"decay_patience": 6}, {"decay_patience": 2, "patience_unit": "epochs"}]
)
def test_the_learning_rate_is_halved_without_a_strictly_lower_loss(
    run: Callable[..., FitResult], unit: dict[str, Any]
) -> None:
    losses = [3.0, 2.0, 2.0, 2.5, 2.4, 2.0, 1.0, 1.0, 1.0, 1.0]
    result = run(Script([0.1] * 10, losses), stop_patience=1000, learning_rate=0.08, **unit)
    rates = [log.learning_rate for log in result.history]
    assert rates == pytest.approx([0.08] * 4 + [0.04] * 2 + [0.02] * 3 + [0.01])


def test_optimizer_and_scheduler_may_be_the_users(run: Callable[..., FitResult]) -> None:
    script = Script([0.1] * 4, [2.0, 3.0, 1.0, 1.5])
    given = {"optimizer": partial(torch.optim.SGD, lr=0.1), "decay_patience": 1}
    for scheduler, rates in (
        (partial(ExponentialLR, gamma=0.5), [0.1, 0.05, 0.025, 0.0125]),
        (partial(ReduceLROnPlateau, factor=0.1, patience=0), [0.1, 0.1, 0.01, 0.01]),
        (partial(ReduceLROnPlateau, mode="max", factor=0.1, patience=0), [0.1, 0.1, 0.01, 0.001]),
    ):
        script.weights.clear()
        result = run(script, scheduler=scheduler, **given)
        assert [log.learning_rate for log in result.history] == pytest.approx(rates)


def test_augmentations_go_back_to_the_best_epoch_too(run: Callable[..., FitResult]) -> None:
    transplant = gt.GraphTransplant("ep", embedding_size=8)
    after: list[dict[str, Tensor]] = []
    run(
        Script([0.1, 0.9, 0.2, 0.3]),
        augment=transplant,
        callbacks=[lambda log: after.append(state_of(transplant))],
    )
    assert same(transplant.state_dict(), after[1])
    assert not same(transplant.state_dict(), after[3])


def test_the_protocol_is_the_papers() -> None:
    expected = {"epochs": 1000, "batch_size": 128, "learning_rate": 5e-4, "clip_norm": 2.0}
    expected |= {"stop_patience": 1500, "decay_patience": 1000, "patience_unit": "iterations"}
    assert expected.items() <= vars(FitConfig(seed=0)).items()


def test_the_signature_of_fit_spells_out_every_option() -> None:
    parameters = inspect.signature(gt.fit).parameters
    training = inspect.signature(loop.fit_with).parameters.keys() - {"config"}
    spelled = {name: each.default for name, each in parameters.items() if name not in training}
    defaults = {option.name: option.default for option in fields(FitConfig)}
    assert spelled == defaults
    assert list(spelled) == list(defaults)


def test_a_training_can_be_written_with_its_steps() -> None:
    store, config = motifs(20), FitConfig(seed=0, epochs=3, batch_size=8)
    fitted, model = model_for(store), model_for(store)
    result = gt.fit(fitted, store, store, gt.GraphTransplant(), seed=0, epochs=3, batch_size=8)
    run = loop.start(model, store, store, gt.GraphTransplant(), config)
    logs = []
    with torch.random.fork_rng():
        while not run.finished:
            losses = loop.train_epoch(run)
            logs.append(loop.end_epoch(run, losses, loop.validate(run)))
    run.restore_best()
    assert same(fitted.state_dict(), model.state_dict())
    assert [log.train_loss for log in logs] == [log.train_loss for log in result.history]
    assert run.best_epoch == result.best_epoch


# ------------------------------------------------------------------ the metric

CLASSES = torch.tensor([0] * 15 + [1] * 5)
NUMBERS = torch.randn(20, 1, generator=generator(3))


@pytest.mark.parametrize(
    ("metric", "oracle"),
    [
        ("auroc", lambda z: roc_auc_score(CLASSES, z[:, 1] - z[:, 0])),
        ("average_precision", lambda z: average_precision_score(CLASSES, z[:, 1] - z[:, 0])),
        ("r2", lambda z: r2_score(NUMBERS, z)),
        ("accuracy", None),  # numbers have none: their loss decides
    ],
)
def test_the_metric_decides(
    metric: str, oracle: Callable[[Tensor], float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = metric in ("r2", "accuracy")
    store = labelled(NUMBERS if numbers else CLASSES)
    rows = NUMBERS if numbers else torch.eye(2)[CLASSES]
    drawn = [torch.randn(rows.shape, generator=generator(20 + epoch)) for epoch in range(6)]
    losses = [3.0, 2.0, 1.0, 4.0, 5.0, 6.0]
    scores = [-loss for loss in losses] if oracle is None else [oracle(z) for z in drawn]
    told = map(Evaluation, drawn, [rows] * 6, losses)
    monkeypatch.setattr(loop, "evaluate", lambda *_, **__: next(told))
    result = gt.fit(model_for(store), store, store, seed=0, epochs=6, metric=metric)
    assert [log.validation_score for log in result.history] == pytest.approx(scores)
    assert result.best_epoch == max(range(6), key=scores.__getitem__) + 1 > 1
    assert all(math.isnan(log.validation_accuracy) == numbers for log in result.history)


@pytest.mark.parametrize(
    ("metric", "rows"),
    [
        ("auroc", torch.arange(12) % 3),
        ("auroc", torch.arange(12) // 11),  # all of one class
        ("average_precision", torch.eye(2)[[0] * 11 + [1]]),  # no label with both values
        ("r2", torch.tensor([[0.5]] * 11 + [[2.0]])),
        ("f1", torch.arange(12) % 3),
    ],
)
def test_a_metric_that_is_not_defined_is_refused(metric: str, rows: Tensor) -> None:
    store = labelled(rows)
    says = f"`metric` (is '{metric}', which needs|must be)"
    with pytest.raises(GraphTransplantError, match=says):
        gt.fit(model_for(store), store, store.subset(range(11)), seed=0, epochs=1, metric=metric)


# ------------------------------------------------------------------ what an epoch sees


def test_every_graph_is_seen_once_per_epoch_in_a_new_order_whatever_the_augmentation() -> None:
    store = gt.GraphStore.from_pyg(random_batch(generator(0), graphs=10).to_data_list())
    orders = []
    for others in ((), (gt.GraphTransplant(),)):
        watching = Watching()
        gt.fit(model_for(store), store, store, [*others, watching], seed=0, epochs=2, batch_size=4)
        assert [len(rows) for rows, _ in watching.seen] == [4, 4, 2] * 2
        orders.append(torch.cat([rows.argmax(1) for rows, _ in watching.seen]).view(2, 10))
    assert torch.equal(*orders)
    first, second = orders[0].tolist()
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_the_log_is_the_mean_over_graphs() -> None:
    store, watching = motifs(20), Watching()
    (log,) = gt.fit(
        model_for(store, dropout=0.0), store, store, watching, seed=0, epochs=1, batch_size=8
    ).history
    expected = sum(len(rows) * loss for rows, loss in watching.seen) / 20
    assert log.clean_loss == pytest.approx(expected, rel=1e-5)
    assert log.virtual_loss == pytest.approx(expected, rel=1e-5)  # the same graphs again
    assert log.train_loss == pytest.approx(2 * expected, rel=1e-5)
    assert log.auxiliary_loss == 0.0


@pytest.mark.parametrize(
    ("rows", "groups"),
    [
        # 3 % of the graphs are of class 2, and none is of class 1.
        (torch.tensor([0] * 194 + [2] * 6), lambda y: (y[:, 0] == 1, y[:, 2] == 1)),
        # Labels are balanced by the rarest that a graph has.
        (
            torch.tensor([[1.0, 0.0]] * 60 + [[1.0, 1.0]] * 5 + [[0.0, math.nan]] * 135),
            lambda y: (y[:, 1] == 1, y[:, 0] == 0, (y[:, 0] == 1) & (y[:, 1] == 0)),
        ),
    ],
)
def test_balanced_epochs_have_every_class_equally_often(
    rows: Tensor, groups: Callable[[Tensor], tuple[Tensor, ...]]
) -> None:
    store, watching = labelled(rows), Watching()
    gt.fit(model_for(store), store, store, watching, seed=0, epochs=10, balance=True)
    drawn = torch.cat([seen for seen, _ in watching.seen])
    counts = [int(group.sum()) for group in groups(drawn)]
    share = 1 / len(counts)
    assert sum(counts) == len(drawn) == 2000
    for count in counts:
        assert abs(count - 2000 * share) < 5 * math.sqrt(2000 * share * (1 - share))


# ------------------------------------------------------------------ the step


@pytest.mark.parametrize("weighted", [False, True])
def test_a_step_is_an_adam_step_on_the_clipped_gradient_of_the_loss(weighted: bool) -> None:
    store = motifs(12)
    reference, model = (model_for(store, dropout=0.0) for _ in range(2))
    weight = torch.tensor([0.1, 1.0, 2.0, 3.0, 4.0, 5.0]) if weighted else None
    settings = {"epochs": 1, "learning_rate": 0.01, "clip_norm": 1e-3, "class_weight": weight}
    (log,) = gt.fit(model, store, store, seed=0, **settings).history
    logits = reference.run(store.batch(range(12))).logits
    loss = cross_entropy(logits, store.y, weight=weight, reduction="none").mean()
    assert log.clean_loss == pytest.approx(float(loss.detach()), rel=1e-5)
    loss.backward()
    assert float(nn.utils.clip_grad_norm_(reference.parameters(), 1e-3)) > 1e-3
    torch.optim.Adam(reference.parameters(), lr=0.01).step()
    for one, other in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_clipping_leaves_the_gradient_of_the_edge_predictor_alone() -> None:
    store = motifs(12)
    sizes, predictors = [], []
    for limit in (1e-3, 1e9):
        model = model_for(store, dropout=0.0)
        (augment,) = build_method("transplant-ep", model, seed=0)
        before = nn.utils.parameters_to_vector(model.parameters()).detach()
        sgd = partial(torch.optim.SGD, lr=1.0)
        gt.fit(model, store, store, augment, seed=0, epochs=1, optimizer=sgd, clip_norm=limit)
        step = nn.utils.parameters_to_vector(model.parameters()).detach() - before
        sizes.append(float(step.norm()))
        predictors.append(state_of(augment))
    assert sizes[0] == pytest.approx(1e-3, rel=1e-2)
    assert sizes[1] > 1e-2
    assert same(*predictors)


def test_the_seed_decides_everything_and_the_global_generator_is_left_alone() -> None:
    store, results = motifs(24), []
    for seed, state in ((1, 10), (1, 11), (2, 10)):
        model = model_for(store)
        augment = build_method("transplant-ep", model, seed=5)
        torch.manual_seed(state)
        before = torch.get_rng_state()
        result = gt.fit(model, store, store, augment, seed=seed, epochs=3, batch_size=10)
        assert torch.equal(torch.get_rng_state(), before)
        results.append((state_of(model), [log.train_loss for log in result.history]))
    assert same(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]
    assert not same(results[0][0], results[2][0])


def test_evaluate_against_a_loop() -> None:
    store = motifs(20)
    model = model_for(store).train()
    model.head[0].eval()  # a part somebody froze
    found = gt.evaluate(model, store, batch_size=7)
    assert model.training
    assert not model.head[0].training
    model.eval()
    with torch.no_grad():
        rows = torch.cat([model.run(store.batch([i])).logits for i in range(20)])
    torch.testing.assert_close(found.logits, rows)
    assert torch.equal(found.targets, torch.eye(6)[store.labels])
    assert found.loss == pytest.approx(float(cross_entropy(rows, store.labels)), rel=1e-5)
    assert found.accuracy == float((rows.argmax(1) == store.labels).double().mean())


# ------------------------------------------------------------------ callbacks, progress, errors


@pytest.mark.parametrize("callbacks", [print, [print, 3], 3])
def test_callbacks_that_are_no_list_of_functions_are_refused(callbacks: Any) -> None:
    store = gt.load("motifs", graphs=30)
    model = gt.GraphClassifier.for_data(store, hidden=4, layers=1)
    for call in (
        lambda: gt.fit(model, store, store, seed=0, epochs=1, callbacks=callbacks),
        lambda: gt.train(store, epochs=1, callbacks=callbacks),
        lambda: gt.compare(store, epochs=1, callbacks=callbacks),
    ):
        with pytest.raises(GraphTransplantError, match=r"must be a list of functions.*\[print\]"):
            call()


@pytest.mark.parametrize("augment", [(), gt.GraphTransplant(), gt.GraphTransplant("dp")])
def test_a_model_that_is_all_frozen_is_refused(augment: Any) -> None:
    store = gt.load("motifs", graphs=30)
    model = gt.GraphClassifier.for_data(store, hidden=4, layers=1).requires_grad_(False)
    with pytest.raises(GraphTransplantError, match="nothing to train"):
        gt.fit(model, store, store, augment, seed=0, epochs=1)
    with pytest.raises(GraphTransplantError, match="gradients"):
        gt.augmented_loss(model, store.batch(range(8)), augment)
    with torch.no_grad():  # as in validation
        assert gt.augmented_loss(model, store.batch(range(8)), ()).isfinite()


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (torch.optim.LBFGS, r"LBFGS computes the loss several times a step.*AdamW"),
        (lambda parameters: None, r"must return a torch.optim.Optimizer; got None"),
    ],
)
def test_an_optimizer_that_cannot_take_the_steps_is_refused(optimizer: Any, message: str) -> None:
    store = gt.load("motifs", graphs=30)
    model = gt.GraphClassifier.for_data(store, hidden=4, layers=1)
    with pytest.raises(GraphTransplantError, match=message):
        gt.fit(model, store, store, seed=0, epochs=1, optimizer=optimizer)


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
    store = labelled(torch.arange(12) % 2)
    for metric, shown in (("accuracy", "val acc"), ("auroc", "val auroc")):
        gt.fit(model_for(store), store, store, seed=0, epochs=2, progress=True, metric=metric)
        said = capsys.readouterr()
        assert "2/2" in said.err
        assert shown in said.err
        assert said.out == ""
    gt.fit(model_for(store), store, store, seed=0, epochs=2, progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("method", ["vanilla", "transplant-ep"])
def test_a_loss_that_is_no_number_is_named(method: str) -> None:
    store = motifs(12)
    model = model_for(store)
    with torch.no_grad():
        model.head[0].weight.fill_(math.nan)
    augment = build_method(method, model)
    with pytest.raises(GraphTransplantError, match=r"finite number in epoch 1.*learning_rate"):
        gt.fit(model, store, store, augment, seed=0, epochs=2)


def test_a_validation_loss_that_is_no_number_is_named() -> None:
    class Failing(gt.GraphClassifier):
        def classify(self, graphs: Tensor) -> Tensor:
            return super().classify(graphs) / self.training  # no number in evaluation mode

    store = motifs(12)
    with pytest.raises(GraphTransplantError, match="validation loss is not a number in epoch 1"):
        gt.fit(Failing.for_data(store, hidden=8), store, store, seed=0, epochs=2)


def test_augmentations_may_share_an_edge_predictor() -> None:
    store, psi = motifs(12), gt.augment.EdgePredictor(8)
    augment = [gt.GraphTransplant(psi), gt.GraphTransplant(psi, cut="scattered")]
    gt.fit(model_for(store), store, store, augment, seed=0, epochs=1)  # torch warns of repeats


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "`epochs` must be at least 1, got 0"),
        ({"validation": []}, r"got a list with nothing in it"),
        ({"validation": labelled(torch.rand(12, 1))}, "multiclass; it is regression"),
        ({"graph_weight": "balanced"}, "`graph_weight` must be numbers; got 'balanced'"),
        ({"learning_rate": math.nan}, "`learning_rate` must be above 0, got nan"),
        ({"seed": -1}, "`seed`.*-1"),
        ({"patience_unit": "epoch"}, "`patience_unit` must be one of .*did you mean 'epochs'"),
        ({"scheduler": torch.optim.Adam([torch.ones(1)])}, "`scheduler` must be callable"),
        ({"class_weight": 2.0}, "`class_weight` must have 6 entries"),
        ({"class_weight": "balanced"}, "`class_weight` must be numbers.*'balanced'"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    store = motifs(12)
    with pytest.raises(GraphTransplantError, match=message):
        gt.fit(model_for(store), store, **{"validation": store, "seed": 0, "epochs": 1, **settings})


# ------------------------------------------------------------------ several processes


def _weights(*, wrapped: bool = False) -> list[float]:
    """Train on 17 graphs in batches of 16: the last batch has a graph for the first rank alone."""
    store = motifs(17)
    model = model_for(store, dropout=0.0)
    fitted = DistributedDataParallel(model) if wrapped else model
    gt.fit(fitted, store, store, seed=0, epochs=1, batch_size=16, learning_rate=0.01)
    return nn.utils.parameters_to_vector(model.parameters()).tolist()


def _together(rank: int) -> tuple[list[float], list[float]]:
    return _weights(), _weights(wrapped=True)


def test_processes_train_one_model_by_the_steps_of_one() -> None:
    first, second = run_ranks(_together)
    assert first == second
    together, wrapped = first
    assert wrapped == together  # a model that averages gradients itself trains likewise
    alone = torch.tensor(_weights())
    torch.testing.assert_close(torch.tensor(together), alone, rtol=1e-3, atol=1e-5)
