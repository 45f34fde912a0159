"""The ranking of methods as a table: for the page, and as LaTeX, Markdown and CSV."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graph_transplant.errors import check_choice
from graph_transplant.experiments.progress import duration
from graph_transplant.experiments.protocol import BASELINE, METRICS, Condition
from graph_transplant.experiments.summary import (
    SIGNIFICANT,
    Group,
    SummaryRow,
    p_cell,
    summary_csv,
)
from graph_transplant.report.names import slug
from graph_transplant.report.svg import signed

FORMATS = ("markdown", "latex", "csv")
"""What the tables of a comparison can be written as, beside the page."""


@dataclass(frozen=True)
class Measure:
    """A column of the ranking table beside the score.

    Args:
        title: Its heading.
        word: What it is called in the glossary.
        field: The field of the summary.
        percent: Whether it is written in per cent.
        low: Whether the lower value is the better one.
    """

    title: str
    word: str
    field: str
    percent: bool = False
    low: bool = False

    def text(self, row: SummaryRow) -> str:
        """Write the value of a row; ``-`` where it is not defined."""
        return _text(self.value(row), hundredths if self.percent else three_digits)

    def value(self, row: SummaryRow) -> float | None:
        """Give the value of a row."""
        value: float | None = getattr(row, self.field)
        return value


MEASURES = (
    Measure("Accuracy, %", "Accuracy", "accuracy_mean", percent=True),
    Measure("AUROC", "AUROC", "auroc_mean"),
    Measure("Average precision", "Average precision", "average_precision_mean"),
    Measure("ECE", "ECE", "ece_mean", low=True),
    Measure("Loss", "Loss", "nll_mean", low=True),
    Measure("RMSE", "RMSE and MAE", "rmse_mean", low=True),
    Measure("MAE", "RMSE and MAE", "mae_mean", low=True),
)
"""What a table may show beside the score, in order; those stand there that a row has."""


@dataclass(frozen=True)
class Column:
    """A column of a ranking.

    Args:
        title: Its heading.
        word: What it is called in the glossary.
        low: Whether the lower value is the better one; the better ones come first when the column
            is sorted.
    """

    title: str
    word: str = ""
    low: bool = False


@dataclass(frozen=True)
class Entry:
    """A cell of a ranking.

    Args:
        text: The number as text; ``-`` where it is not defined.
        value: The number.
        spread: The standard deviation as text.
        below: A range or ratio that stands below it.
    """

    text: str
    value: float | None = None
    spread: str = ""
    below: str = ""

    @property
    def key(self) -> str:
        """What a browser sorts by: all digits, or nothing."""
        return "" if self.value is None else repr(self.value)


@dataclass(frozen=True)
class Ranked:
    """A row of a ranking.

    Args:
        method: Name of the method.
        chosen: What was selected, in words.
        direction: ``"better"`` or ``"worse"`` than the baseline where that is significant,
            ``"unclear"`` where it is not, or nothing.
        best: Whether its mean score is the best and significantly better than the baseline's.
        entries: One per column after the name.
    """

    method: str
    chosen: str
    direction: str
    best: bool
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Ranking:
    """The methods of one model under one condition, the best first.

    Args:
        group: What they are compared within.
        word: What the score is called, in a sentence.
        columns: The columns after the name.
        rows: The rows.
    """

    group: Group
    word: str
    columns: tuple[Column, ...]
    rows: tuple[Ranked, ...]

    @property
    def title(self) -> str:
        """The model and the condition in words."""
        return group_title(self.group)


def group_title(group: Group) -> str:
    """Name the model, its layers and the condition.

    Example:
        >>> group_title(Group("motifs", "gcs", 3)), group_title(Group("motifs", "gin", None))
        ('GCS, 3 layers', 'GIN, chosen by validation')
    """
    layers = (
        "chosen by validation"
        if group.layers is None
        else f"{group.layers} layer{'s' if group.layers != 1 else ''}"
    )
    words = Condition(group.label_noise, group.train_fraction).words
    return f"{group.model.upper()}, {layers}" + (f", {words}" if words else "")


def rankings(rows: Sequence[SummaryRow]) -> list[Ranking]:
    """Lay out the summary of a comparison as one table per model and condition.

    Args:
        rows: The rows of the summary, the best of each group first.

    Returns:
        The tables, in the order of the rows.
    """
    groups: dict[Group, list[SummaryRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return [ranking(own) for own in groups.values()]


def ranking(rows: Sequence[SummaryRow]) -> Ranking:
    """Lay out the rows of one group.

    Args:
        rows: The rows of one model under one condition, the best first, at least one.
    """
    metric = rows[0].metric
    name = METRICS[metric]
    title = f"{name[0].upper()}{name[1:]}"
    numbers = any(row.rmse_mean is not None for row in rows)
    measures = [
        measure
        for measure in MEASURES
        if measure.field != f"{metric}_mean"
        # Predicted classes have these two, whatever the records say; predicted numbers do not.
        and (
            any(measure.value(row) is not None for row in rows)
            or (measure.title in ("ECE", "Loss") and not numbers)
        )
    ]
    effect = any(row.effect is not None for row in rows)
    columns = [
        Column(f"{title}, %", title),
        Column("Difference, points", "Difference"),
        *([Column("Effect", "Effect")] if effect else []),
        Column("p", "p and p (Holm)", low=True),
        Column("p (Holm)", "p and p (Holm)", low=True),
        *(Column(measure.title, measure.word, measure.low) for measure in measures),
        Column("Time", "Time", low=True),
    ]
    plain = next((row for row in rows if row.method == BASELINE), None)
    top = max((row.score_mean for row in rows if row.score_mean is not None), default=None)
    ranked = []
    for row in rows:
        direction = direction_of(row.difference, row.p_holm)
        entries = [
            _score(row),
            Entry(
                _text(row.difference, points), row.difference, below=_interval(row, points, "to")
            ),
            *([Entry(_text(row.effect, two_digits), row.effect)] if effect else []),
            Entry(p_cell(row.p_value), row.p_value),
            Entry(p_cell(row.p_holm), row.p_holm),
            *(Entry(measure.text(row), measure.value(row)) for measure in measures),
            Entry(_text(row.seconds_mean, duration), row.seconds_mean, below=_ratio(row, plain)),
        ]
        best = direction == "better" and row.score_mean == top
        ranked.append(Ranked(row.method, row.chosen, direction, best, tuple(entries)))
    return Ranking(rows[0].group, name, tuple(columns), tuple(ranked))


def _score(row: SummaryRow) -> Entry:
    below = ""
    if row.score_low is not None and row.score_high is not None:
        # The interval is symmetric; a share is not beyond 0 or 100 %. R² may well be below 0.
        low, high = row.score_low, min(1.0, row.score_high)
        low = low if row.metric == "r2" else max(0.0, low)
        below = f"{hundredths(low)} to {hundredths(high)}"
    spread = "" if row.score_std is None else f"± {100 * row.score_std:.1f}"
    return Entry(_text(row.score_mean, hundredths), row.score_mean, spread or "-", below)


def _interval(row: SummaryRow, form: Callable[[float], str], word: str) -> str:
    if row.ci_low is None or row.ci_high is None:
        return ""
    return f"{form(row.ci_low)} {word} {form(row.ci_high)}"


def _ratio(row: SummaryRow, plain: SummaryRow | None) -> str:
    if plain is None or row is plain or not plain.seconds_mean or not row.seconds_mean:
        return ""
    return f"× {row.seconds_mean / plain.seconds_mean:.1f}"


def direction_of(difference: float | None, p_holm: float | None) -> str:
    """Say which way a difference goes, if any.

    Example:
        >>> direction_of(0.02, 0.01), direction_of(-0.02, 0.01), direction_of(0.02, 0.3)
        ('better', 'worse', 'unclear')
    """
    if p_holm is None or difference is None:
        return ""
    if p_holm < SIGNIFICANT:
        return "better" if difference > 0 else "worse"
    return "unclear"


def _text(value: float | None, form: Callable[[float], str]) -> str:
    return "-" if value is None else form(value)


def hundredths(value: float) -> str:
    """Write a share in per cent, with one digit and a true minus sign.

    Example:
        >>> hundredths(0.6841), hundredths(-0.2), hundredths(-0.0001)
        ('68.4', '−20.0', '0.0')
    """
    # Adding zero takes the sign off a zero.
    return f"{round(100 * value, 1) + 0.0:.1f}".replace("-", "−")


def points(value: float) -> str:
    """Write a difference in points, with its sign.

    Example:
        >>> points(0.104), points(-0.02)
        ('+10.4', '−2.0')
    """
    return signed(100 * value, 1)


def two_digits(value: float) -> str:
    """Write a number with its sign and two digits after the point."""
    return signed(value, 2)


def three_digits(value: float) -> str:
    """Write a number with three digits after the point."""
    return f"{value:.3f}"


# -------------------------------------------------------------------- text formats


def ranking_table(rows: Sequence[SummaryRow], form: str) -> str:
    """Write the ranking tables of a comparison as text.

    Args:
        rows: The rows of the summary.
        form: ``"markdown"``, ``"latex"`` (needs the package ``booktabs``) or ``"csv"``.

    Returns:
        One table per model and condition; of CSV one sheet for all, with six digits.

    Example:
        >>> row = SummaryRow("my_data", "gcs", 3, "vanilla", "accuracy", 2, .5, .1, .3, .7, .5, .1,
        ...                  .7, None, None, None, None, None, None, None, 2.0, 0, 2, 1, "")
        >>> print(ranking_table([row], "markdown").splitlines()[4])
        | vanilla | 50.0 ± 10.0 | - | - | - | 0.100 | 0.700 | 2.0 s |
    """
    check_choice("format", form, FORMATS)
    if form == "csv":
        return summary_csv(rows)
    write = _markdown if form == "markdown" else _latex
    return "\n".join(write(one) for one in rankings(rows))


def _reading(one: Ranking) -> str:
    """Say how to read the signs of a table; nothing where there are none."""
    texts = []
    if any(row.best for row in one.rows):
        texts.append(f"Bold: the best, and significantly better than {BASELINE}.")
    if any(row.direction in ("better", "worse") for row in one.rows):
        texts.append(
            f"*: differs significantly from {BASELINE} (p after Holm’s correction < 0.05)."
        )
    return " ".join(texts)


def _cells(row: Ranked, escape: Callable[[str], str], bold: Callable[[str], str]) -> list[str]:
    score, difference, *others = row.entries
    text = escape(score.text if score.spread == "-" else f"{score.text} {score.spread}")
    change = difference.text + ("*" if row.direction in ("better", "worse") else "")
    if difference.below:
        change += f" ({difference.below})"
    name = row.method + (f" ({row.chosen})" if row.chosen else "")
    return [
        escape(name),
        bold(text) if row.best else text,
        escape(change),
        *(escape(entry.text) for entry in others),
    ]


def _markdown(one: Ranking) -> str:
    heads = ["Method", *(column.title for column in one.columns)]
    lines = [
        f"### {markdown_text(one.group.data)}: {markdown_text(one.title)}",
        "",
        markdown_row([markdown_text(head) for head in heads]),
        markdown_row(["---", *["---:"] * len(one.columns)]),
        *(markdown_row(_cells(row, markdown_text, "**{}**".format)) for row in one.rows),
    ]
    reading = _reading(one)
    return "\n".join([*lines, "", *([markdown_text(reading), ""] if reading else [])])


def _latex(one: Ranking) -> str:
    heads = ["Method", *(column.title for column in one.columns)]
    caption = f"{one.group.data}: mean test {one.word}, {one.title}. {_reading(one)}".strip()
    return latex_frame(
        caption,
        slug(one.group.data, one.title, most=120),
        "l" + "r" * len(one.columns),
        heads,
        [
            r"\midrule",
            *(latex_row(_cells(row, latex_text, r"\textbf{{{}}}".format)) for row in one.rows),
        ],
    )


def latex_frame(
    caption: str, label: str, columns: str, heads: Sequence[str], body: Sequence[str]
) -> str:
    r"""Give a whole table in LaTeX; it asks for the package ``booktabs``.

    Args:
        caption: What it shows; it is escaped.
        label: What it is called, after ``tab:``.
        columns: How the columns are set, such as ``"lr"``.
        heads: Their headings; they are escaped.
        body: The lines below, as they are written: rules and rows (:func:`latex_row`).

    Example:
        >>> lines = latex_frame("A & b", "a-b", "l", ["Method"], [latex_row(["x"])]).splitlines()
        >>> lines[3], lines[8]
        ('\\caption{A \\& b}', 'x \\\\')
    """
    lines = [
        r"\begin{table}[tb]",
        r"\centering",
        r"\small",
        rf"\caption{{{latex_text(caption)}}}",
        rf"\label{{tab:{label}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        latex_row([latex_text(head) for head in heads]),
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def latex_row(cells: Sequence[str]) -> str:
    r"""Give a row of a table in LaTeX, of cells that are escaped.

    Example:
        >>> print(latex_row(["a", "b"]))
        a & b \\
    """
    return " & ".join(cells) + r" \\"


def markdown_row(cells: Sequence[str]) -> str:
    """Give a row of a table in Markdown, of cells that are escaped.

    Example:
        >>> markdown_row(["a", "b"])
        '| a | b |'
    """
    return f"| {' | '.join(cells)} |"


def markdown_text(text: str) -> str:
    r"""Escape a text for a cell of a table in Markdown.

    Example:
        >>> markdown_text("a|b <b>_c_</b>")
        'a\\|b \\<b\\>\\_c\\_\\</b\\>'
    """
    return re.sub(r"([\\|*_`<>\[\]#&~])", r"\\\1", _one_line(text))


_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    # After the end of a row these two would be read as its options.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    # Most signs beyond ASCII are unknown to pdfTeX; those of our own tables are not.
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "²": "$^2$",
    "ψ": r"$\psi$",
    "’": "'",
    "…": r"\ldots{}",
    "\N{NO-BREAK SPACE}": "~",
}


def latex_text(text: str) -> str:
    r"""Escape a text for LaTeX.

    Example:
        >>> print(latex_text("50 % of {a_b} & <c> # $"))
        50 \% of \{a\_b\} \& \textless{}c\textgreater{} \# \$
    """
    escaped = "".join(_LATEX.get(sign, sign) for sign in _one_line(text))
    # Two hyphens would become a dash.
    return re.sub(r"-(?=-)", "-{}", escaped)


def _one_line(text: str) -> str:
    """Put a text on one line, without control characters and halves of surrogate pairs."""
    space = "\N{NO-BREAK SPACE}"
    signs = (sign if sign.isprintable() or sign == space else " " for sign in text)
    return " ".join(part for part in "".join(signs).split(" ") if part)
