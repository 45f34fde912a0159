"""Export a trained model to ONNX and check it with onnxruntime on graphs of other sizes.

Run it with ``python examples/onnx_export.py``; it requires the ``onnx`` extra (``pip install
graph-transplant[onnx]``). The exported model returns calibrated probabilities and accepts batches
with any number of graphs, nodes and edges. Using it requires neither PyTorch nor this package.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime

import graph_transplant as gt
from graph_transplant.models import train
from graph_transplant.models.onnx import to_onnx


def main(out: Path, epochs: int) -> None:
    """Train a small model, export it and compare both."""
    graphs = gt.load("motifs", graphs=240)
    model = train(
        graphs, method="transplant-dp", hidden=32, epochs=epochs, learning_rate=5e-3, progress=False
    )
    to_onnx(model, out)

    session = onnxruntime.InferenceSession(str(out))
    names = json.loads(session.get_modelmeta().custom_metadata_map["label_names"])
    print(f"inputs: {', '.join(field.name for field in session.get_inputs())}")
    print(f"labels: {', '.join(names)}")
    others = gt.load("motifs", graphs=60, seed=1)
    worst = 0.0
    for sizes in ([0], [1, 2, 3], range(60)):
        batch = others.batch(sizes).to_pyg()
        given = {field.name: batch[field.name].numpy() for field in session.get_inputs()}
        (probabilities,) = session.run(["outputs"], given)
        expected = model.predictions(others.subset(sizes)).outputs.numpy()
        worst = max(worst, float(np.abs(probabilities - expected).max()))
        print(f"{len(sizes)} graphs, {batch.num_nodes} nodes: {probabilities.shape}")
    print(f"largest difference from PyTorch: {worst:.1e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="(default: a file that is not kept)")
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        main(options.out or Path(folder) / "model.onnx", options.epochs)
