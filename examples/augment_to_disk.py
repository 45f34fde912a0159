"""Write an augmented data set to disk with ``mix``, for any kind of training.

Run it with ``python examples/augment_to_disk.py --out augmented``. There is no model here: all
nodes have the same weight, so labels are mixed by the share of nodes each graph contributes. If you
have a model, pass its node saliency to ``mix`` instead.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.nn.functional import cross_entropy, one_hot
from torch_geometric.data import Data

import graph_transplant as gt
from graph_transplant.data import StoreWriter

COPIES = 2
BATCH = 64


def with_soft_labels(graphs: gt.GraphStore) -> gt.GraphStore:
    """Return the graphs with class probabilities as targets, float [graphs, classes]."""
    soft = one_hot(graphs.labels, graphs.num_outputs).float()
    return graphs.with_targets(soft, task="regression", label_names=graphs.label_names)


def mixtures(graphs: gt.GraphStore, seed: int) -> Iterator[gt.GraphStore]:
    """Yield mixed graphs in batches."""
    transplant = gt.GraphTransplant(connect="dp")
    generator = torch.Generator().manual_seed(seed)
    for _ in range(COPIES):
        order = torch.randperm(len(graphs), generator=generator)
        for batch in graphs.batches(order, BATCH):
            mixed = transplant.mix(batch, generator=generator).batch.to_pyg()
            # Other node fields are carried along.
            yield gt.GraphStore.from_pyg(
                mixed.to_data_list(), task="regression", node_fields=tuple(graphs.node_fields)
            )


def as_line(number: int, graph: Data) -> str:
    """Return a graph as a line of node-link JSON."""
    first, second = graph.edge_index
    ends = graph.edge_index[:, first <= second].t().tolist()
    return json.dumps(
        {
            "id": f"graph {number}",
            "nodes": [{"id": node} for node in range(graph.num_nodes)],
            "edges": [{"source": one, "target": other} for one, other in ends],
            "y": graph.y.flatten().tolist(),
        }
    )


def main(out: Path) -> None:
    """Write ``augmented.safetensors`` and ``augmented.jsonl``, and read both again."""
    out.mkdir(parents=True, exist_ok=True)
    originals = gt.load("motifs", graphs=120)
    soft = with_soft_labels(originals)
    path, lines = out / "augmented.safetensors", out / "augmented.jsonl"
    # The writer keeps only one part in memory at a time.
    with StoreWriter(
        path, name="motifs, augmented", task="regression", label_names=originals.label_names
    ) as writer:
        writer.append(soft)
        for piece in mixtures(soft, seed=0):
            writer.append(piece)

    augmented = gt.load(path)
    with lines.open("w", encoding="utf-8") as file:
        for number, graph in enumerate(augmented):
            file.write(as_line(number, graph) + "\n")
    again = gt.load(lines)
    print(f"{len(originals)} graphs and {len(augmented) - len(originals)} mixtures of them")
    same = torch.equal(again.edge_index, augmented.edge_index)
    print(f"both files hold the same graphs: {same and torch.allclose(again.y, augmented.y)}")
    shares = augmented.y[len(originals) :].max(1).values
    print(f"mixed labels add up to one: {torch.allclose(augmented.y.sum(1), torch.ones(1))}")
    print(f"mean share of the larger class: {float(shares.mean()):.2f}")

    # Any training loop can use this: PyTorch's cross-entropy accepts probabilities as targets.
    model = gt.GraphClassifier.for_data(augmented, hidden=16, seed=0)
    batch = augmented.batch(range(100, 140))
    loss = cross_entropy(model.run(batch).logits, batch.y)
    print(f"loss of a fresh model: {float(loss.detach()):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder (default: one that is not kept)")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        main(options.out or Path(folder))
