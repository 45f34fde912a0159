"""Local search, download and cache of data sets."""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from graph_transplant.datasets.source import Parts
from graph_transplant.errors import DataError
from graph_transplant.graphs import GraphStore
from graph_transplant.known import cache_folder, looked_for, search_folders

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
            f"{folder} ({error}). {looked_for(stem, subfolders, root)} To install it manually, "
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
