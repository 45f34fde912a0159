"""Training on a data set that is larger than the memory it may use.

Writes graphs of the size of ogbg-ppa to one file, piece by piece, and trains on them twice, each
time in a process of its own: from the mapped file under a memory limit well below its size, and
with everything in memory. Both take the same steps and must find the same losses.

    python benchmarks/large_store.py                         # 40,000 graphs, some minutes
    python benchmarks/large_store.py --methods vanilla transplant-dp
    python benchmarks/large_store.py --graphs 500 --steps 10 --limit 600   # a first impression

The limit is kept in two ways, both on Linux without special rights:

* ``RLIMIT_DATA`` forbids the process more memory of its own than the limit; only the mapped file
  is left out of account. An allocation that goes beyond fails.
* Pages of the file that are resident count as well: a thread looks every few milliseconds, and when
  they bring the process near the limit they are handed back and dropped from the system's cache, as
  the system itself does when memory is short, so that they are read from the disk again.

So the peak of the whole process, its libraries and pages of the file included, is below the limit.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import graph_transplant as gt
from graph_transplant.augment import build_method
from graph_transplant.data import GraphStore, StoreWriter
from graph_transplant.data.targets import Loss
from graph_transplant.training.step import take_step

MIB = 1 << 20
FEATURES, CLASSES = 7, 37
NODES, EDGES = 240, 2_250  # of every graph, each edge in both directions
PIECE = 250  # graphs generated at a time
BATCH_SIZE = 64
MADV_DONTNEED = 4
# Share of the limit at which resident pages of the file are handed back, and how often to look.
NEAR, EVERY = 0.85, 0.005


# -------------------------------------------------------------------- the data


def make_piece(number: int, graphs: int) -> GraphStore:
    """Random graphs of distinct undirected edges; features tell a little."""
    random = np.random.default_rng((0, number))
    pairs = np.stack(np.triu_indices(NODES, 1))
    keys = random.random((graphs, pairs.shape[1]), dtype=np.float32)
    chosen = np.argpartition(keys, EDGES, axis=1)[:, :EDGES].ravel()
    one, other = pairs[:, chosen]
    y = random.integers(0, CLASSES, graphs)
    centres = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    noise = random.normal(size=(graphs * NODES, FEATURES))
    x = np.repeat(centres[y], NODES, axis=0) * 0.3 + noise
    return GraphStore(
        x=torch.from_numpy(x.astype(np.float32)),
        # Both directions one after the other, so that graphs stay together.
        edge_index=torch.from_numpy(
            np.stack((np.stack((one, other), 1).ravel(), np.stack((other, one), 1).ravel()))
        ),
        y=torch.from_numpy(y),
        node_counts=torch.full((graphs,), NODES),
        edge_counts=torch.full((graphs,), 2 * EDGES),
        num_outputs=CLASSES,
    )


def write(path: Path, graphs: int) -> None:
    """Write the data set: of ten graphs eight are for training, one validates, one tests."""
    official = torch.arange(graphs) % 10 - 7
    with StoreWriter(
        path,
        name="ppa-like",
        num_outputs=CLASSES,
        num_continuous=FEATURES,
        official=official.clamp(min=0),
    ) as writer:
        for number, start in enumerate(range(0, graphs, PIECE)):
            writer.append(make_piece(number, min(PIECE, graphs - start)))


# -------------------------------------------------------------------- the child process


def status(key: str) -> int:
    """Return an entry of ``/proc/self/status`` in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def hand_back(path: Path) -> None:
    """Give back the resident pages of a mapped file, and drop them from the system's cache."""
    library = ctypes.CDLL(None, use_errno=True)
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if line.endswith(str(path)):
            first, last = (int(end, 16) for end in line.split()[0].split("-"))
            size = ctypes.c_size_t(last - first)
            if library.madvise(ctypes.c_void_p(first), size, MADV_DONTNEED):
                raise OSError(ctypes.get_errno(), "madvise")
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Watch(threading.Thread):
    """Notes how much memory the process has, and hands back pages of the file near the limit."""

    def __init__(self, path: Path, limit: int) -> None:
        super().__init__(daemon=True)
        self.path, self.limit = path, limit
        self.own = self.handed_back = 0

    def run(self) -> None:
        while True:
            self.own = max(self.own, status("RssAnon"))
            if self.limit and status("VmRSS") > NEAR * self.limit:
                hand_back(self.path)
                self.handed_back += 1
            time.sleep(EVERY)


