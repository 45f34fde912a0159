"""Predicting molecules from a CSV of SMILES, beside the same network fed by PyG's DataLoader.

Every figure is a ratio on the same rows: CPU, one torch thread, processor time, medians of one run
in which the contenders take turns. See README.md in this folder for what each of them does.

    python benchmarks/predict.py             # 100,000 molecules; tables, and bench-predict.json
    python benchmarks/predict.py --quick     # a first impression in seconds
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from bench import interleave, machine, status
from torch import Tensor
from torch.utils.data import Dataset
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.utils import from_smiles

import graph_transplant as gt
from graph_transplant.datasets import stream
from graph_transplant.datasets.molecules import ATOM_CATEGORIES, BOND_CATEGORIES
from graph_transplant.models import TrainedModel, predict_table, train
from graph_transplant.nn import evaluating

LAYERS, HIDDEN = 3, 128
BATCH_SIZE = 128
TOLERANCE = 1e-4  # largest difference of a probability between the contenders


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rows: int
    marks: tuple[int, ...]
    part: int
    rounds: int


WHOLE = Size(rows=100_000, marks=(10_000, 50_000, 100_000), part=2_000, rounds=10)
QUICK = Size(rows=6_000, marks=(2_500, 4_500, 6_000), part=300, rounds=2)


# -------------------------------------------------------------------- molecules


def made_up_smiles(count: int = 4000) -> Iterator[str]:
    """Make molecules of about the size of drugs: rings and chains with side groups."""
    choose = random.Random(0)
    rings = ("c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CCNCC1", "c1ccsc1", "C1CCOC1")
    sides = ("(O)", "(N)", "(C)", "(F)", "(=O)", "(Cl)", "(C#N)")
    for _ in range(count):
        parts = []
        for _ in range(choose.randint(1, 4)):
            chain = "".join(
                "C" + (choose.choice(sides) if choose.random() < 0.4 else "")
                for _ in range(choose.randint(1, 4))
            )
            parts.append(chain + choose.choice(rings))
        yield "".join(parts)


def write_table(path: Path, smiles: Sequence[str], rows: int) -> None:
    """Write a table of so many molecules, the given ones over and over, half of them active."""
    texts = list(itertools.islice(itertools.cycle(smiles), rows))
    frame = pd.DataFrame({"smiles": texts, "active": [number % 2 for number in range(rows)]})
    frame.rename("m{}".format).to_csv(path, index_label="id")


def make_model(folder: Path, smiles: Sequence[str]) -> TrainedModel:
    """Train a model for one epoch: what it has learned does not matter here."""
    table = folder / "train.csv"
    write_table(table, smiles, 400)
    store = gt.load(table, smiles="smiles", target="active", id="id")
    return train(
        store,
        method="vanilla",
        layers=LAYERS,
        hidden=HIDDEN,
        epochs=1,
        split="random",
        progress=False,
    )


# -------------------------------------------------------------------- PyG


class Molecules(Dataset[Data]):
    """The molecules of some rows, made graphs by PyG when they are asked for."""

    def __init__(self, smiles: Sequence[str]) -> None:
        self.smiles = smiles

    def __len__(self) -> int:
        return len(self.smiles)

    def __getitem__(self, number: int) -> Data:
        return from_smiles(self.smiles[number])


def columns(tables: Sequence[Sequence[int]], widths: Sequence[int]) -> tuple[Tensor, ...]:
    """Say in which column each of PyG's categories stands."""
    starts = itertools.accumulate((0, *widths[:-1]))
    return tuple(torch.tensor(table) + start for table, start in zip(tables, starts, strict=True))


