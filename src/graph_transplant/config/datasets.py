"""Data sets: known names, folders in which they are searched for, and how files are read.

Does not import torch, so that the command line rejects a wrong name or path at once.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from platformdirs import user_cache_path

from graph_transplant.config.options import check_options
from graph_transplant.errors import DataError
from graph_transplant.metrics import Task

DATA_VARIABLE: Final = "GRAPH_TRANSPLANT_DATA"
CACHE_VARIABLE: Final = "GRAPH_TRANSPLANT_CACHE"

SUFFIXES: Final = (
    *(".csv", ".tsv", ".tab", ".smi", ".sdf", ".sd", ".xlsx", ".parquet"),
    *(".jsonl", ".ndjson", ".safetensors", ".zip", ".gz"),
)
"""File suffixes, which data set names never have."""


@dataclass(frozen=True)
class DatasetInfo:
    """Description of a data set, available without loading it.

    Attributes:
        name: Name for :func:`~graph_transplant.load`.
        mean_edges: Mean number of undirected edges.
        domain: Kind of data, such as ``"Molecules"``.
        source: Where it comes from.
        location: Path on this machine; ``None`` if not downloaded, or if generated.
    """

    name: str
    graphs: int
    mean_nodes: float
    mean_edges: float
    classes: int
    domain: str
    source: str
    location: Path | None = None


@dataclass(frozen=True)
class InputConfig:
    """How data for a trained model are read; everything else comes from the model.

    Args:
        smiles: Column with the SMILES. [default: as in the training data]
        id: Column with the names of the rows. [default: as in the training data]
        root: Folder where data sets are looked for and kept.
    """

    smiles: str | None = None
    id: str | None = None
    root: Path | None = None

    def __post_init__(self) -> None:
        check_options(self)

    def given(self) -> dict[str, Any]:
        """Return the options that were set, for ``load`` or ``stream``."""
        return {name: value for name, value in vars(self).items() if value not in (None, False)}


@dataclass(frozen=True)
class LoadConfig(InputConfig):
    """How data are read.

    Args:
        smiles: Column with the SMILES. [default: detected by its name]
        id: Column with the names of the rows.
        root: Folder where data sets are looked for and kept.
        target: Columns of a table, or properties of an SDF file, to predict, separated by commas.
        task: What kind of targets. [default: inferred from the values]
        largest_fragment: Keep only the largest fragment of salts and mixtures; also applied when
            the model predicts.
    """

    target: str | None = None
    task: Task | None = None
    largest_fragment: bool = False


READING: Final = tuple(option.name for option in fields(LoadConfig))
"""Names of the options for reading data."""

_GENERATED: Final = "generated"
_TU: Final = "TUDataset"
_OGB: Final = "OGB"

# Sizes were measured on the published files, without self-loops and repeated edges. Those of
# NCI-H23, MOLT-4, P388 and ogbg-ppa are from the paper, which agrees with the measured sizes of the
# others except for the edges of NCI1 (28.5 in the paper).
CATALOGUE: Final = (
    DatasetInfo("motifs", 600, 23.92, 27.94, 6, "Synthetic", _GENERATED),
    DatasetInfo("typed-motifs", 800, 22.53, 24.51, 4, "Synthetic", _GENERATED),
    DatasetInfo("COLLAB", 5000, 74.49, 2457.22, 3, "Social networks", _TU),
    DatasetInfo("NCI1", 4110, 29.87, 32.30, 2, "Molecules", _TU),
    DatasetInfo("ENZYMES", 600, 32.63, 62.14, 6, "Bioinformatics", _TU),
    DatasetInfo("Mutagenicity", 4337, 30.32, 30.77, 2, "Molecules", _TU),
    DatasetInfo("COIL-DEL", 3900, 21.54, 54.24, 100, "Computer vision", _TU),
    DatasetInfo("NCI-H23", 40353, 26.1, 28.1, 2, "Molecules", _TU),
    DatasetInfo("MOLT-4", 39765, 26.1, 28.1, 2, "Molecules", _TU),
    DatasetInfo("P388", 41472, 22.1, 23.6, 2, "Molecules", _TU),
    DatasetInfo("ogbg-ppa", 158100, 243.4, 2266.1, 37, "Bioinformatics", _OGB),
    DatasetInfo("ogbg-molhiv", 41127, 25.51, 27.47, 2, "Molecules", _OGB),
    DatasetInfo("MUTAG", 188, 17.93, 19.79, 2, "Molecules", _TU),
    DatasetInfo("PROTEINS", 1113, 39.06, 72.82, 2, "Bioinformatics", _TU),
    DatasetInfo("IMDB-BINARY", 1000, 19.77, 96.53, 2, "Social networks", _TU),
    DatasetInfo("DD", 1178, 284.32, 715.66, 2, "Bioinformatics", _TU),
    DatasetInfo("REDDIT-BINARY", 2000, 429.63, 497.75, 2, "Social networks", _TU),
)

# Further classification data sets of the TU collection that can be downloaded by name.
_OTHER_TU: Final = (
    "AIDS BZR BZR_MD COIL-RAG COLORS-3 COX2 COX2_MD Cuneiform DHFR DHFR_MD ER_MD FIRSTMM_DB "
    "FRANKENSTEIN Fingerprint IMDB-MULTI KKI Letter-high Letter-low Letter-med MCF-7 MSRC_21 "
    "MSRC_21C MSRC_9 NCI109 OHSU OVCAR-8 PC-3 PROTEINS_full PTC_FM PTC_FR PTC_MM PTC_MR "
    "Peking_1 REDDIT-MULTI-12K REDDIT-MULTI-5K SF-295 SN12C SW-620 SYNTHETIC SYNTHETICnew "
    "Synthie TRIANGLES UACC257 Yeast deezer_ego_nets github_stargazers reddit_threads "
    "twitch_egos"
)
OTHER_TU: Final = tuple(_OTHER_TU.split())


def dataset_names() -> list[str]:
    """All names that :func:`~graph_transplant.load` knows, the catalogue first."""
    return [*(info.name for info in CATALOGUE), *OTHER_TU]


def cache_folder() -> Path:
    """Folder for parsed and downloaded data sets; safe to delete.

    Set by the environment variable ``GRAPH_TRANSPLANT_CACHE``; by default ``graph-transplant`` in
    the cache folder of the system: on Linux ``XDG_CACHE_HOME`` or ``~/.cache``.
    """
    variable = os.environ.get(CACHE_VARIABLE)
    return Path(variable).expanduser() if variable else user_cache_path("graph-transplant", False)


def search_folders(root: str | Path | None = None) -> list[Path]:
    """``root``, the folder set by ``GRAPH_TRANSPLANT_DATA``, and the download folder."""
    given = {"`root`": root, DATA_VARIABLE: os.environ.get(DATA_VARIABLE) or None}
    folders = [_folder(what, place) for what, place in given.items() if place is not None]
    return [*folders, cache_folder() / "downloads"]


def _folder(what: str, place: str | Path) -> Path:
    folder = Path(place).expanduser()
    if folder.is_file():
        raise DataError(f"{what} must be a folder, got the file {folder}")
    return folder


def search_message(stem: str, subfolders: Sequence[str], root: str | Path | None) -> str:
    """Sentence that lists where a data set was searched for."""
    folders = ", ".join(str(folder) for folder in search_folders(root))
    below = " and ".join(f"{place}/" for place in subfolders)
    return (
        f"Looked for {stem}/ and {stem}.zip, directly and in {below}, in: {folders} (`root`, and "
        f"the environment variable {DATA_VARIABLE}, name such folders)."
    )


def is_name(data: str | Path) -> bool:
    """Whether this can be the name of a data set and not only a path."""
    plain = isinstance(data, str) and data not in ("", ".", "..") and Path(data).name == data
    return plain and str(data).isprintable() and len(str(data)) < 200


def existing(name: str) -> Path | None:
    """``name`` as a path if it exists, else ``None``."""
    try:
        path = Path(name).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ENAMETOOLONG:  # perhaps a molecule
            return None
        # The folder is not readable, or the home of `~user` is unknown.
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"`data`: cannot access {name[:200]!r} ({reason})") from error


def not_found(data: str | Path, root: str | Path | None) -> DataError:
    """Error for data that is neither a path nor a known name, with similar names first."""
    name = str(data)
    if not is_name(data) or name.lower().endswith(SUFFIXES):
        shown = name if len(name) < 1000 else f"{name[:200]}…"
        return DataError(f"`data`: there is no file or folder {shown!r}")
    known = {one.casefold(): one for one in dataset_names()}
    close = [known[match] for match in get_close_matches(name.casefold(), list(known), n=3)]
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    rest = [info.name for info in CATALOGUE if info.name not in close]
    return DataError(
        f"unknown data set {name!r}{hint}; known are {', '.join(close + rest)} and other names of "
        "the TU collection, or give the path of a file, folder or zip archive (for one SMILES, "
        f"pass a list). {search_message(name, ('tu',), root)}"
    )


def check_data(data: str, root: str | Path | None = None) -> None:
    """Raise if this is neither a path nor the name of a data set; file contents are not read."""
    if data in dataset_names() or existing(data) is not None:
        return
    places = [place for folder in search_folders(root) for place in (folder, folder / "tu")]
    there = (place / name for place in places for name in (data, f"{data}.zip"))
    if not is_name(data) or not any(path.exists() for path in there):
        raise not_found(data, root)
