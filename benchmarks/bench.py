"""Time of one training step beside plain PyTorch Geometric, and of every augmentation by itself.

Every figure is a ratio, to one plain PyG step or to one plain step of ours, on the same batches:
CPU, one torch thread, medians of one interleaved run. See README.md in this folder for what each
contender does.

    python benchmarks/bench.py                              # table, and bench.json
    python benchmarks/bench.py --quick                      # a first impression in seconds
    python benchmarks/bench.py --profile transplant-ep NCI1 # where the time goes
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch_geometric
from methods import (
    CLIP_NORM,
    DROPOUT,
    HIDDEN,
    LAYERS,
    LEARNING_RATE,
    METHOD_ROUNDS,
    QUICK_METHOD_ROUNDS,
    WARM_UP,
    interleave,
    make_model,
    measure_methods,
    methods_table,
    ours,
    random_batches,
)
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool
from torch_geometric.transforms import OneHotDegree

import graph_transplant as gt
from graph_transplant.augment import METHODS
from graph_transplant.augment.subgraphs import PartialKHop
from graph_transplant.targets import as_targets, graph_losses


@dataclass(frozen=True)
class Setting:
    """How a data set is measured, and the ratios that are wanted there."""

    batch_size: int
    rounds: int
    wanted: Mapping[str, float]


_SMALL_WANTED = {"transplant-dp": 1.0, "transplant-ep": 1.3}
SETTINGS = {
    "ENZYMES": Setting(128, 100, _SMALL_WANTED),
    "NCI1": Setting(128, 100, _SMALL_WANTED),
    "COLLAB": Setting(64, 24, {"transplant-dp": 0.15, "transplant-ep": 0.4}),
    "motifs": Setting(128, 100, {}),
}
QUICK_ROUNDS = {"ENZYMES": 20, "NCI1": 20, "COLLAB": 4, "motifs": 20}


# -------------------------------------------------------------------- contenders
#
# A contender is an iterator over the given batches of graph numbers: each `next` takes one whole
# training step, from fetching the batch to moving the weights, and gives the loss.


class PygClassifier(nn.Module):
    """The same network as ``GraphClassifier(conv="gcn")``, as a PyG user writes it."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        widths = [features] + [HIDDEN] * LAYERS
        self.convolutions = nn.ModuleList(
            GCNConv(narrow, wide) for narrow, wide in itertools.pairwise(widths)
        )
        self.head = nn.Sequential(
            nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(HIDDEN, outputs)
        )

    def forward(self, batch: Batch) -> Tensor:
        x = batch.x
        for convolution in self.convolutions:
            x = convolution(x, batch.edge_index).relu()
        logits: Tensor = self.head(global_mean_pool(x, batch.batch, batch.num_graphs))
        return logits


def standardised(store: gt.GraphStore) -> Callable[[Data], Data]:
    """Return a PyG transform that makes ``x`` ready: what our model's input layer does.

    Continuous features are standardised; graphs without features get their degrees, one-hot.
    """
    if not store.num_node_features:
        one_hot: Callable[[Data], Data] = OneHotDegree(store.max_degree())
        return one_hot
    continuous, x = store.num_continuous, store.x
    if x is None or not continuous:
        return lambda data: data
    mean, std = x[:, :continuous].mean(0), x[:, :continuous].std(0, correction=0)
    std = torch.where(std > 0, std, torch.ones_like(std))

    def transform(data: Data) -> Data:
        parts = ((data.x[:, :continuous] - mean) / std, data.x[:, continuous:])
        data.x = torch.cat(parts, dim=1)
        return data

    return transform


class PygData(InMemoryDataset):  # type: ignore[misc]
    """Some graphs as PyG keeps a data set (``TUDataset`` is one), after its first epoch."""

    def __init__(self, store: gt.GraphStore, graphs: Tensor) -> None:
        super().__init__()
        transform = standardised(store)
        ready = [transform(item) for item in store.subset(graphs).to_pyg()]
        self.data, self.slices = self.collate(
            [Data(x=item.x, edge_index=item.edge_index, y=item.y) for item in ready]
        )
        for number in range(len(self)):
            _ = self[number]  # it keeps what was asked for once


