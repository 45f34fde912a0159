"""Temperature and reliability against independent computations."""

from __future__ import annotations

import json
import math

import pytest
import torch
from sklearn.calibration import calibration_curve
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, one_hot

from graph_transplant.errors import GraphTransplantError
from graph_transplant.metrics import TEMPERATURES, measure
from graph_transplant.metrics.calibration import calibration, fit_temperature, reliability


def drawn(graphs: int, classes: int, *, too_sure: float, seed: int) -> tuple[Tensor, Tensor]:
    """Logits that are too sure by a known factor, and classes drawn by the honest ones."""
    generator = torch.Generator().manual_seed(seed)
    honest = torch.randn(graphs, classes, generator=generator, dtype=torch.double) * 1.5
    labels = torch.multinomial(honest.softmax(1), 1, generator=generator).squeeze(1)
    return honest * too_sure, labels


def by_lbfgs(logits: Tensor, loss: torch.nn.Module | object, targets: Tensor) -> float:
    """Minimise the loss over log T with torch's own optimiser."""
    log_t = torch.zeros(1, dtype=torch.double, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [log_t],
        max_iter=500,
        tolerance_grad=1e-14,
        tolerance_change=1e-16,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value: Tensor = loss(logits / log_t.exp(), targets)  # type: ignore[operator]
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[arg-type]
    return float(log_t.detach().exp())


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("too_sure", [0.4, 3.0])
def test_temperature_of_classes_is_the_minimum(classes: int, too_sure: float) -> None:
    logits, labels = drawn(400, classes, too_sure=too_sure, seed=classes)
    found = fit_temperature(logits, one_hot(labels, classes).double())
    assert found == pytest.approx(by_lbfgs(logits, cross_entropy, labels), rel=1e-6)


def test_temperature_of_labels_leaves_out_missing_entries() -> None:
    generator = torch.Generator().manual_seed(4)
    honest = torch.randn(300, 4, generator=generator, dtype=torch.double) * 2 - 1
    targets = torch.bernoulli(honest.sigmoid(), generator=generator)
    missing = torch.rand(300, 4, generator=generator) < 0.4
    logits = honest * 2
    found = fit_temperature(logits, targets.masked_fill(missing, math.nan), "multilabel")
    expected = by_lbfgs(logits[~missing], binary_cross_entropy_with_logits, targets[~missing])
    assert found == pytest.approx(expected, rel=1e-6)
    assert found != pytest.approx(fit_temperature(logits, targets, "multilabel"), rel=1e-6)


def test_temperature_stays_within_its_bounds() -> None:
    logits = torch.tensor([[3.0, 0.0], [0.0, 2.0]])
    right, wrong = torch.eye(2), torch.eye(2).flip(0)
    assert fit_temperature(logits, wrong) == TEMPERATURES[1]
    # One graph is slightly wrong: the best temperature is below the lowest.
    almost = torch.cat((logits, torch.tensor([[1e-4, 0.0]])))
    targets = torch.cat((right, torch.tensor([[0.0, 1.0]])))
    assert fit_temperature(almost, targets) == TEMPERATURES[0]
    assert fit_temperature(almost, targets, "multilabel") == TEMPERATURES[0]
    # Logits that say nothing leave the temperature alone, and so do graphs without entries.
    assert fit_temperature(torch.zeros(2, 2), right) == 1.0
    assert fit_temperature(logits, torch.full((2, 2), math.nan), "multilabel") == 1.0
    assert fit_temperature(torch.full((2, 2), 1e30), right) == 1.0


def test_without_errors_confidence_is_not_raised() -> None:
    logits = torch.tensor([[3.0, 0.0], [0.0, 2.0], [-0.5, 0.5]])
    classes = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    labels = torch.tensor([[1.0, math.nan], [0.0, 1.0], [0.0, 1.0]])
    for targets, task in ((classes, "multiclass"), (labels, "multilabel")):
        centred = logits - 0.1  # for labels, above 0 is yes
        assert fit_temperature(centred, targets, task) == 1.0
        found = calibration(centred, targets, LOGITS, TARGETS, task)
        assert found["calibrated"]["temperature"] == 1.0
        assert found["calibrated"]["nll"] == measure(LOGITS.double(), TARGETS, task)["nll"]


def test_reliability_is_that_of_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(500, generator=generator, dtype=torch.double)
    labels = (torch.rand(500, generator=generator) < 0.5).long()
    probabilities = torch.stack((1 - p, p), dim=1)
    bins = reliability(probabilities, labels, bins=10)
    confidence, predicted = probabilities.max(1)
    shares, means = calibration_curve(predicted.eq(labels).numpy(), confidence.numpy(), n_bins=10)
    filled = [part for part in bins if part["count"]]
    assert [part["accuracy"] for part in filled] == pytest.approx(shares.tolist())
    assert [part["confidence"] for part in filled] == pytest.approx(means.tolist())
    assert sum(part["count"] for part in bins) == 500
    assert [part["lower"] for part in bins] == pytest.approx([k / 10 for k in range(10)])
    assert [part["upper"] for part in bins] == pytest.approx([(k + 1) / 10 for k in range(10)])


def gap_of(rows: list[dict[str, float]]) -> float:
    total = sum(row["count"] for row in rows)
    return sum(row["count"] * abs(row["confidence"] - row["accuracy"]) for row in rows) / total


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_calibration_measures_test_graphs_at_the_temperature_of_validation(task: str) -> None:
    if task == "multiclass":
        logits, labels = drawn(900, 4, too_sure=4.0, seed=5)
        targets = one_hot(labels, 4).double()
    else:
        generator = torch.Generator().manual_seed(6)
        logits = torch.randn(900, 3, generator=generator, dtype=torch.double) * 6
        targets = torch.bernoulli((logits / 3).sigmoid(), generator=generator)
        targets[torch.rand(900, 3, generator=generator) < 0.3] = math.nan
    found = calibration(logits[:300], targets[:300], logits[300:], targets[300:], task)
    temperature = fit_temperature(logits[:300], targets[:300], task)
    before, after = (measure(logits[300:] / t, targets[300:], task) for t in (1, temperature))
    metrics = ("ece", "adaptive_ece", "brier", "nll")
    expected = {name: pytest.approx(after[name]) for name in metrics}
    assert found["calibrated"] == {"temperature": temperature, **expected}
    assert all(after[name] < before[name] for name in metrics)
    for rows, figures in ((found["reliability"], before), (found["reliability_calibrated"], after)):
        assert gap_of(rows) == pytest.approx(figures["ece"], abs=1e-12)
        cases = len(targets[300:]) if task == "multiclass" else int((~targets[300:].isnan()).sum())
        assert sum(row["count"] for row in rows) == cases
        for row in rows:
            assert row["bin"] / 15 < row["confidence"] <= (row["bin"] + 1) / 15
    assert json.loads(json.dumps(found)) == found


LOGITS = torch.tensor([[2.0, 0.0], [0.5, 0.0], [0.0, 1.0]])
TARGETS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])


