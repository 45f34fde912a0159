"""Two methods on three folds: what a page and a table need is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from graph_transplant.report import render_report
from graph_transplant.results import groups, results
from graph_transplant.results.results import Results
from helpers.made_up_records import made_up, on


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[Any]:
    """Wrap a function; return the list of its calls to come."""
    function: Callable[..., Any] = getattr(module, name)
    calls: list[Any] = []

    def wrapped(*args: Any, **given: Any) -> Any:
        calls.append(repr((args, given)))
        return function(*args, **given)

    monkeypatch.setattr(module, name, wrapped)
    return calls


def test_a_page_and_its_table_compute_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = counted(monkeypatch, groups, "paired_test")
    rows = counted(monkeypatch, results, "trial_row")
    selections = counted(monkeypatch, results, "select")
    verdicts = counted(monkeypatch, groups, "judge")
    found = Results([*made_up("vanilla", [0.5, 0.6, 0.55]), *made_up("drop", [0.6, 0.62, 0.6])])
    render_report(found)
    found.to_csv()
    # The mean of each method, and their differences of accuracy and of ECE.
    assert len(tests) == len(set(tests)) == 4
    assert len(rows) == len(set(rows)) == 6
    assert (len(selections), len(verdicts)) == (1, 1)


def test_results_are_those_of_their_groups_one_after_the_other() -> None:
    trials = [*made_up("vanilla", [0.5, 0.6, 0.55]), *made_up("drop", [0.6, 0.62, 0.6])]
    found = Results([*on("b", trials), *on("a", trials)])
    first, second = found.groups.values()
    assert (first.group.data, second.group.data) == ("a", "b")
    assert found.rows == [*first.rows, *second.rows]
    assert found.summary()["data"].tolist() == ["a", "a", "b", "b"]
    assert found.pairs["data"].tolist() == ["a", "b"]
    assert len(found.frame) == len(first.frame) + len(second.frame) == 12
    part = found.part([second.group])
    assert part.groups == {second.group: second}
    assert part.frame.equals(second.frame)
