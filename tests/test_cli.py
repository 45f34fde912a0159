"""The command line: quick to start, plain in what it says, clear in how it fails."""

from __future__ import annotations

import csv
import html
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from graph_transplant import __version__
from graph_transplant.augment import METHODS
from graph_transplant.cli import COMMANDS, main
from graph_transplant.cli.common import output, repeated_command, set_command
from graph_transplant.cli.comparisons import print_results, results_table
from graph_transplant.errors import DataError
from graph_transplant.experiments.protocol import Record, Trial
from graph_transplant.experiments.results import Results
from graph_transplant.files import folder_name
from graph_transplant.known import check_data
from made_up import judged_by, made_up

SLOW = [
    "torch",
    "torch_geometric",
    "numpy",
    "numba",
    "scipy",
    "sklearn",
    "matplotlib",
    "joblib",
    "networkx",
    "pandas",
]

QUICK = ["--epochs", "1", "--folds", "3", "--batch-size", "256"]


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


def test_compare_prints_a_table_a_verdict_and_where_the_files_are(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["compare", "--methods", "vanilla,transplant-dp", *QUICK, "--out", str(out)]
    status = main(command)
    printed = capfd.readouterr()
    assert status == 0
    trials = [line for line in printed.err.splitlines() if "compiling kernels" not in line]
    assert len(trials) == 6
    assert trials[0].startswith("[1/6] vanilla, gcs with 3 layers, repeat 0, fold 0: accuracy ")
    lines = printed.out.split("\n")
    assert lines[1].split()[:3] == ["method", "model", "accuracy,"]
    assert {line.split()[0] for line in lines[2:4]} == {"vanilla", "transplant-dp"}
    assert " on motifs" in printed.out
    assert "nan" not in printed.out
    for name in ("report.html", "summary.csv", "records.jsonl"):
        assert str(out / name) in printed.out
        assert (out / name).is_file()

    with open(out / "summary.csv", newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    records = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    for method, row in rows.items():
        scores = [record["test"]["accuracy"] for record in records if record["method"] == method]
        assert len(scores) == 3
        assert float(row["accuracy_mean"]) == pytest.approx(sum(scores) / 3, abs=1e-5)
    assert {record["source"] for record in records} == {"motifs"}
    report = (out / "report.html").read_text(encoding="utf-8")
    assert f"graph-transplant {shlex.join(command)}" in report

    # Once more: nothing runs, the same table.
    assert main(command) == 0
    again = capfd.readouterr()
    assert again.err == f"6 of 6 trials are in {out} already\n"
    assert again.out == printed.out
    assert (out / "report.html").read_text(encoding="utf-8") == report


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "motifs", "--methods", "drop-nodes:ratios=1"], "drop-nodes"),
        (["compare", "--methods", "mask-nodes"], "mask-nodes needs node features, but motifs has"),
        (["compare", "motifs", "--folds", "2"], "--folds must be at least 3"),
        (["compare", "motifs", "--folds", "500"], "but class house has only 100 graphs"),
        (["compare", "motifs", "--split", "scaffold"], "--split is by scaffold, which needs"),
        (["compare", "motifs", "--train-fraction", "2"], "--train-fraction must be"),
        (["compare", "motifs", "--label-noise", "1"], "--label-noise must be"),
        (["compare", "motifs", "--attack", "much"], "--attack must be numbers separated by commas"),
        (["compare", "motifs", "--layers", "3,x"], "--layers must be whole numbers separated by"),
        (["compare", "motifs", "--epochs", "many"], "many"),
        (["compare", "--engine", "torchrun"], "start it with `torchrun --nproc-per-node 2 ...`"),
        (["compare", "--address", "HEAD:6379"], "--address names a Ray cluster and needs"),
        (["compare", "m.csv"], "--target"),
        (["compare", "m.csv", "--target", "z"], "--target"),
        (["compare", "m.csv", "--target", "y", "--smiles", "s"], "--smiles"),
        (["compare", "m.csv", "--target", "y"], "m.csv: the target 'y' has one class only, '1'"),
        (["train", "motifs", "--validation", "0.9"], "--validation and --test must leave graphs"),
        (["train", "motifs", "--learning-rate", "-1"], "--learning-rate must be"),
        (["train", "few.csv", "--target", "y"], "at least 4 are needed"),
        (["show", "motifs", "--method", "drop-nodes"], "--method"),
        (["paper", "table9"], "EXPERIMENT must be one of table1, table2"),
        (["across"], "at least two data sets"),
        (["no-such-command"], "no-such-command"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if ".csv" in " ".join(arguments):
        pytest.importorskip("rdkit")
    (tmp_path / "m.csv").write_text("smiles,y\nCCO,1\nCCN,1\nCCC,1\n")
    (tmp_path / "few.csv").write_text("smiles,y\nCCO,1\nCCN,1\nCCC,0\n")
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    *notes, error = printed.err.splitlines()
    assert error.startswith("error: ")
    assert message in error
    assert not [line for line in notes if line.startswith(("error", "Traceback"))]
    assert {path.suffix for path in tmp_path.iterdir() if path.is_file()} == {".csv"}
    assert not list(tmp_path.rglob("records.jsonl"))


WRONG = [
    ("compare nosuch.csv", "DATA: there is no file or folder 'nosuch.csv'"),
    ("train no/such", "DATA: there is no file or folder 'no/such'"),
    ("show nosuch.sdf", "DATA: there is no file or folder 'nosuch.sdf'"),
    ("compare ENZIMES", "unknown data set 'ENZIMES' (did you mean 'ENZYMES'?)"),
    ("paper table1 --data NCI2", "unknown data set 'NCI2' (did you mean 'NCI1'?)"),
    ("paper table1 --data ENZYMES,", "--data must be names separated by single commas"),
    ("predict nomodel x.csv", "there is no folder nomodel: a model is a folder"),
    ("predict {folder} CCO", "holds no model: there is no file model.json"),
    ("predict {model} x.csv", "DATA: there is no file or folder 'x.csv'"),
    ("explain nomodel x.csv", "there is no folder nomodel"),
    ("explain {model} x.csv", "DATA: there is no file or folder 'x.csv'"),
    ("explain {model} motifs --against nomodel", "there is no folder nomodel"),
    ("attack nomodel motifs", "there is no folder nomodel"),
    ("show motifs --trained nomodel", "there is no folder nomodel"),
    ("report nodir", "there is no directory nodir"),
    ("report {folder}", "there are no records in"),
    ("across {folder} nodir", "there are no records in"),
    ("compare --methods vanila", "--methods must be one of"),
    ("compare --methods vanilla,", "--methods must be names separated by single commas"),
    ("compare --models gcx", "--models must be one of auto, gcn, gcs, gin, gat"),
    ("compare --split fold", "--split must be one of folds, scaffold-folds, official"),
    ("compare --metric auc", "got 'auc' (did you mean 'auroc'?)"),
    ("compare --recipe weak", "--recipe must be one of paper, strong"),
    ("train motifs --method forest", "--method must be one of vanilla"),
    ("train motifs --model gcx", "--model must be one of auto, gcn"),
    ("train motifs --split folds", "--split must be one of auto, random"),
    ("train motifs --readout median", "--readout must be one of mean, sum"),
    ("compare --task class", "--task must be one of multiclass"),
    ("compare --no-such-option 1", "(see graph-transplant compare --help)"),
]


def test_wrong_names_and_paths_are_answered_before_torch_is_imported(tmp_path: Path) -> None:
    folder, model = tmp_path / "folder", tmp_path / "model"
    folder.mkdir()
    model.mkdir()
    (model / "model.json").write_text("{}")
    places = {"folder": folder, "model": model}
    commands = [words.format(**places).split() for words, _ in WRONG]
    code = (
        "import sys\n"
        "from graph_transplant.cli import main\n"
        f"for words in {commands!r}:\n"
        f"    print(main(words), [name for name in {SLOW!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["2 []"] * len(WRONG)
    for line, (words, message) in zip(done.stderr.splitlines(), WRONG, strict=True):
        assert line.startswith("error: "), words
        assert message in line, words


def test_a_data_set_in_the_root_is_no_wrong_name(tmp_path: Path) -> None:
    (tmp_path / "tu" / "mine").mkdir(parents=True)
    check_data("mine", tmp_path)
    with pytest.raises(DataError, match="unknown data set 'yours'"):
        check_data("yours", tmp_path)


def test_the_directory_of_another_comparison_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "--methods", "vanilla", *QUICK]) == 0
    directory = tmp_path / "comparisons" / "motifs"
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    capfd.readouterr()
    assert main(["compare", "--methods", "vanilla", *QUICK, "--seed", "1"]) == 2
    message = capfd.readouterr().err
    assert "holds records of another comparison: --seed is 0 there and 1 here" in message
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


