"""The figures of the paper, read from ``published.json`` beside this file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from graph_transplant.errors import check_choice


@dataclass(frozen=True)
class Source:
    """Where in the paper a figure stands.

    Args:
        label: Its label in the TeX source.
        where: Table or section, in words.
        citation: The paper, in short.
        folds: Folds it is a mean over, or ``None`` if the paper does not say.
        repeats: Repeats it is a mean over, or ``None`` if the paper does not say.
        note: What one should know of the whole table, or nothing.

    Example:
        >>> published("table2", "ogbg-ppa", "gcs", "vanilla").source.where
        'Table 2'
    """

    label: str
    where: str
    citation: str
    folds: int | None
    repeats: int | None
    note: str


@dataclass(frozen=True)
class Published:
    """One figure of the paper.

    Args:
        experiment: Name of the experiment here.
        data: Name of the data set, or ``None`` for any of the paper's: a chart whose data the text
            does not name.
        model: Name of the convolution, or ``None`` for any.
        method: Name of the method here.
        metric: What was measured.
        mean: The published mean, or ``None`` where there is no number.
        std: The published standard deviation, or ``None`` where it is not given.
        bold: Whether the paper sets it in bold.
        status: ``"number"``; ``"empty"`` for a cell with a dash; ``"chart"`` for a figure that was
            published without numbers.
        source: Where it stands.

    Example:
        >>> figure = published("table1", "ENZYMES", "gcs", "transplant-ep")
        >>> figure.mean, figure.std, figure.source.repeats
        (0.707, 0.053, 3)
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
    """Look up what the paper reports.

    Args:
        experiment: Name of an experiment, such as ``"table1"``.
        data: Name of a data set.
        model: Name of a convolution.
        method: Name of a method, without parameters.

    Returns:
        The figure, or ``None`` if the paper has nothing to compare with.

    Example:
        >>> published("table1", "COLLAB", "gin", "mask-nodes").status
        'empty'
        >>> published("ablation", "NCI1", "gcn", "transplant-random").status
        'chart'
        >>> published("table1", "motifs", "gcs", "vanilla") is None
        True
    """
    check_choice("experiment", experiment, sorted({row.experiment for row in all_published()}))
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
    """Give every figure of the paper, table by table.

    Example:
        >>> sum(row.status == "number" for row in all_published())
        330
    """
    content = _content()
    sources = {name: Source(**fields) for name, fields in content["sources"].items()}
    return tuple(
        Published(**(row | {"source": sources[row["source"]]})) for row in content["figures"]
    )


@cache
def data_sizes() -> dict[str, int]:
    """Give the number of graphs of each data set of the paper (appendix, "Datasets").

    Example:
        >>> data_sizes()["ENZYMES"]
        600
    """
    return {name: facts["graphs"] for name, facts in _content()["data"].items()}


@cache
def _content() -> dict[str, Any]:
    file = files("graph_transplant.experiments").joinpath("published.json")
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content
