"""The benchmarks compare like with like and run to their ends; speed itself is not tested."""

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
from graph_transplant.methods import expand_methods


def imported(name: str) -> Iterator[ModuleType]:
    """A script of ``benchmarks``, found where Python looks when it runs as one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
        yield importlib.import_module(name)
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    yield from imported("bench")


@pytest.fixture(scope="module")
def predict() -> Iterator[ModuleType]:
    pytest.importorskip("rdkit")
    yield from imported("predict")


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
    monkeypatch.setattr(bench, "WARM_UP", 1)
    out = tmp_path / "bench.json"
    bench.run_bench(True, out)
    found = json.loads(out.read_text())
    assert found["steps"]["motifs"]["ratios"].keys() == bench.CONTENDERS.keys()
    assert all(ratio > 0 for ratio in found["steps"]["motifs"]["ratios"].values())
    methods = found["methods"]["motifs"]
    assert methods["ratios"].keys() | methods["refused"].keys() == set(expand_methods(["all"]))
    assert methods["ratios"]["transplant-ep"]["network"] > 0
    assert [len(entries) for entries in found["scaling"].values()] == [3, 3]
    assert "transplant-dp" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_a_gpu_that_is_not_there_is_an_error(bench, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench.py", "--device", "cuda"])
    with pytest.raises(SystemExit) as end:
        bench.main()
    assert end.value.code == 2
    assert "`device` cuda cannot be used here" in capsys.readouterr().err


def test_the_clock_waits_for_a_gpu(bench, monkeypatch):
    waited = []
    monkeypatch.setattr(bench, "DEVICE", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    assert bench.now() <= bench.now()
    assert waited == [torch.device("cuda")] * 2


def test_two_commits_are_compared_by_medians():
    def document(*ratios: float) -> dict[str, object]:
        return {
            "steps": {"motifs": {"ratios": dict(zip(("vanilla", "new"), ratios, strict=False))}}
        }

    (compare,) = imported("compare")
    found = compare.table([document(0.5), document(0.4), document(0.9)], [document(0.6, 1.0)])
    assert found.round(6).to_dict("index") == {
        ("motifs", "vanilla"): {"before": 0.5, "now": 0.6, "change": 1.2}
    }


# ------------------------------------------------------------------ predictions


WRITTEN = (
    "C[C@H](N)C(=O)O C/C=C/C=C\\Cl [Na+].[O-]c1ccccc1 F[Si](F)(F)F FS(F)(F)(F)(F)F [CH3] *CC#N "
    "[Pt+2] CC=CC O=[N+]([O-])c1ccc2ccccc2c1 [2H]OC C1CC1.[He] [NH3]->[Cu]"
)
RICH = WRITTEN.split()


def test_both_write_the_same_table(predict: ModuleType, tmp_path: Path) -> None:
    model = predict.make_model(tmp_path, list(predict.made_up_smiles(50)))
    table = tmp_path / "table.csv"
    smiles = [*RICH, *predict.made_up_smiles(40)]
    predict.write_table(table, smiles, len(smiles))
    predict.pyg_table(model, table, tmp_path / "pyg.csv")
    predict.predict_table(model, table, tmp_path / "ours.csv", batch_size=predict.BATCH_SIZE)
    heads = [(tmp_path / name).read_text().splitlines()[0] for name in ("pyg.csv", "ours.csv")]
    assert set(heads[0].split(",")) <= set(heads[1].split(","))  # ours has sets and similarity
    ids, p = predict.read_probabilities(tmp_path / "ours.csv")
    others, q = predict.read_probabilities(tmp_path / "pyg.csv")
    assert ids == others
    assert len(ids) == len(smiles)
    assert torch.allclose(p, q, atol=1e-5)
    assert len(p[: len(RICH)].round(decimals=5).unique(dim=0)) > len(RICH) / 2


def test_the_whole_run_writes_its_figures(
    predict: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRAPH_TRANSPLANT_DATA", raising=False)
    size = predict.Size(rows=300, marks=(100, 300), part=40, rounds=2)
    out = tmp_path / "figures.json"
    predict.run_bench(size, out)
    document = json.loads(out.read_text())
    assert set(document["ratios"]) == {"from SMILES", "ready graphs"}
    assert all(ratio > 0 for ratio in document["ratios"].values())
    assert document["whole"]["rows"] == 300
    assert document["whole"]["failed"] == 0
    if Path("/proc/self/clear_refs").exists():
        assert list(document["whole"]["growth_mib"]) == ["100", "300"]
