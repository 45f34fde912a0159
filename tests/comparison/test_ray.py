"""The engine "ray": the records of the local engine, workers and nodes lost on the way."""

from __future__ import annotations

import logging
import os
import random
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import graph_transplant as gt
from graph_transplant.comparison import engines
from graph_transplant.comparison.compare import compare
from graph_transplant.comparison.engines import Execution, check_engine, run_trials
from graph_transplant.comparison.run_trial import TrialContext, run_trial
from graph_transplant.config.compare import Settings
from graph_transplant.errors import GraphTransplantError
from graph_transplant.results.record import Trial, TrialRecord, all_trials
from graph_transplant.training import EpochLog, loop
from helpers.made_up_records import Counting, timeless

pytestmark = [
    pytest.mark.cluster,
    # Ray leaves sockets and log files of its processes to the collector of garbage.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.timeout(1800),
]

SETTINGS = Settings(folds=3, epochs=2, batch_size=16, hidden=16)
TRIALS = list(
    all_trials(methods=["vanilla", "transplant-dp"], models=["gcs"], layers=[2], repeats=1, folds=3)
)
# The condition must travel to the workers, too.
TRIALS.append(replace(TRIALS[-1], label_noise=0.25, train_fraction=0.5))
CULPRIT = TRIALS[3]


def few_graphs() -> gt.GraphStore:
    return gt.load("motifs").subset(range(0, 600, 10))


def run(scratch: Path, *, trials: Sequence[Trial] = TRIALS, **options: Any) -> list[TrialRecord]:
    records: list[TrialRecord] = []
    store = few_graphs()
    job, engine = (
        TrialContext(SETTINGS, store.fingerprint(), "motifs"),
        options.pop("engine", "ray"),
    )
    options = {"workers": 2, **options}
    run_trials(
        Execution(
            store, trials, job, lambda done: records.append(done.record), scratch=scratch, **options
        ),
        engine,
    )
    return records


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The records of all trials, run one after another in this process."""
    return timeless(run(tmp_path_factory.mktemp("here"), workers=1, engine="local"))


@pytest.fixture(scope="module")
def head() -> Iterator[Any]:
    """A cluster of a head that runs no trials."""
    check_engine("ray", None)  # imports Ray as the engine does
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")
        cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "num_gpus": 0, "include_dashboard": False},
        )
        try:
            yield cluster
        finally:
            logging.getLogger("ray").setLevel(logging.ERROR)
            cluster.shutdown()


@pytest.fixture(scope="module")
def cluster(head: Any) -> Any:
    """The cluster with two nodes of one processor each."""
    for _ in range(2):
        head.add_node(num_cpus=1, num_gpus=0)
    head.wait_for_nodes(timeout=600)
    return head


def test_a_cluster_without_processors_is_refused(tmp_path: Path, head: Any) -> None:
    with pytest.raises(GraphTransplantError, match="has no processor to run trials on"):
        run(tmp_path, address=head.address)
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_loses_a_node_ends_with_the_records_of_the_local_engine(
    tmp_path: Path, cluster: Any, expected: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    flag, real = tmp_path / "flag", engines.run_in_worker

    def node_killed_once(data: Any, trial: Trial, *rest: Any) -> Any:
        if trial == CULPRIT and not flag.exists():
            flag.touch()
            # The process of the node, which started this one: then the worker with it. A worker
            # alone would still finish its trial and hand over the record.
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return real(data, trial, *rest)

    monkeypatch.setattr(engines, "run_in_worker", node_killed_once)
    reporter = Counting()
    records = run(tmp_path / "out", address=cluster.address, reporter=reporter)
    assert flag.exists()
    assert timeless(records) == expected
    lost = [text for text in reporter.notes if text.startswith("a worker on Ray was lost (")]
    assert any(str(CULPRIT) in text for text in lost)
    # It can be used again, although the lost node is listed until Ray has missed it for some time.
    again = compare(
        few_graphs(), methods="vanilla", layers=2, folds=3, epochs=1, engine="ray",
        address=cluster.address,
    )  # fmt: skip
    assert len(again.records) == 3


def test_a_private_ray_gives_the_same_records_in_any_order_with_a_worker_killed(
    tmp_path: Path, expected: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    flag, epochs = tmp_path / "flag", tmp_path / "epochs"
    real = engines.run_in_worker

    def killed_once(data: Any, trial: Trial, job: TrialContext, version: str) -> Any:
        def watch(log: EpochLog) -> None:
            with epochs.open("a") as file:
                file.write(f"{log.epoch} ")
            if log.epoch == 2 and not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        if trial != CULPRIT:
            return real(data, trial, job, version)
        loop.CHECKPOINT_SECONDS = 0  # of this worker
        return run_trial(engines.worker_store(data, job.fingerprint), trial, job, [watch])

    # Defined in this function, it travels to the workers as code.
    monkeypatch.setattr(engines, "run_in_worker", killed_once)
    reporter = Counting()
    (tmp_path / "out").mkdir()
    shuffled = random.Random(0).sample(TRIALS, len(TRIALS))
    records = run(tmp_path / "out", trials=shuffled, reporter=reporter)
    assert epochs.read_text() == "1 2 2 ", "it goes on from its checkpoint"
    assert timeless(records) == expected
    (note,) = reporter.notes
    assert note == f"a worker on Ray was lost (WorkerCrashedError); running again: {CULPRIT}"
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:99999"])
def test_a_cluster_that_is_not_there_is_named_at_once(tmp_path: Path, address: str) -> None:
    with pytest.raises(GraphTransplantError, match=rf"there is no Ray cluster at {address}: "):
        run(tmp_path, address=address)
    assert list(tmp_path.iterdir()) == []
