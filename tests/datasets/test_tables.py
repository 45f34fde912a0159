"""Tables of molecules in every format: every row a graph or a reason, in bounded memory."""

from __future__ import annotations

import csv
import gzip
import io
import logging
import sys
import tracemalloc
import zipfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem

import graph_transplant as gt
from graph_transplant.data import Featurizer, GraphStore
from graph_transplant.datasets import Chunk, molecule_tables
from graph_transplant.datasets import tables as formats
from graph_transplant.datasets.molecules import from_smiles
from graph_transplant.datasets.rows import TargetCodec
from graph_transplant.errors import DataError, GraphTransplantError, SkippedRows

SMALL = """name,smiles,active,value
ethanol,CCO,1,0.5
benzene,c1ccccc1,0,1.25
broken,C1CC,1,2
methane,C,,3
water,O,0,
"""
FRAME = pd.read_csv(io.StringIO(SMALL))


def write(folder: Path, text: str | bytes, name: str = "mine.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def stream(data: Any, **arguments: Any) -> list[Chunk]:
    return list(gt.stream(data, **arguments))


def test_a_table_becomes_molecules_with_targets(tmp_path: Path) -> None:
    store = gt.load(write(tmp_path, SMALL), target="active", id="name")
    assert store.name == "mine"
    assert (store.task, store.label_names, store.num_outputs) == ("multiclass", ("0", "1"), 2)
    assert store.labels.tolist() == [1, 0, 0]
    assert store.rows.number.tolist() == [1, 2, 5]
    assert store.rows.ids == ("ethanol", "benzene", "water")
    assert store.rows.texts == ("CCO", "c1ccccc1", "O")
    assert [tuple(skip) for skip in store.skipped] == [
        (3, "broken", "the SMILES cannot be parsed: unclosed ring 1"),
        (4, "methane", "no target"),
    ]
    assert store.notes == ()
    assert store.featurizer == Featurizer(
        "molecules", smiles="smiles", targets=("active",), id="name"
    )
    same = from_smiles(["CCO", "c1ccccc1", "O"]).with_targets(store.y, label_names=("0", "1"))
    assert store.fingerprint() == same.fingerprint()
    store.save(tmp_path / "s.safetensors")
    again = GraphStore.load(tmp_path / "s.safetensors")
    assert (again.featurizer, again.fingerprint()) == (store.featurizer, store.fingerprint())


# ------------------------------------------------------------------ the inputs people have


def lines(delimiter: str) -> bytes:
    return SMALL.replace(",", delimiter).encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("mine.tsv", lines("\t")),
        ("mine.csv", lines(";")),
        ("mine.csv", SMALL.replace("\n", "\r\n").encode()),
        ("mine.csv", ("\ufeff" + SMALL).encode()),
        ("mine.csv", ("\n\n" + SMALL.replace("\n", "\n\n") + "\n  \n").encode()),
        ("mine.csv.gz", gzip.compress(SMALL.encode())),
        ("plain.csv.gz", SMALL.encode()),
        # Rows without a value at the end, as spreadsheets write them.
        ("mine.csv", (SMALL + ", ,,\n" * 9).encode()),
    ],
)
def test_tables_are_read_however_they_are_written(
    tmp_path: Path, name: str, content: bytes
) -> None:
    expected = gt.load(write(tmp_path, SMALL, "expected.csv"), target="active", id="name")
    store = gt.load(write(tmp_path, content, name), target="active", id="name")
    assert store.fingerprint() == expected.fingerprint()
    assert store.rows.ids == ("ethanol", "benzene", "water")
    assert store.skipped == expected.skipped


