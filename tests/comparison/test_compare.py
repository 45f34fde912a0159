"""Whole comparisons: resumed, killed, in parallel, summarised, worded."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, global_mean_pool

import graph_transplant as gt
from graph_transplant.augment import DropNodes, GraphTransplant, ManifoldMixup
from graph_transplant.comparison import engines
from graph_transplant.comparison import run_trial as trial_module
from graph_transplant.comparison.compare import compare
from graph_transplant.comparison.engines import CHECKPOINTS, TrialError
from graph_transplant.comparison.progress import Display
from graph_transplant.comparison.run_trial import TrialContext, checkpoint_of, run_trial
from graph_transplant.comparison.training_sets import split_of, trial_seed
from graph_transplant.config.compare import Settings
from graph_transplant.data import GraphStore
from graph_transplant.datasets.splits import prepare
from graph_transplant.errors import GraphTransplantError
from graph_transplant.metrics import METRICS
from graph_transplant.results.record import Sizes, Trial, TrialRecord, record_of
from graph_transplant.results.record_file import RecordStore
from graph_transplant.results.results import Results
from graph_transplant.training import EpochLog, loop
from graph_transplant.training.defaults import sampled_curve
from helpers.made_up_records import Counting, timeless
from helpers.processes import alive
from helpers.strategies import rings_and_stars


def tiny_store() -> GraphStore:
    return rings_and_stars(24, seed=0, name="tiny")


SMALL: dict[str, Any] = {"folds": 3, "epochs": 3, "batch_size": 8, "seed": 3}
CHAINS = [f"{'C' * size}{end}" for size in range(1, 11) for end in ("O", "N", "Cl")]


def run(out: Path | None, **changes: Any) -> Results:
    arguments = {"methods": ["vanilla", "transplant-dp"], **SMALL, **changes}
    return compare(arguments.pop("store", None) or tiny_store(), out=out, **arguments)


class Small(nn.Module):
    """A model as users write them."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.conv = GCNConv(features, 8)
        self.head = nn.Linear(8, outputs)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        out: Tensor = self.head(global_mean_pool(self.conv(x, edge_index).relu(), batch))
        return out


class Sums(nn.Module):
    """A model without message passing."""

    def __init__(self, store: GraphStore) -> None:
        super().__init__()
        self.head = nn.Linear(store.num_node_features, store.num_outputs)

    def forward(self, x: Tensor, batch: Tensor) -> Tensor:
        out: Tensor = self.head(global_mean_pool(x, batch))
        return out


def small(store: GraphStore) -> nn.Module:
    return Small(store.num_node_features, store.num_outputs)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A comparison of two methods, three folds and two repeats that nothing disturbed."""
    return run(tmp_path_factory.mktemp("undisturbed"), repeats=2)


def test_records_say_everything_about_a_trial(undisturbed: Results) -> None:
    assert len(undisturbed.records) == 12
    for record in undisturbed.records:
        assert record.data == "tiny"
        assert record.source == "tiny"
        assert record.fingerprint == tiny_store().fingerprint()
        for part in ("validation", "test"):
            names = {"accuracy", "ece", "adaptive_ece", "brier", "nll", "auroc"}
            assert set(getattr(record, part)) == names | {"average_precision"}
            assert 0 <= getattr(record, part)["accuracy"] <= 1
        assert record.sizes == Sizes(train=8, validation=8, test=8)
        assert 1 <= record.best_epoch <= record.epochs <= 3
        assert record.seconds > 0
        assert [point["epoch"] for point in record.curve] == [1, 2, 3]
        assert SMALL.items() <= record.settings.items()
        assert {"numerics": 2, "ties": "first", "shards": 1}.items() <= record.settings.items()


def test_methods_share_the_seed_of_a_fold_and_nothing_else_shares_one(
    undisturbed: Results,
) -> None:
    seeds: dict[tuple[int, int], set[int]] = {}
    for record in undisturbed.records:
        seeds.setdefault((record.repeat, record.fold), set()).add(record.seed)
    assert all(len(shared) == 1 for shared in seeds.values())
    assert len(set.union(*seeds.values())) == 6
    trial = Trial("vanilla", "gcs", 3, 0, 0)
    others = [replace(trial, model="gin"), replace(trial, layers=4), replace(trial, fold=1)]
    assert trial_seed(trial, 0) not in {trial_seed(other, 0) for other in others}
    assert trial_seed(trial, 0) != trial_seed(trial, 1)


def test_the_same_call_again_runs_nothing(undisturbed: Results) -> None:
    before = (undisturbed.directory / "records.jsonl").read_bytes()
    reporter = Counting()
    again = run(undisturbed.directory, repeats=2, reporter=reporter)
    assert not reporter.ran
    assert reporter.notes == [f"12 of 12 trials are in {undisturbed.directory} already"]
    assert (undisturbed.directory / "records.jsonl").read_bytes() == before
    assert again.summary().equals(undisturbed.summary())


def test_only_what_is_missing_runs_and_more_may_be_asked_for(
    tmp_path: Path, undisturbed: Results
) -> None:
    run(tmp_path, methods=["vanilla"])
    reporter = Counting()
    grown = run(tmp_path, repeats=2, reporter=reporter)
    assert len(reporter.ran) == 9
    assert reporter.stopped == 1
    assert timeless(grown.records) == timeless(undisturbed.records)
    assert grown.directory == tmp_path


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_killed_in_the_middle_and_resumed_gives_the_records_of_an_undisturbed_run(
    tmp_path: Path, undisturbed: Results
) -> None:
    data, out = tmp_path / "tiny.safetensors", tmp_path / "out"
    tiny_store().save(data)
    # It ends itself, as suddenly as anything else would, when the second record is on disk.
    code = f"""
