"""Molecules as graphs: atoms are nodes, bonds are edges in both directions.

Molecules are SMILES or mol blocks (records of an SDF), parsed by RDKit. Explicit hydrogens are
merged into their heavy atoms. Features are the categories of the Open Graph Benchmark as one-hot
columns, 174 per atom (atomic number, chirality, degree, charge, hydrogens, radical electrons,
hybridisation, aromatic, in a ring) and 13 per bond (type, stereo, conjugated). They do not depend
on the data.

RDKit (the extra ``chem``) is imported when the first molecule is read.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graph_transplant.data import Featurizer, GraphBatch, GraphStore, InputRows
from graph_transplant.data.store import SortedEdges
from graph_transplant.datasets.chemistry import (
    chemistry,
    count_rings,
    is_block,
    largest_fragment,
    parse,
    quiet,
)
from graph_transplant.datasets.rows import Chunk, check_readable
from graph_transplant.errors import DataError, Skipped

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# Number of categories of each atom and bond feature in OGB 1.3.6. Copied, not imported, so that
# features do not change with the installed version.
ATOM_CATEGORIES: Final = (119, 5, 12, 12, 10, 6, 6, 2, 2)
BOND_CATEGORIES: Final = (5, 6, 2)
# Columns of chirality and of bond stereo, which depend on the order in which neighbours are
# written. The first column of each marks atoms and bonds without.
CHIRALITY: Final = slice(ATOM_CATEGORIES[0], sum(ATOM_CATEGORIES[:2]))
BOND_STEREO: Final = slice(BOND_CATEGORIES[0], sum(BOND_CATEGORIES[:2]))

# See `_work`: 1e9 to 4e9 of it take a second, and 3 million atoms have features of 600 MB.
_MOST_WORK: Final = 30_000_000_000
_WORK_PER_BYTE: Final = 40_000
_RING_CLOSURE: Final = re.compile(r"%[0-9]{2}|[0-9]")

_CHIRALITIES: Final = ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER")
_HYBRIDISATIONS: Final = ("SP", "SP2", "SP3", "SP3D", "SP3D2")
_BOND_TYPES: Final = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
_STEREO: Final = ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY")
_ORDERS: Final = (1.0, 2.0, 3.0, 1.5, 1.0)
# Suffixes for the categories of charge and hydrogens, as in SMILES.
_CHARGES: Final = (*("-5", "-4", "-3", "-2", "-", "", "+", "+2", "+3", "+4", "+5"), "")
_HYDROGENS: Final = ("", "H", *(f"H{number}" for number in range(2, 10)))

# Symbols by atomic number; 0 is a wildcard atom.
_ALL_SYMBOLS: Final = (
    "* H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se "
    "Br Kr Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy "
    "Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf "
    "Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og"
)
SYMBOLS: Final = tuple(_ALL_SYMBOLS.split())


# ------------------------------------------------------------------ many molecules


class _Codes(dict[tuple[Any, ...], int]):
    """Numbers distinct atoms or bonds, which are few; categories are computed once for each."""

    def __init__(self, categories: Callable[..., tuple[int, ...]]) -> None:
        super().__init__()
        self._categories = categories
        self._rows: list[tuple[int, ...]] = []

    def __missing__(self, key: tuple[Any, ...]) -> int:
        self._rows.append(self._categories(*key))
        self[key] = len(self)
        return self[key]

    def table(self, width: int) -> Bytes:
        """Return the categories of the distinct atoms or bonds, uint8 ``[kinds, width]``."""
        return np.array(self._rows, dtype=np.uint8).reshape(-1, width)


def _among(name: Any, names: tuple[str, ...]) -> int:
    """Index of an enum value in ``names``, or ``len(names)`` if it is not among them."""
    return names.index(str(name)) if str(name) in names else len(names)


def _atom_categories(
    number: int,
    degree: int,
    charge: int,
    hydrogens: int,
    hybridisation: Any,
    aromatic: bool,
    in_ring: bool,
    radicals: int = 0,
    chirality: Any = _CHIRALITIES[0],
) -> tuple[int, ...]:
    """Return the nine categories of an atom in OGB's order."""
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


