"""Some thousand damaged and hostile inputs: a clear error or listed rows, and nothing else.

Every case ends in a :class:`GraphTransplantError` of one line, or in graphs together with reasons
for the rows that are none: no other exception or warning, no hang, no file written anywhere but in
the cache, and no memory beyond a limit. All randomness is seeded, so that a case that fails does so
again.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import random
import re
import resource
import signal
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graph_transplant.datasets import load, stream
from graph_transplant.errors import GraphTransplantError
from graph_transplant.graphs import GraphStore
from graph_transplant.models.fitting import train
from graph_transplant.models.model import TrainedModel
from graph_transplant.models.predict import predict_table

pytest.importorskip("rdkit")

# Of computing, not of waiting for a machine that has other things to do.
SECONDS = 5.0
# Beyond what the process has already.
MEMORY = 1 << 30
LONGEST_MESSAGE = 3000


class Hang(BaseException):
    """A case took too long. No `except Exception` stops it."""


@contextmanager
def guarded() -> Iterator[None]:
    """Limit time and memory."""

    def alarm(number: int, frame: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, alarm)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


pytestmark = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the limits are those of Linux"
)


def tree(root: Path) -> dict[str, tuple[int, int]]:
    """Return every file outside the cache, with its size and time of change."""
    found = {}
    for folder, below, files in os.walk(root):
        if folder == str(root) and "cache" in below:
            below.remove("cache")
        for name in files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            found[path] = status.st_size, status.st_mtime_ns
    return found


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("work", "in", "elsewhere"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("GRAPH_TRANSPLANT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GRAPH_TRANSPLANT_DATA", raising=False)
    return tmp_path


# ------------------------------------------------------------------ the judge


def one_line(text: str) -> bool:
    return 0 < len(text) < LONGEST_MESSAGE and not re.search(r"[\n\r\0]", text)


def use(store: GraphStore) -> None:
    """Do with a store what everybody does."""
    batch = store.batch(torch.arange(len(store)))
    assert batch.num_graphs == len(store)
    assert int(batch.edge_index.max() if batch.edge_index.numel() else 0) < batch.num_nodes
    if store.num_node_features:
        assert bool(torch.isfinite(batch.x).all())
    assert store.fingerprint()
    assert repr(store)


def loaded(data: Any, options: dict[str, Any]) -> None:
    store = load(data, **options)
    use(store)
    assert all(one_line(item.reason) for item in store.skipped)
    assert all(item.row >= 1 for item in store.skipped)


def streamed(data: Any, options: dict[str, Any]) -> None:
    number = 1
    for chunk in stream(data, rows_per_chunk=4, **options):
        assert chunk.first == number
        rows = set(range(number, number + len(chunk)))
        read: set[int] = set()
        if chunk.store is not None:
            use(chunk.store)
            assert chunk.store.rows is not None
            read = set(chunk.store.rows.number.tolist())
        assert read | set(chunk.problems) == rows
        assert not read & set(chunk.problems)
        assert all(one_line(reason) for reason in chunk.problems.values())
        # What is written to a table later has to be text.
        assert "".join(chunk.ids).encode() is not None
        number += len(chunk)


def verdict(what: Callable[[], None]) -> tuple[str, str]:
    """Run a case; return how it ended, and what was wrong with that."""
    try:
        with guarded():
            what()
    except GraphTransplantError as error:
        return "refused", "" if one_line(str(error)) else f"message {str(error)[:200]!r}"
    except Hang:
        return "hung", f"took more than {SECONDS} s"
    # Whatever else comes is what this test is for.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return "failed", f"{type(error).__name__}: {str(error)[:300]}"
    return "read", ""


Case = tuple[str, Callable[[], None]]


def judge(root: Path, cases: Iterator[Case]) -> dict[str, int]:
    """Run cases, and report all that went wrong at once."""
    counts = {"refused": 0, "read": 0, "hung": 0, "failed": 0}
    wrong: list[str] = []
    for name, case in cases:
        before = tree(root)
        ended, problem = verdict(case)
        counts[ended] += 1
        if problem:
            wrong.append(f"{name}: {problem}")
        if tree(root) != before:
            wrong.append(f"{name}: files changed: {set(tree(root).items()) ^ set(before.items())}")
    assert not wrong, f"{len(wrong)} of {sum(counts.values())}:\n" + "\n".join(wrong[:40])
    return counts


def judge_ways(root: Path, inputs: Iterator[tuple[str, Any, dict[str, Any]]]) -> dict[str, int]:
    """Read every input with `load` and with `stream`."""
    return judge(root, every_way(inputs))


def every_way(inputs: Iterator[tuple[str, Any, dict[str, Any]]]) -> Iterator[Case]:
    for name, data, options in inputs:
        plain = {key: value for key, value in options.items() if key != "target"}
        yield f"{name}, load", partial(loaded, data, options)
        yield f"{name}, stream", partial(streamed, data, plain)
        yield f"{name}, stream with targets", partial(streamed, data, {**options, "targets": True})


# ------------------------------------------------------------------ damage

HUGE = (
    b"1e400",
    b"-1e39",
    b"99999999999999999999999999",
    b"9" * 5000,
    b"NaN",
    b"Infinity",
    b"-1",
    b"0x10",
    b"1_000",
    b"9223372036854775808",
    b"2147483648",
    b"1e-400",
    "٣".encode(),
    b"null",
    b"",
)
PIECES = (
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\n",
    b"\r",
    b'"',
    b"'",
    b",",
    b";",
    b"\t",
    b"[" * 3000,
    b'{"a":' * 3000,
    b"$$$$\n",
    b"<script>",
    "😀".encode(),
    b"\\ud800",
    b"A" * 20_000,
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"../../x",
)


def truncated(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def flipped(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 40))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def overwritten(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content))
    noise = rng.randbytes(rng.choice((1, 4, 30)))
    return content[:start] + noise + content[start + len(noise) :]


def inserted(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content) + 1)
    return content[:start] + rng.choice(PIECES) + content[start:]


def cut_out(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content))
    return content[:start] + content[start + rng.randrange(1, 60) :]


def repeated(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content))
    stop = start + rng.randrange(1, 80)
    return content[:stop] + content[start:stop] * rng.choice((1, 2, 50)) + content[stop:]


def huge_number(rng: random.Random, content: bytes) -> bytes:
    found = list(re.finditer(rb"-?[0-9]+(\.[0-9]+)?", content))
    if not found:
        return truncated(rng, content)
    match = rng.choice(found)
    return content[: match.start()] + rng.choice(HUGE) + content[match.end() :]


def lines_shuffled(rng: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    rng.shuffle(lines)
    return b"".join(lines)


def noise(rng: random.Random, content: bytes) -> bytes:
    return rng.randbytes(rng.randrange(1, 2000))


DAMAGES = (
    truncated,
    flipped,
    overwritten,
    inserted,
    cut_out,
    repeated,
    huge_number,
    lines_shuffled,
    noise,
)


def damaged(seed: int, content: bytes, count: int) -> Iterator[tuple[str, bytes]]:
    """Damage some content in many ways, some of them two at once."""
    rng = random.Random(seed)
    for number in range(count):
        damage = DAMAGES[number % len(DAMAGES)]
        result = damage(rng, content)
        names = damage.__name__
        if result and number % 5 == 4:
            second = rng.choice(DAMAGES)
            result, names = second(rng, result), f"{names}+{second.__name__}"
        yield f"{number} ({names})", result


# ------------------------------------------------------------------ sound inputs

CSV = (
    b"id,smiles,toxic,dose\n"
    b"a1,CCO,0,1.5\nb2,c1ccccc1O,1,2.25\nc3,CC(=O)Nc1ccc(O)cc1,0,3\nd4,[Na+].[Cl-],1,\n"
    b'"e,5",C#N,0,-4.5\nf6,O=C(O)c1ccccc1OC(C)=O,1,6e-3\n'
)


def json_lines() -> bytes:
    graphs = []
    for number in range(6):
        nodes = [
            {"id": f"n{n}", "label": "CNO"[n % 3], "x": [n / 4, number]} for n in range(3 + number)
        ]
        edges = [
            {"source": f"n{n}", "target": f"n{n + 1}", "label": n % 2, "x": 0.5}
            for n in range(2 + number)
        ]
        graphs.append({"id": f"g{number}", "nodes": nodes, "edges": edges, "y": number % 2})
    return b"".join(json.dumps(graph).encode() + b"\n" for graph in graphs)


def sdf() -> bytes:
    from rdkit import Chem

    records = []
    for number, smiles in enumerate(("CCO", "c1ccccc1", "CC(=O)N", "C#N")):
        molecule = Chem.MolFromSmiles(smiles)
        molecule.SetProp("_Name", f"m{number}")
        records.append(f"{Chem.MolToMolBlock(molecule)}> <toxic>\n{number % 2}\n\n$$$$\n")
    return "".join(records).encode()


TU_FILES = {
    "A": b"1, 2\n2, 1\n3, 4\n4, 3\n4, 5\n5, 4\n6, 7\n7, 6\n",
    "graph_indicator": b"1\n1\n2\n2\n2\n3\n3\n",
    "graph_labels": b"1\n-1\n1\n",
    "node_labels": b"0\n1\n2\n1\n0\n2\n2\n",
    "node_attributes": b"0.5, 1\n1.5, 2\n2.5, 3\n3.5, 4\n4.5, 5\n5.5, 6\n6.5, 7\n",
    "edge_labels": b"0\n0\n1\n1\n0\n0\n1\n1\n",
}


def tu_zip(files: dict[str, bytes] = TU_FILES, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression, compresslevel=1) as archive:
        for part, content in files.items():
            archive.writestr(f"tiny/tiny_{part}.txt", content)
    return packed.getvalue()


def ogb_files() -> dict[str, bytes]:
    """Three molecules in the layout of ogbg-molhiv."""
    return {
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


def ogb_zip(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"ogbg_molhiv/{name}.csv.gz", gzip.compress(content, 1, mtime=0))
    return packed.getvalue()


def store_file(folder: Path) -> bytes:
    store = load("motifs", graphs=6)
    store = GraphStore(
        x=torch.arange(int(store.node_counts.sum())).float().unsqueeze(1),
        edge_index=store.edge_index,
        y=store.y,
        node_counts=store.node_counts,
        edge_counts=store.edge_counts,
        label_names=store.label_names,
        num_continuous=1,
        featurizer={"kind": "graphs"},
    )
    store.save(folder / "sound.safetensors")
    content = (folder / "sound.safetensors").read_bytes()
    (folder / "sound.safetensors").unlink()
    return content


# ------------------------------------------------------------------ a thousand damaged files


def files(
    root: Path, suffix: str, contents: Iterator[tuple[str, bytes]], options: dict[str, Any]
) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Write one file after the other; the name of an OGB archive says what it is."""
    for name, content in contents:
        stem = "ogbg_molhiv" if suffix == ".zip" and b"ogbg_molhiv" in content else "mine"
        path = root / "in" / f"{stem}{suffix}"
        path.write_bytes(content)
        yield f"{suffix} {name}", path, options


