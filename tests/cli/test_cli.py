"""The command line: quick to start, plain in what it says, clear in how it fails.

What is wrong in any command is told before torch is imported: see `test_first_use.py`, point 9.
"""

from __future__ import annotations

import html
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import get_args

import networkx as nx
import pandas as pd
import pytest
from rich.console import Console

from graph_transplant import __version__
from graph_transplant.cli import COMMANDS, main
from graph_transplant.cli.comparisons import print_results, results_table
from graph_transplant.cli.output import output
from graph_transplant.comparison.engines import ENGINES
from graph_transplant.config.datasets import check_data
from graph_transplant.config.options import Engine, RecipeName, SaliencyName, ScaleName
from graph_transplant.config.recipes import RECIPES, SCALES
from graph_transplant.errors import DataError
from graph_transplant.methods import METHODS
from graph_transplant.nn.saliency import SALIENCIES
from graph_transplant.results.record import Record, Trial
from graph_transplant.results.record_file import record_line
from graph_transplant.results.results import Results
from helpers.made_up_records import judged_by, made_up, on
from test_first_use import SLOW

SHORT = ["--epochs", "1", "--folds", "3", "--batch-size", "256"]
QUICK = ["--methods", "vanilla", *SHORT]

Captured = pytest.CaptureFixture[str]


def test_help_imports_nothing_slow() -> None:
    commands = [[], ["--help"], ["--version"], *([one.__name__, "--help"] for one in COMMANDS)]
    code = (
        "import sys\n"
        "from graph_transplant.cli import main\n"
        f"for words in {commands!r}:\n"
        "    assert main(words) == 0\n"
        f"print([name for name in {SLOW!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert done.stdout.count("Usage: ") == len(commands) - 1
    assert __version__ in done.stdout.splitlines()
    assert "--json" in done.stdout
    assert "--as-json" not in done.stdout


def test_the_names_that_are_checked_without_torch_are_all() -> None:
    assert tuple(ENGINES) == get_args(Engine)
    assert tuple(SCALES) == get_args(ScaleName)
    assert tuple(RECIPES) == get_args(RecipeName)
    assert tuple(SALIENCIES) == get_args(SaliencyName)


def test_a_command_that_left_names_its_substitute(capfd: Captured) -> None:
    assert main(["paper", "table1"]) == 2
    assert "python -m reproduction" in capfd.readouterr().err


# ------------------------------------------------------------------ a comparison


def test_compare_prints_a_table_a_verdict_and_where_the_files_are(
    tmp_path: Path, capfd: Captured
) -> None:
    # Rings and stars whose entries have names of their own; classes are words.
    source, out = tmp_path / "g.jsonl", tmp_path / "out"
    with source.open("w") as file:
        for number in range(24):
            made = (nx.cycle_graph if number % 2 else nx.star_graph)(number + 3)
            graph = {
                "key": f"g{number}",
                "nodes": [{} for _ in made],
                "edges": [{"source": one, "target": other} for one, other in made.edges],
                "kind of": "ring" if number % 2 else "star",
                "y": number,
            }
            file.write(json.dumps(graph) + "\n")
    words = ["compare", str(source), "--target", "kind of", "--id", "key", *SHORT]
    status = main([*words, "--methods", "vanilla,transplant-dp", "--out", str(out)])
    printed = capfd.readouterr()
    assert status == 0
    trials = [line for line in printed.err.splitlines() if "compiling kernels" not in line]
    assert len(trials) == 6
    assert trials[0].startswith("[1/6] vanilla, gcs with 3 layers, repeat 0, fold 0: accuracy ")
    lines = printed.out.split("\n")
    assert lines[1].split()[:3] == ["method", "model", "accuracy,"]
    assert {line.split()[0] for line in lines[2:4]} == {"vanilla", "transplant-dp"}
    assert " on g" in printed.out
    assert "nan" not in printed.out
    assert "\x1b" not in printed.out + printed.err
    for name in ("report.html", "summary.csv", "records.jsonl"):
        assert str(out / name) in printed.out
        assert (out / name).is_file()
    summary = pd.read_csv(out / "summary.csv").set_index("method")["accuracy_mean"]
    records = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    scores = pd.Series([record["test"]["accuracy"] for record in records])
    means = scores.groupby([record["method"] for record in records]).mean()
    pd.testing.assert_series_equal(summary.sort_index(), means, check_names=False, atol=1e-5)
    report = (out / "report.html").read_text(encoding="utf-8")

    # The command of the page once more: the same data, nothing runs, the same table.
    (line,) = (out / "commands.txt").read_text(encoding="utf-8").splitlines()
    assert html.escape(line, quote=True).replace("&#x27;", "&#39;") in report
    program, *repeated = shlex.split(line)
    assert program == "graph-transplant"
    assert main(repeated) == 0
    again = capfd.readouterr()
    assert again.err == f"6 of 6 trials are in {out} already\n"
    assert again.out == printed.out
    assert (out / "report.html").read_text(encoding="utf-8") == report
    # Commands of records that were moved aside are forgotten.
    assert main([*repeated, "--seed", "5", "--fresh"]) == 0
    assert len((out / "commands.txt").read_text(encoding="utf-8").splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("compare motifs --methods drop-nodes:ratios=1", "drop-nodes has ratio; got 'ratios=1'"),
        ("compare --methods mask-nodes", "mask-nodes needs node features, but motifs has"),
        ("compare motifs --folds 500", "but class house has only 100 graphs"),
        ("compare motifs --split scaffold", "--split is by scaffold, which needs"),
        ("compare motifs --epochs many", "many"),
        ("no-such-command", "no-such-command"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    *notes, error = printed.err.splitlines()
    assert error.startswith("error: ")
    assert message in error
    assert not [line for line in notes if line.startswith(("error", "Traceback"))]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_data_set_in_the_root_is_no_wrong_name(tmp_path: Path) -> None:
    (tmp_path / "tu" / "mine").mkdir(parents=True)
    check_data("mine", tmp_path)
    with pytest.raises(DataError, match="unknown data set 'yours'"):
        check_data("yours", tmp_path)


def test_a_refused_comparison_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Captured
) -> None:
    pytest.importorskip("rdkit")
    monkeypatch.chdir(tmp_path)
    rows = [f"{'C' * (n % 5 + 1)}{'O' if n % 2 else 'N'},{n % 2}" for n in range(24)]
    Path("mine.csv").write_text("\n".join(["smiles,y", "not a molecule,1", *rows]) + "\n")
    words = ["compare", "mine.csv", "--target", "y", *QUICK]
    assert main(words) == 0
    directory = tmp_path / "comparisons" / "mine"
    assert (directory / "skipped.csv").read_text().splitlines()[1].startswith("1,")
    note = "1 row of the data could not be used; skipped.csv lists them."
    assert note in (directory / "report.html").read_text()
    assert main(["report", str(directory), "--ignore", "GT015,GT007"]) == 0
    assert note not in (directory / "report.html").read_text()
    assert main(["report", str(directory), "--ignore", "GT015,GT000"]) == 2
    assert "--ignore must be one of GT001, GT002" in capfd.readouterr().err
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    capfd.readouterr()
    assert main([*words, "--seed", "1"]) == 2
    said = "contains records of another comparison: "
    told = capfd.readouterr().err
    assert said + "--seed is 0 there and 1 here" in told
    assert "start over with --fresh" in told
    assert main(["compare", "motifs", *QUICK, "--out", str(directory)]) == 2
    assert said in capfd.readouterr().err
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
    assert main([*words, "--out", "mine.csv"]) == 2
    assert Path("mine.csv").read_text().startswith("smiles,y\n")


def test_what_cannot_be_reached_is_refused_before_training(tmp_path: Path, capfd: Captured) -> None:
    out = tmp_path / "out"
    words = ["compare", "--fresh", *QUICK, "--out", str(out)]
    assert main([*words, "--engine", "ray", "--address", "127.0.0.1:1"]) == 2
    assert "there is no Ray cluster at 127.0.0.1:1" in capfd.readouterr().err
    assert not out.exists()


def test_a_failing_trial_is_status_1_and_names_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Captured
) -> None:
    def failing(store: object, trial: Trial, *arguments: object, **options: object) -> Record:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr("graph_transplant.comparison.engines.run_trial", failing)
    assert main(["compare", *QUICK, "--out", str(tmp_path)]) == 1
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1] == (
        "error: trial vanilla, gcs with 3 layers, repeat 0, fold 0 failed: ZeroDivisionError: by "
        f"nothing (0 finished trials are kept in {tmp_path})"
    )