def _bond_type(kind: Any) -> int:
    """Category of a bond type, given as RDKit's enum or as a bond order."""
    if isinstance(kind, float):
        return _ORDERS.index(kind) if kind in _ORDERS else len(_BOND_TYPES)
    return _among(kind, _BOND_TYPES)


def _bond_categories(kind: Any, conjugated: bool, stereo: Any = _STEREO[0]) -> tuple[int, ...]:
    """Return the three categories of a bond; unknown stereo counts as ``STEREOANY``."""
    return _bond_type(kind), min(_among(stereo, _STEREO), 5), int(conjugated)


@dataclass(frozen=True)
class MoleculeArrays:
    """Molecules as arrays of categories: compact and cheap to send between processes."""

    # Categories of the distinct atoms and bonds, [kinds, 9] and [kinds, 3].
    atom_kinds: Bytes
    bond_kinds: Bytes
    # Kind of every atom and bond, and the two atoms of a bond, from 0 in each molecule.
    atoms: npt.NDArray[np.int32]
    bonds: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int32]
    atom_counts: Ints  # [molecules]
    bond_counts: Ints
    places: Ints  # index of the text of each molecule
    problems: Mapping[int, str]  # why the other texts cannot be used, by index
    # Texts of molecules with several fragments, or of the largest if only that is kept, by index.
    fragments: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.atom_counts)

    def keep(self, chosen: npt.NDArray[np.bool_]) -> MoleculeArrays:
        """Return the molecules for which ``chosen`` is true."""
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


def molecule_arrays(
    texts: Sequence[str],
    known: Mapping[int, str] | None = None,
    largest_only: bool = False,
    size: int | None = None,
) -> MoleculeArrays:
    """Read molecules from SMILES or mol blocks; skip the texts with a problem in ``known``.

    ``size`` is that of their file in bytes, which limits their atoms and rings.
    """
    most_work = math.inf if size is None else max(_MOST_WORK, _WORK_PER_BYTE * size)
    work = 0
    chem = chemistry()
    # Looked up once: method lookup takes a good part of the time of a call.
    atom, bond = chem.Atom, chem.Bond
    begin, end, as_number = bond.GetBeginAtomIdx, bond.GetEndAtomIdx, bond.GetBondTypeAsDouble
    # In a SMILES, only bracket atoms have these; others can still get a charge (nitro groups).
    in_brackets = (atom.GetNumRadicalElectrons, atom.GetChiralTag)
    atom_getters: tuple[Callable[[Any], Any], ...] = (
        atom.GetAtomicNum,
        atom.GetTotalDegree,
        atom.GetFormalCharge,
        atom.GetTotalNumHs,
        atom.GetHybridization,
        atom.GetIsAromatic,
        atom.IsInRing,
    )
    atom_codes, bond_codes = _Codes(_atom_categories), _Codes(_bond_categories)
    # Arrays, not lists, as they hold the atoms of a whole data set.
    atoms, bonds, begins, ends = (array("i") for _ in range(4))
    atom_counts, bond_counts, places = (array("q") for _ in range(3))
    problems = dict(known or {})
    fragments: dict[int, str] = {}
    with quiet():
        for place, given in enumerate(texts):
            if place in problems:
                continue
            text = given if is_block(given) else given.strip()
            molecule = parse(chem, text)
            work += _work(chem, text, molecule)
            if work > most_work:
                raise DataError(
                    f"the molecules have far too many atoms or rings for a file of {size} bytes; "
                    "refusing to read a possible zip bomb"
                )
            # Mol blocks and CXSMILES extensions (|...|) can set stereo by other means.
            unsure = "|" in text or "\n" in text
            several = (unsure or "." in text) and not isinstance(molecule, str)
            if several and len(chem.GetMolFrags(molecule)) > 1:
                if largest_only:
                    # Parsed again, so that atoms are in the order of the text that is kept.
                    text = largest_fragment(chem, molecule)
                    molecule = parse(chem, text)
                fragments[place] = text
            if isinstance(molecule, str):
                problems[place] = molecule
                continue
            of_atoms = [*map(molecule.GetAtomWithIdx, range(molecule.GetNumAtoms()))]
            of_bonds = [*map(molecule.GetBondWithIdx, range(molecule.GetNumBonds()))]
            brackets = unsure or "[" in text
            directed = unsure or "/" in text or "\\" in text
            getters = atom_getters + in_brackets if brackets else atom_getters
            keys = zip(*(map(getter, of_atoms) for getter in getters), strict=True)
            atoms.extend(map(atom_codes.__getitem__, keys))
            # Bond orders are faster to get than types, and suffice without brackets and arrows.
            kind = bond.GetBondType if brackets or ">" in text else as_number
            getters = (kind, bond.GetIsConjugated, *((bond.GetStereo,) if directed else ()))
            keys = zip(*(map(getter, of_bonds) for getter in getters), strict=True)
            bonds.extend(map(bond_codes.__getitem__, keys))
            begins.extend(map(begin, of_bonds))
            ends.extend(map(end, of_bonds))
            atom_counts.append(len(of_atoms))
            bond_counts.append(len(of_bonds))
            places.append(place)
    return MoleculeArrays(
        atom_kinds=atom_codes.table(len(ATOM_CATEGORIES)),
        bond_kinds=bond_codes.table(len(BOND_CATEGORIES)),
        atoms=np.array(atoms, dtype=np.int32),
        bonds=np.array(bonds, dtype=np.int32),
        ends=np.array((begins, ends), dtype=np.int32).T,
        atom_counts=np.array(atom_counts, dtype=np.int64),
        bond_counts=np.array(bond_counts, dtype=np.int64),
        places=np.array(places, dtype=np.int64),
        problems=dict(sorted(problems.items())),
        fragments=fragments,
    )


