"""Molecules as graphs: atoms are nodes, bonds are edges in both directions.

A molecule comes as a SMILES or as a mol block (a record of an SDF). RDKit reads it; hydrogen atoms
that are written out are taken into the atoms they hang on. Two kinds of features are offered:

* ``"ogb"``: the categories of the Open Graph Benchmark as one-hot columns, 174 for an atom (atomic
  number, chirality, degree, charge, hydrogens, radical electrons, hybridisation, aromatic, in a
  ring) and 13 for a bond (type, stereo, conjugated). They need no data to be learned from.
* ``"elements"``: one column for each element of the training data and five for the type of a bond.

What was used stands in ``featurizer`` of the store, so that a model reads further molecules in
the same way. RDKit is imported when the first molecule is read; it is the extra ``chem``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graph_transplant.datasets.rows import Chunk, check_readable, is_missing, quoted
from graph_transplant.errors import DataError, check_choice
from graph_transplant.graphs import Featurizer, GraphStore, Rows, Skipped

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

FEATURES: Final = ("ogb", "elements")

# How many categories OGB 1.3.6 has for each feature of an atom and of a bond. They stand here and
# are not asked of its package, so that features are the same with every version of it.
ATOM_CATEGORIES: Final = (119, 5, 12, 12, 10, 6, 6, 2, 2)
BOND_CATEGORIES: Final = (5, 6, 2)

_CHIRALITIES: Final = ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER")
_HYBRIDISATIONS: Final = ("SP", "SP2", "SP3", "SP3D", "SP3D2")
_BOND_TYPES: Final = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
_STEREO: Final = ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY")
_ORDERS: Final = (1.0, 2.0, 3.0, 1.5, 1.0)

# Symbols by atomic number; 0 is an atom left open.
_ALL_SYMBOLS: Final = (
    "* H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se "
    "Br Kr Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy "
    "Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf "
    "Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og"
)
SYMBOLS: Final = tuple(_ALL_SYMBOLS.split())

# Time to read a molecule grows faster than its size, and more so with rings that share atoms. Large
# peptides are well below these limits.
_MOST_ATOMS: Final = 10_000
_MOST_RINGS: Final = 500
_LONGEST_SMILES: Final = 20_000
_LONGEST_BLOCK: Final = 4 << 20
# Shorter texts cannot come near the limits, and are not looked at twice.
_SHORT_SMILES: Final = 1_000
_SHORT_BLOCK: Final = 10_000


def chemistry() -> ModuleType:
    """Import RDKit.

    Returns:
        The module ``rdkit.Chem``.

    Raises:
        DataError: If RDKit is not installed.

    Example:
        >>> chemistry().MolFromSmiles("CCO").GetNumAtoms()
        3
    """
    try:
        from rdkit import Chem
    except ImportError:
        raise DataError("reading SMILES needs RDKit: pip install graph-transplant[chem]") from None
    module: ModuleType = Chem
    return module


# ------------------------------------------------------------------ one molecule


def is_block(text: str) -> bool:
    """Tell whether a text is a mol block, not a SMILES.

    Args:
        text: The text.

    Example:
        >>> is_block("CCO")
        False
    """
    return "\n" in text and "M  END" in text


def _parse(chem: ModuleType, text: str) -> Any:
    """Return the molecule of a text, or a reason why there is none, in words."""
    block = is_block(text)
    if not block and (reason := _unfit(text)) is not None:
        return reason
    if len(text) > (_LONGEST_BLOCK if block else _LONGEST_SMILES):
        return f"the structure is too large: a text of {len(text)} characters"
    try:
        if len(text) > (_SHORT_BLOCK if block else _SHORT_SMILES):
            raw = _read(chem, text, block, sanitize=False)
            if raw is not None and (reason := _too_large(raw)) is not None:
                return reason
        molecule = _read(chem, text, block, sanitize=True)
        if molecule is None:
            return _diagnose(chem, text, block)
    except (RuntimeError, ValueError, OverflowError) as error:
        # RDKit's own checks; their first line is meant for people.
        return f"RDKit cannot read the structure: {str(error).strip().splitlines()[0][:200]}"
    if not molecule.GetNumAtoms():
        return "the structure has no atoms"
    return molecule


def _read(chem: ModuleType, text: str, block: bool, *, sanitize: bool) -> Any:
    """Let RDKit read a text; ``None`` where it cannot."""
    if block:
        return chem.MolFromMolBlock(text, sanitize=sanitize)
    return chem.MolFromSmiles(text, sanitize=sanitize)


def _unfit(text: str) -> str | None:
    """Say why a text cannot be a SMILES; RDKit would silently read only its beginning."""
    if not text.isascii() or not text.isprintable():
        wrong = next(c for c in text if not c.isascii() or not c.isprintable())
        return f"the SMILES has the character {wrong!r}"
    if not text:
        return "there is no structure"
    head, space, extension = text.partition(" ")
    if space and not (head and extension.startswith("|")):
        return f"the SMILES has a space in it: {quoted(text)}"
    return None


def _too_large(molecule: Any) -> str | None:
    atoms = molecule.GetNumAtoms()
    rings = molecule.GetNumBonds() - atoms + 1
    if atoms > _MOST_ATOMS:
        return f"the structure is too large: {atoms} atoms, at most {_MOST_ATOMS} are read"
    if rings > _MOST_RINGS:
        return f"the structure is too large: {rings} rings, at most {_MOST_RINGS} are read"
    return None


def _diagnose(chem: ModuleType, text: str, block: bool) -> str:
    """Say in words why RDKit gave no molecule."""
    kind = "mol block" if block else "SMILES"
    raw = _read(chem, text, block, sanitize=False)
    if raw is not None:
        problems = chem.DetectChemistryProblems(raw)
        message = problems[0].Message().strip() if problems else "RDKit refuses it"
        return f"not a possible molecule: {message.splitlines()[0][:200]}"
    if not block and is_missing(text):
        return "there is no structure"
    detail = None if block else _syntax(text)
    return f"the {kind} cannot be parsed" + (f": {detail}" if detail else "")


def _syntax(text: str) -> str | None:
    """Find the usual slips in a SMILES that cannot be parsed."""
    depth, place = 0, 0
    rings: dict[str, bool] = {}
    while place < len(text):
        letter = text[place]
        if letter == "[":
            closed = text.find("]", place)
            if closed < 0:
                return f"unclosed bracket at character {place + 1}"
            place = closed
        elif letter in "()":
            depth += 1 if letter == "(" else -1
            if depth < 0:
                return f"unopened parenthesis at character {place + 1}"
        elif letter == "%" or letter.isdigit():
            label = letter
            if letter == "%":
                long = text[place + 1 : place + 2] == "("
                stop = text.find(")", place) if long else place + 2
                label = text[place + 1 : stop + 1].strip("()")
                place = stop if stop > place else len(text)
            rings[label] = not rings.get(label, False)
        elif letter not in "BCNOPSFIHbcnopsrl*.-=#$:~/\\<>?@+":
            return f"unexpected {letter!r} at character {place + 1}"
        place += 1
    if depth:
        return "unclosed parenthesis"
    unclosed = [label for label, is_open in rings.items() if is_open]
    return f"unclosed ring {unclosed[0]}" if unclosed else None


# ------------------------------------------------------------------ many molecules


class _Codes(dict[tuple[Any, ...], int]):
    """Numbers the different atoms or bonds, and keeps the categories of each.

    There are a hundred or so different atoms in thousands of molecules: what is done here is done
    once for each of them, and an atom costs one look into a dictionary.
    """

    def __init__(self, categories: Callable[..., tuple[int, ...]]) -> None:
        super().__init__()
        self._categories = categories
        self._rows: list[tuple[int, ...]] = []

    def __missing__(self, key: tuple[Any, ...]) -> int:
        self._rows.append(self._categories(*key))
        self[key] = len(self)
        return self[key]

    def table(self, width: int) -> Bytes:
        """Return the categories of the different atoms or bonds, uint8 ``[kinds, width]``."""
        return np.array(self._rows, dtype=np.uint8).reshape(-1, width)


def _among(name: Any, names: tuple[str, ...]) -> int:
    """Place of a value of an enumeration among names; behind the last for any other."""
    return names.index(str(name)) if str(name) in names else len(names)


def _atom_categories(
    number: int,
    degree: int,
    charge: int,
    hydrogens: int,
    radicals: int,
    hybridisation: Any,
    aromatic: bool,
    in_ring: bool,
    chirality: Any = _CHIRALITIES[0],
) -> tuple[int, ...]:
    """Return the nine categories of an atom in the order of OGB; the last of each is "other"."""
    return (
        number - 1 if 1 <= number <= 118 else 118,
        _among(chirality, _CHIRALITIES),
        min(degree, 11),
        charge + 5 if -5 <= charge <= 5 else 11,
        min(hydrogens, 9),
        min(radicals, 5),
        _among(hybridisation, _HYBRIDISATIONS),
        int(aromatic),
        int(in_ring),
    )


def _bond_categories(kind: Any, conjugated: bool, stereo: Any = _STEREO[0]) -> tuple[int, ...]:
    """Return the three categories of a bond; OGB knows no stereo of other kinds than these."""
    return _among(kind, _BOND_TYPES), min(_among(stereo, _STEREO), 5), int(conjugated)


@dataclass(frozen=True)
class MoleculeArrays:
    """Molecules as arrays of categories: small, quick to send to another process.

    Attributes:
        features: ``"ogb"`` or ``"elements"``.
        atom_kinds: Categories of the different atoms, uint8 ``[kinds, 9]``; for elements the atomic
            number, ``[kinds, 1]``.
        bond_kinds: Categories of the different bonds, uint8 ``[kinds, 3]``; for elements the type,
            ``[kinds, 1]``.
        atoms: Which of these every atom is, int32 ``[atoms]``.
        bonds: Likewise every bond, int32 ``[bonds]``.
        ends: The two atoms of every bond, int32 ``[bonds, 2]``, from 0 in each molecule.
        atom_counts: int64 ``[molecules]``.
        bond_counts: int64 ``[molecules]``.
        places: Which of the given texts each molecule is, int64 ``[molecules]``.
        problems: Why each of the other texts is none, by its place.

    Example:
        >>> arrays = molecule_arrays(["CO", "C1", "C"], "elements")
        >>> arrays.atom_kinds[arrays.atoms].ravel(), arrays.places
        (array([6, 8, 6], dtype=uint8), array([0, 2]))
        >>> arrays.problems
        {1: 'the SMILES cannot be parsed: unclosed ring 1'}
    """

    features: str
    atom_kinds: Bytes
    bond_kinds: Bytes
    atoms: npt.NDArray[np.int32]
    bonds: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int32]
    atom_counts: Ints
    bond_counts: Ints
    places: Ints
    problems: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.atom_counts)

    def keep(self, chosen: npt.NDArray[np.bool_]) -> MoleculeArrays:
        """Return some of the molecules.

        Args:
            chosen: Whether each is kept, bool ``[molecules]``.
        """
        atoms, bonds = np.repeat(chosen, self.atom_counts), np.repeat(chosen, self.bond_counts)
        return replace(
            self,
            atoms=self.atoms[atoms],
            bonds=self.bonds[bonds],
            ends=self.ends[bonds],
            atom_counts=self.atom_counts[chosen],
            bond_counts=self.bond_counts[chosen],
            places=self.places[chosen],
        )

    @staticmethod
    def join(parts: Sequence[MoleculeArrays], sizes: Sequence[int]) -> MoleculeArrays:
        """Put the molecules of several lists of texts together.

        Args:
            parts: One or more, with the same features.
            sizes: How many texts each was made of.
        """
        problems = {
            start + place: reason
            for start, part in zip(np.cumsum((0, *sizes[:-1])).tolist(), parts, strict=True)
            for place, reason in part.problems.items()
        }
        return MoleculeArrays(
            features=parts[0].features,
            atom_kinds=np.concatenate([part.atom_kinds for part in parts]),
            bond_kinds=np.concatenate([part.bond_kinds for part in parts]),
            atoms=_shifted([part.atoms for part in parts], [len(p.atom_kinds) for p in parts]),
            bonds=_shifted([part.bonds for part in parts], [len(p.bond_kinds) for p in parts]),
            ends=np.concatenate([part.ends for part in parts]),
            atom_counts=np.concatenate([part.atom_counts for part in parts]),
            bond_counts=np.concatenate([part.bond_counts for part in parts]),
            places=_shifted([part.places for part in parts], sizes),
            problems=problems,
        )


def _shifted(parts: Sequence[npt.NDArray[Any]], sizes: Sequence[int]) -> npt.NDArray[Any]:
    """Concatenate indices into tables of the given sizes that are concatenated as well."""
    first = np.cumsum((0, *sizes[:-1])).astype(parts[0].dtype)
    return np.concatenate([part + start for part, start in zip(parts, first, strict=True)])


def molecule_arrays(
    texts: Sequence[str], features: str = "ogb", known: Mapping[int, str] | None = None
) -> MoleculeArrays:
    """Read molecules.

    Args:
        texts: SMILES or mol blocks.
        features: ``"ogb"`` or ``"elements"``.
        known: Places of texts that are not to be read, with the reason.

    Returns:
        The molecules that could be read, and why the others could not.

    Raises:
        DataError: If RDKit is not installed.

    Example:
        >>> arrays = molecule_arrays(["C=O"])
        >>> arrays.ends, arrays.bond_kinds[arrays.bonds]
        (array([[0, 1]], dtype=int32), array([[1, 0, 0]], dtype=uint8))
    """
    check_choice("features", features, FEATURES)
    chem = chemistry()
    ogb = features == "ogb"
    # Bound once: looking up a method of an atom takes a good part of the time of calling it.
    atom, bond = chem.Atom, chem.Bond
    begin, end, stereo, chirality = (
        bond.GetBeginAtomIdx,
        bond.GetEndAtomIdx,
        bond.GetStereo,
        atom.GetChiralTag,
    )
    atom_getters: tuple[Callable[[Any], Any], ...] = (atom.GetAtomicNum,)
    bond_getters: tuple[Callable[[Any], Any], ...] = (bond.GetBondType,)
    if ogb:
        atom_getters += (
            atom.GetTotalDegree,
            atom.GetFormalCharge,
            atom.GetTotalNumHs,
            atom.GetNumRadicalElectrons,
            atom.GetHybridization,
            atom.GetIsAromatic,
            atom.IsInRing,
        )
        bond_getters += (bond.GetIsConjugated,)
    atom_codes = _Codes(_atom_categories if ogb else lambda number: (number,))
    bond_codes = _Codes(_bond_categories if ogb else lambda kind: (_among(kind, _BOND_TYPES),))
    atoms: list[int] = []
    bonds: list[int] = []
    begins: list[int] = []
    ends: list[int] = []
    atom_counts, bond_counts, places = [], [], []
    problems = dict(known or {})
    with _quiet():
        for place, given in enumerate(texts):
            if place in problems:
                continue
            text = given if is_block(given) else given.strip()
            molecule = _parse(chem, text)
            if isinstance(molecule, str):
                problems[place] = molecule
                continue
            of_atoms = [*map(molecule.GetAtomWithIdx, range(molecule.GetNumAtoms()))]
            of_bonds = [*map(molecule.GetBondWithIdx, range(molecule.GetNumBonds()))]
            # Only these signs of a SMILES give an atom a handedness or a bond a direction; a mol
            # block, or what follows a SMILES in bars, may do so otherwise.
            unsure = "|" in text or "\n" in text
            chiral = ogb and (unsure or "@" in text)
            directed = ogb and (unsure or "/" in text or "\\" in text)
            getters = (*atom_getters, chirality) if chiral else atom_getters
            keys = zip(*(map(getter, of_atoms) for getter in getters), strict=True)
            atoms.extend(map(atom_codes.__getitem__, keys))
            getters = (*bond_getters, stereo) if directed else bond_getters
            keys = zip(*(map(getter, of_bonds) for getter in getters), strict=True)
            bonds.extend(map(bond_codes.__getitem__, keys))
            begins.extend(map(begin, of_bonds))
            ends.extend(map(end, of_bonds))
            atom_counts.append(len(of_atoms))
            bond_counts.append(len(of_bonds))
            places.append(place)
    return MoleculeArrays(
        features=features,
        atom_kinds=atom_codes.table(len(ATOM_CATEGORIES) if ogb else 1),
        bond_kinds=bond_codes.table(len(BOND_CATEGORIES) if ogb else 1),
        atoms=np.array(atoms, dtype=np.int32),
        bonds=np.array(bonds, dtype=np.int32),
        ends=np.array((begins, ends), dtype=np.int32).T,
        atom_counts=np.array(atom_counts, dtype=np.int64),
        bond_counts=np.array(bond_counts, dtype=np.int64),
        places=np.array(places, dtype=np.int64),
        problems=dict(sorted(problems.items())),
    )


def _quiet() -> Any:
    """Return a context in which RDKit writes nothing; what it would say becomes a reason."""
    from rdkit import rdBase

    return rdBase.BlockLogs()


def elements_of(arrays: MoleculeArrays) -> list[str]:
    """Return the elements that occur, in the order of their atomic numbers.

    Args:
        arrays: Molecules read with the features ``"elements"``.

    Example:
        >>> elements_of(molecule_arrays(["CO", "CN"], "elements"))
        ['C', 'N', 'O']
    """
    numbers = np.unique(arrays.atom_kinds[np.unique(arrays.atoms)])
    return [SYMBOLS[number] for number in numbers.tolist()]


def _one_hot(categories: Bytes, widths: Sequence[int]) -> Bytes:
    """Return categories as one-hot columns, uint8 ``[rows, sum(widths)]``."""
    columns = np.zeros((len(categories), sum(widths)), dtype=np.uint8)
    first = np.cumsum((0, *widths[:-1]), dtype=np.int64)
    columns[np.arange(len(categories))[:, None], categories + first] = 1
    return columns


def _known_elements(arrays: MoleculeArrays, elements: Sequence[str]) -> MoleculeArrays:
    """Put atoms as places among elements; molecules with others become problems."""
    place = np.full(len(SYMBOLS), -1, dtype=np.int64)
    place[[SYMBOLS.index(element) for element in elements]] = np.arange(len(elements))
    kinds = place[arrays.atom_kinds]
    unknown = (kinds[:, 0] < 0)[arrays.atoms]
    starts = np.cumsum(arrays.atom_counts) - arrays.atom_counts
    # Every molecule has an atom, so that no stretch is empty.
    wrong = np.logical_or.reduceat(unknown, starts) if len(arrays) else unknown
    problems = dict(arrays.problems)
    for molecule in np.flatnonzero(wrong).tolist():
        here = slice(starts[molecule], starts[molecule] + arrays.atom_counts[molecule])
        symbol = SYMBOLS[arrays.atom_kinds[arrays.atoms[here][unknown[here]][0], 0]]
        problems[int(arrays.places[molecule])] = (
            f"the element {symbol} does not occur in the data of the model"
        )
    known = np.maximum(kinds, 0).astype(np.uint8)
    return replace(arrays.keep(~wrong), atom_kinds=known, problems=problems)


def _check_molecules(featurizer: Featurizer) -> None:
    if featurizer.kind != "molecules":
        raise DataError(f"these are molecules, but the model reads {featurizer.kind}")


def chunk_of(
    arrays: MoleculeArrays,
    featurizer: Featurizer,
    *,
    ids: Sequence[str],
    texts: Sequence[str],
    first: int = 1,
    name: str = "molecules",
) -> Chunk:
    """Give molecules that were read their features.

    Args:
        arrays: The molecules of ``texts``.
        featurizer: How features are made, as in ``featurizer`` of a store.
        ids: Name of every text.
        texts: The texts.
        first: Row number of the first of them.
        name: Name of the data set.

    Returns:
        The chunk; targets of its store are zeros.

    Example:
        >>> texts = ["CO", "C("]
        >>> arrays = molecule_arrays(texts)
        >>> featurizer = Featurizer("molecules")
        >>> chunk_of(arrays, featurizer, ids=["a", "b"], texts=texts).problems
        {2: 'the SMILES cannot be parsed: unclosed parenthesis'}
    """
    _check_molecules(featurizer)
    if featurizer.features == "elements":
        arrays = _known_elements(arrays, featurizer.elements)
    problems = {first + place: reason for place, reason in sorted(arrays.problems.items())}
    store = _store(arrays, featurizer, ids, texts, first, name) if len(arrays) else None
    return Chunk(first, tuple(ids), tuple(texts), store, problems)


def _store(
    arrays: MoleculeArrays,
    featurizer: Featurizer,
    ids: Sequence[str],
    texts: Sequence[str],
    first: int,
    name: str,
) -> GraphStore:
    if featurizer.features == "ogb":
        node_widths: Sequence[int] = ATOM_CATEGORIES
        edge_widths: Sequence[int] = BOND_CATEGORIES
    else:
        node_widths, edge_widths = (len(featurizer.elements),), (len(_BOND_TYPES) + 1,)
    # Both directions of every bond, sorted by molecule, first atom, second atom.
    starts = np.cumsum(arrays.atom_counts) - arrays.atom_counts
    base = np.repeat(starts, arrays.bond_counts)
    both = np.concatenate((arrays.ends, arrays.ends[:, ::-1]))
    longest = int(arrays.atom_counts.max())
    keys = (np.tile(base, 2) + both[:, 0]) * longest + both[:, 1]
    order = np.argsort(keys, kind="stable")
    bonds = arrays.bonds[order % max(len(base), 1)]
    places = arrays.places.tolist()
    return GraphStore(
        x=torch.from_numpy(_one_hot(arrays.atom_kinds, node_widths)[arrays.atoms]),
        # Cloned: without bonds, numpy leaves strides of 0, which not all of torch can take.
        edge_index=torch.from_numpy(np.ascontiguousarray(both[order].T)).clone(),
        edge_attr=torch.from_numpy(_one_hot(arrays.bond_kinds, edge_widths)[bonds]),
        y=torch.zeros(len(arrays), dtype=torch.long),
        node_counts=torch.from_numpy(arrays.atom_counts),
        edge_counts=torch.from_numpy(2 * arrays.bond_counts),
        name=name,
        num_outputs=1,
        rows=Rows(
            torch.from_numpy(arrays.places + first),
            tuple(ids[place] for place in places),
            tuple(texts[place] for place in places),
        ),
        featurizer=featurizer,
    )


def featurize(
    texts: Sequence[str],
    featurizer: Featurizer,
    *,
    ids: Sequence[str] | None = None,
    first: int = 1,
    name: str = "molecules",
) -> Chunk:
    """Read molecules in the way that a store or a model was read.

    Args:
        texts: SMILES or mol blocks.
        featurizer: ``featurizer`` of the store or model.
        ids: Name of every text; its row number by default.
        first: Row number of the first text.
        name: Name of the data set.

    Returns:
        The chunk; targets of its store are zeros.

    Raises:
        DataError: If RDKit is not installed, or the store or model is not about molecules.

    Example:
        >>> featurizer = Featurizer("molecules", features="elements", elements=("C", "O"))
        >>> chunk = featurize(["CO", "CN"], featurizer)
        >>> chunk.store.x
        tensor([[1., 0.],
                [0., 1.]])
        >>> chunk.problems
        {2: 'the element N does not occur in the data of the model'}
    """
    _check_molecules(featurizer)
    names = [str(first + place) for place in range(len(texts))] if ids is None else ids
    arrays = molecule_arrays(texts, featurizer.features)
    return chunk_of(arrays, featurizer, ids=names, texts=texts, first=first, name=name)


def from_smiles(
    texts: Sequence[str],
    *,
    features: str = "ogb",
    ids: Sequence[str] | None = None,
    name: str = "molecules",
) -> GraphStore:
    """Make a store of a list of SMILES.

    Args:
        texts: SMILES, or mol blocks.
        features: ``"ogb"`` or ``"elements"``.
        ids: Name of every text; its row number, from 1, by default.
        name: Name of the data set.

    Returns:
        The molecules that could be read; the others are in ``skipped``. Targets are zeros:
        ``store.rows.number`` says which rows to take when
        :meth:`~graph_transplant.graphs.GraphStore.with_targets` sets them.

    Raises:
        DataError: If RDKit is not installed, or more than half of the texts cannot be read.

    Example:
        >>> from_smiles(["CCO", "c1ccccc1", "CC("], features="elements").skipped[0].row
        3
    """
    names = [str(place + 1) for place in range(len(texts))] if ids is None else list(ids)
    if len(names) != len(texts):
        raise DataError(f"`ids` must have {len(texts)} names, one per SMILES; got {len(names)}")
    objects: Sequence[object] = texts
    kinds = {type(text).__name__ for text in objects if not isinstance(text, str)}
    if kinds:
        raise DataError(f"`texts` must be SMILES; got {', '.join(sorted(kinds))} among them")
    arrays = molecule_arrays(texts, features)
    return store_of(arrays, Featurizer("molecules", features), names, texts, name)


def store_of(
    arrays: MoleculeArrays,
    featurizer: Featurizer,
    ids: Sequence[str],
    texts: Sequence[str],
    name: str,
) -> GraphStore:
    """Make the store of a data set to learn from; its elements are those that are known later.

    Args:
        arrays: The molecules of ``texts``.
        featurizer: How features are made; elements are added.
        ids: Name of every text.
        texts: The texts.
        name: Name of the data set.

    Raises:
        DataError: If more than half of the texts could not be read.
    """
    skipped = [Skipped(place + 1, ids[place], why) for place, why in arrays.problems.items()]
    check_readable(name, len(texts), skipped)
    if featurizer.features == "elements":
        featurizer = replace(featurizer, elements=tuple(elements_of(arrays)))
    store = chunk_of(arrays, featurizer, ids=ids, texts=texts, name=name).store
    assert store is not None
    store.skipped = tuple(skipped)
    return store


# ------------------------------------------------------------------ scaffolds


def _molecule(chem: ModuleType, text: str) -> Any:
    molecule = _parse(chem, text if is_block(text) else text.strip())
    if isinstance(molecule, str):
        raise DataError(f"{quoted(text)}: {molecule}")
    return molecule


def scaffold(smiles: str) -> str:
    """Return the Bemis-Murcko scaffold of a molecule: its rings and what links them.

    Args:
        smiles: A SMILES, or a mol block.

    Returns:
        Its canonical SMILES without chirality; empty for a molecule without rings.

    Raises:
        DataError: If the molecule cannot be read.

    Example:
        >>> scaffold("CCOc1ccccc1"), scaffold("CCO")
        ('c1ccccc1', '')
    """
    chem = chemistry()
    from rdkit.Chem.Scaffolds import MurckoScaffold

    murcko: Any = MurckoScaffold
    with _quiet():
        core = murcko.GetScaffoldForMol(_molecule(chem, smiles))
        found: str = chem.MolToSmiles(core, isomericSmiles=False)
    return found


# ------------------------------------------------------------------ back from features


def node_names(x: Tensor, featurizer: Featurizer) -> list[str]:
    """Return the element of every atom from its features.

    Args:
        x: Features, ``[nodes, features]``.
        featurizer: How they were made.

    Returns:
        Symbols, ``*`` where OGB has no category, ``?`` where the features name no element, as when
        they were masked.

    Example:
        >>> store = from_smiles(["CCO", "[Na+].*"])
        >>> node_names(store.x, store.featurizer)
        ['C', 'C', 'O', 'Na', '*']
    """
    _check_molecules(featurizer)
    if featurizer.features == "ogb":
        symbols = [*SYMBOLS[1:], SYMBOLS[0]]
    else:
        symbols = list(featurizer.elements)
    if x.dim() != 2 or x.shape[1] < len(symbols):
        raise DataError(
            f"`x` must have shape [nodes, features] with at least {len(symbols)} features; "
            f"got {list(x.shape)}"
        )
    return one_hot_names(x[:, : len(symbols)], symbols, "?")


def one_hot_names(x: Tensor, names: Sequence[str], masked: str) -> list[str]:
    """Name nodes by the one feature that is set.

    Args:
        x: One-hot features, ``[nodes, names]``.
        names: What each of the features means.
        masked: What nodes are called that have none of them.

    Example:
        >>> one_hot_names(torch.tensor([[0.0, 1.0], [0.0, 0.0]]), ["C", "O"], "?")
        ['O', '?']
    """
    value, place = x.max(1)
    return [
        names[index] if is_set else masked
        for index, is_set in zip(place.tolist(), (value > 0).tolist(), strict=True)
    ]


def bond_orders(edge_attr: Tensor | None, featurizer: Featurizer, edges: int = 0) -> list[float]:
    """Return the order of every bond from its features.

    Args:
        edge_attr: Features, ``[edges, features]``, or ``None``.
        featurizer: How they were made.
        edges: Number of edges where there are no features.

    Returns:
        1, 2, 3, or 1.5 for aromatic bonds; 1 for others and where it is not known.

    Example:
        >>> store = from_smiles(["C=O"])
        >>> bond_orders(store.edge_attr, store.featurizer)
        [2.0, 2.0]
    """
    _check_molecules(featurizer)
    if edge_attr is None:
        return [1.0] * edges
    if edge_attr.dim() != 2 or edge_attr.shape[1] < len(_ORDERS):
        raise DataError(
            f"`edge_attr` must have shape [edges, features] with at least {len(_ORDERS)} features; "
            f"got {list(edge_attr.shape)}"
        )
    value, place = edge_attr[:, : len(_ORDERS)].max(1)
    place = torch.where(value > 0, place, len(_ORDERS) - 1)
    return [_ORDERS[index] for index in place.tolist()]


def coordinates(
    names: Sequence[str], bonds: Sequence[Sequence[int]], orders: Sequence[float]
) -> Tensor:
    """Lay out a molecule on paper, also one that chemistry would not allow.

    Args:
        names: Symbols of the atoms; others are taken as atoms left open.
        bonds: Two atoms for each; both directions may be given.
        orders: Order of every bond.

    Returns:
        Places of the atoms, float32 ``[nodes, 2]``; a bond is about 1.5 long.

    Raises:
        DataError: If RDKit is not installed, or there are no atoms.

    Example:
        >>> xy = coordinates(["C", "O"], [(0, 1)], [2.0])
        >>> float((xy[0] - xy[1]).norm())
        1.5...
    """
    if not names:
        raise DataError("`names` must have at least one atom")
    chem = chemistry()
    from rdkit.Chem import rdDepictor

    types = {1.0: "SINGLE", 2.0: "DOUBLE", 3.0: "TRIPLE", 1.5: "AROMATIC"}
    molecule = chem.RWMol()
    for name in names:
        atom = chem.Atom(SYMBOLS.index(name) if name in SYMBOLS else 0)
        # Odd valences are no mistake here, and no hydrogens are to be added for them.
        atom.SetNoImplicit(True)
        molecule.AddAtom(atom)
    seen: set[tuple[int, int]] = set()
    for (begin, end), order in zip(bonds, orders, strict=True):
        pair = (min(begin, end), max(begin, end))
        if begin != end and pair not in seen:
            seen.add(pair)
            molecule.AddBond(*pair, getattr(chem.BondType, types.get(order, "SINGLE")))
    with _quiet():
        molecule.UpdatePropertyCache(strict=False)
        chem.FastFindRings(molecule)
        rdDepictor.Compute2DCoords(molecule)
    places = molecule.GetConformer().GetPositions()[:, :2]
    return torch.from_numpy(np.ascontiguousarray(places)).to(torch.float32)
