"""The ranking as LaTeX, Markdown and CSV, and the command that writes it."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from graph_transplant.cli.report import report
from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.protocol import Record
from graph_transplant.experiments.records import RecordStore
from graph_transplant.experiments.reproduce import paper_table
from graph_transplant.experiments.summary import summarise, summary_csv
from graph_transplant.report import ranking_table
from graph_transplant.report.paper import latex_table, markdown_table
from graph_transplant.report.tables import latex_text, markdown_text, rankings
from page_samples import NASTY, records, rich_records

HOSTILE = r"a&b%c_d#e$f{g}h~i^j\k<l>m[n]*o|p"


def read_latex(text: str) -> str:
    """Undo the escapes of LaTeX, the way TeX would set them: an oracle of its own."""
    words = {
        "textbackslash": "\\",
        "textasciitilde": "~",
        "textasciicircum": "^",
        "textless": "<",
        "textgreater": ">",
        "textbar": "|",
        "pm": "±",
        "times": "×",
    }
    found, place, depth = [], 0, 0
    while place < len(text):
        sign = text[place]
        if sign == "\\":
            word = re.match(r"\\([a-zA-Z]+)", text[place:])
            if word:
                found.append(words[word[1]])
                place += len(word[0])
                continue
            assert text[place + 1] in "&%$#_{}", text[place:]
            found.append(text[place + 1])
            place += 2
            continue
        assert sign not in "&%#_^~", f"{sign!r} is not escaped in {text!r}"
        depth += (sign == "{") - (sign == "}")
        assert depth >= 0
        if sign not in "{}$":
            found.append(sign)
        place += 1
    assert depth == 0
    return "".join(found)


@pytest.mark.parametrize("sign", list("&%_#${}~^\\<>[]*|"))
def test_signs_that_mean_something_to_latex_are_escaped(sign: str) -> None:
    assert read_latex(latex_text(f"a{sign}b")) == f"a{sign}b"


def test_latex_text_is_one_line_of_what_tex_knows() -> None:
    assert read_latex(latex_text(HOSTILE)) == HOSTILE
    assert latex_text("a\nb\x00c\t d") == "a b c d"
    assert latex_text("−1 ± 2 × 3²") == r"$-$1 $\pm$ 2 $\times$ 3$^2$"
    assert latex_text("a--b") == "a-{}-b"
    for text in NASTY.values():
        assert "\n" not in latex_text(text)
        assert not set(latex_text(text)) & {"\x00", "\x1b", "\ud83d"}


def test_markdown_text_cannot_end_a_cell_or_become_markup() -> None:
    for text in (*NASTY.values(), HOSTILE, "a\nb"):
        escaped = markdown_text(text)
        assert "\n" not in escaped
        assert not re.search(r"(?<!\\)(\\\\)*[|<>*_`\[\]]", escaped)


def test_tables_of_the_paper_escape_as_these_do(tmp_path: Path) -> None:
    name = "a|b #1 ~c~ &amp; <i>"
    table = paper_table("gcn", {name: ["gcn"]}, budget="quick", out=tmp_path, sizes={name: 100})
    row = next(line for line in markdown_table(table).splitlines() if "vanilla" in line)
    assert row.startswith(f"| {markdown_text(name)} | gcn | vanilla |")
    line = next(line for line in latex_table(table).splitlines() if "& vanilla" in line)
    assert line.startswith(f"{latex_text(name)} & gcn & vanilla &")
    assert latex_text("ψ") == r"$\psi$"


def rows_of_latex(text: str) -> list[list[str]]:
    body = text.partition("\\midrule\n")[2].partition("\\bottomrule")[0]
    lines = body.strip().split("\n")
    assert all(line.endswith(r" \\") for line in lines)
    return [re.split(r"(?<!\\) & ", line.removesuffix(r" \\")) for line in lines]


def test_latex_is_one_table_per_model_with_the_numbers_of_the_summary() -> None:
    found = rich_records(models=("gcs", "gin"), points=2)
    rows = summarise(found)
    text = ranking_table(rows, "latex")
    tables = text.split(r"\begin{table}")[1:]
    assert len(tables) == 2
    for word in ("table", "tabular"):
        assert text.count(rf"\begin{{{word}}}") == text.count(rf"\end{{{word}}}") == 2
    labels = re.findall(r"\\label\{([^}]*)\}", text)
    assert labels == ["tab:enzymes-gcs-3-layers", "tab:enzymes-gin-3-layers"]
    for model, table in zip(("gcs", "gin"), tables, strict=True):
        own = [row for row in rows if row.model == model]
        columns = re.search(r"\\begin\{tabular\}\{(l(r+))\}", table)
        assert columns is not None
        heads = table.partition("\\toprule\n")[2].partition("\n")[0]
        assert heads.count(" & ") == len(columns[2])
        cells = rows_of_latex(table)
        assert [line[0] for line in cells] == [row.method for row in own]
        for line, row in zip(cells, own, strict=True):
            assert len(line) == len(columns[1])
            assert row.score_mean is not None
            assert row.score_std is not None
            number = f"{100 * row.score_mean:.1f} $\\pm$ {100 * row.score_std:.1f}"
            significant = row.p_holm is not None and row.p_holm < 0.05
            best = row is own[0] and significant
            assert line[1] == (rf"\textbf{{{number}}}" if best else number)
            assert ("{*}" in line[2]) == significant
            assert line[-3] == f"{row.ece_mean:.3f}"
    assert any(r"\textbf" in table for table in tables)
    assert "significantly better than vanilla" in text


def test_nothing_is_bold_that_is_not_significant() -> None:
    few = [record for record in rich_records(points=2) if record["fold"] < 2]
    assert all(row.p_holm is None or row.p_holm >= 0.05 for row in summarise(few))
    for form in ("latex", "markdown"):
        text = ranking_table(summarise(few), form)
        assert "**" not in text
        assert "textbf" not in text
        assert "significantly" not in text


def test_markdown_has_as_many_cells_in_every_line() -> None:
    rows = summarise(rich_records(points=2))
    text = ranking_table(rows, "markdown")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    counts = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
    assert len(counts) == 1
    assert len(lines) == 2 + len(rows)
    best = rows[0]
    assert best.score_mean is not None
    assert f"**{100 * best.score_mean:.1f} ± " in lines[2]
    assert text.startswith("### ENZYMES: GCS, 3 layers\n")


def test_conditions_are_named_in_the_titles() -> None:
    found = rich_records(("vanilla",), conditions=((0.0, 1.0), (0.2, 0.5)), folds=2, points=2)
    titles = [one.title for one in rankings(summarise(found))]
    assert titles[0] == "GCS, 3 layers"
    assert "20 % of the training labels wrong" in titles[1]
    assert "50 % of the training graphs" in titles[1]
    latex = ranking_table(summarise(found), "latex")
    assert "20 \\% of the training labels wrong" in latex.replace("~", " ")
    assert len(set(re.findall(r"\\label\{([^}]*)\}", latex))) == 2


def test_csv_has_every_number_with_six_digits() -> None:
    rows = summarise(rich_records(points=2))
    sheet = list(csv.DictReader(io.StringIO(ranking_table(rows, "csv"))))
    assert [line["method"] for line in sheet] == [row.method for row in rows]
    for line, row in zip(sheet, rows, strict=True):
        assert float(line["score_mean"]) == pytest.approx(row.score_mean, rel=1e-5)


def test_names_that_mean_harm_stay_text_in_every_format() -> None:
    found: list[Record] = [
        record | {"data": HOSTILE, "model": HOSTILE} for record in records(method=HOSTILE)
    ]
    latex = ranking_table(summarise(found), "latex")
    (line,) = (line for line in rows_of_latex(latex) if line[0] != "vanilla")
    assert read_latex(line[0]) == HOSTILE
    assert re.search(r"\\label\{tab:[a-z0-9-]*\}", latex)
    markdown = ranking_table(summarise(found), "markdown")
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1


def test_an_unknown_format_lists_the_known() -> None:
    with pytest.raises(GraphTransplantError, match="markdown, latex, csv; got 'word'"):
        ranking_table([], "word")


# ------------------------------------------------------------------ the command


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = tmp_path / "toy"
    place.mkdir()
    found = rich_records(("vanilla", "transplant-ep"), folds=3, points=2)
    lines = "".join(json.dumps(record) + "\n" for record in found)
    (place / "records.jsonl").write_text(lines, encoding="utf-8")
    return place


def test_report_writes_the_page_and_its_figures(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(directory) == 0
    assert (directory / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (directory / "figures" / "gcs-3-robustness.svg").is_file()
    said = capsys.readouterr().out
    assert "report.html" in said
    assert "figures" in said
    # The table beside it is that of the page.
    rows = summarise(RecordStore(directory).read())
    assert (directory / "summary.csv").read_text(encoding="utf-8") == summary_csv(rows)
    assert report(directory, select=True) == 0
    (line, *_) = csv.DictReader(io.StringIO((directory / "summary.csv").read_text()))
    assert line["chosen"]


def test_pages_side_by_side_have_their_own_figures(directory: Path) -> None:
    assert report(directory) == 0
    before = {path: path.read_bytes() for path in (directory / "figures").iterdir()}
    other = directory / "other.html"
    assert report(directory, out=other, select=True) == 0
    assert {path: path.read_bytes() for path in (directory / "figures").iterdir()} == before
    drawn = {path.stem for path in (directory / "other-figures").glob("*.svg")}
    page = other.read_text(encoding="utf-8")
    assert "<code>other-figures</code>" in page
    assert drawn
    assert all(f"<code>{name}</code>" in page for name in drawn)
    # The same page under another name differs in that alone.
    assert report(directory, out=other) == 0
    page = other.read_text(encoding="utf-8").replace("other-figures", "figures")
    assert page == (directory / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("form", ["markdown", "latex", "csv"])
def test_report_prints_tables_or_writes_them(
    directory: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = ranking_table(summarise(RecordStore(directory).read()), form)
    assert report(directory, format=form) == 0
    assert capsys.readouterr().out == expected
    out = directory / "table.txt"
    assert report(directory, format=form, out=out) == 0
    assert out.read_text(encoding="utf-8") == expected
    assert "table.txt" in capsys.readouterr().out
    assert not (directory / "report.html").exists()


def test_report_selects(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(directory, format="csv", select=True) == 0
    (line, *_) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert line["layers"] == ""
    assert line["chosen"]


def test_report_says_what_is_wrong(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(GraphTransplantError, match="html, markdown, latex, csv; got 'pdf'"):
        report(directory, format="pdf")
    with pytest.raises(GraphTransplantError, match="there is no directory"):
        report(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(GraphTransplantError, match="there are no records in"):
        report(tmp_path / "empty")
    # Nothing was run for nested selection: no table is replaced by an empty one.
    out = directory / "table.md"
    out.write_text("good")
    for form in ("html", "markdown", "latex", "csv"):
        with pytest.raises(GraphTransplantError, match="nested selection has all it asks for"):
            report(directory, format=form, nested=True, out=out)
    assert out.read_text() == "good"


def test_a_wrong_format_is_said_before_torch_is_loaded() -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from graph_transplant.cli.report import report\n"
        "try: report(Path('.'), format='pdf')\n"
        "except Exception as problem: print(problem)\n"
        "print('torch' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == "False"
