"""The benchmark compares like with like and runs to its end; speed itself is not tested."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import graph_transplant as gt

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "bench.py"


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))  # where Python looks when it runs as a script
        yield importlib.import_module("bench")
        sys.modules.pop("bench", None)


def continuous_store() -> gt.GraphStore:
    """Graphs with continuous features far from mean 0 and deviation 1."""
    ring = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
    return gt.GraphStore(
        x=torch.rand(12, 3, generator=torch.Generator().manual_seed(0)) * 50 + 7,
        edge_index=ring.repeat(1, 4),
        y=torch.tensor([0, 1, 0, 1]),
        node_counts=torch.full((4,), 3),
        edge_counts=torch.full((4,), 6),
        num_continuous=2,
    )


@pytest.mark.parametrize("make", [continuous_store, lambda: gt.load("motifs", graphs=12)])
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
        expected = mine.run(given.batch(range(len(given)))).logits
        assert torch.allclose(theirs(batch), expected, atol=1e-5)


def test_a_short_run_measures_every_contender_and_method(bench, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "load_stores", lambda: {"motifs": gt.load("motifs", graphs=24)})
    monkeypatch.setattr(bench, "in_new_process", lambda *arguments, cache=None: 1.0)
    monkeypatch.setitem(bench.SETTINGS, "motifs", (12, 10))
    out = tmp_path / "bench.json"
    bench.run_bench(True, out)
    found = json.loads(out.read_text())
    assert found["steps"]["motifs"]["ratios"].keys() == bench.CONTENDERS.keys()
    assert all(ratio > 0 for ratio in found["steps"]["motifs"]["ratios"].values())
    methods = found["methods"]["motifs"]
    assert methods["ratios"].keys() | methods["refused"].keys() == gt.METHODS.keys()
    assert methods["ratios"]["transplant-ep"]["network"] > 0
    assert [len(entries) for entries in found["scaling"].values()] == [3, 3]
    assert "transplant-dp" in capsys.readouterr().out
