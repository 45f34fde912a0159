"""Speed and memory beside plain PyTorch Geometric, and what every augmentation costs by itself.

Every time is a ratio, to one plain PyG step or to one plain step of ours, on the same batches: one
torch thread, medians of one interleaved run. README.md in this folder says what each contender
does.

    python benchmarks/bench.py                              # tables, and bench.json
    python benchmarks/bench.py --device cuda                # on a GPU: bench-cuda.json
    python benchmarks/bench.py --quick                      # a first impression in a minute
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch_geometric
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool
from torch_geometric.transforms import OneHotDegree

import graph_transplant as gt
from graph_transplant.augment import CleanPass, ReliabilityFilter, VirtualGraphs, build_method
from graph_transplant.data.targets import Loss, as_targets
from graph_transplant.methods import expand_methods
from graph_transplant.models.model import usable_device
from graph_transplant.nn import evaluating
from graph_transplant.training.step import take_step

LAYERS, HIDDEN, DROPOUT = 3, 128, 0.5
LEARNING_RATE, CLIP_NORM = 5e-4, 2.0
WARM_UP = 3

DEVICE = torch.device("cpu")  # of networks and features; `main` sets it

# Graphs per batch and rounds of every data set.
SETTINGS = {"ENZYMES": (128, 100), "NCI1": (128, 100), "COLLAB": (64, 24), "motifs": (128, 100)}


def now() -> float:
    """Seconds. Processor time of the one thread leaves out what other programs took meanwhile.

    A GPU works on after the call returns: it is waited for, and its time is wall time.
    """
    if DEVICE.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(DEVICE)
    return time.perf_counter()


def random_batches(store: gt.GraphStore, batch_size: int, count: int) -> list[Tensor]:
    """Draw batches of graph numbers, every graph at most once in a batch."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randperm(len(store), generator=generator)[:batch_size] for _ in range(count)]


def interleave(
    runs: Mapping[str, Callable[[], object]],
    rounds: int,
    before: Mapping[str, Callable[[], object]] | None = None,
) -> dict[str, list[float]]:
    """Time everything in turn, in milliseconds, so that a busy moment hits all alike.

    ``before`` is what some of them need done before each call; this is not timed.
    """
    names = list(runs)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-WARM_UP, rounds):
        # Each round begins with another one, so that none always pays for the first place.
        start = number % len(names)
        for name in names[start:] + names[:start]:
            if before and name in before:
                before[name]()
            begin = now()
            runs[name]()
            taken = 1e3 * (now() - begin)
            if number >= 0:
                times[name].append(taken)
    return times


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
            GCNConv(narrow, wide) for narrow, wide in pairwise(widths)
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
    model = PygClassifier(graphs.num_node_features, store.num_outputs).to(DEVICE).train()
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE)
    numbers = [part.tolist() for part in place.split([len(part) for part in batches])]
    for batch in DataLoader(graphs, batch_sampler=numbers, num_workers=0):
        optimizer.zero_grad()
        batch = batch.to(DEVICE)
        loss = cross_entropy(model(batch), batch.y)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, CLIP_NORM)
        optimizer.step()
        yield loss.detach()


def make_model(store: gt.GraphStore) -> gt.GraphClassifier:
    """Make our model for a data set."""
    model = gt.GraphClassifier.for_data(
        store, conv="gcn", layers=LAYERS, hidden=HIDDEN, dropout=DROPOUT, seed=0
    )
    return model.to(DEVICE)


def floor(store: gt.GraphStore, batches: Sequence[Tensor]) -> Iterator[Tensor]:
    """The dense layers of our model alone, twice; the features are laid out beforehand."""
    model = make_model(store).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
    dense = [layer for layer in model.convolutions.modules() if isinstance(layer, nn.Linear)]
    transform, loss_of = standardised(store), Loss(store.task)
    laid_out = [store.batch(numbers) for numbers in batches]
    ready = [(one.to(DEVICE), transform(one.to_pyg()).x.to(DEVICE)) for one in laid_out]
    for batch, x in ready:
        optimizer.zero_grad(set_to_none=True)
        assert batch.y is not None
        targets = as_targets(batch.y, store.num_outputs)
        losses = []
        for _ in range(2):
            hidden = x
            for layer in dense:
                hidden = layer(hidden).relu()
            logits = model.classify(model.readout(hidden, batch))
            losses.append(loss_of(logits, targets).mean())
        loss = losses[0] + losses[1]
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        yield loss.detach()


