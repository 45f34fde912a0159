"""Tables and SDF files: every row a graph or a reason, in bounded memory."""

from __future__ import annotations

import csv
import gzip
import io
import math
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rdkit import Chem

from graph_transplant.datasets import tables
from graph_transplant.datasets.molecules import from_smiles
from graph_transplant.datasets.rows import Chunk, TableOptions, TargetCodec
from graph_transplant.datasets.tables import is_table, read_table, stream_table
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.graphs import GraphStore

SMALL = """name,smiles,active,value
ethanol,CCO,1,0.5
benzene,c1ccccc1,0,1.25
broken,C1CC,1,2
methane,C,,3
water,O,0,
"""


def write(folder: Path, text: str | bytes, name: str = "mine.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(path: Path, **options: Any) -> GraphStore:
    return read_table(path, TableOptions.of(**options))


def stream(path: Path, options: dict[str, Any] | None = None, **arguments: Any) -> list[Chunk]:
    return list(stream_table(path, TableOptions.of(**(options or {})), **arguments))


def every_row(chunks: list[Chunk], rows: int, first: int = 1) -> None:
    """Check that each row is in exactly one place."""
    found: list[int] = []
    for chunk in chunks:
        assert chunk.first == first
        assert len(chunk.ids) == len(chunk.texts)
        first += len(chunk)
        if chunk.store is not None:
            assert chunk.store.rows is not None
            found += chunk.store.rows.number.tolist()
            places = (chunk.store.rows.number - chunk.first).tolist()
            assert chunk.store.rows.ids == tuple(chunk.ids[place] for place in places)
            assert chunk.store.rows.texts == tuple(chunk.texts[place] for place in places)
        found += chunk.problems
    assert sorted(found) == list(range(first - sum(map(len, chunks)), rows + 1))


# ------------------------------------------------------------------ a data set


def test_a_table_becomes_molecules_with_targets(tmp_path: Path) -> None:
    store = read(write(tmp_path, SMALL), target="active", id="name")
    assert store.name == "mine"
    assert (store.task, store.label_names, store.num_outputs) == ("multiclass", ("0", "1"), 2)
    assert store.labels.tolist() == [1, 0, 0]
    assert store.rows is not None
    assert store.rows.number.tolist() == [1, 2, 5]
    assert store.rows.ids == ("ethanol", "benzene", "water")
    assert store.rows.texts == ("CCO", "c1ccccc1", "O")
    assert [tuple(skip) for skip in store.skipped] == [
        (3, "broken", "the SMILES cannot be parsed: unclosed ring 1"),
        (4, "methane", "no target"),
    ]
    assert store.featurizer == {
        "kind": "molecules",
        "features": "ogb",
        "smiles": "smiles",
        "targets": ["active"],
        "id": "name",
    }
    same = from_smiles(["CCO", "c1ccccc1", "O"])
    assert store.x is not None
    assert same.x is not None
    assert torch.equal(store.x, same.x)
    assert torch.equal(store.edge_index, same.edge_index)


def test_numbers_become_a_regression(tmp_path: Path) -> None:
    store = read(write(tmp_path, SMALL), target="value", features="elements")
    assert (store.task, store.label_names) == ("regression", ("value",))
    assert store.y.tolist() == [[0.5], [1.25], [3.0]]
    assert store.featurizer is not None
    assert store.featurizer.elements == ["C", "O"]
    assert store.featurizer.id is None
    assert store.rows is not None
    assert store.rows.ids == ("1", "2", "4")


def test_several_columns_become_labels(tmp_path: Path) -> None:
    path = write(tmp_path, "smiles,a,b\nC,1,\nN,NA,0\nO,,\nF,0,1\nCl,1,0\n")
    store = read(path, target="a,b")
    assert (store.task, store.label_names) == ("multilabel", ("a", "b"))
    np.testing.assert_array_equal(store.y.numpy(), [[1, math.nan], [math.nan, 0], [0, 1], [1, 0]])
    assert [skip[::2] for skip in store.skipped] == [(3, "no target")]


def test_a_given_task_leaves_out_what_does_not_fit(tmp_path: Path) -> None:
    path = write(tmp_path, "smiles,v\nC,1\nN,>5\nO,1e39\nF,2\nCl,3\n")
    store = read(path, target="v", task="regression")
    assert store.y.flatten().tolist() == [1, 2, 3]
    assert [skip[::2] for skip in store.skipped] == [
        (2, "`v` must be a number; got '>5'"),
        (3, "`v` must be a number between -3.4e+38 and 3.4e+38; got '1e39'"),
    ]


def test_classes_and_elements_of_rows_that_are_left_out_do_not_count(tmp_path: Path) -> None:
    path = write(tmp_path, "smiles,c\nCBr,\nC1C,rare\nCO,a\nCN,b\nC,a\n")
    store = read(path, target="c", features="elements")
    assert store.label_names == ("a", "b")
    assert store.featurizer is not None
    assert store.featurizer.elements == ["C", "N", "O"]


def test_a_store_of_a_table_is_saved_with_its_reading(tmp_path: Path) -> None:
    store = read(write(tmp_path, SMALL), target="active", id="name")
    store.save(tmp_path / "s.safetensors")
    again = GraphStore.load(tmp_path / "s.safetensors")
    assert again.featurizer == store.featurizer
    assert again.fingerprint() == store.fingerprint()


def test_a_table_larger_than_a_stretch_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("C" * (n % 7 + 1) + ("(" if n % 11 == 0 else "O"), n % 2) for n in range(60)]
    path = write(tmp_path, "smiles,y\n" + "".join(f"{s},{y}\n" for s, y in rows))
    whole = read(path, target="y", features="elements")
    monkeypatch.setattr(tables, "_ROWS", 7)
    pieces = read(path, target="y", features="elements")
    assert pieces.fingerprint() == whole.fingerprint()
    assert pieces.skipped == whole.skipped
    assert [skip.row for skip in whole.skipped] == [1, 12, 23, 34, 45, 56]