import os, signal, sys
from pathlib import Path
from graph_transplant.comparison.compare import compare
from graph_transplant.comparison.progress import Reporter
from graph_transplant.data import GraphStore

class Killed(Reporter):
    left = 2
    def trial_finished(self, record):
        self.left -= 1
        if not self.left:
            me = os.getpid()
            print(Path(f"/proc/{{me}}/task/{{me}}/children").read_text(), flush=True)
            os.kill(me, signal.SIGKILL)

compare(GraphStore.load(sys.argv[1]), out=sys.argv[2], repeats=2, workers=2, reporter=Killed(),
        methods=["vanilla", "transplant-dp"], **{SMALL!r})
"""
    command = [sys.executable, "-c", code, str(data), str(out)]
    # Its workers hold the pipe until they end, which they do by themselves.
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=900)
    assert done.returncode == -signal.SIGKILL
    workers = [int(child) for child in done.stdout.split()]
    assert len(workers) >= 2
    finished = RecordStore(out).read()
    assert len(finished) == 2

    reporter = Counting()
    resumed = run(out, repeats=2, reporter=reporter)
    assert len(reporter.ran) == 12 - len(finished)
    assert timeless(resumed.records) == timeless(undisturbed.records)
    assert not any(alive(worker) for worker in workers)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ["vanila"]}, r"`methods` must be one of .*did you mean 'vanilla'"),
        ({"methods": []}, "`methods` must have at least one value, got none"),
        ({"model": ["gcx"]}, "`model` must be one of"),
        ({"methods": {"mine": 3}}, "'mine' must be an Augmentation, a list of them or a name"),
        ({"methods": {"mine": "vanila"}}, "did you mean 'vanilla'"),
        ({"model": {"mine": "gcs"}}, "'mine' must be a function that makes a model"),
        ({"layers": [3, 0]}, "`layers` must be at least 1, got 0"),
        ({"layers": 2.5}, "`layers` must be a whole number, got 2.5"),
        ({"epochs": 1.5}, "`epochs` must be a whole number, got 1.5"),
        ({"learning_rate": "x"}, "`learning_rate` must be above 0, got 'x'"),
        ({"fold": 3}, "there is no option 'fold'; did you mean 'folds'"),
        ({"hidden": 8}, "`hidden` does not apply to a GraphStore, which takes no options"),
        ({"workers": 0}, "`workers` must be at least 1, got 0"),
        ({"folds": 2}, "`folds` must be at least 3, got 2"),
        ({"folds": 13}, "class 0 has only 12 graphs, class 1 has only 12 graphs"),
        (
            {"methods": {"majority": DropNodes()}},
            "majority.*keep their names; got .* as 'majority'",
        ),
        ({"methods": {"forest:mine": DropNodes()}}, "got .* as 'forest:mine'"),
        ({"layers": [2, 3], "model": {"small": small}}, "`layers` must be a single number for mod"),
        ({"methods": {"rf": "forest"}}, "keep their names; got 'forest' as 'rf'"),
        ({"model": small}, r"a dict of functions, such as \{'mine': function\}"),
        ({"model": {"small": Small(3, 2)}}, "must be a function that makes a model"),
        ({"model": {"small": lambda store: None}}, "must return an nn.Module; got NoneType"),
        (
            {"methods": ["vanilla", "manifold-mixup"], "model": {"small": small}},
            "known only in a plain graph_transplant.GraphClassifier",
        ),
        (
            {"methods": {"mine": ManifoldMixup()}, "model": {"small": small}},
            "known only in a plain graph_transplant.GraphClassifier",
        ),
    ],
)
def test_bad_arguments_are_named_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        run(tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists()


def test_a_failing_trial_is_named_and_finished_ones_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Results
) -> None:
    def failing(store: GraphStore, trial: Trial, *given: Any) -> TrialRecord:
        if trial == Trial("vanilla", "gcs", 3, 0, 1):
            raise ZeroDivisionError("a whole\nstory")
        return run_trial(store, trial, *given)

    reporter = Counting()
    with monkeypatch.context() as patch:
        patch.setattr(engines, "run_trial", failing)
        with pytest.raises(TrialError) as caught:
            run(tmp_path, reporter=reporter)
    assert str(caught.value) == (
        "trial vanilla, gcs with 3 layers, repeat 0, fold 1 failed: ZeroDivisionError: a whole"
    )
    assert "Traceback" in caught.value.details
    assert reporter.stopped == 1
    assert len(RecordStore(tmp_path).read()) == 2
    assert timeless(run(tmp_path, repeats=2).records) == timeless(undisturbed.records)


@pytest.mark.parametrize("fresh", [False, True])
def test_an_interrupted_trial_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Results, fresh: bool
) -> None:
    class Interrupting(Counting):
        def epoch_finished(self, epoch: int, epochs: int, validation_score: float) -> None:
            if len(self.ran) == 3 and epoch == 3:
                os.kill(os.getpid(), signal.SIGINT)

    class Listening(Counting):
        def epoch_finished(self, epoch: int, epochs: int, validation_score: float) -> None:
            heard.append(epoch)

    heard: list[int] = []
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, repeats=2, reporter=Interrupting())
    assert len(RecordStore(tmp_path).read()) == 3
    assert len(list((tmp_path / ".checkpoints").iterdir())) == 1
    (begun,) = (tmp_path / ".checkpoints").iterdir()
    begun.with_name(f"{begun.name}.7.part").touch()  # of a process that was killed
    mine = tmp_path / "checkpoints" / "mine.pt"
    mine.parent.mkdir()
    mine.touch()
    if not fresh:  # other trials leave the checkpoint of this one alone
        run(tmp_path, methods="majority", repeats=1)
        assert begun.exists()
    resumed = run(tmp_path, repeats=2, reporter=Listening(), fresh=fresh)
    assert heard == (12 * [1, 2, 3] if fresh else [3, *(8 * [1, 2, 3])])
    networks = [record for record in resumed.records if record.method != "majority"]
    assert timeless(networks) == timeless(undisturbed.records)
    assert not (tmp_path / ".checkpoints").exists()
    assert mine.exists()


def test_checkpoints_of_different_names_are_different_files(tmp_path: Path) -> None:
    names = ["α", "β", "my aug", "my_aug", "x" * 300, "x" * 301]
    found = {checkpoint_of(tmp_path, Trial(name, "gcs", 3, 0, 0)).name for name in names}
    assert len(found) == len(names)
    assert all(len(name) < 200 for name in found)


def test_a_long_curve_is_thinned_and_a_short_one_kept() -> None:
    fields = dict.fromkeys([one.name for one in dataclasses.fields(EpochLog)], 0.5)
    logs = [
        EpochLog(**fields | {"epoch": epoch, "train_loss": 1 / epoch, "measurements": {"edges": 1}})
        for epoch in range(1, 1001)
    ]
    curve = sampled_curve(logs)
    assert len(curve) == 60
    assert (curve[0]["epoch"], curve[-1]["epoch"]) == (1, 1000)
    assert all(point["train_loss"] == 1 / point["epoch"] for point in curve)
    gaps = {after["epoch"] - before["epoch"] for before, after in itertools.pairwise(curve)}
    assert gaps <= {16, 17, 18}
    assert [point["measurements"] for point in sampled_curve(logs[:2])] == [{"edges": 1}] * 2


# Methods and models of one's own ---------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the model takes no `edge_weight`")
def test_own_methods_and_models_run_by_name_and_are_not_run_again(tmp_path: Path) -> None:
    methods = {"vanilla": [], "mine": DropNodes(0.4), "both": [DropNodes(0.2), GraphTransplant()]}
    logs: list[EpochLog] = []
    first, second, third = Counting(), Counting(), Counting()
    found = run(
        tmp_path, methods=methods, model={"small": small}, reporter=first, callbacks=[logs.append]
    )
    assert len(first.ran) == 9
    assert [log.epoch for log in logs] == 9 * [1, 2, 3]
    assert set(found.methods) == set(methods)
    assert found.frame["model"].unique().tolist() == ["small"]
    # Nobody knows how many layers it has.
    assert {group.title for group in found.verdicts} == {"small"}
    assert str(first.ran[0]) == "vanilla, small, repeat 0, fold 0"
    again = run(tmp_path, methods=methods, model={"small": small}, reporter=second)
    assert second.ran == []
    assert again.frame.equals(found.frame)
    # Names of methods that come with the package may stand beside them; this one learns as well.
    more = methods | {"edges": "transplant-ep"}
    run(tmp_path, methods=more, model={"small": small}, reporter=third)
    assert {trial.method for trial in third.ran} == {"edges"}


def test_models_with_lazy_layers_start_from_the_seed(tmp_path: Path) -> None:
    class Lazy(Small):
        def __init__(self, features: int, outputs: int) -> None:
            super().__init__(-1, outputs)

    arguments: dict[str, Any] = {"methods": "vanilla", "epochs": 1}
    arguments["model"] = {"lazy": lambda store: Lazy(0, store.num_outputs)}
    first, second = (run(tmp_path / name, **arguments).records for name in "ab")
    assert timeless(first) == timeless(second)


def test_own_methods_start_anew_in_every_trial_and_reach_workers_as_smiles_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Workers read the graphs from a file that holds no SMILES, which the forest needs.
    methods = {"mine": GraphTransplant(), "forest": "forest"}
    arguments = {"methods": methods, "model": {"small": small}, "epochs": 1}
    store = gt.load(CHAINS, y=[0, 1] * 15)
    monkeypatch.setitem(METRICS, "own", replace(METRICS["accuracy"], title="Own"))
    here = run(tmp_path / "here", store=store, **arguments)
    # Callbacks are called in this process only, and need not reach others.
    with open(tmp_path / "log", "w") as file:
        callbacks = [lambda log: print(log, file=file)]
        there = run(tmp_path / "there", store=store, **arguments, workers=2, callbacks=callbacks)
    assert timeless(here.records) == timeless(there.records)
    assert all("own" in record.test for record in there.records)
    monkeypatch.delitem(METRICS, "own")  # workers are used again
    later = run(tmp_path / "later", methods="majority", epochs=1, workers=2)
    assert not any("own" in record.test for record in later.records)
    parameters = [record.parameters for record in there.records if record.method == "forest"]
    assert len(parameters) == 3
    assert {given["features"] for given in parameters} <= {"fingerprints", "both", "descriptors"}


def test_numbers_of_numpy_and_models_without_messages(tmp_path: Path) -> None:
    """Records hold plain numbers; saliency is left out where no module passes messages."""
    numbers = {"folds": np.int64(3), "seed": np.int64(0), "layers": np.arange(1, 2)}
    found = run(
        tmp_path, methods="vanilla", model={"auto": Sums}, epochs=1, **numbers,
        learning_rate=np.float32(0.01),
    )  # fmt: skip
    assert found.frame["model"].tolist() == ["auto"] * 3
    assert not any(record.saliency for record in found.records)


def test_without_a_directory_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = run(None, methods="vanilla", model="gin", layers=1, epochs=1)
    assert len(found.frame) == 3
    assert found.directory is None
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(GraphTransplantError, match="`path` must name the page to write"):
        found.report()


# Progress -------------------------------------------------------------------------------------


def test_the_live_display_shows_trials_and_epochs(undisturbed: Results) -> None:
    text = io.StringIO()
    display = Display(Console(file=text, width=110, force_terminal=True, color_system=None))
    trials = [Trial("vanilla", "gcs", 3, 1, fold) for fold in range(3)]
    display.start(trials=trials, finished=undisturbed.records[:4], workers=1)
    try:
        display.trial_started(trials[0])
        display.epoch_finished(7, 50, 0.625)
        display._progress.refresh()
        display.trial_finished(undisturbed.records[0])
        display._progress.refresh()
    finally:
        display.stop()
    for words in ("epochs of vanilla, gcs with 3 layers", "7/50", "[1/3] ", "1/3"):
        assert words in text.getvalue()


def test_measuring_is_no_part_of_the_time_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def slow(*given: Any, **named: Any) -> dict[str, Any]:
        nonlocal now
        now = 1e9
        return {}

    clock = SimpleNamespace(perf_counter=lambda: now, process_time=lambda: now)
    monkeypatch.setattr(trial_module, "time", clock)
    monkeypatch.setattr(trial_module, "saliency_quality", slow)
    job = TrialContext(Settings(epochs=1), "", "")
    record = run_trial(tiny_store(), Trial("vanilla", "gcs", 1, 0, 0), job).record
    assert now == 1e9
    assert record.seconds < 1e9


def test_a_data_frame_is_compared_and_duplicates_stay_in_one_fold() -> None:
    pytest.importorskip("rdkit")
    frame = pd.DataFrame({"mol": [*CHAINS, "OC", "OCC"], "active": [0, 1] * 16})
    arguments = {"methods": ["majority", "vanilla"], "folds": 3, "epochs": 1, "layers": 1}
    results = gt.compare(frame, smiles="mol", target="active", **arguments)
    assert set(results.frame["method"]) == {"majority", "vanilla"}
    assert {record.settings["metric"] for record in results.records} == {"auroc"}
    assert all(record.settings["group_duplicates"] for record in results.records)
    store = prepare(gt.load(frame, smiles="mol", target="active"), "folds", group_duplicates=True)
    assert store.groups is not None
    settings = Settings(folds=3, group_duplicates=True)
    for fold in range(3):
        split = split_of(store, Trial("vanilla", "gine", 1, repeat=0, fold=fold), settings)
        for one, other in ((0, 30), (3, 31)):  # CO and OC, CCO and OCC
            for part in (split.train, split.validation, split.test):
                assert (one in part.tolist()) == (other in part.tolist())
    # Named data sets keep their folds.
    named = gt.compare("motifs", methods=["majority"], folds=3)
    assert not any(record.settings["group_duplicates"] for record in named.records)


def test_resuming_with_fewer_methods_keeps_all_that_others_have(tmp_path: Path) -> None:
    whole = ["vanilla", "drop-nodes"]
    undisturbed = run(tmp_path / "whole", methods=whole, repeats=2)
    out = tmp_path / "out"
    run(out, methods=whole)
    path = out / "records.jsonl"
    *kept, last = path.read_bytes().splitlines(keepends=True)
    assert json.loads(last)["method"] == "drop-nodes"
    path.write_bytes(b"".join(kept))  # stopped in the last trial, of which there is a checkpoint
    waiting = checkpoint_of(out / CHECKPOINTS, record_of(json.loads(last)).trial)
    waiting.parent.mkdir()
    waiting.write_bytes(b"of the interrupted trial")
    outputs = {file: file.read_bytes() for file in (out / "predictions").iterdir()}
    fewer = run(out, methods="vanilla", repeats=2)
    assert path.read_bytes().startswith(b"".join(kept))
    assert {file: file.read_bytes() for file in outputs} == outputs
    assert waiting.exists()
    assert fewer.frame["method"].value_counts().to_dict() == {"vanilla": 6, "drop-nodes": 2}
    reporter = Counting()
    resumed = run(out, methods=whole, repeats=2, reporter=reporter)
    assert len(reporter.ran) == 4
    assert timeless(resumed.records) == timeless(undisturbed.records)
    assert not waiting.exists()


def test_a_list_of_methods_takes_augmentations() -> None:
    quick: dict[str, Any] = {"epochs": 1, "folds": 3, "layers": 1}
    results = compare("motifs", graphs=60, methods=["vanilla", DropNodes(0.3)], **quick)
    assert set(results.frame["method"]) == {"vanilla", "DropNodes"}
    with pytest.raises(GraphTransplantError, match="more than one; name them in a dict"):
        compare("motifs", methods=[DropNodes(0.1), DropNodes(0.4)])
