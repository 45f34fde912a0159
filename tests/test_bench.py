"""The benchmark measures what it says; how fast anything is, is not tested."""

from __future__ import annotations

import importlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from rich.console import Console

import graph_transplant as gt
from graph_transplant.augment import METHODS
from graph_transplant.augment import methods as registry
from graph_transplant.augment.methods import Method

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "bench.py"


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        # Where Python looks when the script runs as one.
        patch.syspath_prepend(str(SCRIPT.parent))
        yield importlib.import_module("bench")
        for name in ("bench", "methods"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def methods(bench: ModuleType) -> ModuleType:
    return sys.modules["methods"]


@pytest.fixture(scope="module")
def store() -> gt.GraphStore:
    return gt.load("motifs").subset(range(24))


def continuous_store() -> gt.GraphStore:
    """Graphs with continuous features far from mean 0 and deviation 1."""
    generator = torch.Generator().manual_seed(0)
    ring = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
    return gt.GraphStore(
        x=torch.rand(12, 3, generator=generator) * 50 + 7,
        edge_index=ring.repeat(1, 4),
        y=torch.tensor([0, 1, 0, 1]),
        node_counts=torch.full((4,), 3),
        edge_counts=torch.full((4,), 6),
        num_continuous=2,
    )


def featureless_store() -> gt.GraphStore:
    """The same graphs without features: models see degrees."""
    given = continuous_store()
    return gt.GraphStore(
        x=None,
        edge_index=given.edge_index,
        y=given.y,
        node_counts=given.node_counts,
        edge_counts=given.edge_counts,
    )


@pytest.mark.parametrize("make", [continuous_store, featureless_store])
def test_the_pyg_contender_is_the_same_network_on_the_same_data(bench, make):
    given = make()
    mine = bench.make_model(given).eval()
    graphs = bench.PygData(given, torch.arange(len(given)))
    theirs = bench.PygClassifier(graphs.num_node_features, given.num_outputs).eval()
    with torch.no_grad():
        for one, other in zip(mine.convolutions, theirs.convolutions, strict=True):
            other.lin.weight.copy_(one.linear.weight)
            other.bias.copy_(one.linear.bias)
        theirs.head.load_state_dict(mine.head.state_dict())
        batch = next(iter(bench.DataLoader(graphs, batch_size=len(given))))
        expected = mine(given.batch(range(len(given)))).logits
        assert torch.allclose(theirs(batch), expected, atol=1e-5)


def test_every_contender_takes_one_step_per_batch(bench, store):
    batches = bench.random_batches(store, 8, 3)
    for name, make in bench.CONTENDERS.items():
        losses = torch.stack(list(make(store, batches)))
        assert losses.shape == (3,), name
        assert bool(torch.isfinite(losses).all()), name


def test_the_weights_of_the_floor_are_those_of_our_dense_layers(bench, store):
    model = bench.make_model(store)
    assert len(list(model.convolutions)) == bench.LAYERS
    dense = [m for m in model.convolutions.modules() if isinstance(m, torch.nn.Linear)]
    assert len(dense) == bench.LAYERS


def test_batches_are_the_same_for_all_and_hold_no_graph_twice(bench, store):
    first, second = (bench.random_batches(store, 10, 4) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert all(len(part.unique()) == 10 for part in first)
    assert len(bench.random_batches(store, 100, 1)[0]) == len(store)


def test_rounds_interleave_and_warm_up_does_not_count(bench):
    calls: list[str] = []
    times = bench.interleave({name: lambda name=name: calls.append(name) for name in "abc"}, 4)
    assert {name: len(values) for name, values in times.items()} == {"a": 4, "b": 4, "c": 4}
    rounds = [calls[i : i + 3] for i in range(0, len(calls), 3)]
    assert len(rounds) == 4 + bench.WARM_UP
    assert all(sorted(turn) == ["a", "b", "c"] for turn in rounds)
    assert {turn[0] for turn in rounds} == {"a", "b", "c"}


def test_what_is_done_before_a_call_is_not_timed(bench, methods, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(methods.time, "process_time", lambda: now[0])

    def spend(seconds: float) -> None:
        now[0] += seconds

    runs = {"alone": lambda: spend(1.0), "with": lambda: spend(2.0)}
    times = bench.interleave(runs, 2, {"with": lambda: spend(100.0)})
    assert times == {"alone": [1e3, 1e3], "with": [2e3, 2e3]}
    assert now[0] == (1.0 + 2.0 + 100.0) * (2 + bench.WARM_UP)


class Recording(gt.Augmentation):
    """The original graphs again; writes down how it was used."""

    def __init__(self, refuse: str = "") -> None:
        super().__init__()
        self.refuse = refuse
        self.calls: list[str] = []
        self.passes: list[gt.CleanPass] = []

    def check(self, model, data):
        self.calls.append("check")
        if self.refuse:
            raise gt.DataError(self.refuse)

    def prepare(self, train, generator):
        self.calls.append(f"prepare {len(train)}")

    def after_epoch(self, model, validation):
        self.calls.append("after_epoch, training" if model.training else "after_epoch")
        return {}

    def forward(self, clean, *, model, generator):
        assert model.training
        assert isinstance(generator, torch.Generator)
        self.calls.append("forward")
        self.passes.append(clean)
        return gt.VirtualGraphs(batch=clean.batch, targets=clean.targets)


def only(given: dict[str, Method], bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be these methods. The table itself stays as it is, the order of its rows too."""
    monkeypatch.setattr(bench, "METHODS", given)
    monkeypatch.setattr(registry, "METHODS", given)


def made_by(build: Callable[..., tuple[gt.Augmentation, ...]]) -> Method:
    return replace(METHODS["vanilla"], build=build)


def test_a_method_is_made_ready_as_a_training_would(methods, store, monkeypatch):
    recording = Recording()
    monkeypatch.setitem(METHODS, "recording", made_by(lambda model: (recording,)))
    ready = methods.Ready.of("recording", store)
    assert recording.calls == ["check", f"prepare {len(store)}", "after_epoch"]
    assert ready.model.training
    assert ready.augmentations == (recording,)
    assert ready.prepare_seconds >= 0


def test_each_augmentation_call_gets_a_finished_pass_of_its_own(methods, store, monkeypatch):
    recording = Recording()
    monkeypatch.setitem(METHODS, "recording", made_by(lambda model: (recording,)))
    batches = methods.random_batches(store, 8, 3)
    alone = methods.AugmentationOnly(methods.Ready.of("recording", store), store, batches)
    for number, numbers in enumerate(batches):
        alone.predict()
        (virtual,) = alone()
        clean = recording.passes[number]
        assert torch.equal(clean.batch.y, store.y[numbers])
        assert virtual.batch is clean.batch
        assert {"prediction", "loss"} <= set(vars(clean)), "the clean pass is finished"
        assert clean._saliency == {}, "saliency is read within the call"
        assert clean.prediction.logits.requires_grad
    assert len({id(clean) for clean in recording.passes}) == 3
    with pytest.raises(RuntimeError, match="predict"):
        alone()


def test_all_methods_are_measured_and_refusals_told(methods, store, monkeypatch):
    given = {
        "vanilla": METHODS["vanilla"],
        "recording": made_by(lambda model: (Recording(),)),
        "picky": made_by(lambda model: (Recording("picky needs [edge] attributes"),)),
        "transplant-dp": METHODS["transplant-dp"],
    }
    only(given, methods, monkeypatch)
    measured = methods.measure_methods(store, 2)
    assert measured["data"] == "motifs"
    assert measured["batch_size"] == len(store)
    assert measured["rounds"] == 2
    assert measured["wanted"] == 0.5
    assert measured["refused"] == {"picky": "picky needs [edge] attributes"}
    assert list(measured["ratios"]) == ["vanilla", "recording", "transplant-dp"]
    assert measured["ratios"]["vanilla"]["step"] == 1.0
    assert measured["ratios"]["transplant-dp"]["augmentation"] > 0
    assert all(
        set(entry) == {"augmentation", "pass", "step", "prepare_seconds"}
        for entry in measured["ratios"].values()
    )


def test_ratios_of_methods_are_of_medians_to_the_vanilla_step(methods, store, monkeypatch):
    only({name: METHODS[name] for name in ("vanilla", "transplant-dp")}, methods, monkeypatch)

    def interleave(runs, rounds, before):
        assert set(before) == {"vanilla augmentation", "transplant-dp augmentation"}
        passes = {"vanilla augmentation": [0.0] * 3, "transplant-dp augmentation": [1.0, 2.0, 3.0]}
        for name, milliseconds in passes.items():  # as if the model had run within each call
            runs[name].passes = [99.0] * methods.WARM_UP + milliseconds
        times = {name: [10.0, 20.0, 90.0] for name in runs}
        return {**times, "transplant-dp augmentation": [2.0, 7.0, 83.0]}

    monkeypatch.setattr(methods, "interleave", interleave)
    measured = methods.measure_methods(store, 3)
    assert measured["vanilla_milliseconds"] == 20.0
    assert measured["ratios"]["transplant-dp"]["augmentation"] == 0.25
    assert measured["ratios"]["transplant-dp"]["pass"] == 0.1
    assert measured["ratios"]["transplant-dp"]["step"] == 1.0


def test_a_pass_of_the_model_within_the_call_is_kept_apart(methods, store):
    batches = methods.random_batches(store, 8, 2)
    alone = methods.AugmentationOnly(methods.Ready.of("m-evolve", store), store, batches)
    for number in range(2):
        alone.predict()
        (virtual,) = alone()
        assert virtual.embedding is not None
        assert len(alone.passes) == number + 1
        assert alone.passes[-1] > 0
    assert "embed_graphs" not in vars(alone.ready.model), "the model is as it was"
    plain = methods.AugmentationOnly(methods.Ready.of("drop-nodes", store), store, batches)
    plain.predict()
    plain()
    assert plain.passes == [0.0]


def test_the_table_of_methods_marks_what_misses_the_aim(methods):
    def entry(alone: float, seconds: float = 0.0) -> dict[str, float]:
        return {"augmentation": alone, "pass": 0.0, "step": 2.0, "prepare_seconds": seconds}

    measured = {
        "data": "motifs",
        "batch_size": 128,
        "rounds": 3,
        "vanilla_milliseconds": 20.0,
        "ratios": {
            "fast": entry(0.5),
            "slow": entry(0.75),
            "learned": entry(0.1, 1.25),
            "filter": {**entry(0.2), "pass": 0.33},
        },
        "refused": {"picky": "it needs edge attributes"},
    }
    shown = io.StringIO()
    console = Console(file=shown, width=120, force_terminal=True, color_system="standard")
    console.print(methods.methods_table(measured))
    lines = {line.split()[0]: line for line in shown.getvalue().splitlines() if line.split()}
    red, green = "\x1b[31m", "\x1b[32m"
    assert f"{green}0.50" in lines["fast"]
    assert f"{red}0.75 > 0.5" in lines["slow"]
    assert ">" not in lines["fast"]
    assert "15.0 ms" in lines["slow"]
    assert "40.0 ms" in lines["slow"]
    assert " s " not in lines["slow"]
    assert "1.25 s" in lines["learned"]
    caption = " ".join(re.sub("\x1b\\[[0-9;]*m", "", shown.getvalue()).split())
    assert "filter also embeds the virtual graphs (0.33)" in caption
    assert "fast also" not in caption
    assert "refused" in lines["picky"]


def test_ratios_are_of_medians(bench):
    times = {"pyg-vanilla": [2.0, 4.0, 100.0], "floor": [1.0, 1.0, 50.0]}
    assert bench.ratios(times) == {"pyg-vanilla": 1.0, "floor": 0.25}


def test_random_graphs_have_the_asked_sizes(bench):
    given = bench.random_store(5, 40, degree=6)
    assert len(given) == 5
    assert given.undirected
    assert given.node_counts.tolist() == [40] * 5
    assert 4.5 < given.edge_counts.double().mean() / 40 < 6.0


def test_scaling_grows_in_two_ways_from_one_size(bench):
    scaling = bench.measure_scaling(1, graphs=4, nodes=8)
    assert set(scaling) == {"larger graphs", "more graphs"}
    for entries in scaling.values():
        items = [entry["nodes_and_edges"] for entry in entries]
        assert items == sorted(items)
        assert len(entries) == 3
        assert entries[0]["relative"] == 1.0


def test_a_whole_run_writes_what_it_shows(bench, store, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "load_stores", lambda console: {"motifs": store})
    monkeypatch.setattr(bench, "QUICK_ROUNDS", {"motifs": 2})
    monkeypatch.setattr(bench, "QUICK_METHOD_ROUNDS", 1)
    monkeypatch.setattr(bench, "measure_scaling", lambda rounds: {})
    real = gt.load
    monkeypatch.setattr(bench.gt, "load", lambda name: real(name, graphs=24))
    shown = io.StringIO()
    out = tmp_path / "bench.json"
    bench.run_bench(True, out, Console(file=shown, width=120))
    written = json.loads(out.read_text(encoding="utf-8"))
    assert list(written["motifs"]) == list(bench.CONTENDERS)
    assert written["motifs"]["pyg-vanilla"] == 1.0
    assert written["milliseconds"]["motifs"] > 0
    assert written["machine"]["threads"] == torch.get_num_threads()
    assert "motifs" in shown.getvalue()
    assert "transplant-ep" in shown.getvalue()
    every = written["methods"]
    assert every["data"] == "motifs"
    assert sorted([*every["ratios"], *every["refused"]]) == sorted(METHODS)
    assert list(every["refused"]) == ["mask-nodes"], "motifs have no node features to mask"
    assert f"mask-nodes is left out: {every['refused']['mask-nodes']}" in shown.getvalue()
    for name in METHODS:
        assert name in shown.getvalue()


def test_methods_are_measured_on_enzymes_where_that_is(bench, store, monkeypatch, tmp_path):
    enzymes = gt.GraphStore(
        x=store.x,
        edge_index=store.edge_index,
        y=store.y,
        node_counts=store.node_counts,
        edge_counts=store.edge_counts,
        name="ENZYMES",
    )
    measured: list[str] = []

    def measure(given, rounds):
        measured.append(f"{given.name} {rounds}")
        return {"refused": {}}

    monkeypatch.setattr(bench, "load_stores", lambda console: {"NCI1": store, "ENZYMES": enzymes})
    monkeypatch.setattr(bench, "measure_steps", lambda *given: {"pyg-vanilla": [1.0], "floor": [1]})
    monkeypatch.setattr(bench, "measure_methods", measure)
    monkeypatch.setattr(bench, "methods_table", lambda given: "")
    monkeypatch.setattr(bench, "measure_scaling", lambda rounds: {})
    bench.run_bench(False, tmp_path / "bench.json", Console(file=io.StringIO()))
    assert measured == [f"ENZYMES {bench.METHOD_ROUNDS}"]


def test_without_data_sets_it_says_so_and_takes_the_motifs(bench, monkeypatch):
    real = gt.load

    def load(name: str) -> gt.GraphStore:
        if name == "motifs":
            return real(name)
        raise gt.DataError(f"there is no {name} here")

    monkeypatch.setattr(bench.gt, "load", load)
    shown = io.StringIO()
    assert list(bench.load_stores(Console(file=shown, width=200))) == ["motifs"]
    assert "there is no COLLAB here" in shown.getvalue()
    assert "GRAPH_TRANSPLANT_DATA" in shown.getvalue()


def test_any_method_can_be_profiled(bench, monkeypatch):
    real = gt.load
    monkeypatch.setattr(bench.gt, "load", lambda name: real(name, graphs=24))
    monkeypatch.setattr(bench, "WARM_UP", 1)
    table = bench.run_profile("transplant-size-label", "motifs", steps=1)
    assert table.startswith("transplant-size-label on motifs: 1 steps")
    assert "aten::" in table


def test_it_runs_as_a_script():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--help"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "node-sam" in done.stdout


def test_an_unknown_contender_is_one_clear_message(bench, capsys):
    with pytest.raises(SystemExit) as ended:
        bench.main(["--profile", "transplant", "motifs"])
    assert ended.value.code == 2
    assert "transplant-dp" in capsys.readouterr().err
