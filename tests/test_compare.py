"""Whole comparisons: resumed, killed, in parallel, summarised, worded."""

from __future__ import annotations

import csv
import io
import itertools
import math
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from graph_transplant import training
from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments import trial as trial_module
from graph_transplant.experiments.compare import Comparison, compare
from graph_transplant.experiments.engine import TrialError
from graph_transplant.experiments.progress import Display, Plain, Silent
from graph_transplant.experiments.protocol import Record, Settings, Trial
from graph_transplant.experiments.records import RecordStore
from graph_transplant.experiments.summary import (
    COLUMNS,
    CONDITIONS,
    WHEN_THERE,
    SummaryRow,
    notes,
    summarise,
    summary_csv,
    verdicts,
)
from graph_transplant.experiments.trial import run_trial, sampled_curve, trial_seed
from graph_transplant.experiments.worker import keep_freed_memory
from graph_transplant.graphs import GraphStore
from graph_transplant.training import EpochLog
from strategies import rings_and_stars


def tiny_store() -> GraphStore:
    return rings_and_stars(24, seed=0, name="tiny")


SMALL: dict[str, Any] = {"folds": 3, "epochs": 3, "batch_size": 8, "seed": 3}


def run(out: Path, **changes: Any) -> Comparison:
    arguments = {"methods": ["vanilla", "transplant-dp"], **SMALL, **changes}
    return compare(arguments.pop("store", None) or tiny_store(), out=out, **arguments)


def values(records: Sequence[Record]) -> list[Record]:
    """What must be equal between two runs: everything but the duration."""
    timeless = [
        {key: item[key] for key in item if key not in ("seconds", "cost")} for item in records
    ]
    return sorted(timeless, key=Trial.of_record)


class Counting(Silent):
    """A reporter that remembers which trials ran."""

    def __init__(self) -> None:
        self.ran: list[Trial] = []
        self.notes: list[str] = []
        self.stopped = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def trial_finished(self, record: Record) -> None:
        self.ran.append(Trial.of_record(record))

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """A comparison of two methods, three folds and two repeats that nothing disturbed."""
    return run(tmp_path_factory.mktemp("undisturbed"), repeats=2)


def test_records_say_everything_about_a_trial(undisturbed: Comparison) -> None:
    assert len(undisturbed.records) == 12
    for record in undisturbed.records:
        assert record["data"] == "tiny"
        assert record["source"] == "tiny"
        assert record["fingerprint"] == tiny_store().fingerprint()
        for part in ("validation", "test"):
            names = {"accuracy", "ece", "adaptive_ece", "brier", "nll", "auroc"}
            assert set(record[part]) == names | {"average_precision"}
            assert 0 <= record[part]["accuracy"] <= 1
        assert record["sizes"] == {"train": 8, "validation": 8, "test": 8}
        assert 1 <= record["best_epoch"] <= record["epochs"] <= 3
        assert record["seconds"] > 0
        assert [point["epoch"] for point in record["curve"]] == [1, 2, 3]
        assert SMALL.items() <= record["settings"].items()
        assert {"numerics": 2, "ties": "first", "shards": 1}.items() <= record["settings"].items()


def test_methods_share_the_seed_of_a_fold_and_nothing_else_shares_one(
    undisturbed: Comparison,
) -> None:
    seeds: dict[tuple[int, int], set[int]] = {}
    for record in undisturbed.records:
        seeds.setdefault((record["repeat"], record["fold"]), set()).add(record["seed"])
    assert all(len(shared) == 1 for shared in seeds.values())
    assert len(set.union(*seeds.values())) == 6
    trial = Trial("vanilla", "gcs", 3, 0, 0)
    others = [replace(trial, model="gin"), replace(trial, layers=4), replace(trial, fold=1)]
    assert trial_seed(trial, 0) not in {trial_seed(other, 0) for other in others}
    assert trial_seed(trial, 0) != trial_seed(trial, 1)


def test_files_are_written_and_no_others(undisturbed: Comparison) -> None:
    names = {path.name for path in undisturbed.directory.iterdir()}
    assert names == {"records.jsonl", "summary.csv", ".lock"}
    text = (undisturbed.directory / "summary.csv").read_text()
    assert text == summary_csv(undisturbed.rows)


