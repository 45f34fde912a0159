"""The benchmark of predictions compares like with like; how fast anything is, is not tested."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch_geometric.data import Batch

import graph_transplant as gt
from graph_transplant.models import TrainedModel

pytest.importorskip("rdkit")
SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "predict.py"


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))
        yield importlib.import_module("predict")
        sys.modules.pop("predict", None)


@pytest.fixture(scope="module")
def model(bench: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    found = bench.make_model(tmp_path_factory.mktemp("model"), list(bench.made_up_smiles(50)))
    assert isinstance(found, TrainedModel)
    return found


WRITTEN = (
    "C[C@H](N)C(=O)O C/C=C/C=C\\Cl [Na+].[O-]c1ccccc1 F[Si](F)(F)F FS(F)(F)(F)(F)F [CH3] *CC#N "
    "[Pt+2] CC=CC O=[N+]([O-])c1ccc2ccccc2c1 [2H]OC C1CC1.[He] [NH3]->[Cu]"
)
RICH = WRITTEN.split()


def test_pyg_gets_the_same_features(bench: ModuleType, tmp_path: Path) -> None:
    bench.write_table(tmp_path / "rich.csv", RICH, len(RICH))
    store = gt.load(tmp_path / "rich.csv", smiles="smiles", target="active")
    assert len(store) == len(RICH)
    batch = bench.encoded(Batch.from_data_list([bench.from_smiles(text) for text in RICH]))
    ours = store.batch(range(len(store)))
    # Ours are sorted by receiver, PyG's by sender; attributes are alike in both directions.
    assert torch.equal(batch.edge_index.flip(0), ours.edge_index)
    assert torch.equal(batch.x, ours.x)
    assert torch.equal(batch.edge_attr, ours.edge_attr)


def test_both_write_the_same_table(bench: ModuleType, model: TrainedModel, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    bench.write_table(table, list(bench.made_up_smiles(60)), 60)
    bench.pyg_table(model, table, tmp_path / "pyg.csv")
    bench.predict_table(model, table, tmp_path / "ours.csv", batch_size=bench.BATCH_SIZE)
    heads = [(tmp_path / name).read_text().splitlines()[0] for name in ("pyg.csv", "ours.csv")]
    assert set(heads[0].split(",")) <= set(heads[1].split(","))  # ours has sets and similarity
    ids, p = bench.read_probabilities(tmp_path / "ours.csv")
    others, q = bench.read_probabilities(tmp_path / "pyg.csv")
    assert ids == others
    assert torch.allclose(p, q, atol=1e-5)
    assert float(p.std()) > 0


def test_the_whole_run_writes_its_figures(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRAPH_TRANSPLANT_DATA", raising=False)
    size = bench.Size(rows=300, marks=(100, 300), part=40, rounds=2)
    out = tmp_path / "figures.json"
    bench.run_bench(size, out)
    document = json.loads(out.read_text())
    assert set(document["ratios"]) == {"from SMILES", "ready graphs"}
    assert all(ratio > 0 for ratio in document["ratios"].values())
    assert document["whole"]["rows"] == 300
    assert document["whole"]["failed"] == 0
    if Path("/proc/self/clear_refs").exists():
        assert list(document["whole"]["growth_mib"]) == ["100", "300"]