def test_a_data_frame(tmp_path: Path) -> None:
    expected = gt.load(write(tmp_path, SMALL), target="active", id="name")
    frame = FRAME.rename(columns={"smiles": "drug"}).set_index(pd.Index([9, 8, 7, 6, 5]))
    store = gt.load(frame, smiles="drug", target="active", id="name", name="mine")
    assert store.fingerprint() == expected.fingerprint()
    assert store.skipped == expected.skipped
    assert store.name == "mine"
    # A model that was trained on it predicts another one, and the file.
    (chunk,) = stream(frame, featurizer=store.featurizer)
    assert chunk.ids == ("ethanol", "benzene", "broken", "methane", "water")
    with pytest.raises(DataError, match="`smiles` must be one of the columns 'name', 'drug', 'act"):
        gt.load(frame, smiles="SMILES", target="active")
    # Columns may be called by numbers.
    frame = pd.DataFrame({0: ["CCO", "CCN", "CCC"], 1: ["a", "b", "c"], 2: [0, 1, 0]})
    assert gt.load(frame, smiles=0, id=1, target=2).rows.ids == ("a", "b", "c")
    # Spaces around names do not count, as in files.
    frame.columns = pd.Index([" smiles", " name", " y"])
    assert gt.load(frame, id=" name", target=" y").rows.ids == ("a", "b", "c")
    frame.to_parquet(tmp_path / "spaces.parquet")
    assert gt.load(tmp_path / "spaces.parquet", id="name", target="y").rows.ids == ("a", "b", "c")


@pytest.mark.parametrize("kind", [list, tuple, pd.Series, np.array])
def test_a_list_of_smiles(kind: Any) -> None:
    texts = kind(["CCO", "c1ccccc1", "C1CC", "O", "CC"])
    store = gt.load(texts, y=["low", "high", "low", "low", None])
    assert (store.label_names, store.y.tolist()) == (("low", "high"), [0, 1, 0])
    assert [tuple(skip)[::2] for skip in store.skipped] == [
        (3, "the SMILES cannot be parsed: unclosed ring 1"),
        (5, "no target"),
    ]
    (chunk,) = stream(texts, featurizer=store.featurizer)
    assert list(chunk.problems) == [3]


def test_the_first_smiles_of_a_column_may_be_missing() -> None:
    store = gt.load(pd.Series([pd.NA, "CCO", "CC"], dtype="string[python]"), y=[0, 1, 0])
    assert (store.rows.number.tolist(), store.y.tolist()) == ([2, 3], [1, 0])


@pytest.mark.parametrize(
    ("y", "task", "names"),
    [
        (pd.Series([0.5, 1.5, 2.0], index=[7, 8, 9], name="logS"), "regression", ("logS",)),
        (np.array([[0, 1], [1, 1], [0, 0]]), "multilabel", ("y1", "y2")),
        (pd.DataFrame({"a": [0, 1, 0], "b": [1, None, 0]}), "multilabel", ("a", "b")),
    ],
)
def test_targets_beside_a_list(y: Any, task: str, names: tuple[str, ...]) -> None:
    store = gt.load(["C", "CC", "CCC"], y=y)
    assert (store.task, store.label_names) == (task, names)
    frame = pd.DataFrame({"mol": ["C", "CC", "CCC"], "x": 1})
    assert gt.load(frame, y=y).fingerprint() == store.fingerprint()
    with pytest.raises(DataError, match="its index is in another order"):
        gt.load(frame.sort_index(ascending=False), y=pd.Series([0, 1, 0]))


def test_a_file_of_smiles(tmp_path: Path) -> None:
    text = "CCO ethyl alcohol\nc1ccccc1\n\nC1CC\tbroken\nO\n"
    (chunk,) = stream(write(tmp_path, text, "mine.smi"))
    assert chunk.texts == ("CCO", "c1ccccc1", "C1CC", "O")
    assert chunk.ids == ("ethyl alcohol", "c1ccccc1", "broken", "O")
    assert list(chunk.problems) == [3]
    # Some programs write a header, or more columns.
    text = "smiles\tname\tactive\nCCO\ta\t1\nO\tb\t0\n"
    store = gt.load(write(tmp_path, text, "more.smi"), target="column 3")
    assert store.y.tolist() == [1, 0]
    assert store.rows.ids == ("a", "b")


def test_targets_and_rows_that_are_easily_misread(tmp_path: Path) -> None:
    with pytest.raises(GraphTransplantError, match="either `y` or `target`"):
        gt.load(FRAME, y=[0] * len(FRAME), target="active")
    values = [torch.tensor(0.25), torch.tensor(1.5), torch.tensor(2.0)]
    assert gt.load(["C", "CC", "CCC"], y=values).y.tolist() == [[0.25], [1.5], [2.0]]
    store = gt.load(write(tmp_path, "C\ta\t1\n\tCN\t0\nCC\tb\t0\n", "gap.smi"), target="column 3")
    assert [skip.id for skip in store.skipped] == ["CN"]
    model = Featurizer("molecules")
    with pytest.raises(GraphTransplantError, match="`largest_fragment` must be set when"):
        stream(["C.O"], featurizer=model, largest_fragment=True)