def test_the_same_call_again_runs_nothing(undisturbed: Comparison) -> None:
    before = (undisturbed.directory / "records.jsonl").read_bytes()
    reporter = Counting()
    again = run(undisturbed.directory, repeats=2, reporter=reporter)
    assert reporter.ran == []
    assert reporter.notes == [f"12 of 12 trials are in {undisturbed.directory} already"]
    assert (undisturbed.directory / "records.jsonl").read_bytes() == before
    assert again.rows == undisturbed.rows


def test_only_what_is_missing_runs_and_more_may_be_asked_for(
    tmp_path: Path, undisturbed: Comparison
) -> None:
    run(tmp_path, methods=["vanilla"])
    reporter = Counting()
    grown = run(tmp_path, repeats=2, reporter=reporter)
    assert len(reporter.ran) == 9
    assert reporter.stopped == 1
    assert values(grown.records) == values(undisturbed.records)
    assert replace_seconds(grown.rows) == replace_seconds(undisturbed.rows)


def replace_seconds(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    return [replace(row, seconds_mean=None) for row in rows]


def test_worker_processes_give_the_same_records(tmp_path: Path, undisturbed: Comparison) -> None:
    parallel = run(tmp_path, repeats=2, workers=2)
    assert values(parallel.records) == values(undisturbed.records)
    assert not (tmp_path / ".graphs.safetensors").exists()


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_killed_in_the_middle_and_resumed_gives_the_records_of_an_undisturbed_run(
    tmp_path: Path, undisturbed: Comparison
) -> None:
    data, out = tmp_path / "tiny.safetensors", tmp_path / "out"
    tiny_store().save(data)
    code = (
        "import sys\n"
        "from graph_transplant.experiments.compare import compare\n"
        "from graph_transplant.graphs import GraphStore\n"
        "compare(GraphStore.load(sys.argv[1]), out=sys.argv[2], repeats=2, workers=2,\n"
        f"        methods=['vanilla', 'transplant-dp'], **{SMALL!r})\n"
    )
    path = out / "records.jsonl"
    with subprocess.Popen([sys.executable, "-c", code, str(data), str(out)]) as comparison:
        deadline = time.monotonic() + 300
        while not (path.exists() and path.read_bytes().count(b"\n") >= 2):
            assert comparison.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
        children = Path(f"/proc/{comparison.pid}/task/{comparison.pid}/children").read_text()
        comparison.kill()
    workers = [int(child) for child in children.split()]
    assert len(workers) >= 2
    finished = RecordStore(out).read()
    assert 2 <= len(finished) < 12

    reporter = Counting()
    resumed = run(out, repeats=2, reporter=reporter)
    assert len(reporter.ran) == 12 - len(finished)
    assert values(resumed.records) == values(undisturbed.records)
    # Nobody takes the results of the killed process's workers: they end by themselves.
    deadline = time.monotonic() + 300
    while any(alive(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_torn_line_is_reported_and_its_trial_runs_again(
    tmp_path: Path, undisturbed: Comparison
) -> None:
    lines = (undisturbed.directory / "records.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "records.jsonl").write_bytes(b"".join(lines[:11]) + lines[11][:200])
    reporter = Counting()
    repaired = run(tmp_path, repeats=2, reporter=reporter)
    assert len(reporter.ran) == 1
    assert "cut short" in reporter.notes[0]
    assert (tmp_path / "records.torn").read_bytes() == lines[11][:200] + b"\n"
    assert values(repaired.records) == values(undisturbed.records)


def test_another_comparison_in_the_directory_is_refused(undisturbed: Comparison) -> None:
    before = (undisturbed.directory / "records.jsonl").read_bytes()
    with pytest.raises(GraphTransplantError, match="`epochs` is 3 there and 4 here"):
        run(undisturbed.directory, epochs=4)
    with pytest.raises(GraphTransplantError, match="`ties` is first there and loss here"):
        run(undisturbed.directory, ties="loss")
    with pytest.raises(GraphTransplantError, match="the data's fingerprint is"):
        run(undisturbed.directory, store=tiny_store().subset(torch.arange(20)))
    assert (undisturbed.directory / "records.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ["vanila"]}, r"`methods` must be one of .*did you mean 'vanilla'"),
        ({"methods": []}, "`methods` must name at least one of"),
        ({"models": ["gcx"]}, "`models` must be one of"),
        ({"layers": [3, 0]}, "`layers` must be at least 1, got 3, 0"),
        ({"repeats": 0}, "`repeats` must be at least 1, got 0"),
        ({"workers": 0}, "`workers` must be at least 1, got 0"),
        ({"epochs": 0}, "`epochs` must be at least 1, got 0"),
        ({"batch_size": -1}, "`batch_size` must be at least 1, got -1"),
        ({"folds": 2}, "`folds` must be at least 3, got 2"),
        ({"folds": 13}, "class 0 has only 12 graphs, class 1 has only 12 graphs"),
        ({"seed": -1}, "`seed` must be at least 0, got -1"),
    ],
)
def test_bad_arguments_are_named_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        run(tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 0.0}, "`learning_rate` must be above 0, got 0.0"),
        ({"clip_norm": math.nan}, "`clip_norm` must be above 0, got nan"),
        ({"stop_patience": 0}, "`stop_patience` must be at least 1, got 0"),
    ],
)
def test_bad_settings_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        Settings(**changes)


