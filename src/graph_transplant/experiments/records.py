"""The append-only file of finished trials: one writer, one line per trial, synced line by line.

``DIR/records.jsonl`` is the truth of a comparison: tables and reports are made from it and can be
made again. So it is only ever appended to, a line is on disk before the next trial counts as
finished, and whatever else is found in the file is either repaired without losing a byte or
refused. Starting over keeps the old file beside the new one.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.protocol import METRICS, Condition, Record, Settings, Trial
from graph_transplant.files import try_lock

_NUMBER = (int, float)
_MEASURED = (int, float, type(None))  # a number that is not finite is written as null

_NEEDED: dict[str, tuple[type, ...]] = {
    "data": (str,),
    "fingerprint": (str,),
    "method": (str,),
    "model": (str,),
    "layers": (int,),
    "repeat": (int,),
    "fold": (int,),
    "validation": (dict,),
    "test": (dict,),
    "epochs": (int,),
    "best_epoch": (int,),
    "seconds": _NUMBER,
    "sizes": (dict,),
    "settings": (dict,),
}
"""What every record must have for the tables to be made, with its type."""

_NEEDED_INSIDE: dict[str, tuple[str, ...]] = {
    "sizes": ("train", "validation", "test"),
    "settings": ("folds", "epochs"),
}
"""What some of those must have in turn; other settings may be of a later version."""

_POSSIBLE: dict[str, tuple[type, ...]] = {
    "source": (str,),
    "task": (str,),
    "inner": (int,),
    "seed": (int,),
    "stopped_early": (bool,),
    "curve": (list,),
    "attacked": (list,),
    "columns": (dict,),
    "calibrated": (dict,),
    "reliability": (list,),
    "reliability_calibrated": (list,),
    "cost": (dict,),
    "saliency": (dict,),
    "saliency_curve": (list,),
    "samples": (dict,),
    "examples": (list,),
    "label_noise": _NUMBER,
    "train_fraction": _NUMBER,
    "wrong_labels": (int,),
}
"""What a record may have, with the type that readers count on."""

_INSIDE: dict[str, tuple[type, ...]] = {
    "test": _MEASURED,
    "validation": _MEASURED,
    "sizes": (int,),
    "columns": (str,),
    "calibrated": _MEASURED,
    "cost": _MEASURED,
    "saliency": _MEASURED,
    "samples": _MEASURED,
}
"""Fields that are objects, with the type of everything in them."""

_LISTS = {
    "curve": "epoch",
    "attacked": "budget",
    "reliability": "bin",
    "reliability_calibrated": "bin",
    "saliency_curve": "share",
    "examples": "kind",
}
"""Fields that are lists of objects, with what each of those must have."""

_FREE = ("examples",)
"""Those of them whose objects may hold anything else besides: who draws them knows their kinds."""

_IN_LISTS: dict[str, tuple[type, ...]] = {
    "epoch": (int,),
    "measurements": (dict,),
    "budget": _NUMBER,
    "edges": (int,),
    "bin": (int,),
    "count": (int,),
    "share": _NUMBER,
    "kind": (str,),
}
"""What those objects may have that is not a measured number."""


@dataclass(frozen=True)
class Contents:
    """What a records file holds.

    Args:
        records: The finished trials in the order they were written.
        complete: Number of bytes of the lines that are whole.
        torn: What follows them: the piece of a line whose writing was cut short, or nothing.
        unfinished: Whether the last whole record lacks its newline.
    """

    records: list[Record]
    complete: int
    torn: bytes
    unfinished: bool


class RecordStore:
    """The records of one comparison, in one directory.

    Args:
        directory: Where ``records.jsonl`` lies or will lie.

    Example:
        >>> import tempfile
        >>> store = RecordStore(tempfile.mkdtemp())
        >>> settings = {"folds": 5, "epochs": 50}
        >>> record = {"data": "motifs", "fingerprint": "1f", "method": "vanilla", "model": "gcs",
        ...           "layers": 3, "repeat": 0, "fold": 0, "validation": {"accuracy": 0.7},
        ...           "test": {"accuracy": 0.75}, "epochs": 50, "best_epoch": 20, "seconds": 2.5,
        ...           "sizes": {"train": 60, "validation": 20, "test": 20}, "settings": settings}
        >>> with store.writing({"data": "motifs", "fingerprint": "1f"}, settings) as writer:
        ...     writer.append(record)
        >>> store.read() == [record]
        True
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.path = self.directory / "records.jsonl"
        self.torn_path = self.directory / "records.torn"

    def read(self) -> list[Record]:
        """Read all finished trials and changes nothing; a torn last line is left out.

        Raises:
            GraphTransplantError: If a line before the last one is not a record.
        """
        return self._contents().records

    @contextmanager
    def writing(
        self, identity: Mapping[str, Any], settings: Mapping[str, Any], *, fresh: bool = False
    ) -> Iterator[RecordWriter]:
        """Open the records for appending, for this process alone.

        Args:
            identity: Fields that every record of this comparison shares (data, fingerprint).
            settings: Settings that every record of this comparison shares, but for the library
                version. What these or those of a record lack counts as the default of
                :class:`~graph_transplant.experiments.protocol.Settings`.
            fresh: Start over: whatever ``records.jsonl`` holds is kept as ``records-1.jsonl`` (or
                the next number that was not used yet), and an empty one takes its place.

        Yields:
            A writer; its ``records`` are the trials already finished.

        Raises:
            GraphTransplantError: If another process is writing here, if the directory holds the
                records of another comparison, or if the disk refuses. No record is changed then.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise GraphTransplantError(
                f"cannot make the directory {self.directory}: {problem.strerror}"
            ) from problem
        with _locked(self.directory / ".lock", self.directory):
            notice = self._move_aside() if fresh else None
            contents = self._contents()
            self._refuse_others(contents.records, identity, settings)
            try:
                notice = self._repair(contents) or notice
                # Unbuffered: after a failed write nothing may be left that closing would write.
                file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - closed below, always
            except OSError as problem:
                raise GraphTransplantError(
                    f"cannot write {problem.filename or self.path}: {problem.strerror}; the "
                    "records before are intact"
                ) from problem
            with file:
                _sync_directory(self.directory)
                yield RecordWriter(self.path, file, contents.records, notice)

    def _move_aside(self) -> str | None:
        if not self.path.exists() or not self.path.stat().st_size:
            return None
        # One more than the highest number there is: the numbers tell the order, gaps or not. The
        # lock keeps other comparisons from taking the same one.
        numbers = [
            int(match.group(1))
            for match in (re.fullmatch(r"records-(\d+)\.jsonl", name) for name in self._names())
            if match
        ]
        kept = self.directory / f"records-{max(numbers, default=0) + 1}.jsonl"
        try:
            os.rename(self.path, kept)
        except OSError as problem:
            raise GraphTransplantError(
                f"cannot move {self.path} to {kept.name}: {problem.strerror}; the records stay "
                "where they were"
            ) from problem
        _sync_directory(self.directory)
        return f"starting over; the records so far are kept in {kept}"

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.directory)
        except OSError as problem:
            raise GraphTransplantError(
                f"cannot read the directory {self.directory}: {problem.strerror}"
            ) from problem

    def _contents(self) -> Contents:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return Contents([], 0, b"", False)
        except OSError as problem:
            raise GraphTransplantError(f"cannot read {self.path}: {problem.strerror}") from problem
        # Not bytes.splitlines: that breaks at a carriage return too, which a torn line may hold.
        lines = io.BytesIO(content).readlines()
        records: list[Record] = []
        seen: dict[Trial, int] = {}
        complete = 0
        for number, line in enumerate(lines, start=1):
            record, fault = _parse(line)
            if record is None:
                # A piece of a record is never JSON, so that a last line which is JSON was not torn:
                # somebody put it there.
                if number == len(lines) and fault.startswith(_NO_JSON):
                    return Contents(records, complete, content[complete:], False)
                raise GraphTransplantError(
                    f"{self.path}, line {number} is not a record ({fault}); correct or remove that "
                    "line, or choose another directory"
                )
            trial = Trial.of_record(record)
            if trial in seen:
                raise GraphTransplantError(
                    f"{self.path}, line {number} repeats the trial of line {seen[trial]} "
                    f"({trial}); remove one of the two lines"
                )
            seen[trial] = number
            records.append(record)
            complete += len(line)
        return Contents(records, complete, b"", bool(lines) and not lines[-1].endswith(b"\n"))

    def _refuse_others(
        self, records: list[Record], identity: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> None:
        here = _finite(Settings.complete(settings))
        here.pop("version", None)
        differences: dict[str, None] = {}
        for record in records:
            for name, value in identity.items():
                if record.get(name) != value:
                    differences[_difference(name, record.get(name), value)] = None
            there = Settings.complete(record["settings"])
            if there["numerics"] != here["numerics"]:
                raise GraphTransplantError(
                    f"{self.directory} holds records that another version of the methods made "
                    f"(numerics {there['numerics']}, here {here['numerics']}): the same seed gives "
                    "other numbers now. Choose another directory, or start over with --fresh, "
                    "which keeps those records beside the new ones"
                )
            there.pop("version", None)
            for name in (*here, *(name for name in there if name not in here)):
                if there.get(name) != here.get(name):
                    differences[_difference(name, there.get(name), here.get(name))] = None
        if differences:
            raise GraphTransplantError(
                f"{self.directory} holds records of another comparison: {'; '.join(differences)}. "
                "Choose another directory or the settings of that comparison, or start over with "
                "--fresh, which keeps those records beside the new ones"
            )

    def _repair(self, contents: Contents) -> str | None:
        if contents.torn:
            # First kept beside, then cut off: a kill in between leaves it in both places, lost in
            # none.
            with open(self.torn_path, "ab") as file:
                file.write(contents.torn.rstrip(b"\n") + b"\n")
                file.flush()
                os.fsync(file.fileno())
            with open(self.path, "r+b") as file:
                file.truncate(contents.complete)
                os.fsync(file.fileno())
            return (
                f"the last line of {self.path} was cut short while it was written; that trial runs "
                f"again (the piece is kept in {self.torn_path.name})"
            )
        if contents.unfinished:
            with open(self.path, "ab") as file:
                file.write(b"\n")
                file.flush()
                os.fsync(file.fileno())
        return None


class RecordWriter:
    """Appends finished trials; made by :meth:`RecordStore.writing`.

    Args:
        path: The file, for messages.
        file: The file, open for appending.
        records: The trials already in it.
        notice: What was repaired when it was opened, in words, or nothing.
    """

    def __init__(
        self, path: Path, file: io.FileIO, records: list[Record], notice: str | None
    ) -> None:
        self._path = path
        self._file = file
        self.records = list(records)
        self.notice = notice

    def append(self, record: Record) -> None:
        """Write one finished trial; when this returns, it is on disk.

        Raises:
            GraphTransplantError: If the disk refuses; the records before it stay intact.
        """
        line = record_line(record)
        before = os.fstat(self._file.fileno()).st_size
        try:
            written = 0
            while written < len(line):  # a nearly full disk takes a part and fails at the next call
                written += self._file.write(line[written:])
            os.fsync(self._file.fileno())
        except OSError as problem:
            os.ftruncate(self._file.fileno(), before)
            raise GraphTransplantError(
                f"cannot write {self._path}: {problem.strerror}; the records before are intact"
            ) from problem
        self.records.append(record)


def record_line(record: Record) -> bytes:
    r"""Give the line of a record: compact JSON, UTF-8, numbers that are not finite as ``null``.

    Example:
        >>> record_line({"nll": float("inf"), "accuracy": 0.5})
        b'{"nll":null,"accuracy":0.5}\n'
    """
    text = json.dumps(_finite(record), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode() + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


_NO_JSON = "no JSON"


def _parse(line: bytes) -> tuple[Record | None, str]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as problem:  # covers bad UTF-8 and a mountain of brackets
        return None, f"{_NO_JSON}: {problem}"
    if not isinstance(record, dict):
        return None, f"expected an object, got {type(record).__name__}"
    for name in _NEEDED:
        if name not in record:
            return None, f"field `{name}` is missing"
    fault = next(_faults(record), "")
    return (None, fault) if fault else (record, "")


def _faults(record: Record) -> Iterator[str]:
    """Name the fields that would trip up a reader of the records, by their type or their absence.

    Each step counts on the ones before to have found nothing: only the first fault may be asked
    for.
    """
    yield from _wrong_types(record, {**_NEEDED, **_POSSIBLE})
    for name, keys in _NEEDED_INSIDE.items():
        for key in keys:
            if key not in record[name]:
                yield f"field `{name}.{key}` is missing"
    for name, kinds in _INSIDE.items():
        inside = record.get(name, {})
        yield from _wrong_types(inside, dict.fromkeys(inside, kinds), f"{name}.")
    for name, needed in _LISTS.items():
        for number, point in enumerate(record.get(name, [])):
            place = f"{name}[{number}]"
            if not isinstance(point, dict):
                yield f"field `{place}` has the type {type(point).__name__}"
            keys = (needed,) if name in _FREE else point
            expected = {key: _IN_LISTS.get(key, _MEASURED) for key in keys}
            yield from _wrong_types(point, expected, f"{place}.")
            if needed not in point:
                yield f"field `{place}.{needed}` is missing"
            inside = {} if name in _FREE else point.get("measurements", {})
            yield from _wrong_types(
                inside, dict.fromkeys(inside, _MEASURED), f"{place}.measurements."
            )
    settings = record["settings"]
    for name, default in {**Settings.complete({}), "parts": 1}.items():
        kinds = _NUMBER if isinstance(default, float) else (type(default),)
        yield from _wrong_types(settings, {name: kinds}, "settings.")
    attack = settings.get("attack", [])
    if isinstance(attack, list) and any(type(budget) not in _NUMBER for budget in attack):
        yield "field `settings.attack` has something else than numbers"
    if settings.get("metric", "accuracy") not in METRICS:
        yield f"field `settings.metric` is {settings['metric']!r}"
    noise, fraction = Condition.of(record)
    # Written so that what is no number at all (JSON readers know NaN) does not pass.
    if not 0 <= noise < 1:
        yield f"field `label_noise` is {noise}, not in [0, 1)"
    if not 0 < fraction <= 1:
        yield f"field `train_fraction` is {fraction}, not in (0, 1]"


def _wrong_types(
    fields: Mapping[str, Any], expected: Mapping[str, tuple[type, ...]], prefix: str = ""
) -> Iterator[str]:
    for name, kinds in expected.items():
        # Exact types: True is an int to isinstance, but no number of layers.
        if name in fields and type(fields[name]) not in kinds:
            yield f"field `{prefix}{name}` has the type {type(fields[name]).__name__}"


def _difference(name: str, there: Any, here: Any) -> str:
    def shown(value: Any) -> str:
        if value is None:
            return "not given"
        return f"{value[:12]}…" if name == "fingerprint" else str(value)

    title = "the data's fingerprint" if name == "fingerprint" else f"`{name}`"
    return f"{title} is {shown(there)} there and {shown(here)} here"


def _sync_directory(directory: Path) -> None:
    if sys.platform == "win32":  # Windows cannot open directories
        return
    try:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise GraphTransplantError(
            f"cannot sync the directory {directory} to disk: {problem.strerror}"
        ) from problem


@contextmanager
def _locked(path: Path, directory: Path) -> Iterator[None]:
    # The lock belongs to the open file, so the system frees it however this process ends. The lock
    # file itself stays: deleting it would let two processes lock two files of the same name.
    try:
        # Unbuffered: after a failed write nothing may be left that closing would write.
        file = open(path, "a+b", buffering=0)  # noqa: SIM115 - closed below, always
    except OSError as problem:
        raise GraphTransplantError(f"cannot write in {directory}: {problem.strerror}") from problem
    with file:
        try:
            free = try_lock(file)
        except OSError as problem:
            raise GraphTransplantError(f"cannot lock {path}: {problem.strerror}") from problem
        if not free:
            file.seek(1)
            owner = file.read().decode(errors="replace").strip()
            who = f" ({owner})" if owner else ""
            raise GraphTransplantError(
                f"another comparison is writing to {directory}{who}; wait for it, stop it, or "
                "choose another directory"
            )
        try:
            file.truncate(0)
            # The first byte is what Windows locks, and nobody can read it meanwhile.
            file.write(f" process {os.getpid()}\n".encode())
        except OSError as problem:
            raise GraphTransplantError(
                f"cannot write in {directory}: {problem.strerror}"
            ) from problem
        yield