@pytest.mark.parametrize(
    ("logits", "targets", "task"),
    [
        (torch.tensor([[math.inf, 0.0], [1.0, 0.0]]), torch.eye(2), "multiclass"),
        (torch.tensor([[3.0, 0.0], [2.0, 0.0]]), torch.tensor([[1.0, 0.0]] * 2), "multiclass"),
        (torch.tensor([[3.0, 0.0]]), torch.tensor([[math.nan, 1.0]]), "multilabel"),
        (torch.zeros(0, 2), torch.zeros(0, 2), "multiclass"),
    ],
)
def test_validation_graphs_that_cannot_tell_leave_the_probabilities(
    logits: Tensor, targets: Tensor, task: str
) -> None:
    found = calibration(logits, targets, LOGITS, TARGETS, task)
    before = measure(LOGITS, TARGETS, task)
    assert found["calibrated"] == {
        "temperature": 1.0,
        **{name: before[name] for name in ("ece", "adaptive_ece", "brier", "nll")},
    }
    assert found["reliability"] == found["reliability_calibrated"] != []


def test_calibration_of_one_graph_of_one_class_and_of_no_number() -> None:
    (row,) = calibration(LOGITS, TARGETS, LOGITS[:1], TARGETS[:1], "multiclass")["reliability"]
    sure = 1 / (1 + math.exp(-2.0))
    assert row == {"bin": 13, "count": 1, "confidence": pytest.approx(sure), "accuracy": 1.0}
    single = calibration(
        LOGITS[:, :1], torch.ones(3, 1), LOGITS[:, :1], torch.ones(3, 1), "multiclass"
    )
    zeros = dict.fromkeys(("ece", "adaptive_ece", "brier", "nll"), 0.0)
    assert single["calibrated"] == {"temperature": 1.0, **zeros}
    broken = LOGITS.clone()
    broken[0] = math.nan
    found = calibration(LOGITS, TARGETS, broken, TARGETS, "multiclass")
    assert sum(row["count"] for row in found["reliability"]) == 2
    assert all(math.isfinite(row["confidence"]) for row in found["reliability"])
    assert math.isnan(found["calibrated"]["brier"])


def test_calibration_is_for_classes_and_labels() -> None:
    assert calibration(LOGITS, TARGETS, LOGITS, TARGETS, "regression") == {}
    with pytest.raises(GraphTransplantError, match=r"`test_logits` and `test_targets` .* \[2, 2\]"):
        calibration(LOGITS, TARGETS, LOGITS, TARGETS[:2], "multiclass")