def test_a_failing_trial_is_named_and_finished_ones_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Comparison
) -> None:
    real = run_trial

    def failing(store: GraphStore, trial: Trial, *arguments: Any, **options: Any) -> Record:
        if trial == Trial("vanilla", "gcs", 3, 0, 1):
            raise ZeroDivisionError("a whole\nstory")
        return real(store, trial, *arguments, **options)

    reporter = Counting()
    with monkeypatch.context() as patch:
        patch.setattr(trial_module, "run_trial", failing)
        with pytest.raises(TrialError) as caught:
            run(tmp_path, reporter=reporter)
    assert str(caught.value) == (
        "trial vanilla, gcs with 3 layers, repeat 0, fold 1 failed: ZeroDivisionError: a whole"
    )
    assert "Traceback" in caught.value.details
    assert reporter.stopped == 1
    assert len(RecordStore(tmp_path).read()) == 2
    assert values(run(tmp_path, repeats=2).records) == values(undisturbed.records)


def test_the_number_of_torch_threads_is_put_back(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run(tmp_path, methods=["vanilla"], epochs=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("fresh", [False, True])
def test_an_interrupted_trial_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Comparison, fresh: bool
) -> None:
    class Interrupting(Counting):
        def epoch_finished(self, epoch: int, epochs: int, validation_score: float) -> None:
            if len(self.ran) == 3 and epoch == 3:
                os.kill(os.getpid(), signal.SIGINT)

    class Listening(Counting):
        def epoch_finished(self, epoch: int, epochs: int, validation_score: float) -> None:
            heard.append(epoch)

    heard: list[int] = []
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, repeats=2, reporter=Interrupting())
    assert len(RecordStore(tmp_path).read()) == 3
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1
    resumed = run(tmp_path, repeats=2, reporter=Listening(), fresh=fresh)
    assert heard == (12 * [1, 2, 3] if fresh else [3, *(8 * [1, 2, 3])])
    assert values(resumed.records) == values(undisturbed.records)
    assert not (tmp_path / "checkpoints").exists()


def log(epoch: int, **measurements: float) -> EpochLog:
    return EpochLog(
        epoch=epoch,
        iterations=epoch,
        train_loss=1 / epoch,
        clean_loss=0.5,
        virtual_loss=0.5,
        auxiliary_loss=0.0,
        validation_loss=2 / epoch,
        validation_accuracy=epoch / 1000,
        learning_rate=5e-4,
        seconds=0.1,
        measurements=measurements,
    )


def test_a_long_curve_is_thinned_and_a_short_one_kept() -> None:
    curve = sampled_curve([log(epoch) for epoch in range(1, 1001)])
    assert len(curve) == 60
    assert (curve[0]["epoch"], curve[-1]["epoch"]) == (1, 1000)
    assert all(point["train_loss"] == 1 / point["epoch"] for point in curve)
    gaps = {after["epoch"] - before["epoch"] for before, after in itertools.pairwise(curve)}
    assert gaps <= {16, 17, 18}
    assert len(sampled_curve([log(1), log(2)])) == 2
    (point,) = sampled_curve([log(1, edge_predictor_accuracy=0.75)])
    assert point["measurements"] == {"edge_predictor_accuracy": 0.75}