@dataclass(frozen=True)
class Ready:
    """A model and a method's augmentations, as they are after the first epoch of a training."""

    model: gt.GraphClassifier
    augmentations: tuple[gt.Augmentation, ...]
    generator: torch.Generator

    @classmethod
    def of(cls, method: str, store: gt.GraphStore) -> Ready:
        """Build a method for a data set; one that cannot serve the data raises its own error."""
        model = make_model(store).train()
        augmentations = build_method(method, model, seed=0)
        generator = torch.Generator().manual_seed(0)
        for augmentation in augmentations:
            augmentation.to(DEVICE)
            augmentation.check(model, store)
            augmentation.prepare(store, generator)
        # What a method does only once it has seen validation graphs is part of its cost.
        validation = store.subset(random_batches(store, 128, 1)[0])
        with evaluating(model):
            for augmentation in augmentations:
                augmentation.after_epoch(model, validation)
        return cls(model, augmentations, generator)

    def steps(self, store: gt.GraphStore, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        """Train, one step per batch, as :func:`graph_transplant.fit` does."""
        modules = (self.model, *self.augmentations)
        parameters = [p for module in modules for p in module.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=True)
        loss_of = Loss(store.task)
        for numbers in batches:
            losses = take_step(
                self.model, store.batch(numbers).to(DEVICE), self.augmentations, optimizer,
                loss_of=loss_of, clip_norm=CLIP_NORM, generator=self.generator,
            )  # fmt: skip
            assert losses is not None
            yield losses.total.detach()


def ours(method: str, store: gt.GraphStore, batches: Sequence[Tensor]) -> Iterator[Tensor]:
    """Train with a method of this package, one step per batch."""
    yield from Ready.of(method, store).steps(store, batches)


Contender = Callable[[gt.GraphStore, Sequence[Tensor]], Iterator[Tensor]]

CONTENDERS: dict[str, Contender] = {
    "pyg-vanilla": pyg_vanilla,
    "vanilla": partial(ours, "vanilla"),
    "transplant-dp": partial(ours, "transplant-dp"),
    "transplant-ep": partial(ours, "transplant-ep"),
    "transplant-light": partial(ours, "transplant-light"),
    "floor": floor,
}


def measure_steps(store: gt.GraphStore, batch_size: int, rounds: int) -> dict[str, float]:
    """Median time of a training step of all contenders on the same batches, in milliseconds."""
    batches = random_batches(store, batch_size, WARM_UP + rounds)
    steps = {name: make(store, batches) for name, make in CONTENDERS.items()}
    times = interleave({name: steps[name].__next__ for name in steps}, rounds)
    return {name: statistics.median(values) for name, values in times.items()}


# -------------------------------------------------------------------- memory and compilation


def status(key: str) -> float:
    """A figure of this process in MiB, as Linux tells it."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{key}:")[1].split()[0]) / 1024


def step_memory(contender: str, data: str) -> float:
    """Peak memory of training steps beyond what was there before them, in MiB; in a new process.

    On a GPU it is torch's memory there.
    """
    warm = gt.load("motifs")
    next(CONTENDERS[contender](warm, random_batches(warm, 64, 1)))
    store = gt.load(data)
    steps = CONTENDERS[contender](store, random_batches(store, SETTINGS[data][0], 4))
    # The first step makes the model; its data are laid out in it too.
    next(steps)
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats(DEVICE)
        before = torch.cuda.memory_allocated(DEVICE)
        for _ in steps:
            pass
        return (torch.cuda.max_memory_allocated(DEVICE) - before) / 2**20
    begin = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    for _ in steps:
        pass
    return status("VmHWM") - begin


def in_new_process(*arguments: str, cache: str | None = None) -> float:
    """Run this script again and return the number it prints."""
    environment = {**os.environ, **({} if cache is None else {"NUMBA_CACHE_DIR": cache})}
    command = [sys.executable, str(Path(__file__).resolve()), "--device", str(DEVICE), *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return float(done.stdout.split()[-1])


def compile_seconds() -> float:
    """Processor time that the first use of all kernels takes beyond the second."""
    store = gt.load("motifs", graphs=24)
    seconds = []
    for _ in range(2):
        begin = time.process_time()
        for name in expand_methods(["all"]):
            try:
                next(ours(name, store, [torch.arange(24)]))
            except gt.DataError:
                continue  # a method that motifs cannot serve
        seconds.append(time.process_time() - begin)
    return seconds[0] - seconds[1]


# -------------------------------------------------------------------- every method


class AugmentationOnly:
    """Calls a method's augmentations on finished clean passes, each pass used once.

    Saliency, which is read within the call, is counted; ψ's network and a filter's pass on the
    virtual graphs are kept apart in ``networks``.
    """

    def __init__(self, ready: Ready, store: gt.GraphStore, batches: Sequence[Tensor]) -> None:
        self.ready = ready
        self.store = store
        self.batches = iter(batches)
        self.clean: CleanPass | None = None
        self.networks: list[float] = []
        for owner, name in self._networks():
            setattr(owner, name, partial(self._timed, getattr(owner, name)))

    def _networks(self) -> Iterator[tuple[object, str]]:
        for augmentation in self.ready.augmentations:
            if isinstance(augmentation, gt.GraphTransplant) and augmentation.edge_predictor:
                yield augmentation.edge_predictor, "draw"
                yield augmentation.edge_predictor, "supervise"
            elif isinstance(augmentation, ReliabilityFilter):
                yield augmentation, "passes"

    def _timed(self, function: Callable[..., Any], *arguments: Any) -> Any:
        begin = now()
        result = function(*arguments)
        self.networks[-1] += 1e3 * (now() - begin)
        return result

    def predict(self) -> None:
        """Make the clean pass of the next batch."""
        batch = self.store.batch(next(self.batches)).to(DEVICE)
        assert batch.y is not None
        targets = as_targets(batch.y, self.store.num_outputs)
        self.clean = CleanPass(batch, targets, self.ready.model.run(batch))
        _ = self.clean.loss  # computed when first asked for
        self.networks.append(0.0)

    def __call__(self) -> list[VirtualGraphs]:
        """Make the virtual samples."""
        return [
            augmentation(self.clean, model=self.ready.model, generator=self.ready.generator)
            for augmentation in self.ready.augmentations
        ]


def measure_methods(store: gt.GraphStore, batch_size: int, rounds: int) -> dict[str, Any]:
    """Time the augmentation and the whole step of every method on the same batches.

    Returns, by method, ratios to our plain step: ``augmentation``, the ``network`` within it that
    was left out (ψ, or the pass of a filter), and the ``step``; and the reasons of those that
    refuse the data.
    """
    batches = random_batches(store, batch_size, WARM_UP + rounds)
    ready: dict[str, Ready] = {}
    refused: dict[str, str] = {}
    for name in expand_methods(["all"]):
        try:
            ready[name] = Ready.of(name, store)
        except gt.GraphTransplantError as error:
            refused[name] = str(error)
    runs: dict[str, Callable[[], object]] = {}
    before: dict[str, Callable[[], object]] = {}
    alone = {name: AugmentationOnly(Ready.of(name, store), store, batches) for name in ready}
    for name, one in ready.items():
        runs[f"{name} augmentation"] = alone[name]
        before[f"{name} augmentation"] = alone[name].predict
        runs[f"{name} step"] = one.steps(store, batches).__next__
    times = interleave(runs, rounds, before)
    vanilla = statistics.median(times["vanilla step"])

    def ratio(values: Sequence[float]) -> float:
        return round(statistics.median(values) / vanilla, 4)

    found = {}
    for name in ready:
        whole, networks = times[f"{name} augmentation"], alone[name].networks[WARM_UP:]
        found[name] = {
            "augmentation": ratio([a - b for a, b in zip(whole, networks, strict=True)]),
            "network": ratio(networks),
            "step": ratio(times[f"{name} step"]),
        }
    return {"vanilla_milliseconds": round(vanilla, 3), "ratios": found, "refused": refused}


# -------------------------------------------------------------------- scaling


def random_store(graphs: int, nodes: int, degree: int = 6) -> gt.GraphStore:
    """Make random undirected graphs of one size and mean degree."""
    generator = torch.Generator().manual_seed(0)
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


def measure_scaling(rounds: int) -> dict[str, list[dict[str, float]]]:
    """Time one degree-preserving mixing for three sizes, grown in two ways.

    ``relative`` is the time per node and edge, divided by that of the smallest size: it stays near
    1 when the cost is linear in nodes + edges. K and p are held fixed, because their chance would
    drown the comparison.
    """
    transplant = gt.GraphTransplant("dp", hops=2, alpha=1e6)
    sizes = {
        "larger graphs": [(128, 64 * factor) for factor in (1, 2, 4)],
        "more graphs": [(128 * factor, 64) for factor in (1, 2, 4)],
    }
    result: dict[str, list[dict[str, float]]] = {}
    for way, cases in sizes.items():
        stores = [(random_store(count, nodes), range(count)) for count, nodes in cases]
        batches = [store.batch(graphs).to(DEVICE) for store, graphs in stores]
        generator = torch.Generator().manual_seed(0)
        runs: dict[str, Callable[[], object]] = {}
        for number, batch in enumerate(batches):
            saliency = torch.rand(batch.num_nodes, generator=generator).to(DEVICE)
            runs[str(number)] = partial(transplant.mix, batch, saliency, generator=generator)
        times = [statistics.median(values) for values in interleave(runs, rounds).values()]
        items = [batch.num_nodes + batch.num_edges for batch in batches]
        result[way] = [
            {
                "nodes_and_edges": size,
                "milliseconds": round(taken, 3),
                "relative": round(taken / size / (times[0] / items[0]), 3),
            }
            for taken, size in zip(times, items, strict=True)
        ]
    return result


# -------------------------------------------------------------------- output


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
        "device": "cpu" if DEVICE.type == "cpu" else torch.cuda.get_device_name(DEVICE),
        "load": round(os.getloadavg()[0], 2),
    }


def show(document: Mapping[str, Any]) -> None:
    """Print the ratios of steps and methods, memory, and the time of one mixing by size."""
    steps = document["steps"]
    print(f"\nOne training step, as a ratio to the plain PyG step; GCN, {LAYERS} x {HIDDEN}")
    print(pd.DataFrame({data: found["ratios"] for data, found in steps.items()}).T.round(2))
    print("\nPeak memory of a step, MiB")
    print(pd.DataFrame({data: found["memory"] for data, found in steps.items()}).T.round(0))
    print(
        "\nEvery augmentation by itself (wanted: at most 0.15), the network within it that is not "
        "counted, and the step, as ratios to our plain step"
    )
    ratios = {data: pd.DataFrame(found["ratios"]).T for data, found in document["methods"].items()}
    print(pd.concat(ratios, axis=1).round(2).to_string(na_rep="refused"))
    print("\nOne degree-preserving mixing; relative: time per node and edge, linear is about 1")
    for way, entries in document["scaling"].items():
        print(f"{way}\n{pd.DataFrame(entries).to_string(index=False)}")


def load_stores() -> dict[str, gt.GraphStore]:
    """Load the data sets; those that cannot be had are named and left out."""
    stores: dict[str, gt.GraphStore] = {}
    for name in SETTINGS:
        try:
            stores[name] = gt.load(name)
        except gt.DataError as error:
            print(f"{name} is left out: {error}")
    if len(stores) > 1:
        del stores["motifs"]  # stand in where no real data set can be had
    return stores


def run_bench(quick: bool, out: Path) -> None:
    """Measure everything, show it and write it."""
    document: dict[str, Any] = {"steps": {}, "methods": {}, "machine": machine()}
    with tempfile.TemporaryDirectory() as folder:
        print("kernels: first compilation, then from the cache ...", flush=True)
        document["compilation_seconds"] = {
            name: round(in_new_process("--compile", cache=folder), 2) for name in ("first", "cache")
        }
    print(document["compilation_seconds"])
    for name, store in load_stores().items():
        batch_size, rounds = SETTINGS[name]
        rounds = max(4, rounds // 5) if quick else rounds
        print(f"{name}: {rounds} rounds ...", flush=True)
        times = measure_steps(store, batch_size, rounds)
        memory = {}
        if DEVICE.type == "cuda" or Path("/proc/self/clear_refs").exists():
            for contender in ("pyg-vanilla", "vanilla", "transplant-dp", "transplant-ep"):
                memory[contender] = round(in_new_process("--memory", contender, name), 1)
        document["steps"][name] = {
            "ratios": {key: round(value / times["pyg-vanilla"], 4) for key, value in times.items()},
            "pyg_milliseconds": round(times["pyg-vanilla"], 3),
            "memory": memory,
            "batch_size": batch_size,
            "rounds": rounds,
        }
        document["methods"][name] = measure_methods(store, batch_size, rounds // 2)
    document["scaling"] = measure_scaling(5 if quick else 25)
    out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    show(document)
    # This process is one of those that the load counts.
    if float(document["machine"]["load"]) > 1.5:
        print("The machine was busy: the PyG step, with its large arrays, suffers most from that.")
    print(f"written to {out}")


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, rough figures")
    parser.add_argument("--out", type=Path, help="where to write; default: bench.json")
    parser.add_argument(
        "--device", default="cpu", help="cpu, or cuda: default file bench-cuda.json"
    )
    parser.add_argument("--memory", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    global DEVICE
    try:
        DEVICE = usable_device(options.device)
    except gt.GraphTransplantError as problem:
        parser.error(str(problem))
    if DEVICE.type not in ("cpu", "cuda"):
        parser.error(f"--device: cpu or cuda, got {options.device}")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.memory is not None:
        print(step_memory(*options.memory))
    elif options.compile:
        print(compile_seconds())
    else:
        default = "bench.json" if DEVICE.type == "cpu" else "bench-cuda.json"
        run_bench(options.quick, options.out or Path(default))


if __name__ == "__main__":
    main()
