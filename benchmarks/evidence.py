"""Run the comparisons that the results page rests on, one after the other, and keep their records.

    make evidence                              # go on where it stopped
    python benchmarks/evidence.py --list       # what is missing
    python benchmarks/evidence.py --copy       # copy finished records while it runs
    python benchmarks/evidence.py ENZYMES      # only the comparisons in this directory

The comparisons run in ``.evidence``: a copy of the project at one commit with a virtual environment
of its own, so that editing the project disturbs nothing. ``--update`` moves it to the current
commit. When a comparison ends or is stopped, its records are copied to ``results/full/DIRECTORY``,
with the commit they were made at. It may be killed at any moment.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".evidence"
TREE, PYTHON, COMMIT = HOME / "tree", HOME / "venv" / "bin" / "python", HOME / "commit"
RESULTS = ROOT / "results" / "full"
TORCH = "torch==2.13.0"

PROTOCOL = "--models gcs --layers 4 --folds 5 --epochs 1000 --seed 0"
ATTACK = "--attack 0.05,0.1,0.2,0.3"
MAIN = "vanilla,transplant-dp,transplant-ep,drop-nodes,label-smoothing"
BACE = "molecules/bace.csv.gz"
STRONG = "--recipe strong --models gcs --layers 4 --folds 5 --seed 0"
SCAFFOLDS = "--recipe strong --smiles mol --target Class --split scaffold-folds --folds 5 --seed 0"


@dataclass(frozen=True)
class Run:
    """One comparison: where its records go, the data set, and further options."""

    directory: str
    data: str
    methods: str
    repeats: int
    options: str = PROTOCOL
    folds: int = 5

    @property
    def command(self) -> list[str]:
        """Arguments of ``graph-transplant``, without ``--out``."""
        repeats = ("--repeats", str(self.repeats))
        return ["compare", self.data, "--methods", self.methods, *repeats, *self.options.split()]

    def covers(self, other: Run) -> bool:
        """Whether it has every trial of another run."""
        return (
            (self.directory, self.options) == (other.directory, other.options)
            and set(self.methods.split(",")) >= set(other.methods.split(","))
            and self.repeats >= other.repeats
        )

    def missing(self, records: list[dict[str, object]]) -> int:
        """How many of its trials have no record."""
        there = {(record["method"], record["repeat"], record["fold"]) for record in records}
        wanted = {
            (method, repeat, fold)
            for method in self.methods.split(",")
            for repeat in range(self.repeats)
            for fold in range(self.folds)
        }
        return len(wanted - there)


PAPER = (  # the paper's network: data and methods
    ("ENZYMES", MAIN),
    ("NCI1", MAIN),
    ("Mutagenicity", "vanilla,label-smoothing,transplant-dp,transplant-ep"),
)
STRONGER = (  # the strong recipe beside classical rivals
    ("ENZYMES-strong", "ENZYMES", "wl-svm,vanilla,transplant-dp", STRONG),
    ("NCI1-strong", "NCI1", "wl-svm,vanilla,transplant-dp", STRONG),
    ("BACE-strong", BACE, "forest,majority,vanilla,transplant-dp", SCAFFOLDS),
)
# The first repeat of everything comes before the others.
QUEUE = (
    Run("COIL-DEL", "COIL-DEL", "vanilla,transplant-dp", 1),  # the paper's largest claim
    Run("COIL-DEL", "COIL-DEL", MAIN, 1),
    *(Run(data, data, methods, 1, f"{PROTOCOL} {ATTACK}") for data, methods in PAPER),
    Run("COIL-DEL-ties", "COIL-DEL", "transplant-dp", 1, f"{PROTOCOL} --ties reset"),
    Run(
        "ENZYMES",
        "ENZYMES",
        "manifold-mixup,vanilla-x2,saliency-shuffled",
        1,
        f"{PROTOCOL} {ATTACK}",
    ),
    *(Run(place, data, methods, 1, options) for place, data, methods, options in STRONGER),
    Run("ENZYMES-classical", "ENZYMES", "forest,structure-blind,majority", 1, "--folds 5 --seed 0"),
    *(Run(data, data, methods, 3, f"{PROTOCOL} {ATTACK}") for data, methods in PAPER),
    *(Run(place, data, methods, 3, options) for place, data, methods, options in STRONGER),
    Run(
        "ENZYMES",
        "ENZYMES",
        "transplant-disconnected,transplant-size-label,transplant-scattered,transplant-random",
        3,
        f"{PROTOCOL} {ATTACK}",
    ),
    Run("COLLAB", "COLLAB", "vanilla,transplant-dp", 1, f"{PROTOCOL} --batch-size 64"),
    Run(
        "ENZYMES-gin",
        "ENZYMES",
        "vanilla,transplant-dp,transplant-ep",
        3,
        PROTOCOL.replace("gcs", "gin"),
    ),
)


def say(text: str) -> None:
    print(text, flush=True)


def lines(path: Path) -> list[bytes]:
    """The whole lines of a records file."""
    content = path.read_bytes() if path.exists() else b""
    return content[: content.rfind(b"\n") + 1].splitlines(keepends=True)


def records(directory: str) -> list[dict[str, object]]:
    """Finished trials, wherever more of them are."""
    places = (HOME / directory, RESULTS / directory)
    found = max((lines(place / "records.jsonl") for place in places), key=len)
    return [json.loads(line) for line in found]


def copy(directory: str) -> None:
    """Copy finished records to the results, and note the commit they were made at."""
    found, target = lines(HOME / directory / "records.jsonl"), RESULTS / directory
    known = lines(target / "records.jsonl")
    if len(found) <= len(known):
        return
    target.mkdir(parents=True, exist_ok=True)
    part = target / "records.part"
    data = os.environ.get("GRAPH_TRANSPLANT_DATA")  # where it lies on this machine says nothing
    content = b"".join(found)
    part.write_bytes(content.replace(f"{data}/".encode(), b"") if data else content)
    part.replace(target / "records.jsonl")
    notes, commit = target / "commits.txt", COMMIT.read_text().strip()
    before = notes.read_text() if notes.exists() else ""
    if before.split()[-1:] != [commit]:
        notes.write_text(f"{before}from record {len(known) + 1} on: {commit}\n")


def set_up(update: bool) -> None:
    """Make the copy of the project and its environment, at the current commit."""
    if PYTHON.exists() and COMMIT.exists() and not update:
        return
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    say(f"evidence: a copy of {commit[:12]} and its environment in {HOME}")
    TREE.mkdir(parents=True, exist_ok=True)
    archive = subprocess.Popen(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE)
    subprocess.run(["rm", "-rf", str(TREE / "src")], check=True)
    subprocess.run(["tar", "-x", "-C", str(TREE)], stdin=archive.stdout, check=True)
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", str(HOME / "venv")], check=True)
    install = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, TORCH], check=True)
    constraints = ["--constraint", str(TREE / "constraints.txt")]
    subprocess.run([*install, *constraints, "--editable", f"{TREE}[chem]"], check=True)
    COMMIT.write_text(commit + "\n")


def carry_out(one: Run, workers: int) -> None:
    """Run a comparison to its end, at low priority, and copy its records."""
    folder = HOME / one.directory
    known = lines(RESULTS / one.directory / "records.jsonl")
    if len(known) > len(lines(folder / "records.jsonl")):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "records.jsonl").write_bytes(b"".join(known))
    table = str(Path(os.environ.get("GRAPH_TRANSPLANT_DATA", "."), BACE))  # no name downloads it
    words = [table if word == BACE else word for word in one.command]
    command = [str(PYTHON), "-m", "graph_transplant", *words, "--out", str(folder)]
    command += ["--workers", str(workers)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    process = subprocess.Popen(["nice", "-n", "10", *command], cwd=TREE, env=environment)
    try:
        process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        copy(one.directory)
    if process.returncode:
        raise SystemExit(f"evidence: {' '.join(command)} ended with {process.returncode}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", nargs="*", help="only the comparisons in these directories")
    parser.add_argument("--list", action="store_true", help="show what is missing")
    parser.add_argument("--copy", action="store_true", help="only copy finished records")
    parser.add_argument("--update", action="store_true", help="move to the current commit")
    parser.add_argument("--workers", type=int, default=1, help="trials at a time, a core each")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the comparison ends, too
    queue = [one for one in QUEUE if not options.directory or one.directory in options.directory]
    if options.copy:
        for directory in {one.directory for one in queue}:
            copy(directory)
        return
    if not options.list:
        set_up(options.update)
    for one in queue:
        if not options.list:
            copy(one.directory)  # what a kill left behind
        missing = one.missing(records(one.directory))
        say(f"{one.directory}: {missing} trials missing ({one.methods}, {one.repeats} repeats)")
        if missing and not options.list:
            carry_out(one, options.workers)
    if not options.list:
        say("evidence: nothing is missing")


if __name__ == "__main__":
    main()