# Summaries ------------------------------------------------------------------------------------


def made_up(
    method: str, accuracies: Sequence[float], *, folds: int = 5, **changes: Any
) -> list[Record]:
    return [
        {
            "data": "toy",
            "fingerprint": "00",
            "method": method,
            "model": "gcs",
            "layers": 3,
            "repeat": number // folds,
            "fold": number % folds,
            "test": {"accuracy": accuracy, "ece": accuracy / 10, "nll": 1 - accuracy},
            "sizes": {"train": 60, "validation": 20, "test": 20},
            "settings": {"folds": folds, "epochs": 100},
            "seconds": 2.0 + number,
            "epochs": 100,
            "best_epoch": 50,
        }
        | changes
        for number, accuracy in enumerate(accuracies)
    ]


PLAIN = [0.60, 0.55, 0.65, 0.50, 0.60]
BETTER = [0.70, 0.66, 0.74, 0.61, 0.71]  # differences 0.10, 0.11, 0.09, 0.11, 0.11
UNSURE = [0.65, 0.50, 0.75, 0.55, 0.55]  # differences 0.05, -0.05, 0.10, 0.05, -0.05


def test_summary_by_hand() -> None:
    records = made_up("vanilla", PLAIN) + made_up("a", BETTER) + made_up("b", UNSURE)
    rows = {row.method: row for row in summarise(records[::-1])}
    plain, better, unsure = rows["vanilla"], rows["a"], rows["b"]
    assert list(rows) == ["a", "b", "vanilla"]

    assert plain.trials == 5
    assert plain.accuracy_mean == pytest.approx(0.58)
    # Squared distances to 0.58: 0.0004, 0.0009, 0.0049, 0.0064, 0.0004; in all 0.0130.
    assert plain.score_std == pytest.approx(math.sqrt(0.0130 / 4))
    assert plain.ece_mean == pytest.approx(0.058)
    assert plain.nll_mean == pytest.approx(0.42)
    assert plain.seconds_mean == pytest.approx(4.0)
    assert plain.auroc_mean is None
    assert (plain.difference, plain.p_value, plain.p_holm) == (None, None, None)

    # Squared distances to 0.104: 0.000016, 0.000036, 0.000196, 0.000036, 0.000036; in all 0.00032.
    assert better.difference == pytest.approx(0.104)
    error = math.sqrt((1 / 5 + 1 / 3) * 0.00008)
    assert better.ci_low == pytest.approx(0.104 - 2.776445 * error, abs=1e-7)
    assert better.ci_high == pytest.approx(0.104 + 2.776445 * error, abs=1e-7)
    assert unsure.difference == pytest.approx(0.02)
    # The smaller of two p-values doubles, the larger stays.
    assert better.p_value is not None
    assert better.p_holm == pytest.approx(2 * better.p_value)
    assert unsure.p_holm == pytest.approx(unsure.p_value)


def test_times_are_the_processors_when_all_trials_of_a_table_have_them() -> None:
    plain = made_up("vanilla", PLAIN, cost={"fit_seconds": 0.5})
    other = made_up("a", BETTER, cost={"fit_seconds": 1.5})
    assert [row.seconds_mean for row in summarise(plain + other)] == [1.5, 0.5]
    # One trial without: durations of 2, 3, 4, 5 and 6 seconds for all of this table ...
    del other[3]["cost"]
    assert [row.seconds_mean for row in summarise(plain + other)] == [4.0, 4.0]
    # ... and for this one alone.
    elsewhere = made_up("vanilla", PLAIN, model="gin", cost={"fit_seconds": 0.25})
    rows = summarise(plain + other + elsewhere)
    assert [(row.model, row.seconds_mean) for row in rows] == [
        ("gcs", 4.0),
        ("gcs", 4.0),
        ("gin", 0.25),
    ]


def test_differences_are_taken_over_the_folds_both_have() -> None:
    records = made_up("vanilla", PLAIN[:4]) + made_up("a", BETTER)[1:]
    (better, _) = summarise(records)
    assert better.pairs == 3
    assert better.difference == pytest.approx((0.11 + 0.09 + 0.11) / 3)
    assert better.accuracy_mean == pytest.approx(sum(BETTER[1:]) / 4)


