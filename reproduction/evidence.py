"""Run the comparisons that the results page rests on, one after the other, and keep their records.

    make evidence                              # go on where it stopped
    python -m reproduction.evidence --list       # what is missing
    python -m reproduction.evidence --copy       # copy finished records while it runs
    python -m reproduction.evidence ENZYMES      # only the comparisons in this directory

The comparisons run in ``.evidence``: a copy of the project at one commit with a virtual environment
of its own, so that editing the project disturbs nothing. ``--update`` moves it to the current
commit. When a comparison ends or is stopped, its records and predictions are copied to
``results/full/DIRECTORY``, with the commit they were made at. It may be killed at any moment.
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
from typing import Any

from graph_transplant.methods import method_of

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".evidence"
TREE, PYTHON, COMMIT = HOME / "tree", HOME / "venv" / "bin" / "python", HOME / "commit"
RESULTS = ROOT / "results" / "full"
PREDICTIONS = "predictions"
TORCH = "torch==2.13.0"

PROTOCOL = "--folds 5 --epochs 1000 --seed 0"
ATTACK = "--attack 0.05,0.1,0.2,0.3"
STRONG = "--recipe strong --folds 5 --seed 0"
SCAFFOLDS = "--recipe strong --smiles mol --target Class --split scaffold-folds --folds 5 --seed 0"
MAIN = "vanilla,transplant-dp,transplant-ep,drop-nodes,label-smoothing"
CONTROLS = "transplant-cut,transplant-light"
SEVEN = f"{MAIN},{CONTROLS}"
RIVALS = "manifold-mixup,m-evolve,perturb-edges,mask-nodes,subgraph"

# Tables of molecules: paths below GRAPH_TRANSPLANT_DATA, so that no name downloads them.
MOLECULES = {
    "BACE": ("molecules/bace.csv.gz", "--smiles mol --target Class --metric auroc"),
    "ClinTox": ("molecules/clintox.csv.gz", "--smiles smiles --target CT_TOX --metric auroc"),
    "Tox21-NR-AhR": ("molecules/tox21.csv.gz", "--smiles smiles --target NR-AhR --metric auroc"),
    "HIV": ("molecules/HIV.csv.gz", "--smiles smiles --target HIV_active --metric auroc"),
}


@dataclass(frozen=True)
class Run:
    """One comparison: where its records go, the data set, methods and further options."""

    directory: str
    data: str
    methods: str
    repeats: int = 1
    options: str = PROTOCOL
    model: str = "gcs"
    layers: int = 4

    @property
    def command(self) -> list[str]:
        """Arguments of ``graph-transplant``, without ``--out``."""
        network = () if self.model == "" else ("--models", self.model, "--layers", str(self.layers))
        repeats = ("--repeats", str(self.repeats))
        words = ["compare", self.data, "--methods", self.methods, *network, *repeats]
        return [*words, *self.options.split()]

    @property
    def trials(self) -> set[tuple[object, ...]]:
        """What identifies each of its trials."""
        folds = int(self.options.split("--folds ")[1].split()[0])
        return {
            (method, *self._network(method), repeat, fold)
            for method in self.methods.split(",")
            for repeat in range(self.repeats)
            for fold in range(folds)
        }

    def _network(self, method: str) -> tuple[str | None, int | None]:
        return (None, None) if method in BASELINES else (self.model, self.layers)

    def covers(self, other: Run) -> bool:
        """Whether it has every trial of another run."""
        same = (self.directory, self.options) == (other.directory, other.options)
        return same and self.trials >= other.trials

    def missing(self, records: list[dict[str, Any]]) -> int:
        """How many of its trials have no record that their method would leave today."""
        names = ("method", "model", "layers", "repeat", "fold")
        done = {
            tuple(record[name] for name in names)
            for record in records
            if record["settings"].get("numerics", 1) == method_of(str(record["method"])).numerics
        }
        return len(self.trials - done)


BASELINES = ("forest", "wl-svm", "wl-oa", "structure-blind", "majority")
ATTACKED = f"{PROTOCOL} {ATTACK}"


def molecules(name: str, methods: str, options: str = PROTOCOL) -> Run:
    """A comparison on a table of molecules."""
    path, reading = MOLECULES[name]
    return Run(name, path, methods, options=f"{reading} {options}")


DONE = (  # complete
    Run("COIL-DEL", "COIL-DEL", MAIN),
    *(Run(data, data, MAIN, 3, ATTACKED) for data in ("ENZYMES", "NCI1")),
    Run(
        "Mutagenicity",
        "Mutagenicity",
        "vanilla,label-smoothing,transplant-dp,transplant-ep",
        3,
        ATTACKED,
    ),
    Run("COIL-DEL-ties", "COIL-DEL", "transplant-dp", options=f"{PROTOCOL} --ties reset"),
    Run("ENZYMES", "ENZYMES", "manifold-mixup,vanilla-x2,saliency-shuffled", options=ATTACKED),
    Run("ENZYMES-strong", "ENZYMES", "wl-svm,vanilla,transplant-dp", 3, STRONG),
    Run("NCI1-strong", "NCI1", "wl-svm,vanilla,transplant-dp", 3, STRONG),
    Run(
        "BACE-strong",
        "molecules/bace.csv.gz",
        "forest,majority,vanilla,transplant-dp",
        3,
        SCAFFOLDS,
        model="gine",
        layers=3,
    ),
    Run(
        "ENZYMES-classical",
        "ENZYMES",
        "forest,structure-blind,majority",
        options="--folds 5 --seed 0",
        model="",
    ),
)
# In the order of value.
QUEUE = (
    *DONE,
    # 1: the controls where Graph Transplant gains
    Run("ENZYMES", "ENZYMES", CONTROLS, options=ATTACKED),
    Run("NCI1", "NCI1", CONTROLS, options=ATTACKED),
    Run("Mutagenicity", "Mutagenicity", f"{CONTROLS},drop-nodes", options=ATTACKED),
    Run("COIL-DEL", "COIL-DEL", CONTROLS),
    # 2: further data sets
    *(Run(data, data, SEVEN, options=ATTACKED) for data in ("MUTAG", "PROTEINS", "IMDB-BINARY")),
    *(molecules(name, SEVEN, ATTACKED) for name in ("BACE", "ClinTox")),
    # 3: the paper's ablations, and the depths that it chooses among
    Run(
        "ENZYMES",
        "ENZYMES",
        "transplant-disconnected,transplant-size-label,transplant-scattered,transplant-random",
        options=ATTACKED,
    ),
    *(
        Run("ENZYMES-layers", "ENZYMES", "vanilla,transplant-dp", layers=layers)
        for layers in (3, 5)
    ),
    # 4: large graphs
    Run(
        "COLLAB",
        "COLLAB",
        f"vanilla,transplant-dp,drop-nodes,{CONTROLS}",
        options=f"{PROTOCOL} --batch-size 64",
    ),
    # 5: another network
    *(
        Run(f"{data}-gin", data, "vanilla,transplant-dp", model="gin")
        for data in ("ENZYMES", "NCI1", "Mutagenicity")
    ),
    # 6: more molecules
    molecules("Tox21-NR-AhR", SEVEN),
    molecules("HIV", "vanilla,transplant-dp,drop-nodes", f"{PROTOCOL} --scale medium"),
    # 7: as far as it gets
    Run("COLLAB", "COLLAB", "transplant-ep", options=f"{PROTOCOL} --batch-size 64"),
    *(
        Run(f"{data}-gin", data, "transplant-ep", model="gin")
        for data in ("ENZYMES", "NCI1", "Mutagenicity")
    ),
    *(
        Run(f"ENZYMES-{model}", "ENZYMES", "vanilla,transplant-dp,transplant-ep", model=model)
        for model in ("gcn", "gat")
    ),
    *(
        Run(
            f"ENZYMES-{readout}",
            "ENZYMES",
            "vanilla,transplant-dp",
            options=f"{PROTOCOL} --readout {readout}",
        )
        for readout in ("sum", "max")
    ),
    Run("NCI1", "NCI1", RIVALS, options=ATTACKED),
    Run("COIL-DEL", "COIL-DEL", RIVALS),
    Run(
        "ENZYMES-long",
        "ENZYMES",
        "vanilla,transplant-dp",
        options=PROTOCOL.replace("1000", "2000"),
    ),
    Run(
        "ENZYMES",
        "ENZYMES",
        "transplant-disconnected,transplant-size-label,transplant-scattered,transplant-random",
        2,
        ATTACKED,
    ),
    Run("DD", "DD", "vanilla,transplant-dp,drop-nodes"),
    Run("REDDIT-BINARY", "REDDIT-BINARY", "vanilla,transplant-dp"),
)


def say(text: str) -> None:
    print(text, flush=True)


def lines(path: Path) -> list[bytes]:
    """The whole lines of a records file."""
    content = path.read_bytes() if path.exists() else b""
    return content[: content.rfind(b"\n") + 1].splitlines(keepends=True)


def records(directory: str) -> list[dict[str, Any]]:
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
    for file in (HOME / directory / PREDICTIONS).glob("*.npz"):  # before the records
        copied = target / PREDICTIONS / file.name
        copied.parent.mkdir(exist_ok=True)
        copied.write_bytes(file.read_bytes())
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
    data = Path(os.environ.get("GRAPH_TRANSPLANT_DATA", "."))
    words = [str(data / word) if word.startswith("molecules/") else word for word in one.command]
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
        say(f"{one.directory}: {missing} of {len(one.trials)} trials missing ({one.methods})")
        if missing and not options.list:
            carry_out(one, options.workers)
    if not options.list:
        say("evidence: nothing is missing")


if __name__ == "__main__":
    main()