# PyG numbers the categories a little otherwise: where each of its numbers stands in OGB's order.
ATOM_COLUMNS = columns(
    (
        (118, *range(118)),
        (0, 1, 2, 3, 4, 4, 4, 4, 4),
        range(11),
        range(12),
        range(9),
        range(5),
        (5, 5, 0, 1, 2, 3, 4, 5),
        range(2),
        range(2),
    ),
    ATOM_CATEGORIES,
)
BOND_COLUMNS = columns(
    ((4, 0, 1, 2, *(4 for _ in range(8)), 3, *(4 for _ in range(9))), (0, 5, 1, 2, 3, 4), range(2)),
    BOND_CATEGORIES,
)


def one_hot(categories: Tensor, places: Sequence[Tensor], width: int) -> Tensor:
    """Turn PyG's categories ``[items, kinds]`` into one-hot columns ``[items, width]``."""
    found = torch.stack([place[column] for place, column in zip(places, categories.T, strict=True)])
    return torch.zeros(len(categories), width).scatter_(1, found.T, 1.0)


def encoded(batch: Batch) -> Batch:
    """Give a batch of PyG's molecules the features that the network was trained on."""
    batch.x = one_hot(batch.x, ATOM_COLUMNS, sum(ATOM_CATEGORIES))
    batch.edge_attr = one_hot(batch.edge_attr, BOND_COLUMNS, sum(BOND_CATEGORIES))
    return batch


def pyg_table(model: TrainedModel, table: Path, out: Path) -> None:
    """Predict a table as a PyG user does: from_smiles, DataLoader, network, CSV."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    loader = DataLoader(Molecules([row["smiles"] for row in rows]), batch_size=BATCH_SIZE)
    names = iter(rows)
    with (
        out.open("w", encoding="utf-8", newline="") as file,
        evaluating(model.network),
        torch.inference_mode(),
    ):
        writer = csv.writer(file)
        writer.writerow(
            ["row", "id", "prediction", "p(0)", "p(1)", "confidence", "warning", "error"]
        )
        number = 0
        for batch in loader:
            logits = model.network.run(encoded(batch)).logits.double()
            for p in (logits / model.temperature).softmax(1).tolist():
                number += 1
                cells = [f"{value:.6g}" for value in p]
                label, name = p.index(max(p)), next(names)["id"]
                writer.writerow([number, name, label, *cells, f"{max(p):.6g}", "", ""])


def pyg_graphs(model: TrainedModel, graphs: Sequence[Data]) -> Tensor:
    """Predict ready graphs with PyG's DataLoader."""
    loader = DataLoader(graphs, batch_size=BATCH_SIZE)
    with evaluating(model.network), torch.inference_mode():
        return torch.cat([model.network.run(batch).logits for batch in loader])


# -------------------------------------------------------------------- measuring


def measure_whole(model: TrainedModel, table: Path, folder: Path, size: Size) -> dict[str, Any]:
    """Predict the whole table; note the peak of memory on the way."""
    # A first piece pays for imports and for what torch sets up once.
    short = folder / "short.csv"
    write_table(short, ["CCO"], 10)
    predict_table(model, short, folder / "short-out.csv")
    measured = Path("/proc/self/clear_refs").exists()
    start = 0.0
    if measured:
        Path("/proc/self/clear_refs").write_text("5")  # the peak is what is used now
        start = status("VmHWM")
    peaks: dict[str, float] = {}
    marks = list(size.marks)

    def progress(rows: int) -> None:
        while measured and marks and rows >= marks[0]:
            peaks[str(marks.pop(0))] = round(status("VmHWM") - start, 1)

    begin = time.process_time()
    done = predict_table(
        model, table, folder / "whole.csv", batch_size=BATCH_SIZE, progress=progress
    )
    seconds = time.process_time() - begin
    return {
        "rows": done.rows,
        "failed": done.failed,
        "seconds": round(seconds, 2),
        "rows_per_second": round(done.rows / seconds),
        "start_mib": round(start, 1),
        "growth_mib": peaks,
    }


def read_probabilities(path: Path) -> tuple[list[str], Tensor]:
    """Read ids and probabilities of a table of predictions."""
    frame = pd.read_csv(path)
    return frame["id"].tolist(), torch.tensor(frame["p(1)"].tolist())


