"""The training protocol: patience in iterations, checkpoints, reproducibility, errors."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import pytest
import torch
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


# ------------------------------------------------------------------ reproducibility


@pytest.mark.parametrize("method", ["vanilla", "transplant-dp", "transplant-ep"])
def test_same_seed_same_weights_to_the_bit(method: str) -> None:
    store = motifs(24)
    results = []
    for seed, state in ((1, 10), (1, 11), (2, 10)):
        model = model_for(store)
        torch.manual_seed(5)
        augment = build_method(method, model)
        torch.manual_seed(state)
        global_state = torch.get_rng_state()
        results.append(gt.fit(model, store, store, augment, seed=seed, epochs=3, batch_size=10))
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
