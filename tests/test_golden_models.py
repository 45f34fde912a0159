"""Models saved before the rewrite load and predict as they did.

``tests/golden/make.py`` makes the golden files again.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import graph_transplant as gt
from golden.make import MODEL_NAMES, MODELS, inputs


def predictions(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MODELS / name / "predictions.json").read_text("utf-8"))
    return found


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_a_saved_model_predicts_what_it_did(name: str) -> None:
    if name == "molecules":
        pytest.importorskip("rdkit", reason="molecules need RDKit")
    golden = predictions(name)
    found = gt.TrainedModel.load(MODELS / name).predictions(inputs(name))
    assert found.task == golden["task"]
    assert list(found.label_names) == golden["label_names"]
    assert found.labels == golden["labels"]
    assert len(found) == len(golden["outputs"]) == 8
    for row, expected in zip(found.outputs.tolist(), golden["outputs"], strict=True):
        assert row == pytest.approx(expected, rel=1e-4, abs=0)


def test_a_saved_model_reads_a_table_as_it_did() -> None:
    pytest.importorskip("rdkit", reason="molecules need RDKit")
    golden = predictions("molecules")
    model = gt.TrainedModel.load(MODELS / "molecules")
    found = model.predict(MODELS / "molecules" / "inputs.csv")
    assert found["prediction"].tolist() == golden["labels"]
    assert found["id"].tolist()[:2] == ["pentanol", "lactic acid"]
    outputs = found[[f"p({label})" for label in golden["label_names"]]].to_numpy()
    assert outputs.tolist() == [pytest.approx(row, rel=1e-4) for row in golden["outputs"]]
