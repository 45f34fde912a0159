"""Records of before the rewrite give the tables and verdicts of before the rewrite.

``tests/golden/make.py`` makes the golden files again.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from golden.make import GOLDEN, cases, summary_and_verdict, unpack
from graph_transplant.cli import main

CASES = [pytest.param(*case, id=case[0]) for case in cases()]
NUMBER = (int, float)


def differences(golden: Any, found: Any, place: str = "") -> Iterator[str]:
    """List what is no longer there or no longer equal; what is new may be there."""
    if isinstance(golden, dict) and isinstance(found, dict):
        for key, value in golden.items():
            if key in found:
                yield from differences(value, found[key], f"{place}/{key}")
            else:
                yield f"{place}/{key} is missing"
    elif isinstance(golden, list) and isinstance(found, list):
        if len(golden) != len(found):
            yield f"{place} has {len(found)} entries, not {len(golden)}"
        else:
            for number, (value, other) in enumerate(zip(golden, found, strict=True)):
                yield from differences(value, other, f"{place}/{number}")
    elif type(golden) in NUMBER and type(found) in NUMBER:
        # What is zero but for rounding, such as 2e-17, has no relative precision.
        if not math.isclose(golden, found, rel_tol=1e-9, abs_tol=1e-12):
            yield f"{place} is {found!r}, not {golden!r}"
    elif type(golden) is not type(found) or golden != found:
        yield f"{place} is {found!r}, not {golden!r}"


def table(text: str) -> list[dict[str, Any]]:
    """Read a table, its numbers as numbers."""
    rows = csv.DictReader(io.StringIO(text), strict=True)
    return [{name: cell(value) for name, value in row.items()} for row in rows]


def cell(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def read(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8")


def test_all_golden_files_are_compared() -> None:
    names = {case[0] for case in cases()}
    assert len(names) == 13
    assert {p.name.removesuffix(".summary.csv") for p in GOLDEN.glob("*.summary.csv")} == names
    assert {p.name.removesuffix(".verdict.json") for p in GOLDEN.glob("*.verdict.json")} == names


@pytest.mark.parametrize(("name", "records", "how"), CASES)
def test_records_give_the_same_table_and_verdict(
    name: str, records: str, how: str, tmp_path: Path
) -> None:
    summary, verdict = summary_and_verdict(unpack(records, tmp_path), how)
    assert not list(differences(table(read(f"{name}.summary.csv")), table(summary)))
    assert not list(differences(json.loads(read(f"{name}.verdict.json")), verdict))


@pytest.mark.parametrize(
    ("name", "options"), [("bace-scaffold", []), ("motifs-sensitivity.selected", ["--select"])]
)
def test_the_report_command_writes_the_same_table(
    name: str, options: list[str], tmp_path: Path
) -> None:
    unpack(name.partition(".")[0], tmp_path)
    assert main(["report", str(tmp_path), *options]) == 0
    written = (tmp_path / "summary.csv").read_text(encoding="utf-8")
    assert not list(differences(table(read(f"{name}.summary.csv")), table(written)))


def test_a_changed_number_is_a_difference_and_a_new_column_is_none() -> None:
    golden = {"methods": [{"method": "a", "difference": 0.1, "p_holm": None}]}
    new = {"methods": [{"method": "a", "difference": 0.1 + 1e-12, "p_holm": None, "new": 1}]}
    assert not list(differences(golden, new))
    new["methods"][0] |= {"difference": 0.1 + 1e-9, "p_holm": 0.5}
    assert len(list(differences(golden, new))) == 2
    del new["methods"][0]["p_holm"]
    assert "/methods/0/p_holm is missing" in list(differences(golden, new))
    assert list(differences(golden, {"methods": []})) == ["/methods has 0 entries, not 1"]
