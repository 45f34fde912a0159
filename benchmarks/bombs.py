"""Small hand-made files that ask for far too much memory or time.

Each is read in a process of its own, under a limit of memory and of time::

    python benchmarks/bombs.py              # all, as a table
    python benchmarks/bombs.py far-cell     # one
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from graph_transplant import load
from graph_transplant.errors import GraphTransplantError

SECONDS: Final = 60.0
# Beyond what the process has already.
MEMORY: Final = 2 << 30
LARGEST: Final = 1 << 20  # of the files


@dataclass(frozen=True)
class Bomb:
    """A file, its content, and how it is read."""

    file: str
    content: Callable[[], bytes]
    options: dict[str, Any] = field(default_factory=dict)


# ------------------------------------------------------------------ containers


def repeated(unit: bytes, size: int, start: bytes = b"") -> bytes:
    """A gzip file of one text again and again."""
    return gzip.compress(start + unit * (size // len(unit)), 6, mtime=0)


def packed_lines(lines: Iterable[str]) -> bytes:
    """A gzip file of lines."""
    return gzip.compress("\n".join(lines).encode() + b"\n", 6, mtime=0)


def archive(members: dict[str, bytes]) -> bytes:
    """A zip archive."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as file:
        for name, text in members.items():
            file.writestr(name, text)
    return content.getvalue()


def tu(**changes: bytes) -> bytes:
    """A TU archive of two nodes."""
    parts = {"A": b"1, 2\n2, 1\n", "graph_indicator": b"1\n1\n", "graph_labels": b"1\n"} | changes
    return archive({f"t/t_{part}.txt": text for part, text in parts.items()})


def ppa(**changes: bytes) -> bytes:
    """An archive of ogbg-ppa with three graphs, one in each part of the split."""
    parts = {
        "raw/num-node-list": b"2\n2\n2\n",
        "raw/num-edge-list": b"1\n1\n1\n",
        "raw/graph-label": b"0\n1\n0\n",
        "raw/edge": b"0,1\n0,1\n0,1\n",
        "raw/edge-feat": b"0,0,0,0,0,0,1\n" * 3,
        "split/species/train": b"0\n",
        "split/species/valid": b"1\n",
        "split/species/test": b"2\n",
    }
    parts |= {f"raw/{part.replace('_', '-')}": text for part, text in changes.items()}
    tables = {name: gzip.compress(text, 6, mtime=0) for name, text in parts.items()}
    return archive({f"ppa/{name}.csv.gz": table for name, table in tables.items()})


_MAIN: Final = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def workbook(sheet: str = "", rows: str = "", **members: str) -> bytes:
    """A workbook with ``smiles`` and ``y``, and further rows, tags of the sheet and members."""
    import openpyxl

    book, content = openpyxl.Workbook(), io.BytesIO()
    for row in (("smiles", "y"), ("C", 0), ("CC", 1), ("CCC", 0)):
        book.active.append(row)
    book.save(content)
    with zipfile.ZipFile(content) as file:
        texts = {name: file.read(name).decode() for name in file.namelist()}
    name = "xl/worksheets/sheet1.xml"
    texts[name] = texts[name].replace("</sheetData>", f"{rows}</sheetData>{sheet}")
    texts |= {name.replace("__", "/") + ".xml": text for name, text in members.items()}
    return archive({name: text.encode() for name, text in texts.items()})