def measure_part(
    model: TrainedModel, smiles: Sequence[str], folder: Path, rounds: int
) -> dict[str, dict[str, float]]:
    """Let both predict the same rows in turn, and hold that they say the same.

    Returns processor milliseconds per molecule, by way (from SMILES, ready graphs) and contender.
    """
    table, ours, pyg = (folder / f"part{name}.csv" for name in ("", "-ours", "-pyg"))
    write_table(table, smiles, len(smiles))
    store = next(iter(stream(table, featurizer=model.featurizer, rows_per_chunk=len(smiles)))).store
    assert store is not None
    graphs = [
        Data(x=each.x, edge_index=each.edge_index, edge_attr=each.edge_attr)
        for each in store.to_pyg()
    ]
    runs: dict[str, Callable[[], object]] = {
        "from SMILES ours": lambda: predict_table(model, table, ours, batch_size=BATCH_SIZE),
        "from SMILES pyg": lambda: pyg_table(model, table, pyg),
        "ready graphs ours": lambda: model.logits(store, batch_size=BATCH_SIZE),
        "ready graphs pyg": lambda: pyg_graphs(model, graphs),
    }
    times = interleave(runs, rounds)
    (ids, p), (other_ids, q) = read_probabilities(ours), read_probabilities(pyg)
    ready = model.logits(store).softmax(1), pyg_graphs(model, graphs).softmax(1)
    apart = max(float((p - q).abs().max()), float((ready[0] - ready[1]).abs().max()))
    if ids != other_ids or apart > TOLERANCE:
        raise AssertionError("the contenders do not predict the same")
    return {
        way: {
            name: round(statistics.median(times[f"{way} {name}"]) / len(smiles), 4)
            for name in ("ours", "pyg")
        }
        for way in ("from SMILES", "ready graphs")
    }


def readable_by_both(smiles: Iterable[str], model: TrainedModel, folder: Path) -> Iterator[str]:
    """Leave out what either of the two cannot read, and what PyG has no category for."""
    listed = list(smiles)
    write_table(folder / "readable.csv", listed, len(listed))
    for chunk in stream(folder / "readable.csv", featurizer=model.featurizer):
        for number, text in enumerate(chunk.texts, start=chunk.first):
            with suppress(ValueError):
                if number not in chunk.problems and from_smiles(text).num_nodes:
                    yield text


def run_bench(size: Size, out: Path) -> None:
    """Measure everything, show it and write it."""
    root = os.environ.get("GRAPH_TRANSPLANT_DATA", "")
    source = Path(root) / "molecules" / "HIV.csv.gz"
    if root and source.is_file():
        found = pd.read_csv(source)["smiles"].tolist()
    else:
        print("GRAPH_TRANSPLANT_DATA has no molecules/HIV.csv.gz: molecules are made up")
        found = list(made_up_smiles())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = make_model(folder, found)
        table = folder / "molecules.csv"
        write_table(table, found, size.rows)
        whole = measure_whole(model, table, folder, size)
        readable = readable_by_both(found[: 2 * size.part], model, folder)
        part = list(itertools.islice(readable, size.part))
        times = measure_part(model, part, folder, size.rounds)
    document = {
        "ratios": {way: round(each["ours"] / each["pyg"], 4) for way, each in times.items()},
        "milliseconds": times,
        "whole": whole,
        "machine": machine(),
        "settings": {
            "molecules": "HIV" if root and source.is_file() else "made up",
            "conv": "gine",
            "layers": LAYERS,
            "hidden": HIDDEN,
            "batch_size": BATCH_SIZE,
            "part": len(part),
            "rounds": size.rounds,
        },
    }
    print(json.dumps(document, indent=2))
    out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few molecules, rough figures")
    parser.add_argument("--out", type=Path, default=Path("bench-predict.json"), help="the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    run_bench(QUICK if options.quick else WHOLE, options.out)


if __name__ == "__main__":
    main()