# ------------------------------------------------------------------ how tables are written


QUOTED = 'id,smiles,y,note\n1,"CCO",a,"has, comma"\n2,C,b,"two\nlines ""quoted"""\n3,N,a,\n'


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (SMALL, "mine.csv"),
        (SMALL.replace(",", "\t"), "mine.tsv"),
        (SMALL.replace(",", "\t"), "mine.tab"),
        (SMALL.replace(",", "\t"), "mine.csv"),
        (SMALL.replace(",", ";"), "mine.csv"),
        (SMALL.replace("\n", "\r\n"), "mine.csv"),
        ("\ufeff" + SMALL, "mine.csv"),
        ("\n\n" + SMALL.replace("\n", "\n\n") + "\n  \n", "mine.csv"),
        (SMALL.rstrip("\n"), "MINE.CSV"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_tables_are_read_however_they_are_written(
    tmp_path: Path, text: str, name: str, packed: bool
) -> None:
    content = text.encode()
    path = write(tmp_path, gzip.compress(content, mtime=0) if packed else content, name)
    assert is_table(path)
    store = read(path, target="active", id="name")
    assert store.rows is not None
    assert store.rows.ids == ("ethanol", "benzene", "water")
    assert [skip.row for skip in store.skipped] == [3, 4]


def test_a_packed_table_is_known_by_its_content(tmp_path: Path) -> None:
    store = read(
        write(tmp_path, gzip.compress(SMALL.encode(), mtime=0), "mine.csv.gz"), target="active"
    )
    assert store.name == "mine"
    plain = read(write(tmp_path, SMALL, "plain.csv.gz"), target="active")
    assert plain.fingerprint() == store.fingerprint()


def test_quoted_values_may_have_delimiters_and_line_breaks(tmp_path: Path) -> None:
    store = read(write(tmp_path, QUOTED), target="y")
    assert store.rows is not None
    assert store.rows.number.tolist() == [1, 2, 3]
    chunks = stream(write(tmp_path, QUOTED), {"id": "note"})
    assert chunks[0].ids == ("has, comma", 'two\nlines "quoted"', "3")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("a.csv", True),
        ("a.CSV.GZ", True),
        ("a.tsv", True),
        ("a.sdf", True),
        ("a.sdf.gz", True),
        ("a.txt", False),
        ("csv", False),
        ("a.csv.zip", False),
    ],
)
def test_tables_are_known_by_their_names(tmp_path: Path, name: str, known: bool) -> None:
    assert is_table(write(tmp_path, "x", name)) is known
    (tmp_path / "folder.csv").mkdir()
    assert not is_table(tmp_path / "folder.csv")


@pytest.mark.parametrize(
    ("header", "column"),
    [
        ("SMILES,y", "SMILES"),
        ("y,Mol", "Mol"),
        ("y,structure", "structure"),
        ("x,y, smiles ", "smiles"),
    ],
)
def test_the_column_of_structures_is_found_by_its_name(
    tmp_path: Path, header: str, column: str
) -> None:
    names = [name.strip() for name in header.split(",")]
    rows = [",".join({column: s, "y": y}.get(n, "-") for n in names) for s, y in ("Ca", "Nb", "Oa")]
    store = read(write(tmp_path, "\n".join([header, *rows])), target="y")
    assert store.featurizer is not None
    assert store.featurizer.smiles == column


