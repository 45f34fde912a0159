"""RDKit: parse SMILES and mol blocks, explain failures, find scaffolds, compute descriptors."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from time import monotonic
from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graph_transplant.config.datasets import cache_folder
from graph_transplant.datasets.rows import is_missing, quoted
from graph_transplant.errors import DataError
from graph_transplant.utils.files import replace_file
from graph_transplant.utils.processes import set_up_worker

# Parsing time grows superlinearly with size, above all with fused rings. Large peptides are well
# below these limits.
_MOST_ATOMS: Final = 10_000
_MOST_RINGS: Final = 500
_LONGEST_SMILES: Final = 20_000
_LONGEST_BLOCK: Final = 4 << 20
# Shorter texts cannot reach the limits and are parsed only once.
_SHORT_SMILES: Final = 1_000
_SHORT_BLOCK: Final = 10_000
# Stereo marks, CXSMILES extensions (|...|), and explicit hydrogens.
_STEREO_OR_HYDROGEN: Final = re.compile(r"[@/\\|]|\[[0-9]*[H#]")

WRITE_SMILES: Final = "write molecules as SMILES, with Chem.MolToSmiles"
"""Advice for those who give RDKit molecules."""


def chemistry() -> ModuleType:
    """Import ``rdkit.Chem``."""
    try:
        from rdkit import Chem
    except ImportError:
        raise DataError(
            'reading SMILES needs RDKit: pip install "graph-transplant[chem]"'
        ) from None
    module: ModuleType = Chem
    return module


def quiet() -> Any:
    """Context in which RDKit logs nothing; :func:`parse` returns the reason for a failure."""
    from rdkit import rdBase

    return rdBase.BlockLogs()


def is_block(text: str) -> bool:
    """Whether a text is a mol block rather than a SMILES."""
    return "\n" in text and "M  END" in text


def looks_like_smiles(text: str) -> bool:
    """Whether a text is a SMILES of at least two atoms."""
    chem = chemistry()
    with quiet():
        molecule = parse(chem, text.strip())
    return not isinstance(molecule, str) and molecule.GetNumAtoms() > 1


def parse(chem: ModuleType, text: str) -> Any:
    """Parse a SMILES or mol block; return the molecule, or an error message."""
    block = is_block(text)
    if not block and (reason := _unfit(text)) is not None:
        return reason
    if len(text) > (_LONGEST_BLOCK if block else _LONGEST_SMILES):
        return f"the structure is too large: a text of {len(text)} characters"
    read = chem.MolFromMolBlock if block else chem.MolFromSmiles
    plain = not block and _STEREO_OR_HYDROGEN.search(text) is None
    try:
        molecule = None
        if plain or len(text) > (_SHORT_BLOCK if block else _SHORT_SMILES):
            molecule = read(text, sanitize=False)
            if molecule is not None and (reason := _too_large(chem, text, molecule)) is not None:
                return reason
        if not plain:
            molecule = read(text)
        # Sanitizing alone skips the search for stereo, the slowest of the remaining steps.
        elif molecule is not None and chem.SanitizeMol(molecule, catchErrors=True):
            molecule = None
        if molecule is None:
            return _diagnose(chem, text, read(text, sanitize=False))
    except (RuntimeError, ValueError, OverflowError) as error:
        # RDKit's own checks; only the first line is readable.
        return f"RDKit cannot read the structure: {str(error).strip().splitlines()[0][:200]}"
    return molecule if molecule.GetNumAtoms() else "the structure has no atoms"


def _unfit(text: str) -> str | None:
    """Why a text cannot be a SMILES, where RDKit would silently read only its beginning."""
    if not text.isascii() or not text.isprintable():
        wrong = next(c for c in text if not c.isascii() or not c.isprintable())
        return f"the SMILES contains the invalid character {wrong!r}"
    if not text:
        return "there is no structure"
    if text.startswith("<"):
        return f"this is a Python object; {WRITE_SMILES}"
    head, space, extension = text.partition(" ")
    if space and not (head and extension.startswith("|")):
        return f"the SMILES contains a space: {quoted(text)}"
    return None


def count_rings(chem: ModuleType, text: str, molecule: Any) -> int:
    """Number of independent rings of the molecule read from a text."""
    # A text without a dot is a single fragment; coordinates of mol blocks have dots.
    fragments = len(chem.GetMolFrags(molecule)) if "." in text else 1
    return int(molecule.GetNumBonds() - molecule.GetNumAtoms() + fragments)


def _too_large(chem: ModuleType, text: str, molecule: Any) -> str | None:
    atoms, rings = molecule.GetNumAtoms(), count_rings(chem, text, molecule)
    if atoms > _MOST_ATOMS:
        return f"the structure is too large: {atoms} atoms, at most {_MOST_ATOMS} are read"
    if rings > _MOST_RINGS:
        return f"the structure is too large: {rings} rings, at most {_MOST_RINGS} are read"
    return None


def _diagnose(chem: ModuleType, text: str, raw: Any) -> str:
    if raw is not None:
        problems = chem.DetectChemistryProblems(raw)
        message = problems[0].Message().strip() if problems else "RDKit rejects it"
        return f"invalid molecule: {message.splitlines()[0][:200]}"
    if is_block(text):
        return "the mol block cannot be parsed"
    if is_missing(text):
        return "there is no structure"
    # Common errors, which RDKit reports only in its log.
    bare = re.sub(r"\[[^]]*\]", "", text)
    labels = re.findall(r"%\d\d|\d", bare)
    unclosed = [label for label in labels if labels.count(label) % 2]
    detail = ""
    if "[" in bare:
        detail = ": unclosed bracket"
    elif bare.count("(") != bare.count(")"):
        detail = f": {'unclosed' if bare.count('(') > bare.count(')') else 'unopened'} parenthesis"
    elif unclosed:
        detail = f": unclosed ring {unclosed[0].strip('%')}"
    return f"the SMILES cannot be parsed{detail}"


def largest_fragment(chem: ModuleType, molecule: Any) -> str:
    """Return the SMILES of the fragment with the most heavy atoms, then the largest mass."""

    def size(part: Any) -> tuple[int, float]:
        return part.GetNumHeavyAtoms(), sum(atom.GetMass() for atom in part.GetAtoms())

    found: str = chem.MolToSmiles(max(chem.GetMolFrags(molecule, asMols=True), key=size))
    return found


def standard(chem: ModuleType, text: str) -> Any:
    """Parse a text that is known to be valid as RDKit does by default, stereo included."""
    return chem.MolFromMolBlock(text) if is_block(text) else chem.MolFromSmiles(text.strip())


def molecule_of(chem: ModuleType, text: str) -> Any:
    """Parse a SMILES or mol block; raise if it is invalid."""
    molecule = parse(chem, text if is_block(text) else text.strip())
    if isinstance(molecule, str):
        raise DataError(f"{quoted(text)}: {molecule}")
    return molecule


def scaffold(smiles: str) -> str:
    """Bemis-Murcko scaffold as canonical SMILES without stereo; empty if there are no rings."""
    chem = chemistry()
    from rdkit.Chem.Scaffolds import MurckoScaffold

    murcko: Any = MurckoScaffold
    with quiet():
        core = murcko.GetScaffoldForMol(molecule_of(chem, smiles))
        found: str = chem.MolToSmiles(core, isomericSmiles=False)
    return found


# -------------------------------------------------------------------- descriptors

_UNSTABLE: Final = ("Ipc", "AvgIpc")  # they change with the order of the atoms
_AT_ONCE: Final = 256
_LEAST_KEPT: Final = 500  # fewer molecules take at most a few seconds
_TELL_SECONDS: Final = 30.0

Values = npt.NDArray[np.float32]


def descriptor_names() -> tuple[str, ...]:
    """Names of RDKit's descriptors, without those that are not the same for every atom order."""
    chemistry()
    from rdkit.Chem import Descriptors

    return tuple(name for name, _ in Descriptors.descList if name not in _UNSTABLE)


