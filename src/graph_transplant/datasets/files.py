"""Files of data sets: where they are, downloads, archives, limits on their size."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import logging
import lzma
import math
import os
import shutil
import tempfile
import time
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, NoReturn, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from graph_transplant.config.datasets import cache_folder, search_folders, search_message
from graph_transplant.data import GraphStore
from graph_transplant.errors import DataError
from graph_transplant.utils.text import count, plain

# Graphs as text do not compress 100-fold, except for short columns of equal numbers: a file that
# exceeds both limits is a zip bomb.
_MAX_RATIO: Final = 100
_SMALL: Final = 1 << 26
# One-hot columns take hundreds of times the bytes of the labels.
_MAX_MEMORY_RATIO: Final = 400
_SMALL_MEMORY: Final = 1 << 29
# A row becomes several Python objects, and takes at least a byte even if compressed.
_FEW_ROWS: Final = 1 << 19
# Maximum number of values on a line of numbers: pandas needs a kilobyte for every column.
_MOST_NUMBERS: Final = 10_000
# Number of values that are read at once.
_AT_ONCE: Final = 1 << 20
# Maximum line length.
_MAX_LINE: Final = 1 << 24
# Read in small blocks, as `zipfile` decompresses all LZMA data of a read at once.
_SIP: Final = 1 << 16

Row = TypeVar("Row")

_GZIP: Final = b"\x1f\x8b"
_SHOWN: Final = 60


class _Limited(io.RawIOBase):
    """Reads a file in small blocks and enforces the limits, that of lines only for text."""

    def __init__(self, file: IO[bytes], packed: int, label: str, lines: bool) -> None:
        self._file, self._packed, self._label, self._lines = file, packed, label, lines
        self._unpacked = self._since_break = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with unpacking(self._label):
            data = self._file.read(min(len(buffer), _SIP))
        buffer[: len(data)] = data
        self._unpacked += len(data)
        check_size(self._label, self._unpacked, self._packed)
        last = max(data.rfind(b"\n"), data.rfind(b"\r"))
        self._since_break = len(data) - 1 - last + (self._since_break if last < 0 else 0)
        if self._lines and self._since_break > _MAX_LINE:
            raise DataError(f"{self._label}: a line is longer than {_MAX_LINE >> 20} MiB")
        return len(data)


def check_size(label: str, unpacked: int, packed: int) -> None:
    """Raise if data are far larger in memory than in their file."""
    if unpacked > max(_SMALL, _MAX_RATIO * packed):
        raise DataError(
            f"{label}: unpacks to {unpacked >> 20} MiB or more, from {packed >> 10} KiB; refusing "
            "to read a possible zip bomb"
        )


def check_memory(what: str, size: int, packed: int, remedy: str) -> None:
    """Raise if something read from ``packed`` bytes would take too many bytes of memory."""
    if size > max(_SMALL_MEMORY, _MAX_MEMORY_RATIO * packed):
        raise DataError(f"{what} would take {size / 2**30:.1f} GiB of memory; {remedy}")


def limited(rows: Iterable[Row], path: Path) -> Iterator[Row]:
    """Yield the rows of a file; raise if there are more than it can hold."""
    size = path.stat().st_size
    most = max(_FEW_ROWS, size)
    for number, row in enumerate(rows):
        if number == most:
            raise DataError(
                f"{path}: has more than {most} rows in {size >> 10} KiB; refusing to read a "
                "possible zip bomb"
            )
        yield row


@contextmanager
def unpacking(label: str) -> Iterator[None]:
    """Raise errors of files and archives as :class:`DataError`."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"there is no file {label}") from None
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, gzip.BadGzipFile) as error:
        raise DataError(f"{label}: cannot be unpacked ({error})") from None
    except OSError as error:
        raise DataError(f"{label}: cannot be read ({error.strerror or error})") from None


@contextmanager
def opened(path: Path, member: str | None = None, *, lines: bool = True) -> Iterator[IO[bytes]]:
    """Open a file, or ``member`` of a folder or zip archive; decompress gzip.

    File errors are raised as :class:`DataError`, also while reading.
    """
    label = str(path) if member is None else f"{path}: {plain(PurePosixPath(member).name)}"
    with ExitStack() as stack:
        with unpacking(label):
            if member is None or path.is_dir():
                place = path if member is None else path / member
                file: Any = stack.enter_context(place.open("rb"))
                size = os.fstat(file.fileno()).st_size
            else:
                file, size = _open_member(stack, label, path, member)
            if file.peek(2)[:2] == _GZIP:
                file = stack.enter_context(gzip.GzipFile(fileobj=file))
        source = _Limited(file, size, label, lines)
        yield stack.enter_context(io.BufferedReader(source, _SIP))


def _open_member(
    stack: ExitStack, label: str, path: Path, member: str
) -> tuple[zipfile.ZipExtFile, int]:
    archive = stack.enter_context(_archive(path))
    info = archive.getinfo(member)
    check_size(label, info.file_size, info.compress_size)
    try:
        file = cast("zipfile.ZipExtFile", stack.enter_context(archive.open(info)))
    except (NotImplementedError, RuntimeError, ValueError) as error:
        # Unknown compression method, encrypted, or inconsistent names.
        raise DataError(f"{label}: cannot be unpacked ({error})") from None
    return file, info.compress_size


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DataError(f"{path}: not a readable zip archive ({error})") from None