# ------------------------------------------------------------------ rows that cannot be used


def test_rows_that_cannot_be_used_have_reasons(tmp_path: Path) -> None:
    content = (
        b"id,smiles,y,note\n"
        b"r1,CC,1,fine\n"
        b"r2,CC\n"
        b"r3,CC,1,a,b\n"
        b"r4,C\xffC,1,\n"
        b"r5,CC,0,caf\xe9\n"
        b'r6,"CC"O,1,\n'
        b"r7,,1,\n"
        b"r8,CO,0,\n"
        b"r9,CN,0,\n"
        b"r10,CN,1,\n"
        b"r11,C\x00,1,\n"
    )
    chunks = stream(write(tmp_path, content), {"id": "id"}, rows_per_chunk=4)
    every_row(chunks, 11)
    problems = {row: why for chunk in chunks for row, why in chunk.problems.items()}
    assert problems == {
        2: "the row has 2 values, the header has 4",
        3: "the row has 5 values, the header has 4",
        4: "the row is not UTF-8 text",
        6: "the row is broken (',' expected after '\"')",
        7: "there is no structure",
        11: r"the SMILES has the character '\x00'",
    }
    assert [chunk.ids for chunk in chunks] == [
        ("r1", "2", "3", "4"),
        ("r5", "6", "r7", "r8"),
        ("r9", "r10", "r11"),
    ]


def test_more_than_half_unreadable_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, "smiles,y\nC(,1\nC(,0\nC,1\n")
    with pytest.raises(DataError, match=r"mine\.csv: 2 of 3 rows cannot be read; row 1: the SMIL"):
        read(path, target="y")
    every_row(stream(path), 3)


def test_a_column_measured_for_few_is_no_error(tmp_path: Path) -> None:
    path = write(tmp_path, "smiles,y\n" + "C,\n" * 20 + "N,1\nO,0\n")
    store = read(path, target="y")
    assert len(store) == 2
    assert len(store.skipped) == 20


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {"target": "y"}, "is empty"),
        ("\n \n\n", {"target": "y"}, "is empty"),
        ("smiles,y\n", {"target": "y"}, "there are no rows"),
        (SMALL, {}, "name the columns to learn with `target`; there are name, smiles, active, val"),
        (
            SMALL,
            {"target": "actve"},
            r"must be one of the columns name, smiles, active, value; got 'actve' .*mean 'active'",
        ),
        (SMALL, {"target": "active", "id": "ID"}, "`id` must be one of the columns .* got 'ID'"),
        (SMALL, {"target": "active", "smiles": "SMILES"}, "did you mean 'smiles'"),
        ("a,b\nC,1\n", {"target": "b"}, "no column seems to hold the structures; name the one"),
        ("smiles,mol,b\nC,C,1\n", {"target": "b"}, r"several of the columns \(smiles, mol\) may"),
        ("smiles,b,b\nC,1,0\n", {"target": "b"}, "`target` is 'b', and 2 columns have that name"),
        (b"smi\xffles,y\nC,1\n", {"target": "y"}, "line 1: the header is not UTF-8 text"),
        (SMALL.encode("utf-16"), {"target": "y"}, "line 1: the header is not UTF-8 text"),
        ('smiles,"y\nC,1\n', {"target": "y"}, "line 1: the header is broken"),
        ("smiles,y\rC,1\rN,0\r", {"target": "y"}, "lines must end with LF or CRLF"),
        ('smiles,y\nC,1\nN,"0\nO,1\n', {"target": "y"}, "line 3: a quoted value is not closed"),
        ("smiles,y\nC,1\nN,1\n", {"target": "y"}, "has one class only, '1'"),
        ("smiles,y\nC,\nN,\n", {"target": "y"}, "the target 'y' has no values"),
        (gzip.compress(SMALL.encode(), mtime=0)[:-20], {"target": "active"}, "cannot be unpacked"),
        (b"\x1f\x8b" + b"x" * 50, {"target": "active"}, "cannot be unpacked"),
    ],
)
def test_tables_that_cannot_be_used_are_errors(
    tmp_path: Path, content: str | bytes, options: dict[str, Any], message: str
) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DataError, match=message) as raised:
        read(path, **options)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_double_column_that_is_not_used_does_no_harm(tmp_path: Path) -> None:
    path = write(tmp_path, "smiles,y,x,x\nC,1,,\nN,0,,\n")
    assert len(read(path, target="y")) == 2


