"""The records file: appended to, synced, repaired without loss, never mixed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.protocol import Record, Trial
from graph_transplant.experiments.records import RecordStore, record_line

IDENTITY = {"data": "tiny", "fingerprint": "ab" * 32}
SETTINGS = {"seed": 0, "folds": 3, "epochs": 5, "batch_size": 16, "learning_rate": 5e-4}


def record(fold: int = 0, **changes: Any) -> Record:
    return {
        **IDENTITY,
        "method": "vanilla",
        "model": "gcs",
        "layers": 3,
        "repeat": 0,
        "fold": fold,
        "test": {"accuracy": 0.5},
        "sizes": {"train": 6, "test": 2},
        "settings": dict(SETTINGS),
        **changes,
    }


def write(directory: Path, *items: Record) -> None:
    with RecordStore(directory).writing(IDENTITY, SETTINGS) as writer:
        for item in items:
            writer.append(item)


def test_what_is_written_is_read_in_order_and_appended_to(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "down", record(2), record(0))
    write(tmp_path / "deep" / "down", record(1, note="Ünïcode ✓ \u2028"))
    found = RecordStore(tmp_path / "deep" / "down").read()
    assert [item["fold"] for item in found] == [2, 0, 1]
    assert found[2] == record(1, note="Ünïcode ✓ \u2028")


def test_every_line_is_on_disk_before_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        synced.append((tmp_path / "records.jsonl").stat().st_size)

    with RecordStore(tmp_path).writing(IDENTITY, SETTINGS) as writer:
        monkeypatch.setattr(os, "fsync", fsync)
        writer.append(record(0))
        assert synced == [len(record_line(record(0)))]
        assert RecordStore(tmp_path).read() == [record(0)]


def test_reading_an_empty_or_missing_directory_gives_nothing(tmp_path: Path) -> None:
    assert RecordStore(tmp_path / "missing").read() == []
    assert not (tmp_path / "missing").exists()
    (tmp_path / "records.jsonl").touch()
    assert RecordStore(tmp_path).read() == []


@pytest.mark.parametrize("kept", [1, 7, 40, -2])
def test_a_torn_last_line_is_cut_off_kept_beside_and_reported(tmp_path: Path, kept: int) -> None:
    write(tmp_path, record(0), record(1))
    path = tmp_path / "records.jsonl"
    whole = path.read_bytes()
    torn = record_line(record(2))[:kept]
    path.write_bytes(whole + torn)

    assert RecordStore(tmp_path).read() == [record(0), record(1)]
    assert path.read_bytes() == whole + torn  # reading repairs nothing
    with RecordStore(tmp_path).writing(IDENTITY, SETTINGS) as writer:
        assert writer.notice is not None
        assert "cut short" in writer.notice
        assert "records.torn" in writer.notice
        assert path.read_bytes() == whole
        writer.append(record(2))
    assert (tmp_path / "records.torn").read_bytes() == torn + b"\n"
    assert len(RecordStore(tmp_path).read()) == 3


def test_torn_pieces_gather_and_none_is_lost(tmp_path: Path) -> None:
    write(tmp_path, record(0))
    for piece in (b'{"data":"ti', b"\x00\x00\xff\r\x85"):
        with open(tmp_path / "records.jsonl", "ab") as file:
            file.write(piece)
        write(tmp_path)
    assert (tmp_path / "records.torn").read_bytes() == b'{"data":"ti\n\x00\x00\xff\r\x85\n'
    assert RecordStore(tmp_path).read() == [record(0)]


def test_a_last_line_that_lacks_only_its_newline_is_kept(tmp_path: Path) -> None:
    write(tmp_path, record(0))
    path = tmp_path / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    with RecordStore(tmp_path).writing(IDENTITY, SETTINGS) as writer:
        assert writer.notice is None
        writer.append(record(1))
    assert RecordStore(tmp_path).read() == [record(0), record(1)]
    assert not (tmp_path / "records.torn").exists()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"not json", "no JSON"),
        (b"[1, 2]", "expected an object, got list"),
        (b'{"data": "tiny"}', "field `fingerprint` is missing"),
        (json.dumps(record(1) | {"fold": "one"}).encode(), "field `fold` has the type str"),
        (b"", "no JSON"),
    ],
)
def test_a_malformed_line_in_the_middle_is_named_and_nothing_is_touched(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    path = tmp_path / "records.jsonl"
    content = record_line(record(0)) + line + b"\n" + record_line(record(2))
    path.write_bytes(content)
    with pytest.raises(GraphTransplantError, match=rf"line 2 is not a record .*{reason}"):
        write(tmp_path)
    assert path.read_bytes() == content


def test_a_doubled_trial_is_named(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_bytes(record_line(record(0)) * 2)
    with pytest.raises(GraphTransplantError, match=r"line 2 repeats the trial of line 1 .*fold 0"):
        RecordStore(tmp_path).read()


def test_records_of_another_comparison_are_refused_and_each_difference_is_named(
    tmp_path: Path,
) -> None:
    write(tmp_path, record(0))
    before = (tmp_path / "records.jsonl").read_bytes() + b"torn"
    (tmp_path / "records.jsonl").write_bytes(before)
    other = SETTINGS | {"seed": 1, "epochs": 50, "hidden": 64}
    with (
        pytest.raises(GraphTransplantError) as caught,
        RecordStore(tmp_path).writing(IDENTITY | {"fingerprint": "cd" * 32}, other),
    ):
        pass
    message = str(caught.value)
    assert "holds records of another comparison" in message
    assert "fingerprint is abababababab… there and cdcdcdcdcdcd… here" in message
    assert "`seed` is 0 there and 1 here" in message
    assert "`epochs` is 5 there and 50 here" in message
    assert "`hidden` is not given there and 64 here" in message
    assert "folds" not in message
    assert (tmp_path / "records.jsonl").read_bytes() == before
    assert not (tmp_path / "records.torn").exists()


def test_other_methods_models_layers_and_repeats_may_be_added(tmp_path: Path) -> None:
    write(tmp_path, record(0))
    write(
        tmp_path,
        record(0, method="transplant-dp"),
        record(0, model="gin"),
        record(0, layers=4),
        record(0, repeat=1),
    )
    assert len({Trial.of_record(item) for item in RecordStore(tmp_path).read()}) == 5


def test_two_processes_cannot_write_to_one_directory(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from graph_transplant.experiments.records import RecordStore\n"
        "with RecordStore(sys.argv[1]).writing({}, {}):\n"
        "    print('open', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(GraphTransplantError, match=f"is writing to .*process {other.pid}"):
            write(tmp_path)
        other.kill()
    # However the other process ended, the lock is free.
    write(tmp_path, record(0))
    assert RecordStore(tmp_path).read() == [record(0)]


def test_a_full_disk_leaves_the_records_before_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with RecordStore(tmp_path).writing(IDENTITY, SETTINGS) as writer:
        writer.append(record(0))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(GraphTransplantError, match="No space left on device; the records"):
                writer.append(record(1))
        assert writer.records == [record(0)]
        writer.append(record(2))
    assert RecordStore(tmp_path).read() == [record(0), record(2)]


def test_a_directory_that_cannot_be_made_or_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(GraphTransplantError, match=r"cannot make the directory .*file"):
        write(tmp_path / "file" / "out")
    (tmp_path / "out" / "records.jsonl").mkdir(parents=True)
    with pytest.raises(GraphTransplantError, match=r"cannot read .*records\.jsonl"):
        write(tmp_path / "out")


def test_numbers_that_are_not_finite_become_null() -> None:
    line = record_line(record(0, test={"nll": float("nan"), "curve": [1.0, float("-inf")]}))
    assert json.loads(line)["test"] == {"nll": None, "curve": [1.0, None]}
