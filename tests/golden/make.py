"""Make the golden files again: ``python tests/golden/make.py records`` (or ``models``).

Do so only when numbers are meant to change: the files say what the code gave before the rewrite.
``records/NAME.jsonl.gz`` are the records that ``results`` held then (``numerics`` 1); tables and
verdicts beside are made from them.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import graph_transplant as gt

GOLDEN = Path(__file__).parent
RECORDS = GOLDEN / "records"
MODELS = GOLDEN / "models"

SELECTED = {"motifs-sensitivity"}
"""Records with several candidates per method: these are judged after selection as well."""

GROUP = ("data", "model", "layers", "label_noise", "train_fraction")
NUMBERS = (
    *("score_mean", "score_std", "score_low", "score_high"),
    *("difference", "ci_low", "ci_high", "p_value", "p_holm", "effect"),
)

MODEL_NAMES = ("motifs", "molecules", "numbers")


# -------------------------------------------------------------------- records


def cases() -> Iterator[tuple[str, str, str]]:
    """Name every golden verdict: its files, its records and how candidates are selected."""
    for path in sorted(RECORDS.glob("*.jsonl.gz")):
        name = path.name.removesuffix(".jsonl.gz")
        yield name, name, "none"
        if name in SELECTED:
            yield f"{name}.selected", name, "validation"


def unpack(name: str, directory: Path) -> Path:
    """Put golden records where ``graph-transplant report`` finds them."""
    packed = (RECORDS / f"{name}.jsonl.gz").read_bytes()
    (directory / "records.jsonl").write_bytes(gzip.decompress(packed))
    return directory


def summary_and_verdict(directory: Path, how: str) -> tuple[str, dict[str, Any]]:
    """Give ``summary.csv`` and the numbers of the verdicts."""
    from graph_transplant.results.results import read_results
    from graph_transplant.results.verdict import SIGNIFICANT

    results = read_results(directory, selection=how)
    verdict = {
        "verdicts": [
            {**group._asdict(), "kind": found.kind, "best": found.best}
            for group, found in results.verdicts.items()
        ],
        "methods": [
            {
                **{name: row[name] for name in (*GROUP, "method", *NUMBERS)},
                "significant": row["p_holm"] is not None and row["p_holm"] < SIGNIFICANT,
            }
            for row in _plain(results.summary())
        ],
        "pairs": [
            [row[name] for name in (*GROUP, "first", "second", "difference", "p_holm")]
            for row in _plain(results.pairs)
        ],
    }
    return results.to_csv(), verdict


def _plain(table: Any) -> list[dict[str, Any]]:
    """Rows of a table as JSON values."""
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return json.loads(json.dumps(rows))


def _compact(entry: object) -> str:
    return json.dumps(entry, separators=(",", ":"))


def make_records() -> None:
    """Write the tables and verdicts of the golden records."""
    for name, source, how in cases():
        with tempfile.TemporaryDirectory() as folder:
            table, verdict = summary_and_verdict(unpack(source, Path(folder)), how)
        (GOLDEN / f"{name}.summary.csv").write_text(table, encoding="utf-8")
        lists = [
            f'"{key}": [\n' + ",\n".join(map(_compact, entries)) + "\n]"
            for key, entries in verdict.items()
        ]
        text = "{\n" + ",\n".join(lists) + "\n}\n"
        (GOLDEN / f"{name}.verdict.json").write_text(text, encoding="utf-8")


# -------------------------------------------------------------------- models


def inputs(name: str) -> gt.GraphStore:
    """Give the eight graphs that a golden model is asked about."""
    if name == "motifs":
        return gt.load("motifs", graphs=60, seed=7).subset(range(8))
    if name == "molecules":
        return gt.load(MODELS / name / "inputs.csv", smiles="smiles", target="class", id="name")
    return gt.load(MODELS / name / "inputs.safetensors")


def make_models() -> None:
    """Train the models and note what they predict."""
    small: dict[str, Any] = {"layers": 2, "hidden": 8, "dropout": 0.0, "progress": False}
    motifs = gt.load("motifs", graphs=240, seed=0)
    gt.train(motifs, model="gcs", epochs=40, learning_rate=1e-2, **small).save(MODELS / "motifs")
    table = MODELS / "molecules" / "train.csv"
    molecules = gt.load(table, smiles="smiles", target="class", id="name")
    small["learning_rate"] = 5e-3
    gt.train(molecules, model="gine", epochs=20, split="random", seed=2, **small).save(table.parent)
    sizes = torch.tensor([[float(graph.num_nodes)] for graph in motifs.to_pyg()])
    numbers = motifs.with_targets(sizes, task="regression", label_names=["nodes"])
    gt.train(numbers, model="gin", readout="sum", epochs=40, **small).save(MODELS / "numbers")
    numbers.subset(range(0, 240, 30)).save(MODELS / "numbers" / "inputs.safetensors")
    for name in MODEL_NAMES:
        found = gt.TrainedModel.load(MODELS / name).predictions(inputs(name))
        document = {
            "task": found.task,
            "label_names": list(found.label_names),
            "labels": found.labels,
            "outputs": found.outputs.tolist(),
        }
        text = json.dumps(document, indent=1) + "\n"
        (MODELS / name / "predictions.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    {"records": make_records, "models": make_models}[sys.argv[1]]()