def test_files_that_cannot_be_opened_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        read(tmp_path / "none.csv", target="y")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "folder.csv", target="y")


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    path = write(tmp_path, SMALL)
    path.chmod(0)
    return path


def test_a_file_that_may_not_be_read_is_an_error(locked: Path, nobody: None) -> None:
    with pytest.raises(DataError, match=r"cannot be read \(Permission denied\)"):
        read(locked, target="active")


def test_many_columns_are_not_all_listed(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(500)]
    path = write(tmp_path, ",".join([*names, "x" * 5000, "\u202eodd"]) + "\n")
    with pytest.raises(DataError) as raised:
        read(path, target="y")
    assert "c0, c1" in str(raised.value)
    assert "and 482 more" in str(raised.value)
    odd = write(tmp_path, ",".join(["x" * 5000, "\u202eodd"]) + "\n")
    with pytest.raises(DataError) as raised:
        read(odd, target="y")
    assert len(str(raised.value)) < 1000
    assert "'\\u202eodd'" in str(raised.value)


# ------------------------------------------------------------------ hostile tables


def test_one_endless_line_is_an_error_in_bounded_memory(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as file:
        file.write(b"smiles,y\nC,1\n")
        for _ in range(64):
            file.write(b"C" * (1 << 20))
    path = write(tmp_path, packed.getvalue(), "bomb.csv.gz")
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"line 3: a row is longer than 1 MiB"):
            stream(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('smiles,y\nC,1\nN,"' + "x" * 200_000 + '"\n', "line 3: a value is longer than 131072"),
        ('smiles,y\nC,1\n"N' + "\nO,1" * 400_000, "a value is longer than|a row is longer than"),
        ("smiles,y\nC,1\n" + "\n" * 200_000 + "C,1\n", "more than 100000 blank lines in a row"),
        ("x" * (2 << 20), "line 1: a row is longer than 1 MiB"),
    ],
)
def test_hostile_tables_are_errors(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        stream(write(tmp_path, content))


def test_the_limits_are_those_of_a_row_not_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_LONGEST_LINE", 64)
    monkeypatch.setattr(tables, "_LONGEST_RECORD", 1024)
    monkeypatch.setattr(tables, "_MOST_BLANK", 3)
    table = write(tmp_path, "smiles\n" + "CCCCCC\n\n\n" * 40)
    every_row(stream(table), 40)
    every_row(stream(write(tmp_path, record("CCO", "a") * 10, "mine.sdf")), 10)


# ------------------------------------------------------------------ streams


@pytest.mark.parametrize("rows_per_chunk", [1, 2, 3, 100])
@pytest.mark.parametrize("skip_rows", [0, 1, 4, 5, 9])
def test_a_stream_has_every_row_once(tmp_path: Path, rows_per_chunk: int, skip_rows: int) -> None:
    path = write(tmp_path, SMALL)
    chunks = stream(path, {"id": "name"}, rows_per_chunk=rows_per_chunk, skip_rows=skip_rows)
    every_row(chunks, 5, first=skip_rows + 1) if skip_rows < 5 else None
    left = max(0, 5 - skip_rows)
    assert len(chunks) == math.ceil(left / rows_per_chunk)
    names = [name for chunk in chunks for name in chunk.ids]
    assert names == ["ethanol", "benzene", "broken", "methane", "water"][skip_rows:]


def test_without_targets_a_stream_has_zeros(tmp_path: Path) -> None:
    (chunk,) = stream(write(tmp_path, SMALL), {"target": "no such column"})
    assert chunk.store is not None
    assert chunk.store.task == "multiclass"
    assert chunk.store.num_outputs == 1
    assert chunk.store.y.tolist() == [0, 0, 0, 0]
    assert list(chunk.problems) == [3]


def test_targets_are_read_when_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL)
    chunks = stream(path, {"target": "active"}, targets=True, rows_per_chunk=2)
    every_row(chunks, 5)
    whole = read(path, target="active")
    labels = [chunk.store.labels for chunk in chunks if chunk.store is not None]
    assert torch.equal(torch.cat(labels), whole.labels)
    assert all(c.store is None or c.store.label_names == whole.label_names for c in chunks)
    assert chunks[1].problems == {
        3: "the SMILES cannot be parsed: unclosed ring 1",
        4: "no target",
    }


