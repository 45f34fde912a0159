"""Atomic writes, file locks and file names."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import IO, Any

from graph_transplant.errors import DataError, GraphTransplantError

SKIPPED = "skipped.csv"
"""File that lists the rows of the data that could not be used."""

COMMANDS = "commands.txt"
"""File that lists the commands that produced the records beside it."""

ASKED = "asked.json"
"""File with the methods that were asked for last; the records beside it may hold more."""


@contextmanager
def writing(path: str | Path, note: str = "") -> Iterator[None]:
    """Name ``path`` in the error if it cannot be written; ``note`` is added."""
    try:
        yield
    except OSError as problem:
        # Not the full message: it may name a temporary file, which is already removed.
        reason = f"{problem.strerror or problem}{note}"
        raise GraphTransplantError(f"cannot write {path}: {reason}") from problem


def write_atomically(path: Path, text: str) -> None:
    """Replace a text file in one step; if anything fails, it is unchanged."""
    with writing(path, "; any existing file is unchanged"):
        replace_file(path, text.encode())


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file in one step: readers see the old or the new content, never a part."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces ``path`` on exit, unless an error is raised.

    If ``path`` is a link, its target is replaced. Pipes and devices are written to directly.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        with open(path, "wb") as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp creates files with mode 0600; set the usual permissions.
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def keep_inputs(read: Iterable[Any], written: Iterable[Path]) -> None:
    """Raise if an output file is also an input, even under another path."""
    sources = [os.path.expanduser(one) for one in read if isinstance(one, str | Path)]
    for path, source in product(written, sources):
        if path.is_file() and os.path.exists(source) and os.path.samefile(path, source):
            raise GraphTransplantError(
                f"`out` would overwrite {source}, which is an input; choose another path"
            )


def check_model(folder: Path, *names: str) -> None:
    """Raise unless a folder contains the files of a trained model."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}: a model is a folder with model.json")
    for name in names:
        if not (folder / name).is_file():
            raise DataError(f"{folder} is not a model: {name} is missing")


def _umask() -> int:
    # The umask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask


def try_lock(file: IO[bytes]) -> bool:
    """Lock a file exclusively until it is closed; ``False`` if it is already locked."""
    if sys.platform == "win32":
        import msvcrt

        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def folder_name(name: str) -> str:
    """Turn any text into a valid folder name."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "data"
