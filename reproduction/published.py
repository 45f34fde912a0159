"""The paper's published numbers, read from ``published.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal


@dataclass(frozen=True)
class Source:
    """Source of a number in the paper; ``folds`` and ``repeats`` are ``None`` if not stated."""

    label: str
    where: str
    citation: str
    folds: int | None
    repeats: int | None
    note: str

    def __str__(self) -> str:
        return f"{self.where}, {self.citation}" + (f": {self.note}" if self.note else "")


@dataclass(frozen=True)
class Published:
    """One result of the paper; fields that it does not state are ``None``.

    ``status`` is ``"empty"`` for a dash and ``"chart"`` for a chart without numbers.
    """

    experiment: str
    data: str | None
    model: str | None
    method: str
    metric: str
    mean: float | None
    std: float | None
    bold: bool
    status: Literal["number", "empty", "chart"]
    source: Source


def published(experiment: str, data: str, model: str, method: str) -> Published | None:
    """Look up a published result; return ``None`` if there is none."""
    for row in all_published():
        if (
            row.experiment == experiment
            and row.method == method
            and row.model in (None, model)
            and (row.data == data or (row.data is None and data in data_sizes()))
        ):
            return row
    return None


@cache
def all_published() -> tuple[Published, ...]:
    """Every result of the paper, table by table."""
    sources = {name: Source(**fields) for name, fields in _content()["sources"].items()}
    return tuple(
        Published(**(row | {"source": sources[row["source"]]})) for row in _content()["figures"]
    )


@cache
def data_sizes() -> dict[str, int]:
    """Number of graphs of each data set of the paper (appendix, "Datasets")."""
    return {name: facts["graphs"] for name, facts in _content()["data"].items()}


@cache
def _content() -> dict[str, Any]:
    file = files("reproduction").joinpath("published.json")
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content