def _work(chem: ModuleType, text: str, molecule: Any) -> int:
    """Effort to read a molecule, or roughly that of a text that is none."""
    if not isinstance(molecule, str):
        atoms, rings = molecule.GetNumAtoms(), count_rings(chem, text, molecule)
    elif is_block(text):  # a line for each atom and bond
        lines = text.count("\n")
        atoms, rings = lines // 2, lines // 100
    else:
        atoms, rings = len(text), len(_RING_CLOSURE.findall(text)) // 2
    # Features, looking up atoms and bonds by index, which walks through all, and finding rings.
    return int(atoms * (10_000 + atoms * (4 + rings)))


# ------------------------------------------------------------------ features


def one_hot(categories: npt.NDArray[Any], widths: Sequence[int]) -> Bytes:
    """Return categories as one-hot columns, uint8 ``[rows, sum(widths)]``."""
    columns = np.zeros((len(categories), sum(widths)), dtype=np.uint8)
    first = np.cumsum((0, *widths[:-1]), dtype=np.int64)
    columns[np.arange(len(categories))[:, None], categories + first] = 1
    return columns


def chunk_of(
    arrays: MoleculeArrays,
    featurizer: Featurizer,
    *,
    ids: Sequence[str],
    texts: Sequence[str],
    first: int = 1,
    name: str = "molecules",
) -> Chunk:
    """Make a chunk with the features of the molecules read from ``texts``; targets are zeros."""
    problems = {first + place: reason for place, reason in sorted(arrays.problems.items())}
    texts = [arrays.fragments.get(place, text) for place, text in enumerate(texts)]
    if not len(arrays):
        return Chunk(first, tuple(ids), tuple(texts), None, problems)
    # Both directions of every bond, sorted by molecule, first atom, second atom.
    starts = np.cumsum(arrays.atom_counts) - arrays.atom_counts
    base = np.repeat(starts, arrays.bond_counts)
    both = np.concatenate((arrays.ends, arrays.ends[:, ::-1]))
    longest = int(arrays.atom_counts.max())
    keys = (np.tile(base, 2) + both[:, 0]) * longest + both[:, 1]
    order = np.argsort(keys, kind="stable")
    # Cloned: without bonds, NumPy returns strides of 0, which some torch functions reject.
    ends = torch.from_numpy(np.ascontiguousarray(both[order].T)).clone()
    bonds = arrays.bonds[order % max(len(base), 1)]
    places = arrays.places.tolist()
    store = GraphStore(
        x=torch.from_numpy(one_hot(arrays.atom_kinds, ATOM_CATEGORIES)[arrays.atoms]),
        edge_index=SortedEdges(ends, True),
        edge_attr=torch.from_numpy(one_hot(arrays.bond_kinds, BOND_CATEGORIES)[bonds]),
        y=torch.zeros(len(arrays), dtype=torch.long),
        node_counts=torch.from_numpy(arrays.atom_counts),
        edge_counts=torch.from_numpy(2 * arrays.bond_counts),
        name=name,
        num_outputs=1,
        rows=InputRows(
            torch.from_numpy(arrays.places + first),
            tuple(ids[place] for place in places),
            tuple(texts[place] for place in places),
        ),
        featurizer=featurizer,
    )
    return Chunk(first, tuple(ids), tuple(texts), store, problems)


