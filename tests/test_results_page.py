"""The results page says what the records say."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import graph_transplant as gt

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
DETAILS = (ROOT / "docs" / "results-details.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
sys.path.insert(0, str(ROOT / "benchmarks"))


def test_tables_are_up_to_date() -> None:
    import results_page

    for text in (PAGE, DETAILS):
        assert results_page.page(text) == text, "run: python benchmarks/results_page.py"
    marks = set(re.findall(r"<!-- (\w+) -->", PAGE + DETAILS))
    assert marks == {*results_page.PARTS, "end"}


def test_summaries_are_up_to_date() -> None:
    for folder in (ROOT / "results" / "full").iterdir():
        summary = (folder / "summary.csv").read_text(encoding="utf-8")
        assert summary == gt.read_results(folder).to_csv(), "run: python benchmarks/results_page.py"


@pytest.mark.parametrize(
    "text",
    [PAGE.partition("## Is it")[2], README.partition("## Results")[2]],
    ids=["page", "readme"],
)
def test_differences_in_prose_are_those_of_the_tables(text: str) -> None:
    tables = {
        cell.strip()
        for line in (PAGE + DETAILS).splitlines()
        if line.startswith("|")
        for cell in line.split("|")
    }
    prose = (line for line in text.splitlines() if not line.startswith("|"))
    named = set(re.findall(r"[+−]\d+\.\d", "\n".join(prose)))
    assert named
    assert named <= tables


def value(text: str) -> float:
    return float(text.replace("−", "-"))


def test_published_differences_of_accuracy_lie_within_the_intervals() -> None:
    assert "Every published difference in accuracy, attacked or not, lies within" in PAGE
    row = r"^\| (?:accuracy|attacked), [^|]+\|[^|]+\| ([+−][\d.]+) \|[^|]+\| (\S+) to (\S+) \|"
    tested = re.findall(row, PAGE.replace("\N{NO-BREAK SPACE}", " "), re.MULTILINE)
    assert len(tested) >= 11
    for published, low, high in tested:
        assert value(low) <= value(published) <= value(high)


def by_fold(data: str, method: str) -> dict[tuple[int, int], float]:
    lines = (ROOT / "results" / "full" / data / "records.jsonl").read_text().splitlines()
    trials = [json.loads(line) for line in lines]
    return {
        (trial["repeat"], trial["fold"]): trial["test"]["accuracy"]
        for trial in trials
        if trial["method"] == method
    }


@pytest.mark.parametrize(("method", "word"), [("transplant-dp", "DP"), ("transplant-ep", "EP")])
def test_a_claim_by_hand(method: str, word: str) -> None:
    """Difference, interval and p-value of ENZYMES, computed from the lines of the records."""
    page = PAGE.replace("\N{NO-BREAK SPACE}", " ")
    row = re.search(rf"^\| accuracy, {word} \| ENZYMES \|(.*)\|$", page, re.MULTILINE)
    assert row is not None
    _, measured, interval, p, folds, verdict = (cell.strip() for cell in row[1].split("|"))
    one, two = by_fold("ENZYMES", method), by_fold("ENZYMES", "vanilla")
    gaps = np.array([one[key] - two[key] for key in one.keys() & two.keys()])
    # Nadeau and Bengio: of five folds three train and one tests.
    error = gaps.std(ddof=1) * math.sqrt(1 / len(gaps) + 1 / 3)
    t = stats.t(len(gaps) - 1)
    reach = 100 * t.ppf(0.975) * error
    centre = 100 * gaps.mean()
    expected_p = 2 * t.sf(abs(gaps.mean()) / error)

    assert int(folds) == len(gaps)
    assert value(measured) == pytest.approx(centre, abs=0.051)
    low, high = interval.split(" to ")
    assert (value(low), value(high)) == pytest.approx((centre - reach, centre + reach), abs=0.051)
    if not p.startswith("<"):
        assert value(p) == pytest.approx(expected_p, abs=0.00051)
    assert verdict == ("reproduced" if expected_p < 0.05 else "in sign")


def test_the_table_of_rare_classes_is_that_of_its_records() -> None:
    lines = (ROOT / "results" / "imbalance.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    for way, label in (
        ("plain", "plain"),
        ("balance", "`--balance`"),
        ("class weights", "`--class-weight balanced`"),
    ):
        row = re.search(rf"^\| {label} \|(.*)\|$", text, re.MULTILINE)
        assert row is not None
        shown = [float(cell.split()[0]) for cell in row[1].split("|")]
        own = [record for record in records if record["way"] == way]
        assert len(own) == 5
        names = ("auroc", "average_precision", "ece", "accuracy")
        means = [float(np.mean([record[name] for record in own])) for name in names]
        assert shown == pytest.approx(means, abs=0.00051)