def test_an_excel_workbook(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    path = tmp_path / "mine.xlsx"
    with pd.ExcelWriter(path) as writer:
        FRAME.to_excel(writer, sheet_name="assay", index=False)
        FRAME.to_excel(writer, sheet_name="other", index=False)
    expected = gt.load(FRAME, target="active", id="name")
    store = gt.load(path, target="active", id="name")
    assert store.fingerprint() == expected.fingerprint()
    assert (store.name, store.skipped) == ("mine", expected.skipped)
    assert store.notes == ("Of 2 sheets only the first, 'assay', was read.",)
    assert gt.load(path, target="value").y.tolist() == [[0.5], [1.25], [3.0]]
    # An empty row between others counts, as in a CSV file.
    text = SMALL.replace("benzene", ",,,\nbenzene")
    pd.read_csv(io.StringIO(text)).to_excel(path, index=False)
    for data in (path, write(tmp_path, text)):
        assert gt.load(data, target="active").rows.number.tolist() == [1, 3, 6]
    FRAME.to_excel(path, header=False, index=False)
    assert gt.load(path, target="column 3").fingerprint() == expected.fingerprint()


def test_a_parquet_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "mine.parquet"
    FRAME.to_parquet(path)
    expected = gt.load(FRAME, target="active", id="name")
    monkeypatch.setattr(formats, "ROWS", 2)
    store = gt.load(path, target="active", id="name")
    assert store.fingerprint() == expected.fingerprint()
    assert (store.name, store.skipped) == ("mine", expected.skipped)
    written = FRAME.astype({"smiles": str})
    written.to_parquet(path, use_dictionary=False, column_encoding={"smiles": "DELTA_BYTE_ARRAY"})
    assert gt.load(path, target="active", id="name").fingerprint() == expected.fingerprint()
    # Integers with gaps stay integers, and an index is a column like others.
    ids = pd.array([123456789012345678, None, *range(len(FRAME) - 2)], dtype="Int64")
    FRAME.assign(number=ids).set_index("smiles").to_parquet(path)
    store = gt.load(path, target="active", id="number")
    assert "123456789012345678" in (*store.rows.ids, *(skip.id for skip in store.skipped))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r'pip install "graph-transplant\[parquet\]"'):
        gt.load(path, target="active")


