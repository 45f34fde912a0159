"""Times compare: nothing that happens once in a process is part of a trial's time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import graph_transplant as gt
from graph_transplant.augment import Augmentation, CleanPass, VirtualGraphs
from graph_transplant.comparison import run_trial as trial_module
from graph_transplant.comparison import run_trial as warm_up_module
from graph_transplant.comparison.run_trial import GRAPHS, machine, warm_up
from graph_transplant.errors import GraphTransplantError
from graph_transplant.figures import training
from graph_transplant.report import render_report
from graph_transplant.results.results import Results, read_results
from graph_transplant.utils.schema import plain
from helpers.made_up_records import BETTER, PLAIN, made_up, timeless
from helpers.page_samples import Page

SHORT: dict[str, Any] = {"folds": 3, "epochs": 2, "train_fraction": 0.2}

FIRST_CALL = 1000.0  # seconds that a first call takes


class Clock:
    """A clock that only first calls advance."""

    def __init__(self) -> None:
        self.now = 0.0
        self.called: set[str] = set()
        self.calls: list[int] = []

    def call(self, name: str, graphs: int) -> None:
        self.calls.append(graphs)
        if name not in self.called:
            self.called.add(name)
            self.now += FIRST_CALL


class Slow(Augmentation):
    """Plain training that is slow once in a process, as compilation is."""

    def __init__(self, name: str, clock: Clock) -> None:
        super().__init__()
        self.name, self.clock = name, clock

    def __deepcopy__(self, memo: object) -> Slow:
        return Slow(self.name, self.clock)

    def transform(self, plan: None, clean: CleanPass) -> VirtualGraphs:
        self.clock.call(self.name, clean.batch.num_graphs)
        return VirtualGraphs(batch=clean.batch, targets=clean.targets)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    read = SimpleNamespace(perf_counter=lambda: made.now, process_time=lambda: made.now)
    monkeypatch.setattr(trial_module, "time", read)
    monkeypatch.setattr(warm_up_module, "_warm", set())
    return made


def test_what_happens_once_in_a_process_is_in_the_time_of_no_trial(clock: Clock) -> None:
    methods = {name: Slow(name, clock) for name in ("first", "second")} | {"vanilla": []}
    results = gt.compare("motifs", methods=methods, **SHORT)
    assert clock.now == 2 * FIRST_CALL
    assert results.frame["processor_seconds"].max() < FIRST_CALL
    assert results.frame["seconds"].max() < FIRST_CALL
    # Once per method, with one step on a few graphs.
    steps = len(clock.calls)
    gt.compare("motifs", methods=methods, **SHORT)
    assert len(clock.calls) == 2 * steps - 2
    assert clock.calls[0] == GRAPHS


def test_methods_without_a_network_are_warmed_up(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = trial_module.fit_baseline

    def slow(name: str, train: gt.GraphStore, *parts: Any, **options: Any) -> Any:
        clock.call(name, len(train))
        return fit("majority", train, *parts, **options)

    monkeypatch.setattr(trial_module, "fit_baseline", slow)
    results = gt.compare("motifs", methods=["majority", "forest"], **SHORT)
    assert clock.now == 2 * FIRST_CALL
    assert results.frame["processor_seconds"].max() < FIRST_CALL


def test_a_warm_up_changes_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    methods = ["vanilla", "transplant-ep"]
    monkeypatch.setattr(warm_up_module, "_warm", set())
    warmed = gt.compare("motifs", methods=methods, **SHORT)
    monkeypatch.setattr(trial_module, "warm_up", lambda *given: None)
    cold = gt.compare("motifs", methods=methods, **SHORT)
    assert timeless(warmed.records) == timeless(cold.records)
    before = torch.get_rng_state()
    warm_up("drawing", lambda part: torch.rand(len(part)), gt.load("motifs"))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_warm_up_that_fails_leaves_the_trial_to_say_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Needy(Augmentation):
        def prepare(self, train: gt.GraphStore, generator: torch.Generator) -> None:
            if len(train) <= GRAPHS:
                raise ValueError("too few graphs")

        def transform(self, plan: None, clean: CleanPass) -> VirtualGraphs:
            return VirtualGraphs(batch=clean.batch, targets=clean.targets)

    monkeypatch.setattr(warm_up_module, "_warm", set())
    results = gt.compare("motifs", methods={"needy": Needy(), "vanilla": []}, **SHORT)
    assert results.methods == ["vanilla", "needy"]


def test_records_and_page_name_processor_and_threads(tmp_path: Path) -> None:
    results = gt.compare("motifs", methods=["vanilla", "drop-nodes"], **SHORT, out=tmp_path)
    for record in results.records:
        assert record.machine == replace(machine(), threads=1)
        assert record.machine.processor
    name = f"{machine().processor}, 1 thread"
    assert (
        f"processor {' '.join(name.split())}" in Page((tmp_path / "report.html").read_text()).text
    )
    assert set(results.frame["processor"]) == {machine().processor}
    # Earlier versions recorded neither.
    older = [replace(record, machine=None) for record in results.records]
    mixed = Results([*older[:3], *results.records[3:]])
    assert f"{name}; unknown" in render_report(mixed).replace("&#34;", '"')
    assert "processor</dt>" not in render_report(Results(older))


@pytest.mark.parametrize("machine", [3, {"processor": 3, "threads": 1}, {"processor": "x"}])
def test_a_machine_of_another_kind_is_no_record(machine: object, tmp_path: Path) -> None:
    record = plain(made_up("vanilla", PLAIN)[0]) | {"machine": machine}
    (tmp_path / "records.jsonl").write_text(json.dumps(record) + "\n")
    with pytest.raises(GraphTransplantError, match=r"line 1 is not a record .*machine"):
        read_results(tmp_path)


def test_one_slow_trial_does_not_make_a_method_slow() -> None:
    records = made_up("vanilla", PLAIN) + made_up("drop-nodes", BETTER)
    for number, record in enumerate(records):
        # 1 s and 2 s per epoch; the first trial took fifty times as long.
        seconds = (1.0 if number < 5 else 2.0) * (50 if number == 0 else 1)
        record.cost.update(fit_seconds=100 * seconds, epoch_seconds=seconds)
        record.cost["best_seconds"] = 50 * seconds
    table = training.cost_data(Results(records)).set_index("method")
    assert table.loc["vanilla", ["epoch_seconds", "epoch_low", "epoch_high"]].tolist() == [1.0] * 3
    assert table.loc["drop-nodes", ["epoch_ratio", "best_ratio"]].tolist() == [2.0, 100.0 / 50]
    text = Page(render_report(Results(records))).text
    assert "1 min 40 s" in text
    assert "3 min 20 s × 2.0" in text