def test_a_refused_comparison_leaves_what_was_skipped(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rdkit")
    out = tmp_path / "out"
    table = tmp_path / "mine.csv"
    rows = [f"{'C' * (n % 5 + 1)}{'O' if n % 2 else 'N'},{n % 2}" for n in range(24)]
    table.write_text("\n".join(["smiles,y", "not a molecule,1", *rows]) + "\n")
    words = ["compare", str(table), "--target", "y", "--methods", "vanilla", *QUICK]
    words += ["--out", str(out)]
    assert main(words) == 0
    skipped = (out / "skipped.csv").read_text()
    assert skipped.splitlines()[1].startswith("1,")
    assert main(["compare", "motifs", "--methods", "vanilla", *QUICK, "--out", str(out)]) == 2
    assert "holds records of another comparison" in capfd.readouterr().err
    assert (out / "skipped.csv").read_text() == skipped
    (tmp_path / "afile").write_text("mine")
    assert main([*words[:-1], str(tmp_path / "afile")]) == 2
    assert (tmp_path / "afile").read_text() == "mine"


def test_logs_that_cannot_be_written_are_refused_before_training(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "afile").write_text("mine")
    words = ["--tensorboard", str(tmp_path / "afile"), "--out", str(tmp_path / "out")]
    assert main(["compare", "--methods", "vanilla", *QUICK, *words]) == 2
    assert f"cannot log to {tmp_path / 'afile'}" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_failing_trial_is_status_1_and_names_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def failing(store: object, trial: Trial, *arguments: object, **options: object) -> Record:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr("graph_transplant.experiments.trial.run_trial", failing)
    assert main(["compare", *QUICK, "--out", str(tmp_path)]) == 1
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1] == (
        "error: trial vanilla, gcs with 3 layers, repeat 0, fold 0 failed: ZeroDivisionError: by "
        f"nothing (0 finished trials are kept in {tmp_path})"
    )


