"""JSON values become dataclasses, and back; what does not fit is named."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import pytest

from graph_transplant.errors import DataError, check_at_least
from graph_transplant.utils.schema import Count, Finite, plain, read, refuse_unknown


@dataclass(frozen=True)
class Point:
    x: Finite
    y: Finite | None = None


@dataclass(frozen=True, kw_only=True)
class Shape:
    name: str
    sides: Count
    area: dict[str, Finite] = field(default_factory=dict)
    points: tuple[Point, ...] = ()
    frame: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_at_least(3, sides=self.sides)


TRIANGLE = {"name": "triangle", "sides": 3, "points": [{"x": 0.0}, {"x": 1.0, "y": 2.0}]}


def test_json_becomes_a_dataclass_and_the_same_json_again() -> None:
    shape = read(Shape, TRIANGLE | {"of a later version": 1})
    assert shape == Shape(name="triangle", sides=3, points=(Point(0.0), Point(1.0, 2.0)))
    assert json.dumps(plain(shape)) == json.dumps(TRIANGLE)
    assert plain({"a": (math.nan, math.inf, 1)}) == {"a": [None, None, 1]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 7}, "`name` must be a string; got 7"),
        ({"name": ...}, "`name` is missing"),
        ({"sides": True}, "`sides` must be an integer; got True"),
        ({"sides": -1}, "`sides` must be an integer >= 0; got -1"),
        ({"sides": 2}, "`sides` must be at least 3, got 2"),
        # msgspec names neither the key nor the value.
        ({"area": {"inner": 1.0, "outer": "large"}}, "`area.outer` must be a finite number; got"),
        ({"area": {"inner": 1.0, "outer": math.inf}}, "`area.outer` must be a finite number; got"),
        ({"points": [{"x": 1}, {"y": 2}]}, "`points[1].x` is missing"),
        ({"points": [{"x": 1, "y": {}}]}, "`points[0].y` must be a finite number; got an object"),
        ({"points": {"x": 1}}, "`points` must be a list; got an object"),
        ({"frame": [1.0]}, "`frame` must be a list of length 2; got 1"),
    ],
)
def test_the_first_field_that_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    content = {key: value for key, value in (TRIANGLE | change).items() if value is not ...}
    with pytest.raises(DataError) as caught:
        read(Shape, content, "file")
    assert str(caught.value).startswith(f"file: {message}")


def test_what_is_no_object_and_what_is_not_known_is_named() -> None:
    with pytest.raises(DataError, match="it must be an object; got a list"):
        read(Shape, [])
    with pytest.raises(DataError, match="file: 'colour' is not known"):
        refuse_unknown(Shape, TRIANGLE | {"colour": "red"}, "file")