def descriptors(
    texts: Sequence[str], workers: int = 1, tell: Callable[[str], None] = lambda text: None
) -> Values:
    """Compute RDKit's descriptors of valid molecules, ``[molecules, names]``; NaN where undefined.

    They take about 7 ms a molecule, so those of a data set are kept in the cache folder, under a
    name that depends on all molecules, RDKit's version and the names. ``tell`` receives progress.
    """
    names, count = descriptor_names(), len(texts)
    if count < _LEAST_KEPT:
        return np.concatenate([*_computed(texts, 1), np.empty((0, len(names)), np.float32)])
    import rdkit

    key = json.dumps([rdkit.__version__, names, list(texts)]).encode()
    path = cache_folder() / "descriptors" / f"{hashlib.sha256(key).hexdigest()}.f32"
    with suppress(OSError, ValueError):
        return np.fromfile(path, "<f4").astype(np.float32).reshape(count, len(names))
    found, last = [], monotonic()
    tell(f"computing {len(names)} RDKit descriptors of {count:,} molecules, once")
    for part in _computed(texts, workers):
        found.append(part)
        if monotonic() - last > _TELL_SECONDS:
            last = monotonic()
            tell(f"descriptors of {sum(map(len, found)):,} of {count:,} molecules are computed")
    values = np.concatenate(found)
    with suppress(OSError):  # no writable cache: computed again next time
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, values.astype("<f4").tobytes())
    return values


def _computed(texts: Sequence[str], workers: int) -> Iterator[Values]:
    parts = [texts[start : start + _AT_ONCE] for start in range(0, len(texts), _AT_ONCE)]
    if workers == 1 or len(parts) == 1:
        yield from map(compute_descriptors, parts)
        return
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(
        backend="loky", inner_max_num_threads=1, initializer=set_up_worker, initargs=(os.getpid(),)
    ):
        run = Parallel(n_jobs=min(workers, len(parts)), return_as="generator")
        yield from run(delayed(compute_descriptors)(part) for part in parts)


def compute_descriptors(texts: Sequence[str]) -> Values:
    """Compute the descriptors of valid molecules, within the range of float32."""
    chem = chemistry()
    from rdkit.Chem import Descriptors

    functions = [function for name, function in Descriptors.descList if name not in _UNSTABLE]
    found = np.full((len(texts), len(functions)), np.nan)
    with quiet():
        for row, text in enumerate(texts):
            molecule = standard(chem, text)
            for column, function in enumerate(functions):
                with suppress(Exception):  # of any kind, where one is not defined
                    found[row, column] = function(molecule)
    limit = np.finfo(np.float32).max
    return found.clip(-limit, limit).astype(np.float32)