def test_a_codec_says_how_targets_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, SMALL)
    reading = read(path, target="active").featurizer
    codec = TargetCodec("multiclass", ("active",), ("0", "1"))
    passes: list[Path] = []
    rows = tables._table_rows

    def counted(path: Path, options: TableOptions) -> Any:
        passes.append(path)
        return rows(path, options)

    monkeypatch.setattr(tables, "_table_rows", counted)
    # The columns are those asked for, those of the model, or those of the codec.
    for options, model in (({"target": "active"}, None), (None, reading), (None, None)):
        (chunk,) = stream(path, options, featurizer=model, targets=True, codec=codec)
        assert chunk.store is not None
        assert chunk.store.labels.tolist() == [1, 0, 0]
        assert set(chunk.problems) == {3, 4}
    assert len(passes) == 3
    numbers = TargetCodec("regression", ("x", "y"))
    (chunk,) = stream(path, {"target": "active,value"}, targets=True, codec=numbers)
    assert chunk.store is not None
    assert (chunk.store.label_names, chunk.store.task) == (("x", "y"), "regression")
    with pytest.raises(DataError, match=r"target must be 2 columns \(x, y\); got active"):
        stream(path, {"target": "active"}, targets=True, codec=numbers)
    with pytest.raises(DataError, match=r"`target` must be one of the columns name, .* got 'x'"):
        stream(path, targets=True, codec=numbers)
    with pytest.raises(GraphTransplantError, match="`targets` must be True"):
        stream(path, codec=codec)


def test_the_columns_of_a_model_are_the_default(tmp_path: Path) -> None:
    reading = read(
        write(tmp_path, SMALL.replace("smiles", "drug")), smiles="drug", target="active", id="name"
    ).featurizer
    assert reading is not None
    (chunk,) = stream(write(tmp_path, "smiles,drug,name,active\nx,C,a,1\ny,N,b,0\n"), None,
                      featurizer=reading, targets=True)  # fmt: skip
    assert (chunk.texts, chunk.ids) == (("C", "N"), ("a", "b"))
    assert chunk.store is not None
    assert chunk.store.labels.tolist() == [1, 0]
    # What the file does not have is found as without a model, or done without.
    (chunk,) = stream(write(tmp_path, "smiles\nC\nN\n"), None, featurizer=reading)
    assert (chunk.texts, chunk.ids) == (("C", "N"), ("1", "2"))
    # What is asked for wins.
    (chunk,) = stream(write(tmp_path, "drug,other\nC,N\n"), {"smiles": "other"}, featurizer=reading)
    assert chunk.texts == ("N",)
    path = write(tmp_path, "drug,name,other\nC,a,b\n")
    (chunk,) = stream(path, {"id": "other"}, featurizer=reading)
    assert chunk.ids == ("b",)