@pytest.mark.parametrize("name", ["mine.xlsx", "mine.parquet"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no workbook", b"PAR1" + bytes(99) + b"PAR1"])
def test_damaged_workbooks_and_parquet_files_are_errors(
    tmp_path: Path, name: str, content: bytes
) -> None:
    pytest.importorskip({"mine.xlsx": "openpyxl", "mine.parquet": "pyarrow"}[name])
    with pytest.raises(DataError, match=f"{name}: not a readable "):
        gt.load(write(tmp_path, content, name), target="active")


# ------------------------------------------------------------------ what spreadsheets do to tables


@pytest.mark.parametrize(
    "text", ["smiles;v\nC;0,5\nN;1,25\nO;3\n", 'smiles,v\nC,"0,5"\nN,"1,25"\nO,3\n']
)
def test_decimal_commas_are_read_with_a_note(tmp_path: Path, text: str) -> None:
    store = gt.load(write(tmp_path, text), target="v")
    assert (store.task, store.y.flatten().tolist()) == ("regression", [0.5, 1.25, 3])
    assert store.notes == ("Numbers of 'v' have decimal commas: '0,5' was read as 0.5.",)


def test_latin_1_is_read_with_a_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = "smiles,größe,name\nC,1,café\nN,0,plain\n"
    caplog.set_level(logging.INFO, "graph_transplant")
    store = gt.load(write(tmp_path, text.encode("latin-1")), target="größe", id="name")
    assert store.rows.ids == ("café", "plain")
    (note,) = store.notes
    assert "Latin-1" in note
    assert note in caplog.text
    assert gt.load(write(tmp_path, text), target="größe").notes == ()
    with pytest.raises(DataError, match="UTF-16 text; save it as CSV in UTF-8"):
        gt.load(write(tmp_path, text.encode("utf-16")), target="größe")


def test_a_missing_header_is_recognised(tmp_path: Path) -> None:
    # As a user had it, whose columns were then "1202, etacepride, 1".
    path = write(tmp_path, "1202,etacepride,CCO,1\n1203,other,c1ccccc1,0\n1204,third,C,1\n")
    with pytest.raises(DataError, match="there are 'column 1', 'column 2', 'column 4'"):
        gt.load(path)
    store = gt.load(path, target="column 4", id="column 2")
    assert store.rows.ids == ("etacepride", "other", "third")
    (note,) = store.notes
    assert "not a header" in note
    assert "'column 3'" in note
    # Names of columns may be those of atoms.
    frame = write(tmp_path, "drug,CO,N\nCCO,1,2\nC,0,1\n")
    assert gt.load(frame, smiles="drug", target="CO").y.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("header", "column", "noted"),
    [
        ("SMILES,y", "SMILES", False),
        (" smiles ,y,x", "smiles", False),
        ("Canonical_Smiles,y", "Canonical_Smiles", True),
    ],
)
def test_the_column_of_structures_is_found_by_its_name(
    tmp_path: Path, header: str, column: str, noted: bool
) -> None:
    more = ",-" * (header.count(",") - 1)
    text = "\n".join([header, f"C,a{more}", f"N,b{more}", f"O,a{more}"])
    store = gt.load(write(tmp_path, text), target="y")
    assert store.featurizer.smiles == column
    assert any(column in note for note in store.notes) == noted


def test_duplicates_and_salts_are_noted(tmp_path: Path) -> None:
    path = write(tmp_path, "smiles,y\nCCO,1\nOCC,0\nC(C)O,1\nCC(=O)[O-].[Na+],0\nCC(=O)[O-],1\n")
    store = gt.load(path, target="y")
    before = store.subset([4, 1, 0])
    salts, again = store.notes
    assert salts.startswith("1 of 5 molecules have several fragments (salts, mixtures)")
    assert again == (
        "2 of 5 graphs repeat another (the same canonical SMILES). "
        "Repeats of 1 graph have different targets."
    )
    agreeing = store.with_targets(torch.tensor([1, 1, 1, 0, 1]), num_outputs=2)
    assert agreeing.notes[-1] == "2 of 5 graphs repeat another (the same canonical SMILES)."
    assert gt.datasets.duplicate_groups(store).tolist() == [0, 0, 0, 1, 2]
    for part in (before, store.subset([4, 1, 0])):  # taken before and after the search
        assert part.notes[-1].startswith("1 of 3 graphs repeat another")
    stripped = gt.load(path, target="y", largest_fragment=True)
    assert "1 of 5 molecules have several fragments" in stripped.notes[0]
    assert stripped.node_counts.tolist() == [3, 3, 3, 4, 4]
    assert gt.datasets.duplicate_groups(stripped).tolist() == [0, 0, 0, 1, 1]
    # A model strips what it predicts, as its training data were.
    assert Featurizer.from_dict(stripped.featurizer.to_dict()).largest_fragment
    (chunk,) = stream(["[Na+].[Cl-]", "CO.Cl"], featurizer=stripped.featurizer)
    assert chunk.store.node_counts.tolist() == [1, 2]
    assert chunk.texts == ("[Cl-]", "CO")


# ------------------------------------------------------------------ rows that cannot be used


def test_quoted_values_and_names_may_have_delimiters_and_line_breaks(tmp_path: Path) -> None:
    text = 'id,smiles,y,note\n1,"CCO",a,"has, comma"\n2,C,b,"two\nlines ""quoted"""\n3,N,a,\n'
    (chunk,) = stream(write(tmp_path, text), id="note")
    assert chunk.ids == ("has, comma", 'two\nlines "quoted"', "N")
    path = write(tmp_path, 'smiles,"active, yes",active,yes\nC,a,0,1\nCC,b,1,1\nCCC,a,0,0\n')
    assert gt.load(path, target="active, yes").label_names == ("a", "b")
    assert gt.load(path, target="active,yes").label_names == ("active", "yes")
    with pytest.raises(DataError, match=r"one of the columns 'smiles', 'active, yes', 'active'"):
        gt.load(path, target="active, no")


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
        b"r9,C\x00,1,\n"
        b"r10\n"
    )
    chunks = stream(write(tmp_path, content), id="id", rows_per_chunk=4)
    problems = {row: why for chunk in chunks for row, why in chunk.problems.items()}
    assert problems == {
        2: "the row has 2 values, the header has 4",
        3: "the row has 5 values, the header has 4",
        4: "the SMILES contains the invalid character 'ÿ'",
        6: "the row is broken (',' expected after '\"')",
        7: "there is no structure",
        9: r"the SMILES contains the invalid character '\x00'",
        10: "the row has 1 value, the header has 4",
    }
    ids = [name for chunk in chunks for name in chunk.ids]
    assert ids == ["r1", "2", "3", "r4", "r5", "6", "r7", "r8", "r9", "10"]