TABLE = {"smiles": "smiles", "target": "toxic", "id": "id"}


@pytest.mark.parametrize(
    ("suffix", "options", "seed", "count"),
    [
        (".csv", TABLE, 1, 160),
        (".csv.gz", {"target": "dose"}, 2, 60),
        (".tsv", {"target": "toxic,dose"}, 3, 30),
        (".sdf", {"target": "toxic"}, 4, 120),
        (".jsonl", {}, 5, 200),
        (".jsonl.gz", {}, 6, 60),
    ],
)
def test_damaged_rows(
    suffix: str, options: dict[str, Any], seed: int, count: int, root: Path
) -> None:
    sound = {".csv": CSV, ".tsv": CSV.replace(b",", b"\t"), ".sdf": sdf(), ".jsonl": json_lines()}
    content = sound[suffix.removesuffix(".gz")]
    if suffix.endswith(".gz"):
        content = gzip.compress(content, mtime=0)
    # As long as it is sound, every way of reading it works.
    assert judge_ways(root, files(root, suffix, iter([("sound", content)]), options)) == {
        "refused": 0,
        "read": 3,
        "hung": 0,
        "failed": 0,
    }
    counts = judge_ways(root, files(root, suffix, damaged(seed, content, count), options))
    assert counts["refused"] >= count // 10
    if not suffix.endswith(".gz"):
        assert counts["read"] >= count // 10