def pyg_vanilla(store: gt.GraphStore, batches: Sequence[Tensor]) -> Iterator[Tensor]:
    """Plain training with PyG's data set, DataLoader and convolutions."""
    used, place = torch.unique(torch.cat(list(batches)), return_inverse=True)
    graphs = PygData(store, used)
    model = PygClassifier(graphs.num_node_features, store.num_outputs).train()
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE)
    numbers = [part.tolist() for part in place.split([len(part) for part in batches])]
    for batch in DataLoader(graphs, batch_sampler=numbers, num_workers=0):
        optimizer.zero_grad()
        loss = cross_entropy(model(batch), batch.y)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, CLIP_NORM)
        optimizer.step()
        yield loss.detach()


def floor(store: gt.GraphStore, batches: Sequence[Tensor]) -> Iterator[Tensor]:
    """The dense layers of our model alone, twice; the features are laid out beforehand."""
    model = make_model(store).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
    dense = [layer for layer in model.convolutions.modules() if isinstance(layer, nn.Linear)]
    transform = standardised(store)
    for batch in [transform(store.batch(numbers)) for numbers in batches]:
        optimizer.zero_grad(set_to_none=True)
        targets = as_targets(batch.y, store.num_outputs)
        passes = []
        for _ in range(2):
            x = batch.x
            for layer in dense:
                x = layer(x).relu()
            logits = model.classify(model.readout(x, batch))
            passes.append(graph_losses(logits, targets, store.task).mean())
        loss = passes[0] + passes[1]
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        yield loss.detach()


Contender = Callable[[gt.GraphStore, Sequence[Tensor]], Iterator[Tensor]]

CONTENDERS: dict[str, Contender] = {
    "pyg-vanilla": pyg_vanilla,
    "vanilla": partial(ours, "vanilla"),
    "transplant-dp": partial(ours, "transplant-dp"),
    "transplant-ep": partial(ours, "transplant-ep"),
    "floor": floor,
}


# -------------------------------------------------------------------- measuring


def measure_steps(store: gt.GraphStore, batch_size: int, rounds: int) -> dict[str, list[float]]:
    """Time training steps of all contenders on the same batches, in milliseconds."""
    batches = random_batches(store, batch_size, WARM_UP + rounds)
    steps = {name: make(store, batches) for name, make in CONTENDERS.items()}
    return interleave({name: steps[name].__next__ for name in steps}, rounds)