def test_csv_has_the_stated_columns_and_empty_cells_for_what_is_not_defined() -> None:
    text = summary_csv(summarise(made_up("vanilla", [0.5]) + made_up("a, b", [0.75])))
    first, second = csv.DictReader(io.StringIO(text))
    left_out = (*WHEN_THERE, *CONDITIONS)
    assert tuple(first) == tuple(name for name in COLUMNS if name not in left_out)
    assert first["method"] == "a, b"
    assert float(first["difference"]) == 0.25
    for name in ("score_std", "auroc_mean", "ci_low", "ci_high", "p_value", "p_holm"):
        assert first[name] == ""
        assert second[name] == ""
    assert "nan" not in text.lower()


def sentence(*records: list[Record]) -> str:
    (verdict,) = verdicts(summarise([item for part in records for item in part]))
    return verdict.sentence


def test_verdict_for_a_clear_gain() -> None:
    text = sentence(made_up("vanilla", PLAIN), made_up("transplant-dp", BETTER))
    assert text == "transplant-dp beats vanilla on toy by 10.4 points (p < 0.001, 5 folds)."


def test_verdict_names_the_correction_the_others_and_what_is_worse() -> None:
    worse = [value - 0.2 for value in BETTER]
    text = sentence(
        made_up("vanilla", PLAIN),
        made_up("a", BETTER),
        made_up("b", [value - 0.02 for value in BETTER]),
        made_up("c", worse),
        made_up("d", UNSURE),
    )
    assert text.startswith("a beats vanilla on toy by 10.4 points (p < 0.001 after Holm's ")
    assert "over 4 methods, 5 folds); so does b, by 8.4 (p < 0.001)" in text
    assert text.endswith("c is worse than vanilla by 9.6 (p < 0.001).")


def test_verdict_without_a_clear_difference_gives_the_plausible_range() -> None:
    text = sentence(made_up("vanilla", PLAIN), made_up("a", UNSURE))
    assert text.startswith("a does not differ significantly from vanilla on toy: the difference is")
    assert "+2.0 points, with anything from −11.6 to +15.6 plausible (p = 0.7" in text
    many = sentence(made_up("vanilla", PLAIN), made_up("a", UNSURE), made_up("b", PLAIN))
    assert many.startswith("No method differs significantly from vanilla on toy: the largest")


def test_verdict_says_when_only_the_correction_speaks_against_a_difference() -> None:
    nearly = [
        plain + gain for plain, gain in zip(PLAIN, (0.05, 0.1, 0.02, 0.08, 0.03), strict=True)
    ]
    rest = [made_up(name, UNSURE) for name in "bcde"]
    assert "beats" not in sentence(made_up("vanilla", PLAIN), made_up("a", nearly))
    clearer = [
        plain + gain for plain, gain in zip(PLAIN, (0.05, 0.08, 0.05, 0.1, 0.04), strict=True)
    ]
    assert "a beats vanilla" in sentence(made_up("vanilla", PLAIN), made_up("a", clearer))
    text = sentence(made_up("vanilla", PLAIN), made_up("a", clearer), *rest)
    assert "No method differs significantly" in text
    assert "which taken alone would be significant (p = 0.0" in text
    assert "but not as the largest of 5" in text


def test_verdict_is_a_hint_when_there_are_few_folds() -> None:
    text = sentence(
        made_up("vanilla", PLAIN[:3], folds=3), made_up("a", [0.7, 0.66, 0.74], folds=3)
    )
    assert text.endswith("3 folds are few: take this as a hint.")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (made_up("vanilla", PLAIN), "there is no other method to compare it with"),
        (made_up("a", PLAIN), "a reaches a mean accuracy of 58.0 % on toy over 5 trials; there"),
        (made_up("a", PLAIN) + made_up("b", BETTER), "b has the highest mean accuracy on toy"),
        (made_up("vanilla", [0.5]) + made_up("a", [0.6]), "one pair of trials shows no spread"),
        (made_up("vanilla", PLAIN) + made_up("a", PLAIN), "all 5 folds show the same difference"),
        (made_up("vanilla", PLAIN) + made_up("a", PLAIN, repeat=1), "shares a finished fold"),
    ],
)
def test_verdict_when_nothing_can_be_tested(records: list[Record], expected: str) -> None:
    (verdict,) = verdicts(summarise(records))
    assert expected in verdict.sentence
    assert verdict.kind == "open"