def test_damaged_archives(root: Path) -> None:
    sound = tu_zip()
    assert judge_ways(root, files(root, ".zip", iter([("sound", sound)]), {}))["read"] == 3
    judge_ways(root, files(root, ".zip", damaged(7, sound, 90), {}))
    ogb = ogb_zip(ogb_files())
    assert judge_ways(root, files(root, ".zip", iter([("sound", ogb)]), {}))["read"] == 3
    judge_ways(root, files(root, ".zip", damaged(8, ogb, 60), {}))


def test_damaged_tables_of_tu_and_ogb(root: Path) -> None:
    def archives() -> Iterator[tuple[str, bytes]]:
        for number, part in enumerate(TU_FILES):
            for name, content in damaged(20 + number, TU_FILES[part], 18):
                yield f"{part} {name}", tu_zip({**TU_FILES, part: content})
        for number, part in enumerate(ogb_files()):
            for name, content in damaged(40 + number, ogb_files()[part], 9):
                yield f"{part} {name}", ogb_zip({**ogb_files(), part: content})

    counts = judge_ways(root, files(root, ".zip", archives(), {}))
    assert counts["refused"] > 200


def test_damaged_stores(root: Path) -> None:
    sound = store_file(root / "work")
    assert judge_ways(root, files(root, ".safetensors", iter([("sound", sound)]), {}))["read"] == 3
    counts = judge_ways(root, files(root, ".safetensors", damaged(9, sound, 150), {}))
    assert counts["refused"] > 150


