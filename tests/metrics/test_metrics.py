"""Measurements against independent packages."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    log_loss,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)
from torchmetrics.functional.classification import multiclass_calibration_error

from graph_transplant.errors import DataError
from graph_transplant.metrics import measure
from graph_transplant.metrics.functional import (
    adaptive_calibration_error,
    expected_calibration_error,
    mean_precision,
    roc_area,
)
from helpers.strategies import seeds


def sample(seed: int, graphs: int, classes: int, sharp: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = sharp * torch.randn(graphs, classes, generator=generator)
    return logits, torch.randint(classes, (graphs,), generator=generator)


@settings(max_examples=50)
@given(seeds(), st.integers(1, 200), st.integers(2, 7), st.sampled_from([0.1, 1.0, 6.0]))
def test_calibration_error_is_that_of_torchmetrics(
    seed: int, graphs: int, classes: int, sharp: float
) -> None:
    logits, labels = sample(seed, graphs, classes, sharp)
    probabilities = logits.softmax(1)
    expected = multiclass_calibration_error(
        probabilities, labels, num_classes=classes, n_bins=15, norm="l1"
    )
    assert expected_calibration_error(probabilities, labels) == pytest.approx(
        float(expected), abs=2e-6
    )


def adaptive_by_hand(probabilities: np.ndarray, labels: np.ndarray, bins: int) -> float:
    """Graph by graph: every graph counts those below it and those beside it."""
    confidence, predicted = probabilities.max(1), probabilities.argmax(1)
    members: dict[int, list[int]] = {}
    for graph, value in enumerate(confidence):
        below = sum(1 for other in confidence if other < value)
        beside = sum(1 for other in confidence if other == value)
        place = math.floor(Fraction(2 * below + beside, 2) * bins / len(confidence))
        members.setdefault(place, []).append(graph)
    assert set(members) <= set(range(bins))
    gaps = [
        abs(sum(confidence[graph] - (predicted[graph] == labels[graph]) for graph in inside))
        for inside in members.values()
    ]
    return float(sum(gaps)) / len(confidence)


@settings(max_examples=50)
@given(
    seeds(),
    st.integers(12, 60),
    st.integers(2, 3),
    st.sampled_from([4, 7, 11, 15]),
    st.booleans(),
)
def test_adaptive_calibration_error_by_brute_force(
    seed: int, graphs: int, classes: int, bins: int, ties: bool
) -> None:
    logits, labels = sample(seed, graphs, classes, 2.0)
    probabilities = (logits.round() if ties else logits).double().softmax(1)
    if ties:
        # Else the same logits in another order of classes may differ in the last digit.
        probabilities = (probabilities * 8).round() / 8
    found = adaptive_calibration_error(probabilities, labels, bins)
    expected = adaptive_by_hand(probabilities.numpy(), labels.numpy(), bins)
    assert found == pytest.approx(expected, abs=1e-12)
    order = torch.randperm(graphs, generator=torch.Generator().manual_seed(seed))
    shuffled = adaptive_calibration_error(probabilities[order], labels[order], bins)
    assert shuffled == pytest.approx(found, abs=1e-12)


def test_one_class_is_certain() -> None:
    figures = measure(torch.tensor([[3.0], [-1.0]]), torch.ones(2, 1), "multiclass")
    assert figures == {"accuracy": 1.0, "ece": 0.0, "adaptive_ece": 0.0, "brier": 0.0, "nll": 0.0}


@settings(max_examples=50)
@given(seeds(), st.integers(2, 60), st.booleans())
def test_rankings_are_those_of_sklearn(seed: int, graphs: int, ties: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(graphs, generator=generator).double()
    if ties:
        scores = scores.round()
    positive = torch.rand(graphs, generator=generator) < 0.4
    area, precision = roc_area(scores, positive), mean_precision(scores, positive)
    if positive.all() or not positive.any():
        assert math.isnan(area)
    else:
        assert area == pytest.approx(roc_auc_score(positive.numpy(), scores.numpy()))
    if not positive.any():
        assert math.isnan(precision)
    else:
        assert precision == pytest.approx(average_precision_score(positive.numpy(), scores.numpy()))


@settings(max_examples=30)
@given(seeds(), st.integers(2, 50), st.integers(2, 5))
def test_classification_metrics(seed: int, graphs: int, classes: int) -> None:
    logits, labels = sample(seed, graphs, classes, 2.0)
    targets = torch.nn.functional.one_hot(labels, classes).float()
    figures = measure(logits, targets, "multiclass")
    probabilities = logits.double().softmax(1).numpy()
    assert figures["accuracy"] == np.mean(probabilities.argmax(1) == labels.numpy())
    assert figures["nll"] == pytest.approx(
        log_loss(labels.numpy(), probabilities, labels=list(range(classes))), abs=1e-9
    )
    assert figures["ece"] == pytest.approx(
        expected_calibration_error(logits.softmax(1), labels), abs=1e-6
    )
    assert figures["adaptive_ece"] == pytest.approx(
        adaptive_by_hand(probabilities, labels.numpy(), 15), abs=1e-12
    )
    assert figures["brier"] == pytest.approx(
        brier_score_loss(
            labels.numpy(), probabilities, labels=list(range(classes)), scale_by_half=False
        )
    )
    assert ("auroc" in figures) == (classes == 2)
    if classes == 2 and 0 < int(labels.sum()) < graphs:
        assert figures["auroc"] == pytest.approx(roc_auc_score(labels, probabilities[:, 1]))
    assert ("average_precision" in figures) == (classes == 2)
    if classes == 2 and int(labels.sum()):
        assert figures["average_precision"] == pytest.approx(
            average_precision_score(labels, probabilities[:, 1])
        )


def test_sharp_logits_do_not_tie() -> None:
    # Probabilities round to 1.0 here; the ranking must come from the logits.
    logits = torch.tensor([[0.0, 60.0], [0.0, 50.0], [0.0, 40.0]])
    targets = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    assert measure(logits, targets, "multiclass")["auroc"] == 1.0


NOTHING = float("nan")


@settings(max_examples=50)
@given(seeds(), st.integers(1, 40), st.integers(1, 5), st.sampled_from([0.0, 0.3, 0.9]))
def test_label_metrics(seed: int, graphs: int, labels: int, missing: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(graphs, labels, generator=generator)
    targets = (torch.rand(graphs, labels, generator=generator) < 0.4).float()
    targets[torch.rand(graphs, labels, generator=generator) < missing] = NOTHING
    figures = measure(logits, targets, "multilabel")
    areas, precisions, truth, chance = [], [], [], []
    for column in range(labels):
        there = ~np.isnan(targets[:, column].numpy())
        true = targets[:, column].numpy()[there].astype(int)
        score = logits[:, column].double().numpy()[there]
        if len(set(true.tolist())) == 2:
            areas.append(roc_auc_score(true, score))
        if true.any():
            precisions.append(average_precision_score(true, score))
        truth.extend(true.tolist())
        chance.extend((1 / (1 + np.exp(-score))).tolist())
    names = "accuracy ece adaptive_ece brier nll auroc average_precision"
    assert set(figures) == set(names.split())
    assert figures["average_precision"] == pytest.approx(
        np.mean(precisions) if precisions else NOTHING, nan_ok=True
    )
    assert figures["auroc"] == pytest.approx(np.mean(areas) if areas else NOTHING, nan_ok=True)
    if not truth:
        assert all(math.isnan(value) for value in figures.values())
        return
    right = [
        (probability > 0.5) == bool(true) for probability, true in zip(chance, truth, strict=True)
    ]
    assert figures["accuracy"] == pytest.approx(np.mean(right))
    assert figures["nll"] == pytest.approx(log_loss(truth, chance, labels=[0, 1]))
    two = torch.tensor([[1 - p, p] for p in chance], dtype=torch.double)
    expected = multiclass_calibration_error(two, torch.tensor(truth), num_classes=2, n_bins=15)
    assert figures["ece"] == pytest.approx(float(expected), abs=2e-6)
    # Halved for two classes: the mean of (p - y)².
    assert figures["brier"] == pytest.approx(brier_score_loss(truth, chance, labels=[0, 1]))
    expected = adaptive_by_hand(two.numpy(), np.array(truth), 15)
    assert figures["adaptive_ece"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_regression_metrics(missing: float) -> None:
    generator = torch.Generator().manual_seed(1)
    outputs, targets = torch.randn(2, 20, 3, generator=generator)
    targets[torch.rand(20, 3, generator=generator) < missing] = NOTHING
    there = ~targets.isnan()
    figures = measure(outputs, targets, "regression")
    assert figures == {
        "rmse": pytest.approx(root_mean_squared_error(targets[there], outputs[there])),
        "mae": pytest.approx(mean_absolute_error(targets[there], outputs[there])),
        "r2": pytest.approx(
            np.mean(
                [
                    r2_score(targets[there[:, column], column], outputs[there[:, column], column])
                    for column in range(3)
                ]
            )
        ),
    }


def test_r2_of_targets_that_do_not_vary_is_no_number() -> None:
    def r2(outputs: torch.Tensor, targets: torch.Tensor) -> float:
        return measure(outputs, targets, "regression")["r2"]

    same = torch.tensor([[0.1], [0.1], [0.1]])
    assert math.isnan(r2(torch.zeros(3, 1), same))
    assert math.isnan(r2(torch.zeros(1, 1), torch.ones(1, 1)))
    # Such an output does not count beside one that varies.
    both = torch.cat((same, torch.tensor([[1.0], [2.0], [3.0]])), 1)
    assert r2(both, both) == 1.0
    # As good as the mean, and worse than it.
    assert r2(torch.full((3, 1), 2.0), both[:, 1:]) == 0.0
    assert r2(both[:, 1:].flip(0), both[:, 1:]) == -3.0


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
def test_every_task_refuses_other_shapes(task: str) -> None:
    with pytest.raises(DataError, match=r"one shape; got \[2, 3\] and \[2, 2\]"):
        measure(torch.zeros(2, 3), torch.zeros(2, 2), task)
