"""Power of the tests across data sets, and the table of it in the specification."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from reproduction import power

HERE = Path(__file__).resolve().parents[2] / "reproduction"


def test_the_specification_shows_the_table_that_the_script_prints() -> None:
    page = (HERE / "prespecified.md").read_text("utf-8")
    shown = re.search("<!-- power -->\n\n(.*?)\n\n<!-- end -->", page, re.DOTALL)
    assert shown is not None
    assert shown.group(1) == power.table()


@pytest.mark.parametrize("n", [5, 8, 12])
def test_p_values_are_those_of_scipy(n: int) -> None:
    tail, rng = power.null_distribution(n), np.random.default_rng(n)
    for _ in range(20):
        values = rng.standard_normal(n) + 0.5
        expected = stats.wilcoxon(values, alternative="greater", method="exact")
        assert tail[expected.statistic] == pytest.approx(expected.pvalue)
