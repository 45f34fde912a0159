"""The benchmark measures what it says; how fast anything is, is not tested."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from rich.console import Console

import graph_transplant as gt

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "bench.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


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
    monkeypatch.setattr(bench, "measure_scaling", lambda rounds: {})
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


def test_an_unknown_contender_is_one_clear_message(bench, capsys):
    with pytest.raises(SystemExit) as ended:
        bench.main(["--profile", "transplant", "motifs"])
    assert ended.value.code == 2
    assert "transplant-dp" in capsys.readouterr().err
