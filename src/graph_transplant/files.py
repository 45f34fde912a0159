"""Writing files so that nobody reads half of one, and no two write the same."""

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

from graph_transplant.errors import GraphTransplantError

SKIPPED = "skipped.csv"
"""File that lists the rows of the data which could not be used."""

COMMANDS = "commands.txt"
"""File beside the records that lists the commands which made them."""


def write_atomically(path: Path, text: str) -> None:
    """Replace a text file in one step.

    The text goes to a temporary file in the same directory, is synced to disk and then renamed over
    ``path``; when anything fails, ``path`` is as it was before.
    """
    try:
        replace_file(path, text.encode())
    except OSError as problem:
        # The system names the temporary file, which nobody asked for and which is gone.
        raise GraphTransplantError(
            f"cannot write {path}: {problem.strerror}; nothing that was there is lost"
        ) from problem


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file in one step: a reader sees the old content or the new, never a part."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file whose content takes the place of ``path`` at the end, unless anything fails.

    A link stays a link: the file that it points to is replaced. A pipe or device is written to.
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
        # mkstemp gives 0600; a report is meant to be read by whoever may read its directory.
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def keep_inputs(read: Iterable[Any], written: Iterable[Path]) -> None:
    """Raise if a file that is to be written is one of those that are read, by whatever name."""
    sources = [os.path.expanduser(one) for one in read if isinstance(one, str | Path)]
    for path, source in product(written, sources):
        if path.is_file() and os.path.exists(source) and os.path.samefile(path, source):
            raise GraphTransplantError(
                f"`out` would overwrite {source}, which is an input; choose another path"
            )


def _umask() -> int:
    # The umask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask


def try_lock(file: IO[bytes]) -> bool:
    """Lock a file for this process alone, until it is closed."""
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
    """Make the name of a folder from any text."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "data"