def test_features_are_those_of_the_model(tmp_path: Path) -> None:
    train = read(write(tmp_path, SMALL), target="active", features="elements")
    assert train.featurizer is not None
    path = write(tmp_path, "smiles\nCO\nCN\n", "new.csv")
    (chunk,) = stream(path, featurizer=train.featurizer)
    assert chunk.problems == {2: "the element N does not occur in the data of the model"}
    assert chunk.store is not None
    assert chunk.store.num_node_features == train.num_node_features
    assert chunk.store.featurizer is not None
    assert chunk.store.featurizer.elements == ["C", "O"]


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({"features": "elements"}, {}, "`features` is elements, which are those of the training"),
        (
            {"features": "elements"},
            {"featurizer": {"kind": "molecules", "features": "ogb"}},
            "`features` is elements, but the model was made for ogb",
        ),
        (
            {},
            {"featurizer": {"kind": "graphs"}},
            "these are molecules, but the model reads 'graphs'",
        ),
        ({}, {"rows_per_chunk": 0}, "`rows_per_chunk` must be at least 1, got 0"),
        ({}, {"skip_rows": -1}, "`skip_rows` must be at least 0, got -1"),
        ({}, {"workers": 0}, "`workers` must be at least 1, got 0"),
        ({}, {"targets": True}, "name the columns of the targets with `target`; there are name"),
    ],
)
def test_arguments_of_a_stream_are_checked_before_it_is_used(
    tmp_path: Path, options: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        stream_table(write(tmp_path, SMALL), TableOptions.of(**options), **arguments)


def test_a_stream_reads_no_more_than_it_gives(tmp_path: Path) -> None:
    # A quote that is not closed is met only when the stream comes to it.
    path = write(tmp_path, "smiles\nC\nN\nO\n" + '"F\n')
    chunks = stream_table(path, rows_per_chunk=1)
    assert next(chunks).texts == ("C",)
    assert next(chunks).texts == ("N",)
    assert next(chunks).texts == ("O",)
    with pytest.raises(DataError, match="line 5: a quoted value is not closed"):
        next(chunks)


def test_a_long_table_is_streamed_in_flat_memory(tmp_path: Path) -> None:
    path = write(tmp_path, "smiles\n" + ("C" * 20 + "\n") * 400)

    def peak(keep: bool) -> int:
        kept: list[Chunk] = []
        rows = 0
        tracemalloc.start()
        try:
            for chunk in stream_table(path, rows_per_chunk=20):
                rows += len(chunk)
                if keep:
                    kept.append(chunk)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert rows == 400
        return most

    # The features alone of all rows are 400 × 20 × 174 bytes.
    assert peak(keep=True) > 400 * 20 * 174
    assert peak(keep=False) < 400 * 20 * 174 / 2


def test_workers_give_what_one_process_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One process instead of two: most of the time goes into its imports.
    pool = partial(ProcessPoolExecutor, 1)
    monkeypatch.setattr(tables, "ProcessPoolExecutor", lambda workers, **more: pool(**more))
    smiles = ["C" * (n % 9 + 1) + ("(" if n % 10 == 3 else "O") for n in range(50)]
    path = write(tmp_path, "smiles,y\n" + "".join(f"{s},{n % 2}\n" for n, s in enumerate(smiles)))
    arguments: dict[str, Any] = {"rows_per_chunk": 7, "targets": True, "skip_rows": 3}
    alone = stream(path, {"target": "y"}, **arguments)
    spread = stream(path, {"target": "y"}, workers=2, **arguments)
    every_row(spread, 50, first=4)
    assert len(alone) == len(spread)
    for one, other in zip(alone, spread, strict=True):
        assert (one.first, one.ids, one.texts, one.problems) == (
            other.first,
            other.ids,
            other.texts,
            other.problems,
        )
        assert one.store is not None
        assert other.store is not None
        assert one.store.fingerprint() == other.store.fingerprint()


def test_few_chunks_are_under_way_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0

    def jobs() -> Iterator[tables._Job]:
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield tables._Job([tables._Row("C", "", ())], {}, {})

    class Pool:
        """Does the work at once."""

        def __init__(self, workers: int, mp_context: Any) -> None:
            assert mp_context.get_start_method() == "spawn"

        def submit(self, function: Any, *arguments: Any) -> Any:
            future: tables.Future[Any] = tables.Future()
            future.set_result(function(*arguments))
            return future

        def shutdown(self, wait: bool, cancel_futures: bool) -> None:
            assert wait
            assert cancel_futures

    monkeypatch.setattr(tables, "ProcessPoolExecutor", Pool)
    results = tables._in_order(jobs(), "ogb", 2)
    for given in range(1, 11):
        next(results)
        assert taken - given <= 4
    assert sum(1 for _ in results) == 90


def test_a_worker_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pool:
        def __init__(self, workers: int, mp_context: Any) -> None: ...

        def submit(self, function: Any, *arguments: Any) -> Any:
            raise tables.BrokenExecutor

        def shutdown(self, wait: bool, cancel_futures: bool) -> None: ...

    monkeypatch.setattr(tables, "ProcessPoolExecutor", Pool)
    jobs = iter([tables._Job([tables._Row("C", "", ())], {}, {})])
    with pytest.raises(GraphTransplantError, match="ended abruptly; `workers` is 2"):
        list(tables._in_order(jobs, "ogb", 2))


# ------------------------------------------------------------------ SDF


def record(smiles: str, title: str = "", **properties: str) -> str:
    """A record as RDKit writes its molecule."""
    block = Chem.MolToMolBlock(Chem.MolFromSmiles(smiles))
    block = title + block[block.index("\n") :]
    items = "".join(f">  <{name}>  \n{value}\n\n" for name, value in properties.items())
    return f"{block}{items}$$$$\n"


def sdf() -> str:
    broken = record("CCO", "bad", active="1").replace("M  END\n", "")
    return (
        record("CCO", "ethanol", active="1", value="0.5")
        + record("c1ccccc1", "", active="0", value="1")
        + broken
        + record("C", "methane", value="2")
        + record("CN", "amine", active="0", value="3\nsecond line")
    )


@pytest.mark.parametrize("name", ["mine.sdf", "mine.sdf.gz", "mine.SD"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_an_sdf_becomes_molecules_with_targets(tmp_path: Path, name: str, ends: str) -> None:
    content = sdf().replace("\n", ends).encode()
    path = write(
        tmp_path, gzip.compress(content, mtime=0) if name.endswith("gz") else content, name
    )
    store = read(path, target="active")
    assert store.labels.tolist() == [1, 0, 0]
    assert store.rows is not None
    assert store.rows.ids == ("ethanol", "2", "amine")
    assert [tuple(skip) for skip in store.skipped] == [
        (3, "bad", "the record has no line 'M  END'"),
        (4, "methane", "no target"),
    ]
    assert store.featurizer == {
        "kind": "molecules",
        "features": "ogb",
        "smiles": None,
        "targets": ["active"],
        "id": None,
    }
    same = from_smiles(["CCO", "c1ccccc1", "CN"])
    assert store.x is not None
    assert same.x is not None
    assert torch.equal(store.x, same.x)
    assert torch.equal(store.edge_index, same.edge_index)


def test_the_text_of_a_record_is_its_mol_block(tmp_path: Path) -> None:
    store = read(write(tmp_path, sdf(), "mine.sdf"), target="active")
    assert store.rows is not None
    for text, data in zip(store.rows.texts, store.to_pyg(), strict=True):
        molecule = Chem.MolFromMolBlock(text)
        numbers = [atom.GetAtomicNum() - 1 for atom in molecule.GetAtoms()]
        assert data.x[:, :119].argmax(1).tolist() == numbers
        assert "$$$$" not in text
        assert "active" not in text


def test_an_sdf_is_what_rdkit_reads(tmp_path: Path) -> None:
    path = write(tmp_path, sdf(), "mine.sdf")
    (chunk,) = stream(path, {"id": "value"})
    assert chunk.ids == ("0.5", "1", "3", "2", "3\nsecond line")
    with path.open("rb") as file:
        molecules = list(Chem.ForwardSDMolSupplier(file))
    assert chunk.store is not None
    assert chunk.store.rows is not None
    read_by_rdkit = [place + 1 for place, molecule in enumerate(molecules) if molecule is not None]
    assert chunk.store.rows.number.tolist() == read_by_rdkit


def test_a_record_without_its_end_is_read_and_blank_lines_behind_are_none(tmp_path: Path) -> None:
    whole = record("CC", "a") + record("CO", "b")
    for text in (whole, whole + "\n\n", whole.removesuffix("$$$$\n"), whole.rstrip()):
        (chunk,) = stream(write(tmp_path, text, "mine.sdf"))
        assert chunk.ids == ("a", "b")
        assert chunk.problems == {}


def test_broken_records_keep_their_places(tmp_path: Path) -> None:
    good = record("CC", "good", active="1")
    content = (
        good.encode()
        + b"$$$$\n"
        + good.replace(" C  ", " Xx ", 1).encode()
        + good.encode().replace(b"good", b"g\xff\xffd")
        + good.encode().replace(b" C  ", b" \xff  ", 1)
        + record("CN", "impossible").replace("  2  1  0", "  2  9  0", 1).encode()
        + good.encode()
    )
    chunks = stream(write(tmp_path, content, "mine.sdf"), rows_per_chunk=3)
    every_row(chunks, 7)
    problems = {row: why for chunk in chunks for row, why in chunk.problems.items()}
    assert set(problems) == {2, 3, 4, 5, 6}
    assert problems[2] == "the record has no line 'M  END'"
    assert problems[4] == "the record is not UTF-8 text"
    assert problems[5] == "the record is not UTF-8 text"


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_record_that_runs_into_the_next_is_a_problem(tmp_path: Path, ends: str) -> None:
    content = (
        record("CC", "a", active="0")
        + record("CCO", "b", active="0").removesuffix("$$$$\n")
        + record("c1ccccc1", "c", active="1")
        + record("CN", "d", active="1")
    ).replace("\n", ends)
    path = write(tmp_path, content, "mine.sdf")
    problem = {2: "the record holds two structures; is `$$$$` missing?"}
    (chunk,) = stream(path)
    every_row([chunk], 3)
    assert (chunk.ids, chunk.problems) == (("a", "b", "d"), problem)
    # A name that is a property may be that of the second.
    (chunk,) = stream(path, {"id": "active"})
    assert chunk.ids == ("0", "2", "1")
    store = read(path, target="active")
    assert store.labels.tolist() == [0, 1]
    assert {skip.row: skip.reason for skip in store.skipped} == problem
    codec = TargetCodec("multiclass", ("active",), ("0", "1", "2"))
    (chunk,) = stream(path, targets=True, codec=codec)
    assert chunk.store is not None
    assert (chunk.store.labels.tolist(), chunk.problems) == ([0, 1], problem)


def test_a_title_that_is_not_used_may_be_in_any_encoding(tmp_path: Path) -> None:
    content = record("CC", "title", name="a").encode().replace(b"title", b"t\xfctle")
    (chunk,) = stream(write(tmp_path, content, "mine.sdf"), {"id": "name"})
    assert chunk.ids == ("a",)
    assert chunk.store is not None
    assert chunk.store.rows is not None
    assert Chem.MolFromMolBlock(chunk.store.rows.texts[0]).GetNumAtoms() == 2


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {"target": "y"}, "is empty"),
        ("\n\n", {"target": "y"}, "is empty"),
        (None, {}, "name the columns to learn with `target`; there are active, value"),
        (None, {"target": "activ"}, "`target` must be one of the columns active, value; got 'acti"),
        (None, {"target": "active", "smiles": "x"}, "`smiles` names a column of a table"),
        ("just text\n" * 3, {"target": "y"}, "1 of 1 rows cannot be read; row 1: the record has"),
        ("x" * (9 << 20), {"target": "y"}, "line 1: a row is longer than 8 MiB"),
        (("x" * 1023 + "\n") * (9 << 10), {"target": "y"}, "a row is longer than 8 MiB"),
    ],
)
def test_sdf_files_that_cannot_be_used_are_errors(
    tmp_path: Path, content: str | None, options: dict[str, Any], message: str
) -> None:
    path = write(tmp_path, sdf() if content is None else content, "mine.sdf")
    with pytest.raises(GraphTransplantError, match=message):
        read(path, **options)


