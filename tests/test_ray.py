"""The engine "ray": the records of the local engine, workers and nodes lost on the way."""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import graph_transplant as gt
from graph_transplant import training
from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments import ray_engine
from graph_transplant.experiments.compare import compare
from graph_transplant.experiments.engine import TrialError, run_trials
from graph_transplant.experiments.progress import Silent
from graph_transplant.experiments.protocol import Record, Settings, Trial, all_trials
from graph_transplant.experiments.records import record_line
from graph_transplant.experiments.trial import Job
from graph_transplant.training import EpochLog

pytestmark = [
    pytest.mark.cluster,
    # Ray leaves sockets and log files of its processes to the collector of garbage.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.timeout(600),
]

SETTINGS = Settings(folds=3, epochs=2, batch_size=16, hidden=16)
TRIALS = list(
    all_trials(methods=["vanilla", "transplant-dp"], models=["gcs"], layers=[2], repeats=2, folds=3)
)
# The condition must travel to the workers, too.
TRIALS.append(replace(TRIALS[-1], label_noise=0.25, train_fraction=0.5))
CULPRIT = TRIALS[3]


def few_graphs() -> gt.GraphStore:
    return gt.load("motifs").subset(range(0, 600, 10))


class Listening(Silent):
    """A reporter that remembers what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def run(scratch: Path, *, trials: Sequence[Trial] = TRIALS, **options: Any) -> list[Record]:
    records: list[Record] = []
    store = few_graphs()
    options = {"workers": 2, "engine": "ray", "reporter": Silent(), **options}
    run_trials(
        store,
        trials,
        SETTINGS,
        fingerprint=store.fingerprint(),
        source="motifs",
        scratch=scratch,
        finish=records.append,
        **options,
    )
    return records


def lines(records: Sequence[Record]) -> list[bytes]:
    """The bytes that must be equal between two runs: those of everything but the duration."""
    return sorted(
        record_line({key: item[key] for key in item if key not in ("seconds", "cost")})
        for item in records
    )


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The records of all trials, run one after another in this process."""
    return lines(run(tmp_path_factory.mktemp("here"), workers=1, engine="local"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of a head that runs no trials and two nodes of one processor each."""
    ray_engine._import_ray()
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        for name, value in ray_engine._QUIET.items():
            patch.setenv(name, value)
        patch.setenv("RAY_worker_niceness", "0")
        cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "num_gpus": 0, "include_dashboard": False},
        )
        try:
            for _ in range(2):
                cluster.add_node(num_cpus=1, num_gpus=0)
            cluster.wait_for_nodes(timeout=120)
            yield cluster
        finally:
            logging.getLogger("ray").setLevel(logging.ERROR)
            cluster.shutdown()


def test_other_versions_in_the_cluster_are_refused(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "__version__", "9.9.9")
    with pytest.raises(
        GraphTransplantError,
        match=r"the Ray node 127\.0\.0\.1:\d+ has graph-transplant .*; all nodes need 9\.9\.9",
    ):
        run(tmp_path, address=cluster.address)
    import ray

    assert not ray.is_initialized()
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_loses_a_node_ends_with_the_records_of_the_local_engine(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison: dict[str, Any] = {
        "methods": ["vanilla", "transplant-dp"],
        "layers": [2],
        "folds": 3,
        "repeats": 2,
        "epochs": 3,
        "batch_size": 16,
    }
    local = compare(few_graphs(), out=tmp_path / "local", **comparison)
    flag, real = tmp_path / "flag", ray_engine._run_there

    def node_killed_once(data: list[Any], trial: Trial, *rest: Any) -> Any:
        if trial == CULPRIT and not flag.exists():
            flag.touch()
            # The process of the node, which started this one: then the worker with it. A worker
            # alone would still finish its trial and hand over the record.
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return real(data, trial, *rest)

    monkeypatch.setattr(ray_engine, "_run_there", node_killed_once)
    reporter = Listening()
    out = tmp_path / "cluster"
    on_ray = compare(
        few_graphs(),
        out=out,
        engine="ray",
        address=cluster.address,
        reporter=reporter,
        **comparison,
    )
    assert flag.exists()
    assert len(on_ray.records) == (out / "records.jsonl").read_bytes().count(b"\n") == 12
    assert lines(on_ray.records) == lines(local.records)
    lost = [text for text in reporter.notes if text.startswith("a worker on Ray was lost (")]
    assert any(str(CULPRIT) in text for text in lost)


def test_a_cluster_with_a_node_just_lost_can_be_used(
    tmp_path: Path, cluster: Any, expected: list[bytes]
) -> None:
    # The lost node of the test before is listed until Ray has missed it for some time.
    assert lines(run(tmp_path, address=cluster.address)) == expected


def test_a_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class LostError(Exception):
        pass

    class Lost:
        """As much of Ray as is asked for versions; its one node is gone."""

        class exceptions:  # noqa: N801 - the name that Ray has
            RayError = LostError

        def nodes(self) -> list[dict[str, Any]]:
            address = {"NodeManagerAddress": "10.0.0.7", "NodeManagerPort": 80}
            return [{"Alive": True, "Resources": {"CPU": 1}, "NodeID": "ab" * 28, **address}]

        def remote(self, **options: Any) -> Any:
            return lambda function: Asked()

        def get(self, reference: Any, timeout: float) -> Any:
            raise LostError

    lost = Lost()
    with pytest.raises(
        GraphTransplantError, match=r"no node .* answers: 10\.0\.0\.7:80 \(LostError"
    ):
        ray_engine._check_versions(lost)
    monkeypatch.setattr(lost, "nodes", list)
    with pytest.raises(GraphTransplantError, match="has no node with a processor"):
        ray_engine._check_versions(lost)


class Asked:
    """A task of the cluster that does not answer."""

    def remote(self) -> str:
        return "reference"


def test_a_private_ray_gives_the_same_records_in_any_order_with_a_worker_killed(
    tmp_path: Path, expected: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    flag, epochs = tmp_path / "flag", tmp_path / "epochs"
    real = ray_engine._run_there

    def killed_once(data: list[Any], trial: Trial, job: Job) -> Any:
        def watch(log: EpochLog) -> None:
            with epochs.open("a") as file:
                file.write(f"{log.epoch} ")
            if log.epoch == 2 and not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        if trial != CULPRIT:
            return real(data, trial, job)
        training.CHECKPOINT_SECONDS = 0  # of this worker
        return job.run(ray_engine._load(job.fingerprint, data[0]), trial, [watch])

    # Defined in this function, it travels to the workers as code.
    monkeypatch.setattr(ray_engine, "_run_there", killed_once)
    reporter = Listening()
    (tmp_path / "out").mkdir()
    shuffled = random.Random(0).sample(TRIALS, len(TRIALS))
    records = run(tmp_path / "out", trials=shuffled, reporter=reporter)
    assert epochs.read_text() == "1 2 2 ", "it goes on from its checkpoint"
    assert lines(records) == expected
    (note,) = reporter.notes
    assert note == f"a worker on Ray was lost (WorkerCrashedError); running again: {CULPRIT}"
    assert list((tmp_path / "out").iterdir()) == []


def test_a_failing_trial_is_named_and_the_others_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(data: list[Any], trial: Trial, *rest: Any) -> Any:
        import time

        from graph_transplant.experiments.worker import failure_of

        if trial == CULPRIT:
            return failure_of(trial, ZeroDivisionError("a whole\nstory"))
        time.sleep(600)
        return None

    monkeypatch.setattr(ray_engine, "_run_there", failing)
    start = time.monotonic()
    with pytest.raises(TrialError) as caught:
        run(tmp_path, trials=[TRIALS[0], CULPRIT])
    assert str(caught.value) == f"trial {CULPRIT} failed: ZeroDivisionError: a whole"
    assert "story" in caught.value.details
    assert time.monotonic() < start + 300  # nobody waited for the one that sleeps
    import ray

    assert not ray.is_initialized()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:99999"])
def test_a_cluster_that_is_not_there_is_named_at_once(tmp_path: Path, address: str) -> None:
    start = time.monotonic()
    with pytest.raises(GraphTransplantError, match=rf"there is no Ray cluster at {address}: "):
        run(tmp_path, address=address)
    assert time.monotonic() < start + 60
    assert list(tmp_path.iterdir()) == []


def test_a_record_of_another_version_is_not_taken() -> None:
    record = {
        "method": "vanilla",
        "model": "gcs",
        "layers": 3,
        "repeat": 0,
        "fold": 1,
        "settings": {"version": "0.0.1"},
    }
    with pytest.raises(TrialError, match=r"fold 1 ran with graph-transplant 0\.0\.1 on a node"):
        ray_engine._check_record(record)
    ray_engine._check_record({**record, "settings": {"version": gt.__version__}})


def test_the_environment_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPH_TRANSPLANT_ONE", "kept")
    monkeypatch.delenv("GRAPH_TRANSPLANT_TWO", raising=False)
    variables = {"GRAPH_TRANSPLANT_ONE": "1", "GRAPH_TRANSPLANT_TWO": "2"}
    with ray_engine._environment(variables):
        assert os.environ["GRAPH_TRANSPLANT_ONE"] == "kept"
        assert os.environ["GRAPH_TRANSPLANT_TWO"] == "2"
    assert "GRAPH_TRANSPLANT_TWO" not in os.environ
