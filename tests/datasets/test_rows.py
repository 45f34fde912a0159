"""Chunks, options of tables, and the rules by which targets set a task."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_transplant.datasets import load
from graph_transplant.datasets.rows import (
    TableOptions,
    TargetCodec,
    check_readable,
    class_name,
    find_codec,
    is_missing,
    number_of,
)
from graph_transplant.errors import DataError, GraphTransplantError, Skipped


def scan(
    rows: list[tuple[str, ...]], task: str | None = None, names: str = "abcdef"
) -> TargetCodec:
    """Find the task of rows of targets."""
    return find_codec("mine.csv", list(names[: len(rows[0])]), enumerate(rows, 1), task)[0]


def column(*cells: str) -> list[tuple[str, ...]]:
    return [(cell,) for cell in cells]


def test_targets_are_given_as_text_or_as_a_list() -> None:
    assert TableOptions.of(target=" a , b ").targets == ("a", "b")
    assert TableOptions.of(target=["a,b", "c"]).targets == ("a,b", "c")
    assert TableOptions.of().targets == ()
    for target, message in (
        ("a,,b", r"`target` must be a column, or several .* got 'a,,b'"),
        ("a,a", "`target` names a column twice; got a, a"),
    ):
        with pytest.raises(GraphTransplantError, match=message):
            TableOptions.of(target=target)
    with pytest.raises(GraphTransplantError, match="did you mean 'regression'"):
        TableOptions.of(task="regresion")


# ------------------------------------------------------------------ the task


@pytest.mark.parametrize(
    ("rows", "task", "classes"),
    [
        (column("1", "0", "1.0", ""), "multiclass", ("0", "1")),
        (column("10", "9", "-1"), "multiclass", ("-1", "9", "10")),
        # Of two classes that are not numbers the rarer comes second; where it is even, as sorted.
        (column("toxic", "safe", "toxic"), "multiclass", ("toxic", "safe")),
        (column("toxic", "safe"), "multiclass", ("safe", "toxic")),
        (column("c", "b", "a", "a"), "multiclass", ("a", "b", "c")),
        # Unless everybody knows which is the positive one.
        (column("yes", "Yes", "no"), "multiclass", ("no", "yes")),
        (column("Active", "Active", "Inactive"), "multiclass", ("Inactive", "Active")),
        # The most frequent spelling is the name of a class.
        (column("YES", "Yes", "No", "no", "Yes"), "multiclass", ("No", "Yes")),
        (column("A", "b", "a", "B", "c", "b"), "multiclass", ("A", "b", "c")),
        # As pandas writes columns with gaps.
        (column("1,0", "0,0", "", "1"), "multiclass", ("0", "1")),
        ([("1,0", ""), ("0,0", "1,0")], "multilabel", ()),
        (column("1,0", "0,000", "1,000"), "regression", ()),
        (column("0.5", "1", "2"), "regression", ()),
        (column(*map(str, range(51))), "regression", ()),
        (column(*map(str, range(50))), "multiclass", tuple(map(str, range(50)))),
        ([("0", ""), ("1.0", "1"), ("NA", "0")], "multilabel", ()),
        ([("yes", "0"), ("No", "1")], "multilabel", ()),
        ([("0", "2"), ("1", "")], "regression", ()),
        ([("0.1", "7"), ("1", "")], "regression", ()),
    ],
)
def test_the_task_is_found_from_the_values(
    rows: list[tuple[str, ...]], task: str, classes: tuple[str, ...]
) -> None:
    codec = scan(rows)
    assert (codec.task, codec.classes) == (task, classes)
    assert codec.num_outputs == (len(classes) if task == "multiclass" else len(rows[0]))


@pytest.mark.parametrize(
    ("classes", "task", "told"), [(10, None, 0), (11, None, 1), (11, "multiclass", 0)]
)
def test_many_numbers_read_as_classes_are_told(classes: int, task: str | None, told: int) -> None:
    rows = enumerate(column(*map(str, range(classes))), 1)
    _, notes = find_codec("mine.csv", ["score"], rows, task)
    assert len(notes) == told
    assert all(note.startswith("The 11 whole numbers of 'score' are read") for note in notes)


@pytest.mark.parametrize(
    ("rows", "task", "message"),
    [
        (column("", "NA"), None, "mine.csv: the target 'a' has no values that could be read"),
        (column("1", "1.0", ""), None, "the target 'a' has only one class, '1'; at least two are"),
        ([("0", "x")], None, "several targets must all be 0, 1 or .* 'b' has 'x' in row 1"),
        (
            column(*(f"name {n}" for n in range(51))),
            None,
            "the target 'a' holds more than 50 different texts, such as 'name 0' in row 1; give",
        ),
        (
            column(*map(str, range(60)), ">60"),
            None,
            (
                "the target 'a' holds values with signs such as <, > or %: '>60' in row 61; "
                "write plain"
            ),
        ),
        # A slip among classes that are numbers is no class of its own.
        (
            column(*["0", "1"] * 5, "?", *["0", "1"] * 5),
            None,
            r"such as '\?' in row 11; correct or .* `task` as multiclass if they are classes$",
        ),
        # Percentages and censored measurements are not classes.
        (
            column("14.3%", "15%", "20 %"),
            None,
            "with signs such as <, > or %: '14.3%' in row 1; write",
        ),
        (
            column("100", "200", ">10000"),
            None,
            "values with signs such as <, > or %: '>10000' in row 3",
        ),
        # A comma may separate thousands: one with three digits behind it, or beside a point.
        (column("1,500", "2,000"), None, "such as '1,500', which may be decimal or separate"),
        (column("1,5", "2.5"), None, "holds numbers with a comma, such as '1,5'"),
        (
            column("x", "none", "-", "None"),
            None,
            r"only one class, 'x'; .* needed \('-' and 'none' count as missing\)$",
        ),
        ([("0", "1")], "multiclass", "`task` is multiclass, which takes one target; got a, b"),
    ],
)
def test_targets_that_set_no_task_are_errors(
    rows: list[tuple[str, ...]], task: str | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        scan(rows, task)


def test_a_given_task_settles_what_is_mixed() -> None:
    cells = column("0.5", "1", "high", "1,5")
    assert scan(cells, "regression").task == "regression"
    assert scan(cells, "multiclass").classes == ("0.5", "1", "1,5", "high")
    slip = column(*["0", "1"] * 9, "mixed")
    assert scan(slip, "multiclass").classes == ("0", "1", "mixed")
    assert scan(slip[-10:] + column("mixed")).classes == ("0", "1", "mixed")  # too many for slips
    # Texts that merely contain commas, and infinite numbers, are classes like others.
    assert scan(column("1,2-diol", "other")).task == "multiclass"
    assert scan(column("inf", "non")).classes == ("inf", "non")
    assert scan(column("<5", "5-10", ">10")).classes == ("5-10", "<5", ">10")
    assert scan(column("<5", ">=5")).classes == ("<5", ">=5")


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (("1,5", "-,25", "2,5e-3"), (1.5, -0.25, 0.0025)),
        (("1,500", " 0,5 ", "7"), (1.5, 0.5, 7)),
    ],
)
def test_decimal_commas_are_read(cells: tuple[str, ...], values: tuple[float, ...]) -> None:
    codec = scan(column(*cells))
    assert codec.task == "regression"
    assert [codec.encode([cell]) for cell in cells] == [(value,) for value in values]
    # A model reads them where they can be nothing else.
    codec = TargetCodec("regression", ("a",))
    assert codec.encode(["1,5"]) == (1.5,)
    assert codec.encode(["1,500"]) == "`a` must be a number; got '1,500'"


def test_classes_are_found_whatever_their_case() -> None:
    codec = scan(column("Yes", "no", "Yes", "YES"))
    assert [codec.encode([cell]) for cell in ("yes", "YES", " No")] == [(1.0,), (1.0,), (0.0,)]
    numbers = TargetCodec("multiclass", ("a",), ("0", "1"))
    assert [numbers.encode([cell]) for cell in ("1", "1.0", "1,0")] == [(1.0,)] * 3
    # Classes of a model that differ in case alone are told apart where they are spelt alike.
    old = TargetCodec("multiclass", ("a",), ("CO", "Co"))
    assert [old.encode([cell]) for cell in ("CO", "Co", "co")] == [(0.0,), (1.0,), (0.0,)]


# ------------------------------------------------------------------ numbers


def test_labels_and_values_keep_what_is_missing() -> None:
    labels = TargetCodec("multilabel", ("a", "b"))
    assert labels.encode(["Yes", "no"]) == (1, 0)
    assert labels.encode(["1.0", "NA"]) == pytest.approx((1, math.nan), nan_ok=True)
    codec = TargetCodec("regression", ("a", "b"))
    y = codec.tensor([(0.1, 2.0), (math.nan, 1e-50)])
    np.testing.assert_array_equal(y.numpy(), [[np.float32(0.1), 2], [np.nan, 0]])
    for cell in ("-1e39", "inf", "1e400"):
        reason = f"`a` must be a number between -3.4e+38 and 3.4e+38; got {cell!r}"
        assert codec.encode([cell, "1"]) == reason


def test_targets_of_a_store_are_found_by_their_names() -> None:
    frame = pd.DataFrame({"smiles": ["CCO", "CC"], "a": [0.5, 1.5], "b": [None, 20]})
    store = load(frame, target=["b", "a"])
    first, second = TargetCodec("regression", ("a", "b")).of_store(store)
    assert first == pytest.approx((0.5, math.nan), nan_ok=True)
    assert second == (1.5, 20)
    # Other names are those of the same outputs in the same order.
    assert TargetCodec("regression", ("c", "d")).of_store(store)[1] == (20, 1.5)


@given(
    st.lists(st.text(max_size=6), min_size=1, max_size=30), st.sampled_from([None, "regression"])
)
def test_any_text_is_a_target_a_reason_or_a_clear_error(cells: list[str], task: str | None) -> None:
    try:
        codec = scan(column(*cells), task)
    except DataError:
        # Nothing but missing values, one class, or numbers among texts.
        names = {class_name(cell).casefold() for cell in cells if not is_missing(cell)}
        numbers = [number_of(cell) for cell in cells if not is_missing(cell)]
        broken = any(n is not None and math.isfinite(n) and not n.is_integer() for n in numbers)
        comma = any("," in cell for cell in cells)
        few = None in numbers and 10 * numbers.count(None) <= len(numbers)
        assert len(names) < 2 or comma or few or (broken and None in numbers)
        return
    for cell in cells:
        value = codec.encode([cell])
        if isinstance(value, str):
            assert value.startswith(("no target", "`a` must be"))
        elif codec.task == "multiclass":
            assert codec.classes[int(value[0])].casefold() == class_name(cell).casefold()
        else:
            assert value[0] == float(cell.replace(",", "."))


def skips(count: int, reason: str) -> list[Skipped]:
    return [Skipped(row, str(row), reason) for row in range(1, count + 1)]


def test_half_of_the_rows_may_be_broken_and_any_lack_a_target() -> None:
    check_readable("f", 10, skips(5, "broken"))
    with pytest.raises(DataError, match=r"f: 6 of 10 rows cannot be read; row 1: broken; row 2"):
        check_readable("f", 10, skips(6, "broken"))
    check_readable("f", 10, skips(9, "no target ('-' counts as missing)"))
    with pytest.raises(DataError, match="f: no row has both a graph that can be read and a target"):
        check_readable("f", 10, skips(10, "no target"))


# ------------------------------------------------------------------ one class, several spellings


def test_true_and_1_are_one_class_where_all_are_such() -> None:
    rows = [(n, [cell]) for n, cell in enumerate(["True", "1", "0", "False", "True", "no"], 1)]
    codec, _ = find_codec("mine", ["y"], rows)
    assert codec.classes == ("0", "True")
    assert [codec.encode(cells) for _, cells in rows] == [(1,), (1,), (0,), (0,), (1,), (0,)]
    # A class beside them has no such meaning.
    rows.append((7, ["2"]))
    assert len(find_codec("mine", ["y"], rows, "multiclass")[0].classes) == 6


def test_labels_of_new_data_may_be_other_words_for_yes_and_no() -> None:
    codec = TargetCodec("multiclass", ("y",), ("0", "1"))
    assert codec.encode(["True"]) == codec.encode(["yes"]) == (1.0,)
    assert isinstance(TargetCodec("multiclass", ("y",), ("0", "1", "2")).encode(["True"]), str)


def test_composed_and_decomposed_spellings_are_one_class() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    rows = [(1, [composed]), (2, [decomposed]), (3, ["bar"])]
    codec, _ = find_codec("mine", ["y"], rows)
    assert codec.encode([decomposed]) == codec.encode([composed])
    assert codec.num_outputs == 2


@pytest.mark.timeout(60)
def test_many_different_targets_take_linear_time() -> None:
    cells = [cell for n in range(30_000) for cell in (f"1,{n}5", f"a{n}")]
    with pytest.raises(DataError, match=r"holds numbers with a comma|both numbers and text"):
        find_codec("mine", ["y"], [(n, [cell]) for n, cell in enumerate(cells, 1)])
