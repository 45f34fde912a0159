"""Hostile folders of models: each must be refused in one line, or load, predict and be shown.

Takes sound models, changes every field of ``model.json``, damages the weights (with the checksum
that belongs to them: whoever means harm can compute it) and adds hand-made bombs. Each folder is
used in a process of its own under limits of time and memory. All randomness is seeded::

    python benchmarks/fuzz_models.py --mutations 400

``tests/test_hostile.py`` runs the bombs and a fixed sample of the rest.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph_transplant import TrainedModel, load, train
from graph_transplant.errors import GraphTransplantError
from graph_transplant.models import explain_rows
from graph_transplant.models.predict import predict_table

SECONDS = 20  # of computing
MEMORY = 2 << 30  # beyond what the process has when it starts
LONGEST_MESSAGE = 3000

ODD_VALUES = (
    *(None, True, -1, 0, 1, 1.5, -1e308, 10**12, 2**53, 10**30, "", "x", "A" * 20_000, "../x"),
    *([], {}, [1], ["a", "a"], [None], {"a": "b"}, [[1, 2], [3]], [{}], "\x1b[2J<script>"),
)

# ------------------------------------------------------------------ folders


@dataclass(frozen=True)
class Model:
    """The two files of a model, with rows that it predicts."""

    document: dict[str, Any]
    weights: bytes
    rows: Path

    def write(self, folder: Path) -> None:
        """Write the folder; the description has the checksum of the weights, unless changed."""
        folder.mkdir()
        (folder / "weights.safetensors").write_bytes(self.weights)
        (folder / "model.json").write_text(json.dumps(self.document))


@dataclass(frozen=True)
class Case:
    """A folder to make and to use."""

    name: str
    make: Callable[[Path], None]
    rows: Path


def sound_models(folder: Path) -> dict[str, Model]:
    """A model of each task, one of them an ensemble, and models without a network."""
    rng = random.Random(0)
    found = {}
    network = {"method": "vanilla", "hidden": 4, "layers": 2, "epochs": 2}
    for name, options in {
        "multiclass": {**network, "ensemble": 2},
        "multilabel": network,
        "regression": network,
        "forest": {"method": "forest"},
        "kernel": {"method": "wl-svm"},
    }.items():
        task = {"forest": "multilabel", "kernel": "multiclass"}.get(name, name)
        lines = []
        for graph in range(40):
            nodes = [{"id": n, "label": "CNO"[n % 3], "x": [n / 4]} for n in range(3 + graph % 7)]
            edges = [{"source": n, "target": n + 1} for n in range(len(nodes) - 1)]
            y: Any = f"class {graph % 2}" if task == "multiclass" else rng.random()
            if task == "multilabel":
                y = [graph % 2, graph % 3 % 2]
            lines.append(json.dumps({"id": f"g{graph}", "nodes": nodes, "edges": edges, "y": y}))
        rows = folder / f"{name}.jsonl"
        rows.write_text("\n".join(lines) + "\n")
        train(load(rows, task=task), forest=False, split="random", **options).save(folder / name)
        document = json.loads((folder / name / "model.json").read_text())
        weights = (folder / name / "weights.safetensors").read_bytes()
        found[name] = Model(document, weights, rows)
    return found


def with_weights(model: Model, weights: bytes) -> Model:
    """The model with other weights and their checksum."""
    digest = hashlib.sha256(weights).hexdigest()
    return Model({**model.document, "weights_sha256": digest}, weights, model.rows)


def places_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all values in a document, the first two of each list."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        items = list(enumerate(value))[:2]
    for key, part in items:
        yield from places_of(part, (*path, key))


def changed(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A document with another value at a place; ``KeyError`` as the value removes it."""
    document = copy.deepcopy(document)
    inner: Any = document
    for key in path[:-1]:
        inner = inner[key]
    if value is KeyError:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return document


def packed(header: dict[str, Any], content: bytes) -> bytes:
    """A safetensors file."""
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + content


