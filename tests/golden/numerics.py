"""What one seed gives: ``python tests/golden/numerics.py`` writes it to ``numerics.json``.

Do so only for a new method, on a new machine, or when ``numerics`` of the records goes up:
resuming a comparison relies on it. Numbers of several machines are kept side by side.
"""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

import graph_transplant as gt
from graph_transplant.augment import CleanPass, VirtualGraphs, build_method, expand_methods

PATH = Path(__file__).parent / "numerics.json"


def graphs() -> gt.GraphStore:
    """Sixty graphs with labels and numbers on the nodes."""
    plain = gt.load("motifs", graphs=60, seed=3)
    rng = np.random.default_rng(3)
    nodes = int(plain.node_counts.sum())
    labels = torch.eye(4)[torch.from_numpy(rng.integers(4, size=nodes))]
    numbers = torch.from_numpy(rng.random((nodes, 2), dtype=np.float32))
    return gt.GraphStore(
        x=torch.cat((numbers, labels), dim=1),
        edge_index=plain.edge_index,
        y=plain.y,
        node_counts=plain.node_counts,
        edge_counts=plain.edge_counts,
        num_outputs=plain.num_outputs,
        num_continuous=2,
    )


def machine() -> dict[str, str]:
    """What decides whether floating-point numbers come out equal to the bit."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {"processor": names[0] if names else platform.processor(), "torch": torch.__version__}


def structure(method: str) -> str:
    """Digest of the virtual graphs that a method makes of given saliency; empty without graphs."""
    store = graphs()
    batch = store.batch(range(24))
    model = gt.GraphClassifier.for_data(store, layers=2, hidden=8, seed=0)
    saliency = torch.from_numpy(np.random.default_rng(5).random(batch.num_nodes, dtype=np.float32))
    clean = CleanPass(batch, torch.eye(6)[batch.y], model.run(batch))
    clean._saliency[gt.NodeSaliency()] = saliency
    digest = hashlib.sha256()
    for augmentation in build_method(method, model, seed=0):
        augmentation.prepare(store, torch.Generator().manual_seed(0))
        for seed in range(3):
            made = augmentation(clean, model=model, generator=torch.Generator().manual_seed(seed))
            if not isinstance(made, VirtualGraphs):
                return ""
            for values in (made.batch.ptr, made.batch.row_ptr, made.batch.column):
                digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def trial(method: str) -> dict[str, Any]:
    """Losses and weights after two epochs of training."""
    store = graphs()
    model = gt.GraphClassifier.for_data(store, layers=2, hidden=8, seed=0)
    result = gt.fit(
        model,
        store.subset(range(40)),
        store.subset(range(40, 60)),
        build_method(method, model, seed=1),
        seed=2,
        epochs=2,
        batch_size=16,
    )
    weights = torch.cat([value.flatten() for value in model.state_dict().values()])
    return {
        "losses": [[log.train_loss, log.validation_loss] for log in result.history],
        "weights": float(weights.abs().sum()),
        "digest": hashlib.sha256(weights.numpy().tobytes()).hexdigest(),
    }


def golden(method: str) -> tuple[str, dict[str, Any], bool]:
    """Structure and trial written on this machine, or else on any; and whether it was this one."""
    machines = [one for one in json.loads(PATH.read_text())["machines"] if method in one["trials"]]
    here = machine()
    same = [one for one in machines if one["machine"] == here]
    written = same[0] if same else machines[-1]
    return written["structure"][method], written["trials"][method], bool(same)


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = {
        "machine": machine(),
        "structure": {name: structure(name) for name in expand_methods(["all"])},
        "trials": {name: trial(name) for name in expand_methods(["all"])},
    }
    others = json.loads(PATH.read_text())["machines"] if PATH.exists() else []
    others = [one for one in others if one["machine"] != found["machine"]]
    PATH.write_text(json.dumps({"machines": [*others, found]}, indent=1) + "\n")
