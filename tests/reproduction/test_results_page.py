"""README and results pages say what the records say, after correction for the number of claims."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import graph_transplant as gt
from reproduction import across, claims, results_page

ROOT = Path(__file__).resolve().parents[2]


PAGES = {path.name: path.read_text(encoding="utf-8") for path in results_page.PAGES}
BLOCK = re.compile(r"<!-- (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)


def block(page: str, name: str) -> str:
    """A generated part of a page, on one line and without formatting."""
    text = dict(BLOCK.findall(PAGES[page]))[name]
    return re.sub(r"\s+", " ", text.replace("*", ""))


def rows(page: str, name: str) -> list[list[str]]:
    """The cells of a generated table, without its head."""
    lines = dict(BLOCK.findall(PAGES[page]))[name].replace("\N{NO-BREAK SPACE}", " ")
    table = [line for line in lines.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[2:]]


# ------------------------------------------------------------------ an oracle that reads the lines


def measured(directory: str, method: str, measure: str) -> dict[tuple[int, int], float]:
    """A method's scores by fold, from the lines of the records."""
    path = ROOT / "results" / "full" / directory / "records.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = {}
    for trial in map(json.loads, lines):
        if trial["method"] == method:
            if measure == "attacked":
                (value,) = [one["as_stated"] for one in trial["attacked"] if one["budget"] == 0.2]
            else:
                value = trial["test"][measure]
            found[trial["repeat"], trial["fold"]] = value
    return found


def by_hand(claim: claims.Claim) -> tuple[float, float, float] | None:
    """Difference, half the interval and p-value (Nadeau and Bengio), of five folds or more."""
    one, two = (
        measured(claim.directory, name, claim.measure) for name in (claim.method, claim.other)
    )
    gaps = np.array([one[key] - two[key] for key in one.keys() & two.keys()])
    if len(gaps) < 5:
        return None
    # Of five folds three train and one tests.
    error = gaps.std(ddof=1) * math.sqrt(1 / len(gaps) + 1 / 3)
    t = stats.t(len(gaps) - 1)
    return gaps.mean(), t.ppf(0.975) * error, 2 * t.sf(abs(gaps.mean()) / error)


def corrected(p_values: list[float]) -> list[float]:
    """Holm's correction."""
    left, largest, adjusted = len(p_values), 0.0, {}
    for index in sorted(range(len(p_values)), key=p_values.__getitem__):
        largest = max(largest, min(1.0, left * p_values[index]))
        adjusted[index], left = largest, left - 1
    return [adjusted[index] for index in range(len(p_values))]


def judged() -> list[tuple[claims.Claim, float, float, float, float, str]]:
    """Every tested claim: difference, half the interval, p alone, p corrected, word."""
    found = [(claim, test) for claim in claims.of_paper() if (test := by_hand(claim)) is not None]
    after = corrected([p for _, (_, _, p) in found])
    return [
        (
            *(claim, gap, reach, p, holm),
            {
                (True, True): "reproduced",
                (True, False): "in sign",
                (False, False): "other sign",
                (False, True): "contradicted",
            }[gap * claim.expected > 0, holm < 0.05],
        )
        for (claim, (gap, reach, p)), holm in zip(found, after, strict=True)
    ]


def value(text: str) -> float:
    return float(text.replace("−", "-"))


# ------------------------------------------------------------------ the pages


def test_pages_are_up_to_date() -> None:
    for text in PAGES.values():
        assert results_page.page(text) == text, "run: python -m reproduction.results_page"
    marks = [name for text in PAGES.values() for name, _ in BLOCK.findall(text)]
    assert sorted(marks) == sorted(results_page.PARTS)


def test_summaries_are_up_to_date() -> None:
    for folder in (ROOT / "results" / "full").iterdir():
        summary = (folder / "summary.csv").read_text(encoding="utf-8")
        assert summary == gt.read_results(folder).to_csv(), (
            "run: python -m reproduction.results_page"
        )


@pytest.mark.parametrize("page", ["README.md", "results.md"])
def test_differences_stand_only_where_they_are_made_from_records(page: str) -> None:
    text = PAGES[page].partition("## Results")[2] or PAGES[page]
    assert re.search(r"[+−]\d", text)
    assert not re.search(r"[+−]\d|\bp = |\d %? points", BLOCK.sub("", text))


def test_every_claim_says_reproduced_only_if_significant_after_correction() -> None:
    """Difference, interval, both p-values and the word, computed from the lines of the records."""
    expected = judged()
    table = rows("results.md", "claims")
    assert [row[:2] for row in table] == [[one[0].title, one[0].data] for one in expected]
    for row, (claim, gap, reach, p, holm, word) in zip(table, expected, strict=True):
        unit, last = (1, 0.00051) if claim.measure == "ece" else (100, 0.051)
        low, high = row[4].split(" to ")
        assert value(row[3]) == pytest.approx(unit * gap, abs=last)
        assert (value(low), value(high)) == pytest.approx(
            (unit * (gap - reach), unit * (gap + reach)), abs=last
        )
        for shown, true in ((row[5], p), (row[6], holm)):
            if shown.startswith("<"):
                assert true < 0.001
            else:
                assert value(shown) == pytest.approx(true, abs=0.00051)
        assert row[-1] == word
    assert len({row[-1] for row in table}) > 1