@pytest.mark.parametrize(
    ("content", "target", "message"),
    [
        ("smiles\nC\n", None, "there are structures but no targets; add a target column"),
        (SMALL, None, "name the columns to learn with `target`; there are 'name', 'active', 'val"),
        ("smiles,name\nC,a\n", None, "name the column to learn with `target`; there is only 'nam"),
        (SMALL, "actve", "'name', 'smiles', 'active', 'value'; got 'actve' .*mean 'active'"),
        (
            "Smiles_1,Smiles_2,b\nC,C,1\n",
            "b",
            r"several of the columns \('Smiles_1', 'Smiles_2'\) may hold the struct.* `smiles`",
        ),
        ('smiles,y\nC,1\nN,"0\nO,1\n', "y", "line 3: a quoted value is not closed"),
        (gzip.compress(SMALL.encode(), mtime=0)[:-20], "active", "cannot be unpacked"),
        ("", "y", "mine.csv: is empty"),
    ],
)
def test_tables_that_cannot_be_used_are_errors(
    tmp_path: Path, content: str | bytes, target: str | None, message: str
) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DataError, match=message) as raised:
        gt.load(path, target=target)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_workbook_that_unpacks_without_end_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "bomb.xlsx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", bytes(65 << 20))
    with pytest.raises(DataError, match="unpacks to 65 MiB or more"):
        gt.load(path, target="y")
    packed = tmp_path / "mine.xlsx.gz"
    packed.touch()
    with pytest.raises(DataError, match="unknown format; expected"):
        gt.load(packed, target="y")


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
@pytest.mark.parametrize("from_row", [0, 20])
def test_ends_of_lines_may_change_within_a_file(tmp_path: Path, end: str, from_row: int) -> None:
    rows = ["smiles,y", *(f"{'C' * n},{n % 2}" for n in range(1, 61))]
    text = "".join(row + (end if n >= from_row else "\n") for n, row in enumerate(rows))
    store = gt.load(write(tmp_path, text), target="y")
    assert (len(store), store.skipped) == (60, ())


def test_a_value_that_is_too_long_loses_its_row_only(tmp_path: Path) -> None:
    text = f"smiles,y,note\nC,0,a\nCC,1,{'x' * 200_000}\nCCC,1,b\nN,0,c\nO,1,d\n"
    store = gt.load(write(tmp_path, text), target="y")
    assert store.rows.number.tolist() == [1, 3, 4, 5]
    assert store.skipped[0].reason == "the row is broken (a value is longer than 128 KiB)"
    # Where a quote opens and does not close, no row after it is known.
    with pytest.raises(DataError, match="line 3: a quoted value is not closed"):
        gt.load(write(tmp_path, text.replace("1,x", '1,"x')), target="y")


def test_targets_whose_index_fits_only_in_part_are_an_error() -> None:
    smiles = pd.Series(["C", "CC", "N"], index=[0, 2, 3])
    with pytest.raises(DataError, match="its index has only some of their entries"):
        gt.load(smiles, y=pd.Series([0, 1, 0]))
    with pytest.raises(DataError, match="its index has only some of their entries"):
        gt.GraphTransplantClassifier(epochs=1).fit(smiles, pd.Series([0, 1, 0]))
    for y in (pd.Series([0, 1, 0], index=[0, 2, 3]), pd.Series([0, 1, 0], index=[7, 8, 9])):
        assert gt.load(smiles, y=y).y.tolist() == [0, 1, 0]