def from_smiles(texts: Sequence[str]) -> GraphStore:
    """Create a store without targets from SMILES or mol blocks.

    Targets are zeros; set them with :meth:`~graph_transplant.data.GraphStore.with_targets`, for
    the rows in ``store.rows.number``. Texts that cannot be read are listed in ``skipped``.

    Example:
        >>> from_smiles(["CCO", "c1ccccc1", "CC("]).skipped[0].row
        3
    """
    kinds = {type(text).__name__ for text in texts} - {"str", "str_"}
    if kinds:
        raise DataError(f"`texts` must be SMILES; got {', '.join(sorted(kinds))} among them")
    ids = [str(number) for number in range(1, len(texts) + 1)]
    arrays, how = molecule_arrays(texts), Featurizer("molecules")
    return store_of(arrays, how, ids, texts, "molecules", "molecules")


def store_of(
    arrays: MoleculeArrays,
    featurizer: Featurizer,
    ids: Sequence[str],
    texts: Sequence[str],
    name: str,
    where: str,
) -> GraphStore:
    """Make the store of training data."""
    skipped = [Skipped(place + 1, ids[place], why) for place, why in arrays.problems.items()]
    check_readable(where, len(texts), skipped)
    store = chunk_of(arrays, featurizer, ids=ids, texts=texts, name=name).store
    assert store is not None
    store.skipped = tuple(skipped)
    return store


# ------------------------------------------------------------------ back from features


def node_names(x: Tensor) -> list[str]:
    """Element of every atom; ``*`` if OGB has no category for it, ``?`` if none is set."""
    symbols = (*SYMBOLS[1:], SYMBOLS[0])
    return one_hot_names(x[:, : len(symbols)], symbols, "?")


def atom_names(x: Tensor) -> list[str]:
    """Elements with hydrogens and charge if known, such as ``NH``; neutral carbon is ``C``."""
    names = node_names(x)
    if x.shape[1] != sum(ATOM_CATEGORIES):
        return names
    _, _, _, charge, hydrogens, *_ = torch.split(x, list(ATOM_CATEGORIES), dim=1)
    charges = one_hot_names(charge, _CHARGES, "")
    counts = one_hot_names(hydrogens, _HYDROGENS, "")
    return [
        name if name in "*?" or (name == "C" and not charge) else name + count + charge
        for name, count, charge in zip(names, counts, charges, strict=True)
    ]


def one_hot_names(x: Tensor, names: Sequence[str], masked: str) -> list[str]:
    """Name nodes by their one-hot feature; ``masked`` if none is set."""
    value, place = x.max(1)
    return [
        names[index] if is_set else masked
        for index, is_set in zip(place.tolist(), (value > 0).tolist(), strict=True)
    ]


