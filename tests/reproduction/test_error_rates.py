"""The simulation of error rates: its learners and tests beside those of scikit-learn and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import BernoulliNB

from reproduction import error_rates as rates


def made_up(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Bits, and labels that depend on all of them."""
    rng = np.random.default_rng(seed)
    x = (rng.random((rows, 512)) < 0.3).astype(np.float32)
    score = x @ rng.standard_normal(512)
    return x, (score > np.quantile(score, 0.85)).astype(float)


def test_auroc_counts_ties_by_half() -> None:
    _, y = made_up(200)
    scores = np.random.default_rng(1).integers(0, 5, (200, 3)).astype(float)
    expected = [roc_auc_score(y, column) for column in scores.T]
    assert rates.auroc(scores, y) == pytest.approx(expected)


def test_learners_rank_as_those_of_scikit_learn() -> None:
    x, y = made_up(300)
    columns = [np.arange(0, 512, 2), np.arange(0, 100)]
    for ours, theirs in ((rates.ridge, Ridge(alpha=100.0)), (rates.naive_bayes, BernoulliNB())):
        weights = ours(x, y, columns)
        for number, chosen in enumerate(columns):
            fitted = theirs.fit(x[:, chosen], y)
            score = getattr(fitted, "predict_log_proba", fitted.predict)(x[:, chosen])
            score = score[:, 1] - score[:, 0] if score.ndim == 2 else score
            difference = x @ weights[:, number] - score
            assert np.ptp(difference) < 1e-3 * np.ptp(score)  # equal but for the intercept


def test_tukey_takes_its_error_from_the_analysis_of_variance() -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((6, 3)) + np.array([0.0, 0.5, 2.5])
    rest = table - table.mean(1, keepdims=True) - table.mean(0) + table.mean()
    error = np.sqrt((rest**2).sum() / 10 / 6)
    p = [stats.studentized_range.sf(abs(table[:, j].mean() - table[:, 0].mean()) / error, 3, 10)
         for j in (1, 2)]  # fmt: skip
    assert rates.tukey(table) == [value < 0.05 for value in p]
    assert rates.tukey(table)[1]


def test_five_times_two_is_dietterichs() -> None:
    pair = np.array([0.03, 0.01, 0.02, 0.04, 0.05, 0.01, 0.02, 0.02, 0.03, 0.00])
    squares = [((a - (a + b) / 2) ** 2 + (b - (a + b) / 2) ** 2) for a, b in pair.reshape(5, 2)]
    t = pair[0] / np.sqrt(np.mean(squares))
    assert rates.five_times_two(pair) == pytest.approx(2 * stats.t.sf(t, 5))


def test_a_replicate_shifts_the_null_by_the_true_differences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = made_up(20_000)
    rare = np.flatnonzero(y == 1)[:1500]
    keep = np.sort(np.concatenate((rare, np.flatnonzero(y == 0))))
    monkeypatch.setitem(rates.PROTOCOLS, "naive Bayes", (5,))
    found = [rates.replicate(x[keep], y[keep], "naive Bayes", seed) for seed in range(3)]
    assert all(len(one["null/corrected t/5"]) == 3 for one in found)
    assert all(one["true"][2] < one["true"][0] for one in found)  # fewer bits, worse
    total = rates.summary(found)
    assert total["replicates"] == 3
    assert set(total["tests"]) >= {
        "corrected t/5",
        "paired t/5",
        "ANOVA and Tukey/5",
        "5 x 2 cv/10",
    }
