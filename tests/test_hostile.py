"""Damaged and hostile input files: a clear error or graphs, in bounded time and memory.

One truncated, one flipped and one exploding file of every format, a few bombs, stores and kills;
``benchmarks/fuzz_inputs.py`` tries as many as one likes.
"""

from __future__ import annotations

import importlib.util
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from graph_transplant.data import Featurizer
from graph_transplant.datasets import load, stream

pytest.importorskip("rdkit")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the limits are those of Linux"),
    pytest.mark.usefixtures("offline"),
]


def import_command() -> Any:
    path = Path(__file__).resolve().parents[1] / "benchmarks" / "fuzz_inputs.py"
    sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location("fuzz_inputs", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there for their types
    spec.loader.exec_module(module)
    return module


fuzz = import_command()

pytest.importorskip("openpyxl")
pytest.importorskip("pyarrow")

TEXTS = ("mine.csv", "mine.tsv", "mine.sdf", "mine.smi", "mine.jsonl")
STORED = ("mine.safetensors", "model.json", "weights.safetensors")
PACKED = ("mine.csv.gz", "mine.sdf.gz", "mine.jsonl.gz", "mine.xlsx", "mine.parquet")
FILES = (*TEXTS, *PACKED, "tiny.zip", "ogbg_molhiv.zip", *STORED)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("inputs")
    found = {item.name: item for item in fuzz.inputs(folder)}
    assert set(found) == set(FILES)
    return folder, found


@pytest.mark.parametrize("kind", ["sound", "truncated", "flipped", "bomb"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_or_refused(name: str, kind: str, inputs: Any) -> None:
    folder, found = inputs
    item = found[name]
    contents = {
        "sound": lambda: item.sound,
        "truncated": lambda: item.sound[: len(item.sound) // 2],
        "flipped": lambda: fuzz.flipped(random.Random(0), item.sound),
        "bomb": lambda: item.bomb,
    }
    ended, problem = fuzz.outcome(item.use, item.write(folder, name, contents[kind]()))
    assert not problem
    if kind == "sound":
        assert ended == "read"
    elif kind == "bomb" and name != "mine.jsonl":
        assert ended == "refused"
    elif name not in (*TEXTS, "mine.safetensors", "mine.parquet"):
        # Rows of text that are still sound, and other features, are read.
        assert ended == "refused"


BOMBS = (
    *("far-row", "far-column", "styles", "merged-cells"),
    *("tu-columns", "tu-labels", "tu-nested", "ogb-nodes"),
    *("rows", "wide-header", "json-labels", "targets"),
    *("store-nodes", "store-outputs"),
)


@pytest.mark.parametrize("name", BOMBS)
def test_small_files_that_ask_for_too_much_are_refused(name: str, tmp_path: Path) -> None:
    bomb = fuzz.BOMBS[name]
    path = fuzz.write_file(tmp_path, bomb.file, bomb.content())
    assert path.stat().st_size < 1 << 20
    ended, problem = fuzz.outcome(lambda path: fuzz.use_store(load(path, **bomb.options)), path)
    assert (ended, problem) == ("refused", "")


@pytest.mark.parametrize(("kind", "cases"), [("mutations", 80), ("stores", 40), ("kills", 3)])
def test_a_sample_of_the_attacks(
    kind: str, cases: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPH_TRANSPLANT_CACHE", str(tmp_path / "cache"))
    problems = [case for case in fuzz.KINDS[kind](tmp_path, cases, 0) if case[3]]
    assert not problems


# Beyond the files that are tried above: archives in which one byte is another.
@pytest.mark.parametrize("name", ["tiny.zip", "ogbg_molhiv.zip"])
def test_a_damaged_member_of_an_archive_is_an_error(name: str, inputs: Any) -> None:
    folder, found = inputs
    item = found[name]
    ends = set()
    for place in range(30, len(item.sound), 7):
        content = bytearray(item.sound)
        content[place] ^= 1
        ended, problem = fuzz.outcome(
            lambda path: fuzz.use_store(load(path)), item.write(folder, name, bytes(content))
        )
        assert not problem, place
        ends.add(ended)
    assert "refused" in ends


def test_damaged_descriptions_of_parquet_columns_are_errors(inputs: Any) -> None:
    folder, found = inputs
    item = found["mine.parquet"]
    size = int.from_bytes(item.sound[-8:-4], "little")
    ends = set()
    for place in range(len(item.sound) - 8 - size, len(item.sound) - 8 - size + 70):
        content = bytearray(item.sound)
        content[place] ^= 1
        path = item.write(folder, item.name, bytes(content))
        ended, problem = fuzz.outcome(item.use, path)
        assert not problem, place
        ends.add(ended)
    assert "refused" in ends


def test_endless_rows_stream_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "endless.jsonl.gz"
    path.write_bytes(fuzz.packed(b"", b'{"nodes": [{}], "edges": []}\n', 1 << 32))
    featurizer = Featurizer("graphs")
    with fuzz.guarded():
        chunks = stream(path, featurizer=featurizer)
        for _ in range(4):
            assert not next(chunks).problems


@pytest.mark.parametrize("suffix", [".csv", ".sdf", ".jsonl", ".zip", ".safetensors", ""])
def test_paths_that_are_no_files(suffix: str, tmp_path: Path) -> None:
    kinds = {name: tmp_path / f"{name}{suffix}" for name in ("folder", "dangling", "loop", "pipe")}
    kinds["folder"].mkdir()
    kinds["dangling"].symlink_to(tmp_path / "nothing")
    kinds["loop"].symlink_to(kinds["loop"])
    os.mkfifo(kinds["pipe"])
    for content in (b"", b"\n", b"\xef\xbb\xbf", b"\x1f\x8b", b"PK\x05\x06" + b"\0" * 18):
        kinds[repr(content)] = tmp_path / f"{len(kinds)}{suffix}"
        kinds[repr(content)].write_bytes(content)
    for kind, path in kinds.items():
        ended, problem = fuzz.outcome(lambda path: fuzz.use_store(load(path)), path)
        assert (ended, problem) == ("refused", ""), kind
