"""Molecules: features held against OGB's own, duplicates, scaffolds, hostile structures."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import sys
import zipfile
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from rdkit import Chem, rdBase
from rdkit.Chem import rdDepictor

from graph_transplant.data import Featurizer, GraphStore
from graph_transplant.datasets import duplicate_groups, load, molecules, stream
from graph_transplant.datasets.chemistry import molecule_of, scaffold
from graph_transplant.datasets.molecules import (
    bond_orders,
    from_smiles,
    molecule_arrays,
    node_names,
)
from graph_transplant.datasets.splits import scaffold_split
from graph_transplant.errors import DataError

# Every category at least once where chemistry has it: charges, radicals, hybridisations, stereo of
# atoms and bonds, rings, dative and other bonds, hydrogens written out, several parts, open atoms.
WRITTEN = (
    "C; CCO; c1ccccc1; C[C@H](N)C(=O)O; C[C@@H](N)C(=O)O; F/C=C/F; F/C=C\\F; F\\C=C\\F; "
    "CC=CC; C#N; [Na+].[Cl-]; *CC*; [CH3]; [CH2]; [H][H]; [H]C([H])([H])O; "
    "S(F)(F)(F)(F)(F)F; P(F)(F)(F)(F)F; [NH3]->[Cu]<-[NH3]; CN(=O)=O; [Fe+3]; [Fe+6]; "
    "[C-]#[O+]; c1ccc2c(c1)[nH]c1ccccc12; N[C@@](F)(Cl)Br |o1:1|; C~C; [U]$[U]; "
    "[Pt@SP1](F)(Cl)(Br)I; O=C1C=CC(=O)C=C1; C1CC2CCC1C2; [13CH4]; [O][O]; "
    "C/C=C/C=C\\C; CC(C)=C(C)C"
)
VARIED = WRITTEN.split("; ")


def categories(features: Any, widths: tuple[int, ...]) -> np.ndarray:
    """One-hot columns back to categories, each checked to have exactly one 1."""
    parts = np.split(np.asarray(features), np.cumsum(widths)[:-1], axis=1)
    assert all((part.sum(1) == 1).all() for part in parts)
    return np.stack([part.argmax(1) for part in parts], axis=1)


@pytest.fixture
def ogb_utils(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """OGB's own functions, without asking the network for a newer version of them."""
    monkeypatch.setitem(sys.modules, "outdated", None)
    monkeypatch.setenv("OUTDATED_IGNORE", "1")
    return importlib.import_module("ogb.utils")


