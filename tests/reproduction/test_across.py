"""Tests across data sets are those of the specification, made once all is measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scipy import stats

from reproduction import across, results_page

SPECIFICATION = Path(across.__file__).with_name("prespecified.md")


def gaps(**shifts: float) -> dict[str, dict[str, float]]:
    """Differences of every hypothesis: 1, 2, 3 … hundredths around a shift, by data set."""
    return {
        one.name: {
            data: shifts.get(f"h{one.name}", 0.0) + (-1) ** place * place / 100
            for place, data in enumerate(one.data, start=1)
        }
        for one in across.HYPOTHESES
    }


def test_a_gain_on_every_data_set_is_found_and_corrected_in_its_family() -> None:
    found = {one.hypothesis.name: one for one in across.tested(gaps(h1a=3.0, h2b=3.0))}
    gain = found["1a"]
    assert gain.p_value == pytest.approx(2.0**-10)  # ten data sets, one-sided
    assert gain.p_holm == pytest.approx(2 * 2.0**-10)  # two hypotheses in family 1
    assert gain.significant
    assert gain.above == 1.0
    assert found["2b"].p_value == pytest.approx(2 * 2.0**-10)  # two-sided
    assert found["2b"].p_holm == pytest.approx(4 * 2 * 2.0**-10)
    assert not found["1b"].significant
    assert found["1b"].within == 1.0
    assert found["4a"].p_value is None
    assert across.new_alone(gain) == pytest.approx(2.0**-6)


def test_p_values_are_those_of_scipy() -> None:
    for one in across.tested(gaps(h1b=-0.0213, h2a=0.0317, h3a=0.0142)):
        if not one.hypothesis.bayesian:
            side = "greater" if one.hypothesis.greater else "two-sided"
            values = [*one.gaps.values()]
            expected = stats.wilcoxon(values, alternative=side, method="exact").pvalue
            assert one.p_value == pytest.approx(expected)


def test_hypotheses_are_those_of_the_specification() -> None:
    text = SPECIFICATION.read_text("utf-8")
    rows = re.findall(r"^\|[^|]*\| (\d\w) (\S+ .*?) \| (.*?) \| (.*?) \|$", text, re.MULTILINE)
    places = {
        "known and new": across.KNOWN + across.NEW,
        "known and new without COLLAB": across.KNOWN + across.NEW[:-1],
        "new without COLLAB": across.NEW[:-1],
    }
    assert [row[0] for row in rows] == [one.name for one in across.HYPOTHESES]
    for (_, words, data, test), one in zip(rows, across.HYPOTHESES, strict=True):
        assert places[data] == one.data
        assert one.greater == (test == "one-sided")
        assert one.bayesian == test.startswith("Bayesian")
        assert ("ttacked" in words) == (one.measure == "attacked")
        other = "plain training" if one.other == "vanilla" else one.other
        assert other in words
        assert ("EP" if one.method == "transplant-ep" else "DP") in words


def test_until_all_is_measured_nothing_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = gaps(h1a=2.0)
    monkeypatch.setattr(across, "measured", lambda one: complete[one.name])
    across.outcomes.cache_clear()
    assert all(one.difference is not None for one in across.outcomes())
    assert "significant (Wilcoxon, one-sided" in results_page.across_list()
    del complete["3a"]["BACE"]
    across.outcomes.cache_clear()
    assert all(one.difference is None for one in across.outcomes())
    assert "3a 4 of 5" in results_page.across_list()
    across.outcomes.cache_clear()
