"""Predicting molecules from a CSV of SMILES, beside the same network fed by PyG's DataLoader.

Every figure is a ratio on the same rows: CPU, one torch thread, processor time, medians of one run
in which the contenders take turns. See README.md in this folder for what each of them does.

    python benchmarks/predict.py             # 100,000 molecules; tables, and bench-predict.json
    python benchmarks/predict.py --quick     # a first impression in seconds
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from bench import machine
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
MIB = 1 << 20


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


def known_smiles(root: str | None) -> list[str]:
    """Read the molecules of MoleculeNet's HIV data set, if there is a folder that has it."""
    path = Path(root or "") / "molecules" / "HIV.csv.gz"
    if root is None or not path.is_file():
        return []
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return [row["smiles"] for row in csv.DictReader(file)]


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
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "smiles", "active"])
        for number, text in zip(range(rows), itertools.cycle(smiles), strict=False):
            writer.writerow([f"m{number}", text, number % 2])


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


def peak_memory() -> int:
    """Return the most memory this process has had since it was last asked to forget, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("the system does not tell the peak of memory")


def forget_peak() -> None:
    """Let the peak of memory be what is used now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def timed(run: Callable[[], object]) -> float:
    """Return the processor seconds of a call."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def measure_whole(model: TrainedModel, table: Path, folder: Path, size: Size) -> dict[str, Any]:
    """Predict the whole table; note the peak of memory on the way."""
    # A first piece pays for imports and for what torch sets up once.
    short = folder / "short.csv"
    write_table(short, ["CCO"], 10)
    predict_table(model, short, folder / "short-out.csv")
    measured = hasattr(os, "getloadavg") and Path("/proc/self/clear_refs").exists()
    if measured:
        forget_peak()
    start = peak_memory() if measured else 0
    peaks: dict[str, float] = {}
    marks = list(size.marks)

    def progress(rows: int) -> None:
        while measured and marks and rows >= marks[0]:
            peaks[str(marks.pop(0))] = round((peak_memory() - start) / MIB, 1)

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
        "start_mib": round(start / MIB, 1),
        "growth_mib": peaks,
    }


def read_probabilities(path: Path) -> tuple[list[str], Tensor]:
    """Read ids and probabilities of a table of predictions."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["id"] for row in rows], torch.tensor([[float(row["p(1)"])] for row in rows])


def measure_parts(
    model: TrainedModel, smiles: Sequence[str], folder: Path, size: Size
) -> dict[str, dict[str, list[float]]]:
    """Let both predict the same rows in turn, and hold that they say the same.

    Returns processor milliseconds per molecule, by way (from SMILES, ready graphs) and contender.
    """
    times: dict[str, dict[str, list[float]]] = {
        "from SMILES": {"ours": [], "pyg": []},
        "ready graphs": {"ours": [], "pyg": []},
    }
    for number in range(-1, size.rounds):
        first = (number % size.rounds) * size.part
        chosen = list(itertools.islice(itertools.cycle(smiles), first, first + size.part))
        table = folder / "part.csv"
        write_table(table, chosen, size.part)
        outs = {name: folder / f"part-{name}.csv" for name in ("ours", "pyg")}
        store = next(
            iter(stream(table, featurizer=model.featurizer, rows_per_chunk=size.part))
        ).store
        assert store is not None
        graphs = [
            Data(x=each.x, edge_index=each.edge_index, edge_attr=each.edge_attr)
            for each in store.to_pyg()
        ]
        answers: dict[str, Tensor] = {}

        def ours_ready(store: gt.GraphStore = store, answers: dict[str, Tensor] = answers) -> None:
            answers["ours"] = model.logits(store, batch_size=BATCH_SIZE)

        def pyg_ready(graphs: list[Data] = graphs, answers: dict[str, Tensor] = answers) -> None:
            answers["pyg"] = pyg_graphs(model, graphs)

        def ours_smiles(table: Path = table, out: Path = outs["ours"]) -> None:
            predict_table(model, table, out, batch_size=BATCH_SIZE)

        def pyg_smiles(table: Path = table, out: Path = outs["pyg"]) -> None:
            pyg_table(model, table, out)

        runs: list[tuple[str, str, Callable[[], None]]] = [
            ("from SMILES", "ours", ours_smiles),
            ("from SMILES", "pyg", pyg_smiles),
            ("ready graphs", "ours", ours_ready),
            ("ready graphs", "pyg", pyg_ready),
        ]
        # Each round begins with another one; the first does not count.
        start = number % len(runs)
        for way, name, run in runs[start:] + runs[:start]:
            seconds = timed(run)
            if number >= 0:
                times[way][name].append(1e3 * seconds / size.part)
        check_alike(outs, answers)
    return times