def ogb_graph(ogb_utils: ModuleType, smiles: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What OGB makes of a molecule, its edges sorted."""
    with rdBase.BlockLogs():
        graph = ogb_utils.smiles2graph(smiles)
    order = np.lexsort(graph["edge_index"])
    return graph["node_feat"], graph["edge_index"][:, order], graph["edge_feat"][order]


# ------------------------------------------------------------------ features


def test_features_equal_those_of_ogb(ogb_utils: ModuleType) -> None:
    assert list(molecules.ATOM_CATEGORIES) == ogb_utils.features.get_atom_feature_dims()
    assert list(molecules.BOND_CATEGORIES) == ogb_utils.features.get_bond_feature_dims()
    known = ogb_utils.features.allowable_features  # some of which no molecule below has
    assert [*molecules._CHIRALITIES, "misc"] == known["possible_chirality_list"]
    assert list(molecules._STEREO) == known["possible_bond_stereo_list"]
    store = from_smiles(VARIED)
    assert store.skipped == ()
    for graph, (smiles, data) in enumerate(zip(VARIED, store.to_pyg(), strict=True)):
        nodes, edges, bonds = ogb_graph(ogb_utils, smiles)
        assert np.array_equal(categories(data.x, molecules.ATOM_CATEGORIES), nodes), smiles
        assert np.array_equal(data.edge_index, edges), smiles
        assert np.array_equal(categories(data.edge_attr, molecules.BOND_CATEGORIES), bonds), smiles
        assert store.rows.texts[graph] == smiles
    atoms = categories(store.x, molecules.ATOM_CATEGORIES)
    # The list above is worth its name: all hybridisations, four chiralities, all of the flags.
    assert [len(np.unique(column)) for column in atoms.T][6:] == [6, 2, 2]
    assert set(atoms[:, 1]) == {0, 1, 2, 4}
    bonds = categories(store.edge_attr, molecules.BOND_CATEGORIES)
    assert set(bonds[:, 0]) == {0, 1, 2, 3, 4}
    assert set(bonds[:, 1]) >= {0, 1, 2}


def test_a_mol_block_is_read_like_the_smiles_it_was_written_from() -> None:
    # Chirality as written in a block depends on coordinates, so that only molecules without it
    # have to be equal atom by atom.
    texts = ["CCO", "c1ccccc1O", "CC(=O)[O-].[Na+]", "C#N"]
    blocks = [Chem.MolToMolBlock(Chem.MolFromSmiles(text)) for text in texts]
    assert from_smiles(blocks).fingerprint() == from_smiles(texts).fingerprint()


# ------------------------------------------------------------------ what cannot be read


def caged(rings: int) -> str:
    """A SMILES of two chains, each atom bound to one of the other chain."""
    labels = [f"C%{number}" for number in range(10, 10 + rings)]
    return "".join([*labels, "C", *reversed(labels)])


@pytest.mark.parametrize(
    ("smiles", "reason"),
    [
        ("", "there is no structure"),
        ("NA", "there is no structure"),
        ("C1CC", "the SMILES cannot be parsed: unclosed ring 1"),
        ("c1cccc1", "invalid molecule: Can't kekulize mol.  Unkekulized atoms: 0 1 2 3 4"),
        ("CC(C", "the SMILES cannot be parsed: unclosed parenthesis"),
        ("CC[N", "the SMILES cannot be parsed: unclosed bracket"),
        ("CCO ethanol", "the SMILES contains a space: 'CCO ethanol'"),
        ("C\0C", r"the SMILES contains the invalid character '\x00'"),
        ("C" * 10**6, "the structure is too large: a text of 1000000 characters"),
        ("C" * 10_001, "the structure is too large: 10001 atoms, at most 10000 are read"),
        (
            ".".join([caged(90)] * 6) + ".C" * 100,
            "the structure is too large: 540 rings, at most 500 are read",
        ),
    ],
)
def test_reasons_are_in_plain_words(smiles: str, reason: str) -> None:
    assert molecule_arrays([smiles]).problems == {0: reason}


def complete(atoms: int) -> str:
    """A SMILES in which every atom is bound to every other."""
    number, label = {}, 0
    parts = []
    for one in range(atoms):
        part = "*" + "".join(f"%({number[other, one]})" for other in range(one))
        for other in range(one + 1, atoms):
            label += 1
            number[one, other] = label
            part += f"%({label})"
        parts.append(part)
    return ".".join(parts)


@pytest.mark.parametrize(
    "text", [complete(58), "C" + "[C@H](F)" * 2400, "C(" * 6000 + "C" + ")" * 6000]
)
def test_hostile_structures_end(text: str) -> None:
    arrays = molecule_arrays([text, "CC"])
    assert arrays.places.tolist()[-1] == 1
    assert len(arrays) + len(arrays.problems) == 2


def test_any_noise_is_read_or_has_a_reason() -> None:
    random = np.random.default_rng(0)
    signs = np.array(list("CNOPScnos[]()=#123%@/\\.+-H* \n\0é"))
    texts = ["".join(random.choice(signs, random.integers(1, 30))) for _ in range(500)]
    arrays = molecule_arrays(texts)
    assert sorted([*arrays.places.tolist(), *arrays.problems]) == list(range(500))
    assert all(reason and "\n" not in reason for reason in arrays.problems.values())


def test_without_rdkit_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(DataError, match=r"pip install .graph-transplant\[chem\]"):
        molecule_arrays(["CC"])


# ------------------------------------------------------------------ fragments and duplicates


@pytest.mark.parametrize(
    ("smiles", "kept"),
    [
        ("CC(=O)[O-].[Na+]", "CC(=O)[O-]"),
        ("Cl.C[C@H](N)c1ccccc1", "C[C@H](N)c1ccccc1"),
        # Two atoms that a ring closure joins across the dot.
        ("C1.C1CC", "C1.C1CC"),
    ],
)
def test_the_largest_fragment_is_kept(smiles: str, kept: str) -> None:
    drawn = Chem.MolFromSmiles(smiles)
    rdDepictor.Compute2DCoords(drawn)
    for text in (smiles, Chem.MolToMolBlock(drawn)):
        (chunk,) = stream([text], featurizer=Featurizer("molecules", largest_fragment=True))
        read = molecule_of(Chem, chunk.store.rows.texts[0])
        assert Chem.MolToSmiles(read) == Chem.CanonSmiles(kept)
        # The text stands for the atoms of the graph, in their order.
        numbers = [atom.GetAtomicNum() - 1 for atom in read.GetAtoms()]
        assert categories(chunk.store.x, molecules.ATOM_CATEGORIES)[:, 0].tolist() == numbers


def test_duplicates_are_those_of_canonical_smiles() -> None:
    random = np.random.default_rng(3)
    chosen = [Chem.MolFromSmiles(VARIED[place]) for place in random.integers(len(VARIED), size=99)]
    written = [Chem.MolToSmiles(molecule, doRandom=True) for molecule in chosen]
    store = from_smiles([*VARIED, *written, "CCC", "C[13CH2]C"])
    names: dict[str, int] = {}
    expected = [names.setdefault(Chem.CanonSmiles(t), len(names)) for t in store.rows.texts]
    assert duplicate_groups(store).tolist() == expected
    assert duplicate_groups(store.subset([7, 1, 2])) is None


def test_other_graphs_are_the_same_if_their_arrays_are() -> None:
    store = load("motifs", graphs=12)
    assert duplicate_groups(store.subset([*range(12), 3, 0])).tolist() == [*range(12), 3, 0]
    assert duplicate_groups(store) is None
    # Nodes without edges and features differ in number alone.
    dots = GraphStore(
        x=None,
        edge_index=torch.empty(2, 0, dtype=torch.long),
        y=torch.zeros(3, dtype=torch.long),
        node_counts=torch.tensor([1, 2, 1]),
        edge_counts=torch.zeros(3, dtype=torch.long),
    )
    assert duplicate_groups(dots).tolist() == [0, 1, 0]


# ------------------------------------------------------------------ scaffolds


def test_scaffolds_by_hand() -> None:
    assert scaffold("CCO") == ""
    assert scaffold("Cc1ccc(cc1)CCC2CCNCC2C") == Chem.CanonSmiles("c1ccc(CCC2CCNCC2)cc1")
    assert scaffold("C[C@H]1CC[C@@H](C2CC2)O1") == Chem.CanonSmiles("C1COC(C2CC2)C1")


def plain_split(smiles: list[str], validation: float, test: float) -> list[int]:
    """The published procedure, written down as it is told."""
    groups: dict[str, list[int]] = {}
    for row, text in enumerate(smiles):
        groups.setdefault(scaffold(text), []).append(row)
    ordered = sorted(groups.values(), key=lambda rows: rows[0], reverse=True)
    ordered.sort(key=len, reverse=True)
    train_cutoff = (1 - validation - test) * len(smiles)
    valid_cutoff = (1 - test) * len(smiles)
    part = [0] * len(smiles)
    train = valid = 0  # graphs in these parts
    for rows in ordered:
        if train + len(rows) <= train_cutoff + 1e-6:
            number, train = 0, train + len(rows)
        elif train + valid + len(rows) <= valid_cutoff + 1e-6:
            number, valid = 1, valid + len(rows)
        else:
            number = 2
        for row in rows:
            part[row] = number
    return part


CORES = ["c1ccccc1", "C1CC1", "C1CCC1", "C1CCCC1", "c1ccncc1", "C1CCNCC1", "c1ccc2ccccc2c1", "N"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("validation", "test"), [(0.1, 0.1), (0.25, 0.15), (0.2, 0.0)])
def test_the_scaffold_split_is_the_published_procedure(
    seed: int, validation: float, test: float
) -> None:
    random = np.random.default_rng(seed)
    tails = ["", "C", "CC", "CCC"]
    chosen = random.choice(CORES, 40, p=[0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05])
    smiles = [str(random.choice(tails)) + str(core) for core in chosen]
    split = scaffold_split(from_smiles(smiles), validation, test)
    assert split.dtype == torch.int8
    assert split.tolist() == plain_split(smiles, validation, test)


def test_names_and_orders_are_found_from_features() -> None:
    store = from_smiles(VARIED)
    names = node_names(store.x)
    orders = bond_orders(store.edge_attr)
    known = {"SINGLE": 1.0, "DOUBLE": 2.0, "TRIPLE": 3.0, "AROMATIC": 1.5}
    expected_names, expected_orders = [], []
    for smiles in VARIED:
        molecule = Chem.MolFromSmiles(smiles)
        expected_names += [atom.GetSymbol() for atom in molecule.GetAtoms()]
        bonds = {}
        for bond in molecule.GetBonds():
            order = known.get(str(bond.GetBondType()), 1.0)
            bonds[bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()] = order
            bonds[bond.GetEndAtomIdx(), bond.GetBeginAtomIdx()] = order
        expected_orders += [bonds[pair] for pair in sorted(bonds)]
    assert names == expected_names
    assert orders == expected_orders


def first_lines(archive: zipfile.ZipFile, member: str, count: int) -> list[list[str]]:
    """The first lines of a packed table in an archive."""
    with archive.open(f"ogbg_molhiv/{member}.csv.gz") as packed, gzip.open(packed) as unpacked:
        return list(islice(csv.reader(io.TextIOWrapper(unpacked, "utf-8")), count))


@pytest.mark.data
def test_molecules_of_ogb_have_the_published_features(data_dir: Path) -> None:
    with zipfile.ZipFile(data_dir / "molecules" / "ogbg_molhiv.zip") as archive:
        smiles = [line[1] for line in first_lines(archive, "mapping/mol", 301)[1:]]
        atoms = np.array(first_lines(archive, "raw/num-node-list", 300), dtype=int)[:, 0]
        bonds = np.array(first_lines(archive, "raw/num-edge-list", 300), dtype=int)[:, 0]
        x = np.array(first_lines(archive, "raw/node-feat", atoms.sum()), dtype=int)
        ends = np.array(first_lines(archive, "raw/edge", bonds.sum()), dtype=int)
        edge = np.array(first_lines(archive, "raw/edge-feat", bonds.sum()), dtype=int)
    arrays = molecule_arrays(smiles)
    kept = np.isin(np.arange(300), arrays.places)
    assert np.array_equal(arrays.atom_counts, atoms[kept])
    assert np.array_equal(arrays.bond_counts, bonds[kept])
    assert np.array_equal(arrays.ends, ends[np.repeat(kept, bonds)])
    wrong_atoms = (arrays.atom_kinds[arrays.atoms] != x[np.repeat(kept, atoms)]).any(1).sum()
    wrong_bonds = (arrays.bond_kinds[arrays.bonds] != edge[np.repeat(kept, bonds)]).any(1).sum()
    # RDKit of later years differs from that of the data in a few metal complexes: one it refuses,
    # in others it sees another hybridisation or other conjugated bonds.
    assert len(arrays.problems) <= 1
    assert wrong_atoms <= 4
    assert wrong_bonds <= 8


def test_rings_that_take_too_long_for_the_size_of_their_file_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # One ring through 2,001 atoms; RDKit's effort grows with the square of the atoms.
    texts = ["C1" + "C" * 2000 + "1"] * 30
    work = 30 * (2001 * 10_000 + 2001**2 * 5)
    monkeypatch.setattr("graph_transplant.datasets.molecules._MOST_WORK", work)
    assert len(molecule_arrays(texts, size=1000)) == 30
    monkeypatch.setattr("graph_transplant.datasets.molecules._MOST_WORK", work - 1)
    with pytest.raises(DataError, match="far too many atoms or rings"):
        molecule_arrays(texts, size=1000)
    assert len(molecule_arrays(texts)) == 30