def test_a_model_of_a_table_reads_an_sdf(tmp_path: Path) -> None:
    reading = read(write(tmp_path, SMALL), target="active", id="name").featurizer
    (chunk,) = stream(write(tmp_path, sdf(), "mine.sdf"), None, featurizer=reading)
    every_row([chunk], 5)
    # Its records have no property `name`, so that titles and numbers are their names.
    assert chunk.ids == ("ethanol", "2", "bad", "methane", "amine")


# ------------------------------------------------------------------ real data


def raw_rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.data
def test_bace(data_dir: Path) -> None:
    path = data_dir / "molecules" / "bace.csv.gz"
    store = read(path, target="Class", id="CID")
    assert (len(store), store.skipped, store.task) == (1513, (), "multiclass")
    assert int(store.labels.sum()) == 691
    rows = raw_rows(path)
    assert store.rows is not None
    assert store.rows.ids == tuple(row["CID"] for row in rows)
    assert store.labels.tolist() == [int(row["Class"]) for row in rows]
    heavy = [Chem.MolFromSmiles(row["mol"]).GetNumAtoms() for row in rows[:100]]
    assert store.node_counts[:100].tolist() == heavy


@pytest.mark.data
def test_bace_as_a_regression_with_elements(data_dir: Path) -> None:
    path = data_dir / "molecules" / "bace.csv.gz"
    store = read(path, target="pIC50", features="elements")
    assert (len(store), store.task) == (1513, "regression")
    assert store.featurizer is not None
    assert store.featurizer.elements == ["C", "N", "O", "F", "S", "Cl", "Br", "I"]
    expected = np.array([row["pIC50"] for row in raw_rows(path)], dtype=np.float32)
    np.testing.assert_array_equal(store.y[:, 0].numpy(), expected)


