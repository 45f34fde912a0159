"""Damaged and hostile input files: each must end in a clear error or in graphs.

Every kind of attack in :data:`KINDS` yields cases, which fail if anything but a
``GraphTransplantError`` of one line is raised, a limit of time or memory is passed, or a file
beside the input changes. All randomness is seeded::

    python benchmarks/fuzz_inputs.py mutations --cases 4800
    python benchmarks/fuzz_inputs.py bombs stores kills

``tests/test_hostile.py`` runs a small sample.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import random
import re
import resource
import signal
import struct
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from bombs import BOMBS, explode, store

from graph_transplant import GraphStore, TrainedModel, load, stream, train
from graph_transplant.datasets.rows import TargetCodec
from graph_transplant.errors import GraphTransplantError, SkippedRows
from graph_transplant.models.predict import predict_table

# Of computing, not of waiting for a machine that has other things to do.
SECONDS = 5.0
# Beyond what the process has already.
MEMORY = 1 << 30
LONGEST_MESSAGE = 3000

# ------------------------------------------------------------------ the judge


class Hang(BaseException):
    """A case took too long. No `except Exception` stops it."""


@contextmanager
def guarded() -> Iterator[None]:
    """Limit time and memory, as Linux does."""

    def alarm(number: int, frame: Any) -> None:
        raise Hang(f"took more than {SECONDS} s")

    before = signal.signal(signal.SIGPROF, alarm)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file."""
    paths = [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]
    return {path: (os.lstat(path).st_size, os.lstat(path).st_mtime_ns) for path in paths}


def outcome(use: Callable[[Path], None], path: Path) -> tuple[str, str]:
    """Read a file; return how it ended, and what is wrong with that."""
    before = tree(path.parent)
    ended, problem = "read", ""
    try:
        with guarded():
            use(path)
    except GraphTransplantError as error:
        ended, problem = "refused", "" if one_line(str(error)) else f"message {str(error)[:200]!r}"
    except (Exception, Hang) as error:  # noqa: BLE001 - whatever else comes is the finding
        ended, problem = "failed", f"{type(error).__name__}: {str(error)[:300]}"
    if tree(path.parent) != before:
        ended, problem = "failed", f"files changed; {problem}"
    return ended, problem


def one_line(text: str) -> bool:
    """Whether a message can be shown on one line."""
    return 0 < len(text) < LONGEST_MESSAGE and not re.search(r"[\n\r\0]", text)


# ------------------------------------------------------------------ ways to read


def use_store(store: GraphStore) -> None:
    """Do with a store what everybody does."""
    batch = store.batch(torch.arange(len(store)))
    assert batch.num_graphs == len(store)
    assert batch.x is None or bool(torch.isfinite(batch.x).all())
    assert store.fingerprint()
    assert repr(store)
    assert all(one_line(item.reason) for item in store.skipped)


def read(options: dict[str, Any], path: Path) -> None:
    """Load and stream a file; every row is a graph or has a reason why it is none."""
    plain = {key: value for key, value in options.items() if key != "target"}
    codec = TargetCodec("multiclass", (options.get("target", "y"),), ("0", "1"))
    for given in (plain, {**options, "codec": codec}):
        number = 1
        for chunk in stream(path, rows_per_chunk=4, **given):
            rows = set(range(number, number + len(chunk)))
            graphs: set[int] = set()
            if chunk.store is not None:
                use_store(chunk.store)
                assert chunk.store.rows is not None
                graphs = set(chunk.store.rows.number.tolist())
            assert graphs | set(chunk.problems) == rows
            assert not graphs & set(chunk.problems)
            assert all(one_line(reason) for reason in chunk.problems.values())
            # What is written to a table later has to be text.
            "".join(chunk.ids).encode()
            number += len(chunk)
    use_store(load(path, **options))


