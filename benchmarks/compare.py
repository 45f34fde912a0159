"""Training steps of another commit beside those of this tree, both in one run.

    python benchmarks/compare.py main              # or: make bench-compare REV=main

Runs `bench.py --quick` of both by turns, each in a new process, and compares medians of ratios to
plain PyG steps. Several minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

HERE = Path(__file__).resolve().parents[1]
RUNS = 3


def measure(tree: Path, out: Path) -> dict[str, Any]:
    """Run the benchmark of a tree with the package of that tree."""
    command = [sys.executable, tree / "benchmarks" / "bench.py", "--quick", "--out", out]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)])}
    subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.DEVNULL, check=True)
    document: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return document


def table(before: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Median ratio of each contender that both have, and the change."""
    columns = {}
    for name, documents in (("before", before), ("now", now)):
        rows = pd.DataFrame(
            {
                (data, contender): ratio
                for data, found in document["steps"].items()
                for contender, ratio in found["ratios"].items()
            }
            for document in documents
        )
        columns[name] = rows.median()
    both = pd.DataFrame(columns).dropna()
    both.index = pd.MultiIndex.from_tuples(both.index, names=["data", "contender"])
    return both.assign(change=both["now"] / both["before"])


def main() -> None:
    """Run the comparison from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("revision", help="a commit, branch or tag")
    revision = parser.parse_args().revision
    documents: dict[Path, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "tree"
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(other), revision], check=True)
        try:
            for number in range(2 * RUNS):
                tree = (other, HERE)[number % 2]
                print(f"run {number + 1} of {2 * RUNS} ...", flush=True)
                documents.setdefault(tree, []).append(measure(tree, Path(folder) / "bench.json"))
        finally:
            subprocess.run([*git, "remove", "--force", str(other)], check=True)
    print(f"\nSteps as ratios to plain PyG steps; before: {revision}")
    print(table(documents[other], documents[HERE]).round(3).to_string())


if __name__ == "__main__":
    main()