def test_what_cannot_serve_is_left_out_and_what_is_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Captured
) -> None:
    def interrupted(*arguments: object, **options: object) -> Record:
        raise KeyboardInterrupt

    monkeypatch.setattr("graph_transplant.comparison.engines.run_trial", interrupted)
    words = ["compare", *SHORT, "--methods", "all", "--out", str(tmp_path / "out")]
    assert main([*words, "--fresh", "--tensorboard", str(tmp_path / "runs")]) == 130
    printed = capfd.readouterr().err
    assert "'compare --tensorboard' has been removed: the page of the comparison" in printed
    assert "mask-nodes is left out: mask-nodes needs node features" in printed
    # Starting over once more would lose what is done.
    assert f"\n  graph-transplant {' '.join(words)} --tensorboard" in printed


# ------------------------------------------------------------------ across data sets


def made_up_directory(path: Path, data: str, shift: float) -> Path:
    """Write five folds of two methods, the second better by about ``shift``."""
    path.mkdir()
    plain = [0.5 + 0.01 * fold for fold in range(5)]
    other = [value + shift * (1 + 0.001 * fold) for fold, value in enumerate(plain)]
    found = on(data, made_up("vanilla", plain), made_up("transplant-dp", other), fingerprint=data)
    (path / "records.jsonl").write_bytes(b"".join(map(record_line, found)))
    return path