def files_in(path: Path, *patterns: str, suffix: str = ".zip") -> list[str]:
    """Files in a folder that match a pattern, or all members of a zip archive."""
    if path.is_dir():
        found = [file for pattern in patterns for file in path.glob(pattern) if file.is_file()]
        return sorted(file.relative_to(path).as_posix() for file in found)
    if not path.is_file() or path.suffix.lower() != suffix:
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
        return f"{self.path}: {plain(PurePosixPath(self.files[part]).name)}"

    def state(self) -> list[tuple[str, int, int]]:
        """Name, size and modification time of the files to read."""
        paths = [self.path]
        if self.path.is_dir():
            paths = [self.path / self.files[part] for part in sorted(self.files)]
        return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in paths]

    def size(self) -> int:
        """Number of bytes of the files to read."""
        return sum(size for _, size, _ in self.state())

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
        self._taken = self._last = self._width = 0
        self._stack = ExitStack()
        self._frames: Any = None  # `None` for an empty file

    def __enter__(self) -> Self:
        # Imported late, as only text files need it.
        import pandas as pd

        with ExitStack() as stack:
            self._width = self._checked_width()
            file = stack.enter_context(self._file())
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
                stack.callback(self._frames.close)
            except pd.errors.EmptyDataError:
                pass
            except ValueError as error:
                self._fail(error)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _file(self) -> AbstractContextManager[IO[bytes]]:
        return opened(self._parts.path, self._parts.files[self._part])

    def _checked_width(self) -> int:
        """Number of values on the first line; raise if there are too many."""
        with self._file() as file:
            first = next((line for line in file if line.strip()), b"")
        width = first.count(b",") + 1
        if width > _MOST_NUMBERS:
            raise DataError(
                f"{self._label}, line 1: {width} values, at most {_MOST_NUMBERS} are read"
            )
        return width

    def pieces(self) -> Iterator[npt.NDArray[Any]]:
        """Yield all lines in chunks; raise if there are none."""
        while (values := self._read(max(1, _AT_ONCE // self._width))) is not None:
            yield values
        if not self._taken:
            raise DataError(f"{self._label}: is empty")

    def _read(self, lines: int) -> npt.NDArray[Any] | None:
        """Read the next n lines, or fewer at the end, ``[lines, columns]``; ``None`` after it."""
        if self._frames is None:
            return None
        try:
            # pandas casts numbers such as 1e400, and then raises, as they have changed.
            with np.errstate(invalid="ignore"):
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
        with self._file() as file:
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


log = logging.getLogger(__name__)

_MAX_DOWNLOAD: Final = 16 << 30
_TIMEOUT_SECONDS: Final = 30.0
_ABANDONED_SECONDS: Final = 24 * 3600.0


def find(
    stem: str,
    subfolders: Sequence[str],
    root: str | Path | None,
    holds: Callable[[Path], bool],
) -> Path | None:
    """Search for ``stem.zip``, or a folder ``stem/`` that ``holds`` a data set."""
    for folder in search_folders(root):
        for place in ("", *subfolders):
            path = folder / place / stem
            if path.is_dir() and holds(path):
                return path
            archive = folder / place / f"{stem}.zip"
            if archive.is_file():
                return archive
    return None


def download(
    name: str, url: str, stem: str, subfolders: Sequence[str], root: str | Path | None
) -> Path:
    """Download ``stem.zip`` to ``root`` or the cache; a partial download is not kept."""
    folder = (cache_folder() / "downloads") if root is None else Path(root).expanduser()
    target = folder / f"{stem}.zip"
    log.info("downloading %s", url)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as beside:
            arrived = Path(beside) / target.name
            _fetch(url, arrived)
            arrived.replace(target)
    except OSError as error:
        raise DataError(
            f"data set {name!r} is not on this machine and could not be downloaded from {url} to "
            f"{folder} ({error}). {search_message(stem, subfolders, root)} To install it manually, "
            f"download this URL elsewhere and save it as {target.name} in one of these folders."
        ) from error
    return target


def _fetch(url: str, target: Path) -> None:
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer, target.open("wb") as file:
        while chunk := answer.read(1 << 20):
            file.write(chunk)
            if file.tell() > _MAX_DOWNLOAD:
                raise OSError(f"larger than {_MAX_DOWNLOAD >> 30} GiB, download aborted")
    if not zipfile.is_zipfile(target):
        raise OSError("the response is not a zip archive")


def load_cached(
    kind: str, version: int, parts: Parts, make: Callable[[Path], GraphStore]
) -> GraphStore:
    """Load a store from the cache; rebuild it if the files or the reader have changed."""
    folder = cache_folder() / kind
    prefix = f"{parts.name}-{_digest(parts.name, parts.path.resolve())}-"
    cached = folder / f"{prefix}{_digest(version, parts.state())}.safetensors"
    if cached.is_file():
        try:
            return GraphStore.load(cached)
        except DataError as error:
            log.warning("cached data set %s cannot be used and is rebuilt: %s", cached, error)
    # Left by conversions that were killed; younger ones may be under way.
    for part in folder.glob(f"{prefix}*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(part)
    store = make(cached)
    for old in folder.glob(f"{prefix}*.safetensors"):
        if old != cached:
            with suppress(OSError):  # a read-only cache
                old.unlink(missing_ok=True)
    return store


def _digest(*values: object) -> str:
    return hashlib.sha256("\0".join(map(str, values)).encode()).hexdigest()[:16]
