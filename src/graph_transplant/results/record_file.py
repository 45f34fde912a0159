"""Append-only file of finished trials: one writer, one line per trial, synced line by line.

Tables and reports can be made again from ``DIR/records.jsonl``; the records cannot. So the file is
only appended to, a line is on disk before its trial counts as finished, and a damaged file is
repaired without losing a byte, or rejected. The predictions of a trial are written before its line.
If the numbers of a baseline have changed, its trials run again when they are asked for; the older
ones stay in the file, but from the first newer one on they are not read.
"""

from __future__ import annotations

import io
import json
import os
import re
import reprlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from filelock import lock_descriptor

from graph_transplant import __version__
from graph_transplant.errors import GraphTransplantError
from graph_transplant.methods import method_of
from graph_transplant.results.predictions import PREDICTIONS, TrialPredictions, path_of
from graph_transplant.results.record import Trial, TrialRecord, newest, record_of, upgrade
from graph_transplant.utils.files import COMPARISON_FILES, refuse_links, replace_file
from graph_transplant.utils.schema import plain

FORMAT: Final = 1
"""Increased when earlier versions cannot read records; missing in records of the first format."""


@dataclass(frozen=True)
class Contents:
    """Contents of a records file."""

    records: list[TrialRecord]
    complete: int  # size of the complete lines in bytes
    torn: bytes = b""  # the incomplete line after them, from an interrupted write
    unfinished: bool = False  # whether the last record lacks its newline