def test_across_ranks_methods_over_data_sets_and_draws_the_ranks(
    tmp_path: Path, capfd: Captured
) -> None:
    first = made_up_directory(tmp_path / "a", "one<i x>", 0.1)
    again = made_up_directory(tmp_path / "a-sum", "one<i x>", -0.1)
    second = made_up_directory(tmp_path / "b", "two", 0.05)
    drawn = tmp_path / "drawn"
    # Trials of two comparisons of one data set are not mixed.
    for directories in ([first, again, second], [first, first, second]):
        assert main(["across", *map(str, directories), "--out", str(drawn)]) == 2
        assert "one<i x>" in capfd.readouterr().err
        assert not drawn.exists()
    assert main(["across", str(first), str(second), "--out", str(drawn)]) == 0
    printed = capfd.readouterr().out
    rows = [line.split() for line in printed.splitlines() if line.startswith(("tr", "va"))]
    assert rows[0] == ["transplant-dp", "1.00", "2", "0", "0", "+7.5", "0.500", "0.500"]
    assert rows[1] == ["vanilla", "2.00", *"------"]
    assert "transplant-dp beats vanilla on" in printed
    assert sorted(path.name for path in drawn.iterdir()) == ["gcs-ranks.csv", "gcs-ranks.svg"]
    table = pd.read_csv(drawn / "gcs-ranks.csv")
    assert table["method"].tolist() == ["transplant-dp", "vanilla"]
    assert table["p_holm"].tolist()[0] == 0.5
    # A page, as earlier versions wrote: its name becomes that of the folder.
    assert main(["across", str(first), str(second), "--out", str(tmp_path / "page.html")]) == 0
    assert "'across --out PAGE.html' has been removed: `--out` names a" in capfd.readouterr().err
    assert len(list((tmp_path / "page").iterdir())) == 2
    assert main(["across", str(first), str(second)]) == 0
    assert ".svg" not in capfd.readouterr().out


# ------------------------------------------------------------------ tables and lists


def test_the_table_has_a_dash_for_what_is_not_defined_and_takes_names_as_they_are(
    capfd: Captured,
) -> None:
    records = made_up("[red]x[/red]", [0.5], test={"accuracy": 0.5, "nll": None})
    records += made_up("y", [0.4], test={"accuracy": 0.4, "nll": 1.5, "ece": 0.25})
    output().print(results_table(Results(records)))
    first, second = capfd.readouterr().out.splitlines()[1:]
    assert first.split()[:3] == ["[red]x[/red]", "gcs-3", "50.0"]
    assert first.split()[-4:] == ["-", "-", "-", "-"]
    assert second.split()[-4:] == ["-", "-", "0.250", "1.500"]


def test_the_table_of_numbers_shows_errors_and_one_kind_of_minus(capfd: Captured) -> None:
    records = judged_by("r2", "vanilla", [0.1, -0.1, -0.0006])
    records += judged_by("r2", "x", [-0.6, -0.5, -0.3])
    for record in records:
        record["test"]["rmse"] = 12.5 if record["method"] == "vanilla" else 4321.0
    output().print(results_table(Results(records)))
    heading, first, second = capfd.readouterr().out.splitlines()
    expected = "method model R² difference p time effect p (uncorrected) RMSE"
    assert " ".join(heading.split()) == expected
    # The mean of vanilla is a little below zero, and zero has no sign.
    assert first.split()[2:5] == ["0.000", "±", "0.100"]
    assert second.split()[2:6] == ["−0.467", "±", "0.153", "−0.466"]
    assert (first.split()[-1], second.split()[-1]) == ("12.500", "4321")
    assert "-" not in second.replace("gcs-3", "")


def test_a_narrow_terminal_shows_what_fits(
    monkeypatch: pytest.MonkeyPatch, capfd: Captured
) -> None:
    results = Results(made_up("transplant-ep", [0.5, 0.6]) + made_up("vanilla", [0.6, 0.6]))
    printed = {}
    for width in (80, 200):
        console = Console(width=width, highlight=False)
        monkeypatch.setattr("graph_transplant.cli.comparisons.output", lambda c=console: c)
        print_results(results)
        printed[width] = capfd.readouterr().out.splitlines()[1].split()
    assert " ".join(printed[80]) == "method model accuracy, % difference, points p time"
    assert printed[200][: len(printed[80])] == printed[80]
    assert printed[200][-2:] == ["ECE", "NLL"]


def test_data_sets_and_methods_are_listed(capfd: Captured) -> None:
    assert main(["datasets"]) == 0
    names = [line.split()[0] for line in capfd.readouterr().out.splitlines()]
    assert {"motifs", "ENZYMES", "NCI1", "COLLAB"} <= set(names)
    assert main(["methods"]) == 0
    printed = capfd.readouterr().out
    found, name = dict.fromkeys(METHODS, ""), ""
    for line in printed.split("\n"):
        # Further lines of a method begin with the empty column of names.
        name = line.split(" ")[0] or name
        found[name] = found.get(name, "") + line + " "
    for name, method in METHODS.items():
        for parameter, value in method.parameters.items():
            assert f"{parameter}={value}" in found[name]
    assert "ratio=0.2,0.4" in printed