def check_alike(outs: dict[str, Path], answers: dict[str, Tensor]) -> None:
    """Refuse to compare contenders that do not say the same."""
    ids, p = read_probabilities(outs["ours"])
    other_ids, other = read_probabilities(outs["pyg"])
    ready = (answers["ours"].softmax(1) - answers["pyg"].softmax(1)).abs().max()
    if ids != other_ids or float((p - other).abs().max()) > TOLERANCE or float(ready) > TOLERANCE:
        raise AssertionError("the contenders do not predict the same")


def ratios(times: dict[str, dict[str, list[float]]]) -> dict[str, float]:
    """Divide our median by PyG's: below 1 is faster."""
    return {
        way: round(statistics.median(each["ours"]) / statistics.median(each["pyg"]), 4)
        for way, each in times.items()
    }


def readable_by_both(smiles: Sequence[str], model: TrainedModel, folder: Path) -> list[str]:
    """Leave out what either of the two cannot read, and what PyG has no category for."""
    table = folder / "readable.csv"
    write_table(table, smiles, len(smiles))
    found = []
    for chunk in stream(table, featurizer=model.featurizer):
        for number, text in enumerate(chunk.texts, start=chunk.first):
            if number not in chunk.problems and _pyg_reads(text):
                found.append(text)
    return found


def _pyg_reads(text: str) -> bool:
    try:
        graph = from_smiles(text)
    except ValueError:
        return False
    return int(graph.num_nodes) > 0


# -------------------------------------------------------------------- output


def show(whole: dict[str, Any], times: dict[str, dict[str, list[float]]], size: Size) -> None:
    """Print the memory by rows done, milliseconds per molecule, and ratios."""
    print(f"{whole['rows']:,} rows in one go: {whole['rows_per_second']:,} rows a second")
    for rows, growth in whole["growth_mib"].items():
        print(f"  {int(rows):,} rows: {growth:.0f} MiB beyond what the process had before")
    print(
        f"GINE, {LAYERS} layers x {HIDDEN}; processor time of one thread per molecule; medians of "
        f"{size.rounds} rounds of {size.part} molecules"
    )
    for way, ratio in ratios(times).items():
        ours, pyg = (statistics.median(times[way][name]) for name in ("ours", "pyg"))
        print(f"  {way}: {ours:.3f} ms, PyG {pyg:.3f} ms, ratio {ratio:.2f}")


def run_bench(size: Size, out: Path) -> None:
    """Measure everything, show it and write it."""
    found = known_smiles(os.environ.get("GRAPH_TRANSPLANT_DATA"))
    source = "HIV" if found else "made up"
    if not found:
        print(
            "molecules/HIV.csv.gz could not be had, so molecules are made up. Name its folder in "
            "GRAPH_TRANSPLANT_DATA to measure them."
        )
        found = list(made_up_smiles())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = make_model(folder, found)
        table = folder / "molecules.csv"
        write_table(table, found, size.rows)
        whole = measure_whole(model, table, folder, size)
        enough = readable_by_both(found[: size.part * size.rounds], model, folder)
        times = measure_parts(model, enough, folder, size)
    show(whole, times, size)
    document = {
        "ratios": ratios(times),
        "milliseconds": {
            way: {name: round(statistics.median(values), 4) for name, values in each.items()}
            for way, each in times.items()
        },
        "whole": whole,
        "machine": machine(),
        "settings": {
            "molecules": source,
            "conv": "gine",
            "layers": LAYERS,
            "hidden": HIDDEN,
            "batch_size": BATCH_SIZE,
            "part": size.part,
            "rounds": size.rounds,
        },
    }
    out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"written to {out}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(
        description="Predicting molecules, beside the same network fed by PyG's DataLoader."
    )
    parser.add_argument("--quick", action="store_true", help="few molecules, rough figures")
    parser.add_argument("--out", type=Path, default=Path("bench-predict.json"), help="the figures")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        run_bench(QUICK if options.quick else WHOLE, options.out)
    except gt.GraphTransplantError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
