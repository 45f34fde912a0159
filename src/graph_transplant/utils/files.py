"""Atomic writes and file names."""

from __future__ import annotations

import glob
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from filelock import lock_descriptor

from graph_transplant.errors import DataError, GraphTransplantError

if TYPE_CHECKING:
    import pandas as pd

_WINDOWS = sys.platform == "win32"
_PART = ".part"  # suffix of temporary files
_FORMULA = re.compile(r"[=@\t\r]|[+-].*[(|!=]", re.DOTALL)

SKIPPED = "skipped.csv"
"""File that lists the rows of the data that could not be used."""

COMMANDS = "commands.txt"
"""File that lists the commands that produced the records beside it."""

COMPARISON_FILES = (
    *("records.jsonl", "records.torn", ".lock", "predictions", ".checkpoints", ".graphs"),
    *(SKIPPED, COMMANDS, "summary.csv", "report.html", "figures"),
)
"""Files and subfolders that a comparison writes in its directory."""

MODEL_FILES = ("model.json", "weights.safetensors", "card.html", SKIPPED, ".checkpoint.pt")
"""Files that training on the command line writes in the folder of a model."""


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

    If ``path`` is a link, its target is replaced; where folders come from elsewhere, call
    :func:`refuse_links` before. Pipes and devices are written to directly. What a killed process
    left of an earlier attempt is removed.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        with open(path, "wb") as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    _remove_leftovers(path)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_PART)
    try:
        with os.fdopen(descriptor, "wb") as file:
            with suppress(OSError):  # file systems without locks: leftovers then stay
                lock_descriptor(file.fileno(), blocking=False)
            yield file
            file.flush()
            os.fsync(file.fileno())
            # mkstemp creates files with mode 0600; set the usual permissions.
            os.chmod(temporary, 0o666 & ~_umask())
            if not _WINDOWS:  # while locked, so that nobody takes it for a leftover
                os.replace(temporary, path)
        if _WINDOWS:  # which cannot rename open files
            os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files of :func:`replacing` whose process has ended, however it ended."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.????????{_PART}"):
        with suppress(OSError):  # removed by another process, or not allowed
            if left.is_symlink() or not left.is_file():
                continue
            if _WINDOWS:  # which cannot remove open files
                left.unlink()
                continue
            with left.open("rb+") as file:
                if lock_descriptor(file.fileno(), blocking=False):
                    left.unlink()


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Raise if a file or subfolder to write in a folder is a link, or such a subfolder has one.

    A folder may come from elsewhere, and its links could lead to any file of the user.
    """
    for path in (folder / name for name in names):
        inside = path.is_dir() and not path.is_symlink()
        for each in (path, *(path.iterdir() if inside else ())):
            if each.is_symlink():
                raise GraphTransplantError(
                    f"{each} is a link to {os.readlink(each)}, and links are not written through: "
                    "replace it by what it links to, or remove it"
                )


def without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table to write as CSV in which no text is a formula to a spreadsheet.

    Names of rows and classes may come from elsewhere, and a spreadsheet runs ``=HYPERLINK(...)``.
    An apostrophe before such a text makes it plain, also to people who see it. Numbers such as -1.5
    are not texts here; texts such as ``-``, ``+/-`` and ``-logS`` stay as they are, since without a
    call or reference they cannot do anything. No SMILES begins with any of these characters.
    """
    changed = table.rename(columns=_plain_text)
    for name in changed.select_dtypes(exclude=["number", "bool"]):
        changed[name] = changed[name].map(_plain_text)
    return changed


def _plain_text(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


def refuse_overwrite(read: Iterable[Any], written: Iterable[Path]) -> None:
    """Raise if an output file is also an input, even under another path."""
    sources = [os.path.expanduser(one) for one in read if isinstance(one, str | Path)]
    for path, source in product(written, sources):
        if path.is_file() and os.path.exists(source) and os.path.samefile(path, source):
            raise GraphTransplantError(
                f"`out` would overwrite {source}, which is an input; choose another path"
            )


def write_skipped(skipped: Sequence[tuple[int, str, str]], path: Path) -> None:
    """Write the skipped rows to a table, or remove that of an earlier run if there are none."""
    import pandas as pd

    if not skipped:
        path.unlink(missing_ok=True)
        return
    table = pd.DataFrame(skipped, columns=["row", "id", "reason"])
    path.parent.mkdir(parents=True, exist_ok=True)
    text = without_formulas(table).to_csv(index=False, lineterminator="\n")
    write_atomically(path, text)


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


def folder_name(name: str) -> str:
    """Turn any text into a valid folder name."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "data"