def test_skipped_rows_are_announced_where_the_data_are_passed(tmp_path: Path) -> None:
    smiles = ["C1" + "C" * n if n % 4 == 2 else "C" * n for n in range(1, 21)]
    frame = pd.DataFrame({"smiles": smiles, "y": [0, 1, 1, 0] * 5})
    what = (
        r"^molecules: 5 of 20 rows skipped \(row 2: the SMILES .*row 10: .*; …\); `store.skipped`"
    )
    small = {"method": "vanilla", "epochs": 1, "hidden": 4, "layers": 1, "split": "random"}
    for use in (
        lambda: gt.load(frame, target="y"),
        lambda: gt.train(frame, target="y", **small),
        lambda: gt.compare(frame, target="y", methods=["vanilla"], folds=3, epochs=1),
    ):
        with pytest.warns(SkippedRows, match=what) as told:
            use()
        assert [warning.filename for warning in told] == [__file__]


def test_a_damaged_member_of_a_workbook_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    path = tmp_path / "mine.xlsx"
    FRAME.to_excel(path, index=False)
    with zipfile.ZipFile(path) as archive:
        place = archive.getinfo("xl/worksheets/sheet1.xml").header_offset + 200
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"mine.xlsx: .*cannot be unpacked"):
        gt.load(path, target="active")


