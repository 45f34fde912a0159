"""Ranking tables for pages, terminals, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd

from graph_transplant.metrics import METRICS
from graph_transplant.report.typography import latex_text, markdown_text, slug
from graph_transplant.results.groups import Group, GroupResults
from graph_transplant.results.results import Results
from graph_transplant.results.verdict import Row
from graph_transplant.utils.text import duration, number, p_value, percent, ratio


@dataclass(frozen=True)
class Cell:
    """A table cell: text, sort value, spread, and a second line."""

    text: str
    value: float | None = None
    spread: str = ""
    below: str = ""


@dataclass(frozen=True)
class Column:
    """A table column; ``low``: lower is better, ``more``: shown only on request."""

    title: str
    definition: str
    cell: Callable[[Row], Cell]
    low: bool = False
    more: bool = False


@dataclass(frozen=True)
class Ranked:
    """A row of a ranking; ``direction`` is better, worse, equal, unclear or empty."""

    method: str
    chosen: str
    direction: str
    best: bool
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Ranking:
    """Methods of one group, best first."""

    group: Group
    word: str
    reference: str
    columns: tuple[Column, ...]
    rows: tuple[Ranked, ...]

    @property
    def few(self) -> list[int]:
        """Indices of the columns that are always shown."""
        return [place for place, column in enumerate(self.columns) if not column.more]

    @property
    def rest(self) -> list[int]:
        """Indices of the other columns."""
        return [place for place, column in enumerate(self.columns) if column.more]


def rankings(results: Results) -> list[Ranking]:
    """One table per group of results."""
    return [ranking(part) for part in results.groups.values()]


def ranking(part: GroupResults) -> Ranking:
    """Table of one group: score, difference, p, time, and further measurements."""
    columns = _columns(part)
    top = max(
        (row["score_mean"] for row in part.rows if row["score_mean"] is not None), default=None
    )
    ranked = (
        Ranked(
            row["method"],
            row["chosen"] or "",
            row["finding"],
            row["finding"] == "better" and row["score_mean"] == top,
            tuple(column.cell(row) for column in columns),
        )
        for row in part.rows
    )
    return Ranking(part.group, METRICS[part.metric].word, part.reference, columns, tuple(ranked))


def _columns(part: GroupResults) -> tuple[Column, ...]:
    main, rows = METRICS[part.metric], part.rows
    plain = next((row for row in rows if row["method"] == part.reference), None)

    def value(name: str, form: Callable[[float | None], str]) -> Callable[[Row], Cell]:
        return lambda row: Cell(form(row.get(name)), row.get(name))

    return (
        Column(
            f"{main.title}, %" if main.share else main.title,
            f"{main.definition} Mean over trials ± standard deviation; below it the 95 % "
            "confidence interval of the mean.",
            _score,
        ),
        Column(
            "Difference, points" if main.share else "Difference",
            f"Mean over folds of the score minus that of {part.reference} on the same fold"
            f"{', in percentage points' if main.share else ''}; below it the 95 % confidence "
            "interval. Methods are practically equal when it lies within "
            f"±{part.equal_within * (100 if main.share else 1):g}.",
            lambda row: Cell(main.gap(row["difference"]), row["difference"], below=_range(row)),
        ),
        Column(
            "p",
            "How likely a difference at least as large would be if the methods were equally good: "
            "a paired t-test corrected for overlapping training sets (Nadeau and Bengio), then "
            "Holm’s correction for several methods, separately for networks and for "
            "baselines. Below 0.05 a difference is called significant.",
            value("p_holm", p_value),
            low=True,
        ),
        Column(
            "Time",
            f"Median processor time of one training, and its ratio to {part.reference}; the "
            "duration of a trial where records have no processor time.",
            lambda row: Cell(
                duration(row["seconds_median"]), row["seconds_median"], below=_ratio(row, plain)
            ),
            low=True,
        ),
        *(
            [Column("Trials", "Finished trials of the method.", value("trials", str))]
            if len({row["trials"] for row in rows}) > 1
            else []
        ),
        Column(
            "Effect",
            "The difference divided by how much it varies from fold to fold (Cohen’s d with "
            "Hedges’ correction). 0.8 and more is called large.",
            value("effect", partial(number, digits=2, sign=True)),
            more=True,
        ),
        Column(
            "p (uncorrected)",
            "The p-value before Holm’s correction.",
            value("p_value", p_value),
            low=True,
            more=True,
        ),
        *(
            Column(
                f"{metric.title}{', %' if metric.form is percent else ''}",
                metric.definition,
                value(f"{name}_mean", metric.form),
                low=not metric.higher,
                more=True,
            )
            for name, metric in METRICS.items()
            if metric is not main and any(row.get(f"{name}_mean") is not None for row in rows)
        ),
    )


def _score(row: Row) -> Cell:
    form, below = METRICS[row["metric"]].score, ""
    if row["score_low"] is not None:
        below = f"{form(row['score_low'])} to {form(row['score_high'])}"
    spread = "" if row["score_std"] is None else f"± {form(row['score_std'])}"
    return Cell(form(row["score_mean"]), row["score_mean"], spread, below)


def _range(row: Row) -> str:
    if row["ci_low"] is None:
        return ""
    equal = ", practically equal" if row["finding"] == "equal" else ""
    gap = METRICS[row["metric"]].gap
    return f"{gap(row['ci_low'])} to {gap(row['ci_high'])}{equal}"


def _ratio(row: Row, plain: Row | None) -> str:
    if plain is None or row is plain or not plain["seconds_median"] or not row["seconds_median"]:
        return ""
    return f"× {ratio(row['seconds_median'] / plain['seconds_median'])}"


# -------------------------------------------------------------------- text formats


def markdown(results: Results) -> str:
    """Ranking tables in Markdown, with all columns."""
    texts = []
    for one in rankings(results):
        heads = [markdown_text(column.title) for column in one.columns]
        every = range(len(one.columns))
        rows = [_cells(row, every, markdown_text, "**{}**".format) for row in one.rows]
        title = markdown_text(f"{one.group.data}: {one.group.title}")
        reading = markdown_text(_reading(one))
        texts.append(f"### {title}\n\n{markdown_table(['Method', *heads], rows)}")
        texts += [f"{reading}\n"] if reading else []
    return "\n".join(texts)


def latex(results: Results) -> str:
    """Ranking tables in LaTeX, with the columns that are always shown; needs ``booktabs``."""
    texts = []
    for one in rankings(results):
        heads = ["Method", *(one.columns[place].title for place in one.few)]
        caption = f"{one.group.data}: mean test {one.word}, {one.group.title}. {_reading(one)}"
        label = slug(one.group.data, one.group.title, most=200)
        rows = [_cells(row, one.few, latex_text, r"\textbf{{{}}}".format) for row in one.rows]
        texts.append(latex_table(caption.strip(), label, heads, rows))
    return "\n".join(texts)


def _reading(one: Ranking) -> str:
    """Legend for bold and asterisks; empty if there are none."""
    texts = []
    if any(row.best for row in one.rows):
        texts.append(f"Bold: the best, and significantly better than {one.reference}.")
    if any(row.direction in ("better", "worse") for row in one.rows):
        texts.append(
            f"*: differs significantly from {one.reference} (p after Holm’s correction < 0.05)."
        )
    return " ".join(texts)


def _cells(
    row: Ranked, places: Iterable[int], escape: Callable[[str], str], bold: Callable[[str], str]
) -> list[str]:
    texts = [escape(row.method + (f" ({row.chosen})" if row.chosen else ""))]
    for place in places:
        cell = row.cells[place]
        text = f"{cell.text} {cell.spread}".strip()
        if place == 1:
            text += "*" if row.direction in ("better", "worse") else ""
            text += f" ({cell.below})" if cell.below else ""
        texts.append(bold(escape(text)) if place == 0 and row.best else escape(text))
    return texts


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Format escaped cells as Markdown; the first ``left`` columns are left-aligned."""
    rule = ["---" if place < left else "---:" for place in range(len(heads))]
    widths = [max(map(len, column)) for column in zip(heads, rule, *rows, strict=True)]
    lines = [
        " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        for cells in (heads, rule, *rows)
    ]
    return "".join(f"| {line} |\n" for line in lines)


def latex_table(
    caption: str, label: str, heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1
) -> str:
    """Format escaped cells as a LaTeX table, which needs ``booktabs``."""
    table = pd.DataFrame(rows, columns=[latex_text(head) for head in heads])
    text: str = table.style.hide(axis="index").to_latex(
        caption=latex_text(caption),
        label=f"tab:{label}",
        column_format="l" * left + "r" * (len(heads) - left),
        position="tb",
        position_float="centering",
        hrules=True,
    )
    return text