def ratios(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Divide the medians by that of the plain PyG step."""
    one = statistics.median(times["pyg-vanilla"])
    return {name: round(statistics.median(values) / one, 4) for name, values in times.items()}


def random_store(graphs: int, nodes: int, degree: int = 6, seed: int = 0) -> gt.GraphStore:
    """Make random undirected graphs of one size and mean degree."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(nodes, (graphs, nodes * degree // 2, 2), generator=generator)
    graph = torch.arange(graphs).view(-1, 1).expand(ends.shape[:2])
    graph, first, second = (part.flatten() for part in (graph, ends[..., 0], ends[..., 1]))
    both = torch.cat((graph, graph)), torch.cat((first, second)), torch.cat((second, first))
    code = torch.unique(((both[0] * nodes + both[1]) * nodes + both[2])[both[1] != both[2]])
    return gt.GraphStore(
        x=torch.ones(graphs * nodes, 1),
        edge_index=torch.stack((code // nodes % nodes, code % nodes)),
        y=torch.arange(graphs) % 2,
        node_counts=torch.full((graphs,), nodes),
        edge_counts=torch.bincount(code // nodes**2, minlength=graphs),
        name="random",
    )


def measure_scaling(
    rounds: int, graphs: int = 128, nodes: int = 64
) -> dict[str, list[dict[str, float | int]]]:
    """Time one degree-preserving mixing for three sizes, grown in two ways.

    ``relative`` is the time per node and edge, divided by that of the smallest size: it stays at or
    below 1 when the cost is linear in nodes + edges. K and p are held fixed, because their chance
    would drown the comparison.
    """
    cut = PartialKHop(hops=(2,), alpha=1e6)
    transplant = gt.GraphTransplant("degree", cut=cut)
    sizes = {
        "larger graphs": [(graphs, nodes * factor) for factor in (1, 2, 4)],
        "more graphs": [(graphs * factor, nodes) for factor in (1, 2, 4)],
    }
    result: dict[str, list[dict[str, float | int]]] = {}
    for way, cases in sizes.items():
        runs: dict[str, Callable[[], object]] = {}
        batches = []
        for number, (count, size) in enumerate(cases):
            batch = random_store(count, size).batch(range(count))
            generator = torch.Generator().manual_seed(0)
            saliency = torch.rand(int(batch.num_nodes), generator=generator)
            batches.append(batch)

            def run(
                batch: Batch = batch,
                saliency: Tensor = saliency,
                generator: torch.Generator = generator,
            ) -> object:
                return transplant.mix(batch, saliency, generator=generator)

            runs[str(number)] = run
        times = interleave(runs, rounds)
        entries: list[dict[str, float | int]] = []
        unit = 0.0
        for (count, size), batch, values in zip(cases, batches, times.values(), strict=True):
            milliseconds = statistics.median(values)
            items = int(batch.num_nodes) + int(batch.num_edges)
            unit = unit or milliseconds / items
            entries.append(
                {
                    "graphs": count,
                    "nodes_per_graph": size,
                    "nodes_and_edges": items,
                    "milliseconds": round(milliseconds, 3),
                    "relative": round(milliseconds / items / unit, 3),
                }
            )
        result[way] = entries
    return result


def machine() -> dict[str, str | int | float]:
    """Say what the figures were measured with, and how busy the machine was."""
    return {
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "python": platform.python_version(),
        "platform": platform.system(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2),
    }


# -------------------------------------------------------------------- output


def step_table(measured: Mapping[str, Mapping[str, Sequence[float]]]) -> Table:
    """Lay out the ratios, with the wanted ones, and the milliseconds."""
    table = Table(
        title="One training step, as a ratio to the plain PyG step",
        caption=f"GCN, {LAYERS} layers × {HIDDEN}; processor time of one thread; medians",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("data")
    for name in CONTENDERS:
        table.add_column(name, justify="right")
    for data, times in measured.items():
        cells = []
        for name, ratio in ratios(times).items():
            wanted = SETTINGS[data].wanted.get(name)
            cell = f"{ratio:.2f}"
            if wanted is not None:
                colour = "green" if ratio <= wanted else "red"
                cell = f"[{colour}]{cell}[/] [dim]≤ {wanted:g}[/]"
            cells.append(f"{cell}\n[dim]{statistics.median(times[name]):.1f} ms[/]")
        table.add_row(f"{data}\n[dim]{SETTINGS[data].batch_size} graphs[/]", *cells)
    return table


def scaling_table(scaling: Mapping[str, Sequence[Mapping[str, float | int]]]) -> Table:
    """Lay out the time of one mixing by size."""
    table = Table(
        title="One degree-preserving mixing by size",
        caption="time per node and edge, relative to the smallest: linear is 1 or below",
        box=box.SIMPLE_HEAD,
    )
    for heading in ("", "graphs", "nodes each", "nodes + edges", "time", "relative"):
        table.add_column(heading, justify="right" if heading else "left")
    for way, entries in scaling.items():
        for number, entry in enumerate(entries):
            table.add_row(
                "" if number else way,
                str(entry["graphs"]),
                str(entry["nodes_per_graph"]),
                f"{entry['nodes_and_edges']:,}",
                f"{entry['milliseconds']:.1f} ms",
                f"{entry['relative']:.2f}",
                end_section=number == len(entries) - 1,
            )
    return table


def load_stores(console: Console) -> dict[str, gt.GraphStore]:
    """Load the data sets; those that cannot be had are named and left out."""
    stores: dict[str, gt.GraphStore] = {}
    for name in SETTINGS:
        if name == "motifs":
            continue
        try:
            stores[name] = gt.load(name)
        except gt.DataError as error:
            console.print(f"[yellow]{name} is left out:[/] {error}", highlight=False)
    if not stores:
        console.print(
            "[yellow]No real data set could be had, so only the embedded motifs are measured.[/] "
            "Name a folder of TU data sets in GRAPH_TRANSPLANT_DATA to measure them."
        )
        stores["motifs"] = gt.load("motifs")
    return stores


def run_bench(quick: bool, out: Path, console: Console) -> None:
    """Measure everything, show it and write it."""
    measured: dict[str, dict[str, list[float]]] = {}
    stores = load_stores(console)
    for name, store in stores.items():
        setting = SETTINGS[name]
        rounds = QUICK_ROUNDS[name] if quick else setting.rounds
        begin = time.perf_counter()
        console.print(f"{name}: {rounds} rounds of {len(CONTENDERS)} steps ...", end=" ")
        measured[name] = measure_steps(store, setting.batch_size, rounds)
        console.print(f"{time.perf_counter() - begin:.0f} s")
    store = stores["ENZYMES"] if "ENZYMES" in stores else gt.load("motifs")
    rounds = QUICK_METHOD_ROUNDS if quick else METHOD_ROUNDS
    begin = time.perf_counter()
    console.print(f"{len(METHODS)} methods on {store.name}: {rounds} rounds ...", end=" ")
    methods = measure_methods(store, rounds)
    console.print(f"{time.perf_counter() - begin:.0f} s")
    scaling = measure_scaling(5 if quick else 25)
    document: dict[str, Any] = {name: ratios(times) for name, times in measured.items()}
    document["methods"] = methods
    document["scaling"] = scaling
    document["milliseconds"] = {
        name: round(statistics.median(times["pyg-vanilla"]), 3) for name, times in measured.items()
    }
    document["machine"] = found = machine()
    document["settings"] = {
        "conv": "gcn",
        "layers": LAYERS,
        "hidden": HIDDEN,
        "batch_size": {name: SETTINGS[name].batch_size for name in measured},
        "rounds": {name: len(times["floor"]) for name, times in measured.items()},
    }
    out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    console.print(step_table(measured))
    console.print(methods_table(methods))
    for name, reason in methods["refused"].items():
        console.print(f"[yellow]{name} is left out:[/] {escape(reason)}", highlight=False)
    console.print(scaling_table(scaling))
    # This process is one of those that the load counts.
    if float(found["load"]) > 1.5:
        console.print(
            f"[yellow]The machine was busy (load {found['load']}): the ratios are off, mostly in "
            "our favour, because the large arrays of the PyG step suffer most.[/]"
        )
    console.print(f"written to {out}")


def run_profile(method: str, data: str, steps: int = 20) -> str:
    """Profile the steps of a contender or method and return torch's table of its operations."""
    store = gt.load(data)
    setting = SETTINGS.get(data, SETTINGS["motifs"])
    batches = random_batches(store, setting.batch_size, WARM_UP + steps)
    make = CONTENDERS.get(method, partial(ours, method))
    contender = make(store, batches)
    for _ in range(WARM_UP):
        next(contender)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(steps):
            next(contender)
    table = profiler.key_averages().table(
        sort_by="self_cpu_time_total", row_limit=40, max_name_column_width=48
    )
    return f"{method} on {data}: {steps} steps; divide the totals by that\n{table}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(
        description="Time of one training step beside plain PyG, and of every augmentation."
    )
    profiled = list(dict.fromkeys((*CONTENDERS, *METHODS)))
    parser.add_argument("--quick", action="store_true", help="few rounds, rough figures")
    parser.add_argument("--out", type=Path, default=Path("bench.json"), help="where to write")
    parser.add_argument(
        "--profile",
        nargs=2,
        metavar=("METHOD", "DATA"),
        help=f"print where the time goes; METHOD is one of {', '.join(profiled)}",
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        if options.profile is not None:
            method, data = options.profile
            if method not in profiled:
                parser.error(f"METHOD must be one of {', '.join(profiled)}; got {method!r}")
            sys.stdout.write(run_profile(method, data) + "\n")
        else:
            run_bench(options.quick, options.out, Console())
    except gt.GraphTransplantError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
