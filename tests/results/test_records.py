"""The records file: appended to, synced, repaired without loss, never mixed."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graph_transplant.cli import main
from graph_transplant.config.compare import Settings
from graph_transplant.errors import GraphTransplantError
from graph_transplant.methods import METHODS, NUMERICS
from graph_transplant.results.record import TrialRecord, record_of
from graph_transplant.results.record_file import RecordStore, record_line
from graph_transplant.utils.files import write_atomically
from graph_transplant.utils.schema import plain
from helpers.made_up_records import IDENTITY, NO_NETWORK, PREDICTED, SETTINGS, record
from helpers.page_samples import rich

ROOT = Path(__file__).resolve().parents[2]
FILES = [*ROOT.glob("results/full/*/records.jsonl"), *ROOT.glob("tests/golden/records/*.gz")]
given_files = pytest.mark.parametrize(
    "path", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in sorted(FILES)]
)


def write(directory: Path, *items: TrialRecord) -> None:
    with RecordStore(directory).writing(IDENTITY, SETTINGS) as writer:
        for item in items:
            writer.append(item, PREDICTED)


def test_what_is_written_is_read_in_order_and_appended_to(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "down", record(2), record(0))
    write(tmp_path / "deep" / "down", record(1, source="Ünïcode ✓ \u2028"))
    found = RecordStore(tmp_path / "deep" / "down").read()
    assert [item.fold for item in found] == [2, 0, 1]
    assert found[2] == record(1, source="Ünïcode ✓ \u2028")
    line = record_line(record(0, test={"nll": float("nan"), "rmse": float("-inf")}))
    assert json.loads(line)["test"] == {"nll": None, "rmse": None}


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
        writer.append(record(0), PREDICTED)
        # The predictions and their folder are on disk before the line is begun.
        assert synced == [0, 0, len(record_line(record(0)))]
        assert RecordStore(tmp_path).read() == [record(0)]


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
        writer.append(record(2), PREDICTED)
    assert (tmp_path / "records.torn").read_bytes() == torn + b"\n"
    assert len(RecordStore(tmp_path).read()) == 3


def test_a_last_line_that_lacks_only_its_newline_is_kept(tmp_path: Path) -> None:
    write(tmp_path, record(0))
    path = tmp_path / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    with RecordStore(tmp_path).writing(IDENTITY, SETTINGS) as writer:
        assert writer.notice is None
        writer.append(record(1), PREDICTED)
    assert RecordStore(tmp_path).read() == [record(0), record(1)]
    assert not (tmp_path / "records.torn").exists()


@pytest.mark.parametrize("line", [b"not json", b"", b"[" * 100_000])
def test_a_malformed_line_in_the_middle_is_named_and_nothing_is_touched(
    tmp_path: Path, line: bytes
) -> None:
    path = tmp_path / "records.jsonl"
    content = record_line(record(0)) + line + b"\n" + record_line(record(2))
    path.write_bytes(content)
    with pytest.raises(GraphTransplantError, match=r"line 2 is not a record \(invalid JSON"):
        write(tmp_path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "item",
    [
        # Real ones have every field; what is not known, whole numbers, fields of later versions.
        *rich("vanilla", "transplant-ep")[::5],
        record(1, inner=0, validation={"accuracy": 1, "auroc": None}, new={"of": ["a later one"]}),
        record(1, method="forest", **NO_NETWORK),
        record(1, cost={"fit_seconds": 1}, attacked=[{"budget": 1, "removals_only": True}]),
    ],
)
def test_everything_a_trial_writes_is_read(tmp_path: Path, item: TrialRecord) -> None:
    (tmp_path / "records.jsonl").write_bytes(record_line(item))
    assert RecordStore(tmp_path).read() == [item]
    write(tmp_path / "again", item)
    assert RecordStore(tmp_path / "again").read() == [item]


@pytest.mark.parametrize(
    ("path", "value", "wanted"),
    [
        ("fold", "one", "an integer"),
        ("seconds", "long", "a number"),
        ("validation", [0.5], "an object"),
        ("settings.folds", "3", "an integer"),
        ("test.accuracy", "high", "a number"),
        ("cost", "much", "an object"),
        ("curve", {"epoch": 1}, "a list"),
        ("label_noise", 1.0, "a number < 1.0"),
        ("settings.attack", "all", "a list"),
        ("settings.metric", "fame", "one of accuracy, .*"),
        ("data", None, ""),
        ("sizes.train", None, ""),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_field_that_is_missing_or_of_the_wrong_type_is_named_wherever_it_is(
    tmp_path: Path, path: str, value: Any, wanted: str, first: bool
) -> None:
    item = plain(record(1))
    *outer, last = path.split(".")
    inside = item[outer[0]] if outer else item
    inside |= {last: value}
    if value is None:
        del inside[last]
    lines = [json.dumps(item).encode() + b"\n", record_line(record(0))]
    content = b"".join(lines if first else lines[::-1])
    (tmp_path / "records.jsonl").write_bytes(content)
    field = re.escape(path)
    # Whole JSON at the end is no torn line: cutting it off would hide that somebody changed it.
    wrong = rf"must be {wanted}; got" if wanted else r"is missing\)"
    message = rf"line {1 if first else 2} is not a record \(`{field}` {wrong}"
    with pytest.raises(GraphTransplantError, match=message):
        write(tmp_path)
    assert (tmp_path / "records.jsonl").read_bytes() == content


def test_trials_of_nested_selection_in_older_records_are_passed_over(tmp_path: Path) -> None:
    lines = [plain(record(0)) | {"inner": inner} for inner in range(3)] + [plain(record(1))]
    before = "".join(json.dumps(line) + "\n" for line in lines).encode()
    (tmp_path / "records.jsonl").write_bytes(before)
    assert [one.fold for one in RecordStore(tmp_path).read()] == [0, 1]
    write(tmp_path, record(2))
    assert (tmp_path / "records.jsonl").read_bytes() == before + record_line(record(2))


def test_records_of_another_comparison_are_refused_and_each_difference_is_named(
    tmp_path: Path,
) -> None:
    write(tmp_path, record(0))
    before = (tmp_path / "records.jsonl").read_bytes()
    other = SETTINGS | {"seed": 1, "epochs": 50, "hidden": 64, "attack": [0.1, 0.2]}
    with (
        pytest.raises(GraphTransplantError) as caught,
        RecordStore(tmp_path).writing(IDENTITY | {"fingerprint": "cd" * 32}, other),
    ):
        pass
    message = str(caught.value)
    assert "contains records of another comparison" in message
    assert "fingerprint is abababababab… there and cdcdcdcdcdcd… here" in message
    assert "`seed` is 0 there and 1 here" in message
    assert "`epochs` is 5 there and 50 here" in message
    assert "`hidden` is 128 there and 64 here" in message  # what a record lacks had its default
    assert "folds" not in message
    assert "`attack` is not set there and 0.1, 0.2 here" in message
    assert "start over with `fresh`" in message  # --fresh on the command line
    assert (tmp_path / "records.jsonl").read_bytes() == before


def test_records_of_other_numerics_can_be_read_and_are_not_added_to(tmp_path: Path) -> None:
    old = {"folds": 5, "epochs": 1000, "parts": 2}  # as records were before there were versions
    line = json.dumps(plain(record(0)) | {"settings": old})
    (tmp_path / "records.jsonl").write_text(line + "\n")
    assert RecordStore(tmp_path).read() == [record(0, settings=old)]
    now = Settings(shards=2).as_record("0.1.0")
    message = r"another version of the methods .*numerics 1, here 2.* start over with `fresh`"
    with (
        pytest.raises(GraphTransplantError, match=message),
        RecordStore(tmp_path).writing(IDENTITY, now),
    ):
        pass
    with RecordStore(tmp_path).writing(IDENTITY, now, fresh=True) as writer:
        assert not writer.records


def test_trials_of_a_changed_baseline_run_again_and_replace_the_older_ones(tmp_path: Path) -> None:
    settings = Settings().as_record("0.1.0")
    older = [record(fold, method="forest", settings=settings, **NO_NETWORK) for fold in range(2)]
    network = record(0, settings=settings)
    lines = b"".join(map(record_line, [*older, network]))
    (tmp_path / "records.jsonl").write_bytes(lines)
    assert RecordStore(tmp_path).read() == [*older, network]
    now = Settings().as_record("0.3.0", METHODS["forest"].numerics)
    newer = record(1, method="forest", settings=now, **NO_NETWORK)
    with RecordStore(tmp_path).writing(IDENTITY, settings) as writer:
        assert [each.current for each in writer.records] == [False, False, True]
        writer.append(newer, PREDICTED)
    # One newer trial hides all older ones, so that no mean is of both; no line is lost.
    assert RecordStore(tmp_path).read() == [network, newer]
    assert (tmp_path / "records.jsonl").read_bytes() == lines + record_line(newer)


@pytest.mark.parametrize(
    ("change", "numbers"),
    [
        ({"settings": {"numerics": NUMERICS + 1}}, f"numerics {NUMERICS + 1}, here {NUMERICS}"),
        # Whatever else a later format changes.
        ({"format": 2, "settings": {}, "sizes": 3}, "format 2, here 1"),
    ],
)
def test_records_of_a_newer_version_are_refused_by_name(
    change: dict[str, Any], numbers: str, tmp_path: Path
) -> None:
    newer = plain(record(0)) | change
    newer["settings"] = record(0).settings | newer["settings"] | {"version": "7.1"}
    line = json.dumps(newer) + "\n"
    (tmp_path / "records.jsonl").write_text(line)
    message = rf"line 1 was made by graph-transplant 7\.1 \({numbers}\), which is newer .*upgrade"
    with pytest.raises(GraphTransplantError, match=message):
        RecordStore(tmp_path).read()
    with (
        pytest.raises(GraphTransplantError, match=message),
        RecordStore(tmp_path).writing(IDENTITY, SETTINGS),
    ):
        pass
    assert (tmp_path / "records.jsonl").read_text() == line


def test_records_made_before_a_setting_existed_fit_its_default_and_nothing_else(
    tmp_path: Path,
) -> None:
    old = {"folds": 5, "epochs": 1000, "seed": 0, "numerics": NUMERICS, "version": "0.1.0"}
    line = json.dumps(plain(record(0)) | {"settings": old})
    (tmp_path / "records.jsonl").write_text(line + "\n")
    now = Settings(seed=0).as_record("0.2.0")  # another version does not matter
    assert len(now) > len(old)
    with RecordStore(tmp_path).writing(IDENTITY, now) as writer:
        writer.append(record(1, settings=now), PREDICTED)
    with RecordStore(tmp_path).writing(IDENTITY, old) as writer:
        assert len(writer.records) == 2
    for changed, message in (
        ({"metric": "auroc"}, "`metric` is accuracy there and auroc here"),
        ({"shards": 2}, "`shards` is 1 there and 2 here"),
        ({"ties": "loss"}, "`ties` is first there and loss here"),
    ):
        with (
            pytest.raises(GraphTransplantError, match=message),
            RecordStore(tmp_path).writing(IDENTITY, now | changed),
        ):
            pass
    # The same values as tuple and as list, as a setting comes from Python and from JSON.
    attacked = Settings(attack=(0.2, 0.4)).as_record("0.1.0")
    path = tmp_path / "attacked"
    with RecordStore(path).writing(IDENTITY, attacked) as writer:
        writer.append(record(0, settings=attacked), PREDICTED)
    with RecordStore(path).writing(IDENTITY, {**attacked, "attack": (0.2, 0.4)}) as writer:
        assert len(writer.records) == 1


# Starting over --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(FILES), ids=lambda path: str(path.relative_to(ROOT)))
def test_committed_records_are_read_and_written_as_they_were(path: Path) -> None:
    """Those of the present version byte for byte; older ones with what `upgrade` adds or drops."""
    kept = {"inner", "columns"}  # no longer read
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        for line in file:
            old = json.loads(line)
            again = record_line(record_of(old))
            if not kept & old.keys() and "recipe" in old["settings"]:
                assert again == line
                continue
            new = json.loads(again)
            parts = old["settings"].pop("parts", 1)
            assert parts == new["settings"]["shards"] or "shards" in old["settings"]
            assert old.pop("settings").items() <= new.pop("settings").items()
            if "curve" in old and "validation_score" not in old["curve"][0]:
                scored = [{**p, "validation_score": p["validation_accuracy"]} for p in old["curve"]]
                old["curve"] = scored
            assert {name: v for name, v in old.items() if name not in kept} == new


def test_a_record_of_before_a_setting_existed_had_its_default() -> None:
    def settings(**more: object) -> dict[str, Any]:
        return record(settings={"folds": 5, "epochs": 400, "version": "0.1.0"} | more).settings

    assert settings() == {**Settings(epochs=400).as_record("0.1.0"), "numerics": 1}
    assert settings(parts=2)["shards"] == 2  # as it was called then
    assert settings(attack=[0.5, 0.25, 0.5])["attack"] == [0.25, 0.5]
    assert settings(balance=True)["balance"] is True


def test_starting_over_keeps_every_file_there_was(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    write(tmp_path, record(0))
    for number in (1, 2):
        before, settings = path.read_bytes(), SETTINGS | {"seed": number}
        with RecordStore(tmp_path).writing(IDENTITY, settings, fresh=True) as writer:
            assert writer.records == []
            assert writer.notice == (
                f"starting over; the records so far are kept in {tmp_path}/records-{number}.jsonl"
            )
            writer.append(record(number, settings=settings), PREDICTED)
        assert (tmp_path / f"records-{number}.jsonl").read_bytes() == before
        assert RecordStore(tmp_path).read() == [record(number, settings=settings)]
    assert len(list(tmp_path.glob("records*.jsonl"))) == 3


def test_two_processes_cannot_write_to_one_directory(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from graph_transplant.results.record_file import RecordStore\n"
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


def test_a_directory_that_cannot_be_made_or_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(GraphTransplantError, match=r"cannot make the directory .*file"):
        write(tmp_path / "file" / "out")
    (tmp_path / "out" / "records.jsonl").mkdir(parents=True)
    with pytest.raises(GraphTransplantError, match=r"cannot read .*records\.jsonl"):
        write(tmp_path / "out")


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_may_not_grow_leaves_the_records_intact(tmp_path: Path) -> None:
    with RecordStore(tmp_path).writing(IDENTITY, SETTINGS) as writer:
        writer.append(record(0), PREDICTED)
        size = (tmp_path / "records.jsonl").stat().st_size
        too_large = pytest.raises(GraphTransplantError, match="File too large; the records before")
        with largest_file(size + 50), too_large:
            writer.append(record(1), PREDICTED)
        assert (tmp_path / "records.jsonl").stat().st_size == size  # the part it took is gone
        assert writer.records == [record(0)]
        writer.append(record(2), PREDICTED)
    assert RecordStore(tmp_path).read() == [record(0), record(2)]


# Files that are made of records ---------------------------------------------------------------


def test_a_file_that_may_not_grow_keeps_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_atomically(path, "old")
    message = f"cannot write {path}: File too large; any existing file is unchanged"
    with largest_file(50), pytest.raises(GraphTransplantError, match=message):
        write_atomically(path, "x" * 100)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_takes_no_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "report.html"
    with pytest.raises(GraphTransplantError, match=rf"write {path}: No such file or directory;"):
        write_atomically(path, "new")
    (tmp_path / "folder").mkdir()
    with pytest.raises(GraphTransplantError, match=r"cannot write .*/folder: Is a directory;"):
        write_atomically(tmp_path / "folder", "new")
    assert [item.name for item in tmp_path.iterdir()] == ["folder"]


def test_a_link_stays_a_link_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link, dangling = (tmp_path / name for name in ("folder/a.csv", "a.csv", "b.csv"))
    target.write_text("old")
    link.symlink_to(target)
    dangling.symlink_to("folder/b.csv")
    for path in (link, dangling):
        write_atomically(path, "new")
        assert path.is_symlink()
        assert (tmp_path / "folder" / path.name).read_text() == "new"
    assert len(list((tmp_path / "folder").iterdir())) == 2


@pytest.mark.parametrize("name", [".lock", "records.torn", "predictions", "predictions/0.npz"])
def test_records_are_not_written_through_links_of_a_folder_from_elsewhere(
    name: str, tmp_path: Path
) -> None:
    folder, elsewhere = tmp_path / "mailed", tmp_path / "elsewhere"
    write(folder, record(0))
    shutil.rmtree(folder / "predictions")
    elsewhere.write_text("precious")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(GraphTransplantError, match=f"{name} is a link to {elsewhere}"):
        write(folder, record(1))
    assert elsewhere.read_text() == "precious"


@pytest.mark.parametrize("name", ["report.html", "summary.csv", "figures/ranking.svg"])
def test_a_report_is_not_written_through_links_of_a_folder_from_elsewhere(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, elsewhere = tmp_path / "mailed", tmp_path / "elsewhere"
    write(folder, *(record(fold) for fold in range(3)))
    elsewhere.write_text("precious")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to(elsewhere)
    assert main(["report", str(folder)]) == 2
    assert f"{name} is a link to {elsewhere}" in capsys.readouterr().err
    assert elsewhere.read_text() == "precious"
    assert not list(folder.glob("*.csv")) or name == "summary.csv"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Open before anything is written, for both directions: neither side waits for the other.
    reader = os.open(pipe, os.O_RDWR)
    try:
        write_atomically(pipe, "new")
        assert os.read(reader, 100) == b"new"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]