def in_memory(store: GraphStore) -> GraphStore:
    """Copy a store into memory."""
    assert store.x is not None
    return GraphStore(
        x=store.x.clone(),
        edge_index=store.edge_index.clone(),
        y=store.y.clone(),
        node_counts=store.node_counts.clone(),
        edge_counts=store.edge_counts.clone(),
        num_outputs=store.num_outputs,
        num_continuous=store.num_continuous,
        official=store.official,
    )


def train(path: Path, method: str, steps: int, limit: int) -> dict[str, Any]:
    """Train and evaluate in this process, within ``limit`` bytes.

    A limit of 0 is none; everything is then copied into memory.
    """
    torch.set_num_threads(1)
    if limit:
        allowed = path.stat().st_size + limit
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
        hand_back(path)
    watch = Watch(path, limit)
    watch.start()
    store = GraphStore.load(path)
    if not limit:
        store = in_memory(store)
    official = store.official
    assert official is not None
    training, test = store.subset(official == 0), store.subset(official == 2)
    model = gt.GraphClassifier.for_data(store.subset(official < 2), conv="gcs", layers=3, seed=0)
    augment = build_method(method, model, seed=0)
    for augmentation in augment:
        augmentation.prepare(training, torch.Generator().manual_seed(0))
    parameters = [*model.parameters(), *(p for a in augment for p in a.parameters())]
    optimizer = torch.optim.Adam(parameters, lr=5e-4)
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(training), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model.train()
    seconds, processor, losses = [], [], []
    batches = iter(training.batches(order[: steps * BATCH_SIZE], BATCH_SIZE))
    while True:
        start, start_processor = time.perf_counter(), time.process_time()
        batch = next(batches, None)
        if batch is None:
            break
        found = take_step(
            model, batch, augment, optimizer, loss_of=Loss(), clip_norm=2.0, generator=generator
        )
        assert found is not None
        losses.append(float(found.total.detach()))
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - start_processor)
    accuracy = gt.evaluate(model, test, batch_size=BATCH_SIZE).accuracy
    return {
        "steps": len(losses),
        "seconds": statistics.median(seconds),
        "processor": statistics.median(processor),
        "losses": losses,
        "accuracy": accuracy,
        "own": watch.own,
        "peak": status("VmHWM"),
        "handed_back": watch.handed_back,
    }


# -------------------------------------------------------------------- the parent process


def run_child(path: Path, method: str, steps: int, limit: int) -> dict[str, Any]:
    """Run :func:`train` in a process of its own."""
    command = [sys.executable, __file__, "--child", str(path), "--methods", method]
    command += ["--steps", str(steps), "--limit", str(limit / MIB)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"the child process failed:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measure(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.safetensors"
        write(path, arguments.graphs)
        size, limit = path.stat().st_size, int(arguments.limit * MIB)
        print(
            f"{arguments.graphs} graphs, a file of {size / MIB:.0f} MiB, written by a process "
            f"whose peak was {status('VmHWM') / MIB:.0f} MiB; limit {limit / MIB:.0f} MiB",
            flush=True,
        )
        for method in arguments.methods:
            compare(path, method, arguments.steps, limit)


def compare(path: Path, method: str, steps: int, limit: int) -> None:
    """Train from the file and from memory, and print both."""
    mapped, memory = run_child(path, method, steps, limit), run_child(path, method, steps, 0)
    print(f"training: gcs 3 x 128, {method}, {mapped['steps']} steps of {BATCH_SIZE} graphs")
    for name, found in (("mapped file", mapped), ("in memory", memory)):
        print(
            f"  {name}: {found['processor']:.3f} s of processor time per step (median), "
            f"{found['seconds']:.3f} s by the clock; peak {found['peak'] / MIB:.0f} MiB in all, "
            f"{found['own'] / MIB:.0f} MiB its own; test accuracy {found['accuracy']:.3f}"
        )
    print(f"  pages of the file were handed back {mapped['handed_back']} times")
    if mapped["losses"] != memory["losses"]:
        raise SystemExit("the losses differ")
    print("  the losses of all steps are equal, bit for bit", flush=True)
    if mapped["peak"] > limit:
        raise SystemExit("the process went beyond the limit")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--graphs", type=int, default=40_000)
    parser.add_argument("--steps", type=int, default=200, help="at most; one epoch has no more")
    parser.add_argument("--methods", nargs="+", default=["vanilla"], help="such as transplant-dp")
    parser.add_argument("--limit", type=float, default=768.0, help="MiB that training may use")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is None:
        measure(arguments)
    else:
        found = train(
            arguments.child, arguments.methods[0], arguments.steps, int(arguments.limit * MIB)
        )
        json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