def use_model(path: Path) -> None:
    """Load the model in whose folder a file lies, and predict."""
    model = TrainedModel.load(path.parent)
    assert repr(model)
    with tempfile.TemporaryDirectory() as out:
        predict_table(model, path.parent.parent / "rows.jsonl", Path(out) / "predictions.csv")


# ------------------------------------------------------------------ sound files and bombs


def write_file(folder: Path, name: str, content: bytes) -> Path:
    """Write a file alone into a folder."""
    path = folder / "in" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


@dataclass(frozen=True)
class Input:
    """A sound file, one that explodes, and how they are used."""

    name: str
    sound: bytes
    bomb: bytes  # a small file that asks for far too much
    use: Callable[[Path], None]
    # Writes a content to a folder that holds what else is needed; returns the file.
    write: Callable[[Path, str, bytes], Path] = write_file


CSV = (
    b"id,smiles,toxic,dose\n"
    b"a1,CCO,0,1.5\nb2,c1ccccc1O,1,2.25\nc3,CC(=O)Nc1ccc(O)cc1,0,3\nd4,[Na+].[Cl-],1,\n"
    b'"e,5",C#N,0,-4.5\nf6,O=C(O)c1ccccc1OC(C)=O,1,6e-3\n'
)
TU = {
    "A": b"1, 2\n2, 1\n3, 4\n4, 3\n4, 5\n5, 4\n6, 7\n7, 6\n",
    "graph_indicator": b"1\n1\n2\n2\n2\n3\n3\n",
    "graph_labels": b"1\n-1\n1\n",
    "node_labels": b"0\n1\n2\n1\n0\n2\n2\n",
    "node_attributes": b"0.5, 1\n1.5, 2\n2.5, 3\n3.5, 4\n4.5, 5\n5.5, 6\n6.5, 7\n",
    "edge_labels": b"0\n0\n1\n1\n0\n0\n1\n1\n",
}
OGB = {
    "raw/num-node-list": b"2\n1\n3\n2\n",
    "raw/num-edge-list": b"1\n0\n2\n1\n",
    "raw/graph-label": b"0\n1\n0\n1\n",
    "raw/edge": b"0,1\n0,1\n1,2\n1,0\n",
    "raw/edge-feat": b"0,0,0\n1,0,1\n0,0,0\n3,0,1\n",
    "raw/node-feat": b"5,0,4,5,3,0,2,0,0\n" * 8,
    "split/scaffold/train": b"0\n1\n",
    "split/scaffold/valid": b"2\n",
    "split/scaffold/test": b"3\n",
}