def test_ctrl_c_stops_and_says_how_to_go_on(tmp_path: Path) -> None:
    arguments = ["compare", "--methods", "vanilla", "--workers", "2", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "graph_transplant", *arguments, "--epochs", "100000"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        # Both workers are training once their trials have checkpoints.
        deadline = time.monotonic() + 180
        while len(list((tmp_path / "checkpoints").glob("*.pt"))) < 2:
            if running.poll() is not None or time.monotonic() > deadline:
                os.killpg(running.pid, signal.SIGKILL)
                pytest.fail("the workers did not start")
            time.sleep(0.1)
        os.killpg(running.pid, signal.SIGINT)  # a terminal sends it to workers as well
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in errors
    assert f"stopped; 0 finished trials are kept in {tmp_path}" in errors
    assert f"graph-transplant {' '.join(arguments)} --epochs 100000" in errors
    assert not (tmp_path / ".graphs").exists()
    deadline = time.monotonic() + 60
    while session_lives(running.pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def made_up_directory(path: Path, data: str, shift: float) -> Path:
    """Write five folds of two methods, the second better by about ``shift``."""
    path.mkdir()
    plain = [0.5 + 0.01 * fold for fold in range(5)]
    other = [value + shift * (1 + 0.001 * fold) for fold, value in enumerate(plain)]
    found = made_up("vanilla", plain) + made_up("transplant-dp", other)
    lines = [json.dumps(record | {"data": data, "fingerprint": data}) for record in found]
    (path / "records.jsonl").write_text("\n".join(lines) + "\n")
    return path


def test_across_ranks_methods_over_data_sets_and_writes_a_page(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = made_up_directory(tmp_path / "a", "one<i x>", 0.1)
    second = made_up_directory(tmp_path / "b", "two", 0.05)
    page = tmp_path / "page.html"
    assert main(["across", str(first), str(second), "--out", str(page)]) == 0
    printed = capfd.readouterr().out
    rows = [line.split() for line in printed.splitlines() if line.startswith(("tr", "va"))]
    assert rows[0][:5] == ["transplant-dp", "1.00", "2", "0", "0"]
    assert rows[1][:5] == ["vanilla", "2.00", "-", "-", "-"]
    assert "transplant-dp beats vanilla on" in printed
    assert "one&lt;i x&gt;" in page.read_text()
    assert "<i x>" not in page.read_text()


def test_trials_of_two_comparisons_of_one_data_set_are_not_mixed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = made_up_directory(tmp_path / "a", "one", 0.1)
    again = made_up_directory(tmp_path / "a-sum", "one", -0.1)
    second = made_up_directory(tmp_path / "b", "two", 0.05)
    page = tmp_path / "page.html"
    for directories in ([first, again, second], [first, first, second]):
        assert main(["across", *map(str, directories), "--out", str(page)]) == 2
        assert "one" in capfd.readouterr().err
        assert not page.exists()


def test_a_refused_engine_leaves_the_records_where_they_are(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["compare", "--fresh", "--out", str(out), *QUICK]
    assert main([*arguments, "--engine", "ray", "--address", "127.0.0.1:1"]) == 2
    assert "there is no Ray cluster at 127.0.0.1:1" in capfd.readouterr().err
    assert not out.exists()


def test_the_command_that_resumes_does_not_start_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object, **options: object) -> Record:
        raise KeyboardInterrupt

    monkeypatch.setattr("graph_transplant.experiments.trial.run_trial", interrupted)
    arguments = ["compare", *QUICK, "--fresh", "--out", str(tmp_path / "out")]
    assert main(arguments) == 130
    printed = capfd.readouterr().err
    expected = ["compare", *QUICK, "--out", str(tmp_path / "out")]
    assert f"\n  graph-transplant {' '.join(expected)}\n" in printed


def test_the_command_that_resumes_under_torchrun_starts_torchrun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = ["compare", "motifs", "--engine", "torchrun"]
    set_command(arguments, {})
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    started = "torchrun --nproc-per-node 2 --nnodes 2 -m graph_transplant"
    assert repeated_command() == f"{started} {' '.join(arguments)}"


def session_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_datasets_lists_names_and_sizes(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets"]) == 0
    printed = capfd.readouterr().out
    names = [line.split()[0] for line in printed.splitlines()]
    assert {"motifs", "ENZYMES", "NCI1", "COLLAB"} <= set(names)


def test_the_table_has_a_dash_for_what_is_not_defined_and_takes_names_as_they_are(
    capfd: pytest.CaptureFixture[str],
) -> None:
    records = made_up("[red]x[/red]", [0.5], test={"accuracy": 0.5, "nll": None})
    output().print(results_table(Results(records)))
    row = capfd.readouterr().out.splitlines()[1]
    assert row.split() == ["[red]x[/red]", "gcs-3", "50.0", "-", "-", "2.0", "s", "-", "-"]
    # A column is there as soon as one row has something for it.
    records += made_up("y", [0.4], test={"accuracy": 0.4, "nll": 1.5, "ece": 0.25})
    output().print(results_table(Results(records)))
    first, second = capfd.readouterr().out.splitlines()[1:]
    assert first.split()[-4:] == ["-", "-", "-", "-"]
    assert second.split()[-4:] == ["-", "-", "0.250", "1.500"]


def test_the_table_of_numbers_shows_errors_and_one_kind_of_minus(
    capfd: pytest.CaptureFixture[str],
) -> None:
    records = judged_by("r2", "vanilla", [0.1, -0.1, -0.0006])
    records += judged_by("r2", "x", [-0.6, -0.5, -0.3])
    for record in records:
        record["test"]["rmse"] = 12.5 if record["method"] == "vanilla" else 4321.0
    output().print(results_table(Results(records)))
    heading, first, second = capfd.readouterr().out.splitlines()
    expected = "method model R², % difference, points p time effect p alone RMSE"
    assert " ".join(heading.split()) == expected
    # The mean of vanilla is a little below zero, and zero has no sign.
    assert first.split()[2:5] == ["0.0", "±", "10.0"]
    assert second.split()[2:6] == ["−46.7", "±", "15.3", "−46.6"]
    assert (first.split()[-1], second.split()[-1]) == ("12.500", "4321")
    assert "-" not in second.replace("gcs-3", "")


def test_a_narrow_terminal_shows_what_fits(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
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
    assert printed[200][-2:] == ["ECE", "loss"]


def lines_of_json(path: Path) -> Path:
    """Rings and stars whose entries have names of their own; classes are words."""
    with path.open("w") as file:
        for number in range(24):
            ring = number % 2
            edges = [
                {"source": node, "target": (node + 1) % 5}
                if ring
                else {"source": 0, "target": node}
                for node in range(0 if ring else 1, 5)
            ]
            graph = {
                "key": f"g{number}",
                "nodes": [{} for _ in range(5)],
                "edges": edges,
                "kind of": "ring" if ring else "star",
                "y": number,
            }
            file.write(json.dumps(graph) + "\n")
    return path


def test_the_command_of_the_report_repeats_the_comparison(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = lines_of_json(tmp_path / "g.jsonl")
    options = ["--target", "kind of", "--id", "key"]
    out = tmp_path / "out"
    words = ["compare", str(source), *options, "--methods", "vanilla", *QUICK, "--out", str(out)]
    assert main(words) == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    (line,) = (out / "commands.txt").read_text(encoding="utf-8").splitlines()
    assert html.escape(line, quote=True).replace("&#x27;", "&#39;") in page
    program, *repeated = shlex.split(line)
    assert program == "graph-transplant"
    capfd.readouterr()
    assert main(repeated) == 0
    # The same data, read in the same way: nothing is left to run.
    assert capfd.readouterr().err.endswith(f"3 of 3 trials are in {out} already\n")


@pytest.mark.parametrize(
    ("name", "expected"), [("motifs", "motifs"), ("a b/c", "a-b-c"), ("..", "data"), ("é✓", "é")]
)
def test_directory_names_are_made_of_data_names(name: str, expected: str) -> None:
    assert folder_name(name) == expected


def test_methods_are_listed_with_their_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    printed = capsys.readouterr().out
    name = ""
    # Further lines of a method begin with the empty column of names.
    found: dict[str, str] = {}
    for line in printed.split("\n"):
        name = line.split(" ")[0] or name
        found[name] = found.get(name, "") + line + " "
    for name, method in METHODS.items():
        for parameter, value in method.parameters.items():
            assert f"{parameter}={value}" in found[name]
    assert "ratio=0.2,0.4" in printed


def test_all_methods_run_but_those_that_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import graph_transplant.datasets as datasets

    small = datasets.load("motifs", graphs=24)
    monkeypatch.setattr(datasets, "load", lambda data, root: small)
    out = tmp_path / "out"
    assert main(["compare", "--methods", "all", *QUICK, "--out", str(out)]) == 0
    printed = capfd.readouterr()
    assert "mask-nodes is left out: mask-nodes needs node features" in printed.err
    with open(out / "summary.csv", newline="") as file:
        ranked = [row["method"] for row in csv.DictReader(file)]
    assert set(ranked) == set(METHODS) - {"mask-nodes"}