def bond_orders(edge_attr: Tensor) -> list[float]:
    """Order of every bond from its features: 1, 2, 3 or 1.5 (aromatic); 1 if unknown."""
    value, place = edge_attr[:, : len(_ORDERS)].max(1)
    place = torch.where(value > 0, place, len(_ORDERS) - 1)
    return [_ORDERS[index] for index in place.tolist()]


# Elements and bond orders of the columns, from the readmes; the files only hold numbers.
_TU_ELEMENTS: Final = {
    "MUTAG": ("C", "N", "O", "F", "I", "Cl", "Br"),
    "Mutagenicity": (
        *("C", "O", "Cl", "H", "N", "F", "Br"),
        *("S", "P", "I", "Na", "K", "Li", "Ca"),
    ),
}
_TU_ORDERS: Final = {"MUTAG": (1.5, 1.0, 2.0, 3.0), "Mutagenicity": (1.0, 2.0, 3.0)}


def atoms_of(batch: GraphBatch, store: GraphStore) -> tuple[list[str], list[float]] | None:
    """Elements of nodes and bond orders of edges (1 if unknown); ``None`` if not molecules."""
    names, molecule = node_names_of(batch, store, node_names)
    if not molecule:
        return None
    return names, bond_orders_of(batch, store) or [1.0] * batch.num_edges


def node_names_of(
    batch: GraphBatch, store: GraphStore, of_atoms: Callable[[Tensor], list[str]]
) -> tuple[list[str], bool]:
    """Node names, empty if the featurizer does not match, and whether they are atoms."""
    nameless = [""] * batch.num_nodes, False
    featurizer = store.featurizer
    if batch.x is None:
        return nameless
    x = batch.x.cpu()
    if featurizer is not None and featurizer.kind == "molecules":
        return (of_atoms(x), True) if x.shape[1] >= len(SYMBOLS) else nameless
    elements = _TU_ELEMENTS.get(store.name) if featurizer is None else None
    if elements is not None and x.shape[1] == len(elements):
        return one_hot_names(x, elements, "?"), True
    numbers, labels = store.num_continuous, _types(store, "x", store.num_continuous)
    if featurizer is not None and featurizer.node_labels:
        numbers, labels = featurizer.node_numbers, featurizer.node_labels
    if labels and x.shape[1] - numbers == len(labels):
        return one_hot_names(x[:, numbers:], labels, ""), False
    return nameless


def edge_types_of(batch: GraphBatch, store: GraphStore) -> list[str] | None:
    """Types of edges that are one-hot; ``None`` if they are not."""
    featurizer, attr = store.featurizer, batch.edge_attr
    if attr is None or not len(attr):
        return None
    numbers, labels = 0, _types(store, "edge_attr", 0)
    if featurizer is not None and featurizer.edge_labels:
        numbers, labels = featurizer.edge_numbers, featurizer.edge_labels
    if len(labels) < 2 or attr.shape[1] - numbers != len(labels):
        return None
    return one_hot_names(attr.cpu()[:, numbers:], labels, "")


def _types(store: GraphStore, key: str, first: int) -> tuple[str, ...]:
    """Numbers of the columns from ``first`` on, as types; empty if they are not one-hot."""
    if key not in store.fields:
        return ()
    columns = next(store.pieces()).field(key)[:, first:]
    one_hot = bool(((columns == 0) | (columns == 1)).all() and (columns.sum(1) == 1).all())
    return tuple(map(str, range(columns.shape[1]))) if one_hot and columns.shape[1] > 1 else ()


def bond_orders_of(batch: GraphBatch, store: GraphStore) -> list[float] | None:
    """Bond orders of edges; ``None`` if the data do not tell."""
    attr = batch.edge_attr
    if attr is None:
        return None
    attr = attr.cpu()
    if store.featurizer is not None:
        return bond_orders(attr) if attr.shape[1] >= BOND_CATEGORIES[0] else None
    orders = _TU_ORDERS[store.name]
    if attr.shape[1] != len(orders):
        return None
    return [orders[place] for place in attr.argmax(1).tolist()]