class RecordStore:
    """The records of one comparison, in one directory."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.path = self.directory / "records.jsonl"

    def read(self) -> list[TrialRecord]:
        """Read all finished trials without changing the file; a torn last line is ignored."""
        return self._contents().records

    @contextmanager
    def writing(
        self, identity: Mapping[str, Any], settings: Mapping[str, Any], *, fresh: bool = False
    ) -> Iterator[RecordWriter]:
        """Lock the records and open them for appending."""
        with _explained(f"make the directory {self.directory}"):
            self.directory.mkdir(parents=True, exist_ok=True)
            refuse_links(self.directory, COMPARISON_FILES)
        with _locked(self.directory):
            notice = self._move_aside() if fresh else None
            contents = self._contents()
            self._refuse_others(contents.records, identity, settings)
            with _explained(f"write {self.path}", "; the records before are intact"):
                notice = self._repair(contents) or notice
                # Unbuffered, so that closing does not flush the rest of a failed write.
                file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - closed below, always
            with file:
                _sync_directory(self.directory)
                for part in (self.directory / PREDICTIONS).glob(".*.npz.*"):  # of a killed process
                    part.unlink(missing_ok=True)
                yield RecordWriter(self.path, file, contents.records, notice)

    def _move_aside(self) -> str | None:
        if not self.path.exists() or not self.path.stat().st_size:
            return None
        # One more than the highest number, so that numbers show the order even with gaps.
        with _explained(f"read the directory {self.directory}"):
            names = os.listdir(self.directory)
        kept = [re.fullmatch(r"(?:records|predictions)-(\d+)(?:\.jsonl)?", name) for name in names]
        number = 1 + max((int(match.group(1)) for match in kept if match), default=0)
        path = self.directory / f"records-{number}.jsonl"
        with _explained(f"move {self.path} to {path.name}", "; the records stay where they were"):
            os.rename(self.path, path)
            # Second: predictions without a record are never read, and replaced.
            with suppress(FileNotFoundError):
                os.rename(self.directory / PREDICTIONS, self.directory / f"{PREDICTIONS}-{number}")
        _sync_directory(self.directory)
        return f"starting over; the records so far are kept in {path}"

    def _contents(self) -> Contents:
        with _explained(f"read {self.path}"):
            try:
                whole = self.path.read_bytes()
            except FileNotFoundError:
                whole = b""
        # bytes.splitlines would also split at a carriage return, which a torn line may contain.
        lines = io.BytesIO(whole).readlines()
        records: list[TrialRecord] = []
        seen: dict[tuple[Trial, int], int] = {}
        complete = 0
        for number, line in enumerate(lines, start=1):
            try:
                content = json.loads(line)
                newer = _newer(content)
                record = None if newer else record_of(content)
            except (ValueError, RecursionError) as problem:  # also bad UTF-8, and our own errors
                found = isinstance(problem, GraphTransplantError)
                # A part of a record is never valid JSON: a last line that parses was not torn.
                if number == len(lines) and not found:
                    return Contents(newest(records), complete, torn=whole[complete:])
                raise GraphTransplantError(
                    f"{self.path}, line {number} is not a record "
                    f"({problem if found else f'invalid JSON: {problem}'}); correct or remove that "
                    "line, or choose another directory"
                ) from problem
            if newer:
                raise GraphTransplantError(
                    f"{self.path}, line {number} was made by graph-transplant {newer}, which is "
                    f"newer than this one ({__version__}): upgrade graph-transplant, or choose "
                    "another directory"
                )
            complete += len(line)
            if record is None:
                continue
            trial, numerics = record.trial, record.numerics
            if (trial, numerics) in seen:
                raise GraphTransplantError(
                    f"{self.path}, line {number} repeats the trial of line {seen[trial, numerics]} "
                    f"({trial}); remove one of the two lines"
                )
            seen[trial, numerics] = number
            records.append(record)
        unfinished = bool(whole) and whole[-1:] != b"\n"
        return Contents(newest(records), complete, unfinished=unfinished)

    def _refuse_others(
        self, records: list[TrialRecord], identity: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> None:
        here = {**identity, **upgrade({"settings": plain(settings)})["settings"], "version": None}
        differences: dict[str, None] = {}
        for record in records:
            there = {name: getattr(record, name) for name in identity}
            there |= record.settings | {"version": None}
            if not method_of(record.method).network:
                # They take seconds: those asked for are run again, the others stay.
                there["numerics"] = here["numerics"]
            if there["numerics"] != here["numerics"]:
                raise GraphTransplantError(
                    f"{self.directory} contains records made by another version of the methods "
                    f"(numerics {there['numerics']}, here {here['numerics']}): the same seed gives "
                    "other numbers now. Choose another directory, or start over with `fresh`, "
                    "which keeps the old records under another name"
                )
            for name in here | there:
                if there.get(name) != here.get(name):
                    differences[_difference(name, there.get(name), here.get(name))] = None
        if differences:
            raise GraphTransplantError(
                f"{self.directory} contains records of another comparison: "
                f"{'; '.join(differences)}. Choose another directory or the settings of that "
                "comparison, or start over with `fresh`, which keeps the old records under another "
                "name"
            )

    def _repair(self, contents: Contents) -> str | None:
        if contents.torn:
            # Saved before it is cut off: a kill in between leaves it in both places.
            _append(self.directory / "records.torn", contents.torn.rstrip(b"\n") + b"\n")
            with open(self.path, "r+b") as file:
                file.truncate(contents.complete)
                os.fsync(file.fileno())
            return (
                f"the last line of {self.path} was cut short while it was written; that trial runs "
                f"again (the piece is kept in records.torn)"
            )
        if contents.unfinished:
            _append(self.path, b"\n")
        return None


@dataclass(frozen=True)
class RecordWriter:
    """Appends finished trials; ``notice`` says what was repaired or moved, if anything."""

    path: Path
    file: io.FileIO
    records: list[TrialRecord]
    notice: str | None

    def append(self, record: TrialRecord, predictions: TrialPredictions) -> None:
        """Write one finished trial, its predictions first; both are on disk when this returns."""
        path = path_of(self.path.parent, record.trial)
        with _explained(f"write {path}", "; the records before are intact"):
            path.parent.mkdir(exist_ok=True)
            replace_file(path, predictions.as_bytes())
        _sync_directory(path.parent)
        line = record_line(record)
        before = os.fstat(self.file.fileno()).st_size
        with _explained(f"write {self.path}", "; the records before are intact"):
            try:
                written = 0
                while written < len(line):  # a nearly full disk accepts a part, then fails
                    written += self.file.write(line[written:])
                os.fsync(self.file.fileno())
            except OSError:
                os.ftruncate(self.file.fileno(), before)
                raise
        self.records.append(record)


def record_line(record: TrialRecord) -> bytes:
    """Serialise a record to one line of compact UTF-8 JSON; non-finite numbers are ``null``."""
    text = json.dumps(plain(record), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode() + b"\n"


def _newer(content: Any) -> str:
    """Version and numbers of a record that this version cannot judge; empty if it can."""
    settings = content.get("settings") if isinstance(content, dict) else None
    if not isinstance(settings, dict):
        return ""
    known = {
        "numerics": (settings.get("numerics"), method_of(str(content.get("method"))).numerics),
        "format": (content.get("format"), FORMAT),
    }
    newer = [
        f"{name} {there}, here {here}"
        for name, (there, here) in known.items()
        if isinstance(there, int) and there > here
    ]
    version = reprlib.repr(settings.get("version", "of unknown version")).strip("'")
    return f"{version} ({'; '.join(newer)})" if newer else ""


def _difference(name: str, there: Any, here: Any) -> str:
    def shown(value: Any) -> str:
        if value is None or value == []:
            return "not set"
        if isinstance(value, list):
            return ", ".join(map(str, value))
        return f"{value[:12]}…" if name == "fingerprint" else str(value)

    title = "the data's fingerprint" if name == "fingerprint" else f"`{name}`"
    return f"{title} is {shown(there)} there and {shown(here)} here"


@contextmanager
def _explained(what: str, state: str = "") -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise GraphTransplantError(f"cannot {what}: {problem.strerror}{state}") from problem


def _append(path: Path, content: bytes) -> None:
    with open(path, "ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    if sys.platform != "win32":  # Windows cannot open directories
        with _explained(f"sync the directory {directory} to disk"):
            descriptor = os.open(directory, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    # The lock belongs to the open file, so the system releases it however this process ends. The
    # lock file stays: deleting it would let two processes lock two files of the same name.
    path = directory / ".lock"
    with _explained(f"write in {directory}"):
        # Unbuffered, so that closing does not flush the rest of a failed write.
        file = open(path, "a+b", buffering=0)  # noqa: SIM115 - closed below, always
    with file:
        with _explained(f"lock {path}"):
            if not lock_descriptor(file.fileno(), blocking=False):
                file.seek(1)
                owner = file.read().decode(errors="replace").strip()
                raise GraphTransplantError(
                    f"another comparison is writing to {directory}{f' ({owner})' if owner else ''}"
                    "; wait for it, stop it, or choose another directory"
                )
            file.truncate(0)
            # Windows locks the first byte, which other processes then cannot read.
            file.write(f" process {os.getpid()}\n".encode())
        yield
