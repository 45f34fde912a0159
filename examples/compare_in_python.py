"""Compare two methods on a list of PyG graphs, plot the differences, write a LaTeX table.

Run it with ``python examples/compare_in_python.py``; it takes about half a minute.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from matplotlib.figure import Figure

import graph_transplant as gt


def main(out: Path, graphs: int, epochs: int) -> gt.Results:
    """Compare, plot and write."""
    data = gt.load("motifs", graphs=graphs).to_pyg()  # a list of torch_geometric.data.Data
    methods = {"vanilla": [], "mine": gt.GraphTransplant(hops=(1, 2)), "drop 20 %": "drop-nodes"}
    results = gt.compare(data, methods=methods, folds=3, epochs=epochs, layers=2)
    print(results.verdict)
    print(results.summary()[["method", "score_mean", "difference", "p_holm"]])

    figure = Figure(figsize=(7, 3), layout="constrained")
    results.plot.forest(ax=figure.subplots())
    figure.savefig(out / "forest.pdf")
    (out / "table.tex").write_text(results.to_latex(), encoding="utf-8")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--graphs", type=int, default=240)
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    main(arguments.out, arguments.graphs, arguments.epochs)
