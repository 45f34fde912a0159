"""How well trials share a machine, and what running them in worker processes costs.

    python benchmarks/engines.py            # about three minutes on a quiet machine with two cores
    python benchmarks/engines.py --quick    # a first impression in under a minute

Two figures:

* Wall time of a grid of equal trials with two workers, divided by that with one, which needs no
  worker process. The two are there already when the clock starts. Half would be perfect; wanted is
  0.6 at most.
* What the engine adds to a trial in a worker process: wall time less the seconds that the trial
  itself says it took, as a share of a trial of 30 seconds. Wanted is 2 % at most. Every trial is a
  call of its own here, so that the file with the data is written and read each time: more than a
  trial of a grid has to bear. The start of the workers and their imports are measured by
  themselves: they come once, not per trial.

Measure on a quiet machine: whatever else runs takes a core from the second worker.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import graph_transplant as gt
from graph_transplant.comparison.engines import Execution, run_trials
from graph_transplant.comparison.run_trial import TrialContext
from graph_transplant.config.compare import Settings
from graph_transplant.results.record import Trial, TrialRecord, all_trials

LONG_TRIAL = 30.0
"""Seconds of the trial that the engine's cost is held against."""


def timed(
    store: gt.GraphStore, trials: Sequence[Trial], settings: Settings, workers: int
) -> tuple[float, list[TrialRecord]]:
    """Run trials and give the wall time and the records."""
    records: list[TrialRecord] = []
    fingerprint = store.fingerprint()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        job = TrialContext(settings, fingerprint, store.name)
        run_trials(
            Execution(
                store,
                trials,
                job,
                lambda done: records.append(done.record),
                workers=workers,
                scratch=Path(scratch),
            )
        )
    return time.perf_counter() - start, records


def equal_trials(count: int) -> list[Trial]:
    """List trials that take the same time: one method, one model, fold after fold."""
    grid = all_trials(methods=["vanilla"], models=["gcs"], layers=[3], repeats=count, folds=3)
    return list(grid)[:count]


def epochs_for(store: gt.GraphStore, settings: Settings, seconds: float) -> int:
    """Find how many epochs take about so long."""
    _, records = timed(store, equal_trials(2), settings, 1)
    return max(1, round(seconds / records[-1].seconds * settings.epochs))


def measure(trials: int, seconds: float, short_trials: int) -> dict[str, Any]:
    """Measure both figures: with a grid of trials of about so many seconds, and with short ones."""
    store = gt.load("motifs")
    load = os.getloadavg()[0]
    # Never stopped early: equal trials take equally long.
    brief = Settings(folds=3, epochs=1, stop_patience=10**9, decay_patience=10**9)
    start, _ = timed(store, equal_trials(1), brief, 2)
    epochs = epochs_for(store, replace(brief, epochs=10), seconds)
    walls: dict[int, float] = {}
    inside: dict[int, list[float]] = {}
    for workers in (1, 2):
        # Everything is imported, loaded and warm before the clock starts.
        timed(store, equal_trials(2 * workers), brief, workers)
        grid = equal_trials(trials)
        walls[workers], records = timed(store, grid, replace(brief, epochs=epochs), workers)
        inside[workers] = [record.seconds for record in records]

    added = []
    for trial in equal_trials(short_trials):
        wall, (record,) = timed(store, [trial], brief, 2)
        added.append(wall - record.seconds)
    overhead = statistics.median(added)
    return {
        "trials": trials,
        "epochs": epochs,
        "trial_seconds_one_worker": statistics.median(inside[1]),
        "trial_seconds_two_workers": statistics.median(inside[2]),
        "wall_one_worker": walls[1],
        "wall_two_workers": walls[2],
        "ratio": walls[2] / walls[1],
        "overhead_trials": short_trials,
        "overhead_seconds": overhead,
        "overhead_share": overhead / LONG_TRIAL,
        "start_seconds": start,
        "cores": os.cpu_count(),
        "load_before": load,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short trials: a first impression")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    chosen = parser.parse_args()
    trials, seconds, short_trials = (4, 1.0, 6) if chosen.quick else (8, 8.0, 24)
    figures = json.dumps(measure(trials, seconds, short_trials), indent=2)
    print(figures)
    if chosen.out:
        chosen.out.write_text(figures + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