@pytest.mark.data
def test_clintox(data_dir: Path) -> None:
    path = data_dir / "molecules" / "clintox.csv.gz"
    store = read(path, target="FDA_APPROVED,CT_TOX")
    assert (len(store) + len(store.skipped), store.task) == (1484, "multilabel")
    # RDKit 2026.09 refuses four, RDKit 2022.09 six.
    assert len(store.skipped) in range(4, 7)
    assert all("not a possible molecule" in skip.reason for skip in store.skipped)
    assert int(store.y[:, 1].sum()) == 112


@pytest.mark.data
def test_tox21(data_dir: Path) -> None:
    path = data_dir / "molecules" / "tox21.csv.gz"
    rows = raw_rows(path)
    names = [name for name in rows[0] if name not in ("mol_id", "smiles")]
    store = read(path, target=names, id="mol_id")
    assert len(store) + len(store.skipped) == 7831
    assert len(store.skipped) <= 8
    assert (store.task, store.label_names) == ("multilabel", tuple(names))
    assert store.rows is not None
    kept = [rows[number - 1] for number in store.rows.number.tolist()]
    cells = [[float(row[name] or "nan") for name in names] for row in kept]
    np.testing.assert_array_equal(store.y.numpy(), np.array(cells, dtype=np.float32))
    positives = (store.y == 1).sum(0)
    assert (int(positives.min()), int(positives.max())) == (186, 942)