def test_damaged_metadata_of_pandas_are_an_error(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "mine.parquet"
    FRAME.to_parquet(path)
    content = path.read_bytes()
    for old, new in ((b'{"index_columns"', b'["index_columns"'), (b'"pandas_', b'"\xff\xfendas_')):
        assert old in content
        path.write_bytes(content.replace(old, new))
        with pytest.raises(DataError, match=r"mine\.parquet: "):
            gt.load(path, target="active")


# ------------------------------------------------------------------ streams


def test_the_columns_of_a_model_are_the_default(tmp_path: Path) -> None:
    reading = gt.load(
        write(tmp_path, SMALL.replace("smiles", "drug")), smiles="drug", target="active", id="name"
    ).featurizer
    path = write(tmp_path, "smiles,drug,name,active\nx,C,a,1\ny,N,b,0\n")
    codec = TargetCodec("multiclass", ("active",), ("0", "1"))
    (chunk,) = stream(path, featurizer=reading, codec=codec)
    assert (chunk.texts, chunk.ids) == (("C", "N"), ("a", "b"))
    assert chunk.targets == {1: (1.0,), 2: (0.0,)}
    # What the file does not have is found as without a model, or done without.
    (chunk,) = stream(write(tmp_path, "smiles\nC\nN\n"), featurizer=reading)
    assert chunk.texts == chunk.ids == ("C", "N")
    # What is asked for wins.
    path = write(tmp_path, "drug,name,other\nC,a,N\n")
    (chunk,) = stream(path, smiles="other", id="other", featurizer=reading)
    assert (chunk.texts, chunk.ids) == (("N",), ("N",))


def test_a_long_table_is_streamed_in_flat_memory(tmp_path: Path) -> None:
    path = write(tmp_path, "smiles\n" + ("C" * 20 + "\n") * 400)

    def peak(keep: bool) -> int:
        kept: list[Chunk] = []
        rows = 0
        tracemalloc.start()
        try:
            for chunk in gt.stream(path, rows_per_chunk=20):
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
    monkeypatch.setattr(
        molecule_tables, "ProcessPoolExecutor", lambda workers, **more: pool(**more)
    )
    smiles = ["C" * (n % 9 + 1) + ("(" if n % 10 == 3 else "O") for n in range(50)]
    path = write(tmp_path, "smiles,y\n" + "".join(f"{s},{n % 2}\n" for n, s in enumerate(smiles)))
    codec = TargetCodec("multiclass", ("y",), ("0", "1"))
    arguments: dict[str, Any] = {"rows_per_chunk": 7, "codec": codec, "skip_rows": 3}
    alone = stream(path, **arguments)
    spread = stream(path, workers=2, **arguments)
    for one, other in zip(alone, spread, strict=True):
        assert (one.ids, one.texts, one.problems) == (other.ids, other.texts, other.problems)
        assert one.targets == other.targets
        assert one.store.fingerprint() == other.store.fingerprint()


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


@pytest.mark.parametrize(("name", "ends"), [("mine.sdf.gz", "\n"), ("mine.SD", "\r\n")])
def test_an_sdf_becomes_molecules_with_targets(tmp_path: Path, name: str, ends: str) -> None:
    content = sdf().replace("\n", ends).encode()
    packed = gzip.compress(content, mtime=0) if name.endswith("gz") else content
    store = gt.load(write(tmp_path, packed, name), target="active")
    assert store.labels.tolist() == [1, 0, 0]
    assert store.rows.ids == ("ethanol", "2", "amine")
    assert [tuple(skip) for skip in store.skipped] == [
        (3, "bad", "the record has no line 'M  END'"),
        (4, "methane", "no target"),
    ]
    assert store.featurizer == Featurizer("molecules", targets=("active",))
    same = from_smiles(["CCO", "c1ccccc1", "CN"]).with_targets(store.y, label_names=("0", "1"))
    assert store.fingerprint() == same.fingerprint()
    for text in store.rows.texts:
        assert Chem.MolFromMolBlock(text) is not None
        assert "active" not in text
    # A property that no record at the beginning has.
    late = record("C", "a") * 120 + sdf()
    assert gt.load(write(tmp_path, late, "late.sdf"), target="active").labels.tolist() == [1, 0, 0]


def test_names_of_properties_are_those_that_rdkit_reads(tmp_path: Path) -> None:
    names = ["IC50 > 10", "a <b", "plain"]
    content = "".join(
        record("C" * size, **{name: str((size + place) % 2) for place, name in enumerate(names)})
        for size in (1, 2)
    )
    path = write(tmp_path, content, "mine.sdf")
    first, second = Chem.SDMolSupplier(str(path))
    assert list(first.GetPropNames()) == names
    store = gt.load(path, target=names)
    for molecule, row in zip((first, second), store.y.tolist(), strict=True):
        assert [float(molecule.GetProp(name)) for name in store.label_names] == row
    # A property may be called title, and the blank line after an empty value may be missing.
    content = record("C", "a", name="x", note="", active="0") + record("CC", "b", active="1")
    content = content.replace("<note>  \n\n", "<note>  \n").replace("<name>", "<title >")
    path = write(tmp_path, content, "mine.sdf")
    store = gt.load(path, target="active", id="title")
    assert (store.rows.ids, store.y.tolist()) == (("x", "2"), [0, 1])


def test_a_record_that_runs_into_the_next_is_a_problem(tmp_path: Path) -> None:
    content = (
        record("CC", "a", active="0")
        + record("CCO", "b", active="0").removesuffix("$$$$\n")
        + record("c1ccccc1", "c", active="1")
        + record("CN", "d", active="1")
    )
    path = write(tmp_path, content, "mine.sdf")
    problem = {2: "the record holds two structures; is `$$$$` missing?"}
    (chunk,) = stream(path)
    assert (chunk.ids, chunk.problems) == (("a", "b", "d"), problem)
    with pytest.raises(DataError, match=r"none\.sdf: is empty"):
        gt.load(write(tmp_path, "", "none.sdf"), target="active")
    store = gt.load(path, target="active")
    assert store.labels.tolist() == [0, 1]
    assert {skip.row: skip.reason for skip in store.skipped} == problem


@pytest.mark.data
def test_tox21(data_dir: Path) -> None:
    path = data_dir / "molecules" / "tox21.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name not in ("mol_id", "smiles")]
    store = gt.load(path, target=names, id="mol_id")
    assert len(store) + len(store.skipped) == 7831
    assert len(store.skipped) <= 8
    assert (store.task, store.label_names) == ("multilabel", tuple(names))
    kept = [rows[number - 1] for number in store.rows.number.tolist()]
    cells = [[float(row[name] or "nan") for name in names] for row in kept]
    np.testing.assert_array_equal(store.y.numpy(), np.array(cells, dtype=np.float32))
    positives = (store.y == 1).sum(0)
    assert (int(positives.min()), int(positives.max())) == (186, 942)
