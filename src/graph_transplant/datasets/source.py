"""Read data set files, plain, gzipped or in a zip archive, with size limits."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, NoReturn, Self, cast

import numpy as np
import numpy.typing as npt

from graph_transplant.errors import DataError
from graph_transplant.format import count

# Graphs as text do not compress 200-fold: a file that exceeds both limits is a zip bomb.
_MAX_RATIO: Final = 200
_SMALL: Final = 1 << 28
# Maximum line length.
_MAX_LINE: Final = 1 << 24
# Read in small blocks, as `zipfile` decompresses all LZMA data of a read at once.
_SIP: Final = 1 << 16

_GZIP: Final = b"\x1f\x8b"
_SHOWN: Final = 60


class _Limited(io.RawIOBase):
    """Reads a file in small blocks and enforces the limits."""

    def __init__(self, file: IO[bytes], packed: int, label: str) -> None:
        self._file, self._packed, self._label = file, packed, label
        self._unpacked = self._since_break = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), _SIP))
        buffer[: len(data)] = data
        self._unpacked += len(data)
        _check_size(self._label, self._unpacked, self._packed)
        last = max(data.rfind(b"\n"), data.rfind(b"\r"))
        self._since_break = len(data) - 1 - last + (self._since_break if last < 0 else 0)
        if self._since_break > _MAX_LINE:
            raise DataError(f"{self._label}: a line is longer than {_MAX_LINE >> 20} MiB")
        return len(data)


def _check_size(label: str, unpacked: int, packed: int) -> None:
    if unpacked > max(_SMALL, _MAX_RATIO * packed):
        raise DataError(
            f"{label}: unpacks to {unpacked >> 20} MiB or more, from {packed >> 10} KiB; refusing "
            "to read a possible zip bomb"
        )


@contextmanager
def opened(path: Path, member: str | None = None) -> Iterator[IO[bytes]]:
    """Open a file, or ``member`` of a folder or zip archive; decompress gzip.

    File errors are raised as :class:`DataError`, also while reading.
    """
    label = str(path) if member is None else f"{path}: {PurePosixPath(member).name}"
    try:
        with ExitStack() as stack:
            if member is None or path.is_dir():
                place = path if member is None else path / member
                file: Any = stack.enter_context(place.open("rb"))
                size = os.fstat(file.fileno()).st_size
            else:
                file, size = _open_member(stack, label, path, member)
            if file.peek(2)[:2] == _GZIP:
                file = stack.enter_context(gzip.GzipFile(fileobj=file))
            limited = _Limited(file, size, label)
            yield stack.enter_context(io.BufferedReader(limited, _SIP))
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, gzip.BadGzipFile) as error:
        raise DataError(f"{label}: cannot be unpacked ({error})") from None
    except OSError as error:
        raise DataError(f"{label}: cannot be read ({error.strerror or error})") from None


def _open_member(
    stack: ExitStack, label: str, path: Path, member: str
) -> tuple[zipfile.ZipExtFile, int]:
    archive = stack.enter_context(_archive(path))
    info = archive.getinfo(member)
    _check_size(label, info.file_size, info.compress_size)
    try:
        file = cast("zipfile.ZipExtFile", stack.enter_context(archive.open(info)))
    except (NotImplementedError, RuntimeError, ValueError) as error:
        # Unknown compression method, encrypted, or inconsistent names.
        raise DataError(f"{label}: cannot be unpacked ({error})") from None
    return file, info.file_size


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DataError(f"{path}: not a readable zip archive ({error})") from None


def files_in(path: Path, *patterns: str) -> list[str]:
    """Files in a folder that match a pattern, or all members of a zip archive."""
    if path.is_dir():
        found = [file for pattern in patterns for file in path.glob(pattern) if file.is_file()]
        return sorted(file.relative_to(path).as_posix() for file in found)
    if not path.is_file() or path.suffix.lower() != ".zip":
        return []
    with _archive(path) as archive:
        # Members are never extracted, so a name like "../x" is harmless.
        return sorted(name for name in archive.namelist() if "__MACOSX" not in name.split("/"))


@dataclass(frozen=True)
class Parts:
    """Files of a data set, by their content (part)."""

    name: str
    path: Path  # a folder or zip archive
    files: Mapping[str, str]  # by part, relative to `path`

    def __contains__(self, part: str) -> bool:
        return part in self.files

    def label(self, part: str) -> str:
        """Name of a file for messages."""
        return f"{self.path}: {PurePosixPath(self.files[part]).name}"

    def state(self) -> list[tuple[str, int, int]]:
        """Name, size and modification time of the files to read."""
        paths = [self.path]
        if self.path.is_dir():
            paths = [self.path / self.files[part] for part in sorted(self.files)]
        return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in paths]

    def table(
        self, part: str, *, whole: bool, columns: int | None = None, lines: int | None = None
    ) -> npt.NDArray[Any]:
        """Read all numbers in a file, ``[lines, columns]``."""
        # In chunks, as pandas needs several times the memory of what it reads.
        with Numbers(self, part, whole=whole, columns=columns) as numbers:
            values = np.concatenate(list(numbers.pieces()))
        if lines not in (None, len(values)):
            raise DataError(f"{self.label(part)}: has {len(values)} lines, expected {lines}")
        return values

    def check(self, part: str, wrong: npt.NDArray[np.bool_], problem: str, before: int = 0) -> None:
        """Raise for the first line that is ``wrong``; ``before`` is the number of lines before."""
        if wrong.any():
            line = before + int(wrong.reshape(len(wrong), -1).any(axis=1).argmax()) + 1
            raise DataError(f"{self.label(part)}, line {line}: {problem}")


class Numbers:
    """Reader of comma-separated numbers (int64 if ``whole``, else float64); a context manager.

    Blank lines are skipped. By default all lines have as many columns as the first.
    """

    def __init__(self, parts: Parts, part: str, *, whole: bool, columns: int | None = None) -> None:
        self._parts, self._part, self._label = parts, part, parts.label(part)
        self._whole, self._columns = whole, columns
        self._taken = self._last = 0
        self._stack = ExitStack()
        self._frames: Any = None  # `None` for an empty file

    def __enter__(self) -> Self:
        # Imported late, as only text files need it.
        import pandas as pd

        file = self._stack.enter_context(opened(self._parts.path, self._parts.files[self._part]))
        try:
            self._frames = pd.read_csv(
                file,
                header=None,
                dtype=np.int64 if self._whole else np.float64,
                iterator=True,
                na_filter=False,
                quoting=csv.QUOTE_NONE,
                skipinitialspace=True,
                low_memory=False,
            )
        except pd.errors.EmptyDataError:
            pass
        except ValueError as error:
            self._fail(error)
        return self

    def __exit__(self, *_: object) -> None:
        if self._frames is not None:
            self._frames.close()
        self._stack.close()

    def pieces(self) -> Iterator[npt.NDArray[Any]]:
        """Yield all lines in chunks; raise if there are none."""
        while (values := self._read(1 << 18)) is not None:
            yield values
        if not self._taken:
            raise DataError(f"{self._label}: is empty")

    def _read(self, lines: int) -> npt.NDArray[Any] | None:
        """Read the next n lines, or fewer at the end, ``[lines, columns]``; ``None`` after it."""
        if self._frames is None:
            return None
        try:
            values: npt.NDArray[Any] = self._frames.read(lines).to_numpy()
        except StopIteration:
            return None
        except (ValueError, OverflowError) as error:
            self._fail(error)
        if self._columns not in (None, values.shape[1]):
            raise DataError(
                f"{self._label}, line 1: expected {self._columns} values, got {values.shape[1]}"
            )
        self._taken, self._last = self._taken + len(values), len(values)
        return values

    def take(self, lines: int) -> npt.NDArray[Any]:
        """Read exactly the next n lines."""
        needed = self._taken + lines
        values = self._read(lines) if lines else None
        if self._taken < needed:
            raise DataError(f"{self._label}: has {self._taken} lines, expected at least {needed}")
        kind = np.int64 if self._whole else np.float64
        return np.empty((0, self._columns or 0), kind) if values is None else values

    def check(self, wrong: npt.NDArray[np.bool_], problem: str) -> None:
        """Raise for the first of the lines just read that is ``wrong``, if any."""
        self._parts.check(self._part, wrong, problem, self._taken - self._last)

    def finish(self) -> None:
        """Raise if there are further lines."""
        lines = self._taken
        if self._read(1) is not None:
            raise DataError(f"{self._label}: has more than the expected {lines} lines")

    def _fail(self, error: Exception) -> NoReturn:
        """Raise an error that names the first malformed line."""
        if isinstance(error, DataError):
            raise error
        kind = "comma-separated " + ("integer" if self._whole else "number")
        with opened(self._parts.path, self._parts.files[self._part]) as file:
            for number, line in enumerate(file, 1):
                text = line.decode("utf-8-sig", "replace").strip()
                self._columns = self._columns or (text.count(",") + 1 if text else None)
                if text and not self._fits(text.split(",")):
                    expected = count(self._columns or 1, kind)
                    raise DataError(
                        f"{self._label}, line {number}: expected {expected}, got {text[:_SHOWN]!r}"
                    )
        raise DataError(f"{self._label}: cannot be read as numbers ({str(error).strip()})")

    def _fits(self, cells: list[str]) -> bool:
        try:
            values = [float(cell) for cell in cells]
        except ValueError:
            return False
        if self._whole and not all(value.is_integer() and abs(value) < 2**63 for value in values):
            return False
        return len(values) == self._columns and not any(map(math.isnan, values))