def unpacked(weights: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and content of a safetensors file."""
    size = struct.unpack("<Q", weights[:8])[0]
    return json.loads(weights[8 : 8 + size]), weights[8 + size :]


def damaged_weights(rng: random.Random, weights: bytes) -> tuple[str, bytes]:
    """Damage the file, its header or its values."""
    header, content = unpacked(weights)
    name = rng.choice([key for key in header if key != "__metadata__"])
    start, end = header[name]["data_offsets"]
    kind = rng.choice(("flip", "cut", "field", "name", "values", "drop", "extra", "type"))
    if kind == "flip":
        place = rng.randrange(len(weights))
        return kind, weights[:place] + bytes([weights[place] ^ 1 << rng.randrange(8)]) + weights[
            place + 1 :
        ]
    if kind == "cut":
        return kind, weights[: rng.randrange(len(weights))]
    if kind == "field":
        field = rng.choice(("dtype", "shape", "data_offsets"))
        header[name] = {**header[name], field: rng.choice(ODD_VALUES)}
    elif kind == "name":
        header = {("x" if key == name else key): value for key, value in header.items()}
    elif kind == "values":
        fill = rng.choice((b"\xff", b"\x00\x00\x80\x7f", b"\x7f", rng.randbytes(4)))
        values = (fill * (end - start))[: end - start]
        content = content[:start] + values + content[end:]
    elif kind == "drop":
        del header[name]
    elif kind == "extra":
        size = len(content)
        extra = {"dtype": "F32", "shape": [1], "data_offsets": [size, size + 4]}
        header, content = (
            {**header, rng.choice(("reference.scores", "more")): extra},
            content + b"0" * 4,
        )
    else:
        header[name] = {
            **header[name],
            "dtype": rng.choice(("F16", "BF16", "I32", "F8_E4M3", "U8")),
        }
    return kind, packed(header, content)


def mutations(models: dict[str, Model], count: int, seed: int) -> Iterator[Case]:
    """Descriptions with a field changed or removed, and damaged weights, one for three of these."""
    rng = random.Random(seed)
    for number in range(count):
        task, model = list(models.items())[number % len(models)]
        if number % 4 == 3:
            kind, weights = damaged_weights(rng, model.weights)
            made, done = with_weights(model, weights), f"weights {kind}"
        else:
            path = rng.choice(list(places_of(model.document)))
            value = rng.choice((KeyError, *ODD_VALUES))
            done = f"{'.'.join(map(str, path))} {repr(value)[:30]}"
            made = Model(changed(model.document, path, value), model.weights, model.rows)
        yield Case(f"{number}, {task}: {done}", made.write, model.rows)


def bombs(models: dict[str, Model]) -> Iterator[Case]:
    """Small folders that ask for far too much."""
    model = models["regression"]
    architecture = model.document["architecture"]

    def asking(changes: dict[str, Any], weights: bytes = model.weights, **training: Any) -> Model:
        document = copy.deepcopy(model.document)
        document["architecture"] |= changes
        document["training"] |= training
        return with_weights(Model(document, b"", model.rows), weights)

    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    many = packed({f"t{number}": empty for number in range(200_000)}, b"")
    some = packed({f"t{number}": empty for number in range(90_000)}, b"")
    named = {
        "200,000 empty tensors": asking({}, many, ensemble=60_000),
        "60,000 members": asking({}, some, ensemble=60_000),
        "a billion members": asking({}, ensemble=10**9),
        "190,000 layers": asking({"layers": 190_000, "hidden": 1}, many),
        "90,000 layers": asking({"layers": 90_000, "hidden": 1}, some),
        "10^7 input layers": asking({"input_layers": 10**7, "hidden": 1}, some),
        "10^9 outputs": asking({"num_outputs": 10**9}),
        "10^9 features": asking({"in_features": 10**9, "continuous": 10**9, "hidden": 1}),
        "walks of 10^9 steps": asking({"walk": 10**9, "input_layers": 1}),
        "degrees up to 10^9": asking({"max_degree": 10**9}),
        "10^5 columns": asking({"hidden": 10**5}),
    }
    for name, made in named.items():
        yield Case(f"bomb: {name}", made.write, model.rows)

    def sparse(header: dict[str, Any], size: int) -> Callable[[Path], None]:
        def make(folder: Path) -> None:
            width = {"hidden": 10**5, "layers": 1} if header else {}
            Model(
                {**model.document, "architecture": {**architecture, **width}}, b"", model.rows
            ).write(folder)
            text = packed(header, b"")
            with (folder / "weights.safetensors").open("wb") as file:
                file.write(text)
                file.truncate(len(text) + size)

        return make

    size = 60 << 30
    tensor = {"dtype": "F32", "shape": [size >> 2], "data_offsets": [0, size]}
    yield Case("bomb: a sparse file", sparse({}, size), model.rows)
    yield Case("bomb: a sparse tensor", sparse({"head.0.weight": tensor}, size), model.rows)
    size = 1000 << 20
    tensor = {"dtype": "F32", "shape": [size >> 2], "data_offsets": [0, size]}
    yield Case("bomb: a smaller sparse tensor", sparse({"head.0.weight": tensor}, size), model.rows)
    for name, text in {
        "deep": '{"a":' * 100_000,
        "long": "[" + "{}," * (20 << 20) + "{}]",
        "digits": '{"format": ' + "9" * 100_000 + "}",
        "curve": json.dumps({**model.document, "curve": [[]] * 3_000_000}),
        "outputs": json.dumps({**model.document, "label_names": ["x"] * 3_000_000}),
    }.items():

        def make(folder: Path, text: str = text) -> None:
            model.write(folder)
            (folder / "model.json").write_text(text)

        yield Case(f"bomb: {name} JSON", make, model.rows)


# ------------------------------------------------------------------ the judge


def use(folder: Path, rows: Path) -> None:
    """Do with a model what everybody does."""
    model = TrainedModel.load(folder)
    assert repr(model)
    with tempfile.TemporaryDirectory() as out:
        predict_table(model, rows, Path(out) / "predictions.csv", note=lambda text: None)
        model.report(Path(out) / "card.html")
        if getattr(model.fitted, "chosen", {}).get("features") != "statistics":
            explain_rows(model, rows, count=2, note=lambda text: None)
        model.save(Path(out) / "again")
        TrainedModel.load(Path(out) / "again")


def one_line(text: str) -> bool:
    """Whether a message can be shown on one line."""
    return 0 < len(text) < LONGEST_MESSAGE and not set(text) & set("\n\r\0")


def judged(case: Case) -> tuple[str, str, float, int]:
    """Use a folder; return how it ended, what is wrong, and seconds and bytes of memory."""
    ended, problem = "read", ""
    begin = time.process_time()
    before = resident()
    with tempfile.TemporaryDirectory() as temporary:
        case.make(Path(temporary) / "model")
        try:
            use(Path(temporary) / "model", case.rows)
        except GraphTransplantError as error:
            ended = "refused"
            problem = "" if one_line(str(error)) else f"message {str(error)[:200]!r}"
        except Exception as error:  # noqa: BLE001 - whatever else comes is the finding
            ended, problem = "failed", f"{type(error).__name__}: {str(error)[:300]}"
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return ended, problem, time.process_time() - begin, max(0, most - before)


def resident() -> int:
    """Resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def apart(case: Case) -> tuple[str, str, float, int]:
    """Judge a case in a fork of this process, which Linux ends at its limits."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            most = pages * resource.getpagesize() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            signal.signal(signal.SIGXCPU, signal.SIG_DFL)
            os.write(writing, json.dumps(judged(case)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        told = file.read()
    status = os.waitpid(child, 0)[1]
    if told:
        ended, problem, seconds, memory = json.loads(told)
        return ended, problem, seconds, memory
    return "failed", f"ended by signal {os.waitstatus_to_exitcode(status)}", SECONDS, 0


def main() -> int:
    """Make and use the folders; print counts, and whatever went wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutations", type=int, default=400, help="besides the bombs")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    ends: Counter[str] = Counter()
    slowest, largest = (0.0, ""), (0, "")
    with tempfile.TemporaryDirectory() as temporary:
        models = sound_models(Path(temporary))
        for model in models.values():  # libraries are loaded before there are limits
            ended, problem, *_ = judged(Case("sound", model.write, model.rows))
            assert ended == "read", problem
        for case in [*bombs(models), *mutations(models, options.mutations, options.seed)]:
            ended, problem, seconds, memory = apart(case)
            ends["failed" if problem else ended] += 1
            slowest, largest = max(slowest, (seconds, case.name)), max(largest, (memory, case.name))
            if problem:
                print(f"{case.name}: {problem}", flush=True)
    print(f"{sum(ends.values())} folders: {dict(ends)}")
    print(
        f"slowest {slowest[0]:.1f} s ({slowest[1]}), largest {largest[0] >> 20} MiB ({largest[1]})"
    )
    return 1 if ends["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