# ------------------------------------------------------------------ made to harm


def header(text: bytes, length: int | None = None, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def wrong_headers(sound: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield files whose header is not what it should be."""
    size = struct.unpack("<Q", sound[:8])[0]
    head, data = json.loads(sound[8 : 8 + size]), sound[8 + size :]

    def with_header(changed: dict[str, Any]) -> bytes:
        return header(json.dumps(changed).encode(), data=data)

    yield "length 2**60", header(b"{}", 1 << 60)
    yield "length 2**64 - 1", header(b"{}", (1 << 64) - 1)
    yield "length 0", header(b"", 0, data)
    yield "not JSON", header(b"this is no JSON     ")
    yield "not UTF-8", header(b"\xff" * 16)
    yield "nested", header(b'{"a":' * 100_000)
    yield "a list", header(b"[]      ")
    yield "no tensors", with_header({"__metadata__": head.get("__metadata__", {})})
    yield "no metadata", with_header({k: v for k, v in head.items() if k != "__metadata__"})
    for key in head:
        if key == "__metadata__":
            continue
        entry = head[key]
        begin, end = entry["data_offsets"]
        yield f"no {key}", with_header({k: v for k, v in head.items() if k != key})
        for what, change in {
            "offsets swapped": {"data_offsets": [end, begin]},
            "offsets negative": {"data_offsets": [-1, end]},
            "offsets beyond": {"data_offsets": [begin, end + (1 << 40)]},
            "offsets of another": {"data_offsets": [0, end - begin]},
            "shape huge": {"shape": [1 << 62, 4]},
            "shape empty": {"shape": []},
            "shape turned": {"shape": [*entry["shape"][::-1], 1]},
            "shape negative": {"shape": [-1]},
            "type unknown": {"dtype": "Q128"},
            "type of floats": {"dtype": "F32" if entry["dtype"] != "F32" else "I32"},
            "type wide": {"dtype": "F64"},
            "type small": {"dtype": "F8_E4M3"},
        }.items():
            yield f"{key}: {what}", with_header({**head, key: {**entry, **change}})


def wrong_stores(sound: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield stores with a wrong header, or a wrong description in it."""
    yield from wrong_headers(sound)
    size = struct.unpack("<Q", sound[:8])[0]
    head, data = json.loads(sound[8 : 8 + size]), sound[8 + size :]

    def with_header(changed: dict[str, Any]) -> bytes:
        return header(json.dumps(changed).encode(), data=data)

    described = json.loads(head["__metadata__"]["store"])
    for key, value in {
        "name": 5,
        "task": "clustering",
        "num_outputs": -1,
        "num_outputs ": "two",
        "label_names": [["a"], {}],
        "label_names ": "abcdef",
        "num_continuous": 10**30,
        "undirected": "yes",
        "featurizer": [1],
        "rows": {"number": 1},
        "skipped": 7,
        "x": None,
        "path": "/etc/passwd",
        "self": 1,
    }.items():
        text = json.dumps({**described, key.strip(): value})
        metadata = {**head["__metadata__"], "store": text}
        yield f"described {key}", with_header({**head, "__metadata__": metadata})
    for text in ("", "[]", "null", "5", "[" * 100_000, '{"name": NaN}', "{"):
        metadata = {**head["__metadata__"], "store": text}
        yield f"described {text[:20]}", with_header({**head, "__metadata__": metadata})


def test_stores_with_a_wrong_header(root: Path) -> None:
    sound = store_file(root / "work")
    counts = judge_ways(root, files(root, ".safetensors", wrong_stores(sound), {}))
    assert counts["refused"] > 200


def patched_size(content: bytes, name: str, size: int) -> bytes:
    """Let a member of an archive claim another size, in both of its headers."""
    changed = bytearray(content)
    for signature, field in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        start = 0
        while (start := content.find(signature, start)) >= 0:
            names = 30 if signature[2] == 3 else 46
            if content[start + names :].startswith(name.encode()):
                changed[start + field : start + field + 4] = struct.pack("<I", size)
            start += 4
    return bytes(changed)


def hostile_zips() -> Iterator[tuple[str, bytes]]:
    def archive(members: dict[str, bytes]) -> bytes:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in members.items():
                file.writestr(name, content)
        return packed.getvalue()

    tiny = {f"tiny_{part}.txt": content for part, content in TU_FILES.items()}
    yield "traversal", archive({f"../../elsewhere/{name}": text for name, text in tiny.items()})
    yield "absolute", archive({f"/tmp/elsewhere/{name}": text for name, text in tiny.items()})
    yield "beside", archive({**tiny, "../../elsewhere/x": b"x", "/elsewhere/y": b"y"})
    ogb = {f"{name}.csv.gz": gzip.compress(text) for name, text in ogb_files().items()}
    yield "traversal", archive({f"../../ogbg_molhiv/{name}": text for name, text in ogb.items()})
    link = zipfile.ZipInfo("tiny/tiny_A.txt")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr(link, "/etc/passwd")
        for part in ("graph_indicator", "graph_labels"):
            file.writestr(f"tiny/tiny_{part}.txt", TU_FILES[part])
    yield "symbolic link", packed.getvalue()
    stored = tu_zip(compression=zipfile.ZIP_STORED)
    yield "claims 4 GB", patched_size(stored, "tiny/tiny_A.txt", 0xFFFFFFFE)
    yield "claims 3 GB", patched_size(stored, "tiny/tiny_graph_indicator.txt", 3 << 30)
    yield "claims nothing", patched_size(stored, "tiny/tiny_A.txt", 0)
    for part, unit, size in (
        ("A", b"1", 40 << 20),
        ("A", b"\n", 40 << 20),
        ("node_attributes", b",", 40 << 20),
        ("graph_indicator", b"1\n", 300 << 20),
    ):
        content = unit * (size // len(unit))
        yield f"{part} of {unit!r}", tu_zip({**TU_FILES, part: content})
    packed_lines = {**ogb_files(), "raw/edge": b"\n" * (40 << 20)}
    yield "blank lines in a packed table", ogb_zip(packed_lines)
    yield "empty", archive({})
    yield "folders", archive({"tiny_A.txt/": b"", "tiny_graph_indicator.txt/": b""})
    yield "many", archive({f"a/{n}_A.txt": b"" for n in range(2000)})
    yield "zip in zip", archive({"inner.zip": tu_zip()})
    yield "names", archive({"\u202etiny_A.txt": b"", "a\nb_A.txt": b"1, 2\n"})
    with_lzma = tu_zip(compression=zipfile.ZIP_LZMA)
    yield "LZMA cut", with_lzma[: len(with_lzma) // 2]
    yield "LZMA flipped", flipped(random.Random(3), with_lzma)


def test_hostile_archives(root: Path) -> None:
    judge_ways(root, files(root, ".zip", hostile_zips(), {}))
    assert not any((root / "elsewhere").iterdir())
    assert not Path("/tmp/elsewhere").exists()


def bomb(start: bytes, unit: bytes, size: int = 1 << 30) -> bytes:
    """Pack far more than may be unpacked: the parts of a packed file may repeat."""
    part = gzip.compress(unit * ((16 << 20) // len(unit)), 6, mtime=0)
    return gzip.compress(start, mtime=0) + part * (size >> 24)


@pytest.mark.parametrize(
    ("suffix", "start", "unit"),
    [
        (".csv.gz", b"smiles,toxic\n", b"C"),
        (".csv.gz", b"", b"a"),
        (".csv.gz", b"", b","),
        (".csv.gz", b"smiles,toxic\n", b","),
        (".csv.gz", b"smiles,toxic\n", b"\n"),
        (".csv.gz", b'smiles,toxic\nCC,0\n"', b"C,1\n"),
        (".csv.gz", b"smiles,toxic\n", b"\0"),
        (".sdf.gz", b"", b"C"),
        (".sdf.gz", b"", b"\n"),
        (".sdf.gz", b"", b"  1  2  0" * 20 + b"\n"),
        (".jsonl.gz", b'{"nodes": ', b"["),
        (".jsonl.gz", b'{"id": "', b"a"),
        (".jsonl.gz", b"", b"\n"),
        (".jsonl.gz", b"", b" "),
        (".jsonl.gz", b'{"nodes": [', b"{},"),
    ],
)
def test_packed_bombs(suffix: str, start: bytes, unit: bytes, root: Path) -> None:
    content = bomb(start, unit)
    assert len(content) < 8 << 20
    options = {} if suffix.startswith(".jsonl") else {"target": "toxic"}
    counts = judge_ways(root, files(root, suffix, iter([(repr(unit), content)]), options))
    assert counts["refused"] == 3


def test_endless_rows_stream_in_bounded_memory(root: Path) -> None:
    path = root / "in" / "endless.jsonl.gz"
    path.write_bytes(bomb(b"", b'{"nodes": [{}], "edges": []}\n', 1 << 32))
    reading = {"kind": "graphs", "node_labels": None, "node_numbers": 0}
    with guarded():
        chunks = stream(path, featurizer=reading)
        for _ in range(4):
            assert not next(chunks).problems


# ------------------------------------------------------------------ hand-made


def csv_cases() -> Iterator[tuple[str, bytes]]:
    rows = CSV.splitlines()
    body = b"\n".join(rows[1:])
    for head in (
        b"id,smile,toxic,dose",
        b"id,smiles,smiles,toxic",
        b"toxic,toxic,toxic,toxic",
        b"smiles,toxic,id",
        b"",
        b",,,",
        b"\xff,smiles,toxic,id",
        b"id;smiles;toxic;dose",
        b'"id","smiles","toxic,dose',
        b"ID,SMILES,TOXIC,DOSE",
        b"=cmd|' /C calc'!A0,smiles,toxic,id",
    ):
        yield f"header {head[:30]!r}", head + b"\n" + body
    yield "header alone", rows[0]
    yield "bare CR", CSV.replace(b"\n", b"\r")
    yield "UTF-16", CSV.decode().encode("utf-16")
    yield "binary", bytes(range(256)) * 10
    for smiles in (
        b"C" * 100_000,
        b"(" * 10_000,
        b"C1" * 5_000,
        b"[" + b"9" * 1000 + b"C]",
        b"%99" * 1000,
        b"C\0C",
        b"[Xx]",
        b"*",
        b".",
        b"C" + b".C" * 5000,
        "C😀".encode(),
        b"[C+999999999]",
        b"[C@@@@@@]",
        b"C->C",
        b"C |$_R1$|",
    ):
        row = b'x,"%b",1,1\n' % smiles
        yield f"SMILES {smiles[:20]!r}", CSV + row
        yield f"SMILES {smiles[:20]!r} alone", rows[0] + b"\n" + row


def test_tables_made_by_hand(root: Path) -> None:
    judge_ways(root, files(root, ".csv", csv_cases(), TABLE))
    judge_ways(root, files(root, ".csv", csv_cases(), {"target": "toxic"}))


def json_cases() -> Iterator[tuple[str, bytes]]:
    sound = json_lines()
    deep = b"[" * 200_000 + b"]" * 200_000
    for line in (
        deep,
        b'{"nodes": ' + deep + b"}",
        b'{"nodes": [{"id": ' + deep + b'}], "edges": []}',
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"nodes": [{"x": 1e400}], "edges": [], "y": 1}',
        b'{"nodes": [{"x": [[1]]}], "edges": [], "y": 1}',
        b'{"nodes": [{"label": "' + b"A" * 1_000_000 + b'"}], "edges": [], "y": 1}',
        b'{"nodes": [{"id": "\\ud83d"}], "edges": [], "y": 1}',
        b'{"id": "\\udc00", "nodes": [{}], "edges": [], "y": 1}',
        b'{"id": "a\\nb\\u0000", "nodes": [{}], "edges": [], "y": 1}',
        b'{"nodes": [{}], "edges": [{"source": 0, "target": 1e308}], "y": 1}',
        b'{"nodes": [{}], "edges": [{"source": -1, "target": 0}], "y": 1}',
        b'{"nodes": [{}], "edges": [{"source": 0, "target": 99999999999999999999}], "y": 1}',
        b'{"nodes": [{"id": 1}, {"id": 1.0}], "edges": [], "y": 1}',
        b'{"nodes": [{}], "edges": [], "y": ' + b"9" * 4000 + b"}",
        b'{"nodes": [{}], "edges": [], "y": [' + b"1," * 50_000 + b"1]}",
        b'{"nodes": [{}], "edges": [], "y": {"a": 1}}',
        b'{"nodes": "abc", "edges": "abc"}',
        b'{"nodes": [{}], "edges": [[0, 0]]}',
        b'{"y": 1, "y": 0, "nodes": [{}], "nodes": [], "edges": []}',
        b'{"graph": {"nodes": 1}, "nodes": [{}], "edges": [], "y": 1}',
        b"{}",
        b'"nodes"',
        b"\xef\xbb\xbf{}",
        b"1" * 5000,
    ):
        yield f"line {line[:40]!r}", sound + line + b"\n"
        yield f"line {line[:40]!r} alone", line + b"\n" + line


def test_lines_made_by_hand(root: Path) -> None:
    judge_ways(root, files(root, ".jsonl", json_cases(), {}))


SUFFIXES = (".csv", ".csv.gz", ".tsv", ".sdf", ".sdf.gz", ".jsonl", ".jsonl.gz", ".zip")


def odd_paths(root: Path) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield paths that are not files, or that hold nothing, of every kind."""
    for suffix in (*SUFFIXES, ".safetensors", ".txt", ""):
        folder = root / "in" / f"of{suffix.replace('.', '_')}"
        folder.mkdir()
        options = (
            {}
            if suffix[:6] == ".jsonl" or suffix in ("", ".txt", ".zip", ".safetensors")
            else TABLE
        )
        for content in (
            b"",
            b"\n",
            b"\0",
            b"\xef\xbb\xbf",
            b"\x1f\x8b",
            b"PK\x05\x06" + b"\0" * 18,
        ):
            file = folder / f"file{suffix}"
            file.write_bytes(content)
            yield f"{suffix} of {content[:8]!r}", file, options
        directory = folder / f"folder{suffix}"
        directory.mkdir()
        yield f"{suffix} folder", directory, options
        (folder / f"dangling{suffix}").symlink_to(folder / "nothing")
        yield f"{suffix} dangling link", folder / f"dangling{suffix}", options
        (folder / f"loop{suffix}").symlink_to(folder / f"loop{suffix}")
        yield f"{suffix} loop of links", folder / f"loop{suffix}", options
        os.mkfifo(folder / f"pipe{suffix}")
        yield f"{suffix} pipe", folder / f"pipe{suffix}", options
        # Not what its name says.
        for other, content in {"store": b"", "zip": tu_zip(), "sdf": sdf(), "csv": CSV}.items():
            (folder / f"{other}{suffix}").write_bytes(content)
            yield f"{suffix} that is {other}", folder / f"{other}{suffix}", options
    for name in (
        "",
        ".",
        "..",
        "/",
        "/dev/zero",
        "/dev/null",
        "/proc/self/mem",
        "/proc",
        "~",
        "\\",
    ):
        yield f"path {name!r}", name, {}


def test_paths_that_are_no_files(root: Path) -> None:
    counts = judge_ways(root, odd_paths(root))
    assert counts["refused"] > 200


def test_files_that_may_not_be_read(root: Path, request: pytest.FixtureRequest) -> None:
    contents = {".csv": CSV, ".sdf": sdf(), ".jsonl": json_lines(), ".zip": tu_zip()}
    contents[".safetensors"] = store_file(root / "work")
    (root / "locked").mkdir()
    paths = []
    for suffix, content in contents.items():
        for path in (root / "in" / f"mine{suffix}", root / "locked" / f"mine{suffix}"):
            path.write_bytes(content)
            paths.append(path)
        paths[-2].chmod(0)
    (root / "cache").mkdir(mode=0o777)
    (root / "locked").chmod(0)
    request.getfixturevalue("nobody")
    try:
        wrong = []
        for path in paths:
            options = TABLE if path.suffix == ".csv" else {}
            for call in (loaded, streamed):
                ended, problem = verdict(partial(call, path, options))
                if ended != "refused" or problem:
                    wrong.append(f"{path} {call.__name__}: {ended} {problem}")
        assert not wrong, "\n".join(wrong)
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        (root / "locked").chmod(0o700)


def test_the_guard_catches_what_it_should() -> None:
    def spin() -> None:
        while True:
            zlib.crc32(b"a" * 1000)

    def hoard() -> None:
        # More than what earlier tests may have left for use again.
        [bytearray(MEMORY) for _ in range(6)]

    def shout() -> None:
        raise GraphTransplantError("two\nlines")

    def fail() -> None:
        raise ValueError("no")

    assert verdict(hoard)[0] == "failed"
    assert verdict(fail) == ("failed", "ValueError: no")
    assert verdict(shout) == ("refused", "message 'two\\nlines'")
    assert verdict(lambda: None) == ("read", "")
    kept = globals()["SECONDS"]
    globals()["SECONDS"] = 0.2
    try:
        assert verdict(spin)[0] == "hung"
    finally:
        globals()["SECONDS"] = kept


# ------------------------------------------------------------------ models


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a model of molecules and one of other graphs, each in its folder."""
    place = tmp_path_factory.mktemp("models")
    body = CSV.split(b"\n", 1)[1]
    (place / "mine.csv").write_bytes(CSV + body * 4)
    (place / "mine.jsonl").write_bytes(json_lines() * 5)
    kinds = {".csv": TABLE, ".jsonl": {}}
    for suffix, options in kinds.items():
        store = load(place / f"mine{suffix}", **options)
        small = {"hidden": 4, "layers": 1, "epochs": 1, "split": "random"}
        train(store, method="vanilla", **small).save(place / suffix[1:])
    return {suffix: place / suffix[1:] for suffix in kinds}


def predicted(model: TrainedModel, data: Path, out: Path) -> None:
    """Predict, and check that the table has one row for every row of the input."""
    out.unlink(missing_ok=True)
    try:
        done = predict_table(model, data, out, rows_per_chunk=4)
        with out.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [int(row["row"]) for row in rows] == list(range(1, done.rows + 1))
        assert sum(bool(row["error"]) for row in rows) == done.failed
        assert all(bool(row["error"]) != bool(row["prediction"]) for row in rows)
        assert all(one_line(row["error"]) for row in rows if row["error"])
        assert done.rows == sum(len(chunk) for chunk in stream(data, featurizer=model.featurizer))
    finally:
        # What an interrupted prediction leaves to go on from lies beside the table.
        for file in out.parent.iterdir():
            assert file.name.startswith(out.name)
            file.unlink()


@pytest.mark.parametrize(("suffix", "seed"), [(".csv", 60), (".jsonl", 61)])
def test_damaged_rows_for_a_model(
    suffix: str, seed: int, root: Path, models: dict[str, Path]
) -> None:
    model = TrainedModel.load(models[suffix])
    out = root / "out" / "predictions.csv"
    out.parent.mkdir()
    content = {".csv": CSV, ".jsonl": json_lines()}[suffix]

    def cases(contents: Iterator[tuple[str, bytes]]) -> Iterator[Case]:
        for name, data, _ in files(root, suffix, contents, {}):
            yield f"{name}, predict", partial(predicted, model, data, out)

    assert judge(root, cases(iter([("sound", content)])))["read"] == 1
    counts = judge(root, cases(damaged(seed, content, 90)))
    assert counts["read"] > 20


ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    1e308,
    10**30,
    "",
    "x",
    "A" * 20_000,
    "../../elsewhere/x",
    [],
    {},
    [None],
    ["a", "a"],
    {"kind": "molecules"},
    [[[[[]]]]],
)


def changed_somewhere(rng: random.Random, value: Any) -> Any:
    """Replace, drop or double something in a JSON value, however deep it lies."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(sorted(value))
        if rng.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: changed_somewhere(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.7:
        place = rng.randrange(len(value))
        if rng.random() < 0.3:
            return value[:place] + value[place + 1 :]
        if rng.random() < 0.3:
            return value + value[place:]
        return [*value[:place], changed_somewhere(rng, value[place]), *value[place + 1 :]]
    return rng.choice(ODD_VALUES)


def damaged_models(sound: Path, folder: Path) -> Iterator[str]:
    """Write damaged models into a folder, one after the other."""
    described = (sound / "model.json").read_bytes()
    weights = (sound / "weights.safetensors").read_bytes()
    folder.mkdir()

    def write(description: bytes, tensors: bytes) -> None:
        (folder / "model.json").write_bytes(description)
        (folder / "weights.safetensors").write_bytes(tensors)

    for name, content in damaged(70, described, 60):
        write(content, weights)
        yield f"model.json {name}"
    rng = random.Random(71)
    for number in range(150):
        value = json.loads(described)
        for _ in range(rng.choice((1, 1, 3))):
            if isinstance(value, dict):
                value = changed_somewhere(rng, value)
        write(json.dumps(value).encode(), weights)
        yield f"model.json with another value {number}"
    architecture = json.loads(described)
    for key in architecture["architecture"]:
        for odd in ODD_VALUES:
            other = {**architecture["architecture"], key: odd}
            write(json.dumps({**architecture, "architecture": other}).encode(), weights)
            yield f"architecture with {key} {str(odd)[:20]!r}"
    # Whoever changes the weights on purpose changes their checksum, too.
    for name, content in damaged(72, weights, 90):
        checksum = hashlib.sha256(content).hexdigest()
        write(json.dumps({**architecture, "weights_sha256": checksum}).encode(), content)
        yield f"weights {name}"
    for name, content in wrong_headers(weights):
        checksum = hashlib.sha256(content).hexdigest()
        write(json.dumps({**architecture, "weights_sha256": checksum}).encode(), content)
        yield f"weights {name}"
    deep = b'{"a":' * 100_000
    write(deep, weights)
    yield "model.json nested"
    write(b"", b"")
    yield "empty"


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_damaged_models(suffix: str, root: Path, models: dict[str, Path]) -> None:
    data = root / "in" / f"mine{suffix}"
    data.write_bytes({".csv": CSV, ".jsonl": json_lines()}[suffix])
    out = root / "out" / "predictions.csv"
    out.parent.mkdir()
    folder = root / "in" / "model"

    def used() -> None:
        model = TrainedModel.load(folder)
        assert repr(model)
        predict_table(model, data, out)
        for file in out.parent.iterdir():
            file.unlink()

    def cases() -> Iterator[Case]:
        for name in damaged_models(models[suffix], folder):
            yield name, used

    counts = judge(root, cases())
    assert counts["refused"] > 300
    assert not any((root / "elsewhere").iterdir())