def cell(where: str, value: int = 1) -> str:
    """A row with one cell."""
    row = where.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return f'<row r="{row}"><c r="{where}"><v>{value}</v></c></row>'


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    """A Parquet file."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    content = io.BytesIO()
    write_table(pa.table(columns), content, compression="zstd", **options)
    return content.getvalue()


def constant(value: str, rows: int) -> Any:
    """A column of one text."""
    import numpy as np
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), [value])


def store(**changes: Any) -> bytes:
    """A store with a valid digest, whose description and tensors claim something else."""
    import torch

    from graph_transplant.data import store_file as file

    tensors = {
        "edge_index": torch.zeros((2, 0), dtype=torch.int32),
        "node_counts": torch.tensor([2, 2]),
        "edge_counts": torch.tensor([0, 0]),
        "y": torch.tensor([0, 1]),
    }
    described = {
        "name": "s",
        "task": "multiclass",
        "num_outputs": 2,
        "label_names": None,
        "num_continuous": 0,
        "undirected": True,
        "featurizer": None,
    }
    tensors |= {key: value for key, value in changes.items() if key not in described}
    described |= {key: value for key, value in changes.items() if key in described}
    order = sorted(tensors, key=lambda key: (-tensors[key].dtype.itemsize, key))
    shapes = {key: (tensors[key].dtype, list(tensors[key].shape)) for key in order}
    metadata = {"format": file._FORMAT, "store": json.dumps(described), "sha256": file._NO_DIGEST}
    values = b"".join(tensors[key].numpy().tobytes() for key in order)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        path.write_bytes(file._header(metadata, shapes) + values)
        metadata["sha256"] = file._digest(path, file._NO_DIGEST)
    return file._header(metadata, shapes) + values


# ------------------------------------------------------------------ the bombs


def counted(graphs: int) -> Any:
    """Numbers of nodes of graphs that have no edges and no features."""
    import torch

    return torch.tensor([(1 << 31) - 1] * graphs)


def tangled(atoms: int, rings: int) -> str:
    """A SMILES of large rings, each of which shares atoms with many others."""
    draw = random.Random(0)
    ends = {draw.randrange(atoms - 100): number for number in range(10, 10 + rings)}
    names = ["*"] * atoms
    for start, number in ends.items():
        names[start] += f"%{number}"
        names[draw.randrange(start + 2, atoms)] += f"%{number}"
    return "".join(names)


def caged(rings: int) -> str:
    """A SMILES with as many rings as one likes."""
    first = "".join(f"C%{number:02}" for number in range(10, 10 + rings)) + "C"
    return first + "".join(f"C%{number:02}" for number in range(10 + rings - 1, 9, -1))


TABLE: Final = {"smiles": "smiles", "target": "y"}
BOMBS: Final[dict[str, Bomb]] = {
    # Workbooks
    "far-cell": Bomb("t.xlsx", lambda: workbook(rows=cell("XFD1048576")), TABLE),
    "far-row": Bomb("t.xlsx", lambda: workbook(rows=cell("A99999999999")), TABLE),
    "far-column": Bomb(
        "t.xlsx", lambda: workbook(rows="".join(cell(f"XFD{n}") for n in range(5, 60_000))), TABLE
    ),
    "cells": Bomb("t.xlsx", lambda: workbook(rows=f"<row>{'<c/>' * 20_000_000}</row>"), TABLE),
    "fewer-cells": Bomb("t.xlsx", lambda: workbook(rows=f"<row>{'<c/>' * 1_000_000}</row>"), TABLE),
    "empty-rows": Bomb("t.xlsx", lambda: workbook(rows="<row/>" * 1_000_000), TABLE),
    "merged-cells": Bomb(
        "t.xlsx",
        lambda: workbook("<mergeCells>" + '<mergeCell ref="A1:B2"/>' * 2_000_000 + "</mergeCells>"),
        TABLE,
    ),
    "styles": Bomb(
        "t.xlsx",
        lambda: workbook(
            xl__styles=f'<styleSheet xmlns="{_MAIN}"><cellXfs>' + "<xf/>" * 4_000_000 + "</cellXfs>"
            "</styleSheet>"
        ),
        TABLE,
    ),
    "some-styles": Bomb(
        "t.xlsx",
        lambda: workbook(
            xl__styles=f'<styleSheet xmlns="{_MAIN}"><cellXfs>' + "<xf/>" * 250_000 + "</cellXfs>"
            "</styleSheet>"
        ),
        TABLE,
    ),
    "shared-texts": Bomb(
        "t.xlsx",
        lambda: workbook(
            xl__sharedStrings=f'<sst xmlns="{_MAIN}">' + "<si><t>ab</t></si>" * 4_000_000 + "</sst>"
        ),
        TABLE,
    ),
    "spaces": Bomb("t.xlsx", lambda: workbook(rows=" " * (500 << 20)), TABLE),
    # TU and OGB archives
    "tu-columns": Bomb("t.zip", lambda: tu(node_attributes=b"0," * (8 << 20) + b"0\n" * 2)),
    "tu-some-columns": Bomb(
        "t.zip",
        lambda: tu(
            node_attributes=(b"0," * 9_999 + b"0\n") * 3_000,
            graph_indicator=b"1\n" * 3_000,
        ),
    ),
    "tu-later-columns": Bomb("t.zip", lambda: tu(node_attributes=b"0\n" + b"0," * (8 << 20))),
    "tu-nodes": Bomb("t.zip", lambda: tu(graph_indicator=b"1\n" * (100 << 20))),
    "tu-fewer-nodes": Bomb(
        "t.zip",
        lambda: tu(
            graph_indicator=b"1\n" * (31 << 20),
            node_labels=b"0\n" * (31 << 20),
            node_attributes=b"0\n" * (31 << 20),
        ),
    ),
    "tu-edges": Bomb("t.zip", lambda: tu(A=b"1,2\n" * (15 << 20), edge_labels=b"0\n" * (15 << 20))),
    "tu-labels": Bomb(
        "t.zip",
        lambda: tu(graph_indicator=b"1\n" * 1_000_000, node_labels=b"0\n" * 999_999 + b"999\n"),
    ),
    "tu-nested": Bomb(
        "t.zip",
        lambda: tu(graph_indicator=b"".join([repeated(b"1\n", 16 << 20)] * 4000)),
    ),
    "ogb-nodes": Bomb("ogbg_ppa.zip", lambda: ppa(num_node_list=b"2147483647\n2\n2\n")),
    "ogb-edges": Bomb("ogbg_ppa.zip", lambda: ppa(num_edge_list=b"2147483647\n1\n1\n")),
    "ogb-many-edges": Bomb(
        "ogbg_ppa.zip",
        lambda: ppa(num_edge_list=b"16000000\n1\n1\n", edge=b"0,1\n" * 16_000_002),
    ),
    # Tables as text
    "rows": Bomb("t.csv.gz", lambda: repeated(b"a,C,1\n", 100 << 20, b"id,smiles,y\n"), TABLE),
    "fewer-rows": Bomb(
        "t.csv.gz", lambda: packed_lines(["smiles,y", *["C,0", "N,1"] * 260_000]), TABLE
    ),
    "long-molecules": Bomb(
        "t.csv.gz", lambda: repeated(b"C" * 9_000 + b",1\n", 90 << 20, b"smiles,y\n"), TABLE
    ),
    "rings": Bomb(
        "t.csv.gz", lambda: repeated(f"{caged(80)},1\n".encode(), 60 << 20, b"smiles,y\n"), TABLE
    ),
    "tangled": Bomb(
        "t.csv",
        lambda: (
            b"smiles,y\n" + b"".join(b"%s,1\n" % tangled(n, 85).encode() for n in range(4400, 4600))
        ),
        TABLE,
    ),
    "wide-header": Bomb("t.csv.gz", lambda: repeated(b",", 15 << 20, b"smiles,y"), TABLE),
    "wide-rows": Bomb(
        "t.csv.gz", lambda: repeated(b"," * (15 << 20) + b"\n", 60 << 20, b"smiles,y\nC,0\n"), TABLE
    ),
    "returns": Bomb("t.csv.gz", lambda: repeated(b"\r", 60 << 20, b"smiles,y\nC,0\n"), TABLE),
    "quotes": Bomb("t.csv.gz", lambda: repeated(b'"', 60 << 20, b"smiles,y\nC,0\n"), TABLE),
    "targets": Bomb(
        "t.csv",
        lambda: "".join(["smiles;y\n", *(f"C;1,{n}5\nC;a{n}\n" for n in range(50_000))]).encode(),
        TABLE,
    ),
    "smi-lines": Bomb("t.smi.gz", lambda: repeated(b"C\n", 60 << 20)),
    "smi-tabs": Bomb("t.smi.gz", lambda: repeated(b"\t", 15 << 20, b"C")),
    "records": Bomb("t.sdf.gz", lambda: repeated(b"$$$$\n", 60 << 20), {"target": "y"}),
    "properties": Bomb(
        "t.sdf.gz",
        lambda: packed_lines(["", "", "", "M  END", *(f"> <{n}>" for n in range(400_000))]),
        {"target": "y"},
    ),
    # JSON Lines
    "json-lines": Bomb("t.jsonl.gz", lambda: repeated(b"a\n", 60 << 20)),
    "json-graphs": Bomb(
        "t.jsonl.gz", lambda: repeated(b'{"nodes":[{}],"edges":[],"y":0}\n', 60 << 20)
    ),
    "json-nodes": Bomb(
        "t.jsonl.gz",
        lambda: gzip.compress(
            (b'{"y":0,"edges":[],"nodes":[{}' + b",{}" * (5 << 20) + b"]}\n") * 4, 6, mtime=0
        ),
    ),
    "json-lists": Bomb(
        "t.jsonl.gz", lambda: repeated(b'{"a":[' + b"[]," * (5 << 20) + b"0]}\n", 60 << 20)
    ),
    "json-labels": Bomb(
        "t.jsonl.gz",
        lambda: packed_lines(
            json.dumps(
                {"y": n, "edges": [], "nodes": [{"label": str(k)} for k in range(500)] * 1000}
            )
            for n in range(4)
        ),
    ),
    # Parquet
    "parquet-rows": Bomb(
        "t.parquet",
        lambda: parquet({"smiles": constant("C", 40_000_000), "y": constant("1", 40_000_000)}),
        TABLE,
    ),
    "parquet-texts": Bomb(
        "t.parquet",
        lambda: parquet({"smiles": constant("C" * (30 << 20), 4096), "y": constant("1", 4096)}),
        TABLE,
    ),
    "parquet-prefixes": Bomb(
        "t.parquet",
        lambda: parquet(
            {"smiles": ["C" * (1 << 20)] * 1000, "y": ["1"] * 1000},
            use_dictionary=False,
            column_encoding={"smiles": "DELTA_BYTE_ARRAY", "y": "PLAIN"},
        ),
        TABLE,
    ),
    # Stores
    "store-nodes": Bomb("t.safetensors", lambda: store(node_counts=counted(2))),
    "store-outputs": Bomb("t.safetensors", lambda: store(num_outputs=(1 << 31) - 1)),
    "store-header": Bomb("t.safetensors", lambda: struct.pack("<Q", 1 << 40) + b"{" * 1000),
}
"""Files of less than a megabyte, by name."""


# ------------------------------------------------------------------ reading under limits


def read(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Read a file in this process, which gets limits, and report how it ended."""
    warm_up(path)

    def alarm(number: int, frame: Any) -> None:
        raise TimeoutError(f"more than {SECONDS:.0f} s")

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
    # Forget the peak of the past, which includes that of the parent.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = peak_kilobytes()
    # Of computing, not of waiting for a machine that has other things to do.
    signal.signal(signal.SIGPROF, alarm)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    start, ended = time.process_time(), "read"
    try:
        use(load(path, **options))
    except GraphTransplantError as error:
        ended = f"refused: {error}"
    except BaseException as error:  # noqa: BLE001 - whatever else comes is the finding
        ended = f"FAILED: {type(error).__name__}: {str(error)[:200]}"
    signal.setitimer(signal.ITIMER_PROF, 0)
    taken = peak_kilobytes() - before
    return {"ended": ended, "seconds": time.process_time() - start, "megabytes": taken >> 10}