def test_verdict_counts_repeats() -> None:
    text = sentence(made_up("vanilla", PLAIN * 3), made_up("a", BETTER * 3))
    assert text.endswith("(p < 0.001, 5 folds × 3 repeats).")


def test_notes_name_what_is_cut_short_missing_or_not_finite() -> None:
    assert notes(made_up("vanilla", PLAIN)) == []
    (short,) = notes(made_up("vanilla", PLAIN, best_epoch=97))
    assert short.startswith(
        "In 5 of 5 trials the best checkpoint lies in the last tenth of the 100"
    )
    (missing,) = notes(made_up("vanilla", PLAIN) + made_up("a", PLAIN[:2]))
    assert missing == "gcs with 3 layers is not complete: a has 2 of 5 trials."
    (lost,) = notes(made_up("vanilla", [0.5], test={"accuracy": 0.5, "nll": None}))
    assert lost == "The test loss is not finite in: vanilla, gcs with 3 layers, repeat 0, fold 0."


# Progress -------------------------------------------------------------------------------------


def test_without_a_terminal_there_is_one_line_per_trial(tmp_path: Path) -> None:
    text = io.StringIO()
    run(tmp_path, methods=["vanilla"], reporter=Plain(Console(file=text, width=40)))
    lines = text.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("[1/3] vanilla, gcs with 3 layers, repeat 0, fold 0: accuracy ")
    assert lines[0].endswith("left")
    assert "\x1b" not in text.getvalue()


@pytest.mark.parametrize("kind", [Plain, Display])
def test_one_comparison_after_another_is_counted_from_the_start(
    kind: type[Plain | Display], undisturbed: Comparison
) -> None:
    text = io.StringIO()
    reporter = kind(Console(file=text, width=110))
    record = undisturbed.records[0]
    for _ in range(2):
        reporter.start(trials=[Trial.of_record(record)] * 2, finished=[], workers=1)
        reporter.trial_finished(record)
        reporter.stop()
    if isinstance(reporter, Plain):
        assert [line[:5] for line in text.getvalue().splitlines()] == ["[1/2]", "[1/2]"]
    else:
        assert reporter._progress.tasks[0].completed == 1


def test_the_live_display_shows_trials_epochs_and_means(undisturbed: Comparison) -> None:
    text = io.StringIO()
    console = Console(file=text, width=110, force_terminal=True, color_system=None)
    display = Display(console)

    def shown() -> str:
        with console.capture() as capture:
            console.print(display._render())
        return " ".join(capture.get().split())

    trials = [Trial("vanilla", "gcs", 3, 1, fold) for fold in range(3)]
    display.start(trials=trials, finished=undisturbed.records[:4], workers=1)
    try:
        assert "0/3 trials" in shown()
        display.trial_started(trials[0])
        assert "vanilla gcs-3, fold 0, repeat 1" in shown()
        display.epoch_finished(7, 50, 0.625)
        assert "7/50 epochs validation 62.5 %" in shown()
        display.trial_finished(undisturbed.records[0])
        assert "1/3 trials" in shown()
        assert " left" in shown()
        assert "accuracy so far: " in shown()
        display.note("a note")
    finally:
        display.stop()
    assert "epochs" not in shown()
    assert "a note" in text.getvalue()


def test_our_processes_keep_freed_memory_where_the_c_library_can():
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")


def test_measuring_is_no_part_of_the_time_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    real = trial_module.measurements

    def slow(*given: Any, **named: Any) -> Record:
        time.sleep(0.4)
        return real(*given, **named)

    monkeypatch.setattr(trial_module, "measurements", slow)
    begin = time.perf_counter()
    record = trial_module.run_trial(
        tiny_store(),
        Trial("vanilla", "gcs", 1, 0, 0),
        Settings(epochs=1),
        fingerprint="",
        source="",
    )
    assert record["seconds"] <= time.perf_counter() - begin - 0.4