def packed(start: bytes, unit: bytes, size: int = 1 << 30) -> bytes:
    """Far more than may be unpacked: the parts of a gzip file may repeat."""
    part = gzip.compress(unit * ((16 << 20) // len(unit)), 6, mtime=0)
    return gzip.compress(start, mtime=0) + part * (size >> 24)


SMI = b"CCO\ta1\t0\nc1ccccc1O\tb2\t1\nCC(=O)N\tc3\t0\nC#N\td4\t1\n"


def workbook() -> bytes:
    """The table as an Excel workbook."""
    import pandas as pd

    content = io.BytesIO()
    pd.read_csv(io.BytesIO(CSV)).to_excel(content, index=False)
    return content.getvalue()


def parquet() -> bytes:
    """The table as a Parquet file."""
    import pandas as pd

    content = io.BytesIO()
    pd.read_csv(io.BytesIO(CSV)).to_parquet(content)
    return content.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    """An archive of some files."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return content.getvalue()


def tu_zip(**changes: bytes) -> bytes:
    """A TU data set, with other texts for some of its files."""
    return zipped({f"tiny/tiny_{part}.txt": text for part, text in {**TU, **changes}.items()})


def ogb_zip(packed_edges: bytes | None = None) -> bytes:
    """A data set like ogbg-molhiv."""
    tables = {name: gzip.compress(text, 1, mtime=0) for name, text in OGB.items()}
    tables["raw/edge"] = packed_edges or tables["raw/edge"]
    return zipped({f"hiv/{name}.csv.gz": table for name, table in tables.items()})


def json_lines() -> bytes:
    """Six graphs with labels and numbers."""
    lines = []
    for graph in range(6):
        nodes = [{"id": n, "label": "CNO"[n % 3], "x": [n / 4, graph]} for n in range(3 + graph)]
        edges = [{"source": n, "target": n + 1, "label": n % 2, "x": 0.5} for n in range(2 + graph)]
        lines.append({"id": f"g{graph}", "nodes": nodes, "edges": edges, "y": graph % 2})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def sdf() -> bytes:
    """Four molecules."""
    from rdkit import Chem

    records = []
    for number, smiles in enumerate(("CCO", "c1ccccc1", "CC(=O)N", "C#N")):
        block = Chem.MolToMolBlock(Chem.MolFromSmiles(smiles))
        records.append(f"{block}> <toxic>\n{number % 2}\n\n$$$$\n")
    return "".join(records).encode()


def huge_tensor(content: bytes) -> bytes:
    """A safetensors file whose first tensor claims to be huge."""
    size = struct.unpack("<Q", content[:8])[0]
    head = json.loads(content[8 : 8 + size])
    name = next(key for key in head if key != "__metadata__")
    head[name]["shape"] = [1 << 40, *head[name]["shape"][1:]]
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + size :]


def inputs(folder: Path) -> Iterator[Input]:
    """A sound file of every format; models and stores are made in a folder first."""
    table = {"smiles": "smiles", "target": "toxic", "id": "id"}
    lines = json_lines()
    rows = partial(read, table)
    yield Input("mine.csv", CSV, CSV + b'x,"' + b"C" * (20 << 20) + b'",1,1\n', rows)
    bomb = packed(b"id,smiles,toxic\n", b"C")
    yield Input("mine.csv.gz", gzip.compress(CSV, mtime=0), bomb, rows)
    toxic = partial(read, {"target": "toxic"})
    yield Input("mine.tsv", CSV.replace(b",", b"\t"), b"\t" * (20 << 20), toxic)
    yield Input("mine.sdf", sdf(), sdf() + b"  1  2  0" * (2 << 20), toxic)
    records = packed(b"", b"$$$$\n")
    yield Input("mine.sdf.gz", gzip.compress(sdf(), mtime=0), records, toxic)
    names = partial(read, {"smiles": "smiles", "target": "column 3", "id": "name"})
    yield Input("mine.smi", SMI, b"C" * (20 << 20), names)
    yield Input("mine.xlsx", workbook(), BOMBS["far-cell"].content(), rows)
    yield Input("mine.parquet", parquet(), BOMBS["parquet-rows"].content(), rows)
    graphs = partial(read, {})
    yield Input("mine.jsonl", lines, lines + b"[" * 200_000 + b"\n" + lines, graphs)
    deep = packed(b'{"nodes": ', b"[")
    yield Input("mine.jsonl.gz", gzip.compress(lines, mtime=0), deep, graphs)
    nodes = tu_zip(graph_indicator=b"1\n" * (150 << 20))
    yield Input("tiny.zip", tu_zip(), nodes, graphs)
    blank = ogb_zip(packed(b"0,1\n", b"\n"))
    yield Input("ogbg_molhiv.zip", ogb_zip(), blank, graphs)
    (folder / "rows.jsonl").write_bytes(lines * 5)
    store = load(folder / "rows.jsonl")
    store.save(folder / "made.safetensors")
    content = (folder / "made.safetensors").read_bytes()
    yield Input("mine.safetensors", content, huge_tensor(content), graphs)
    (folder / "rows.jsonl").write_bytes(lines)
    small = {"hidden": 4, "layers": 1, "epochs": 1, "split": "random"}
    train(store, method="vanilla", **small).save(folder / "made")
    described = (folder / "made" / "model.json").read_bytes()
    weights = (folder / "made" / "weights.safetensors").read_bytes()

    def write_model(place: Path, name: str, changed: bytes) -> Path:
        (place / "model").mkdir(exist_ok=True)
        model = described
        if name == "weights.safetensors":
            # Whoever changes the weights on purpose changes their checksum, too.
            digest = hashlib.sha256(changed).hexdigest()
            model = json.dumps({**json.loads(described), "weights_sha256": digest}).encode()
        for file, text in {"model.json": model, "weights.safetensors": weights}.items():
            (place / "model" / file).write_bytes(changed if file == name else text)
        return place / "model" / name

    # Libraries are loaded before there are limits.
    use_model(write_model(folder, "model.json", described))
    yield Input("model.json", described, b'{"a":' * 100_000, use_model, write_model)
    yield Input("weights.safetensors", weights, huge_tensor(weights), use_model, write_model)


# ------------------------------------------------------------------ damage

HUGE = b"1e400 -1e39 NaN Infinity -1 0x10 1_000 9223372036854775808 2147483648 null".split()
HUGE += [b"9" * 5000, "٣".encode(), b""]
PIECES = b'\0 \xff\xfe \xed\xa0\x80 " , $$$$ <script> \\ud800 \x1f\x8b PK\x03\x04 ../../x'.split(
    b" "
)
PIECES += [b"\n", b"\r", b"[" * 3000, b'{"a":' * 3000, "😀".encode(), b"A" * 20_000]
ODD_VALUES = (None, True, -1, 1.5, 1e308, 10**30, "", "A" * 20_000, "../x", [], {}, ["a", "a"])


def truncated(rng: random.Random, content: bytes) -> bytes:
    """Cut the end off."""
    return content[: rng.randrange(len(content))]


def flipped(rng: random.Random, content: bytes) -> bytes:
    """Change single bits."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 40))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def replaced(rng: random.Random, content: bytes) -> bytes:
    """Overwrite, insert, leave out or repeat some bytes."""
    start = rng.randrange(len(content))
    stop = start + rng.choice((1, 4, 30, 60))
    noise = rng.randbytes(stop - start)
    again = content[start:stop] * rng.choice((0, 2, 50))
    return content[:start] + rng.choice((noise, again, rng.choice(PIECES))) + content[stop:]


def huge_number(rng: random.Random, content: bytes) -> bytes:
    """Put an odd number in the place of another."""
    found = list(re.finditer(rb"-?[0-9]+(\.[0-9]+)?", content))
    if not found:
        return truncated(rng, content)
    match = rng.choice(found)
    return content[: match.start()] + rng.choice(HUGE) + content[match.end() :]


def odd_json(rng: random.Random, content: bytes) -> bytes:
    """Change a value of the first JSON object in a file: a line, the whole, or a header."""
    text = content.decode("latin-1")
    start = max(0, text.find("{"))
    try:
        value, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return flipped(rng, content)
    changed = json.dumps(odd_value(rng, value)).encode()
    # A header of safetensors has its length before it.
    head = struct.pack("<Q", len(changed)) if start == 8 else content[:start]
    return head + changed + content[end:]


def odd_value(rng: random.Random, value: Any) -> Any:
    """Replace something in a JSON value, however deep it lies."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(sorted(value))
        return {**value, key: odd_value(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.7:
        place = rng.randrange(len(value))
        return [*value[:place], odd_value(rng, value[place]), *value[place + 1 :]]
    return rng.choice(ODD_VALUES)


DAMAGES = (truncated, flipped, replaced, huge_number, odd_json)


def damaged(seed: int, content: bytes, count: int) -> Iterator[tuple[str, bytes]]:
    """Damage some content in many ways."""
    rng = random.Random(seed)
    for number in range(count):
        damage = DAMAGES[number % len(DAMAGES)]
        yield f"{number} ({damage.__name__})", damage(rng, content)


def repacked(content: bytes, name: str, damage: Callable[[bytes], bytes]) -> bytes:
    """An archive in which one file is changed."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    return zipped({**members, name: damage(members[name])})


def inner_damage(seed: int, count: int) -> Iterator[tuple[str, str, bytes]]:
    """Sound archives with damaged texts in them: the file, what was done, and the content."""
    for number, (part, text) in enumerate(TU.items()):
        for name, content in damaged(seed + number, text, count):
            yield "tiny.zip", f"{part} {name}", tu_zip(**{part: content})
    for name, content in damaged(seed, OGB["raw/edge"], count):
        yield "ogbg_molhiv.zip", f"edge {name}", ogb_zip(gzip.compress(content, 1, mtime=0))
    book, rng = workbook(), random.Random(seed)
    for part in ("xl/worksheets/sheet1.xml", "xl/workbook.xml", "xl/styles.xml"):
        for number in range(count):
            damage = DAMAGES[number % len(DAMAGES)]
            content = repacked(book, part, partial(damage, rng))
            yield "mine.xlsx", f"{part} {number} ({damage.__name__})", content


# ------------------------------------------------------------------ kinds of attacks

Case = tuple[str, str, str, str]  # what was attacked, how, how it ended, and what is wrong


def mutations(folder: Path, cases: int, seed: int) -> Iterator[Case]:
    """Damage a sound file of every format."""
    found = {item.name: item for item in inputs(folder)}
    each = max(1, cases // (len(found) + 3))
    every = [
        (item.name, name, content)
        for number, item in enumerate(found.values())
        for name, content in damaged(seed + number, item.sound, each)
    ]
    every += inner_damage(seed, max(1, 3 * each // (len(TU) + 4)))
    for name, what, content in every:
        yield name, what, *outcome(found[name].use, found[name].write(folder, name, content))


def bombs(folder: Path, cases: int, seed: int) -> Iterator[Case]:
    """Read small files that ask for too much, each in a process of its own."""
    for name in list(BOMBS)[:cases]:
        row = explode(name)
        failed = row["ended"].startswith("FAILED")
        took = f"{row['seconds']:.1f} s, {row['megabytes']} MB"
        print(f"{name}: {took}, {row['ended']}", file=sys.stderr)
        yield (
            "bombs",
            name,
            "failed" if failed else row["ended"][:7].strip(":"),
            (row["ended"] if failed else ""),
        )


def stores(folder: Path, cases: int, seed: int) -> Iterator[Case]:
    """Read stores with a valid digest whose tensors or description were changed."""
    rng = random.Random(seed)
    tensors = {
        "edge_index": torch.tensor([[0, 1], [1, 0]], dtype=torch.int32),
        "node_counts": torch.tensor([2, 2]),
        "edge_counts": torch.tensor([2, 0]),
        "y": torch.tensor([0, 1]),
        "x": torch.eye(4, 3),
        "edge_attr": torch.ones(2, 2, dtype=torch.uint8),
    }
    described = {"num_outputs": 2, "num_continuous": 1, "label_names": ["a", "b"]}
    for number in range(cases):
        key = rng.choice([*tensors, *described, "task", "name", "featurizer", "undirected"])
        if key in tensors:
            value = tensors[key].clone()
            odd = rng.choice((-1, 2, 3, 127, 2**31 - 1, 2**62, float("nan"), float("inf")))
            if value.is_floating_point() or isinstance(odd, int):
                value.view(-1)[rng.randrange(value.numel())] = wrapped(odd, value.dtype)
            if rng.random() < 0.3:
                value = rng.choice(
                    (value[:0], value[:1], value.repeat(2, *[1] * (value.dim() - 1)))
                )
            if rng.random() < 0.2:
                value = value.to(rng.choice((torch.int8, torch.float64, torch.int64, torch.bool)))
        else:
            value = rng.choice((*ODD_VALUES, 2**31 - 1, "regression", "multilabel"))
        changes = {**tensors, **described, key: value}
        path = write_file(folder, "mine.safetensors", store(**changes))
        yield "stores", f"{number}: {key}", *outcome(partial(read, {}), path)


def wrapped(number: float, dtype: torch.dtype) -> float:
    """A number as it fits into a type."""
    if dtype.is_floating_point:
        return number
    info = torch.iinfo(dtype)
    return max(info.min, min(info.max, int(number)))


def kills(folder: Path, cases: int, seed: int) -> Iterator[Case]:
    """Kill processes while they convert files to stores; what they leave must be whole."""
    rng = random.Random(seed)
    nodes = 60_000
    text = {
        "A": "".join(f"{n}, {n + 1}\n" for n in range(1, nodes, 2)).encode(),
        "graph_indicator": "".join(f"{n // 6 + 1}\n" for n in range(nodes)).encode(),
        "graph_labels": b"0\n1\n" * (nodes // 12),
        "node_labels": b"0\n1\n2\n" * (nodes // 3),
    }
    data = write_file(folder, "big.zip", zipped({f"big_{k}.txt": v for k, v in text.items()}))
    table = write_file(folder, "big.csv", b"smiles,y\n" + b"CCO,0\nCCN,1\n" * 500)
    saved = folder / "saved.safetensors"
    os.environ["GRAPH_TRANSPLANT_CACHE"] = str(folder / "kills")
    start = time.monotonic()
    expected, other = load(data).fingerprint(), load(table, target="y")
    other.save(saved)
    took, whole = time.monotonic() - start, other.fingerprint()
    for number in range(cases):
        for made in (folder / "kills").glob("*/*.safetensors"):
            made.unlink()
        # Forked, as a new process would take seconds to import what it needs.
        child = get_context("fork").Process(target=convert, args=(data, other, saved))
        child.start()
        time.sleep(rng.random() * 1.5 * took)
        child.kill()
        child.join()
        problem = ""
        try:
            for made in (folder / "kills").glob("*/*.safetensors"):
                GraphStore.load(made, check=True)
            if load(data).fingerprint() != expected:
                problem = "the data set differs"
            elif GraphStore.load(saved, check=True).fingerprint() != whole:
                problem = "the store differs"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            problem = f"{type(error).__name__}: {error}"
        yield "kills", f"{number}", "failed" if problem else "whole", problem


def convert(data: Path, other: GraphStore, saved: Path) -> None:
    """Convert a data set, and replace a store, again and again."""
    while True:
        load(data)
        other.save(saved)
        for made in Path(os.environ["GRAPH_TRANSPLANT_CACHE"]).glob("*/*.safetensors"):
            made.unlink()


KINDS: dict[str, Callable[[Path, int, int], Iterator[Case]]] = {
    "mutations": mutations,
    "bombs": bombs,
    "stores": stores,
    "kills": kills,
}
"""Kinds of attacks: each takes a folder, the number of cases and a seed."""


def main() -> int:
    """Attack and read; print counts, and whatever went wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", help=", ".join(KINDS), default=["mutations"])
    parser.add_argument("--cases", type=int, default=1000, help="of each kind, at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tried = failures = 0
    counts: dict[str, Counter[str]] = {}
    warnings.simplefilter("ignore", SkippedRows)
    for kind in options.kinds:
        with tempfile.TemporaryDirectory() as temporary:
            os.environ["GRAPH_TRANSPLANT_CACHE"] = str(Path(temporary) / "cache")
            for name, what, ended, problem in KINDS[kind](
                Path(temporary), options.cases, options.seed
            ):
                counts.setdefault(name, Counter())[ended] += 1
                tried += 1
                if problem:
                    failures += 1
                    print(f"{name}, {what}: {ended}, {problem}", file=sys.stderr)
    for name, count in counts.items():
        print(f"{name:22}", *(f"{number:5} {end}" for end, number in sorted(count.items())))
    print(f"{tried} cases, {failures} of them not handled")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