def peak_kilobytes() -> int:
    """Largest resident memory so far."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0])


def use(store: Any) -> None:
    """Ask a store for what every command does."""
    repr(store)
    store.fingerprint()
    tuple(store.notes)  # which count duplicates


def warm_up(path: Path) -> None:
    """Load the libraries of a format before there are limits."""
    import warnings

    warnings.simplefilter("ignore")
    small = path.parent / "small.csv"
    small.write_text("smiles,y\nC,0\nCC,1\n", encoding="utf-8")
    load(small, target="y")
    if ".xlsx" in path.name:
        import openpyxl  # noqa: F401
    if ".parquet" in path.name:
        import pyarrow.parquet  # noqa: F401


def explode(name: str) -> dict[str, Any]:
    """Write a bomb and read it in another process."""
    bomb = BOMBS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / bomb.file
        path.write_bytes(bomb.content())
        size = path.stat().st_size
        command = [sys.executable, __file__, "--read", str(path), json.dumps(bomb.options)]
        environment = {**os.environ, "GRAPH_TRANSPLANT_CACHE": str(Path(folder) / "cache")}
        environment |= {"OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
    lines = done.stdout.splitlines() or ['{"ended": "", "seconds": 0, "megabytes": 0}']
    found = json.loads(lines[-1])
    if done.returncode:
        found["ended"] = f"FAILED: the process died ({done.returncode}): {done.stderr[-200:]}"
    if size > LARGEST:
        found["ended"] = f"FAILED: the file has {size} bytes, which is no small one"
    return {"name": name, "kilobytes": size >> 10, **found}


def main() -> int:
    """Read all bombs; print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*BOMBS, []])
    parser.add_argument("--read", nargs=2, metavar=("PATH", "OPTIONS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(json.dumps(read(Path(options.read[0]), json.loads(options.read[1]))))
        return 0
    failures = 0
    for name in options.names or BOMBS:
        row = explode(name)
        failures += row["ended"].startswith("FAILED")
        print(
            f"{name:17}{row['kilobytes']:6} kB{row['seconds']:7.1f} s{row['megabytes']:6} MB  "
            f"{row['ended'][:160]}",
            flush=True,
        )
    print(f"{failures} not handled")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