@pytest.mark.parametrize(("page", "name"), [("README.md", "summary"), ("results.md", "counted")])
def test_the_sentence_names_the_claims_that_survive_and_no_other(page: str, name: str) -> None:
    text, expected = block(page, name), judged()
    numbers = re.search(
        r"Of the (\d+) claims .* tested so far, (\d+) are reproduced \(.*?\)(?:: (.*?))?\. "
        r"Another (\d+) are in sign .*?, and (\d+) have the other sign",
        text,
    )
    assert numbers is not None
    words = [one[-1] for one in expected]
    assert [int(numbers[index]) for index in (1, 2, 4, 5)] == [
        len(expected),
        *(words.count(word) for word in ("reproduced", "in sign", "other sign")),
    ]
    assert "Contradicted" in text or "contradicted" not in words
    named = {
        (method, kind, data)
        for method, kind, places in re.findall(
            r"(DP|EP) (in accuracy|under attack|in calibration error \(ECE\)) on ([^;]*)",
            numbers[3] or "",
        )
        for data in re.findall(r"([\w-]+(?: with \w+)?) \(", places)
    }
    kinds = {"accuracy": "in accuracy", "attacked": "under attack"}
    assert named == {
        (
            claims.WORDS[claim.method],
            kinds.get(claim.kind, "in calibration error (ECE)"),
            claim.data if claim.model == "gcs" else f"{claim.data} with {claim.model.upper()}",
        )
        for claim, *_, word in expected
        if word == "reproduced"
    }
    inside = [
        abs(claim.published - gap) <= reach
        for claim, gap, reach, *_ in expected
        if claim.published is not None and claim.measure != "ece"
    ]
    who = f"All {len(inside)}" if all(inside) else f"{sum(inside)} of {len(inside)}"
    assert f"{who} published differences in accuracy, attacked or not, lie within" in text


def test_rows_of_controls_and_rivals_are_worded_by_corrected_p_and_interval() -> None:
    tables = rows("results-details.md", "controls"), rows("results-details.md", "rivals")
    families = [
        [row for row in tables[0] if not row[0].startswith("attacked")],
        [row for row in tables[0] if row[0].startswith("attacked")],
        tables[1],
    ]
    for family in families:
        assert family
        alone = [value(row[-4].removeprefix("< ")) for row in family]
        for row, p in zip(family, corrected(alone), strict=True):
            low, high = map(value, row[-5].split(" to "))
            if not row[-4].startswith("<"):
                assert value(row[-3].removeprefix("< ")) == pytest.approx(
                    p, abs=0.00051 * len(family)
                )
            p = value(row[-3].removeprefix("< "))
            if p < 0.05:
                assert row[-1] == "significant"
            elif low > -1 and high < 1:
                assert row[-1] == "practically equal"
            elif low < 0 < high and (low < -1 or high > 1):
                assert row[-1] == "not shown"
            elif low > 0 or high < 0:
                assert row[-1] == "not significant after correction"


def test_rivals_are_compared_with_the_best_network_on_their_folds() -> None:
    means = {
        (directory, method): np.mean([*measured(directory, method, metric).values()])
        for directory, metric in (("BACE-strong", "auroc"), ("NCI1-strong", "accuracy"))
        for method in ("vanilla", "transplant-dp", "forest", "wl-svm")
        if measured(directory, method, metric)
    }
    for data, metric, rival, *cells in rows("results-details.md", "rivals"):
        directory = {"BACE with scaffold folds": "BACE-strong", "NCI1": "NCI1-strong"}.get(data)
        if directory:
            networks = [means[directory, name] for name in ("vanilla", "transplant-dp")]
            gap = 100 * (means[directory, rival] - max(networks))
            assert metric == {"BACE-strong": "AUROC", "NCI1-strong": "accuracy"}[directory]
            assert value(cells[1]) == pytest.approx(gap, abs=0.051)


def test_differences_across_data_sets_are_those_of_the_lines() -> None:
    tested = [one for one in across.HYPOTHESES if not one.bayesian]
    found = 0
    for data, *cells in rows("results.md", "differences"):
        metric = "auroc" if data in ("BACE", "ClinTox") else "accuracy"
        for one, cell in zip(tested, cells, strict=True):
            if data not in one.data:
                assert not cell
                continue
            measure = "attacked" if one.measure == "attacked" else metric
            first, second = (measured(data, name, measure) for name in (one.method, one.other))
            both = [key for key in first if key in second]
            whole = {(0, fold) for fold in range(5)} <= {*both}
            assert bool(cell) == whole
            if whole:
                gap = np.mean([first[key] - second[key] for key in both])
                assert value(cell) == pytest.approx(100 * gap, abs=0.051)
                found += 1
    assert found


def test_the_figure_has_a_row_for_every_claim_of_the_table() -> None:
    drawn = set(re.findall(r"<text[^>]*>([^<]+)</text>", results_page.FIGURE.read_text("utf-8")))
    rows_of_table = {
        f"{data}, {title}"
        for title, data, *_ in rows("results.md", "claims")
        if title.startswith(("accuracy", "attacked"))
    }
    assert {text for text in drawn if ", " in text and "measured" not in text} == rows_of_table


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
