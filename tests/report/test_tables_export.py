"""The ranking as LaTeX, Markdown and CSV, and the command that writes it."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from graph_transplant.cli.comparisons import report
from graph_transplant.errors import GraphTransplantError
from graph_transplant.report.typography import latex_text, markdown_text
from graph_transplant.results.record import Record
from graph_transplant.results.record_file import record_line
from graph_transplant.results.results import Results, read_results
from helpers.made_up_records import BETTER, PLAIN, UNSURE, made_up, on
from helpers.page_samples import NASTY, rich

METHODS = {"vanilla": PLAIN, "mixup": UNSURE, "transplant-ep": BETTER}


def trials(*methods: str, folds: int = 5, **changes: object) -> list[Record]:
    """Made-up trials on ENZYMES; transplant-ep is significantly better."""
    parts = [made_up(name, METHODS[name][:folds], **changes) for name in methods or METHODS]
    return on("ENZYMES", *parts)


HOSTILE = r"a&b%c_d#e$f{g}h~i^j\k<l>m[n]*o|p"


IN_LATEX = (
    r"a\&b\%c\_d\#e\$f\{g\}h\textasciitilde{}i\textasciicircum{}j\textbackslash{}k\textless{}l"
    r"\textgreater{}m{[}n{]}{*}o\textbar{}p"
)


def test_latex_text_is_one_line_of_what_tex_knows() -> None:
    assert latex_text(HOSTILE) == IN_LATEX
    assert latex_text("a\nb\x00c\t d") == "a b c d"
    assert latex_text("−1 ± 2 × 3² ψ") == r"$-$1 $\pm$ 2 $\times$ 3$^2$ $\psi$"
    assert latex_text("a--b") == "a-{}-b"
    for text in NASTY.values():
        assert "\n" not in latex_text(text)
        assert not set(latex_text(text)) & {"\x00", "\x1b", "\ud83d"}


def test_markdown_text_cannot_end_a_cell_or_become_markup() -> None:
    for text in (*NASTY.values(), HOSTILE, "a\nb"):
        escaped = markdown_text(text)
        assert "\n" not in escaped
        assert not re.search(r"(?<!\\)(\\\\)*[|<>*_`\[\]]", escaped)


def rows_of_latex(text: str) -> list[list[str]]:
    body = text.partition("\\midrule\n")[2].partition("\\bottomrule")[0]
    lines = body.strip().split("\n")
    assert all(line.endswith(r" \\") for line in lines)
    return [re.split(r"(?<!\\) & ", line.removesuffix(r" \\")) for line in lines]


def test_latex_is_one_table_per_model_with_the_numbers_of_the_summary() -> None:
    results = Results(trials() + trials(model="gin"))
    rows = results.rows
    text = results.to_latex()
    tables = text.split(r"\begin{table}")[1:]
    assert len(tables) == 2
    for word in ("table", "tabular"):
        assert text.count(rf"\begin{{{word}}}") == text.count(rf"\end{{{word}}}") == 2
    labels = re.findall(r"\\label\{([^}]*)\}", text)
    assert labels == ["tab:enzymes-gcs-3-layers", "tab:enzymes-gin-3-layers"]
    for model, table in zip(("gcs", "gin"), tables, strict=True):
        own = [row for row in rows if row["model"] == model]
        columns = re.search(r"\\begin\{tabular\}\{(l(r+))\}", table)
        assert columns is not None
        heads = table.partition("\\toprule\n")[2].partition("\n")[0]
        assert heads.count(" & ") == len(columns[2])
        cells = rows_of_latex(table)
        assert [line[0] for line in cells] == [row["method"] for row in own]
        for line, row in zip(cells, own, strict=True):
            assert len(line) == len(columns[1])
            number = f"{100 * row['score_mean']:.1f} $\\pm$ {100 * row['score_std']:.1f}"
            significant = row["p_holm"] is not None and row["p_holm"] < 0.05
            best = row is own[0] and significant
            assert line[1] == (rf"\textbf{{{number}}}" if best else number)
            assert ("{*}" in line[2]) == significant
    assert any(r"\textbf" in table for table in tables)
    assert "significantly better than vanilla" in text


def test_nothing_is_bold_that_is_not_significant() -> None:
    few = Results(trials("vanilla", "mixup", folds=2))
    assert not (few.summary()["p_holm"] < 0.05).any()
    for text in (few.to_latex(), few.to_markdown()):
        assert "**" not in text
        assert "textbf" not in text
        assert "significantly" not in text


def cells_of_markdown(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    found = [re.split(r"(?<!\\) *\| *", line)[1:-1] for line in lines]
    assert len({len(cells) for cells in found}) == 1
    return found


def test_markdown_has_all_columns_and_as_many_cells_in_every_line() -> None:
    results = Results(trials())
    text = results.to_markdown()
    heads, _, *lines = cells_of_markdown(text)
    best, *others = results.rows
    assert len(lines) == 1 + len(others)
    assert lines[0][heads.index("Accuracy, %")].startswith(f"**{100 * best['score_mean']:.1f} ± ")
    assert lines[0][heads.index("ECE")] == f"{best['ece_mean']:.3f}"
    assert lines[0][heads.index("Effect")] == f"+{best['effect']:.2f}"
    assert text.startswith("### ENZYMES: GCS, 3 layers\n")


def test_names_that_mean_harm_stay_text_in_every_format() -> None:
    found: list[Record] = [
        record | {"data": HOSTILE, "model": HOSTILE}
        for record in made_up("vanilla", PLAIN) + made_up(HOSTILE, BETTER)
    ]
    results = Results(found)
    latex = results.to_latex()
    (line,) = (line for line in rows_of_latex(latex) if line[0] != "vanilla")
    assert line[0] == IN_LATEX
    assert re.search(r"\\label\{tab:[a-z0-9-]*\}", latex)
    assert len(cells_of_markdown(results.to_markdown())) == 4
    assert {row["method"] for row in csv.DictReader(io.StringIO(results.to_csv()))} == {
        HOSTILE,
        "vanilla",
    }


# ------------------------------------------------------------------ the command


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = tmp_path / "toy"
    place.mkdir()
    found = trials("vanilla", "transplant-ep", folds=3)
    (place / "records.jsonl").write_bytes(b"".join(map(record_line, found)))
    return place


@pytest.mark.parametrize("form", ["markdown", "latex", "csv"])
def test_report_prints_tables_or_writes_them(
    directory: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = getattr(read_results(directory), f"to_{form}")()
    report(directory, format=form)
    assert capsys.readouterr().out == expected
    out = directory / "table.txt"
    report(directory, format=form, out=out)
    assert out.read_text(encoding="utf-8") == expected
    assert "table.txt" in capsys.readouterr().out
    assert not (directory / "report.html").exists()


def test_where_nothing_can_be_selected_no_table_is_replaced_by_an_empty_one(tmp_path: Path) -> None:
    apart = [*made_up("vanilla", [0.5]), *made_up("vanilla", [0.5], layers=4, fold=1)]
    (tmp_path / "records.jsonl").write_bytes(b"".join(map(record_line, apart)))
    out = tmp_path / "table.md"
    out.write_text("good")
    for form in ("html", "markdown", "latex", "csv"):
        with pytest.raises(GraphTransplantError, match="whose candidates share a scored fold"):
            report(tmp_path, format=form, select=True, out=out)
    assert out.read_text() == "good"


def test_records_are_read_and_the_page_is_written_without_torch(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_bytes(b"".join(map(record_line, rich())))
    code = (
        "import sys; from graph_transplant.cli import main\n"
        f"assert main(['report', {str(tmp_path)!r}, '--equal-within', '0.02']) == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "Graph Transplant, new edges by the edge predictor" in page
    assert "lies within ±2." in page
