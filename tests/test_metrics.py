"""Measurements against independent packages."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score
from torchmetrics.functional.classification import multiclass_calibration_error

from graph_transplant.errors import DataError
from graph_transplant.metrics import (
    area_under_roc,
    classification_metrics,
    expected_calibration_error,
)
from strategies import seeds


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


def test_calibration_error_by_hand() -> None:
    # Bins of 1/15: 0.61 and 0.66 share (0.6, 0.667], one right of two; 0.95 alone, right.
    confidence = torch.tensor([0.61, 0.66, 0.95])
    probabilities = torch.stack((confidence, 1 - confidence), dim=1)
    labels = torch.tensor([0, 1, 0])
    expected = (abs(0.61 + 0.66 - 1) + abs(0.95 - 1)) / 3
    assert expected_calibration_error(probabilities, labels) == pytest.approx(expected, abs=1e-6)


def test_calibration_error_of_certainty() -> None:
    certain = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert expected_calibration_error(certain, torch.tensor([0, 1])) == 0.0
    assert expected_calibration_error(certain, torch.tensor([1, 0])) == 1.0


@settings(max_examples=50)
@given(seeds(), st.integers(2, 60), st.booleans())
def test_area_under_roc_is_that_of_sklearn(seed: int, graphs: int, ties: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(graphs, generator=generator)
    if ties:
        scores = scores.round()
    positive = torch.rand(graphs, generator=generator) < 0.4
    found = area_under_roc(scores, positive)
    if positive.all() or not positive.any():
        assert math.isnan(found)
    else:
        assert found == pytest.approx(roc_auc_score(positive.numpy(), scores.numpy()))


@settings(max_examples=30)
@given(seeds(), st.integers(2, 50), st.integers(2, 5))
def test_classification_metrics(seed: int, graphs: int, classes: int) -> None:
    logits, labels = sample(seed, graphs, classes, 2.0)
    targets = torch.nn.functional.one_hot(labels, classes).float()
    figures = classification_metrics(logits, targets)
    probabilities = logits.double().softmax(1).numpy()
    assert figures["accuracy"] == np.mean(probabilities.argmax(1) == labels.numpy())
    assert figures["nll"] == pytest.approx(
        log_loss(labels.numpy(), probabilities, labels=list(range(classes))), abs=1e-9
    )
    assert figures["ece"] == pytest.approx(
        expected_calibration_error(logits.softmax(1), labels), abs=1e-6
    )
    assert ("auroc" in figures) == (classes == 2)
    if classes == 2 and 0 < int(labels.sum()) < graphs:
        assert figures["auroc"] == pytest.approx(roc_auc_score(labels, probabilities[:, 1]))


def test_sharp_logits_do_not_tie() -> None:
    # Probabilities round to 1.0 here; the ranking must come from the logits.
    logits = torch.tensor([[0.0, 60.0], [0.0, 50.0], [0.0, 40.0]])
    targets = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    assert classification_metrics(logits, targets)["auroc"] == 1.0


def test_metrics_refuse_other_shapes() -> None:
    with pytest.raises(DataError, match=r"one shape; got \[2, 3\] and \[2, 2\]"):
        classification_metrics(torch.zeros(2, 3), torch.zeros(2, 2))
